// Content hashes of files: XXH3 with 128 bits (xxHash 0.8), faster than memory and made to find damage, not to
// withstand someone who builds a collision on purpose. Machine code inside a program has its SHA-256 besides
// (Sha256.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace braid::runtime {

struct ContentHash {
  uint64_t high = 0, low = 0;

  bool operator==(const ContentHash &) const = default;
  std::string hex() const; // 32 lower-case digits, as `xxhsum -H2` prints them
  static std::optional<ContentHash> parse(std::string_view hex);
};

ContentHash contentHash(std::span<const std::byte> bytes);

// The same of bytes that come in pieces.
class ContentHasher {
public:
  ContentHasher();
  ~ContentHasher();
  ContentHasher(const ContentHasher &) = delete;
  ContentHasher &operator=(const ContentHasher &) = delete;

  void add(std::span<const std::byte> bytes);
  ContentHash hash() const;

private:
  struct State;
  std::unique_ptr<State> state;
};

} // namespace braid::runtime
