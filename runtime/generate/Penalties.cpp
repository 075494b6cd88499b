#include "runtime/generate/Penalties.h"

#include <unordered_set>

namespace braid::runtime {

Expected<Penalties> Penalties::create(const PenaltyOptions &options, size_t vocabulary) {
  constexpr double most = PenaltyOptions::maxAmount, mostBias = PenaltyOptions::maxBias;
  constexpr double least = PenaltyOptions::minRepetition, greatest = PenaltyOptions::maxRepetition;
  if (!(options.repetition >= least && options.repetition <= greatest))
    return Status::error("repetition penalty: {}; valid: {} to {} (1: none)", options.repetition, least, greatest);
  for (auto [name, amount] : {std::pair("presence", options.presence), {"frequency", options.frequency}})
    if (!(amount >= -most && amount <= most))
      return Status::error("{} penalty: {}; valid: {} to {} (0: none)", name, amount, -most, most);
  std::unordered_set<int32_t> seen;
  for (auto [token, bias] : options.bias) {
    if (token < 0 || static_cast<size_t>(token) >= vocabulary)
      return Status::error("logit bias: of token {}; valid: 0 to {}", token, vocabulary - 1);
    if (!seen.insert(token).second)
      return Status::error("logit bias: of token {} twice; valid: once", token);
    if (!(bias >= -mostBias && bias <= mostBias))
      return Status::error("logit bias: {} of token {}; valid: {} to {}", bias, token, -mostBias, mostBias);
  }
  return Penalties(options);
}

void Penalties::read(std::span<const int32_t> prompt) {
  if (options.repetition == 1)
    return;
  for (int32_t token : prompt)
    counts.try_emplace(token, 0);
}

void Penalties::drawn(int32_t token) {
  if (options.repetition != 1 || options.presence != 0 || options.frequency != 0)
    ++counts[token];
}

void Penalties::apply(std::span<float> logits) const {
  for (auto [token, bias] : options.bias)
    if (static_cast<size_t>(token) < logits.size())
      logits[static_cast<size_t>(token)] += static_cast<float>(bias);
  auto repetition = static_cast<float>(options.repetition);
  for (auto [token, count] : counts) {
    if (static_cast<size_t>(token) >= logits.size())
      continue;
    float &logit = logits[static_cast<size_t>(token)];
    logit = logit > 0 ? logit / repetition : logit * repetition;
    if (count > 0)
      logit -= static_cast<float>(options.presence + options.frequency * static_cast<double>(count));
  }
}

} // namespace braid::runtime
