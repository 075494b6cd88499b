//===- LayerPlan.cpp - finding the period of the layers -----------------------------------------------------------===//
#include "frontend/LayerPlan.h"
#include <algorithm>

using namespace braid;

using Signature = std::pair<char, char>;

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
    LayerRun run{layers[i].first, layers[i].second, end - i, {}};
    for (int64_t round = 0; round < rounds; ++round)
      for (int64_t l = i; l < end; ++l)
        run.layers.push_back(static_cast<int32_t>(l + round * period));
    group.runs.push_back(std::move(run));
    i = end;
  }
  return group;
}

std::vector<LayerGroup> braid::planLayers(const ModelSpec &spec) {
  int64_t n = spec.numLayers;
  std::vector<Signature> layers;
  for (int64_t l = 0; l < n; ++l)
    layers.emplace_back(spec.mixerOf(l), spec.ffnOf(l));

  struct Choice {
    int64_t cost, prefix, period, rounds;
  } best{countRuns(layers, 0, n), 0, n, 1};
  // Models begin with a few special layers at most, and periods are short: bounded search.
  for (int64_t prefix = 0; prefix < std::min<int64_t>(n, 16); ++prefix) {
    for (int64_t period = 1; period <= std::min<int64_t>((n - prefix) / 2, 128); ++period) {
      int64_t end = prefix + period;
      while (end < n && layers[end] == layers[end - period])
        ++end;
      int64_t rounds = (end - prefix) / period;
      if (rounds < 2)
        continue;
      int64_t after = prefix + rounds * period;
      int64_t cost =
          countRuns(layers, 0, prefix) + countRuns(layers, prefix, prefix + period) + countRuns(layers, after, n);
      if (cost < best.cost)
        best = {cost, prefix, period, rounds};
    }
  }
  std::vector<LayerGroup> groups;
  if (best.prefix)
    groups.push_back(makeGroup(layers, 0, best.prefix, 1));
  groups.push_back(makeGroup(layers, best.prefix, best.period, best.rounds));
  if (int64_t after = best.prefix + best.period * best.rounds; after < n)
    groups.push_back(makeGroup(layers, after, n - after, 1));
  return groups;
}
