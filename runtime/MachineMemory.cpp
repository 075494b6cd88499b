#include "runtime/MachineMemory.h"

#include <algorithm>
#include <fmt/format.h>
#include <fstream>
#include <sys/sysinfo.h>

namespace braid::runtime {

uint64_t machineMemoryBytes() {
  uint64_t bytes = UINT64_MAX;
  struct sysinfo info;
  if (::sysinfo(&info) == 0)
    bytes = (uint64_t(info.totalram) + info.totalswap) * info.mem_unit;
  // Versions 2 and 1, as containers see their own group; "max", or a file that is not there: no limit.
  for (const char *path : {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}) {
    uint64_t limit = 0;
    if (std::ifstream(path) >> limit && limit > 0)
      bytes = std::min(bytes, limit);
  }
  return bytes;
}

std::string formatBytes(uint64_t bytes) {
  constexpr const char *units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  for (; value >= 1024 && unit < 4; ++unit)
    value /= 1024;
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", value, units[unit]);
}

} // namespace braid::runtime
