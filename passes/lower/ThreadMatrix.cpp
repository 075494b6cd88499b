//===- ThreadMatrix.cpp - dot, solve and transpose by the threads of a block ---------------------------------------===//
//
// The f32 product stays on the FMA units: the tensor cores would round its operands to 11 bits.
//
//===-------------------------------------------------------------------------------------------------------------===//
#include "passes/lower/ThreadLowering.h"

using namespace mlir;
using namespace braid;
using namespace braid::lower;

void ThreadLowering::transpose(tile::TransposeOp op) {
  SmallVector<Buffer *> temporary;
  View from = packed(op.getSource(), temporary), to = destination(op.getResult());
  auto type = cast<VectorType>(op.getType());
  Elements elements{type.getShape(), 0, {}};
  elements.alone = true;
  overElements(elements, nullptr, [&](ArrayRef<Value> lead, const Strip &strip) {
    Value value = readView(from, type.getElementType(), {strip.column}, {lead.front(), 0, 0, 0, 1});
    writeView(to, lead, strip, value, false);
  });
  for (Buffer *buffer : temporary)
    giveBack(buffer);
  own(op.getResult(), to);
}

/// A thread holds rows x columns of the result, spread evenly, so that neighbouring threads read neighbouring columns.
void ThreadLowering::multiply(tile::DotOp op, const View &left, const View &right, const View &target) {
  auto type = cast<VectorType>(op.getType()), a = cast<VectorType>(op.getA().getType());
  Type element = a.getElementType();
  int64_t m = type.getDimSize(0), n = type.getDimSize(1), k = a.getDimSize(op.getTransposeA() ? 0 : 1);
  int64_t rows = 1, columns = 1;
  while (rows * columns < 32 && (m / rows) * (n / columns) > threads) {
    bool growRows = rows <= columns;
    if (growRows && (m / rows) % 2 != 0)
      growRows = false;
    if (!growRows && (n / columns) % 2 != 0 && (growRows = (m / rows) % 2 == 0, !growRows))
      break;
    (growRows ? rows : columns) *= 2;
  }
  int64_t rowStep = m / rows, columnStep = n / columns;
  Phase phase(*this);
  eachThread(rowStep * columnStep, [&](Value linear) {
    Value row = divide(linear, columnStep), column = remainder(linear, columnStep);
    auto strip = [&](int64_t j) { return Strip{add(column, j * columnStep), 0, n, 0, 1}; };
    SmallVector<Value> sums;
    startStrip();
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < columns; ++j)
        sums.push_back(eval(op.getAcc(), {add(row, i * rowStep)}, strip(j)));
    startStrip();
    auto read = [&](const View &view, Value major, Value minor, bool turned) {
      if (turned)
        std::swap(major, minor);
      return widened(readView(view, element, {major}, {minor, 0, 0, 0, 1}));
    };
    sums = repeat(0, k, 1, sums, [&](Value at, ValueRange carried) {
      SmallVector<Value> x, y, next;
      for (int64_t i = 0; i < rows; ++i)
        x.push_back(read(left, add(row, i * rowStep), at, op.getTransposeA()));
      for (int64_t j = 0; j < columns; ++j)
        y.push_back(read(right, at, strip(j).column, op.getTransposeB()));
      for (int64_t i = 0; i < rows; ++i)
        for (int64_t j = 0; j < columns; ++j)
          next.push_back(math::FmaOp::create(b, loc, x[i], y[j], carried[i * columns + j]));
      return next;
    });
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < columns; ++j)
        writeView(target, {add(row, i * rowStep)}, strip(j), sums[i * columns + j], false);
  });
}

/// Whether it gives (I + L)^-1 - I: the right side is -L.
static bool isInverse(tile::SolveOp op) {
  auto negated = op.getB().getDefiningOp<arith::NegFOp>();
  auto mask = negated ? negated.getOperand().getDefiningOp<tile::MaskOp>() : nullptr;
  return mask && mask.getKeep() == tile::Keep::strict_lower && mask.getSource() == op.getA() && !op.getTranspose();
}

