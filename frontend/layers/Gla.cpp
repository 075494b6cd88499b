//===- Gla.cpp - gated linear attention (class V) -----------------------------------------------------------------===//
//   M_t = diag(exp g_t) M_{t-1} + k_t^T v_t      g = logsigmoid(x wf1 wf2 + bf) / gate_divisor, per key channel
#include "frontend/layers/LsmParts.h"

using namespace mlir;
using namespace braid;

Value braid::buildGla(LayerBuilder &b, Value x, const LsmSpec &spec) {
  int64_t G = spec.kvHeads, K = spec.headDim, R = spec.gateRank;
  Projections p(b);
  addQkvg(p, spec, spec.heads, G, G);
  p.add("f1", {R});
  p.run(x);
  Value f = b.linear("f", p["f1"], b.matrix("lsm.wf2", R, flattened({headsOf(spec, G), K}), MatrixRole::narrow), {G, K},
                     /*wide=*/true);
  f = b.bias("f", f, b.weight("lsm.bf", {headsOf(spec, G), K}, Init::constant(0.0)));
  ScanInputs in;
  in.q = shortConv(b, spec, "q", p["q"]);
  in.k = shortConv(b, spec, "k", p["k"]);
  in.v = shortConv(b, spec, "v", p["v"]);
  in.logDecay =
      LogSigmoidOp::create(b.builder, b.loc("log_decay"), f.getType(), f, b.builder.getF64FloatAttr(spec.gateDivisor));
  return gatedOutput(b, spec, scan(b, spec, LsmClass::V, in), p["g"]);
}
