//===- BraidDialect.cpp - registration of the model dialect -------------------------------------------------------===//
#include "dialects/braid/BraidDialect.h"
#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace braid;

#include "dialects/braid/BraidDialect.cpp.inc"
#include "dialects/braid/BraidEnums.cpp.inc"
#include "dialects/braid/BraidOpInterfaces.cpp.inc"
#define GET_TYPEDEF_CLASSES
#include "dialects/braid/BraidTypes.cpp.inc"
#define GET_OP_CLASSES
#include "dialects/braid/StructureOps.cpp.inc"
#define GET_OP_CLASSES
#include "dialects/braid/RowsOps.cpp.inc"
#define GET_OP_CLASSES
#include "dialects/braid/LinearOps.cpp.inc"
#define GET_OP_CLASSES
#include "dialects/braid/LsmOps.cpp.inc"
#define GET_OP_CLASSES
#include "dialects/braid/AttnOps.cpp.inc"
#define GET_OP_CLASSES
#include "dialects/braid/MoeOps.cpp.inc"
#define GET_OP_CLASSES
#include "dialects/braid/CommOps.cpp.inc"
#define GET_OP_CLASSES
#include "dialects/braid/TrainOps.cpp.inc"

void BraidDialect::initialize() {
  addTypes<
#define GET_TYPEDEF_LIST
#include "dialects/braid/BraidTypes.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "dialects/braid/StructureOps.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "dialects/braid/RowsOps.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "dialects/braid/LinearOps.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "dialects/braid/LsmOps.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "dialects/braid/AttnOps.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "dialects/braid/MoeOps.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "dialects/braid/CommOps.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "dialects/braid/TrainOps.cpp.inc"
      >();
}

//===- Views ------------------------------------------------------------------------------------------------------===//

OpFoldResult ReshapeOp::fold(FoldAdaptor) {
  if (getSource().getType() == getResult().getType())
    return getSource();
  if (auto inner = getSource().getDefiningOp<ReshapeOp>()) {
    if (inner.getSource().getType() == getResult().getType())
      return inner.getSource();
    getSourceMutable().assign(inner.getSource());
    return getResult();
  }
  return {};
}

OpFoldResult SliceOp::fold(FoldAdaptor) {
  if (getSource().getType() == getResult().getType())
    return getSource();
  // A slice that is exactly one source of a concat is that source.
  if (auto concat = getSource().getDefiningOp<ConcatOp>(); concat && concat.getDim() == getDim()) {
    int64_t at = 0;
    for (Value source : concat.getSources()) {
      if (at == static_cast<int64_t>(getBegin()) && source.getType() == getResult().getType())
        return source;
      at += cast<ShapedType>(source.getType()).getDimSize(getDim());
    }
  }
  return {};
}

OpFoldResult ConcatOp::fold(FoldAdaptor) {
  if (getSources().size() == 1)
    return getSources()[0];
  // Slices of one value that tile it in order are the value.
  Value whole;
  int64_t at = 0;
  for (Value source : getSources()) {
    auto slice = source.getDefiningOp<SliceOp>();
    if (!slice || slice.getDim() != getDim() || static_cast<int64_t>(slice.getBegin()) != at)
      return {};
    if (whole && slice.getSource() != whole)
      return {};
    whole = slice.getSource();
    at += cast<ShapedType>(source.getType()).getDimSize(getDim());
  }
  return whole && whole.getType() == getResult().getType() ? whole : OpFoldResult();
}
