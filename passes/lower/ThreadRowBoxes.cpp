//===- ThreadRowBoxes.cpp - what rows in registers meet, copied in boxes to a ring --------------------------------===//
//
// Where warpgroups own rows (ThreadRows.cpp) and tiles pass by, all of them read the same tiles, but nothing else of each other: so each of
// them goes through the loop at its own pace, which lets one multiply while another computes exponentials. Tiles travel in boxes
// (ThreadBulkCopies.cpp) to a ring of stages, with barriers in shared memory that say which stage is full and which is empty. The warps, which all multiply, take turns to
// start the copies of the iteration two before the last that the ring has room for: so nobody waits for those that are less than an iteration
// behind. Vectors that are read beside a tile, of which no box need be, the lanes copy by themselves.
//
// A warpgroup's own products go on beside its formulas (FlashAttention-3, Shah et al. 2024): each is awaited where its sums are read, and no register that a
// product reads or writes is written while another one is under way, or the assembler would let none be.
//
//===-------------------------------------------------------------------------------------------------------------===//
#include "passes/lower/ThreadProducts.h"

#include "mlir/Dialect/LLVMIR/NVVMDialect.h"

using namespace mlir;
using namespace braid;
using namespace braid::lower;

namespace {
constexpr int64_t kMostStages = 4, kLeastStages = 3;
constexpr int64_t kBehind = 2; // iterations that warps may be apart, and one
} // namespace

struct ThreadLowering::RowBoxes {
  scf::ForOp loop;
  int64_t step;
  SmallVector<tile::LoadOp> tiles, vectors;
  SmallVector<Operation *> places; ///< scalars of an iteration that say where, in order
  int64_t stages = 0, stageBytes = 0, boxBytes = 0;
  Buffer *ring = nullptr, *barriers = nullptr;
  Value stage, phase; ///< of the iteration that is emitted, and of its boxes
  int64_t seen = 0; ///< groups of products that had begun where one was awaited last
  int64_t ahead() const { return stages - kBehind; }
};

/// Of a loop in rows, if all tiles that it multiplies can be copied so.
std::shared_ptr<ThreadLowering::RowBoxes> ThreadLowering::boxesOf(scf::ForOp op) {
  std::optional<int64_t> step = getConstantIntValue(op.getStep());
  if (!mayCopyAhead || scratched || panels.empty() || !step || !kernel->hasAttr(tile::kBoxesAttr) ||
      op->getParentOp() != kernel || llvm::none_of(op.getResults(), [&](Value v) { return inRows.count(v); }))
    return nullptr;
  auto boxes = std::make_shared<RowBoxes>();
  boxes->loop = op;
  boxes->step = *step;
  llvm::SetVector<Operation *> places;
  for (auto load : op.getBody()->getOps<tile::LoadOp>()) {
    VectorType type = tileType(load.getResult());
    SmallVector<Value> numbers(load.getIndices());
    if (load.getLimit())
      numbers.push_back(load.getLimit());
    bool known = llvm::all_of(numbers, [&](Value v) { return collectPlaces(v, op, places); });
    if (panels.count(load.getResult())) {
      if (!known || !isBox(load, panelOf(type)) || endsEarly(load, panelOf(type)))
        return nullptr;
      boxes->tiles.push_back(load);
      boxes->boxBytes += panelOf(type).bytes();
    } else if (known && type.getRank() == 1 && !load.getRows() && plan.isKept(load.getResult()) &&
               type.getElementTypeBitWidth() == 8 * kNumberBytes && type.getNumElements() % kWarp == 0 &&
               load.getDims().back() + 1 == load.getSource().getType().getRank()) {
      boxes->vectors.push_back(load);
      boxes->stageBytes += type.getNumElements() * kNumberBytes;
    } else {
      return nullptr; // it would be written where others still read
    }
  }
  if (boxes->tiles.empty())
    return nullptr;
  boxes->places = places.takeVector();
  llvm::sort(boxes->places, [](Operation *x, Operation *y) { return x->isBeforeInBlock(y); });
  boxes->stageBytes = boxes->boxBytes + llvm::alignTo(boxes->stageBytes, kPatternBytes);
  // Between what lies there now there may be no place for all of it; packed there is (TileToThreads.cpp).
  int64_t taken = 0;
  for (const Buffer *buffer : live)
    taken += buffer->bytes;
  taken = llvm::alignTo(taken, kPatternBytes) + 2 * kMostStages * kBarrierBytes;
  boxes->stages = std::min(kMostStages, (limits.sharedBytes - taken) / boxes->stageBytes);
  return boxes->stages < kLeastStages ? nullptr : boxes;
}

