//===- ActivationBudget.cpp - what is kept for the backward, by what is planned -----------------------------------===//
#include "compiler/ActivationBudget.h"

#include "dialects/braid/BraidDialect.h"
#include "passes/autodiff/Recompute.h"

#include "mlir/IR/Diagnostics.h"

#include <set>

using namespace mlir;
using namespace braid;

static constexpr llvm::StringLiteral trainAttr = "braid.train", budgetKey = "activation_budget";
/// Each is nearer to the budget than the one before; the next one keeps as little as there can be.
static constexpr int maxTries = 5;

static IntegerAttr budgetOf(func::FuncOp entry) {
  auto settings = entry->getAttrOfType<DictionaryAttr>(trainAttr);
  return settings ? settings.getAs<IntegerAttr>(budgetKey) : IntegerAttr();
}

std::optional<ActivationBudget> ActivationBudget::of(ModuleOp module) {
  for (auto entry : module.getOps<func::FuncOp>())
    if (IntegerAttr budget = budgetOf(entry)) {
      // Of stages the one that keeps most is told, which need not be the first.
      std::optional<int64_t> stage = stageOf(entry);
      auto step = StringAttr::get(module.getContext(), unstagedName(entry.getSymName(), stage));
      return ActivationBudget(stage ? Location(NameLoc::get(step)) : entry.getLoc(), budget.getInt());
    }
  return std::nullopt;
}

std::optional<int64_t> ActivationBudget::keptIn(ModuleOp module) {
  auto metadata = module->getAttrOfType<DictionaryAttr>(attrs::metadata);
  std::optional<int64_t> most; // of all stages
  if (metadata)
    for (NamedAttribute fact : metadata) {
      StringRef key = fact.getName();
      auto text = dyn_cast<StringAttr>(fact.getValue());
      if (int64_t value = 0; key.starts_with(kActivations) && key.ends_with(kKeptBytes) && text &&
                             llvm::to_integer(text.getValue(), value))
        most = std::max(most.value_or(0), value);
    }
  return most;
}

static int64_t askedOf(ModuleOp module) {
  for (auto entry : module.getOps<func::FuncOp>())
    if (IntegerAttr budget = budgetOf(entry))
      return budget.getInt();
  return 0;
}

static void setBudget(ModuleOp module, int64_t bytes) {
  Builder builder(module.getContext());
  for (auto entry : module.getOps<func::FuncOp>())
    if (budgetOf(entry)) {
      NamedAttrList settings(entry->getAttrOfType<DictionaryAttr>(trainAttr));
      settings.set(budgetKey, builder.getI64IntegerAttr(bytes));
      entry->setAttr(trainAttr, settings.getDictionary(module.getContext()));
    }
}

LogicalResult ActivationBudget::meet(ModuleOp module, llvm::function_ref<FailureOr<Kept>()> compile,
                                     const Twine &why) const {
  OwningOpRef<ModuleOp> start = module.clone();
  // Every try would say the same again.
  std::set<std::string> said;
  ScopedDiagnosticHandler once(module.getContext(), [&](Diagnostic &diagnostic) {
    bool passes = diagnostic.getSeverity() == DiagnosticSeverity::Error || said.insert(diagnostic.str()).second;
    return failure(/*goes on to who prints it=*/passes);
  });
  for (int tries = 1;; ++tries) {
    FailureOr<Kept> kept = compile();
    if (failed(kept))
      return failure();
    std::optional<int64_t> now = kept->planned ? kept->planned : kept->counted;
    if (!now || *now <= bytes)
      return success();
    int64_t asked = askedOf(*start);
    if (!kept->counted || *kept->counted > asked || asked == 0 || !kept->planned) {
      emitWarning(entry) << "the activation budget (--activation-budget, schedule.activation_budget) is " << bytes
                         << " bytes per rank, but " << *now
                         << " bytes are kept although all is computed again that can be (not " << why
                         << "); within it: at least " << *now << ", a smaller batch or seq_len, or more ranks";
      return success();
    }
    int64_t next = tries < maxTries ? std::max<int64_t>(0, *kept->counted - (*now - bytes)) : 0;
    setBudget(*start, next);
    OwningOpRef<ModuleOp> again = start->clone();
    module->setAttrs((*again)->getAttrDictionary());
    module.getBodyRegion().takeBody(again->getBodyRegion());
  }
}
