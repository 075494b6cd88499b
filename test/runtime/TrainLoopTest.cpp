#include "test/runtime/TrainFixture.h"

#include "runtime/io/ChromeTrace.h"
#include "runtime/io/File.h"
#include "runtime/train/Bigram.h"
#include "runtime/train/Checkpoint.h"
#include "runtime/train/Trainer.h"

#include <nlohmann/json.hpp>

#include <cmath>
#include <functional>
#include <optional>
#include <sstream>
#include <thread>

namespace braid::runtime::test {
namespace {

Corpus corpusOf(std::string_view text) { return Corpus(std::vector<uint8_t>(text.begin(), text.end())); }

struct Trained {
  Status status = Status::success();
  TrainResult result;
};

Trained runTraining(const BigramOptions &program, const TrainOptions &options, const Corpus &corpus,
                    const Corpus &heldout = Corpus()) {
  Trained run;
  RankOptions ranks;
  ranks.ranks = static_cast<int>(program.dp);
  ranks.threads = 1;
  run.status = runRanks(parseProgram(bigramProgram(program)), ranks, [&](Rank &rank) -> Status {
    BRAID_ASSIGN(TrainResult result, train(rank, options, corpus, heldout));
    if (rank.isFirst())
      run.result = std::move(result);
    return Status::success();
  });
  return run;
}

std::vector<nlohmann::json> readLines(const std::string &path) {
  std::vector<nlohmann::json> lines;
  std::istringstream text(readText(path));
  for (std::string line; std::getline(text, line);)
    lines.push_back(nlohmann::json::parse(line));
  return lines;
}

std::vector<double> losses(const std::string &path) {
  std::vector<double> result;
  for (const nlohmann::json &line : readLines(path))
    if (line.contains("loss"))
      result.push_back(line["loss"].get<double>());
  return result;
}

TEST(TrainLoop, LearnsAndMeasuresItself) {
  TemporaryDirectory directory;
  Corpus corpus = corpusOf(sampleText(20000)), heldout = corpusOf(sampleText(3001, 9));
  TrainOptions options;
  options.steps = 300;
  options.learningRate = 0.05;
  options.warmupSteps = 10;
  options.evalEvery = 100;
  options.metricsPath = directory / "m.jsonl";
  Trained run = runTraining({}, options, corpus, heldout);
  ASSERT_TRUE(run.status.ok()) << run.status.message();
  EXPECT_EQ(run.result.lastStep, 300u);
  EXPECT_FALSE(run.result.stopped);
  ASSERT_TRUE(run.result.heldout);
  EXPECT_EQ(run.result.heldout->tokens, 3000u);
  // The network is a bigram model: it comes near the counted one and cannot be much better.
  double counted = BigramModel::evaluate(corpus, heldout)->nats;
  EXPECT_LT(run.result.heldout->nats, counted + 0.15);
  EXPECT_GT(run.result.heldout->nats, counted - 0.05);
  EXPECT_NEAR(run.result.heldout->bits(), run.result.heldout->nats / std::log(2.0), 1e-12);

  std::vector<nlohmann::json> lines = readLines(options.metricsPath);
  std::vector<double> all = losses(options.metricsPath);
  ASSERT_EQ(all.size(), 300u);
  EXPECT_NEAR(all.front(), std::log(256.0), 0.05);
  EXPECT_LT(all.back(), 1.6);
  EXPECT_EQ(lines.size(), 303u); // and held-out losses at 100, 200 and 300
  EXPECT_EQ(lines[4]["step"], 5);
  EXPECT_NEAR(lines[4]["learning_rate"].get<double>(), 0.025, 1e-9);
  EXPECT_EQ(lines[4]["tokens"], 5 * 2 * 16);
  for (const char *key : {"loss", "aux_loss", "grad_norm", "tokens_per_second", "seconds", "epoch"})
    EXPECT_TRUE(lines[4].contains(key)) << key;
}

TEST(TrainLoop, AResumedRunHasTheSameBits) {
  TemporaryDirectory directory;
  Corpus corpus = corpusOf(sampleText(1000)); // several epochs
  TrainOptions options;
  options.steps = 90;
  options.seed = 5;
  options.metricsPath = directory / "whole.jsonl";
  options.checkpointDir = directory / "whole";
  ASSERT_TRUE(runTraining({}, options, corpus).status.ok());

  // A run that was killed after step 50 was saved: what it wrote later is dropped and repeated.
  options.metricsPath = directory / "parts.jsonl";
  options.checkpointDir = directory / "parts";
  options.saveEvery = 25;
  ASSERT_TRUE(runTraining({}, options, corpus).status.ok());
  EXPECT_EQ(*listCheckpoints(options.checkpointDir),
            (std::vector<uint64_t>{25, 50, 75, 90})); // no step has proved the last one
  std::filesystem::remove_all(directory / "parts/step-00000075");
  std::filesystem::remove_all(directory / "parts/step-00000090");
  writeText(directory / "parts/latest", "step-00000050\n");
  options.resume = true;
  Trained resumed = runTraining({}, options, corpus);
  ASSERT_TRUE(resumed.status.ok()) << resumed.status.message();
  EXPECT_EQ(resumed.result.firstStep, 50u);
  EXPECT_EQ(losses(directory / "parts.jsonl"), losses(directory / "whole.jsonl"));
  EXPECT_EQ(losses(directory / "parts.jsonl").size(), 90u);
  for (const char *file : {"model.safetensors", "optimizer.safetensors"})
    EXPECT_EQ(readText(directory / "parts/step-00000090/" + file), readText(directory / "whole/step-00000090/" + file));

  // Nothing is left to do.
  Trained again = runTraining({}, options, corpus);
  ASSERT_TRUE(again.status.ok());
  EXPECT_EQ(again.result.firstStep, 90u);
}

TEST(TrainLoop, ARunOnDocumentsIsTheSameResumedAndOnRanks) {
  // Documents of all lengths, two to a row at most: 40 steps are several epochs, the break is inside one.
  TemporaryDirectory directory;
  std::string text = sampleText(700);
  Corpus corpus;
  for (size_t at = 0, length = 1; at < text.size(); at += length, length = length % 37 + 1) {
    std::string_view part = std::string_view(text).substr(at, length);
    corpus.append(std::span(reinterpret_cast<const uint8_t *>(part.data()), part.size()));
    corpus.endDocument();
  }
  TrainOptions options;
  options.steps = 40;
  options.learningRate = 0.05;
  options.checkpointDir = directory / "whole";
  options.metricsPath = directory / "whole.jsonl";
  BigramOptions one, two;
  one.batch = 4;
  two.batch = 2;
  two.dp = 2;
  ASSERT_TRUE(runTraining(one, options, corpus).status.ok());

  options.checkpointDir = directory / "parts";
  options.metricsPath = directory / "parts.jsonl";
  options.saveEvery = 23;
  ASSERT_TRUE(runTraining(one, options, corpus).status.ok());
  std::filesystem::remove_all(directory / "parts/step-00000040");
  writeText(directory / "parts/latest", "step-00000023\n");
  options.resume = true;
  Trained resumed = runTraining(one, options, corpus);
  ASSERT_TRUE(resumed.status.ok()) << resumed.status.message();
  EXPECT_EQ(resumed.result.firstStep, 23u);
  EXPECT_EQ(losses(directory / "parts.jsonl"), losses(directory / "whole.jsonl"));
  EXPECT_EQ(readText(directory / "parts/step-00000040/model.safetensors"),
            readText(directory / "whole/step-00000040/model.safetensors"));
  std::vector<nlohmann::json> whole = readLines(directory / "whole.jsonl"),
                              parts = readLines(directory / "parts.jsonl");
  ASSERT_EQ(whole.size(), parts.size());
  for (size_t i = 0; i < whole.size(); ++i)
    EXPECT_EQ(whole[i]["tokens"], parts[i]["tokens"]);
  EXPECT_GT(whole.back()["epoch"].get<int>(), 1);

  // Two ranks take over: the same rows, sums in another order.
  options.checkpointDir = directory / "ranks";
  options.metricsPath = directory / "ranks.jsonl";
  options.resume = false;
  Trained both = runTraining(two, options, corpus);
  ASSERT_TRUE(both.status.ok()) << both.status.message();
  std::vector<double> a = losses(directory / "whole.jsonl"), b = losses(directory / "ranks.jsonl");
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i)
    EXPECT_NEAR(a[i], b[i], 1e-4 * a[i]) << i;
}

TEST(TrainLoop, APositionThatCannotBeIsRefused) {
  TemporaryDirectory directory;
  Corpus corpus = corpusOf(sampleText(1000));
  TrainOptions options;
  options.steps = 5;
  options.checkpointDir = directory / "c";
  ASSERT_TRUE(runTraining({}, options, corpus).status.ok());
  int made = 0;
  auto expect = [&](const std::function<void(CheckpointState &)> &change, std::string_view part) {
    std::string other = directory / ("c" + std::to_string(++made));
    onRanks(parseProgram(bigramProgram()), [&](Rank &rank) -> Status {
      BRAID_ASSIGN(CheckpointState state, loadCheckpoint(rank, directory / "c/step-00000005", Restored::all));
      change(state);
      return saveCheckpoint(rank, other, state, 1);
    });
    TrainOptions resumed = options;
    resumed.checkpointDir = other;
    resumed.resume = true;
    resumed.steps = 6;
    Trained run = runTraining({}, resumed, corpus);
    EXPECT_NE(run.status.message().find(part), std::string::npos) << run.status.message();
  };
  expect([](CheckpointState &state) { state.dataPosition = 4; }, "data_position is 4 at step 5; valid: 5 to ");
  expect([](CheckpointState &state) { state.dataPosition = 99999999999999; },
         "data_position is 99999999999999 at step 5; valid: 5 to ");
  expect([](CheckpointState &state) { state.maxDocuments = 3; }, "at most 3 documents, but the program has 2");
  expect([](CheckpointState &state) { state.corpusDocuments = 2; },
         "1000 tokens in 2 documents, but the data given has 1000 in 1");
}

TEST(TrainLoop, StoppedBeforeTheFirstStepItSavesNothing) {
  TemporaryDirectory directory;
  std::atomic<bool> stop = true;
  TrainOptions options;
  options.steps = 3;
  options.checkpointDir = directory / "c";
  options.stop = &stop;
  Trained run = runTraining({}, options, corpusOf(sampleText(1000)));
  ASSERT_TRUE(run.status.ok());
  EXPECT_TRUE(run.result.stopped);
  EXPECT_EQ(run.result.checkpoint, "");
  EXPECT_EQ(listCheckpoints(options.checkpointDir)->size(), 0u);
}

TEST(TrainLoop, StopsWhenAskedAndSaves) {
  TemporaryDirectory directory;
  Corpus corpus = corpusOf(sampleText(5000));
  std::atomic<bool> stop = false;
  TrainOptions options;
  options.steps = 1000000000;
  options.checkpointDir = directory / "c";
  options.metricsPath = directory / "m.jsonl";
  options.stop = &stop;
  std::thread asker([&] {
    while (!std::filesystem::exists(options.metricsPath) || std::filesystem::file_size(options.metricsPath) < 500)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    stop = true;
  });
  BigramOptions two;
  two.dp = 2;
  Trained run = runTraining(two, options, corpus); // both ranks must stop after the same step
  asker.join();
  ASSERT_TRUE(run.status.ok()) << run.status.message();
  EXPECT_TRUE(run.result.stopped);
  EXPECT_GT(run.result.lastStep, 0u);
  EXPECT_EQ(*resolveCheckpoint(options.checkpointDir),
            options.checkpointDir + "/" + checkpointName(run.result.lastStep));
}

// What happens to a checkpoint directory between two checkpoints of a run on two ranks that resumed from step 2.
Trained runWhile(const std::string &directory, const std::function<void()> &change) {
  Corpus corpus = corpusOf(sampleText(5000));
  BigramOptions two;
  two.dp = 2;
  std::atomic<bool> stop = false;
  TrainOptions options;
  options.steps = 2;
  options.checkpointDir = directory + "/c";
  EXPECT_TRUE(runTraining(two, options, corpus).status.ok());
  options.resume = true;
  options.steps = 1000000000;
  options.metricsPath = directory + "/m.jsonl";
  options.stop = &stop;
  std::thread other([&] {
    while (!std::filesystem::exists(options.metricsPath) || std::filesystem::file_size(options.metricsPath) < 500)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    change();
    stop = true;
  });
  Trained run = runTraining(two, options, corpus);
  other.join();
  return run;
}

TEST(TrainLoop, ADirectoryTakenFromUnderARunIsLockedAgain) {
  namespace fs = std::filesystem;
  for (int taken = 0; taken < 4; ++taken) {
    SCOPED_TRACE(taken);
    TemporaryDirectory directory;
    std::string c = directory / "c", copy = directory / "copy";
    Trained run = runWhile(directory.str(), [&] {
      if (taken == 0)
        fs::rename(c, copy);
      if (taken == 1)
        fs::remove_all(c);
      if (taken == 2)
        fs::remove(c + "/.lock");
      if (taken == 3) { // what a move to another disk and back does
        fs::copy(c, copy, fs::copy_options::recursive);
        fs::remove_all(c);
        fs::rename(copy, c);
      }
    });
    ASSERT_TRUE(run.status.ok()) << run.status.message();
    EXPECT_EQ(*resolveCheckpoint(c), c + "/" + checkpointName(run.result.lastStep));
    EXPECT_EQ(listCheckpoints(c)->size(), taken < 2 ? 1u : 2u);
    if (taken == 0)
      EXPECT_EQ(*listCheckpoints(copy), std::vector<uint64_t>{2});
  }
}

TEST(TrainLoop, ADirectoryThatAnotherRunTookIsLeftToIt) {
  namespace fs = std::filesystem;
  TemporaryDirectory locked, filled;
  std::optional<DirectoryLock> lock;
  Trained run = runWhile(locked.str(), [&] {
    fs::rename(locked / "c", locked / "moved");
    fs::create_directory(locked / "c");
    auto acquired = DirectoryLock::acquire(locked / "c");
    ASSERT_TRUE(acquired) << acquired.message();
    lock = *std::move(acquired);
  });
  EXPECT_NE(run.status.message().find(fmt::format("{}: another training run (process {}) writes its checkpoints there",
                                                  locked / "c", getpid())),
            std::string::npos)
      << run.status.message();

  // A run that came and went, and a directory that was put there without a lock.
  for (bool keepsLock : {true, false}) {
    fs::remove_all(filled / "c");
    fs::remove_all(filled / "moved");
    run = runWhile(filled.str(), [&] {
      fs::rename(filled / "c", filled / "moved");
      TrainOptions options;
      options.steps = 3;
      options.checkpointDir = filled / "c";
      EXPECT_TRUE(runTraining({}, options, corpusOf(sampleText(1000))).status.ok());
      if (!keepsLock)
        fs::remove(filled / "c/.lock");
    });
    EXPECT_NE(run.status.message().find(fmt::format("{} was replaced while the run trained, and holds a checkpoint of "
                                                    "step 3 that is not its own",
                                                    filled / "c")),
              std::string::npos)
        << run.status.message();
    EXPECT_EQ(*listCheckpoints(filled / "c"), std::vector<uint64_t>{3});
    EXPECT_EQ(*listCheckpoints(filled / "moved"), std::vector<uint64_t>{2});
    fs::remove(filled / "m.jsonl");
  }
}

TEST(TrainLoop, RanksSeeTheRowsOfOneBatch) {
  TemporaryDirectory directory;
  Corpus corpus = corpusOf(sampleText(1000)), heldout = corpusOf(sampleText(777, 4));
  TrainOptions options;
  options.steps = 40;
  options.learningRate = 0.05;
  options.metricsPath = directory / "one.jsonl";
  BigramOptions one, two;
  one.batch = 4;
  two.batch = 2;
  two.dp = 2;
  Trained alone = runTraining(one, options, corpus, heldout);
  options.metricsPath = directory / "two.jsonl";
  Trained both = runTraining(two, options, corpus, heldout);
  ASSERT_TRUE(alone.status.ok() && both.status.ok()) << both.status.message();
  std::vector<double> a = losses(directory / "one.jsonl"), b = losses(directory / "two.jsonl");
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i)
    EXPECT_NEAR(a[i], b[i], 1e-4 * a[i]) << i;
  EXPECT_NEAR(alone.result.heldout->nats, both.result.heldout->nats, 1e-4);
  EXPECT_EQ(alone.result.heldout->tokens, both.result.heldout->tokens);
}

