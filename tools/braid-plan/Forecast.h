//===- Forecast.h - what an entry of a program will do on a cluster -----------------------------------------------===//
// The command list is the plan: its FLOPs and bytes are the compiler's own counts (cmd.work), its arenas the memory of
// a rank, its records and waits the events. Commands become tasks, and the simulator of schedule/ times them.
#ifndef TOOLS_BRAIDPLAN_FORECAST_H
#define TOOLS_BRAIDPLAN_FORECAST_H

#include "runtime/Program.h"
#include "schedule/Problem.h"
#include "tools/braid-plan/ClusterFile.h"

namespace braid::plan {

/// Compute commands between two events are one task, named after the first of them; a collective is a task. Times in
/// seconds.
struct Forecast {
  schedule::Problem problem;
  schedule::Schedule schedule;
  schedule::Measures measures;
  double flops = 0, bytes = 0; ///< of all commands
  int64_t commands = 0;
  struct Axis {
    std::string name;
    int64_t collectives = 0;
    double bytes = 0; ///< that one rank sends to others
    double seconds = 0;
  };
  std::vector<Axis> axes;
  bool balanced = false; ///< rows that the router decides on are counted as if every expert got as many
};

/// Of a layer: the experts that a token chooses, all of them, and, where a capacity bounds the rows of a peer, the
/// tokens of this rank.
struct Experts {
  int64_t topK = 0, count = 0, cappedTokens = 0;
};

/// The entry must exist. `expertsOf`: of an absolute layer index, {} where a layer has none or fills all its rows.
Forecast forecast(const runtime::Program &program, const std::string &entry, const Cluster &cluster,
                  llvm::function_ref<Experts(int64_t layer)> expertsOf);

} // namespace braid::plan

#endif // TOOLS_BRAIDPLAN_FORECAST_H
