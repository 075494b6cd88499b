//===- TileVerifiers.cpp - what every tile op checks: shapes and types, with both numbers ------------------------===//
#include "dialects/tile/TileDialect.h"

using namespace mlir;
using namespace braid::tile;

static std::string shown(ArrayRef<int64_t> shape) {
  std::string text;
  llvm::raw_string_ostream os(text);
  os << '[';
  llvm::interleaveComma(shape, os);
  os << ']';
  return text;
}

static LogicalResult checkAxis(Operation *op, int64_t axis, int64_t rank) {
  if (axis < 0 || axis >= rank)
    return op->emitOpError("axis ") << axis << " is out of range for rank " << rank;
  return success();
}

/// The error with "<name> defined here" at the other value of a disagreement.
static LogicalResult withNote(InFlightDiagnostic diagnostic, StringRef name, Value other) {
  diagnostic.attachNote(other.getLoc()) << name << " defined here";
  return diagnostic;
}

static LogicalResult checkElement(Operation *op, StringRef a, Value va, StringRef b, Type tb) {
  if (getElementTypeOrSelf(va) != getElementTypeOrSelf(tb))
    return withNote(op->emitOpError("element type mismatch: ") << a << " has " << getElementTypeOrSelf(va) << " but "
                                                               << b << " has " << getElementTypeOrSelf(tb),
                    a.starts_with("the ") ? a.drop_front(4) : a, va);
  return success();
}

/// What load and store share: one index per buffer dimension, `dims` ascending, one per tile dimension.
static LogicalResult checkAccess(Operation *op, Value source, size_t indices, ArrayRef<int64_t> dims, VectorType tile) {
  auto buffer = cast<MemRefType>(source.getType());
  if (indices != static_cast<size_t>(buffer.getRank()))
    return withNote(op->emitOpError("has ") << indices << " indices but the buffer has rank " << buffer.getRank(),
                    "buffer", source);
  if (static_cast<int64_t>(dims.size()) != tile.getRank())
    return op->emitOpError("dims names ") << dims.size() << " dimensions but the tile has rank " << tile.getRank();
  for (auto [j, dim] : llvm::enumerate(dims)) {
    if (dim < 0 || dim >= buffer.getRank())
      return withNote(op->emitOpError("dims[")
                          << j << "] = " << dim << " is out of range for a buffer of rank " << buffer.getRank(),
                      "buffer", source);
    if (j > 0 && dim <= dims[j - 1])
      return op->emitOpError("dims must ascend: dims[") << j << "] = " << dim << " follows " << dims[j - 1];
    if (j > 0 && !buffer.isDynamicDim(dim) && tile.getDimSize(j) > buffer.getDimSize(dim))
      return withNote(op->emitOpError("tile dimension ")
                          << j << " has " << tile.getDimSize(j) << " elements but buffer dimension " << dim << " has "
                          << buffer.getDimSize(dim),
                      "buffer", source);
  }
  return checkElement(op, "the buffer", source, "the tile", tile);
}

/// A row number for every row of the tile.
static LogicalResult checkRowNumbers(Operation *op, Value numbers, VectorType tile) {
  auto rows = cast<VectorType>(numbers.getType());
  if (rows.getRank() != 1 || rows.getDimSize(0) != tile.getDimSize(0))
    return withNote(op->emitOpError("rows has shape ")
                        << shown(rows.getShape()) << " but the tile has " << tile.getDimSize(0) << " rows",
                    "rows", numbers);
  return success();
}

LogicalResult LoadOp::verify() {
  auto tile = cast<VectorType>(getType());
  if (getRows() && failed(checkRowNumbers(*this, getRows(), tile)))
    return failure();
  return checkAccess(*this, getSource(), getIndices().size(), getDims(), tile);
}

LogicalResult StoreOp::verify() {
  auto tile = cast<VectorType>(getValue().getType());
  if (getRows() && failed(checkRowNumbers(*this, getRows(), tile)))
    return failure();
  return checkAccess(*this, getTarget(), getIndices().size(), getDims(), tile);
}

