#include "runtime/Sha256.h"

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>

#ifdef __x86_64__
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace braid::runtime {
namespace {

constexpr std::array<uint32_t, 64> roundConstants = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

void compressBlock(std::array<uint32_t, 8> &hash, const unsigned char *block) {
  uint32_t w[64];
  for (int i = 0; i < 16; ++i)
    w[i] = uint32_t(block[4 * i]) << 24 | uint32_t(block[4 * i + 1]) << 16 | uint32_t(block[4 * i + 2]) << 8 |
           uint32_t(block[4 * i + 3]);
  for (int i = 16; i < 64; ++i) {
    uint32_t s0 = std::rotr(w[i - 15], 7) ^ std::rotr(w[i - 15], 18) ^ (w[i - 15] >> 3);
    uint32_t s1 = std::rotr(w[i - 2], 17) ^ std::rotr(w[i - 2], 19) ^ (w[i - 2] >> 10);
    w[i] = w[i - 16] + s0 + w[i - 7] + s1;
  }
  auto [a, b, c, d, e, f, g, h] = hash;
  for (int i = 0; i < 64; ++i) {
    uint32_t s1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
    uint32_t t1 = h + s1 + ((e & f) ^ (~e & g)) + roundConstants[i] + w[i];
    uint32_t s0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
    uint32_t t2 = s0 + ((a & b) ^ (a & c) ^ (b & c));
    h = g, g = f, f = e, e = d + t1, d = c, c = b, b = a, a = t1 + t2;
  }
  const uint32_t sum[8] = {a, b, c, d, e, f, g, h};
  for (int i = 0; i < 8; ++i)
    hash[i] += sum[i];
}

void compressBlocks(std::array<uint32_t, 8> &hash, const unsigned char *bytes, size_t blocks) {
  for (size_t i = 0; i < blocks; ++i)
    compressBlock(hash, bytes + 64 * i);
}

#ifdef __x86_64__
bool hasInstructions() {
  unsigned a, b, c, d;
  return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_SSE4_1) && __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & bit_SHA);
}

// The same by instructions of the processor, which do two rounds each, of a state in the order A B E F, C D G H.
__attribute__((target("sha,sse4.1"))) void compressBlocksFast(std::array<uint32_t, 8> &hash, const unsigned char *bytes,
                                                              size_t blocks) {
  const __m128i bigEndian = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
  auto *words = reinterpret_cast<__m128i *>(hash.data());
  __m128i cdab = _mm_shuffle_epi32(_mm_loadu_si128(words), 0xb1);
  __m128i hgfe = _mm_shuffle_epi32(_mm_loadu_si128(words + 1), 0x1b);
  __m128i abef = _mm_alignr_epi8(cdab, hgfe, 8), cdgh = _mm_blend_epi16(hgfe, cdab, 0xf0);
  for (size_t n = 0; n < blocks; ++n) {
    auto *block = reinterpret_cast<const __m128i *>(bytes + 64 * n);
    const __m128i abefBefore = abef, cdghBefore = cdgh;
    __m128i w[4]; // the last sixteen words
    for (int i = 0; i < 16; ++i) {
      __m128i &now = w[i % 4], before = w[(i + 3) % 4];
      if (i < 4)
        now = _mm_shuffle_epi8(_mm_loadu_si128(block + i), bigEndian);
      else
        now = _mm_sha256msg2_epu32(
            _mm_add_epi32(_mm_sha256msg1_epu32(now, w[(i + 1) % 4]), _mm_alignr_epi8(before, w[(i + 2) % 4], 4)),
            before);
      auto *constants = reinterpret_cast<const __m128i *>(roundConstants.data()) + i;
      __m128i rounds = _mm_add_epi32(now, _mm_loadu_si128(constants));
      cdgh = _mm_sha256rnds2_epu32(cdgh, abef, rounds);
      abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(rounds, 0x0e));
    }
    abef = _mm_add_epi32(abef, abefBefore), cdgh = _mm_add_epi32(cdgh, cdghBefore);
  }
  __m128i feba = _mm_shuffle_epi32(abef, 0x1b), dchg = _mm_shuffle_epi32(cdgh, 0xb1);
  _mm_storeu_si128(words, _mm_blend_epi16(feba, dchg, 0xf0));
  _mm_storeu_si128(words + 1, _mm_alignr_epi8(dchg, feba, 8));
}
#else
bool hasInstructions() { return false; }
constexpr auto compressBlocksFast = compressBlocks;
#endif

} // namespace

std::string sha256(std::span<const std::byte> data, bool portable) {
  auto *compress = portable || !hasInstructions() ? compressBlocks : compressBlocksFast;
  std::array<uint32_t, 8> hash = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                  0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  auto *bytes = reinterpret_cast<const unsigned char *>(data.data());
  size_t whole = data.size() / 64 * 64, rest = data.size() - whole;
  compress(hash, bytes, whole / 64);
  // The tail: the rest, a one bit, zeros, and the length in bits.
  unsigned char tail[128] = {};
  if (rest)
    std::memcpy(tail, bytes + whole, rest);
  tail[rest] = 0x80;
  size_t tailBytes = rest < 56 ? 64 : 128;
  uint64_t bits = uint64_t(data.size()) * 8;
  for (int i = 0; i < 8; ++i)
    tail[tailBytes - 1 - i] = static_cast<unsigned char>(bits >> (8 * i));
  compress(hash, tail, tailBytes / 64);

  std::string text;
  for (uint32_t word : hash)
    for (int shift = 28; shift >= 0; shift -= 4)
      text += "0123456789abcdef"[word >> shift & 15];
  return text;
}

} // namespace braid::runtime
