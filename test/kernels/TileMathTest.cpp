//===- TileMathTest.cpp - elementary functions against libm, in units in the last place --------------------------===//
#include "test/kernels/TileTest.h"

#include <functional>
#include <limits>

using namespace braid::test;

namespace {

struct Function {
  const char *name;
  std::function<double(double)> exact;
  double low, high, ulps;
};

const Function kFunctions[] = {
    {"exp", [](double x) { return std::exp(x); }, -110, 90, 2},
    {"exp2", [](double x) { return std::exp2(x); }, -155, 129, 2},
    {"expm1", [](double x) { return std::expm1(x); }, -40, 88.8, 3},
    {"log", [](double x) { return std::log(x); }, 0, 100, 2},
    {"log2", [](double x) { return std::log2(x); }, 0, 100, 3},
    {"log1p", [](double x) { return std::log1p(x); }, -1, 20, 3},
    {"tanh", [](double x) { return std::tanh(x); }, -12, 12, 4},
    {"rsqrt", [](double x) { return 1 / std::sqrt(x); }, 0, 1000, 2},
    {"sqrt", [](double x) { return std::sqrt(x); }, 0, 1000, 1},
    {"sin", [](double x) { return std::sin(x); }, -40, 40, 3},
    {"cos", [](double x) { return std::cos(x); }, -40, 40, 3},
    {"erf", [](double x) { return std::erf(x); }, -5, 5, 8},
};

std::string kernelText(const char *name, const char *type) {
  std::string text = R"(
func.func @f(%x: memref<?xT> {tile.name = "x"}, %y: memref<?xT> {tile.name = "y"}, %n: index {tile.name = "n"}) attributes {tile.kernel, tile.grid = ["block"]} {
  %c75 = arith.constant 75 : index
  %i = tile.program : index
  %r = arith.muli %i, %c75 : index
  %v = tile.load %x[%r] limit %n {dims = array<i64: 0>} : memref<?xT>, vector<75xT>
  %f = math.NAME %v : vector<75xT>
  tile.store %f, %y[%r] limit %n {dims = array<i64: 0>} : vector<75xT>, memref<?xT>
  return
})";
  return withType(std::regex_replace(text, std::regex("NAME"), name), type);
}

double ulps(float got, double want) {
  if (std::isnan(want))
    return std::isnan(got) ? 0 : 1e9;
  float rounded = static_cast<float>(want);
  if (got == rounded ||
      std::abs(got - want) < 2 * std::numeric_limits<float>::min()) // denormals, also on the way, are 0
    return 0;
  if (std::isinf(rounded) || std::isinf(got) || std::isnan(got))
    return 1e9;
  double unit = std::max<double>(std::nextafter(std::abs(rounded), INFINITY) - std::abs(rounded), 1.4e-45);
  return std::abs(got - want) / unit;
}

TEST(TileMath, FloatFunctionsNearLibm) {
  for (const char *cpu : {"native", "x86-64-v3"})
    for (const Function &f : kFunctions) {
      KernelHarness kernels(kernelText(f.name, "f32"), cpu);
      std::vector<float> x;
      for (int i = 0; i <= 40000; ++i)
        x.push_back(static_cast<float>(f.low + (f.high - f.low) * i / 40000));
      // Small and large magnitudes. Kernels flush denormals (DenormalResultsAreZero), so what lies within a mantissa of
      // the smallest normal number loses its intermediate results: that range is left out.
      for (int e = -100; e < 20; ++e)
        for (double m : {1.0, 1.37, 1.9})
          for (double sign : {1.0, -1.0})
            if (double v = sign * std::ldexp(m, e); v >= f.low && v <= f.high)
              x.push_back(static_cast<float>(v));
      std::vector<float> y(x.size());
      kernels.run("f", {static_cast<int64_t>(x.size() + 74) / 75}, {{"x", x}, {"y", y}, {"n", x.size()}});
      double worst = 0;
      float at = 0;
      for (size_t i = 0; i < x.size(); ++i)
        if (double error = ulps(y[i], f.exact(x[i])); !(error <= worst))
          worst = error, at = x[i];
      printf("  %-10s %-6s %.2f ulp at %.9g\n", cpu, f.name, worst, at);
      EXPECT_LE(worst, f.ulps) << f.name << " at " << at;
    }
}

