//===- SequenceScan.cpp - states of scans along sp: ring, all-gather, log-step scan of segments -------------------===//
//
// The gradient repeats the exchange of the forward together with its own instead of keeping what other ranks sent: per
// layer that would be (ranks - 1) (P + X) of memory until the backward, and nothing waits longer, since both travel at
// once. With a state that enters the row from outside (a continued prompt), or one that somebody reads behind the last
// token, every algorithm is the all-gather: there all ranks know both ends.
//
//===-------------------------------------------------------------------------------------------------------------===//
#include "dialects/braid/ScanTraits.h"
#include "passes/shard/Sequence.h"
#include "passes/shard/SequenceParts.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace braid;

//===- The choice -------------------------------------------------------------------------------------------------===//

static constexpr std::pair<SpAlgorithm, llvm::StringLiteral> kAlgorithms[] = {{SpAlgorithm::automatic, "auto"},
                                                                              {SpAlgorithm::ring, "ring"},
                                                                              {SpAlgorithm::allGather, "all_gather"},
                                                                              {SpAlgorithm::scan, "scan"}};

std::optional<SpAlgorithm> braid::parseSpAlgorithm(StringRef word) {
  for (auto [algorithm, name] : kAlgorithms)
    if (name == word)
      return algorithm;
  return std::nullopt;
}
StringRef braid::spAlgorithmName(SpAlgorithm algorithm) { return kAlgorithms[static_cast<int>(algorithm)].second; }

/// Distances at which neighbours compose their segments; a rank then knows all ranks before it.
static SmallVector<int64_t> composeDistances(int64_t ranks) {
  SmallVector<int64_t> distances;
  for (int64_t d = 1; d < ranks - 1; d *= 2)
    distances.push_back(d);
  return distances;
}

SpCost braid::spCost(SpAlgorithm algorithm, int64_t ranks, RankedTensorType p, RankedTensorType x,
                     const Machine &machine) {
  auto bytes = [](RankedTensorType type) {
    return type.getNumElements() * llvm::divideCeil(type.getElementTypeBitWidth(), 8);
  };
  int64_t P = bytes(p), X = bytes(x), steps = composeDistances(ranks).size();
  bool dense = p.getRank() == 5;
  // P m + x for a state; P P for a transition, where it is dense.
  double apply = static_cast<double>(x.getNumElements()) * (dense ? 2 * p.getDimSize(4) + 1 : 2);
  double multiply = static_cast<double>(p.getNumElements()) * (dense ? 2 * p.getDimSize(4) : 1);
  SpCost cost;
  double flops = 0;
  switch (algorithm) {
  case SpAlgorithm::automatic:
  case SpAlgorithm::ring:
    cost = {(ranks - 1) * X, ranks - 1};
    flops = apply * static_cast<double>(ranks - 2);
    break;
  case SpAlgorithm::allGather:
    cost = {(ranks - 1) * (P + X), 1};
    flops = apply * static_cast<double>(ranks);
    break;
  case SpAlgorithm::scan: // the last step needs no transition of its result, and its neighbour's only if it composes
    cost = {(steps + 1) * X + steps * P, steps + 1};
    flops = apply * static_cast<double>(steps) + multiply * static_cast<double>(std::max<int64_t>(steps - 1, 0));
    break;
  }
  cost.seconds = static_cast<double>(cost.hops) * machine.linkLatency +
                 static_cast<double>(cost.bytes) / machine.linkBandwidth + flops / machine.flops;
  return cost;
}

SpAlgorithm braid::cheapest(int64_t ranks, RankedTensorType p, RankedTensorType x, const Machine &machine) {
  SpAlgorithm best = SpAlgorithm::ring;
  for (SpAlgorithm other : {SpAlgorithm::allGather, SpAlgorithm::scan})
    if (spCost(other, ranks, p, x, machine).seconds < spCost(best, ranks, p, x, machine).seconds)
      best = other;
  return best;
}

SpAlgorithm SequenceSharder::choose(const Segment &own, bool zeroCarry, bool readsLast) const {
  if (!zeroCarry || readsLast)
    return SpAlgorithm::allGather;
  return algorithm == SpAlgorithm::automatic ? cheapest(ranks, typeOf(own.p), typeOf(own.x), facts.machine) : algorithm;
}

//===- Borders of ranks -------------------------------------------------------------------------------------------===//

/// Classes R and E decay every element of the state for itself.
static bool decaysElements(LsmClass id) {
  ScanTraits traits(id);
  return traits.valueDecay || traits.elementDecay;
}
/// What such an element is to the ranks: a key channel with one value, of a head that is a key channel of the model's.
/// Then its factor is that of a row, and segments fold and compose like those of class V.
static RankedTensorType asRows(RankedTensorType state) {
  ArrayRef<int64_t> shape = state.getShape();
  return RankedTensorType::get({1, shape[0], shape[1] * shape[2], shape[3], 1}, state.getElementType());
}

