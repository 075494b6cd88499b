//===- Sharder.cpp - conversions between placements, and ops by their rule ----------------------------------------===//
#include "passes/shard/Sharder.h"
#include "mlir/IR/Matchers.h"
#include "passes/analysis/Tensors.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/TypeSwitch.h"
#include <numeric>

using namespace mlir;
using namespace braid;

//===- Placements of values ---------------------------------------------------------------------------------------===//

Placement Sharder::placementOf(Value local) const {
  auto it = placements.find(local);
  return it == placements.end() ? Placement::whole(typeOf(local).getRank()) : it->second;
}

Axes Sharder::present(ArrayRef<StringRef> axes) const {
  return llvm::to_vector<2>(llvm::make_filter_range(axes, [&](StringRef axis) { return mesh.size(axis) > 1; }));
}

Value Sharder::coordinate(ArrayRef<StringRef> axes) {
  std::string name = productName(axes);
  Scope &scope = scopes.back();
  for (auto &[known, value] : scope.coordinates)
    if (known == name)
      return value;
  MLIRContext *context = module.getContext();
  Value value = scope.body->addArgument(RankedTensorType::get({1}, IntegerType::get(context, 32)),
                                        NameLoc::get(StringAttr::get(context, "coordinate." + name)));
  scope.coordinates.push_back({name, value});
  return value;
}

Value Sharder::collective(OpBuilder &b, Value x, ArrayRef<StringRef> axes, CollectiveKind kind, int64_t dim) {
  std::string axis = productName(axes);
  RankedTensorType type = typeOf(x);
  Location loc = x.getLoc();
  switch (kind) {
  case CollectiveKind::all_reduce: return CommAllReduceOp::create(b, loc, type, x, axis);
  case CollectiveKind::all_gather:
    return CommAllGatherOp::create(b, loc, withDim(type, dim, type.getDimSize(dim) * parts(axes)), x, axis, dim);
  case CollectiveKind::reduce_scatter:
    return CommReduceScatterOp::create(b, loc, withDim(type, dim, type.getDimSize(dim) / parts(axes)), x, axis, dim);
  default: llvm_unreachable("exchanges are built by their users");
  }
}

static bool isSplat(Value v) {
  DenseElementsAttr number;
  return matchPattern(v, m_Constant(&number)) && number.isSplat();
}
static bool isZeroSplat(Value v) {
  return isSplat(v) && (matchPattern(v, m_AnyZeroFloat()) || matchPattern(v, m_Zero()));
}

/// Whether `part` begins with all of `whole`.
static bool extends(ArrayRef<StringRef> part, ArrayRef<StringRef> whole) {
  return part.size() >= whole.size() && part.take_front(whole.size()) == whole;
}

