#include "runtime/train/Trainer.h"

#include "runtime/io/ChromeTrace.h"
#include "runtime/io/JsonLines.h"
#include "runtime/io/Words.h"
#include "runtime/train/Checkpoint.h"
#include "runtime/train/ModelDifference.h"
#include "runtime/train/Progress.h"
#include "runtime/train/TensorSource.h"
#include "runtime/train/TrainStep.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <thread>

namespace braid::runtime {

namespace {

using Json = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

class Trainer {
public:
  Trainer(Rank &rank, const TrainOptions &options, const Corpus &corpus, const Corpus &heldout)
      : rank(rank), session(rank.session()), options(options), corpus(corpus), heldout(heldout), update(rank) {}

  Expected<TrainResult> run();

private:
  Status bind();
  Status start();
  Status checkSharedDirectory();
  Status agreeOnSettings();
  Status startFromCheckpoint();
  Expected<std::string> initializeWeights();
  Status packRows();
  Status sayWhatChanged(const CheckpointState &before);
  Status sayOtherTraining();
  Status loop();
  Status step();
  Json stepMetrics(double seconds, double learningRate) const;
  void writeMetrics(const Json &line);
  Status evaluateHeldout(bool last);
  Status keepLock();
  // A checkpoint replaces the older ones when a step with its weights was finite; until then there is one more.
  int kept() const { return options.keep + 1; }
  Status prune(int keep);
  void pruneOrSay(uint64_t step, std::string_view next);
  std::string lastGood() const;
  Status save();
  static Json expertTable(const TrainStep::Counts &counts);
  double elapsed() const { return std::chrono::duration<double>(Clock::now() - began).count(); }

  Rank &rank;
  Session &session;
  const TrainOptions &options;
  const Corpus &corpus, &heldout;

  TrainStep update;
  std::optional<Evaluator> evaluator;

  std::optional<DirectoryLock> lock; // rank 0, while it may write checkpoints
  CheckpointState state;
  TrainSettings settings;
  std::optional<PackedRows> rows;
  std::optional<SampleOrder> order;
  uint64_t tokensSeen = 0; // labels that counted, from step 0 on
  bool resumed = false;
  TrainResult result;
  Clock::time_point began;
  uint64_t lastSaved = UINT64_MAX; // the step of the checkpoint that was saved or resumed from last
  std::vector<uint64_t>
      left; // steps of checkpoints beyond the one that this run goes on from, until it has saved one of its own
  std::string
      spoiled; // why weights behind the last step are not saved: it was not finite, or its gradients were all zeros

