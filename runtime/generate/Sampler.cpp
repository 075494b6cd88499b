#include "runtime/generate/Sampler.h"

#include "runtime/train/Random.h"

#include <algorithm>
#include <cmath>

namespace braid::runtime {

Expected<Sampler> Sampler::create(const SamplerOptions &options, size_t vocabulary, size_t limit) {
  if (!(options.temperature >= 0 && options.temperature <= maxTemperature))
    return Status::error("temperature: {}; valid: 0 (greedy) to {}", options.temperature, maxTemperature);
  if (options.topK < 0)
    return Status::error("top-k: {}; valid: 0 (all tokens) or above", options.topK);
  if (!(options.topP > 0 && options.topP <= 1))
    return Status::error("top-p: {}; valid: above 0, up to 1", options.topP);
  Sampler sampler(options, std::min(limit, vocabulary));
  sampler.candidates.reserve(sampler.limit);
  return sampler;
}

// The first of the largest; -1 where there are NaN or +inf.
static int32_t firstLargest(std::span<const float> logits) {
  // By lanes without branches, so that it is vector code.
  constexpr size_t lanes = 16;
  float best[lanes];
  int32_t broken[lanes] = {};
  std::fill_n(best, lanes, -INFINITY);
  auto look = [&](float logit, size_t lane) {
    best[lane] = logit > best[lane] ? logit : best[lane];
    broken[lane] |= !(logit < INFINITY);
  };
  size_t whole = logits.size() / lanes * lanes;
  for (size_t i = 0; i < whole; i += lanes)
    for (size_t lane = 0; lane < lanes; ++lane)
      look(logits[i + lane], lane);
  for (size_t i = whole; i < logits.size(); ++i)
    look(logits[i], i - whole);
  if (std::any_of(broken, broken + lanes, [](int32_t any) { return any != 0; }))
    return -1;
  return static_cast<int32_t>(std::ranges::find(logits, *std::max_element(best, best + lanes)) - logits.begin());
}

Expected<int32_t> Sampler::sample(std::span<const float> logits, uint64_t position) {
  logits = logits.first(std::min(limit, logits.size()));
  if (logits.empty())
    return Status::error("there are no logits to choose from");
  int32_t likeliest = firstLargest(logits);
  if (likeliest < 0) {
    // -inf is a token that cannot follow; NaN and +inf are a broken model.
    auto broken = std::ranges::find_if(logits, [](float logit) { return std::isnan(logit) || logit == INFINITY; });
    return Status::error("the logit of token {} at generated position {} is {}", broken - logits.begin(), position,
                         *broken);
  }
  if (options.temperature == 0)
    return likeliest;
  double highest = logits[static_cast<size_t>(likeliest)];
  if (highest == -INFINITY)
    return Status::error("every token is impossible at generated position {}", position);

  candidates.clear();
  for (size_t token = 0; token < logits.size(); ++token)
    candidates.push_back({logits[token], static_cast<int32_t>(token)});
  // Of equal logits the lower token comes first: the order does not depend on the library's sort.
  auto likelier = [](const Candidate &a, const Candidate &b) {
    return a.weight != b.weight ? a.weight > b.weight : a.token < b.token;
  };
  if (options.topK > 0 && static_cast<size_t>(options.topK) < candidates.size()) {
    std::nth_element(candidates.begin(), candidates.begin() + options.topK, candidates.end(), likelier);
    candidates.resize(static_cast<size_t>(options.topK));
    std::sort(candidates.begin(), candidates.end(), likelier);
  }
  double sum = 0;
  for (Candidate &candidate : candidates)
    sum += candidate.weight = std::exp((candidate.weight - highest) / options.temperature);
  if (options.topP < 1) {
    // Mostly a few tokens have that much: they are put in order, and as many more as it takes.
    double kept = 0;
    size_t count = 0;
    for (size_t ordered = 0; count < candidates.size() && kept < options.topP * sum;) {
      if (count == ordered) {
        auto first = candidates.begin() + static_cast<std::ptrdiff_t>(count);
        ordered = std::min(std::max<size_t>(256, 4 * ordered), candidates.size());
        auto last = candidates.begin() + static_cast<std::ptrdiff_t>(ordered);
        std::nth_element(first, last, candidates.end(), likelier);
        std::sort(first, last, likelier);
      }
      kept += candidates[count++].weight;
    }
    candidates.resize(std::max<size_t>(count, 1));
    sum = kept;
  }
  double threshold = randomUnit(options.seed, RandomStream::sampling, position) * sum;
  for (const Candidate &candidate : candidates) {
    threshold -= candidate.weight;
    if (threshold < 0)
      return candidate.token;
  }
  // Rounding: the last token that is possible at all.
  auto possible = std::find_if(candidates.rbegin(), candidates.rend(), [](const Candidate &c) { return c.weight > 0; });
  return possible->token;
}

} // namespace braid::runtime
