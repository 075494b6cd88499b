//===- Lightning.cpp - lightning attention (class S0) -------------------------------------------------------------===//
//   M_t = exp(-s_h) M_{t-1} + k_t^T v_t      q, k, v = silu(x w)      out = norm over all heads(o) act(g) wo
// slopes: minimax 2^(-8 (h + 1) / H) (1 - l / (L - 1) + 1e-5) in layer l of L; transnormer 8 h / H (1 - l / L).
#include "frontend/layers/LsmParts.h"
#include <cmath>

using namespace mlir;
using namespace braid;

Value braid::buildLightning(LayerBuilder &b, Value x, const LsmSpec &spec) {
  Projections p(b);
  addQkvg(p, spec, spec.heads, spec.heads, spec.heads);
  p.run(x);
  auto projected = [&](StringRef name) { return b.activation(name, shortConv(b, spec, name, p[name]), "silu"); };
  ScanInputs in;
  in.q = projected("q");
  in.k = projected("k");
  in.v = projected("v");
  bool linear = spec.slopes == "transnormer";
  in.logDecay = constantDecay(b, spec, [linear, H = spec.heads, layers = b.spec.numLayers](int64_t layer) {
    double l = static_cast<double>(layer), L = static_cast<double>(layers), heads = static_cast<double>(H);
    std::vector<double> decays;
    for (int64_t i = 0; i < H; ++i) {
      double h = static_cast<double>(i);
      decays.push_back(linear ? -8.0 * h / heads * (1 - l / L)
                              : -std::exp2(-8.0 * (h + 1) / heads) * (1 - l / (L - 1 + 1e-5) + 1e-5));
    }
    return decays;
  });
  Value o = joinHeads(b, "o", scan(b, spec, LsmClass::S0, in));
  return gatedOutput(b, spec, o, p["g"] ? joinHeads(b, "g", p["g"]) : Value());
}
