#include "runtime/Arenas.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sys/mman.h>

namespace braid::runtime {

Arenas::~Arenas() {
  for (const Region &region : regions)
    munmap(region.mapping, region.mapped);
}

Status Arenas::allocate(std::span<const ArenaInfo> arenas) {
  constexpr size_t page = 4096, hugePage = size_t(2) << 20;
  for (const ArenaInfo &arena : arenas) {
    // Large arenas start on a huge page, so that the kernel may use them.
    size_t align = std::max<size_t>(arena.align, arena.bytes >= 2 * hugePage ? hugePage : page);
    size_t mapped = (arena.bytes + page) / page * page + (align > page ? align : 0);
    void *mapping = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapping == MAP_FAILED)
      return Status::error(ErrorCode::ioError, "arena '{}': cannot allocate {} bytes: {}", arena.name, arena.bytes,
                           std::strerror(errno));
    auto address = reinterpret_cast<uintptr_t>(mapping);
    auto *base = reinterpret_cast<std::byte *>((address + align - 1) / align * align);
    regions.push_back({mapping, mapped, base});
    if (align >= hugePage)
      madvise(mapping, mapped, MADV_HUGEPAGE);
    total += arena.bytes;
  }
  return Status::success();
}

} // namespace braid::runtime
