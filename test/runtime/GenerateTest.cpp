#include "test/runtime/TrainFixture.h"

#include "runtime/Trace.h"
#include "runtime/generate/Generator.h"
#include "runtime/generate/Sampler.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <random>

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

TEST(GenerateSampler, LongListsAreLikeShortOnes) {
  // Blocks and lanes of what looks for the largest, and lists that are put in order piece by piece.
  std::vector<float> logits(3000, -4);
  logits[2049] = logits[2990] = 1;
  EXPECT_EQ(sampleOne({}, logits), 2049);
  logits[2999] = 2;
  EXPECT_EQ(sampleOne({}, logits), 2999);
  logits[0] = 3;
  EXPECT_EQ(sampleOne({}, logits), 0);
  EXPECT_EQ(sampleOne({}, std::vector<float>(3000, -INFINITY)), 0);
  for (size_t at : {0, 15, 16, 2991, 2999})
    for (float wrong : {NAN, INFINITY}) {
      std::vector<float> broken = logits;
      broken[at] = wrong;
      auto sampler = Sampler::create({}, broken.size(), broken.size());
      EXPECT_EQ(sampler->sample(broken, 1).message(),
                fmt::format("the logit of token {} at generated position 1 is {}", at, wrong));
    }
  // Of 3000 equally likely ones half are kept, the lower ones.
  SamplerOptions options;
  options.temperature = 1;
  options.topP = 0.5;
  std::vector<float> equal(3000);
  auto counts = histogram(options, equal, 4000);
  EXPECT_GT(counts.rbegin()->first, 1480);
  EXPECT_LT(counts.rbegin()->first, 1500);
  EXPECT_GT(counts.size(), 1300u);
  options.topP = 1;
  EXPECT_GT(histogram(options, equal, 4000).rbegin()->first, 2900);
  options.topK = 700;
  counts = histogram(options, equal, 4000);
  EXPECT_GT(counts.rbegin()->first, 680);
  EXPECT_LT(counts.rbegin()->first, 700);
}

TEST(GenerateSampler, DrawsFromWhatASortWouldKeep) {
  constexpr int draws = 100;
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  for (size_t size : {1, 255, 256, 257, 5000}) {
    std::vector<float> logits(size);
    for (float &logit : logits)
      logit = random() % 8 ? normal(random) : 0.5f; // many are equal
    if (size > 100)
      logits[7] = logits[size - 1] = -INFINITY;
    std::vector<size_t> order(size);
    std::iota(order.begin(), order.end(), size_t(0));
    std::ranges::sort(order,
                      [&](size_t a, size_t b) { return logits[a] != logits[b] ? logits[a] > logits[b] : a < b; });
    for (double temperature : {1e-40, 0.05, 0.7, 1.0, 20.0, 1e6})
      for (int64_t topK : {0, 1, 7, 300, 4999})
        for (double topP : {1e-9, 0.3, 0.9, 0.99, 1.0}) {
          SCOPED_TRACE(fmt::format("{} tokens, temperature {}, top-k {}, top-p {}", size, temperature, topK, topP));
          // The kept ones in order, and what they weigh.
          std::vector<double> weights;
          for (size_t i = 0; i < (topK ? std::min<size_t>(size, static_cast<size_t>(topK)) : size); ++i)
            weights.push_back(std::exp((double(logits[order[i]]) - logits[order[0]]) / temperature));
          double all = std::accumulate(weights.begin(), weights.end(), 0.0), kept = 0;
          size_t count = 0;
          while (count < weights.size() && kept < topP * all * (1 - 1e-6))
            kept += weights[count++];
          auto counts =
              histogram({.temperature = temperature, .topK = topK, .topP = topP, .seed = size}, logits, draws);
          double likeliest = 0, expected = 0; // draws of the first third
          for (size_t i = 0; i < count; ++i) {
            likeliest += 3 * i < count ? counts[static_cast<int32_t>(order[i])] : 0;
            expected += 3 * i < count ? draws * weights[i] / kept : 0;
            if (weights[i] == 0)
              EXPECT_EQ(counts[static_cast<int32_t>(order[i])], 0) << order[i];
          }
          double deviation = std::sqrt(expected * (1 - expected / draws));
          EXPECT_NEAR(likeliest, expected, 5 * deviation + 0.01);
          // Where a sum of single precision falls on the other side of the bound there is one more.
          for (size_t i = count + (topP < 1); i < size; ++i)
            EXPECT_EQ(counts[static_cast<int32_t>(order[i])], 0) << order[i];
        }
  }
}

