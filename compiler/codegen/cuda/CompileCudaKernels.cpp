//===- CompileCudaKernels.cpp - kernels -> NVVM -> PTX -> machine code --------------------------------------------===//
#include "compiler/codegen/cuda/CompileCudaKernels.h"
#include "compiler/codegen/cuda/Assemble.h"
#include "dialects/tile/TileDialect.h"
#include "passes/lower/KernelSignature.h"

#include "mlir/Conversion/ArithToLLVM/ArithToLLVM.h"
#include "mlir/Conversion/ControlFlowToLLVM/ControlFlowToLLVM.h"
#include "mlir/Conversion/FuncToLLVM/ConvertFuncToLLVM.h"
#include "mlir/Conversion/GPUToNVVM/GPUToNVVMPass.h"
#include "mlir/Conversion/LLVMCommon/ConversionTarget.h"
#include "mlir/Conversion/LLVMCommon/TypeConverter.h"
#include "mlir/Conversion/MathToLLVM/MathToLLVM.h"
#include "mlir/Conversion/MemRefToLLVM/MemRefToLLVM.h"
#include "mlir/Conversion/ReconcileUnrealizedCasts/ReconcileUnrealizedCasts.h"
#include "mlir/Conversion/SCFToControlFlow/SCFToControlFlow.h"
#include "mlir/Conversion/VectorToLLVM/ConvertVectorToLLVM.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlow.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/Threading.h"
#include "mlir/Target/LLVMIR/Dialect/Builtin/BuiltinToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/LLVMIR/LLVMToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/NVVM/NVVMToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Export.h"
#include "mlir/Transforms/DialectConversion.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/InlineAsm.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/IR/Module.h"
#include "llvm/IRReader/IRReader.h"
#include "llvm/Linker/Linker.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/SHA256.h"
#include "llvm/Support/SourceMgr.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Target/TargetMachine.h"
#include "llvm/Transforms/IPO/Internalize.h"

#include <array>
#include <cstring>
#include <mutex>
#include <tuple>

using namespace mlir;
using namespace braid;

void braid::registerCudaCodegen(DialectRegistry &registry) {
  registry.insert<tile::TileDialect, arith::ArithDialect, cf::ControlFlowDialect, func::FuncDialect, gpu::GPUDialect,
                  LLVM::LLVMDialect, math::MathDialect, memref::MemRefDialect, NVVM::NVVMDialect, scf::SCFDialect,
                  vector::VectorDialect>();
  registerBuiltinDialectTranslation(registry);
  registerLLVMDialectTranslation(registry);
  registerNVVMDialectTranslation(registry);
}

//===- To the NVVM dialect ----------------------------------------------------------------------------------------===//

/// exp(x) that may be approximate is 2^(x / ln 2), one instruction of the GPU: its relative error is 2^-22, and 2^-24 for
/// each unit of x / ln 2; one that is a power of two as it is written has the first of these alone. Such a quotient is off by two units in the last place; numbers below 2^-126 count as 0 in both.
static void approximate(ModuleOp module) {
  SmallVector<Operation *> ops;
  module.walk([&](Operation *op) {
    if (isApproximate(op))
      ops.push_back(op);
  });
  for (Operation *op : ops) {
    OpBuilder b(op);
    Location loc = op->getLoc();
    Type f32 = b.getF32Type();
    auto call = [&](StringRef name, ValueRange operands) -> Value {
      return LLVM::CallIntrinsicOp::create(b, loc, f32, b.getStringAttr(name), operands).getResults();
    };
    auto one = [&](ValueRange operands) {
      if (isa<arith::DivFOp>(op))
        return call("llvm.nvvm.div.approx.ftz.f", operands);
      if (isa<math::Exp2Op>(op))
        return call("llvm.nvvm.ex2.approx.ftz.f", operands);
      Value factor = arith::ConstantOp::create(b, loc, b.getF32FloatAttr(1.44269504f));
      Value x = arith::MulFOp::create(b, loc, operands.front(), factor);
      return call("llvm.nvvm.ex2.approx.ftz.f", x);
    };
    Value result;
    if (auto vector = dyn_cast<VectorType>(op->getResult(0).getType())) {
      SmallVector<Value> lanes;
      for (int64_t lane = 0; lane < vector.getNumElements(); ++lane)
        lanes.push_back(one(llvm::map_to_vector(
            op->getOperands(), [&](Value x) -> Value { return vector::ExtractOp::create(b, loc, x, lane); })));
      result = vector::FromElementsOp::create(b, loc, vector, lanes);
    } else {
      result = one(op->getOperands());
    }
    op->getResult(0).replaceAllUsesWith(result);
    op->erase();
  }
}

