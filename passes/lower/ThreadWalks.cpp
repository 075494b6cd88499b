//===- ThreadWalks.cpp - loops in which every element goes its own way ---------------------------------------------===//
//
//   state = begin;  for n = 0 .. chunks:  m[n] = state;  state = decay[n] * state + x[n]
//
// Where an iteration computes each element from the same element of what it carries and of what it reads, a thread walks
// through the whole loop with elements of its own: they stay in registers, and no thread waits for another one. A scan
// over chunks, sums of rows and of all elements, the optimizer and row-wise ops that walk along memory are such loops.
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
  SmallVector<int64_t> shape; ///< of what is carried and stored
  SmallVector<tile::LoadOp> loads;
  SmallVector<tile::StoreOp> stores;
  SmallVector<memref::LoadOp> numbers;
  llvm::DenseSet<Value> moved; ///< read at other places than the element's own
  SmallVector<Value> ready; ///< what the loop carries is combined with, known before it: elements at their own place
  bool apart = true, turns = true; ///< nothing that is read may be what is written; or what another iteration writes
  Vectors vectors;

  bool collect();
  bool isOwn(Value tile, bool away, DenseSet<std::pair<Value, unsigned>> &known);
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
  DenseSet<std::pair<Value, unsigned>> known;
  return !shape.empty() && llvm::all_of(yielded(), [&](Value v) { return isOwn(v, false, known); }) &&
         llvm::all_of(stores, [&](tile::StoreOp store) { return isOwn(store.getValue(), false, known); });
}

/// Whether the formula reads what the loop carries at the element's own place only; `away`: it is at another one.
bool ThreadLowering::Walk::isOwn(Value tile, bool away, DenseSet<std::pair<Value, unsigned>> &known) {
  if (!known.insert({tile, away}).second)
    return true;
  if (llvm::is_contained(op.getRegionIterArgs(), tile))
    return !away;
  Operation *formula = tile.getDefiningOp();
  if (!formula || formula->getBlock() != op.getBody())
    return true;
  if (isa<tile::LoadOp>(formula) && away)
    moved.insert(tile);
  bool stays = OpTrait::hasElementwiseMappableTraits(formula) || isa<tile::MaskOp>(formula);
  return llvm::all_of(formula->getOperands(),
                      [&](Value operand) { return !isTile(operand) || isOwn(operand, away || !stays, known); });
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

bool ThreadLowering::Walk::isCarried(Value tile, DenseMap<Value, bool> &known) {
  if (llvm::is_contained(op.getRegionIterArgs(), tile))
    return true;
  Operation *formula = tile.getDefiningOp();
  if (!formula || formula->getBlock() != op.getBody())
    return false;
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
    if (!tile || !isTile(tile) || tileType(tile).getShape() != ArrayRef(shape) || isCarried(tile, known))
      continue;
    // At its own place only: what an elementwise op, a store or the next iteration reads.
    bool wanted = false, elsewhere = moved.contains(tile);
    for (Operation *user : tile.getUsers()) {
      bool stays = OpTrait::hasElementwiseMappableTraits(user) || isa<tile::StoreOp, scf::YieldOp>(user);
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
  if (llvm::any_of(tiles, [&](Value tile) { return !plan.breaks(tile).empty(); }) ||
      llvm::any_of(walk.stores, [&](tile::StoreOp store) { return !plan.breaks(store.getValue()).empty(); }))
    return std::nullopt;
  for (Value carried : op.getRegionIterArgs())
    registers[carried] = Value();
  walk.vectors = vectorsOf(tiles, walk.stores, [&](int64_t width) {
    return walk.shape.back() % width == 0 && ShapedType::getNumElements(walk.shape) / width >= threads;
  });
  for (Value carried : op.getRegionIterArgs())
    registers.erase(carried);
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
  SmallVector<int64_t> counts(walk.shape);
  counts.back() /= width;
  int64_t strips = ShapedType::getNumElements(counts),
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
              asked.push_back(eval(tile, lane.lead, lane.strip));
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
      scalars = around;
      return carried;
    };

    auto walkThrough = [&](ArrayRef<Value> numbers) {
      SmallVector<Lane> lanes;
      for (Value number : numbers) {
        SmallVector<Value> lead = coordinates(number, counts);
        Value column = mul(lead.pop_back_val(), constant(width));
        lanes.push_back({std::move(lead), {column, 0, walk.shape.back(), vectors.width, width}});
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
      auto throughAll = [&](bool) {
        carried = begun;
        Value from = lo;
        if (together > 1) {
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
