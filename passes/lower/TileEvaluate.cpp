//===- TileEvaluate.cpp - one strip of a lazy tile ----------------------------------------------------------------===//
#include "passes/lower/TileLowering.h"

using namespace mlir;
using namespace braid;
using namespace braid::lower;

//===- Index arithmetic -------------------------------------------------------------------------------------------===//

Value TileLowering::constant(int64_t value) {
  Value &known = constants[value];
  if (!known) {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPoint(entryEnd);
    known = arith::ConstantIndexOp::create(b, loc, value);
  }
  return known;
}

Value TileLowering::add(Value x, Value y) {
  std::optional<int64_t> cx = getConstantIntValue(x), cy = getConstantIntValue(y);
  if (cx && cy)
    return constant(*cx + *cy);
  if (cx && *cx == 0)
    return y;
  if (cy && *cy == 0)
    return x;
  return arith::AddIOp::create(b, loc, x, y);
}

Value TileLowering::mul(Value x, Value y) {
  std::optional<int64_t> cx = getConstantIntValue(x), cy = getConstantIntValue(y);
  if (cx && cy)
    return constant(*cx * *cy);
  if ((cx && *cx == 0) || (cy && *cy == 1))
    return x;
  if ((cy && *cy == 0) || (cx && *cx == 1))
    return y;
  return arith::MulIOp::create(b, loc, x, y);
}

Value TileLowering::divide(Value x, int64_t y) {
  if (std::optional<int64_t> c = getConstantIntValue(x))
    return constant(*c / y);
  return y == 1 ? x : arith::DivUIOp::create(b, loc, x, constant(y)).getResult();
}

Value TileLowering::remainder(Value x, int64_t y) {
  if (std::optional<int64_t> c = getConstantIntValue(x))
    return constant(*c % y);
  return y == 1 ? constant(0) : arith::RemUIOp::create(b, loc, x, constant(y)).getResult();
}

//===- Vectors ----------------------------------------------------------------------------------------------------===//

Value TileLowering::zero(Type type) { return arith::ConstantOp::create(b, loc, b.getZeroAttr(type)); }

Value TileLowering::number(Type element, double value) {
  TypedAttr attr = isa<FloatType>(element) ? TypedAttr(b.getFloatAttr(element, value))
                                           : TypedAttr(b.getIntegerAttr(element, static_cast<int64_t>(value)));
  return arith::ConstantOp::create(b, loc, attr);
}

Value TileLowering::numberOf(Type type, double value) {
  auto vector = dyn_cast<VectorType>(type);
  return vector ? splat(number(vector.getElementType(), value), vector.getDimSize(0)) : number(type, value);
}

Value TileLowering::splat(Value scalar, int64_t width) {
  if (width == 0)
    return scalar;
  Attribute value;
  auto type = VectorType::get({width}, scalar.getType());
  if (matchPattern(scalar, m_Constant(&value)))
    return arith::ConstantOp::create(b, loc, DenseElementsAttr::get(type, value));
  return vector::BroadcastOp::create(b, loc, type, scalar);
}

Value TileLowering::lanes(int64_t width, Type element) {
  SmallVector<Attribute> values;
  for (int64_t i = 0; i < width; ++i)
    values.push_back(b.getIntegerAttr(element, i));
  return arith::ConstantOp::create(b, loc, DenseElementsAttr::get(VectorType::get({width}, element), values));
}

Value TileLowering::laneMask(const Strip &strip) {
  SmallVector<bool> values(strip.width);
  for (int64_t i = 0; i < strip.width; ++i)
    values[i] = i < strip.valid;
  return arith::ConstantOp::create(b, loc,
                                   DenseElementsAttr::get(VectorType::get({strip.width}, b.getI1Type()), values));
}

/// 0 <= row < limit, for one row.
Value TileLowering::inBounds(Value row, Value limit) {
  Value bound = arith::MaxSIOp::create(b, loc, limit, constant(0));
  return arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ult, row, bound);
}

