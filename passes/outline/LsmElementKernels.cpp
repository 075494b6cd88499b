//===- LsmElementKernels.cpp - class E, a decay of every element of the state: a blocked scan ---------------------===//
//
//   M_t = exp(G_t) * M_{t-1} + k_t^T v_t      D_{t-1} = exp(G_t) * (D_t + q_t^T do_t)      (lsm-family 4.6)
//
// No matrix form exists: scores would need another decay for every pair of channels. A program walks the tokens of its
// chunk with a block of the state's columns in tiles; chunks meet in the state scan as they do for every class.
// chunk_grad walks twice: forwards, leaving exp(G_t) * M_{t-1} where dG_t will stand, and backwards.
//
// Where G_t is a product, log_decay * value_decay_t (Mamba), no G is in memory: what the second walk needs of the first
// stays in a tile, and the cotangent of log_decay is a sum over the chunk.
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
  /// Reads the factor of all tokens for the block at `first`, if there is one: before decay().
  void begin(Var decayIn, Var valueDecayIn, Index first) {
    decays = decayIn;
    valueDecays = valueDecayIn;
    if (shape.product)
      rates = cast(k.load(decayIn, {math.h, 0, first}, {math.K, math.VB}), shape.compute);
  }
  Var decay(Var t, Index first) {
    return shape.product ? rates * expand(values(valueDecays, t, first), 0, math.K) : block(decays, t, first);
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
  Var decays, valueDecays, rates;
};

} // namespace

void writeElementChunkState(KernelBuilder &k, const LsmShape &shape) {
  LsmBuffers in(k, shape);
  Var keysIn = in.keys("k"), valuesIn = in.values("v"), decayIn = in.logDecay(), valueDecayIn = in.valueDecay();
  Var chunks = in.chunks(), x = in.states("x"), p = in.transition();
  ChunkMath math(k, shape, chunks);
  Walk walk(k, shape, math);
  forChunk(math, {}, [&] {
    math.valueLoop([&](Index first) {
      walk.begin(decayIn, valueDecayIn, first);
      Var zero = k.tile({math.K, math.VB}, shape.compute),
          none = shape.product ? k.tile({math.VB}, shape.compute) : zero;
      Vars end = walk.forwards({zero, none}, [&](Var t, llvm::ArrayRef<Var> now) -> Vars {
        Var decay = walk.decay(t, first), added = shape.product ? walk.values(valueDecayIn, t, first) : decay;
        Var write = walk.outer(walk.keys(keysIn, t), walk.values(valuesIn, t, first));
        return {now[0] * exp(decay) + write, now[1] + added};
      });
      math.storeState(end[0], x, first);
      math.storeState(shape.product ? walk.rates * expand(end[1], 0, math.K) : end[1], p, first);
    });
  });
}

void writeElementChunkOutput(KernelBuilder &k, const LsmShape &shape) {
  LsmBuffers in(k, shape);
  Var queriesIn = in.keys("q"), keysIn = in.keys("k"), valuesIn = in.values("v"), decayIn = in.logDecay();
  Var valueDecayIn = in.valueDecay(), m = in.states("m"), chunks = in.chunks(), o = in.values("o");
  Var scale = k.scalar("scale", shape.compute);
  ChunkMath math(k, shape, chunks);
  Walk walk(k, shape, math);
  forChunk(math, {{o, shape.values}}, [&] {
    math.valueLoop([&](Index first) {
      walk.begin(decayIn, valueDecayIn, first);
      walk.forwards({math.state(m, first, math.VB)}, [&](Var t, llvm::ArrayRef<Var> now) -> Vars {
        Var write = walk.outer(walk.keys(keysIn, t), walk.values(valuesIn, t, first));
        Var state = now[0] * exp(walk.decay(t, first)) + write;
        Var read = sum(state * expand(walk.keys(queriesIn, t) * scale, 1, math.VB), 0);
        k.store(cast(read, o.element()), o, {math.b, t, math.h, first});
        return {state};
      });
    });
  });
}

void writeElementChunkOutputGradState(KernelBuilder &k, const LsmShape &shape) {
  LsmBuffers in(k, shape);
  Var queriesIn = in.keys("q"), decayIn = in.logDecay(), valueDecayIn = in.valueDecay(), doIn = in.values("d_o");
  Var chunks = in.chunks(), dm = in.states("dm"), scale = k.scalar("scale", shape.compute);
  ChunkMath math(k, shape, chunks);
  Walk walk(k, shape, math);
  forChunk(math, {}, [&] {
    math.valueLoop([&](Index first) {
      walk.begin(decayIn, valueDecayIn, first);
      Var zero = k.tile({math.K, math.VB}, shape.compute);
      Vars begin = walk.backwards({zero}, [&](Var t, llvm::ArrayRef<Var> now) -> Vars {
        Var read = walk.outer(walk.keys(queriesIn, t) * scale, walk.values(doIn, t, first));
        return {(now[0] + read) * exp(walk.decay(t, first))};
      });
      math.storeState(begin[0], dm, first);
    });
  });
}

