//===- ThreadStrips.cpp - vectors of neighbouring elements for a thread --------------------------------------------===//
//
// A thread that reads one element of 2 or 4 bytes at a time has no more than that under way. Where a formula reads rows as they lie, a thread takes 16
// bytes of each at a time. That they begin on 16 bytes, and that no row is out of bounds, is known at run time, once for
// all elements of a tile: where it does not hold, elements go one by one.
//
//===-------------------------------------------------------------------------------------------------------------===//
#include "passes/lower/LoopWork.h"
#include "passes/lower/ThreadLowering.h"

using namespace mlir;
using namespace braid;
using namespace braid::lower;

static constexpr int64_t kVectorBytes = 16;

/// Whether a formula may be evaluated for `width` neighbouring columns, the first a multiple of it.
class ThreadLowering::VectorCheck {
public:
  VectorCheck(ThreadLowering &lowering, int64_t width) : lowering(lowering), width(width) {}
  bool visit(Value tile);
  bool visit(tile::StoreOp store);
  llvm::SetVector<Operation *> accesses;
  int64_t least = 8; ///< bytes of an element that is read or written

private:
  bool visitOp(Operation *op, Value tile);
  bool load(tile::LoadOp op);
  bool cast(vector::ShapeCastOp op);
  bool access(Operation *op, Type element, Value columnStride);

  ThreadLowering &lowering;
  int64_t width;
  DenseMap<Value, bool> known;
};

bool ThreadLowering::VectorCheck::access(Operation *op, Type element, Value columnStride) {
  accesses.insert(op);
  least = std::min(least, bytesOf(element));
  return getConstantIntValue(columnStride) == 1;
}

bool ThreadLowering::VectorCheck::load(tile::LoadOp op) {
  auto type = tileType(op.getResult());
  if (op.getRows() && type.getRank() == 1)
    return false;
  return access(op, type.getElementType(), lowering.arguments[op.getSource()].strides[op.getDims().back()]);
}

bool ThreadLowering::VectorCheck::visit(tile::StoreOp store) {
  auto type = tileType(store.getValue());
  if (store.getRows() && type.getRank() == 1)
    return false;
  Value columnStride = lowering.arguments[store.getTarget()].strides[store.getDims().back()];
  return access(store, type.getElementType(), columnStride) && visit(store.getValue());
}

/// Each row of the one is whole rows of the other, and no vector lies across two of them.
bool ThreadLowering::VectorCheck::cast(vector::ShapeCastOp op) {
  int64_t source = op.getSourceVectorType().getShape().back(), result = op.getResultVectorType().getShape().back();
  return (source == result || (source % width == 0 && result % width == 0)) && visit(op.getSource());
}

bool ThreadLowering::VectorCheck::visit(Value tile) {
  if (lowering.registers.contains(tile))
    return true;
  if (auto it = lowering.views.find(tile); it != lowering.views.end()) {
    least = std::min(least, bytesOf(mlir::cast<MemRefType>(it->second.memref.getType()).getElementType()));
    return true;
  }
  if (auto it = known.find(tile); it != known.end())
    return it->second;
  Operation *op = tile.getDefiningOp();
  return known[tile] = op && visitOp(op, tile);
}

bool ThreadLowering::VectorCheck::visitOp(Operation *op, Value tile) {
  if (auto loaded = dyn_cast<tile::LoadOp>(op))
    return load(loaded);
  if (auto reshaped = dyn_cast<vector::ShapeCastOp>(op))
    return cast(reshaped);
  if (isa<arith::ConstantOp, tile::IotaOp>(op))
    return true;
  if (auto slice = dyn_cast<tile::SliceOp>(op))
    return static_cast<int64_t>(slice.getOffset()) % width == 0 && visit(slice.getSource());
  if (auto concat = dyn_cast<tile::ConcatOp>(op))
    return llvm::all_of(concat.getSources(),
                        [&](Value source) { return tileType(source).getShape().back() % width == 0 && visit(source); });
  // Repeated along the columns: one number for all lanes.
  if (auto expand = dyn_cast<tile::ExpandOp>(op))
    return static_cast<int64_t>(expand.getAxis()) == tileType(tile).getRank() - 1 || visit(expand.getSource());
  if (auto broadcast = dyn_cast<vector::BroadcastOp>(op)) {
    VectorType source = tileType(broadcast.getSource());
    bool repeated =
        !source || source.getRank() == 0 || (source.getShape().back() == 1 && tileType(tile).getShape().back() != 1);
    return repeated || visit(broadcast.getSource());
  }
  if (auto rows = dyn_cast<tile::RowsOp>(op))
    return tileType(rows.getSource()).getRank() > 1 && visit(rows.getSource());
  return (OpTrait::hasElementwiseMappableTraits(op) || isa<tile::MaskOp>(op)) &&
         llvm::all_of(op->getOperands(), [&](Value operand) { return !isTile(operand) || visit(operand); });
}

