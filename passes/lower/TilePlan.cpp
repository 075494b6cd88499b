//===- TilePlan.cpp - which tiles are kept in buffers, which are recomputed where they are needed ----------------===//
#include "passes/lower/TileLowering.h"

using namespace mlir;
using namespace braid;
using namespace braid::lower;

Type lower::storageType(Type element) {
  if (element.isBF16())
    return Float32Type::get(element.getContext());
  if (element.isInteger(1))
    return IntegerType::get(element.getContext(), 8);
  return element;
}

int64_t TilePlan::width(Type element) const {
  int64_t bytes = element.isIndex() ? 8 : llvm::divideCeil(element.getIntOrFloatBitWidth(), 8);
  return vectorBytes / std::max<int64_t>(bytes, 4);
}

static bool isSplat(Value v) {
  auto constant = v.getDefiningOp<arith::ConstantOp>();
  return constant && isa<SplatElementsAttr>(constant.getValue());
}

/// A shape_cast whose result can be read strip by strip from a lazy source: the last dimensions are equal, split or
/// merged.
bool TilePlan::isSimpleCast(vector::ShapeCastOp op) {
  int64_t source = op.getSourceVectorType().getShape().back(), result = op.getResultVectorType().getShape().back();
  return source % result == 0 || (result % source == 0 && (source % 16 == 0 || result / source <= 4));
}

bool TilePlan::mustKeep(Operation *op) const {
  if (auto cast = dyn_cast<vector::ShapeCastOp>(op))
    return !isSimpleCast(cast);
  if (auto constant = dyn_cast<arith::ConstantOp>(op))
    return !isa<SplatElementsAttr>(constant.getValue());
  return isa<tile::DotOp, tile::SolveOp, tile::CumsumOp, tile::ReduceOp, tile::InsertRowsOp, tile::TransposeOp,
             scf::ForOp, scf::IfOp>(op);
}

bool TilePlan::neverKept(Value tile) const { return isSplat(tile) || tile.getDefiningOp<tile::IotaOp>(); }

SmallVector<int64_t> TilePlan::breaks(Value tile, bool definition, Breaks &known) const {
  Operation *op = tile.getDefiningOp();
  VectorType type = tileType(tile);
  if (!op || !type || (isKept(tile) && !definition) || isHeld(tile))
    return {};
  if (auto it = known.find(tile); it != known.end())
    return it->second;
  SmallVector<int64_t> found;
  int64_t length = type.getShape().back();
  auto take = [&](Value source, int64_t shift) {
    for (int64_t at : breaks(source, /*definition=*/false, known))
      if (at + shift > 0 && at + shift < length)
        found.push_back(at + shift);
  };
  if (auto concat = dyn_cast<tile::ConcatOp>(op)) {
    int64_t start = 0;
    for (Value source : concat.getSources()) {
      if (start > 0)
        found.push_back(start);
      take(source, start);
      start += tileType(source).getShape().back();
    }
  } else if (auto slice = dyn_cast<tile::SliceOp>(op)) {
    take(slice.getSource(), -static_cast<int64_t>(slice.getOffset()));
  } else if (auto cast = dyn_cast<vector::ShapeCastOp>(op)) {
    int64_t source = cast.getSourceVectorType().getShape().back();
    for (int64_t at = 0; at < length; at += std::min(source, length)) {
      if (at > 0 && source % 16 != 0 && source < length)
        found.push_back(at);
      take(cast.getSource(), at);
    }
  } else if (auto expand = dyn_cast<tile::ExpandOp>(op)) {
    if (static_cast<int64_t>(expand.getAxis()) != type.getRank() - 1)
      take(expand.getSource(), 0);
  } else if (!isa<tile::LoadOp>(op)) {
    for (Value operand : op->getOperands())
      if (isTile(operand) && tileType(operand).getShape().back() == length)
        take(operand, 0);
  }
  llvm::sort(found);
  found.erase(std::unique(found.begin(), found.end()), found.end());
  return known[tile] = found;
}

static int64_t loopDepth(Operation *from, Block *to) {
  int64_t depth = 0;
  for (Operation *op = from; op && op->getBlock() != to; op = op->getParentOp())
    if (isa_and_nonnull<scf::ForOp>(op->getParentOp()) && op->getBlock() != to)
      ++depth;
  return depth;
}

