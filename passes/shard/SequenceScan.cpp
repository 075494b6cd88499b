//===- SequenceScan.cpp - states of scans along sp: ring, all-gather, log-step scan of segments -------------------===//
//
// The gradient repeats the exchange of the forward together with its own instead of keeping what other ranks sent: per
// layer that would be (ranks - 1) (P + X) of memory until the backward, and nothing waits longer, since both travel at
// once. With a state that enters the row from outside (a continued prompt), or one that somebody reads behind the last
// token, every algorithm is the all-gather: there all ranks know both ends.
//
//===-------------------------------------------------------------------------------------------------------------===//
#include "dialects/braid/ScanTraits.h"
#include "passes/analysis/Tensors.h"
#include "passes/shard/Sequence.h"
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

SpCost braid::spCost(SpAlgorithm algorithm, int64_t ranks, RankedTensorType p, RankedTensorType x) {
  constexpr double latency = 10e-6, bytesPerSecond = 10e9, flopsPerSecond = 1e12;
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
  cost.seconds = static_cast<double>(cost.hops) * latency + static_cast<double>(cost.bytes) / bytesPerSecond +
                 flops / flopsPerSecond;
  return cost;
}

SpAlgorithm braid::cheapest(int64_t ranks, RankedTensorType p, RankedTensorType x) {
  SpAlgorithm best = SpAlgorithm::ring;
  for (SpAlgorithm other : {SpAlgorithm::allGather, SpAlgorithm::scan})
    if (spCost(other, ranks, p, x).seconds < spCost(best, ranks, p, x).seconds)
      best = other;
  return best;
}

SpAlgorithm SequenceSharder::choose(const Segment &own, bool zeroCarry, bool readsLast) const {
  if (!zeroCarry || readsLast)
    return SpAlgorithm::allGather;
  return algorithm == SpAlgorithm::automatic ? cheapest(ranks, typeOf(own.p), typeOf(own.x)) : algorithm;
}

//===- Borders of ranks -------------------------------------------------------------------------------------------===//

/// The same elements as a state, or as one of segments.
static Value viewed(OpBuilder &builder, Location loc, Value state, RankedTensorType type) {
  return state.getType() == type ? state : ReshapeOp::create(builder, loc, type, state).getResult();
}
static RankedTensorType withoutFront(RankedTensorType type) {
  return RankedTensorType::get(type.getShape().drop_front(), type.getElementType());
}
static Value splat(OpBuilder &builder, Location loc, RankedTensorType type, double value) {
  return arith::ConstantOp::create(builder, loc,
                                   DenseElementsAttr::get(type, builder.getFloatAttr(type.getElementType(), value)));
}

/// The operand that the logical op has as `operand`.
template <typename Scan> static auto localOperands(Scan op, ValueRange operands) {
  return [op, operands](Value operand) mutable -> Value {
    return operand ? operands[llvm::find(op->getOperands(), operand) - op->getOperands().begin()] : Value();
  };
}

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
                   o = RankedTensorType::get(typeOf(v).getShape(), typeOf(op.getV()).getElementType());
  auto behind = [&](Value keys, double initial) {
    return LsmScanOp::create(builder, loc, TypeRange{o, state}, k, keys, v, local(op.getLogDecay()),
                             local(op.getBeta()), local(op.getA()), local(op.getB()), local(op.getValueDecay()),
                             splat(builder, loc, state, initial), local(op.getDocuments()), op.getClassIdAttr(),
                             op.getScaleAttr(), op.getChunkSizeAttr())
        .getFinalState();
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
  RankedTensorType keys = typeOf(k), state = typeOf(local(op.getInitialState()));
  SmallVector<int64_t> x{1};
  llvm::append_range(x, state.getShape());
  SmallVector<int64_t> p(ArrayRef(x).take_front(3));
  p.append(ScanTraits(op.getClassId()).transition(keys.getDimSize(3), state.getDimSize(3)));
  auto type = [&](ArrayRef<int64_t> shape) { return RankedTensorType::get(shape, state.getElementType()); };
  auto segment = LsmSegmentOp::create(
      builder, op.getLoc(), type(p), type(x), k, v, local(op.getLogDecay()), local(op.getBeta()), local(op.getA()),
      local(op.getB()), local(op.getValueDecay()), local(op.getDocuments()), op.getClassId(), IntegerAttr());
  return {segment.getP(), segment.getX()};
}

