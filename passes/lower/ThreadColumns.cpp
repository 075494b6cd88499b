//===- ThreadColumns.cpp - tiles of tokens by channels: a warp has all tokens of its channels ----------------------===//
//
// The gradient of a chunk under a decay per channel is formulas of products, each read by several others, and sums along
// tokens of them; that of a delta rule multiplies tiles of tokens by what pairs of tokens make of them. Where a kernel
// does so, each warp has the same columns of all tiles of their shape, every row of them, in the fragments of mma.sync:
// formulas stay in registers, a sum along rows is shuffles of one warp, and memory sees only what products read as
// operands. A row of such a tile, or a sum of its rows or columns, is a vector in shared memory.
//
//===-------------------------------------------------------------------------------------------------------------===//
#include "passes/lower/ThreadLowering.h"

#include "mlir/Dialect/LLVMIR/NVVMDialect.h"

using namespace mlir;
using namespace braid;
using namespace braid::lower;

static constexpr int64_t kBlockRows = 16, kBlockColumns = 8;
/// Elements of a tile that a thread has: several tiles are alive at a time.
static constexpr int64_t kMostElements = 32;
/// Warps of a block that shares a multiprocessor.
static constexpr int64_t kWarpsTogether = 8;
static constexpr int64_t kLineBytes = 128; // of the cache

//===- What lies in columns ---------------------------------------------------------------------------------------===//

/// Every row one further down, the first the target's: x[0, n - 1) at row 1 of a constant. Null: it is not that.
static Value movedDown(tile::InsertRowsOp op) {
  auto rows = op.getValue().getDefiningOp<tile::RowsOp>();
  VectorType type = tileType(op.getResult()), part = tileType(op.getValue());
  bool moved = rows && type.getRank() == 2 && part.getRank() == 2 && rows.getSource().getType() == type &&
               part.getDimSize(0) + 1 == type.getDimSize(0) && getConstantIntValue(rows.getOffset()) == 0 &&
               getConstantIntValue(op.getOffset()) == 1 && rows->hasOneUse() &&
               op.getTarget().getDefiningOp<arith::ConstantOp>();
  return moved ? rows.getSource() : Value();
}

/// A product along tokens of what was computed in a tile of the result's shape: its columns are those of the result.
static bool mixesRows(tile::DotOp dot) {
  auto rounded = dot.getB().getDefiningOp<arith::TruncFOp>();
  return rounded && !dot.getTransposeB() && readsShared(dot) && tileType(rounded.getIn()) == dot.getType();
}

/// A product that begins with what others read too.
static bool beginsWithShared(tile::DotOp dot) {
  Operation *begin = dot.getAcc().getDefiningOp();
  return begin && !dot.getAcc().hasOneUse() && (keepsPlaces(begin) || isa<tile::DotOp>(begin)) && readsShared(dot);
}

/// Whether nothing but systems of equations reads it.
static bool isSolved(Operation *op) {
  return !op->use_empty() && llvm::all_of(op->getUsers(), [](Operation *user) {
    return isa<tile::SolveOp>(user) || (keepsPlaces(user) && isSolved(user));
  });
}

static bool isAlongRows(tile::CumsumOp op) { return op.getAxis() == 0 && tileType(op.getResult()).getRank() == 2; }

/// Whether a triangle is inverted behind a load, or a system solved: few warps compute meanwhile, so what is loaded may as well be on its way.
static bool isBeforeSolve(tile::LoadOp load) {
  return llvm::any_of(load->getBlock()->getOps<tile::SolveOp>(),
                      [&](tile::SolveOp solve) { return load->isBeforeInBlock(solve); });
}

bool lower::isKnownRow(tile::RowsOp op) {
  VectorType type = tileType(op.getResult());
  return type && type.getRank() == 1 && tileType(op.getSource()).getRank() == 2 && getConstantIntValue(op.getOffset());
}

namespace {

class ColumnSearch {
public:
  ColumnSearch(func::FuncOp kernel, const TilePlan &plan, int64_t threads)
      : kernel(kernel), plan(plan), threads(threads) {}
  bool run();
  llvm::SetVector<Value> found;
  bool isInside(OpOperand &use) const;
  /// Whether others find it elsewhere than in registers: in memory, or by the same formula of what is in memory.
  bool isElsewhere(Value v) const;
  /// Whether it is made of nothing but what is in memory, and so may be made where it is first read.
  bool isMade(Value v, DenseMap<Value, bool> &known) const;

private:
  bool fits(VectorType type) const;
  bool hasShape(Value v) const {
    VectorType type = tileType(v);
    return type && type.getShape() == shape.getShape();
  }
  bool mayBe(Operation *op) const;
  bool multiplies(Block &block) const;

