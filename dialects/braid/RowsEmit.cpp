//===- RowsEmit.cpp - what every row-wise op computes, on tiles ---------------------------------------------------===//
// Token tiles are [R, features..]. Inputs are widened to the type of computation, the result is rounded once.
#include "dialects/braid/BraidDialect.h"
#include "dialects/braid/TileEmitter.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include <cmath>
#include <limits>

using namespace mlir;
using namespace braid;

using Results = SmallVectorImpl<Value>;

/// Rounds to the element type of the op's result.
static void finish(Operation *op, TileEmitter &e, Value tile, Results &results) {
  results.push_back(e.cast(tile, cast<RankedTensorType>(op->getResult(0).getType()).getElementType()));
}

/// The type to compute in: f64 when an operand or the result is f64, otherwise f32.
static SmallVector<Value> widened(Operation *op, TileEmitter &e, ValueRange operands) {
  auto isF64 = [](Type t) { return getElementTypeOrSelf(t).isF64(); };
  bool wide = llvm::any_of(op->getResultTypes(), isF64) || llvm::any_of(operands.getTypes(), isF64);
  Type element = wide ? Type(e.builder.getF64Type()) : Type(e.builder.getF32Type());
  return llvm::map_to_vector(operands, [&](Value v) {
    return isa<FloatType>(TileEmitter::type(v).getElementType()) ? e.cast(v, element) : v;
  });
}

/// `small` [R, a..] seen as `large` [R, a.., b..], or a whole [b..] as [R, a.., b..].
static Value alignLeading(TileEmitter &e, Value small, Value large) {
  for (size_t i = TileEmitter::shape(small).size(); i < TileEmitter::shape(large).size(); ++i)
    small = e.expandLast(small, TileEmitter::shape(large)[i]);
  return small;
}
static Value alignWhole(TileEmitter &e, Value whole, Value x) { return e.broadcastTo(whole, TileEmitter::type(x)); }
/// One number per head [H] seen as x [R, H, K]; else as alignWhole.
static Value alignHeads(TileEmitter &e, Value whole, Value x) {
  if (TileEmitter::shape(whole).size() == 1 && TileEmitter::shape(x).size() == 3)
    whole = e.expandLast(whole, TileEmitter::shape(x).back());
  return alignWhole(e, whole, x);
}

//===- Elementwise ------------------------------------------------------------------------------------------------===//

void AddOp::emitTile(TileEmitter &e, ValueRange operands, Results &results) {
  auto xs = widened(*this, e, operands);
  Value total = xs.front();
  for (Value x : llvm::drop_begin(xs))
    total = e.add(total, x);
  finish(*this, e, total, results);
}

void MulOp::emitTile(TileEmitter &e, ValueRange operands, Results &results) {
  auto xs = widened(*this, e, operands);
  finish(*this, e, e.mul(xs[0], alignLeading(e, xs[1], xs[0])), results);
}

void ScaleOp::emitTile(TileEmitter &e, ValueRange operands, Results &results) {
  Value x = widened(*this, e, operands)[0];
  finish(*this, e, e.mul(x, e.like(x, getValue().convertToDouble())), results);
}

void ClampOp::emitTile(TileEmitter &e, ValueRange operands, Results &results) {
  Value x = widened(*this, e, operands)[0];
  // Of equal operands the first of a maximum and the second of a minimum has the gradient (TileGradient).
  if (getLow())
    x = e.maximum(x, e.like(x, getLow()->convertToDouble()));
  if (getHigh())
    x = e.minimum(e.like(x, getHigh()->convertToDouble()), x);
  finish(*this, e, x, results);
}

void OffsetOp::emitTile(TileEmitter &e, ValueRange operands, Results &results) {
  Value x = widened(*this, e, operands)[0];
  finish(*this, e, e.add(x, e.like(x, getValue().convertToDouble())), results);
}

void BiasOp::emitTile(TileEmitter &e, ValueRange operands, Results &results) {
  auto xs = widened(*this, e, operands);
  finish(*this, e, e.add(xs[0], alignWhole(e, xs[1], xs[0])), results);
}

void WeightedOp::emitTile(TileEmitter &e, ValueRange operands, Results &results) {
  auto xs = widened(*this, e, operands);
  Value w = getPerHead() ? e.expandLast(xs[1], TileEmitter::shape(xs[0]).back()) : xs[1];
  finish(*this, e, e.mul(xs[0], alignWhole(e, w, xs[0])), results);
}

