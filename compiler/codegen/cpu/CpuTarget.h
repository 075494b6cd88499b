//===- CpuTarget.h - which processor kernels are compiled for -----------------------------------------------------===//
#ifndef COMPILER_CODEGEN_CPU_CPUTARGET_H
#define COMPILER_CODEGEN_CPU_CPUTARGET_H

#include "passes/lower/LowerKernels.h"

#include "llvm/Support/Error.h"
#include <optional>
#include <string>
#include <vector>

namespace braid {

/// Feature bits of this machine by CPUID (LLVM's names: avx2, fma, avx512f, ..), sorted. The model name is not asked:
/// on virtual machines it can be that of an older processor.
std::vector<std::string> hostFeatures();

/// Of an emulated GPU with these limits: `option` is `keyword`, or keyword=N with other bytes of shared memory of a block.
llvm::Expected<BlockLimits> parseEmulated(llvm::StringRef option, llvm::StringRef keyword, BlockLimits limits);

struct CpuTarget {
  std::string name; ///< native, x86-64-v3 or x86-64-v4, and features added to it
  std::vector<std::string> features; ///< what the code may use beyond x86-64: the loader checks them
  std::optional<BlockLimits> emulated; ///< kernels are those of a GPU, the threads of a block emulated
  bool optimized = true; ///< false: code that runs half as fast and is made in a quarter of the time

  /// "native": the highest level whose bits this machine has, plus its bfloat16 and dot product instructions.
  /// "x86-64-v4,avx512bf16": a level and features to add, whatever this machine has.
  /// "native,threads": the kernels that GPUs run, for test/emulator; "native,threads=16384": on blocks of so much shared memory.
  static llvm::Expected<CpuTarget> parse(llvm::StringRef name);
  bool has(llvm::StringRef feature) const;
  int64_t vectorBytes() const { return has("avx512f") ? 64 : has("avx2") ? 32 : 16; }
};

} // namespace braid

#endif // COMPILER_CODEGEN_CPU_CPUTARGET_H
