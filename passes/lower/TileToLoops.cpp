//===- TileToLoops.cpp - a kernel becomes loops over strips: ABI, control flow, lifetimes of buffers -------------===//
#include "passes/Passes.h"
#include "passes/lower/LowerKernels.h"
#include "passes/lower/TileLowering.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/IR/Dominance.h"
#include "mlir/Transforms/CSE.h"

using namespace mlir;
using namespace braid;
using namespace braid::lower;

namespace braid {
#define GEN_PASS_DEF_TILETOLOOPSPASS
#include "passes/Passes.h.inc"
} // namespace braid

TileLowering::TileLowering(func::FuncOp kernel, int64_t vectorBytes, bool bf16Dots, Thrift thrift)
    : kernel(kernel), vectorBytes(vectorBytes), bf16Dots(bf16Dots), plan(kernel, vectorBytes, thrift),
      b(kernel.getContext()), loc(kernel.getLoc()) {}

//===- Buffers and lifetimes --------------------------------------------------------------------------------------===//

Buffer *TileLowering::allocate(VectorType type) {
  Type stored = storageType(type.getElementType());
  int64_t elements = type.getNumElements() / type.getShape().back() * paddedLength(type.getShape().back());
  Buffer **best = nullptr;
  for (Buffer *&candidate : freeBuffers)
    if (cast<MemRefType>(candidate->memref.getType()).getElementType() == stored && candidate->capacity >= elements &&
        (!best || candidate->capacity < (*best)->capacity))
      best = &candidate;
  if (best) {
    Buffer *buffer = *best;
    freeBuffers.erase(llvm::find(freeBuffers, buffer));
    return buffer;
  }
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPoint(entryEnd);
  // 16 elements of slack: the last row may be read by full strips from any column.
  auto memref = MemRefType::get({elements + 16}, stored);
  buffers.push_back({memref::AllocaOp::create(b, loc, memref, b.getI64IntegerAttr(64)), elements});
  return &buffers.back();
}

void TileLowering::giveBack(Buffer *buffer) {
  if (buffer->owners == 0 && buffer->pins == 0)
    freeBuffers.push_back(buffer);
}

View TileLowering::viewOf(Buffer *buffer, VectorType type) {
  View view{buffer->memref, {}, buffer};
  int64_t stride = rowLength(type);
  view.strides.assign(type.getRank(), constant(1));
  for (int64_t d = type.getRank() - 2; d >= 0; --d) {
    view.strides[d] = constant(stride);
    stride *= type.getDimSize(d);
  }
  return view;
}

void TileLowering::own(Value v, View view) {
  views[v] = view;
  if (view.buffer)
    ++view.buffer->owners;
}

/// Whether `v` has no reader after the operation being lowered, which reads it `usesHere` times.
bool TileLowering::dies(Value v, int64_t usesHere) { return v.getParentBlock() == current && usesLeft[v] == usesHere; }

void TileLowering::useDone(Value v) {
  if (!isTile(v) || --usesLeft[v] > 0)
    return;
  if (auto it = views.find(v); it != views.end()) {
    if (Buffer *buffer = it->second.buffer) {
      --buffer->owners;
      giveBack(buffer);
    }
  } else if (Operation *op = isAtHand(v) ? nullptr : v.getDefiningOp()) {
    for (Value operand : op->getOperands()) // a lazy tile holds its operands until its own last reader is done
      release(operand, op->getBlock());
  }
}

/// One reader of `v` in block `user` is done. In a region that may run again, tiles from outside stay.
void TileLowering::release(Value v, Block *user) {
  if (!isTile(v))
    return;
  if (v.getParentBlock() == current)
    useDone(v);
  else
    deferred[v.getParentBlock()].push_back(v);
}

void TileLowering::releaseOperands(Operation *op) {
  for (Value operand : op->getOperands())
    release(operand, op->getBlock());
  for (Value result : op->getResults())
    if (isTile(result) && result.use_empty()) {
      usesLeft[result] = 1;
      useDone(result);
    }
}

