//===- Retnet.cpp - retention (class S0) --------------------------------------------------------------------------===//
//   M_t = gamma_h M_{t-1} + k_t^T v_t      gamma_h = 1 - 2^(-5-h)      q, k rotated
#include "frontend/layers/LsmParts.h"
#include <cmath>

using namespace mlir;
using namespace braid;

Value braid::buildRetnet(LayerBuilder &b, Value x, const LsmSpec &spec) {
  Projections p(b);
  addQkvg(p, spec, spec.heads, spec.kvHeads, spec.kvHeads);
  p.run(x);
  ScanInputs in = convolved(b, spec, p);
  in.logDecay = constantDecay(b, spec, [H = spec.heads](int64_t) {
    std::vector<double> decays;
    for (int64_t h = 0; h < H; ++h)
      decays.push_back(std::log1p(-std::exp2(-5.0 - static_cast<double>(h))));
    return decays;
  });
  return gatedOutput(b, spec, scan(b, spec, LsmClass::S0, in), p["g"]);
}