// Chunks of strong decays are full of numbers that would each cost a trap. The caller keeps its own mode.
TEST(TileMath, DenormalResultsAreZero) {
  KernelHarness kernels(withType(R"(
func.func @f(%x: memref<?xT> {tile.name = "x"}, %y: memref<?xT> {tile.name = "y"}, %n: index {tile.name = "n"}) attributes {tile.kernel, tile.grid = ["block"]} {
  %c0 = arith.constant 0 : index
  %v = tile.load %x[%c0] limit %n {dims = array<i64: 0>} : memref<?xT>, vector<16xT>
  %f = arith.mulf %v, %v : vector<16xT>
  tile.store %f, %y[%c0] limit %n {dims = array<i64: 0>} : vector<16xT>, memref<?xT>
  return
})",
                                 "f32"));
  std::vector<float> x = {1e-15f, 1e-19f, 1e-20f, 1e-22f, 1e-30f, 3.0f}, y(x.size(), 7.0f);
  kernels.run("f", {1}, {{"x", x}, {"y", y}, {"n", x.size()}});
  for (size_t i = 0; i < x.size(); ++i) {
    float product = x[i] * x[i]; // here gradual underflow is still on
    EXPECT_EQ(y[i], product < std::numeric_limits<float>::min() ? 0.0f : product) << x[i];
  }
  volatile float small = 1e-20f;
  EXPECT_GT(small * small, 0.0f) << "the kernel has left its mode to its caller";
}

TEST(TileMath, SpecialValues) {
  const float inf = INFINITY, nan = NAN;
  for (const char *cpu : {"native", "x86-64-v3"})
    for (const char *type : {"f32"})
      for (const Function &f : kFunctions) {
        KernelHarness kernels(kernelText(f.name, type), cpu);
        std::vector<float> x = {0.0f, -0.0f, inf, -inf, nan, -1.0f, -1e30f, 1e30f, 3e38f, -200.0f, 200.0f, 1e-42f};
        bool periodic = std::string(f.name) == "sin" || std::string(f.name) == "cos";
        std::vector<float> y(x.size());
        kernels.run("f", {1}, {{"x", x}, {"y", y}, {"n", x.size()}});
        for (size_t i = 0; i < x.size(); ++i) {
          if (periodic && std::abs(x[i]) > 1e6)
            continue;
          if (std::string(f.name) == "rsqrt" && x[i] == 0)
            continue;
          EXPECT_LE(ulps(y[i], f.exact(x[i])), f.ulps)
              << cpu << " " << f.name << "(" << x[i] << ") = " << y[i] << ", libm " << f.exact(x[i]);
        }
      }
}

TEST(TileMath, DoubleFunctionsAreLibm) {
  for (const Function &f : kFunctions) {
    KernelHarness kernels(kernelText(f.name, "f64"));
    std::vector<double> x, y;
    for (int i = 1; i <= 1000; ++i)
      x.push_back(f.low + (f.high - f.low) * i / 1000);
    y.resize(x.size());
    kernels.run("f", {14}, {{"x", x}, {"y", y}, {"n", x.size()}});
    for (size_t i = 0; i < x.size(); ++i) {
      double want = f.exact(x[i]);
      ASSERT_NEAR(y[i], want, 1e-14 * std::max(1.0, std::abs(want))) << f.name << "(" << x[i] << ")";
    }
  }
}

TEST(TileMath, RotaryAngles) { // cos and sin of position * frequency, positions up to 2^20
  KernelHarness sine(kernelText("sin", "f32")), cosine(kernelText("cos", "f32"));
  std::vector<float> x;
  for (int i = 0; i < 3000; ++i)
    x.push_back(static_cast<float>(i * 349.7));
  std::vector<float> s(x.size()), c(x.size());
  sine.run("f", {40}, {{"x", x}, {"y", s}, {"n", x.size()}});
  cosine.run("f", {40}, {{"x", x}, {"y", c}, {"n", x.size()}});
  for (size_t i = 0; i < x.size(); ++i) {
    ASSERT_NEAR(s[i], std::sin(double(x[i])), 2e-7) << x[i];
    ASSERT_NEAR(c[i], std::cos(double(x[i])), 2e-7) << x[i];
  }
}

} // namespace
