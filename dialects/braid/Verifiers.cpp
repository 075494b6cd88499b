//===- Verifiers.cpp - structure, row-wise, linear, collective and training ops -----------------------------------===//
#include "dialects/braid/Verifiers.h"

using namespace mlir;
using namespace braid;

std::string braid::shapeText(ShapedType type) {
  std::string text;
  llvm::raw_string_ostream os(text);
  llvm::interleave(type.getShape(), os, "x");
  return text.empty() ? "scalar" : text;
}

int64_t braid::elements(ShapedType type, int64_t from) {
  int64_t n = 1;
  for (int64_t d : type.getShape().drop_front(from))
    n *= d;
  return n;
}

static LogicalResult withNote(InFlightDiagnostic diagnostic, Named b) {
  diagnostic.attachNote(b.value.getLoc()) << b.name << " defined here";
  return diagnostic;
}

LogicalResult braid::sameDim(Operation *op, StringRef what, Named a, int64_t i, Named b, int64_t j) {
  if (a.dim(i) == b.dim(j))
    return success();
  return withNote(op->emitOpError() << what << " mismatch: " << a.name << " has " << a.dim(i) << " but " << b.name
                                    << " has " << b.dim(j),
                  b);
}

LogicalResult braid::sameShape(Operation *op, Named a, Named b) {
  if (a.type().getShape() == b.type().getShape())
    return success();
  return withNote(op->emitOpError() << "shape mismatch: " << a.name << " is " << shapeText(a.type()) << " but "
                                    << b.name << " is " << shapeText(b.type()),
                  b);
}

LogicalResult braid::hasRank(Operation *op, Named a, int64_t least, int64_t most) {
  if (!a.type().hasStaticShape())
    return op->emitOpError() << a.name << " has a dynamic shape";
  if (a.rank() >= least && a.rank() <= (most < 0 ? least : most))
    return success();
  InFlightDiagnostic diagnostic = op->emitOpError() << a.name << " has rank " << a.rank() << " but must have " << least;
  if (most > least)
    diagnostic << " to " << most;
  return diagnostic;
}

LogicalResult braid::isInteger(Operation *op, Named a) {
  if (a.type().getElementType().isInteger(32))
    return success();
  return op->emitOpError() << a.name << " must hold i32 but holds " << a.type().getElementType();
}

#define CHECK(...)                                                                                                     \
  if (failed(__VA_ARGS__))                                                                                             \
  return failure()

//===- Structure --------------------------------------------------------------------------------------------------===//

LogicalResult RepeatOp::verify() {
  int64_t count = getCount(), carried = getCarried();
  if (count < 1)
    return emitOpError() << "count is " << count << " but must be at least 1";
  if (carried < 0 || carried > static_cast<int64_t>(getInputs().size()))
    return emitOpError() << "carried is " << carried << " but there are " << getInputs().size() << " inputs";
  Block &body = getBody().front();
  if (body.getNumArguments() != getInputs().size())
    return emitOpError() << "body takes " << body.getNumArguments() << " values but there are " << getInputs().size()
                         << " inputs";
  auto layerType = [&](Type stacked) -> Type {
    auto type = dyn_cast<RankedTensorType>(stacked);
    if (!type || type.getRank() == 0 || type.getDimSize(0) != count)
      return {};
    return RankedTensorType::get(type.getShape().drop_front(), type.getElementType());
  };
  for (auto [i, input, argument] : llvm::enumerate(getInputs(), body.getArguments())) {
    Type wanted = static_cast<int64_t>(i) < carried ? input.getType() : layerType(input.getType());
    if (wanted == argument.getType())
      continue;
    return emitOpError() << "body argument " << i << " is " << argument.getType() << " but input " << i << " is "
                         << input.getType() << (static_cast<int64_t>(i) < carried ? " (carried)" : " (stacked)")
                         << " with count " << count;
  }
  auto yield = dyn_cast<YieldOp>(body.getTerminator());
  if (!yield)
    return emitOpError() << "body must end with braid.yield";
  if (yield.getValues().size() != getResults().size() || static_cast<int64_t>(getResults().size()) < carried)
    return emitOpError() << "body yields " << yield.getValues().size() << " values but there are "
                         << getResults().size() << " results, " << carried << " of them carried";
  for (auto [i, value, result] : llvm::enumerate(yield.getValues(), getResults())) {
    Type wanted = static_cast<int64_t>(i) < carried ? result.getType() : layerType(result.getType());
    if (wanted == value.getType())
      continue;
    return emitOpError() << "result " << i << " is " << result.getType() << " but the body yields " << value.getType()
                         << " with count " << count;
  }
  return success();
}