/// X = (I + L)^-1 - I for all threads: blocks of 16 x 16 on the diagonal by substitution, a thread for each column; then pairs of them, and pairs of
/// those: of what lies left of the second one, S = L (I + X_1) and X = -(I + X_2) S. No more than substitution multiplies, and as exact: nothing is
/// a power of L. A thread has `wide` neighbours of a row.
void ThreadLowering::invert(tile::SolveOp op) {
  constexpr int64_t side = 16;
  auto type = cast<VectorType>(op.getType());
  Type element = type.getElementType();
  int64_t size = type.getDimSize(0), wide = element.isF64() ? 2 : 4;
  SmallVector<Buffer *> temporary;
  View a = packed(op.getA(), temporary), target = destination(op.getResult());
  int64_t half = std::max(size / 2, side);
  auto sumsType = VectorType::get({half, half}, element);
  temporary.push_back(allocate(sumsType));
  View sums = viewOf(temporary.back(), sumsType);
  Value zero = arith::ConstantOp::create(b, loc, b.getFloatAttr(storageType(element), 0));
  auto one = [&](Value column) { return Strip{column, 0, size, 0, 1}; };
  auto read = [&](const View &view, Type stored, Value row, Value column) {
    return widened(readView(view, stored, {row}, one(column)));
  };
  // Elements [column, column + wide) of a row.
  auto few = [&](Value column) { return Strip{column, 0, size, wide, wide}; };
  auto readRow = [&](const View &view, Type stored, Value row, Value column) {
    return widened(readView(view, stored, {row}, few(column)));
  };
  {
    Phase phase(*this);
    eachThread(size, [&](Value column) {
      Value inside = remainder(column, side), first = arith::SubIOp::create(b, loc, column, inside);
      SmallVector<Value> x;
      for (int64_t i = 0; i < side; ++i) {
        Value below = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ult, inside, constant(i));
        Value negated = arith::NegFOp::create(b, loc, read(a, elementOf(op.getA()), add(first, i), column));
        x.push_back(arith::SelectOp::create(b, loc, below, negated, zero));
      }
      for (int64_t i = 1; i < side; ++i) {
        SmallVector<Value> row;
        for (int64_t k = 0; k < i; k += wide) {
          Value factors = readRow(a, elementOf(op.getA()), add(first, i), add(first, k));
          for (int64_t j = 0; j < wide; ++j)
            row.push_back(vector::ExtractOp::create(b, loc, factors, j));
        }
        for (int64_t k = 0; k < i; ++k)
          x[i] = math::FmaOp::create(b, loc, arith::NegFOp::create(b, loc, row[k]), x[k], x[i]);
      }
      for (int64_t i = 0; i < side; ++i)
        writeView(target, {add(first, i)}, one(column), x[i], false);
    });
    Value zeros = splat(zero, wide);
    if (size > side)
      eachThread(size * size / wide, [&](Value linear) {
        Value row = divide(linear, size / wide), column = mul(remainder(linear, size / wide), constant(wide));
        Value above = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ugt, divide(column, side), divide(row, side));
        onlyIf(above, [&] { writeView(target, {row}, few(column), zeros, false); });
      });
  }
  for (int64_t known = side; known < size; known *= 2) {
    // Elements [c, c + wide) of row r of what lies left of the second block, of `known` rows, of a pair; the first one's begin is `first`.
    auto each = [&](function_ref<void(Value first, Value row, Value column, Value sumRow)> body) {
      Phase phase(*this);
      eachThread(size / 2 * (known / wide), [&](Value linear) {
        Value sumRow = divide(linear, known / wide), pair = divide(sumRow, known), r = remainder(sumRow, known);
        Value first = mul(pair, constant(2 * known)), column = mul(remainder(linear, known / wide), constant(wide));
        body(first, add(add(first, r), known), column, sumRow);
      });
    };
    // sum + factors x, of `known` rows of x.
    auto addUp = [&](Value sum, function_ref<Value(Value k)> factors, function_ref<Value(Value k)> x) {
      return repeat(0, known, wide, {sum}, [&](Value k, ValueRange carried) -> SmallVector<Value> {
        Value next = carried.front(), row = factors(k);
        for (int64_t j = 0; j < wide; ++j) {
          Value factor = vector::ExtractOp::create(b, loc, row, j);
          next = math::FmaOp::create(b, loc, splat(factor, wide), x(add(k, j)), next);
        }
        return {next};
      })[0];
    };
    each([&](Value first, Value row, Value column, Value sumRow) {
      auto factors = [&](Value k) { return readRow(a, elementOf(op.getA()), row, add(first, k)); };
      auto x = [&](Value k) { return readRow(target, element, add(first, k), add(first, column)); };
      Value sum = addUp(readRow(a, elementOf(op.getA()), row, add(first, column)), factors, x);
      writeView(sums, {sumRow}, few(column), sum, false);
    });
    each([&](Value first, Value row, Value column, Value sumRow) {
      Value second = add(first, known),
            begin = arith::SubIOp::create(b, loc, sumRow, arith::SubIOp::create(b, loc, row, second));
      auto factors = [&](Value k) { return readRow(target, element, row, add(second, k)); };
      auto x = [&](Value k) { return readRow(sums, element, add(begin, k), column); };
      Value sum = addUp(readRow(sums, element, sumRow, column), factors, x);
      writeView(target, {row}, few(add(first, column)), arith::NegFOp::create(b, loc, sum), false);
    });
  }
  for (Buffer *buffer : temporary)
    giveBack(buffer);
  own(op.getResult(), target);
}

