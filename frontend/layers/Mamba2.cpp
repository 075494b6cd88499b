//===- Mamba2.cpp - selective state space with one decay per head (class S) ---------------------------------------===//
//   delta = softplus(x wdt + dt_bias)      g = -exp(a_log) delta      k = B, q = C (key_heads groups), v = delta x
//   M_t = exp(g_t) M_{t-1} + k_t^T v_t      y = q M + d x      out = norm(y act(z)) wo, norm over each group of heads
// The gate comes before the norm. d is one skip factor per head.
#include "frontend/layers/LsmParts.h"

using namespace mlir;
using namespace braid;

Value braid::buildMamba2(LayerBuilder &b, Value x, const LsmSpec &spec) {
  int64_t H = spec.heads, G = spec.keyHeads, V = spec.valueDim, inner = H * V;
  Projections p(b);
  addQkvg(p, spec, G, G, H);
  p.add("dt", {headsOf(spec, H)}, /*wide=*/true);
  p.run(x);
  ScanInputs in = convolved(b, spec, p);
  Value v = in.v;
  Value aLog = decayRate(b, spec), dtBias = stepBias(b, spec);
  Value delta = b.activation("delta", b.bias("delta", p["dt"], dtBias), "softplus");
  in.logDecay = LogDecayOp::create(b.builder, b.loc("log_decay"), p["dt"].getType(), p["dt"], aLog, dtBias);
  in.v = b.mul("v", v, delta);
  Value o = scan(b, spec, LsmClass::S, in);
  Value skip = b.weighted("skip", v, b.weight("lsm.d", {headsOf(spec, H)}, Init::constant(1.0)));
  Value y = b.reshape("y", b.add("y", {o, skip}), {b.entry.batch, b.entry.tokens, inner});
  Value gate = p["g"] ? b.reshape("g", p["g"], {b.entry.batch, b.entry.tokens, inner}) : Value();
  return gatedOutput(b, spec, y, gate, {.beforeGate = false, .groups = G});
}
