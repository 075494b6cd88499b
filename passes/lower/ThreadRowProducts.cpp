//===- ThreadRowProducts.cpp - products whose rows are those of warps, in registers --------------------------------===//
//
// By mma.sync, of what ldmatrix brings from shared memory and of rows that are in registers already; or by wgmma of a warpgroup's 64 rows, whose
// operands lie in panels as it reads them (ThreadRows.cpp). Where panels pass in boxes, a product is awaited only where its sums are read.
//
//===-------------------------------------------------------------------------------------------------------------===//
#include "passes/lower/ThreadProducts.h"

#include "mlir/Dialect/LLVMIR/NVVMDialect.h"

using namespace mlir;
using namespace braid;
using namespace braid::lower;

/// What later products of this block read of memory is on its way while this one is computed.
void ThreadLowering::fetchOperands(tile::DotOp op) {
  Block &block = *op->getBlock();
  if (!block.getOps<tile::StoreOp>().empty())
    return;
  for (Operation *next = op; next; next = next->getNextNode()) {
    auto dot = dyn_cast<tile::DotOp>(next);
    if (!dot || !inRows.count(dot.getResult()))
      continue;
    for (Value operand : {dot.getA(), dot.getB()}) {
      auto load = operand.getDefiningOp<tile::LoadOp>();
      if (!load || load->getBlock() != &block || !load->isBeforeInBlock(op) || views.count(operand))
        continue;
      if (panels.count(operand)) {
        View view = panelView(allocatePanel(tileType(operand)));
        fillPanel(view, load);
        own(operand, view);
        continue;
      }
      View view = viewOf(allocate(tileType(operand)), tileType(operand));
      fill(view, tileType(operand), operand);
      own(operand, view);
    }
  }
}

Buffer *ThreadLowering::allocatePanel(VectorType type) {
  return allocate(b.getBF16Type(), panelOf(type).bytes() / 2, kPatternBytes);
}

/// Nobody addresses its elements.
View ThreadLowering::panelView(Buffer *buffer) const { return {buffer->memref, {}, buffer}; }

void ThreadLowering::fillPanel(const View &view, tile::LoadOp load) {
  Phase phase(*this);
  touched(arguments[load.getSource()], false);
  touched(view, true);
  copyPanel(load, accesses[load], rowsAligned(load, accesses[load]), view, constant(0));
  if (!grouped)
    NVVM::CpAsyncCommitGroupOp::create(b, loc);
  started = true;
}

/// By wgmma, not waited for: 16 of the 64 rows are this warp's. The left operand lies in a panel, or in registers, 16 columns each.
SmallVector<Value> ThreadLowering::multiplyPanels(const PanelAt &left, ArrayRef<SmallVector<Value>> held,
                                                  const PanelAt &right, int64_t depth, SmallVector<Value> sums) {
  Value group = mul(divide(warp, 4), constant(left.alongK ? kGroupRows * kRowBytes : left.panel.blockBytes()));
  Value first = held.empty()
                    ? unitsOf(add(memref::ExtractAlignedPointerAsIndexOp::create(b, loc, left.view.memref), group))
                    : Value(),
        base = unitsOf(memref::ExtractAlignedPointerAsIndexOp::create(b, loc, right.view.memref));
  // Of a panel that is described, what lies further is a sum: addresses count 16 bytes, and none is past their field's end. Where two blocks share a
  // multiprocessor descriptions would be registers that a thread has not: a panel's place is known to the compiler, and so are they.
  bool known = rowBoxes.empty();
  auto further = [&](const PanelAt &of, Value begin, int64_t k) -> Value {
    int64_t deep = of.alongK ? k / kBlockColumns * of.panel.blockBytes() + k % kBlockColumns * 2 : k * kRowBytes;
    if (known)
      return describePanel(begin, of.panel.blockBytes(), deep);
    Value offset = arith::ConstantOp::create(b, loc, b.getI64IntegerAttr(deep / kChunkBytes));
    return deep == 0 ? begin : arith::AddIOp::create(b, loc, begin, offset);
  };
  if (!known) {
    base = describePanel(base, right.panel.blockBytes());
    first = first ? describePanel(first, left.panel.blockBytes()) : Value();
  }
  Value whole = held.empty() ? structOfSums(sums, /*begun=*/!rowBoxes.empty()) : Value();
  if (!whole && known)
    sums = begunSums(sums);
  NVVM::WgmmaFenceAlignedOp::create(b, loc);
  for (int64_t k = 0; k < depth; k += 16) {
    Value y = further(right, base, k);
    if (held.empty())
      whole = multiplyByGroup(further(left, first, k), left.alongK, y, right.alongK, whole);
    else
      sums = multiplyRowsByGroup(held[static_cast<size_t>(k / 16)], y, right.alongK, sums);
  }
  NVVM::WgmmaGroupSyncAlignedOp::create(b, loc);
  return whole ? sumsOfStruct(whole) : sums;
}

