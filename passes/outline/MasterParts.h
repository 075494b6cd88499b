//===- MasterParts.h - an f32 master as its bf16 parameter and 16 bits ---------------------------------------------===//
//
//   bits(master) = bits(high) 2^16 + rest,   high: the master rounded to nearest even,   -2^15 <= rest <= 2^15
//
// Rounding moves bits by half a unit of the upper half at most, across exponents too: the numbers of one sign are in the
// order of their bits, up to infinity. `low` is `rest` in 16 bits. Masters half way between two parameters go to the even
// one from both sides, so 2^15 and -2^15 both occur beside it, and are one number in 16 bits: `above` tells them apart.
// A NaN stays one, not its payload. AVX512-BF16 rounds denormals to 0, beside which `low` had too few bits, but no kernel of
// a CPU computes one (`flushDenormals`). runtime/Bf16.h has the same for checkpoints.
//===--------------------------------------------------------------------------------------------------------------===//
#ifndef PASSES_OUTLINE_MASTERPARTS_H
#define PASSES_OUTLINE_MASTERPARTS_H

#include "passes/outline/KernelBuilder.h"
#include <limits>

namespace braid {

/// bf16, i16, and the sign of the second moment as an i32 that has no other bit.
struct MasterParts {
  Var high, low, sign;
};

inline constexpr double kSignBit = std::numeric_limits<int32_t>::min();

/// The bits of a bf16 above those of a parameter's `low`.
inline Var upperBits(KernelBuilder &k, Var high) {
  return shiftLeft(cast(bitcast(high, k.builder.getI16Type()), k.i32()), 16);
}

/// `rest` has the master's own lower bits, and is 2^15 where they are and the upper half is even: neither waits for `high`.
inline MasterParts splitMaster(KernelBuilder &k, Var master) {
  Var bits = bitcast(master, k.i32()), halfAboveEven = eq(both(bits, bits.like(0x1ffff)), 0x8000);
  return {cast(master, k.builder.getBF16Type()), cast(bits, k.builder.getI16Type()),
          select(halfAboveEven, bits.like(kSignBit), 0)};
}

inline Var joinMaster(KernelBuilder &k, Var high, Var low, Var second) {
  Var rest = select(lt(bitcast(second, k.i32()), 0), 0x8000, cast(low, k.i32()));
  return bitcast(upperBits(k, high) + rest, k.f32());
}

} // namespace braid

#endif // PASSES_OUTLINE_MASTERPARTS_H
