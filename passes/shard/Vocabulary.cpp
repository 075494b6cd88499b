//===- Vocabulary.cpp - token table and loss, with the words on several ranks -------------------------------------===//
//
//   embedding   a rank looks up the ids of its words; the others' rows are 0, so the result is a pending sum
//   loss        lse = log sum over ranks of exp(lse of the rank's logits), target = sum over ranks; logits stay apart
//   scores      as the loss; greatest = the greatest of the ranks, word = that of the rank that has it
//   gradient    exp(x w - lse) - onehot needs nothing but lse: dx is a pending sum, dweight is the rank's own
//
// Stages of a pipeline may share the words (pp): target stays a sum over stages, which add up what the host reads, and lse is the last one's
// to count. dx is summed on all of them, whoever reads it: their entries differ, and a collective needs all.
//
//===-------------------------------------------------------------------------------------------------------------===//
#include "passes/analysis/Tensors.h"
#include "passes/shard/Sharder.h"

using namespace mlir;
using namespace braid;

LogicalResult Sharder::rewriteEmbed(EmbedOp op, IRMapping &map, OpBuilder &builder) {
  // A prompt comes whole to every rank; those of sp take their part of it here.
  Placement ofTokens = placementOf(map.lookup(op.getTokens()));
  if (int64_t tokens = typeOf(op.getTokens()).getDimSize(1); sharesTokens && tokens > 1) {
    ofTokens.dims[1] = present({"sp"});
    if (Value own = convert(builder, op, map.lookup(op.getTokens()), ofTokens))
      map.map(op.getTokens(), own);
    else
      return failure();
  }
  Value table = map.lookup(op.getTable()), tokens = map.lookup(op.getTokens());
  Axes cut = placementOf(table).dims[0];
  if (cut.empty())
    return rewriteGeneric(*op, map, builder, shardingRule(op));
  Value ids =
      LocalIdsOp::create(builder, op.getLoc(), tokens.getType(), tokens, coordinate(cut), typeOf(table).getDimSize(0));
  RankedTensorType type = typeOf(op.getResult());
  for (int64_t dim : {0, 1})
    type = withDim(type, dim, typeOf(tokens).getDimSize(dim));
  Value rows = EmbedOp::create(builder, op.getLoc(), type, ids, table);
  map.map(op.getResult(), rows);
  Placement placement = Placement::whole(3), of = placementOf(tokens);
  placement.dims[0] = of.dims[0];
  placement.dims[1] = of.dims[1];
  placement.pending = cut;
  place(rows, placement);
  return success(static_cast<bool>(complete(builder, op, op.getResult(), map))); // all layers read it
}

LogicalResult Sharder::rewriteEmbedGrad(EmbedGradOp op, IRMapping &map, OpBuilder &builder) {
  auto known = wanted.find(op.getDtable());
  Axes cut = known == wanted.end() ? Axes() : known->second.dims[0];
  if (cut.empty())
    return rewriteGeneric(*op, map, builder, shardingRule(op));
  (void)complete(builder, op, op.getDy(), map);
  Value tokens = map.lookup(op.getTokens());
  Placement ofTokens = placementOf(tokens), ofDy = Placement::whole(3);
  ofDy.dims[0] = ofTokens.dims[0];
  ofDy.dims[1] = ofTokens.dims[1];
  Value dy = convert(builder, op, map.lookup(op.getDy()), ofDy);
  if (!dy)
    return failure();
  RankedTensorType type = typeOf(op.getDtable());
  type = withDim(type, 0, type.getDimSize(0) / parts(cut));
  Value ids = LocalIdsOp::create(builder, op.getLoc(), tokens.getType(), tokens, coordinate(cut), type.getDimSize(0));
  Value dtable = EmbedGradOp::create(builder, op.getLoc(), type, ids, dy, /*table_sum=*/Value());
  map.map(op.getDtable(), dtable);
  Placement placement = Placement::whole(2);
  placement.dims[0] = cut;
  placement.pending = inMeshOrder(ofTokens.cuts());
  place(dtable, placement);
  return success();
}

Value Sharder::gatherParts(OpBuilder &b, Value perToken, const Axes &cut) {
  SmallVector<int64_t> shape(typeOf(perToken).getShape());
  shape.push_back(1);
  Value all = ReshapeOp::create(b, perToken.getLoc(), typeOf(perToken).clone(shape), perToken);
  for (const Axes &run : productsOf(cut))
    all = collective(b, all, run, CollectiveKind::all_gather, 2);
  return all;
}

static constexpr StringLiteral kStages = "pp";

std::pair<Value, Value> Sharder::joinLoss(OpBuilder &b, Operation *op, Value x, Value weight, Value labels,
                                          UnitAttr transposed, FloatAttr softcap, Axes cut, Type sum) {
  Location loc = op->getLoc();
  RankedTensorType ids = typeOf(labels);
  auto perToken = ids.clone(cast<RankedTensorType>(sum).getElementType());
  auto part = LinearLossPartOp::create(b, loc, TypeRange{perToken, perToken}, x, weight, labels, coordinate(cut),
                                       transposed, softcap);
  Value lse = LogSumExpOp::create(b, loc, perToken, gatherParts(b, part.getLse(), cut));
  Value target = part.getTarget(), counted = lse;
  if (llvm::is_contained(cut, kStages) && stageOf(op->getParentOfType<func::FuncOp>()) != mesh.size(kStages) - 1)
    counted = arith::ConstantOp::create(b, loc, cast<TypedAttr>(b.getZeroAttr(perToken)));
  llvm::erase(cut, kStages);
  for (const Axes &run : productsOf(cut))
    target = collective(b, target, run, CollectiveKind::all_reduce);
  Value losses = TokenLossOp::create(b, loc, perToken, counted, target, labels);
  return {lse, SumOp::create(b, loc, sum, losses)};
}

