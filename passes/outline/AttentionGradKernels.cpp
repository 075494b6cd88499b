//===- AttentionGradKernels.cpp - attn.causal_grad becomes launches ------------------------------------------------===//
#include "passes/outline/AttentionTiles.h"
#include "passes/outline/OutlineFamilies.h"

using namespace mlir;

namespace braid {

namespace {

//===- Backward ---------------------------------------------------------------------------------------------------===//

struct GradInputs : Attention::Inputs {
  explicit GradInputs(Attention &a) : Inputs(a.inputs()), lse(a.rowNumbers("lse")), d(a.outputs("d_o")) {}
  Var lse, d;
};

/// Of one pair of tiles P, and dS without its factor, from Q K^T (scaled, or late) and dO V^T, or both transposed; lse and delta are repeated along `axis`. `half`: what a
/// diagonal tile keeps. `masked` leaves the least of scores where rows and keys do not meet: exp may overflow there.
Var gradP(const Attention &a, Var scores, Var lse, int64_t axis, std::optional<tile::Keep> half,
          llvm::function_ref<Var(Var)> masked) {
  auto keep = [&](Var x) { return half ? mask(x, *half) : x; };
  Var origin = expand(lse, axis, scores.dim(axis));
  return keep(a.powers(keep(scores), a.factor ? origin * kLog2E : origin, masked));
}
Var gradScores(const Attention &a, Var scores, Var p, Var dp, Var delta, int64_t axis, std::optional<tile::Keep> half) {
  auto keep = [&](Var x) { return half ? mask(x, *half) : x; };
  Var ds = p * (keep(dp) - expand(delta, axis, p.dim(axis)));
  return keep(a.cap.grad(scores, ds));
}

/// dq, and delta for the keys: program (block of query rows, head, batch).
void writeGradQueries(KernelBuilder &k, const AttentionShape &shape) {
  Attention a(k, shape);
  GradInputs in(a);
  Var o = a.outputs("o"), dq = a.queries("dq"),
      dqShared = shape.shared ? a.tokens("dq_shared", shape.heads, shape.shared) : Var(),
      deltas = a.rowNumbers("delta"), scale = k.scalar("scale", shape.compute);
  a.loadCap();
  a.loadPrefix(in.q.own);
  int64_t R = shape.ownRows(), C = shape.tileRows();
  Var t0 = a.firstQuery(in.q.own), h = k.program(1), b = k.program(2);
  Var tokens = k.size(in.q.own, 1), keyCount = a.keyCount, g = h / static_cast<double>(shape.perGroup());
  Attention::Features queries = a.loadRows(in.q, b, t0, h, R, tokens);
  Var d = a.loadRows(in.d, b, t0, h, R, tokens);
  Var out = a.loadRows(o, b, t0, h, R, tokens), lse = k.load(in.lse, {b, h, t0}, {R}, {.limit = tokens, .dims = {2}});
  auto seen = a.rowIntervals(in.documents, b, t0, R);
  auto [lo, hi] = a.range(seen);
  Var diagonal = t0 + a.prefix, end = shape.earlier ? min(diagonal, keyCount)
                                      : shape.wide  ? min(hi, keyCount)
                                                    : diagonal;
  auto before = a.before(seen, end);
  auto common = a.common(in.documents, b, t0, R);
  if (common.last)
    common.last = min(common.last, cast(end, k.i32()) - 1.0);
  // What has to be read has been asked for.
  Var delta = sum(d * out, 1);
  k.store(delta, deltas, {b, h, t0}, {.limit = tokens, .dims = {2}});
  a.scaleLate(scale);
  queries = a.scaled(queries, scale);
  auto add = [&](Var s0, Var limit, const Attention::Interval &keys, std::optional<tile::Keep> half,
                 llvm::ArrayRef<Var> sums) {
    Attention::Keys at = a.passingKeys(in, b, s0, g, C, limit);
    auto masked = [&](Var scores) {
      return a.masked(half ? Attention::Interval() : common, s0, C, scores,
                      [&] { return a.visible(keys, s0, C, /*turned=*/true); });
    };
    Var scores = a.scoresOf(at, queries), product = dotTB(at.values, d);
    Var p = gradP(a, scores, lse, 0, half, masked), ds = gradScores(a, scores, p, product, delta, 0, half);
    Vars next{dotTA(ds, at.own, sums[0])};
    if (shape.shared)
      next.push_back(dotTA(ds, at.shared, sums[1]));
    return next;
  };
  Vars total{k.tile({R, shape.size}, shape.compute)};
  if (shape.shared)
    total.push_back(k.tile({R, shape.shared}, shape.compute));
  total = k.loop(lo, end, C, total, [&](Var s0, llvm::ArrayRef<Var> now) { return add(s0, end, before, {}, now); });
  if (!shape.earlier && !shape.wide)
    total = add(diagonal, keyCount, seen, tile::Keep::upper, total);
  a.storeRows(total[0] * scale, dq, b, t0, h);
  if (shape.shared)
    a.storeRows(total[1] * scale, dqShared, b, t0, h);
}

/// dk, dv: program (block of keys, key head, batch); the group's heads and their query blocks in order. Of features that all heads share the group's part.
void writeGradKeys(KernelBuilder &k, const AttentionShape &shape) {
  Attention a(k, shape);
  GradInputs in(a);
  Var deltas = a.rowNumbers("delta"), dkSum, dvSum;
  if (shape.adds)
    dkSum = a.keyGradients("dk_sum"), dvSum = a.valueGradients("dv_sum");
  Var dk = a.keyGradients("dk"), dv = a.valueGradients("dv"),
      dkShared = shape.shared ? a.tokens("dk_shared", shape.groups, shape.shared, shape.compute) : Var(),
      scale = k.scalar("scale", shape.compute);
  a.loadCap();
  a.loadPrefix(in.q.own);
  if (shape.wide) // else a thread has no registers for it
    a.scaleLate(scale);
  int64_t R = shape.ownRows(), C = shape.metQueries();
  Var s0 = k.program(0) * static_cast<double>(R), g = k.program(1), b = k.program(2);
  Var tokens = k.size(in.q.own, 1), keyCount = a.keyCount;
  Attention::Keys keys = a.keyRows(in, b, s0, g, R, keyCount);
  // Blocks of queries count from the diagonal tile, whose first row is `origin`; it is before all rows where the block
  // of keys begins in the prefix. Query t sees a key of the block only if t + prefix >= s0, and t + prefix - window <
  // s0 + R. Documents begin in ascending order: blocks end where the first row's document begins past the keys.
  Var origin = s0 - a.prefix, endQuery = tokens;
  if (shape.window)
    endQuery = min(endQuery, origin + static_cast<double>(R - 1 + shape.window));
  auto every = static_cast<double>(C);
  Var hasDiagonal = ge(origin, 0.0);
  Var firstBlock = select(hasDiagonal, shape.wide ? 0.0 : 1.0, max(-origin, 0.0) / every);
  Var countBlocks = (max(endQuery - origin, 0.0) + (every - 1.0)) / every;
  Var lastKey = cast(origin + static_cast<double>(R - 1), k.i32());
  auto begins = [&](Var block) { // at or before the last key
    Var t0 = max(origin + block * every, 0.0);
    if (shape.wide)
      t0 = min(t0, tokens - 1.0);
    return le(k.at(in.documents, {b, t0}), lastKey);
  };
  // Mostly they are all of one document: then a GPU need not look at each, one after the other.
  Var from = shape.wide ? select(begins(countBlocks - 1.0), countBlocks, firstBlock) : firstBlock;
  Var blocks = k.loop(from, countBlocks, 1, {from}, [&](Var block, llvm::ArrayRef<Var> now) -> Vars {
    return {select(begins(block), now[0] + 1.0, now[0])};
  })[0];
  auto add = [&](Var t0, Var h, std::optional<tile::Keep> half, llvm::ArrayRef<Var> now) -> Vars {
    Attention::Features queries = a.passingRows(in.q, b, t0, h, C, tokens);
    Var d = a.passingRows(in.d, b, t0, h, C, tokens);
    auto numbers = [&](Var buffer) { return k.load(buffer, {b, h, t0}, {C}, {.limit = tokens, .dims = {2}}); };
    // Of what boxes bring nothing is masked but by numbers that a branch reads itself: threads that wait for each other would all have to.
    Attention::Interval seen, common;
    if (shape.wide)
      common = a.common(in.documents, b, t0, C);
    else
      seen = a.rowIntervals(in.documents, b, t0, C);
    auto masked = [&](Var scores) {
      if (!shape.wide && !half)
        common = a.common(in.documents, b, t0, C);
      auto live = [&] { return a.visible(shape.wide ? a.rowIntervals(in.documents, b, t0, C) : seen, s0, R); };
      return a.masked(common, s0, R, scores, live);
    };
    // Queries are multiplied as they lie in memory; their product is scaled.
    Var scores = a.cap.of(a.scaled(Attention::productOf(queries, keys), scale)), dp = dotTB(d, keys.values);
    Var lse = numbers(in.lse), delta = numbers(deltas);
    Var p = gradP(a, scores, lse, 1, half, masked);
    auto values = [&] { return dotTA(p, d, now[1]); };
    Var dvs = shape.wide ? values() : Var(); // multiplied while dS is computed
    Var ds = gradScores(a, scores, p, dp, delta, 1, half), dks = dotTA(ds, queries.own, now[0]);
    Vars next{dks, dvs ? dvs : values()};
    if (shape.shared)
      next.push_back(dotTA(ds, queries.shared, now[2]));
    return next;
  };
  Vars none{k.tile({R, shape.size}, shape.compute), k.tile({R, shape.values}, shape.compute)};
  if (shape.shared)
    none.push_back(k.tile({R, shape.shared}, shape.compute));
  // Copies run on from one head to the next.
  auto inOneLoop = [&] {
    Var count = max(blocks - firstBlock, 0.0), heads = k.number(shape.perGroup());
    return k.loop(0, count * heads, 1, none, [&](Var i, llvm::ArrayRef<Var> now) {
      // Of 32 bits: they are divided soon.
      Var member = shape.perGroup() == 1 ? k.number(0) : a.index(cast(i, k.i32()) / cast(count, k.i32()));
      Var h = g * static_cast<double>(shape.perGroup()) + member;
      return add(origin + (firstBlock + (i - member * count)) * every, h, {}, now);
    });
  };
  Vars out = shape.wide
                 ? inOneLoop()
                 : k.loop(0, shape.perGroup(), 1, none, [&](Var member, llvm::ArrayRef<Var> sums) -> Vars {
                     Var h = g * static_cast<double>(shape.perGroup()) + member;
                     Vars first =
                         k.loop(0, select(hasDiagonal, k.number(1), k.number(0)), 1, sums,
                                [&](Var, llvm::ArrayRef<Var> now) { return add(origin, h, tile::Keep::lower, now); });
                     return k.loop(firstBlock, blocks, 1, first, [&](Var block, llvm::ArrayRef<Var> now) {
                       return add(origin + block * every, h, {}, now);
                     });
                   });
  auto store = [&](Var tile, Var sums, Var to) {
    Var total = shape.adds ? a.loadRows(sums, b, s0, g, R, keyCount) + tile : tile;
    k.store(cast(total, to.element()), to, {b, s0, g, 0}, {.limit = keyCount, .dims = {1, 3}});
  };
  store(out[0] * scale, dkSum, dk);
  store(out[1], dvSum, dv);
  if (shape.shared)
    k.store(out[2] * scale, dkShared, {b, s0, g, 0}, {.limit = keyCount, .dims = {1, 3}});
}

/// dk_shared: the parts of all groups, in their order. Program (block of keys, batch).
void writeGradShared(KernelBuilder &k, const AttentionShape &shape) {
  Attention a(k, shape);
  Var parts = a.tokens("parts", shape.groups, shape.shared, shape.compute),
      sum = shape.adds ? a.tokens("dk_sum", 1, shape.shared, shape.gradients) : Var(),
      dk = a.tokens("dk_shared", 1, shape.shared, shape.gradients), keyCount = k.index("keys");
  constexpr int64_t R = 32;
  Var s0 = k.program(0) * static_cast<double>(R), b = k.program(1);
  Var first = sum ? a.loadRows(sum, b, s0, k.number(0), R, keyCount) : k.tile({R, shape.shared}, shape.compute);
  Var total = k.loop(0, shape.groups, 1, {first}, [&](Var g, llvm::ArrayRef<Var> now) -> Vars {
    return {now[0] + a.loadRows(parts, b, s0, g, R, keyCount)};
  })[0];
  k.store(cast(total, dk.element()), dk, {b, s0, 0, 0}, {.limit = keyCount, .dims = {1, 3}});
}

} // namespace

LogicalResult outlineAttentionGrad(AttnCausalGradOp op, OutlineContext &context) {
  int64_t batch = shapeOf(op.getQ())[0], tokens = shapeOf(op.getQ())[1], keys = op.keyCount();
  AttentionShape shape = attentionShape(op, context, /*cache=*/false, /*ring=*/false, tokens, &AttentionShape::heads);
  auto begin = [&](llvm::StringRef what, llvm::StringRef rows, void (*write)(KernelBuilder &, const AttentionShape &),
                   llvm::ArrayRef<int64_t> grid) {
    std::string kernel = context.kernel(shape.kernelName(what), {rows, "head", "batch"}, [&](KernelBuilder &k) {
      write(k, shape);
      if (shape.wide)
        k.inBoxes();
      shape.round(k);
    });
    auto launch = context.launch(op, kernel, grid);
    attentionArguments(launch, op, shape);
    launch.arg("lse", op.getLse()).arg("d_o", op.getDO());
    if (op.getCoordinate())
      launch.arg("coordinate", op.getCoordinate());
    scoreArguments(launch, op, shape);
    launch.index("keys", keys).index("prefix", shape.prefix);
    return launch;
  };
  auto queries = begin("grad_q", "rows", writeGradQueries, {ceilDiv(tokens, shape.ownRows()), shape.heads, batch});
  queries.arg("o", op.getO()).result("dq", op.getDq().getType());
  if (shape.shared)
    queries.result("dq_shared", op.getDshared()[0].getType());
  queries.result("delta", op.getLse().getType());
  auto ofQueries = queries.run();
  shape = attentionShape(op, context, /*cache=*/false, /*ring=*/false, keys, &AttentionShape::groups);
  shape.gradients = tensorType(op.getDk()).getElementType();
  shape.adds = !op.getSums().empty();
  std::string what = "grad_kv";
  if (shape.gradients != shape.token)
    what += "_" + typeName(shape.gradients);
  if (shape.adds)
    what += "_sum";
  auto keyed = begin(what, "keys", writeGradKeys, {ceilDiv(keys, shape.ownRows()), shape.groups, batch});
  keyed.arg("delta", ofQueries.back());
  if (shape.adds)
    keyed.arg("dk_sum", op.getSums()[0]).arg("dv_sum", op.getSums()[1]);
  keyed.result("dk", op.getDk().getType(), shape.adds ? "dk_sum" : "");
  keyed.result("dv", op.getDv().getType(), shape.adds ? "dv_sum" : "");
  if (shape.shared)
    keyed.result("dk_shared",
                 RankedTensorType::get({batch, shapeOf(op.getK())[1], shape.groups, shape.shared}, shape.compute));
  auto ofKeys = keyed.run();
  llvm::SmallVector<Value> all{ofQueries[0], ofKeys[0], ofKeys[1]};
  if (shape.shared) {
    shape.gradients = tensorType(op.getDshared()[1]).getElementType();
    std::string name = llvm::formatv("attn_grad_shared_g{0}_s{1}_{2}{3}", shape.groups, shape.shared,
                                     typeName(shape.gradients), shape.adds ? "_sum" : "");
    auto shared = context.launch(
        op, context.kernel(name, {"keys", "batch"}, [&](KernelBuilder &k) { writeGradShared(k, shape); }),
        {ceilDiv(keys, 32), batch});
    shared.arg("parts", ofKeys[2]);
    if (shape.adds)
      shared.arg("dk_sum", op.getSums()[2]);
    shared.result("dk_shared", op.getDshared()[1].getType(), shape.adds ? "dk_sum" : "").index("keys", keys);
    all.append({ofQueries[1], shared.run()[0]});
  }
  context.replace(op, all);
  return success();
}

} // namespace braid
