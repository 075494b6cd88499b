//===- ClassifyScans.cpp - every scan gets the cheapest class that holds ------------------------------------------===//
//
// Inclusions of lsm-family 2.1, I < S < V < D, V < R, H < GH < VH < D, as rewrite rules. Downwards: a gate that does
// nothing, or one that is a scalar repeated over channels, takes the scan to a smaller class. Nothing goes upwards: VH would be D with a = k exp(g), b = -beta k
// and the key beta k, at twice the scores. An inner step of mini-batch 1 without norm
// and momentum is H with beta = rate; where it forgets, D with a = k, b = -rate k, key = rate k (what a step removes is
// not decayed, so it is not GH). An element_decay becomes its factors, so that no tensor has an element for every token and
// element of the state. R < E has no rule: a gate of E that is a sum of one per row and one per column would
// have to repeat a value over the rows, and no op does; whoever states such a decay states R. On the forward and before
// differentiation: the gradients of what a rule writes follow.
//
//===-------------------------------------------------------------------------------------------------------------===//
#include "dialects/braid/InnerTraits.h"
#include "dialects/braid/PassAttributes.h"
#include "dialects/braid/ScanTraits.h"
#include "passes/Passes.h"
#include "passes/analysis/DecayRange.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;

namespace braid {
#define GEN_PASS_DEF_CLASSIFYSCANSPASS
#include "passes/Passes.h.inc"
} // namespace braid

using namespace braid;

namespace {

std::optional<double> splatOf(Value value) {
  DenseElementsAttr elements;
  if (!value || !matchPattern(value, m_Constant(&elements)) || !elements.isSplat() ||
      !isa<FloatType>(elements.getElementType()))
    return std::nullopt;
  return elements.getSplatValue<APFloat>().convertToDouble();
}
bool isZero(Value value) { return splatOf(value) == 0.0; }

/// A gate of rank r that is one of rank r - 1 repeated over the last dimension: a product of a constant and that.
struct Repeated {
  Value gate;
  double factor = 0;
};
std::optional<Repeated> repeated(Value value) {
  auto mul = value ? value.getDefiningOp<MulOp>() : MulOp();
  if (!mul)
    return std::nullopt;
  std::optional<double> factor = splatOf(mul.getA());
  int64_t rank = cast<ShapedType>(mul.getB().getType()).getRank();
  if (!factor || rank + 1 != cast<ShapedType>(value.getType()).getRank())
    return std::nullopt;
  return Repeated{mul.getB(), *factor};
}

/// The class as a sentence, and what kept the scan from the next smaller one.
StringRef meaning(LsmClass id) {
  switch (id) {
  case LsmClass::I: return "the state never decays";
  case LsmClass::S0: return "one constant decay per head";
  case LsmClass::S: return "one decay per head and token; the next smaller class, I, needs a log_decay of 0";
  case LsmClass::V: return "one decay per key channel; the next smaller class, S, needs one repeated over the channels";
  case LsmClass::H: return "the delta rule without decay";
  case LsmClass::GH: return "the delta rule with one decay per head; the next smaller class, H, needs a log_decay of 0";
  case LsmClass::VH:
    return "the delta rule with one decay per key channel; the next smaller class, GH, needs one repeated over the "
           "channels";
  case LsmClass::D: return "diagonal plus low rank; the next smaller class, V, needs an a or b of 0";
  case LsmClass::R: return "decays of rows and columns; the next smaller class, V, needs a value_decay of 0";
  case LsmClass::E:
    return "one decay per element of the state: no matrix form, tokens of a chunk are walked one by one";
  }
  llvm_unreachable("all classes are covered");
}

class Classifier {
public:
  explicit Classifier(LsmScanOp scan) : scan(scan), builder(scan) {}

