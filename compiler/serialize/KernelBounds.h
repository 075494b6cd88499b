//===- KernelBounds.h - what a kernel's code asks of its numbers --------------------------------------------------===//
// Machine code does not check what it is given, so the program file says what it relies on, and who loads a file looks
// whether its launches keep to that (runtime/LaunchChecks.cpp).
#ifndef COMPILER_SERIALIZE_KERNELBOUNDS_H
#define COMPILER_SERIALIZE_KERNELBOUNDS_H

#include "dialects/cmd/CmdDialect.h"
#include "passes/lower/KernelSignature.h"

namespace braid {

/// schema.Bound: slots by their index in the signature.
struct KernelBound {
  unsigned number; ///< a slot, or an extent of the grid
  bool extent;
  int64_t least = 0;
  int64_t of = -1, dimension = 0; ///< at most ceil(size / (per * value of perSlot)) * times
  int64_t per = 1, times = 1, perSlot = -1;
  int64_t most = INT64_MAX; ///< and this
  bool whole = false; ///< of a size: not at most, but just that: all of it is reached

  bool operator==(const KernelBound &) const = default;
};

/// Read off a kernel in tile form, as far as they show: an extent that is an index, a limit that is a parameter, a
/// parameter that something is divided by. Those that one of the launches does not keep to are left out: there the code
/// has other reasons not to go too far. Where all launches reach all of a size, less is wrong, too: what nobody writes is read by others, who look for
/// places in it (chunks of rows, experts of tokens).
std::vector<KernelBound> kernelBounds(mlir::func::FuncOp kernel, const KernelSignature &signature,
                                      llvm::ArrayRef<cmd::LaunchOp> launches);

/// Whether every launch gives the pointer a buffer of as many bytes as its sizes say.
bool fillsItsBuffers(mlir::func::FuncOp kernel, const KernelSlot &pointer, llvm::ArrayRef<cmd::LaunchOp> launches);

} // namespace braid

#endif // COMPILER_SERIALIZE_KERNELBOUNDS_H
