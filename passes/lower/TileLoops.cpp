//===- TileLoops.cpp - writing tiles into buffers and arguments, row by row, strip by strip ----------------------===//
#include "passes/lower/TileLowering.h"

using namespace mlir;
using namespace braid;
using namespace braid::lower;

//===- Loop nests -------------------------------------------------------------------------------------------------===//

SmallVector<Value> TileLowering::repeat(Value begin, Value end, Value step, ValueRange carried,
                                        function_ref<SmallVector<Value>(Value, ValueRange)> body, scf::ForOp of) {
  auto loop = scf::ForOp::create(b, loc, begin, end, step, carried);
  if (of)
    loop->setDiscardableAttrs(of->getDiscardableAttrDictionary());
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  SmallVector<Value> next = body(loop.getInductionVar(), loop.getRegionIterArgs());
  if (!carried.empty() || loop.getBody()->empty() || !loop.getBody()->back().hasTrait<OpTrait::IsTerminator>()) {
    b.setInsertionPointToEnd(loop.getBody());
    scf::YieldOp::create(b, loc, next);
  }
  return loop.getResults();
}

SmallVector<Value> TileLowering::repeat(int64_t begin, int64_t end, int64_t step, ValueRange carried,
                                        function_ref<SmallVector<Value>(Value, ValueRange)> body) {
  int64_t count = end > begin ? llvm::divideCeil(end - begin, step) : 0;
  if (count == 0)
    return SmallVector<Value>(carried);
  if (count == 1)
    return body(constant(begin), carried);
  return repeat(constant(begin), constant(end), constant(step), carried, body);
}

/// One iteration per index of the leading dimensions `shape`; `guard` decides per index of the first whether to run.
void TileLowering::forEachRow(ArrayRef<int64_t> shape, function_ref<Value(Value)> guard,
                              function_ref<void(ArrayRef<Value>)> body) {
  SmallVector<Value> lead;
  std::function<void(size_t)> nest = [&](size_t depth) {
    if (depth == shape.size())
      return body(lead);
    repeat(0, shape[depth], 1, {}, [&](Value index, ValueRange) -> SmallVector<Value> {
      lead.push_back(index);
      if (depth == 0 && guard) {
        OpBuilder::InsertionGuard restore(b);
        auto branch = scf::IfOp::create(b, loc, guard(index), false);
        b.setInsertionPoint(branch.thenBlock()->getTerminator());
        nest(depth + 1);
      } else {
        nest(depth + 1);
      }
      lead.pop_back();
      return {};
    });
  };
  nest(0);
}

/// Strips of `width` lanes over [0, length), cut at `breaks`; what is left of a piece is one narrower, masked strip.
void TileLowering::forEachStrip(int64_t length, int64_t width, ArrayRef<int64_t> breaks,
                                function_ref<void(const Strip &)> body) {
  SmallVector<int64_t> ends(breaks);
  ends.push_back(length);
  int64_t lo = 0;
  auto run = [&](const Strip &strip) {
    startStrip();
    body(strip);
    startStrip();
  };
  for (int64_t hi : ends) {
    int64_t full = (hi - lo) / width * width;
    repeat(lo, lo + full, width, {}, [&](Value column, ValueRange) -> SmallVector<Value> {
      run({column, lo, hi, width, width});
      return {};
    });
    if (int64_t rest = hi - lo - full)
      run({constant(lo + full), lo + full, hi, static_cast<int64_t>(llvm::PowerOf2Ceil(rest)), rest});
    lo = hi;
  }
}

/// A tile of fewer strips is unrolled whole, masks and all, and what it is computed from stays in registers.
static constexpr int64_t kLongRow = 32;

/// Whether nothing else than what is stored to the limit comes of a walk.
static bool storesToLimit(const Elements &elements) {
  return !elements.stores.empty() && tile::StoreOp(elements.stores.front()).getLimit();
}

