//===- AddIntoProducts.cpp - products that add what an add behind them would have added ---------------------------===//
#include "dialects/braid/BraidDialect.h"
#include "passes/Passes.h"
#include "passes/outline/OutlineFamilies.h"
#include "passes/outline/RowsCluster.h"

using namespace mlir;

namespace braid {
#define GEN_PASS_DEF_ADDINTOPRODUCTSPASS
#include "passes/Passes.h.inc"

namespace {

/// The product that this value is, where nothing else reads it.
LinearOp productOf(Value value, AddOp add) {
  auto linear = value.getDefiningOp<LinearOp>();
  bool alone = linear && linear.getWeights().size() == 1 && value.hasOneUse() && linear->getBlock() == add->getBlock();
  return alone && product(shapeOf(value).take_front(2)) > kFewRows ? linear : LinearOp();
}

/// Whether some op needs the sum as a tensor: a row-wise one alone has it from the kernel that both share.
bool isStored(AddOp add) { return !add->use_empty() && !(add->hasOneUse() && isRowsOp(*add->user_begin())); }

struct AddIntoProductsPass : impl::AddIntoProductsPassBase<AddIntoProductsPass> {
  void runOnOperation() override {
    SmallVector<AddOp> adds;
    getOperation().walk([&](AddOp add) { adds.push_back(add); });
    for (AddOp add : adds) {
      ValueRange terms = add->getOperands();
      if (terms.size() != 2 || !isStored(add))
        continue;
      for (unsigned i : {1, 0})
        if (LinearOp linear = productOf(terms[i], add); linear && terms[1 - i].getType() == terms[i].getType()) {
          OpBuilder builder(add);
          auto sum = LinearAddOp::create(builder, add.getLoc(), terms[i].getType(), linear.getX(),
                                         linear.getWeights().front(), terms[1 - i], linear.getTransposed());
          sum->setDiscardableAttrs(add->getDiscardableAttrDictionary());
          add->getResult(0).replaceAllUsesWith(sum.getY());
          add->erase();
          linear->erase();
          break;
        }
    }
  }
};

} // namespace
} // namespace braid