/// Functions that a GPU has no instructions for become calls of the toolkit's device library, by its names.
static LogicalResult callDeviceLibrary(ModuleOp module) {
  SmallVector<Operation *> ops;
  module.walk([&](Operation *op) {
    if (isOfDeviceLibrary(op))
      ops.push_back(op);
  });
  for (Operation *op : ops) {
    OpBuilder b(op);
    Location loc = op->getLoc();
    auto vector = dyn_cast<VectorType>(op->getResult(0).getType());
    Type type = getElementTypeOrSelf(op->getResult(0).getType());
    if (!type.isF32() && !type.isF64())
      return op->emitOpError("the device library has no function of ") << type << "; valid: f32, f64";
    StringRef function = isa<math::PowFOp>(op) ? "pow" : op->getName().stripDialect();
    std::string name = ("__nv_" + function + (type.isF32() ? "f" : "")).str();
    auto callee = module.lookupSymbol<func::FuncOp>(name);
    if (!callee) {
      OpBuilder::InsertionGuard guard(b);
      b.setInsertionPointToEnd(module.getBody());
      SmallVector<Type> operands(op->getNumOperands(), type);
      callee = func::FuncOp::create(b, loc, name, b.getFunctionType(operands, type));
      callee.setPrivate();
    }
    if (vector) { // lane by lane
      SmallVector<Value> lanes;
      for (int64_t lane = 0; lane < vector.getNumElements(); ++lane) {
        auto operands = llvm::map_to_vector(op->getOperands(), [&](Value operand) -> Value {
          return vector::ExtractOp::create(b, loc, operand, lane);
        });
        lanes.push_back(func::CallOp::create(b, loc, callee, operands).getResult(0));
      }
      op->replaceAllUsesWith(ValueRange{vector::FromElementsOp::create(b, loc, vector, lanes)});
    } else {
      op->replaceAllUsesWith(func::CallOp::create(b, loc, callee, op->getOperands()));
    }
    op->erase();
  }
  return success();
}

/// The block's shared memory, its size given at launch, is one array of the module.
static void declareSharedMemory(ModuleOp module) {
  SmallVector<gpu::DynamicSharedMemoryOp> ops;
  module.walk([&](gpu::DynamicSharedMemoryOp op) { ops.push_back(op); });
  if (ops.empty())
    return;
  static constexpr StringLiteral name = "shared_memory";
  static constexpr auto space = static_cast<unsigned>(NVVM::NVVMMemorySpace::Shared);
  OpBuilder b = OpBuilder::atBlockBegin(module.getBody());
  auto bytes = LLVM::LLVMArrayType::get(b.getI8Type(), 0);
  LLVM::GlobalOp::create(b, module.getLoc(), bytes, /*isConstant=*/false, LLVM::Linkage::External, name, Attribute(),
                         /*alignment=*/1024, space);
  auto pointer = LLVM::LLVMPointerType::get(b.getContext(), space);
  for (gpu::DynamicSharedMemoryOp op : ops) {
    b.setInsertionPoint(op);
    Value start = LLVM::AddressOfOp::create(b, op.getLoc(), pointer, name);
    op.replaceAllUsesWith(flatMemory(b, op.getLoc(), start, op.getType()));
    op->erase();
  }
}

