//===- Candidate.h - one way to run a model ------------------------------------------------------------------------===//
#ifndef TOOLS_BRAIDTUNE_CANDIDATE_H
#define TOOLS_BRAIDTUNE_CANDIDATE_H

#include "compiler/Driver.h"
#include "schedule/Stages.h"
#include "tools/braid-plan/ClusterFile.h"
#include "tools/braid-tune/Measure.h"
#include "tools/braid-tune/ModelText.h"

namespace braid::tune {

struct Candidate {
  std::string pipeline = "none", slicing = "uniform", spAlgorithm;
  int64_t overlapDegree = 1, chunkSize = 0;
  std::string overlapDegrees; ///< of layers that have another number of slices, "0-2:3,5:1"; empty: none
  std::string stageOrder; ///< of the micro-batches on a stage of a pipeline; empty: there are no stages

  double predicted = 0; ///< seconds of a step
  uint64_t tasks = 0; ///< of a step's tasks and their predicted times: to a clock, two that are equal are one program
  Measurement measured; ///< of all runs; empty: not measured
  std::string dropped; ///< why it cannot be chosen; empty: it can

  /// Neither sliced nor anything else that is chosen: what the others are compared with.
  bool isPlain() const {
    return pipeline == "none" && !chunkSize && spAlgorithm.empty() &&
           (stageOrder.empty() || stageOrder == schedule::stageOrderNames.front());
  }
  CompileOptions apply(CompileOptions options) const;
  Json toJson() const; ///< keys of `schedule`, defaults left away
  std::string text() const;
};

/// Fills `predicted` and `tasks` by the command list of a training step and the cluster, and `dropped` where its memory is
/// more than a device has; false after a message.
bool predict(const CompileJob &job, Candidate &candidate, const plan::Cluster &cluster);

/// Compiles the candidate to `file`; false after a message.
bool build(const CompileJob &job, const Candidate &candidate, const std::string &file);

} // namespace braid::tune

#endif // TOOLS_BRAIDTUNE_CANDIDATE_H