Value Sharder::convert(OpBuilder &b, Operation *op, Value local, const Placement &to) {
  Placement now = placementOf(local);
  if (now == to)
    return local;
  auto key = std::make_tuple(local.getAsOpaquePointer(), static_cast<void *>(b.getInsertionBlock()), to.text());
  if (auto known = conversions.find(key); known != conversions.end())
    return known->second;
  Value value = local;
  op = op ? op : module.getOperation();
  auto refuse = [&](int64_t dim, int64_t count) {
    op->emitOpError() << "needs dimension " << dim << " of " << typeOf(value) << " in " << count
                      << " parts (--mesh), which do not divide " << typeOf(value).getDimSize(dim);
    return Value();
  };

  // A complete sum beside those that are not (a gradient whose op needed all of it, added to what earlier steps left): each
  // rank has an equal share.
  Axes shared;
  for (StringRef axis : to.pending)
    if (!llvm::is_contained(now.pending, axis) && !isZeroSplat(local))
      shared.push_back(axis);
  if (!shared.empty() && parts(shared) > 1) {
    if (!isa<FloatType>(typeOf(local).getElementType())) {
      op->emitOpError() << "needs a sum that is pending over " << productName(shared) << ", but a value of type "
                        << typeOf(local) << " is complete";
      return {};
    }
    value = ScaleOp::create(b, local.getLoc(), typeOf(local), local,
                            b.getF64FloatAttr(1.0 / static_cast<double>(parts(shared))));
  }
  now.pending.append(shared);
  now.pending = inMeshOrder(now.pending);

  // A number that is the same everywhere is built where it is wanted.
  DenseElementsAttr number;
  if (matchPattern(local, m_Constant(&number)) && number.isSplat()) {
    RankedTensorType type = typeOf(local);
    for (auto [dim, axes] : llvm::enumerate(to.dims)) {
      int64_t whole = type.getDimSize(dim) * parts(now.dims[dim]);
      if (whole % parts(axes))
        return refuse(dim, parts(axes));
      type = withDim(type, dim, whole / parts(axes));
    }
    value =
        arith::ConstantOp::create(b, local.getLoc(), DenseElementsAttr::get(type, number.getSplatValue<Attribute>()));
    place(value, to);
    return conversions[key] = value;
  }

  // Sums that must be complete: scattered where their ranks get parts, else everywhere.
  Axes open;
  for (StringRef axis : now.pending)
    if (!llvm::is_contained(to.pending, axis))
      open.push_back(axis);
  for (auto [dim, axes] : llvm::enumerate(to.dims)) {
    if (open.empty() || axes.size() <= now.dims[dim].size() || !extends(axes, now.dims[dim]))
      continue;
    Axes more(ArrayRef<StringRef>(axes).drop_front(now.dims[dim].size()));
    if (!llvm::all_of(more, [&](StringRef axis) { return llvm::is_contained(open, axis); }))
      continue;
    if (typeOf(value).getDimSize(dim) % parts(more))
      return refuse(dim, parts(more));
    SmallVector<Axes> runs = productsOf(more);
    for (const Axes &run : llvm::reverse(runs)) // the outermost first
      value = collective(b, value, run, CollectiveKind::reduce_scatter, dim);
    llvm::erase_if(open, [&](StringRef axis) { return llvm::is_contained(more, axis); });
    now.dims[dim] = axes;
  }
  for (const Axes &run : productsOf(open))
    value = collective(b, value, run, CollectiveKind::all_reduce);
  now.pending = to.pending;

  for (size_t dim = 0; dim < to.dims.size(); ++dim) {
    Axes &has = now.dims[dim];
    const Axes &wants = to.dims[dim];
    size_t common = 0;
    while (common < has.size() && common < wants.size() && has[common] == wants[common])
      ++common;
    for (const Axes &run : productsOf(ArrayRef<StringRef>(has).drop_front(common))) // the innermost first
      value = collective(b, value, run, CollectiveKind::all_gather, dim);
    has.resize(common);
  }
  for (size_t dim = 0; dim < to.dims.size(); ++dim) {
    Axes rest(ArrayRef<StringRef>(to.dims[dim]).drop_front(now.dims[dim].size()));
    SmallVector<Axes> runs = productsOf(rest);
    for (const Axes &run : llvm::reverse(runs)) {
      RankedTensorType type = typeOf(value);
      int64_t count = parts(run);
      if (type.getDimSize(dim) % count)
        return refuse(dim, count);
      value = ShardOp::create(b, value.getLoc(), withDim(type, dim, type.getDimSize(dim) / count), value,
                              coordinate(run), dim, count);
    }
  }
  place(value, to);
  return conversions[key] = value;
}

Value Sharder::complete(OpBuilder &b, Operation *op, Value old, IRMapping &map) {
  Value local = map.lookup(old);
  Placement to = placementOf(local);
  if (to.pending.empty())
    return local;
  to.pending.clear();
  Value value = convert(b, op, local, to);
  if (value && value.getParentBlock() == local.getParentBlock())
    map.map(old, value);
  return value;
}

//===- Functions and repeats --------------------------------------------------------------------------------------===//