/// The address of the scratch of all blocks is in the last slot.
static void addressScratch(func::FuncOp function, int64_t slots) {
  auto callee = function->getParentOfType<ModuleOp>().lookupSymbol<func::FuncOp>(kScratchFunction);
  if (!callee)
    return;
  SmallVector<func::CallOp> calls;
  function.walk([&](func::CallOp call) {
    if (call.getCallee() == kScratchFunction)
      calls.push_back(call);
  });
  int64_t bytes = function->getAttrOfType<IntegerAttr>(kScratchBytesAttr).getInt();
  for (func::CallOp call : calls) {
    OpBuilder b(call);
    Location loc = call.getLoc();
    auto pointer = LLVM::LLVMPointerType::get(b.getContext());
    Value slot = LLVM::GEPOp::create(b, loc, pointer, b.getI64Type(), function.getArgument(0),
                                     ArrayRef<LLVM::GEPArg>{static_cast<int32_t>(slots - 1)});
    Value base = LLVM::LoadOp::create(b, loc, pointer, slot);
    Value block = arith::IndexCastOp::create(b, loc, b.getI64Type(),
                                             gpu::BlockIdOp::create(b, loc, gpu::Dimension::x).getResult());
    Value offset = arith::MulIOp::create(b, loc, block, arith::ConstantOp::create(b, loc, b.getI64IntegerAttr(bytes)));
    Value own = LLVM::GEPOp::create(b, loc, pointer, b.getI8Type(), base, ArrayRef<LLVM::GEPArg>{offset});
    call.replaceAllUsesWith(ValueRange{own});
    call.erase();
  }
  callee.erase();
}

static LogicalResult convertToNVVM(ModuleOp module) {
  MLIRContext *context = module.getContext();
  LLVMTypeConverter types(context, LowerToLLVMOptions(context));
  configureGpuToNVVMTypeConverter(types);
  RewritePatternSet patterns(context);
  populateSCFToControlFlowConversionPatterns(patterns);
  cf::populateControlFlowToLLVMConversionPatterns(types, patterns);
  arith::populateArithToLLVMConversionPatterns(types, patterns);
  populateMathToLLVMConversionPatterns(types, patterns, /*approximateLog1p=*/false);
  populateVectorToLLVMConversionPatterns(types, patterns);
  populateFinalizeMemRefToLLVMConversionPatterns(types, patterns);
  populateFuncToLLVMConversionPatterns(types, patterns);
  populateGpuToNVVMConversionPatterns(types, patterns);
  LLVMConversionTarget target(*context);
  configureGpuToNVVMConversionLegality(target);
  target.addLegalOp<ModuleOp, UnrealizedConversionCastOp>();
  // Upstream leaves these to libraries; what is left of them here has instructions.
  target.addIllegalDialect<gpu::GPUDialect, math::MathDialect>();
  target.addLegalOp<LLVM::SqrtOp, LLVM::FFloorOp, LLVM::FCeilOp, LLVM::FAbsOp>();
  if (failed(applyPartialConversion(module, target, std::move(patterns))))
    return failure();
  SmallVector<UnrealizedConversionCastOp> casts;
  module.walk([&](UnrealizedConversionCastOp op) { casts.push_back(op); });
  reconcileUnrealizedCasts(casts);
  return success();
}

/// Products of warpgroups become inline assembly: each register of the sum is read and written in its place.
static void expandGroupProducts(ModuleOp module) {
  SmallVector<NVVM::WgmmaMmaAsyncOp> products;
  module.walk([&](NVVM::WgmmaMmaAsyncOp op) { products.push_back(op); });
  for (NVVM::WgmmaMmaAsyncOp op : products) {
    OpBuilder b(op);
    Location loc = op.getLoc();
    auto type = cast<LLVM::LLVMStructType>(op.getInouts().getType());
    size_t count = type.getBody().size();
    std::string registers, outputs, inputs;
    SmallVector<Value> operands = {op.getDescriptorA(), op.getDescriptorB()};
    for (size_t i = 0; i < count; ++i) {
      registers += (i ? ", $" : "$") + std::to_string(i);
      outputs += "=f,";
      inputs += "," + std::to_string(i);
      operands.push_back(
          LLVM::ExtractValueOp::create(b, loc, op.getInouts(), ArrayRef<int64_t>{static_cast<int64_t>(i)}));
    }
    // sum + a b; an operand that is turned has its rows along k.
    std::string text =
        llvm::formatv("wgmma.mma_async.sync.aligned.m64n{0}k16.f32.bf16.bf16 {{{1}}, ${2}, ${3}, 1, 1, 1, {4}, {5};",
                      op.getShape().getN(), registers, count, count + 1,
                      op.getLayoutA() == NVVM::MMALayout::col ? 1 : 0, op.getLayoutB() == NVVM::MMALayout::row ? 1 : 0);
    auto code = LLVM::InlineAsmOp::create(b, loc, TypeRange{type}, operands, text, outputs + "l,l" + inputs,
                                          /*has_side_effects=*/true, /*is_align_stack=*/false,
                                          LLVM::tailcallkind::TailCallKind::None, LLVM::AsmDialectAttr(), ArrayAttr());
    op.replaceAllUsesWith(code.getResult(0));
    op.erase();
  }
}

