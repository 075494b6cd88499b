//===- LsmGradKernels.cpp - cotangents inside a chunk under scalar decays, from M and D' = dL/dM' -----------------===//
//
//   plain (I, S0, S), lsm-family 4.1                        delta (H, GH), 4.4
//   dS = tril(dO V^T)                                       R = V - exp(c) K M,  U = (I + A)^-1 beta R
//   dQ = exp(c) (dO M^T) + dS . k exp(c_i - c_j)            dU = S^T dO + (K w) D',  dH = (I + A)^-T dU,  dV = beta dH
//   dK = w (V D'^T) + dS^T . q exp(c_i - c_j)               Z = (dO U^T) E,  dA = -stril(dH U^T),  Y = beta dA E
//   dV = S^T dO + (K w) D'                                  dQ = exp(c) (dO M^T) + Z K
//                                                           dK = Z^T Q + (Y + Y^T) K - exp(c) (dV M^T) + w (U D'^T)
//   w = exp(c_C - c), E_ij = exp(c_i - c_j)                 dbeta = rowsum(dH R) + rowsum(dA stril((K K^T) E))
//
// Log decay: the x dx identity (3.3), restarted at every chunk and sorted so that nothing large cancels under strong
// decays. A token's read of its own write meets no decay. All summed over features:
//   dg_t = sum_{i >= t} a_i + sum_{j < t} b_j + exp(c_C) <M, D'> + pairs_t,  b = (K w) . (U D'^T),  U = V if plain
//   a = q exp(c) (dO M^T), delta: .. - k exp(c) (dV M^T);  pairs_t = sum_{i >= t > j} W_ij,  W = dS S, delta: (dO U^T)
//   S + dA A
//
// On a GPU, H and GH with all values in one tile, where a scan by factors wrote X = U / beta: dV and dbeta = rowsum(dH X) by a kernel of its own (writeChunkGradValues,
// VH's too), all else from dV and X, as beta dA = -stril(dV U^T). Each has half of the tiles, and one solves.
//
//===-------------------------------------------------------------------------------------------------------------===//
#include "passes/outline/LsmKernels.h"

using namespace mlir;

namespace braid {

namespace {

/// The parameters of chunk_grad, and the tiles every class needs.
struct GradKernel {
  GradKernel(KernelBuilder &k, const LsmShape &shape)
      : k(k), shape(shape), in(k, shape), queriesIn(in.keys("q")), keysIn(in.keys("k")), valuesIn(in.values("v")),
        decayIn(in.logDecay()), betaIn(in.beta()), m(in.states("m")), dx(in.states("dx")), doIn(in.values("d_o")),
        chunks(in.chunks()), dq(in.keys("dq")), dk(in.keys("dk")), dv(in.values("dv")),
        dLogDecay(shape.decayGradient() ? in.logDecay("dlog_decay") : Var()),
        dBeta(shape.split ? Var() : in.beta("dbeta")), scale(k.scalar("scale", shape.compute)), math(k, shape, chunks) {
    if (shape.split)
      writtenIn = in.factor("written", shape.chunk, "value", shape.values);
  }

  void write() {
    llvm::SmallVector<std::pair<Var, int64_t>> outputs{{dq, shape.keys}, {dk, shape.keys}};
    if (!shape.split)
      outputs.push_back({dv, shape.values});
    if (dLogDecay)
      outputs.push_back({dLogDecay, 0});
    if (dBeta)
      outputs.push_back({dBeta, 0});
    forChunk(math, outputs, [&] {
      queries = math.keysOf(queriesIn);
      keys = math.keysOf(keysIn);
      math.loadDecay(decayIn, /*scores=*/true);
      if (shape.wholeRows)
        return math.eitherWay([&] {
          shape.split ? writeSplitDelta() : shape.delta() ? writeWholeDelta() : writeWholePlain();
        });
      queries = queries * scale;
      shape.delta() ? writeDelta() : writePlain();
    });
  }

private:
  void writePlain();
  void writeDelta();
  void writeWholePlain();
  void writeWholeDelta();
  void writeSplitDelta();

  Var zeros(Shape tile) { return k.tile(tile, shape.compute); }
  /// dg of the scalar classes: W, a, b as above and rowsum(M D').
  void storeScalarDecay(Var w, Var a, Var b, Var md) {
    int64_t C = math.C;
    Var pairs = cumsum(w, 0, /*reverse=*/true) + expand(b, 0, C);
    Var inside = cumsum(a, 0, /*reverse=*/true) + sum(mask(pairs, tile::Keep::strict_lower), 1);
    math.storeGate(inside + splat(math.acrossChunk() * sum(md, 0), {C}), dLogDecay);
  }

