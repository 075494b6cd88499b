//===- LsmOutputKernels.cpp - outputs where the state is: one walk over the chunks of a row -------------------------===//
//
//   O = scale ((Q exp(c)) M + S V),  S_ij = q_i k_j^T exp(c_i - c_j), j <= i;  then  M <- exp(c_C) M + (K exp(c_C - c))^T V
//
// lsm.state_walk writes a state for every chunk, which lsm.chunk_output reads: K x V numbers for C tokens, and tokens twice. A program that has all keys
// and a block of values of a head's state in registers makes that block of outputs beside it: q, k, v are read once for every block, o written once, and no state
// but the last. Everything is turned, the state M^T [values, keys]: its rows do not meet, so each warp has 16 of them, M^T rounded is the left operand of
// (Q M)^T = M^T Q^T from where it is, and q and k are multiplied as they lie in memory, decays of numbers being those of outputs and values. Scores have as many
// rows as there are values, those of the same warps, and pass through shared memory, for all tokens are multiplied by them (lower/ThreadRows.cpp).
//
// Log decays of tokens are added up in f32, those below -128 as -128, whose exponential is 0 as well. So a sum stays above -16384, where f32 has steps of 2^-10: at worst
// an exponent is off by a thousandth, a quarter of a rounding to bf16.
//
// Segments of a row side by side: as in LsmWalkKernels.cpp.
//
//===-------------------------------------------------------------------------------------------------------------===//
#include "passes/outline/LsmKernels.h"

using namespace mlir;

namespace braid {

namespace {

constexpr double kSilent = -128;

/// Programs (block of values of a segment, head, batch).
struct OutputWalkKernel {
  OutputWalkKernel(KernelBuilder &k, const LsmShape &shape)
      : k(k), shape(shape), h(k.program(1)), b(k.program(2)), C(shape.chunk), K(shape.keys), VB(shape.valueBlock()) {
    auto blocks = static_cast<double>(shape.valueBlocks());
    segment = k.program(0) / blocks;
    firstValue = k.program(0) % blocks * static_cast<double>(VB);
  }

  void write() {
    LsmBuffers in(k, shape);
    queriesIn = in.keys("q");
    keysIn = in.keys("k");
    valuesIn = in.values("v");
    decayIn = in.logDecay();
    chunks = in.chunks();
    Var initial = in.rowState("initial_state"), x, p;
    if (shape.segments > 1) {
      x = in.segments("x");
      p = in.factorsOfKeys("p");
    }
    o = in.values("o");
    Var final = in.rowState("final_state");
    scale = k.scalar("scale", shape.compute);
    ChunkRows table{k, chunks, b};
    Var used = table.used();
    Var begin = transpose(cast(k.load(initial, {b, h, 0, firstValue}, {K, VB}), shape.compute));
    if (x)
      begin = k.loop(0, segment, 1, {begin}, [&](Var j, llvm::ArrayRef<Var> now) -> Vars {
        Var all = expand(cast(k.load(p, {j, b, h, 0}, {K}), shape.compute), 0, VB);
        Var left = transpose(cast(k.load(x, {j, b, h, 0, firstValue}, {K, VB}), shape.compute));
        return {select(eq(all, 0.0), left, now[0] * all + left)};
      })[0];
    Vars end = table.walk(table.segment(used, segment, shape.segments), {begin}, {},
                          [&](const ChunkRows::Step &at) -> Vars { return {next(at.n, at.now[0])}; });
    AccessOptions last; // segment: no rows of the others are there
    if (x)
      last.limit = select(eq(segment, static_cast<double>(shape.segments - 1)), k.number(K), 0.0);
    k.store(cast(transpose(end[0]), final.element()), final, {b, h, 0, firstValue}, last);
    // Rows of the table behind the last chunk stand for padding.
    k.loop(used + segment, k.size(chunks, 1), shape.segments, [&](Var n) {
      Var lo = edge(n, 0), hi = min(lo + static_cast<double>(C), k.size(o, 1));
      k.store(k.tile({C, VB}, o.element()), o, {b, lo, h, firstValue}, {.limit = hi, .dims = {1, 3}});
    });
  }

private:
  Var edge(Var n, int64_t which) { return cast(k.at(chunks, {b, n, which}), k.builder.getIndexType()); }
  Var tokens(Var buffer, Var lo, Var hi, Index first, int64_t width) {
    return cast(k.load(buffer, {b, lo, h, first}, {C, width}, {.limit = hi, .dims = {1, 3}}), shape.compute);
  }

  /// Exponents c_i of a chunk for outputs, and for the columns of scores; for the rows of scores; c_C - c_i for values; and exp(c_C).
  struct Decays {
    Var ofOutputs, ofScores, toEnd, across;
  };
  Decays decays(Var lo, Var hi) {
    if (!shape.decays())
      return {};
    if (shape.constantDecay()) { // as often as there are tokens: no sum
      Var g = cast(k.at(decayIn, {h}), shape.compute), length = cast(cast(hi - lo, k.i32()), shape.compute);
      auto sums = [&](Shape tile, int64_t axis) {
        return min(cast(k.iota(tile, axis) + 1.0, shape.compute), splat(length, tile)) * g;
      };
      Var left = max(splat(length - 1.0, {C, VB}) - cast(k.iota({C, VB}, 0), shape.compute), 0.0);
      return {sums({VB, C}, 1), sums({C, C}, 0), left * g, exp(length * g)};
    }
    Var g = cast(k.load(decayIn, {b, lo, h}, {C}, {.limit = hi, .dims = {1}}), shape.compute);
    Var c = cumsum(expand(select(lt(g, kSilent), kSilent, g), 1, VB)), ofOutputs = transpose(c);
    Var total = row(c, k.number(C - 1));
    return {ofOutputs, expand(diagonal(ofOutputs), 1, C), expand(total, 0, C) - c, expand(exp(total), 1, K)};
  }

  /// Stores the outputs of chunk n; the state behind it.
  Var next(Var n, Var state) {
    Var lo = edge(n, 0), hi = edge(n, 1);
    Var queries = tokens(queriesIn, lo, hi, 0, K), keys = tokens(keysIn, lo, hi, 0, K),
        values = tokens(valuesIn, lo, hi, firstValue, VB);
    Decays c = decays(lo, hi);
    // Scores are handed on before all warps need them, beside (Q M)^T; O is computed beside what the state is made of, and that beside the store.
    Var scores = dotTB(queries, keys);
    if (shape.decays()) // where they are not of the triangle pairs grow, and are replaced
      scores = scores * exp(c.ofScores - c.ofOutputs);
    scores = mask(scores, tile::Keep::lower);
    Var out = dotTB(state, queries);
    if (shape.decays())
      out = out * exp(c.ofOutputs);
    out = dot(values, scores, out, {.transposeA = true, .transposeB = true});
    Var left = shape.decays() ? values * exp(c.toEnd) : values, kept = shape.decays() ? state * c.across : state;
    Var after = dotTA(left, keys, kept);
    k.store(cast(transpose(out * scale), o.element()), o, {b, lo, h, firstValue}, {.limit = hi, .dims = {1, 3}});
    return after;
  }

  KernelBuilder &k;
  const LsmShape &shape;
  Var h, b;
  int64_t C, K, VB;
  Var segment, firstValue, queriesIn, keysIn, valuesIn, decayIn, chunks, o, scale;
};

} // namespace

void writeOutputWalk(KernelBuilder &k, const LsmShape &shape) { OutputWalkKernel(k, shape).write(); }

} // namespace braid
