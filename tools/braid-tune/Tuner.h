//===- Tuner.h - predicts many, measures the best few, writes the choice down --------------------------------------===//
#ifndef TOOLS_BRAIDTUNE_TUNER_H
#define TOOLS_BRAIDTUNE_TUNER_H

#include "frontend/ModelSpec.h"
#include "passes/analysis/Mesh.h"
#include "tools/braid-tune/Candidate.h"

#include <cstdio>

namespace braid::tune {

/// One member per flag of braid-tune.
struct Options {
  CompileJob job; ///< `input` and what braid-compile is asked for
  std::string clusterFile, output, launch;
  std::string braidRun; ///< empty: there is none
  int64_t steps = 6, rounds = 3, best = 3, threads = 1;
  std::vector<int64_t> degrees = {2, 3, 4, 6, 8}; ///< besides 1
  bool predictOnly = false, again = false;
};

class Tuner {
public:
  explicit Tuner(Options &options) : options(options), out(options.output == "-" ? stderr : stdout) {}
  /// False after a message.
  bool run();

private:
  bool load();
  bool loadCluster();
  bool isOthers() const;
  /// The model without any choice, as a file and as a program: what candidates start from and are compared with.
  bool makePlain();
  Json machineSchedule() const;
  void identify();
  bool isFresh() const;
  /// Which degrees are worth a try: no slice is shorter than a token.
  std::vector<int64_t> possibleDegrees() const;
  /// What the others are compared with, as a candidate.
  Candidate plain() const;
  /// Seconds it is predicted to take; nothing where it cannot be compiled or does not fit.
  std::optional<double> offer(Candidate candidate);
  bool search();
  /// Layers of another mixer, or with other experts, may be faster in another number of slices: each kind in turn, the others left as they are.
  void searchLayers();
  bool measureBest();
  void judge(const Tolerance &tolerance);
  bool write();

  Options &options;
  std::FILE *out; ///< for people: not where the description goes
  std::string folder; ///< for what is gone in the end
  std::string text;
  std::optional<ModelSpec> spec;
  plan::Cluster cluster;
  bool keepsMachine = false; ///< the model's own schedule.machine stays, --cluster or not
  Mesh mesh;
  Runner runner;
  std::string plainHash; ///< of the program
  Json identity; ///< what the choice holds for
  std::vector<Candidate> candidates; ///< once searched: fastest prediction first, then what does not fit
  Json checked; ///< what results were compared by; null: nothing was measured
  size_t chosen = 0;
};

} // namespace braid::tune

#endif // TOOLS_BRAIDTUNE_TUNER_H
