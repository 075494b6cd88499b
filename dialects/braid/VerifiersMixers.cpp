//===- VerifiersMixers.cpp - scan, attention and expert ops
//--------------------------------------------------------===//
#include "dialects/braid/Verifiers.h"

using namespace mlir;
using namespace braid;

#define CHECK(...)                                                                                                     \
  if (failed(__VA_ARGS__))                                                                                             \
  return failure()

//===- Scan: lsm_scan_c1 (shapes of q k v), c2 (gates of the class), c3 (state)
//-------------------------------------===//

template <typename Op> static LogicalResult verifyScan(Op op) {
  Named q{"q", op.getQ()}, k{"k", op.getK()}, v{"v", op.getV()}, initial{"initial_state", op.getInitialState()},
      documents{"documents", op.getDocuments()};
  for (Named x : {q, k, v, initial})
    CHECK(hasRank(op, x, 4));
  CHECK(hasRank(op, documents, 2));
  CHECK(isInteger(op, documents));
  CHECK(sameDim(op, "key dimension", q, 3, k, 3));
  for (Named x : {k, v}) {
    CHECK(sameDim(op, "batch", q, 0, x, 0));
    CHECK(sameDim(op, "token", q, 1, x, 1));
    CHECK(sameDim(op, "head", q, 2, x, 2));
  }
  CHECK(sameDim(op, "batch", q, 0, documents, 0));
  CHECK(sameDim(op, "token", q, 1, documents, 1));

  LsmClass kind = op.getClassId();
  bool wantsDecay = kind != LsmClass::I && kind != LsmClass::H, wantsBeta = kind == LsmClass::H || kind == LsmClass::GH;
  if (wantsDecay != static_cast<bool>(op.getLogDecay()))
    return op.emitOpError() << "class " << stringifyLsmClass(kind) << (wantsDecay ? " needs" : " takes no")
                            << " log_decay";
  if (wantsBeta != static_cast<bool>(op.getBeta()))
    return op.emitOpError() << "class " << stringifyLsmClass(kind) << (wantsBeta ? " needs" : " takes no") << " beta";
  if (Value g = op.getLogDecay()) {
    Named decay{"log_decay", g};
    int64_t rank = kind == LsmClass::S0 ? 1 : kind == LsmClass::V ? 4 : 3;
    CHECK(hasRank(op, decay, rank));
    if (rank == 1)
      return sameDim(op, "head", q, 2, decay, 0);
    for (int64_t i = 0; i < rank; ++i)
      CHECK(sameDim(op, i == 3 ? "key dimension" : i == 2 ? "head" : i == 1 ? "token" : "batch", q, i, decay, i));
  }
  if (Value b = op.getBeta()) {
    Named beta{"beta", b};
    CHECK(hasRank(op, beta, 3));
    for (int64_t i = 0; i < 3; ++i)
      CHECK(sameDim(op, i == 2 ? "head" : i == 1 ? "token" : "batch", q, i, beta, i));
  }
  CHECK(sameDim(op, "batch", q, 0, initial, 0));
  CHECK(sameDim(op, "head", q, 2, initial, 1));
  CHECK(sameDim(op, "key dimension", q, 3, initial, 2));
  return sameDim(op, "value dimension", v, 3, initial, 3);
}

LogicalResult LsmScanOp::verify() {
  CHECK(verifyScan(*this));
  CHECK(sameShape(*this, {"o", getO()}, {"v", getV()}));
  return sameShape(*this, {"final_state", getFinalState()}, {"initial_state", getInitialState()});
}
LogicalResult LsmStepOp::verify() {
  CHECK(verifyScan(*this));
  if (int64_t t = Named{"q", getQ()}.dim(1); t != 1)
    return emitOpError() << "takes one token but q has " << t;
  return sameShape(*this, {"final_state", getFinalState()}, {"initial_state", getInitialState()});
}
LogicalResult LsmScanGradOp::verify() {
  CHECK(verifyScan(*this));
  CHECK(sameShape(*this, {"d_o", getDO()}, {"v", getV()}));
  CHECK(sameShape(*this, {"dq", getDq()}, {"q", getQ()}));
  CHECK(sameShape(*this, {"dk", getDk()}, {"k", getK()}));
  CHECK(sameShape(*this, {"dv", getDv()}, {"v", getV()}));
  SmallVector<Named> gates;
  if (getLogDecay() && getClassId() != LsmClass::S0)
    gates.push_back({"log_decay", getLogDecay()});
  if (getBeta())
    gates.push_back({"beta", getBeta()});
  if (gates.size() != getDgates().size())
    return emitOpError() << "class " << stringifyLsmClass(getClassId()) << " has " << gates.size()
                         << " gate cotangents but there are " << getDgates().size();
  for (auto [gate, dgate] : llvm::zip_equal(gates, getDgates()))
    CHECK(sameShape(*this, {"gate cotangent", dgate}, gate));
  return sameShape(*this, {"dinitial_state", getDinitialState()}, {"initial_state", getInitialState()});
}

//===- Attention --------------------------------------------------------------------------------------------------===//

