//===- LayerPlan.cpp - finding the period of the layers -----------------------------------------------------------===//
#include "frontend/LayerPlan.h"
#include <algorithm>

using namespace braid;

using Signature = std::tuple<std::string, char, bool, int64_t>;

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
    const auto &[mixers, ffn, recompute, overlapDegree] = layers[i];
    LayerRun run{mixers, ffn, recompute, overlapDegree, end - i, {}};
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

std::vector<LayerGroup> braid::planLayers(const ModelSpec &spec) {
  std::vector<Signature> layers;
  auto overlapDegreeOf = [&](int64_t layer) -> int64_t {
    auto own = spec.schedule.overlapDegrees.find(layer);
    return own == spec.schedule.overlapDegrees.end() || own->second == spec.schedule.overlapDegree ? 0 : own->second;
  };
  for (const std::string &mixers : spec.mixersOfLayers()) {
    auto l = static_cast<int64_t>(layers.size());
    layers.emplace_back(mixers, spec.ffnOf(l), spec.schedule.recomputes(l), overlapDegreeOf(l));
  }
  std::vector<LayerGroup> groups;
  planFrom(layers, 0, groups);
  return groups;
}
