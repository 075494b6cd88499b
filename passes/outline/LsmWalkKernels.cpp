//===- LsmWalkKernels.cpp - states of chunks, added up where they are multiplied ----------------------------------===//
//
//   forward   M <- exp(c_C) M + (K exp(c_C - c))^T V, first chunk to last; in memory: M in front of every chunk
//   adjoint   D <- exp(c_C) D + (Q exp(c))^T dO, last chunk first; in memory: D' behind every chunk
//
// lsm.chunk_state and lsm.state_scan hand on sums of K x V in f32, which are most of what they read and write. Under decays of numbers or of key
// channels the elements of a state meet no others, so a program that has some rows and columns of a head's state walks over its chunks with them in
// registers: warps own key channels, all tokens of a chunk (lower/ThreadRows.cpp), and sums of log decays are made where their channels are.
//
//   segments  X_s = what a walk over segment s leaves of zeros, P_s = what it leaves of ones, 0 where a document begins
//             M in front of segment s: M <- P_j M + X_j, j = 0 .. s - 1
// Where heads are few a row's chunks are cut into segments, which are walked side by side twice: once for X and P, then, from what those in front of it
// leave, for the states of chunks.
//
//===-------------------------------------------------------------------------------------------------------------===//
#include "passes/outline/LsmKernels.h"

using namespace mlir;

namespace braid {

namespace {

/// Programs (block of keys and values of a segment, head, batch); those of the same keys are neighbours.
struct StateWalkKernel {
  enum class Of { states, ends }; ///< of chunks, of segments

  StateWalkKernel(KernelBuilder &k, const LsmShape &shape, bool adjoint, Of of)
      : k(k), shape(shape), adjoint(adjoint), of(of), h(k.program(1)), b(k.program(2)), C(shape.chunk),
        KB(shape.keyBlock()), VB(shape.valueBlock()) {
    auto times = [](int64_t count) { return static_cast<double>(count); };
    int64_t blocks = shape.valueBlocks(), perHead = shape.keys / KB * blocks;
    segment = k.program(0) / times(perHead);
    Var block = shape.segments > 1 ? k.program(0) % times(perHead) : k.program(0);
    firstKey = block / times(blocks) * times(KB);
    firstValue = block % times(blocks) * times(VB);
  }

