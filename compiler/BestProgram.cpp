//===- BestProgram.cpp - the program that pipeline `best` becomes -------------------------------------------------===//
#include "compiler/BestProgram.h"

#include "compiler/serialize/ProgramWriter.h"

#include "mlir/IR/Diagnostics.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using namespace braid;

FailureOr<std::vector<uint8_t>> braid::writeTables(ModuleOp module, Phase from, const CompileOptions &options) {
  std::vector<StageTime> times;
  if (failed(runPhases(module, from, Phase::commands, options, times)))
    return failure();
  // A file whose kernels have no code is refused; what stands here cannot be executed.
  static constexpr StringLiteral noCode = "not compiled";
  return writeProgram(module, {"cpu", {}, ArrayRef(noCode.data(), noCode.size()), {}, {}});
}

/// The programs that `best` could be, each under its name.
static std::vector<std::pair<std::string, CompileOptions>> candidatesOf(const CompileOptions &options) {
  CompileOptions alone = options, pipelined = options, none = options;
  alone.joinLayers = false;
  pipelined.pipeline = "1A1M";
  none.pipeline = "none";
  none.overlapDegree = 1;
  none.overlapDegrees.reset();
  none.layersSliced = false;
  none.slicing = "uniform";
  return {{"layers joined", options}, {"layers alone", alone}, {"1A1M", pipelined}, {"none", none}};
}

FailureOr<CompileOptions> braid::fastestOfBest(ModuleOp module, Phase from, const CompileOptions &options,
                                               std::vector<StageTime> &times) {
  if (!options.secondsOf || options.pipeline != "best" || from >= Phase::scheduled ||
      options.toPhase.value_or(Phase::commands) < Phase::scheduled)
    return options;
  StageTimer timer(times, "best");
  std::optional<CompileOptions> fastest;
  double least = 0;
  std::string all, name;
  for (auto &[candidate, chosen] : candidatesOf(options)) {
    CompileOptions tables = chosen;
    tables.toPhase.reset();
    tables.dumpPhasesTo.clear();
    OwningOpRef<ModuleOp> copy = module.clone();
    FailureOr<std::vector<uint8_t>> bytes;
    {
      // What is said of the program that is taken is said when it is compiled.
      ScopedDiagnosticHandler errorsOnly(module.getContext(), [](Diagnostic &diagnostic) {
        return success(diagnostic.getSeverity() != DiagnosticSeverity::Error);
      });
      bytes = writeTables(*copy, from, tables);
    }
    std::optional<double> seconds = succeeded(bytes) ? options.secondsOf(*bytes, Machine::of(module)) : std::nullopt;
    if (!seconds)
      return failure();
    all += llvm::formatv("{0}{1} {2:f3}", all.empty() ? "" : ", ", candidate, 1e3 * *seconds).str();
    if (fastest && *seconds >= least)
      continue;
    fastest = chosen;
    least = *seconds;
    name = candidate;
  }
  if (options.remarks)
    module.emitRemark() << "best is the program with " << name << "; a step takes, in ms as predicted: " << all;
  return *fastest;
}
