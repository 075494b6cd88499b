//===- SequenceTokens.cpp - documents, convolutions and attention along sp; collectives ---------------------------===//
#include "mlir/IR/SymbolTable.h"
#include "passes/analysis/Tensors.h"
#include "passes/analysis/Views.h"
#include "passes/shard/Sequence.h"
#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace braid;

//===- What is known of a module ----------------------------------------------------------------------------------===//

namespace {
/// Follows values through calls and repeats.
class Flow {
public:
  explicit Flow(ModuleOp module) : symbols(module) {
    module.walk([&](func::CallOp call) { calls[symbols.lookup<func::FuncOp>(call.getCallee())].push_back(call); });
  }

  bool isZero(Value v) {
    if (v.getDefiningOp())
      return braid::isZero(v);
    auto argument = cast<BlockArgument>(v);
    Operation *owner = argument.getOwner()->getParentOp();
    unsigned i = argument.getArgNumber();
    if (auto repeat = dyn_cast<RepeatOp>(owner))
      return i >= repeat.getCarried() && isZero(repeat.getInputs()[i]);
    auto found = calls.find(dyn_cast<func::FuncOp>(owner));
    return found != calls.end() &&
           llvm::all_of(found->second, [&](func::CallOp call) { return isZero(call.getOperand(i)); });
  }

  bool isRead(Value v) {
    return llvm::any_of(v.getUses(), [&](OpOperand &use) {
      unsigned i = use.getOperandNumber();
      Operation *user = use.getOwner();
      if (auto repeat = dyn_cast<RepeatOp>(user))
        return isRead(repeat.getBody().getArgument(i));
      if (isa<YieldOp>(user)) {
        auto repeat = cast<RepeatOp>(user->getParentOp());
        return i < repeat.getCarried() || isRead(repeat.getResult(i));
      }
      if (auto call = dyn_cast<func::CallOp>(user))
        return isRead(symbols.lookup<func::FuncOp>(call.getCallee()).getArgument(i));
      auto found = calls.find(user->getParentOfType<func::FuncOp>());
      if (!isa<func::ReturnOp>(user) || found == calls.end())
        return true;
      return llvm::any_of(found->second, [&](func::CallOp call) { return isRead(call.getResult(i)); });
    });
  }

private:
  SymbolTable symbols;
  DenseMap<func::FuncOp, SmallVector<func::CallOp>> calls;
};
} // namespace

SequenceFacts::SequenceFacts(ModuleOp module) {
  Flow flow(module);
  auto look = [&](ValueRange operands, ValueRange results) {
    for (Value operand : operands)
      if (flow.isZero(operand))
        zeros.insert(operand);
    for (Value result : results)
      if (!flow.isRead(result))
        unread.insert(result);
  };
  module.walk([&](Operation *op) {
    llvm::TypeSwitch<Operation *>(op)
        .Case([&](LsmScanOp o) { look(o.getInitialState(), o.getFinalState()); })
        .Case([&](LsmScanGradOp o) { look({o.getInitialState(), o.getDfinalState()}, o.getDinitialState()); })
        .Case([&](ShortConvOp o) { look(o.getTail(), o.getNewTail()); })
        .Case([&](ShortConvGradOp o) { look({o.getTail(), o.getDnewTail()}, o.getDtail()); });
  });
}

//===- Collectives ------------------------------------------------------------------------------------------------===//

Value SequenceSharder::gather(Location loc, Value x, int64_t dim, StringRef label) {
  RankedTensorType type = typeOf(x);
  auto op = CommAllGatherOp::create(builder, loc, withDim(type, dim, type.getDimSize(dim) * ranks), x, axis, dim);
  op->setAttr("label", builder.getStringAttr(label));
  return op;
}
Value SequenceSharder::reduceScatter(Location loc, Value x, int64_t dim, StringRef label) {
  RankedTensorType type = typeOf(x);
  auto op = CommReduceScatterOp::create(builder, loc, withDim(type, dim, type.getDimSize(dim) / ranks), x, axis, dim);
  op->setAttr("label", builder.getStringAttr(label));
  return op;
}
Value SequenceSharder::shift(Location loc, Value x, int64_t distance, bool reverse, StringRef label) {
  auto op = CommShiftOp::create(builder, loc, x.getType(), x, axis, distance, /*cyclic=*/false, reverse);
  op->setAttr("label", builder.getStringAttr(label));
  return op;
}

