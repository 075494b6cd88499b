//===- EmulateThreads.cpp - the program of one thread becomes a kernel of the CPU ---------------------------------===//
#include "passes/Passes.h"
#include "passes/lower/LowerKernels.h"

#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace braid;

namespace braid {
#define GEN_PASS_DEF_EMULATETHREADSPASS
#include "passes/Passes.h.inc"
} // namespace braid

namespace {

constexpr size_t kMostDimensions = 5; // of a tensor map

/// Calls of the emulator (test/emulator/ThreadEmulator.cpp), declared on first use.
class Emulation {
public:
  explicit Emulation(ModuleOp module) : module(module), b(module.getContext()) {}

  LogicalResult run() {
    SmallVector<func::FuncOp> kernels;
    for (auto func : module.getOps<func::FuncOp>())
      if (func->hasAttr(kThreadsAttr))
        kernels.push_back(func);
    for (func::FuncOp kernel : kernels) {
      SmallVector<Operation *> ops;
      kernel.walk([&](Operation *op) {
        auto scratch = dyn_cast<func::CallOp>(op);
        if (isa_and_nonnull<gpu::GPUDialect, NVVM::NVVMDialect>(op->getDialect()) || isa<LLVM::InlineAsmOp>(op) ||
            (scratch && scratch.getCallee() == kScratchFunction))
          ops.push_back(op);
      });
      kernel.walk([&](Operation *op) { watch(op); });
      for (Operation *op : ops)
        if (failed(replace(op)))
          return failure();
      wrap(kernel);
    }
    if (auto scratch = module.lookupSymbol<func::FuncOp>(kScratchFunction))
      scratch.erase();
    dropMemorySpaces();
    return success();
  }

private:
  Value call(StringRef name, TypeRange results, ValueRange operands) {
    auto callee = module.lookupSymbol<func::FuncOp>(name);
    if (!callee) {
      OpBuilder::InsertionGuard guard(b);
      b.setInsertionPointToEnd(module.getBody());
      callee = func::FuncOp::create(b, module.getLoc(), name, b.getFunctionType(operands.getTypes(), results));
      callee.setPrivate();
    }
    auto op = func::CallOp::create(b, loc, callee, operands);
    return results.empty() ? Value() : op.getResult(0);
  }

  Value number(Type type, int64_t value) { return arith::ConstantOp::create(b, loc, b.getIntegerAttr(type, value)); }

  /// Tells the emulator what is read and written of shared memory: two threads must not meet there.
  void watch(Operation *op) {
    Value memory, index;
    Type type;
    if (auto load = dyn_cast<memref::LoadOp>(op); load && load.getIndices().size() == 1)
      std::tie(memory, index, type) = std::tuple(load.getMemref(), load.getIndices().front(), load.getType());
    else if (auto load = dyn_cast<vector::LoadOp>(op))
      std::tie(memory, index, type) = std::tuple(load.getBase(), load.getIndices().front(), load.getType());
    else if (auto store = dyn_cast<memref::StoreOp>(op); store && store.getIndices().size() == 1)
      std::tie(memory, index, type) =
          std::tuple(store.getMemref(), store.getIndices().front(), store.getValueToStore().getType());
    else if (auto store = dyn_cast<vector::StoreOp>(op))
      std::tie(memory, index, type) =
          std::tuple(store.getBase(), store.getIndices().front(), store.getValueToStore().getType());
    if (!memory || !cast<MemRefType>(memory.getType()).getMemorySpace())
      return;
    b.setInsertionPoint(op);
    loc = op->getLoc();
    Type element = getElementTypeOrSelf(type), i64 = b.getI64Type();
    int64_t size = element.isIndex() ? 8 : llvm::divideCeil(element.getIntOrFloatBitWidth(), 8);
    auto vector = dyn_cast<VectorType>(type);
    Value address = arith::AddIOp::create(
        b, loc, arith::IndexCastOp::create(b, loc, i64, memref::ExtractAlignedPointerAsIndexOp::create(b, loc, memory)),
        arith::MulIOp::create(b, loc, arith::IndexCastOp::create(b, loc, i64, index), number(i64, size)));
    call("braid_emulate_touch", {},
         {address, number(b.getI32Type(), vector ? vector.getNumElements() * size : size),
          number(b.getI32Type(), isa<memref::StoreOp, vector::StoreOp>(op))});
  }

