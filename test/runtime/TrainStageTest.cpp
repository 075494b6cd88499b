// Training in stages of a pipeline, and of micro-batches.
#include "test/runtime/ToolFixture.h"
#include "test/runtime/conformance/StagedProgram.h"

#include "runtime/generate/Generator.h"
#include "runtime/io/ChromeTrace.h"
#include "runtime/train/Checkpoint.h"
#include "runtime/train/TrainStep.h"
#include "runtime/train/Trainer.h"

#include <nlohmann/json.hpp>

namespace braid::runtime::test {
namespace {

// Documents of all lengths up to 37 bytes: rows have different numbers of labels.
Corpus corpusOfDocuments() {
  std::string text = sampleText(2000);
  Corpus corpus;
  for (size_t at = 0, length = 1; at < text.size(); at += length, length = length % 37 + 1) {
    std::string_view part = std::string_view(text).substr(at, length);
    corpus.append(std::span(reinterpret_cast<const uint8_t *>(part.data()), part.size()));
    corpus.endDocument();
  }
  return corpus;
}

TrainResult trainOn(const BigramOptions &program, const TrainOptions &options) {
  TrainResult first;
  onRanks(parseProgram(bigramProgram(program)), [&](Rank &rank) -> Status {
    EXPECT_EQ(rank.program().ownStage(), static_cast<uint32_t>(rank.index()) / program.dp);
    BRAID_ASSIGN(TrainResult result, train(rank, options, corpusOfDocuments(), corpusOfDocuments()));
    if (rank.isFirst())
      first = std::move(result);
    return Status::success();
  });
  return first;
}

TEST(TrainStages, TrainEvaluateAndGoOnWithOtherNumbersOfStages) {
  TemporaryDirectory directory;
  TrainOptions options;
  options.steps = 12;
  options.saveEvery = 6;
  options.keep = 9;
  BigramOptions plain, staged;
  plain.dp = staged.dp = 2;
  staged.pp = 2;
  auto in = [&](const char *name) {
    options.checkpointDir = directory / name;
    return options;
  };
  TrainResult whole = trainOn(plain, in("plain")), stages = trainOn(staged, in("staged"));
  ASSERT_TRUE(whole.heldout && stages.heldout);
  EXPECT_EQ(whole.heldout->nats, stages.heldout->nats);
  // Begun with stages and gone on with without, and the other way round.
  auto goOn = [&](const char *from, const char *to, const BigramOptions &program) {
    std::filesystem::create_directories(directory / to);
    std::filesystem::copy(directory / from + "/step-00000006", directory / to + "/step-00000006",
                          std::filesystem::copy_options::recursive);
    writeText(directory / to + "/latest", "step-00000006\n");
    options.resume = true;
    TrainResult result = trainOn(program, in(to));
    EXPECT_EQ(result.firstStep, 6u);
    return result.heldout ? result.heldout->nats : 0;
  };
  EXPECT_EQ(goOn("staged", "onto-plain", plain), whole.heldout->nats);
  EXPECT_EQ(goOn("plain", "onto-staged", staged), whole.heldout->nats);
  // Ranks of stage 1 have nothing that stage 0 has not: they wrote no files.
  std::string last = directory / "onto-staged/step-00000012";
  EXPECT_EQ(readText(last + "/model-00001-of-00004.safetensors"),
            readText(directory / "plain/step-00000012/model-00001-of-00002.safetensors"));
  EXPECT_FALSE(std::filesystem::exists(last + "/model-00003-of-00004.safetensors"));
  EXPECT_FALSE(std::filesystem::exists(last + "/optimizer-00004-of-00004.safetensors"));
}

// It comes to the other stages early in their lists, and is named where it was made.
TEST(TrainStages, ANaNIsNamedByTheStageThatMadeIt) {
  std::vector<uint8_t> broken(100, 0xff); // whose loss is not a number
  Corpus corpus(broken);
  BigramOptions staged;
  staged.pp = 3;
  onRanks(parseProgram(bigramProgram(staged)), [&](Rank &rank) -> Status {
    TrainOptions options;
    options.steps = 2;
    std::string message = train(rank, options, corpus, Corpus({})).message();
    for (const char *part :
         {"training diverged at step 1", "in 'sums', entry 'train_step' command 3, kernel bigram_loss (rank 0)"})
      EXPECT_NE(message.find(part), std::string::npos) << part << "\nis not in\n" << message;
    return Status::success();
  });
}

TEST(TrainStages, EveryRankIsTraced) {
  TemporaryDirectory directory;
  BigramOptions staged;
  staged.pp = 2;
  auto recorder = ChromeTrace::create(directory / "t.json", *parseProgram(bigramProgram(staged)));
  ASSERT_TRUE(recorder) << recorder.message();
  TrainOptions options;
  options.steps = 2;
  options.trace = recorder->get();
  trainOn(staged, options);
  ASSERT_TRUE((*recorder)->write().ok());
  EXPECT_NE(readText(directory / "t.json").find("rank 1"), std::string::npos);
}

TEST(TrainStages, GenerationNeedsAProgramWithout) {
  BigramOptions staged;
  staged.pp = 2;
  onRanks(parseProgram(bigramProgram(staged)), [&](Rank &rank) -> Status {
    EXPECT_EQ(Generator::bind(rank.session()).status().message(),
              "bigram.braid: was compiled for pp=2, and texts are generated without a pipeline; valid: the same model "
              "compiled with "
              "pp=1, which reads the same checkpoints");
    return Status::success();
  });
}

TEST(TrainStep, TellsWhatPartOfTheLabelsIsInAMicroBatch) {
  Corpus corpus = corpusOfDocuments();
  for (auto [pp, dp, micro] : {std::tuple(1u, 1u, 1), {1u, 2u, 2}, {2u, 2u, 4}}) {
    BigramOptions options;
    options.pp = pp;
    options.dp = dp;
    options.batch = 4;
    options.microBatches = micro;
    onRanks(parseProgram(bigramProgram(options)), [&, dp = dp, micro = micro](Rank &rank) -> Status {
      TrainStep step(rank);
      BRAID_TRY(step.bind());
      BRAID_ASSIGN(PackedRows rows, PackedRows::pack(corpus, step.shape().seqLen, 1));
      SampleOrder order(rows.size(), 3);
      step.setData(corpus, rows, order, 3, 1);
      BRAID_TRY(initialize(rank, 3));
      constexpr uint64_t position = 8;
      BRAID_TRY(step.run(1, position, 0.1, true));
      double labels = 0;
      std::vector<double> parts(static_cast<size_t>(micro));
      for (uint64_t row = 0; row < 4 * dp; ++row) {
        auto here = static_cast<double>(rows.labels(order.row(position + row)));
        labels += here;
        parts[row % 4 * static_cast<uint64_t>(micro) / 4] += here;
      }
      EXPECT_EQ(values<float>(rank.session(), "loss_scale")[0], static_cast<float>(1 / labels));
      auto shares = values<float>(rank.session(), "aux_scale");
      bool differ = micro == 1;
      for (size_t i = 0; i < parts.size(); ++i) {
        EXPECT_NEAR(shares[i], parts[i] / labels, 1e-6) << i << " of " << micro;
        differ |= parts[i] != parts[0];
      }
      EXPECT_TRUE(differ) << "the data tells no shares apart";
      return Status::success();
    });
  }
}

TEST(TrainStep, RefusesMicroBatchesOfOtherNumbersOfRows) {
  BigramOptions options;
  options.batch = 4;
  options.microBatches = 3;
  onRanks(parseProgram(bigramProgram(options)), [](Rank &rank) -> Status {
    EXPECT_EQ(TrainStep(rank).bind().message(), "entry @train_step: 'aux_scale' is of 3 micro-batches, but a rank has "
                                                "4 rows of a batch; valid: micro-batches of "
                                                "equally many rows");
    return Status::success();
  });
}

class StageTool : public TrainTool {};

TEST_F(StageTool, InfoSaysWhatEachStageHas) {
  BigramOptions staged;
  staged.pp = staged.dp = 2;
  write("two.braid", staged);
  Outcome json = run({"info", "two.braid", "--json"});
  ASSERT_EQ(json.code, 0) << json.err;
  auto info = nlohmann::json::parse(json.out);
  EXPECT_EQ(info["parameters"], 256 * 256 + 2 * 256) << "each once";
  ASSERT_EQ(info["stages"].size(), 2u);
  EXPECT_EQ(info["stages"][1]["ranks"], (std::vector<int>{2, 3}));
  EXPECT_EQ(info["stages"][1]["bytes_per_rank"], info["memory"]["bytes_per_rank"]);
  EXPECT_GT(info["stages"][0]["bytes_to"]["train"], 0);
  for (const char *list : {"entries", "tensors"}) {
    EXPECT_EQ(info[list].front()["stage"], 0);
    EXPECT_EQ(info[list].back()["stage"], 1);
  }
  EXPECT_EQ(info["memory"]["arenas"].size(), 10u);
  EXPECT_EQ(info["memory"]["arenas"][5]["stage"], 1);
  EXPECT_GT(info["memory"]["arenas"][5]["bytes"], 0);
  Outcome text = run({"info", "two.braid", "--all"});
  ASSERT_EQ(text.code, 0) << text.err;
  for (const char *part :
       {"mesh         4 ranks; pp=2 dp=2", "stage 0      ranks 0, 1; layers 1, 4\nmemory",
        "stage 1      ranks 2, 3; layers 1, 4\nmemory", "stage 1      ranks 2, 3; layers 1, 4\nfunctions",
        "1 x @train_step of stage 0, ", "1 x @train_step of stage 1"})
    EXPECT_NE(text.out.find(part), std::string::npos) << part << "\nis not in\n" << text.out;
}

// A layer is of one stage: its ranks alone read and write it.
TEST_F(StageTool, CallSetsAndWritesWhatAStageHas) {
  std::vector<std::byte> bytes = Staged(2, 1).bytes();
  writeText(directory / "staged.braid", {reinterpret_cast<const char *>(bytes.data()), bytes.size()});
  auto array = [&](const char *name, std::vector<float> numbers) {
    ASSERT_TRUE(
        writeNpy(directory / name, DType::f32, std::vector<int64_t>{4}, std::as_bytes(std::span(numbers))).ok());
  };
  array("x.npy", {1, 2, 3, 4});
  array("w.npy", {10, 20, 30, 40});
  array("y1.npy", {11, 22, 33, 44}); // with nothing of stage 0, and layer 2 of stage 1
  Outcome called = run({"call", "staged.braid", "@main", "--ranks=2", "--threads=1", "--input", "x=x.npy", "--input",
                        "layers.2.w=w.npy", "--output", "y=y-{rank}.npy", "--output", "layers.2.w=w-{rank}.npy"});
  ASSERT_EQ(called.code, 0) << called.err;
  EXPECT_EQ(readText(directory / "y-0.npy"), readText(directory / "y1.npy")) << "what came back";
  EXPECT_EQ(readText(directory / "w-1.npy"), readText(directory / "w.npy"));
  EXPECT_FALSE(std::filesystem::exists(directory / "w-0.npy"));
  expectError({"call", "staged.braid", "@main", "--ranks=2"}, "input 'x' (f32 [4]) of @main is not given");
}

TEST_F(StageTool, CallsAndGeneratesWithStages) {
  BigramOptions staged;
  staged.pp = 2;
  write("two.braid", staged);
  Outcome called = run(
      {"call", "two.braid", "@init", "--seed=3", "--ranks=2", "--threads=1", "--output", "layers.4.bias=b{rank}.npy"});
  ASSERT_EQ(called.code, 0) << called.err;
  EXPECT_EQ(readText(directory / "b0.npy"), readText(directory / "b1.npy"));
  expectError({"call", "two.braid", "@init", "--seed=3", "--ranks=2", "--output", "layers.5.bias=b{rank}.npy"},
              "there is no tensor 'layers.5.bias'; 'layers.{}.bias' has layers 1, 4");
  expectError({"generate", "two.braid", "--checkpoint=c", "--prompt=a", "--max-tokens=1"}, "was compiled for pp=2");
}

} // namespace
} // namespace braid::runtime::test
