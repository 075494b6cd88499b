//===- LsmGradKernels.cpp - all cotangents inside a chunk, from M and D' = dL/dM' -----------------------------------===//
//
//   plain (I, S0, S, V), lsm-family 4.1, 4.2                delta (H, GH), 4.4
//   dS = tril(dO V^T)                                       R = V - exp(c) K M,  U = (I + A)^-1 beta R
//   dQ = exp(c) (dO M^T) + dS . k exp(c_i - c_j)            dU = S^T dO + (K w) D',  dH = (I + A)^-T dU,  dV = beta dH
//   dK = w (V D'^T) + dS^T . q exp(c_i - c_j)               Z = (dO U^T) E,  dA = -stril(dH U^T),  Y = beta dA E
//   dV = S^T dO + (K w) D'                                  dQ = exp(c) (dO M^T) + Z K
//   dg = rcumsum(q dq - k dk) + tail                        dK = Z^T Q + (Y + Y^T) K - exp(c) (dV M^T) + w (U D'^T)
//                                                           dbeta = rowsum(dH R) + rowsum(dA stril((K K^T) E))
//   w = exp(c_C - c), E_ij = exp(c_i - c_j)                 dg = rcumsum(q.dq - v.dv) + tail
//
// tail = rowsum(M' D') of the chunk's own out-state, without forming M':
//   rowsum(M' D') = exp(c_C) rowsum(M D') + colsum((K w) (U D'^T)),   U = V for plain classes.
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
        dLogDecay(shape.decayGradient() ? in.logDecay("dlog_decay") : Var()), dBeta(in.beta("dbeta")),
        scale(k.scalar("scale", shape.compute)), math(k, shape, chunks) {}

  void write() {
    llvm::SmallVector<std::pair<Var, int64_t>> outputs{{dq, shape.keys}, {dk, shape.keys}, {dv, shape.values}};
    if (dLogDecay)
      outputs.push_back({dLogDecay, shape.vectorDecay() ? shape.keys : 0});
    if (dBeta)
      outputs.push_back({dBeta, 0});
    forChunk(math, outputs, [&] {
      queries = math.keysOf(queriesIn) * scale;
      keys = math.keysOf(keysIn);
      math.loadDecay(decayIn);
      shape.delta() ? writeDelta() : writePlain();
    });
  }

private:
  void writePlain();
  void writeDelta();

  /// x + value, x possibly the empty start of an accumulation.
  Var zeros(Shape tile) { return k.tile(tile, shape.compute); }
  /// tail as [K]: `md` = rowsum(M D'), `ud` = U D'^T.
  Var tail(Var md, Var ud, Var keysToEnd) {
    Var across = math.acrossChunk();
    return md * across + sum(keysToEnd * ud, 0);
  }

  KernelBuilder &k;
  const LsmShape &shape;
  LsmBuffers in;
  Var queriesIn, keysIn, valuesIn, decayIn, betaIn, m, dx, doIn, chunks, dq, dk, dv, dLogDecay, dBeta, scale;
  ChunkMath math;
  Var queries, keys;
};

