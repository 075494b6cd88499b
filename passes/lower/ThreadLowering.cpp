//===- ThreadLowering.cpp - phases, barriers, shared memory; tiles dealt out to threads ---------------------------===//
#include "passes/lower/LoopWork.h"
#include "passes/lower/ThreadProducts.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "llvm/Support/SaveAndRestore.h"

#include <limits>

using namespace mlir;
using namespace braid;
using namespace braid::lower;

int64_t lower::chooseThreads(func::FuncOp kernel) {
  if (int64_t threads = threadsOfOuterSum(kernel))
    return threads;
  int64_t most = 0, dots = 0;
  bool product = false;
  kernel.walk([&](Operation *op) {
    for (Type type : llvm::concat<const Type>(op->getOperandTypes(), op->getResultTypes()))
      if (auto tile = dyn_cast<VectorType>(type))
        most = std::max(most, tile.getNumElements());
    dots += isa<tile::DotOp, tile::SolveOp>(op);
    if (auto dot = dyn_cast<tile::DotOp>(op))
      product |= cast<VectorType>(dot.getType()).getNumElements() >= 4096;
  });
  // A product of few rows is read from memory by few threads; what computes much between its products is not.
  bool large = product || (most >= 4096 && (dots == 0 || dots > 2));
  return most == 0 ? 1 : most <= 64 ? kWarp : large ? 8 * kWarp : 4 * kWarp;
}

ThreadLowering::ThreadLowering(func::FuncOp kernel, const BlockLimits &limits, int64_t threads, Thrift thrift,
                               bool ahead, bool scratched, ArrayRef<int64_t> planned)
    : TileLowering(kernel, kThreadBytes, /*bf16Dots=*/true, thrift), limits(limits), mayCopyAhead(ahead),
      scratched(scratched), threads(threads), planned(planned) {
  if (!scratched)
    planRows();
  if (scratched || !inRows.empty())
    return;
  planColumns();
  planSums();
  plan.hold(kernel, threads);
  if (inColumns.empty() && thrift == Thrift::none)
    planRowWalk();
}

//===- Phases -----------------------------------------------------------------------------------------------------===//

void ThreadLowering::Accesses::append(const Accesses &other) {
  reads.append(other.reads);
  writes.append(other.writes);
}

ThreadLowering::Phase::Phase(ThreadLowering &lowering) : lowering(lowering), outermost(!lowering.inPhase) {
  if (!outermost)
    return;
  lowering.inPhase = true;
  lowering.phase = {};
  lowering.marker = gpu::BarrierOp::create(lowering.b, lowering.loc);
}

/// The barrier at the beginning of the phase stays where the phase meets an earlier one.
void ThreadLowering::Phase::end() {
  if (!std::exchange(outermost, false))
    return;
  auto meet = [](ArrayRef<Bytes> x, ArrayRef<Bytes> y) {
    return llvm::any_of(x, [&](const Bytes &a) { return llvm::any_of(y, [&](const Bytes &b) { return a.meets(b); }); });
  };
  Accesses &now = lowering.phase, &before = lowering.pending;
  bool needed = lowering.threads > 1 &&
                (meet(now.reads, before.writes) || meet(now.writes, before.writes) || meet(now.writes, before.reads));
  if (needed) {
    OpBuilder::InsertionGuard guard(lowering.b);
    lowering.b.setInsertionPoint(lowering.marker);
    lowering.finishCopies();
    before = {};
  } else {
    lowering.marker.erase();
  }
  lowering.copying |= std::exchange(lowering.started, false);
  lowering.writes |= !now.writes.empty();
  before.append(now);
  lowering.inPhase = false;
}

void ThreadLowering::touched(const View &view, bool written) {
  assert(inPhase && "memory is touched inside of phases only");
  Bytes bytes{nullptr, 0, 1};
  if (view.buffer)
    bytes = {nullptr, view.buffer->offset, view.buffer->offset + view.buffer->bytes};
  else
    bytes.element = cast<MemRefType>(view.memref.getType()).getElementType();
  SmallVector<Bytes> &list = written ? phase.writes : phase.reads;
  if (list.empty() ||
      !(list.back().element == bytes.element && list.back().lo == bytes.lo && list.back().hi == bytes.hi))
    list.push_back(bytes);
}

