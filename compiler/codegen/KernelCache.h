//===- KernelCache.h - compiled kernels kept from one compilation to the next -------------------------------------===//
// A directory with a file for every kernel: machine code (of a GPU, what is known of it besides) under the hash of all that
// it depends on. Programs of one model differ by schedule, mesh or batch and share most of their kernels; code generation is
// most of the time of compiling. Compilations may use a directory at the same time.
#ifndef COMPILER_CODEGEN_KERNELCACHE_H
#define COMPILER_CODEGEN_KERNELCACHE_H

#include "mlir/IR/BuiltinOps.h"
#include "llvm/Support/Error.h"

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace braid {

class KernelCache {
public:
  using Compile = llvm::function_ref<mlir::FailureOr<std::vector<char>>()>;

  /// Makes the directory if it is not there. Kernels that nobody asked for in a week go, then the oldest where there are
  /// more than 4 GiB. An error if it cannot be made.
  static llvm::Expected<std::unique_ptr<KernelCache>> open(llvm::StringRef directory);
  /// Why nothing can be written there, and kernels are only taken; empty: they are kept.
  llvm::StringRef whyNotKept() const { return notKept; }

  /// The code of one kernel in a module of its own: what is kept of it, else what `compile` makes, which is then kept.
  /// `target` is all that it depends on besides the kernel's text and this compiler. Any number of threads may ask. That
  /// code cannot be kept is a warning at the kernel, once. Without a cache: compile().
  static mlir::FailureOr<std::vector<char>> getOrCompile(KernelCache *cache, mlir::ModuleOp kernel,
                                                         llvm::StringRef target, bool &kept, Compile compile);

private:
  std::string key(mlir::ModuleOp kernel, llvm::StringRef target) const;
  std::string path(llvm::StringRef key) const;
  std::optional<std::vector<char>> find(llvm::StringRef key) const;
  llvm::Error keep(llvm::StringRef key, llvm::ArrayRef<char> code) const;

  std::string directory, notKept;
  mutable std::once_flag known;
  mutable std::string
      compiler; ///< the builds of this program and of every library it has loaded when it is first asked
  std::atomic<bool> full = false; ///< nothing more can be kept
};

} // namespace braid

#endif // COMPILER_CODEGEN_KERNELCACHE_H
