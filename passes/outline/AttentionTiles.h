//===- AttentionTiles.h - what the kernels of attention share -----------------------------------------------------===//
//
// Keys of a query are an interval (AttnOps.td); with d = documents[t], p = prefix, w = window:
//   training   max(d + p, 0, t + p - w + 1) <= s <= t + p            cache    max(0, t - d - w + 1) <= s <= t - d
// In a ring of S rows the key at position s stands in row s mod S: its rows are gathered in the order of positions, so
// that a ring gives the bits of a cache that holds everything. A padding token (d = INT32_MAX) has none: o = 0, lse =
// 0. Programs read only the key blocks their rows can see.
//
//   forward   m' = max(m, rowmax S), P = exp(S - m'), a = exp(m - m'):  l' = a l + rowsum P,  O' = a O + P V;
//             o = O / l, lse = m + log l                                                   (S = scale Q K^T)
//   backward  P = exp(S - lse), delta = rowsum(dO * O), dS = P * (dO V^T - delta) scale:
//             dQ = dS K;   dK = sum over the group's heads of dS^T Q, dV = .. P^T dO, in head order
//
// On a CPU tiles are square. In training the keys of a tile of queries are the tiles before its first row and the diagonal tile,
// of which every product does one half. Where a GPU has enough to do, the rows that stay are two tiles (`wide`), so that what passes by is copied half as
// often, all of it in one loop. Where queries stay and keys pass by, scores stand transposed, [keys, rows]: the
// tile that stays is the one that is turned, and statistics of rows run along vectors. Where scores lie in registers (bf16 on a GPU), a tile whose keys all of its
// queries see is not masked, and queries are multiplied as they lie in memory: `scale` becomes a factor of exponents of two, in f32.
//
//===-------------------------------------------------------------------------------------------------------------===//
#ifndef PASSES_OUTLINE_ATTENTIONTILES_H
#define PASSES_OUTLINE_ATTENTIONTILES_H

#include "passes/outline/SoftCap.h"

#include "llvm/Support/FormatVariadic.h"