void ActivationOp::emitTile(TileEmitter &e, ValueRange operands, Results &results) {
  finish(*this, e, e.activation(widened(*this, e, operands)[0], getKind()), results);
}

void LogSigmoidOp::emitTile(TileEmitter &e, ValueRange operands, Results &results) {
  Value g = e.logSigmoid(widened(*this, e, operands)[0]);
  finish(*this, e, e.mul(g, e.like(g, 1.0 / getDivide().convertToDouble())), results);
}

void LogDecayOp::emitTile(TileEmitter &e, ValueRange operands, Results &results) {
  auto xs = widened(*this, e, operands);
  Value delta = e.softplus(e.add(xs[0], alignWhole(e, xs[2], xs[0])));
  finish(*this, e, e.neg(e.mul(alignHeads(e, e.exp(xs[1]), xs[0]), delta)), results);
}

// log(l + (1 - l) sigmoid(x)) = softplus(log l - x) - softplus(-x): for l = 0 the first term must vanish, and does.
void BoundedGateOp::emitTile(TileEmitter &e, ValueRange operands, Results &results) {
  auto xs = widened(*this, e, operands);
  Value least = alignHeads(e, e.log(e.maximum(xs[1], e.like(xs[1], 1e-30))), xs[0]), x = e.neg(xs[0]);
  finish(*this, e, e.sub(e.softplus(e.add(x, least)), e.softplus(x)), results);
}

void ElementDecayOp::emitTile(TileEmitter &e, ValueRange operands, Results &results) {
  auto xs = widened(*this, e, operands);
  Value x = e.expandAt(xs[0], 2, TileEmitter::shape(xs[1])[1]);
  finish(*this, e, e.neg(e.mul(x, alignWhole(e, e.exp(xs[1]), x))), results);
}

void InnerOp::emitTile(TileEmitter &e, ValueRange operands, Results &results) {
  auto xs = widened(*this, e, operands);
  finish(*this, e, e.sumLast(e.mul(xs[0], xs[1])), results);
}

void DotOp::emitTile(TileEmitter &e, ValueRange operands, Results &results) {
  auto xs = widened(*this, e, operands);
  finish(*this, e, e.sumLast(e.mul(xs[0], alignWhole(e, xs[1], xs[0]))), results);
}

//===- Feature maps -----------------------------------------------------------------------------------------------===//

void FeatureMapOp::emitTile(TileEmitter &e, ValueRange operands, Results &results) {
  Value x = widened(*this, e, operands)[0];
  int64_t d = TileEmitter::shape(x).back();
  double width = static_cast<double>(d);
  bool taylor = getKind() == "taylor";
  Value y = e.mul(x, e.like(x, std::pow(width, -0.25))); // y y^T = x x^T / sqrt d
  SmallVector<Value> features;
  if (taylor) {
    Value first = e.slice(x, 0, 1);
    features = {e.like(first, 1.0), y};
  }
  for (int64_t i = 0; i < d; ++i) {
    // x_i times all that follow; i < j stands for (i, j) and (j, i).
    Value rest = e.slice(y, i, d - i),
          own = e.expandLast(e.reshape(e.slice(y, i, 1), TileEmitter::shape(x).drop_back()), d - i);
    SmallVector<double> share(d - i, taylor ? 1.0 : std::sqrt(2.0));
    share[0] = taylor ? std::sqrt(0.5) : 1.0;
    auto type = VectorType::get({d - i}, TileEmitter::type(x).getElementType());
    SmallVector<Attribute> values;
    for (double s : share)
      values.push_back(e.builder.getFloatAttr(type.getElementType(), s));
    Value weights = arith::ConstantOp::create(e.builder, e.loc, type, DenseElementsAttr::get(type, values));
    features.push_back(e.mul(e.mul(rest, own), e.broadcastTo(weights, TileEmitter::type(rest))));
  }
  finish(*this, e, features.size() == 1 ? features.front() : e.concat(features), results);
}

