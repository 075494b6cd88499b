#include "test/runtime/TrainFixture.h"

#include "runtime/generate/ContinuationText.h"
#include "runtime/generate/Continuations.h"
#include "runtime/serve/Api.h"
#include "runtime/train/ImportedConfig.h"

#include <thread>

namespace braid::runtime::test {
namespace {

using Json = nlohmann::ordered_json;
using Tokens = std::vector<int32_t>;
using namespace std::chrono_literals;

// ---- Text that is held back -----------------------------------------------------------------------------------------

TEST(HeldText, WholeCharactersAndNoBeginningOfAStop) {
  HeldText held({"</s>", "END"});
  EXPECT_EQ(held.add("a\xe2"), "a");
  EXPECT_EQ(held.add("\x82"), "");
  EXPECT_EQ(held.add("\xac<"), "\xe2\x82\xac");
  EXPECT_EQ(held.add("/s"), "");
  EXPECT_EQ(held.add("o E"), "</so ");
  EXPECT_FALSE(held.stopped());
  EXPECT_EQ(held.add("NE"), "EN");
  EXPECT_EQ(held.add("ND and more </s>"), "");
  EXPECT_TRUE(held.stopped());
  EXPECT_EQ(held.add("x"), "");
  EXPECT_EQ(held.finish(), "");

  HeldText whole({"abc", "bc"}); // the one that begins first
  EXPECT_EQ(whole.add("xxabc"), "xx");
  HeldText rest({"abc"});
  EXPECT_EQ(rest.add("xab"), "x");
  EXPECT_EQ(rest.finish(), "ab");
  // What can be no character any more is not held.
  for (std::string text : {"\xff", "\x80\x80\x80\x80", "\xe2\x82\x41", "\xc3\xa9"})
    EXPECT_EQ(HeldText().add(text), text);
  EXPECT_EQ(HeldText().add("\xf0\x9f\x98"), "");
}

// However text comes, the same is shown in the end, and nothing of it is taken back.
TEST(HeldText, DoesNotDependOnHowTextComes) {
  std::string text = "one \xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80 STO STOSTOP behind";
  for (size_t width = 1; width < 9; ++width) {
    HeldText held({"STOP", "\n"});
    std::string shown;
    for (size_t at = 0; at < text.size(); at += width)
      shown += held.add(text.substr(at, width));
    EXPECT_EQ(shown + held.finish(), text.substr(0, text.find("STOP"))) << width;
  }
}

// ---- Continuations --------------------------------------------------------------------------------------------------

Tokens someTokens(size_t count, size_t from = 0) {
  Tokens tokens;
  for (size_t i = from; i < from + count; ++i)
    tokens.push_back(static_cast<int32_t>(i * 37 % 256));
  return tokens;
}

// The logits of the bigram network carry a hash of all that its sequence has read.
void withRank(int64_t sequences, const std::function<void(Rank &, Generator &)> &body,
              std::vector<std::pair<std::string, std::string>> metadata = {}, uint32_t dp = 1) {
  BigramOptions options;
  options.sequences = sequences;
  options.positions = 100;
  options.metadata = std::move(metadata);
  options.dp = dp;
  onRanks(parseProgram(bigramProgram(options)), [&](Rank &rank) -> Status {
    BRAID_TRY(initialize(rank, 3));
    BRAID_ASSIGN(Generator generator, Generator::bind(rank.session()));
    body(rank, generator);
    return Status::success();
  });
}

Tokens alone(const Tokens &prompt, int64_t count, const SamplerOptions &sampler) {
  Tokens tokens;
  withRank(1, [&](Rank &, Generator &generator) {
    auto result = generate(generator, std::span(&prompt, 1), count, sampler, 256,
                           [](size_t, int32_t) { return AfterToken::goOn; });
    ASSERT_TRUE(result) << result.message();
    tokens = result->tokens[0];
  });
  return tokens;
}

TEST(Continuations, PromptsAreReadBesideTexts) {
  SamplerOptions sampler{.temperature = 1, .seed = 4};
  std::map<uint64_t, Tokens> made;
  withRank(3, [&](Rank &, Generator &generator) {
    ASSERT_EQ(generator.buckets(), (std::vector<int64_t>{8, 4, 1}));
    EXPECT_EQ(generator.callLength(29), 8u);
    EXPECT_EQ(generator.callLength(5), 4u);
    EXPECT_EQ(generator.callLength(1), 1u);
    Continuations batch(generator, {.readsBeside = true});
    auto add = [&](uint64_t id, const Expected<int32_t> &token, std::span<const float> logits) {
      EXPECT_TRUE(token) << token.message();
      EXPECT_EQ(logits.size(), 256u);
      made[id].push_back(*token);
      return AfterToken::goOn;
    };
    auto step = [&] {
      auto goesOn = batch.step(add);
      EXPECT_TRUE(goesOn && *goesOn);
    };
    EXPECT_EQ(*batch.begin(7, {someTokens(2), 12, sampler}), 0u);
    for (int i = 0; i < 3; ++i)
      step();
    size_t before = made[7].size();
    // 29 tokens are four rounds, in each of which the other text goes on.
    EXPECT_EQ(*batch.begin(8, {someTokens(29), 3, sampler}), 0u);
    EXPECT_EQ(batch.room(), 1u);
    size_t rounds = 0;
    for (; made[8].empty(); ++rounds)
      step();
    EXPECT_EQ(made[7].size(), before + rounds);
    EXPECT_GE(rounds, 4u);
    EXPECT_EQ(*batch.begin(9, {someTokens(1), 0, sampler}), 0u); // is read, and that is all
    EXPECT_EQ(batch.begin(10, {someTokens(1), 1, sampler}).message(), "all 3 sequences have a text");
    EXPECT_EQ(batch.begin(11, {{}, 1, sampler}).message(),
              "the prompt is empty: the model continues a text and needs at least one token of it");
    while (!batch.empty())
      step();
    EXPECT_EQ(batch.counts().promptTokens, 32u);
    EXPECT_EQ(batch.counts().drawnTokens, 15u);
    EXPECT_EQ(made.size(), 2u);
  });
  EXPECT_EQ(made[7], alone(someTokens(2), 12, sampler));
  EXPECT_EQ(made[8], alone(someTokens(29), 3, sampler));
}

TEST(Continuations, PromptsGoOnFromWhatASequenceHasRead) {
  SamplerOptions greedy;
  withRank(2, [&](Rank &, Generator &generator) {
    Continuations batch(generator, {.reuses = true});
    uint64_t next = 0;
    // The tokens behind a prompt, and how many of it were known.
    auto ask = [&](const Tokens &prompt, int64_t count) {
      Tokens tokens;
      Expected<size_t> known = batch.begin(next++, {prompt, count, greedy});
      EXPECT_TRUE(known) << known.message();
      while (!batch.empty())
        EXPECT_TRUE(*batch.step([&](uint64_t, const Expected<int32_t> &token, std::span<const float>) {
          tokens.push_back(*token);
          return AfterToken::goOn;
        }));
      return std::pair(tokens, *known);
    };
    Tokens first = someTokens(11);
    auto [answer, known] = ask(first, 5);
    EXPECT_EQ(known, 0u);
    EXPECT_EQ(answer, alone(first, 5, greedy));
    // A chat goes on: prompt, answer and more. The last token of the answer was drawn, but not read.
    Tokens second = first;
    second.insert(second.end(), answer.begin(), answer.end());
    second.push_back(9);
    auto [more, reused] = ask(second, 4);
    EXPECT_EQ(reused, 15u);
    EXPECT_EQ(more, alone(second, 4, greedy));
    // Another text takes the sequence that was not used for longest, so the chat is still there.
    EXPECT_EQ(ask({1, 2, 3}, 2).second, 0u);
    Tokens third = second;
    third.insert(third.end(), more.begin(), more.end());
    EXPECT_EQ(ask(third, 1), std::pair(alone(third, 1, greedy), size_t(20)));
    // What differs somewhere is read from its beginning: a state has no way back.
    Tokens other = third;
    other[3] ^= 1;
    other.push_back(5);
    EXPECT_EQ(ask(other, 2), std::pair(alone(other, 2, greedy), size_t(0)));
    // A prompt must leave something to read.
    EXPECT_EQ(ask(other, 2), std::pair(alone(other, 2, greedy), size_t(0)));
    EXPECT_GT(batch.counts().reusedTokens, 0u);
    EXPECT_EQ(batch.counts().reusedTokens, 35u);
  });
}

// States are kept before a prompt's last call, and where it leaves what it has in common with an earlier one.
TEST(Continuations, PromptsGoOnFromStatesThatWereKept) {
  auto joined = [](std::initializer_list<Tokens> parts) {
    Tokens all;
    for (const Tokens &part : parts)
      all.insert(all.end(), part.begin(), part.end());
    return all;
  };
  Tokens system = someTokens(50), question = someTokens(13, 100), other = someTokens(9, 200), third = {7, 7, 7};
  withRank(2, [&](Rank &, Generator &generator) {
    // A hash and a length, and the tokens that were read, up to 100.
    EXPECT_EQ(generator.stateBytes(1), 12u);
    EXPECT_EQ(generator.stateBytes(48), 200u);
    EXPECT_EQ(generator.stateBytes(101), 408u);
    size_t bytes = generator.stateBytes(80);
    auto rounds = [&](size_t stateBytes) {
      Continuations batch(generator, {.readsBeside = true, .reuses = true, .stateBytes = stateBytes});
      std::vector<size_t> reused;
      auto ask = [&](const Tokens &prompt) {
        Tokens tokens;
        Expected<size_t> known = batch.begin(0, {prompt, 3, {}});
        EXPECT_TRUE(known) << known.message();
        reused.push_back(*known);
        while (!batch.empty())
          EXPECT_TRUE(*batch.step([&](uint64_t, const Expected<int32_t> &token, std::span<const float>) {
            tokens.push_back(*token);
            return AfterToken::goOn;
          }));
        EXPECT_EQ(tokens, alone(prompt, 3, {})) << reused.size();
      };
      ask(joined({system, question}));
      ask(joined({system, question})); // once more
      ask(joined({system, other})); // has the 50 tokens in common
      ask(joined({system, third})); // and now they were kept, up to a call's border
      ask(joined({system, question, third}));
      ask(joined({system, Tokens{1}}));
      EXPECT_LE(batch.counts().stateBytes, stateBytes);
      EXPECT_EQ(batch.counts().stateBytes > 0, batch.counts().states > 0);
      return reused;
    };
    // 63 tokens are calls of 8 and 4, and one of 4 that three fill: 60 are kept. The 50 end in a call that begins at 48.
    EXPECT_EQ(rounds(size_t(1) << 20), (std::vector<size_t>{0, 60, 0, 48, 60, 48}));
    EXPECT_EQ(rounds(bytes), (std::vector<size_t>{0, 60, 0, 0, 0, 0})); // room for one: the others' last calls
    EXPECT_EQ(rounds(0), std::vector<size_t>(6));
    // A state of which many make use outlives those that nobody asks for again, in room for three.
    Continuations batch(generator, {.readsBeside = true, .reuses = true, .stateBytes = 3 * bytes});
    for (int32_t i = 0; i < 24; ++i) {
      for (int32_t j = 0; j < (i < 4 ? 1 : 2); ++j)
        EXPECT_EQ(*batch.begin(static_cast<uint64_t>(j),
                               {joined({system, someTokens(20, static_cast<size_t>(97 * i + 13 * j))}), 1, {}}),
                  i < 2 ? 0u : 48u)
            << i;
      while (!batch.empty())
        EXPECT_TRUE(*batch.step(
            [](uint64_t, const Expected<int32_t> &, std::span<const float>) { return AfterToken::endText; }));
    }
    EXPECT_EQ(batch.counts().states, 3u);
    Generator::State state = *generator.save(0);
    EXPECT_EQ(state.bytes.size(), generator.stateBytes(generator.length(0)));
    ASSERT_TRUE(generator.restore(1, state).ok());
    EXPECT_EQ(generator.length(1), generator.length(0));
  });
}

// What TextRequest's prompts score, by logits: a token at a time.
std::vector<TokenScore> scoresOf(const Tokens &prompt) {
  std::vector<TokenScore> scores;
  withRank(1, [&](Rank &, Generator &generator) {
    for (size_t i = 0; i + 1 < prompt.size(); ++i) {
      std::span<const float> logits = *generator.feed(std::span(prompt).subspan(i, 1));
      double sum = 0;
      for (float logit : logits)
        sum += std::exp(logit);
      auto likeliest = std::ranges::max_element(logits);
      auto nats = [&](float logit) { return static_cast<float>(logit - std::log(sum)); };
      scores.push_back({nats(logits[static_cast<size_t>(prompt[i + 1])]),
                        static_cast<int32_t>(likeliest - logits.begin()), nats(*likeliest)});
    }
  });
  return scores;
}

void expectSame(std::span<const TokenScore> scores, std::span<const TokenScore> wanted, const std::string &what) {
  ASSERT_EQ(scores.size(), wanted.size()) << what;
  for (size_t i = 0; i < scores.size(); ++i) {
    EXPECT_NEAR(scores[i].logProbability, wanted[i].logProbability, 1e-5) << what << ", " << i;
    EXPECT_EQ(scores[i].likeliest, wanted[i].likeliest) << what << ", " << i;
    EXPECT_NEAR(scores[i].likeliestLogProbability, wanted[i].likeliestLogProbability, 1e-5) << what << ", " << i;
  }
}

// Prompts that are scored beside texts that are not, some of which begin alike: what was read is not read again, and only
// where its scores are known.
TEST(Continuations, ScoresOfPrompts) {
  Tokens shared = someTokens(70);
  auto with = [&](size_t length, size_t from) {
    Tokens tokens(shared.begin(), shared.begin() + static_cast<std::ptrdiff_t>(length));
    Tokens more = someTokens(11, from);
    tokens.insert(tokens.end(), more.begin(), more.end());
    return tokens;
  };
  for (size_t stateBytes : {size_t(0), size_t(1) << 20})
    withRank(3, [&](Rank &, Generator &generator) {
      EXPECT_EQ(generator.callLength(29, true), 8u);
      EXPECT_EQ(generator.callLength(7, true), 7u); // of 8
      EXPECT_EQ(generator.callLength(6, true), 4u);
      EXPECT_EQ(generator.callLength(2, true), 2u); // of 4
      Continuations batch(generator, {.readsBeside = true, .reuses = true, .stateBytes = stateBytes});
      std::map<uint64_t, std::vector<TokenScore>> scores;
      std::map<uint64_t, Tokens> made;
      batch.onRead([&](uint64_t id, std::span<const TokenScore> read) {
        EXPECT_TRUE(made[id].empty());
        EXPECT_TRUE(scores.emplace(id, std::vector(read.begin(), read.end())).second);
      });
      auto goOn = [&](uint64_t id, const Expected<int32_t> &token, std::span<const float>) {
        made[id].push_back(*token);
        return AfterToken::goOn;
      };
      auto finish = [&] {
        while (!batch.empty())
          EXPECT_TRUE(*batch.step(goOn));
      };
      SamplerOptions sampler{.temperature = 1, .seed = 9};
      uint64_t id = 0;
      auto check = [&](const Tokens &prompt, int64_t count, bool scored, std::optional<size_t> reused) {
        Expected<size_t> known = batch.begin(++id, {prompt, count, sampler, scored});
        ASSERT_TRUE(known) << known.message();
        if (reused)
          EXPECT_EQ(*known, *reused) << id << " with states of " << stateBytes;
        finish();
        expectSame(scores.at(id), scored ? scoresOf(prompt) : std::vector<TokenScore>(), std::to_string(id));
        EXPECT_EQ(made[id], count ? alone(prompt, count, sampler) : Tokens()) << id;
      };
      bool keeps = stateBytes > 0;
      check(with(70, 200), 3, false, 0); // nothing was scored
      check(with(70, 201), 0, true, 0);
      check(with(70, 201), 3, false, 80); // a sequence has read all but the last
      check(with(70, 202), 2, true, keeps ? 64u : 0u);
      check(with(65, 203), 0, true, keeps ? 64u : 0u);
      check(with(64, 204), 0, true,
            keeps ? std::optional<size_t>() : 0u); // token 64 is another: its score is not known
      check({5}, 2, true, std::nullopt);
      check({5}, 0, true, std::nullopt);
      check({5, 6}, 0, true, std::nullopt);
      // Side by side.
      std::map<uint64_t, Tokens> prompts;
      for (int i = 0; i < 3; ++i) {
        prompts[++id] = with(static_cast<size_t>(20 * i + 3), static_cast<size_t>(i));
        ASSERT_TRUE(batch.begin(id, {prompts[id], i, sampler, i != 1}));
      }
      finish();
      for (auto &[one, prompt] : prompts)
        expectSame(scores.at(one), one == id - 1 ? std::vector<TokenScore>() : scoresOf(prompt), std::to_string(one));
    });
}

// ---- Service --------------------------------------------------------------------------------------------------------

// Takes a text to its end.
std::pair<Tokens, AskedText::End> take(AskedText &text) {
  Tokens tokens;
  for (;;) {
    AskedText::News news = text.next(100ms);
    for (const AskedText::Token &token : news.tokens)
      tokens.push_back(token.drawn.token);
    if (news.end != AskedText::End::none) {
      EXPECT_EQ(news.status.ok(), news.end != AskedText::End::failed);
      return {tokens, news.end};
    }
  }
}

TextRequest requestFor(Tokens prompt, int64_t count, uint64_t seed) {
  return {{std::move(prompt), count, {.temperature = 1, .seed = seed}}, {}, -1};
}

class ServeRanks : public testing::TestWithParam<uint32_t> {};

// Many ask at once, of few sequences; all ranks draw what a text has alone.
TEST_P(ServeRanks, EveryTextIsTheOneItIsAlone) {
  constexpr size_t askers = 12;
  std::vector<Tokens> prompts, wanted, made(askers);
  for (size_t i = 0; i < askers; ++i) {
    prompts.push_back(someTokens(1 + i * 5 % 23, i));
    wanted.push_back(alone(prompts[i], 3 + static_cast<int64_t>(i), {.temperature = 1, .seed = i}));
  }
  // Of all tokens 255 is drawn in few texts; those end behind it.
  withRank(
      3,
      [&](Rank &rank, Generator &generator) {
        TextService service(rank, generator, {.pulse = 5ms});
        if (!rank.isFirst()) {
          EXPECT_TRUE(service.run().ok());
          return;
        }
        std::thread asks([&] {
          std::vector<std::thread> threads;
          for (size_t i = 0; i < askers; ++i)
            threads.emplace_back([&, i] {
              auto text = service.ask(requestFor(prompts[i], 3 + static_cast<int64_t>(i), i));
              ASSERT_TRUE(text) << text.message();
              auto [tokens, end] = take(**text);
              made[i] = tokens;
              EXPECT_EQ(end, AskedText::End::length);
            });
          for (std::thread &thread : threads)
            thread.join();
          EXPECT_EQ(service.counts().running, 0u);
          EXPECT_EQ(service.counts().texts, askers);
          std::this_thread::sleep_for(30ms); // others hear of the first also when nothing is asked
          TextRequest ends = requestFor(prompts[4], 7, 4);
          ends.ends = {wanted[4][2]};
          auto text = service.ask(ends);
          auto [tokens, end] = take(**text);
          EXPECT_EQ(end, AskedText::End::token);
          EXPECT_EQ(tokens, Tokens(wanted[4].begin(), std::next(std::ranges::find(wanted[4], wanted[4][2]))));
          service.stop();
        });
        EXPECT_TRUE(service.run().ok());
        asks.join();
        EXPECT_EQ(service.ask(requestFor(prompts[0], 1, 0)).message(), "the server has stopped");
      },
      {}, GetParam());
  for (size_t i = 0; i < askers; ++i)
    EXPECT_EQ(made[i], wanted[i]) << i;
}

INSTANTIATE_TEST_SUITE_P(Ranks, ServeRanks, testing::Values(1, 3));

TEST(Serve, WhatIsNotWantedEnds) {
  withRank(1, [](Rank &rank, Generator &generator) {
    TextService service(rank, generator, {.most = 3});
    std::thread asks([&] {
      auto running = *service.ask(requestFor({1}, INT32_MAX / 2, 0)), waiting = *service.ask(requestFor({2}, 5, 0)),
           next = *service.ask(requestFor({3}, 5, 0));
      while (running->next(100ms).tokens.empty()) {
      }
      EXPECT_EQ(service.ask(requestFor({4}, 5, 0)).message(), "3 texts are in the making, and no more than 3 may be");
      waiting->cancel();
      EXPECT_EQ(take(*waiting).second, AskedText::End::cancelled);
      running->cancel();
      EXPECT_EQ(take(*running).second, AskedText::End::cancelled);
      EXPECT_EQ(take(*next), std::pair(alone({3}, 5, {.temperature = 1}), AskedText::End::length));
      service.stop();
      EXPECT_FALSE(service.ask(requestFor({4}, 5, 0))); // stopped, or about to
    });
    EXPECT_TRUE(service.run().ok());
    asks.join();
  });
}

TEST(Serve, NonsenseIsRefusedBeforeItWaits) {
  withRank(
      1,
      [](Rank &rank, Generator &generator) {
        TextService service(rank, generator, {});
        auto message = [&](TextRequest request) { return service.ask(std::move(request)).message(); };
        EXPECT_EQ(message(requestFor({}, 1, 0)),
                  "the prompt is empty: the model continues a text and needs at least one token of it");
        EXPECT_EQ(message(requestFor({256}, 1, 0)), "token 0 of the prompt is 256, but the vocabulary has 0 to 255");
        EXPECT_EQ(message(requestFor({1}, 0, 0)), "the number of tokens to generate is 0; valid: 1 and more");
        EXPECT_EQ(message(requestFor(someTokens(10), 4, 0)),
                  "a prompt of 10 tokens and 4 more need a context of 13, but the program was compiled for 12; valid: "
                  "less of both, or a program with a greater context_len");
        EXPECT_EQ(service.counts().waiting, 0u);
      },
      {{"context_len", "12"}});
}

// Log-probabilities are those of all tokens together, at temperature 1.
TEST(Serve, LogProbabilities) {
  withRank(1, [](Rank &rank, Generator &generator) {
    TextService service(rank, generator, {});
    std::thread asks([&] {
      TextRequest request = requestFor({1, 2}, 4, 3);
      request.text.sampler.temperature = 0;
      request.likeliest = 256;
      auto text = *service.ask(request);
      size_t seen = 0;
      for (AskedText::End end = AskedText::End::none; end == AskedText::End::none;) {
        AskedText::News news = text->next(100ms);
        end = news.end;
        for (const AskedText::Token &token : news.tokens) {
          ++seen;
          ASSERT_EQ(token.likeliest.size(), 256u);
          double sum = 0;
          for (size_t i = 0; i < 256; ++i) {
            sum += std::exp(token.likeliest[i].logProbability);
            if (i > 0)
              EXPECT_LE(token.likeliest[i].logProbability, token.likeliest[i - 1].logProbability);
          }
          EXPECT_NEAR(sum, 1, 1e-5);
          EXPECT_EQ(token.drawn.token, token.likeliest[0].token);
          EXPECT_EQ(token.drawn.logProbability, token.likeliest[0].logProbability);
        }
      }
      EXPECT_EQ(seen, 4u);
      service.stop();
    });
    EXPECT_TRUE(service.run().ok());
    asks.join();
  });
}

// ---- Requests -------------------------------------------------------------------------------------------------------

TEST(ApiRequest, Completion) {
  auto request = readCompletion(R"({"model": "m", "prompt": ["a", [1, 2]], "max_tokens": 7, "temperature": 0.5,
    "top_p": 0.9, "top_k": -1, "seed": -1, "n": 2, "stop": "x", "stream": true, "stream_options": {"include_usage": true},
    "echo": true, "ignore_eos": true, "presence_penalty": 0, "logit_bias": {}, "user": "u", "suffix": null, "best_of": 2,
    "return_token_ids": true})");
  ASSERT_TRUE(request) << request.message();
  EXPECT_EQ(*request->model, "m");
  EXPECT_EQ(request->prompts, (std::vector<Json>{"a", {1, 2}}));
  EXPECT_EQ(request->maxTokens, 7);
  EXPECT_EQ(request->temperature, 0.5);
  EXPECT_EQ(request->topP, 0.9);
  EXPECT_EQ(request->topK, 0);
  EXPECT_EQ(request->seed, UINT64_MAX);
  EXPECT_EQ(request->count, 2u);
  EXPECT_EQ(request->stops, std::vector<std::string>{"x"});
  EXPECT_TRUE(request->streams && request->includesUsage && request->echoes && request->ignoresEnds &&
              request->returnsTokens && !request->isChat);
  EXPECT_EQ(readCompletion(R"({"prompt": [1, 2]})")->prompts.size(), 1u);
  EXPECT_EQ(readCompletion(R"({"prompt": "a", "max_tokens": 5.0})")->maxTokens, 5);
  EXPECT_FALSE(readCompletion(R"({"prompt": "a", "temperature": null})")->temperature);
}

TEST(ApiRequest, Chat) {
  auto request = readChatCompletion(R"({"messages": [{"role": "user", "content": [{"type": "text", "text": "a"},
    {"type": "text", "text": "b"}]}, {"role": "assistant", "content": null, "tool_calls": [{"function":
    {"name": "f", "arguments": "{\"y\": 1, \"x\": [2]}"}}]}], "tools": [{"z": 1}], "max_completion_tokens": 3,
    "logprobs": true, "top_logprobs": 4, "tool_choice": "auto", "stop": ["a", "b"],
    "chat_template_kwargs": {"enable_thinking": false}})");
  ASSERT_TRUE(request) << request.message();
  EXPECT_TRUE(request->isChat);
  EXPECT_EQ(request->prompts[0]["messages"][0]["content"], "a\nb");
  EXPECT_EQ(request->prompts[0]["messages"][1]["tool_calls"][0]["function"]["arguments"].dump(), R"({"y":1,"x":[2]})");
  EXPECT_EQ(request->prompts[0]["tools"].dump(), R"([{"z":1}])");
  EXPECT_EQ(request->maxTokens, 3);
  EXPECT_EQ(request->likeliest, 4);
}