LogicalResult ProgramOp::verify() {
  auto func = (*this)->getParentOfType<func::FuncOp>();
  auto grid = func ? func->getAttrOfType<ArrayAttr>(kGridAttr) : ArrayAttr();
  if (!grid)
    return emitOpError("is outside of a kernel (a func.func with tile.grid)");
  if (grid.size() != getNumResults())
    return emitOpError("has ") << getNumResults() << " results but tile.grid has " << grid.size() << " names";
  return success();
}

LogicalResult DotOp::verify() {
  auto a = cast<VectorType>(getA().getType()), b = cast<VectorType>(getB().getType()),
       acc = cast<VectorType>(getType());
  for (auto [name, type] : {std::pair("a", a), std::pair("b", b), std::pair("acc", acc)})
    if (type.getRank() != 2)
      return emitOpError(name) << " must have rank 2, has rank " << type.getRank();
  bool ta = getTransposeA(), tb = getTransposeB();
  int64_t m = a.getDimSize(ta), ka = a.getDimSize(!ta), kb = b.getDimSize(tb), n = b.getDimSize(!tb);
  if (ka != kb)
    return withNote(emitOpError("inner dimension mismatch: op(a) is ")
                        << shown({m, ka}) << " but op(b) is " << shown({kb, n}),
                    "b", getB());
  if (acc.getDimSize(0) != m)
    return withNote(emitOpError("row mismatch: op(a) has ") << m << " rows but acc has " << acc.getDimSize(0), "acc",
                    getAcc());
  if (acc.getDimSize(1) != n)
    return withNote(emitOpError("column mismatch: op(b) has ") << n << " columns but acc has " << acc.getDimSize(1),
                    "acc", getAcc());
  if (failed(checkElement(*this, "a", getA(), "b", b)))
    return failure();
  Type wanted = a.getElementType().isF64() ? a.getElementType() : Float32Type::get(getContext());
  if (acc.getElementType() != wanted)
    return withNote(emitOpError("accumulates ")
                        << a.getElementType() << " in " << wanted << " but acc has " << acc.getElementType(),
                    "acc", getAcc());
  return success();
}

LogicalResult SolveOp::verify() {
  auto a = cast<VectorType>(getA().getType()), b = cast<VectorType>(getB().getType());
  if (a.getRank() != 2 || a.getDimSize(0) != a.getDimSize(1))
    return emitOpError("a must be square, is ") << shown(a.getShape());
  if (b.getRank() != 2)
    return emitOpError("b must have rank 2, has rank ") << b.getRank();
  if (a.getDimSize(0) != b.getDimSize(0))
    return withNote(emitOpError("row mismatch: a has ") << a.getDimSize(0) << " rows but b has " << b.getDimSize(0),
                    "b", getB());
  if (a.getElementType().isF64() != b.getElementType().isF64())
    return checkElement(*this, "a", getA(), "b", b);
  return success();
}

LogicalResult CumsumOp::verify() { return checkAxis(*this, getAxis(), cast<VectorType>(getType()).getRank()); }

LogicalResult ReduceOp::verify() {
  auto source = cast<VectorType>(getSource().getType());
  if (failed(checkAxis(*this, getAxis(), source.getRank())))
    return failure();
  SmallVector<int64_t> shape(source.getShape());
  shape.erase(shape.begin() + getAxis());
  Type wanted = shape.empty() ? source.getElementType() : VectorType::get(shape, source.getElementType());
  if (getType() != wanted)
    return emitOpError("reducing axis ") << getAxis() << " of " << source << " gives " << wanted << ", not "
                                         << getType();
  return success();
}

LogicalResult ExpandOp::verify() {
  auto source = cast<VectorType>(getSource().getType()), result = cast<VectorType>(getType());
  if (failed(checkElement(*this, "the source", getSource(), "the result", result)))
    return failure();
  if (result.getRank() != source.getRank() + 1)
    return emitOpError("result must have rank ") << source.getRank() + 1 << ", has rank " << result.getRank();
  if (failed(checkAxis(*this, getAxis(), result.getRank())))
    return failure();
  SmallVector<int64_t> shape(result.getShape());
  shape.erase(shape.begin() + getAxis());
  if (ArrayRef<int64_t>(shape) != source.getShape())
    return emitOpError("result without axis ")
           << getAxis() << " is " << shown(shape) << " but the source is " << shown(source.getShape());
  return success();
}