//===- Documents --------------------------------------------------------------------------------------------------===//

bool SequenceSharder::handles(Operation *op) {
  return isa<LsmScanOp, LsmScanGradOp, AttnCausalOp, AttnCausalGradOp, ShortConvOp, ShortConvGradOp, DocumentsOp,
             MoeDropOp>(op);
}

FailureOr<SmallVector<Value>> SequenceSharder::lower(Operation *op, ValueRange operands) {
  return llvm::TypeSwitch<Operation *, Results>(op)
      .Case([&](LsmScanOp o) { return scan(o, operands); })
      .Case([&](LsmScanGradOp o) { return scanGrad(o, operands); })
      .Case([&](AttnCausalOp o) { return attention(o, operands); })
      .Case([&](AttnCausalGradOp o) { return attentionGrad(o, operands); })
      .Case([&](ShortConvOp o) { return convolution(o, operands); })
      .Case([&](ShortConvGradOp o) { return convolutionGrad(o, operands); })
      .Case([&](DocumentsOp o) { return documents(o, operands); })
      // A row's order of assignments runs over its tokens on all ranks.
      .Case([&](MoeDropOp o) -> Results {
        return o.emitOpError() << "gives experts a capacity per row, whose tokens are on " << axis << " = " << ranks
                               << " ranks (--mesh); valid: drop_policy \"dropless\", or " << axis << "=1";
      });
}

FailureOr<SmallVector<Value>> SequenceSharder::documents(DocumentsOp op, ValueRange operands) {
  RankedTensorType type = typeOf(op.getResult());
  type = withDim(withDim(type, 0, typeOf(operands[0]).getDimSize(0)), 1, type.getDimSize(1) / ranks);
  return SmallVector<Value>{
      DocumentsOp::create(builder, op.getLoc(), type, operands[0], coordinate, op.getBeginAttr())};
}

//===- Convolutions -----------------------------------------------------------------------------------------------===//

static Value rowsOf(OpBuilder &builder, Location loc, Value x, int64_t begin, int64_t count) {
  return SliceOp::create(builder, loc, withDim(typeOf(x), 1, count), x, 1, begin);
}

/// The halo of a convolution comes from one rank: it must have that many tokens.
static LogicalResult checkHalo(Operation *op, int64_t tokens, int64_t halo, int64_t ranks) {
  if (tokens >= halo)
    return success();
  return op->emitOpError() << "looks back " << halo << " tokens, but each of " << ranks << " ranks (sp, --mesh) holds "
                           << tokens << " of a row; valid: at least " << halo << " tokens for each rank";
}

/// x [B, T, ..]: the last rows of the rank before this one, as the tail [B, halo, D].
static Value lastRows(OpBuilder &builder, Location loc, Value x, Type tail) {
  int64_t halo = cast<RankedTensorType>(tail).getDimSize(1);
  return ReshapeOp::create(builder, loc, tail, rowsOf(builder, loc, x, typeOf(x).getDimSize(1) - halo, halo));
}

FailureOr<SmallVector<Value>> SequenceSharder::convolution(ShortConvOp op, ValueRange operands) {
  Value x = operands[0], tail = operands[3];
  if (failed(checkHalo(op, typeOf(x).getDimSize(1), typeOf(tail).getDimSize(1), ranks)))
    return failure();
  if (!facts.isZero(op.getTail()) || facts.isRead(op.getNewTail()))
    return op.emitOpError() << "continues or is continued by another row, which " << axis << " = " << ranks
                            << " ranks (--mesh) do not pass on";
  Value halo = shift(op.getLoc(), lastRows(builder, op.getLoc(), x, tail.getType()), 1, false, "conv.halo");
  auto y = RankedTensorType::get(typeOf(x).getShape(), typeOf(op.getY()).getElementType());
  auto conv = ShortConvOp::create(builder, op.getLoc(), y, tail.getType(), x, operands[1], operands[2], halo);
  return SmallVector<Value>{conv.getY(), conv.getNewTail()};
}

