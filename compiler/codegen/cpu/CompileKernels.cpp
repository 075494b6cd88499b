//===- CompileKernels.cpp - kernels -> LLVM -> objects -> a shared object -----------------------------------------===//
#include "compiler/codegen/cpu/CompileKernels.h"
#include "compiler/codegen/cpu/LinkShared.h"
#include "dialects/tile/TileDialect.h"
#include "passes/lower/LowerKernels.h"

#include "mlir/Conversion/ArithToLLVM/ArithToLLVM.h"
#include "mlir/Conversion/ControlFlowToLLVM/ControlFlowToLLVM.h"
#include "mlir/Conversion/FuncToLLVM/ConvertFuncToLLVM.h"
#include "mlir/Conversion/LLVMCommon/ConversionTarget.h"
#include "mlir/Conversion/LLVMCommon/TypeConverter.h"
#include "mlir/Conversion/MathToLLVM/MathToLLVM.h"
#include "mlir/Conversion/MathToLibm/MathToLibm.h"
#include "mlir/Conversion/MemRefToLLVM/MemRefToLLVM.h"
#include "mlir/Conversion/ReconcileUnrealizedCasts/ReconcileUnrealizedCasts.h"
#include "mlir/Conversion/SCFToControlFlow/SCFToControlFlow.h"
#include "mlir/Conversion/VectorToLLVM/ConvertVectorToLLVM.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlow.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/Threading.h"
#include "mlir/Target/LLVMIR/Dialect/Builtin/BuiltinToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/LLVMIR/LLVMToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Export.h"
#include "mlir/Transforms/DialectConversion.h"

#include "llvm/Analysis/InstructionSimplify.h"
#include "llvm/Analysis/MemorySSAUpdater.h"
#include "llvm/Analysis/ScalarEvolution.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/IntrinsicsX86.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/IR/Module.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Target/TargetMachine.h"
#include "llvm/TargetParser/Host.h"
#include "llvm/Transforms/Scalar/LoopPassManager.h"
#include "llvm/Transforms/Scalar/LoopUnrollPass.h"
#include "llvm/Transforms/Utils/Cloning.h"
#include "llvm/Transforms/Utils/LoopRotationUtils.h"

#include <mutex>

using namespace mlir;
using namespace braid;

void braid::registerCpuCodegen(DialectRegistry &registry) {
  registry
      .insert<tile::TileDialect, arith::ArithDialect, cf::ControlFlowDialect, func::FuncDialect, gpu::GPUDialect,
              LLVM::LLVMDialect, math::MathDialect, memref::MemRefDialect, scf::SCFDialect, vector::VectorDialect>();
  registerBuiltinDialectTranslation(registry);
  registerLLVMDialectTranslation(registry);
}

//===- To the LLVM dialect ----------------------------------------------------------------------------------------===//

static LogicalResult convertToLLVM(ModuleOp module) {
  MLIRContext *context = module.getContext();
  LowerToLLVMOptions options(context);
  LLVMTypeConverter types(context, options);
  // Functions without a faithful LLVM intrinsic become calls of libm, lane by lane (f64, and rare ones in f32).
  auto needsLibm = [](Operation *op) {
    return isa<math::ExpM1Op, math::Log1pOp, math::ErfOp, math::ErfcOp, math::TanhOp, math::TanOp, math::SinhOp,
               math::CoshOp, math::AsinOp, math::AcosOp, math::AtanOp, math::Atan2Op, math::AsinhOp, math::AcoshOp,
               math::AtanhOp, math::CbrtOp>(op);
  };
  if (module.walk([&](Operation *op) { return needsLibm(op) ? WalkResult::interrupt() : WalkResult::advance(); })
          .wasInterrupted()) {
    RewritePatternSet calls(context);
    populateMathToLibmConversionPatterns(calls);
    ConversionTarget scalar(*context);
    scalar.markUnknownOpDynamicallyLegal([&](Operation *op) { return !needsLibm(op); });
    if (failed(applyPartialConversion(module, scalar, std::move(calls))))
      return failure();
  }
  RewritePatternSet patterns(context);
  populateSCFToControlFlowConversionPatterns(patterns);
  cf::populateControlFlowToLLVMConversionPatterns(types, patterns);
  arith::populateArithToLLVMConversionPatterns(types, patterns);
  populateMathToLLVMConversionPatterns(types, patterns, /*approximateLog1p=*/false);
  populateVectorToLLVMConversionPatterns(types, patterns);
  populateFinalizeMemRefToLLVMConversionPatterns(types, patterns);
  populateFuncToLLVMConversionPatterns(types, patterns);
  LLVMConversionTarget target(*context);
  target.addLegalOp<ModuleOp, UnrealizedConversionCastOp>();
  if (failed(applyFullConversion(module, target, std::move(patterns))))
    return failure();
  SmallVector<UnrealizedConversionCastOp> casts;
  module.walk([&](UnrealizedConversionCastOp op) { casts.push_back(op); });
  reconcileUnrealizedCasts(casts);
  return success();
}

