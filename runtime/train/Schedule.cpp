#include "runtime/train/Schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace braid::runtime {

double LearningRateSchedule::at(uint64_t step) const {
  if (step < warmupSteps)
    return peak * static_cast<double>(step) / static_cast<double>(warmupSteps);
  if (steps <= warmupSteps)
    return peak;
  double progress = static_cast<double>(step - warmupSteps) / static_cast<double>(steps - warmupSteps);
  return minimum + 0.5 * (peak - minimum) * (1 + std::cos(std::numbers::pi * std::min(progress, 1.0)));
}

} // namespace braid::runtime
