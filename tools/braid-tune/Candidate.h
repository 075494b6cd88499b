//===- Candidate.h - one way to run a model, predicted and measured -----------------------------------------------===//
#ifndef TOOLS_BRAIDTUNE_CANDIDATE_H
#define TOOLS_BRAIDTUNE_CANDIDATE_H

#include "compiler/Driver.h"
#include "tools/braid-plan/Forecast.h"
#include "tools/braid-tune/ModelText.h"

namespace braid::tune {

struct Candidate {
  std::string pipeline = "none", slicing = "uniform", spAlgorithm;
  int64_t overlapDegree = 1, chunkSize = 0;
  double predicted = 0; ///< seconds of a step
  std::optional<double> measured; ///< median over steps and rounds
  std::vector<double> losses; ///< of the measured steps

  CompileOptions apply(CompileOptions options) const;
  Json toJson() const; ///< keys of `schedule`, defaults left away
  std::string text() const;
};

/// Seconds of a training step by the command list and the cluster; nothing after a message.
std::optional<double> predict(const CompileJob &job, const Candidate &candidate, const plan::Cluster &cluster,
                              llvm::function_ref<plan::Experts(int64_t)> experts);

/// Compiles the candidate to `file`; false after a message.
bool build(const CompileJob &job, const Candidate &candidate, const std::string &file);

struct Measurement {
  std::vector<double> seconds; ///< of every step but the first
  std::vector<double> losses; ///< of every step
};
/// Trains `steps` steps from the same start on the same made-up data, ranks as threads; an error as text.
std::optional<std::string> measure(const std::string &file, int64_t steps, int threads, Measurement &result);

} // namespace braid::tune

#endif // TOOLS_BRAIDTUNE_CANDIDATE_H