const TileLowering::Access *TileLowering::limitOf(const Elements &elements) {
  int64_t width = elements.width;
  if (elements.shape.size() != 1 || elements.alone || width == 0 || elements.shape[0] % width != 0 ||
      elements.shape[0] / width < kLongRow || !elements.cuts.empty())
    return nullptr;
  auto limited = [&](Operation *op) -> const Access * {
    auto it = accesses.find(op);
    return it != accesses.end() && it->second.limit ? &it->second : nullptr;
  };
  if (storesToLimit(elements)) {
    tile::StoreOp first = elements.stores.front();
    return first.getRows() ? nullptr : limited(first);
  }
  DenseSet<Value> seen;
  std::function<const Access *(Value)> find = [&](Value v) -> const Access * {
    Operation *op = v.getDefiningOp();
    if (!op || !isTile(v) || tileType(v).getRank() != 1 || views.count(v) || !seen.insert(v).second)
      return nullptr;
    if (auto load = dyn_cast<tile::LoadOp>(op))
      return load.getRows() ? nullptr : limited(load);
    if (!OpTrait::hasElementwiseMappableTraits(op))
      return nullptr;
    for (Value operand : op->getOperands())
      if (const Access *found = find(operand))
        return found;
    return nullptr;
  };
  for (Value tile : elements.tiles)
    if (const Access *found = find(tile))
      return found;
  return nullptr;
}

/// Whole strips before the end, then what is left, masked: of what is stored to there one strip.
void TileLowering::forEachStripTo(const Access &end, const Elements &elements, function_ref<void(const Strip &)> body) {
  int64_t length = elements.shape[0], width = elements.width;
  Value left = arith::MaxSIOp::create(b, loc, arith::SubIOp::create(b, loc, end.limit, end.row), constant(0));
  left = arith::MinSIOp::create(b, loc, left, constant(length));
  Value full = mul(divide(left, width), constant(width));
  if (!end.countsUp)
    full = arith::SelectOp::create(
        b, loc, arith::CmpIOp::create(b, loc, arith::CmpIPredicate::sge, end.row, constant(0)), full, constant(0));
  auto strip = [&](Value column) {
    startStrip();
    body({column, 0, length, width, width});
    startStrip();
    return SmallVector<Value>();
  };
  repeat(constant(0), full, constant(width), {}, [&](Value column, ValueRange) {
    guards.push_back({end.limit, {end.row, column}});
    strip(column);
    guards.pop_back();
    return SmallVector<Value>();
  });
  repeat(full, storesToLimit(elements) ? left : constant(length), constant(width), {},
         [&](Value column, ValueRange) { return strip(column); });
}

void TileLowering::overElements(const Elements &elements, function_ref<Value(Value)> guard, Body body) {
  if (const Access *end = limitOf(elements))
    return forEachStripTo(*end, elements, [&](const Strip &strip) { body({}, strip); });
  forEachRow(elements.shape.drop_back(), guard, [&](ArrayRef<Value> lead) {
    forEachStrip(elements.shape.back(), elements.width, elements.cuts, [&](const Strip &strip) { body(lead, strip); });
  });
}

void TileLowering::fill(View target, VectorType type, Value value) {
  SmallVector<int64_t> cuts = plan.breaks(value, !views.count(value));
  overElements({type.getShape(), widthFor(type), cuts, {value}}, nullptr,
               [&](ArrayRef<Value> lead, const Strip &strip) {
                 writeView(target, lead, strip, eval(value, lead, strip), strip.hi != type.getShape().back());
               });
}

void TileLowering::storeGroup(ArrayRef<tile::StoreOp> stores) {
  tile::StoreOp first = stores.front();
  auto type = cast<VectorType>(first.getValue().getType());
  SmallVector<int64_t> cuts;
  SmallVector<Value> stored;
  int64_t width = 0;
  for (tile::StoreOp store : stores) {
    stored.push_back(store.getValue());
    accesses[store] = access(store.getTarget(), store.getIndices(), store.getDims(), store.getLimit());
    cuts.append(plan.breaks(store.getValue()));
    if (store.getRows() && type.getRank() == 1)
      cuts.append(plan.breaks(store.getRows()));
    width = std::max(width, widthFor(cast<VectorType>(store.getValue().getType())));
  }
  llvm::sort(cuts);
  cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
  const Access &at = accesses[first];
  size_t outerGuards = guards.size();
  auto guard = [&](Value row) -> Value {
    if (first.getRows())
      return isWritten(first, rowNumber(first.getRows(), row));
    if (trusted.contains(first))
      return {};
    guards.push_back({at.limit, {at.row, row}});
    return inBounds(add(at.row, row), at.limit);
  };
  bool guarded = (at.limit || first.getRows()) && type.getRank() > 1;
  overElements({type.getShape(), width, cuts, stored, stores},
               guarded ? function_ref<Value(Value)>(guard) : function_ref<Value(Value)>(),
               [&](ArrayRef<Value> lead, const Strip &strip) {
                 SmallVector<Value> values;
                 for (tile::StoreOp store :
                      stores) // all reads of a strip come before its writes: a launch may work in place
                   values.push_back(eval(store.getValue(), lead, strip));
                 for (auto [store, value] : llvm::zip(stores, values))
                   writeArgument(store, lead, strip, value);
               });
  guards.resize(outerGuards);
}

