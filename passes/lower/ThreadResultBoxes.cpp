//===- ThreadResultBoxes.cpp - results of products leave in boxes, by shared memory --------------------------------===//
//
// While warps write their sums to memory, 4 bytes a lane of rows of their own, no tensor core multiplies. A box (PTX ISA, cp.async.bulk.tensor) takes
// them there from shared memory by itself: a warp writes 16 rows of 128 bytes, its lanes see to it that the copy engine sees them, one of them starts the copy,
// and the warp goes on with the next columns, and then the next tile, while the box is read. A warp has two pieces of shared memory or more, in turn: one is
// written again when all copies but those of the others have read what they take. Warps wait for none of each other, which a box of a warpgroup's 64 rows
// would make them do, twice.
//
// In a piece the 16-byte chunk c of row r lies at c xor r, as the copy engine has it with a swizzle of 128 bytes, so that eight rows of a chunk lie in different
// banks. Pairs of bf16 are written by stmatrix, 16 x 16 at a time; of f32 a lane has 8 bytes, and odd rows write the columns 16 further first,
// or two rows would have the same banks. Where 128 bytes do not divide the columns of a warp, narrower boxes with narrower patterns come behind.
//
// Memory past the end of a buffer no box writes. Where rows end before, with those of a group, a warp with such an end writes its rows by itself. A sum in f32
// that is added to what its store replaces begins with 0, and the copy adds it: one addition for each element, as always, but subnormal numbers
// become 0 in it (PTX ISA, red.add.f32). Before a program ends, and its shared memory is another's, copies have read what they take; that it is written the end
// of the kernel waits for (CUDA programming guide, "Using TMA to transfer multi-dimensional arrays").
//
//===-------------------------------------------------------------------------------------------------------------===//
#include "passes/lower/LoopWork.h"
#include "passes/lower/ThreadProducts.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

using namespace mlir;
using namespace braid;
using namespace braid::lower;

static constexpr int64_t kPieceBytes = kOwnRows * kRowBytes;
static constexpr int64_t kLeastPieces = 2;
static constexpr int64_t kPairBytes = 8; // of f32

namespace {

/// Columns of a warp that are a box: rows of 128, 64 or 32 bytes.
struct BoxColumns {
  int64_t first, count, rowBytes;
};

} // namespace

/// The widest first; none where they do not divide `columns`.
static SmallVector<BoxColumns> boxesAcross(int64_t columns, int64_t elementBytes) {
  SmallVector<BoxColumns> boxes;
  int64_t first = 0;
  for (int64_t rowBytes : {128, 64, 32})
    for (int64_t count = rowBytes / elementBytes; first + count <= columns; first += count)
      boxes.push_back({first, count, rowBytes});
  return first == columns ? boxes : SmallVector<BoxColumns>();
}

//===- Where they are used ----------------------------------------------------------------------------------------===//

/// Whether the sum begins with just what its store replaces, and nothing else reads it.
bool ThreadLowering::addsToResult(const Product &p, scf::ForOp sum, tile::StoreOp store) {
  auto load = sum.getInitArgs().front().getDefiningOp<tile::LoadOp>();
  return load && load.getResult().hasOneUse() && load->getBlock() == store->getBlock() &&
         store.getValue() == sum.getResult(0) && store.getValue().hasOneUse() && !load.getRows() &&
         load.getSource() == store.getTarget() && load.getIndices() == store.getIndices() &&
         load.getDims() == store.getDims() && load.getLimit() == store.getLimit();
}

