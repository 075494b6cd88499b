//===- ChunkTiling.cpp - scans become chunk tables, chunk-parallel matrix forms and a short state scan ------------===//
//
//   scan       chunk_table -> chunk_state (X, P) -> state_scan (M, final) -> chunk_output
//   scan_grad  chunk_table -> chunk_state, state_scan (the same ops: CSE shares them with the forward where both stand
//              in one function) -> chunk_output_grad_state (dM) -> state_scan_grad (D', dinitial) -> chunk_grad
//   scan of one token -> step
//
//===-------------------------------------------------------------------------------------------------------------===//
#include "dialects/braid/BraidDialect.h"
#include "passes/Passes.h"

#include "llvm/Support/MathExtras.h"

using namespace mlir;

namespace braid {
#define GEN_PASS_DEF_CHUNKTILINGPASS
#include "passes/Passes.h.inc"
} // namespace braid

using namespace braid;

namespace {

/// What the chunk ops of one scan have in common: dimensions, types, and the forward's first half.
template <typename Scan> struct Chunked {
  Scan scan;
  OpBuilder builder;
  Location loc;
  RankedTensorType q, v, state;
  int64_t size, rows; // tokens of a chunk, rows of the table
  Value chunks, x, p, m, finalState;

  Chunked(Scan scan, int64_t maxDocuments)
      : scan(scan), builder(scan), loc(scan.getLoc()), q(cast<RankedTensorType>(scan.getQ().getType())),
        v(cast<RankedTensorType>(scan.getV().getType())),
        state(cast<RankedTensorType>(scan.getInitialState().getType())), size(*scan.getChunkSize()),
        rows(llvm::divideCeil(q.getDimSize(1), size) + maxDocuments) {}

  /// [B, n, H, dims..] of the state's element type.
  RankedTensorType perChunk(ArrayRef<int64_t> dims) {
    SmallVector<int64_t> shape{q.getDimSize(0), rows, q.getDimSize(2)};
    shape.append(dims.begin(), dims.end());
    return RankedTensorType::get(shape, state.getElementType());
  }
  RankedTensorType statePerChunk() { return perChunk(state.getShape().drop_front(2)); }

  /// P as the class stores it; null for class I.
  Type transitionType() {
    int64_t keys = q.getDimSize(3);
    switch (scan.getClassId()) {
    case LsmClass::I: return {};
    case LsmClass::S0:
    case LsmClass::S: return perChunk({});
    case LsmClass::V: return perChunk({keys});
    case LsmClass::H:
    case LsmClass::GH: return perChunk({keys, keys});
    }
    llvm_unreachable("all classes are covered");
  }

  /// chunks, x, p, m and finalState.
  void buildStates() {
    auto table = RankedTensorType::get({q.getDimSize(0), rows, 4}, builder.getI32Type());
    chunks = LsmChunkTableOp::create(builder, loc, table, scan.getDocuments(), size);
    auto chunkState = LsmChunkStateOp::create(builder, loc, statePerChunk(), transitionType(), scan.getK(), scan.getV(),
                                              scan.getLogDecay(), scan.getBeta(), chunks, scan.getClassId(), size);
    x = chunkState.getX();
    p = chunkState.getP();
    auto stateScan = LsmStateScanOp::create(builder, loc, statePerChunk(), state, x, p, scan.getInitialState(), chunks,
                                            scan.getClassId());
    m = stateScan.getM();
    finalState = stateScan.getFinalState();
  }
};

void tile(LsmScanOp scan, int64_t maxDocuments) {
  Chunked<LsmScanOp> chunked(scan, maxDocuments);
  chunked.buildStates();
  auto output = LsmChunkOutputOp::create(chunked.builder, chunked.loc, scan.getO().getType(), scan.getQ(), scan.getK(),
                                         scan.getV(), scan.getLogDecay(), scan.getBeta(), chunked.m, chunked.chunks,
                                         scan.getClassId(), scan.getScale(), chunked.size);
  scan.replaceAllUsesWith(ValueRange{output.getO(), chunked.finalState});
  scan.erase();
}

void tile(LsmScanGradOp scan, int64_t maxDocuments) {
  Chunked<LsmScanGradOp> chunked(scan, maxDocuments);
  OpBuilder &builder = chunked.builder;
  Location loc = chunked.loc;
  chunked.buildStates();
  Value dm = LsmChunkOutputGradStateOp::create(builder, loc, chunked.statePerChunk(), scan.getQ(), scan.getK(),
                                               scan.getV(), scan.getLogDecay(), scan.getBeta(), scan.getDO(),
                                               chunked.chunks, scan.getClassId(), scan.getScale(), chunked.size);
  auto stateGrad = LsmStateScanGradOp::create(builder, loc, chunked.statePerChunk(), scan.getDinitialState().getType(),
                                              dm, chunked.p, scan.getDfinalState(), chunked.chunks, scan.getClassId());
  auto grad = LsmChunkGradOp::create(builder, loc, scan.getDq().getType(), scan.getDk().getType(),
                                     scan.getDv().getType(), scan.getDgates().getTypes(), scan.getQ(), scan.getK(),
                                     scan.getV(), scan.getLogDecay(), scan.getBeta(), chunked.m, stateGrad.getDx(),
                                     scan.getDO(), chunked.chunks, scan.getClassId(), scan.getScale(), chunked.size);
  SmallVector<Value> results(grad.getResults());
  results.push_back(stateGrad.getDinitialState());
  scan.replaceAllUsesWith(results);
  scan.erase();
}

/// The decode step is the scan without chunks.
void step(LsmScanOp scan) {
  OpBuilder builder(scan);
  auto step = LsmStepOp::create(builder, scan.getLoc(), scan.getO().getType(), scan.getFinalState().getType(),
                                scan.getQ(), scan.getK(), scan.getV(), scan.getLogDecay(), scan.getBeta(),
                                scan.getInitialState(), scan.getDocuments(), scan.getClassId(), scan.getScale());
  scan.replaceAllUsesWith(step.getResults());
  scan.erase();
}

LogicalResult checkChunkSize(Operation *op, std::optional<uint64_t> size) {
  if (!size)
    return op->emitOpError("has no chunk_size; braid-decide-chunk-size writes it");
  if (*size == 0 || *size % 16 != 0)
    return op->emitOpError("chunk_size must be a positive multiple of 16, is ") << static_cast<int64_t>(*size);
  return success();
}

struct ChunkTilingPass : public braid::impl::ChunkTilingPassBase<ChunkTilingPass> {
  using ChunkTilingPassBase::ChunkTilingPassBase;

  void runOnOperation() override {
    int64_t maxDocuments = 1;
    if (auto attr = getOperation()->getAttrOfType<IntegerAttr>(attrs::maxDocuments))
      maxDocuments = attr.getInt();
    SmallVector<LsmScanOp> scans;
    SmallVector<LsmScanGradOp> grads;
    getOperation().walk([&](Operation *op) {
      if (auto scan = dyn_cast<LsmScanOp>(op))
        scans.push_back(scan);
      else if (auto grad = dyn_cast<LsmScanGradOp>(op))
        grads.push_back(grad);
    });
    for (LsmScanOp scan : scans) {
      if (cast<RankedTensorType>(scan.getQ().getType()).getDimSize(1) == 1) {
        step(scan);
        continue;
      }
      if (failed(checkChunkSize(scan, scan.getChunkSize())))
        return signalPassFailure();
      tile(scan, maxDocuments);
    }
    for (LsmScanGradOp grad : grads) {
      if (failed(checkChunkSize(grad, grad.getChunkSize())))
        return signalPassFailure();
      tile(grad, maxDocuments);
    }
  }
};

} // namespace
