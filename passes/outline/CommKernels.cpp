//===- CommKernels.cpp - collectives whose parts do not lie one after the other -----------------------------------===//
// Ranks exchange memory in one piece. Parts along a dimension that has others before it are brought in rank order
// before a reduce_scatter, and from rank order behind an all_gather, by one kernel; the collective itself is then along
// dimension 0.
#include "passes/analysis/Timeline.h"
#include "passes/analysis/Views.h"
#include "passes/outline/OutlineFamilies.h"

using namespace mlir;

namespace braid {
namespace {

constexpr int64_t kBlock = 256;

/// y[b, a, :] = x[a, b, :], before `op`.
Value swapLeading(Operation *op, Value x, OutlineContext &context) {
  RankedTensorType type = tensorType(x);
  Type element = type.getElementType();
  int64_t a = type.getDimSize(0), b = type.getDimSize(1), size = type.getDimSize(2);
  std::string kernel = context.kernel("swap_leading_" + typeName(element), {"b", "a"}, [&](KernelBuilder &k) {
    Var x = k.buffer("x", element, {kDynamic, kDynamic, kDynamic}),
        y = k.buffer("y", element, {kDynamic, kDynamic, kDynamic});
    Var size = k.index("size"), b = k.program(0), a = k.program(1);
    k.loop(0, size, kBlock,
           [&](Var i) { k.store(k.load(x, {a, b, i}, {kBlock}, {.limit = size}), y, {b, a, i}, {.limit = size}); });
  });
  return context.launch(op, kernel, {b, a})
      .arg("x", x)
      .result("y", type.clone({b, a, size}))
      .index("size", size)
      .run()[0];
}

void pack(Operation *op, CollectiveKind kind, Operation *end, OutlineContext &context) {
  bool gather = kind == CollectiveKind::all_gather;
  auto dim = op->getAttrOfType<IntegerAttr>("dim");
  Value x = op->getOperand(0), result = end->getResult(0);
  if (!dim || isLeading(tensorType(x), dim.getInt()))
    return;
  Shape whole = shapeOf(gather ? result : x), part = shapeOf(gather ? x : result);
  int64_t outer = product(part.take_front(dim.getInt())), inner = product(part.drop_front(dim.getInt())),
          parts = whole[dim.getInt()] / part[dim.getInt()];
  Value sent =
      context.view(op, x, gather ? SmallVector<int64_t>{outer, inner} : SmallVector<int64_t>{outer, parts, inner});
  if (!gather)
    sent = context.view(op, swapLeading(op, sent, context), {parts * outer, inner});
  auto received = tensorType(x).clone({gather ? parts * outer : outer, inner});

  NamedAttrList attributes(op->getAttrs());
  attributes.set("dim", IntegerAttr::get(dim.getType(), 0));
  context.rewriter.setInsertionPoint(op);
  Type type = end == op ? Type(received) : FutureType::get(op->getContext(), {received});
  Value got =
      context.rewriter.create(op->getLoc(), op->getName().getIdentifier(), sent, type, attributes)->getResult(0);
  if (end != op) {
    context.rewriter.setInsertionPoint(end);
    got = CommAwaitOp::create(context.rewriter, end->getLoc(), TypeRange{received}, got).getResult(0);
  }
  if (gather)
    got = swapLeading(end, context.view(end, got, {parts, outer, inner}), context);
  context.replace(end, got);
  if (end != op)
    context.rewriter.eraseOp(op);
}

} // namespace

void packCollectives(Block &block, OutlineContext &context) {
  struct Collective {
    Operation *op;
    CollectiveKind kind;
    Operation *end; ///< who has its result
  };
  SmallVector<Collective> collectives;
  for (Operation &op : block) {
    if (auto whole = dyn_cast<CollectiveOpInterface>(op))
      collectives.push_back({&op, whole.getKind(), &op});
    else if (auto start = dyn_cast<CommStartOp>(op))
      if (CommAwaitOp await = awaitOf(start)) // else PlanMemory says what is missing
        collectives.push_back({&op, start.getKind(), await});
  }
  for (Collective collective : collectives)
    if (collective.kind == CollectiveKind::all_gather || collective.kind == CollectiveKind::reduce_scatter)
      pack(collective.op, collective.kind, collective.end, context);
}

} // namespace braid
