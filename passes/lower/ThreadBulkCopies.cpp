//===- ThreadBulkCopies.cpp - the operands of products, brought by a warp of their own ----------------------------===//
//
// Hopper copies a box of a matrix by one instruction of one thread (PTX ISA, cp.async.bulk.tensor), past the registers and the caches of
// threads, which bring 32 bytes a cycle to a multiprocessor's shared memory and no more; boxes come faster, and with the swizzle that wgmma
// reads. So where a kernel is nothing but a loop over tiles of sums, one warp more than there are to multiply walks the same loops and
// starts the copies, as far ahead as the ring has room: past the end of a tile, while its sums are stored.
//
// Each stage has two barriers in shared memory (PTX ISA, mbarrier). `full` ends a phase when the bytes of both tiles are there, `empty` when every warp
// has multiplied them. The stage that is filled for the n-th time, from 0, has parity n mod 2.
//
//===-------------------------------------------------------------------------------------------------------------===//
#include "passes/lower/KernelSignature.h"
#include "passes/lower/ThreadProducts.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
using namespace braid;
using namespace braid::lower;

namespace {
constexpr int64_t kMostRows = 256; // of a box
constexpr int64_t kBarrierBytes = 8;
} // namespace

//===- Their instructions -----------------------------------------------------------------------------------------===//

static void emit(OpBuilder &b, Location loc, StringRef kind, StringRef text, StringRef constraints,
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

/// Waits for the phases of this parity.
static void await(OpBuilder &b, Location loc, Value barrier, Value parity) {
  emit(b, loc, "await",
       "{ .reg .pred p; again: mbarrier.try_wait.parity.shared::cta.b64 p, [$0], $1; @p bra done; bra again; done: }",
       "l,r", {barrier, asNumber(b, loc, parity, b.getI32Type())});
}

static void arrive(OpBuilder &b, Location loc, Value barrier) {
  emit(b, loc, "arrive", "{ .reg .b64 t; mbarrier.arrive.shared::cta.b64 t, [$0]; }", "l", {barrier});
}

//===- Where they are used ----------------------------------------------------------------------------------------===//

/// Whether rows of a panel that run along k may end before those of the buffer: boxes are zero past the end of a buffer only.
static bool endsEarly(tile::LoadOp load, const Panel &panel) {
  if (panel.alongK || !load.getLimit())
    return false;
  auto size = load.getLimit().getDefiningOp<memref::DimOp>();
  return !size || size.getSource() != load.getSource() ||
         getConstantIntValue(size.getIndex()) != load.getDims().front();
}

/// Whether nothing of the loop's body lies in shared memory but what the ring holds.
static bool staysInRegisters(scf::ForOp tiles) {
  return llvm::all_of(tiles.getBody()->without_terminator(), [](Operation &op) {
    if (isa<scf::ForOp>(op))
      return true;
    return !isa<tile::ReduceOp, tile::CumsumOp, tile::DotOp, tile::SolveOp, tile::TransposeOp>(op) &&
           llvm::all_of(op.getResults(), [](Value v) { return !isTile(v) || v.hasOneUse(); });
  });
}

/// A loop over tiles, alone in a kernel whose operands can be copied in boxes. Boxes are not larger than what they are cut from, so that is as wide as
/// a block of columns. What rows read past a limit along m or n is not stored.
bool ThreadLowering::copiesInBulk(const Pipeline &pipe) {
  const Product &p = pipe.p;
  scf::ForOp tiles = pipe.tiles;
  int64_t barriers = 2 * p.stages * kBarrierBytes;
  if (!p.wgmma || scratched || !kernel->hasAttr(tile::kBoxesAttr) || tiles->getBlock() != &kernel.front() ||
      !staysInRegisters(tiles) || freeOffset(barriers, kBarrierBytes) + barriers > limits.sharedBytes)
    return false;
  for (Operation &op : kernel.front())
    if (&op != tiles && !isa<arith::ConstantOp>(op) &&
        (op.getNumRegions() != 0 || llvm::any_of(op.getOperands(), isTile) || llvm::any_of(op.getResults(), isTile) ||
         isa<memref::StoreOp>(op)))
      return false;
  for (auto [load, panel] : {std::pair(pipe.p.a, &p.left), std::pair(pipe.p.b, &p.right)}) {
    int64_t rank = cast<MemRefType>(load.getSource().getType()).getRank();
    if (panel->rows > kMostRows || panel->columns < kBlockColumns || load.getDims().back() != rank - 1 ||
        endsEarly(load, *panel))
      return false;
    bool plain = true;
    eachArgument(load.getSource(), [&](Value argument) {
      auto type = cast<MemRefType>(argument.getType());
      plain &= type.getElementType().isBF16() && type.getRank() == rank && isa<BlockArgument>(argument);
    });
    if (!plain)
      return false;
  }
  return true;
}

/// The barrier of a stage, `empty` or `full`, as i64.
static Value barrierOf(OpBuilder &b, Location loc, Value barriers, int64_t stages, bool empty, Value stage) {
  auto number = [&](int64_t v) -> Value { return arith::ConstantIndexOp::create(b, loc, v); };
  Value first = memref::ExtractAlignedPointerAsIndexOp::create(b, loc, barriers);
  Value offset = arith::MulIOp::create(b, loc, stage, number(kBarrierBytes));
  if (empty)
    offset = arith::AddIOp::create(b, loc, offset, number(stages * kBarrierBytes));
  return asNumber(b, loc, arith::AddIOp::create(b, loc, first, offset), b.getI64Type());
}

/// Behind this the threads that multiply go on; those that copy have done so.
void ThreadLowering::beginBulkCopies(Pipeline &pipe) {
  const Product &p = pipe.p;
  {
    Phase phase(*this);
    pipe.barriers = allocate(b.getI64Type(), 2 * p.stages, kBarrierBytes);
    ++pipe.barriers->pins;
    onlyIf(less(thread, 1), [&] {
      auto begin = [&](bool empty, int64_t arrivals) {
        for (int64_t stage = 0; stage < p.stages; ++stage)
          emit(b, loc, "begin", "mbarrier.init.shared::cta.b64 [$0], $1;", "l,r",
               {barrierOf(b, loc, pipe.barriers->memref, p.stages, empty, constant(stage)),
                arith::ConstantOp::create(b, loc, b.getI32IntegerAttr(static_cast<int32_t>(arrivals)))});
      };
      begin(/*empty=*/false, 1);
      begin(/*empty=*/true, threads / kWarp);
      emit(b, loc, "begun", "fence.mbarrier_init.release.cluster;", "", {});
    });
  }
  gpu::BarrierOp::create(b, loc);
  Value copies = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::uge, warp, constant(threads / kWarp));
  pipe.roles = scf::IfOp::create(b, loc, copies, /*withElseRegion=*/true);
  b.setInsertionPoint(pipe.roles.thenBlock()->getTerminator());
  onlyIf(less(lane, 1), [&] { copyInBulk(pipe); });
  b.setInsertionPoint(pipe.roles.elseBlock()->getTerminator());
}

