//===- AddIntoRepeats.cpp - sums that a repeat of layers adds to as it makes what is added ------------------------===//
#include "passes/Passes.h"
#include "passes/analysis/Tensors.h"
#include "passes/outline/RowsCluster.h"

using namespace mlir;

namespace braid {
#define GEN_PASS_DEF_ADDINTOREPEATSPASS
#include "passes/Passes.h.inc"

namespace {

/// An addition in place whose second term is a repeat's stacked result, which nobody else reads.
struct LateSum {
  AddOp add;
  unsigned result;
};

/// What one iteration makes of this result.
int64_t elementsOfPart(RepeatOp repeat, unsigned result) {
  return cast<RankedTensorType>(repeat.getResult(result).getType()).getNumElements() /
         std::max<int64_t>(repeat.getCount(), 1);
}

SmallVector<LateSum> lateSums(RepeatOp repeat, int64_t minElements) {
  SmallVector<LateSum> sums;
  Operation *yield = repeat.getBody().front().getTerminator();
  for (unsigned i = repeat.getCarried(); i < repeat.getNumResults(); ++i) {
    Value result = repeat.getResult(i);
    auto add = result.hasOneUse() ? dyn_cast<AddOp>(*result.user_begin()) : AddOp();
    if (!add || !add->hasAttr(kInPlaceAttr) || add->getBlock() != repeat->getBlock() || add->getOperand(1) != result ||
        add->getOperand(0).getType() != result.getType() || elementsOfPart(repeat, i) < minElements)
      continue;
    // What the sum was before is there when the repeat begins, and nobody reads it any more.
    Value before = add->getOperand(0);
    Operation *def = before.getDefiningOp();
    if (!before.hasOneUse() || (def && !def->isBeforeInBlock(repeat)))
      continue;
    // A value that is yielded twice would be stacked once, in one of two places.
    if (llvm::count(yield->getOperands(), yield->getOperand(i)) == 1)
      sums.push_back({add, i});
  }
  return sums;
}

/// The repeat with these sums among its stacked inputs, added to in its body.
RepeatOp moveIn(RepeatOp repeat, ArrayRef<LateSum> sums) {
  OpBuilder builder(repeat);
  SmallVector<Value> inputs(repeat.getInputs());
  for (LateSum sum : sums)
    inputs.push_back(sum.add->getOperand(0));
  auto moved = RepeatOp::create(builder, repeat.getLoc(), repeat->getResultTypes(), inputs, repeat.getCount(),
                                repeat.getCarried(), repeat.getReverse());
  moved->setDiscardableAttrs(repeat->getDiscardableAttrDictionary());
  moved.getBody().takeBody(repeat.getBody());
  Block &body = moved.getBody().front();
  Operation *yield = body.getTerminator();
  builder.setInsertionPoint(yield);
  for (LateSum sum : sums) {
    Value part = yield->getOperand(sum.result);
    BlockArgument before = body.addArgument(part.getType(), sum.add->getOperand(0).getLoc());
    auto add = AddOp::create(builder, sum.add.getLoc(), part.getType(), ValueRange{before, part});
    add->setDiscardableAttrs(sum.add->getDiscardableAttrDictionary());
    yield->setOperand(sum.result, add);
  }
  for (auto [old, fresh] : llvm::zip_equal(repeat.getResults(), moved.getResults()))
    old.replaceAllUsesWith(fresh);
  for (LateSum sum : sums) {
    sum.add->getResult(0).replaceAllUsesWith(moved.getResult(sum.result));
    sum.add->erase();
  }
  repeat.erase();
  return moved;
}

/// The same for layers that were written out: of a sum whose second term is nothing but parts, each is added as soon as it is made.
void addByPart(AddOp add, int64_t minElements) {
  Value before = add->getOperand(0), whole = add->getOperand(1);
  auto parts = whole.getDefiningOp<ConcatOp>();
  if (!parts || parts.getDim() != 0 || !whole.hasOneUse() || parts->getBlock() != add->getBlock() ||
      !before.hasOneUse() || before.getType() != whole.getType())
    return;
  for (Value part : parts.getSources())
    if (!part.hasOneUse() || !part.getDefiningOp() ||
        cast<RankedTensorType>(part.getType()).getNumElements() < minElements ||
        (before.getDefiningOp() && (part.getDefiningOp()->getBlock() != add->getBlock() ||
                                    !before.getDefiningOp()->isBeforeInBlock(part.getDefiningOp()))))
      return;
  // Where the sum is taken apart it ends as a whole: each part can then lie in its own place.
  OpBuilder views(add.getContext());
  views.setInsertionPointAfterValue(before);
  int64_t begin = 0;
  for (OpOperand &operand : parts->getOpOperands()) {
    auto part = operand.get();
    auto type = cast<RankedTensorType>(part.getType());
    OpBuilder builder(add.getContext());
    builder.setInsertionPointAfterValue(part);
    Value own = SliceOp::create(views, before.getLoc(), type, before, 0, begin);
    auto sum = AddOp::create(builder, add.getLoc(), type, ValueRange{own, part});
    sum->setDiscardableAttrs(add->getDiscardableAttrDictionary());
    operand.set(sum);
    begin += type.getDimSize(0);
  }
  add->getResult(0).replaceAllUsesWith(whole);
  add->erase();
}

struct AddIntoRepeatsPass : impl::AddIntoRepeatsPassBase<AddIntoRepeatsPass> {
  using AddIntoRepeatsPassBase::AddIntoRepeatsPassBase;

  void runOnOperation() override {
    for (auto function : getOperation().getOps<func::FuncOp>())
      if (!function.isExternal()) {
        visit(function.getBody().front());
        for (AddOp add : llvm::to_vector(function.getBody().front().getOps<AddOp>()))
          if (add->hasAttr(kInPlaceAttr))
            addByPart(add, minElements);
      }
  }

  /// From outside in: what was moved into a repeat may be moved on into one that it repeats.
  void visit(Block &block) {
    for (RepeatOp repeat : llvm::to_vector(block.getOps<RepeatOp>())) {
      if (SmallVector<LateSum> sums = lateSums(repeat, minElements); !sums.empty())
        repeat = moveIn(repeat, sums);
      visit(repeat.getBody().front());
    }
  }
};

} // namespace
} // namespace braid