/// What the next rank's first rows ask of this rank's last ones is their tail's cotangent: those few rows come first.
FailureOr<SmallVector<Value>> SequenceSharder::convolutionGrad(ShortConvGradOp op, ValueRange operands) {
  Location loc = op.getLoc();
  Value x = operands[0], weight = operands[1], documents = operands[2], dy = operands[4];
  RankedTensorType tail = typeOf(operands[3]), dTail = typeOf(operands[5]);
  int64_t halo = tail.getDimSize(1);
  if (failed(checkHalo(op, typeOf(x).getDimSize(1), halo, ranks)))
    return failure();
  if (!facts.isZero(op.getTail()) || !facts.isZero(op.getDnewTail()) || facts.isRead(op.getDtail()))
    return op.emitOpError() << "continues or is continued by another row, which " << axis << " = " << ranks
                            << " ranks (--mesh) do not pass on";
  Value before = shift(loc, lastRows(builder, loc, x, tail), 1, false, "conv.halo");
  auto like = [&](Value result, Value operand) {
    return RankedTensorType::get(typeOf(operand).getShape(), typeOf(result).getElementType());
  };
  Value first = rowsOf(builder, loc, x, 0, halo);
  RankedTensorType dWeight = like(op.getDweight(), weight);
  auto early = ShortConvGradOp::create(builder, loc, like(op.getDx(), first), dWeight, dTail, first, weight,
                                       rowsOf(builder, loc, documents, 0, halo), before,
                                       rowsOf(builder, loc, dy, 0, halo), operands[5]);
  Value behind = shift(loc, early.getDtail(), 1, /*reverse=*/true, "conv.halo_grad");
  auto grad = ShortConvGradOp::create(builder, loc, like(op.getDx(), x), dWeight, dTail, x, weight, documents, before,
                                      dy, behind);
  return SmallVector<Value>(grad->getResults());
}

//===- Attention --------------------------------------------------------------------------------------------------===//

namespace {
/// What every rank does for one op: who sends keys how.
struct AttentionPlan {
  enum Kind { gathered, neighbours, blocks } kind;
  int64_t before; ///< ranks whose keys the tokens of a rank may see, besides its own
};
} // namespace

/// A window that ends before the first rank's keys needs those of the nearest only.
static AttentionPlan planAttention(int64_t window, int64_t tokens, int64_t ranks, SpAlgorithm algorithm) {
  int64_t before = ranks - 1;
  if (window)
    before = std::min<int64_t>(before, llvm::divideCeil(static_cast<uint64_t>(window - 1), tokens));
  if (algorithm == SpAlgorithm::ring)
    return {AttentionPlan::blocks, before};
  return {before < ranks - 1 ? AttentionPlan::neighbours : AttentionPlan::gathered, before};
}

static Value sumOf(OpBuilder &builder, Location loc, ArrayRef<Value> parts) {
  return parts.size() == 1 ? parts[0] : AddOp::create(builder, loc, parts[0].getType(), parts).getResult();
}

FailureOr<SmallVector<Value>> SequenceSharder::attention(AttnCausalOp op, ValueRange operands) {
  Location loc = op.getLoc();
  Value q = operands[0], k = operands[1], v = operands[2], documents = operands[3];
  int64_t tokens = typeOf(q).getDimSize(1);
  if (op.getCache())
    return op.emitOpError() << "reads a cache, which " << axis << " = " << ranks << " ranks (--mesh) do not share";
  auto o = RankedTensorType::get(typeOf(q).getShape(), typeOf(op.getO()).getElementType());
  auto lse = RankedTensorType::get({o.getDimSize(0), o.getDimSize(2), tokens}, typeOf(op.getLse()).getElementType());
  auto attend = [&](Value keys, Value values, int64_t prefix, Value place) {
    return AttnCausalOp::create(builder, loc, o, lse, q, keys, values, documents, place, op.getScaleAttr(),
                                op.getWindowAttr(), builder.getI64IntegerAttr(prefix), UnitAttr(), UnitAttr());
  };
  auto results = [](auto causal) { return SmallVector<Value>{causal->getResult(0), causal->getResult(1)}; };
  AttentionPlan plan = planAttention(op.getWindow(), tokens, ranks, algorithm);
  if (plan.kind == AttentionPlan::gathered)
    return results(attend(gather(loc, k, 1, "attn.k"), gather(loc, v, 1, "attn.v"), 0, coordinate));
  if (plan.kind == AttentionPlan::neighbours)
    return results(attend(withEarlier(loc, k, plan.before, "attn.k"), withEarlier(loc, v, plan.before, "attn.v"),
                          plan.before * tokens, coordinate));
  SmallVector<Value> both;
  for (int64_t i = 0; i <= plan.before; ++i) {
    // The next block is on its way while this one is read.
    Value keys = k, values = v;
    if (i < plan.before) {
      k = shift(loc, k, 1, false, "attn.k");
      v = shift(loc, v, 1, false, "attn.v");
    }
    SmallVector<Value> block = results(attend(keys, values, i * tokens, i ? coordinate : Value()));
    both =
        both.empty() ? block : results(AttnMergeOp::create(builder, loc, o, lse, both[0], both[1], block[0], block[1]));
  }
  return both;
}

