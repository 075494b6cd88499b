//===- Problem.h - tasks on streams, what must precede what, and when everything runs -----------------------------===//
// A directed acyclic graph of tasks; every task belongs to one stream. Streams are FIFO, tasks do not pre-empt, stream
// 0 computes and every other stream belongs to one communicator, but where several processors work on one problem. Times are
// in one unit, whichever the caller uses. Who orders the tasks (Solve.h, Stages.h) and who proves an order (Verify.h) are
// separate.
#ifndef SCHEDULE_PROBLEM_H
#define SCHEDULE_PROBLEM_H

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace braid::schedule {

struct Task {
  std::string name; ///< "A0.1": kind, block, index; unique
  int64_t stream = 0;
  double duration = 0;
  std::vector<int64_t> after; ///< tasks that must have ended
  /// Of a task that does not compute: the share of the compute stream's time that it takes while it runs, 0 to 1. A
  /// processor that serves its own messages computes the slower; durations of compute are those without any. What asks
  /// for more than there is takes longer itself.
  double load = 0;
  std::string label = {}; ///< shorter, for pictures; empty: the name
  int64_t microBatch = -1; ///< of a pipeline of ranks: the part of a batch that it is for; -1: of none
  const std::string &shown() const { return label.empty() ? name : label; }
};

/// A value: written by one task, read by others, kept in bytes [begin, begin + bytes) of one common arena.
struct Buffer {
  std::string name;
  int64_t writer = 0;
  std::vector<int64_t> readers;
  int64_t begin = 0, bytes = 0;
};

struct Problem {
  std::vector<std::string> streams; ///< "compute", then one name per communicator
  std::vector<Task> tasks;
  std::vector<Buffer> buffers;
  std::vector<int64_t> hosts = {}; ///< of each stream the one that its processor computes on; empty: stream 0 of all
  int64_t hostOf(int64_t stream) const { return hosts.empty() ? 0 : hosts[stream]; }
  bool computes(int64_t stream) const { return hostOf(stream) == stream; }
};

/// Per stream its tasks, first to last.
using Orders = std::vector<std::vector<int64_t>>;

/// What a rank does: the order of every stream, the events that streams wait for, and the planned times.
struct Schedule {
  Orders orders;
  std::vector<std::vector<int64_t>> waits; ///< per task: tasks of other streams whose end it waits for
  std::vector<double> start, end;
};

/// Every task as early as its stream and its predecessors allow, compute slowed down by the loads beside it; events where a dependence crosses streams and an
/// earlier event does not cover it. Nothing where the orders contradict the graph; `cycle` then gets the tasks of one
/// cycle, each waiting for the next.
std::optional<Schedule> simulate(const Problem &problem, const Orders &orders, std::vector<int64_t> *cycle = nullptr);

/// How fast the tasks go on that run, by stream (-1: none does), 1 at most: where those of a processor that do not compute
/// ask for its time.
std::vector<double> speedsOf(const Problem &problem, const std::vector<int64_t> &running);

/// As simulate, without events and loads: the end of the last task, or infinity for a cycle.
double makespanOf(const Problem &problem, const Orders &orders);

/// schedules.md section 2.
struct Measures {
  double makespan = 0; ///< end of the last task
  double computeBusy = 0;
  double exposedComm = 0; ///< a communicator is busy while compute is idle
  double bubble = 0; ///< 1 - computeBusy / makespan
};
/// Of the processor that computes on stream `host`; the makespan is that of all.
Measures measureOn(const Problem &problem, const Schedule &schedule, int64_t host);
/// The mean of all processors.
Measures measure(const Problem &problem, const Schedule &schedule);

/// No order is faster: longest path, and per stream the preemptive optimum of its tasks between what must come before
/// and after them; added up over tasks that split the graph in an earlier and a later part.
double lowerBound(const Problem &problem);

/// Tasks in an order in which every one follows its predecessors; fewer than there are where the graph has a cycle.
std::vector<int64_t> topologicalOrder(const Problem &problem);

/// Longest path behind each task, itself not included.
std::vector<double> tails(const Problem &problem, const std::vector<int64_t> &topological);

} // namespace braid::schedule

#endif // SCHEDULE_PROBLEM_H
