//===- LsmSegmentKernels.cpp - segments of ranks: from chunks, folded, composed -----------------------------------===//
//
//   segment   X <- P_n X + X_n,  P <- P_n P      over the chunks of a row, both 0 where a document begins
//   fold      M <- P_s M + X_s                   over segments; the state before one's own is kept
//   compose   X = P X' + X,  P = P P'            of this segment and the one before (') it
//   adjoints  D <- P^T D + dX, last one first;   P' P where segments compose from behind
//
// One program per (block of value columns, head, batch), as in the scan over chunk states.
//
//===-------------------------------------------------------------------------------------------------------------===//
#include "passes/outline/LsmKernels.h"

using namespace mlir;

namespace braid {

using Of = TransitionKernel::Of;

static Var zeroState(TransitionKernel &t) { return t.k.tile({t.K, t.VB}, t.shape.compute); }

//===- From chunks ------------------------------------------------------------------------------------------------===//

static void segmentState(KernelBuilder &k, const LsmShape &shape, bool adjoint) {
  LsmBuffers in(k, shape);
  Var x = in.states("x"), p = in.transition(), chunks = in.chunks(), out = in.segments("state");
  TransitionKernel scan(k, shape, Of::chunks, p);
  ChunkRows table{k, chunks, scan.b};
  Var used = table.used();
  Vars last = k.loop(0, used, 1, {zeroState(scan)}, [&](Var i, llvm::ArrayRef<Var> now) -> Vars {
    if (!adjoint)
      return {scan.apply(i, table.unlessRestart(i, now[0]), scan.load(x, i), /*transposed=*/false)};
    Var n = used - 1.0 - i;
    return {table.unlessRestart(n, scan.apply(n, now[0], scan.load(x, n), /*transposed=*/true))};
  });
  k.store(cast(last[0], out.element()), out, {0, scan.b, scan.h, 0, scan.first});
}
void writeSegmentState(KernelBuilder &k, const LsmShape &shape) { segmentState(k, shape, /*adjoint=*/false); }
void writeSegmentStateGrad(KernelBuilder &k, const LsmShape &shape) { segmentState(k, shape, /*adjoint=*/true); }

/// Dense classes: the shape's values are its keys, and a column of P is a state that begins as a column of I.
void writeSegmentTransition(KernelBuilder &k, const LsmShape &shape) {
  LsmBuffers in(k, shape);
  Var p = in.transition(), chunks = in.chunks(), out = in.factors("transition");
  TransitionKernel scan(k, shape, Of::chunks, p);
  ChunkRows table{k, chunks, scan.b};
  auto overChunks = [&](Var one, llvm::function_ref<Var(Var n, Var state)> times) {
    return k.loop(0, table.used(), 1, {one}, [&](Var n, llvm::ArrayRef<Var> now) -> Vars {
      return {times(n, table.unlessRestart(n, now[0]))};
    })[0];
  };
  auto product = [&](Var one, llvm::function_ref<Var(Var n, Var state)> times) {
    // Exactly 0 behind the beginning of a document, though P of its chunks be infinite.
    Var whole = overChunks(k.constant(shape.compute, 1), [](Var, Var all) { return all; });
    return cast(select(eq(whole, 0.0), 0.0, overChunks(one, times)), out.element());
  };
  if (shape.traits().dense) {
    Var column = k.iota({scan.K, scan.VB}, 1) + cast(scan.first, k.i32());
    Var one = cast(select(eq(k.iota({scan.K, scan.VB}, 0), column), k.tile({scan.K, scan.VB}, shape.compute, 1), 0.0),
                   shape.compute);
    Var zero = zeroState(scan);
    Var total = product(one, [&](Var n, Var state) { return scan.apply(n, state, zero, /*transposed=*/false); });
    k.store(total, out, {0, scan.b, scan.h, 0, scan.first});
    return;
  }
  auto times = [&](Var n, Var state) { return p ? state * scan.factor(n) : state; };
  if (shape.vectorDecay())
    k.store(product(k.tile({scan.K}, shape.compute, 1), times), out, {0, scan.b, scan.h, 0});
  else
    k.put(product(k.constant(shape.compute, 1), times), out, {0, scan.b, scan.h});
}

//===- Of ranks ---------------------------------------------------------------------------------------------------===//

static void fold(KernelBuilder &k, const LsmShape &shape, bool adjoint) {
  LsmBuffers in(k, shape);
  Var p = in.factors("p"), x = in.segments("x"), carry = in.rowState("carry");
  Var coordinate = k.buffer("coordinate", k.i32(), {1}), mine = in.rowState("mine"), last = in.rowState("last");
  TransitionKernel scan(k, shape, Of::segments, p);
  Var count = k.size(x, 0), own = cast(k.at(coordinate, {0}), k.builder.getIndexType());
  Vars out = k.loop(0, count, 1, {scan.loadRow(carry)}, [&](Var i, llvm::ArrayRef<Var> now) -> Vars {
    Var n = adjoint ? count - 1.0 - i : i;
    k.when(eq(n, own), [&] { scan.storeRow(now[0], mine); });
    return {scan.apply(n, now[0], scan.load(x, n), adjoint)};
  });
  scan.storeRow(out[0], last);
}
void writeFold(KernelBuilder &k, const LsmShape &shape) { fold(k, shape, /*adjoint=*/false); }
void writeFoldGrad(KernelBuilder &k, const LsmShape &shape) { fold(k, shape, /*adjoint=*/true); }

static void compose(KernelBuilder &k, const LsmShape &shape, bool adjoint) {
  LsmBuffers in(k, shape);
  Var p = in.factors("p"), x = in.segments("x"), other = in.segments("x_other"), result = in.segments("result");
  TransitionKernel scan(k, shape, Of::segments, p);
  Var zero = k.number(0);
  scan.store(scan.apply(zero, scan.load(other, zero), scan.load(x, zero), adjoint), result, zero);
}
void writeCompose(KernelBuilder &k, const LsmShape &shape) { compose(k, shape, /*adjoint=*/false); }
void writeComposeGrad(KernelBuilder &k, const LsmShape &shape) { compose(k, shape, /*adjoint=*/true); }

/// P P' (adjoint: P' P). Dense classes: the shape's values are its keys.
static void composeTransition(KernelBuilder &k, const LsmShape &shape, bool adjoint) {
  LsmBuffers in(k, shape);
  Var p = in.factors("p"), other = in.factors("p_other"), result = in.factors("transition");
  TransitionKernel outer(k, shape, Of::segments, adjoint ? other : p),
      inner(k, shape, Of::segments, adjoint ? p : other);
  Var zero = k.number(0);
  if (shape.traits().dense)
    return outer.store(outer.apply(zero, inner.load(inner.p, zero), zeroState(outer), /*transposed=*/false), result,
                       zero);
  Var one = outer.factor(zero), product = cast(select(eq(one, 0.0), 0.0, one * inner.factor(zero)), result.element());
  if (shape.vectorDecay())
    k.store(product, result, {0, outer.b, outer.h, 0});
  else
    k.put(product, result, {0, outer.b, outer.h});
}
void writeComposeTransition(KernelBuilder &k, const LsmShape &shape) { composeTransition(k, shape, false); }
void writeComposeTransitionGrad(KernelBuilder &k, const LsmShape &shape) { composeTransition(k, shape, true); }

} // namespace braid
