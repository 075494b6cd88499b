//===- Hgrn2.cpp - gated linear RNN with an expanded state (class V) ----------------------------------------------===//
//   a_t = l + (1 - l) sigmoid(f_t)      M_t = diag(a_t) M_{t-1} + (1 - a_t)^T v_t      q = silu(x wq), f = x wk
// l, the least a of a layer, grows from 0 by 1 / num_layers: data, the published bounds before training. 1 - a is never
// computed from a: (1 - l) sigmoid(-f) keeps its digits where a is near 1. Norm over all heads.
#include "frontend/layers/LsmParts.h"

using namespace mlir;
using namespace braid;

Value braid::buildHgrn2(LayerBuilder &b, Value x, const LsmSpec &spec) {
  int64_t H = spec.heads, K = spec.headDim;
  Dim heads = headsOf(spec, H);
  Projections p(b);
  p.add("q", {heads, K});
  p.add("k", {heads, K}, /*wide=*/true);
  p.add("v", {heads, spec.valueDim});
  if (spec.outputGate)
    p.add("g", {heads, spec.valueDim});
  p.run(x);
  Init bounds{"values", 0, 0, 0, {}, [H, layers = b.spec.numLayers](int64_t layer) {
                return std::vector<double>(H, static_cast<double>(layer) / static_cast<double>(layers));
              }};
  Value least = b.weight("lsm.lower_bound", {heads}, std::move(bounds), /*decay=*/false, /*trained=*/false);
  Value f = p["k"], share = b.activation("k", b.scale("k", f, -1.0), "sigmoid");
  ScanInputs in;
  in.q = b.activation("q", shortConv(b, spec, "q", p["q"]), "silu");
  in.k = b.narrow("k", b.add("k", {share, b.scale("k", b.weighted("k", share, least), -1.0)}));
  in.v = shortConv(b, spec, "v", p["v"]);
  in.logDecay = BoundedGateOp::create(b.builder, b.loc("log_decay"), f.getType(), f, least);
  Value o = joinHeads(b, "o", scan(b, spec, LsmClass::V, in));
  return gatedOutput(b, spec, o, p["g"] ? joinHeads(b, "g", p["g"]) : Value());
}
