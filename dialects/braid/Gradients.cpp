//===- Gradients.cpp - reverse mode of the model ops --------------------------------------------------------------===//
// One function per differentiable op: data gradients and weight gradients are different ops (phases-by-example,
// `train`), so that the scheduler may move the latter.
#include "dialects/braid/GradientContext.h"
#include "dialects/braid/InnerTraits.h"
#include "dialects/braid/PassAttributes.h"
#include "dialects/braid/ScanTraits.h"

using namespace mlir;
using namespace braid;

static RankedTensorType typeOf(Value v) { return cast<RankedTensorType>(v.getType()); }
static Type elementOf(Value v) { return typeOf(v).getElementType(); }
/// Weight gradients accumulate in f32, or in f64 programs in f64; this is the type in which they are kept.
static RankedTensorType pieceType(GradientContext &context, Value weight) {
  RankedTensorType type = typeOf(weight);
  return RankedTensorType::get(type.getShape(), context.gradientElement(type.getElementType()));
}
/// The type in which a weight gradient is summed in place, whatever it is kept in.
static RankedTensorType summedType(Value weight) {
  RankedTensorType type = typeOf(weight);
  Type element = type.getElementType().isF64() ? type.getElementType() : Float32Type::get(type.getContext());
  return type.clone(element);
}
static Value castTo(GradientContext &context, Location loc, Value v, Type element) {
  if (elementOf(v) == element)
    return v;
  return CastOp::create(context.builder(), loc, RankedTensorType::get(typeOf(v).getShape(), element), v);
}

//===- Row-wise: one op for all -----------------------------------------------------------------------------------===//

static LogicalResult rowsGradient(Operation *op, GradientContext &context) {
  Value result = op->getResult(0);
  Value dy = context.cotangent(result);
  if (!dy)
    return success();
  SmallVector<Value> inputs;
  SmallVector<int64_t> wanted;
  SmallVector<Type> types;
  for (auto [i, operand] : llvm::enumerate(op->getOperands())) {
    inputs.push_back(context.saved(operand));
    if (!isa<FloatType>(typeOf(operand).getElementType()) || !context.wanted(operand))
      continue;
    // A bias hands the cotangent on as it is.
    if (isa<BiasOp>(op) && i == 0 && dy.getType() == operand.getType()) {
      context.add(operand, dy);
      continue;
    }
    wanted.push_back(i);
    bool whole = rowsOperandKind(op->getName().getStringRef(), i) == TokenKind::whole;
    types.push_back(whole ? pieceType(context, operand) : typeOf(operand));
  }
  if (wanted.empty())
    return success();
  auto grad = RowsGradOp::create(context.builder(), op->getLoc(), types, inputs, ValueRange{dy},
                                 context.builder().getStringAttr(op->getName().getStringRef()), op->getAttrDictionary(),
                                 context.builder().getDenseI64ArrayAttr(wanted));
  for (auto [operand, cotangent] : llvm::zip_equal(wanted, grad.getResults()))
    context.add(op->getOperand(operand), cotangent);
  return success();
}
#define ROWS_GRADIENT(OP)                                                                                              \
  LogicalResult OP::buildGradient(GradientContext &context) { return rowsGradient(*this, context); }
ROWS_GRADIENT(MulOp)
ROWS_GRADIENT(ScaleOp)
ROWS_GRADIENT(OffsetOp)
ROWS_GRADIENT(ClampOp)
ROWS_GRADIENT(BiasOp)
ROWS_GRADIENT(WeightedOp)
ROWS_GRADIENT(ActivationOp)
ROWS_GRADIENT(SoftmaxOp)
ROWS_GRADIENT(LogSumExpOp)
ROWS_GRADIENT(TokenLossOp)
ROWS_GRADIENT(LogSigmoidOp)
ROWS_GRADIENT(LogDecayOp)
ROWS_GRADIENT(FeatureMapOp)
ROWS_GRADIENT(AppendOneOp)
ROWS_GRADIENT(DivideByLastOp)
ROWS_GRADIENT(DropLastOp)
ROWS_GRADIENT(TakeLastOp)
ROWS_GRADIENT(InnerOp)
ROWS_GRADIENT(DotOp)
ROWS_GRADIENT(BoundedGateOp)
ROWS_GRADIENT(ElementDecayOp)
ROWS_GRADIENT(RmsNormOp)
ROWS_GRADIENT(LayerNormOp)
ROWS_GRADIENT(L2NormOp)
ROWS_GRADIENT(GatedNormOp)
ROWS_GRADIENT(RopeOp)
ROWS_GRADIENT(PositionRateOp)
ROWS_GRADIENT(PositionAngleOp)
ROWS_GRADIENT(EveryTokenOp)
ROWS_GRADIENT(RepeatHeadsOp)
ROWS_GRADIENT(CastOp)
ROWS_GRADIENT(MoeRouteWeightsOp)
ROWS_GRADIENT(MoeRouterLossOp)
ROWS_GRADIENT(MoeRenormalizeOp)

