//===- ThreadEndReads.cpp - what formulas at the end of a sum read of memory comes as its operands do --------------===//
//
//   d = dh W^T;   dgate, dup = f(d, gate, up)      a formula of a sum in registers and of tiles that have its shape
//
// Threads that read such tiles from memory, two numbers of a row at a time as the sum lies, wait for it with the tensor cores, and ask for a line as often as
// it has blocks of eight columns. So the warp that copies brings them (ThreadBulkCopies.cpp), behind the last step of a sum, by the same ring: a stage has
// room for the columns of one box of each tile (ThreadResultBoxes.cpp), and that such a step is full and empty again the same barriers say.
// The copies of the next tile go on behind it. While the sum is multiplied the cache is asked for them. Warps read the boxes by ldmatrix, as what they write of the results by stmatrix; they all pass as many
// steps as there are, also where a warp's rows end, of which each thread looks at its own.
//
//===-------------------------------------------------------------------------------------------------------------===//
#include "passes/lower/ThreadProducts.h"

#include "mlir/Dialect/LLVMIR/NVVMDialect.h"

using namespace mlir;
using namespace braid;
using namespace braid::lower;

/// Called where it is known how sums are stored. The places of loads are among those of `places`, if they can be.
void ThreadLowering::planEndReads(Pipeline &pipe, const SumReads &reads) {
  const Product &p = pipe.p;
  if (!pipe.results || pipe.cuts || p.rows != 1 || p.across != 1 || reads.parts.empty())
    return;
  VectorType type = tileType(reads.parts.front().first);
  SmallVector<tile::LoadOp> loads;
  llvm::SetVector<Operation *> places(pipe.places.begin(), pipe.places.end());
  for (Value formula : reads.formulas)
    if (auto load = formula.getDefiningOp<tile::LoadOp>(); load && tileType(formula).getRank() == 2)
      loads.push_back(load);
  auto isBox = [&](tile::LoadOp load) {
    auto buffer = dyn_cast<BlockArgument>(load.getSource());
    bool written = llvm::any_of(reads.stores, [&](tile::StoreOp store) { return mayShare(buffer, store.getTarget()); });
    return buffer && !written && !load.getRows() && ThreadLowering::isBox(load, panelOf(type)) &&
           tileType(load.getResult()).getShape() == type.getShape() &&
           getConstantIntValue(arguments[buffer].strides.back()) == 1 && llvm::all_of(load.getIndices(), [&](Value at) {
             return collectPlaces(at, pipe.tiles, places, /*tables=*/false, /*carried=*/true);
           });
  };
  SmallVector<BoxColumns> parts = boxesAcross(type.getDimSize(1), /*elementBytes=*/2);
  if (loads.empty() || parts.empty() || !llvm::all_of(loads, isBox) ||
      static_cast<int64_t>(loads.size()) * type.getDimSize(0) * kRowBytes > p.stageBytes)
    return;
  // Only pairs of neighbours pass by boxes.
  for (auto [part, first] : reads.parts)
    registers[part] = Value();
  SmallVector<Value> stored;
  for (tile::StoreOp store : reads.stores)
    stored.push_back(store.getValue());
  bool inPairs = vectorsOf(stored, {}, 2).width != 0;
  for (auto [part, first] : reads.parts)
    registers.erase(part);
  if (!inPairs)
    return;
  pipe.reads = loads;
  pipe.parts = parts;
  pipe.places = places.takeVector();
  llvm::sort(pipe.places, [](Operation *x, Operation *y) { return x->isBeforeInBlock(y); });
}

/// By the thread that copies, in each of the first steps a part of what this tile's end will read: memory has the whole tile's time to bring it, where all
/// blocks, whose tiles end at one time, would ask for it at once.
void ThreadLowering::prefetchEndReads(const Pipeline &pipe, const CopyPlace &place) {
  for (auto [i, part] : llvm::enumerate(pipe.parts)) {
    const BoxColumns &columns = part;
    Value turn = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, place.step, constant(static_cast<int64_t>(i)));
    onlyIf(turn, [&] {
      atPlace(pipe, place, [&] {
        for (tile::LoadOp load : pipe.reads)
          prefetchBox(load, pipe.p.m, columns.count, columns.first);
      });
    });
  }
}

