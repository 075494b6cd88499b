//===- LayerTasks.cpp - which task of a pipeline an op belongs to -------------------------------------------------===//
#include "passes/overlap/LayerTasks.h"

#include "passes/analysis/ExpertRows.h"
#include "passes/analysis/Mesh.h"
#include "passes/analysis/Tensors.h"
#include "passes/analysis/Work.h"
#include "passes/overlap/SliceLayer.h"
#include "passes/shard/Sequence.h"

using namespace mlir;
using namespace braid;

bool braid::isDataExchange(Operation *op) {
  auto exchange = dyn_cast<CommAllToAllOp>(op);
  return exchange && exchange.getSendCounts();
}

bool braid::isCountExchange(Operation *op) {
  auto exchange = dyn_cast<CommAllToAllOp>(op);
  return exchange && !exchange.getSendCounts() && typeOf(exchange.getX()).getElementType().isInteger(32);
}

static bool isCollectiveOf(Operation *op, StringRef axis, CollectiveKind kind) {
  auto collective = dyn_cast<CollectiveOpInterface>(op);
  return collective && collective.getKind() == kind && collective.getAxisAttr().getValue() == axis;
}

bool braid::isRowSharing(Operation *op) {
  if (isCollectiveOf(op, "etp", CollectiveKind::all_gather)) {
    Operation *rows = op->getOperand(0).getDefiningOp();
    return rows && isDataExchange(rows);
  }
  return isCollectiveOf(op, "etp", CollectiveKind::reduce_scatter) && llvm::any_of(op->getUsers(), isDataExchange);
}

bool braid::isCountGather(Operation *op) {
  if (!isCollectiveOf(op, "etp", CollectiveKind::all_gather))
    return false;
  Operation *counts = op->getOperand(0).getDefiningOp();
  return counts && isCountExchange(counts);
}

bool braid::isBackwardLayer(func::FuncOp layer) {
  return hasOp(layer, [](Operation *op) {
    return isa<MoeCombineGradOp, MoeRowWeightsGradOp, LsmScanGradOp, LsmInnerStepGradOp, AttnCausalGradOp>(op);
  });
}

bool braid::isWeightGradient(Operation *op) {
  if (op->hasAttr(kFillerAttr))
    return true;
  auto tokens = dyn_cast<TokenOpInterface>(op);
  if (!tokens || op->getNumResults() == 0)
    return false;
  for (unsigned i = 0; i < op->getNumResults(); ++i)
    if (tokens.resultKind(i) != TokenKind::piece)
      return false;
  return true;
}

//===- Places -----------------------------------------------------------------------------------------------------===//

LayerTasks::LayerTasks(func::FuncOp layer, bool backward) {
  Block &body = layer.getBody().front();
  int64_t last = 0; // behind the last exchange
  for (Operation &op : body.without_terminator()) {
    int64_t level = 0;
    for (Value operand : op.getOperands())
      if (Operation *def = operand.getDefiningOp())
        level = std::max(level, places.at(def).level + (isDataExchange(def) ? 1 : 0));
    places[&op].level = level;
    if (isDataExchange(&op))
      last = std::max(last, level + 1);
  }
  count = std::max<int64_t>((last + 1) / 2, 1);
  // The first exchange that waits for an op, by level.
  DenseMap<Operation *, int64_t> needed;
  for (Operation &op : llvm::reverse(body.without_terminator())) {
    int64_t first = isDataExchange(&op) ? places.at(&op).level : last;
    for (Operation *user : op.getUsers())
      if (auto it = needed.find(user); it != needed.end())
        first = std::min(first, it->second);
    needed[&op] = first;
  }
  for (Operation &op : body.without_terminator()) {
    TaskPlace &place = places.at(&op);
    int64_t level = place.level, half = level / 2;
    bool odd = level % 2;
    place.independent = level < last && needed.at(&op) > level && !odd;
    if (isDataExchange(&op)) {
      place.kind = odd == backward ? TaskKind::D : TaskKind::C;
      place.block = backward ? count - 1 - half : half;
    } else if (odd) {
      place.kind = TaskKind::M;
      if (isRowSharing(&op)) // a gradient gathers what was scattered
        place.kind = isCollectiveOf(&op, "etp", CollectiveKind::all_gather) != backward ? TaskKind::G : TaskKind::R;
      place.block = backward ? count - 1 - half : half;
    } else if (backward) {
      place.kind = level > 0 ? TaskKind::A : TaskKind::rest;
      place.block = level > 0 ? count - half : count - 1;
    } else {
      place.kind = level < last ? TaskKind::A : TaskKind::rest;
      place.block = std::min(half, count - 1);
    }
    if (last == 0) // nothing travels: all is the mixer's
      place = {TaskKind::A, 0, 0, false};
    if (backward && isWeightGradient(&op))
      place.kind = place.kind == TaskKind::A ? TaskKind::WA : TaskKind::WM;
  }
}

