//===- ExpandMath.cpp - f32 elementary functions as polynomials on vectors ----------------------------------------===//
// Coefficients are those of the Cephes library (single precision), but for exp, whose polynomial is one degree shorter.
// Reductions use fused multiply-add, so the low parts of the constants are exact where it matters.
#include "passes/Passes.h"
#include "passes/lower/LowerKernels.h"

#include "mlir/Dialect/Math/Transforms/Passes.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"

using namespace mlir;
using namespace braid;

namespace braid {
#define GEN_PASS_DEF_EXPANDMATHPASS
#include "passes/Passes.h.inc"
} // namespace braid

namespace {

constexpr float kLog2e = 1.44269504088896341f;
constexpr float kLn2 = 0.693147180559945f;
constexpr float kLn2High = 0.693359375f, kLn2Low = -2.12194440e-4f; // their sum is ln 2; n * high is exact
constexpr float kMagic = 12582912.0f; // 1.5 * 2^23: adding it rounds to an integer

/// Emits f32 arithmetic on one shape: a scalar or a 1-D vector.
class Emitter {
public:
  Emitter(OpBuilder &b, Location loc, Type type, bool hasScale) : b(b), loc(loc), type(type), hasScale(hasScale) {}

  Value f(float value) { return constant(type, b.getF32FloatAttr(value)); }
  Value i(int32_t value) { return constant(intType(), b.getI32IntegerAttr(value)); }
  Value add(Value x, Value y) { return arith::AddFOp::create(b, loc, x, y); }
  Value sub(Value x, Value y) { return arith::SubFOp::create(b, loc, x, y); }
  Value mul(Value x, Value y) { return arith::MulFOp::create(b, loc, x, y); }
  Value div(Value x, Value y) { return arith::DivFOp::create(b, loc, x, y); }
  Value fma(Value x, Value y, Value z) { return math::FmaOp::create(b, loc, x, y, z); }
  Value abs(Value x) { return math::AbsFOp::create(b, loc, x); }
  Value cmp(arith::CmpFPredicate p, Value x, Value y) { return arith::CmpFOp::create(b, loc, p, x, y); }
  Value select(Value c, Value x, Value y) { return arith::SelectOp::create(b, loc, c, x, y); }
  Value bits(Value x) { return arith::BitcastOp::create(b, loc, intType(), x); }
  Value number(Value x) { return arith::BitcastOp::create(b, loc, type, x); }
  Value addI(Value x, Value y) { return arith::AddIOp::create(b, loc, x, y); }
  Value subI(Value x, Value y) { return arith::SubIOp::create(b, loc, x, y); }
  Value andI(Value x, Value y) { return arith::AndIOp::create(b, loc, x, y); }
  Value xorI(Value x, Value y) { return arith::XOrIOp::create(b, loc, x, y); }
  Value shl(Value x, int32_t n) { return arith::ShLIOp::create(b, loc, x, i(n)); }
  Value shr(Value x, int32_t n) { return arith::ShRSIOp::create(b, loc, x, i(n)); }
  Value toFloat(Value x) { return arith::SIToFPOp::create(b, loc, type, x); }
  Value copySign(Value magnitude, Value sign) { return math::CopySignOp::create(b, loc, magnitude, sign); }
  /// min/max that let NaN through.
  Value atLeast(Value x, float low) { return select(cmp(arith::CmpFPredicate::OLT, x, f(low)), f(low), x); }
  Value atMost(Value x, float high) { return select(cmp(arith::CmpFPredicate::OGT, x, f(high)), f(high), x); }
  Value poly(Value x, ArrayRef<float> coefficients) { // highest degree first
    Value sum = f(coefficients.front());
    for (float c : coefficients.drop_front())
      sum = fma(sum, x, f(c));
    return sum;
  }

