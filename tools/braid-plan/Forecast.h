//===- Forecast.h - what an entry of a program will do on a cluster -----------------------------------------------===//
// The command list is the plan: its FLOPs and bytes are the compiler's own counts (cmd.work), its arenas the memory of
// a rank, its records and waits the events. Commands become tasks, and the simulator of schedule/ times them. Of a
// pipeline there is a list for each stage: one rank of each is simulated, together.
#ifndef TOOLS_BRAIDPLAN_FORECAST_H
#define TOOLS_BRAIDPLAN_FORECAST_H

#include "runtime/Program.h"
#include "schedule/Problem.h"
#include "tools/braid-plan/ClusterFile.h"

namespace braid::plan {

/// A collective is a task, called as in the trace of a run; stages that have one together have a task each, which begin at one
/// time. Of the compute commands between two events those of one task of
/// the schedule are one ("A3.1", "M3.1.grad"), without a schedule those of one layer and direction ("layers.3.grad"); times
/// in seconds.
struct Forecast {
  schedule::Problem problem;
  schedule::Schedule schedule;
  schedule::Measures measures; ///< of several stages their mean
  double flops = 0, bytes = 0; ///< of all commands of a rank; of several stages their mean
  double mostFlops = 0; ///< those of the most rows that buffers of experts have room for, which braid-run info counts
  int64_t commands = 0; ///< of the stage that has most
  struct Axis {
    std::string name;
    int64_t collectives = 0; ///< of the stage that has most, as are all times
    double bytes = 0; ///< that one rank sends to others, as a mean of all ranks of the program
    double seconds = 0;
    double processor = 0; ///< seconds of the rank's own processor for its messages
  };
  std::vector<Axis> axes;
  struct Stage {
    schedule::Measures measures;
    double flops = 0;
    uint64_t memory = 0; ///< bytes of a rank, with all that is kept beside the entries
  };
  std::vector<Stage> stages; ///< of a pipeline; else one
  bool balanced = false; ///< rows that the router decides on are counted as if every expert got as many
  bool emptyCaches = false; ///< keys and values of earlier calls, which attention reads too, are not counted
};

/// Of these entries, which must exist, one after the other. A program that was compiled from a description has it with it: by
/// that rows which the router decides on are counted; without one all rows that buffers have room for are. Nothing, after a
/// message, where stages wait for each other for ever.
std::optional<Forecast> forecast(const runtime::Program &program, const std::vector<std::string> &entries,
                                 const Cluster &cluster);

/// What a program is there for: train_step, accumulate_step, eval_step or else its first entry; empty: it has none. Behind an
/// accumulate_step that is all of a step comes the update_step.
std::vector<std::string> defaultEntries(const runtime::Program &program);

/// A training step as a whole: the batches whose gradients it adds up, and the update behind them.
struct Step {
  int64_t batches = 1;
  double tokens = 0; ///< of all ranks
  schedule::Measures measures;
};
/// From what is forecast of the default entries; nothing after a message.
std::optional<Step> stepOf(const runtime::Program &program, const std::vector<std::string> &entries,
                           const Forecast &forecast, const Cluster &cluster);

/// Of a file that compileTables made of `name`; null after a message.
std::shared_ptr<const runtime::Program> programOf(const std::vector<uint8_t> &file, const std::string &name);

/// Seconds of its default entries on a cluster of such machines, as CompileOptions::secondsOf.
std::optional<double> secondsOnMachine(const std::vector<uint8_t> &file, const Machine &machine);
/// On `cluster`.
std::optional<double> secondsOn(const std::vector<uint8_t> &file, const Cluster &cluster);

/// Of the program's metadata.
double numberOf(const runtime::Program &program, std::string_view key, double otherwise = 0);

/// Of one call on all ranks: what its input of tokens holds, 0 for an entry without.
double tokensOf(const runtime::Program &program, const runtime::EntryInfo &entry);

} // namespace braid::plan

#endif // TOOLS_BRAIDPLAN_FORECAST_H
