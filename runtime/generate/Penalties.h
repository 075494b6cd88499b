// What is added to logits before a token is drawn, by the tokens of a text so far: penalties as other servers have them, and
// numbers for tokens by themselves. With c the number of times that a token was drawn:
//   bias        plus b of the token
//   repetition  a logit above 0 is divided by r, another multiplied, where the token stands in the prompt or was drawn
//               (Keskar et al. 2019, 1909.05858)
//   presence    minus p where c > 0; frequency: minus f c (OpenAI's API; tokens of the prompt do not count)
// in this order, which is vLLM's. All are none unless they are said. Errors: a number out of its range, a token that is none.
#pragma once

#include "runtime/Expected.h"

#include <cstdint>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

namespace braid::runtime {

struct PenaltyOptions {
  static constexpr double minRepetition = 1e-3, maxRepetition = 1e3, maxAmount = 2, maxBias = 100;
  double repetition = 1; // 0.001 to 1000
  double presence = 0, frequency = 0; // -2 to 2
  std::vector<std::pair<int32_t, double>> bias = {}; // -100 to 100, each token once

  bool areNone() const { return repetition == 1 && presence == 0 && frequency == 0 && bias.empty(); }
};

class Penalties {
public:
  static Expected<Penalties> create(const PenaltyOptions &options, size_t vocabulary);

  bool areNone() const { return options.areNone(); }
  void read(std::span<const int32_t> prompt);
  void drawn(int32_t token);
  // Tokens beyond the logits are left out.
  void apply(std::span<float> logits) const;

private:
  explicit Penalties(const PenaltyOptions &options) : options(options) {}

  PenaltyOptions options;
  std::unordered_map<int32_t, uint64_t> counts; // how often each was drawn; 0: it stands in the prompt
};

} // namespace braid::runtime
