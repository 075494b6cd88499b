//===- InnerTraits.h - what follows from the operands of an inner step --------------------------------------------===//
// The counterpart of ScanTraits.h for lsm.inner_step: here the operands say the class.
#ifndef DIALECTS_BRAID_INNERTRAITS_H
#define DIALECTS_BRAID_INNERTRAITS_H

#include "dialects/braid/BraidDialect.h"

namespace braid {

/// Tokens of the longest mini-batch: its scores are values of one kernel.
inline constexpr int64_t kMostMiniBatch = 128;

/// Planes of K rows in a state [B, H, planes K, V]: M, then S, then B. With a read_rate M stays B, and of one token B is
/// the M before it.
inline int64_t innerPlanes(bool momentum, bool readRate, int64_t miniBatch) {
  return 1 + (momentum || readRate) + (!readRate && miniBatch > 1);
}

struct InnerTraits {
  bool decay, momentum, readRate, norm;
  int64_t miniBatch;

  template <typename Op>
  explicit InnerTraits(Op op)
      : decay(op.getLogDecay() != nullptr), momentum(op.getLogMomentum() != nullptr),
        readRate(op.getReadRate() != nullptr), norm(false), miniBatch(op.getMiniBatch()) {
    if constexpr (requires { op.getNormWeight(); })
      norm = op.getNormWeight() != nullptr;
  }

  llvm::StringRef className() const { return norm ? "N" : momentum || readRate ? "GM" : "G1"; }
  bool hasS() const { return momentum || readRate; }
  int64_t planes() const { return innerPlanes(momentum, readRate, miniBatch); }
  bool hasBase() const { return planes() > 1 + hasS(); } ///< B is a plane of its own
  /// Planes that a mini-batch begins with. Its B is M then, and with a read_rate its S is 0.
  int64_t chunkPlanes() const { return 1 + momentum; }
  /// The last plane of a state is one that matters inside a mini-batch only: B, or S with a read_rate.
  bool hasInside() const { return planes() > chunkPlanes(); }
};

/// An operand of an inner step beyond q, k, v that has a cotangent.
struct InnerOther {
  llvm::StringRef name;
  mlir::Value value;
  bool whole; ///< a weight: its cotangent is a sum over tokens
};
/// Those that are given, in the order of dothers.
template <typename Op> llvm::SmallVector<InnerOther> innerOthers(Op op) {
  llvm::SmallVector<InnerOther> others = {{"rate", op.getRate(), false},
                                          {"log_decay", op.getLogDecay(), false},
                                          {"log_momentum", op.getLogMomentum(), false},
                                          {"read_rate", op.getReadRate(), false},
                                          {"norm_weight", op.getNormWeight(), true},
                                          {"norm_bias", op.getNormBias(), true},
                                          {"weights", op.getWeights(), true}};
  llvm::erase_if(others, [](const InnerOther &other) { return !other.value; });
  return others;
}

} // namespace braid

#endif // DIALECTS_BRAID_INNERTRAITS_H
