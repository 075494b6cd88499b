//===- InnerKernels.cpp - lsm.inner_* become launches -------------------------------------------------------------===//
// inner_states walks the mini-batches of a row, inner_output reads in all of them at once, inner_grad walks back:
//
//   Z' = dO W^T,  A = Q K^T,  KM = K dM',  KS = K dS'
//   dG = -Z' A (j <= i),  dG_C = -rowsum(KM W),  dN_C = -rowsum(KS W),  dbe = rowsum(dO (Q M)),  df = rowsum(dO (Q S))
//   dW = -(A * G)^T dO - G_C KM - N_C KS      drate = rowsum(dW U)      dZ, dV by the adjoint of the inner gradient
//   dQ = be (dO M^T) + f (dO S^T) - (Z' * G) K
//   dK = -(Z' * G)^T Q - G_C (W dM'^T) - N_C (W dS'^T) + dZ B^T
//   dM = (be Q)^T dO + be_C dM'    dS = (f Q)^T dO + f_C dM' + m_C dS'    dB += K^T dZ, and where a mini-batch ends dM'
//   += dB
//
#include "passes/outline/InnerMath.h"
#include "passes/outline/LsmKernels.h"
#include "passes/outline/OutlineFamilies.h"

#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;

namespace braid {

namespace {

/// 1 where the first chunk of the row goes on with a document, else 0: chunks to be written with `carries`.
Var carriedChunks(KernelBuilder &k, const ChunkRows &table, Var used) {
  Var goesOn = both(gt(used, 0.0), eq(k.at(table.chunks, {table.b, 0, 2}), 0.0));
  return select(goesOn, k.number(1), k.number(0));
}

void writeStates(KernelBuilder &k, const InnerShape &shape) {
  InnerMath math(k, shape, /*queries=*/false, /*targets=*/true, k.program(0), k.program(1));
  Var weights = shape.weights ? math.start() : Var();
  Var initial = math.rowStates("initial_state"), chunks = chunkTable(k);
  Var states = math.chunkStates("states"), final = math.rowStates("final_state");
  Var residuals = math.insideTokens("residuals"), predictions;
  if (shape.traits.norm)
    predictions = math.insideTokens("predictions");
  math.declareEps();
  ChunkRows table{k, chunks, math.b};
  llvm::SmallVector<Index, 2> row{math.b, math.h};
  Var used = table.used();
  bool inside = shape.traits.hasInside();

  auto chunk = [&](Var n, llvm::ArrayRef<Var> now, bool carries) -> Vars {
    math.placeChunk(chunks, n);
    InnerState state = math.chunkState(now, carries ? math.plane(initial, row, math.insidePlane()) : Var());
    if (!carries)
      state = math.begun(ne(k.at(chunks, {math.b, n, 2}), 0.0), state, weights);
    Vars begins{state.m};
    if (shape.traits.momentum)
      begins.push_back(state.s);
    math.store(begins, states, {math.b, n, math.h});
    Var keys = math.tokens(math.keys, math.K), z = dot(keys, state.weights());
    Var u = math.residual(z, math.tokens(math.values, math.V)).u, steps = u * expand(math.gate(math.rate), 1, math.V);
    Vars next = math.advance(state, math.weigh(), keys, steps);
    math.storeTokens(u, residuals);
    if (predictions)
      math.storeTokens(z, predictions);
    if (inside)
      k.when(eq(n, used - 1.0),
             [&] { math.storePlane(math.advanceInside(state, next[0], keys, steps), final, row, math.insidePlane()); });
    return next;
  };

  Vars end = math.loadChunk(initial, row);
  Var first = k.number(0);
  if (inside) {
    first = carriedChunks(k, table, used);
    end = k.loop(0, first, 1, end, [&](Var n, llvm::ArrayRef<Var> now) { return chunk(n, now, true); });
  }
  end = k.loop(first, used, 1, end, [&](Var n, llvm::ArrayRef<Var> now) { return chunk(n, now, false); });
  math.store(end, final, row);
  if (inside)
    k.when(eq(used, 0.0),
           [&] { math.storePlane(math.plane(initial, row, math.insidePlane()), final, row, math.insidePlane()); });
}

void writeOutput(KernelBuilder &k, const InnerShape &shape) {
  InnerMath math(k, shape, /*queries=*/true, /*targets=*/false, k.program(0), k.program(2));
  Var residuals = math.insideTokens("residuals"), initial;
  if (shape.traits.readRate)
    initial = math.rowStates("initial_state");
  Var states = math.chunkStates("states"), chunks = chunkTable(k);
  Var o = math.valueTokens("o");
  Var n = k.program(1);
  math.placeChunk(chunks, n);
  auto write = [&](bool carries) {
    Var s = carries ? math.plane(initial, {math.b, math.h}, math.insidePlane()) : Var();
    InnerState state = math.chunkState(math.loadChunk(states, {math.b, n, math.h}), s);
    Var steps = math.tokens(residuals, math.V) * expand(math.gate(math.rate), 1, math.V);
    Var keys = math.tokens(math.keys, math.K), queries = math.tokens(math.q, math.K);
    math.storeTokens(math.read(state, math.weigh(), queries, keys, steps), o);
  };
  k.when(gt(math.hi, math.lo), [&] {
    if (!initial)
      return write(false);
    Var begins = both(eq(n, 0.0), eq(k.at(chunks, {math.b, n, 2}), 0.0));
    k.when(begins, [&] { write(true); });
    k.when(eq(begins, 0.0), [&] { write(false); });
  });
  k.when(le(math.hi, math.lo), [&] { // padding
    math.hi = min(math.lo + static_cast<double>(math.C), k.size(o, 1));
    math.storeTokens(k.tile({math.C, math.V}, shape.compute), o);
  });
}

/// The step of decoding: a chunk of one token.
void writeInnerStep(KernelBuilder &k, const InnerShape &shape) {
  InnerMath math(k, shape, /*queries=*/true, /*targets=*/true, k.program(0), k.program(1));
  Var weights = shape.weights ? math.start() : Var();
  Var initial = math.rowStates("initial_state"), documents = k.buffer("documents", k.i32(), {kDynamic, 1});
  Var o = math.valueTokens("o"), final = math.rowStates("final_state");
  math.declareEps();
  Var document = k.at(documents, {math.b, 0}), padding = eq(document, INT32_MAX);
  math.place(k.number(0), k.number(1), (0.0 - document) % static_cast<double>(shape.miniBatch));
  InnerState before = math.load(initial, {math.b, math.h});
  InnerState state = math.begun(eq(document, 0.0), before, weights);
  Var keys = math.tokens(math.keys, math.K);
  Var u = math.residual(dot(keys, state.weights()), math.tokens(math.values, math.V)).u;
  Var steps = u * expand(math.gate(math.rate), 1, math.V);
  InnerWeights w = math.weigh();
  math.storeTokens(select(padding, 0.0, math.read(state, w, math.tokens(math.q, math.K), keys, steps)), o);
  Vars changed = math.advance(state, w, keys, steps), next;
  if (shape.traits.hasInside())
    changed.push_back(math.advanceInside(state, changed[0], keys, steps));
  for (auto [old, now] : llvm::zip_equal(before.vars(), changed))
    next.push_back(select(padding, old, now));
  math.store(next, final, {math.b, math.h});
}

class InnerGradKernel {
public:
  InnerGradKernel(KernelBuilder &k, const InnerShape &shape)
      : k(k), shape(shape), math(k, shape, /*queries=*/true, /*targets=*/true, k.program(0), k.program(1)) {
    if (shape.traits.norm)
      predictions = math.insideTokens("predictions");
    residuals = math.insideTokens("residuals");
    if (shape.traits.hasInside())
      initial = math.rowStates("initial_state");
    states = math.chunkStates("states");
    chunks = chunkTable(k);
    doIn = math.valueTokens("d_o");
    dFinal = math.rowStates("dfinal_state");
    dq = math.keyTokens("dq");
    dk = math.keyTokens("dk");
    dv = math.valueTokens("dv");
    for (auto [has, name] : {std::pair(true, "rate"),
                             {shape.traits.decay, "log_decay"},
                             {shape.traits.momentum, "log_momentum"},
                             {shape.traits.readRate, "read_rate"}})
      if (has)
        dGates.push_back({name, math.gates((std::string("d") + name).c_str())});
    // Sums over the tokens of one row of the batch.
    if (shape.traits.norm) {
      dNormWeight = k.buffer("dnorm_weight", shape.compute, {kDynamic, shape.heads, math.V});
      dNormBias = k.buffer("dnorm_bias", shape.compute, {kDynamic, shape.heads, math.V});
    }
    if (shape.weights)
      dWeights = k.buffer("dweights", shape.compute, {kDynamic, shape.heads, math.K, math.V});
    dInitial = math.rowStates("dinitial_state");
    math.declareEps();
    row = {math.b, math.h};
  }