  LogicalResult replace(Operation *op) {
    b.setInsertionPoint(op);
    loc = op->getLoc();
    Type i32 = b.getI32Type(), i64 = b.getI64Type();
    auto index = [&](StringRef name) -> Value {
      return arith::IndexCastOp::create(b, loc, b.getIndexType(), call(name, i64, {}));
    };
    if (isa<gpu::ThreadIdOp>(op)) {
      op->replaceAllUsesWith(ValueRange{index("braid_emulate_thread")});
    } else if (isa<gpu::BlockIdOp>(op)) {
      op->replaceAllUsesWith(ValueRange{index("braid_emulate_block")});
    } else if (isa<gpu::BarrierOp>(op)) {
      call("braid_emulate_barrier", {}, {});
    } else if (auto shuffle = dyn_cast<gpu::ShuffleOp>(op)) {
      Type type = shuffle.getValue().getType();
      Value value = type == i32 ? shuffle.getValue() : arith::BitcastOp::create(b, loc, i32, shuffle.getValue());
      value = call("braid_emulate_shuffle", i32,
                   {value, shuffle.getOffset(), number(i32, static_cast<int64_t>(shuffle.getMode()))});
      if (type != i32)
        value = arith::BitcastOp::create(b, loc, type, value);
      shuffle.getShuffleResult().replaceAllUsesWith(value);
    } else if (isa<gpu::DynamicSharedMemoryOp>(op)) {
      auto pointer = LLVM::LLVMPointerType::get(b.getContext());
      Value memory = call("braid_emulate_shared", pointer, {});
      op->replaceAllUsesWith(ValueRange{flatMemory(b, loc, memory, cast<MemRefType>(op->getResult(0).getType()))});
    } else if (isa<gpu::GridDimOp>(op)) {
      op->replaceAllUsesWith(ValueRange{index("braid_emulate_grid")});
    } else if (isa<func::CallOp>(op)) {
      Value bytes =
          number(i64, op->getParentOfType<func::FuncOp>()->getAttrOfType<IntegerAttr>(kScratchBytesAttr).getInt());
      op->replaceAllUsesWith(ValueRange{call("braid_emulate_scratch", op->getResult(0).getType(), bytes)});
    } else if (auto load = dyn_cast<NVVM::LdMatrixOp>(op)) {
      Value place = stack(op->getResult(0).getType());
      Value address = LLVM::PtrToIntOp::create(b, loc, i64, load.getPtr());
      call("braid_emulate_ldmatrix", {},
           {address, number(i32, load.getNum()), number(i32, load.getLayout() == NVVM::MMALayout::col), place});
      op->replaceAllUsesWith(ValueRange{LLVM::LoadOp::create(b, loc, op->getResult(0).getType(), place).getResult()});
    } else if (auto store = dyn_cast<NVVM::StMatrixOp>(op)) {
      Value all = structOf(store.getSources()), place = stack(all.getType());
      LLVM::StoreOp::create(b, loc, all, place);
      call("braid_emulate_stmatrix", {},
           {LLVM::PtrToIntOp::create(b, loc, i64, store.getPtr()),
            number(i32, static_cast<int64_t>(store.getSources().size())), place});
    } else if (auto copy = dyn_cast<NVVM::CpAsyncOp>(op)) {
      Value live = copy.getCpSize() ? copy.getCpSize() : number(i32, copy.getSize());
      call("braid_emulate_copy", {},
           {LLVM::PtrToIntOp::create(b, loc, i64, copy.getDst()), LLVM::PtrToIntOp::create(b, loc, i64, copy.getSrc()),
            number(i32, copy.getSize()), live});
    } else if (isa<NVVM::CpAsyncCommitGroupOp>(op)) {
      call("braid_emulate_copies_commit", {}, {});
    } else if (auto wait = dyn_cast<NVVM::CpAsyncWaitGroupOp>(op)) {
      call("braid_emulate_copies_wait", {}, {number(i32, wait.getN())});
    } else if (isa<NVVM::SyncWarpOp>(op)) {
      call("braid_emulate_meet", {}, {});
    } else if (auto code = dyn_cast<LLVM::InlineAsmOp>(op); code && code->hasAttr(kBulkAttr)) {
      bulk(code);
    } else if (isa<NVVM::FenceProxyOp>(op)) {
      call("braid_emulate_fence_async", {}, {});
    } else if (isa<NVVM::PrefetchOp>(op)) {
      // Nothing is read.
    } else if (isa<NVVM::WgmmaFenceAlignedOp>(op)) {
      // Of registers, which are values here.
    } else if (isa<NVVM::WgmmaGroupSyncAlignedOp>(op)) {
      call("braid_emulate_wgmma_commit", {}, {});
    } else if (auto wait = dyn_cast<NVVM::WgmmaWaitGroupSyncOp>(op)) {
      call("braid_emulate_wgmma_wait", {}, {number(i32, wait.getGroup())});
    } else if (auto wait = dyn_cast<LLVM::InlineAsmOp>(op); wait && wait.getAsmString().starts_with(kAwaitProducts)) {
      int64_t most = 0;
      StringRef text = wait.getAsmString().drop_front(kAwaitProducts.size());
      text.consumeInteger(10, most);
      call("braid_emulate_wgmma_wait", {}, {number(i32, most)});
      // What stands for sums under way becomes them.
      Value sums = structOf(wait.getOperands()), place = stack(sums.getType());
      LLVM::StoreOp::create(b, loc, sums, place);
      call("braid_emulate_wgmma_sums", {}, {number(i32, static_cast<int64_t>(wait.getOperands().size())), place});
      op->replaceAllUsesWith(ValueRange{LLVM::LoadOp::create(b, loc, sums.getType(), place).getResult()});
    } else if (auto sums = dyn_cast<LLVM::InlineAsmOp>(op); sums && sums.getAsmString().starts_with(kBeginSums)) {
      op->replaceAllUsesWith(ValueRange{LLVM::ZeroOp::create(b, loc, op->getResult(0).getType())});
    } else if (auto forget = dyn_cast<LLVM::InlineAsmOp>(op); forget && forget.getAsmString() == kForget) {
      op->replaceAllUsesWith(forget.getOperands());
    } else if (auto round = dyn_cast<LLVM::InlineAsmOp>(op); round && round.getAsmString() == kRoundPair) {
      Value pair = vector::FromElementsOp::create(b, loc, VectorType::get({2}, b.getF32Type()), round.getOperands());
      pair = arith::TruncFOp::create(b, loc, VectorType::get({2}, b.getBF16Type()), pair);
      pair = vector::BitCastOp::create(b, loc, VectorType::get({1}, i32), pair);
      op->replaceAllUsesWith(ValueRange{vector::ExtractOp::create(b, loc, pair, 0)});
    } else if (auto turn = dyn_cast<LLVM::InlineAsmOp>(op); turn && turn.getAsmString() == kTransposeBlock) {
      op->replaceAllUsesWith(ValueRange{transposeBlock(turn.getOperands().front())});
    } else if (auto product = dyn_cast<LLVM::InlineAsmOp>(op); product && product->hasAttr(kGroupProductAttr)) {
      // Sums, four registers of a, b.
      ValueRange operands = product.getOperands();
      size_t sums = operands.size() - 5;
      // ptxas (CUDA 13.0) gives registers that a loop reads so, but does not write, to other products.
      auto loop = product->getParentOfType<scf::ForOp>();
      if (loop && llvm::any_of(operands.slice(sums, 4), [&](Value v) { return loop.isDefinedOutsideOfLoop(v); }))
        return op->emitOpError("multiplies rows in registers that its loop does not write");
      SmallVector<Value> fields(operands.slice(sums, 4));
      llvm::append_range(fields, operands.take_front(sums));
      Value all = structOf(fields), place = stack(all.getType());
      LLVM::StoreOp::create(b, loc, all, place);
      call("braid_emulate_wgmma_rows", {},
           {operands.back(), number(i32, static_cast<int64_t>(sums) * 2),
            number(i32, product->getAttrOfType<IntegerAttr>(kGroupProductAttr).getInt()), place});
      Value first = LLVM::GEPOp::create(b, loc, place.getType(), i32, place, ArrayRef<LLVM::GEPArg>{4});
      op->replaceAllUsesWith(ValueRange{LLVM::LoadOp::create(b, loc, op->getResult(0).getType(), first).getResult()});
    } else if (auto product = dyn_cast<NVVM::WgmmaMmaAsyncOp>(op)) {
      Value place = stack(product.getInouts().getType());
      LLVM::StoreOp::create(b, loc, product.getInouts(), place);
      auto turned = [&](NVVM::MMALayout layout, NVVM::MMALayout kMajor) { return number(i32, layout != kMajor); };
      call("braid_emulate_wgmma", {},
           {product.getDescriptorA(), product.getDescriptorB(), number(i32, product.getShape().getN()),
            turned(product.getLayoutA(), NVVM::MMALayout::row), turned(product.getLayoutB(), NVVM::MMALayout::col),
            place});
      op->replaceAllUsesWith(ValueRange{LLVM::LoadOp::create(b, loc, op->getResult(0).getType(), place).getResult()});
    } else if (auto product = dyn_cast<NVVM::MmaOp>(op)) {
      Value fields = structOf(product.getOperands());
      Value place = stack(fields.getType());
      LLVM::StoreOp::create(b, loc, fields, place);
      call("braid_emulate_mma", {}, {place});
      Value sums = LLVM::GEPOp::create(b, loc, place.getType(), b.getI32Type(), place, ArrayRef<LLVM::GEPArg>{6});
      op->replaceAllUsesWith(ValueRange{LLVM::LoadOp::create(b, loc, op->getResult(0).getType(), sums).getResult()});
    } else {
      return op->emitOpError("has no emulation on a CPU");
    }
    op->erase();
    return success();
  }

