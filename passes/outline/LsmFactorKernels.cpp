//===- LsmFactorKernels.cpp - dense transitions as products of few rows, and the scans by them --------------------===//
//
//   P = diag(decay) + W^T R, X = W^T u (write, read and u of lsm.chunk_factors), w the decay to the end of the chunk
//   delta          W = w beta K,  R = -(I + A)^-1 (K exp(c)),          u = (I + A)^-1 V (DeltaTiles, beta of keys)
//   low rank (D)   W = w [B; K],  R = (I - A_ab)^-1 (A exp(c^)),       u = [(I - A_ab)^-1 A_ak V; V]
//
//   inverse (H, GH)  T = (I + A)^-1 diag(beta) alone: a walk that makes outputs multiplies by it what is left of V, and by keys itself (LsmOutputKernels.cpp)
//   of a walk (VH)   rows decayed already, K exp(c) and scale Q exp(c), and T = (I + A)^-1 in what reads and writes: T^T (w beta K) and scale S T. Decays of channels
//                    are most of what a walk would compute and a third of what it would read, and which way a chunk's scores are made is settled here.
//
//   scan           Z = u_1 + R M,   M <- decay M + W^T [Z; u_2];   Z is what the chunk writes, of a delta rule less its beta
//   its adjoint    D <- decay D + R^T (W_1 D) + G^T dO, last chunk first
//   G = exp(c) Q + S R (D: A_qb R): the rows by which outputs read the in-state, for U = u + R M. So dM = G^T dO, without a solve.
//
// A scan multiplies the state, which stays in registers (ThreadRows.cpp), twice a chunk by C rows that are on their way while the chunk before is
// multiplied; a matrix P would be K rows, and made first. What an iteration asks for outside of tiles, the decay and whether a document begins,
// is asked for by the one before.
//
//===-------------------------------------------------------------------------------------------------------------===//
#include "passes/outline/LsmKernels.h"

using namespace mlir;

namespace braid {

void writeChunkInverse(KernelBuilder &k, const LsmShape &shape) {
  LsmBuffers in(k, shape);
  Var keysIn = in.keys("k"), decayIn = in.logDecay(), betaIn = in.beta(), chunks = in.chunks();
  Var inverse = in.inverse(), sums = in.sums();
  ChunkMath math(k, shape, chunks);
  forChunk(math, {}, [&] {
    Var keys = math.keysOf(keysIn);
    math.loadDecay(decayIn, /*scores=*/false);
    Var beta = math.gate(betaIn);
    Var below = k.inverted(DeltaTiles(math, betaIn, keys).a), square = k.iota({math.C, math.C}, 0);
    Var one = select(eq(square, k.iota({math.C, math.C}, 1)), 1.0, below);
    k.store(cast(one * expand(beta, 0, math.C), inverse.element()), inverse, {math.b, math.n, math.h, 0, 0});
    if (!sums)
      return;
    Var g = math.gate(decayIn), c = cumsum(select(lt(g, kSilentLogDecay), kSilentLogDecay, g));
    Var toEnd = splat(row(c, k.number(math.C - 1)), {math.C}) - c;
    for (auto [row, x] : {std::pair(0, c), std::pair(1, exp(c)), std::pair(2, exp(toEnd))})
      k.store(x, sums, {math.b, math.n, math.h, row * math.C});
  });
}

namespace {

/// What a walk multiplies by (VH).
struct WalkFactors {
  WalkFactors(KernelBuilder &k, const LsmShape &shape)
      : k(k), shape(shape), in(k, shape), queriesIn(in.keys("q")), keysIn(in.keys("k")), decayIn(in.logDecay()),
        betaIn(in.beta()), chunks(in.chunks()), queriesOut(in.rowsOfChunks("queries")),
        keysOut(in.rowsOfChunks("keys")), write(in.rowsOfChunks("write")), scores(in.scoresOfChunks()),
        decay(in.decayOfChunks()), scale(k.scalar("scale", shape.compute)), math(k, shape, chunks) {}