void ThreadLowering::finishCopies() {
  if (std::exchange(copying, false))
    awaitCopies();
}

/// An iteration begins behind a barrier when any iteration writes, so what holds at the loop's beginning, or less, holds
/// at the beginning of each; behind the loop, too, as it may not run at all.
void ThreadLowering::beginLoop() { loops.push_back({pending, std::exchange(writes, false), copying}); }

void ThreadLowering::endIteration() {
  if (!writes || threads == 1)
    return;
  finishCopies();
  gpu::BarrierOp::create(b, loc);
  pending = {};
}

void ThreadLowering::endLoop() {
  Saved saved = std::move(loops.back());
  loops.pop_back();
  pending.append(saved.before);
  writes |= saved.written;
  copying |= saved.copying;
}

void ThreadLowering::beginBranch() { branches.push_back({pending, false, copying}); }

/// Each branch begins as if neither had run, and what follows sees what either of them did.
void ThreadLowering::endBranch() {
  pending.append(branches.back().before);
  copying |= branches.back().copying;
  branches.pop_back();
}

//===- Shared memory ----------------------------------------------------------------------------------------------===//

SmallVector<int64_t> lower::pack(ArrayRef<Lifetime> lifetimes) {
  SmallVector<size_t> order = llvm::to_vector(llvm::seq(lifetimes.size())), placed;
  llvm::stable_sort(order, [&](size_t a, size_t b) { return lifetimes[a].bytes > lifetimes[b].bytes; });
  SmallVector<int64_t> offsets(lifetimes.size());
  for (size_t i : order) {
    const Lifetime &one = lifetimes[i];
    // `placed` is in the order of offsets.
    for (size_t j : placed) {
      const Lifetime &other = lifetimes[j];
      bool together = one.begin < other.end && other.begin < one.end;
      if (together && offsets[j] < offsets[i] + one.bytes)
        offsets[i] = std::max<int64_t>(offsets[i], llvm::alignTo(offsets[j] + other.bytes, 16));
    }
    placed.insert(llvm::upper_bound(placed, i, [&](size_t a, size_t b) { return offsets[a] < offsets[b]; }), i);
  }
  return offsets;
}

Type ThreadLowering::storage(Type element) { return element.isBF16() ? element : storageType(element); }

/// Rows of 64 bytes and more are 16 bytes apart from a multiple of 32: eight rows, and so a column of them, then lie in
/// different banks, and each begins where a vector of 16 bytes may.
int64_t ThreadLowering::rowLength(VectorType type) {
  int64_t length = type.getShape().back(), size = bytesOf(storage(type.getElementType()));
  if (type.getRank() == 1 || length * size < 64)
    return length;
  return (llvm::alignTo(length * size, 32) + 16) / size;
}

Buffer *ThreadLowering::allocate(VectorType type) {
  return allocate(storage(type.getElementType()), lengthOf(type), 16);
}

/// What lies behind the end of shared memory is scratch; a tile is in one of them.
int64_t ThreadLowering::freeOffset(int64_t bytes, int64_t alignment) const {
  auto place = [&](int64_t from) {
    from = llvm::alignTo(from, alignment);
    bool across = from < limits.sharedBytes && from + bytes > limits.sharedBytes;
    return across && scratched ? limits.sharedBytes : from;
  };
  int64_t offset = 0;
  for (const Buffer *buffer : live) {
    if (buffer->offset >= place(offset) + bytes)
      break;
    offset = buffer->offset + buffer->bytes;
  }
  return place(offset);
}