void TileLowering::drainDeferred(Block *block) {
  SmallVector<Value> values = std::move(deferred[block]);
  deferred[block].clear();
  for (Value v : values)
    useDone(v);
}

/// How many uses of `target` a lazy tree under `root` makes, each node of it used only here.
int64_t TileLowering::readsThrough(Value target, Value root, bool &elementwise, DenseMap<Value, int64_t> &known) {
  if (root == target)
    return 1;
  Operation *op = root.getDefiningOp();
  if (!op || !isTile(root) || views.count(root))
    return 0;
  if (auto it = known.find(root); it != known.end())
    return it->second;
  constexpr int64_t many = 1 << 20; // more than a value has uses
  int64_t count = 0;
  for (Value operand : op->getOperands())
    count = std::min(many, count + (isTile(operand) ? readsThrough(target, operand, elementwise, known) : 0));
  known[root] = count;
  if (count && (usesLeft[root] != 1 || !(OpTrait::hasElementwiseMappableTraits(op) || isa<tile::MaskOp>(op))))
    elementwise = false;
  return count;
}

bool TileLowering::reads(Value root, Buffer *buffer, bool moved, bool &onlyIdentity,
                         DenseMap<std::pair<Value, unsigned>, bool> &known) {
  if (!isTile(root))
    return false;
  if (auto it = views.find(root); it != views.end()) {
    if (it->second.buffer != buffer)
      return false;
    onlyIdentity &= !moved;
    return true;
  }
  Operation *op = root.getDefiningOp();
  if (!op)
    return false;
  std::pair<Value, unsigned> key(root, moved);
  if (auto it = known.find(key); it != known.end())
    return it->second;
  bool here = moved || !(OpTrait::hasElementwiseMappableTraits(op) || isa<tile::MaskOp>(op)), found = false;
  for (Value operand : op->getOperands())
    found |= reads(operand, buffer, here, onlyIdentity, known);
  return known[key] = found;
}

View TileLowering::destination(Value v, Value through) {
  if (auto loop = dyn_cast_or_null<scf::ForOp>(current->getParentOp()))
    for (auto [i, yielded] : llvm::enumerate(current->getTerminator()->getOperands())) {
      if (yielded != v)
        continue;
      Value carried = loop.getRegionIterArg(i);
      View view = loopViews[loop][i];
      bool elementwise = true;
      DenseMap<Value, int64_t> known;
      int64_t mine = through ? readsThrough(carried, through, elementwise, known) : 0;
      bool free = usesLeft[carried] == 0 || (mine == usesLeft[carried] && elementwise);
      // Another result of this iteration may already live there.
      if (free && view.buffer->owners == (usesLeft[carried] == 0 ? 0 : 1))
        return view;
    }
  Buffer *buffer = allocate(tileType(v));
  return viewOf(buffer, tileType(v));
}

//===- The walk ---------------------------------------------------------------------------------------------------===//

LogicalResult TileLowering::lowerBlock(Block &block) {
  Block *outer = std::exchange(current, &block);
  for (Operation &op : block.without_terminator()) {
    loc = op.getLoc();
    if (failed(lowerOp(&op)))
      return failure();
    drainDeferred(&block);
  }
  current = outer;
  return success();
}

