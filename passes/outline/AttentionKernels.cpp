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
  Type token, compute;
  int64_t perGroup() const { return heads / groups; }
  std::string kernelName(llvm::StringRef what) const {
    std::string name = llvm::formatv("attn_{0}_h{1}_g{2}_d{3}_{4}", what, heads, groups, size, typeName(token));
    if (window)
      name += llvm::formatv("_w{0}", window);
    return name + (ring ? "_ring" : cache ? "_cache" : "");
  }
};

/// Scores start here: finite, so that exp(m - m') of an empty row is exp(0), never NaN.
constexpr double kLowest = -1e30;
constexpr int64_t kQueryRows = 32, kKeyRows = 64, kGradRows = 32;

/// What the kernels share: parameters, intervals, masked scores.
class Attention {
public:
  Attention(KernelBuilder &k, const AttentionShape &shape) : k(k), shape(shape) {}

  Var queries(llvm::StringRef name) {
    return k.buffer(name, shape.token, {kDynamic, kDynamic, shape.heads, shape.size});
  }
  Var keys(llvm::StringRef name) { return k.buffer(name, shape.token, {kDynamic, kDynamic, shape.groups, shape.size}); }
  Var rowNumbers(llvm::StringRef name) { return k.buffer(name, shape.compute, {kDynamic, shape.heads, kDynamic}); }
  Var index(Var number) { return cast(number, k.builder.getIndexType()); }

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
    }
    if (shape.window)
      first = max(first, last - static_cast<double>(shape.window - 1));
    last = select(padding, -1.0, last);
    if (live)
      last = select(live, last, -1.0);
    return {first, last};
  }
  /// Of query rows [t0, t0 + count); rows at or past T have no keys.
  Interval rowIntervals(Var documents, Var b, Var t0, int64_t count) {
    Var tokens = k.size(documents, 1);
    Var document = k.load(documents, {b, t0}, {count}, {.limit = tokens, .dims = {1}});
    Var token = k.iota({count}, 0) + cast(t0, k.i32());
    return interval(document, token, lt(token, cast(tokens, k.i32())));
  }
  /// Whether key s0 + column is one of the row's, [rows, count].
  Var visible(const Interval &keys, Var s0, int64_t count) {
    int64_t rows = keys.first.dim(0);
    Var s = k.iota({rows, count}, 1) + cast(s0, k.i32());
    return both(ge(s, expand(keys.first, 1, count)), le(s, expand(keys.last, 1, count)));
  }
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
  void storeRows(Var tile, Var buffer, Var b, Var first, Var h) {
    k.store(cast(tile, buffer.element()), buffer, {b, first, h, 0}, {.limit = k.size(buffer, 1), .dims = {1, 3}});
  }

  /// Online softmax of `q` [rows, D], already scaled, over its keys of group g. Result: o and lse.
  std::pair<Var, Var> attend(Var q, const Interval &seen, Var keyBuffer, Var valueBuffer, Var b, Var g, int64_t block) {
    int64_t rows = q.dim(0), D = shape.size;
    auto [lo, end] = range(seen);
    Var hi = shape.ring ? end : min(end, k.size(keyBuffer, 1));
    Vars out = k.loop(
        lo, hi, block,
        {k.tile({rows}, shape.compute, kLowest), k.tile({rows}, shape.compute), k.tile({rows, D}, shape.compute)},
        [&](Var s0, llvm::ArrayRef<Var> now) -> Vars {
          Var ks = loadKeys(keyBuffer, b, s0, g, block, hi), vs = loadKeys(valueBuffer, b, s0, g, block, hi);
          Var live = visible(seen, s0, block);
          Var scores = select(live, dotTB(q, ks), kLowest);
          Var highest = max(now[0], maximum(scores, 1));
          Var p = select(live, exp(scores - expand(highest, 1, block)), 0.0);
          Var keep = exp(now[0] - highest);
          return {highest, now[1] * keep + sum(p, 1), dot(p, vs, now[2] * expand(keep, 1, D))};
        });
    Var empty = le(out[1], 0.0), total = select(empty, 1.0, out[1]);
    Var lse = select(empty, 0.0, out[0] + log(total));
    return {out[2] * expand(1.0 / total, 1, D), lse};
  }

  KernelBuilder &k;
  const AttentionShape &shape;
  Var prefix; ///< set by kernels that have it as a parameter
};