Buffer *ThreadLowering::allocate(Type stored, int64_t elements, int64_t alignment) {
  int64_t bytes = llvm::alignTo(elements * bytesOf(stored), 16), offset = freeOffset(bytes, alignment);
  // The walk is the same as when its lifetimes were packed: what it is not finds its place as it did then.
  if (int64_t wanted = lifetimes.size() < planned.size() ? planned[lifetimes.size()] : 1; wanted % alignment == 0) {
    auto overlaps = [&](const Buffer *other) {
      return other->offset < wanted + bytes && wanted < other->offset + other->bytes;
    };
    if (llvm::none_of(live, overlaps))
      offset = wanted;
  }
  auto *at = llvm::find_if(live, [&](const Buffer *buffer) { return buffer->offset > offset; });
  bool isShared = offset < limits.sharedBytes || !scratched;
  Value &view = sharedViews[{offset, elements, const_cast<void *>(stored.getAsOpaquePointer())}];
  if (!view) {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPoint(entryEnd);
    Value memory = isShared ? shared : scratchMemory();
    auto space = cast<MemRefType>(memory.getType()).getMemorySpace();
    view = memref::ViewOp::create(b, loc, MemRefType::get({elements}, stored, MemRefLayoutAttrInterface(), space),
                                  memory, constant(isShared ? offset : offset - limits.sharedBytes), ValueRange());
  }
  buffers.push_back({view, elements, 0, 0, offset, bytes});
  live.insert(at, &buffers.back());
  lifetimeOf[&buffers.back()] = lifetimes.size();
  lifetimes.push_back({bytes, events, std::numeric_limits<int64_t>::max()});
  ++events;
  if (isShared)
    sharedBytes = std::max(sharedBytes, offset + bytes);
  else
    scratchBytes = std::max(scratchBytes, offset + bytes - limits.sharedBytes);
  return &buffers.back();
}

bool ThreadLowering::isShared(const View &view) const {
  return cast<MemRefType>(view.memref.getType()).getMemorySpace() != nullptr;
}

Value ThreadLowering::scratchMemory() {
  if (scratch)
    return scratch;
  auto module = lowered->getParentOfType<ModuleOp>();
  auto callee = module.lookupSymbol<func::FuncOp>(kScratchFunction);
  if (!callee) {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToEnd(module.getBody());
    callee = func::FuncOp::create(b, loc, kScratchFunction,
                                  b.getFunctionType({}, LLVM::LLVMPointerType::get(b.getContext())));
    callee.setPrivate();
  }
  Value start = func::CallOp::create(b, loc, callee, ValueRange()).getResult(0);
  return scratch = flatMemory(b, loc, start, MemRefType::get({ShapedType::kDynamic}, b.getI8Type()));
}

void ThreadLowering::giveBack(Buffer *buffer) {
  if (buffer->owners != 0 || buffer->pins != 0)
    return;
  llvm::erase(live, buffer);
  lifetimes[lifetimeOf[buffer]].end = events++;
}

//===- Threads ----------------------------------------------------------------------------------------------------===//

void ThreadLowering::onlyIf(Value condition, function_ref<void()> body) {
  if (!condition)
    return body();
  auto branch = scf::IfOp::create(b, loc, condition, /*withElseRegion=*/false);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPoint(branch.thenBlock()->getTerminator());
  body();
}

Value ThreadLowering::less(Value x, int64_t y) {
  return arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ult, x, constant(y));
}

Value ThreadLowering::least(Value x, int64_t y) { return arith::MinUIOp::create(b, loc, x, constant(y)); }

void ThreadLowering::eachThread(int64_t count, function_ref<void(Value)> body) {
  if (count <= threads)
    return onlyIf(count < threads ? less(thread, count) : Value(), [&] { body(thread); });
  repeat(thread, constant(count), constant(threads), {}, [&](Value i, ValueRange) -> SmallVector<Value> {
    body(i);
    return {};
  });
}

void ThreadLowering::eachGroup(int64_t count, int64_t lanes, function_ref<void(Value, Value)> body) {
  int64_t groups = threads / lanes;
  Value group = divide(thread, lanes);
  repeat(0, count, groups, {}, [&](Value base, ValueRange) -> SmallVector<Value> {
    Value i = add(base, group);
    if (count % groups == 0)
      body(i, {});
    else
      body(least(i, count - 1), less(i, count));
    return {};
  });
}

