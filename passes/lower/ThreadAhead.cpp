//===- ThreadAhead.cpp - operands of the next iteration, copied while one computes --------------------------------===//
//
// A loop whose products read what the iteration before has computed cannot begin an iteration early, but it can ask for what that one reads of
// memory: attention for its next keys, the scan over the states of chunks for its next transition. Each such operand has two places in shared
// memory, in turn. Copies to one start where an iteration begins that reads the other; the barrier at the end of an iteration has seen all
// readers of the first and all copies to the second. Where two warps carry the columns of a state, which nothing else hides the way of memory from,
// there are four places, and the copies of an iteration start three iterations before. So it is where a loop adds up, in registers, what it then
// multiplies (ThreadRows.cpp): all that an iteration reads comes early, numbers of tokens too, and where its tiles lie says a table, which is read
// as early.
//
// Few warps walk so, and wait for one product after the other: copies of 16 bytes would be instructions between those, and more than the units that also
// read and write shared memory take before the next product. Where a kernel's tiles may come in boxes (ThreadBulkCopies.cpp) one thread starts them, and a
// barrier in shared memory says that all are there. A box brings rows behind the last of a chunk, too: those few times all threads clear them.
//
//===-------------------------------------------------------------------------------------------------------------===//
#include "passes/lower/ThreadProducts.h"

#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "llvm/Support/SaveAndRestore.h"

using namespace mlir;
using namespace braid;
using namespace braid::lower;

/// Iterations that have a place in shared memory, where a block has few warps.
static constexpr int64_t kFewWarps = 2, kMostStages = 4;
/// Stages for which a block has a multiprocessor to itself, if need be.
static constexpr int64_t kWantedStages = 3;
/// Of a loop in rows: beyond so many carried elements a thread has no registers for the addresses of two iterations.
static constexpr int64_t kMostCarriedAhead = 96;

struct ThreadLowering::Ahead {
  scf::ForOp loop;
  int64_t step, stages = 2;
  bool grouped = false; ///< copies of an iteration are one group
  bool multipliesCarried = false; ///< a state that it adds to
  SmallVector<tile::LoadOp> loads;
  DenseSet<Operation *> boxes; ///< those that come in boxes, as panels
  int64_t boxBytes = 0; ///< of an iteration
  Buffer *full = nullptr; ///< of each stage: that its boxes are there
  SmallVector<Operation *> places; ///< scalars of an iteration that say where, in order
  SmallVector<Buffer *> buffers;
};

/// Whether `v` is computed from tiles that the loop carries.
static bool isCarried(Value v, scf::ForOp loop) {
  DenseSet<Value> seen;
  SmallVector<Value> work = {v};
  while (!work.empty()) {
    Value next = work.pop_back_val();
    if (!isTile(next) || next.getParentBlock() != loop.getBody() || !seen.insert(next).second)
      continue;
    Operation *made = next.getDefiningOp();
    if (!made)
      return true;
    llvm::append_range(work, made->getOperands());
  }
  return false;
}

/// Whether `v` is a tile that the loop carries, rounded, from zero where the iteration says so.
static bool isCarriedState(Value v, scf::ForOp loop) {
  auto rounded = v.getDefiningOp<arith::TruncFOp>();
  if (!rounded)
    return false;
  Value state = rounded.getIn();
  if (auto restart = state.getDefiningOp<scf::ForOp>())
    state = restart.getInitArgs()[cast<OpResult>(state).getResultNumber()];
  return llvm::is_contained(loop.getRegionIterArgs(), state);
}

/// What an iteration's place depends on is known without one: the induction variable, arithmetic, what lies outside, and, if wanted, numbers in
/// tables, or those that the loop carries, to who walks it.
bool ThreadLowering::collectPlaces(Value v, scf::ForOp loop, llvm::SetVector<Operation *> &places, bool tables,
                                   bool carried) {
  if (v.getParentBlock() != loop.getBody() || v == loop.getInductionVar() || (carried && isa<BlockArgument>(v)))
    return true;
  Operation *made = v.getDefiningOp();
  if (!made || !isa<arith::ArithDialect, memref::MemRefDialect>(made->getDialect()) ||
      !(isMemoryEffectFree(made) || (tables && isa<memref::LoadOp>(made))) ||
      !llvm::all_of(made->getOperands(),
                    [&](Value u) { return !isTile(u) && collectPlaces(u, loop, places, tables, carried); }))
    return false;
  places.insert(made);
  return true;
}

