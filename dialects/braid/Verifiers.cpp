//===- Verifiers.cpp - what verifiers share; structure, collective and training ops -------------------------------===//
#include "dialects/braid/Verifiers.h"

#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace braid;

LogicalResult braid::verifyStaticShapes(Operation *op) {
  auto check = [&](StringRef what, TypeRange types) -> LogicalResult {
    for (auto [i, type] : llvm::enumerate(types))
      if (auto shaped = dyn_cast<ShapedType>(type); shaped && !shaped.hasStaticShape())
        return op->emitOpError() << what << " " << i << " is " << type << " but shapes must be static";
    return success();
  };
  CHECK(check("operand", op->getOperandTypes()));
  return check("result", op->getResultTypes());
}

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

LogicalResult braid::withNote(InFlightDiagnostic diagnostic, Named b) {
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

LogicalResult braid::sameTokens(Operation *op, Named a, Named b) {
  CHECK(sameDim(op, "batch", a, 0, b, 0));
  return sameDim(op, "token", a, 1, b, 1);
}

LogicalResult braid::sameShape(Operation *op, Named a, Named b) {
  auto shape = [](Named x) {
    SmallVector<int64_t> dims;
    for (int64_t i = 0; i < x.rank(); ++i)
      dims.push_back(x.dim(i));
    return dims;
  };
  if (shape(a) == shape(b))
    return success();
  return withNote(op->emitOpError() << "shape mismatch: " << a.name << " is " << shapeText(a.type()) << " but "
                                    << b.name << " is " << shapeText(b.type()),
                  b);
}

LogicalResult braid::sameElement(Operation *op, Named a, Named b) {
  if (a.element() == b.element())
    return success();
  return withNote(op->emitOpError() << "element type mismatch: " << a.name << " holds " << a.element() << " but "
                                    << b.name << " holds " << b.element(),
                  b);
}

LogicalResult braid::sameType(Operation *op, Named a, Named b) {
  CHECK(sameShape(op, a, b));
  return sameElement(op, a, b);
}

LogicalResult braid::hasRank(Operation *op, Named a, int64_t least, int64_t most) {
  if (a.rank() >= least && a.rank() <= (most < 0 ? least : most))
    return success();
  int64_t more = a.type().getRank() - a.rank();
  InFlightDiagnostic diagnostic = op->emitOpError()
                                  << a.name << " has rank " << a.rank() + more << " but must have " << least + more;
  if (most > least)
    diagnostic << " to " << most + more;
  return diagnostic;
}

LogicalResult braid::isInteger(Operation *op, Named a) {
  if (a.element().isInteger(32))
    return success();
  return op->emitOpError() << a.name << " must hold i32 but holds " << a.element();
}

LogicalResult braid::isFloat(Operation *op, Named a) {
  if (isa<FloatType>(a.element()))
    return success();
  return op->emitOpError() << a.name << " must hold floating-point numbers but holds " << a.element();
}

LogicalResult braid::isScalar(Operation *op, Named a) {
  if (a.type().getNumElements() == 1)
    return success();
  return op->emitOpError() << a.name << " must have one element but is " << shapeText(a.type());
}

LogicalResult braid::verifyCap(Operation *op, std::optional<APFloat> cap) {
  if (cap && !(cap->convertToDouble() > 0))
    return op->emitOpError() << "softcap " << cap->convertToDouble() << " is not above 0";
  return success();
}

LogicalResult braid::isDocuments(Operation *op, Named documents, Named x) {
  CHECK(hasRank(op, documents, 2));
  CHECK(isInteger(op, documents));
  return sameTokens(op, x, documents);
}

int64_t braid::product(int64_t a, int64_t b) {
  int64_t result;
  return llvm::MulOverflow(a, b, result) ? INT64_MAX : result;
}

LogicalResult braid::isAtLeast(Operation *op, StringRef name, int64_t value, int64_t least) {
  if (value >= least)
    return success();
  return op->emitOpError() << name << " is " << value << " but must be at least " << least;
}

LogicalResult braid::isOneOf(Operation *op, StringRef name, StringRef word, ArrayRef<StringLiteral> valid) {
  if (llvm::is_contained(valid, word))
    return success();
  InFlightDiagnostic diagnostic = op->emitOpError() << "unknown " << name << " \"" << word << "\"; valid: ";
  llvm::interleaveComma(valid, diagnostic);
  return diagnostic;
}

//===- Structure --------------------------------------------------------------------------------------------------===//

LogicalResult RepeatOp::verify() {
  int64_t count = getCount(), carried = getCarried();
  CHECK(isAtLeast(*this, "count", count, 1));
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
    bool isCarried = static_cast<int64_t>(i) < carried;
    if ((isCarried ? input.getType() : layerType(input.getType())) == argument.getType())
      continue;
    return withNote(emitOpError() << "body argument " << i << " is " << argument.getType() << " but input " << i
                                  << " is " << input.getType() << (isCarried ? " (carried)" : " (stacked)")
                                  << " with count " << count,
                    {"input", input});
  }
  auto yield = dyn_cast<YieldOp>(body.getTerminator());
  if (!yield)
    return emitOpError() << "body must end with braid.yield";
  if (yield.getValues().size() != getResults().size() || static_cast<int64_t>(getResults().size()) < carried)
    return emitOpError() << "body yields " << yield.getValues().size() << " values but there are "
                         << getResults().size() << " results, " << carried << " of them carried";
  for (auto [i, value, result] : llvm::enumerate(yield.getValues(), getResults())) {
    bool isCarried = static_cast<int64_t>(i) < carried;
    if (isCarried && result.getType() != getInputs()[i].getType())
      return withNote(emitOpError() << "result " << i << " is " << result.getType() << " but carried input " << i
                                    << " is " << getInputs()[i].getType(),
                      {"input", getInputs()[i]});
    if ((isCarried ? result.getType() : layerType(result.getType())) == value.getType())
      continue;
    return withNote(emitOpError() << "result " << i << " is " << result.getType() << " but the body yields "
                                  << value.getType() << " with count " << count,
                    {"yielded value", value});
  }
  return success();
}

