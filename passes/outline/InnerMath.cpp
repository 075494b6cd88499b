//===- InnerMath.cpp - tiles, weights and the inner gradient of a mini-batch --------------------------------------===//
#include "passes/outline/InnerMath.h"

#include "llvm/Support/FormatVariadic.h"

using namespace mlir;

namespace braid {

std::string InnerShape::kernelName(llvm::StringRef what) const {
  std::string name = llvm::formatv("lsm_inner_{0}_{1}_h{2}_k{3}_v{4}_c{5}", what, traits.className().lower(), heads,
                                   keys, values, chunk);
  if (chunk != miniBatch)
    name += llvm::formatv("of{0}", miniBatch);
  for (auto [has, mark] : {std::pair(traits.decay, "decay"),
                           {traits.momentum, "momentum"},
                           {traits.readRate, "read"},
                           {weights, "weights"}})
    if (has)
      name += std::string("_") + mark;
  name += "_" + typeName(token);
  for (auto [mark, type] : {std::pair("g", gate), {"n", norm}, {"w", start}, {"m", state}})
    if (type && type != compute)
      name += "_" + std::string(mark) + typeName(type);
  return name;
}

Vars InnerState::vars() const {
  Vars all{m};
  if (s)
    all.push_back(s);
  if (base)
    all.push_back(base);
  return all;
}

//===- Parameters and tiles ---------------------------------------------------------------------------------------===//

InnerMath::InnerMath(KernelBuilder &k, const InnerShape &shape, bool queries, bool targets, Var h, Var b)
    : k(k), shape(shape), C(shape.chunk), K(shape.keys), V(shape.values), h(h), b(b) {
  if (queries)
    q = keyTokens("q");
  keys = keyTokens("k");
  if (targets)
    values = valueTokens("v");
  rate = gates("rate");
  if (shape.traits.decay)
    logDecay = gates("log_decay");
  if (shape.traits.momentum)
    logMomentum = gates("log_momentum");
  if (shape.traits.readRate)
    readRate = gates("read_rate");
  if (shape.traits.norm) {
    normWeight = k.buffer("norm_weight", shape.norm, {shape.heads, V});
    normBias = k.buffer("norm_bias", shape.norm, {shape.heads, V});
  }
}

Var InnerMath::keyTokens(llvm::StringRef name) {
  return k.buffer(name, shape.token, {{"row"}, {"token"}, {"head", shape.heads}, {"key", K}});
}
Var InnerMath::valueTokens(llvm::StringRef name) {
  return k.buffer(name, shape.token, {{"row"}, {"token"}, {"head", shape.heads}, {"value", V}});
}
Var InnerMath::insideTokens(llvm::StringRef name) {
  return k.buffer(name, shape.compute, {{"row"}, {"token"}, {"head", shape.heads}, {"value", V}});
}
Var InnerMath::rowStates(llvm::StringRef name) {
  return k.buffer(name, shape.state,
                  {{"row"}, {"head", shape.heads}, {"key", shape.traits.planes() * K}, {"value", V}});
}
Var InnerMath::chunkStates(llvm::StringRef name) {
  return k.buffer(name, shape.state,
                  {{"row"}, {"chunk"}, {"head", shape.heads}, {"key", shape.traits.chunkPlanes() * K}, {"value", V}});
}
void InnerMath::declareEps() {
  if (shape.traits.norm)
    eps = k.scalar("eps", shape.compute);
}

void InnerMath::place(Var from, Var to, Var phase) {
  lo = from;
  hi = to;
  last = hi - lo - 1.0;
  complete = eq(phase + cast(hi - lo, k.i32()), static_cast<double>(shape.miniBatch));
}
void InnerMath::placeChunk(Var chunks, Var n) {
  auto index = [&](int64_t column) { return cast(k.at(chunks, {b, n, column}), k.builder.getIndexType()); };
  place(index(0), index(1), k.at(chunks, {b, n, 3}));
}

Var InnerMath::tokens(Var buffer, int64_t size) {
  return cast(k.load(buffer, {b, lo, h, 0}, {C, size}, {.limit = hi, .dims = {1, 3}}), shape.compute);
}
Var InnerMath::gate(Var buffer) {
  return cast(k.load(buffer, {b, lo, h}, {C}, {.limit = hi, .dims = {1}}), shape.compute);
}
void InnerMath::storeTokens(Var tile, Var buffer) {
  k.store(cast(tile, buffer.element()), buffer, {b, lo, h, 0}, {.limit = hi, .dims = {1, 3}});
}
void InnerMath::storeGate(Var tile, Var buffer) {
  k.store(cast(tile, buffer.element()), buffer, {b, lo, h}, {.limit = hi, .dims = {1}});
}

InnerState InnerMath::fromVars(llvm::ArrayRef<Var> values) const {
  InnerState state;
  size_t next = 0;
  state.m = values[next++];
  if (shape.traits.hasS())
    state.s = values[next++];
  if (shape.traits.hasBase())
    state.base = values[next++];
  return state;
}

InnerState InnerMath::chunkState(llvm::ArrayRef<Var> planes, Var inside) const {
  InnerState state;
  state.m = planes[0];
  if (shape.traits.momentum)
    state.s = planes[1];
  if (inside)
    (shape.traits.hasBase() ? state.base : state.s) = inside;
  return state;
}

Var InnerMath::plane(Var buffer, llvm::ArrayRef<Index> at, int64_t number, Var exists) {
  llvm::SmallVector<Index> where(at);
  where.append({number * K, 0});
  AccessOptions options;
  if (exists)
    options.limit = select(exists, k.number((number + 1) * K), k.number(0));
  return cast(k.load(buffer, where, {K, V}, options), shape.compute);
}
void InnerMath::storePlane(Var tile, Var buffer, llvm::ArrayRef<Index> at, int64_t number) {
  llvm::SmallVector<Index> where(at);
  where.append({number * K, 0});
  k.store(cast(tile, buffer.element()), buffer, where);
}
InnerState InnerMath::load(Var buffer, llvm::ArrayRef<Index> at) {
  Vars planes;
  for (int64_t number = 0; number < shape.traits.planes(); ++number)
    planes.push_back(plane(buffer, at, number));
  return fromVars(planes);
}
Vars InnerMath::loadChunk(Var buffer, llvm::ArrayRef<Index> at) {
  Vars planes;
  for (int64_t number = 0; number < shape.traits.chunkPlanes(); ++number)
    planes.push_back(plane(buffer, at, number));
  return planes;
}
void InnerMath::store(llvm::ArrayRef<Var> planes, Var buffer, llvm::ArrayRef<Index> at) {
  for (auto [number, tile] : llvm::enumerate(planes))
    storePlane(tile, buffer, at, static_cast<int64_t>(number));
}

InnerState InnerMath::begun(Var restart, const InnerState &before, Var weights) {
  InnerState state;
  auto first = [&](Var plane) {
    if (!weights)
      return select(restart, 0.0, plane);
    return select(restart, cast(k.load(weights, {h, 0, 0}, {K, V}), shape.compute), plane);
  };
  state.m = first(before.m);
  if (before.s)
    state.s = select(restart, 0.0, before.s);
  if (before.base)
    state.base = first(before.base);
  return state;
}

//===- The weights of steps ---------------------------------------------------------------------------------------===//

Var InnerMath::between(Var log, Var &fromStart) {
  // Sums in f64, so that a step behind a decay of -500 still has its digits; only differences are rounded.
  Var c = cumsum(cast(k.load(log, {b, lo, h}, {C}, {.limit = hi, .dims = {1}}), k.f64()));
  auto exponential = [&](Var difference) { return exp(cast(min(difference, 0.0), shape.compute)); };
  fromStart = exponential(c);
  return mask(exponential(expand(c, 1, C) - expand(c, 0, C)), tile::Keep::lower);
}

InnerWeights InnerMath::weigh() {
  InnerWeights w;
  Var ones = mask(k.tile({C, C}, shape.compute, 1), tile::Keep::lower);
  if (shape.traits.readRate) {
    w.f = gate(readRate);
    w.g = mask(expand(w.f, 1, C), tile::Keep::lower);
    w.fEnd = select(complete, end(w.f), 0.0);
    w.gEnd = splat(w.fEnd, {C});
    return w;
  }
  if (shape.traits.decay) {
    w.a = between(logDecay, w.be);
    w.beEnd = end(w.be);
  }
  if (!shape.traits.momentum) {
    w.g = w.a ? w.a : ones;
    w.gEnd = end(w.g);
    return w;
  }
  w.n = between(logMomentum, w.m);
  Var paths = w.a ? w.a : ones;
  w.g = dot(paths, w.n);
  w.f = sum(paths * expand(w.m, 0, C), 1);
  w.gEnd = end(w.g);
  w.nEnd = end(w.n);
  w.fEnd = end(w.f);
  w.mEnd = end(w.m);
  return w;
}

void InnerMath::storeWeightGrads(const InnerWeights &w, const InnerWeightGrads &d,
                                 llvm::function_ref<Var(llvm::StringRef)> buffer) {
  Var atLast = cast(eq(k.iota({C}, 0), splat(cast(last, k.i32()), {C})), shape.compute);
  if (shape.traits.readRate) {
    Var atEnd = d.fEnd ? d.fEnd + sum(d.gEnd, 0) : sum(d.gEnd, 0), ofRows = sum(mask(d.g, tile::Keep::lower), 1);
    return storeGate((d.f ? d.f + ofRows : ofRows) + atLast * select(complete, atEnd, 0.0), buffer("read_rate"));
  }
  // What a logarithm at t is part of: the ways from the start to i >= t, and from j < t to i >= t.
  auto storeLog = [&](Var pairs, Var fromStart, llvm::StringRef name) {
    Var inside = cumsum(mask(pairs, tile::Keep::strict_lower), 0, /*reverse=*/true);
    storeGate(cumsum(fromStart, 0, /*reverse=*/true) + sum(mask(inside, tile::Keep::strict_lower), 1), buffer(name));
  };
  auto lastRow = [&](Var x) { return expand(atLast, 1, C) * expand(x, 0, C); };
  Var dg = mask(d.g, tile::Keep::lower) + lastRow(d.gEnd);
  Var df = d.f ? d.f + atLast * d.fEnd : Var();
  if (w.a) {
    Var da = df ? dot(dg, w.n, expand(df, 1, C) * expand(w.m, 0, C), {.transposeB = true}) : dg;
    storeLog(da * w.a, (d.be + atLast * d.beEnd) * w.be, "log_decay");
  }
  if (!w.m)
    return;
  Var paths = w.a ? w.a : mask(k.tile({C, C}, shape.compute, 1), tile::Keep::lower);
  Var dn = dotTA(paths, dg, lastRow(d.nEnd)), dm = sum(paths * expand(df, 1, C), 0) + atLast * d.mEnd;
  storeLog(dn * w.n, dm * w.m, "log_momentum");
}

//===- The inner gradient -----------------------------------------------------------------------------------------===//

Var InnerMath::mean(Var x) { return expand(sum(x, 1) * (1.0 / static_cast<double>(V)), 1, V); }
Var InnerMath::project(const Residual &r, Var x) { return x - mean(x) - r.normed * mean(x * r.normed); }

InnerMath::Residual InnerMath::residual(Var z, Var targets) {
  if (!shape.traits.norm)
    return {z - targets, {}, {}, {}};
  Residual r = normed(z, targets);
  r.u = project(r, r.g) * r.inverse;
  return r;
}

InnerMath::Residual InnerMath::normed(Var z, Var targets) {
  Residual r;
  auto weight = [&](Var buffer) { return expand(cast(k.load(buffer, {h, 0}, {V}), shape.compute), 0, C); };
  Var centered = z - mean(z), square = sum(centered * centered, 1) * (1.0 / static_cast<double>(V));
  r.inverse = expand(rsqrt(square + eps), 1, V);
  r.normed = centered * r.inverse;
  r.g = weight(normWeight) * (weight(normWeight) * r.normed + weight(normBias) - targets);
  return r;
}

InnerMath::ResidualGrad InnerMath::residualGrad(const Residual &r, Var targets, Var du) {
  if (!shape.traits.norm)
    return {du, -du, {}, {}};
  auto weight = [&](Var buffer) { return expand(cast(k.load(buffer, {h, 0}, {V}), shape.compute), 0, C); };
  Var w = weight(normWeight), dg = project(r, du) * r.inverse;
  Var dNormed = w * w * dg - (mean(r.g * r.normed) * du + r.g * mean(du * r.normed)) * r.inverse;
  // Through the row and through its length, 1 / inverse.
  Var dz = (project(r, dNormed) - r.normed * mean(du * r.u)) * r.inverse;
  return {dz, -(w * dg), (2.0 * w * r.normed + weight(normBias) - targets) * dg, w * dg};
}

//===- Reading and stepping ---------------------------------------------------------------------------------------===//

Var InnerMath::read(const InnerState &state, const InnerWeights &w, Var queries, Var keys, Var steps) {
  Var o = dot(queries, state.m);
  if (w.be)
    o = o * expand(w.be, 1, V);
  if (state.s)
    o = o + dot(queries, state.s) * expand(w.f, 1, V);
  return o - dot(dotTB(queries, keys) * w.g, steps);
}

Vars InnerMath::advance(const InnerState &state, const InnerWeights &w, Var keys, Var steps) {
  Var m = w.beEnd ? state.m * w.beEnd : state.m;
  if (state.s)
    m = m + state.s * w.fEnd;
  Vars next{dotTA(keys * expand(-w.gEnd, 1, K), steps, m)};
  if (shape.traits.momentum)
    next.push_back(dotTA(keys * expand(-w.nEnd, 1, K), steps, state.s * w.mEnd));
  return next;
}

Var InnerMath::advanceInside(const InnerState &state, Var nextM, Var keys, Var steps) {
  if (shape.traits.hasBase())
    return select(complete, nextM, state.weights());
  return select(complete, 0.0, dotTA(-keys, steps, state.s));
}

} // namespace braid