  void write() {
    LsmBuffers in(k, shape);
    keysIn = in.keys(adjoint ? "q" : "k");
    valuesIn = in.values(adjoint ? "d_o" : "v");
    decayIn = in.logDecay();
    chunks = in.chunks();
    of == Of::states ? writeStates(in) : writeEnds(in);
  }

private:
  Var edge(Var n, int64_t which) { return cast(k.at(chunks, {b, n, which}), k.builder.getIndexType()); }
  Var tokens(Var buffer, Var token, Var hi, Var first, int64_t width) {
    return cast(k.load(buffer, {b, token, h, first}, {C, width}, {.limit = hi, .dims = {1, 3}}), shape.compute);
  }
  /// [C, KB] from `token` on.
  Var logDecays(Var token, Var hi) {
    if (shape.vectorDecay())
      return tokens(decayIn, token, hi, firstKey, KB);
    if (!decayOfTokens())
      return select(lt(k.iota({C, KB}, 0) + cast(token, k.i32()), splat(cast(hi, k.i32()), {C, KB})),
                    constantDecay({C, KB}), 0.0);
    return expand(cast(k.load(decayIn, {b, token, h}, {C}, {.limit = hi, .dims = {1}}), shape.compute), 1, KB);
  }
  /// Of classes I and S0 the same for all tokens that are there.
  bool decayOfTokens() const { return shape.decays() && !shape.constantDecay(); }
  Var constantDecay(Shape tile) {
    return splat(decayIn ? cast(k.at(decayIn, {h}), shape.compute) : k.constant(shape.compute, 0), tile);
  }
  /// [KB] of one token: what an iteration reads early has rows.
  Var logDecay(Var token) {
    if (!decayOfTokens())
      return constantDecay({KB});
    Var one = shape.vectorDecay() ? k.load(decayIn, {b, token, h, firstKey}, {1, KB}, {.dims = {1, 3}})
                                  : expand(k.load(decayIn, {b, token, h}, {1}, {.dims = {1}}), 1, KB);
    return reshape(cast(one, shape.compute), {KB});
  }
  /// The state behind chunk n, and what it decays by, a logarithm. Each exponent is a sum of its own from its row to the end, or from the start:
  /// LsmChunk.h.
  std::pair<Var, Var> next(Var n, Var state) {
    Var lo = edge(n, 0), hi = edge(n, 1);
    Var keys = tokens(keysIn, lo, hi, firstKey, KB), values = tokens(valuesIn, lo, hi, firstValue, VB), total;
    if (adjoint) {
      Var c = cumsum(logDecays(lo, hi));
      total = row(c, k.number(C - 1));
      keys = keys * scale * decayFactor(c);
    } else {
      Var c = cumsum(logDecays(lo + 1.0, hi), 0, /*reverse=*/true);
      total = row(c, k.number(0)) + logDecay(lo);
      keys = keys * decayFactor(c);
    }
    return {dotTA(keys, values, state * expand(exp(total), 1, VB)), total};
  }
  /// The chunks of this segment.
  ChunkRows::Range range(ChunkRows &table) { return table.segment(table.used(), segment, shape.segments, adjoint); }
  Var loadBlock(Var buffer, Var first, Var second) {
    return cast(k.load(buffer, {first, second, h, firstKey, firstValue}, {KB, VB}), shape.compute);
  }
  void writeStates(LsmBuffers &in) {
    Var initial = in.rowState(adjoint ? "dfinal_state" : "initial_state"), x, p;
    if (shape.segments > 1) {
      x = in.segments("x");
      p = in.factorsOfKeys("p");
    }
    Var m = in.multipliedStates(adjoint ? "dx" : "m"), final = in.rowState(adjoint ? "dinitial_state" : "final_state");
    if (adjoint)
      scale = k.scalar("scale", shape.compute);
    ChunkRows table{k, chunks, b};
    ChunkRows::Range chunksOf = range(table);
    Var begin = cast(k.load(initial, {b, h, firstKey, firstValue}, {KB, VB}), shape.compute);
    if (x)
      begin = k.loop(0, segment, 1, {begin}, [&](Var j, llvm::ArrayRef<Var> now) -> Vars {
        Var all = expand(cast(k.load(p, {j, b, h, firstKey}, {KB}), shape.compute), 1, VB), left = loadBlock(x, j, b);
        return {select(eq(all, 0.0), left, now[0] * all + left)};
      })[0];
    Vars end = table.walk(chunksOf, {begin}, {}, [&](const ChunkRows::Step &at) -> Vars {
      k.store(cast(at.now[0], m.element()), m, {b, at.n, h, firstKey, firstValue});
      return {next(at.n, at.now[0]).first};
    });
    AccessOptions last; // segment: no rows of the others are there
    if (x)
      last.limit = select(eq(segment, static_cast<double>(shape.segments - 1)), k.number(shape.keys), 0.0);
    k.store(cast(end[0], final.element()), final, {b, h, firstKey, firstValue}, last);
  }

  void writeEnds(LsmBuffers &in) {
    Var x = in.segments("x"), p = in.factorsOfKeys("p");
    if (adjoint)
      scale = k.scalar("scale", shape.compute);
    ChunkRows table{k, chunks, b};
    Vars begin{k.tile({KB, VB}, shape.compute), k.tile({KB}, shape.compute), k.constant(k.i32(), 0)};
    Vars end = table.walk(range(table), begin, {}, [&](const ChunkRows::Step &at) -> Vars {
      auto [state, total] = next(at.n, at.now[0]);
      return {state, at.now[1] + total, max(at.now[2], at.restarts)};
    });
    k.store(cast(end[0], x.element()), x, {segment, b, h, firstKey, firstValue});
    k.store(cast(select(ne(end[2], 0.0), 0.0, exp(end[1])), p.element()), p, {segment, b, h, firstKey});
  }

  KernelBuilder &k;
  const LsmShape &shape;
  bool adjoint;
  Of of;
  Var h, b;
  int64_t C, KB, VB;
  Var segment, firstKey, firstValue, keysIn, valuesIn, decayIn, chunks, scale;
};

} // namespace

using Of = StateWalkKernel::Of;

void writeStateWalk(KernelBuilder &k, const LsmShape &shape) { StateWalkKernel(k, shape, false, Of::states).write(); }
void writeStateWalkGrad(KernelBuilder &k, const LsmShape &shape) {
  StateWalkKernel(k, shape, /*adjoint=*/true, Of::states).write();
}
void writeStateWalkEnds(KernelBuilder &k, const LsmShape &shape) { StateWalkKernel(k, shape, false, Of::ends).write(); }
void writeStateWalkGradEnds(KernelBuilder &k, const LsmShape &shape) {
  StateWalkKernel(k, shape, /*adjoint=*/true, Of::ends).write();
}

} // namespace braid
