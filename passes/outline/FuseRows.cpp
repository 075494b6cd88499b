//===- FuseRows.cpp - which row-wise ops share a kernel -----------------------------------------------------------===//
// Greedy, in block order. A cluster stands at one position of its block: an op joins either by moving the cluster down
// to itself (no outside user of a member stands before it) or by moving up to the cluster (all its other operands are
// defined before it). A weight that both read is no reason: slices of one layer would share kernels, another one for
// each overlap degree. Ops that sum over rows share a kernel where they sum in equal blocks. Then SSA dominance is the
// whole legality; a result that is a sum over rows is never used inside.
// Before that, what a GPU's kernels of convolutions make beside them (analysis/ConvEnds) gets the number of the convolution, next to which it stands.
#include "dialects/braid/PassAttributes.h"
#include "mlir/IR/IRMapping.h"
#include "passes/Passes.h"
#include "passes/analysis/ConvEnds.h"
#include "passes/outline/RowsCluster.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;

namespace braid {

TokenKind rowsOperandKind(Operation *op, unsigned index) { return cast<TokenOpInterface>(op).operandKind(index); }
TokenKind rowsResultKind(Operation *op, unsigned index) { return cast<TokenOpInterface>(op).resultKind(index); }

ArrayRef<int64_t> rowDims(Operation *op) {
  for (unsigned i = 0; i < op->getNumOperands(); ++i)
    if (rowsOperandKind(op, i) == TokenKind::token) {
      auto shape = cast<RankedTensorType>(op->getOperand(i).getType()).getShape();
      return shape.take_front(2);
    }
  return {};
}

bool isElementwise(Operation *op) {
  StringRef name = op->getName().getStringRef();
  if (auto grad = dyn_cast<RowsGradOp>(op))
    name = grad.getOp();
  static constexpr StringLiteral names[] = {"braid.add",        "braid.mul",         "braid.scale",
                                            "braid.activation", "braid.log_sigmoid", "braid.cast"};
  if (!llvm::is_contained(names, name))
    return false;
  auto shape = [](Type type) { return cast<RankedTensorType>(type).getShape(); };
  ArrayRef<int64_t> first = shape(op->getOperand(0).getType());
  return llvm::all_of(op->getOperandTypes(), [&](Type t) { return shape(t) == first; }) &&
         llvm::all_of(op->getResultTypes(), [&](Type t) { return shape(t) == first; });
}

#define GEN_PASS_DEF_FUSEROWSPASS
#include "passes/Passes.h.inc"

namespace {

/// Bytes of all sums of a block of threads on a GPU, in f32: 12 registers of each of its threads.
constexpr int64_t kMostSummed = 6144;

struct Cluster {
  SmallVector<Operation *> members; // in block order
  int64_t position; // index of the anchor, a member
  Operation *anchor;
  llvm::SetVector<Value> values; // operands and results
  DenseSet<Value> rows; // those that have the rows
  int64_t rowBytes = 0; // of the widest of them
  int64_t rowsOfSum = 0; // of those members that sum over rows
  int64_t summed = 0; // bytes of a row that these add up
};

/// Of one row of a value, in the type that kernels compute in.
int64_t rowBytesOf(Value value) {
  auto type = cast<RankedTensorType>(value.getType());
  int64_t elements = 1;
  for (int64_t size : type.getShape().drop_front(std::min<int64_t>(2, type.getRank())))
    elements *= size;
  return elements * std::max<int64_t>(4, type.getElementTypeBitWidth() / 8);
}

class Fuser {
public:
  Fuser(Block &block, int64_t maxOps, int64_t maxValues, int64_t maxBytes, int64_t maxSummed)
      : block(block), maxOps(maxOps), maxValues(maxValues), maxBytes(maxBytes), maxSummed(maxSummed) {}