  /// Lane 4 r + c has elements 2 c and 2 c + 1 of row r; it gets those of column r of rows 2 c and 2 c + 1.
  Value transposeBlock(Value pair) {
    Type i32 = b.getI32Type();
    Value thread = arith::TruncIOp::create(b, loc, i32, call("braid_emulate_thread", b.getI64Type(), {}));
    auto bits = [&](int64_t low, int64_t count) -> Value {
      Value shifted = arith::ShRUIOp::create(b, loc, thread, number(i32, low));
      return arith::AndIOp::create(b, loc, shifted, number(i32, (int64_t(1) << count) - 1));
    };
    Value column = bits(2, 3), first = arith::MulIOp::create(b, loc, bits(0, 2), number(i32, 8));
    first = arith::AddIOp::create(b, loc, first, arith::ShRUIOp::create(b, loc, column, number(i32, 1)));
    Value shift = arith::MulIOp::create(b, loc, arith::AndIOp::create(b, loc, column, number(i32, 1)), number(i32, 16));
    auto element = [&](int64_t row) -> Value {
      Value from = arith::AddIOp::create(b, loc, first, number(i32, 4 * row));
      Value both =
          call("braid_emulate_shuffle", i32, {pair, from, number(i32, static_cast<int64_t>(gpu::ShuffleMode::IDX))});
      return arith::AndIOp::create(b, loc, arith::ShRUIOp::create(b, loc, both, shift), number(i32, 0xffff));
    };
    Value low = element(0), high = arith::ShLIOp::create(b, loc, element(1), number(i32, 16));
    return arith::OrIOp::create(b, loc, low, high);
  }