  void write() {
    ChunkRows table{k, chunks, math.b};
    used = table.used();
    Vars carried = behindLast();
    planes = carried.size();
    if (shape.traits.norm)
      carried.append(2, k.tile({math.V}, shape.compute));
    if (shape.weights)
      carried.push_back(k.tile({math.K, math.V}, shape.compute));
    Var first = initial ? carriedChunks(k, table, used) : k.number(0);
    Vars end = k.loop(0, used - first, 1, carried,
                      [&](Var i, llvm::ArrayRef<Var> now) { return chunk(used - 1.0 - i, now, false); });
    if (initial) {
      end = k.loop(0, first, 1, end, [&](Var n, llvm::ArrayRef<Var> now) { return chunk(n, now, true); });
      k.when(eq(first, 0.0), [&] { // no chunk has read it
        math.storePlane(math.plane(dFinal, row, math.insidePlane(), eq(used, 0.0)), dInitial, row, math.insidePlane());
      });
    }
    math.store(llvm::ArrayRef(end).take_front(planes), dInitial, row);
    size_t next = planes;
    for (Var sum : {dNormWeight, dNormBias})
      if (sum)
        k.store(end[next++], sum, {math.b, math.h, 0});
    if (dWeights)
      k.store(end[next], dWeights, {math.b, math.h, 0, 0});
    k.loop(used, k.size(chunks, 1), 1, [&](Var n) { // padding
      math.placeChunk(chunks, n);
      math.hi = min(math.lo + static_cast<double>(math.C), k.size(dq, 1));
      for (Var buffer : {dq, dk})
        math.storeTokens(k.tile({math.C, math.K}, shape.compute), buffer);
      math.storeTokens(k.tile({math.C, math.V}, shape.compute), dv);
      for (auto &[name, buffer] : dGates)
        math.storeGate(k.tile({math.C}, shape.compute), buffer);
    });
  }

private:
  Var gateGrad(llvm::StringRef name) {
    return llvm::find_if(dGates, [&](auto &gate) { return gate.first == name; })->second;
  }
  Vars behindLast();
  Vars chunk(Var n, llvm::ArrayRef<Var> now, bool carries);