/// By the thread that copies; gives the ring behind them.
SmallVector<Value> ThreadLowering::copyEndReads(const Pipeline &pipe, Value tile, ValueRange ring) {
  SmallVector<Value> now(ring);
  int64_t rows = pipe.p.m;
  Value memory = memref::ExtractAlignedPointerAsIndexOp::create(b, loc, pipe.ring.memref);
  for (const BoxColumns &part : pipe.parts) {
    Value stage = now[0], parity = now[1], full = fullBarrier(pipe, stage);
    awaitPhase(b, loc, emptyBarrier(pipe, stage), arith::SubIOp::create(b, loc, constant(1), parity));
    expectBytes(b, loc, full, static_cast<int64_t>(pipe.reads.size()) * rows * part.rowBytes);
    Value target = add(memory, mul(stage, constant(pipe.p.stageBytes)));
    atPlace(pipe, {tile, constant(0), stage}, [&] {
      for (tile::LoadOp load : pipe.reads) {
        copyBox(load, rows, part.count, part.first, target, full);
        target = add(target, rows * part.rowBytes);
      }
    });
    now = nextFilled(pipe.p, stage, parity);
  }
  return now;
}

/// Waits for part number `number`: its stage, and where this lane's row is in a box of it.
ThreadLowering::EndPart ThreadLowering::beginEndPart(const Pipeline &pipe, size_t number) {
  const Product &p = pipe.p;
  // Formulas need the registers that places in all parts would have.
  Value own = forget(lane), behind = forget(pipe.behind);
  EndPart part{pipe.parts[number], remainder(add(behind, static_cast<int64_t>(number)), 2 * p.stages)};
  Value stage = remainder(part.turn, p.stages);
  awaitPhase(b, loc, fullBarrier(pipe, stage), divide(part.turn, p.stages));
  // Lanes may have left the loop that waits one after the other.
  NVVM::SyncWarpOp::create(b, loc, arith::ConstantOp::create(b, loc, b.getI32IntegerAttr(-1)));
  // Lane i gives row i of 16, of eight columns and then of the next eight.
  int64_t chunks = part.columns.rowBytes / kChunkBytes;
  Value row = add(mul(forget(warp), constant(kOwnRows)), remainder(own, kOwnRows));
  Value chunk = arith::XOrIOp::create(b, loc, divide(own, kOwnRows), remainder(divide(row, 8 / chunks), chunks));
  part.place = add(mul(row, constant(part.columns.rowBytes)), mul(chunk, constant(kChunkBytes)));
  Value memory = memref::ExtractAlignedPointerAsIndexOp::create(b, loc, pipe.ring.memref);
  part.begin = add(memory, mul(stage, constant(p.stageBytes)));
  return part;
}

/// Of each load words of two numbers: eight columns from this block on, both halves of the rows, then the next eight.
SmallVector<SmallVector<Value>> ThreadLowering::readEndPart(const Pipeline &pipe, const EndPart &part, int64_t block) {
  SmallVector<SmallVector<Value>> words;
  Value inBox = arith::XOrIOp::create(b, loc, part.place, constant(block * kChunkBytes));
  for (size_t i = 0; i < pipe.reads.size(); ++i) {
    int64_t further = static_cast<int64_t>(i) * pipe.p.m * part.columns.rowBytes;
    words.push_back(loadMatrices(add(add(part.begin, inBox), further), /*count=*/4, /*turned=*/false));
  }
  return words;
}

void ThreadLowering::leaveEndPart(const Pipeline &pipe, const EndPart &part) {
  NVVM::SyncWarpOp::create(b, loc, arith::ConstantOp::create(b, loc, b.getI32IntegerAttr(-1)));
  tellEmpty(pipe, remainder(part.turn, pipe.p.stages));
}

/// By a warp that reads none of it from the ring.
void ThreadLowering::passEndReads(const Pipeline &pipe) {
  for (size_t part = 0; part < pipe.parts.size(); ++part)
    leaveEndPart(pipe, beginEndPart(pipe, part));
}
