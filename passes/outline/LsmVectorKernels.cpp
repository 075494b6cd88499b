//===- LsmVectorKernels.cpp - cotangents inside a chunk under a decay per channel, from M and D' = dL/dM' ---------===//
//
// Classes V, D and R (lsm-family 4.2, 4.5, 4.3) are one computation on pairs of a left and a right row:
//
//   lefts   q; VH: and k;  D: and a, one token up (its row i - 1 meets what q's row i - 1 meets)     their cotangents' rows  dO, dH
//   rights  k; VH: beta k;  D: and b                                                                  their values            V, Z
//
//   VH      U = (I + A)^-1 (V - (K exp(c)) M),  dV = (I + A)^-T (S^T dO + (beta K w) D'),  A_ij = k_i (beta_j k_j)^T exp(c_i - c_j)
//   D       Z = (I - A_ab)^-1 (A_ak V + (A exp(c^)) M),  dZ = A_qb^T dO + (B w) D',  dH = (I - A_ab)^-T dZ,
//           w = exp(c_C - c)
//   dS_lr   = (row of l) (value of r)^T;  R: sum_v dO_iv V_jv exp(e_iv - e_jv), scores of dO and V under value_decay
//   dleft   = exp(c) (row M^T)    + sum_r dS . r exp(c_i - c_j)
//   dright  = w (value D'^T)      + sum_l dS^T . l exp(c_i - c_j)
//   dV      = A_qk^T dO + A_ak^T dH + (K w) D';  R: the right's cotangent of those scores with S as theirs,
//             exp(e_C - e) (K w) D'
//
// On a GPU, VH with all values in one tile: dV by a kernel of its own (writeChunkGradValues), the rest from it and from U, which the scan has written: each has half of
// the tiles, and one solves.
//
// Log decay: the x dx identity (3.3), restarted at every chunk and sorted so that nothing large cancels under strong
// decays. What meets no decay (a token's read of its own write) stays out: dleft~, dright~ are of the strict triangle.
//   dg_t = sum_{s >= t} (left (exp(c) (row M^T) + dleft~) - right dright~)_s + sum_{s < t} ((right w) (value D'^T))_s
//          + exp(c_C) rowsum(M D')
// value_decay: the same with dO, V for left and right, and the roles of the state's rows and columns exchanged.
//
//===-------------------------------------------------------------------------------------------------------------===//
#include "passes/outline/LsmKernels.h"

using namespace mlir;

namespace braid {

namespace {

/// The parameters of chunk_grad, and what its three parts share.
struct VectorGradKernel {
  VectorGradKernel(KernelBuilder &k, const LsmShape &shape)
      : k(k), shape(shape), in(k, shape), queriesIn(in.keys("q")), keysIn(in.keys("k")), valuesIn(in.values("v")),
        decayIn(in.logDecay()), betaIn(in.beta()), aIn(in.lowRank("a")), bIn(in.lowRank("b")),
        valueDecayIn(in.valueDecay()), m(in.states("m")), dx(in.states("dx")), doIn(in.values("d_o")),
        chunks(in.chunks()), dq(in.keys("dq")), dk(in.keys("dk")), dv(in.values("dv")),
        dLogDecay(in.logDecay("dlog_decay")), dBeta(in.beta("dbeta")), da(in.lowRank("da")), db(in.lowRank("db")),
        dValueDecay(in.valueDecay("dvalue_decay")), scale(k.scalar("scale", shape.compute)), math(k, shape, chunks) {
    if (shape.split) // dV is known, too
      writtenIn = in.factor("written", shape.chunk, "value", shape.values);
  }