LogicalResult ReshapeOp::verify() {
  auto from = cast<ShapedType>(getSource().getType()), to = cast<ShapedType>(getResult().getType());
  if (from.getElementType() != to.getElementType())
    return emitOpError() << "element type changes from " << from.getElementType() << " to " << to.getElementType();
  if (from.getNumElements() != to.getNumElements())
    return emitOpError() << "source has " << from.getNumElements() << " elements but result has "
                         << to.getNumElements();
  return success();
}

LogicalResult SliceOp::verify() {
  Named source{"source", getSource()}, result{"result", getResult()};
  CHECK(hasRank(*this, result, source.rank()));
  int64_t dim = getDim(), begin = getBegin();
  if (dim < 0 || dim >= source.rank())
    return emitOpError() << "dim " << dim << " is outside rank " << source.rank();
  for (int64_t i = 0; i < source.rank(); ++i)
    if (i != dim)
      CHECK(sameDim(*this, "dimension", result, i, source, i));
  if (begin < 0 || begin + result.dim(dim) > source.dim(dim))
    return emitOpError() << "takes [" << begin << ", " << begin + result.dim(dim) << ") but dimension " << dim
                         << " has " << source.dim(dim);
  return success();
}

LogicalResult ConcatOp::verify() {
  if (getSources().empty())
    return emitOpError() << "has no sources";
  Named result{"result", getResult()};
  int64_t dim = getDim(), sum = 0;
  if (dim < 0 || dim >= result.rank())
    return emitOpError() << "dim " << dim << " is outside rank " << result.rank();
  for (Value value : getSources()) {
    Named source{"source", value};
    CHECK(hasRank(*this, source, result.rank()));
    for (int64_t i = 0; i < result.rank(); ++i)
      if (i != dim)
        CHECK(sameDim(*this, "dimension", result, i, source, i));
    sum += source.dim(dim);
  }
  if (sum != result.dim(dim))
    return emitOpError() << "sources have " << sum << " along " << dim << " but result has " << result.dim(dim);
  return success();
}

LogicalResult DocumentsOp::verify() {
  Named cu{"cu_seqlens", getCuSeqlens()}, result{"result", getResult()};
  CHECK(hasRank(*this, cu, 2));
  CHECK(hasRank(*this, result, 2));
  CHECK(isInteger(*this, cu));
  CHECK(isInteger(*this, result));
  if (cu.dim(1) < 2)
    return emitOpError() << "cu_seqlens has " << cu.dim(1) << " entries per row but needs at least 2";
  return sameDim(*this, "batch", result, 0, cu, 0);
}

//===- Row-wise ---------------------------------------------------------------------------------------------------===//

