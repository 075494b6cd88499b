//===- TileGradient.cpp - one rule per operation ------------------------------------------------------------------===//
#include "passes/autodiff/TileGradient.h"
#include "dialects/tile/TileDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;

namespace braid {
namespace {

/// The cotangents found so far, and the arithmetic to extend them.
class Reverse {
public:
  Reverse(OpBuilder &b, Location loc, ValueRange inputs) : b(b), loc(loc) {
    active.insert(inputs.begin(), inputs.end());
  }

  void markActive(Operation *op) {
    if (llvm::any_of(op->getOperands(), [&](Value v) { return active.contains(v); }))
      for (Value result : op->getResults())
        if (isa<FloatType>(getElementTypeOrSelf(result.getType())))
          active.insert(result);
  }
  Value cotangent(Value v) { return cotangents.lookup(v); }
  void add(Value v, Value d) {
    if (!active.contains(v))
      return;
    Value &sum = cotangents[v];
    sum = sum ? Value(arith::AddFOp::create(b, loc, sum, d)) : d;
  }
  LogicalResult apply(Operation *op);

private:
  Value constant(Type type, double value) {
    if (auto vector = dyn_cast<VectorType>(type))
      return arith::ConstantOp::create(
          b, loc, vector, DenseElementsAttr::get(vector, Attribute(b.getFloatAttr(vector.getElementType(), value))));
    return arith::ConstantOp::create(b, loc, b.getFloatAttr(type, value));
  }
  Value like(Value v, double value) { return constant(v.getType(), value); }
  Value mul(Value x, Value y) { return arith::MulFOp::create(b, loc, x, y); }
  Value mul(Value x, double y) { return mul(x, like(x, y)); }
  Value sub(Value x, Value y) { return arith::SubFOp::create(b, loc, x, y); }
  Value div(Value x, Value y) { return arith::DivFOp::create(b, loc, x, y); }
  Value neg(Value x) { return arith::NegFOp::create(b, loc, x); }
  Value where(Value condition, Value x, Value y) { return arith::SelectOp::create(b, loc, condition, x, y); }
  Value compare(arith::CmpFPredicate p, Value x, Value y) { return arith::CmpFOp::create(b, loc, p, x, y); }
  Value exp(Value x) { return math::ExpOp::create(b, loc, x); }
  Value sum(Value x, int64_t axis);
  Value convert(Value d, Type type);
  void binary(Operation *op, Value d);
  bool unary(Operation *op, Value d);
  bool shaping(Operation *op, Value d);

