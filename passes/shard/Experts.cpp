//===- Experts.cpp - plans, dispatch and combine on a mesh --------------------------------------------------------===//
// Three ways, chosen by where tokens and experts are (README.md):
//   none        every rank has all experts, or (etp = tp) its part of each: rows stay where their tokens are
//   travel      tokens differ between the ranks of an ep group: rows go to their experts by all_to_all, and back; where
//               etp is not tp, all ranks of etp get each other's rows and add up what comes out
//   replicated  all ranks of an ep group have the same tokens (ep etp = tp, or generation): each computes the rows of
//               its own experts, and what comes out is a pending sum over ep
#include "passes/analysis/Tensors.h"
#include "passes/overlap/SliceLayer.h"
#include "passes/shard/Sharder.h"
#include <cmath>

using namespace mlir;
using namespace braid;

Sharder::Exchange Sharder::exchangeOf(const Placement &tokens) const {
  int64_t ep = mesh.size("ep"), etp = mesh.size("etp"), tp = mesh.size("tp");
  Axes cut = tokens.cuts();
  bool distinct = llvm::any_of(tokenAxes(), [&](StringRef axis) { return llvm::is_contained(cut, axis); });
  if (ep == 1 && (!distinct || etp == 1 || etp == tp))
    return Exchange::none;
  return !distinct || ep * etp == tp ? Exchange::replicated : Exchange::travel;
}

Axes Sharder::expertAxes() const {
  // Experts that are whole on every rank of tp see the same tokens there.
  bool dense = mesh.size("ep") == 1 && mesh.size("etp") == 1 && mesh.size("tp") > 1;
  return dense ? tokenAxes() : present({"edp"});
}

/// What sums over a token's experts are pending over: those of its rows, and the ranks that have other experts.
Axes Sharder::expertSums(const Placement &rows, const Placement &tokens) const {
  Axes sums = rows.pending;
  if (exchangeOf(tokens) == Exchange::replicated)
    sums.push_back("ep");
  // All of a tp group: by the name that the shared expert's sum has.
  bool all = mesh.size("ep") * mesh.size("etp") == mesh.size("tp");
  if (!sums.empty() && all)
    return {"tp"};
  return inMeshOrder(sums);
}

static Value sliceRange(OpBuilder &builder, Location loc, Value source, int64_t begin, int64_t size) {
  return SliceOp::create(builder, loc, withDim(typeOf(source), 0, size), source, 0, begin);
}

