//===- KernelSignature.h - the slots of a kernel, in ABI order ----------------------------------------------------===//
// `void kernel(const int64_t *args, int64_t begin, int64_t end)`: args[0..2] are the grid extents, then the slots
// listed here. Both the code generator and the command lowering ask this one function, so they cannot disagree.
#ifndef PASSES_LOWER_KERNELSIGNATURE_H
#define PASSES_LOWER_KERNELSIGNATURE_H

#include "dialects/tile/TileDialect.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <string>
#include <vector>

namespace braid {

/// The order is that of schema.ParamKind.
enum class SlotKind : uint8_t { pointer = 0, i64 = 1, f32 = 2, f64 = 3 };
/// What a slot says about its argument.
enum class SlotPart : uint8_t { data, size, stride };

struct KernelSlot {
  std::string name; ///< q, q.dim0, q.stride0: the number is that of the buffer dimension
  SlotKind kind;
  SlotPart part; ///< data: the pointer or the scalar itself
  unsigned argument; ///< of the kernel function
  int64_t dimension; ///< of the buffer, for size and stride
};

struct KernelSignature {
  static constexpr unsigned kGridSlots = 3;
  std::string name;
  std::vector<KernelSlot> slots; ///< slots[i] is args[kGridSlots + i]
  /// Of a GPU's kernel, with those of the grid and the one of scratch.
  int64_t slotsOnDevice() const { return kGridSlots + static_cast<int64_t>(slots.size()) + 1; }

  /// Of a func.func with tile.kernel (verified IR). A buffer is a pointer, then its dynamic sizes, then its dynamic
  /// strides.
  static KernelSignature of(mlir::func::FuncOp kernel);
};

/// Adds to the kernel's tile.in_place what the launch updates in place.
void noteInPlace(tile::LaunchOp launch, mlir::func::FuncOp kernel);

/// Does the kernel write through this buffer, directly or through a view?
bool isWrittenByKernel(mlir::Value buffer);

} // namespace braid

#endif // PASSES_LOWER_KERNELSIGNATURE_H