/// `part` is rows of `whole`: equal but for the first dimension, or one row.
static LogicalResult checkRows(Operation *op, Value tile, Type part, StringRef partName) {
  auto whole = cast<VectorType>(tile.getType());
  if (failed(checkElement(op, "the tile", tile, partName, part)))
    return failure();
  auto vector = dyn_cast<VectorType>(part);
  ArrayRef<int64_t> shape = vector ? vector.getShape() : ArrayRef<int64_t>();
  if (static_cast<int64_t>(shape.size()) == whole.getRank()) {
    if (shape.front() > whole.getDimSize(0))
      return withNote(op->emitOpError() << partName << " has " << shape.front() << " rows but the tile has "
                                        << whole.getDimSize(0),
                      "tile", tile);
    shape = shape.drop_front();
  }
  if (shape != whole.getShape().drop_front())
    return withNote(op->emitOpError() << "row mismatch: a row of the tile is " << shown(whole.getShape().drop_front())
                                      << " but of " << partName << " " << shown(shape),
                    "tile", tile);
  return success();
}

LogicalResult RowsOp::verify() { return checkRows(*this, getSource(), getType(), "the result"); }

LogicalResult InsertRowsOp::verify() { return checkRows(*this, getTarget(), getValue().getType(), "the value"); }

LogicalResult SliceOp::verify() {
  auto source = cast<VectorType>(getSource().getType()), result = cast<VectorType>(getType());
  if (failed(checkElement(*this, "the source", getSource(), "the result", result)))
    return failure();
  if (source.getRank() != result.getRank() || source.getShape().drop_back() != result.getShape().drop_back())
    return emitOpError("only the last dimension may differ: source ")
           << shown(source.getShape()) << ", result " << shown(result.getShape());
  int64_t offset = getOffset(), end = offset + result.getShape().back();
  if (offset < 0 || end > source.getShape().back())
    return withNote(emitOpError("columns [") << offset << ", " << end << ") are outside of a tile with "
                                             << source.getShape().back() << " columns",
                    "source", getSource());
  return success();
}

LogicalResult ConcatOp::verify() {
  if (getSources().empty())
    return emitOpError("needs at least one tile");
  auto result = cast<VectorType>(getType());
  int64_t columns = 0;
  for (auto [i, source] : llvm::enumerate(getSources())) {
    auto type = cast<VectorType>(source.getType());
    if (failed(checkElement(*this, "source " + std::to_string(i), source, "the result", result)))
      return failure();
    if (type.getRank() != result.getRank() || type.getShape().drop_back() != result.getShape().drop_back())
      return withNote(emitOpError("source ")
                          << i << " is " << shown(type.getShape()) << " but the result is " << shown(result.getShape()),
                      "source " + std::to_string(i), source);
    columns += type.getShape().back();
  }
  if (columns != result.getShape().back())
    return emitOpError("the sources have ") << columns << " columns but the result has " << result.getShape().back();
  return success();
}

LogicalResult TransposeOp::verify() {
  auto source = cast<VectorType>(getSource().getType()), result = cast<VectorType>(getType());
  if (source.getRank() != 2)
    return emitOpError("source must have rank 2, has rank ") << source.getRank();
  auto wanted = VectorType::get({source.getDimSize(1), source.getDimSize(0)}, source.getElementType());
  if (result != wanted)
    return emitOpError("transposing ") << source << " gives " << wanted << ", not " << result;
  return success();
}

LogicalResult IotaOp::verify() { return checkAxis(*this, getAxis(), cast<VectorType>(getType()).getRank()); }

LogicalResult MaskOp::verify() {
  auto type = cast<VectorType>(getType());
  if (type.getRank() != 2 || type.getDimSize(0) != type.getDimSize(1))
    return emitOpError("needs a square tile of rank 2, is ") << shown(type.getShape());
  return success();
}