TEST(ApiRequest, WhatIsWrongIsNamed) {
  for (auto [body, message] : std::initializer_list<std::pair<const char *, const char *>>{
           {"", "the body is no JSON, at byte 1: "},
           {"[1]", "the body is a list; valid: a JSON object"},
           {R"({"prompt": "a",})", "the body is no JSON, at byte 16: "},
           {"{}", "prompt: is missing; valid: a text, token numbers, or a list of either"},
           {R"({"prompt": 3})", "prompt: is 3; valid: a text, token numbers, or a list of either"},
           {R"({"prompt": []})", "prompt: is an empty list; valid: "},
           {R"({"prompt": ["a", [1, "b"]]})", "prompt: is a list; valid: "},
           {R"({"prompt": "a", "max_tokens": 0})", "max_tokens: is 0, which is for echo with logprobs; valid: 1 and"},
           {R"({"prompt": "a", "max_tokens": -1})", "max_tokens: is -1; valid: a whole number from 0 to 2147483647"},
           {R"({"prompt": "a", "max_tokens": 1.5})", "max_tokens: is 1.5; valid: a whole number from 0 to"},
           {R"({"prompt": "a", "max_tokens": true})", "max_tokens: is true; valid: a whole number"},
           {R"({"prompt": "a", "temperature": -1})", "temperature: is -1; valid: a number from 0, up to 1000000"},
           {R"({"prompt": "a", "temperature": "1"})", "temperature: is \"1\"; valid: a number"},
           {R"({"prompt": "a", "top_p": 0})", "top_p: is 0; valid: a number above 0, up to 1"},
           {R"({"prompt": "a", "n": 129})", "n: is 129; valid: a whole number from 1 to 128"},
           {R"({"prompt": ["a", "b"], "n": 65})", "2 prompts of 65 texts each are 130; valid: at most 128"},
           {R"({"prompt": "a", "stop": ""})", "stop: is \"\"; valid: texts of 1 to 1024 bytes"},
           {R"({"prompt": "a", "stop": [1]})", "stop: is 1; valid: texts"},
           {R"({"prompt": "a", "stream": 1})", "stream: is 1; valid: true or false"},
           {R"({"prompt": "a", "stream_options": {"x": 1}})", "stream_options: x: is not known here; known are incl"},
           {R"({"prompt": "a", "presence_penalty": 0.5})", "presence_penalty: is 0.5; valid: 0, the only one there is"},
           {R"({"prompt": "a", "response_format": {"type": "json_object"}})", "response_format: is an object; valid: "},
           {R"({"prompt": "a", "best_of": 3})", "best_of: is 3; valid: 1, which is n"},
           {R"({"prompt": "a", "logprobs": 21})", "logprobs: is 21; valid: a whole number from 0 to 20"},
           {R"({"prompt": "a", "logprobs": 2, "echo": true})", "logprobs: of a prompt's tokens, which echo asks for, "},
           {R"({"prompt": "a", "temprature": 1})", "temprature: is not known here; known are prompt, model, "},
       }) {
    auto read = readCompletion(body);
    ASSERT_FALSE(read) << body;
    EXPECT_TRUE(std::string_view(read.message()).starts_with(message)) << read.message();
  }
  for (auto [body, message] : std::initializer_list<std::pair<const char *, const char *>>{
           {"{}", "messages: is missing; valid: a list of messages"},
           {R"({"messages": [{"content": [{"type": "image_url"}]}]})", "messages[0].content[0]: is no text, and "},
           {R"({"messages": null})", "messages: is missing; valid: a list of messages"},
           {R"({"messages": [], "prompt": "a"})", "prompt: is not known here; known are messages, "},
           {R"({"messages": [], "top_logprobs": 1})", "top_logprobs: is 1; valid: null, or logprobs true"},
           {R"({"messages": [], "tool_choice": "required"})", "tool_choice: is \"required\"; valid: "},
           {R"({"messages": [], "max_tokens": 2, "max_completion_tokens": 3})",
            "max_completion_tokens: is 3; valid: 2"},
       }) {
    auto read = readChatCompletion(body);
    ASSERT_FALSE(read) << body;
    EXPECT_TRUE(std::string_view(read.message()).starts_with(message)) << read.message();
  }
  std::string deep = R"({"prompt": )" + std::string(200, '[') + std::string(200, ']') + "}";
  EXPECT_EQ(readCompletion(deep).message(), "the body is nested deeper than 100 levels");
}

