//===- ThreadProducts.cpp - a sum of tensor-core products as a pipeline -------------------------------------------===//
//
//   sum = begin;  for at = lo, lo + K, .. < hi:  sum += op(A[.. at ..]) op(B[.. at ..])      (bf16 in, f32 sums)
//
// where both operands are tiles as they lie in memory. They travel to a ring of stages in shared memory by asynchronous copies, some iterations ahead of
// the products; the sum stays in registers until the loop ends. With `limits.wgmma` (Hopper) a warpgroup multiplies from shared memory by
// wgmma, one iteration's products under way while the next one's begin; else warps do, by ldmatrix and mma.sync.
//
// A stage holds both tiles, each as a panel: blocks of 64 columns, in them the rows one behind the other, 128 bytes each, the 16-byte chunk c of row r at
// c xor (r mod 8). So eight rows of a chunk, which ldmatrix reads and copies write at a time, lie in different banks; and it is what wgmma calls a swizzle
// of 128 bytes, in both of its orders: a panel whose columns run along k is K-major, one whose rows do is MN-major (PTX ISA, "Asynchronous warpgroup level
// matrix shared memory layout"; panels begin on 1024 bytes, so the pattern has no offset).
//
//===-------------------------------------------------------------------------------------------------------------===//
#include "passes/lower/ThreadProducts.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"

#include <limits>

using namespace mlir;
using namespace braid;
using namespace braid::lower;

namespace {

constexpr int64_t kStep = 16; // of k: one instruction
constexpr int64_t kMostColumns = 256; // of wgmma
constexpr int64_t kMostSums = 128; // registers of a thread
constexpr int64_t kMostStages = 4;
constexpr int64_t kTogether = 4; // lanes that share a row of sums
/// Products of few rows wait for memory, not for tensor cores: more of it is asked for at a time.
constexpr int64_t kMostNarrowStages = 8, kNarrowBytes = 80 * 1024;

} // namespace

/// The loop's only work is one product of two loads, of which the second may be several beside each other, that is added to what it carries.
static bool match(scf::ForOp op, tile::DotOp &dot, tile::LoadOp &a, SmallVectorImpl<tile::LoadOp> &bs) {
  if (op.getNumRegionIterArgs() != 1)
    return false;
  Value sum = op.getRegionIterArg(0), next = op.getBody()->getTerminator()->getOperand(0);
  dot = next.getDefiningOp<tile::DotOp>();
  if (!dot || dot->getBlock() != op.getBody() || dot.getAcc() != sum || !sum.hasOneUse() || !next.hasOneUse())
    return false;
  a = dot.getA().getDefiningOp<tile::LoadOp>();
  auto beside = dot.getB().getDefiningOp<tile::ConcatOp>();
  if (beside && (beside->getBlock() != op.getBody() || !beside->hasOneUse()))
    return false;
  for (Value b : beside ? SmallVector<Value>(beside.getSources()) : SmallVector<Value>{dot.getB()})
    bs.push_back(b.getDefiningOp<tile::LoadOp>());
  auto asItLies = [&](tile::LoadOp load) {
    return load && load->getBlock() == op.getBody() && !load.getRows() && load.getResult().hasOneUse() &&
           tileType(load.getResult()).getRank() == 2;
  };
  if (!asItLies(a) || !llvm::all_of(bs, asItLies))
    return false;
  auto fillsBlocks = [](tile::LoadOp load) { return tileType(load.getResult()).getDimSize(1) % kBlockColumns == 0; };
  if (beside && (dot.getTransposeB() || !llvm::all_of(bs, fillsBlocks)))
    return false;
  return llvm::all_of(op.getBody()->without_terminator(), [&](Operation &inside) {
    return &inside == dot || &inside == a || llvm::is_contained(bs, &inside) || &inside == beside ||
           (isa<arith::ArithDialect, memref::MemRefDialect>(inside.getDialect()) && isMemoryEffectFree(&inside) &&
            llvm::none_of(inside.getOperands(), isTile) && llvm::none_of(inside.getResults(), isTile));
  });
}

