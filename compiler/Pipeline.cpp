//===- Pipeline.cpp - the order of all passes ---------------------------------------------------------------------===//
// The only place that orders passes. Phases are the named points of passes/Phases.h; each ends with a check of what it
// promises, so a wrong module stops at the pass that made it.
#include "compiler/Pipeline.h"

#include "compiler/ActivationBudget.h"
#include "compiler/Flags.h"
#include "compiler/OutputFile.h"
#include "compiler/ScheduleKeys.h"
#include "compiler/codegen/cpu/CompileKernels.h"
#include "compiler/codegen/cpu/CpuTarget.h"
#include "compiler/codegen/cuda/Assemble.h"
#include "compiler/codegen/cuda/CudaTarget.h"
#include "compiler/codegen/cuda/EmulateCudaKernels.h"
#include "compiler/serialize/ProgramWriter.h"
#include "dialects/braid/BraidDialect.h"
#include "dialects/braid/PassAttributes.h"
#include "dialects/cmd/CmdDialect.h"
#include "dialects/tile/TileDialect.h"
#include "passes/Passes.h"
#include "passes/analysis/Mesh.h"
#include "passes/chunk/ChunkCosts.h"
#include "passes/outline/ProductTiles.h"

#include "mlir/Transforms/Passes.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/Path.h"

using namespace mlir;
using namespace braid;

void braid::registerCompiler(DialectRegistry &registry) {
  registry.insert<BraidDialect, cmd::CmdDialect, tile::TileDialect, arith::ArithDialect, func::FuncDialect,
                  math::MathDialect, memref::MemRefDialect, scf::SCFDialect, vector::VectorDialect>();
  registerCpuCodegen(registry);
  registerCudaCodegen(registry);
}

/// Of a target whose kernels are blocks of threads, be they emulated. A target that is wrong has been reported by the driver.
static std::optional<BlockLimits> blockLimits(const CompileOptions &options) {
  std::optional<BlockLimits> limits;
  if (options.target == "cuda") {
    if (llvm::Expected<CudaTarget> target = CudaTarget::parse(options.arch))
      limits = target->limits;
    else
      llvm::consumeError(target.takeError());
  } else if (llvm::Expected<CpuTarget> target = CpuTarget::parse(options.cpu)) {
    limits = target->emulated;
  } else {
    llvm::consumeError(target.takeError());
  }
  return limits;
}

/// Experts on several ranks make rows travel, and activations are those of one of all ranks. A mesh that is wrong is
/// reported by ApplySharding.
static DecideRecomputePassOptions recomputeOptions(const CompileOptions &options) {
  DecideRecomputePassOptions recompute;
  if (llvm::Expected<Mesh> mesh = Mesh::parse(options.mesh)) {
    recompute.exchanges = mesh->exchangesExpertRows();
    recompute.sequence = mesh->size("sp") > 1;
    recompute.mesh = options.mesh;
    recompute.sliced = options.slices();
    // Neighbours' last rows are another tail there than the one that was at hand.
    recompute.convolutions = blockLimits(options).has_value() && !recompute.sequence && !recompute.sliced;
  } else {
    llvm::consumeError(mesh.takeError());
  }
  return recompute;
}

/// Where the architecture copies them unless it is told not to.
static bool attentionInBoxes(const CompileOptions &options) {
  if (!options.attention.empty())
    return options.attention == "boxes";
  return options.target == "cuda" && blockLimits(options).value_or(BlockLimits()).wgmma;
}

static DecideChunkSizePassOptions chunkOptions(const CompileOptions &options) {
  DecideChunkSizePassOptions chunks;
  chunks.chunkSize = options.chunkSize;
  chunks.sharedBytes = blockLimits(options).value_or(BlockLimits()).sharedBytes;
  if (options.target == "cuda")
    return chunks;
  if (llvm::Expected<CpuTarget> target = CpuTarget::parse(options.cpu)) {
    chunks.vectorBytes = target->vectorBytes();
    chunks.bf16Dots = target->has("avx512bf16");
  } else {
    llvm::consumeError(target.takeError());
  }
  return chunks;
}

