//===- IntegerFlag.h - integers on a command line -----------------------------------------------------------------===//
// CLI11 converts what it is given: -5 becomes a large unsigned number, 2^64 the largest one. Here the text is looked at
// first, so that what a program gets is what was written, or a message with the flag, the value and what would be
// valid.
#ifndef TOOLS_COMMON_INTEGERFLAG_H
#define TOOLS_COMMON_INTEGERFLAG_H

#include <CLI/CLI.hpp>

#include <cstdint>
#include <string>
#include <string_view>

namespace braid {

/// A decimal integer in [least, most], with a sign at most in front. An error for any other text, else empty.
inline std::string checkInteger(const std::string &text, int64_t least, uint64_t most, std::string_view unit = "") {
  std::string range = "; valid: " + std::to_string(least) + " to " + std::to_string(most) + std::string(unit);
  bool negative = text.starts_with('-');
  std::string_view digits = std::string_view(text).substr(negative || text.starts_with('+') ? 1 : 0);
  if (digits.empty() || digits.find_first_not_of("0123456789") != std::string_view::npos)
    return "\"" + text + "\" is not an integer" + range;
  uint64_t value = 0;
  bool inRange = true;
  for (char digit : digits) {
    uint64_t next = static_cast<uint64_t>(digit - '0');
    inRange &= value <= (UINT64_MAX - next) / 10;
    value = 10 * value + next;
  }
  // -(least + 1) + 1 as an unsigned number: the lowest int64_t has no positive one.
  uint64_t lowest = least < 0 ? static_cast<uint64_t>(-(least + 1)) + 1 : 0;
  if (negative && value != 0)
    inRange &= least < 0 && value <= lowest;
  else
    inRange &= value <= most && (least <= 0 || value >= static_cast<uint64_t>(least));
  return inRange ? "" : text + " is out of range" + range;
}

/// Restricts a flag with an integer value; N in the help text.
inline CLI::Option *integerIn(CLI::Option *option, int64_t least, uint64_t most, std::string_view unit = "") {
  auto check = [=, unit = std::string(unit)](const std::string &text) { return checkInteger(text, least, most, unit); };
  return option->check(CLI::Validator(check, ""))->type_name("N");
}

/// Restricts a flag to sizes that a chunk of a scan may have.
inline CLI::Option *chunkSize(CLI::Option *option) {
  auto check = [](const std::string &text) {
    std::string message = checkInteger(text, 16, 128);
    if (message.empty() && std::stoi(text) % 16 != 0)
      message = text + " is not a multiple of 16; valid: 16, 32, .. 128";
    return message;
  };
  return option->check(CLI::Validator(check, ""))->type_name("N");
}

} // namespace braid

#endif // TOOLS_COMMON_INTEGERFLAG_H
