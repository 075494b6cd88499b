#include "runtime/io/ChromeTrace.h"
#include "runtime/io/Words.h"
#include "runtime/train/Bigram.h"
#include "runtime/train/Trainer.h"
#include "tools/braid-run/Commands.h"
#include "tools/common/IntegerFlag.h"
#include "tools/common/NumberFlag.h"

#include <filesystem>
#include <numbers>

namespace braid::run {

using namespace braid::runtime;

namespace {

struct Options {
  std::string program, tokenizer;
  DataFlags data;
  std::vector<std::string> heldout;
  RankFlags ranks;
  TrainOptions train;
  std::string trace;
};

void printLoss(std::string_view name, double nats, std::string_view unit, std::string_view note) {
  fmt::print("{:<14} {:>8.4f} nats/{} {:>8.4f} bits/{}  {}\n", name, shown(nats), unit, shown(nats / std::numbers::ln2),
             unit, note);
}

Status printHeldout(const EvalResult &model, const Corpus &training, const Corpus &heldout) {
  BRAID_ASSIGN(BigramModel::Result bigram, BigramModel::evaluate(training, heldout));
  std::string_view unit = heldout.unit();
  printLoss("held-out loss", model.nats, unit, "over " + counted(model.tokens, unit));
  printLoss(fmt::format("{} bigram", unit), bigram.nats, unit,
            fmt::format("fitted on the same training {}, {}", heldout.isText() ? "text" : "data", bigram.smoothing));
  printLoss("difference", model.nats - bigram.nats, unit,
            model.nats < bigram.nats ? "the model is better" : "the model is not better");
  return Status::success();
}

// Where a process records what its own rank did, all ranks of a process together: F.json, F.rank1.json, ..
std::string traceOf(const std::string &path, int process) {
  if (process == 0)
    return path;
  size_t end = path.size() - std::filesystem::path(path).extension().string().size();
  return fmt::format("{}.rank{}{}", path.substr(0, end), process, path.substr(end));
}

// No file may stand for two things; nothing is created before that is known.
Status checkFiles(const Options &options, const RankOptions &ranks) {
  FileUses uses;
  uses.reads("the program", options.program);
  addDataUses(uses, "--data", options.data.paths);
  addDataUses(uses, "--heldout", options.heldout);
  if (!options.train.checkpointDir.empty())
    uses.writesCheckpoints("--checkpoint-dir", options.train.checkpointDir);
  if (!options.tokenizer.empty())
    uses.reads("--tokenizer", options.tokenizer);
  if (!options.train.initFrom.empty())
    uses.readsCheckpoints("--init-from", options.train.initFrom);
  if (!options.train.metricsPath.empty())
    uses.writes("--metrics", options.train.metricsPath, FileUses::Kind::metrics);
  if (!options.trace.empty())
    for (int rank = 0; rank < (ranks.processes ? ranks.processes->size() : 1); ++rank)
      uses.writes("--trace", traceOf(options.trace, rank), FileUses::Kind::trace);
  return uses.check();
}

Status run(Options &options) {
  BRAID_ASSIGN(RankOptions ranks, joinRanks(options.ranks));
  BRAID_ASSIGN(std::shared_ptr<const Program> program, Program::load(options.program, trains));
  warnIdleRankFlags(*program, options.ranks, ranks);
  options.train.resume |= options.train.resumeStep.has_value();
  BRAID_TRY(checkFiles(options, ranks));
  BRAID_ASSIGN(Texts texts,
               textsOf(*program, options.tokenizer, options.train.resume ? options.train.checkpointDir : ""));
  if (!texts.tokenizer && texts.unread.ok()) {
    BRAID_ASSIGN(texts, textsOf(*program, "", options.train.initFrom));
  }
  if (texts.tokenizer) {
    BRAID_ASSIGN(options.train.tokenizerFiles, filesOf(*texts.tokenizer));
  }
  BRAID_ASSIGN(Corpus corpus, readData(*program, options.data, options.data.paths, texts));
  BRAID_ASSIGN(Corpus heldout, readData(*program, options.data, options.heldout, texts));
  if (!options.heldout.empty()) // now, and not when the training is over
    BRAID_TRY(PackedRows::checkPairs(heldout).withContext("held-out data"));
  if (!options.heldout.empty() && heldout.isText() != corpus.isText())
    return Status::error("--data holds {}s but --heldout {}s: losses per byte and per token do not compare",
                         corpus.unit(), heldout.unit());
  if (!options.heldout.empty() && heldout.hash() == corpus.hash() && ranks.speaks())
    fmt::print(stderr, "--heldout holds what --data does: its loss says nothing about what the model has not seen\n");
  options.train.stop = &stopOnSignals();
  options.train.progress = stderr;

  std::unique_ptr<ChromeTrace> trace;
  if (!options.trace.empty()) {
    BRAID_ASSIGN(trace,
                 ChromeTrace::create(traceOf(options.trace, ranks.processes ? ranks.processes->rank() : 0), *program));
    options.train.trace = trace.get();
  }

  TrainResult result;
  Status trained = runRanks(program, ranks, [&](Rank &rank) -> Status {
    BRAID_ASSIGN(TrainResult own, train(rank, options.train, corpus, heldout));
    if (rank.isFirst())
      result = std::move(own);
    return Status::success();
  });
  // What was recorded before something failed is worth the most.
  Status traced = trace && (trained.ok() || trace->recorded()) ? trace->write() : Status::success();
  BRAID_TRY(trained);

  if (!ranks.speaks())
    return traced;
  if (result.stopped)
    endAsStopped();
  if (result.firstStep >= result.steps)
    fmt::print("nothing to do: {} is at step {} of {}\n", result.checkpoint, result.firstStep, result.steps);
  else if (!result.stopped)
    fmt::print("trained to step {} in {:.1f} s, loss {:.4f}\n", result.lastStep, result.seconds, result.loss);
  else if (result.checkpoint.empty())
    fmt::print("stopped at step {} of {}; nothing was saved{}\n", result.lastStep, result.steps,
               options.train.checkpointDir.empty() ? " (no --checkpoint-dir)" : "");
  else
    fmt::print("stopped at step {} of {}; continue with --resume\n", result.lastStep, result.steps);
  if (!result.unsaved.empty())
    fmt::print("no checkpoint of step {} was saved: {}; {}\n", result.lastStep, result.unsaved,
               result.checkpoint.empty() ? "there is none" : "the last one is from before");
  if (!result.checkpoint.empty())
    fmt::print("checkpoint     {}\n", result.checkpoint);
  if (result.heldout)
    BRAID_TRY(printHeldout(*result.heldout, corpus, heldout));
  // The training went on without anybody to watch it, but what was asked for was not all done.
  BRAID_TRY(traced);
  BRAID_TRY(result.metrics.withContext("the last lines of the metrics are missing"));
  return result.progressError ? writeError("standard error", result.progressError) : Status::success();
}

} // namespace

Action addTrain(CLI::App &command) {
  auto options = std::make_shared<Options>();
  TrainOptions &train = options->train;
  addProgramOption(command, options->program);
  addDataOptions(command, options->data);
  addTokenizerOption(command, options->tokenizer);
  integerIn(
      command.add_option(
          "--steps", train.steps,
          "Optimizer steps in total, those before --resume included (default: the checkpoint's, else the model's)"),
      1, maxTrainSteps);
  integerIn(command.add_option("--accumulation-steps", train.accumulationSteps,
                               "Batches whose gradients make one step, of a program compiled with --accumulation-steps "
                               "(default: the checkpoint's, else as compiled)"),
            1, maxAccumulationSteps);
  numberIn(
      command.add_option("--lr", train.learningRate,
                         "Peak learning rate, after the warm-up (default: the checkpoint's, else the model's); the "
                         "minimum keeps its share of it"),
      From::least, minLearningRate, maxLearningRate)
      ->type_name("RATE");
  numberIn(
      command.add_option("--min-lr", train.minLearningRate,
                         "Learning rate of the last step, at the end of the cosine (default: the checkpoint's, else "
                         "the model's)"),
      From::least, 0, maxLearningRate)
      ->type_name("RATE");
  integerIn(
      command.add_option(
          "--warmup", train.warmupSteps,
          "Steps over which the learning rate rises from 0 to its peak (default: the checkpoint's, else the model's)"),
      0, maxTrainSteps);
  integerIn(command.add_option("--seed", train.seed,
                               "Seed of the parameters and of the order of the data (default: the checkpoint's, which "
                               "a resumed run keeps, else the model's)"),
            0, UINT64_MAX);
  CLI::Option *directory =
      command
          .add_option("--checkpoint-dir", train.checkpointDir,
                      "Save checkpoints here: at the end, and when stopped by Ctrl-C, SIGTERM, SIGHUP or "
                      "SIGUSR1")
          ->type_name("DIR");
  integerIn(command.add_option("--save-every", train.saveEvery, "Also save after every N steps"), 1, maxTrainSteps)
      ->needs(directory);
  integerIn(command.add_option("--keep", train.keep,
                               "How many checkpoints to keep; one more until a step with the weights of the newest, or "
                               "at the end their loss on "
                               "--heldout, was finite"),
            1, maxTrainSteps)
      ->capture_default_str()
      ->needs(directory);
  CLI::Option *resume = command
                            .add_flag("--resume", train.resume,
                                      "Go on from the newest checkpoint of --checkpoint-dir (from the start if there "
                                      "is none)")
                            ->needs(directory);
  CLI::Option *initFrom =
      command
          .add_option("--init-from", train.initFrom,
                      "Begin with the weights of this checkpoint, of the newest in this directory, or of transformers: "
                      "step, moments, "
                      "schedule, seed and data are those of a new run. One that goes on with --resume does not read it")
          ->type_name("DIR");
  integerIn(command.add_option("--resume-step", train.resumeStep,
                               "Go on from the checkpoint of step N instead, when a newer one is damaged or its end "
                               "was a wrong turn; newer ones are removed when the run has saved one of its own"),
            0, maxTrainSteps)
      ->needs(directory)
      ->excludes(resume)
      ->excludes(initFrom);
  command
      .add_flag(
          "--check-finite,!--no-check-finite", train.checkFinite,
          "End the run at a loss or gradient norm that is not finite, before its update is applied, and say which "
          "command and which samples made it (on; --no-check-finite goes on, and saves no checkpoint behind such a "
          "step)")
      ->default_str("true");
  command.add_option("--metrics", train.metricsPath, "Write one JSON object per step to this file (rank 0 does)")
      ->type_name("F.jsonl");
  CLI::Option *trace =
      command
          .add_option("--trace", options->trace,
                      "Record what every rank and stream executes, for chrome://tracing or "
                      "ui.perfetto.dev; ranks that are processes write a file each, F.json, F.rank1.json, ..")
          ->type_name("F.json");
  integerIn(command.add_option("--trace-steps", train.traceSteps, "How many steps to record, from the second on"), 1,
            maxTrainSteps)
      ->capture_default_str()
      ->needs(trace);
  CLI::Option *heldout = command
                             .add_option("--heldout", options->heldout,
                                         "Files the model does not see, read like --data: at the end its loss on them "
                                         "is printed, next to that of a bigram model")
                             ->type_name("PATH");
  integerIn(command.add_option("--eval-every", train.evalEvery, "Also measure the held-out loss after every N steps"),
            1, maxTrainSteps)
      ->needs(heldout);
  addRankOptions(command, options->ranks);
  return [options] { return run(*options); };
}

} // namespace braid::run
