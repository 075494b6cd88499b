//===- TileMatrix.cpp - dot, solve and transpose: register blocks over packed operands ---------------------------===//
//
// dot holds a block of rows x vectors of accumulators in registers over the whole k loop; b's rows are loaded as
// vectors, a's elements are broadcast. A triangular a shortens that loop, a result that is read on one side of its
// diagonal only is computed in bands of rows, each in the columns that its rows reach. solve uses the same block for
// what is left of the diagonal and finishes the block's own triangle in registers.
//
//===-------------------------------------------------------------------------------------------------------------===//
#include "passes/lower/TileLowering.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"

using namespace mlir;
using namespace braid;
using namespace braid::lower;

namespace {
struct RegisterBlock {
  int64_t rows, vectors;
};
} // namespace

/// Accumulators that fit the register file: 32 registers of 64 bytes, else 16.
static RegisterBlock chooseBlock(int64_t rows, int64_t vectors, bool wide) {
  RegisterBlock block{1, std::min<int64_t>(vectors, wide ? 4 : 2)};
  static constexpr int64_t mostWide[] = {16, 12, 8, 6}, mostNarrow[] = {8, 5};
  int64_t most = std::min(rows, wide ? mostWide[block.vectors - 1] : mostNarrow[block.vectors - 1]);
  block.rows = most;
  for (int64_t candidate = most; candidate >= std::max<int64_t>(most - 4, 2); --candidate)
    if (rows % candidate == 0) {
      block.rows = candidate;
      break;
    }
  return block;
}

View TileLowering::packed(Value v, SmallVectorImpl<Buffer *> &temporary) {
  if (auto it = views.find(v); it != views.end())
    return it->second;
  if (auto load = v.getDefiningOp<tile::LoadOp>())
    if (View view = inMemory(load); view.memref)
      return view;
  Buffer *buffer = allocate(tileType(v));
  temporary.push_back(buffer);
  View view = viewOf(buffer, tileType(v));
  fill(view, tileType(v), v);
  return view;
}

View TileLowering::inMemory(tile::LoadOp load) {
  VectorType type = load.getType();
  const Access &at = accesses[load];
  bool whole = !load.getLimit() && !load.getRows() && type.getRank() == 2 && type.getDimSize(1) % 16 == 0;
  if (!whole || storage(type.getElementType()) != load.getSource().getType().getElementType() ||
      getConstantIntValue(at.strides.back()) != 1)
    return {};
  return {arguments[load.getSource()].memref, at.strides, nullptr, at.offset};
}

//===- Transpose --------------------------------------------------------------------------------------------------===//