/// Called where the ring is there and nothing else: the pieces of the warps lie behind it.
std::shared_ptr<const ThreadLowering::ResultBoxes> ThreadLowering::resultBoxesOf(const Pipeline &pipe,
                                                                                 const SumReads &reads) {
  const Product &p = pipe.p;
  tile::StoreOp store = reads.store;
  if (!store || store.getRows() || kernel->hasAttr(tile::kResultsByRowsAttr) || !isa<BlockArgument>(store.getTarget()))
    return nullptr;
  Type element = elementOf(store.getValue());
  MemRefType type = store.getTarget().getType();
  if (!(element.isBF16() || element.isF32()) || tileType(store.getValue()).getRank() != 2 ||
      store.getDims().back() != type.getRank() - 1 ||
      getConstantIntValue(arguments[store.getTarget()].strides.back()) != 1)
    return nullptr;
  SmallVector<BoxColumns> across = boxesAcross(p.columns, bytesOf(element));
  int64_t warps = threads / kWarp, most = static_cast<int64_t>(across.size()) * p.rows, count = most;
  auto fits = [&] {
    int64_t bytes = count * warps * kPieceBytes;
    return freeOffset(bytes, kPatternBytes) + bytes <= limits.sharedBytes;
  };
  while (count > 0 && !fits())
    --count;
  if (count < std::min(kLeastPieces, std::max<int64_t>(most, 1)))
    return nullptr;
  ResultBoxes boxes{store};
  boxes.memory = allocate(element, count * warps * kPieceBytes / bytesOf(element), kPatternBytes);
  ++boxes.memory->pins;
  boxes.count = count;
  boxes.ends = endsBefore(store.getLimit(), store.getTarget(), store.getDims().front());
  boxes.adds = element.isF32() && !boxes.ends && addsToResult(p, pipe.sum, store);
  return std::make_shared<const ResultBoxes>(boxes);
}

std::shared_ptr<const ThreadLowering::ResultBoxes> ThreadLowering::resultBoxesOf(const LoopSums &held) const {
  std::shared_ptr<Pipeline> pipe =
      pipelines.lookup(held.product.dot->getParentOp()); // also of what was made of the sum
  return pipe && pipe->inBulk() ? pipe->results : nullptr;
}

//===- A warp's sums ----------------------------------------------------------------------------------------------===//

struct ThreadLowering::Staging {
  const ResultBoxes &boxes;
  BoxColumns columns;
  int64_t number; ///< of the box, of those that the warp has stored
  Value memory; ///< bytes from the first piece of all warps to this warp's
};

/// By the lane that starts copies: all but the last `underWay` have been read.
void ThreadLowering::awaitBoxes(int64_t underWay) {
  onlyIf(less(lane, 1), [&] { emitBulk(b, loc, "read", (kAwaitRead + Twine(underWay) + ";").str(), "", {}); });
}

/// Lane i has the address of row i of 16 columns: rows 0-7 and 8-15 of the first eight, then of the others.
void ThreadLowering::storeMatrices(Value address, ArrayRef<Value> registers) {
  NVVM::StMatrixOp::create(b, loc, pointer(address, static_cast<unsigned>(NVVM::NVVMMemorySpace::Shared)), registers,
                           NVVM::MMALayout::row, NVVM::LdStMatrixShapeAttr::get(b.getContext(), 8, 8),
                           NVVM::LdStMatrixEltType::B16);
}

