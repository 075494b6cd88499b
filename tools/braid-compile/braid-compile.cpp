//===- braid-compile.cpp - a model description or a module -> a program file --------------------------------------===//
#include "compiler/Driver.h"
#include "compiler/codegen/cpu/CpuTarget.h"
#include "compiler/codegen/cuda/CudaTarget.h"
#include "frontend/ModelSpec.h"
#include "schedule/Slicing.h"
#include "schedule/Stages.h"
#include "tools/braid-plan/Forecast.h"
#include "tools/braid-tune/Evidence.h"
#include "tools/common/GivenFlags.h"
#include "tools/common/IntegerFlag.h"
#include "tools/common/NumberFlag.h"
#include "tools/common/ToolMain.h"
#include "tools/common/WordFlag.h"

using namespace braid;

/// A flag that names a phase.
static void addPhase(CLI::App &app, const char *flag, std::optional<Phase> &phase, const char *help) {
  app.add_option_function<std::string>(
         flag, [&phase](const std::string &name) { phase = parsePhase(name); }, help)
      ->type_name("PHASE")
      ->check([](const std::string &name) {
        return parsePhase(name) ? std::string() : "there is no phase '" + name + "'; there are " + phaseNames();
      });
}

/// What `Target` cannot parse is wrong with the command line.
template <typename Target> static std::string whyNot(const std::string &text) {
  llvm::Expected<Target> target = Target::parse(text);
  return target ? std::string() : llvm::toString(target.takeError());
}

