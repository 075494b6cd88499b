//===- InputFile.h - a file that a tool of the compiler reads -----------------------------------------------------===//
#ifndef TOOLS_COMMON_INPUTFILE_H
#define TOOLS_COMMON_INPUTFILE_H

#include "compiler/Diagnostics.h"
#include "compiler/InputFile.h"

#include <optional>
#include <string>

namespace braid {

/// A whole file, or nothing after a message.
inline std::optional<std::string> readFile(const std::string &path) {
  llvm::Expected<std::string> text = readInput(path);
  if (text)
    return std::move(*text);
  printError(llvm::toString(text.takeError()));
  return std::nullopt;
}

} // namespace braid

#endif // TOOLS_COMMON_INPUTFILE_H