  func::FuncOp kernel;
  const TilePlan &plan;
  int64_t threads;
  VectorType shape;
};

bool ColumnSearch::fits(VectorType type) const {
  int64_t warps = threads / kWarp;
  return type.getRank() == 2 && type.getElementType().isF32() && warps > 0 && type.getDimSize(0) % kBlockRows == 0 &&
         type.getDimSize(1) % (kBlockColumns * warps) == 0 && type.getNumElements() <= kMostElements * threads;
}

bool ColumnSearch::mayBe(Operation *op) const {
  if (op->getNumResults() != 1 || !hasShape(op->getResult(0)) || isa<arith::ConstantOp>(op))
    return false;
  if (auto dot = dyn_cast<tile::DotOp>(op))
    return dot.getType() == shape && readsShared(dot);
  if (auto sum = dyn_cast<tile::CumsumOp>(op))
    return sum.getType() == shape && isAlongRows(sum);
  if (auto insert = dyn_cast<tile::InsertRowsOp>(op))
    return insert.getType() == shape && movedDown(insert);
  if (auto load = dyn_cast<tile::LoadOp>(op))
    return !load.getRows() && !plan.isKept(load);
  if (isSolved(op))
    return false;
  return keepsPlaces(op) || isa<tile::ExpandOp, vector::BroadcastOp>(op);
}

/// Whether what reads a tile takes it from the registers of its warp.
bool ColumnSearch::isInside(OpOperand &use) const {
  Operation *user = use.getOwner();
  auto isFound = [&](Value v) { return found.contains(v); };
  if (auto store = dyn_cast<tile::StoreOp>(user))
    return !store.getRows() && isFound(store.getValue());
  if (auto reduce = dyn_cast<tile::ReduceOp>(user)) {
    auto alone = [&](tile::ReduceOp one) { return isFound(one.getSource()); };
    return reduce.getAxis() == 1 || llvm::all_of(plan.groupOf(reduce), alone);
  }
  if (auto rows = dyn_cast<tile::RowsOp>(user)) {
    auto insert = rows->hasOneUse() ? dyn_cast<tile::InsertRowsOp>(*rows->user_begin()) : nullptr;
    return isKnownRow(rows) || (insert && isFound(insert.getResult()));
  }
  if (auto dot = dyn_cast<tile::DotOp>(user))
    return use.get() == dot.getAcc() && dot.getA() != use.get() && dot.getB() != use.get() && isFound(dot.getResult());
  return user->getNumResults() == 1 && isFound(user->getResult(0)) && !isa<tile::InsertRowsOp>(user);
}

bool ColumnSearch::isMade(Value v, DenseMap<Value, bool> &known) const {
  if (!isTile(v))
    return true;
  Operation *op = v.getDefiningOp();
  if (!op)
    return false;
  if (auto it = known.find(v); it != known.end())
    return it->second;
  auto load = dyn_cast<tile::LoadOp>(op);
  bool made = load ? plan.staysInMemory(v) && !plan.isKept(v)
                   : (isa<arith::ConstantOp>(op) || (found.contains(v) && !isa<tile::DotOp>(op))) &&
                         llvm::all_of(op->getOperands(), [&](Value operand) { return isMade(operand, known); });
  return known[v] = made;
}

bool ColumnSearch::isElsewhere(Value v) const {
  Operation *op = v.getDefiningOp();
  if (isa_and_nonnull<arith::ConstantOp>(op))
    return true;
  if (isa_and_nonnull<tile::LoadOp>(op))
    return !plan.isKept(v);
  if (!op || plan.isKept(v) || !(keepsPlaces(op) || isa<vector::BroadcastOp>(op)) ||
      llvm::any_of(v.getUses(), [&](OpOperand &use) { return isa<tile::DotOp>(use.getOwner()) && !isInside(use); }))
    return false;
  return llvm::all_of(op->getOperands(), [&](Value operand) { return !isTile(operand) || isElsewhere(operand); });
}

/// Whether the block multiplies what is computed in tiles of the shape, or adds products to them.
bool ColumnSearch::multiplies(Block &block) const {
  return llvm::any_of(block, [&](Operation &op) {
    auto isOperand = [&](Operation *user) {
      auto dot = dyn_cast<tile::DotOp>(user);
      return dot && dot.getAcc() != op.getResult(0) && readsShared(dot);
    };
    if (isa<arith::TruncFOp>(op))
      return hasShape(op.getResult(0)) && llvm::any_of(op.getUsers(), isOperand);
    auto dot = dyn_cast<tile::DotOp>(op);
    return dot && dot.getType() == shape && readsShared(dot);
  });
}

/// Blocks that multiply what depends on sums along rows, or on products along them, and those around them.
bool ColumnSearch::run() {
  SmallVector<Block *> blocks;
  auto begin = [&](Operation *op) {
    auto type = cast<VectorType>(op->getResult(0).getType());
    if (!fits(type) || (shape && shape != type))
      return;
    shape = type;
    auto visit = [&](auto &self, Block &block) -> void {
      if (multiplies(block) && !llvm::is_contained(blocks, &block))
        blocks.push_back(&block);
      for (auto branch : block.getOps<scf::IfOp>())
        for (Region *region : branch.getRegions())
          for (Block &inside : *region)
            self(self, inside);
    };
    if (!op->getParentOfType<scf::ForOp>())
      visit(visit, *op->getBlock());
  };
  kernel.walk([&](tile::DotOp dot) {
    if (mixesRows(dot) || beginsWithShared(dot))
      begin(dot);
  });
  kernel.walk([&](tile::CumsumOp sum) {
    if (isAlongRows(sum))
      begin(sum);
  });
  if (blocks.empty())
    return false;
  llvm::SetVector<Block *> all(blocks.begin(), blocks.end());
  for (Block *block : blocks)
    for (Operation *op = block->getParentOp(); isa<scf::IfOp>(op) && !isa<scf::ForOp>(op->getParentOp());
         op = op->getParentOp())
      all.insert(op->getBlock());
  for (Block *block : all)
    for (Operation &op : *block)
      if (mayBe(&op))
        found.insert(op.getResult(0));
  // What blocks around compute for others too is at hand for those only where it is kept anyway; what nobody here reads is no
  // concern of these registers.
  for (size_t before = 0; before != found.size();) {
    before = found.size();
    found.remove_if([&](Value v) {
      bool own = llvm::is_contained(blocks, v.getParentBlock());
      auto inside = [&](OpOperand &use) { return isInside(use); };
      if (isElsewhere(v))
        return llvm::none_of(v.getUses(), inside);
      return !own && !plan.isKept(v) && !llvm::all_of(v.getUses(), inside);
    });
  }
  return !found.empty();
}

} // namespace