LogicalResult TileLowering::lowerOp(Operation *op) {
  for (Value result : op->getResults())
    usesLeft[result] = std::distance(result.use_begin(), result.use_end());
  if (lowerInRegisters(op))
    return success(!failedOnce);
  if (auto loop = dyn_cast<scf::ForOp>(op))
    return lowerFor(loop);
  if (auto branch = dyn_cast<scf::IfOp>(op))
    return lowerIf(branch);
  if (auto store = dyn_cast<tile::StoreOp>(op)) {
    ArrayRef<tile::StoreOp> group = plan.group(store);
    if (!group.empty())
      storeGroup(group);
    for (tile::StoreOp member : group)
      releaseOperands(member);
    return success(!failedOnce);
  }
  if (auto load = dyn_cast<tile::LoadOp>(op))
    accesses[op] = access(load.getSource(), load.getIndices(), load.getDims(), load.getLimit());
  bool tileResult = op->getNumResults() == 1 && isTile(op->getResult(0));
  if (auto reduce = dyn_cast<tile::ReduceOp>(op); reduce && tileResult && TilePlan::isAlongRows(reduce)) {
    ArrayRef<tile::ReduceOp> group = plan.group(reduce);
    if (!group.empty())
      reduceRows(group);
    for (tile::ReduceOp member : group)
      releaseOperands(member);
    return success(!failedOnce);
  }
  if (tileResult && !plan.isKept(op->getResult(0))) {
    if (op->getResult(0).use_empty())
      for (Value operand : op->getOperands())
        release(operand, op->getBlock());
    return success();
  }
  if (tileResult) {
    if (failed(keep(op->getResult(0))))
      return failure();
    releaseOperands(op);
    return success();
  }
  return lowerScalar(op);
}

/// One of two buffers.
View TileLowering::chosen(arith::SelectOp op) {
  const View &x = arguments[op.getTrueValue()], &y = arguments[op.getFalseValue()];
  Value condition = scalars.lookup(op.getCondition());
  auto either = [&](Value a, Value c) -> Value {
    return a == c ? a : Value(arith::SelectOp::create(b, loc, condition, a, c));
  };
  View view{either(x.memref, y.memref), {}};
  for (auto [a, c] : llvm::zip_equal(x.strides, y.strides))
    view.strides.push_back(either(a, c));
  return view;
}

LogicalResult TileLowering::lowerScalar(Operation *op) {
  if (auto reduce = dyn_cast<tile::ReduceOp>(op)) {
    reduceLast(reduce);
    releaseOperands(op);
    return success(!failedOnce);
  }
  if (auto rows = dyn_cast<tile::RowsOp>(op)) {
    startStrip();
    Strip one{scalars.lookup(rows.getOffset()), 0, tileType(rows.getSource()).getDimSize(0), 0, 1};
    scalars.map(rows.getResult(), eval(rows.getSource(), {}, one));
    startStrip();
    releaseOperands(op);
    return success(!failedOnce);
  }
  if (auto extract = dyn_cast<vector::ExtractOp>(op)) {
    SmallVector<Value> at;
    for (OpFoldResult position : extract.getMixedPosition())
      at.push_back(isa<Attribute>(position) ? constant(*getConstantIntValue(position))
                                            : scalars.lookup(cast<Value>(position)));
    startStrip();
    auto type = tileType(extract.getSource());
    scalars.map(extract.getResult(),
                eval(extract.getSource(), ArrayRef(at).drop_back(), {at.back(), 0, type.getShape().back(), 0, 1}));
    startStrip();
    releaseOperands(op);
    return success(!failedOnce);
  }
  auto flat = [&](Value buffer, ValueRange indices) {
    const View &view = arguments[buffer];
    touched(view, isa<memref::StoreOp>(op));
    Value offset = constant(0);
    for (auto [index, stride] : llvm::zip(indices, view.strides))
      offset = add(offset, mul(scalars.lookup(index), stride));
    return std::pair(view.memref, offset);
  };
  if (auto load = dyn_cast<memref::LoadOp>(op)) {
    if (!arguments.count(load.getMemRef()))
      return fail(op, "reads a buffer that is not an argument of the kernel");
    auto [memref, offset] = flat(load.getMemRef(), load.getIndices());
    scalars.map(load.getResult(), Value(memref::LoadOp::create(b, loc, memref, ValueRange{offset})));
    return success();
  }
  if (auto store = dyn_cast<memref::StoreOp>(op)) {
    if (!arguments.count(store.getMemRef()))
      return fail(op, "writes a buffer that is not an argument of the kernel");
    auto [memref, offset] = flat(store.getMemRef(), store.getIndices());
    memref::StoreOp::create(b, loc, scalars.lookup(store.getValueToStore()), memref, ValueRange{offset});
    return success();
  }
  if (auto dim = dyn_cast<memref::DimOp>(op)) {
    std::optional<int64_t> which = dim.getConstantIndex();
    if (!which || !sizes.count(dim.getSource()))
      return fail(op, "needs a constant dimension of an argument of the kernel");
    scalars.map(dim.getResult(), sizes[dim.getSource()][*which]);
    return success();
  }
  if (auto program = dyn_cast<tile::ProgramOp>(op))
    return success(); // mapped by buildEntry
  if (auto choice = dyn_cast<arith::SelectOp>(op); choice && isa<MemRefType>(choice.getType())) {
    arguments[choice.getResult()] = chosen(choice);
    return success();
  }
  if (llvm::any_of(op->getOperands(), isTile) || llvm::any_of(op->getResults(), isTile) || op->getNumRegions() != 0)
    return fail(op, "has no lowering to loops");
  if (!isa<arith::ArithDialect, math::MathDialect>(op->getDialect()))
    return fail(op, "is not allowed in a kernel");
  b.clone(*op, scalars);
  return success();
}

