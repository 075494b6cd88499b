#include "runtime/train/TrainStep.h"

#include "runtime/io/TensorNames.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

namespace braid::runtime {

Status TrainStep::bindCounts(const EntryInfo &entry, std::string_view name, std::optional<Counts> &into) {
  const TensorInfo *info = findByLastComponent(rank.program(), entry.outputs, name);
  if (!info)
    return Status::success();
  BRAID_TRY(checkTensor(entry, *info, DType::i32, 2));
  TensorView output = session.tensor(*info);
  into.emplace(output, std::vector<int32_t>(output.as<int32_t>().size()));
  return Status::success();
}

// An entry that makes its batch's part of a step's loss does not see the step's labels: it is told how many there are. So is one that cuts
// its batch into micro-batches, and how they are spread over those, whose routers have a loss each.
Status TrainStep::bindScales(const EntryInfo &entry) {
  const Program &program = rank.program();
  if (accumulates() || findByLastComponent(program, entry.inputs, "loss_scale")) {
    BRAID_ASSIGN(lossScaleInput, scalarInput(session, entry, "loss_scale", DType::f32));
  }
  if (!(accumulates() && auxLossOutput) && !findByLastComponent(program, entry.inputs, "aux_scale"))
    return Status::success();
  BRAID_ASSIGN(const TensorInfo *shares, entryInput(program, entry, "aux_scale"));
  BRAID_TRY(checkTensor(entry, *shares, DType::f32, 1));
  if (shares->shape[0] < 1 || batch.batch % shares->shape[0] != 0)
    return Status::error(
        ErrorCode::unsupported,
        "entry @{}: '{}' is of {} micro-batches, but a rank has {} rows of a batch; valid: micro-batches "
        "of equally many rows",
        entry.name, shares->name, shares->shape[0], batch.batch);
  auxScaleInput = session.tensor(*shares);
  return Status::success();
}

Status TrainStep::bind() {
  const Program &program = rank.program();
  bool accumulates = session.entry("accumulate_step").ok();
  BRAID_ASSIGN(const EntryInfo *entry, findEntry(program, accumulates ? "accumulate_step" : "train_step"));
  BRAID_ASSIGN(const EntryInfo *updating, findEntry(program, accumulates ? "update_step" : "train_step"));
  BRAID_ASSIGN(batch, BatchBinding::bind(session, *entry));
  BRAID_ASSIGN(learningRateInput, scalarInput(session, *updating, "learning_rate", DType::f32));
  BRAID_ASSIGN(stepInput, scalarInput(session, *updating, "step", DType::i32));
  BRAID_ASSIGN(lossOutput, scalarOutput(session, *entry, "loss", DType::f32));
  BRAID_ASSIGN(gradNormOutput, scalarOutput(session, *updating, "grad_norm", DType::f32));
  if (accumulates) {
    BRAID_ASSIGN(update, session.entry("update_step"));
  }
  guard.emplace(lossSum, lossOutput, gradNormOutput);
  if (findByLastComponent(program, entry->outputs, "aux_loss")) {
    BRAID_ASSIGN(auxLossOutput, scalarOutput(session, *entry, "aux_loss", DType::f32));
  }
  BRAID_TRY(bindScales(*entry));
  BRAID_TRY(bindCounts(*entry, "expert_counts", counts));
  return bindCounts(*entry, "expert_dropped", dropped);
}

void TrainStep::setData(const Corpus &corpus, const PackedRows &rows, const SampleOrder &order, uint64_t seed,
                        uint64_t batches) {
  this->corpus = &corpus;
  this->rows = &rows;
  this->order = &order;
  this->seed = seed;
  this->batches = batches;
}

// This rank's rows of the global batch that begins at a sample; or sample `only` in each of them.
Status TrainStep::fillBatch(uint64_t position, std::optional<uint64_t> only) {
  for (int64_t i = 0; i < batch.batch; ++i) {
    uint64_t sample = only.value_or(SampleOrder::sample(position, rank.dpCoordinate(), batch.batch, i));
    BRAID_TRY(batch.fillRow(i, [&](auto tokens, auto labels, auto documents) {
      return rows->fill(*corpus, order->row(sample), tokens, labels, documents);
    }));
    batch.setDraw(i, sample, seed);
  }
  return Status::success();
}

uint64_t TrainStep::labelsOf(uint64_t position, uint64_t samples) const {
  uint64_t labels = 0;
  for (uint64_t sample = 0; sample < samples; ++sample)
    labels += rows->labels(order->row(position + sample));
  return labels;
}

// Every label of an update weighs the same, whichever batch it is in, so all are counted before the first batch runs.
void TrainStep::scaleLoss(uint64_t position) {
  if (!lossScaleInput && !auxScaleInput)
    return;
  uint64_t labels = labelsOf(position, samples());
  labelShare = labels ? 1.0 / static_cast<double>(labels) : 0.0;
  if (lossScaleInput)
    lossScaleInput->as<float>()[0] = static_cast<float>(labelShare);
}

// Router losses are means over the tokens of a micro-batch, which are its labels: of equally many rows of every rank along dp.
void TrainStep::scaleRouterLosses(uint64_t position) {
  if (!auxScaleInput)
    return;
  std::span<float> shares = auxScaleInput->as<float>();
  int64_t count = batch.batch / static_cast<int64_t>(shares.size());
  for (size_t part = 0; part < shares.size(); ++part) {
    uint64_t labels = 0;
    for (int64_t dp = 0; dp < rank.dpSize(); ++dp)
      labels += labelsOf(SampleOrder::sample(position, dp, batch.batch, static_cast<int64_t>(part) * count),
                         static_cast<uint64_t>(count));
    shares[part] = static_cast<float>(static_cast<double>(labels) * labelShare);
  }
}

// The batches of the update that begins at sample `first`, and the update, seen by `watcher`; or an update of nothing
// but sample `only`.
Status TrainStep::runUpdate(uint64_t first, RunWatcher *watcher, std::optional<uint64_t> only) {
  scaleLoss(first);
  if (update)
    session.clear(Role::gradient);
  lossSum = auxLossSum = 0;
  for (std::optional<Counts> *table : {&counts, &dropped})
    if (*table)
      std::fill((*table)->sums.begin(), (*table)->sums.end(), 0);
  session.setWatcher(watcher);
  Status status = Status::success();
  for (uint64_t i = 0; i < (only ? 1 : batches) && status.ok(); ++i) {
    uint64_t position = first + i * batchSamples();
    bool filled = std::exchange(filledAhead, std::nullopt) == position && !only;
    if (status = filled ? Status::success() : fillBatch(position, only); !status.ok())
      break;
    scaleRouterLosses(position);
    auto fillNext = [&] {
      if (!only && fillBatch(position + batchSamples(), only).ok())
        filledAhead = position + batchSamples();
      return filledAhead.has_value();
    };
    status = session.run(batch.entry, {batch.inputs, fillNext, filled});
    lossSum += lossOutput.as<float>()[0];
    if (auxLossOutput)
      auxLossSum += auxLossOutput->as<float>()[0];
    for (std::optional<Counts> *table : {&counts, &dropped})
      if (*table)
        std::transform((*table)->sums.begin(), (*table)->sums.end(), (*table)->output.as<int32_t>().begin(),
                       (*table)->sums.begin(), std::plus<>());
  }
  if (update && status.ok())
    status = session.run(*update);
  session.setWatcher(nullptr);
  return status;
}

Status TrainStep::run(uint64_t number, uint64_t position, double learningRate, bool checkFinite) {
  learningRateInput.as<float>()[0] = static_cast<float>(learningRate);
  stepInput.as<int32_t>()[0] = static_cast<int32_t>(number);
  guard->reset();
  return runUpdate(position, checkFinite ? &*guard : nullptr).withContext(fmt::format("step {}", number));
}

// Collective. The first in the order of the commands; of several stages in that of the stage that saw one first.
Expected<std::string> TrainStep::firstOfAllRanks(const FiniteSearch::Found &found) {
  struct Report {
    uint64_t order = UINT64_MAX, at = UINT64_MAX;
    char text[1008] = {};
  } own;
  own.order = found.order;
  own.at = found.at;
  found.text.copy(own.text, sizeof(own.text) - 1);
  std::vector<Report> reports(static_cast<size_t>(rank.worldSize()));
  BRAID_TRY(
      rank.gather(std::as_bytes(std::span(&own, 1)), std::as_writable_bytes(std::span(reports)), "finite search"));
  auto stageOf = [&](const Report &report) {
    return rank.program().stageOf(static_cast<uint32_t>(&report - reports.data()));
  };
  uint32_t stage = stageOf(*std::ranges::min_element(reports, {}, &Report::at));
  auto place = [&](const Report &report) { return std::pair(stageOf(report) != stage, report.order); };
  auto first = std::ranges::min_element(reports, {}, place);
  if (first->order == UINT64_MAX)
    return std::string("repeated, the step wrote only finite values");
  return first->text + (reports.size() > 1 ? fmt::format(" (rank {})", first - reports.begin()) : "");
}

Expected<std::string> TrainStep::explainRefusal(uint64_t number, uint64_t position) {
  std::string context = fmt::format("step {}, repeated", number);
  FiniteSearch search(session);
  search.clearScratch();
  BRAID_TRY(runUpdate(position, &search).withContext(context));
  BRAID_ASSIGN(std::string text, firstOfAllRanks(search.found()));

  // Which samples: each alone, in every row of every rank.
  constexpr uint64_t mostSamples = 64;
  uint64_t samples = this->samples(), tried = std::min(samples, mostSamples), bad = 0;
  std::string list;
  for (uint64_t i = 0; i < tried; ++i) {
    uint64_t sample = position + i;
    guard->reset();
    guard->endAlways();
    BRAID_TRY(runUpdate(position, &*guard, sample).withContext(context));
    if (guard->tripped() && ++bad <= 8)
      list += fmt::format("{}{} (from token {} of the data)", bad == 1 ? "" : ", ", sample,
                          rows->pieces(order->row(sample)).front().begin);
  }
  text += fmt::format("; the step's samples are {} to {}: ", position, position + samples - 1);
  if (bad == 0)
    text += "none of them alone does this";
  else if (bad == tried)
    text += "each of them alone does this, so it is not the data";
  else
    text += fmt::format("alone {} this {}{}", bad == 1 ? "does" : "do", list,
                        bad > 8 ? fmt::format(", and {} more", bad - 8) : "");
  if (tried < samples)
    text += fmt::format(" (the first {} were tried)", tried);
  return text;
}

} // namespace braid::runtime
