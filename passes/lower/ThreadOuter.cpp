//===- ThreadOuter.cpp - a sum of products on the FMA units as a pipeline ------------------------------------------===//
//
//   sum = begin;  for at = lo, lo + K, .. < hi:  sum += op(A[.. at ..]) op(B[.. at ..])      (f32 or f64 sums)
//
// An FMA unit takes two operands from registers for each product: what a thread reads from shared memory must serve many.
// A thread has 8 x 4 neighbours of the sum in registers until the loop ends; for each step along k it multiplies a column of 8 and a row of
// 4, which it reads 16 bytes at a time: along m or n where a tile's rows run along them, else several steps along k of one
// row. Terms are added in the order of k, as if each sum were computed alone.
//
// Both tiles travel to a ring of stages in shared memory by asynchronous copies, some iterations ahead. Of a tile whose rows run along k, threads beside each
// other read rows that are 8 or 4 apart: chunk c (16 bytes) of row r lies at c xor (r / 8 or r / 4), in other banks than theirs.
//
//===-------------------------------------------------------------------------------------------------------------===//
#include "passes/lower/LoopWork.h"
#include "passes/lower/ThreadLowering.h"

#include "mlir/Dialect/LLVMIR/NVVMDialect.h"

using namespace mlir;
using namespace braid;
using namespace braid::lower;

namespace {

constexpr int64_t kRows = 8, kColumns = 4; // of a thread
constexpr int64_t kVectorBytes = 16, kBanks = 8; // of so many bytes
constexpr int64_t kStages = 3;
constexpr int64_t kUnrolled = 32; // steps along k
constexpr int64_t kFewest = 2 * kWarp; // threads

struct Match {
  tile::DotOp dot;
  tile::LoadOp a, b;
  int64_t m = 0, n = 0, k = 0;
  /// Threads that have a part of the sum.
  int64_t parts() const { return m / kRows * (n / kColumns); }
};

} // namespace

/// The loop's only work is one product of two loads, widened or not, that is added to what it carries.
static std::optional<Match> match(scf::ForOp op) {
  if (op.getNumRegionIterArgs() != 1)
    return std::nullopt;
  Value sum = op.getRegionIterArg(0), next = op.getBody()->getTerminator()->getOperand(0);
  Match found;
  tile::DotOp dot = found.dot = next.getDefiningOp<tile::DotOp>();
  if (!dot || dot->getBlock() != op.getBody() || dot.getAcc() != sum || !sum.hasOneUse() || !next.hasOneUse())
    return std::nullopt;
  Type element = getElementTypeOrSelf(dot.getType());
  if (!(element.isF32() || element.isF64()) || getElementTypeOrSelf(dot.getA()) != element ||
      getElementTypeOrSelf(dot.getB()) != element)
    return std::nullopt;
  auto loaded = [&](Value operand) {
    if (auto extend = operand.getDefiningOp<arith::ExtFOp>(); extend && operand.hasOneUse())
      operand = extend.getIn();
    auto load = operand.getDefiningOp<tile::LoadOp>();
    bool asItLies = load && load->getBlock() == op.getBody() && !load.getRows() && operand.hasOneUse() &&
                    tileType(operand).getRank() == 2 && isa<BlockArgument>(load.getSource());
    return asItLies ? load : tile::LoadOp();
  };
  found.a = loaded(dot.getA());
  found.b = loaded(dot.getB());
  if (!found.a || !found.b)
    return std::nullopt;
  for (Operation &inside : op.getBody()->without_terminator()) {
    bool scalar = isa<arith::ArithDialect, memref::MemRefDialect>(inside.getDialect()) && isMemoryEffectFree(&inside) &&
                  llvm::none_of(inside.getOperands(), isTile) && llvm::none_of(inside.getResults(), isTile);
    if (!scalar && !isa<tile::LoadOp, tile::DotOp, arith::ExtFOp>(inside))
      return std::nullopt;
    if (isa<tile::LoadOp>(inside) && &inside != found.a && &inside != found.b)
      return std::nullopt;
  }
  auto type = cast<VectorType>(dot.getType()), a = cast<VectorType>(dot.getA().getType());
  found.m = type.getDimSize(0);
  found.n = type.getDimSize(1);
  found.k = a.getDimSize(dot.getTransposeA() ? 0 : 1);
  if (found.m % kRows != 0 || found.n % kColumns != 0 || found.k % kColumns != 0 || found.parts() < kFewest)
    return std::nullopt;
  return found;
}