//===- Reductions -------------------------------------------------------------------------------------------------===//

Value TileLowering::combine(tile::ReduceKind kind, Value x, Value y) {
  bool isFloat = isa<FloatType>(elementOf(x));
  switch (kind) {
  case tile::ReduceKind::add:
    return isFloat ? Value(arith::AddFOp::create(b, loc, x, y)) : Value(arith::AddIOp::create(b, loc, x, y));
  case tile::ReduceKind::max:
    return isFloat ? Value(arith::MaximumFOp::create(b, loc, x, y)) : Value(arith::MaxSIOp::create(b, loc, x, y));
  case tile::ReduceKind::min:
    return isFloat ? Value(arith::MinimumFOp::create(b, loc, x, y)) : Value(arith::MinSIOp::create(b, loc, x, y));
  }
  llvm_unreachable("unknown reduction");
}

/// Halves the vector until one lane is left: a fixed order.
Value TileLowering::horizontal(tile::ReduceKind kind, Value vector) {
  int64_t width = cast<VectorType>(vector.getType()).getDimSize(0);
  for (int64_t half = width / 2; half >= 1; half /= 2) {
    SmallVector<int64_t> low(half), high(half);
    for (int64_t i = 0; i < half; ++i) {
      low[i] = i;
      high[i] = half + i;
    }
    vector = combine(kind, vector::ShuffleOp::create(b, loc, vector, vector, low),
                     vector::ShuffleOp::create(b, loc, vector, vector, high));
  }
  return vector::ExtractOp::create(b, loc, vector, ArrayRef<int64_t>{0});
}

TypedAttr lower::reductionStart(tile::ReduceKind kind, Type element, Builder &b) {
  if (auto type = dyn_cast<FloatType>(element)) {
    if (kind == tile::ReduceKind::add)
      return b.getFloatAttr(type, 0.0);
    return b.getFloatAttr(type, APFloat::getInf(type.getFloatSemantics(), kind == tile::ReduceKind::max));
  }
  unsigned bits = element.getIntOrFloatBitWidth();
  switch (kind) {
  case tile::ReduceKind::add: return b.getIntegerAttr(element, 0);
  case tile::ReduceKind::max: return b.getIntegerAttr(element, APInt::getSignedMinValue(bits));
  case tile::ReduceKind::min: return b.getIntegerAttr(element, APInt::getSignedMaxValue(bits));
  }
  llvm_unreachable("unknown reduction");
}

