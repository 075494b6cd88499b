//===- LsmKernels.cpp - lsm.chunk_*, lsm.state_scan*, lsm.step become launches ------------------------------------===//
#include "passes/outline/LsmKernels.h"
#include "dialects/braid/PassAttributes.h"
#include "passes/analysis/DecayRange.h"
#include "passes/analysis/StateWalk.h"
#include "passes/outline/OutlineFamilies.h"

#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;

namespace braid {

namespace {

Type elementOf(Value value) { return value ? tensorType(value).getElementType() : Type(); }

/// Class, dimensions and types of a kernel that sees tokens (k, and v or another value tensor).
LsmShape shapeOfTokens(LsmClass classId, Value keys, Value values, Value gate, Value beta, Type state, int64_t chunk) {
  Shape k = shapeOf(keys), v = shapeOf(values);
  Type compute = computeType(state);
  LsmShape shape{classId, k[2], k[3], v[3], chunk, elementOf(keys), elementOf(gate), elementOf(beta), state, compute};
  shape.product = ScanTraits(classId).elementDecay && shapeOf(gate).size() == 3;
  return shape;
}

/// Of a kernel that sees states [B, n, H, K, V] only.
LsmShape shapeOfStates(LsmClass classId, Value states) {
  Shape s = shapeOf(states);
  Type element = elementOf(states);
  return {classId, s[2], s[3], s[4], 0, {}, {}, {}, element, computeType(element)};
}

/// Of a kernel that sees segments only: [s, B, H, K, V] and their factors. Classes that store the same share it.
LsmShape shapeOfSegments(Value p, Value x) {
  static constexpr LsmClass kinds[] = {LsmClass::S, LsmClass::V, LsmClass::GH};
  return shapeOfStates(kinds[shapeOf(p).size() - 3], x);
}
/// Of a kernel that computes transitions: columns of a dense one, otherwise a single block.
LsmShape shapeOfTransitions(LsmShape shape) {
  shape.values = shape.traits().dense ? shape.keys : 1;
  return shape;
}

using Grid = llvm::ArrayRef<llvm::StringRef>;
const llvm::StringRef chunkGrid[] = {"head", "chunk", "batch"}, columnGrid[] = {"columns", "head", "batch"};

class LsmOutline {
public:
  LsmOutline(OutlineContext &context, Operation *op) : context(context), op(op) {}

  LogicalResult table(LsmChunkTableOp table) {
    int64_t size = table.getChunkSize();
    bool aligned = table.getAligned();
    std::string kernel =
        context.kernel(llvm::formatv("lsm_chunk_table{0}_c{1}", aligned ? "_aligned" : "", size).str(), {"batch"},
                       [&](KernelBuilder &k) { writeChunkTable(k, size, aligned, context.gpu); });
    context.replace(op, context.launch(op, kernel, {shapeOf(table.getDocuments())[0]})
                            .arg("documents", table.getDocuments())
                            .result("chunks", table.getChunks().getType())
                            .run());
    return success();
  }

  LogicalResult state(LsmChunkStateOp state) {
    LsmShape shape = ofChunk(state.getClassId(), state.getK(), state.getV(), state.getLogDecay(), state.getBeta(),
                             elementOf(state.getX()), state.getChunkSize());
    if (state.getP() && shape.traits().dense)
      shape.multiplied = elementOf(state.getP());
    auto launch = begin("chunk_state", shape, shape.elementDecay() ? writeElementChunkState : writeChunkState,
                        chunkGrid, chunkExtents(state.getChunks(), shape));
    launch.arg("k", state.getK()).arg("v", state.getV());
    gates(launch, state);
    launch.arg("chunks", state.getChunks()).result("x", state.getX().getType());
    if (state.getP())
      launch.result("p", state.getP().getType());
    context.replace(op, launch.run());
    return success();
  }

  LogicalResult scan(LsmStateScanOp scan) {
    LsmShape shape = shapeOfStates(scan.getClassId(), scan.getX());
    shape.multiplied = elementOf(scan.getM());
    shape = spread(shape, scan.getX());
    auto launch = begin("state_scan", shape, writeStateScan, columnGrid, columnExtents(scan.getX(), shape));
    launch.arg("x", scan.getX());
    optional(launch, "p", scan.getP());
    launch.arg("initial_state", scan.getInitialState()).arg("chunks", scan.getChunks());
    context.replace(
        op, launch.result("m", scan.getM().getType()).result("final_state", scan.getFinalState().getType()).run());
    return success();
  }

