//===- SliceLayer.cpp - one layer function, cut along its tokens --------------------------------------------------===//
#include "passes/overlap/SliceLayer.h"
#include "dialects/braid/ScanTraits.h"
#include "mlir/IR/Matchers.h"
#include "passes/analysis/Mesh.h"
#include "passes/analysis/Tensors.h"
#include "passes/analysis/Views.h"
#include "passes/overlap/LayerTasks.h"
#include "passes/shard/Sequence.h"

using namespace mlir;
using namespace braid;

static bool ascendsFromZero(DenseI64ArrayAttr bounds) {
  return bounds && bounds.size() > 1 && bounds[0] == 0 && llvm::is_sorted(bounds.asArrayRef(), std::less_equal());
}

LogicalResult braid::checkSchedule(func::FuncOp layer) {
  Attribute attribute = layer->getAttr(attrs::schedule);
  if (!attribute)
    return success();
  auto schedule = dyn_cast<DictionaryAttr>(attribute);
  auto word = [&](StringRef key) {
    auto text = schedule ? schedule.getAs<StringAttr>(key) : StringAttr();
    return text ? text.getValue() : StringRef();
  };
  auto mixer = schedule ? schedule.getAs<DenseI64ArrayAttr>("token_slices") : DenseI64ArrayAttr();
  auto experts = schedule ? schedule.getAs<DenseI64ArrayAttr>("moe_slices") : DenseI64ArrayAttr();
  bool ascends = ascendsFromZero(mixer) &&
                 (!experts || (ascendsFromZero(experts) && experts.asArrayRef().back() == mixer.asArrayRef().back()));
  std::optional<schedule::Pipeline> pipeline = schedule::parsePipeline(word("pipeline").str());
  bool known = (word("direction") == "forward" || word("direction") == "backward") && pipeline &&
               *pipeline != schedule::Pipeline::none;
  if (ascends && known)
    return success();
  std::string names;
  for (std::string_view name : schedule::pipelineNames)
    if (schedule::parsePipeline(name) != schedule::Pipeline::none)
      names += (names.empty() ? "\"" : ", \"") + std::string(name) + "\"";
  return layer.emitOpError() << "has the schedule " << attribute
                             << "; valid: direction \"forward\" or \"backward\", pipeline " << names
                             << ", token_slices ascending from 0 (and moe_slices, as many tokens)";
}

SliceBounds::SliceBounds(DictionaryAttr schedule)
    : mixer(schedule.getAs<DenseI64ArrayAttr>("token_slices").asArrayRef()), experts(mixer) {
  if (auto other = schedule.getAs<DenseI64ArrayAttr>("moe_slices"))
    experts.assign(other.asArrayRef().begin(), other.asArrayRef().end());
}

/// Expert rows stand in dimension 1 ([1, R, M]), what a plan says of them in dimension 0.
static int64_t rowsDim(RankedTensorType type) { return type.getRank() == 3 ? 1 : 0; }

Value SliceLayer::concat(ValueRange parts, int64_t dim) {
  int64_t size = 0;
  for (Value p : parts)
    size += typeOf(p).getDimSize(dim);
  return ConcatOp::create(builder, parts[0].getLoc(), withDim(typeOf(parts[0]), dim, size), parts, dim);
}
Value SliceLayer::range(Value v, int64_t dim, int64_t begin, int64_t size) {
  return SliceOp::create(builder, v.getLoc(), withDim(typeOf(v), dim, size), v, dim, begin);
}

Value SliceLayer::reshape(Value v, ArrayRef<int64_t> shape) {
  return ReshapeOp::create(builder, v.getLoc(), typeOf(v).clone(shape), v);
}

SliceLayer::Cut SliceLayer::unpack(Value v, int64_t dim) {
  Cut cut{TokenKind::token, dim, {}, {}, mixer};
  RankedTensorType type = typeOf(v);
  Value flat = reshape(v, type.getNumElements());
  for (int64_t i = 0, begin = 0; i < count(mixer); ++i) {
    RankedTensorType part = withDim(type, dim, lengthOf(mixer, i));
    cut.parts.push_back(reshape(range(flat, 0, begin, part.getNumElements()), part.getShape()));
    begin += part.getNumElements();
  }
  return cut;
}

Value SliceLayer::pack(Value v, int64_t dim) {
  SmallVector<Value> parts;
  for (int64_t i = 0; i < count(mixer); ++i) {
    const Cut *cut = isCut(v) ? &cuts[v] : nullptr;
    bool isPart = cut && cut->kind == TokenKind::token && cut->dim == dim;
    Value part = isPart ? cut->parts[i] : range(whole(v), dim, grids[mixer][i], lengthOf(mixer, i));
    parts.push_back(reshape(part, typeOf(part).getNumElements()));
  }
  return reshape(concat(parts, 0), typeOf(v).getShape());
}

