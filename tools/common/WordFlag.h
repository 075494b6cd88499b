//===- WordFlag.h - words on a command line -----------------------------------------------------------------------===//
#ifndef TOOLS_COMMON_WORDFLAG_H
#define TOOLS_COMMON_WORDFLAG_H

#include <CLI/CLI.hpp>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
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

template <size_t N> CLI::Option *oneOf(CLI::Option *option, const std::array<std::string_view, N> &names) {
  return oneOf(option, std::vector<std::string>(names.begin(), names.end()));
}

/// "--mesh: the value is empty" for the first "--mesh=" of a command line, else empty. CLI11 would take the next word for the
/// value; mostly a shell's variable was not set.
inline std::string checkEmptyFlags(int argc, char **argv) {
  for (int i = 1; i < argc && std::string_view(argv[i]) != "--"; ++i)
    if (std::string_view word = argv[i];
        word.starts_with("--") && word.ends_with('=') && word.find('=') + 1 == word.size())
      return std::string(word.substr(0, word.size() - 1)) + ": the value is empty";
  return "";
}

/// The same for an empty word behind the flag.
inline CLI::Option *notEmpty(CLI::Option *option) {
  auto check = [](const std::string &text) { return text.empty() ? std::string("the value is empty") : std::string(); };
  return option->check(CLI::Validator(check, ""));
}

/// What is wrong with a command line: a flag that is given too often, in words.
inline std::string wordsOf(const CLI::Error &error) {
  std::string words = error.what();
  constexpr std::string_view tooOften = ": At Most 1 required but received ";
  if (size_t at = words.find(tooOften); at != std::string::npos)
    words = words.substr(0, at) + " is given " + words.substr(at + tooOften.size()) + " times; valid: once";
  return words;
}

} // namespace braid

#endif // TOOLS_COMMON_WORDFLAG_H
