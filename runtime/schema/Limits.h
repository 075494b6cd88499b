// Limits.h: ranges of settings that a model description gives, a program file carries and the runtime lets a person
// override, and of what a file may ask for: one number for all three.
#pragma once

#include <cstdint>

namespace braid {

// A step of AdamW moves a weight by about as much: less than the least changes no f32 weight that is not nearly 0.
inline constexpr double minLearningRate = 1e-12, maxLearningRate = 100;
inline constexpr int64_t maxTrainSteps = INT32_MAX; // programs count them in i32
inline constexpr int64_t maxAccumulationSteps = 1 << 16; // batches whose gradients make one update
inline constexpr int64_t maxStages = 256; // of a pipeline: each has tables of its own in the program file
inline constexpr int64_t maxMicroBatches =
    512; // parts of a batch: each is a walk through the layers in the list of commands
inline constexpr uint64_t maxArenaBytes = uint64_t(1)
                                          << 50; // of a rank: more than any has, but a plan says of how much too much

// The parameters of a launch on a GPU: 4 KB is what devices and drivers of all ages take (32 KB since PTX 8.1). Slots of 8 bytes, with
// those of the grid and of scratch; tensor maps behind them, both from a multiple of 128 bytes on, for which as many stay free in front.
inline constexpr int64_t maxParameterBytes = 4096;
inline constexpr int64_t parameterBytes(int64_t slots, int64_t maps) {
  return maps == 0 ? slots * 8 : 128 + (slots * 8 + 127) / 128 * 128 + maps * 128;
}

} // namespace braid