std::shared_ptr<const ThreadLowering::Ahead> ThreadLowering::loadsAhead(scf::ForOp op) {
  std::optional<int64_t> step = getConstantIntValue(op.getStep());
  bool rows = llvm::any_of(op.getResults(), [&](Value v) { return inRows.count(v); });
  if (!mayCopyAhead || threads == 1 || !step ||
      (rows ? carriedInRows(op) > kMostCarriedAhead : op->getParentOp() != kernel))
    return nullptr;
  SmallVector<Value> written;
  bool elements = false; // that are written one by one
  op.walk([&](Operation *inside) {
    elements |= isa<memref::StoreOp>(inside);
    if (auto store = dyn_cast<tile::StoreOp>(inside))
      written.push_back(store.getTarget());
  });
  if (elements)
    return nullptr;
  auto ahead = std::make_shared<Ahead>();
  auto bytesOfOne = [&](tile::LoadOp load) -> int64_t {
    auto type = cast<VectorType>(load.getType());
    return panels.count(load.getResult()) || ahead->boxes.contains(load)
               ? panelOf(type).bytes()
               : llvm::alignTo(lengthOf(type) * bytesOf(storage(type.getElementType())), 16);
  };
  // What a scan of few warps adds to its products is asked for early too, and what a walk makes them of.
  bool few = threads <= kFewWarps * kWarp && llvm::any_of(op.getResults(), [&](Value v) { return inRows.lookup(v); });
  // Of a walk that multiplies what its warps hand on, two blocks of a multiprocessor compute beside each other.
  bool handsOn = rows && llvm::any_of(op.getBody()->getOps<tile::DotOp>(), [&](tile::DotOp dot) {
                   return inRows.count(dot.getResult()) && isHandedOn(dot.getB());
                 });
  // Or the state that it adds to.
  ahead->multipliesCarried = rows && llvm::any_of(op.getBody()->getOps<tile::DotOp>(), [&](tile::DotOp dot) {
                               return inRows.count(dot.getResult()) && isCarriedState(dot.getA(), op);
                             });
  bool together = handsOn || ahead->multipliesCarried;
  bool walk = together || (rows && llvm::any_of(*op.getBody(), [&](Operation &inside) {
                             return isRunningSum(&inside) && inRows.count(inside.getResult(0));
                           }));
  auto stays = [&](Value source) {
    return llvm::none_of(written, [&](Value target) { return mayShare(source, target); });
  };
  auto isNumbers = [&](tile::LoadOp load) {
    return walk && tileType(load.getResult()).getRank() == 1 &&
           tileType(load.getResult()).getElementTypeBitWidth() == 8 * kNumberBytes;
  };
  auto added = [&](tile::LoadOp load) {
    return (few || walk) &&
           llvm::all_of(load->getUsers(), [&](Operation *user) { return user->getBlock() == op.getBody(); });
  };
  auto multiplied = [&](tile::LoadOp load) {
    return added(load) || llvm::any_of(load->getUsers(), [&](Operation *user) -> bool {
             auto dot = dyn_cast<tile::DotOp>(user);
             if (!dot || dot->getBlock() != op.getBody() || load.getResult() == dot.getAcc() || !onTensorCores(dot))
               return false;
             Value other = load.getResult() == dot.getA() ? dot.getB() : dot.getA();
             return rows ? inRows.count(dot.getResult()) : isCarried(other, op);
           });
  };
  // Boxes bring what products read as a panel, and rows that formulas read by ldmatrix, which finds them there.
  auto comesInBox = [&](tile::LoadOp load) {
    VectorType type = tileType(load.getResult());
    return walk && limits.wgmma && kernel->hasAttr(tile::kBoxesAttr) && op->getParentOp() == kernel &&
           type.getRank() == 2 && isBox(load, panelOf(type)) &&
           (panels.count(load.getResult()) || isHeldInRows(load.getResult()) ||
            llvm::all_of(load->getUsers(), [&](Operation *user) {
              return isa<tile::SliceOp>(user) && isHeldInRows(user->getResult(0));
            }));
  };
  ahead->loop = op;
  ahead->step = *step;
  llvm::SetVector<Operation *> places;
  int64_t bytes = 0;
  for (auto load : op.getBody()->getOps<tile::LoadOp>()) {
    SmallVector<Value> numbers(load.getIndices());
    if (load.getLimit())
      numbers.push_back(load.getLimit());
    bool isTileOrNumbers = tileType(load.getResult()).getRank() == 2 || isNumbers(load);
    if (load.getRows() || !isTileOrNumbers || views.count(load.getResult()) || !stays(load.getSource()) ||
        !multiplied(load) ||
        !llvm::all_of(numbers, [&](Value v) { return collectPlaces(v, op, places, /*tables=*/walk); }))
      continue;
    ahead->loads.push_back(load);
    if (comesInBox(load)) {
      ahead->boxes.insert(load);
      ahead->boxBytes += bytesOfOne(load);
    }
    bytes += bytesOfOne(load);
  }
  bool moved = llvm::any_of(places, [&](Operation *place) { // by the loop itself
    auto table = dyn_cast<memref::LoadOp>(place);
    return table && !stays(table.getMemRef());
  });
  if (ahead->loads.empty() || moved)
    return nullptr;
  // Two blocks may share a multiprocessor, and keep doing so.
  int64_t room = limits.sharedBytes / 2;
  auto fit = [&] { return freeOffset(ahead->stages * bytes, 16) + ahead->stages * bytes <= room; };
  auto most = [&](int64_t least) {
    for (ahead->stages = kMostStages; ahead->stages > least && !fit();)
      --ahead->stages;
    return fit();
  };
  if (walk && !most(together ? 2 : kWantedStages)) {
    room = limits.sharedBytes - kPatternBytes * static_cast<int64_t>(ahead->loads.size());
    for (Operation &inside : *op.getBody()) // lies beside, in each iteration
      if (inside.getNumResults() == 1 && isHandedOn(inside.getResult(0)))
        room -= llvm::alignTo(lengthOf(tileType(inside.getResult(0))) * 2, kPatternBytes);
  }
  if (few || walk)
    most(2);
  if (!fit())
    return nullptr;
  ahead->grouped = walk || ahead->stages > 2;
  ahead->places = places.takeVector();
  llvm::sort(ahead->places, [](Operation *x, Operation *y) { return x->isBeforeInBlock(y); });
  for (tile::LoadOp load : ahead->loads) {
    bool panel = panels.count(load.getResult()) || ahead->boxes.contains(load);
    Buffer *buffer = allocate(b.getI8Type(), ahead->stages * bytesOfOne(load), panel ? kPatternBytes : 16);
    ++buffer->pins;
    ahead->buffers.push_back(buffer);
  }
  // Whoever is through may not write where others still wait: barriers stay.
  if (ahead->boxBytes > 0) {
    ahead->full = allocate(b.getI64Type(), ahead->stages, kBarrierBytes);
    ++ahead->full->pins;
  }
  return ahead;
}

