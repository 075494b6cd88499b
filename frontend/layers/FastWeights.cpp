//===- FastWeights.cpp - fast weights that decay by rank-1 gates (class R) or element by element (E) --------------===//
//   dfw   M_t = diag(f_t) M_{t-1} diag(e_t) + k_t^T v_t      f = sigmoid(x wf + bf), e = sigmoid(x we + be)
//   gfw   M_t = F_t * M_{t-1} + k_t^T v_t                    F = sigmoid(x wf + bf), [K, V] per head and token
// Gates begin at sigmoid(2): without a bias half of the state would be gone at the next token.
#include "frontend/layers/LsmParts.h"

using namespace mlir;
using namespace braid;

Value braid::buildFastWeights(LayerBuilder &b, Value x, const LsmSpec &spec) {
  int64_t H = spec.heads, K = spec.headDim, V = spec.valueDim;
  bool rankOne = spec.kind == LsmKind::dfw;
  Shape gate = rankOne ? Shape{H, K} : Shape{H, K, V};
  Projections p(b);
  addQkvg(p, spec, H, H, H);
  p.add("f", {H, rankOne ? K : K * V}, /*wide=*/true);
  if (rankOne)
    p.add("e", {H, V}, /*wide=*/true);
  p.run(x);
  auto logGate = [&](StringRef name, Shape shape) -> Value {
    Shape all{b.entry.batch, b.entry.tokens};
    all.append(shape);
    Value y = b.bias(name, b.reshape(name, p[name], all),
                     b.weight(("lsm.b" + name).str(), Dims(shape.begin(), shape.end()), Init::constant(2.0)));
    return LogSigmoidOp::create(b.builder, b.loc(name), y.getType(), y, b.builder.getF64FloatAttr(1.0));
  };
  ScanInputs in;
  in.q = shortConv(b, spec, "q", p["q"]);
  in.k = shortConv(b, spec, "k", p["k"]);
  in.v = shortConv(b, spec, "v", p["v"]);
  in.logDecay = logGate("f", gate);
  if (rankOne)
    in.valueDecay = logGate("e", {H, V});
  return gatedOutput(b, spec, scan(b, spec, rankOne ? LsmClass::R : LsmClass::E, in), p["g"]);
}
