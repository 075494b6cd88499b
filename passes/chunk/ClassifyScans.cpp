//===- ClassifyScans.cpp - every scan gets the cheapest class that holds ------------------------------------------===//
//
// Inclusions of lsm-family 2.1, I < S < V < D, V < R, H < GH < VH < D, as rewrite rules. Downwards: a gate that does
// nothing, or one that is a scalar repeated over channels, takes the scan to a smaller class. Upwards: VH has no chunk
// form of its own and becomes D, with a = k exp(g), b = -beta k, key beta k. On the forward and before differentiation:
// the gradients of what a rule writes follow.
//
//===-------------------------------------------------------------------------------------------------------------===//
#include "dialects/braid/ScanTraits.h"
#include "passes/Passes.h"

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
  case LsmClass::VH: return "the delta rule with one decay per key channel";
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
    if (id() == LsmClass::E)
      if (std::optional<Repeated> gate = repeated(scan.getLogDecay()))
        return narrow(*gate, LsmClass::V, "value");
    if (id() == LsmClass::V || id() == LsmClass::VH)
      if (std::optional<Repeated> gate = repeated(scan.getLogDecay()))
        return narrow(*gate, scan.getBeta() ? LsmClass::GH : LsmClass::S, "key");
    if (id() == LsmClass::VH)
      return lowRank();
    return std::nullopt;
  }
  std::string narrow(const Repeated &gate, LsmClass smaller, StringRef channels) {
    Value decay = gate.gate;
    if (gate.factor != 1.0)
      decay = ScaleOp::create(builder, scan.getLoc(), decay.getType(), decay, builder.getF64FloatAttr(gate.factor));
    scan.getLogDecayMutable().assign(decay);
    return become(smaller, "log_decay is repeated over the " + channels + " channels");
  }
  std::string lowRank() {
    Location loc = scan.getLoc();
    Value k = scan.getK(), g = scan.getLogDecay(), beta = scan.getBeta();
    Value decay = ActivationOp::create(builder, loc, g.getType(), g, builder.getStringAttr("exp"));
    Value a = MulOp::create(builder, loc, k.getType(), k, decay);
    Value key = MulOp::create(builder, loc, k.getType(), k, beta);
    Value b = ScaleOp::create(builder, loc, k.getType(), key, builder.getF64FloatAttr(-1.0));
    scan.getKMutable().assign(key);
    scan.getBetaMutable().clear();
    scan.getAMutable().assign(a);
    scan.getBMutable().assign(b);
    return become(LsmClass::D, "a = k exp(g), b = -beta k, key = beta k");
  }

  LsmScanOp scan;
  OpBuilder builder;
};

struct ClassifyScansPass : public braid::impl::ClassifyScansPassBase<ClassifyScansPass> {
  using ClassifyScansPassBase::ClassifyScansPassBase;

  void runOnOperation() override {
    getOperation().walk([&](LsmScanOp scan) {
      std::string steps = Classifier(scan).run();
      if (!explain)
        return;
      InFlightDiagnostic remark = scan.emitRemark() << "class " << stringifyLsmClass(scan.getClassId());
      if (!steps.empty())
        remark << " (" << steps << ")";
      remark << ": " << meaning(scan.getClassId());
    });
  }
};

} // namespace
