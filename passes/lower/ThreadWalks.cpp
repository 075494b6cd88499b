//===- ThreadWalks.cpp - loops in which every element goes its own way ---------------------------------------------===//
//
//   state = begin;  for n = 0 .. chunks:  m[n] = state;  state = decay[n] * state + x[n]
//
// Where an iteration computes each element from the same element of what it carries and of what it reads, a thread walks
// through the whole loop with elements of its own: they stay in registers, and no thread waits for another one. A scan
// over chunks, sums of rows and of all elements, the optimizer and row-wise ops that walk along memory are such loops.
//
// A formula may also read sums over runs of neighbouring elements (a norm over the channels of a head), of which each lane of a warp, or of a part of
// one, has some: the lanes add up what they have, and each has the sum.
//
//===-------------------------------------------------------------------------------------------------------------===//
#include "passes/lower/ThreadLowering.h"

using namespace mlir;
using namespace braid;
using namespace braid::lower;

/// Elements of all tiles that a thread has at hand at a time, and loads of which it waits for none but the first.
static constexpr int64_t kElements = 128, kLoads = 8;

struct ThreadLowering::Walk {
  scf::ForOp op;
  SmallVector<int64_t> shape = {}; ///< of what is carried and stored
  SmallVector<int64_t> runs = {}; ///< the same elements by runs that are added up, the last dimension; empty: none are
  SmallVector<Operation *> summed = {}; ///< sums over runs, and tiles seen as runs or runs as tiles, in their order
  SmallVector<tile::LoadOp> loads = {};
  SmallVector<tile::StoreOp> stores = {};
  SmallVector<memref::LoadOp> numbers = {};
  llvm::DenseSet<Value> moved = {}; ///< read at other places than the element's own
  SmallVector<Value> ready =
      {}; ///< what the loop carries is combined with, known before it: elements at their own place
  bool apart = true, turns = true; ///< nothing that is read may be what is written; or what another iteration writes
  Vectors vectors = {};

  /// What a formula reads of a tile: the element at its own place, what its run has one of, or anything.
  enum class Place : uint8_t { own, run, away };
  using Places = DenseSet<std::pair<Value, unsigned>>;
  bool collect();
  bool takeRuns(tile::ReduceOp sum);
  bool fitsRuns(int64_t width) const;
  bool isOwn(Value tile, Place place, Places &known);
  bool slides(tile::StoreOp store);
  bool moves(tile::StoreOp store);
  bool isCarried(Value tile, DenseMap<Value, bool> &known);
  void collectReady();
  bool isAlike(Operation *access, ArrayRef<Value> strides, int64_t elements);
  ValueRange yielded() { return op.getBody()->getTerminator()->getOperands(); }
  bool addsUp();
};

/// Whether one element of the result is computed from elements of what the op reads.
static bool isFormula(Operation *op) {
  if (auto constant = dyn_cast<arith::ConstantOp>(op))
    return isa<SplatElementsAttr>(constant.getValue());
  if (auto cast = dyn_cast<vector::ShapeCastOp>(op))
    return TilePlan::isSimpleCast(cast);
  return OpTrait::hasElementwiseMappableTraits(op) ||
         isa<tile::MaskOp, tile::IotaOp, tile::ExpandOp, tile::SliceOp, vector::BroadcastOp>(op);
}

/// Whether something that is carried is the sum over all iterations.
bool ThreadLowering::Walk::addsUp() {
  return llvm::any_of(llvm::zip_equal(yielded(), op.getRegionIterArgs()), [](auto pair) {
    auto sum = std::get<0>(pair).template getDefiningOp<arith::AddFOp>();
    return sum && llvm::is_contained(sum->getOperands(), Value(std::get<1>(pair)));
  });
}

/// All sums are along the last dimension, over runs alike.
bool ThreadLowering::Walk::takeRuns(tile::ReduceOp sum) {
  VectorType source = tileType(sum.getSource());
  Type element = source.getElementType();
  if (!isTile(sum.getResult()) || static_cast<int64_t>(sum.getAxis()) != source.getRank() - 1 ||
      storageType(element) != element || bytesOf(element) > 4)
    return false;
  if (runs.empty())
    runs.assign(source.getShape().begin(), source.getShape().end());
  return ArrayRef(runs) == source.getShape();
}

