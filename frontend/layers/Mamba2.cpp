//===- Mamba2.cpp - selective state space with one decay per head (class S) ---------------------------------------===//
//   delta = softplus(x wdt + dt_bias)      g = -exp(a_log) delta      k = B, q = C (key_heads groups), v = delta x
//   M_t = exp(g_t) M_{t-1} + k_t^T v_t      y = q M + d x      out = norm(y act(z)) wo, norm over each group of heads
// The gate comes before the norm (norm_first: behind it). d is one skip factor per head. Projections may have biases and
// factors, steps bounds: delta is then what is between them, and so is the one of g.
#include "frontend/layers/LsmParts.h"

using namespace mlir;
using namespace braid;

/// Log decays of steps that have been bounded: -exp(a_log) delta.
static Value decayOfSteps(LayerBuilder &b, Value delta, Value aLog) {
  return b.scale("log_decay", b.weighted("log_decay", delta, b.activation("decay_rate", aLog, "exp")), -1.0);
}

Value braid::buildMamba2(LayerBuilder &b, Value x, const LsmSpec &spec) {
  int64_t H = spec.heads, G = spec.keyHeads, V = spec.valueDim, inner = H * V;
  const ProjectionMultipliers &factors = spec.projectionMultipliers;
  Projections p(b);
  addQkvg(p, spec, G, G, H);
  p.add("dt", {headsOf(spec, H)}, /*wide=*/true);
  p.run(x);
  auto adjust = [&](StringRef name, double factor, Dims features) {
    Value value = p[name];
    if (!value)
      return;
    if (spec.projectionBias)
      value = b.bias(name, value, b.weight(("lsm.b" + name).str(), features, Init::constant(0.0)));
    p.replace(name, b.scaled(name, value, factor));
  };
  Dim heads = headsOf(spec, H), keys = headsOf(spec, G);
  adjust("q", factors.q, {keys, spec.headDim});
  adjust("k", factors.k, {keys, spec.headDim});
  adjust("v", factors.v, {heads, V});
  adjust("g", factors.g, {heads, V});
  adjust("dt", factors.dt, {heads});
  ScanInputs in = convolved(b, spec, p);
  Value v = in.v;
  Value aLog = decayRate(b, spec), dtBias = stepBias(b, spec);
  Value delta = b.activation("delta", b.bias("delta", p["dt"], dtBias), "softplus");
  if (spec.minStep > 0 || spec.maxStep > 0) {
    auto bound = [&](double step) { return step > 0 ? b.builder.getF64FloatAttr(step) : FloatAttr(); };
    delta =
        ClampOp::create(b.builder, b.loc("delta"), delta.getType(), delta, bound(spec.minStep), bound(spec.maxStep));
    in.logDecay = decayOfSteps(b, delta, aLog);
  } else {
    in.logDecay = LogDecayOp::create(b.builder, b.loc("log_decay"), p["dt"].getType(), p["dt"], aLog, dtBias);
  }
  in.v = b.mul("v", v, delta);
  Value o = scan(b, spec, LsmClass::S, in);
  Value skip = b.weighted("skip", v, b.weight("lsm.d", {heads}, Init::constant(1.0)));
  Value y = b.reshape("y", b.add("y", {o, skip}), {b.entry.batch, b.entry.tokens, inner});
  Value gate = p["g"] ? b.reshape("g", p["g"], {b.entry.batch, b.entry.tokens, inner}) : Value();
  Value out = gatedOutput(b, spec, y, gate, {.beforeGate = spec.normFirst, .groups = G});
  return spec.outputBias ? b.bias("lsm_out", out, b.weight("lsm.bo", {b.embed()}, Init::constant(0.0))) : out;
}