/// Every GPU brings lines to its second-level cache by this instruction, but LLVM selects it for Hopper alone.
static void expandPrefetches(ModuleOp module) {
  SmallVector<NVVM::PrefetchOp> ops;
  module.walk([&](NVVM::PrefetchOp op) { ops.push_back(op); });
  for (NVVM::PrefetchOp op : ops) {
    OpBuilder b(op);
    LLVM::InlineAsmOp::create(b, op.getLoc(), TypeRange{}, ValueRange{op.getAddr()}, "prefetch.global.L2 [$0];", "l",
                              /*has_side_effects=*/true, /*is_align_stack=*/false,
                              LLVM::tailcallkind::TailCallKind::None, LLVM::AsmDialectAttr(), ArrayAttr());
    op.erase();
  }
}

/// The slots of a kernel arrive in its parameter memory, by value, and tensor maps behind them.
static void declareKernel(func::FuncOp function, int64_t slots, size_t maps) {
  OpBuilder b(function);
  int64_t bytes = maps ? mapsOffset(slots) + static_cast<int64_t>(maps) * kMapBytes : slots * 8;
  auto list = LLVM::LLVMArrayType::get(b.getI64Type(), bytes / 8);
  function.setArgAttr(0, LLVM::LLVMDialect::getByValAttrName(), TypeAttr::get(list));
  function.setArgAttr(0, LLVM::LLVMDialect::getAlignAttrName(), b.getI64IntegerAttr(maps ? kMapBytes : 8));
  function->removeAttr(kMapsAttr);
  function.setArgAttr(0, NVVM::NVVMDialect::getGridConstantAttrName(), b.getUnitAttr());
  auto threads = static_cast<int32_t>(function->getAttrOfType<IntegerAttr>(kThreadsAttr).getInt());
  function->setAttr(NVVM::NVVMDialect::getKernelFuncAttrName(), b.getUnitAttr());
  function->setAttr(NVVM::NVVMDialect::getReqntidAttrName(), b.getDenseI32ArrayAttr({threads, 1, 1}));
  if (auto cluster = static_cast<int32_t>(clusterOf(function)); cluster > 1)
    function->setAttr(NVVM::NVVMDialect::getClusterDimAttrName(), b.getDenseI32ArrayAttr({cluster, 1, 1}));
  if (auto together = function->getAttrOfType<IntegerAttr>(kTogetherAttr))
    function->setAttr(NVVM::NVVMDialect::getMinctasmAttrName(), b.getI32IntegerAttr(together.getInt()));
}

//===- To PTX -----------------------------------------------------------------------------------------------------===//

static std::unique_ptr<llvm::TargetMachine> makeMachine(const CudaTarget &target, bool roundsEach, std::string &error) {
  static std::once_flag once;
  std::call_once(once, [] {
    LLVMInitializeNVPTXTarget();
    LLVMInitializeNVPTXTargetInfo();
    LLVMInitializeNVPTXTargetMC();
    LLVMInitializeNVPTXAsmPrinter();
  });
  llvm::Triple triple("nvptx64-nvidia-cuda");
  const llvm::Target *found = llvm::TargetRegistry::lookupTarget(triple, error);
  if (!found)
    return nullptr;
  llvm::TargetOptions options;
  // As on the CPU: a*b+c may become one fma where the kernel allows it.
  options.AllowFPOpFusion = roundsEach ? llvm::FPOpFusion::Strict : llvm::FPOpFusion::Fast;
  return std::unique_ptr<llvm::TargetMachine>(found->createTargetMachine(
      triple, target.arch, "+ptx80", options, std::nullopt, std::nullopt, llvm::CodeGenOptLevel::Aggressive));
}

