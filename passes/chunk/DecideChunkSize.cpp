//===- DecideChunkSize.cpp - writes chunk_size on scans ----------------------------------------------------------===//
// Decide, record, rewrite: this pass records, ChunkTiling rewrites. A scan that already carries chunk_size keeps it.
#include "dialects/braid/ScanTraits.h"
#include "passes/Passes.h"

#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;

namespace braid {
#define GEN_PASS_DEF_DECIDECHUNKSIZEPASS
#include "passes/Passes.h.inc"
} // namespace braid

using namespace braid;

namespace {

/// Rows of the score tiles (the V sub-chunk), hence the granularity of chunks.
constexpr int64_t tileRows = 16;
/// A chunk's scores are values of one kernel.
constexpr int64_t mostRows = 128;
/// What the kernel with most tiles of a chunk (the gradient) may keep on its stack, and how many of [C, K] it has for
/// class V; class D has two queries and two keys.
constexpr int64_t stackBytes = int64_t(24) << 20, widestTiles = 20, lowRankTiles = 44;

/// Balances 2 C (K + V) flops per token inside a chunk against 4 K V / C words of state traffic: 64 for K, V up to 128.
/// A scalar decay on wide keys and narrow values affords 128; the widest keys leave room for fewer rows. Never more
/// than the row of the batch has, in whole score tiles.
int64_t defaultChunkSize(LsmClass classId, int64_t tokens, int64_t keys, int64_t values, Type state) {
  bool cheapScores = classId == LsmClass::I || classId == LsmClass::S0 || classId == LsmClass::S;
  int64_t size = cheapScores && keys >= 128 && keys >= 2 * values ? 128 : 64;
  int64_t tiles = ScanTraits(classId).lowRank ? lowRankTiles : widestTiles,
          bytesPerRow = tiles * keys * (state.isF64() ? 8 : 4);
  while (size > tileRows && size * bytesPerRow > stackBytes)
    size /= 2;
  return std::min<int64_t>(size, llvm::alignTo(tokens, tileRows));
}

struct DecideChunkSizePass : public braid::impl::DecideChunkSizePassBase<DecideChunkSizePass> {
  using DecideChunkSizePassBase::DecideChunkSizePassBase;

  /// `state`: a value that holds states.
  template <typename Op> void decide(Op op, Value state) {
    if (op.getChunkSize())
      return;
    auto k = cast<RankedTensorType>(op.getK().getType()), v = cast<RankedTensorType>(op.getV().getType());
    int64_t tokens = k.getDimSize(1);
    int64_t size = chunkSize ? std::min<int64_t>(chunkSize, llvm::alignTo(tokens, tileRows))
                             : defaultChunkSize(op.getClassId(), tokens, k.getDimSize(3), v.getDimSize(3),
                                                getElementTypeOrSelf(state.getType()));
    op.setChunkSize(size);
  }

  void runOnOperation() override {
    if (chunkSize < 0 || chunkSize > mostRows || chunkSize % tileRows != 0) {
      getOperation().emitError("chunk-size = ")
          << chunkSize.getValue() << " is not a multiple of " << tileRows << " from " << tileRows << " to " << mostRows
          << " (0 chooses from the class and the dimensions)";
      return signalPassFailure();
    }
    getOperation().walk([&](Operation *op) {
      llvm::TypeSwitch<Operation *>(op)
          .Case<LsmScanOp, LsmScanGradOp>([&](auto scan) { decide(scan, scan.getInitialState()); })
          .Case([&](LsmSegmentOp segment) { decide(segment, segment.getX()); })
          .Case([&](LsmSegmentGradOp segment) { decide(segment, segment.getDx()); });
    });
  }
};

} // namespace
