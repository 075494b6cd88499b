//===- VerifiersLinear.cpp - projections, embedding, convolution, loss --------------------------------------------===//
#include "dialects/braid/Verifiers.h"

using namespace mlir;
using namespace braid;

//===- Projections ------------------------------------------------------------------------------------------------===//

/// [B, T, ..] of numbers.
static LogicalResult verifyTokens(Operation *op, Named x) {
  CHECK(hasRank(op, x, 3, 4));
  return isFloat(op, x);
}

/// weight takes the features of x to those of y. Both are token tensors.
static LogicalResult verifyWeight(Operation *op, Named weight, bool transposed, Named x, Named y) {
  CHECK(hasRank(op, weight, 2));
  CHECK(isFloat(op, weight));
  CHECK(sameTokens(op, y, x));
  int64_t from = weight.dim(transposed ? 1 : 0), to = weight.dim(transposed ? 0 : 1);
  if (int64_t in = elements(x.type(), 2); from != in)
    return withNote(op->emitOpError() << "input dimension mismatch: " << weight.name << " has " << from << " but "
                                      << x.name << " has " << in,
                    x);
  if (int64_t out = elements(y.type(), 2); to != out)
    return withNote(op->emitOpError() << "output dimension mismatch: " << weight.name << " has " << to << " but "
                                      << y.name << " has " << out,
                    y);
  return success();
}

LogicalResult LinearOp::verify() {
  if (getWeights().size() != getResults().size() || getWeights().empty())
    return emitOpError() << "has " << getWeights().size() << " weights but " << getResults().size() << " results";
  Named x{"x", getX()};
  CHECK(verifyTokens(*this, x));
  for (auto [weight, result] : llvm::zip_equal(getWeights(), getResults())) {
    CHECK(verifyTokens(*this, {"result", result}));
    CHECK(verifyWeight(*this, {"weight", weight}, getTransposed(), x, {"result", result}));
  }
  return success();
}
LogicalResult LinearAddOp::verify() {
  Named x{"x", getX()}, y{"y", getY()};
  CHECK(verifyTokens(*this, x));
  CHECK(verifyTokens(*this, y));
  CHECK(verifyWeight(*this, {"weight", getWeight()}, getTransposed(), x, y));
  if (getAddend().getType() != getY().getType())
    return withNote(emitOpError() << "adds " << getAddend().getType() << " to a product of type " << getY().getType(),
                    {"addend", getAddend()});
  return success();
}
LogicalResult HeadLinearOp::verify() {
  Named x{"x", getX()}, y{"y", getY()}, weight{"weight", getWeight()};
  for (Named tokens : {x, y}) {
    CHECK(hasRank(*this, tokens, 4));
    CHECK(isFloat(*this, tokens));
  }
  CHECK(hasRank(*this, weight, 2, 3));
  CHECK(isFloat(*this, weight));
  CHECK(sameTokens(*this, y, x));
  CHECK(sameDim(*this, "head", y, 2, x, 2));
  int64_t heads = x.dim(2);
  Named &rows = getTransposed() ? y : x, &columns = getTransposed() ? x : y;
  static constexpr StringLiteral in = "input dimension", out = "output dimension";
  bool isBlocks = weight.rank() == 3;
  CHECK(sameDim(*this, getTransposed() ? out : in, weight, isBlocks, rows, 3));
  if (isBlocks) {
    CHECK(sameDim(*this, "head", weight, 0, x, 2));
    return sameDim(*this, getTransposed() ? in : out, weight, 2, columns, 3);
  }
  if (weight.dim(1) != heads * columns.dim(3))
    return withNote(emitOpError() << "weight has " << weight.dim(1) << " columns but " << columns.name << " has "
                                  << heads << " heads of " << columns.dim(3),
                    columns);
  return success();
}
LogicalResult HeadLinearGradWeightOp::verify() {
  Named x{"x", getX()}, dy{"dy", getDy()}, dweight{"dweight", getDweight()};
  for (Named tokens : {x, dy}) {
    CHECK(hasRank(*this, tokens, 4));
    CHECK(isFloat(*this, tokens));
  }
  CHECK(sameTokens(*this, dy, x));
  CHECK(sameDim(*this, "head", dy, 2, x, 2));
  CHECK(hasRank(*this, dweight, 3));
  CHECK(isFloat(*this, dweight));
  CHECK(sameDim(*this, "head", dweight, 0, x, 2));
  CHECK(sameDim(*this, "input dimension", dweight, 1, x, 3));
  return sameDim(*this, "output dimension", dweight, 2, dy, 3);
}
LogicalResult LinearGradDataOp::verify() {
  if (getWeights().size() != getDys().size() || getDys().empty())
    return emitOpError() << "has " << getWeights().size() << " weights but " << getDys().size() << " cotangents";
  Named dx{"dx", getDx()};
  CHECK(verifyTokens(*this, dx));
  for (auto [weight, dy] : llvm::zip_equal(getWeights(), getDys())) {
    CHECK(verifyTokens(*this, {"dy", dy}));
    CHECK(verifyWeight(*this, {"weight", weight}, getTransposed(), dx, {"dy", dy}));
  }
  return success();
}
LogicalResult braid::verifySums(Operation *op, ValueRange sums, ValueRange results) {
  if (sums.empty())
    return success();
  if (sums.size() != results.size())
    return op->emitOpError() << "has " << sums.size() << " sums but " << results.size() << " results";
  for (auto [sum, result] : llvm::zip_equal(sums, results)) {
    Named made{"result", result};
    CHECK(sameShape(op, {"sum", sum}, made));
    // Only a complete sum is rounded.
    Type wide = made.element().isBF16() ? Float32Type::get(op->getContext()) : made.element();
    if (cast<RankedTensorType>(sum.getType()).getElementType() != wide)
      return op->emitOpError() << "adds to a sum of type " << sum.getType() << " but its result is " << result.getType()
                               << "; valid: a sum of " << wide;
  }
  return success();
}
LogicalResult braid::verifyOperandCount(Operation *op, size_t count, StringRef names) {
  if (op->getNumOperands() == count)
    return success();
  return op->emitOpError() << "has " << op->getNumOperands() << " operands, but " << names << " are " << count
                           << "; valid: an operandSegmentSizes of 1 for what is single";
}
LogicalResult LinearGradWeightOp::verify() {
  CHECK(verifyOperandCount(*this, 1 + getDys().size() + getSums().size(), "x, its cotangents and sums"));
  if (getDys().size() != getDws().size() || getDys().empty())
    return emitOpError() << "has " << getDys().size() << " cotangents but " << getDws().size() << " results";
  CHECK(verifySums(*this, getSums(), getDws()));
  Named x{"x", getX()};
  CHECK(verifyTokens(*this, x));
  for (auto [dw, dy] : llvm::zip_equal(getDws(), getDys())) {
    CHECK(verifyTokens(*this, {"dy", dy}));
    CHECK(verifyWeight(*this, {"dw", dw}, getTransposed(), x, {"dy", dy}));
  }
  return success();
}

