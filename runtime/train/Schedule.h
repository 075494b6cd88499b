// Learning rate as a function of the step: linear warm-up, then a cosine from `peak` down to `minimum` at the last
// step.
#pragma once

#include <cstdint>

namespace braid::runtime {

struct LearningRateSchedule {
  double peak = 1e-3;
  double minimum = 1e-4;
  uint64_t warmupSteps = 0;
  uint64_t steps = 1; // at which the minimum is reached

  // `step` counts from 1.
  double at(uint64_t step) const;
};

} // namespace braid::runtime
