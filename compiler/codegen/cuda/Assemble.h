//===- Assemble.h - PTX -> machine code of one GPU, by the toolkit's nvJitLink or ptxas ---------------------------===//
// The library assembles what could still be linked with other code, as `ptxas -c` does; a kernel is all there is of its program, and the
// toolkit's program may know that: it then saves no registers around a shuffle in a loop, and takes fewer of them for more blocks at a time.
#ifndef COMPILER_CODEGEN_CUDA_ASSEMBLE_H
#define COMPILER_CODEGEN_CUDA_ASSEMBLE_H

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"
#include <string>
#include <vector>

namespace braid {

/// What the assembler says about one kernel, per thread.
struct Assembled {
  std::vector<char> cubin;
  int64_t registers = 0; ///< of 32 bits
  int64_t stackBytes = 0; ///< local memory
  int64_t spillBytes = 0; ///< written to local memory for want of registers
  std::string loss; ///< what it warns of: products that wait for each other
};

/// Assembles one module of PTX, which ends in a zero byte, for `arch` (sm_90a). Needs no GPU and no driver. The library
/// is opened when it is first needed: a missing one, and what the assembler does not take, are errors. Any thread.
llvm::Expected<Assembled> assemble(llvm::StringRef ptx, llvm::StringRef arch);

/// The same by the toolkit's program ptxas, to which nothing will be linked: files in the directory for temporary ones, and a process.
/// An error where the toolkit that this was built with has no such program.
llvm::Expected<Assembled> assembleWhole(llvm::StringRef ptx, llvm::StringRef arch);

/// Where that program is; empty: nowhere.
llvm::StringRef wholeAssembler();

/// Opens the library, if it was not yet.
llvm::Error openAssembler();

/// The driver that what it assembles needs at least, as NVIDIA numbers them (13000): any of the toolkit's generation.
uint32_t leastCudaDriver();

} // namespace braid

#endif // COMPILER_CODEGEN_CUDA_ASSEMBLE_H
