//===- SequenceTokens.cpp - documents, convolutions and attention along sp; collectives ---------------------------===//
#include "mlir/IR/SymbolTable.h"
#include "passes/analysis/Mesh.h"
#include "passes/analysis/Tensors.h"
#include "passes/analysis/Views.h"
#include "passes/overlap/SliceLayer.h"
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

SequenceFacts::SequenceFacts(ModuleOp module) : machine(Machine::of(module)) {
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
        .Case([&](LsmInnerStepOp o) { look(o.getInitialState(), o.getFinalState()); })
        .Case([&](LsmInnerStepGradOp o) { look({o.getInitialState(), o.getDfinalState()}, o.getDinitialState()); })
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

//===- Slices -----------------------------------------------------------------------------------------------------===//

FailureOr<SequencePlace> braid::sequencePlace(Operation *op) {
  auto marker = op->getAttrOfType<DictionaryAttr>(kSequenceAttr);
  StringRef axis = marker.getAs<StringAttr>("axis").getValue();
  int64_t number = marker.getAs<IntegerAttr>("coordinate").getInt();
  Mesh mesh = Mesh::of(op->getParentOfType<ModuleOp>());
  if (!mesh.has(axis))
    return op->emitOpError() << "is divided along \"" << axis << "\", which the mesh does not have", failure();
  auto function = op->getParentOfType<func::FuncOp>();
  if (number >= function.getNumArguments())
    return op->emitOpError() << "has its place along " << axis << " from argument " << number << ", but there are "
                             << function.getNumArguments(),
           failure();
  BlockArgument coordinate = function.getArgument(static_cast<unsigned>(number));
  auto type = dyn_cast<RankedTensorType>(coordinate.getType());
  if (!type || type.getShape() != ArrayRef<int64_t>{1} || !type.getElementType().isSignlessInteger(32))
    return op->emitOpError() << "has its place along " << axis << " from argument " << number << ", a "
                             << coordinate.getType() << "; valid: tensor<1xi32>",
           failure();
  if (!SequenceSharder::handles(op))
    return op->emitOpError() << "does not cross tokens; there is nothing that " << axis << " could divide", failure();
  auto algorithm = marker.getAs<StringAttr>("algorithm"); // its word has been verified
  return SequencePlace{axis.str(), mesh.size(axis), coordinate,
                       algorithm ? *parseSpAlgorithm(algorithm.getValue()) : SpAlgorithm::automatic};
}

LogicalResult braid::checkSequencePlaces(ModuleOp module) {
  WalkResult walked = module.walk([](Operation *op) {
    return op->hasAttr(kSequenceAttr) && failed(sequencePlace(op)) ? WalkResult::interrupt() : WalkResult::advance();
  });
  return success(!walked.wasInterrupted());
}

LogicalResult braid::exchangeSlices(ModuleOp module) {
  SmallVector<Operation *> ops;
  module.walk([&](Operation *op) {
    if (op->hasAttr(kSequenceAttr))
      ops.push_back(op);
  });
  SequenceFacts facts(module);
  for (Operation *op : ops) {
    FailureOr<SequencePlace> place = sequencePlace(op);
    if (failed(place))
      return failure();
    OpBuilder builder(op);
    // Both ends of a slice among others are known to all ranks: there is nothing to choose.
    SpAlgorithm algorithm = op->hasAttr(kSliceAttr) ? SpAlgorithm::automatic : place->algorithm;
    SequenceSharder sharder(builder, facts, place->axis, place->ranks, place->coordinate, algorithm);
    Operation *before = op->getPrevNode();
    auto results = sharder.lower(op, op->getOperands());
    if (failed(results))
      return failure();
    // What an op became belongs to its slice.
    for (Operation *built = before ? before->getNextNode() : &op->getBlock()->front(); built != op;
         built = built->getNextNode()) {
      built->removeAttr(kSequenceAttr);
      if (Attribute slice = op->getAttr(kSliceAttr))
        built->setAttr(kSliceAttr, slice);
    }
    op->replaceAllUsesWith(*results);
    op->erase();
  }
  return success();
}

//===- Documents --------------------------------------------------------------------------------------------------===//

bool SequenceSharder::handles(Operation *op) {
  return isa<LsmScanOp, LsmScanGradOp, LsmInnerStepOp, LsmInnerStepGradOp, AttnCausalOp, AttnCausalGradOp, AttnAppendOp,
             ShortConvOp, ShortConvGradOp, DocumentsOp, MoeDropOp>(op);
}

FailureOr<SmallVector<Value>> SequenceSharder::lower(Operation *op, ValueRange operands) {
  return llvm::TypeSwitch<Operation *, Results>(op)
      .Case([&](LsmScanOp o) { return scan(o, operands); })
      .Case([&](LsmScanGradOp o) { return scanGrad(o, operands); })
      .Case([&](AttnCausalOp o) { return attention(o, operands); })
      .Case([&](AttnCausalGradOp o) { return attentionGrad(o, operands); })
      .Case([&](AttnAppendOp o) { return append(o, operands); })
      .Case([&](ShortConvOp o) { return convolution(o, operands); })
      .Case([&](ShortConvGradOp o) { return convolutionGrad(o, operands); })
      .Case([&](DocumentsOp o) { return documents(o, operands); })
      .Case([&](LsmInnerStepOp o) { return innerStep(o, operands); })
      .Case([&](LsmInnerStepGradOp o) { return innerStepGrad(o, operands); })
      .Case([&](MoeDropOp o) { return drop(o, operands); });
}

FailureOr<SmallVector<Value>> SequenceSharder::documents(DocumentsOp op, ValueRange operands) {
  if (op.getCoordinate())
    return op.emitOpError() << "has a coordinate already, but its tokens are not divided along " << axis << " = "
                            << ranks << " yet";
  RankedTensorType type = typeOf(op.getResult());
  type = withDim(withDim(type, 0, typeOf(operands[0]).getDimSize(0)), 1, type.getDimSize(1) / ranks);
  return SmallVector<Value>{
      DocumentsOp::create(builder, op.getLoc(), type, operands[0], coordinate, op.getBeginAttr())};
}

//===- Capacity of experts ----------------------------------------------------------------------------------------===//

/// A row's order of assignments runs over its tokens on all ranks: every rank orders the whole row and keeps its part.
/// These are a few integers per token; counts and slots come out the same, and complete, on all ranks.
FailureOr<SmallVector<Value>> SequenceSharder::drop(MoeDropOp op, ValueRange operands) {
  Location loc = op.getLoc();
  SmallVector<Value> whole(operands);
  for (auto [operand, value] : llvm::zip_equal(op->getOperands(), whole))
    if (operand == op.getIds() || operand == op.getWeights() || operand == op.getDocuments())
      value = gather(loc, value, 1, "moe.drop");
  RankedTensorType kept = typeOf(operands[0]);
  SmallVector<Type> types(op->getResultTypes());
  types[0] = whole[0].getType();
  // Slots and keys belong to rows of the batch.
  for (unsigned i = 3; i < types.size(); ++i)
    types[i] = withDim(typeOf(op->getResult(i)), 0, kept.getDimSize(0));
  OperationState state(loc, op->getName(), whole, types, op->getAttrs());
  state.propertiesAttr = op->getPropertiesAsAttribute();
  auto dropped = cast<MoeDropOp>(builder.create(state));
  if (op.getProtect().convertToDouble() > 0)
    dropped.setStripe(kept.getDimSize(1)); // its draws are the row's documents', and each rank knows its own
  SmallVector<Value> results(dropped->getResults());
  results[0] = ShardOp::create(builder, loc, kept, results[0], coordinate, 1, ranks);
  return results;
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

/// A prompt ends on any rank, and its last rows are the next tail: rows of all ranks, one rank's after the other, are
/// convolved on every rank, which keeps its own.
SmallVector<Value> SequenceSharder::continuedConvolution(ShortConvOp op, ValueRange operands) {
  Location loc = op.getLoc();
  Value x = gather(loc, operands[0], 1, "conv.x"), documents = gather(loc, operands[2], 1, "conv.documents"),
        tail = operands[3];
  int64_t tokens = typeOf(operands[0]).getDimSize(1);
  auto y = RankedTensorType::get(typeOf(operands[0]).getShape(), typeOf(op.getY()).getElementType());
  SmallVector<Value> parts;
  for (int64_t i = 0; i < ranks; ++i) {
    auto conv = ShortConvOp::create(builder, loc, y, tail.getType(), rowsOf(builder, loc, x, i * tokens, tokens),
                                    operands[1], rowsOf(builder, loc, documents, i * tokens, tokens), tail);
    parts.push_back(conv.getY());
    tail = conv.getNewTail();
  }
  Value row = ConcatOp::create(builder, loc, withDim(y, 1, tokens * ranks), parts, 1);
  return {ShardOp::create(builder, loc, y, row, coordinate, 1, ranks), tail};
}

/// The last rows of all ranks, with the row's tail in front of the first: a slice ends on the last rank.
SequenceSharder::Halo SequenceSharder::haloOf(Location loc, Value x, Value tail) {
  int64_t halo = typeOf(tail).getDimSize(1), earlier = (ranks - 1) * halo;
  Value all = gather(loc, lastRows(builder, loc, x, tail.getType()), 1, "conv.halo");
  Value before[] = {tail, rowsOf(builder, loc, all, 0, earlier)};
  Value row = ConcatOp::create(builder, loc, all.getType(), before, 1);
  return {ShardOp::create(builder, loc, tail.getType(), row, coordinate, 1, ranks),
          rowsOf(builder, loc, all, earlier, halo)};
}

FailureOr<SmallVector<Value>> SequenceSharder::convolution(ShortConvOp op, ValueRange operands) {
  Location loc = op.getLoc();
  Value x = operands[0], tail = operands[3];
  bool sliced = op->hasAttr(kSequenceAttr), carries = !facts.isZero(op.getTail()) || facts.isRead(op.getNewTail());
  if (carries && !sliced)
    return continuedConvolution(op, operands);
  if (failed(checkHalo(op, typeOf(x).getDimSize(1), typeOf(tail).getDimSize(1), ranks)))
    return failure();
  Halo halo;
  if (carries)
    halo = haloOf(loc, x, tail);
  else
    halo.mine = shift(loc, lastRows(builder, loc, x, tail.getType()), 1, false, "conv.halo");
  auto y = RankedTensorType::get(typeOf(x).getShape(), typeOf(op.getY()).getElementType());
  auto conv = ShortConvOp::create(builder, loc, y, tail.getType(), x, operands[1], operands[2], halo.mine);
  return SmallVector<Value>{conv.getY(), halo.last ? halo.last : conv.getNewTail()};
}

/// What the next rank's first rows ask of this rank's last ones is their tail's cotangent: those few rows come first.
FailureOr<SmallVector<Value>> SequenceSharder::convolutionGrad(ShortConvGradOp op, ValueRange operands) {
  Location loc = op.getLoc();
  Value x = operands[0], weight = operands[1], documents = operands[2], dy = operands[4];
  RankedTensorType tail = typeOf(operands[3]), dTail = typeOf(operands[5]);
  int64_t halo = tail.getDimSize(1);
  if (failed(checkHalo(op, typeOf(x).getDimSize(1), halo, ranks)))
    return failure();
  bool carries = !facts.isZero(op.getTail()) || !facts.isZero(op.getDnewTail()) || facts.isRead(op.getDtail());
  if (carries && !op->hasAttr(kSequenceAttr))
    return op.emitOpError() << "continues or is continued by another row, which " << axis << " = " << ranks
                            << " ranks (--mesh) do not pass on";
  Value before =
      carries ? haloOf(loc, x, operands[3]).mine : shift(loc, lastRows(builder, loc, x, tail), 1, false, "conv.halo");
  auto like = [&](Value result, Value operand) {
    return RankedTensorType::get(typeOf(operand).getShape(), typeOf(result).getElementType());
  };
  Value first = rowsOf(builder, loc, x, 0, halo);
  RankedTensorType dWeight = like(op.getDweight(), weight);
  auto early = ShortConvGradOp::create(builder, loc, like(op.getDx(), first), dWeight, dTail, first, weight,
                                       rowsOf(builder, loc, documents, 0, halo), before,
                                       rowsOf(builder, loc, dy, 0, halo), operands[5]);
  Value behind, asked;
  if (carries) { // by the slice behind this one of the last rank, and by the first rank of the slice before
    Value all = gather(loc, early.getDtail(), 1, "conv.halo_grad");
    Value others[] = {rowsOf(builder, loc, all, halo, (ranks - 1) * halo), operands[5]};
    Value row = ConcatOp::create(builder, loc, all.getType(), others, 1);
    behind = ShardOp::create(builder, loc, dTail, row, coordinate, 1, ranks);
    asked = rowsOf(builder, loc, all, 0, halo);
  } else {
    behind = shift(loc, early.getDtail(), 1, /*reverse=*/true, "conv.halo_grad");
  }
  auto grad = ShortConvGradOp::create(builder, loc, like(op.getDx(), x), dWeight, dTail, x, weight, documents, before,
                                      dy, behind);
  return SmallVector<Value>{grad.getDx(), grad.getDweight(), asked ? asked : grad.getDtail()};
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

/// Keys before a row, which slices put there, are not among those that ranks exchange.
template <typename Attention> static LogicalResult checkKeys(Attention op, StringRef axis, int64_t ranks) {
  if (!op.getPrefix() && !op.getCoordinate())
    return success();
  return op.emitOpError() << "has "
                          << (op.getPrefix() ? "a prefix of " + std::to_string(op.getPrefix()) : "a coordinate")
                          << ", but its tokens are not divided along " << axis << " = " << ranks
                          << " (--mesh) yet; valid: rows are divided before they are cut into slices";
}

/// What every token says to others: keys, values, and the features that keys of all heads share.
static constexpr StringLiteral keyLabels[] = {"attn.k", "attn.v", "attn.k_shared"},
                               keyGradLabels[] = {"attn.dk", "attn.dv", "attn.dk_shared"};
template <typename Attention> static SmallVector<Value> keysOf(Attention op, ValueRange operands) {
  SmallVector<Value> keys{operands[1], operands[2]};
  if (!op.getShared().empty())
    keys.push_back(operands[op.getSharedMutable()[1].getOperandNumber()]);
  return keys;
}
/// Of a call with these keys: q_shared and their shared features.
template <typename Attention>
static SmallVector<Value> sharedOf(Attention op, ValueRange operands, ArrayRef<Value> keys) {
  if (op.getShared().empty())
    return {};
  return {operands[op.getSharedMutable()[0].getOperandNumber()], keys[2]};
}

FailureOr<SmallVector<Value>> SequenceSharder::attention(AttnCausalOp op, ValueRange operands) {
  if (failed(checkKeys(op, axis, ranks)))
    return failure();
  Location loc = op.getLoc();
  Value q = operands[0], documents = operands[3];
  SmallVector<Value> keys = keysOf(op, operands);
  int64_t tokens = typeOf(q).getDimSize(1);
  auto o = RankedTensorType::get(withDim(typeOf(q), 3, typeOf(keys[1]).getDimSize(3)).getShape(),
                                 typeOf(op.getO()).getElementType());
  auto lse = RankedTensorType::get({o.getDimSize(0), o.getDimSize(2), tokens}, typeOf(op.getLse()).getElementType());
  Value sinks = op.getSinks() ? operands[op.getSinksMutable()[0].getOperandNumber()] : Value();
  auto attend = [&](ArrayRef<Value> seen, int64_t prefix, Value place) {
    return AttnCausalOp::create(builder, loc, o, lse, q, seen[0], seen[1], documents, place,
                                sharedOf(op, operands, seen), sinks, op.getScaleAttr(), op.getWindowAttr(),
                                builder.getI64IntegerAttr(prefix), IntegerAttr(), op.getCacheAttr(), op.getRingAttr(),
                                op.getPastAttr(), op.getSoftcapAttr());
  };
  auto results = [](auto causal) { return SmallVector<Value>{causal->getResult(0), causal->getResult(1)}; };
  if (op.getCache()) // every rank has all of it, the keys of these tokens too (append)
    return results(attend(keys, op.getPrefix(), op.getPast() ? coordinate : Value()));
  AttentionPlan plan = planAttention(op.getWindow(), tokens, ranks, algorithm);
  auto each = [&](llvm::function_ref<Value(Value, StringRef)> make) {
    SmallVector<Value> made;
    for (auto [i, x] : llvm::enumerate(keys))
      made.push_back(make(x, keyLabels[i]));
    return made;
  };
  if (plan.kind == AttentionPlan::gathered)
    return results(attend(each([&](Value x, StringRef label) { return gather(loc, x, 1, label); }), 0, coordinate));
  if (plan.kind == AttentionPlan::neighbours)
    return results(attend(each([&](Value x, StringRef label) { return withEarlier(loc, x, plan.before, label); }),
                          plan.before * tokens, coordinate));
  SmallVector<Value> both;
  for (int64_t i = 0; i <= plan.before; ++i) {
    // The next block is on its way while this one is read.
    SmallVector<Value> now = keys;
    if (i < plan.before)
      keys = each([&](Value x, StringRef label) { return shift(loc, x, 1, false, label); });
    SmallVector<Value> block = results(attend(now, i * tokens, i ? coordinate : Value()));
    sinks = {}; // once
    both =
        both.empty() ? block : results(AttnMergeOp::create(builder, loc, o, lse, both[0], both[1], block[0], block[1]));
  }
  return both;
}

/// Caches are whole on every rank; rows of a rank stand at t - documents[t], which its own numbers say.
FailureOr<SmallVector<Value>> SequenceSharder::append(AttnAppendOp op, ValueRange operands) {
  Location loc = op.getLoc();
  Value cache = operands[0], x = gather(loc, operands[1], 1, "attn.append"),
        documents = gather(loc, operands[2], 1, "attn.documents");
  int64_t tokens = typeOf(operands[1]).getDimSize(1);
  for (int64_t i = 0; i < ranks; ++i)
    cache = AttnAppendOp::create(builder, loc, cache.getType(), cache, rowsOf(builder, loc, x, i * tokens, tokens),
                                 rowsOf(builder, loc, documents, i * tokens, tokens), op.getRingAttr());
  return SmallVector<Value>{cache};
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

/// dq, dk, dv, and those of shared features.
FailureOr<SmallVector<Value>> SequenceSharder::attentionGrad(AttnCausalGradOp op, ValueRange operands) {
  if (failed(checkKeys(op, axis, ranks)))
    return failure();
  Location loc = op.getLoc();
  Value q = operands[0];
  SmallVector<Value> keys = keysOf(op, operands);
  int64_t tokens = typeOf(q).getDimSize(1);
  auto attend = [&](ArrayRef<Value> seen, int64_t prefix, Value place) {
    SmallVector<Value> shared = sharedOf(op, operands, seen);
    SmallVector<Type> types{q.getType(), seen[0].getType(), seen[1].getType()};
    llvm::append_range(types, ValueRange(shared).getTypes());
    return AttnCausalGradOp::create(builder, loc, types, q, seen[0], seen[1], operands[3], operands[4], operands[5],
                                    operands[6], place, shared, ValueRange(), op.getScaleAttr(), op.getWindowAttr(),
                                    builder.getI64IntegerAttr(prefix), IntegerAttr(), op.getSoftcapAttr());
  };
  // Of queries first, then of keys.
  auto sorted = [&](AttnCausalGradOp grad) {
    SmallVector<Value> queries{grad.getDq()}, others{grad.getDk(), grad.getDv()};
    if (!grad.getDshared().empty()) {
      queries.push_back(grad.getDshared()[0]);
      others.push_back(grad.getDshared()[1]);
    }
    return std::pair(queries, others);
  };
  auto results = [](ArrayRef<Value> queries, ArrayRef<Value> others) {
    SmallVector<Value> all{queries[0], others[0], others[1]};
    if (queries.size() > 1)
      all.append({queries[1], others[2]});
    return all;
  };
  auto each = [](ArrayRef<Value> xs, ArrayRef<StringLiteral> labels, llvm::function_ref<Value(Value, StringRef)> make) {
    SmallVector<Value> made;
    for (auto [i, x] : llvm::enumerate(xs))
      made.push_back(make(x, labels[i]));
    return made;
  };
  AttentionPlan plan = planAttention(op.getWindow(), tokens, ranks, algorithm);
  if (plan.kind == AttentionPlan::gathered) {
    auto all = each(keys, keyLabels, [&](Value x, StringRef label) { return gather(loc, x, 1, label); });
    auto [queries, others] = sorted(attend(all, 0, coordinate));
    return results(queries, each(others, keyGradLabels,
                                 [&](Value x, StringRef label) { return reduceScatter(loc, x, 1, label); }));
  }
  if (plan.kind == AttentionPlan::neighbours) {
    auto all = each(keys, keyLabels, [&](Value x, StringRef label) { return withEarlier(loc, x, plan.before, label); });
    auto [queries, others] = sorted(attend(all, plan.before * tokens, coordinate));
    // What tokens of this rank ask of the keys of rank r - i goes back there.
    auto back = [&](Value all, StringRef label) {
      SmallVector<Value> parts{rowsOf(builder, loc, all, plan.before * tokens, tokens)};
      for (int64_t i = 1; i <= plan.before; ++i)
        parts.push_back(
            shift(loc, rowsOf(builder, loc, all, (plan.before - i) * tokens, tokens), i, /*reverse=*/true, label));
      return sumOf(builder, loc, parts);
    };
    return results(queries, each(others, keyGradLabels, back));
  }
  SmallVector<SmallVector<Value>> ofQueries(op.getShared().empty() ? 1 : 2), ofKeys(keys.size());
  for (int64_t i = 0; i <= plan.before; ++i) {
    SmallVector<Value> now = keys;
    if (i < plan.before)
      keys = each(keys, keyLabels, [&](Value x, StringRef label) { return shift(loc, x, 1, false, label); });
    auto [queries, others] = sorted(attend(now, i * tokens, i ? coordinate : Value()));
    for (auto [j, d] : llvm::enumerate(queries))
      ofQueries[j].push_back(d);
    for (auto [j, d] : llvm::enumerate(others))
      ofKeys[j].push_back(i ? shift(loc, d, i, /*reverse=*/true, keyGradLabels[j]) : d);
  }
  auto summed = [&](ArrayRef<SmallVector<Value>> parts) {
    return llvm::map_to_vector(parts, [&](ArrayRef<Value> all) { return sumOf(builder, loc, all); });
  };
  return results(summed(ofQueries), summed(ofKeys));
}