  /// x / ln 2, rounded.
  Value nearestPower(Value x) { return sub(fma(x, f(kLog2e), f(kMagic)), f(kMagic)); }
  /// x = n ln 2 + r: n as float and r, |r| <= ln 2 / 2.
  std::pair<Value, Value> reduce(Value x) {
    Value n = nearestPower(x);
    Value r = fma(n, f(-kLn2High), x);
    return {n, fma(n, f(-kLn2Low), r)};
  }
  /// e^r - 1 - r over r^2.
  Value expTail(Value r) {
    return poly(r, {1.9875691500e-4f, 1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f, 1.6666665459e-1f,
                    5.0000001201e-1f});
  }
  /// e^r for |r| <= ln 2 / 2, to 3e-9 of itself before rounding: 1 + r + r^2 q(r), q minimax.
  Value expReduced(Value r) {
    return poly(
        r, {1.3814540580e-03f, 8.3687454462e-03f, 4.1668388993e-02f, 1.6666521132e-01f, 4.9999994040e-01f, 1.0f, 1.0f});
  }
  Value powerOfTwo(Value n) { return number(shl(addI(n, i(127)), 23)); }
  /// x 2^n for integral n in [-152, 130], rounded once.
  Value scale(Value x, Value n) {
    auto vector = dyn_cast<VectorType>(type);
    if (hasScale && vector && (vector.getDimSize(0) == 16 || vector.getDimSize(0) == 8 || vector.getDimSize(0) == 4)) {
      int64_t width = vector.getDimSize(0);
      Type maskType = b.getIntegerType(width == 16 ? 16 : 8);
      SmallVector<Value> operands{x, n, x, arith::ConstantOp::create(b, loc, b.getIntegerAttr(maskType, -1))};
      if (width == 16) // 4: the rounding mode in force
        operands.push_back(LLVM::ConstantOp::create(b, loc, b.getI32Type(), b.getI32IntegerAttr(4)));
      std::string name = "llvm.x86.avx512.mask.scalef.ps." + std::to_string(width * 32);
      return LLVM::CallIntrinsicOp::create(b, loc, type, b.getStringAttr(name), operands).getResults();
    }
    Value whole = subI(bits(add(n, f(kMagic))), i(0x4b400000)), half = shr(whole, 1);
    return mul(mul(x, powerOfTwo(half)), powerOfTwo(subI(whole, half)));
  }