//===- To an object -----------------------------------------------------------------------------------------------===//

/// Of an emulated kernel the emulator takes the time, and compiling it.
static bool isOptimized(const CpuTarget &target) { return target.optimized && !target.emulated; }

static std::unique_ptr<llvm::TargetMachine> makeMachine(const CpuTarget &target, bool roundsEach, std::string &error) {
  static std::once_flag once;
  std::call_once(once, [] {
    llvm::InitializeNativeTarget();
    llvm::InitializeNativeTargetAsmPrinter();
  });
  llvm::Triple triple(llvm::sys::getDefaultTargetTriple());
  const llvm::Target *found = llvm::TargetRegistry::lookupTarget(triple, error);
  if (!found)
    return nullptr;
  std::string features;
  for (const std::string &feature : target.features)
    features += (features.empty() ? "+" : ",+") + feature;
  llvm::TargetOptions options;
  // a*b+c may become one fma, where nobody decides by other things than the equation what stands together; nothing is
  // reassociated. Without the optimizer it would depend on what stands around it, in two kernels differently.
  options.AllowFPOpFusion = roundsEach || !isOptimized(target) ? llvm::FPOpFusion::Strict : llvm::FPOpFusion::Fast;
  const char *cpu = target.has("avx512f") ? "x86-64-v4" : target.has("avx2") ? "x86-64-v3" : "x86-64";
  auto level = isOptimized(target) ? llvm::CodeGenOptLevel::Default : llvm::CodeGenOptLevel::None;
  std::unique_ptr<llvm::TargetMachine> machine(
      found->createTargetMachine(triple, cpu, features, options, llvm::Reloc::PIC_, std::nullopt, level));
  // The fast instruction selector, which level None would take, gives up in most blocks of vectors and is slower then.
  machine->setFastISel(false);
  machine->setO0WantsFastISel(false);
  return machine;
}

/// What a kernel gains from O2, without the rest: loops are vectors already, there is one function and nothing to
/// inline. Loops of few iterations unroll whole, so that the tiles they index become registers; after that nothing is
/// worth its time (test/benchmark/results/README.md).
static constexpr llvm::StringLiteral kOptimizer =
    "function(sroa,early-cse<memssa>,simplifycfg,instcombine<no-verify-fixpoint>,loop-mssa(rotate-in-large,licm),"
    "early-cse<memssa>,instcombine<no-verify-fixpoint>,loop(unroll-full-in-large),sroa,early-cse<memssa>,adce,"
    "simplifycfg)";
/// Of one that is not optimized: half of its instructions go, for next to no time.
static constexpr llvm::StringLiteral kQuickOptimizer = "function(sroa,early-cse)";

namespace {
/// loop-rotate, and unroll-full-in-large is loop-unroll-full: the same code, but for each loop they change they forget all
/// that is known of scalars. To forget only what the loop may have changed, LLVM's own walk through all users of the outermost
/// loop's numbers, which is the whole kernel: quadratic, and most of the time for kernels of thousands of loops.
struct RotateInLarge : llvm::PassInfoMixin<RotateInLarge> {
  llvm::PreservedAnalyses run(llvm::Loop &loop, llvm::LoopAnalysisManager &, llvm::LoopStandardAnalysisResults &known,
                              llvm::LPMUpdater &) {
    constexpr unsigned kLargestHeader = 16; // LLVM's, in instructions
    const llvm::SimplifyQuery query = llvm::getBestSimplifyQuery(known, loop.getHeader()->getDataLayout());
    llvm::MemorySSAUpdater memory(known.MSSA);
    if (!llvm::LoopRotation(&loop, &known.LI, &known.TTI, &known.AC, &known.DT, /*SE=*/nullptr, &memory, query,
                            /*RotationOnly=*/false, kLargestHeader, /*IsUtilMode=*/false))
      return llvm::PreservedAnalyses::all();
    known.SE.forgetAllLoops();
    llvm::PreservedAnalyses preserved = llvm::getLoopPassPreservedAnalyses();
    preserved.preserve<llvm::MemorySSAAnalysis>();
    return preserved;
  }
};
} // namespace

