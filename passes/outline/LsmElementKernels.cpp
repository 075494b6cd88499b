//===- LsmElementKernels.cpp - class E, a decay of every element of the state: a blocked scan ---------------------===//
//
//   M_t = exp(G_t) * M_{t-1} + k_t^T v_t      D_{t-1} = exp(G_t) * (D_t + q_t^T do_t)      (lsm-family 4.6)
//
// No matrix form exists: scores would need another decay for every pair of channels. A program walks the tokens of its
// chunk with a block of the state's columns in tiles; chunks meet in the state scan as they do for every class.
// chunk_grad walks twice: forwards, leaving exp(G_t) * M_{t-1} where dG_t will stand, and backwards.
//
//===-------------------------------------------------------------------------------------------------------------===//
#include "passes/outline/LsmKernels.h"

using namespace mlir;

namespace braid {

namespace {

/// Rows and blocks of one token at a time.
struct Walk {
  Walk(KernelBuilder &k, const LsmShape &shape, ChunkMath &math) : k(k), shape(shape), math(math) {}

  Var keys(Var buffer, Var t) { return vector(buffer, t, 0, math.K); }
  Var values(Var buffer, Var t, Index first) { return vector(buffer, t, first, math.VB); }
  Var vector(Var buffer, Var t, Index first, int64_t size) {
    return cast(k.load(buffer, {math.b, t, math.h, first}, {size}), shape.compute);
  }
  /// [K, VB] of a token [B, T, H, K, V].
  Var block(Var buffer, Var t, Index first) {
    return cast(k.load(buffer, {math.b, t, math.h, 0, first}, {math.K, math.VB}), shape.compute);
  }
  void storeBlock(Var tile, Var buffer, Var t, Index first) {
    k.store(cast(tile, buffer.element()), buffer, {math.b, t, math.h, 0, first});
  }
  Var outer(Var keys, Var values) { return expand(keys, 1, math.VB) * expand(values, 0, math.K); }
  /// For every token of the chunk, first to last or back.
  Vars forwards(llvm::ArrayRef<Var> carried, llvm::function_ref<Vars(Var t, llvm::ArrayRef<Var> now)> body) {
    return k.loop(math.lo, math.hi, 1, carried, body);
  }
  Vars backwards(llvm::ArrayRef<Var> carried, llvm::function_ref<Vars(Var t, llvm::ArrayRef<Var> now)> body) {
    return k.loop(0, math.hi - math.lo, 1, carried,
                  [&](Var i, llvm::ArrayRef<Var> now) { return body(math.hi - 1.0 - i, now); });
  }

