#include "runtime/train/Bigram.h"

#include <cmath>
#include <fmt/format.h>

namespace braid::runtime {

BigramModel::BigramModel(std::span<const uint8_t> training) : pairs(256 * 256), totals(256), singles(256) {
  for (size_t i = 0; i < training.size(); ++i) {
    ++singles[training[i]];
    if (i + 1 < training.size()) {
      ++pairs[training[i] * 256 + training[i + 1]];
      ++totals[training[i]];
    }
  }
  total = training.size();
}

double BigramModel::addOne(uint8_t previous, uint8_t next) const {
  return (static_cast<double>(pairs[previous * 256 + next]) + 1) / (static_cast<double>(totals[previous]) + 256);
}

double BigramModel::interpolated(uint8_t previous, uint8_t next, double weight) const {
  double single = (static_cast<double>(singles[next]) + 1) / (static_cast<double>(total) + 256);
  if (totals[previous] == 0)
    return single;
  double pair = static_cast<double>(pairs[previous * 256 + next]) / static_cast<double>(totals[previous]);
  return weight * pair + (1 - weight) * single;
}

BigramModel::Result BigramModel::evaluate(std::span<const uint8_t> heldout) const {
  Result best;
  if (heldout.size() < 2)
    return best;
  best.bytes = heldout.size() - 1;
  // The text enters only through the counts of its pairs.
  std::vector<uint64_t> counts(256 * 256);
  for (size_t i = 0; i + 1 < heldout.size(); ++i)
    ++counts[heldout[i] * 256 + heldout[i + 1]];
  auto mean = [&](auto &&probability) {
    double sum = 0;
    for (size_t pair = 0; pair < counts.size(); ++pair)
      if (counts[pair])
        sum -= static_cast<double>(counts[pair]) *
               std::log(probability(static_cast<uint8_t>(pair / 256), static_cast<uint8_t>(pair % 256)));
    return sum / static_cast<double>(best.bytes);
  };
  best.nats = mean([&](uint8_t a, uint8_t b) { return addOne(a, b); });
  best.smoothing = "add-one";
  for (double weight : {0.5, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.998, 0.999}) {
    double nats = mean([&](uint8_t a, uint8_t b) { return interpolated(a, b, weight); });
    if (nats < best.nats) {
      best.nats = nats;
      best.smoothing = fmt::format("interpolated ({})", weight);
    }
  }
  return best;
}

} // namespace braid::runtime