  // Rank 0 only.
  std::optional<Progress> progress;
  std::optional<JsonLinesFile> metrics;
};

// ---- Preparation ----------------------------------------------------------------------------------------------------

Status Trainer::bind() {
  BRAID_TRY(checkTokens(rank.program(), corpus));
  BRAID_TRY(update.bind());
  if (heldout.size() > 0) {
    BRAID_ASSIGN(evaluator, Evaluator::bind(rank));
  }
  return Status::success();
}

// The rows of the data, and where this run stands in them.
Status Trainer::packRows() {
  BRAID_ASSIGN(rows, PackedRows::pack(corpus, update.shape().seqLen, update.shape().documentStride - 1));
  order.emplace(rows->size(), state.seed);
  update.setData(corpus, *rows, *order, state.seed, state.accumulationSteps);
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
  BRAID_ASSIGN(state, loadCheckpoint(rank, result.checkpoint, Restored::all));
  BRAID_TRY(checkResumed(state, options, update.shape(), corpus).withContext(result.checkpoint));
  resumed = true;
  lastSaved = state.step;
  return Status::success();
}

// As entry init draws them, or those of another training, whose moments, data and schedule stay behind. What there is to
// say of it, on rank 0.
Expected<std::string> Trainer::initializeWeights() {
  BRAID_TRY(initialize(rank, state.seed));
  if (options.initFrom.empty())
    return "";
  auto loaded = loadCheckpoint(rank, options.initFrom, Restored::masters);
  BRAID_TRY(loaded.status().withContext("--init-from"));
  if (!rank.isFirst())
    return "";
  std::string text = fmt::format("begun with the weights of {}", options.initFrom);
  if (loaded->step) // 0: other software wrote them
    text += fmt::format(" (step {})", loaded->step);
  BRAID_ASSIGN(std::string remark, remarkOtherModel(rank.program(), options.initFrom));
  return remark.empty() ? text : text + "\n" + remark;
}

// A resumed run goes on as it was begun; what the command line or the program has changed makes it another run.
Status Trainer::sayWhatChanged(const CheckpointState &before) {
  progress->message(fmt::format("resumed from {} (step {})", result.checkpoint, state.step));
  auto say = [&](const char *what, uint64_t was, uint64_t is) {
    if (was != is)
      progress->message(fmt::format("{}: {}, {} before", what, is, was));
  };
  say("steps of the training", before.steps, state.steps);
  say("accumulation steps", before.accumulationSteps, state.accumulationSteps);
  uint64_t compiled = settings.compiledAccumulationSteps;
  if (!options.accumulationSteps && update.accumulates() && state.accumulationSteps != compiled)
    progress->message(fmt::format("accumulation steps: {} as before; the program says {} (--accumulation-steps "
                                  "chooses)",
                                  state.accumulationSteps, compiled));
  say("rows in a step", before.stepSamples, state.stepSamples);
  BRAID_ASSIGN(std::string remark, remarkOtherModel(rank.program(), result.checkpoint));
  if (!remark.empty())
    progress->message(remark);
  return sayOtherTraining();
}

// What a program was compiled with holds from here on; what the checkpoint decides is as before, whatever the program says.
Status Trainer::sayOtherTraining() {
  const Program &program = rank.program();
  BRAID_ASSIGN(CheckpointIndex index, readIndex(result.checkpoint));
  ModelDifference difference = compareTraining(index.modelJson, program.metadata("model_json").value_or(""),
                                               program.metadata("model_defaults").value_or(""));
  if (!difference.words.empty())
    progress->message(fmt::format("{} {} trained with other settings than {} goes on with: {}", result.checkpoint,
                                  difference.certain ? "was" : "may have been", program.path(), difference.words));
  BRAID_ASSIGN(std::vector<LogicalTensor> tensors,
               logicalTensors(program, static_cast<uint32_t>(rank.index()), /*moments=*/true));
  for (const LogicalTensor &tensor : tensors) {
    auto saved = index.tensors.find(tensor.name);
    if (tensor.role != Role::moment || saved == index.tensors.end() || saved->second.dtype == tensor.dtype)
      continue;
    progress->message(fmt::format("moments, as {}: {}, {} before", tensor.name, toString(tensor.dtype),
                                  toString(saved->second.dtype)));
    break;
  }
  auto kept = [&](const char *key, const char *what, auto is, bool given, const char *chooses) -> Status {
    BRAID_ASSIGN(std::optional<double> says, metadataNumber(program, key));
    if (!given && difference.ofRun.contains(key) && says && *says != static_cast<double>(is))
      progress->message(fmt::format("{}: {} as before; the program says {} ({})", what, is, *says, chooses));
    return Status::success();
  };
  BRAID_TRY(kept("train.steps", "steps of the training", state.steps, options.steps.has_value(), "--steps chooses"));
  BRAID_TRY(kept("train.learning_rate", "learning rate", state.learningRate, options.learningRate.has_value(),
                 "--lr chooses"));
  BRAID_TRY(kept("train.min_learning_rate", "minimum of the learning rate", state.minLearningRate,
                 options.minLearningRate || options.learningRate, "--min-lr chooses"));
  BRAID_TRY(kept("train.warmup_steps", "warm-up steps", state.warmupSteps, options.warmupSteps.has_value(),
                 "--warmup chooses"));
  return kept("train.seed", "seed", state.seed, /*given=*/false, "a training keeps its seed");
}

// What ranks that were started differently would train apart by, or wait for each other forever.
Status Trainer::agreeOnSettings() {
  auto number = [](auto value) { return fmt::format("{}", value); };
  std::string tokenizerFiles;
  for (const auto &[name, content] : options.tokenizerFiles)
    tokenizerFiles += fmt::format("{}\n{}\n{}", name, content.size(), content);
  const Rank::Value values[] = {
      {"resumed", resumed ? "yes" : "no"},
      {"step", number(state.step)},
      {"--steps", number(state.steps)},
      {"--lr", number(state.learningRate)},
      {"--min-lr", number(state.minLearningRate)},
      {"--warmup", number(state.warmupSteps)},
      {"--seed", number(state.seed)},
      {"--accumulation-steps", number(state.accumulationSteps)},
      {"rows in a step", number(state.stepSamples)},
      {"--init-from", options.initFrom.empty() ? "not given" : "given"},
      {"--tokenizer (hash)",
       tokenizerFiles.empty() ? "none" : contentHash(std::as_bytes(std::span(tokenizerFiles))).hex()},
      {"--data (hash)", fmt::format("{:016x}", state.corpusHash)},
      {"--heldout (hash)", heldout.size() ? fmt::format("{:016x}", heldout.hash()) : "none"},
      {"--save-every", number(options.saveEvery)},
      {"--eval-every", number(options.evalEvery)},
      {"--check-finite", options.checkFinite ? "yes" : "no"},
      {"--trace", options.trace ? "yes" : "no"}};
  return rank.agree(values, "settings");
}

// All ranks write their part of a checkpoint into rank 0's directory, which must show now, not at the first save. What
// one machine writes another sees late on a network file system: there are some looks before an error.
Status Trainer::checkSharedDirectory() {
  using Stamp = std::array<char, 64>;
  constexpr int looks = 20;
  std::vector<Stamp> all(static_cast<size_t>(rank.worldSize()));
  for (int look = 1;; ++look) {
    Stamp own{};
    if (auto holder = DirectoryLock::holderOf(options.checkpointDir))
      holder->copy(own.data(), own.size() - 1);
    BRAID_TRY(rank.gather(std::as_bytes(std::span(own)), std::as_writable_bytes(std::span(all)), "checkpoint lock"));
    auto other = std::ranges::find_if(all, [&](const Stamp &stamp) { return stamp != all.front(); });
    if (other == all.end())
      return Status::success();
    if (look < looks) {
      std::this_thread::sleep_for(std::chrono::milliseconds(250));
      continue;
    }
    auto holder = [](const Stamp &stamp) { return std::strtol(stamp.data(), nullptr, 10); };
    auto index = other - all.begin();
    if (holder(*other) == 0)
      return Status::error(ErrorCode::notFound,
                           "rank {} does not see the lock of rank 0 in {}; all ranks write to one directory, and the "
                           "--checkpoint-dir of rank {} leads elsewhere (another path, working directory or disk)",
                           index, options.checkpointDir, index);
    return Status::error(
        "rank {} sees the lock of process {} in its --checkpoint-dir, but rank 0 that of process {} in "
        "{}; all ranks write to one directory",
        index, holder(*other), holder(all.front()), options.checkpointDir);
  }
}

Status Trainer::start() {
  if (options.resume && options.checkpointDir.empty())
    return Status::error("to resume, name the checkpoint directory");
  const Rank::Value saves{"--checkpoint-dir", options.checkpointDir.empty() ? "not given" : "given"};
  BRAID_TRY(rank.agree({&saves, 1}, "checkpoint directory"));
  if (!options.checkpointDir.empty()) {
    if (isImported(options.checkpointDir))
      return Status::error("--checkpoint-dir={}: holds weights that other software wrote, and no training; valid: "
                           "--init-from={} to begin with them, and another directory for checkpoints",
                           options.checkpointDir, options.checkpointDir);
    // A directory that cannot be written, or that another run writes, must show now, not after the last step.
    if (rank.isFirst()) {
      BRAID_TRY(makeDirectories(options.checkpointDir));
      BRAID_TRY(syncDirectory(options.checkpointDir));
      BRAID_ASSIGN(lock, DirectoryLock::acquire(options.checkpointDir));
      BRAID_TRY(removeUnfinished(options.checkpointDir));
    }
    BRAID_TRY(rank.barrier("checkpoint lock")); // the list is read under the lock,
    BRAID_TRY(checkSharedDirectory());
    BRAID_ASSIGN(std::vector<uint64_t> existing, listCheckpoints(options.checkpointDir));
    BRAID_TRY(rank.barrier("checkpoint list")); // and before rank 0 could write one
    if (!existing.empty() && !options.resume)
      return Status::error(
          "{} already holds a checkpoint of step {}: resume from it (--resume), or choose another directory",
          options.checkpointDir, existing.back());
    if (options.resumeStep && !std::binary_search(existing.begin(), existing.end(), *options.resumeStep))
      return Status::error(ErrorCode::notFound, "{}: there is no checkpoint of step {} (--resume-step){}",
                           options.checkpointDir, *options.resumeStep, describeComplete(options.checkpointDir));
    // A `latest` without any checkpoint: they were moved or removed, and a start from nothing would bury that.
    if (!existing.empty() || (options.resume && pathExists(options.checkpointDir + "/latest")))
      BRAID_TRY(startFromCheckpoint());
    if (resumed)
      std::ranges::copy_if(existing, std::back_inserter(left), [&](uint64_t step) { return step > state.step; });
    // A run that was killed between a checkpoint and the removal of older ones left one too many.
    if (resumed)
      BRAID_TRY(prune(kept()));
  }
  CheckpointState before = state;
  BRAID_ASSIGN(settings, chooseSettings(rank, options, update.shape(), corpus, update.accumulates(), resumed, state));
  BRAID_TRY(agreeOnSettings());
  result.steps = state.steps;
  BRAID_TRY(packRows());
  std::string beganWith;
  if (!resumed) {
    BRAID_ASSIGN(beganWith, initializeWeights());
  }
  result.firstStep = result.lastStep = state.step;

  if (rank.isFirst()) {
    progress.emplace(options.progress, state.step, state.steps);
    if (!beganWith.empty())
      progress->message(beganWith);
    if (resumed)
      BRAID_TRY(sayWhatChanged(before));
    if (resumed && !options.initFrom.empty())
      progress->message(
          fmt::format("--init-from={} is not read: the run goes on from {}", options.initFrom, result.checkpoint));
    double slots = static_cast<double>(rows->size()) * static_cast<double>(update.shape().seqLen);
    progress->message(fmt::format("data: {} in {}; {} of {}, {:.1f}% padding", counted(corpus.size(), corpus.unit()),
                                  counted(corpus.documents(), "document"), counted(rows->size(), "row"),
                                  update.shape().seqLen, 100 * (1 - static_cast<double>(rows->labels()) / slots)));
    if (settings.minimumIsScaled)
      progress->message(fmt::format("the minimum of the learning rate is {:.3g}: it keeps its share of the peak (give "
                                    "--min-lr for another)",
                                    state.minLearningRate));
    if (state.warmupSteps > state.steps)
      progress->message(fmt::format("the warm-up of {} is longer than the training: the learning rate ends at {:.3g}",
                                    counted(state.warmupSteps, "step"), settings.schedule.at(state.steps)));
    for (auto [flag, every] : {std::pair("--save-every", options.saveEvery), {"--eval-every", options.evalEvery}})
      if (every > state.steps)
        progress->message(fmt::format("{}={} changes nothing: the training has {}, at whose end it is done anyway",
                                      flag, every, counted(state.steps, "step")));
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

Json Trainer::expertTable(const TrainStep::Counts &counts) {
  size_t experts = static_cast<size_t>(counts.output.info->shape[1]);
  Json layers = Json::array();
  for (size_t i = 0; experts > 0 && i < counts.sums.size(); i += experts)
    layers.push_back(std::vector<int32_t>(counts.sums.begin() + i, counts.sums.begin() + i + experts));
  return layers;
}

Json Trainer::stepMetrics(double seconds, double learningRate) const {
  Json line = {{"step", state.step}, {"loss", static_cast<float>(update.loss())}};
  if (update.auxLoss())
    line["aux_loss"] = static_cast<float>(*update.auxLoss());
  line["grad_norm"] = update.gradNorm();
  line["learning_rate"] = learningRate;
  line["tokens"] = tokensSeen;
  line["epoch"] = order->epoch(state.dataPosition - 1);
  line["tokens_per_second"] = progress->tokensPerSecond();
  line["seconds"] = seconds;
  if (update.expertCounts())
    line["expert_counts"] = expertTable(*update.expertCounts());
  if (update.expertDropped())
    line["expert_dropped"] = expertTable(*update.expertDropped());
  return line;
}

// A disk that is full for an hour is no reason to end the training of a week: what cannot be written waits.
void Trainer::writeMetrics(const Json &line) {
  Status status = metrics->write(line);
  if (!status.ok() && result.metrics.ok())
    progress->message(
        fmt::format("step {}: {}; the training goes on, and its lines wait for room", state.step, status.message()));
  if (status.ok() && !result.metrics.ok())
    progress->message(fmt::format("step {}: {} can be written again; {} of its lines are lost", state.step,
                                  options.metricsPath, metrics->lostLines()));
  result.metrics = status;
}

Status Trainer::step() {
  uint64_t number = state.step + 1;
  double learningRate = settings.schedule.at(number);
  BRAID_TRY(update.run(number, state.dataPosition, learningRate, options.checkFinite));
  double loss = update.loss(), gradNorm = update.gradNorm();
  bool finite = std::isfinite(loss) && std::isfinite(gradNorm);
  if (options.checkFinite && !finite) {
    std::string why = "the update was applied";
    if (update.refused()) {
      BRAID_ASSIGN(why, update.explainRefusal(number, state.dataPosition));
      why = "the update was not applied; " + why;
    }
    return Status::error("training diverged at step {}: loss {}, gradient norm {} (learning rate {:.3g}); {}; {}",
                         number, shown(loss), shown(gradNorm), learningRate, lastGood(), why);
  }
  uint64_t tokens = update.labelsOf(state.dataPosition, update.samples());
  // Numbers beyond what f32 holds of their squares become rows of zeros in a norm: no loss is NaN, and nothing is learned.
  bool learns = gradNorm != 0 || tokens == 0, good = finite && learns;
  // The weights of the last checkpoint have proved themselves.
  if (good && lastSaved == state.step)
    pruneOrSay(number, "the next checkpoint tries again");
  if (!good && spoiled.empty() && rank.isFirst()) {
    if (!learns)
      progress->message(fmt::format("step {}: loss {}, but the gradient norm is exactly 0: nothing is learned, as "
                                    "where activations are too large for the squares of a norm (learning rate {:.3g}); "
                                    "{}; others follow steps that learn",
                                    number, shown(loss), learningRate, lastGood()));
    else if (!options.checkpointDir.empty())
      progress->message(fmt::format("step {}: loss {}, gradient norm {}; {}; others follow steps that are finite",
                                    number, shown(loss), shown(gradNorm), lastGood()));
  }
  spoiled = good      ? ""
            : !learns ? "its gradient norm is exactly 0, and it taught nothing"
                      : fmt::format("its loss is {} and its gradient norm {}", shown(loss), shown(gradNorm));
  tokensSeen += tokens;
  state.step = number;
  state.dataPosition += update.samples();
  result.lastStep = number;
  result.loss = loss;
  if (!rank.isFirst())
    return Status::success();
  double seconds = elapsed();
  progress->update({number, loss, gradNorm, learningRate, static_cast<double>(tokens), seconds});
  if (metrics)
    writeMetrics(stepMetrics(seconds, learningRate));
  return Status::success();
}

Status Trainer::evaluateHeldout(bool last) {
  BRAID_ASSIGN(EvalResult evaluated, evaluator->evaluate(heldout));
  if (rank.isFirst()) {
    if (!last)
      progress->message(
          fmt::format("step {}: held-out loss {:.4f} nats/{}", state.step, shown(evaluated.nats), heldout.unit()));
    if (metrics)
      writeMetrics({{"step", state.step}, {"heldout_loss", evaluated.nats}, {"heldout_tokens", evaluated.tokens}});
  }
  if (last)
    result.heldout = evaluated;
  return Status::success();
}

// A directory that was removed or renamed under the run is made anew, and locked anew. Where another put checkpoints in
// its place, the run ends: it would remove them as its own older ones.
Status Trainer::keepLock() {
  const std::string &directory = options.checkpointDir;
  BRAID_ASSIGN(bool holds, lock->holds(directory));
  if (holds)
    return Status::success();
  BRAID_TRY(makeDirectories(directory));
  bool owned = lock->owns(directory);
  lock.reset(); // should the file be the same after all, this run would be refused by its own lock
  BRAID_ASSIGN(lock, DirectoryLock::acquire(directory));
  BRAID_ASSIGN(std::vector<uint64_t> existing, listCheckpoints(directory));
  if (!owned && !existing.empty())
    return Status::error(ErrorCode::ioError,
                         "{} was replaced while the run trained, and holds a checkpoint of step {} that is not its own",
                         directory, existing.back());
  progress->message(
      fmt::format("step {}: {} or its .lock was removed or replaced; it is locked again", state.step, directory));
  return Status::success();
}

// What a step that was not finite leaves to go on from. The step may be the first with the weights of the last
// checkpoint, and these be what is wrong.
std::string Trainer::lastGood() const {
  if (result.checkpoint.empty())
    return "there is no checkpoint";
  std::string last = "the last checkpoint is " + result.checkpoint;
  if (lastSaved != state.step)
    return last;
  last += ", which this step began from";
  auto steps = listCheckpoints(options.checkpointDir);
  if (steps)
    std::erase_if(*steps, [&](uint64_t step) { return step >= lastSaved; });
  return steps && !steps->empty() ? fmt::format("{}; the one before is of step {} (--resume-step)", last, steps->back())
                                  : last;
}

Status Trainer::prune(int keep) {
  if (!rank.isFirst())
    return Status::success();
  // A directory that was replaced holds others' checkpoints; the next save says so.
  auto holds = lock->holds(options.checkpointDir);
  if (!holds)
    return holds.status().withContext("older checkpoints were not removed");
  return *holds ? pruneCheckpoints(options.checkpointDir, lastSaved, keep) : Status::success();
}

// What stays too long is no reason to lose the steps since then, or a training that is done.
void Trainer::pruneOrSay(uint64_t step, std::string_view next) {
  Status pruned = prune(options.keep);
  if (!pruned.ok())
    progress->message(fmt::format("step {}: {}; {}", step, pruned.message(), next));
}

Status Trainer::save() {
  // Weights behind a step that was not finite, or taught nothing, would take the places of those to go on from.
  if (options.checkpointDir.empty() || lastSaved == state.step || !spoiled.empty())
    return Status::success();
  Status saved = rank.isFirst() ? keepLock() : Status::success();
  bool isComplete = false;
  if (saved.ok())
    saved = saveCheckpoint(rank, options.checkpointDir, state, kept(), &isComplete, left, options.tokenizerFiles);
  if (isComplete && !saved.ok())
    return Status::error(saved.code(), "the checkpoint of step {} was saved, but {}", state.step, saved.message());
  if (!saved.ok()) {
    std::string last = result.checkpoint.empty()       ? "no checkpoint was saved before"
                       : pathExists(result.checkpoint) ? "the last checkpoint is " + result.checkpoint
                                                       : result.checkpoint + ", saved before, is no longer there";
    return Status::error(saved.code(), "the checkpoint of step {} was not saved: {}; {}", state.step, saved.message(),
                         last);
  }
  lastSaved = state.step;
  left.clear();
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
  if (!result.metrics.ok())
    result.metrics = metrics->flush();
  if (rank.isFirst())
    result.progressError = progress->error();
  if (state.step > first)
    BRAID_TRY(save());
  if (!options.checkpointDir.empty())
    result.unsaved = spoiled;
  if (evaluator && !result.stopped) {
    BRAID_TRY(evaluateHeldout(/*last=*/true)); // which must be finite
    if (lastSaved == state.step) // no step will follow that proves the weights
      pruneOrSay(state.step, "a run that resumes tries again");
  }
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
