//===- StateWalk.h - which states of chunks a GPU adds up in one walk, and which outputs it makes there -----------===//
//
// Two ways give the in-states of chunks: chunk_state for all chunks at once, then state_scan over its sums in memory; or one walk over the chunks of
// a head, which multiplies what it adds (lsm.state_walk). The walk moves a fifth to a half of the bytes, but its chunks stand one behind the other, so
// it needs enough programs: where heads are few, of segments of a row. Both are counted, in bytes, programs and what an iteration waits for (StateWalk.cpp). Where nobody else
// reads states of chunks, outputs may be made where the state is (lsm.output_walk): then none lies in memory, for an iteration of four products. So may those of
// delta rules, in six (H, GH) or, by factors that are made before, in four (VH), in the place of factors, their scan and outputs of chunks.
//
//===-------------------------------------------------------------------------------------------------------------===//
#ifndef PASSES_ANALYSIS_STATEWALK_H
#define PASSES_ANALYSIS_STATEWALK_H

#include "dialects/braid/BraidDialect.h"

namespace braid {

struct ScanSizes {
  LsmClass classId;
  int64_t rows, tokens, heads, keys, values, chunk;

  static ScanSizes of(LsmFactorWalkOp walk) {
    auto v = mlir::cast<mlir::RankedTensorType>(walk.getV().getType()).getShape();
    auto rows = mlir::cast<mlir::RankedTensorType>(walk.getWrite().getType()).getShape();
    return {walk.getClassId(), v[0], v[1], v[2], rows[4], v[3], rows[3]};
  }
  template <typename Op> static ScanSizes of(Op op, int64_t chunk) {
    auto k = mlir::cast<mlir::RankedTensorType>(op.getK().getType()).getShape();
    auto v = mlir::cast<mlir::RankedTensorType>(op.getV().getType()).getShape();
    return {op.getClassId(), k[0], k[1], k[2], k[3], v[3], chunk};
  }
};

/// What a program of the walk has of a head's state: so many keys by so many values.
struct WalkBlocks {
  int64_t keys, values;
  int64_t perHead; ///< programs, for each segment
  int64_t segments; ///< of a row's chunks, walked side by side, twice: first for what each of them leaves
  double microseconds; ///< expected
};
/// The best blocks, of as many segments where `op`, a scan or a walk, says how many (attrs::walkSegments). Nothing where warps cannot share the keys, or
/// a thread has no registers for the chunk.
std::optional<WalkBlocks> walkBlocks(const ScanSizes &sizes, mlir::Operation *op);
/// Microseconds of the two kernels instead.
double separateStates(const ScanSizes &sizes);

/// Whether the states of a scan of bf16 tokens, with gates of type `gate`, are walked.
bool walksStates(const ScanSizes &sizes, mlir::Type gate, mlir::Operation *op);

/// What a program of a walk that makes outputs has: all keys and so many values of a head's state.
struct OutputBlocks {
  int64_t tokens; ///< of a chunk, as many as values: scores and states lie in the rows of the same warps
  int64_t perHead; ///< programs, for each segment
  int64_t segments;
  double microseconds; ///< expected
  std::optional<WalkBlocks> ends; ///< of the walk for what segments leave, if there are several
};
/// Of the program with chunks of `sizes.chunk` tokens. Nothing where the shapes have none.
std::optional<OutputBlocks> outputBlocksOf(const ScanSizes &sizes, mlir::Operation *op);
/// Whether a scan's outputs are made by a walk, given whose states nobody else reads: the best blocks, with chunks of at most `sizes.chunk` tokens.
/// `wgmma`: groups of four warps multiply from shared memory.
std::optional<OutputBlocks> walksOutputs(const ScanSizes &sizes, mlir::Type gate, mlir::Operation *op, bool wgmma);

} // namespace braid

#endif // PASSES_ANALYSIS_STATEWALK_H