LogicalResult ReshapeOp::verify() {
  Named source{"source", getSource()}, result{"result", getResult()};
  CHECK(sameElement(*this, result, source));
  if (source.type().getNumElements() == result.type().getNumElements())
    return success();
  return withNote(emitOpError() << "source has " << source.type().getNumElements() << " elements but result has "
                                << result.type().getNumElements(),
                  source);
}

/// `part` is as long as `whole` along all dimensions but `dim`.
static LogicalResult isPartAlong(Operation *op, int64_t dim, Named part, Named whole) {
  CHECK(sameElement(op, part, whole));
  CHECK(hasRank(op, part, whole.rank()));
  if (dim < 0 || dim >= whole.rank())
    return op->emitOpError() << "dim " << dim << " is outside rank " << whole.rank();
  for (int64_t i = 0; i < whole.rank(); ++i)
    if (i != dim)
      CHECK(sameDim(op, "dimension", part, i, whole, i));
  return success();
}

LogicalResult SliceOp::verify() {
  Named source{"source", getSource()}, result{"result", getResult()};
  int64_t dim = getDim(), begin = getBegin();
  CHECK(isPartAlong(*this, dim, result, source));
  if (begin < 0 || begin > source.dim(dim) - result.dim(dim))
    return withNote(emitOpError() << "takes " << result.dim(dim) << " from " << begin << " on but dimension " << dim
                                  << " has " << source.dim(dim),
                    source);
  return success();
}

