//===- VerifiersRows.cpp - row-wise ops ---------------------------------------------------------------------------===//
#include "dialects/braid/Verifiers.h"
#include "mlir/IR/Verifier.h"
#include <cmath>

using namespace mlir;
using namespace braid;

/// An op that computes in floating point on x: result and x have one shape and at least one dimension.
static LogicalResult verifyElementwise(Operation *op, Named result, Named x) {
  CHECK(hasRank(op, x, 1, 8));
  CHECK(isFloat(op, x));
  CHECK(isFloat(op, result));
  return sameShape(op, result, x);
}

/// w has the trailing dimensions of x.
static LogicalResult verifyTrailing(Operation *op, Named x, Named w) {
  CHECK(isFloat(op, w));
  CHECK(hasRank(op, w, 1, x.rank()));
  for (int64_t i = 1; i <= w.rank(); ++i)
    CHECK(sameDim(op, "trailing dimension", x, -i, w, -i));
  return success();
}

/// w has the trailing dimensions of x, or one element per head of x [B, T, H, K].
static LogicalResult verifyPerHead(Operation *op, Named x, Named w) {
  if (x.rank() == 4 && w.rank() == 1) {
    CHECK(sameDim(op, "head", x, 2, w, 0));
    return isFloat(op, w);
  }
  return verifyTrailing(op, x, w);
}

/// result [.., last] for x [.., from].
static LogicalResult verifyLast(Operation *op, Named result, Named x, int64_t from, int64_t last) {
  CHECK(hasRank(op, x, 3, 8));
  CHECK(isFloat(op, x));
  CHECK(isFloat(op, result));
  CHECK(hasRank(op, result, x.rank()));
  for (int64_t i = 0; i + 1 < x.rank(); ++i)
    CHECK(sameDim(op, "dimension", result, i, x, i));
  if (result.dim(-1) != last)
    return withNote(
        op->emitOpError() << "result has " << result.dim(-1) << " features but " << from << " of x give " << last, x);
  return success();
}

static LogicalResult verifyGroups(Operation *op, Named x, int64_t groups) {
  if (groups < 1 || x.dim(-1) % groups)
    return op->emitOpError() << "groups " << groups << " does not divide the last dimension " << x.dim(-1);
  return success();
}

static LogicalResult verifyKind(Operation *op, StringRef name, StringRef kind) {
  return isOneOf(op, name, kind,
                 {"silu", "sigmoid", "tanh", "relu", "relu2", "gelu", "gelu_tanh", "softplus", "elu1", "exp",
                  "bounded_exp", "reciprocal", "log", "sqrt", "cos", "sin", "fraction"});
}

