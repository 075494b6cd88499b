//===- Deltanet.cpp - the delta rule (class H) --------------------------------------------------------------------===//
//   M_t = M_{t-1} + k_t^T beta_t (v_t - k_t M_{t-1})      q, k of length 1, beta = sigmoid(x wb)
#include "frontend/layers/LsmParts.h"

using namespace mlir;
using namespace braid;

Value braid::buildDeltanet(LayerBuilder &b, Value x, const LsmSpec &spec) {
  Projections p(b);
  addQkvg(p, spec, spec.heads, spec.heads, spec.heads);
  p.add("b", {headsOf(spec, spec.heads)}, /*wide=*/true);
  p.run(x);
  ScanInputs in = deltaInputs(b, spec, p);
  return gatedOutput(b, spec, scan(b, spec, LsmClass::H, in), p["g"]);
}