/// P is what the scan makes of a state of ones when nothing is written, X what it makes of zeros.
template <typename Scan> SequenceSharder::Segment SequenceSharder::elementSegment(Scan op, ValueRange operands) {
  Location loc = op.getLoc();
  auto local = localOperands(op, operands);
  Value k = local(op.getK()), v = local(op.getV());
  RankedTensorType state = typeOf(local(op.getInitialState())), x = asRows(state),
                   o = RankedTensorType::get(outputShape(k, v), typeOf(op.getV()).getElementType());
  auto behind = [&](Value keys, double initial) {
    auto scan = LsmScanOp::create(builder, loc, TypeRange{o, state}, k, keys, v, local(op.getLogDecay()),
                                  local(op.getBeta()), local(op.getA()), local(op.getB()), local(op.getValueDecay()),
                                  splat(builder, loc, state, initial), local(op.getDocuments()), op.getClassIdAttr(),
                                  op.getScaleAttr(), op.getChunkSizeAttr());
    attrs::keep(op, scan, attrs::leastLogDecay);
    return scan.getFinalState();
  };
  auto p = RankedTensorType::get(x.getShape().drop_back(), x.getElementType());
  return {viewed(builder, loc, behind(splat(builder, loc, typeOf(k), 0.0), 1.0), p),
          viewed(builder, loc, behind(k, 0.0), x)};
}

template <typename Scan> SequenceSharder::Segment SequenceSharder::segment(Scan op, ValueRange operands) {
  if (decaysElements(op.getClassId()))
    return elementSegment(op, operands);
  auto local = localOperands(op, operands);
  Value k = local(op.getK()), v = local(op.getV());
  RankedTensorType state = typeOf(local(op.getInitialState()));
  SmallVector<int64_t> x{1};
  llvm::append_range(x, state.getShape());
  SmallVector<int64_t> p(ArrayRef<int64_t>(x).take_front(3));
  p.append(ScanTraits(op.getClassId()).transition(state.getDimSize(2), state.getDimSize(3)));
  auto type = [&](ArrayRef<int64_t> shape) { return RankedTensorType::get(shape, state.getElementType()); };
  auto segment = LsmSegmentOp::create(
      builder, op.getLoc(), type(p), type(x), k, v, local(op.getLogDecay()), local(op.getBeta()), local(op.getA()),
      local(op.getB()), local(op.getValueDecay()), local(op.getDocuments()), op.getClassId(), IntegerAttr());
  attrs::keep(op, segment, attrs::leastLogDecay);
  return {segment.getP(), segment.getX()};
}

/// What the outputs of a rank ask of the state that enters it, from no cotangent behind it.
Value SequenceSharder::segmentGrad(LsmScanGradOp op, ValueRange operands, RankedTensorType x) {
  Location loc = op.getLoc();
  auto local = localOperands(op, operands);
  if (!decaysElements(op.getClassId())) {
    auto segment = LsmSegmentGradOp::create(builder, loc, x, operands[0], operands[1], operands[2],
                                            local(op.getLogDecay()), local(op.getBeta()), local(op.getA()),
                                            local(op.getB()), local(op.getValueDecay()), local(op.getDocuments()),
                                            local(op.getDO()), op.getClassIdAttr(), op.getScaleAttr(), IntegerAttr());
    attrs::keep(op, segment, attrs::leastLogDecay);
    return segment;
  }
  Value none = splat(builder, loc, typeOf(local(op.getInitialState())), 0.0);
  return viewed(builder, loc, scanGradOf(op, operands, none, none).back(), x);
}

/// M = shift(P M + X) as often as there are borders: after n hops rank n knows what is before it, and says so.
Value SequenceSharder::ring(Location loc, Segment own, bool adjoint) {
  StringRef label = adjoint ? "lsm.cotangent" : "lsm.state";
  Value state = shift(loc, own.x, 1, adjoint, label);
  for (int64_t hop = 2; hop < ranks; ++hop) {
    auto behind = LsmComposeOp::create(builder, loc, state.getType(), Type(), own.p, own.x, state, Value(), adjoint);
    state = shift(loc, behind.getResult(), 1, adjoint, label);
  }
  return state;
}

/// Every rank takes the segment of the one before it; composed with that of distance 1, 2, 4, .. it reaches back to the
/// first. Ranks without a neighbour there receive zeros, which is what there is before the row.
Value SequenceSharder::logSteps(Location loc, Segment own, bool adjoint) {
  StringRef label = adjoint ? "lsm.cotangent" : "lsm.state";
  SmallVector<int64_t> distances = composeDistances(ranks);
  Value x = shift(loc, own.x, 1, adjoint, label), p;
  if (!distances.empty())
    p = shift(loc, own.p, 1, adjoint, "lsm.transition");
  for (int64_t distance : distances) {
    bool last = distance == distances.back();
    Value xOther = shift(loc, x, distance, adjoint, label);
    Value pOther = last ? Value() : shift(loc, p, distance, adjoint, "lsm.transition");
    auto both =
        LsmComposeOp::create(builder, loc, x.getType(), last ? Type() : p.getType(), p, x, xOther, pOther, adjoint);
    x = both.getResult();
    p = both.getTransition();
  }
  return x;
}