/// x as tokens are, complete.
static Placement tokensLike(const Placement &labels) {
  Placement placement = labels;
  placement.dims.emplace_back();
  return placement;
}

LogicalResult Sharder::rewriteLoss(LinearCrossEntropyOp op, IRMapping &map, OpBuilder &builder) {
  Value weight = map.lookup(op.getWeight()), labels = map.lookup(op.getLabels());
  Axes cut = placementOf(weight).dims[op.getTransposed() ? 0 : 1];
  if (cut.empty())
    return rewriteGeneric(*op, map, builder, shardingRule(op));
  (void)complete(builder, op, op.getX(), map);
  Value x = convert(builder, op, map.lookup(op.getX()), tokensLike(placementOf(labels)));
  if (!x)
    return failure();
  Placement placement = Placement::whole(1);
  placement.pending = inMeshOrder(placementOf(labels).cuts());
  if (!op.getSum().use_empty()) {
    Value sum = joinLoss(builder, op, x, weight, labels, op.getTransposedAttr(), op.getSoftcapAttr(), cut,
                         op.getSum().getType())
                    .second;
    map.map(op.getSum(), sum);
    place(sum, placement);
  }
  if (op.getCount().use_empty())
    return success();
  // Labels are counted; nobody reads the sum over this part of the words, so it is not computed.
  auto count = LinearCrossEntropyOp::create(builder, op.getLoc(), op.getSum().getType(), op.getCount().getType(), x,
                                            weight, labels, op.getTransposedAttr(), op.getSoftcapAttr());
  map.map(op.getCount(), count.getCount());
  place(count.getCount(), placement);
  return success();
}

LogicalResult Sharder::rewriteLossGrad(LinearCrossEntropyGradOp op, IRMapping &map, OpBuilder &builder) {
  Value weight = map.lookup(op.getWeight()), labels = map.lookup(op.getLabels());
  int64_t words = op.getTransposed() ? 0 : 1;
  Axes cut = placementOf(weight).dims[words];
  if (cut.empty())
    return rewriteGeneric(*op, map, builder, shardingRule(op));
  (void)complete(builder, op, op.getX(), map);
  Value dsum = complete(builder, op, op.getDsum(), map);
  Value x = convert(builder, op, map.lookup(op.getX()), tokensLike(placementOf(labels)));
  if (!x || !dsum)
    return failure();
  auto [lse, sum] =
      joinLoss(builder, op, x, weight, labels, op.getTransposedAttr(), op.getSoftcapAttr(), cut, op.getSum().getType());
  RankedTensorType piece = typeOf(op.getDweight());
  piece = withDim(piece, words, piece.getDimSize(words) / parts(cut));
  auto grad = LinearLossPartGradOp::create(builder, op.getLoc(), TypeRange{x.getType(), piece}, x, weight, labels,
                                           coordinate(cut), lse, dsum, /*weight_sum=*/Value(), op.getTransposedAttr(),
                                           op.getSoftcapAttr());
  Placement ofSum = Placement::whole(1), ofDx = tokensLike(placementOf(labels)), ofWeight = placementOf(weight);
  ofSum.pending = ofWeight.pending = inMeshOrder(placementOf(labels).cuts());
  ofDx.pending = cut;
  map.map(op.getDx(), grad.getDx());
  map.map(op.getDweight(), grad.getDweight());
  map.map(op.getSum(), sum);
  place(grad.getDx(), ofDx);
  place(grad.getDweight(), ofWeight);
  place(sum, ofSum);
  return success(!llvm::is_contained(cut, kStages) || complete(builder, op, op.getDx(), map));
}

LogicalResult Sharder::rewriteScores(LinearScoresOp op, IRMapping &map, OpBuilder &builder) {
  Value weight = map.lookup(op.getWeight()), labels = map.lookup(op.getLabels());
  Axes cut = placementOf(weight).dims[op.getTransposed() ? 0 : 1];
  if (cut.empty())
    return rewriteGeneric(*op, map, builder, shardingRule(op));
  // A prompt is whole, as its labels are, unless its tokens were divided, as x says.
  Placement ofLabels = Placement::whole(2), ofX = placementOf(complete(builder, op, op.getX(), map));
  ofLabels.dims = {ofX.dims[0], ofX.dims[1]};
  Value x = convert(builder, op, map.lookup(op.getX()), tokensLike(ofLabels));
  labels = convert(builder, op, labels, ofLabels);
  if (!x || !labels)
    return failure();
  Location loc = op.getLoc();
  auto perToken = typeOf(labels).clone(typeOf(op.getLse()).getElementType());
  auto part = LinearScoresOp::create(builder, loc, TypeRange{perToken, perToken, perToken, labels.getType()}, x, weight,
                                     labels, coordinate(cut), op.getTransposedAttr(), op.getSoftcapAttr());
  Value greatest = gatherParts(builder, part.getGreatest(), cut), words = gatherParts(builder, part.getWord(), cut);
  Value target = part.getTarget();
  for (const Axes &run : productsOf(cut))
    target = collective(builder, target, run, CollectiveKind::all_reduce);
  const Value whole[] = {LogSumExpOp::create(builder, loc, perToken, gatherParts(builder, part.getLse(), cut)), target,
                         GreatestOp::create(builder, loc, perToken, greatest),
                         GreatestWordOp::create(builder, loc, labels.getType(), greatest, words)};
  for (auto [result, value] : llvm::zip_equal(op.getResults(), whole)) {
    map.map(result, value);
    place(value, ofLabels);
  }
  return success();
}