namespace braid {

/// Keys at a time of a program of one token.
inline constexpr int64_t kDecodeKeys = 64;

struct AttentionShape {
  int64_t heads, groups, size, values; ///< H, G, D, V
  mlir::Type token, compute;
  int64_t shared = 0; ///< R; 0: keys of all heads share nothing
  bool latent = false; ///< of a cache: values are the keys that heads have by themselves
  int64_t window = 0, prefix = 0;
  bool cache = false, ring = false;
  bool past = false; ///< of a cache what stood there before this call
  bool sharded = false, earlier = false; ///< along sp: keys of all ranks; a block of keys that lies before the tokens
  bool bounded = false; ///< along sp: some keys may lie before the row
  bool gpu = false;
  bool branches = false; ///< tiles that need no mask have none: on a GPU scores lie in registers, a CPU would copy them
  bool wide = false; ///< programs own two tiles of rows, and what passes by is copied in boxes
  bool late = false; ///< scores, in registers, are scaled where they become exponents
  mlir::Type gradients = {}; ///< element of dk and dv
  bool adds = false; ///< to what other tokens gave
  bool sinks = false; ///< of each head a score that no key has
  bool capped = false; ///< scaled scores s become c tanh(s / c)
  int64_t perGroup() const { return heads / groups; }
  int64_t width() const { return std::max(size + shared, values); } ///< of the widest tile
  /// Queries, and keys, of a tile: a GPU's block has shared memory for so many.
  int64_t tileRows() const { return width() <= 128 || branches ? 64 : width() <= 256 || !gpu ? 32 : 16; }
  /// Queries of a tile that keys meet: of a GPU's registers shared features take so many that there are no more for scores.
  int64_t metQueries() const { return wide && shared ? tileRows() / 2 : tileRows(); }
  /// Heads of a group that a program of one token attends for; of latent keys there are many.
  int64_t decodeHeads() const { return width() <= 256 ? perGroup() : divisorUpTo(perGroup(), 16); }
  /// Keys at a time of such a program.
  int64_t decodeKeys() const { return width() <= 256 || !gpu ? kDecodeKeys : 16; }
  int64_t ownRows() const { return wide ? 2 * tileRows() : tileRows(); } ///< of a program
  /// Keys of a tile that rows attend to: what a tile has to do but for its keys, a large one has to do once. With shared features there is room for no large
  /// ones.
  int64_t attendedKeys() const { return shared ? tileRows() : ownRows(); }
  void round(KernelBuilder &k) const {
    if (token.isBF16())
      k.roundProducts();
    // What l and m' become is multiplied into sums that are rounded too. An exact quotient has a slow path, which is a call: beside calls the assembler
    // lets no two products by wgmma be under way.
    if (branches)
      k.approximate();
  }
  std::string kernelName(llvm::StringRef what) const {
    std::string name = llvm::formatv("attn_{0}_h{1}_g{2}_d{3}", what, heads, groups, size);
    if (latent)
      name += "_latent";
    else if (values != size)
      name += "_v" + std::to_string(values);
    if (shared)
      name += "_s" + std::to_string(shared);
    name += "_" + typeName(token);
    if (window)
      name += llvm::formatv("_w{0}", window);
    if (wide)
      name += "_r" + std::to_string(ownRows());
    if (branches && !late)
      name += "_early";
    return name +
           (ring      ? "_ring"
            : past    ? sharded ? "_past_sp" : "_past"
            : cache   ? "_cache"
            : sharded ? "_sp"
            : earlier ? "_earlier"
                      : "") +
           (bounded ? "_bounded" : "") + (sinks ? "_sinks" : "") + SoftCap::suffix(capped).str();
  }
};

/// Scores start here: finite, so that exp(m - m') of an empty row is exp(0), never NaN.
inline constexpr double kLowest = -1e30;
/// Below it a masked score would not become an exponent without a result, nor would the greatest score stay that if it is negative.
inline constexpr double kLeastLateScale = 1e-9;
inline constexpr double kLog2E = 1.4426950408889634;

/// What the kernels share: parameters, intervals, masked scores.
class Attention {
public:
  /// Of tokens, buffers or tiles: what heads have by themselves, and what keys of all heads share (null: nothing).
  struct Features {
    Var own, shared;
  };
  /// Tiles of keys and their values.
  struct Keys : Features {
    Var values;
  };
  /// What all kernels over keys read.
  struct Inputs {
    Features q, k;
    Var values, documents;
  };

  Attention(KernelBuilder &k, const AttentionShape &shape) : k(k), shape(shape) {}

