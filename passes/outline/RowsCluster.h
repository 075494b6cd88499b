//===- RowsCluster.h - row-wise ops over the same rows ------------------------------------------------------------===//
// Row-wise: element or row i of every result follows from row i of the operands (norms, activations, gates, rotations,
// sums over features). FuseRows decides clusters, RowsKernels writes one kernel for each: rows are loaded once, what
// stays inside a cluster never reaches memory.
#ifndef PASSES_OUTLINE_ROWSCLUSTER_H
#define PASSES_OUTLINE_ROWSCLUSTER_H

#include "dialects/braid/BraidDialect.h"

namespace braid {

/// Row-wise ops with equal values of this attribute stand next to each other and become one kernel.
inline constexpr llvm::StringLiteral kClusterAttr = "braid.cluster";

/// On braid.add of two values: the sum takes the place of the first one (gradients of several steps). It stands alone.
inline constexpr llvm::StringLiteral kInPlaceAttr = "braid.in_place";

inline bool isRowsOp(mlir::Operation *op) {
  return mlir::isa<RowsOpInterface, RowsGradOp>(op) && !op->hasAttr(kInPlaceAttr);
}
/// How a row-wise op (or the gradient of one) sees an operand and a result.
TokenKind rowsOperandKind(mlir::Operation *op, unsigned index);
TokenKind rowsResultKind(mlir::Operation *op, unsigned index);
/// The dimensions that count rows: the first two of a token value ([B, T, features..]), all of a value with fewer.
llvm::ArrayRef<int64_t> rowDims(mlir::Operation *op);
/// Rows that a program of a kernel holds at once when it sums over them: follows from the op alone, because the order of
/// such a sum must not depend on what shares the kernel. 0: the op sums over no rows.
int64_t rowsOfSum(mlir::Operation *op);
/// The tiles of its results, in the type that is computed in, from those of its operands.
mlir::FailureOr<llvm::SmallVector<mlir::Value>> emitRowsOp(mlir::Operation *op, TileEmitter &e, mlir::ValueRange tiles);
/// The tiles of all results of some ops, rounded to their types, beside those that are known of what they read.
llvm::LogicalResult emitRowsOps(llvm::ArrayRef<mlir::Operation *> ops, TileEmitter &e,
                                llvm::DenseMap<mlir::Value, mlir::Value> &known);
/// Everything that these ops compute, in words: attributes, which value feeds which operand, `features` of each value, element types, what is stored.
std::string rowsText(llvm::ArrayRef<mlir::Operation *> cluster, llvm::ArrayRef<mlir::Value> stored,
                     llvm::function_ref<llvm::SmallVector<int64_t>(mlir::Value)> features);
/// "add_rms_norm_2f71..": some of the ops, and a hash of such words.
std::string rowsName(llvm::ArrayRef<mlir::Operation *> cluster, llvm::StringRef text);
/// No features at all: every element may be a row of its own (elementwise, all shapes equal).
bool isElementwise(mlir::Operation *op);

} // namespace braid

#endif // PASSES_OUTLINE_ROWSCLUSTER_H