int64_t lower::threadsOfOuterSum(func::FuncOp kernel) {
  int64_t dots = 0, threads = 0;
  kernel.walk([&](Operation *op) {
    dots += isa<tile::DotOp, tile::SolveOp>(op);
    if (auto loop = dyn_cast<scf::ForOp>(op))
      if (std::optional<Match> found = match(loop))
        threads = llvm::alignTo(found->parts(), kWarp);
  });
  return dots == 1 && threads <= 8 * kWarp ? threads : 0;
}

class ThreadLowering::OuterSum {
public:
  OuterSum(ThreadLowering &lowering, scf::ForOp op, const Match &found)
      : l(lowering), b(lowering.b), loc(lowering.loc), op(op), found(found),
        element(getElementTypeOrSelf(op.getResult(0).getType())) {}
  bool fits();
  void lower();
  /// The elements of this thread, `wide` neighbours at a time.
  void eachSum(int64_t wide, function_ref<void(Value row, const Strip &strip, size_t first)> body) const;
  Value vectorOf(ArrayRef<Value> values) const;
  SmallVector<Value> sums; ///< rows one behind the other
  Value live; ///< whether this thread has any; null: each has

private:
  /// An operand in a stage.
  struct Panel {
    tile::LoadOp load;
    VectorType type;
    Value source;
    bool alongK; ///< whether its rows run along k
    int64_t each; ///< of its elements along m or n a thread has so many neighbours
    int64_t offset = 0; ///< bytes, in the stage
    View memory = {}; ///< the ring, in elements of the tile

    int64_t size() const { return bytesOf(type.getElementType()); }
    int64_t rows() const { return type.getDimSize(0); }
    int64_t rowBytes() const { return type.getDimSize(1) * size(); }
    int64_t bytes() const { return rows() * rowBytes(); }
    int64_t chunks() const { return rowBytes() / kVectorBytes; }
    int64_t patterns() const { return alongK && llvm::isPowerOf2_64(chunks()) ? std::min(chunks(), kBanks) : 1; }
  };

  void place();
  Value keyOf(const Panel &panel, Value row);
  Value chunkAt(const Panel &panel, Value chunk, Value key);
  Value placeOf(const Panel &panel, Value stage, Value row, Value chunk);
  std::pair<Access, Access> accessesOf(Value at);
  void copyChunks(const Panel &panel, const Access &at, Value stage);
  void copyElements(const Panel &panel, const Access &at, Value stage);
  void copyStep(Value step, Value stage);
  void begin();
  Value nextStage(Value stage);
  SmallVector<Value> read(const Panel &panel, Value stage, Value first, Value step, int64_t further, int64_t count);
  SmallVector<Value> multiply(Value stage, ValueRange carried, function_ref<void()> meanwhile);

  ThreadLowering &l;
  OpBuilder &b;
  Location loc;
  scf::ForOp op;
  Match found;
  Type element;
  Panel left, right;
  int64_t stageBytes = 0, step = 0, stages = kStages;
  Buffer *buffer = nullptr;
  Value row, column; ///< the first of this thread
  Value lo, count;
  Value aligned; ///< whether rows of both operands begin on 16 bytes
};

bool ThreadLowering::OuterSum::fits() {
  std::optional<int64_t> constantStep = getConstantIntValue(op.getStep());
  if (l.scratched || l.threads < kFewest || found.parts() > l.threads || 2 * found.parts() <= l.threads ||
      !constantStep || *constantStep <= 0)
    return false;
  step = *constantStep;
  auto panelOf = [](tile::LoadOp load, bool alongK, int64_t each) {
    return Panel{load, tileType(load.getResult()), load.getSource(), alongK, each};
  };
  left = panelOf(found.a, !found.dot.getTransposeA(), kRows);
  right = panelOf(found.b, static_cast<bool>(found.dot.getTransposeB()), kColumns);
  for (Panel *panel : {&left, &right}) {
    Type stored = panel->type.getElementType();
    // Only whole chunks of contiguous elements are copied; each step of the loop begins with one.
    if (panel->rowBytes() % kVectorBytes != 0 || step * panel->size() % kVectorBytes != 0 ||
        l.storage(stored) != stored || cast<MemRefType>(panel->source.getType()).getElementType() != stored ||
        getConstantIntValue(l.arguments[panel->source].strides[panel->load.getDims().back()]) != 1)
      return false;
    panel->offset = stageBytes;
    stageBytes += panel->bytes();
  }
  for (; stages >= 2; --stages)
    if (int64_t bytes = stages * stageBytes; l.freeOffset(bytes, kVectorBytes * kBanks) + bytes <= l.limits.sharedBytes)
      return true;
  return false;
}