TEST(GenerateSampler, LeavesOutWhatIsFarLessLikely) {
  std::vector<float> logits = {std::log(0.1f), std::log(0.5f), std::log(0.24f), std::log(0.16f)};
  SamplerOptions options{.temperature = 1, .minP = 0.4}; // of 0.5: 0.2
  auto counts = histogram(options, logits, 8000);
  EXPECT_EQ(counts.count(0) + counts.count(3), 0u);
  EXPECT_NEAR(counts[1], 8000 * 50 / 74, 200);
  options.temperature = 2; // by roots: of 0.707 0.283, which 0.4 and 0.316 are not below
  EXPECT_EQ(histogram(options, logits, 4000).size(), 4u);
  options.minP = 0.5; // 0.354
  EXPECT_EQ(histogram(options, logits, 4000).size(), 3u);
  options.minP = 1;
  EXPECT_EQ(histogram(options, logits, 1000)[1], 1000);
  options = {
      .temperature = 1, .topK = 3, .topP = 0.6, .minP = 0.3}; // before both: of 0.5, 0.24 and 0.16 what reaches 0.54
  counts = histogram(options, logits, 4000);
  EXPECT_EQ(counts.size(), 2u);
  // Most blocks of tokens have none that is left, and fewer are left than are asked for.
  std::vector<float> many(5000, -20);
  many[4321] = 3, many[17] = 2.5;
  for (int64_t topK : {0, 10, 4000}) {
    counts = histogram({.temperature = 1, .topK = topK, .minP = 0.1}, many, 2000);
    EXPECT_EQ(counts.size(), 2u) << topK;
    EXPECT_GT(counts[4321], counts[17]);
  }
}

