//===- TileFetch.cpp - tiles of the next iteration are asked for while this one multiplies ------------------------===//
//
// A program, or an iteration of a loop in it, begins by loading tiles that lie in memory or in a cache that all cores
// share. Its products need neither, so they ask for the tiles that the next one loads: dots share their rows by what
// each multiplies, and a dot asks for its share one register block at a time. Nothing is computed from what is fetched,
// so no bit depends on it. What is fetched is found by computing indices again with the coordinates of the next
// program or the next value of the loop's counter; the last iteration of a loop of constant bounds goes on with the
// first of the next program.
//
//===-------------------------------------------------------------------------------------------------------------===//
#include "passes/lower/TileLowering.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"

using namespace mlir;
using namespace braid;
using namespace braid::lower;

static constexpr int64_t lineBytes = 64;

/// The loop whose iterations execute `op`; null: the programs.
static scf::ForOp iterationOf(Operation *op) { return op->getParentOfType<scf::ForOp>(); }

static bool hasConstantBounds(scf::ForOp loop) {
  std::optional<int64_t> low = getConstantIntValue(loop.getLowerBound()),
                         high = getConstantIntValue(loop.getUpperBound());
  return low && high && *low < *high && getConstantIntValue(loop.getStep());
}

/// Whether `v` stays what it is from one iteration of `loop` to the next: the last of a loop of unknown bounds has none.
static bool isAround(Value v, scf::ForOp loop) {
  return loop && !hasConstantBounds(loop) && !loop->isProperAncestor(v.getParentBlock()->getParentOp()) &&
         v.getParentBlock() != loop.getBody();
}

/// Whether `v` can be computed for another iteration of `loop`: from coordinates, counters and what is read outside of
/// branches, where every iteration reads.
static bool isPredictable(Value v, scf::ForOp loop) {
  if (isAround(v, loop))
    return !isTile(v);
  if (auto argument = dyn_cast<BlockArgument>(v)) {
    auto counted = dyn_cast<scf::ForOp>(argument.getOwner()->getParentOp());
    return counted ? v == counted.getInductionVar() : isa<func::FuncOp>(argument.getOwner()->getParentOp());
  }
  Operation *op = v.getDefiningOp();
  if (isa<tile::ProgramOp>(op))
    return true;
  if (isTile(v) || op->getNumRegions() != 0)
    return false;
  if (isa<memref::LoadOp>(op)) {
    if (op->getParentOfType<scf::IfOp>())
      return false;
  } else if (!isa<arith::ArithDialect, math::MathDialect>(op->getDialect()) && !isa<memref::DimOp>(op)) {
    return false;
  }
  return llvm::all_of(op->getOperands(), [&](Value operand) { return isPredictable(operand, loop); });
}

/// Whether `v`, which is predictable, depends on the coordinates or the counter that the next iteration changes.
static bool changes(Value v, scf::ForOp loop) {
  if (isAround(v, loop))
    return false;
  Operation *op = v.getDefiningOp();
  if (!op || isa<tile::ProgramOp>(op))
    return op ? !loop : loop && v == loop.getInductionVar();
  return llvm::any_of(op->getOperands(), [&](Value operand) { return changes(operand, loop); });
}

/// Rows of a tile of two dimensions that lie in memory as such, others in the next iteration.
static bool canBeFetched(tile::LoadOp load) {
  scf::ForOp loop = iterationOf(load);
  return load.getType().getRank() == 2 && !load.getRows() &&
         load.getDims().back() == static_cast<int64_t>(load.getIndices().size()) - 1 &&
         llvm::all_of(load.getIndices(), [&](Value index) { return isPredictable(index, loop); }) &&
         llvm::any_of(load.getIndices(), [&](Value index) { return changes(index, loop); });
}

/// Whether both loads read the same tile, but for a row or so, in this or another loop over the same blocks.
static bool readSame(tile::LoadOp x, tile::LoadOp y) {
  auto start = [](Value index) {
    auto sum = index.getDefiningOp<arith::AddIOp>();
    return sum && getConstantIntValue(sum.getRhs()) ? sum.getLhs() : index;
  };
  auto blocks = [](Value index) -> scf::ForOp {
    auto argument = dyn_cast<BlockArgument>(index);
    auto loop = argument ? dyn_cast<scf::ForOp>(argument.getOwner()->getParentOp()) : scf::ForOp();
    return loop && index == loop.getInductionVar() && hasConstantBounds(loop) ? loop : scf::ForOp();
  };
  return x.getSource() == y.getSource() && x.getType() == y.getType() &&
         llvm::all_of(llvm::zip(x.getIndices(), y.getIndices()), [&](auto both) {
           Value a = start(std::get<0>(both)), b = start(std::get<1>(both));
           scf::ForOp inA = blocks(a), inB = blocks(b);
           return a == b || (inA && inB && inA.getLowerBound() == inB.getLowerBound() &&
                             inA.getUpperBound() == inB.getUpperBound() && inA.getStep() == inB.getStep());
         });
}