LogicalResult AddOp::verify() {
  if (getSources().empty())
    return emitOpError() << "has no sources";
  for (Value source : getSources())
    CHECK(sameShape(*this, {"result", getResult()}, {"source", source}));
  return success();
}
LogicalResult MulOp::verify() {
  Named a{"a", getA()}, b{"b", getB()};
  CHECK(sameShape(*this, {"result", getResult()}, a));
  CHECK(hasRank(*this, b, 0, a.rank()));
  for (int64_t i = 0; i < b.rank(); ++i)
    CHECK(sameDim(*this, "dimension", a, i, b, i));
  return success();
}
LogicalResult ScaleOp::verify() { return sameShape(*this, {"result", getResult()}, {"x", getX()}); }
static LogicalResult verifyTrailing(Operation *op, Named x, Named w) {
  CHECK(hasRank(op, w, 0, x.rank()));
  for (int64_t i = 1; i <= w.rank(); ++i)
    CHECK(sameDim(op, "trailing dimension", x, -i, w, -i));
  return success();
}
LogicalResult BiasOp::verify() {
  CHECK(sameShape(*this, {"result", getResult()}, {"x", getX()}));
  return verifyTrailing(*this, {"x", getX()}, {"bias", getBias()});
}
LogicalResult WeightedOp::verify() {
  Named x{"x", getX()}, w{"weight", getWeight()};
  CHECK(sameShape(*this, {"result", getResult()}, x));
  if (x.rank() == 4 && w.rank() == 1 && w.dim(0) == x.dim(2))
    return success(); // one factor per head
  return verifyTrailing(*this, x, w);
}
LogicalResult ActivationOp::verify() {
  static constexpr StringLiteral kinds[] = {"silu",      "sigmoid",  "tanh", "relu", "relu2",     "gelu",
                                            "gelu_tanh", "softplus", "elu1", "exp",  "reciprocal"};
  if (!llvm::is_contained(kinds, getKind())) {
    InFlightDiagnostic diagnostic = emitOpError() << "unknown kind \"" << getKind() << "\"; valid: ";
    llvm::interleaveComma(kinds, diagnostic);
    return diagnostic;
  }
  return sameShape(*this, {"result", getResult()}, {"x", getX()});
}
LogicalResult SoftmaxOp::verify() { return sameShape(*this, {"result", getResult()}, {"x", getX()}); }
LogicalResult LogSigmoidOp::verify() {
  if (getDivide().isZero())
    return emitOpError() << "divide is 0";
  return sameShape(*this, {"result", getResult()}, {"x", getX()});
}
LogicalResult LogDecayOp::verify() {
  Named x{"x", getX()};
  CHECK(sameShape(*this, {"result", getResult()}, x));
  CHECK(verifyTrailing(*this, x, {"a_log", getALog()}));
  return verifyTrailing(*this, x, {"dt_bias", getDtBias()});
}
static LogicalResult verifyGroups(Operation *op, Named x, int64_t groups) {
  if (groups < 1 || x.dim(-1) % groups)
    return op->emitOpError() << "groups " << groups << " does not divide the last dimension " << x.dim(-1);
  return success();
}
LogicalResult RmsNormOp::verify() {
  CHECK(sameShape(*this, {"result", getResult()}, {"x", getX()}));
  CHECK(verifyGroups(*this, {"x", getX()}, getGroups()));
  return verifyTrailing(*this, {"x", getX()}, {"weight", getWeight()});
}
LogicalResult LayerNormOp::verify() {
  CHECK(sameShape(*this, {"result", getResult()}, {"x", getX()}));
  CHECK(verifyTrailing(*this, {"x", getX()}, {"weight", getWeight()}));
  return verifyTrailing(*this, {"x", getX()}, {"bias", getBias()});
}
LogicalResult L2NormOp::verify() { return sameShape(*this, {"result", getResult()}, {"x", getX()}); }
LogicalResult GatedNormOp::verify() {
  Named o{"o", getO()};
  CHECK(sameShape(*this, {"result", getResult()}, o));
  CHECK(sameShape(*this, o, {"gate", getGate()}));
  CHECK(verifyGroups(*this, o, getGroups()));
  return verifyTrailing(*this, o, {"weight", getWeight()});
}
LogicalResult RopeOp::verify() {
  Named x{"x", getX()}, documents{"documents", getDocuments()};
  CHECK(sameShape(*this, {"result", getResult()}, x));
  CHECK(hasRank(*this, x, 3, 4));
  CHECK(hasRank(*this, documents, 2));
  CHECK(sameDim(*this, "batch", x, 0, documents, 0));
  CHECK(sameDim(*this, "token", x, 1, documents, 1));
  int64_t dim = getDim();
  if (dim < 2 || dim % 2 || dim > x.dim(-1))
    return emitOpError() << "dim is " << dim << " but must be even and at most the head dimension " << x.dim(-1);
  if (getLayout() != "half" && getLayout() != "interleaved")
    return emitOpError() << "unknown layout \"" << getLayout() << "\"; valid: half, interleaved";
  return success();
}
LogicalResult RepeatHeadsOp::verify() {
  Named x{"x", getX()}, y{"result", getResult()};
  CHECK(hasRank(*this, x, 3, 4));
  CHECK(hasRank(*this, y, x.rank()));
  for (int64_t i = 0; i < x.rank(); ++i)
    if (i != 2)
      CHECK(sameDim(*this, "dimension", y, i, x, i));
  if (y.dim(2) % x.dim(2))
    return emitOpError() << "result has " << y.dim(2) << " heads, no multiple of x's " << x.dim(2);
  return success();
}
LogicalResult CastOp::verify() { return sameShape(*this, {"result", getResult()}, {"x", getX()}); }
LogicalResult RowsGradOp::verify() {
  if (getWanted().size() != getResults().size())
    return emitOpError() << "wants " << getWanted().size() << " cotangents but has " << getResults().size()
                         << " results";
  for (auto [operand, result] : llvm::zip_equal(getWanted(), getResults())) {
    if (operand < 0 || operand >= static_cast<int64_t>(getInputs().size()))
      return emitOpError() << "wants the cotangent of operand " << operand << " of " << getInputs().size();
    CHECK(sameShape(*this, {"result", result}, {"input", getInputs()[operand]}));
  }
  return success();
}