  KernelBuilder &k;
  const InnerShape &shape;
  InnerMath math;
  Var predictions, residuals, initial, states, chunks, doIn, dFinal, dq, dk, dv;
  llvm::SmallVector<std::pair<llvm::StringRef, Var>> dGates;
  Var dNormWeight, dNormBias, dWeights, dInitial;
  Var used;
  Var cut; ///< the row ends inside a mini-batch
  llvm::SmallVector<Index, 2> row;
  size_t planes = 0;
};

/// The cotangents of M' and S' of the last chunk. Where it completes its mini-batch, B' is M', and S' with a read_rate is 0;
/// where it does not, M' with a read_rate is M, and what is carried in its place is the cotangent of S'.
Vars InnerGradKernel::behindLast() {
  Vars d = math.loadChunk(dFinal, row);
  if (!initial)
    return d;
  Var any = gt(used, 0.0);
  math.placeChunk(chunks, max(used - 1.0, 0.0));
  cut = both(any, eq(math.complete, 0.0));
  if (shape.traits.hasBase())
    d[0] = d[0] + math.plane(dFinal, row, math.insidePlane(), both(any, math.complete));
  else
    d[0] = select(cut, math.plane(dFinal, row, math.insidePlane()), d[0]);
  return d;
}

Vars InnerGradKernel::chunk(Var n, llvm::ArrayRef<Var> now, bool carries) {
  int64_t K = math.K, V = math.V;
  auto total = [](Var x) { return sum(sum(x, 1), 0); };
  math.placeChunk(chunks, n);
  InnerState d = math.chunkState(now.take_front(planes));
  InnerState state = math.chunkState(math.loadChunk(states, {math.b, n, math.h}),
                                     carries ? math.plane(initial, row, math.insidePlane()) : Var());
  bool reads = shape.traits.readRate;
  Var queries = math.tokens(math.q, K), keys = math.tokens(math.keys, K), targets = math.tokens(math.values, V);
  Var rate = expand(math.gate(math.rate), 1, V), cotangent = math.tokens(doIn, V);
  InnerMath::Residual r;
  if (shape.traits.norm)
    r = math.normed(math.tokens(predictions, V), targets);
  r.u = math.tokens(residuals, V);
  Var steps = r.u * rate;
  InnerWeights w = math.weigh();
  // With a read_rate d.m is the cotangent of S' where the mini-batch goes on: what S' has of each step is 1.
  Var ofEnd = reads ? splat(select(math.complete, w.fEnd, 1.0), {math.C}) : w.gEnd;

  Var similar = dotTB(queries, keys), z = dotTB(cotangent, steps), zg = z * w.g;
  Var km = dot(keys, d.m);
  Var dSteps = -dotTA(similar * w.g, cotangent) - expand(ofEnd, 1, V) * km;
  Var toM = dotTB(cotangent, state.m), fromStart = w.be ? toM * expand(w.be, 1, K) : toM;
  Var dQueries = fromStart - dot(zg, keys);
  Var dKeys = -dotTA(zg, queries) - expand(ofEnd, 1, K) * dotTB(steps, d.m);
  InnerWeightGrads dWeigh;
  dWeigh.g = -(z * similar);
  dWeigh.gEnd = -sum(km * steps, 1);
  InnerState before;
  Var read = w.be ? queries * expand(w.be, 1, K) : queries, behind = w.beEnd ? d.m * w.beEnd : d.m;
  Var last = eq(n, used - 1.0);
  if (reads)
    behind = behind * cast(eq(both(last, cut), 0.0), shape.compute);
  before.m = dotTA(read, cotangent, behind);
  if (w.be) {
    dWeigh.be = sum(toM * queries, 1);
    dWeigh.beEnd = total(d.m * state.m);
  }
  if (state.s) {
    Var toS = dotTB(cotangent, state.s), f = expand(w.f, 1, K);
    dQueries = dQueries + toS * f;
    dWeigh.f = sum(toS * queries, 1);
    dWeigh.fEnd = total(d.m * state.s);
    if (reads) {
      before.s = dotTA(queries * f, cotangent, d.m * select(math.complete, w.fEnd, 1.0));
    } else {
      Var ks = dot(keys, d.s);
      dSteps = dSteps - expand(w.nEnd, 1, V) * ks;
      dKeys = dKeys - expand(w.nEnd, 1, K) * dotTB(steps, d.s);
      dWeigh.nEnd = -sum(ks * steps, 1);
      dWeigh.mEnd = total(d.s * state.s);
      before.s = dotTA(queries * f, cotangent, d.m * w.fEnd + d.s * w.mEnd);
    }
  }
  InnerMath::ResidualGrad dr = math.residualGrad(r, targets, dSteps * rate);
  if (state.base)
    before.base = dotTA(keys, dr.dz);
  else
    before.m = dotTA(keys, dr.dz, before.m);
  dKeys = dotTB(dr.dz, state.weights(), dKeys); // the last that reads the state, before anything is written
  math.storeTokens(dQueries, dq);
  math.storeTokens(dKeys, dk);
  math.storeTokens(dr.dy, dv);
  math.storeGate(sum(dSteps * r.u, 1), gateGrad("rate"));
  math.storeWeightGrads(w, dWeigh, [&](llvm::StringRef name) { return gateGrad(name); });

  // A row that ends inside a mini-batch hands on B, which is its M before the chunk; and with a read_rate M.
  if (initial) {
    Var handed = math.plane(dFinal, row, reads ? 0 : math.insidePlane(), both(last, cut));
    Var &of = before.base ? before.base : before.m;
    of = of + handed;
  }
  if (carries)
    math.storePlane(reads ? before.s : before.base, dInitial, row, math.insidePlane());
  Vars next{before.m};
  if (shape.traits.momentum)
    next.push_back(before.s);
  // Where a document begins, what came before is not reached; its first weights are.
  Var restart = ne(k.at(chunks, {math.b, n, 2}), 0.0);
  if (!carries)
    for (Var &plane : next)
      plane = select(restart, 0.0, plane);
  size_t at = planes;
  if (shape.traits.norm) {
    next.push_back(now[at++] + sum(dr.dWeight, 0));
    next.push_back(now[at++] + sum(dr.dBias, 0));
  }
  if (shape.weights)
    next.push_back(carries ? now[at] : now[at] + select(restart, before.m, 0.0));
  return next;
}

void writeGrad(KernelBuilder &k, const InnerShape &shape) { InnerGradKernel(k, shape).write(); }

class InnerOutline {
public:
  InnerOutline(OutlineContext &context, Operation *op) : context(context), op(op) {}

