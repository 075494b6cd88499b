//===- WordFlag.h - words on a command line -----------------------------------------------------------------------===//
#ifndef TOOLS_COMMON_WORDFLAG_H
#define TOOLS_COMMON_WORDFLAG_H

#include <CLI/CLI.hpp>

#include <algorithm>
#include <string>
#include <vector>

namespace braid {

/// Restricts a flag to some words.
inline CLI::Option *oneOf(CLI::Option *option, std::vector<std::string> names) {
  auto check = [=](const std::string &text) {
    if (std::find(names.begin(), names.end(), text) != names.end())
      return std::string();
    std::string message = "\"" + text + "\" is not known; valid: " + names.front();
    for (size_t i = 1; i < names.size(); ++i)
      message += ", " + names[i];
    return message;
  };
  return option->check(CLI::Validator(check, ""));
}

} // namespace braid

#endif // TOOLS_COMMON_WORDFLAG_H