std::optional<int64_t> SliceLayer::tokenDim(func::FuncOp layer, BlockArgument argument) {
  Block nowhere;
  SliceLayer slices(layer, nowhere, SliceBounds(layer->getAttrOfType<DictionaryAttr>(attrs::schedule)));
  if (slices.count(mixer) == 1 || !isa<RankedTensorType>(argument.getType()))
    return std::nullopt;
  Cut cut = slices.argumentCut(argument);
  bool isWhole =
      cut.kind == TokenKind::token && cut.grid == mixer && typeOf(argument).getDimSize(cut.dim) == slices.tokens();
  return isWhole ? std::optional(cut.dim) : std::nullopt;
}

SliceLayer::Cut SliceLayer::argumentCut(BlockArgument argument) {
  for (OpOperand &use : argument.getUses()) {
    Operation *user = use.getOwner();
    auto readsLse = [&](auto grad) { return grad && grad.getLse() == argument; };
    if (readsLse(dyn_cast<AttnCausalGradOp>(user)) || readsLse(dyn_cast<AttnSinkGradOp>(user)))
      return {TokenKind::token, 2, {}, {}, mixer};
    if (isa<SliceOp>(user) && user->hasAttr(kSectionAttr))
      return {TokenKind::rows, 0, {}, {}, experts};
    auto tokens = dyn_cast<TokenOpInterface>(user);
    if (!tokens)
      continue;
    TokenKind kind = tokens.operandKind(use.getOperandNumber());
    // What is computed from weights alone is one row, and a weight or a view of one.
    auto isRow = [](Value v) { return typeOf(v).getRank() < 2 || typeOf(v).getDimSize(1) == 1; };
    if (kind == TokenKind::token && (isRow(argument) || (isa<ReshapeOp>(user) && isRow(user->getResult(0)))))
      return {};
    // Row-wise ops call expert rows tokens; there are more of them.
    if (kind == TokenKind::token && typeOf(argument).getDimSize(1) == this->tokens())
      return {kind, 1, {}, {}, mixer};
    if (kind == TokenKind::token)
      kind = TokenKind::rows;
    if (kind == TokenKind::rows)
      return {kind, rowsDim(typeOf(argument)), {}, {}, experts};
    return {kind, 0, {}, {}, mixer};
  }
  return {};
}

/// A row-wise op whose rows are those of experts.
bool SliceLayer::isOfRows(Operation &op) const {
  auto tokens = dyn_cast<TokenOpInterface>(op);
  if (!tokens)
    return false;
  for (auto [i, operand] : llvm::enumerate(op.getOperands()))
    if (isCut(operand) && cuts.lookup(operand).kind == TokenKind::rows && tokens.operandKind(i) == TokenKind::token)
      return true;
  return false;
}

/// Ops that see expert rows, and views, sums and collectives of what such ops made.
SliceLayer::Grid SliceLayer::gridOf(Operation &op) const {
  auto tokens = dyn_cast<TokenOpInterface>(op);
  if (isa<ReshapeOp, SliceOp, ConcatOp, CollectiveOpInterface>(op) || !tokens) {
    for (Value operand : op.getOperands())
      if (isCut(operand))
        return cuts.lookup(operand).grid;
    return mixer;
  }
  if (isOfRows(op))
    return experts;
  for (unsigned i = 0; i < op.getNumOperands(); ++i)
    if (tokens.operandKind(i) == TokenKind::rows)
      return experts;
  for (unsigned i = 0; i < op.getNumResults(); ++i)
    if (tokens.resultKind(i) == TokenKind::rows)
      return experts;
  return mixer;
}

/// Tokens [begin, end) of a value that is cut elsewhere: waits only for the parts that hold them.
Value SliceLayer::tokenRange(const Cut &cut, int64_t begin, int64_t end) {
  if (cut.merged)
    return range(cut.merged, cut.dim, begin, end - begin);
  SmallVector<Value> pieces;
  ArrayRef<int64_t> bounds = grids[cut.grid];
  for (int64_t i = 0; i < count(cut.grid); ++i) {
    int64_t from = std::max(begin, bounds[i]), to = std::min(end, bounds[i + 1]);
    if (from >= to)
      continue;
    bool all = from == bounds[i] && to == bounds[i + 1];
    pieces.push_back(all ? cut.parts[i] : range(cut.parts[i], cut.dim, from - bounds[i], to - from));
  }
  return pieces.size() == 1 ? pieces[0] : concat(pieces, cut.dim);
}

/// The slice's part of a value that an op reads as tokens or rows.
Value SliceLayer::part(Value v, Grid grid, int64_t slice, TokenKind wanted) {
  int64_t begin = grids[grid][slice], end = grids[grid][slice + 1];
  if (isCut(v)) {
    const Cut &cut = cuts[v];
    if (cut.grid == grid || grids[mixer] == grids[experts] || cut.kind != TokenKind::token)
      return cut.parts[slice];
    return tokenRange(cut, begin, end);
  }
  Value local = map.lookup(v);
  if (wanted != TokenKind::token && wanted != TokenKind::rows)
    return local;
  DenseElementsAttr value;
  if (matchPattern(local, m_Constant(&value)) && value.isSplat())
    return arith::ConstantOp::create(
        builder, v.getLoc(),
        DenseElementsAttr::get(withDim(typeOf(local), 1, end - begin), value.getSplatValue<Attribute>()));
  return range(local, 1, begin, end - begin);
}