void AppendOneOp::emitTile(TileEmitter &e, ValueRange operands, Results &results) {
  Value x = widened(*this, e, operands)[0];
  auto columns = [&](int64_t count, double value) {
    SmallVector<int64_t> shape(TileEmitter::shape(x));
    shape.back() = count;
    return e.splat(VectorType::get(shape, TileEmitter::type(x).getElementType()), value);
  };
  SmallVector<Value> all{x};
  if (int64_t zeros = getZeros())
    all.push_back(columns(zeros, 0.0));
  all.push_back(columns(1, 1.0));
  finish(*this, e, e.concat(all), results);
}

void DivideByLastOp::emitTile(TileEmitter &e, ValueRange operands, Results &results) {
  Value x = widened(*this, e, operands)[0];
  int64_t place = TileEmitter::shape(x).back() - 1, size = place - getZeros();
  Value last = e.reshape(e.slice(x, place, 1), TileEmitter::shape(x).drop_back());
  if (getLeast())
    last = e.maximum(e.maximum(last, e.neg(last)), e.like(last, getLeast()->convertToDouble()));
  Value sum = e.expandLast(e.add(last, e.like(last, getEps().convertToDouble())), size);
  finish(*this, e, e.div(e.slice(x, 0, size), sum), results);
}

void DropLastOp::emitTile(TileEmitter &e, ValueRange operands, Results &results) {
  Value x = widened(*this, e, operands)[0];
  finish(*this, e, e.slice(x, 0, TileEmitter::shape(x).back() - 1 - getZeros()), results);
}

void TakeLastOp::emitTile(TileEmitter &e, ValueRange operands, Results &results) {
  Value x = widened(*this, e, operands)[0], last = e.slice(x, TileEmitter::shape(x).back() - 1, 1);
  finish(*this, e, e.reshape(last, TileEmitter::shape(x).drop_back()), results);
}

void CastOp::emitTile(TileEmitter &e, ValueRange operands, Results &results) { finish(*this, e, operands[0], results); }

//===- Softmax and norms ------------------------------------------------------------------------------------------===//

/// exp(x - max) and its sum over the last dimension.
static std::pair<Value, Value> shiftedExp(TileEmitter &e, Value x, Value &shift) {
  // A row of -inf keeps a finite shift: exp(-inf - shift) is 0, never exp(NaN).
  Value top = e.maxLast(x);
  shift = e.maximum(top, e.like(top, -3.0e38));
  Value p = e.exp(e.sub(x, e.expandLast(shift, TileEmitter::shape(x).back())));
  return {p, e.sumLast(p)};
}
static Value softmax(TileEmitter &e, Value x) {
  Value shift;
  auto [p, total] = shiftedExp(e, x, shift);
  return e.div(p, e.expandLast(total, TileEmitter::shape(x).back()));
}

void SoftmaxOp::emitTile(TileEmitter &e, ValueRange operands, Results &results) {
  finish(*this, e, softmax(e, widened(*this, e, operands)[0]), results);
}

void LogSumExpOp::emitTile(TileEmitter &e, ValueRange operands, Results &results) {
  Value shift;
  auto [p, total] = shiftedExp(e, widened(*this, e, operands)[0], shift);
  finish(*this, e, e.add(shift, e.log(total)), results);
}

void TokenLossOp::emitTile(TileEmitter &e, ValueRange operands, Results &results) {
  auto xs = widened(*this, e, operands);
  Value counts = arith::CmpIOp::create(e.builder, e.loc, arith::CmpIPredicate::sge, xs[2], e.like(xs[2], 0));
  finish(*this, e, e.select(counts, e.sub(xs[0], xs[1]), e.like(xs[0], 0)), results);
}

void GreatestOp::emitTile(TileEmitter &e, ValueRange operands, Results &results) {
  finish(*this, e, e.maxLast(widened(*this, e, operands)[0]), results);
}

/// Nothing is greater than a NaN, and then no word is chosen but the last there could be.
void GreatestWordOp::emitTile(TileEmitter &e, ValueRange operands, Results &results) {
  Value x = widened(*this, e, operands)[0], words = operands[1];
  Value top = e.expandLast(e.maxLast(x), TileEmitter::shape(x).back());
  Value isTop = arith::CmpFOp::create(e.builder, e.loc, arith::CmpFPredicate::OEQ, x, top);
  results.push_back(e.minLast(e.select(isTop, words, e.like(words, std::numeric_limits<int32_t>::max()))));
}

