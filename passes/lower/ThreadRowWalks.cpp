//===- ThreadRowWalks.cpp - rows whose elements stay with their threads --------------------------------------------===//
//
//   for rows r, R at a time:  dx[r] = f(x[r], dy[r], sum of x[r]^2, sum of x[r] dy[r]);  dw += g(x[r], dy[r])
//
// A formula of rows that needs sums along them, and may add up over all rows, is computed without a tile in shared memory: each element of a row
// belongs to one thread, from its load to its store, and so does the sum of its column over all rows. Neighbouring threads add up what they have of
// a row; only rows of several warps meet in shared memory, with all sums that can be known at a time behind one barrier. What the next iteration reads
// is asked for before this one computes. Without a loop rows may come from where numbers say, or go there.
//
// A thread has 8 neighbouring elements, whatever their type: in which order a row is added up follows from its length alone.
//
//===-------------------------------------------------------------------------------------------------------------===//
#include "passes/lower/ThreadLowering.h"

using namespace mlir;
using namespace braid;
using namespace braid::lower;

/// Neighbouring elements of a thread; threads of a row and of a block; elements of a tile that a thread has registers for.
static constexpr int64_t kEach = 8, kRowThreads = 256, kBlockThreads = 128, kMostElements = 16;
/// Words of 32 bits that a thread asks for an iteration ahead, and where no row waits for other warps: more would be too many registers for that.
static constexpr int64_t kMostAhead = 24, kMostAheadAlone = 8;

struct ThreadLowering::RowWalk {
  RowWalk(Block &body, scf::ForOp loop) : body(&body), loop(loop) {}
  Block *body;
  scf::ForOp loop; ///< null: the kernel itself is the one iteration
  SmallVector<int64_t> shape; ///< rows, features
  int64_t lanes = 0, threads = 0, strips = 0,
          rows = 0; ///< of a row; of a block; of a thread: vectors of a row, and rows
  SmallVector<tile::LoadOp> loads, numbers; ///< of elements; of a number for each row
  SmallVector<memref::LoadOp> scalars;
  SmallVector<tile::StoreOp> stores;
  SmallVector<Value>
      outside; ///< what does not depend on the row, and is known before the loop: loads, or numbers of runs
  SmallVector<tile::ReduceOp> carried; ///< over rows: what each result of the loop adds up
  SmallVector<SmallVector<tile::ReduceOp>> rounds; ///< sums along rows; each needs some of those before it

  /// How the elements of a tile are those of rows: at a place of each, one for each run along the last dimension or for each row, or, in all
  /// rows alike, at a place or for each run.
  enum class Kind : uint8_t { full, run, row, column, columnRun };
  bool collect();
  bool collectPlaces();
  std::optional<int64_t> visit(Value tile, Kind kind); ///< how many rounds it needs
  std::optional<int64_t> visitOp(Operation *op, Value tile, Kind kind);
  bool isInside(Value v) const { return v.getParentBlock() == body; }
  int64_t groups() const { return threads / lanes; }
  /// Threads that share a run along the last dimension; whether a thread has several vectors of it.
  int64_t runLanes() const { return std::min(shape.back() / kEach, lanes); }
  bool joined() const { return shape.back() / kEach > lanes; }
  bool meets() const { return !rounds.empty() && runLanes() > kWarp; }
  SmallVector<Value> insideLimits();

  DenseMap<std::pair<Value, unsigned>, std::optional<int64_t>> known;
};

std::optional<int64_t> ThreadLowering::RowWalk::visit(Value tile, Kind kind) {
  if (!isTile(tile))
    return 0;
  ArrayRef<int64_t> own = tileType(tile).getShape(), all = shape;
  bool fits = false;
  switch (kind) {
  case Kind::full: fits = own == all; break;
  case Kind::run: fits = own == all.drop_back(); break;
  case Kind::row: fits = own == all.take_front(); break;
  case Kind::column: fits = own.size() < all.size() && own == all.take_back(own.size()); break;
  case Kind::columnRun: fits = own.size() < all.size() - 1 && own == all.drop_back().take_back(own.size()); break;
  }
  Operation *op = tile.getDefiningOp();
  if (!fits || !op)
    return std::nullopt;
  auto key = std::pair(tile, static_cast<unsigned>(kind));
  if (auto it = known.find(key); it != known.end())
    return it->second;
  std::optional<int64_t> needs = visitOp(op, tile, kind);
  return known[key] = needs;
}

