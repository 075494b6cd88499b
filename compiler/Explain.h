//===- Explain.h - which kernel, how many FLOPs and bytes, and where the memory goes ------------------------------===//
// The text of `--explain`, for people. Per entry every command under its repeats: kernel or library call, shapes, FLOPs
// and bytes (cmd.work, counted from the op's shapes), share of the entry and why it is done like this; then the bytes
// of every arena beside what must be alive, then milliseconds of every stage. Shares set FLOPs against bytes by one
// fixed ratio: they rank ops and are no measured time.
#ifndef COMPILER_EXPLAIN_H
#define COMPILER_EXPLAIN_H

#include "compiler/Pipeline.h"

namespace braid {

/// Writes a page about a module in phase `commands` (before it: only the times). `kernels`: those compiled for a GPU, each
/// with what a block takes of it.
void explain(mlir::ModuleOp module, llvm::ArrayRef<StageTime> times, llvm::ArrayRef<CudaKernel> kernels,
             llvm::raw_ostream &os);

} // namespace braid

#endif // COMPILER_EXPLAIN_H
