// f16 on the host: 5 bits of exponent and 10 of fraction, in files of other software. Every one is an f32, also those
// below 2^-14; infinities and NaNs stay such.
#pragma once

#include <bit>
#include <cstdint>

namespace braid::runtime {

inline float fromF16(uint16_t value) {
  uint32_t sign = uint32_t(value & 0x8000) << 16, magnitude = value & 0x7fff;
  uint32_t normal = (magnitude << 13) + (112 << 23), special = magnitude << 13 | 0x7f800000;
  // In units of the smallest f16: no f32 on the way is subnormal, which a processor may take for 0.
  uint32_t small = std::bit_cast<uint32_t>(static_cast<float>(static_cast<int32_t>(magnitude)) * 0x1p-24f);
  return std::bit_cast<float>(sign | (magnitude < 0x400 ? small : magnitude >= 0x7c00 ? special : normal));
}

// Rounded to nearest even; what is 65520 or more becomes infinite.
inline uint16_t toF16(float value) {
  uint32_t bits = std::bit_cast<uint32_t>(value), sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000)
    return static_cast<uint16_t>(sign | 0x7e00 | (magnitude >> 13 & 0x3ff));
  if (magnitude >= 0x477ff000)
    return static_cast<uint16_t>(sign | 0x7c00);
  if (magnitude < 0x38800000) // beside 1/2 an f32 has the steps of the smallest f16
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000));
  return static_cast<uint16_t>(sign | ((magnitude + 0xfff + (magnitude >> 13 & 1) - (112 << 23)) >> 13));
}

} // namespace braid::runtime