/// Warpgroups lie one below the other, side by side where there are fewer rows.
bool ThreadLowering::Product::dealToGroups(int64_t threads) {
  int64_t groups = threads / (4 * kWarp), below = m / kGroupRows;
  if (groups == 0 || below == 0 || m % kGroupRows != 0)
    return false;
  int64_t down = std::min(groups, below);
  across = groups / down;
  rows = below / down;
  columns = n / across;
  // An MN-major panel is cut between its blocks only.
  bool cut = across == 1 || right.alongK || columns % kBlockColumns == 0;
  wgmma = true;
  return below % down == 0 && groups % down == 0 && n % across == 0 && columns % 8 == 0 && columns <= kMostColumns &&
         cut && sums() <= kMostSums;
}

/// Warps in the way that reads the fewest operands, with k whole where there is one.
bool ThreadLowering::Product::dealToWarps(int64_t threads) {
  wgmma = false;
  Product best = *this;
  constexpr int64_t none = std::numeric_limits<int64_t>::max();
  int64_t least = none;
  for (deep = 1; least == none && deep * kWarp <= threads && k % (deep * kStep) == 0; deep *= 2)
    for (int64_t warps = threads / kWarp / deep, beside = 1; beside <= warps; beside *= 2) {
      int64_t down = warps / beside;
      across = beside;
      rows = m / 16 / down;
      columns = n / 8 / across;
      int64_t read = rows * 16 + columns * 8;
      if (rows * down * 16 != m || columns * across * 8 != n || sums() > kMostSums || read >= least)
        continue;
      least = read;
      best = *this;
    }
  *this = best;
  return least != none;
}

std::optional<ThreadLowering::Product> ThreadLowering::productOf(scf::ForOp op) {
  Product p;
  if (threads < kWarp || !match(op, p.dot, p.a, p.bs))
    return std::nullopt;
  auto type = cast<VectorType>(p.dot.getType()), a = cast<VectorType>(p.dot.getA().getType()),
       b = cast<VectorType>(p.dot.getB().getType());
  p.m = type.getDimSize(0);
  p.n = type.getDimSize(1);
  p.k = a.getDimSize(p.dot.getTransposeA() ? 0 : 1);
  if (!type.getElementType().isF32() || !onTensorCores(p.dot) || p.m % 16 != 0 || p.n % 16 != 0)
    return std::nullopt;
  // Matrices beside each other are copied in boxes only.
  if (p.bs.size() > 1 && !(limits.wgmma && kernel->hasAttr(tile::kBoxesAttr)))
    return std::nullopt;
  // Only whole chunks of contiguous elements are copied; each step of the loop begins with one.
  bool inRows = true;
  for (tile::LoadOp load : p.loads())
    eachArgument(load.getSource(), [&](Value argument) {
      inRows &= getConstantIntValue(arguments[argument].strides[load.getDims().back()]) == 1;
    });
  if (!inRows)
    return std::nullopt;
  if (std::optional<int64_t> step = getConstantIntValue(op.getStep()); !step || *step % kChunk != 0)
    return std::nullopt;
  p.left = {a.getDimSize(0), a.getDimSize(1), 0, !p.dot.getTransposeA()};
  p.right = {b.getDimSize(0), b.getDimSize(1), p.left.bytes(), static_cast<bool>(p.dot.getTransposeB())};
  p.stageBytes = p.left.bytes() + p.right.bytes();
  if (!(limits.wgmma && p.dealToGroups(threads)) && !p.dealToWarps(threads))
    return std::nullopt;
  // Two stages let copies overlap with products, wgmma reads one more.
  int64_t least = p.wgmma ? 3 : 2;
  p.stages = kMostStages;
  if (p.m <= kNarrowRows)
    p.stages = std::clamp(kNarrowBytes / p.stageBytes, kMostStages, kMostNarrowStages);
  for (; p.stages >= least; --p.stages)
    if (freeOffset(p.stages * p.stageBytes, kPatternBytes) + p.stages * p.stageBytes <= limits.sharedBytes)
      return p;
  return std::nullopt;
}

