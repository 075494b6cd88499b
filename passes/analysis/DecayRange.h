//===- DecayRange.h - what is known of the log decays of a scan before it runs ------------------------------------===//
#ifndef PASSES_ANALYSIS_DECAYRANGE_H
#define PASSES_ANALYSIS_DECAYRANGE_H

#include "dialects/braid/BraidDialect.h"
#include "dialects/braid/Interval.h"

namespace braid {

/// From the ops that compute the value: activations, scales, sums and products of what is known.
Interval boundsOf(mlir::Value value);

/// A number that no log decay of a scan with decays per channel is below, where none is above 0; nothing where the gates
/// do not prove one.
std::optional<double> leastLogDecay(LsmScanOp scan);

/// What factors of decayed rows may span: where no channel of a chunk decays below exp of this, one product makes the
/// scores of all its pairs (passes/outline/LsmScores.cpp).
inline constexpr double kMildLogDecay = -32;
/// The same of tokens in bf16, where exponents are those of f32 and half of it goes each way: f32 and bf16 reach exp(88), so that sums of products have exp(16).
inline constexpr double kMostSpanOfBf16 = 144;
/// Whether the bound that `op` carries (attrs::leastLogDecay) proves that, or another span, of chunks of `size` tokens.
bool provesMildDecay(mlir::Operation *op, int64_t size, double least = kMildLogDecay);
/// Whether the kernel of a chunk op makes such scores. Class D does so wherever it solves; gates of every element of a
/// state have none.
bool makesDecayedScores(mlir::Operation *op);

} // namespace braid

#endif // PASSES_ANALYSIS_DECAYRANGE_H