  LogicalResult scanGrad(LsmStateScanGradOp scan) {
    LsmShape shape = shapeOfStates(scan.getClassId(), scan.getDm());
    shape.multiplied = elementOf(scan.getDx());
    shape = spread(shape, scan.getDm());
    auto launch = begin("state_scan_grad", shape, writeStateScanGrad, columnGrid, columnExtents(scan.getDm(), shape));
    launch.arg("dm", scan.getDm());
    optional(launch, "p", scan.getP());
    launch.arg("dfinal_state", scan.getDfinalState()).arg("chunks", scan.getChunks());
    context.replace(
        op,
        launch.result("dx", scan.getDx().getType()).result("dinitial_state", scan.getDinitialState().getType()).run());
    return success();
  }

  LogicalResult walk(LsmStateWalkOp walk) {
    LsmShape shape = shapeOfTokens(walk.getClassId(), walk.getK(), walk.getV(), walk.getLogDecay(), {},
                                   elementOf(walk.getState()), walk.getChunkSize());
    shape.multiplied = elementOf(walk.getM());
    std::optional<WalkBlocks> blocks = walkBlocks(ScanSizes::of(walk, shape.chunk), walk);
    if (!blocks)
      return walk.emitOpError(
          "has no kernel: keys must be a multiple of 32, values of 16, chunks of at most 128 tokens");
    shape.mostKeys = blocks->keys;
    shape.mostColumns = blocks->values;
    shape.segments = blocks->segments;
    bool adjoint = walk.getAdjoint();
    int64_t rows = shapeOf(walk.getK())[0];
    auto tokens = [&](OutlineContext::Launch &launch) {
      launch.arg(adjoint ? "q" : "k", walk.getK()).arg(adjoint ? "d_o" : "v", walk.getV());
      launch.arg("log_decay", walk.getLogDecay()).arg("chunks", walk.getChunks());
    };
    auto run = [&](OutlineContext::Launch &launch) {
      if (adjoint)
        launch.scalar("scale", walk.getScale().convertToDouble(), shape.compute);
      return launch.run();
    };
    SmallVector<Value> ends; // of all segments but the last
    if (int64_t others = shape.segments - 1; others > 0) {
      auto launch = begin(adjoint ? "state_walk_grad_ends" : "state_walk_ends", shape,
                          adjoint ? writeStateWalkGradEnds : writeStateWalkEnds, columnGrid,
                          {blocks->perHead * others, shape.heads, rows});
      tokens(launch);
      launch.result("x", RankedTensorType::get({others, rows, shape.heads, shape.keys, shape.values}, shape.state));
      launch.result("p", RankedTensorType::get({others, rows, shape.heads, shape.keys}, shape.state));
      ends = run(launch);
    }
    auto launch =
        begin(adjoint ? "state_walk_grad" : "state_walk", shape, adjoint ? writeStateWalkGrad : writeStateWalk,
              columnGrid, {blocks->perHead * shape.segments, shape.heads, rows});
    tokens(launch);
    launch.arg(adjoint ? "dfinal_state" : "initial_state", walk.getState());
    if (!ends.empty())
      launch.arg("x", ends[0]).arg("p", ends[1]);
    launch.result(adjoint ? "dx" : "m", walk.getM().getType());
    launch.result(adjoint ? "dinitial_state" : "final_state", walk.getLast().getType());
    context.replace(op, run(launch));
    return success();
  }

