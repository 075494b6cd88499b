//===- RandomRounding.h - f32 to bf16, up as likely as far from the lower neighbour --------------------------------===//
//
//   bits(rounded) = (bits(x) + r) / 2^16, rounded down,   r uniform in [0, 2^16)
//
// Of finite x: the mean of what it rounds to is x itself (Gupta et al. 2015, section 3), so a sum keeps what it is given
// in parts smaller than half of its last bit. What bf16 has exactly stays; infinities and NaN do, too (they are cast as ever).
//
// r is not drawn by the place of an element but is a hash of the numbers that are rounded and of the step: ranks, meshes
// and kernels that cut tensors otherwise round the same numbers alike, and nobody has to know where an element lies in
// the whole.
//===--------------------------------------------------------------------------------------------------------------===//
#ifndef PASSES_OUTLINE_RANDOMROUNDING_H
#define PASSES_OUTLINE_RANDOMROUNDING_H

#include "passes/outline/KernelBuilder.h"

namespace braid {

/// 32 bits that are a hash of tiles a, b (i32) and of a number, such as a step's. The finaliser is Wellons' lowbias32 (2018).
inline Var hashBits(KernelBuilder &k, Var a, Var b, Var number) {
  auto word = [&](uint32_t bits) { return k.integer(k.i32(), static_cast<int32_t>(bits)); };
  Var z = a * word(0x9e3779b1) + b + number * word(0x85ebca77);
  z = exclusive(z, shiftRight(z, 16)) * word(0x7feb352d);
  z = exclusive(z, shiftRight(z, 15)) * word(0x846ca68b);
  return exclusive(z, shiftRight(z, 16));
}

/// An f32 that bf16 holds exactly; of `random` the lower 16 bits count.
inline Var roundRandomly(KernelBuilder &k, Var x, Var random) {
  Var bits = bitcast(x, k.i32());
  Var finite = lt(both(bits, bits.like(0x7fffffff)), 0x7f800000);
  Var rounded = both(bits + both(random, bits.like(0xffff)), bits.like(-0x10000));
  return select(finite, bitcast(rounded, k.f32()), x);
}

} // namespace braid

#endif // PASSES_OUTLINE_RANDOMROUNDING_H
