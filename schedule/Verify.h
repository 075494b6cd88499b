//===- Verify.h - the proof of a schedule -------------------------------------------------------------------------===//
// Shares nothing with the solvers but the problem: it trusts neither times nor orders nor events. A schedule is right
// when FIFO streams and events alone force every dependence; times are checked on top.
#ifndef SCHEDULE_VERIFY_H
#define SCHEDULE_VERIFY_H

#include "schedule/Problem.h"

#include <span>

namespace braid::schedule {

/// What is wrong, one sentence each, naming the tasks and both numbers; empty: the schedule is proved.
///  - every task once, on its own stream
///  - no deadlock: a cycle of streams and events is reported with its tasks
///  - every dependence forced, every buffer written before it is read, no bytes used again while still needed
///  - every task as long as it must be (beside loads, Task::load, at least as long), not before what it waits for, the whole not below the lower bound
std::vector<std::string> verify(const Problem &problem, const Schedule &schedule);

/// The same without times: orders, events, dependences and buffers.
std::vector<std::string> verifyOrder(const Problem &problem, const Schedule &schedule);

/// The ranks of a communicator run the same collectives in the same order, and no rank waits for another one in a
/// circle: stream `s` of one rank meets stream `s` of all others, task by task and by name (s > 0).
std::vector<std::string> verifyRanks(std::span<const Problem> problems, std::span<const Schedule> schedules);

} // namespace braid::schedule

#endif // SCHEDULE_VERIFY_H