// The last update may have ruined the weights: what loads them, or nothing, tells.
TEST(TrainLoop, TheLastCheckpointReplacesOlderOnesWhenItIsProved) {
  TemporaryDirectory directory;
  Corpus corpus = corpusOf(sampleText(1000)), heldout = corpusOf(sampleText(777, 4));
  TrainOptions options;
  options.steps = 6;
  options.saveEvery = 2;
  options.keep = 1;
  auto left = [&](const char *name, const Corpus &tested) {
    options.checkpointDir = directory / name;
    EXPECT_TRUE(runTraining({}, options, corpus, tested).status.ok());
    return *listCheckpoints(options.checkpointDir);
  };
  EXPECT_EQ(left("unproved", Corpus({})), (std::vector<uint64_t>{4, 6}));
  EXPECT_EQ(left("tested", heldout), (std::vector<uint64_t>{6}));
  options.checkFinite = false; // the run goes on whatever it sees, and its checkpoints are proved as any
  EXPECT_EQ(left("unchecked", Corpus({})), (std::vector<uint64_t>{4, 6}));
}

// Checkpoints behind the one that a run goes on from are another end of the training: none to keep, and there until the run has its own.
TEST(TrainLoop, CheckpointsOfAnEndThatWasLeftTakeNoPlaces) {
  using Steps = std::vector<uint64_t>;
  TemporaryDirectory directory;
  Corpus corpus = corpusOf(sampleText(1000));
  TrainOptions options;
  options.steps = 10;
  options.saveEvery = 2;
  options.checkpointDir = directory / "c";
  ASSERT_TRUE(runTraining({}, options, corpus).status.ok());
  EXPECT_EQ(*listCheckpoints(options.checkpointDir), (Steps{4, 6, 8, 10}));
  options.resume = true;
  options.resumeStep = 6;
  options.saveEvery = 0;
  std::atomic<bool> stop = true; // before any step
  options.stop = &stop;
  ASSERT_TRUE(runTraining({}, options, corpus).status.ok());
  EXPECT_EQ(*listCheckpoints(options.checkpointDir), (Steps{4, 6, 8, 10}));
  EXPECT_EQ(readText(options.checkpointDir + "/latest"), "step-00000010\n");
  options.stop = nullptr;
  for (auto [steps, expected] : {std::pair(7, Steps{4, 6, 7}), {9, {4, 6, 7, 9}}}) {
    options.steps = steps;
    ASSERT_TRUE(runTraining({}, options, corpus).status.ok());
    EXPECT_EQ(*listCheckpoints(options.checkpointDir), expected);
    options.resumeStep.reset(); // from the newest
  }
  // One that has the number of a step of the other end takes its place, and all behind it go too.
  options.resumeStep = 4;
  options.steps = 6;
  options.keep = 1;
  ASSERT_TRUE(runTraining({}, options, corpus).status.ok());
  EXPECT_EQ(*listCheckpoints(options.checkpointDir), (Steps{4, 6})); // no step has proved the last one
  EXPECT_EQ(readText(options.checkpointDir + "/latest"), "step-00000006\n");
}