  /// The number that a constant is everywhere.
  static std::optional<double> splatOf(Value x) {
    Attribute value;
    if (!matchPattern(x, m_Constant(&value)))
      return std::nullopt;
    if (auto all = dyn_cast<DenseElementsAttr>(value); all && all.isSplat())
      value = all.getSplatValue<Attribute>();
    auto one = dyn_cast<FloatAttr>(value);
    return one ? std::optional(one.getValueAsDouble()) : std::nullopt;
  }
  /// c of x = y > c ? c : y.
  static std::optional<double> upperBound(Value x) {
    auto select = x.getDefiningOp<arith::SelectOp>();
    auto compared = select ? select.getCondition().getDefiningOp<arith::CmpFOp>() : arith::CmpFOp();
    if (!compared)
      return std::nullopt;
    Value y = compared.getLhs(), c = compared.getRhs();
    if (compared.getPredicate() == arith::CmpFPredicate::OLT)
      std::swap(y, c);
    else if (compared.getPredicate() != arith::CmpFPredicate::OGT)
      return std::nullopt;
    std::optional<double> bound = splatOf(c);
    return y == select.getFalseValue() && bound == splatOf(select.getTrueValue()) ? bound : std::nullopt;
  }
  Value exp(Value x) {
    constexpr double most = 90;
    double bound = upperBound(x).value_or(most + 1);
    x = atLeast(x, -105.0f);
    if (bound <= 0) { // ln 2 in one step: n times its rounding, 2e-9, is off only where the result is as small
      Value n = nearestPower(x);
      return scale(expReduced(fma(n, f(-kLn2), x)), n);
    }
    auto [n, r] = reduce(bound <= most ? x : atMost(x, most));
    return scale(expReduced(r), n);
  }
  Value exp2(Value x) {
    x = atMost(atLeast(x, -152.0f), 130.0f);
    Value n = sub(add(x, f(kMagic)), f(kMagic)), r = mul(sub(x, n), f(0.693147180559945f));
    return scale(expReduced(r), n);
  }
  Value expm1(Value x) {
    x = atMost(atLeast(x, -30.0f), 89.0f);
    auto [n, r] = reduce(x);
    Value p = fma(mul(r, r), expTail(r), r);
    Value half = scale(f(0.5f), n); // 2^(n-1): 2^n may overflow where the result does not
    Value y = fma(half, p, sub(half, f(0.5f)));
    return add(y, y);
  }
  Value log(Value x) {
    Value tiny = cmp(arith::CmpFPredicate::OLT, x, f(1.17549435e-38f));
    Value scaled = select(tiny, mul(x, f(8388608.0f)), x);
    Value shifted = addI(bits(scaled), i(0x3f800000 - 0x3f3504f3)); // mantissa in [sqrt 1/2, sqrt 2)
    Value e = toFloat(subI(shr(shifted, 23), i(127)));
    e = sub(e, select(tiny, f(23.0f), f(0.0f)));
    Value m = number(addI(andI(shifted, i(0x007fffff)), i(0x3f3504f3)));
    Value r = sub(m, f(1.0f)), z = mul(r, r);
    Value p = poly(r, {7.0376836292e-2f, -1.1514610310e-1f, 1.1676998740e-1f, -1.2420140846e-1f, 1.4249322787e-1f,
                       -1.6668057665e-1f, 2.0000714765e-1f, -2.4999993993e-1f, 3.3333331174e-1f});
    Value y = mul(mul(p, r), z);
    y = fma(e, f(kLn2Low), y);
    y = fma(z, f(-0.5f), y);
    y = fma(e, f(kLn2High), add(r, y));
    float inf = std::numeric_limits<float>::infinity();
    y = select(cmp(arith::CmpFPredicate::OGE, x, f(inf)), x, y);
    y = select(cmp(arith::CmpFPredicate::OEQ, x, f(0.0f)), f(-inf), y);
    return select(cmp(arith::CmpFPredicate::UGE, x, f(0.0f)), select(cmp(arith::CmpFPredicate::UNO, x, x), x, y),
                  f(NAN));
  }
  /// log(1 + x) = log(u) x / (u - 1) with u = 1 + x rounded.
  Value log1p(Value x) {
    Value u = add(x, f(1.0f)), d = sub(u, f(1.0f));
    Value y = mul(log(u), div(x, d));
    Value small = cmp(arith::CmpFPredicate::OEQ, d, f(0.0f));
    Value large = cmp(arith::CmpFPredicate::OGE, x, f(std::numeric_limits<float>::infinity()));
    return select(arith::OrIOp::create(b, loc, small, large), x, y);
  }
  Value tanh(Value x) {
    Value t = expm1(mul(abs(x), f(-2.0f)));
    Value y = div(t, add(t, f(2.0f))); // -tanh |x|
    return copySign(y, x);
  }
  /// sin, cos for |x| below some millions: x - n pi/2 in three parts.
  Value sinCos(Value x, bool isCos) {
    Value rounded = fma(x, f(0.636619772367581f), f(kMagic)), n = sub(rounded, f(kMagic));
    Value r = fma(n, f(-1.57079637050628662109375f), x);
    r = fma(n, f(4.37113900018624283e-8f), r);
    r = fma(n, f(1.71512449468e-15f), r);
    Value quadrant = bits(rounded);
    if (isCos)
      quadrant = addI(quadrant, i(1));
    Value z = mul(r, r);
    Value s = fma(mul(poly(z, {-1.9515295891e-4f, 8.3321608736e-3f, -1.6666654611e-1f}), z), r, r);
    Value c = fma(poly(z, {2.443315711809948e-5f, -1.388731625493765e-3f, 4.166664568298827e-2f}), mul(z, z),
                  fma(z, f(-0.5f), f(1.0f)));
    Value odd = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ne, andI(quadrant, i(1)), i(0));
    Value y = select(odd, c, s);
    return number(xorI(bits(y), shl(andI(quadrant, i(2)), 30)));
  }

private:
  Type intType() { return isa<VectorType>(type) ? Type(cast<VectorType>(type).clone(b.getI32Type())) : b.getI32Type(); }
  Value constant(Type type, Attribute value) {
    if (auto shaped = dyn_cast<VectorType>(type))
      return arith::ConstantOp::create(b, loc, DenseElementsAttr::get(shaped, value));
    return arith::ConstantOp::create(b, loc, cast<TypedAttr>(value));
  }

  OpBuilder &b;
  Location loc;
  Type type;
  bool hasScale;
};

static Value expand(Operation *op, Emitter &e) {
  Value x = op->getOperand(0);
  return llvm::TypeSwitch<Operation *, Value>(op)
      .Case([&](math::ExpOp) { return e.exp(x); })
      .Case([&](math::Exp2Op) { return e.exp2(x); })
      .Case([&](math::ExpM1Op) { return e.expm1(x); })
      .Case([&](math::LogOp) { return e.log(x); })
      .Case([&](math::Log2Op) { return e.mul(e.log(x), e.f(kLog2e)); })
      .Case([&](math::Log10Op) { return e.mul(e.log(x), e.f(0.434294481903251828f)); })
      .Case([&](math::Log1pOp) { return e.log1p(x); })
      .Case([&](math::TanhOp) { return e.tanh(x); })
      .Case([&](math::SinOp) { return e.sinCos(x, false); })
      .Case([&](math::CosOp) { return e.sinCos(x, true); })
      .Default([](Operation *) { return Value(); });
}

} // namespace

