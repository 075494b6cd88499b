//===- ThreadBulkCopies.cpp - the operands of products, brought by a warp of their own ----------------------------===//
//
// Hopper copies a box of a matrix by one instruction of one thread (PTX ISA, cp.async.bulk.tensor), past the registers and the caches of
// threads, which bring 32 bytes a cycle to a multiprocessor's shared memory and no more; boxes come faster, and with the swizzle that wgmma
// reads. So where a kernel is nothing but a loop over tiles of sums, one warp more than there are to multiply walks the same loops and
// starts the copies, as far ahead as the ring has room: past the end of a tile, while its sums are stored, in boxes too (ThreadResultBoxes.cpp).
//
// Each stage has two barriers in shared memory (PTX ISA, mbarrier). `full` ends a phase when the bytes of both tiles are there, `empty` when every warp
// has multiplied them. The stage that is filled for the n-th time, from 0, has parity n mod 2.
//
// Two neighbouring blocks may multiply by the same tiles of one operand (tile.shared_operand): a cluster, whose blocks run at a time, so that half of such a
// tile is brought by each of them, for both (PTX ISA, .multicast::cluster), and the cache that all multiprocessors share gives it once. Its bytes end the
// phase of either's barrier. A stage is empty when the warps of both have multiplied it, for both write there, so all warps tell both. Neither block ends before the
// other, which may still tell it so.
// Tensor cores stand still while both warpgroups store their sums. So the second one may begin a tile a few steps behind the first (tile.staggered): it multiplies while
// that one stores, and the first one begins the next tile while the second one stores. Both read the same stages, so it is behind by half of them: of the others the
// copies are under way. A fourth kind of barrier, `passed`, says that the first one has issued a stage's products. Where what a tile's end reads comes by the ring, too, the
// first would wait for the second there.
//
// A box brings zeros past the end of a buffer only. Where rows along k end before, what lies behind them is another group's: the boxes of such a step
// end a phase of a third kind of barrier, `cut`, the lanes of the warp that copies clear what is behind the end, and then the stage is full.
//
//===-------------------------------------------------------------------------------------------------------------===//
#include "passes/lower/KernelSignature.h"
#include "passes/lower/ThreadProducts.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
using namespace braid;
using namespace braid::lower;

static constexpr int64_t kMostRows = 256; // of a box

//===- Their instructions -----------------------------------------------------------------------------------------===//

void lower::emitBulk(OpBuilder &b, Location loc, StringRef kind, StringRef text, StringRef constraints,
                     ValueRange operands) {
  auto code = LLVM::InlineAsmOp::create(b, loc, TypeRange{}, operands, text,
                                        (constraints + (constraints.empty() ? "" : ",") + "~{memory}").str(),
                                        /*has_side_effects=*/true, /*is_align_stack=*/false,
                                        LLVM::tailcallkind::TailCallKind::None, LLVM::AsmDialectAttr(), ArrayAttr());
  code->setAttr(kBulkAttr, b.getStringAttr(kind));
}

static Value asNumber(OpBuilder &b, Location loc, Value v, Type type) {
  return arith::IndexCastOp::create(b, loc, type, v);
}

static std::string repeated(StringRef text, size_t times) {
  std::string all;
  for (size_t i = 0; i < times; ++i)
    all += text;
  return all;
}

void lower::awaitPhase(OpBuilder &b, Location loc, Value barrier, Value parity) {
  emitBulk(
      b, loc, "await",
      "{ .reg .pred p; again: mbarrier.try_wait.parity.shared::cta.b64 p, [$0], $1; @p bra done; bra again; done: }",
      "l,r", {barrier, asNumber(b, loc, parity, b.getI32Type())});
}

void lower::arriveAt(OpBuilder &b, Location loc, Value barrier) {
  emitBulk(b, loc, "arrive", "{ .reg .b64 t; mbarrier.arrive.shared::cta.b64 t, [$0]; }", "l", {barrier});
}