  void run(int64_t &nextId) {
    for (auto [i, op] : llvm::enumerate(block))
      index[&op] = i;
    for (Operation &op : block) {
      if (isa<CommStartOp, CommAwaitOp, CollectiveOpInterface>(op))
        open.clear(); // communication keeps its place
      if (isRowsOp(&op))
        place(&op);
    }
    Builder b(block.getParentOp()->getContext());
    for (auto &cluster : clusters) {
      if (cluster->members.size() < 2)
        continue;
      auto attr = b.getI64IntegerAttr(nextId++);
      Operation *last = cluster->anchor;
      bool after = false;
      for (Operation *op : cluster->members) {
        op->setAttr(kClusterAttr, attr);
        if (op == cluster->anchor) {
          after = true;
        } else if (after) {
          op->moveAfter(last);
          last = op;
        } else {
          op->moveBefore(cluster->anchor);
        }
      }
    }
  }

private:
  int64_t position(Operation *op) {
    Cluster *cluster = owner.lookup(op);
    return cluster ? cluster->position : index.lookup(op);
  }
  Operation *producer(Value v) {
    Operation *op = v.getDefiningOp();
    return op && op->getBlock() == &block ? op : nullptr;
  }

  void place(Operation *op) {
    if (op->hasAttr(attrs::partialSum) || op->hasAttr(kClusterAttr))
      return;
    for (Cluster *cluster : llvm::reverse(open))
      if (related(op, *cluster) && join(op, *cluster))
        return;
    auto cluster = std::make_unique<Cluster>();
    cluster->position = index.lookup(op);
    cluster->anchor = op;
    adopt(op, *cluster);
    open.push_back(cluster.get());
    clusters.push_back(std::move(cluster));
  }

  void adopt(Operation *op, Cluster &cluster) {
    cluster.members.push_back(op);
    cluster.values.insert(op->operand_begin(), op->operand_end());
    cluster.values.insert(op->result_begin(), op->result_end());
    for (OpOperand &operand : op->getOpOperands())
      if (rowsOperandKind(op, operand.getOperandNumber()) == TokenKind::token)
        cluster.rows.insert(operand.get());
    cluster.rows.insert(op->result_begin(), op->result_end());
    cluster.rowBytes = std::max(cluster.rowBytes, widestRow(op));
    owner[op] = &cluster;
    if (int64_t rows = rowsOfSum(op)) {
      cluster.rowsOfSum = rows;
      cluster.summed += widestRow(op);
    }
  }

  static int64_t widestRow(Operation *op) {
    int64_t bytes = 0;
    for (OpOperand &operand : op->getOpOperands())
      if (rowsOperandKind(op, operand.getOperandNumber()) == TokenKind::token)
        bytes = std::max(bytes, rowBytesOf(operand.get()));
    return bytes;
  }

  bool related(Operation *op, Cluster &cluster) {
    int64_t rows = rowsOfSum(op);
    return (!rows || !cluster.rowsOfSum ||
            (rows == cluster.rowsOfSum && cluster.summed + widestRow(op) <= maxSummed)) &&
           static_cast<int64_t>(cluster.members.size()) < maxOps &&
           static_cast<int64_t>(cluster.values.size()) < maxValues &&
           static_cast<int64_t>(cluster.values.size() + op->getNumResults()) *
                   std::max(cluster.rowBytes, widestRow(op)) <
               maxBytes &&
           rowDims(op) == rowDims(cluster.anchor) &&
           llvm::any_of(
               op->getOpOperands(),
               [&](OpOperand &operand) {
                 return rowsOperandKind(op, operand.getOperandNumber()) == TokenKind::token &&
                        cluster.rows.contains(operand.get());
               });
  }