/// v[j][i] = v[i][j]. Vectors of several 128-bit lanes first turn squares inside the lanes, then the lanes: each step
/// is one cheap instruction. Short vectors take log2(width) rounds of exchanges.
void TileLowering::transposeSquare(MutableArrayRef<Value> v, Type stored) {
  int64_t width = v.size(), inLane = 128 / std::max(stored.isIndex() ? 64u : stored.getIntOrFloatBitWidth(), 8u),
          lanes = width / inLane;
  auto shuffle = [&](Value x, Value y, ArrayRef<int64_t> from) -> Value {
    return vector::ShuffleOp::create(b, loc, x, y, from);
  };
  if ((inLane != 2 && inLane != 4) || (lanes != 2 && lanes != 4)) {
    for (int64_t d = 1; d < width; d *= 2) {
      SmallVector<int64_t> low(width), high(width);
      for (int64_t l = 0; l < width; ++l) {
        low[l] = (l & d) == 0 ? l : width + l - d;
        high[l] = (l & d) == 0 ? l + d : width + l;
      }
      for (int64_t i = 0; i < width; ++i)
        if ((i & d) == 0) {
          Value x = v[i], y = v[i + d];
          v[i] = shuffle(x, y, low);
          v[i + d] = shuffle(x, y, high);
        }
    }
    return;
  }
  // Interleaves `chunk` elements of x and y inside every lane, taken from the low or the high half of the lane.
  auto unpack = [&](Value x, Value y, int64_t chunk, bool high) {
    SmallVector<int64_t> from;
    for (int64_t lane = 0; lane < lanes; ++lane)
      for (int64_t at = 0; at < inLane / 2; at += chunk)
        for (int64_t side = 0; side < 2; ++side)
          for (int64_t e = 0; e < chunk; ++e)
            from.push_back(side * width + lane * inLane + (high ? inLane / 2 : 0) + at + e);
    return shuffle(x, y, from);
  };
  // Lanes {x0, x1} of x, then the same of y.
  auto pick = [&](Value x, Value y, ArrayRef<int64_t> which) {
    SmallVector<int64_t> from;
    for (int64_t side = 0; side < 2; ++side)
      for (int64_t lane : which)
        for (int64_t e = 0; e < inLane; ++e)
          from.push_back(side * width + lane * inLane + e);
    return shuffle(x, y, from);
  };
  SmallVector<Value> turned(width); // [group of rows][column in lane]
  for (int64_t g = 0; g < lanes; ++g) {
    MutableArrayRef<Value> rows = v.slice(g * inLane, inLane),
                           out = MutableArrayRef<Value>(turned).slice(g * inLane, inLane);
    if (inLane == 2) {
      out[0] = unpack(rows[0], rows[1], 1, false);
      out[1] = unpack(rows[0], rows[1], 1, true);
      continue;
    }
    Value low01 = unpack(rows[0], rows[1], 1, false), high01 = unpack(rows[0], rows[1], 1, true);
    Value low23 = unpack(rows[2], rows[3], 1, false), high23 = unpack(rows[2], rows[3], 1, true);
    out[0] = unpack(low01, low23, 2, false);
    out[1] = unpack(low01, low23, 2, true);
    out[2] = unpack(high01, high23, 2, false);
    out[3] = unpack(high01, high23, 2, true);
  }
  for (int64_t j = 0; j < inLane; ++j) {
    auto at = [&](int64_t g) { return turned[g * inLane + j]; };
    if (lanes == 2) {
      v[j] = pick(at(0), at(1), {0});
      v[inLane + j] = pick(at(0), at(1), {1});
      continue;
    }
    Value first01 = pick(at(0), at(1), {0, 1}), last01 = pick(at(0), at(1), {2, 3});
    Value first23 = pick(at(2), at(3), {0, 1}), last23 = pick(at(2), at(3), {2, 3});
    v[j] = pick(first01, first23, {0, 2});
    v[inLane + j] = pick(first01, first23, {1, 3});
    v[2 * inLane + j] = pick(last01, last23, {0, 2});
    v[3 * inLane + j] = pick(last01, last23, {1, 3});
  }
}

/// target[j, i] = source[i, j], in squares of vectors: log2(width) rounds of shuffles.
void TileLowering::transposeInto(View source, View target, int64_t rows, int64_t columns, Type element) {
  Type stored = storageType(element);
  int64_t width = std::min<int64_t>({plan.width(stored), static_cast<int64_t>(llvm::PowerOf2Ceil(rows)),
                                     static_cast<int64_t>(llvm::PowerOf2Ceil(columns))});
  auto square = [&](Value row, int64_t liveRows, Value column, int64_t liveColumns) {
    SmallVector<Value> v(width);
    auto type = VectorType::get({width}, stored);
    for (int64_t i = 0; i < width; ++i)
      v[i] = i < liveRows ? readView(source, stored, {add(row, i)}, {column, 0, 0, width, width}) : zero(type);
    transposeSquare(v, stored);
    for (int64_t j = 0; j < liveColumns; ++j)
      writeView(target, {add(column, j)}, {row, 0, 0, width, width}, v[j], false);
  };
  int64_t fullRows = rows / width * width, fullColumns = columns / width * width;
  auto band = [&](Value row, int64_t liveRows) {
    repeat(0, fullColumns, width, {}, [&](Value column, ValueRange) -> SmallVector<Value> {
      square(row, liveRows, column, width);
      return {};
    });
    if (columns > fullColumns)
      square(row, liveRows, constant(fullColumns), columns - fullColumns);
  };
  repeat(0, fullRows, width, {}, [&](Value row, ValueRange) -> SmallVector<Value> {
    band(row, width);
    return {};
  });
  if (rows > fullRows)
    band(constant(fullRows), rows - fullRows);
}

void TileLowering::transpose(tile::TransposeOp op) {
  auto source = cast<VectorType>(op.getSource().getType());
  SmallVector<Buffer *> temporary;
  View from = packed(op.getSource(), temporary);
  View to = destination(op.getResult());
  transposeInto(from, to, source.getDimSize(0), source.getDimSize(1), source.getElementType());
  for (Buffer *buffer : temporary)
    giveBack(buffer);
  own(op.getResult(), to);
}

//===- Pairs of bf16 ----------------------------------------------------------------------------------------------===//
// An i32 holds two elements of an operand that are neighbours along the dimension summed over, the first in its low
// half.

bool TileLowering::takesPairs(tile::DotOp op) {
  auto type = cast<VectorType>(op.getType());
  int64_t depth = tileType(op.getA()).getDimSize(op.getTransposeA() ? 0 : 1);
  return bf16Dots && elementOf(op.getA()).isBF16() && elementOf(op.getB()).isBF16() && type.getElementType().isF32() &&
         depth % 2 == 0 && widthFor(type) >= 4;
}