  LogicalResult outputWalk(LsmOutputWalkOp walk) {
    LsmShape shape = shapeOfTokens(walk.getClassId(), walk.getK(), walk.getV(), walk.getLogDecay(), {},
                                   elementOf(walk.getInitialState()), walk.getChunkSize());
    if (walk.getInverse())
      shape.multiplied = elementOf(walk.getInverse());
    std::optional<OutputBlocks> blocks = outputBlocksOf(ScanSizes::of(walk, shape.chunk), walk);
    if (!blocks)
      return walk.emitOpError(
          "has no kernel: chunks must be of 32, 64 or 128 tokens, values a multiple of them, keys one of 16 "
          "(of class V of them) and at most 128");
    shape.segments = blocks->segments;
    int64_t rows = shapeOf(walk.getK())[0];
    SmallVector<Value> ends; // of all segments but the last
    if (int64_t others = shape.segments - 1; others > 0) {
      LsmShape each = shape;
      each.mostKeys = blocks->ends->keys;
      each.mostColumns = blocks->ends->values;
      each.multiplied = shape.token;
      auto launch = begin("state_walk_ends", each, writeStateWalkEnds, columnGrid,
                          {blocks->ends->perHead * others, shape.heads, rows});
      launch.arg("k", walk.getK()).arg("v", walk.getV());
      optional(launch, "log_decay", walk.getLogDecay());
      launch.arg("chunks", walk.getChunks());
      launch.result("x", RankedTensorType::get({others, rows, shape.heads, shape.keys, shape.values}, shape.state));
      launch.result("p", RankedTensorType::get({others, rows, shape.heads, shape.keys}, shape.state));
      ends = launch.run();
    }
    shape.mostColumns = shape.chunk;
    shape.boxes = hasBoxes(shape, shapeOf(walk.getK())[1]);
    auto launch = begin(context.boxes && !shape.boxes ? "output_walk_by_rows" : "output_walk", shape, writeOutputWalk,
                        columnGrid, {blocks->perHead * shape.segments, shape.heads, rows});
    launch.arg("q", walk.getQ()).arg("k", walk.getK()).arg("v", walk.getV());
    optional(launch, "log_decay", walk.getLogDecay());
    optional(launch, "inverse", walk.getInverse());
    optional(launch, "sums", walk.getSums());
    launch.arg("chunks", walk.getChunks()).arg("initial_state", walk.getInitialState());
    if (!ends.empty())
      launch.arg("x", ends[0]).arg("p", ends[1]);
    launch.result("o", walk.getO().getType()).result("final_state", walk.getFinalState().getType());
    context.replace(op, launch.scalar("scale", walk.getScale().convertToDouble(), shape.compute).run());
    return success();
  }

  LogicalResult inverse(LsmChunkInverseOp inverse) {
    Type element = elementOf(inverse.getInverse());
    LsmShape shape = shapeOfTokens(inverse.getClassId(), inverse.getK(), inverse.getK(), inverse.getLogDecay(),
                                   inverse.getBeta(), computeType(element), inverse.getChunkSize());
    shape.values = shape.chunk; // of the triangle
    shape.multiplied = element;
    auto launch = begin("chunk_inverse", shape, writeChunkInverse, chunkGrid, chunkExtents(inverse.getChunks(), shape));
    launch.arg("k", inverse.getK());
    optional(launch, "log_decay", inverse.getLogDecay());
    launch.arg("beta", inverse.getBeta()).arg("chunks", inverse.getChunks());
    launch.result("inverse", inverse.getInverse().getType());
    if (inverse.getSums())
      launch.result("sums", inverse.getSums().getType());
    context.replace(op, launch.run());
    return success();
  }

  LogicalResult walkFactors(LsmChunkWalkFactorsOp factors) {
    LsmShape shape = ofChunk(factors.getClassId(), factors.getK(), factors.getK(), factors.getLogDecay(),
                             factors.getBeta(), elementOf(factors.getDecay()), factors.getChunkSize());
    shape.multiplied = elementOf(factors.getWrite());
    auto launch =
        begin("chunk_walk_factors", shape, writeChunkWalkFactors, chunkGrid, chunkExtents(factors.getChunks(), shape));
    launch.arg("q", factors.getQ()).arg("k", factors.getK());
    launch.arg("log_decay", factors.getLogDecay()).arg("beta", factors.getBeta());
    launch.arg("chunks", factors.getChunks());
    for (auto [name, result] :
         llvm::zip(StringRefs{"queries", "keys", "write", "scores", "decay"}, factors->getResults()))
      launch.result(name, result.getType());
    context.replace(op, launch.scalar("scale", factors.getScale().convertToDouble(), shape.compute).run());
    return success();
  }

  LogicalResult factorWalk(LsmFactorWalkOp walk) {
    LsmShape shape = shapeOfTokens(walk.getClassId(), walk.getV(), walk.getV(), walk.getDecay(), {},
                                   elementOf(walk.getInitialState()), shapeOf(walk.getWrite())[3]);
    shape.keys = shapeOf(walk.getWrite())[4];
    shape.multiplied = elementOf(walk.getWrite());
    std::optional<OutputBlocks> blocks = outputBlocksOf(ScanSizes::of(walk), walk);
    if (!blocks)
      return walk.emitOpError("has no kernel: chunks must be of 32 or 64 tokens, values a multiple of them, keys one "
                              "of 16 and at most 128");
    shape.mostColumns = shape.chunk;
    shape.boxes = hasBoxes(shape, shapeOf(walk.getV())[1]);
    auto launch = begin(context.boxes && !shape.boxes ? "factor_walk_by_rows" : "factor_walk", shape, writeOutputWalk,
                        columnGrid, {blocks->perHead, shape.heads, shapeOf(walk.getV())[0]});
    launch.arg("queries", walk.getQueries()).arg("keys", walk.getKeys()).arg("write", walk.getWrite());
    launch.arg("scores", walk.getScores()).arg("decay", walk.getDecay()).arg("v", walk.getV());
    launch.arg("chunks", walk.getChunks()).arg("initial_state", walk.getInitialState());
    launch.result("o", walk.getO().getType()).result("final_state", walk.getFinalState().getType());
    context.replace(op, launch.run());
    return success();
  }

