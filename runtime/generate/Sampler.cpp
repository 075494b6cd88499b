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

Expected<int32_t> Sampler::sample(std::span<const float> logits, uint64_t position) {
  logits = logits.first(std::min(limit, logits.size()));
  candidates.clear();
  for (size_t token = 0; token < logits.size(); ++token) {
    // -inf is a token that cannot follow; NaN and +inf are a broken model.
    if (std::isnan(logits[token]) || logits[token] == INFINITY)
      return Status::error("the logit of token {} at generated position {} is {}", token, position, logits[token]);
    candidates.push_back({logits[token], static_cast<int32_t>(token)});
  }
  // Of equal logits the lower token comes first: the order does not depend on the library's sort.
  auto likelier = [](const Candidate &a, const Candidate &b) {
    return a.weight != b.weight ? a.weight > b.weight : a.token < b.token;
  };
  if (candidates.empty())
    return Status::error("there are no logits to choose from");
  if (options.temperature == 0)
    return std::min_element(candidates.begin(), candidates.end(), likelier)->token;

  std::sort(candidates.begin(), candidates.end(), likelier);
  if (options.topK > 0 && static_cast<size_t>(options.topK) < candidates.size())
    candidates.resize(static_cast<size_t>(options.topK));
  double highest = candidates.front().weight, sum = 0;
  if (highest == -INFINITY)
    return Status::error("every token is impossible at generated position {}", position);
  for (Candidate &candidate : candidates)
    sum += candidate.weight = std::exp((candidate.weight - highest) / options.temperature);
  if (options.topP < 1) {
    double kept = 0;
    size_t count = 0;
    while (count < candidates.size() && kept < options.topP * sum)
      kept += candidates[count++].weight;
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
