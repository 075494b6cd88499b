//===- VerifiersMixers.cpp - attention and expert ops -------------------------------------------------------------===//
#include "dialects/braid/Verifiers.h"

using namespace mlir;
using namespace braid;

//===- Attention --------------------------------------------------------------------------------------------------===//

/// A ring of S rows holds the keys that T new tokens and those before them see.
static LogicalResult verifyRing(Operation *op, Named rows, int64_t window, int64_t tokens) {
  if (window == 0)
    return op->emitOpError() << "has a ring but no window; a ring forgets what is behind the window";
  int64_t needed = std::min<int64_t>(window, INT32_MAX) + tokens - 1;
  if (rows.dim(1) >= needed)
    return success();
  return op->emitOpError() << "ring of " << rows.dim(1) << " rows is too small: a window of " << window << " and "
                           << tokens << " tokens need " << needed;
}

template <typename Op> static LogicalResult verifyAttention(Op op, bool cache) {
  CHECK(verifyCap(op, op.getSoftcap()));
  Named q{"q", op.getQ()}, k{"k", op.getK()}, v{"v", op.getV()}, o{"o", op.getO()}, lse{"lse", op.getLse()};
  for (Named x : {q, k, v}) {
    CHECK(hasRank(op, x, 4));
    CHECK(isFloat(op, x));
  }
  CHECK(isDocuments(op, {"documents", op.getDocuments()}, q));
  static constexpr StringLiteral ofRows[] = {"batch", "token", "head"};
  for (auto [i, word] : llvm::enumerate(ofRows))
    CHECK(sameDim(op, word, v, i, k, i));
  CHECK(sameDim(op, "batch", q, 0, k, 0));
  CHECK(sameDim(op, "head dimension", q, 3, k, 3));
  if (k.dim(2) == 0 || q.dim(2) % k.dim(2))
    return withNote(
        op.emitOpError() << "q has " << q.dim(2) << " heads, no multiple of the " << k.dim(2) << " key/value heads", k);
  int64_t prefix = op.getPrefix(), window = op.getWindow();
  CHECK(isAtLeast(op, "prefix", prefix, 0));
  CHECK(isAtLeast(op, "window", window, 0));
  CHECK(isCoordinate(op, op.getCoordinate()));
  bool past = op->hasAttr("past");
  if (op.getCoordinate() && cache && !past)
    return op.emitOpError() << "reads a cache and takes no coordinate";
  if (op.getKeys() && (cache || op.keyCount() < 0 || op.keyCount() > k.dim(1)))
    return op.emitOpError() << "has " << op.keyCount() << " keys in "
                            << (cache ? std::string("a cache") : "room for " + std::to_string(k.dim(1)))
                            << "; valid: 0 to all for which there is room, and no cache";
  bool earlier = op.getCoordinate() && (past || op.keyCount() <= prefix); // a block of a ring
  int64_t keys = op.keyCount() - prefix;
  if (op.getCoordinate() && !earlier && (q.dim(1) == 0 || keys < q.dim(1) || keys % q.dim(1)))
    return withNote(op.emitOpError() << "k has " << op.keyCount() << " tokens but a prefix of " << prefix
                                     << " and a multiple of q's " << q.dim(1) << " are needed",
                    k);
  if (!cache && !op.getCoordinate() && keys != q.dim(1))
    return withNote(op.emitOpError() << "k has " << op.keyCount() << " tokens but a prefix of " << prefix << " and q's "
                                     << q.dim(1) << " are needed",
                    k);
  if (!op.getShared().empty()) {
    if (op.getShared().size() != 2)
      return op.emitOpError() << "has " << op.getShared().size()
                              << " shared features; valid: none, or those of q and k";
    Named qShared{"q_shared", op.getShared()[0]}, kShared{"k_shared", op.getShared()[1]};
    for (Named x : {qShared, kShared}) {
      CHECK(hasRank(op, x, 4));
      CHECK(isFloat(op, x));
    }
    for (auto [i, word] : llvm::enumerate(ofRows))
      CHECK(sameDim(op, word, qShared, i, q, i));
    CHECK(sameDim(op, "batch", kShared, 0, k, 0));
    CHECK(sameDim(op, "token", kShared, 1, k, 1));
    if (kShared.dim(2) != 1)
      return withNote(op.emitOpError() << "k_shared has " << kShared.dim(2)
                                       << " heads; valid: 1, which all heads of q share",
                      kShared);
    CHECK(sameDim(op, "head dimension", qShared, 3, kShared, 3));
  }
  CHECK(isFloat(op, o));
  CHECK(hasRank(op, o, 4));
  for (auto [i, word] : llvm::enumerate(ofRows))
    CHECK(sameDim(op, word, o, i, q, i));
  CHECK(sameDim(op, "value dimension", o, 3, v, 3));
  CHECK(hasRank(op, lse, 3));
  CHECK(isFloat(op, lse));
  CHECK(sameDim(op, "batch", lse, 0, q, 0));
  CHECK(sameDim(op, "head", lse, 1, q, 2));
  return sameDim(op, "token", lse, 2, q, 1);
}
/// A number of each head, which is a score.
static LogicalResult verifySinks(Operation *op, Named sinks, Named lse) {
  CHECK(hasRank(op, sinks, 1));
  CHECK(sameElement(op, sinks, lse));
  return sameDim(op, "head", sinks, 0, lse, 1);
}
int64_t AttnCausalOp::keyCount() { return getKeys().value_or(Named{"k", getK()}.dim(1)); }
int64_t AttnCausalGradOp::keyCount() { return getKeys().value_or(Named{"k", getK()}.dim(1)); }
LogicalResult AttnCausalOp::verify() {
  CHECK(verifyAttention(*this, getCache()));
  if (getPast() && (!getCache() || getRing()))
    return emitOpError() << "attends to the past of " << (getCache() ? "a ring" : "no cache") << "; valid: of a cache";
  if (getSinks()) {
    if (getPast())
      return emitOpError() << "has sinks but attends to a past only; valid: sinks where the own tokens are keys, too";
    CHECK(verifySinks(*this, {"sinks", getSinks()}, {"lse", getLse()}));
  }
  if (!getRing())
    return success();
  if (!getCache())
    return emitOpError() << "has a ring but reads no cache";
  return verifyRing(*this, {"k", getK()}, getWindow(), Named{"q", getQ()}.dim(1));
}
LogicalResult AttnCausalGradOp::verify() {
  CHECK(verifyOperandCount(*this, 7 + (getCoordinate() ? 1 : 0) + getShared().size() + getSums().size(),
                           "q, k, v, documents, o, lse, d_o, its coordinate, shared features and sums"));
  CHECK(verifyAttention(*this, /*cache=*/false));
  for (auto [d, of] : {std::pair(Named{"d_o", getDO()}, Named{"o", getO()}),
                       {{"dq", getDq()}, {"q", getQ()}},
                       {{"dk", getDk()}, {"k", getK()}},
                       {{"dv", getDv()}, {"v", getV()}}}) {
    CHECK(isFloat(*this, d));
    CHECK(sameShape(*this, d, of));
  }
  if (getDshared().size() != getShared().size())
    return emitOpError() << "has " << getShared().size() << " shared features but " << getDshared().size()
                         << " cotangents of such";
  static constexpr StringLiteral shared[] = {"q_shared", "k_shared"}, dshared[] = {"dq_shared", "dk_shared"};
  for (auto [i, d] : llvm::enumerate(getDshared())) {
    CHECK(isFloat(*this, {dshared[i], d}));
    CHECK(sameShape(*this, {dshared[i], d}, {shared[i], getShared()[i]}));
  }
  if (getSums().empty())
    return success();
  size_t sums = getShared().empty() ? 2 : 3;
  if (getSums().size() != sums)
    return emitOpError() << "has " << getSums().size() << " sums; valid: none, or the " << sums << " of dk"
                         << (sums == 2 ? " and dv" : ", dv and dk_shared");
  CHECK(sameType(*this, {"sum of dk", getSums()[0]}, {"dk", getDk()}));
  CHECK(sameType(*this, {"sum of dv", getSums()[1]}, {"dv", getDv()}));
  return sums == 2 ? success()
                   : LogicalResult(sameType(*this, {"sum of dk_shared", getSums()[2]}, {"dk_shared", getDshared()[1]}));
}
/// o [B, T, H, D] and lse [B, H, T].
static LogicalResult verifyAttended(Operation *op, Named o, Named lse) {
  CHECK(hasRank(op, o, 4));
  CHECK(isFloat(op, o));
  CHECK(hasRank(op, lse, 3));
  CHECK(isFloat(op, lse));
  static constexpr StringLiteral words[] = {"batch", "head", "token"};
  static constexpr int64_t ofO[] = {0, 2, 1};
  for (int64_t i = 0; i < 3; ++i)
    CHECK(sameDim(op, words[i], lse, i, o, ofO[i]));
  return success();
}
LogicalResult AttnSinkGradOp::verify() {
  Named o{"o", getO()}, lse{"lse", getLse()}, sinks{"sinks", getSinks()}, dsinks{"dsinks", getDsinks()};
  CHECK(verifyAttended(*this, o, lse));
  CHECK(verifySinks(*this, sinks, lse));
  CHECK(isFloat(*this, {"d_o", getDO()}));
  CHECK(sameShape(*this, {"d_o", getDO()}, o));
  CHECK(isFloat(*this, dsinks));
  return sameShape(*this, dsinks, sinks);
}
LogicalResult AttnMergeOp::verify() {
  Named o{"o", getO()}, lse{"lse", getLse()};
  CHECK(verifyAttended(*this, o, lse));
  CHECK(sameType(*this, {"o_block", getOBlock()}, o));
  CHECK(sameType(*this, {"lse_block", getLseBlock()}, lse));
  CHECK(sameType(*this, {"o_both", getOBoth()}, o));
  return sameType(*this, {"lse_both", getLseBoth()}, lse);
}
LogicalResult AttnAppendOp::verify() {
  Named cache{"cache", getCache()}, x{"x", getX()};
  CHECK(hasRank(*this, cache, 4));
  CHECK(hasRank(*this, x, 4));
  CHECK(isFloat(*this, cache));
  CHECK(isFloat(*this, x));
  CHECK(sameType(*this, {"result", getResult()}, cache));
  CHECK(sameDim(*this, "batch", cache, 0, x, 0));
  CHECK(sameDim(*this, "head", cache, 2, x, 2));
  CHECK(sameDim(*this, "head dimension", cache, 3, x, 3));
  if (getRing() && x.dim(1) > cache.dim(1))
    return withNote(emitOpError() << "x has " << x.dim(1) << " tokens for a ring of " << cache.dim(1) << " rows",
                    cache);
  return isDocuments(*this, {"documents", getDocuments()}, x);
}