static LogicalResult verifyAttention(Operation *op, Named q, Named k, Named v, Named documents, int64_t prefix,
                                     bool cache) {
  for (Named x : {q, k, v})
    CHECK(hasRank(op, x, 4));
  CHECK(hasRank(op, documents, 2));
  CHECK(isInteger(op, documents));
  CHECK(sameShape(op, k, v));
  CHECK(sameDim(op, "batch", q, 0, k, 0));
  CHECK(sameDim(op, "head dimension", q, 3, k, 3));
  CHECK(sameDim(op, "token", q, 1, documents, 1));
  if (k.dim(2) == 0 || q.dim(2) % k.dim(2))
    return op->emitOpError() << "q has " << q.dim(2) << " heads, no multiple of the " << k.dim(2) << " key/value heads";
  if (!cache && k.dim(1) != prefix + q.dim(1))
    return op->emitOpError() << "k has " << k.dim(1) << " tokens but prefix " << prefix << " and q's " << q.dim(1)
                             << " need " << prefix + q.dim(1);
  return success();
}
LogicalResult AttnCausalOp::verify() {
  CHECK(verifyAttention(*this, {"q", getQ()}, {"k", getK()}, {"v", getV()}, {"documents", getDocuments()}, getPrefix(),
                        getCache()));
  CHECK(sameShape(*this, {"o", getO()}, {"q", getQ()}));
  CHECK(hasRank(*this, {"lse", getLse()}, 3));
  CHECK(sameDim(*this, "head", {"lse", getLse()}, 1, {"q", getQ()}, 2));
  return sameDim(*this, "token", {"lse", getLse()}, 2, {"q", getQ()}, 1);
}
LogicalResult AttnCausalGradOp::verify() {
  CHECK(verifyAttention(*this, {"q", getQ()}, {"k", getK()}, {"v", getV()}, {"documents", getDocuments()}, getPrefix(),
                        false));
  CHECK(sameShape(*this, {"d_o", getDO()}, {"o", getO()}));
  CHECK(sameShape(*this, {"dq", getDq()}, {"q", getQ()}));
  CHECK(sameShape(*this, {"dk", getDk()}, {"k", getK()}));
  return sameShape(*this, {"dv", getDv()}, {"v", getV()});
}
LogicalResult AttnAppendOp::verify() {
  Named cache{"cache", getCache()}, x{"x", getX()};
  CHECK(hasRank(*this, cache, 4));
  CHECK(hasRank(*this, x, 4));
  CHECK(sameShape(*this, {"result", getResult()}, cache));
  CHECK(sameDim(*this, "batch", cache, 0, x, 0));
  CHECK(sameDim(*this, "head", cache, 2, x, 2));
  return sameDim(*this, "head dimension", cache, 3, x, 3);
}

//===- Experts ----------------------------------------------------------------------------------------------------===//

