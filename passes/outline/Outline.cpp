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
  return isa<RepeatOp, YieldOp, ReshapeOp, CommStartOp, CommAwaitOp, CollectiveOpInterface, tile::LaunchOp,
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
          .Case<LinearOp, LinearAddOp, LinearGradDataOp, LinearGradWeightOp, MoeGroupedLinearOp,
                MoeGroupedLinearGradDataOp, MoeGroupedLinearGradWeightOp>([](auto) { return outlineLinear; })
          .Case<HeadLinearOp>([](auto) -> Family {
            return [](Operation *op, OutlineContext &context) {
              return outlineHeadLinear(cast<HeadLinearOp>(op), context);
            };
          })
          .Case<HeadLinearGradWeightOp>([](auto) -> Family {
            return [](Operation *op, OutlineContext &context) {
              return outlineHeadLinearGradWeight(cast<HeadLinearGradWeightOp>(op), context);
            };
          })
          .Case<EmbedOp, EmbedGradOp>([](auto) { return outlineEmbed; })
          .Case<CrossEntropyOp, CrossEntropyGradOp, LinearCrossEntropyOp, LinearCrossEntropyGradOp, LinearLossPartOp,
                LinearLossPartGradOp, LinearScoresOp, SumOp, SumGradOp>([](auto) { return outlineLoss; })
          .Case<DocumentsOp, ScaleDocumentsOp, SliceOp, ConcatOp, InsertOp, ShardOp, LocalIdsOp, LastTokenOp,
                arith::ConstantOp>([](auto) { return outlineStructure; })
          .Case<MoePlanOp, MoePlanReceivedOp>([](auto) { return outlineMoePlan; })
          .Case<MoeDispatchOp, MoePermuteOp, MoeCombineOp, MoeCombineGradOp, MoeRowWeightsOp, MoeRowWeightsGradOp,
                MoeGroupBiasOp, MoeGroupBiasGradOp>([](auto) { return outlineMoe; })
          .Case<MoeDropOp>([](auto) { return outlineMoeDrop; })
          .Case<SumSquaresOp, ClipScaleOp, AdamwOp, AddOp>([](auto) { return outlineTrain; })
          .Case<InitOp>([](auto) { return outlineInit; })
          .Case<ShortConvOp, ShortConvGradOp>([](auto) -> Family {
            return [](Operation *op, OutlineContext &context) { return outlineConvolution(op, {}, context); };
          })
          .Case<AttnCausalOp, AttnCausalGradOp, AttnSinkGradOp, AttnMergeOp, AttnAppendOp>(
              [](auto) { return outlineAttention; })
          .Default([](Operation *op) -> Family {
            StringRef name = op->getName().getStringRef();
            return name.starts_with("braid.lsm.inner_") ? outlineInner
                   : name.starts_with("braid.lsm.")     ? outlineLsm
                                                        : nullptr;
          });
  if (!family)
    return op->emitOpError("has no kernel");
  return family(op, context);
}

/// A launch or library call that an op became, and how often a run of the op executes it.
struct Piece {
  Operation *op;
  int64_t times;
};

void collectPieces(Operation *op, Operation *end, int64_t times, SmallVectorImpl<Piece> &pieces) {
  for (; op && op != end; op = op->getNextNode())
    if (auto repeat = dyn_cast<RepeatOp>(op))
      collectPieces(&repeat.getBody().front().front(), nullptr, times * repeat.getCount(), pieces);
    else if (isa<tile::LaunchOp, tile::GemmOp, tile::GroupedGemmOp>(op))
      pieces.push_back({op, times});
}

