#include "runtime/Arenas.h"

#include "runtime/MachineMemory.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sys/mman.h>
#include <sys/resource.h>

namespace braid::runtime {

Arenas::~Arenas() {
  for (const Region &region : regions)
    munmap(region.mapping, region.mapped);
}

namespace {

// What is needed, what there is, and what makes it less.
Status tooLarge(std::span<const ArenaInfo> arenas, int ranks, uint64_t machineBytes, std::string_view reason) {
  uint64_t all = 0;
  std::vector<const ArenaInfo *> order;
  for (const ArenaInfo &arena : arenas) {
    all += arena.bytes;
    order.push_back(&arena);
  }
  std::sort(order.begin(), order.end(), [](auto *a, auto *b) { return a->bytes > b->bytes; });
  order.resize(std::min<size_t>(order.size(), 3));
  std::string largest;
  for (const ArenaInfo *arena : order)
    largest += fmt::format("{}'{}' {}", largest.empty() ? "" : ", ", arena->name, formatBytes(arena->bytes));
  std::string each; // ranks of other stages need more, or less
  if (ranks > 1)
    each = all * static_cast<uint64_t>(ranks) == machineBytes ? fmt::format(" for each of {} ranks", ranks)
                                                              : fmt::format(" for this one of {} ranks", ranks);
  return Status::error(
      ErrorCode::ioError,
      "out of memory: the program needs {} bytes ({}{}; the largest arenas are {}), but the machine has "
      "{} bytes ({}){}; {}",
      machineBytes, formatBytes(all), each, largest, machineMemoryBytes(), formatBytes(machineMemoryBytes()), reason,
      waysToNeedLess);
}

} // namespace

Status Arenas::allocate(std::span<const ArenaInfo> arenas, int ranks, uint64_t machineBytes) {
  // The kernel gives out addresses for more than it has, and kills the process when they are used.
  if (machineBytes > machineMemoryBytes())
    return tooLarge(arenas, ranks, machineBytes, "");
  return map(arenas, ranks, machineBytes, /*reserved=*/false);
}

Status Arenas::reserve(std::span<const ArenaInfo> arenas) { return map(arenas, 1, 0, /*reserved=*/true); }

Status Arenas::map(std::span<const ArenaInfo> arenas, int ranks, uint64_t machineBytes, bool reserved) {
  constexpr size_t page = 4096, hugePage = size_t(2) << 20;
  // Of addresses alone no memory is missing: batches and models are not the reason.
  auto refused = [&](const ArenaInfo &arena, std::string_view what) {
    const char *reason = std::strerror(errno);
    if (reserved)
      return Status::error(ErrorCode::ioError, "the host has no addresses for {}arena '{}' of {} bytes: {}", what,
                           arena.name, arena.bytes, reason);
    rlimit limit;
    bool limited = getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
    return tooLarge(
        arenas, ranks, machineBytes,
        fmt::format("; {}arena '{}' of {} bytes: {}{}", what, arena.name, arena.bytes, reason,
                    limited ? fmt::format(" (this process may map {} bytes, ulimit -v)", limit.rlim_cur) : ""));
  };
  for (const ArenaInfo &arena : arenas) {
    // Large arenas start on a huge page, so that the kernel may use them.
    size_t align = std::max<size_t>(arena.align, arena.bytes >= 2 * hugePage && !reserved ? hugePage : page);
    size_t usable = (arena.bytes + page) / page * page, mapped = usable + align + page;
    void *mapping = mmap(nullptr, mapped, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | (reserved ? MAP_NORESERVE : 0), -1, 0);
    if (mapping == MAP_FAILED)
      return refused(arena, "");
    auto address = reinterpret_cast<uintptr_t>(mapping);
    auto *base = reinterpret_cast<std::byte *>((address + page + align - 1) / align * align);
    regions.push_back({mapping, mapped, base, usable});
    for (std::byte *guard : {base - page, base + usable})
      if (mprotect(guard, page, PROT_NONE) != 0)
        return refused(arena, "guards of ");
    if (align >= hugePage)
      madvise(base, usable, MADV_HUGEPAGE);
    total += arena.bytes;
  }
  return Status::success();
}

} // namespace braid::runtime
