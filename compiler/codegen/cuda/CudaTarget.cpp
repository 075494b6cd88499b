//===- CudaTarget.cpp - which GPUs kernels are compiled for -------------------------------------------------------===//
#include "compiler/codegen/cuda/CudaTarget.h"
#include "compiler/codegen/cpu/CpuTarget.h"

using namespace braid;

llvm::Expected<CudaTarget> CudaTarget::parse(llvm::StringRef arch) {
  auto [name, option] = arch.split(',');
  if (name == "sm_90a" && (option == "emulated" || option.starts_with("emulated="))) {
    llvm::Expected<BlockLimits> limits = parseEmulated(option, "emulated");
    if (!limits)
      return limits.takeError();
    return CudaTarget{arch.str(), *limits, /*emulated=*/true};
  }
#if !BRAID_HAVE_CUDA
  return llvm::createStringError("this compiler was built without a CUDA toolkit; valid: --target=cpu");
#endif
  // What a block may use of the memory that a multiprocessor has: 228 and 164 KiB, less one each.
  if (arch == "sm_90a")
    return CudaTarget{arch.str(), {int64_t(227) << 10}};
  if (arch == "sm_80")
    return CudaTarget{arch.str(), {int64_t(163) << 10}};
  return llvm::createStringError("unknown architecture '" + arch + "'; valid: sm_90a (H100, H200), sm_80 (A100)");
}
