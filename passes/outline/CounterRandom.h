//===- CounterRandom.h - random bits from a counter ---------------------------------------------------------------===//
// The finaliser of splitmix64 (Steele, Lea, Flood 2014) over numbers that say what is drawn: the same on every mesh,
// device and thread count.
#ifndef PASSES_OUTLINE_COUNTERRANDOM_H
#define PASSES_OUTLINE_COUNTERRANDOM_H

#include "passes/outline/KernelBuilder.h"

namespace braid {

inline constexpr uint64_t kGolden = 0x9e3779b97f4a7c15;
inline constexpr int64_t kUniformBits = 24; ///< of one uniform number, which f32 holds exactly

/// splitmix64's finaliser of an i64 or a tile of them.
inline Var mix(KernelBuilder &k, Var z) {
  auto word = [&](uint64_t bits) { return k.integer(k.i64(), bits); };
  z = exclusive(z, shiftRight(z, 30)) * word(0xbf58476d1ce4e5b9);
  z = exclusive(z, shiftRight(z, 27)) * word(0x94d049bb133111eb);
  return exclusive(z, shiftRight(z, 31));
}

/// mix(seed + c): where the streams of a seed begin.
inline Var mixSeed(KernelBuilder &k, Var seed) { return mix(k, seed + k.integer(k.i64(), kGolden)); }

/// The bits number `index` of a stream.
inline Var streamBits(KernelBuilder &k, Var stream, Var index) {
  return mix(k, index * k.integer(k.i64(), kGolden) + stream);
}

/// kUniformBits of z from `shift` on, as an i32.
inline Var uniformInteger(KernelBuilder &k, Var z, int64_t shift) {
  return cast(both(shiftRight(z, shift), z.like((1 << kUniformBits) - 1)), k.i32());
}

} // namespace braid

#endif // PASSES_OUTLINE_COUNTERRANDOM_H