//===- Plans of experts -------------------------------------------------------------------------------------------===//

/// A list of i32.
static LogicalResult isList(Operation *op, Named a) {
  CHECK(hasRank(op, a, 1));
  return isInteger(op, a);
}
/// `cause`: the operand that makes it `wanted`, if one does.
static LogicalResult hasEntries(Operation *op, Named a, int64_t wanted, StringRef why, Named cause = {}) {
  CHECK(isList(op, a));
  if (a.dim(0) == wanted)
    return success();
  InFlightDiagnostic diagnostic = op->emitOpError()
                                  << a.name << " has " << a.dim(0) << " entries but " << why << " needs " << wanted;
  if (cause.value)
    diagnostic.attachNote(cause.value.getLoc()) << cause.name << " defined here";
  return diagnostic;
}

LogicalResult MoeDropOp::verify() {
  Named ids{"ids", getIds()}, taken{"taken", getTaken()}, load{"load", getLoad()};
  CHECK(hasRank(*this, ids, 3));
  CHECK(isInteger(*this, ids));
  CHECK(isDocuments(*this, {"documents", getDocuments()}, ids));
  CHECK(hasRank(*this, taken, 2));
  CHECK(isInteger(*this, taken));
  CHECK(sameDim(*this, "batch", taken, 0, ids, 0));
  CHECK(isAtLeast(*this, "capacity", getCapacity(), 1));
  CHECK(isOneOf(*this, "policy", getPolicy(), {"token", "slot", "score", "bpr", "random", "device"}));
  bool device = getPolicy() == "device", weighted = device || getPolicy() == "score" || getPolicy() == "bpr";
  if (weighted != static_cast<bool>(getWeights()))
    return emitOpError() << "policy \"" << getPolicy() << "\" " << (weighted ? "needs" : "reads no") << " weights";
  if (weighted) {
    CHECK(isFloat(*this, {"weights", getWeights()}));
    CHECK(sameShape(*this, {"weights", getWeights()}, ids));
  }
  int64_t bucket = getBucket();
  double protect = getProtect().convertToDouble();
  CHECK(isAtLeast(*this, "bucket", bucket, 1));
  int64_t stripe = getStripe();
  CHECK(isAtLeast(*this, "stripe", stripe, 0));
  if (stripe > 0 && ids.dim(1) % stripe != 0)
    return withNote(emitOpError() << "stripe is " << stripe << " tokens, of which no number makes the " << ids.dim(1)
                                  << " of a row",
                    ids);
  if (!(protect >= 0 && protect <= 1))
    return emitOpError() << "protect is " << protect << " but must be 0 to 1";
  if (!device && (bucket != 1 || protect != 0))
    return emitOpError() << "policy \"" << getPolicy() << "\" reads no " << (bucket != 1 ? "bucket" : "protect")
                         << "; only \"device\" does";
  if (draws() != static_cast<bool>(getDrawKeys()) || draws() != static_cast<bool>(getNewDrawKeys()))
    return emitOpError() << "policy \"" << getPolicy() << "\""
                         << (draws() ? " needs draw_keys and new_draw_keys" : " draws nothing but has draw_keys");
  if (draws()) {
    Named keys{"draw_keys", getDrawKeys()};
    CHECK(hasRank(*this, keys, 2));
    if (!keys.element().isInteger(64) || keys.dim(1) != 3)
      return emitOpError() << "draw_keys is " << keys.type()
                           << " but must hold sample, seed and layer of each row: " << ids.dim(0) << " x 3 x i64";
    CHECK(sameDim(*this, "batch", keys, 0, ids, 0));
    CHECK(sameType(*this, {"new_draw_keys", getNewDrawKeys()}, keys));
  }
  CHECK(sameType(*this, {"kept", getKept()}, ids));
  StringRef entries = device ? "taken * bucket" : "taken";
  CHECK(hasEntries(*this, load, product(taken.dim(1), bucket), entries, taken));
  CHECK(hasEntries(*this, {"dropped", getDropped()}, product(taken.dim(1), bucket), entries, taken));
  return sameType(*this, {"new_taken", getNewTaken()}, taken);
}
LogicalResult MoePlanOp::verify() {
  Named ids{"ids", getIds()};
  CHECK(hasRank(*this, ids, 3));
  CHECK(isInteger(*this, ids));
  CHECK(isDocuments(*this, {"documents", getDocuments()}, ids));
  CHECK(sameType(*this, {"inverse", getInverse()}, ids));
  int64_t experts = getNumExperts(), peers = getPeers(), peerRows = getPeerRows();
  CHECK(isAtLeast(*this, "num_experts", experts, 1));
  CHECK(isAtLeast(*this, "peers", peers, 1));
  CHECK(isAtLeast(*this, "peer_rows", peerRows, peers > 1 ? 1 : 0));
  if (experts % peers)
    return emitOpError() << peers << " peers do not divide " << experts << " experts";
  if (std::optional<int64_t> rows = getExpertRows()) {
    CHECK(isAtLeast(*this, "expert_rows", *rows, 1));
    if (*rows > INT32_MAX / experts)
      return emitOpError() << *rows << " rows of each of " << experts << " experts exceed " << INT32_MAX << " rows";
    if (peers > 1 && peerRows != experts / peers * *rows)
      return emitOpError() << "peer_rows is " << peerRows << " but " << experts / peers << " experts of " << *rows
                           << " rows need " << experts / peers * *rows;
    CHECK(hasEntries(*this, {"perm", getPerm()}, experts * *rows, "experts * expert_rows"));
  } else {
    CHECK(hasEntries(*this, {"perm", getPerm()}, peers > 1 ? product(peers, peerRows) : ids.type().getNumElements(),
                     peers > 1 ? "peers * peer_rows" : "every assignment", peers > 1 ? Named() : ids));
  }
  CHECK(hasEntries(*this, {"counts", getCounts()}, experts, "num_experts"));
  CHECK(hasEntries(*this, {"offsets", getOffsets()}, experts + 1, "num_experts + 1"));
  CHECK(hasEntries(*this, {"overflow", getOverflow()}, 1, "the plan"));
  return isList(*this, {"exchange", getExchange()});
}
LogicalResult MoePlanReceivedOp::verify() {
  Named counts{"counts", getCounts()};
  CHECK(hasRank(*this, counts, 2));
  CHECK(isInteger(*this, counts));
  int64_t peerRows = getPeerRows();
  CHECK(isAtLeast(*this, "peer_rows", peerRows, 1));
  CHECK(hasEntries(*this, {"perm", getPerm()}, product(counts.dim(0), peerRows), "peers * peer_rows"));
  CHECK(hasEntries(*this, {"inverse", getInverse()}, product(counts.dim(0), peerRows), "peers * peer_rows"));
  return hasEntries(*this, {"offsets", getOffsets()}, counts.dim(1) + 1, "local experts + 1");
}

