#include "runtime/train/Trainer.h"

#include "runtime/data/PackedRows.h"
#include "runtime/io/ChromeTrace.h"
#include "runtime/io/File.h"
#include "runtime/io/JsonLines.h"
#include "runtime/io/TensorNames.h"
#include "runtime/train/Checkpoint.h"
#include "runtime/train/FiniteCheck.h"
#include "runtime/train/Progress.h"
#include "runtime/train/Schedule.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>
#include <unistd.h>

namespace braid::runtime {

namespace {

using Json = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

constexpr double defaultLearningRate = 1e-3;
constexpr double defaultMinimumShare = 0.1; // of the learning rate

class Trainer {
public:
  Trainer(Rank &rank, const TrainOptions &options, const Corpus &corpus, const Corpus &heldout)
      : rank(rank), session(rank.session()), options(options), corpus(corpus), heldout(heldout) {}

  Expected<TrainResult> run();

private:
  Status bind();
  Status start();
  Status startFromCheckpoint();
  Status checkResumed() const;
  Status packRows();
  Status chooseSettings();
  Status chooseAccumulation();
  Status chooseSteps();
  void sayWhatChanged(const CheckpointState &before);
  Status loop();
  Status step();
  Status fillBatch(uint64_t position, std::optional<uint64_t> only);
  Status runUpdate(RunWatcher *watcher, std::optional<uint64_t> only = std::nullopt);
  Expected<std::string> explainDivergence(uint64_t number);
  void prepareAccumulation(uint64_t globalBatch);
  uint64_t labelsOf(uint64_t position, uint64_t samples) const; // of all ranks
  Status evaluateHeldout(bool last);
  Status save();
  static Json expertTable(const TensorView &table, std::span<const int32_t> counts);
  double elapsed() const { return std::chrono::duration<double>(Clock::now() - began).count(); }

  Rank &rank;
  Session &session;
  const TrainOptions &options;
  const Corpus &corpus, &heldout;

  BatchBinding batch;
  TensorView learningRateInput, stepInput, lossOutput, gradNormOutput;
  std::optional<TensorView> auxLossOutput, expertCountsOutput, expertDroppedOutput;
  // An update is one run of @train_step, or several of @accumulate_step and one of @update_step.
  std::optional<EntryId> update;
  std::optional<TensorView> lossScaleInput, auxScaleInput;
  uint64_t parts = 1, compiledParts = 1; // runs before an update; those that the program says
  double labelShare = 0; // 1 / labels of an update
  double loss = 0, auxLoss = 0; // of the last update, as the counts
  std::vector<int32_t> expertTotals, droppedTotals;
  std::optional<Evaluator> evaluator;
  std::optional<UpdateGuard> guard;

  std::optional<DirectoryLock> lock; // rank 0, while it may write checkpoints
  CheckpointState state;
  LearningRateSchedule schedule;
  std::optional<PackedRows> rows;
  std::optional<SampleOrder> order;
  bool minimumIsScaled = false; // of the learning rate, to keep its share of the peak
  uint64_t tokensSeen = 0; // labels that counted, from step 0 on
  bool resumed = false;
  TrainResult result;