/// The sum in operand order. In groups of a few, so that there are as many kernels whatever the overlap degree; until it
/// is complete it stays in f32.
Value SliceLayer::sum(ArrayRef<Value> parts) {
  constexpr size_t most = 4;
  RankedTensorType type = typeOf(parts[0]);
  Type element = type.getElementType();
  RankedTensorType wide = type.clone(element.isBF16() ? builder.getF32Type() : element);
  SmallVector<Value> group(parts.take_front(most));
  for (parts = parts.drop_front(group.size()); !parts.empty(); parts = parts.drop_front(group.size() - 1)) {
    auto before = AddOp::create(builder, group[0].getLoc(), wide, group);
    before->setAttr(attrs::partialSum, builder.getUnitAttr());
    group.assign({before.getResult()});
    llvm::append_range(group, parts.take_front(most - 1));
  }
  return group.size() == 1 ? group[0] : AddOp::create(builder, group[0].getLoc(), type, group).getResult();
}

Value SliceLayer::whole(Value v) {
  if (!isCut(v))
    return map.lookup(v);
  Cut &cut = cuts[v];
  if (cut.merged)
    return cut.merged;
  if (cut.kind == TokenKind::piece) {
    // Forward counts in slice order, gradients in the order in which their slices run (phases-by-example D21).
    SmallVector<Value> ordered(cut.parts);
    if (isa<FloatType>(typeOf(v).getElementType()))
      std::reverse(ordered.begin(), ordered.end());
    return cut.merged = sum(ordered);
  }
  return cut.merged = concat(cut.parts, cut.dim);
}

RankedTensorType SliceLayer::partType(Operation &op, unsigned result, ValueRange operands, Grid grid, int64_t slice) {
  RankedTensorType type = typeOf(op.getResult(result));
  if (auto plan = dyn_cast<MoePlanOp>(op)) {
    if (result == 1)
      return typeOf(operands[0]);
    if (result == 0)
      return withDim(type, 0, share(type.getDimSize(0), grid, slice));
    return type;
  }
  if (isa<MoePlanReceivedOp>(op))
    return result < 2 ? withDim(type, 0, share(type.getDimSize(0), grid, slice)) : type;
  if (isa<CollectiveOpInterface>(op)) {
    // A gathered or scattered dimension stays as many times the part as it was.
    RankedTensorType x = typeOf(op.getOperand(0)), now = typeOf(operands[0]);
    SmallVector<int64_t> shape(now.getShape());
    for (auto [i, size] : llvm::enumerate(shape))
      size = size * type.getDimSize(i) / x.getDimSize(i);
    return now.clone(shape);
  }
  if (auto shard = dyn_cast<ShardOp>(op))
    return withDim(typeOf(operands[0]), shard.getDim(), type.getDimSize(shard.getDim()));
  if (isa<ReshapeOp>(op))
    return cuts.lookup(op.getOperand(0)).kind == TokenKind::token
               ? withDim(type, 1, share(type.getDimSize(1), grid, slice))
               : type;
  if (isa<ConcatOp>(op)) {
    int64_t size = 0;
    for (Value v : operands)
      size += typeOf(v).getDimSize(0);
    return withDim(type, 0, size);
  }
  if (isa<SliceOp>(op)) {
    int64_t section = cast<IntegerAttr>(op.getAttr(kSectionAttr)).getInt();
    return section < 2 ? type : withDim(type, 0, share(type.getDimSize(0), grid, slice));
  }
  auto tokens = cast<TokenOpInterface>(op);
  switch (tokens.resultKind(result)) {
  case TokenKind::token: return withDim(type, 1, share(type.getDimSize(1), grid, slice));
  case TokenKind::rows: return withDim(type, rowsDim(type), share(type.getDimSize(rowsDim(type)), grid, slice));
  case TokenKind::state:
  case TokenKind::whole:
  case TokenKind::piece: return type;
  }
  return type;
}