/// The same for rows row, row + 1, ...: one bit per lane.
Value TileLowering::rowMask(Value row, Value limit, int64_t width, bool countsUp) {
  auto clamp = [&](Value v) -> Value {
    v = arith::MinSIOp::create(b, loc, arith::MaxSIOp::create(b, loc, v, constant(0)), constant(width));
    return splat(arith::IndexCastOp::create(b, loc, b.getI32Type(), v), width);
  };
  Value last = clamp(arith::SubIOp::create(b, loc, limit, row));
  Value lane = lanes(width, b.getI32Type());
  Value below = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::slt, lane, last);
  if (countsUp)
    return below;
  Value first = clamp(arith::SubIOp::create(b, loc, constant(0), row));
  Value above = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::sge, lane, first);
  return arith::AndIOp::create(b, loc, below, above);
}

//===- Stack buffers ----------------------------------------------------------------------------------------------===//

Value TileLowering::offsetIn(const View &view, ArrayRef<Value> lead, Value column) {
  Value offset = view.first ? add(view.first, column) : column;
  for (auto [index, stride] : llvm::zip(lead, view.strides))
    offset = add(mul(index, stride), offset);
  return offset;
}

Value TileLowering::readView(const View &view, Type element, ArrayRef<Value> lead, const Strip &strip, bool widen) {
  touched(view, false);
  Value offset = offsetIn(view, lead, strip.column);
  Type stored = cast<MemRefType>(view.memref.getType()).getElementType();
  Value value;
  if (strip.width == 0)
    value = memref::LoadOp::create(b, loc, view.memref, ValueRange{offset});
  else
    value = vector::LoadOp::create(b, loc, VectorType::get({strip.width}, stored), view.memref, ValueRange{offset},
                                   /*nontemporal=*/false, alignmentIn(view, strip.width));
  if (widen && stored.isBF16())
    return arith::ExtFOp::create(b, loc, typed(b.getF32Type(), strip.width), value);
  if (stored == element || widen)
    return value;
  if (element.isBF16())
    return arith::TruncFOp::create(b, loc, typed(element, strip.width), value);
  return arith::TruncIOp::create(b, loc, typed(element, strip.width), value);
}

/// `exact`: lanes past `valid` belong to someone else and must not be written.
void TileLowering::writeView(const View &view, ArrayRef<Value> lead, const Strip &strip, Value value, bool exact) {
  touched(view, true);
  Value offset = offsetIn(view, lead, strip.column);
  Type stored = cast<MemRefType>(view.memref.getType()).getElementType();
  if (elementOf(value) != stored)
    value = stored.isBF16()          ? Value(arith::TruncFOp::create(b, loc, typed(stored, strip.width), value))
            : isa<FloatType>(stored) ? Value(arith::ExtFOp::create(b, loc, typed(stored, strip.width), value))
                                     : Value(arith::ExtUIOp::create(b, loc, typed(stored, strip.width), value));
  if (strip.width == 0)
    memref::StoreOp::create(b, loc, value, view.memref, ValueRange{offset});
  else if (exact && strip.valid < strip.width)
    vector::MaskedStoreOp::create(b, loc, view.memref, ValueRange{offset}, laneMask(strip), value);
  else
    vector::StoreOp::create(b, loc, value, view.memref, ValueRange{offset}, /*nontemporal=*/false,
                            alignmentIn(view, strip.width));
}

//===- Buffer arguments -------------------------------------------------------------------------------------------===//

/// Sums and products of places in the grid, of loops that begin there, and of constants that are not negative.
static bool countsUp(Value index) {
  if (std::optional<int64_t> known = getConstantIntValue(index))
    return *known >= 0;
  if (auto argument = dyn_cast<BlockArgument>(index)) {
    auto loop = dyn_cast<scf::ForOp>(argument.getOwner()->getParentOp());
    return loop && argument == loop.getInductionVar() && countsUp(loop.getLowerBound());
  }
  Operation *op = index.getDefiningOp();
  return isa<tile::ProgramOp>(op) ||
         (isa<arith::AddIOp, arith::MulIOp>(op) && llvm::all_of(op->getOperands(), countsUp));
}

