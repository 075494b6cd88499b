//===- ThreadRowSums.cpp - what is reduced or added up of tiles in the rows of warps --------------------------------===//
//
// Along the columns of a warp's rows: reductions, running sums of turned tiles, a column of one, the diagonal of a square one. Lanes exchange what is
// not theirs (ThreadRows.cpp says where elements lie).
//
//===-------------------------------------------------------------------------------------------------------------===//
#include "passes/lower/ThreadProducts.h"

using namespace mlir;
using namespace braid;
using namespace braid::lower;

/// The diagonal of a square tile: where a warp's rows meet their own columns, of the lane that has it.
SmallVector<Value> ThreadLowering::takeDiagonal(Value tile) {
  SmallVector<Value> values = ownedOf(tile, /*turned=*/false), taken;
  Value row = divide(lane, 4), from = add(mul(row, constant(4)), divide(row, 2));
  Value odd = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ne, remainder(row, 2), constant(0));
  for (size_t half = 0; half < 2; ++half) {
    Value elements[2];
    for (size_t i = 0; i < 2; ++i) {
      Value &mine = elements[i];
      for (int64_t w = 0; w < threads / kWarp; ++w) {
        Value one = values[static_cast<size_t>(w) * 8 + half * 6 + i]; // of block 2 w + half
        Value here = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, warp, constant(w));
        mine = mine ? arith::SelectOp::create(b, loc, here, one, mine).getResult() : one;
      }
      mine = laneOf(mine, from);
    }
    taken.push_back(arith::SelectOp::create(b, loc, odd, elements[1], elements[0]));
  }
  return taken;
}

/// Along the columns of the rows: those of this lane, then those of the four lanes that share a row.
SmallVector<Value> ThreadLowering::reduceOwned(tile::ReduceOp op) {
  if (Value square = diagonalBy(op); square && !inRows.lookup(square) && owned.count(square))
    return takeDiagonal(square);
  SmallVector<Value> values = ownedOf(op.getSource(), inRows.lookup(op.getSource())), halves[2], sums;
  Type element = elementOf(op.getResult()), sum = storageType(element);
  for (auto [i, value] : llvm::enumerate(values))
    halves[i / 2 % 2].push_back(widened(value));
  // In pairs, of which none waits for another.
  for (SmallVector<Value> &half : halves) {
    for (; half.size() > 1; half.resize(llvm::divideCeil(half.size(), 2)))
      for (size_t i = 0; i < half.size(); i += 2)
        half[i / 2] = i + 1 < half.size() ? combine(op.getKind(), half[i], half[i + 1]) : half[i];
    sums.push_back(half.front());
  }
  for (Value &total : sums) {
    total = allLanes(op.getKind(), total, 4);
    if (element != sum)
      total = arith::TruncFOp::create(b, loc, element, total);
  }
  return sums;
}

/// Running sums of one vector, whose length is a power of two, for all rows: a lane adds up its part, then those of the lanes before it, and gives what others have columns of.
SmallVector<Value> ThreadLowering::addUpAlike(Value vector, bool reverse) {
  int64_t length = tileType(vector).getDimSize(0), each = length / kWarp;
  auto plus = [&](Value x, Value y) -> Value { return arith::AddFOp::create(b, loc, x, y); };
  SmallVector<Value> parts, sums;
  startStrip();
  for (int64_t i = 0; i < each; ++i) {
    Value at = add(mul(lane, constant(each)), i);
    if (reverse)
      at = arith::SubIOp::create(b, loc, constant(length - 1), at);
    Value one = eval(vector, {}, {at, 0, length, 0, 1});
    parts.push_back(i ? plus(parts.back(), one) : one);
  }
  startStrip();
  Value all = parts.back();
  for (int64_t distance = 1; distance < kWarp; distance *= 2)
    all = arith::SelectOp::create(b, loc, less(lane, distance), all,
                                  plus(all, shuffle(all, distance, gpu::ShuffleMode::UP)));
  Value none = number(b.getF32Type(), 0), before = shuffle(all, 1, gpu::ShuffleMode::UP);
  before = arith::SelectOp::create(b, loc, less(lane, 1), none, before);
  for (Value &part : parts)
    part = plus(before, part);
  Value pair = mul(remainder(lane, 4), constant(2));
  for (int64_t c = 0; c < length; c += 8) {
    Value two[2];
    for (int64_t i = 0; i < 2; ++i) {
      Value column = add(pair, c + i);
      if (reverse)
        column = arith::SubIOp::create(b, loc, constant(length - 1), column);
      // A lane's columns begin at even ones.
      Value from = divide(column, each), place = remainder(column, each);
      for (int64_t part = (reverse ? length - 1 - i : i) % std::min<int64_t>(each, 2); part < each; part += 2) {
        Value one = laneOf(parts[static_cast<size_t>(part)], from);
        Value here = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, place, constant(part));
        two[i] = two[i] ? arith::SelectOp::create(b, loc, here, one, two[i]).getResult() : one;
      }
    }
    sums.append({two[0], two[1], two[0], two[1]});
  }
  return sums;
}