std::optional<int64_t> ThreadLowering::RowWalk::visitOp(Operation *op, Value tile, Kind kind) {
  if (auto constant = dyn_cast<arith::ConstantOp>(op))
    return isa<SplatElementsAttr>(constant.getValue()) ? std::optional<int64_t>(0) : std::nullopt;
  if (isa<tile::IotaOp>(op))
    return kind == Kind::full || (kind == Kind::row && shape.size() == 2) ? std::optional<int64_t>(0) : std::nullopt;
  if (auto load = dyn_cast<tile::LoadOp>(op)) {
    bool contiguous = load.getDims().back() == static_cast<int64_t>(load.getIndices().size()) - 1;
    Type element = tileType(tile).getElementType();
    if (!isInside(tile) || kind == Kind::column) {
      if (kind != Kind::column || (loop && isInside(tile)) || load.getLimit() || load.getRows() || !contiguous ||
          bytesOf(element) > 4)
        return std::nullopt;
      if (!llvm::is_contained(outside, tile))
        outside.push_back(tile);
      return 0;
    }
    if (kind == Kind::full && contiguous && bytesOf(element) <= 4) {
      std::optional<int64_t> needs = load.getRows() ? visit(load.getRows(), Kind::row) : 0;
      return needs == 0 ? needs : std::nullopt;
    }
    if (kind != Kind::run && kind != Kind::row)
      return std::nullopt;
    if (!load.getRows())
      return 0;
    bool alone = kind == Kind::row || shape.size() == 2;
    return alone && visit(load.getRows(), Kind::row) == 0 ? std::optional<int64_t>(0) : std::nullopt;
  }
  if (auto reduce = dyn_cast<tile::ReduceOp>(op)) {
    auto source = tileType(reduce.getSource());
    bool runs = kind == Kind::run || (kind == Kind::row && shape.size() == 2);
    if (!runs || !isInside(tile) || static_cast<int64_t>(reduce.getAxis()) != source.getRank() - 1 ||
        storageType(source.getElementType()) != source.getElementType() || bytesOf(source.getElementType()) > 4)
      return std::nullopt;
    std::optional<int64_t> before = visit(reduce.getSource(), Kind::full);
    if (!before)
      return std::nullopt;
    if (static_cast<int64_t>(rounds.size()) <= *before)
      rounds.resize(*before + 1);
    if (!llvm::is_contained(rounds[*before], reduce))
      rounds[*before].push_back(reduce);
    return *before + 1;
  }
  if (auto expand = dyn_cast<tile::ExpandOp>(op)) {
    int64_t axis = expand.getAxis(), last = tileType(tile).getRank() - 1;
    if (kind == Kind::column && axis == last && loop) {
      auto load = expand.getSource().getDefiningOp<tile::LoadOp>();
      bool known = load && !isInside(load.getResult()) && !load.getLimit() && !load.getRows();
      if (known && !llvm::is_contained(outside, tile))
        outside.push_back(tile);
      return known ? std::optional<int64_t>(0) : std::nullopt;
    }
    if (kind == Kind::full && axis == last)
      return visit(expand.getSource(), Kind::run);
    if (kind == Kind::full && axis == 0)
      return visit(expand.getSource(), Kind::column);
    if (kind == Kind::run && axis == last)
      return visit(expand.getSource(), Kind::row);
    return std::nullopt;
  }
  if (auto broadcast = dyn_cast<vector::BroadcastOp>(op)) {
    if (!isTile(broadcast.getSource()))
      return 0;
    if (kind == Kind::full || kind == Kind::column)
      return visit(broadcast.getSource(), Kind::column);
    return kind == Kind::run ? visit(broadcast.getSource(), Kind::columnRun) : std::nullopt;
  }
  if (!OpTrait::hasElementwiseMappableTraits(op))
    return std::nullopt;
  int64_t needs = 0;
  for (Value operand : op->getOperands()) {
    std::optional<int64_t> one = visit(operand, kind);
    if (!one)
      return std::nullopt;
    needs = std::max(needs, *one);
  }
  return needs;
}

/// The loads and stores of an iteration are those of its own rows.
bool ThreadLowering::RowWalk::collectPlaces() {
  std::optional<int64_t> step = loop ? getConstantIntValue(loop.getStep()) : std::nullopt;
  if (loop && step != shape.front())
    return false;
  auto follows = [&](ValueRange indices, ArrayRef<int64_t> dims, Value limit, bool elsewhere) {
    if (!loop)
      return true;
    if (limit && isInside(limit))
      return false;
    return llvm::all_of(llvm::enumerate(indices), [&](auto each) {
      bool isRow = !elsewhere && static_cast<int64_t>(each.index()) == dims.front();
      return isRow ? each.value() == loop.getInductionVar() : !isInside(each.value());
    });
  };
  return llvm::all_of(loads,
                      [&](tile::LoadOp load) {
                        return follows(load.getIndices(), load.getDims(), load.getLimit(), bool(load.getRows()));
                      }) &&
         llvm::all_of(
             numbers,
             [&](tile::LoadOp load) { return follows(load.getIndices(), load.getDims(), load.getLimit(), false); }) &&
         llvm::all_of(stores, [&](tile::StoreOp store) {
           return follows(store.getIndices(), store.getDims(), store.getLimit(), false);
         });
}