/// At the barrier that lies there in the block of the cluster with this number. Whoever arrives has read shared memory, and written nothing: to release that
/// to the whole cluster (.release.cluster) is a fence of the whole GPU (MEMBAR.ALL.GPU) in every step.
static void arriveIn(OpBuilder &b, Location loc, Value barrier, Value rank) {
  emitBulk(b, loc, "arrive_in",
           "{ .reg .b64 there; mapa.shared::cluster.u64 there, $0, $1; "
           "mbarrier.arrive.shared::cluster.b64 _, [there]; }",
           "l,r", {barrier, asNumber(b, loc, rank, b.getI32Type())});
}

/// All threads of the cluster.
static void meetInCluster(OpBuilder &b, Location loc) {
  emitBulk(b, loc, "cluster", "barrier.cluster.arrive.release; barrier.cluster.wait.acquire;", "", {});
}

void lower::expectBytes(OpBuilder &b, Location loc, Value barrier, int64_t bytes) {
  emitBulk(b, loc, "expect", "{ .reg .b64 t; mbarrier.arrive.expect_tx.shared::cta.b64 t, [$0], $1; }", "l,r",
           {barrier, arith::ConstantOp::create(b, loc, b.getI32IntegerAttr(static_cast<int32_t>(bytes)))});
}

static void beginPhase(OpBuilder &b, Location loc, Value barrier, int64_t arrivals) {
  emitBulk(b, loc, "begin", "mbarrier.init.shared::cta.b64 [$0], $1;", "l,r",
           {barrier, arith::ConstantOp::create(b, loc, b.getI32IntegerAttr(static_cast<int32_t>(arrivals)))});
}

void lower::beginPhases(OpBuilder &b, Location loc, Value barriers, int64_t stages, int64_t toFill, int64_t toLeave) {
  for (bool empty : {false, true})
    for (int64_t stage = 0; stage < stages && (!empty || toLeave > 0); ++stage) {
      Value number = arith::ConstantIndexOp::create(b, loc, stage);
      beginPhase(b, loc, barrierOf(b, loc, barriers, stages, empty, number), empty ? toLeave : toFill);
    }
  emitBulk(b, loc, "begun", "fence.mbarrier_init.release.cluster;", "", {});
}

//===- Where they are used ----------------------------------------------------------------------------------------===//

bool lower::endsEarly(tile::LoadOp load, const Panel &panel) {
  return !panel.alongK && endsBefore(load.getLimit(), load.getSource(), load.getDims().front());
}

bool lower::endsBefore(Value limit, Value buffer, int64_t dimension) {
  if (!limit)
    return false;
  auto size = limit.getDefiningOp<memref::DimOp>();
  return !size || size.getSource() != buffer || getConstantIntValue(size.getIndex()) != dimension;
}

/// Whether nothing of the loop's body lies in shared memory but what the ring holds; `ofSums`: whether this tile is read from the registers of sums.
static bool staysInRegisters(scf::ForOp tiles, function_ref<bool(Value)> ofSums) {
  return llvm::all_of(tiles.getBody()->without_terminator(), [&](Operation &op) {
    if (isa<scf::ForOp>(op) || (op.getNumResults() == 1 && ofSums(op.getResult(0))))
      return true;
    if (auto one = dyn_cast<vector::BroadcastOp>(op); one && !isTile(one.getSource())) // a number
      return true;
    return !isa<tile::ReduceOp, tile::CumsumOp, tile::DotOp, tile::SolveOp, tile::TransposeOp>(op) &&
           llvm::all_of(op.getResults(), [](Value v) { return !isTile(v) || v.hasOneUse(); });
  });
}

