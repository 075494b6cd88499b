// The baseline every language model must beat: P(token | previous token), counted on the training data within its
// documents, V tokens in the vocabulary. Two ways of smoothing are tried and the better one on the held-out data is
// taken (the choice favours the baseline):
//   add-one        (n(a, b) + 1) / (n(a) + V)
//   interpolated   w * n(a, b) / n(a) + (1 - w) * (n(b) + 1) / (n + V), for several w
#pragma once

#include "runtime/Expected.h"
#include "runtime/data/Corpus.h"

#include <string>
#include <unordered_map>

namespace braid::runtime {

class BigramModel {
public:
  struct Result {
    double nats = 0;       // mean cross-entropy per predicted token
    uint64_t tokens = 0;   // predicted: all but the first of each document
    std::string smoothing; // "add-one", "interpolated (0.99)"
  };
  // Of the model counted on `training`. Memory grows with the pairs of `heldout`, not of `training`.
  static Expected<Result> evaluate(const Corpus &training, const Corpus &heldout);

private:
  // Pairs of neighbours in a document, as previous << 32 | next, and how often each comes.
  using Pairs = std::unordered_map<uint64_t, uint64_t>;
  explicit BigramModel(const Corpus &training);
  // Only the pairs that are in `asked`: no other is ever looked up.
  Status count(const Corpus &training, const Pairs &asked);
  Result bestOf(const Pairs &counted) const;
  double addOne(uint64_t pair) const;
  double interpolated(uint64_t pair, double weight) const;
  uint64_t pairCount(uint64_t pair) const;

  Pairs pairs;
  std::vector<uint64_t> totals;  // of each token with a successor
  std::vector<uint64_t> singles; // of each token
  double vocabulary;
  double total;
};

} // namespace braid::runtime