  /// [B, T, heads, features].
  Var tokens(llvm::StringRef name, int64_t heads, int64_t features, mlir::Type element = {}) {
    return k.buffer(name, element ? element : shape.token,
                    {{"row"}, {"token"}, {"head", heads}, {"feature", features}});
  }
  Var queries(llvm::StringRef name) { return tokens(name, shape.heads, shape.size); }
  Var outputs(llvm::StringRef name) { return tokens(name, shape.heads, shape.values); }
  Inputs inputs() {
    Inputs in;
    in.q.own = queries("q");
    in.k.own = tokens("k", shape.groups, shape.size);
    if (!shape.latent)
      in.values = tokens("v", shape.groups, shape.values);
    in.documents = k.buffer("documents", k.i32(), {kDynamic, kDynamic});
    if (shape.shared) {
      in.q.shared = tokens("q_shared", shape.heads, shape.shared);
      in.k.shared = tokens("k_shared", 1, shape.shared);
    }
    return in;
  }
  Var rowNumbers(llvm::StringRef name) {
    return k.buffer(name, shape.compute, {{"row"}, {"head", shape.heads}, {"token"}});
  }
  /// O' of parts of the keys, and their m and l.
  Var partOutputs(llvm::StringRef name) {
    return k.buffer(name, shape.compute, {kDynamic, kDynamic, shape.heads, shape.values});
  }
  Var partNumbers(llvm::StringRef name) { return k.buffer(name, shape.compute, {kDynamic, 2, kDynamic, shape.heads}); }
  /// Null: none.
  Var sinks() { return shape.sinks ? k.buffer("sinks", shape.compute, {{"head", shape.heads}}) : Var(); }
  /// The sink of head h for each of `rows`, as the greatest of the scores that they begin with.
  Var sinkOf(Var sinks, Var h, int64_t rows) {
    if (!sinks)
      return {};
    Var sink = splat(k.at(sinks, {h}), {rows});
    return factor ? sink / splat(scale, {rows}) : sink;
  }
  Var index(Var number) { return cast(number, k.builder.getIndexType()); }
  /// Cotangents of keys and values, and the sums that they are added to.
  Var keyGradients(llvm::StringRef name) { return tokens(name, shape.groups, shape.size, shape.gradients); }
  Var valueGradients(llvm::StringRef name) { return tokens(name, shape.groups, shape.values, shape.gradients); }
  /// The parameters that say how many keys there are, and at which the tokens q begin.
  void loadPrefix(Var q) {
    if (shape.cache) {
      if (shape.sharded)
        rowBegin = cast(index(k.at(k.buffer("coordinate", k.i32(), {1}), {0})) * k.size(q, 1), k.i32());
      return;
    }
    keyCount = k.index("keys");
    prefix = k.index("prefix");
    if (!shape.sharded && !shape.bounded)
      return;
    Var before = index(k.at(k.buffer("coordinate", k.i32(), {1}), {0})) * k.size(q, 1); // tokens of the row
    if (shape.sharded)
      prefix = prefix + before;
    else
      rowBegin = cast(prefix - before, k.i32());
  }

  /// First and last key of every row: i32 tiles; rows without keys have last = -1.
  struct Interval {
    Var first, last;
  };
  /// `document`, `token`: i32 tiles or scalars. `live`: an i1 like them, or nothing.
  Interval interval(Var document, Var token, Var live = {}) {
    Var padding = eq(document, static_cast<double>(INT32_MAX));
    Var first, last;
    if (shape.cache) {
      last = shape.past ? -document - 1.0 : token - document;
      if (rowBegin) // documents of a rank begin so much earlier
        last = last - (last.rank() ? splat(rowBegin, last.shape()) : rowBegin);
      first = last.like(0);
    } else {
      Var shift = cast(prefix, k.i32());
      last = token + shift;
      first = max(select(padding, 0.0, document) + shift, 0.0);
      if (rowBegin)
        first = max(first, first.rank() ? splat(rowBegin, first.shape()) : rowBegin);
    }
    if (shape.window)
      first = max(first, last - static_cast<double>(shape.window - 1));
    last = select(padding, -1.0, last);
    if (live)
      last = select(live, last, -1.0);
    return {first, last};
  }
  /// Of query rows [t0, t0 + count); rows outside of [0, T) have no keys.
  Interval rowIntervals(Var documents, Var b, Var t0, int64_t count) {
    Var tokens = k.size(documents, 1);
    Var document = k.load(documents, {b, t0}, {count}, {.limit = tokens, .dims = {1}});
    Var token = k.iota({count}, 0) + cast(t0, k.i32());
    return interval(document, token, both(ge(token, 0.0), lt(token, cast(tokens, k.i32()))));
  }
  /// Whether key s0 + i is one of the row's: [rows, count], or [count, rows] if `turned`.
  Var visible(const Interval &keys, Var s0, int64_t count, bool turned = false) {
    int64_t rows = keys.first.dim(0), axis = turned ? 0 : 1;
    Var s = k.iota(turned ? Shape({count, rows}) : Shape({rows, count}), axis) + cast(s0, k.i32());
    return both(ge(s, expand(keys.first, axis, count)), le(s, expand(keys.last, axis, count)));
  }
  /// The keys [first, last] that each of the query rows [t0, t0 + count) sees: documents begin in ascending order and padding stands at the end, so the last row says
  /// where all begin, the first one where they end. No keys where a row has none. Null: masks are no branches.
  Interval common(Var documents, Var b, Var t0, int64_t count) {
    if (!shape.branches || shape.cache)
      return {};
    Var end = t0 + static_cast<double>(count - 1), there = both(ge(t0, 0.0), lt(end, k.size(documents, 1)));
    Var document = k.at(documents, {b, select(there, end, 0.0)});
    there = both(there, ne(document, static_cast<double>(INT32_MAX)));
    return {interval(document, cast(end, k.i32())).first, select(there, cast(t0 + prefix, k.i32()), -1.0)};
  }
  /// `scores` of keys [s0, s0 + count), the least of scores for what is not `live`: none where the rows have these keys in `common`.
  Var masked(const Interval &common, Var s0, int64_t count, Var scores, llvm::function_ref<Var()> live) {
    auto mask = [&] { return Vars{select(live(), scores, kLowest)}; };
    if (!common.first)
      return mask()[0];
    Var first = cast(s0, k.i32()), last = first + static_cast<double>(count - 1);
    return k.when(both(ge(first, common.first), le(last, common.last)), [&] { return Vars{scores}; }, mask)[0];
  }
  /// The part of the intervals before key `end`.
  Interval before(const Interval &keys, Var end) { return {keys.first, min(keys.last, cast(end, k.i32()) - 1.0)}; }
  /// The keys any row sees: [lo, hi).
  std::pair<Var, Var> range(const Interval &keys) {
    Var none = lt(keys.last, 0.0);
    Var lo = minimum(select(none, static_cast<double>(INT32_MAX), keys.first), 0), hi = maximum(keys.last, 0) + 1.0;
    return {index(lo), index(hi)};
  }

