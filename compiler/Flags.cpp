//===- Flags.cpp - flags beside their target, phases, each other and the model ------------------------------------===//
#include "compiler/Flags.h"

#include "compiler/Diagnostics.h"
#include "compiler/Pipeline.h"
#include "compiler/codegen/cpu/CpuTarget.h"
#include "compiler/codegen/cuda/CudaTarget.h"
#include "dialects/braid/BraidDialect.h"
#include "dialects/tile/TileDialect.h"
#include "passes/analysis/Mesh.h"
#include "passes/outline/OutlineFamilies.h"
#include "passes/overlap/LayerTasks.h"

#include "mlir/Pass/PassManager.h"

using namespace mlir;
using namespace braid;

static bool fail(const Twine &message) {
  printError(message);
  return false;
}

//===- The target -------------------------------------------------------------------------------------------------===//

bool braid::checkTarget(const CompileOptions &options) {
  const CompileOptions defaults;
  if (options.target == "cuda") {
    if (options.cpu != defaults.cpu || !options.givenAs("--cpu").empty())
      return fail("--cpu=" + options.cpu +
                  " says what kernels for CPUs may use, and --target=cuda compiles for GPUs; "
                  "valid: --arch");
    if (std::string given = options.givenAs("--opt-level"); !given.empty())
      return fail(given +
                  " is about machine code of CPUs, and --target=cuda compiles for GPUs; valid: with --target=cpu");
    llvm::Expected<CudaTarget> target = CudaTarget::parse(options.arch);
    if (!target)
      return fail("--target=cuda: " + llvm::toString(target.takeError()));
    if (bool code = !options.tablesOnly && !options.toPhase; code && !target->emulated && !CudaTarget::hasToolkit())
      return fail("--target=cuda: this compiler was built without a CUDA toolkit, which machine code needs; valid: "
                  "--target=cpu, or --to-phase=commands");
    if (options.products == "clusters" && !target->limits.wgmma)
      return fail("--products=clusters shares operands among blocks of a cluster, which --arch=" + options.arch +
                  " does not have; valid: --products=blocks, or --arch=sm_90a");
    if (options.attention == "boxes" && !target->limits.wgmma)
      return fail("--attention=boxes copies tiles in boxes, which --arch=" + options.arch +
                  " does not; valid: --arch=sm_90a");
    if (options.weightGradients == "beside" && options.gemm != "kernels")
      return fail("--weight-gradients=beside runs products beside others, and --gemm=" + options.gemm +
                  " has one workspace for all; valid: --gemm=kernels");
    if (options.f32Products != defaults.f32Products && options.gemm == "cublaslt")
      return fail("--f32-products=" + options.f32Products +
                  " says how a program's own kernels multiply, and --gemm=cublaslt leaves that to a library; valid: "
                  "with --gemm=kernels");
    if (target->emulated && options.assembly != defaults.assembly)
      return fail("--assembly=" + options.assembly + " says who assembles a GPU's kernels, and --arch=" + options.arch +
                  " runs on CPUs; valid: with --arch=sm_90a or sm_80");
    return true;
  }
  // Of CPUs the defaults of these flags are no more true than other values.
  const struct {
    const char *name;
    const std::string &value, &otherwise;
    const char *says;
  } ofGpus[] = {
      {"--arch", options.arch, defaults.arch, "names a GPU"},
      {"--gemm", options.gemm, defaults.gemm, "says who multiplies matrices of GPUs"},
      {"--products", options.products, defaults.products, "says how operands come to a GPU's kernels"},
      {"--attention", options.attention, defaults.attention, "says how tiles come to a GPU's kernels"},
      {"--weight-gradients", options.weightGradients, defaults.weightGradients,
       "says which kernels of a GPU run beside each other"},
      {"--expert-weights", options.expertWeights, defaults.expertWeights, "says which kernels of a GPU weight rows"},
      {"--f32-products", options.f32Products, defaults.f32Products, "says how a GPU multiplies"},
      {"--assembly", options.assembly, defaults.assembly, "says who assembles a GPU's kernels"}};
  for (const auto &flag : ofGpus)
    if (flag.value != flag.otherwise || !options.givenAs(flag.name).empty())
      return fail(Twine(flag.name) + "=" + flag.value + " " + flag.says + ", and --target=" + options.target +
                  " compiles for CPUs; valid: with --target=cuda");
  llvm::Expected<CpuTarget> target = CpuTarget::parse(options.cpu);
  return target ? true : fail("--cpu: " + llvm::toString(target.takeError()));
}

//===- What flags need --------------------------------------------------------------------------------------------===//