  /// Operands are said in LowerKernels.h. Of a map that is copied by, the emulator is told what the driver makes it of.
  void bulk(LLVM::InlineAsmOp code) {
    StringRef kind = code->getAttrOfType<StringAttr>(kBulkAttr).getValue();
    SmallVector<Value> operands(code.getOperands());
    if (kind == "prefetch") // nothing is read
      return;
    if (kind == "read") {
      int64_t most = 0;
      code.getAsmString().drop_front(kAwaitRead.size()).consumeInteger(10, most);
      operands = {number(b.getI32Type(), most)};
    }
    bool multicast = kind == "multicast";
    if (multicast) // always to the whole cluster
      operands.pop_back();
    bool copies = multicast || kind == "copy", stores = kind.starts_with("store_") || kind.starts_with("add_");
    if (copies || stores) {
      auto function = code->getParentOfType<func::FuncOp>();
      Value slots = LLVM::PtrToIntOp::create(b, loc, b.getI64Type(), function.getArgument(0));
      SmallVector<Value> fields;
      auto add = [&](int64_t value) { fields.push_back(number(b.getI64Type(), value)); };
      SmallVector<TensorMap> maps = tensorMapsOf(function);
      add(static_cast<int64_t>(maps.size()));
      for (const TensorMap &map : maps) {
        add(map.param);
        add(static_cast<int64_t>(map.sizes.size()));
        for (const auto &list : {map.sizes, map.strides, map.box})
          for (size_t i = 0; i < kMostDimensions; ++i)
            add(i < list.size() ? list[i] : 0);
      }
      for (Value coordinate : ArrayRef(operands).drop_front(copies ? 3 : 2))
        fields.push_back(arith::ExtSIOp::create(b, loc, b.getI64Type(), coordinate));
      Value all = structOf(fields), place = stack(all.getType());
      LLVM::StoreOp::create(b, loc, all, place);
      // A map's address is that of the slots and its place behind them.
      Value index = arith::SubIOp::create(b, loc, operands[1], slots);
      index = arith::SubIOp::create(b, loc, index, number(b.getI64Type(), mapsOffsetOf(function)));
      index = arith::DivSIOp::create(b, loc, index, number(b.getI64Type(), kMapBytes));
      operands = copies ? SmallVector<Value>{operands[0], operands[2], index, function.getArgument(0), place}
                        : SmallVector<Value>{operands[0], index, function.getArgument(0), place};
    }
    call(("braid_emulate_bulk_" + kind).str(), {}, operands);
  }

