// The training loop. Every rank runs train() on the same inputs; what it computes depends on the program, the text and
// the options only, so a run that is stopped and resumed gives the same bits as one that is not.
#pragma once

#include "runtime/train/Evaluate.h"
#include "runtime/train/TrainSettings.h"

namespace braid::runtime {

struct TrainResult {
  uint64_t firstStep = 0, lastStep = 0; // completed steps at the begin and the end of this run
  uint64_t steps = 0; // of the whole training
  bool stopped = false; // before them
  double loss = 0; // of the last step
  double seconds = 0;
  std::string checkpoint; // the last one saved or resumed from; empty: none
  std::string unsaved; // why there is no checkpoint of the last step, where others were asked for
  std::optional<EvalResult> heldout;
  int progressError = 0; // errno of the first write to `progress` that failed; the training went on
  Status metrics = Status::success(); // an error: the last lines are not in the file; the training went on
};

// Collective; the result is the same on every rank. `heldout` may be empty.
Expected<TrainResult> train(Rank &rank, const TrainOptions &options, const Corpus &corpus, const Corpus &heldout);

} // namespace braid::runtime