  void writeKernel() {
    forChunk(math, {}, [&] {
      math.loadDecay(decayIn, /*scores=*/true);
      math.eitherWay([&] { math.isStrong() ? writeStrong() : writeMild(); });
      store(math.acrossChunk(), decay, 0);
    });
  }

private:
  void store(Var tile, Var buffer, Index first) {
    k.store(cast(tile, buffer.element()), buffer, {math.b, math.n, math.h, 0, first});
  }
  void writeMild() {
    Var keys = math.keysOf(keysIn), queries = math.keysOf(queriesIn) * scale;
    DeltaTiles delta(math, betaIn, keys, queries); // first, so that nothing is stored before all loads are on their way
    store(math.fromStart(keys), keysOut, 0);
    store(math.fromStart(queries), queriesOut, 0);
    store(dot(delta.scores, k.inverted(delta.a), delta.scores), scores, 0);
    // What a channel decays by is one behind the product, which takes what scores have been multiplied by.
    DecayTable table = math.keyDecay();
    Var across = table.entering ? table.entering : exp(table.last);
    Var right = solve(delta.a, table.rightOfScores(delta.writing), /*transpose=*/true);
    store(right * expand(across, 0, math.C), write, 0);
  }
  /// Pairs have many tiles, so some channels at a time.
  void writeStrong() {
    int64_t block = divisorUpTo(shape.keys, kStrongColumns);
    Var beta = expand(math.gate(betaIn), 1, block), zeros = k.tile({math.C, math.C}, shape.compute);
    auto decayOf = [&](Var first) { return math.decayTable(decayIn, first, block, /*scores=*/true).ofStrong(); };
    auto keysOf = [&](Var first) { return math.tokens(keysIn, first, block); };
    auto queriesOf = [&](Var first) { return math.tokens(queriesIn, first, block) * scale; };
    Vars pairs = k.loop(0, shape.keys, block, {zeros, zeros}, [&](Var first, llvm::ArrayRef<Var> now) -> Vars {
      DecayTable table = decayOf(first);
      Var keys = keysOf(first);
      PairScores some = strongPairs(k, table, {keys, queriesOf(first)}, {keys * beta}, {});
      return {now[0] + some.s[0][0], now[1] + some.s[1][0]};
    });
    store(dot(pairs[1], k.inverted(pairs[0]), pairs[1]), scores, 0);
    k.loop(0, shape.keys, block, [&](Var first) {
      DecayTable table = decayOf(first);
      Var keys = keysOf(first);
      store(table.fromStart(keys), keysOut, first);
      store(table.fromStart(queriesOf(first)), queriesOut, first);
      store(solve(pairs[0], table.toEnd(keys * beta), /*transpose=*/true), write, first);
    });
  }