  LogicalResult factors(LsmChunkFactorsOp factors) {
    LsmShape shape = ofChunk(factors.getClassId(), factors.getK(), factors.getV(), factors.getLogDecay(),
                             factors.getBeta(), stateOfFactors(factors), factors.getChunkSize());
    shape.multiplied = elementOf(factors.getRead());
    shape.wholeRows = hasWholeRows(shape);
    auto launch = begin("chunk_factors", shape, writeChunkFactors, chunkGrid, chunkExtents(factors.getChunks(), shape));
    launch.arg("k", factors.getK()).arg("v", factors.getV());
    gates(launch, factors);
    launch.arg("chunks", factors.getChunks());
    for (auto [name, result] : llvm::zip(StringRefs{"u", "write", "read", "decay"}, factors->getResults()))
      launch.result(name, result.getType());
    context.replace(op, launch.run());
    return success();
  }

  LogicalResult factorScan(LsmFactorScanOp scan) {
    LsmShape shape = ofFactors(scan.getClassId(), scan.getM(), scan.getFinalState(), scan.getRead());
    auto launch = begin("factor_scan", shape, writeFactorScan, columnGrid, columnExtents(scan.getM(), shape));
    launch.arg("u", scan.getU()).arg("write", scan.getWrite()).arg("read", scan.getRead());
    optional(launch, "decay", scan.getDecay());
    launch.arg("initial_state", scan.getInitialState()).arg("chunks", scan.getChunks());
    context.replace(op, launch.result("m", scan.getM().getType())
                            .result("written", scan.getWritten().getType())
                            .result("final_state", scan.getFinalState().getType())
                            .run());
    return success();
  }

  LogicalResult factorScanGrad(LsmFactorScanGradOp scan) {
    LsmShape shape = ofFactors(scan.getClassId(), scan.getDx(), scan.getDfinalState(), scan.getRead());
    auto launch = begin("factor_scan_grad", shape, writeFactorScanGrad, columnGrid, columnExtents(scan.getDx(), shape));
    launch.arg("g", scan.getG()).arg("d", scan.getD()).arg("write", scan.getWrite()).arg("read", scan.getRead());
    optional(launch, "decay", scan.getDecay());
    launch.arg("dfinal_state", scan.getDfinalState()).arg("chunks", scan.getChunks());
    context.replace(
        op,
        launch.result("dx", scan.getDx().getType()).result("dinitial_state", scan.getDinitialState().getType()).run());
    return success();
  }

  LogicalResult outputFactors(LsmChunkOutputFactorsOp factors) {
    Type state = computeType(elementOf(factors.getRead()));
    LsmShape shape = ofChunk(factors.getClassId(), factors.getQ(), factors.getDO(), factors.getLogDecay(),
                             factors.getBeta(), state, factors.getChunkSize());
    shape.multiplied = elementOf(factors.getRead());
    auto launch = begin("chunk_output_factors", shape, writeChunkOutputFactors, chunkGrid,
                        chunkExtents(factors.getChunks(), shape));
    launch.arg("q", factors.getQ());
    if (shape.lowRank())
      launch.arg("b", factors.getB());
    else
      launch.arg("k", factors.getK());
    optional(launch, "log_decay", factors.getLogDecay());
    optional(launch, "beta", factors.getBeta());
    launch.arg("read", factors.getRead()).arg("d_o", factors.getDO()).arg("chunks", factors.getChunks());
    launch.result("g", factors.getG().getType()).result("d", factors.getD().getType());
    context.replace(op, launch.scalar("scale", factors.getScale().convertToDouble(), shape.compute).run());
    return success();
  }

