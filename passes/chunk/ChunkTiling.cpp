//===- ChunkTiling.cpp - scans become chunk tables, chunk-parallel matrix forms and a short state scan ------------===//
//
//   scan       chunk_table -> chunk_state (X, P) -> state_scan (M, final) -> chunk_output
//   scan_grad  chunk_table -> chunk_state, state_scan (the same ops: CSE shares them with the forward where both stand
//              in one function) -> chunk_output_grad_state (dM) -> state_scan_grad (D', dinitial) -> chunk_grad
//              S and V of bf16 on a GPU: chunk_table -> state_walk (M, final), adjoint state_walk (D', dinitial), where that is counted to be faster
//              I, S0 and S of bf16 on a GPU, where no gradient in the function shares the states: chunk_table -> output_walk (o, final), likewise;
//              H and GH: chunk_table -> chunk_inverse -> output_walk;  VH: chunk_table -> chunk_walk_factors -> factor_walk
//              dense transitions of bf16 on a GPU: chunk_factors -> factor_scan (M, written) -> chunk_output;
//              chunk_output_factors -> factor_scan_grad (D') -> chunk_grad
//   scan of one token -> step
//   inner_step       chunk_table, aligned with mini-batches -> inner_states -> inner_output; of one token it stays
//   inner_step_grad  chunk_table, inner_states (shared with the forward) -> inner_grad
//   segment       chunk_table -> chunk_state (shared with the scan behind it) -> segment_scan
//   segment_grad  chunk_table -> chunk_state (for P), chunk_output_grad_state -> segment_scan, adjoint
//
//===-------------------------------------------------------------------------------------------------------------===//
#include "dialects/braid/InnerTraits.h"
#include "dialects/braid/PassAttributes.h"
#include "dialects/braid/ScanTraits.h"
#include "passes/Passes.h"
#include "passes/analysis/StateWalk.h"

#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;

namespace braid {
#define GEN_PASS_DEF_CHUNKTILINGPASS
#include "passes/Passes.h.inc"
} // namespace braid

using namespace braid;

