//===- Explain.h - which kernel, how many FLOPs and bytes, and where the memory goes ------------------------------===//
#ifndef COMPILER_EXPLAIN_H
#define COMPILER_EXPLAIN_H

#include "compiler/Pipeline.h"

namespace braid {

/// Writes a page about a module in phase `commands` (before it: only the times).
void explain(mlir::ModuleOp module, llvm::ArrayRef<StageTime> times, llvm::raw_ostream &os);

} // namespace braid

#endif // COMPILER_EXPLAIN_H