LogicalResult braid::checkChunkTarget(ModuleOp module, const CompileOptions &options) {
  auto chosenFor = module->getAttrOfType<StringAttr>(attrs::chunkTarget);
  DecideChunkSizePassOptions chunks = chunkOptions(options);
  std::string now = KernelTarget{chunks.vectorBytes, chunks.bf16Dots, chunks.sharedBytes}.describe();
  if (!chosenFor || chosenFor.getValue() == now)
    return success();
  return module.emitError("chunk sizes were chosen for ")
         << chosenFor.getValue() << " (" << attrs::chunkTarget << "), but --target=" << options.target << " "
         << (options.target == "cuda" ? "--arch=" + options.arch : "--cpu=" + options.cpu) << " is " << now
         << "; valid: the target they were chosen for, a module of phase scheduled or before, or --chunk-size=N on the "
            "way to phase chunked, for any target";
}

void braid::addPhase(OpPassManager &pm, Phase phase, const CompileOptions &options) {
  switch (phase) {
  case Phase::model:
    // The frontend builds this phase; nothing is left to do.
    break;

  case Phase::train:
    // Classes first: what a rule writes around a scan is differentiated and recomputed like any op.
    pm.addPass(createClassifyScansPass());
    // Before it is decided what is kept, which then is nothing of what experts put out.
    if (options.expertWeights == "rows")
      pm.addPass(createWeightExpertRowsPass());
    // What the backward makes again is chosen on the forward, where the choice can be read and written by hand.
    pm.addPass(createDecideRecomputePass(recomputeOptions(options)));
    // Gradients come first, on logical tensors: they are the same on every mesh, and sharding then treats forward and
    // backward alike.
    pm.addPass(createDifferentiatePass());
    // Cotangents that nobody wants and zeros that the backward built twice end here, before anything pays for them.
    pm.addPass(createCanonicalizerPass());
    pm.addPass(createCSEPass());
    // So do layer functions that only the forward used.
    pm.addPass(createSymbolDCEPass());
    break;

  case Phase::sharded:
    // Shapes become local and exchanges explicit before slices exist: a collective is cut like any op, never invented
    // later. No CSE from here to the weave: collectives are not pure, but what feeds them is.
    pm.addPass(createApplyShardingPass({options.mesh, options.slices()}));
    // Sharding writes what a mesh with every axis needs; axes of one rank need nothing.
    pm.addPass(createDropIdleCollectivesPass());
    // Functions are rewritten per caller, so the logical ones are left over.
    pm.addPass(createSymbolDCEPass());
    break;

  case Phase::scheduled:
    // Behind the exchanges of ranks, which a sum may not overtake; before slices, so that a token rounds alike in every slicing. On CPUs the
    // library's sum of two matrices costs more than the kernel behind it saves.
    if (options.target == "cuda")
      pm.addPass(createAddIntoProductsPass());
    // Only what stands in one function can be woven; before bounds exist, for they are those of the whole function.
    if (options.slices() && (options.pipeline == "cross-block" || (options.pipeline == "best" && options.joinLayers)))
      pm.addPass(createJoinLayersPass());
    // Slice bounds are data before code moves, so that a hand-written decision can be tested.
    pm.addPass(createDecideSchedulePass(
        options.slices() ? DecideSchedulePassOptions{options.pipeline, options.overlapDegree,
                                                     options.slicing.empty() ? "uniform" : options.slicing}
                         : DecideSchedulePassOptions{}));
    // Slices before chunks: chunk tiling must never see a chunk cut by an edge it did not choose.
    // What `best` took nobody could guess.
    if (options.slices())
      pm.addPass(createDescribeSchedulePass({.remarks = options.pipeline == "best" && options.remarks}));
    pm.addPass(createExpandSlicesPass());
    // Only now are all tasks visible that could hide an exchange.
    pm.addPass(createWeavePass());
    // What is woven is as long as it was; what is added to is part of what waits.
    pm.addPass(createSplitBackwardPass());
    // Behind the exchanges of gradients, which are none of a sum's; before it is written down once per micro-batch.
    pm.addPass(createAddIntoRepeatsPass());
    // Behind it: only what stands in front of one layer's gradient can be what it is added to.
    pm.addPass(createAddIntoGradientsPass());
    // Layers are woven once, however many micro-batches walk through them.
    pm.addPass(createPipelineStagesPass());
    break;

  case Phase::chunked: {
    BlockLimits limits = blockLimits(options).value_or(BlockLimits());
    // Ranks, slices and gradients know tokens; kernels know places of a row.
    pm.addPass(createExpandUpdatesPass());
    // A chunk size may be written by hand; the pass fills in the others. Only now are the shapes those of one slice on
    // one rank, which are what kernels will see.
    pm.addPass(createDecideChunkSizePass(chunkOptions(options)));
    // The scan becomes matrix products within chunks and a short scan over chunk states.
    pm.addPass(createChunkTilingPass({.gpu = limits.sharedBytes > 0, .wgmma = limits.wgmma}));
    // Tiling writes a chunk table per scan; equal ones are one.
    pm.addPass(createCSEPass());
    break;
  }

  case Phase::kernels: {
    bool gpu = chunkOptions(options).sharedBytes > 0, f32Parts = options.f32Products == "parts";
    // Before the widening shares a kernel with what it widens.
    if (options.target == "cuda" && options.gemm == "kernels" && f32Parts)
      pm.addPass(createUnwidenProductsPass());
    // Groups are heads before it is decided what shares a kernel with them.
    pm.addPass(createUngroupNormsPass());
    // Row-wise chains become clusters while they are still model ops that know how to emit themselves.
    pm.addPass(createFuseRowsPass({.gpu = gpu}));
    // FLOPs and bytes follow from model ops and their shapes: counted before kernels exist, so that no kernel is its
    // own judge.
    pm.addPass(createCountWorkPass(
        {.gpu = gpu, .library = options.target != "cuda" || options.gemm == "cublaslt", .f32Parts = f32Parts}));
    // Every op turns into a launch, a library call or a view; equal kernels are one function.
    // cuBLASLt adds nothing of another type than its result.
    pm.addPass(createOutlinePass({.cublaslt = options.gemm == "cublaslt",
                                  .gpu = gpu,
                                  .f32Parts = f32Parts,
                                  .warpgroups = blockLimits(options).value_or(BlockLimits()).wgmma,
                                  .boxes = attentionInBoxes(options),
                                  .beside = options.weightGradients == "beside"}));
    // Views of views and equal reshapes would only be noise for the memory plan.
    pm.addPass(createCanonicalizerPass());
    pm.addPass(createCSEPass());
    break;
  }

  case Phase::commands: {
    // Where everything lies is decided with tensors still in SSA, where lifetimes are plain.
    PlanMemoryPassOptions memory;
    memory.inFlight = options.reductionsInFlight.value_or(memory.inFlight);
    pm.addPass(createPlanMemoryPass(memory));
    // A solver is proved after it runs, in release builds too: a wrong plan would be a silently wrong number.
    pm.addPass(createProveMemoryPlanPass());
    // What is left is a translation without choices.
    pm.addPass(createLowerToCommandsPass());
    // What no library does; before the proofs, which then see what runs.
    if (options.target == "cuda")
      pm.addPass(createGemmKernelsPass(
          {.library = options.gemm == "cublaslt", .warpgroups = blockLimits(options).value_or(BlockLimits()).wgmma}));
    // Every byte has its place, so every wait can stand where the bytes are needed.
    pm.addPass(createDelayWaitsPass());
    // Slices were woven, bytes shared and events placed by passes that did not know of each other: here all three meet.
    pm.addPass(createProveSchedulePass());
    // Who depends on whom is plain only where every buffer has its address.
    pm.addPass(createJoinLaunchesPass());
    break;
  }
  }
  pm.addPass(createVerifyPhasePass({phaseName(phase).str()}));
}

