//===- CudaTarget.h - which GPUs kernels are compiled for ---------------------------------------------------------===//
#ifndef COMPILER_CODEGEN_CUDA_CUDATARGET_H
#define COMPILER_CODEGEN_CUDA_CUDATARGET_H

#include "passes/lower/LowerKernels.h"

#include "llvm/Support/Error.h"
#include <string>

namespace braid {

struct CudaTarget {
  std::string arch; ///< sm_90a or sm_80
  BlockLimits limits;
  bool launchesEarly = false; ///< a kernel may begin while the one before it runs, and wait for it
  bool emulated = false; ///< kernels run on a CPU, the threads of a block emulated: for tests
  bool assembledWhole = false; ///< kernels become machine code by the toolkit's program, all of them

  /// "sm_90a" (H100, H200) or "sm_80" (A100); "sm_90a,emulated", "sm_80,emulated": the same threads for test/emulator
  /// ("sm_90a,emulated=4096": on blocks of so much shared memory). The error says which names are valid.
  static llvm::Expected<CudaTarget> parse(llvm::StringRef arch);

  /// Whether this compiler makes machine code of GPUs; what is emulated needs none.
  static bool hasToolkit();
};

} // namespace braid

#endif // COMPILER_CODEGEN_CUDA_CUDATARGET_H
