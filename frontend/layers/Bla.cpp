//===- Bla.cpp - basic linear attention (class I) -----------------------------------------------------------------===//
//   M_t = M_{t-1} + phi(k_t)^T v_t      o_t = scale phi(q_t) M_t
// Not normalised by the sum of keys: the norm per head takes that role.
#include "frontend/layers/LsmParts.h"

using namespace mlir;
using namespace braid;

Value braid::buildBla(LayerBuilder &b, Value x, const LsmSpec &spec) {
  Projections p(b);
  addQkvg(p, spec, spec.heads, spec.kvHeads, spec.kvHeads);
  p.run(x);
  ScanInputs in;
  in.q = featureMap(b, spec, "q", shortConv(b, spec, "q", p["q"]));
  in.k = featureMap(b, spec, "k", shortConv(b, spec, "k", p["k"]));
  in.v = shortConv(b, spec, "v", p["v"]);
  return gatedOutput(b, spec, scan(b, spec, LsmClass::I, in), p["g"]);
}