  KernelBuilder &k;
  const LsmShape &shape;
  LsmBuffers in;
  Var queriesIn, keysIn, valuesIn, decayIn, betaIn, m, dx, doIn, chunks, dq, dk, dv, dLogDecay, dBeta, scale, writtenIn;
  ChunkMath math;
  Var queries, keys;
};

void GradKernel::writePlain() {
  int64_t C = math.C, K = math.K, VB = math.VB;
  // dS, dO M^T, V D'^T, the diagonal of dS, rowsum(M D')
  Vars sums{zeros({C, C}), zeros({C, K}), zeros({C, K}), zeros({C})};
  if (dLogDecay)
    sums.push_back(zeros({K}));
  sums = math.valueLoop(sums, [&](Index first, llvm::ArrayRef<Var> now) -> Vars {
    Var values = math.tokens(valuesIn, first, VB), d = math.tokens(doIn, first, VB);
    Var state = math.state(m, first, VB), dState = math.state(dx, first, VB);
    Vars next{dotTB(d, values, now[0]), dotTB(d, state, now[1]), dotTB(values, dState, now[2]),
              now[3] + sum(d * values, 1)};
    if (dLogDecay)
      next.push_back(now[4] + sum(state * dState, 1));
    return next;
  });
  Var scores = math.scores(queries, keys), p = math.decayed(mask(sums[0], tile::Keep::strict_lower));
  Var fromState = math.fromStart(sums[1]), toState = math.toEnd(sums[2]), keysToEnd = math.toEnd(keys);
  Var diagonal = expand(sums[3], 1, K);
  math.storeTokens((fromState + dot(p, keys) + diagonal * keys) * scale, dq, 0);
  math.storeTokens(toState + dotTA(p, queries) + diagonal * queries, dk, 0);
  if (dLogDecay) {
    Var w = mask(sums[0] * scores, tile::Keep::strict_lower);
    storeScalarDecay(w, sum(queries * fromState, 1), sum(keysToEnd * sums[2], 1), sums[4]);
  }
  math.valueLoop([&](Index first) {
    Var d = math.tokens(doIn, first, VB), dState = math.state(dx, first, VB);
    math.storeTokens(dotTA(scores, d, dot(keysToEnd, dState)), dv, first);
  });
}

/// All value columns are one tile, and what is computed of tokens lies in registers, as in writeWholeDelta().
void GradKernel::writeWholePlain() {
  int64_t VB = math.VB;
  Var d = math.tokens(doIn, 0, VB), values = math.tokens(valuesIn, 0, VB);
  Var state = math.state(m, 0, VB), dState = math.state(dx, 0, VB);
  Var scores = math.scores(queries, keys) * scale, ds = dotTB(d, values), z = math.decayed(ds) * scale;
  Var read = math.fromStart(dotTB(d, state)) * scale, start;
  if (dLogDecay)
    start = sum(queries * read, 1);
  math.storeTokens(dot(z, keys, read), dq, 0);
  Var written = math.toEnd(dotTB(values, dState)), end;
  if (dLogDecay)
    end = sum(keys * written, 1);
  math.storeTokens(dotTA(z, queries, written), dk, 0);
  if (dLogDecay)
    storeScalarDecay(mask(ds * scores, tile::Keep::strict_lower), start, end, sum(state * dState, 1));
  math.storeTokens(dotTA(scores, d, math.toEnd(dot(keys, dState))), dv, 0);
}

void GradKernel::writeDelta() {
  int64_t C = math.C, K = math.K, VB = math.VB;
  Var beta = math.gate(betaIn);
  Var scores = math.scores(queries, keys);
  Var similar = math.decayed(dotTB(keys, keys)), a = similar * expand(beta, 1, C); // E-weighted k_i.k_j, and A
  Var keysFromStart = math.fromStart(keys), keysToEnd = math.toEnd(keys);
  // dO U^T, -dH U^T, dO M^T, dV M^T, U D'^T, rowsum(dH R), then rowsum(M D')
  Vars sums{zeros({C, C}), zeros({C, C}), zeros({C, K}), zeros({C, K}), zeros({C, K}), zeros({C})};
  if (dLogDecay)
    sums.push_back(zeros({K}));
  sums = math.valueLoop(sums, [&](Index first, llvm::ArrayRef<Var> now) -> Vars {
    Var values = math.tokens(valuesIn, first, VB), d = math.tokens(doIn, first, VB);
    Var state = math.state(m, first, VB), dState = math.state(dx, first, VB);
    Var betaRows = expand(beta, 1, VB);
    Var residual = values - dot(keysFromStart, state);
    Var u = solve(a, residual * betaRows);
    Var dh = solve(a, dotTA(scores, d, dot(keysToEnd, dState)), /*transpose=*/true);
    Var dValues = dh * betaRows;
    math.storeTokens(dValues, dv, first);
    Vars next{dotTB(d, u, now[0]),           dotTB(-dh, u, now[1]),    dotTB(d, state, now[2]),
              dotTB(dValues, state, now[3]), dotTB(u, dState, now[4]), now[5] + sum(dh * residual, 1)};
    if (dLogDecay)
      next.push_back(now[6] + sum(state * dState, 1));
    return next;
  });
  Var z = math.decayed(sums[0]);
  Var da = mask(sums[1], tile::Keep::strict_lower);
  Var y = math.decayed(da * expand(beta, 1, C));
  math.storeGate(sums[5] + sum(da * similar, 1), dBeta);
  Var dQueriesState = math.fromStart(sums[2]), dKeysState = math.fromStart(sums[3]);
  Var dKeys = dotTA(z, queries, math.toEnd(sums[4]) - dKeysState);
  math.storeTokens(dot(z, keys, dQueriesState) * scale, dq, 0);
  math.storeTokens(dotTA(y, keys, dot(y, keys, dKeys)), dk, 0);
  if (dLogDecay) {
    Var w = mask(sums[0] * scores + da * a, tile::Keep::strict_lower);
    Var start = sum(queries * dQueriesState - keys * dKeysState, 1);
    storeScalarDecay(w, start, sum(keysToEnd * sums[4], 1), sums[6]);
  }
}

/// All value columns are one tile, and what is computed of tokens lies in registers (lower/ThreadColumns.cpp): products read what memory holds as it is,
/// rows are decayed and scaled behind them, and nothing of a token is kept but to be multiplied. Products with states come first: they take most room.
void GradKernel::writeWholeDelta() {
  int64_t C = math.C, K = math.K, VB = math.VB;
  Var beta = math.gate(betaIn), betaOfPairs = expand(beta, 1, C), betaRows = expand(beta, 1, VB);
  Var state = math.state(m, 0, VB), dState = math.state(dx, 0, VB), values = math.tokens(valuesIn, 0, VB);
  Var similar = math.decayed(dotTB(keys, keys)), a = similar * betaOfPairs;
  Var residual = values - math.fromStart(dot(keys, state));
  Var u = solve(a, residual * betaRows);
  Var d = math.tokens(doIn, 0, VB), scores = math.scores(queries, keys) * scale;
  Var dh = solve(a, dotTA(scores, d, math.toEnd(dot(keys, dState))), /*transpose=*/true);
  Var own = sum(dh * residual, 1);
  math.storeTokens(dh * betaRows, dv, 0);
  Var dQueriesState = math.fromStart(dotTB(d, state)) * scale, start, end, md;
  if (dLogDecay)
    start = sum(queries * dQueriesState, 1);
  Var dKeysState = math.fromStart(dotTB(dh, state)) * expand(beta, 1, K);
  if (dLogDecay) {
    start = start - sum(keys * dKeysState, 1);
    md = sum(state * dState, 1);
  }
  Var du = dotTB(d, u), z = math.decayed(du) * scale;
  math.storeTokens(dot(z, keys, dQueriesState), dq, 0);
  Var dKeysEnd = math.toEnd(dotTB(u, dState));
  if (dLogDecay)
    end = sum(keys * dKeysEnd, 1);
  Var dKeys = dKeysEnd - dKeysState;
  Var da = -mask(dotTB(dh, u), tile::Keep::strict_lower), daScaled = da * betaOfPairs;
  math.storeGate(own + sum(da * similar, 1), dBeta);
  Var y = math.decayed(daScaled);
  if (dLogDecay)
    storeScalarDecay(mask(du * scores + daScaled * similar, tile::Keep::strict_lower), start, end, md);
  math.storeTokens(dotTA(y, keys, dot(y, keys, dotTA(z, queries, dKeys))), dk, 0);
}

/// As writeWholeDelta(), where dV and X are in memory. What pairs give a log decay is what rows behind it read less what they write: rounded once for both, so that
/// it cancels, and no matrix of pairs is made. What ends give later tokens is all of them but for what they give earlier ones. A silent log decay gets 0: DecayTable.
void GradKernel::writeSplitDelta() {
  int64_t C = math.C, K = math.K, VB = math.VB;
  Var beta = math.gate(betaIn), difference, tail;
  auto pairs = [&](Var rows, Var written) { return math.decayed(dotTB(rows, written)) * expand(beta, 0, C); };
  Var d = math.tokens(doIn, 0, VB), dValues = math.tokens(dv, 0, VB);
  Var written = loadedAnew(math.written(writtenIn, 0, VB), 1);
  Var ofQueries = pairs(d, written) * scale, ofKeys = -mask(pairs(dValues, written), tile::Keep::strict_lower);
  Var state = math.state(m, 0, VB);
  Var dQueries = dot(ofQueries, keys, math.fromStart(dotTB(d, state)) * scale);
  if (dLogDecay)
    difference = sum(loadedAnew(math.keysOf(queriesIn), 1) * dQueries, 1);
  math.storeTokens(dQueries, dq, 0);
  Var readByKeys = math.fromStart(dotTB(dValues, state));
  Var dState = math.state(dx, 0, VB), writtenAgain = loadedAnew(math.written(writtenIn, 0, VB), 2);
  Var read = dot(ofKeys, keys, -readByKeys);
  if (dLogDecay)
    difference = difference + sum(widenedAnew(keys, 1) * read, 1);
  Var atEnd = math.toEnd(dotTB(writtenAgain, dState)) * expand(beta, 1, K);
  Var queriesAgain = loadedAnew(math.keysOf(queriesIn), 2);
  if (dLogDecay) {
    Var stateAgain = loadedAnew(math.state(m, 0, VB), 2);
    tail = sum(sum(widenedAnew(keys, 2) * atEnd, 1), 0) + math.acrossChunk() * sum(sum(stateAgain * dState, 1), 0);
  }
  Var write = dotTA(ofQueries, queriesAgain, dotTA(ofKeys, keys, atEnd));
  if (dLogDecay) {
    difference = cumsum(difference - sum(widenedAnew(keys, 3) * write, 1), 0, /*reverse=*/true) + splat(tail, {C});
    math.storeGate(select(lt(math.gate(decayIn), shape.silentLogDecay()), 0.0, difference), dLogDecay);
  }
  math.storeTokens(read + write, dk, 0);
}

} // namespace

void writeChunkGrad(KernelBuilder &k, const LsmShape &shape) { GradKernel(k, shape).write(); }

void writeChunkGradValues(KernelBuilder &k, const LsmShape &shape) {
  LsmBuffers in(k, shape);
  Var queriesIn = in.keys("q"), keysIn = in.keys("k"), decayIn = in.logDecay(), betaIn = in.beta();
  Var dx = in.states("dx"), doIn = in.values("d_o"), chunks = in.chunks(), dv = in.values("dv"), writtenIn, dBeta;
  llvm::SmallVector<std::pair<Var, int64_t>> outputs{{dv, shape.values}};
  if (!shape.vectorDecay()) {
    writtenIn = in.factor("written", shape.chunk, "value", shape.values);
    dBeta = in.beta("dbeta");
    outputs.push_back({dBeta, 0});
  }
  Var scale = k.scalar("scale", shape.compute);
  ChunkMath math(k, shape, chunks);
  forChunk(math, outputs, [&] {
    math.loadDecay(decayIn, /*scores=*/true);
    math.eitherWay([&] {
      Var queries = math.keysOf(queriesIn), keys = math.keysOf(keysIn), d = math.tokens(doIn, 0, math.VB);
      Var dState = math.state(dx, 0, math.VB), written, atEnd;
      if (dBeta) {
        written = math.written(writtenIn, 0, math.VB);
        atEnd = math.toEnd(dot(keys, dState));
      }
      DeltaTiles delta(math, betaIn, keys, queries);
      if (!atEnd)
        atEnd = dot(math.toEnd(delta.writing), dState);
      Var dWritten = solve(delta.a, dotTA(delta.scores * scale, d, atEnd), /*transpose=*/true);
      if (dBeta)
        math.storeGate(sum(dWritten * written, 1), dBeta);
      math.storeTokens(delta.times(dWritten), dv, 0);
    });
  });
}

} // namespace braid