//===- Running ----------------------------------------------------------------------------------------------------===//

void braid::printPhase(ModuleOp module, llvm::raw_ostream &stream, bool locations) {
  // Values carry the names the model gave them: %q, %log_decay. What a resumed compilation calls its commands follows
  // from the whole locations; commands have their names as attributes.
  locations &= phaseOf(module) != Phase::commands;
  module->print(stream, OpPrintingFlags().printNameLocAsPrefix().enableDebugInfo(locations));
  stream << '\n';
}

std::string braid::dumpPath(StringRef directory, Phase phase) {
  llvm::SmallString<128> path(directory);
  llvm::sys::path::append(path, "0" + std::to_string(static_cast<int>(phase)) + "-" + phaseName(phase) + ".mlir");
  return path.str().str();
}

std::string braid::ptxPath(StringRef directory) {
  SmallString<128> path = directory;
  llvm::sys::path::append(path, "kernels.ptx");
  return path.str().str();
}

static LogicalResult dump(ModuleOp module, StringRef path, StringRef text, StringRef directory) {
  if (std::error_code error = llvm::sys::fs::create_directories(directory))
    return emitError(UnknownLoc::get(module.getContext()), "cannot write ") << path << ": " << error.message();
  if (llvm::Error failed = writeOutput(path, text))
    return emitError(UnknownLoc::get(module.getContext()), llvm::toString(std::move(failed)));
  return success();
}

