#include "runtime/train/Random.h"

#include <bit>
#include <cassert>

namespace braid::runtime {

std::array<uint32_t, 4> philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    uint64_t product0 = uint64_t(0xD2511F53) * counter[0];
    uint64_t product1 = uint64_t(0xCD9E8D57) * counter[2];
    counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(product1),
               static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(product0)};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return counter;
}

uint64_t randomBits(uint64_t seed, RandomStream stream, uint64_t index, uint32_t draw) {
  auto bits =
      philox({static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32), draw, static_cast<uint32_t>(stream)},
             {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  return uint64_t(bits[1]) << 32 | bits[0];
}

double randomUnit(uint64_t seed, RandomStream stream, uint64_t index) {
  return static_cast<double>(randomBits(seed, stream, index) >> 11) * 0x1.0p-53;
}

uint64_t permute(uint64_t position, uint64_t size, uint64_t seed, uint32_t which) {
  assert(position < size);
  if (size == 1)
    return 0;
  unsigned half = (static_cast<unsigned>(std::bit_width(size - 1)) + 1) / 2;
  uint64_t mask = (uint64_t(1) << half) - 1;
  uint64_t value = position;
  do {
    uint64_t left = value >> half, right = value & mask;
    for (uint32_t round = 0; round < 8; ++round) {
      // The round number takes the draw's low bits, the permutation the others.
      uint64_t mixed = left ^ (randomBits(seed, RandomStream::dataOrder, right, which << 3 | round) & mask);
      left = right;
      right = mixed;
    }
    value = left << half | right;
  } while (value >= size);
  return value;
}

} // namespace braid::runtime