/// Along the last dimension: vector accumulators, one horizontal step per row. bf16 is accumulated in f32.
void TileLowering::reduceLast(tile::ReduceOp op) {
  auto source = cast<VectorType>(op.getSource().getType());
  Type element = source.getElementType(), sum = storageType(element);
  int64_t length = source.getShape().back(), width = widthFor(source);
  SmallVector<int64_t> ends = plan.breaks(op.getSource());
  ends.push_back(length);
  View target;
  if (isTile(op.getResult()))
    target = destination(op.getResult());
  TypedAttr neutral = reductionStart(op.getKind(), sum, b);
  auto widened = [&](Value v) -> Value {
    return element == sum ? v : arith::ExtFOp::create(b, loc, typed(sum, width), v).getResult();
  };
  Value scalar;
  forEachRow(source.getShape().drop_back(), nullptr, [&](ArrayRef<Value> lead) {
    Value start = splat(arith::ConstantOp::create(b, loc, neutral), width);
    SmallVector<Value> total{start};
    int64_t lo = 0;
    for (int64_t hi : ends) {
      int64_t count = (hi - lo) / width, full = count * width;
      int64_t ways = count % 4 == 0 && count >= 8 ? 4 : count % 2 == 0 && count >= 4 ? 2 : 1;
      while (static_cast<int64_t>(total.size()) < ways)
        total.push_back(start);
      SmallVector<Value> front(total.begin(), total.begin() + ways);
      front = repeat(lo, lo + full, ways * width, front, [&](Value column, ValueRange carried) {
        SmallVector<Value> next;
        for (auto [way, value] : llvm::enumerate(carried)) {
          startStrip();
          next.push_back(
              combine(op.getKind(), value,
                      widened(eval(op.getSource(), lead, {add(column, way * width), lo, hi, width, width}))));
        }
        startStrip();
        return next;
      });
      llvm::copy(front, total.begin());
      if (int64_t rest = hi - lo - full) {
        startStrip();
        Strip strip{constant(lo + full), lo + full, hi, width, rest};
        Value value = widened(eval(op.getSource(), lead, strip));
        startStrip();
        value = arith::SelectOp::create(b, loc, laneMask(strip), value, start);
        total.front() = combine(op.getKind(), total.front(), value);
      }
      lo = hi;
    }
    while (total.size() > 1) {
      size_t half = total.size() / 2;
      for (size_t i = 0; i < half; ++i)
        total[i] = combine(op.getKind(), total[i], total[i + half]);
      total.truncate(half);
    }
    scalar = horizontal(op.getKind(), total.front());
    if (target.memref)
      writeView(target, lead.empty() ? ArrayRef<Value>() : lead.drop_back(),
                {lead.empty() ? constant(0) : lead.back(), 0, 0, 0, 1}, scalar, false);
  });
  if (target.memref)
    return own(op.getResult(), target);
  if (element != sum)
    scalar = arith::TruncFOp::create(b, loc, element, scalar);
  scalars.map(op.getResult(), scalar);
}

/// The strips that a walk along rows takes side by side, of the `most` that it has registers for: their sums do not wait for
/// each other, and rows are read whole. 1 where a strip is incomplete, or where every element has a thread (width 0).
static int64_t stripsTogether(int64_t length, int64_t width, ArrayRef<int64_t> cuts, size_t most) {
  if (!cuts.empty() || width == 0)
    return 1;
  int64_t together = std::min<int64_t>(4, static_cast<int64_t>(llvm::bit_floor(std::max<size_t>(most, 1))));
  while (length % (together * width) != 0 && together > 1)
    together /= 2;
  return together;
}

SmallVector<Strip> TileLowering::split(const Strip &whole, int64_t width) {
  if (whole.width <= width)
    return {whole};
  SmallVector<Strip> strips;
  for (int64_t at = 0; at < whole.width; at += width)
    strips.push_back({add(whole.column, at), whole.lo, whole.hi, width, width});
  return strips;
}

/// Reductions along a dimension that is not the last: rows of accumulators walk along it, two for each result, so that
/// sums do not wait for each other.
void TileLowering::reduceRows(ArrayRef<tile::ReduceOp> ops) {
  tile::ReduceOp front = ops.front();
  auto type = cast<VectorType>(front.getSource().getType());
  Type element = type.getElementType(), sum = storageType(element);
  auto axis = static_cast<int64_t>(front.getAxis());
  int64_t length = type.getShape().back(), count = type.getDimSize(axis);
  size_t ways = count % 2 == 0 && count >= 16 ? 2 : 1;
  SmallVector<View> targets;
  SmallVector<Value> sources;
  SmallVector<int64_t> outer(type.getShape().drop_back()), cuts;
  outer.erase(outer.begin() + axis);
  for (tile::ReduceOp op : ops) {
    sources.push_back(op.getSource());
    targets.push_back(destination(op.getResult()));
    cuts.append(plan.breaks(op.getSource()));
  }
  llvm::sort(cuts);
  cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
  outer.push_back(length);
  int64_t width = widthFor(type), together = stripsTogether(length, width, cuts, 16 / (ways * ops.size()));
  overElements({outer, together * width, cuts, sources}, nullptr, [&](ArrayRef<Value> lead, const Strip &whole) {
    SmallVector<Strip> strips = split(whole, width);
    SmallVector<Value> starts; // [op][strip][way]
    for (tile::ReduceOp op : ops)
      starts.append(strips.size() * ways,
                    splat(arith::ConstantOp::create(b, loc, reductionStart(op.getKind(), sum, b)), strips[0].width));
    SmallVector<Value> totals = repeat(0, count, ways, starts, [&](Value step, ValueRange carried) {
      SmallVector<Value> next(carried);
      for (size_t way = 0; way < ways; ++way) {
        SmallVector<Value> at(lead);
        at.insert(at.begin() + axis, add(step, way));
        for (auto [s, strip] : llvm::enumerate(strips)) {
          startStrip();
          for (size_t i = 0; i < ops.size(); ++i) {
            tile::ReduceOp op = ops[i];
            Value value = eval(op.getSource(), at, strip);
            if (element != sum)
              value = arith::ExtFOp::create(b, loc, typed(sum, strip.width), value);
            Value &total = next[(i * strips.size() + s) * ways + way];
            total = combine(op.getKind(), total, value);
          }
        }
      }
      startStrip();
      return next;
    });
    for (size_t i = 0; i < ops.size(); ++i)
      for (auto [s, strip] : llvm::enumerate(strips)) {
        tile::ReduceKind kind = tile::ReduceOp(ops[i]).getKind();
        ArrayRef<Value> parts = ArrayRef(totals).slice((i * strips.size() + s) * ways, ways);
        Value total = ways == 2 ? combine(kind, parts[0], parts[1]) : parts[0];
        writeView(targets[i], lead, strip, total, strip.hi != length);
      }
  });
  for (size_t i = 0; i < ops.size(); ++i)
    own(tile::ReduceOp(ops[i]).getResult(), targets[i]);
}