bool TileLowering::isInBounds(const Access &at, Value row) {
  return llvm::is_contained(guards, std::pair(at.limit, std::pair(at.row, row)));
}

TileLowering::Access TileLowering::access(Value buffer, ValueRange indices, ArrayRef<int64_t> dims, Value limit) {
  const View &view = arguments[buffer];
  Access result;
  result.offset = constant(0);
  for (auto [index, stride] : llvm::zip(indices, view.strides))
    result.offset = add(result.offset, mul(scalars.lookup(index), stride));
  for (int64_t dim : dims)
    result.strides.push_back(view.strides[dim]);
  result.row = scalars.lookup(indices[dims.front()]);
  result.countsUp = countsUp(indices[dims.front()]);
  if (limit)
    result.limit = scalars.lookup(limit);
  return result;
}

Value TileLowering::evalLoad(tile::LoadOp op, ArrayRef<Value> lead, const Strip &strip) {
  const Access &at = accesses[op];
  Value memref = arguments[op.getSource()].memref;
  touched(arguments[op.getSource()], false);
  Type element = elementOf(op.getResult());
  bool rankOne = lead.empty();
  auto trust = trusted.find(op);
  Value limit = trust == trusted.end() || op.getRows() ? at.limit : Value();
  Value columnStride = at.strides.back();
  bool contiguous = getConstantIntValue(columnStride) == 1;

  auto isKnown = [&](Value row) { return !op.getRows() && isInBounds(at, row); };
  // The row this strip reads, when one row serves all lanes.
  Value offset = at.offset, condition;
  auto both = [&](Value x, Value y) -> Value { return x ? Value(arith::AndIOp::create(b, loc, x, y)) : y; };
  if (!rankOne) {
    Value row = lead.front();
    if (op.getRows()) {
      Strip one{lead.front(), 0, tileType(op.getRows()).getDimSize(0), 0, 1};
      Value index = arith::IndexCastOp::create(b, loc, b.getIndexType(), eval(op.getRows(), {}, one));
      condition = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::sge, index, constant(0));
      row = index;
    }
    offset = add(offset, mul(row, at.strides.front()));
    if (limit && !isKnown(lead.front()))
      condition = both(condition, inBounds(add(at.row, row), limit));
    for (auto [index, stride] : llvm::zip(lead.drop_front(), ArrayRef(at.strides).drop_front()))
      offset = add(offset, mul(index, stride));
  }

  if (strip.width == 0) {
    if (rankOne) {
      Value row = strip.column;
      if (op.getRows()) {
        row = arith::IndexCastOp::create(b, loc, b.getIndexType(), eval(op.getRows(), {}, strip));
        condition = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::sge, row, constant(0));
      }
      if (limit && !isKnown(row))
        condition = both(condition, inBounds(add(at.row, row), limit));
      offset = add(offset, mul(row, columnStride));
    } else {
      offset = add(offset, mul(strip.column, columnStride));
    }
    if (!condition)
      return memref::LoadOp::create(b, loc, memref, ValueRange{offset});
    auto branch = scf::IfOp::create(b, loc, TypeRange{element}, condition, true);
    OpBuilder then = branch.getThenBodyBuilder(), otherwise = branch.getElseBodyBuilder();
    scf::YieldOp::create(then, loc, ValueRange{memref::LoadOp::create(then, loc, memref, ValueRange{offset})});
    scf::YieldOp::create(otherwise, loc,
                         ValueRange{arith::ConstantOp::create(otherwise, loc, otherwise.getZeroAttr(element))});
    return branch.getResult(0);
  }

  auto vector = VectorType::get({strip.width}, element);
  Value lanesWanted; // per lane
  if (strip.valid < strip.width)
    lanesWanted = laneMask(strip);
  if (rankOne && op.getRows()) {
    Value rows = eval(op.getRows(), {}, strip);
    lanesWanted =
        both(lanesWanted, arith::CmpIOp::create(b, loc, arith::CmpIPredicate::sge, rows, zero(rows.getType())));
    Value wide = arith::ExtSIOp::create(b, loc, typed(b.getI64Type(), strip.width), rows);
    if (limit) {
      Value bound = arith::IndexCastOp::create(b, loc, b.getI64Type(), arith::SubIOp::create(b, loc, limit, at.row));
      lanesWanted =
          both(lanesWanted, arith::CmpIOp::create(b, loc, arith::CmpIPredicate::slt, wide, splat(bound, strip.width)));
    }
    Value stride = splat(arith::IndexCastOp::create(b, loc, b.getI64Type(), columnStride), strip.width);
    return vector::GatherOp::create(b, loc, vector, memref, ValueRange{offset},
                                    Value(arith::MulIOp::create(b, loc, wide, stride)), lanesWanted, zero(vector));
  }
  if (rankOne && limit && !isKnown(strip.column))
    lanesWanted = both(lanesWanted, rowMask(add(at.row, strip.column), limit, strip.width, at.countsUp));
  offset = add(offset, mul(strip.column, columnStride));

  if (!contiguous) {
    if (condition)
      lanesWanted = both(lanesWanted, splat(condition, strip.width));
    if (!lanesWanted)
      lanesWanted = laneMask(strip);
    Value stride = arith::IndexCastOp::create(b, loc, b.getI32Type(), columnStride);
    Value offsets = arith::MulIOp::create(b, loc, lanes(strip.width, b.getI32Type()), splat(stride, strip.width));
    return vector::GatherOp::create(b, loc, vector, memref, ValueRange{offset}, offsets, lanesWanted, zero(vector));
  }
  auto load = [&](OpBuilder &at) -> Value {
    if (!lanesWanted)
      return vector::LoadOp::create(at, loc, vector, memref, ValueRange{offset}, /*nontemporal=*/false,
                                    trust == trusted.end() ? llvm::MaybeAlign() : llvm::MaybeAlign(trust->second));
    return vector::MaskedLoadOp::create(at, loc, vector, memref, ValueRange{offset}, lanesWanted, zero(vector));
  };
  if (!condition)
    return load(b);
  if (vectorBytes == 64) { // masks cost nothing
    lanesWanted = both(lanesWanted, splat(condition, strip.width));
    return load(b);
  }
  Value none = zero(vector);
  auto branch = scf::IfOp::create(b, loc, TypeRange{vector}, condition, true);
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(branch.thenBlock());
    Value loaded = load(b);
    scf::YieldOp::create(b, loc, ValueRange{loaded});
    b.setInsertionPointToStart(branch.elseBlock());
    scf::YieldOp::create(b, loc, ValueRange{none});
  }
  return branch.getResult(0);
}

