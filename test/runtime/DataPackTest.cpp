// Documents in rows: every pair once, borders where they belong, the same samples for any number of ranks.
#include "runtime/data/BatchChecks.h"
#include "runtime/data/PackedRows.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

namespace braid::runtime::test {
namespace {

Corpus corpusOf(std::span<const uint64_t> lengths) {
  Corpus corpus(INT32_MAX, /*text=*/false);
  uint32_t next = 0; // every token is another: a pair says where it comes from
  for (uint64_t length : lengths) {
    for (uint64_t i = 0; i < length; ++i)
      corpus.append(std::span<const uint32_t>(std::vector<uint32_t>{next++}));
    corpus.endDocument();
  }
  return corpus;
}

struct Row {
  std::vector<int32_t> tokens, labels, cu;
  Row(const Corpus &corpus, const PackedRows &rows, uint64_t row, int64_t seqLen, int64_t maxDocuments)
      : tokens(static_cast<size_t>(seqLen), 77), labels(tokens), cu(static_cast<size_t>(maxDocuments) + 1, 77) {
    EXPECT_TRUE(rows.fill(corpus, row, tokens, labels, cu).ok());
  }
};

TEST(DataPack, EveryPairStandsInOneRow) {
  std::mt19937 random(11);
  for (int round = 0; round < 60; ++round) {
    int64_t seqLen = 1 + random() % 40, maxDocuments = 1 + random() % 6;
    std::vector<uint64_t> lengths(1 + random() % 60);
    for (uint64_t &length : lengths)
      length = random() % 3 ? random() % 25 : random() % 200;
    lengths.push_back(2); // at least one pair
    Corpus corpus = corpusOf(lengths);
    auto rows = PackedRows::pack(corpus, seqLen, maxDocuments);
    ASSERT_TRUE(rows) << rows.message();
    std::map<int32_t, int> seen;
    for (uint64_t r = 0; r < rows->size(); ++r) {
      Row row(corpus, *rows, r, seqLen, maxDocuments);
      EXPECT_TRUE(checkCuSeqlens(row.cu, maxDocuments + 1, seqLen, {}).ok());
      EXPECT_EQ(row.cu.front(), 0);
      EXPECT_GT(row.cu.back(), 0);
      EXPECT_EQ(static_cast<uint64_t>(row.cu.back()), rows->labels(r));
      for (int64_t i = 0; i < seqLen; ++i) {
        size_t at = static_cast<size_t>(i);
        bool padding = i >= row.cu.back();
        EXPECT_EQ(row.labels[at], padding ? -1 : row.tokens[at] + 1);
        if (padding)
          EXPECT_EQ(row.tokens[at], 0);
        else
          ++seen[row.tokens[at]];
        // A token that does not follow the one before it begins a document of the row.
        if (!padding && i > 0 && row.tokens[at] != row.tokens[at - 1] + 1) {
          EXPECT_NE(std::find(row.cu.begin(), row.cu.end(), i), row.cu.end());
        }
      }
    }
    uint64_t pairs = 0;
    for (uint64_t d = 0; d < corpus.documents(); ++d) {
      pairs += corpus.end(d) - corpus.begin(d) - 1;
      for (uint64_t i = corpus.begin(d); i + 1 < corpus.end(d); ++i)
        EXPECT_EQ(seen[static_cast<int32_t>(i)], 1) << i;
    }
    EXPECT_EQ(seen.size(), pairs);
    EXPECT_EQ(rows->labels(), pairs);
  }
}

// The rule of PackedRows.h by the simplest code: all rows made, then sorted by their first token.
std::vector<std::vector<Piece>> plainRows(const Corpus &corpus, uint64_t seqLen, size_t maxDocuments) {
  std::vector<std::vector<Piece>> rows;
  std::vector<Piece> shorter;
  for (uint64_t d = 0; d < corpus.documents(); ++d)
    for (uint64_t at = corpus.begin(d), last = corpus.end(d) - 1; at < last; at += seqLen) {
      Piece piece{at, static_cast<uint32_t>(std::min(last - at, seqLen))};
      if (piece.pairs == seqLen)
        rows.push_back({piece});
      else
        shorter.push_back(piece);
    }
  std::sort(shorter.begin(), shorter.end(),
            [](auto &a, auto &b) { return a.pairs != b.pairs ? a.pairs > b.pairs : a.begin < b.begin; });
  std::vector<std::pair<uint64_t, std::vector<Piece>>> open; // free space; of equal ones the last opened is taken
  uint64_t clock = 0;
  std::vector<uint64_t> touched;
  for (const Piece &piece : shorter) {
    size_t best = SIZE_MAX;
    for (size_t i = 0; i < open.size(); ++i)
      if (open[i].first >= piece.pairs && open[i].second.size() < maxDocuments &&
          (best == SIZE_MAX || open[i].first < open[best].first ||
           (open[i].first == open[best].first && touched[i] > touched[best])))
        best = i;
    if (best == SIZE_MAX) {
      best = open.size();
      open.push_back({seqLen, {}});
      touched.push_back(0);
    }
    open[best].first -= piece.pairs;
    open[best].second.push_back(piece);
    touched[best] = ++clock;
  }
  for (auto &[space, row] : open) {
    std::sort(row.begin(), row.end(), [](auto &a, auto &b) { return a.begin < b.begin; });
    rows.push_back(row);
  }
  std::sort(rows.begin(), rows.end(), [](auto &a, auto &b) { return a[0].begin < b[0].begin; });
  return rows;
}

TEST(DataPack, RowsAreThoseOfThePlainRule) {
  std::mt19937 random(21);
  for (int round = 0; round < 150; ++round) {
    int64_t seqLen = 1 + random() % 20, maxDocuments = 1 + random() % 5;
    std::vector<uint64_t> lengths(random() % 40);
    for (uint64_t &length : lengths)
      length = random() % 4 ? random() % 30 : random() % 150;
    lengths.push_back(2 + random() % 90);
    Corpus corpus = corpusOf(lengths);
    auto rows = PackedRows::pack(corpus, seqLen, maxDocuments);
    ASSERT_TRUE(rows) << rows.message();
    auto plain = plainRows(corpus, static_cast<uint64_t>(seqLen), static_cast<size_t>(maxDocuments));
    ASSERT_EQ(rows->size(), plain.size());
    for (uint64_t r = 0; r < plain.size(); ++r) {
      RowPieces pieces = rows->pieces(r);
      ASSERT_EQ(pieces.size(), plain[r].size()) << "round " << round << " row " << r;
      for (size_t i = 0; i < plain[r].size(); ++i) {
        EXPECT_EQ(pieces.begin()[i].begin, plain[r][i].begin);
        EXPECT_EQ(pieces.begin()[i].pairs, plain[r][i].pairs);
      }
    }
  }
}

TEST(DataPack, RowsAreFullWhereDocumentsAllowIt) {
  std::vector<uint64_t> lengths;
  std::mt19937 random(2);
  for (int i = 0; i < 300; ++i)
    lengths.push_back(2 + random() % 60);
  Corpus corpus = corpusOf(lengths);
  auto rows = PackedRows::pack(corpus, 32, 100);
  // No row could take the pieces of another one.
  std::vector<uint64_t> used;
  for (uint64_t r = 0; r < rows->size(); ++r)
    used.push_back(rows->labels(r));
  std::sort(used.begin(), used.end());
  EXPECT_GT(used[0] + used[1], 32u);
  // Best fit, longest first: within 11/9 of the best packing, here far closer.
  uint64_t least = (rows->labels() + 31) / 32;
  EXPECT_LE(rows->size(), least + least / 20 + 1);
  // With one document to a row every piece has its own.
  auto alone = PackedRows::pack(corpus, 32, 1);
  for (uint64_t r = 0; r < alone->size(); ++r)
    EXPECT_EQ(alone->pieces(r).size(), 1u);
}

TEST(DataPack, OneTextIsCutInWindows) {
  Corpus corpus(std::vector<uint8_t>{10, 20, 30, 40, 250, 60});
  auto rows = PackedRows::pack(corpus, 3, 2);
  ASSERT_EQ(rows->size(), 2u);
  Row first(corpus, *rows, 0, 3, 2), last(corpus, *rows, 1, 3, 2);
  EXPECT_EQ(first.tokens, (std::vector<int32_t>{10, 20, 30}));
  EXPECT_EQ(first.labels, (std::vector<int32_t>{20, 30, 40}));
  EXPECT_EQ(first.cu, (std::vector<int32_t>{0, 3, 3}));
  EXPECT_EQ(last.tokens, (std::vector<int32_t>{40, 250, 0}));
  EXPECT_EQ(last.labels, (std::vector<int32_t>{250, 60, -1}));
  EXPECT_EQ(last.cu, (std::vector<int32_t>{0, 2, 2}));
}

TEST(DataPack, NeedsOnePair) {
  std::vector<uint64_t> lengths = {1, 1, 0, 1};
  EXPECT_EQ(PackedRows::pack(corpusOf(lengths), 8, 2).message(),
            "the data has 3 tokens in 3 documents, but no document has the 2 that a prediction needs");
  EXPECT_EQ(PackedRows::pack(Corpus(), 8, 2).message(),
            "the data has 0 bytes in 0 documents, but no document has the 2 that a prediction needs");
}

TEST(DataPack, EpochsAreOrdersOfAllRows) {
  SampleOrder order(37, 5), other(37, 6);
  std::vector<std::vector<uint64_t>> epochs;
  for (uint64_t epoch = 0; epoch < 3; ++epoch) {
    std::vector<uint64_t> rows;
    for (uint64_t i = 0; i < 37; ++i) {
      EXPECT_EQ(order.epoch(epoch * 37 + i), epoch);
      rows.push_back(order.row(epoch * 37 + i));
    }
    EXPECT_EQ(std::set<uint64_t>(rows.begin(), rows.end()).size(), 37u);
    EXPECT_EQ(*std::max_element(rows.begin(), rows.end()), 36u);
    epochs.push_back(std::move(rows));
  }
  EXPECT_NE(epochs[0], epochs[1]);
  EXPECT_NE(epochs[1], epochs[2]);
  std::vector<uint64_t> seeded;
  for (uint64_t i = 0; i < 37; ++i)
    seeded.push_back(other.row(i));
  EXPECT_NE(epochs[0], seeded);
}

TEST(DataPack, RanksShareTheBatchOfOne) {
  // Steps of 12 rows across the ends of epochs of 37, in one rank or in several, begun anew at any step.
  SampleOrder order(37, 5);
  for (int64_t ranks : {1, 2, 3, 4, 6, 12})
    for (uint64_t step = 0; step < 10; ++step) {
      std::vector<uint64_t> rows, alone;
      std::set<uint64_t> samples;
      for (int64_t rank = 0; rank < ranks; ++rank)
        for (int64_t i = 0; i < 12 / ranks; ++i) {
          uint64_t sample = SampleOrder::sample(step * 12, rank, 12 / ranks, i);
          rows.push_back(order.row(sample));
          EXPECT_TRUE(samples.insert(sample).second);
        }
      for (int64_t i = 0; i < 12; ++i)
        alone.push_back(order.row(SampleOrder::sample(step * 12, 0, 12, i)));
      EXPECT_EQ(rows, alone);
    }
}

TEST(DataPack, TheHashSeesTokensAndBorders) {
  std::set<uint64_t> hashes;
  for (auto lengths : {std::vector<uint64_t>{4, 4}, {8}, {4, 5}, {5, 4}})
    hashes.insert(corpusOf(lengths).hash());
  hashes.insert(Corpus(std::vector<uint8_t>{0, 1, 2, 3, 4, 5, 6, 8}).hash());
  EXPECT_EQ(hashes.size(), 5u);
  std::vector<uint64_t> eight = {8}; // the same tokens in another width
  EXPECT_EQ(corpusOf(eight).hash(), Corpus(std::vector<uint8_t>{0, 1, 2, 3, 4, 5, 6, 7}).hash());
}

TEST(DataChecks, NamePlaceValueAndBound) {
  std::vector<int32_t> tokens = {0, 9, 3, -1, 5, 10};
  EXPECT_EQ(checkTokenValues("tokens", tokens, 3, 0, 10).message(),
            "tokens[1, 0] is -1, but the vocabulary has 0 to 9");
  EXPECT_EQ(checkTokenValues("labels", tokens, 3, -1, 10).message(),
            "labels[1, 2] is 10, but the vocabulary has 0 to 9 (-1: not counted)");
  EXPECT_TRUE(checkTokenValues("labels", tokens, 3, -1, 11).ok());
  auto check = [](std::vector<int32_t> cu, int64_t entries, std::optional<int64_t> context = {}) {
    return checkCuSeqlens(cu, entries, 8, context).message();
  };
  EXPECT_EQ(check({0, 8, 8, -3, 0, 5}, 3), "");
  EXPECT_EQ(check({-3, -1, 0}, 3), "");
  EXPECT_EQ(check({0, 8, 8, 1, 4, 5}, 3),
            "cu_seqlens[1, 0] is 1: the first entry must be 0, or -n where the row continues "
            "a document after n tokens");
  EXPECT_EQ(check({0, 5, 4}, 3), "cu_seqlens[0, 2] is 4, below the entry 5 before it: entries must not descend");
  EXPECT_EQ(check({-4, -3, -2}, 3),
            "cu_seqlens[0, 2] is -2: the last entry is the row's number of tokens and must not be "
            "negative");
  EXPECT_EQ(check({0, 5, 9}, 3), "cu_seqlens[0, 2] is 9, but a row has 8 tokens");
  EXPECT_EQ(check({-20, 4}, 2, 24), "");
  EXPECT_EQ(check({-20, 5}, 2, 24),
            "cu_seqlens[0] is -20 to 5: a sequence of 25 tokens, but the program was compiled for a "
            "context of 24");
  EXPECT_EQ(check({INT32_MIN, 8}, 2, 24).substr(0, 30), "cu_seqlens[0] is -2147483648 t");
}

} // namespace
} // namespace braid::runtime::test