  Var loadRows(Var buffer, Var b, Var first, Var h, int64_t count, Var limit) {
    return cast(k.load(buffer, {b, first, h, 0}, {count, buffer.dim(3)}, {.limit = limit, .dims = {1, 3}}),
                shape.compute);
  }
  /// Keys or values at positions first, first + 1, ..; those at or past `limit` read 0.
  Var loadKeys(Var buffer, Var b, Var first, Var g, int64_t count, Var limit) {
    if (!shape.ring)
      return loadRows(buffer, b, first, g, count, limit);
    Var position = k.iota({count}, 0) + cast(first, k.i32()), size = cast(k.size(buffer, 1), k.i32());
    Var row = select(lt(position, cast(limit, k.i32())), position % size, -1.0);
    return cast(k.load(buffer, {b, 0, g, 0}, {count, buffer.dim(3)}, {.rows = row, .dims = {1, 3}}), shape.compute);
  }
  /// Rows that pass by. In boxes there are always some: those at or past `limit` are masked.
  Var passingRows(Var buffer, Var b, Var first, Var h, int64_t count, Var limit) {
    return loadRows(buffer, b, first, h, count, shape.wide ? k.size(buffer, 1) : limit);
  }
  /// Rows of queries, of head h.
  Features loadRows(const Features &of, Var b, Var first, Var h, int64_t count, Var limit) {
    return {loadRows(of.own, b, first, h, count, limit),
            of.shared ? loadRows(of.shared, b, first, h, count, limit) : Var()};
  }
  Features passingRows(const Features &of, Var b, Var first, Var h, int64_t count, Var limit) {
    return {passingRows(of.own, b, first, h, count, limit),
            of.shared ? passingRows(of.shared, b, first, h, count, limit) : Var()};
  }
  /// Rows of keys, and their values: of group g, and what all share.
  Keys keysOf(const Inputs &in, Var g, llvm::function_ref<Var(Var buffer, Var head)> load) {
    Keys at{{load(in.k.own, g), in.k.shared ? load(in.k.shared, k.number(0)) : Var()}, {}};
    at.values = shape.latent ? at.own : load(in.values, g);
    return at;
  }
  Keys loadKeys(const Inputs &in, Var b, Var first, Var g, int64_t count, Var limit) {
    return keysOf(in, g, [&](Var buffer, Var head) { return loadKeys(buffer, b, first, head, count, limit); });
  }
  Keys keyRows(const Inputs &in, Var b, Var first, Var g, int64_t count, Var limit) {
    return keysOf(in, g, [&](Var buffer, Var head) { return loadRows(buffer, b, first, head, count, limit); });
  }
  Keys passingKeys(const Inputs &in, Var b, Var first, Var g, int64_t count, Var limit) {
    return keysOf(in, g, [&](Var buffer, Var head) { return passingRows(buffer, b, first, head, count, limit); });
  }
  /// Of every row of x with every one of y.
  static Var productOf(const Features &x, const Features &y) {
    Var own = dotTB(x.own, y.own);
    return x.shared ? dotTB(x.shared, y.shared, own) : own;
  }
  /// The same as scores, of rows that are scaled, or are to be late.
  Var scoresOf(const Features &x, const Features &y) const { return cap.of(productOf(x, y)); }
  /// The parameters that bound scaled scores, where there are any.
  void loadCap() {
    if (shape.capped)
      cap = SoftCap(k, shape.compute, /*approximate=*/shape.branches);
  }
  /// From here on scores are scaled where they become exponents, if the shape says so.
  void scaleLate(Var by) {
    if (!shape.late)
      return;
    scale = by;
    factor = by * kLog2E;
  }
  /// What scores are multiplied as: scaled rows, or rows as they lie in memory.
  Var scaled(Var rows, Var by) const { return factor ? rows : rows * by; }
  Features scaled(const Features &rows, Var by) const {
    return {scaled(rows.own, by), rows.shared ? scaled(rows.shared, by) : Var()};
  }
  /// exp(scores - origin) where `live` leaves exponents as they are: one multiplication and addition, and a power of two. `origin`: scaled, repeated as `scores` are.
  Var powers(Var scores, Var origin, llvm::function_ref<Var(Var)> live = [](Var x) { return x; }) const {
    return factor ? exp2(live(scores * factor - origin)) : exp(live(scores - origin));
  }
  /// The greatest scores of rows, along `axis` of tiles, as an origin. Where a row has seen no key its scores are as low as that: it may not be their origin,
  /// as the rounding of a product of these is large.
  Var originOf(Var highest, int64_t axis, int64_t count) const {
    if (factor)
      highest = select(le(highest, kLowest), 0.0, highest * factor);
    return expand(highest, axis, count);
  }
  /// exp(m - m'), 1 where they are the same.
  Var keepOf(Var before, Var highest) const {
    return factor ? exp2((before - highest) * factor) : exp(before - highest);
  }

