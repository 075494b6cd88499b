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

void writeStates(KernelBuilder &k, const InnerShape &shape) {
  InnerMath math(k, shape, /*queries=*/false, k.program(0), k.program(1));
  Var weights = shape.weights ? math.start() : Var();
  Var initial = math.rowStates("initial_state"), chunks = chunkTable(k);
  Var states = math.chunkStates("states"), final = math.rowStates("final_state");
  math.declareEps();
  ChunkRows table{k, chunks, math.b};
  Vars before = math.load(initial, {math.b, math.h}).vars();
  Vars end = k.loop(0, table.used(), 1, before, [&](Var n, llvm::ArrayRef<Var> now) -> Vars {
    math.placeChunk(chunks, n);
    InnerState state = math.begun(ne(k.at(chunks, {math.b, n, 2}), 0.0), math.fromVars(now), weights);
    math.store(state, states, {math.b, n, math.h});
    Var keys = math.tokens(math.keys, math.K);
    Var u = math.residual(dot(keys, state.weights()), math.tokens(math.values, math.V)).u;
    return math.advance(state, math.weigh(), keys, u * expand(math.gate(math.rate), 1, math.V)).vars();
  });
  math.store(math.fromVars(end), final, {math.b, math.h});
}

void writeOutput(KernelBuilder &k, const InnerShape &shape) {
  InnerMath math(k, shape, /*queries=*/true, k.program(0), k.program(2));
  Var states = math.chunkStates("states"), chunks = chunkTable(k);
  Var o = math.valueTokens("o");
  math.declareEps();
  Var n = k.program(1);
  math.placeChunk(chunks, n);
  k.when(gt(math.hi, math.lo), [&] {
    InnerState state = math.load(states, {math.b, n, math.h});
    Var keys = math.tokens(math.keys, math.K);
    Var u = math.residual(dot(keys, state.weights()), math.tokens(math.values, math.V)).u;
    Var steps = u * expand(math.gate(math.rate), 1, math.V);
    math.storeTokens(math.read(state, math.weigh(), math.tokens(math.q, math.K), keys, steps), o);
  });
  k.when(le(math.hi, math.lo), [&] { // padding
    math.hi = min(math.lo + static_cast<double>(math.C), k.size(o, 1));
    math.storeTokens(k.tile({math.C, math.V}, shape.compute), o);
  });
}

/// The step of decoding: a chunk of one token.
void writeInnerStep(KernelBuilder &k, const InnerShape &shape) {
  InnerMath math(k, shape, /*queries=*/true, k.program(0), k.program(1));
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
  Vars next;
  for (auto [old, changed] : llvm::zip_equal(before.vars(), math.advance(state, w, keys, steps).vars()))
    next.push_back(select(padding, old, changed));
  math.store(math.fromVars(next), final, {math.b, math.h});
}

class InnerGradKernel {
public:
  InnerGradKernel(KernelBuilder &k, const InnerShape &shape)
      : k(k), shape(shape), math(k, shape, /*queries=*/true, k.program(0), k.program(1)),
        states(math.chunkStates("states")), chunks(chunkTable(k)), doIn(math.valueTokens("d_o")),
        dFinal(math.rowStates("dfinal_state")), dq(math.keyTokens("dq")), dk(math.keyTokens("dk")),
        dv(math.valueTokens("dv")) {
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
  }

