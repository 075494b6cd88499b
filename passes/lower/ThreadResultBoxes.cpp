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
// Memory past the end of a buffer no box writes. Where rows end before, with those of a group, the lanes of a warp with such an end store
// what is there from its pieces, 16 bytes at a time; where formulas read memory that may end there, element by element. A sum in f32
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

/// The widest first; none where they do not divide `columns`.
SmallVector<ThreadLowering::BoxColumns> ThreadLowering::boxesAcross(int64_t columns, int64_t elementBytes) {
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

/// What formulas read where their elements are; numbers of rows are at hand.
static bool isMatrixInMemory(Value v) { return v.getDefiningOp<tile::LoadOp>() && tileType(v).getRank() == 2; }

/// Called where the ring is there and nothing else: the pieces of the warps lie behind it.
std::shared_ptr<const ThreadLowering::ResultBoxes> ThreadLowering::resultBoxesOf(const Pipeline &pipe,
                                                                                 const SumReads &reads) {
  const Product &p = pipe.p;
  if (reads.stores.empty() || kernel->hasAttr(tile::kResultsByRowsAttr))
    return nullptr;
  tile::StoreOp store = reads.stores.front();
  Type element = elementOf(store.getValue());
  auto isBox = [&](tile::StoreOp store) {
    MemRefType type = store.getTarget().getType();
    return !store.getRows() && isa<BlockArgument>(store.getTarget()) && elementOf(store.getValue()) == element &&
           tileType(store.getValue()).getRank() == 2 && store.getDims().back() == type.getRank() - 1 &&
           getConstantIntValue(arguments[store.getTarget()].strides.back()) == 1;
  };
  if (!(element.isBF16() || element.isF32()) || !llvm::all_of(reads.stores, isBox))
    return nullptr;
  int64_t columns = reads.parts.size() > 1 ? tileType(store.getValue()).getDimSize(1) : p.columns;
  SmallVector<BoxColumns> across = boxesAcross(columns, bytesOf(element));
  int64_t warps = threads / kWarp, count = static_cast<int64_t>(across.size() * reads.stores.size()) * p.rows,
          most = count;
  auto fits = [&] {
    int64_t bytes = count * warps * kPieceBytes;
    return freeOffset(bytes, kPatternBytes) + bytes <= limits.sharedBytes;
  };
  while (count > 0 && !fits())
    --count;
  if (count < std::min(kLeastPieces, std::max<int64_t>(most, 1)))
    return nullptr;
  ResultBoxes boxes{reads.stores};
  boxes.memory = allocate(element, count * warps * kPieceBytes / bytesOf(element), kPatternBytes);
  ++boxes.memory->pins;
  boxes.count = count;
  // Formulas may read memory that ends where the rows do.
  boxes.ends = llvm::any_of(reads.stores, [&](tile::StoreOp store) {
    return endsBefore(store.getLimit(), store.getTarget(), store.getDims().front());
  });
  boxes.ends |= store.getLimit() && llvm::any_of(reads.formulas, isMatrixInMemory);
  boxes.adds = element.isF32() && !boxes.ends && reads.stores.size() == 1 && addsToResult(p, pipe.sum, store);
  return std::make_shared<const ResultBoxes>(boxes);
}

std::shared_ptr<ThreadLowering::Pipeline> ThreadLowering::boxedPipeline(const LoopSums &held) const {
  std::shared_ptr<Pipeline> pipe = pipelines.lookup(held.product.dot->getParentOp());
  return pipe && pipe->inBulk() && pipe->results ? pipe : nullptr;
}

//===- A warp's sums ----------------------------------------------------------------------------------------------===//

struct ThreadLowering::Staging {
  const ResultBoxes &boxes;
  tile::StoreOp store;
  BoxColumns columns;
  Value place; ///< bytes from the first piece of all warps to what this lane writes of this warp's first
  int64_t offset; ///< and from there to this one
};

/// By the lane that starts copies: all but the last `underWay` have been read.
void ThreadLowering::awaitBoxes(int64_t underWay) {
  onlyIf(less(lane, 1), [&] { emitBulk(b, loc, "read", (kAwaitRead + Twine(underWay) + ";").str(), "", {}); });
}

/// By a warp: pieces that all but the last `underWay` boxes have left.
void ThreadLowering::awaitPiece(int64_t underWay) {
  awaitBoxes(underWay);
  NVVM::SyncWarpOp::create(b, loc, arith::ConstantOp::create(b, loc, b.getI32IntegerAttr(-1)));
}

/// Lane i has the address of row i of 16 columns: rows 0-7 and 8-15 of the first eight, then of the others.
void ThreadLowering::storeMatrices(Value address, ArrayRef<Value> registers) {
  NVVM::StMatrixOp::create(b, loc, pointer(address, static_cast<unsigned>(NVVM::NVVMMemorySpace::Shared)), registers,
                           NVVM::MMALayout::row, NVVM::LdStMatrixShapeAttr::get(b.getContext(), 8, 8),
                           NVVM::LdStMatrixEltType::B16);
}

/// What a warp stores of block number `r` of its rows, box by box.
struct ThreadLowering::Part {
  const Pipeline &pipe;
  int64_t r;
  BoxColumns columns;
  EndPart end;
};

/// What the stores take of so many blocks of eight columns of a box: pairs, of two halves of the rows. All stores of a pair in turn, so that what they
/// are made of need not be kept, nor be made again. `places`: of all sums of a thread.
SmallVector<SmallVector<Value>> ThreadLowering::makePart(const Part &part, const LoopSums &held, int64_t firstBlock,
                                                         int64_t blocks, ArrayRef<std::pair<Value, Value>> places,
                                                         EndSums &ends) {
  const ResultBoxes &boxes = *part.pipe.results;
  const Product &p = held.product;
  ArrayRef<tile::LoadOp> loads = part.pipe.reads;
  SmallVector<SmallVector<Value>> read, made(boxes.stores.size());
  auto word = VectorType::get({1}, b.getI32Type());
  for (int64_t block = firstBlock; block < firstBlock + blocks; ++block) {
    if (!loads.empty() && block % 2 == 0)
      read = readEndPart(part.pipe, part.end, block);
    for (int64_t half = 0; half < 2; ++half) {
      auto at = static_cast<size_t>(((part.r * blocksOf(p) + part.columns.first / 8 + block) * 2 + half) * 2);
      auto [row, column] = places[at];
      takeSums(held, at, /*inPairs=*/true);
      for (auto [load, words] : llvm::zip_equal(loads, read)) {
        Value pair = vector::BroadcastOp::create(b, loc, word, words[block % 2 * 2 + half]);
        registers[tile::LoadOp(load).getResult()] =
            vector::BitCastOp::create(b, loc, VectorType::get({2}, b.getBF16Type()), pair);
      }
      startStrip();
      for (auto [store, pairs] : llvm::zip_equal(boxes.stores, made)) {
        tile::StoreOp op = store;
        Value pair = eval(op.getValue(), {row}, {column, 0, p.n, 2, 2});
        if (elementOf(pair).isBF16())
          pair = vector::ExtractOp::create(b, loc, vector::BitCastOp::create(b, loc, word, pair), 0);
        pairs.push_back(pair);
      }
      addToEnds(held, ends, at, {row}, {column, 0, p.n, 2, 2});
    }
  }
  startStrip();
  for (tile::LoadOp load : loads)
    registers.erase(load.getResult());
  return made;
}

/// A number of shared memory, where it is wanted.
Value ThreadLowering::forget(Value place) {
  Type i32 = b.getI32Type();
  Value number = arith::IndexCastOp::create(b, loc, i32, place);
  auto again = LLVM::InlineAsmOp::create(b, loc, TypeRange{i32}, ValueRange{number}, kForget, "=r,r",
                                         /*has_side_effects=*/true, /*is_align_stack=*/false,
                                         LLVM::tailcallkind::TailCallKind::None, LLVM::AsmDialectAttr(), ArrayAttr());
  return arith::IndexCastUIOp::create(b, loc, b.getIndexType(), again.getResult(0));
}

/// What this lane writes of a piece: bytes from the first piece of all warps to it.
Value ThreadLowering::placeInPiece(const ResultBoxes &boxes, const BoxColumns &columns) {
  bool narrow = elementOf(tile::StoreOp(boxes.stores.front()).getValue()).isBF16();
  // Bits 4 to 6 of a place are combined with the row's, as many of them as a row of the box has chunks.
  int64_t chunks = columns.rowBytes / kChunkBytes;
  // Formulas need the registers that places in many boxes would have.
  bool several = boxes.stores.size() > 1;
  Value own = several ? forget(lane) : lane;
  Value row = narrow ? remainder(own, kOwnRows) : divide(own, 4);
  Value chunk = narrow ? divide(own, kOwnRows) : divide(remainder(own, 4), 2);
  chunk = arith::XOrIOp::create(b, loc, chunk, remainder(divide(row, 8 / chunks), chunks));
  if (!narrow && chunks == 8) // odd rows turn
    chunk = arith::XOrIOp::create(b, loc, chunk, mul(remainder(row, 2), constant(chunks / 2)));
  Value place = add(mul(several ? forget(warp) : warp, constant(kPieceBytes)),
                    add(mul(row, constant(columns.rowBytes)), mul(chunk, constant(kChunkBytes))));
  if (!narrow)
    place = add(place, mul(remainder(own, 2), constant(kPairBytes)));
  return several ? forget(place) : place;
}

/// These pairs, from this block of eight columns on, to a piece of this warp's shared memory.
void ThreadLowering::stagePart(const Staging &staging, int64_t firstBlock, ArrayRef<Value> pairs) {
  const ResultBoxes &boxes = staging.boxes;
  tile::StoreOp store = staging.store;
  Value stored = store.getValue(), place = staging.place;
  bool narrow = elementOf(stored).isBF16();
  Value odd;
  bool turns = !narrow && staging.columns.rowBytes == kRowBytes;
  if (turns)
    odd = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ne, remainder(divide(lane, 4), 2), constant(0));
  auto further = [&](int64_t block) { // eight columns
    int64_t bytes = block * 8 * bytesOf(elementOf(stored));
    return add(bytes ? arith::XOrIOp::create(b, loc, place, constant(bytes)).getResult() : place, staging.offset);
  };
  if (narrow) {
    Value memory = memref::ExtractAlignedPointerAsIndexOp::create(b, loc, boxes.memory->memref);
    for (size_t i = 0; i < pairs.size(); i += 4)
      storeMatrices(add(memory, further(firstBlock + static_cast<int64_t>(i / 2))), pairs.slice(i, 4));
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

/// What all lanes have written leaves, from the row of the tile that is the warp's first on. `whole`: whether all rows are there; null: they are.
void ThreadLowering::leaveParts(ArrayRef<Staging> stagings, Value firstRow, Value firstColumn, Value whole) {
  orderForAsync();
  NVVM::SyncWarpOp::create(b, loc, arith::ConstantOp::create(b, loc, b.getI32IntegerAttr(-1)));
  auto send = [&] {
    for (const Staging &staging : stagings)
      sendPart(staging, firstRow, firstColumn);
  };
  if (!whole)
    return send();
  auto branch = scf::IfOp::create(b, loc, whole, /*withElseRegion=*/true);
  branch->setAttr(kLikelyAttr, b.getUnitAttr());
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPoint(branch.thenBlock()->getTerminator());
  send();
  b.setInsertionPoint(branch.elseBlock()->getTerminator());
  for (const Staging &staging : stagings)
    storePart(staging, firstRow, firstColumn);
}

/// By all lanes, the rows that are there.
void ThreadLowering::storePart(const Staging &staging, Value firstRow, Value firstColumn) {
  tile::StoreOp store = staging.store;
  const Access &at = accesses[store];
  Type element = elementOf(store.getValue());
  int64_t size = bytesOf(element), each = kChunkBytes / size, chunks = staging.columns.rowBytes / kChunkBytes;
  auto type = VectorType::get({each}, element);
  Value own = forget(lane), begin = add(mul(warp, constant(kPieceBytes)), staging.offset);
  for (int64_t i = 0; i < kOwnRows * chunks; i += kWarp) {
    Value number = add(own, i), row = divide(number, chunks), chunk = remainder(number, chunks);
    Value below = add(firstRow, row);
    onlyIf(inBounds(add(at.row, below), at.limit), [&] {
      Value turned = arith::XOrIOp::create(b, loc, chunk, remainder(divide(row, 8 / chunks), chunks));
      Value from = add(mul(row, constant(staging.columns.rowBytes)), mul(turned, constant(kChunkBytes)));
      Value found =
          vector::LoadOp::create(b, loc, type, staging.boxes.memory->memref, ValueRange{divide(add(begin, from), size)},
                                 /*nontemporal=*/false, llvm::MaybeAlign(kChunkBytes));
      Value column = add(add(firstColumn, staging.columns.first), mul(chunk, constant(each)));
      vector::StoreOp::create(b, loc, found, arguments[store.getTarget()].memref,
                              ValueRange{add(add(at.offset, mul(below, at.strides.front())), column)},
                              /*nontemporal=*/false, llvm::MaybeAlign(kChunkBytes));
    });
  }
}

void ThreadLowering::sendPart(const Staging &staging, Value firstRow, Value firstColumn) {
  const ResultBoxes &boxes = staging.boxes;
  tile::StoreOp store = staging.store;
  onlyIf(less(lane, 1), [&] {
    Value memory = memref::ExtractAlignedPointerAsIndexOp::create(b, loc, boxes.memory->memref);
    auto number = [&](Value v, Type type) -> Value { return arith::IndexCastOp::create(b, loc, type, v); };
    SmallVector<Value> operands = {
        number(add(memory, add(mul(warp, constant(kPieceBytes)), staging.offset)), b.getI64Type()),
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

/// `byRows` computes block number r of 64 rows of a warpgroup element by element, where what formulas read may not be there; null: it is.
void ThreadLowering::storeInBoxes(const Pipeline &pipe, const LoopSums &held, function_ref<void(int64_t r)> byRows) {
  const ResultBoxes &boxes = *pipe.results;
  const Product &p = held.product;
  tile::StoreOp first = boxes.stores.front();
  const Access &at = accesses[first];
  int64_t size = bytesOf(elementOf(first.getValue())), number = 0;
  int64_t width = held.reads.parts.size() > 1 ? held.width() : p.columns;
  for (tile::StoreOp store : boxes.stores)
    touched(arguments[store.getTarget()], true);
  SmallVector<std::pair<Value, Value>> places; // row and column of the sums
  eachSum(p, [&](Value row, const Strip &strip) { places.push_back({row, strip.column}); });
  Value group = divide(warp, 4);
  Value firstRow =
      add(mul(divide(group, p.across), constant(p.rows * kGroupRows)), mul(remainder(warp, 4), constant(kOwnRows)));
  Value firstColumn = mul(remainder(group, p.across), constant(p.columns));
  for (int64_t r = 0; r < p.rows; ++r) {
    Value row = add(firstRow, r * kGroupRows);
    auto inBoxes = [&](Value whole) {
      std::optional<LoopSums> rounded = roundAll(held);
      const LoopSums &sums = rounded ? *rounded : held;
      EndSums ends;
      if (rounded) // what waits here is a border that the assembler moves no formulas across
        awaitPiece(0);
      for (auto [i, columns] : llvm::enumerate(boxesAcross(width, size))) {
        Part part{pipe, r, columns, {}};
        if (!pipe.reads.empty())
          part.end = beginEndPart(pipe, i);
        Value place = placeInPiece(boxes, columns);
        SmallVector<Staging> stagings;
        for (tile::StoreOp store : boxes.stores)
          stagings.push_back({boxes, store, columns, place, number++ % boxes.count * (threads / kWarp) * kPieceBytes});
        auto stores = static_cast<int64_t>(stagings.size());
        auto await = [&](int64_t last, int64_t pieces) { // for the box with this number, and those before it
          if (last < pieces || last >= boxes.count) // else no box has left the piece in this tile
            awaitPiece(last < pieces ? 0 : boxes.count - pieces);
        };
        // Where all stores have a piece at a time, what is made leaves the registers as soon as stmatrix takes it.
        bool all = stores <= boxes.count;
        int64_t blocks = columns.count / 8, step = all && size == 2 ? 2 : blocks;
        if (all)
          await(number - 1, stores);
        for (int64_t block = 0; block < blocks; block += step)
          for (auto [i, staging, pairs] : llvm::enumerate(stagings, makePart(part, sums, block, step, places, ends))) {
            if (!all)
              await(number - stores + static_cast<int64_t>(i), 1);
            stagePart(staging, block, pairs);
            if (!all)
              leaveParts(staging, row, firstColumn, whole);
          }
        if (!pipe.reads.empty())
          leaveEndPart(pipe, part.end);
        if (all)
          leaveParts(stagings, row, firstColumn, whole);
      }
      storeEnds(sums, ends, r);
    };
    if (!boxes.ends) {
      inBoxes({});
      continue;
    }
    number = 0; // the rows before may have gone another way
    Value begin = add(at.row, row);
    Value whole = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::sle, add(begin, kOwnRows), at.limit);
    Value some = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::slt, begin, at.limit);
    auto branch = scf::IfOp::create(b, loc, byRows ? whole : some, /*withElseRegion=*/true);
    branch->setAttr(kLikelyAttr, b.getUnitAttr());
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPoint(branch.thenBlock()->getTerminator());
    inBoxes(byRows ? Value() : whole);
    startStrip();
    b.setInsertionPoint(branch.elseBlock()->getTerminator());
    if (byRows)
      onlyIf(some, [&] { byRows(r); });
    passEndReads(pipe);
    startStrip();
  }
}

/// By those that have started copies: shared memory is read.
void ThreadLowering::endResultBoxes(const ResultBoxes &boxes) {
  awaitBoxes(0);
  --boxes.memory->pins;
  giveBack(boxes.memory);
}