/// The ring, and the copies of its first stages.
bool ThreadLowering::beginBoxes(scf::ForOp op) {
  std::shared_ptr<RowBoxes> boxes = boxesOf(op);
  if (!boxes)
    return false;
  boxes->ring = allocate(b.getBF16Type(), boxes->stages * boxes->stageBytes / 2, kPatternBytes);
  // Whoever is through may not write where others still wait: barriers stay.
  boxes->barriers = allocate(b.getI64Type(), 2 * boxes->stages, kBarrierBytes);
  ++boxes->ring->pins;
  ++boxes->barriers->pins;
  rowBoxes[op] = boxes;
  copied = true;
  gpu::BarrierOp::create(b, loc); // nobody reads any more what lay there
  onlyIf(less(thread, 1), [&] {
    beginPhases(b, loc, boxes->barriers->memref, boxes->stages, /*toFill=*/1 + (boxes->vectors.empty() ? 0 : kWarp),
                /*toLeave=*/threads / kWarp);
  });
  awaitCopies();
  gpu::BarrierOp::create(b, loc);
  pending = {};
  copying = false;
  Value at = scalars.lookup(op.getLowerBound());
  for (int64_t i = 0; i < boxes->ahead(); ++i)
    copyBoxes(*boxes, add(at, i * boxes->step), constant(i));
  return true;
}

/// Starts the copies of iteration `number`, which is at `at`, if there is one: by the warp whose turn it is.
void ThreadLowering::copyBoxes(const RowBoxes &boxes, Value at, Value number) {
  scf::ForOp op = boxes.loop;
  Value there = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::slt, at, scalars.lookup(op.getUpperBound()));
  Value turn = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, warp, remainder(number, threads / kWarp));
  onlyIf(arith::AndIOp::create(b, loc, turn, there), [&] {
    Accesses before = std::exchange(pending, {});
    bool others = std::exchange(copying, false);
    IRMapping here = scalars;
    scalars.map(op.getInductionVar(), at);
    for (Operation *place : boxes.places)
      if (failed(lowerScalar(place)))
        failedOnce = true;
    Value stage = remainder(number, boxes.stages), parity = remainder(divide(number, boxes.stages), 2);
    Value full = barrierOf(b, loc, boxes.barriers->memref, boxes.stages, /*empty=*/false, stage);
    awaitPhase(b, loc, barrierOf(b, loc, boxes.barriers->memref, boxes.stages, /*empty=*/true, stage),
               arith::SubIOp::create(b, loc, constant(1), parity));
    Value target = add(memref::ExtractAlignedPointerAsIndexOp::create(b, loc, boxes.ring->memref),
                       mul(stage, constant(boxes.stageBytes)));
    int64_t offset = 0;
    onlyIf(less(lane, 1), [&] {
      expectBytes(b, loc, full, boxes.boxBytes);
      for (tile::LoadOp load : boxes.tiles) {
        Panel panel = panelOf(tileType(load.getResult()));
        copyPanelInBulk(load, panel, add(target, offset), full);
        offset += panel.bytes();
      }
    });
    for (tile::LoadOp load : boxes.vectors) {
      copyNumbers(load, add(target, offset), lane, kWarp);
      offset += tileType(load.getResult()).getNumElements() * kNumberBytes;
    }
    // An arrival of each lane, when what it has copied is there.
    if (!boxes.vectors.empty())
      emitBulk(b, loc, "copied", "cp.async.mbarrier.arrive.noinc.shared::cta.b64 [$0];", "l", {full});
    scalars = here;
    pending = std::move(before);
    copying = others;
  });
  NVVM::SyncWarpOp::create(b, loc, arith::ConstantOp::create(b, loc, b.getI32IntegerAttr(-1)));
}

/// A vector, by the lanes of a warp or the threads of a block, `together` of them, of which this is the one numbered `first`; zeros at and past its limit.
void ThreadLowering::copyNumbers(tile::LoadOp load, Value target, Value number, int64_t together) {
  Access at = access(load.getSource(), load.getIndices(), load.getDims(), load.getLimit());
  Value from = memref::ExtractAlignedPointerAsIndexOp::create(b, loc, arguments[load.getSource()].memref);
  auto bytes = [&](int64_t count) { return arith::ConstantOp::create(b, loc, b.getI32IntegerAttr(count)); };
  int64_t count = tileType(load.getResult()).getNumElements();
  for (int64_t first = 0; first < count; first += together) {
    Value i = add(number, first);
    onlyIf(first + together > count ? less(i, count) : Value(), [&] {
      Value live;
      if (at.limit)
        live = arith::SelectOp::create(b, loc, inBounds(add(at.row, i), at.limit), bytes(kNumberBytes), bytes(0));
      Value source = add(from, mul(add(at.offset, mul(i, at.strides.back())), constant(kNumberBytes)));
      NVVM::CpAsyncOp::create(
          b, loc,
          pointer(add(target, mul(i, constant(kNumberBytes))), static_cast<unsigned>(NVVM::NVVMMemorySpace::Shared)),
          pointer(source, static_cast<unsigned>(NVVM::NVVMMemorySpace::Global)), kNumberBytes,
          NVVM::LoadCacheModifierKind::CA, live);
    });
  }
}