/// f32 -> bf16, to nearest even, where the processor has no instruction for it; NaN keeps a quiet bit.
static Value roundToBf16(OpBuilder &b, arith::TruncFOp op) {
  Location loc = op.getLoc();
  auto like = [&](Type element) -> Type {
    auto vector = dyn_cast<VectorType>(op.getType());
    return vector ? Type(vector.clone(element)) : element;
  };
  Type i32 = like(b.getI32Type());
  auto number = [&](int32_t value) -> Value {
    TypedAttr attr = b.getI32IntegerAttr(value);
    if (auto vector = dyn_cast<VectorType>(i32))
      attr = DenseElementsAttr::get(vector, Attribute(attr));
    return arith::ConstantOp::create(b, loc, attr);
  };
  Value in = op.getIn();
  if (!getElementTypeOrSelf(in).isF32())
    in = arith::TruncFOp::create(b, loc, like(b.getF32Type()), in);
  Value bits = arith::BitcastOp::create(b, loc, i32, in);
  Value odd = arith::AndIOp::create(b, loc, arith::ShRUIOp::create(b, loc, bits, number(16)), number(1));
  Value rounded = arith::AddIOp::create(b, loc, arith::AddIOp::create(b, loc, bits, number(0x7fff)), odd);
  Value isNan = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::UNO, in, in);
  Value quiet = arith::OrIOp::create(b, loc, bits, number(0x400000));
  Value high = arith::ShRUIOp::create(b, loc, arith::SelectOp::create(b, loc, isNan, quiet, rounded), number(16));
  Value narrow = arith::TruncIOp::create(b, loc, like(b.getI16Type()), high);
  return arith::BitcastOp::create(b, loc, op.getType(), narrow);
}

/// f64 -> f32 -> bf16: processors have no instruction for both at once.
static Value roundTwice(OpBuilder &b, arith::TruncFOp op) {
  Type f32 = b.getF32Type();
  if (auto vector = dyn_cast<VectorType>(op.getType()))
    f32 = vector.clone(f32);
  Value single = arith::TruncFOp::create(b, op.getLoc(), f32, op.getIn());
  return arith::TruncFOp::create(b, op.getLoc(), op.getType(), single);
}

/// bf16 -> f32: the bits, shifted up.
static Value widenBf16(OpBuilder &b, arith::ExtFOp op) {
  Location loc = op.getLoc();
  auto like = [&](Type element) -> Type {
    auto vector = dyn_cast<VectorType>(op.getType());
    return vector ? Type(vector.clone(element)) : element;
  };
  Type i32 = like(b.getI32Type());
  TypedAttr sixteen = b.getI32IntegerAttr(16);
  if (auto vector = dyn_cast<VectorType>(i32))
    sixteen = DenseElementsAttr::get(vector, Attribute(sixteen));
  Value bits = arith::BitcastOp::create(b, loc, like(b.getI16Type()), op.getIn());
  Value high = arith::ShLIOp::create(b, loc, arith::ExtUIOp::create(b, loc, i32, bits),
                                     arith::ConstantOp::create(b, loc, sixteen));
  Value wide = arith::BitcastOp::create(b, loc, like(b.getF32Type()), high);
  return wide.getType() == op.getType() ? wide : arith::ExtFOp::create(b, loc, op.getType(), wide).getResult();
}

/// What is left of bf16 is moved, never computed with. Without bf16 instructions LLVM moves it as promoted f32, with a
/// library call for each rounding back, so everything that held bf16 holds its 16 bits from here on.
static void keepBf16AsBits(ModuleOp module) {
  auto i16 = IntegerType::get(module.getContext(), 16);
  AttrTypeReplacer replacer;
  replacer.addReplacement([=](BFloat16Type) -> Type { return i16; });
  replacer.addReplacement([=](FloatAttr attr) -> std::optional<Attribute> {
    if (!attr.getType().isBF16())
      return std::nullopt;
    return IntegerAttr::get(i16, attr.getValue().bitcastToAPInt());
  });
  replacer.addReplacement([=](DenseElementsAttr attr) -> std::optional<Attribute> {
    if (!attr.getElementType().isBF16())
      return std::nullopt;
    return attr.bitcast(i16);
  });
  replacer.recursivelyReplaceElementsIn(module, /*replaceAttrs=*/true, /*replaceLocs=*/false, /*replaceTypes=*/true);
  module->walk([](arith::BitcastOp op) {
    if (op.getIn().getType() != op.getType())
      return;
    op.replaceAllUsesWith(op.getIn());
    op.erase();
  });
}

