//===- Driver.h - what braid-compile does with its flags ----------------------------------------------------------===//
#ifndef COMPILER_DRIVER_H
#define COMPILER_DRIVER_H

#include "compiler/CompileOptions.h"
#include "frontend/ModelSpec.h"

namespace braid {

struct CompileJob {
  std::string input; ///< MODEL.json or FILE.mlir
  std::string output; ///< P.braid; with toPhase FILE.mlir or - for standard output
  CompileOptions options;
  bool isRepeated = false; ///< the same description was compiled before, and what warns of it was said
};

/// A description with flags in the place of its keys, and what the mesh makes of it: the stages, and as many micro-batches
/// as they take where it names none. Failure after messages.
llvm::FailureOr<ModelSpec> readModel(const CompileOptions &options, llvm::StringRef text, llvm::StringRef filename);

/// False when it failed; every message is on standard error, `--explain` writes to standard output.
bool compile(const CompileJob &job);

/// The program file of a job with everything but machine code: memory, commands, FLOPs and bytes, for who wants to look
/// at it in a second (braid-plan). `output` is not read. Nothing when it failed; messages as above.
std::optional<std::vector<uint8_t>> compileTables(const CompileJob &job);

} // namespace braid

#endif // COMPILER_DRIVER_H
