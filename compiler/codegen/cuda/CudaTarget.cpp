//===- CudaTarget.cpp - which GPUs kernels are compiled for -------------------------------------------------------===//
#include "compiler/codegen/cuda/CudaTarget.h"
#include "compiler/codegen/cpu/CpuTarget.h"

#include "llvm/ADT/STLExtras.h"

using namespace braid;

bool CudaTarget::hasToolkit() { return BRAID_HAVE_CUDA; }

llvm::Expected<CudaTarget> CudaTarget::parse(llvm::StringRef arch) {
  auto [name, option] = arch.split(',');
  // What a block may use of the memory that a multiprocessor has: 228 and 164 KiB, less one each.
  static const std::pair<llvm::StringRef, BlockLimits> known[] = {{"sm_90a", {int64_t(227) << 10, /*wgmma=*/true}},
                                                                  {"sm_80", {int64_t(163) << 10, /*wgmma=*/false}}};
  const auto *found = llvm::find_if(known, [&](const auto &one) { return one.first == name; });
  bool launchesEarly = name != "sm_80"; // compute capability 9.0 (PTX ISA, griddepcontrol)
  if (found != std::end(known) && (option == "emulated" || option.starts_with("emulated="))) {
    llvm::Expected<BlockLimits> limits = parseEmulated(option, "emulated", found->second);
    if (!limits)
      return limits.takeError();
    return CudaTarget{.arch = arch.str(), .limits = *limits, .launchesEarly = launchesEarly, .emulated = true};
  }
  if (found != std::end(known) && name == arch)
    return CudaTarget{.arch = arch.str(), .limits = found->second, .launchesEarly = launchesEarly};
  return llvm::createStringError("unknown architecture '" + arch + "'; valid: sm_90a (H100, H200), sm_80 (A100)");
}
