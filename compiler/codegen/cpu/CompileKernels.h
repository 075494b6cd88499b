//===- CompileKernels.h - kernels -> a shared object --------------------------------------------------------------===//
// tile -> loops -> LLVM -> machine code, each kernel in a module of its own. A kernel is a C function of one pointer to
// 64-bit slots (pointers, sizes, strides, scalars in the order of passes/lower/KernelSignature.h) and a range of
// programs of its grid. What goes wrong is an error at the kernel or the module: a tile op without a lowering, too many
// bytes of tiles for the stack, no ld.lld.
#ifndef COMPILER_CODEGEN_CPU_COMPILEKERNELS_H
#define COMPILER_CODEGEN_CPU_COMPILEKERNELS_H

#include "compiler/codegen/KernelCache.h"
#include "compiler/codegen/KernelTime.h"
#include "compiler/codegen/cpu/CpuTarget.h"

#include "mlir/IR/BuiltinOps.h"
#include <vector>

namespace braid {

/// Registers the dialects and translations that compileKernels needs; call it before the context is made.
void registerCpuCodegen(mlir::DialectRegistry &registry);

/// Compiles every func.func with `tile.kernel` (bodies as the tile dialect allows) and links them into one shared
/// object that exports exactly these symbols and needs nothing but libc and libm. The module is left as it is. Kernels
/// are compiled in parallel on the context's threads; the result does not depend on their number. `dumpAsm`, if given,
/// receives the assembly; `times` one entry per kernel, in order. Code that `cache`
/// has is taken from there (not with `dumpAsm`), other code kept there.
mlir::FailureOr<std::vector<char>> compileKernels(mlir::ModuleOp kernels, const CpuTarget &target,
                                                  llvm::raw_ostream *dumpAsm = nullptr,
                                                  std::vector<KernelTime> *times = nullptr,
                                                  KernelCache *cache = nullptr);

} // namespace braid

#endif // COMPILER_CODEGEN_CPU_COMPILEKERNELS_H
