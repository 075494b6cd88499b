//===- FastWeights.cpp - fast weights that decay by rank-1 gates (class R) or element by element (E) --------------===//
//   dfw   M_t = diag(f_t) M_{t-1} diag(e_t) + k_t^T v_t      f = sigmoid(x wf + bf), e = sigmoid(x we + be)
//   gfw   M_t = F_t * M_{t-1} + k_t^T v_t                    F = sigmoid(x wf + bf), [K, V] per head and token
// Gates begin at sigmoid(2): without a bias half of the state would be gone at the next token.
#include "frontend/layers/LsmParts.h"

using namespace mlir;
using namespace braid;

Value braid::buildFastWeights(LayerBuilder &b, Value x, const LsmSpec &spec) {
  int64_t H = spec.heads, K = spec.headDim, V = spec.valueDim;
  Dim heads = headsOf(spec, H);
  bool rankOne = spec.kind == LsmKind::dfw;
  Dims gate = rankOne ? Dims{heads, K} : Dims{heads, K, V};
  Projections p(b);
  addQkvg(p, spec, H, H, H);
  p.add("f", {heads, rankOne ? K : K * V}, /*wide=*/true);
  if (rankOne)
    p.add("e", {heads, V}, /*wide=*/true);
  p.run(x);
  auto logGate = [&](StringRef name, const Dims &features) -> Value {
    Shape all{b.entry.batch, b.entry.tokens};
    all.append(sizesOf(features));
    Value y =
        b.bias(name, b.reshape(name, p[name], all), b.weight(("lsm.b" + name).str(), features, Init::constant(2.0)));
    return LogSigmoidOp::create(b.builder, b.loc(name), y.getType(), y, b.builder.getF64FloatAttr(1.0));
  };
  ScanInputs in = convolved(b, spec, p);
  in.logDecay = logGate("f", gate);
  if (rankOne)
    in.valueDecay = logGate("e", {heads, V});
  return gatedOutput(b, spec, scan(b, spec, rankOne ? LsmClass::R : LsmClass::E, in), p["g"]);
}
