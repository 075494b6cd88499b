//===- Compare.h - random inputs and relative errors --------------------------------------------------------------===//
// Inputs are rounded to the kernel's type first, references are f64: what is left is the kernel's own error. Limits are
// those of the README's table (f32 2e-6 and up, f64 1e-9 and less); a test prints the tensor, both errors and the
// limit.
#ifndef TEST_KERNELS_COMPARE_H
#define TEST_KERNELS_COMPARE_H

#include "test/kernels/LaunchRunner.h"

#include <cmath>
#include <gtest/gtest.h>
#include <random>

namespace braid::test {

using Numbers = std::vector<double>;

/// What a value becomes in memory: references start from the same rounded inputs.
inline double rounded(double x, Tensor::Type type) {
  return type == Tensor::Type::f32 ? static_cast<double>(static_cast<float>(x)) : x;
}

class Draw {
public:
  explicit Draw(Tensor::Type type, unsigned seed = 17) : type(type), random(seed) {}
  double normal() { return gauss(random); }
  double uniform() { return flat(random); }
  Tensor tensor(std::vector<int64_t> shape) {
    Tensor out(type, std::move(shape));
    for (double &x : out.values)
      x = rounded(normal(), type);
    return out;
  }

private:
  Tensor::Type type;
  std::mt19937 random;
  std::normal_distribution<double> gauss;
  std::uniform_real_distribution<double> flat;
};

/// Relative L2 at most `limit`, and no element off by more than three times that of the largest. `floor` replaces a
/// smaller norm.
inline void expectClose(const std::string &what, const Tensor &found, const Numbers &wanted, double limit,
                        double floor = 0) {
  ASSERT_EQ(found.values.size(), wanted.size()) << what;
  double error = 0, norm = 0, worst = 0, largest = 0;
  for (size_t i = 0; i < wanted.size(); ++i) {
    ASSERT_TRUE(std::isfinite(found.values[i])) << what << "[" << i << "] = " << found.values[i];
    double difference = std::abs(found.values[i] - wanted[i]);
    error += difference * difference, norm += wanted[i] * wanted[i];
    worst = std::max(worst, difference), largest = std::max(largest, std::abs(wanted[i]));
  }
  norm = std::max(std::sqrt(norm), floor);
  EXPECT_LE(std::sqrt(error), limit * norm) << what << ": relative error " << std::sqrt(error) / norm;
  EXPECT_LE(worst, 3 * limit * std::max(largest, floor)) << what;
}

} // namespace braid::test

#endif // TEST_KERNELS_COMPARE_H