/// x rsqrt(mean x^2 + eps) over groups of the last dimension.
static Value normalise(TileEmitter &e, Value x, double eps, int64_t groups) {
  SmallVector<int64_t> flat(TileEmitter::shape(x)), cut = flat;
  int64_t size = flat.back() / groups;
  if (groups > 1) {
    cut.back() = groups;
    cut.push_back(size);
  }
  x = e.reshape(x, cut);
  Value square = e.sumLast(e.mul(x, x));
  Value inverse = e.rsqrt(e.add(e.mul(square, e.like(square, 1.0 / size)), e.like(square, eps)));
  return e.reshape(e.mul(x, e.expandLast(inverse, size)), flat);
}

void RmsNormOp::emitTile(TileEmitter &e, ValueRange operands, Results &results) {
  auto xs = widened(*this, e, operands);
  Value y = normalise(e, xs[0], getEps().convertToDouble(), getGroups());
  finish(*this, e, e.mul(y, alignWhole(e, xs[1], y)), results);
}

void LayerNormOp::emitTile(TileEmitter &e, ValueRange operands, Results &results) {
  auto xs = widened(*this, e, operands);
  int64_t size = TileEmitter::shape(xs[0]).back();
  Value total = e.sumLast(xs[0]);
  Value mean = e.mul(total, e.like(total, 1.0 / size));
  Value y = normalise(e, e.sub(xs[0], e.expandLast(mean, size)), getEps().convertToDouble(), 1);
  y = e.mul(y, alignWhole(e, xs[1], y));
  finish(*this, e, getBias() ? e.add(y, alignWhole(e, xs[2], y)) : y, results);
}

void L2NormOp::emitTile(TileEmitter &e, ValueRange operands, Results &results) {
  Value x = widened(*this, e, operands)[0];
  Value square = e.sumLast(e.mul(x, x));
  Value inverse = e.rsqrt(e.add(square, e.like(square, getEps().convertToDouble())));
  finish(*this, e, e.mul(x, e.expandLast(inverse, TileEmitter::shape(x).back())), results);
}

void GatedNormOp::emitTile(TileEmitter &e, ValueRange operands, Results &results) {
  auto xs = widened(*this, e, operands);
  Value gate = e.activation(xs[1], getActivation());
  Value x = getNormFirst() ? xs[0] : e.mul(xs[0], gate);
  Value y = normalise(e, x, getEps().convertToDouble(), getGroups());
  y = e.mul(y, alignWhole(e, xs[2], y));
  finish(*this, e, getNormFirst() ? e.mul(y, gate) : y, results);
}

//===- Heads ------------------------------------------------------------------------------------------------------===//

/// The token's place in its document [R], i32, modulo `period` where one is given. Tokens outside of every document
/// (documents = INT32_MAX) stand at 0.
static Value positions(TileEmitter &e, Value documents, int64_t period = 0) {
  Value position = arith::SubIOp::create(e.builder, e.loc, e.tokenIndex, documents);
  position = arith::MaxSIOp::create(e.builder, e.loc, position, e.like(position, 0));
  return period ? Value(arith::RemSIOp::create(e.builder, e.loc, position, e.like(position, period))) : position;
}
/// An f64 angle less whole turns, in `element`: from -pi to pi.
static Value reducedAngle(TileEmitter &e, Value angle, Type element) {
  Value turns = math::FloorOp::create(e.builder, e.loc,
                                      e.add(e.mul(angle, e.like(angle, 0.15915494309189533577)), e.like(angle, 0.5)));
  return e.cast(e.sub(angle, e.mul(turns, e.like(turns, 6.2831853071795864769))), element);
}

double RopeOp::frequency(double theta, int64_t dim, int64_t i) { return std::pow(theta, -2.0 * i / dim); }

