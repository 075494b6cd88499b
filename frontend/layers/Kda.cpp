//===- Kda.cpp - the delta rule on a state that decays per key channel (class VH) ---------------------------------===//
//   M~ = diag(exp g_t) M_{t-1}      M_t = M~ + k_t^T beta_t (v_t - k_t M~)      f = x wf1 wf2 + dt_bias, or x wf + dt_bias
//   g = -exp(a_log) softplus(f), or with a lower_bound lower_bound sigmoid(exp(a_log) f)
// q, k of length 1.
#include "frontend/layers/LsmParts.h"

using namespace mlir;
using namespace braid;

Value braid::buildKda(LayerBuilder &b, Value x, const LsmSpec &spec) {
  int64_t H = spec.heads, K = spec.headDim;
  Projections p(b);
  addQkvg(p, spec, H, H, H);
  p.add("b", {headsOf(spec, H)}, /*wide=*/true);
  if (spec.gateRank)
    p.addLowRank("f", spec.gateRank);
  else
    p.add("f", {headsOf(spec, H), K}, /*wide=*/true);
  p.run(x);
  ScanInputs in = deltaInputs(b, spec, p);
  Value f = spec.gateRank ? p.lowRank("f", {headsOf(spec, H), K}) : p["f"];
  Value aLog = decayRate(b, spec), dtBias = stepBias(b, spec, {K});
  if (spec.lowerBound < 0) {
    Value rate = b.activation("decay_rate", aLog, "exp"), opened = b.weighted("f", b.bias("f", f, dtBias), rate);
    in.logDecay = b.scale("log_decay", b.activation("log_decay", opened, "sigmoid"), spec.lowerBound);
  } else {
    in.logDecay = LogDecayOp::create(b.builder, b.loc("log_decay"), f.getType(), f, aLog, dtBias);
  }
  Value o = scan(b, spec, LsmClass::VH, in);
  bool narrow = spec.outputGate && spec.outputGateRank;
  Value gate = narrow ? p.lowRank("g", {headsOf(spec, H), spec.valueDim}, /*wide=*/false) : p["g"];
  if (spec.outputGateBias)
    gate = b.bias("g", gate, b.weight("lsm.bg", {headsOf(spec, H), spec.valueDim}, Init::constant(0.0)));
  return gatedOutput(b, spec, o, gate);
}