  /// Applies rules until none holds. Returns what they were.
  std::string run() {
    std::string steps;
    while (std::optional<std::string> why = step())
      steps += (steps.empty() ? "" : "; ") + *why;
    return steps;
  }

private:
  LsmClass id() { return scan.getClassId(); }
  std::string become(LsmClass smaller, const Twine &why) {
    std::string text = (stringifyLsmClass(id()) + " is " + stringifyLsmClass(smaller) + ": " + why).str();
    scan.setClassId(smaller);
    return text;
  }
  std::optional<std::string> step() {
    bool still = scan.getLogDecay() && isZero(scan.getLogDecay());
    if (id() == LsmClass::D && (isZero(scan.getA()) || isZero(scan.getB()))) {
      scan.getAMutable().clear();
      scan.getBMutable().clear();
      return become(LsmClass::V, "b^T a is 0");
    }
    if (id() == LsmClass::R && isZero(scan.getValueDecay())) {
      scan.getValueDecayMutable().clear();
      return become(LsmClass::V, "value_decay is 0");
    }
    if (still && id() != LsmClass::D && id() != LsmClass::R) {
      scan.getLogDecayMutable().clear();
      return become(scan.getBeta() ? LsmClass::H : LsmClass::I, "log_decay is 0");
    }
    if (id() == LsmClass::E && !scan.getValueDecay())
      if (auto decay = scan.getLogDecay().getDefiningOp<ElementDecayOp>())
        return product(decay);
    if (id() == LsmClass::E && !scan.getValueDecay())
      if (std::optional<Repeated> gate = repeated(scan.getLogDecay()))
        return narrow(*gate, LsmClass::V, "value");
    if (id() == LsmClass::V || id() == LsmClass::VH)
      if (std::optional<Repeated> gate = repeated(scan.getLogDecay()))
        return narrow(*gate, scan.getBeta() ? LsmClass::GH : LsmClass::S, "key");
    return std::nullopt;
  }
  std::string narrow(const Repeated &gate, LsmClass smaller, StringRef channels) {
    Value decay = gate.gate;
    if (gate.factor != 1.0)
      decay = ScaleOp::create(builder, scan.getLoc(), decay.getType(), decay, builder.getF64FloatAttr(gate.factor));
    scan.getLogDecayMutable().assign(decay);
    return become(smaller, "log_decay is repeated over the " + channels + " channels");
  }
  /// -exp(a_log) x of every token becomes its factors.
  std::string product(ElementDecayOp decay) {
    Location loc = decay.getLoc();
    auto type = cast<RankedTensorType>(decay.getType()), own = cast<RankedTensorType>(decay.getALog().getType());
    ArrayRef<int64_t> shape = own.getShape();
    Type element = type.getElementType();
    auto as = [&](Value v) -> Value {
      auto from = cast<RankedTensorType>(v.getType());
      return from.getElementType() == element ? v : CastOp::create(builder, loc, from.clone(element), v);
    };
    auto view = [&](Value v, ArrayRef<int64_t> shape) {
      auto from = cast<RankedTensorType>(v.getType());
      return ReshapeOp::create(builder, loc, from.clone(shape), v);
    };
    // As a row, which is what ops on rows take.
    Value row = as(view(decay.getALog(), {1, 1, shape[0], shape[1] * shape[2]}));
    row = ActivationOp::create(builder, loc, row.getType(), row, builder.getStringAttr("exp"));
    row = ScaleOp::create(builder, loc, row.getType(), row, builder.getF64FloatAttr(-1.0));
    scan.getLogDecayMutable().assign(view(row, shape));
    scan.getValueDecayMutable().assign(as(decay.getX()));
    if (decay->use_empty())
      decay->erase();
    return "log_decay is a product of one per token and value and one per element, which is in no memory";
  }

