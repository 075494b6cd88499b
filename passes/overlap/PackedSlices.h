//===- PackedSlices.h - values between sliced layers that stand slice after slice ---------------------------------===//
// What one sliced layer makes and only other layers in the same slices read (activations for the gradient, the input of
// the next layer) need not stand row after row: in a buffer [B, T, ..] every slice's [B, t, ..] has its own bytes, and
// neither the one side copies slices together nor the other apart. The type stays that of the whole value.
#ifndef PASSES_OVERLAP_PACKEDSLICES_H
#define PASSES_OVERLAP_PACKEDSLICES_H

#include "dialects/braid/BraidDialect.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace braid {

/// Of functions with a schedule, before they are rewritten.
class PackedSlices {
public:
  explicit PackedSlices(mlir::ModuleOp module);

  /// The dimension along which slices of an argument or a result are cut that stands slice after slice; absent: row
  /// after row.
  std::optional<int64_t> argument(mlir::func::FuncOp layer, int64_t index) const {
    return find(arguments, layer, index);
  }
  std::optional<int64_t> result(mlir::func::FuncOp layer, int64_t index) const { return find(results, layer, index); }

private:
  using Place = std::pair<mlir::Operation *, int64_t>;
  static std::optional<int64_t> find(const llvm::DenseMap<Place, int64_t> &places, mlir::func::FuncOp layer,
                                     int64_t index) {
    auto found = places.find({layer.getOperation(), index});
    return found == places.end() ? std::nullopt : std::optional(found->second);
  }
  llvm::DenseMap<Place, int64_t> arguments, results;
};

} // namespace braid

#endif // PASSES_OVERLAP_PACKEDSLICES_H
