//===- DescribeSchedule.cpp - the program says how its layers are sliced and woven --------------------------------===//
#include "passes/Passes.h"
#include "passes/lower/PrepareBuffers.h"
#include "passes/overlap/LayerTasks.h"
#include "passes/overlap/SliceLayer.h"

#include "llvm/ADT/StringExtras.h"

#include <set>

using namespace mlir;
using namespace braid;

namespace braid {
#define GEN_PASS_DEF_DESCRIBESCHEDULEPASS
#include "passes/Passes.h.inc"
} // namespace braid

namespace {

/// "6, 6": lengths of the parts that these bounds cut.
std::string lengths(ArrayRef<int64_t> bounds) {
  SmallVector<std::string> texts;
  for (size_t i = 1; i < bounds.size(); ++i)
    texts.push_back(std::to_string(bounds[i] - bounds[i - 1]));
  return llvm::join(texts, ", ");
}

/// "3 slices of 16, 16, 16 tokens, experts 3 of ..; best takes ..".
std::string describe(DictionaryAttr schedule) {
  SliceBounds bounds(schedule);
  auto sliceText = [](ArrayRef<int64_t> ends) {
    return std::to_string(ends.size() - 1) + (ends.size() == 2 ? " slice of " : " slices of ") + lengths(ends) +
           " tokens";
  };
  std::string text = sliceText(bounds.mixer);
  if (bounds.mixer != bounds.experts)
    text += ", experts in " + sliceText(bounds.experts);
  text += "; " + schedule.getAs<StringAttr>("pipeline").getValue().str();
  if (auto how = schedule.getAs<StringAttr>("how"))
    text += " takes " + how.getValue().str();
  return text;
}

class DescribeSchedulePass : public braid::impl::DescribeSchedulePassBase<DescribeSchedulePass> {
public:
  using DescribeSchedulePassBase::DescribeSchedulePassBase;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    Builder builder(&getContext());
    auto known = module->getAttrOfType<DictionaryAttr>(attrs::metadata);
    NamedAttrList entries(known ? known : builder.getDictionaryAttr({}));
    for (auto layer : module.getOps<func::FuncOp>()) {
      auto schedule = layer->getAttrOfType<DictionaryAttr>(attrs::schedule);
      auto whole = dyn_cast_or_null<StringAttr>(layer->removeAttr(kWholeAttr));
      if (!schedule && (layer.isPublic() || !hasOp(layer, isDataExchange)))
        continue;
      std::string text = schedule ? describe(schedule) : "not sliced" + (whole ? ", " + whole.getValue().str() : "");
      if (remarks)
        layer.emitRemark() << "@" << layer.getSymName() << layersText(layer) << ": " << text;
      auto order = schedule ? schedule.getAs<ArrayAttr>("order") : ArrayAttr();
      for (auto [i, task] : llvm::enumerate(order ? order.getValue() : ArrayRef<Attribute>()))
        text += (i == 0 ? ": " : " ") + cast<StringAttr>(task).getValue().str();
      entries.set("schedule." + layer.getSymName().str(), builder.getStringAttr(text));
    }
    if (known)
      module->setAttr(attrs::metadata, entries.getDictionary(&getContext()));
  }

private:
  /// " (layers 0, 1)", where calls say it, or the ops of a function that joins layers.
  std::string layersText(func::FuncOp layer) {
    std::set<int32_t> numbers;
    auto add = [&](Attribute known) {
      if (auto layers = dyn_cast_or_null<DenseI32ArrayAttr>(known))
        numbers.insert(layers.asArrayRef().begin(), layers.asArrayRef().end());
    };
    if (hasOp(layer, [](Operation *op) { return isa<CallSiteLoc>(op->getLoc()); }))
      layer.walk([&](Operation *op) { add(layersOfLocation(op->getLoc())); });
    else
      getOperation().walk([&](func::CallOp call) {
        if (call.getCallee() == layer.getSymName())
          add(layersOfCall(call));
      });
    SmallVector<std::string> texts;
    for (int32_t number : numbers)
      texts.push_back(std::to_string(number));
    return texts.empty() ? "" : " (layers " + llvm::join(texts, ", ") + ")";
  }
};

} // namespace