/// Where in `op` the products of an iteration around it may stand: bodies of loops that have a last iteration, branches.
static SmallVector<Block *, 2> blocksOf(Operation *op) {
  if (auto loop = dyn_cast<scf::ForOp>(op); loop && hasConstantBounds(loop))
    return {loop.getBody()};
  SmallVector<Block *, 2> blocks;
  if (auto branch = dyn_cast<scf::IfOp>(op)) {
    blocks.push_back(branch.thenBlock());
    if (branch.elseBlock())
      blocks.push_back(branch.elseBlock());
  }
  return blocks;
}

/// Multiplications in `op` that every iteration around it executes: of a loop those of its last iteration, of two branches the
/// fewer.
static int64_t multiplied(Operation *op) {
  if (auto dot = dyn_cast<tile::DotOp>(op))
    return tileType(dot.getA()).getNumElements() * tileType(dot.getResult()).getShape().back();
  std::optional<int64_t> least;
  for (Block *block : blocksOf(op)) {
    int64_t sum = 0;
    for (Operation &inner : *block)
      sum += multiplied(&inner);
    least = least ? std::min(*least, sum) : sum;
  }
  return least.value_or(0);
}

void FetchPlan::share(Block &block, ArrayRef<Row> rows) {
  int64_t all = 0, before = 0;
  for (Operation &op : block)
    all += multiplied(&op);
  if (all == 0)
    return;
  auto count = static_cast<int64_t>(rows.size());
  for (Operation &op : block) {
    int64_t first = before * count / all;
    before += multiplied(&op);
    ArrayRef<Row> part = rows.slice(first, before * count / all - first);
    if (part.empty())
      continue;
    if (!isa<tile::DotOp>(op)) {
      for (Block *inside : blocksOf(&op))
        share(*inside, part);
      continue;
    }
    SmallVector<Fetch> &fetches = shares[&op];
    for (auto [load, row] : part) {
      if (fetches.empty() || fetches.back().load != load)
        fetches.push_back({load, row, 0});
      ++fetches.back().rows;
    }
  }
}

FetchPlan::FetchPlan(func::FuncOp kernel) {
  llvm::MapVector<Operation *, SmallVector<Row>> rows; // by what iterates
  SmallVector<tile::LoadOp> known; // what is loaded again is at hand
  kernel.walk<WalkOrder::PreOrder>([&](tile::LoadOp load) {
    if (!canBeFetched(load) || llvm::any_of(known, [&](tile::LoadOp other) { return readSame(load, other); }))
      return;
    known.push_back(load);
    SmallVector<Row> &of = rows[iterationOf(load)];
    for (int64_t row = 0; row < load.getType().getDimSize(0); ++row)
      of.push_back({load, row});
  });
  for (auto &[loop, of] : rows)
    share(loop ? *cast<scf::ForOp>(loop).getBody() : kernel.front(), of);
}

