//===- Retnet.cpp - retention (class S0) --------------------------------------------------------------------------===//
//   M_t = gamma_h M_{t-1} + k_t^T v_t      gamma_h = 1 - 2^(-5-h)      q, k rotated
// The log decays are an untrained entry of the weights: data, so that layers share one function and files can differ.
#include "frontend/layers/LsmParts.h"
#include <cmath>

using namespace mlir;
using namespace braid;

Value braid::buildRetnet(LayerBuilder &b, Value x, const LsmSpec &spec) {
  Projections p(b);
  addQkvg(p, spec, spec.heads, spec.kvHeads, spec.kvHeads);
  p.run(x);
  std::vector<double> slopes;
  for (int64_t h = 0; h < spec.heads; ++h)
    slopes.push_back(std::log1p(-std::exp2(-5.0 - static_cast<double>(h))));
  ScanInputs in;
  in.q = shortConv(b, spec, "q", p["q"]);
  in.k = shortConv(b, spec, "k", p["k"]);
  in.v = shortConv(b, spec, "v", p["v"]);
  in.logDecay = b.weight("lsm.log_decay", {headsOf(spec, spec.heads)}, {"values", 0, 0, 0, slopes}, /*decay=*/false,
                         /*trained=*/false);
  return gatedOutput(b, spec, scan(b, spec, LsmClass::S0, in), p["g"]);
}
