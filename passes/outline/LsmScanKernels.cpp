//===- LsmScanKernels.cpp - the chunk table, the scans over chunk states, and the decode step ---------------------===//
#include "passes/outline/LsmKernels.h"

using namespace mlir;

namespace braid {

// ---- chunk_table ----------------------------------------------------------------------------------------------------
//
//   Row r = (lo, hi, restart, phase). A chunk begins where a document begins, and every C tokens inside it; restart
//   says that the document begins at lo. Aligned: every C tokens from the beginning of the document, wherever it is,
//   and phase of these lie before lo. Rows past the last chunk are empty (hi = lo) and stand for the padding tokens, C
//   per row: chunk kernels write zeros there. Rows without tokens have lo = hi = T. Chunks come first, then the empty
//   rows. One program per batch row.
//
// A walk over the documents of the row (what has the same number is one), each of whose chunks stand side by side: their tokens are known once its
// end is. A GPU looks at many tokens at a time, for its threads wait for each look.
//
void writeChunkTable(KernelBuilder &k, int64_t chunkSize, bool aligned, bool gpu) {
  int64_t ahead = gpu ? 2048 : chunkSize, together = gpu ? 64 : 1; // tokens that are looked at, rows that are written
  constexpr int64_t turns = 16;
  Var documents = k.buffer("documents", k.i32(), {kDynamic, kDynamic}), chunks = chunkTable(k);
  Var b = k.program(0), tokens = k.size(documents, 1), count = k.size(chunks, 1);
  Type i32 = k.i32();
  Var zero = k.constant(i32, 0), one = k.constant(i32, 1), last = cast(tokens, i32), rows = cast(count, i32);
  auto index = [&](Var number) { return cast(number, tokens.type()); };

  // Where another number follows: in the first tokens where one does.
  auto endOf = [&](Var number, Var token) {
    auto look = [&](Var at, Var end) -> Vars {
      Var others = ne(k.load(documents, {b, at}, {ahead}, {.limit = tokens}), number);
      Var first = cast(at, i32) + k.iota({ahead}, 0);
      return {min(end, minimum(select(others, first, static_cast<double>(INT32_MAX)), 0))};
    };
    auto body = [&](Var at, llvm::ArrayRef<Var> now) -> Vars {
      return k.when(eq(now[0], last), [&] { return look(at, now[0]); }, [&] { return Vars{now[0]}; });
    };
    return k.loop(index(token), tokens, ahead, {last}, body, /*meanWalk=*/chunkSize)[0];
  };

  // Carried: the first token of the document and its first row. Behind the last one, what is left are rows without tokens; then nothing.
  auto document = [&](Var token, Var row) -> Vars {
    Var live = lt(token, last), number = k.at(documents, {b, min(index(token), tokens - 1.0)});
    Var padding = eq(number, INT32_MAX), counts = select(live, select(padding, zero, one), zero);
    Var end = endOf(number, token), phase = zero, size = token.like(static_cast<double>(chunkSize));
    if (aligned)
      phase = select(eq(counts, one), (token - number) % size, zero);
    Var begin = token - phase, step = select(live, size, zero);
    Var length = select(live, (end - begin + (size - one)) / size, rows - row);
    Var stop = min(index(row + length), count), restart = select(both(live, eq(number, token)), one, zero);
    auto writeRows = [&](Var at) {
      Var place = k.iota({together}, 0) + (cast(at, i32) - row);
      Var lo = max(place * step + begin, token), next = min((place + 1.0) * step + begin, end);
      auto put = [&](Var values, int64_t column) {
        k.store(values, chunks, {b, at, column}, {.limit = stop, .dims = {1}});
      };
      auto onlyFirst = [&](Var value) {
        return select(eq(place, 0), splat(value, {together}), k.tile({together}, i32));
      };
      put(lo, 0);
      put(lo + (next - lo) * counts, 1);
      put(onlyFirst(restart), 2);
      put(onlyFirst(phase), 3);
    };
    k.loop(index(row), stop, together, writeRows, /*meanWalk=*/1);
    return {end, row + length};
  };
  // There are as many turns as rows, of which few documents need few: those behind the last one are passed over many at a time.
  auto whileRows = [&](llvm::ArrayRef<Var> now, llvm::function_ref<Vars(Var token, Var row)> walk) {
    Var token = now[0], row = now[1];
    return k.when(lt(row, rows), [&] { return walk(token, row); }, [&] { return Vars{token, row}; });
  };
  k.loop(0, count, turns, {zero, zero}, [&](Var, llvm::ArrayRef<Var> now) -> Vars {
    return whileRows(now, [&](Var token, Var row) {
      return k.loop(0, turns, 1, {token, row},
                    [&](Var, llvm::ArrayRef<Var> now) -> Vars { return whileRows(now, document); });
    });
  });
}

// ---- state_scan -----------------------------------------------------------------------------------------------------
//
//   M <- P M + X over the chunks of a row; a chunk that restarts begins from zero. `m` gets the in-state of every
//   chunk. Backwards: D <- P^T D + dM, last chunk first; `dx` gets D' of every chunk's out-state. One program per
//   (block of value columns, head, batch): columns are independent. The state that walks is f32, whatever is stored.
//
TransitionKernel::TransitionKernel(KernelBuilder &k, const LsmShape &shape, Of of, Var p)
    : k(k), shape(shape), of(of), p(p), h(k.program(1)), b(k.program(2)), K(shape.keys), VB(shape.valueBlock()),
      first(k.program(0) * static_cast<double>(VB)) {}

Var TransitionKernel::load(Var states, Var n) {
  return cast(k.load(states, at(n, {0, first}), {K, VB}), shape.compute);
}
Var TransitionKernel::loadRow(Var states) { return cast(k.load(states, {b, h, 0, first}, {K, VB}), shape.compute); }
void TransitionKernel::store(Var tile, Var states, Var n) {
  k.store(cast(tile, states.element()), states, at(n, {0, first}));
}
void TransitionKernel::storeRow(Var tile, Var states) {
  k.store(cast(tile, states.element()), states, {b, h, 0, first});
}

Var TransitionKernel::factor(Var n) {
  Var stored = cast(shape.vectorDecay() ? k.load(p, at(n, {0}), {K}) : k.at(p, at(n, {})), shape.compute);
  return of == Of::chunks ? exp(stored) : stored;
}

Var TransitionKernel::apply(Var n, Var state, Var x, bool transposed) {
  if (!p)
    return state + x;
  if (shape.traits().dense)
    return applyDense(n, state, x, transposed);
  auto decay = [&](llvm::ArrayRef<Index> rest, Shape tile) {
    return exp(cast(k.load(p, at(n, rest), tile), shape.compute));
  };
  if (shape.elementDecay())
    return state * decay({0, first}, {K, VB}) + x;
  if (shape.valueDecay())
    state = state * expand(decay({first + static_cast<double>(K)}, {VB}), 0, K);
  Var one = shape.vectorDecay() ? expand(factor(n), 1, VB) : factor(n), sum = state * one + x;
  return of == Of::chunks ? sum : select(eq(one, 0.0), x, sum);
}

/// Class H, GH, VH and D: P is a matrix, read whole where it is small, else in blocks of rows. Where it is rounded, its decays
/// stand behind it.
Var TransitionKernel::applyDense(Var n, Var state, Var x, bool transposed) {
  Var added = x;
  if (p.element().isBF16()) {
    Var decay;
    for (int64_t part = 0; part < kDecayRows; ++part) {
      Var row = cast(k.load(p, at(n, {K + part, 0}), {K}), shape.compute);
      decay = decay ? decay + row : row;
    }
    added = state * expand(decay, 1, VB) + x;
  }
  auto rowsOfP = [&](Index first, int64_t count) {
    return cast(k.load(p, at(n, {first, 0}), {count, K}), shape.compute);
  };
  auto highest = [](Var part) { return maximum(maximum(abs(part), 1), 0); };
  // Of nothing nothing is left, though P be infinite: a document that nobody asks anything of, whatever it holds.
  Var nothing = of == Of::segments ? eq(highest(state), 0.0) : Var();
  if (K <= kDenseRows) {
    Var whole = rowsOfP(0, K), sum = dot(whole, state, added, {.transposeA = transposed});
    return of == Of::chunks ? sum : select(either(eq(highest(whole), 0.0), nothing), x, sum);
  }
  int64_t block = divisorUpTo(K, kDenseRows);
  if (of == Of::segments) {
    Var most = k.loop(0, K, block, {k.constant(shape.compute, 0)}, [&](Var first, llvm::ArrayRef<Var> now) -> Vars {
      return {max(now[0], highest(rowsOfP(first, block)))};
    })[0];
    state = select(eq(most, 0.0), 0.0, state);
  }
  Var sum = k.loop(0, K, block, {added}, [&](Var first, llvm::ArrayRef<Var> now) -> Vars {
    Var part = rowsOfP(first, block);
    if (transposed)
      return {dotTA(part, rows(state, first, block), now[0])};
    return {insertRows(dot(part, state, rows(now[0], first, block)), now[0], first)};
  })[0];
  return nothing ? select(nothing, x, sum) : sum;
}

/// They come first: every sixteenth row says between which two they end. A walk over all would wait for each row.
Var ChunkRows::used() {
  constexpr int64_t apart = 16;
  Var all = k.size(chunks, 1);
  auto lastFull = [&](Var lo, Var hi, int64_t step, Var before, double more) {
    return k.loop(lo, hi, step, {before}, [&](Var n, llvm::ArrayRef<Var> now) -> Vars {
      Var full = gt(k.at(chunks, {b, n, 1}), k.at(chunks, {b, n, 0}));
      return {select(full, n + more, now[0])};
    })[0];
  };
  Var near = lastFull(k.number(0), all, apart, k.number(0), 0);
  return lastFull(near, min(near + static_cast<double>(apart), all), 1, k.number(0), 1);
}
Var ChunkRows::unlessRestart(Var n, Var state) { return select(ne(k.at(chunks, {b, n, 2}), 0.0), 0.0, state); }

ChunkRows::Range ChunkRows::segment(Var used, Var number, int64_t segments, bool backwards) {
  if (segments == 1)
    return {used, k.number(0), used, backwards};
  Var each = (used + static_cast<double>(segments - 1)) / static_cast<double>(segments), from = number * each;
  return {used, from, min(from + each, used), backwards};
}

Vars ChunkRows::walk(const Range &range, Vars begin, llvm::function_ref<Var(Var)> number,
                     llvm::function_ref<Vars(const Step &)> body, size_t states) {
  bool backwards = range.backwards;
  auto parts = static_cast<double>(range.parts);
  auto times = [&](Var chunks) { return range.parts == 1 ? chunks : chunks * parts; };
  Var last = times(range.used) - 1.0;
  auto chunk = [&](Var i) { return backwards ? last - i : range.parts == 1 ? i : i / parts; };
  // A document begins in front of a chunk's first part.
  auto restarts = [&](Var i) {
    Var restart = k.at(chunks, {b, chunk(i), 2});
    return range.parts == 1 ? restart : select(eq(i % parts, 0.0), restart, 0.0);
  };
  // Hardly ever: no choice for each element.
  auto unless = [&](Var restart, llvm::MutableArrayRef<Var> state, int64_t meanWalk) {
    auto zero = [&](Var, llvm::ArrayRef<Var>) { return Vars(llvm::map_range(state, [](Var x) { return x.like(0); })); };
    Vars left = k.loop(0, cast(restart, k.builder.getIndexType()), 1, state, zero, meanWalk);
    llvm::copy(left, state.begin());
  };
  // Where a chunk restarts nothing goes into it, and backwards nothing out of it. What the first iteration is given has been computed with: of a number
  // that is still on its way when the loop begins, ptxas has every iteration wait until all numbers asked for have come, its own for the next one too.
  Var from = times(range.from), first = min(from, last);
  Vars carried = begin;
  carried.push_back(backwards ? k.constant(k.i32(), 0) : min(restarts(max(first, 0.0)), 1.0));
  if (number)
    carried.push_back(max(number(max(chunk(first), 0.0)), 0.0));
  size_t flag = begin.size();
  Vars out = k.loop(from, times(range.to), 1, carried, [&](Var i, llvm::ArrayRef<Var> now) -> Vars {
    Var after = min(i + 1.0, last), restart = restarts(backwards ? i : after),
        next = number ? number(chunk(after)) : Var();
    Vars here(now.take_front(flag));
    unless(now[flag], llvm::MutableArrayRef<Var>(here).take_front(states), 1);
    Vars results =
        body({chunk(i), backwards ? restart : now[flag], now.back(), here, range.parts == 1 ? Var() : i % parts});
    results.push_back(restart);
    if (number)
      results.push_back(next);
    return results;
  });
  if (backwards)
    unless(out[flag], llvm::MutableArrayRef<Var>(out).take_front(states), 0);
  out.truncate(flag);
  return out;
}

void writeStateScan(KernelBuilder &k, const LsmShape &shape) {
  LsmBuffers in(k, shape);
  Var x = in.states("x"), p = in.transition(), initial = in.rowState("initial_state"), chunks = in.chunks();
  Var m = in.multipliedStates("m"), final = in.rowState("final_state");
  TransitionKernel scan(k, shape, TransitionKernel::Of::chunks, p);
  ChunkRows table{k, chunks, scan.b};
  Vars out = k.loop(0, table.used(), 1, {scan.loadRow(initial)}, [&](Var n, llvm::ArrayRef<Var> now) -> Vars {
    Var state = table.unlessRestart(n, now[0]);
    scan.store(state, m, n);
    return {scan.apply(n, state, scan.load(x, n), /*transposed=*/false)};
  });
  scan.storeRow(out[0], final);
}

void writeStateScanGrad(KernelBuilder &k, const LsmShape &shape) {
  LsmBuffers in(k, shape);
  Var dm = in.states("dm"), p = in.transition(), dFinal = in.rowState("dfinal_state"), chunks = in.chunks();
  Var dx = in.multipliedStates("dx"), dInitial = in.rowState("dinitial_state");
  TransitionKernel scan(k, shape, TransitionKernel::Of::chunks, p);
  ChunkRows table{k, chunks, scan.b};
  Var used = table.used();
  Vars out = k.loop(0, used, 1, {scan.loadRow(dFinal)}, [&](Var i, llvm::ArrayRef<Var> now) -> Vars {
    Var n = used - 1.0 - i;
    scan.store(now[0], dx, n);
    return {table.unlessRestart(n, scan.apply(n, now[0], scan.load(dm, n), /*transposed=*/true))};
  });
  scan.storeRow(out[0], dInitial);
}

// ---- step -----------------------------------------------------------------------------------------------------------
//
//   M~ = exp(g) M;   plain: M' = M~ + k^T v;   delta: M' = M~ + k^T beta (v - k M~);   D: M' = M~ + b^T a M + k^T v
//   o = q M'
//   A document that begins here starts from zero; a padding token gives o = 0 and leaves the state as it is.
//   One program per (block of value columns, head, batch). The state may be updated in place.
//
void writeStep(KernelBuilder &k, const LsmShape &shape) {
  LsmBuffers in(k, shape);
  Var queriesIn = in.keys("q"), keysIn = in.keys("k"), valuesIn = in.values("v"), decayIn = in.logDecay(),
      betaIn = in.beta(), aIn = in.lowRank("a"), bIn = in.lowRank("b"), valueDecayIn = in.valueDecay();
  Var initial = in.rowState("initial_state"), documents = k.buffer("documents", k.i32(), {kDynamic, 1});
  Var o = in.values("o"), final = in.rowState("final_state"), scale = k.scalar("scale", shape.compute);
  int64_t K = shape.keys, VB = shape.valueBlock();
  Var h = k.program(1), b = k.program(2), first = k.program(0) * static_cast<double>(VB);
  Var document = k.at(documents, {b, 0}), padding = eq(document, INT32_MAX);

  auto vector = [&](Var buffer, Index column, int64_t size) {
    return cast(k.load(buffer, {b, 0, h, column}, {size}), shape.compute);
  };
  Var before = cast(k.load(initial, {b, h, 0, first}, {K, VB}), shape.compute);
  Var state = select(eq(document, 0.0), 0.0, before);
  Var keys = vector(keysIn, 0, K), values = vector(valuesIn, first, VB), queries = vector(queriesIn, 0, K) * scale;
  Var added;
  if (shape.lowRank()) {
    Var read = reshape(dot(reshape(vector(aIn, 0, K), {1, K}), state), {VB});
    added = expand(vector(bIn, 0, K), 1, VB) * expand(read, 0, K);
  }
  if (shape.valueDecay())
    state = state * expand(exp(vector(valueDecayIn, first, VB)), 0, K);
  if (shape.product) {
    Var rates = cast(k.load(decayIn, {h, 0, first}, {K, VB}), shape.compute);
    state = state * exp(rates * expand(vector(valueDecayIn, first, VB), 0, K));
  } else if (shape.elementDecay())
    state = state * exp(cast(k.load(decayIn, {b, 0, h, 0, first}, {K, VB}), shape.compute));
  else if (shape.vectorDecay())
    state = state * expand(exp(vector(decayIn, 0, K)), 1, VB);
  else if (shape.decays()) {
    Var g = shape.constantDecay() ? k.at(decayIn, {h}) : k.at(decayIn, {b, 0, h});
    state = state * exp(cast(g, shape.compute));
  }
  if (shape.delta()) {
    Var read = reshape(dot(reshape(keys, {1, K}), state), {VB});
    values = (values - read) * splat(cast(k.at(betaIn, {b, 0, h}), shape.compute), {VB});
  }
  if (added)
    state = state + added;
  state = state + expand(keys, 1, VB) * expand(values, 0, K);
  Var out = reshape(dot(reshape(queries, {1, K}), state), {VB});
  k.store(cast(select(padding, 0.0, out), o.element()), o, {b, 0, h, first});
  k.store(cast(select(padding, before, state), final.element()), final, {b, h, 0, first});
}

} // namespace braid