/// values[i] -> targets[i] as if all at once: a buffer is overwritten when no other pending value reads it.
void TileLowering::assignAll(ArrayRef<Value> values, ArrayRef<View> targets, ArrayRef<VectorType> types) {
  SmallVector<size_t> pending;
  SmallVector<View> sources(values.size()); // set when the value has been saved in a temporary
  SmallVector<Buffer *> temporary;
  for (size_t i = 0; i < values.size(); ++i) {
    auto it = views.find(values[i]);
    if (it == views.end() || it->second.buffer != targets[i].buffer || !targets[i].buffer)
      pending.push_back(i);
  }
  while (!pending.empty()) {
    auto ready = llvm::find_if(pending, [&](size_t i) {
      bool identity = true;
      if (!sources[i].memref)
        reads(values[i], targets[i].buffer, identity);
      return identity && llvm::none_of(pending, [&](size_t j) {
               bool unused = true;
               return j != i && !sources[j].memref && reads(values[j], targets[i].buffer, unused);
             });
    });
    bool cycle = ready == pending.end();
    size_t i = cycle ? *llvm::find_if(pending, [&](size_t j) { return !sources[j].memref; }) : *ready;
    if (cycle) {
      temporary.push_back(allocate(types[i]));
      sources[i] = viewOf(temporary.back(), types[i]);
      fill(sources[i], types[i], values[i]);
      continue;
    }
    if (sources[i].memref) {
      overElements(
          {types[i].getShape(), widthFor(types[i]), {}}, nullptr, [&](ArrayRef<Value> lead, const Strip &strip) {
            writeView(targets[i], lead, strip, readView(sources[i], types[i].getElementType(), lead, strip), false);
          });
    } else {
      fill(targets[i], types[i], values[i]);
    }
    pending.erase(ready);
  }
  for (Buffer *buffer : temporary)
    giveBack(buffer);
}

