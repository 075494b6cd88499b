//===- Units.h - what Outline turns into kernels at once ----------------------------------------------------------===//
#ifndef PASSES_OUTLINE_UNITS_H
#define PASSES_OUTLINE_UNITS_H

#include "passes/outline/RowsCluster.h"

namespace braid {

/// One model op, or the row-wise ops of one cluster.
using OutlineUnit = llvm::SmallVector<mlir::Operation *>;

/// The units of a block in order; what stays as it is in phase `kernels` is in none.
llvm::SmallVector<OutlineUnit> outlineUnits(mlir::Block &block);

class OutlineContext;
/// The add of two values that alone reads a combination of experts' rows, where a GPU's kernel of the combination makes the sum (MoeKernels.cpp).
AddOp addBehind(MoeCombineOp op, const OutlineContext &context);

} // namespace braid

#endif // PASSES_OUTLINE_UNITS_H
