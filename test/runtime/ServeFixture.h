// What tests of continuations and of serving share: the bigram network, whose logits carry a hash of all that its sequence has
// read, and what a text is when it is alone.
#pragma once

#include "test/runtime/TrainFixture.h"

#include "runtime/generate/Continuations.h"

#include <cmath>
#include <functional>

namespace braid::runtime::test {

using Tokens = std::vector<int32_t>;

inline Tokens someTokens(size_t count, size_t from = 0) {
  Tokens tokens;
  for (size_t i = from; i < from + count; ++i)
    tokens.push_back(static_cast<int32_t>(i * 37 % 256));
  return tokens;
}

inline void withRank(int64_t sequences, const std::function<void(Rank &, Generator &)> &body,
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

inline Tokens alone(const Tokens &prompt, int64_t count, const SamplerOptions &sampler) {
  Tokens tokens;
  withRank(1, [&](Rank &, Generator &generator) {
    auto result = generate(generator, std::span(&prompt, 1), count, sampler, 256,
                           [](size_t, int32_t) { return AfterToken::goOn; });
    ASSERT_TRUE(result) << result.message();
    tokens = result->tokens[0];
  });
  return tokens;
}

} // namespace braid::runtime::test
