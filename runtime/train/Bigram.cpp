#include "runtime/train/Bigram.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>

namespace braid::runtime {

BigramModel::Pairs BigramModel::count(const Corpus &corpus) {
  Pairs pairs;
  for (uint64_t document = 0; document < corpus.documents(); ++document) {
    uint64_t previous = static_cast<uint64_t>(corpus[corpus.begin(document)]);
    for (uint64_t i = corpus.begin(document) + 1; i < corpus.end(document); ++i) {
      uint64_t next = static_cast<uint64_t>(corpus[i]);
      ++pairs[previous << 32 | next];
      previous = next;
    }
  }
  return pairs;
}

BigramModel::BigramModel(const Corpus &training)
    : pairs(count(training)), totals(static_cast<size_t>(training.vocabulary())), singles(totals.size()),
      vocabulary(static_cast<double>(training.vocabulary())), total(static_cast<double>(training.size())) {
  for (uint64_t i = 0; i < training.size(); ++i)
    ++singles[static_cast<size_t>(training[i])];
  for (auto [pair, times] : pairs)
    totals[pair >> 32] += times;
}

uint64_t BigramModel::pairCount(uint64_t pair) const {
  auto found = pairs.find(pair);
  return found == pairs.end() ? 0 : found->second;
}

double BigramModel::addOne(uint64_t pair) const {
  return (static_cast<double>(pairCount(pair)) + 1) / (static_cast<double>(totals[pair >> 32]) + vocabulary);
}

double BigramModel::interpolated(uint64_t pair, double weight) const {
  double single = (static_cast<double>(singles[pair & UINT32_MAX]) + 1) / (total + vocabulary);
  uint64_t times = totals[pair >> 32];
  if (times == 0)
    return single;
  return weight * static_cast<double>(pairCount(pair)) / static_cast<double>(times) + (1 - weight) * single;
}

BigramModel::Result BigramModel::evaluate(const Corpus &heldout) const {
  Result best;
  // The data enters only through the counts of its pairs; sorted, so that sums do not depend on a hash.
  Pairs counted = count(heldout);
  std::vector<std::pair<uint64_t, uint64_t>> counts(counted.begin(), counted.end());
  std::sort(counts.begin(), counts.end());
  for (auto [pair, times] : counts)
    best.tokens += times;
  if (best.tokens == 0)
    return best;
  auto mean = [&](auto &&probability) {
    double sum = 0;
    for (auto [pair, times] : counts)
      sum -= static_cast<double>(times) * std::log(probability(pair));
    return sum / static_cast<double>(best.tokens);
  };
  best.nats = mean([&](uint64_t pair) { return addOne(pair); });
  best.smoothing = "add-one";
  for (double weight : {0.5, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.998, 0.999}) {
    double nats = mean([&](uint64_t pair) { return interpolated(pair, weight); });
    if (nats < best.nats) {
      best.nats = nats;
      best.smoothing = fmt::format("interpolated ({})", weight);
    }
  }
  return best;
}

} // namespace braid::runtime
