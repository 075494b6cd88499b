//===- Verifiers.h - one way to say that two operands disagree ----------------------------------------------------===//
#ifndef DIALECTS_BRAID_VERIFIERS_H
#define DIALECTS_BRAID_VERIFIERS_H

#include "dialects/braid/BraidDialect.h"

namespace braid {

/// A value as a verifier names it: "q", "k".
struct Named {
  llvm::StringRef name;
  mlir::Value value;
  mlir::ShapedType type() const { return mlir::cast<mlir::ShapedType>(value.getType()); }
  int64_t rank() const { return type().getRank(); }
  int64_t dim(int64_t i) const { return type().getDimSize(i < 0 ? rank() + i : i); }
};

/// a.dim(i) == b.dim(j), or: "<what> mismatch: a has X but b has Y", with a note at b.
mlir::LogicalResult sameDim(mlir::Operation *op, llvm::StringRef what, Named a, int64_t i, Named b, int64_t j);
/// Equal shapes, or: "shape mismatch: a is 2x3 but b is 2x4", with a note at b.
mlir::LogicalResult sameShape(mlir::Operation *op, Named a, Named b);
/// Rank between least and most, or: "a has rank R but must have N".
mlir::LogicalResult hasRank(mlir::Operation *op, Named a, int64_t least, int64_t most = -1);
/// Element type i32, or an error naming it.
mlir::LogicalResult isInteger(mlir::Operation *op, Named a);
std::string shapeText(mlir::ShapedType type);
int64_t elements(mlir::ShapedType type, int64_t from = 0);

} // namespace braid

#endif // DIALECTS_BRAID_VERIFIERS_H