//===- Products ---------------------------------------------------------------------------------------------------===//

static Type registersOf(OpBuilder &b, int64_t count) {
  return LLVM::LLVMStructType::getLiteral(b.getContext(), SmallVector<Type>(count, b.getF32Type()));
}

/// Where an address lies as descriptions count: in units of 16 bytes, from where shared memory begins.
Value ThreadLowering::unitsOf(Value address) {
  auto number = [&](int32_t value) { return arith::ConstantOp::create(b, loc, b.getI32IntegerAttr(value)); };
  Value low = arith::IndexCastOp::create(b, loc, b.getI32Type(), address);
  return arith::ShRUIOp::create(b, loc, arith::AndIOp::create(b, loc, low, number(0x3ffff)), number(4));
}

/// `panel` as wgmma reads it: bits 0-13 where it begins, 16-29 from one block of 64 along m or n to the next (MN-major), 32-45 from eight rows to the next, all
/// in units of 16 bytes; 62-63: swizzle of 128 bytes. The upper 32 bits are the same of all, so places are computed in the lower ones: `further` bytes behind `units`.
Value ThreadLowering::describePanel(Value units, int64_t blockBytes, int64_t further) {
  auto low = static_cast<int32_t>((blockBytes / 16) << 16 | further / 16);
  uint64_t high = uint64_t(1) << 62 | static_cast<uint64_t>(kPatternBytes / 16) << 32;
  Value place = arith::AddIOp::create(b, loc, units, arith::ConstantOp::create(b, loc, b.getI32IntegerAttr(low)));
  return arith::OrIOp::create(b, loc, arith::ExtUIOp::create(b, loc, b.getI64Type(), place),
                              arith::ConstantOp::create(b, loc, b.getI64IntegerAttr(static_cast<int64_t>(high))));
}

/// Registers that the first product writes without reading them. Each is written here, or the assembler would keep it from one iteration for the next: it
/// drops what nobody reads. The optimizer would copy zeros to where they are read, which would make products wait for each other.
static Value beginSums(OpBuilder &b, Location loc, int64_t count) {
  std::string text, constraints;
  for (int64_t i = 0; i < count; ++i) {
    text += ("mov.b32 $" + Twine(i) + ", 0;").str();
    constraints += i ? ",=f" : "=f";
  }
  return LLVM::InlineAsmOp::create(b, loc, registersOf(b, count), ValueRange(), text, constraints,
                                   /*has_side_effects=*/true, /*is_align_stack=*/false,
                                   LLVM::tailcallkind::TailCallKind::None, LLVM::AsmDialectAttr(), ArrayAttr())
      .getResult(0);
}

/// Whether a product's sums begin with it.
static bool begins(Value sums) {
  if (auto one = sums.getDefiningOp<LLVM::ExtractValueOp>())
    sums = one.getContainer();
  auto code = sums.getDefiningOp<LLVM::InlineAsmOp>();
  return code && code.getAsmString().starts_with(kBeginSums);
}

bool lower::areZeros(ValueRange sums) {
  return llvm::all_of(sums, [](Value sum) { return matchPattern(sum, m_PosZeroFloat()); });
}

/// Sums as they are, or, where they are zeros, such that begin with their product.
SmallVector<Value> ThreadLowering::begunSums(ValueRange sums) {
  if (!areZeros(sums))
    return SmallVector<Value>(sums);
  return sumsOfStruct(beginSums(b, loc, static_cast<int64_t>(sums.size())));
}

/// `begun`: sums that are zeros are begun by what writes them.
Value ThreadLowering::structOfSums(ValueRange sums, bool begun) {
  if (begun && areZeros(sums))
    return beginSums(b, loc, static_cast<int64_t>(sums.size()));
  Value whole = LLVM::PoisonOp::create(b, loc, registersOf(b, static_cast<int64_t>(sums.size())));
  for (auto [i, sum] : llvm::enumerate(sums))
    whole = LLVM::InsertValueOp::create(b, loc, whole, sum, ArrayRef<int64_t>{static_cast<int64_t>(i)});
  return whole;
}

