//===- Optimizer.cpp - gradients meet the other ranks -------------------------------------------------------------===//
// Once per step (phases-by-example D12), each rank getting the part whose moments it has (ZeRO-1): reduce_scatter where
// a gradient is made, an update of that part, all_gather of the parameter; small ones together in one all_reduce. Steps
// that only accumulate leave their sums pending. The norm counts every element once: a rank adds up the squares of what
// it has, and sums go over the axes that cut it.
#include "passes/analysis/Tensors.h"
#include "passes/shard/Sharder.h"

using namespace mlir;
using namespace braid;

/// Optimizer states are cut by what gradients are summed over, too, along the first dimension that divides. A few
/// numbers are not worth a message of their own: they are whole on every rank.
void Sharder::cutState(Placement &placement, RankedTensorType type, int64_t stackedDims, ArrayRef<StringRef> axes) {
  constexpr int64_t leastElements = 4096;
  int64_t elements = 1;
  for (int64_t dim = stackedDims, rank = type.getRank(); dim < rank; ++dim)
    elements *= type.getDimSize(dim) / parts(placement.dims[dim]);
  if (elements < leastElements)
    return;
  for (int64_t dim = stackedDims, rank = type.getRank(); dim < rank && !axes.empty(); ++dim)
    if (type.getDimSize(dim) / parts(placement.dims[dim]) % parts(axes) == 0) {
      placement.dims[dim].append(axes.begin(), axes.end());
      return;
    }
}

/// Gradients that are cut meet the other ranks where they are made, so that the rest of the backward runs meanwhile:
/// the op behind repeats and calls.
void Sharder::collectReduced(func::FuncOp entry) {
  std::vector<std::pair<Value, Placement>> open;
  for (auto update : entry.getBody().front().getOps<AdamwOp>())
    if (Placement to = placementOf(update.getFirst()); to != placementOf(update.getParameter()))
      open.push_back({update.getGradient(), to});
  while (!open.empty()) {
    auto [value, to] = open.back();
    open.pop_back();
    Operation *def = value.getDefiningOp();
    if (!def)
      continue; // summed up by steps before this one
    unsigned i = cast<OpResult>(value).getResultNumber();
    Value inner;
    if (auto repeat = dyn_cast<RepeatOp>(def)) {
      if (i < repeat.getCarried())
        continue;
      inner = cast<YieldOp>(repeat.getBody().front().getTerminator()).getValues()[i];
      to = to.dropFront();
    } else if (auto call = dyn_cast<func::CallOp>(def)) {
      auto callee = symbols.lookup<func::FuncOp>(call.getCallee());
      inner = callee.getBody().front().getTerminator()->getOperand(i);
    }
    if (!inner)
      reduced.try_emplace(value, to);
    else if (inner.hasOneUse())
      open.push_back({inner, to});
  }
}

LogicalResult Sharder::reduceHere(Operation &op, IRMapping &map, OpBuilder &builder) {
  for (Value result : op.getResults()) {
    auto known = reduced.find(result);
    if (known == reduced.end())
      continue;
    Value local = convert(builder, &op, map.lookup(result), known->second);
    if (!local)
      return failure();
    map.map(result, local);
  }
  return success();
}

/// Sums that are small, and pending over the same axes, in one message.
LogicalResult Sharder::reduceTogether(SumSquaresOp op, IRMapping &map, OpBuilder &builder) {
  std::vector<std::pair<Axes, SmallVector<Value>>> buckets; // logical gradients
  Location loc = op.getLoc();
  for (Value gradient : op.getXs()) {
    Value local = map.lookup(gradient);
    Placement now = placementOf(local);
    bool stays = true;
    for (Operation *user : gradient.getUsers())
      if (auto update = dyn_cast<AdamwOp>(user))
        stays &= placementOf(update.getFirst()).dims == now.dims;
    if (now.pending.empty() || !stays)
      continue;
    auto known = llvm::find_if(buckets, [&](auto &bucket) {
      return bucket.first == now.pending &&
             typeOf(map.lookup(bucket.second[0])).getElementType() == typeOf(local).getElementType();
    });
    if (known == buckets.end())
      buckets.push_back({now.pending, {gradient}});
    else
      known->second.push_back(gradient);
  }
  for (auto &[pending, gradients] : buckets) {
    if (gradients.size() < 2)
      continue;
    SmallVector<Value> flat;
    int64_t total = 0;
    for (Value gradient : gradients) {
      RankedTensorType type = typeOf(map.lookup(gradient));
      total += type.getNumElements();
      flat.push_back(ReshapeOp::create(builder, loc, type.clone({type.getNumElements()}), map.lookup(gradient)));
    }
    RankedTensorType one = typeOf(flat[0]).clone({total});
    Value bucket = ConcatOp::create(builder, loc, one, flat, 0);
    for (const Axes &run : productsOf(pending))
      bucket = collective(builder, bucket, run, CollectiveKind::all_reduce);
    int64_t begin = 0;
    for (Value gradient : gradients) {
      Value local = map.lookup(gradient);
      RankedTensorType type = typeOf(local);
      Placement complete = placementOf(local);
      complete.pending.clear();
      Value part = SliceOp::create(builder, loc, one.clone({type.getNumElements()}), bucket, 0, begin);
      begin += type.getNumElements();
      Value sum = ReshapeOp::create(builder, loc, type, part);
      place(sum, complete);
      map.map(gradient, sum);
    }
  }
  return success();
}

LogicalResult Sharder::rewriteSumSquares(SumSquaresOp op, IRMapping &map, OpBuilder &builder) {
  Location loc = op.getLoc();
  if (failed(reduceTogether(op, map, builder)))
    return failure();
  std::vector<std::pair<Axes, SmallVector<Value>>> groups; // gradients by the axes that cut them
  for (Value gradient : op.getXs()) {
    Value local = map.lookup(gradient);
    Placement to = placementOf(local);
    if (auto known = wanted.find(gradient); known != wanted.end())
      to.dims = known->second.dims;
    // A rank needs the part of which it has the moments.
    for (Operation *user : gradient.getUsers())
      if (auto update = dyn_cast<AdamwOp>(user))
        to.dims = placementOf(update.getFirst()).dims;
    to.pending.clear();
    Value resolved = convert(builder, op, local, to);
    if (!resolved)
      return failure();
    map.map(gradient, resolved);
    Axes cut = inMeshOrder(to.cuts());
    llvm::erase(cut, "pp"); // stages add up the sums of all they have (PipelineStages)
    auto known = llvm::find_if(groups, [&](auto &group) { return group.first == cut; });
    if (known == groups.end())
      groups.push_back({cut, {resolved}});
    else
      known->second.push_back(resolved);
  }
  Value total;
  for (auto &[cut, gradients] : groups) {
    Value part = SumSquaresOp::create(builder, loc, op.getResult().getType(), gradients);
    for (const Axes &run : productsOf(cut))
      part = collective(builder, part, run, CollectiveKind::all_reduce);
    total = total ? AddOp::create(builder, loc, part.getType(), ValueRange{total, part}).getResult() : part;
  }
  map.map(op.getResult(), total);
  return success();
}