int main(int argc, char **argv) {
  if (int code = beginTool("braid-compile"))
    return code;
  CLI::App app("Compiles a model description (.json) or a module (.mlir) into one executable program file.\n"
               "Phases: " +
                   phaseNames() + ".",
               "braid-compile");
  app.get_formatter()->column_width(36);
  CompileJob job;
  CompileOptions &options = job.options;
  app.add_option("input", job.input, "model description (.json) or module (.mlir)")
      ->required()
      ->type_name("MODEL.json|FILE.mlir");
  app.add_option("-o,--output", job.output, "program; with --to-phase a module, - for standard output")
      ->required()
      ->type_name("P.braid");
  oneOf(app.add_option("--target", options.target, "machines that run the program: cpu or cuda (default cpu)"),
        {"cpu", "cuda"})
      ->type_name("NAME");
  app.add_option("--arch", options.arch, "with --target=cuda: sm_90a (H100, H200) or sm_80 (A100) (default sm_90a)")
      ->check(whyNot<CudaTarget>)
      ->type_name("NAME");
  oneOf(app.add_option("--gemm", options.gemm,
                       "with --target=cuda: matrix products by kernels of the program or by NVIDIA's library, which "
                       "braid-run then opens: kernels or cublaslt (default kernels)"),
        {"kernels", "cublaslt"})
      ->type_name("NAME");
  oneOf(app.add_option("--f32-products", options.f32Products,
                       "with --target=cuda: products of f32 matrices: parts (three of bf16 for each number, on tensor "
                       "cores, where that is faster: as exact, but NaN where f32 may be infinite) or fma (on the units "
                       "for f32) (default parts)"),
        {"parts", "fma"})
      ->type_name("NAME");
  oneOf(app.add_option("--products", options.products,
                       "with --target=cuda --arch=sm_90a: how matrix products are computed: by blocks, by clusters of "
                       "two blocks, which bring the operand that they share once for both (on an H200 as fast in a "
                       "step), or staggered, half of a block's warps some steps behind the others, which store "
                       "meanwhile (not run on a device yet) (default blocks)"),
        {"blocks", "clusters", "staggered"})
      ->type_name("NAME");
  oneOf(app.add_option(
            "--attention", options.attention,
            "with --target=cuda --arch=sm_90a: how keys and values come to attention of many rows, and tokens to "
            "scans that walk over chunks: by rows or in boxes, which is faster (default boxes)"),
        {"rows", "boxes"})
      ->type_name("NAME");
  oneOf(app.add_option("--weight-gradients", options.weightGradients,
                       "with --target=cuda: when products that make gradients of weights run: in_order, or beside what "
                       "the layer's backward does next, on a stream of their own, which takes more memory and on "
                       "one H200 was no faster (default in_order)"),
        {"in_order", "beside"})
      ->type_name("NAME");
  oneOf(app.add_option(
            "--expert-weights", options.expertWeights,
            "with --target=cuda, training: where experts' rows are weighted: combine (where they are combined) or "
            "rows (before their last product, which keeps less; on an H200 as fast; not in token slices, nor "
            "where rows are exchanged between ranks) (default combine)"),
        {"combine", "rows"})
      ->type_name("NAME");
  oneOf(
      app.add_option("--assembly", options.assembly,
                     "with --target=cuda: who makes machine code: linked (the toolkit's library, as if other code were "
                     "linked to it; what spills registers so, ptxas) or whole (the toolkit's ptxas: fewer registers in "
                     "many kernels; not run on a device yet) (default linked)"),
      {"linked", "whole"})
      ->type_name("NAME");
  app.add_option("--cpu", options.cpu,
                 "what the kernels may use: native, x86-64-v3 or x86-64-v4, with features to add, as in "
                 "x86-64-v4,avx512bf16 (default native)")
      ->check(whyNot<CpuTarget>)
      ->type_name("CPU");
  CLI::Option *level =
      app.add_option("--opt-level", options.optLevel,
                     "machine code of CPUs: 2 (optimised) or 0 (compiles in a third of the time, runs half as fast) "
                     "(default: $BRAID_OPT_LEVEL, else 2)");
  orVariable(app, oneOf(level, {"0", "2"}), "BRAID_OPT_LEVEL")->type_name("N");
  oneOf(app.add_option("--dtype", options.dtype,
                       "matrices and activations, instead of the model's dtype: f32, bf16 or f64"),
        {"f32", "bf16", "f64"})
      ->type_name("TYPE");
  oneOf(app.add_option("--gradient-dtype", options.gradientDtype,
                       "gradients of bf16 matrices, instead of train.gradient_dtype: f32 or bf16"),
        {"f32", "bf16"})
      ->type_name("TYPE");
  oneOf(app.add_option("--moment-dtype", options.momentDtype,
                       "both of AdamW's moments of bf16 matrices, instead of train.moment_dtype: f32 or bf16"),
        {"f32", "bf16"})
      ->type_name("TYPE");
  integerIn(app.add_option("--batch", options.batch, "rows per training step, instead of train.batch"), 1, maxTokens);
  integerIn(app.add_option("--seq-len", options.seqLen, "tokens per row, instead of train.seq_len"), 1, maxTokens);
  integerIn(app.add_option("--decode-batch", options.decodeBatch,
                           "sequences that generation continues at a time, instead of decode_batch"),
            1, maxDecodeBatch);
  integerIn(app.add_option("--context-len", options.contextLen,
                           "tokens that a generation can hold, instead of context_len: caches are as long"),
            1, maxTokens);
  integerIn(app.add_option("--accumulation-steps", options.accumulationSteps,
                           "batches whose gradients make one update, instead of train.accumulation_steps"),
            1, maxAccumulationSteps);
  integerIn(
      app.add_option("--micro-batches", options.microBatches,
                     "parts of a batch's rows that go through the layers, or the stages of a pipeline (pp), one after "
                     "the other, instead of train.micro_batches (default with stages: the most that divide a rank's "
                     "rows, up to 4 a stage; 1 for gradients in bf16)"),
      1, maxMicroBatches);
  app.add_option(
         "--stage-layers", options.stageLayers,
         "layers of each stage of a pipeline (pp), as in 7,9,8 (default: the model's, else by what they will take)")
      ->type_name("N,..");
  oneOf(app.add_option(
            "--stage-order", options.stageOrder,
            "order of micro-batches on a stage: 1F1B, or ZB-H1, which sends a cotangent on before gradients of "
            "weights are computed (default: the model's, else 1F1B)"),
        schedule::stageOrderNames)
      ->type_name("NAME");
  oneOf(app.add_option(
            "--head-stages", options.headStages,
            "stages that have the head: last, all, which divide its words, or auto, by what takes less (default: the "
            "model's, else auto)"),
        schedule::headStagesNames)
      ->type_name("NAME");
  app.add_option("--recompute", options.recompute,
                 "layers whose activations the backward computes again: none, all, or 0,4-7 (default: the model's)")
      ->type_name("LAYERS");
  integerIn(app.add_option("--activation-budget", options.activationBudget,
                           "bytes per rank of activations kept for the backward; the rest is computed again"),
            0, INT64_MAX, " bytes")
      ->type_name("BYTES");
  integerIn(app.add_option("--reductions-in-flight", options.reductionsInFlight,
                           "bytes of gradients per rank whose sums may travel while the backward goes on; 0: none past "
                           "the end of their layer (default: those of one layer)"),
            0, INT64_MAX, " bytes")
      ->type_name("BYTES");
  notEmpty(app.add_option(
               "--mesh", options.mesh,
               "ranks by axis, e.g. pp=2,dp=2,tp=2,ep=2 (pp: stages of layers; ep and etp: experts over the ranks "
               "of the others)"))
      ->type_name("AXIS=N,..");
  numberIn(app.add_option("--expert-room", options.expertRoom,
                          "rows of experts that a rank has room for from each other one, in even shares; with more a "
                          "step ends with an error (default: the model's, or room for all that there may be)"),
           From::least, 1, 1e6);
  oneOf(app.add_option("--sp-algorithm", options.spAlgorithm,
                       "how states of scans travel along sp: auto, ring, all_gather or scan (default: the model's)"),
        {"auto", "ring", "all_gather", "scan"})
      ->type_name("NAME");
  oneOf(app.add_option("--pipeline", options.pipeline,
                       "order of mixer and expert slices: none, moe, aAaM, 1A1M, cross-block or best "
                       "(schedule/README.md; default: the model's)"),
        schedule::pipelineNames)
      ->type_name("NAME");
  integerIn(app.add_option("--overlap-degree", options.overlapDegree,
                           "token slices of a layer, 1 to 16 (default: the model's)"),
            1, 16);
  app.add_option("--overlap-degrees", options.overlapDegrees,
                 "layers with another number of token slices, as in 0-1:2,3:1 (default: the model's)")
      ->type_name("LAYERS:N,..");
  oneOf(app.add_option("--slicing", options.slicing,
                       "slices of softmax attention: uniform (equal but for one token), time_uniform, balanced or "
                       "simulated (schedule/README.md; default: the model's); layers that cost the same for every "
                       "token are cut uniformly"),
        schedule::slicingNames)
      ->type_name("NAME");
  chunkSize(app.add_option(
      "--chunk-size", options.chunkSize,
      "tokens per chunk of every scan, 16 to 128, a multiple of 16 (default: the model's, else by transition class)"));
  addPhase(app, "--from-phase", options.fromPhase, "the phase FILE.mlir is in, if it does not say so itself");
  addPhase(app, "--to-phase", options.toPhase, "stop at the end of this phase and write the module");
  app.add_option("--dump-phases-to", options.dumpPhasesTo, "write the module at every phase to DIR/NN-phase.mlir")
      ->type_name("DIR");
  CLI::Option *cache = app.add_option("--kernel-cache", options.kernelCache,
                                      "take machine code of kernels from DIR where it was compiled before, and keep "
                                      "it there (default: $BRAID_KERNEL_CACHE, else none)");
  orVariable(app, notEmpty(cache), "BRAID_KERNEL_CACHE")->type_name("DIR");
  app.add_flag("--explain", options.explain, "what every command does, planned memory, compile time");
  return runTool(app, argc, argv, [&] {
    if (std::string warning = tune::staleWarning(job.input, options); !warning.empty())
      std::cerr << "braid-compile: warning: " << warning << '\n';
    options.secondsOf = plan::secondsOnMachine;
    options.given = givenFlags(app);
    return compile(job) ? 0 : 1;
  });
}