/// A number that a layer reads as tokens is where tokens are: slices are cut from what a rank has.
Value Sharder::callOperand(func::FuncOp callee, BlockArgument argument, Value mapped) {
  bool readAsTokens = llvm::any_of(argument.getUses(), [](OpOperand &use) {
    auto tokens = dyn_cast<TokenOpInterface>(use.getOwner());
    return tokens && tokens.operandKind(use.getOperandNumber()) == TokenKind::token;
  });
  Placement to = placementOf(mapped);
  if (!slicesRows || !readAsTokens || to.dims.size() < 2 || !to.isWhole() || !isSplat(mapped))
    return mapped;
  to.dims[0] = present({"dp"});
  to.dims[1] = present({"sp"});
  OpBuilder builder(mapped.getContext());
  builder.setInsertionPointAfter(mapped.getDefiningOp());
  Value local = convert(builder, callee, mapped, to);
  return local ? local : mapped;
}

std::string Sharder::signature(ValueRange operands) {
  std::string text;
  for (Value operand : operands)
    text += placementOf(operand).text() + ";";
  return text;
}

void Sharder::beginFunction(Block &body, ValueRange operands) {
  scopes.push_back({&body, {}});
  for (auto [argument, operand] : llvm::zip(body.getArguments(), operands))
    place(argument, placementOf(operand));
  if (operands.empty())
    for (auto [argument, placement] : llvm::zip(body.getArguments(), entryArguments))
      place(argument, placement);
}

void Sharder::endFunction(func::FuncOp function) {
  Signature known;
  SmallVector<Operation *> slicedLater;
  function.walk([&](Operation *op) {
    if (op->hasAttr(kSequenceAttr))
      slicedLater.push_back(op);
  });
  auto isForLater = [&](StringRef name) {
    return llvm::any_of(slicedLater,
                        [&](Operation *op) { return op->getAttrOfType<StringAttr>(kSequenceAttr) == name; });
  };
  // What only a discarded body has asked for goes again.
  auto &asked = scopes.back().coordinates;
  for (size_t i = asked.size(); i-- > 0;)
    if (asked[i].second.use_empty() && !isForLater(asked[i].first)) {
      scopes.back().body->eraseArgument(cast<BlockArgument>(asked[i].second).getArgNumber());
      asked.erase(asked.begin() + i);
    }
  Builder attributeBuilder(function.getContext());
  for (auto &[name, value] : asked) {
    known.coordinates.push_back(name);
    SmallVector<NamedAttribute> place = {
        attributeBuilder.getNamedAttr("axis", attributeBuilder.getStringAttr(name)),
        attributeBuilder.getNamedAttr("coordinate",
                                      attributeBuilder.getI64IntegerAttr(cast<BlockArgument>(value).getArgNumber()))};
    if (spAlgorithm != SpAlgorithm::automatic)
      place.push_back(
          attributeBuilder.getNamedAttr("algorithm", attributeBuilder.getStringAttr(spAlgorithmName(spAlgorithm))));
    auto marker = attributeBuilder.getDictionaryAttr(place);
    for (Operation *op : slicedLater)
      if (op->getAttr(kSequenceAttr) == marker.get("axis"))
        op->setAttr(kSequenceAttr, marker);
  }
  for (Value result : function.getBody().front().getTerminator()->getOperands())
    known.results.push_back(placementOf(result));
  if (function->hasAttr(attrs::entry)) {
    Builder b(function.getContext());
    function.setFunctionType(
        b.getFunctionType(function.getBody().front().getArgumentTypes(), function.getResultTypes()));
    SmallVector<Attribute> attributes;
    if (ArrayAttr given = function.getArgAttrsAttr())
      llvm::append_range(attributes, given);
    attributes.resize(function.getNumArguments() - known.coordinates.size(), b.getDictionaryAttr({}));
    for (const std::string &name : known.coordinates)
      attributes.push_back(b.getDictionaryAttr({b.getNamedAttr(attrs::name, b.getStringAttr("coordinate." + name)),
                                                b.getNamedAttr(attrs::role, b.getStringAttr("input"))}));
    function.setAllArgAttrs(attributes);
  }
  signatures[function] = known;
  scopes.pop_back();
}