Value TileLowering::rowNumber(Value rows, Value row) {
  Value number = eval(rows, {}, {row, 0, tileType(rows).getDimSize(0), 0, 1});
  return arith::IndexCastOp::create(b, loc, b.getIndexType(), number);
}

Value TileLowering::isWritten(tile::StoreOp op, Value number) {
  const Access &at = accesses[op];
  Value given = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::sge, number, constant(0));
  if (!at.limit)
    return given;
  return arith::AndIOp::create(b, loc, given, inBounds(add(at.row, number), at.limit));
}

/// A tile of rank 1, element by element: scatters of vectors exist on few CPUs.
void TileLowering::scatter(tile::StoreOp op, const Strip &strip, Value value) {
  const Access &at = accesses[op];
  Value memref = arguments[op.getTarget()].memref, rows = eval(op.getRows(), {}, strip);
  for (int64_t lane = 0; lane < std::max<int64_t>(strip.valid, 1); ++lane) {
    Value number = rows, element = value;
    if (strip.width) {
      number = vector::ExtractOp::create(b, loc, rows, lane);
      element = vector::ExtractOp::create(b, loc, value, lane);
    }
    number = arith::IndexCastOp::create(b, loc, b.getIndexType(), number);
    auto branch = scf::IfOp::create(b, loc, isWritten(op, number), false);
    OpBuilder then = branch.getThenBodyBuilder();
    Value offset =
        arith::AddIOp::create(then, loc, at.offset, arith::MulIOp::create(then, loc, number, at.strides.back()));
    memref::StoreOp::create(then, loc, element, memref, ValueRange{offset});
  }
}