size_t beginOfSample(const Corpus &corpus, uint64_t sample) {
  auto rows = PackedRows::pack(corpus, 16, 2);
  EXPECT_TRUE(rows) << rows.message();
  return rows->pieces(SampleOrder(rows->size(), 0).row(sample)).front().begin;
}

// A text whose sample 13 (of step 7 in batches of two) is broken: its loss is not a number.
Corpus corpusWithABrokenSample() {
  std::string text = sampleText(5000);
  text[beginOfSample(corpusOf(text), 13) + 3] = '\xff';
  return corpusOf(text);
}

TEST(TrainLoop, DivergenceChangesNothingAndNamesWhatMadeIt) {
  Corpus corpus = corpusWithABrokenSample();
  for (uint32_t dp : {1, 2}) {
    TemporaryDirectory directory;
    BigramOptions program;
    program.dp = dp;
    program.batch = 2 / dp;
    TrainOptions options;
    options.steps = 50;
    options.saveEvery = 1;
    options.keep = 1;
    options.checkpointDir = directory / "c";
    onRanks(parseProgram(bigramProgram(program)), [&](Rank &rank) -> Status {
      auto trained = train(rank, options, corpus, Corpus({}));
      EXPECT_FALSE(trained);
      std::string message = trained ? "" : trained.message();
      for (const std::string &part :
           {std::string("training diverged at step 7: loss nan, gradient norm "),
            "the last checkpoint is " + options.checkpointDir +
                "/step-00000006, which this step began from; the one "
                "before is of step 5 (--resume-step)",
            std::string("the update was not applied; the first NaN is element 0 of 2 in 'sums', entry 'train_step' "
                        "command 0, kernel bigram_loss"),
            fmt::format("the step's samples are 12 to 13: alone does this 13 (from token {} of the data)",
                        beginOfSample(corpus, 13))})
        EXPECT_NE(message.find(part), std::string::npos) << part << "\nis not in\n" << message;
      EXPECT_EQ(message.find("(rank 1)") != std::string::npos, dp == 2); // that has the second row
      // Parameters and moments are those of step 6.
      std::vector<std::vector<std::byte>> after;
      auto each = [&](auto &&f) {
        for (const TensorInfo &tensor : rank.program().tensors())
          if (tensor.role == Role::parameter || tensor.role == Role::moment)
            f(rank.session().tensor(tensor));
      };
      each([&](TensorView view) { after.emplace_back(view.data, view.data + view.bytes); });
      BRAID_ASSIGN(CheckpointState state, loadCheckpoint(rank, options.checkpointDir, Restored::all));
      EXPECT_EQ(state.step, 6u);
      size_t i = 0, changed = 0;
      each([&](TensorView view) { changed += std::memcmp(view.data, after[i++].data(), view.bytes) != 0; });
      EXPECT_EQ(changed, 0u);
      return Status::success();
    });
    EXPECT_EQ(*listCheckpoints(options.checkpointDir),
              (std::vector<uint64_t>{5, 6})); // with the weights of 6 no step was finite
  }
}