void Sharder::extraOperands(func::FuncOp target, SmallVectorImpl<Value> &operands) {
  for (const std::string &name : signatures[target].coordinates) {
    SmallVector<StringRef> axes;
    StringRef(name).split(axes, '*');
    operands.push_back(coordinate(axes));
  }
}

void Sharder::called(func::FuncOp target, func::CallOp call) {
  for (auto [result, placement] : llvm::zip_equal(call.getResults(), signatures[target].results))
    place(result, placement);
}

void Sharder::beginBody(Block &body, ValueRange inputs, int64_t carried) {
  for (auto [i, argument, input] : llvm::enumerate(body.getArguments(), inputs))
    place(argument, static_cast<int64_t>(i) < carried ? placementOf(input) : placementOf(input).dropFront());
}

Value Sharder::carriedYield(OpBuilder &builder, Value value, Value argument) {
  Placement now = placementOf(value), wants = placementOf(argument);
  Placement to = now;
  to.pending.clear();
  for (auto [dim, axes] : llvm::enumerate(wants.dims))
    if (extends(axes, now.dims[dim]))
      to.dims[dim] = axes;
  return convert(builder, builder.getInsertionBlock()->empty() ? nullptr : &builder.getInsertionBlock()->back(), value,
                 to);
}

Value Sharder::adaptInput(OpBuilder &builder, Value input, Value yielded) {
  Placement to = placementOf(yielded);
  if (placementOf(input) == to)
    return {};
  return convert(builder, yielded.getDefiningOp(), input, to);
}

void Sharder::repeated(RepeatOp rebuilt) {
  auto yield = cast<YieldOp>(rebuilt.getBody().front().getTerminator());
  for (auto [i, result, value] : llvm::enumerate(rebuilt.getResults(), yield.getValues()))
    place(result, i < rebuilt.getCarried() ? placementOf(value) : placementOf(value).stacked());
}

//===- Ops by their rule ------------------------------------------------------------------------------------------===//

LogicalResult Sharder::rewriteOp(Operation &op, IRMapping &map, OpBuilder &builder) {
  return failed(rewriteOne(op, map, builder)) ? failure() : reduceHere(op, map, builder);
}

LogicalResult Sharder::rewriteOne(Operation &op, IRMapping &map, OpBuilder &builder) {
  return llvm::TypeSwitch<Operation *, LogicalResult>(&op)
      .Case([&](arith::ConstantOp constant) { return rewriteConstant(constant, map, builder); })
      .Case([&](ReshapeOp reshape) { return rewriteReshape(reshape, map, builder); })
      .Case([&](AddOp add) { return rewriteAdd(add, map, builder); })
      .Case([&](LinearGradDataOp grad) { return rewriteGradData(grad, map, builder); })
      .Case([&](EmbedOp embed) { return rewriteEmbed(embed, map, builder); })
      .Case([&](EmbedGradOp embed) { return rewriteEmbedGrad(embed, map, builder); })
      .Case([&](LinearCrossEntropyOp loss) { return rewriteLoss(loss, map, builder); })
      .Case([&](LinearCrossEntropyGradOp loss) { return rewriteLossGrad(loss, map, builder); })
      .Case([&](LinearScoresOp scores) { return rewriteScores(scores, map, builder); })
      .Case([&](MoePlanOp plan) { return rewritePlan(plan, map, builder); })
      .Case([&](MoeDispatchOp dispatch) { return rewriteDispatch(dispatch, map, builder); })
      .Case([&](MoeCombineOp combine) { return rewriteCombine(combine, map, builder); })
      .Case([&](MoeRowWeightsOp weights) { return rewriteRowWeights(weights, map, builder); })
      .Case([&](MoeRowWeightsGradOp grad) { return rewriteRowWeightsGrad(grad, map, builder); })
      .Case([&](MoeCombineGradOp grad) { return rewriteCombineGrad(grad, map, builder); })
      .Case([&](MoeGroupBiasOp bias) { return rewriteGroupBias(bias, map, builder); })
      .Case([&](SumSquaresOp squares) { return rewriteSumSquares(squares, map, builder); })
      .Default([&](Operation *other) { return rewriteGeneric(*other, map, builder, shardingRule(other)); });
}