  void write() {
    llvm::SmallVector<std::pair<Var, int64_t>> outputs{{dq, shape.keys}, {dk, shape.keys}, {dLogDecay, shape.keys}};
    if (!writtenIn)
      outputs.push_back({dv, shape.values});
    if (dBeta)
      outputs.push_back({dBeta, 0});
    if (da)
      outputs.append({{da, shape.keys}, {db, shape.keys}});
    if (dValueDecay)
      outputs.push_back({dValueDecay, shape.values});
    forChunk(math, outputs, [&] {
      if (!shape.lowRank() && !shape.valueDecay()) {
        math.loadDecay(decayIn, /*scores=*/true);
        return math.eitherWay([&] { shape.delta() ? writeDelta() : writeVector(); });
      }
      loadTokens();
      math.loadDecay(decayIn, /*scores=*/true);
      if (!shape.lowRank())
        return writeRank1();
      math.eitherWay([&] { writeLowRank(); });
    });
  }

private:
  /// Sums over value columns: dS of every pair, row M^T of every left, value D'^T of every right, and rowsum(M D').
  struct Sums {
    Sums(VectorGradKernel &kernel, size_t lefts, size_t rights) : lefts(lefts), rights(rights) {
      int64_t C = kernel.math.C, K = kernel.math.K;
      tiles.append(lefts * rights, kernel.zeros({C, C}));
      tiles.append(lefts + rights, kernel.zeros({C, K}));
      tiles.push_back(kernel.zeros({K}));
    }
    Var &ds(size_t l, size_t r) { return tiles[l * rights + r]; }
    Var &left(size_t l) { return tiles[lefts * rights + l]; }
    Var &right(size_t r) { return tiles[lefts * rights + lefts + r]; }
    Var &tail() { return tiles.back(); }
    /// Adds up what `body` does to a copy for every block of value columns.
    void loop(ChunkMath &math, llvm::function_ref<void(Index first, Sums &sums)> body) {
      tiles = math.valueLoop(tiles, [&](Index first, llvm::ArrayRef<Var> now) {
        Sums next = *this;
        next.tiles.assign(now.begin(), now.end());
        body(first, next);
        return next.tiles;
      });
    }
    size_t lefts, rights;
    Vars tiles;
  };

  void loadTokens() {
    queries = math.keysOf(queriesIn) * scale;
    keys = math.keysOf(keysIn);
  }
  void writeVector();
  void writeWhole();
  void writeDelta();
  void writeWholeDelta();
  void writeStrongDelta();
  void writeLowRank();
  void writeRank1();

  Var zeros(Shape tile) { return k.tile(tile, shape.compute); }
  /// The sum over the rows before each row.
  Var before(Var x) { return down(k, cumsum(x)); }
  /// Stores the cotangents of lefts (into dq, da) and rights (into dk, db) and of the log decay. Returns the scores, if
  /// they are wanted.
  llvm::SmallVector<Vars> finish(Sums &sums, llvm::ArrayRef<Var> lefts, llvm::ArrayRef<Var> rights, bool wantScores);
  void store(const PairScores &scores, Sums &sums, llvm::ArrayRef<Var> rights);