//===- Forward ----------------------------------------------------------------------------------------------------===//

/// Program (block of query rows, head, batch).
void writeForward(KernelBuilder &k, const AttentionShape &shape) {
  Attention a(k, shape);
  Var q = a.queries("q"), keys = a.keys("k"), values = a.keys("v"),
      documents = k.buffer("documents", k.i32(), {kDynamic, kDynamic});
  Var o = a.queries("o"), lse = a.rowNumbers("lse"), scale = k.scalar("scale", shape.compute);
  if (!shape.cache)
    a.prefix = k.index("prefix");
  Var t0 = k.program(0) * static_cast<double>(kQueryRows), h = k.program(1), b = k.program(2);
  Var tokens = k.size(q, 1);
  Var queries = a.loadRows(q, b, t0, h, kQueryRows, tokens) * scale;
  auto seen = a.rowIntervals(documents, b, t0, kQueryRows);
  auto [out, sums] = a.attend(queries, seen, keys, values, b, h / static_cast<double>(shape.perGroup()), kKeyRows);
  a.storeRows(out, o, b, t0, h);
  k.store(cast(sums, lse.element()), lse, {b, h, t0}, {.limit = tokens, .dims = {2}});
}

/// One token: the rows are the heads of a group, so that every key is read once. Program (group, batch).
void writeDecode(KernelBuilder &k, const AttentionShape &shape) {
  Attention a(k, shape);
  Var q = a.queries("q"), keys = a.keys("k"), values = a.keys("v"),
      documents = k.buffer("documents", k.i32(), {kDynamic, kDynamic});
  Var o = a.queries("o"), lse = a.rowNumbers("lse"), scale = k.scalar("scale", shape.compute);
  if (!shape.cache)
    a.prefix = k.index("prefix");
  int64_t rows = shape.perGroup();
  Var g = k.program(0), b = k.program(1), h = g * static_cast<double>(rows);
  Var queries = cast(k.load(q, {b, 0, h, 0}, {rows, shape.size}), shape.compute) * scale;
  auto one = a.interval(k.at(documents, {b, 0}), k.constant(k.i32(), 0));
  Attention::Interval seen{splat(one.first, {rows}), splat(one.last, {rows})};
  auto [out, sums] = a.attend(queries, seen, keys, values, b, g, kKeyRows);
  k.store(cast(out, o.element()), o, {b, 0, h, 0});
  k.store(cast(sums, lse.element()), lse, {b, h, 0}, {.dims = {1}});
}

//===- Backward ---------------------------------------------------------------------------------------------------===//

/// One pair of tiles: P and dS.
struct GradTiles {
  Var p, ds;
};
GradTiles gradTiles(Attention &a, Var q, Var d, Var lse, Var delta, Var ks, Var vs, Var live, Var scale) {
  int64_t columns = ks.dim(0);
  // Rows and keys that do not meet are selected, not multiplied: exp may overflow there.
  Var exponent = select(live, dotTB(q, ks) - expand(lse, 1, columns), kLowest);
  Var p = exp(exponent);
  return {p, p * (dotTB(d, vs) - expand(delta, 1, columns)) * scale};
}

struct GradBuffers {
  explicit GradBuffers(Attention &a)
      : q(a.queries("q")), keys(a.keys("k")), values(a.keys("v")),
        documents(a.k.buffer("documents", a.k.i32(), {kDynamic, kDynamic})), o(a.queries("o")),
        lse(a.rowNumbers("lse")), d(a.queries("d_o")) {}
  Var q, keys, values, documents, o, lse, d;
};