//===- Linear, embedding, loss ------------------------------------------------------------------------------------===//

static LogicalResult verifyWeight(Operation *op, Named weight, bool transposed, int64_t in, StringRef inName, Named y) {
  CHECK(hasRank(op, weight, 2));
  int64_t out = elements(y.type(), 2);
  if (weight.dim(transposed ? 1 : 0) != in)
    return op->emitOpError() << "input dimension mismatch: weight has " << weight.dim(transposed ? 1 : 0) << " but "
                             << inName << " has " << in;
  if (weight.dim(transposed ? 0 : 1) != out)
    return op->emitOpError() << "output dimension mismatch: weight has " << weight.dim(transposed ? 0 : 1) << " but "
                             << y.name << " has " << out;
  return success();
}
LogicalResult LinearOp::verify() {
  if (getWeights().size() != getResults().size() || getWeights().empty())
    return emitOpError() << "has " << getWeights().size() << " weights but " << getResults().size() << " results";
  Named x{"x", getX()};
  CHECK(hasRank(*this, x, 3, 4));
  for (auto [weight, result] : llvm::zip_equal(getWeights(), getResults())) {
    Named y{"result", result};
    CHECK(hasRank(*this, y, 3, 4));
    CHECK(sameDim(*this, "batch", y, 0, x, 0));
    CHECK(sameDim(*this, "token", y, 1, x, 1));
    CHECK(verifyWeight(*this, {"weight", weight}, getTransposed(), elements(x.type(), 2), "x", y));
  }
  return success();
}
LogicalResult LinearGradDataOp::verify() {
  if (getWeights().size() != getDys().size() || getDys().empty())
    return emitOpError() << "has " << getWeights().size() << " weights but " << getDys().size() << " cotangents";
  for (auto [weight, dy] : llvm::zip_equal(getWeights(), getDys()))
    CHECK(verifyWeight(*this, {"weight", weight}, getTransposed(), elements(cast<ShapedType>(getDx().getType()), 2),
                       "dx", {"dy", dy}));
  return success();
}
LogicalResult LinearGradWeightOp::verify() {
  if (getDys().size() != getDws().size() || getDys().empty())
    return emitOpError() << "has " << getDys().size() << " cotangents but " << getDws().size() << " results";
  for (auto [dw, dy] : llvm::zip_equal(getDws(), getDys())) {
    CHECK(sameDim(*this, "token", {"x", getX()}, 1, {"dy", dy}, 1));
    CHECK(verifyWeight(*this, {"weight", dw}, getTransposed(), elements(cast<ShapedType>(getX().getType()), 2), "x",
                       {"dy", dy}));
  }
  return success();
}
LogicalResult EmbedOp::verify() {
  Named tokens{"tokens", getTokens()}, table{"table", getTable()}, y{"result", getResult()};
  CHECK(hasRank(*this, tokens, 2));
  CHECK(isInteger(*this, tokens));
  CHECK(hasRank(*this, table, 2));
  CHECK(hasRank(*this, y, 3));
  CHECK(sameDim(*this, "token", y, 1, tokens, 1));
  return sameDim(*this, "width", y, 2, table, 1);
}
LogicalResult EmbedGradOp::verify() {
  CHECK(hasRank(*this, {"dy", getDy()}, 3));
  return sameDim(*this, "width", {"dtable", getDtable()}, 1, {"dy", getDy()}, 2);
}
static LogicalResult verifyConv(Operation *op, Named x, Named w, Named documents, Named tail) {
  CHECK(hasRank(op, x, 3, 4));
  CHECK(hasRank(op, w, 2));
  CHECK(hasRank(op, documents, 2));
  CHECK(hasRank(op, tail, 3));
  int64_t channels = elements(x.type(), 2);
  if (w.dim(0) != channels)
    return op->emitOpError() << "channel mismatch: x has " << channels << " but weight has " << w.dim(0);
  if (tail.dim(2) != channels)
    return op->emitOpError() << "channel mismatch: x has " << channels << " but tail has " << tail.dim(2);
  if (tail.dim(1) != w.dim(1) - 1)
    return op->emitOpError() << "tail has " << tail.dim(1) << " rows but " << w.dim(1) << " taps need " << w.dim(1) - 1;
  CHECK(sameDim(op, "batch", x, 0, tail, 0));
  return sameDim(op, "token", x, 1, documents, 1);
}
LogicalResult ShortConvOp::verify() {
  CHECK(sameShape(*this, {"y", getY()}, {"x", getX()}));
  CHECK(sameShape(*this, {"new_tail", getNewTail()}, {"tail", getTail()}));
  return verifyConv(*this, {"x", getX()}, {"weight", getWeight()}, {"documents", getDocuments()}, {"tail", getTail()});
}
LogicalResult ShortConvGradOp::verify() {
  CHECK(sameShape(*this, {"dy", getDy()}, {"x", getX()}));
  return verifyConv(*this, {"x", getX()}, {"weight", getWeight()}, {"documents", getDocuments()}, {"tail", getTail()});
}
LogicalResult CrossEntropyOp::verify() {
  Named logits{"logits", getLogits()}, labels{"labels", getLabels()};
  CHECK(hasRank(*this, logits, 3));
  CHECK(hasRank(*this, labels, 2));
  CHECK(isInteger(*this, labels));
  CHECK(sameDim(*this, "batch", logits, 0, labels, 0));
  CHECK(sameDim(*this, "token", logits, 1, labels, 1));
  return sameShape(*this, {"lse", getLse()}, labels);
}
LogicalResult CrossEntropyGradOp::verify() {
  CHECK(sameShape(*this, {"dlogits", getDlogits()}, {"logits", getLogits()}));
  return sameShape(*this, {"lse", getLse()}, {"labels", getLabels()});
}
static LogicalResult isScalar(Operation *op, Named a) {
  if (a.type().getNumElements() == 1)
    return success();
  return op->emitOpError() << a.name << " must have one element but is " << shapeText(a.type());
}
LogicalResult SumOp::verify() { return isScalar(*this, {"result", getResult()}); }
LogicalResult SumGradOp::verify() { return isScalar(*this, {"dsum", getDsum()}); }

