//===- VerifiersInner.cpp - the inner step and its chunk forms ----------------------------------------------------===//
#include "dialects/braid/InnerTraits.h"
#include "dialects/braid/Verifiers.h"

using namespace mlir;
using namespace braid;

/// k, v (or what has its shape) and, where there is, q [B, T, H, ..], the gates [B, T, H].
template <typename Op> static LogicalResult verifyTokens(Op op, Value q, Named v) {
  Named k{"k", op.getK()};
  CHECK(hasRank(op, k, 4));
  CHECK(hasRank(op, v, 4));
  CHECK(isFloat(op, k));
  CHECK(isFloat(op, v));
  CHECK(sameTokens(op, k, v));
  CHECK(sameDim(op, "head", k, 2, v, 2));
  if (q) {
    CHECK(isFloat(op, {"q", q}));
    CHECK(sameShape(op, {"q", q}, k));
  }
  for (Named gate : {Named{"rate", op.getRate()},
                     {"log_decay", op.getLogDecay()},
                     {"log_momentum", op.getLogMomentum()},
                     {"read_rate", op.getReadRate()}})
    if (gate.value) {
      CHECK(hasRank(op, gate, 3));
      CHECK(isFloat(op, gate));
      CHECK(sameTokens(op, k, gate));
      CHECK(sameDim(op, "head", k, 2, gate, 2));
      CHECK(sameElement(op, {"rate", op.getRate()}, gate));
    }
  if (op.getReadRate() && (op.getLogDecay() || op.getLogMomentum()))
    return op.emitOpError() << "has a read_rate and a " << (op.getLogDecay() ? "log_decay" : "log_momentum")
                            << "; steps are weighted where they are read or decay, not both";
  CHECK(isAtLeast(op, "mini_batch", op.getMiniBatch(), 1));
  if (int64_t n = op.getMiniBatch(); n > kMostMiniBatch)
    return op.emitOpError() << "mini_batch is " << n << " but must be at most " << kMostMiniBatch
                            << ": a mini-batch is computed at a time";
  return success();
}

/// All of that, and the norm [H, V].
template <typename Op> static LogicalResult verifyTokens(Op op, Value q) {
  Named k{"k", op.getK()}, v{"v", op.getV()};
  CHECK(verifyTokens(op, q, v));
  if (static_cast<bool>(op.getNormWeight()) != static_cast<bool>(op.getNormBias()))
    return op.emitOpError() << "has a norm of " << (op.getNormWeight() ? "a weight" : "a bias") << " alone";
  for (Named norm : {Named{"norm weight", op.getNormWeight()}, {"norm bias", op.getNormBias()}})
    if (norm.value) {
      CHECK(hasRank(op, norm, 2));
      CHECK(isFloat(op, norm));
      CHECK(sameDim(op, "head", k, 2, norm, 0));
      CHECK(sameDim(op, "value dimension", v, 3, norm, 1));
    }
  return success();
}

/// [H, K, V]: the state where a document begins.
template <typename Op> static LogicalResult verifyWeights(Op op) {
  Named weights{"weights", op.getWeights()}, k{"k", op.getK()};
  if (!weights.value)
    return success();
  CHECK(hasRank(op, weights, 3));
  CHECK(isFloat(op, weights));
  CHECK(sameDim(op, "head", k, 2, weights, 0));
  CHECK(sameDim(op, "key dimension", k, 3, weights, 1));
  return sameDim(op, "value dimension", {"v", op.getV()}, 3, weights, 2);
}

