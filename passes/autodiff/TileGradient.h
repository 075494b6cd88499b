//===- TileGradient.h - reverse mode over tile operations ---------------------------------------------------------===//
//
//   y = f(x) as emitted by a row-wise op, a cotangent dy of y   -->   dx = (df/dx)^T dy, in the same kernel
//
// Rules exist for what TileEmitter emits: arith and math on float tiles, select, tile.reduce add, tile.expand,
// tile.slice, tile.concat, tile.cumsum, vector.broadcast, vector.shape_cast. Conditions, integers, constants and
// tile.reduce max (a shift that cancels) carry no gradient.
//
//===-------------------------------------------------------------------------------------------------------------===//
#ifndef PASSES_AUTODIFF_TILEGRADIENT_H
#define PASSES_AUTODIFF_TILEGRADIENT_H

#include "mlir/IR/Builders.h"

namespace braid {

/// Emits, at the builder's insertion point, the cotangents of `inputs` given those of `outputs`. `emitted`: the
/// operations between them, in order. A null result means that no output depends on the input. An operation without a
/// rule on the way is an error at `loc`.
llvm::FailureOr<llvm::SmallVector<mlir::Value>> emitTileGradient(mlir::OpBuilder &builder, mlir::Location loc,
                                                                 llvm::ArrayRef<mlir::Operation *> emitted,
                                                                 mlir::ValueRange outputs, mlir::ValueRange cotangents,
                                                                 mlir::ValueRange inputs);

} // namespace braid

#endif // PASSES_AUTODIFF_TILEGRADIENT_H