void TileLowering::writeArgument(tile::StoreOp op, ArrayRef<Value> lead, const Strip &strip, Value value) {
  const Access &at = accesses[op];
  Value memref = arguments[op.getTarget()].memref;
  auto trust = trusted.find(op);
  Value limit = trust == trusted.end() ? at.limit : Value();
  touched(arguments[op.getTarget()], true);
  if (op.getRows() && lead.empty())
    return scatter(op, strip, value);
  Value offset = at.offset;
  SmallVector<Value> place(lead); // a row that goes nowhere does not come here
  if (op.getRows())
    place.front() = rowNumber(op.getRows(), lead.front());
  for (auto [index, stride] : llvm::zip(place, at.strides))
    offset = add(offset, mul(index, stride));
  Value columnStride = at.strides.back();
  offset = add(offset, mul(strip.column, columnStride));
  if (strip.width == 0) {
    OpBuilder::InsertionGuard restore(b);
    if (lead.empty() && limit)
      b.setInsertionPointToStart(
          scf::IfOp::create(b, loc, inBounds(add(at.row, strip.column), limit), false).thenBlock());
    memref::StoreOp::create(b, loc, value, memref, ValueRange{offset});
    return;
  }
  Value mask;
  if (strip.valid < strip.width)
    mask = laneMask(strip);
  if (lead.empty() && limit && !isInBounds(at, strip.column)) {
    Value inside = rowMask(add(at.row, strip.column), limit, strip.width, at.countsUp);
    mask = mask ? Value(arith::AndIOp::create(b, loc, mask, inside)) : inside;
  }
  if (getConstantIntValue(columnStride) != 1) {
    Value stride = arith::IndexCastOp::create(b, loc, b.getI32Type(), columnStride);
    Value offsets = arith::MulIOp::create(b, loc, lanes(strip.width, b.getI32Type()), splat(stride, strip.width));
    vector::ScatterOp::create(b, loc, Type(), memref, ValueRange{offset}, offsets, mask ? mask : laneMask(strip),
                              value);
    return;
  }
  if (mask)
    vector::MaskedStoreOp::create(b, loc, memref, ValueRange{offset}, mask, value);
  else
    vector::StoreOp::create(b, loc, value, memref, ValueRange{offset}, /*nontemporal=*/false,
                            trust == trusted.end() ? llvm::MaybeAlign() : llvm::MaybeAlign(trust->second));
}

//===- Lazy tiles -------------------------------------------------------------------------------------------------===//

std::vector<void *> TileLowering::keyOf(Value v, ArrayRef<Value> lead, const Strip &strip) {
  std::vector<void *> key{v.getAsOpaquePointer(), strip.column.getAsOpaquePointer(),
                          reinterpret_cast<void *>(strip.width)};
  for (Value index : lead)
    key.push_back(index.getAsOpaquePointer());
  return key;
}

Value TileLowering::eval(Value v, ArrayRef<Value> lead, const Strip &strip) {
  VectorType type = tileType(v);
  if (!type)
    return scalars.lookup(v);
  assert(static_cast<int64_t>(lead.size()) == type.getRank() - 1 && "one index per leading dimension");
  if (auto it = registers.find(v); it != registers.end())
    return it->second;
  std::vector<void *> key = keyOf(v, lead, strip);
  if (auto it = cache.find(key); it != cache.end())
    return it->second;
  Value result;
  if (auto it = views.find(v); it != views.end())
    result = readView(it->second, type.getElementType(), lead, strip);
  else
    result = evalOp(v.getDefiningOp(), v, lead, strip);
  cache[key] = result;
  return result;
}