//===- Times ------------------------------------------------------------------------------------------------------===//

static bool growsWithContext(Operation *op) {
  if (auto attention = dyn_cast<AttnCausalOp>(op))
    return !attention.getWindow();
  auto grad = dyn_cast<AttnCausalGradOp>(op);
  return grad && !grad.getWindow();
}

/// Ranks whose tokens an op will read beside its own: those that share its slices.
static int64_t sharingRanks(Operation *op, const Mesh &mesh) {
  auto place = op->getAttrOfType<DictionaryAttr>(kSequenceAttr);
  return place ? mesh.size(place.getAs<StringAttr>("axis").getValue()) : 1;
}

std::optional<schedule::AttentionCost> braid::attentionCostOf(func::FuncOp layer) {
  // Read from the heads, which forward and gradient have in common; those of all ranks, so that a mesh moves no bound.
  Mesh mesh = Mesh::of(layer->getParentOfType<ModuleOp>());
  int64_t ranks = mesh.size("tp");
  std::optional<schedule::AttentionCost> cost;
  layer.walk([&](Operation *op) {
    if (!growsWithContext(op))
      return WalkResult::advance();
    RankedTensorType q = typeOf(op->getOperand(0)); // [B, T, H, D]
    auto shared = [](auto attention) { return attention.getShared(); };
    ValueRange both = isa<AttnCausalOp>(op) ? shared(cast<AttnCausalOp>(op)) : shared(cast<AttnCausalGradOp>(op));
    // Features of keys and of values, on average: each has a product.
    int64_t keys = q.getDimSize(3) + (both.empty() ? 0 : typeOf(both[0]).getDimSize(3)),
            values = typeOf(op->getOperand(2)).getDimSize(3);
    cost = {ranks * q.getDimSize(2) * ((keys + values) / 2), ranks * q.getDimSize(2), sharingRanks(op, mesh)};
    return WalkResult::interrupt();
  });
  return cost;
}

/// Rows that there are when every expert gets as many, over rows that buffers have room for.
static double liveShare(func::FuncOp layer) {
  double share = 1;
  layer.walk([&](Operation *op) {
    Value ids, rows;
    if (auto dispatch = dyn_cast<MoeDispatchOp>(op))
      ids = dispatch.getInverse(), rows = dispatch->getResult(0);
    else if (auto grad = dyn_cast<MoeCombineGradOp>(op))
      ids = grad.getWeights(), rows = grad.getDrows();
    if (!ids || typeOf(rows).getRank() != 3)
      return WalkResult::advance();
    share = std::min(1.0, static_cast<double>(typeOf(ids).getNumElements()) /
                              static_cast<double>(typeOf(rows).getDimSize(0) * typeOf(rows).getDimSize(1)));
    return WalkResult::interrupt();
  });
  return share;
}

/// Chunks do not exist yet: products of 64 rows within chunks, and in and out of a state.
static double scanFlops(Operation *op) {
  auto count = [](Value v, Value k, double passes) {
    RankedTensorType type = typeOf(v);
    auto keys = static_cast<double>(typeOf(k).getShape().back()), values = static_cast<double>(type.getShape().back());
    return passes * 2 * static_cast<double>(type.getNumElements()) / values *
           (64 * (keys + values) + 2 * keys * values);
  };
  if (auto scan = dyn_cast<LsmScanOp>(op))
    return count(scan.getV(), scan.getK(), 1);
  if (auto grad = dyn_cast<LsmScanGradOp>(op))
    return count(grad.getV(), grad.getK(), 3);
  return 0;
}