SmallVector<Value> ThreadLowering::sumsOfStruct(Value whole) {
  SmallVector<Value> sums;
  for (size_t i = 0; i < cast<LLVM::LLVMStructType>(whole.getType()).getBody().size(); ++i)
    sums.push_back(LLVM::ExtractValueOp::create(b, loc, whole, ArrayRef<int64_t>{static_cast<int64_t>(i)}));
  return sums;
}

/// 64 rows times what two descriptors say, 16 deep: not waited for.
Value ThreadLowering::multiplyByGroup(Value left, bool leftAlongK, Value right, bool rightAlongK, Value sums) {
  auto columns = static_cast<int64_t>(cast<LLVM::LLVMStructType>(sums.getType()).getBody().size() * 2);
  auto shape = NVVM::MMAShapeAttr::get(b.getContext(), kGroupRows, columns, kStep);
  auto layout = [&](bool transposed) { return transposed ? NVVM::MMALayout::col : NVVM::MMALayout::row; };
  auto bf16 = NVVM::WGMMATypes::bf16;
  auto one = NVVM::WGMMAScaleIn::one;
  auto added = begins(sums) ? NVVM::WGMMAScaleOut::zero : NVVM::WGMMAScaleOut::one;
  return NVVM::WgmmaMmaAsyncOp::create(b, loc, sums.getType(), sums, left, right, shape, bf16, bf16,
                                       NVVM::WGMMATypes::f32, added, one, one, layout(!leftAlongK), layout(rightAlongK),
                                       /*satfinite=*/nullptr);
}

/// One step of the loop by wgmma, not waited for. `left`, `right`: where the stage's panels begin (unitsOf).
SmallVector<Value> ThreadLowering::multiplyByGroups(const Product &p, Value left, Value right, ValueRange sums) {
  Value group = divide(warp, 4), down = divide(group, p.across), beside = remainder(group, p.across);
  // A group's rows or columns of a panel; bytes from there `further` along m or n, `step` along k.
  auto ofGroup = [&](const Panel &panel, Value start, Value first) -> Value {
    Value bytes = mul(first, constant(panel.alongK ? kRowBytes : panel.blockBytes() / kBlockColumns));
    return arith::AddIOp::create(b, loc, start, unitsOf(bytes));
  };
  auto inside = [](const Panel &panel, int64_t step, int64_t further) {
    int64_t along = panel.alongK ? further * kRowBytes : further / kBlockColumns * panel.blockBytes();
    int64_t deep =
        panel.alongK ? step / kBlockColumns * panel.blockBytes() + step % kBlockColumns * 2 : step * kRowBytes;
    return along + deep;
  };
  Value rows = ofGroup(p.left, left, mul(down, constant(p.rows * kGroupRows))),
        columns = ofGroup(p.right, right, mul(beside, constant(p.columns)));
  int64_t each = p.columns / 2;
  SmallVector<Value> blocks;
  for (int64_t r = 0; r < p.rows; ++r)
    blocks.push_back(structOfSums(sums.slice(r * each, each), /*begun=*/true));
  NVVM::WgmmaFenceAlignedOp::create(b, loc);
  for (int64_t step = 0; step < p.k; step += kStep) {
    Value y = describePanel(columns, p.right.blockBytes(), inside(p.right, step, 0));
    for (int64_t r = 0; r < p.rows; ++r) {
      Value x = describePanel(rows, p.left.blockBytes(), inside(p.left, step, r * kGroupRows));
      blocks[r] = multiplyByGroup(x, p.left.alongK, y, p.right.alongK, blocks[r]);
    }
  }
  NVVM::WgmmaGroupSyncAlignedOp::create(b, loc);
  SmallVector<Value> next;
  for (Value block : blocks)
    llvm::append_range(next, sumsOfStruct(block));
  return next;
}

/// Which part of k a warp has, and its place among those that have the same.
Value ThreadLowering::partOf(const Product &p) { return divide(warp, threads / kWarp / p.deep); }
Value ThreadLowering::placeOf(const Product &p) {
  return p.deep > 1 ? remainder(warp, threads / kWarp / p.deep) : warp;
}

