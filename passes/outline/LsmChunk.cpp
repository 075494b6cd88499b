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
    : k(k), shape(shape), n(k.program(0)), h(k.program(1)), b(k.program(2)),
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
    c = cumsum(cast(k.load(logDecay, {b, lo, h, 0}, {C, K}, {.limit = hi, .dims = {1, 3}}), wide));
  } else {
    c = cumsum(cast(k.load(logDecay, {b, lo, h}, {C}, {.limit = hi, .dims = {1}}), wide));
  }
}

Var ChunkMath::exponential(Var difference) { return exp(cast(min(difference, 0.0), shape.compute)); }

Var ChunkMath::total() { return row(c, k.number(C - 1)); }

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
    return x * exponential(expand(total(), 0, C) - c);
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

// Row tile I of 16 rows, R the cumulative decay before its first row (lsm-family 4.2):
//   columns before the tile   S_IJ = (Q_I exp(c_I - R)) (K_J exp(R - c_J))^T, both exponents <= 0
//   the diagonal tile         S_ij = sum_d q_id k_jd exp(c_id - c_jd), column by column; exp(min(.., 0)) above the
//   diagonal
ChunkMath::Scores ChunkMath::vectorScores(Var q, Var keys, Var ds) {
  constexpr int64_t N = kScoreRows;
  bool gradients = static_cast<bool>(ds);
  Scores out{zeros({C, C}), {}, {}};
  if (gradients)
    out.dq = zeros({C, K}), out.dk = zeros({C, K});
  for (int64_t first = 0; first < C; first += N) {
    Var at = k.number(first);
    Var qi = rows(q, at, N), ki = rows(keys, at, N), ci = rows(c, at, N);
    Var dsi = gradients ? rows(ds, at, N) : Var();
    Vars tiles;
    Var dqi = gradients ? zeros({N, K}) : Var();
    if (first) {
      Var start = row(c, k.number(first - 1));
      Var eq = exponential(ci - expand(start, 0, N));
      Var before = rows(keys, k.number(0), first);
      Var ek = exponential(expand(start, 0, first) - rows(c, k.number(0), first));
      Var qDecayed = qi * eq, kDecayed = before * ek;
      tiles.push_back(dotTB(qDecayed, kDecayed));
      if (gradients) {
        Var d = slice(dsi, 0, first);
        dqi = dqi + eq * dot(d, kDecayed);
        Var dkBefore = rows(out.dk, k.number(0), first) + ek * dotTA(d, qDecayed);
        out.dk = insertRows(dkBefore, out.dk, k.number(0));
      }
    }
    Vars carried{zeros({N, N})};
    Var dsColumns;
    if (gradients) {
      dsColumns = transpose(mask(slice(dsi, first, N), tile::Keep::strict_lower));
      carried.append({dqi, zeros({N, K})});
    }
    Vars diagonal = k.loop(0, N, 1, carried, [&](Var j, llvm::ArrayRef<Var> now) -> Vars {
      Var kj = expand(row(ki, j), 0, N);
      Var e = exponential(ci - expand(row(ci, j), 0, N));
      Var column = sum(qi * kj * e, 1);
      Vars next{insertRows(column, now[0], j)};
      if (gradients) {
        Var d = expand(row(dsColumns, j), 1, K) * e;
        next.append({now[1] + d * kj, insertRows(sum(d * qi, 0), now[2], j)});
      }
      return next;
    });
    tiles.push_back(mask(transpose(diagonal[0]), tile::Keep::lower));
    if (first + N < C)
      tiles.push_back(zeros({N, C - first - N}));
    out.s = insertRows(concat(tiles), out.s, at);
    if (gradients) {
      out.dq = insertRows(diagonal[1], out.dq, at);
      out.dk = insertRows(rows(out.dk, at, N) + diagonal[2], out.dk, at);
    }
  }
  return out;
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