/// Columns of block number `r` of this warp's rows, to its piece of shared memory. `places`: of all sums of a thread.
void ThreadLowering::stagePart(const Staging &staging, const LoopSums &held, int64_t r,
                               ArrayRef<std::pair<Value, Value>> places) {
  const Product &p = held.product;
  tile::StoreOp store = staging.boxes.store;
  Value stored = store.getValue();
  bool narrow = elementOf(stored).isBF16();
  Type i32 = b.getI32Type();
  SmallVector<Value> pairs; // of eight columns, two halves of the rows
  for (int64_t block = staging.columns.first / 8; block < (staging.columns.first + staging.columns.count) / 8; ++block)
    for (int64_t half = 0; half < 2; ++half) {
      auto at = static_cast<size_t>(((r * blocksOf(p) + block) * 2 + half) * 2);
      auto [row, column] = places[at];
      registers[held.result] = vector::FromElementsOp::create(b, loc, VectorType::get({2}, b.getF32Type()),
                                                              ArrayRef<Value>(held.sums).slice(at, 2));
      startStrip();
      Value pair = eval(stored, {row}, {column, 0, p.n, 2, 2});
      if (narrow)
        pair = vector::ExtractOp::create(b, loc, vector::BitCastOp::create(b, loc, VectorType::get({1}, i32), pair), 0);
      pairs.push_back(pair);
    }
  startStrip();
  const ResultBoxes &boxes = staging.boxes;
  if (staging.number == 0 || staging.number >= boxes.count) { // else no box has left the piece in this tile
    awaitBoxes(staging.number ? boxes.count - 1 : 0);
    NVVM::SyncWarpOp::create(b, loc, arith::ConstantOp::create(b, loc, b.getI32IntegerAttr(-1)));
  }
  // Bits 4 to 6 of a place are combined with the row's, as many of them as a row of the box has chunks.
  int64_t chunks = staging.columns.rowBytes / kChunkBytes;
  Value row = narrow ? remainder(lane, kOwnRows) : divide(lane, 4);
  Value chunk = narrow ? divide(lane, kOwnRows) : divide(remainder(lane, 4), 2);
  chunk = arith::XOrIOp::create(b, loc, chunk, remainder(divide(row, 8 / chunks), chunks));
  Value odd;
  bool turns = !narrow && chunks == 8;
  if (turns) {
    chunk = arith::XOrIOp::create(b, loc, chunk, mul(remainder(row, 2), constant(chunks / 2)));
    odd = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ne, remainder(row, 2), constant(0));
  }
  Value place =
      add(add(staging.memory, mul(row, constant(staging.columns.rowBytes))), mul(chunk, constant(kChunkBytes)));
  if (!narrow)
    place = add(place, mul(remainder(lane, 2), constant(kPairBytes)));
  auto further = [&](int64_t block) { // eight columns
    int64_t bytes = block * 8 * bytesOf(elementOf(stored));
    return bytes ? arith::XOrIOp::create(b, loc, place, constant(bytes)).getResult() : place;
  };
  if (narrow) {
    Value memory = memref::ExtractAlignedPointerAsIndexOp::create(b, loc, boxes.memory->memref);
    for (size_t i = 0; i < pairs.size(); i += 4)
      storeMatrices(add(memory, further(static_cast<int64_t>(i / 2))), ArrayRef<Value>(pairs).slice(i, 4));
  } else {
    auto write = [&](int64_t block, int64_t half, Value pair) {
      Value at = divide(add(further(block), half * 8 * staging.columns.rowBytes), bytesOf(elementOf(stored)));
      vector::StoreOp::create(b, loc, pair, boxes.memory->memref, ValueRange{at}, /*nontemporal=*/false,
                              llvm::MaybeAlign(kPairBytes));
    };
    auto blocks = static_cast<int64_t>(pairs.size() / 2);
    auto pairOf = [&](int64_t block, int64_t half) { return pairs[static_cast<size_t>(block * 2 + half)]; };
    for (int64_t block = 0; block < blocks; ++block)
      for (int64_t half = 0; half < 2; ++half) {
        Value pair = pairOf(block, half);
        if (turns)
          pair = arith::SelectOp::create(b, loc, odd, pairOf((block + 2) % 4, half), pair);
        write(block, half, pair);
      }
  }
}