TEST(TrainLoop, DivergenceIsIgnoredWhenAskedFor) {
  TrainOptions options;
  options.steps = 10;
  options.checkFinite = false;
  Trained run = runTraining({}, options, corpusWithABrokenSample());
  EXPECT_TRUE(run.status.ok()) << run.status.message();
  EXPECT_EQ(run.result.lastStep, 10u);
  // Weights behind step 7, which is not a number, take the place of no others; those of a later step that is one again do.
  TemporaryDirectory directory;
  options.saveEvery = 1;
  options.keep = 1;
  for (auto [steps, kept] : {std::pair(7, std::vector<uint64_t>{5, 6}), {10, {9, 10}}}) {
    options.steps = steps;
    options.checkpointDir = directory / std::to_string(steps);
    run = runTraining({}, options, corpusWithABrokenSample());
    EXPECT_TRUE(run.status.ok()) << run.status.message();
    EXPECT_EQ(*listCheckpoints(options.checkpointDir), kept);
  }
}

TEST(TrainLoop, RefusesToMixRuns) {
  TemporaryDirectory directory;
  Corpus corpus = corpusOf(sampleText(5000));
  TrainOptions options;
  options.steps = 2;
  options.seed = 1;
  options.checkpointDir = directory / "c";
  ASSERT_TRUE(runTraining({}, options, corpus).status.ok());
  auto expect = [&](const TrainOptions &changed, const Corpus &text, std::string_view part, int64_t seqLen = 16) {
    BigramOptions program;
    program.seqLen = seqLen;
    Trained run = runTraining(program, changed, text);
    EXPECT_NE(run.status.message().find(part), std::string::npos) << run.status.message();
  };
  expect(options, corpus,
         "already holds a checkpoint of step 2: resume from it (--resume), or choose another directory");
  options.resume = true;
  expect(options, corpusOf(sampleText(5001)),
         "trained on 5000 tokens in 1 document, but the data given has 5001 in 1; its weights begin a training on "
         "other data by --init-from");
  expect(options, corpusOf(sampleText(5000, 2)), "trained on other data of the same 5000 tokens");
  expect(options, corpus, "trained on rows of 16 tokens, but the program has 8", 8);
  TrainOptions shorter = options;
  shorter.steps = 1;
  expect(shorter, corpus, "the checkpoint is at step 2, past the 1 step that --steps asks for");
  TrainOptions warm = options;
  warm.warmupSteps = 3;
  expect(warm, corpus,
         "a warm-up of 3 steps (--warmup) does not fit into the 2 of the training (--steps); valid: 0 to 2");
  TrainOptions seeded = options;
  seeded.seed = 2;
  expect(seeded, corpus, "trained with seed 1, but --seed asks for 2");
  TrainOptions endless = options;
  endless.steps = uint64_t(1) << 40;
  expect(endless, corpus, "(--steps) is 1099511627776; valid: 1 to 2147483647");
  TrainOptions rates = options;
  rates.minLearningRate = 1;
  expect(rates, corpus,
         "the minimum of the learning rate (--min-lr) is 1; valid: 0 to the learning rate (--lr), 0.001");
  rates.minLearningRate.reset();
  for (double rate : {0.0, 1e-40, -1.0, 101.0, HUGE_VAL, std::nan("")}) {
    rates.learningRate = rate;
    expect(rates, corpus, fmt::format("the learning rate (--lr) is {}; valid: 1e-12 to 100", rate));
  }
}

