// Stages that the tests share.
#ifndef TEST_SCHEDULE_CASES_H
#define TEST_SCHEDULE_CASES_H

#include "schedule/Stages.h"

#include <random>

namespace braid::schedule::test {

/// One block of n slices with times a, x, m, y for A, D, M, C.
inline BlockTimes uniformBlock(int64_t n, double a, double x, double m, double y) {
  BlockTimes block;
  block.A.assign(n, a);
  block.D.assign(n, x);
  block.M.assign(n, m);
  block.C.assign(n, y);
  return block;
}

inline Stages stagesOf(Pipeline pipeline, std::vector<BlockTimes> blocks, bool crossBlock = false,
                       Direction direction = Direction::forward) {
  Stages stages;
  stages.pipeline = pipeline;
  stages.blocks = std::move(blocks);
  stages.crossBlock = crossBlock;
  stages.direction = direction;
  return stages;
}

/// A block of `mixers` and `experts` slices over the same tokens, times 1 to 20; every third one with split experts.
inline BlockTimes randomBlock(std::mt19937 &random, int64_t mixers, int64_t experts, int64_t tokens) {
  std::uniform_int_distribution<int> time(1, 20);
  auto times = [&](int64_t count) {
    std::vector<double> list(count);
    for (double &t : list)
      t = time(random);
    return list;
  };
  auto grid = [&](int64_t count) {
    std::vector<int64_t> list(count, 1);
    for (int64_t left = tokens - count; left > 0; --left)
      ++list[random() % count];
    return list;
  };
  BlockTimes block;
  block.A = times(mixers);
  block.D = times(experts);
  block.M = times(experts);
  block.C = times(experts);
  if (random() % 3 == 0) {
    block.G = times(experts);
    block.R = times(experts);
  }
  block.slices = grid(mixers);
  block.moeSlices = grid(experts);
  return block;
}

inline double makespan(const Plan &plan) { return measure(plan.problem, plan.schedule).makespan; }

} // namespace braid::schedule::test

#endif // TEST_SCHEDULE_CASES_H
