//===- TileEmitter.cpp - the vocabulary of row-wise ops -----------------------------------------------------------===//
// Every function stays finite, and so does its derivative by the rules of TileGradient, wherever the mathematics does:
// exponents are never positive, and a branch that a select drops never holds an infinity.
#include "dialects/braid/TileEmitter.h"
#include "dialects/braid/Interval.h"

using namespace mlir;

namespace braid {

Value TileEmitter::splat(VectorType type, double value) {
  Type e = type.getElementType();
  Attribute scalar = isa<FloatType>(e) ? Attribute(builder.getFloatAttr(e, value))
                                       : Attribute(builder.getIntegerAttr(e, static_cast<int64_t>(value)));
  return arith::ConstantOp::create(builder, loc, type, DenseElementsAttr::get(type, scalar));
}

Value TileEmitter::add(Value a, Value b) {
  if (type(a).getElementType().isInteger())
    return arith::AddIOp::create(builder, loc, a, b); // counts
  return arith::AddFOp::create(builder, loc, a, b);
}
Value TileEmitter::sub(Value a, Value b) { return arith::SubFOp::create(builder, loc, a, b); }
Value TileEmitter::mul(Value a, Value b) { return arith::MulFOp::create(builder, loc, a, b); }
Value TileEmitter::div(Value a, Value b) { return arith::DivFOp::create(builder, loc, a, b); }
Value TileEmitter::neg(Value a) { return arith::NegFOp::create(builder, loc, a); }
Value TileEmitter::exp(Value a) { return math::ExpOp::create(builder, loc, a); }
Value TileEmitter::log(Value a) { return math::LogOp::create(builder, loc, a); }
Value TileEmitter::rsqrt(Value a) { return math::RsqrtOp::create(builder, loc, a); }
Value TileEmitter::maximum(Value a, Value b) { return arith::MaximumFOp::create(builder, loc, a, b); }
Value TileEmitter::minimum(Value a, Value b) { return arith::MinimumFOp::create(builder, loc, a, b); }
Value TileEmitter::select(Value condition, Value a, Value b) {
  return arith::SelectOp::create(builder, loc, condition, a, b);
}
Value TileEmitter::positive(Value x) {
  return arith::CmpFOp::create(builder, loc, arith::CmpFPredicate::OGT, x, like(x, 0));
}

Value TileEmitter::sigmoid(Value x) {
  // e = exp(-|x|) <= 1:  1 / (1 + e) for x >= 0, e / (1 + e) below.
  Value e = exp(neg(math::AbsFOp::create(builder, loc, x)));
  Value nonNegative = arith::CmpFOp::create(builder, loc, arith::CmpFPredicate::OGE, x, like(x, 0));
  return div(select(nonNegative, like(x, 1), e), add(like(x, 1), e));
}

Value TileEmitter::tail(Value x) {
  return math::Log1pOp::create(builder, loc, exp(neg(math::AbsFOp::create(builder, loc, x))));
}
Value TileEmitter::softplus(Value x) { return add(maximum(x, like(x, 0)), tail(x)); }
Value TileEmitter::logSigmoid(Value x) { return sub(minimum(x, like(x, 0)), tail(x)); }

Value TileEmitter::activation(Value x, StringRef kind) {
  Value zero = like(x, 0), one = like(x, 1);
  if (kind == "silu")
    return mul(x, sigmoid(x));
  if (kind == "sigmoid")
    return sigmoid(x);
  if (kind == "tanh")
    return math::TanhOp::create(builder, loc, x);
  if (kind == "relu")
    return select(positive(x), x, zero);
  if (kind == "relu2") {
    Value r = select(positive(x), x, zero);
    return mul(r, r);
  }
  if (kind == "gelu") {
    Value erf = math::ErfOp::create(builder, loc, mul(x, like(x, 0.70710678118654752440)));
    return mul(mul(like(x, 0.5), x), add(one, erf));
  }
  if (kind == "gelu_tanh") {
    Value cube = mul(mul(x, x), x);
    Value inner = mul(like(x, 0.79788456080286535588), add(x, mul(like(x, 0.044715), cube)));
    return mul(mul(like(x, 0.5), x), add(one, math::TanhOp::create(builder, loc, inner)));
  }
  if (kind == "softplus")
    return softplus(x);
  if (kind == "elu1")
    return select(positive(x), add(x, one), exp(minimum(x, zero)));
  if (kind == "exp")
    return exp(x);
  if (kind == "bounded_exp") // minus it as a log decay leaves nothing even in f64; what is more would only overflow
    return exp(minimum(x, like(x, 7)));
  if (kind == "reciprocal")
    return div(one, x);
  if (kind == "log")
    return log(maximum(x, like(x, kLeastArgument)));
  if (kind == "sqrt")
    return math::SqrtOp::create(builder, loc, maximum(x, like(x, kLeastArgument)));
  if (kind == "cos")
    return math::CosOp::create(builder, loc, x);
  if (kind == "sin")
    return math::SinOp::create(builder, loc, x);
  if (kind == "fraction") // what the nearest integer leaves
    return sub(x, math::FloorOp::create(builder, loc, add(x, like(x, 0.5))));
  llvm_unreachable("an activation that the verifier let through");
}

static VectorType withoutLast(VectorType type) {
  return VectorType::get(type.getShape().drop_back(), type.getElementType());
}
static Value reduceLast(TileEmitter &e, Value x, tile::ReduceKind kind) {
  VectorType type = TileEmitter::type(x);
  return tile::ReduceOp::create(e.builder, e.loc, withoutLast(type), x, type.getRank() - 1, kind);
}
Value TileEmitter::sumLast(Value x) { return reduceLast(*this, x, tile::ReduceKind::add); }
Value TileEmitter::maxLast(Value x) { return reduceLast(*this, x, tile::ReduceKind::max); }
Value TileEmitter::minLast(Value x) { return reduceLast(*this, x, tile::ReduceKind::min); }

Value TileEmitter::expandAt(Value x, int64_t axis, int64_t size) {
  SmallVector<int64_t> wanted(shape(x));
  wanted.insert(wanted.begin() + axis, size);
  return tile::ExpandOp::create(builder, loc, VectorType::get(wanted, type(x).getElementType()), x, axis);
}
Value TileEmitter::expandLast(Value x, int64_t size) { return expandAt(x, type(x).getRank(), size); }

Value TileEmitter::broadcastTo(Value x, VectorType wanted) {
  return x.getType() == wanted ? x : Value(vector::BroadcastOp::create(builder, loc, wanted, x));
}

Value TileEmitter::reshape(Value x, ArrayRef<int64_t> wanted) {
  if (shape(x) == wanted)
    return x;
  return vector::ShapeCastOp::create(builder, loc, VectorType::get(wanted, type(x).getElementType()), x);
}

Value TileEmitter::slice(Value x, int64_t offset, int64_t size) {
  SmallVector<int64_t> wanted(shape(x));
  wanted.back() = size;
  return tile::SliceOp::create(builder, loc, VectorType::get(wanted, type(x).getElementType()), x, offset);
}

Value TileEmitter::concat(ValueRange xs) {
  SmallVector<int64_t> wanted(shape(xs.front()));
  wanted.back() = 0;
  for (Value x : xs)
    wanted.back() += shape(x).back();
  return tile::ConcatOp::create(builder, loc, VectorType::get(wanted, type(xs.front()).getElementType()), xs);
}

Value TileEmitter::cast(Value x, Type element) {
  Type from = type(x).getElementType();
  if (from == element)
    return x;
  auto wanted = VectorType::get(shape(x), element);
  if (!isa<FloatType>(from))
    return arith::SIToFPOp::create(builder, loc, wanted, x);
  if (from.getIntOrFloatBitWidth() < element.getIntOrFloatBitWidth())
    return arith::ExtFOp::create(builder, loc, wanted, x);
  return arith::TruncFOp::create(builder, loc, wanted, x);
}

Value TileEmitter::wide(Value x) {
  Type e = type(x).getElementType();
  return cast(x, e.isF64() ? e : Type(builder.getF32Type()));
}

} // namespace braid