  /// From what the scan wrote of each token.
  LogicalResult factoredOutput(LsmChunkOutputOp output) {
    LsmShape shape = ofChunk(output.getClassId(), output.getK(), output.getV(), output.getLogDecay(), output.getBeta(),
                             elementOf(output.getM()), output.getChunkSize());
    shape.factored = true;
    shape.wholeRows = shape.delta() && hasWholeRows(shape);
    auto launch =
        begin("chunk_output", shape, writeFactoredChunkOutput, chunkGrid, chunkExtents(output.getChunks(), shape));
    launch.arg("q", output.getQ()).arg("k", output.getK());
    if (shape.lowRank())
      launch.arg("v", output.getV());
    optional(launch, "log_decay", output.getLogDecay());
    optional(launch, "beta", output.getBeta());
    optional(launch, "b", output.getB());
    launch.arg("m", output.getM()).arg("written", output.getWritten()).arg("chunks", output.getChunks());
    launch.result("o", output.getO().getType());
    context.replace(op, launch.scalar("scale", output.getScale().convertToDouble(), shape.compute).run());
    return success();
  }

  LogicalResult output(LsmChunkOutputOp output) {
    if (output.getWritten())
      return factoredOutput(output);
    LsmShape shape = ofChunk(output.getClassId(), output.getK(), output.getV(), output.getLogDecay(), output.getBeta(),
                             elementOf(output.getM()), output.getChunkSize());
    auto launch = begin("chunk_output", shape, shape.elementDecay() ? writeElementChunkOutput : writeChunkOutput,
                        chunkGrid, chunkExtents(output.getChunks(), shape));
    scanOperands(launch, output);
    launch.arg("m", output.getM()).arg("chunks", output.getChunks()).result("o", output.getO().getType());
    context.replace(op, launch.scalar("scale", output.getScale().convertToDouble(), shape.compute).run());
    return success();
  }

  LogicalResult outputGradState(LsmChunkOutputGradStateOp grad) {
    LsmShape shape = ofChunk(grad.getClassId(), grad.getQ(), grad.getDO(), grad.getLogDecay(), grad.getBeta(),
                             elementOf(grad.getDm()), grad.getChunkSize());
    auto launch = begin("chunk_output_grad_state", shape,
                        shape.elementDecay() ? writeElementChunkOutputGradState : writeChunkOutputGradState, chunkGrid,
                        chunkExtents(grad.getChunks(), shape));
    // Plain classes read neither k nor v here.
    launch.arg("q", grad.getQ());
    if (shape.traits().dense)
      launch.arg("k", grad.getK());
    gates(launch, grad);
    launch.arg("d_o", grad.getDO()).arg("chunks", grad.getChunks()).result("dm", grad.getDm().getType());
    context.replace(op, launch.scalar("scale", grad.getScale().convertToDouble(), shape.compute).run());
    return success();
  }

  LogicalResult chunkGrad(LsmChunkGradOp grad) {
    LsmShape shape = ofChunk(grad.getClassId(), grad.getK(), grad.getV(), grad.getLogDecay(), grad.getBeta(),
                             elementOf(grad.getM()), grad.getChunkSize());
    if (shape.product) // of which the kernel keeps a block for every token
      shape.mostColumns = std::clamp<int64_t>(kKeptElements / (shape.chunk * shape.keys), 1, shape.mostColumns);
    shape.wholeRows = elementOf(grad.getM()).isBF16() && hasWholeRows(shape);
    // Of what is written and its cotangent the rest follows without a triangle.
    shape.split = shape.delta() && shape.wholeRows && grad.getWritten();
    if (shape.delta() && shape.vectorDecay() && !shape.split)
      shape.wholeRows = false;
    SmallVector<Value> ofValues; // dV, H and GH: dbeta
    if (shape.split) {
      shape.multiplied = elementOf(grad.getWritten());
      ofValues = gradOfValues(grad, shape);
    }
    auto write = shape.elementDecay()  ? writeElementChunkGrad
                 : shape.vectorDecay() ? writeVectorChunkGrad
                                       : writeChunkGrad;
    auto launch = begin("chunk_grad", shape, write, chunkGrid, chunkExtents(grad.getChunks(), shape));
    scanOperands(launch, grad);
    launch.arg("m", grad.getM()).arg("dx", grad.getDx()).arg("d_o", grad.getDO()).arg("chunks", grad.getChunks());
    launch.result("dq", grad.getDq().getType()).result("dk", grad.getDk().getType());
    if (shape.split)
      launch.arg("dv", ofValues[0]).arg("written", grad.getWritten());
    else
      launch.result("dv", grad.getDv().getType());
    llvm::SmallVector<llvm::StringRef> names;
    if (shape.decayGradient())
      names.push_back("dlog_decay");
    if (shape.delta() && ofValues.size() < 2)
      names.push_back("dbeta");
    if (shape.lowRank())
      names.append({"da", "db"});
    if (shape.valueDecay() || shape.product)
      names.push_back("dvalue_decay");
    auto perChunk = [&](Type type) { // what each chunk adds to a sum over all
      SmallVector<int64_t> parts(shapeOf(grad.getChunks()).take_front(2));
      llvm::append_range(parts, cast<RankedTensorType>(type).getShape());
      return RankedTensorType::get(parts, cast<RankedTensorType>(type).getElementType());
    };
    for (auto [i, name] : llvm::enumerate(names)) {
      Type type = grad.getDgates()[i].getType();
      launch.result(name, i == 0 && shape.product ? Type(perChunk(type)) : type);
    }
    SmallVector<Value> results = launch.scalar("scale", grad.getScale().convertToDouble(), shape.compute).run();
    if (shape.split) {
      results.insert(results.begin() + 2, ofValues[0]);
      results.append(ofValues.begin() + 1, ofValues.end());
    }
    if (shape.product) {
      SmallVector<int64_t> parts(shapeOf(results[3]).drop_front(2));
      parts.insert(parts.begin(), shapeOf(results[3])[0] * shapeOf(results[3])[1]);
      results[3] = sumOverRows(op, context.view(op, results[3], parts), context);
    }
    context.replace(op, results);
    return success();
  }

