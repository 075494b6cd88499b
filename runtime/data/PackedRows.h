// Documents packed into the rows of a batch, and the order in which training reads the rows.
//
// A document of n tokens gives n - 1 pairs (token, next token), in pieces of at most seqLen pairs. A piece of seqLen
// pairs fills a row. The others, all shorter, go by best fit, longest first, into as few rows as that finds, at most
// maxDocuments to a row; the rest of a row is padding. So every pair stands in exactly one row and no piece is cut;
// which pieces share a row depends on the documents, seqLen and maxDocuments only.
#pragma once

#include "runtime/Expected.h"
#include "runtime/data/Corpus.h"

namespace braid::runtime {

struct Piece {
  uint64_t begin;  // first token
  uint32_t pairs;  // tokens [begin, begin + pairs); the last one's label is token begin + pairs
};

class PackedRows {
public:
  static Expected<PackedRows> pack(const Corpus &corpus, int64_t seqLen, int64_t maxDocuments);

  uint64_t size() const { return ends.size(); }
  std::span<const Piece> pieces(uint64_t row) const {
    uint64_t first = row ? ends[row - 1] : 0;
    return std::span(all).subspan(first, ends[row] - first);
  }
  // Labels that count: of one row, of all rows.
  uint64_t labels(uint64_t row) const;
  uint64_t labels() const { return total; }

  // One row of a batch: every piece is a document of cu_seqlens; behind the last one tokens are 0 and labels -1.
  void fill(const Corpus &corpus, uint64_t row, std::span<int32_t> tokens, std::span<int32_t> labels,
            std::span<int32_t> cuSeqlens) const;
  // A row of padding alone.
  static void fillPadding(std::span<int32_t> tokens, std::span<int32_t> labels, std::span<int32_t> cuSeqlens);

private:
  std::vector<Piece> all;     // row after row, in a row as in the corpus
  std::vector<uint64_t> ends; // of each row, in `all`
  uint64_t total = 0;
};

// The order of a run: every row once per epoch, in an order that depends on (seed, epoch) only. Sample s is the same
// whatever the batch size, the number of ranks and the step at which the run began.
class SampleOrder {
public:
  SampleOrder(uint64_t rows, uint64_t seed) : rows(rows), seed(seed) {}

  // Samples of a step are position + [0, global batch); a rank takes `batch` of them, in the order of dp.
  static uint64_t sample(uint64_t position, int64_t dpCoordinate, int64_t batch, int64_t row) {
    return position + static_cast<uint64_t>(dpCoordinate * batch + row);
  }
  uint64_t epoch(uint64_t sample) const { return sample / rows; }
  uint64_t row(uint64_t sample) const;
  // Positions from here on have no permutation of their own.
  uint64_t limit() const;

private:
  uint64_t rows, seed;
};

} // namespace braid::runtime
