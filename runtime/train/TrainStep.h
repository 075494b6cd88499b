// One step of training: the entries of a program that make an update (@train_step, or @accumulate_step for every batch
// and then @update_step), what goes in and what comes out, and the search for the value that was not finite.
#pragma once

#include "runtime/data/PackedRows.h"
#include "runtime/train/FiniteCheck.h"

namespace braid::runtime {

class TrainStep {
public:
  explicit TrainStep(Rank &rank) : rank(rank), session(rank.session()) {}
  TrainStep(const TrainStep &) = delete; // the guard looks at `lossSum`

  // Finds the entries and checks their types.
  Status bind();
  bool accumulates() const { return update.has_value(); }
  const BatchBinding &shape() const { return batch; }

  // Where batches come from (all outlive this), and how many make an update.
  void setData(const Corpus &corpus, const PackedRows &rows, const SampleOrder &order, uint64_t seed, uint64_t batches);
  // Of one update, all ranks.
  uint64_t samples() const { return batches * batchSamples(); }
  // Labels that count among `samples` samples from `position` on.
  uint64_t labelsOf(uint64_t position, uint64_t samples) const;

  // Step `number`, counted from 1, on the samples from `position` on. With `checkFinite` an update whose loss or
  // gradient norm is not finite is not applied.
  Status run(uint64_t number, uint64_t position, double learningRate, bool checkFinite);
  // The last step ended before its update.
  bool refused() const { return guard->tripped(); }

  // Of the last step.
  double loss() const { return lossSum; }
  float gradNorm() const { return gradNormOutput.as<float>()[0]; }
  std::optional<double> auxLoss() const { return auxLossOutput ? std::optional(auxLossSum) : std::nullopt; }
  // Counts of every layer and expert, [layers, E].
  struct Counts {
    TensorView output;         // of the last batch
    std::vector<int32_t> sums; // of the step
  };
  const std::optional<Counts> &expertCounts() const { return counts; }
  const std::optional<Counts> &expertDropped() const { return dropped; }

  // Collective, after a step that was refused. Repeats it, without its update, and says which command made the first
  // value that is not finite, and which samples do this alone. The text is that of rank 0. Changes no parameter.
  Expected<std::string> explainRefusal(uint64_t number, uint64_t position);

private:
  uint64_t batchSamples() const { return static_cast<uint64_t>(batch.batch * rank.dpSize()); }
  Status bindCounts(const EntryInfo &entry, std::string_view name, std::optional<Counts> &into);
  Status fillBatch(uint64_t position, std::optional<uint64_t> only);
  Status bindScales(const EntryInfo &entry);
  void scaleLoss(uint64_t position);
  void scaleRouterLosses(uint64_t position);
  Status runUpdate(uint64_t position, RunWatcher *watcher, std::optional<uint64_t> only = std::nullopt);
  Expected<std::string> firstOfAllRanks(const FiniteSearch::Found &found);

  Rank &rank;
  Session &session;
  BatchBinding batch;
  TensorView learningRateInput, stepInput, lossOutput, gradNormOutput;
  std::optional<TensorView> auxLossOutput;
  std::optional<EntryId> update; // @update_step; absent: @train_step does all
  std::optional<TensorView> lossScaleInput,
      auxScaleInput; // of entries that add up parts of a step: batches, or micro-batches of one
  std::optional<Counts> counts, dropped;
  std::optional<UpdateGuard> guard;

  const Corpus *corpus = nullptr;
  const PackedRows *rows = nullptr;
  const SampleOrder *order = nullptr;
  uint64_t seed = 0, batches = 1;

  std::optional<uint64_t> filledAhead; // the batch that a GPU got while it worked on the one before: its first sample
  double labelShare = 0; // 1 / labels of an update
  double lossSum = 0, auxLossSum = 0;
};

} // namespace braid::runtime