LogicalResult TileLowering::lowerFor(scf::ForOp op) {
  if (lowerLoop(op))
    return success(!failedOnce);
  SmallVector<Value> scalarInits, tiles, carriedScalars;
  SmallVector<View> all(op.getInitArgs().size()), targets;
  SmallVector<VectorType> types;
  for (auto [i, init] : llvm::enumerate(op.getInitArgs())) {
    if (!isTile(init)) {
      scalarInits.push_back(scalars.lookup(init));
      continue;
    }
    auto it = views.find(init);
    View view;
    if (it != views.end() && it->second.buffer && dies(init, 1)) {
      view = it->second; // the loop goes on in the buffer of its initial value
      --view.buffer->owners;
      usesLeft[init] = 0;
    } else {
      view = viewOf(allocate(tileType(init)), tileType(init));
      fill(view, tileType(init), init);
      release(init, op->getBlock());
    }
    ++view.buffer->pins;
    all[i] = view;
    tiles.push_back(init);
    targets.push_back(view);
    types.push_back(tileType(init));
  }
  loopViews[op] = all;
  beforeLoop(op);
  SmallVector<Value *> beside = carriedBeside(op);
  for (Value *kept : beside)
    scalarInits.push_back(*kept);
  auto loop = scf::ForOp::create(b, loc, scalars.lookup(op.getLowerBound()), scalars.lookup(op.getUpperBound()),
                                 scalars.lookup(op.getStep()), scalarInits);
  loop->setDiscardableAttrs(op->getDiscardableAttrDictionary());
  scalars.map(op.getInductionVar(), loop.getInductionVar());
  Block *body = op.getBody();
  size_t next = 0;
  for (auto [i, argument] : llvm::enumerate(op.getRegionIterArgs())) {
    usesLeft[argument] = std::distance(argument.use_begin(), argument.use_end());
    if (!isTile(argument)) {
      scalars.map(argument, loop.getRegionIterArg(next++));
      continue;
    }
    views[argument] = all[i];
    if (usesLeft[argument] > 0)
      ++all[i].buffer->owners;
  }
  for (auto [kept, argument] : llvm::zip_equal(beside, loop.getRegionIterArgs().drop_front(next)))
    *kept = argument;
  {
    OpBuilder::InsertionGuard guard(b);
    if (scalarInits.empty())
      b.setInsertionPoint(loop.getBody()->getTerminator());
    else
      b.setInsertionPointToEnd(loop.getBody());
    beginLoop();
    enterIteration(op, loop.getInductionVar());
    if (failed(lowerBlock(*body)))
      return failure();
    SmallVector<Value> tileYields, scalarYields;
    for (Value v : body->getTerminator()->getOperands())
      (isTile(v) ? tileYields : scalarYields).push_back(isTile(v) ? v : scalars.lookup(v));
    Block *outer = std::exchange(current, body);
    assignAll(tileYields, targets, types);
    for (Value v : body->getTerminator()->getOperands())
      release(v, body);
    current = outer;
    leaveIteration(op);
    endIteration();
    for (Value *kept : beside)
      scalarYields.push_back(*kept);
    if (!scalarInits.empty())
      scf::YieldOp::create(b, loc, scalarYields);
  }
  endLoop();
  for (auto [kept, result] : llvm::zip_equal(beside, loop.getResults().take_back(beside.size())))
    *kept = result;
  afterLoop(op);
  next = 0;
  for (auto [i, result] : llvm::enumerate(op.getResults())) {
    if (!isTile(result)) {
      scalars.map(result, loop.getResult(next++));
      continue;
    }
    --all[i].buffer->pins;
    own(result, all[i]);
    if (result.use_empty()) {
      usesLeft[result] = 1;
      useDone(result);
    }
  }
  return success(!failedOnce);
}

LogicalResult TileLowering::lowerIf(scf::IfOp op) {
  SmallVector<View> targets;
  SmallVector<VectorType> types;
  SmallVector<Type> scalarTypes;
  for (Value result : op.getResults()) {
    if (!isTile(result)) {
      scalarTypes.push_back(result.getType());
      continue;
    }
    View view = viewOf(allocate(tileType(result)), tileType(result));
    ++view.buffer->pins;
    targets.push_back(view);
    types.push_back(tileType(result));
  }
  auto branch = scf::IfOp::create(b, loc, scalarTypes, scalars.lookup(op.getCondition()), !op.getElseRegion().empty());
  for (auto [from, to] : {std::pair(&op.getThenRegion(), &branch.getThenRegion()),
                          std::pair(&op.getElseRegion(), &branch.getElseRegion())}) {
    if (from->empty())
      continue;
    OpBuilder::InsertionGuard guard(b);
    bool hasYield = !to->front().empty() && to->front().back().hasTrait<OpTrait::IsTerminator>();
    if (hasYield)
      b.setInsertionPoint(to->front().getTerminator());
    else
      b.setInsertionPointToEnd(&to->front());
    Block *body = &from->front();
    beginBranch();
    if (failed(lowerBlock(*body)))
      return failure();
    SmallVector<Value> tileYields, scalarYields;
    for (Value v : body->getTerminator()->getOperands())
      (isTile(v) ? tileYields : scalarYields).push_back(isTile(v) ? v : scalars.lookup(v));
    Block *outer = std::exchange(current, body);
    assignAll(tileYields, targets, types);
    for (Value v : body->getTerminator()->getOperands())
      release(v, body);
    current = outer;
    endBranch();
    if (!hasYield)
      scf::YieldOp::create(b, loc, scalarYields);
  }
  size_t tile = 0, scalar = 0;
  for (Value result : op.getResults()) {
    if (!isTile(result)) {
      scalars.map(result, branch.getResult(scalar++));
      continue;
    }
    --targets[tile].buffer->pins;
    own(result, targets[tile++]);
    if (result.use_empty()) {
      usesLeft[result] = 1;
      useDone(result);
    }
  }
  return success(!failedOnce);
}

