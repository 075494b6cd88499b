//===- GatedDeltanet.cpp - the delta rule on a decaying state (class GH) ------------------------------------------===//
//   M~ = exp(g_t) M_{t-1}      M_t = M~ + k_t^T beta_t (v_t - k_t M~)      g = -exp(a_log) softplus(x wa + dt_bias)
// q, k of length 1; key_heads may be fewer than heads.
#include "frontend/layers/LsmParts.h"

using namespace mlir;
using namespace braid;

Value braid::buildGatedDeltanet(LayerBuilder &b, Value x, const LsmSpec &spec) {
  Projections p(b);
  addQkvg(p, spec, spec.keyHeads, spec.keyHeads, spec.heads);
  p.add("b", {headsOf(spec, spec.heads)}, /*wide=*/true);
  p.add("a", {headsOf(spec, spec.heads)}, /*wide=*/true);
  p.run(x);
  ScanInputs in = deltaInputs(b, spec, p);
  Value aLog = decayRate(b, spec), dtBias = stepBias(b, spec);
  in.logDecay = LogDecayOp::create(b.builder, b.loc("log_decay"), p["a"].getType(), p["a"], aLog, dtBias);
  return gatedOutput(b, spec, scan(b, spec, LsmClass::GH, in), p["g"]);
}