/// Whether `op` is multiplied behind another product of its block, before which `v` was loaded: a GPU copies it meanwhile.
static bool isOnItsWay(Value v, Operation *op) {
  auto load = v.getDefiningOp<tile::LoadOp>();
  if (!load || load.getRows() || load->getBlock() != op->getBlock())
    return false;
  for (Operation *between = op->getPrevNode(); between != load; between = between->getPrevNode())
    if (isa<tile::DotOp>(between))
      return true;
  return false;
}

/// Operands that must be addressed freely.
void TilePlan::forceOperands(Operation *op) {
  auto force = [&](Value v) {
    if (!neverKept(v))
      kept.insert(v);
  };
  // An operand from outside of a loop is packed once: a block of threads would wait for it in every iteration. (A CPU's
  // packing is part of its product.)
  auto forceIfShared = [&](Value v) {
    bool again = thrift == Thrift::loads && v.getDefiningOp<tile::LoadOp>();
    bool repeated = vectorBytes == kThreadBytes && v.getDefiningOp() &&
                    (loopDepth(op, v.getDefiningOp()->getBlock()) > 0 || isOnItsWay(v, op));
    if ((!v.hasOneUse() || repeated) && !again)
      force(v);
  };
  if (auto dot = dyn_cast<tile::DotOp>(op)) {
    forceIfShared(dot.getA());
    forceIfShared(dot.getB());
    if (!breaks(dot.getAcc()).empty())
      force(dot.getAcc());
  } else if (auto solve = dyn_cast<tile::SolveOp>(op)) {
    forceIfShared(solve.getA());
  } else if (auto transpose = dyn_cast<tile::TransposeOp>(op)) {
    forceIfShared(transpose.getSource());
  } else if (auto scan = dyn_cast<tile::CumsumOp>(op)) {
    if (!breaks(scan.getSource()).empty())
      force(scan.getSource());
  } else if (auto expand = dyn_cast<tile::ExpandOp>(op)) {
    if (static_cast<int64_t>(expand.getAxis()) == tileType(expand).getRank() - 1 && !breaks(expand.getSource()).empty())
      force(expand.getSource());
  } else if (auto rows = dyn_cast<tile::RowsOp>(op)) {
    if (tileType(rows.getSource()).getRank() == 1 && !breaks(rows.getSource()).empty())
      force(rows.getSource());
  } else if (auto cast = dyn_cast<vector::ShapeCastOp>(op)) {
    if (!isSimpleCast(cast) || !breaks(cast.getSource()).empty())
      force(cast.getSource());
  }
}

//===- Groups of stores -------------------------------------------------------------------------------------------===//

static bool sameRows(tile::StoreOp a, tile::StoreOp b) {
  if (a.getRows() || b.getRows())
    return false;
  auto first = [](tile::StoreOp op) { return op.getIndices()[op.getDims().front()]; };
  return a.getValue().getType().getShape() == b.getValue().getType().getShape() && a.getLimit() == b.getLimit() &&
         (!a.getLimit() || first(a) == first(b));
}

/// Stores of one shape run in one loop when nothing between them reads memory.
void TilePlan::formGroups(Block &block) {
  SmallVector<tile::StoreOp> open;
  auto close = [&] {
    if (open.empty())
      return;
    for (tile::StoreOp store : open)
      leaders[store] = open.back();
    groups[open.back()] = open;
    open.clear();
  };
  for (Operation &op : block) {
    if (auto store = dyn_cast<tile::StoreOp>(op)) {
      bool repeated = llvm::any_of(open, [&](tile::StoreOp other) { return other.getTarget() == store.getTarget(); });
      if (!open.empty() && (repeated || !sameRows(open.back(), store)))
        close();
      open.push_back(store);
    } else if (op.getNumRegions() != 0 || !isMemoryEffectFree(&op)) {
      close();
      for (Region &region : op.getRegions())
        for (Block &inner : region)
          formGroups(inner);
    }
  }
  close();
}

bool TilePlan::isAlongRows(tile::ReduceOp reduce) {
  return static_cast<int64_t>(reduce.getAxis()) != tileType(reduce.getSource()).getRank() - 1;
}