SmallVector<Value> ThreadLowering::coordinates(Value linear, ArrayRef<int64_t> shape) {
  SmallVector<Value> at(shape.size());
  for (int64_t d = static_cast<int64_t>(shape.size()) - 1; d >= 0; --d) {
    at[d] = d == 0 ? linear : remainder(linear, shape[d]);
    linear = divide(linear, shape[d]);
  }
  return at;
}

void ThreadLowering::overElements(const Elements &elements, function_ref<Value(Value)> guard, Body body) {
  if (SmallVector<tile::DotOp> products = heldIn(elements.tiles); !products.empty())
    return overFragments(elements, products, guard, body);
  for (const auto &[result, sums] : loopSums)
    if (!elements.stores.empty() && ArrayRef(sums->reads.stores) == elements.stores) {
      std::shared_ptr<const LoopSums> held = sums; // numbers of rows are kept beside it
      if (!held->reads.parts.empty())
        readNumbers(held);
      return overSums(elements, *held, guard, body);
    }
  Phase phase(*this);
  SmallVector<int64_t> ends(elements.cuts), piece(elements.shape);
  ends.push_back(elements.shape.back());
  auto perRow = [&](int64_t columns) {
    piece.back() = columns;
    return ShapedType::getNumElements(piece);
  };
  int64_t lo = 0;
  for (int64_t hi : ends) {
    Vectors vectors;
    if (!elements.alone)
      vectors = vectorsOf(elements.tiles, elements.stores, [&](int64_t width) {
        return lo % width == 0 && hi % width == 0 && perRow((hi - lo) / width) >= threads;
      });
    onTrust(vectors, {}, {}, [&](bool trusted) -> SmallVector<Value> {
      int64_t width = trusted ? vectors.width : 0, each = std::max<int64_t>(width, 1);
      eachThread(perRow((hi - lo) / each), [&](Value linear) {
        SmallVector<Value> at = coordinates(linear, piece);
        Strip strip{add(mul(at.pop_back_val(), constant(each)), lo), lo, hi, width, each};
        onlyIf(guard && !at.empty() ? guard(at.front()) : Value(), [&] {
          startStrip();
          body(at, strip);
          startStrip();
        });
      });
      return {};
    });
    lo = hi;
  }
}

void ThreadLowering::copyRows(tile::LoadOp load, const Access &at, const Places &places) {
  auto type = cast<VectorType>(load.getType());
  int64_t size = bytesOf(type.getElementType()), each = 16 / size, rows = type.getDimSize(0),
          chunks = type.getDimSize(1) / each, lanes = static_cast<int64_t>(llvm::PowerOf2Ceil(chunks));
  Value from = memref::ExtractAlignedPointerAsIndexOp::create(b, loc, arguments[load.getSource()].memref);
  auto start = [&](Value row, Value chunk) {
    return add(add(from, mul(add(mul(row, at.strides.front()), mul(chunk, constant(each))), constant(size))),
               mul(at.offset, constant(size)));
  };
  auto copy = [&](Value source, Value target, Value inside) {
    Value live;
    auto bytes = [&](int64_t count) { return arith::ConstantOp::create(b, loc, b.getI32IntegerAttr(count)); };
    if (inside) // of the address of nothing nothing is asked
      live = arith::SelectOp::create(b, loc, inside, bytes(16), bytes(0));
    NVVM::CpAsyncOp::create(b, loc, pointer(target, static_cast<unsigned>(NVVM::NVVMMemorySpace::Shared)),
                            pointer(source, static_cast<unsigned>(NVVM::NVVMMemorySpace::Global)), 16,
                            NVVM::LoadCacheModifierKind::CG, live);
  };
  if (threads % lanes != 0 || rows * lanes > kMostCopies * threads)
    return eachThread(rows * chunks, [&](Value i) {
      Value row = divide(i, chunks), chunk = remainder(i, chunks);
      copy(start(row, chunk), places.at(row, chunk), at.limit ? inBounds(add(at.row, row), at.limit) : Value());
    });
  int64_t step = threads / lanes;
  Value first = divide(thread, lanes), chunk = remainder(thread, lanes);
  onlyIf(lanes > chunks ? less(chunk, chunks) : Value(), [&] {
    Value source = start(first, chunk), further = mul(at.strides.front(), constant(step * size));
    Value target = places.at(first, chunk);
    // Of the tile's rows from this thread's first on, [below, end) are there: numbers that 32 bits hold.
    Value below, span;
    if (at.limit) {
      Value row = add(at.row, first), none = constant(0), all = constant(rows);
      auto clamped = [&](Value count) -> Value {
        count = arith::MinSIOp::create(b, loc, arith::MaxSIOp::create(b, loc, count, none), all);
        return arith::IndexCastOp::create(b, loc, b.getI32Type(), count);
      };
      below = clamped(arith::SubIOp::create(b, loc, none, row));
      Value end = clamped(arith::SubIOp::create(b, loc, at.limit, row));
      span = arith::SubIOp::create(b, loc, end, below);
      span = arith::MaxSIOp::create(b, loc, span, arith::ConstantOp::create(b, loc, b.getI32IntegerAttr(0)));
    }
    for (int64_t row = 0; row < rows; row += step) {
      Value inside;
      if (at.limit) {
        Value number = arith::ConstantOp::create(b, loc, b.getI32IntegerAttr(static_cast<int32_t>(row)));
        inside = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ult, arith::SubIOp::create(b, loc, number, below),
                                       span);
      }
      onlyIf(row + step > rows ? less(add(first, row), rows) : Value(), [&] {
        copy(source, step % places.period == 0 ? add(target, row * places.rowBytes) : places.at(add(first, row), chunk),
             inside);
      });
      source = add(source, further);
    }
  });
}

