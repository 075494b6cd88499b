// bf16 on the host: the upper half of an f32. Rounding is to nearest even; a NaN stays one.
#pragma once

#include <bit>
#include <cstdint>

namespace braid::runtime {

inline float fromBf16(uint16_t value) { return std::bit_cast<float>(uint32_t(value) << 16); }

inline uint16_t toBf16(float value) {
  uint32_t bits = std::bit_cast<uint32_t>(value);
  uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16, quiet = bits >> 16 | 0x40;
  return static_cast<uint16_t>((bits & 0x7fffffff) > 0x7f800000 ? quiet : rounded); // both sides: loops stay vectors
}

} // namespace braid::runtime
