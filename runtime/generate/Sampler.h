// From logits to a token. The random number of position i depends on (seed, i) only: the same seed gives the same text.
// Probabilities are softmax(logits / temperature) over what minP, then topK and then topP leave (Holtzman et al. 2020, nucleus
// sampling), of logits with the penalties of Penalties.h; each is as exact as a logit, single precision, and their sums are double. Nothing is put in order that need
// not be: a draw takes a few passes over the logits. Errors: a negative or infinite temperature, topK < 0, topP outside
// (0, 1], minP outside [0, 1], those of penalties; logits that are not finite, but for -inf, which is a token that cannot follow.
#pragma once

#include "runtime/generate/Penalties.h"

#include <cstdint>
#include <span>
#include <vector>

namespace braid::runtime {

struct SamplerOptions {
  double temperature = 0; // 0: greedy, the most likely token (of equal ones the lowest)
  int64_t topK = 0; // only the k most likely tokens; 0: all
  double topP = 1; // only the most likely tokens that together reach probability p
  double minP = 0; // only tokens that are p times as likely as the most likely one, or more (2407.01082)
  uint64_t seed = 0;
  PenaltyOptions penalties = {};
};

class Sampler {
public:
  static constexpr double maxTemperature = 1e6; // all tokens are as likely long before

  // `limit`: tokens at and above it are never chosen (a vocabulary padded beyond the tokenizer's).
  static Expected<Sampler> create(const SamplerOptions &options, size_t vocabulary, size_t limit);

  // The tokens that stand before what is drawn.
  void read(std::span<const int32_t> prompt) { penalties.read(prompt); }

  // `position` counts the generated tokens from 0.
  Expected<int32_t> sample(std::span<const float> logits, uint64_t position);

private:
  Sampler(const SamplerOptions &options, size_t limit, Penalties penalties)
      : options(options), limit(limit), penalties(std::move(penalties)) {}
  // What a token weighs against the likeliest one: exp(scale * (logit - highest)).
  struct Weighing {
    float highest, scale, perGroup; // groups per scaled logit; where all tokens are grouped
  };
  struct Candidate {
    float logit, weight;
    int32_t token;
  };
  // What is drawn from: the first groups with all their tokens, then the first candidates.
  struct Kept {
    size_t groups, candidates;
    double weight;
  };
  static constexpr size_t blockLength = 256;
  struct Weighed {
    float weights[blockLength];
    int32_t groups[blockLength];
  };
  static void weigh(std::span<const float> block, const Weighing &weighing, Weighed &out);
  template <class Use>
  void walk(size_t group, std::span<const float> logits, const Weighing &weighing, Use &&use) const;
  Expected<int32_t> choose(std::span<const float> logits, uint64_t position);
  int32_t firstLargest(std::span<const float> logits);
  Kept keepLikeliest(std::span<const float> logits, const Weighing &weighing);
  Kept keepGroups(std::span<const float> logits, Weighing &weighing);
  std::pair<size_t, double> nucleus(double weight);

  SamplerOptions options;
  size_t limit;
  Penalties penalties;
  std::vector<float> adjusted; // logits with what penalties and minP make of them
  std::vector<float> maxima; // of each block of tokens
  std::vector<double> sums; // weights of each group: tokens that are about as likely, the likeliest first
  std::vector<Candidate> candidates;
};

} // namespace braid::runtime
