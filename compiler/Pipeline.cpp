//===- Pipeline.cpp - the only file that orders passes ---------------------------------------------------------------===//
#include "compiler/Pipeline.h"
#include "mlir/IR/AsmState.h"
#include "mlir/Transforms/Passes.h"
#include "passes/Passes.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/ToolOutputFile.h"
#include <chrono>

using namespace mlir;
using namespace braid;

static constexpr StringLiteral kPhases[] = {"model", "train", "sharded", "scheduled", "chunked", "kernels", "commands"};

ArrayRef<StringRef> braid::phaseNames() {
  static const SmallVector<StringRef> names(std::begin(kPhases), std::end(kPhases));
  return names;
}

int braid::phaseIndex(StringRef name) {
  auto found = llvm::find(phaseNames(), name);
  return found == phaseNames().end() ? -1 : static_cast<int>(found - phaseNames().begin());
}

static void cleanUp(OpPassManager &pm) {
  pm.addPass(createCanonicalizerPass());
  pm.addPass(createCSEPass());
  pm.addPass(createSymbolDCEPass());
}

/// From the logical model to the whole training step. Differentiate comes first: the step must mean the same on any mesh.
static void buildTrain(OpPassManager &pm, const CompileOptions &) {
  pm.addPass(createDifferentiatePass());
  cleanUp(pm); // layers that only the forward used, zeros and views that the backward built twice
}

/// To one rank's program. No CSE between here and the weave: collectives are not pure, but what feeds them is.
static void buildSharded(OpPassManager &pm, const CompileOptions &options) {
  ApplyShardingPassOptions sharding;
  sharding.meshText = options.mesh;
  pm.addPass(createApplyShardingPass(sharding));
  pm.addPass(createSymbolDCEPass());
}

/// To slices in woven order: decide, expand, weave, each readable alone.
static void buildScheduled(OpPassManager &pm, const CompileOptions &options) {
  DecideSchedulePassOptions schedule;
  schedule.pipeline = options.pipeline;
  schedule.overlapDegree = options.overlapDegree;
  pm.addPass(createDecideSchedulePass(schedule));
  pm.addPass(createExpandSlicesPass());
  pm.addPass(createWeavePass());
}

/// To chunks. Slices come before chunks, so no slice edge cuts a chunk that was chosen.
static void buildChunked(OpPassManager &pm, const CompileOptions &options) {
  DecideChunkSizePassOptions chunk;
  chunk.chunkSize = options.chunkSize;
  pm.addPass(createDecideChunkSizePass(chunk));
  pm.addPass(createChunkTilingPass());
  // Forward and backward of a layer are functions of their own: CSE only shares what one of them computes twice.
  pm.addPass(createCSEPass());
}

/// To kernels: fusion decides which row-wise ops share one, outlining writes all of them.
static void buildKernels(OpPassManager &pm, const CompileOptions &) {
  pm.addPass(createFuseRowsPass());
  pm.addPass(createOutlinePass());
  pm.addPass(createCSEPass()); // views
}

/// To commands: buffers first, then one command per op.
static void buildCommands(OpPassManager &pm, const CompileOptions &options) {
  PlanMemoryPassOptions memory;
  memory.explain = options.explain;
  pm.addPass(createPlanMemoryPass(memory));
  LowerToCommandsPassOptions commands;
  commands.explain = options.explain;
  pm.addPass(createLowerToCommandsPass(commands));
}

static void buildPhase(int phase, OpPassManager &pm, const CompileOptions &options) {
  using Build = void (*)(OpPassManager &, const CompileOptions &);
  static constexpr Build builds[] = {[](OpPassManager &, const CompileOptions &) {}, buildTrain, buildSharded, buildScheduled,
                                     buildChunked, buildKernels, buildCommands};
  builds[phase](pm, options);
  VerifyPhasePassOptions verify;
  verify.phaseText = kPhases[phase].str();
  pm.addPass(createVerifyPhasePass(verify));
}

static LogicalResult dumpPhase(ModuleOp module, int phase, StringRef folder) {
  SmallString<128> path(folder);
  if (std::error_code error = llvm::sys::fs::create_directories(folder))
    return module.emitError() << "cannot create folder " << folder << ": " << error.message();
  llvm::sys::path::append(path, llvm::formatv("{0,0+2}-{1}.mlir", phase, kPhases[phase]).str());
  std::error_code error;
  llvm::ToolOutputFile file(path, error, llvm::sys::fs::OF_Text);
  if (error) return module.emitError() << "cannot write " << path << ": " << error.message();
  module.print(file.os());
  file.keep();
  return success();
}

LogicalResult braid::runPipeline(ModuleOp module, const CompileOptions &options, std::vector<PhaseTime> *times) {
  auto attr = module->getAttrOfType<StringAttr>(attrs::phase);
  StringRef from = !options.fromPhase.empty() ? StringRef(options.fromPhase) : attr ? attr.getValue() : StringRef("model");
  StringRef to = options.toPhase.empty() ? StringRef(kPhases[std::size(kPhases) - 1]) : StringRef(options.toPhase);
  for (StringRef name : {from, to})
    if (phaseIndex(name) < 0)
      return module.emitError() << "phase \"" << name << "\" is not known; valid: " << llvm::join(phaseNames(), ", ");
  int first = phaseIndex(from), last = phaseIndex(to);
  if (last < first) return module.emitError() << "the module is in phase " << from << ", which is behind phase " << to;
  for (int phase = first; phase <= last; ++phase) {
    auto start = std::chrono::steady_clock::now();
    PassManager pm(module.getContext());
    // The phase the module is in is only verified: what leads to it has run.
    if (phase == first) {
      VerifyPhasePassOptions verify;
      verify.phaseText = kPhases[phase].str();
      pm.addPass(createVerifyPhasePass(verify));
    } else {
      buildPhase(phase, pm, options);
    }
    if (failed(pm.run(module))) return failure();
    std::chrono::duration<double, std::milli> elapsed = std::chrono::steady_clock::now() - start;
    if (times) times->push_back({kPhases[phase].str(), elapsed.count()});
    if (!options.dumpPhasesTo.empty() && failed(dumpPhase(module, phase, options.dumpPhasesTo))) return failure();
  }
  return success();
}