/// A sum hands its cotangent on as it is.
LogicalResult AddOp::buildGradient(GradientContext &context) {
  if (Value dy = context.cotangent(getResult()))
    for (Value source : getSources())
      context.add(source, dy);
  return success();
}
/// Numbers for the host.
LogicalResult GreatestOp::buildGradient(GradientContext &) { return success(); }
LogicalResult GreatestWordOp::buildGradient(GradientContext &) { return success(); }
/// Integers only: no gradient flows through a selection (moe-family 2.2).
LogicalResult MoeRouteOp::buildGradient(GradientContext &) { return success(); }
LogicalResult MoeCorrectOp::buildGradient(GradientContext &) { return success(); } // behind every loss

//===- Views and sums ---------------------------------------------------------------------------------------------===//

LogicalResult ReshapeOp::buildGradient(GradientContext &context) {
  if (Value dy = context.cotangent(getResult()))
    context.add(getSource(), ReshapeOp::create(context.builder(), getLoc(), getSource().getType(), dy));
  return success();
}
LogicalResult StackOp::buildGradient(GradientContext &context) {
  if (Value dy = context.cotangent(getResult()))
    for (auto [i, source] : llvm::enumerate(getSources()))
      context.add(source, PickOp::create(context.builder(), getLoc(), source.getType(), dy, i));
  return success();
}
LogicalResult SumOp::buildGradient(GradientContext &context) {
  if (Value dsum = context.cotangent(getResult()))
    context.add(getX(), SumGradOp::create(context.builder(), getLoc(), getX().getType(), dsum));
  return success();
}

//===- Projections ------------------------------------------------------------------------------------------------===//

/// Results with a cotangent; the others contribute nothing.
template <typename Op>
static void liveResults(Op op, GradientContext &context, SmallVectorImpl<Value> &dys, SmallVectorImpl<Value> &weights) {
  for (auto [weight, result] : llvm::zip_equal(op.getWeights(), op.getResults()))
    if (Value dy = context.cotangent(result)) {
      dys.push_back(dy);
      weights.push_back(weight);
    }
}

LogicalResult LinearOp::buildGradient(GradientContext &context) {
  SmallVector<Value> dys, weights, savedWeights;
  liveResults(*this, context, dys, weights);
  if (dys.empty())
    return success();
  OpBuilder &builder = context.builder();
  // Products have operands of one type: the cotangent of a wider result (gates, logits in f32) is rounded first.
  for (auto [dy, weight] : llvm::zip_equal(dys, weights))
    dy = castTo(context, getLoc(), dy, elementOf(weight));
  for (Value weight : weights)
    savedWeights.push_back(context.saved(weight));
  if (context.wanted(getX()))
    context.add(getX(),
                LinearGradDataOp::create(builder, getLoc(), getX().getType(), dys, savedWeights, getTransposedAttr()));
  SmallVector<Value> trainedDys, trained;
  SmallVector<Type> types;
  for (auto [dy, weight] : llvm::zip_equal(dys, weights))
    if (context.wanted(weight)) {
      trainedDys.push_back(dy);
      trained.push_back(weight);
      types.push_back(pieceType(context, weight));
    }
  if (trained.empty())
    return success();
  auto grad = LinearGradWeightOp::create(builder, getLoc(), types, context.saved(getX()), trainedDys, ValueRange(),
                                         getTransposedAttr());
  for (auto [weight, dw] : llvm::zip_equal(trained, grad.getResults()))
    context.add(weight, dw);
  return success();
}