//===- The function -----------------------------------------------------------------------------------------------===//

Value braid::flatMemory(OpBuilder &b, Location loc, Value pointer, MemRefType type) {
  MLIRContext *context = b.getContext();
  Type i64 = b.getI64Type();
  auto list = LLVM::LLVMArrayType::get(i64, 1);
  auto descriptor = LLVM::LLVMStructType::getLiteral(context, {pointer.getType(), pointer.getType(), i64, list, list});
  Value none = LLVM::ConstantOp::create(b, loc, i64, b.getI64IntegerAttr(0)),
        one = LLVM::ConstantOp::create(b, loc, i64, b.getI64IntegerAttr(1));
  Value fields = LLVM::PoisonOp::create(b, loc, descriptor);
  auto set = [&](Value value, ArrayRef<int64_t> at) {
    fields = LLVM::InsertValueOp::create(b, loc, fields, value, at);
  };
  set(pointer, {0});
  set(pointer, {1});
  set(none, {2});
  set(one, {3, 0});
  set(one, {4, 0});
  return UnrealizedConversionCastOp::create(b, loc, type, fields).getResult(0);
}

Value TileLowering::slot(Value args, unsigned number, Type type) {
  bool isIndex = type.isIndex();
  Value address = LLVM::GEPOp::create(b, loc, args.getType(), b.getI64Type(), args,
                                      ArrayRef<LLVM::GEPArg>{static_cast<int32_t>(number)});
  Value value = LLVM::LoadOp::create(b, loc, isIndex ? Type(b.getI64Type()) : type, address);
  return isIndex ? arith::IndexCastOp::create(b, loc, type, value).getResult() : value;
}

void TileLowering::bindArguments(Value args) {
  MLIRContext *context = kernel.getContext();
  auto pointer = LLVM::LLVMPointerType::get(context);
  Type index = b.getIndexType();
  DenseMap<std::pair<unsigned, int64_t>, Value> size, stride;
  KernelSignature signature = KernelSignature::of(kernel);
  SmallVector<Value> data(kernel.getNumArguments());
  for (auto [i, s] : llvm::enumerate(signature.slots)) {
    unsigned number = KernelSignature::kGridSlots + i;
    if (s.part == SlotPart::size)
      size[{s.argument, s.dimension}] = slot(args, number, index);
    else if (s.part == SlotPart::stride)
      stride[{s.argument, s.dimension}] = slot(args, number, index);
    else if (s.kind == SlotKind::i64)
      data[s.argument] = slot(args, number, index);
    else
      data[s.argument] = slot(args, number,
                              s.kind == SlotKind::pointer ? Type(pointer)
                              : s.kind == SlotKind::f32   ? Type(b.getF32Type())
                                                          : Type(b.getF64Type()));
  }
  for (auto [i, argument] : llvm::enumerate(kernel.getArguments())) {
    auto type = dyn_cast<MemRefType>(argument.getType());
    if (!type) {
      scalars.map(argument, data[i]);
      continue;
    }
    // A flat memref over the argument's memory; indices are linearised here.
    auto flat = MemRefType::get({ShapedType::kDynamic}, type.getElementType());
    View view{flatMemory(b, loc, data[i], flat), {}, nullptr};
    SmallVector<Value> lengths;
    for (int64_t d = 0; d < type.getRank(); ++d)
      lengths.push_back(type.isDynamicDim(d) ? size[{i, d}] : constant(type.getDimSize(d)));
    if (auto layout = dyn_cast<StridedLayoutAttr>(type.getLayout())) {
      for (auto [d, s] : llvm::enumerate(layout.getStrides()))
        view.strides.push_back(ShapedType::isDynamic(s) ? stride[{static_cast<unsigned>(i), static_cast<int64_t>(d)}]
                                                        : constant(s));
    } else {
      view.strides.assign(type.getRank(), constant(1));
      for (int64_t d = type.getRank() - 2; d >= 0; --d)
        view.strides[d] = mul(view.strides[d + 1], lengths[d + 1]);
    }
    arguments[argument] = view;
    sizes[argument] = lengths;
  }
}