/// Whether a run is that of neighbouring lanes of one warp, where each has `width` elements; no warp may be there in part.
bool ThreadLowering::Walk::fitsRuns(int64_t width) const {
  if (runs.empty())
    return true;
  int64_t lanes = runs.back() / width;
  return runs.back() % width == 0 && llvm::isPowerOf2_64(static_cast<uint64_t>(lanes)) && lanes <= kWarp &&
         ShapedType::getNumElements(shape) % (width * kWarp) == 0;
}

/// The body is formulas of tiles, loads, stores and scalars.
bool ThreadLowering::Walk::collect() {
  auto takeShape = [&](Value tile) {
    ArrayRef<int64_t> own = tileType(tile).getShape();
    if (shape.empty())
      shape.assign(own.begin(), own.end());
    return ArrayRef(shape) == own;
  };
  for (Value carried : op.getRegionIterArgs())
    if (!isTile(carried) || !takeShape(carried))
      return false;
  for (Operation &inside : op.getBody()->without_terminator()) {
    if (auto store = dyn_cast<tile::StoreOp>(inside)) {
      if (store.getRows() || !takeShape(store.getValue()))
        return false;
      stores.push_back(store);
    } else if (auto load = dyn_cast<tile::LoadOp>(inside)) {
      loads.push_back(load);
    } else if (auto number = dyn_cast<memref::LoadOp>(inside)) {
      numbers.push_back(number);
    } else if (auto sum = dyn_cast<tile::ReduceOp>(inside)) {
      if (!takeRuns(sum))
        return false;
    } else if (inside.getNumRegions() != 0 || inside.getNumResults() != 1 || !isMemoryEffectFree(&inside)) {
      return false;
    } else if (isTile(inside.getResult(0))) {
      if (!isFormula(&inside))
        return false;
    } else if (llvm::any_of(inside.getOperands(), isTile) ||
               !isa<arith::ArithDialect, math::MathDialect, memref::MemRefDialect>(inside.getDialect())) {
      return false;
    }
  }
  if (shape.empty() || (!runs.empty() && ShapedType::getNumElements(runs) != ShapedType::getNumElements(shape)))
    return false;
  Places known;
  if (!llvm::all_of(yielded(), [&](Value v) { return isOwn(v, Place::own, known); }) ||
      !llvm::all_of(stores, [&](tile::StoreOp store) { return isOwn(store.getValue(), Place::own, known); }))
    return false;
  for (Operation &inside : op.getBody()->without_terminator()) {
    auto read = [&](Place place) { return known.contains({inside.getResult(0), static_cast<unsigned>(place)}); };
    auto cast = runs.empty() ? nullptr : dyn_cast<vector::ShapeCastOp>(inside);
    ArrayRef<int64_t> from, to;
    if (cast)
      from = cast.getSourceVectorType().getShape(), to = cast.getResultVectorType().getShape();
    bool seen = cast && ((from == ArrayRef(shape) && to == ArrayRef(runs)) ||
                         (from == ArrayRef(runs) && to == ArrayRef(shape)));
    if ((isa<tile::ReduceOp>(inside) && read(Place::run)) ||
        (seen && read(Place::own) && !read(Place::run) && !read(Place::away)))
      summed.push_back(&inside);
  }
  return true;
}