  LogicalResult states(LsmInnerStatesOp s) {
    auto launch = begin("states", s, s.getInitialState(), s.getMiniBatch(), writeStates, {"head", "batch"},
                        {shapeOf(s.getK())[2], shapeOf(s.getK())[0]});
    tokens(launch, s);
    optional(launch, "weights", s.getWeights());
    launch.arg("initial_state", s.getInitialState()).arg("chunks", s.getChunks());
    launch.result("states", s.getStates().getType()).result("final_state", s.getFinalState().getType());
    launch.result("residuals", s.getResiduals().getType());
    if (s.getPredictions())
      launch.result("predictions", s.getPredictions().getType());
    return finish(launch, s);
  }
  LogicalResult output(LsmInnerOutputOp o) {
    Shape table = shapeOf(o.getChunks());
    auto launch = begin("output", o, o.getStates(), o.getMiniBatch(), writeOutput, {"head", "chunk", "batch"},
                        {shapeOf(o.getK())[2], table[1], table[0]});
    launch.arg("q", o.getQ());
    tokens(launch, o);
    launch.arg("residuals", o.getResiduals());
    optional(launch, "initial_state", o.getInitialState());
    launch.arg("states", o.getStates()).arg("chunks", o.getChunks()).result("o", o.getO().getType());
    return finish(launch, o);
  }
  LogicalResult step(LsmInnerStepOp s) {
    if (shapeOf(s.getK())[1] != 1)
      return s.emitOpError("has no kernel for more than one token: braid-chunk-tiling must run first");
    auto launch = begin("step", s, s.getInitialState(), 1, writeInnerStep, {"head", "batch"},
                        {shapeOf(s.getK())[2], shapeOf(s.getK())[0]});
    launch.arg("q", s.getQ());
    tokens(launch, s);
    optional(launch, "weights", s.getWeights());
    launch.arg("initial_state", s.getInitialState()).arg("documents", s.getDocuments());
    launch.result("o", s.getO().getType()).result("final_state", s.getFinalState().getType());
    return finish(launch, s);
  }
  LogicalResult grad(LsmInnerGradOp g) {
    auto launch = begin("grad", g, g.getStates(), g.getMiniBatch(), writeGrad, {"head", "batch"},
                        {shapeOf(g.getK())[2], shapeOf(g.getK())[0]});
    launch.arg("q", g.getQ());
    tokens(launch, g);
    optional(launch, "predictions", g.getPredictions());
    launch.arg("residuals", g.getResiduals());
    optional(launch, "initial_state", g.getInitialState());
    launch.arg("states", g.getStates()).arg("chunks", g.getChunks());
    launch.arg("d_o", g.getDO()).arg("dfinal_state", g.getDfinalState());
    launch.result("dq", g.getDq().getType()).result("dk", g.getDk().getType()).result("dv", g.getDv().getType());
    auto others = innerOthers(g);
    for (auto [other, d] : llvm::zip_equal(others, g.getDothers())) {
      auto type = cast<RankedTensorType>(d.getType());
      SmallVector<int64_t> perRow(type.getShape());
      if (other.whole)
        perRow.insert(perRow.begin(), shapeOf(g.getK())[0]);
      launch.result(("d" + other.name).str(), type.clone(perRow));
    }
    launch.result("dinitial_state", g.getDinitialState().getType());
    scalars(launch, g);
    SmallVector<Value> results = launch.run();
    for (auto [i, other] : llvm::enumerate(others))
      if (other.whole)
        results[3 + i] = sumOverRows(op, results[3 + i], context);
    context.replace(op, results);
    return success();
  }

private:
  template <typename Op>
  OutlineContext::Launch begin(llvm::StringRef what, Op inner, Value state, int64_t chunk,
                               void (*write)(KernelBuilder &, const InnerShape &), ArrayRef<StringRef> grid,
                               ArrayRef<int64_t> extents) {
    auto elementOf = [](Value v) { return v ? tensorType(v).getElementType() : Type(); };
    Shape keys = shapeOf(inner.getK());
    Type element = elementOf(state), norm, start;
    if constexpr (requires { inner.getNormWeight(); })
      norm = elementOf(inner.getNormWeight());
    if constexpr (requires { inner.getWeights(); })
      start = elementOf(inner.getWeights());
    InnerShape shape{InnerTraits(inner),
                     static_cast<bool>(start),
                     keys[2],
                     keys[3],
                     shapeOf(values(inner))[3],
                     chunk,
                     static_cast<int64_t>(inner.getMiniBatch()),
                     elementOf(inner.getK()),
                     elementOf(inner.getRate()),
                     norm,
                     start,
                     element,
                     computeType(element)};
    std::string kernel = context.kernel(shape.kernelName(what), grid, [&](KernelBuilder &k) {
      write(k, shape);
      if (shape.token.isBF16() && chunk > 1)
        k.roundProducts();
    });
    return context.launch(op, kernel, extents);
  }
  template <typename Op> static Value values(Op inner) {
    if constexpr (requires { inner.getV(); })
      return inner.getV();
    else
      return inner.getResiduals();
  }
  template <typename Op> void tokens(OutlineContext::Launch &launch, Op inner) {
    launch.arg("k", inner.getK());
    if constexpr (requires { inner.getV(); })
      launch.arg("v", inner.getV());
    launch.arg("rate", inner.getRate());
    optional(launch, "log_decay", inner.getLogDecay());
    optional(launch, "log_momentum", inner.getLogMomentum());
    optional(launch, "read_rate", inner.getReadRate());
    if constexpr (requires { inner.getNormWeight(); }) {
      optional(launch, "norm_weight", inner.getNormWeight());
      optional(launch, "norm_bias", inner.getNormBias());
    }
  }
  static void optional(OutlineContext::Launch &launch, llvm::StringRef name, Value value) {
    if (value)
      launch.arg(name, value);
  }
  template <typename Op> void scalars(OutlineContext::Launch &launch, Op inner) {
    if constexpr (requires { inner.getNormWeight(); })
      if (inner.getNormWeight())
        launch.scalar("eps", inner.getNormEps().convertToDouble(),
                      computeType(tensorType(inner.getV()).getElementType()));
  }
  template <typename Op> LogicalResult finish(OutlineContext::Launch &launch, Op inner) {
    scalars(launch, inner);
    context.replace(op, launch.run());
    return success();
  }

  OutlineContext &context;
  Operation *op;
};

} // namespace

LogicalResult outlineInner(Operation *op, OutlineContext &context) {
  InnerOutline outline(context, op);
  return llvm::TypeSwitch<Operation *, LogicalResult>(op)
      .Case([&](LsmInnerStatesOp s) { return outline.states(s); })
      .Case([&](LsmInnerOutputOp o) { return outline.output(o); })
      .Case([&](LsmInnerGradOp g) { return outline.grad(g); })
      .Case([&](LsmInnerStepOp s) { return outline.step(s); })
      .Default([](Operation *other) { return other->emitOpError("has no kernel: braid-chunk-tiling must run first"); });
}

} // namespace braid
