//===- Verifiers.h - one way to say that two operands disagree ----------------------------------------------------===//
//
// The generated checks and the trait StaticShapes run first: when `verify` starts, operands are ranked tensors without
// `?`. Nothing else is known; every function here that reads a dimension says which rank it needs.
//
//===-------------------------------------------------------------------------------------------------------------===//
#ifndef DIALECTS_BRAID_VERIFIERS_H
#define DIALECTS_BRAID_VERIFIERS_H

#include "dialects/braid/BraidDialect.h"

namespace braid {

/// A value as a verifier names it: "q", "k"; `leftOut`: a dimension that it has beyond those that count here, -1: none.
struct Named {
  llvm::StringRef name;
  mlir::Value value;
  int64_t leftOut = -1;
  mlir::ShapedType type() const { return mlir::cast<mlir::ShapedType>(value.getType()); }
  mlir::Type element() const { return type().getElementType(); }
  int64_t rank() const { return type().getRank() - (leftOut >= 0); }
  /// The rank must have been checked.
  int64_t dim(int64_t i) const {
    i = i < 0 ? rank() + i : i;
    return type().getDimSize(leftOut >= 0 && i >= leftOut ? i + 1 : i);
  }
};

/// The error with "<name> defined here" at b.
mlir::LogicalResult withNote(mlir::InFlightDiagnostic diagnostic, Named b);

/// a.dim(i) == b.dim(j), or: "<what> mismatch: a has X but b has Y", with a note at b. Checked ranks.
mlir::LogicalResult sameDim(mlir::Operation *op, llvm::StringRef what, Named a, int64_t i, Named b, int64_t j);
/// Both begin with the same batch and token dimensions. Ranks of at least 2.
mlir::LogicalResult sameTokens(mlir::Operation *op, Named a, Named b);
/// Equal shapes, or: "shape mismatch: a is 2x3 but b is 2x4", with a note at b.
mlir::LogicalResult sameShape(mlir::Operation *op, Named a, Named b);
/// Equal element types, or: "element type mismatch: a holds f32 but b holds bf16", with a note at b.
mlir::LogicalResult sameElement(mlir::Operation *op, Named a, Named b);
mlir::LogicalResult sameType(mlir::Operation *op, Named a, Named b);
/// Rank between least and most, or: "a has rank R but must have N".
mlir::LogicalResult hasRank(mlir::Operation *op, Named a, int64_t least, int64_t most = -1);
/// Element type i32, or an error naming it.
mlir::LogicalResult isInteger(mlir::Operation *op, Named a);
/// A floating-point element type, or an error naming the type.
mlir::LogicalResult isFloat(mlir::Operation *op, Named a);
/// Sums that weight gradients are added to: none, or one for each result, of its type, f32 where that is bf16.
mlir::LogicalResult verifySums(mlir::Operation *op, mlir::ValueRange sums, mlir::ValueRange results);
/// So many operands: MLIR itself lets operandSegmentSizes give several to one that is single (`names`: what they are).
mlir::LogicalResult verifyOperandCount(mlir::Operation *op, size_t count, llvm::StringRef names);
/// One element, or an error with the shape.
mlir::LogicalResult isScalar(mlir::Operation *op, Named a);
/// A softcap c of c tanh(x / c), where there is one: above 0.
mlir::LogicalResult verifyCap(mlir::Operation *op, std::optional<llvm::APFloat> cap);
/// A coordinate of the mesh, [1] i32; absent is right too.
mlir::LogicalResult isCoordinate(mlir::Operation *op, mlir::Value value);
/// documents [B, T] i32 for the tokens of x.
mlir::LogicalResult isDocuments(mlir::Operation *op, Named documents, Named x);
/// a b, or the largest number where that is more: no tensor has so many elements, whatever an attribute says.
int64_t product(int64_t a, int64_t b);
/// An attribute that must be at least `least`: "<name> is V but must be at least L".
mlir::LogicalResult isAtLeast(mlir::Operation *op, llvm::StringRef name, int64_t value, int64_t least);
/// An attribute with a fixed list of words: 'unknown <name> "w"; valid: a, b'.
mlir::LogicalResult isOneOf(mlir::Operation *op, llvm::StringRef name, llvm::StringRef word,
                            llvm::ArrayRef<llvm::StringLiteral> valid);
std::string shapeText(mlir::ShapedType type);
/// Product of the dimensions from `from` on. Checked rank.
int64_t elements(mlir::ShapedType type, int64_t from = 0);

} // namespace braid

#define CHECK(...)                                                                                                     \
  if (failed(__VA_ARGS__))                                                                                             \
  return failure()

#endif // DIALECTS_BRAID_VERIFIERS_H