/// Tiles that say of each row whether it stands before the limit that loads have, too.
SmallVector<Value> ThreadLowering::RowWalk::insideLimits() {
  SmallVector<Value> tiles;
  for (auto compare : body->getOps<arith::CmpIOp>()) {
    auto all = compare.getRhs().getDefiningOp<vector::BroadcastOp>();
    auto iota = compare.getLhs().getDefiningOp<tile::IotaOp>();
    auto number = all ? all.getSource().getDefiningOp<arith::IndexCastOp>() : nullptr;
    auto left = number && loop ? number.getIn().getDefiningOp<arith::SubIOp>() : nullptr;
    bool ofRows = left && left.getRhs() == loop.getInductionVar() && iota && iota.getAxis() == 0;
    if (ofRows && compare.getPredicate() == arith::CmpIPredicate::slt &&
        llvm::any_of(loads, [&](tile::LoadOp load) { return load.getLimit() == left.getLhs(); }))
      tiles.push_back(compare.getResult());
  }
  return tiles;
}
bool ThreadLowering::RowWalk::collect() {
  for (Operation &inside : *body) {
    if (auto store = dyn_cast<tile::StoreOp>(inside)) {
      ArrayRef<int64_t> own = tileType(store.getValue()).getShape();
      if (store.getRows() && loop)
        return false;
      stores.push_back(store);
      if (own.size() > shape.size())
        shape.assign(own.begin(), own.end());
    } else if (auto load = dyn_cast<tile::LoadOp>(inside)) {
      ArrayRef<int64_t> own = tileType(load.getResult()).getShape();
      if (own.size() > shape.size())
        shape.assign(own.begin(), own.end());
    } else if (auto number = dyn_cast<memref::LoadOp>(inside); number && !loop) {
      scalars.push_back(number);
    } else if (!inside.hasTrait<OpTrait::IsTerminator>() &&
               (inside.getNumRegions() != 0 || !isMemoryEffectFree(&inside) ||
                (inside.getNumResults() != 1 && !isa<tile::ProgramOp>(inside)))) {
      return false;
    } else if (inside.getNumResults() == 1 && !isTile(inside.getResult(0)) &&
               (llvm::any_of(inside.getOperands(), isTile) ||
                !isa<arith::ArithDialect, math::MathDialect, memref::MemRefDialect, tile::TileDialect>(
                    inside.getDialect()))) {
      return false;
    }
  }
  if (shape.size() < 2)
    return false;
  int64_t features = ShapedType::getNumElements(ArrayRef(shape).drop_front()), run = shape.back() / kEach;
  if (shape.back() % kEach != 0 || !llvm::isPowerOf2_64(shape.front()))
    return false;
  lanes = std::min(features / kEach, kRowThreads);
  threads = std::min(shape.front() * lanes, std::max(lanes, kBlockThreads));
  if (!llvm::isPowerOf2_64(lanes) || threads < kWarp || features / kEach % lanes != 0 ||
      !(run <= lanes ? llvm::isPowerOf2_64(run) : shape.back() == features))
    return false;
  strips = features / kEach / lanes;
  rows = shape.front() / groups();
  if (strips * rows * kEach > kMostElements)
    return false;
  for (Operation &inside : *body)
    if (auto load = dyn_cast<tile::LoadOp>(inside))
      (tileType(load.getResult()).getShape() == ArrayRef(shape) ? loads : numbers).push_back(load);
  if (!collectPlaces())
    return false;
  for (tile::StoreOp store : stores) {
    bool full = tileType(store.getValue()).getShape() == ArrayRef(shape);
    Type element = tileType(store.getValue()).getElementType();
    bool contiguous = store.getDims().back() == static_cast<int64_t>(store.getIndices().size()) - 1;
    if (!visit(store.getValue(), full ? Kind::full : Kind::run) || (full && (!contiguous || bytesOf(element) > 4)))
      return false;
    if (store.getRows() && (!full || visit(store.getRows(), Kind::row) != 0))
      return false;
  }
  if (loop)
    for (auto [yielded, argument] : llvm::zip(loop.getYieldedValues(), loop.getRegionIterArgs())) {
      auto sum = yielded.getDefiningOp<arith::AddFOp>();
      if (!sum || !isInside(yielded) || !argument.hasOneUse() || *argument.user_begin() != sum)
        return false;
      auto reduce = (sum.getLhs() == argument ? sum.getRhs() : sum.getLhs()).getDefiningOp<tile::ReduceOp>();
      if (!reduce || !isInside(reduce.getResult()) || reduce.getAxis() != 0 ||
          reduce.getKind() != tile::ReduceKind::add || !visit(reduce.getSource(), Kind::full) ||
          !tileType(yielded).getElementType().isF32())
        return false;
      carried.push_back(reduce);
    }
  // Rows without sums are other lowerings' work, but for one that numbers choose, or whose places they are: they would lie in shared memory.
  bool chosen = !loop && (llvm::count_if(loads, [](tile::LoadOp load) { return bool(load.getRows()); }) == 1 ||
                          llvm::any_of(stores, [](tile::StoreOp store) { return bool(store.getRows()); }));
  return chosen || !rounds.empty() || !carried.empty();
}