  LsmScanOp scan;
  OpBuilder builder;
};

StringRef meaning(const InnerTraits &step) {
  if (step.norm)
    return "gradient steps through a norm, not affine in the state: ranks along sp walk in a ring";
  if (step.momentum || step.readRate)
    return "gradient steps, affine in the weights and what their steps add up to; a scan, H or D, needs a mini-batch "
           "of "
           "1 without momentum and read_rate";
  return "gradient steps, affine in the weights; a scan, H or D, needs a mini-batch of 1 and documents that begin with "
         "0";
}

/// The scan that an inner step is; null where it is none.
LsmScanOp asScan(LsmInnerStepOp step, std::string &why) {
  InnerTraits traits(step);
  if (traits.miniBatch != 1 || traits.norm || traits.momentum || traits.readRate || step.getWeights())
    return {};
  OpBuilder builder(step);
  Location loc = step.getLoc();
  Value k = step.getK(), rate = step.getRate(), key = k, decay, beta = rate, a, b;
  LsmClass id = LsmClass::H;
  if (traits.decay && !isZero(step.getLogDecay())) {
    id = LsmClass::D;
    auto perKey = cast<RankedTensorType>(k.getType()).clone(getElementTypeOrSelf(step.getLogDecay().getType()));
    auto ones = DenseElementsAttr::get(perKey, builder.getFloatAttr(perKey.getElementType(), 1.0));
    decay = MulOp::create(builder, loc, perKey, arith::ConstantOp::create(builder, loc, ones), step.getLogDecay());
    key = MulOp::create(builder, loc, k.getType(), k, rate);
    a = k;
    b = ScaleOp::create(builder, loc, k.getType(), key, builder.getF64FloatAttr(-1.0));
    beta = Value();
  }
  why = id == LsmClass::D ? "G1 of mini-batch 1 is D: a = k, b = -rate k, key = rate k"
                          : "G1 of mini-batch 1 is H: beta = rate";
  return LsmScanOp::create(builder, loc, step.getResultTypes(), step.getQ(), key, step.getV(), decay, beta, a, b,
                           Value(), step.getInitialState(), step.getDocuments(), id, APFloat(1.0), IntegerAttr());
}

struct ClassifyScansPass : public braid::impl::ClassifyScansPassBase<ClassifyScansPass> {
  using ClassifyScansPassBase::ClassifyScansPassBase;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    auto known = module->getAttrOfType<DictionaryAttr>(attrs::metadata);
    NamedAttrList entries(known ? known : DictionaryAttr::get(&getContext()));
    for (auto function : module.getOps<func::FuncOp>()) {
      std::string all;
      function.walk([&](Operation *op) {
        if (std::string text = classify(op); !text.empty())
          all += (all.empty() ? "" : "; then ") + text;
      });
      if (!all.empty())
        entries.set("scans." + function.getSymName().str(), StringAttr::get(&getContext(), all));
    }
    if (known)
      module->setAttr(attrs::metadata, entries.getDictionary(&getContext()));
  }

private:
  /// The class of a scan or inner step, the rules used and why it is not smaller; "" of another op.
  std::string classify(Operation *op) {
    std::string why;
    auto scan = dyn_cast<LsmScanOp>(op);
    if (auto step = dyn_cast<LsmInnerStepOp>(op)) {
      scan = asScan(step, why);
      if (!scan) {
        InnerTraits traits(step);
        std::string text = ("class " + traits.className() + ": " + meaning(traits)).str();
        if (explain)
          step.emitRemark() << text;
        return text;
      }
      step.replaceAllUsesWith(scan.getResults());
      step.erase();
    }
    if (!scan)
      return "";
    std::string steps = Classifier(scan).run();
    if (std::optional<double> least = leastLogDecay(scan))
      scan->setAttr(attrs::leastLogDecay, Builder(scan).getF64FloatAttr(*least));
    if (!why.empty() && !steps.empty())
      why += "; ";
    why += steps;
    std::string text = ("class " + stringifyLsmClass(scan.getClassId())).str();
    text += (why.empty() ? "" : " (" + why + ")") + (": " + meaning(scan.getClassId())).str();
    if (explain)
      scan.emitRemark() << text;
    return text;
  }
};

} // namespace