LogicalResult AddOp::verify() {
  if (getSources().empty())
    return emitOpError() << "has no sources";
  Named result{"result", getResult()};
  CHECK(hasRank(*this, result, 1, 8));
  bool isFloating = isa<FloatType>(result.element());
  for (Value value : getSources()) {
    Named source{"source", value};
    CHECK(sameShape(*this, result, source));
    // Floating-point numbers are widened and rounded; counts are added as they are.
    CHECK(isFloating ? isFloat(*this, source) : sameElement(*this, result, source));
  }
  return success();
}
LogicalResult MulOp::verify() {
  Named a{"a", getA()}, b{"b", getB()};
  CHECK(verifyElementwise(*this, {"result", getResult()}, a));
  CHECK(isFloat(*this, b));
  CHECK(hasRank(*this, b, 1, a.rank()));
  for (int64_t i = 0; i < b.rank(); ++i)
    CHECK(sameDim(*this, "dimension", a, i, b, i));
  return success();
}
LogicalResult ScaleOp::verify() { return verifyElementwise(*this, {"result", getResult()}, {"x", getX()}); }
LogicalResult ClampOp::verify() {
  auto finite = [](std::optional<APFloat> number) { return !number || number->isFinite(); };
  if (!finite(getLow()) || !finite(getHigh()) || (!getLow() && !getHigh()))
    return emitOpError() << "keeps x between nothing finite; valid: low, high or both";
  if (getLow() && getHigh() && !(*getLow() < *getHigh()))
    return emitOpError() << "low " << getLow()->convertToDouble() << " is not below high "
                         << getHigh()->convertToDouble();
  return verifyElementwise(*this, {"result", getResult()}, {"x", getX()});
}
LogicalResult OffsetOp::verify() { return verifyElementwise(*this, {"result", getResult()}, {"x", getX()}); }
LogicalResult BiasOp::verify() {
  CHECK(verifyElementwise(*this, {"result", getResult()}, {"x", getX()}));
  return verifyTrailing(*this, {"x", getX()}, {"bias", getBias()});
}
LogicalResult WeightedOp::verify() {
  Named x{"x", getX()}, w{"weight", getWeight()};
  CHECK(verifyElementwise(*this, {"result", getResult()}, x));
  if (!getPerHead())
    return verifyTrailing(*this, x, w);
  CHECK(hasRank(*this, x, 4));
  CHECK(hasRank(*this, w, 1));
  CHECK(sameDim(*this, "head", x, 2, w, 0));
  return isFloat(*this, w);
}
LogicalResult ActivationOp::verify() {
  CHECK(verifyKind(*this, "kind", getKind()));
  return verifyElementwise(*this, {"result", getResult()}, {"x", getX()});
}
LogicalResult SoftmaxOp::verify() { return verifyElementwise(*this, {"result", getResult()}, {"x", getX()}); }
LogicalResult LogSigmoidOp::verify() {
  if (getDivide().isZero())
    return emitOpError() << "divide is 0";
  return verifyElementwise(*this, {"result", getResult()}, {"x", getX()});
}
LogicalResult LogDecayOp::verify() {
  Named x{"x", getX()};
  CHECK(verifyElementwise(*this, {"result", getResult()}, x));
  CHECK(verifyPerHead(*this, x, {"a_log", getALog()}));
  return verifyTrailing(*this, x, {"dt_bias", getDtBias()});
}
LogicalResult FeatureMapOp::verify() {
  Named x{"x", getX()};
  CHECK(isOneOf(*this, "kind", getKind(), {"taylor", "square"}));
  CHECK(hasRank(*this, x, 3, 8));
  int64_t d = x.dim(-1), pairs = product(d, d + 1) / 2;
  return verifyLast(*this, {"result", getResult()}, x, d, getKind() == "taylor" ? 1 + d + pairs : pairs);
}
/// Columns beside values, within what a row can have.
static LogicalResult verifyZeros(Operation *op, int64_t zeros) {
  constexpr int64_t most = 1 << 17;
  if (zeros < 0 || zeros > most)
    return op->emitOpError() << "zeros " << zeros << " is out of range; valid: 0 to " << most;
  return success();
}
LogicalResult AppendOneOp::verify() {
  Named x{"x", getX()};
  CHECK(hasRank(*this, x, 3, 8));
  CHECK(verifyZeros(*this, getZeros()));
  return verifyLast(*this, {"result", getResult()}, x, x.dim(-1), x.dim(-1) + getZeros() + 1);
}
LogicalResult DivideByLastOp::verify() {
  Named x{"x", getX()};
  CHECK(hasRank(*this, x, 3, 8));
  CHECK(verifyZeros(*this, getZeros()));
  if (x.dim(-1) < getZeros() + 2)
    return emitOpError() << "x has " << x.dim(-1) << " features but needs at least " << getZeros() + 2
                         << ": what is divided and the divisor";
  if (std::optional<APFloat> least = getLeast(); least && !(least->convertToDouble() > 0))
    return emitOpError() << "least " << least->convertToDouble() << " is not above 0";
  return verifyLast(*this, {"result", getResult()}, x, x.dim(-1), x.dim(-1) - getZeros() - 1);
}
/// One number of each row.
static LogicalResult verifyReduced(Operation *op, Named result, Named x) {
  CHECK(isFloat(op, result));
  CHECK(hasRank(op, result, x.rank() - 1));
  for (int64_t i = 0; i < result.rank(); ++i)
    CHECK(sameDim(op, "dimension", result, i, x, i));
  return success();
}
static LogicalResult verifyMoreThanLast(Operation *op, Named x, int64_t zeros = 0) {
  CHECK(hasRank(op, x, 3, 8));
  CHECK(isFloat(op, x));
  CHECK(verifyZeros(op, zeros));
  if (x.dim(-1) < zeros + 2)
    return op->emitOpError() << "x has " << x.dim(-1) << " features but needs at least " << zeros + 2
                             << ": one before the last";
  return success();
}
LogicalResult DropLastOp::verify() {
  Named x{"x", getX()};
  CHECK(verifyMoreThanLast(*this, x, getZeros()));
  return verifyLast(*this, {"result", getResult()}, x, x.dim(-1), x.dim(-1) - getZeros() - 1);
}
LogicalResult TakeLastOp::verify() {
  Named x{"x", getX()};
  CHECK(verifyMoreThanLast(*this, x));
  return verifyReduced(*this, {"result", getResult()}, x);
}
LogicalResult InnerOp::verify() {
  Named a{"a", getA()};
  CHECK(hasRank(*this, a, 3, 8));
  CHECK(isFloat(*this, a));
  CHECK(isFloat(*this, {"b", getB()}));
  CHECK(sameShape(*this, {"b", getB()}, a));
  return verifyReduced(*this, {"result", getResult()}, a);
}
LogicalResult DotOp::verify() {
  Named x{"x", getX()}, weight{"weight", getWeight()};
  CHECK(hasRank(*this, x, 3, 8));
  CHECK(isFloat(*this, x));
  CHECK(hasRank(*this, weight, 1));
  CHECK(verifyTrailing(*this, x, weight));
  return verifyReduced(*this, {"result", getResult()}, x);
}
LogicalResult BoundedGateOp::verify() {
  CHECK(verifyElementwise(*this, {"result", getResult()}, {"x", getX()}));
  return verifyPerHead(*this, {"x", getX()}, {"lower_bound", getLowerBound()});
}
LogicalResult ElementDecayOp::verify() {
  Named x{"x", getX()}, rate{"a_log", getALog()}, result{"result", getResult()};
  CHECK(hasRank(*this, x, 4));
  CHECK(hasRank(*this, rate, 3));
  CHECK(hasRank(*this, result, 5));
  for (Named v : {x, rate, result})
    CHECK(isFloat(*this, v));
  CHECK(sameTokens(*this, result, x));
  CHECK(sameDim(*this, "head", rate, 0, x, 2));
  CHECK(sameDim(*this, "value dimension", rate, 2, x, 3));
  for (int64_t i = 0; i < 3; ++i)
    CHECK(sameDim(*this, "dimension", result, 2 + i, rate, i));
  return success();
}
LogicalResult RmsNormOp::verify() {
  CHECK(verifyElementwise(*this, {"result", getResult()}, {"x", getX()}));
  CHECK(verifyGroups(*this, {"x", getX()}, getGroups()));
  return verifyTrailing(*this, {"x", getX()}, {"weight", getWeight()});
}
LogicalResult LayerNormOp::verify() {
  CHECK(verifyElementwise(*this, {"result", getResult()}, {"x", getX()}));
  CHECK(verifyTrailing(*this, {"x", getX()}, {"weight", getWeight()}));
  return getBias() ? verifyTrailing(*this, {"x", getX()}, {"bias", getBias()}) : success();
}
LogicalResult L2NormOp::verify() { return verifyElementwise(*this, {"result", getResult()}, {"x", getX()}); }
LogicalResult GatedNormOp::verify() {
  Named o{"o", getO()}, gate{"gate", getGate()};
  CHECK(verifyKind(*this, "activation", getActivation()));
  CHECK(verifyElementwise(*this, {"result", getResult()}, o));
  CHECK(isFloat(*this, gate));
  CHECK(sameShape(*this, o, gate));
  CHECK(verifyGroups(*this, o, getGroups()));
  return verifyTrailing(*this, o, {"weight", getWeight()});
}
LogicalResult RopeOp::verify() {
  Named x{"x", getX()};
  CHECK(hasRank(*this, x, 3, 4));
  CHECK(verifyElementwise(*this, {"result", getResult()}, x));
  CHECK(isDocuments(*this, {"documents", getDocuments()}, x));
  int64_t dim = getDim();
  if (dim < 2 || dim % 2 || dim > x.dim(-1))
    return emitOpError() << "dim is " << dim << " but must be even, positive and at most the head dimension "
                         << x.dim(-1);
  if (getPeriod())
    CHECK(isAtLeast(*this, "period", *getPeriod(), 1));
  auto isFactor = [](double number) { return std::isfinite(number) && number > 0; };
  if (auto factors = getFactors()) {
    if (factors->size() != static_cast<size_t>(dim / 2))
      return emitOpError() << factors->size() << " factors for " << dim / 2 << " pairs";
    for (double factor : *factors)
      if (factor != 0 && !isFactor(factor))
        return emitOpError() << "factor " << factor << " is not finite and at least 0";
  }
  if (getScale() && !isFactor(getScale()->convertToDouble()))
    return emitOpError() << "scale " << getScale()->convertToDouble() << " is not finite and above 0";
  return isOneOf(*this, "layout", getLayout(), {"half", "interleaved"});
}
LogicalResult PositionRateOp::verify() {
  Named weight{"weight", getWeight()}, result{"result", getResult()};
  CHECK(hasRank(*this, weight, 1));
  CHECK(isFloat(*this, weight));
  CHECK(hasRank(*this, result, 3));
  CHECK(isFloat(*this, result));
  return isDocuments(*this, {"documents", getDocuments()}, result);
}
LogicalResult PositionAngleOp::verify() {
  Named phase{"phase", getPhase()}, result{"result", getResult()};
  CHECK(hasRank(*this, phase, 2));
  CHECK(isFloat(*this, phase));
  CHECK(hasRank(*this, result, 4));
  CHECK(isFloat(*this, result));
  CHECK(isDocuments(*this, {"documents", getDocuments()}, result));
  CHECK(sameDim(*this, "head", result, 2, phase, 0));
  return sameDim(*this, "key dimension", result, 3, phase, 1);
}
LogicalResult EveryTokenOp::verify() {
  Named value{"value", getValue()}, result{"result", getResult()};
  CHECK(hasRank(*this, value, 1, 3));
  CHECK(isFloat(*this, value));
  CHECK(hasRank(*this, result, value.rank() + 2));
  CHECK(isFloat(*this, result));
  CHECK(isDocuments(*this, {"documents", getDocuments()}, result));
  for (int64_t i = 0; i < value.rank(); ++i)
    CHECK(sameDim(*this, "dimension", result, i + 2, value, i));
  return success();
}
LogicalResult RepeatHeadsOp::verify() {
  Named x{"x", getX()}, y{"result", getResult()};
  CHECK(hasRank(*this, x, 3, 4));
  CHECK(hasRank(*this, y, x.rank()));
  CHECK(sameElement(*this, y, x));
  for (int64_t i = 0; i < x.rank(); ++i)
    if (i != 2)
      CHECK(sameDim(*this, "dimension", y, i, x, i));
  if (x.dim(2) == 0 || y.dim(2) % x.dim(2))
    return emitOpError() << "result has " << y.dim(2) << " heads, no multiple of x's " << x.dim(2);
  return success();
}
LogicalResult CastOp::verify() {
  Named x{"x", getX()}, result{"result", getResult()};
  CHECK(sameShape(*this, result, x));
  return x.element() == result.element() ? success() : isFloat(*this, result);
}