/// A loop over tiles, alone in a kernel whose operands can be copied in boxes. Boxes are not larger than what they are cut from, so that is as wide as
/// a block of columns. What rows read past a limit along m or n is not stored.
bool ThreadLowering::copiesInBulk(const Pipeline &pipe, const SumReads &reads) {
  const Product &p = pipe.p;
  scf::ForOp tiles = pipe.tiles, all = pipe.groups ? pipe.groups : tiles;
  bool meet = p.across > 1; // warps that share rows, in shared memory
  auto ofSums = [&](Value v) {
    return reads.formulas.contains(v) || llvm::is_contained(reads.madeOfRows, v) || (!meet && reads.rows.contains(v));
  };
  int64_t barriers = (3 * p.stages + 1) * kBarrierBytes;
  if (!p.wgmma || scratched || !kernel->hasAttr(tile::kBoxesAttr) || all->getBlock() != &kernel.front() ||
      !staysInRegisters(tiles, ofSums) || freeOffset(barriers, kBarrierBytes) + barriers > limits.sharedBytes)
    return false;
  for (Operation &op : kernel.front())
    if (&op != all && !isa<arith::ConstantOp>(op) &&
        (op.getNumRegions() != 0 || llvm::any_of(op.getOperands(), isTile) || llvm::any_of(op.getResults(), isTile) ||
         isa<memref::StoreOp>(op)))
      return false;
  return isBox(p.a, p.left) && llvm::all_of(p.bs, [&](tile::LoadOp load) { return isBox(load, p.right); });
}

bool ThreadLowering::isBox(tile::LoadOp load, const Panel &panel) {
  int64_t rank = cast<MemRefType>(load.getSource().getType()).getRank();
  if (panel.rows > kMostRows || panel.columns < kBlockColumns || load.getDims().back() != rank - 1)
    return false;
  bool plain = true;
  eachArgument(load.getSource(), [&](Value argument) {
    auto type = cast<MemRefType>(argument.getType());
    plain &= type.getElementType().isBF16() && type.getRank() == rank && isa<BlockArgument>(argument);
  });
  return plain;
}

Value lower::barrierOf(OpBuilder &b, Location loc, Value barriers, int64_t stages, bool empty, Value stage) {
  auto number = [&](int64_t v) -> Value { return arith::ConstantIndexOp::create(b, loc, v); };
  Value first = memref::ExtractAlignedPointerAsIndexOp::create(b, loc, barriers);
  Value offset = arith::MulIOp::create(b, loc, stage, number(kBarrierBytes));
  if (empty)
    offset = arith::AddIOp::create(b, loc, offset, number(stages * kBarrierBytes));
  return asNumber(b, loc, arith::AddIOp::create(b, loc, first, offset), b.getI64Type());
}

Value ThreadLowering::fullBarrier(const Pipeline &pipe, Value stage) {
  return barrierOf(b, loc, pipe.barriers->memref, pipe.p.stages, /*empty=*/false, stage);
}

Value ThreadLowering::emptyBarrier(const Pipeline &pipe, Value stage) {
  return barrierOf(b, loc, pipe.barriers->memref, pipe.p.stages, /*empty=*/true, stage);
}

/// It lies behind all others.
Value ThreadLowering::cutBarrier(const Pipeline &pipe) { return emptyBarrier(pipe, constant(pipe.p.stages)); }

/// They lie behind those.
Value ThreadLowering::passedBarrier(const Pipeline &pipe, Value stage) {
  return emptyBarrier(pipe, add(stage, pipe.p.stages + (pipe.cuts ? 1 : 0)));
}

/// Whether neighbouring blocks bring the operand that they have in common once for both: each half of its rows, which are whole patterns of the swizzle.
static std::optional<bool> sharedRight(func::FuncOp kernel, const Panel &left, const Panel &right) {
  auto operand = kernel->getAttrOfType<StringAttr>(tile::kSharedOperandAttr);
  if (!operand)
    return std::nullopt;
  bool isRight = operand.getValue() == tile::kRight;
  constexpr int64_t rowsOfPattern = kPatternBytes / kRowBytes;
  if ((isRight ? right : left).rows % (kCluster * rowsOfPattern) != 0)
    return std::nullopt;
  return isRight;
}

