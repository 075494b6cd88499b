//===- Pipeline.h - the order of all passes -----------------------------------------------------------------------===//
#ifndef COMPILER_PIPELINE_H
#define COMPILER_PIPELINE_H

#include "compiler/CompileOptions.h"
#include "compiler/codegen/cuda/CompileCudaKernels.h"

#include "mlir/Pass/PassManager.h"

#include <chrono>

namespace braid {

/// Dialects of every phase and what code generation needs; call it before the context is made.
void registerCompiler(mlir::DialectRegistry &registry);

/// The passes that end in `phase`, the last of which verifies it.
void addPhase(mlir::OpPassManager &pm, Phase phase, const CompileOptions &options);

/// The file of `directory` that --dump-phases-to writes at the end of a phase: DIR/03-scheduled.mlir.
std::string dumpPath(llvm::StringRef directory, Phase phase);

/// Where --dump-phases-to writes the PTX of a program for a GPU: DIR/kernels.ptx.
std::string ptxPath(llvm::StringRef directory);

struct StageTime {
  std::string stage;
  double milliseconds;
  std::string detail; ///< what of it took long, or ""
};

/// Measures a stage of the compilation.
class StageTimer {
public:
  StageTimer(std::vector<StageTime> &times, llvm::StringRef stage)
      : times(times), stage(stage.str()), start(std::chrono::steady_clock::now()) {}
  ~StageTimer() {
    std::chrono::duration<double, std::milli> elapsed = std::chrono::steady_clock::now() - start;
    times.push_back({stage, elapsed.count(), detail});
  }
  std::string detail;

private:
  std::vector<StageTime> &times;
  std::string stage;
  std::chrono::steady_clock::time_point start;
};

/// Whether a module that says it is in this phase is.
mlir::LogicalResult verifyPhase(mlir::ModuleOp module, Phase phase);

/// Failure after a message where chunk sizes of a module were chosen for another target than the options'.
mlir::LogicalResult checkChunkTarget(mlir::ModuleOp module, const CompileOptions &options);

/// Runs the phases after `from` up to `to`; each is dumped, `from` as well.
mlir::LogicalResult runPhases(mlir::ModuleOp module, Phase from, Phase to, const CompileOptions &options,
                              std::vector<StageTime> &times);

/// Writes a module; with `locations` a compilation resumed from it gives the same program.
void printPhase(mlir::ModuleOp module, llvm::raw_ostream &stream, bool locations);

/// The phase a module says it is in (braid.phase), if it does.
std::optional<Phase> phaseOf(mlir::ModuleOp module);

/// The bytes of a program, and for target cuda its kernels.
struct CompiledProgram {
  std::vector<uint8_t> bytes;
  std::vector<CudaKernel> kernels;
};

/// Kernels to machine code, commands to a file. The module must be in phase `commands`.
mlir::FailureOr<CompiledProgram> compileProgram(mlir::ModuleOp module, const CompileOptions &options,
                                                std::vector<StageTime> &times);

} // namespace braid

#endif // COMPILER_PIPELINE_H