/// Whether an op of one of these kinds is there, of which `test` holds.
template <typename... Ops>
static bool has(ModuleOp module, llvm::function_ref<bool(Operation *)> test = [](Operation *) { return true; }) {
  return module
      .walk(
          [&](Operation *op) { return isa<Ops...>(op) && test(op) ? WalkResult::interrupt() : WalkResult::advance(); })
      .wasInterrupted();
}

/// Matrix products of which `test` holds, of the model and of its gradients.
static bool multiplies(ModuleOp module, llvm::function_ref<bool(Operation *)> test = [](Operation *) { return true; }) {
  return has<LinearOp, LinearAddOp, LinearGradDataOp, LinearGradWeightOp, LinearCrossEntropyOp,
             LinearCrossEntropyGradOp, LinearLossPartOp, LinearLossPartGradOp, LinearScoresOp, MoeGroupedLinearOp,
             MoeGroupedLinearGradDataOp, MoeGroupedLinearGradWeightOp>(module, test);
}

static bool hasType(Operation *op, llvm::function_ref<bool(Type)> test) {
  auto holds = [&](Type type) { return test(getElementTypeOrSelf(type)); };
  return llvm::any_of(op->getOperandTypes(), holds) || llvm::any_of(op->getResultTypes(), holds);
}

static bool cutsScans(ModuleOp module) {
  return has<LsmScanOp, LsmScanGradOp, LsmSegmentOp, LsmSegmentGradOp>(
      module, [](Operation *op) { return !op->hasAttr("chunk_size"); });
}

/// Why flags change nothing of a module; empty: they do, or it cannot be known.
using WhyIdle = std::string (*)(ModuleOp module, const CompileOptions &options);

static std::string whyNoAlgorithm(ModuleOp module, const CompileOptions &options) {
  if (options.spAlgorithm == "auto" || options.spAlgorithm == "ring" || has<LsmScanOp, LsmInnerStepOp>(module))
    return "";
  return "no layer has a state to send along sp, and attention knows none but ring";
}

/// Only layers that exchange expert rows are cut, or those of whose rows ranks along sp have parts. Where there are none DecideSchedule says that no
/// order has anything to do.
static std::string whyNoDegrees(ModuleOp module, const CompileOptions &) {
  bool exchanges = false, named = false, cut = Mesh::of(module).size("sp") > 1;
  for (auto layer : module.getOps<func::FuncOp>()) {
    auto own = layer->getAttrOfType<IntegerAttr>(attrs::overlapDegree);
    bool here = hasOp(layer, isDataExchange), asked = own && own.getValue().sgt(1);
    exchanges |= here;
    named |= asked;
    cut |= asked && here;
  }
  return exchanges && named && !cut ? "the layers that it names exchange no expert rows" : "";
}

/// How many kernels of which `test` holds the module, which phase kernels is next of, would have with these options; nothing where it has none, which
/// is said when it is compiled.
static std::optional<int64_t> kernelsWith(ModuleOp module, const CompileOptions &options,
                                          llvm::function_ref<bool(func::FuncOp kernel)> test) {
  ScopedDiagnosticHandler quiet(module.getContext(), [](Diagnostic &) { return success(); });
  OwningOpRef<ModuleOp> copy = module.clone();
  PassManager pm(copy->getOperation()->getName());
  addPhase(pm, Phase::kernels, options);
  if (failed(pm.run(*copy)))
    return std::nullopt;
  return llvm::count_if(copy->getOps<func::FuncOp>(), test);
}

/// Sizes decide, and so does what an operand was widened from: who outlines products is asked.
static std::string whyNoFma(ModuleOp module, const CompileOptions &options) {
  if (!multiplies(module, [](Operation *op) { return hasType(op, [](Type type) { return type.isF32(); }); }))
    return "no product has f32 matrices";
  CompileOptions otherwise = options;
  otherwise.f32Products = CompileOptions().f32Products;
  auto splits = [](func::FuncOp kernel) { return kernel.getName() == kSplitKernel; };
  return kernelsWith(module, otherwise, splits) == 0
             ? "no product of f32 matrices would be faster as products of their parts"
             : "";
}

static std::string whyNoRows(ModuleOp module, const CompileOptions &options) {
  auto isNarrow = [](Operation *op) {
    auto causal = dyn_cast<AttnCausalOp>(op);
    return getElementTypeOrSelf(op->getOperand(0).getType()).isBF16() && !(causal && causal.getCache());
  };
  if (!has<AttnCausalOp, AttnCausalGradOp>(module, isNarrow) && !has<LsmOutputWalkOp, LsmFactorWalkOp>(module))
    return "no layer has attention in bf16, or a scan that walks over chunks";
  CompileOptions otherwise = options;
  otherwise.attention = "boxes";
  // Products have kernels with boxes too, the same ones.
  auto inBoxes = [](func::FuncOp kernel) { return kernel->hasAttr(tile::kBoxesAttr); };
  std::optional<int64_t> without = kernelsWith(module, otherwise, inBoxes);
  return without && without == kernelsWith(module, options, inBoxes)
             ? "tiles come by rows anyway, for heads, keys or rows are too few for boxes"
             : "";
}

