//===- ConvEnds.cpp -----------------------------------------------------------------------------------------------===//
#include "passes/analysis/ConvEnds.h"

using namespace mlir;

namespace braid {
namespace {

RankedTensorType typeOf(Value value) { return cast<RankedTensorType>(value.getType()); }

bool hasAllFeatures(Value whole, RankedTensorType type) {
  return typeOf(whole).getNumElements() == ShapedType::getNumElements(type.getShape().drop_front(2));
}

/// What ends convolutions of so many taps, and so many channels on a rank, over tokens like these.
struct Ends {
  Ends(ShortConvOp conv, std::optional<int64_t> channels = std::nullopt)
      : type(typeOf(conv.getY())), taps(typeOf(conv.getWeight()).getDimSize(1)),
        channels(channels.value_or(typeOf(conv.getWeight()).getDimSize(0))) {}
  RankedTensorType type;
  int64_t taps, channels;

  bool with(Operation *op) const;
  bool sumsHeads() const;
};

/// Whether the channels of a head are those of neighbouring lanes of one warp.
bool Ends::sumsHeads() const {
  constexpr int64_t warp = 32, least = 16;
  int64_t each = convChannelsEach(channels, taps), head = type.getShape().back(), lanes = head / each;
  return each > 1 && type.getRank() > 2 && type.getElementTypeBitWidth() <= 32 && head % least == 0 &&
         llvm::isPowerOf2_64(static_cast<uint64_t>(lanes)) && lanes <= warp;
}

/// Element by element, but for sums over heads.
bool Ends::with(Operation *op) const {
  if (auto bias = dyn_cast<BiasOp>(op))
    return bias.getX().getType() == type && bias.getResult().getType() == type && hasAllFeatures(bias.getBias(), type);
  if (auto activation = dyn_cast<ActivationOp>(op))
    return activation.getX().getType() == type && activation.getResult().getType() == type;
  if (auto norm = dyn_cast<L2NormOp>(op))
    return norm.getX().getType() == type && norm.getResult().getType() == type && sumsHeads();
  auto grad = dyn_cast<RowsGradOp>(op);
  bool fits = grad && (grad.getOp() == ActivationOp::getOperationName() ||
                       (grad.getOp() == L2NormOp::getOperationName() && sumsHeads()));
  return fits && grad->getNumResults() == 1 &&
         llvm::all_of(op->getOperandTypes(), [&](Type other) { return other == type; }) &&
         grad->getResult(0).getType() == type;
}

/// What stands between the sum and its cotangent: what comes from memory is one cotangent.
struct Path {
  Path(ShortConvOp conv) : from(conv.getY()), ends(conv), block(conv->getBlock()) {}
  Value from;
  Ends ends;
  Block *block;
  llvm::DenseMap<Operation *, bool> known;
  SmallVector<Operation *> ops;

  bool leadsTo(Value value) {
    if (value == from)
      return true;
    Operation *op = value.getDefiningOp();
    if (!op || op->getBlock() != block || !ends.with(op))
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
  bool hasOneCotangent() const {
    llvm::SmallDenseSet<Value> read;
    for (Operation *op : ops)
      for (Value operand : op->getOperands())
        if (operand != from && operand.getType() == ends.type && !llvm::is_contained(ops, operand.getDefiningOp()))
          read.insert(operand);
    return read.size() == 1;
  }
};

} // namespace

int64_t convChannelsEach(int64_t channels, int64_t taps) {
  constexpr int64_t held = 16;
  for (int64_t each = 4; each > 1; each /= 2)
    if (each * taps <= held && channels % (kConvThreads * each) == 0)
      return each;
  return 1;
}

SmallVector<Operation *> convEnd(ShortConvOp conv, const DenseSet<Operation *> &gradients,
                                 std::optional<int64_t> channels) {
  SmallVector<Operation *> ops;
  Ends ends(conv, channels);
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
    if (!next || next->getBlock() != conv->getBlock() || isa<RowsGradOp>(next) || !ends.with(next) ||
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
  Path path(end.conv);
  RankedTensorType type = path.ends.type;
  if (dy.getType() != type || !path.leadsTo(dy) || dy == end.conv.getY() || !path.hasOneCotangent())
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