ThreadLowering::Vectors ThreadLowering::vectorsOf(ArrayRef<Value> tiles, ArrayRef<tile::StoreOp> stores,
                                                  function_ref<bool(int64_t width)> fits) {
  for (int64_t width : {8, 4, 2})
    if (Vectors vectors = fits(width) ? vectorsOf(tiles, stores, width) : Vectors(); vectors.width)
      return vectors;
  return {};
}

ThreadLowering::Vectors ThreadLowering::vectorsOf(ArrayRef<Value> tiles, ArrayRef<tile::StoreOp> stores,
                                                  int64_t width) {
  VectorCheck check(*this, width);
  bool may = !oneByOne && llvm::all_of(tiles, [&](Value tile) { return check.visit(tile); }) &&
             llvm::all_of(stores, [&](tile::StoreOp store) { return check.visit(store); }) &&
             width * check.least <= kVectorBytes;
  return may ? Vectors{width, check.accesses} : Vectors();
}

static int64_t vectorAlignment(Type element, int64_t width) { return std::min(kVectorBytes, width * bytesOf(element)); }

llvm::MaybeAlign ThreadLowering::alignmentIn(const View &view, int64_t width) {
  Type stored = cast<MemRefType>(view.memref.getType()).getElementType();
  int64_t size = bytesOf(stored), bytes = vectorAlignment(stored, width);
  if (view.first || bytes < size)
    return {};
  for (Value stride : ArrayRef(view.strides).drop_back()) {
    std::optional<int64_t> known = getConstantIntValue(stride);
    while (bytes > size && (!known || *known * size % bytes != 0))
      bytes /= 2;
  }
  return llvm::Align(bytes);
}

Value ThreadLowering::isTrusted(ArrayRef<Operation *> ops, int64_t width, bool allRows) {
  Value condition, bits;
  auto both = [&](Value more) {
    condition = condition ? arith::AndIOp::create(b, loc, condition, more).getResult() : more;
  };
  for (Operation *op : ops) {
    auto load = dyn_cast<tile::LoadOp>(op);
    auto store = dyn_cast<tile::StoreOp>(op);
    const Access &at = accesses[op];
    VectorType type = tileType(load ? load.getResult() : store.getValue());
    int64_t size = bytesOf(type.getElementType()), bytes = vectorAlignment(type.getElementType(), width);
    auto misplaced = [&](Value address) {
      Value rest = remainder(address, bytes);
      if (getConstantIntValue(rest) != 0)
        bits = bits ? arith::OrIOp::create(b, loc, bits, rest).getResult() : rest;
    };
    Value base = memref::ExtractAlignedPointerAsIndexOp::create(
        b, loc, arguments[load ? load.getSource() : store.getTarget()].memref);
    misplaced(add(base, mul(at.offset, constant(size))));
    for (Value stride : ArrayRef(at.strides).drop_back())
      misplaced(mul(stride, constant(size)));
    if (!allRows || !at.limit || (load ? load.getRows() : store.getRows()))
      continue;
    Value end = add(at.row, type.getDimSize(0));
    both(arith::CmpIOp::create(b, loc, arith::CmpIPredicate::sge, at.row, constant(0)));
    both(arith::CmpIOp::create(b, loc, arith::CmpIPredicate::sle, end, at.limit));
  }
  if (bits)
    both(arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, bits, constant(0)));
  return condition;
}

/// Without a condition, where there are vectors, that of `vectors`.
SmallVector<Value> ThreadLowering::onTrust(const Vectors &vectors, Value condition, TypeRange results,
                                           function_ref<SmallVector<Value>(bool trusted)> body) {
  if (vectors.width == 0)
    return body(false);
  if (!condition)
    condition = isTrusted(vectors.accesses.getArrayRef(), vectors.width);
  auto trust = [&] {
    for (Operation *op : vectors.accesses) {
      auto load = dyn_cast<tile::LoadOp>(op);
      Value tile = load ? load.getResult() : mlir::cast<tile::StoreOp>(op).getValue();
      trusted[op] = llvm::Align(vectorAlignment(tileType(tile).getElementType(), vectors.width));
    }
    SmallVector<Value> values = body(true);
    for (Operation *op : vectors.accesses)
      trusted.erase(op);
    return values;
  };
  if (!condition)
    return trust();
  auto branch = scf::IfOp::create(b, loc, results, condition, /*withElseRegion=*/true);
  branch->setAttr(kLikelyAttr, b.getUnitAttr());
  OpBuilder::InsertionGuard guard(b);
  auto into = [&](Block &block, function_ref<SmallVector<Value>()> values) {
    if (results.empty())
      b.setInsertionPoint(block.getTerminator());
    else
      b.setInsertionPointToEnd(&block);
    startStrip();
    SmallVector<Value> yielded = values();
    startStrip();
    if (!results.empty())
      scf::YieldOp::create(b, loc, yielded);
  };
  into(*branch.thenBlock(), trust);
  into(*branch.elseBlock(), [&] { return body(false); });
  return SmallVector<Value>(branch.getResults());
}