/// Behind this the threads that multiply go on; those that copy have done so.
void ThreadLowering::beginBulkCopies(Pipeline &pipe, const SumReads &reads) {
  const Product &p = pipe.p;
  pipe.cuts = endsEarly(p.a, p.left) || endsEarly(p.bs.front(), p.right);
  pipe.sharedRight = sharedRight(kernel, p.left, p.right);
  cluster = pipe.sharedRight ? kCluster : 1;
  pipe.staggered = kernel->hasAttr(tile::kStaggeredAttr) && threads == 2 * kGroupWarps * kWarp && p.across == 1;
  {
    Phase phase(*this);
    int64_t count = (pipe.staggered ? 3 : 2) * p.stages + (pipe.cuts ? 1 : 0);
    pipe.barriers = allocate(b.getI64Type(), count, kBarrierBytes);
    ++pipe.barriers->pins;
    onlyIf(less(thread, 1), [&] {
      if (pipe.cuts)
        beginPhase(b, loc, cutBarrier(pipe), 1);
      for (int64_t stage = 0; pipe.staggered && stage < p.stages; ++stage)
        beginPhase(b, loc, passedBarrier(pipe, constant(stage)), kGroupWarps);
      beginPhases(b, loc, pipe.barriers->memref, p.stages, /*toFill=*/1, /*toLeave=*/cluster * threads / kWarp);
    });
  }
  pipe.results = resultBoxesOf(pipe, reads);
  planEndReads(pipe, reads);
  pipe.staggered &= pipe.reads.empty();
  if (pipe.groups)
    pipe.turn = arith::ConstantOp::create(b, loc, b.getI32IntegerAttr(0));
  copiers = kWarp;
  if (cluster > 1)
    meetInCluster(b, loc);
  else
    gpu::BarrierOp::create(b, loc);
  warp = alike(warp);
  Value copies = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::uge, warp, constant(threads / kWarp));
  pipe.roles = scf::IfOp::create(b, loc, copies, /*withElseRegion=*/true);
  b.setInsertionPoint(pipe.roles.thenBlock()->getTerminator());
  copyInBulk(pipe);
  b.setInsertionPoint(pipe.roles.elseBlock()->getTerminator());
  pipe.count = alike(pipe.count);
}

/// Tiles are independent of each other and no thread reads what another wrote, so nobody waits for the whole block, which the warp that copies would
/// not reach.
void ThreadLowering::endBulkCopies(Pipeline &pipe) {
  if (pipe.results)
    endResultBoxes(*pipe.results);
  SmallVector<gpu::BarrierOp> barriers;
  pipe.roles.walk([&](gpu::BarrierOp barrier) { barriers.push_back(barrier); });
  for (gpu::BarrierOp barrier : barriers)
    barrier.erase();
  b.setInsertionPointAfter(pipe.roles);
  if (cluster > 1)
    meetInCluster(b, loc);
  --pipe.barriers->pins;
  giveBack(pipe.barriers);
}

//===- The warp that copies ---------------------------------------------------------------------------------------===//

/// The loop as it is in the kernel, of which it is scalars; what it carries comes behind the ring's. `body` lowers an iteration, and gives the ring behind it.
SmallVector<Value> ThreadLowering::walkAlike(scf::ForOp loop, ValueRange ring,
                                             function_ref<SmallVector<Value>(Value, ValueRange)> body) {
  size_t own = ring.size();
  SmallVector<Value> begin(ring);
  for (Value init : loop.getInitArgs())
    begin.push_back(scalars.lookup(init));
  SmallVector<Value> behind = repeat(scalars.lookup(loop.getLowerBound()), scalars.lookup(loop.getUpperBound()),
                                     scalars.lookup(loop.getStep()), begin, [&](Value at, ValueRange now) {
                                       IRMapping here = scalars;
                                       scalars.map(loop.getInductionVar(), at);
                                       scalars.map(loop.getRegionIterArgs(), now.drop_front(own));
                                       SmallVector<Value> next = body(at, now.take_front(own));
                                       for (Value v : loop.getBody()->getTerminator()->getOperands())
                                         next.push_back(scalars.lookup(v));
                                       scalars = here;
                                       return next;
                                     });
  scalars.map(loop.getResults(), ValueRange(behind).drop_front(own));
  behind.resize(own);
  return behind;
}