/// One step of the loop by mma.sync.
SmallVector<Value> ThreadLowering::multiplyByWarps(const Product &p, Value left, Value right, ValueRange sums) {
  Value place = placeOf(p), firstRow = mul(divide(place, p.across), constant(p.rows * 16)),
        firstColumn = mul(remainder(place, p.across), constant(p.columns * 8));
  int64_t depth = p.k / p.deep;
  Value begin = p.deep > 1 ? mul(partOf(p), constant(depth)) : constant(0); // along k
  // Lane 8 i + r gives row r of the i-th matrix.
  Value inMatrix = remainder(lane, 8), low = remainder(divide(lane, 8), 2), high = divide(lane, 16);
  // Matrices of `panel` at m or n `major` and k `deep`, where lanes are `majorLanes` and `deepLanes` eights further.
  auto load = [&](const Panel &panel, Value start, Value major, int64_t deep, Value majorLanes, Value deepLanes,
                  int64_t count, bool turned) {
    Value row = panel.alongK ? add(add(major, inMatrix), mul(majorLanes, constant(8)))
                             : add(add(add(inMatrix, begin), deep), mul(deepLanes, constant(8)));
    Value chunk = panel.alongK ? add(add(deepLanes, divide(begin, kChunk)), deep / kChunk)
                               : add(divide(major, kChunk), majorLanes);
    Value swizzled = arith::XOrIOp::create(b, loc, remainder(chunk, 8), remainder(row, 8));
    Value address = add(start, add(mul(divide(chunk, 8), constant(panel.blockBytes())),
                                   add(mul(row, constant(kRowBytes)), mul(swizzled, constant(kChunkBytes)))));
    return loadMatrices(address, count, turned);
  };
  SmallVector<Value> now(sums);
  for (int64_t step = 0; step < depth; step += kStep) {
    SmallVector<SmallVector<Value>> x, y;
    for (int64_t r = 0; r < p.rows; ++r)
      x.push_back(load(p.left, left, add(firstRow, r * 16), step, low, high, 4, !p.left.alongK));
    int64_t together = p.columns % 2 == 0 ? 2 : 1;
    for (int64_t c = 0; c < p.columns; c += together) {
      Value beside = together == 2 ? high : constant(0);
      SmallVector<Value> loaded =
          load(p.right, right, add(firstColumn, c * 8), step, beside, low, 2 * together, !p.right.alongK);
      for (int64_t part = 0; part < together; ++part)
        y.push_back({loaded[2 * part], loaded[2 * part + 1]});
    }
    for (int64_t r = 0; r < p.rows; ++r)
      for (int64_t c = 0; c < p.columns; ++c) {
        auto at = now.begin() + (r * p.columns + c) * 4;
        llvm::copy(multiplyFragments(x[r], y[c], ArrayRef<Value>(at, 4)), at);
      }
  }
  return now;
}

/// The elements whose sums a thread holds, in their order.
void ThreadLowering::eachSum(const Product &p, function_ref<void(Value row, const Strip &strip)> body) {
  Value quad = divide(lane, 4), pair = mul(remainder(lane, 4), constant(2)), row = quad, column = pair;
  int64_t rowStep = 16, columnBlocks = p.columns;
  if (p.wgmma) {
    Value group = divide(warp, 4);
    row = add(row,
              add(mul(divide(group, p.across), constant(p.rows * kGroupRows)), mul(remainder(warp, 4), constant(16))));
    column = add(column, mul(remainder(group, p.across), constant(p.columns)));
    rowStep = kGroupRows;
    columnBlocks = p.columns / 8;
  } else {
    row = add(row, mul(divide(placeOf(p), p.across), constant(p.rows * 16)));
    column = add(column, mul(remainder(placeOf(p), p.across), constant(p.columns * 8)));
  }
  for (int64_t r = 0; r < p.rows; ++r)
    for (int64_t c = 0; c < columnBlocks; ++c)
      for (int64_t half = 0; half < 2; ++half)
        for (int64_t element = 0; element < 2; ++element)
          body(add(row, r * rowStep + half * 8), {add(column, c * 8 + element), 0, p.n, 0, 1});
}

