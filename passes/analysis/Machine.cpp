//===- Machine.cpp - the module attribute braid.machine -----------------------------------------------------------===//
#include "passes/analysis/Machine.h"

#include "dialects/braid/PassAttributes.h"
#include "mlir/IR/Builders.h"

using namespace mlir;
using namespace braid;

namespace {
struct Field {
  StringLiteral name;
  double Machine::*member;
};
constexpr Field fields[] = {{"flops", &Machine::flops},
                            {"bandwidth", &Machine::bandwidth},
                            {"overhead", &Machine::overhead},
                            {"link_bandwidth", &Machine::linkBandwidth},
                            {"link_latency", &Machine::linkLatency}};
} // namespace

Machine Machine::ofGpu(bool hopper, bool bf16) {
  Machine machine = hopper ? Machine{0.6 * 989e12, 0.85 * 4.8e12, 2e-6, 450e9, 5e-6}
                           : Machine{0.6 * 312e12, 0.85 * 2.0e12, 2e-6, 300e9, 5e-6};
  if (!bf16)
    machine.flops /= 4;
  return machine;
}

Machine Machine::of(ModuleOp module) {
  Machine machine;
  auto known = module->getAttrOfType<DictionaryAttr>(attrs::machine);
  for (const Field &field : fields)
    if (auto value = known ? known.getAs<FloatAttr>(field.name) : FloatAttr())
      machine.*field.member = value.getValueAsDouble();
  return machine;
}

DictionaryAttr Machine::toAttr(MLIRContext *context) const {
  Builder builder(context);
  SmallVector<NamedAttribute> list;
  for (const Field &field : fields)
    list.push_back(builder.getNamedAttr(field.name, builder.getF64FloatAttr(this->*field.member)));
  return builder.getDictionaryAttr(list);
}