// ---- Answers --------------------------------------------------------------------------------------------------------

std::string bodyOf(Expected<std::unique_ptr<ApiAnswer>> answer) {
  EXPECT_TRUE(answer) << answer.message();
  std::string body;
  for (;;) {
    Expected<bool> goesOn = (*answer)->next(body);
    EXPECT_TRUE(goesOn) << goesOn.message();
    if (!goesOn || !*goesOn)
      return body;
  }
}

TEST(Api, AnswersWholeAndInParts) {
  Tokens prompt = byteTokens("ab");
  Tokens wanted[] = {alone(prompt, 9, {.temperature = 1, .seed = 5}), alone(prompt, 9, {.temperature = 1, .seed = 6})};
  auto textOf = [](const Tokens &tokens) {
    std::string text(tokens.begin(), tokens.end());
    return Json::parse(Json(text).dump(-1, ' ', false, Json::error_handler_t::replace)).get<std::string>();
  };
  withRank(2, [&](Rank &rank, Generator &generator) {
    TextService service(rank, generator, {.most = 5, .reuses = false});
    ApiModel model;
    model.name = "bigram";
    model.tokensOf = [](const Json &prompt, bool) -> Expected<Tokens> {
      if (prompt.is_object())
        return Status::error("there are no chats");
      return prompt.is_string() ? byteTokens(prompt.get<std::string>()) : prompt.get<Tokens>();
    };
    Api api(model, service);
    std::thread asks([&] {
      Json whole = Json::parse(bodyOf(api.completion(
          R"({"model": "bigram", "prompt": "ab", "max_tokens": 9, "seed": 5, "n": 2, "return_token_ids": true})")));
      EXPECT_EQ(whole["object"], "text_completion");
      ASSERT_EQ(whole["choices"].size(), 2u);
      for (size_t i = 0; i < 2; ++i) {
        EXPECT_EQ(whole["choices"][i]["index"], i);
        EXPECT_EQ(whole["choices"][i]["text"], textOf(wanted[i]));
        EXPECT_EQ(whole["choices"][i]["token_ids"], wanted[i]);
        EXPECT_EQ(whole["choices"][i]["finish_reason"], "length");
        EXPECT_TRUE(whole["choices"][i]["logprobs"].is_null());
      }
      EXPECT_EQ(whole["usage"].dump(), R"({"prompt_tokens":2,"completion_tokens":18,"total_tokens":20,)"
                                       R"("prompt_tokens_details":{"cached_tokens":0}})");
      // The same in parts, with a list of bytes.
      std::string parts = bodyOf(api.completion(R"({"prompt": [97, 98], "max_tokens": 9, "seed": 5, "stream": true,
        "return_token_ids": true, "logprobs": 2, "stream_options": {"include_usage": true}})"));
      Tokens streamed;
      std::string text, finish;
      size_t likely = 0;
      for (std::string_view rest = parts; !rest.empty();) {
        std::string_view event = rest.substr(0, rest.find("\n\n"));
        rest.remove_prefix(event.size() + 2);
        ASSERT_TRUE(event.starts_with("data: "));
        if (event == "data: [DONE]") {
          EXPECT_TRUE(rest.empty());
          break;
        }
        Json json = Json::parse(event.substr(6));
        if (json["choices"].empty()) {
          EXPECT_EQ(json["usage"]["completion_tokens"], 9);
          continue;
        }
        const Json &choice = json["choices"][0];
        text += choice["text"].get<std::string>();
        for (const Json &token : choice["token_ids"])
          streamed.push_back(token.get<int32_t>());
        likely += choice["logprobs"]["tokens"].size();
        EXPECT_EQ(choice["logprobs"]["top_logprobs"].size(), choice["logprobs"]["token_logprobs"].size());
        if (choice["finish_reason"].is_string())
          finish = choice["finish_reason"];
      }
      EXPECT_EQ(streamed, wanted[0]);
      EXPECT_EQ(text, textOf(wanted[0]));
      EXPECT_EQ(likely, 9u);
      EXPECT_EQ(finish, "length");
      // A stop, and a prompt that comes back.
      std::string letters(wanted[0].begin(), wanted[0].end());
      Json stopped = Json::parse(bodyOf(api.completion(
          Json({{"prompt", {97, 98}}, {"max_tokens", 9}, {"seed", 5}, {"echo", true}, {"ignore_eos", true}}).dump())));
      EXPECT_EQ(stopped["choices"][0]["text"], textOf(byteTokens("ab" + letters)));
      EXPECT_EQ(api.completion(R"({"prompt": "a", "model": "b"})").message(), "model: there is no 'b'; valid: bigram");
      EXPECT_EQ(api.chatCompletion(R"({"messages": [{"role": "user", "content": "a"}]})").message(),
                "there are no chats");
      EXPECT_EQ(Json::parse(api.models())["data"][0]["id"], "bigram");
      EXPECT_EQ(Json::parse(*api.modelNamed("bigram"))["object"], "model");
      EXPECT_EQ(api.modelNamed("b\n").message(), "model: there is no 'b\\n'; valid: bigram");
      EXPECT_EQ(api.completion(R"({"prompt": ["a", "b"], "n": 3})").message(),
                "6 texts are asked for; valid: at most 5 (--max-texts)");
      EXPECT_NE(api.metrics().find("\nbraid_texts_total 4\n"), std::string::npos) << api.metrics();
      // Who drops an answer does not want it.
      {
        auto dropped = api.completion(R"({"prompt": "a", "max_tokens": 1000000})");
      }
      while (service.counts().texts < 5)
        std::this_thread::sleep_for(1ms);
      service.stop();
    });
    EXPECT_TRUE(service.run().ok());
    asks.join();
  });
}