  Value structOf(ValueRange values) {
    SmallVector<Type> parts(values.getTypes());
    Value fields = LLVM::PoisonOp::create(b, loc, LLVM::LLVMStructType::getLiteral(b.getContext(), parts));
    for (auto [i, value] : llvm::enumerate(values))
      fields = LLVM::InsertValueOp::create(b, loc, fields, value, ArrayRef<int64_t>{static_cast<int64_t>(i)});
    return fields;
  }

  /// A place on the thread's stack, allocated once.
  Value stack(Type type) {
    OpBuilder::InsertionGuard guard(b);
    Block &entry = b.getInsertionBlock()->getParent()->getParentOfType<func::FuncOp>().front();
    b.setInsertionPointToStart(&entry);
    return LLVM::AllocaOp::create(b, loc, LLVM::LLVMPointerType::get(b.getContext()), type, number(b.getI32Type(), 1));
  }

  /// @name runs @name__thread on every thread of the blocks [begin, end).
  void wrap(func::FuncOp thread) {
    loc = thread.getLoc();
    std::string name = thread.getName().str();
    thread.setName(name + "__thread");
    thread.setPrivate();
    auto pointer = LLVM::LLVMPointerType::get(b.getContext());
    Type i64 = b.getI64Type();
    b.setInsertionPoint(thread);
    auto kernel = func::FuncOp::create(b, loc, name, b.getFunctionType({pointer, i64, i64}, {}));
    Block *entry = kernel.addEntryBlock();
    b.setInsertionPointToStart(entry);
    Value body = func::ConstantOp::create(b, loc, thread.getFunctionType(), thread.getName());
    body = UnrealizedConversionCastOp::create(b, loc, pointer, body).getResult(0);
    auto attribute = [&](StringRef key) { return number(i64, thread->getAttrOfType<IntegerAttr>(key).getInt()); };
    call("braid_emulate_blocks", {},
         {body, entry->getArgument(0), entry->getArgument(1), entry->getArgument(2), attribute(kThreadsAttr),
          attribute(kSharedBytesAttr), number(i64, clusterOf(thread))});
    func::ReturnOp::create(b, loc);
    thread->removeAttr(kThreadsAttr);
    thread->removeAttr(kSharedBytesAttr);
    thread->removeAttr(kBlockClusterAttr);
    thread->removeAttr(kScratchBytesAttr);
    thread->removeAttr(kMapsAttr);
  }

  /// All memory is alike on a CPU.
  void dropMemorySpaces() {
    AttrTypeReplacer replacer;
    replacer.addReplacement(
        [](LLVM::LLVMPointerType type) -> Type { return LLVM::LLVMPointerType::get(type.getContext()); });
    replacer.addReplacement([](MemRefType type) -> std::optional<Type> {
      if (!type.getMemorySpace())
        return std::nullopt;
      return MemRefType::get(type.getShape(), type.getElementType(), type.getLayout());
    });
    replacer.recursivelyReplaceElementsIn(module, /*replaceAttrs=*/true, /*replaceLocs=*/false, /*replaceTypes=*/true);
  }

  ModuleOp module;
  OpBuilder b;
  Location loc = module.getLoc();
};

struct EmulateThreads : braid::impl::EmulateThreadsPassBase<EmulateThreads> {
  using EmulateThreadsPassBase::EmulateThreadsPassBase;
  void runOnOperation() override {
    if (failed(emulateThreads(getOperation())))
      signalPassFailure();
  }
};

} // namespace

LogicalResult braid::emulateThreads(ModuleOp module) { return Emulation(module).run(); }