/// Whether the formula reads what the loop carries at the element's own place only, or in a sum over its run.
bool ThreadLowering::Walk::isOwn(Value tile, Place place, Places &known) {
  if (!known.insert({tile, static_cast<unsigned>(place)}).second)
    return true;
  if (llvm::is_contained(op.getRegionIterArgs(), tile))
    return place == Place::own;
  Operation *formula = tile.getDefiningOp();
  if (!formula || formula->getBlock() != op.getBody())
    return true;
  if (auto sum = dyn_cast<tile::ReduceOp>(formula))
    return place == Place::run && isOwn(sum.getSource(), Place::own, known);
  if (isa<tile::LoadOp>(formula) && place != Place::own)
    moved.insert(tile);
  auto expand = dyn_cast<tile::ExpandOp>(formula);
  bool stays = OpTrait::hasElementwiseMappableTraits(formula) || isa<tile::MaskOp>(formula) ||
               (isa<vector::ShapeCastOp>(formula) && place == Place::own),
       repeats = expand && place == Place::own && tileType(tile).getShape() == ArrayRef(runs) &&
                 static_cast<int64_t>(expand.getAxis()) == tileType(tile).getRank() - 1;
  Place next = stays ? place : repeats ? Place::run : Place::away;
  return llvm::all_of(formula->getOperands(),
                      [&](Value operand) { return !isTile(operand) || isOwn(operand, next, known); });
}

/// Whether an iteration may write, at another place in its tile, what an earlier one wrote: threads would race.
bool ThreadLowering::Walk::slides(tile::StoreOp store) {
  ArrayRef<int64_t> extents = tileType(store.getValue()).getShape();
  std::optional<int64_t> step = getConstantIntValue(op.getStep());
  return !llvm::all_of(llvm::zip_equal(store.getDims(), extents), [&](auto dimension) {
    auto [dim, extent] = dimension;
    Value index = store.getIndices()[dim];
    if (index == op.getInductionVar())
      return step && *step >= extent;
    return index.getParentBlock() != op.getBody() || index.getDefiningOp<arith::ConstantOp>();
  });
}

/// Whether no two iterations of a store that does not slide write the same place.
bool ThreadLowering::Walk::moves(tile::StoreOp store) {
  return llvm::any_of(store.getDims(), [&](int64_t dim) { return store.getIndices()[dim] == op.getInductionVar(); });
}

/// Sums over runs are made in each iteration as well.
bool ThreadLowering::Walk::isCarried(Value tile, DenseMap<Value, bool> &known) {
  if (llvm::is_contained(op.getRegionIterArgs(), tile))
    return true;
  Operation *formula = tile.getDefiningOp();
  if (!formula || formula->getBlock() != op.getBody())
    return false;
  if (isa<tile::ReduceOp>(formula))
    return true;
  if (auto it = known.find(tile); it != known.end())
    return it->second;
  bool found =
      llvm::any_of(formula->getOperands(), [&](Value operand) { return isTile(operand) && isCarried(operand, known); });
  return known[tile] = found;
}

void ThreadLowering::Walk::collectReady() {
  DenseMap<Value, bool> known;
  for (Operation &inside : op.getBody()->without_terminator()) {
    Value tile = inside.getNumResults() == 1 ? inside.getResult(0) : Value();
    if (!tile || !isTile(tile) || isCarried(tile, known) ||
        (tileType(tile).getShape() != ArrayRef(shape) && tileType(tile).getShape() != ArrayRef(runs)))
      continue;
    // At its own place only: what an elementwise op, a sum over runs, a store or the next iteration reads.
    bool wanted = false, elsewhere = moved.contains(tile);
    for (Operation *user : tile.getUsers()) {
      bool stays = OpTrait::hasElementwiseMappableTraits(user) || isa<tile::StoreOp, scf::YieldOp>(user) ||
                   llvm::is_contained(summed, user);
      elsewhere |= !stays;
      wanted |= user->getNumResults() != 1 || !isTile(user->getResult(0)) || isCarried(user->getResult(0), known);
    }
    if (wanted && !elsewhere)
      ready.push_back(tile);
  }
}

/// Whether what is trusted of one iteration's access holds of all: no rows may be missing, and iterations are whole vectors of `elements` apart.
bool ThreadLowering::Walk::isAlike(Operation *access, ArrayRef<Value> strides, int64_t elements) {
  auto load = dyn_cast<tile::LoadOp>(access);
  auto store = dyn_cast<tile::StoreOp>(access);
  if ((load ? load.getLimit() : store.getLimit()) || (load ? load.getRows() : store.getRows()))
    return false;
  OperandRange indices = load ? load.getIndices() : store.getIndices();
  return llvm::all_of(llvm::zip_equal(indices, strides), [&](auto dimension) {
    auto [index, stride] = dimension;
    std::optional<int64_t> known = getConstantIntValue(stride);
    return index.getParentBlock() != op.getBody() || index.template getDefiningOp<arith::ConstantOp>() ||
           (known && *known % elements == 0);
  });
}

