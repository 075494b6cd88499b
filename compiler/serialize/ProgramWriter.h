//===- ProgramWriter.h - phase `commands` -> the bytes of a program file ------------------------------------------===//
// The other end is runtime/Program.h; the tables between them are runtime/schema/Program.fbs. Names, offsets (bytes in
// an arena) and strides (bytes per iteration of a repeat) are copied as they stand; nothing is decided here. Errors
// name the op: a kernel that the module does not have, an argument of the wrong kind, an element type that the file
// cannot say, an arena that no runtime takes.
#ifndef COMPILER_SERIALIZE_PROGRAMWRITER_H
#define COMPILER_SERIALIZE_PROGRAMWRITER_H

#include "compiler/codegen/cuda/CompileCudaKernels.h"

#include "mlir/IR/BuiltinOps.h"

#include <string>
#include <vector>

namespace braid {

struct ProgramParts {
  std::string target = "cpu";
  std::vector<std::string> cpuFeatures; ///< what the code needs of the machine
  llvm::ArrayRef<char> code; ///< shared object with every kernel; empty when there is none
  std::string arch; ///< target cuda: what its kernels are compiled for
  llvm::ArrayRef<CudaKernel> kernels; ///< target cuda: instead of code, in the order of the module
  uint32_t cudaDriver = 0; ///< target cuda: the driver that the kernels need at least
};

/// Writes the module's cmd.program. One op is one table, in the order of the module: equal modules and code give equal
/// bytes.
mlir::FailureOr<std::vector<uint8_t>> writeProgram(mlir::ModuleOp module, const ProgramParts &parts);

} // namespace braid

#endif // COMPILER_SERIALIZE_PROGRAMWRITER_H
