// Numbers of 8 and 4 bits in files of other software (OCP 8-bit floating point, 2023; OCP microscaling formats 1.0): E4M3, 4
// bits of exponent and 3 of fraction, without infinities, E8M0, powers of two, and E2M1. Every one is an f32.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>

namespace braid::runtime {

inline float fromE4M3(uint8_t value) {
  uint32_t sign = uint32_t(value & 0x80) << 24, magnitude = value & 0x7f;
  // In units of the smallest: no f32 on the way is subnormal.
  uint32_t small = std::bit_cast<uint32_t>(static_cast<float>(magnitude) * 0x1p-9f);
  uint32_t normal = (magnitude << 20) + (120 << 23);
  return std::bit_cast<float>(sign | (magnitude < 8 ? small : magnitude == 0x7f ? 0x7fc00000 : normal));
}

// 2^(value - 127); 255 is no number.
inline float fromE8M0(uint8_t value) {
  if (value == 255)
    return std::numeric_limits<float>::quiet_NaN();
  return std::bit_cast<float>(value ? uint32_t(value) << 23 : 0x00400000);
}

// Of the low four bits.
inline float fromE2M1(uint8_t value) {
  constexpr float magnitudes[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  float magnitude = magnitudes[value & 7];
  return value & 8 ? -magnitude : magnitude;
}

} // namespace braid::runtime