LogicalResult Sharder::rewriteConstant(arith::ConstantOp op, IRMapping &map, OpBuilder &builder) {
  place(builder.clone(*op, map)->getResult(0), Placement::whole(typeOf(op.getResult()).getRank()));
  return success();
}

/// Dimensions that `letters` write, each index once: (dimension, letter). Of a letter that stands for several
/// dimensions the first one that is longer than 1 is the slowest.
static SmallVector<std::pair<int64_t, char>> indices(StringRef letters, RankedTensorType type) {
  SmallVector<std::pair<int64_t, char>> list;
  int64_t rank = type.getRank(), named = std::min<int64_t>(letters.size(), rank);
  for (int64_t i = 0; i < named; ++i) {
    int64_t dim = i;
    if (i + 1 == static_cast<int64_t>(letters.size()))
      while (dim + 1 < rank && type.getDimSize(dim) == 1)
        ++dim;
    list.push_back({dim, letters[i]});
  }
  return list;
}

LogicalResult Sharder::rewriteGeneric(Operation &op, IRMapping &map, OpBuilder &builder, const ShardingRule &rule) {
  // Which axes cut which index: what the operands have, in their order.
  llvm::SmallMapVector<char, Axes, 8> axes;
  SmallVector<Value> locals;
  for (auto [operand, letters] : llvm::zip_equal(op.getOperands(), rule.operands)) {
    Value local = map.lookup(operand);
    locals.push_back(local);
    if (isSplat(local))
      continue;
    Placement placement = placementOf(local);
    for (auto [dim, letter] : indices(letters, typeOf(operand))) {
      const Axes &cut = placement.dims[dim];
      Axes &known = axes[letter];
      bool allowed = !rule.isWhole(letter) && (letter != rule.grouped || rule.groups % parts(cut) == 0);
      if (allowed && extends(cut, known))
        known = cut;
    }
  }
  if (isa<SumGradOp>(op)) { // a number, as tokens
    axes['b'] = present({"dp"});
    axes['t'] = present({"sp"});
  }
  if (isa<DocumentsOp>(op) && sharesTokens) // what is the same on all ranks, as tokens
    axes['t'] = present({"sp"});
  // An axis cuts one index of a value only: the last that asks for it, a weight's rather than its input's.
  auto meet = [&](char a, char b) {
    auto holdsBoth = [&](StringRef letters) { return letters.contains(a) && letters.contains(b); };
    return llvm::any_of(rule.operands, holdsBoth) || llvm::any_of(rule.results, holdsBoth);
  };
  for (auto first = axes.begin(); first != axes.end(); ++first)
    for (auto second = std::next(first); second != axes.end(); ++second)
      if (meet(first->first, second->first) &&
          llvm::any_of(first->second, [&](StringRef axis) { return llvm::is_contained(second->second, axis); }))
        first->second.clear();
  Axes sequence;
  for (char letter : rule.sequence)
    if (axes.count(letter) && !axes[letter].empty())
      sequence = axes[letter];

  // Pending sums that may go through: one list of operands that are all pending over the same axes.
  Axes kept;
  SmallVector<unsigned> keepers;
  for (const SmallVector<unsigned> &together : rule.linear) {
    std::optional<Axes> same;
    bool equal = true;
    for (unsigned i : together) {
      if (isZeroSplat(locals[i]))
        continue;
      Axes pending = placementOf(locals[i]).pending;
      equal &= !same || *same == pending;
      same = pending;
    }
    if (!equal || !same || same->empty())
      continue;
    kept = *same;
    keepers.assign(together);
    break;
  }
  for (auto &[letter, cut] : axes)
    llvm::erase_if(kept, [&, &cut = cut](StringRef axis) { return llvm::is_contained(cut, axis); });

  SmallVector<Value> operands;
  llvm::SmallMapVector<char, std::pair<int64_t, int64_t>, 8> extents; // letter -> local, logical size
  for (auto [i, operand, letters] : llvm::enumerate(op.getOperands(), rule.operands)) {
    RankedTensorType logical = typeOf(operand);
    Placement to = Placement::whole(logical.getRank());
    for (auto [dim, letter] : indices(letters, logical))
      to.dims[dim] = axes[letter];
    bool keeps = llvm::is_contained(keepers, i);
    if (keeps)
      to.pending = kept;
    else if (placementOf(locals[i]).dims == to.dims)
      (void)complete(builder, &op, operand, map);
    Value value = convert(builder, &op, map.lookup(operand), to);
    if (!value)
      return failure();
    operands.push_back(value);
    for (auto [dim, letter] : indices(letters, logical))
      if (rule.chosen.find(letter) == std::string::npos)
        extents.insert({letter, {typeOf(value).getDimSize(dim), logical.getDimSize(dim)}});
  }

  SmallVector<Type> types;
  std::vector<Placement> results;
  for (auto [result, letters] : llvm::zip_equal(op.getResults(), rule.results)) {
    RankedTensorType type = typeOf(result);
    Placement placement = Placement::whole(type.getRank());
    placement.pending = kept;
    for (auto &[letter, cut] : axes)
      if (StringRef(letters).find(letter) == StringRef::npos && !rule.isApart(letter))
        placement.pending.append(cut); // summed over
    placement.pending = inMeshOrder(placement.pending);
    for (auto [dim, letter] : indices(letters, type)) {
      if (!axes.count(letter))
        continue;
      placement.dims[dim] = axes[letter];
      auto known = extents.find(letter);
      int64_t size = type.getDimSize(dim), local = 1, logical = parts(axes[letter]);
      if (known != extents.end())
        std::tie(local, logical) = known->second;
      if (size * local % logical)
        return op.emitOpError() << "has dimension " << dim << " of its result of " << size << ", of which a rank has "
                                << local << " of " << logical << " parts (--mesh); valid: a multiple of "
                                << logical / std::gcd(local, logical);
      type = withDim(type, dim, size * local / logical);
    }
    types.push_back(type);
    results.push_back(placement);
  }
  if (!sequence.empty()) {
    auto tokens = dyn_cast<TokenOpInterface>(op);
    for (auto [i, placement] : llvm::enumerate(results)) {
      // What is carried on is no sum over tokens; neither are caches.
      if (isa<AttnAppendOp>(op) || (tokens && tokens.resultKind(i) == TokenKind::state))
        placement.pending.clear();
      if (isa<MoeDropOp>(op)) // counted along whole rows
        llvm::erase_if(placement.pending, [&](StringRef axis) { return llvm::is_contained(sequence, axis); });
    }
  }
  bool later = !sequence.empty() && slicesRows && !isa<DocumentsOp>(op);
  if (!sequence.empty() && !later) {
    FailureOr<SmallVector<Value>> lowered = rewriteSequence(op, operands, sequence, builder);
    if (failed(lowered))
      return failure();
    map.map(op.getResults(), ValueRange(*lowered));
    for (auto [result, placement] : llvm::zip_equal(*lowered, results))
      place(result, placement);
    return success();
  }
  OperationState state(op.getLoc(), op.getName(), operands, types, op.getAttrs());
  state.propertiesAttr = op.getPropertiesAsAttribute();
  Operation *rebuilt = builder.create(state);
  if (later) {
    if (!SequenceSharder::handles(&op) || scopes.size() < 2)
      return op.emitOpError() << "crosses tokens, which " << productName(sequence) << " = " << parts(sequence)
                              << " ranks (--mesh) share in slices (--overlap-degree); valid: " << productName(sequence)
                              << " = 1, or no slices";
    (void)coordinate(sequence);
    rebuilt->setAttr(kSequenceAttr, builder.getStringAttr(productName(sequence)));
  }
  if (rule.grouped && axes.count(rule.grouped)) {
    auto groups = builder.getI64IntegerAttr(rule.groups / parts(axes[rule.grouped]));
    if (auto grad = dyn_cast<RowsGradOp>(rebuilt)) {
      NamedAttrList attributes(grad.getOpAttributes());
      attributes.set("groups", groups);
      grad.setOpAttributesAttr(attributes.getDictionary(builder.getContext()));
    } else {
      rebuilt->setAttr("groups", groups);
    }
  }
  map.map(op.getResults(), rebuilt->getResults());
  for (auto [result, placement] : llvm::zip_equal(rebuilt->getResults(), results))
    place(result, placement);
  return success();
}

