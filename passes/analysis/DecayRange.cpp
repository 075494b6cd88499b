//===- DecayRange.cpp - ranges of gates, from their activations ---------------------------------------------------===//
#include "passes/analysis/DecayRange.h"

#include "dialects/braid/PassAttributes.h"
#include "dialects/braid/ScanTraits.h"

#include "mlir/IR/Matchers.h"
#include "llvm/ADT/TypeSwitch.h"

#include <algorithm>
#include <cmath>

using namespace mlir;
using namespace braid;

static constexpr double unbounded = std::numeric_limits<double>::infinity();

static Bounds scaled(Bounds x, double by) {
  if (by == 0)
    return {0, 0};
  return by > 0 ? Bounds{x.low * by, x.high * by} : Bounds{x.high * by, x.low * by};
}

static Bounds activated(StringRef kind, Bounds x) {
  if (kind == "sigmoid")
    return {0, 1};
  if (kind == "tanh" || kind == "sin" || kind == "cos")
    return {-1, 1};
  if (kind == "exp")
    return {std::exp(x.low), std::exp(x.high)};
  if (kind == "bounded_exp")
    return {std::exp(std::min(x.low, 7.0)), std::exp(std::min(x.high, 7.0))};
  if (kind == "softplus" || kind == "relu" || kind == "relu2" || kind == "elu1")
    return {0, unbounded};
  if (kind == "fraction")
    return {-0.5, 0.5};
  return {};
}

static Bounds product(Bounds x, Bounds y) {
  bool finite = llvm::all_of(ArrayRef{x.low, x.high, y.low, y.high}, [](double d) { return std::isfinite(d); });
  if (!finite)
    return {};
  auto [low, high] = std::minmax({x.low * y.low, x.low * y.high, x.high * y.low, x.high * y.high});
  return {low, high};
}

namespace {

/// What is shared is looked at once.
class Ranges {
public:
  Bounds of(Value value) {
    if (auto it = known.find(value); it != known.end())
      return it->second;
    Bounds bounds = computed(value);
    known[value] = bounds;
    return bounds;
  }

private:
  Bounds computed(Value value);
  DenseMap<Value, Bounds> known;
};

} // namespace

Bounds Ranges::computed(Value value) {
  DenseElementsAttr constant;
  if (matchPattern(value, m_Constant(&constant)) && constant.isSplat() && isa<FloatType>(constant.getElementType())) {
    double number = constant.getSplatValue<APFloat>().convertToDouble();
    return {number, number};
  }
  Operation *op = value.getDefiningOp();
  if (!op)
    return {};
  return llvm::TypeSwitch<Operation *, Bounds>(op)
      .Case<CastOp, ReshapeOp, RepeatHeadsOp>([&](auto same) { return of(same->getOperand(0)); })
      .Case([&](EveryTokenOp same) { return of(same.getValue()); })
      .Case([&](ScaleOp scale) { return scaled(of(scale.getX()), scale.getValue().convertToDouble()); })
      .Case([&](OffsetOp offset) {
        Bounds x = of(offset.getX());
        double more = offset.getValue().convertToDouble();
        return Bounds{x.low + more, x.high + more};
      })
      .Case([&](ActivationOp activation) { return activated(activation.getKind(), of(activation.getX())); })
      .Case<LogSigmoidOp, LogDecayOp>([](auto) { return Bounds{-unbounded, 0}; })
      .Case([&](MulOp mul) { return product(of(mul.getA()), of(mul.getB())); })
      .Case([&](AddOp add) {
        Bounds sum{0, 0};
        for (Value source : add.getSources()) {
          Bounds each = of(source);
          sum = {sum.low + each.low, sum.high + each.high};
        }
        return sum;
      })
      .Default([](Operation *) { return Bounds(); });
}

Bounds braid::boundsOf(Value value) { return Ranges().of(value); }

bool braid::makesDecayedScores(Operation *op) {
  return llvm::TypeSwitch<Operation *, bool>(op)
      .Case<LsmChunkStateOp, LsmChunkOutputOp, LsmChunkOutputGradStateOp, LsmChunkGradOp>([](auto chunk) {
        ScanTraits traits(chunk.getClassId());
        bool pairs = isa<LsmChunkOutputOp, LsmChunkGradOp>(chunk.getOperation()) || traits.lowRank;
        return pairs && traits.vectorDecay && !traits.elementDecay;
      })
      .Default(false);
}

std::optional<double> braid::leastLogDecay(LsmScanOp scan) {
  ScanTraits traits(scan.getClassId());
  if (!traits.vectorDecay)
    return std::nullopt;
  double least = 0;
  for (Value decay : {scan.getLogDecay(), scan.getValueDecay()}) {
    Bounds bounds = decay ? boundsOf(decay) : Bounds{0, 0};
    if (bounds.high > 0 || !std::isfinite(bounds.low))
      return std::nullopt;
    least = std::min(least, bounds.low);
  }
  return least;
}

bool braid::provesMildDecay(Operation *op, int64_t size) {
  auto least = op->getAttrOfType<FloatAttr>(attrs::leastLogDecay);
  return least && least.getValueAsDouble() * static_cast<double>(size) > kMildLogDecay;
}
