//===- SoftCap.h - numbers bounded by a constant c: c tanh(x / c) ------------------------------------------------===//
//
// Scores of attention and logits of a loss (Gemma 2), in kernels whose launch says c.
//
//===-------------------------------------------------------------------------------------------------------------===//
#ifndef PASSES_OUTLINE_SOFTCAP_H
#define PASSES_OUTLINE_SOFTCAP_H

#include "passes/outline/KernelBuilder.h"
#include "passes/outline/OutlineContext.h"

namespace braid {

class SoftCap {
public:
  /// Of numbers that may be anything.
  SoftCap() = default;
  /// Parameters of a kernel that computes in `real`. With `approximate` tanh is made of an exponential and a quotient, which a GPU has instructions for: what that loses near 0, 1e-7 c, is
  /// less than what products of bf16 know.
  SoftCap(KernelBuilder &k, mlir::Type real, bool approximate)
      : cap(k.scalar("softcap", real)), inverse(k.scalar("inverse_softcap", real)), approximate(approximate) {}

  explicit operator bool() const { return static_cast<bool>(cap); }

  Var of(Var x) const {
    if (!cap)
      return x;
    Var scaled = x * inverse;
    if (!approximate)
      return tanh(scaled) * cap;
    Var e = exp(abs(scaled) * -2.0), y = (1.0 - e) / (1.0 + e) * cap;
    return select(lt(scaled, 0.0), -y, y);
  }
  /// What a cotangent `d` of bounded numbers y is of those before: d (1 - (y / c)^2).
  Var grad(Var y, Var d) const {
    if (!cap)
      return d;
    Var t = y * inverse;
    return d * (1.0 - t * t);
  }

  /// Of a kernel's name.
  static llvm::StringRef suffix(bool capped) { return capped ? "_softcap" : ""; }
  /// Of the launch of such a kernel. A quotient in the kernel would be a call.
  static void arguments(OutlineContext::Launch &launch, double cap, mlir::Type real) {
    launch.scalar("softcap", cap, real).scalar("inverse_softcap", 1 / cap, real);
  }

private:
  Var cap, inverse;
  bool approximate = false;
};

} // namespace braid

#endif // PASSES_OUTLINE_SOFTCAP_H
