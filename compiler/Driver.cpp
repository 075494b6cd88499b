//===- Driver.cpp - what braid-compile does with its flags --------------------------------------------------------===//
#include "compiler/Driver.h"

#include "compiler/Explain.h"
#include "compiler/Pipeline.h"
#include "compiler/codegen/cpu/CpuTarget.h"
#include "frontend/ModelBuilder.h"

#include "mlir/Parser/Parser.h"
#include "mlir/Support/FileUtilities.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/SourceMgr.h"
#include "llvm/Support/ToolOutputFile.h"

using namespace mlir;
using namespace braid;

static bool fail(const Twine &message) {
  llvm::errs() << "braid-compile: error: " << message << '\n';
  return false;
}

/// Modules built from a model have names instead of lines: "braid-compile: error: layers: layer_G: q: ..".
static LogicalResult printNamed(Diagnostic &diagnostic) {
  std::string names;
  bool lines = false;
  diagnostic.getLocation()->walk([&](Location loc) {
    lines |= isa<FileLineColLoc>(loc);
    if (auto name = dyn_cast<NameLoc>(loc))
      names += name.getName().str() + ": ";
    return WalkResult::advance();
  });
  if (lines)
    return failure(); // the source manager shows the line
  StringRef severity = "error";
  switch (diagnostic.getSeverity()) {
  case DiagnosticSeverity::Note: severity = "note"; break;
  case DiagnosticSeverity::Warning: severity = "warning"; break;
  case DiagnosticSeverity::Error: break;
  case DiagnosticSeverity::Remark: severity = "remark"; break;
  }
  llvm::errs() << "braid-compile: " << severity << ": " << names << diagnostic << '\n';
  for (Diagnostic &note : diagnostic.getNotes())
    llvm::errs() << "  note: " << note << '\n';
  return success();
}

/// A flag that would change nothing is a mistake, not a wish: each belongs to the phase whose passes read it.
static bool checkFlags(const CompileOptions &options, Phase from, Phase to) {
  struct Flag {
    const char *name;
    bool given;
    Phase phase;
  };
  const Flag flags[] = {{"--mesh", !options.mesh.empty(), Phase::sharded},
                        {"--pipeline", options.pipeline != "none", Phase::scheduled},
                        {"--overlap-degree", options.overlapDegree != 1, Phase::scheduled},
                        {"--chunk-size", options.chunkSize != 0, Phase::chunked}};
  for (const Flag &flag : flags) {
    if (!flag.given || (from < flag.phase && flag.phase <= to))
      continue;
    return fail(Twine(flag.name) + " is read on the way to phase " + phaseName(flag.phase) + ", but this compilation " +
                (from < flag.phase ? "stops at phase " + phaseName(to) : "begins in phase " + phaseName(from)));
  }
  if (options.pipeline != "none" && options.overlapDegree == 1)
    return fail("--pipeline=" + options.pipeline + " orders slices, and --overlap-degree=1 cuts none; valid: 2 to 16");
  if (options.pipeline == "none" && options.overlapDegree != 1)
    return fail("--overlap-degree=" + Twine(options.overlapDegree) +
                " cuts slices that no --pipeline orders; valid: aAaM, 1A1M");
  return true;
}

/// A model description becomes a module in phase `model`.
static OwningOpRef<ModuleOp> buildFromModel(MLIRContext &context, const CompileJob &job, StringRef text) {
  auto report = [](const std::string &message) { fail(message); };
  FailureOr<ModelSpec> spec = parseModelSpec(text, job.input, report);
  if (failed(spec))
    return {};
  if (job.options.batch)
    spec->train.batch = *job.options.batch;
  if (job.options.seqLen)
    spec->train.seqLen = *job.options.seqLen;
  if (job.options.accumulationSteps)
    spec->train.accumulationSteps = *job.options.accumulationSteps;
  std::string message;
  if (job.options.recompute && failed(parseRecompute(*job.options.recompute, spec->schedule, message))) {
    fail("--recompute: " + message);
    return {};
  }
  if (job.options.activationBudget)
    spec->schedule.activationBudget = job.options.activationBudget;
  if (!job.options.dtype.empty())
    spec->dtype = job.options.dtype;
  if (!job.options.gradientDtype.empty())
    spec->train.gradientDtype = job.options.gradientDtype;
  FailureOr<OwningOpRef<ModuleOp>> module = buildModel(&context, *spec, report);
  return failed(module) ? OwningOpRef<ModuleOp>() : std::move(*module);
}

