//===- InputFile.h - a file that a compilation reads --------------------------------------------------------------===//
#ifndef COMPILER_INPUTFILE_H
#define COMPILER_INPUTFILE_H

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"

#include <string>

namespace braid {

inline constexpr size_t maxInputBytes = size_t(1) << 28; ///< of a description or a module; the largest have a few MB

/// A whole file, or what "-" (standard input) brings. A device that never ends is one file too large.
llvm::Expected<std::string> readInput(llvm::StringRef path);

} // namespace braid

#endif // COMPILER_INPUTFILE_H