/// What the outputs of a rank ask of the state that enters it, from no cotangent behind it.
Value SequenceSharder::segmentGrad(LsmScanGradOp op, ValueRange operands, RankedTensorType x) {
  Location loc = op.getLoc();
  auto local = localOperands(op, operands);
  if (!decaysElements(op.getClassId()))
    return LsmSegmentGradOp::create(builder, loc, x, operands[0], operands[1], operands[2], local(op.getLogDecay()),
                                    local(op.getBeta()), local(op.getA()), local(op.getB()), local(op.getValueDecay()),
                                    local(op.getDocuments()), local(op.getDO()), op.getClassIdAttr(), op.getScaleAttr(),
                                    IntegerAttr());
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

//===- The scan and its gradient ----------------------------------------------------------------------------------===//

FailureOr<SmallVector<Value>> SequenceSharder::scan(LsmScanOp op, ValueRange operands) {
  Location loc = op.getLoc();
  unsigned stateIndex = op.getInitialStateMutable().getOperandNumber();
  Value carry = operands[stateIndex];
  RankedTensorType stateType = typeOf(carry);
  Segment own = segment(op, operands);
  SpAlgorithm chosen = choose(own, facts.isZero(op.getInitialState()), facts.isRead(op.getFinalState()));
  Border border;
  if (chosen == SpAlgorithm::allGather) {
    Value p = gather(loc, own.p, 0, "lsm.transition"), x = gather(loc, own.x, 0, "lsm.state");
    carry = viewed(builder, loc, carry, withoutFront(typeOf(own.x)));
    auto fold = LsmFoldOp::create(builder, loc, carry.getType(), carry.getType(), p, x, carry, coordinate);
    border = {fold.getInitial(), viewed(builder, loc, fold.getNext(), stateType)};
  } else {
    border.mine = chosen == SpAlgorithm::ring ? ring(loc, own, /*adjoint=*/false) : logSteps(loc, own, false);
  }
  SmallVector<Value> inner(operands);
  inner[stateIndex] = viewed(builder, loc, border.mine, stateType);
  auto type = RankedTensorType::get(typeOf(operands[2]).getShape(), typeOf(op.getO()).getElementType());
  OperationState state(loc, op->getName(), inner, TypeRange{type, stateType}, op->getAttrs());
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
    types.push_back(RankedTensorType::get(typeOf(operand).getShape(), typeOf(result).getElementType()));
  OperationState state(op.getLoc(), op->getName(), inner, types, op->getAttrs());
  state.propertiesAttr = op->getPropertiesAsAttribute();
  return SmallVector<Value>(builder.create(state)->getResults());
}

FailureOr<SmallVector<Value>> SequenceSharder::scanGrad(LsmScanGradOp op, ValueRange operands) {
  Location loc = op.getLoc();
  Value carry = operands[op.getInitialStateMutable().getOperandNumber()],
        dnext = operands[op.getDfinalStateMutable().getOperandNumber()];
  RankedTensorType stateType = typeOf(carry);
  Segment own = segment(op, operands);
  Value dx = segmentGrad(op, operands, typeOf(own.x));
  bool zero = facts.isZero(op.getInitialState()) && facts.isZero(op.getDfinalState());
  SpAlgorithm chosen = choose(own, zero, facts.isRead(op.getDinitialState()));
  Border before, behind;
  if (chosen == SpAlgorithm::allGather) {
    Value p = gather(loc, own.p, 0, "lsm.transition"), x = gather(loc, own.x, 0, "lsm.state"),
          dxs = gather(loc, dx, 0, "lsm.cotangent");
    RankedTensorType rows = withoutFront(typeOf(own.x));
    carry = viewed(builder, loc, carry, rows);
    dnext = viewed(builder, loc, dnext, rows);
    auto fold = LsmFoldOp::create(builder, loc, rows, rows, p, x, carry, coordinate);
    auto foldGrad = LsmFoldGradOp::create(builder, loc, rows, rows, p, dxs, dnext, coordinate);
    before = {fold.getInitial(), fold.getNext()};
    behind = {foldGrad.getDfinal(), viewed(builder, loc, foldGrad.getDcarry(), stateType)};
  } else {
    bool isRing = chosen == SpAlgorithm::ring;
    before.mine = isRing ? ring(loc, own, false) : logSteps(loc, own, false);
    behind.mine = isRing ? ring(loc, {own.p, dx}, true) : logSteps(loc, {own.p, dx}, true);
  }
  SmallVector<Value> results = scanGradOf(op, operands, viewed(builder, loc, before.mine, stateType),
                                          viewed(builder, loc, behind.mine, stateType));
  if (behind.last)
    results.back() = behind.last;
  return results;
}