void ThreadLowering::planColumns() {
  ColumnSearch search(kernel, plan, threads);
  if (!search.run())
    return;
  SmallVector<Value> alsoKept;
  DenseMap<Value, bool> made;
  for (Value v : search.found) {
    if (!search.isElsewhere(v) && !llvm::all_of(v.getUses(), [&](OpOperand &use) { return search.isInside(use); }))
      alsoKept.push_back(v);
    else if (search.isMade(v, made) && llvm::all_of(v.getUses(), [&](OpOperand &use) {
               return !search.isInside(use) || use.getOwner()->getBlock() == v.getParentBlock();
             }))
      madeLate.insert(v);
  }
  inColumns.insert(search.found.begin(), search.found.end());
  plan.compute(search.found.getArrayRef(), alsoKept);
}

//===- Elements in registers --------------------------------------------------------------------------------------===//

ThreadLowering::Fragments ThreadLowering::columnsOf(VectorType type) {
  int64_t columns = type.getDimSize(1) / (threads / kWarp);
  return {type.getDimSize(0) / kBlockRows, columns / kBlockColumns, type.getDimSize(1), constant(0),
          mul(warp, constant(columns))};
}

/// All of them are under way before the first is waited for: bf16 as words of two.
SmallVector<Value> ThreadLowering::fetchColumns(tile::LoadOp op) {
  accesses[op] = access(op.getSource(), op.getIndices(), op.getDims(), op.getLimit());
  VectorType type = tileType(op.getResult());
  Type element = type.getElementType();
  Fragments at = columnsOf(type);
  bool words = element.isBF16();
  int64_t count = at.rows * at.columns * 4;
  SmallVector<Type> types(words ? count / 2 : count, words ? Type(b.getI32Type()) : element);
  Vectors vectors = vectorsOf({op.getResult()}, {}, 2);
  return onTrust(vectors, {}, types, [&](bool trust) {
    SmallVector<Value> values, pair;
    eachHeld(at, {}, trust, [&](Value row, const Strip &strip, size_t) {
      startStrip();
      Value value = eval(op.getResult(), {row}, strip);
      if (!trust) {
        pair.push_back(value);
        if (pair.size() < 2)
          return;
        value = vector::FromElementsOp::create(b, loc, VectorType::get({2}, element), pair);
        pair.clear();
      }
      if (words) {
        value = vector::BitCastOp::create(b, loc, VectorType::get({1}, b.getI32Type()), value);
        values.push_back(vector::ExtractOp::create(b, loc, value, 0));
        return;
      }
      for (int64_t i = 0; i < 2; ++i)
        values.push_back(vector::ExtractOp::create(b, loc, value, i));
    });
    startStrip();
    return values;
  });
}

