//===- Interval.h - what values lie between -----------------------------------------------------------------------===//
// Interval arithmetic over the activations of braid.activation: whether a gate is within 0 and 1, how far its logarithm
// goes down. Of real numbers: 0 times anything is 0, and kernels may round to `kRounding` beside.
#ifndef DIALECTS_BRAID_INTERVAL_H
#define DIALECTS_BRAID_INTERVAL_H

#include "llvm/ADT/StringRef.h"
#include <limits>

namespace braid {

/// What rounding may put beside a bound near 1: 0.3 + 0.7 sigmoid(y) in f32 may be above it.
inline constexpr double kRounding = 1e-6;

/// log and sqrt of what is below this are those of this: of a gate that rounding has closed they stay finite.
inline constexpr double kLeastArgument = 1e-30;

/// Every element is within [low, high], or NaN.
struct Interval {
  double low = -std::numeric_limits<double>::infinity(), high = std::numeric_limits<double>::infinity();
  bool neverNegative() const { return low >= 0; }
  bool neverPositive() const { return high <= kRounding; }
};

Interval operator-(Interval x);
Interval operator+(Interval x, Interval y);
Interval operator*(Interval x, Interval y);
/// Of what is in one or the other.
Interval hull(Interval x, Interval y);
/// Of what is in both.
Interval both(Interval x, Interval y);
/// min(max(x, low), high).
Interval clamped(Interval x, double low, double high);
/// 1 / x.
Interval reciprocal(Interval x);
/// x^n of whole n > 0.
Interval power(Interval x, int n);
/// A kind of braid.activation.
Interval activated(llvm::StringRef kind, Interval x);
/// min(x, 0) - log1p(exp(-|x|)).
Interval logSigmoid(Interval x);

} // namespace braid

#endif // DIALECTS_BRAID_INTERVAL_H