/// Running sum along a dimension that is not the last: a row of accumulators walks along it.
void TileLowering::cumsumRows(tile::CumsumOp op) {
  auto type = cast<VectorType>(op.getType());
  Type element = type.getElementType(), sum = storageType(element);
  auto axis = static_cast<int64_t>(op.getAxis());
  int64_t length = type.getShape().back(), count = type.getDimSize(axis);
  View target = destination(op.getResult());
  SmallVector<int64_t> outer(type.getShape().drop_back());
  outer.erase(outer.begin() + axis);
  SmallVector<int64_t> cuts = plan.breaks(op.getSource());
  outer.push_back(length);
  int64_t width = widthFor(type), together = stripsTogether(length, width, cuts, 4);
  overElements({outer, together * width, cuts, {op.getSource()}}, nullptr,
               [&](ArrayRef<Value> lead, const Strip &whole) {
                 SmallVector<Strip> strips = split(whole, width);
                 SmallVector<Value> starts(strips.size(), zero(typed(sum, strips[0].width)));
                 repeat(0, count, 1, starts, [&](Value step, ValueRange carried) {
                   Value row = op.getReverse() ? Value(arith::SubIOp::create(b, loc, constant(count - 1), step)) : step;
                   SmallVector<Value> at(lead), sums;
                   at.insert(at.begin() + axis, row);
                   for (auto [strip, before] : llvm::zip(strips, carried)) {
                     startStrip();
                     Value value = eval(op.getSource(), at, strip);
                     startStrip();
                     if (element != sum)
                       value = arith::ExtFOp::create(b, loc, typed(sum, strip.width), value);
                     sums.push_back(combine(tile::ReduceKind::add, before, value));
                     writeView(target, at, strip, sums.back(), strip.hi != length);
                   }
                   return sums;
                 });
               });
  own(op.getResult(), target);
}

/// Running sum along the last dimension: log2(width) shifted additions per strip, and the carry of the strips before.
void TileLowering::cumsumLast(tile::CumsumOp op) {
  auto type = cast<VectorType>(op.getType());
  Type element = type.getElementType(), sum = storageType(element);
  int64_t length = type.getShape().back(), width = widthFor(type), full = length / width * width;
  bool reverse = op.getReverse();
  View target = destination(op.getResult());
  forEachRow(type.getShape().drop_back(), nullptr, [&](ArrayRef<Value> lead) {
    auto step = [&](const Strip &strip, Value carry) -> Value {
      startStrip();
      Value value = eval(op.getSource(), lead, strip);
      startStrip();
      if (element != sum)
        value = arith::ExtFOp::create(b, loc, typed(sum, width), value);
      Value none = zero(value.getType());
      if (strip.valid < width)
        value = arith::SelectOp::create(b, loc, laneMask(strip), value, none);
      for (int64_t distance = 1; distance < width; distance *= 2) {
        SmallVector<int64_t> from(width);
        for (int64_t i = 0; i < width; ++i) {
          int64_t lane = reverse ? i + distance : i - distance;
          from[i] = lane < 0 || lane >= width ? width : lane; // lane 0 of `none`
        }
        value = combine(tile::ReduceKind::add, value, vector::ShuffleOp::create(b, loc, value, none, from));
      }
      value = combine(tile::ReduceKind::add, value, splat(carry, width));
      writeView(target, lead, strip, value, false);
      return vector::ExtractOp::create(b, loc, value, ArrayRef<int64_t>{reverse ? 0 : width - 1});
    };
    Value carry = zero(sum);
    Strip rest{constant(full), full, length, width, length - full};
    if (reverse && rest.valid)
      carry = step(rest, carry);
    carry = repeat(0, full, width, ValueRange{carry}, [&](Value at, ValueRange carried) -> SmallVector<Value> {
              Value column = reverse ? Value(arith::SubIOp::create(b, loc, constant(full - width), at)) : at;
              return {step({column, 0, full, width, width}, carried.front())};
            }).front();
    if (!reverse && rest.valid)
      step(rest, carry);
  });
  own(op.getResult(), target);
}