/// x [B, T, ..] is one of the n that a token has in `many` [B, T, n, ..].
static LogicalResult isOneOfToken(Operation *op, Named x, Named many) {
  CHECK(hasRank(op, x, 2, 8));
  CHECK(hasRank(op, many, x.rank() + 1));
  CHECK(sameElement(op, x, many));
  return sameShape(op, x, {many.name, many.value, 2});
}
LogicalResult StackOp::verify() {
  Named result{"result", getResult()};
  if (getSources().empty())
    return emitOpError() << "has no sources";
  for (Value source : getSources())
    CHECK(isOneOfToken(*this, {"source", source}, result));
  if (int64_t many = getSources().size(); result.dim(2) != many)
    return emitOpError() << "has " << many << " sources but the result has " << result.dim(2) << " for each token";
  return success();
}
LogicalResult PickOp::verify() {
  Named source{"source", getSource()}, result{"result", getResult()};
  CHECK(isOneOfToken(*this, result, source));
  int64_t index = getIndex();
  if (index < 0 || index >= source.dim(2))
    return withNote(emitOpError() << "picks number " << index << " of " << source.dim(2), source);
  return success();
}

LogicalResult InsertOp::verify() {
  Named x{"x", getX()}, result{"result", getResult()};
  int64_t dim = getDim(), begin = getBegin();
  CHECK(isPartAlong(*this, dim, x, result));
  if (getInto())
    CHECK(sameType(*this, {"into", getInto()}, result));
  if (begin < 0 || begin > result.dim(dim) - x.dim(dim))
    return emitOpError() << "puts " << x.dim(dim) << " from " << begin << " on but dimension " << dim << " has "
                         << result.dim(dim);
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
    CHECK(sameElement(*this, result, source));
    CHECK(hasRank(*this, source, result.rank()));
    for (int64_t i = 0; i < result.rank(); ++i)
      if (i != dim)
        CHECK(sameDim(*this, "dimension", result, i, source, i));
    sum += source.dim(dim);
  }
  if (sum != result.dim(dim))
    return emitOpError() << "sources have " << sum << " along dimension " << dim << " but result has "
                         << result.dim(dim);
  return success();
}

/// coordinate [1] i32 along an axis of the mesh, or nothing.
LogicalResult braid::isCoordinate(Operation *op, Value value) {
  if (!value)
    return success();
  CHECK(hasRank(op, {"coordinate", value}, 1));
  CHECK(isScalar(op, {"coordinate", value}));
  return isInteger(op, {"coordinate", value});
}

LogicalResult ScaleDocumentsOp::verify() {
  CHECK(isInteger(*this, {"documents", getDocuments()}));
  CHECK(isAtLeast(*this, "count", getCount(), 1));
  CHECK(isAtLeast(*this, "begin", getBegin(), 0));
  return sameType(*this, {"result", getResult()}, {"documents", getDocuments()});
}
LogicalResult DocumentsOp::verify() {
  Named cu{"cu_seqlens", getCuSeqlens()}, result{"result", getResult()};
  CHECK(hasRank(*this, cu, 2));
  CHECK(hasRank(*this, result, 2));
  CHECK(isInteger(*this, cu));
  CHECK(isInteger(*this, result));
  CHECK(isAtLeast(*this, "begin", getBegin(), 0));
  CHECK(isCoordinate(*this, getCoordinate()));
  if (cu.dim(1) < 2)
    return emitOpError() << "cu_seqlens has " << cu.dim(1) << " entries per row but needs at least 2";
  return sameDim(*this, "batch", result, 0, cu, 0);
}

LogicalResult ShardOp::verify() {
  Named x{"x", getX()}, result{"result", getResult()};
  CHECK(isCoordinate(*this, getCoordinate()));
  CHECK(sameElement(*this, result, x));
  CHECK(isAtLeast(*this, "count", getCount(), 1));
  int64_t dim = getDim(), count = getCount();
  if (dim < 0 || dim >= x.rank())
    return emitOpError() << "dim " << dim << " is outside rank " << x.rank();
  if (x.dim(dim) % count)
    return emitOpError() << count << " parts (count) do not divide the " << x.dim(dim) << " entries of dimension "
                         << dim;
  SmallVector<int64_t> shape(x.type().getShape());
  shape[dim] /= count;
  if (result.type().getShape() != ArrayRef<int64_t>(shape))
    return emitOpError() << "result is " << shapeText(result.type()) << " but a part of x is "
                         << shapeText(x.type().clone(shape));
  return success();
}
LogicalResult LocalIdsOp::verify() {
  Named ids{"ids", getIds()};
  CHECK(isCoordinate(*this, getCoordinate()));
  CHECK(hasRank(*this, ids, 2, 8));
  CHECK(isInteger(*this, ids));
  CHECK(isAtLeast(*this, "size", getSize(), 1));
  return sameType(*this, {"result", getResult()}, ids);
}