/// `ring`: the stage that is filled, its parity, that of `cut`.
SmallVector<Value> ThreadLowering::copyTiles(const Pipeline &pipe, ValueRange ring) {
  return walkAlike(pipe.tiles, ring, [&](Value tile, ValueRange ring) {
    SmallVector<Value> behind =
        repeat(constant(0), pipe.count, constant(1), ring, [&](Value step, ValueRange ring) -> SmallVector<Value> {
          SmallVector<Value> next = nextFilled(pipe.p, ring[0], ring[1]);
          if (pipe.cuts)
            next.push_back(copyStepAndCut(pipe, {tile, step, ring[0]}, ring[1], ring[2]));
          else
            copyStepInBulk(pipe, {tile, step, ring[0]}, ring[1], fullBarrier(pipe, ring[0]), cluster > 1);
          prefetchEndReads(pipe, {tile, step, ring[0]});
          return next;
        });
    if (!pipe.reads.empty())
      behind = copyEndReads(pipe, tile, behind);
    scf::ForOp tiles = pipe.tiles;
    if (tiles.getNumResults() != 0)
      lowerScalars(pipe.places);
    return behind;
  });
}

/// All tiles of this program: by one thread, or where rows may have to be cleared by a warp, whose first thread copies.
void ThreadLowering::copyInBulk(const Pipeline &pipe) {
  auto copySteps = [&] {
    SmallVector<Value> begin(pipe.cuts ? 3 : 2, constant(0));
    if (!pipe.groups) {
      copyTiles(pipe, begin);
      return;
    }
    walkAlike(pipe.groups, begin, [&](Value, ValueRange ring) {
      scf::ForOp groups = pipe.groups;
      SmallVector<Value> behind(ring);
      for (Operation &inside : groups.getBody()->without_terminator())
        if (&inside == pipe.tiles)
          behind = copyTiles(pipe, behind);
        else
          lowerScalars({&inside});
      return behind;
    });
  };
  if (pipe.cuts)
    copySteps();
  else
    onlyIf(less(lane, 1), copySteps);
}

/// Both tiles of a step to its stage, once that is empty; their bytes end a phase of `barrier`. `together`: half of what the cluster shares, for both.
void ThreadLowering::copyStepInBulk(const Pipeline &pipe, const CopyPlace &place, Value parity, Value barrier,
                                    bool together) {
  const Product &p = pipe.p;
  awaitPhase(b, loc, emptyBarrier(pipe, place.stage), arith::SubIOp::create(b, loc, constant(1), parity));
  expectBytes(b, loc, barrier, p.stageBytes);
  Value memory = memref::ExtractAlignedPointerAsIndexOp::create(b, loc, pipe.ring.memref);
  Value start = add(memory, mul(place.stage, constant(p.stageBytes)));
  atPlace(pipe, place, [&] {
    copyPanelInBulk(p.a, p.left, add(start, p.left.offset), barrier, together && !*pipe.sharedRight);
    Panel part = p.right;
    for (tile::LoadOp load : p.bs) {
      part.columns = tileType(load.getResult()).getDimSize(1);
      copyPanelInBulk(load, part, add(start, part.offset), barrier, together && *pipe.sharedRight);
      part.offset += part.bytes();
    }
  });
}