Operation *SliceLayer::clone(Operation &op, ArrayRef<Value> operands, Grid grid, int64_t slice) {
  SmallVector<Type> types;
  for (unsigned i = 0; i < op.getNumResults(); ++i)
    types.push_back(partType(op, i, operands, grid, slice));
  OperationState state(op.getLoc(), op.getName(), operands, types, op.getAttrs());
  state.propertiesAttr = op.getPropertiesAsAttribute();
  Operation *copy = builder.create(state);
  copy->setAttr(kSliceAttr, builder.getI64IntegerAttr(slice));
  if (grid == experts)
    copy->setAttr(kRowsAttr, builder.getUnitAttr());
  if (auto plan = dyn_cast<MoePlanOp>(copy))
    plan.setPeerRows(share(plan.getPeerRows(), grid, slice));
  if (auto received = dyn_cast<MoePlanReceivedOp>(copy))
    received.setPeerRows(share(received.getPeerRows(), grid, slice));
  if (auto section = copy->getAttrOfType<IntegerAttr>(kSectionAttr); section && section.getInt() == 3) {
    // counts, counts, order, inverse: the last begins behind a part's order.
    auto view = cast<SliceOp>(copy);
    int64_t size = typeOf(view.getResult()).getDimSize(0);
    view.setBegin(typeOf(view.getSource()).getDimSize(0) - size);
  }
  return copy;
}

/// States that enter each slice of a gradient op: rebuilt from the forward inputs (one pass over states, no outputs).
SmallVector<Value> SliceLayer::incomingStates(Operation &op) {
  SmallVector<Value> states;
  if (auto grad = dyn_cast<LsmScanGradOp>(op)) {
    states.push_back(whole(grad.getInitialState()));
    for (int64_t i = 0; i + 1 < count(mixer); ++i) {
      auto at = [&](Value v, TokenKind kind) { return v ? part(v, mixer, i, kind) : Value(); };
      Value k = at(grad.getK(), TokenKind::token), v = at(grad.getV(), TokenKind::token);
      auto o = typeOf(v).clone(outputShape(k, v));
      auto scan = LsmScanOp::create(
          builder, op.getLoc(), TypeRange{o, states.back().getType()}, at(grad.getQ(), TokenKind::token), k, v,
          at(grad.getLogDecay(), isWholeDecay(grad) ? TokenKind::whole : TokenKind::token),
          at(grad.getBeta(), TokenKind::token), at(grad.getA(), TokenKind::token), at(grad.getB(), TokenKind::token),
          at(grad.getValueDecay(), TokenKind::token), states.back(), at(grad.getDocuments(), TokenKind::token),
          grad.getClassIdAttr(), grad.getScaleAttr(), grad.getChunkSizeAttr());
      scan->setAttr(kSliceAttr, builder.getI64IntegerAttr(i + 1));
      attrs::keep(&op, scan, {kSequenceAttr, attrs::leastLogDecay});
      states.push_back(scan.getFinalState());
    }
  } else if (auto grad = dyn_cast<LsmInnerStepGradOp>(op)) {
    states.push_back(whole(grad.getInitialState()));
    for (int64_t i = 0; i + 1 < count(mixer); ++i) {
      auto at = [&](Value v) { return v ? part(v, mixer, i, TokenKind::token) : Value(); };
      auto all = [&](Value v) { return v ? whole(v) : Value(); };
      Value v = at(grad.getV());
      auto step = LsmInnerStepOp::create(
          builder, op.getLoc(), TypeRange{v.getType(), states.back().getType()}, at(grad.getQ()), at(grad.getK()), v,
          at(grad.getRate()), at(grad.getLogDecay()), at(grad.getLogMomentum()), at(grad.getReadRate()),
          all(grad.getNormWeight()), all(grad.getNormBias()), all(grad.getWeights()), states.back(),
          at(grad.getDocuments()), grad.getMiniBatchAttr(), grad.getNormEpsAttr());
      step->setAttr(kSliceAttr, builder.getI64IntegerAttr(i + 1));
      attrs::keep(&op, step, kSequenceAttr);
      states.push_back(step.getFinalState());
    }
  } else if (auto grad = dyn_cast<ShortConvGradOp>(op)) {
    states.push_back(whole(grad.getTail()));
    RankedTensorType tail = typeOf(grad.getTail());
    for (int64_t i = 0; i + 1 < count(mixer); ++i) {
      Value x = part(grad.getX(), mixer, i, TokenKind::token);
      int64_t tokens = typeOf(x).getDimSize(1), taps = tail.getDimSize(1);
      if (tokens < taps)
        return {};
      Ranks ranks = ranksOf(op);
      Value last = ofAllRanks(ranks, range(x, 1, tokens - taps, taps), "conv.halo");
      last = ranks.count > 1 ? range(last, 1, (ranks.count - 1) * taps, taps) : last; // of the last rank
      states.push_back(ReshapeOp::create(builder, op.getLoc(), tail, last));
    }
  }
  return states;
}

SliceLayer::Ranks SliceLayer::ranksOf(Operation &op) {
  if (!op.hasAttr(kSequenceAttr))
    return {};
  SequencePlace place = *sequencePlace(&op); // checked by ExpandSlices
  return {place.axis, place.ranks, map.lookup(place.coordinate)};
}