LogicalResult LastTokenOp::verify() {
  Named x{"x", getX()}, result{"result", getResult()};
  CHECK(hasRank(*this, x, 3));
  CHECK(isFloat(*this, x));
  CHECK(isDocuments(*this, {"documents", getDocuments()}, x));
  SmallVector<int64_t> shape(x.type().getShape());
  shape[1] = 1;
  if (result.type() != x.type().clone(shape))
    return emitOpError() << "result is " << result.type() << " but the last tokens of x are " << x.type().clone(shape);
  return success();
}

//===- Collectives ------------------------------------------------------------------------------------------------===//

LogicalResult CommAllReduceOp::verify() { return sameType(*this, {"result", getResult()}, {"x", getX()}); }
LogicalResult CommShiftOp::verify() {
  CHECK(isAtLeast(*this, "distance", getDistance(), 1));
  return sameType(*this, {"result", getResult()}, {"x", getX()});
}

/// One of the ranks' parts: equal to the whole but along `dim`, which it divides.
static LogicalResult verifyParts(Operation *op, int64_t dim, StringRef wholeName, Type wholeType, StringRef partName,
                                 Type partType) {
  auto whole = cast<ShapedType>(wholeType), part = cast<ShapedType>(partType);
  CHECK(isAtLeast(op, "dim", dim, 0));
  if (dim >= whole.getRank())
    return op->emitOpError() << "dim is " << dim << " but " << wholeName << " has rank " << whole.getRank();
  if (whole.getElementType() != part.getElementType())
    return op->emitOpError() << wholeName << " holds " << whole.getElementType() << " but " << partName << " holds "
                             << part.getElementType();
  bool fits = part.getRank() == whole.getRank();
  for (int64_t i = 0; fits && i < whole.getRank(); ++i) {
    int64_t w = whole.getDimSize(i), p = part.getDimSize(i);
    fits = i == dim ? p > 0 && w % p == 0 : w == p;
  }
  if (!fits)
    return op->emitOpError() << partName << " is " << shapeText(part) << ", which is no part along dimension " << dim
                             << " of " << wholeName << ", which is " << shapeText(whole);
  return success();
}

LogicalResult CommAllGatherOp::verify() {
  return verifyParts(*this, getDim(), "result", getResult().getType(), "x", getX().getType());
}

LogicalResult CommReduceScatterOp::verify() {
  return verifyParts(*this, getDim(), "x", getX().getType(), "result", getResult().getType());
}

static LogicalResult verifyBlocks(Operation *op, Named x, int64_t peers) {
  CHECK(isAtLeast(op, "peers", peers, 1));
  CHECK(hasRank(op, x, 1, 8));
  int64_t blocks = x.rank() == 3 && x.dim(0) == 1 ? x.dim(1) : x.dim(0);
  if (blocks % peers)
    return op->emitOpError() << peers << " peers do not divide the " << blocks << " rows of " << x.name;
  return success();
}

static LogicalResult verifyCounts(Operation *op, Named counts, int64_t peers) {
  CHECK(hasRank(op, counts, 2));
  CHECK(isInteger(op, counts));
  if (counts.dim(0) != peers)
    return op->emitOpError() << counts.name << " has " << counts.dim(0) << " rows for " << peers << " peers";
  return success();
}

LogicalResult CommAllToAllOp::verify() {
  CHECK(sameType(*this, {"result", getResult()}, {"x", getX()}));
  CHECK(verifyBlocks(*this, {"x", getX()}, getPeers()));
  if (!getSendCounts() != !getRecvCounts())
    return emitOpError() << "needs both send_counts and recv_counts, or neither";
  if (!getSendCounts())
    return success();
  CHECK(verifyCounts(*this, {"send_counts", getSendCounts()}, getPeers()));
  return verifyCounts(*this, {"recv_counts", getRecvCounts()}, getPeers());
}