Value TileLowering::evalMask(tile::MaskOp op, ArrayRef<Value> lead, const Strip &strip) {
  Value source = eval(op.getSource(), lead, strip);
  Value row = arith::IndexCastOp::create(b, loc, b.getI32Type(), lead.front());
  Value column = arith::IndexCastOp::create(b, loc, b.getI32Type(), strip.column);
  if (strip.width) {
    row = splat(row, strip.width);
    column = arith::AddIOp::create(b, loc, splat(column, strip.width), lanes(strip.width, b.getI32Type()));
  }
  using P = arith::CmpIPredicate;
  P predicate = P::sle;
  switch (op.getKeep()) {
  case tile::Keep::lower: predicate = P::sle; break;
  case tile::Keep::strict_lower: predicate = P::slt; break;
  case tile::Keep::upper: predicate = P::sge; break;
  case tile::Keep::strict_upper: predicate = P::sgt; break;
  }
  Value keep = arith::CmpIOp::create(b, loc, predicate, column, row);
  return arith::SelectOp::create(b, loc, keep, source, zero(source.getType()));
}

Value TileLowering::evalShapeCast(vector::ShapeCastOp op, ArrayRef<Value> lead, const Strip &strip) {
  ArrayRef<int64_t> from = op.getSourceVectorType().getShape(), to = op.getResultVectorType().getShape();
  int64_t source = from.back(), result = to.back();
  Value linear = constant(0); // over the leading dimensions of the result
  for (auto [index, size] : llvm::zip(lead, to))
    linear = add(mul(linear, constant(size)), index);
  Strip inner = strip;
  if (result < source) { // a row of the source is several rows of the result
    int64_t parts = source / result;
    inner.column = add(mul(remainder(linear, parts), constant(result)), strip.column);
    inner.lo = 0;
    inner.hi = source;
    linear = divide(linear, parts);
  } else if (result > source) {
    int64_t parts = result / source;
    if (strip.width && strip.lo / source == (strip.hi - 1) / source) {
      int64_t part = strip.lo / source;
      inner.column = add(strip.column, -part * source);
      inner.lo -= part * source;
      inner.hi -= part * source;
      linear = add(mul(linear, constant(parts)), part);
    } else {
      inner.column = remainder(strip.column, source);
      inner.lo = 0;
      inner.hi = source;
      linear = add(mul(linear, constant(parts)), divide(strip.column, source));
    }
  }
  SmallVector<Value> sourceLead(from.size() - 1);
  for (int64_t d = static_cast<int64_t>(from.size()) - 2; d >= 0; --d) {
    sourceLead[d] = d == 0 ? linear : remainder(linear, from[d]);
    linear = divide(linear, from[d]);
  }
  return eval(op.getSource(), sourceLead, inner);
}