TEST(GenerateSampler, PenaltiesCountWhatWasReadAndDrawn) {
  auto greedy = [](const PenaltyOptions &penalties, std::vector<int32_t> prompt, std::vector<float> logits,
                   size_t count) {
    auto sampler = Sampler::create({.penalties = penalties}, logits.size(), logits.size());
    EXPECT_TRUE(sampler) << sampler.message();
    sampler->read(prompt);
    std::vector<int32_t> tokens;
    for (size_t i = 0; i < count; ++i)
      tokens.push_back(*sampler->sample(logits, i));
    return tokens;
  };
  using Tokens = std::vector<int32_t>;
  std::vector<float> logits = {1, 4, 3.5, -1};
  // Once for all that was drawn, not for the prompt.
  EXPECT_EQ(greedy({.presence = 1}, {2}, logits, 4), (Tokens{1, 2, 1, 1}));
  // More each time: 4, 3.5, 3, 2.5, 2, 1.5 of the second and of the third what is left.
  EXPECT_EQ(greedy({.frequency = 1}, {2, 2}, logits, 6), (Tokens{1, 2, 1, 2, 1, 2}));
  EXPECT_EQ(greedy({.presence = -1}, {}, logits, 3), (Tokens{1, 1, 1}));
  // The prompt's too, once: 4 / 2, and below 0 times 2.
  EXPECT_EQ(greedy({.repetition = 2}, {1, 1}, logits, 3), (Tokens{2, 1, 1}));
  EXPECT_EQ(greedy({.repetition = 2}, {1, 2, 0}, {1, 1, 1, 0.6f}, 1), Tokens{3});
  EXPECT_EQ(greedy({.repetition = 2}, {1}, {-3, -2, -8, -5}, 1), Tokens{0});
  EXPECT_EQ(greedy({.repetition = 0.5}, {0}, {1.9f, 3.5f, 0, 0}, 1), Tokens{0});
  // Numbers of tokens, first and last; what cannot follow does not.
  EXPECT_EQ(greedy({.bias = {{1, -100}, {3, 5}}}, {}, logits, 2), (Tokens{3, 3}));
  EXPECT_EQ(greedy({.bias = {{0, 100}}}, {}, {-INFINITY, -5, -6, -7}, 1), Tokens{1});
  // In their order: (4 + 2) / 2 - 1 - 0.5 once it was drawn, and of the other 2.4 / 2 - 1 - 0.5.
  EXPECT_EQ(greedy({.repetition = 2, .presence = 1, .frequency = 0.5, .bias = {{1, 2}}}, {}, {2.4f, 4, 0, 0}, 3),
            (Tokens{1, 0, 1}));
  // Draws are of what they make of probabilities, the logits that are given stay as they are.
  SamplerOptions options{.temperature = 1, .penalties = {.bias = {{0, std::log(3.0)}}}};
  auto counts = histogram(options, {0, 0}, 8000);
  EXPECT_NEAR(counts[0], 6000, 200);
  // A prompt of tokens beyond what can be drawn.
  auto limited = Sampler::create({.penalties = {.repetition = 2}}, 4, 2);
  limited->read(std::vector<int32_t>{0, 3});
  EXPECT_EQ(*limited->sample(std::vector<float>{1, 0.7f, 9, 9}, 0), 1);
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
  EXPECT_EQ(message({.minP = 1.5}), "min-p: 1.5; valid: 0 (all tokens) to 1");
  auto ofPenalties = [&](PenaltyOptions penalties) { return message({.penalties = std::move(penalties)}); };
  EXPECT_EQ(ofPenalties({.repetition = 0}), "repetition penalty: 0; valid: 0.001 to 1000 (1: none)");
  EXPECT_EQ(ofPenalties({.presence = 3}), "presence penalty: 3; valid: -2 to 2 (0: none)");
  EXPECT_EQ(ofPenalties({.frequency = NAN}), "frequency penalty: nan; valid: -2 to 2 (0: none)");
  EXPECT_EQ(ofPenalties({.bias = {{4, 1}}}), "logit bias: of token 4; valid: 0 to 3");
  EXPECT_EQ(ofPenalties({.bias = {{1, 1}, {1, 2}}}), "logit bias: of token 1 twice; valid: once");
  EXPECT_EQ(ofPenalties({.bias = {{1, -101}}}), "logit bias: -101 of token 1; valid: -100 to 100");
  auto sampler = Sampler::create({}, 3, 3);
  EXPECT_EQ(sampler->sample(std::vector<float>{0, NAN, 0}, 7).message(),
            "the logit of token 1 at generated position 7 is nan");
  auto limited = Sampler::create({}, 3, 2); // token 2 is padding of the vocabulary
  EXPECT_EQ(*limited->sample(std::vector<float>{0, 1, NAN}, 0), 1);
}

// ---- Generator ------------------------------------------------------------------------------------------------------

// Runs `body` with a generator over the bigram network with random parameters.
void withGenerator(const std::function<void(Generator &, Session &)> &body,
                   std::vector<std::pair<std::string, std::string>> metadata = {}, int64_t sequences = 1) {
  BigramOptions options;
  options.metadata = std::move(metadata);
  options.sequences = sequences;
  onRanks(parseProgram(bigramProgram(options)), [&](Rank &rank) -> Status {
    BRAID_TRY(initialize(rank, 3));
    BRAID_ASSIGN(Generator generator, Generator::bind(rank.session()));
    body(generator, rank.session());
    return Status::success();
  });
}
void withGenerator(const std::function<void(Generator &)> &body,
                   std::vector<std::pair<std::string, std::string>> metadata = {}, int64_t sequences = 1) {
  withGenerator([&](Generator &generator, Session &) { body(generator); }, std::move(metadata), sequences);
}

Expected<GenerateResult> generateOne(
    Generator &generator, const std::vector<int32_t> &prompt, int64_t maxTokens, const SamplerOptions &options,
    const std::function<AfterToken(size_t, int32_t)> &emit = [](size_t, int32_t) { return AfterToken::goOn; }) {
  return generate(generator, std::span(&prompt, 1), maxTokens, options, 256, emit);
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
        auto text = generateOne(generator, byteTokens("prompt"), 8, {});
        ASSERT_FALSE(text);
        EXPECT_EQ(text.message(), "a prompt of 6 tokens and 8 more need a context of 13, but the program was compiled "
                                  "for 12; valid: less of both, or a program "
                                  "with a greater context_len");
        EXPECT_EQ(generateOne(generator, byteTokens("prompt"), 7, {})->tokens[0].size(), 7u);
      },
      {{"context_len", "12"}});
}

