// Which tokens of a row the ranks along `sp` hold. Every token slice of the row is divided into one stripe per rank, in
// rank order, so that slice i depends on slices <= i on all ranks and causal work is balanced; a row that is not sliced
// is one slice. Tokens, labels and the documents that the program computes from its coordinate all follow it.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace braid::runtime {

struct SequenceLayout {
  int64_t length = 0; // tokens of a row, on all ranks
  int64_t ranks = 1; // along sp
  std::vector<int64_t> slices; // 0 < .. < length: where slices end, without the last; multiples of `ranks`

  int64_t localLength() const { return length / ranks; }

  // Calls f(begin, local, count) for every stripe of a rank: tokens [begin, begin + count) of the row are its tokens
  // [local, local + count).
  template <typename F> void stripes(int64_t rank, F &&f) const {
    assert(rank >= 0 && rank < ranks && length % ranks == 0);
    int64_t begin = 0;
    for (std::size_t i = 0; i <= slices.size(); ++i) {
      int64_t end = i < slices.size() ? slices[i] : length, count = (end - begin) / ranks;
      assert((end - begin) % ranks == 0);
      f(begin + rank * count, begin / ranks, count);
      begin = end;
    }
  }
};

} // namespace braid::runtime