FailureOr<SmallVector<Value>> Sharder::rewriteSequence(Operation &op, ValueRange operands, const Axes &cut,
                                                       OpBuilder &builder) {
  if (!SequenceSharder::handles(&op))
    return op.emitOpError() << "crosses tokens, which " << productName(cut) << " = " << parts(cut)
                            << " ranks (--mesh) share; valid: " << productName(cut) << " = 1";
  SequenceSharder sequence(builder, sequenceFacts, productName(cut), parts(cut), coordinate(cut), spAlgorithm);
  return sequence.lower(&op, operands);
}

/// Dimensions that stay apart: [begin, end) of the source hold the elements of [begin, end) of the result.
LogicalResult Sharder::rewriteReshape(ReshapeOp op, IRMapping &map, OpBuilder &builder) {
  Value local = map.lookup(op.getSource());
  RankedTensorType from = typeOf(op.getSource()), to = typeOf(op.getResult()), type = to;
  Placement now = placementOf(local), result = Placement::whole(to.getRank());
  result.pending = now.pending;
  Placement possible = now;
  int64_t i = 0, j = 0;
  while (i < from.getRank() && j < to.getRank()) {
    int64_t beginFrom = i, beginTo = j, a = from.getDimSize(i++), b = to.getDimSize(j++);
    while (a != b) {
      if (a < b)
        a *= from.getDimSize(i++);
      else
        b *= to.getDimSize(j++);
    }
    // Only the slowest dimension of either side may be cut.
    int64_t slowFrom = beginFrom, slowTo = beginTo;
    while (slowFrom + 1 < i && from.getDimSize(slowFrom) == 1)
      ++slowFrom;
    while (slowTo + 1 < j && to.getDimSize(slowTo) == 1)
      ++slowTo;
    for (int64_t dim = beginFrom; dim < i; ++dim)
      if (dim != slowFrom)
        possible.dims[dim].clear();
    const Axes &cut = possible.dims[slowFrom];
    int64_t localSize = typeOf(local).getDimSize(slowFrom), logicalSize = from.getDimSize(slowFrom);
    if (to.getDimSize(slowTo) * localSize % logicalSize) {
      possible.dims[slowFrom].clear();
      continue;
    }
    result.dims[slowTo] = cut;
    if (!cut.empty() || (beginFrom + 1 == i && beginTo + 1 == j))
      type = withDim(type, slowTo, to.getDimSize(slowTo) * localSize / logicalSize);
  }
  Value value = convert(builder, op, local, possible);
  if (!value)
    return failure();
  Value view = ReshapeOp::create(builder, op.getLoc(), type, value);
  map.map(op.getResult(), view);
  place(view, result);
  return success();
}