void TileLowering::bindProgram(Value args, Value number, IRMapping &to) {
  size_t rank = kernel->getAttrOfType<ArrayAttr>(tile::kGridAttr).size();
  SmallVector<Value> ids{number};
  for (size_t d = 1; d < rank; ++d) {
    Value extent = slot(args, d - 1, b.getIndexType()), linear = ids.back();
    ids.back() = arith::RemUIOp::create(b, loc, linear, extent);
    ids.push_back(arith::DivUIOp::create(b, loc, linear, extent));
  }
  kernel.walk([&](tile::ProgramOp op) { to.map(op.getResults(), ids); });
}

void TileLowering::buildEntry() {
  auto pointer = LLVM::LLVMPointerType::get(kernel.getContext());
  Type i64 = b.getI64Type(), index = b.getIndexType();
  b.setInsertionPoint(kernel);
  lowered = func::FuncOp::create(b, loc, kernel.getName(), b.getFunctionType({pointer, i64, i64}, {}));
  Block *entry = lowered.addEntryBlock();
  b.setInsertionPointToStart(entry);
  entryEnd = func::ReturnOp::create(b, loc);
  b.setInsertionPoint(entryEnd);
  bindArguments(entry->getArgument(0));

  // One iteration per program of [begin, end).
  Value begin = arith::IndexCastOp::create(b, loc, index, entry->getArgument(1)),
        end = arith::IndexCastOp::create(b, loc, index, entry->getArgument(2));
  auto loop = scf::ForOp::create(b, loc, begin, end, constant(1));
  entryEnd = begin.getDefiningOp();
  b.setInsertionPoint(loop.getBody()->getTerminator());
  bindProgram(entry->getArgument(0), loop.getInductionVar(), scalars);
  fetches = FetchPlan(kernel);
  if (!fetches.empty()) {
    Value last = arith::SubIOp::create(b, loc, end, constant(1));
    Value next = arith::MinUIOp::create(b, loc, add(loop.getInductionVar(), 1), last);
    bindProgram(entry->getArgument(0), next, nextProgram);
  }
}

/// A kernel runs on a stack of 64 MiB (kernelStackBytes in runtime/ThreadPool.h): half of it is for tiles.
static constexpr int64_t maxStackBytes = int64_t(32) << 20;

LogicalResult TileLowering::run() {
  buildEntry();
  if (failed(lowerBlock(kernel.front())))
    return failure();
  int64_t bytes = 0;
  for (Buffer &buffer : buffers)
    bytes += (buffer.capacity + 16) *
             llvm::divideCeil(cast<MemRefType>(buffer.memref.getType()).getElementType().isIndex()
                                  ? 64
                                  : cast<MemRefType>(buffer.memref.getType()).getElementTypeBitWidth(),
                              8);
  if (bytes > maxStackBytes)
    return kernel.emitError() << kTilesDoNotFit << kernel.getName() << " need " << bytes
                              << " bytes of stack at a time; valid: at most " << maxStackBytes
                              << ", with smaller chunks (--chunk-size) or heads (head_dim, value_dim)";
  kernel.erase();
  return success();
}