static std::string whyNoSlicing(ModuleOp module, const CompileOptions &options) {
  if (options.pipeline == "moe") // by the description; else checkFlags has said so
    return "pipeline moe leaves mixers whole, and experts cost the same for every token";
  bool differ = llvm::any_of(module.getOps<func::FuncOp>(),
                             [](func::FuncOp layer) { return attentionCostOf(layer).has_value(); });
  return differ ? "" : "no layer has softmax attention over all keys, so all tokens cost the same";
}

/// Whether tiles of attention come in boxes unless it is said that they do not.
static bool hasBoxes(const CompileOptions &options) {
  llvm::Expected<CudaTarget> target = CudaTarget::parse(options.arch);
  bool boxes = target && target->limits.wgmma;
  llvm::consumeError(target.takeError());
  return options.target == "cuda" && boxes;
}

namespace {
struct Flag {
  const char *name;
  bool set; ///< to something else than would be the case without it
  Phase first, last; ///< on the way to which phases it is read
  Phase before = Phase::model; ///< before whose passes `why` looks at the module; model: never
  WhyIdle why = nullptr;
};
} // namespace

/// Each belongs to the phase whose passes read it.
/// What is computed again depends on what other ranks send, so gradients see the mesh first.
/// What is divided among ranks is divided slice by slice, so that there are any is known before they are cut.
/// That --expert-weights changed nothing is said by its pass, which alone knows, of --products it is when kernels are there.
static SmallVector<Flag, 16> flagsOf(const CompileOptions &options) {
  const CompileOptions defaults;
  return {
      {"--mesh", !options.mesh.empty(), Phase::train, Phase::sharded},
      {"--expert-room", options.expertRoom.has_value(), Phase::model, Phase::sharded},
      {"--sp-algorithm", options.spAlgorithm.has_value(), Phase::model, Phase::sharded, Phase::sharded, whyNoAlgorithm},
      {"--pipeline", options.pipeline != "none", Phase::sharded, Phase::scheduled},
      {"--overlap-degree", options.overlapDegree != 1, Phase::sharded, Phase::scheduled},
      {"--overlap-degrees", options.overlapDegrees.has_value(), Phase::sharded, Phase::scheduled, Phase::scheduled,
       whyNoDegrees},
      {"--slicing", options.slicing != "uniform", Phase::scheduled, Phase::scheduled, Phase::scheduled, whyNoSlicing},
      {"--chunk-size", options.chunkSize != 0, Phase::chunked, Phase::chunked, Phase::chunked,
       [](ModuleOp module, const CompileOptions &) -> std::string {
         return cutsScans(module) ? "" : "no scan is left to be cut in chunks";
       }},
      {"--cpu", options.tablesOnly, Phase::model, Phase::commands, Phase::chunked,
       [](ModuleOp module, const CompileOptions &options) -> std::string {
         llvm::Expected<CpuTarget> target = CpuTarget::parse(options.cpu);
         bool blocks = target && target->emulated;
         llvm::consumeError(target.takeError());
         return cutsScans(module) || blocks ? "" : "a plan chooses chunk sizes by it, and no scan is left to be cut";
       }},
      {"--products", options.products != defaults.products, Phase::kernels, Phase::commands},
      {"--attention", options.attention == "rows" && hasBoxes(options), Phase::kernels, Phase::kernels, Phase::kernels,
       whyNoRows},
      {"--weight-gradients", options.weightGradients != defaults.weightGradients, Phase::kernels, Phase::kernels,
       Phase::kernels,
       [](ModuleOp module, const CompileOptions &) -> std::string {
         return has<LinearGradWeightOp, MoeGroupedLinearGradWeightOp>(module)
                    ? ""
                    : "no product makes a gradient of weights";
       }},
      {"--expert-weights", options.expertWeights != defaults.expertWeights, Phase::train, Phase::train},
      {"--f32-products", options.f32Products != defaults.f32Products, Phase::kernels, Phase::kernels, Phase::kernels,
       whyNoFma},
      {"--gemm", options.gemm != defaults.gemm, Phase::commands, Phase::commands, Phase::kernels,
       [](ModuleOp module, const CompileOptions &) -> std::string {
         return multiplies(module) ? "" : "there is no matrix product";
       }},
      {"--reductions-in-flight", options.reductionsInFlight.has_value(), Phase::commands, Phase::commands,
       Phase::commands, [](ModuleOp module, const CompileOptions &) -> std::string {
         return has<CommStartOp>(module) ? "" : "no sum of gradients travels between ranks";
       }}};
}