/// [rows, 2 c] as i32 [rows, c]: neighbours of a row.
View TileLowering::pairsInRows(Value v, SmallVectorImpl<Buffer *> &temporary) {
  VectorType type = tileType(v);
  int64_t columns = type.getDimSize(1);
  View source;
  if (!plan.breaks(v).empty())
    source = packed(v, temporary);
  auto half = VectorType::get({type.getDimSize(0), columns / 2}, b.getI32Type());
  temporary.push_back(allocate(half));
  View target = viewOf(temporary.back(), half);
  forEachRow(type.getShape().drop_back(), nullptr, [&](ArrayRef<Value> lead) {
    forEachStrip(columns, widthFor(type), {}, [&](const Strip &strip) {
      Value value = source.memref ? readView(source, type.getElementType(), lead, strip) : eval(v, lead, strip);
      Strip to{divide(strip.column, 2), 0, 0, strip.width / 2, strip.width / 2};
      writeView(target, lead, to, vector::BitCastOp::create(b, loc, VectorType::get({to.width}, b.getI32Type()), value),
                false);
    });
  });
  return target;
}

/// [2 r, columns] as i32 [r, columns]: neighbours of a column.
View TileLowering::pairsOfRows(Value v, SmallVectorImpl<Buffer *> &temporary) {
  VectorType type = tileType(v);
  auto half = VectorType::get({type.getDimSize(0) / 2, type.getDimSize(1)}, b.getI32Type());
  temporary.push_back(allocate(half));
  View target = viewOf(temporary.back(), half);
  auto it = views.find(v);
  // The element in the upper half of each lane, the lower half 0.
  auto bits = [&](Value row, const Strip &strip) -> Value {
    auto wide = VectorType::get({strip.width}, b.getI32Type());
    if (it != views.end()) // kept as f32
      return arith::BitcastOp::create(b, loc, wide,
                                      readView(it->second, type.getElementType(), {row}, strip, /*widen=*/true));
    Value narrow =
        arith::BitcastOp::create(b, loc, VectorType::get({strip.width}, b.getI16Type()), eval(v, {row}, strip));
    return arith::ShLIOp::create(b, loc, arith::ExtUIOp::create(b, loc, wide, narrow), numberOf(wide, 16));
  };
  forEachRow({half.getDimSize(0)}, nullptr, [&](ArrayRef<Value> lead) {
    forEachStrip(half.getDimSize(1), widthFor(type), plan.breaks(v), [&](const Strip &strip) {
      Value row = mul(lead.front(), constant(2)), first = bits(row, strip), second = bits(add(row, 1), strip);
      Value low = arith::ShRUIOp::create(b, loc, first, numberOf(first.getType(), 16));
      writeView(target, lead, strip, arith::OrIOp::create(b, loc, low, second), strip.hi != half.getDimSize(1));
    });
  });
  return target;
}

Value TileLowering::multiplyPairs(Value x, Value y, Value sum) {
  auto type = cast<VectorType>(sum.getType());
  auto pairs = VectorType::get({2 * type.getDimSize(0)}, b.getBF16Type());
  SmallVector<Value> operands{sum, vector::BitCastOp::create(b, loc, pairs, x),
                              vector::BitCastOp::create(b, loc, pairs, y)};
  std::string name = "llvm.x86.avx512bf16.dpbf16ps." + std::to_string(32 * type.getDimSize(0));
  return LLVM::CallIntrinsicOp::create(b, loc, type, b.getStringAttr(name), operands).getResults();
}

//===- Dot --------------------------------------------------------------------------------------------------------===//

