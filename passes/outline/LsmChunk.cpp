//===- LsmChunk.cpp - tiles, decays and loops of a chunk ----------------------------------------------------------===//
#include "passes/outline/LsmChunk.h"

#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/SaveAndRestore.h"

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
  case LsmClass::VH: return "vh";
  case LsmClass::D: return "d";
  case LsmClass::R: return "r";
  case LsmClass::E: return "e";
  }
  llvm_unreachable("all classes are covered");
}

std::string LsmShape::kernelName(llvm::StringRef what) const {
  std::string name = llvm::formatv("lsm_{0}_{1}_h{2}_k{3}_v{4}", what, className(), heads, keys, values);
  if (chunk)
    name += llvm::formatv("_c{0}{1}", chunk, mild ? "_mild" : "");
  if (mostColumns != kMostColumns)
    name += llvm::formatv("_w{0}", mostColumns);
  if (mostKeys)
    name += llvm::formatv("_r{0}", mostKeys);
  if (segments > 1)
    name += llvm::formatv("_p{0}", segments);
  if (wholeRows)
    name += split ? "_split" : "_whole";
  if (product)
    name += "_product";
  if (scoreRows != kScoreRows)
    name += llvm::formatv("_s{0}", scoreRows);
  if (factored)
    name += "_factored";
  name += "_" + typeName(token ? token : state);
  // Gates and states normally have the type computed in.
  for (auto [mark, type] : {std::pair("g", gate), std::pair("b", beta), std::pair("m", state)})
    if (type && type != compute)
      name += "_" + std::string(mark) + typeName(type);
  if (multiplied && multiplied != state)
    name += "_p" + typeName(multiplied);
  return name;
}

//===- Tiles in memory --------------------------------------------------------------------------------------------===//

ChunkMath::ChunkMath(KernelBuilder &k, const LsmShape &shape, Var chunks)
    : k(k), shape(shape), n(k.program(1)), h(k.program(0)), b(k.program(2)),
      lo(cast(k.at(chunks, {b, n, 0}), k.builder.getIndexType())),
      hi(cast(k.at(chunks, {b, n, 1}), k.builder.getIndexType())), C(shape.chunk), K(shape.keys),
      VB(shape.valueBlock()) {}

Var ChunkMath::tokensFrom(Var token, Var buffer, Index first, int64_t size) {
  return cast(k.load(buffer, {b, token, h, first}, {C, size}, {.limit = hi, .dims = {1, 3}}), shape.compute);
}

Var ChunkMath::gate(Var buffer) {
  return cast(k.load(buffer, {b, lo, h}, {C}, {.limit = hi, .dims = {1}}), shape.compute);
}

Var ChunkMath::state(Var buffer, Index first, int64_t size) {
  return cast(k.load(buffer, {b, n, h, 0, first}, {K, size}), shape.compute);
}

Var ChunkMath::written(Var buffer, Index first, int64_t size) {
  return cast(k.load(buffer, {b, n, h, 0, first}, {C, size}), shape.compute);
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

Var anew(Var of, int64_t time) {
  Operation *op = static_cast<Value>(of).getDefiningOp();
  op->setAttr("tile.anew", Builder(op->getContext()).getI64IntegerAttr(time));
  return of;
}

Var asLoaded(Var widened) {
  auto cast = static_cast<Value>(widened).getDefiningOp<arith::ExtFOp>();
  return cast ? widened.with(cast.getIn()) : widened;
}

//===- Decays -----------------------------------------------------------------------------------------------------===//

void ChunkMath::loadDecay(Var logDecay, bool scores) {
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
    vector = decayTable(logDecay, 0, K, scores);
    if (scores && !hasTwoWays())
      vector.prepareEnd(k);
  } else {
    c = cumsum(cast(k.load(logDecay, {b, lo, h}, {C}, {.limit = hi, .dims = {1}}), wide));
  }
}