/// Tiles are independent of each other and no thread reads what another wrote, so nobody waits for the whole block, which the warp that copies would
/// not reach.
void ThreadLowering::endBulkCopies(Pipeline &pipe) {
  SmallVector<gpu::BarrierOp> barriers;
  pipe.roles.walk([&](gpu::BarrierOp barrier) { barriers.push_back(barrier); });
  for (gpu::BarrierOp barrier : barriers)
    barrier.erase();
  b.setInsertionPointAfter(pipe.roles);
  --pipe.barriers->pins;
  giveBack(pipe.barriers);
}

//===- The warp that copies ---------------------------------------------------------------------------------------===//

/// All tiles of this program, by one thread.
void ThreadLowering::copyInBulk(const Pipeline &pipe) {
  const Product &p = pipe.p;
  scf::ForOp tiles = pipe.tiles;
  Value memory = memref::ExtractAlignedPointerAsIndexOp::create(b, loc, pipe.ring.memref);
  auto copyStep = [&](Value tile, Value step, Value stage, Value parity) {
    Value full = barrierOf(b, loc, pipe.barriers->memref, p.stages, /*empty=*/false, stage);
    await(b, loc, barrierOf(b, loc, pipe.barriers->memref, p.stages, /*empty=*/true, stage),
          arith::SubIOp::create(b, loc, constant(1), parity));
    emit(b, loc, "expect", "{ .reg .b64 t; mbarrier.arrive.expect_tx.shared::cta.b64 t, [$0], $1; }", "l,r",
         {full, arith::ConstantOp::create(b, loc, b.getI32IntegerAttr(static_cast<int32_t>(p.stageBytes)))});
    Value start = add(memory, mul(stage, constant(p.stageBytes)));
    atPlace(pipe, {tile, step, stage}, [&] {
      copyPanelInBulk(p.a, p.left, add(start, p.left.offset), full);
      copyPanelInBulk(p.b, p.right, add(start, p.right.offset), full);
    });
  };
  repeat(scalars.lookup(tiles.getLowerBound()), scalars.lookup(tiles.getUpperBound()), scalars.lookup(tiles.getStep()),
         ValueRange{constant(0), constant(0)}, [&](Value tile, ValueRange ring) {
           return repeat(constant(0), pipe.count, constant(1), ring,
                         [&](Value step, ValueRange ring) -> SmallVector<Value> {
                           copyStep(tile, step, ring[0], ring[1]);
                           return nextFilled(p, ring[0], ring[1]);
                         });
         });
}