/// Words that were asked for earlier are taken apart only now: that waits for them.
SmallVector<Value> ThreadLowering::loadColumns(tile::LoadOp op) {
  auto it = asked.find(op);
  SmallVector<Value> loaded = it == asked.end() ? fetchColumns(op) : it->second;
  Type element = elementOf(op.getResult());
  if (!element.isBF16())
    return loaded;
  SmallVector<Value> values;
  for (Value word : loaded) {
    Value pair = vector::FromElementsOp::create(b, loc, VectorType::get({1}, b.getI32Type()), word);
    pair = vector::BitCastOp::create(b, loc, VectorType::get({2}, element), pair);
    for (int64_t i = 0; i < 2; ++i)
      values.push_back(vector::ExtractOp::create(b, loc, pair, i));
  }
  return values;
}

/// Two neighbours at a time are rounded.
SmallVector<Value> ThreadLowering::roundColumns(arith::TruncFOp op) {
  SmallVector<Value> elements = ownedOf(op.getIn(), false), rounded;
  Type to = elementOf(op.getOut());
  for (size_t i = 0; i < elements.size(); i += 2) {
    Value pair = vector::FromElementsOp::create(b, loc, VectorType::get({2}, elements[i].getType()),
                                                ArrayRef<Value>(elements).slice(i, 2));
    pair = arith::TruncFOp::create(b, loc, VectorType::get({2}, to), pair);
    for (int64_t k = 0; k < 2; ++k)
      rounded.push_back(vector::ExtractOp::create(b, loc, pair, k));
  }
  return rounded;
}

SmallVector<Value> ThreadLowering::multiplyColumns(tile::DotOp op) {
  SmallVector<Buffer *> temporary;
  HeldOperands operands;
  operands[op] = {packed(op.getA(), temporary), packed(op.getB(), temporary)};
  SmallVector<Value> sums;
  {
    Phase phase(*this);
    sums = sumsOf(op, operands, columnsOf(tileType(op.getResult())), ownedOf(op.getAcc(), false));
  }
  for (Buffer *buffer : temporary)
    giveBack(buffer);
  return sums;
}

/// What the lane numbered `from` has.
Value ThreadLowering::laneOf(Value value, Value from) {
  Value width = arith::ConstantOp::create(b, loc, b.getI32IntegerAttr(kWarp));
  from = arith::IndexCastOp::create(b, loc, b.getI32Type(), from);
  return gpu::ShuffleOp::create(b, loc, value, from, width, gpu::ShuffleMode::IDX).getShuffleResult();
}

/// What is the same in all lanes of a warp, such that the assembler knows it: it has registers and instructions for that, in which descriptions of operands have to
/// be. Of 32 bits, by all lanes.
Value ThreadLowering::alike(Value v) {
  if (getConstantIntValue(v))
    return v;
  if (!isa<IndexType>(v.getType()))
    return laneOf(v, constant(0));
  Value narrow = arith::IndexCastOp::create(b, loc, b.getI32Type(), v);
  return arith::IndexCastOp::create(b, loc, b.getIndexType(), laneOf(narrow, constant(0)));
}