/// Starts the copy of what all lanes have written, from the row of the tile that is the warp's first on.
void ThreadLowering::sendPart(const Staging &staging, Value firstRow, Value firstColumn) {
  const ResultBoxes &boxes = staging.boxes;
  tile::StoreOp store = boxes.store;
  orderForAsync();
  NVVM::SyncWarpOp::create(b, loc, arith::ConstantOp::create(b, loc, b.getI32IntegerAttr(-1)));
  onlyIf(less(lane, 1), [&] {
    Value memory = memref::ExtractAlignedPointerAsIndexOp::create(b, loc, boxes.memory->memref);
    auto number = [&](Value v, Type type) -> Value { return arith::IndexCastOp::create(b, loc, type, v); };
    SmallVector<Value> operands = {number(add(memory, staging.memory), b.getI64Type()),
                                   mapAddress(store.getTarget(), store.getDims(), kOwnRows, staging.columns.count)};
    std::string coordinates, constraints = "l,l";
    int64_t dimension = cast<MemRefType>(store.getTarget().getType()).getRank();
    for (Value index : llvm::reverse(store.getIndices())) {
      Value at = scalars.lookup(index);
      --dimension;
      if (dimension == store.getDims().back())
        at = add(add(at, firstColumn), staging.columns.first);
      else if (dimension == store.getDims().front())
        at = add(at, firstRow);
      coordinates += (coordinates.empty() ? "$" : ", $") + std::to_string(operands.size());
      constraints += ",r";
      operands.push_back(number(at, b.getI32Type()));
    }
    std::string kind = boxes.adds ? "add_f32" : elementOf(store.getValue()).isF32() ? "store_f32" : "store_bf16";
    std::string text = boxes.adds ? "cp.reduce.async.bulk.tensor." : "cp.async.bulk.tensor.";
    text += std::to_string(store.getIndices().size()) + "d.global.shared::cta" + (boxes.adds ? ".add" : "") +
            ".bulk_group [$1, {" + coordinates + "}], [$0];";
    emitBulk(b, loc, kind, text, constraints, operands);
    emitBulk(b, loc, "commit", "cp.async.bulk.commit_group;", "", {});
  });
}

/// `byRows` stores block number r of 64 rows of a warpgroup by its threads.
void ThreadLowering::storeInBoxes(const ResultBoxes &boxes, const LoopSums &held,
                                  function_ref<void(int64_t r)> byRows) {
  const Product &p = held.product;
  tile::StoreOp store = boxes.store;
  const Access &at = accesses[store];
  int64_t size = bytesOf(elementOf(store.getValue())), number = 0;
  touched(arguments[store.getTarget()], true);
  SmallVector<std::pair<Value, Value>> places; // row and column of the sums
  eachSum(p, [&](Value row, const Strip &strip) { places.push_back({row, strip.column}); });
  Value group = divide(warp, 4), own = mul(warp, constant(kPieceBytes));
  Value firstRow =
      add(mul(divide(group, p.across), constant(p.rows * kGroupRows)), mul(remainder(warp, 4), constant(kOwnRows)));
  Value firstColumn = mul(remainder(group, p.across), constant(p.columns));
  for (int64_t r = 0; r < p.rows; ++r) {
    Value row = add(firstRow, r * kGroupRows);
    auto inBoxes = [&] {
      for (const BoxColumns &columns : boxesAcross(p.columns, size)) {
        int64_t piece = number % boxes.count;
        Staging staging{boxes, columns, number++, add(own, piece * (threads / kWarp) * kPieceBytes)};
        stagePart(staging, held, r, places);
        sendPart(staging, row, firstColumn);
      }
    };
    if (!boxes.ends) {
      inBoxes();
      continue;
    }
    number = 0; // the rows before may have gone another way
    Value begin = add(at.row, row);
    Value whole = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::sle, add(begin, kOwnRows), at.limit);
    auto branch = scf::IfOp::create(b, loc, whole, /*withElseRegion=*/true);
    branch->setAttr(kLikelyAttr, b.getUnitAttr());
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPoint(branch.thenBlock()->getTerminator());
    inBoxes();
    startStrip();
    b.setInsertionPoint(branch.elseBlock()->getTerminator());
    onlyIf(arith::CmpIOp::create(b, loc, arith::CmpIPredicate::slt, begin, at.limit), [&] { byRows(r); });
    startStrip();
  }
}

/// By those that have started copies: shared memory is read.
void ThreadLowering::endResultBoxes(const ResultBoxes &boxes) {
  awaitBoxes(0);
  --boxes.memory->pins;
  giveBack(boxes.memory);
}