void writeElementChunkGrad(KernelBuilder &k, const LsmShape &shape) {
  LsmBuffers in(k, shape);
  Var queriesIn = in.keys("q"), keysIn = in.keys("k"), valuesIn = in.values("v"), decayIn = in.logDecay();
  Var valueDecayIn = in.valueDecay(), m = in.states("m"), dx = in.states("dx"), doIn = in.values("d_o");
  Var chunks = in.chunks(), dq = in.keys("dq"), dk = in.keys("dk"), dv = in.values("dv");
  Var dDecay = shape.product ? in.sumsOfChunks("dlog_decay") : in.logDecay("dlog_decay");
  Var dValueDecay = in.valueDecay("dvalue_decay"), scale = k.scalar("scale", shape.compute);
  ChunkMath math(k, shape, chunks);
  Walk walk(k, shape, math);
  int64_t K = math.K, VB = math.VB;
  llvm::SmallVector<std::pair<Var, int64_t>> outputs{{dq, shape.keys}, {dk, shape.keys}, {dv, shape.values}};
  outputs.push_back(shape.product ? std::pair(dValueDecay, shape.values) : std::pair(dDecay, shape.keys));
  if (shape.product)
    k.when(le(math.hi, math.lo), [&] {
      math.valueLoop(
          [&](Index first) { k.store(k.tile({K, VB}, shape.compute), dDecay, {math.b, math.n, math.h, 0, first}); });
    });
  forChunk(math, outputs, [&] {
    Var zero = k.tile({math.C, K}, shape.compute);
    auto addRow = [&](Var tile, Var at, Var value) { return insertRows(row(tile, at) + value, tile, at); };
    // dq and dk are sums over value columns.
    Vars sums = math.valueLoop({zero, zero}, [&](Index first, llvm::ArrayRef<Var> now) -> Vars {
      walk.begin(decayIn, valueDecayIn, first);
      Vars carried{math.state(m, first, VB), now[0]};
      if (shape.product)
        carried.push_back(k.tile({math.C, K * VB}, shape.compute));
      Vars read = walk.forwards(carried, [&](Var t, llvm::ArrayRef<Var> now) -> Vars {
        Var kept = now[0] * exp(walk.decay(t, first));
        if (!shape.product)
          walk.storeBlock(kept, dDecay, t, first);
        Var state = kept + walk.outer(walk.keys(keysIn, t), walk.values(valuesIn, t, first));
        Var d = sum(state * expand(walk.values(doIn, t, first), 0, K), 1) * scale;
        Vars next{state, addRow(now[1], t - math.lo, d)};
        if (shape.product)
          next.push_back(insertRows(reshape(kept, {K * VB}), now[2], t - math.lo));
        return next;
      });
      Vars behind{math.state(dx, first, VB), now[1]};
      if (shape.product)
        behind.push_back(k.tile({K, VB}, shape.compute));
      Vars written = walk.backwards(behind, [&](Var t, llvm::ArrayRef<Var> now) -> Vars {
        Var asked = walk.outer(walk.keys(queriesIn, t) * scale, walk.values(doIn, t, first));
        Var d = now[0] + asked, keys = walk.keys(keysIn, t), values = walk.values(valuesIn, t, first);
        Var kept = shape.product ? reshape(row(read[2], t - math.lo), {K, VB}) : walk.block(dDecay, t, first);
        Var dG = d * kept, sumOfDecays;
        if (shape.product) {
          Var byValue = walk.values(valueDecayIn, t, first);
          sumOfDecays = now[2] + dG * expand(byValue, 0, K);
          k.store(cast(sum(dG * walk.rates, 0), dValueDecay.element()), dValueDecay, {math.b, t, math.h, first});
        } else {
          walk.storeBlock(dG, dDecay, t, first);
        }
        Var dValues = sum(d * expand(keys, 1, VB), 0), dKeys = sum(d * expand(values, 0, K), 1);
        k.store(cast(dValues, dv.element()), dv, {math.b, t, math.h, first});
        Vars next{d * exp(walk.decay(t, first)), addRow(now[1], t - math.lo, dKeys)};
        if (shape.product)
          next.push_back(sumOfDecays);
        return next;
      });
      if (shape.product)
        k.store(written[2], dDecay, {math.b, math.n, math.h, 0, first});
      return {read[1], written[1]};
    });
    math.storeTokens(sums[0], dq, 0);
    math.storeTokens(sums[1], dk, 0);
  });
}

} // namespace braid