/// Whether two parameters may be one buffer.
bool ThreadLowering::mayShare(Value x, Value y) {
  if (x == y)
    return true;
  auto element = [](Value buffer) { return cast<MemRefType>(buffer.getType()).getElementType(); };
  auto pairs = kernel->getAttrOfType<ArrayAttr>(tile::kInPlaceAttr);
  if (element(x) != element(y) || !pairs)
    return element(x) == element(y);
  if (!isa<BlockArgument>(x) || !isa<BlockArgument>(y))
    return true;
  auto name = [&](Value buffer) -> Attribute {
    return kernel.getArgAttr(cast<BlockArgument>(buffer).getArgNumber(), tile::kNameAttr);
  };
  return llvm::any_of(pairs.getAsRange<ArrayAttr>(), [&](ArrayAttr pair) {
    return llvm::is_contained(pair, name(x)) && llvm::is_contained(pair, name(y));
  });
}

std::optional<ThreadLowering::Walk> ThreadLowering::walkOf(scf::ForOp op) {
  Walk walk{op};
  if (threads < kWarp || !walk.collect())
    return std::nullopt;
  // What is read may be what is written only where a thread reads it before it writes it, and no other one does.
  auto inTurn = [&](tile::LoadOp load, tile::StoreOp store) {
    return !mayShare(load.getSource(), store.getTarget()) ||
           (!load.getRows() && load.getIndices() == store.getIndices() && load.getDims() == store.getDims() &&
            load.getType() == store.getValue().getType() && load->isBeforeInBlock(store) &&
            !walk.moved.contains(load.getResult()));
  };
  for (auto [i, store] : llvm::enumerate(walk.stores)) {
    for (tile::LoadOp load : walk.loads) {
      bool apart = !mayShare(load.getSource(), store.getTarget());
      walk.apart &= apart;
      walk.turns &= apart || (walk.moves(store) && inTurn(load, store));
    }
    bool inOrder = !walk.slides(store) &&
                   llvm::all_of(walk.loads, [&](tile::LoadOp load) { return inTurn(load, store); }) &&
                   llvm::none_of(walk.numbers,
                                 [&](memref::LoadOp load) { return mayShare(load.getMemRef(), store.getTarget()); }) &&
                   llvm::all_of(ArrayRef(walk.stores).take_front(i), [&](tile::StoreOp other) {
                     return other.getTarget() != store.getTarget() || other.getDims() == store.getDims();
                   });
    if (!inOrder)
      return std::nullopt;
  }
  walk.collectReady();
  // The results lie in shared memory behind the loop.
  int64_t bytes = 0;
  for (Value result : op.getResults()) {
    VectorType type = tileType(result);
    bytes += llvm::alignTo(lengthOf(type) * bytesOf(storage(type.getElementType())), 16);
  }
  if (bytes > 0 && freeOffset(bytes, 16) + bytes > limits.sharedBytes)
    return std::nullopt;
  SmallVector<Value> tiles(walk.yielded());
  llvm::append_range(tiles, op.getInitArgs());
  for (Operation *inside : walk.summed)
    tiles.push_back(inside->getOperand(0));
  if (llvm::any_of(tiles, [&](Value tile) { return !plan.breaks(tile).empty(); }) ||
      llvm::any_of(walk.stores, [&](tile::StoreOp store) { return !plan.breaks(store.getValue()).empty(); }))
    return std::nullopt;
  for (Value carried : op.getRegionIterArgs())
    registers[carried] = Value();
  walk.vectors = vectorsOf(tiles, walk.stores, [&](int64_t width) {
    return walk.shape.back() % width == 0 && ShapedType::getNumElements(walk.shape) / width >= threads &&
           walk.fitsRuns(width);
  });
  for (Value carried : op.getRegionIterArgs())
    registers.erase(carried);
  if (!walk.fitsRuns(std::max<int64_t>(walk.vectors.width, 1)))
    return std::nullopt;
  return walk;
}

