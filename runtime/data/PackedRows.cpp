#include "runtime/data/PackedRows.h"

#include "runtime/io/Words.h"
#include "runtime/train/Random.h"

#include <algorithm>
#include <cassert>
#include <map>

namespace braid::runtime {

namespace {

// Short pieces into rows: longest first, each into the fullest row that still takes it.
class BestFit {
public:
  BestFit(int64_t seqLen, int64_t maxDocuments) : seqLen(seqLen), maxDocuments(maxDocuments) {}

  // Row of each piece, and the number of rows. Equal lengths keep their order, so the result is the same everywhere.
  std::vector<uint64_t> pack(std::span<const Piece> pieces) {
    std::vector<uint64_t> order(pieces.size()), row(pieces.size());
    for (uint64_t i = 0; i < order.size(); ++i)
      order[i] = i;
    std::sort(order.begin(), order.end(), [&](uint64_t a, uint64_t b) {
      return pieces[a].pairs != pieces[b].pairs ? pieces[a].pairs > pieces[b].pairs : a < b;
    });
    for (uint64_t i : order)
      row[i] = place(pieces[i].pairs);
    return row;
  }

  uint64_t rows() const { return counts.size(); }

private:
  uint64_t place(uint32_t pairs) {
    auto found = open.lower_bound(pairs);
    uint64_t row = counts.size();
    int64_t space = seqLen;
    if (found == open.end()) {
      counts.push_back(0);
    } else {
      row = found->second.back();
      space = found->first;
      found->second.pop_back();
      if (found->second.empty())
        open.erase(found);
    }
    space -= pairs;
    if (++counts[row] < maxDocuments && space > 0)
      open[space].push_back(row);
    return row;
  }

  int64_t seqLen, maxDocuments;
  std::vector<int64_t> counts;                    // pieces of each row
  std::map<int64_t, std::vector<uint64_t>> open;  // rows that take more, by free space
};

} // namespace

Status PackedRows::checkPairs(const Corpus &corpus) {
  for (uint64_t document = 0; document < corpus.documents(); ++document)
    if (corpus.end(document) - corpus.begin(document) > 1)
      return Status::success();
  return Status::error("the data has {} in {}, but no document has the 2 that a prediction needs",
                       counted(corpus.size(), corpus.unit()), counted(corpus.documents(), "document"));
}

Expected<PackedRows> PackedRows::pack(const Corpus &corpus, int64_t seqLen, int64_t maxDocuments) {
  assert(seqLen > 0 && seqLen <= INT32_MAX && maxDocuments > 0);
  BRAID_TRY(checkPairs(corpus));
  PackedRows rows;
  rows.seqLen = static_cast<uint64_t>(seqLen);
  std::vector<Piece> shorter;
  for (uint64_t document = 0; document < corpus.documents(); ++document) {
    uint64_t begin = corpus.begin(document), pairs = corpus.end(document) - 1 - begin, full = pairs / rows.seqLen;
    if (full > 0)
      rows.runs.push_back({begin, rows.fullRows});
    rows.fullRows += full;
    if (uint64_t rest = pairs % rows.seqLen)
      shorter.push_back({begin + full * rows.seqLen, static_cast<uint32_t>(rest)});
    rows.total += pairs;
  }

  BestFit fit(seqLen, maxDocuments);
  std::vector<uint64_t> rowOf = fit.pack(shorter);
  // Packed rows in the order of their first tokens: pieces ascend, so a row's first piece is the first one seen.
  std::vector<uint64_t> rank(fit.rows(), UINT64_MAX), next;
  for (uint64_t i = 0; i < shorter.size(); ++i) {
    uint64_t &place = rank[rowOf[i]];
    if (place == UINT64_MAX) {
      place = next.size();
      next.push_back(0);
      rows.packedAt.push_back(place + rows.fullBefore(shorter[i].begin));
    }
    ++next[place];
  }
  // Counting sort of the pieces by row; a row's pieces stay in the order of the corpus.
  uint64_t sum = 0;
  for (uint64_t &pieces : next) {
    sum += pieces;
    rows.ends.push_back(sum);
    pieces = sum - pieces; // where the row begins
  }
  rows.shorter.resize(shorter.size());
  for (uint64_t i = 0; i < shorter.size(); ++i)
    rows.shorter[next[rank[rowOf[i]]]++] = shorter[i];
  return rows;
}

// Full pieces that begin before a token.
uint64_t PackedRows::fullBefore(uint64_t token) const {
  auto next =
      std::lower_bound(runs.begin(), runs.end(), token, [](const FullRun &run, uint64_t at) { return run.begin < at; });
  if (next == runs.begin())
    return 0;
  const FullRun &run = *std::prev(next);
  uint64_t end = next == runs.end() ? fullRows : next->first;
  return std::min(end, run.first + (token - run.begin + seqLen - 1) / seqLen);
}

RowPieces PackedRows::pieces(uint64_t row) const {
  assert(row < size());
  auto packed = std::lower_bound(packedAt.begin(), packedAt.end(), row);
  auto before = static_cast<size_t>(packed - packedAt.begin()); // packed rows
  if (packed != packedAt.end() && *packed == row) {
    uint64_t begin = before ? ends[before - 1] : 0;
    return RowPieces(std::span(shorter).subspan(begin, ends[before] - begin));
  }
  uint64_t full = row - before;
  auto run = std::prev(std::upper_bound(runs.begin(), runs.end(), full,
                                        [](uint64_t number, const FullRun &run) { return number < run.first; }));
  return RowPieces(Piece{run->begin + (full - run->first) * seqLen, static_cast<uint32_t>(seqLen)});
}

uint64_t PackedRows::labels(uint64_t row) const {
  uint64_t sum = 0;
  for (const Piece &piece : pieces(row))
    sum += piece.pairs;
  return sum;
}

Status PackedRows::fill(const Corpus &corpus, uint64_t row, std::span<int32_t> tokens, std::span<int32_t> labels,
                        std::span<int32_t> cuSeqlens) const {
  fillPadding(tokens, labels, cuSeqlens);
  size_t at = 0, document = 0;
  for (const Piece &piece : pieces(row)) {
    // Labels are the tokens one further on.
    BRAID_TRY(corpus.copy(piece.begin, tokens.subspan(at, 1)));
    BRAID_TRY(corpus.copy(piece.begin + 1, labels.subspan(at, piece.pairs)));
    std::copy_n(labels.data() + at, piece.pairs - 1, tokens.data() + at + 1);
    at += piece.pairs;
    cuSeqlens[++document] = static_cast<int32_t>(at);
  }
  std::fill(cuSeqlens.begin() + static_cast<ptrdiff_t>(document), cuSeqlens.end(), static_cast<int32_t>(at));
  return Status::success();
}

void PackedRows::fillPadding(std::span<int32_t> tokens, std::span<int32_t> labels, std::span<int32_t> cuSeqlens) {
  std::fill(tokens.begin(), tokens.end(), 0);
  std::fill(labels.begin(), labels.end(), -1);
  std::fill(cuSeqlens.begin(), cuSeqlens.end(), 0);
}

uint64_t SampleOrder::row(uint64_t sample) const {
  return permute(sample % rows, rows, seed, static_cast<uint32_t>(epoch(sample)));
}

// permute() takes 29 bits of the epoch.
uint64_t SampleOrder::limit() const { return rows > UINT64_MAX >> 29 ? UINT64_MAX : rows << 29; }

} // namespace braid::runtime
