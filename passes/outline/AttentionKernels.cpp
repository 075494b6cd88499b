//===- AttentionKernels.cpp - attn.causal, attn.causal_grad, attn.append become launches --------------------------===//
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
#include "passes/outline/OutlineFamilies.h"

#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;

namespace braid {

namespace {

struct AttentionShape {
  int64_t heads, groups, size; ///< H, G, D
  int64_t window, prefix;
  bool cache, ring;
  bool sharded, earlier; ///< along sp: keys of all ranks; a block of keys that lies before the tokens
  bool bounded; ///< along sp: some keys may lie before the row
  bool branches; ///< tiles that need no mask have none: on a GPU scores lie in registers, a CPU would copy them
  bool wide; ///< programs own two tiles of rows, and what passes by is copied in boxes
  Type token, compute;
  bool late = false; ///< scores, in registers, are scaled where they become exponents
  Type gradients = {}; ///< element of dk and dv
  bool adds = false; ///< to what other tokens gave
  int64_t perGroup() const { return heads / groups; }
  int64_t tileRows() const { return size <= 128 ? 64 : 32; } ///< queries, and keys, of a tile
  int64_t ownRows() const { return wide ? 2 * tileRows() : tileRows(); } ///< of a program
  /// Keys of a tile that rows attend to: what a tile has to do but for its keys, a large one has to do once.
  int64_t attendedKeys() const { return ownRows(); }
  void round(KernelBuilder &k) const {
    if (token.isBF16())
      k.roundProducts();
    // What l and m' become is multiplied into sums that are rounded too. An exact quotient has a slow path, which is a call: beside calls the assembler
    // lets no two products by wgmma be under way.
    if (branches)
      k.approximate();
  }
  std::string kernelName(llvm::StringRef what) const {
    std::string name = llvm::formatv("attn_{0}_h{1}_g{2}_d{3}_{4}", what, heads, groups, size, typeName(token));
    if (window)
      name += llvm::formatv("_w{0}", window);
    if (wide)
      name += "_r" + std::to_string(ownRows());
    if (branches && !late)
      name += "_early";
    return name +
           (ring      ? "_ring"
            : cache   ? "_cache"
            : sharded ? "_sp"
            : earlier ? "_earlier"
                      : "") +
           (bounded ? "_bounded" : "");
  }
};

/// Scores start here: finite, so that exp(m - m') of an empty row is exp(0), never NaN.
constexpr double kLowest = -1e30;
constexpr int64_t kDecodeKeys = 64;
/// Below it a masked score would not become an exponent without a result, nor would the greatest score stay that if it is negative.
constexpr double kLeastLateScale = 1e-9;
constexpr double kLog2E = 1.4426950408889634;

/// What the kernels share: parameters, intervals, masked scores.
class Attention {
public:
  Attention(KernelBuilder &k, const AttentionShape &shape) : k(k), shape(shape) {}

