// What a training run is asked to do, and what it then does: the command line first, then the checkpoint it goes on
// from, then the program's metadata, then the defaults.
#pragma once

#include "runtime/schema/Limits.h"
#include "runtime/train/CheckpointIndex.h"
#include "runtime/train/Rank.h"
#include "runtime/train/Schedule.h"

#include <atomic>
#include <cstdio>
#include <map>

namespace braid::runtime {

class ChromeTrace;

struct TrainOptions {
  // In total; a resumed run goes on to the same number. Absent: what the checkpoint says (resumed), else the program.
  std::optional<uint64_t> steps;
  // Absent: what the checkpoint says (resumed), else the program's metadata, else the defaults of TrainSettings.cpp.
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
      resumeStep; // from the checkpoint of this step instead; later ones stay until this run has saved one
  std::map<std::string, std::string> tokenizerFiles; // tokenizer.json and what lies beside it, which checkpoints hold
  std::string initFrom; // a new run begins with the weights of this checkpoint; a resumed one does not read it
  uint64_t evalEvery = 0;
  bool checkFinite = true; // a step whose loss or gradient norm is not finite ends the run and is not applied

  std::string metricsPath;
  ChromeTrace *trace = nullptr; // every rank reports to it; whoever made it writes it
  uint64_t traceSteps = 3; // recorded after the first step of the run

  const std::atomic<bool> *stop = nullptr; // set (by a signal handler): save and return
  std::FILE *progress = nullptr;
};

// Success when a run may go on from `state`: the same seed, rows and data, and a step that is not past the end.
Status checkResumed(const CheckpointState &state, const TrainOptions &options, const BatchBinding &batch,
                    const Corpus &corpus);

struct TrainSettings {
  LearningRateSchedule schedule;
  uint64_t compiledAccumulationSteps = 1; // what the program says
  bool minimumIsScaled = false; // of the learning rate, to keep its share of the peak
};

// Fills the settings in `state`, which holds those of the checkpoint when `resumed`. `accumulates`: the program has
// @accumulate_step, so the number of batches of an update is free.
Expected<TrainSettings> chooseSettings(const Rank &rank, const TrainOptions &options, const BatchBinding &batch,
                                       const Corpus &corpus, bool accumulates, bool resumed, CheckpointState &state);

} // namespace braid::runtime