void TileLowering::dot(tile::DotOp op) {
  auto type = cast<VectorType>(op.getType());
  auto typeA = cast<VectorType>(op.getA().getType()), typeB = cast<VectorType>(op.getB().getType());
  int64_t m = type.getDimSize(0), n = type.getDimSize(1), k = typeA.getDimSize(op.getTransposeA() ? 0 : 1);
  Type element = type.getElementType();
  SmallVector<Buffer *> temporary;
  bool pairs = takesPairs(op);
  Type operand = pairs ? b.getI32Type() : element;
  View a, packedB;
  if (pairs) {
    a = op.getTransposeA() ? pairsOfRows(op.getA(), temporary) : pairsInRows(op.getA(), temporary);
    packedB = op.getTransposeB() ? pairsInRows(op.getB(), temporary) : pairsOfRows(op.getB(), temporary);
    k /= 2;
  } else {
    a = packed(op.getA(), temporary);
    packedB = packed(op.getB(), temporary);
  }
  if (op.getTransposeB()) {
    auto turned = VectorType::get({k, n}, pairs ? operand : typeB.getElementType());
    Buffer *buffer = allocate(turned);
    temporary.push_back(buffer);
    View to = viewOf(buffer, turned);
    transposeInto(packedB, to, n, k, turned.getElementType());
    packedB = to;
  }
  View target;
  auto it = views.find(op.getAcc());
  if (it != views.end() && it->second.buffer && dies(op.getAcc(), 1) && op.getAcc() != op.getA() &&
      op.getAcc() != op.getB())
    target = it->second;
  else
    target = destination(op.getResult(), op.getAcc());

  int64_t width = widthFor(type);
  SmallVector<Ahead> followers = tilesAhead(op);
  Triangles left = triangleOf(op.getA());
  if (op.getTransposeA())
    std::swap(left.above, left.below);
  auto inner = [&](Value row, int64_t rows, Value column, int64_t columns, int64_t live) {
    auto strip = [&](int64_t c) {
      int64_t valid = std::min(width, live - c * width);
      return Strip{add(column, c * width), 0, n, width, valid};
    };
    SmallVector<Value> sums;
    startStrip();
    for (int64_t r = 0; r < rows; ++r) {
      Value at = add(row, r);
      for (int64_t c = 0; c < columns; ++c)
        sums.push_back(eval(op.getAcc(), {at}, strip(c)));
    }
    startStrip();
    auto step = [&](Value depth, ValueRange carried) {
      SmallVector<Value> next(carried), fromB(columns);
      for (int64_t c = 0; c < columns; ++c)
        fromB[c] = readView(packedB, operand, {depth}, strip(c));
      for (int64_t r = 0; r < rows; ++r) {
        Value at = add(row, r);
        Strip one{op.getTransposeA() ? at : depth, 0, 0, 0, 1};
        Value scalar = readView(a, operand, {op.getTransposeA() ? depth : at}, one);
        Value all = vector::BroadcastOp::create(b, loc, VectorType::get({width}, operand), scalar);
        for (int64_t c = 0; c < columns; ++c) {
          Value &sum = next[r * columns + c];
          sum = pairs ? multiplyPairs(all, fromB[c], sum) : Value(vector::FMAOp::create(b, loc, all, fromB[c], sum));
        }
      }
      return next;
    };
    if (left.above && left.below)
      sums = repeat(0, k, 1, sums, step);
    else // a[r, s] is 0 for s > r, or for s < r; of a pair one half may be
      sums = repeat(left.below ? constant(0) : divide(row, pairs ? 2 : 1),
                    left.above ? constant(k) : divide(add(row, rows + pairs), pairs ? 2 : 1), constant(1), sums, step);
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < columns; ++c)
        writeView(target, {add(row, r)}, strip(c), sums[r * columns + c], false);
  };
  auto across = [&](Value row, int64_t rows, const RegisterBlock &block, int64_t begin, int64_t end) {
    fetch(followers, row, rows, m);
    int64_t step = block.vectors * width, full = begin + (end - begin) / step * step;
    repeat(begin, full, step, {}, [&](Value column, ValueRange) -> SmallVector<Value> {
      inner(row, rows, column, block.vectors, step);
      return {};
    });
    if (end > full)
      inner(row, rows, constant(full), llvm::divideCeil(end - full, width), end - full);
  };
  // Rows [first, last), columns [begin, end).
  auto band = [&](int64_t first, int64_t last, int64_t begin, int64_t end) {
    RegisterBlock block = chooseBlock(last - first, llvm::divideCeil(end - begin, width), vectorBytes == 64);
    int64_t full = first + (last - first) / block.rows * block.rows;
    repeat(first, full, block.rows, {}, [&](Value row, ValueRange) -> SmallVector<Value> {
      across(row, block.rows, block, begin, end);
      return {};
    });
    if (last > full)
      across(constant(full), last - full, block, begin, end);
  };
  constexpr int64_t bandRows = 16;
  Triangles read = triangleRead(op.getResult());
  if ((read.above && read.below) || n % bandRows != 0 || n == bandRows || n > 8 * bandRows) {
    band(0, m, 0, n);
  } else {
    for (int64_t first = 0; first < m; first += bandRows) {
      int64_t begin = read.above ? first : 0, end = read.above ? n : first + bandRows;
      band(first, first + bandRows, begin, end);
      repeat(first, first + bandRows, 1, {}, [&](Value row, ValueRange) -> SmallVector<Value> {
        forEachStrip(n, width, {read.above ? begin : end}, [&](const Strip &strip) {
          if (strip.hi <= begin || strip.lo >= end)
            writeView(target, {row}, strip, zero(VectorType::get({strip.width}, element)), false);
        });
        return {};
      });
    }
  }
  for (Buffer *buffer : temporary)
    giveBack(buffer);
  own(op.getResult(), target);
}