/// cos and sin [R, dim / 2] of the angles, times the op's scale. An angle is formed and reduced in f64: in f32 a position
/// of 10^4 would already cost three digits.
static std::pair<Value, Value> rotations(TileEmitter &e, Value position, RopeOp op, Type element) {
  int64_t dim = op.getDim();
  auto type = VectorType::get({e.rows, dim / 2}, e.builder.getF64Type());
  SmallVector<double> frequencies;
  for (int64_t i = 0; i < dim / 2; ++i)
    frequencies.push_back(RopeOp::frequency(op.getTheta().convertToDouble(), dim, i) *
                          (op.getFactors() ? (*op.getFactors())[i] : 1.0));
  auto rowType = VectorType::get({dim / 2}, e.builder.getF64Type());
  Value frequency = arith::ConstantOp::create(e.builder, e.loc, rowType,
                                              DenseElementsAttr::get(rowType, ArrayRef<double>(frequencies)));
  Value angle = e.mul(e.expandLast(e.cast(position, e.builder.getF64Type()), dim / 2), e.broadcastTo(frequency, type));
  angle = reducedAngle(e, angle, element);
  Value cosine = math::CosOp::create(e.builder, e.loc, angle), sine = math::SinOp::create(e.builder, e.loc, angle);
  if (op.getScale()) {
    Value scale = e.like(cosine, op.getScale()->convertToDouble());
    cosine = e.mul(cosine, scale), sine = e.mul(sine, scale);
  }
  return {cosine, sine};
}

void RopeOp::emitTile(TileEmitter &e, ValueRange operands, Results &results) {
  Value x = widened(*this, e, operands)[0];
  int64_t dim = getDim(), half = dim / 2, size = TileEmitter::shape(x).back();
  auto [cosine, sine] =
      rotations(e, positions(e, operands[1], getPeriod().value_or(0)), *this, TileEmitter::type(x).getElementType());
  bool interleaved = getLayout() == "interleaved";
  Value turned = dim < size ? e.slice(x, 0, dim) : x;
  SmallVector<int64_t> whole(TileEmitter::shape(turned)), pairs = whole, part = whole;
  part.back() = half;
  Value a, b;
  if (interleaved) {
    pairs.back() = half;
    pairs.push_back(2);
    Value cut = e.reshape(turned, pairs);
    a = e.reshape(e.slice(cut, 0, 1), part);
    b = e.reshape(e.slice(cut, 1, 1), part);
  } else {
    a = e.slice(turned, 0, half);
    b = e.slice(turned, half, half);
  }
  for (size_t axis = 1; axis + 1 < part.size(); ++axis) {
    cosine = e.expandAt(cosine, axis, part[axis]);
    sine = e.expandAt(sine, axis, part[axis]);
  }
  Value first = e.sub(e.mul(a, cosine), e.mul(b, sine)), second = e.add(e.mul(b, cosine), e.mul(a, sine));
  if (interleaved) {
    SmallVector<int64_t> column(part);
    column.push_back(1);
    turned = e.reshape(e.concat({e.reshape(first, column), e.reshape(second, column)}), whole);
  } else {
    turned = e.concat({first, second});
  }
  finish(*this, e, dim < size ? e.concat({turned, e.slice(x, dim, size - dim)}) : turned, results);
}

void PositionRateOp::emitTile(TileEmitter &e, ValueRange operands, Results &results) {
  Value weight = widened(*this, e, operands)[1];
  int64_t n = TileEmitter::shape(weight)[0], heads = cast<RankedTensorType>(getResult().getType()).getDimSize(2);
  Value position = positions(e, operands[0], n);
  auto table = VectorType::get({e.rows, n}, TileEmitter::type(weight).getElementType());
  Value column = tile::IotaOp::create(e.builder, e.loc, VectorType::get({e.rows, n}, e.builder.getI32Type()), 1);
  Value here = arith::CmpIOp::create(e.builder, e.loc, arith::CmpIPredicate::eq, column, e.expandLast(position, n));
  Value all = e.broadcastTo(weight, table), own = e.sumLast(e.select(here, all, e.like(all, 0)));
  Value count = e.cast(position, table.getElementType());
  Value rate = e.add(e.div(e.like(count, 1), e.add(count, e.like(count, 1))), own);
  finish(*this, e, e.expandLast(e.maximum(rate, e.like(rate, 0)), heads), results);
}

void PositionAngleOp::emitTile(TileEmitter &e, ValueRange operands, Results &results) {
  Type element = TileEmitter::type(widened(*this, e, operands)[1]).getElementType(), wide = e.builder.getF64Type();
  Value phase = e.cast(operands[1], wide), position = e.cast(positions(e, operands[0]), wide);
  for (int64_t size : TileEmitter::shape(phase))
    position = e.expandLast(position, size);
  Value angle = e.mul(position, e.broadcastTo(phase, TileEmitter::type(position)));
  finish(*this, e, reducedAngle(e, angle, element), results);
}

