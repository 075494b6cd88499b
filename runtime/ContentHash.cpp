#include "runtime/ContentHash.h"

#include <charconv>
#include <fmt/format.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace braid::runtime {

std::string ContentHash::hex() const { return fmt::format("{:016x}{:016x}", high, low); }

std::optional<ContentHash> ContentHash::parse(std::string_view hex) {
  ContentHash hash;
  if (hex.size() != 32)
    return std::nullopt;
  for (auto [word, digits] : {std::pair(&hash.high, hex.substr(0, 16)), std::pair(&hash.low, hex.substr(16))}) {
    auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), *word, 16);
    if (error != std::errc() || end != digits.data() + digits.size())
      return std::nullopt;
  }
  return hash;
}

ContentHash contentHash(std::span<const std::byte> bytes) {
  XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return {hash.high64, hash.low64};
}

struct ContentHasher::State {
  XXH3_state_t xxh; // aligned to 64 bytes by its type
};

ContentHasher::ContentHasher() : state(std::make_unique<State>()) { XXH3_128bits_reset(&state->xxh); }
ContentHasher::~ContentHasher() = default;

void ContentHasher::add(std::span<const std::byte> bytes) {
  XXH3_128bits_update(&state->xxh, bytes.data(), bytes.size());
}

ContentHash ContentHasher::hash() const {
  XXH128_hash_t hash = XXH3_128bits_digest(&state->xxh);
  return {hash.high64, hash.low64};
}

} // namespace braid::runtime
