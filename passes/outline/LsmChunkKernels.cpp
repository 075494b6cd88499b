//===- LsmChunkKernels.cpp - states and outputs of chunks, and the cotangent of the in-state ----------------------===//
//
//   plain classes (I, S0, S, V)            delta classes (H, GH; beta of keys: DeltaTiles), lsm-family 4.4
//   X  = (K exp(c_C - c))^T V              X = (K exp(c_C - c))^T U0,  U0 = (I + A)^-1 beta V
//   P  = exp(c_C)                          P = exp(c_C) I - (K exp(c_C - c))^T W,  W = (I + A)^-1 beta exp(c) K
//   O  = (Q exp(c)) M + S V                O = (Q exp(c)) M + S U,  U = (I + A)^-1 beta (V - exp(c) K M)
//   dM = (Q exp(c))^T dO                   dM = (Q exp(c))^T dO - (K exp(c))^T dR,  dR = beta (I + A)^-T S^T dO
//   S_ij = q_i k_j^T exp(c_i - c_j), j <= i        A_ij = beta_i k_i k_j^T exp(c_i - c_j), j < i
//
//   low rank (D), 4.5; A_xy are scores of x and y, those of a up to the token before (c^ = c - g)
//   X  = (K exp(c_C - c))^T V + (B exp(c_C - c))^T Z0,  Z0 = (I - A_ab)^-1 A_ak V
//   P  = exp(c_C) + (B exp(c_C - c))^T (I - A_ab)^-1 (A exp(c^))
//   O  = (Q exp(c)) M + A_qk V + A_qb Z,  Z = (I - A_ab)^-1 (A_ak V + (A exp(c^)) M), row i: a_i M_{i-1}
//   dM = (Q exp(c))^T dO + (A exp(c^))^T dH,  dH = (I - A_ab)^-T A_qb^T dO
//
//   rank-1 gates (R), 4.3: e cumulative over value_decay; V exp(e_C - e), dO exp(e) in the place of V, dO in X and dM
//   O_i = exp(e_i) (Q exp(c) M)_i + sum_j S_ij V_j exp(e_i - e_j)
//
// One program per (chunk, head, batch). dM is the part of the in-state's cotangent that comes through the chunk's own
// outputs; P^T D' is added by the state scan.
//
//===-------------------------------------------------------------------------------------------------------------===//
#include "passes/outline/LsmKernels.h"

using namespace mlir;