Value ThreadLowering::rowsAligned(tile::LoadOp load, const Access &at) {
  int64_t size = bytesOf(tileType(load.getResult()).getElementType());
  Value base = memref::ExtractAlignedPointerAsIndexOp::create(b, loc, arguments[load.getSource()].memref);
  // What is the same for every tile first.
  Value bits = arith::OrIOp::create(b, loc, base, mul(at.strides.front(), constant(size)));
  bits = arith::OrIOp::create(b, loc, bits, mul(at.offset, constant(size)));
  return arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, remainder(bits, 16), constant(0));
}

Value ThreadLowering::pointer(Value address, unsigned space) {
  Value number = arith::IndexCastOp::create(b, loc, b.getI64Type(), address);
  return LLVM::IntToPtrOp::create(b, loc, LLVM::LLVMPointerType::get(b.getContext(), space), number);
}

/// Rows that are not there are filled with zeros by the copy itself.
void ThreadLowering::startCopy(tile::LoadOp load, const View &target) {
  auto type = cast<VectorType>(load.getType());
  const View &source = arguments[load.getSource()];
  const Access &at = accesses[load];
  touched(source, false);
  touched(target, true);
  int64_t size = bytesOf(type.getElementType());
  Value to = memref::ExtractAlignedPointerAsIndexOp::create(b, loc, target.memref);
  auto place = [&](Value row, Value chunk) {
    return add(to, mul(offsetIn(target, {row}, mul(chunk, constant(16 / size))), constant(size)));
  };
  copyRows(load, at, {place, 1, rowLength(type) * size});
  if (!grouped)
    NVVM::CpAsyncCommitGroupOp::create(b, loc);
  started = true;
}

/// A tile that is read as it lies in memory is copied without passing through registers, where its rows begin on 16
/// bytes: that is known at run time, and the same for all threads.
void ThreadLowering::fill(View target, VectorType type, Value value) {
  auto load = views.count(value) ? tile::LoadOp() : value.getDefiningOp<tile::LoadOp>();
  int64_t size = bytesOf(storage(type.getElementType()));
  if (!load || !isShared(target) || type.getRank() != 2 || load.getRows() ||
      storage(type.getElementType()) != type.getElementType() ||
      getConstantIntValue(accesses[load].strides.back()) != 1 || type.getDimSize(1) * size % 16 != 0 ||
      rowLength(type) * size % 16 != 0 || (type.getNumElements() * size < 1024 && !grouped))
    return TileLowering::fill(target, type, value);
  Phase phase(*this);
  auto branch = scf::IfOp::create(b, loc, rowsAligned(load, accesses[load]), /*withElseRegion=*/true);
  branch->setAttr(kLikelyAttr, b.getUnitAttr());
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPoint(branch.thenBlock()->getTerminator());
  startCopy(load, target);
  b.setInsertionPoint(branch.elseBlock()->getTerminator());
  llvm::SaveAndRestore alone(oneByOne, true);
  TileLowering::fill(target, type, value);
}