std::optional<ThreadLowering::RowWalk> ThreadLowering::rowWalkOf(Block &body, scf::ForOp loop) {
  RowWalk walk(body, loop);
  if (!walk.collect())
    return std::nullopt;
  // What is written may be what is read only at the same place.
  for (tile::StoreOp store : walk.stores) {
    auto apart = [&](tile::LoadOp load) {
      bool same = !load.getRows() && load.getIndices() == store.getIndices() && load.getDims() == store.getDims() &&
                  load.getType() == store.getValue().getType() && load->isBeforeInBlock(store);
      return same || !mayShare(load.getSource(), store.getTarget());
    };
    bool ordered = llvm::all_of(walk.loads, apart) && llvm::all_of(walk.numbers, apart) &&
                   llvm::none_of(walk.scalars,
                                 [&](memref::LoadOp load) { return mayShare(load.getMemRef(), store.getTarget()); }) &&
                   llvm::none_of(walk.outside, [&](Value tile) {
                     if (auto expand = tile.getDefiningOp<tile::ExpandOp>())
                       tile = expand.getSource();
                     return mayShare(tile.getDefiningOp<tile::LoadOp>().getSource(), store.getTarget());
                   });
    bool once =
        store.getRows() || llvm::none_of(walk.stores, [&](tile::StoreOp other) {
          return other != store && other.getTarget() == store.getTarget() && other.getIndices() == store.getIndices();
        });
    if (!ordered || !once)
      return std::nullopt;
  }
  return walk;
}

/// The kernel's rows, if it has any, decide how many threads it has.
void ThreadLowering::planRowWalk() {
  bool products = false;
  SmallVector<scf::ForOp> loops;
  kernel.walk([&](Operation *op) {
    products |= isa<tile::DotOp, tile::SolveOp>(op);
    if (auto loop = dyn_cast<scf::ForOp>(op))
      loops.push_back(loop);
  });
  if (products || threads < kWarp || loops.size() > 1)
    return;
  std::optional<RowWalk> walk = loops.empty() ? rowWalkOf(kernel.front(), {})
                                : loops.front()->getParentOp() == kernel
                                    ? rowWalkOf(*loops.front().getBody(), loops.front())
                                    : std::nullopt;
  if (!walk)
    return;
  rowWalk = std::make_shared<RowWalk>(std::move(*walk));
  threads = rowWalk->threads;
}

/// Of a walk while it is lowered.
struct ThreadLowering::RowState {
  /// What all rows read alike, at a place.
  struct Known {
    Value tile;
    SmallVector<Value> lead;
    Strip strip;
  };
  RowWalk &walk;
  int64_t groups, runLanes, warps; ///< of a block; threads of a run; warps of a row
  Value group, inRow; ///< this thread's, and its place there
  RowPlaces any = {}; ///< in a row
  SmallVector<RowPlaces> all = {}; ///< of this thread's rows
  Buffer *parts =
      nullptr; ///< a place for the parts of each round; two, in turn, where there is but one and rows follow each other
  int64_t partsEach = 0;
  SmallVector<Operation *> accessed = {}; ///< loads and stores of elements
  SmallVector<Known> wanted = {};
  SmallVector<Value> shared = {}; ///< their values
};

/// Of the thread's rows.
ThreadLowering::RowPlaces ThreadLowering::rowOf(const RowState &state, Value number) {
  Value row = state.groups == 1 ? number : add(state.group, mul(number, constant(state.groups)));
  RowPlaces places = state.any;
  for (RowPlace &at : places)
    at.lead.insert(at.lead.begin(), row);
  return places;
}

/// Where the run of a place stands in a tile of one number for each.
std::pair<ArrayRef<Value>, Strip> ThreadLowering::runOf(const RowState &state, const RowPlace &place) {
  return {ArrayRef<Value>(place.lead).drop_back(), Strip{place.lead.back(), 0, state.walk.shape.back(), 0, 1}};
}

/// Scalars and accesses of the iteration `number`.
void ThreadLowering::placeRows(RowState &state, Value number) {
  if (state.walk.loop)
    scalars.map(state.walk.loop.getInductionVar(), number);
  for (Operation &inside : state.walk.body->without_terminator()) {
    if (auto load = dyn_cast<tile::LoadOp>(inside))
      accesses[load] = access(load.getSource(), load.getIndices(), load.getDims(), load.getLimit());
    else if (auto store = dyn_cast<tile::StoreOp>(inside))
      accesses[store] = access(store.getTarget(), store.getIndices(), store.getDims(), store.getLimit());
    else if (inside.getNumResults() != 1 || !isTile(inside.getResult(0)))
      if (failed(lowerScalar(&inside)))
        failedOnce = true;
  }
}

void ThreadLowering::readShared(RowState &state) {
  for (Value tile : state.walk.outside)
    for (const RowPlace &at : state.any)
      state.wanted.push_back(
          {tile, SmallVector<Value>(ArrayRef(at.lead).take_back(tileType(tile).getRank() - 1)), at.strip});
  if (!state.wanted.empty()) {
    SmallVector<Type> types;
    for (const RowState::Known &each : state.wanted)
      types.push_back(typed(tileType(each.tile).getElementType(), kEach));
    Vectors vectors{kEach, {}};
    for (Value tile : state.walk.outside)
      if (tile.getDefiningOp<tile::LoadOp>())
        vectors.accesses.insert(tile.getDefiningOp());
    state.shared = onTrust(vectors, {}, types, [&](bool) {
      SmallVector<Value> values;
      for (const RowState::Known &each : state.wanted)
        values.push_back(eval(each.tile, each.lead, each.strip));
      return values;
    });
  }
}