/// dq: program (block of query rows, head, batch).
void writeGradQueries(KernelBuilder &k, const AttentionShape &shape) {
  Attention a(k, shape);
  GradBuffers in(a);
  Var dq = a.queries("dq"), scale = k.scalar("scale", shape.compute);
  a.prefix = k.index("prefix");
  Var t0 = k.program(0) * static_cast<double>(kGradRows), h = k.program(1), b = k.program(2);
  Var tokens = k.size(in.q, 1), g = h / static_cast<double>(shape.perGroup());
  Var queries = a.loadRows(in.q, b, t0, h, kGradRows, tokens) * scale,
      d = a.loadRows(in.d, b, t0, h, kGradRows, tokens);
  Var delta = sum(d * a.loadRows(in.o, b, t0, h, kGradRows, tokens), 1);
  Var lse = k.load(in.lse, {b, h, t0}, {kGradRows}, {.limit = tokens, .dims = {2}});
  auto seen = a.rowIntervals(in.documents, b, t0, kGradRows);
  auto [lo, hi] = a.range(seen);
  Vars out = k.loop(lo, hi, kKeyRows, {k.tile({kGradRows, shape.size}, shape.compute)},
                    [&, hi = hi](Var s0, llvm::ArrayRef<Var> now) -> Vars {
                      Var ks = a.loadRows(in.keys, b, s0, g, kKeyRows, hi),
                          vs = a.loadRows(in.values, b, s0, g, kKeyRows, hi);
                      auto tiles = gradTiles(a, queries, d, lse, delta, ks, vs, a.visible(seen, s0, kKeyRows), scale);
                      return {dot(tiles.ds, ks, now[0])};
                    });
  a.storeRows(out[0], dq, b, t0, h);
}