  /// The first row of this program's. On a GPU the longest come first: what is left at the end are short ones.
  Var firstQuery(Var q) {
    auto own = static_cast<double>(shape.ownRows());
    Var block = k.program(0);
    if (shape.wide)
      block = (k.size(q, 1) + (own - 1.0)) / own - 1.0 - block;
    return block * own;
  }
  void storeRows(Var tile, Var buffer, Var b, Var first, Var h) {
    k.store(cast(tile, buffer.element()), buffer, {b, first, h, 0}, {.limit = k.size(buffer, 1), .dims = {1, 3}});
  }

  /// Online softmax of a few rows, already scaled, over their keys of group g. Result: o and lse.
  std::pair<Var, Var> attend(const Features &q, const Interval &seen, const Inputs &in, Var b, Var g, int64_t block,
                             Var sinks = {}) {
    return attended(attendPart(q, seen, in, b, g, block, sinks));
  }
  /// m, l, O' of the blocks of keys that are the turn of `part` of `parts`, each as many in a row; of all without a part.
  Vars attendPart(const Features &q, const Interval &seen, const Inputs &in, Var b, Var g, int64_t block,
                  Var sinks = {}, Var part = {}, int64_t parts = 1) {
    int64_t rows = q.own.dim(0);
    auto [lo, end] = range(seen);
    Var hi = shape.ring ? end : min(end, shape.cache ? k.size(in.k.own, 1) : keyCount);
    Interval there = before(seen, hi); // a block of earlier keys ends before the tokens
    if (part) {
      auto all = static_cast<double>(parts * block);
      Var each = max(hi - lo + (all - 1.0), 0.0) / all * static_cast<double>(block);
      lo = lo + part * each;
      hi = min(hi, lo + each);
    }
    return k.loop(lo, hi, block, attendNothing(rows, sinks), [&](Var s0, llvm::ArrayRef<Var> now) -> Vars {
      Keys keys = loadKeys(in, b, s0, g, block, hi);
      Var live = visible(there, s0, block);
      Var scores = select(live, scoresOf(q, keys), kLowest);
      Var highest = max(now[0], maximum(scores, 1));
      Var p = select(live, exp(scores - expand(highest, 1, block)), 0.0);
      Var keep = exp(now[0] - highest);
      return {highest, now[1] * keep + sum(p, 1), dot(p, keys.values, now[2] * expand(keep, 1, shape.values))};
    });
  }

