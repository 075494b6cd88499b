// Counter-based random numbers: a value depends on (seed, stream, index) only, never on how many were drawn before. The
// same on every machine, thread and rank, and a resumed run needs no saved state.
#pragma once

#include <array>
#include <cstdint>

namespace braid::runtime {

// Philox4x32-10 (Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3).
std::array<uint32_t, 4> philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

// What the numbers are for: equal indices of different streams are independent.
enum class RandomStream : uint32_t { dataOrder = 1, sampling = 2 };

uint64_t randomBits(uint64_t seed, RandomStream stream, uint64_t index, uint32_t draw = 0);
// Uniform in [0, 1), 53 bits.
double randomUnit(uint64_t seed, RandomStream stream, uint64_t index);

// A random permutation of [0, size) without storing it: the image of `position`. `which` selects the permutation (the
// epoch). Each is a Feistel network over the next power of four, walked until it lands inside.
uint64_t permute(uint64_t position, uint64_t size, uint64_t seed, uint32_t which);

} // namespace braid::runtime
