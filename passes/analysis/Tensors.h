//===- Tensors.h - types of local tensors -------------------------------------------------------------------------===//
#ifndef PASSES_ANALYSIS_TENSORS_H
#define PASSES_ANALYSIS_TENSORS_H

#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Value.h"

namespace braid {

inline mlir::RankedTensorType typeOf(mlir::Value v) { return mlir::cast<mlir::RankedTensorType>(v.getType()); }

/// The same but for the size of one dimension: what a rank's or a slice's share of a tensor is.
inline mlir::RankedTensorType withDim(mlir::RankedTensorType type, int64_t dim, int64_t size) {
  llvm::SmallVector<int64_t> shape(type.getShape());
  shape[dim] = size;
  return mlir::RankedTensorType::get(shape, type.getElementType());
}

/// Of `count` such tensors, one for each iteration of a repeat.
inline mlir::RankedTensorType stackedType(int64_t count, mlir::Type type) {
  auto tensor = mlir::cast<mlir::RankedTensorType>(type);
  llvm::SmallVector<int64_t> shape(tensor.getShape());
  shape.insert(shape.begin(), count);
  return tensor.clone(shape);
}

} // namespace braid

#endif // PASSES_ANALYSIS_TENSORS_H
