//===- Compiler.h - a model file in, a program file out ----------------------------------------------------------------===//
#ifndef COMPILER_COMPILER_H
#define COMPILER_COMPILER_H

#include "compiler/CompileOptions.h"
#include "llvm/Support/LogicalResult.h"
#include "llvm/Support/raw_ostream.h"

namespace braid {

/// Compiles `input` (a model description *.json, or MLIR *.mlir in any phase) to `output`. If options.toPhase ends before the
/// program file, MLIR is written instead ("-": standard output). Errors and remarks go to `log`; failure has said why.
llvm::LogicalResult compileFile(const std::string &input, const std::string &output, const CompileOptions &options, llvm::raw_ostream &log);

} // namespace braid

#endif // COMPILER_COMPILER_H
