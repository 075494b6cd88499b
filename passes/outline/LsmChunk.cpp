//===- LsmChunk.cpp - decay tables and score tiles of a chunk -----------------------------------------------------===//
#include "passes/outline/LsmChunk.h"

#include "llvm/Support/FormatVariadic.h"

using namespace mlir;

namespace braid {

//===- The class --------------------------------------------------------------------------------------------------===//

llvm::StringRef LsmShape::className() const {
  switch (classId) {
  case LsmClass::I: return "i";
  case LsmClass::S0: return "s0";
  case LsmClass::S: return "s";
  case LsmClass::V: return "v";
  case LsmClass::H: return "h";
  case LsmClass::GH: return "gh";
  }
  llvm_unreachable("all classes are covered");
}

std::string LsmShape::kernelName(llvm::StringRef what) const {
  std::string name = llvm::formatv("lsm_{0}_{1}_h{2}_k{3}_v{4}", what, className(), heads, keys, values);
  if (chunk)
    name += llvm::formatv("_c{0}", chunk);
  name += "_" + typeName(token ? token : state);
  // Gates and states normally have the type computed in.
  for (auto [mark, type] : {std::pair("g", gate), std::pair("b", beta), std::pair("m", state)})
    if (type && type != compute)
      name += "_" + std::string(mark) + typeName(type);
  return name;
}

//===- Tiles in memory --------------------------------------------------------------------------------------------===//

ChunkMath::ChunkMath(KernelBuilder &k, const LsmShape &shape, Var chunks)
    : k(k), shape(shape), n(k.program(1)), h(k.program(0)), b(k.program(2)),
      lo(cast(k.at(chunks, {b, n, 0}), k.builder.getIndexType())),
      hi(cast(k.at(chunks, {b, n, 1}), k.builder.getIndexType())), C(shape.chunk), K(shape.keys),
      VB(shape.valueBlock()) {}

Var ChunkMath::tokens(Var buffer, Index first, int64_t size) {
  return cast(k.load(buffer, {b, lo, h, first}, {C, size}, {.limit = hi, .dims = {1, 3}}), shape.compute);
}

Var ChunkMath::gate(Var buffer) {
  return cast(k.load(buffer, {b, lo, h}, {C}, {.limit = hi, .dims = {1}}), shape.compute);
}

Var ChunkMath::state(Var buffer, Index first, int64_t size) {
  return cast(k.load(buffer, {b, n, h, 0, first}, {K, size}), shape.compute);
}

void ChunkMath::storeTokens(Var tile, Var buffer, Index first) {
  k.store(cast(tile, buffer.element()), buffer, {b, lo, h, first}, {.limit = hi, .dims = {1, 3}});
}

void ChunkMath::storeGate(Var tile, Var buffer) {
  k.store(cast(tile, buffer.element()), buffer, {b, lo, h}, {.limit = hi, .dims = {1}});
}

void ChunkMath::storeState(Var tile, Var buffer, Index first) {
  k.store(cast(tile, buffer.element()), buffer, {b, n, h, 0, first});
}

//===- Decays -----------------------------------------------------------------------------------------------------===//

void ChunkMath::loadDecay(Var logDecay) {
  if (!shape.decays())
    return;
  Type wide = k.f64();
  if (shape.constantDecay()) {
    // g is the same for every token: c_i = g min(i + 1, hi - lo), exact without a sum.
    Var g = cast(k.at(logDecay, {h}), wide);
    Var length = cast(hi - lo, k.i32());
    Var count = min(k.iota({C}, 0) + 1.0, splat(length, {C}));
    c = cast(count, wide) * g;
  } else if (shape.vectorDecay()) {
    auto from = [&](Var first) {
      return cast(k.load(logDecay, {b, first, h, 0}, {C, K}, {.limit = hi, .dims = {1, 3}}), shape.compute);
    };
    g = from(lo);
    gNext = from(lo + 1.0);
    c = cumsum(g);
  } else {
    c = cumsum(cast(k.load(logDecay, {b, lo, h}, {C}, {.limit = hi, .dims = {1}}), wide));
  }
}

Var ChunkMath::exponential(Var difference) { return exp(cast(min(difference, 0.0), shape.compute)); }

Var ChunkMath::total() { return shape.vectorDecay() ? sum(g, 0) : row(c, k.number(C - 1)); }

Var ChunkMath::acrossChunk() { return shape.decays() ? exponential(total()) : Var(); }

Var ChunkMath::fromStart(Var x) {
  if (!shape.decays())
    return x;
  Var decay = exponential(c);
  return x * (shape.vectorDecay() ? decay : expand(decay, 1, x.dim(1)));
}

Var ChunkMath::toEnd(Var x) {
  if (!shape.decays())
    return x;
  if (shape.vectorDecay())
    return x * exponential(cumsum(gNext, 0, /*reverse=*/true));
  return x * expand(exponential(splat(total(), {C}) - c), 1, x.dim(1));
}

Var ChunkMath::decayed(Var x) {
  assert(!shape.vectorDecay());
  if (!shape.decays())
    return mask(x, tile::Keep::lower);
  if (!weight)
    weight = mask(exponential(expand(c, 1, C) - expand(c, 0, C)), tile::Keep::lower);
  return x * weight;
}

//===- Scores -----------------------------------------------------------------------------------------------------===//

Var ChunkMath::scores(Var q, Var keys) {
  return shape.vectorDecay() ? vectorScores(q, keys, {}).s : decayed(dotTB(q, keys));
}

ChunkMath::Scores ChunkMath::scoresAndGradients(Var q, Var keys, Var ds) {
  if (shape.vectorDecay())
    return vectorScores(q, keys, ds);
  Var p = decayed(mask(ds, tile::Keep::strict_lower));
  return {decayed(dotTB(q, keys)), dot(p, keys), dotTA(p, q)};
}

/// exp(R - c_j) of rows [first, first + count), R the cumulative decay of the last of them.
Var ChunkMath::toLast(Var first, int64_t count) {
  Var before = exponential(cumsum(rows(gNext, first, count - 1), 0, /*reverse=*/true));
  return insertRows(before, k.tile({count, K}, shape.compute, 1), k.number(0));
}

// R: the cumulative decay before a row I starts at. Columns J before it are products of decayed rows, both exponents
// <= 0 (lsm-family 4.2):   S_IJ = (Q_I exp(c_I - R)) (K_J exp(R - c_J))^T
// for every tile of 16 rows and all columns before it, then for the second 8 rows of a tile and its first 8 columns.
// exp(R - c_J) goes from tile to tile by a factor exp(R' - R). Blocks of 8 x 8 on the diagonal walk their columns from
// right to left: exp(c_i - c_j) = exp(c_i - c_j+1) exp(g_j+1), so that no pair of tokens takes an exponential.
ChunkMath::Scores ChunkMath::vectorScores(Var q, Var keys, Var ds) {
  constexpr int64_t N = kScoreRows;
  bool gradients = static_cast<bool>(ds);
  if (gradients)
    ds = mask(ds, tile::Keep::strict_lower);
  Scores near = nearScores(q, keys, ds);
  Scores out{zeros({C, C}), near.dq, near.dk};
  Var ek = zeros({C, K}), eq; // exp(R - c_j), exp(c_i - R)
  for (int64_t first = 0; first < C; first += N) {
    Var at = k.number(first);
    Vars tiles;
    if (first) {
      Var last = k.number(first - N);
      if (first > N) // eq of the tile before ends with exp(R' - R)
        ek = insertRows(rows(ek, k.number(0), first - N) * expand(row(eq, k.number(N - 1)), 0, first - N), ek,
                        k.number(0));
      ek = insertRows(toLast(last, N), ek, last);
      eq = exponential(cumsum(rows(g, at, N)));
      Var qDecayed = rows(q, at, N) * eq;
      Var eBefore = rows(ek, k.number(0), first), kDecayed = rows(keys, k.number(0), first) * eBefore;
      tiles.push_back(dotTB(qDecayed, kDecayed));
      if (gradients) {
        Var d = slice(rows(ds, at, N), 0, first);
        out.dq = insertRows(rows(out.dq, at, N) + eq * dot(d, kDecayed), out.dq, at);
        Var dkBefore = rows(out.dk, k.number(0), first) + eBefore * dotTA(d, qDecayed);
        out.dk = insertRows(dkBefore, out.dk, k.number(0));
      }
    }
    tiles.push_back(mask(rows(near.s, at, N), tile::Keep::lower));
    if (first + N < C)
      tiles.push_back(zeros({N, C - first - N}));
    out.s = insertRows(concat(tiles), out.s, at);
  }
  return out;
}

/// What stays inside a tile of 16 rows: s [C, 16], row i for the columns of its own tile.
ChunkMath::Scores ChunkMath::nearScores(Var q, Var keys, Var ds) {
  constexpr int64_t N = kScoreRows, B = N / 2;
  bool gradients = static_cast<bool>(ds);
  Var dsNear, decays = exponential(gNext);
  Vars sums{zeros({C, N})};
  if (gradients) {
    sums.append({zeros({C, K}), zeros({C, K})});
    dsNear = zeros({C, N});
    for (int64_t first = 0; first < C; first += N)
      dsNear = insertRows(slice(rows(ds, k.number(first), N), first, N), dsNear, k.number(first));
  }
  auto blockAt = [&](Var first, Var dsBlock) -> Vars { // S^T, dq, dk of 8 tokens
    Var qi = rows(q, first, B), ki = rows(keys, first, B);
    Var dsColumns = gradients ? transpose(dsBlock) : Var();
    Vars carried{zeros({B, K}), zeros({B, B})};
    if (gradients)
      carried.append({zeros({B, K}), zeros({B, K})});
    Vars found = k.loop(0, B, 1, carried, [&](Var step, llvm::ArrayRef<Var> now) -> Vars {
      Var j = k.number(B - 1) - step;
      // Rows before j are 0, row j itself meets no decay.
      Var w = insertRows(k.tile({K}, shape.compute, 1), now[0] * expand(row(decays, first + j), 0, B), j);
      Var weighted = expand(row(ki, j), 0, B) * w;
      Vars next{w, insertRows(sum(qi * weighted, 1), now[1], j)};
      if (gradients) {
        Var d = expand(row(dsColumns, j), 1, K);
        next.append({now[2] + d * weighted, insertRows(sum(d * w * qi, 0), now[3], j)});
      }
      return next;
    });
    found.erase(found.begin());
    return found;
  };
  sums = k.loop(0, C, N, sums, [&](Var first, llvm::ArrayRef<Var> now) -> Vars {
    Var middle = first + static_cast<double>(B);
    Var eq = exponential(cumsum(rows(g, middle, B))), qDecayed = rows(q, middle, B) * eq;
    Var ek = toLast(first, B), kDecayed = rows(keys, first, B) * ek;
    Var upper = gradients ? rows(dsNear, first, B) : Var(), lower = gradients ? rows(dsNear, middle, B) : Var();
    Vars one = blockAt(first, gradients ? slice(upper, 0, B) : Var());
    Vars two = blockAt(middle, gradients ? slice(lower, B, B) : Var());
    Var s = insertRows(concat({transpose(one[0]), zeros({B, B})}), now[0], first);
    Vars next{insertRows(concat({dotTB(qDecayed, kDecayed), transpose(two[0])}), s, middle)};
    if (gradients) {
      Var d = slice(lower, 0, B);
      Var dq = insertRows(one[1], now[1], first), dk = insertRows(two[2], now[2], middle);
      next.append({insertRows(two[1] + eq * dot(d, kDecayed), dq, middle),
                   insertRows(one[2] + ek * dotTA(d, qDecayed), dk, first)});
    }
    return next;
  });
  return {sums[0], gradients ? sums[1] : Var(), gradients ? sums[2] : Var()};
}

//===- Loops ------------------------------------------------------------------------------------------------------===//

Vars ChunkMath::valueLoop(llvm::ArrayRef<Var> carried, llvm::function_ref<Vars(Index, llvm::ArrayRef<Var>)> body) {
  if (shape.values == VB)
    return body(0, carried);
  return k.loop(0, shape.values, VB, carried, [&](Var first, llvm::ArrayRef<Var> now) { return body(first, now); });
}

void ChunkMath::valueLoop(llvm::function_ref<void(Index)> body) {
  if (shape.values == VB)
    return body(0);
  k.loop(0, shape.values, VB, [&](Var first) { body(first); });
}

void forChunk(ChunkMath &math, llvm::ArrayRef<std::pair<Var, int64_t>> outputs, llvm::function_ref<void()> body) {
  KernelBuilder &k = math.k;
  k.when(gt(math.hi, math.lo), body);
  if (outputs.empty())
    return;
  k.when(le(math.hi, math.lo), [&] {
    for (auto [buffer, width] : outputs) {
      Var end = min(math.lo + static_cast<double>(math.C), k.size(buffer, 1));
      if (width)
        k.store(k.tile({math.C, width}, buffer.element()), buffer, {math.b, math.lo, math.h, 0},
                {.limit = end, .dims = {1, 3}});
      else
        k.store(k.tile({math.C}, buffer.element()), buffer, {math.b, math.lo, math.h}, {.limit = end, .dims = {1}});
    }
  });
}

} // namespace braid
