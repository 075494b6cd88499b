//===- Driver.cpp - what braid-compile does with its flags --------------------------------------------------------===//
#include "compiler/Driver.h"

#include "compiler/BestProgram.h"
#include "compiler/Diagnostics.h"
#include "compiler/Explain.h"
#include "compiler/Flags.h"
#include "compiler/InputFile.h"
#include "compiler/OutputFile.h"
#include "compiler/Pipeline.h"
#include "compiler/ScheduleKeys.h"
#include "compiler/StageCosts.h"
#include "compiler/serialize/ProgramWriter.h"
#include "dialects/braid/BraidDialect.h"
#include "dialects/braid/PassAttributes.h"
#include "frontend/ModelBuilder.h"
#include "passes/analysis/Machine.h"
#include "passes/analysis/Mesh.h"

#include "mlir/Parser/Parser.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/SourceMgr.h"

using namespace mlir;
using namespace braid;

static bool fail(const Twine &message) {
  printError(message);
  return false;
}

/// Flags in the place of the keys that a description or a module has; `keys` is then what both say together, for whoever
/// goes on where this compilation stops. Keys order what a mesh gives them: without ranks along ep there is nothing to
/// order, and they say nothing; a flag is asked for. `marked`: of a module, there are layers with slices of their own.
static void resolveSchedule(CompileOptions &options, ScheduleSpec &keys, bool marked, Phase from, Phase to) {
  bool asked = !options.pipeline.empty() || options.overlapDegree > 0 || options.overlapDegrees;
  bool read = from < Phase::scheduled && Phase::sharded <= to;
  // What a sharded module carries has met its mesh.
  if (read && from < Phase::sharded && !asked) {
    llvm::Expected<Mesh> mesh = Mesh::parse(options.mesh);
    bool exchanges = mesh && mesh->size("ep") > 1;
    llvm::consumeError(mesh.takeError());
    if (!exchanges)
      keys.pipeline = "none";
  }
  bool whole = options.overlapDegree == 1 && !options.overlapDegrees;
  if (options.pipeline.empty())
    options.pipeline = read && !whole ? keys.pipeline : "none";
  // One number for all layers takes the place of those of some.
  if ((read || asked) && (options.pipeline == "none" || (options.overlapDegree > 0 && !options.overlapDegrees)))
    keys.overlapDegrees.clear();
  if (options.overlapDegree == 0)
    options.overlapDegree = options.pipeline == "none" ? 1 : keys.overlapDegree;
  options.layersSliced =
      read && (marked || llvm::any_of(keys.overlapDegrees, [](auto &layer) { return layer.second > 1; }));
  // checkFlags complains of one without the other.
  bool orders = (options.overlapDegree > 1 || options.layersSliced) && options.pipeline != "none";
  if (read || asked) {
    keys.pipeline = orders ? options.pipeline : "none";
    keys.overlapDegree = orders ? options.overlapDegree : 1;
    if (!orders)
      keys.overlapDegrees.clear();
    if (!options.slicing.empty() || !orders)
      keys.slicing = options.slicing.empty() ? "uniform" : options.slicing;
  }
  if (options.slicing.empty())
    options.slicing = read && Phase::scheduled <= to ? keys.slicing : "uniform";
  if (options.chunkSize != 0)
    keys.chunkSize = options.chunkSize;
  else if (from < Phase::chunked && Phase::chunked <= to)
    options.chunkSize = keys.chunkSize;
}