/// A state [B, H, R, V], or with `chunks` those of every chunk [B, n, H, R, V]; V as `v` has it.
template <typename Op> static LogicalResult verifyState(Op op, Named state, Named v, Value chunks) {
  Named k{"k", op.getK()};
  InnerTraits traits(op);
  int64_t first = chunks ? 1 : 0, planes = chunks ? traits.chunkPlanes() : traits.planes();
  CHECK(hasRank(op, state, 4 + first));
  CHECK(isFloat(op, state));
  CHECK(sameDim(op, "batch", k, 0, state, 0));
  if (chunks)
    CHECK(sameDim(op, "chunk", state, 1, {"chunks", chunks}, 1));
  CHECK(sameDim(op, "head", k, 2, state, 1 + first));
  CHECK(sameDim(op, "value dimension", v, 3, state, 3 + first));
  if (state.dim(2 + first) != planes * k.dim(3))
    return withNote(op.emitOpError() << state.name << " has " << state.dim(2 + first) << " rows but class "
                                     << traits.className() << " of these operands keeps " << planes << " planes of "
                                     << k.dim(3) << (chunks ? " for a chunk" : ""),
                    k);
  return success();
}
template <typename Op> static LogicalResult verifyState(Op op, Named state) {
  return verifyState(op, state, {"v", op.getV()}, Value());
}
template <typename Op> static LogicalResult verifyChunks(Op op, Named v) {
  Named chunks{"chunks", op.getChunks()};
  CHECK(hasRank(op, chunks, 3));
  CHECK(isInteger(op, chunks));
  CHECK(sameDim(op, "batch", {"k", op.getK()}, 0, chunks, 0));
  return verifyState(op, {"states", op.getStates()}, v, chunks.value);
}
static LogicalResult isOutput(Operation *op, Named o, Named v) {
  CHECK(isFloat(op, o));
  return sameShape(op, o, v);
}
/// What inner_states computes of every token.
template <typename Op> static LogicalResult verifyInside(Op op) {
  Named v{"v", op.getV()};
  CHECK(isOutput(op, {"residuals", op.getResiduals()}, v));
  Value predictions = op.getPredictions(), norm = op.getNormWeight();
  if (static_cast<bool>(predictions) != static_cast<bool>(norm))
    return op.emitOpError() << (norm ? "has a norm but no predictions" : "has predictions but no norm");
  return predictions ? isOutput(op, {"predictions", predictions}, v) : success();
}
/// The state that a row begins with, where chunks need it.
template <typename Op> static LogicalResult verifyInitial(Op op, bool needed, Named v) {
  if (static_cast<bool>(op.getInitialState()) != needed)
    return op.emitOpError() << (needed ? "has no initial_state: a row may begin inside a mini-batch"
                                       : "has an initial_state: states of chunks say all");
  return needed ? verifyState(op, {"initial_state", op.getInitialState()}, v, Value()) : success();
}
template <typename Op> static LogicalResult verifyCotangents(Op op) {
  for (auto [name, d, of] : {std::tuple("dq", op.getDq(), op.getQ()),
                             {"dk", op.getDk(), op.getK()},
                             {"dv", op.getDv(), op.getV()},
                             {"d_o", op.getDO(), op.getV()}}) {
    CHECK(isFloat(op, {name, d}));
    CHECK(sameShape(op, {name, d}, {"its value", of}));
  }
  auto others = innerOthers(op);
  if (others.size() != op.getDothers().size())
    return op.emitOpError() << "has " << others.size() << " gates and weights but " << op.getDothers().size()
                            << " cotangents of them";
  for (auto [other, d] : llvm::zip_equal(others, op.getDothers())) {
    CHECK(isFloat(op, {"cotangent", d}));
    CHECK(sameShape(op, {"cotangent", d}, {other.name, other.value}));
  }
  CHECK(verifyState(op, {"dfinal_state", op.getDfinalState()}));
  return sameType(op, {"dinitial_state", op.getDinitialState()}, {"dfinal_state", op.getDfinalState()});
}

template <typename Op> static LogicalResult verifyStep(Op op) {
  CHECK(verifyTokens(op, op.getQ()));
  CHECK(verifyWeights(op));
  CHECK(isDocuments(op, {"documents", op.getDocuments()}, {"k", op.getK()}));
  return verifyState(op, {"initial_state", op.getInitialState()});
}

LogicalResult LsmInnerStepOp::verify() {
  CHECK(verifyStep(*this));
  CHECK(isOutput(*this, {"o", getO()}, {"v", getV()}));
  return sameType(*this, {"final_state", getFinalState()}, {"initial_state", getInitialState()});
}
LogicalResult LsmInnerStepGradOp::verify() {
  CHECK(verifyStep(*this));
  return verifyCotangents(*this);
}
LogicalResult LsmInnerStatesOp::verify() {
  CHECK(verifyTokens(*this, Value()));
  CHECK(verifyWeights(*this));
  CHECK(verifyChunks(*this, {"v", getV()}));
  CHECK(verifyInside(*this));
  CHECK(verifyState(*this, {"initial_state", getInitialState()}));
  return sameType(*this, {"final_state", getFinalState()}, {"initial_state", getInitialState()});
}
LogicalResult LsmInnerOutputOp::verify() {
  Named residuals{"residuals", getResiduals()};
  CHECK(verifyTokens(*this, getQ(), residuals));
  CHECK(verifyChunks(*this, residuals));
  CHECK(verifyInitial(*this, InnerTraits(*this).readRate, residuals));
  return isOutput(*this, {"o", getO()}, residuals);
}
LogicalResult LsmInnerGradOp::verify() {
  Named v{"v", getV()};
  CHECK(verifyTokens(*this, getQ()));
  CHECK(verifyWeights(*this));
  CHECK(verifyChunks(*this, v));
  CHECK(verifyInside(*this));
  CHECK(verifyInitial(*this, InnerTraits(*this).hasInside(), v));
  return verifyCotangents(*this);
}