/// x of the `before` ranks in front of this one and its own, in the order of tokens; zeros before the first.
Value SequenceSharder::withEarlier(Location loc, Value x, int64_t before, StringRef label) {
  SmallVector<Value> parts;
  for (int64_t i = before; i >= 1; --i)
    parts.push_back(shift(loc, x, i, false, label));
  parts.push_back(x);
  return parts.size() == 1
             ? x
             : ConcatOp::create(builder, loc, withDim(typeOf(x), 1, typeOf(x).getDimSize(1) * (before + 1)), parts, 1)
                   .getResult();
}

FailureOr<SmallVector<Value>> SequenceSharder::attentionGrad(AttnCausalGradOp op, ValueRange operands) {
  Location loc = op.getLoc();
  Value q = operands[0], k = operands[1], v = operands[2];
  int64_t tokens = typeOf(q).getDimSize(1);
  auto attend = [&](Value keys, Value values, int64_t prefix, Value place) {
    return AttnCausalGradOp::create(builder, loc, TypeRange{q.getType(), keys.getType(), values.getType()}, q, keys,
                                    values, operands[3], operands[4], operands[5], operands[6], place,
                                    op.getScaleAttr(), op.getWindowAttr(), builder.getI64IntegerAttr(prefix));
  };
  AttentionPlan plan = planAttention(op.getWindow(), tokens, ranks, algorithm);
  if (plan.kind == AttentionPlan::gathered) {
    auto grad = attend(gather(loc, k, 1, "attn.k"), gather(loc, v, 1, "attn.v"), 0, coordinate);
    return SmallVector<Value>{grad.getDq(), reduceScatter(loc, grad.getDk(), 1, "attn.dk"),
                              reduceScatter(loc, grad.getDv(), 1, "attn.dv")};
  }
  if (plan.kind == AttentionPlan::neighbours) {
    auto grad = attend(withEarlier(loc, k, plan.before, "attn.k"), withEarlier(loc, v, plan.before, "attn.v"),
                       plan.before * tokens, coordinate);
    // What tokens of this rank ask of the keys of rank r - i goes back there.
    auto back = [&](Value all, StringRef label) {
      SmallVector<Value> parts{rowsOf(builder, loc, all, plan.before * tokens, tokens)};
      for (int64_t i = 1; i <= plan.before; ++i)
        parts.push_back(
            shift(loc, rowsOf(builder, loc, all, (plan.before - i) * tokens, tokens), i, /*reverse=*/true, label));
      return sumOf(builder, loc, parts);
    };
    return SmallVector<Value>{grad.getDq(), back(grad.getDk(), "attn.dk"), back(grad.getDv(), "attn.dv")};
  }
  SmallVector<Value> dq, dk, dv;
  for (int64_t i = 0; i <= plan.before; ++i) {
    Value keys = k, values = v;
    if (i < plan.before) {
      k = shift(loc, k, 1, false, "attn.k");
      v = shift(loc, v, 1, false, "attn.v");
    }
    auto block = attend(keys, values, i * tokens, i ? coordinate : Value());
    dq.push_back(block.getDq());
    dk.push_back(i ? shift(loc, block.getDk(), i, /*reverse=*/true, "attn.dk") : block.getDk());
    dv.push_back(i ? shift(loc, block.getDv(), i, /*reverse=*/true, "attn.dv") : block.getDv());
  }
  return SmallVector<Value>{sumOf(builder, loc, dq), sumOf(builder, loc, dk), sumOf(builder, loc, dv)};
}
