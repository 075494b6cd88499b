//===- TileTest.h - helpers of the tile tests ---------------------------------------------------------------------===//
// Kernels as MLIR text, compiled in process (KernelHarness.h) and run on vectors. A text says T where the element type
// stands, so that one test covers f32 and f64; random values differ from call to call but not from run to run.
#ifndef TEST_KERNELS_TILETEST_H
#define TEST_KERNELS_TILETEST_H

#include "test/kernels/KernelHarness.h"

#include <bit>
#include <cmath>
#include <gtest/gtest.h>
#include <random>
#include <regex>

namespace braid::test {

/// The text with every word T replaced by `type`; "vector<3xT>" counts too.
inline std::string withType(const std::string &text, const std::string &type) {
  return std::regex_replace(std::regex_replace(text, std::regex("xT\\b"), "x" + type), std::regex("\\bT\\b"), type);
}

template <typename T> std::vector<T> randoms(size_t count, unsigned seed = 1, double scale = 1.0) {
  static unsigned calls = 0;
  std::mt19937 generator(seed + 977 * calls++);
  std::uniform_real_distribution<double> uniform(-scale, scale);
  std::vector<T> values(count);
  for (T &value : values)
    value = static_cast<T>(uniform(generator));
  return values;
}

template <typename T> constexpr double tolerance() { return sizeof(T) == 4 ? 2e-6 : 1e-13; }

inline uint16_t toBf16(float value) { // round to nearest even
  uint32_t bits = std::bit_cast<uint32_t>(value);
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}
inline float fromBf16(uint16_t value) { return std::bit_cast<float>(static_cast<uint32_t>(value) << 16); }

} // namespace braid::test

#endif // TEST_KERNELS_TILETEST_H