void braid::warnOfIdleFlags(ModuleOp module, Phase phase, const CompileOptions &options) {
  for (const Flag &flag : flagsOf(options)) {
    std::string given = options.givenAs(flag.name);
    if (!flag.why || flag.before != phase || !flag.set || given.empty())
      continue;
    if (std::string why = flag.why(module, options); !why.empty())
      module.emitWarning() << given << " changes nothing: " << why;
  }
}

void braid::warnOfIdleProducts(ModuleOp module, const CompileOptions &options) {
  std::string given = options.givenAs("--products");
  bool pairs = options.products == "clusters";
  auto differs = [](func::FuncOp kernel) {
    return kernel->hasAttr(tile::kSharedOperandAttr) || kernel->hasAttr(tile::kStaggeredAttr);
  };
  if (!given.empty() && options.products != CompileOptions().products &&
      llvm::none_of(module.getOps<func::FuncOp>(), differs))
    module.emitWarning() << given << " changes nothing: no product of bf16 matrices has tiles of 128 x 128 or more"
                         << (pairs ? " in pairs, which would share an operand" : "");
}

//===- Phases, and each other -------------------------------------------------------------------------------------===//

/// Rows are weighted before their last product where their weights are: on the rank that has their tokens.
static bool checkExpertWeights(const CompileOptions &options) {
  if (options.expertWeights != "rows")
    return true;
  // Rows of slices are exchanged as a rule.
  if (options.slices())
    return fail("--expert-weights=rows weights rows before their last product, but --pipeline=" + options.pipeline +
                " cuts token slices, whose rows are weighted where they come back; valid: --expert-weights=combine");
  llvm::Expected<Mesh> mesh = Mesh::parse(options.mesh);
  if (!mesh) { // said where the mesh is read
    llvm::consumeError(mesh.takeError());
    return true;
  }
  if (mesh->exchangesExpertRows())
    return fail("--expert-weights=rows weights rows before their last product, but with --mesh=" + options.mesh +
                " rows go to experts of other ranks (ep=" + Twine(mesh->size("ep")) +
                ", etp=" + Twine(mesh->size("etp")) + ", tp=" + Twine(mesh->size("tp")) +
                "), which do not have their weights; valid: --expert-weights=combine, or ep=1 and etp=1 or tp");
  return true;
}

bool braid::checkFlags(const CompileOptions &options, Phase from, Phase to) {
  for (const Flag &flag : flagsOf(options)) {
    if (!flag.set || (from < flag.last && flag.first <= to))
      continue;
    bool early = to < flag.first;
    return fail(Twine(flag.name) + " is read on the way to phase " + phaseName(early ? flag.first : flag.last) +
                ", but this compilation " +
                (early ? "stops at phase " + phaseName(to) : "begins in phase " + phaseName(from)));
  }
  for (const char *flag : {"--kernel-cache", "--opt-level", "--assembly"})
    if (options.toPhase && !options.givenAs(flag).empty())
      return fail(Twine(flag) + " is about machine code, and this compilation stops at phase " + phaseName(to) +
                  "; valid: without --to-phase");
  bool someSlices = options.overlapDegree > 1 || options.layersSliced;
  if (options.pipeline != "none" && !someSlices)
    return fail("--pipeline=" + options.pipeline + " orders slices, and --overlap-degree=1 cuts none; valid: 2 to 16");
  if (options.pipeline == "none" && options.overlapDegrees)
    return fail("--overlap-degrees=" + *options.overlapDegrees +
                " cuts slices that no --pipeline orders; valid: moe, aAaM, 1A1M, cross-block, best");
  if (options.pipeline == "none" && options.overlapDegree != 1)
    return fail("--overlap-degree=" + Twine(options.overlapDegree) +
                " cuts slices that no --pipeline orders; valid: moe, aAaM, 1A1M, cross-block, best");
  if (options.slicing != "uniform" && !someSlices)
    return fail("--slicing=" + options.slicing + " cuts slices, and --overlap-degree=1 cuts none; valid: 2 to 16");
  if (options.pipeline == "moe" && options.slicing != "uniform" && !options.givenAs("--pipeline").empty() &&
      !options.givenAs("--slicing").empty())
    return fail("--slicing=" + options.slicing +
                " says where mixers are cut, and --pipeline=moe leaves them whole; valid: without --slicing, or "
                "--pipeline=aAaM, 1A1M, cross-block, best");
  return checkExpertWeights(options);
}
