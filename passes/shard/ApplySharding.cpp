//===- ApplySharding.cpp - logical tensors -> local tensors and collectives ---------------------------------------===//
// Data parallel (dp): rows of the batch; a rank's sums over tokens (gradients, losses, counts) are partial and are
// resolved by all_reduce on dp, expert weights' on edp. Expert parallel (ep): a rank owns E / ep experts; rows travel
// by all_to_all.
#include "mlir/IR/Matchers.h"
#include "passes/Passes.h"
#include "passes/analysis/Mesh.h"
#include "passes/analysis/Tensors.h"
#include "passes/overlap/SliceLayer.h"
#include "passes/shard/FunctionRewriter.h"
#include "llvm/ADT/StringSet.h"

using namespace mlir;
using namespace braid;

namespace braid {
#define GEN_PASS_DEF_APPLYSHARDINGPASS
#include "passes/Passes.h.inc"
} // namespace braid

namespace {

Value sliceRange(OpBuilder &builder, Location loc, Value source, int64_t begin, int64_t size) {
  return SliceOp::create(builder, loc, withDim(typeOf(source), 0, size), source, 0, begin);
}

class Sharder : public FunctionRewriter {
public:
  Sharder(ModuleOp module, const Mesh &mesh, bool sliced)
      : FunctionRewriter(module), dp(mesh.size("dp")), ep(mesh.size("ep")), edp(mesh.size("edp")), sliced(sliced) {}

  LogicalResult shardEntry(func::FuncOp entry);
  LogicalResult shardInit(func::FuncOp entry);

protected:
  LogicalResult rewriteOp(Operation &op, IRMapping &map, OpBuilder &builder) override;

private:
  /// What the ranks exchange for one plan, packed in the plan's `exchange` value: send counts [E], receive counts [E],
  /// order of the received rows [R], its inverse [R].
  struct Exchange {
    Value sendCounts, recvCounts, perm, inverse;
  };
  Exchange unpack(OpBuilder &builder, Location loc, Value packed);
  Value toExperts(OpBuilder &builder, Location loc, Value rows, const Exchange &e, StringRef label);
  Value toTokens(OpBuilder &builder, Location loc, Value rows, const Exchange &e, StringRef label);
  LogicalResult rewritePlan(MoePlanOp op, IRMapping &map, OpBuilder &builder);
  Value allReduce(OpBuilder &builder, Location loc, Value v, StringRef axis, int64_t size) {
    return size == 1 ? v : CommAllReduceOp::create(builder, loc, v.getType(), v, axis).getResult();
  }
  LogicalResult rewriteSumSquares(SumSquaresOp op, IRMapping &map, OpBuilder &builder);
  LogicalResult beforeReturn(func::FuncOp entry, IRMapping &map, OpBuilder &builder) override;
  void collectExpertWeights(func::FuncOp entry);
  TokenKind kindByUse(Value v);
  /// A parameter or moment that is, or belongs to, a weight of experts.
  bool isExpert(func::FuncOp entry, unsigned i) {
    auto of = entry.getArgAttrOfType<StringAttr>(i, attrs::of),
         name = entry.getArgAttrOfType<StringAttr>(i, attrs::name);
    return (of && expertNames.contains(of.getValue())) || (name && expertNames.contains(name.getValue()));
  }
  /// Number of leading dimensions that count layers: their product is the number of layers.
  static int64_t leadingLayers(RankedTensorType type, int64_t layers, bool stacked) {
    int64_t dim = 0, product = 1;
    while (stacked && dim < type.getRank() && product < layers)
      product *= type.getDimSize(dim++);
    return stacked && layers == 1 ? 1 : dim;
  }
  static int64_t stackedDims(func::FuncOp entry, unsigned i) {
    auto layers = entry.getArgAttrOfType<DenseI32ArrayAttr>(i, attrs::layers);
    return leadingLayers(typeOf(entry.getArgument(i)), layers ? layers.size() : 1, static_cast<bool>(layers));
  }
  static Attribute expertShard(OpBuilder &b) {
    return b.getArrayAttr({b.getArrayAttr({b.getI64IntegerAttr(0), b.getStringAttr("ep")})});
  }

