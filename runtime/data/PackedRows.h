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

// The pieces of one row, in the order of the corpus.
class RowPieces {
public:
  explicit RowPieces(Piece only) : only(only) {}
  explicit RowPieces(std::span<const Piece> shared) : shared(shared) {}

  const Piece *begin() const { return shared.empty() ? &only : shared.data(); }
  const Piece *end() const { return begin() + size(); }
  size_t size() const { return shared.empty() ? 1 : shared.size(); }
  const Piece &front() const { return *begin(); }

private:
  Piece only{};
  std::span<const Piece> shared;
};

// Rows are numbered in the order of their first tokens. A full row is found from where its document begins and is not
// stored: memory grows with the number of documents, not of tokens.
class PackedRows {
public:
  static Expected<PackedRows> pack(const Corpus &corpus, int64_t seqLen, int64_t maxDocuments);
  // An error where pack() would find nothing to predict.
  static Status checkPairs(const Corpus &corpus);

  uint64_t size() const { return fullRows + packedAt.size(); }
  RowPieces pieces(uint64_t row) const;
  // Labels that count: of one row, of all rows.
  uint64_t labels(uint64_t row) const;
  uint64_t labels() const { return total; }

  // One row of a batch: every piece is a document of cu_seqlens; behind the last one tokens are 0 and labels -1.
  Status fill(const Corpus &corpus, uint64_t row, std::span<int32_t> tokens, std::span<int32_t> labels,
              std::span<int32_t> cuSeqlens) const;
  // A row of padding alone.
  static void fillPadding(std::span<int32_t> tokens, std::span<int32_t> labels, std::span<int32_t> cuSeqlens);

private:
  // The full pieces of one document: number `first` of all full pieces begins at token `begin`, and so on.
  struct FullRun {
    uint64_t begin, first;
  };
  uint64_t fullBefore(uint64_t token) const;

  uint64_t seqLen = 1;
  std::vector<FullRun> runs;      // of documents that have full pieces
  uint64_t fullRows = 0;
  std::vector<uint64_t> packedAt; // the number of every packed row
  std::vector<uint64_t> ends;     // of every packed row, in `shorter`
  std::vector<Piece> shorter;     // packed row after packed row, in a row as in the corpus
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