/// By all lanes: rows behind the end of those along k are cleared once they are there. Gives the parity of `cut` for the next time.
Value ThreadLowering::copyStepAndCut(const Pipeline &pipe, const CopyPlace &place, Value parity, Value cutParity) {
  const Product &p = pipe.p;
  Value full = fullBarrier(pipe, place.stage), cut = cutBarrier(pipe);
  SmallVector<std::pair<const Panel *, Value>> ending; // and how many of its rows are wanted
  atPlace(pipe, place, [&] {
    for (auto [load, panel] : {std::pair(p.a, &p.left), std::pair(p.bs.front(), &p.right)})
      if (endsEarly(load, *panel)) {
        Value row = scalars.lookup(load.getIndices()[load.getDims().front()]);
        ending.push_back({panel, arith::SubIOp::create(b, loc, scalars.lookup(load.getLimit()), row)});
      }
  });
  Value cuts;
  for (auto [panel, live] : ending) {
    Value here = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::slt, live, constant(panel->rows));
    cuts = cuts ? arith::OrIOp::create(b, loc, cuts, here).getResult() : here;
  }
  if (cluster == 1) {
    Value barrier = arith::SelectOp::create(b, loc, cuts, cut, full);
    onlyIf(less(lane, 1), [&] { copyStepInBulk(pipe, place, parity, barrier, /*together=*/false); });
  } else { // both blocks know of the same ends; a neighbour that is ahead would end a phase of `cut` that is not its own
    Value whole = arith::XOrIOp::create(b, loc, cuts, arith::ConstantOp::create(b, loc, b.getBoolAttr(true)));
    onlyIf(arith::AndIOp::create(b, loc, less(lane, 1), whole),
           [&] { copyStepInBulk(pipe, place, parity, full, /*together=*/true); });
    onlyIf(arith::AndIOp::create(b, loc, less(lane, 1), cuts),
           [&] { copyStepInBulk(pipe, place, parity, cut, /*together=*/false); });
  }
  onlyIf(cuts, [&] {
    awaitPhase(b, loc, cut, cutParity);
    for (auto [panel, live] : ending)
      clearRows(*panel, live, pipe.ring, lane, kWarp, add(mul(place.stage, constant(p.stageBytes)), panel->offset));
    NVVM::FenceProxyOp::create(b, loc, NVVM::ProxyKindAttr::get(b.getContext(), NVVM::ProxyKind::async_shared),
                               NVVM::SharedSpaceAttr::get(b.getContext(), NVVM::SharedSpace::shared_cta));
    NVVM::SyncWarpOp::create(b, loc, arith::ConstantOp::create(b, loc, b.getI32IntegerAttr(-1)));
    onlyIf(less(lane, 1), [&] { arriveAt(b, loc, full); });
  });
  return arith::SelectOp::create(b, loc, cuts, arith::SubIOp::create(b, loc, constant(1), cutParity), cutParity);
}

void ThreadLowering::clearRows(const Panel &panel, Value live, const View &ring, Value number, int64_t together,
                               Value offset) {
  constexpr int64_t chunksInRow = kRowBytes / (2 * kChunk);
  Type chunk = VectorType::get({kChunk}, b.getBF16Type());
  Value first = offset ? divide(offset, 2) : constant(0);
  for (int64_t block = 0; block * kBlockColumns < panel.columns; ++block) {
    Value begin = add(mul(arith::MaxSIOp::create(b, loc, live, constant(0)), constant(chunksInRow)), number);
    repeat(begin, constant(panel.rows * chunksInRow), constant(together), {},
           [&](Value i, ValueRange) -> SmallVector<Value> {
             Value element = add(mul(i, constant(kChunk)), block * panel.blockBytes() / 2);
             vector::StoreOp::create(b, loc, zero(chunk), ring.memref, ValueRange{add(first, element)});
             return {};
           });
  }
}

/// The stage behind this one, and the parity with which it is filled.
SmallVector<Value> ThreadLowering::nextFilled(const Product &p, Value stage, Value parity) {
  Value next = nextStage(p, stage);
  Value wraps = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, next, constant(0));
  Value turned = arith::SubIOp::create(b, loc, constant(1), parity);
  return {next, arith::SelectOp::create(b, loc, wraps, turned, parity)};
}

/// A box for each block of 64 columns, at the coordinates of the load. `together`: of this block's half of the rows, to all blocks of the cluster.
void ThreadLowering::copyPanelInBulk(tile::LoadOp load, const Panel &panel, Value target, Value barrier,
                                     bool together) {
  int64_t rows = together ? panel.rows / cluster : panel.rows;
  Value below = together ? mul(rankInCluster(), constant(rows)) : Value();
  if (together)
    target = add(target, mul(below, constant(kRowBytes)));
  for (int64_t block = 0; block * kBlockColumns < panel.columns; ++block)
    copyBox(load, rows, kBlockColumns, block * kBlockColumns, add(target, block * panel.blockBytes()), barrier, below);
}

