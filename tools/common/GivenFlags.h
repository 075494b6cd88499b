//===- GivenFlags.h - the flags of a command line, as they were given ---------------------------------------------===//
#ifndef TOOLS_COMMON_GIVENFLAGS_H
#define TOOLS_COMMON_GIVENFLAGS_H

#include <CLI/CLI.hpp>

#include <cstdlib>
#include <string>
#include <vector>

namespace braid {

/// What a variable of the environment says is what holds without the flag. It is not given then: other commands read the variable too, which asks
/// none of them for anything. CLI11's envname() would count as a flag of the command line, whatever that has.
inline CLI::Option *orVariable(CLI::App &app, CLI::Option *option, const char *name) {
  const char *value = std::getenv(name);
  if (!value || !*value)
    return option;
  try {
    option->default_val(value);
  } catch (const CLI::ParseError &error) { // said as of the command line
    app.preparse_callback(
        [words = std::string(error.what()), name](size_t) { throw CLI::ValidationError(name, words); });
  }
  return option;
}

/// "--chunk-size=32", "--json", of a command that has been parsed, without those of its subcommands.
inline std::vector<std::string> givenFlags(const CLI::App &command) {
  std::vector<std::string> flags;
  for (const CLI::Option *option : command.get_options()) {
    if (option->get_lnames().empty() || option->count() == 0)
      continue;
    bool valued = option->get_items_expected_max() > 0;
    flags.push_back("--" + option->get_lnames().front() + (valued ? "=" + option->results().back() : ""));
  }
  return flags;
}

} // namespace braid

#endif // TOOLS_COMMON_GIVENFLAGS_H
