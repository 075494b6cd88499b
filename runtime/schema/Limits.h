// Limits.h: ranges of settings that a model description gives, a program file carries and the runtime lets a person
// override, and of what a file may ask for: one number for all three.
#pragma once

#include <cstdint>

namespace braid {

// A step of AdamW moves a weight by about as much: less than the least changes no f32 weight that is not nearly 0.
inline constexpr double minLearningRate = 1e-12, maxLearningRate = 100;
inline constexpr int64_t maxTrainSteps = INT32_MAX; // programs count them in i32
inline constexpr int64_t maxAccumulationSteps = 1 << 16; // batches whose gradients make one update
inline constexpr uint64_t maxArenaBytes = uint64_t(1)
                                          << 50; // of a rank: more than any has, but a plan says of how much too much

} // namespace braid