//===- The function -----------------------------------------------------------------------------------------------===//

LogicalResult ThreadLowering::lowerScalar(Operation *op) {
  if (isa<tile::ReduceOp>(op))
    return TileLowering::lowerScalar(op);
  Phase phase(*this);
  if (!isa<memref::StoreOp>(op))
    return TileLowering::lowerScalar(op);
  LogicalResult result = success();
  onlyIf(threads > 1 ? less(thread, 1) : Value(), [&] { result = TileLowering::lowerScalar(op); });
  return result;
}

void ThreadLowering::buildEntry() {
  MLIRContext *context = kernel.getContext();
  b.setInsertionPoint(kernel);
  lowered =
      func::FuncOp::create(b, loc, kernel.getName(), b.getFunctionType({LLVM::LLVMPointerType::get(context)}, {}));
  Block *entry = lowered.addEntryBlock();
  b.setInsertionPointToStart(entry);
  entryEnd = func::ReturnOp::create(b, loc);
  b.setInsertionPoint(entryEnd);
  Value args = entry->getArgument(0);
  bindArguments(args);
  shared = gpu::DynamicSharedMemoryOp::create(
      b, loc,
      MemRefType::get({ShapedType::kDynamic}, b.getI8Type(), MemRefLayoutAttrInterface(),
                      gpu::AddressSpaceAttr::get(context, gpu::AddressSpace::Workgroup)));
  thread = gpu::ThreadIdOp::create(b, loc, gpu::Dimension::x);
  entryEnd = thread.getDefiningOp();
  Value number = gpu::BlockIdOp::create(b, loc, gpu::Dimension::x);
  lane = remainder(thread, kWarp);
  warp = divide(thread, kWarp);
  if (scratched) {
    // Scratch is not for as many blocks as there are programs: a block goes on with further ones.
    Value total = slot(args, 0, b.getIndexType());
    for (unsigned d = 1; d < KernelSignature::kGridSlots; ++d)
      total = mul(total, slot(args, d, b.getIndexType()));
    auto loop = scf::ForOp::create(b, loc, number, total, gpu::GridDimOp::create(b, loc, gpu::Dimension::x));
    b.setInsertionPoint(loop.getBody()->getTerminator());
    number = loop.getInductionVar();
  }
  bindProgram(args, number, scalars);
}

LogicalResult ThreadLowering::run() {
  splitLoads();
  buildEntry();
  bool alone = rowWalk && kernel.getOps<scf::ForOp>().empty();
  if (alone ? !lowerRowWalk() || failedOnce : failed(lowerBlock(kernel.front())))
    return failure();
  if (doesNotFit()) {
    lowered.erase();
    for (Operation *table : tables)
      table->erase();
    joinLoads();
    return failure();
  }
  if (scratched && threads > 1) {
    finishCopies();
    gpu::BarrierOp::create(b, loc);
  }
  if (patterned)
    sharedBytes = llvm::alignTo(sharedBytes, 1024);
  if (sharedBytes == 0)
    shared.getDefiningOp()->erase();
  lowered->setAttr(kThreadsAttr, b.getI64IntegerAttr(threads + copiers));
  if (!maps.empty())
    setTensorMaps(lowered, maps, KernelSignature::of(kernel).slotsOnDevice());
  if (cluster > 1)
    lowered->setAttr(kBlockClusterAttr, b.getI64IntegerAttr(cluster));
  lowered->setAttr(kSharedBytesAttr, b.getI64IntegerAttr(sharedBytes));
  lowered->setAttr(kScratchBytesAttr, b.getI64IntegerAttr(scratchBytes));
  kernel.erase();
  return success();
}