/// Tokens of a slice from all its ranks, in their order.
Value SliceLayer::ofAllRanks(const Ranks &ranks, Value x, StringRef label) {
  if (ranks.count == 1)
    return x;
  RankedTensorType type = typeOf(x);
  auto op = CommAllGatherOp::create(builder, x.getLoc(), withDim(type, 1, type.getDimSize(1) * ranks.count), x,
                                    ranks.axis, 1);
  op->setAttr("label", builder.getStringAttr(label));
  return op;
}
/// This rank's tokens of a slice of which all ranks have a part of the sum.
Value SliceLayer::ofThisRank(const Ranks &ranks, Value sum, StringRef label) {
  if (ranks.count == 1)
    return sum;
  RankedTensorType type = typeOf(sum);
  auto op = CommReduceScatterOp::create(builder, sum.getLoc(), withDim(type, 1, type.getDimSize(1) / ranks.count), sum,
                                        ranks.axis, 1);
  op->setAttr("label", builder.getStringAttr(label));
  return op;
}

/// Tokens of slices 0 to i, for every i. Where they can, parts stand one after the other, and what grows is a view of
/// them; else every slice fills further what has room for the row, and whoever reads it is told how far.
SmallVector<Value> SliceLayer::growing(ArrayRef<Value> parts) {
  SmallVector<Value> all;
  int64_t room = 0, begin = 0;
  for (Value part : parts)
    room += typeOf(part).getDimSize(1);
  RankedTensorType type = withDim(typeOf(parts[0]), 1, room);
  for (auto [i, part] : llvm::enumerate(parts)) {
    if (isLeading(type, 1) || parts.size() == 1) {
      all.push_back(concat(parts.take_front(i + 1), 1));
      continue;
    }
    auto filled = InsertOp::create(builder, part.getLoc(), type, part, all.empty() ? Value() : all.back(), 1, begin);
    filled->setAttr(kSliceAttr, builder.getI64IntegerAttr(static_cast<int64_t>(i)));
    all.push_back(filled);
    begin += typeOf(part).getDimSize(1);
  }
  return all;
}

/// How many keys there are, where there is room for more.
IntegerAttr SliceLayer::keysAttr(Value keys, int64_t count) {
  return typeOf(keys).getDimSize(1) == count ? IntegerAttr() : builder.getI64IntegerAttr(count);
}

/// Keys, values, and the features that keys of all heads share, as each slice sees them: of those before it and its own.
template <typename Attention>
SmallVector<SmallVector<Value>> SliceLayer::growingKeys(Attention op, const Ranks &ranks) {
  SmallVector<std::pair<Value, StringRef>> all{{op.getK(), "attn.k"}, {op.getV(), "attn.v"}};
  if (!op.getShared().empty())
    all.push_back({op.getShared()[1], "attn.k_shared"});
  SmallVector<SmallVector<Value>> parts(all.size());
  for (int64_t i = 0; i < count(mixer); ++i)
    for (auto [x, of] : llvm::zip_equal(parts, all))
      x.push_back(ofAllRanks(ranks, part(of.first, mixer, i, TokenKind::token), of.second));
  return llvm::map_to_vector(parts, [&](ArrayRef<Value> x) { return growing(x); });
}

LogicalResult SliceLayer::sliceAttention(AttnCausalOp op) {
  ArrayRef<int64_t> bounds = grids[mixer];
  Cut o{TokenKind::token, 1, {}, {}, mixer}, lse{TokenKind::token, 2, {}, {}, mixer};
  Ranks ranks = ranksOf(*op);
  SmallVector<SmallVector<Value>> seen = growingKeys(op, ranks);
  ArrayRef<Value> keys = seen[0], values = seen[1];
  for (int64_t i = 0; i < count(mixer); ++i) {
    Value q = part(op.getQ(), mixer, i, TokenKind::token);
    RankedTensorType lseType = withDim(typeOf(op.getLse()), 2, bounds[i + 1] - bounds[i]),
                     oType = withDim(typeOf(op.getO()), 1, bounds[i + 1] - bounds[i]);
    SmallVector<Value> shared;
    if (seen.size() > 2)
      shared = {part(op.getShared()[0], mixer, i, TokenKind::token), seen[2][i]};
    auto copy = AttnCausalOp::create(builder, op.getLoc(), TypeRange{oType, lseType}, q, keys[i], values[i],
                                     part(op.getDocuments(), mixer, i, TokenKind::token), ranks.coordinate, shared,
                                     op.getSinks() ? whole(op.getSinks()) : Value(), op.getScaleAttr(),
                                     op.getWindowAttr(), builder.getI64IntegerAttr(bounds[i] * ranks.count),
                                     keysAttr(keys[i], bounds[i + 1] * ranks.count), UnitAttr(), UnitAttr(), UnitAttr(),
                                     op.getSoftcapAttr());
    copy->setAttr(kSliceAttr, builder.getI64IntegerAttr(i));
    o.parts.push_back(copy.getO());
    lse.parts.push_back(copy.getLse());
  }
  cuts[op.getO()] = o;
  cuts[op.getLse()] = lse;
  return success();
}