//===- Other kept tiles -------------------------------------------------------------------------------------------===//

/// Counts how often `value`, a formula that nobody else waits for, reads the rows of the insertion's target that it becomes. Whether it reads
/// nothing else of the buffer.
bool TileLowering::readsSameRows(Value value, tile::InsertRowsOp op, int64_t &count) {
  if (!isTile(value))
    return true;
  Buffer *buffer = views[op.getTarget()].buffer;
  if (auto it = views.find(value); it != views.end())
    return it->second.buffer != buffer;
  Operation *made = value.getDefiningOp();
  bool any = true;
  if (auto rows = dyn_cast_or_null<tile::RowsOp>(made); rows && rows.getSource() == op.getTarget()) {
    ++count;
    return usesLeft[value] == 1 && rows.getOffset() == op.getOffset() &&
           rows.getResult().getType() == op.getValue().getType();
  }
  if (!made || !reads(value, buffer, any))
    return true;
  return usesLeft[value] == 1 && OpTrait::hasElementwiseMappableTraits(made) &&
         llvm::all_of(made->getOperands(), [&](Value operand) { return readsSameRows(operand, op, count); });
}

void TileLowering::insertRows(tile::InsertRowsOp op) {
  auto type = cast<VectorType>(op.getType());
  auto valueType = cast<VectorType>(op.getValue().getType());
  Value value = op.getValue();
  View target;
  bool onlySame = true;
  auto it = views.find(op.getTarget());
  int64_t same = 0; // reads of just those rows
  bool inPlace = it != views.end() && it->second.buffer && readsSameRows(value, op, same) &&
                 dies(op.getTarget(), 1 + same) && (same > 0 || !reads(value, it->second.buffer, onlySame));
  if (inPlace) {
    target = it->second;
  } else {
    target = destination(op.getResult(), op.getTarget());
    fill(target, type, op.getTarget());
  }
  Value offset = scalars.lookup(op.getOffset());
  bool oneRow = valueType.getRank() < type.getRank();
  SmallVector<int64_t> cuts = plan.breaks(value);
  Elements elements{valueType.getShape(), widthFor(valueType), cuts, {value}};
  elements.alone = type.getRank() == 1;
  overElements(elements, nullptr, [&](ArrayRef<Value> lead, const Strip &strip) {
    SmallVector<Value> at(lead);
    if (oneRow)
      at.insert(at.begin(), offset);
    else if (!at.empty())
      at.front() = add(at.front(), offset);
    Strip to = strip;
    if (type.getRank() == 1)
      to.column = add(strip.column, offset);
    writeView(target, at, to, eval(value, lead, strip), type.getRank() == 1 || strip.hi != valueType.getShape().back());
  });
  own(op.getResult(), target);
}

