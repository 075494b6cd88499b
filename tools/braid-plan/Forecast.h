//===- Forecast.h - what an entry of a program will do on a cluster -----------------------------------------------===//
// The command list is the plan: its FLOPs and bytes are the compiler's own counts (cmd.work), its arenas the memory of
// a rank, its records and waits the events. Commands become tasks, and the simulator of schedule/ times them.
#ifndef TOOLS_BRAIDPLAN_FORECAST_H
#define TOOLS_BRAIDPLAN_FORECAST_H

#include "runtime/Program.h"
#include "schedule/Problem.h"
#include "tools/braid-plan/ClusterFile.h"

namespace braid::plan {

/// A collective is a task, called as in the trace of a run. Of the compute commands between two events those of one task of
/// the schedule are one ("A3.1", "M3.1.grad"), without a schedule those of one layer and direction ("layers.3.grad"); times
/// in seconds.
struct Forecast {
  schedule::Problem problem;
  schedule::Schedule schedule;
  schedule::Measures measures;
  double flops = 0, bytes = 0; ///< of all commands
  double mostFlops = 0; ///< those of the most rows that buffers of experts have room for, which braid-run info counts
  int64_t commands = 0;
  struct Axis {
    std::string name;
    int64_t collectives = 0;
    double bytes = 0; ///< that one rank sends to others
    double seconds = 0;
    double processor = 0; ///< seconds of the rank's own processor for its messages
  };
  std::vector<Axis> axes;
  bool balanced = false; ///< rows that the router decides on are counted as if every expert got as many
  bool emptyCaches = false; ///< keys and values of earlier calls, which attention reads too, are not counted
};

/// The entry must exist. A program that was compiled from a description has it with it: by that rows which the router
/// decides on are counted; without one all rows that buffers have room for are.
Forecast forecast(const runtime::Program &program, const std::string &entry, const Cluster &cluster);

/// The entry that a program is there for: train_step, accumulate_step, eval_step or else its first; empty: it has none.
std::string defaultEntry(const runtime::Program &program);

/// Seconds of its default entry on a cluster of such machines, as CompileOptions::secondsOf.
std::optional<double> secondsOnMachine(const std::vector<uint8_t> &file, const Machine &machine);
/// On `cluster`.
std::optional<double> secondsOn(const std::vector<uint8_t> &file, const Cluster &cluster);

/// Of one call on all ranks: what its input of tokens holds, 0 for an entry without.
double tokensOf(const runtime::Program &program, const runtime::EntryInfo &entry);

} // namespace braid::plan

#endif // TOOLS_BRAIDPLAN_FORECAST_H
