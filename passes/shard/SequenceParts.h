//===- SequenceParts.h - what the exchanges of scans and of inner steps are built of ------------------------------===//
#ifndef PASSES_SHARD_SEQUENCEPARTS_H
#define PASSES_SHARD_SEQUENCEPARTS_H

#include "dialects/braid/InnerTraits.h"
#include "passes/analysis/Tensors.h"
#include "passes/shard/Sequence.h"

namespace braid {

/// The same elements as a state, or as one of segments.
inline mlir::Value viewed(mlir::OpBuilder &builder, mlir::Location loc, mlir::Value state,
                          mlir::RankedTensorType type) {
  return state.getType() == type ? state : ReshapeOp::create(builder, loc, type, state).getResult();
}

inline mlir::RankedTensorType withoutFront(mlir::RankedTensorType type) {
  return type.clone(type.getShape().drop_front());
}
/// [1, dims..]
inline mlir::RankedTensorType withFront(mlir::RankedTensorType type) {
  llvm::SmallVector<int64_t> shape{1};
  llvm::append_range(shape, type.getShape());
  return type.clone(shape);
}

inline mlir::Value splat(mlir::OpBuilder &builder, mlir::Location loc, mlir::RankedTensorType type, double value) {
  mlir::Attribute element = builder.getFloatAttr(type.getElementType(), value);
  return mlir::arith::ConstantOp::create(builder, loc, mlir::DenseElementsAttr::get(type, element));
}

/// Of the logical op's operands the local ones; null for what it does not have.
template <typename Op> auto localOperands(Op op, mlir::ValueRange operands) {
  return [op, operands](mlir::Value operand) mutable -> mlir::Value {
    return operand ? operands[llvm::find(op->getOperands(), operand) - op->getOperands().begin()] : mlir::Value();
  };
}

/// The shape of a local operand, the element of what the logical op makes of it.
inline mlir::RankedTensorType localType(mlir::Value like, mlir::Value logical) {
  return mlir::RankedTensorType::get(typeOf(like).getShape(), typeOf(logical).getElementType());
}

/// FLOPs of one walk over the states of a rank's tokens, had they `values` columns.
template <typename Op> double walkFlops(Op op, mlir::Value k, int64_t values) {
  int64_t products = 2 + InnerTraits(op).hasS(); // K B, K^T W for M and for S
  return 2.0 * static_cast<double>(products * typeOf(k).getNumElements() * values);
}

/// Walks that take as long as one back: the states again, and two products for each.
inline constexpr double kForwardWalks = 3;

/// What an inner step pays for a state [B, H, R, V] that `ranks` share, apart from its own walk over their tokens `k`: along
/// a ring a walk for every rank before, of segments one that carries P beside X. A gradient walks back, too, as often
/// along a ring, once for dX of segments; its cotangents travel back along the ring or in steps of their own, gathered
/// ones with the states, for which P is the same.
template <typename Op>
SliceExchange innerExchange(Op op, SpAlgorithm algorithm, int64_t ranks, mlir::Value k, mlir::RankedTensorType state,
                            const Machine &machine) {
  mlir::RankedTensorType x = withFront(state), p = withDim(x, 4, x.getDimSize(3));
  double exchange = spCost(algorithm, ranks, p, x, machine).seconds;
  double walk = walkFlops(op, k, x.getDimSize(4)), back = 0;
  if (std::is_same_v<Op, LsmInnerStepGradOp>) {
    back = kForwardWalks * walk;
    double bytes = static_cast<double>(x.getNumElements()) * llvm::divideCeil(x.getElementTypeBitWidth(), 8);
    exchange +=
        algorithm == SpAlgorithm::allGather ? static_cast<double>(ranks - 1) * bytes / machine.linkBandwidth : exchange;
  }
  double flops = algorithm == SpAlgorithm::ring ? static_cast<double>(ranks - 1) * (walk + back)
                                                : walk + walkFlops(op, k, x.getDimSize(3)) + back;
  return {exchange, flops / machine.flops};
}

} // namespace braid

#endif // PASSES_SHARD_SEQUENCEPARTS_H