  KernelBuilder &k;
  const LsmShape &shape;
  ChunkMath &math;
};

} // namespace

void writeElementChunkState(KernelBuilder &k, const LsmShape &shape) {
  LsmBuffers in(k, shape);
  Var keysIn = in.keys("k"), valuesIn = in.values("v"), decayIn = in.logDecay(), chunks = in.chunks();
  Var x = in.states("x"), p = in.transition();
  ChunkMath math(k, shape, chunks);
  Walk walk(k, shape, math);
  forChunk(math, {}, [&] {
    math.valueLoop([&](Index first) {
      Var zero = k.tile({math.K, math.VB}, shape.compute);
      Vars end = walk.forwards({zero, zero}, [&](Var t, llvm::ArrayRef<Var> now) -> Vars {
        Var decay = walk.block(decayIn, t, first);
        Var write = walk.outer(walk.keys(keysIn, t), walk.values(valuesIn, t, first));
        return {now[0] * exp(decay) + write, now[1] + decay};
      });
      math.storeState(end[0], x, first);
      math.storeState(end[1], p, first);
    });
  });
}

void writeElementChunkOutput(KernelBuilder &k, const LsmShape &shape) {
  LsmBuffers in(k, shape);
  Var queriesIn = in.keys("q"), keysIn = in.keys("k"), valuesIn = in.values("v"), decayIn = in.logDecay();
  Var m = in.states("m"), chunks = in.chunks(), o = in.values("o"), scale = k.scalar("scale", shape.compute);
  ChunkMath math(k, shape, chunks);
  Walk walk(k, shape, math);
  forChunk(math, {{o, shape.values}}, [&] {
    math.valueLoop([&](Index first) {
      walk.forwards({math.state(m, first, math.VB)}, [&](Var t, llvm::ArrayRef<Var> now) -> Vars {
        Var write = walk.outer(walk.keys(keysIn, t), walk.values(valuesIn, t, first));
        Var state = now[0] * exp(walk.block(decayIn, t, first)) + write;
        Var read = sum(state * expand(walk.keys(queriesIn, t) * scale, 1, math.VB), 0);
        k.store(cast(read, o.element()), o, {math.b, t, math.h, first});
        return {state};
      });
    });
  });
}

void writeElementChunkOutputGradState(KernelBuilder &k, const LsmShape &shape) {
  LsmBuffers in(k, shape);
  Var queriesIn = in.keys("q"), decayIn = in.logDecay(), doIn = in.values("d_o"), chunks = in.chunks();
  Var dm = in.states("dm"), scale = k.scalar("scale", shape.compute);
  ChunkMath math(k, shape, chunks);
  Walk walk(k, shape, math);
  forChunk(math, {}, [&] {
    math.valueLoop([&](Index first) {
      Var zero = k.tile({math.K, math.VB}, shape.compute);
      Vars begin = walk.backwards({zero}, [&](Var t, llvm::ArrayRef<Var> now) -> Vars {
        Var read = walk.outer(walk.keys(queriesIn, t) * scale, walk.values(doIn, t, first));
        return {(now[0] + read) * exp(walk.block(decayIn, t, first))};
      });
      math.storeState(begin[0], dm, first);
    });
  });
}

void writeElementChunkGrad(KernelBuilder &k, const LsmShape &shape) {
  LsmBuffers in(k, shape);
  Var queriesIn = in.keys("q"), keysIn = in.keys("k"), valuesIn = in.values("v"), decayIn = in.logDecay();
  Var m = in.states("m"), dx = in.states("dx"), doIn = in.values("d_o"), chunks = in.chunks(), dq = in.keys("dq");
  Var dk = in.keys("dk"), dv = in.values("dv"), dDecay = in.logDecay("dlog_decay");
  Var scale = k.scalar("scale", shape.compute);
  ChunkMath math(k, shape, chunks);
  Walk walk(k, shape, math);
  forChunk(math, {{dq, shape.keys}, {dk, shape.keys}, {dv, shape.values}, {dDecay, shape.keys}}, [&] {
    Var zero = k.tile({math.C, math.K}, shape.compute);
    auto addRow = [&](Var tile, Var at, Var value) { return insertRows(row(tile, at) + value, tile, at); };
    // dq and dk are sums over value columns.
    Vars sums = math.valueLoop({zero, zero}, [&](Index first, llvm::ArrayRef<Var> now) -> Vars {
      Vars read = walk.forwards({math.state(m, first, math.VB), now[0]}, [&](Var t, llvm::ArrayRef<Var> now) -> Vars {
        Var kept = now[0] * exp(walk.block(decayIn, t, first));
        walk.storeBlock(kept, dDecay, t, first);
        Var state = kept + walk.outer(walk.keys(keysIn, t), walk.values(valuesIn, t, first));
        Var d = sum(state * expand(walk.values(doIn, t, first), 0, math.K), 1) * scale;
        return {state, addRow(now[1], t - math.lo, d)};
      });
      Vars written =
          walk.backwards({math.state(dx, first, math.VB), now[1]}, [&](Var t, llvm::ArrayRef<Var> now) -> Vars {
            Var read = walk.outer(walk.keys(queriesIn, t) * scale, walk.values(doIn, t, first));
            Var d = now[0] + read, keys = walk.keys(keysIn, t), values = walk.values(valuesIn, t, first);
            walk.storeBlock(d * walk.block(dDecay, t, first), dDecay, t, first);
            Var dValues = sum(d * expand(keys, 1, math.VB), 0), dKeys = sum(d * expand(values, 0, math.K), 1);
            k.store(cast(dValues, dv.element()), dv, {math.b, t, math.h, first});
            return {d * exp(walk.block(decayIn, t, first)), addRow(now[1], t - math.lo, dKeys)};
          });
      return {read[1], written[1]};
    });
    math.storeTokens(sums[0], dq, 0);
    math.storeTokens(sums[1], dk, 0);
  });
}

} // namespace braid
