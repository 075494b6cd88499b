// The training loop. Every rank runs train() on the same inputs; what it computes depends on the program, the text and
// the options only, so a run that is stopped and resumed gives the same bits as one that is not.
#pragma once

#include "runtime/train/Evaluate.h"

#include <atomic>
#include <cstdio>

namespace braid::runtime {

class ChromeTrace;

constexpr double maxLearningRate = 100;           // a step of AdamW moves a weight by about as much
constexpr uint64_t maxAccumulationSteps = 1 << 16;

struct TrainOptions {
  // In total; a resumed run goes on to the same number. Absent: what the checkpoint says (resumed), else the program.
  std::optional<uint64_t> steps;
  // Absent: what the checkpoint says (resumed), else the program's metadata, else the defaults of Trainer.cpp.
  std::optional<double> learningRate, minLearningRate;
  // Warm-up steps given here must not exceed `steps`.
  std::optional<uint64_t> warmupSteps, seed;
  // Batches whose gradients make one update; absent: the checkpoint's (resumed), else the program's. Only programs with
  // @accumulate_step have a choice.
  std::optional<uint64_t> accumulationSteps;

  std::string checkpointDir; // empty: no checkpoints
  uint64_t saveEvery = 0; // 0: only at the end
  int keep = 3;
  bool resume = false; // from the newest checkpoint, or from the start when there is none
  std::optional<uint64_t>
      resumeStep; // from the checkpoint of this step instead; later ones stay until they are reached
  uint64_t evalEvery = 0;
  bool checkFinite = true; // a step whose loss or gradient norm is not finite ends the run and is not applied

  std::string metricsPath;
  ChromeTrace *trace = nullptr; // every rank reports to it; whoever made it writes it
  uint64_t traceSteps = 3; // recorded after the first step of the run

  const std::atomic<bool> *stop = nullptr; // set (by a signal handler): save and return
  std::FILE *progress = nullptr;
};

struct TrainResult {
  uint64_t firstStep = 0, lastStep = 0; // completed steps at the begin and the end of this run
  uint64_t steps = 0; // of the whole training
  bool stopped = false; // before them
  double loss = 0; // of the last step
  double seconds = 0;
  std::string checkpoint; // the last one saved or resumed from; empty: none
  std::optional<EvalResult> heldout;
  int progressError = 0; // errno of the first write to `progress` that failed; the training went on
};

// Collective; the result is the same on every rank. `heldout` may be empty.
Expected<TrainResult> train(Rank &rank, const TrainOptions &options, const Corpus &corpus, const Corpus &heldout);

} // namespace braid::runtime
