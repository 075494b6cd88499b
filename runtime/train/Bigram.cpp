#include "runtime/train/Bigram.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>

namespace braid::runtime {

namespace {

// Calls f(token, the one before it in its document or -1) for every token, in order.
template <class F> Status forEachPair(const Corpus &corpus, F &&f) {
  uint64_t at = 0, document = 0;
  int64_t previous = -1;
  return corpus.forEach(0, corpus.size(), [&](std::span<const int32_t> tokens) {
    for (int32_t token : tokens) {
      if (document < corpus.documents() && at == corpus.end(document)) {
        previous = -1;
        ++document;
      }
      f(token, previous);
      previous = token;
      ++at;
    }
  });
}

uint64_t pairOf(int64_t previous, int32_t next) {
  return static_cast<uint64_t>(previous) << 32 | static_cast<uint64_t>(next);
}

} // namespace

BigramModel::BigramModel(const Corpus &training)
    : totals(static_cast<size_t>(training.vocabulary())), singles(totals.size()),
      vocabulary(static_cast<double>(training.vocabulary())), total(static_cast<double>(training.size())) {}

Status BigramModel::count(const Corpus &training, const Pairs &asked) {
  for (const auto &[pair, times] : asked)
    pairs.emplace(pair, 0);
  return forEachPair(training, [&](int32_t token, int64_t previous) {
    ++singles[static_cast<size_t>(token)];
    if (previous < 0)
      return;
    ++totals[static_cast<size_t>(previous)];
    if (auto found = pairs.find(pairOf(previous, token)); found != pairs.end())
      ++found->second;
  });
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

Expected<BigramModel::Result> BigramModel::evaluate(const Corpus &training, const Corpus &heldout) {
  Pairs counted;
  BRAID_TRY(forEachPair(heldout, [&](int32_t token, int64_t previous) {
    if (previous >= 0)
      ++counted[pairOf(previous, token)];
  }));
  BigramModel model(training);
  BRAID_TRY(model.count(training, counted));
  return model.bestOf(counted);
}

BigramModel::Result BigramModel::bestOf(const Pairs &counted) const {
  Result best;
  // The data enters only through the counts of its pairs; sorted, so that sums do not depend on a hash.
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
