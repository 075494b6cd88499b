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

} // namespace braid::runtime