LogicalResult HeadLinearOp::buildGradient(GradientContext &context) {
  Value dy = context.cotangent(getY());
  if (!dy)
    return success();
  if (cast<RankedTensorType>(getWeight().getType()).getRank() != 3 || getTransposed())
    return emitOpError() << "has a gradient with weights [H, R, E] that are not transposed only";
  if (context.wanted(getX()))
    context.add(getX(), HeadLinearOp::create(context.builder(), getLoc(), getX().getType(), dy,
                                             context.saved(getWeight()), /*transposed=*/true));
  if (!context.wanted(getWeight()))
    return success();
  Value dweight =
      HeadLinearGradWeightOp::create(context.builder(), getLoc(), summedType(getWeight()), context.saved(getX()), dy);
  context.add(getWeight(), castTo(context, getLoc(), dweight, pieceType(context, getWeight()).getElementType()));
  return success();
}

LogicalResult EmbedOp::buildGradient(GradientContext &context) {
  Value dy = context.cotangent(getResult());
  if (!dy || !context.wanted(getTable()))
    return success();
  Value dtable = EmbedGradOp::create(context.builder(), getLoc(), summedType(getTable()), context.saved(getTokens()),
                                     dy, /*table_sum=*/Value());
  context.add(getTable(), castTo(context, getLoc(), dtable, pieceType(context, getTable()).getElementType()));
  return success();
}

LogicalResult ShortConvOp::buildGradient(GradientContext &context) {
  if (!context.cotangent(getY()) && !context.cotangent(getNewTail()))
    return success();
  auto grad = ShortConvGradOp::create(
      context.builder(), getLoc(), TypeRange{getX().getType(), pieceType(context, getWeight()), getTail().getType()},
      context.saved(getX()), context.saved(getWeight()), context.saved(getDocuments()), context.saved(getTail()),
      context.cotangentOrZero(getY()), context.cotangentOrZero(getNewTail()));
  context.add(getX(), grad.getDx());
  context.add(getWeight(), grad.getDweight());
  context.add(getTail(), grad.getDtail());
  return success();
}

LogicalResult CrossEntropyOp::buildGradient(GradientContext &context) {
  if (Value dsum = context.cotangent(getSum()))
    context.add(getLogits(), CrossEntropyGradOp::create(context.builder(), getLoc(), getLogits().getType(),
                                                        context.saved(getLogits()), context.saved(getLabels()),
                                                        context.saved(getLse()), dsum));
  return success();
}

LogicalResult LinearCrossEntropyOp::buildGradient(GradientContext &context) {
  Value dsum = context.cotangent(getSum());
  if (!dsum)
    return success();
  auto grad = LinearCrossEntropyGradOp::create(
      context.builder(), getLoc(), TypeRange{getX().getType(), summedType(getWeight()), getSum().getType()},
      context.saved(getX()), context.saved(getWeight()), context.saved(getLabels()), dsum, /*weight_sum=*/Value(),
      getTransposedAttr(), getSoftcapAttr());
  context.add(getX(), grad.getDx());
  if (context.wanted(getWeight()))
    context.add(getWeight(),
                castTo(context, getLoc(), grad.getDweight(), pieceType(context, getWeight()).getElementType()));
  return success();
}

//===- Sequence mixers --------------------------------------------------------------------------------------------===//