  /// One tile of keys in the online softmax of `q` [rows, D], scaled (or late); `now`: m, l, O'.
  Vars attendTile(const Features &q, const Keys &at, const Interval &keys, const Interval &common, Var s0,
                  bool diagonal, llvm::ArrayRef<Var> now) {
    int64_t count = at.own.dim(0);
    auto half = [&](Var x) { return diagonal ? mask(x, tile::Keep::upper) : x; };
    Var scores =
        masked(common, s0, count, half(scoresOf(at, q)), [&] { return visible(keys, s0, count, /*turned=*/true); });
    Var highest = max(now[0], maximum(scores, 0));
    // Of a row that has seen no key this is 1 (0 if late); its first key multiplies it by exp(kLowest - m') = 0, without one attended() does.
    Var p = half(powers(scores, originOf(highest, 0, count)));
    Var keep = keepOf(now[0], highest);
    return {highest, now[1] * keep + sum(p, 0), dotTA(p, at.values, now[2] * expand(keep, 1, shape.values))};
  }
  /// The same where P of the tile before is multiplied with its values `vs` beside the exponentials of this one. `now`: m, l, O' of the tiles before that one,
  /// but multiplied as m is since, and P. O' is not touched between the two products: the assembler would let neither go on beside it.
  Vars attendTileLater(const Features &q, const Features &ks, Var vs, const Interval &keys, const Interval &common,
                       Var s0, llvm::ArrayRef<Var> now) {
    int64_t count = ks.own.dim(0);
    Var raw = scoresOf(ks, q);
    Var out = dotTA(now[3], vs, now[2]);
    Var scores = masked(common, s0, count, raw, [&] { return visible(keys, s0, count, /*turned=*/true); });
    Var highest = max(now[0], maximum(scores, 0)), keep = keepOf(now[0], highest);
    Var p = powers(scores, originOf(highest, 0, count));
    return {highest, now[1] * keep + sum(p, 0), out * expand(keep, 1, shape.values), p};
  }
  /// m, l, O' of rows that have seen no key. `sinks`, of each row or null, have been seen.
  Vars attendNothing(int64_t rows, Var sinks = {}) {
    return {sinks ? max(sinks, kLowest) : k.tile({rows}, shape.compute, kLowest),
            k.tile({rows}, shape.compute, sinks ? 1 : 0), k.tile({rows, shape.values}, shape.compute)};
  }
  /// o and lse from m, l, O'.
  std::pair<Var, Var> attended(llvm::ArrayRef<Var> out) {
    Var empty = le(out[0], kLowest), total = select(empty, 1.0, out[1]);
    // A block of a ring says that it has no keys; there is always one that has.
    Var lse =
        select(empty, shape.earlier || shape.past ? kLowest : 0.0, (factor ? out[0] * scale : out[0]) + log(total));
    Var o = out[2] * expand(1.0 / total, 1, shape.values);
    return {select(le(expand(out[0], 1, shape.values), kLowest), 0.0, o), lse};
  }