/// Running sums along rows: of eight rows in three steps, then of all before those.
SmallVector<Value> ThreadLowering::addUpColumns(tile::CumsumOp op) {
  SmallVector<Value> values = ownedOf(op.getSource(), false), sums(values.size());
  Fragments at = columnsOf(tileType(op.getResult()));
  bool reverse = op.getReverse();
  int64_t eights = at.rows * 2;
  Value first = remainder(lane, 4), last = reverse ? first : add(first, kWarp - 4);
  for (int64_t column = 0; column < at.columns * 2; ++column) {
    Value before;
    for (int64_t step = 0; step < eights; ++step) {
      int64_t eight = reverse ? eights - 1 - step : step;
      auto element = static_cast<size_t>(((eight / 2 * at.columns + column / 2) * 2 + eight % 2) * 2 + column % 2);
      Value sum = values[element];
      for (int64_t distance = 4; distance < kWarp; distance *= 2) {
        Value other = shuffle(sum, distance, reverse ? gpu::ShuffleMode::DOWN : gpu::ShuffleMode::UP);
        Value added = arith::AddFOp::create(b, loc, sum, other);
        Value alone = less(lane, reverse ? kWarp - distance : distance);
        sum = reverse ? arith::SelectOp::create(b, loc, alone, added, sum)
                      : arith::SelectOp::create(b, loc, alone, sum, added);
      }
      Value total = step + 1 < eights ? laneOf(sum, last) : Value();
      sums[element] = before ? arith::AddFOp::create(b, loc, before, sum).getResult() : sum;
      if (total)
        before = before ? arith::AddFOp::create(b, loc, before, total).getResult() : total;
    }
  }
  return sums;
}

/// Each row is the neighbour's, eight rows further the last lanes'.
SmallVector<Value> ThreadLowering::moveColumns(tile::InsertRowsOp op) {
  SmallVector<Value> values = ownedOf(movedDown(op), false), moved = ownedOf(op.getTarget(), false);
  Fragments at = columnsOf(tileType(op.getResult()));
  Value from = remainder(add(lane, kWarp - 4), kWarp), isFirst = less(lane, 4);
  for (int64_t column = 0; column < at.columns * 2; ++column) {
    Value before;
    for (int64_t eight = 0; eight < at.rows * 2; ++eight) {
      auto element = static_cast<size_t>(((eight / 2 * at.columns + column / 2) * 2 + eight % 2) * 2 + column % 2);
      Value turned = laneOf(values[element], from);
      moved[element] = arith::SelectOp::create(b, loc, isFirst, before ? before : moved[element], turned);
      before = turned;
    }
  }
  return moved;
}

/// Along rows: a vector in shared memory.
void ThreadLowering::reduceColumns(tile::ReduceOp op) {
  VectorType type = tileType(op.getSource());
  View target = destination(op.getResult());
  {
    Phase phase(*this);
    SmallVector<Value> values = ownedOf(op.getSource(), false);
    Fragments at = columnsOf(type);
    SmallVector<Value> totals(at.columns * 2);
    for (auto [i, value] : llvm::enumerate(values)) {
      Value &total = totals[i / 4 % at.columns * 2 + i % 2];
      total = total ? combine(op.getKind(), total, value) : value;
    }
    for (Value &total : totals)
      for (int64_t distance = kWarp / 2; distance >= 4; distance /= 2)
        total = combine(op.getKind(), total, shuffle(total, distance, gpu::ShuffleMode::XOR));
    onlyIf(less(lane, 4), [&] {
      for (auto [i, total] : llvm::enumerate(totals)) {
        Value column = add(add(at.column, mul(remainder(lane, 4), constant(2))),
                           static_cast<int64_t>(i) / 2 * kBlockColumns + static_cast<int64_t>(i) % 2);
        writeView(target, {}, {column, 0, type.getDimSize(1), 0, 1}, total, false);
      }
    });
  }
  own(op.getResult(), target);
}

