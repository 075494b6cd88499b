//===- ThreadFragments.cpp - products on the tensor cores, and formulas of them in registers ----------------------===//
//
// A warp holds blocks of 16 x 8 of a product in registers over the whole k loop and reads both operands with ldmatrix,
// turned where they lie the other way round. A product that only one formula reads, at the same row and column, is held
// (TilePlan::hold): it is made where that formula is written, which takes it from the registers of the lane that has
// it. So it passes through no memory, and nobody waits for it.
//
//===-------------------------------------------------------------------------------------------------------------===//
#include "passes/lower/ThreadLowering.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"

using namespace mlir;
using namespace braid;
using namespace braid::lower;

/// Rows, columns and depth of one tensor-core product.
static constexpr int64_t kMmaRows = 16, kMmaColumns = 8, kMmaDepth = 16;
/// Elements of held products that a thread has at a time.
static constexpr int64_t kMostHeld = 96;

bool lower::onTensorCores(tile::DotOp op) {
  auto type = cast<VectorType>(op.getType()), a = cast<VectorType>(op.getA().getType());
  return a.getElementType().isBF16() && type.getDimSize(0) % kMmaRows == 0 && type.getDimSize(1) % kMmaColumns == 0 &&
         a.getDimSize(op.getTransposeA() ? 0 : 1) % kMmaDepth == 0;
}

//===- Which products are held ------------------------------------------------------------------------------------===//

bool lower::readsShared(tile::DotOp dot) {
  auto isTable = [](Value v) { return v.getDefiningOp<arith::ConstantOp>() != nullptr; };
  return onTensorCores(dot) && !isTable(dot.getA()) && !isTable(dot.getB());
}

/// The formula's value that is written somewhere, and by which operation: a kept tile, a store, a product that packs it
/// or begins with it.
std::pair<Value, Operation *> TilePlan::sinkOf(Value v) const {
  Block *block = v.getParentBlock();
  while (v.hasOneUse()) {
    Operation *user = *v.user_begin();
    if (user->getBlock() != block)
      return {};
    if (auto other = dyn_cast<tile::DotOp>(user))
      return {v, v != other.getAcc() || readsShared(other) ? user : nullptr};
    if (isa<tile::SolveOp>(user))
      return {v, user};
    if (auto store = dyn_cast<tile::StoreOp>(user))
      return {v, store.getRows() ? nullptr : leader(user)};
    if (auto insert = dyn_cast<tile::InsertRowsOp>(user))
      return {v, v == insert.getValue() && insert.getValue() != insert.getTarget() ? user : nullptr};
    if (!keepsPlaces(user) || user->getNumResults() != 1)
      return {};
    v = user->getResult(0);
    if (isKept(v))
      return {v, user};
  }
  return {};
}

tile::StoreOp TilePlan::storeOf(Value v) const {
  auto [value, sink] = sinkOf(v);
  auto store = dyn_cast_or_null<tile::StoreOp>(sink);
  bool alone = store && group(store).size() == 1 && breaks(value, /*definition=*/true).empty();
  return alone ? store : tile::StoreOp();
}

void TilePlan::hold(func::FuncOp kernel, int64_t threads) {
  DenseMap<Operation *, int64_t> registers; // of a thread, by where they are written
  kernel.walk([&](tile::DotOp dot) {
    auto [value, sink] =
        readsShared(dot) && !computed.contains(dot) ? sinkOf(dot.getResult()) : std::pair<Value, Operation *>();
    if (!sink || !breaks(value, /*definition=*/true).empty())
      return;
    if (auto store = dyn_cast<tile::StoreOp>(sink))
      for (tile::StoreOp other : group(store))
        if (!breaks(other.getValue(), /*definition=*/true).empty())
          return;
    // The formula is written once for each element that a thread has.
    DenseMap<Value, int64_t> known;
    int64_t formula = 0, elements = cast<VectorType>(dot.getType()).getNumElements() / threads;
    for (Value v = dot.getResult(); v != value; v = (*v.user_begin())->getResult(0))
      for (Value operand : (*v.user_begin())->getOperands())
        formula += operand == v ? 0 : 1 + cost(operand, known);
    int64_t &taken = registers[sink];
    if (formula > 16 || taken + elements > kMostHeld)
      return;
    taken += elements;
    held.insert(dot.getResult());
  });
  for (Value product : held)
    kept.erase(product);
  settleLoads(kernel);
}

//===- Products ---------------------------------------------------------------------------------------------------===//

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