/// One element of each row of a rank-2 tile.
static LogicalResult checkElements(Operation *op, Value source, Type result) {
  auto type = cast<VectorType>(source.getType()), vector = cast<VectorType>(result);
  if (failed(checkElement(op, "the source", source, "the result", vector)))
    return failure();
  if (vector.getShape() != type.getShape().take_front(1))
    return withNote(op->emitOpError("needs a number for each of ")
                        << type.getDimSize(0) << " rows, the result is " << shown(vector.getShape()),
                    "source", source);
  return success();
}

LogicalResult DiagonalOp::verify() {
  auto type = cast<VectorType>(getSource().getType());
  if (type.getRank() != 2 || type.getDimSize(0) != type.getDimSize(1))
    return emitOpError("needs a square tile of rank 2, is ") << shown(type.getShape());
  return checkElements(*this, getSource(), getType());
}

LogicalResult PickOp::verify() {
  auto type = cast<VectorType>(getSource().getType()), columns = cast<VectorType>(getColumns().getType());
  if (type.getRank() != 2)
    return emitOpError("source must have rank 2, has rank ") << type.getRank();
  if (columns.getShape() != type.getShape().take_front(1))
    return withNote(emitOpError("needs a column for each of ")
                        << type.getDimSize(0) << " rows, has " << shown(columns.getShape()),
                    "columns", getColumns());
  return checkElements(*this, getSource(), getType());
}

//===- Launches ---------------------------------------------------------------------------------------------------===//

LogicalResult LaunchOp::verify() {
  if (getGrid().size() < 1 || getGrid().size() > 3)
    return emitOpError("grid must have 1 to 3 extents, has ") << getGrid().size();
  for (int64_t extent : getGrid())
    if (extent < 0)
      return emitOpError("grid extent ") << extent << " is negative";
  if (getArgNames().size() != getInputs().size())
    return emitOpError("has ") << getInputs().size() << " operands but " << getArgNames().size() << " arg_names";
  if (getResultNames().size() != getOutputs().size())
    return emitOpError("has ") << getOutputs().size() << " results but " << getResultNames().size() << " result_names";
  if (getInplace().size() != getOutputs().size())
    return emitOpError("has ") << getOutputs().size() << " results but inplace has " << getInplace().size()
                               << " entries";
  for (auto [i, operand] : llvm::enumerate(getInplace())) {
    if (operand >= static_cast<int64_t>(getInputs().size()))
      return emitOpError("inplace[") << i << "] = " << operand << " but there are " << getInputs().size()
                                     << " operands";
    if (operand >= 0 && getInputs()[operand].getType() != getOutputs()[i].getType())
      return withNote(emitOpError("result ")
                          << i << " is " << getOutputs()[i].getType() << " but shares the buffer of operand " << operand
                          << " of type " << getInputs()[operand].getType(),
                      "operand " + std::to_string(operand), getInputs()[operand]);
  }
  return success();
}

/// Rows and columns of a tensor whose trailing dimensions, as many as multiply to `columns`, form the columns.
static LogicalResult matrixOf(Operation *op, StringRef name, Value value, int64_t columns) {
  auto tensor = cast<RankedTensorType>(value.getType());
  if (columns < 1)
    return op->emitOpError() << name << "_columns = " << columns << " but must be at least 1";
  int64_t product = 1;
  for (int64_t size : llvm::reverse(tensor.getShape())) {
    if (product == columns)
      return success();
    if (ShapedType::isDynamic(size))
      break;
    product *= size;
  }
  if (product == columns)
    return success();
  InFlightDiagnostic diagnostic = op->emitOpError() << name << "_columns = " << columns
                                                    << " is no product of trailing dimensions of " << tensor;
  if (value.getDefiningOp() != op)
    diagnostic.attachNote(value.getLoc()) << name << " defined here";
  return diagnostic;
}

/// c is what the result becomes in its place, or (apart) something of its shape that need not be rounded yet.
template <typename Op> static LogicalResult checkSum(Op op) {
  if (!op.getC())
    return op.getApart() ? op.emitOpError("apart says where the result lies from c, but there is no c") : success();
  auto c = cast<RankedTensorType>(op.getC().getType()), result = cast<RankedTensorType>(op.getType());
  bool fits = c == result || (op.getApart() && c.getShape() == result.getShape() && c.getElementType().isF32());
  if (!fits)
    return withNote(op.emitOpError("result is ") << result << " but c is " << c, "c", op.getC());
  return success();
}

