//===- Rglru.cpp - real-gated linear recurrent units (class R, a state of one row for each head) ------------------===//
// Griffin, arXiv:2402.19427, section 2.4; per channel, blocks of gates' matrices as Recurrent Gemma has them (arXiv:2404.07839):
//   u = conv(x wv + bv)      r = sigmoid(u wr + br), i = sigmoid(u wi + bi), wr and wi a matrix [V, V] for each of H heads
//   g = -8 r softplus(a)     h_t = exp(g_t) h_{t-1} + m_t i_t u_t, m = sqrt(1 - exp(2 g)), 1 at the first token of a document
//   out = (h act(x wg + bg)) wo + bo
// 1 - exp(2 g) = -tanh(g) (1 + exp(2 g)) keeps its digits where a channel hardly decays. softplus(a) begins within step_range.
#include "frontend/layers/LsmParts.h"

using namespace mlir;
using namespace braid;

/// Of each token whether one of its document is before it, 0 or 1: the sum of both their ones, less 1. A constant, whatever weights a file has.
static Value hasBefore(LayerBuilder &b) {
  FloatType wide = b.elementTypes().wide;
  int64_t B = b.entry.batch, T = b.entry.tokens;
  Value ones = filled(b, "ones", RankedTensorType::get({B, T, 1}, wide), 1),
        taps = filled(b, "taps", RankedTensorType::get({1, 2}, wide), 1);
  Value tail = b.state("lsm.begin", wide, {B, 1, 1});
  auto both =
      ShortConvOp::create(b.builder, b.loc("begin"), ones.getType(), tail.getType(), ones, taps, b.documents(), tail);
  b.setState("lsm.begin", both.getNewTail());
  return b.offset("begin", b.reshape("begin", both.getY(), {B, T}), -1.0);
}

Value braid::buildRglru(LayerBuilder &b, Value x, const LsmSpec &spec) {
  constexpr double kSharpness = 8.0;
  OpBuilder &builder = b.builder;
  int64_t H = spec.heads, V = spec.valueDim;
  Dim heads = headsOf(spec, H);
  Projections p(b);
  p.add("v", {heads, V});
  if (spec.outputGate)
    p.add("g", {heads, V});
  p.run(x);
  auto biased = [&](StringRef name) {
    if (spec.projectionBias && p[name])
      p.replace(name, b.bias(name, p[name], b.weight(("lsm.b" + name).str(), {heads, V}, Init::constant(0.0))));
  };
  biased("v");
  biased("g");
  Value u = spec.conv ? convolve(b, *spec.conv, "v", p["v"], heads.name) : p["v"];
  auto gate = [&](StringRef name) {
    Value y = HeadLinearOp::create(builder, b.loc(name), b.tokens({H, V}), u,
                                   b.headMatrices(("lsm.w" + name).str(), heads, V, V), /*transposed=*/false);
    Value bias = b.weight(("lsm.b" + name).str(), {heads, V}, Init::constant(0.0));
    return b.activation(name, b.bias(name, b.widen(name, y), bias), "sigmoid");
  };
  Value r = gate("r"), i = gate("i");
  // What is computed of a weight alone is a row of one token (as token slices know).
  Value a = b.weight("lsm.a", {heads, V}, {"softplus_inverse", 0, spec.stepRange[0], spec.stepRange[1], {}});
  Value rate = b.reshape("rate", b.activation("rate", b.reshape("rate", a, {1, 1, H, V}), "softplus"), {H, V});
  Value g = b.scale("log_decay", b.weighted("log_decay", r, rate), -kSharpness);
  Value kept = b.offset("kept", b.activation("kept", b.scale("kept", g, 2.0), "exp"), 1.0);
  Value rest = b.scale("rest", b.mul("rest", b.activation("rest", g, "tanh"), kept), -1.0);
  // m - 1 counts but at the first token of a document, in front of which there is none.
  Value m = b.offset("m", b.mul("m", b.offset("m", b.activation("m", rest, "sqrt"), -1.0), hasBefore(b)), 1.0);
  ScanInputs in;
  in.q = in.k = filled(b, "ones", b.tokens({H, 1}), 1);
  in.v = b.mul("v", u, b.mul("m", i, m));
  in.logDecay = filled(b, "none", b.wideTokens({H, 1}), 0);
  in.valueDecay = g;
  Value o = scan(b, spec, LsmClass::R, in);
  if (p["g"])
    o = b.mul("o_gated", o, b.activation("g", p["g"], *spec.outputGate));
  Value y = projectOutput(b, spec, o);
  return spec.outputBias ? b.bias("lsm_out", y, b.weight("lsm.bo", {b.embed()}, Init::constant(0.0))) : y;
}
