#include "test/runtime/ServeFixture.h"

#include "runtime/generate/ContinuationText.h"

namespace braid::runtime::test {
namespace {

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

// What a prompt has is known to penalties.
TEST(Continuations, PenaltiesKnowThePrompt) {
  size_t found = 0;
  for (size_t count = 20; count < 60 && found < 3; ++count) {
    Tokens prompt = someTokens(count);
    int32_t likeliest = alone(prompt, 1, {})[0];
    if (std::ranges::find(prompt, likeliest) == prompt.end())
      continue;
    ++found;
    EXPECT_NE(alone(prompt, 1, {.penalties = {.repetition = 1000}})[0], likeliest) << count;
    EXPECT_EQ(alone(prompt, 1, {.penalties = {.presence = 2, .frequency = 2}})[0], likeliest) << count;
  }
  EXPECT_EQ(found, 3u);
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

} // namespace
} // namespace braid::runtime::test