  void write() {
    Vars carried = math.load(dFinal, {math.b, math.h}).vars();
    planes = carried.size();
    if (shape.traits.norm)
      carried.append(2, k.tile({math.V}, shape.compute));
    if (shape.weights)
      carried.push_back(k.tile({math.K, math.V}, shape.compute));
    Var used = ChunkRows{k, chunks, math.b}.used();
    Vars end =
        k.loop(0, used, 1, carried, [&](Var i, llvm::ArrayRef<Var> now) -> Vars { return chunk(used - 1.0 - i, now); });
    math.store(math.fromVars(llvm::ArrayRef(end).take_front(planes)), dInitial, {math.b, math.h});
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
  Vars chunk(Var n, llvm::ArrayRef<Var> now);

  KernelBuilder &k;
  const InnerShape &shape;
  InnerMath math;
  Var states, chunks, doIn, dFinal, dq, dk, dv;
  llvm::SmallVector<std::pair<llvm::StringRef, Var>> dGates;
  Var dNormWeight, dNormBias, dWeights, dInitial;
  size_t planes = 0;
};

Vars InnerGradKernel::chunk(Var n, llvm::ArrayRef<Var> now) {
  int64_t K = math.K, V = math.V;
  auto total = [](Var x) { return sum(sum(x, 1), 0); };
  math.placeChunk(chunks, n);
  InnerState state = math.load(states, {math.b, n, math.h}), d = math.fromVars(now.take_front(planes));
  if (d.base) { // M behind the last token is the next mini-batch's B
    d.m = d.m + select(math.complete, d.base, 0.0);
    d.base = select(math.complete, 0.0, d.base);
  }
  Var queries = math.tokens(math.q, K), keys = math.tokens(math.keys, K), targets = math.tokens(math.values, V);
  Var rate = expand(math.gate(math.rate), 1, V), cotangent = math.tokens(doIn, V);
  InnerMath::Residual r = math.residual(dot(keys, state.weights()), targets);
  Var steps = r.u * rate;
  InnerWeights w = math.weigh();

  Var similar = dotTB(queries, keys), z = dotTB(cotangent, steps), zg = z * w.g;
  Var km = dot(keys, d.m), gEnd = expand(w.gEnd, 1, V);
  Var dSteps = -dotTA(similar * w.g, cotangent) - gEnd * km;
  Var toM = dotTB(cotangent, state.m), fromStart = w.be ? toM * expand(w.be, 1, K) : toM;
  Var dQueries = fromStart - dot(zg, keys);
  Var dKeys = -dotTA(zg, queries) - expand(w.gEnd, 1, K) * dotTB(steps, d.m);
  InnerWeightGrads dWeigh;
  dWeigh.g = -(z * similar);
  dWeigh.gEnd = -sum(km * steps, 1);
  InnerState before;
  Var read = w.be ? queries * expand(w.be, 1, K) : queries;
  before.m = dotTA(read, cotangent, w.beEnd ? d.m * w.beEnd : d.m);
  if (w.be) {
    dWeigh.be = sum(toM * queries, 1);
    dWeigh.beEnd = total(d.m * state.m);
  }
  if (state.s) {
    Var ks = dot(keys, d.s), toS = dotTB(cotangent, state.s), f = expand(w.f, 1, K);
    dSteps = dSteps - expand(w.nEnd, 1, V) * ks;
    dQueries = dQueries + toS * f;
    dKeys = dKeys - expand(w.nEnd, 1, K) * dotTB(steps, d.s);
    dWeigh.nEnd = -sum(ks * steps, 1);
    dWeigh.f = sum(toS * queries, 1);
    dWeigh.fEnd = total(d.m * state.s);
    dWeigh.mEnd = total(d.s * state.s);
    before.s = dotTA(queries * f, cotangent, d.m * w.fEnd + d.s * w.mEnd);
  }
  InnerMath::ResidualGrad dr = math.residualGrad(r, targets, dSteps * rate);
  if (d.base)
    before.base = dotTA(keys, dr.dz, d.base);
  else
    before.m = dotTA(keys, dr.dz, before.m);
  dKeys = dotTB(dr.dz, state.weights(), dKeys); // the last that reads the state, before anything is written
  math.storeTokens(dQueries, dq);
  math.storeTokens(dKeys, dk);
  math.storeTokens(dr.dy, dv);
  math.storeGate(sum(dSteps * r.u, 1), gateGrad("rate"));
  math.storeWeightGrads(w, dWeigh, [&](llvm::StringRef name) { return gateGrad(name); });

  // Where a document begins, what came before is not reached; its first weights are.
  Var restart = ne(k.at(chunks, {math.b, n, 2}), 0.0);
  Var first = before.base ? before.m + before.base : before.m;
  Vars next;
  for (Var plane : before.vars())
    next.push_back(select(restart, 0.0, plane));
  size_t at = planes;
  if (shape.traits.norm) {
    next.push_back(now[at++] + sum(dr.dWeight, 0));
    next.push_back(now[at++] + sum(dr.dBias, 0));
  }
  if (shape.weights)
    next.push_back(now[at] + select(restart, first, 0.0));
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
    return finish(launch, s);
  }
  LogicalResult output(LsmInnerOutputOp o) {
    Shape table = shapeOf(o.getChunks());
    auto launch = begin("output", o, o.getStates(), o.getMiniBatch(), writeOutput, {"head", "chunk", "batch"},
                        {shapeOf(o.getK())[2], table[1], table[0]});
    launch.arg("q", o.getQ());
    tokens(launch, o);
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
    Type element = elementOf(state), norm = elementOf(inner.getNormWeight()), start;
    if constexpr (requires { inner.getWeights(); })
      start = elementOf(inner.getWeights());
    InnerShape shape{InnerTraits(inner),
                     static_cast<bool>(start),
                     keys[2],
                     keys[3],
                     shapeOf(inner.getV())[3],
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
  template <typename Op> void tokens(OutlineContext::Launch &launch, Op inner) {
    launch.arg("k", inner.getK()).arg("v", inner.getV()).arg("rate", inner.getRate());
    optional(launch, "log_decay", inner.getLogDecay());
    optional(launch, "log_momentum", inner.getLogMomentum());
    optional(launch, "read_rate", inner.getReadRate());
    optional(launch, "norm_weight", inner.getNormWeight());
    optional(launch, "norm_bias", inner.getNormBias());
  }
  static void optional(OutlineContext::Launch &launch, llvm::StringRef name, Value value) {
    if (value)
      launch.arg(name, value);
  }
  template <typename Op> void scalars(OutlineContext::Launch &launch, Op inner) {
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
