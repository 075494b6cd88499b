//===- LsmOutputKernels.cpp - outputs where the state is: one walk over the chunks of a row -------------------------===//
//
//   O = scale ((Q exp(c)) M + S V),  S_ij = q_i k_j^T exp(c_i - c_j), j <= i;  then  M <- exp(c_C) M + (K exp(c_C - c))^T V
//   H, GH  U = T (V - exp(c) K M) in the place of V, T = (I + A)^-1 diag(beta) of lsm.chunk_inverse
//   VH     X = V - keys M,  O = queries M + scores X,  M <- decay M + write^T X, by the factors of lsm.chunk_walk_factors
//
// lsm.state_walk writes a state for every chunk, which lsm.chunk_output reads: K x V numbers for C tokens, and tokens twice. A program that has all keys
// and a block of values of a head's state in registers makes that block of outputs beside it: q, k, v are read once for every block, o written once, and no state
// but the last. Everything is turned, the state M^T [values, keys]: its rows do not meet, so each warp has 16 of them, M^T rounded is the left operand of
// (Q M)^T = M^T Q^T from where it is, and q and k are multiplied as they lie in memory, decays of numbers being those of outputs and values. Scores have as many
// rows as there are values, those of the same warps, and pass through shared memory, for all tokens are multiplied by them (lower/ThreadRows.cpp).
//
// Log decays of tokens are added up in f32: kSilentLogDecay.
//
// Decays of key channels (V) have to be those of q and k. With r = c_C / 2, channel by channel, no exponent of
//
//   Q~ = Q exp(c - r),  K~ = K exp(r - c):   S = Q~ K~^T,  O = scale (Q~ (exp(r) M) + S V),  M <- exp(r) (exp(r) M + K~^T V)
//
// is above 80 where no channel of a chunk decays below exp(-160): f32 and bf16 reach exp(88). Both are made in the registers of warps that have channels, 16 each of a block of
// as many as there are warps for, in which running sums lie along the columns, and handed on to all warps turned as they are. What is carried is M without the last exp(r), so that
// state and factors, which pass through shared memory too, are multiplied once a chunk.
//
// Where some chunk of a program decays by more, which it knows at its end, it walks again, in parts of 16 tokens, in which log decays below -10 are -10: of what was there
// 5e-5 are left then, a fortieth of what bf16 rounds. So any decays are right, strong ones slower.
//
// A delta rule's walk waits for three products of a chunk, one behind the other: K M, T times what is left of V, U and the keys. Scores and Q M, which wait for none of these,
// are multiplied beside them, outputs beside the next state. Products of T by K and V of all chunks at once (lsm.chunk_factors) would leave one product less to wait
// for, and 48 KB of a chunk of 64 tokens and 128 x 128 to write and to read where T is 8. Sums of decays, and exponentials of them, lie in memory too: a thread has
// registers for the state, its rounded rows and two more sums, and for little else.
//
// Under decays of channels (VH) such a walk would decay three tiles of tokens by keys, and have a second way for strong decays. Both are left to who makes factors: rows come
// decayed, and T stands in what reads and writes, so that a walk has four products, of which two wait for each other, and nothing to hand on. 64 tokens of 128 x 128 are 65 KB to read:
// one block a multiprocessor, with three iterations on their way.
//
// Segments of a row side by side: as in LsmWalkKernels.cpp. Those of delta rules would be matrices: they have none.
//
//===-------------------------------------------------------------------------------------------------------------===//
#include "passes/outline/LsmKernels.h"

using namespace mlir;