//===- Embedding --------------------------------------------------------------------------------------------------===//

static LogicalResult verifyEmbed(Operation *op, Named tokens, Named table, Named y) {
  CHECK(hasRank(op, tokens, 2));
  CHECK(isInteger(op, tokens));
  CHECK(hasRank(op, table, 2));
  CHECK(isFloat(op, table));
  CHECK(hasRank(op, y, 3));
  CHECK(isFloat(op, y));
  CHECK(sameTokens(op, y, tokens));
  return sameDim(op, "width", y, 2, table, 1);
}
LogicalResult EmbedOp::verify() {
  Named table{"table", getTable()}, y{"result", getResult()};
  CHECK(verifyEmbed(*this, {"tokens", getTokens()}, table, y));
  return sameElement(*this, y, table);
}
LogicalResult EmbedGradOp::verify() {
  Named dtable{"dtable", getDtable()};
  CHECK(verifyEmbed(*this, {"tokens", getTokens()}, dtable, {"dy", getDy()}));
  return getTableSum() ? sameType(*this, {"table_sum", getTableSum()}, dtable) : success();
}

//===- Convolution ------------------------------------------------------------------------------------------------===//

static LogicalResult verifyConv(Operation *op, Named x, Named w, Named documents, Named tail) {
  CHECK(hasRank(op, x, 3, 4));
  CHECK(hasRank(op, w, 2));
  CHECK(hasRank(op, tail, 3));
  for (Named v : {x, w, tail})
    CHECK(isFloat(op, v));
  CHECK(isDocuments(op, documents, x));
  int64_t channels = elements(x.type(), 2), taps = w.dim(1);
  if (w.dim(0) != channels)
    return withNote(op->emitOpError() << "channel mismatch: x has " << channels << " but weight has " << w.dim(0), w);
  if (tail.dim(2) != channels)
    return withNote(op->emitOpError() << "channel mismatch: x has " << channels << " but tail has " << tail.dim(2),
                    tail);
  if (tail.dim(1) != taps - 1)
    return withNote(op->emitOpError() << "tail has " << tail.dim(1) << " rows but weight has " << taps << " taps", w);
  return sameDim(op, "batch", x, 0, tail, 0);
}
LogicalResult ShortConvOp::verify() {
  Named x{"x", getX()}, tail{"tail", getTail()};
  CHECK(verifyConv(*this, x, {"weight", getWeight()}, {"documents", getDocuments()}, tail));
  CHECK(sameShape(*this, {"y", getY()}, x));
  CHECK(isFloat(*this, {"y", getY()}));
  return sameType(*this, {"new_tail", getNewTail()}, tail);
}
LogicalResult ShortConvGradOp::verify() {
  Named x{"x", getX()}, w{"weight", getWeight()}, tail{"tail", getTail()};
  CHECK(verifyConv(*this, x, w, {"documents", getDocuments()}, tail));
  for (auto [d, of] : {std::pair(Named{"dy", getDy()}, x),
                       {{"dnew_tail", getDnewTail()}, tail},
                       {{"dx", getDx()}, x},
                       {{"dweight", getDweight()}, w},
                       {{"dtail", getDtail()}, tail}}) {
    CHECK(sameShape(*this, d, of));
    CHECK(isFloat(*this, d));
  }
  return success();
}

