//===- Compiler.cpp - a model file in, a program file out --------------------------------------------------------------===//
#include "compiler/Compiler.h"
#include "compiler/Pipeline.h"
#include "compiler/codegen/cpu/CompileKernels.h"
#include "compiler/serialize/ProgramWriter.h"
#include "dialects/cmd/CmdDialect.h"
#include "dialects/tile/TileDialect.h"
#include "frontend/ModelBuilder.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Parser/Parser.h"
#include "llvm/Support/FileUtilities.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/SourceMgr.h"
#include "llvm/Support/ToolOutputFile.h"
#include <chrono>

using namespace mlir;
using namespace braid;

namespace {

struct Stopwatch {
  std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();
  double milliseconds() const { return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count(); }
};

/// Whole file or nothing: a reader never sees half a program.
LogicalResult writeFile(StringRef path, ArrayRef<uint8_t> bytes, raw_ostream &log) {
  if (path == "-") {
    llvm::outs().write(reinterpret_cast<const char *>(bytes.data()), bytes.size());
    return success();
  }
  llvm::Error error = llvm::writeToOutput(path, [&](raw_ostream &os) {
    os.write(reinterpret_cast<const char *>(bytes.data()), bytes.size());
    return llvm::Error::success();
  });
  if (!error) return success();
  log << "error: cannot write " << path << ": " << llvm::toString(std::move(error)) << "\n";
  return failure();
}

OwningOpRef<ModuleOp> readInput(const std::string &input, const CompileOptions &options, MLIRContext &context, llvm::SourceMgr &sources,
                                raw_ostream &log) {
  auto buffer = llvm::MemoryBuffer::getFileOrSTDIN(input, /*IsText=*/true);
  if (!buffer) {
    log << "error: cannot read " << input << ": " << buffer.getError().message() << "\n";
    return {};
  }
  if (!StringRef(input).ends_with(".json")) {
    if (options.batch || options.seqLen) {
      log << "error: --batch and --seq-len change a model description (*.json); " << input << " has its shapes already\n";
      return {};
    }
    sources.AddNewSourceBuffer(std::move(*buffer), llvm::SMLoc());
    return parseSourceFile<ModuleOp>(sources, &context);
  }
  auto report = [&](const std::string &message) { log << "error: " << message << "\n"; };
  FailureOr<ModelSpec> spec = parseModelSpec((*buffer)->getBuffer(), input, report);
  if (failed(spec)) return {};
  if (options.batch) spec->train.batch = options.batch;
  if (options.seqLen) spec->train.seqLen = options.seqLen;
  bool valid = true;
  (void)checkModelSpec(*spec, [&](const std::string &path, const std::string &message) {
    valid = false;
    log << "error: " << input << ": " << path << ": " << message << "\n";
  });
  if (!valid) return {};
  FailureOr<OwningOpRef<ModuleOp>> module = buildModel(&context, *spec, report);
  return failed(module) ? OwningOpRef<ModuleOp>() : std::move(*module);
}

void explainTimes(ArrayRef<PhaseTime> phases, ArrayRef<KernelTime> kernels, double codegen, double total, raw_ostream &log) {
  log << "compile time\n";
  for (const PhaseTime &phase : phases) log << llvm::formatv("  {0,-10} {1,9:f1} ms\n", phase.name, phase.milliseconds);
  log << llvm::formatv("  {0,-10} {1,9:f1} ms, {2} kernels\n", "codegen", codegen, kernels.size());
  log << llvm::formatv("  {0,-10} {1,9:f1} ms\n", "total", total);
}

} // namespace

LogicalResult braid::compileFile(const std::string &input, const std::string &output, const CompileOptions &options, raw_ostream &log) {
  Stopwatch total;
  DialectRegistry registry;
  registry.insert<BraidDialect, tile::TileDialect, cmd::CmdDialect, arith::ArithDialect, func::FuncDialect, math::MathDialect,
                  memref::MemRefDialect, scf::SCFDialect, vector::VectorDialect>();
  registerCpuCodegen(registry);
  MLIRContext context(registry);
  context.loadAllAvailableDialects();
  llvm::SourceMgr sources;
  SourceMgrDiagnosticHandler handler(sources, &context, log);
  handler.setCallSiteLocationLimit(0);
  context.printOpOnDiagnostic(false);

  llvm::Expected<CpuTarget> target = CpuTarget::parse(options.cpu);
  if (!target) {
    log << "error: --cpu: " << llvm::toString(target.takeError()) << "\n";
    return failure();
  }
  OwningOpRef<ModuleOp> module = readInput(input, options, context, sources, log);
  if (!module) return failure();
  std::vector<PhaseTime> phases;
  if (failed(runPipeline(*module, options, &phases))) return failure();

  if (!options.toPhase.empty()) {
    std::string text;
    llvm::raw_string_ostream(text) << *module << "\n";
    return writeFile(output, ArrayRef(reinterpret_cast<const uint8_t *>(text.data()), text.size()), log);
  }
  Stopwatch codegen;
  std::vector<KernelTime> kernels;
  FailureOr<std::vector<char>> code = compileKernels(*module, *target, nullptr, &kernels);
  if (failed(code)) return failure();
  double codegenTime = codegen.milliseconds();
  ProgramParts parts;
  parts.cpuFeatures = target->features;
  parts.code = *code;
  FailureOr<std::vector<uint8_t>> bytes = writeProgram(*module, parts);
  if (failed(bytes) || failed(writeFile(output, *bytes, log))) return failure();
  if (options.explain) explainTimes(phases, kernels, codegenTime, total.milliseconds(), log);
  return success();
}