void EveryTokenOp::emitTile(TileEmitter &e, ValueRange operands, Results &results) {
  Value value = widened(*this, e, operands)[1];
  SmallVector<int64_t> all{e.rows};
  llvm::append_range(all, TileEmitter::shape(value));
  finish(*this, e, e.broadcastTo(value, VectorType::get(all, TileEmitter::type(value).getElementType())), results);
}

void RepeatHeadsOp::emitTile(TileEmitter &e, ValueRange operands, Results &results) {
  Value x = operands[0];
  auto resultShape = cast<RankedTensorType>(getResult().getType()).getShape();
  SmallVector<int64_t> wanted(TileEmitter::shape(x));
  int64_t groups = wanted[1], heads = resultShape[2];
  wanted[1] = heads;
  finish(*this, e, e.reshape(e.expandAt(x, 2, heads / groups), wanted), results);
}

//===- Routing ----------------------------------------------------------------------------------------------------===//

static Value expertIndex(TileEmitter &e, int64_t rows, int64_t experts) {
  auto type = VectorType::get({rows, experts}, e.builder.getI32Type());
  return tile::IotaOp::create(e.builder, e.loc, type, 1);
}
static Value equal(TileEmitter &e, Value a, Value b) {
  return arith::CmpIOp::create(e.builder, e.loc, arith::CmpIPredicate::eq, a, b);
}

/// Choices that are written one after the other; more become a loop, so that the kernel's size does not grow with k.
static constexpr int64_t kUnrolledChoices = 8;

static Value lowest(TileEmitter &e, Value like) { return e.like(like, -std::numeric_limits<double>::infinity()); }

/// The sum [R, G] of the `count` largest keys of each group of neighbouring experts.
static Value groupScores(TileEmitter &e, Value keys, int64_t groups, int64_t count) {
  int64_t rows = TileEmitter::shape(keys)[0], size = TileEmitter::shape(keys)[1] / groups;
  Value left = e.reshape(keys, {rows, groups, size}), sum;
  auto type = VectorType::get({rows, groups, size}, e.builder.getI32Type());
  Value index = tile::IotaOp::create(e.builder, e.loc, type, 2);
  for (int64_t i = 0; i < count; ++i) {
    Value top = e.maxLast(left);
    sum = sum ? e.add(sum, top) : top;
    if (i + 1 == count)
      break;
    Value isTop = arith::CmpFOp::create(e.builder, e.loc, arith::CmpFPredicate::OEQ, left, e.expandLast(top, size));
    Value first = e.minLast(e.select(isTop, index, e.like(index, size)));
    left = e.select(equal(e, index, e.expandLast(first, size)), lowest(e, left), left);
  }
  return sum;
}

/// Whether an expert's group is one of the `kept` ones with the largest scores, of equal ones the first: [R, E].
static Value inKeptGroups(TileEmitter &e, Value scores, int64_t kept, int64_t experts) {
  int64_t rows = TileEmitter::shape(scores)[0], groups = TileEmitter::shape(scores)[1];
  // [R, G, G]: what stands before a group is larger, or equal and of lower index.
  Value own = e.expandLast(scores, groups), other = e.expandAt(scores, 1, groups);
  auto type = VectorType::get({rows, groups, groups}, e.builder.getI32Type());
  Value number = tile::IotaOp::create(e.builder, e.loc, type, 1),
        place = tile::IotaOp::create(e.builder, e.loc, type, 2);
  auto compare = [&](arith::CmpFPredicate predicate, Value a, Value b) -> Value {
    return arith::CmpFOp::create(e.builder, e.loc, predicate, a, b);
  };
  Value one = e.like(own, 1), none = e.like(own, 0);
  Value lower = arith::CmpIOp::create(e.builder, e.loc, arith::CmpIPredicate::slt, place, number);
  Value ties = e.select(compare(arith::CmpFPredicate::OEQ, other, own), e.select(lower, one, none), none);
  Value before = e.sumLast(e.select(compare(arith::CmpFPredicate::OGT, other, own), one, ties));
  Value ofExpert = e.reshape(e.expandLast(before, experts / groups), {rows, experts});
  return compare(arith::CmpFPredicate::OLT, ofExpert, e.like(ofExpert, static_cast<double>(kept)));
}