void ThreadLowering::eachFragment(VectorType type, function_ref<void(const Fragments &at)> body) {
  int64_t rowBlocks = type.getDimSize(0) / kMmaRows, columnBlocks = type.getDimSize(1) / kMmaColumns,
          warps = threads / kWarp;
  // Each matrix of a serves `columns` products, each of b `rows`.
  Fragments at{.width = type.getDimSize(1)};
  int64_t &rows = at.rows, &columns = at.columns;
  while (rows * columns < 16 && (rowBlocks / rows) * (columnBlocks / columns) > warps) {
    bool canRows = (rowBlocks / rows) % 2 == 0, canColumns = (columnBlocks / columns) % 2 == 0;
    if (!canRows && !canColumns)
      break;
    (canColumns && (columns <= 2 * rows || !canRows) ? columns : rows) *= 2;
  }
  int64_t across = columnBlocks / columns;
  // A warp that is left without blocks does nothing: what a product begins with is overwritten by the warp that has it.
  eachGroup(rowBlocks / rows * across, kWarp, [&](Value i, Value inside) {
    onlyIf(inside, [&] {
      at.row = mul(divide(i, across), constant(rows * kMmaRows));
      at.column = mul(remainder(i, across), constant(columns * kMmaColumns));
      body(at);
    });
  });
}

/// body(row, strip, number of the first element) for the elements that this lane has, two at a time or one by one, with
/// those of the held products at hand.
void ThreadLowering::eachHeld(const Fragments &at, const HeldSums &sums, bool pairs,
                              function_ref<void(Value row, const Strip &strip, size_t element)> body) {
  Value quad = divide(lane, 4), pair = mul(remainder(lane, 4), constant(2));
  size_t element = 0;
  for (int64_t r = 0; r < at.rows; ++r)
    for (int64_t c = 0; c < at.columns; ++c)
      for (int64_t half = 0; half < 2; ++half) {
        Value row = add(add(at.row, quad), r * kMmaRows + half * 8);
        Value column = add(add(at.column, pair), c * kMmaColumns);
        for (int64_t i = 0; i < 2; i += pairs ? 2 : 1) {
          for (const auto &[product, values] : sums)
            registers[product] =
                pairs ? vector::FromElementsOp::create(b, loc, VectorType::get({2}, values.front().getType()),
                                                       ArrayRef<Value>(values).slice(element, 2))
                            .getResult()
                      : values[element];
          body(row, {add(column, i), 0, at.width, pairs ? 2 : 0, pairs ? 2 : 1}, element);
          element += pairs ? 2 : 1;
        }
      }
}

/// The held products in the formulas of these tiles.
SmallVector<tile::DotOp> ThreadLowering::heldIn(ArrayRef<Value> tiles) const {
  SmallVector<tile::DotOp> found;
  SmallVector<Value> work(llvm::reverse(tiles));
  DenseSet<Value> seen;
  while (plan.holdsAny() && !work.empty()) {
    Value tile = work.pop_back_val();
    Operation *op = isTile(tile) && !views.count(tile) && seen.insert(tile).second ? tile.getDefiningOp() : nullptr;
    if (!op)
      continue;
    if (plan.isHeld(tile))
      found.push_back(cast<tile::DotOp>(op));
    else if (keepsPlaces(op))
      llvm::append_range(work, llvm::reverse(op->getOperands()));
  }
  return found;
}

/// The operands of held products, and of those that they begin with, in shared memory.
void ThreadLowering::packHeld(ArrayRef<tile::DotOp> products, HeldOperands &operands,
                              SmallVectorImpl<Buffer *> &temporary) {
  for (tile::DotOp product : products) {
    operands[product] = {packed(product.getA(), temporary), packed(product.getB(), temporary)};
    packHeld(heldIn({product.getAcc()}), operands, temporary);
  }
}

ThreadLowering::HeldSums ThreadLowering::sumsOf(ArrayRef<tile::DotOp> products, const HeldOperands &operands,
                                                const Fragments &at) {
  HeldSums sums;
  for (tile::DotOp product : products)
    sums.push_back({product.getResult(), sumsOf(product, operands, at)});
  return sums;
}

/// What a product begins with, for every element of this lane.
SmallVector<Value> ThreadLowering::beginOf(tile::DotOp op, const HeldOperands &operands, const Fragments &at) {
  Value acc = op.getAcc();
  HeldSums held = sumsOf(heldIn({acc}), operands, at);
  if (held.size() == 1 && held.front().first == acc)
    return std::move(held.front().second);
  SmallVector<Value> begin;
  for (const auto &[product, values] : held)
    registers[product] = values.front();
  Vectors vectors = vectorsOf({acc}, {}, 2);
  bool pairs = vectors.width && vectors.accesses.empty();
  startStrip();
  eachHeld(at, held, pairs, [&](Value row, const Strip &strip, size_t) {
    Value value = eval(acc, {row}, strip);
    for (int64_t i = 0; i < (pairs ? 2 : 1); ++i)
      begin.push_back(pairs ? vector::ExtractOp::create(b, loc, value, i).getResult() : value);
  });
  startStrip();
  for (const auto &[product, values] : held)
    registers.erase(product);
  return begin;
}