/// A slice's keys and values gather cotangents from every later slice, in one buffer and in f32 until they are complete:
/// when the slice itself has run.
LogicalResult SliceLayer::sliceAttentionGrad(AttnCausalGradOp op) {
  ArrayRef<int64_t> bounds = grids[mixer];
  int64_t n = count(mixer);
  Ranks ranks = ranksOf(*op);
  SmallVector<SmallVector<Value>> seen = growingKeys(op, ranks);
  static constexpr StringLiteral labels[] = {"attn.dk", "attn.dv", "attn.dk_shared"};
  bool isShared = seen.size() > 2;
  SmallVector<Value> ofKeys{op.getDk(), op.getDv()}, ofQueries{op.getDq()}, sums;
  if (isShared) {
    ofQueries.push_back(op.getDshared()[0]);
    ofKeys.push_back(op.getDshared()[1]);
  }
  SmallVector<SmallVector<Value>> dkeys(ofKeys.size(), SmallVector<Value>(n)),
      dqueries(ofQueries.size(), SmallVector<Value>(n));
  bool fills =
      typeOf(seen[0][0]) == typeOf(seen[0][n - 1]); // all of it is there before the last slice, which runs first
  for (int64_t i = n - 1; i >= 0; --i) {
    Value q = part(op.getQ(), mixer, i, TokenKind::token);
    int64_t end = bounds[i + 1] * ranks.count;
    SmallVector<Value> keys, shared;
    for (ArrayRef<Value> x : seen)
      keys.push_back(x[fills ? n - 1 : i]);
    if (isShared)
      shared = {part(op.getShared()[0], mixer, i, TokenKind::token), keys[2]};
    auto sumType = [](Value of) {
      RankedTensorType type = typeOf(of);
      return type.getElementType().isBF16() ? type.clone(Float32Type::get(of.getContext())) : type;
    };
    SmallVector<Type> types{q.getType(), sumType(keys[0]), sumType(keys[1])};
    if (isShared)
      types.append({shared[0].getType(), sumType(keys[2])});
    if (!fills)
      for (Value &sum : sums)
        sum = range(sum, 1, 0, end);
    auto copy = AttnCausalGradOp::create(
        builder, op.getLoc(), types, q, keys[0], keys[1], part(op.getDocuments(), mixer, i, TokenKind::token),
        part(op.getO(), mixer, i, TokenKind::token), part(op.getLse(), mixer, i, TokenKind::token),
        part(op.getDO(), mixer, i, TokenKind::token), ranks.coordinate, shared, sums, op.getScaleAttr(),
        op.getWindowAttr(), builder.getI64IntegerAttr(bounds[i] * ranks.count), keysAttr(keys[0], end),
        op.getSoftcapAttr());
    copy->setAttr(kSliceAttr, builder.getI64IntegerAttr(i));
    dqueries[0][i] = copy.getDq();
    sums = {copy.getDk(), copy.getDv()};
    if (isShared) {
      dqueries[1][i] = copy.getDshared()[0];
      sums.push_back(copy.getDshared()[1]);
    }
    for (auto [j, sum] : llvm::enumerate(sums)) {
      int64_t begin = bounds[i] * ranks.count;
      Value own = range(sum, 1, begin, end - begin);
      if (Type element = typeOf(ofKeys[j]).getElementType(); element != typeOf(sum).getElementType())
        own = CastOp::create(builder, op.getLoc(), typeOf(own).clone(element), own);
      dkeys[j][i] = ofThisRank(ranks, own, labels[j]);
    }
  }
  for (auto [result, parts] : llvm::zip_equal(ofQueries, dqueries))
    cuts[result] = {TokenKind::token, 1, parts, {}, mixer};
  for (auto [result, parts] : llvm::zip_equal(ofKeys, dkeys))
    cuts[result] = {TokenKind::token, 1, parts, {}, mixer};
  return success();
}

/// Orders that later tokens change cannot hand out slots slice by slice (moe-family 9).
static LogicalResult checkSlices(Operation &op, bool mixersCut) {
  if (auto drop = dyn_cast<MoeDropOp>(op); drop && mixersCut && drop.getPolicy() != "token")
    return drop.emitOpError()
           << "drop policy \"" << drop.getPolicy()
           << "\" orders all tokens of a row before the first is sent, which token slices (--pipeline, "
              "--overlap-degree) do not wait for; valid with slices: \"token\"";
  auto plan = dyn_cast<MoePlanOp>(op);
  if (!plan)
    return success();
  if (plan.getExpertRows())
    return plan.emitOpError()
           << "pads every expert to " << *plan.getExpertRows()
           << " rows for all tokens, which token slices (--pipeline, --overlap-degree) cannot share; valid with "
              "slices: padded_slots false";
  RankedTensorType ids = typeOf(plan.getIds());
  int64_t peers = plan.getPeers(), perToken = std::min<int64_t>(ids.getDimSize(2), plan.getNumExperts() / peers);
  int64_t needed = ids.getDimSize(0) * ids.getDimSize(1) * perToken;
  if (peers > 1 && static_cast<int64_t>(plan.getPeerRows()) < needed && !plan->hasAttr(kLessRoomAttr))
    return plan.emitOpError() << "has " << plan.getPeerRows() << " rows for a peer but slices may fill " << needed
                              << "; shard with the pipeline and overlap degree that cut the tokens";
  return success();
}