  LogicalResult segmentScan(LsmSegmentScanOp scan) {
    LsmShape shape = shapeOfStates(scan.getClassId(), scan.getX());
    if (scan.getP() && shape.traits().dense)
      shape.multiplied = elementOf(scan.getP());
    bool adjoint = scan.getAdjoint();
    auto launch =
        begin(adjoint ? "segment_state_grad" : "segment_state", shape,
              adjoint ? writeSegmentStateGrad : writeSegmentState, columnGrid, columnExtents(scan.getX(), shape));
    launch.arg("x", scan.getX());
    optional(launch, "p", scan.getP());
    launch.arg("chunks", scan.getChunks()).result("state", scan.getState().getType());
    SmallVector<Value> results;
    if (scan.getTransition()) {
      LsmShape only = shapeOfTransitions(shape);
      auto product =
          begin("segment_transition", only, writeSegmentTransition, columnGrid, columnExtents(scan.getX(), only));
      optional(product, "p", scan.getP());
      product.arg("chunks", scan.getChunks()).result("transition", scan.getTransition().getType());
      results = product.run();
    }
    results.push_back(launch.run()[0]);
    context.replace(op, results);
    return success();
  }

  template <typename Fold>
  LogicalResult fold(Fold fold, llvm::StringRef what, void (*write)(KernelBuilder &, const LsmShape &), Value x,
                     Value carry) {
    LsmShape shape = shapeOfSegments(fold.getP(), x);
    auto launch = begin(what, shape, write, columnGrid, columnExtents(carry, shape));
    launch.arg("p", fold.getP()).arg("x", x).arg("carry", carry).arg("coordinate", fold.getCoordinate());
    context.replace(op, launch.result("mine", carry.getType()).result("last", carry.getType()).run());
    return success();
  }

  LogicalResult compose(LsmComposeOp compose) {
    LsmShape shape = shapeOfSegments(compose.getP(), compose.getX());
    bool adjoint = compose.getAdjoint();
    int64_t batch = shapeOf(compose.getX())[1];
    auto launch = begin(adjoint ? "compose_grad" : "compose", shape, adjoint ? writeComposeGrad : writeCompose,
                        columnGrid, {shape.valueBlocks(), shape.heads, batch});
    launch.arg("p", compose.getP()).arg("x", compose.getX()).arg("x_other", compose.getXOther());
    SmallVector<Value> results = launch.result("result", compose.getResult().getType()).run();
    if (compose.getTransition()) {
      LsmShape only = shapeOfTransitions(shape);
      auto product = begin(adjoint ? "compose_transition_grad" : "compose_transition", only,
                           adjoint ? writeComposeTransitionGrad : writeComposeTransition, columnGrid,
                           {only.valueBlocks(), only.heads, batch});
      product.arg("p", compose.getP()).arg("p_other", compose.getPOther());
      results.push_back(product.result("transition", compose.getTransition().getType()).run()[0]);
    }
    context.replace(op, results);
    return success();
  }