DecayTable ChunkMath::decayTable(Var logDecay, Index first, int64_t size, bool scores) {
  auto load = [=, this](Var token) { return tokensFrom(token, logDecay, first, size); };
  DecayTable table{.g = [=, this] { return load(lo); },
                   .gNext = [=, this] { return load(lo + 1.0); },
                   .c = cumsum(load(lo)),
                   .scoreRows = shape.scoreRows,
                   .silent = shape.silentLogDecay()};
  if (shape.delta()) {
    table.centred = !shape.mild;
    table.mostSpan = shape.token.isBF16() ? kMostSpanOfBf16 : -2 * kMildLogDecay;
  }
  if (scores)
    table.prepareScores(k, shape.mild);
  return table;
}

void ChunkMath::loadValueDecay(Var valueDecay) {
  valueDecayIn = valueDecay;
  if (shape.values == VB) {
    onlyValues = decayTable(valueDecayIn, 0, VB, /*scores=*/true);
    valuesMild = onlyValues->mild;
  } else if (!shape.mild) {
    valuesMild = valueLoop({k.constant(k.i1(), 1)}, [&](Index first, llvm::ArrayRef<Var> now) -> Vars {
      return {both(now[0], decayTable(valueDecayIn, first, VB, /*scores=*/true).mild)};
    })[0];
  }
}

void ChunkMath::eitherWay(llvm::function_ref<void()> body) {
  if (!hasTwoWays() || !vector.mild)
    return withWholeRows(body);
  DecayTable unsettled = vector;
  std::optional<DecayTable> unsettledValues = onlyValues;
  auto run = [&](Way now) -> Vars {
    way = now;
    vector = settled(unsettled);
    if (onlyValues)
      onlyValues = settled(*unsettledValues);
    withWholeRows(body);
    return {};
  };
  Var mild = valuesMild ? both(vector.mild, valuesMild) : vector.mild;
  k.when(mild, [&] { return run(Way::mild); }, [&] { return run(Way::strong); });
  way = Way::open;
  vector = std::move(unsettled);
  onlyValues = std::move(unsettledValues);
}

void ChunkMath::withWholeRows(llvm::function_ref<void()> body) {
  llvm::SaveAndRestore block(VB, shape.wholeRows ? shape.values : VB);
  body();
}

DecayTable ChunkMath::settled(const DecayTable &table) const {
  return way == Way::open ? table : way == Way::mild ? table.ofMild(k) : table.ofStrong();
}

DecayTable ChunkMath::valueDecay(Index first) {
  return onlyValues ? *onlyValues : settled(decayTable(valueDecayIn, first, VB, /*scores=*/true));
}

Var ChunkMath::exponential(Var difference) { return exp(min(cast(difference, shape.compute), 0.0)); }

Var ChunkMath::total() { return shape.vectorDecay() ? vector.total() : row(c, k.number(C - 1)); }

Var ChunkMath::acrossChunk() { return shape.decays() ? exponential(total()) : Var(); }

Var ChunkMath::fromStart(Var x) {
  if (!shape.decays())
    return x;
  return shape.vectorDecay() ? vector.fromStart(x) : x * expand(exponential(c), 1, x.dim(1));
}

Var ChunkMath::toEnd(Var x) {
  if (!shape.decays())
    return x;
  if (shape.vectorDecay())
    return vector.toEnd(x);
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

Var ChunkMath::scores(Var q, Var keys) {
  return shape.vectorDecay() ? pairScores(k, vector, {q}, {keys}).s[0][0] : decayed(dotTB(q, keys));
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
      if (mlir::cast<MemRefType>(buffer.type()).getRank() == 5)
        k.loop(math.lo, end, 1, [&](Var t) {
          k.store(k.tile({math.K, math.shape.values}, buffer.element()), buffer, {math.b, t, math.h, 0, 0});
        });
      else if (width)
        k.store(k.tile({math.C, width}, buffer.element()), buffer, {math.b, math.lo, math.h, 0},
                {.limit = end, .dims = {1, 3}});
      else
        k.store(k.tile({math.C}, buffer.element()), buffer, {math.b, math.lo, math.h}, {.limit = end, .dims = {1}});
    }
  });
}

} // namespace braid