/// [load][row][strip]
SmallVector<Value> ThreadLowering::loadRows(ArrayRef<RowPlaces> rows, ArrayRef<tile::LoadOp> loads) {
  SmallVector<Value> values;
  for (tile::LoadOp load : loads)
    for (const RowPlaces &row : rows)
      for (const RowPlace &at : row)
        values.push_back(eval(load.getResult(), at.lead, at.strip));
  return values;
}

/// All sums of a round, of these rows.
void ThreadLowering::addUpRows(RowState &state, size_t round, ArrayRef<RowPlaces> rows, Value stage,
                               function_ref<void()> meanwhile) {
  MutableArrayRef<tile::ReduceOp> sums = state.walk.rounds[round];
  SmallVector<Value> totals; // [sum][row][run]
  for (tile::ReduceOp op : sums)
    for (const RowPlaces &row : rows) {
      SmallVector<Value> vectors;
      for (const RowPlace &at : row) {
        Value next = eval(op.getSource(), at.lead, at.strip);
        if (state.walk.joined() && !vectors.empty())
          vectors.back() = combine(op.getKind(), vectors.back(), next);
        else
          vectors.push_back(next);
      }
      for (Value vector : vectors)
        totals.push_back(
            allLanes(op.getKind(), horizontal(op.getKind(), vector), std::min<int64_t>(state.runLanes, kWarp)));
    }
  if (state.runLanes > kWarp) {
    // [total][group][warp of a row]
    int64_t each = state.groups * state.warps, runWarps = state.runLanes / kWarp;
    Value base = add(mul(stage, constant(state.partsEach)), mul(divide(thread, kWarp), constant(1)));
    Value first = mul(divide(divide(thread, kWarp), runWarps), constant(runWarps));
    auto type = [&](size_t i) { return totals[i].getType(); };
    auto viewAs = [&](Type element) {
      View view{state.parts->memref, {constant(1)}, state.parts};
      if (!element.isF32()) {
        auto space = cast<MemRefType>(this->shared.getType()).getMemorySpace();
        view.memref = memref::ViewOp::create(
            b, loc, MemRefType::get({state.parts->capacity}, element, MemRefLayoutAttrInterface(), space), this->shared,
            constant(state.parts->offset), ValueRange());
      }
      return view;
    };
    onlyIf(less(lane, 1), [&] {
      for (size_t i = 0; i < totals.size(); ++i)
        writeView(viewAs(type(i)), {}, {add(base, static_cast<int64_t>(i) * each), 0, 0, 0, 1}, totals[i], false);
    });
    if (meanwhile)
      meanwhile();
    gpu::BarrierOp::create(b, loc);
    int64_t perSum = static_cast<int64_t>(totals.size() / sums.size());
    for (size_t i = 0; i < totals.size(); ++i) {
      Value from = add(add(mul(stage, constant(state.partsEach)), first), static_cast<int64_t>(i) * each), sum;
      Type element = type(i);
      Value all = readView(viewAs(element), element, {}, {from, 0, 0, runWarps, runWarps});
      for (int64_t w = 0; w < runWarps; ++w) {
        Value part = vector::ExtractOp::create(b, loc, all, w);
        sum = sum ? combine(sums[i / perSum].getKind(), sum, part) : part;
      }
      totals[i] = sum;
    }
  }
  size_t next = 0;
  for (tile::ReduceOp op : sums)
    for (const RowPlaces &row : rows) {
      for (const RowPlace &at : row) {
        auto [lead, strip] = runOf(state, at);
        remember(op.getResult(), lead, strip, totals[next]);
        if (!state.walk.joined())
          ++next;
      }
      if (state.walk.joined())
        ++next;
    }
}

/// What needs sums, or what needs none: that is on its way to memory while sums wait for what they read.
void ThreadLowering::storeRows(RowState &state, ArrayRef<RowPlaces> rows, bool ofSums) {
  SmallVector<std::function<void()>> writes;
  // Numbers of rows are asked for before anything is written, which no compiler would see them past.
  for (tile::LoadOp number : state.walk.numbers)
    for (const RowPlaces &row : rows)
      if (VectorType type = tileType(number.getResult()); !ofSums && type.getRank() == 1)
        (void)eval(number.getResult(), {}, {row.front().lead.front(), 0, type.getDimSize(0), 0, 1});
  for (const RowPlaces &row : rows)
    for (tile::StoreOp store : state.walk.stores)
      for (const RowPlace &at : row) {
        bool full = tileType(store.getValue()).getShape() == ArrayRef(state.walk.shape);
        if ((state.walk.visit(store.getValue(), full ? RowWalk::Kind::full : RowWalk::Kind::run) != 0) != ofSums)
          continue;
        const Access &to = accesses[store];
        if (!full && state.walk.joined() && &at != row.begin())
          continue;
        auto [lead, strip] = full ? std::pair(ArrayRef<Value>(at.lead), at.strip) : runOf(state, at);
        Value value = eval(store.getValue(), lead, strip), condition;
        if (!full)
          condition = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, remainder(state.inRow, state.runLanes),
                                            constant(0));
        bool guarded = !lead.empty() && to.limit && !trusted.contains(store);
        if (guarded || store.getRows()) {
          Value inside = store.getRows() ? isWritten(store, rowNumber(store.getRows(), lead.front()))
                                         : inBounds(add(to.row, at.lead.front()), to.limit);
          condition = condition ? arith::AndIOp::create(b, loc, condition, inside).getResult() : inside;
        }
        writes.push_back([=, this] { onlyIf(condition, [&] { writeArgument(store, lead, strip, value); }); });
        if (!ofSums)
          writes.pop_back_val()();
      }
  for (const auto &write : writes)
    write();
}

