//===- GivenFlags.h - the flags of a command line, as they were given ---------------------------------------------===//
#ifndef TOOLS_COMMON_GIVENFLAGS_H
#define TOOLS_COMMON_GIVENFLAGS_H

#include <CLI/CLI.hpp>

#include <cstdlib>
#include <string>
#include <vector>

namespace braid {

/// Whether the command line has the option: a variable of the environment, which other commands read too, asks for nothing.
inline bool isGiven(const CLI::Option &option) {
  const char *variable = option.get_envname().empty() ? nullptr : std::getenv(option.get_envname().c_str());
  return option.count() > 0 && !(variable && option.results() == std::vector<std::string>{variable});
}

/// "--chunk-size=32", "--json", of a command that has been parsed, without those of its subcommands.
inline std::vector<std::string> givenFlags(const CLI::App &command) {
  std::vector<std::string> flags;
  for (const CLI::Option *option : command.get_options()) {
    if (option->get_lnames().empty() || !isGiven(*option))
      continue;
    bool valued = option->get_items_expected_max() > 0;
    flags.push_back("--" + option->get_lnames().front() + (valued ? "=" + option->results().back() : ""));
  }
  return flags;
}

} // namespace braid

#endif // TOOLS_COMMON_GIVENFLAGS_H
