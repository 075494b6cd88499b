//===- EmulateCudaKernels.h - the kernels of GPUs, their threads emulated on a CPU --------------------------------===//
#ifndef COMPILER_CODEGEN_CUDA_EMULATECUDAKERNELS_H
#define COMPILER_CODEGEN_CUDA_EMULATECUDAKERNELS_H

#include "compiler/codegen/cuda/CompileCudaKernels.h"

namespace braid {

/// As compileCudaKernels, with one shared object for this machine in the place of images, that of the first kernel: the same
/// threads, shared memory and scratch, for the emulator of test/emulator. Registers and spills are 0.
mlir::FailureOr<std::vector<CudaKernel>> emulateCudaKernels(mlir::ModuleOp kernels, const CudaTarget &target,
                                                            std::vector<KernelTime> *times = nullptr,
                                                            KernelCache *cache = nullptr);

} // namespace braid

#endif // COMPILER_CODEGEN_CUDA_EMULATECUDAKERNELS_H
