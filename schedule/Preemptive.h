//===- Preemptive.h - the bound of one machine --------------------------------------------------------------------===//
#ifndef SCHEDULE_PREEMPTIVE_H
#define SCHEDULE_PREEMPTIVE_H

#include <vector>

namespace braid::schedule {

/// A task that cannot begin before `head` and is followed by at least `tail`.
struct Interval {
  double head, duration, tail;
};

/// The least end of anything behind tasks of one stream: Jackson's preemptive schedule, O(n log n).
double preemptiveBound(std::vector<Interval> tasks);

} // namespace braid::schedule

#endif // SCHEDULE_PREEMPTIVE_H