View ThreadLowering::stageOf(const Ahead &ahead, size_t i, Value stage) {
  tile::LoadOp load = ahead.loads[i];
  VectorType type = tileType(load.getResult());
  Buffer *buffer = ahead.buffers[i];
  bool panel = panels.count(load.getResult()) || ahead.boxes.contains(load);
  int64_t length = panel ? panelOf(type).bytes() / 2 : lengthOf(type);
  View view = panel ? panelView(buffer) : viewOf(buffer, type);
  auto space = cast<MemRefType>(shared.getType()).getMemorySpace();
  auto memref = MemRefType::get({length}, storage(type.getElementType()), MemRefLayoutAttrInterface(), space);
  Value at = add(mul(stage, constant(buffer->bytes / ahead.stages)), buffer->offset);
  view.memref = memref::ViewOp::create(b, loc, memref, shared, at, ValueRange());
  return view;
}

/// Whether what a product reads stays where it is until the iteration ends: it is awaited where its sums are read. Other walks wait for all products of an iteration together, or
/// for each.
bool ThreadLowering::staysUntilEnd(tile::DotOp dot, Value right) const {
  std::shared_ptr<const Ahead> ahead = aheads.lookup(dot->getParentOp());
  return ahead && ahead->multipliesCarried && fetched.count(right.getDefiningOp());
}