namespace braid {

namespace {

/// Decays of channels: what a chunk's may span, in units of e, and tokens of a part, whose decays, each no less than `kSilentOfPart`, never span more.
constexpr double kMostSpan = 160, kSilentOfPart = -10;
constexpr int64_t kPartTokens = 16;

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
    if (byFactors()) {
      queriesIn = in.rowsOfChunks("queries");
      keysIn = in.rowsOfChunks("keys");
      writeIn = in.rowsOfChunks("write");
      scoresIn = in.scoresOfChunks();
      decayIn = in.decayOfChunks();
      valuesIn = in.values("v");
    } else {
      queriesIn = in.keys("q");
      keysIn = in.keys("k");
      valuesIn = in.values("v");
      if (!shape.delta())
        decayIn = in.logDecay();
      inverseIn = in.inverse();
      sumsIn = in.sums();
    }
    chunks = in.chunks();
    Var initial = in.rowState("initial_state"), x, p;
    if (shape.segments > 1) {
      x = in.segments("x");
      p = in.factorsOfKeys("p");
    }
    o = in.values("o");
    Var final = in.rowState("final_state");
    if (!byFactors()) // which have it
      scale = k.scalar("scale", shape.compute);
    ChunkRows table{k, chunks, b};
    Var used = table.used();
    ChunkRows::Range range = table.segment(used, segment, shape.segments);
    // Channels [first, first + width) of the state in front of the segment, if `wanted`.
    auto begin = [&](int64_t first, int64_t width, Var wanted = {}) {
      AccessOptions rows;
      if (wanted)
        rows.limit = select(wanted, k.number(K), 0.0);
      Var state = transpose(cast(k.load(initial, {b, h, first, firstValue}, {width, VB}, rows), shape.compute));
      if (!x)
        return state;
      Var others = wanted ? select(wanted, segment, 0.0) : segment;
      return k.loop(0, others, 1, {state}, [&](Var j, llvm::ArrayRef<Var> now) -> Vars {
        Var all = expand(cast(k.load(p, {j, b, h, first}, {width}), shape.compute), 0, VB);
        Var left = transpose(cast(k.load(x, {j, b, h, first, firstValue}, {width, VB}), shape.compute));
        return {select(eq(all, 0.0), left, now[0] * all + left)};
      })[0];
    };
    AccessOptions last; // segment: no rows of the others are there
    if (x)
      last.limit = select(eq(segment, static_cast<double>(shape.segments - 1)), k.number(K), 0.0);
    Vars end;
    if (shape.vectorDecay() && !byFactors())
      end = walkChannels(table, range, begin);
    else
      end = table.walk(range, {begin(0, K)}, {},
                       [&](const ChunkRows::Step &at) -> Vars { return {next(at.n, at.now[0])}; });
    int64_t width = K / static_cast<int64_t>(end.size());
    for (auto [i, state] : llvm::enumerate(end))
      k.store(cast(transpose(state), final.element()), final, {b, h, static_cast<int64_t>(i) * width, firstValue},
              last);
    // Rows of the table behind the last chunk stand for padding.
    k.loop(used + segment, k.size(chunks, 1), shape.segments, [&](Var n) {
      Var lo = edge(n, 0), hi = min(lo + static_cast<double>(C), k.size(o, 1));
      k.store(k.tile({C, VB}, o.element()), o, {b, lo, h, firstValue}, {.limit = hi, .dims = {1, 3}});
    });
  }

private:
  bool byFactors() const { return shape.traits().walksByFactors(); }
  Var edge(Var n, int64_t which) { return cast(k.at(chunks, {b, n, which}), k.builder.getIndexType()); }
  Var rowsOf(Var buffer, Var lo, Var hi, Index first, int64_t width) {
    return k.load(buffer, {b, lo, h, first}, {C, width}, {.limit = hi, .dims = {1, 3}});
  }
  Var tokens(Var buffer, Var lo, Var hi, Index first, int64_t width) {
    return cast(rowsOf(buffer, lo, hi, first, width), shape.compute);
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
    Var c = cumsum(expand(select(lt(g, kSilentLogDecay), kSilentLogDecay, g), 1, VB)), ofOutputs = transpose(c);
    Var total = row(c, k.number(C - 1));
    return {ofOutputs, expand(diagonal(ofOutputs), 1, C), expand(total, 0, C) - c, expand(exp(total), 1, K)};
  }

  /// x by exp(c), if there are decays.
  Var decayed(Var x, Var c) const { return shape.decays() ? x * exp(c) : x; }
  void storeOutputs(Var out, Var lo, Var hi) {
    out = scale ? out * scale : out;
    k.store(cast(transpose(out), o.element()), o, {b, lo, h, firstValue}, {.limit = hi, .dims = {1, 3}});
  }

