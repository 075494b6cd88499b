// From logits to a token. The random number of position i depends on (seed, i) only: the same seed gives the same text.
// Probabilities are softmax(logits / temperature) in double precision over what topK and then topP leave (Holtzman et
// al. 2020, nucleus sampling). Errors: a negative or infinite temperature, topK < 0, topP outside (0, 1]; logits that
// are not finite.
#pragma once

#include "runtime/Expected.h"

#include <cstdint>
#include <span>
#include <vector>

namespace braid::runtime {

struct SamplerOptions {
  double temperature = 0; // 0: greedy, the most likely token (of equal ones the lowest)
  int64_t topK = 0; // only the k most likely tokens; 0: all
  double topP = 1; // only the most likely tokens that together reach probability p
  uint64_t seed = 0;
};

class Sampler {
public:
  static constexpr double maxTemperature = 1e6; // all tokens are as likely long before

  // `limit`: tokens at and above it are never chosen (a vocabulary padded beyond the tokenizer's).
  static Expected<Sampler> create(const SamplerOptions &options, size_t vocabulary, size_t limit);

  // `position` counts the generated tokens from 0.
  Expected<int32_t> sample(std::span<const float> logits, uint64_t position);

private:
  Sampler(const SamplerOptions &options, size_t limit) : options(options), limit(limit) {}

  SamplerOptions options;
  size_t limit;
  struct Candidate {
    double weight;
    int32_t token;
  };
  std::vector<Candidate> candidates;
};

} // namespace braid::runtime
