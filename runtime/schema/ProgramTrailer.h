// The last 32 bytes of a program file, behind the flatbuffer: who damages or truncates a file changes or removes them.
//
//   "BRDXXH3\n"  8 bytes
//   size         8 bytes, little-endian: of the flatbuffer, which starts at byte 0
//   hash        16 bytes: XXH3 with 128 bits of the flatbuffer, in the canonical (big-endian) form of its specification
#pragma once

#include <array>
#include <cstdint>
#include <cstring>

namespace braid::schema {

struct ProgramTrailer {
  static constexpr size_t bytes = 32;
  static constexpr char magic[] = "BRDXXH3\n";

  uint64_t size = 0;
  uint64_t hashHigh = 0, hashLow = 0;

  std::array<uint8_t, bytes> encode() const {
    std::array<uint8_t, bytes> result;
    std::memcpy(result.data(), magic, 8);
    for (int i = 0; i < 8; ++i) {
      result[8 + i] = static_cast<uint8_t>(size >> (8 * i));
      result[16 + i] = static_cast<uint8_t>(hashHigh >> (56 - 8 * i));
      result[24 + i] = static_cast<uint8_t>(hashLow >> (56 - 8 * i));
    }
    return result;
  }

  // False: these `bytes` bytes are no trailer.
  static bool decode(const uint8_t *data, ProgramTrailer &trailer) {
    if (std::memcmp(data, magic, 8) != 0)
      return false;
    trailer = {};
    for (int i = 0; i < 8; ++i) {
      trailer.size |= uint64_t(data[8 + i]) << (8 * i);
      trailer.hashHigh = trailer.hashHigh << 8 | data[16 + i];
      trailer.hashLow = trailer.hashLow << 8 | data[24 + i];
    }
    return true;
  }
};

} // namespace braid::schema
