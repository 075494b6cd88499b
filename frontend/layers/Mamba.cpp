//===- Mamba.cpp - selective state space with one decay per element of the state (class E) ------------------------===//
//   delta = softplus([norm](u wdt_a) wdt_b + dt_bias) [V]      G = -exp(a_log) delta      k = B = [norm](u wk), q = C = [norm](u wq), v = delta
//   u M_t = exp(G_t) * M_{t-1} + k_t^T v_t      y = q M + d u      out = y act(z) wo      u = silu(conv(x wv)), z = x
//   wg
// head_dim is the number of states of a channel. The published model has one q and k for all channels (key_heads 1): its
// heads only say which channels stay together.
// exp(a_log) of the states of a channel begins as 1, 2, .., head_dim (S4D-real), or evenly over decay_range.
#include "frontend/layers/LsmParts.h"
#include <cmath>

using namespace mlir;
using namespace braid;

static Value stateRates(LayerBuilder &b, const LsmSpec &spec) {
  auto [low, high] = spec.decayRange;
  std::vector<double> rates;
  for (int64_t n = 0, K = spec.headDim; n < K; ++n)
    rates.insert(
        rates.end(), spec.valueDim,
        std::log(low + (high - low) * static_cast<double>(n) / static_cast<double>(std::max<int64_t>(K - 1, 1))));
  return b.weight("lsm.a_log", {headsOf(spec, spec.heads), spec.headDim, spec.valueDim},
                  {"values", 0, 0, 0, std::move(rates)});
}

Value braid::buildMamba(LayerBuilder &b, Value x, const LsmSpec &spec) {
  int64_t H = spec.heads, G = spec.keyHeads, K = spec.headDim, V = spec.valueDim;
  Dim heads = headsOf(spec, H), channels = flattened({heads, V});
  Projections p(b);
  p.add("v", {heads, V});
  if (spec.outputGate)
    p.add("g", {heads, V});
  p.run(x);
  Value u = shortConv(b, spec, "v", p["v"]), flat = joinHeads(b, "u", u);
  auto bc = b.linear(
      flat, {{"q", b.matrix("lsm.wq", channels, G * K), {G, K}}, {"k", b.matrix("lsm.wk", channels, G * K), {G, K}}});
  auto normed = [&](StringRef name, Value x) -> Value { // Jamba, arXiv:2403.19887
    if (!spec.bcdtNorm)
      return x;
    int64_t width = cast<RankedTensorType>(x.getType()).getShape().back();
    auto features = static_cast<double>(width);
    if (!spec.bcdtNormWeights) // Falcon Mamba, arXiv:2410.05355
      return b.scale(name, b.l2Norm(name, x, spec.normEps * features), std::sqrt(features));
    Value weight = b.weight(("lsm." + name + "_norm.weight").str(), {width}, Init::constant(1.0));
    return b.rmsNorm(name, x, weight, spec.normEps);
  };
  Value dt = lowRank(b, "wdt", flat, spec.gateRank, {heads, V}, std::nullopt, [&](Value x) { return normed("dt", x); });
  Value delta = b.activation("delta", b.bias("delta", dt, stepBias(b, spec, {V})), "softplus");
  Value aLog = stateRates(b, spec);
  ScanInputs in;
  in.q = normed("q", bc[0]);
  in.k = normed("k", bc[1]);
  in.v = b.mul("v", u, delta);
  in.logDecay = ElementDecayOp::create(b.builder, b.loc("log_decay"), b.wideTokens({H, K, V}), delta, aLog);
  Value o = scan(b, spec, LsmClass::E, in);
  Value skip = b.weighted("skip", u, b.weight("lsm.d", {heads, V}, Init::constant(1.0)));
  return gatedOutput(b, spec, b.add("y", {o, skip}), p["g"], {.beforeGate = false});
}