/// The function that makes scores of logits.
static LogicalResult isScore(Operation *op, StringRef score) {
  if (score == "softmax" || score == "sigmoid")
    return success();
  return op->emitOpError() << "score is \"" << score << "\"; valid: \"softmax\", \"sigmoid\"";
}

LogicalResult MoeRouteOp::verify() {
  Named keys{"keys", getKeys()}, ids{"result", getResult()};
  CHECK(hasRank(*this, keys, 3));
  CHECK(hasRank(*this, ids, 3));
  CHECK(isFloat(*this, keys));
  CHECK(isInteger(*this, ids));
  CHECK(sameTokens(*this, ids, keys));
  int64_t k = getTopK(), experts = keys.dim(2), groups = getGroups(), kept = getKeptGroups(), top = getGroupTop();
  if (k < 1 || k > experts)
    return emitOpError() << "top_k is " << k << " but there are " << experts << " experts";
  if (ids.dim(2) != k)
    return emitOpError() << "result has " << ids.dim(2) << " slots but top_k is " << k;
  if (groups < 1 || experts % groups)
    return emitOpError() << "has " << groups << " groups, which " << experts << " experts cannot be divided into";
  int64_t size = experts / groups;
  if (kept < 1 || kept > groups)
    return emitOpError() << "keeps " << kept << " of " << groups << " groups";
  if (k > kept * size)
    return emitOpError() << "top_k is " << k << " but " << kept << " groups have " << kept * size << " experts";
  if (top < 1 || top > size)
    return emitOpError() << "adds up the " << top << " largest keys of groups of " << size << " experts";
  return success();
}
LogicalResult MoeRouteWeightsOp::verify() {
  Named logits{"logits", getLogits()}, ids{"expert_ids", getExpertIds()}, result{"result", getResult()};
  CHECK(hasRank(*this, logits, 3));
  CHECK(hasRank(*this, ids, 3));
  CHECK(isFloat(*this, logits));
  CHECK(isInteger(*this, ids));
  CHECK(isFloat(*this, result));
  CHECK(sameTokens(*this, logits, ids));
  CHECK(isScore(*this, getScore()));
  return sameShape(*this, result, ids);
}
LogicalResult MoeCorrectOp::verify() {
  Named correction{"correction", getCorrection()}, load{"load", getLoad()};
  CHECK(hasRank(*this, correction, 3));
  CHECK(isFloat(*this, correction));
  CHECK(isFloat(*this, load));
  CHECK(sameShape(*this, load, correction));
  return sameType(*this, {"result", getResult()}, correction);
}
LogicalResult MoeRenormalizeOp::verify() {
  Named weights{"weights", getWeights()}, kept{"kept", getKept()};
  CHECK(hasRank(*this, weights, 3));
  CHECK(isFloat(*this, weights));
  CHECK(isInteger(*this, kept));
  CHECK(sameShape(*this, kept, weights));
  return sameType(*this, {"result", getResult()}, weights);
}
LogicalResult LogSumExpOp::verify() {
  Named x{"x", getX()}, result{"result", getResult()};
  CHECK(hasRank(*this, x, 3));
  CHECK(hasRank(*this, result, 2));
  CHECK(isFloat(*this, x));
  CHECK(isFloat(*this, result));
  return sameTokens(*this, result, x);
}
template <typename Op> static LogicalResult verifyGreatest(Op op) {
  Named x{"x", op.getX()}, result{"result", op.getResult()};
  CHECK(hasRank(op, x, 3));
  CHECK(hasRank(op, result, 2));
  CHECK(isFloat(op, x));
  return sameTokens(op, result, x);
}
LogicalResult GreatestOp::verify() {
  CHECK(verifyGreatest(*this));
  return isFloat(*this, {"result", getResult()});
}
LogicalResult GreatestWordOp::verify() {
  Named words{"words", getWords()};
  CHECK(verifyGreatest(*this));
  CHECK(isInteger(*this, words));
  CHECK(sameShape(*this, words, {"x", getX()}));
  return isInteger(*this, {"result", getResult()});
}
LogicalResult TokenLossOp::verify() {
  Named lse{"lse", getLse()}, labels{"labels", getLabels()};
  CHECK(hasRank(*this, lse, 2));
  CHECK(isInteger(*this, labels));
  CHECK(sameShape(*this, lse, labels));
  for (Named v : {lse, Named{"target", getTarget()}, {"result", getResult()}}) {
    CHECK(sameShape(*this, lse, v));
    CHECK(isFloat(*this, v));
  }
  return success();
}
LogicalResult MoeRouterLossOp::verify() {
  Named logits{"logits", getLogits()}, counts{"counts", getCounts()}, result{"result", getResult()};
  CHECK(hasRank(*this, logits, 3));
  CHECK(hasRank(*this, counts, 1));
  CHECK(hasRank(*this, result, 2));
  CHECK(isFloat(*this, logits));
  CHECK(isInteger(*this, counts));
  CHECK(isFloat(*this, result));
  CHECK(sameTokens(*this, result, logits));
  CHECK(isDocuments(*this, {"documents", getDocuments()}, logits));
  CHECK(isAtLeast(*this, "top_k", getTopK(), 1));
  CHECK(isScore(*this, getScore()));
  return sameDim(*this, "expert", logits, 2, counts, 0);
}

