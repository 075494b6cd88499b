//===- ThreadTiles.cpp - reductions and scans by the warps of a block ----------------------------------------------===//
#include "passes/lower/ThreadLowering.h"

using namespace mlir;
using namespace braid;
using namespace braid::lower;

//===- Warps ------------------------------------------------------------------------------------------------------===//

/// What another lane of the warp holds: 32 bits travel at a time.
Value ThreadLowering::shuffle(Value value, int64_t distance, gpu::ShuffleMode mode) {
  Type type = value.getType(), i32 = b.getI32Type(), i64 = b.getI64Type();
  unsigned bits = type.getIntOrFloatBitWidth();
  if (bits < 32)
    return arith::TruncIOp::create(b, loc, type, shuffle(arith::ExtUIOp::create(b, loc, i32, value), distance, mode));
  if (bits == 32) {
    Value by = arith::ConstantOp::create(b, loc, b.getI32IntegerAttr(distance)),
          width = arith::ConstantOp::create(b, loc, b.getI32IntegerAttr(kWarp));
    return gpu::ShuffleOp::create(b, loc, value, by, width, mode).getShuffleResult();
  }
  Value whole = type.isF64() ? Value(arith::BitcastOp::create(b, loc, i64, value)) : value;
  Value half = arith::ConstantOp::create(b, loc, b.getI64IntegerAttr(32));
  Value low = shuffle(arith::TruncIOp::create(b, loc, i32, whole), distance, mode),
        high =
            shuffle(arith::TruncIOp::create(b, loc, i32, arith::ShRUIOp::create(b, loc, whole, half)), distance, mode);
  whole = arith::OrIOp::create(b, loc, arith::ExtUIOp::create(b, loc, i64, low),
                               arith::ShLIOp::create(b, loc, arith::ExtUIOp::create(b, loc, i64, high), half));
  return type.isF64() ? Value(arith::BitcastOp::create(b, loc, type, whole)) : whole;
}

/// The same bits in every lane: each step adds the same two numbers on both sides.
Value ThreadLowering::allLanes(tile::ReduceKind kind, Value value, int64_t lanes) {
  for (int64_t distance = lanes / 2; distance >= 1; distance /= 2)
    value = combine(kind, value, shuffle(value, distance, gpu::ShuffleMode::XOR));
  return value;
}

Value ThreadLowering::widened(Value value) {
  auto vector = dyn_cast<VectorType>(value.getType());
  return elementOf(value).isBF16()
             ? arith::ExtFOp::create(b, loc, typed(b.getF32Type(), vector ? vector.getDimSize(0) : 0), value)
                   .getResult()
             : value;
}

/// Of a row that is added up: two vectors of bf16.
static constexpr int64_t kElementsOfLane = 16;

//===- Reductions and scans ---------------------------------------------------------------------------------------===//

Value ThreadLowering::reduceEvery(tile::ReduceOp op, ArrayRef<Value> lead, Value first, int64_t step, Type sum,
                                  int64_t width) {
  Value start = arith::ConstantOp::create(b, loc, reductionStart(op.getKind(), sum, b)), total = start;
  SmallVector<int64_t> ends = plan.breaks(op.getSource());
  ends.push_back(tileType(op.getSource()).getShape().back());
  auto at = [&](Value column, int64_t lo, int64_t hi, int64_t lanes) {
    startStrip();
    Value value = widened(eval(op.getSource(), lead, {column, lo, hi, lanes, std::max<int64_t>(lanes, 1)}));
    startStrip();
    return value;
  };
  auto sumOver = [&](int64_t from, int64_t to, int64_t hi, int64_t lanes, Value before) {
    int64_t each = std::max<int64_t>(lanes, 1);
    Value offset = mul(first, constant(each));
    auto next = [&](Value base, ValueRange carried) -> SmallVector<Value> {
      return {combine(op.getKind(), carried.front(), at(add(base, offset), from, hi, lanes))};
    };
    return repeat(from, to, step * each, ValueRange{before}, next).front();
  };
  Value vector = width ? splat(start, width) : Value();
  int64_t lo = 0;
  for (int64_t hi : ends) {
    if (width) {
      int64_t end = lo + (hi - lo) / (step * width) * (step * width);
      vector = sumOver(lo, end, hi, width, vector);
      lo = end;
    }
    int64_t full = (hi - lo) / step * step, rest = hi - lo - full;
    total = sumOver(lo, lo + full, hi, 0, total);
    if (rest) {
      Value value = at(add(least(first, rest - 1), lo + full), lo, hi, 0);
      total = combine(op.getKind(), total, arith::SelectOp::create(b, loc, less(first, rest), value, start));
    }
    lo = hi;
  }
  return width ? combine(op.getKind(), horizontal(op.getKind(), vector), total) : total;
}

/// The order of the sum is the same wherever the tile lies.
Value ThreadLowering::reduceEvery(tile::ReduceOp op, ArrayRef<Value> lead, Value first, int64_t step, Type sum) {
  SmallVector<int64_t> ends = plan.breaks(op.getSource());
  ends.push_back(tileType(op.getSource()).getShape().back());
  Vectors vectors = vectorsOf({op.getSource()}, {}, [&](int64_t width) {
    return ends.front() >= step * width && llvm::all_of(ends, [&](int64_t end) { return end % width == 0; });
  });
  return onTrust(vectors, {}, sum,
                 [&](bool) -> SmallVector<Value> { return {reduceEvery(op, lead, first, step, sum, vectors.width)}; })
      .front();
}

