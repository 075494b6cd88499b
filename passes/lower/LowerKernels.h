//===- LowerKernels.h - the kernel passes as functions, for compilers that run them on many threads --------------===//
#ifndef PASSES_LOWER_LOWERKERNELS_H
#define PASSES_LOWER_LOWERKERNELS_H

#include "mlir/IR/BuiltinOps.h"

namespace braid {

/// What braid-tile-to-loops does. `vectorBytes`: 64 (AVX-512), 32 (AVX2) or 16; `bf16Dots`: AVX512-BF16.
llvm::LogicalResult lowerTilesToLoops(mlir::ModuleOp module, int64_t vectorBytes, bool bf16Dots);
/// What braid-expand-math does.
llvm::LogicalResult expandMath(mlir::ModuleOp module, bool hasScale, bool hasBf16);

} // namespace braid

#endif // PASSES_LOWER_LOWERKERNELS_H