TEST(Api, DrawsAsTheMakersOfWeightsSay) {
  TemporaryDirectory directory;
  std::string path = directory / "generation_config.json";
  auto message = [&](std::string_view json) {
    writeText(path, json);
    auto draws = drawsOf(directory.str());
    return draws ? "none" : draws.message().substr(path.size());
  };
  EXPECT_FALSE(drawsOf(directory.str())->temperature); // no such file
  EXPECT_EQ(message(R"({"do_sample": true, "temperature": 0.7, "top_k": 20, "top_p": 0.8, "repetition_penalty": 1.05,
    "min_p": null, "eos_token_id": 3})"),
            "none");
  auto draws = drawsOf(directory.str());
  EXPECT_EQ(draws->temperature, 0.7);
  EXPECT_EQ(draws->topK, 20);
  EXPECT_EQ(draws->topP, 0.8);
  EXPECT_EQ(draws->others, std::vector<std::string>{"repetition_penalty"});
  EXPECT_EQ(message(R"({"do_sample": false, "temperature": "x"})"), "none");
  EXPECT_FALSE(drawsOf(directory.str())->temperature);
  EXPECT_EQ(message(R"({"top_p": 0})"), ": top_p is 0; valid: above 0, up to 1");
  EXPECT_EQ(message(R"({"top_k": 1.5})"), ": top_k is 1.5; valid: a whole number, 0 and more");
  EXPECT_EQ(message(R"({"temperature": true})"), ": temperature is true; valid: 0 and more");

  Tokens greedy = alone(byteTokens("ab"), 6, {});
  withRank(1, [&](Rank &rank, Generator &generator) {
    TextService service(rank, generator, {});
    ApiModel model;
    model.draws = {.temperature = 0};
    model.tokensOf = [](const Json &prompt, bool) -> Expected<Tokens> { return byteTokens(prompt.get<std::string>()); };
    Api api(model, service);
    std::thread asks([&] {
      auto tokens = [&](const char *more) {
        return Json::parse(bodyOf(api.completion(fmt::format(
            R"({{"prompt": "ab", "max_tokens": 6, "return_token_ids": true{}}})", more))))["choices"][0]["token_ids"];
      };
      EXPECT_EQ(tokens(""), greedy);
      EXPECT_EQ(tokens(R"(, "temperature": 1, "top_k": 1)"), greedy);
      EXPECT_EQ(tokens(R"(, "temperature": 1, "seed": 2)"), alone(byteTokens("ab"), 6, {.temperature = 1, .seed = 2}));
      service.stop();
    });
    EXPECT_TRUE(service.run().ok());
    asks.join();
  });
}

TEST(Api, StatusesOfErrors) {
  EXPECT_EQ(Api::httpStatus(Status::error("a")), 400);
  EXPECT_EQ(Api::httpStatus(Status::error(ErrorCode::notFound, "a")), 404);
  EXPECT_EQ(Api::httpStatus(Status::error(ErrorCode::overflow, "a")), 503);
  EXPECT_EQ(Api::httpStatus(Status::error(ErrorCode::internal, "a")), 500);
  EXPECT_EQ(Api::errorBody(Status::error("a \"b\"")),
            R"({"error":{"message":"a \"b\"","type":"invalid_request_error","param":null,"code":null}})");
}

} // namespace
} // namespace braid::runtime::test