  KernelBuilder &k;
  const LsmShape &shape;
  LsmBuffers in;
  Var queriesIn, keysIn, valuesIn, decayIn, betaIn, aIn, bIn, valueDecayIn, m, dx, doIn, chunks, dq, dk, dv, dLogDecay,
      dBeta, da, db, dValueDecay, scale, writtenIn;
  ChunkMath math;
  Var queries, keys;
};

llvm::SmallVector<Vars> VectorGradKernel::finish(Sums &sums, llvm::ArrayRef<Var> lefts, llvm::ArrayRef<Var> rights,
                                                 bool wantScores) {
  // a reads one token up, like its rows of every tile.
  auto placed = [&](Var x, size_t l) { return l && shape.lowRank() ? up(k, x) : x; };
  llvm::SmallVector<Vars> ds(lefts.size());
  Vars states;
  for (size_t l = 0; l < lefts.size(); ++l) {
    for (size_t r = 0; r < rights.size(); ++r)
      ds[l].push_back(placed(sums.ds(l, r), l));
    states.push_back(placed(sums.left(l), l));
  }
  PairScores scores = pairScores(k, math.keyDecay(), lefts, rights, ds, wantScores, states);
  store(scores, sums, rights);
  return scores.s;
}

/// All sums before the first store: what they read is then read where it lies.
void VectorGradKernel::store(const PairScores &scores, Sums &sums, llvm::ArrayRef<Var> rights) {
  Var pairs, ends;
  Vars dRights;
  auto plus = [](Var a, Var b) { return a ? a + b : b; };
  for (Var share : scores.leftShare)
    pairs = plus(pairs, share);
  for (size_t r = 0; r < rights.size(); ++r) {
    dRights.push_back(math.toEnd(sums.right(r)) + scores.dRight[r]);
    pairs = pairs - scores.rightShare[r];
    ends = plus(ends, math.toEnd(rights[r]) * sums.right(r));
  }
  Var tail = expand(sums.tail() * math.acrossChunk(), 0, math.C);
  Var difference = cumsum(pairs, 0, /*reverse=*/true) + before(ends) + tail;
  math.storeTokens(scores.dLeft[0] * scale, dq, 0);
  if (da) // the first token reads the in-state itself
    math.storeTokens(insertRows(rows(sums.left(1), k.number(0), 1), down(k, scores.dLeft[1]), k.number(0)), da, 0);
  if (dBeta) {
    Var beta = expand(math.gate(betaIn), 1, math.K);
    math.storeGate(sum(dRights[0] * keys, 1), dBeta);
    dRights[0] = scores.dLeft[1] + dRights[0] * beta;
  }
  for (size_t r = 0; r < rights.size(); ++r)
    math.storeTokens(dRights[r], r ? db : dk, 0);
  math.storeTokens(math.keyDecay().cotangent(difference), dLogDecay, 0);
}

/// In one way of eitherWay(), which shares nothing but decays with the other: sums stay where they are used.
void VectorGradKernel::writeVector() {
  if (shape.wholeRows)
    return writeWhole();
  int64_t VB = math.VB;
  Sums sums(*this, 1, 1);
  sums.loop(math, [&](Index first, Sums &now) {
    Var values = math.tokens(valuesIn, first, VB), d = math.tokens(doIn, first, VB);
    Var state = math.state(m, first, VB), dState = math.state(dx, first, VB);
    now.ds(0, 0) = dotTB(d, values, now.ds(0, 0));
    now.left(0) = dotTB(d, state, now.left(0));
    now.right(0) = dotTB(values, dState, now.right(0));
    now.tail() = now.tail() + sum(state * dState, 1);
  });
  loadTokens();
  Var scores = finish(sums, {queries}, {keys}, /*wantScores=*/true)[0][0], keysToEnd = math.toEnd(keys);
  math.valueLoop([&](Index first) {
    Var d = math.tokens(doIn, first, VB), dState = math.state(dx, first, VB);
    math.storeTokens(dotTA(scores, d, dot(keysToEnd, dState)), dv, first);
  });
}

/// All value columns are one tile, and tiles of tokens lie in registers (lower/ThreadColumns.cpp): few are alive at a time, for each cotangent is stored as soon
/// as it is there, and what is read behind a store is loaded again. Where decays are mild, pairs are products of rows decayed from and to the start; under strong
/// ones their many tiles come first, alone.
void VectorGradKernel::writeWhole() {
  DecayTable decay = math.keyDecay();
  bool strong = math.isStrong();
  int64_t VB = math.VB;
  auto tokens = [&](Var buffer) { return math.tokens(buffer, 0, VB); };
  Var loadedQueries, loadedKeys;
  auto load = [&](int64_t time) {
    if (strong || !loadedQueries)
      std::tie(loadedQueries, loadedKeys) =
          std::pair(anew(asLoaded(math.keysOf(queriesIn)), time), anew(asLoaded(math.keysOf(keysIn)), time));
    queries = anew(cast(loadedQueries, shape.compute), time) * scale;
    keys = anew(cast(loadedKeys, shape.compute), time);
  };
  Var ds;
  PairScores pairs;
  if (strong) {
    int64_t block = divisorUpTo(shape.values, kMostColumns);
    ds = k.loop(0, shape.values, block, {zeros({math.C, math.C})}, [&](Var first, llvm::ArrayRef<Var> now) -> Vars {
      return {dotTB(math.tokens(doIn, first, block), math.tokens(valuesIn, first, block), now[0])};
    })[0];
    loadTokens();
    pairs = strongPairs(k, decay, {queries}, {keys}, {Vars{ds}});
    decay.start = decayFactor(cumsum(anew(decay.g(), 1)));
    decay.end = decayFactor(cumsum(anew(decay.gNext(), 1), 0, /*reverse=*/true));
  }
  Var d = tokens(doIn), values = tokens(valuesIn), state = math.state(m, 0, VB), dState = math.state(dx, 0, VB);
  load(1);
  Var lefts, rights, inside, scores, keysToEnd;
  if (strong) {
    scores = pairs.s[0][0];
  } else {
    std::tie(lefts, rights, keysToEnd) = std::tuple(decay.fromStart(queries), keys * decay.inverse, decay.toEnd(keys));
    ds = dotTB(d, values);
    inside = mask(ds, tile::Keep::strict_lower);
    scores = mask(dotTB(lefts, rights), tile::Keep::lower);
  }
  // What pairs and states give each row, but for a token's read of its own write.
  Var own = expand(diagonal(ds), 1, math.K), read = dotTB(d, state);
  read = decay.fromStart(strong ? read : dot(inside, rights, read));
  if (strong)
    read = read + pairs.dLeft[0];
  load(2);
  Var difference = queries * read;
  math.storeTokens((read + own * keys) * scale, dq, 0);
  // Divided, so that exp(-c) is not kept since the pairs were made.
  auto fromPairs = [&](Var x) { return strong ? x : x / decay.start; };
  Var last = strong ? decay.toEnd(dotTB(values, dState))
                    : fromPairs(dotTB(values, dState)) * expand(exp(decay.last), 0, math.C);
  load(3);
  if (strong)
    keysToEnd = decay.toEnd(keys);
  Var ends = keys * last;
  last = last + own * queries;
  Var write = strong ? pairs.dRight[0] : fromPairs(dotTA(inside, lefts));
  difference = difference - keys * write;
  math.storeTokens(write + last, dk, 0);
  Var tail = expand(sum(state * dState, 1) * math.acrossChunk(), 0, math.C);
  difference = cumsum(difference, 0, /*reverse=*/true) + before(ends) + tail;
  math.storeTokens(dotTA(scores, d, dot(keysToEnd, dState)), dv, 0);
  math.storeTokens(decay.cotangent(difference), dLogDecay, 0);
}

/// A delta rule's keys read and write: they are a second left, and times beta the right.
void VectorGradKernel::writeDelta() {
  if (writtenIn)
    return writeWholeDelta();
  int64_t VB = math.VB;
  loadTokens();
  DeltaTiles delta(math, betaIn, keys, queries);
  Var keysFromStart = math.fromStart(keys), keysToEnd = math.toEnd(delta.writing);
  Sums sums(*this, 2, 1);
  sums.loop(math, [&](Index first, Sums &now) {
    Var values = math.tokens(valuesIn, first, VB), d = math.tokens(doIn, first, VB);
    Var state = math.state(m, first, VB), dState = math.state(dx, first, VB);
    Var u = solve(delta.a, values - dot(keysFromStart, state));
    Var dh = solve(delta.a, dotTA(delta.scores, d, dot(keysToEnd, dState)), /*transpose=*/true);
    math.storeTokens(dh, dv, first);
    for (auto [l, row] : llvm::enumerate(Vars{d, -dh})) {
      now.ds(l, 0) = dotTB(row, u, now.ds(l, 0));
      now.left(l) = dotTB(row, state, now.left(l));
    }
    now.right(0) = dotTB(u, dState, now.right(0));
    now.tail() = now.tail() + sum(state * dState, 1);
  });
  sums.ds(1, 0) = mask(sums.ds(1, 0), tile::Keep::strict_lower);
  finish(sums, {queries, keys}, {delta.writing}, /*wantScores=*/false);
}

/// As writeWhole(), where U and dV are in memory: no triangle is solved here. What queries and keys read of in-states comes first, both times exp(c - r), then what
/// keys write of cotangents of out-states, times exp(r - c). Queries and keys are widened where a formula reads them.
void VectorGradKernel::writeWholeDelta() {
  if (math.isStrong())
    return writeStrongDelta();
  DecayTable decay = math.keyDecay();
  int64_t C = math.C, K = math.K, VB = shape.values;
  Var beta = expand(math.gate(betaIn), 1, K);
  Var loadedQueries = math.keysOf(queriesIn), loadedKeys = math.keysOf(keysIn), writing;
  auto widen = [&](int64_t time) {
    queries = widenedAnew(loadedQueries, time) * scale;
    keys = widenedAnew(loadedKeys, time);
    writing = keys * beta;
  };
  Var d = math.tokens(doIn, 0, VB), dValues = math.tokens(dv, 0, VB), u = math.written(writtenIn, 0, VB),
      state = math.state(m, 0, VB);
  widen(1);
  // An exponential of its own, and quotients below: a reciprocal for both would be kept from here to there.
  Var right = writing * exp(decay.entering ? expand(decay.last * 0.5, 0, C) - decay.c : -decay.c);
  Var leftQueries = decay.leftOfScores(queries), leftKeys = decay.leftOfScores(keys);
  Var ofQueries = dotTB(d, u), ofKeys = -mask(dotTB(dValues, u), tile::Keep::strict_lower);
  // What pairs and states give each row, but for a query's read of its own token's write.
  Var own = expand(diagonal(ofQueries), 1, K), inside = mask(ofQueries, tile::Keep::strict_lower);
  Var dQueries = decay.leftOfScores(dot(inside, right, decay.atEntry(dotTB(d, state))));
  widen(2);
  Var difference = queries * dQueries;
  math.storeTokens((dQueries + own * writing) * scale, dq, 0);
  Var read = -decay.atEntry(dotTB(dValues, state)), dState = math.state(dx, 0, VB);
  Var dKeys = decay.leftOfScores(dot(ofKeys, right, read));
  widen(3);
  difference = difference + keys * dKeys;
  // What keys write. What ends give later tokens is all of them but for what they give earlier ones, so it needs no running sum of its own.
  Var dWriting = dotTB(u, dState);
  dWriting = decay.entering ? decay.atEntry(dWriting) : dWriting * expand(exp(decay.last), 0, C);
  widen(4);
  Var stateAgain = loadedAnew(math.state(m, 0, VB), 1);
  Var tail = sum(writing * dWriting / decay.start, 0) + sum(stateAgain * dState, 1) * math.acrossChunk();
  dWriting = dotTA(ofKeys, leftKeys, dotTA(inside, leftQueries, dWriting)) / decay.start;
  widen(5);
  difference = difference - writing * dWriting;
  dWriting = dWriting + own * queries;
  math.storeGate(sum(dWriting * keys, 1), dBeta);
  math.storeTokens(dKeys + dWriting * beta, dk, 0);
  difference = cumsum(difference, 0, /*reverse=*/true) + expand(tail, 0, C);
  math.storeTokens(decay.cotangent(difference), dLogDecay, 0);
}

/// The same under strong decays: pairs have many tiles, so some channels at a time.
void VectorGradKernel::writeStrongDelta() {
  int64_t C = math.C, block = divisorUpTo(shape.keys, kStrongColumns), VB = divisorUpTo(shape.values, kStrongColumns);
  Var beta = expand(math.gate(betaIn), 1, block);
  Vars ds = k.loop(0, shape.values, VB, {zeros({C, C}), zeros({C, C})}, [&](Var at, llvm::ArrayRef<Var> now) -> Vars {
    Var u = math.written(writtenIn, at, VB);
    return {dotTB(math.tokens(doIn, at, VB), u, now[0]), dotTB(math.tokens(dv, at, VB), u, now[1])};
  });
  Var ofQueries = ds[0], ofKeys = -mask(ds[1], tile::Keep::strict_lower);
  Var own = expand(diagonal(ofQueries), 1, block);
  Var dBetas = k.loop(0, shape.keys, block, {zeros({C})}, [&](Var first, llvm::ArrayRef<Var> now) -> Vars {
    DecayTable decay = math.decayTable(decayIn, first, block, /*scores=*/true).ofStrong();
    Var queries = math.tokens(queriesIn, first, block) * scale, keys = math.tokens(keysIn, first, block);
    Var writing = keys * beta;
    PairScores pairs =
        strongPairs(k, decay, {queries, keys}, {writing}, {Vars{ofQueries}, Vars{ofKeys}}, /*scores=*/false);
    Vars sums =
        k.loop(0, shape.values, VB, {zeros({C, block}), zeros({C, block}), zeros({C, block}), zeros({block})},
               [&](Var at, llvm::ArrayRef<Var> now) -> Vars {
                 auto states = [&](Var buffer) {
                   return cast(k.load(buffer, {math.b, math.n, math.h, first, at}, {block, VB}), shape.compute);
                 };
                 Var state = states(m), dState = states(dx);
                 return {dotTB(math.tokens(doIn, at, VB), state, now[0]), dotTB(math.tokens(dv, at, VB), state, now[1]),
                         dotTB(math.written(writtenIn, at, VB), dState, now[2]), now[3] + sum(state * dState, 1)};
               });
    Var dQueries = decay.fromStart(sums[0]) + pairs.dLeft[0], dKeys = pairs.dLeft[1] - decay.fromStart(sums[1]);
    Var last = decay.toEnd(sums[2]), dWriting = pairs.dRight[0] + last + own * queries;
    Var difference = queries * dQueries + keys * dKeys - writing * pairs.dRight[0];
    Var tail = sums[3] * exp(min(decay.total(), 0.0));
    difference = cumsum(difference, 0, /*reverse=*/true) + before(writing * last) + expand(tail, 0, C);
    math.storeTokens((dQueries + own * writing) * scale, dq, first);
    math.storeTokens(dKeys + dWriting * beta, dk, first);
    math.storeTokens(decay.cotangent(difference), dLogDecay, first);
    return {now[0] + sum(dWriting * keys, 1)};
  })[0];
  math.storeGate(dBetas, dBeta);
}

void VectorGradKernel::writeLowRank() {
  int64_t VB = math.VB;
  LowRankTiles low(math, aIn, bIn, keys, queries);
  Var keysToEnd = math.toEnd(keys), bToEnd = math.toEnd(low.b);
  Sums sums(*this, 2, 2);
  sums.loop(math, [&](Index first, Sums &now) {
    Var values = math.tokens(valuesIn, first, VB), d = math.tokens(doIn, first, VB);
    Var state = math.state(m, first, VB), dState = math.state(dx, first, VB);
    Var z = low.read(values, state);
    Var dh = solve(low.minusAb, dotTA(low.qb, d, dot(bToEnd, dState)), /*transpose=*/true);
    math.storeTokens(dotTA(low.ak, dh, dotTA(low.qk, d, dot(keysToEnd, dState))), dv, first);
    for (auto [l, row] : llvm::enumerate(Vars{d, dh})) {
      now.ds(l, 0) = dotTB(row, values, now.ds(l, 0));
      now.ds(l, 1) = dotTB(row, z, now.ds(l, 1));
      now.left(l) = dotTB(row, state, now.left(l));
    }
    now.right(0) = dotTB(values, dState, now.right(0));
    now.right(1) = dotTB(z, dState, now.right(1));
    now.tail() = now.tail() + sum(state * dState, 1);
  });
  finish(sums, {queries, low.aNext}, {keys, low.b}, /*wantScores=*/false);
}

void VectorGradKernel::writeRank1() {
  math.loadValueDecay(valueDecayIn);
  math.eitherWay([&] {
    int64_t C = math.C, K = math.K, VB = math.VB;
    Var scores = math.scores(queries, keys);
    Var queriesFromStart = math.fromStart(queries), keysToEnd = math.toEnd(keys);
    Sums sums(*this, 1, 1);
    sums.loop(math, [&](Index first, Sums &now) {
      Var values = math.tokens(valuesIn, first, VB), d = math.tokens(doIn, first, VB);
      Var state = math.state(m, first, VB), dState = math.state(dx, first, VB);
      DecayTable decay = math.valueDecay(first);
      PairScores inside =
          pairScores(k, decay, {d}, {values}, {Vars{scores}}, /*scores=*/true, {dot(queriesFromStart, state)});
      Var write = dot(keysToEnd, dState);
      Var valuesToEnd = decay.toEnd(values);
      Var across = exp(min(decay.total(), 0.0)), both = state * dState;
      Var tail = sum(both * expand(math.acrossChunk(), 1, VB), 0) * across;
      Var pairs = inside.leftShare[0] - inside.rightShare[0];
      now.ds(0, 0) = now.ds(0, 0) + inside.s[0][0];
      now.left(0) = dotTB(decay.fromStart(d), state, now.left(0));
      now.right(0) = dotTB(valuesToEnd, dState, now.right(0));
      now.tail() = now.tail() + sum(both * expand(across, 0, K), 1);
      // Behind all that reads states, so that they are read where they stand.
      math.storeTokens(inside.dRight[0] + decay.toEnd(write), dv, first);
      Var difference = cumsum(pairs, 0, /*reverse=*/true) + before(valuesToEnd * write) + expand(tail, 0, C);
      math.storeTokens(decay.cotangent(difference), dValueDecay, first);
    });
    finish(sums, {queries}, {keys}, /*wantScores=*/false);
  });
}

} // namespace

void writeVectorChunkGrad(KernelBuilder &k, const LsmShape &shape) { VectorGradKernel(k, shape).write(); }

} // namespace braid