/// The op whose gradient this is, detached: passes build it from the name and the attributes as well.
static LogicalResult verifyForward(RowsGradOp op) {
  OperationState state(op.getLoc(), op.getOp());
  state.addOperands(op.getInputs());
  state.addTypes(llvm::to_vector(op.getCotangents().getTypes()));
  state.addAttributes(op.getOpAttributes().getValue());
  Operation *forward = Operation::create(state);
  LogicalResult result = mlir::verify(forward, /*verifyRecursively=*/false);
  forward->destroy();
  return result;
}
LogicalResult RowsGradOp::verify() {
  OperationName name(getOp(), getContext());
  if (!name.hasInterface<RowsOpInterface>())
    return emitOpError() << "\"" << getOp() << "\" is not a row-wise op";
  if (failed(verifyForward(*this)))
    return emitOpError() << "has inputs, cotangents and attributes that " << getOp() << " does not take";
  if (getWanted().size() != getResults().size())
    return emitOpError() << "wants " << getWanted().size() << " cotangents but has " << getResults().size()
                         << " results";
  for (auto [operand, result] : llvm::zip_equal(getWanted(), getResults())) {
    if (operand < 0 || operand >= static_cast<int64_t>(getInputs().size()))
      return emitOpError() << "wants the cotangent of operand " << operand << " of " << getInputs().size();
    Named input{"input", getInputs()[operand]};
    CHECK(isFloat(*this, input));
    CHECK(isFloat(*this, {"result", result}));
    CHECK(sameShape(*this, {"result", result}, input));
  }
  return success();
}
