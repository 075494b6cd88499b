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

namespace {

/// What is shared is looked at once.
class Ranges {
public:
  Interval of(Value value) {
    if (auto it = known.find(value); it != known.end())
      return it->second;
    Interval bounds = computed(value);
    known[value] = bounds;
    return bounds;
  }

private:
  Interval computed(Value value);
  DenseMap<Value, Interval> known;
};

} // namespace

Interval Ranges::computed(Value value) {
  DenseElementsAttr constant;
  if (matchPattern(value, m_Constant(&constant)) && constant.isSplat() && isa<FloatType>(constant.getElementType())) {
    double all = constant.getSplatValue<APFloat>().convertToDouble();
    return {all, all};
  }
  Operation *op = value.getDefiningOp();
  if (!op)
    return {};
  auto number = [](const APFloat &value) { return Interval{value.convertToDouble(), value.convertToDouble()}; };
  return llvm::TypeSwitch<Operation *, Interval>(op)
      .Case<CastOp, ReshapeOp, RepeatHeadsOp>([&](auto same) { return of(same->getOperand(0)); })
      .Case([&](StackOp stack) {
        Interval all = of(stack.getSources().front());
        for (Value source : stack.getSources().drop_front())
          all = hull(all, of(source));
        return all;
      })
      .Case([&](EveryTokenOp same) { return of(same.getValue()); })
      .Case([&](ScaleOp scale) { return of(scale.getX()) * number(scale.getValue()); })
      .Case([&](OffsetOp offset) { return of(offset.getX()) + number(offset.getValue()); })
      .Case([&](ClampOp clamp) {
        auto end = [](std::optional<APFloat> number, double none) { return number ? number->convertToDouble() : none; };
        return clamped(of(clamp.getX()), end(clamp.getLow(), Interval().low), end(clamp.getHigh(), Interval().high));
      })
      .Case([&](ActivationOp activation) { return activated(activation.getKind(), of(activation.getX())); })
      .Case([&](LogSigmoidOp log) { return logSigmoid(of(log.getX())) * reciprocal(number(log.getDivide())); })
      .Case([](LogDecayOp) { return Interval{.high = 0}; })
      .Case([&](MulOp mul) {
        return mul.getA() == mul.getB() ? power(of(mul.getA()), 2) : of(mul.getA()) * of(mul.getB());
      })
      .Case([&](AddOp add) {
        Interval sum{0, 0};
        for (Value source : add.getSources())
          sum = sum + of(source);
        return sum;
      })
      .Default([](Operation *) { return Interval(); });
}

Interval braid::boundsOf(Value value) { return Ranges().of(value); }

bool braid::makesDecayedScores(Operation *op) {
  return llvm::TypeSwitch<Operation *, bool>(op)
      .Case<LsmChunkStateOp, LsmChunkFactorsOp, LsmChunkWalkFactorsOp, LsmChunkOutputOp, LsmChunkOutputGradStateOp,
            LsmChunkOutputFactorsOp, LsmChunkGradOp>([](auto chunk) {
        ScanTraits traits(chunk.getClassId());
        bool pairs = isa<LsmChunkOutputOp, LsmChunkGradOp>(chunk.getOperation()) || traits.dense;
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
    Interval bounds = decay ? boundsOf(decay) : Interval{0, 0};
    if (!bounds.neverPositive() || !std::isfinite(bounds.low))
      return std::nullopt;
    least = std::min(least, bounds.low);
  }
  return least;
}

bool braid::provesMildDecay(Operation *op, int64_t size, double least) {
  auto proved = op->getAttrOfType<FloatAttr>(attrs::leastLogDecay);
  return proved && proved.getValueAsDouble() * static_cast<double>(size) > least;
}