  LogicalResult step(LsmStepOp step) {
    LsmShape shape = shapeOfTokens(step.getClassId(), step.getK(), step.getV(), step.getLogDecay(), step.getBeta(),
                                   elementOf(step.getInitialState()), 0);
    int64_t batch = shapeOf(step.getQ())[0];
    auto launch = begin("step", shape, writeStep, columnGrid, {shape.valueBlocks(), shape.heads, batch});
    scanOperands(launch, step);
    launch.arg("initial_state", step.getInitialState()).arg("documents", step.getDocuments());
    launch.result("o", step.getO().getType()).result("final_state", step.getFinalState().getType(), "initial_state");
    context.replace(op, launch.scalar("scale", step.getScale().convertToDouble(), shape.compute).run());
    return success();
  }

private:
  using StringRefs = std::initializer_list<llvm::StringRef>;
  using Extents = llvm::SmallVector<int64_t, 3>;

  /// dV of a delta rule, (I + A)^-T (S^T dO + (K exp(c_C - c)) D'). H and GH: dbeta too, which is a sum along rows of what is solved and what was written.
  SmallVector<Value> gradOfValues(LsmChunkGradOp grad, const LsmShape &shape) {
    auto launch =
        begin("chunk_grad_values", shape, writeChunkGradValues, chunkGrid, chunkExtents(grad.getChunks(), shape));
    launch.arg("q", grad.getQ()).arg("k", grad.getK());
    gates(launch, grad);
    launch.arg("dx", grad.getDx()).arg("d_o", grad.getDO()).arg("chunks", grad.getChunks());
    launch.result("dv", grad.getDv().getType());
    if (!shape.vectorDecay())
      launch.arg("written", grad.getWritten()).result("dbeta", grad.getDgates().back().getType());
    return launch.scalar("scale", grad.getScale().convertToDouble(), shape.compute).run();
  }
  /// Of a scan by factors, over states [B, n, H, K, V]; `state`: a value of the type that is carried.
  LsmShape ofFactors(LsmClass classId, Value states, Value state, Value read) {
    LsmShape shape = shapeOfStates(classId, states);
    shape.state = elementOf(state);
    shape.compute = computeType(shape.state);
    shape.multiplied = elementOf(states);
    shape.chunk = shapeOf(read)[3];
    // Two warps of 16 columns: what a chunk's products wait for each other no other warp makes shorter.
    constexpr int64_t ofTwoWarps = 32;
    if (shape.values % ofTwoWarps == 0)
      shape.mostColumns = ofTwoWarps;
    return shape;
  }
  /// Whether a walk's tiles may come in boxes, of rows of so many tokens: these are no larger than what they are cut from, and their rows 128 bytes.
  bool hasBoxes(const LsmShape &shape, int64_t tokens) const {
    constexpr int64_t boxColumns = 64;
    return context.boxes && shape.token.isBF16() && tokens >= shape.chunk && shape.keys >= boxColumns &&
           shape.chunk >= boxColumns && shape.keys % 8 == 0;
  }
  /// What a block of threads multiplies on tensor cores it reads once, in one piece, where its sums are in registers: where triangles are inverted tiles of tokens
  /// by keys and by values, all in the same columns.
  bool hasWholeRows(const LsmShape &shape) const {
    if (!context.gpu || !shape.token.isBF16() || shape.values > kMostWholeRow)
      return false;
    return shape.classId == LsmClass::V ||
           ((!shape.vectorDecay() || shape.delta() || shape.lowRank()) && shape.keys == shape.values &&
            shape.values % kWholeColumns == 0 && shape.chunk * shape.values <= kMostWholeTile);
  }
  /// Decays are states' numbers; class H has none.
  static Type stateOfFactors(LsmChunkFactorsOp factors) {
    return factors.getDecay() ? elementOf(factors.getDecay()) : Float32Type::get(factors.getContext());
  }
  /// With what passes found out about the decays.
  template <typename... Args> LsmShape ofChunk(Args... args) {
    LsmShape shape = shapeOfTokens(args...);
    if (!makesDecayedScores(op))
      return shape;
    shape.mild = provesMildDecay(op, shape.chunk);
    if (auto rows = op->getAttrOfType<IntegerAttr>(attrs::scoreRows))
      shape.scoreRows = rows.getInt();
    return shape;
  }