/// `dx` is null in the forward. In an all-gather every rank also learns both ends.
SequenceSharder::Borders SequenceSharder::exchange(Location loc, const Segment &own, Value carry, Value dx, Value dnext,
                                                   SpAlgorithm chosen) {
  RankedTensorType state = typeOf(carry), rows = withoutFront(typeOf(own.x));
  auto asState = [&](Value v) { return viewed(builder, loc, v, state); };
  auto asRows = [&](Value v) { return viewed(builder, loc, v, rows); };
  if (dx)
    dx = viewed(builder, loc, dx, typeOf(own.x));
  Borders borders;
  if (chosen != SpAlgorithm::allGather) {
    auto travel = [&](const Segment &segment, bool adjoint) {
      return asState(chosen == SpAlgorithm::ring ? ring(loc, segment, adjoint) : logSteps(loc, segment, adjoint));
    };
    borders.before.mine = travel(own, false);
    if (dx)
      borders.behind.mine = travel({own.p, dx}, true);
    return borders;
  }
  Value p = gather(loc, own.p, 0, "lsm.transition"), x = gather(loc, own.x, 0, "lsm.state");
  Value dxs = dx ? gather(loc, dx, 0, "lsm.cotangent") : Value();
  auto fold = LsmFoldOp::create(builder, loc, rows, rows, p, x, asRows(carry), coordinate);
  borders.before = {asState(fold.getInitial()), asState(fold.getNext())};
  if (dx) {
    auto foldGrad = LsmFoldGradOp::create(builder, loc, rows, rows, p, dxs, asRows(dnext), coordinate);
    borders.behind = {asState(foldGrad.getDfinal()), asState(foldGrad.getDcarry())};
  }
  return borders;
}

//===- The scan and its gradient ----------------------------------------------------------------------------------===//

FailureOr<SmallVector<Value>> SequenceSharder::scan(LsmScanOp op, ValueRange operands) {
  unsigned stateIndex = op.getInitialStateMutable().getOperandNumber();
  Value carry = operands[stateIndex];
  Segment own = segment(op, operands);
  SpAlgorithm chosen = choose(own, facts.isZero(op.getInitialState()), facts.isRead(op.getFinalState()));
  Border border = exchange(op.getLoc(), own, carry, Value(), Value(), chosen).before;
  SmallVector<Value> inner(operands);
  inner[stateIndex] = border.mine;
  auto o = RankedTensorType::get(outputShape(operands[1], operands[2]), typeOf(op.getO()).getElementType());
  OperationState state(op.getLoc(), op->getName(), inner, TypeRange{o, carry.getType()}, op->getAttrs());
  state.propertiesAttr = op->getPropertiesAsAttribute();
  auto scan = cast<LsmScanOp>(builder.create(state));
  return SmallVector<Value>{scan.getO(), border.last ? border.last : scan.getFinalState()};
}

/// The gradient of this rank's tokens, with the state and the cotangent at its borders.
SmallVector<Value> SequenceSharder::scanGradOf(LsmScanGradOp op, ValueRange operands, Value initial, Value dfinal) {
  SmallVector<Value> inner(operands);
  inner[op.getInitialStateMutable().getOperandNumber()] = initial;
  inner[op.getDfinalStateMutable().getOperandNumber()] = dfinal;
  // Cotangents are like their operands: q, k, v, the gates that have one, the state.
  SmallVector<Value> like(operands.take_front(3));
  auto local = localOperands(op, operands);
  for (auto &[name, gate] : trainedGates(op))
    like.push_back(local(gate));
  like.push_back(initial);
  SmallVector<Type> types;
  for (auto [result, operand] : llvm::zip_equal(op->getResults(), like))
    types.push_back(localType(operand, result));
  OperationState state(op.getLoc(), op->getName(), inner, types, op->getAttrs());
  state.propertiesAttr = op->getPropertiesAsAttribute();
  return SmallVector<Value>(builder.create(state)->getResults());
}

FailureOr<SmallVector<Value>> SequenceSharder::scanGrad(LsmScanGradOp op, ValueRange operands) {
  Value carry = operands[op.getInitialStateMutable().getOperandNumber()],
        dnext = operands[op.getDfinalStateMutable().getOperandNumber()];
  Segment own = segment(op, operands);
  Value dx = segmentGrad(op, operands, typeOf(own.x));
  bool zero = facts.isZero(op.getInitialState()) && facts.isZero(op.getDfinalState());
  SpAlgorithm chosen = choose(own, zero, facts.isRead(op.getDinitialState()));
  auto [before, behind] = exchange(op.getLoc(), own, carry, dx, dnext, chosen);
  SmallVector<Value> results = scanGradOf(op, operands, before.mine, behind.mine);
  if (behind.last)
    results.back() = behind.last;
  return results;
}
