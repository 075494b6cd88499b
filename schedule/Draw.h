//===- Draw.h - pictures of a schedule ----------------------------------------------------------------------------===//
#ifndef SCHEDULE_DRAW_H
#define SCHEDULE_DRAW_H

#include "schedule/Problem.h"

namespace braid::schedule {

/// One line per stream, `width` characters for the makespan: names where they fit, idle time as dots.
std::string drawText(const Problem &problem, const Schedule &schedule, int64_t width);

/// A picture for documents, one row per stream; names and times appear when the mouse rests on a task. A long schedule is
/// as wide as its names need. `unit` of the problem's times, "s"; empty: any.
std::string drawSvg(const Problem &problem, const Schedule &schedule, const std::string &title,
                    const std::string &unit = "");

/// Chrome's trace events (chrome://tracing, Perfetto), one thread per stream. A unit of time is shown as one second
/// times `unitSeconds`. Where a task is called otherwise in pictures, that is its argument `task`. `ranks`: how many do this,
/// written beside the events; 0: not known.
std::string drawTrace(const Problem &problem, const Schedule &schedule, double unitSeconds, int64_t ranks = 0);

} // namespace braid::schedule

#endif // SCHEDULE_DRAW_H