/// Terms that are pending over the same axes are added before these meet; what all are pending over stays so.
LogicalResult Sharder::rewriteAdd(AddOp op, IRMapping &map, OpBuilder &builder) {
  SmallVector<std::pair<Axes, SmallVector<Value>>> groups; // pending -> logical terms
  SmallVector<Value> zeros;
  for (Value source : op.getSources()) {
    Value local = map.lookup(source);
    if (isZeroSplat(local)) {
      zeros.push_back(source);
      continue;
    }
    Axes pending = placementOf(local).pending;
    auto known = llvm::find_if(groups, [&](auto &group) { return group.first == pending; });
    if (known == groups.end())
      groups.push_back({pending, {source}});
    else
      known->second.push_back(source);
  }
  if (groups.size() < 2)
    return rewriteGeneric(*op, map, builder, shardingRule(op));
  llvm::append_range(groups.front().second, zeros);
  // As ops on logical values, which go through the rule like any other.
  Axes shared = groups.front().first;
  for (auto &[pending, terms] : groups)
    llvm::erase_if(shared, [&, &pending = pending](StringRef axis) { return !llvm::is_contained(pending, axis); });
  OpBuilder logical(op);
  SmallVector<Operation *> added;
  SmallVector<Value> parts;
  for (auto &[pending, terms] : groups) {
    Value part = terms.front();
    if (terms.size() > 1 && pending != shared) {
      auto sum = AddOp::create(logical, op.getLoc(), op.getType(), terms);
      added.push_back(sum);
      part = sum;
      if (failed(rewriteGeneric(*sum, map, builder, shardingRule(sum))))
        return failure();
    }
    if (pending == shared) {
      llvm::append_range(parts, terms);
      continue;
    }
    Placement to = placementOf(map.lookup(part));
    to.pending = shared;
    Value value = convert(builder, op, map.lookup(part), to);
    if (!value)
      return failure();
    map.map(part, value);
    parts.push_back(part);
  }
  auto sum = AddOp::create(logical, op.getLoc(), op.getType(), parts);
  sum->setDiscardableAttrs(op->getDiscardableAttrDictionary());
  added.push_back(sum);
  if (failed(rewriteGeneric(*sum, map, builder, shardingRule(sum))))
    return failure();
  map.map(op.getResult(), map.lookup(sum.getResult()));
  for (Operation *temporary : llvm::reverse(added)) {
    map.erase(temporary->getResult(0));
    temporary->erase();
  }
  return success();
}