/// A file appears complete or not at all: what an earlier compilation wrote stays until the new one is whole.
static bool write(StringRef path, StringRef contents) {
  std::string error;
  if (llvm::sys::fs::is_regular_file(path) || (path != "-" && !llvm::sys::fs::exists(path))) {
    llvm::Error failed = llvm::writeToOutput(path, [&](llvm::raw_ostream &stream) -> llvm::Error {
      auto &file = static_cast<llvm::raw_fd_ostream &>(stream);
      file << contents;
      file.flush();
      std::error_code code = file.error();
      file.clear_error();
      return code ? llvm::createFileError(path, code) : llvm::Error::success();
    });
    return failed ? fail("cannot write " + llvm::toString(std::move(failed))) : true;
  }
  std::unique_ptr<llvm::ToolOutputFile> file = openOutputFile(path, &error);
  if (!file)
    return fail(error);
  file->os() << contents;
  file->os().flush();
  if (file->os().has_error()) {
    error = file->os().error().message();
    file->os().clear_error();
    return fail("cannot write " + path + ": " + error);
  }
  file->keep();
  return true;
}

static bool compileModule(ModuleOp module, const CompileJob &job, bool isModel, std::vector<StageTime> &times) {
  const CompileOptions &options = job.options;
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
  if (!checkFlags(options, from, to))
    return false;
  // A module without a claim may hold ops of any model phase, gradients included: the next phase looks at it.
  if ((options.fromPhase || written) && failed(verifyPhase(module, from)))
    return false;
  if (failed(runPhases(module, from, to, options, times)))
    return false;

  if (options.toPhase) {
    std::string text;
    llvm::raw_string_ostream stream(text);
    printPhase(module, stream, /*locations=*/job.output != "-"); // a terminal is for reading
    return write(job.output, text);
  }
  FailureOr<std::vector<uint8_t>> program = compileProgram(module, options, times);
  return succeeded(program) &&
         write(job.output, StringRef(reinterpret_cast<const char *>(program->data()), program->size()));
}

bool braid::compile(const CompileJob &job) {
  StringRef input = job.input;
  bool isModel = input.ends_with(".json");
  if (!isModel && !input.ends_with(".mlir"))
    return fail(input + ": the input is a model description (.json) or a module (.mlir)");
  if (!isModel && (job.options.batch || job.options.seqLen))
    return fail((job.options.batch ? "--batch" : "--seq-len") + Twine(" belongs to a model description, ") + input +
                " has its shapes already");
  if (!isModel && job.options.accumulationSteps)
    return fail("--accumulation-steps belongs to a model description, " + input + " has its entry points already");
  if (!isModel && (job.options.recompute || job.options.activationBudget))
    return fail((job.options.recompute ? "--recompute" : "--activation-budget") +
                Twine(" belongs to a model description, ") + input + " has its layers already");
  if (!isModel && !(job.options.dtype.empty() && job.options.gradientDtype.empty()))
    return fail((job.options.dtype.empty() ? "--gradient-dtype" : "--dtype") +
                Twine(" belongs to a model description, ") + input + " has its types already");
  if (job.output == "-" && !job.options.toPhase)
    return fail("-o - prints a module; give --to-phase, or a file for the program");

  if (llvm::Expected<CpuTarget> target = CpuTarget::parse(job.options.cpu); !target)
    return fail("--cpu: " + llvm::toString(target.takeError()));

  DialectRegistry registry;
  registerCompiler(registry);
  MLIRContext context(registry);
  context.loadAllAvailableDialects();
  context.printOpOnDiagnostic(false);

  std::string error;
  std::unique_ptr<llvm::MemoryBuffer> file = openInputFile(input, &error);
  if (!file)
    return fail(error);
  StringRef text = file->getBuffer();
  llvm::SourceMgr sources;
  std::string copy = text.str(); // the source manager takes the buffer
  if (!isModel)
    sources.AddNewSourceBuffer(std::move(file), SMLoc());
  SourceMgrDiagnosticHandler withLines(sources, &context, llvm::errs());
  ScopedDiagnosticHandler withNames(&context, [](Diagnostic &diagnostic) { return printNamed(diagnostic); });
  OwningOpRef<ModuleOp> module =
      isModel ? buildFromModel(context, job, copy) : parseSourceFile<ModuleOp>(sources, ParserConfig(&context));
  if (!module)
    return false;
  std::vector<StageTime> times;
  if (!compileModule(*module, job, isModel, times))
    return false;
  if (job.options.explain)
    explain(*module, times, llvm::outs());
  return true;
}
