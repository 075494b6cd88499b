//===- UnwidenProducts.cpp - f32 products read the bf16 tensor that their operand was widened from ----------------===//
#include "dialects/braid/BraidDialect.h"
#include "passes/Passes.h"
#include "passes/outline/OutlineFamilies.h"

using namespace mlir;

namespace braid {
#define GEN_PASS_DEF_UNWIDENPRODUCTSPASS
#include "passes/Passes.h.inc"

namespace {

/// What x was widened from; null: it was not.
Value widenedFrom(Value x) {
  auto cast = x.getDefiningOp<CastOp>();
  return cast && tensorType(x).getElementType().isF32() && tensorType(cast.getX()).getElementType().isBF16()
             ? cast.getX()
             : Value();
}

struct UnwidenProductsPass : impl::UnwidenProductsPassBase<UnwidenProductsPass> {
  void runOnOperation() override {
    getOperation().walk([&](Operation *op) {
      if (!isa<LinearOp, LinearGradWeightOp>(op))
        return;
      OpOperand &x = op->getOpOperand(0);
      Value narrow = widenedFrom(x.get());
      if (!narrow)
        return;
      auto type = tensorType(narrow);
      int64_t rows = type.getDimSize(0) * type.getDimSize(1), in = product(type.getShape()) / rows;
      auto inParts = [&](Value other, int64_t out) {
        Type element = tensorType(other).getElementType(), bf16 = type.getElementType();
        bool ofWeight = isa<LinearGradWeightOp>(op);
        return !splitChoice(ofWeight ? in : rows, out, ofWeight ? rows : in, bf16, element, ofWeight).empty();
      };
      bool all = true;
      if (auto linear = dyn_cast<LinearOp>(op))
        for (Value weight : linear.getWeights())
          all &= inParts(weight, product(shapeOf(weight)) / in);
      else
        for (Value dy : cast<LinearGradWeightOp>(op).getDys())
          all &= !cast<LinearGradWeightOp>(op).getTransposed() && inParts(dy, product(shapeOf(dy)) / rows);
      Operation *widening = x.get().getDefiningOp();
      if (!all)
        return;
      x.set(narrow);
      if (widening->use_empty())
        widening->erase();
    });
  }
};

} // namespace
} // namespace braid
