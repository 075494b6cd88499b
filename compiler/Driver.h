//===- Driver.h - what braid-compile does with its flags ----------------------------------------------------------===//
#ifndef COMPILER_DRIVER_H
#define COMPILER_DRIVER_H

#include "compiler/CompileOptions.h"

namespace braid {

struct CompileJob {
  std::string input; ///< MODEL.json or FILE.mlir
  std::string output; ///< P.braid; with toPhase FILE.mlir or - for standard output
  CompileOptions options;
};

/// False when it failed; every message is on standard error, `--explain` writes to standard output.
bool compile(const CompileJob &job);

} // namespace braid

#endif // COMPILER_DRIVER_H
