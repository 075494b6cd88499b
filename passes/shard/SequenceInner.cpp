//===- SequenceInner.cpp - states of inner steps along sp ---------------------------------------------------------===//
//
// A border of ranks may cut a mini-batch: the state holds the weights that the mini-batch began with beside those that
// its steps have changed, and its tokens are counted from the beginning of the document.
//
//   ring              every class. A rank walks its tokens from the state that the rank before it left. All ranks walk at
//                     once: after n walks the first n + 1 have what enters them, and none waits longer than it must.
//   all_gather, scan  G1 and GM, affine in the planes of the state: P [R, R] is what a walk makes of the columns of I
//                     when there is nothing to learn, X what it makes of zeros.
//
// The gradient walks forward again for the states at its borders (SequenceScan.cpp says why), then backward.
//
//===-------------------------------------------------------------------------------------------------------------===//
#include "dialects/braid/InnerTraits.h"
#include "passes/shard/Sequence.h"
#include "passes/shard/SequenceParts.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace braid;

/// Walks that a ring needs, or the segments of an all-gather: whichever is faster by `spCost`.
template <typename Op>
FailureOr<SpAlgorithm> SequenceSharder::chooseInner(Op op, ValueRange operands, bool carried) const {
  InnerTraits traits(op);
  bool composes = !traits.norm, asked = algorithm == SpAlgorithm::allGather || algorithm == SpAlgorithm::scan;
  if (asked && !composes)
    return op.emitOpError() << "is of class " << traits.className()
                            << ", whose spans of tokens do not compose (through the norm a step is not affine in the "
                               "state), but --sp-algorithm is "
                            << spAlgorithmName(algorithm) << "; valid: --sp-algorithm=ring, or auto";
  if (algorithm == SpAlgorithm::ring || !composes)
    return SpAlgorithm::ring;
  if (asked)
    return carried ? SpAlgorithm::allGather : algorithm;
  auto seconds = [&](SpAlgorithm one) {
    Value state = localOperands(op, operands)(op.getInitialState());
    SliceExchange cost = innerExchange(op, one, ranks, operands[1], typeOf(state), facts.machine);
    return std::pair(cost.fixed + cost.tokens, one);
  };
  std::pair<double, SpAlgorithm> best = std::min(seconds(SpAlgorithm::ring), seconds(SpAlgorithm::allGather));
  if (!carried)
    best = std::min(best, seconds(SpAlgorithm::scan));
  return best.second;
}

/// One walk from `initial`; `v` and `weights` are those of the op, or others.
template <typename Op>
static LsmInnerStepOp walk(OpBuilder &builder, Op op, ValueRange operands, Value initial, Value v, Value weights) {
  auto local = localOperands(op, operands);
  auto o = RankedTensorType::get(typeOf(v).getShape(), typeOf(op.getV()).getElementType());
  return LsmInnerStepOp::create(builder, op.getLoc(), TypeRange{o, initial.getType()}, operands[0], operands[1], v,
                                local(op.getRate()), local(op.getLogDecay()), local(op.getLogMomentum()),
                                local(op.getReadRate()), local(op.getNormWeight()), local(op.getNormBias()), weights,
                                initial, local(op.getDocuments()), op.getMiniBatchAttr(), op.getNormEpsAttr());
}
template <typename Op> static LsmInnerStepOp walk(OpBuilder &builder, Op op, ValueRange operands, Value initial) {
  return walk(builder, op, operands, initial, operands[2], localOperands(op, operands)(op.getWeights()));
}

/// I [B, H, R, R], of which no constant of one value can be made: the transition of a token that writes nothing.
static Value identity(OpBuilder &builder, Location loc, RankedTensorType type) {
  Type element = type.getElementType();
  auto tokens = [&](ArrayRef<int64_t> behind) {
    SmallVector<int64_t> shape{type.getDimSize(0), 1, type.getDimSize(1)};
    llvm::append_range(shape, behind);
    return splat(builder, loc, RankedTensorType::get(shape, element), 0.0);
  };
  RankedTensorType p = withFront(type);
  auto before = RankedTensorType::get({type.getDimSize(0), 1}, builder.getI32Type());
  Value documents =
      arith::ConstantOp::create(builder, loc, DenseElementsAttr::get(before, builder.getI32IntegerAttr(-1)));
  auto segment = LsmSegmentOp::create(builder, loc, p, withDim(p, 4, 1), tokens(type.getDimSize(2)), tokens(1), Value(),
                                      tokens({}), Value(), Value(), Value(), documents, LsmClass::H, IntegerAttr());
  return viewed(builder, loc, segment.getP(), type);
}

template <typename Op> SequenceSharder::Segment SequenceSharder::innerSegment(Op op, ValueRange operands) {
  Location loc = op.getLoc();
  RankedTensorType state = typeOf(localOperands(op, operands)(op.getInitialState()));
  RankedTensorType square = withDim(state, 3, state.getDimSize(2));
  Value nothing = splat(builder, loc, withDim(typeOf(operands[2]), 3, state.getDimSize(2)), 0.0);
  Value p = walk(builder, op, operands, identity(builder, loc, square), nothing, Value()).getFinalState(),
        x = walk(builder, op, operands, splat(builder, loc, state, 0.0)).getFinalState();
  return {viewed(builder, loc, p, withFront(square)), viewed(builder, loc, x, withFront(state))};
}