/// Reductions of one shape run in one loop, which reads what they share once, when nothing between them writes memory
/// or reads their results.
void TilePlan::groupReductions(Block &block) {
  SmallVector<tile::ReduceOp> open;
  auto close = [&] {
    if (open.empty())
      return;
    for (tile::ReduceOp reduce : open)
      leaders[reduce] = open.back();
    reductions[open.back()] = open;
    open.clear();
  };
  for (Operation &op : block) {
    bool reads = llvm::any_of(op.getOperands(), [&](Value v) {
      auto reduce = v.getDefiningOp<tile::ReduceOp>();
      return reduce && llvm::is_contained(open, reduce);
    });
    if (reads || op.getNumRegions() != 0 || !(isMemoryEffectFree(&op) || isa<tile::LoadOp>(op)))
      close();
    if (auto reduce = dyn_cast<tile::ReduceOp>(op); reduce && isTile(reduce.getResult()) && isAlongRows(reduce)) {
      if (!open.empty() && (open.front().getSource().getType() != reduce.getSource().getType() ||
                            open.front().getAxis() != reduce.getAxis() || open.size() == 8))
        close();
      open.push_back(reduce);
    }
    for (Region &region : op.getRegions())
      for (Block &inner : region)
        groupReductions(inner);
  }
  close();
}

ArrayRef<tile::ReduceOp> TilePlan::group(tile::ReduceOp reduce) const {
  auto it = reductions.find(reduce);
  return it == reductions.end() ? ArrayRef<tile::ReduceOp>() : ArrayRef<tile::ReduceOp>(it->second);
}

ArrayRef<tile::StoreOp> TilePlan::group(tile::StoreOp store) const {
  auto it = groups.find(store);
  return it == groups.end() ? ArrayRef<tile::StoreOp>() : ArrayRef<tile::StoreOp>(it->second);
}

Operation *TilePlan::leader(Operation *op) const {
  auto it = leaders.find(op);
  return it == leaders.end() ? op : it->second;
}

//===- Costs ------------------------------------------------------------------------------------------------------===//

static int64_t ownCost(Operation *op) {
  if (auto load = dyn_cast<tile::LoadOp>(op)) {
    bool contiguous = load.getDims().back() == static_cast<int64_t>(load.getIndices().size()) - 1;
    return (contiguous && !(load.getRows() && tileType(load).getRank() == 1)) ? 1 + (load.getLimit() || load.getRows())
                                                                              : 8;
  }
  if (isa<arith::ConstantOp, tile::SliceOp, tile::RowsOp, tile::ExpandOp, vector::BroadcastOp, vector::ShapeCastOp>(op))
    return 0;
  if (isa<arith::DivFOp, math::SqrtOp, math::RsqrtOp, arith::DivSIOp, arith::RemSIOp>(op))
    return 6;
  if (isa<math::AbsFOp, math::FmaOp, math::FloorOp, math::CeilOp, math::CopySignOp, math::AbsIOp>(op))
    return 1;
  if (isa<math::MathDialect>(op->getDialect()))
    return 12;
  return 1;
}

int64_t TilePlan::cost(Value tile, DenseMap<Value, int64_t> &known) const {
  Operation *op = tile.getDefiningOp();
  if (!op || !isTile(tile) || isKept(tile) || mustKeep(op))
    return isTile(tile) ? 1 : 0;
  if (auto it = known.find(tile); it != known.end())
    return it->second;
  int64_t sum = ownCost(op);
  for (Value operand : op->getOperands())
    sum = std::min<int64_t>(sum + cost(operand, known), 1000);
  return known[tile] = sum;
}

/// Whether a load that `sink` evaluates would be moved past a store that may write what it reads.
static bool crossesStore(tile::LoadOp load, Operation *sink, function_ref<Operation *(Operation *)> leader) {
  Type element = load.getSource().getType().getElementType();
  auto writes = [&](Operation *op) {
    if (auto store = dyn_cast<tile::StoreOp>(op))
      return store.getTarget().getType().getElementType() == element && leader(store) != sink;
    if (auto store = dyn_cast<memref::StoreOp>(op))
      return store.getMemRefType().getElementType() == element;
    return false;
  };
  Operation *end = load->getBlock()->findAncestorOpInBlock(*sink);
  for (Operation *op = load->getNextNode(); op; op = op->getNextNode()) {
    if (op == end && op == sink)
      return false;
    bool found = false;
    op->walk([&](Operation *inner) { found |= writes(inner); });
    if (found)
      return true;
    if (op == end)
      return false;
  }
  return false;
}

