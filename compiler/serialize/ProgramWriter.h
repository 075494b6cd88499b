//===- ProgramWriter.h - phase `commands` -> the bytes of a program file ------------------------------------------===//
#ifndef COMPILER_SERIALIZE_PROGRAMWRITER_H
#define COMPILER_SERIALIZE_PROGRAMWRITER_H

#include "mlir/IR/BuiltinOps.h"

#include <string>
#include <vector>

namespace braid {

struct ProgramParts {
  std::string target = "cpu";
  std::vector<std::string> cpuFeatures; ///< what the code needs of the machine
  llvm::ArrayRef<char> code; ///< shared object with every kernel; empty when there is none
};

/// Writes the module's cmd.program. One op is one table, in the order of the module: equal modules and code give equal
/// bytes.
mlir::FailureOr<std::vector<uint8_t>> writeProgram(mlir::ModuleOp module, const ProgramParts &parts);

} // namespace braid

#endif // COMPILER_SERIALIZE_PROGRAMWRITER_H
