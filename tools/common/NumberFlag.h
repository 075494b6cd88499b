//===- NumberFlag.h - numbers on a command line -------------------------------------------------------------------===//
#ifndef TOOLS_COMMON_NUMBERFLAG_H
#define TOOLS_COMMON_NUMBERFLAG_H

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <charconv>
#include <cstdint>
#include <string>

namespace braid {

enum class From : uint8_t { least, above };

/// A number from `least` (or only above it) to `most`; anything else, nan too, is refused with the flag, what was given
/// and the range. Integers: IntegerFlag.h.
inline CLI::Option *numberIn(CLI::Option *option, From from, double least, double most) {
  std::string range = fmt::format("{}{} to {}", from == From::least ? "" : "above ", least, most);
  auto check = [=](const std::string &text) {
    double value = 0;
    auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size())
      return fmt::format("\"{}\" is not a number; valid: {}", text, range);
    bool inside = value <= most && (from == From::least ? value >= least : value > least);
    return inside ? std::string() : fmt::format("{} is out of range; valid: {}", text, range);
  };
  return option->check(CLI::Validator(check, ""))->type_name("X");
}

} // namespace braid

#endif // TOOLS_COMMON_NUMBERFLAG_H
