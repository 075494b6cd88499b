//===- Outline.cpp - braid-outline: every model op to a launch, a library call or a view --------------------------===//
#include "mlir/IR/Dominance.h"
#include "mlir/Transforms/CSE.h"
#include "passes/Passes.h"
#include "passes/analysis/Views.h"
#include "passes/outline/OutlineFamilies.h"
#include "passes/outline/RowsCluster.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;

namespace braid {

#define GEN_PASS_DEF_OUTLINEPASS
#include "passes/Passes.h.inc"

namespace {

bool isKernel(func::FuncOp func) { return func->hasAttr(tile::kKernelAttr); }

/// What may stay as it is in phase `kernels`.
bool stays(Operation *op) {
  if (auto constant = dyn_cast<arith::ConstantOp>(op))
    return !isa<TensorType>(constant.getType()) || isZero(constant.getResult());
  return isa<RepeatOp, YieldOp, ReshapeOp, CommStartOp, CommAwaitOp, CommAllReduceOp, CommAllToAllOp, tile::LaunchOp,
             tile::GemmOp, tile::GroupedGemmOp, func::CallOp, func::ReturnOp>(op);
}

LogicalResult outlineOne(Operation *op, OutlineContext &context) {
  using Family = LogicalResult (*)(Operation *, OutlineContext &);
  Family family =
      TypeSwitch<Operation *, Family>(op)
          .Case<LinearOp, LinearGradDataOp, LinearGradWeightOp, MoeGroupedLinearOp, MoeGroupedLinearGradDataOp,
                MoeGroupedLinearGradWeightOp>([](auto) { return outlineLinear; })
          .Case<EmbedOp, EmbedGradOp>([](auto) { return outlineEmbed; })
          .Case<CrossEntropyOp, CrossEntropyGradOp, LinearCrossEntropyOp, LinearCrossEntropyGradOp, SumOp, SumGradOp>(
              [](auto) { return outlineLoss; })
          .Case<DocumentsOp, SliceOp, ConcatOp, arith::ConstantOp>([](auto) { return outlineStructure; })
          .Case<MoePlanOp, MoePlanReceivedOp, MoeDispatchOp, MoePermuteOp, MoeCombineOp, MoeCombineGradOp>(
              [](auto) { return outlineMoe; })
          .Case<SumSquaresOp, ClipScaleOp, AdamwOp>([](auto) { return outlineTrain; })
          .Case<InitOp>([](auto) { return outlineInit; })
          .Case<ShortConvOp, ShortConvGradOp>([](auto) { return outlineConvolution; })
          .Case<AttnCausalOp, AttnCausalGradOp, AttnAppendOp>([](auto) { return outlineAttention; })
          .Default([](Operation *op) -> Family {
            return op->getName().getStringRef().starts_with("braid.lsm.") ? outlineLsm : nullptr;
          });
  if (!family)
    return op->emitOpError("has no kernel");
  return family(op, context);
}

LogicalResult outlineBlock(Block &block, OutlineContext &context) {
  // A cluster is a run of equal cluster numbers; everything else stands alone.
  SmallVector<SmallVector<Operation *>> units;
  Attribute current;
  for (Operation &op : block) {
    if (stays(&op)) {
      current = {};
      continue;
    }
    Attribute cluster = isRowsOp(&op) ? op.getAttr(kClusterAttr) : Attribute();
    if (!cluster || cluster != current)
      units.emplace_back();
    units.back().push_back(&op);
    current = cluster;
  }
  for (ArrayRef<Operation *> unit : units)
    if (failed(isRowsOp(unit.front()) ? outlineRows(unit, context) : outlineOne(unit.front(), context)))
      return failure();
  return success();
}

struct OutlinePass : impl::OutlinePassBase<OutlinePass> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    OutlineContext context(module);
    SmallVector<Block *> blocks;
    for (auto func : module.getOps<func::FuncOp>())
      if (!isKernel(func))
        func.walk([&](Block *block) { blocks.push_back(block); });
    for (Block *block : blocks) {
      if (failed(outlineBlock(*block, context)))
        return signalPassFailure();
      for (Operation &op : llvm::make_early_inc_range(llvm::reverse(*block)))
        if (isa<ReshapeOp, SliceOp, arith::ConstantOp>(op) && op.use_empty())
          op.erase();
    }
    // The gradients repeat the forward's arithmetic; equal ops within a kernel become one.
    DominanceInfo dominance(module);
    for (auto func : module.getOps<func::FuncOp>())
      if (isKernel(func))
        eliminateCommonSubExpressions(context.rewriter, dominance, func);
  }
};

} // namespace
} // namespace braid