//===- Rows of experts --------------------------------------------------------------------------------------------===//

static LogicalResult isRows(Operation *op, Named rows) {
  CHECK(hasRank(op, rows, 3));
  CHECK(isFloat(op, rows));
  if (rows.dim(0) != 1)
    return op->emitOpError() << rows.name << " has " << rows.dim(0) << " in front but expert rows have 1";
  return success();
}
static LogicalResult verifyRows(Operation *op, Named rows, Named perm) {
  CHECK(isRows(op, rows));
  CHECK(isList(op, perm));
  return sameDim(op, "row", rows, 1, perm, 0);
}
/// x [B, T, M] and inverse [B, T, k].
static LogicalResult verifySlots(Operation *op, Named x, Named inverse) {
  CHECK(hasRank(op, x, 3));
  CHECK(isFloat(op, x));
  CHECK(hasRank(op, inverse, 3));
  CHECK(isInteger(op, inverse));
  return sameTokens(op, x, inverse);
}
LogicalResult MoeDispatchOp::verify() {
  Named x{"x", getX()}, rows{"rows", getRows()};
  CHECK(verifyRows(*this, rows, {"perm", getPerm()}));
  CHECK(verifySlots(*this, x, {"inverse", getInverse()}));
  CHECK(isInteger(*this, {"exchange", getExchange()}));
  CHECK(sameElement(*this, rows, x));
  return sameDim(*this, "width", rows, 2, x, 2);
}
LogicalResult MoePermuteOp::verify() {
  Named x{"x", getX()}, rows{"rows", getRows()};
  CHECK(verifyRows(*this, rows, {"perm", getPerm()}));
  CHECK(verifyRows(*this, x, {"inverse", getInverse()}));
  CHECK(sameElement(*this, rows, x));
  return sameDim(*this, "width", rows, 2, x, 2);
}
LogicalResult MoeCombineOp::verify() {
  Named y{"y", getY()}, rows{"rows", getRows()}, inverse{"inverse", getInverse()};
  CHECK(verifyRows(*this, rows, {"perm", getPerm()}));
  CHECK(verifySlots(*this, y, inverse));
  CHECK(isInteger(*this, {"exchange", getExchange()}));
  if (getWeights()) {
    CHECK(isFloat(*this, {"weights", getWeights()}));
    CHECK(sameShape(*this, {"weights", getWeights()}, inverse));
  }
  CHECK(sameType(*this, {"returned", getReturned()}, rows));
  return sameDim(*this, "width", y, 2, rows, 2);
}
LogicalResult MoeCombineGradOp::verify() {
  Named dy{"dy", getDy()}, returned{"returned", getReturned()}, inverse{"inverse", getInverse()};
  CHECK(verifyRows(*this, returned, {"perm", getPerm()}));
  CHECK(verifySlots(*this, dy, inverse));
  CHECK(isInteger(*this, {"exchange", getExchange()}));
  CHECK(isFloat(*this, {"weights", getWeights()}));
  CHECK(sameShape(*this, {"weights", getWeights()}, inverse));
  CHECK(sameDim(*this, "width", dy, 2, returned, 2));
  CHECK(sameType(*this, {"drows", getDrows()}, returned));
  return sameType(*this, {"dweights", getDweights()}, {"weights", getWeights()});
}

