//===- LsmChunkKernels.cpp - states and outputs of chunks, and the cotangent of the in-state ----------------------===//
//
//   plain classes (I, S0, S, V)            delta classes (H, GH), lsm-family 4.4
//   X  = (K exp(c_C - c))^T V              X = (K exp(c_C - c))^T U0,  U0 = (I + A)^-1 beta V
//   P  = exp(c_C)                          P = exp(c_C) I - (K exp(c_C - c))^T W,  W = (I + A)^-1 beta exp(c) K
//   O  = (Q exp(c)) M + S V                O = (Q exp(c)) M + S U,  U = (I + A)^-1 beta (V - exp(c) K M)
//   dM = (Q exp(c))^T dO                   dM = (Q exp(c))^T dO - (K exp(c))^T dR,  dR = beta (I + A)^-T S^T dO
//   S_ij = q_i k_j^T exp(c_i - c_j), j <= i        A_ij = beta_i k_i k_j^T exp(c_i - c_j), j < i
//
// One program per (chunk, head, batch). dM is the part of the in-state's cotangent that comes through the chunk's own
// outputs; P^T D' is added by the state scan.
//
//===-------------------------------------------------------------------------------------------------------------===//
#include "passes/outline/LsmKernels.h"

using namespace mlir;

namespace braid {

/// beta_i k_i k_j^T exp(c_i - c_j): solve() reads its strictly lower triangle.
static Var deltaMatrix(ChunkMath &math, Var keys, Var beta) {
  return math.decayed(dotTB(keys, keys)) * expand(beta, 1, math.C);
}

void writeChunkState(KernelBuilder &k, const LsmShape &shape) {
  LsmBuffers in(k, shape);
  Var keysIn = in.keys("k"), valuesIn = in.values("v"), decayIn = in.logDecay(), betaIn = in.beta();
  Var chunks = in.chunks(), x = in.states("x"), p = in.transition();
  ChunkMath math(k, shape, chunks);
  forChunk(math, {}, [&] {
    Var keys = math.keysOf(keysIn);
    math.loadDecay(decayIn);
    Var beta, a;
    if (shape.delta()) {
      beta = math.gate(betaIn);
      a = deltaMatrix(math, keys, beta);
    }
    Var keysToEnd = math.toEnd(keys);
    math.valueLoop([&](Index first) {
      Var values = math.tokens(valuesIn, first, math.VB);
      if (shape.delta())
        values = solve(a, values * expand(beta, 1, math.VB));
      math.storeState(dotTA(keysToEnd, values), x, first);
    });
    if (!p)
      return;
    if (!shape.delta()) {
      Var total = cast(math.total(), shape.state);
      if (shape.vectorDecay())
        k.store(total, p, {math.b, math.n, math.h, 0});
      else
        k.put(total, p, {math.b, math.n, math.h});
      return;
    }
    Var across = shape.decays() ? math.acrossChunk() : k.constant(shape.compute, 1);
    auto columns = [&](Index first, Var block) {
      int64_t size = block.dim(1);
      Var w = solve(a, math.fromStart(block) * expand(beta, 1, size));
      Var column = k.iota({math.K, size}, 1) + cast(k.value(first), k.i32());
      Var diagonal = eq(k.iota({math.K, size}, 0), column);
      math.storeState(select(diagonal, splat(across, {math.K, size}), 0.0) - dotTA(keysToEnd, w), p, first);
    };
    if (math.K <= kDenseRows)
      return columns(0, keys);
    int64_t block = divisorUpTo(math.K, kDenseRows);
    k.loop(0, math.K, block, [&](Var first) { columns(first, math.tokens(keysIn, first, block)); });
  });
}

void writeChunkOutput(KernelBuilder &k, const LsmShape &shape) {
  LsmBuffers in(k, shape);
  Var queriesIn = in.keys("q"), keysIn = in.keys("k"), valuesIn = in.values("v"), decayIn = in.logDecay();
  Var betaIn = in.beta(), m = in.states("m"), chunks = in.chunks(), o = in.values("o");
  Var scale = k.scalar("scale", shape.compute);
  ChunkMath math(k, shape, chunks);
  forChunk(math, {{o, shape.values}}, [&] {
    Var keys = math.keysOf(keysIn), queries = math.keysOf(queriesIn) * scale;
    math.loadDecay(decayIn);
    Var scores = math.scores(queries, keys), queriesFromStart = math.fromStart(queries);
    Var beta, a, keysFromStart;
    if (shape.delta()) {
      beta = math.gate(betaIn);
      a = deltaMatrix(math, keys, beta);
      keysFromStart = math.fromStart(keys);
    }
    math.valueLoop([&](Index first) {
      Var values = math.tokens(valuesIn, first, math.VB), state = math.state(m, first, math.VB);
      if (shape.delta())
        values = solve(a, (values - dot(keysFromStart, state)) * expand(beta, 1, math.VB));
      math.storeTokens(dot(scores, values, dot(queriesFromStart, state)), o, first);
    });
  });
}

void writeChunkOutputGradState(KernelBuilder &k, const LsmShape &shape) {
  LsmBuffers in(k, shape);
  Var queriesIn = in.keys("q"), keysIn = shape.delta() ? in.keys("k") : Var(), decayIn = in.logDecay();
  Var betaIn = in.beta(), doIn = in.values("d_o"), chunks = in.chunks(), dm = in.states("dm");
  Var scale = k.scalar("scale", shape.compute);
  ChunkMath math(k, shape, chunks);
  forChunk(math, {}, [&] {
    Var queries = math.keysOf(queriesIn) * scale;
    math.loadDecay(decayIn);
    Var queriesFromStart = math.fromStart(queries);
    Var scores, beta, a, keysFromStart;
    if (shape.delta()) {
      Var keys = math.keysOf(keysIn);
      scores = math.scores(queries, keys);
      beta = math.gate(betaIn);
      a = deltaMatrix(math, keys, beta);
      keysFromStart = math.fromStart(keys);
    }
    math.valueLoop([&](Index first) {
      Var d = math.tokens(doIn, first, math.VB);
      Var cotangent = dotTA(queriesFromStart, d);
      if (shape.delta()) {
        Var dResidual = solve(a, dotTA(scores, d), /*transpose=*/true) * expand(beta, 1, math.VB);
        cotangent = cotangent - dotTA(keysFromStart, dResidual);
      }
      math.storeState(cotangent, dm, first);
    });
  });
}

} // namespace braid