  int64_t dp, ep, edp;
  bool sliced; ///< tokens will be cut into slices
  func::FuncOp current;
  DenseSet<Value> expertWeights; ///< weights of grouped_linear and what they come from, old values
  llvm::StringSet<> expertNames; ///< their parameters
  int64_t numExperts = 0;
};

//===- Experts ----------------------------------------------------------------------------------------------------===//

Sharder::Exchange Sharder::unpack(OpBuilder &builder, Location loc, Value packed) {
  int64_t total = typeOf(packed).getDimSize(0), rows = (total - 2 * numExperts) / 2, E = numExperts;
  auto matrix = RankedTensorType::get({ep, E / ep}, builder.getI32Type());
  auto section = [&](int64_t index, int64_t begin, int64_t size) {
    Value view = sliceRange(builder, loc, packed, begin, size);
    view.getDefiningOp()->setAttr(kSectionAttr, builder.getI64IntegerAttr(index)); // which part: slicing keeps it apart
    return view;
  };
  Value send = ReshapeOp::create(builder, loc, matrix, section(0, 0, E)),
        receive = ReshapeOp::create(builder, loc, matrix, section(1, E, E));
  return {send, receive, section(2, 2 * E, rows), section(3, 2 * E + rows, rows)};
}

Value Sharder::toExperts(OpBuilder &builder, Location loc, Value rows, const Exchange &e, StringRef label) {
  auto received = CommAllToAllOp::create(builder, loc, rows.getType(), rows, e.sendCounts, e.recvCounts,
                                         builder.getStringAttr("ep"), builder.getI64IntegerAttr(ep));
  received->setAttr("label", builder.getStringAttr(label));
  return MoePermuteOp::create(builder, loc, rows.getType(), received, e.perm, e.inverse);
}

Value Sharder::toTokens(OpBuilder &builder, Location loc, Value rows, const Exchange &e, StringRef label) {
  Value sent = MoePermuteOp::create(builder, loc, rows.getType(), rows, e.inverse, e.perm);
  auto returned = CommAllToAllOp::create(builder, loc, rows.getType(), sent, e.recvCounts, e.sendCounts,
                                         builder.getStringAttr("ep"), builder.getI64IntegerAttr(ep));
  returned->setAttr("label", builder.getStringAttr(label));
  return returned;
}

/// How many rows one row of the batch can send to `local` neighbouring experts of a peer: slots of the buckets that
/// these are in (protected documents keep more than there are), and never more than one row of a token for an expert.
static int64_t rowsOfPeer(MoeDropOp drop, int64_t local) {
  int64_t bucket = drop.getBucket(), tokens = typeOf(drop.getIds()).getDimSize(1);
  if (drop.getProtect().convertToDouble() > 0)
    return tokens * local;
  int64_t buckets = 0, experts = typeOf(drop.getLoad()).getDimSize(0);
  for (int64_t first = 0; first < experts; first += local)
    buckets = std::max(buckets, (first + local - 1) / bucket - first / bucket + 1);
  return std::min<int64_t>(buckets * std::min<int64_t>(drop.getCapacity(), tokens * bucket), tokens * local);
}

LogicalResult Sharder::rewritePlan(MoePlanOp op, IRMapping &map, OpBuilder &builder) {
  Location loc = op.getLoc();
  Type i32 = builder.getI32Type();
  Value ids = map.lookup(op.getIds()), documents = map.lookup(op.getDocuments());
  int64_t E = op.getNumExperts(), assignments = typeOf(ids).getNumElements(), topK = typeOf(ids).getDimSize(2);
  if (E % ep)
    return op.emitOpError() << "has " << E << " experts (num_experts), which ep = " << ep
                            << " ranks (--mesh) do not divide; valid: a divisor of " << E;
  if (numExperts && numExperts != E && ep > 1)
    return op.emitOpError() << "has " << E << " experts but another layer has " << numExperts
                            << "; under ep all layers must agree";
  numExperts = E;
  // Dropless: in the worst case every token sends min(top_k, E / ep) rows to one peer. A capacity bounds what one row
  // of the batch gives an expert; token slices share rows by their number of tokens, which that bound does not allow.
  int64_t peerRows = assignments / topK * std::min(topK, E / ep);
  auto drop = op.getIds().getDefiningOp<MoeDropOp>();
  if (drop && !sliced)
    peerRows = std::min(peerRows, typeOf(ids).getDimSize(0) * rowsOfPeer(drop, E / ep));
  int64_t rows = ep == 1 ? assignments : ep * peerRows;
  IntegerAttr expertRows = op.getExpertRowsAttr();
  if (expertRows) {
    expertRows = builder.getI64IntegerAttr(expertRows.getInt() / dp);
    peerRows = E / ep * expertRows.getInt();
    rows = E * expertRows.getInt();
  }
  auto vec = [&](int64_t n) { return RankedTensorType::get({n}, i32); };
  auto plan = MoePlanOp::create(builder, loc, TypeRange{vec(rows), ids.getType(), vec(E), vec(E + 1), vec(1), vec(1)},
                                ids, documents, E, ep, ep == 1 ? 0 : peerRows, expertRows);
  map.map(op.getPerm(), plan.getPerm());
  map.map(op.getInverse(), plan.getInverse());
  map.map(op.getOverflow(), plan.getOverflow());
  if (!drop || !op.getCounts().use_empty()) // balance and statistics: the whole batch; where some drop, their op counts
    map.map(op.getCounts(), allReduce(builder, loc, plan.getCounts(), "dp", dp));
  if (ep == 1) {
    map.map(op.getOffsets(), plan.getOffsets());
    map.map(op.getExchange(), plan.getExchange());
    return success();
  }
  auto matrix = RankedTensorType::get({ep, E / ep}, i32);
  Value counts = plan.getCounts(), recvCounts;
  if (expertRows) {
    // Every expert gets the same number of rows from everyone: nothing to tell each other.
    auto all = [&](RankedTensorType type) -> Value {
      auto value = builder.getI32IntegerAttr(static_cast<int32_t>(expertRows.getInt()));
      return arith::ConstantOp::create(builder, loc, DenseElementsAttr::get(type, Attribute(value)));
    };
    counts = all(vec(E));
    recvCounts = all(matrix);
  } else {
    Value sendCounts = ReshapeOp::create(builder, loc, matrix, counts);
    auto exchanged = CommAllToAllOp::create(builder, loc, matrix, sendCounts, Value(), Value(),
                                            builder.getStringAttr("ep"), builder.getI64IntegerAttr(ep));
    exchanged->setAttr("label", builder.getStringAttr("moe.counts"));
    recvCounts = exchanged;
  }
  auto received =
      MoePlanReceivedOp::create(builder, loc, TypeRange{vec(rows), vec(rows), vec(E / ep + 1)}, recvCounts, peerRows);
  map.map(op.getOffsets(), received.getOffsets());
  Value parts[] = {counts, ReshapeOp::create(builder, loc, vec(E), recvCounts), received.getPerm(),
                   received.getInverse()};
  map.map(op.getExchange(), ConcatOp::create(builder, loc, vec(2 * E + 2 * rows), parts, 0));
  return success();
}

/// How the first op that knows sees a value, through calls and repeats.
TokenKind Sharder::kindByUse(Value v) {
  for (OpOperand &use : v.getUses()) {
    unsigned i = use.getOperandNumber();
    if (auto call = dyn_cast<func::CallOp>(use.getOwner())) {
      TokenKind kind = kindByUse(symbols.lookup<func::FuncOp>(call.getCallee()).getArgument(i));
      if (kind != TokenKind::whole)
        return kind;
    } else if (auto repeat = dyn_cast<RepeatOp>(use.getOwner())) {
      TokenKind kind = kindByUse(repeat.getBody().getArgument(i));
      if (kind != TokenKind::whole && i < repeat.getCarried())
        return kind;
    } else if (auto tokens = dyn_cast<TokenOpInterface>(use.getOwner())) {
      return tokens.operandKind(i);
    }
  }
  return TokenKind::whole;
}

//===- Ops --------------------------------------------------------------------------------------------------------===//

LogicalResult Sharder::rewriteOp(Operation &op, IRMapping &map, OpBuilder &builder) {
  Location loc = op.getLoc();
  if (auto plan = dyn_cast<MoePlanOp>(op))
    return rewritePlan(plan, map, builder);
  if (auto squares = dyn_cast<SumSquaresOp>(op))
    return rewriteSumSquares(squares, map, builder);
  // A zero that stands for tokens or states (initial states, sums that start, missing cotangents) has the local rows.
  if (auto constant = dyn_cast<arith::ConstantOp>(op); constant && dp > 1) {
    auto value = dyn_cast<DenseElementsAttr>(constant.getValue());
    TokenKind kind = kindByUse(constant);
    if (value && value.isSplat() && (kind == TokenKind::token || kind == TokenKind::state) &&
        value.getType().getRank() > 1 && value.getType().getDimSize(0) % dp == 0) {
      auto type = withDim(cast<RankedTensorType>(constant.getType()), 0, value.getType().getDimSize(0) / dp);
      map.map(constant.getResult(),
              arith::ConstantOp::create(builder, loc, DenseElementsAttr::get(type, value.getSplatValue<Attribute>()))
                  .getResult());
      return success();
    }
  }
  auto at = [&](Value v) { return map.lookup(v); };
  auto rowsLike = [&](Value perm, Value width) { return withDim(typeOf(width), 1, typeOf(perm).getDimSize(0)); };

  if (ep > 1) {
    if (auto dispatch = dyn_cast<MoeDispatchOp>(op)) {
      Exchange e = unpack(builder, loc, at(dispatch.getExchange()));
      Value perm = at(dispatch.getPerm()), exchange = at(dispatch.getExchange());
      // Packing rows does not wait for the counts of other ranks: only the rank's own plan is read.
      if (auto plan = perm.getDefiningOp<MoePlanOp>())
        exchange = plan.getExchange();
      Value sent = MoeDispatchOp::create(builder, loc, rowsLike(perm, dispatch.getRows()), at(dispatch.getX()), perm,
                                         at(dispatch.getInverse()), exchange);
      map.map(dispatch.getRows(), toExperts(builder, loc, sent, e, "moe.dispatch"));
      return success();
    }
    if (auto combine = dyn_cast<MoeCombineOp>(op)) {
      Exchange e = unpack(builder, loc, at(combine.getExchange()));
      Value returned =
          toTokens(builder, loc, at(combine.getRows()), e, combine.getWeights() ? "moe.combine" : "moe.dispatch_grad");
      RankedTensorType y = withDim(typeOf(combine.getY()), 0, typeOf(combine.getY()).getDimSize(0) / dp);
      auto rebuilt = MoeCombineOp::create(builder, loc, TypeRange{y, returned.getType()}, returned,
                                          combine.getWeights() ? at(combine.getWeights()) : Value(),
                                          at(combine.getPerm()), at(combine.getInverse()), at(combine.getExchange()));
      map.map(combine.getY(), rebuilt.getY());
      map.map(combine.getReturned(), returned);
      return success();
    }
    if (auto grad = dyn_cast<MoeCombineGradOp>(op)) {
      Exchange e = unpack(builder, loc, at(grad.getExchange()));
      Value returned = at(grad.getReturned());
      auto rebuilt = MoeCombineGradOp::create(
          builder, loc, TypeRange{returned.getType(), at(grad.getWeights()).getType()}, at(grad.getDy()), returned,
          at(grad.getWeights()), at(grad.getPerm()), at(grad.getInverse()), at(grad.getExchange()));
      map.map(grad.getDrows(), toExperts(builder, loc, rebuilt.getDrows(), e, "moe.combine_grad"));
      map.map(grad.getDweights(), rebuilt.getDweights());
      return success();
    }
  }

  // Everything else keeps its form: local operands give local results.
  auto tokens = dyn_cast<TokenOpInterface>(op);
  SmallVector<Value> operands;
  Value reference; // an operand whose leading dimension tells the local batch
  int64_t localRows = -1;
  for (auto [i, operand] : llvm::enumerate(op.getOperands())) {
    Value local = at(operand);
    TokenKind kind = tokens ? tokens.operandKind(i) : TokenKind::whole;
    RankedTensorType type = typeOf(local);
    if (kind == TokenKind::rows && type.getRank() == 3 && type != operand.getType())
      localRows = type.getDimSize(1);
    if (kind == TokenKind::token && local.getType() != operand.getType())
      reference = operand;
    operands.push_back(local);
  }
  SmallVector<Type> types;
  for (auto [i, result] : llvm::enumerate(op.getResults())) {
    RankedTensorType type = typeOf(result);
    TokenKind kind = tokens ? tokens.resultKind(i) : TokenKind::whole;
    bool expertPiece = isa<MoeGroupedLinearGradWeightOp>(op);
    if (isa<DocumentsOp, EmbedOp>(op)) {
      type = withDim(type, 0, type.getDimSize(0) / dp);
    } else if ((kind == TokenKind::token || kind == TokenKind::state) && reference) {
      // Like the operand: fewer rows of the batch, or fewer expert rows ([1, R, M]).
      RankedTensorType was = typeOf(reference), now = typeOf(at(reference));
      if (was.getDimSize(0) != now.getDimSize(0))
        type = withDim(type, 0, type.getDimSize(0) * now.getDimSize(0) / was.getDimSize(0));
      else if (type.getRank() > 1 && was.getRank() > 1)
        type = withDim(type, 1, type.getDimSize(1) * now.getDimSize(1) / was.getDimSize(1));
    } else if (kind == TokenKind::rows && localRows >= 0 && type.getRank() == 3) {
      type = withDim(type, 1, localRows);
    } else if (kind == TokenKind::rows && isa<MoeDispatchOp, MoeCombineOp, MoeCombineGradOp>(op)) {
      type = withDim(type, 1, typeOf(at(op.getOperand(op.getNumOperands() - 3))).getDimSize(0));
    } else if (expertPiece && ep > 1) {
      type = withDim(type, 0, type.getDimSize(0) / ep);
    } else if (isa<AddOp, AdamwOp>(op) && i < op.getNumOperands()) {
      type = RankedTensorType::get(typeOf(operands[0]).getShape(), type.getElementType());
    } else if (isa<SumGradOp>(op) && dp > 1) {
      type = withDim(type, 0, type.getDimSize(0) / dp);
    }
    types.push_back(type);
  }
  OperationState state(loc, op.getName(), operands, types, op.getAttrs());
  state.propertiesAttr = op.getPropertiesAsAttribute();
  Operation *rebuilt = builder.create(state);
  map.map(op.getResults(), rebuilt->getResults());

  // Sums over tokens that the host or the seed reads are sums over the whole batch.
  auto overBatch = [&](Value sum, Value local) {
    if (!sum.use_empty())
      map.map(sum, allReduce(builder, loc, local, "dp", dp));
  };
  if (auto drop = dyn_cast<MoeDropOp>(op)) {
    overBatch(drop.getLoad(), cast<MoeDropOp>(rebuilt).getLoad());
    overBatch(drop.getDropped(), cast<MoeDropOp>(rebuilt).getDropped());
  } else if (auto loss = dyn_cast<CrossEntropyOp>(op)) {
    overBatch(loss.getSum(), cast<CrossEntropyOp>(rebuilt).getSum());
    overBatch(loss.getCount(), cast<CrossEntropyOp>(rebuilt).getCount());
  } else if (auto loss = dyn_cast<LinearCrossEntropyOp>(op)) {
    overBatch(loss.getSum(), cast<LinearCrossEntropyOp>(rebuilt).getSum());
    overBatch(loss.getCount(), cast<LinearCrossEntropyOp>(rebuilt).getCount());
  } else if (auto grad = dyn_cast<LinearCrossEntropyGradOp>(op)) {
    overBatch(grad.getSum(), cast<LinearCrossEntropyGradOp>(rebuilt).getSum());
  }
  return success();
}

//===- Entries ----------------------------------------------------------------------------------------------------===//

/// Entry arguments that end as weights of grouped_linear, through repeats and calls.
void Sharder::collectExpertWeights(func::FuncOp entry) {
  module.walk([&](Operation *op) {
    if (auto linear = dyn_cast<MoeGroupedLinearOp>(op))
      expertWeights.insert(linear.getWeights().begin(), linear.getWeights().end());
    if (auto linear = dyn_cast<MoeGroupedLinearGradDataOp>(op))
      expertWeights.insert(linear.getWeights().begin(), linear.getWeights().end());
  });
  for (bool changed = true; changed;) {
    changed = false;
    module.walk([&](Operation *op) {
      if (auto call = dyn_cast<func::CallOp>(op)) {
        auto callee = symbols.lookup<func::FuncOp>(call.getCallee());
        for (auto [operand, argument] : llvm::zip_equal(call.getOperands(), callee.getArguments()))
          if (expertWeights.contains(argument))
            changed |= expertWeights.insert(operand).second;
      } else if (auto repeat = dyn_cast<RepeatOp>(op)) {
        for (auto [input, argument] : llvm::zip_equal(repeat.getInputs(), repeat.getBody().getArguments()))
          if (expertWeights.contains(argument))
            changed |= expertWeights.insert(input).second;
      }
    });
  }
  for (BlockArgument argument : entry.getArguments())
    if (expertWeights.contains(argument))
      if (auto name = entry.getArgAttrOfType<StringAttr>(argument.getArgNumber(), attrs::name))
        expertNames.insert(name.getValue());
}

/// "layers.3.moe.w1": of several layers, which are one argument, the first.
static std::string shownName(func::FuncOp entry, unsigned i) {
  auto name = entry.getArgAttrOfType<StringAttr>(i, attrs::name);
  auto layers = entry.getArgAttrOfType<DenseI32ArrayAttr>(i, attrs::layers);
  std::string text = name ? name.str() : "#" + std::to_string(i);
  if (size_t at = text.find("{}"); at != std::string::npos && layers && !layers.empty())
    text.replace(at, 2, std::to_string(layers[0]));
  return "\"" + text + "\"";
}

LogicalResult Sharder::shardEntry(func::FuncOp entry) {
  collectExpertWeights(entry);
  OpBuilder b(entry.getContext());
  SmallVector<Type> types;
  for (BlockArgument argument : entry.getArguments()) {
    unsigned i = argument.getArgNumber();
    RankedTensorType type = typeOf(argument);
    auto role = entry.getArgAttrOfType<StringAttr>(i, attrs::role);
    StringRef roleName = role ? role.getValue() : "input";
    if (isExpert(entry, i) && ep > 1) {
      int64_t dim = stackedDims(entry, i);
      if (type.getDimSize(dim) % ep)
        return entry.emitOpError() << "argument " << shownName(entry, i) << " has " << type.getDimSize(dim)
                                   << " experts (num_experts), which ep = " << ep
                                   << " ranks (--mesh) do not divide; valid: a divisor of " << type.getDimSize(dim);
      type = withDim(type, dim, type.getDimSize(dim) / ep);
      entry.setArgAttr(i, attrs::shards, expertShard(b));
    } else if (roleName == "input" && type.getRank() >= 2 && dp > 1) {
      // Inputs with a batch in front are rows of the batch; scalars are [1] and the same on all ranks.
      if (type.getDimSize(0) % dp)
        return entry.emitOpError() << "argument " << shownName(entry, i) << " has " << type.getDimSize(0)
                                   << " rows (train.batch, --batch), which dp = " << dp
                                   << " ranks (--mesh) do not divide; valid: a divisor of " << type.getDimSize(0)
                                   << ", or a multiple of " << dp << " rows";
      type = withDim(type, 0, type.getDimSize(0) / dp);
    }
    types.push_back(type);
  }
  current = entry;
  for (unsigned i = 0; i < entry.getNumResults(); ++i) {
    auto of = entry.getResultAttrOfType<StringAttr>(i, attrs::of),
         name = entry.getResultAttrOfType<StringAttr>(i, attrs::name);
    if (ep > 1 && ((of && expertNames.contains(of.getValue())) || (name && expertNames.contains(name.getValue()))))
      entry.setResultAttr(i, attrs::shards, expertShard(b));
  }
  return rewriteEntry(entry, types);
}

/// Gradients are resolved where the optimizer first reads them: once per step (phases-by-example D12).
LogicalResult Sharder::rewriteSumSquares(SumSquaresOp op, IRMapping &map, OpBuilder &builder) {
  Location loc = op.getLoc();
  SmallVector<Value> dense, expert;
  for (Value gradient : op.getXs()) {
    Value local = map.lookup(gradient);
    bool sharded = local.getType() != gradient.getType();
    Value reduced = allReduce(builder, gradient.getLoc(), local, sharded ? "edp" : "dp", sharded ? edp : dp);
    (sharded ? expert : dense).push_back(reduced);
    map.map(gradient, reduced);
  }
  Type type = op.getResult().getType();
  Value total;
  if (!dense.empty())
    total = SumSquaresOp::create(builder, loc, type, dense);
  if (!expert.empty()) {
    Value part = allReduce(builder, loc, SumSquaresOp::create(builder, loc, type, expert), "ep", ep);
    total = total ? AddOp::create(builder, loc, type, ValueRange{total, part}).getResult() : part;
  }
  map.map(op.getResult(), total);
  return success();
}

/// What the host reads as a sum over the batch and no rule above has resolved: router losses.
LogicalResult Sharder::beforeReturn(func::FuncOp entry, IRMapping &map, OpBuilder &builder) {
  for (auto [i, value] : llvm::enumerate(entry.getBody().front().getTerminator()->getOperands()))
    if (auto name = entry.getResultAttrOfType<StringAttr>(i, attrs::name); name && name.getValue() == "aux_loss") {
      Value local = map.lookup(value);
      if (!matchPattern(local, m_Constant()))
        map.map(value, allReduce(builder, entry.getLoc(), local, "dp", dp));
    }
  return success();
}

/// A shard of an initial value is computed, not cut: the generator is keyed by the logical index.
LogicalResult Sharder::shardInit(func::FuncOp entry) {
  Block &body = entry.getBody().front();
  OpBuilder b(entry.getContext());
  Value coordinate;
  for (auto [i, value] : llvm::enumerate(body.getTerminator()->getOperands())) {
    // A master belongs to its parameter.
    auto name = entry.getResultAttrOfType<StringAttr>(i, attrs::of);
    if (!name)
      name = entry.getResultAttrOfType<StringAttr>(i, attrs::name);
    auto init = value.getDefiningOp<InitOp>();
    if (!init || !name || !expertNames.contains(name.getValue()) || ep == 1)
      continue;
    if (!coordinate) {
      unsigned index = entry.getNumArguments();
      SmallVector<NamedAttribute> attributes = {b.getNamedAttr(attrs::name, b.getStringAttr("coordinate.ep")),
                                                b.getNamedAttr(attrs::role, b.getStringAttr("input"))};
      (void)entry.insertArgument(index, RankedTensorType::get({1}, b.getI32Type()), b.getDictionaryAttr(attributes),
                                 entry.getLoc());
      coordinate = entry.getArgument(index);
    }
    auto layers = entry.getResultAttrOfType<DenseI32ArrayAttr>(i, attrs::layers);
    int64_t dim = leadingLayers(typeOf(value), layers ? layers.size() : 1, static_cast<bool>(layers));
    init.getResult().setType(withDim(typeOf(value), dim, typeOf(value).getDimSize(dim) / ep));
    init.getCoordinateMutable().assign(coordinate);
    init.setShardDim(0);
    init.setShardCount(ep);
    entry.setResultAttr(i, attrs::shards, expertShard(b));
  }
  entry.setFunctionType(b.getFunctionType(entry.getArgumentTypes(), body.getTerminator()->getOperandTypes()));
  return success();
}

class ApplyShardingPass : public braid::impl::ApplyShardingPassBase<ApplyShardingPass> {
public:
  using ApplyShardingPassBase::ApplyShardingPassBase;
  void runOnOperation() override {
    llvm::Expected<Mesh> mesh = Mesh::parse(meshText);
    if (!mesh) {
      getOperation().emitError("mesh: ") << llvm::toString(mesh.takeError());
      return signalPassFailure();
    }
    getOperation()->setAttr(attrs::mesh, mesh->toAttr(&getContext()));
    if (mesh->world() == 1)
      return;
    Sharder sharder(getOperation(), *mesh, sliced);
    SmallVector<func::FuncOp> entries(getOperation().getOps<func::FuncOp>());
    llvm::erase_if(entries, [](func::FuncOp f) { return !f->hasAttr(attrs::entry); });
    auto generates = [](func::FuncOp f) {
      return f.getName().starts_with("prefill_") || f.getName().starts_with("decode_");
    };
    if (llvm::any_of(entries, generates))
      getOperation().emitRemark() << "generation runs on one rank: prefill and decode are left out of a program for "
                                  << mesh->world() << " ranks";
    SmallVector<func::FuncOp> kept;
    for (func::FuncOp entry : entries) {
      if (generates(entry))
        entry.erase();
      else
        kept.push_back(entry);
    }
    entries = kept;
    for (func::FuncOp entry : entries)
      if (entry.getName() != "init" && failed(sharder.shardEntry(entry)))
        return signalPassFailure();
    for (func::FuncOp entry : entries)
      if (entry.getName() == "init" && failed(sharder.shardInit(entry)))
        return signalPassFailure();
    sharder.finish();
  }
};

} // namespace