/// Blocks of eight columns in a row of a thread's sums.
int64_t ThreadLowering::blocksOf(const Product &p) const { return p.wgmma ? p.columns / 8 : p.columns; }

/// bf16, whose pairs would fill half of the 32 bytes that memory takes at a time: the four lanes of a quad, each with a pair of four blocks of
/// eight columns, exchange them, so that each has all of one block.
void ThreadLowering::storeBlocks(const LoopSums &held, tile::StoreOp store) {
  const Product &p = held.product;
  Value quad = remainder(lane, kTogether);
  auto bit = [&](int64_t of) -> Value {
    return arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ne, remainder(divide(quad, of), 2), constant(0));
  };
  Value low = bit(1), high = bit(2);
  auto vector = [&](int64_t count, Type element) { return VectorType::get({count}, element); };
  SmallVector<std::pair<Value, Value>> places; // row and column of the sums
  eachSum(p, [&](Value row, const Strip &strip) { places.push_back({row, strip.column}); });
  int64_t blocks = blocksOf(p);
  auto sumAt = [&](int64_t r, int64_t c, int64_t half) {
    return static_cast<size_t>(((r * blocks + c) * 2 + half) * 2);
  };
  for (int64_t r = 0; r < p.rows; ++r)
    for (int64_t c = 0; c < blocks; c += kTogether)
      for (int64_t half = 0; half < 2; ++half) {
        SmallVector<Value> pairs;
        for (int64_t i = 0; i < kTogether; ++i) {
          size_t at = sumAt(r, c + i, half);
          auto [row, column] = places[at];
          takeSums(held, at, /*inPairs=*/true);
          startStrip();
          Value pair = eval(store.getValue(), {row}, {column, 0, p.n, 2, 2});
          pair = vector::BitCastOp::create(b, loc, vector(1, b.getI32Type()), pair);
          pairs.push_back(vector::ExtractOp::create(b, loc, pair, 0));
        }
        startStrip();
        auto exchange = [&](int64_t first, int64_t second, Value upper, int64_t distance) {
          Value &x = pairs[first], &y = pairs[second];
          Value given = arith::SelectOp::create(b, loc, upper, x, y);
          Value taken = shuffle(given, distance, gpu::ShuffleMode::XOR);
          x = arith::SelectOp::create(b, loc, upper, taken, x);
          y = arith::SelectOp::create(b, loc, upper, y, taken);
        };
        exchange(0, 1, low, 1);
        exchange(2, 3, low, 1);
        exchange(0, 2, high, 2);
        exchange(1, 3, high, 2);
        Value eight = vector::FromElementsOp::create(b, loc, vector(kTogether, b.getI32Type()), pairs);
        eight = vector::BitCastOp::create(b, loc, vector(8, b.getBF16Type()), eight);
        auto [row, column] = places[sumAt(r, c, half)];
        writeArgument(store, {row}, {add(column, mul(quad, constant(6))), 0, p.n, 8, 8}, eight);
      }
}

/// Formulas find the sum with this number, or it and its neighbour, and where they read parts of the columns those as far on in each of them.
void ThreadLowering::takeSums(const LoopSums &held, size_t at, bool inPairs) {
  auto take = [&](Value tile, size_t at) {
    registers[tile] = held.sums[at];
    if (inPairs)
      registers[tile] = vector::FromElementsOp::create(b, loc, VectorType::get({2}, held.sums[at].getType()),
                                                       ArrayRef<Value>(held.sums).slice(at, 2));
  };
  if (held.reads.parts.empty())
    return take(held.result, at);
  for (Value numbers : held.reads.numbers)
    registers[numbers] = sumRows.lookup(numbers)->rows[rowOfSum(at, blocksOf(held.product))];
  for (auto [part, first] : held.reads.parts) {
    size_t place = at + static_cast<size_t>(first * 4 / 8);
    auto round = part.hasOneUse() ? dyn_cast<arith::TruncFOp>(*part.user_begin()) : arith::TruncFOp();
    bool rounds = round && elementOf(round).isBF16();
    if (rounds && inPairs) {
      bool isWord = held.sums[place].getType().isInteger(32);
      Value word = isWord ? held.sums[place] : roundPair(held.sums[place], held.sums[place + 1]);
      word = vector::BroadcastOp::create(b, loc, VectorType::get({1}, b.getI32Type()), word);
      registers[round] = vector::BitCastOp::create(b, loc, VectorType::get({2}, b.getBF16Type()), word);
      continue;
    }
    if (rounds)
      registers.erase(round);
    take(part, place);
  }
}

