//===- Views.h - which values are other values' bytes -------------------------------------------------------------===//
// reshape, slice, concat and repeats' stacked values are no copies: they show bytes of another buffer. Strides here are
// in elements, offsets and extents in bytes; types are ranked and static (the verifiers have seen them), so nothing
// here fails.
#ifndef PASSES_ANALYSIS_VIEWS_H
#define PASSES_ANALYSIS_VIEWS_H

#include "dialects/braid/BraidDialect.h"

#include <optional>

namespace braid {

/// Row-major element strides of a shape.
llvm::SmallVector<int64_t> rowMajor(llvm::ArrayRef<int64_t> shape);

/// Element strides of a value as it lies in its buffer: those of the source for a slice, row-major for anything else.
llvm::SmallVector<int64_t> elementStrides(mlir::Value value);

/// No gap between the first and the last element. Dimensions of size 1 may have any stride.
bool isContiguous(mlir::Value value);

/// Bytes from the first element to the end of the last one.
int64_t extentBytes(mlir::Value value);

/// A reshape or slice: what it shows, and where in it (bytes). Absent: the op makes a value of its own.
struct View {
  mlir::Value source;
  int64_t offset;
};
std::optional<View> viewOf(mlir::Value value);

/// The value behind all views.
mlir::Value viewRoot(mlir::Value value);

/// Byte offset of part `index` of a concat whose parts lie one after the other; absent when they do not (the
/// dimensions before `dim` are not all 1).
std::optional<int64_t> concatOffset(ConcatOp concat, unsigned index);

/// Equal parts of the type along `dim` lie one after the other: the dimensions before it are all 1.
bool isLeading(mlir::RankedTensorType type, int64_t dim);

/// A constant whose bytes are all zero.
bool isZero(mlir::Value value);

} // namespace braid

#endif // PASSES_ANALYSIS_VIEWS_H
