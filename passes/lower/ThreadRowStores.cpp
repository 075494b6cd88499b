//===- ThreadRowStores.cpp - tiles that lie in the rows of warps go to memory -------------------------------------===//
//
// Neighbours of a row are two elements of a lane, which it writes together. Of a turned tile a row of memory is a column of the warp: lanes of bf16
// exchange 8 x 8 elements first (ThreadRows.cpp).
//
//===-------------------------------------------------------------------------------------------------------------===//
#include "passes/lower/ThreadProducts.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"

using namespace mlir;
using namespace braid;
using namespace braid::lower;

/// Whether so many columns of a tile begin on their bytes whatever the buffer: a dense one begins there, with the rows of another or by itself.
static bool beginsOn(tile::StoreOp store, int64_t count) {
  MemRefType type = store.getTarget().getType();
  Value column = store.getIndices().back();
  if (auto product = column.getDefiningOp<arith::MulIOp>())
    column = product.getRhs();
  std::optional<int64_t> known = getConstantIntValue(column);
  return type.getLayout().isIdentity() && !type.isDynamicDim(type.getRank() - 1) &&
         type.getShape().back() % count == 0 && known && *known % count == 0;
}

/// A turned tile of bf16: of each block of 8 x 8 elements a lane has two neighbours of one memory row once it is transposed.
void ThreadLowering::storeTurned(tile::StoreOp store, const Vectors &vectors, ArrayRef<Value> elements) {
  VectorType type = tileType(store.getValue());
  auto inPairs = [&](ArrayRef<Value> words) -> Value { // of bf16
    Value all = vector::FromElementsOp::create(
        b, loc, VectorType::get({static_cast<int64_t>(words.size())}, b.getI32Type()), words);
    return vector::BitCastOp::create(b, loc, VectorType::get({static_cast<int64_t>(words.size()) * 2}, b.getBF16Type()),
                                     all);
  };
  auto each = [&](bool fours, function_ref<void(Value row, Value column, int64_t width, Value value)> write) {
    SmallVector<Value> pairs = pairsOf(store.getValue(), true);
    Value inBlock = divide(lane, 4), pair = mul(remainder(lane, 4), constant(2)), first = mul(warp, constant(kOwnRows));
    auto transposed = [&](Value value) -> Value {
      return LLVM::InlineAsmOp::create(b, loc, TypeRange{b.getI32Type()}, ValueRange{value}, kTransposeBlock, "=r,r",
                                       /*has_side_effects=*/true, /*is_align_stack=*/false,
                                       LLVM::tailcallkind::TailCallKind::None, LLVM::AsmDialectAttr(), ArrayAttr())
          .getResult(0);
    };
    // Two lanes exchange what they have of both halves: the four of a memory row then write 32 bytes of it.
    Value odd, four;
    if (fours) {
      odd = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ne, remainder(lane, 2), constant(0));
      four = add(first, add(mul(remainder(lane, 2), constant(8)), mul(remainder(divide(lane, 2), 2), constant(4))));
    }
    auto choose = [&](Value x, Value y) -> Value { return arith::SelectOp::create(b, loc, odd, x, y); };
    for (size_t i = 0; i < pairs.size(); i += 2) {
      Value row = add(inBlock, static_cast<int64_t>(i / 2) * 8);
      if (fours) {
        Value one = transposed(pairs[i]), two = transposed(pairs[i + 1]);
        Value other = shuffle(choose(one, two), 1, gpu::ShuffleMode::XOR);
        write(row, four, 4, inPairs({choose(other, one), choose(two, other)}));
        continue;
      }
      for (int64_t half = 0; half < 2; ++half)
        write(row, add(add(first, pair), half * 8), 2, inPairs({transposed(pairs[i + static_cast<size_t>(half)])}));
    }
  };
  const Access &at = accesses[store];
  int64_t columns = type.getDimSize(1);
  bool fours = false;
  auto stored = [&](bool trust) -> SmallVector<Value> {
    auto write = [&](Value row, Value column, int64_t width, Value value) {
      onlyIf(at.limit && !trust ? inBounds(add(at.row, row), at.limit) : Value(),
             [&] { writeArgument(store, {row}, {column, 0, columns, width > 1 ? width : 0, width}, value); });
    };
    if (trust)
      each(fours, write);
    else
      eachOwned(type.getDimSize(0),
                [&](Value row, Value column, int64_t, size_t element) { write(column, row, 1, elements[element]); });
    return {};
  };
  // Code without a branch is shuffled with the products around it.
  if (!vectors.width || at.limit || !beginsOn(store, 2)) {
    Vectors wider = vectors.width ? vectorsOf({}, {store}, 4) : Vectors();
    fours = wider.width == 4;
    onTrust(fours ? wider : vectors, {}, {}, stored);
    return;
  }
  trusted[store] = llvm::Align(4);
  stored(true);
  trusted.erase(store);
}