/// A number of each row [1, R], and those of assignments [B, T, k].
static LogicalResult verifyNumbers(Operation *op, Named rows, Named ofAssignments, Named inverse) {
  CHECK(hasRank(op, rows, 2));
  CHECK(isFloat(op, rows));
  if (rows.dim(0) != 1)
    return op->emitOpError() << rows.name << " has " << rows.dim(0) << " in front but expert rows have 1";
  CHECK(hasRank(op, inverse, 3));
  CHECK(isInteger(op, inverse));
  CHECK(isFloat(op, ofAssignments));
  CHECK(sameShape(op, ofAssignments, inverse));
  return sameElement(op, rows, ofAssignments);
}
LogicalResult MoeRowWeightsOp::verify() {
  Named rows{"rows", getRows()}, perm{"perm", getPerm()};
  CHECK(verifyNumbers(*this, rows, {"weights", getWeights()}, {"inverse", getInverse()}));
  CHECK(isList(*this, perm));
  return sameDim(*this, "row", rows, 1, perm, 0);
}
LogicalResult MoeRowWeightsGradOp::verify() {
  return verifyNumbers(*this, {"drows", getDrows()}, {"dweights", getDweights()}, {"inverse", getInverse()});
}

//===- Projections of experts -------------------------------------------------------------------------------------===//

