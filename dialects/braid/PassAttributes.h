//===- PassAttributes.h - attributes that passes hand to each other -----------------------------------------------===//
#ifndef DIALECTS_BRAID_PASSATTRIBUTES_H
#define DIALECTS_BRAID_PASSATTRIBUTES_H

#include "mlir/IR/Operation.h"

namespace braid::attrs {

/// Of an op: {axis, coordinate}, how its tokens are divided (passes/shard/Sequence.h). Of a module: rates and times of a
/// rank (passes/analysis/Machine.h). Of scans and their chunk ops: the sizes that were compared and the cycles of a token and
/// head that each was expected to cost (passes/chunk/DecideChunkSize.cpp), for people. Of a module: the target that sizes
/// were chosen for, where any was (KernelTarget::describe). Of scans, their gradients and chunk ops: a log decay that none
/// of theirs is below (passes/analysis/DecayRange.h); rows of the score tiles of chunks whose decays are strong, and the
/// cycles that each number of rows was expected to cost there (passes/chunk/DecideChunkSize.cpp); the segments of a row in
/// which states are walked, where that is not left to counting (passes/analysis/StateWalk.h). Of braid.add: part of a
/// longer sum, which fuses with nothing (passes/overlap/SliceLayer.cpp).
inline constexpr llvm::StringLiteral sequence = "braid.sequence", machine = "braid.machine",
                                     chunkCosts = "braid.chunk_costs", chunkTarget = "braid.chunk_target",
                                     leastLogDecay = "braid.least_log_decay", scoreRows = "braid.score_rows",
                                     scoreCosts = "braid.score_costs", partialSum = "braid.partial_sum",
                                     walkSegments = "braid.walk_segments";

/// Of two ops on the same tokens, or on some of the tokens of `from`: what is known of them goes with them.
inline void keep(mlir::Operation *from, mlir::Operation *to, llvm::ArrayRef<llvm::StringRef> names) {
  for (llvm::StringRef name : names)
    if (mlir::Attribute attr = from->getAttr(name))
      to->setAttr(name, attr);
}

} // namespace braid::attrs

#endif // DIALECTS_BRAID_PASSATTRIBUTES_H
