//===- Description.cpp - flags of braid-plan that a description is compiled with ----------------------------------===//
#include "compiler/CompileOptions.h"
#include "frontend/ModelSpec.h"
#include "schedule/Slicing.h"
#include "schedule/Stages.h"
#include "tools/braid-plan/Commands.h"
#include "tools/common/IntegerFlag.h"
#include "tools/common/NumberFlag.h"
#include "tools/common/WordFlag.h"

using namespace braid;

std::vector<CLI::Option *> plan::addDescription(CLI::App &app, CompileOptions &compile, bool ofOneMesh) {
  std::vector<CLI::Option *> added;
  auto of = [&](CLI::Option *option) {
    added.push_back(option);
    return option;
  };
  compile.cpu = plannedCpu;
  auto asCompile = [](const char *more = "") { return std::string("of MODEL.json, as braid-compile") + more; };
  if (ofOneMesh)
    notEmpty(of(app.add_option("--mesh", compile.mesh, asCompile(" (default: all ranks of the cluster)"))))
        ->type_name("AXIS=N,..");
  oneOf(
      of(app.add_option("--target", compile.target, asCompile(" (default: what the cluster's devices are, else cpu)"))),
      {"cpu", "cuda"})
      ->type_name("NAME");
  oneOf(of(app.add_option("--arch", compile.arch, asCompile(" (default: that of the cluster's devices, else sm_90a)"))),
        {"sm_90a", "sm_80"})
      ->type_name("NAME");
  notEmpty(of(app.add_option("--cpu", compile.cpu,
                             asCompile(": chunk sizes follow from it (default x86-64-v3, wherever it is planned)"))))
      ->type_name("CPU");
  oneOf(of(app.add_option("--pipeline", compile.pipeline, asCompile())), schedule::pipelineNames)->type_name("NAME");
  integerIn(of(app.add_option("--overlap-degree", compile.overlapDegree, asCompile())), 1, 16);
  of(app.add_option("--overlap-degrees", compile.overlapDegrees, asCompile()))->type_name("LAYERS:N,..");
  oneOf(of(app.add_option("--slicing", compile.slicing, asCompile())), schedule::slicingNames)->type_name("NAME");
  chunkSize(of(app.add_option("--chunk-size", compile.chunkSize, asCompile())));
  numberIn(of(app.add_option("--expert-room", compile.expertRoom, asCompile())), From::least, 1, 1e6);
  oneOf(of(app.add_option("--sp-algorithm", compile.spAlgorithm, asCompile())), {"auto", "ring", "all_gather", "scan"})
      ->type_name("NAME");
  integerIn(of(app.add_option("--accumulation-steps", compile.accumulationSteps, asCompile())), 1,
            maxAccumulationSteps);
  integerIn(of(app.add_option("--micro-batches", compile.microBatches, asCompile())), 1, maxMicroBatches);
  oneOf(of(app.add_option("--stage-order", compile.stageOrder, asCompile())), schedule::stageOrderNames)
      ->type_name("NAME");
  oneOf(of(app.add_option("--head-stages", compile.headStages, asCompile())), schedule::headStagesNames)
      ->type_name("NAME");
  if (ofOneMesh)
    of(app.add_option("--stage-layers", compile.stageLayers, asCompile()))->type_name("N,..");
  integerIn(of(app.add_option("--batch", compile.batch, asCompile())), 1, maxTokens);
  integerIn(of(app.add_option("--seq-len", compile.seqLen, asCompile())), 1, maxTokens);
  integerIn(of(app.add_option("--decode-batch", compile.decodeBatch, asCompile())), 1, maxDecodeBatch);
  integerIn(of(app.add_option("--context-len", compile.contextLen, asCompile())), 1, maxTokens);
  oneOf(of(app.add_option("--dtype", compile.dtype, asCompile())), {"f32", "bf16", "f64"})->type_name("TYPE");
  oneOf(of(app.add_option("--gradient-dtype", compile.gradientDtype, asCompile())), {"f32", "bf16"})->type_name("TYPE");
  oneOf(of(app.add_option("--moment-dtype", compile.momentDtype, asCompile())), {"f32", "bf16"})->type_name("TYPE");
  of(app.add_option("--recompute", compile.recompute, asCompile()))->type_name("LAYERS");
  integerIn(of(app.add_option("--activation-budget", compile.activationBudget, asCompile())), 0, INT64_MAX, " bytes");
  return added;
}
