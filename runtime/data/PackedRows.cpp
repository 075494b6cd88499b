#include "runtime/data/PackedRows.h"

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

Expected<PackedRows> PackedRows::pack(const Corpus &corpus, int64_t seqLen, int64_t maxDocuments) {
  assert(seqLen > 0 && seqLen <= INT32_MAX && maxDocuments > 0);
  PackedRows rows;
  std::vector<Piece> full, shorter;
  for (uint64_t document = 0; document < corpus.documents(); ++document)
    for (uint64_t at = corpus.begin(document), last = corpus.end(document) - 1; at < last;) {
      uint64_t pairs = std::min<uint64_t>(last - at, static_cast<uint64_t>(seqLen));
      (pairs == static_cast<uint64_t>(seqLen) ? full : shorter).push_back({at, static_cast<uint32_t>(pairs)});
      rows.total += pairs;
      at += pairs;
    }
  if (rows.total == 0)
    return Status::error("the data has {} {}s in {} documents, but no document has the 2 that a prediction needs",
                         corpus.size(), corpus.unit(), corpus.documents());

  BestFit fit(seqLen, maxDocuments);
  std::vector<uint64_t> rowOf = fit.pack(shorter);
  // Counting sort of the pieces by row; a row's pieces stay in the order of the corpus.
  std::vector<uint64_t> next(fit.rows() + 1);
  for (uint64_t row : rowOf)
    ++next[row + 1];
  for (uint64_t row = 0; row < fit.rows(); ++row)
    next[row + 1] += next[row];
  std::vector<Piece> packed(shorter.size());
  std::vector<uint64_t> starts(next.begin(), next.end());
  for (uint64_t i = 0; i < shorter.size(); ++i)
    packed[next[rowOf[i]]++] = shorter[i];

  // All rows in the order of their first tokens.
  std::vector<uint64_t> order(fit.rows());
  for (uint64_t row = 0; row < order.size(); ++row)
    order[row] = row;
  std::sort(order.begin(), order.end(),
            [&](uint64_t a, uint64_t b) { return packed[starts[a]].begin < packed[starts[b]].begin; });
  rows.all.reserve(full.size() + packed.size());
  rows.ends.reserve(full.size() + order.size());
  auto piece = full.begin();
  auto row = order.begin();
  while (piece != full.end() || row != order.end()) {
    if (row == order.end() || (piece != full.end() && piece->begin < packed[starts[*row]].begin)) {
      rows.all.push_back(*piece++);
    } else {
      rows.all.insert(rows.all.end(), packed.begin() + static_cast<ptrdiff_t>(starts[*row]),
                      packed.begin() + static_cast<ptrdiff_t>(starts[*row + 1]));
      ++row;
    }
    rows.ends.push_back(rows.all.size());
  }
  return rows;
}

uint64_t PackedRows::labels(uint64_t row) const {
  uint64_t sum = 0;
  for (const Piece &piece : pieces(row))
    sum += piece.pairs;
  return sum;
}

void PackedRows::fill(const Corpus &corpus, uint64_t row, std::span<int32_t> tokens, std::span<int32_t> labels,
                      std::span<int32_t> cuSeqlens) const {
  fillPadding(tokens, labels, cuSeqlens);
  size_t at = 0, document = 0;
  for (const Piece &piece : pieces(row)) {
    corpus.copy(piece.begin, tokens.subspan(at, piece.pairs));
    corpus.copy(piece.begin + 1, labels.subspan(at, piece.pairs));
    at += piece.pairs;
    cuSeqlens[++document] = static_cast<int32_t>(at);
  }
  std::fill(cuSeqlens.begin() + static_cast<ptrdiff_t>(document), cuSeqlens.end(), static_cast<int32_t>(at));
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