/// What these rows add to the sums over rows; stores what they are to become.
SmallVector<Value> ThreadLowering::computeRows(RowState &state, ArrayRef<RowPlaces> rows, ArrayRef<Value> loaded,
                                               Value stage, function_ref<void()> meanwhile) {
  for (auto [each, value] : llvm::zip_equal(state.wanted, state.shared))
    remember(each.tile, each.lead, each.strip, value);
  size_t next = 0;
  for (tile::LoadOp load : state.walk.loads)
    for (const RowPlaces &row : rows)
      for (const RowPlace &at : row)
        remember(load.getResult(), at.lead, at.strip, loaded[next++]);
  SmallVector<Value> sums(state.walk.carried.size() * state.walk.strips);
  auto part = [&](ArrayRef<RowPlaces> rows) {
    storeRows(state, rows, /*ofSums=*/false);
    for (size_t round = 0; round < state.walk.rounds.size(); ++round)
      addUpRows(state, round, rows, state.walk.rounds.size() == 1 ? stage : constant(static_cast<int64_t>(round)),
                round + 1 == state.walk.rounds.size() ? meanwhile : nullptr);
    for (auto [i, reduce] : llvm::enumerate(state.walk.carried))
      for (const RowPlaces &row : rows)
        for (auto [s, at] : llvm::enumerate(row)) {
          Value value = eval(reduce.getSource(), at.lead, at.strip), &sum = sums[i * state.walk.strips + s];
          sum = sum ? combine(tile::ReduceKind::add, sum, value) : value;
        }
    storeRows(state, rows, /*ofSums=*/true);
  };
  if (state.walk.meets()) { // at one barrier for all rows
    part(rows);
    return sums;
  }
  for (const RowPlaces &row : rows) { // one after the other, fewer numbers are alive
    if (meanwhile && &row == &rows.back())
      meanwhile();
    part(row);
  }
  return sums;
}

/// The same where nothing is trusted: seldom, so in little code, row by row.
SmallVector<Value> ThreadLowering::computeEachRow(RowState &state, Value stage) {
  SmallVector<Value> nothing;
  for (tile::ReduceOp reduce : state.walk.carried)
    nothing.append(state.walk.strips, zero(typed(tileType(reduce.getSource()).getElementType(), kEach)));
  return repeat(0, state.walk.rows, 1, nothing, [&](Value number, ValueRange before) {
    startStrip();
    RowPlaces row = rowOf(state, number);
    SmallVector<Value> sums = computeRows(state, row, loadRows(row, state.walk.loads),
                                          remainder(add(mul(stage, constant(state.walk.rows)), number), 2), nullptr);
    for (auto [sum, other] : llvm::zip_equal(sums, before))
      sum = combine(tile::ReduceKind::add, other, sum);
    startStrip();
    return sums;
  });
}