/// Substitution, in blocks of rows: a thread owns a column of the result, holds a block of it in registers and needs
/// nothing of the others. Coefficients are the same in every lane of a warp and are read several at a time.
void ThreadLowering::solve(tile::SolveOp op) {
  constexpr int64_t blockRows = 16;
  auto type = cast<VectorType>(op.getType());
  int64_t size = type.getDimSize(0), columns = type.getDimSize(1), full = size / blockRows * blockRows;
  if (llvm::isPowerOf2_64(size) && full == size && isInverse(op))
    return invert(op);
  bool up = op.getTranspose();
  SmallVector<Buffer *> temporary;
  View a = packed(op.getA(), temporary), right = packed(op.getB(), temporary), target = destination(op.getResult());
  int64_t wide = size % 4 == 0 ? (type.getElementType().isF64() ? 2 : 4) : 1;

  // Coefficients of rows [row, row + count) for x[at .. at + wide), negated: [i][j] that of row i and x[j].
  auto factors = [&](Value row, int64_t count, Value at) {
    SmallVector<SmallVector<Value>> found(count);
    auto read = [&](Value major, Value minor, function_ref<void(int64_t j, Value value)> use) {
      Strip strip{minor, 0, size, wide == 1 ? 0 : wide, wide};
      Value value = arith::NegFOp::create(b, loc, widened(readView(a, elementOf(op.getA()), {major}, strip)));
      for (int64_t j = 0; j < wide; ++j)
        use(j, wide == 1 ? value : vector::ExtractOp::create(b, loc, value, j).getResult());
    };
    if (!up)
      for (int64_t i = 0; i < count; ++i)
        read(add(row, i), at, [&](int64_t, Value value) { found[i].push_back(value); });
    else
      for (int64_t j = 0; j < wide; ++j)
        for (int64_t i = 0; i < count; i += wide)
          read(add(at, j), add(row, i), [&](int64_t lane, Value value) { found[i + lane].push_back(value); });
    return found;
  };
  auto multiply = [&](Value factor, Value x, Value sum) { return math::FmaOp::create(b, loc, factor, x, sum); };

  // Rows [row, row + rows), given those before them, or behind them.
  auto solveBlock = [&](Value row, int64_t rows, const Strip &strip) {
    SmallVector<Value> x;
    for (int64_t i = 0; i < rows; ++i)
      x.push_back(widened(readView(right, type.getElementType(), {add(row, i)}, strip)));
    Value begin = up ? add(row, rows) : constant(0), end = up ? constant(size) : row;
    x = repeat(begin, end, constant(wide), x, [&](Value at, ValueRange carried) {
      SmallVector<Value> next(carried), solved;
      for (int64_t j = 0; j < wide; ++j)
        solved.push_back(widened(readView(target, type.getElementType(), {add(at, j)}, strip)));
      SmallVector<SmallVector<Value>> factor = factors(row, rows, at);
      for (int64_t j = 0; j < wide; ++j)
        for (int64_t i = 0; i < rows; ++i)
          next[i] = multiply(factor[i][j], solved[j], next[i]);
      return next;
    });
    // In the block: `wide` rows at a time are solved, and the other rows lose their shares of them.
    int64_t groups = rows / wide;
    for (int64_t group = 0; group < groups; ++group) {
      int64_t first = (up ? groups - 1 - group : group) * wide;
      SmallVector<SmallVector<Value>> factor = factors(row, rows, add(row, first));
      for (int64_t step = 0; step < wide; ++step) {
        int64_t j = up ? wide - 1 - step : step, known = first + j;
        for (int64_t i = up ? 0 : known + 1; i < (up ? known : rows); ++i)
          x[i] = multiply(factor[i][j], x[known], x[i]);
      }
    }
    for (int64_t i = 0; i < rows; ++i)
      writeView(target, {add(row, i)}, strip, x[i], false);
  };
  {
    Phase phase(*this);
    eachThread(columns, [&](Value column) {
      Strip strip{column, 0, columns, 0, 1};
      if (up && size > full)
        solveBlock(constant(full), size - full, strip);
      repeat(0, full, blockRows, {}, [&](Value at, ValueRange) -> SmallVector<Value> {
        solveBlock(up ? arith::SubIOp::create(b, loc, constant(full - blockRows), at).getResult() : at, blockRows,
                   strip);
        return {};
      });
      if (!up && size > full)
        solveBlock(constant(full), size - full, strip);
    });
  }
  for (Buffer *buffer : temporary)
    giveBack(buffer);
  own(op.getResult(), target);
}
