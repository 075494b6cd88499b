// Slicings of schedules.md section 4.
#include "schedule/Slicing.h"
#include "test/schedule/Cases.h"

#include <cmath>
#include <gtest/gtest.h>
#include <numeric>

using namespace braid::schedule;
using namespace braid::schedule::test;

namespace {

using Slices = std::vector<int64_t>;
int64_t total(const Slices &slices) { return std::accumulate(slices.begin(), slices.end(), int64_t(0)); }

/// Algorithm 1 as it is written, with every candidate tried.
Slices published(int64_t length, int64_t degree, AttentionCost cost) {
  using Wide = __int128;
  auto flops = [&](int64_t l, int64_t c) {
    return Wide(4 * cost.dModel + 3 * cost.heads) * l * c + Wide(8) * cost.dModel * cost.dModel * l;
  };
  Wide sum = 0; // degree times the target
  for (int64_t i = 1; i <= length; ++i)
    sum += flops(1, i);
  int64_t m = (length + degree - 1) / degree;
  Slices slices = {m};
  for (int64_t start = m, n = 1; start < length; ++n) {
    int64_t end = std::min(length, std::max(start + 1, (n + 1) * m));
    if (length - end >= degree - n) {
      int64_t best = end;
      auto distance = [&](int64_t i) {
        Wide d = degree * flops(i - start, i) - sum;
        return d < 0 ? -d : d;
      };
      for (int64_t i = end; i <= length; ++i)
        if (distance(i) < distance(best))
          best = i;
      end = best;
    }
    slices.push_back(end - start);
    start = end;
  }
  return slices;
}

TEST(Slicing, TimeUniformIsThePublishedAlgorithm) {
  EXPECT_EQ(timeUniformSlices(32768, 8, {1024, 8}), (Slices{4096, 6145, 4498, 3687, 3190, 2960, 4096, 4096}));
  for (int64_t degree : {1, 2, 3, 4})
    EXPECT_EQ(timeUniformSlices(4096 * degree, degree, {1024, 8}), Slices(degree, 4096)) << degree;
  std::mt19937 random(1);
  for (int round = 0; round < 400; ++round) {
    int64_t degree = 1 + random() % 16, length = degree + random() % 700;
    AttentionCost cost{1 + int64_t(random() % 64), 1 + int64_t(random() % 8)};
    Slices slices = timeUniformSlices(length, degree, cost);
    ASSERT_EQ(slices, published(length, degree, cost)) << length << " / " << degree << ", H " << cost.dModel;
    ASSERT_EQ(total(slices), length);
    ASSERT_LE(static_cast<int64_t>(slices.size()), degree);
    // The token buffer: after j slices at least j / d of the tokens are there.
    int64_t seen = 0;
    for (size_t j = 0; j < slices.size(); ++j)
      ASSERT_GE((seen += slices[j]) * degree, static_cast<int64_t>(j + 1) * length);
  }
  EXPECT_EQ(timeUniformSlices(1 << 24, 16, {1 << 17, 4096}).size(), 16u) << "no number overflows";
}

TEST(Slicing, UniformDiffersByOneToken) {
  EXPECT_EQ(uniformSlices(10, 3), (Slices{3, 3, 4}));
  EXPECT_EQ(uniformSlices(128, 2), (Slices{64, 64}));
}

TEST(Slicing, BalancedSlicesCostTheSame) {
  for (int64_t degree : {2, 3, 4, 7, 8, 16}) {
    AttentionCost cost{1024, 8};
    Slices slices = balancedSlices(32768, degree, cost, 64);
    ASSERT_EQ(static_cast<int64_t>(slices.size()), degree);
    ASSERT_EQ(total(slices), 32768);
    double share = cost.of(0, 32768) / double(degree);
    int64_t start = 0;
    for (int64_t slice : slices) {
      EXPECT_EQ(start % 64, 0);
      EXPECT_NEAR(cost.of(start, start + slice) / share, 1, 0.04) << "slice at " << start << " of " << degree;
      start += slice;
    }
  }
  EXPECT_EQ(balancedSlices(100, 4, {8, 1}, 64), (Slices{64, 36})) << "two places to cut, two slices";
}

TEST(Slicing, SimulatedIsTheBestOnItsGrid) {
  // All ways to cut 8 cells in at most 3 slices, by the simulation of the schedule itself.
  for (double comm : {0.2, 1.0, 3.0}) {
    LayerTimes times{{16, 2}, 2.0, comm, 1.5, comm, 0.05};
    const int64_t length = 512, cells = 8, cell = length / cells;
    auto span = [&](const Slices &slices) {
      BlockTimes block;
      int64_t start = 0;
      for (int64_t slice : slices) {
        double part = double(slice) / double(length);
        block.A.push_back(times.mixer * times.cost.of(start, start + slice) / times.cost.of(0, length));
        block.D.push_back(times.dispatch * part);
        block.M.push_back(times.experts * part);
        block.C.push_back(times.combine * part);
        start += slice;
      }
      Stages stages = stagesOf(Pipeline::A1M1, {block});
      stages.computeOverhead = stages.commOverhead = times.overhead;
      return makespan(planStages(stages));
    };
    double least = span({length});
    for (int64_t i = 1; i < cells; ++i) {
      least = std::min(least, span({i * cell, length - i * cell}));
      for (int64_t j = i + 1; j < cells; ++j)
        least = std::min(least, span({i * cell, (j - i) * cell, length - j * cell}));
    }
    Slices slices = simulatedSlices(length, 3, times, 1, cells);
    EXPECT_EQ(total(slices), length);
    EXPECT_NEAR(span(slices), least, 1e-9 * least) << "communication " << comm;
  }
  // A long exchange and a large overhead: one slice is right.
  LayerTimes slow{{16, 2}, 0.1, 10, 0.1, 10, 5};
  EXPECT_EQ(simulatedSlices(512, 8, slow, 1), Slices{512});
}

} // namespace