std::vector<BlockSeconds> braid::secondsOf(func::FuncOp layer, bool backward, const Machine &machine) {
  LayerTasks tasks(layer, backward);
  std::vector<BlockSeconds> blocks(tasks.blocks());
  double live = liveShare(layer);
  ExpertRows experts(layer.getBody().front());
  Mesh mesh = Mesh::of(layer->getParentOfType<ModuleOp>());
  for (Operation &op : layer.getBody().front().without_terminator()) {
    const TaskPlace &place = tasks.of(&op);
    BlockSeconds &block = blocks[place.block];
    if (place.kind == TaskKind::D || place.kind == TaskKind::C) {
      RankedTensorType rows = typeOf(op.getOperand(0));
      double bytes = live * static_cast<double>(rows.getNumElements() * rows.getElementTypeBitWidth()) / 8;
      TaskSeconds &exchange = place.kind == TaskKind::D ? block.D : block.C;
      exchange.tokens += bytes / machine.linkBandwidth;
      exchange.fixed += machine.linkLatency;
      continue;
    }
    if (place.kind == TaskKind::G || place.kind == TaskKind::R) {
      // Nobody tells how many rows there are: all that the buffer has room for, of all ranks.
      RankedTensorType own = typeOf(op.getOperand(0)), other = typeOf(op.getResult(0));
      int64_t bits = std::max(own.getNumElements(), other.getNumElements()) * own.getElementTypeBitWidth();
      TaskSeconds &sharing = place.kind == TaskKind::G ? block.G : block.R;
      sharing.tokens += static_cast<double>(bits) / 8 / machine.linkBandwidth;
      sharing.fixed += machine.linkLatency;
      continue;
    }
    if (isa<ReshapeOp, SliceOp, ConcatOp, arith::ConstantOp, CollectiveOpInterface, ShardOp>(op))
      continue;
    Work work = workOf(&op, /*maxDocuments=*/1);
    bool products = isa<MoeGroupedLinearOp, MoeGroupedLinearGradDataOp, MoeGroupedLinearGradWeightOp>(op);
    bool rowWise = isa<RowsOpInterface, RowsGradOp>(op) && experts.reads(&op);
    double flops = static_cast<double>(work.flops) * (products || rowWise ? live : 1) + scanFlops(&op);
    double bytes = static_cast<double>(work.bytes) * (rowWise ? live : 1);
    if (growsWithContext(&op))
      flops *= static_cast<double>(sharingRanks(&op, mesh));
    TaskSeconds *task = nullptr;
    switch (place.kind) {
    case TaskKind::WA: task = &block.WA; break;
    case TaskKind::WM: task = &block.WM; break;
    case TaskKind::M: task = &block.M; break;
    case TaskKind::A: task = growsWithContext(&op) ? &block.attention : place.independent ? &block.M : &block.A; break;
    default: task = place.independent ? &block.M : nullptr;
    }
    if (!task)
      continue;
    task->tokens += std::max(flops / machine.flops, bytes / machine.bandwidth);
    task->fixed += machine.overhead;
    // What ranks exchange for a mixer stands in its way, and costs the same for every token.
    SliceExchange exchange = sliceExchange(&op, machine);
    TaskSeconds &waits = task == &block.attention ? block.A : *task;
    waits.tokens += exchange.tokens;
    waits.fixed += exchange.fixed;
  }
  return blocks;
}

schedule::Stages braid::stagesOf(ArrayRef<BlockSeconds> blocks, bool backward,
                                 const std::optional<schedule::AttentionCost> &cost, ArrayRef<int64_t> mixers,
                                 ArrayRef<int64_t> experts) {
  schedule::Stages stages;
  stages.direction = backward ? schedule::Direction::backward : schedule::Direction::forward;
  int64_t tokens = 0;
  for (int64_t slice : mixers)
    tokens += slice;
  auto share = [&](int64_t slice) { return static_cast<double>(slice) / static_cast<double>(tokens); };
  for (const BlockSeconds &seconds : blocks) {
    schedule::BlockTimes block;
    block.slices.assign(mixers.begin(), mixers.end());
    block.moeSlices.assign(experts.begin(), experts.end());
    int64_t begin = 0;
    for (int64_t slice : mixers) {
      double grows = cost ? cost->of(begin, begin + slice) / cost->of(0, tokens) : share(slice);
      block.A.push_back(seconds.A.of(share(slice)) + seconds.attention.of(grows));
      if (backward)
        block.WA.push_back(seconds.WA.of(share(slice)));
      begin += slice;
    }
    for (int64_t slice : experts) {
      block.D.push_back(seconds.D.of(share(slice)));
      block.M.push_back(seconds.M.of(share(slice)));
      block.C.push_back(seconds.C.of(share(slice)));
      for (auto [shared, times] : {std::pair(&seconds.G, &block.G), {&seconds.R, &block.R}})
        if (shared->of(1) > 0)
          times->push_back(shared->of(share(slice)));
      if (backward)
        block.WM.push_back(seconds.WM.of(share(slice)));
    }
    stages.blocks.push_back(std::move(block));
  }
  return stages;
}