  Var queries(llvm::StringRef name) {
    return k.buffer(name, shape.token, {{"row"}, {"token"}, {"head", shape.heads}, {"feature", shape.size}});
  }
  Var keys(llvm::StringRef name) {
    return k.buffer(name, shape.token, {{"row"}, {"token"}, {"head", shape.groups}, {"feature", shape.size}});
  }
  Var rowNumbers(llvm::StringRef name) {
    return k.buffer(name, shape.compute, {{"row"}, {"head", shape.heads}, {"token"}});
  }
  /// O' of parts of the keys, and their m and l.
  Var partOutputs(llvm::StringRef name) {
    return k.buffer(name, shape.compute, {kDynamic, kDynamic, shape.heads, shape.size});
  }
  Var partNumbers(llvm::StringRef name) { return k.buffer(name, shape.compute, {kDynamic, 2, kDynamic, shape.heads}); }
  Var index(Var number) { return cast(number, k.builder.getIndexType()); }
  /// Cotangents of keys and values, and the sums that they are added to.
  Var keyGradients(llvm::StringRef name) {
    return k.buffer(name, shape.gradients, {{"row"}, {"token"}, {"head", shape.groups}, {"feature", shape.size}});
  }
  /// The parameters that say how many keys there are, and at which the tokens q begin.
  void loadPrefix(Var q) {
    if (shape.cache)
      return;
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
      last = token - document;
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
    return cast(k.load(buffer, {b, first, h, 0}, {count, shape.size}, {.limit = limit, .dims = {1, 3}}), shape.compute);
  }
  /// Keys or values at positions first, first + 1, ..; those at or past `limit` read 0.
  Var loadKeys(Var buffer, Var b, Var first, Var g, int64_t count, Var limit) {
    if (!shape.ring)
      return loadRows(buffer, b, first, g, count, limit);
    Var position = k.iota({count}, 0) + cast(first, k.i32()), size = cast(k.size(buffer, 1), k.i32());
    Var row = select(lt(position, cast(limit, k.i32())), position % size, -1.0);
    return cast(k.load(buffer, {b, 0, g, 0}, {count, shape.size}, {.rows = row, .dims = {1, 3}}), shape.compute);
  }
  /// Rows that pass by. In boxes there are always some: those at or past `limit` are masked.
  Var passingRows(Var buffer, Var b, Var first, Var h, int64_t count, Var limit) {
    return loadRows(buffer, b, first, h, count, shape.wide ? k.size(buffer, 1) : limit);
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
  std::pair<Var, Var> attend(Var q, const Interval &seen, Var keyBuffer, Var valueBuffer, Var b, Var g, int64_t block) {
    return attended(attendPart(q, seen, keyBuffer, valueBuffer, b, g, block));
  }
  /// m, l, O' of the blocks of keys that are the turn of `part` of `parts`, each as many in a row; of all without a part.
  Vars attendPart(Var q, const Interval &seen, Var keyBuffer, Var valueBuffer, Var b, Var g, int64_t block,
                  Var part = {}, int64_t parts = 1) {
    int64_t rows = q.dim(0), D = shape.size;
    auto [lo, end] = range(seen);
    Var hi = shape.ring ? end : min(end, shape.cache ? k.size(keyBuffer, 1) : keyCount);
    Interval there = before(seen, hi); // a block of earlier keys ends before the tokens
    if (part) {
      auto all = static_cast<double>(parts * block);
      Var each = max(hi - lo + (all - 1.0), 0.0) / all * static_cast<double>(block);
      lo = lo + part * each;
      hi = min(hi, lo + each);
    }
    return k.loop(lo, hi, block, attendNothing(rows), [&](Var s0, llvm::ArrayRef<Var> now) -> Vars {
      Var ks = loadKeys(keyBuffer, b, s0, g, block, hi), vs = loadKeys(valueBuffer, b, s0, g, block, hi);
      Var live = visible(there, s0, block);
      Var scores = select(live, dotTB(q, ks), kLowest);
      Var highest = max(now[0], maximum(scores, 1));
      Var p = select(live, exp(scores - expand(highest, 1, block)), 0.0);
      Var keep = exp(now[0] - highest);
      return {highest, now[1] * keep + sum(p, 1), dot(p, vs, now[2] * expand(keep, 1, D))};
    });
  }

  /// One tile of keys in the online softmax of `q` [rows, D], scaled (or late); `now`: m, l, O'.
  Vars attendTile(Var q, Var ks, Var vs, const Interval &keys, const Interval &common, Var s0, bool diagonal,
                  llvm::ArrayRef<Var> now) {
    int64_t count = ks.dim(0);
    auto half = [&](Var x) { return diagonal ? mask(x, tile::Keep::upper) : x; };
    Var scores =
        masked(common, s0, count, half(dotTB(ks, q)), [&] { return visible(keys, s0, count, /*turned=*/true); });
    Var highest = max(now[0], maximum(scores, 0));
    // Of a row that has seen no key this is 1 (0 if late); its first key multiplies it by exp(kLowest - m') = 0, without one attended() does.
    Var p = half(powers(scores, originOf(highest, 0, count)));
    Var keep = keepOf(now[0], highest);
    return {highest, now[1] * keep + sum(p, 0), dotTA(p, vs, now[2] * expand(keep, 1, shape.size))};
  }
  /// The same where P of the tile before is multiplied with its values `vs` beside the exponentials of this one. `now`: m, l, O' of the tiles before that one,
  /// but multiplied as m is since, and P. O' is not touched between the two products: the assembler would let neither go on beside it.
  Vars attendTileLater(Var q, Var ks, Var vs, const Interval &keys, const Interval &common, Var s0,
                       llvm::ArrayRef<Var> now) {
    int64_t count = ks.dim(0);
    Var raw = dotTB(ks, q);
    Var out = dotTA(now[3], vs, now[2]);
    Var scores = masked(common, s0, count, raw, [&] { return visible(keys, s0, count, /*turned=*/true); });
    Var highest = max(now[0], maximum(scores, 0)), keep = keepOf(now[0], highest);
    Var p = powers(scores, originOf(highest, 0, count));
    return {highest, now[1] * keep + sum(p, 0), out * expand(keep, 1, shape.size), p};
  }
  Vars attendNothing(int64_t rows) {
    return {k.tile({rows}, shape.compute, kLowest), k.tile({rows}, shape.compute),
            k.tile({rows, shape.size}, shape.compute)};
  }
  /// o and lse from m, l, O'.
  std::pair<Var, Var> attended(llvm::ArrayRef<Var> out) {
    Var empty = le(out[0], kLowest), total = select(empty, 1.0, out[1]);
    // A block of a ring says that it has no keys; there is always one that has.
    Var lse = select(empty, shape.earlier ? kLowest : 0.0, (factor ? out[0] * scale : out[0]) + log(total));
    Var o = out[2] * expand(1.0 / total, 1, shape.size);
    return {select(le(expand(out[0], 1, shape.size), kLowest), 0.0, o), lse};
  }

  KernelBuilder &k;
  const AttentionShape &shape;
  Var keyCount, prefix; ///< set by kernels that have them as parameters
  Var scale, factor; ///< of scores that are scaled late: scale / ln 2
  Var rowBegin; ///< the key at which the row begins, where there may be others before it
};

//===- Forward ----------------------------------------------------------------------------------------------------===//

/// Program (block of query rows, head, batch). On a GPU in the order of attention's longest rows first.
void writeForward(KernelBuilder &k, const AttentionShape &shape) {
  Attention a(k, shape);
  Var q = a.queries("q"), keys = a.keys("k"), values = a.keys("v"),
      documents = k.buffer("documents", k.i32(), {kDynamic, kDynamic});
  Var o = a.queries("o"), lse = a.rowNumbers("lse"), scale = k.scalar("scale", shape.compute);
  a.loadPrefix(q);
  int64_t R = shape.ownRows(), C = shape.attendedKeys();
  Var t0 = a.firstQuery(q), h = k.program(1), b = k.program(2);
  Var tokens = k.size(q, 1), g = h / static_cast<double>(shape.perGroup());
  Var keyCount = shape.cache ? k.size(keys, 1) : a.keyCount;
  Var queries = a.loadRows(q, b, t0, h, R, tokens);
  auto seen = a.rowIntervals(documents, b, t0, R);
  auto [lo, end] = a.range(seen);
  Var hi = shape.ring ? end : min(end, keyCount), diagonal;
  auto before = seen;
  if (!shape.cache) {
    diagonal = t0 + a.prefix;
    hi = shape.earlier ? min(diagonal, keyCount) : shape.wide ? hi : diagonal;
    before = a.before(seen, hi);
  }
  auto common = a.common(documents, b, t0, R);
  if (common.last)
    common.last = min(common.last, cast(hi, k.i32()) - 1.0);
  a.scaleLate(scale);
  queries = a.scaled(queries, scale); // what has to be read has been asked for
  Vars state = a.attendNothing(R);
  if (shape.wide) {
    // Values come one tile behind their keys: nothing is multiplied with those of the first, and no key of the last is attended.
    auto each = static_cast<double>(C);
    state.push_back(k.tile({C, R}, shape.compute));
    state = k.loop(lo, select(lt(lo, hi), hi + each, hi), C, state, [&](Var s0, llvm::ArrayRef<Var> now) {
      Var ks = a.passingRows(keys, b, s0, g, C, hi), vs = a.passingRows(values, b, max(s0 - each, lo), g, C, hi);
      return a.attendTileLater(queries, ks, vs, before, common, s0, now);
    });
  } else {
    state = k.loop(lo, hi, C, state, [&](Var s0, llvm::ArrayRef<Var> now) {
      Var ks = a.loadKeys(keys, b, s0, g, C, hi), vs = a.loadKeys(values, b, s0, g, C, hi);
      return a.attendTile(queries, ks, vs, before, common, s0, /*diagonal=*/false, now);
    });
  }
  if (!shape.cache && !shape.earlier && !shape.wide) {
    Var ks = a.loadRows(keys, b, diagonal, g, R, keyCount), vs = a.loadRows(values, b, diagonal, g, R, keyCount);
    state = a.attendTile(queries, ks, vs, seen, {}, diagonal, /*diagonal=*/true, state);
  }
  auto [out, sums] = a.attended(state);
  a.storeRows(out, o, b, t0, h);
  k.store(cast(sums, lse.element()), lse, {b, h, t0}, {.limit = tokens, .dims = {2}});
}

/// One token: the rows are the heads of a group, so that every key is read once. Program (group, batch), or with
/// several parts (group, batch, part): m, l and O' of a part of the keys each (Flash-Decoding, Dao et al. 2023).
void writeDecode(KernelBuilder &k, const AttentionShape &shape, int64_t parts) {
  Attention a(k, shape);
  Var q = a.queries("q"), keys = a.keys("k"), values = a.keys("v"),
      documents = k.buffer("documents", k.i32(), {kDynamic, kDynamic});
  Var o, lse, scale;
  if (parts == 1) {
    o = a.queries("o");
    lse = a.rowNumbers("lse");
  } else {
    o = a.partOutputs("o");
    lse = a.partNumbers("m_l");
  }
  scale = k.scalar("scale", shape.compute);
  a.loadPrefix(q);
  int64_t rows = shape.perGroup();
  Var g = k.program(0), b = k.program(1), h = g * static_cast<double>(rows);
  Var queries = cast(k.load(q, {b, 0, h, 0}, {rows, shape.size}), shape.compute) * scale;
  auto one = a.interval(k.at(documents, {b, 0}), k.constant(k.i32(), 0));
  Attention::Interval seen{splat(one.first, {rows}), splat(one.last, {rows})};
  if (parts > 1) {
    Var part = k.program(2);
    Vars made = a.attendPart(queries, seen, keys, values, b, g, kDecodeKeys, part, parts);
    for (int64_t i = 0; i < 2; ++i)
      k.store(made[i], lse, {part, k.number(i), b, h}, {.dims = {3}});
    return k.store(made[2], o, {part, b, h, 0}, {.dims = {2, 3}});
  }
  auto [out, sums] = a.attend(queries, seen, keys, values, b, g, kDecodeKeys);
  k.store(cast(out, o.element()), o, {b, 0, h, 0});
  k.store(cast(sums, lse.element()), lse, {b, h, 0}, {.dims = {1}});
}

/// o and lse from m, l and O' of the parts, added up in their order. Program (head, batch).
void writeDecodeMerge(KernelBuilder &k, const AttentionShape &shape, int64_t parts) {
  Attention a(k, shape);
  Var o = a.partOutputs("o_part"), numbers = a.partNumbers("m_l");
  Var out = a.queries("o"), lse = a.rowNumbers("lse"), h = k.program(0), b = k.program(1);
  auto of = [&](int64_t i) { return k.load(numbers, {0, k.number(i), b, h}, {parts}, {.dims = {0}}); };
  Var m = of(0), l = of(1), highest = maximum(m, 0), weight = exp(m - splat(highest, {parts}));
  // A part without keys has l = 0 and O' = 0, whatever its weight.
  Var total = sum(l * weight, 0),
      made = sum(k.load(o, {0, b, h, 0}, {parts, shape.size}, {.dims = {0, 3}}) * expand(weight, 1, shape.size), 0);
  Var empty = le(total, 0.0);
  total = select(empty, 1.0, total);
  k.store(cast(made / splat(total, {shape.size}), out.element()), out, {b, 0, h, 0}, {.dims = {3}});
  k.put(cast(select(empty, 0.0, highest + log(total)), lse.element()), lse, {b, h, 0});
}

//===- Backward ---------------------------------------------------------------------------------------------------===//

struct GradBuffers {
  explicit GradBuffers(Attention &a)
      : q(a.queries("q")), keys(a.keys("k")), values(a.keys("v")),
        documents(a.k.buffer("documents", a.k.i32(), {kDynamic, kDynamic})), lse(a.rowNumbers("lse")),
        d(a.queries("d_o")) {}
  Var q, keys, values, documents, lse, d;
};

/// Of one pair of tiles P, and dS without its factor, from Q K^T (scaled, or late) and dO V^T, or both transposed; lse and delta are repeated along `axis`. `half`: what a
/// diagonal tile keeps. `masked` leaves the least of scores where rows and keys do not meet: exp may overflow there.
Var gradP(const Attention &a, Var scores, Var lse, int64_t axis, std::optional<tile::Keep> half,
          llvm::function_ref<Var(Var)> masked) {
  auto keep = [&](Var x) { return half ? mask(x, *half) : x; };
  Var origin = expand(lse, axis, scores.dim(axis));
  return keep(a.powers(keep(scores), a.factor ? origin * kLog2E : origin, masked));
}
Var gradScores(Var p, Var dp, Var delta, int64_t axis, std::optional<tile::Keep> half) {
  auto keep = [&](Var x) { return half ? mask(x, *half) : x; };
  return keep(p * (keep(dp) - expand(delta, axis, p.dim(axis))));
}

/// dq, and delta for the keys: program (block of query rows, head, batch).
void writeGradQueries(KernelBuilder &k, const AttentionShape &shape) {
  Attention a(k, shape);
  GradBuffers in(a);
  Var o = a.queries("o"), dq = a.queries("dq"), deltas = a.rowNumbers("delta"),
      scale = k.scalar("scale", shape.compute);
  a.loadPrefix(in.q);
  int64_t R = shape.ownRows(), C = shape.tileRows();
  Var t0 = a.firstQuery(in.q), h = k.program(1), b = k.program(2);
  Var tokens = k.size(in.q, 1), keyCount = a.keyCount, g = h / static_cast<double>(shape.perGroup());
  Var queries = a.loadRows(in.q, b, t0, h, R, tokens), d = a.loadRows(in.d, b, t0, h, R, tokens);
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
  auto add = [&](Var s0, Var limit, const Attention::Interval &keys, std::optional<tile::Keep> half, Var sum) {
    Var ks = a.passingRows(in.keys, b, s0, g, C, limit), vs = a.passingRows(in.values, b, s0, g, C, limit);
    auto masked = [&](Var scores) {
      return a.masked(half ? Attention::Interval() : common, s0, C, scores,
                      [&] { return a.visible(keys, s0, C, /*turned=*/true); });
    };
    Var scores = dotTB(ks, queries), product = dotTB(vs, d);
    Var p = gradP(a, scores, lse, 0, half, masked);
    return dotTA(gradScores(p, product, delta, 0, half), ks, sum);
  };
  Var total = k.loop(lo, end, C, {k.tile({R, shape.size}, shape.compute)},
                     [&](Var s0, llvm::ArrayRef<Var> now) -> Vars { return {add(s0, end, before, {}, now[0])}; })[0];
  if (!shape.earlier && !shape.wide)
    total = add(diagonal, keyCount, seen, tile::Keep::upper, total);
  a.storeRows(total * scale, dq, b, t0, h);
}

/// dk, dv: program (block of keys, key head, batch); the group's heads and their query blocks in order.
void writeGradKeys(KernelBuilder &k, const AttentionShape &shape) {
  Attention a(k, shape);
  GradBuffers in(a);
  Var deltas = a.rowNumbers("delta"), dkSum, dvSum;
  if (shape.adds)
    dkSum = a.keyGradients("dk_sum"), dvSum = a.keyGradients("dv_sum");
  Var dk = a.keyGradients("dk"), dv = a.keyGradients("dv"), scale = k.scalar("scale", shape.compute);
  a.loadPrefix(in.q);
  if (shape.wide) // else a thread has no registers for it
    a.scaleLate(scale);
  int64_t R = shape.ownRows(), C = shape.tileRows(), D = shape.size;
  Var s0 = k.program(0) * static_cast<double>(R), g = k.program(1), b = k.program(2);
  Var tokens = k.size(in.q, 1), keyCount = a.keyCount;
  Var ks = a.loadRows(in.keys, b, s0, g, R, keyCount), vs = a.loadRows(in.values, b, s0, g, R, keyCount);
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
    Var queries = a.passingRows(in.q, b, t0, h, C, tokens), d = a.passingRows(in.d, b, t0, h, C, tokens);
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
    Var scores = a.scaled(dotTB(queries, ks), scale), dp = dotTB(d, vs);
    Var lse = numbers(in.lse), delta = numbers(deltas);
    Var p = gradP(a, scores, lse, 1, half, masked);
    if (!shape.wide) {
      Var dks = dotTA(gradScores(p, dp, delta, 1, half), queries, now[0]);
      return {dks, dotTA(p, d, now[1])};
    }
    Var dvs = dotTA(p, d, now[1]); // multiplied while dS is computed
    return {dotTA(gradScores(p, dp, delta, 1, half), queries, now[0]), dvs};
  };
  Vars none{k.tile({R, D}, shape.compute), k.tile({R, D}, shape.compute)};
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
}

//===- merge ------------------------------------------------------------------------------------------------------===//

/// Program (block of query rows, head, batch).
void writeMerge(KernelBuilder &k, const AttentionShape &shape) {
  Attention a(k, shape);
  Var o = a.queries("o"), lse = a.rowNumbers("lse"), block = a.queries("o_block"), lseBlock = a.rowNumbers("lse_block");
  Var both = a.queries("o_both"), lseBoth = a.rowNumbers("lse_both");
  int64_t R = shape.tileRows();
  Var t0 = k.program(0) * static_cast<double>(R), h = k.program(1), b = k.program(2), tokens = k.size(o, 1);
  auto numbers = [&](Var buffer) { return k.load(buffer, {b, h, t0}, {R}, {.limit = tokens, .dims = {2}}); };
  Var one = numbers(lse), two = numbers(lseBlock), highest = max(one, two);
  Var weight = exp(one - highest), weightBlock = exp(two - highest), total = weight + weightBlock;
  Var sum = a.loadRows(o, b, t0, h, R, tokens) * expand(weight / total, 1, shape.size) +
            a.loadRows(block, b, t0, h, R, tokens) * expand(weightBlock / total, 1, shape.size);
  a.storeRows(sum, both, b, t0, h);
  k.store(highest + log(total), lseBoth, {b, h, t0}, {.limit = tokens, .dims = {2}});
}

//===- append -----------------------------------------------------------------------------------------------------===//

/// Program (token, batch): row t - documents[t] of the cache, modulo its rows in a ring.
void writeAppend(KernelBuilder &k, Type element, int64_t groups, int64_t size, bool ring) {
  k.buffer("cache", element, {kDynamic, kDynamic, groups, size});
  Var x = k.buffer("x", element, {kDynamic, kDynamic, groups, size}),
      documents = k.buffer("documents", k.i32(), {kDynamic, kDynamic});
  Var result = k.buffer("result", element, {kDynamic, kDynamic, groups, size});
  Var t = k.program(0), b = k.program(1);
  Var position = cast(t, k.i32()) - k.at(documents, {b, t}), rows = cast(k.size(result, 1), k.i32());
  // Padding tokens have a negative position.
  Var row = ring ? position % rows : position;
  k.when(both(ge(position, 0.0), lt(row, rows)), [&] {
    k.store(k.load(x, {b, t, 0, 0}, {groups, size}), result, {b, cast(row, k.builder.getIndexType()), 0, 0});
  });
}

//===- Launches ---------------------------------------------------------------------------------------------------===//

template <typename Op> AttentionShape shapeOfOp(Op op, const OutlineContext &context, bool cache, bool ring = false) {
  Shape q = shapeOf(op.getQ());
  int64_t keys = op.keyCount();
  Type token = tensorType(op.getQ()).getElementType();
  return {q[2],
          shapeOf(op.getK())[2],
          q[3],
          static_cast<int64_t>(op.getWindow()),
          static_cast<int64_t>(op.getPrefix()),
          cache,
          ring,
          op.getCoordinate() && keys > static_cast<int64_t>(op.getPrefix()) + q[1],
          !cache && keys <= static_cast<int64_t>(op.getPrefix()),
          op.getCoordinate() && keys <= static_cast<int64_t>(op.getPrefix()) + q[1],
          context.gpu && token.isBF16() && q[3] <= 128,
          /*wide=*/false,
          token,
          computeType(token),
          op.getScale().convertToDouble() >= kLeastLateScale && context.gpu && token.isBF16() && q[3] <= 128};
}

/// Of `rows` rows of `heads` heads each: whether programs that own twice the rows still fill a GPU's multiprocessors, and what passes by them can be
/// copied in boxes: it is as large as a tile, and no row is there that is not to be read.
template <typename Op>
bool isWide(Op op, const AttentionShape &shape, int64_t rows, int64_t heads, const OutlineContext &context) {
  constexpr int64_t fill = 128, boxColumns = 64;
  Shape q = shapeOf(op.getQ()), keys = shapeOf(op.getK());
  int64_t tile = shape.tileRows();
  return context.boxes && shape.branches && !shape.cache && shape.size >= boxColumns && shape.size % 16 == 0 &&
         op.keyCount() == keys[1] && q[1] >= tile && keys[1] >= 2 * tile &&
         ceilDiv(rows, 2 * tile) * heads * q[0] >= fill;
}

/// How many programs share the keys of a token and group: enough for two on each of a GPU's multiprocessors, none of them
/// with less than some blocks of a full cache.
int64_t decodeParts(int64_t programs, int64_t rows) {
  int64_t most = std::min<int64_t>(32, rows / (4 * kDecodeKeys)), parts = 1;
  while (parts * 2 <= most && parts * programs < 256)
    parts *= 2;
  return parts;
}

LogicalResult outlineCausal(AttnCausalOp op, OutlineContext &context) {
  AttentionShape shape = shapeOfOp(op, context, op.getCache(), op.getRing());
  int64_t batch = shapeOf(op.getQ())[0], tokens = shapeOf(op.getQ())[1];
  shape.wide = isWide(op, shape, tokens, shape.heads, context);
  bool decode = tokens == 1;
  int64_t parts = decode && shape.cache && context.gpu ? decodeParts(shape.groups * batch, shapeOf(op.getK())[1]) : 1;
  std::string kernel =
      parts > 1 ? context.kernel(shape.kernelName("decode") + "_parts" + std::to_string(parts),
                                 {"group", "batch", "part"}, [&](KernelBuilder &k) { writeDecode(k, shape, parts); })
      : decode  ? context.kernel(shape.kernelName("decode"), {"group", "batch"},
                                 [&](KernelBuilder &k) { writeDecode(k, shape, 1); })
                : context.kernel(shape.kernelName("causal"), {"rows", "head", "batch"}, [&](KernelBuilder &k) {
                   writeForward(k, shape);
                   if (shape.wide)
                     k.inBoxes();
                   shape.round(k);
                  });
  llvm::SmallVector<int64_t, 3> grid{shape.groups, batch};
  if (parts > 1)
    grid.push_back(parts);
  if (!decode)
    grid = {ceilDiv(tokens, shape.ownRows()), shape.heads, batch};
  auto launch = context.launch(op, kernel, grid);
  launch.arg("q", op.getQ()).arg("k", op.getK()).arg("v", op.getV()).arg("documents", op.getDocuments());
  if (op.getCoordinate())
    launch.arg("coordinate", op.getCoordinate());
  if (parts == 1)
    launch.result("o", op.getO().getType()).result("lse", op.getLse().getType());
  else
    launch.result("o", RankedTensorType::get({parts, batch, shape.heads, shape.size}, shape.compute))
        .result("m_l", RankedTensorType::get({parts, 2, batch, shape.heads}, shape.compute));
  launch.scalar("scale", op.getScale().convertToDouble(), shape.compute);
  if (!shape.cache)
    launch.index("keys", op.keyCount()).index("prefix", shape.prefix);
  auto made = launch.run();
  if (parts > 1) {
    AttentionShape all{shape.heads, shape.groups, shape.size, 0,     0,     false,       false,
                       false,       false,        false,      false, false, shape.token, shape.compute};
    std::string merge = context.kernel(all.kernelName("decode_merge") + "_parts" + std::to_string(parts),
                                       {"head", "batch"}, [&](KernelBuilder &k) { writeDecodeMerge(k, all, parts); });
    made = context.launch(op, merge, {shape.heads, batch})
               .arg("o_part", made[0])
               .arg("m_l", made[1])
               .result("o", op.getO().getType())
               .result("lse", op.getLse().getType())
               .run();
  }
  context.replace(op, made);
  return success();
}

LogicalResult outlineCausalGrad(AttnCausalGradOp op, OutlineContext &context) {
  AttentionShape shape = shapeOfOp(op, context, /*cache=*/false);
  int64_t batch = shapeOf(op.getQ())[0], tokens = shapeOf(op.getQ())[1], keys = op.keyCount();
  auto begin = [&](llvm::StringRef what, llvm::StringRef rows, void (*write)(KernelBuilder &, const AttentionShape &),
                   llvm::ArrayRef<int64_t> grid) {
    std::string kernel = context.kernel(shape.kernelName(what), {rows, "head", "batch"}, [&](KernelBuilder &k) {
      write(k, shape);
      if (shape.wide)
        k.inBoxes();
      shape.round(k);
    });
    auto launch = context.launch(op, kernel, grid);
    launch.arg("q", op.getQ()).arg("k", op.getK()).arg("v", op.getV()).arg("documents", op.getDocuments());
    launch.arg("lse", op.getLse()).arg("d_o", op.getDO());
    if (op.getCoordinate())
      launch.arg("coordinate", op.getCoordinate());
    launch.scalar("scale", op.getScale().convertToDouble(), shape.compute).index("keys", keys);
    launch.index("prefix", shape.prefix);
    return launch;
  };
  shape.wide = isWide(op, shape, tokens, shape.heads, context);
  auto queries = begin("grad_q", "rows", writeGradQueries, {ceilDiv(tokens, shape.ownRows()), shape.heads, batch});
  queries.arg("o", op.getO()).result("dq", op.getDq().getType()).result("delta", op.getLse().getType());
  auto dqDelta = queries.run();
  shape.wide = isWide(op, shape, keys, shape.groups, context);
  shape.gradients = tensorType(op.getDk()).getElementType();
  shape.adds = !op.getSums().empty();
  std::string what = "grad_kv";
  if (shape.gradients != shape.token)
    what += "_" + typeName(shape.gradients);
  if (shape.adds)
    what += "_sum";
  auto keyed = begin(what, "keys", writeGradKeys, {ceilDiv(keys, shape.ownRows()), shape.groups, batch});
  keyed.arg("delta", dqDelta[1]);
  if (shape.adds)
    keyed.arg("dk_sum", op.getSums()[0]).arg("dv_sum", op.getSums()[1]);
  keyed.result("dk", op.getDk().getType(), shape.adds ? "dk_sum" : "");
  keyed.result("dv", op.getDv().getType(), shape.adds ? "dv_sum" : "");
  auto dkv = keyed.run();
  context.replace(op, {dqDelta[0], dkv[0], dkv[1]});
  return success();
}

LogicalResult outlineMerge(AttnMergeOp op, OutlineContext &context) {
  Shape o = shapeOf(op.getO());
  Type token = tensorType(op.getO()).getElementType();
  AttentionShape shape{o[2],  o[2],  o[3],  0,     0,     false, false,
                       false, false, false, false, false, token, computeType(token)};
  std::string kernel = context.kernel(shape.kernelName("merge"), {"rows", "head", "batch"},
                                      [&](KernelBuilder &k) { writeMerge(k, shape); });
  auto launch = context.launch(op, kernel, {ceilDiv(o[1], shape.tileRows()), o[2], o[0]});
  launch.arg("o", op.getO()).arg("lse", op.getLse());
  launch.arg("o_block", op.getOBlock()).arg("lse_block", op.getLseBlock());
  launch.result("o_both", op.getO().getType(), "o").result("lse_both", op.getLse().getType(), "lse");
  context.replace(op, launch.run());
  return success();
}

LogicalResult outlineAppend(AttnAppendOp op, OutlineContext &context) {
  Shape x = shapeOf(op.getX());
  Type element = tensorType(op.getX()).getElementType();
  std::string kernel = context.kernel(
      llvm::formatv("attn_append_g{0}_d{1}_{2}{3}", x[2], x[3], typeName(element), op.getRing() ? "_ring" : "").str(),
      {"token", "batch"}, [&](KernelBuilder &k) { writeAppend(k, element, x[2], x[3], op.getRing()); });
  auto launch = context.launch(op, kernel, {x[1], x[0]});
  launch.arg("cache", op.getCache()).arg("x", op.getX()).arg("documents", op.getDocuments());
  context.replace(op, launch.result("result", op.getResult().getType(), "cache").run());
  return success();
}

} // namespace

LogicalResult outlineAttention(Operation *op, OutlineContext &context) {
  return llvm::TypeSwitch<Operation *, LogicalResult>(op)
      .Case([&](AttnCausalOp causal) { return outlineCausal(causal, context); })
      .Case([&](AttnCausalGradOp grad) { return outlineCausalGrad(grad, context); })
      .Case([&](AttnMergeOp merge) { return outlineMerge(merge, context); })
      .Case([&](AttnAppendOp append) { return outlineAppend(append, context); });
}

} // namespace braid
