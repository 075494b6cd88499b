#include "test/runtime/TrainFixture.h"

#include "runtime/generate/Generator.h"
#include "runtime/generate/Sampler.h"

#include <cmath>
#include <map>

namespace braid::runtime::test {
namespace {

// ---- Sampler --------------------------------------------------------------------------------------------------------

int32_t sampleOne(SamplerOptions options, std::vector<float> logits, uint64_t position = 0) {
  auto sampler = Sampler::create(options, logits.size(), logits.size());
  EXPECT_TRUE(sampler) << sampler.message();
  auto token = sampler->sample(logits, position);
  EXPECT_TRUE(token) << token.message();
  return token ? *token : -1;
}

std::map<int32_t, int> histogram(SamplerOptions options, const std::vector<float> &logits, int draws) {
  auto sampler = Sampler::create(options, logits.size(), logits.size());
  std::map<int32_t, int> counts;
  for (int i = 0; i < draws; ++i)
    ++counts[*sampler->sample(logits, static_cast<uint64_t>(i))];
  return counts;
}

TEST(GenerateSampler, GreedyTakesTheFirstOfTheLargest) {
  EXPECT_EQ(sampleOne({}, {0, 3, 1, 3}), 1);
  EXPECT_EQ(sampleOne({}, {-INFINITY, -5}), 1);
}

TEST(GenerateSampler, DrawsWithTheRightProbabilities) {
  SamplerOptions options;
  options.temperature = 1;
  std::vector<float> logits = {std::log(0.5f), std::log(0.3f), std::log(0.2f)};
  auto counts = histogram(options, logits, 20000);
  EXPECT_NEAR(counts[0], 10000, 300);
  EXPECT_NEAR(counts[1], 6000, 300);
  EXPECT_NEAR(counts[2], 4000, 300);
  options.temperature = 0.5; // squares: 25 : 9 : 4
  counts = histogram(options, logits, 20000);
  EXPECT_NEAR(counts[0], 20000 * 25 / 38, 300);
  EXPECT_NEAR(counts[2], 20000 * 4 / 38, 300);
}

TEST(GenerateSampler, CutsTheTail) {
  std::vector<float> logits = {std::log(0.2f), std::log(0.5f), std::log(0.3f), -INFINITY};
  SamplerOptions options;
  options.temperature = 1;
  options.topK = 2;
  auto counts = histogram(options, logits, 8000);
  EXPECT_EQ(counts.count(0), 0u);
  EXPECT_NEAR(counts[1], 5000, 200);
  options.topK = 0;
  options.topP = 0.7; // 0.5 is not enough, 0.8 is
  counts = histogram(options, logits, 8000);
  EXPECT_EQ(counts.count(0), 0u);
  EXPECT_NEAR(counts[1], 5000, 200);
  options.topP = 0.5;
  EXPECT_EQ(histogram(options, logits, 1000)[1], 1000);
  options.topP = 1e-9;
  EXPECT_EQ(histogram(options, logits, 1000)[1], 1000);
  options.topP = 1;
  options.topK = 100; // more than there are
  EXPECT_EQ(histogram(options, logits, 8000).count(3), 0u);
}

TEST(GenerateSampler, DependsOnSeedAndPositionOnly) {
  SamplerOptions options;
  options.temperature = 1;
  std::vector<float> logits(50);
  auto draw = [&](uint64_t seed) {
    options.seed = seed;
    std::vector<int32_t> tokens;
    for (uint64_t position = 0; position < 20; ++position)
      tokens.push_back(sampleOne(options, logits, position));
    return tokens;
  };
  EXPECT_EQ(draw(1), draw(1));
  EXPECT_NE(draw(1), draw(2));
}

TEST(GenerateSampler, RejectsNonsense) {
  auto message = [](SamplerOptions options) { return Sampler::create(options, 4, 4).message(); };
  EXPECT_EQ(message({.temperature = -1}), "temperature: -1; valid: 0 (greedy) to 1000000");
  EXPECT_EQ(message({.temperature = NAN}), "temperature: nan; valid: 0 (greedy) to 1000000");
  EXPECT_EQ(message({.topK = -2}), "top-k: -2; valid: 0 (all tokens) or above");
  EXPECT_EQ(message({.topP = 0}), "top-p: 0; valid: above 0, up to 1");
  auto sampler = Sampler::create({}, 3, 3);
  EXPECT_EQ(sampler->sample(std::vector<float>{0, NAN, 0}, 7).message(),
            "the logit of token 1 at generated position 7 is nan");
  auto limited = Sampler::create({}, 3, 2); // token 2 is padding of the vocabulary
  EXPECT_EQ(*limited->sample(std::vector<float>{0, 1, NAN}, 0), 1);
}

// ---- Generator ------------------------------------------------------------------------------------------------------

// Runs `body` with a generator over the bigram network with random parameters.
void withGenerator(const std::function<void(Generator &)> &body,
                   std::vector<std::pair<std::string, std::string>> metadata = {}) {
  BigramOptions options;
  options.metadata = std::move(metadata);
  onRanks(parseProgram(bigramProgram(options)), [&](Rank &rank) -> Status {
    BRAID_TRY(initialize(rank, 3));
    BRAID_ASSIGN(Generator generator, Generator::bind(rank.session()));
    body(generator);
    return Status::success();
  });
}

std::vector<int32_t> someTokens(size_t count) {
  std::vector<int32_t> tokens;
  for (size_t i = 0; i < count; ++i)
    tokens.push_back(static_cast<int32_t>(i * 37 % 256));
  return tokens;
}

TEST(Generate, EverySplitOfAPromptGivesTheSameLogits) {
  withGenerator([](Generator &generator) {
    EXPECT_EQ(generator.buckets(), (std::vector<int64_t>{8, 4, 1}));
    for (size_t length : {1, 3, 4, 7, 8, 13, 31}) {
      std::vector<int32_t> tokens = someTokens(length);
      generator.reset();
      std::vector<float> whole, single;
      auto logits = generator.feed(tokens);
      ASSERT_TRUE(logits) << logits.message();
      whole.assign(logits->begin(), logits->end());
      EXPECT_EQ(generator.length(), static_cast<int64_t>(length));
      generator.reset();
      for (int32_t token : tokens) {
        auto step = generator.feed(std::span(&token, 1));
        ASSERT_TRUE(step);
        single.assign(step->begin(), step->end());
      }
      // The fixture's logits carry a hash of the whole history, and are NaN when a position was wrong.
      EXPECT_FALSE(std::isnan(whole[0]));
      EXPECT_EQ(whole, single) << length;
    }
  });
}

TEST(Generate, ContextIsBounded) {
  withGenerator(
      [](Generator &generator) {
        EXPECT_EQ(generator.contextLength(), 12);
        ASSERT_TRUE(generator.feed(someTokens(9)));
        auto logits = generator.feed(someTokens(4));
        ASSERT_FALSE(logits);
        EXPECT_EQ(logits.message(),
                  "the sequence would have 13 tokens, but the program was compiled for a context of 12");
        EXPECT_TRUE(generator.feed(someTokens(3)));
        generator.reset();
        auto text = generate(generator, byteTokens("prompt"), 8, {}, 256, [](auto) { return true; });
        ASSERT_FALSE(text);
        EXPECT_EQ(text.message(),
                  "a prompt of 6 tokens and 8 more need a context of 13, but the program was compiled for 12");
        EXPECT_EQ(generate(generator, byteTokens("prompt"), 7, {}, 256, [](auto) { return true; })->tokens.size(), 7u);
      },
      {{"context_len", "12"}});
}

TEST(Generate, TextIsReproducible) {
  withGenerator([](Generator &generator) {
    auto text = [&](double temperature, uint64_t seed) {
      generator.reset();
      std::vector<int32_t> streamed;
      SamplerOptions options{.temperature = temperature, .seed = seed};
      auto result = generate(generator, byteTokens("braid"), 20, options, 256, [&](int32_t token) {
        streamed.push_back(token);
        return true;
      });
      EXPECT_TRUE(result) << result.message();
      EXPECT_EQ(result->tokens, streamed);
      EXPECT_EQ(streamed.size(), 20u);
      return streamed;
    };
    EXPECT_EQ(text(0, 1), text(0, 2));
    EXPECT_EQ(text(1, 1), text(1, 1));
    EXPECT_NE(text(1, 1), text(1, 2));
    generator.reset();
    auto tokens = [&](std::vector<int32_t> prompt, bool more) {
      return generate(generator, prompt, 9, {}, 256, [=](int32_t) { return more; });
    };
    EXPECT_EQ(tokens({}, true).message(),
              "the prompt is empty: the model continues a text and needs at least one token of it");
    EXPECT_EQ(tokens({1, 256}, true).message(), "token 1 of the prompt is 256, but the vocabulary has 0 to 255");
    EXPECT_EQ(tokens({97}, false)->tokens.size(), 1u); // the reader left
  });
}

TEST(Generate, NeedsADecodeEntry) {
  TestProgram empty;
  empty.arena("io", 64);
  empty.entry("main", {});
  auto session = empty.session();
  EXPECT_EQ(Generator::bind(*session).message(), "test.braid: no entry @decode_1; it has: main");
}

} // namespace
} // namespace braid::runtime::test