/// Along columns: every warp adds up its own of each row, and then a thread what the warps have of a row, in their order.
void ThreadLowering::reduceAcross(tile::ReduceOp op) {
  VectorType type = tileType(op.getSource());
  int64_t rows = type.getDimSize(0), warps = threads / kWarp;
  auto partsType = VectorType::get({warps, rows}, elementOf(op.getResult()));
  Buffer *buffer = allocate(partsType);
  View parts = viewOf(buffer, partsType), target = destination(op.getResult());
  {
    Phase phase(*this);
    SmallVector<Value> values = ownedOf(op.getSource(), false), totals(rows / 8);
    Fragments at = columnsOf(type);
    for (auto [i, value] : llvm::enumerate(values)) {
      Value &total = totals[i / (4 * at.columns) * 2 + i / 2 % 2];
      total = total ? combine(op.getKind(), total, value) : value;
    }
    for (Value &total : totals)
      total = allLanes(op.getKind(), total, 4);
    onlyIf(arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, remainder(lane, 4), constant(0)), [&] {
      for (auto [eight, total] : llvm::enumerate(totals))
        writeView(parts, {warp}, {add(divide(lane, 4), static_cast<int64_t>(eight) * 8), 0, rows, 0, 1}, total, false);
    });
  }
  {
    Phase phase(*this);
    eachThread(rows, [&](Value row) {
      Value total;
      for (int64_t i = 0; i < warps; ++i) {
        Value part = readView(parts, partsType.getElementType(), {constant(i)}, {row, 0, rows, 0, 1});
        total = total ? combine(op.getKind(), total, part) : part;
      }
      writeView(target, {}, {row, 0, rows, 0, 1}, total, false);
    });
  }
  giveBack(buffer);
  own(op.getResult(), target);
}

void ThreadLowering::takeRow(tile::RowsOp op) {
  VectorType type = tileType(op.getSource());
  int64_t wanted = *getConstantIntValue(op.getOffset());
  View target = destination(op.getResult());
  {
    Phase phase(*this);
    SmallVector<Value> values = ownedOf(op.getSource(), false);
    Fragments at = columnsOf(type);
    Value quad = divide(lane, 4);
    auto here = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, quad, constant(wanted % 8));
    onlyIf(here, [&] {
      for (int64_t column = 0; column < at.columns * 2; ++column) {
        int64_t eight = wanted / 8;
        auto element = static_cast<size_t>(((eight / 2 * at.columns + column / 2) * 2 + eight % 2) * 2 + column % 2);
        Value place =
            add(add(at.column, mul(remainder(lane, 4), constant(2))), column / 2 * kBlockColumns + column % 2);
        writeView(target, {}, {place, 0, type.getDimSize(1), 0, 1}, values[element], false);
      }
    });
  }
  own(op.getResult(), target);
}

/// In shared memory too, for those who do not find it in registers.
void ThreadLowering::keepColumns(Value v, ArrayRef<Value> elements) {
  VectorType type = tileType(v);
  View target = destination(v);
  {
    Phase phase(*this);
    eachHeld(columnsOf(type), {}, /*pairs=*/true, [&](Value row, const Strip &strip, size_t element) {
      Value pair = vector::FromElementsOp::create(b, loc, VectorType::get({2}, elements[element].getType()),
                                                  elements.slice(element, 2));
      writeView(target, {row}, strip, pair, false);
    });
  }
  own(v, target);
}

//===- The walk ---------------------------------------------------------------------------------------------------===//

/// What is made where it is first read, of what this operation reads.
void ThreadLowering::makeColumns(Operation *reader) {
  for (Value v : reader->getOperands()) {
    if (auto rows = v.getDefiningOp<tile::RowsOp>(); rows && isa<tile::InsertRowsOp>(reader))
      v = rows.getSource();
    if (!madeLate.contains(v) || owned.count(v))
      continue;
    makeColumns(v.getDefiningOp());
    computeColumns(v.getDefiningOp());
  }
}

void ThreadLowering::computeColumns(Operation *op) {
  Value result = op->getResult(0);
  SmallVector<Value> elements;
  if (auto dot = dyn_cast<tile::DotOp>(op)) {
    elements = multiplyColumns(dot);
  } else {
    Phase phase(*this);
    auto round = dyn_cast<arith::TruncFOp>(op);
    if (auto load = dyn_cast<tile::LoadOp>(op))
      elements = loadColumns(load);
    else if (auto sum = dyn_cast<tile::CumsumOp>(op))
      elements = addUpColumns(sum);
    else if (auto insert = dyn_cast<tile::InsertRowsOp>(op))
      elements = moveColumns(insert);
    else
      elements = round && elementOf(result).isBF16() ? roundColumns(round) : ownedOf(result, false);
  }
  if (plan.isKept(result))
    keepColumns(result, elements);
  owned[result] = std::move(elements);
}