/// A rank's heads or hidden units, of tokens that stay apart.
static bool cutsFeatures(Operation &op) {
  auto shard = dyn_cast<ShardOp>(op);
  return shard && shard.getDim() > 1;
}

/// Once for the whole layer: weights, totals, collectives on totals, all of a mixer that is not cut.
void SliceLayer::cloneWhole(Operation &op) {
  IRMapping wholes;
  for (Value operand : op.getOperands())
    wholes.map(operand, whole(operand));
  Operation *copy = builder.clone(op, wholes);
  if (isWeightGradient(copy))
    copy->setAttr(kFillerAttr, builder.getUnitAttr());
  map.map(op.getResults(), copy->getResults());
}

/// Each slice's product is added to those of the slices behind it, the order in which they run (phases-by-example D21),
/// in one buffer; in f32 until the sum is complete.
void SliceLayer::sliceWeightGradient(Operation &op, Grid grid) {
  auto tokens = cast<TokenOpInterface>(op);
  SmallVector<Value> sums;
  for (int64_t slice = count(grid) - 1; slice >= 0; --slice) {
    auto partOf = [&](OpOperand &operand) {
      return part(operand.get(), grid, slice, tokens.operandKind(operand.getOperandNumber()));
    };
    auto partsOf = [&](MutableOperandRange operands) {
      return llvm::map_to_vector(operands, [&](OpOperand &operand) { return partOf(operand); });
    };
    SmallVector<Type> types = llvm::to_vector(op.getResultTypes());
    for (Type &type : types)
      if (auto tensor = cast<RankedTensorType>(type); slice > 0 && tensor.getElementType().isBF16())
        type = tensor.clone(builder.getF32Type());
    Operation *copy = nullptr;
    if (auto grad = dyn_cast<LinearGradWeightOp>(op))
      copy = LinearGradWeightOp::create(builder, op.getLoc(), types, partOf(grad.getXMutable()),
                                        partsOf(grad.getDysMutable()), sums, grad.getTransposedAttr());
    else if (auto grad = dyn_cast<MoeGroupedLinearGradWeightOp>(op))
      copy =
          MoeGroupedLinearGradWeightOp::create(builder, op.getLoc(), types, partOf(grad.getXMutable()),
                                               partOf(grad.getOffsetsMutable()), partsOf(grad.getDysMutable()), sums);
    copy->setAttr(kSliceAttr, builder.getI64IntegerAttr(slice));
    copy->setAttr(kFillerAttr, builder.getUnitAttr());
    if (grid == experts)
      copy->setAttr(kRowsAttr, builder.getUnitAttr());
    sums = llvm::to_vector_of<Value>(copy->getResults());
  }
  map.map(op.getResults(), sums);
}