/// dx of outputs that are cut is pending, dx of those that are not is complete: a sum of its own for each.
LogicalResult Sharder::rewriteGradData(LinearGradDataOp op, IRMapping &map, OpBuilder &builder) {
  std::map<std::string, std::pair<SmallVector<Value>, SmallVector<Value>>> groups;
  for (auto [dy, weight] : llvm::zip_equal(op.getDys(), op.getWeights())) {
    Axes cut = placementOf(map.lookup(weight)).dims[op.getTransposed() ? 0 : 1];
    Placement of = placementOf(map.lookup(dy));
    for (size_t dim = 2; dim < of.dims.size() && cut.empty(); ++dim)
      cut = of.dims[dim];
    auto &[dys, weights] = groups[productName(cut)];
    dys.push_back(dy);
    weights.push_back(weight);
  }
  if (groups.size() == 1)
    return rewriteGeneric(*op, map, builder, shardingRule(op));
  OpBuilder logical(op);
  SmallVector<Operation *> added;
  SmallVector<Value> terms;
  for (auto &[name, group] : groups) {
    auto part =
        LinearGradDataOp::create(logical, op.getLoc(), op.getType(), group.first, group.second, op.getTransposedAttr());
    added.push_back(part);
    terms.push_back(part);
    if (failed(rewriteGeneric(*part, map, builder, shardingRule(part))))
      return failure();
  }
  auto sum = AddOp::create(logical, op.getLoc(), op.getType(), terms);
  added.push_back(sum);
  if (failed(rewriteAdd(sum, map, builder)))
    return failure();
  map.map(op.getDx(), map.lookup(sum.getResult()));
  for (Operation *temporary : llvm::reverse(added)) {
    map.erase(temporary->getResult(0));
    temporary->erase();
  }
  return success();
}
