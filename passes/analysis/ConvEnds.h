//===- ConvEnds.h - row-wise ops that kernels of short convolutions make beside them ------------------------------===//
// What alone reads a convolution, element by element (a bias, an activation), a kernel makes of the sum that it has at hand. The gradient's kernel makes
// the sum again, for it has read all inputs, and then the cotangent of the sum from that of the last of these ops: neither is in memory.
#ifndef PASSES_ANALYSIS_CONVENDS_H
#define PASSES_ANALYSIS_CONVENDS_H

#include "dialects/braid/BraidDialect.h"

namespace braid {

/// The ops behind a convolution, each of which alone reads what is before it; readers in `gradients` do not count.
llvm::SmallVector<mlir::Operation *> convEnd(ShortConvOp conv, const llvm::DenseSet<mlir::Operation *> &gradients = {});

/// What a gradient's kernel makes before it.
struct ConvGradEnd {
  ShortConvOp conv; ///< of the same block; made again
  llvm::SmallVector<mlir::Operation *> ops; ///< in their order: forward of what it gives, then gradients
  llvm::SmallVector<RowsGradOp> sums; ///< gradients of biases: its cotangent, added up over tokens
};
std::optional<ConvGradEnd> convGradEnd(ShortConvGradOp grad);

} // namespace braid

#endif // PASSES_ANALYSIS_CONVENDS_H
