//===- LsmWalkKernels.cpp - states of chunks, added up where they are multiplied ----------------------------------===//
//
//   forward   M <- exp(c_C) M + (K exp(c_C - c))^T V, first chunk to last; in memory: M in front of every chunk
//   adjoint   D <- exp(c_C) D + (Q exp(c))^T dO, last chunk first; in memory: D' behind every chunk
//
// lsm.chunk_state and lsm.state_scan hand on sums of K x V in f32, which are most of what they read and write. Under decays of numbers or of key
// channels the elements of a state meet no others, so a program that has some rows and columns of a head's state walks over its chunks with them in
// registers: warps own key channels, all tokens of a chunk (lower/ThreadRows.cpp), and sums of log decays are made where their channels are.
//
//===-------------------------------------------------------------------------------------------------------------===//
#include "passes/outline/LsmKernels.h"

using namespace mlir;

namespace braid {

namespace {

/// Programs (block of keys and values, head, batch); those of the same keys are neighbours.
struct StateWalkKernel {
  StateWalkKernel(KernelBuilder &k, const LsmShape &shape, Var decayIn, Var chunks)
      : k(k), shape(shape), decayIn(decayIn), chunks(chunks), h(k.program(1)), b(k.program(2)), C(shape.chunk),
        KB(shape.keyBlock()), VB(shape.valueBlock()) {
    auto blocks = static_cast<double>(shape.valueBlocks());
    firstKey = k.program(0) / blocks * static_cast<double>(KB);
    firstValue = k.program(0) % blocks * static_cast<double>(VB);
  }

  void write(bool adjoint) {
    LsmBuffers in(k, shape);
    Var initial = in.rowState(adjoint ? "dfinal_state" : "initial_state");
    Var m = in.multipliedStates(adjoint ? "dx" : "m"), final = in.rowState(adjoint ? "dinitial_state" : "final_state");
    if (adjoint)
      scale = k.scalar("scale", shape.compute);
    ChunkRows table{k, chunks, b};
    Var begin = cast(k.load(initial, {b, h, firstKey, firstValue}, {KB, VB}), shape.compute);
    Var end = table.walk(table.used(), begin, adjoint, {}, [&](Var n, Var state, Var) {
      k.store(cast(state, m.element()), m, {b, n, h, firstKey, firstValue});
      return next(n, state);
    });
    k.store(cast(end, final.element()), final, {b, h, firstKey, firstValue});
  }

  Var keysIn, valuesIn;

private:
  Var edge(Var n, int64_t which) { return cast(k.at(chunks, {b, n, which}), k.builder.getIndexType()); }
  Var tokens(Var buffer, Var token, Var hi, Var first, int64_t width) {
    return cast(k.load(buffer, {b, token, h, first}, {C, width}, {.limit = hi, .dims = {1, 3}}), shape.compute);
  }
  /// [C, KB] from `token` on.
  Var logDecays(Var token, Var hi) {
    if (shape.vectorDecay())
      return tokens(decayIn, token, hi, firstKey, KB);
    return expand(cast(k.load(decayIn, {b, token, h}, {C}, {.limit = hi, .dims = {1}}), shape.compute), 1, KB);
  }
  /// [KB] of one token: what an iteration reads early has rows.
  Var logDecay(Var token) {
    Var one = shape.vectorDecay() ? k.load(decayIn, {b, token, h, firstKey}, {1, KB}, {.dims = {1, 3}})
                                  : expand(k.load(decayIn, {b, token, h}, {1}, {.dims = {1}}), 1, KB);
    return reshape(cast(one, shape.compute), {KB});
  }
  /// Each exponent is a sum of its own from its row to the end, or from the start: LsmChunk.h.
  Var next(Var n, Var state) {
    Var lo = edge(n, 0), hi = edge(n, 1);
    Var keys = tokens(keysIn, lo, hi, firstKey, KB), values = tokens(valuesIn, lo, hi, firstValue, VB), total;
    if (scale) {
      Var c = cumsum(logDecays(lo, hi));
      total = row(c, k.number(C - 1));
      keys = keys * scale * decayFactor(c);
    } else {
      Var c = cumsum(logDecays(lo + 1.0, hi), 0, /*reverse=*/true);
      total = row(c, k.number(0)) + logDecay(lo);
      keys = keys * decayFactor(c);
    }
    return dotTA(keys, values, state * expand(exp(total), 1, VB));
  }

  KernelBuilder &k;
  const LsmShape &shape;
  Var decayIn, chunks, h, b;
  int64_t C, KB, VB;
  Var firstKey, firstValue, scale;
};

} // namespace

static void writeWalk(KernelBuilder &k, const LsmShape &shape, bool adjoint) {
  LsmBuffers in(k, shape);
  Var keysIn = in.keys(adjoint ? "q" : "k"), valuesIn = in.values(adjoint ? "d_o" : "v"), decayIn = in.logDecay();
  StateWalkKernel walk(k, shape, decayIn, in.chunks());
  walk.keysIn = keysIn;
  walk.valuesIn = valuesIn;
  walk.write(adjoint);
}
void writeStateWalk(KernelBuilder &k, const LsmShape &shape) { writeWalk(k, shape, /*adjoint=*/false); }
void writeStateWalkGrad(KernelBuilder &k, const LsmShape &shape) { writeWalk(k, shape, /*adjoint=*/true); }

} // namespace braid