/// Whether rows that are multiplied in every iteration are read where it begins: those of its first product, which would wait for them. A thread has
/// registers for no more. They are never held from one iteration to the next: ptxas (CUDA 13.0) gives what wgmma reads of a register that a loop does not
/// write the registers of another product's rows, and does not restore it.
bool ThreadLowering::areReadEarly(Value left, Operation *loop) const {
  constexpr int64_t mostHeld = 32; // registers
  if (!rowBoxes.count(loop) || left.getParentBlock()->getParentOp() == loop)
    return false;
  auto dots = cast<scf::ForOp>(loop).getBody()->getOps<tile::DotOp>();
  auto first = llvm::find_if(dots, [&](tile::DotOp dot) { return inRows.count(dot.getResult()); });
  bool begins = left == (inRows.lookup((*first).getResult()) ? (*first).getB() : (*first).getA());
  return begins && tileType(left).getNumElements() / threads / 2 <= mostHeld;
}

/// Turned rows of bf16 in shared memory, or columns of them, that formulas of this block read, and products from their left: ldmatrix brings them as both want them.
bool ThreadLowering::isHeldInRows(Value tile) const {
  VectorType type = tileType(tile);
  if (inRows.empty() || panels.count(tile) || type.getRank() != 2 || !type.getElementType().isBF16() ||
      type.getDimSize(0) % 16 != 0 || type.getDimSize(1) != threads / kWarp * kOwnRows)
    return false;
  return llvm::all_of(tile.getUsers(), [&](Operation *user) {
    auto it = user->getNumResults() == 1 ? inRows.find(user->getResult(0)) : inRows.end();
    if (it == inRows.end() || user->getBlock() != tile.getParentBlock())
      return false;
    auto dot = dyn_cast<tile::DotOp>(user);
    return dot ? !it->second && dot.getTransposeA() && dot.getA() == tile && dot.getB() != dot.getA()
               : keepsPlaces(user) && it->second;
  });
}

/// `tile`: of the view the columns from `column` on.
void ThreadLowering::holdInRows(Value tile, const View &view, int64_t column) {
  Phase phase(*this);
  SmallVector<Value> &elements = owned[tile];
  Value inMatrix = remainder(lane, 8), low = remainder(divide(lane, 8), 2), high = divide(lane, 16);
  Value row = add(add(mul(warp, constant(kOwnRows)), mul(low, constant(8))), column),
        first = add(inMatrix, mul(high, constant(8)));
  // Where rows are as far from each other as is known, they are numbers behind the lane's first. In a panel that a box has brought, too: each of the lane's rows is the
  // same one of eight.
  bool panel = view.strides.empty();
  std::optional<int64_t> apart = panel ? kBlockColumns : getConstantIntValue(view.strides.front());
  Value origin;
  if (panel) {
    touched(view, false);
    Value chunk = divide(row, kChunk), inBlock = arith::XOrIOp::create(b, loc, remainder(chunk, 8), inMatrix);
    int64_t blockBytes = panelOf(tileType(tile)).blockBytes();
    origin = add(add(memref::ExtractAlignedPointerAsIndexOp::create(b, loc, view.memref),
                     mul(divide(chunk, 8), constant(blockBytes))),
                 add(mul(first, constant(kRowBytes)), mul(inBlock, constant(kChunkBytes))));
  } else if (apart) {
    touched(view, false);
    origin = add(memref::ExtractAlignedPointerAsIndexOp::create(b, loc, view.memref),
                 mul(offsetIn(view, {first}, row), constant(2)));
  }
  auto matricesAt = [&](int64_t k) {
    return apart ? loadMatrices(add(origin, k * *apart * 2), 4, /*turned=*/true)
                 : loadMatrices(view, add(first, k), row, 4, /*turned=*/true);
  };
  for (int64_t k = 0; k < tileType(tile).getDimSize(0); k += 16)
    for (Value pair : matricesAt(k)) {
      pair = vector::BroadcastOp::create(b, loc, VectorType::get({1}, b.getI32Type()), pair);
      pair = vector::BitCastOp::create(b, loc, VectorType::get({2}, b.getBF16Type()), pair);
      for (int64_t i = 0; i < 2; ++i)
        elements.push_back(vector::ExtractOp::create(b, loc, pair, i));
    }
}