void ThreadLowering::leaveLoop(scf::ForOp op, ArrayRef<View> results) {
  for (Operation &inside : *op.getBody())
    for (Value operand : inside.getOperands())
      if (isTile(operand) && operand.getParentBlock() != op.getBody())
        release(operand, op->getBlock());
  for (auto [init, result, view] : llvm::zip(op.getInitArgs(), op.getResults(), results)) {
    release(init, op->getBlock());
    own(result, view);
    if (result.use_empty()) {
      usesLeft[result] = 1;
      useDone(result);
    }
  }
}

bool ThreadLowering::lowerWalk(scf::ForOp op) {
  std::optional<Walk> found = walkOf(op);
  if (!found)
    return false;
  Walk &walk = *found;
  const Vectors &vectors = walk.vectors;
  int64_t width = std::max<int64_t>(vectors.width, 1);
  int64_t strips = ShapedType::getNumElements(walk.shape) / width,
          most = std::clamp<int64_t>(
              kElements / width / static_cast<int64_t>(walk.loads.size() + walk.op.getNumResults() + 1), 1, kLoads);
  SmallVector<View> results;
  for (Value result : op.getResults())
    results.push_back(viewOf(allocate(tileType(result)), tileType(result)));
  {
    Phase phase(*this);
    Value lo = scalars.lookup(op.getLowerBound()), hi = scalars.lookup(op.getUpperBound()),
          step = scalars.lookup(op.getStep());
    // What the loop's own loads and stores are, and those of formulas from before it.
    SmallVector<Operation *> own, outer;
    for (Operation *access : vectors.accesses)
      (access->getBlock() == op.getBody() ? own : outer).push_back(access);
    Value outside = vectors.width ? isTrusted(outer, vectors.width) : Value();
    // Then the question stands before the loop: where it is asked in each iteration both answers take registers.
    bool alike = vectors.width && walk.numbers.empty() && llvm::all_of(own, [&](Operation *access) {
                   auto load = dyn_cast<tile::LoadOp>(access);
                   auto store = dyn_cast<tile::StoreOp>(access);
                   int64_t size = bytesOf(elementOf(load ? load.getResult() : store.getValue()));
                   return walk.isAlike(access, arguments[load ? load.getSource() : store.getTarget()].strides,
                                       std::min(vectors.width, 16 / size));
                 });
    Vectors before{vectors.width, {}};
    before.accesses.insert(outer.begin(), outer.end());

    struct Iteration {
      IRMapping scalars;
      SmallVector<std::pair<Operation *, Access>> places;
    };
    auto place = [&](Value number) {
      scalars.map(op.getInductionVar(), number);
      Iteration iteration;
      for (Operation &inside : op.getBody()->without_terminator()) {
        if (auto load = dyn_cast<tile::LoadOp>(inside))
          accesses[load] = access(load.getSource(), load.getIndices(), load.getDims(), load.getLimit());
        else if (auto store = dyn_cast<tile::StoreOp>(inside))
          accesses[store] = access(store.getTarget(), store.getIndices(), store.getDims(), store.getLimit());
        else if (!isTile(inside.getResult(0)) && failed(lowerScalar(&inside)))
          failedOnce = true;
        if (isa<tile::LoadOp, tile::StoreOp>(inside))
          iteration.places.emplace_back(&inside, accesses[&inside]);
      }
      iteration.scalars = scalars;
      return iteration;
    };

    struct Lane {
      SmallVector<Value> lead;
      Strip strip;
      SmallVector<Value> inRuns; ///< the same place there
      Strip run;
    };
    auto evalAt = [&](Value tile, const Lane &lane) {
      bool inRuns = tileType(tile).getShape() == ArrayRef(walk.runs);
      return inRuns ? eval(tile, lane.inRuns, lane.run) : eval(tile, lane.lead, lane.strip);
    };
    // All formulas of runs are at one place, where each is evaluated once.
    auto addUpRuns = [&](const Lane &lane, bool asked) {
      for (Operation *one : walk.summed) {
        Value result = one->getResult(0);
        if (asked && llvm::is_contained(walk.ready, result))
          continue;
        Value value = evalAt(one->getOperand(0), lane);
        if (auto sum = dyn_cast<tile::ReduceOp>(one))
          value = allLanes(sum.getKind(), vectors.width ? horizontal(sum.getKind(), value) : value,
                           walk.runs.back() / width);
        registers[result] = value;
      }
    };
    auto enter = [&](const Iteration &iteration) {
      scalars = iteration.scalars;
      for (const auto &[access, at] : iteration.places)
        accesses[access] = at;
    };
    // What several iterations read is asked for before the first of them goes on. Then one after the other, each for all
    // strips: all reads of one come before its writes.
    auto run = [&](ArrayRef<Iteration> iterations, ArrayRef<Lane> lanes, SmallVector<Value> carried) {
      size_t count = op.getNumRegionIterArgs();
      IRMapping around = scalars;
      SmallVector<Value> asked; // [iteration][lane][ready]
      if (iterations.size() > 1)
        for (const Iteration &iteration : iterations) {
          enter(iteration);
          for (const Lane &lane : lanes) {
            startStrip();
            for (Value tile : walk.ready)
              asked.push_back(evalAt(tile, lane));
          }
        }
      for (auto [i, iteration] : llvm::enumerate(iterations)) {
        enter(iteration);
        SmallVector<Value> next, stored;
        for (auto [s, lane] : llvm::enumerate(lanes)) {
          startStrip();
          if (!asked.empty())
            for (auto [r, tile] : llvm::enumerate(walk.ready))
              registers[tile] = asked[(i * lanes.size() + s) * walk.ready.size() + r];
          for (auto [a, argument] : llvm::enumerate(op.getRegionIterArgs()))
            registers[argument] = carried[s * count + a];
          addUpRuns(lane, !asked.empty());
          for (tile::StoreOp store : walk.stores)
            stored.push_back(eval(store.getValue(), lane.lead, lane.strip));
          for (Value value : walk.yielded())
            next.push_back(eval(value, lane.lead, lane.strip));
        }
        startStrip();
        for (auto [s, lane] : llvm::enumerate(lanes))
          for (auto [w, store] : llvm::enumerate(walk.stores)) {
            const Access &at = accesses[store];
            bool guarded = !lane.lead.empty() && at.limit && !trusted.contains(store);
            Value value = stored[s * walk.stores.size() + w];
            onlyIf(guarded ? inBounds(add(at.row, lane.lead.front()), at.limit) : Value(),
                   [&] { writeArgument(store, lane.lead, lane.strip, value); });
          }
        startStrip();
        carried = std::move(next);
      }
      for (Value held : llvm::concat<const Value>(walk.ready, SmallVector<Value>(op.getRegionIterArgs())))
        registers.erase(held);
      for (Operation *one : walk.summed)
        registers.erase(one->getResult(0));
      scalars = around;
      return carried;
    };

    auto walkThrough = [&](ArrayRef<Value> numbers) {
      SmallVector<Lane> lanes;
      for (Value number : numbers) {
        auto placeIn = [&](SmallVector<int64_t> shape) {
          int64_t columns = std::exchange(shape.back(), shape.back() / width);
          SmallVector<Value> lead = coordinates(number, shape);
          Value column = mul(lead.pop_back_val(), constant(width));
          return std::pair(std::move(lead), Strip{column, 0, columns, vectors.width, width});
        };
        Lane &lane = lanes.emplace_back();
        std::tie(lane.lead, lane.strip) = placeIn(walk.shape);
        lane.inRuns = lane.lead, lane.run = lane.strip;
        if (!walk.runs.empty() && walk.runs != walk.shape)
          std::tie(lane.inRuns, lane.run) = placeIn(walk.runs);
      }
      SmallVector<Type> types;
      for (size_t s = 0; s < lanes.size(); ++s)
        for (Value carried : op.getRegionIterArgs())
          types.push_back(typed(tileType(carried).getElementType(), vectors.width));
      auto begin = [&](bool) {
        SmallVector<Value> all;
        startStrip();
        for (Lane &lane : lanes)
          for (Value init : op.getInitArgs())
            all.push_back(eval(init, lane.lead, lane.strip));
        startStrip();
        return all;
      };
      SmallVector<Value> carried = types.empty() ? SmallVector<Value>() : onTrust(before, outside, types, begin);
      int64_t loads = llvm::count_if(
          walk.loads, [&](tile::LoadOp load) { return tileType(load.getResult()).getShape() == ArrayRef(walk.shape); });
      int64_t together = std::max<int64_t>(loads * static_cast<int64_t>(lanes.size()), 1);
      // In place one iteration asks for enough, but for a single load. One that says how short it is in the mean stays one loop, of which that holds.
      bool several = walk.apart ? loads > 0 : walk.turns && together == 1 && loads > 0;
      together = several && !op->hasAttr(tile::kMeanWalkAttr) ? std::clamp<int64_t>(kLoads / together, 1, 4) : 1;
      // While lanes wait for sums over runs, formulas of the other iterations hold as much again as is carried and asked for.
      if (together > 1 && !walk.runs.empty()) {
        int64_t room = kElements / 2 / (width * static_cast<int64_t>(lanes.size())) - op.getNumResults();
        together = std::clamp<int64_t>(room / loads, 1, together);
      }
      auto through = [&](Value from, Value to, int64_t count) {
        auto body = [&](Value first, ValueRange now) {
          SmallVector<Iteration> iterations;
          Value condition = outside;
          for (int64_t i = 0; i < count; ++i) {
            iterations.push_back(place(add(first, mul(step, constant(i)))));
            if (alike)
              continue;
            Value inside = vectors.width ? isTrusted(own, vectors.width) : Value();
            condition = condition && inside ? arith::AndIOp::create(b, loc, condition, inside).getResult()
                        : inside            ? inside
                                            : condition;
          }
          SmallVector<Value> current(now);
          if (alike)
            return run(iterations, lanes, current);
          return onTrust(vectors, condition, types, [&](bool) { return run(iterations, lanes, current); });
        };
        carried = repeat(from, to, mul(step, constant(count)), carried, body, op);
      };
      SmallVector<Value> begun = carried;
      // What is not trusted is seldom: in little code, which takes fewer registers, too.
      auto throughAll = [&](bool trust) {
        carried = begun;
        Value from = lo;
        if (together > 1 && (trust || !alike)) {
          Value span = arith::MaxSIOp::create(b, loc, arith::SubIOp::create(b, loc, hi, lo), constant(0));
          Value several = mul(step, constant(together));
          Value count = arith::DivUIOp::create(b, loc, span, several);
          from = add(lo, mul(count, several));
          through(lo, from, together);
        }
        through(from, hi, 1);
        return carried;
      };
      if (alike)
        place(lo);
      carried = alike ? onTrust(vectors, {}, types, throughAll) : throughAll(false);
      for (auto [s, lane] : llvm::enumerate(lanes))
        for (auto [i, result] : llvm::enumerate(results))
          writeView(result, lane.lead, lane.strip, carried[s * results.size() + i], false);
    };

    int64_t full = strips / threads, rest = strips % threads;
    for (int64_t s = 0; s < full;) {
      SmallVector<Value> numbers;
      for (int64_t end = std::min(full, s + most); s < end; ++s)
        numbers.push_back(add(thread, s * threads));
      walkThrough(numbers);
    }
    if (rest)
      onlyIf(less(thread, rest), [&] { walkThrough({add(thread, full * threads)}); });
  }
  leaveLoop(op, results);
  if (threads <= kSumThreads && walk.addsUp())
    lowered->setAttr(kTogetherAttr, b.getI64IntegerAttr(kSumBlocks));
  return true;
}
