//===- LayerPlan.cpp - finding the period of the layers -----------------------------------------------------------===//
#include "frontend/LayerPlan.h"
#include <algorithm>
#include <limits>
#include <tuple>

using namespace braid;

/// Layers that are equal have equal ones: letters, recomputation, slices, and the number of one that stands alone.
using Signature = std::tuple<std::string, char, char, bool, int64_t, int64_t>;

/// Runs of equal neighbours in [begin, end).
static int64_t countRuns(const std::vector<Signature> &layers, int64_t begin, int64_t end) {
  int64_t runs = 0;
  for (int64_t i = begin; i < end; ++i)
    runs += i == begin || layers[i] != layers[i - 1];
  return runs;
}

/// One group: layers [begin, begin + period) and the same again `rounds` times.
static LayerGroup makeGroup(const std::vector<Signature> &layers, int64_t begin, int64_t period, int64_t rounds) {
  LayerGroup group{rounds, {}};
  for (int64_t i = begin; i < begin + period;) {
    int64_t end = i;
    while (end < begin + period && layers[end] == layers[i])
      ++end;
    const auto &[mixers, ffn, inject, recompute, overlapDegree, alone] = layers[i];
    LayerRun run{mixers, ffn, inject, recompute, overlapDegree, end - i, {}};
    for (int64_t round = 0; round < rounds; ++round)
      for (int64_t l = i; l < end; ++l)
        run.layers.push_back(static_cast<int32_t>(l + round * period));
    group.runs.push_back(std::move(run));
    i = end;
  }
  return group;
}

/// Appends the groups of layers [first, n).
static void planFrom(const std::vector<Signature> &layers, int64_t first, std::vector<LayerGroup> &groups) {
  auto n = static_cast<int64_t>(layers.size());
  struct Choice {
    int64_t cost, prefix, period, rounds;
  } best{countRuns(layers, first, n), first, n - first, 1};
  // Models begin with a few special layers at most, and periods are short: bounded search.
  for (int64_t prefix = first; prefix < std::min<int64_t>(n, first + 16); ++prefix) {
    for (int64_t period = 1; period <= std::min<int64_t>((n - prefix) / 2, 128); ++period) {
      int64_t end = prefix + period;
      while (end < n && layers[end] == layers[end - period])
        ++end;
      int64_t rounds = (end - prefix) / period;
      if (rounds < 2)
        continue;
      int64_t after = prefix + rounds * period;
      int64_t cost =
          countRuns(layers, first, prefix) + countRuns(layers, prefix, prefix + period) + countRuns(layers, after, n);
      if (cost < best.cost)
        best = {cost, prefix, period, rounds};
    }
  }
  if (best.prefix > first)
    groups.push_back(makeGroup(layers, first, best.prefix - first, 1));
  groups.push_back(makeGroup(layers, best.prefix, best.period, best.rounds));
  // What follows may have a period of its own: half of a deep stack recomputes, the other half does not.
  if (int64_t after = best.prefix + best.period * best.rounds; after < n)
    planFrom(layers, after, groups);
}

std::vector<LayerGroup> braid::planLayers(const ModelSpec &spec, int64_t begin, int64_t end) {
  std::vector<Signature> layers;
  auto overlapDegreeOf = [&](int64_t layer) -> int64_t {
    auto own = spec.schedule.overlapDegrees.find(layer);
    return own == spec.schedule.overlapDegrees.end() || own->second == spec.schedule.overlapDegree ? 0 : own->second;
  };
  for (const std::string &mixers : spec.mixersOfLayers()) {
    auto l = static_cast<int64_t>(layers.size());
    char inject = spec.injectOf(l);
    layers.emplace_back(mixers, spec.ffnOf(l), inject, spec.schedule.recomputes(l), overlapDegreeOf(l),
                        inject == noPart ? -1 : l);
  }
  std::vector<LayerGroup> groups;
  layers.resize(end);
  if (begin < end)
    planFrom(layers, begin, groups);
  return groups;
}

std::vector<int64_t> braid::shareOut(const std::vector<double> &costs, double last, int64_t stages) {
  auto layers = static_cast<int64_t>(costs.size());
  std::vector<double> sums = {0};
  for (double cost : costs)
    sums.push_back(sums.back() + cost);
  // best[s][l]: of layers [0, l) on s stages the cost of the dearest, and where the last of them begins. Of equals the one with
  // more even stages, by the sum of squares.
  using Choice = std::tuple<double, double, int64_t>;
  constexpr double never = std::numeric_limits<double>::infinity();
  std::vector<std::vector<Choice>> best(stages + 1, std::vector<Choice>(layers + 1, {never, never, 0}));
  best[0][0] = {0, 0, 0};
  for (int64_t s = 1; s <= stages; ++s) {
    bool isLast = s == stages;
    for (int64_t l = isLast ? layers : s; l <= layers; ++l)
      for (int64_t begin = s - 1; isLast ? begin <= l : begin < l; ++begin) {
        auto [dearest, squares, at] = best[s - 1][begin];
        double cost = sums[l] - sums[begin] + (isLast ? last : 0);
        best[s][l] = std::min(best[s][l], Choice{std::max(dearest, cost), squares + cost * cost, begin});
      }
  }
  std::vector<int64_t> begins = {layers};
  for (int64_t s = stages; s > 0; --s)
    begins.insert(begins.begin(), std::get<2>(best[s][begins.front()]));
  return begins;
}

double braid::stepCost(const std::vector<double> &costs, double last, double each, double exchanges,
                       const std::vector<int64_t> &begins, int64_t microBatches) {
  double sum = each + exchanges, dearest = 0;
  for (size_t s = 0; s + 1 < begins.size(); ++s) {
    double own =
        std::accumulate(costs.begin() + begins[s], costs.begin() + begins[s + 1], s + 2 == begins.size() ? last : 0.0);
    sum += own;
    dearest = std::max(dearest, own);
  }
  return sum + static_cast<double>(microBatches - 1) * std::max(dearest + each, exchanges);
}
