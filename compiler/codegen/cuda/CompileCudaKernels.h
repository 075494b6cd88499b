//===- CompileCudaKernels.h - kernels -> machine code of NVIDIA GPUs ----------------------------------------------===//
// tile -> threads of a block -> NVVM -> PTX -> cubin, each kernel in a module of its own. A kernel has one parameter: its
// slots by value, 8 bytes each in the order of passes/lower/KernelSignature.h, behind the three extents of its grid, and its tensor maps behind them. It
// is launched with one block per program, in one dimension. One more slot is the address of the scratch of all blocks, for every
// kernel; those that have scratch take any number of blocks. No GPU is needed. What goes wrong is an error at the kernel: a tile
// op without a lowering, what the assembler says.
#ifndef COMPILER_CODEGEN_CUDA_COMPILECUDAKERNELS_H
#define COMPILER_CODEGEN_CUDA_COMPILECUDAKERNELS_H

#include "compiler/codegen/KernelCache.h"
#include "compiler/codegen/KernelTime.h"
#include "compiler/codegen/cuda/CudaTarget.h"
#include "passes/lower/LowerKernels.h"

#include "mlir/IR/BuiltinOps.h"
#include <vector>

namespace braid {

/// A compiled kernel; per-thread numbers are the assembler's.
struct CudaKernel {
  std::string name;
  std::vector<char> cubin = {}; ///< empty: it is in that of an earlier kernel
  int64_t threads = 0; ///< of a block
  int64_t sharedBytes = 0; ///< of a block
  int64_t scratchBytes = 0; ///< of a block, in global memory
  int64_t registers = 0, stackBytes = 0, spillBytes = 0;
  int64_t cluster = 1; ///< blocks that run at a time; each launch has a multiple of them
  bool waits = false; ///< before anything else, for the launch before it on its stream
  llvm::SmallVector<TensorMap, 0> maps = {}; ///< behind its slots
};

/// Registers the dialects and translations that compileCudaKernels needs; call it before the context is made.
void registerCudaCodegen(mlir::DialectRegistry &registry);

/// Compiles every func.func with `tile.kernel`, in their order, in parallel on the context's threads; the result does not
/// depend on their number. The module is left as it is. `ptx`, if given, receives the PTX of all kernels; `times` one
/// entry per kernel. Code that `cache` has is taken from there (not with `ptx`), other code kept there.
mlir::FailureOr<std::vector<CudaKernel>> compileCudaKernels(mlir::ModuleOp kernels, const CudaTarget &target,
                                                            llvm::raw_ostream *ptx = nullptr,
                                                            std::vector<KernelTime> *times = nullptr,
                                                            KernelCache *cache = nullptr);

} // namespace braid

#endif // COMPILER_CODEGEN_CUDA_COMPILECUDAKERNELS_H
