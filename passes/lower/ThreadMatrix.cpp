//===- ThreadMatrix.cpp - dot, solve and transpose by the threads of a block ---------------------------------------===//
//
// Products of bf16 tiles are the tensor cores': a warp holds blocks of 16 x 8 of the result in registers over the whole k
// loop and reads both operands with ldmatrix, turned where they lie the other way round. The f32 product stays on the
// FMA units: the tensor cores would round its operands to 11 bits.
//
//===-------------------------------------------------------------------------------------------------------------===//
#include "passes/lower/ThreadLowering.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"

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

/// Rows, columns and depth of one tensor-core product.
static constexpr int64_t kMmaRows = 16, kMmaColumns = 8, kMmaDepth = 16;

bool ThreadLowering::onTensorCores(tile::DotOp op) {
  auto type = cast<VectorType>(op.getType()), a = cast<VectorType>(op.getA().getType());
  return a.getElementType().isBF16() && type.getDimSize(0) % kMmaRows == 0 && type.getDimSize(1) % kMmaColumns == 0 &&
         a.getDimSize(op.getTransposeA() ? 0 : 1) % kMmaDepth == 0;
}

/// `count` (2 or 4) 8 x 8 matrices; this lane gives the address of one row, element [row, column] of the view. Each lane
/// receives two neighbours of a row of every matrix, or, turned, of a column.
SmallVector<Value> ThreadLowering::loadMatrices(const View &view, Value row, Value column, int64_t count, bool turned) {
  touched(view, false);
  Value start = memref::ExtractAlignedPointerAsIndexOp::create(b, loc, view.memref);
  return loadMatrices(add(start, mul(offsetIn(view, {row}, column), constant(2))), count, turned);
}

SmallVector<Value> ThreadLowering::loadMatrices(Value address, int64_t count, bool turned) {
  address = pointer(address, static_cast<unsigned>(NVVM::NVVMMemorySpace::Shared));
  auto type = LLVM::LLVMStructType::getLiteral(b.getContext(), SmallVector<Type>(count, b.getI32Type()));
  auto shape = NVVM::LdStMatrixShapeAttr::get(b.getContext(), 8, 8);
  Value loaded = NVVM::LdMatrixOp::create(b, loc, type, address, static_cast<uint32_t>(count),
                                          turned ? NVVM::MMALayout::col : NVVM::MMALayout::row, shape,
                                          NVVM::LdStMatrixEltType::B16);
  SmallVector<Value> registers;
  for (int64_t i = 0; i < count; ++i)
    registers.push_back(LLVM::ExtractValueOp::create(b, loc, loaded, ArrayRef<int64_t>{i}));
  return registers;
}

/// sums + a b, 16 x 8: four elements of this lane.
SmallVector<Value> ThreadLowering::multiplyFragments(ValueRange a, ValueRange b16, ValueRange sums) {
  auto quad = LLVM::LLVMStructType::getLiteral(b.getContext(), SmallVector<Type>(4, b.getF32Type()));
  auto bf16 = NVVM::MMATypes::bf16;
  Value product = NVVM::MmaOp::create(b, loc, quad, a, b16, sums, ArrayRef<int64_t>{kMmaRows, kMmaColumns, kMmaDepth},
                                      std::nullopt, std::nullopt, std::array<NVVM::MMATypes, 2>{bf16, bf16},
                                      std::array<NVVM::MMALayout, 2>{NVVM::MMALayout::row, NVVM::MMALayout::col});
  SmallVector<Value> next;
  for (int64_t e = 0; e < 4; ++e)
    next.push_back(LLVM::ExtractValueOp::create(b, loc, product, ArrayRef<int64_t>{e}));
  return next;
}