static LogicalResult dump(ModuleOp module, Phase phase, StringRef directory) {
  if (directory.empty())
    return success();
  std::string text;
  llvm::raw_string_ostream stream(text);
  printPhase(module, stream, /*locations=*/true);
  return dump(module, dumpPath(directory, phase), text, directory);
}

std::optional<Phase> braid::phaseOf(ModuleOp module) {
  auto name = module->getAttrOfType<StringAttr>(attrs::phase);
  return name ? parsePhase(name.getValue()) : std::nullopt;
}

LogicalResult braid::verifyPhase(ModuleOp module, Phase phase) {
  PassManager pm(module->getName());
  pm.addPass(createVerifyPhasePass({phaseName(phase).str()}));
  return pm.run(module);
}

/// Programs of large products stay where they are, one a multiprocessor, and share out all tiles, on GPUs where the copies for a tile begin before
/// the one before it is done (Hopper). What else runs at a time, as exchanges or gradients of weights do, would hold up all of a program's tiles.
static void noteWorkers(ModuleOp module, const CompileOptions &options) {
  module->removeAttr(kWorkersAttr);
  module->removeAttr(kProductTeamAttr);
  auto isBeside = [](Operation *op) {
    return op->hasAttr(cmd::kBesideAttr) ? WalkResult::interrupt() : WalkResult::advance();
  };
  bool beside = options.weightGradients == "beside" || module.walk(isBeside).wasInterrupted();
  bool alone = Mesh::of(module).world() == 1 && !beside;
  Builder b(module.getContext());
  if (options.target != "cuda" || !blockLimits(options).value_or(BlockLimits()).wgmma)
    return;
  if (alone)
    module->setAttr(kWorkersAttr, b.getI64IntegerAttr(kHopper));
  if (options.products == kClusters || options.products == kStaggered)
    module->setAttr(kProductTeamAttr, b.getStringAttr(options.products));
}

static FailureOr<ActivationBudget::Kept> runOnce(ModuleOp module, Phase from, Phase to, const CompileOptions &options,
                                                 std::vector<StageTime> &times) {
  ActivationBudget::Kept kept;
  if (failed(dump(module, from, options.dumpPhasesTo)))
    return failure();
  for (Phase phase : allPhases()) {
    if (phase <= from || phase > to)
      continue;
    StageTimer timer(times, phaseName(phase));
    if (options.remarks)
      warnOfIdleFlags(module, phase, options);
    if (phase == Phase::kernels || phase == Phase::commands)
      noteWorkers(module, options);
    PassManager pm(module->getName());
    addPhase(pm, phase, options);
    if (failed(pm.run(module)))
      return failure();
    dropScheduleKeys(module, phase);
    if (failed(dump(module, phase, options.dumpPhasesTo)))
      return failure();
    if (phase == Phase::train)
      kept.counted = ActivationBudget::keptIn(module);
    if (phase == Phase::commands && options.remarks)
      warnOfIdleProducts(module, options);
    if (phase == Phase::commands)
      kept.planned = ActivationBudget::keptIn(module);
  }
  return kept;
}

LogicalResult braid::runPhases(ModuleOp module, Phase from, Phase to, const CompileOptions &options,
                               std::vector<StageTime> &times) {
  auto run = [&] { return runOnce(module, from, to, options, times); };
  std::optional<ActivationBudget> budget = ActivationBudget::of(module);
  if (!budget || from >= Phase::train || to < Phase::train)
    return run();
  DecideRecomputePassOptions recompute = recomputeOptions(options);
  return budget->meet(module, run,
                      Twine("inputs of layers, routes") + (recompute.exchanges ? ", what other ranks sent" : "") +
                          (recompute.sequence ? ", results of attention" : ""));
}

