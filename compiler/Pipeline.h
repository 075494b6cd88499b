//===- Pipeline.h - phases, and the passes between them --------------------------------------------------------------===//
#ifndef COMPILER_PIPELINE_H
#define COMPILER_PIPELINE_H

#include "compiler/CompileOptions.h"
#include "mlir/Pass/PassManager.h"

namespace braid {

/// model, train, sharded, scheduled, chunked, kernels, commands.
llvm::ArrayRef<llvm::StringRef> phaseNames();
/// Position in phaseNames(), or -1.
int phaseIndex(llvm::StringRef name);

/// Time of one phase, in milliseconds.
struct PhaseTime { std::string name; double milliseconds; };

/// Takes a module from its phase (attribute braid.phase, or options.fromPhase; `model` if neither says) to options.toPhase (default
/// commands). Every phase ends with braid-verify-phase; with options.dumpPhasesTo each is written to NN-phase.mlir.
llvm::LogicalResult runPipeline(mlir::ModuleOp module, const CompileOptions &options, std::vector<PhaseTime> *times = nullptr);

} // namespace braid

#endif // COMPILER_PIPELINE_H