/// Stages and micro-batches of a description, as the mesh has them.
static void resolveStages(const Mesh &mesh, ModelSpec &spec, KeyErrorFn error) {
  int64_t &parts = spec.train.microBatches, rows = spec.train.batch, ranks = mesh.size("dp");
  spec.schedule.stages = mesh.size("pp");
  spec.schedule.wordRanks = mesh.size("pp") * mesh.size("tp");
  // What does not divide the batch is said of the batch.
  if (parts == 0 && spec.schedule.stages > 1) {
    bool onlyOne = rows % ranks || spec.train.gradientDtype == "bf16"; // which loses what several add up
    int64_t most = onlyOne ? 1 : std::min({rows / ranks, 4 * spec.schedule.stages, maxMicroBatches});
    for (parts = most; rows / ranks % parts;)
      --parts;
  }
  if (parts > 1 && rows % parts == 0 && rows % ranks == 0 && rows / parts % ranks)
    error("train.micro_batches",
          llvm::formatv("each of {0} parts of train.batch {1} has {2} rows, which dp = {3} ranks (--mesh) do not "
                        "divide; valid: a divisor of {4}, the rows of a rank",
                        parts, rows, rows / parts, ranks, rows / ranks)
              .str());
}

FailureOr<ModelSpec> braid::readModel(const CompileOptions &options, StringRef text, StringRef filename) {
  llvm::Expected<Mesh> mesh = Mesh::parse(options.mesh);
  if (!mesh)
    return fail("--mesh=" + options.mesh + ": " + llvm::toString(mesh.takeError())), failure();
  bool stages = mesh->size("pp") > 1;
  if (options.stageLayers && !stages)
    return fail("--stage-layers=" + *options.stageLayers +
                " shares layers out among stages, and pp is 1 in --mesh; valid: with pp=2 or more in --mesh"),
           failure();
  if (options.stageOrder && !stages)
    return fail("--stage-order=" + *options.stageOrder +
                " orders the micro-batches of stages, and pp is 1 in --mesh; valid: with pp=2 or more in --mesh"),
           failure();
  if (options.headStages && *options.headStages != "auto" && !stages)
    return fail("--head-stages=" + *options.headStages +
                " says which stages have the head, and pp is 1 in --mesh; valid: with pp=2 or more in --mesh"),
           failure();
  std::vector<KeyOverride> overrides;
  auto take = [&](StringRef flag, StringRef path, const auto &value) {
    if (value)
      overrides.push_back({flag, path, *value});
  };
  take("--batch", "train.batch", options.batch);
  take("--seq-len", "train.seq_len", options.seqLen);
  take("--decode-batch", "decode_batch", options.decodeBatch);
  take("--context-len", "context_len", options.contextLen);
  take("--accumulation-steps", "train.accumulation_steps", options.accumulationSteps);
  take("--micro-batches", "train.micro_batches", options.microBatches);
  take("--stage-layers", "schedule.stage_layers", options.stageLayers);
  take("--stage-order", "schedule.stage_order", options.stageOrder);
  take("--head-stages", "schedule.head_stages", options.headStages);
  take("--recompute", "schedule.recompute", options.recompute);
  take("--activation-budget", "schedule.activation_budget", options.activationBudget);
  take("--expert-room", "schedule.expert_room", options.expertRoom);
  take("--sp-algorithm", "schedule.sp_algorithm", options.spAlgorithm);
  take("--dtype", "dtype", options.dtype);
  take("--gradient-dtype", "train.gradient_dtype", options.gradientDtype);
  take("--moment-dtype", "train.moment_dtype", options.momentDtype);
  return parseModelSpec(
      text, filename, [](const std::string &message) { fail(message); }, overrides,
      [&](ModelSpec &spec, KeyErrorFn error) { resolveStages(*mesh, spec, error); });
}