TEST(TrainLoop, SettingsComeFromTheProgramThenTheCommandLine) {
  TemporaryDirectory directory;
  Corpus corpus = corpusOf(sampleText(2000));
  BigramOptions program;
  program.metadata = {{"train.learning_rate", "0.5"}, {"train.min_learning_rate", "0.25"}, {"train.warmup_steps", "2"}};
  TrainOptions options;
  options.steps = 4;
  options.metricsPath = directory / "m.jsonl";
  auto rates = [&] {
    Trained run = runTraining(program, options, corpus);
    EXPECT_TRUE(run.status.ok()) << run.status.message();
    std::vector<double> result;
    for (const nlohmann::json &line : readLines(options.metricsPath))
      result.push_back(line["learning_rate"].get<double>());
    return result;
  };
  EXPECT_EQ(rates(), (std::vector<double>{0.25, 0.5, 0.375, 0.25}));
  options.learningRate = 1;
  options.warmupSteps = 1;
  // The minimum keeps its share of the peak, also in a run that is resumed with another one.
  EXPECT_DOUBLE_EQ(rates()[0], 1);
  EXPECT_DOUBLE_EQ(rates()[3], 0.5);
  options.checkpointDir = directory / "c";
  rates();
  options.resume = true;
  options.steps = 8;
  options.learningRate = 0.125; // below the minimum of before
  EXPECT_DOUBLE_EQ(rates()[7], 0.0625);
  options.steps = 12;
  options.minLearningRate = 0.25;
  EXPECT_NE(
      runTraining(program, options, corpus)
          .status.message()
          .find("the minimum of the learning rate (--min-lr) is 0.25; valid: 0 to the learning rate (--lr), 0.125"),
      std::string::npos);
  options = {};
  options.steps = 4;
  program.metadata = {{"train.learning_rate", "fast"}};
  EXPECT_NE(runTraining(program, options, corpus).status.message().find("'train.learning_rate' is 'fast'"),
            std::string::npos);
  program.metadata = {{"tokenizer", "bpe"}};
  EXPECT_NE(runTraining(program, options, corpus)
                .status.message()
                .find("its tokenizer is 'bpe' and its vocabulary has 256 entries, but the data is text"),
            std::string::npos);
  for (const char *slices : {"4,x", "8,4", "16", "4,", "-4"}) {
    program.metadata = {{"sequence_slices", slices}};
    EXPECT_NE(runTraining(program, options, corpus)
                  .status.message()
                  .find(std::string("metadata 'sequence_slices' is '") + slices +
                        "'; valid: ascending multiples of sp = 1 below the 16 tokens of a row, separated by commas"),
              std::string::npos);
  }
}