  KernelBuilder &k;
  const LsmShape &shape;
  LsmBuffers in;
  Var queriesIn, keysIn, decayIn, betaIn, chunks, queriesOut, keysOut, write, scores, decay, scale;
  ChunkMath math;
};

} // namespace

void writeChunkWalkFactors(KernelBuilder &k, const LsmShape &shape) { WalkFactors(k, shape).writeKernel(); }

void writeChunkFactors(KernelBuilder &k, const LsmShape &shape) {
  LsmBuffers in(k, shape);
  Var keysIn = in.keys("k"), valuesIn = in.values("v"), decayIn = in.logDecay(), betaIn = in.beta();
  Var aIn = in.lowRank("a"), bIn = in.lowRank("b"), chunks = in.chunks();
  Var u = in.factor("u", shape.writtenRows(), "value", shape.values),
      write = in.factor("write", shape.writtenRows(), "key", shape.keys),
      read = in.factor("read", shape.chunk, "key", shape.keys), decay = in.decayOfChunks();
  ChunkMath math(k, shape, chunks);
  auto store = [&](Var tile, Var buffer, int64_t row, Index first) {
    k.store(cast(tile, buffer.element()), buffer, {math.b, math.n, math.h, row, first});
  };
  forChunk(math, {}, [&] {
    Var keys = math.keysOf(keysIn);
    math.loadDecay(decayIn, /*scores=*/shape.vectorDecay());
    if (shape.delta()) {
      math.eitherWay([&] {
        // Of all columns, if they are one tile: on their way while the triangle is inverted.
        Var all = math.VB == shape.values ? math.tokens(valuesIn, 0, math.VB) : Var();
        DeltaTiles delta(math, betaIn, keys, {}, DeltaTiles::Beta::keys);
        store(-solve(delta.a, math.fromStart(keys)), read, 0, 0);
        store(math.toEnd(delta.writing), write, 0, 0);
        math.valueLoop([&](Index first) {
          Var values = all ? all : math.tokens(valuesIn, first, math.VB);
          store(solve(delta.a, values), u, 0, first);
        });
      });
    } else {
      LowRankTiles low(math, aIn, bIn, keys);
      math.eitherWay([&] {
        store(solve(low.minusAb, low.aBefore), read, 0, 0);
        store(math.toEnd(low.b), write, 0, 0);
        store(math.toEnd(keys), write, math.C, 0);
        math.valueLoop([&](Index first) {
          Var values = math.tokens(valuesIn, first, math.VB);
          store(solve(low.minusAb, dot(low.ak, values)), u, 0, first);
          store(values, u, math.C, first);
        });
      });
    }
    if (!decay)
      return;
    Var across = cast(math.acrossChunk(), decay.element());
    if (shape.vectorDecay())
      k.store(across, decay, {math.b, math.n, math.h, 0, 0});
    else
      k.put(across, decay, {math.b, math.n, math.h});
  });
}

namespace {

/// The state of a block of value columns, and the factors of chunks.
struct FactorScan {
  FactorScan(KernelBuilder &k, const LsmShape &shape, Var write, Var read, Var decay, Var chunks)
      : k(k), shape(shape), kernel(k, shape, TransitionKernel::Of::chunks, {}), table{k, chunks, kernel.b},
        write(write), read(read), decay(decay), used(table.used()) {}

  /// The rows [first, first + C) of a factor.
  Var rowsOf(Var factor, Var n, int64_t first) {
    return cast(k.load(factor, kernel.at(n, {first, 0}), {shape.chunk, shape.keys}), shape.compute);
  }
  Var valuesOf(Var rows, Var n, int64_t first) {
    return cast(k.load(rows, kernel.at(n, {first, kernel.first}), {shape.chunk, kernel.VB}), shape.compute);
  }
  Var decayed(Var state, Var n, Var decayOfChunk) {
    if (!decay)
      return state;
    if (shape.vectorDecay()) // a row of one: what an iteration reads early has rows
      return state *
             expand(reshape(cast(k.load(decay, kernel.at(n, {0, 0}), {1, shape.keys}), shape.compute), {shape.keys}), 1,
                    kernel.VB);
    return state * cast(decayOfChunk, shape.compute);
  }
  Var walk(Var begin, bool backwards, llvm::function_ref<Var(Var n, Var state, Var decayOfChunk)> body) {
    ChunkRows::Range all{used, k.number(0), used, backwards};
    auto step = [&](const ChunkRows::Step &at) -> Vars { return {body(at.n, at.now[0], at.number)}; };
    auto number = [&](Var n) { return k.at(decay, kernel.at(n, {})); };
    if (decay && !shape.vectorDecay())
      return table.walk(all, {begin}, number, step)[0];
    return table.walk(all, {begin}, {}, step)[0];
  }