/// Running sums along the columns of turned rows: of the eight that four lanes share, then of all before those. Nothing is taken off a sum again: what
/// came before a large one would be lost.
SmallVector<Value> ThreadLowering::addUpOwned(tile::CumsumOp op) {
  SmallVector<Value> values = ownedOf(op.getSource(), true), sums(values.size());
  bool reverse = op.getReverse();
  // Where all rows are one vector, so are their sums.
  auto repeated = op.getSource().getDefiningOp<tile::ExpandOp>();
  bool alike = repeated && repeated.getAxis() == 1;
  auto bit = [&](int64_t of) {
    Value set = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ne, remainder(divide(lane, of), 2), constant(0));
    return set;
  };
  Value odd = bit(1), high = bit(2), none = number(b.getF32Type(), 0);
  auto plus = [&](Value x, Value y) -> Value { return arith::AddFOp::create(b, loc, x, y); };
  // Of the neighbour's and the other two lanes' sums those that come before this lane's.
  auto before = [&](Value isLater, Value sum) -> Value {
    return reverse ? arith::SelectOp::create(b, loc, isLater, none, sum)
                   : arith::SelectOp::create(b, loc, isLater, sum, none);
  };
  auto blocks = static_cast<int64_t>(values.size() / 4);
  if (int64_t length = tileType(op.getSource()).getDimSize(0);
      alike && length % kWarp == 0 && llvm::isPowerOf2_64(static_cast<uint64_t>(length)))
    return addUpAlike(repeated.getSource(), reverse);
  for (size_t half = 0; half < (alike ? 1 : 2); ++half) {
    Value all; // of the blocks before this one
    for (int64_t i = 0; i < blocks; ++i) {
      size_t first = static_cast<size_t>(reverse ? blocks - 1 - i : i) * 4 + half * 2, one = first + reverse,
             other = first + !reverse;
      Value pair = plus(values[one], values[other]), neighbour = shuffle(pair, 1, gpu::ShuffleMode::XOR),
            four = plus(pair, neighbour), others = shuffle(four, 2, gpu::ShuffleMode::XOR);
      Value start = plus(before(odd, neighbour), before(high, others));
      if (all)
        start = plus(all, start);
      sums[one] = plus(start, values[one]);
      sums[other] = plus(start, pair);
      if (alike) {
        sums[one + 2] = sums[one];
        sums[other + 2] = sums[other];
      }
      Value eight = plus(four, others);
      all = all ? plus(all, eight) : eight;
    }
  }
  return sums;
}

/// A column of turned rows: of the lane that has it, for all four of a row.
SmallVector<Value> ThreadLowering::takeOwned(tile::RowsOp op) {
  SmallVector<Value> values = ownedOf(op.getSource(), true), taken;
  int64_t wanted = *getConstantIntValue(op.getOffset());
  Value from = add(mul(divide(lane, 4), constant(4)), wanted % 8 / 2);
  for (int64_t half = 0; half < 2; ++half)
    taken.push_back(laneOf(values[static_cast<size_t>(wanted / 8 * 4 + half * 2 + wanted % 2)], from));
  return taken;
}
