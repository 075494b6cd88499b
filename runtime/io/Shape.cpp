#include "runtime/io/Shape.h"

#include <fmt/ranges.h>

namespace braid::runtime {

std::string formatShape(std::span<const int64_t> shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

std::optional<int64_t> elementCount(std::span<const int64_t> shape) {
  constexpr int64_t limit = int64_t(1) << 62;
  bool empty = false;
  for (int64_t extent : shape) {
    if (extent < 0)
      return std::nullopt;
    empty |= extent == 0;
  }
  if (empty)
    return 0;
  int64_t count = 1;
  for (int64_t extent : shape) {
    if (count > limit / extent)
      return std::nullopt;
    count *= extent;
  }
  return count;
}

} // namespace braid::runtime