/// A warp has 4 x 8 parts where there are so many. Of each two lanes one bit apart, both read the same of one operand: two halves of a
/// warp are then served at a time.
void ThreadLowering::OuterSum::place() {
  int64_t down = found.m / kRows, across = found.n / kColumns;
  bool fewer = l.threads > found.parts();
  if (fewer)
    live = l.less(l.thread, found.parts());
  // Threads behind the last part compute what others do, too.
  auto clamped = [&](Value i, int64_t count) { return fewer ? l.least(i, count - 1) : i; };
  Value y, x;
  if (down % 4 == 0 && across % 8 == 0) {
    Value number = clamped(l.warp, found.parts() / kWarp);
    auto bit = [&](int64_t from, int64_t to) { return l.mul(l.remainder(l.divide(l.lane, from), 2), l.constant(to)); };
    y = l.add(l.add(bit(2, 1), bit(8, 2)), l.mul(l.divide(number, across / 8), l.constant(4)));
    x = l.add(l.add(bit(1, 1), bit(4, 2)), bit(16, 4));
    x = l.add(x, l.mul(l.remainder(number, across / 8), l.constant(8)));
  } else {
    Value part = clamped(l.thread, found.parts());
    y = l.divide(part, across);
    x = l.remainder(part, across);
  }
  row = l.mul(y, l.constant(kRows));
  column = l.mul(x, l.constant(kColumns));
}

Value ThreadLowering::OuterSum::keyOf(const Panel &panel, Value row) {
  return l.remainder(l.divide(row, panel.each), panel.patterns());
}

/// Where a chunk is in its row.
Value ThreadLowering::OuterSum::chunkAt(const Panel &panel, Value chunk, Value key) {
  return panel.patterns() == 1 ? chunk : arith::XOrIOp::create(b, loc, chunk, key).getResult();
}

/// Bytes of the ring before a chunk.
Value ThreadLowering::OuterSum::placeOf(const Panel &panel, Value stage, Value row, Value chunk) {
  Value start = l.add(l.mul(stage, l.constant(stageBytes)), panel.offset);
  Value turned = chunkAt(panel, chunk, keyOf(panel, row));
  return l.add(start, l.add(l.mul(row, l.constant(panel.rowBytes())), l.mul(turned, l.constant(kVectorBytes))));
}

/// The tiles of A and B in the iteration `at`.
std::pair<ThreadLowering::Access, ThreadLowering::Access> ThreadLowering::OuterSum::accessesOf(Value at) {
  IRMapping here = l.scalars;
  l.scalars.map(op.getInductionVar(), at);
  for (Operation &inside : op.getBody()->without_terminator())
    if (llvm::none_of(inside.getResults(), isTile) && failed(l.lowerScalar(&inside)))
      l.failedOnce = true;
  auto of = [&](tile::LoadOp load) {
    return l.access(load.getSource(), load.getIndices(), load.getDims(), load.getLimit());
  };
  std::pair result(of(found.a), of(found.b));
  l.scalars = here;
  return result;
}

/// A tile, 16 bytes at a time and without waiting for them.
void ThreadLowering::OuterSum::copyChunks(const Panel &panel, const Access &at, Value stage) {
  Value to = memref::ExtractAlignedPointerAsIndexOp::create(b, loc, buffer->memref);
  auto inRing = [&](Value row, Value chunk) { return l.add(to, placeOf(panel, stage, row, chunk)); };
  l.copyRows(panel.load, at, {inRing, panel.each * panel.patterns(), panel.rowBytes()});
}