//===- Loss -------------------------------------------------------------------------------------------------------===//

static LogicalResult verifyLoss(Operation *op, Named logits, Named labels, Named lse) {
  CHECK(hasRank(op, logits, 3));
  CHECK(hasRank(op, labels, 2));
  CHECK(isFloat(op, logits));
  CHECK(isInteger(op, labels));
  CHECK(isFloat(op, lse));
  CHECK(sameTokens(op, logits, labels));
  return sameShape(op, lse, labels);
}
static LogicalResult isNumber(Operation *op, Named a) {
  CHECK(isScalar(op, a));
  return isFloat(op, a);
}
LogicalResult CrossEntropyOp::verify() {
  CHECK(verifyLoss(*this, {"logits", getLogits()}, {"labels", getLabels()}, {"lse", getLse()}));
  CHECK(isNumber(*this, {"sum", getSum()}));
  return isNumber(*this, {"count", getCount()});
}
LogicalResult CrossEntropyGradOp::verify() {
  CHECK(verifyLoss(*this, {"logits", getLogits()}, {"labels", getLabels()}, {"lse", getLse()}));
  CHECK(isNumber(*this, {"dsum", getDsum()}));
  return sameType(*this, {"dlogits", getDlogits()}, {"logits", getLogits()});
}
template <typename Op> static LogicalResult verifyLinearLoss(Op op) {
  Named x{"x", op.getX()}, weight{"weight", op.getWeight()}, labels{"labels", op.getLabels()};
  CHECK(verifyCap(op, op.getSoftcap()));
  CHECK(hasRank(op, x, 3));
  CHECK(isFloat(op, x));
  CHECK(hasRank(op, weight, 2));
  CHECK(isFloat(op, weight));
  CHECK(hasRank(op, labels, 2));
  CHECK(isInteger(op, labels));
  CHECK(sameTokens(op, x, labels));
  return sameDim(op, "width", x, 2, weight, op.getTransposed() ? 1 : 0);
}
LogicalResult LinearCrossEntropyOp::verify() {
  CHECK(verifyLinearLoss(*this));
  CHECK(isNumber(*this, {"sum", getSum()}));
  return isNumber(*this, {"count", getCount()});
}
LogicalResult LinearCrossEntropyGradOp::verify() {
  Named x{"x", getX()}, weight{"weight", getWeight()}, dweight{"dweight", getDweight()};
  CHECK(verifyLinearLoss(*this));
  CHECK(isNumber(*this, {"sum", getSum()}));
  CHECK(isNumber(*this, {"dsum", getDsum()}));
  CHECK(sameType(*this, {"dx", getDx()}, x));
  CHECK(sameShape(*this, dweight, weight));
  CHECK(isFloat(*this, dweight));
  return getWeightSum() ? sameType(*this, {"weight_sum", getWeightSum()}, dweight) : success();
}
template <typename Op> static LogicalResult verifyLossPart(Op op) {
  Named lse{"lse", op.getLse()};
  CHECK(isCoordinate(op, op.getCoordinate()));
  CHECK(verifyLinearLoss(op));
  CHECK(isFloat(op, lse));
  return sameShape(op, lse, {"labels", op.getLabels()});
}
LogicalResult LinearLossPartOp::verify() {
  CHECK(verifyLossPart(*this));
  return sameType(*this, {"target", getTarget()}, {"lse", getLse()});
}
LogicalResult LinearScoresOp::verify() {
  Named lse{"lse", getLse()}, word{"word", getWord()};
  CHECK(verifyLossPart(*this));
  CHECK(sameType(*this, {"target", getTarget()}, lse));
  CHECK(sameType(*this, {"greatest", getGreatest()}, lse));
  CHECK(isInteger(*this, word));
  return sameShape(*this, word, lse);
}
LogicalResult LinearLossPartGradOp::verify() {
  Named x{"x", getX()}, weight{"weight", getWeight()}, dweight{"dweight", getDweight()};
  CHECK(verifyLossPart(*this));
  CHECK(isNumber(*this, {"dsum", getDsum()}));
  CHECK(sameType(*this, {"dx", getDx()}, x));
  CHECK(sameShape(*this, dweight, weight));
  CHECK(isFloat(*this, dweight));
  return getWeightSum() ? sameType(*this, {"weight_sum", getWeightSum()}, dweight) : success();
}
LogicalResult SumOp::verify() {
  CHECK(isFloat(*this, {"x", getX()}));
  return isNumber(*this, {"result", getResult()});
}
LogicalResult SumGradOp::verify() {
  CHECK(isFloat(*this, {"dx", getDx()}));
  return isNumber(*this, {"dsum", getDsum()});
}