  OutlineContext::Launch begin(llvm::StringRef what, const LsmShape &shape,
                               void (*write)(KernelBuilder &, const LsmShape &), Grid grid, const Extents &extents) {
    std::string kernel = context.kernel(shape.kernelName(what), grid, [&](KernelBuilder &k) {
      write(k, shape);
      if (shape.boxes)
        k.inBoxes();
      bool tokens = shape.token && shape.token.isBF16() && shape.chunk;
      if (!tokens && !shape.multipliedType().isBF16())
        return;
      if (context.gpu)
        k.invertTriangles();
      k.roundProducts();
    });
    return context.launch(op, kernel, extents);
  }
  static Extents chunkExtents(Value chunks, const LsmShape &shape) {
    return {shape.heads, shapeOf(chunks)[1], shapeOf(chunks)[0]}; // heads of a token are neighbours in memory
  }
  /// A scan over states is a walk along the row: on a GPU few heads of few rows are cut into narrow blocks, one for each
  /// multiprocessor at least. What multiplies by a matrix reads that once for each of them, so it is cut less (measured with 32 heads
  /// of 128: blocks of 64, 32 and 16 columns take 0.67, 0.48 and 0.53 ms for 128 chunks).
  LsmShape spread(LsmShape shape, Value states) const {
    // 32 bytes of f32 are what memory gives at least.
    int64_t programs = 128, narrowest = shape.traits().dense ? 32 : 8;
    while (context.gpu && shape.mostColumns > narrowest &&
           shape.valueBlocks() * shape.heads * shapeOf(states)[0] < programs)
      shape.mostColumns /= 2;
    return shape;
  }
  static Extents columnExtents(Value states, const LsmShape &shape) {
    return {shape.valueBlocks(), shape.heads, shapeOf(states)[0]};
  }
  static void optional(OutlineContext::Launch &launch, llvm::StringRef name, Value value) {
    if (value)
      launch.arg(name, value);
  }
  template <typename Op> static void scanOperands(OutlineContext::Launch &launch, Op op) {
    launch.arg("q", op.getQ()).arg("k", op.getK()).arg("v", op.getV());
    gates(launch, op);
  }
  template <typename Op> static void gates(OutlineContext::Launch &launch, Op op) {
    optional(launch, "log_decay", op.getLogDecay());
    optional(launch, "beta", op.getBeta());
    optional(launch, "a", op.getA());
    optional(launch, "b", op.getB());
    optional(launch, "value_decay", op.getValueDecay());
  }

  OutlineContext &context;
  Operation *op;
};

} // namespace

LogicalResult outlineLsm(Operation *op, OutlineContext &context) {
  LsmOutline outline(context, op);
  return llvm::TypeSwitch<Operation *, LogicalResult>(op)
      .Case([&](LsmChunkTableOp table) { return outline.table(table); })
      .Case([&](LsmChunkStateOp state) { return outline.state(state); })
      .Case([&](LsmStateScanOp scan) { return outline.scan(scan); })
      .Case([&](LsmStateWalkOp walk) { return outline.walk(walk); })
      .Case([&](LsmOutputWalkOp walk) { return outline.outputWalk(walk); })
      .Case([&](LsmChunkInverseOp inverse) { return outline.inverse(inverse); })
      .Case([&](LsmChunkFactorsOp factors) { return outline.factors(factors); })
      .Case([&](LsmChunkWalkFactorsOp factors) { return outline.walkFactors(factors); })
      .Case([&](LsmFactorWalkOp walk) { return outline.factorWalk(walk); })
      .Case([&](LsmChunkOutputFactorsOp factors) { return outline.outputFactors(factors); })
      .Case([&](LsmFactorScanOp scan) { return outline.factorScan(scan); })
      .Case([&](LsmFactorScanGradOp scan) { return outline.factorScanGrad(scan); })
      .Case([&](LsmStateScanGradOp scan) { return outline.scanGrad(scan); })
      .Case([&](LsmChunkOutputOp output) { return outline.output(output); })
      .Case([&](LsmChunkOutputGradStateOp grad) { return outline.outputGradState(grad); })
      .Case([&](LsmChunkGradOp grad) { return outline.chunkGrad(grad); })
      .Case([&](LsmSegmentScanOp scan) { return outline.segmentScan(scan); })
      .Case([&](LsmFoldOp fold) { return outline.fold(fold, "fold", writeFold, fold.getX(), fold.getCarry()); })
      .Case([&](LsmFoldGradOp fold) {
        return outline.fold(fold, "fold_grad", writeFoldGrad, fold.getDx(), fold.getDnext());
      })
      .Case([&](LsmComposeOp compose) { return outline.compose(compose); })
      .Case([&](LsmStepOp step) { return outline.step(step); })
      .Default([](Operation *other) { return other->emitOpError("has no kernel: braid-chunk-tiling must run first"); });
}

} // namespace braid