/// The stage behind this one, and the parity with which it is filled.
SmallVector<Value> ThreadLowering::nextFilled(const Product &p, Value stage, Value parity) {
  Value next = nextStage(p, stage);
  Value wraps = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, next, constant(0));
  Value turned = arith::SubIOp::create(b, loc, constant(1), parity);
  return {next, arith::SelectOp::create(b, loc, wraps, turned, parity)};
}

/// A box for each block of 64 columns, at the coordinates of the load.
void ThreadLowering::copyPanelInBulk(tile::LoadOp load, const Panel &panel, Value target, Value barrier) {
  Value map = mapAddress(load.getSource(), load, panel.rows);
  SmallVector<Value> place;
  for (Value index : llvm::reverse(load.getIndices()))
    place.push_back(scalars.lookup(index));
  std::string text = "cp.async.bulk.tensor." + std::to_string(place.size()) +
                     "d.shared::cluster.global.mbarrier::complete_tx::bytes [$0], [$1, {",
              constraints = "l,l,l";
  for (size_t i = 0; i < place.size(); ++i) {
    text += (i ? ", $" : "$") + std::to_string(3 + i);
    constraints += ",r";
  }
  text += "}], [$2];";
  for (int64_t block = 0; block * kBlockColumns < panel.columns; ++block) {
    SmallVector<Value> operands = {asNumber(b, loc, add(target, block * panel.blockBytes()), b.getI64Type()), map,
                                   barrier};
    for (auto [i, at] : llvm::enumerate(place))
      operands.push_back(asNumber(b, loc, i == 0 ? add(at, block * kBlockColumns) : at, b.getI32Type()));
    emit(b, loc, "copy", text, constraints, operands);
  }
}

/// Where the map lies by which boxes of 64 columns of the buffer are copied, as i64.
Value ThreadLowering::mapAddress(Value source, tile::LoadOp load, int64_t rows) {
  if (auto choice = source.getDefiningOp<arith::SelectOp>())
    return arith::SelectOp::create(b, loc, scalars.lookup(choice.getCondition()),
                                   mapAddress(choice.getTrueValue(), load, rows),
                                   mapAddress(choice.getFalseValue(), load, rows));
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
  map.box[load.getDims().front()] = rows;
  map.box.back() = kBlockColumns;
  size_t at = std::distance(maps.begin(), llvm::find(maps, map));
  if (at == maps.size())
    maps.push_back(map);
  int64_t offset = mapsOffset(signature.slotsOnDevice()) + static_cast<int64_t>(at) * kMapBytes;
  Value address = LLVM::GEPOp::create(b, loc, LLVM::LLVMPointerType::get(b.getContext()), b.getI8Type(),
                                      lowered.getArgument(0), ArrayRef<LLVM::GEPArg>{static_cast<int32_t>(offset)});
  return LLVM::PtrToIntOp::create(b, loc, b.getI64Type(), address);
}

//===- The warps that multiply ------------------------------------------------------------------------------------===//

/// `now`: the stage that is read, its parity, sums.
SmallVector<Value> ThreadLowering::multiplyInBulk(const Pipeline &pipe, Value step, ValueRange now,
                                                  std::pair<Value, Value> panels) {
  const Product &p = pipe.p;
  await(b, loc, barrierOf(b, loc, pipe.barriers->memref, p.stages, /*empty=*/false, now[0]), now[1]);
  // Lanes may have left the loop that waits one after the other.
  NVVM::SyncWarpOp::create(b, loc, arith::ConstantOp::create(b, loc, b.getI32IntegerAttr(-1)));
  SmallVector<Value> next = nextFilled(p, now[0], now[1]);
  llvm::append_range(next, multiplyByGroups(p, panels.first, panels.second, now.drop_front(2)));
  NVVM::WgmmaWaitGroupSyncOp::create(b, loc, 1);
  // The products of the step before are done. Behind the last step of a tile its own are awaited.
  onlyIf(arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ne, step, constant(0)), [&] { leaveStage(pipe, now[0]); });
  return next;
}

/// Nothing of this warp reads the stage before `behind` any more.
void ThreadLowering::leaveStage(const Pipeline &pipe, Value behind) {
  const Product &p = pipe.p;
  Value before = arith::SubIOp::create(b, loc, behind, constant(1));
  before = arith::SelectOp::create(b, loc, less(behind, 1), constant(p.stages - 1), before);
  onlyIf(less(lane, 1),
         [&] { arrive(b, loc, barrierOf(b, loc, pipe.barriers->memref, p.stages, /*empty=*/true, before)); });
}
