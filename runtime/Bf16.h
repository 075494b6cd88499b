// bf16 on the host: the upper half of an f32. Rounding is to nearest even; a NaN stays one. And an f32 as the bf16 that it rounds to and
// 16 bits more, as training keeps it (passes/outline/MasterParts.h says why that is exact).
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

namespace braid::runtime {

inline float fromBf16(uint16_t value) { return std::bit_cast<float>(uint32_t(value) << 16); }

inline uint16_t toBf16(float value) {
  uint32_t bits = std::bit_cast<uint32_t>(value);
  uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16, quiet = bits >> 16 | 0x40;
  return static_cast<uint16_t>((bits & 0x7fffffff) > 0x7f800000 ? quiet : rounded); // both sides: loops stay vectors
}

struct MasterParts {
  uint16_t high;
  int16_t low;
  bool above; // of the two f32 that are half way to a neighbour of an even `high`, that with the larger magnitude
};

inline MasterParts splitMaster(float master) {
  uint16_t high = toBf16(master);
  uint32_t rest = std::bit_cast<uint32_t>(master) - (uint32_t(high) << 16);
  return {high, static_cast<int16_t>(rest), rest == 0x8000};
}

inline float joinMaster(MasterParts parts) {
  uint32_t rest = parts.above ? 0x8000 : static_cast<uint32_t>(int32_t(parts.low));
  return std::bit_cast<float>((uint32_t(parts.high) << 16) + rest);
}

// The signs of second moments (f32 or bf16, of `width` bytes), which are never negative: `above` of the masters beside them.
class MasterSigns {
public:
  MasterSigns(std::span<std::byte> moments, size_t width) : moments(moments), width(width) {}

  size_t size() const { return moments.size() / width; }
  bool operator[](size_t at) const { return (upper(at) & sign) != std::byte(0); }
  void set(size_t at, bool above) const { upper(at) = (upper(at) & ~sign) | (above ? sign : std::byte(0)); }

private:
  static constexpr std::byte sign{0x80}; // of an element's last byte
  std::byte &upper(size_t at) const { return moments[(at + 1) * width - 1]; }

  std::span<std::byte> moments;
  size_t width;
};

} // namespace braid::runtime