void ThreadLowering::multiplyOnTensorCores(tile::DotOp op, const View &left, const View &right, const View &target) {
  auto type = cast<VectorType>(op.getType()), a = cast<VectorType>(op.getA().getType());
  int64_t rowBlocks = type.getDimSize(0) / kMmaRows, columnBlocks = type.getDimSize(1) / kMmaColumns;
  int64_t depth = a.getDimSize(op.getTransposeA() ? 0 : 1), warps = threads / kWarp;
  // What a warp holds: each matrix of a serves `columns` products, each of b `rows`.
  int64_t rows = 1, columns = 1;
  while (rows * columns < 16 && (rowBlocks / rows) * (columnBlocks / columns) > warps) {
    bool canRows = (rowBlocks / rows) % 2 == 0, canColumns = (columnBlocks / columns) % 2 == 0;
    if (!canRows && !canColumns)
      break;
    (canColumns && (columns <= 2 * rows || !canRows) ? columns : rows) *= 2;
  }
  int64_t across = columnBlocks / columns;
  Phase phase(*this);
  // Lane 8 i + r gives row r of the i-th matrix; it receives row lane / 4, elements 2 (lane % 4) and the next.
  Value inMatrix = remainder(lane, 8), low = remainder(divide(lane, 8), 2), high = divide(lane, 16);
  Value quad = divide(lane, 4), pair = mul(remainder(lane, 4), constant(2));
  eachGroup(rowBlocks / rows * across, kWarp, [&](Value i, Value inside) {
    Value firstRow = mul(divide(i, across), constant(rows * kMmaRows)),
          firstColumn = mul(remainder(i, across), constant(columns * kMmaColumns));
    // The four elements of a block that this lane holds.
    auto eachElement = [&](function_ref<void(Value row, const Strip &strip)> body) {
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t c = 0; c < columns; ++c)
          for (int64_t half = 0; half < 2; ++half)
            for (int64_t element = 0; element < 2; ++element) {
              Value row = add(add(firstRow, quad), r * kMmaRows + half * 8);
              body(row, {add(add(firstColumn, pair), c * kMmaColumns + element), 0, type.getDimSize(1), 0, 1});
            }
    };
    SmallVector<Value> sums;
    startStrip();
    eachElement([&](Value row, const Strip &strip) { sums.push_back(eval(op.getAcc(), {row}, strip)); });
    startStrip();
    auto load = [&](const View &view, Value major, Value minor, int64_t count, bool turned, bool stored) {
      return stored ? loadMatrices(view, minor, major, count, turned) : loadMatrices(view, major, minor, count, turned);
    };
    sums = repeat(0, depth, kMmaDepth, sums, [&](Value at, ValueRange carried) {
      SmallVector<SmallVector<Value>> x, y;
      // a as 16 x 16: rows 0-7 and 8-15 for k 0-7, then for k 8-15.
      for (int64_t r = 0; r < rows; ++r) {
        Value row = add(add(firstRow, r * kMmaRows), add(inMatrix, mul(low, constant(8))));
        Value k = add(at, mul(high, constant(8)));
        if (op.getTransposeA()) {
          row = add(add(firstRow, r * kMmaRows), mul(low, constant(8)));
          k = add(at, add(inMatrix, mul(high, constant(8))));
        }
        x.push_back(load(left, row, k, 4, op.getTransposeA(), op.getTransposeA()));
      }
      // b as 16 x 8: k 0-7 and 8-15; two blocks of columns at a time where there are two.
      int64_t together = columns % 2 == 0 ? 2 : 1;
      for (int64_t c = 0; c < columns; c += together) {
        Value block = together == 2 ? mul(high, constant(8)) : constant(0);
        Value column = add(add(firstColumn, c * kMmaColumns), block), k = add(at, mul(low, constant(8)));
        if (op.getTransposeB())
          column = add(column, inMatrix);
        else
          k = add(k, inMatrix);
        SmallVector<Value> loaded = load(right, k, column, 2 * together, !op.getTransposeB(), op.getTransposeB());
        for (int64_t part = 0; part < together; ++part)
          y.push_back({loaded[2 * part], loaded[2 * part + 1]});
      }
      SmallVector<Value> next;
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t c = 0; c < columns; ++c)
          llvm::append_range(next, multiplyFragments(x[r], y[c], carried.slice((r * columns + c) * 4, 4)));
      return next;
    });
    onlyIf(inside, [&] {
      size_t at = 0;
      eachElement([&](Value row, const Strip &strip) { writeView(target, {row}, strip, sums[at++], false); });
    });
  });
}

void ThreadLowering::dot(tile::DotOp op) {
  SmallVector<Buffer *> temporary;
  View a = packed(op.getA(), temporary), b = packed(op.getB(), temporary);
  View target = destination(op.getResult(), op.getAcc());
  // ldmatrix reads shared memory alone: not scratch, nor the table of a constant.
  if (onTensorCores(op) && isShared(a) && isShared(b))
    multiplyOnTensorCores(op, a, b, target);
  else
    multiply(op, a, b, target);
  for (Buffer *buffer : temporary)
    giveBack(buffer);
  own(op.getResult(), target);
}

/// Substitution: a thread owns a column of the result, and needs nothing of the others.
void ThreadLowering::solve(tile::SolveOp op) {
  auto type = cast<VectorType>(op.getType());
  int64_t size = type.getDimSize(0), columns = type.getDimSize(1);
  SmallVector<Buffer *> temporary;
  View a = packed(op.getA(), temporary), right = packed(op.getB(), temporary), target = destination(op.getResult());
  {
    Phase phase(*this);
    eachThread(columns, [&](Value column) {
      Strip strip{column, 0, columns, 0, 1};
      repeat(0, size, 1, {}, [&](Value step, ValueRange) -> SmallVector<Value> {
        bool turned = op.getTranspose();
        Value row = turned ? arith::SubIOp::create(b, loc, constant(size - 1), step).getResult() : step;
        Value value = widened(readView(right, type.getElementType(), {row}, strip));
        Value sum =
            repeat(turned ? add(row, 1) : constant(0), turned ? constant(size) : row, constant(1), ValueRange{value},
                   [&](Value at, ValueRange carried) -> SmallVector<Value> {
                     Value factor = widened(
                         readView(a, elementOf(op.getA()), {turned ? at : row}, {turned ? row : at, 0, 0, 0, 1}));
                     Value known = widened(readView(target, type.getElementType(), {at}, strip));
                     factor = arith::NegFOp::create(b, loc, factor);
                     return {math::FmaOp::create(b, loc, factor, known, carried.front())};
                   })
                .front();
        writeView(target, {row}, strip, sum, false);
        return {};
      });
    });
  }
  for (Buffer *buffer : temporary)
    giveBack(buffer);
  own(op.getResult(), target);
}