Value TileLowering::evalOp(Operation *op, Value v, ArrayRef<Value> lead, const Strip &strip) {
  VectorType type = tileType(v);
  Type element = type.getElementType();
  int64_t rank = type.getRank();
  if (auto constantOp = dyn_cast<arith::ConstantOp>(op)) {
    auto value = cast<SplatElementsAttr>(constantOp.getValue()).getSplatValue<Attribute>();
    return splat(arith::ConstantOp::create(b, loc, cast<TypedAttr>(value)), strip.width);
  }
  if (auto load = dyn_cast<tile::LoadOp>(op))
    return evalLoad(load, lead, strip);
  if (auto mask = dyn_cast<tile::MaskOp>(op))
    return evalMask(mask, lead, strip);
  if (auto cast = dyn_cast<vector::ShapeCastOp>(op))
    return evalShapeCast(cast, lead, strip);
  if (auto iota = dyn_cast<tile::IotaOp>(op)) {
    bool last = static_cast<int64_t>(iota.getAxis()) == rank - 1;
    Value index = arith::IndexCastOp::create(b, loc, element, last ? strip.column : lead[iota.getAxis()]);
    if (!strip.width)
      return index;
    index = splat(index, strip.width);
    return last ? arith::AddIOp::create(b, loc, index, lanes(strip.width, element)).getResult() : index;
  }
  if (auto slice = dyn_cast<tile::SliceOp>(op)) {
    int64_t offset = slice.getOffset();
    return eval(slice.getSource(), lead,
                {add(strip.column, offset), strip.lo + offset, strip.hi + offset, strip.width, strip.valid});
  }
  if (auto concat = dyn_cast<tile::ConcatOp>(op)) {
    int64_t start = 0;
    for (Value source : concat.getSources()) {
      int64_t end = start + tileType(source).getShape().back();
      if (strip.lo >= start && strip.lo < end)
        return eval(
            source, lead,
            {add(strip.column, -start), strip.lo - start, std::min(strip.hi, end) - start, strip.width, strip.valid});
      start = end;
    }
  }
  if (auto expand = dyn_cast<tile::ExpandOp>(op)) {
    int64_t axis = expand.getAxis();
    if (axis == rank - 1) {
      Strip one{lead.back(), 0, type.getDimSize(rank - 2), 0, 1};
      return splat(eval(expand.getSource(), lead.drop_back(), one), strip.width);
    }
    SmallVector<Value> inner(lead);
    inner.erase(inner.begin() + axis);
    return eval(expand.getSource(), inner, strip);
  }
  if (auto broadcast = dyn_cast<vector::BroadcastOp>(op)) {
    VectorType source = tileType(broadcast.getSource());
    if (!source || source.getRank() == 0)
      return splat(scalars.lookup(broadcast.getSource()), strip.width);
    SmallVector<Value> inner(lead.drop_front(rank - source.getRank()));
    for (auto [index, size] : llvm::zip(inner, source.getShape()))
      if (size == 1)
        index = constant(0);
    if (source.getShape().back() == 1 && type.getShape().back() != 1)
      return splat(eval(broadcast.getSource(), inner, {constant(0), 0, 1, 0, 1}), strip.width);
    return eval(broadcast.getSource(), inner, strip);
  }
  if (auto rows = dyn_cast<tile::RowsOp>(op)) {
    Value offset = scalars.lookup(rows.getOffset());
    VectorType source = tileType(rows.getSource());
    if (source.getRank() == 1) {
      std::optional<int64_t> known = getConstantIntValue(offset);
      int64_t lo = known ? strip.lo + *known : 0, hi = known ? strip.hi + *known : source.getDimSize(0);
      return eval(rows.getSource(), {}, {add(strip.column, offset), lo, hi, strip.width, strip.valid});
    }
    SmallVector<Value> inner(lead);
    if (source.getRank() == rank)
      inner.front() = add(inner.front(), offset);
    else
      inner.insert(inner.begin(), offset);
    return eval(rows.getSource(), inner, strip);
  }
  // extf of a bf16 tile that is kept as f32: no rounding to undo.
  if (auto extend = dyn_cast<arith::ExtFOp>(op); extend && element.isF32())
    if (auto it = views.find(extend.getIn()); it != views.end() && elementOf(extend.getIn()).isBF16())
      return readView(it->second, elementOf(extend.getIn()), lead, strip, /*widen=*/true);
  if (!OpTrait::hasElementwiseMappableTraits(op)) {
    fail(op, "cannot be lowered to loops: not elementwise and unknown");
    return zero(typed(element, strip.width));
  }
  SmallVector<Value> operands;
  for (Value operand : op->getOperands())
    operands.push_back(eval(operand, lead, strip));
  Operation *clone = Operation::create(loc, op->getName(), TypeRange{typed(element, strip.width)}, operands,
                                       op->getDiscardableAttrDictionary(), op->getPropertiesStorage(), BlockRange(), 0);
  b.insert(clone);
  return clone->getResult(0);
}
