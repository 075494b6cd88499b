//===- ConvEnds.h - row-wise ops that kernels of short convolutions make beside them ------------------------------===//
// What alone reads a convolution, element by element (a bias, an activation), a kernel makes of the sum that it has at hand. The gradient's kernel makes
// the sum again, for it has read all inputs, and then the cotangent of the sum from that of the last of these ops: neither is in memory.
// An l2_norm over the channels of each head is such an op where the lanes of a warp, which have neighbouring channels, have all of a head.
#ifndef PASSES_ANALYSIS_CONVENDS_H
#define PASSES_ANALYSIS_CONVENDS_H

#include "dialects/braid/BraidDialect.h"

namespace braid {

/// Threads of a block that walks along the tokens on a GPU; neighbouring channels of each: 4, 2 or 1, of which it holds a sum and an input for each tap.
inline constexpr int64_t kConvThreads = 128;
int64_t convChannelsEach(int64_t channels, int64_t taps);

/// The ops behind a convolution, each of which alone reads what is before it; readers in `gradients` do not count. `channels`: on one rank, where these
/// are fewer than the convolution's.
llvm::SmallVector<mlir::Operation *> convEnd(ShortConvOp conv, const llvm::DenseSet<mlir::Operation *> &gradients = {},
                                             std::optional<int64_t> channels = std::nullopt);

/// What a gradient's kernel makes before it.
struct ConvGradEnd {
  ShortConvOp conv; ///< of the same block; made again
  llvm::SmallVector<mlir::Operation *> ops; ///< in their order: forward of what it gives, then gradients
  llvm::SmallVector<RowsGradOp> sums; ///< gradients of biases: its cotangent, added up over tokens
};
std::optional<ConvGradEnd> convGradEnd(ShortConvGradOp grad);

} // namespace braid

#endif // PASSES_ANALYSIS_CONVENDS_H