/// `further` columns behind those of the load. `below`: rows, of a box that comes to all blocks of the cluster; null: to this one.
void ThreadLowering::copyBox(tile::LoadOp load, int64_t rows, int64_t columns, int64_t further, Value target,
                             Value barrier, Value below) {
  SmallVector<Value> operands = {asNumber(b, loc, target, b.getI64Type()), Value(), barrier};
  std::string place = boxPlace(load, rows, columns, further, operands, /*map=*/1, below);
  size_t rank = load.getIndices().size();
  std::string text = "cp.async.bulk.tensor." + std::to_string(rank) +
                     "d.shared::cluster.global.mbarrier::complete_tx::bytes" + (below ? ".multicast::cluster" : "") +
                     " [$0], " + place + ", [$2]";
  std::string constraints = "l,l,l" + repeated(",r", rank);
  if (below) {
    text += ", $" + std::to_string(operands.size());
    constraints += ",h";
    operands.push_back(arith::ConstantOp::create(b, loc, b.getI16IntegerAttr((1 << cluster) - 1)));
  }
  emitBulk(b, loc, below ? "multicast" : "copy", text + ";", constraints, operands);
}

/// This block's number among those of its cluster.
Value ThreadLowering::rankInCluster() { return remainder(gpu::BlockIdOp::create(b, loc, gpu::Dimension::x), cluster); }

/// Asks for what a box will bring: it is on its way to the cache that all multiprocessors share.
void ThreadLowering::prefetchBox(tile::LoadOp load, int64_t rows, int64_t columns, int64_t further) {
  SmallVector<Value> operands = {Value()};
  std::string place = boxPlace(load, rows, columns, further, operands, /*map=*/0);
  emitBulk(b, loc, "prefetch",
           "cp.async.bulk.prefetch.tensor." + std::to_string(load.getIndices().size()) + "d.L2.global " + place + ";",
           "l" + repeated(",r", load.getIndices().size()), operands);
}

/// The text of a box's map and coordinates, the former as operand number `map`, the others behind all that are there. `below`: rows below those of the load.
std::string ThreadLowering::boxPlace(tile::LoadOp load, int64_t rows, int64_t columns, int64_t further,
                                     SmallVectorImpl<Value> &operands, size_t map, Value below) {
  int64_t dimension = cast<MemRefType>(load.getSource().getType()).getRank();
  operands[map] = mapAddress(load.getSource(), load.getDims(), rows, columns);
  std::string text = "[$" + std::to_string(map) + ", {";
  for (auto [i, index] : llvm::enumerate(llvm::reverse(load.getIndices()))) {
    text += (i ? ", $" : "$") + std::to_string(operands.size());
    Value at = scalars.lookup(index);
    if (i == 0)
      at = add(at, further);
    if (--dimension == load.getDims().front() && below)
      at = add(at, below);
    operands.push_back(asNumber(b, loc, at, b.getI32Type()));
  }
  return text + "}]";
}