void lower::eachArgument(Value buffer, function_ref<void(Value)> body) {
  auto choice = buffer.getDefiningOp<arith::SelectOp>();
  if (!choice)
    return body(buffer);
  eachArgument(choice.getTrueValue(), body);
  eachArgument(choice.getFalseValue(), body);
}

/// Whether `store` writes, through the same argument, other elements than the ones `load` reads in the same iteration.
static bool overlapsShifted(tile::LoadOp load, Operation *sink, ArrayRef<tile::StoreOp> group) {
  for (tile::StoreOp store : group) {
    bool same = false;
    eachArgument(load.getSource(), [&](Value argument) { same |= argument == store.getTarget(); });
    if (!same)
      continue;
    if (store.getTarget() != load.getSource() || load.getRows() || store.getRows() ||
        load.getIndices() != store.getIndices() || load.getDims() != store.getDims() ||
        load.getType() != store.getValue().getType())
      return true;
    // Elementwise all the way from the load to every store of the group that reads it?
    SmallVector<Value> work{load.getResult()};
    DenseSet<Value> seen;
    while (!work.empty()) {
      Value v = work.pop_back_val();
      if (!seen.insert(v).second)
        continue;
      for (Operation *user : v.getUsers()) {
        if (isa<tile::StoreOp>(user))
          continue;
        if (!OpTrait::hasElementwiseMappableTraits(user) && !isa<tile::MaskOp>(user))
          return true;
        work.append(user->result_begin(), user->result_end());
      }
    }
  }
  return false;
}

/// Stores of such values are lowered each by itself; the last of the others is now where their group is.
void TilePlan::leaveGroups(llvm::function_ref<bool(Value)> leaves) {
  auto before = std::move(groups);
  groups.clear();
  for (auto &[last, stores] : before) {
    llvm::erase_if(stores, [&](tile::StoreOp store) {
      bool left = leaves(store.getValue());
      if (left)
        leaders[store] = store;
      return left;
    });
    if (stores.empty())
      continue;
    for (tile::StoreOp store : stores)
      leaders[store] = stores.back();
    groups[stores.back()] = stores;
  }
}

void TilePlan::drop(ArrayRef<Value> tiles, ArrayRef<Value> others) {
  kept.insert(others.begin(), others.end());
  for (Value tile : tiles)
    kept.erase(tile);
  leaveGroups([&](Value v) { return llvm::is_contained(tiles, v); });
}

void TilePlan::forget(ArrayRef<Value> tiles) {
  for (Value tile : tiles)
    kept.erase(tile);
}

void TilePlan::compute(ArrayRef<Value> tiles, ArrayRef<Value> alsoKept) {
  computed.insert(tiles.begin(), tiles.end());
  leaveGroups([&](Value v) { return computed.contains(v); });
  for (Value tile : tiles)
    kept.erase(tile);
  kept.insert(alsoKept.begin(), alsoKept.end());
}

/// A load, or one that is only widened and scaled.
static bool isLoaded(Value v) {
  Operation *op = v.getDefiningOp();
  if (isa_and_nonnull<arith::MulFOp>(op) && op->getOperand(1).getDefiningOp<vector::BroadcastOp>())
    op = op->getOperand(0).getDefiningOp();
  if (isa_and_nonnull<arith::ExtFOp>(op))
    op = op->getOperand(0).getDefiningOp();
  return isa_and_nonnull<tile::LoadOp>(op);
}

/// Which operations evaluate a tile, and how often; those of its users are known.
TilePlan::Sinks TilePlan::sinksOf(Value v, const DenseMap<Value, Sinks> &evaluations) const {
  Sinks found;
  auto count = [&](Operation *sink, int64_t times) { found[sink] = std::max(found[sink], times); };
  for (Operation *user : v.getUsers()) {
    int64_t times = loopDepth(user, v.getParentBlock()) > 0 ? 4 : 1;
    bool lazyUser = user->getNumResults() == 1 && isTile(user->getResult(0)) && !isKept(user->getResult(0)) &&
                    !computed.contains(user->getResult(0));
    if (!lazyUser) {
      count(leader(user), times);
      continue;
    }
    if (isa<tile::ExpandOp, vector::BroadcastOp>(user))
      times *= 4;
    if (auto it = evaluations.find(user->getResult(0)); it != evaluations.end())
      for (auto [sink, inner] : it->second)
        count(sink, std::min<int64_t>(times * inner, 64));
  }
  return found;
}