/// `v` as the next iteration of `loop` will have it, for code that stands where `at` is lowered.
Value TileLowering::ahead(Value v, scf::ForOp loop, Operation *at, IRMapping &known) {
  if (Value value = known.lookupOrNull(v))
    return value;
  // The last iteration is followed by the first of what is around the loop.
  auto around = [&](Value now) -> Value {
    if (!loop || !hasConstantBounds(loop))
      return now;
    IRMapping outside;
    Value next = ahead(v, iterationOf(loop), loop, outside);
    return next == now ? now : arith::SelectOp::create(b, loc, isLast(loop), next, now);
  };
  if (isAround(v, loop))
    return scalars.lookup(v);
  Value result;
  Operation *op = v.getDefiningOp();
  if (!op) {
    auto counted = dyn_cast<scf::ForOp>(cast<BlockArgument>(v).getOwner()->getParentOp());
    if (!counted) {
      result = scalars.lookup(v);
    } else if (counted != loop) {
      result = around(scalars.lookup(v));
    } else {
      Value now = scalars.lookup(v);
      Value next = arith::AddIOp::create(b, loc, now, scalars.lookup(loop.getStep()));
      result = arith::SelectOp::create(b, loc, isLast(loop),
                                       hasConstantBounds(loop) ? scalars.lookup(loop.getLowerBound()) : now, next);
    }
  } else if (isa<tile::ProgramOp>(op)) {
    result = loop ? around(scalars.lookup(v)) : nextProgram.lookup(v);
  } else {
    bool changes = !scalars.contains(v) || !v.getParentBlock()->findAncestorOpInBlock(*at);
    SmallVector<Value> operands;
    for (Value operand : op->getOperands()) {
      if (isa<MemRefType>(operand.getType())) {
        operands.push_back(operand);
        continue;
      }
      operands.push_back(ahead(operand, loop, at, known));
      changes |= operands.back() != scalars.lookupOrNull(operand);
    }
    if (!changes) {
      result = scalars.lookup(v);
    } else if (auto load = dyn_cast<memref::LoadOp>(op)) {
      const View &view = arguments[load.getMemRef()];
      Value offset = constant(0);
      for (auto [index, stride] : llvm::zip(ArrayRef(operands).drop_front(), view.strides))
        offset = add(offset, mul(index, stride));
      result = memref::LoadOp::create(b, loc, view.memref, ValueRange{offset});
    } else if (auto dim = dyn_cast<memref::DimOp>(op)) {
      result = sizes[dim.getSource()][*dim.getConstantIndex()];
    } else {
      IRMapping mapping;
      mapping.map(op->getOperands(), operands);
      result = b.clone(*op, mapping)->getResult(0);
    }
  }
  known.map(v, result);
  return result;
}

Value TileLowering::isLast(scf::ForOp loop) {
  Value next = arith::AddIOp::create(b, loc, scalars.lookup(loop.getInductionVar()), scalars.lookup(loop.getStep()));
  return arith::CmpIOp::create(b, loc, arith::CmpIPredicate::sge, next, scalars.lookup(loop.getUpperBound()));
}

SmallVector<TileLowering::Ahead> TileLowering::tilesAhead(tile::DotOp dot) {
  SmallVector<Ahead> tiles;
  IRMapping known;
  for (auto [op, first, rows] : fetches.of(dot)) {
    tile::LoadOp load = op;
    const View &view = arguments[load.getSource()];
    if (getConstantIntValue(view.strides.back()) != 1)
      continue;
    Value offset = constant(0);
    for (auto [index, stride] : llvm::zip(load.getIndices(), view.strides))
      offset = add(offset, mul(ahead(index, iterationOf(load), dot, known), stride));
    Value last; // once, though a loop around the dot is inside the iteration
    for (scf::ForOp loop = iterationOf(dot); loop != iterationOf(load); loop = iterationOf(loop))
      last = last ? Value(arith::AndIOp::create(b, loc, last, isLast(loop))) : isLast(loop);
    auto elementBytes = static_cast<int64_t>(llvm::divideCeil(load.getType().getElementTypeBitWidth(), 8));
    tiles.push_back({last, view.memref, offset, view.strides[load.getDims().front()], first, rows,
                     load.getType().getDimSize(1), lineBytes / elementBytes});
  }
  return tiles;
}

void TileLowering::fetch(ArrayRef<Ahead> tiles, Value row, int64_t rows, int64_t all) {
  for (const Ahead &tile : tiles) {
    OpBuilder::InsertionGuard guard(b);
    if (tile.condition)
      b.setInsertionPoint(scf::IfOp::create(b, loc, tile.condition, false).thenBlock()->getTerminator());
    Value first = tile.rows % all ? divide(mul(row, constant(tile.rows)), all) : mul(row, constant(tile.rows / all));
    Value begin = add(first, tile.first), end = add(begin, (rows * tile.rows + all - 1) / all);
    auto loop = scf::ForOp::create(b, loc, begin, end, constant(1));
    // Unrolled, these would be a tenth of all code, and slower.
    auto unroll = LLVM::LoopUnrollAttr::get(b.getContext(), b.getBoolAttr(true), {}, {}, {}, {}, {}, {});
    loop->setAttr("loop_annotation", LLVM::LoopAnnotationAttr::get(b.getContext(), {}, {}, {}, unroll, {}, {}, {}, {},
                                                                   {}, {}, {}, {}, {}, {}, {}));
    OpBuilder::InsertionGuard inside(b);
    b.setInsertionPointToStart(loop.getBody());
    Value offset = add(tile.offset, mul(loop.getInductionVar(), tile.stride));
    // Into the second level: a tile of 16 KB leaves nothing else in a first.
    for (int64_t column = 0; column < tile.columns; column += tile.line)
      memref::PrefetchOp::create(b, loc, tile.memref, ValueRange{add(offset, column)}, /*isWrite=*/false,
                                 /*localityHint=*/2, /*isDataCache=*/true);
  }
}