/// An element at a time, through registers.
void ThreadLowering::OuterSum::copyElements(const Panel &panel, const Access &at, Value stage) {
  int64_t columns = panel.type.getDimSize(1), chunk = kVectorBytes / panel.size();
  Type stored = panel.type.getElementType();
  l.eachThread(panel.rows() * columns, [&](Value i) {
    Value row = l.divide(i, columns), column = l.remainder(i, columns), value;
    auto load = [&]() -> Value {
      Value from = l.add(at.offset, l.add(l.mul(row, at.strides.front()), column));
      return memref::LoadOp::create(b, loc, l.arguments[panel.source].memref, ValueRange{from});
    };
    if (at.limit) {
      auto inside = scf::IfOp::create(b, loc, TypeRange{stored}, l.inBounds(l.add(at.row, row), at.limit),
                                      /*withElseRegion=*/true);
      OpBuilder::InsertionGuard guard(b);
      b.setInsertionPointToEnd(&inside.getThenRegion().front());
      scf::YieldOp::create(b, loc, load());
      b.setInsertionPointToEnd(&inside.getElseRegion().front());
      scf::YieldOp::create(b, loc, l.zero(stored));
      value = inside.getResult(0);
    } else {
      value = load();
    }
    Value place = l.divide(placeOf(panel, stage, row, l.divide(column, chunk)), panel.size());
    memref::StoreOp::create(b, loc, value, panel.memory.memref, ValueRange{l.add(place, l.remainder(column, chunk))});
  });
}

/// Starts the copies of one step, if there is one, as a group of their own.
void ThreadLowering::OuterSum::copyStep(Value number, Value stage) {
  l.onlyIf(arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ult, number, count), [&] {
    auto [first, second] = accessesOf(l.add(lo, l.mul(number, l.constant(step))));
    auto branch = scf::IfOp::create(b, loc, aligned, /*withElseRegion=*/true);
    branch->setAttr(kLikelyAttr, b.getUnitAttr());
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPoint(branch.thenBlock()->getTerminator());
    copyChunks(left, first, stage);
    copyChunks(right, second, stage);
    b.setInsertionPoint(branch.elseBlock()->getTerminator());
    copyElements(left, first, stage);
    copyElements(right, second, stage);
  });
  NVVM::CpAsyncCommitGroupOp::create(b, loc);
}

Value ThreadLowering::OuterSum::nextStage(Value stage) {
  Value further = l.add(stage, 1);
  Value wraps = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, further, l.constant(stages));
  return arith::SelectOp::create(b, loc, wraps, l.constant(0), further);
}

Value ThreadLowering::OuterSum::vectorOf(ArrayRef<Value> values) const {
  auto type = VectorType::get({static_cast<int64_t>(values.size())}, element);
  return vector::FromElementsOp::create(b, loc, type, values);
}

void ThreadLowering::OuterSum::eachSum(int64_t wide, function_ref<void(Value, const Strip &, size_t)> body) const {
  int64_t each = std::max<int64_t>(wide, 1);
  for (int64_t i = 0; i < kRows; ++i)
    for (int64_t j = 0; j < kColumns; j += each)
      body(l.add(row, i), {l.add(column, j), 0, found.n, wide, each}, static_cast<size_t>(i * kColumns + j));
}

/// What the sums begin with.
void ThreadLowering::OuterSum::begin() {
  Value init = op.getInitArgs().front();
  SmallVector<Type> types(kRows * kColumns, element);
  Vectors vectors = l.vectorsOf({init}, {}, [](int64_t width) { return width <= kColumns; });
  l.startStrip();
  sums = l.onTrust(vectors, {}, types, [&](bool trusted) {
    SmallVector<Value> values;
    int64_t wide = trusted ? vectors.width : 0;
    eachSum(wide, [&](Value row, const Strip &strip, size_t) {
      Value value = l.eval(init, {row}, strip);
      for (int64_t lane = 0; lane < std::max<int64_t>(wide, 1); ++lane)
        values.push_back(wide ? vector::ExtractOp::create(b, loc, value, lane).getResult() : value);
    });
    return values;
  });
  l.startStrip();
}