/// Links what the code calls of the device library.
static llvm::Error linkDeviceLibrary(llvm::Module &module) {
  bool needed = llvm::any_of(module, [](llvm::Function &function) {
    return function.isDeclaration() && function.getName().starts_with("__nv_");
  });
  if (!needed)
    return llvm::Error::success();
#if BRAID_HAVE_CUDA
  std::string path = BRAID_CUDA_DEVICE_LIBRARY;
  llvm::SMDiagnostic diagnostic;
  std::unique_ptr<llvm::Module> library = llvm::parseIRFile(path, diagnostic, module.getContext());
  if (!library)
    return llvm::createStringError("cannot read " + path + ": " + diagnostic.getMessage());
  library->setTargetTriple(module.getTargetTriple());
  library->setDataLayout(module.getDataLayout());
  if (llvm::Linker::linkModules(module, std::move(library), llvm::Linker::LinkOnlyNeeded,
                                [](llvm::Module &linked, const llvm::StringSet<> &names) {
                                  llvm::internalizeModule(linked, [&](const llvm::GlobalValue &value) {
                                    return !value.hasName() || !names.count(value.getName());
                                  });
                                }))
    return llvm::createStringError("cannot link " + path);
#endif
  return llvm::Error::success();
}

static void optimize(llvm::Module &module, llvm::TargetMachine &machine) {
  llvm::PassBuilder builder(&machine);
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager callGraph;
  llvm::ModuleAnalysisManager modules;
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(callGraph);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, callGraph, modules);
  builder.buildPerModuleDefaultPipeline(llvm::OptimizationLevel::O2).run(module, modules);
}

namespace {
struct Job {
  OwningOpRef<ModuleOp> module; // one kernel
  KernelTime time;
  CudaKernel kernel;
  SmallVector<char, 0> ptx;
};
} // namespace

/// The first thing that every thread does; no memory is read before, which the intrinsic does not say. Who waits for this kernel has waited for
/// all before it. It does not ask for the next launch itself (launch_dependents): blocks that come while others run gather where
/// there is room first, and not one on each multiprocessor.
static void waitForLaunchBefore(llvm::Function &kernel) {
  llvm::IRBuilder<> b(&*kernel.getEntryBlock().getFirstInsertionPt());
  auto *type = llvm::FunctionType::get(b.getVoidTy(), false);
  b.CreateCall(type, llvm::InlineAsm::get(type, "griddepcontrol.wait;", "~{memory}", /*hasSideEffects=*/true));
}

/// What the library makes spills where it saves registers around a shuffle; the toolkit's program, where there is one, does not.
static llvm::Expected<Assembled> assembleKernel(StringRef ptx, const CudaTarget &target) {
  if (target.assembledWhole)
    return assembleWhole(ptx, target.arch);
  llvm::Expected<Assembled> linked = assemble(ptx, target.arch);
  if (!linked || !linked->spillBytes || wholeAssembler().empty())
    return linked;
  llvm::Expected<Assembled> whole = assembleWhole(ptx, target.arch);
  return !whole || whole->spillBytes < linked->spillBytes ? std::move(whole) : std::move(linked);
}

