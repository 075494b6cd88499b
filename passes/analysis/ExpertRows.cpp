#include "passes/analysis/ExpertRows.h"

#include "dialects/tile/TileDialect.h"

#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace braid;

Value braid::expertOffsets(Value rows) {
  while (auto view = rows.getDefiningOp<ReshapeOp>())
    rows = view.getSource();
  Operation *maker = rows.getDefiningOp();
  if (!maker)
    return {};
  return llvm::TypeSwitch<Operation *, Value>(maker)
      .Case<MoeGroupedLinearOp, MoeGroupedLinearGradDataOp>([](auto product) { return product.getOffsets(); })
      .Case([](MoeGroupBiasOp bias) { return bias.getOffsets(); })
      .Case([](tile::GroupedGemmOp product) { return product.getWeight() ? Value() : product.getOffsets(); })
      .Case([](tile::LaunchOp launch) {
        for (auto [name, argument] : llvm::zip(launch.getArgNames().getAsRange<StringAttr>(), launch.getInputs()))
          if (name == tile::kRowsEnd)
            return argument;
        return Value();
      })
      .Default(Value());
}

ExpertRows::ExpertRows(Block &block) {
  for (Operation &op : block)
    if (isa<MoeGroupedLinearOp, MoeGroupedLinearGradDataOp, MoeGroupBiasOp>(op) ||
        (isa<ReshapeOp, RowsOpInterface, RowsGradOp>(op) && reads(&op)))
      values.insert(op.result_begin(), op.result_end());
}
