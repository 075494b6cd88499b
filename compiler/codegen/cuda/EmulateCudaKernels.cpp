//===- EmulateCudaKernels.cpp - the kernels of GPUs, their threads emulated on a CPU ------------------------------===//
#include "compiler/codegen/cuda/EmulateCudaKernels.h"

#include "compiler/codegen/cpu/CompileKernels.h"
#include "dialects/tile/TileDialect.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

using namespace mlir;
using namespace braid;

FailureOr<std::vector<CudaKernel>> braid::emulateCudaKernels(ModuleOp kernels, const CudaTarget &target,
                                                             std::vector<KernelTime> *times, KernelCache *cache) {
  llvm::Expected<CpuTarget> cpu = CpuTarget::parse("native,threads");
  if (!cpu)
    return kernels.emitError(llvm::toString(cpu.takeError())), failure();
  cpu->emulated = target.limits;
  // What a block needs is said by the form that the shared object is made of.
  OwningOpRef<ModuleOp> threads = ModuleOp::create(kernels.getLoc());
  std::vector<CudaKernel> result;
  for (auto kernel : kernels.getOps<func::FuncOp>()) {
    if (!kernel->hasAttr(tile::kKernelAttr) || kernel.isExternal())
      continue;
    threads->push_back(kernel.clone());
    result.emplace_back().name = kernel.getName().str();
  }
  if (result.empty())
    return result;
  if (failed(lowerTilesToThreads(*threads, target.limits)))
    return failure();
  for (CudaKernel &kernel : result) {
    auto function = threads->lookupSymbol<func::FuncOp>(kernel.name);
    auto number = [&](StringRef name) { return function->getAttrOfType<IntegerAttr>(name).getInt(); };
    kernel.threads = number(kThreadsAttr);
    kernel.sharedBytes = number(kSharedBytesAttr);
    kernel.scratchBytes = number(kScratchBytesAttr);
    kernel.maps = tensorMapsOf(function);
    kernel.cluster = clusterOf(function);
    kernel.waits = target.launchesEarly; // the stub of the driver runs launches in turn
  }
  FailureOr<std::vector<char>> object = compileKernels(kernels, *cpu, nullptr, times, cache);
  if (failed(object))
    return failure();
  result.front().cubin = std::move(*object);
  return result;
}