//===- The pass ---------------------------------------------------------------------------------------------------===//

/// What a dot in a loop reads transposed and no iteration changes is turned once, before the loop.
static void turnInvariants(func::FuncOp kernel) {
  DenseMap<Value, SmallVector<tile::TransposeOp>> turned;
  kernel.walk([&](tile::DotOp dot) {
    if (!dot.getTransposeB())
      return;
    Value source = dot.getB();
    Operation *at = source.getParentBlock()->findAncestorOpInBlock(*dot);
    SmallVector<tile::TransposeOp> &known = turned[source];
    auto before = llvm::find_if(known, [&](tile::TransposeOp op) { return op->isBeforeInBlock(at); });
    bool repeated = false;
    for (Operation *op = dot; op != at; op = op->getParentOp())
      repeated |= isa<scf::ForOp>(op->getParentOp());
    if (before == known.end() && !repeated)
      return;
    if (before == known.end()) {
      OpBuilder builder(at);
      auto type = cast<VectorType>(source.getType());
      known.push_back(tile::TransposeOp::create(
          builder, dot.getLoc(), VectorType::get({type.getDimSize(1), type.getDimSize(0)}, type.getElementType()),
          source));
      before = std::prev(known.end());
    }
    dot.getBMutable().assign(*before);
    dot.setTransposeB(false);
  });
}

void lower::prepareTiles(func::FuncOp kernel, bool bf16Dots, bool turn) {
  // Rounding operands that are multiplied as f32 would cost time and digits.
  if (!bf16Dots)
    kernel.walk([](tile::DotOp dot) {
      for (OpOperand *operand : {&dot.getAMutable(), &dot.getBMutable()})
        if (auto round = operand->get().getDefiningOp<arith::TruncFOp>();
            round && getElementTypeOrSelf(round.getIn()) == getElementTypeOrSelf(dot.getType()))
          operand->set(round.getIn());
    });
  kernel.walk([](tile::DotOp dot) {
    if (auto a = dot.getA().getDefiningOp<tile::TransposeOp>()) {
      dot.getAMutable().assign(a.getSource());
      dot.setTransposeA(!dot.getTransposeA());
    }
    if (auto b = dot.getB().getDefiningOp<tile::TransposeOp>()) {
      dot.getBMutable().assign(b.getSource());
      dot.setTransposeB(!dot.getTransposeB());
    }
  });
  if (turn)
    turnInvariants(kernel);
  SmallVector<Operation *> order;
  kernel.walk([&](Operation *op) { order.push_back(op); });
  for (Operation *op : llvm::reverse(order))
    if (op != kernel && isOpTriviallyDead(op))
      op->erase();
}

LogicalResult braid::lowerTilesToLoops(ModuleOp module, int64_t vectorBytes, bool bf16Dots) {
  IRRewriter rewriter(module.getContext());
  module.walk(expandElements);
  DominanceInfo dominance(module);
  eliminateCommonSubExpressions(rewriter, dominance, module);
  SmallVector<func::FuncOp> kernels;
  for (auto kernel : module.getOps<func::FuncOp>())
    if (kernel->hasAttr(tile::kKernelAttr) && !kernel.isExternal())
      kernels.push_back(kernel);
  for (func::FuncOp kernel : kernels) {
    prepareTiles(kernel, bf16Dots, /*turn=*/true);
    if (failed(TileLowering(kernel, vectorBytes, bf16Dots).run()))
      return failure();
  }
  return success();
}

namespace {
struct TileToLoops : braid::impl::TileToLoopsPassBase<TileToLoops> {
  using TileToLoopsPassBase::TileToLoopsPassBase;
  void runOnOperation() override {
    if (failed(lowerTilesToLoops(getOperation(), vectorBytes, bf16Dots)))
      signalPassFailure();
  }
};
} // namespace