namespace {
/// The keys that are left to choose from. A NaN has the key -inf and an index behind all others, what is not eligible
/// likewise further behind, and a chosen expert behind all (moe-family 1.3: eligible, then NaN, then masked).
struct RouteChoice {
  RouteChoice(TileEmitter &e, Value keys)
      : e(e), experts(TileEmitter::shape(keys)[1]), index(expertIndex(e, TileEmitter::shape(keys)[0], experts)) {
    Value isNan = arith::CmpFOp::create(e.builder, e.loc, arith::CmpFPredicate::UNO, keys, keys);
    order = e.select(isNan, e.add(index, e.like(index, experts)), index);
    key = e.select(isNan, lowest(e, keys), keys);
  }
  void keepGroups(int64_t groups, int64_t kept, int64_t top) {
    Value eligible = inKeptGroups(e, groupScores(e, key, groups, top), kept, experts);
    key = e.select(eligible, key, lowest(e, key));
    order = e.select(eligible, order, e.add(index, e.like(index, 2 * experts)));
  }
  /// The largest key, of equal keys the lowest index: its expert, [R]. It is not chosen again.
  Value next() {
    Value top = e.expandLast(e.maxLast(key), experts), never = e.like(index, 4 * experts);
    Value isTop = arith::CmpFOp::create(e.builder, e.loc, arith::CmpFPredicate::OEQ, key, top);
    Value chosen = e.minLast(e.select(isTop, order, never));
    Value expert = arith::RemSIOp::create(e.builder, e.loc, chosen, e.like(chosen, experts));
    Value taken = equal(e, index, e.expandLast(expert, experts));
    key = e.select(taken, lowest(e, key), key);
    order = e.select(taken, never, order);
    return expert;
  }

  TileEmitter &e;
  int64_t experts;
  Value index, order, key;
};
} // namespace

void MoeRouteOp::emitTile(TileEmitter &e, ValueRange operands, Results &results) {
  RouteChoice choice(e, operands[0]);
  if (getGroups() > 1 && getKeptGroups() < getGroups())
    choice.keepGroups(getGroups(), getKeptGroups(), getGroupTop());
  int64_t rows = TileEmitter::shape(operands[0])[0], k = getTopK();
  if (k <= kUnrolledChoices) {
    SmallVector<Value> columns;
    for (int64_t j = 0; j < k; ++j)
      columns.push_back(e.reshape(choice.next(), {rows, 1}));
    results.push_back(columns.size() == 1 ? columns.front() : e.concat(columns));
    return;
  }
  auto type = VectorType::get({rows, k}, e.builder.getI32Type());
  auto number = [&](int64_t value) { return arith::ConstantIndexOp::create(e.builder, e.loc, value).getResult(); };
  Value slot = tile::IotaOp::create(e.builder, e.loc, type, 1);
  auto loop = scf::ForOp::create(e.builder, e.loc, number(0), number(k), number(1),
                                 ValueRange{choice.key, choice.order, e.splat(type, 0)});
  {
    OpBuilder::InsertionGuard guard(e.builder);
    e.builder.setInsertionPointToEnd(loop.getBody());
    choice.key = loop.getRegionIterArg(0);
    choice.order = loop.getRegionIterArg(1);
    Value j = arith::IndexCastOp::create(e.builder, e.loc, e.builder.getI32Type(), loop.getInductionVar());
    Value here = equal(e, slot, vector::BroadcastOp::create(e.builder, e.loc, type, j));
    Value ids = e.select(here, e.expandLast(choice.next(), k), loop.getRegionIterArg(2));
    scf::YieldOp::create(e.builder, e.loc, ValueRange{choice.key, choice.order, ids});
  }
  results.push_back(loop.getResult(2));
}

/// Scores divided by their sum, which may be 0 where all sigmoids underflow: then 0 (moe-family 13).
static Value shares(TileEmitter &e, Value scores) {
  Value sum = e.sumLast(scores);
  return e.div(scores, e.expandLast(e.add(sum, e.like(sum, 1e-20)), TileEmitter::shape(scores).back()));
}