/// lsm-family 3: the adjoint is a scan of the same class; its sharding rule is its own (phases-by-example D17).
LogicalResult LsmScanOp::buildGradient(GradientContext &context) {
  if (!context.cotangent(getO()) && !context.cotangent(getFinalState()))
    return success();
  auto savedOrNull = [&](Value v) { return v ? context.saved(v) : Value(); };
  auto gates = trainedGates(*this);
  SmallVector<Type> types = {getQ().getType(), getK().getType(), getV().getType()};
  auto isSummed = [&](Value gate) { return gate == getLogDecay() && decaysByProduct(*this); };
  for (auto [name, gate] : gates)
    types.push_back(isSummed(gate) ? Type(summedType(gate)) : gate.getType());
  types.push_back(getInitialState().getType());
  auto grad = LsmScanGradOp::create(context.builder(), getLoc(), types, context.saved(getQ()), context.saved(getK()),
                                    context.saved(getV()), savedOrNull(getLogDecay()), savedOrNull(getBeta()),
                                    savedOrNull(getA()), savedOrNull(getB()), savedOrNull(getValueDecay()),
                                    context.saved(getInitialState()), context.saved(getDocuments()),
                                    context.cotangentOrZero(getO()), context.cotangentOrZero(getFinalState()),
                                    getClassIdAttr(), getScaleAttr(), getChunkSizeAttr());
  attrs::keep(*this, grad, attrs::leastLogDecay);
  context.add(getQ(), grad.getDq());
  context.add(getK(), grad.getDk());
  context.add(getV(), grad.getDv());
  for (auto [gate, dgate] : llvm::zip_equal(gates, grad.getDgates()))
    context.add(gate.second,
                isSummed(gate.second) ? castTo(context, getLoc(), dgate, elementOf(gate.second)) : Value(dgate));
  context.add(getInitialState(), grad.getDinitialState());
  return success();
}

LogicalResult LsmInnerStepOp::buildGradient(GradientContext &context) {
  if (!context.cotangent(getO()) && !context.cotangent(getFinalState()))
    return success();
  auto savedOrNull = [&](Value v) { return v ? context.saved(v) : Value(); };
  auto others = innerOthers(*this);
  SmallVector<Type> types = {getQ().getType(), getK().getType(), getV().getType()};
  for (const InnerOther &other : others)
    types.push_back(other.whole ? summedType(other.value) : typeOf(other.value));
  types.push_back(getInitialState().getType());
  auto grad = LsmInnerStepGradOp::create(
      context.builder(), getLoc(), types, context.saved(getQ()), context.saved(getK()), context.saved(getV()),
      context.saved(getRate()), savedOrNull(getLogDecay()), savedOrNull(getLogMomentum()), savedOrNull(getReadRate()),
      savedOrNull(getNormWeight()), savedOrNull(getNormBias()), savedOrNull(getWeights()),
      context.saved(getInitialState()), context.saved(getDocuments()), context.cotangentOrZero(getO()),
      context.cotangentOrZero(getFinalState()), getMiniBatchAttr(), getNormEpsAttr());
  context.add(getQ(), grad.getDq());
  context.add(getK(), grad.getDk());
  context.add(getV(), grad.getDv());
  for (auto [other, cotangent] : llvm::zip_equal(others, grad.getDothers()))
    if (!other.whole)
      context.add(other.value, cotangent);
    else if (context.wanted(other.value))
      context.add(other.value, castTo(context, getLoc(), cotangent, pieceType(context, other.value).getElementType()));
  context.add(getInitialState(), grad.getDinitialState());
  return success();
}

LogicalResult AttnCausalOp::buildGradient(GradientContext &context) {
  Value d_o = context.cotangent(getO());
  if (!d_o)
    return success();
  if (getCache())
    return emitOpError() << "reads a cache and has no gradient";
  SmallVector<Type> types{getQ().getType(), getK().getType(), getV().getType()};
  SmallVector<Value> shared;
  for (Value x : getShared()) {
    types.push_back(x.getType());
    shared.push_back(context.saved(x));
  }
  auto grad = AttnCausalGradOp::create(context.builder(), getLoc(), types, context.saved(getQ()), context.saved(getK()),
                                       context.saved(getV()), context.saved(getDocuments()), context.saved(getO()),
                                       context.saved(getLse()), d_o, Value(), shared, ValueRange(), getScaleAttr(),
                                       getWindowAttr(), getPrefixAttr(), IntegerAttr(), getSoftcapAttr());
  context.add(getQ(), grad.getDq());
  context.add(getK(), grad.getDk());
  context.add(getV(), grad.getDv());
  for (auto [x, d] : llvm::zip_equal(getShared(), grad.getDshared()))
    context.add(x, d);
  if (Value sinks = getSinks(); sinks && context.wanted(sinks))
    context.add(sinks,
                AttnSinkGradOp::create(context.builder(), getLoc(), pieceType(context, sinks), context.saved(sinks),
                                       context.saved(getO()), context.saved(getLse()), d_o));
  return success();
}

