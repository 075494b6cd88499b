//===- BestProgram.h - the program that pipeline `best` becomes ---------------------------------------------------===//
#ifndef COMPILER_BESTPROGRAM_H
#define COMPILER_BESTPROGRAM_H

#include "compiler/Pipeline.h"

#include "mlir/IR/BuiltinOps.h"

namespace braid {

/// The program file of a module that begins in phase `from`, with everything but machine code.
mlir::FailureOr<std::vector<uint8_t>> writeTables(mlir::ModuleOp module, Phase from, const CompileOptions &options);

/// `best` chooses layer by layer, by the times of tasks (DecideSchedule). What a step takes follows from all of it: from
/// what joined layers copy, from sums of gradients in gaps, from commands. So the programs that it could be are made and timed
/// as a whole by options.secondsOf: its own with layers joined and alone, 1A1M, and none; of equals the first. Returns the
/// options of the fastest and says what each takes, in `times` also how long that took; `options` themselves where `best` is
/// not asked for, nobody tells times, or the compilation does not pass through phase scheduled.
mlir::FailureOr<CompileOptions> fastestOfBest(mlir::ModuleOp module, Phase from, const CompileOptions &options,
                                              std::vector<StageTime> &times);

} // namespace braid

#endif // COMPILER_BESTPROGRAM_H