void GradKernel::writePlain() {
  int64_t C = math.C, K = math.K, VB = math.VB;
  // dS, dO M^T, V D'^T, rowsum(M D')
  Vars sums{zeros({C, C}), zeros({C, K}), zeros({C, K})};
  if (dLogDecay)
    sums.push_back(zeros({K}));
  sums = math.valueLoop(sums, [&](Index first, llvm::ArrayRef<Var> now) -> Vars {
    Var values = math.tokens(valuesIn, first, VB), d = math.tokens(doIn, first, VB);
    Var state = math.state(m, first, VB), dState = math.state(dx, first, VB);
    Vars next{dotTB(d, values, now[0]), dotTB(d, state, now[1]), dotTB(values, dState, now[2])};
    if (dLogDecay)
      next.push_back(now[3] + sum(state * dState, 1));
    return next;
  });
  auto [scores, dqInside, dkInside] = math.scoresAndGradients(queries, keys, sums[0]);
  Var dQueries = math.fromStart(sums[1]) + dqInside, dKeys = math.toEnd(sums[2]) + dkInside;
  Var keysToEnd = math.toEnd(keys);
  math.storeTokens(dQueries * scale, dq, 0);
  math.storeTokens(dKeys, dk, 0);
  if (dLogDecay) {
    Var product = queries * dQueries - keys * dKeys, end = tail(sums[3], sums[2], keysToEnd);
    if (shape.vectorDecay())
      math.storeTokens(cumsum(product, 0, /*reverse=*/true) + expand(end, 0, C), dLogDecay, 0);
    else
      math.storeGate(cumsum(sum(product, 1), 0, /*reverse=*/true) + splat(sum(end, 0), {C}), dLogDecay);
  }
  math.valueLoop([&](Index first) {
    Var d = math.tokens(doIn, first, VB), dState = math.state(dx, first, VB);
    math.storeTokens(dotTA(scores, d, dot(keysToEnd, dState)), dv, first);
  });
}

void GradKernel::writeDelta() {
  int64_t C = math.C, K = math.K, VB = math.VB;
  Var beta = math.gate(betaIn);
  Var scores = math.scores(queries, keys);
  Var similar = math.decayed(dotTB(keys, keys)), a = similar * expand(beta, 1, C); // E-weighted k_i.k_j, and A
  Var keysFromStart = math.fromStart(keys), keysToEnd = math.toEnd(keys);
  // dO U^T, -dH U^T, dO M^T, dV M^T, U D'^T, rowsum(dH R), then rowsum(M D') and v.dv
  Vars sums{zeros({C, C}), zeros({C, C}), zeros({C, K}), zeros({C, K}), zeros({C, K}), zeros({C})};
  if (dLogDecay)
    sums.append({zeros({K}), zeros({C})});
  sums = math.valueLoop(sums, [&](Index first, llvm::ArrayRef<Var> now) -> Vars {
    Var values = math.tokens(valuesIn, first, VB), d = math.tokens(doIn, first, VB);
    Var state = math.state(m, first, VB), dState = math.state(dx, first, VB);
    Var betaRows = expand(beta, 1, VB);
    Var residual = values - dot(keysFromStart, state);
    Var u = solve(a, residual * betaRows);
    Var dh = solve(a, dotTA(scores, d, dot(keysToEnd, dState)), /*transpose=*/true);
    Var dValues = dh * betaRows;
    math.storeTokens(dValues, dv, first);
    Vars next{dotTB(d, u, now[0]),       dotTB(-dh, u, now[1]),    dotTB(d, state, now[2]),
              dotTB(dValues, state, now[3]), dotTB(u, dState, now[4]), now[5] + sum(dh * residual, 1)};
    if (dLogDecay)
      next.append({now[6] + sum(state * dState, 1), now[7] + sum(values * dValues, 1)});
    return next;
  });
  Var z = math.decayed(sums[0]);
  Var da = mask(sums[1], tile::Keep::strict_lower);
  Var y = math.decayed(da * expand(beta, 1, C));
  math.storeGate(sums[5] + sum(da * similar, 1), dBeta);
  Var dQueries = dot(z, keys, math.fromStart(sums[2]));
  Var dKeys = dotTA(z, queries, math.toEnd(sums[4]) - math.fromStart(sums[3]));
  dKeys = dotTA(y, keys, dot(y, keys, dKeys));
  math.storeTokens(dQueries * scale, dq, 0);
  math.storeTokens(dKeys, dk, 0);
  if (dLogDecay) {
    Var end = sum(tail(sums[6], sums[4], keysToEnd), 0);
    Var product = sum(queries * dQueries, 1) - sums[7];
    math.storeGate(cumsum(product, 0, /*reverse=*/true) + splat(end, {C}), dLogDecay);
  }
}

} // namespace

void writeChunkGrad(KernelBuilder &k, const LsmShape &shape) { GradKernel(k, shape).write(); }

} // namespace braid
