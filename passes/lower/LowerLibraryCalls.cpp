//===- LowerLibraryCalls.cpp - gemm and grouped gemm on planned buffers -------------------------------------------===//
#include "passes/lower/CommandLowering.h"

#include "passes/analysis/Views.h"

using namespace mlir;
using namespace braid;

/// A tensor read as `batch` matrices; strides in elements.
struct MatrixView {
  int64_t rows = 1, columns, leading, batch = 1, batchStride = 0;
};

/// Trailing dimensions that multiply to `columns` form the columns, the others the rows. Rows that do not follow each
/// other at one distance (a slice of the tokens of several sequences) are a batch of equal matrices.
static FailureOr<MatrixView> matrixOf(Operation *op, StringRef name, Value value, int64_t columns) {
  auto shape = cast<RankedTensorType>(value.getType()).getShape();
  SmallVector<int64_t> strides = elementStrides(value);
  MatrixView view;
  view.columns = columns;
  int64_t i = shape.size(), product = 1;
  while (product < columns && i > 0) {
    --i;
    if (shape[i] != 1 && strides[i] != product)
      return op->emitOpError("'") << name << "': the columns of a row are not one after the other in "
                                  << value.getType(),
             failure();
    product *= shape[i];
  }
  if (product != columns)
    return op->emitOpError("'") << name << "': " << columns << " columns do not fit " << value.getType(), failure();
  view.leading = columns;
  bool inRows = true, first = true;
  int64_t span = 0; // the next dimension's stride if it continues the rows (the batch)
  while (i-- > 0) {
    if (shape[i] == 1)
      continue;
    if (first) {
      view.leading = strides[i];
      first = false;
    } else if (strides[i] != span) {
      if (!inRows)
        return op->emitOpError("'") << name << "': the rows have more than two distances in " << value.getType(),
               failure();
      inRows = false;
      view.batchStride = strides[i];
    }
    (inRows ? view.rows : view.batch) *= shape[i];
    span = strides[i] * shape[i];
  }
  return view;
}

/// Cuts one matrix into `batch` equal pieces of rows.
static LogicalResult cut(MatrixView &view, int64_t batch) {
  if (view.batch == batch)
    return success();
  if (view.batch != 1 || view.rows % batch)
    return failure();
  view.rows /= batch;
  view.batch = batch;
  view.batchStride = view.rows * view.leading;
  return success();
}

static cmd::BufferAttr shifted(cmd::BufferAttr buffer, int64_t bytes) {
  return cmd::BufferAttr::get(buffer.getContext(), buffer.getArena(), buffer.getOffset() + bytes,
                              buffer.getBytes() - bytes, buffer.getStrides());
}