static LogicalResult verifyGrouped(Operation *op, Named x, Named offsets, Named weight, Named y) {
  CHECK(isRows(op, x));
  CHECK(isRows(op, y));
  CHECK(hasRank(op, weight, 3));
  CHECK(isFloat(op, weight));
  CHECK(isList(op, offsets));
  if (offsets.dim(0) != weight.dim(0) + 1)
    return withNote(op->emitOpError() << "offsets has " << offsets.dim(0) << " entries but " << weight.name << " has "
                                      << weight.dim(0) << " groups",
                    weight);
  CHECK(sameDim(op, "row", x, 1, y, 1));
  CHECK(sameDim(op, "input dimension", x, 2, weight, 1));
  return sameDim(op, "output dimension", y, 2, weight, 2);
}
LogicalResult MoeGroupedLinearOp::verify() {
  if (getWeights().size() != getResults().size() || getWeights().empty())
    return emitOpError() << "has " << getWeights().size() << " weights but " << getResults().size() << " results";
  for (auto [weight, result] : llvm::zip_equal(getWeights(), getResults()))
    CHECK(verifyGrouped(*this, {"x", getX()}, {"offsets", getOffsets()}, {"weight", weight}, {"result", result}));
  return success();
}
LogicalResult MoeGroupedLinearGradDataOp::verify() {
  CHECK(verifyOperandCount(*this, 1 + getDys().size() + getWeights().size(), "its cotangents, offsets and weights"));
  if (getWeights().size() != getDys().size() || getDys().empty())
    return emitOpError() << "has " << getWeights().size() << " weights but " << getDys().size() << " cotangents";
  for (auto [weight, dy] : llvm::zip_equal(getWeights(), getDys()))
    CHECK(verifyGrouped(*this, {"dx", getDx()}, {"offsets", getOffsets()}, {"weight", weight}, {"dy", dy}));
  return success();
}
LogicalResult MoeGroupedLinearGradWeightOp::verify() {
  CHECK(verifyOperandCount(*this, 2 + getDys().size() + getSums().size(), "x, offsets, its cotangents and sums"));
  if (getDws().size() != getDys().size() || getDys().empty())
    return emitOpError() << "has " << getDws().size() << " results but " << getDys().size() << " cotangents";
  CHECK(verifySums(*this, getSums(), getDws()));
  for (auto [dw, dy] : llvm::zip_equal(getDws(), getDys()))
    CHECK(verifyGrouped(*this, {"x", getX()}, {"offsets", getOffsets()}, {"dw", dw}, {"dy", dy}));
  return success();
}

static LogicalResult verifyGroupBias(Operation *op, Named x, Named offsets, Named bias) {
  CHECK(isRows(op, x));
  CHECK(isList(op, offsets));
  CHECK(hasRank(op, bias, 2));
  CHECK(isFloat(op, bias));
  if (offsets.dim(0) != bias.dim(0) + 1)
    return withNote(op->emitOpError() << "offsets has " << offsets.dim(0) << " entries but " << bias.name << " has "
                                      << bias.dim(0) << " groups",
                    bias);
  return sameDim(op, "width", x, 2, bias, 1);
}
LogicalResult MoeGroupBiasOp::verify() {
  CHECK(isCoordinate(*this, getCoordinate()));
  CHECK(sameType(*this, {"y", getY()}, {"x", getX()}));
  return verifyGroupBias(*this, {"x", getX()}, {"offsets", getOffsets()}, {"bias", getBias()});
}
LogicalResult MoeGroupBiasGradOp::verify() {
  return verifyGroupBias(*this, {"dy", getDy()}, {"offsets", getOffsets()}, {"dbias", getDbias()});
}