/// State (adjoint: cotangent) that enters this rank when each walks from what its neighbour left; the first (last) from
/// `carry`, which all ranks have, or from zeros.
Value SequenceSharder::pass(Location loc, Value carry, bool zero, bool adjoint, llvm::function_ref<Value(Value)> walk) {
  StringRef label = adjoint ? "lsm.cotangent" : "lsm.state";
  Value edge;
  if (!zero) { // on the rank at the edge, zeros on the others
    RankedTensorType type = typeOf(carry), others = withDim(type, 0, (ranks - 1) * type.getDimSize(0));
    SmallVector<Value> parts{carry, splat(builder, loc, others, 0.0)};
    if (adjoint)
      std::swap(parts[0], parts[1]);
    Value all = ConcatOp::create(builder, loc, withDim(type, 0, ranks * type.getDimSize(0)), parts, 0);
    edge = ShardOp::create(builder, loc, type, all, coordinate, 0, ranks);
  }
  Value state = edge ? edge : carry;
  for (int64_t hop = 1; hop < ranks; ++hop) {
    state = shift(loc, walk(state), 1, adjoint, label);
    if (edge)
      state = AddOp::create(builder, loc, state.getType(), ValueRange{state, edge});
  }
  return state;
}

/// What one rank has, on all.
Value SequenceSharder::ofRank(Location loc, Value x, int64_t rank, StringRef label) {
  int64_t rows = typeOf(x).getDimSize(0);
  return SliceOp::create(builder, loc, x.getType(), gather(loc, x, 0, label), 0, rank * rows);
}

FailureOr<SmallVector<Value>> SequenceSharder::innerStep(LsmInnerStepOp op, ValueRange operands) {
  Location loc = op.getLoc();
  Value carry = operands[op.getInitialStateMutable().getOperandNumber()];
  bool zero = facts.isZero(op.getInitialState()), read = facts.isRead(op.getFinalState());
  FailureOr<SpAlgorithm> chosen = chooseInner(op, operands, !zero || read);
  if (failed(chosen))
    return failure();
  Border border;
  if (*chosen == SpAlgorithm::ring)
    border.mine = pass(loc, carry, zero, /*adjoint=*/false,
                       [&](Value initial) { return walk(builder, op, operands, initial).getFinalState(); });
  else
    border = exchange(loc, innerSegment(op, operands), carry, Value(), Value(), *chosen).before;
  auto step = walk(builder, op, operands, border.mine);
  Value last = border.last ? border.last : step.getFinalState();
  if (read && !border.last)
    last = ofRank(loc, last, ranks - 1, "lsm.state");
  return SmallVector<Value>{step.getO(), last};
}

FailureOr<SmallVector<Value>> SequenceSharder::innerStepGrad(LsmInnerStepGradOp op, ValueRange operands) {
  Location loc = op.getLoc();
  unsigned initialIndex = op.getInitialStateMutable().getOperandNumber(),
           dfinalIndex = op.getDfinalStateMutable().getOperandNumber();
  Value carry = operands[initialIndex], dnext = operands[dfinalIndex];
  bool zero = facts.isZero(op.getInitialState()), zeroGrad = facts.isZero(op.getDfinalState()),
       read = facts.isRead(op.getDinitialState());
  FailureOr<SpAlgorithm> chosen = chooseInner(op, operands, !zero || !zeroGrad || read);
  if (failed(chosen))
    return failure();
  // Cotangents are like q, k, v, the other operands, the state.
  SmallVector<Value> like(operands.take_front(3));
  for (const InnerOther &other : innerOthers(op))
    like.push_back(localOperands(op, operands)(other.value));
  like.push_back(carry);
  SmallVector<Type> types;
  for (auto [result, operand] : llvm::zip_equal(op->getResults(), like))
    types.push_back(localType(operand, result));
  auto back = [&](Value initial, Value dfinal) {
    SmallVector<Value> inner(operands);
    inner[initialIndex] = initial;
    inner[dfinalIndex] = dfinal;
    OperationState state(loc, op->getName(), inner, types, op->getAttrs());
    state.propertiesAttr = op->getPropertiesAsAttribute();
    return SmallVector<Value>(builder.create(state)->getResults());
  };
  Border before, behind;
  if (*chosen == SpAlgorithm::ring) {
    before.mine = pass(loc, carry, zero, /*adjoint=*/false,
                       [&](Value initial) { return walk(builder, op, operands, initial).getFinalState(); });
    behind.mine =
        pass(loc, dnext, zeroGrad, /*adjoint=*/true, [&](Value dfinal) { return back(before.mine, dfinal).back(); });
  } else {
    Value none = splat(builder, loc, typeOf(carry), 0.0); // dX of an affine walk depends on no state
    Borders borders = exchange(loc, innerSegment(op, operands), carry, back(none, none).back(), dnext, *chosen);
    before = borders.before;
    behind = borders.behind;
  }
  SmallVector<Value> results = back(before.mine, behind.mine);
  if (behind.last)
    results.back() = behind.last;
  else if (read)
    results.back() = ofRank(loc, results.back(), 0, "lsm.cotangent");
  return results;
}
