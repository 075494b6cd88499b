//===- Solve.h - orders for a problem -----------------------------------------------------------------------------===//
// Solvers know streams and dependences only, never what a task is. The same problem gives the same orders: effort is
// counted in simulated tasks, not in time.
#ifndef SCHEDULE_SOLVE_H
#define SCHEDULE_SOLVE_H

#include "schedule/Problem.h"

namespace braid::schedule {

struct NamedOrders {
  std::string name;
  Orders orders;
};

struct Solution {
  Orders orders;
  double makespan = 0;
  bool optimal = false; ///< proved by search or by a lower bound
  std::string how; ///< "1A1M", "1A1M, improved", "exact search", "list order"
};

/// Critical path first: whenever a stream is free, the ready task with the longest path behind it.
Orders listOrder(const Problem &problem);

/// `orders` without the tasks `fillers`, and these put where their stream would be idle: whenever it waits for its next
/// task, the longest ready filler that fits; what is left at the end. Whether a filler may reach half or all of its
/// time beyond a gap is tried too, and the fastest kept. Only fillers wait for fillers, each for one
/// that stands behind it in the list.
Orders fillGaps(const Problem &problem, const Orders &orders, const std::vector<int64_t> &fillers);

/// Tabu search from `orders`: neighbours on the critical path change places at the ends of blocks of one stream
/// (Nowicki and Smutnicki 1996). Never worse than what it began with.
Orders improve(const Problem &problem, const Orders &orders, int64_t effort);

/// The optimum by branch and bound over active schedules (Giffler and Thompson 1960), with dominance; nothing when it
/// is not below `upper` or not found within `effort`; `*proved` says which. At most 64 tasks.
std::optional<Orders> exact(const Problem &problem, double upper, int64_t effort, bool *proved);

/// The best of the given orders and the list order, improved; small problems are searched to the end. Of equally fast
/// orders the first given one, so that a known order is kept where nothing beats it.
Solution search(const Problem &problem, const std::vector<NamedOrders> &candidates);

} // namespace braid::schedule

#endif // SCHEDULE_SOLVE_H