/// Sums over rows: what a thread has of each column, behind all rows of the loop.
SmallVector<Value> ThreadLowering::walkRows(RowState &state) {
  RowWalk &walk = state.walk;
  scf::ForOp op = walk.loop;
  Value lo = scalars.lookup(op.getLowerBound()), hi = scalars.lookup(op.getUpperBound());
  int64_t step = walk.shape.front();
  SmallVector<Value> carried;
  startStrip();
  for (Value init : op.getInitArgs())
    for (const RowPlace &at : state.any) {
      // One group begins with it, the others with nothing.
      Value begin = eval(init, at.lead, at.strip);
      Attribute constantValue;
      bool nothing = matchPattern(begin, m_Constant(&constantValue)) && isa<SplatElementsAttr>(constantValue) &&
                     cast<SplatElementsAttr>(constantValue).getSplatValue<APFloat>().isZero();
      if (state.groups > 1 && !nothing)
        begin = arith::SelectOp::create(b, loc, less(state.group, 1), begin, zero(begin.getType()));
      carried.push_back(begin);
    }
  startStrip();
  // Blocks of rows that are all there, read and written 16 bytes at a time.
  placeRows(state, lo);
  Value end = hi;
  for (Operation *access : state.accessed)
    if (Value limit = accesses[access].limit; limit && end != limit)
      end = arith::MinSIOp::create(b, loc, end, limit);
  Value count = arith::DivUIOp::create(
      b, loc, arith::MaxSIOp::create(b, loc, arith::SubIOp::create(b, loc, end, lo), constant(0)), constant(step));
  // Of the first block: places, and that it is there. With none there is nothing to trust.
  Value condition = isTrusted(state.accessed, kEach);
  if (condition)
    count = arith::SelectOp::create(b, loc, condition, count, constant(0));
  Value middle = add(lo, mul(count, constant(step)));
  SmallVector<Type> types(ValueRange(carried).getTypes());
  auto some =
      scf::IfOp::create(b, loc, types, arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ugt, count, constant(0)),
                        /*withElseRegion=*/true);
  {
    OpBuilder::InsertionGuard guard(b);
    auto into = [&](Block &block) {
      if (types.empty())
        b.setInsertionPoint(block.getTerminator());
      else
        b.setInsertionPointToEnd(&block);
    };
    into(*some.thenBlock());
    SmallVector<Value> after = walkWhole(state, lo, middle, carried);
    if (!types.empty()) {
      scf::YieldOp::create(b, loc, after);
      into(*some.elseBlock());
      scf::YieldOp::create(b, loc, carried);
    }
  }
  SmallVector<Value> whole(some.getResults());
  if (walk.meets() && walk.rounds.size() == 1) // places in turn begin anew
    gpu::BarrierOp::create(b, loc);
  return repeat(middle, hi, constant(step), whole, [&](Value at, ValueRange now) {
    startStrip();
    placeRows(state, at);
    SmallVector<Value> sums = addPairs(now, computeEachRow(state, divide(arith::SubIOp::create(b, loc, at, lo), step)));
    startStrip();
    return sums;
  });
}

SmallVector<Value> ThreadLowering::addPairs(ValueRange carried, ValueRange sums) {
  return llvm::map_to_vector(llvm::zip_equal(carried, sums), [&](auto pair) {
    return combine(tile::ReduceKind::add, std::get<0>(pair), std::get<1>(pair));
  });
}

/// Blocks [lo, end) of rows that are all there; the next one's loads are asked for before a block is computed.
SmallVector<Value> ThreadLowering::walkWhole(RowState &state, Value lo, Value end, ArrayRef<Value> carried) {
  RowWalk &walk = state.walk;
  int64_t step = walk.shape.front(), words = 0;
  // The loads that are asked for an iteration ahead come first.
  auto *split = std::stable_partition(walk.loads.begin(), walk.loads.end(), [&](tile::LoadOp load) {
    int64_t more = bytesOf(tileType(load.getResult()).getElementType()) * kEach * walk.strips * walk.rows / 4;
    bool ahead = !load.getRows() && words + more <= (walk.meets() ? kMostAhead : kMostAheadAlone);
    words += ahead ? more : 0;
    return ahead;
  });
  ArrayRef<tile::LoadOp> early(walk.loads.begin(), split), late(split, walk.loads.end());
  for (Operation *op : state.accessed) {
    auto load = dyn_cast<tile::LoadOp>(op);
    Value tile = load ? load.getResult() : cast<tile::StoreOp>(op).getValue();
    trusted[op] = llvm::Align(std::min<int64_t>(16, kEach * bytesOf(tileType(tile).getElementType())));
  }
  SmallVector<Value> inside = walk.insideLimits();
  for (Value tile : inside)
    registers[tile] =
        arith::ConstantOp::create(b, loc, DenseElementsAttr::get(VectorType::get({kEach}, b.getI1Type()), true));
  // bf16 travels as words, two in each.
  auto packed = [&](Value value) -> Value {
    auto vector = cast<VectorType>(value.getType());
    return vector.getElementType().isBF16()
               ? vector::BitCastOp::create(b, loc, VectorType::get({kEach / 2}, b.getI32Type()), value).getResult()
               : value;
  };
  SmallVector<Value> first(carried), loaded;
  placeRows(state, lo);
  startStrip();
  loaded = loadRows(state.all, early);
  for (Value value : loaded)
    first.push_back(packed(value));
  Value last = arith::SubIOp::create(b, loc, end, constant(step));
  SmallVector<Value> after = repeat(lo, end, constant(step), first, [&](Value at, ValueRange now) {
    SmallVector<Value> values, next;
    startStrip();
    for (auto [value, before] : llvm::zip_equal(now.drop_front(carried.size()), loaded))
      values.push_back(value.getType() == before.getType()
                           ? Value(value)
                           : vector::BitCastOp::create(b, loc, before.getType(), value).getResult());
    placeRows(state, at);
    llvm::append_range(values, loadRows(state.all, late));
    auto askNext = [&] {
      auto current = std::exchange(cache, {});
      placeRows(state, arith::MinSIOp::create(b, loc, add(at, step), last));
      for (Value value : loadRows(state.all, early))
        next.push_back(packed(value));
      placeRows(state, at);
      cache = std::move(current);
    };
    Value stage = remainder(divide(arith::SubIOp::create(b, loc, at, lo), step), 2);
    SmallVector<Value> sums =
        addPairs(now.take_front(carried.size()), computeRows(state, state.all, values, stage, askNext));
    startStrip();
    llvm::append_range(sums, next);
    return sums;
  });
  for (Operation *op : state.accessed)
    trusted.erase(op);
  for (Value tile : inside)
    registers.erase(tile);
  after.resize(carried.size());
  return after;
}