/// The launches and library calls from `begin` to `end` share what CountWork counted for the op they came from: FLOPs
/// by the sizes of the products where there are library calls, all else by the bytes that each touches. The shares add
/// up to the whole (but for rounding in repeats).
void shareWork(cmd::WorkAttr work, Operation *begin, Operation *end) {
  SmallVector<Piece> pieces;
  collectPieces(begin, end, 1, pieces);
  auto touched = [](Operation *op) {
    double bytes = 0;
    for (Value value : llvm::concat<Value>(llvm::to_vector(op->getOperands()), llvm::to_vector(op->getResults())))
      bytes += cmd::tensorBytes(cast<RankedTensorType>(value.getType()));
    return bytes;
  };
  auto multiplies = [](Operation *op) { return !isa<tile::LaunchOp>(op) || op->hasAttr(kProductsAttr); };
  bool library = llvm::any_of(pieces, [&](const Piece &piece) { return multiplies(piece.op); });
  // m k, k n and m n elements: the root of their product is m n k (times the root of the number of groups, equal for
  // all).
  auto size = [&](Operation *op) {
    if (auto products = op->getAttrOfType<IntegerAttr>(kProductsAttr))
      return static_cast<double>(products.getInt());
    if (!library)
      return touched(op);
    return isa<tile::LaunchOp>(op)
               ? 0.0
               : std::sqrt(double(product(shapeOf(op->getOperand(0)))) * double(product(shapeOf(op->getOperand(1)))) *
                           double(product(shapeOf(op->getResult(0)))));
  };
  double allSizes = 0, allTouched = 0;
  for (const Piece &piece : pieces) {
    allSizes += size(piece.op) * piece.times;
    allTouched += touched(piece.op) * piece.times;
  }
  int64_t flops = work.getFlops(), bytes = work.getBytes();
  auto take = [](int64_t &left, double part, bool last, int64_t whole) {
    int64_t own = last ? left : std::min<int64_t>(left, std::llround(part * whole));
    left -= own;
    return own;
  };
  for (const Piece &piece : pieces) {
    bool last = piece.op == pieces.back().op;
    double ofSizes = size(piece.op) * piece.times / std::max(allSizes, 1.0);
    double ofTouched = touched(piece.op) * piece.times / std::max(allTouched, 1.0);
    int64_t ownFlops = take(flops, ofSizes, last && (!library || ofSizes > 0), work.getFlops());
    int64_t ownBytes = take(bytes, ofTouched, last, work.getBytes());
    double fixed = static_cast<double>(work.getFixed()) / std::max<double>(work.getBytes(), 1);
    int64_t each = ownBytes / piece.times;
    piece.op->setAttr(cmd::kWorkAttr,
                      cmd::WorkAttr::get(piece.op->getContext(), work.getOp(), ownFlops / piece.times, each,
                                         work.getChoice(), work.getRows(), static_cast<int64_t>(fixed * each)));
    piece.op->removeAttr(kProductsAttr);
  }
}

/// A sum that the kernel of a combination makes is neither written in between nor read again.
void joinWork(MoeCombineOp combine, AddOp add) {
  auto work = combine->getAttrOfType<cmd::WorkAttr>(cmd::kWorkAttr),
       other = add->getAttrOfType<cmd::WorkAttr>(cmd::kWorkAttr);
  if (!work || !other)
    return;
  int64_t saved = 2 * cmd::tensorBytes(cast<RankedTensorType>(combine.getY().getType()));
  combine->setAttr(cmd::kWorkAttr,
                   cmd::WorkAttr::get(combine.getContext(), work.getOp(), work.getFlops() + other.getFlops(),
                                      work.getBytes() + other.getBytes() - saved, work.getChoice(), work.getRows(),
                                      std::max<int64_t>(work.getFixed() + other.getBytes() - saved, 0)));
}

