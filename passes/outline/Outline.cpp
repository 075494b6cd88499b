//===- Outline.cpp - braid-outline: every model op to a launch, a library call or a view --------------------------===//
#include "dialects/cmd/CmdDialect.h"
#include "mlir/IR/Dominance.h"
#include "mlir/Transforms/CSE.h"
#include "passes/Passes.h"
#include "passes/analysis/Views.h"
#include "passes/outline/OutlineFamilies.h"
#include "passes/outline/Units.h"
#include "llvm/ADT/TypeSwitch.h"

#include <cmath>

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

} // namespace

SmallVector<OutlineUnit> outlineUnits(Block &block) {
  // A cluster is a run of equal cluster numbers; everything else stands alone.
  SmallVector<OutlineUnit> units;
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
  return units;
}

namespace {

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

/// The launches and library calls that stand between two ops share what CountWork counted for the op they came from:
/// FLOPs by the sizes of the products where there are library calls, all else by the bytes that each touches. The
/// shares add up to the whole; a command of a repeat carries the part of one iteration.
void shareWork(cmd::WorkAttr work, Operation *before, Operation *after, Block &block) {
  SmallVector<Operation *> made;
  auto isWork = [](Operation &op) { return isa<tile::LaunchOp, tile::GemmOp, tile::GroupedGemmOp>(op); };
  for (Operation *op = before ? before->getNextNode() : &block.front(); op && op != after; op = op->getNextNode()) {
    if (isWork(*op))
      made.push_back(op);
    else if (auto repeat = dyn_cast<RepeatOp>(op))
      for (Operation &inner : repeat.getBody().front())
        if (isWork(inner))
          made.push_back(&inner);
  }
  auto times = [&](Operation *op) -> int64_t {
    return op->getBlock() == &block ? 1 : cast<RepeatOp>(op->getParentOp()).getCount();
  };
  auto touched = [&](Operation *op) {
    int64_t bytes = 0;
    for (Value value : llvm::concat<Value>(llvm::to_vector(op->getOperands()), llvm::to_vector(op->getResults())))
      bytes += cmd::tensorBytes(cast<RankedTensorType>(value.getType()));
    return bytes * times(op);
  };
  bool library = llvm::any_of(made, [](Operation *op) { return !isa<tile::LaunchOp>(op); });
  // m k, k n and m n elements: the root of their product is m n k (times the root of the number of groups, equal for
  // all).
  auto volume = [&](Operation *op) {
    return isa<tile::LaunchOp>(op) ? 0.0
                                   : double(times(op)) * std::sqrt(double(product(shapeOf(op->getOperand(0)))) *
                                                                   double(product(shapeOf(op->getOperand(1)))) *
                                                                   double(product(shapeOf(op->getResult(0)))));
  };
  double allBytes = 0, allVolume = 0;
  for (Operation *op : made) {
    allBytes += touched(op);
    allVolume += volume(op);
  }
  int64_t flops = work.getFlops(), bytes = work.getBytes();
  for (Operation *op : made) {
    bool last = op == made.back();
    double part = library ? volume(op) / std::max(allVolume, 1.0) : touched(op) / std::max(allBytes, 1.0);
    int64_t ownFlops = last ? flops : std::min<int64_t>(flops, std::llround(part * work.getFlops()));
    int64_t ownBytes =
        last ? bytes : std::min<int64_t>(bytes, std::llround(touched(op) / std::max(allBytes, 1.0) * work.getBytes()));
    flops -= ownFlops;
    bytes -= ownBytes;
    op->setAttr(cmd::kWorkAttr, cmd::WorkAttr::get(op->getContext(), work.getOp(), ownFlops / times(op),
                                                   ownBytes / times(op), work.getChoice()));
  }
}

LogicalResult outlineBlock(Block &block, OutlineContext &context) {
  for (ArrayRef<Operation *> unit : outlineUnits(block)) {
    auto work = unit.front()->getAttrOfType<cmd::WorkAttr>(cmd::kWorkAttr);
    unit.front()->removeAttr(cmd::kWorkAttr); // the attributes of row-wise ops are part of their kernel's name
    Operation *before = unit.front()->getPrevNode(), *after = unit.back()->getNextNode();
    if (failed(isRowsOp(unit.front()) ? outlineRows(unit, context) : outlineOne(unit.front(), context)))
      return failure();
    if (work)
      shareWork(work, before, after, block);
  }
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