TEST(TrainLoop, RecordsATrace) {
  TemporaryDirectory directory;
  TrainOptions options;
  options.steps = 5;
  auto recorder = ChromeTrace::create(directory / "t.json", *parseProgram(bigramProgram()));
  ASSERT_TRUE(recorder) << recorder.message();
  options.trace = recorder->get();
  options.traceSteps = 2;
  ASSERT_TRUE(runTraining({}, options, corpusOf(sampleText(2000))).status.ok());
  ASSERT_TRUE((*recorder)->write().ok());
  auto trace = nlohmann::json::parse(readText(directory / "t.json"));
  size_t launches = 0;
  for (const auto &event : trace["traceEvents"])
    launches += event["ph"] == "X" && event["cat"] == "launch" && event["args"]["entry"] == "train_step";
  EXPECT_EQ(launches, 2u * 4u); // loss, finish, adam twice
}

TEST(TrainRanks, AskForTheRightNumber) {
  BigramOptions two;
  two.dp = 2;
  RankOptions options; // one rank
  Status status = runRanks(parseProgram(bigramProgram(two)), options, [](Rank &) { return Status::success(); });
  EXPECT_EQ(status.message(), "bigram.braid was compiled for a mesh of 2 ranks (dp=2, ep=2), but 1 were asked for: run "
                              "it with --ranks=2, or as "
                              "processes with mpirun -n 2");
}