LogicalResult braid::expandMath(ModuleOp module, bool hasScale, bool hasBf16) {
  SmallVector<Operation *> ops;
  bool hasErf = false;
  module->walk([&](Operation *op) {
    if (isa_and_nonnull<math::MathDialect>(op->getDialect()) && op->getNumOperands() > 0)
      ops.push_back(op);
    if (auto round = dyn_cast<arith::TruncFOp>(op); round && getElementTypeOrSelf(round.getType()).isBF16() &&
                                                    (!hasBf16 || !getElementTypeOrSelf(round.getIn()).isF32()))
      ops.push_back(op);
    if (auto wide = dyn_cast<arith::ExtFOp>(op);
        wide && !hasBf16 && getElementTypeOrSelf(wide.getIn().getType()).isBF16())
      ops.push_back(op);
    hasErf |= isa<math::ErfOp>(op);
  });
  for (Operation *op : ops) {
    Type type = op->getResult(0).getType();
    OpBuilder b(op);
    if (auto round = dyn_cast<arith::TruncFOp>(op)) {
      round.replaceAllUsesWith(hasBf16 ? roundTwice(b, round) : roundToBf16(b, round));
      round.erase();
      continue;
    }
    if (auto wide = dyn_cast<arith::ExtFOp>(op)) {
      wide.replaceAllUsesWith(widenBf16(b, wide));
      wide.erase();
      continue;
    }
    if (isa<math::RsqrtOp>(op)) {
      Value one = arith::ConstantOp::create(b, op->getLoc(), b.getOneAttr(type));
      op->replaceAllUsesWith(ValueRange{
          arith::DivFOp::create(b, op->getLoc(), one, math::SqrtOp::create(b, op->getLoc(), op->getOperand(0)))});
      op->erase();
      continue;
    }
    if (!getElementTypeOrSelf(type).isF32() || !(type.isF32() || cast<VectorType>(type).getRank() == 1))
      continue;
    Emitter emitter(b, op->getLoc(), type, hasScale);
    if (Value value = expand(op, emitter)) {
      op->replaceAllUsesWith(ValueRange{value});
      op->erase();
    }
  }
  if (hasErf) {
    RewritePatternSet patterns(module.getContext());
    populatePolynomialApproximateErfPattern(patterns);
    if (failed(applyPatternsGreedily(module, std::move(patterns))))
      return failure();
  }
  if (!hasBf16)
    keepBf16AsBits(module);
  return success();
}

bool braid::isApproximate(Operation *op) {
  auto may = dyn_cast<arith::ArithFastMathInterface>(op);
  return isa<math::ExpOp, math::Exp2Op, arith::DivFOp>(op) &&
         getElementTypeOrSelf(op->getResult(0).getType()).isF32() && may &&
         bitEnumContainsAll(may.getFastMathFlagsAttr().getValue(), arith::FastMathFlags::afn);
}

bool braid::isOfDeviceLibrary(Operation *op) {
  return isa<math::ExpOp, math::Exp2Op, math::ExpM1Op, math::LogOp, math::Log2Op, math::Log10Op, math::Log1pOp,
             math::ErfOp, math::ErfcOp, math::SinOp, math::CosOp, math::TanOp, math::TanhOp, math::SinhOp, math::CoshOp,
             math::AsinOp, math::AcosOp, math::AtanOp, math::Atan2Op, math::PowFOp, math::CbrtOp>(op);
}

bool braid::callsFunctions(Operation *kernel) {
  return kernel
      ->walk([](Operation *op) {
        bool calls = isOfDeviceLibrary(op) || isa<arith::DivFOp, math::RsqrtOp>(op); // 1 / sqrt(x) in expandMath()
        return calls && !isApproximate(op) ? WalkResult::interrupt() : WalkResult::advance();
      })
      .wasInterrupted();
}

namespace {
struct ExpandMath : braid::impl::ExpandMathPassBase<ExpandMath> {
  using ExpandMathPassBase::ExpandMathPassBase;
  void runOnOperation() override {
    if (failed(expandMath(getOperation(), hasScale, hasBf16)))
      signalPassFailure();
  }
};
} // namespace