/// A model description, with flags in the place of its keys, becomes a module in phase `model`.
static OwningOpRef<ModuleOp> buildFromModel(MLIRContext &context, CompileJob &job, StringRef text) {
  CompileOptions &options = job.options;
  FailureOr<ModelSpec> spec = readModel(options, text, job.input);
  if (failed(spec))
    return {};
  if (options.overlapDegrees) {
    std::string message;
    if (failed(parseOverlapDegrees(*options.overlapDegrees, spec->schedule, message)))
      return fail("--overlap-degrees=" + *options.overlapDegrees + ": " + message), nullptr;
    if (int64_t last = spec->schedule.overlapDegrees.empty() ? 0 : spec->schedule.overlapDegrees.rbegin()->first;
        last >= spec->numLayers)
      return fail(Twine("--overlap-degrees=") + *options.overlapDegrees + ": there is no layer " + Twine(last) +
                  " of " + Twine(spec->numLayers) + "; valid: layers 0 to " + Twine(spec->numLayers - 1)),
             nullptr;
  }
  resolveSchedule(options, spec->schedule, /*marked=*/false, Phase::model, options.toPhase.value_or(Phase::commands));
  auto report = [](const std::string &message) { fail(message); };
  std::optional<Machine> machine = options.machine;
  if (const std::optional<MachineSpec> &known = spec->schedule.machine)
    machine = {known->flops, known->bandwidth, known->overhead, known->linkBandwidth, known->linkLatency};
  else if (!machine && options.target == "cuda")
    machine = Machine::ofGpu(StringRef(options.arch).starts_with("sm_9"), spec->dtype == "bf16");
  FailureOr<OwningOpRef<ModuleOp>> module = buildModel(
      &context, *spec, report, stageCosts(machine.value_or(Machine()), llvm::cantFail(Mesh::parse(options.mesh))));
  if (failed(module))
    return {};
  if (!job.isRepeated)
    for (const std::string &warning : spec->warnings)
      (*module)->emitWarning() << warning;
  setScheduleKeys(**module, spec->schedule);
  if (machine)
    (**module)->setAttr(attrs::machine, machine->toAttr(&context));
  return std::move(*module);
}

static bool write(StringRef path, StringRef contents) {
  llvm::Error failed = writeOutput(path, contents);
  return failed ? fail(llvm::toString(std::move(failed))) : true;
}

/// Everything the command writes, before anything is: no file may take the place of the input or of another one.
static bool checkFiles(const CompileJob &job, Phase from, Phase to) {
  std::vector<NamedFile> outputs = {
      {"-o " + job.output, job.output, job.options.toPhase ? FileKind::module : FileKind::program}};
  if (job.options.explain)
    outputs.push_back({"--explain", "-"});
  if (!job.options.dumpPhasesTo.empty())
    for (Phase phase : allPhases())
      if (from <= phase && phase <= to)
        outputs.push_back({"--dump-phases-to=" + job.options.dumpPhasesTo, dumpPath(job.options.dumpPhasesTo, phase),
                           FileKind::module});
  if (!job.options.dumpPhasesTo.empty() && job.options.target == "cuda" && !job.options.toPhase)
    outputs.push_back({"--dump-phases-to=" + job.options.dumpPhasesTo, ptxPath(job.options.dumpPhasesTo)});
  llvm::Error same = checkOutputs(NamedFile{"the input " + job.input, job.input}, outputs);
  return same ? fail(llvm::toString(std::move(same))) : true;
}

static bool compileModule(ModuleOp module, const CompileJob &job, bool isModel, std::vector<StageTime> &times) {
  CompileOptions options = job.options;
  std::optional<Phase> written = phaseOf(module);
  Phase from = options.fromPhase.value_or(written.value_or(Phase::model));
  if (options.fromPhase && written && *options.fromPhase != *written)
    return fail("--from-phase=" + phaseName(*options.fromPhase) + ", but " + job.input + " says that it is in phase " +
                phaseName(*written));
  if (isModel && from != Phase::model)
    return fail("--from-phase=" + phaseName(from) + ": a model description begins in phase model");
  Phase to = options.toPhase.value_or(Phase::commands);
  if (to < from)
    return fail("cannot go back from phase " + phaseName(from) + " to phase " + phaseName(to));
  if (!checkFlags(options, from, to) || !checkFiles(job, from, to))
    return false;
  // A module without a claim may hold ops of any model phase, gradients included: the next phase looks at it.
  if ((options.fromPhase || written) && failed(verifyPhase(module, from)))
    return false;
  if (failed(checkChunkTarget(module, options)))
    return false;
  FailureOr<CompileOptions> best = fastestOfBest(module, from, options, times);
  if (failed(best))
    return false;
  options = std::move(*best);
  if (failed(runPhases(module, from, to, options, times)))
    return false;

  std::string contents;
  std::vector<CudaKernel> kernels;
  llvm::raw_string_ostream stream(contents);
  if (options.toPhase) {
    printPhase(module, stream, /*locations=*/job.output != "-"); // a terminal is for reading
  } else {
    FailureOr<CompiledProgram> program = compileProgram(module, options, times);
    if (failed(program))
      return false;
    contents.assign(program->bytes.begin(), program->bytes.end());
    kernels = std::move(program->kernels);
  }
  // First the page: should nobody be able to read it, the command fails and leaves no file.
  if (options.explain) {
    std::string page;
    llvm::raw_string_ostream pageStream(page);
    explain(module, times, kernels, pageStream);
    if (!write("-", page))
      return false;
  }
  return write(job.output, contents);
}

