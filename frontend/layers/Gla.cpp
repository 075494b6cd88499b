//===- Gla.cpp - gated linear attention (class V) -----------------------------------------------------------------===//
//   M_t = diag(exp g_t) M_{t-1} + k_t^T v_t      g = logsigmoid(x wf1 wf2 + bf) / gate_divisor, per key channel
#include "frontend/layers/LsmParts.h"

using namespace mlir;
using namespace braid;

Value braid::buildGla(LayerBuilder &b, Value x, const LsmSpec &spec) {
  int64_t G = spec.kvHeads, K = spec.headDim;
  Projections p(b);
  addQkvg(p, spec, spec.heads, G, G);
  p.addLowRank("f", spec.gateRank);
  p.run(x);
  Value f = b.bias("f", p.lowRank("f", {headsOf(spec, G), K}),
                   b.weight("lsm.bf", {headsOf(spec, G), K}, Init::constant(0.0)));
  ScanInputs in = convolved(b, spec, p);
  in.logDecay =
      LogSigmoidOp::create(b.builder, b.loc("log_decay"), f.getType(), f, b.builder.getF64FloatAttr(spec.gateDivisor));
  return gatedOutput(b, spec, scan(b, spec, LsmClass::V, in), p["g"]);
}