SmallVector<Value> ThreadLowering::sumsOf(tile::DotOp op, const HeldOperands &operands, const Fragments &at) {
  return sumsOf(op, operands, at, beginOf(op, operands, at));
}

SmallVector<Value> ThreadLowering::sumsOf(tile::DotOp op, const HeldOperands &operands, const Fragments &at,
                                          ValueRange begin) {
  const auto &[left, right] = operands.at(op);
  auto a = cast<VectorType>(op.getA().getType());
  int64_t depth = a.getDimSize(op.getTransposeA() ? 0 : 1), rows = at.rows, columns = at.columns;
  // Lane 8 i + r gives row r of the i-th matrix; it receives row lane / 4, elements 2 (lane % 4) and the next.
  Value inMatrix = remainder(lane, 8), low = remainder(divide(lane, 8), 2), high = divide(lane, 16);
  auto load = [&](const View &view, Value major, Value minor, int64_t count, bool turned, bool stored) {
    return stored ? loadMatrices(view, minor, major, count, turned) : loadMatrices(view, major, minor, count, turned);
  };
  return repeat(0, depth, kMmaDepth, begin, [&](Value k0, ValueRange carried) {
    SmallVector<SmallVector<Value>> x, y;
    // a as 16 x 16: rows 0-7 and 8-15 for k 0-7, then for k 8-15.
    for (int64_t r = 0; r < rows; ++r) {
      Value row = add(add(at.row, r * kMmaRows), add(inMatrix, mul(low, constant(8))));
      Value k = add(k0, mul(high, constant(8)));
      if (op.getTransposeA()) {
        row = add(add(at.row, r * kMmaRows), mul(low, constant(8)));
        k = add(k0, add(inMatrix, mul(high, constant(8))));
      }
      x.push_back(load(left, row, k, 4, op.getTransposeA(), op.getTransposeA()));
    }
    // b as 16 x 8: k 0-7 and 8-15; two blocks of columns at a time where there are two.
    int64_t together = columns % 2 == 0 ? 2 : 1;
    for (int64_t c = 0; c < columns; c += together) {
      Value block = together == 2 ? mul(high, constant(8)) : constant(0);
      Value column = add(add(at.column, c * kMmaColumns), block), k = add(k0, mul(low, constant(8)));
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
}

void ThreadLowering::overFragments(const Elements &elements, ArrayRef<tile::DotOp> products,
                                   function_ref<Value(Value)> guard, Body body) {
  assert(elements.cuts.empty() && "TilePlan::hold knows the formula");
  SmallVector<Buffer *> temporary;
  HeldOperands operands;
  packHeld(products, operands, temporary);
  {
    Phase phase(*this);
    eachFragment(tileType(products.front()->getResult(0)), [&](const Fragments &at) {
      HeldSums sums = sumsOf(products, operands, at);
      for (const auto &[product, values] : sums)
        registers[product] = values.front();
      Vectors vectors = vectorsOf(elements.tiles, elements.stores, 2);
      onTrust(vectors, {}, {}, [&](bool trusted) -> SmallVector<Value> {
        startStrip();
        eachHeld(at, sums, trusted, [&](Value row, const Strip &strip, size_t) {
          onlyIf(guard ? guard(row) : Value(), [&] {
            startStrip();
            body({row}, strip);
            startStrip();
          });
        });
        return {};
      });
      for (const auto &[product, values] : sums)
        registers.erase(product);
    });
  }
  for (Buffer *buffer : temporary)
    giveBack(buffer);
}

void ThreadLowering::dot(tile::DotOp op) {
  SmallVector<Buffer *> temporary;
  HeldOperands operands;
  packHeld({op}, operands, temporary);
  const auto &[left, right] = operands.at(op);
  View target = destination(op.getResult(), op.getAcc());
  // ldmatrix reads shared memory alone: not scratch, nor the table of a constant.
  if (onTensorCores(op) && isShared(left) && isShared(right)) {
    Phase phase(*this);
    eachFragment(cast<VectorType>(op.getType()), [&](const Fragments &at) {
      SmallVector<Value> sums = sumsOf(op, operands, at);
      eachHeld(at, {}, /*pairs=*/true, [&](Value row, const Strip &strip, size_t element) {
        auto type = VectorType::get({2}, sums.front().getType());
        Value value = vector::FromElementsOp::create(b, loc, type, ArrayRef<Value>(sums).slice(element, 2));
        writeView(target, {row}, strip, value, false);
      });
    });
  } else {
    multiply(op, left, right, target);
  }
  for (Buffer *buffer : temporary)
    giveBack(buffer);
  own(op.getResult(), target);
}