static void optimize(llvm::Module &module, llvm::TargetMachine &machine, StringRef pipeline) {
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
  builder.registerPipelineParsingCallback(
      [](StringRef name, llvm::LoopPassManager &passes, ArrayRef<llvm::PassBuilder::PipelineElement>) {
        if (name == "rotate-in-large")
          passes.addPass(RotateInLarge());
        else if (name == "unroll-full-in-large")
          passes.addPass(llvm::LoopFullUnrollPass(/*OptLevel=*/2, /*OnlyWhenForced=*/false, /*ForgetSCEV=*/true));
        else
          return false;
        return true;
      });
  llvm::ModulePassManager passes;
  llvm::cantFail(builder.parsePassPipeline(passes, pipeline));
  passes.run(module, modules);
}

/// A result below the smallest normal number is zero inside a kernel (the FTZ bit of MXCSR, put back before it returns;
/// operands are read as they are). Products of decays come there, and each instruction that meets such a number traps
/// into microcode: a chunk of strong decays took twenty times as long.
static void flushDenormals(llvm::Module &module) {
  if (!module.getTargetTriple().isX86())
    return;
  for (llvm::Function &function : module) {
    if (function.isDeclaration() || function.hasLocalLinkage())
      continue;
    llvm::IRBuilder<> builder(&function.getEntryBlock(), function.getEntryBlock().getFirstInsertionPt());
    llvm::Type *i32 = builder.getInt32Ty();
    llvm::Value *callers = builder.CreateAlloca(i32), *ours = builder.CreateAlloca(i32);
    auto call = [&](llvm::Intrinsic::ID id, llvm::Value *place) {
      builder.CreateIntrinsic(builder.getVoidTy(), id, {place});
    };
    call(llvm::Intrinsic::x86_sse_stmxcsr, callers);
    builder.CreateStore(builder.CreateOr(builder.CreateLoad(i32, callers), 0x8000), ours);
    call(llvm::Intrinsic::x86_sse_ldmxcsr, ours);
    for (llvm::BasicBlock &block : function)
      if (auto *exit = llvm::dyn_cast<llvm::ReturnInst>(block.getTerminator())) {
        builder.SetInsertPoint(exit);
        call(llvm::Intrinsic::x86_sse_ldmxcsr, callers);
      }
  }
}

static LogicalResult emit(llvm::Module &module, llvm::TargetMachine &machine, llvm::CodeGenFileType kind,
                          SmallVectorImpl<char> &out) {
  llvm::raw_svector_ostream stream(out);
  llvm::legacy::PassManager passes;
  if (machine.addPassesToEmitFile(passes, stream, nullptr, kind))
    return failure();
  passes.run(module);
  return success();
}

namespace {
struct Job {
  OwningOpRef<ModuleOp> module; // one kernel
  KernelTime time;
  std::vector<char> object;
  SmallVector<char, 0> assembly;
};
} // namespace

