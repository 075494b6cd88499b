//===- KernelHarness.h - compile a kernel in process and run it over a grid ---------------------------------------===//
//
//   KernelHarness kernels(R"(func.func @scale(%x: memref<?xf32> {tile.name = "x"}, ..) attributes {tile.kernel, ..}
//   {..})"); kernels.run("scale", {4}, {{"x", x}, {"x.dim0", 64}, {"factor", 2.0}});
//
// Slots are given by name (passes/lower/KernelSignature.h); vectors and pointers for buffers, numbers for the rest.
// Sizes that are left out are 0, other missing or unknown names fail the test.
//
//===-------------------------------------------------------------------------------------------------------------===//
#ifndef TEST_KERNELS_KERNELHARNESS_H
#define TEST_KERNELS_KERNELHARNESS_H

#include "compiler/codegen/cpu/CompileKernels.h"
#include "passes/lower/KernelSignature.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/OwningOpRef.h"
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace braid::test {

/// The value of one slot.
class Slot {
public:
  template <typename T> Slot(std::vector<T> &data) : pointer(data.data()) {}
  template <typename T> Slot(const std::vector<T> &data) : pointer(const_cast<T *>(data.data())) {}
  template <typename T> Slot(T *data) : pointer(const_cast<std::remove_const_t<T> *>(data)) {}
  Slot(int value) : number(value) {}
  Slot(int64_t value) : number(static_cast<double>(value)) {}
  Slot(size_t value) : number(static_cast<double>(value)) {}
  Slot(double value) : number(value) {}

  void *pointer = nullptr;
  double number = 0;
};
using Slots = std::map<std::string, Slot>;
using KernelFunction = void (*)(const int64_t *args, int64_t begin, int64_t end);

class KernelHarness {
public:
  /// Compiles every kernel of the module; a failure is a failed expectation of the running test.
  explicit KernelHarness(llvm::StringRef mlir, llvm::StringRef cpu = "native");
  /// `module` may belong to another context; it is read through its text.
  explicit KernelHarness(mlir::ModuleOp module, llvm::StringRef cpu = "native");
  ~KernelHarness();
  KernelHarness(const KernelHarness &) = delete;

  bool ok() const { return handle != nullptr; }
  /// Runs programs [0, x y z), in two calls when `split` (ranges must be independent).
  void run(const std::string &kernel, std::vector<int64_t> grid, const Slots &slots, bool split = true);
  /// For benchmarks: the function and its argument array.
  KernelFunction function(const std::string &kernel) const;
  std::vector<int64_t> arguments(const std::string &kernel, std::vector<int64_t> grid, const Slots &slots) const;
  const KernelSignature *signature(const std::string &kernel) const;

  std::vector<KernelTime> times;
  std::string assembly; ///< filled when the environment variable BRAID_DUMP_ASM is set
private:
  void compile(llvm::StringRef mlir, llvm::StringRef cpu);
  std::unique_ptr<mlir::MLIRContext> context;
  std::map<std::string, KernelSignature> signatures;
  void *handle = nullptr;
  int file = -1;
};

} // namespace braid::test

#endif // TEST_KERNELS_KERNELHARNESS_H
