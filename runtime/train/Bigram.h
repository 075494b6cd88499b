// The baseline every language model must beat: P(byte | previous byte), counted on the training text. Two ways of
// smoothing are tried and the better one on the held-out text is taken (the choice favours the baseline):
//   add-one        (n(a, b) + 1) / (n(a) + 256)
//   interpolated   w * n(a, b) / n(a) + (1 - w) * (n(b) + 1) / (n + 256), for several w
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace braid::runtime {

class BigramModel {
public:
  explicit BigramModel(std::span<const uint8_t> training);

  struct Result {
    double nats = 0;      // mean cross-entropy per predicted byte
    uint64_t bytes = 0;   // predicted: all but the first
    std::string smoothing; // "add-one", "interpolated (0.99)"
  };
  Result evaluate(std::span<const uint8_t> heldout) const;

private:
  double addOne(uint8_t previous, uint8_t next) const;
  double interpolated(uint8_t previous, uint8_t next, double weight) const;

  std::vector<uint64_t> pairs;   // [previous][next]
  std::vector<uint64_t> totals;  // of each previous byte
  std::vector<uint64_t> singles; // of each byte
  uint64_t total = 0;
};

} // namespace braid::runtime