/// Whether what is loaded may be written before one of these reads it.
bool TilePlan::written(tile::LoadOp load, const Sinks &sinks) const {
  return llvm::any_of(sinks, [&](auto &each) {
    Operation *sink = each.first;
    return crossesStore(load, sink, [&](Operation *store) { return leader(store); }) ||
           (isa<tile::StoreOp>(sink) && overlapsShifted(load, sink, group(cast<tile::StoreOp>(sink))));
  });
}

/// Loads are read where they stand unless something writes there before they are.
void TilePlan::settleLoads(func::FuncOp kernel) {
  SmallVector<Operation *> order;
  kernel.walk<WalkOrder::PreOrder>([&](Operation *op) { order.push_back(op); });
  DenseMap<Value, Sinks> evaluations;
  unwritten.clear();
  for (Operation *op : llvm::reverse(order))
    for (Value v : op->getResults()) {
      if (!isTile(v))
        continue;
      evaluations[v] = sinksOf(v, evaluations);
      if (auto load = dyn_cast<tile::LoadOp>(op); load && !computed.contains(v))
        (written(load, evaluations[v]) ? kept : unwritten).insert(v);
    }
}

TilePlan::TilePlan(func::FuncOp kernel, int64_t vectorBytes, Thrift thrift) : vectorBytes(vectorBytes), thrift(thrift) {
  if (kernel.isExternal())
    return;
  formGroups(kernel.front());
  groupReductions(kernel.front());
  SmallVector<Operation *> order;
  kernel.walk<WalkOrder::PreOrder>([&](Operation *op) {
    order.push_back(op);
    for (Value v : op->getResults())
      if (isTile(v) && mustKeep(op))
        kept.insert(v);
    forceOperands(op);
  });
  // From the users to the definitions: how often would each lazy tile be computed?
  DenseMap<Value, Sinks> evaluations;
  SmallVector<std::pair<Value, int64_t>> chosen;
  SmallVector<Value> begin; // of dots, by long formulas
  for (Operation *op : llvm::reverse(order)) {
    for (Value v : op->getResults()) {
      if (!isTile(v))
        continue;
      Sinks found = sinksOf(v, evaluations);
      if (!isKept(v) && !neverKept(v)) {
        int64_t times = 0;
        auto load = dyn_cast<tile::LoadOp>(op);
        bool hazard = load && written(load, found);
        for (auto [sink, n] : found)
          times += n;
        DenseMap<Value, int64_t> known;
        // A dot unrolls the formula of its accumulator over a block of registers: short ones only.
        bool begins = llvm::any_of(v.getUsers(), [&](Operation *user) {
          auto dot = dyn_cast<tile::DotOp>(user);
          return dot && dot.getAcc() == v;
        });
        if (begins && !hazard && cost(v, known) > shortFormula()) {
          hazard = true;
          if (v.hasOneUse())
            begin.push_back(v);
        }
        bool again = thrift == Thrift::loads ? isa<tile::LoadOp>(op) : thrift == Thrift::formulas && isLoaded(v);
        // What is repeated is kept once, not its copies.
        again |= isa<tile::ExpandOp, vector::BroadcastOp>(op);
        if (hazard) {
          kept.insert(v);
        } else if (!again && times > 1 && (times - 1) * cost(v, known) > times + 3) {
          kept.insert(v);
          chosen.push_back({v, times});
        }
      }
      evaluations[v] = std::move(found);
    }
  }
  // What a tile is computed from may be kept by now: some are cheap after all.
  for (auto [v, times] : llvm::reverse(chosen)) {
    kept.erase(v);
    DenseMap<Value, int64_t> known;
    if ((times - 1) * cost(v, known) > times + 3)
      kept.insert(v);
  }
  for (Value v : begin) {
    kept.erase(v);
    DenseMap<Value, int64_t> known;
    if (cost(v, known) > shortFormula())
      kept.insert(v);
  }
  // Such a tile is computed later than it was thought to be, and so is read what it is computed from.
  settleLoads(kernel);
}