  OpBuilder &b;
  Location loc;
  llvm::DenseSet<Value> active; ///< floats that depend on an input
  llvm::DenseMap<Value, Value> cotangents;
};

Value Reverse::sum(Value x, int64_t axis) {
  auto type = cast<VectorType>(x.getType());
  SmallVector<int64_t> shape(type.getShape());
  shape.erase(shape.begin() + axis);
  Type result = shape.empty() ? type.getElementType() : Type(VectorType::get(shape, type.getElementType()));
  return tile::ReduceOp::create(b, loc, result, x, axis, tile::ReduceKind::add);
}

Value Reverse::convert(Value d, Type type) {
  unsigned from = getElementTypeOrSelf(d.getType()).getIntOrFloatBitWidth(),
           to = getElementTypeOrSelf(type).getIntOrFloatBitWidth();
  if (d.getType() == type)
    return d;
  return from < to ? Value(arith::ExtFOp::create(b, loc, type, d)) : Value(arith::TruncFOp::create(b, loc, type, d));
}

void Reverse::binary(Operation *op, Value d) {
  Value x = op->getOperand(0), y = op->getOperand(1), result = op->getResult(0);
  bool dx = active.contains(x), dy = active.contains(y);
  TypeSwitch<Operation *>(op)
      .Case([&](arith::AddFOp) {
        add(x, d);
        add(y, d);
      })
      .Case([&](arith::SubFOp) {
        add(x, d);
        if (dy)
          add(y, neg(d));
      })
      .Case([&](arith::MulFOp) {
        if (dx)
          add(x, mul(d, y));
        if (dy)
          add(y, mul(d, x));
      })
      .Case([&](arith::DivFOp) {
        Value part = div(d, y);
        add(x, part);
        if (dy)
          add(y, neg(mul(part, result)));
      })
      // Equal operands: the maximum gives the gradient to its first, the minimum to its second (TileEmitter.h).
      .Case([&](arith::MaximumFOp) {
        Value first = compare(arith::CmpFPredicate::OGE, x, y), zero = like(d, 0);
        if (dx)
          add(x, where(first, d, zero));
        if (dy)
          add(y, where(first, zero, d));
      })
      .Case([&](arith::MinimumFOp) {
        Value first = compare(arith::CmpFPredicate::OLT, x, y), zero = like(d, 0);
        if (dx)
          add(x, where(first, d, zero));
        if (dy)
          add(y, where(first, zero, d));
      });
}

bool Reverse::unary(Operation *op, Value d) {
  Value x = op->getOperand(0), y = op->getResult(0);
  Value dx =
      TypeSwitch<Operation *, Value>(op)
          .Case([&](arith::NegFOp) { return neg(d); })
          .Case<arith::ExtFOp, arith::TruncFOp>([&](auto) { return convert(d, x.getType()); })
          .Case([&](math::ExpOp) { return mul(d, y); })
          .Case([&](math::LogOp) { return div(d, x); })
          .Case([&](math::Log1pOp) { return div(d, Value(arith::AddFOp::create(b, loc, x, like(x, 1)))); })
          .Case([&](math::SqrtOp) { return div(mul(d, 0.5), y); })
          .Case([&](math::RsqrtOp) { return mul(mul(mul(d, -0.5), mul(y, y)), y); })
          .Case([&](math::TanhOp) { return mul(d, sub(like(y, 1), mul(y, y))); })
          .Case([&](math::ErfOp) { return mul(mul(d, 1.1283791670955125739), exp(neg(mul(x, x)))); })
          .Case([&](math::SinOp) { return mul(d, Value(math::CosOp::create(b, loc, x))); })
          .Case([&](math::CosOp) { return neg(mul(d, Value(math::SinOp::create(b, loc, x)))); })
          .Case([&](math::FloorOp) { return like(d, 0); })
          .Case([&](math::AbsFOp) { return where(compare(arith::CmpFPredicate::OGE, x, like(x, 0)), d, neg(d)); })
          .Default([](Operation *) { return Value(); });
  if (dx)
    add(x, dx);
  return static_cast<bool>(dx);
}

bool Reverse::shaping(Operation *op, Value d) {
  if (auto select = dyn_cast<arith::SelectOp>(op)) {
    Value zero = like(d, 0);
    if (active.contains(select.getTrueValue()))
      add(select.getTrueValue(), where(select.getCondition(), d, zero));
    if (active.contains(select.getFalseValue()))
      add(select.getFalseValue(), where(select.getCondition(), zero, d));
    return true;
  }
  if (auto concat = dyn_cast<tile::ConcatOp>(op)) {
    int64_t offset = 0;
    for (Value source : concat.getSources()) {
      int64_t size = cast<VectorType>(source.getType()).getShape().back();
      if (active.contains(source))
        add(source, tile::SliceOp::create(b, loc, source.getType(), d, offset));
      offset += size;
    }
    return true;
  }
  Value x = op->getOperand(0);
  auto from = dyn_cast<VectorType>(x.getType());
  auto to = dyn_cast<VectorType>(op->getResult(0).getType());
  Value dx;
  if (auto reduce = dyn_cast<tile::ReduceOp>(op)) {
    if (reduce.getKind() != tile::ReduceKind::add)
      return true;
    dx = to ? Value(tile::ExpandOp::create(b, loc, from, d, reduce.getAxis()))
            : Value(vector::BroadcastOp::create(b, loc, from, d));
  } else if (auto expand = dyn_cast<tile::ExpandOp>(op)) {
    dx = sum(d, expand.getAxis());
  } else if (auto cumsum = dyn_cast<tile::CumsumOp>(op)) {
    dx = tile::CumsumOp::create(b, loc, d.getType(), d, cumsum.getAxis(), !cumsum.getReverse());
  } else if (isa<vector::ShapeCastOp>(op)) {
    dx = vector::ShapeCastOp::create(b, loc, from, d);
  } else if (auto slice = dyn_cast<tile::SliceOp>(op)) {
    SmallVector<Value> parts;
    auto pad = [&](int64_t columns) {
      SmallVector<int64_t> shape(from.getShape());
      shape.back() = columns;
      if (columns > 0)
        parts.push_back(constant(VectorType::get(shape, from.getElementType()), 0));
    };
    pad(slice.getOffset());
    parts.push_back(d);
    pad(from.getShape().back() - static_cast<int64_t>(slice.getOffset()) - to.getShape().back());
    dx = parts.size() == 1 ? d : Value(tile::ConcatOp::create(b, loc, from, parts));
  } else if (isa<vector::BroadcastOp>(op)) {
    // Trailing dimensions agree or were 1: leading ones are summed away, stretched ones to length 1.
    int64_t extra = to.getRank() - (from ? from.getRank() : 0);
    dx = d;
    for (int64_t i = 0; i < extra; ++i)
      dx = sum(dx, 0);
    for (int64_t i = 0; from && i < from.getRank(); ++i)
      if (from.getDimSize(i) == 1 && to.getDimSize(i + extra) != 1) {
        Value reduced = sum(dx, i);
        SmallVector<int64_t> shape(cast<VectorType>(dx.getType()).getShape());
        shape[i] = 1;
        dx = vector::ShapeCastOp::create(b, loc, VectorType::get(shape, from.getElementType()), reduced);
      }
  } else {
    return false;
  }
  add(x, dx);
  return true;
}

LogicalResult Reverse::apply(Operation *op) {
  if (op->getNumResults() != 1)
    return success();
  Value d = cotangent(op->getResult(0));
  if (!d || !llvm::any_of(op->getOperands(), [&](Value v) { return active.contains(v); }))
    return success();
  if (isa<arith::AddFOp, arith::SubFOp, arith::MulFOp, arith::DivFOp, arith::MaximumFOp, arith::MinimumFOp>(op)) {
    binary(op, d);
    return success();
  }
  if (shaping(op, d) || unary(op, d))
    return success();
  return emitError(loc) << "'" << op->getName() << "' has no gradient rule on tiles";
}

} // namespace

FailureOr<SmallVector<Value>> emitTileGradient(OpBuilder &builder, Location loc, ArrayRef<Operation *> emitted,
                                               ValueRange outputs, ValueRange cotangents, ValueRange inputs) {
  Reverse reverse(builder, loc, inputs);
  for (Operation *op : emitted)
    reverse.markActive(op);
  for (auto [output, cotangent] : llvm::zip_equal(outputs, cotangents))
    reverse.add(output, cotangent);
  for (Operation *op : llvm::reverse(emitted))
    if (failed(reverse.apply(op)))
      return failure();
  return llvm::map_to_vector(inputs, [&](Value input) { return reverse.cotangent(input); });
}

} // namespace braid
