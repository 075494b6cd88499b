//===- InputFile.h - a file that a tool of the compiler reads -----------------------------------------------------===//
#ifndef TOOLS_COMMON_INPUTFILE_H
#define TOOLS_COMMON_INPUTFILE_H

#include "compiler/Diagnostics.h"

#include "llvm/Support/MemoryBuffer.h"

#include <optional>
#include <string>

namespace braid {

/// A whole file, or nothing after a message.
inline std::optional<std::string> readFile(const std::string &path) {
  auto file = llvm::MemoryBuffer::getFile(path, /*IsText=*/false, /*RequiresNullTerminator=*/false);
  if (file)
    return (*file)->getBuffer().str();
  printError("cannot read " + path + ": " + file.getError().message());
  return std::nullopt;
}

} // namespace braid

#endif // TOOLS_COMMON_INPUTFILE_H