LogicalResult MoeRouteOp::verify() {
  Named logits{"logits", getLogits()}, ids{"result", getResult()};
  CHECK(hasRank(*this, logits, 3));
  CHECK(isInteger(*this, ids));
  int64_t k = getTopK();
  if (k < 1 || k > logits.dim(2))
    return emitOpError() << "top_k is " << k << " but there are " << logits.dim(2) << " experts";
  if (ids.dim(-1) != k)
    return emitOpError() << "result has " << ids.dim(-1) << " slots but top_k is " << k;
  return success();
}
LogicalResult MoeRouteWeightsOp::verify() {
  CHECK(isInteger(*this, {"expert_ids", getExpertIds()}));
  return sameShape(*this, {"result", getResult()}, {"expert_ids", getExpertIds()});
}
LogicalResult MoeRouterLossOp::verify() {
  Named logits{"logits", getLogits()}, counts{"counts", getCounts()};
  CHECK(hasRank(*this, logits, 3));
  CHECK(hasRank(*this, {"result", getResult()}, 2));
  CHECK(isInteger(*this, counts));
  if (getTokens() < 1)
    return emitOpError() << "tokens is " << getTokens() << " but must be positive";
  return sameDim(*this, "expert", logits, 2, counts, 0);
}
LogicalResult MoePlanOp::verify() {
  Named ids{"ids", getIds()}, perm{"perm", getPerm()}, counts{"counts", getCounts()}, offsets{"offsets", getOffsets()};
  CHECK(hasRank(*this, ids, 3));
  CHECK(isInteger(*this, ids));
  CHECK(sameShape(*this, {"inverse", getInverse()}, ids));
  int64_t experts = getNumExperts(), peers = getPeers();
  int64_t rows = peers > 1 ? peers * static_cast<int64_t>(getPeerRows()) : ids.type().getNumElements();
  if (peers < 1 || experts % peers)
    return emitOpError() << peers << " peers do not divide " << experts << " experts";
  if (perm.dim(0) != rows)
    return emitOpError() << "perm has " << perm.dim(0) << " rows but the plan has " << rows;
  if (counts.dim(0) != experts)
    return emitOpError() << "counts has " << counts.dim(0) << " entries for " << experts << " experts";
  if (offsets.dim(0) != experts + 1)
    return emitOpError() << "offsets has " << offsets.dim(0) << " entries for " << experts << " experts";
  return success();
}
LogicalResult MoePlanReceivedOp::verify() {
  Named counts{"counts", getCounts()}, perm{"perm", getPerm()}, offsets{"offsets", getOffsets()};
  CHECK(hasRank(*this, counts, 2));
  int64_t rows = counts.dim(0) * static_cast<int64_t>(getPeerRows());
  if (perm.dim(0) != rows)
    return emitOpError() << "perm has " << perm.dim(0) << " rows but " << counts.dim(0) << " peers bring " << rows;
  if (offsets.dim(0) != counts.dim(1) + 1)
    return emitOpError() << "offsets has " << offsets.dim(0) << " entries for " << counts.dim(1) << " experts";
  return success();
}
static LogicalResult verifyRows(Operation *op, Named rows, Named perm) {
  CHECK(hasRank(op, rows, 3));
  CHECK(hasRank(op, perm, 1));
  CHECK(isInteger(op, perm));
  if (rows.dim(0) != 1)
    return op->emitOpError() << rows.name << " has " << rows.dim(0) << " in front but expert rows have 1";
  return sameDim(op, "row", rows, 1, perm, 0);
}
LogicalResult MoeDispatchOp::verify() {
  CHECK(verifyRows(*this, {"rows", getRows()}, {"perm", getPerm()}));
  CHECK(hasRank(*this, {"inverse", getInverse()}, 3));
  return sameDim(*this, "width", {"rows", getRows()}, 2, {"x", getX()}, -1);
}
LogicalResult MoePermuteOp::verify() {
  CHECK(verifyRows(*this, {"rows", getRows()}, {"perm", getPerm()}));
  CHECK(hasRank(*this, {"inverse", getInverse()}, 1));
  CHECK(sameDim(*this, "row", {"x", getX()}, 1, {"inverse", getInverse()}, 0));
  return sameDim(*this, "width", {"rows", getRows()}, 2, {"x", getX()}, -1);
}
LogicalResult MoeCombineOp::verify() {
  CHECK(verifyRows(*this, {"rows", getRows()}, {"perm", getPerm()}));
  CHECK(hasRank(*this, {"inverse", getInverse()}, 3));
  if (getWeights())
    CHECK(sameShape(*this, {"weights", getWeights()}, {"inverse", getInverse()}));
  CHECK(sameShape(*this, {"returned", getReturned()}, {"rows", getRows()}));
  return sameDim(*this, "width", {"y", getY()}, -1, {"rows", getRows()}, 2);
}
LogicalResult MoeCombineGradOp::verify() {
  CHECK(verifyRows(*this, {"returned", getReturned()}, {"perm", getPerm()}));
  CHECK(sameShape(*this, {"drows", getDrows()}, {"returned", getReturned()}));
  return sameShape(*this, {"dweights", getDweights()}, {"weights", getWeights()});
}
static LogicalResult verifyGroups(Operation *op, Named x, Named offsets, Named weight, Named y) {
  CHECK(hasRank(op, x, 3));
  CHECK(hasRank(op, weight, 3));
  CHECK(isInteger(op, offsets));
  if (offsets.dim(0) != weight.dim(0) + 1)
    return op->emitOpError() << "offsets has " << offsets.dim(0) << " entries but weight has " << weight.dim(0)
                             << " groups";
  CHECK(sameDim(op, "input dimension", x, 2, weight, 1));
  CHECK(sameDim(op, "row", x, 1, y, 1));
  return sameDim(op, "output dimension", y, 2, weight, 2);
}
LogicalResult MoeGroupedLinearOp::verify() {
  if (getWeights().size() != getResults().size())
    return emitOpError() << "has " << getWeights().size() << " weights but " << getResults().size() << " results";
  for (auto [weight, result] : llvm::zip_equal(getWeights(), getResults()))
    CHECK(verifyGroups(*this, {"x", getX()}, {"offsets", getOffsets()}, {"weight", weight}, {"result", result}));
  return success();
}
LogicalResult MoeGroupedLinearGradDataOp::verify() {
  if (getWeights().size() != getDys().size())
    return emitOpError() << "has " << getWeights().size() << " weights but " << getDys().size() << " cotangents";
  for (auto [weight, dy] : llvm::zip_equal(getWeights(), getDys()))
    CHECK(verifyGroups(*this, {"dx", getDx()}, {"offsets", getOffsets()}, {"weight", weight}, {"dy", dy}));
  return success();
}
LogicalResult MoeGroupedLinearGradWeightOp::verify() {
  if (getDws().size() != getDys().size())
    return emitOpError() << "has " << getDws().size() << " results but " << getDys().size() << " cotangents";
  for (auto [dw, dy] : llvm::zip_equal(getDws(), getDys()))
    CHECK(verifyGroups(*this, {"x", getX()}, {"offsets", getOffsets()}, {"dw", dw}, {"dy", dy}));
  return success();
}
