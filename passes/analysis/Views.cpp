//===- Views.cpp - which values are other values' bytes -----------------------------------------------------------===//
#include "passes/analysis/Views.h"

#include "dialects/cmd/CmdDialect.h"

using namespace mlir;
using namespace braid;

static RankedTensorType tensorOf(Value value) { return cast<RankedTensorType>(value.getType()); }

SmallVector<int64_t> braid::rowMajor(ArrayRef<int64_t> shape) {
  SmallVector<int64_t> strides(shape.size(), 1);
  for (int64_t i = static_cast<int64_t>(shape.size()) - 2; i >= 0; --i)
    strides[i] = strides[i + 1] * shape[i + 1];
  return strides;
}

SmallVector<int64_t> braid::elementStrides(Value value) {
  if (auto slice = value.getDefiningOp<SliceOp>())
    return elementStrides(slice.getSource());
  return rowMajor(tensorOf(value).getShape());
}

bool braid::isContiguous(Value value) {
  auto type = tensorOf(value);
  SmallVector<int64_t> strides = elementStrides(value), dense = rowMajor(type.getShape());
  for (auto [size, stride, wanted] : llvm::zip(type.getShape(), strides, dense))
    if (size != 1 && stride != wanted)
      return false;
  return true;
}

int64_t braid::extentBytes(Value value) {
  auto type = tensorOf(value);
  int64_t last = 0;
  for (auto [size, stride] : llvm::zip(type.getShape(), elementStrides(value))) {
    if (size == 0)
      return 0;
    last += (size - 1) * stride;
  }
  return (last + 1) * cmd::elementBytes(type.getElementType());
}

std::optional<View> braid::viewOf(Value value) {
  if (auto reshape = value.getDefiningOp<ReshapeOp>())
    return View{reshape.getSource(), 0};
  if (auto slice = value.getDefiningOp<SliceOp>()) {
    int64_t stride = elementStrides(slice.getSource())[slice.getDim()];
    return View{slice.getSource(),
                static_cast<int64_t>(slice.getBegin()) * stride * cmd::elementBytes(tensorOf(value).getElementType())};
  }
  return std::nullopt;
}

Value braid::viewRoot(Value value) {
  while (auto view = viewOf(value))
    value = view->source;
  return value;
}

std::optional<int64_t> braid::concatOffset(ConcatOp concat, unsigned index) {
  if (!isLeading(cast<RankedTensorType>(concat.getType()), concat.getDim()))
    return std::nullopt;
  int64_t offset = 0;
  for (Value source : concat.getSources().take_front(index))
    offset += cmd::tensorBytes(tensorOf(source));
  return offset;
}

bool braid::isLeading(RankedTensorType type, int64_t dim) {
  return llvm::all_of(type.getShape().take_front(dim), [](int64_t size) { return size == 1; });
}

bool braid::isZero(Value value) {
  auto constant = value.getDefiningOp<arith::ConstantOp>();
  auto dense = constant ? dyn_cast<DenseElementsAttr>(constant.getValue()) : DenseElementsAttr();
  if (!dense || !dense.isSplat())
    return false;
  return llvm::all_of(dense.getRawData(), [](char byte) { return byte == 0; });
}