/// Where the file is no text, as a message: "byte 0x7f at offset 0".
static std::optional<std::string> findBinary(StringRef text) {
  for (auto [offset, c] : llvm::enumerate(text))
    if ((static_cast<unsigned char>(c) < 0x20 && !llvm::isSpace(c)) || c == 0x7f)
      return llvm::formatv("byte {0:x2} at offset {1}", static_cast<unsigned char>(c), offset).str();
  return std::nullopt;
}

/// Reads the input of a job and calls `use` with its module; false after a message.
static bool withModule(
    CompileJob job,
    llvm::function_ref<bool(ModuleOp module, const CompileJob &job, bool isModel, std::vector<StageTime> &times)> use) {
  StringRef input = job.input;
  bool isModel = input.ends_with(".json");
  if (!isModel && !input.ends_with(".mlir") && llvm::sys::fs::is_directory(input))
    return fail(llvm::toString(readInput(input).takeError()));
  if (!isModel && !input.ends_with(".mlir"))
    return fail(input + ": the input is a model description (.json) or a module (.mlir)");
  if (!isModel && (job.options.batch || job.options.seqLen || job.options.decodeBatch || job.options.contextLen))
    return fail((job.options.batch         ? "--batch"
                 : job.options.seqLen      ? "--seq-len"
                 : job.options.decodeBatch ? "--decode-batch"
                                           : "--context-len") +
                Twine(" belongs to a model description, ") + input + " has its shapes already");
  if (!isModel && job.options.accumulationSteps)
    return fail("--accumulation-steps belongs to a model description, " + input + " has its entry points already");
  if (!isModel &&
      (job.options.microBatches || job.options.stageLayers || job.options.stageOrder || job.options.headStages))
    return fail((job.options.microBatches  ? "--micro-batches"
                 : job.options.stageLayers ? "--stage-layers"
                 : job.options.stageOrder  ? "--stage-order"
                                           : "--head-stages") +
                Twine(" belongs to a model description, ") + input + " has its entry points already");
  if (!isModel && (job.options.recompute || job.options.activationBudget))
    return fail((job.options.recompute ? "--recompute" : "--activation-budget") +
                Twine(" belongs to a model description, ") + input + " has its layers already");
  if (!isModel && job.options.overlapDegrees)
    return fail(Twine("--overlap-degrees belongs to a model description, ") + input +
                " marks its layers (braid.overlap_degree)");
  for (auto [flag, type] : {std::pair("--dtype", &job.options.dtype),
                            {"--gradient-dtype", &job.options.gradientDtype},
                            {"--moment-dtype", &job.options.momentDtype}})
    if (!isModel && *type)
      return fail(Twine(flag) + " belongs to a model description, " + input + " has its types already");

  if (!checkTarget(job.options))
    return false;
  llvm::Expected<Mesh> mesh = Mesh::parse(job.options.mesh);
  if (!mesh)
    return fail("--mesh=" + job.options.mesh + ": " + llvm::toString(mesh.takeError()));
  if (job.options.expertRoom && !isModel)
    return fail(Twine("--expert-room belongs to a model description, ") + input + " has its own (braid.expert_room)");
  if (job.options.expertRoom && mesh->size("ep") == 1)
    return fail("--expert-room says for how many rows of experts other ranks have room, and ep is 1 in --mesh; valid: "
                "with ep=2 "
                "or more in --mesh");
  if (job.options.spAlgorithm && !isModel)
    return fail(Twine("--sp-algorithm belongs to a model description, ") + input +
                " names its own (braid.sp_algorithm)");
  if (job.options.spAlgorithm && mesh->size("sp") == 1)
    return fail("--sp-algorithm=" + *job.options.spAlgorithm +
                " says what ranks along sp send, and sp is 1 in --mesh; valid: with sp=2 or more in --mesh");

  DialectRegistry registry;
  registerCompiler(registry);
  MLIRContext context(registry,
                      job.options.oneThread ? MLIRContext::Threading::DISABLED : MLIRContext::Threading::ENABLED);
  context.loadAllAvailableDialects();
  context.printOpOnDiagnostic(false);

  llvm::Expected<std::string> read = readInput(input);
  if (!read)
    return fail(llvm::toString(read.takeError()));
  const std::string &text = *read;
  if (std::optional<std::string> binary = findBinary(text); binary && !isModel)
    return fail(input + ": " + *binary + " is no text; valid: a module as text");
  llvm::SourceMgr sources; // takes the buffer
  if (!isModel)
    sources.AddNewSourceBuffer(llvm::MemoryBuffer::getMemBuffer(text, input), SMLoc());
  ScopedDiagnosticHandler print(
      &context, [&](Diagnostic &diagnostic) { printDiagnostic(diagnostic, isModel ? StringRef() : text); });
  OwningOpRef<ModuleOp> module =
      isModel ? buildFromModel(context, job, text) : parseSourceFile<ModuleOp>(sources, ParserConfig(&context));
  if (!module)
    return false;
  if (!isModel) {
    FailureOr<ScheduleSpec> keys = scheduleKeysOf(*module);
    if (failed(keys))
      return false;
    // One number for all layers takes the place of those that layers have.
    if (job.options.overlapDegree > 0 && !job.options.overlapDegrees)
      for (auto layer : module->getOps<func::FuncOp>())
        layer->removeAttr(attrs::overlapDegree);
    bool marked = llvm::any_of(module->getOps<func::FuncOp>(), [](func::FuncOp layer) {
      auto own = layer->getAttrOfType<IntegerAttr>(attrs::overlapDegree);
      return own && own.getValue().sgt(1);
    });
    Phase from = job.options.fromPhase.value_or(phaseOf(*module).value_or(Phase::model));
    resolveSchedule(job.options, *keys, marked, from, job.options.toPhase.value_or(Phase::commands));
    setScheduleKeys(*module, *keys);
  }
  std::vector<StageTime> times;
  return use(*module, job, isModel, times);
}