  KernelBuilder &k;
  const LsmShape &shape;
  TransitionKernel kernel;
  ChunkRows table;
  Var write, read, decay, used;
};

} // namespace

void writeFactorScan(KernelBuilder &k, const LsmShape &shape) {
  LsmBuffers in(k, shape);
  Var u = in.factor("u", shape.writtenRows(), "value", shape.values),
      write = in.factor("write", shape.writtenRows(), "key", shape.keys),
      read = in.factor("read", shape.chunk, "key", shape.keys), decay = in.decayOfChunks();
  Var initial = in.rowState("initial_state"), chunks = in.chunks();
  Var m = in.multipliedStates("m"), written = in.factor("written", shape.chunk, "value", shape.values),
      final = in.rowState("final_state");
  FactorScan scan(k, shape, write, read, decay, chunks);
  TransitionKernel &kernel = scan.kernel;
  auto body = [&](Var n, Var state, Var decayOfChunk) {
    kernel.store(state, m, n);
    Var rows = dot(scan.rowsOf(read, n, 0), state, scan.valuesOf(u, n, 0));
    k.store(cast(rows, written.element()), written, kernel.at(n, {0, kernel.first}));
    Var next = dotTA(scan.rowsOf(write, n, 0), rows, scan.decayed(state, n, decayOfChunk));
    return shape.lowRank() ? dotTA(scan.rowsOf(write, n, shape.chunk), scan.valuesOf(u, n, shape.chunk), next) : next;
  };
  kernel.storeRow(scan.walk(kernel.loadRow(initial), /*backwards=*/false, body), final);
}

void writeChunkOutputFactors(KernelBuilder &k, const LsmShape &shape) {
  LsmBuffers in(k, shape);
  Var queriesIn = in.keys("q"), keysIn = shape.lowRank() ? in.lowRank("b") : in.keys("k"), decayIn = in.logDecay();
  Var betaIn = in.beta();
  Var readIn = in.factor("read", shape.chunk, "key", shape.keys), doIn = in.values("d_o"), chunks = in.chunks();
  Var g = in.factor("g", shape.chunk, "key", shape.keys), d = in.factor("d", shape.chunk, "value", shape.values);
  Var scale = k.scalar("scale", shape.compute);
  ChunkMath math(k, shape, chunks);
  auto at = [&](Index first) { return llvm::SmallVector<Index, 5>{math.b, math.n, math.h, 0, first}; };
  forChunk(math, {}, [&] {
    Var keys = math.keysOf(keysIn), queries = math.keysOf(queriesIn), number;
    Var read = cast(k.load(readIn, at(0), {math.C, math.K}), shape.compute);
    if (shape.vectorDecay())
      queries = queries * scale;
    else
      number = scale; // behind the product, which multiplies what memory holds
    auto scaled = [&](Var x) { return number ? x * number : x; };
    math.valueLoop([&](Index first) { k.store(cast(math.tokens(doIn, first, math.VB), d.element()), d, at(first)); });
    math.loadDecay(decayIn, /*scores=*/true);
    math.eitherWay([&] {
      Var scores = scaled(betaIn ? scoresOfWriting(math, betaIn, queries, keys) : math.scores(queries, keys));
      k.store(cast(dot(scores, read, scaled(math.fromStart(queries))), g.element()), g, at(0));
    });
  });
}

void writeFactorScanGrad(KernelBuilder &k, const LsmShape &shape) {
  LsmBuffers in(k, shape);
  Var g = in.factor("g", shape.chunk, "key", shape.keys), d = in.factor("d", shape.chunk, "value", shape.values);
  Var write = in.factor("write", shape.writtenRows(), "key", shape.keys),
      read = in.factor("read", shape.chunk, "key", shape.keys), decay = in.decayOfChunks();
  Var dFinal = in.rowState("dfinal_state"), chunks = in.chunks();
  Var dx = in.multipliedStates("dx"), dInitial = in.rowState("dinitial_state");
  FactorScan scan(k, shape, write, read, decay, chunks);
  TransitionKernel &kernel = scan.kernel;
  auto body = [&](Var n, Var state, Var decayOfChunk) {
    kernel.store(state, dx, n);
    Var rows = dot(scan.rowsOf(write, n, 0), state);
    Var sum = dotTA(scan.rowsOf(read, n, 0), rows, scan.decayed(state, n, decayOfChunk));
    return dotTA(scan.rowsOf(g, n, 0), scan.valuesOf(d, n, 0), sum);
  };
  kernel.storeRow(scan.walk(kernel.loadRow(dFinal), /*backwards=*/true, body), dInitial);
}

} // namespace braid