  /// Stores the outputs of chunk n; the state behind it.
  Var next(Var n, Var state) {
    Var lo = edge(n, 0), hi = edge(n, 1);
    if (byFactors())
      return nextByFactors(n, lo, hi, state);
    Var queries = tokens(queriesIn, lo, hi, 0, K), keys = tokens(keysIn, lo, hi, 0, K);
    if (inverseIn)
      return nextByInverse(n, lo, hi, state, queries, keys);
    Var values = tokens(valuesIn, lo, hi, firstValue, VB);
    Decays c = decays(lo, hi);
    // Scores are handed on before all warps need them, beside (Q M)^T; O is computed beside what the state is made of, and that beside the store.
    Var scores = dotTB(queries, keys);
    if (shape.decays()) // where they are not of the triangle pairs grow, and are replaced
      scores = scores * exp(c.ofScores - c.ofOutputs);
    scores = mask(scores, tile::Keep::lower);
    Var out = decayed(dotTB(state, queries), c.ofOutputs);
    out = dot(values, scores, out, {.transposeA = true, .transposeB = true});
    Var left = decayed(values, c.toEnd), kept = shape.decays() ? state * c.across : state;
    Var after = dotTA(left, keys, kept);
    storeOutputs(out, lo, hi);
    return after;
  }
  /// The same by factors. Two products wait for each other, keys' and what is written.
  Var nextByFactors(Var n, Var lo, Var hi, Var state) {
    auto ofChunk = [&](Var buffer, int64_t width) {
      return cast(k.load(buffer, {b, n, h, 0, 0}, {C, width}), shape.compute);
    };
    Var held = dotTB(state, ofChunk(keysIn, K)), out = dotTB(state, ofChunk(queriesIn, K));
    Var left = tokens(valuesIn, lo, hi, firstValue, VB) - transpose(held); // they lie along tokens, and stay so
    // Behind the first product's end: of sums that the iteration before has left ptxas (CUDA 13.0) would have both products awaited.
    Var across = cast(k.load(decayIn, {b, n, h, 0, 0}, {K}), shape.compute), kept = state * expand(across, 0, VB);
    Var after = dotTA(left, ofChunk(writeIn, K), kept);
    out = dot(left, ofChunk(scoresIn, C), out, {.transposeA = true, .transposeB = true});
    storeOutputs(out, lo, hi);
    return after;
  }
  /// The same of a delta rule. Which product begins before which is what registers are enough for.
  Var nextByInverse(Var n, Var lo, Var hi, Var state, Var queries, Var keys) {
    auto sums = [&](int64_t which) { return k.load(sumsIn, {b, n, h, which * C}, {C}); };
    auto decayed = [&](Var pairs) {
      if (!sumsIn)
        return mask(pairs, tile::Keep::lower);
      Var c = sums(0);
      return pairs * mask(exp(expand(c, 1, C) - expand(c, 0, C)), tile::Keep::lower);
    };
    Var held, out, scores;
    // Where threads copy, their addresses are in registers that sums of a product more would need. Of two products that a loop begins with ptxas (CUDA 13.0) would have the
    // first one awaited before the second: these are.
    if (!shape.boxes) {
      scores = decayed(dotTB(queries, keys));
      out = dotTB(state, queries);
    }
    // K M, which the next state waits for. Scores and Q M are multiplied behind it while U is computed, decays of scores beside T times what is left of V.
    held = dotTB(state, keys);
    if (shape.boxes && sumsIn)
      out = dotTB(state, queries);
    if (shape.boxes)
      scores = dotTB(queries, keys);
    Var start = sumsIn ? sums(1) : Var(), fromStart = start ? expand(start, 0, VB) : Var();
    auto times = [&](Var x, Var decay) { return decay ? x * decay : x; };
    Var inverse = cast(k.load(inverseIn, {b, n, h, 0, 0}, {C, C}), shape.compute);
    Var known = transpose(times(held, fromStart));
    Var left = tokens(valuesIn, lo, hi, firstValue, VB) - known; // they lie along tokens, and stay so
    Var written = dot(left, inverse, {}, {.transposeA = true, .transposeB = true}), across, toEnd;
    if (shape.boxes && out)
      out = times(out, fromStart); // the rounded state is in no register any more
    if (shape.boxes)
      scores = decayed(scores);
    if (!out)
      out = dotTB(state, queries); // before, eight bytes would be spilled for them
    if (sumsIn) {
      toEnd = expand(sums(2), 0, VB);
      across = row(start, k.number(C - 1));
    }
    Var kept = times(state, across);
    if (!shape.boxes)
      out = times(out, fromStart);
    out = dot(written, scores, out, {.transposeB = true});
    Var after = dot(times(written, toEnd), keys, kept);
    storeOutputs(out, lo, hi);
    return after;
  }

  /// Channels that the rows of all warps are.
  int64_t width() const { return C; }