TEST(Generate, TextIsReproducible) {
  withGenerator([](Generator &generator) {
    auto text = [&](double temperature, uint64_t seed) {
      generator.reset();
      std::vector<int32_t> streamed;
      SamplerOptions options{.temperature = temperature, .seed = seed};
      auto result = generateOne(generator, byteTokens("braid"), 20, options, [&](size_t prompt, int32_t token) {
        EXPECT_EQ(prompt, 0u);
        streamed.push_back(token);
        return AfterToken::goOn;
      });
      EXPECT_TRUE(result) << result.message();
      EXPECT_EQ(result->tokens[0], streamed);
      EXPECT_EQ(streamed.size(), 20u);
      EXPECT_EQ(result->promptTokens, 5u);
      EXPECT_EQ(result->generatedTokens, 20u);
      return streamed;
    };
    EXPECT_EQ(text(0, 1), text(0, 2));
    EXPECT_EQ(text(1, 1), text(1, 1));
    EXPECT_NE(text(1, 1), text(1, 2));
    generator.reset();
    auto tokens = [&](std::vector<int32_t> prompt, AfterToken after) {
      return generateOne(generator, prompt, 9, {}, [=](size_t, int32_t) { return after; });
    };
    EXPECT_EQ(tokens({}, AfterToken::goOn).message(),
              "the prompt is empty: the model continues a text and needs at least one token of it");
    EXPECT_EQ(tokens({1, 256}, AfterToken::goOn).message(),
              "token 1 of the prompt is 256, but the vocabulary has 0 to 255");
    for (AfterToken after : {AfterToken::endText, AfterToken::endAll})
      EXPECT_EQ(tokens({97}, after)->tokens[0].size(), 1u); // the reader left
  });
}

TEST(Generate, SequencesAreApart) {
  std::vector<std::vector<int32_t>> texts;
  for (size_t length : {13, 1, 8, 29, 4, 7, 31, 2})
    texts.push_back(someTokens(length));
  std::vector<std::vector<float>> alone;
  withGenerator([&](Generator &generator) {
    for (const std::vector<int32_t> &text : texts) {
      generator.reset();
      auto logits = generator.feed(text);
      ASSERT_TRUE(logits) << logits.message();
      alone.emplace_back(logits->begin(), logits->end());
    }
  });
  withGenerator(
      [&](Generator &generator) {
        ASSERT_EQ(generator.sequences(), 3u);
        // Text i in pieces of three lengths, beside others that are fed, or not, in the same calls.
        for (size_t round = 0; round + 3 <= texts.size(); ++round) {
          std::vector<size_t> fed(3);
          for (size_t i = 0; i < 3; ++i)
            generator.reset(i);
          for (size_t call = 0;
               fed[0] < texts[round].size() || fed[1] < texts[round + 1].size() || fed[2] < texts[round + 2].size();
               ++call) {
            std::vector<Generator::Piece> pieces;
            for (size_t i = 3; i-- > 0;) {
              std::span<const int32_t> rest = std::span(texts[round + i]).subspan(fed[i]);
              size_t count = std::min<size_t>(rest.size(), std::array<size_t, 4>{1, 9, 0, 5}[(call + i) % 4]);
              if (count == 0)
                continue;
              pieces.push_back({i, rest.first(count)});
              fed[i] += count;
            }
            Status status = generator.feed(pieces);
            ASSERT_TRUE(status.ok()) << status.message();
            for (const Generator::Piece &piece : pieces)
              if (fed[piece.sequence] == texts[round + piece.sequence].size()) {
                std::span<const float> logits = generator.logits(piece.sequence);
                EXPECT_TRUE(std::ranges::equal(logits, alone[round + piece.sequence])) << round;
              }
          }
        }
        int32_t token = 1;
        std::span<const int32_t> one(&token, 1);
        EXPECT_EQ(generator.feed(std::array<Generator::Piece, 1>{{{3, one}}}).message(),
                  "there is no sequence 3: the program continues 3 at a time");
        EXPECT_EQ(generator.feed(std::array<Generator::Piece, 2>{{{1, one}, {1, one}}}).message(),
                  "sequence 1 is given twice");
        EXPECT_EQ(generator.feed(std::array<Generator::Piece, 1>{{{1, {}}}}).message(),
                  "a sequence needs at least one token before there are logits");
      },
      {}, 3);
}

