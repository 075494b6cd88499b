//===- ScanTraits.h - what follows from a transition class --------------------------------------------------------===//
// The one place that says which operands a class takes and what its transition over a chunk is. Verifiers, gradients,
// tiling and kernels ask here.
#ifndef DIALECTS_BRAID_SCANTRAITS_H
#define DIALECTS_BRAID_SCANTRAITS_H

#include "dialects/braid/BraidDialect.h"

namespace braid {

/// bf16 numbers whose sum is any f32.
inline constexpr int64_t kDecayRows = 3;

struct ScanTraits {
  bool decay; ///< log_decay
  bool vectorDecay; ///< it is one per key channel: [B, T, H, K] ..
  bool elementDecay; ///< .. and value channel: [B, T, H, K, V]
  bool beta; ///< writes beta (v - k M)
  bool lowRank; ///< a, b: adds b^T a M
  bool valueDecay; ///< value_decay: one per value channel as well
  bool dense; ///< the transition of a chunk is a matrix

  explicit constexpr ScanTraits(LsmClass id)
      : decay(id != LsmClass::I && id != LsmClass::H),
        vectorDecay(id == LsmClass::V || id == LsmClass::VH || id == LsmClass::D || id == LsmClass::R ||
                    id == LsmClass::E),
        elementDecay(id == LsmClass::E), beta(id == LsmClass::H || id == LsmClass::GH || id == LsmClass::VH),
        lowRank(id == LsmClass::D), valueDecay(id == LsmClass::R), dense(beta || lowRank), id(id) {}

  /// Whether a walk over chunks reads what lsm.chunk_walk_factors made for all of them before. A walk that decays keys by channels and takes
  /// their products itself has no registers left for the triangle of a delta rule (passes/README.md). Such a class has no lsm.chunk_inverse.
  bool walksByFactors() const { return beta && vectorDecay; }
  bool trainsDecay() const { return decay && id != LsmClass::S0; }
  /// Rows of the factors that write the state, of a chunk of so many tokens (lsm.chunk_factors).
  int64_t writtenRows(int64_t chunk) const { return lowRank ? 2 * chunk : chunk; }
  /// Trailing dimensions of P [B, n, H, ..] as the class stores it; class I stores none. `rounded`: a dense one in bf16.
  llvm::SmallVector<int64_t> transition(int64_t keys, int64_t values, bool rounded = false) const {
    if (dense)
      return {keys + (rounded ? kDecayRows : 0), keys};
    if (elementDecay)
      return {keys, values};
    if (valueDecay)
      return {keys + values};
    return vectorDecay ? llvm::SmallVector<int64_t>{keys} : llvm::SmallVector<int64_t>{};
  }

private:
  LsmClass id;
};

/// Dimension of the updates in k, v and gates that have several for each token.
inline constexpr int64_t kUpdatesDim = 2;
/// Whether k [B, T, n, H, K] says several updates per token.
inline bool hasUpdates(mlir::Value k) { return mlir::cast<mlir::ShapedType>(k.getType()).getRank() == 5; }
/// The shape of o, for tokens k and v.
inline llvm::SmallVector<int64_t> outputShape(mlir::Value k, mlir::Value v) {
  llvm::SmallVector<int64_t> shape(mlir::cast<mlir::ShapedType>(v.getType()).getShape());
  if (hasUpdates(k))
    shape.erase(shape.begin() + kUpdatesDim);
  return shape;
}

/// Class E with a log decay that is a product: log_decay [H, K, V], whole, times value_decay [B, T, H, V].
template <typename Op> bool decaysByProduct(Op op) {
  return ScanTraits(op.getClassId()).elementDecay && op.getValueDecay();
}
/// Whether the log decay is the same for all tokens.
template <typename Op> bool isWholeDecay(Op op) { return op.getClassId() == LsmClass::S0 || decaysByProduct(op); }

/// The gates of a scan that have gradients by name, in the order of dgates.
template <typename Op> auto trainedGates(Op op) {
  llvm::SmallVector<std::pair<llvm::StringRef, mlir::Value>> gates = {{"log_decay", op.getLogDecay()},
                                                                      {"beta", op.getBeta()},
                                                                      {"a", op.getA()},
                                                                      {"b", op.getB()},
                                                                      {"value_decay", op.getValueDecay()}};
  llvm::erase_if(gates, [](auto &gate) { return !gate.second; });
  if (op.getLogDecay() && !ScanTraits(op.getClassId()).trainsDecay())
    gates.erase(gates.begin());
  return gates;
}

} // namespace braid

#endif // DIALECTS_BRAID_SCANTRAITS_H