  KernelBuilder &k;
  const AttentionShape &shape;
  Var keyCount, prefix; ///< set by kernels that have them as parameters
  Var scale, factor; ///< of scores that are scaled late: scale / ln 2
  SoftCap cap; ///< of scores
  Var rowBegin; ///< the key at which the row begins, where there may be others before it; of a past, tokens of earlier ranks
};

/// What an op says of its kernels, in which scores lie in registers where a GPU multiplies rows of at most `most` features.
template <typename Op>
AttentionShape attentionShape(Op op, const OutlineContext &context, bool cache, bool ring, int64_t most) {
  Shape q = shapeOf(op.getQ()), v = shapeOf(op.getV());
  int64_t keys = op.keyCount(), prefix = static_cast<int64_t>(op.getPrefix()),
          shared = op.getShared().empty() ? 0 : shapeOf(op.getShared()[0])[3];
  mlir::Type token = tensorType(op.getQ()).getElementType();
  bool inRegisters = context.gpu && token.isBF16() && q[3] + shared <= most && v[3] <= 128;
  bool past = false, sinks = false;
  if constexpr (std::is_same_v<Op, AttnCausalOp>) {
    past = op.getPast();
    sinks = static_cast<bool>(op.getSinks());
  }
  return {.heads = q[2],
          .groups = v[2],
          .size = q[3],
          .values = v[3],
          .token = token,
          .compute = computeType(token),
          .shared = shared,
          .latent = cache && op.getK() == op.getV(),
          .window = static_cast<int64_t>(op.getWindow()),
          .prefix = prefix,
          .cache = cache,
          .ring = ring,
          .past = past,
          .sharded = op.getCoordinate() && (cache || keys > prefix + q[1]),
          .earlier = !cache && keys <= prefix,
          .bounded = op.getCoordinate() && !cache && keys <= prefix + q[1],
          .gpu = context.gpu,
          .branches = inRegisters,
          .late = inRegisters && !op.getSoftcap() && op.getScale().convertToDouble() >= kLeastLateScale,
          .sinks = sinks,
          .capped = op.getSoftcap().has_value()};
}

/// The same for programs over `rows` rows of `heads` heads each: of two tiles, where such programs still fill a GPU's multiprocessors, and what passes by
/// them can be copied in boxes: it is as large as a tile, and no row is there that is not to be read. Then there are registers for shared features, too.
template <typename Op>
AttentionShape attentionShape(Op op, const OutlineContext &context, bool cache, bool ring, int64_t rows,
                              int64_t AttentionShape::*heads) {
  constexpr int64_t fill = 128, boxColumns = 64, most = 128, mostInBoxes = 192;
  AttentionShape shape = attentionShape(op, context, cache, ring, context.boxes ? mostInBoxes : most);
  Shape q = shapeOf(op.getQ()), keys = shapeOf(op.getK());
  int64_t tile = shape.tileRows();
  shape.wide = context.boxes && shape.branches && !cache && shape.shared % boxColumns == 0 &&
               shape.values == shape.size && shape.size >= boxColumns && shape.size % 16 == 0 &&
               op.keyCount() == keys[1] && q[1] >= tile && keys[1] >= 2 * tile &&
               ceilDiv(rows, 2 * tile) * (shape.*heads) * q[0] >= fill;
  return shape.wide ? shape : attentionShape(op, context, cache, ring, most);
}

/// Of a launch: the numbers that scores are multiplied with and bounded by.
template <typename Op> void scoreArguments(OutlineContext::Launch &launch, Op op, const AttentionShape &shape) {
  launch.scalar("scale", op.getScale().convertToDouble(), shape.compute);
  if (op.getSoftcap())
    SoftCap::arguments(launch, op.getSoftcap()->convertToDouble(), shape.compute);
}
/// Of a launch: what Inputs names.
template <typename Op> void attentionArguments(OutlineContext::Launch &launch, Op op, const AttentionShape &shape) {
  launch.arg("q", op.getQ()).arg("k", op.getK());
  if (!shape.latent)
    launch.arg("v", op.getV());
  launch.arg("documents", op.getDocuments());
  if (shape.shared)
    launch.arg("q_shared", op.getShared()[0]).arg("k_shared", op.getShared()[1]);
}

} // namespace braid

#endif // PASSES_OUTLINE_ATTENTIONTILES_H