LogicalResult SliceLayer::sliceOp(Operation &op) {
  if (failed(checkSlices(op, count(mixer) > 1)))
    return failure();
  Grid grid = gridOf(op);
  if (grid == mixer && count(mixer) == 1)
    return cloneWhole(op), success();
  if (auto attention = dyn_cast<AttnCausalOp>(op))
    return sliceAttention(attention);
  if (auto attention = dyn_cast<AttnCausalGradOp>(op))
    return sliceAttentionGrad(attention);
  auto tokens = dyn_cast<TokenOpInterface>(op);
  bool follows = isa<CollectiveOpInterface>(op) || cutsFeatures(op); // its first operand
  bool parallel = follows || isa<SliceOp, ConcatOp>(op);
  bool touches = isa<SumGradOp>(op);
  for (auto [i, operand] : llvm::enumerate(op.getOperands())) {
    if (!isCut(operand))
      continue;
    TokenKind kind = cuts[operand].kind;
    bool localCounts =
        kind == TokenKind::piece && isa_and_nonnull<MoePlanOp>(operand.getDefiningOp()) && isa<ReshapeOp, ConcatOp>(op);
    touches |= kind == TokenKind::token || kind == TokenKind::rows || localCounts;
  }
  touches |= isa<MoePlanOp>(op); // of one mixer slice: nothing that it reads is cut
  if (!touches || (!tokens && !parallel))
    return cloneWhole(op), success();
  if (isa<LinearGradWeightOp, MoeGroupedLinearGradWeightOp>(op))
    return sliceWeightGradient(op, grid), success();
  ArrayRef<int64_t> bounds = grids[grid];
  int64_t n = count(grid);

  bool reversed = tokens && tokens.carryReversed();
  SmallVector<Value> incoming = incomingStates(op);
  if (isa<LsmScanGradOp, ShortConvGradOp>(op) && incoming.empty()) {
    int64_t shortest = std::numeric_limits<int64_t>::max();
    for (int64_t i = 0; i + 1 < n; ++i)
      shortest = std::min(shortest, bounds[i + 1] - bounds[i]);
    int64_t taps = typeOf(cast<ShortConvGradOp>(op).getTail()).getDimSize(1);
    return op.emitOpError() << "has a tail of " << taps << " tokens but a slice of " << shortest
                            << "; valid: overlap degree " << std::max<int64_t>(bounds.back() / taps, 1) << " or less";
  }
  SmallVector<Operation *> copies(n);
  for (int64_t step = 0; step < n; ++step) {
    int64_t slice = reversed ? n - 1 - step : step;
    Operation *before = step == 0 ? nullptr : copies[reversed ? slice + 1 : slice - 1];
    SmallVector<Value> operands;
    for (auto [i, operand] : llvm::enumerate(op.getOperands())) {
      TokenKind kind = tokens && !parallel ? tokens.operandKind(i) : TokenKind::rows;
      if (follows && isCut(operand))
        kind = cuts[operand].kind;
      Value value;
      if (kind == TokenKind::whole)
        value = whole(operand);
      else if (kind != TokenKind::state)
        value = isCut(operand) || tokens ? part(operand, grid, slice, kind) : whole(operand);
      else
        value = reversed && !incoming.empty() ? incoming[slice] : whole(operand);
      operands.push_back(value);
    }
    if (tokens)
      for (unsigned result = 0; result < op.getNumResults(); ++result)
        if (int carry = tokens.carryOf(result); carry >= 0)
          operands[carry] = before ? before->getResult(result) : whole(op.getOperand(carry));
    copies[slice] = clone(op, operands, grid, slice);
  }
  for (unsigned result = 0; result < op.getNumResults(); ++result) {
    TokenKind kind = tokens && !parallel ? tokens.resultKind(result) : TokenKind::rows;
    Value old = op.getResult(result);
    if (follows && isCut(op.getOperand(0)))
      kind = cuts[op.getOperand(0)].kind;
    // A view or a sum has the kind of what it reads.
    if (isa<ReshapeOp>(op) && isCut(op.getOperand(0)) && cuts[op.getOperand(0)].kind != TokenKind::token)
      kind = TokenKind::rows;
    if (kind == TokenKind::token && isOfRows(op))
      kind = TokenKind::rows;
    if (kind == TokenKind::state) {
      map.map(old, copies[reversed ? 0 : n - 1]->getResult(result));
      continue;
    }
    Cut cut{kind, kind == TokenKind::rows ? rowsDim(typeOf(old)) : 1, {}, {}, grid};
    for (Operation *copy : copies)
      cut.parts.push_back(copy->getResult(result));
    cuts[old] = cut;
  }
  if (isWeightGradient(&op))
    for (Operation *copy : copies)
      copy->setAttr(kFillerAttr, builder.getUnitAttr());
  return success();
}

LogicalResult SliceLayer::run(const PackedSlices &packed) {
  Block &body = from.getBody().front();
  for (auto [argument, target] : llvm::zip_equal(body.getArguments(), to.getArguments())) {
    Cut cut = argumentCut(argument);
    map.map(argument, target);
    if (std::optional<int64_t> dim = packed.argument(from, argument.getArgNumber())) {
      cuts[argument] = unpack(target, *dim);
      continue;
    }
    if (cut.kind != TokenKind::token && cut.kind != TokenKind::rows)
      continue;
    if (cut.grid == mixer && count(mixer) == 1)
      continue;
    int64_t n = count(cut.grid);
    cut.merged = target;
    if (n == 1) { // experts of a sliced mixer
      cut.parts = {target};
      cuts[argument] = cut;
      continue;
    }
    // What a sliced forward saved stands part by part, each with its own `fixed` head (the counts of an exchange).
    int64_t unsliced = typeOf(argument).getDimSize(cut.dim), size = typeOf(target).getDimSize(cut.dim);
    int64_t fixed = (size - unsliced) / (n - 1);
    if ((unsliced - fixed) % tokens() || unsliced + fixed * (n - 1) != size)
      return from.emitOpError() << "argument " << argument.getArgNumber() << " has " << size << " rows for " << tokens()
                                << " tokens in " << n << " slices";
    for (int64_t i = 0, begin = 0; i < n; ++i) {
      int64_t length = fixed + share(unsliced - fixed, cut.grid, i);
      cut.parts.push_back(range(target, cut.dim, begin, length));
      begin += length;
    }
    cuts[argument] = cut;
  }
  for (Operation &op : body.without_terminator())
    if (failed(sliceOp(op)))
      return failure();
  SmallVector<Value> results;
  for (auto [i, value] : llvm::enumerate(body.getTerminator()->getOperands())) {
    std::optional<int64_t> dim = packed.result(from, static_cast<int64_t>(i));
    results.push_back(dim ? pack(value, *dim) : whole(value));
  }
  func::ReturnOp::create(builder, body.getTerminator()->getLoc(), results);
  return success();
}
