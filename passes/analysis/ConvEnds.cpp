//===- ConvEnds.cpp -----------------------------------------------------------------------------------------------===//
#include "passes/analysis/ConvEnds.h"

using namespace mlir;

namespace braid {
namespace {

RankedTensorType typeOf(Value value) { return cast<RankedTensorType>(value.getType()); }

bool hasAllFeatures(Value whole, RankedTensorType type) {
  return typeOf(whole).getNumElements() == ShapedType::getNumElements(type.getShape().drop_front(2));
}

/// Element by element over tokens like these.
bool endsWith(Operation *op, RankedTensorType type) {
  if (auto bias = dyn_cast<BiasOp>(op))
    return bias.getX().getType() == type && bias.getResult().getType() == type && hasAllFeatures(bias.getBias(), type);
  if (auto activation = dyn_cast<ActivationOp>(op))
    return activation.getX().getType() == type && activation.getResult().getType() == type;
  auto grad = dyn_cast<RowsGradOp>(op);
  return grad && grad.getOp() == ActivationOp::getOperationName() && grad->getNumResults() == 1 &&
         llvm::all_of(op->getOperandTypes(), [&](Type other) { return other == type; }) &&
         grad->getResult(0).getType() == type;
}

/// What stands between the sum and its cotangent.
struct Path {
  Path(Value from, Block *block) : from(from), block(block) {}
  Value from;
  Block *block;
  llvm::DenseMap<Operation *, bool> known;
  SmallVector<Operation *> ops;

  bool leadsTo(Value value) {
    if (value == from)
      return true;
    Operation *op = value.getDefiningOp();
    if (!op || op->getBlock() != block || !isa<RowsOpInterface, RowsGradOp>(op))
      return false;
    if (auto it = known.find(op); it != known.end())
      return it->second;
    bool found = false;
    for (Value operand : op->getOperands())
      found |= leadsTo(operand);
    if (found)
      ops.push_back(op);
    return known[op] = found;
  }
};

} // namespace

SmallVector<Operation *> convEnd(ShortConvOp conv, const DenseSet<Operation *> &gradients) {
  SmallVector<Operation *> ops;
  RankedTensorType type = typeOf(conv.getY());
  Value last = conv.getY();
  while (true) {
    Operation *next = nullptr;
    for (OpOperand &use : last.getUses()) {
      if (gradients.contains(use.getOwner()))
        continue;
      if (next)
        return ops;
      next = use.getOwner();
    }
    auto isThere = [&](Value operand) {
      Operation *maker = operand.getDefiningOp();
      return operand == last || operand.getParentBlock() != conv->getBlock() || !maker || maker->isBeforeInBlock(conv);
    };
    if (!next || next->getBlock() != conv->getBlock() || isa<RowsGradOp>(next) || !endsWith(next, type) ||
        !llvm::all_of(next->getOperands(), isThere))
      return ops;
    ops.push_back(next);
    last = next->getResult(0);
  }
}

std::optional<ConvGradEnd> convGradEnd(ShortConvGradOp grad) {
  ConvGradEnd end;
  Value dy = grad.getDy();
  for (Operation *user : grad.getX().getUsers())
    if (auto conv = dyn_cast<ShortConvOp>(user);
        conv && conv->getBlock() == grad->getBlock() && conv.getOperands() == grad.getOperands().take_front(4))
      end.conv = conv;
  if (!end.conv)
    return std::nullopt;
  Path path(end.conv.getY(), grad->getBlock());
  RankedTensorType type = typeOf(end.conv.getY());
  if (dy.getType() != type || !path.leadsTo(dy) || dy == end.conv.getY() ||
      !llvm::all_of(path.ops, [&](Operation *op) { return endsWith(op, type); }))
    return std::nullopt;
  end.ops = std::move(path.ops);
  for (Operation *user : dy.getUsers()) {
    auto sum = dyn_cast<RowsGradOp>(user);
    if (sum && sum.getOp() == BiasOp::getOperationName() && sum.getWanted().size() == 1 && sum.getWanted()[0] == 1 &&
        sum.getCotangents().front() == dy && hasAllFeatures(sum->getResult(0), type) &&
        typeOf(sum->getResult(0)).getElementTypeBitWidth() == std::max(32u, type.getElementTypeBitWidth()))
      end.sums.push_back(sum);
  }
  // Cotangents are in no memory, and sums there only behind the gradient.
  auto isOwn = [&](Operation *user) {
    return user == grad || llvm::is_contained(end.ops, user) || llvm::is_contained(end.sums, user);
  };
  auto isBehind = [&](Operation *user) {
    Operation *here = grad->getBlock()->findAncestorOpInBlock(*user);
    return here && grad->isBeforeInBlock(here);
  };
  bool alone =
      llvm::all_of(end.ops, [&](Operation *op) { return !isa<RowsGradOp>(op) || llvm::all_of(op->getUsers(), isOwn); });
  bool once = llvm::count(grad.getOperands(), dy) == 1;
  if (!alone || !once ||
      !llvm::all_of(end.sums, [&](RowsGradOp sum) { return llvm::all_of(sum->getUsers(), isBehind); }))
    return std::nullopt;
  return end;
}

} // namespace braid