/// This warp's rows of a tile that all warps multiply, rounded, to where they read it: a panel, or rows as ldmatrix reads them.
View ThreadLowering::handOn(Value tile, SmallVectorImpl<Buffer *> &temporary) {
  VectorType type = tileType(tile);
  bool panel = panels.count(tile);
  temporary.push_back(panel ? allocatePanel(type) : allocate(type));
  View view = panel ? panelView(temporary.back()) : viewOf(temporary.back(), type);
  Phase phase(*this);
  touched(view, true);
  SmallVector<Value> pairs = pairsOf(tile, /*turned=*/false);
  Value quad = add(divide(lane, 4), mul(warp, constant(kOwnRows))), pair = mul(remainder(lane, 4), constant(2));
  auto place = [&](int64_t half, int64_t column) { // eight rows further the pattern is the same
    if (!panel)
      return offsetIn(view, {add(quad, half * 8)}, add(pair, column));
    Value chunk = arith::XOrIOp::create(b, loc, constant(column % kBlockColumns / kChunk), remainder(quad, 8));
    Value inBlock = add(mul(quad, constant(kBlockColumns)), add(mul(chunk, constant(kChunk)), pair));
    return add(inBlock, half * 8 * kBlockColumns + column / kBlockColumns * panelOf(type).blockBytes() / 2);
  };
  for (auto [i, value] : llvm::enumerate(pairs)) {
    auto half = static_cast<int64_t>(i % 2), column = static_cast<int64_t>(i / 2) * kChunk;
    Value two = vector::BroadcastOp::create(b, loc, VectorType::get({1}, b.getI32Type()), value);
    two = vector::BitCastOp::create(b, loc, VectorType::get({2}, b.getBF16Type()), two);
    vector::StoreOp::create(b, loc, two, view.memref, ValueRange{place(half, column)},
                            /*nontemporal=*/false, llvm::MaybeAlign(4));
  }
  if (panel)
    orderForAsync();
  // What is made of memory alone the assembler would make of the next tiles before it has stored this one: registers for several.
  if (tile.getDefiningOp<arith::TruncFOp>().getIn().getDefiningOp<tile::TransposeOp>())
    NVVM::SyncWarpOp::create(b, loc, arith::ConstantOp::create(b, loc, b.getI32IntegerAttr(-1)));
  return view;
}

/// Whether a vector of rows is one of columns to those who read it, or all of it a number: it passes through shared memory.
bool ThreadLowering::liesAcross(Value vector) const {
  if (tileType(vector).getRank() != 1 || inRows.empty())
    return false;
  return llvm::any_of(vector.getUsers(), [&](Operation *user) {
    if (auto reduce = dyn_cast<tile::ReduceOp>(user))
      return !isTile(reduce.getResult());
    auto expand = dyn_cast<tile::ExpandOp>(user);
    return expand && expand.getAxis() == 0 && llvm::any_of(expand->getUsers(), [&](Operation *reader) {
             auto it = reader->getNumResults() == 1 ? inRows.find(reader->getResult(0)) : inRows.end();
             return it != inRows.end() && !it->second;
           });
  });
}

/// A vector of rows, to where all threads read it.
View ThreadLowering::handOnVector(Value vector) {
  VectorType type = tileType(vector);
  SmallVector<Value> elements = ownedOf(vector, /*turned=*/false);
  View view = viewOf(allocate(type), type);
  Phase phase(*this);
  touched(view, true);
  // By one of the four lanes that share a row.
  onlyIf(arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, remainder(lane, 4), constant(0)), [&] {
    eachOwned(8, [&](Value row, Value, int64_t half, size_t element) {
      if (element % 4 % 2 == 0)
        memref::StoreOp::create(b, loc, elements[static_cast<size_t>(half)], view.memref,
                                ValueRange{offsetIn(view, {}, row)});
    });
  });
  return view;
}