/// As bf16, in one register. What formulas and stores read in halves would be rounded in halves, too, by instructions that take four times as long, and fill two registers.
Value ThreadLowering::roundPair(Value low, Value high) {
  return LLVM::InlineAsmOp::create(b, loc, TypeRange{b.getI32Type()}, ValueRange{low, high}, kRoundPair, "=r,f,f",
                                   /*has_side_effects=*/true, /*is_align_stack=*/false,
                                   LLVM::tailcallkind::TailCallKind::None, LLVM::AsmDialectAttr(), ArrayAttr())
      .getResult(0);
}

/// What is read of sums rounded only, in half as many registers, before formulas need others. Nothing where other formulas read them.
std::optional<ThreadLowering::LoopSums> ThreadLowering::roundAll(const LoopSums &held) {
  auto isRounded = [](auto &part) {
    auto round = part.first.hasOneUse() ? dyn_cast<arith::TruncFOp>(*part.first.user_begin()) : arith::TruncFOp();
    return round && tileType(round.getResult()).getElementType().isBF16();
  };
  if (held.product.rows > 1 || held.reads.parts.empty() || !llvm::all_of(held.reads.parts, isRounded))
    return std::nullopt;
  LoopSums rounded = held;
  for (size_t at = 0; at < held.sums.size(); at += 2)
    rounded.sums[at] = rounded.sums[at + 1] = roundPair(held.sums[at], held.sums[at + 1]);
  return rounded;
}

/// The elements of a store, each where its sum is; two neighbours at a time where they may be.
void ThreadLowering::overSums(const Elements &elements, const LoopSums &held, function_ref<Value(Value row)> guard,
                              Body body) {
  Phase phase(*this);
  takeSums(held, 0, /*inPairs=*/false);
  tile::StoreOp store = elements.stores.front();
  // The sums of one block of rows, or of all of them, one by one or in pairs.
  auto each = [&](bool inPairs, std::optional<int64_t> block) {
    auto inBlock = static_cast<size_t>(blocksOf(held.product) * 4);
    auto inPart = static_cast<size_t>(held.width() * 4 / 8);
    bool sliced = held.reads.parts.size() > 1;
    size_t number = 0;
    eachSum(held.product, [&](Value row, const Strip &strip) {
      size_t at = number++;
      if ((inPairs && at % 2 != 0) || (block && at / inBlock != static_cast<size_t>(*block)) ||
          (sliced && at % inBlock >= inPart))
        return;
      Strip pair = strip;
      takeSums(held, at, inPairs);
      if (inPairs)
        pair.width = pair.valid = 2;
      onlyIf(guard ? guard(row) : Value(), [&] {
        startStrip();
        body({row}, pair);
        startStrip();
      });
    });
  };
  Vectors read = vectorsOf(elements.tiles, {}, 2);
  auto leave = [&] {
    registers.erase(held.result);
    for (Value numbers : held.reads.numbers)
      registers.erase(numbers);
    for (auto [part, first] : held.reads.parts) {
      registers.erase(part);
      for (Operation *user : part.getUsers())
        for (Value made : user->getResults())
          registers.erase(made);
    }
  };
  std::shared_ptr<const Pipeline> pipe = boxedPipeline(held);
  if (pipe && read.width) {
    // Rows are looked at where a warp's own are stored.
    if (read.accesses.empty() || !pipe->reads.empty()) {
      storeInBoxes(*pipe, held, {});
      return leave();
    }
    Value aligned = isTrusted(read.accesses.getArrayRef(), read.width, /*allRows=*/false);
    onTrust(read, aligned, {}, [&](bool trusted) -> SmallVector<Value> {
      auto oneByOne = [&](std::optional<int64_t> block) {
        each(/*inPairs=*/false, block);
        storeEnds(held, block);
      };
      if (trusted)
        storeInBoxes(*pipe, held, oneByOne);
      else
        oneByOne({});
      return {};
    });
    return leave();
  }
  Vectors pairs = vectorsOf(elements.tiles, elements.stores, 2), whole;
  if (elementOf(store.getValue()).isBF16() && blocksOf(held.product) % kTogether == 0 && pairs.width &&
      read.accesses.empty() && elements.stores.size() == 1 && held.width() == held.product.n)
    whole = vectorsOf({}, elements.stores, 8);
  onTrust(whole.width ? whole : pairs, {}, {}, [&](bool trusted) -> SmallVector<Value> {
    if (trusted && whole.width)
      storeBlocks(held, store);
    else
      each(trusted, {});
    storeEnds(held, std::nullopt);
    return {};
  });
  leave();
}