/// Where the map lies by which such boxes of the buffer are copied, as i64.
Value ThreadLowering::mapAddress(Value source, ArrayRef<int64_t> dims, int64_t rows, int64_t columns) {
  if (auto choice = source.getDefiningOp<arith::SelectOp>())
    return arith::SelectOp::create(b, loc, scalars.lookup(choice.getCondition()),
                                   mapAddress(choice.getTrueValue(), dims, rows, columns),
                                   mapAddress(choice.getFalseValue(), dims, rows, columns));
  auto type = cast<MemRefType>(source.getType());
  KernelSignature signature = KernelSignature::of(kernel);
  TensorMap map{0, SmallVector<int64_t>(type.getShape()), {}, SmallVector<int64_t>(type.getRank(), 1)};
  if (auto layout = dyn_cast<StridedLayoutAttr>(type.getLayout()))
    map.strides.assign(layout.getStrides().begin(), layout.getStrides().end());
  for (auto [i, slot] : llvm::enumerate(signature.slots)) {
    if (slot.argument != cast<BlockArgument>(source).getArgNumber())
      continue;
    auto number = static_cast<int64_t>(i);
    if (slot.part == SlotPart::data)
      map.param = number;
    else
      (slot.part == SlotPart::size ? map.sizes : map.strides)[slot.dimension] = -1 - number;
  }
  map.box[dims.front()] = rows;
  map.box.back() = columns;
  size_t at = std::distance(maps.begin(), llvm::find(maps, map));
  if (at == maps.size())
    maps.push_back(map);
  int64_t offset = mapsOffset(signature.slotsOnDevice()) + static_cast<int64_t>(at) * kMapBytes;
  Value address = LLVM::GEPOp::create(b, loc, LLVM::LLVMPointerType::get(b.getContext()), b.getI8Type(),
                                      lowered.getArgument(0), ArrayRef<LLVM::GEPArg>{static_cast<int32_t>(offset)});
  return LLVM::PtrToIntOp::create(b, loc, b.getI64Type(), address);
}

//===- The warps that multiply ------------------------------------------------------------------------------------===//

/// `now`: the stage that is read, its parity, sums. Behind it the products of the step before are done.
SmallVector<Value> ThreadLowering::multiplyInBulk(const Pipeline &pipe, ValueRange now,
                                                  std::pair<Value, Value> panels) {
  const Product &p = pipe.p;
  awaitPhase(b, loc, fullBarrier(pipe, now[0]), now[1]);
  // Lanes may have left the loop that waits one after the other.
  NVVM::SyncWarpOp::create(b, loc, arith::ConstantOp::create(b, loc, b.getI32IntegerAttr(-1)));
  SmallVector<Value> next = nextFilled(p, now[0], now[1]);
  llvm::append_range(next, multiplyByGroups(p, panels.first, panels.second, now.drop_front(2)));
  if (pipe.staggered)
    tellPassed(pipe, now[0]);
  NVVM::WgmmaWaitGroupSyncOp::create(b, loc, 1);
  return next;
}

/// By a warp: if it is one of the first group's, the products of this stage are issued.
void ThreadLowering::tellPassed(const Pipeline &pipe, Value stage) {
  onlyIf(arith::AndIOp::create(b, loc, less(warp, kGroupWarps), less(lane, 1)),
         [&] { arriveAt(b, loc, passedBarrier(pipe, stage)); });
}

/// In front of a tile's first step: the second group lets the first one go ahead, of a tile that has enough steps.
void ThreadLowering::followGroup(const Pipeline &pipe, Value stage, Value parity) {
  int64_t behind = pipe.p.stages / 2;
  Value follows = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::sge, warp, constant(kGroupWarps));
  Value enough = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::sge, pipe.count, constant(behind));
  onlyIf(arith::AndIOp::create(b, loc, follows, enough), [&] {
    for (int64_t i = 1; i < behind; ++i) {
      SmallVector<Value> next = nextFilled(pipe.p, stage, parity);
      stage = next[0], parity = next[1];
    }
    awaitPhase(b, loc, passedBarrier(pipe, stage), parity);
  });
}

/// Nothing of this warp reads the stage before `behind` any more.
void ThreadLowering::leaveStage(const Pipeline &pipe, Value behind) {
  const Product &p = pipe.p;
  Value before = arith::SubIOp::create(b, loc, behind, constant(1));
  before = arith::SelectOp::create(b, loc, less(behind, 1), constant(p.stages - 1), before);
  tellEmpty(pipe, before);
}

/// By a warp: it reads this stage no more.
void ThreadLowering::tellEmpty(const Pipeline &pipe, Value stage) {
  onlyIf(less(lane, cluster), [&] {
    Value empty = emptyBarrier(pipe, stage);
    if (cluster > 1)
      arriveIn(b, loc, empty, lane);
    else
      arriveAt(b, loc, empty);
  });
}