namespace braid {

/// Rows times beta.
static Var timesBeta(ChunkMath &math, Var betaIn, Var rows) { return rows * expand(math.gate(betaIn), 1, rows.dim(1)); }

/// Under decays of numbers products read keys as they are.
Var scoresOfWriting(ChunkMath &math, Var betaIn, Var queries, Var keys) {
  if (math.shape.vectorDecay())
    return math.scores(queries, timesBeta(math, betaIn, keys));
  Var beta = math.gate(betaIn);
  return math.scores(queries, keys) * expand(beta, 0, math.C);
}

DeltaTiles::DeltaTiles(ChunkMath &math, Var betaIn, Var keys, Var queries, Beta of) {
  bool ofKeys = of == Beta::keys || math.shape.vectorDecay();
  writing = ofKeys ? timesBeta(math, betaIn, keys) : keys;
  if (math.shape.vectorDecay()) {
    Vars lefts{keys};
    if (queries)
      lefts.push_back(queries);
    PairScores pairs = pairScores(math.k, math.keyDecay(), lefts, {writing});
    a = pairs.s[0][0];
    scores = queries ? pairs.s[1][0] : Var();
    return;
  }
  if (queries)
    scores = ofKeys ? scoresOfWriting(math, betaIn, queries, keys) : math.scores(queries, keys);
  Var gate = math.gate(betaIn);
  a = math.decayed(dotTB(keys, keys)) * expand(gate, ofKeys ? 0 : 1, math.C);
  if (!ofKeys)
    beta = gate;
}

/// Row i of a decays with row i - 1, the first not at all: exp(c^_i) = exp(c_i-1).
static Var decayedBefore(KernelBuilder &k, const DecayTable &decay, Var a, Var aNext) {
  return insertRows(rows(a, k.number(0), 1), down(k, decay.fromStart(aNext)), k.number(0));
}

LowRankTiles::LowRankTiles(ChunkMath &math, Var aIn, Var bIn, Var keys, Var queries)
    : aNext(math.nextKeysOf(aIn)), b(math.keysOf(bIn)) {
  KernelBuilder &k = math.k;
  aBefore = decayedBefore(k, math.keyDecay(), math.keysOf(aIn), aNext);
  Vars lefts{aNext};
  if (queries)
    lefts.push_back(queries);
  PairScores scores = pairScores(k, math.keyDecay(), lefts, {keys, b});
  ak = down(k, scores.s[0][0]);
  minusAb = -down(k, scores.s[0][1]);
  if (queries) {
    qk = scores.s[1][0];
    qb = scores.s[1][1];
  }
}

Var LowRankTiles::before(ChunkMath &math, Var aIn, Var decayIn, Index first, int64_t size) {
  Var a = math.tokens(aIn, first, size);
  return decayedBefore(math.k, math.decayTable(decayIn, first, size, /*scores=*/false), a, up(math.k, a));
}

Var LowRankTiles::read(Var values, Var state) { return solve(minusAb, dot(ak, values, dot(aBefore, state))); }

void writeChunkState(KernelBuilder &k, const LsmShape &shape) {
  LsmBuffers in(k, shape);
  Var keysIn = in.keys("k"), valuesIn = in.values("v"), decayIn = in.logDecay(), betaIn = in.beta();
  Var aIn = in.lowRank("a"), bIn = in.lowRank("b"), valueDecayIn = in.valueDecay();
  Var chunks = in.chunks(), x = in.states("x"), p = in.transition();
  ChunkMath math(k, shape, chunks);
  forChunk(math, {}, [&] {
    Var keys = math.keysOf(keysIn);
    math.loadDecay(decayIn, /*scores=*/shape.traits().dense);
    math.eitherWay([&] {
      std::optional<DeltaTiles> delta;
      if (shape.delta())
        delta.emplace(math, betaIn, keys);
      Var keysToEnd = math.toEnd(delta ? delta->writing : keys), rowsToEnd = keysToEnd;
      std::optional<LowRankTiles> low;
      if (shape.lowRank()) {
        low.emplace(math, aIn, bIn, keys);
        rowsToEnd = math.toEnd(low->b);
      }
      math.valueLoop([&](Index first) {
        Var values = math.tokens(valuesIn, first, math.VB), added;
        if (delta)
          values = solve(delta->a, delta->times(values));
        if (low)
          added = dotTA(rowsToEnd, solve(low->minusAb, dot(low->ak, values)));
        Var valueTotal;
        if (shape.valueDecay()) {
          DecayTable decay = math.decayTable(valueDecayIn, first, math.VB, /*scores=*/false);
          valueTotal = decay.total();
          values = decay.toEnd(values);
        }
        math.storeState(dotTA(keysToEnd, values, added), x, first);
        // Behind all that reads tokens, so that they are read where they stand.
        if (valueTotal)
          k.store(cast(valueTotal, shape.state), p, {math.b, math.n, math.h, k.value(first) + math.K});
      });
      if (!p)
        return;
      if (!shape.traits().dense) {
        Var total = cast(math.total(), shape.state);
        if (shape.vectorDecay())
          k.store(total, p, {math.b, math.n, math.h, 0});
        else
          k.put(total, p, {math.b, math.n, math.h});
        return;
      }
      Var across = shape.decays() ? math.acrossChunk() : k.constant(shape.compute, 1);
      bool rounded = p.element().isBF16();
      if (rounded) {
        Var rest = shape.vectorDecay() ? across : splat(across, {math.K});
        for (int64_t part = 0; part < kDecayRows; ++part) {
          Var row = cast(rest, p.element());
          k.store(row, p, {math.b, math.n, math.h, math.K + part, 0});
          rest = rest - cast(row, shape.compute);
        }
      }
      // `block`: of a or keys, decayed from the start.
      auto columns = [&](Index first, Var block) {
        int64_t size = block.dim(1);
        Var w = low ? solve(low->minusAb, block) : solve(delta->a, delta->times(block));
        Var column = k.iota({math.K, size}, 1) + cast(k.value(first), k.i32());
        Var diagonal = eq(k.iota({math.K, size}, 0), column);
        Var kept = shape.vectorDecay() ? expand(across, 1, size) : splat(across, {math.K, size});
        Var change = dotTA(rowsToEnd, w);
        change = low ? change : -change;
        math.storeState(rounded ? change : select(diagonal, kept, 0.0) + change, p, first);
      };
      if (math.K <= kDenseRows)
        return columns(0, low ? low->aBefore : math.fromStart(keys));
      int64_t block = divisorUpTo(math.K, kDenseRows);
      k.loop(0, math.K, block, [&](Var first) {
        if (low)
          return columns(first, LowRankTiles::before(math, aIn, decayIn, first, block));
        Var some = math.tokens(keysIn, first, block);
        columns(first, shape.vectorDecay() ? math.decayTable(decayIn, first, block, /*scores=*/false).fromStart(some)
                                           : math.fromStart(some));
      });
    });
  });
}

void writeChunkOutput(KernelBuilder &k, const LsmShape &shape) {
  LsmBuffers in(k, shape);
  Var queriesIn = in.keys("q"), keysIn = in.keys("k"), valuesIn = in.values("v"), decayIn = in.logDecay();
  Var betaIn = in.beta(), aIn = in.lowRank("a"), bIn = in.lowRank("b"), valueDecayIn = in.valueDecay();
  Var m = in.states("m"), chunks = in.chunks(), o = in.values("o");
  Var scale = k.scalar("scale", shape.compute);
  ChunkMath math(k, shape, chunks);
  forChunk(math, {{o, shape.values}}, [&] {
    Var keys, queries;
    auto loadTokens = [&] {
      keys = math.keysOf(keysIn);
      queries = math.keysOf(queriesIn) * scale;
    };
    if (shape.lowRank())
      loadTokens();
    math.loadDecay(decayIn, /*scores=*/true);
    if (shape.valueDecay())
      math.loadValueDecay(valueDecayIn);
    std::optional<LowRankTiles> low;
    if (shape.lowRank())
      low.emplace(math, aIn, bIn, keys, queries);
    math.eitherWay([&] {
      if (!low) // each way what it reads
        loadTokens();
      std::optional<DeltaTiles> delta;
      if (shape.delta())
        delta.emplace(math, betaIn, keys, queries);
      Var scores = low ? low->qk : delta ? delta->scores : math.scores(queries, keys);
      Var queriesFromStart = math.fromStart(queries), keysFromStart = delta ? math.fromStart(keys) : Var();
      math.valueLoop([&](Index first) {
        Var values = math.tokens(valuesIn, first, math.VB), state = math.state(m, first, math.VB);
        if (delta)
          values = solve(delta->a, delta->times(values - dot(keysFromStart, state)));
        Var fromState = dot(queriesFromStart, state);
        if (low)
          fromState = dot(low->qb, low->read(values, state), fromState);
        if (shape.valueDecay()) {
          DecayTable decay = math.valueDecay(first);
          PairScores inside = pairScores(k, decay, {Var()}, {values}, {Vars{scores}}, /*scores=*/false, {fromState},
                                         /*shares=*/false);
          return math.storeTokens(inside.dLeft[0], o, first);
        }
        math.storeTokens(dot(scores, values, fromState), o, first);
      });
    });
  });
}

/// O = (Q exp(c)) M + S U, beta of keys; low rank: + A_qk V + A_qb Z. U and Z are what the scan wrote.
void writeFactoredChunkOutput(KernelBuilder &k, const LsmShape &shape) {
  LsmBuffers in(k, shape);
  Var queriesIn = in.keys("q"), keysIn = in.keys("k"), valuesIn = shape.lowRank() ? in.values("v") : Var();
  Var decayIn = in.logDecay(), bIn = in.lowRank("b"), m = in.states("m");
  Var betaIn = in.beta(); // of the keys that write
  Var writtenIn = in.factor("written", shape.chunk, "value", shape.values), chunks = in.chunks(), o = in.values("o");
  Var scale = k.scalar("scale", shape.compute);
  ChunkMath math(k, shape, chunks);
  // One tile of values: all that is multiplied is on its way before anything is computed, and multiplied as it is.
  auto whole = [&] {
    Var keys = math.keysOf(keysIn), queries = math.keysOf(queriesIn), state = math.state(m, 0, math.VB);
    Var rows = math.written(writtenIn, 0, math.VB);
    if (!shape.vectorDecay())
      math.loadDecay(decayIn, /*scores=*/true);
    Var scores = scoresOfWriting(math, betaIn, queries, keys) * scale;
    // Decays of channels are the queries', those of tokens numbers of a row.
    Var fromState = shape.vectorDecay() ? dot(math.fromStart(queries), state) : math.fromStart(dot(queries, state));
    math.storeTokens(dot(scores, rows, fromState * scale), o, 0);
  };
  auto blocks = [&] {
    Var keys = math.keysOf(keysIn), queries = math.keysOf(queriesIn) * scale;
    Vars scores;
    if (shape.lowRank())
      scores = pairScores(k, math.keyDecay(), {queries}, {keys, math.keysOf(bIn)}).s[0];
    else
      scores.push_back(scoresOfWriting(math, betaIn, queries, keys));
    Var queriesFromStart = math.fromStart(queries);
    math.valueLoop([&](Index first) {
      Var fromState = dot(queriesFromStart, math.state(m, first, math.VB));
      Var sum = dot(scores.back(), math.written(writtenIn, first, math.VB), fromState);
      if (shape.lowRank())
        sum = dot(scores.front(), math.tokens(valuesIn, first, math.VB), sum);
      math.storeTokens(sum, o, first);
    });
  };
  forChunk(math, {{o, shape.values}}, [&] {
    if (!shape.wholeRows || shape.vectorDecay())
      math.loadDecay(decayIn, /*scores=*/true);
    math.eitherWay([&] { shape.wholeRows ? whole() : blocks(); });
  });
}

void writeChunkOutputGradState(KernelBuilder &k, const LsmShape &shape) {
  LsmBuffers in(k, shape);
  Var queriesIn = in.keys("q"), keysIn = shape.traits().dense ? in.keys("k") : Var(), decayIn = in.logDecay();
  Var betaIn = in.beta(), aIn = in.lowRank("a"), bIn = in.lowRank("b"), valueDecayIn = in.valueDecay();
  Var doIn = in.values("d_o"), chunks = in.chunks(), dm = in.states("dm");
  Var scale = k.scalar("scale", shape.compute);
  ChunkMath math(k, shape, chunks);
  forChunk(math, {}, [&] {
    Var queries = math.keysOf(queriesIn) * scale;
    math.loadDecay(decayIn, /*scores=*/shape.traits().dense);
    math.eitherWay([&] {
      Var queriesFromStart = math.fromStart(queries), keysFromStart;
      std::optional<LowRankTiles> low;
      std::optional<DeltaTiles> delta;
      if (shape.lowRank())
        low.emplace(math, aIn, bIn, math.keysOf(keysIn), queries);
      if (shape.delta()) {
        Var keys = math.keysOf(keysIn);
        delta.emplace(math, betaIn, keys, queries);
        keysFromStart = math.fromStart(keys);
      }
      math.valueLoop([&](Index first) {
        Var d = math.tokens(doIn, first, math.VB);
        if (shape.valueDecay())
          d = math.decayTable(valueDecayIn, first, math.VB, /*scores=*/false).fromStart(d);
        Var cotangent = dotTA(queriesFromStart, d);
        if (low)
          cotangent = dotTA(low->aBefore, solve(low->minusAb, dotTA(low->qb, d), /*transpose=*/true), cotangent);
        if (delta) {
          Var dRows = delta->times(solve(delta->a, dotTA(delta->scores, d), /*transpose=*/true));
          cotangent = cotangent - dotTA(keysFromStart, dRows);
        }
        math.storeState(cotangent, dm, first);
      });
    });
  });
}

} // namespace braid