/// A convolution, or the gradient of one, with the ops that FuseRows has put beside it. What stands between them is in no memory, nor is the sum of taps that a
/// gradient makes again.
LogicalResult outlineEnded(Operation *op, OutlineContext &context) {
  Attribute number = op->getAttr(kClusterAttr);
  SmallVector<Operation *> cluster;
  for (Operation &other : *op->getBlock())
    if (isRowsOp(&other) && other.getAttr(kClusterAttr) == number)
      cluster.push_back(&other);
  auto work = op->getAttrOfType<cmd::WorkAttr>(cmd::kWorkAttr),
       rows = cluster.front()->getAttrOfType<cmd::WorkAttr>(cmd::kWorkAttr);
  cluster.front()->removeAttr(cmd::kWorkAttr);
  bool gradient = isa<ShortConvGradOp>(op);
  int64_t between =
      cmd::tensorBytes(cast<RankedTensorType>((gradient ? op->getOperand(4) : op->getResult(0)).getType()));
  if (work && rows)
    work = cmd::WorkAttr::get(
        op->getContext(), work.getOp().str() + " + " + rows.getOp().str(), work.getFlops() + rows.getFlops(),
        work.getBytes() + rows.getBytes() - (gradient ? 3 : 2) * between,
        work.getChoice().str() + "; in its registers: " + rows.getOp().str(), work.getRows(), work.getFixed());
  Operation *after = op->getNextNode(), *before = op->getPrevNode();
  while (before && llvm::is_contained(cluster, before))
    before = before->getPrevNode();
  while (after && llvm::is_contained(cluster, after))
    after = after->getNextNode();
  Block &block = *op->getBlock();
  if (failed(outlineConvolution(op, cluster, context)))
    return failure();
  if (work)
    shareWork(work, before ? before->getNextNode() : &block.front(), after);
  return success();
}

LogicalResult outlineBlock(Block &block, OutlineContext &context) {
  packCollectives(block, context);
  for (auto combine : block.getOps<MoeCombineOp>())
    if (AddOp add = addBehind(combine, context))
      joinWork(combine, add);
  // Gradients first: a convolution that only they make again is none.
  for (auto grad : llvm::to_vector(block.getOps<ShortConvGradOp>()))
    if (grad->hasAttr(kClusterAttr) && failed(outlineEnded(grad, context)))
      return failure();
  for (auto conv : llvm::to_vector(block.getOps<ShortConvOp>()))
    if (conv->use_empty())
      conv->erase();
    else if (conv->hasAttr(kClusterAttr) && failed(outlineEnded(conv, context)))
      return failure();
  DenseSet<Operation *> ended; // with the product that they read
  for (ArrayRef<Operation *> unit : outlineUnits(block)) {
    if (ended.contains(unit.front()))
      continue;
    if (unit.size() == 1 && isa<AddOp>(unit.front()) && unit.front()->use_empty()) { // made elsewhere
      unit.front()->erase();
      continue;
    }
    FailureOr<bool> ends = endProducts(unit.front(), ended, context);
    if (failed(ends))
      return failure();
    if (*ends)
      continue;
    auto work = unit.front()->getAttrOfType<cmd::WorkAttr>(cmd::kWorkAttr);
    unit.front()->removeAttr(cmd::kWorkAttr); // the attributes of row-wise ops are part of their kernel's name
    Operation *before = unit.front()->getPrevNode(), *after = unit.back()->getNextNode();
    bool beside = context.beside && isa<LinearGradWeightOp, MoeGroupedLinearGradWeightOp>(unit.front());
    if (failed(isRowsOp(unit.front()) ? outlineRows(unit, context) : outlineOne(unit.front(), context)))
      return failure();
    Operation *begin = before ? before->getNextNode() : &block.front();
    if (work)
      shareWork(work, begin, after);
    for (Operation *op = begin; beside && op && op != after; op = op->getNextNode())
      if (isa<tile::LaunchOp, tile::GemmOp, tile::GroupedGemmOp>(op))
        op->setAttr(cmd::kBesideAttr, context.rewriter.getUnitAttr());
  }
  return success();
}

struct OutlinePass : impl::OutlinePassBase<OutlinePass> {
  using OutlinePassBase::OutlinePassBase;
  void runOnOperation() override {
    ModuleOp module = getOperation();
    OutlineContext context(module);
    context.gpu = gpu;
    context.boxes = boxes;
    context.warpgroups = warpgroups;
    context.cublaslt = cublaslt;
    context.beside = beside;
    context.f32Parts = f32Parts;
    handSquares(context);
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