//===- Collectives ------------------------------------------------------------------------------------------------===//

LogicalResult CommAllReduceOp::verify() { return sameShape(*this, {"result", getResult()}, {"x", getX()}); }
static LogicalResult verifyBlocks(Operation *op, Named x, int64_t peers) {
  int64_t blocks = x.rank() == 3 && x.dim(0) == 1 ? x.dim(1) : x.dim(0);
  if (peers < 1 || blocks % peers)
    return op->emitOpError() << peers << " peers do not divide the " << blocks << " rows of " << x.name;
  return success();
}
LogicalResult CommAllToAllOp::verify() {
  CHECK(sameShape(*this, {"result", getResult()}, {"x", getX()}));
  if (!getSendCounts() != !getRecvCounts())
    return emitOpError() << "needs both send_counts and recv_counts, or neither";
  return verifyBlocks(*this, {"x", getX()}, getPeers());
}
LogicalResult CommStartOp::verify() {
  if (getInputs().empty())
    return emitOpError() << "has no inputs";
  ArrayRef<Type> results = getFuture().getType().getResults();
  if (results.size() != 1 || results[0] != getInputs()[0].getType())
    return emitOpError() << "starts with " << getInputs()[0].getType() << " but its future is "
                         << getFuture().getType();
  if (getKind() != CollectiveKind::all_to_all)
    return success();
  return verifyBlocks(*this, {"x", getInputs()[0]}, getPeers());
}
LogicalResult CommAwaitOp::verify() {
  if (llvm::equal(getFuture().getType().getResults(), getResultTypes()))
    return success();
  return emitOpError() << "awaits " << getFuture().getType() << " but returns " << getResultTypes();
}

//===- Training ---------------------------------------------------------------------------------------------------===//

LogicalResult InitOp::verify() {
  static constexpr StringLiteral kinds[] = {"normal",           "uniform",  "log_uniform",
                                            "softplus_inverse", "constant", "values"};
  if (!llvm::is_contained(kinds, getDistribution())) {
    InFlightDiagnostic diagnostic = emitOpError() << "unknown distribution \"" << getDistribution() << "\"; valid: ";
    llvm::interleaveComma(kinds, diagnostic);
    return diagnostic;
  }
  auto type = cast<ShapedType>(getResult().getType());
  int64_t n = type.getNumElements(), keys = getKeys().size();
  if (keys < 1 || n % keys)
    return emitOpError() << keys << " keys do not divide " << n << " elements";
  if (getDistribution() == "values" && (!getValues() || getValues()->empty() || n % getValues()->size()))
    return emitOpError() << "needs a table of values whose length divides " << n;
  return success();
}
LogicalResult AdamwOp::verify() {
  for (auto [name, value] : {std::pair("gradient", getGradient()), {"first", getFirst()}, {"second", getSecond()}})
    CHECK(sameShape(*this, {"parameter", getParameter()}, {name, value}));
  return success();
}
