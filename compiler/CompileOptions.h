//===- CompileOptions.h - what a person can ask of the compiler ---------------------------------------------------===//
#ifndef COMPILER_COMPILEOPTIONS_H
#define COMPILER_COMPILEOPTIONS_H

#include "passes/Phases.h"
#include "passes/analysis/Machine.h"

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace braid {

/// What programs are compiled for that are only looked at, for machines that may not be at hand: chunk sizes follow from
/// it, and a plan must not depend on the machine that plans.
inline constexpr const char *plannedCpu = "x86-64-v3";

/// One member per flag of braid-compile, same name.
struct CompileOptions {
  std::string target = "cpu"; ///< cpu or cuda
  std::string arch = "sm_90a"; ///< target cuda: sm_90a or sm_80
  std::string gemm = "kernels"; ///< target cuda: who makes matrix products that are not grouped: kernels or cublaslt
  std::string f32Products = "parts"; ///< target cuda: products of f32 matrices: of parts in bf16, where faster, or fma
  std::string products =
      "blocks"; ///< target cuda: of products, blocks, clusters (which share an operand) or staggered (warpgroups)
  std::string attention; ///< target cuda: how tiles come to attention of many rows: rows (by threads) or boxes; empty:
  ///< boxes where the architecture has them
  std::string weightGradients = "in_order"; ///< target cuda: products that make them: in_order, or beside the rest
  std::string expertWeights = "combine"; ///< target cuda, training: where rows of experts are weighted: where they are
  ///< combined, or as rows before their last product
  std::string assembly = "linked"; ///< target cuda: machine code by the toolkit's library, or whole, by its ptxas
  std::string cpu = "native"; ///< native, x86-64-v3, x86-64-v4; then features to add: "x86-64-v4,avx512bf16"
  int optLevel = 2; ///< target cpu: of machine code; 0: made in a quarter of the time, and half as fast
  std::optional<int64_t> batch; ///< instead of the model's train.batch
  std::optional<int64_t> seqLen; ///< instead of the model's train.seq_len
  std::optional<int64_t> decodeBatch; ///< instead of the model's decode_batch
  std::optional<int64_t> contextLen; ///< instead of the model's context_len
  std::optional<int64_t> accumulationSteps; ///< instead of the model's train.accumulation_steps
  std::optional<int64_t> microBatches; ///< instead of the model's train.micro_batches
  std::optional<std::string> stageLayers; ///< instead of the model's schedule.stage_layers: "7,9,8"
  std::optional<std::string> stageOrder; ///< instead of the model's schedule.stage_order
  std::optional<std::string> headStages; ///< instead of the model's schedule.head_stages
  std::optional<std::string> recompute; ///< instead of the model's schedule.recompute: none, all, or layers "0,4-7"
  std::optional<int64_t> activationBudget; ///< bytes per rank, instead of the model's schedule.activation_budget
  std::optional<int64_t> reductionsInFlight; ///< bytes of gradients whose sums travel; absent: those of one layer
  std::optional<double> expertRoom; ///< instead of the model's schedule.expert_room
  std::optional<std::string> spAlgorithm; ///< instead of the model's schedule.sp_algorithm
  std::optional<std::string> dtype; ///< instead of the model's dtype
  std::optional<std::string> gradientDtype; ///< instead of the model's train.gradient_dtype
  std::optional<std::string> momentDtype; ///< instead of the model's train.moment_dtype
  std::string mesh; ///< "dp=2,ep=2"; empty: one rank
  std::string pipeline; ///< none, moe, aAaM, 1A1M, cross-block, best; empty: the model's schedule.pipeline, else none
  int64_t overlapDegree = 0; ///< token slices of a layer; 0: the model's schedule.overlap_degree, else 1
  std::optional<std::string> overlapDegrees; ///< of some layers, "0-1:2,3:1", instead of schedule.overlap_degrees
  bool layersSliced = false; ///< of a model: there are layers that are cut whatever overlapDegree says
  std::string
      slicing; ///< uniform, time_uniform, balanced, simulated; empty: the model's schedule.slicing, else uniform
  int64_t chunkSize = 0; ///< tokens per chunk of a scan; 0: the model's schedule.chunk_size, else the compiler chooses
  std::optional<Phase> fromPhase; ///< the phase the input has reached
  std::optional<Phase> toPhase; ///< stop here; absent: write the program
  std::string dumpPhasesTo; ///< directory for NN-phase.mlir; empty: none
  std::optional<Machine> machine; ///< that choices are made by where a model has no schedule.machine; no flag
  std::string kernelCache; ///< directory of compiled kernels; empty: none
  std::vector<std::string>
      given; ///< flags of the command line, "--chunk-size=32": who gave them is told of those that change nothing
  bool tablesOnly = false; ///< nobody needs machine code; no flag
  bool explain = false;
  bool remarks = true; ///< on what was chosen; no flag
  bool oneThread = false; ///< of the compiler's own: there are several at a time; no flag
  bool joinLayers = true; ///< of pipeline best: neighbours may stand in one function; no flag
  /// Seconds of a step of a program file, with or without machine code, on ranks of such a machine; nothing after a
  /// message. `best` takes the fastest of its programs by it, or else decides layer by layer. No flag.
  std::function<std::optional<double>(const std::vector<uint8_t> &file, const Machine &machine)> secondsOf;

  /// "--gemm=kernels" where --gemm was given, else empty.
  std::string givenAs(const std::string &flag) const {
    for (const std::string &text : given)
      if (text == flag || text.starts_with(flag + "="))
        return text;
    return "";
  }
  bool slices() const { return !pipeline.empty() && pipeline != "none"; }
};

} // namespace braid

#endif // COMPILER_COMPILEOPTIONS_H