namespace {

/// What the chunks of all scans of a module depend on.
struct Tables {
  int64_t maxDocuments = 1;
  bool gpu = false, wgmma = false, segments = false; // whether ranks exchange what segments are
};

/// What the chunk ops of one scan have in common: dimensions, types, and the forward's first half.
template <typename Scan> struct Chunked {
  Scan scan;
  OpBuilder builder;
  Location loc;
  RankedTensorType k, v;
  Type element; // of states
  Type multiplied; // of states and dense transitions that only products read
  int64_t size, rows; // tokens of a chunk, rows of the table
  bool factored; // dense transitions stay products of few rows
  bool walked; // states are added up where they are multiplied
  Value chunks, x, p, u, write, read, decay, m, written, finalState;

  /// `state`: any value that holds states.
  Chunked(Scan scan, Value state, const Tables &tables)
      : scan(scan), builder(scan), loc(scan.getLoc()), k(cast<RankedTensorType>(scan.getK().getType())),
        v(cast<RankedTensorType>(scan.getV().getType())), element(getElementTypeOrSelf(state.getType())),
        size(*scan.getChunkSize()), rows(llvm::divideCeil(k.getDimSize(1), size) + tables.maxDocuments) {
    bool narrow = tables.gpu && k.getElementType().isBF16() && !ScanTraits(scan.getClassId()).elementDecay;
    multiplied = narrow ? k.getElementType() : element;
    // C rows of K and V each way are less than K of them. What ranks exchange are whole transitions, which scans then share.
    walked = narrow && !tables.segments && scan.getLogDecay() &&
             walksStates(ScanSizes::of(scan, size), getElementTypeOrSelf(scan.getLogDecay()), scan);
    factored = narrow && ScanTraits(scan.getClassId()).dense && size <= k.getDimSize(3) && !tables.segments;
  }

  /// What --explain says about the sizes of a chunk op, what they are, and what is known of its decays.
  template <typename Op> Op explained(Op op) {
    attrs::keep(scan, op,
                {attrs::chunkCosts, attrs::leastLogDecay, attrs::scoreRows, attrs::scoreCosts, attrs::walkSegments});
    return op;
  }

  /// [B, n, H, dims..].
  RankedTensorType perChunk(ArrayRef<int64_t> dims, Type type) {
    SmallVector<int64_t> shape{k.getDimSize(0), rows, k.getDimSize(2)};
    shape.append(dims.begin(), dims.end());
    return RankedTensorType::get(shape, type);
  }
  RankedTensorType statePerChunk(Type type) { return perChunk({k.getDimSize(3), v.getDimSize(3)}, type); }

  /// P as the class stores it; null for class I.
  Type transitionType() {
    if (scan.getClassId() == LsmClass::I)
      return {};
    ScanTraits traits(scan.getClassId());
    Type type = traits.dense ? multiplied : element;
    return perChunk(traits.transition(k.getDimSize(3), v.getDimSize(3), type.isBF16()), type);
  }

  void buildTable() {
    auto table = RankedTensorType::get({k.getDimSize(0), rows, 4}, builder.getI32Type());
    chunks = LsmChunkTableOp::create(builder, loc, table, scan.getDocuments(), size, /*aligned=*/false);
  }
  /// u, write, read and decay.
  void buildFactors() {
    ScanTraits traits(scan.getClassId());
    int64_t K = k.getDimSize(3), V = v.getDimSize(3), written = traits.writtenRows(size);
    Type decays;
    if (traits.decay)
      decays = perChunk(traits.vectorDecay ? SmallVector<int64_t>{1, K} : SmallVector<int64_t>(), element);
    auto factors = LsmChunkFactorsOp::create(
        builder, loc, perChunk({written, V}, multiplied), perChunk({written, K}, multiplied),
        perChunk({size, K}, multiplied), decays, scan.getK(), scan.getV(), scan.getLogDecay(), scan.getBeta(),
        scan.getA(), scan.getB(), scan.getValueDecay(), chunks, scan.getClassId(), size);
    u = explained(factors).getU();
    write = factors.getWrite();
    read = factors.getRead();
    decay = factors.getDecay();
  }
  /// chunks, x and p.
  void buildChunks() {
    buildTable();
    auto chunkState = LsmChunkStateOp::create(builder, loc, statePerChunk(element), transitionType(), scan.getK(),
                                              scan.getV(), scan.getLogDecay(), scan.getBeta(), scan.getA(), scan.getB(),
                                              scan.getValueDecay(), chunks, scan.getClassId(), size);
    x = explained(chunkState).getX();
    p = chunkState.getP();
  }
  /// The walk over k and v, or its adjoint over q and d_o.
  LsmStateWalkOp buildWalk(Value keys, Value values, Value state, bool adjoint) {
    APFloat scale = adjoint ? scan.getScale() : APFloat(1.0);
    return explained(LsmStateWalkOp::create(builder, loc, statePerChunk(multiplied), state.getType(), keys, values,
                                            scan.getLogDecay(), state, chunks, scan.getClassId(), scale, size,
                                            adjoint));
  }
  /// Outputs and the last state of a scan; of a delta rule by the inverse of each chunk's triangle.
  LsmOutputWalkOp buildOutputWalk() {
    Value decay = scan.getLogDecay(), inverse, sums;
    if (ScanTraits(scan.getClassId()).beta) {
      Type sumsType = decay ? perChunk({3 * size}, element) : Type();
      auto made = LsmChunkInverseOp::create(builder, loc, perChunk({size, size}, multiplied), sumsType, scan.getK(),
                                            decay, scan.getBeta(), chunks, scan.getClassId(), size);
      inverse = made.getInverse();
      sums = made.getSums();
      decay = {};
    }
    return explained(LsmOutputWalkOp::create(builder, loc, scan.getO().getType(), scan.getFinalState().getType(),
                                             scan.getQ(), scan.getK(), scan.getV(), decay, inverse, sums,
                                             scan.getInitialState(), chunks, scan.getClassId(), scan.getScale(), size));
  }
  /// The same by factors that are made before.
  LsmFactorWalkOp buildFactorWalk() {
    int64_t K = k.getDimSize(3);
    RankedTensorType ofKeys = perChunk({size, K}, multiplied);
    auto factors = explained(
        LsmChunkWalkFactorsOp::create(builder, loc, ofKeys, ofKeys, ofKeys, perChunk({size, size}, multiplied),
                                      perChunk({1, K}, element), scan.getQ(), scan.getK(), scan.getLogDecay(),
                                      scan.getBeta(), chunks, scan.getClassId(), scan.getScale(), size));
    return LsmFactorWalkOp::create(builder, loc, scan.getO().getType(), scan.getFinalState().getType(),
                                   factors.getQueries(), factors.getKeys(), factors.getWrite(), factors.getScores(),
                                   factors.getDecay(), scan.getV(), scan.getInitialState(), chunks, scan.getClassId());
  }
  /// What the chunk's gradient reads: a delta rule solves once then.
  Value writtenForGradient() { return ScanTraits(scan.getClassId()).beta ? written : Value(); }
  /// m and finalState too.
  void buildStates() {
    Type state = scan.getInitialState().getType();
    if (walked) {
      buildTable();
      LsmStateWalkOp walk = buildWalk(scan.getK(), scan.getV(), scan.getInitialState(), /*adjoint=*/false);
      m = walk.getM();
      finalState = walk.getLast();
      return;
    }
    if (factored) {
      buildTable();
      buildFactors();
      auto factorScan = LsmFactorScanOp::create(builder, loc, statePerChunk(multiplied),
                                                perChunk({size, v.getDimSize(3)}, multiplied), state, u, write, read,
                                                decay, scan.getInitialState(), chunks, scan.getClassId());
      m = factorScan.getM();
      written = factorScan.getWritten();
      finalState = factorScan.getFinalState();
      return;
    }
    buildChunks();
    auto stateScan = LsmStateScanOp::create(builder, loc, statePerChunk(multiplied), state, x, p,
                                            scan.getInitialState(), chunks, scan.getClassId());
    m = stateScan.getM();
    finalState = stateScan.getFinalState();
  }
};

/// Whether a gradient of this scan, which CSE gives the forward's states, stands behind it.
bool sharesStates(LsmScanOp scan) {
  return llvm::any_of(scan.getK().getUsers(), [&](Operation *user) {
    auto grad = dyn_cast<LsmScanGradOp>(user);
    return grad && grad.getK() == scan.getK() && grad.getV() == scan.getV() &&
           grad.getLogDecay() == scan.getLogDecay() && grad.getInitialState() == scan.getInitialState();
  });
}

/// Outputs in a walk over chunks that are at most as long as others would be: nothing else reads them.
bool tileAsWalk(LsmScanOp scan, const Tables &tables) {
  bool narrow = tables.gpu && getElementTypeOrSelf(scan.getK().getType()).isBF16() && !tables.segments;
  if (!narrow || sharesStates(scan))
    return false;
  Type gate = scan.getLogDecay() ? getElementTypeOrSelf(scan.getLogDecay().getType()) : Type();
  std::optional<OutputBlocks> blocks =
      walksOutputs(ScanSizes::of(scan, static_cast<int64_t>(*scan.getChunkSize())), gate, scan, tables.wgmma);
  if (!blocks)
    return false;
  scan.setChunkSize(blocks->tokens);
  Chunked<LsmScanOp> chunked(scan, scan.getInitialState(), tables);
  chunked.buildTable();
  Operation *walk = ScanTraits(scan.getClassId()).walksByFactors() ? chunked.buildFactorWalk().getOperation()
                                                                   : chunked.buildOutputWalk().getOperation();
  scan.replaceAllUsesWith(walk->getResults());
  scan.erase();
  return true;
}

void tile(LsmScanOp scan, const Tables &tables) {
  if (tileAsWalk(scan, tables))
    return;
  Chunked<LsmScanOp> chunked(scan, scan.getInitialState(), tables);
  chunked.buildStates();
  auto output = LsmChunkOutputOp::create(chunked.builder, chunked.loc, scan.getO().getType(), scan.getQ(), scan.getK(),
                                         scan.getV(), scan.getLogDecay(), scan.getBeta(), scan.getA(), scan.getB(),
                                         scan.getValueDecay(), chunked.m, chunked.written, chunked.chunks,
                                         scan.getClassId(), scan.getScale(), chunked.size);
  scan.replaceAllUsesWith(ValueRange{chunked.explained(output).getO(), chunked.finalState});
  scan.erase();
}

void tile(LsmScanGradOp scan, const Tables &tables) {
  Chunked<LsmScanGradOp> chunked(scan, scan.getInitialState(), tables);
  OpBuilder &builder = chunked.builder;
  Location loc = chunked.loc;
  chunked.buildStates();
  Type dStates = chunked.statePerChunk(chunked.multiplied), dInitial = scan.getDinitialState().getType();
  Operation *stateGrad;
  if (chunked.walked) {
    stateGrad = chunked.buildWalk(scan.getQ(), scan.getDO(), scan.getDfinalState(), /*adjoint=*/true);
  } else if (chunked.factored) {
    Type d = chunked.perChunk({chunked.size, chunked.v.getDimSize(3)}, chunked.multiplied);
    auto factors = chunked.explained(LsmChunkOutputFactorsOp::create(
        builder, loc, chunked.read.getType(), d, scan.getQ(), scan.getK(), scan.getV(), scan.getLogDecay(),
        scan.getBeta(), scan.getA(), scan.getB(), scan.getValueDecay(), chunked.read, scan.getDO(), chunked.chunks,
        scan.getClassId(), scan.getScale(), chunked.size));
    stateGrad = LsmFactorScanGradOp::create(builder, loc, dStates, dInitial, factors.getG(), factors.getD(),
                                            chunked.write, chunked.read, chunked.decay, scan.getDfinalState(),
                                            chunked.chunks, scan.getClassId());
  } else {
    Value dm = chunked.explained(LsmChunkOutputGradStateOp::create(
        builder, loc, chunked.statePerChunk(chunked.element), scan.getQ(), scan.getK(), scan.getV(), scan.getLogDecay(),
        scan.getBeta(), scan.getA(), scan.getB(), scan.getValueDecay(), scan.getDO(), chunked.chunks, scan.getClassId(),
        scan.getScale(), chunked.size));
    stateGrad = LsmStateScanGradOp::create(builder, loc, dStates, dInitial, dm, chunked.p, scan.getDfinalState(),
                                           chunked.chunks, scan.getClassId());
  }
  auto grad = LsmChunkGradOp::create(
      builder, loc, scan.getDq().getType(), scan.getDk().getType(), scan.getDv().getType(), scan.getDgates().getTypes(),
      scan.getQ(), scan.getK(), scan.getV(), scan.getLogDecay(), scan.getBeta(), scan.getA(), scan.getB(),
      scan.getValueDecay(), chunked.m, chunked.writtenForGradient(), stateGrad->getResult(0), scan.getDO(),
      chunked.chunks, scan.getClassId(), scan.getScale(), chunked.size);
  SmallVector<Value> results(chunked.explained(grad).getResults());
  results.push_back(stateGrad->getResult(1));
  scan.replaceAllUsesWith(results);
  scan.erase();
}

void tile(LsmSegmentOp segment, const Tables &tables) {
  Chunked<LsmSegmentOp> chunked(segment, segment.getX(), tables);
  chunked.buildChunks();
  auto scan = LsmSegmentScanOp::create(chunked.builder, chunked.loc, segment.getP().getType(), segment.getX().getType(),
                                       chunked.x, chunked.p, chunked.chunks, segment.getClassId(), /*adjoint=*/false);
  segment.replaceAllUsesWith(ValueRange{scan.getTransition(), scan.getState()});
  segment.erase();
}

void tile(LsmSegmentGradOp segment, const Tables &tables) {
  Chunked<LsmSegmentGradOp> chunked(segment, segment.getDx(), tables);
  OpBuilder &builder = chunked.builder;
  chunked.buildChunks();
  Value dm = chunked.explained(LsmChunkOutputGradStateOp::create(
      builder, chunked.loc, chunked.statePerChunk(chunked.element), segment.getQ(), segment.getK(), segment.getV(),
      segment.getLogDecay(), segment.getBeta(), segment.getA(), segment.getB(), segment.getValueDecay(),
      segment.getDO(), chunked.chunks, segment.getClassId(), segment.getScale(), chunked.size));
  auto scan = LsmSegmentScanOp::create(builder, chunked.loc, Type(), segment.getDx().getType(), dm, chunked.p,
                                       chunked.chunks, segment.getClassId(), /*adjoint=*/true);
  segment.replaceAllUsesWith(scan.getState());
  segment.erase();
}

/// The table and the states before every mini-batch of an inner step.
template <typename Inner> struct MiniBatches {
  Inner inner;
  OpBuilder builder;
  LsmInnerStatesOp states;

  MiniBatches(Inner inner, int64_t maxDocuments) : inner(inner), builder(inner) {
    auto k = cast<RankedTensorType>(inner.getK().getType());
    auto state = cast<RankedTensorType>(inner.getInitialState().getType());
    // One more than a scan's: the first document may begin inside a mini-batch, and so may the padding behind it.
    int64_t size = inner.getMiniBatch(), rows = llvm::divideCeil(k.getDimSize(1), size) + maxDocuments + 1;
    SmallVector<int64_t> perChunk(state.getShape());
    perChunk[2] = InnerTraits(inner).chunkPlanes() * k.getDimSize(3);
    perChunk.insert(perChunk.begin() + 1, rows);
    auto perToken = cast<RankedTensorType>(inner.getV().getType())
                        .clone(state.getElementType().isF64() ? state.getElementType() : builder.getF32Type());
    Value chunks = LsmChunkTableOp::create(builder, inner.getLoc(),
                                           RankedTensorType::get({k.getDimSize(0), rows, 4}, builder.getI32Type()),
                                           inner.getDocuments(), size, /*aligned=*/true);
    states = LsmInnerStatesOp::create(
        builder, inner.getLoc(), state.clone(perChunk), state, perToken,
        inner.getNormWeight() ? perToken : RankedTensorType(), inner.getK(), inner.getV(), inner.getRate(),
        inner.getLogDecay(), inner.getLogMomentum(), inner.getReadRate(), inner.getNormWeight(), inner.getNormBias(),
        inner.getWeights(), inner.getInitialState(), chunks, inner.getMiniBatchAttr(), inner.getNormEpsAttr());
  }
  Value initialIf(bool needed) { return needed ? inner.getInitialState() : Value(); }
};

void tile(LsmInnerStepOp step, int64_t maxDocuments) {
  MiniBatches<LsmInnerStepOp> parts(step, maxDocuments);
  auto output = LsmInnerOutputOp::create(parts.builder, step.getLoc(), step.getO().getType(), step.getQ(), step.getK(),
                                         step.getRate(), step.getLogDecay(), step.getLogMomentum(), step.getReadRate(),
                                         parts.states.getResiduals(), parts.initialIf(InnerTraits(step).readRate),
                                         parts.states.getStates(), parts.states.getChunks(), step.getMiniBatchAttr());
  step.replaceAllUsesWith(ValueRange{output.getO(), parts.states.getFinalState()});
  step.erase();
}

void tile(LsmInnerStepGradOp grad, int64_t maxDocuments) {
  MiniBatches<LsmInnerStepGradOp> parts(grad, maxDocuments);
  auto all = LsmInnerGradOp::create(
      parts.builder, grad.getLoc(), grad.getResultTypes(), grad.getQ(), grad.getK(), grad.getV(), grad.getRate(),
      grad.getLogDecay(), grad.getLogMomentum(), grad.getReadRate(), grad.getNormWeight(), grad.getNormBias(),
      grad.getWeights(), parts.states.getPredictions(), parts.states.getResiduals(),
      parts.initialIf(InnerTraits(grad).hasInside()), parts.states.getStates(), parts.states.getChunks(), grad.getDO(),
      grad.getDfinalState(), grad.getMiniBatchAttr(), grad.getNormEpsAttr());
  grad.replaceAllUsesWith(all.getResults());
  grad.erase();
}

/// The decode step is the scan without chunks.
void step(LsmScanOp scan) {
  OpBuilder builder(scan);
  auto step = LsmStepOp::create(builder, scan.getLoc(), scan.getO().getType(), scan.getFinalState().getType(),
                                scan.getQ(), scan.getK(), scan.getV(), scan.getLogDecay(), scan.getBeta(), scan.getA(),
                                scan.getB(), scan.getValueDecay(), scan.getInitialState(), scan.getDocuments(),
                                scan.getClassId(), scan.getScale());
  scan.replaceAllUsesWith(step.getResults());
  scan.erase();
}

LogicalResult checkSizes(Operation *op, std::optional<uint64_t> size) {
  if (!size)
    return op->emitOpError("has no chunk_size; braid-decide-chunk-size writes it");
  if (*size == 0 || *size % 16 != 0)
    return op->emitOpError("chunk_size must be a positive multiple of 16, is ") << static_cast<int64_t>(*size);
  if (Attribute rows = op->getAttr(attrs::scoreRows)) {
    auto number = dyn_cast<IntegerAttr>(rows);
    if (!number || number.getInt() < 2 || number.getInt() % 2 != 0 || *size % number.getInt() != 0)
      return op->emitOpError() << attrs::scoreRows << " is " << rows << "; valid: an even divisor of chunk_size "
                               << static_cast<int64_t>(*size);
  }
  return success();
}

struct ChunkTilingPass : public braid::impl::ChunkTilingPassBase<ChunkTilingPass> {
  using ChunkTilingPassBase::ChunkTilingPassBase;

