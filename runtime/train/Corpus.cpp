#include "runtime/train/Corpus.h"

#include "runtime/io/File.h"
#include "runtime/train/Random.h"

#include <algorithm>
#include <cassert>

namespace braid::runtime {

Expected<Corpus> Corpus::load(std::span<const std::string> paths) {
  std::vector<uint8_t> bytes;
  for (const std::string &path : paths) {
    BRAID_ASSIGN(InputFile file, InputFile::open(path));
    size_t begin = bytes.size();
    bytes.resize(begin + file.size());
    BRAID_TRY(file.read(0, std::as_writable_bytes(std::span(bytes).subspan(begin))));
  }
  return Corpus(std::move(bytes));
}

Expected<WindowOrder> WindowOrder::create(size_t corpusBytes, int64_t seqLen, uint64_t seed) {
  assert(seqLen > 0);
  size_t length = static_cast<size_t>(seqLen);
  if (corpusBytes < length + 1)
    return Status::error("the training text has {} bytes, but one window of the program's sequence length needs {}",
                         corpusBytes, length + 1);
  return WindowOrder((corpusBytes - 1) / length, seqLen, seed);
}

size_t WindowOrder::begin(uint64_t sample) const {
  uint64_t window = permute(sample % windowCount, windowCount, seed, static_cast<uint32_t>(epoch(sample)));
  return window * static_cast<size_t>(seqLen);
}

int64_t fillRow(std::span<const uint8_t> text, size_t begin, std::span<int32_t> tokens, std::span<int32_t> labels) {
  assert(tokens.size() == labels.size());
  int64_t counted = 0;
  for (size_t i = 0; i < tokens.size(); ++i) {
    size_t position = begin + i;
    bool counts = position + 1 < text.size();
    tokens[i] = position < text.size() ? text[position] : 0;
    labels[i] = counts ? text[position + 1] : -1;
    counted += counts;
  }
  return counted;
}

void fillDocuments(std::span<int32_t> cuSeqlens, int64_t seqLen) {
  std::fill(cuSeqlens.begin(), cuSeqlens.end(), static_cast<int32_t>(seqLen));
  if (!cuSeqlens.empty())
    cuSeqlens[0] = 0;
}

} // namespace braid::runtime