//===- Experts: the backward is the transpose, op by op (moe-family 6) --------------------------------------------===//

LogicalResult MoeDispatchOp::buildGradient(GradientContext &context) {
  Value drows = context.cotangent(getRows());
  if (drows && context.wanted(getX()))
    context.add(getX(), MoeCombineOp::create(context.builder(), getLoc(), TypeRange{getX().getType(), drows.getType()},
                                             drows, Value(), context.saved(getPerm()), context.saved(getInverse()),
                                             context.saved(getExchange()))
                            .getY());
  return success();
}
LogicalResult MoePermuteOp::buildGradient(GradientContext &context) {
  if (Value drows = context.cotangent(getRows()))
    context.add(getX(), MoePermuteOp::create(context.builder(), getLoc(), getX().getType(), drows,
                                             context.saved(getInverse()), context.saved(getPerm())));
  return success();
}
LogicalResult MoeCombineOp::buildGradient(GradientContext &context) {
  Value dy = context.cotangent(getY());
  if (!dy)
    return success();
  if (!getWeights()) {
    if (getElementTypeOrSelf(dy) != getElementTypeOrSelf(getRows()))
      return emitOpError() << "without weights adds rows of " << getElementTypeOrSelf(getRows()) << " up to "
                           << getElementTypeOrSelf(dy) << " and has no gradient; valid: one element type";
    context.add(getRows(),
                MoeDispatchOp::create(context.builder(), getLoc(), getRows().getType(), dy, context.saved(getPerm()),
                                      context.saved(getInverse()), context.saved(getExchange())));
    return success();
  }
  auto grad =
      MoeCombineGradOp::create(context.builder(), getLoc(), TypeRange{getRows().getType(), getWeights().getType()}, dy,
                               context.saved(getReturned()), context.saved(getWeights()), context.saved(getPerm()),
                               context.saved(getInverse()), context.saved(getExchange()));
  context.add(getRows(), grad.getDrows());
  context.add(getWeights(), grad.getDweights());
  return success();
}
LogicalResult MoeRowWeightsOp::buildGradient(GradientContext &context) {
  Value drows = context.cotangent(getRows());
  if (drows && context.wanted(getWeights()))
    context.add(getWeights(), MoeRowWeightsGradOp::create(context.builder(), getLoc(), getWeights().getType(), drows,
                                                          context.saved(getInverse())));
  return success();
}
LogicalResult MoeGroupedLinearOp::buildGradient(GradientContext &context) {
  SmallVector<Value> dys, weights, savedWeights;
  liveResults(*this, context, dys, weights);
  if (dys.empty())
    return success();
  OpBuilder &builder = context.builder();
  for (Value weight : weights)
    savedWeights.push_back(context.saved(weight));
  Value offsets = context.saved(getOffsets());
  if (context.wanted(getX()))
    context.add(getX(),
                MoeGroupedLinearGradDataOp::create(builder, getLoc(), getX().getType(), dys, offsets, savedWeights));
  SmallVector<Type> types;
  for (Value weight : weights)
    types.push_back(pieceType(context, weight));
  auto grad =
      MoeGroupedLinearGradWeightOp::create(builder, getLoc(), types, context.saved(getX()), offsets, dys, ValueRange());
  for (auto [weight, dw] : llvm::zip_equal(weights, grad.getResults()))
    context.add(weight, dw);
  return success();
}

LogicalResult MoeGroupBiasOp::buildGradient(GradientContext &context) {
  Value dy = context.cotangent(getY());
  if (!dy)
    return success();
  context.add(getX(), dy);
  if (context.wanted(getBias()))
    context.add(getBias(), MoeGroupBiasGradOp::create(context.builder(), getLoc(), pieceType(context, getBias()), dy,
                                                      context.saved(getOffsets())));
  return success();
}

/// Differentiate walks layers itself: the body's gradient is a repeat of its own, in reverse.
LogicalResult RepeatOp::buildGradient(GradientContext &) {
  llvm_unreachable("only Differentiate may ask, and it does not");
}
