// Arenas: the memory regions of one rank, zeroed, aligned as the program asks, each between two pages that nobody can
// read or write: what leaves an arena ends the process instead of changing another one.
#pragma once

#include "runtime/Program.h"

#include <string_view>

namespace braid::runtime {

// What makes a program need less memory, for messages.
inline constexpr std::string_view waysToNeedLess =
    "compile it with a smaller --batch or --seq-len, or with --activation-budget or --recompute (fewer saved "
    "activations), or to generate with a smaller --decode-batch or --context-len, or a smaller model";

class Arenas {
public:
  Arenas() = default;
  Arenas(const Arenas &) = delete;
  Arenas &operator=(const Arenas &) = delete;
  ~Arenas();

  // For this rank, one of `ranks` on this machine, all of which need `machineBytes`.
  Status allocate(std::span<const ArenaInfo> arenas, int ranks, uint64_t machineBytes);
  // Addresses of the same layout for a rank whose memory is elsewhere: what is touched takes memory, nothing else.
  Status reserve(std::span<const ArenaInfo> arenas);
  std::byte *base(uint32_t arena) const { return regions[arena].base; }
  // Bytes from base() to the page that nobody may touch; an arena does not end at a page, so some are nobody's.
  size_t usable(uint32_t arena) const { return regions[arena].usable; }
  uint64_t bytes() const { return total; }

private:
  Status map(std::span<const ArenaInfo> arenas, int ranks, uint64_t machineBytes, bool reserved);

  struct Region {
    void *mapping;
    size_t mapped;
    std::byte *base;
    size_t usable;
  };
  std::vector<Region> regions;
  uint64_t total = 0;
};

} // namespace braid::runtime