TEST(Generate, EachOfManyTextsIsTheOneItIsAlone) {
  std::vector<std::vector<int32_t>> prompts, alone;
  for (size_t length : {13, 1, 8, 29, 4, 7, 2, 18})
    prompts.push_back(someTokens(length));
  SamplerOptions options{.temperature = 1, .seed = 5};
  withGenerator([&](Generator &generator) {
    for (size_t i = 0; i < prompts.size(); ++i) {
      SamplerOptions own = options;
      own.seed += i;
      auto result = generateOne(generator, prompts[i], 11, own);
      ASSERT_TRUE(result) << result.message();
      alone.push_back(result->tokens[0]);
    }
  });
  withGenerator(
      [&](Generator &generator) {
        std::vector<size_t> counts(prompts.size());
        auto result = generate(generator, prompts, 11, options, 256, [&](size_t prompt, int32_t) {
          // Some end early, the next prompts take their place.
          return ++counts[prompt] < 3 + prompt || prompt > 4 ? AfterToken::goOn : AfterToken::endText;
        });
        ASSERT_TRUE(result) << result.message();
        for (size_t i = 0; i < prompts.size(); ++i) {
          size_t count = i > 4 ? 11 : 3 + i;
          EXPECT_EQ(result->tokens[i], std::vector<int32_t>(alone[i].begin(), alone[i].begin() + count)) << i;
        }
        EXPECT_EQ(result->promptTokens, 82u);
        EXPECT_EQ(result->generatedTokens, 3u + 4 + 5 + 6 + 7 + 33);
        size_t seen = 0;
        auto some = generate(generator, prompts, 11, options, 256, [&](size_t, int32_t) {
          return ++seen < 8 ? AfterToken::goOn : AfterToken::endAll; // in the middle of a call of three
        });
        ASSERT_TRUE(some) << some.message();
        EXPECT_EQ(seen, 8u);
        EXPECT_EQ(some->generatedTokens, 8u);
        EXPECT_EQ(some->promptTokens, 22u); // of the first three
        auto keep = [](size_t, int32_t) { return AfterToken::goOn; };
        prompts[6].back() = 256;
        EXPECT_EQ(generate(generator, prompts, 11, options, 256, keep).message(),
                  "prompt 6: token 1 of the prompt is 256, but the vocabulary has 0 to 255");
        prompts[5].clear();
        EXPECT_EQ(generate(generator, prompts, 11, options, 256, keep).message(),
                  "prompt 5: the prompt is empty: the model continues a text and needs at least one token of it");
      },
      {}, 3);
}

// A call for prompts computes all rows: prompts wait for each other until a quarter of the rows is free.
TEST(Generate, PromptsWaitForEachOther) {
  struct Calls : TraceSink {
    std::map<std::string, size_t> commands; // of each entry
    void command(const TraceEvent &event) override { ++commands[event.entry]; }
  };
  withGenerator(
      [](Generator &generator, Session &session) {
        // Of texts with 11 tokens, the first two have 3 and 5; returns what was executed for prompts.
        auto commandsFor = [&](size_t count) {
          Calls calls;
          session.setTrace(&calls);
          std::vector<std::vector<int32_t>> prompts(count, someTokens(8));
          std::vector<size_t> made(count);
          auto result = generate(generator, prompts, 11, {}, 256, [&](size_t prompt, int32_t) {
            size_t most = prompt == 0 ? 3 : prompt == 1 ? 5 : 11;
            return ++made[prompt] < most ? AfterToken::goOn : AfterToken::endText;
          });
          session.setTrace(nullptr);
          EXPECT_TRUE(result) << result.message();
          EXPECT_EQ(result->generatedTokens, 3 + 5 + 11 * (count - 2));
          return calls.commands["prefill_8"];
        };
        size_t once = commandsFor(8);
        EXPECT_GT(once, 0u);
        EXPECT_EQ(commandsFor(9), 2 * once); // alone, but when a quarter is free
        EXPECT_EQ(commandsFor(10), 2 * once); // together
        EXPECT_EQ(commandsFor(11), 3 * once);
      },
      {}, 8);
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
