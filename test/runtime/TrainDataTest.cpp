#include "test/runtime/TrainFixture.h"

#include "runtime/data/Corpus.h"
#include "runtime/train/Bigram.h"
#include "runtime/train/Progress.h"
#include "runtime/train/Random.h"
#include "runtime/train/Schedule.h"

#include <cmath>
#include <set>

namespace braid::runtime::test {
namespace {

TEST(TrainRandom, PhiloxGivesThePublishedNumbers) {
  using Block = std::array<uint32_t, 4>; // known answers of the Random123 distribution
  EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}), (Block{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  uint32_t f = 0xffffffff;
  EXPECT_EQ(philox({f, f, f, f}, {f, f}), (Block{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
}

TEST(TrainRandom, PermutesEverySize) {
  for (uint64_t size : {1, 2, 3, 5, 16, 17, 100, 1000})
    for (uint32_t epoch : {0, 1, 7}) {
      std::set<uint64_t> seen;
      for (uint64_t i = 0; i < size; ++i) {
        uint64_t image = permute(i, size, 42, epoch);
        EXPECT_LT(image, size);
        seen.insert(image);
      }
      EXPECT_EQ(seen.size(), size);
    }
}

TEST(TrainRandom, PermutationsDependOnSeedAndEpochAndLookRandom) {
  auto order = [](uint64_t seed, uint32_t epoch) {
    std::vector<uint64_t> images;
    for (uint64_t i = 0; i < 1000; ++i)
      images.push_back(permute(i, 1000, seed, epoch));
    return images;
  };
  EXPECT_EQ(order(1, 0), order(1, 0));
  EXPECT_NE(order(1, 0), order(2, 0));
  EXPECT_NE(order(1, 0), order(1, 1));
  double correlation = 0; // of position and image: about N(0, 1/1000)
  for (uint64_t i = 0; i < 1000; ++i)
    correlation += (static_cast<double>(i) - 499.5) * (static_cast<double>(order(1, 0)[i]) - 499.5);
  EXPECT_LT(std::abs(correlation / (1000 * 83333.25)), 0.15);
}

TEST(TrainSchedule, WarmsUpAndFollowsTheCosine) {
  LearningRateSchedule schedule{1.0, 0.1, 10, 110};
  EXPECT_DOUBLE_EQ(schedule.at(1), 0.1);
  EXPECT_DOUBLE_EQ(schedule.at(5), 0.5);
  EXPECT_DOUBLE_EQ(schedule.at(10), 1.0);
  EXPECT_DOUBLE_EQ(schedule.at(60), 0.55);
  EXPECT_DOUBLE_EQ(schedule.at(110), 0.1);
  EXPECT_DOUBLE_EQ(schedule.at(500), 0.1);
  EXPECT_DOUBLE_EQ((LearningRateSchedule{1.0, 0.1, 10, 5}.at(5)), 0.5); // a run shorter than its warm-up
  EXPECT_DOUBLE_EQ((LearningRateSchedule{1.0, 0.1, 5, 5}.at(5)), 1.0);
}

TEST(TrainBigram, AgreesWithCountingByHand) {
  std::vector<uint8_t> text = {'a', 'b', 'a', 'b', 'a', 'c'}; // ab ab ba ba ac
  Corpus training(text);
  auto evaluate = [&](std::vector<uint8_t> heldout) {
    return *BigramModel::evaluate(training, Corpus(std::move(heldout)));
  };
  BigramModel::Result result = evaluate({'a', 'b'});
  // n(a, b) = 2 of n(a) = 3: add-one gives 3 / 259; interpolation with the largest weight is best here.
  double interpolated = 0.999 * 2 / 3 + 0.001 * 3 / 262;
  EXPECT_NEAR(result.nats, -std::log(interpolated), 1e-12);
  EXPECT_EQ(result.smoothing, "interpolated (0.999)");
  EXPECT_EQ(result.tokens, 1u);
  // A pair that was never seen, after a byte that was: add-one wins.
  result = evaluate({'a', 'z'});
  EXPECT_NEAR(result.nats, std::log(259.0), 1e-12);
  EXPECT_EQ(result.smoothing, "add-one");
  // After a byte that was never seen there is only the unigram.
  EXPECT_TRUE(std::isfinite(evaluate({'x', 'y'}).nats));
}

TEST(TrainBigram, DoesNotCountAcrossDocuments) {
  Corpus corpus(1000, /*text=*/false);
  for (std::vector<uint32_t> document : {std::vector<uint32_t>{900, 5}, {900, 5, 5}}) {
    corpus.append(std::span<const uint32_t>(document));
    corpus.endDocument();
  }
  BigramModel::Result result = *BigramModel::evaluate(corpus, corpus);
  EXPECT_EQ(result.tokens, 3u);
  // n(900, 5) = 2 of 2, n(5, 5) = 1 of 1, and 5 is four of 5 tokens: nothing but 5 ever follows.
  EXPECT_NEAR(result.nats, -std::log(0.999 + 0.001 * 4 / 1005), 1e-12);
}

TEST(TrainProgress, FormatsQuantities) {
  EXPECT_EQ(formatDuration(41.6), "42s");
  EXPECT_EQ(formatDuration(200), "3m 20s");
  EXPECT_EQ(formatDuration(7500), "2h 05m");
  EXPECT_EQ(formatDuration(INFINITY), "?");
  EXPECT_EQ(formatQuantity(950), "950");
  EXPECT_EQ(formatQuantity(999.7), "1.00k");
  EXPECT_EQ(formatQuantity(12345), "12.3k");
  EXPECT_EQ(formatQuantity(4.56e6), "4.56M");
  EXPECT_EQ(formatQuantity(123e6), "123M");
}

TEST(TrainProgress, WritesLinesToAFileAndEndsWithTheLastStep) {
  TemporaryDirectory directory;
  std::string path = directory / "log";
  std::FILE *file = std::fopen(path.c_str(), "w");
  {
    Progress progress(file, 0, 3);
    for (uint64_t step = 1; step <= 3; ++step)
      progress.update({step, 2.5, 1, 1e-3, 100, static_cast<double>(step)}); // 100 tokens per second
  }
  std::fclose(file);
  EXPECT_EQ(readText(path), "step 1/3  loss 2.5000  grad 1  lr 0.001  100 tokens/s  ETA 2s\n"
                            "step 3/3  loss 2.5000  grad 1  lr 0.001  100 tokens/s  ETA 0s\n");
}

} // namespace
} // namespace braid::runtime::test