/// Starts the copies of iteration `at`, if there is one, as one group; only the end of the iteration before waits for them.
void ThreadLowering::fetchAhead(const Ahead &ahead, Value at, Value stage) {
  scf::ForOp op = ahead.loop;
  Value hi = scalars.lookup(op.getUpperBound());
  onlyIf(arith::CmpIOp::create(b, loc, arith::CmpIPredicate::slt, at, hi), [&] {
    Accesses before = std::exchange(pending, {});
    bool others = std::exchange(copying, false);
    llvm::SaveAndRestore together(grouped, ahead.grouped);
    auto now = views; // of this iteration, where its loads have been
    for (tile::LoadOp load : ahead.loads)
      views.erase(load.getResult());
    scalars.map(op.getInductionVar(), at);
    for (Operation *place : ahead.places)
      if (failed(lowerScalar(place)))
        failedOnce = true;
    for (size_t i = 0; i < ahead.loads.size(); ++i) {
      tile::LoadOp load = ahead.loads[i];
      if (ahead.boxes.contains(load))
        continue;
      accesses[load] = access(load.getSource(), load.getIndices(), load.getDims(), load.getLimit());
      if (panels.count(load.getResult()))
        fillPanel(stageOf(ahead, i, stage), load);
      else if (tileType(load.getResult()).getRank() == 1)
        copyNumbers(load, memref::ExtractAlignedPointerAsIndexOp::create(b, loc, stageOf(ahead, i, stage).memref),
                    thread, threads);
      else
        fill(stageOf(ahead, i, stage), tileType(load.getResult()), load.getResult());
    }
    views = std::move(now);
    if (ahead.full)
      onlyIf(less(thread, 1), [&] {
        Value full = barrierOf(b, loc, ahead.full->memref, ahead.stages, /*empty=*/false, stage);
        expectBytes(b, loc, full, ahead.boxBytes);
        for (size_t i = 0; i < ahead.loads.size(); ++i)
          if (tile::LoadOp load = ahead.loads[i]; ahead.boxes.contains(load)) {
            Value target = memref::ExtractAlignedPointerAsIndexOp::create(b, loc, stageOf(ahead, i, stage).memref);
            copyPanelInBulk(load, panelOf(tileType(load.getResult())), target, full);
          }
      });
    pending = std::move(before);
    copying = others;
  });
  if (ahead.grouped && ahead.boxes.size() < ahead.loads.size())
    NVVM::CpAsyncCommitGroupOp::create(b, loc);
}

/// Waits for the boxes of iteration `at`, the one numbered `number`, if there is one. Rows behind the limits of its tiles are cleared: zeros, as copies of threads
/// leave there. The barrier behind this lets all warps read them.
void ThreadLowering::awaitAhead(const Ahead &ahead, Value at, Value number) {
  scf::ForOp op = ahead.loop;
  Value hi = scalars.lookup(op.getUpperBound());
  onlyIf(arith::CmpIOp::create(b, loc, arith::CmpIPredicate::slt, at, hi), [&] {
    IRMapping here = scalars;
    scalars.map(op.getInductionVar(), at);
    lowerScalars(ahead.places);
    Value stage = remainder(number, ahead.stages), cuts;
    SmallVector<std::pair<size_t, Value>> ending; // and how many of its rows are wanted
    for (size_t i = 0; i < ahead.loads.size(); ++i)
      if (tile::LoadOp load = ahead.loads[i];
          ahead.boxes.contains(load) && endsBefore(load.getLimit(), load.getSource(), load.getDims().front())) {
        Value row = scalars.lookup(load.getIndices()[load.getDims().front()]);
        Value live = arith::SubIOp::create(b, loc, scalars.lookup(load.getLimit()), row);
        ending.push_back({i, live});
        Value rows = constant(tileType(load.getResult()).getDimSize(0));
        Value cut = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::slt, live, rows);
        cuts = cuts ? arith::OrIOp::create(b, loc, cuts, cut).getResult() : cut;
      }
    awaitPhase(b, loc, barrierOf(b, loc, ahead.full->memref, ahead.stages, /*empty=*/false, stage),
               remainder(divide(number, ahead.stages), 2));
    // Lanes may have left the loop that waits one after the other.
    NVVM::SyncWarpOp::create(b, loc, arith::ConstantOp::create(b, loc, b.getI32IntegerAttr(-1)));
    if (cuts)
      onlyIf(cuts, [&] {
        for (auto [i, live] : ending) {
          tile::LoadOp load = ahead.loads[i];
          clearRows(panelOf(tileType(load.getResult())), live, stageOf(ahead, i, stage), thread, threads);
        }
        orderForAsync();
      });
    scalars = here;
  });
}

/// Waits for all copies of the next iteration but those that come in boxes.
void ThreadLowering::finishAhead(const Ahead &ahead) {
  if (ahead.boxes.size() == ahead.loads.size())
    return;
  NVVM::CpAsyncWaitGroupOp::create(b, loc, ahead.stages - 2);
  // What boxes bring wgmma sees as it comes.
  if (llvm::any_of(ahead.loads,
                   [&](tile::LoadOp load) { return panels.count(load.getResult()) && !ahead.boxes.contains(load); }))
    orderForAsync();
}

