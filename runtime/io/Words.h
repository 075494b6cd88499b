// Words: numbers as people read them.
#pragma once

#include <cmath>
#include <concepts>
#include <fmt/format.h>

namespace braid::runtime {

// "1 byte", "2 bytes".
inline std::string counted(std::integral auto number, std::string_view thing) {
  return fmt::format("{} {}{}", number, thing, number == 1 ? "" : "s");
}

// A NaN has a sign, which says nothing.
inline double shown(double value) { return std::isnan(value) ? NAN : value; }

} // namespace braid::runtime