LogicalResult CommStartOp::verify() {
  ArrayRef<Type> results = getFuture().getType().getResults();
  // Between two stages only one of the ranks may have something to say.
  if (getKind() == CollectiveKind::shift && !getCyclic() && getAxis().starts_with("pp[") &&
      getInputs().size() + results.size() == 1)
    return success();
  if (getInputs().empty())
    return emitOpError() << "has no inputs";
  Named x{"x", getInputs()[0]};
  bool parts = getKind() == CollectiveKind::all_gather || getKind() == CollectiveKind::reduce_scatter;
  auto result = results.size() == 1 ? dyn_cast<RankedTensorType>(results[0]) : RankedTensorType();
  if (!result || !result.hasStaticShape() || (!parts && result != x.value.getType()))
    return withNote(
        emitOpError() << "starts with " << x.value.getType() << " but its future is " << getFuture().getType(), x);
  size_t inputs = getInputs().size();
  bool exchange = getKind() == CollectiveKind::all_to_all;
  if (inputs != 1 && !(exchange && inputs == 3))
    return emitOpError() << stringifyCollectiveKind(getKind()) << " takes " << (exchange ? "1 or 3" : "1")
                         << " inputs but there are " << inputs;
  if (parts)
    return getKind() == CollectiveKind::all_gather
               ? verifyParts(*this, getDim(), "its future's tensor", result, "x", x.value.getType())
               : verifyParts(*this, getDim(), "x", x.value.getType(), "its future's tensor", result);
  if (getDim() != 0)
    return emitOpError() << "dim belongs to all_gather and reduce_scatter, not to "
                         << stringifyCollectiveKind(getKind());
  CHECK(isAtLeast(*this, "distance", getDistance(), 1));
  if ((getCyclic() || getReverse() || getDistance() != 1) && getKind() != CollectiveKind::shift)
    return emitOpError() << "cyclic, reverse and distance belong to shift, not to "
                         << stringifyCollectiveKind(getKind());
  if (!exchange)
    return success();
  CHECK(verifyBlocks(*this, x, getPeers()));
  if (inputs == 1)
    return success();
  CHECK(verifyCounts(*this, {"send_counts", getInputs()[1]}, getPeers()));
  return verifyCounts(*this, {"recv_counts", getInputs()[2]}, getPeers());
}

LogicalResult CommAwaitOp::verify() {
  if (llvm::equal(getFuture().getType().getResults(), getResultTypes()))
    return success();
  return withNote(emitOpError() << "awaits " << getFuture().getType() << " but returns " << getResultTypes(),
                  {"future", getFuture()});
}

//===- Training ---------------------------------------------------------------------------------------------------===//