bool braid::compile(const CompileJob &job) {
  if (job.output.empty())
    return fail("-o is empty; valid: a file, or - for standard output");
  if (job.output == "-" && !job.options.toPhase)
    return fail("-o - prints a module; give --to-phase, or a file for the program");
  return withModule(job, [](ModuleOp module, const CompileJob &job, bool isModel, std::vector<StageTime> &times) {
    return compileModule(module, job, isModel, times);
  });
}

std::optional<std::vector<uint8_t>> braid::compileTables(const CompileJob &asked) {
  CompileJob job = asked;
  job.options.tablesOnly = true;
  std::optional<std::vector<uint8_t>> bytes;
  bool done = withModule(job, [&](ModuleOp module, const CompileJob &job, bool, std::vector<StageTime> &times) {
    Phase from = phaseOf(module).value_or(Phase::model);
    if (!checkFlags(job.options, from, Phase::commands) || (phaseOf(module) && failed(verifyPhase(module, from))))
      return false;
    FailureOr<CompileOptions> options = fastestOfBest(module, from, job.options, times);
    if (failed(options))
      return false;
    FailureOr<std::vector<uint8_t>> program = writeTables(module, from, *options);
    if (succeeded(program))
      bytes = std::move(*program);
    return succeeded(program);
  });
  return done ? std::move(bytes) : std::nullopt;
}