/// The kernel itself is the one iteration.
void ThreadLowering::walkOnce(RowState &state) {
  Vectors vectors{kEach, {}};
  vectors.accesses.insert(state.accessed.begin(), state.accessed.end());
  onTrust(vectors, {}, {}, [&](bool trust) -> SmallVector<Value> {
    if (trust)
      computeRows(state, state.all, loadRows(state.all, state.walk.loads), constant(0), nullptr);
    else
      computeEachRow(state, constant(0));
    return {};
  });
}

bool ThreadLowering::lowerRowWalk() {
  RowWalk &walk = *rowWalk;
  int64_t groups = walk.groups();
  Value group = divide(thread, walk.lanes), inRow = remainder(thread, walk.lanes);
  RowState state{walk, groups, walk.runLanes(), std::max<int64_t>(walk.lanes / kWarp, 1), group, inRow};
  SmallVector<int64_t> counts(ArrayRef(walk.shape).drop_front());
  counts.back() /= kEach;
  for (int64_t s = 0; s < walk.strips; ++s) {
    SmallVector<Value> lead = coordinates(add(inRow, s * walk.lanes), counts);
    Value column = mul(lead.pop_back_val(), constant(kEach));
    state.any.push_back({std::move(lead), {column, 0, walk.shape.back(), kEach, kEach}});
  }
  for (int64_t r = 0; r < walk.rows; ++r)
    state.all.push_back(rowOf(state, constant(r)));

  size_t most = 0;
  for (ArrayRef<tile::ReduceOp> round : walk.rounds)
    most = std::max(most, round.size());
  int64_t runs = walk.joined() ? 1 : walk.strips,
          stages = std::max<int64_t>(static_cast<int64_t>(walk.rounds.size()), walk.loop || walk.rows > 1 ? 2 : 1);
  state.partsEach = static_cast<int64_t>(most) * walk.shape.front() * runs * state.warps;
  if (walk.meets())
    state.parts = allocate(b.getF32Type(), state.partsEach * stages, 16);
  SmallVector<View> results, partial; // of all groups, of each
  if (walk.loop)
    for (Value result : walk.loop.getResults()) {
      VectorType type = tileType(result);
      results.push_back(viewOf(allocate(type), type));
      if (groups == 1)
        continue;
      SmallVector<int64_t> each(type.getShape());
      each.insert(each.begin(), groups);
      auto all = VectorType::get(each, type.getElementType());
      partial.push_back(viewOf(allocate(all), all));
    }
  state.accessed.append(walk.loads.begin(), walk.loads.end());
  for (tile::StoreOp store : walk.stores)
    if (tileType(store.getValue()).getShape() == ArrayRef(walk.shape))
      state.accessed.push_back(store);
  {
    Phase phase(*this);
    if (!walk.loop)
      placeRows(state, {});
    readShared(state);
    if (!walk.loop) {
      walkOnce(state);
    } else {
      SmallVector<Value> carried = walkRows(state);
      ArrayRef<View> targets = groups == 1 ? results : partial;
      for (auto [i, target] : llvm::enumerate(targets))
        for (auto [s, at] : llvm::enumerate(state.any)) {
          SmallVector<Value> lead(at.lead);
          if (groups > 1)
            lead.insert(lead.begin(), group);
          writeView(target, lead, at.strip, carried[i * walk.strips + s], false);
        }
    }
  }
  if (walk.loop && groups > 1) {
    Phase phase(*this);
    for (auto [result, source, value] : llvm::zip_equal(results, partial, walk.loop.getResults()))
      addGroups(result, source, tileType(value), groups);
  }
  for (View &view : partial)
    giveBack(view.buffer);
  if (state.parts)
    giveBack(state.parts);
  if (walk.loop) {
    leaveLoop(walk.loop, results);
    if (threads <= kSumThreads)
      lowered->setAttr(kTogetherAttr, b.getI64IntegerAttr(kSumBlocks));
  }
  return true;
}

/// Of a tile of `groups` tiles, in their order.
void ThreadLowering::addGroups(const View &result, const View &source, VectorType type, int64_t groups) {
  eachThread(type.getNumElements(), [&](Value linear) {
    SmallVector<Value> lead = coordinates(linear, type.getShape());
    Strip one{lead.pop_back_val(), 0, type.getShape().back(), 0, 1};
    Value total;
    for (int64_t g = 0; g < groups; ++g) {
      SmallVector<Value> from(lead);
      from.insert(from.begin(), constant(g));
      Value part = readView(source, type.getElementType(), from, one);
      total = total ? combine(tile::ReduceKind::add, total, part) : part;
    }
    writeView(result, lead, one, total, false);
  });
}
