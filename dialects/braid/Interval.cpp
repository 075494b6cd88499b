//===- Interval.cpp - what values lie between ---------------------------------------------------------------------===//
#include "dialects/braid/Interval.h"

#include <algorithm>
#include <cmath>

using namespace braid;
using llvm::StringRef;

static constexpr double unbounded = std::numeric_limits<double>::infinity();

Interval braid::operator-(Interval x) { return {-x.high, -x.low}; }
Interval braid::operator+(Interval x, Interval y) { return {x.low + y.low, x.high + y.high}; }

Interval braid::operator*(Interval x, Interval y) {
  auto times = [](double a, double b) { return a == 0 || b == 0 ? 0 : a * b; };
  auto [low, high] =
      std::minmax({times(x.low, y.low), times(x.low, y.high), times(x.high, y.low), times(x.high, y.high)});
  return {low, high};
}

Interval braid::hull(Interval x, Interval y) { return {std::min(x.low, y.low), std::max(x.high, y.high)}; }
Interval braid::both(Interval x, Interval y) { return {std::max(x.low, y.low), std::min(x.high, y.high)}; }

Interval braid::clamped(Interval x, double low, double high) {
  return {std::min(std::max(x.low, low), high), std::min(std::max(x.high, low), high)};
}

Interval braid::reciprocal(Interval x) {
  if (x.low < 0)
    return x.high <= 0 ? -reciprocal(-x) : Interval();
  auto one = [](double d) { return d == 0 ? unbounded : 1 / d; };
  return {one(x.high), one(x.low)};
}

Interval braid::power(Interval x, int n) {
  Interval ends{std::pow(x.low, n), std::pow(x.high, n)};
  if (n % 2 == 1)
    return ends;
  return {x.low <= 0 && x.high >= 0 ? 0 : std::min(ends.low, ends.high), std::max(ends.low, ends.high)};
}

Interval braid::logSigmoid(Interval x) {
  auto of = [](double d) { return std::min(d, 0.0) - std::log1p(std::exp(-std::abs(d))); };
  return {of(x.low), of(x.high)};
}

Interval braid::activated(StringRef kind, Interval x) {
  auto rising = [&](auto of) { return Interval{of(x.low), of(x.high)}; };
  auto softplus = [](double d) { return std::max(d, 0.0) + std::log1p(std::exp(-std::abs(d))); };
  auto above = [](double d) { return std::max(d, kLeastArgument); };
  if (kind == "sigmoid")
    return rising([](double d) { return 1 / (1 + std::exp(-d)); });
  if (kind == "tanh")
    return rising([](double d) { return std::tanh(d); });
  if (kind == "exp")
    return rising([](double d) { return std::exp(d); });
  if (kind == "bounded_exp")
    return rising([](double d) { return std::exp(std::min(d, 7.0)); });
  if (kind == "softplus")
    return rising(softplus);
  if (kind == "relu")
    return rising([](double d) { return std::max(d, 0.0); });
  if (kind == "relu2")
    return rising([](double d) { return d > 0 ? d * d : 0; });
  if (kind == "elu1")
    return rising([](double d) { return d > 0 ? d + 1 : std::exp(d); });
  if (kind == "log")
    return rising([&](double d) { return std::log(above(d)); });
  if (kind == "sqrt")
    return rising([&](double d) { return std::sqrt(above(d)); });
  if (kind == "reciprocal")
    return reciprocal(x);
  if (kind == "silu" || kind == "gelu" || kind == "gelu_tanh") // the least of them is silu(-1.278) = -0.2785
    return {x.low >= 0 ? 0 : -0.2785, std::max(x.high, 0.0)};
  if (kind == "sin" || kind == "cos")
    return {-1, 1};
  if (kind == "fraction")
    return {-0.5, 0.5};
  return {};
}
