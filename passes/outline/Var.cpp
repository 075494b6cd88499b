//===- Var.cpp - arithmetic of kernel values ----------------------------------------------------------------------===//
#include "mlir/Dialect/Math/IR/Math.h"
#include "passes/outline/KernelBuilder.h"

using namespace mlir;

namespace braid {

Var Var::like(double number) const {
  Type e = element();
  Attribute scalar = isa<FloatType>(e) ? Attribute(b().getFloatAttr(e, number))
                                       : Attribute(b().getIntegerAttr(e, static_cast<int64_t>(number)));
  if (auto vector = dyn_cast<VectorType>(type()))
    return with(arith::ConstantOp::create(b(), vector, DenseElementsAttr::get(vector, scalar)));
  return with(arith::ConstantOp::create(b(), cast<TypedAttr>(scalar)));
}

static bool isFloat(Var v) { return isa<FloatType>(v.element()); }

Var splat(Var scalar, Shape shape) {
  return scalar.with(vector::BroadcastOp::create(scalar.b(), VectorType::get(shape, scalar.type()), scalar));
}

/// Broadcasts the scalar of a scalar-tile pair.
static void align(Var &a, Var &b) {
  if (a.isTile() && !b.isTile())
    b = splat(b, a.shape());
  else if (b.isTile() && !a.isTile())
    a = splat(a, b.shape());
  assert(a.type() == b.type() && "operands of one type");
}

template <typename FloatOp, typename IntOp> static Var binary(Var a, Var b) {
  align(a, b);
  return isFloat(a) ? a.with(FloatOp::create(a.b(), a, b)) : a.with(IntOp::create(a.b(), a, b));
}
template <typename IntOp> static Var integers(Var a, Var b) {
  align(a, b);
  return a.with(IntOp::create(a.b(), a, b));
}

Var operator+(Var a, Var b) { return binary<arith::AddFOp, arith::AddIOp>(a, b); }
Var operator-(Var a, Var b) { return binary<arith::SubFOp, arith::SubIOp>(a, b); }
Var operator*(Var a, Var b) { return binary<arith::MulFOp, arith::MulIOp>(a, b); }
Var operator/(Var a, Var b) { return binary<arith::DivFOp, arith::DivSIOp>(a, b); }
Var operator%(Var a, Var b) { return integers<arith::RemSIOp>(a, b); }
Var operator-(Var a) { return isFloat(a) ? a.with(arith::NegFOp::create(a.b(), a)) : a.like(0) - a; }
Var min(Var a, Var b) { return binary<arith::MinimumFOp, arith::MinSIOp>(a, b); }
Var max(Var a, Var b) { return binary<arith::MaximumFOp, arith::MaxSIOp>(a, b); }
Var both(Var a, Var b) { return integers<arith::AndIOp>(a, b); }
Var either(Var a, Var b) { return integers<arith::OrIOp>(a, b); }
Var exclusive(Var a, Var b) { return integers<arith::XOrIOp>(a, b); }
Var shiftLeft(Var a, int64_t bits) { return integers<arith::ShLIOp>(a, a.like(bits)); }
Var shiftRight(Var a, int64_t bits) { return integers<arith::ShRUIOp>(a, a.like(bits)); }

static Var compare(Var a, Var b, arith::CmpFPredicate f, arith::CmpIPredicate i) {
  align(a, b);
  return isFloat(a) ? a.with(arith::CmpFOp::create(a.b(), f, a, b)) : a.with(arith::CmpIOp::create(a.b(), i, a, b));
}
Var lt(Var a, Var b) { return compare(a, b, arith::CmpFPredicate::OLT, arith::CmpIPredicate::slt); }
Var le(Var a, Var b) { return compare(a, b, arith::CmpFPredicate::OLE, arith::CmpIPredicate::sle); }
Var eq(Var a, Var b) { return compare(a, b, arith::CmpFPredicate::OEQ, arith::CmpIPredicate::eq); }
Var ne(Var a, Var b) { return compare(a, b, arith::CmpFPredicate::UNE, arith::CmpIPredicate::ne); }
Var gt(Var a, Var b) { return lt(b, a); }
Var ge(Var a, Var b) { return le(b, a); }

Var select(Var condition, Var a, Var b) {
  Shape shape = a.isTile() ? a.shape() : b.isTile() ? b.shape() : condition.isTile() ? condition.shape() : Shape();
  if (!shape.empty() && !a.isTile())
    a = splat(a, shape);
  if (!shape.empty() && !b.isTile())
    b = splat(b, shape);
  return a.with(arith::SelectOp::create(a.b(), condition, a, b));
}

Var cast(Var x, Type element) {
  Type from = x.element();
  if (from == element)
    return x;
  Type type = x.isTile() ? Type(VectorType::get(x.shape(), element)) : element;
  auto &b = x.b();
  if (from.isIndex() || element.isIndex())
    return x.with(arith::IndexCastOp::create(b, type, x));
  bool fromFloat = isa<FloatType>(from), toFloat = isa<FloatType>(element);
  unsigned fromBits = from.getIntOrFloatBitWidth(), toBits = element.getIntOrFloatBitWidth();
  if (fromFloat && toFloat)
    return fromBits < toBits ? x.with(arith::ExtFOp::create(b, type, Value(x)))
                             : x.with(arith::TruncFOp::create(b, type, Value(x)));
  if (fromFloat)
    return x.with(arith::FPToSIOp::create(b, type, x));
  if (toFloat && fromBits == 1)
    return x.with(arith::UIToFPOp::create(b, type, x));
  if (toFloat)
    return x.with(arith::SIToFPOp::create(b, type, x));
  if (fromBits == 1)
    return x.with(arith::ExtUIOp::create(b, type, x));
  return fromBits < toBits ? x.with(arith::ExtSIOp::create(b, type, x)) : x.with(arith::TruncIOp::create(b, type, x));
}

Var bitcast(Var x, Type element) {
  return x.with(arith::BitcastOp::create(x.b(), x.isTile() ? Type(VectorType::get(x.shape(), element)) : element, x));
}

Var exp(Var x) { return x.with(math::ExpOp::create(x.b(), x)); }
Var exp2(Var x) { return x.with(math::Exp2Op::create(x.b(), x)); }
Var log(Var x) { return x.with(math::LogOp::create(x.b(), x)); }
Var log1p(Var x) { return x.with(math::Log1pOp::create(x.b(), x)); }
Var sqrt(Var x) { return x.with(math::SqrtOp::create(x.b(), x)); }
Var rsqrt(Var x) { return x.with(math::RsqrtOp::create(x.b(), x)); }
Var abs(Var x) { return x.with(math::AbsFOp::create(x.b(), x)); }
Var sin(Var x) { return x.with(math::SinOp::create(x.b(), x)); }
Var cos(Var x) { return x.with(math::CosOp::create(x.b(), x)); }
Var tanh(Var x) { return x.with(math::TanhOp::create(x.b(), x)); }
Var sigmoid(Var x) { return 1.0 / (exp(-x) + 1.0); }

//===- Tiles ------------------------------------------------------------------------------------------------------===//

Var dot(Var a, Var b, Var acc, DotOptions options) {
  int64_t m = a.dim(options.transposeA ? 1 : 0), n = b.dim(options.transposeB ? 0 : 1);
  if (!acc) {
    auto type = VectorType::get({m, n}, computeType(a.element()));
    acc = a.with(arith::ConstantOp::create(a.b(), type, a.b().getZeroAttr(type)));
  }
  return a.with(tile::DotOp::create(a.b(), acc.type(), a, b, acc, options.transposeA, options.transposeB));
}

Var solve(Var a, Var b, bool transpose) { return a.with(tile::SolveOp::create(a.b(), b.type(), a, b, transpose)); }

Var cumsum(Var x, int64_t axis, bool reverse) {
  return x.with(tile::CumsumOp::create(x.b(), x.type(), x, axis, reverse));
}

static Var reduce(Var x, int64_t axis, tile::ReduceKind kind) {
  SmallVector<int64_t> shape(x.shape());
  shape.erase(shape.begin() + axis);
  Type type = shape.empty() ? x.element() : Type(VectorType::get(shape, x.element()));
  return x.with(tile::ReduceOp::create(x.b(), type, x, axis, kind));
}
Var sum(Var x, int64_t axis) { return reduce(x, axis, tile::ReduceKind::add); }
Var maximum(Var x, int64_t axis) { return reduce(x, axis, tile::ReduceKind::max); }
Var minimum(Var x, int64_t axis) { return reduce(x, axis, tile::ReduceKind::min); }

Var expand(Var x, int64_t axis, int64_t size) {
  if (!x.isTile())
    return splat(x, {size});
  SmallVector<int64_t> shape(x.shape());
  shape.insert(shape.begin() + axis, size);
  return x.with(tile::ExpandOp::create(x.b(), VectorType::get(shape, x.element()), x, axis));
}

Var transpose(Var x) {
  auto type = VectorType::get({x.dim(1), x.dim(0)}, x.element());
  return x.with(tile::TransposeOp::create(x.b(), type, x));
}

Var mask(Var x, tile::Keep keep) { return x.with(tile::MaskOp::create(x.b(), x.type(), x, keep)); }

Var diagonal(Var x) { return x.with(tile::DiagonalOp::create(x.b(), VectorType::get({x.dim(0)}, x.element()), x)); }

Var pick(Var x, Var columns) {
  return x.with(tile::PickOp::create(x.b(), VectorType::get({x.dim(0)}, x.element()), x, columns));
}

Var rows(Var x, Var offset, int64_t count) {
  SmallVector<int64_t> shape(x.shape());
  shape[0] = count;
  return x.with(tile::RowsOp::create(x.b(), VectorType::get(shape, x.element()), x, offset));
}

Var row(Var x, Var offset) {
  Shape shape = x.shape().drop_front();
  Type type = shape.empty() ? x.element() : Type(VectorType::get(shape, x.element()));
  return x.with(tile::RowsOp::create(x.b(), type, x, offset));
}

Var insertRows(Var value, Var target, Var offset) {
  return target.with(tile::InsertRowsOp::create(target.b(), target.type(), value, target, offset));
}

Var slice(Var x, int64_t offset, int64_t size) {
  SmallVector<int64_t> shape(x.shape());
  shape.back() = size;
  return x.with(tile::SliceOp::create(x.b(), VectorType::get(shape, x.element()), x, offset));
}

Var concat(ArrayRef<Var> xs) {
  SmallVector<int64_t> shape(xs.front().shape());
  shape.back() = 0;
  SmallVector<Value> sources;
  for (Var x : xs) {
    shape.back() += x.shape().back();
    sources.push_back(x);
  }
  Var x = xs.front();
  return x.with(tile::ConcatOp::create(x.b(), VectorType::get(shape, x.element()), sources));
}

Var reshape(Var x, Shape shape) {
  if (x.shape() == shape)
    return x;
  return x.with(vector::ShapeCastOp::create(x.b(), VectorType::get(shape, x.element()), x));
}

} // namespace braid