static LogicalResult compileOne(Job &job, const CudaTarget &target) {
  ThreadClock clock;
  ModuleOp module = *job.module;
  func::FuncOp kernel = *module.getOps<func::FuncOp>().begin();
  int64_t slots = KernelSignature::of(kernel).slotsOnDevice();
  bool roundsEach = kernel->hasAttr(tile::kRoundsEachAttr);
  if (failed(lowerTilesToThreads(module, target.limits)))
    return failure();
  auto function = module.lookupSymbol<func::FuncOp>(job.kernel.name);
  job.kernel.threads = function->getAttrOfType<IntegerAttr>(kThreadsAttr).getInt();
  job.kernel.sharedBytes = function->getAttrOfType<IntegerAttr>(kSharedBytesAttr).getInt();
  job.kernel.scratchBytes = function->getAttrOfType<IntegerAttr>(kScratchBytesAttr).getInt();
  job.kernel.maps = tensorMapsOf(function);
  job.kernel.cluster = clusterOf(function);
  approximate(module);
  if (failed(expandMath(module, /*hasScale=*/false, /*hasBf16=*/true)))
    return failure();
  if (failed(callDeviceLibrary(module)))
    return failure();
  declareSharedMemory(module);
  addressScratch(function, slots);
  declareKernel(function, slots, job.kernel.maps.size());
  if (failed(convertToNVVM(module)))
    return failure();
  expandGroupProducts(module);
  if (!target.limits.wgmma)
    expandPrefetches(module);
  llvm::LLVMContext context;
  std::unique_ptr<llvm::Module> code = translateModuleToLLVMIR(module, context, job.kernel.name);
  if (!code)
    return failure();
  if (target.launchesEarly)
    waitForLaunchBefore(*code->getFunction(job.kernel.name));
  job.time.lowering = clock.lap();
  std::string error;
  std::unique_ptr<llvm::TargetMachine> machine = makeMachine(target, roundsEach, error);
  if (!machine)
    return module.emitError("no code generator for NVIDIA GPUs: ") << error;
  code->setDataLayout(machine->createDataLayout());
  code->setTargetTriple(machine->getTargetTriple());
  if (llvm::Error linked = linkDeviceLibrary(*code))
    return module.emitError(llvm::toString(std::move(linked)));
  optimize(*code, *machine);
  job.time.optimizing = clock.lap();
  {
    llvm::raw_svector_ostream stream(job.ptx);
    llvm::legacy::PassManager passes;
    if (machine->addPassesToEmitFile(passes, stream, nullptr, llvm::CodeGenFileType::AssemblyFile))
      return module.emitError("no PTX for @") << job.kernel.name;
    passes.run(*code);
  }
  job.ptx.push_back('\0');
  llvm::Expected<Assembled> assembled = assembleKernel(StringRef(job.ptx.data(), job.ptx.size()), target);
  if (!assembled)
    return module.emitError("@") << job.kernel.name << ": " << llvm::toString(assembled.takeError());
  if (!assembled->loss.empty())
    module.emitWarning("@") << job.kernel.name << ": " << assembled->loss;
  job.kernel.cubin = std::move(assembled->cubin);
  job.kernel.registers = assembled->registers;
  job.kernel.stackBytes = assembled->stackBytes;
  job.kernel.spillBytes = assembled->spillBytes;
  job.time.emitting = clock.lap();
  return success();
}

//===- Kept from one compilation to the next ----------------------------------------------------------------------===//

/// What a kernel's code depends on besides its text and the libraries that are loaded.
static std::string describe(const CudaTarget &target) {
  std::string text = target.arch + ";" + std::to_string(target.limits.sharedBytes) + ";";
  if (target.assembledWhole)
    text += "whole;";
#if BRAID_HAVE_CUDA
  if (auto assembler = llvm::MemoryBuffer::getFile(BRAID_CUDA_ASSEMBLER))
    text += llvm::toHex(llvm::SHA256::hash(llvm::arrayRefFromStringRef((*assembler)->getBuffer()))) + ";";
  // Where it cannot be read linkDeviceLibrary says so.
  if (auto library = llvm::MemoryBuffer::getFile(BRAID_CUDA_DEVICE_LIBRARY))
    text += llvm::toHex(llvm::SHA256::hash(llvm::arrayRefFromStringRef((*library)->getBuffer())));
#endif
  return text;
}

using KernelNumbers = std::array<int64_t, 7>;

/// The numbers of a kernel's maps, each list behind its length.
static std::vector<int64_t> flatten(ArrayRef<TensorMap> maps) {
  std::vector<int64_t> flat = {static_cast<int64_t>(maps.size())};
  for (const TensorMap &map : maps) {
    flat.push_back(map.param);
    for (const auto *list : {&map.sizes, &map.strides, &map.box}) {
      flat.push_back(static_cast<int64_t>(list->size()));
      flat.insert(flat.end(), list->begin(), list->end());
    }
  }
  return flat;
}