/// CPU time of all kernels by step, and the three kernels that took longest.
static std::string summary(MutableArrayRef<KernelTime> kernels) {
  KernelTime sum;
  int64_t kept = llvm::count_if(kernels, [](const KernelTime &time) { return time.kept; });
  for (const KernelTime &time : kernels) {
    sum.lowering += time.lowering;
    sum.optimizing += time.optimizing;
    sum.emitting += time.emitting;
  }
  auto all = [](const KernelTime &time) { return time.lowering + time.optimizing + time.emitting; };
  llvm::stable_sort(kernels, [&](const KernelTime &a, const KernelTime &b) { return all(a) > all(b); });
  std::string text = llvm::formatv("{0} kernels{1}: to LLVM {2:f0} ms, its optimizer {3:f0} ms, machine code {4:f0} ms "
                                   "of CPU; longest:",
                                   kernels.size(), kept ? llvm::formatv(", {0} of them kept", kept).str() : "",
                                   sum.lowering, sum.optimizing, sum.emitting);
  for (const KernelTime &time : kernels.take_front(3))
    text += llvm::formatv(" {0} {1:f0} ms,", time.name, all(time));
  text.pop_back();
  return text;
}

FailureOr<CompiledProgram> braid::compileProgram(ModuleOp module, const CompileOptions &options,
                                                 std::vector<StageTime> &times) {
  CompiledProgram program;
  std::unique_ptr<KernelCache> cache;
  if (!options.kernelCache.empty()) {
    llvm::Expected<std::unique_ptr<KernelCache>> opened = KernelCache::open(options.kernelCache);
    if (!opened)
      return module.emitError("--kernel-cache: ") << llvm::toString(opened.takeError()), failure();
    cache = std::move(*opened);
    if (StringRef why = cache->whyNotKept(); !why.empty())
      module.emitWarning("--kernel-cache: kernels are not kept: ") << why;
  }
  ProgramParts parts{options.target, {}, {}, {}, {}, 0};
  std::vector<char> code;
  if (options.target == "cuda") {
    llvm::Expected<CudaTarget> target = CudaTarget::parse(options.arch);
    if (!target)
      return module.emitError(llvm::toString(target.takeError())), failure();
    target->assembledWhole = options.assembly == "whole";
    StageTimer timer(times, "code");
    std::vector<KernelTime> kernels;
    std::string ptx;
    llvm::raw_string_ostream ptxStream(ptx);
    FailureOr<std::vector<CudaKernel>> compiled =
        target->emulated ? emulateCudaKernels(module, *target, &kernels, cache.get())
                         : compileCudaKernels(module, *target, options.dumpPhasesTo.empty() ? nullptr : &ptxStream,
                                              &kernels, cache.get());
    if (failed(compiled) || (!options.dumpPhasesTo.empty() &&
                             failed(dump(module, ptxPath(options.dumpPhasesTo), ptx, options.dumpPhasesTo))))
      return failure();
    timer.detail = summary(kernels);
    program.kernels = std::move(*compiled);
    parts.kernels = program.kernels;
    parts.arch = target->arch;
    parts.cudaDriver = target->emulated ? 0 : leastCudaDriver();
  } else {
    llvm::Expected<CpuTarget> target = CpuTarget::parse(options.cpu);
    if (!target)
      return module.emitError(llvm::toString(target.takeError())), failure();
    target->optimized = options.optLevel > 0;
    if (llvm::any_of(module.getOps<func::FuncOp>(),
                     [](func::FuncOp func) { return func->hasAttr(tile::kKernelAttr); })) {
      StageTimer timer(times, "code");
      std::vector<KernelTime> kernels;
      FailureOr<std::vector<char>> object = compileKernels(module, *target, nullptr, &kernels, cache.get());
      if (failed(object))
        return failure();
      timer.detail = summary(kernels);
      code = std::move(*object);
      parts.cpuFeatures = target->features;
      parts.code = code;
    }
  }
  StageTimer timer(times, "file");
  FailureOr<std::vector<uint8_t>> bytes = writeProgram(module, parts);
  if (failed(bytes))
    return failure();
  program.bytes = std::move(*bytes);
  return program;
}