/// A shape_cast whose last dimensions do not divide each other: element by element.
void TileLowering::reshape(vector::ShapeCastOp op) {
  auto type = cast<VectorType>(op.getType());
  auto from = op.getSourceVectorType().getShape();
  View target = destination(op.getResult());
  SmallVector<Buffer *> temporary;
  View source = packed(op.getSource(), temporary);
  Type element = type.getElementType();
  int64_t count = type.getNumElements();
  Elements elements{ArrayRef(count), 1, {}};
  elements.alone = true;
  overElements(elements, nullptr, [&](ArrayRef<Value>, const Strip &strip) {
    Value linear = strip.column;
    auto position = [&](ArrayRef<int64_t> shape) {
      SmallVector<Value> index(shape.size());
      Value rest = linear;
      for (int64_t d = static_cast<int64_t>(shape.size()) - 1; d >= 0; --d) {
        index[d] = d == 0 ? rest : remainder(rest, shape[d]);
        rest = divide(rest, shape[d]);
      }
      return index;
    };
    SmallVector<Value> in = position(from), out = position(type.getShape());
    Value value = readView(source, element, ArrayRef(in).drop_back(), {in.back(), 0, 0, 0, 1});
    writeView(target, ArrayRef(out).drop_back(), {out.back(), 0, 0, 0, 1}, value, false);
  });
  for (Buffer *buffer : temporary)
    giveBack(buffer);
  own(op.getResult(), target);
}

/// A table: one constant of the module, rows padded like those of a stack buffer.
void TileLowering::keepConstant(arith::ConstantOp op) {
  auto type = cast<VectorType>(op.getType());
  auto dense = cast<DenseElementsAttr>(op.getValue());
  Type stored = storage(type.getElementType());
  int64_t length = type.getShape().back(), padded = rowLength(type);
  SmallVector<Attribute> values;
  int64_t column = 0;
  for (Attribute value : dense.getValues<Attribute>()) {
    if (auto number = dyn_cast<FloatAttr>(value))
      values.push_back(FloatAttr::get(stored, number.getValueAsDouble()));
    else
      values.push_back(IntegerAttr::get(
          stored, cast<IntegerAttr>(value).getValue().zext(stored.isIndex() ? 64 : stored.getIntOrFloatBitWidth())));
    if (++column == length)
      for (column = 0; static_cast<int64_t>(values.size()) % padded != 0;)
        values.push_back(b.getZeroAttr(stored));
  }
  for (int i = 0; i < 16; ++i)
    values.push_back(b.getZeroAttr(stored));
  auto memref = MemRefType::get({static_cast<int64_t>(values.size())}, stored);
  std::string name = (kernel.getName() + "__table" + Twine(tables.size())).str();
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPoint(lowered);
    tables.push_back(
        memref::GlobalOp::create(b, loc, name, b.getStringAttr("private"), memref,
                                 DenseElementsAttr::get(RankedTensorType::get(memref.getShape(), stored), values), true,
                                 b.getI64IntegerAttr(64)));
  }
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPoint(entryEnd);
  Buffer table{memref::GetGlobalOp::create(b, loc, memref, name), 0};
  View view = viewOf(&table, type);
  view.buffer = nullptr;
  views[op.getResult()] = view;
}

LogicalResult TileLowering::keep(Value v) {
  Operation *op = v.getDefiningOp();
  if (auto dotOp = dyn_cast<tile::DotOp>(op)) {
    dot(dotOp);
  } else if (auto solveOp = dyn_cast<tile::SolveOp>(op)) {
    solve(solveOp);
  } else if (auto transposeOp = dyn_cast<tile::TransposeOp>(op)) {
    transpose(transposeOp);
  } else if (auto reduce = dyn_cast<tile::ReduceOp>(op)) {
    reduceLast(reduce); // those along rows: lowerOp
  } else if (auto scan = dyn_cast<tile::CumsumOp>(op)) {
    if (static_cast<int64_t>(scan.getAxis()) == tileType(v).getRank() - 1)
      cumsumLast(scan);
    else
      cumsumRows(scan);
  } else if (auto insert = dyn_cast<tile::InsertRowsOp>(op)) {
    insertRows(insert);
  } else if (auto constantOp = dyn_cast<arith::ConstantOp>(op);
             constantOp && !isa<SplatElementsAttr>(constantOp.getValue())) {
    keepConstant(constantOp);
  } else if (auto cast = dyn_cast<vector::ShapeCastOp>(op); cast && !TilePlan::isSimpleCast(cast)) {
    reshape(cast);
  } else {
    View target;
    if (auto load = dyn_cast<tile::LoadOp>(op); load && plan.staysInMemory(v))
      target = inMemory(load);
    if (!target.memref) {
      target = destination(v);
      fill(target, tileType(v), v);
    }
    own(v, target);
  }
  return success(!failedOnce);
}