static std::vector<char> pack(const CudaKernel &kernel) {
  const KernelNumbers numbers = {kernel.threads,    kernel.sharedBytes, kernel.scratchBytes, kernel.registers,
                                 kernel.stackBytes, kernel.spillBytes,  kernel.cluster};
  std::vector<char> packed(sizeof numbers);
  std::memcpy(packed.data(), &numbers, sizeof numbers);
  std::vector<int64_t> maps = flatten(kernel.maps);
  const auto *bytes = reinterpret_cast<const char *>(maps.data());
  packed.insert(packed.end(), bytes, bytes + maps.size() * sizeof(int64_t));
  llvm::append_range(packed, kernel.cubin);
  return packed;
}

static void unpack(ArrayRef<char> packed, CudaKernel &kernel) {
  KernelNumbers numbers;
  std::memcpy(&numbers, packed.data(), sizeof numbers);
  std::tie(kernel.threads, kernel.sharedBytes, kernel.scratchBytes, kernel.registers, kernel.stackBytes,
           kernel.spillBytes, kernel.cluster) = std::tuple_cat(numbers);
  packed = packed.drop_front(sizeof numbers);
  auto next = [&] {
    int64_t number;
    std::memcpy(&number, packed.data(), sizeof number);
    packed = packed.drop_front(sizeof number);
    return number;
  };
  kernel.maps.resize(next());
  for (TensorMap &map : kernel.maps) {
    map.param = next();
    for (auto *list : {&map.sizes, &map.strides, &map.box}) {
      list->resize(next());
      std::generate(list->begin(), list->end(), next);
    }
  }
  llvm::append_range(kernel.cubin, packed);
}

FailureOr<std::vector<CudaKernel>> braid::compileCudaKernels(ModuleOp kernels, const CudaTarget &target,
                                                             llvm::raw_ostream *ptx, std::vector<KernelTime> *times,
                                                             KernelCache *cache) {
  MLIRContext *context = kernels.getContext();
  context->loadDialect<tile::TileDialect, arith::ArithDialect, cf::ControlFlowDialect, func::FuncDialect,
                       gpu::GPUDialect, LLVM::LLVMDialect, math::MathDialect, memref::MemRefDialect, NVVM::NVVMDialect,
                       scf::SCFDialect, vector::VectorDialect>();
  std::vector<Job> jobs;
  for (auto kernel : kernels.getOps<func::FuncOp>()) {
    if (!kernel->hasAttr(tile::kKernelAttr) || kernel.isExternal())
      continue;
    Job job{ModuleOp::create(kernel.getLoc()), {kernel.getName().str()}, {}, {}};
    job.kernel.name = job.time.name;
    job.module->push_back(kernel.clone());
    jobs.push_back(std::move(job));
  }
  std::string depends;
  if (cache && !ptx) {
    depends = describe(target);
    if (llvm::Error error = openAssembler()) // whose build is in the keys
      return kernels.emitError(llvm::toString(std::move(error))), failure();
  }
  auto compile = [&](Job &job) -> FailureOr<std::vector<char>> {
    if (failed(compileOne(job, target)))
      return failure();
    return pack(std::exchange(job.kernel, CudaKernel{job.kernel.name}));
  };
  auto compileOrFind = [&](Job &job) -> LogicalResult {
    FailureOr<std::vector<char>> packed = KernelCache::getOrCompile(ptx ? nullptr : cache, *job.module, depends,
                                                                    job.time.kept, [&] { return compile(job); });
    if (succeeded(packed))
      unpack(*packed, job.kernel);
    return packed;
  };
  if (failed(failableParallelForEach(context, jobs, compileOrFind)))
    return failure();
  std::vector<CudaKernel> result;
  for (Job &job : jobs) {
    if (ptx)
      *ptx << StringRef(job.ptx.data(), job.ptx.size() - 1);
    if (times)
      times->push_back(job.time);
    job.kernel.waits = target.launchesEarly;
    result.push_back(std::move(job.kernel));
  }
  return result;
}