  /// What a walk under decays of channels carries: of each block of channels the state [VB, width], but for the factor exp of a log, and that log [width]; and the least that a
  /// channel of any block has decayed by over a chunk.
  struct Channels {
    Vars states, logs;
    Var least;
    explicit Channels(llvm::ArrayRef<Var> all) : least(all.back()) {
      size_t blocks = all.size() / 2;
      states.assign(all.take_front(blocks));
      logs.assign(all.slice(blocks, blocks));
    }
    Vars all() const {
      Vars joined = states;
      joined.append(logs);
      joined.push_back(least);
      return joined;
    }
  };

  /// One pass over the chunks, and another one where their decays do not allow it: the states behind them.
  Vars walkChannels(ChunkRows &table, ChunkRows::Range range,
                    llvm::function_ref<Var(int64_t first, int64_t width, Var wanted)> begin) {
    Var strong;
    Vars behind;
    for (bool again : {false, true}) {
      Vars carried;
      for (int64_t first = 0; first < K; first += width()) {
        Var state = begin(first, width(), strong);
        carried.push_back(again ? select(strong, state, behind[carried.size()]) : state);
      }
      size_t blocks = carried.size();
      carried.append(blocks + 1, k.tile({width()}, shape.compute));
      if (again) {
        range.parts = C / kPartTokens;
        range.to = select(strong, range.to, range.from);
      }
      auto body = [&](const ChunkRows::Step &at) { return nextOfChannels(at, Channels(at.now)).all(); };
      Channels end(table.walk(range, carried, {}, body, blocks));
      behind = Vars();
      for (size_t i = 0; i < blocks; ++i)
        behind.push_back(end.states[i] * expand(exp(end.logs[i]), 0, VB));
      strong = lt(minimum(end.least, 0), -kMostSpan);
    }
    return behind;
  }

  /// Stores the outputs of a chunk, or of a part of one.
  Channels nextOfChannels(const ChunkRows::Step &at, Channels now) {
    Var lo = edge(at.n, 0), hi = edge(at.n, 1);
    if (at.part) {
      lo = lo + at.part * static_cast<double>(kPartTokens);
      hi = min(hi, lo + static_cast<double>(kPartTokens));
    }
    Var values = tokens(valuesIn, lo, hi, firstValue, VB), allDecays = rowsOf(decayIn, lo, hi, 0, K),
        allQueries = rowsOf(queriesIn, lo, hi, 0, K), allKeys = rowsOf(keysIn, lo, hi, 0, K), scores, out;
    Vars queries, keys, factors;
    for (size_t i = 0; i < now.states.size(); ++i) {
      auto block = [&](Var all) {
        bool whole = K == width();
        return cast(whole ? all : slice(all, static_cast<int64_t>(i) * width(), width()), shape.compute);
      };
      Var g = block(allDecays);
      if (at.part)
        g = select(lt(g, kSilentOfPart), kSilentOfPart, g);
      Var c = cumsum(g), total = row(c, k.number(C - 1)), middle = total * 0.5;
      Var grown = exp(c - expand(middle, 0, C));
      queries.push_back(transpose(block(allQueries) * grown));
      keys.push_back(transpose(block(allKeys) * (1.0 / grown)));
      factors.push_back(exp(now.logs[i] + middle));
      now.logs[i] = middle;
      now.least = min(now.least, total);
    }
    for (size_t i = 0; i < queries.size(); ++i)
      scores = dotTA(queries[i], keys[i], scores);
    for (size_t i = 0; i < queries.size(); ++i)
      now.states[i] = now.states[i] * expand(factors[i], 0, VB);
    scores = mask(scores, tile::Keep::lower); // before sums of outputs take as many registers
    for (size_t i = 0; i < queries.size(); ++i)
      out = dot(now.states[i], queries[i], out);
    out = dot(values, scores, out, {.transposeA = true, .transposeB = true});
    for (size_t i = 0; i < keys.size(); ++i)
      now.states[i] = dot(values, keys[i], now.states[i], {.transposeA = true, .transposeB = true});
    k.store(cast(transpose(out * scale), o.element()), o, {b, lo, h, firstValue}, {.limit = hi, .dims = {1, 3}});
    return now;
  }

  KernelBuilder &k;
  const LsmShape &shape;
  Var h, b;
  int64_t C, K, VB;
  Var segment, firstValue, queriesIn, keysIn, valuesIn, decayIn, inverseIn, sumsIn, writeIn, scoresIn, chunks, o, scale;
};

} // namespace

void writeOutputWalk(KernelBuilder &k, const LsmShape &shape) { OutputWalkKernel(k, shape).write(); }

} // namespace braid