void ThreadLowering::enterBoxes(RowBoxes &boxes, Value at) {
  scf::ForOp op = boxes.loop;
  Value number = divide(arith::SubIOp::create(b, loc, at, scalars.lookup(op.getLowerBound())), boxes.step);
  copyBoxes(boxes, add(at, boxes.ahead() * boxes.step), add(number, boxes.ahead()));
  boxes.stage = remainder(number, boxes.stages);
  boxes.phase = remainder(divide(number, boxes.stages), 2);
  awaitPhase(b, loc, barrierOf(b, loc, boxes.barriers->memref, boxes.stages, /*empty=*/false, boxes.stage),
             boxes.phase);
  // Lanes may have left the loop that waits one after the other.
  NVVM::SyncWarpOp::create(b, loc, arith::ConstantOp::create(b, loc, b.getI32IntegerAttr(-1)));
  Value begin = add(mul(boxes.stage, constant(boxes.stageBytes)), boxes.ring->offset);
  auto space = cast<MemRefType>(shared.getType()).getMemorySpace();
  int64_t offset = 0;
  auto place = [&](tile::LoadOp load, View view, int64_t bytes) {
    Type stored = storage(elementOf(load.getResult()));
    auto memref = MemRefType::get({bytes / bytesOf(stored)}, stored, MemRefLayoutAttrInterface(), space);
    view.memref = memref::ViewOp::create(b, loc, memref, shared, add(begin, offset), ValueRange());
    fetched[load] = view;
    offset += bytes;
  };
  for (tile::LoadOp load : boxes.tiles)
    place(load, panelView(boxes.ring), panelOf(tileType(load.getResult())).bytes());
  for (tile::LoadOp load : boxes.vectors) {
    VectorType type = tileType(load.getResult());
    place(load, viewOf(boxes.ring, type), type.getNumElements() * kNumberBytes);
  }
}

/// Nothing of this warp reads the stage any more.
void ThreadLowering::leaveBoxes(const RowBoxes &boxes) {
  settleAll();
  NVVM::SyncWarpOp::create(b, loc, arith::ConstantOp::create(b, loc, b.getI32IntegerAttr(-1)));
  onlyIf(less(lane, 1), [&] {
    arriveAt(b, loc, barrierOf(b, loc, boxes.barriers->memref, boxes.stages, /*empty=*/true, boxes.stage));
  });
}

/// What lies in a ring until the iteration ends may be multiplied while formulas are computed: sums are awaited where they are read. The assembler would
/// wait as early as it can, and compute what does not need the sums behind that; but it moves nothing across a loop, such as that of threads that wait for
/// boxes, which have come. `beside`: what the same formula reads, made before; where warps wait for the whole block, and no such loop is there, it passes through
/// the instruction that waits.
void ThreadLowering::settle(Value v, ArrayRef<Value> beside) {
  auto it = inFlight.find(v);
  if (it == inFlight.end())
    return;
  fetchBeside();
  for (auto &[loop, boxes] : rowBoxes) {
    if (it->second > awaited && it->second <= boxes->seen)
      awaitPhase(b, loc, barrierOf(b, loc, boxes->barriers->memref, boxes->stages, /*empty=*/false, boxes->stage),
                 boxes->phase);
    boxes->seen = groups;
  }
  bool waits = it->second > awaited;
  awaited = std::max(awaited, it->second);
  inFlight.erase(it);
  SmallVector<Value> together(owned[v]), passing;
  for (Value other : beside)
    if (waits && rowBoxes.empty() && other != v && !inFlight.count(other) && tileType(other).getElementType().isF32()) {
      passing.push_back(other);
      llvm::append_range(together, owned[other]);
    }
  together = awaitProducts(together, groups - awaited);
  ArrayRef<Value> rest = together;
  passing.insert(passing.begin(), v);
  for (Value one : passing) {
    size_t count = owned[one].size();
    owned[one] = SmallVector<Value>(rest.take_front(count));
    rest = rest.drop_front(count);
  }
}

void ThreadLowering::settleAll() {
  while (!inFlight.empty())
    settle(inFlight.front().first);
}

/// A branch may not wait: what follows it would not have.
void ThreadLowering::settleReads(Region &region) {
  region.walk([&](Operation *inside) {
    for (Value leaf : ownedLeaves(inside->getOperands()))
      settle(leaf);
  });
}

void ThreadLowering::endBoxes(RowBoxes &boxes) {
  for (tile::LoadOp load : llvm::concat<tile::LoadOp>(boxes.tiles, boxes.vectors))
    fetched.erase(load);
  --boxes.ring->pins;
  giveBack(boxes.ring);
  rowBoxes.erase(boxes.loop);
}