  void runOnOperation() override {
    Tables tables{.gpu = gpu, .wgmma = wgmma};
    if (auto attr = getOperation()->getAttrOfType<IntegerAttr>(attrs::maxDocuments))
      tables.maxDocuments = attr.getInt();
    SmallVector<Operation *> ops;
    getOperation().walk([&](Operation *op) {
      tables.segments |= isa<LsmSegmentOp>(op);
      if (isa<LsmScanOp, LsmScanGradOp, LsmInnerStepOp, LsmInnerStepGradOp, LsmSegmentOp, LsmSegmentGradOp>(op))
        ops.push_back(op);
    });
    for (Operation *op : ops) {
      auto scan = dyn_cast<LsmScanOp>(op);
      if (scan && cast<RankedTensorType>(scan.getQ().getType()).getDimSize(1) == 1)
        step(scan);
      else if (failed(tileAny(op, tables)))
        return signalPassFailure();
    }
  }

  static LogicalResult tileAny(Operation *op, const Tables &tables) {
    return llvm::TypeSwitch<Operation *, LogicalResult>(op)
        .Case([&](LsmInnerStepOp step) {
          if (cast<RankedTensorType>(step.getQ().getType()).getDimSize(1) > 1)
            tile(step, tables.maxDocuments);
          return success();
        })
        .Case([&](LsmInnerStepGradOp grad) {
          tile(grad, tables.maxDocuments);
          return success();
        })
        .Case<LsmScanOp, LsmScanGradOp, LsmSegmentOp, LsmSegmentGradOp>([&](auto inChunks) {
          if (failed(checkSizes(inChunks, inChunks.getChunkSize())))
            return failure();
          tile(inChunks, tables);
          return success();
        });
  }
};

} // namespace