void MoeRouteWeightsOp::emitTile(TileEmitter &e, ValueRange operands, Results &results) {
  Value logits = widened(*this, e, operands)[0], ids = operands[1];
  int64_t rows = TileEmitter::shape(logits)[0], experts = TileEmitter::shape(logits)[1], k = TileEmitter::shape(ids)[1];
  // [R, k, E]: one logit per choice, the others 0. Sums over it are exact in any order.
  Value all = e.expandAt(logits, 1, k);
  auto index = VectorType::get({rows, k, experts}, e.builder.getI32Type());
  Value isIt = equal(e, tile::IotaOp::create(e.builder, e.loc, index, 2), e.expandLast(ids, experts));
  Value chosen = e.sumLast(e.select(isIt, all, e.like(all, 0)));
  if (getScore() == "sigmoid") {
    Value scores = e.activation(chosen, "sigmoid");
    return finish(*this, e, getNormalize() ? shares(e, scores) : scores, results);
  }
  if (getNormalize())
    return finish(*this, e, softmax(e, chosen), results); // = softmax over all / their sum (moe-family 2.1)
  Value shift;
  auto [p, total] = shiftedExp(e, logits, shift);
  Value weights = e.div(e.exp(e.sub(chosen, e.expandLast(shift, k))), e.expandLast(total, k));
  finish(*this, e, weights, results);
}

void MoeRenormalizeOp::emitTile(TileEmitter &e, ValueRange operands, Results &results) {
  Value weights = widened(*this, e, operands)[0], kept = operands[1];
  int64_t k = TileEmitter::shape(weights)[1];
  Value isKept = arith::CmpIOp::create(e.builder, e.loc, arith::CmpIPredicate::sge, kept, e.like(kept, 0));
  Value left = e.select(isKept, weights, e.like(weights, 0));
  Value sum = e.sumLast(left), some = e.positive(sum), one = e.like(sum, 1);
  // Where all are kept the factor is 1, and no weight changes.
  Value factor = e.select(some, e.div(e.sumLast(weights), e.select(some, sum, one)), e.like(sum, 0));
  finish(*this, e, e.mul(left, e.expandLast(factor, k)), results);
}

void MoeRouterLossOp::emitTile(TileEmitter &e, ValueRange operands, Results &results) {
  Value logits = widened(*this, e, operands)[0];
  Type element = TileEmitter::type(logits).getElementType();
  int64_t experts = TileEmitter::shape(logits)[1];
  double k = getTopK();
  Value shift;
  auto [p, total] = shiftedExp(e, logits, shift);
  Value counts = e.broadcastTo(e.cast(operands[1], element), TileEmitter::type(logits));
  Value balance = getScore() == "sigmoid" ? e.sumLast(e.mul(shares(e, e.activation(logits, "sigmoid")), counts))
                                          : e.div(e.sumLast(e.mul(p, counts)), total);
  Value lse = e.add(shift, e.log(total));
  // N = tokens that are routed; without one every share is 0 and only the division must not fail.
  Value tokens = e.sumLast(e.mul(counts, e.like(counts, 1 / k)));
  tokens = e.maximum(tokens, e.like(tokens, 1));
  balance = e.div(e.mul(balance, e.like(balance, getBalance().convertToDouble() * experts / k)), e.mul(tokens, tokens));
  Value z = e.div(e.mul(e.mul(lse, lse), e.like(lse, getZ().convertToDouble())), tokens);
  Value padding = equal(e, operands[2], e.like(operands[2], INT32_MAX));
  finish(*this, e, e.select(padding, e.like(z, 0), e.add(balance, z)), results);
}

void MoeCorrectOp::emitTile(TileEmitter &e, ValueRange operands, Results &results) {
  auto xs = widened(*this, e, operands);
  int64_t experts = TileEmitter::shape(xs[0]).back();
  // Loads are whole numbers: E load against their sum, so that the mean is not rounded (exact below 2^24 / E).
  Value total = e.expandLast(e.sumLast(xs[1]), experts), own = e.mul(xs[1], e.like(xs[1], experts));
  auto step = [&](arith::CmpFPredicate predicate, double by) {
    Value is = arith::CmpFOp::create(e.builder, e.loc, predicate, own, total);
    return e.select(is, e.like(own, by), e.like(own, 0));
  };
  double rate = getRate().convertToDouble();
  Value change = e.add(step(arith::CmpFPredicate::OLT, rate), step(arith::CmpFPredicate::OGT, -rate));
  finish(*this, e, e.add(xs[0], change), results);
}