/// 64 rows of a warpgroup, `left` as mma.sync has them, times the panel that `right` describes, 16 deep: not waited for. NVVM's operation takes its left
/// operand from shared memory only.
SmallVector<Value> ThreadLowering::multiplyRowsByGroup(ValueRange left, Value right, bool rightAlongK,
                                                       ValueRange sums) {
  size_t count = sums.size();
  auto list = [](size_t first, size_t count) {
    std::string text;
    for (size_t i = 0; i < count; ++i)
      text += (i ? ", $" : "$") + std::to_string(first + i);
    return "{" + text + "}";
  };
  std::string text = std::string("{ .reg .pred p; setp.ne.b32 p, ") + (begins(sums.front()) ? "0" : "1") +
                     ", 0; wgmma.mma_async.sync.aligned.m64n" + std::to_string(count * 2) + "k16.f32.bf16.bf16 " +
                     list(0, count) + ", " + list(2 * count, 4) + ", $" + std::to_string(2 * count + 4) +
                     ", p, 1, 1, " + (rightAlongK ? "0" : "1") + "; }";
  std::string constraints;
  for (size_t i = 0; i < count; ++i)
    constraints += "=f,";
  for (size_t i = 0; i < count; ++i)
    constraints += std::to_string(i) + ",";
  constraints += "r,r,r,r,l";
  SmallVector<Value> operands(sums);
  llvm::append_range(operands, left);
  operands.push_back(right);
  auto product = LLVM::InlineAsmOp::create(b, loc, TypeRange{registersOf(b, static_cast<int64_t>(count))}, operands,
                                           text, constraints, /*has_side_effects=*/true, /*is_align_stack=*/false,
                                           LLVM::tailcallkind::TailCallKind::None, LLVM::AsmDialectAttr(), ArrayAttr());
  product->setAttr(kGroupProductAttr, b.getI32IntegerAttr(!rightAlongK));
  return sumsOfStruct(product.getResult(0));
}

/// Nothing that reads the sums may come before: they pass through the instruction that waits.
SmallVector<Value> ThreadLowering::awaitProducts(ValueRange sums, int64_t others) {
  std::string constraints;
  for (size_t i = 0; i < sums.size(); ++i)
    constraints += "=f,";
  for (size_t i = 0; i < sums.size(); ++i)
    constraints += std::to_string(i) + (i + 1 < sums.size() ? "," : "");
  auto wait = LLVM::InlineAsmOp::create(b, loc, TypeRange{registersOf(b, sums.size())}, sums,
                                        (kAwaitProducts + Twine(others) + ";").str(), constraints,
                                        /*has_side_effects=*/true, /*is_align_stack=*/false,
                                        LLVM::tailcallkind::TailCallKind::None, LLVM::AsmDialectAttr(), ArrayAttr());
  return sumsOfStruct(wait.getResult(0));
}