LogicalResult GemmOp::verify() {
  if (failed(matrixOf(*this, "a", getA(), getAColumns())) || failed(matrixOf(*this, "b", getB(), getBColumns())) ||
      failed(matrixOf(*this, "c", getResult(), getCColumns())))
    return failure();
  if (failed(checkSum(*this)))
    return failure();
  auto rows = [](Type type, int64_t columns) {
    auto tensor = cast<RankedTensorType>(type);
    return tensor.hasStaticShape() ? tensor.getNumElements() / columns : ShapedType::kDynamic;
  };
  int64_t ra = rows(getA().getType(), getAColumns()), rb = rows(getB().getType(), getBColumns()),
          rc = rows(getType(), getCColumns());
  int64_t m = getTransposeA() ? getAColumns() : ra, ka = getTransposeA() ? ra : getAColumns();
  int64_t kb = getTransposeB() ? getBColumns() : rb, n = getTransposeB() ? rb : getBColumns();
  auto differ = [](int64_t x, int64_t y) { return !ShapedType::isDynamic(x) && !ShapedType::isDynamic(y) && x != y; };
  if (differ(ka, kb))
    return withNote(emitOpError("inner dimension mismatch: op(a) has ")
                        << ka << " columns but op(b) has " << kb << " rows",
                    "b", getB());
  if (differ(m, rc))
    return withNote(emitOpError("row mismatch: op(a) has ") << m << " rows but the result has " << rc, "a", getA());
  if (differ(n, getCColumns()))
    return withNote(emitOpError("column mismatch: op(b) has ") << n << " columns but the result has " << getCColumns(),
                    "b", getB());
  return success();
}

LogicalResult GroupedGemmOp::verify() {
  auto a = cast<RankedTensorType>(getA().getType()), b = cast<RankedTensorType>(getB().getType());
  auto offsets = cast<RankedTensorType>(getOffsets().getType()), result = cast<RankedTensorType>(getType());
  for (auto [name, type] : {std::pair("a", a), std::pair("b", b), std::pair("result", result)})
    if (type.getRank() != 3)
      return emitOpError(name) << " must have rank 3, has rank " << type.getRank();
  if (offsets.getRank() != 1)
    return emitOpError("offsets must have rank 1, has rank ") << offsets.getRank();
  if (!offsets.getElementType().isInteger(32))
    return emitOpError("offsets must be i32, is ") << offsets.getElementType();
  if (failed(checkSum(*this)))
    return failure();
  if (getWeight() && getTransposeB())
    return emitOpError("transpose_b has no meaning for weight");
  if (getWeight() && getApart())
    return emitOpError("apart has no meaning for weight");
  // The groups are the first dimension of the weights: b, or the result when it is their gradient.
  int64_t groups = getWeight() ? result.getDimSize(0) : b.getDimSize(0);
  if (offsets.getDimSize(0) != groups + 1)
    return withNote(emitOpError("offsets has ")
                        << offsets.getDimSize(0) << " entries but there are " << groups << " groups",
                    "offsets", getOffsets());
  auto wanted = SmallVector<int64_t>{1, a.getDimSize(1), b.getDimSize(getTransposeB() ? 1 : 2)};
  if (getWeight()) {
    if (a.getDimSize(1) != b.getDimSize(1))
      return withNote(emitOpError("row mismatch: a has ") << a.getDimSize(1) << " rows but b has " << b.getDimSize(1),
                      "b", getB());
    wanted = {groups, a.getDimSize(2), b.getDimSize(2)};
  } else if (int64_t inner = b.getDimSize(getTransposeB() ? 2 : 1); a.getDimSize(2) != inner) {
    return withNote(emitOpError("inner dimension mismatch: a has ")
                        << a.getDimSize(2) << " columns but op(b) has " << inner << " rows",
                    "b", getB());
  }
  if (result.getShape() != ArrayRef(wanted))
    return emitOpError("result is ") << shown(result.getShape()) << " but the product is " << shown(wanted);
  return success();
}