LogicalResult CommandLowering::lower(tile::GemmOp gemm) {
  auto a = matrixOf(gemm, "a", gemm.getA(), gemm.getAColumns());
  auto b = matrixOf(gemm, "b", gemm.getB(), gemm.getBColumns());
  auto c = matrixOf(gemm, "c", gemm.getResult(), gemm.getCColumns());
  if (failed(a) || failed(b) || failed(c))
    return failure();
  FailureOr<MatrixView> addend = MatrixView{};
  if (gemm.getApart()) {
    addend = matrixOf(gemm, "c", gemm.getC(), gemm.getCColumns());
    if (failed(addend))
      return failure();
    if (addend->leading != c->leading)
      return gemm.emitOpError("rows of c are ")
             << addend->leading << " elements apart but those of the result " << c->leading;
  }
  auto typeOf = [](Value value) { return TypeAttr::get(cast<RankedTensorType>(value.getType()).getElementType()); };
  auto emit = [&](const MatrixView &a, const MatrixView &b, const MatrixView &c, int64_t piece, bool accumulate,
                  int64_t batch) {
    int64_t m = c.rows, n = c.columns, k = gemm.getTransposeA() ? a.rows : a.columns;
    auto number = [&](int64_t value) { return builder.getI64IntegerAttr(value); };
    auto at = [&](Value value, const MatrixView &view) {
      return shifted(bufferOf(value),
                     piece * view.batchStride * cmd::elementBytes(getElementTypeOrSelf(value.getType())));
    };
    auto made = cmd::GemmOp::create(
        builder, gemm.getLoc(), number(m), number(n), number(k), at(gemm.getA(), a), at(gemm.getB(), b),
        at(gemm.getResult(), c), number(a.leading), number(b.leading), number(c.leading), typeOf(gemm.getA()),
        typeOf(gemm.getB()), typeOf(gemm.getResult()), gemm.getTransposeAAttr(), gemm.getTransposeBAttr(),
        accumulate ? builder.getUnitAttr() : UnitAttr(), number(batch), number(batch > 1 ? a.batchStride : 0),
        number(batch > 1 ? b.batchStride : 0), number(batch > 1 ? c.batchStride : 0), cmd::BufferAttr(), TypeAttr(),
        number(0), FlatSymbolRefAttr(), nameOf(gemm, "gemm"));
    if (gemm.getApart() && !accumulate) {
      made.setAddendAttr(bufferOf(gemm.getC()));
      made.setTypeAddendAttr(typeOf(gemm.getC()));
      made.setBatchStrideAddend(batch > 1 ? addend->batchStride : 0);
    }
  };
  bool accumulate = gemm.getC() && !gemm.getApart();
  auto irregular = [&](StringRef why) { return gemm.emitOpError("a slice with gaps cannot be multiplied: ") << why; };
  if (b->batch > 1 && !gemm.getTransposeA())
    return irregular("b has rows at two distances");
  if (gemm.getTransposeA()) {
    if (gemm.getApart() && addend->batch > 1)
      return irregular("c has rows at two distances");
    // Rows of a and b are summed over: pieces accumulate.
    if (c->batch > 1)
      return irregular("the result has rows at two distances");
    int64_t pieces = std::max(a->batch, b->batch);
    if (pieces > 1 && gemm.getTransposeB())
      return irregular("both operands are transposed");
    if (failed(cut(*a, pieces)) || failed(cut(*b, pieces)))
      return irregular("a and b are cut differently");
    for (int64_t piece = 0; piece < pieces; ++piece)
      emit(*a, *b, *c, piece, accumulate || piece > 0, 1);
    return success();
  }
  int64_t batch = std::max({a->batch, c->batch, addend->batch});
  if (failed(cut(*a, batch)) || failed(cut(*c, batch)) || (gemm.getApart() && failed(cut(*addend, batch))))
    return irregular("a, c and the result are cut differently");
  emit(*a, *b, *c, 0, accumulate, batch);
  return success();
}

LogicalResult CommandLowering::lower(tile::GroupedGemmOp gemm) {
  auto a = cast<RankedTensorType>(gemm.getA().getType()), b = cast<RankedTensorType>(gemm.getB().getType()),
       c = cast<RankedTensorType>(gemm.getResult().getType());
  for (Value value : {gemm.getA(), gemm.getB(), gemm.getOffsets(), gemm.getC(), gemm.getResult()})
    if (value && !isContiguous(value))
      return gemm.emitOpError("a slice with gaps cannot be multiplied by groups: ") << value.getType();
  bool weight = gemm.getWeight(), transposed = gemm.getTransposeB();
  int64_t groups = cast<RankedTensorType>(gemm.getOffsets().getType()).getNumElements() - 1, rows = a.getDimSize(1);
  int64_t m = weight ? a.getDimSize(2) : 0, k = weight ? 0 : a.getDimSize(2);
  int64_t n = weight ? b.getDimSize(2) : b.getDimSize(transposed ? 1 : 2);
  auto number = [&](int64_t value) { return builder.getI64IntegerAttr(value); };
  cmd::GroupedGemmOp::create(
      builder, gemm.getLoc(),
      cmd::GroupedKindAttr::get(gemm.getContext(), weight ? cmd::GroupedKind::weight : cmd::GroupedKind::rows),
      number(groups), number(rows), number(m), number(n), number(k), bufferOf(gemm.getA()), bufferOf(gemm.getB()),
      bufferOf(gemm.getResult()), bufferOf(gemm.getOffsets()), number(a.getDimSize(2)), number(b.getDimSize(2)),
      number(c.getDimSize(c.getRank() - 1)), TypeAttr::get(a.getElementType()), TypeAttr::get(b.getElementType()),
      TypeAttr::get(c.getElementType()), gemm.getTransposeBAttr(),
      gemm.getC() && !gemm.getApart() ? builder.getUnitAttr() : UnitAttr(),
      gemm.getApart() ? bufferOf(gemm.getC()) : cmd::BufferAttr(),
      gemm.getApart() ? TypeAttr::get(getElementTypeOrSelf(gemm.getC().getType())) : TypeAttr(), FlatSymbolRefAttr(),
      nameOf(gemm, "grouped_gemm"));
  return success();
}