/// dk, dv: program (block of keys, key head, batch); the group's heads and their query blocks in order.
void writeGradKeys(KernelBuilder &k, const AttentionShape &shape) {
  Attention a(k, shape);
  GradBuffers in(a);
  Var dk = a.keys("dk"), dv = a.keys("dv"), scale = k.scalar("scale", shape.compute);
  a.prefix = k.index("prefix");
  int64_t R = kGradRows, D = shape.size;
  Var s0 = k.program(0) * static_cast<double>(R), g = k.program(1), b = k.program(2);
  Var tokens = k.size(in.q, 1), keyCount = k.size(in.keys, 1);
  Var ks = a.loadRows(in.keys, b, s0, g, R, keyCount), vs = a.loadRows(in.values, b, s0, g, R, keyCount);
  // Query t sees a key of the block only if t + prefix >= s0, and t + prefix - window < s0 + R. Documents begin in
  // ascending order: blocks of queries end where the first row's document begins past the block.
  Var firstQuery = max(s0 - a.prefix, 0.0), endQuery = tokens;
  if (shape.window)
    endQuery = min(endQuery, max(s0 + static_cast<double>(R - 1 + shape.window) - a.prefix, 0.0));
  Var lastKey = cast(s0 + static_cast<double>(R - 1) - a.prefix, k.i32());
  Var blocks = k.loop(firstQuery, endQuery, R, {k.number(0)}, [&](Var t0, llvm::ArrayRef<Var> now) -> Vars {
    return {select(le(k.at(in.documents, {b, t0}), lastKey), now[0] + 1.0, now[0])};
  })[0];
  Vars out =
      k.loop(0, shape.perGroup(), 1, {k.tile({R, D}, shape.compute), k.tile({R, D}, shape.compute)},
             [&](Var member, llvm::ArrayRef<Var> sums) -> Vars {
               Var h = g * static_cast<double>(shape.perGroup()) + member;
               return k.loop(0, blocks, 1, sums, [&](Var block, llvm::ArrayRef<Var> now) -> Vars {
                 Var t0 = firstQuery + block * static_cast<double>(R);
                 Var queries = a.loadRows(in.q, b, t0, h, R, tokens) * scale, d = a.loadRows(in.d, b, t0, h, R, tokens);
                 Var delta = sum(d * a.loadRows(in.o, b, t0, h, R, tokens), 1);
                 Var lse = k.load(in.lse, {b, h, t0}, {R}, {.limit = tokens, .dims = {2}});
                 auto seen = a.rowIntervals(in.documents, b, t0, R);
                 // q carries the scale once already.
                 auto tiles =
                     gradTiles(a, queries, d, lse, delta, ks, vs, a.visible(seen, s0, R), k.constant(shape.compute, 1));
                 return {dotTA(tiles.ds, queries, now[0]), dotTA(tiles.p, d, now[1])};
               });
             });
  a.storeRows(out[0], dk, b, s0, g);
  a.storeRows(out[1], dv, b, s0, g);
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

template <typename Op> AttentionShape shapeOfOp(Op op, bool cache, bool ring = false) {
  Shape q = shapeOf(op.getQ()), keys = shapeOf(op.getK());
  Type token = tensorType(op.getQ()).getElementType();
  return {q[2],
          keys[2],
          q[3],
          static_cast<int64_t>(op.getWindow()),
          static_cast<int64_t>(op.getPrefix()),
          cache,
          ring,
          token,
          computeType(token)};
}

LogicalResult outlineCausal(AttnCausalOp op, OutlineContext &context) {
  AttentionShape shape = shapeOfOp(op, op.getCache(), op.getRing());
  int64_t batch = shapeOf(op.getQ())[0], tokens = shapeOf(op.getQ())[1];
  bool decode = tokens == 1;
  std::string kernel = decode ? context.kernel(shape.kernelName("decode"), {"group", "batch"},
                                               [&](KernelBuilder &k) { writeDecode(k, shape); })
                              : context.kernel(shape.kernelName("causal"), {"rows", "head", "batch"},
                                               [&](KernelBuilder &k) { writeForward(k, shape); });
  llvm::SmallVector<int64_t, 3> grid{shape.groups, batch};
  if (!decode)
    grid = {ceilDiv(tokens, kQueryRows), shape.heads, batch};
  auto launch = context.launch(op, kernel, grid);
  launch.arg("q", op.getQ()).arg("k", op.getK()).arg("v", op.getV()).arg("documents", op.getDocuments());
  launch.result("o", op.getO().getType()).result("lse", op.getLse().getType());
  launch.scalar("scale", op.getScale().convertToDouble(), shape.compute);
  if (!shape.cache)
    launch.index("prefix", shape.prefix);
  context.replace(op, launch.run());
  return success();
}

LogicalResult outlineCausalGrad(AttnCausalGradOp op, OutlineContext &context) {
  AttentionShape shape = shapeOfOp(op, /*cache=*/false);
  int64_t batch = shapeOf(op.getQ())[0], tokens = shapeOf(op.getQ())[1], keys = shapeOf(op.getK())[1];
  auto begin = [&](llvm::StringRef what, llvm::StringRef rows, void (*write)(KernelBuilder &, const AttentionShape &),
                   llvm::ArrayRef<int64_t> grid) {
    std::string kernel =
        context.kernel(shape.kernelName(what), {rows, "head", "batch"}, [&](KernelBuilder &k) { write(k, shape); });
    auto launch = context.launch(op, kernel, grid);
    launch.arg("q", op.getQ()).arg("k", op.getK()).arg("v", op.getV()).arg("documents", op.getDocuments());
    launch.arg("o", op.getO()).arg("lse", op.getLse()).arg("d_o", op.getDO());
    launch.scalar("scale", op.getScale().convertToDouble(), shape.compute).index("prefix", shape.prefix);
    return launch;
  };
  auto queries = begin("grad_q", "rows", writeGradQueries, {ceilDiv(tokens, kGradRows), shape.heads, batch});
  Value dq = queries.result("dq", op.getDq().getType()).run()[0];
  auto keyed = begin("grad_kv", "keys", writeGradKeys, {ceilDiv(keys, kGradRows), shape.groups, batch});
  auto dkv = keyed.result("dk", op.getDk().getType()).result("dv", op.getDv().getType()).run();
  context.replace(op, {dq, dkv[0], dkv[1]});
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
      .Case([&](AttnAppendOp append) { return outlineAppend(append, context); });
}

} // namespace braid