/// `panel.each` elements along m or n from `first` on, for `count` steps along k: [step][element]. Those steps are `step + further` on.
SmallVector<Value> ThreadLowering::OuterSum::read(const Panel &panel, Value stage, Value first, Value step,
                                                  int64_t further, int64_t count) {
  int64_t size = panel.size(), chunk = kVectorBytes / size, rowLength = panel.rowBytes() / size;
  SmallVector<Value> values(static_cast<size_t>(count * panel.each));
  Value start = l.add(l.mul(stage, l.constant(stageBytes / size)), panel.offset / size);
  auto vector = [&](Value at, int64_t width) {
    Value loaded = vector::LoadOp::create(b, loc, VectorType::get({width}, panel.type.getElementType()),
                                          panel.memory.memref, ValueRange{at}, /*nontemporal=*/false,
                                          llvm::MaybeAlign(static_cast<uint64_t>(width * size)));
    if (loaded.getType() != Type(VectorType::get({width}, element)))
      loaded = arith::ExtFOp::create(b, loc, VectorType::get({width}, element), loaded);
    return loaded;
  };
  auto set = [&](int64_t step, int64_t i, Value from, int64_t lane) {
    values[static_cast<size_t>(step * panel.each + i)] = vector::ExtractOp::create(b, loc, from, lane);
  };
  int64_t width = std::min(chunk, kColumns);
  if (panel.alongK) {
    Value key = keyOf(panel, first), begin = l.add(start, l.mul(first, l.constant(rowLength)));
    for (int64_t s = 0; s < count; s += width) {
      Value at = l.add(step, further + s);
      Value place = l.add(begin, l.mul(chunkAt(panel, l.divide(at, chunk), key), l.constant(chunk)));
      if (width < chunk)
        place = l.add(place, l.remainder(at, chunk));
      for (int64_t i = 0; i < panel.each; ++i) {
        Value loaded = vector(l.add(place, i * rowLength), width);
        for (int64_t lane = 0; lane < width; ++lane)
          set(s + lane, i, loaded, lane);
      }
    }
    return values;
  }
  Value begin = l.add(l.add(start, first), l.mul(step, l.constant(rowLength)));
  for (int64_t s = 0; s < count; ++s)
    for (int64_t i = 0; i < panel.each; i += width) {
      Value loaded = vector(l.add(begin, (further + s) * rowLength + i), width);
      for (int64_t lane = 0; lane < width; ++lane)
        set(s, i + lane, loaded, lane);
    }
  return values;
}

/// One step of the loop; `meanwhile` comes behind the first reads, which it need not wait for.
SmallVector<Value> ThreadLowering::OuterSum::multiply(Value stage, ValueRange carried, function_ref<void()> meanwhile) {
  auto readBoth = [&](Value from, int64_t s) {
    return std::pair(read(left, stage, row, from, s, kColumns), read(right, stage, column, from, s, kColumns));
  };
  auto addTo = [&](SmallVector<Value> &sums, ArrayRef<Value> x, ArrayRef<Value> y) {
    for (size_t k = 0; k < kColumns; ++k)
      for (size_t i = 0; i < kRows; ++i)
        for (size_t j = 0; j < kColumns; ++j) {
          Value &sum = sums[i * kColumns + j];
          sum = math::FmaOp::create(b, loc, x[k * kRows + i], y[k * kColumns + j], sum);
        }
  };
  auto [x, y] = readBoth(l.constant(0), 0);
  meanwhile();
  SmallVector<Value> first(carried);
  addTo(first, x, y);
  int64_t whole = std::min(found.k, kUnrolled);
  for (int64_t s = kColumns; s < whole; s += kColumns) {
    auto [x, y] = readBoth(l.constant(0), s);
    addTo(first, x, y);
  }
  return l.repeat(whole, found.k, kColumns, first, [&](Value from, ValueRange now) {
    SmallVector<Value> next(now);
    auto [x, y] = readBoth(from, 0);
    addTo(next, x, y);
    return next;
  });
}