  bool join(Operation *op, Cluster &cluster) {
    // A whole operand and a sum over rows exist only before and after the kernel.
    for (auto [i, operand] : llvm::enumerate(op->getOperands())) {
      Operation *source = producer(operand);
      if (!source || owner.lookup(source) != &cluster)
        continue;
      if (rowsOperandKind(op, i) != TokenKind::token ||
          rowsResultKind(source, cast<OpResult>(operand).getResultNumber()) == TokenKind::piece)
        return false;
    }
    if (canSink(op, cluster)) {
      cluster.position = index.lookup(op);
      cluster.anchor = op;
    } else if (!canRise(op, cluster)) {
      return false;
    }
    adopt(op, cluster);
    return true;
  }

  bool canSink(Operation *op, Cluster &cluster) {
    int64_t here = index.lookup(op);
    for (Operation *member : cluster.members)
      for (Operation *user : member->getUsers()) {
        Operation *ancestor = block.findAncestorOpInBlock(*user);
        if (ancestor && ancestor != op && owner.lookup(ancestor) != &cluster && position(ancestor) < here)
          return false;
      }
    return true;
  }

  bool canRise(Operation *op, Cluster &cluster) {
    return llvm::all_of(op->getOperands(), [&](Value v) {
      Operation *source = producer(v);
      return !source || owner.lookup(source) == &cluster || position(source) < cluster.position;
    });
  }

  Block &block;
  int64_t maxOps, maxValues, maxBytes, maxSummed;
  llvm::DenseMap<Operation *, int64_t> index;
  llvm::DenseMap<Operation *, Cluster *> owner;
  std::vector<std::unique_ptr<Cluster>> clusters;
  SmallVector<Cluster *> open;
};

/// Gradients first: what they make again nobody else need read.
void endConvolutions(Block &block, int64_t &nextId) {
  Builder b(block.getParentOp()->getContext());
  DenseSet<Operation *> gradients;
  for (auto grad : llvm::to_vector(block.getOps<ShortConvGradOp>())) {
    std::optional<ConvGradEnd> end = convGradEnd(grad);
    if (!end)
      continue;
    Attribute number = b.getI64IntegerAttr(nextId++);
    IRMapping again;
    auto take = [&](Operation *op) {
      op->setAttr(kClusterAttr, number);
      gradients.insert(op);
    };
    grad->setAttr(kClusterAttr, number);
    OpBuilder at(grad);
    for (Operation *op : end->ops) {
      if (!isa<RowsGradOp>(op)) { // others may read it, too
        take(at.clone(*op, again));
        continue;
      }
      for (OpOperand &operand : op->getOpOperands())
        operand.set(again.lookupOrDefault(operand.get()));
      op->moveBefore(grad);
      take(op);
    }
    for (RowsGradOp sum : end->sums) {
      for (OpOperand &operand : sum->getOpOperands())
        operand.set(again.lookupOrDefault(operand.get()));
      sum->moveBefore(grad);
      take(sum);
    }
    for (Operation *op : llvm::reverse(end->ops))
      if (op->use_empty())
        op->erase();
  }
  for (auto conv : llvm::to_vector(block.getOps<ShortConvOp>())) {
    SmallVector<Operation *> end = convEnd(conv, gradients);
    if (end.empty())
      continue;
    Attribute number = b.getI64IntegerAttr(nextId++);
    conv->setAttr(kClusterAttr, number);
    Operation *last = conv;
    for (Operation *op : end) {
      op->setAttr(kClusterAttr, number);
      op->moveAfter(last);
      last = op;
    }
  }
}

struct FuseRowsPass : impl::FuseRowsPassBase<FuseRowsPass> {
  using FuseRowsPassBase::FuseRowsPassBase;
  void runOnOperation() override {
    int64_t nextId = 0;
    getOperation().walk([&](func::FuncOp func) {
      SmallVector<Block *> blocks;
      func.walk([&](Block *block) { blocks.push_back(block); });
      for (Block *block : blocks) {
        if (gpu)
          endConvolutions(*block, nextId);
        Fuser(*block, maxOps, maxValues, maxBytes, gpu ? kMostSummed : INT64_MAX).run(nextId);
      }
    });
  }
};

} // namespace
} // namespace braid
