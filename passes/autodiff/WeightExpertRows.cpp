//===- WeightExpertRows.cpp - the weights of experts where their rows are made ------------------------------------===//
//
//   y_n = sum_j w_nj (h W_e)[row of n, j]      becomes      y_n = sum_j ((w h) W_e)[row of n, j]
//
// A combination that weights rows needs them for its gradient: what experts put out, top_k rows a token, is kept for the backward and read there for the gradients
// of the weights alone. What goes into the last product is in registers where it is made, forward and backward: weighting it there costs nothing, the
// combination's gradient is a dispatch, and the gradient of a weight is a sum along a row that is at hand. Only where rows are made by a row-wise op for this product alone.
//
// Rows that travel between ranks keep their weights behind them: those would have to travel, too.
//
//===-------------------------------------------------------------------------------------------------------------===//
#include "dialects/braid/BraidDialect.h"
#include "passes/Passes.h"

#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace braid;

namespace braid {
#define GEN_PASS_DEF_WEIGHTEXPERTROWSPASS
#include "passes/Passes.h.inc"
} // namespace braid

namespace {

/// Functions that a training step calls, directly or not.
llvm::SetVector<Operation *> trained(ModuleOp module) {
  SymbolTable symbols(module);
  llvm::SetVector<Operation *> functions;
  for (auto entry : module.getOps<func::FuncOp>())
    if (entry->hasAttr("braid.train"))
      functions.insert(entry);
  for (size_t i = 0; i < functions.size(); ++i)
    functions[i]->walk([&](func::CallOp call) {
      if (auto callee = symbols.lookup<func::FuncOp>(call.getCallee()))
        functions.insert(callee);
    });
  return functions;
}

/// The product of rows that are made for it alone, and whose own rows are combined and nothing else.
MoeGroupedLinearOp lastProduct(MoeCombineOp combine) {
  Value rows = combine.getRows(), weights = combine.getWeights();
  auto product = rows.getDefiningOp<MoeGroupedLinearOp>();
  if (!weights || !product || product.getNumResults() != 1 || !rows.hasOneUse() || !combine.getReturned().use_empty())
    return {};
  Operation *maker = product.getX().getDefiningOp(), *weighs = weights.getDefiningOp();
  bool there = !weighs || weighs->getBlock() != product->getBlock() || weighs->isBeforeInBlock(product);
  bool alike = getElementTypeOrSelf(rows) == getElementTypeOrSelf(combine.getY());
  return there && alike && isa_and_nonnull<RowsOpInterface>(maker) && product.getX().hasOneUse() ? product
                                                                                                 : MoeGroupedLinearOp();
}

/// Numbers of rows as soon as there are any: the product before the rows' op may read them then.
Value rowWeights(MoeCombineOp combine, RankedTensorType type) {
  Block *block = combine->getBlock();
  OpBuilder b = OpBuilder::atBlockBegin(block);
  Operation *last = nullptr;
  for (Value v : {combine.getWeights(), combine.getPerm(), combine.getInverse()})
    if (Operation *maker = v.getDefiningOp();
        maker && maker->getBlock() == block && (!last || last->isBeforeInBlock(maker)))
      last = maker;
  if (last)
    b.setInsertionPointAfter(last);
  Value weights = combine.getWeights();
  return MoeRowWeightsOp::create(b, weights.getLoc(), type, weights, combine.getPerm(), combine.getInverse());
}

void weightRows(MoeCombineOp combine, MoeGroupedLinearOp product) {
  OpBuilder b(product);
  Value x = product.getX();
  auto type = cast<RankedTensorType>(x.getType());
  Value numbers = rowWeights(
      combine, RankedTensorType::get(type.getShape().drop_back(), getElementTypeOrSelf(combine.getWeights())));
  Value weighted = MulOp::create(b, x.getLoc(), type, x, numbers);
  product.getXMutable().assign(weighted);
  combine.getWeightsMutable().clear();
}

struct WeightExpertRowsPass : braid::impl::WeightExpertRowsPassBase<WeightExpertRowsPass> {
  using WeightExpertRowsPassBase::WeightExpertRowsPassBase;

  void runOnOperation() override {
    bool any = false;
    for (Operation *function : trained(getOperation()))
      function->walk([&](MoeCombineOp combine) {
        if (MoeGroupedLinearOp product = lastProduct(combine)) {
          weightRows(combine, product);
          any = true;
        }
      });
    if (!any)
      getOperation().emitWarning("no training step combines rows of experts that can be weighted before their last "
                                 "product: --expert-weights=rows changes nothing");
  }
};

} // namespace