void ThreadLowering::beforeLoop(scf::ForOp op) {
  if (beginTiles(op)) {
    auto around = llvm::find_if(pipelines, [&](const auto &known) {
      return known.second->inBulk() && (op == known.second->tiles || op == known.second->groups);
    });
    if (around != pipelines.end())
      for (Value bound : {op.getLowerBound(), op.getUpperBound()})
        scalars.map(bound, alike(scalars.lookup(bound)));
    return;
  }
  if (beginBoxes(op))
    return;
  std::shared_ptr<const Ahead> ahead = loadsAhead(op);
  if (!ahead)
    return;
  aheads[op] = ahead;
  copied = true;
  if (ahead->full) {
    onlyIf(less(thread, 1),
           [&] { beginPhases(b, loc, ahead->full->memref, ahead->stages, /*toFill=*/1, /*toLeave=*/0); });
    orderForAsync();
  }
  gpu::BarrierOp::create(b, loc); // nobody reads any more what lay there
  Value first = scalars.lookup(op.getLowerBound());
  for (int64_t i = 0; i + 1 < ahead->stages; ++i)
    fetchAhead(*ahead, i ? add(first, i * ahead->step) : first, constant(i));
  finishAhead(*ahead);
  if (ahead->full)
    awaitAhead(*ahead, first, constant(0));
  gpu::BarrierOp::create(b, loc);
  pending = {};
  copying = false;
}

SmallVector<Value *> ThreadLowering::carriedBeside(scf::ForOp op) {
  for (const auto &[sum, pipe] : pipelines)
    if (pipe->turn && (op == pipe->tiles || op == pipe->groups))
      return {&pipe->turn};
  return {};
}

void ThreadLowering::enterIteration(scf::ForOp op, Value at) {
  if (std::shared_ptr<RowBoxes> boxes = rowBoxes.lookup(op))
    return enterBoxes(*boxes, at);
  std::shared_ptr<const Ahead> ahead = aheads.lookup(op);
  if (!ahead)
    return;
  Value first = scalars.lookup(op.getLowerBound());
  Value stage = remainder(divide(arith::SubIOp::create(b, loc, at, first), ahead->step), ahead->stages);
  int64_t before = ahead->stages - 1;
  Value other = before == 1 ? arith::SubIOp::create(b, loc, constant(1), stage).getResult()
                            : remainder(add(stage, before), ahead->stages);
  auto fetch = [this, ahead, next = add(at, before * ahead->step), other] { fetchAhead(*ahead, next, other); };
  toFetch = {b.getInsertionBlock(), fetch};
  bool byThreads = llvm::any_of(ahead->loads, [&](tile::LoadOp load) {
    return tileType(load.getResult()).getRank() == 2 && !ahead->boxes.contains(load);
  });
  if (byThreads)
    fetchBeside();
  scalars.map(op.getInductionVar(), at);
  for (size_t i = 0; i < ahead->loads.size(); ++i) {
    tile::LoadOp load = ahead->loads[i];
    fetched[load] = stageOf(*ahead, i, stage);
  }
}

/// What one thread starts does not keep others from multiplying: it comes behind the first products of an iteration, before they are awaited.
void ThreadLowering::fetchBeside() {
  if (!toFetch.second || b.getInsertionBlock() != toFetch.first)
    return;
  Accesses now = phase;
  bool begun = started;
  IRMapping here = scalars;
  std::exchange(toFetch, {}).second();
  scalars = here;
  phase = now;
  started = begun;
}

void ThreadLowering::leaveIteration(scf::ForOp op) {
  for (const auto &[sum, pipe] : pipelines)
    if (op == pipe->tiles && !pipe->numbers.empty())
      std::tie(thread, lane, warp) = std::tuple(pipe->numbers[0], pipe->numbers[1], pipe->numbers[2]);
  if (std::shared_ptr<RowBoxes> boxes = rowBoxes.lookup(op))
    return leaveBoxes(*boxes);
  std::shared_ptr<const Ahead> ahead = aheads.lookup(op);
  if (!ahead)
    return;
  fetchBeside();
  finishAhead(*ahead);
  if (ahead->full) {
    Value at = scalars.lookup(op.getInductionVar());
    Value number = divide(arith::SubIOp::create(b, loc, at, scalars.lookup(op.getLowerBound())), ahead->step);
    awaitAhead(*ahead, add(at, ahead->step), add(number, 1));
  }
  writes = true;
}

void ThreadLowering::afterLoop(scf::ForOp op) {
  endTiles(op);
  if (std::shared_ptr<RowBoxes> boxes = rowBoxes.lookup(op))
    endBoxes(*boxes);
  std::shared_ptr<const Ahead> ahead = aheads.lookup(op);
  if (!ahead)
    return;
  for (size_t i = 0; i < ahead->loads.size(); ++i) {
    tile::LoadOp load = ahead->loads[i];
    fetched.erase(load);
    --ahead->buffers[i]->pins;
    giveBack(ahead->buffers[i]);
  }
  aheads.erase(op);
}