/// Along the last dimension: a warp, or less of it, for each row.
void ThreadLowering::reduceLast(tile::ReduceOp op) {
  auto source = cast<VectorType>(op.getSource().getType());
  Type element = source.getElementType(), sum = storageType(element);
  int64_t length = source.getShape().back();
  if (isTile(op.getResult())) {
    View target = destination(op.getResult());
    Phase phase(*this);
    int64_t rows = source.getNumElements() / length, together = 1,
            lanes = std::min<int64_t>(kWarp, llvm::PowerOf2Ceil(length));
    // Beside columns of warps a lane has a few vectors of a row, where there are rows for all: the fewer lanes, the fewer steps add them up. Elsewhere
    // the order of a sum does not depend on what else its kernel computes.
    if (liesInColumns())
      lanes = std::clamp<int64_t>(std::max(static_cast<int64_t>(llvm::bit_floor(static_cast<uint64_t>(threads / rows))),
                                           static_cast<int64_t>(llvm::PowerOf2Ceil(length)) / kElementsOfLane),
                                  1, lanes);
    // Where one block has a multiprocessor, a warp has several rows at a time: their shuffles need not wait for each other.
    if (!panels.empty() && kernel->hasAttr(tile::kBoxesAttr) && rows * lanes % (4 * threads) == 0)
      together = 4;
    eachGroup(rows / together, lanes, [&](Value first, Value inside) {
      SmallVector<SmallVector<Value>> leads;
      SmallVector<Value> totals;
      Value lane = remainder(thread, lanes);
      for (int64_t i = 0; i < together; ++i) {
        leads.push_back(coordinates(add(first, i * (rows / together)), source.getShape().drop_back()));
        totals.push_back(reduceEvery(op, leads.back(), lane, lanes, sum));
      }
      for (Value &total : totals)
        total = allLanes(op.getKind(), total, lanes);
      Value writer = less(lane, 1);
      onlyIf(inside ? arith::AndIOp::create(b, loc, writer, inside).getResult() : writer, [&] {
        for (auto [lead, total] : llvm::zip(leads, totals)) {
          Value column = lead.pop_back_val();
          writeView(target, lead, {column, 0, 0, 0, 1}, total, false);
        }
      });
    });
    return own(op.getResult(), target);
  }
  // A scalar is needed in every thread. Short rows are summed by every warp.
  Value total;
  if (length <= 4 * kWarp || threads == kWarp) {
    Phase phase(*this);
    total = allLanes(op.getKind(), reduceEvery(op, {}, lane, kWarp, sum), kWarp);
  } else {
    auto type = VectorType::get({threads / kWarp}, sum);
    Buffer *buffer = allocate(type);
    View parts = viewOf(buffer, type);
    {
      Phase phase(*this);
      Value part = allLanes(op.getKind(), reduceEvery(op, {}, thread, threads, sum), kWarp);
      onlyIf(less(lane, 1), [&] { writeView(parts, {}, {warp, 0, 0, 0, 1}, part, false); });
    }
    Phase phase(*this);
    for (int64_t i = 0; i < type.getDimSize(0); ++i) {
      Value part = readView(parts, sum, {}, {constant(i), 0, 0, 0, 1});
      total = total ? combine(op.getKind(), total, part) : part;
    }
    giveBack(buffer);
  }
  if (element != sum)
    total = arith::TruncFOp::create(b, loc, element, total);
  scalars.map(op.getResult(), total);
}

/// Running sum along the last dimension: a warp for each row, 32 elements at a time.
void ThreadLowering::cumsumLast(tile::CumsumOp op) {
  auto type = cast<VectorType>(op.getType());
  Type sum = storageType(type.getElementType());
  int64_t length = type.getShape().back();
  bool exact = length % kWarp == 0;
  View target = destination(op.getResult());
  Phase phase(*this);
  eachGroup(type.getNumElements() / length, kWarp, [&](Value row, Value inside) {
    SmallVector<Value> lead = coordinates(row, type.getShape().drop_back());
    repeat(0, llvm::alignTo(length, kWarp), kWarp, ValueRange{zero(sum)},
           [&](Value base, ValueRange carried) -> SmallVector<Value> {
             Value i = add(base, lane), live = exact ? Value() : less(i, length), at = exact ? i : least(i, length - 1);
             if (op.getReverse())
               at = arith::SubIOp::create(b, loc, constant(length - 1), at);
             Strip strip{at, 0, length, 0, 1};
             startStrip();
             Value value = widened(eval(op.getSource(), lead, strip));
             startStrip();
             if (live)
               value = arith::SelectOp::create(b, loc, live, value, zero(sum));
             for (int64_t distance = 1; distance < kWarp; distance *= 2) {
               Value added = combine(tile::ReduceKind::add, value, shuffle(value, distance, gpu::ShuffleMode::UP));
               value = arith::SelectOp::create(b, loc, less(lane, distance), value, added);
             }
             value = combine(tile::ReduceKind::add, value, carried.front());
             if (inside && live)
               live = arith::AndIOp::create(b, loc, live, inside);
             onlyIf(live ? live : inside, [&] { writeView(target, lead, strip, value, false); });
             return {shuffle(value, kWarp - 1, gpu::ShuffleMode::IDX)};
           });
  });
  own(op.getResult(), target);
}