  // Rank 0 only.
  std::optional<Progress> progress;
  std::optional<JsonLinesFile> metrics;
  Clock::time_point began;
  uint64_t lastSaved = UINT64_MAX;
};

// ---- Preparation ----------------------------------------------------------------------------------------------------

Status Trainer::bind() {
  const Program &program = rank.program();
  BRAID_TRY(checkTokens(program, corpus));
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
    BRAID_ASSIGN(lossScaleInput, scalarInput(session, *entry, "loss_scale", DType::f32));
  }
  guard.emplace(loss, lossOutput, gradNormOutput);
  if (findByLastComponent(program, entry->outputs, "aux_loss")) {
    BRAID_ASSIGN(auxLossOutput, scalarOutput(session, *entry, "aux_loss", DType::f32));
    if (accumulates) {
      BRAID_ASSIGN(auxScaleInput, scalarInput(session, *entry, "aux_scale", DType::f32));
    }
  }
  if (const TensorInfo *counts = findByLastComponent(program, entry->outputs, "expert_counts")) {
    BRAID_TRY(checkTensor(*entry, *counts, DType::i32, 2));
    expertCountsOutput = session.tensor(*counts);
    expertTotals.resize(expertCountsOutput->as<int32_t>().size());
  }
  if (const TensorInfo *dropped = findByLastComponent(program, entry->outputs, "expert_dropped")) {
    BRAID_TRY(checkTensor(*entry, *dropped, DType::i32, 2));
    expertDroppedOutput = session.tensor(*dropped);
    droppedTotals.resize(expertDroppedOutput->as<int32_t>().size());
  }
  if (heldout.size() > 0) {
    BRAID_ASSIGN(evaluator, Evaluator::bind(rank));
  }
  return Status::success();
}

// Command line, then checkpoint, then the program's metadata.
Status Trainer::chooseAccumulation() {
  const Program &program = rank.program();
  BRAID_ASSIGN(std::optional<double> compiled, metadataNumber(program, "train.accumulation_steps"));
  if (!update && options.accumulationSteps)
    return Status::error("{} updates the parameters after every batch: to add up the gradients of {} batches, compile "
                         "the model with --accumulation-steps={}",
                         program.path(), *options.accumulationSteps, *options.accumulationSteps);
  compiledParts = static_cast<uint64_t>(std::max(compiled.value_or(1), 1.0));
  parts = update ? options.accumulationSteps.value_or(resumed ? state.accumulationSteps : compiledParts) : 1;
  if (parts < 1 || parts > maxAccumulationSteps)
    return Status::error("the number of accumulation steps (--accumulation-steps) is {}; valid: 1 to {}", parts,
                         maxAccumulationSteps);
  state.accumulationSteps = parts;
  state.stepSamples = parts * static_cast<uint64_t>(batch.batch * rank.dpSize());
  return Status::success();
}

// Command line, then checkpoint, then the program's metadata.
Status Trainer::chooseSteps() {
  if (options.steps) {
    state.steps = *options.steps;
  } else if (!resumed) {
    BRAID_ASSIGN(std::optional<double> steps, metadataNumber(rank.program(), "train.steps"));
    if (!steps || *steps < 1)
      return Status::error("{} does not say how many steps to train: give --steps", rank.program().path());
    state.steps = static_cast<uint64_t>(*steps);
  }
  if (state.steps == 0 || state.steps > INT32_MAX)
    return Status::error("the number of steps (--steps) is {}; valid: 1 to {}", state.steps, INT32_MAX);
  result.steps = state.steps;
  return Status::success();
}

// Command line, then checkpoint, then the program's metadata, then the defaults.
Status Trainer::chooseSettings() {
  const Program &program = rank.program();
  BRAID_ASSIGN(std::optional<double> learningRate, metadataNumber(program, "train.learning_rate"));
  BRAID_ASSIGN(std::optional<double> minimum, metadataNumber(program, "train.min_learning_rate"));
  BRAID_ASSIGN(std::optional<double> warmup, metadataNumber(program, "train.warmup_steps"));
  BRAID_ASSIGN(std::optional<double> seed, metadataNumber(program, "train.seed"));
  if (!resumed) {
    state.learningRate = learningRate.value_or(defaultLearningRate);
    state.minLearningRate = minimum.value_or(defaultMinimumShare * state.learningRate);
    state.warmupSteps = static_cast<uint64_t>(std::max(warmup.value_or(0), 0.0));
    state.seed = options.seed.value_or(static_cast<uint64_t>(std::max(seed.value_or(0), 0.0)));
    state.seqLen = batch.seqLen;
    state.maxDocuments = batch.documentStride - 1;
    state.corpusTokens = corpus.size();
    state.corpusDocuments = corpus.documents();
    state.corpusHash = corpus.hash();
  }
  // A minimum belongs to the peak it was given with: another peak keeps its share of it, in a new run and in a resumed
  // one.
  if (options.learningRate && *options.learningRate != state.learningRate && !options.minLearningRate) {
    double share = state.learningRate > 0 ? state.minLearningRate / state.learningRate : defaultMinimumShare;
    state.minLearningRate = share * *options.learningRate;
    minimumIsScaled = state.minLearningRate > 0;
  }
  state.learningRate = options.learningRate.value_or(state.learningRate);
  state.minLearningRate = options.minLearningRate.value_or(state.minLearningRate);
  state.warmupSteps = options.warmupSteps.value_or(state.warmupSteps);
  if (!(state.learningRate > 0) || !(state.learningRate <= maxLearningRate))
    return Status::error("the learning rate (--lr) is {}; valid: above 0, up to {}", state.learningRate,
                         maxLearningRate);
  if (!(state.minLearningRate >= 0) || state.minLearningRate > state.learningRate)
    return Status::error("the minimum of the learning rate (--min-lr) is {}; valid: 0 to the learning rate (--lr), {}",
                         state.minLearningRate, state.learningRate);
  if (options.warmupSteps && *options.warmupSteps > state.steps)
    return Status::error(
        "a warm-up of {} steps (--warmup) does not fit into the {} of the training (--steps); valid: 0 "
        "to {}",
        *options.warmupSteps, state.steps, state.steps);
  schedule = {state.learningRate, state.minLearningRate, state.warmupSteps, state.steps};
  return Status::success();
}

Status Trainer::checkResumed() const {
  if (options.seed && *options.seed != state.seed)
    return Status::error("cannot resume: the checkpoint was trained with seed {}, but --seed asks for {}", state.seed,
                         *options.seed);
  if (state.seqLen != batch.seqLen)
    return Status::error("cannot resume: the checkpoint was trained on rows of {} tokens, but the program has {}",
                         state.seqLen, batch.seqLen);
  if (state.maxDocuments != batch.documentStride - 1)
    return Status::error("cannot resume: the checkpoint was trained on rows of at most {} documents, but the program "
                         "has {} (max_documents)",
                         state.maxDocuments, batch.documentStride - 1);
  if (state.corpusTokens != corpus.size() || state.corpusDocuments != corpus.documents())
    return Status::error(
        "cannot resume: the checkpoint was trained on {} tokens in {} documents, but the data given has "
        "{} in {}",
        state.corpusTokens, state.corpusDocuments, corpus.size(), corpus.documents());
  if (uint64_t hash = corpus.hash(); state.corpusHash != hash)
    return Status::error("cannot resume: the checkpoint was trained on other data of the same {} tokens (hash {:016x}, "
                         "the data given has {:016x})",
                         state.corpusTokens, state.corpusHash, hash);
  if (state.step > INT32_MAX)
    return Status::error(ErrorCode::corruptFile, "cannot resume: the checkpoint is at step {}, above the limit {}",
                         state.step, INT32_MAX);
  if (options.steps && state.step > *options.steps)
    return Status::error(
        "cannot resume: the checkpoint is at step {}, past the {} steps that --steps asks for (counted "
        "from the start of training); valid: {} or more",
        state.step, *options.steps, state.step);
  return Status::success();
}

// The rows of the data, and where this run stands in them.
Status Trainer::packRows() {
  BRAID_ASSIGN(rows, PackedRows::pack(corpus, batch.seqLen, batch.documentStride - 1));
  order.emplace(rows->size(), state.seed);
  uint64_t position = state.dataPosition;
  if (position < state.step || position >= order->limit())
    return Status::error(ErrorCode::corruptFile, "cannot resume: data_position is {} at step {}; valid: {} to {}",
                         position, state.step, state.step, order->limit() - 1);
  uint64_t begun = order->epoch(position) * rows->size(); // where the epoch of the next sample begins
  tokensSeen = order->epoch(position) * rows->labels();
  for (uint64_t sample = begun; sample < position; ++sample)
    tokensSeen += rows->labels(order->row(sample));
  return Status::success();
}

Status Trainer::startFromCheckpoint() {
  if (options.resumeStep) {
    result.checkpoint = options.checkpointDir + "/" + checkpointName(*options.resumeStep);
  } else {
    BRAID_ASSIGN(result.checkpoint, resolveCheckpoint(options.checkpointDir));
  }
  BRAID_ASSIGN(state, loadCheckpoint(rank, result.checkpoint, /*weightsOnly=*/false));
  BRAID_TRY(checkResumed().withContext(result.checkpoint));
  resumed = true;
  lastSaved = state.step;
  return Status::success();
}

// A resumed run goes on as it was begun; what the command line or the program has changed makes it another run.
void Trainer::sayWhatChanged(const CheckpointState &before) {
  progress->message(fmt::format("resumed from {} (step {})", result.checkpoint, state.step));
  auto say = [&](const char *what, uint64_t was, uint64_t is) {
    if (was != is)
      progress->message(fmt::format("{}: {}, {} before", what, is, was));
  };
  say("steps of the training", before.steps, state.steps);
  say("accumulation steps", before.accumulationSteps, state.accumulationSteps);
  if (!options.accumulationSteps && update && parts != compiledParts)
    progress->message(fmt::format("accumulation steps: {} as before; the program says {} (--accumulation-steps "
                                  "chooses)",
                                  parts, compiledParts));
  say("rows in a step", before.stepSamples, state.stepSamples);
}

Status Trainer::start() {
  if (options.resume && options.checkpointDir.empty())
    return Status::error("to resume, name the checkpoint directory");
  if (!options.checkpointDir.empty()) {
    // A directory that cannot be written, or that another run writes, must show now, not after the last step.
    if (rank.isFirst()) {
      BRAID_TRY(makeDirectories(options.checkpointDir));
      BRAID_TRY(syncDirectory(options.checkpointDir));
      BRAID_ASSIGN(lock, DirectoryLock::acquire(options.checkpointDir));
      BRAID_TRY(removeUnfinished(options.checkpointDir));
    }
    BRAID_TRY(rank.barrier("checkpoint directory")); // the list is read under the lock,
    BRAID_ASSIGN(std::vector<uint64_t> existing, listCheckpoints(options.checkpointDir));
    BRAID_TRY(rank.barrier("checkpoint list")); // and before rank 0 could write one
    if (!existing.empty() && !options.resume)
      return Status::error(
          "{} already holds a checkpoint of step {}: resume from it (--resume), or choose another directory",
          options.checkpointDir, existing.back());
    if (options.resumeStep && !std::binary_search(existing.begin(), existing.end(), *options.resumeStep))
      return Status::error(ErrorCode::notFound, "{}: there is no checkpoint of step {} (--resume-step){}",
                           options.checkpointDir, *options.resumeStep, describeComplete(options.checkpointDir));
    if (!existing.empty())
      BRAID_TRY(startFromCheckpoint());
    // A run that was killed between a checkpoint and the removal of older ones left one too many.
    if (resumed && rank.isFirst())
      BRAID_TRY(pruneCheckpoints(options.checkpointDir, state.step, options.keep));
  }
  CheckpointState before = state;
  BRAID_TRY(chooseSteps());
  BRAID_TRY(chooseAccumulation());
  BRAID_TRY(chooseSettings());
  BRAID_TRY(packRows());
  if (!resumed)
    BRAID_TRY(initialize(rank, state.seed));
  result.firstStep = result.lastStep = state.step;

  if (rank.isFirst()) {
    progress.emplace(options.progress, state.step, state.steps);
    if (resumed)
      sayWhatChanged(before);
    double slots = static_cast<double>(rows->size()) * static_cast<double>(batch.seqLen);
    progress->message(fmt::format("data: {} {}s in {} document{}; {} rows of {}, {:.1f}% padding", corpus.size(),
                                  corpus.unit(), corpus.documents(), corpus.documents() == 1 ? "" : "s", rows->size(),
                                  batch.seqLen, 100 * (1 - static_cast<double>(rows->labels()) / slots)));
    if (minimumIsScaled)
      progress->message(fmt::format("the minimum of the learning rate is {:.3g}: it keeps its share of the peak (give "
                                    "--min-lr for another)",
                                    state.minLearningRate));
    if (state.warmupSteps > state.steps)
      progress->message(
          fmt::format("the warm-up of {} steps is longer than the training: the learning rate ends at {:.3g}",
                      state.warmupSteps, schedule.at(state.steps)));
    if (!options.metricsPath.empty()) {
      if (resumed) {
        BRAID_TRY(dropLinesAfter(options.metricsPath, "step", state.step));
        BRAID_ASSIGN(metrics, JsonLinesFile::append(options.metricsPath));
      } else {
        BRAID_ASSIGN(metrics, JsonLinesFile::create(options.metricsPath));
      }
    }
  }
  return Status::success();
}

// ---- The loop -------------------------------------------------------------------------------------------------------

/// Counts in the shape of the output they are sums of, [layers, E]: a list of lists.
Json Trainer::expertTable(const TensorView &table, std::span<const int32_t> counts) {
  size_t experts = static_cast<size_t>(table.info->shape[1]);
  Json layers = Json::array();
  for (size_t i = 0; experts > 0 && i < counts.size(); i += experts)
    layers.push_back(std::vector<int32_t>(counts.begin() + i, counts.begin() + i + experts));
  return layers;
}

// This rank's rows of the global batch that begins at a sample; or sample `only` in each of them.
Status Trainer::fillBatch(uint64_t position, std::optional<uint64_t> only) {
  for (int64_t i = 0; i < batch.batch; ++i) {
    uint64_t sample = only.value_or(SampleOrder::sample(position, rank.dpCoordinate(), batch.batch, i));
    BRAID_TRY(batch.fillRow(i, [&](auto tokens, auto labels, auto documents) {
      return rows->fill(corpus, order->row(sample), tokens, labels, documents);
    }));
    batch.setDraw(i, sample, state.seed);
  }
  return Status::success();
}

// Every label of an update weighs the same, whichever batch it is in, so all are counted before the first batch runs.
uint64_t Trainer::labelsOf(uint64_t position, uint64_t samples) const {
  uint64_t labels = 0;
  for (uint64_t sample = 0; sample < samples; ++sample)
    labels += rows->labels(order->row(position + sample));
  return labels;
}

void Trainer::prepareAccumulation(uint64_t globalBatch) {
  uint64_t labels = labelsOf(state.dataPosition, parts * globalBatch);
  labelShare = labels ? 1.0 / static_cast<double>(labels) : 0.0;
  lossScaleInput->as<float>()[0] = static_cast<float>(labelShare);
  session.clear(Role::gradient);
}

// The batches of the next step and its update, seen by `watcher`; or a step of nothing but sample `only`.
Status Trainer::runUpdate(RunWatcher *watcher, std::optional<uint64_t> only) {
  uint64_t globalBatch = static_cast<uint64_t>(batch.batch * rank.dpSize());
  if (update)
    prepareAccumulation(globalBatch);
  loss = auxLoss = 0;
  std::fill(expertTotals.begin(), expertTotals.end(), 0);
  std::fill(droppedTotals.begin(), droppedTotals.end(), 0);
  auto add = [](const std::optional<TensorView> &table, std::vector<int32_t> &totals) {
    if (table)
      std::transform(totals.begin(), totals.end(), table->as<int32_t>().begin(), totals.begin(), std::plus<>());
  };
  session.setWatcher(watcher);
  Status status = Status::success();
  for (uint64_t part = 0; part < (only ? 1 : parts) && status.ok(); ++part) {
    uint64_t position = state.dataPosition + part * globalBatch;
    if (status = fillBatch(position, only); !status.ok())
      break;
    // Router losses are means over the tokens of a batch, which are its labels.
    if (auxScaleInput)
      auxScaleInput->as<float>()[0] =
          static_cast<float>(static_cast<double>(labelsOf(position, globalBatch)) * labelShare);
    status = session.run(batch.entry);
    loss += lossOutput.as<float>()[0];
    if (auxLossOutput)
      auxLoss += auxLossOutput->as<float>()[0];
    add(expertCountsOutput, expertTotals);
    add(expertDroppedOutput, droppedTotals);
  }
  if (update && status.ok())
    status = session.run(*update);
  session.setWatcher(nullptr);
  return status;
}

// Collective; the text is that of rank 0. No run of it changes a parameter: all end before the update.
Expected<std::string> Trainer::explainDivergence(uint64_t number) {
  std::string context = fmt::format("step {}, repeated", number);
  FiniteSearch search(session);
  search.clearScratch();
  BRAID_TRY(runUpdate(&search).withContext(context));

  // The first of all ranks, in the order of the commands.
  struct Report {
    uint64_t order = UINT64_MAX;
    char text[1016] = {};
  } own;
  own.order = search.found().order;
  search.found().text.copy(own.text, sizeof(own.text) - 1);
  std::vector<Report> reports(static_cast<size_t>(rank.worldSize()));
  BRAID_TRY(
      rank.gather(std::as_bytes(std::span(&own, 1)), std::as_writable_bytes(std::span(reports)), "finite search"));
  auto first = std::min_element(reports.begin(), reports.end(), [](auto &a, auto &b) { return a.order < b.order; });
  std::string text =
      first->order == UINT64_MAX ? "repeated, the step wrote only finite values" : std::string(first->text);
  if (reports.size() > 1 && first->order != UINT64_MAX)
    text += fmt::format(" (rank {})", first - reports.begin());

  // Which samples: each alone, in every row of every rank.
  constexpr uint64_t mostSamples = 64;
  uint64_t samples = parts * static_cast<uint64_t>(batch.batch * rank.dpSize()), tried = std::min(samples, mostSamples),
           bad = 0;
  std::string list;
  for (uint64_t i = 0; i < tried; ++i) {
    uint64_t sample = state.dataPosition + i;
    guard->reset();
    guard->endAlways();
    BRAID_TRY(runUpdate(&*guard, sample).withContext(context));
    if (guard->tripped() && ++bad <= 8)
      list += fmt::format("{}{} (from token {} of the data)", bad == 1 ? "" : ", ", sample,
                          rows->pieces(order->row(sample)).front().begin);
  }
  text += fmt::format("; the step's samples are {} to {}: ", state.dataPosition, state.dataPosition + samples - 1);
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

Status Trainer::step() {
  uint64_t number = state.step + 1;
  double learningRate = schedule.at(number);
  uint64_t globalBatch = parts * static_cast<uint64_t>(batch.batch * rank.dpSize());
  learningRateInput.as<float>()[0] = static_cast<float>(learningRate);
  stepInput.as<int32_t>()[0] = static_cast<int32_t>(number);
  guard->reset();
  BRAID_TRY(runUpdate(options.checkFinite ? &*guard : nullptr).withContext(fmt::format("step {}", number)));

  double gradNorm = gradNormOutput.as<float>()[0];
  if (options.checkFinite && (!std::isfinite(loss) || !std::isfinite(gradNorm))) {
    double diverged = loss;
    std::string kept =
        result.checkpoint.empty() ? "there is no checkpoint" : "the last checkpoint is " + result.checkpoint;
    std::string why = "the update was applied";
    if (guard->tripped()) {
      BRAID_ASSIGN(why, explainDivergence(number));
      why = "the update was not applied; " + why;
    }
    return Status::error("training diverged at step {}: loss {}, gradient norm {} (learning rate {:.3g}); {}; {}",
                         number, diverged, gradNorm, learningRate, kept, why);
  }
  uint64_t tokens = labelsOf(state.dataPosition, globalBatch);
  tokensSeen += tokens;
  state.step = number;
  state.dataPosition += globalBatch;
  result.lastStep = number;
  result.loss = loss;
  if (!rank.isFirst())
    return Status::success();

  double seconds = elapsed();
  progress->update({number, loss, gradNorm, learningRate, static_cast<double>(tokens), seconds});
  if (!metrics)
    return Status::success();
  Json line = {{"step", number}, {"loss", static_cast<float>(loss)}};
  if (auxLossOutput)
    line["aux_loss"] = static_cast<float>(auxLoss);
  line["grad_norm"] = gradNormOutput.as<float>()[0];
  line["learning_rate"] = learningRate;
  line["tokens"] = tokensSeen;
  line["epoch"] = order->epoch(state.dataPosition - 1);
  line["tokens_per_second"] = progress->tokensPerSecond();
  line["seconds"] = seconds;
  if (expertCountsOutput)
    line["expert_counts"] = expertTable(*expertCountsOutput, expertTotals);
  if (expertDroppedOutput)
    line["expert_dropped"] = expertTable(*expertDroppedOutput, droppedTotals);
  return metrics->write(line);
}

Status Trainer::evaluateHeldout(bool last) {
  BRAID_ASSIGN(EvalResult evaluated, evaluator->evaluate(heldout));
  if (rank.isFirst()) {
    if (!last)
      progress->message(
          fmt::format("step {}: held-out loss {:.4f} nats/{}", state.step, evaluated.nats, heldout.unit()));
    if (metrics)
      BRAID_TRY(metrics->write(
          {{"step", state.step}, {"heldout_loss", evaluated.nats}, {"heldout_tokens", evaluated.tokens}}));
  }
  if (last)
    result.heldout = evaluated;
  return Status::success();
}

Status Trainer::save() {
  if (options.checkpointDir.empty() || lastSaved == state.step)
    return Status::success();
  if (Status saved = saveCheckpoint(rank, options.checkpointDir, state, options.keep); !saved.ok()) {
    std::string kept =
        result.checkpoint.empty() ? "no checkpoint was saved before" : "the last checkpoint is " + result.checkpoint;
    return Status::error(saved.code(), "the checkpoint of step {} was not saved: {}; {}", state.step, saved.message(),
                         kept);
  }
  lastSaved = state.step;
  result.checkpoint = options.checkpointDir + "/" + checkpointName(state.step);
  return Status::success();
}

Status Trainer::loop() {
  began = Clock::now();
  uint64_t first = state.step;
  while (state.step < state.steps) {
    BRAID_ASSIGN(bool stop, rank.any(options.stop && options.stop->load(std::memory_order_relaxed), "stop request"));
    if (stop) {
      result.stopped = true;
      break;
    }
    // The first step of a run warms caches: not recorded unless it is the only one.
    uint64_t done = state.step - first, skip = state.steps - first > 1 ? 1 : 0;
    bool record = options.trace && done >= skip && done < skip + options.traceSteps;
    session.setTrace(record ? &options.trace->rank(rank.index()) : nullptr);
    BRAID_TRY(step());
    session.setTrace(nullptr);
    bool last = state.step == state.steps;
    if (options.saveEvery && state.step % options.saveEvery == 0)
      BRAID_TRY(save());
    if (!last && evaluator && options.evalEvery && state.step % options.evalEvery == 0)
      BRAID_TRY(evaluateHeldout(/*last=*/false));
  }
  result.seconds = elapsed();
  if (rank.isFirst())
    result.progressError = progress->error();
  if (state.step > first)
    BRAID_TRY(save());
  if (evaluator && !result.stopped)
    BRAID_TRY(evaluateHeldout(/*last=*/true));
  return Status::success();
}

Expected<TrainResult> Trainer::run() {
  BRAID_TRY(bind());
  BRAID_TRY(start());
  BRAID_TRY(loop());
  return result;
}

} // namespace

Expected<TrainResult> train(Rank &rank, const TrainOptions &options, const Corpus &corpus, const Corpus &heldout) {
  return Trainer(rank, options, corpus, heldout).run();
}

} // namespace braid::runtime