//===- Solve ------------------------------------------------------------------------------------------------------===//

void TileLowering::solve(tile::SolveOp op) {
  auto type = cast<VectorType>(op.getType());
  int64_t rowsAll = type.getDimSize(0), n = type.getDimSize(1);
  Type element = storageType(type.getElementType());
  SmallVector<Buffer *> temporary;
  View a = packed(op.getA(), temporary);
  View target;
  auto it = views.find(op.getB());
  if (it != views.end() && it->second.buffer && dies(op.getB(), 1) && op.getA() != op.getB()) {
    target = it->second;
  } else {
    target = destination(op.getResult());
    fill(target, type, op.getB());
  }
  bool up = op.getTranspose();
  int64_t width = widthFor(VectorType::get(type.getShape(), element)), vectors = llvm::divideCeil(n, width);
  // Coefficient of x[s] in the equation of row r: L[r, s], or of the transposed system L[s, r]; negated for the fma.
  auto coefficient = [&](Value r, Value s) -> Value {
    Value scalar = readView(a, element, {up ? s : r}, {up ? r : s, 0, 0, 0, 1});
    // Negated behind the broadcast: then both are part of the fma that they go into.
    return arith::NegFOp::create(b, loc,
                                 vector::BroadcastOp::create(b, loc, VectorType::get({width}, element), scalar));
  };
  // Rows [row, row + rows) given all solved rows: [0, row), or [row + rows, C) for the transposed system.
  auto solveBlock = [&](Value row, int64_t rows, Value column, int64_t columns) {
    auto strip = [&](int64_t c) { return Strip{add(column, c * width), 0, n, width, width}; };
    SmallVector<Value> x;
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < columns; ++c)
        x.push_back(readView(target, element, {add(row, r)}, strip(c)));
    Value begin = up ? add(row, rows) : constant(0), end = up ? constant(rowsAll) : row;
    x = repeat(begin, end, constant(1), x, [&](Value s, ValueRange carried) {
      SmallVector<Value> next(carried), solved(columns);
      for (int64_t c = 0; c < columns; ++c)
        solved[c] = readView(target, element, {s}, strip(c));
      for (int64_t r = 0; r < rows; ++r) {
        Value factor = coefficient(add(row, r), s);
        for (int64_t c = 0; c < columns; ++c)
          next[r * columns + c] = vector::FMAOp::create(b, loc, factor, solved[c], carried[r * columns + c]);
      }
      return next;
    });
    for (int64_t i = 0; i < rows; ++i) {
      int64_t s = up ? rows - 1 - i : i; // solved now; the rest of the block loses its share
      for (int64_t j = i + 1; j < rows; ++j) {
        int64_t r = up ? rows - 1 - j : j;
        Value factor = coefficient(add(row, r), add(row, s));
        for (int64_t c = 0; c < columns; ++c)
          x[r * columns + c] = vector::FMAOp::create(b, loc, factor, x[s * columns + c], x[r * columns + c]);
      }
    }
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < columns; ++c)
        writeView(target, {add(row, r)}, strip(c), x[r * columns + c], false);
  };
  int64_t most = vectorBytes == 64 ? 4 : 2, rows = std::min<int64_t>(rowsAll, 4), full = rowsAll / rows * rows;
  auto down = [&](Value column, int64_t columns) {
    if (up && rowsAll > full)
      solveBlock(constant(full), rowsAll - full, column, columns);
    repeat(0, full, rows, {}, [&](Value at, ValueRange) -> SmallVector<Value> {
      Value row = at;
      if (up) {
        std::optional<int64_t> known = getConstantIntValue(at);
        row = known ? constant(full - rows - *known) : Value(arith::SubIOp::create(b, loc, constant(full - rows), at));
      }
      solveBlock(row, rows, column, columns);
      return {};
    });
    if (!up && rowsAll > full)
      solveBlock(constant(full), rowsAll - full, column, columns);
  };
  int64_t fullVectors = vectors / most * most;
  repeat(0, fullVectors * width, most * width, {}, [&](Value column, ValueRange) -> SmallVector<Value> {
    down(column, most);
    return {};
  });
  if (vectors > fullVectors)
    down(constant(fullVectors * width), vectors - fullVectors);
  for (Buffer *buffer : temporary)
    giveBack(buffer);
  own(op.getResult(), target);
}