/// Of a block's first load: what branches behind it read of memory, from places that are known before. They begin when a condition is computed of what
/// the block loads.
static SmallVector<tile::LoadOp> loadsBehind(tile::LoadOp first) {
  SmallVector<tile::LoadOp> found;
  Block &block = *first->getBlock();
  if (first != *block.getOps<tile::LoadOp>().begin())
    return found;
  for (auto branch : block.getOps<scf::IfOp>())
    branch.walk([&](tile::LoadOp load) {
      auto isBefore = [&](Value v) {
        Operation *op = v.getDefiningOp();
        return op && op->getBlock() == &block ? op->isBeforeInBlock(first)
                                              : !branch->isAncestor(v.getParentBlock()->getParentOp());
      };
      auto reads = [](tile::LoadOp a, tile::LoadOp b) {
        return a.getSource() == b.getSource() && a.getIndices() == b.getIndices() && a.getType() == b.getType();
      };
      bool again = llvm::any_of(block.getOps<tile::LoadOp>(), [&](tile::LoadOp other) { return reads(load, other); }) ||
                   llvm::any_of(found, [&](tile::LoadOp other) { return reads(load, other); });
      if (!again && !load.getRows() && tileType(load.getResult()).getRank() == 2 &&
          llvm::all_of(load->getOperands(), isBefore))
        found.push_back(load);
    });
  return found;
}

bool ThreadLowering::lowerInColumns(Operation *op) {
  if (inColumns.empty())
    return false;
  // Alone on a multiprocessor a block has nobody who computes meanwhile: lines of the cache that all share are on their way before the first wait.
  if (auto first = dyn_cast<tile::LoadOp>(op); first && threads > kWarpsTogether * kWarp)
    for (tile::LoadOp load : loadsBehind(first)) {
      VectorType type = tileType(load.getResult());
      Access at = access(load.getSource(), load.getIndices(), load.getDims(), load.getLimit());
      int64_t size = bytesOf(type.getElementType()), lines = llvm::divideCeil(type.getDimSize(1) * size, kLineBytes);
      if (getConstantIntValue(at.strides.back()) != 1)
        continue;
      Value from = memref::ExtractAlignedPointerAsIndexOp::create(b, loc, arguments[load.getSource()].memref);
      eachThread(type.getDimSize(0) * lines, [&](Value i) {
        Value row = divide(i, lines), line = remainder(i, lines);
        onlyIf(at.limit ? inBounds(add(at.row, row), at.limit) : Value(), [&] {
          Value element = add(add(at.offset, mul(row, at.strides.front())), mul(line, constant(kLineBytes / size)));
          Value address =
              pointer(add(from, mul(element, constant(size))), static_cast<unsigned>(NVVM::NVVMMemorySpace::Global));
          NVVM::PrefetchOp::create(
              b, loc, NVVM::PrefetchCacheLevelAttr::get(b.getContext(), NVVM::PrefetchCacheLevel::L2),
              NVVM::CacheEvictionPriorityAttr(), address, Value(), UnitAttr(), UnitAttr(), UnitAttr());
        });
      });
    }
  auto store = dyn_cast<tile::StoreOp>(op);
  auto reduce = dyn_cast<tile::ReduceOp>(op);
  auto rows = dyn_cast<tile::RowsOp>(op);
  auto lies = [&](tile::ReduceOp one) { return inColumns.contains(one.getSource()); };
  if (store && !store.getRows() && inColumns.contains(store.getValue())) {
    makeColumns(op);
    storeOwned(store);
  } else if (reduce && reduce.getAxis() == 0 && lies(reduce) && llvm::all_of(plan.groupOf(reduce), lies)) {
    makeColumns(op);
    reduceColumns(reduce);
  } else if (reduce && reduce.getAxis() == 1 && lies(reduce)) {
    makeColumns(op);
    reduceAcross(reduce);
  } else if (rows && inColumns.contains(rows.getSource()) && isKnownRow(rows)) {
    makeColumns(op);
    takeRow(rows);
  } else if (op->getNumResults() != 1 || !inColumns.contains(op->getResult(0))) {
    return false;
  } else if (!madeLate.contains(op->getResult(0))) {
    makeColumns(op);
    computeColumns(op);
  } else {
    if (auto load = dyn_cast<tile::LoadOp>(op)) {
      accesses[op] = access(load.getSource(), load.getIndices(), load.getDims(), load.getLimit());
      if (elementOf(load.getResult()).isBF16() && isBeforeSolve(load)) {
        Phase phase(*this);
        asked[op] = fetchColumns(load);
      }
    }
    return true;
  }
  releaseOperands(op);
  return true;
}