TEST(TrainRanks, AFailedRankEndsTheOthers) {
  BigramOptions two;
  two.dp = 2;
  RankOptions options;
  options.ranks = 2;
  options.threads = 1;
  Status status = runRanks(parseProgram(bigramProgram(two)), options, [](Rank &rank) -> Status {
    if (rank.index() == 1)
      return Status::error("rank 1 has no paper");
    return rank.barrier("test");
  });
  EXPECT_NE(status.message().find("rank 1 has no paper"), std::string::npos) << status.message();
}

// A thread cannot be ended; the process can.
TEST(TrainRanks, AThreadThatHangsIsNotWaitedFor) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  BigramOptions two;
  two.dp = 2;
  RankOptions options;
  options.ranks = 2;
  options.threads = 1;
  options.timeout = std::chrono::milliseconds(200);
  options.stuck = [](const Status &status) {
    fmt::print(stderr, "{}\n", status.message());
    std::_Exit(3);
  };
  auto hang = [](Rank &rank) -> Status {
    while (rank.index() == 1)
      std::this_thread::sleep_for(std::chrono::seconds(1));
    return rank.barrier("the end");
  };
  EXPECT_EXIT((void)runRanks(parseProgram(bigramProgram(two)), options, hang).ok(), testing::ExitedWithCode(3),
              "all_reduce 'the end' on axis world: rank 0 waited 200 ms for peer rank 1, which did not come");
}

} // namespace
} // namespace braid::runtime::test