void ThreadLowering::OuterSum::lower() {
  buffer = l.allocate(b.getI8Type(), stages * stageBytes, kVectorBytes * kBanks);
  auto space = cast<MemRefType>(l.shared.getType()).getMemorySpace();
  for (Panel *panel : {&left, &right}) {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPoint(l.entryEnd);
    Type stored = panel->type.getElementType();
    auto type = MemRefType::get({stages * stageBytes / panel->size()}, stored, MemRefLayoutAttrInterface(), space);
    panel->memory = {memref::ViewOp::create(b, loc, type, l.shared, l.constant(buffer->offset), ValueRange()),
                     {l.constant(1)},
                     buffer};
    l.touched(panel->memory, true);
    l.touched(panel->memory, false);
    l.touched(l.arguments[panel->source], false);
  }
  auto known = [&](Value v) {
    std::optional<int64_t> number = getConstantIntValue(v);
    return number ? l.constant(*number) : l.scalars.lookup(v);
  };
  lo = known(op.getLowerBound());
  Value span = arith::SubIOp::create(b, loc, known(op.getUpperBound()), lo);
  span = arith::MaxSIOp::create(b, loc, span, l.constant(0));
  count = l.divide(l.add(span, step - 1), step);
  place();
  begin();
  auto [first, second] = accessesOf(lo);
  aligned = arith::AndIOp::create(b, loc, l.rowsAligned(left.load, first), l.rowsAligned(right.load, second));
  int64_t ahead = stages - 1;
  for (int64_t i = 0; i < ahead; ++i)
    copyStep(l.constant(i), l.constant(i));
  // The stage that is read, where the next copies go, sums.
  SmallVector<Value> carried = {l.constant(0), l.constant(ahead)};
  size_t others = carried.size();
  llvm::append_range(carried, sums);
  carried = l.repeat(l.constant(0), count, l.constant(1), carried, [&](Value number, ValueRange now) {
    NVVM::CpAsyncWaitGroupOp::create(b, loc, static_cast<uint32_t>(ahead - 1));
    gpu::BarrierOp::create(b, loc);
    SmallVector<Value> products =
        multiply(now[0], now.drop_front(others), [&] { copyStep(l.add(number, ahead), now[1]); });
    SmallVector<Value> next = {nextStage(now[0]), nextStage(now[1])};
    llvm::append_range(next, products);
    return next;
  });
  sums.assign(carried.begin() + static_cast<int64_t>(others), carried.end());
  NVVM::CpAsyncWaitGroupOp::create(b, loc, 0);
  l.giveBack(buffer);
}

bool ThreadLowering::lowerOuterSum(scf::ForOp op) {
  std::optional<Match> found = match(op);
  if (!found)
    return false;
  auto sum = std::make_shared<OuterSum>(*this, op, *found);
  if (!sum->fits())
    return false;
  Value init = op.getInitArgs().front(), result = op.getResult(0);
  {
    Phase phase(*this);
    sum->lower();
  }
  release(init, op->getBlock());
  // Sums that are stored next need not pass through shared memory.
  if (tile::StoreOp store = plan.storeOf(result); store && heldIn({store.getValue()}).empty()) {
    outerSums[result] = std::move(sum);
    return true;
  }
  View target = viewOf(allocate(tileType(result)), tileType(result));
  {
    Phase phase(*this);
    onlyIf(sum->live, [&] {
      sum->eachSum(2, [&](Value row, const Strip &strip, size_t first) {
        writeView(target, {row}, strip, sum->vectorOf(ArrayRef(sum->sums).slice(first, 2)), false);
      });
    });
  }
  own(result, target);
  if (result.use_empty()) {
    usesLeft[result] = 1;
    useDone(result);
  }
  return true;
}

/// The store of sums that are in registers, each where it is.
bool ThreadLowering::storeOuterSum(tile::StoreOp store) {
  auto it = llvm::find_if(outerSums, [&](const auto &held) { return plan.storeOf(held.first) == store; });
  if (it == outerSums.end())
    return false;
  Value result = it->first;
  const OuterSum *sum = it->second.get();
  accesses[store] = access(store.getTarget(), store.getIndices(), store.getDims(), store.getLimit());
  const Access at = accesses[store];
  {
    Phase phase(*this);
    registers[result] = sum->sums.front();
    Vectors vectors = vectorsOf({store.getValue()}, {store}, [](int64_t width) { return width <= kColumns; });
    onlyIf(sum->live, [&] {
      onTrust(vectors, {}, {}, [&](bool isTrusted) -> SmallVector<Value> {
        int64_t wide = isTrusted ? vectors.width : 0;
        sum->eachSum(wide, [&](Value row, const Strip &strip, size_t first) {
          registers[result] =
              wide ? sum->vectorOf(ArrayRef(sum->sums).slice(first, static_cast<size_t>(wide))) : sum->sums[first];
          Value inside = at.limit && !trusted.contains(store) ? inBounds(add(at.row, row), at.limit) : Value();
          onlyIf(inside, [&] {
            startStrip();
            writeArgument(store, {row}, strip, eval(store.getValue(), {row}, strip));
            startStrip();
          });
        });
        return {};
      });
    });
    registers.erase(result);
  }
  releaseOperands(store);
  return true;
}
