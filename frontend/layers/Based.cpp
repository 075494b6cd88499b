//===- Based.cpp - linear attention whose scores are polynomials (class I), normalised ----------------------------===//
//   M_t = M_{t-1} + phi(k_t)^T [v_t, 1]      o_t = (phi(q_t) M_t)_v / ((phi(q_t) M_t)_1 + 1e-6)
//   based    phi(q).phi(k) = 1 + s + s^2 / 2, s = q.k / sqrt d
//   rebased  phi(q).phi(k) = (q.k)^2 / d, q and k through one layer norm with a weight and a bias
// The normaliser, the sum of all scores, is one more value column: of ones.
#include "frontend/layers/LsmParts.h"

using namespace mlir;
using namespace braid;

Value braid::buildBased(LayerBuilder &b, Value x, const LsmSpec &spec) {
  OpBuilder &builder = b.builder;
  int64_t d = spec.headDim, H = spec.heads, V = spec.valueDim;
  Projections p(b);
  addQkvg(p, spec, H, H, H);
  p.run(x);
  Value weight, bias;
  if (spec.kind == LsmKind::rebased) {
    weight = b.weight("lsm.feature_norm.weight", {d}, Init::constant(1.0));
    bias = b.weight("lsm.feature_norm.bias", {d}, Init::constant(0.0));
  }
  int64_t features = d * (d + 1) / 2 + (weight ? 0 : 1 + d);
  auto map = [&](StringRef name) -> Value {
    Value y = shortConv(b, spec, name, p[name]);
    if (weight)
      y = LayerNormOp::create(builder, b.loc(name), y.getType(), y, weight, bias, builder.getF64FloatAttr(1e-5));
    y = rotate(b, spec, name, y); // positions before the products
    return FeatureMapOp::create(builder, b.loc(name), b.tokens({H, features}), y,
                                builder.getStringAttr(weight ? "square" : "taylor"));
  };
  ScanInputs in;
  in.q = map("q");
  in.k = map("k");
  in.v = appendOne(b, shortConv(b, spec, "v", p["v"]));
  LsmSpec turned = spec;
  turned.rope.reset();
  Value o = divideByLast(b, scan(b, turned, LsmClass::I, in), V, 1e-6);
  return gatedOutput(b, spec, o, p["g"]);
}
