// Text as training data: the bytes of some files one after the other, cut in windows. Tokens are bytes.
#pragma once

#include "runtime/Expected.h"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace braid::runtime {

class Corpus {
public:
  static Expected<Corpus> load(std::span<const std::string> paths);
  explicit Corpus(std::vector<uint8_t> bytes) : data(std::move(bytes)) {}

  std::span<const uint8_t> bytes() const { return data; }
  size_t size() const { return data.size(); }

private:
  std::vector<uint8_t> data;
};

// The order in which training reads a corpus: windows of seqLen + 1 bytes (window w starts at byte w * seqLen; the last
// byte of one is the first of the next), every window once per epoch in an order that depends on (seed, epoch) only.
// Sample s is window permutation[s mod windows] of epoch s / windows, whatever the batch size and the number of ranks.
class WindowOrder {
public:
  static Expected<WindowOrder> create(size_t corpusBytes, int64_t seqLen, uint64_t seed);

  uint64_t windows() const { return windowCount; }
  uint64_t epoch(uint64_t sample) const { return sample / windowCount; }
  // First byte of the sample's window.
  size_t begin(uint64_t sample) const;

private:
  WindowOrder(uint64_t windows, int64_t seqLen, uint64_t seed) : windowCount(windows), seqLen(seqLen), seed(seed) {}

  uint64_t windowCount;
  int64_t seqLen;
  uint64_t seed;
};

// One row of a batch: tokens [begin, begin + T) and the byte after each as its label. Where the text ends earlier the
// label is -1 (ignored) and the token 0. Returns the number of labels that count.
int64_t fillRow(std::span<const uint8_t> text, size_t begin, std::span<int32_t> tokens, std::span<int32_t> labels);
// One document that fills the row: [0, T, T, ...].
void fillDocuments(std::span<int32_t> cuSeqlens, int64_t seqLen);

} // namespace braid::runtime