/// What the ranks exchange for one plan, packed in the plan's `exchange` value: send counts [E], receive counts [E],
/// order of the received rows [R], its inverse [R].
Sharder::Packed Sharder::unpack(OpBuilder &builder, Location loc, Value packed) {
  int64_t E = numExperts, ep = mesh.size("ep"), rows = (typeOf(packed).getDimSize(0) - 2 * E) / 2;
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

Value Sharder::travel(OpBuilder &builder, Location loc, Value rows, Value sendCounts, Value recvCounts,
                      StringRef label) {
  auto op = CommAllToAllOp::create(builder, loc, rows.getType(), rows, sendCounts, recvCounts,
                                   builder.getStringAttr("ep"), builder.getI64IntegerAttr(mesh.size("ep")));
  op->setAttr("label", builder.getStringAttr(label));
  return op;
}

Value Sharder::toExperts(OpBuilder &builder, Location loc, Value rows, const Packed &e, StringRef label) {
  Value received = travel(builder, loc, rows, e.sendCounts, e.recvCounts, label);
  if (sharesRows())
    received = collective(builder, received, {"etp"}, CollectiveKind::all_gather, 1);
  return MoePermuteOp::create(builder, loc, received.getType(), received, e.perm, e.inverse);
}

Value Sharder::toTokens(OpBuilder &builder, Location loc, Value rows, const Packed &e, StringRef label) {
  Value sent = MoePermuteOp::create(builder, loc, rows.getType(), rows, e.inverse, e.perm);
  if (sharesRows())
    sent = collective(builder, sent, {"etp"}, CollectiveKind::reduce_scatter, 1);
  return travel(builder, loc, sent, e.recvCounts, e.sendCounts, label);
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

LogicalResult Sharder::checkExperts(Operation *op, int64_t experts) {
  int64_t ep = mesh.size("ep");
  if (experts % ep)
    return op->emitOpError() << "has " << experts << " experts (num_experts), which ep = " << ep
                             << " ranks (--mesh) do not divide; valid: a divisor of " << experts;
  if (numExperts && numExperts != experts && ep > 1)
    return op->emitOpError() << "has " << experts << " experts but another layer has " << numExperts
                             << "; under ep all layers must agree";
  numExperts = experts;
  return success();
}

LogicalResult Sharder::rewritePlan(MoePlanOp op, IRMapping &map, OpBuilder &builder) {
  Location loc = op.getLoc();
  if (failed(checkExperts(op, op.getNumExperts())))
    return failure();
  Value ids = complete(builder, op, op.getIds(), map), documents = map.lookup(op.getDocuments());
  Placement tokens = placementOf(ids);
  Exchange exchange = exchangeOf(tokens);
  int64_t etp = mesh.size("etp"), tp = mesh.size("tp");
  if (exchange == Exchange::travel && tp > 1 && etp != tp)
    return op.emitOpError() << "has tokens that tp = " << tp << " ranks (--mesh) share and experts that etp = " << etp
                            << " ranks share; valid: etp = tp, or ep etp = tp";
  int64_t E = op.getNumExperts(), ep = mesh.size("ep"), El = exchange == Exchange::replicated ? E / ep : E;
  int64_t assignments = typeOf(ids).getNumElements(), topK = typeOf(ids).getDimSize(2);
  int64_t rowRanks = typeOf(op.getIds()).getDimSize(0) / typeOf(ids).getDimSize(0); // that share rows of the batch
  // Dropless: in the worst case every token sends min(top_k, E / ep) rows to one peer. A capacity bounds what one row
  // of the batch gives an expert; token slices share rows by their number of tokens, which that bound does not allow.
  int64_t peerRows = assignments / topK * std::min(topK, E / ep);
  auto drop = op.getIds().getDefiningOp<MoeDropOp>();
  if (drop && !sliced && ep > 1)
    peerRows = std::min(peerRows, typeOf(ids).getDimSize(0) * rowsOfPeer(drop, E / ep));
  // With less room than that rows that find none make the exchange fail. As many for each token of a row of the batch:
  // token slices share them.
  bool hasLess = false;
  if (int64_t tokens = typeOf(ids).getDimSize(1); expertRoom && ep > 1) {
    double share = std::ceil(*expertRoom * static_cast<double>(assignments / tokens) / static_cast<double>(ep));
    if (share < static_cast<double>(peerRows / tokens)) {
      peerRows = tokens * static_cast<int64_t>(share);
      hasLess = true;
    }
  }
  int64_t rows = exchange == Exchange::travel ? ep * peerRows : assignments;
  IntegerAttr expertRows = op.getExpertRowsAttr();
  if (expertRows) {
    // Slots belong to a row: all of them may be taken by the tokens that one rank along sp has of it.
    expertRows = builder.getI64IntegerAttr(expertRows.getInt() / rowRanks);
    peerRows = E / ep * expertRows.getInt();
    rows = El * expertRows.getInt();
  }
  if (exchange == Exchange::replicated) {
    Value own = LocalIdsOp::create(builder, loc, ids.getType(), ids, coordinate({"ep"}), El);
    place(own, tokens);
    ids = own;
  }
  auto vec = [&](int64_t n) { return RankedTensorType::get({n}, builder.getI32Type()); };
  bool travels = exchange == Exchange::travel;
  auto plan = MoePlanOp::create(builder, loc, TypeRange{vec(rows), ids.getType(), vec(El), vec(El + 1), vec(1), vec(1)},
                                ids, documents, El, travels ? ep : 1, travels ? peerRows : 0, expertRows);
  if (travels && hasLess && !expertRows)
    plan->setAttr(kLessRoomAttr, builder.getUnitAttr());
  // Rows of a rank are those of its tokens, or of the tokens of its ep group.
  Axes cut = tokens.cuts(), sums;
  for (StringRef axis : tokenAxes())
    if (llvm::is_contained(cut, axis))
      sums.push_back(axis);
  Placement ofRows = Placement::whole(1), ofCounts = Placement::whole(1);
  ofRows.dims[0] = sums.empty() ? Axes() : expertAxes();
  ofCounts.pending = sums; // balance and statistics are of the whole batch
  if (exchange == Exchange::replicated)
    ofCounts.dims[0] = {"ep"};
  auto bind = [&](Value old, Value local, const Placement &placement) {
    map.map(old, local);
    place(local, placement);
  };
  bind(op.getPerm(), plan.getPerm(), ofRows);
  bind(op.getInverse(), plan.getInverse(), tokens);
  bind(op.getCounts(), plan.getCounts(), ofCounts);
  bind(op.getOverflow(), plan.getOverflow(), Placement::whole(1));
  bind(op.getOffsets(), plan.getOffsets(), Placement::whole(1));
  bind(op.getExchange(), plan.getExchange(), Placement::whole(1));
  if (exchange == Exchange::replicated)
    placements[plan.getOffsets()].dims[0] = {"ep"};
  if (!travels)
    return success();

  auto matrix = RankedTensorType::get({ep, E / ep}, builder.getI32Type());
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
    recvCounts = travel(builder, loc, sendCounts, Value(), Value(), "moe.counts");
  }
  Value sources = sharesRows() ? collective(builder, recvCounts, {"etp"}, CollectiveKind::all_gather, 0) : recvCounts;
  rows = typeOf(sources).getDimSize(0) * peerRows;
  auto received =
      MoePlanReceivedOp::create(builder, loc, TypeRange{vec(rows), vec(rows), vec(E / ep + 1)}, sources, peerRows);
  Placement ofOffsets = Placement::whole(1);
  ofOffsets.dims[0] = {"ep"};
  bind(op.getOffsets(), received.getOffsets(), ofOffsets);
  Value sections[] = {counts, ReshapeOp::create(builder, loc, vec(E), recvCounts), received.getPerm(),
                      received.getInverse()};
  bind(op.getExchange(), ConcatOp::create(builder, loc, vec(2 * E + 2 * rows), sections, 0), Placement::whole(1));
  return success();
}

/// Tokens [B, T, ..] where the plan's assignments are, nothing pending.
static Placement likeTokens(const Placement &tokens, int64_t rank) {
  Placement placement = Placement::whole(rank);
  placement.dims[0] = tokens.dims[0];
  placement.dims[1] = tokens.dims[1];
  return placement;
}
/// Rows [1, R, ..] of a plan.
static Placement likeRows(const Placement &perm) {
  Placement placement = Placement::whole(3);
  placement.dims[1] = perm.dims[0];
  return placement;
}
static RankedTensorType rowsType(Value perm, Value width) {
  return withDim(typeOf(width), 1, typeOf(perm).getDimSize(0));
}

LogicalResult Sharder::rewriteDispatch(MoeDispatchOp op, IRMapping &map, OpBuilder &builder) {
  Value perm = map.lookup(op.getPerm()), inverse = map.lookup(op.getInverse()), exchange = map.lookup(op.getExchange());
  Placement tokens = placementOf(inverse);
  (void)complete(builder, op, op.getX(), map);
  Value x = convert(builder, op, map.lookup(op.getX()), likeTokens(tokens, 3));
  if (!x)
    return failure();
  bool travels = exchangeOf(tokens) == Exchange::travel;
  Packed packed;
  if (travels) {
    packed = unpack(builder, op.getLoc(), exchange);
    // Packing rows does not wait for the counts of other ranks: only the rank's own plan is read.
    if (auto plan = perm.getDefiningOp<MoePlanOp>())
      exchange = plan.getExchange();
  }
  Value rows = MoeDispatchOp::create(builder, op.getLoc(), rowsType(perm, op.getRows()), x, perm, inverse, exchange);
  if (travels)
    rows = toExperts(builder, op.getLoc(), rows, packed, "moe.dispatch");
  map.map(op.getRows(), rows);
  place(rows, likeRows(placementOf(perm)));
  return success();
}

LogicalResult Sharder::rewriteCombine(MoeCombineOp op, IRMapping &map, OpBuilder &builder) {
  Value perm = map.lookup(op.getPerm()), inverse = map.lookup(op.getInverse()), exchange = map.lookup(op.getExchange()),
        rows = map.lookup(op.getRows()), weights;
  Placement tokens = placementOf(inverse), ofRows = placementOf(rows);
  if (op.getWeights()) {
    (void)complete(builder, op, op.getWeights(), map);
    weights = convert(builder, op, map.lookup(op.getWeights()), likeTokens(tokens, 3));
    if (!weights)
      return failure();
  }
  if (exchangeOf(tokens) == Exchange::travel)
    rows = toTokens(builder, op.getLoc(), rows, unpack(builder, op.getLoc(), exchange),
                    weights ? "moe.combine" : "moe.dispatch_grad");
  RankedTensorType y = typeOf(op.getY());
  for (int64_t dim : {0, 1})
    y = withDim(y, dim, typeOf(inverse).getDimSize(dim));
  auto combine =
      MoeCombineOp::create(builder, op.getLoc(), TypeRange{y, rows.getType()}, rows, weights, perm, inverse, exchange);
  map.map(op.getY(), combine.getY());
  map.map(op.getReturned(), rows);
  if (exchangeOf(tokens) == Exchange::travel && sharesRows())
    ofRows.pending.clear(); // summed up on the way
  Placement ofY = likeTokens(tokens, 3);
  ofY.pending = expertSums(ofRows, tokens);
  place(combine.getY(), ofY);
  place(rows, ofRows);
  return success();
}

/// drows follow from dy; dweights, products with what came back, are pending like that.
LogicalResult Sharder::rewriteCombineGrad(MoeCombineGradOp op, IRMapping &map, OpBuilder &builder) {
  Value perm = map.lookup(op.getPerm()), inverse = map.lookup(op.getInverse()), exchange = map.lookup(op.getExchange()),
        returned = map.lookup(op.getReturned());
  Placement tokens = placementOf(inverse);
  SmallVector<Value> perToken;
  for (Value old : {op.getDy(), op.getWeights()}) {
    (void)complete(builder, op, old, map);
    Value value = convert(builder, op, map.lookup(old), likeTokens(tokens, 3));
    if (!value)
      return failure();
    perToken.push_back(value);
  }
  auto grad = MoeCombineGradOp::create(builder, op.getLoc(), TypeRange{returned.getType(), perToken[1].getType()},
                                       perToken[0], returned, perToken[1], perm, inverse, exchange);
  Value rows = grad.getDrows();
  if (exchangeOf(tokens) == Exchange::travel)
    rows = toExperts(builder, op.getLoc(), rows, unpack(builder, op.getLoc(), exchange), "moe.combine_grad");
  map.map(op.getDrows(), rows);
  map.map(op.getDweights(), grad.getDweights());
  place(rows, likeRows(placementOf(perm)));
  Placement ofWeights = likeTokens(tokens, 3);
  ofWeights.pending = expertSums(placementOf(returned), tokens);
  place(grad.getDweights(), ofWeights);
  return success();
}

LogicalResult Sharder::rewriteRowWeights(MoeRowWeightsOp op, IRMapping &map, OpBuilder &builder) {
  Value perm = map.lookup(op.getPerm()), inverse = map.lookup(op.getInverse());
  Placement tokens = placementOf(inverse), ofRows = Placement::whole(2);
  if (exchangeOf(tokens) == Exchange::travel)
    return op.emitOpError() << "has rows that travel between ranks (--mesh), which does not send their weights; valid: "
                               "weights of moe.combine";
  (void)complete(builder, op, op.getWeights(), map);
  Value weights = convert(builder, op, map.lookup(op.getWeights()), likeTokens(tokens, 3));
  if (!weights)
    return failure();
  RankedTensorType type = withDim(typeOf(op.getRows()), 1, typeOf(perm).getDimSize(0));
  Value rows = MoeRowWeightsOp::create(builder, op.getLoc(), type, weights, perm, inverse);
  map.map(op.getRows(), rows);
  ofRows.dims[1] = placementOf(perm).dims[0];
  place(rows, ofRows);
  return success();
}

/// Pending as the rows' sums are.
LogicalResult Sharder::rewriteRowWeightsGrad(MoeRowWeightsGradOp op, IRMapping &map, OpBuilder &builder) {
  Value drows = map.lookup(op.getDrows()), inverse = map.lookup(op.getInverse());
  Placement tokens = placementOf(inverse), ofWeights = likeTokens(tokens, 3);
  RankedTensorType type = typeOf(op.getDweights());
  for (int64_t dim : {0, 1})
    type = withDim(type, dim, typeOf(inverse).getDimSize(dim));
  Value dweights = MoeRowWeightsGradOp::create(builder, op.getLoc(), type, drows, inverse);
  map.map(op.getDweights(), dweights);
  ofWeights.pending = expertSums(placementOf(drows), tokens);
  place(dweights, ofWeights);
  return success();
}

/// Of rows that are pending sums one rank adds the bias.
LogicalResult Sharder::rewriteGroupBias(MoeGroupBiasOp op, IRMapping &map, OpBuilder &builder) {
  if (failed(rewriteGeneric(*op, map, builder, shardingRule(op))))
    return failure();
  auto local = map.lookup(op.getY()).getDefiningOp<MoeGroupBiasOp>();
  if (Axes pending = placementOf(local.getY()).pending; !pending.empty())
    local.getCoordinateMutable().assign(coordinate(pending));
  return success();
}