LogicalResult InitOp::verify() {
  CHECK(isOneOf(*this, "distribution", getDistribution(),
                {"normal", "uniform", "log_uniform", "softplus_inverse", "constant", "values"}));
  Named result{"result", getResult()}, seed{"seed", getSeed()};
  if (getPart()) {
    CHECK(isOneOf(*this, "part", *getPart(), {"low", "half"}));
    bool low = *getPart() == "low";
    if (low ? !result.element().isInteger(16) : !result.element().isF32() && !result.element().isBF16())
      return emitOpError() << "part \"" << *getPart() << "\" must hold " << (low ? "i16" : "f32 or bf16")
                           << " but holds " << result.element();
  } else {
    CHECK(isFloat(*this, result));
  }
  CHECK(isScalar(*this, seed));
  if (!isa<IntegerType>(seed.element()))
    return emitOpError() << "seed must hold integers but holds " << seed.element();
  int64_t n = result.type().getNumElements(), keys = getKeys().size();
  if (keys < 1 || n % keys)
    return emitOpError() << keys << " keys do not divide " << n << " elements";
  if (!getStacked() && keys != 1)
    return emitOpError() << "has " << keys << " keys but is not stacked";
  if (getDistribution() == "values" &&
      (!getValues() || getValues()->empty() || n % static_cast<int64_t>(getValues()->size())))
    return emitOpError() << "needs a table of values whose length divides " << n;
  double low = getLow().convertToDouble(), high = getHigh().convertToDouble();
  bool logarithmic = getDistribution() == "log_uniform" || getDistribution() == "softplus_inverse";
  if ((logarithmic || getDistribution() == "uniform") && !(low <= high))
    return emitOpError() << "low is " << low << " but high is " << high;
  if (logarithmic && !(low > 0))
    return emitOpError() << "low is " << low << " but its logarithm is taken";
  ArrayRef<int64_t> dims = getShardDims().value_or(ArrayRef<int64_t>()),
                    counts = getShardCounts().value_or(ArrayRef<int64_t>());
  size_t cuts = getCoordinates().size();
  if (dims.size() != cuts || counts.size() != cuts)
    return emitOpError() << "has " << cuts << " coordinates but " << dims.size() << " shard_dims and " << counts.size()
                         << " shard_counts";
  for (auto [i, dim, count, value] : llvm::enumerate(dims, counts, getCoordinates())) {
    CHECK(isCoordinate(*this, value));
    CHECK(isAtLeast(*this, "shard_counts", count, 1));
    if (dim < 0 || dim >= result.rank())
      return emitOpError() << "shard_dims holds " << dim << ", which is outside rank " << result.rank();
    if (i > 0 && dim < dims[i - 1])
      return emitOpError() << "shard_dims holds " << dim << " behind " << dims[i - 1] << "; they must ascend";
  }
  return success();
}

LogicalResult SumSquaresOp::verify() {
  if (getXs().empty())
    return emitOpError() << "has no operands";
  for (Value x : getXs())
    CHECK(isFloat(*this, {"x", x}));
  CHECK(isFloat(*this, {"result", getResult()}));
  return isScalar(*this, {"result", getResult()});
}

LogicalResult ClipScaleOp::verify() {
  for (Named x : {Named{"sum_squares", getSumSquares()}, {"norm", getNorm()}, {"scale", getScale()}}) {
    CHECK(isScalar(*this, x));
    CHECK(isFloat(*this, x));
  }
  if (getMaxNorm().isNegative())
    return emitOpError() << "max_norm is " << getMaxNorm().convertToDouble() << " but must not be negative";
  return success();
}

LogicalResult AdamwOp::verify() {
  Named parameter{"parameter", getParameter()}, first{"first", getFirst()}, second{"second", getSecond()};
  for (Named x : {Named{"gradient", getGradient()}, first, second}) {
    CHECK(sameShape(*this, parameter, x));
    CHECK(isFloat(*this, x));
  }
  CHECK(isFloat(*this, parameter));
  CHECK(sameElement(*this, first, second));
  for (Named x : {Named{"learning_rate", getLearningRate()}, {"step", getStep()}, {"scale", getScale()}})
    CHECK(isScalar(*this, x));
  CHECK(isFloat(*this, {"learning_rate", getLearningRate()}));
  CHECK(isInteger(*this, {"step", getStep()}));
  CHECK(isFloat(*this, {"scale", getScale()}));
  CHECK(sameType(*this, {"new_parameter", getNewParameter()}, parameter));
  CHECK(sameType(*this, {"new_first", getNewFirst()}, first));
  CHECK(sameType(*this, {"new_second", getNewSecond()}, second));
  if (!getLow() != !getNewLow())
    return emitOpError() << "needs both low and new_low, or neither";
  if (!getLow())
    return success();
  Named low{"low", getLow()};
  CHECK(sameShape(*this, parameter, low));
  bool signs = second.element().isF32() || second.element().isBF16();
  if (!low.element().isInteger(16) || !parameter.element().isBF16() || !signs)
    return emitOpError() << "a master is bf16, i16 and the sign of f32 or bf16, but parameter holds "
                         << parameter.element() << ", low " << low.element() << " and second " << second.element();
  return sameType(*this, {"new_low", getNewLow()}, low);
}