static FailureOr<std::vector<char>> compileOne(Job &job, const CpuTarget &target, bool wantAssembly) {
  ThreadClock clock;
  ModuleOp module = *job.module;
  bool roundsEach = llvm::any_of(module.getOps<func::FuncOp>(),
                                 [](func::FuncOp kernel) { return kernel->hasAttr(tile::kRoundsEachAttr); });
  LogicalResult lowered = target.emulated ? lowerTilesToThreads(module, *target.emulated)
                                          : lowerTilesToLoops(module, target.vectorBytes(), target.has("avx512bf16"));
  if (failed(lowered) || (target.emulated && failed(emulateThreads(module))) ||
      failed(expandMath(module, target.has("avx512vl"), target.has("avx512bf16"))) || failed(convertToLLVM(module)))
    return failure();
  llvm::LLVMContext context;
  std::unique_ptr<llvm::Module> code = translateModuleToLLVMIR(module, context, job.time.name);
  if (!code)
    return failure();
  job.time.lowering = clock.lap();
  std::string error;
  std::unique_ptr<llvm::TargetMachine> machine = makeMachine(target, roundsEach, error);
  if (!machine)
    return module.emitError("no code generator for this machine: ") << error;
  code->setDataLayout(machine->createDataLayout());
  code->setTargetTriple(machine->getTargetTriple());
  for (llvm::Function &function : *code) {
    if (function.isDeclaration())
      continue;
    function.addFnAttr("prefer-vector-width", std::to_string(target.vectorBytes() * 8));
    function.addFnAttr("target-cpu", machine->getTargetCPU());
    function.addFnAttr("target-features", machine->getTargetFeatureString());
    function.addFnAttr(llvm::Attribute::NoUnwind);
  }
  optimize(*code, *machine, isOptimized(target) ? kOptimizer : kQuickOptimizer);
  flushDenormals(*code); // after the optimizer, which moves floating-point operations freely
  job.time.optimizing = clock.lap();
  if (wantAssembly) {
    std::unique_ptr<llvm::Module> copy = llvm::CloneModule(*code);
    if (failed(emit(*copy, *machine, llvm::CodeGenFileType::AssemblyFile, job.assembly)))
      return failure();
    clock.lap();
  }
  SmallVector<char, 0> object;
  if (failed(emit(*code, *machine, llvm::CodeGenFileType::ObjectFile, object)))
    return failure();
  job.time.emitting = clock.lap();
  return std::vector<char>(object.begin(), object.end());
}

/// What the code of a kernel depends on besides its text.
static std::string describe(const CpuTarget &target) {
  return llvm::join(target.features, ",") + (target.optimized ? "" : ";quick") +
         (target.emulated
              ? ";threads=" + std::to_string(target.emulated->sharedBytes) + (target.emulated->wgmma ? ",wgmma" : "")
              : "");
}

FailureOr<std::vector<char>> braid::compileKernels(ModuleOp kernels, const CpuTarget &target,
                                                   llvm::raw_ostream *dumpAsm, std::vector<KernelTime> *times,
                                                   KernelCache *cache) {
  MLIRContext *context = kernels.getContext();
  context->loadDialect<tile::TileDialect, arith::ArithDialect, cf::ControlFlowDialect, func::FuncDialect,
                       gpu::GPUDialect, LLVM::LLVMDialect, math::MathDialect, memref::MemRefDialect, scf::SCFDialect,
                       vector::VectorDialect>();
  std::vector<Job> jobs;
  std::vector<std::string> names;
  for (auto kernel : kernels.getOps<func::FuncOp>()) {
    if (!kernel->hasAttr(tile::kKernelAttr) || kernel.isExternal())
      continue;
    Job job{ModuleOp::create(kernel.getLoc()), {kernel.getName().str()}, {}, {}};
    job.module->push_back(kernel.clone());
    names.push_back(job.time.name);
    jobs.push_back(std::move(job));
  }
  std::string depends = describe(target);
  if (failed(failableParallelForEach(context, jobs, [&](Job &job) {
        FailureOr<std::vector<char>> object =
            KernelCache::getOrCompile(dumpAsm ? nullptr : cache, *job.module, depends, job.time.kept,
                                      [&] { return compileOne(job, target, dumpAsm != nullptr); });
        if (succeeded(object))
          job.object = std::move(*object);
        return LogicalResult(object);
      })))
    return failure();
  std::vector<ArrayRef<char>> objects;
  for (Job &job : jobs) {
    objects.push_back(job.object);
    if (dumpAsm)
      *dumpAsm << StringRef(job.assembly.data(), job.assembly.size());
    if (times)
      times->push_back(job.time);
  }
  llvm::Expected<std::vector<char>> linked = linkShared(objects, names);
  if (!linked)
    return kernels.emitError("linking the kernels: ") << llvm::toString(linked.takeError());
  return std::move(*linked);
}