/// Rows of bf16: two lanes exchange pairs, so that each has four neighbours, and the four of a row 32 bytes, what memory writes at a time.
void ThreadLowering::storeFours(tile::StoreOp store) {
  Value value = store.getValue();
  SmallVector<Value> pairs = pairsOf(value, false); // of 8 columns, two halves
  Value odd = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ne, remainder(lane, 2), constant(0));
  Value quad = add(divide(lane, 4), mul(warp, constant(kOwnRows)));
  Value column = add(mul(remainder(lane, 2), constant(8)), mul(remainder(divide(lane, 2), 2), constant(4)));
  auto choose = [&](Value x, Value y) -> Value { return arith::SelectOp::create(b, loc, odd, x, y); };
  int64_t columns = tileType(value).getDimSize(1);
  trusted[store] = llvm::Align(8);
  for (int64_t c = 0; c < columns / 8; c += 2)
    for (int64_t half = 0; half < 2; ++half) {
      Value here = pairs[static_cast<size_t>(c * 2 + half)], there = pairs[static_cast<size_t>((c + 1) * 2 + half)];
      Value other = shuffle(choose(here, there), 1, gpu::ShuffleMode::XOR);
      Value four = vector::FromElementsOp::create(b, loc, VectorType::get({2}, b.getI32Type()),
                                                  ValueRange{choose(other, here), choose(there, other)});
      four = vector::BitCastOp::create(b, loc, VectorType::get({4}, b.getBF16Type()), four);
      writeArgument(store, {add(quad, half * 8)}, {add(column, c * 8), 0, columns, 4, 4}, four);
    }
  trusted.erase(store);
}

void ThreadLowering::storeOwned(tile::StoreOp store) {
  Value value = store.getValue();
  bool turned = inRows.lookup(value) && tileType(value).getRank() == 2;
  accesses[store] = access(store.getTarget(), store.getIndices(), store.getDims(), store.getLimit());
  const Access &at = accesses[store];
  VectorType type = tileType(value);
  if (inColumns.empty() && !turned && type.getRank() == 2 && type.getElementType().isBF16() && !at.limit &&
      beginsOn(store, 4)) {
    Phase phase(*this);
    return storeFours(store);
  }
  SmallVector<Value> elements = ownedOf(value, turned);
  Phase phase(*this);
  if (type.getRank() == 1) // by one of the four lanes that share a row
    return onlyIf(arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, remainder(lane, 4), constant(0)), [&] {
      eachOwned(8, [&](Value row, Value, int64_t half, size_t element) {
        if (element % 4 % 2 == 0)
          writeArgument(store, {}, {row, 0, type.getDimSize(0), 0, 1}, elements[half]);
      });
    });
  registers[value] = elements.front();
  Vectors vectors;
  if (!turned || type.getElementType().isBF16())
    vectors = vectorsOf({}, {store}, 2);
  if (turned) {
    storeTurned(store, vectors, elements);
    registers.erase(value);
    return;
  }
  onTrust(vectors, {}, {}, [&](bool trust) -> SmallVector<Value> {
    eachOwned(type, false, [&](Value row, Value column, int64_t, size_t element) {
      if (trust && element % 2 != 0)
        return;
      onlyIf(at.limit && !trust ? inBounds(add(at.row, row), at.limit) : Value(), [&] {
        Value written = elements[element];
        if (trust)
          written = vector::FromElementsOp::create(b, loc, VectorType::get({2}, written.getType()),
                                                   ArrayRef<Value>(elements).slice(element, 2));
        writeArgument(store, {row}, {column, 0, type.getDimSize(1), trust ? 2 : 0, trust ? 2 : 1}, written);
      });
    });
    return {};
  });
  registers.erase(value);
}