/// A product whose rows are this warp's: of what lies in shared memory, or of a left operand in registers.
SmallVector<Value> ThreadLowering::multiplyOwned(tile::DotOp op, bool turned) {
  auto type = cast<VectorType>(op.getType()), a = cast<VectorType>(op.getA().getType());
  int64_t depth = a.getDimSize(op.getTransposeA() ? 0 : 1), columns = type.getDimSize(turned ? 0 : 1) / 8;
  SmallVector<Buffer *> temporary;
  // Turned, it is the transposed right operand times the transposed left one.
  fetchOperands(op);
  Value rightTile = turned ? op.getA() : op.getB(), leftTile = turned ? op.getB() : op.getA();
  bool inRegisters = !isHandedOn(leftTile) && (owned.count(leftTile) || inRows.count(leftTile)),
       byGroup = panels.count(rightTile);
  auto inPanel = [&](Value tile) {
    if (auto it = views.find(tile); it != views.end())
      return it->second;
    View view = panelView(allocatePanel(tileType(tile)));
    fillPanel(view, tile.getDefiningOp<tile::LoadOp>());
    own(tile, view);
    return view;
  };
  View left = inRegisters ? View() : panels.count(leftTile) ? inPanel(leftTile) : packed(leftTile, temporary);
  View right = byGroup ? inPanel(rightTile) : packed(rightTile, temporary);
  bool leftTurned = turned ? !op.getTransposeB() : op.getTransposeA(),
       rightTurned = turned ? !op.getTransposeA() : op.getTransposeB();
  Phase phase(*this);
  SmallVector<Value> sums = ownedOf(op.getAcc(), turned), given;
  if (inRegisters)
    given = pairsOf(leftTile, leftTurned);
  auto places = [&] { return std::array{remainder(lane, 8), remainder(divide(lane, 8), 2), divide(lane, 16)}; };
  auto [inMatrix, low, high] = places();
  auto leftAt = [&](Value k0) {
    auto [inMatrix, low, high] = places();
    Value row = add(mul(warp, constant(kOwnRows)), mul(low, constant(8))), k = add(k0, mul(high, constant(8)));
    (leftTurned ? k : row) = add(leftTurned ? k : row, inMatrix);
    return leftTurned ? loadMatrices(left, k, row, 4, true) : loadMatrices(left, row, k, 4, false);
  };
  // Where everything but the lane's own place is known, it is a number behind that.
  Value origin;
  auto rightAt = [&](Value k0, int64_t c) {
    auto at = [&](Value k, Value column) {
      k = add(k, mul(low, constant(8)));
      column = add(mul(high, constant(8)), column);
      (rightTurned ? column : k) = add(rightTurned ? column : k, inMatrix);
      return rightTurned ? std::pair(column, k) : std::pair(k, column);
    };
    std::optional<int64_t> known = getConstantIntValue(k0), row = getConstantIntValue(right.strides.front());
    if (!known || !row) {
      auto [major, minor] = at(k0, constant(c * 8));
      return loadMatrices(right, major, minor, 4, !rightTurned);
    }
    touched(right, false);
    if (!origin) {
      auto [major, minor] = at(constant(0), constant(0));
      Value start = memref::ExtractAlignedPointerAsIndexOp::create(b, loc, right.memref);
      origin = add(start, mul(offsetIn(right, {major}, minor), constant(2)));
    }
    int64_t further = rightTurned ? c * 8 * *row + *known : *known * *row + c * 8;
    return loadMatrices(add(origin, further * 2), 4, !rightTurned);
  };
  auto step = [&](Value k0, ArrayRef<Value> x, ValueRange carried) {
    SmallVector<Value> next;
    for (int64_t c = 0; c < columns; c += 2) {
      SmallVector<Value> y = rightAt(k0, c);
      for (int64_t part = 0; part < 2; ++part)
        llvm::append_range(
            next, multiplyFragments(x, ArrayRef<Value>(y).slice(2 * part, 2), carried.slice((c + part) * 4, 4)));
    }
    return next;
  };
  if (byGroup) {
    SmallVector<SmallVector<Value>> held;
    PanelAt rows{left, panelOf(tileType(leftTile)), !leftTurned};
    if (panels.count(leftTile)) {
      touched(left, false);
    } else {
      // Nobody writes any more what a block that passes boxes reads in its loop.
      OpBuilder::InsertionGuard guard(b);
      if (!inRegisters && areReadEarly(leftTile, op->getParentOp()))
        b.setInsertionPointToStart(b.getInsertionBlock());
      for (int64_t k = 0; k < depth; k += 16)
        held.push_back(inRegisters ? SmallVector<Value>(ArrayRef<Value>(given).slice(k / 4, 4)) : leftAt(constant(k)));
    }
    touched(right, false);
    sums = multiplyPanels(rows, held, {right, panelOf(tileType(rightTile)), rightTurned}, depth, sums);
    // Nobody writes, before all sums of an iteration are read, what walks that hand rows on multiply.
    bool goesOn = !rowBoxes.empty() || staysUntilEnd(op, rightTile) ||
                  llvm::any_of(panels, [&](Value panel) { return isHandedOn(panel); });
    if (!goesOn)
      sums = awaitProducts(sums);
    else
      inFlight[op.getResult()] = ++groups;
  } else if (inRegisters) {
    for (int64_t k = 0; k < depth; k += 16)
      sums = step(constant(k), ArrayRef<Value>(given).slice(k / 4, 4), sums);
  } else {
    sums = repeat(0, depth, 16, sums, [&](Value k0, ValueRange carried) { return step(k0, leftAt(k0), carried); });
  }
  for (Buffer *buffer : temporary)
    giveBack(buffer);
  return sums;
}
