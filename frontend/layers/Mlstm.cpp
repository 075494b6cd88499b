//===- Mlstm.cpp - the matrix memory of xLSTM (class S), normalised -----------------------------------------------===//
// arXiv:2405.04517, equations 19 to 27; caps, norm and gate of arXiv:2503.13427:
//   f = cap(x wf + bf), i = cap(x wi + bi), cap(y) = c tanh(y / c), c = gate_softcap
//   M_t = sigmoid(f_t) M_{t-1} + exp(i_t) k_t^T v_t      z_t = sigmoid(f_t) z_{t-1} + exp(i_t) k_t^T
//   o = norm((q M) / max(|q z|, 1)) act(x wg) wo, a layer norm per head, its weight over all heads' features, no bias
// The papers divide M and z by exp(m), m the greatest i that has not decayed, and bound |q z| by exp(-m) instead of 1: the same
// number. It keeps exponentials of any i within a type's numbers; caps do so too (exp(40) is the most).
// z, the sum of keys, is one more value column: of ones.
#include "frontend/layers/LsmParts.h"

using namespace mlir;
using namespace braid;

/// Biases of forget gates: evenly from 3 to 6 over heads, as published.
static Init forgetBias(int64_t heads) {
  std::vector<double> values;
  for (int64_t h = 0; h < heads; ++h)
    values.push_back(3.0 + 3.0 * static_cast<double>(h) / static_cast<double>(std::max<int64_t>(heads - 1, 1)));
  return {"values", 0, 0, 0, std::move(values)};
}

Value braid::buildMlstm(LayerBuilder &b, Value x, const LsmSpec &spec) {
  OpBuilder &builder = b.builder;
  int64_t H = spec.heads, V = spec.valueDim;
  Dim heads = headsOf(spec, H);
  Projections p(b);
  addQkvg(p, spec, H, H, H);
  p.add("i", {heads}, /*wide=*/true);
  p.add("f", {heads}, /*wide=*/true);
  p.run(x);
  auto gate = [&](StringRef name, Init init) {
    Value y = b.bias(name, p[name], b.weight(("lsm.b" + name).str(), {heads}, std::move(init)));
    return b.softcapped(name, y, spec.gateSoftcap);
  };
  ScanInputs in = convolved(b, spec, p);
  Value i = gate("i", Init::constant(-10.0)), f = gate("f", forgetBias(H));
  in.logDecay = LogSigmoidOp::create(builder, b.loc("log_decay"), f.getType(), f, builder.getF64FloatAttr(1.0));
  in.k = b.mul("k", in.k, b.activation("write", i, "exp"));
  in.v = appendOne(b, in.v);
  Value o = divideByLast(b, scan(b, spec, LsmClass::S, in), V, /*eps=*/0.0, /*least=*/1.0);
  if (spec.outputNorm) {
    Value weight = b.weight("lsm.norm.weight", {heads, V}, Init::constant(1.0));
    o = LayerNormOp::create(builder, b.loc("o_normed"), o.getType(), o, weight, Value(),
                            builder.getF64FloatAttr(spec.normEps));
  }
  if (p["g"])
    o = b.mul("o_gated", o, b.activation("g", p["g"], *spec.outputGate));
  return projectOutput(b, spec, o);
}
