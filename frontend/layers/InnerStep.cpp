//===- InnerStep.cpp - models that learn while they read: TTT-Linear, Titans --------------------------------------===//
//   ttt        inner model LN(k W + c), target v - k; rates sigmoid(x wlr + lr_bias) inner_rate / head_dim, weighted
//              where they are read by max(1/i + token_rate_i, 0), i the place in the mini-batch;  o = q + LN(q W + c)
//              q, k: one projection, two convolutions, positions within the mini-batch
//   titans     inner model k M, target v, momentum and forgetting: S = eta S - theta grad, M = (1 - alpha) M + S
//              theta = inner_rate sigmoid(x wr + br), alpha = sigmoid(x wa + ba), eta = sigmoid(x we + be)
//   titans_ln  the same with inner model LN(k M), target v - k
// The bias c of an inner model is one more key channel, of ones: W [K + 1, V].
#include "dialects/braid/InnerTraits.h"
#include "frontend/layers/LsmParts.h"

using namespace mlir;
using namespace braid;

static_assert(maxMiniBatch == kMostMiniBatch);

Value braid::innerStep(LayerBuilder &b, const LsmSpec &spec, const InnerInputs &in) {
  auto widthOf = [](Value x) { return cast<RankedTensorType>(x.getType()).getShape().back(); };
  int64_t planes = innerPlanes(in.logMomentum != nullptr, in.readRate != nullptr, spec.miniBatch);
  Value state = b.state("lsm.state", b.elementTypes().wide,
                        {b.entry.batch, headsOf(spec, spec.heads), planes * widthOf(in.k), widthOf(in.target)});
  auto op = LsmInnerStepOp::create(b.builder, b.loc("o"), in.target.getType(), state.getType(), in.q, in.k, in.target,
                                   in.rate, in.logDecay, in.logMomentum, in.readRate, in.normWeight, in.normBias,
                                   in.start, state, b.documents(), b.builder.getI64IntegerAttr(spec.miniBatch),
                                   b.builder.getF64FloatAttr(in.normEps));
  b.setState("lsm.state", op.getFinalState());
  return op.getO();
}

namespace {
void addInnerNorm(LayerBuilder &b, const LsmSpec &spec, InnerInputs &in) {
  Dims features{headsOf(spec, spec.heads), spec.valueDim};
  in.normWeight = b.weight("lsm.inner_norm.weight", features, Init::constant(1.0));
  in.normBias = b.weight("lsm.inner_norm.bias", features, Init::constant(0.0));
}

/// A projection of x and its bias, one number per head.
Value perHead(LayerBuilder &b, const LsmSpec &spec, const Projections &p, StringRef name, double bias) {
  Value weight = b.weight(("lsm.b" + name).str(), {headsOf(spec, spec.heads)}, Init::constant(bias));
  return b.bias(name, p[name], weight);
}

Value logSigmoid(LayerBuilder &b, StringRef name, Value x) {
  return LogSigmoidOp::create(b.builder, b.loc(name), x.getType(), x, b.builder.getF64FloatAttr(1.0));
}
} // namespace

Value braid::buildTtt(LayerBuilder &b, Value x, const LsmSpec &spec) {
  int64_t H = spec.heads, K = spec.headDim, V = spec.valueDim;
  Dim heads = headsOf(spec, H);
  Projections p(b);
  p.add("qk", {heads, K});
  p.add("v", {heads, V});
  if (spec.outputGate)
    p.add("g", {heads, V});
  p.add("r", {heads}, /*wide=*/true);
  p.run(x);
  auto placed = [&](StringRef name) {
    Value y = spec.conv ? convolve(b, *spec.conv, name, p["qk"], heads.name) : p["qk"];
    return spec.rope ? b.rope(name, y, *spec.rope, spec.miniBatch) : y;
  };
  Value q = placed("q"), k = placed("k");
  auto withOne = [&](StringRef name, Value y) -> Value {
    return AppendOneOp::create(b.builder, b.loc(name), b.tokens({H, K + 1}), y, b.builder.getI64IntegerAttr(0));
  };
  InnerInputs in;
  in.q = withOne("q_one", b.scaled("q", q, spec.scale));
  in.k = withOne("k_one", k);
  in.target = minus(b, "target", p["v"], k);
  Value rate = b.wideActivation("rate", perHead(b, spec, p, "r", 0.0), "sigmoid");
  in.rate = b.scale("rate", rate, spec.innerRate / static_cast<double>(K));
  in.readRate = PositionRateOp::create(b.builder, b.loc("token_rate"), b.wideTokens({H}), b.documents(),
                                       b.weight("lsm.token_rate", {spec.miniBatch}, Init::constant(0.0)));
  addInnerNorm(b, spec, in);
  in.start = b.weight("lsm.start", {heads, K + 1, V}, Init::normal(0.02));
  Value read = innerStep(b, spec, in);
  read = LayerNormOp::create(b.builder, b.loc("read"), read.getType(), read, in.normWeight, in.normBias,
                             b.builder.getF64FloatAttr(1e-6));
  Value o = joinHeads(b, "o", b.add("o", {q, read}));
  if (spec.outputNorm) {
    Value weight = b.weight("lsm.norm.weight", {flattened({heads, V})}, Init::constant(1.0));
    Value bias = b.weight("lsm.norm.bias", {flattened({heads, V})}, Init::constant(0.0));
    o = LayerNormOp::create(b.builder, b.loc("o_normed"), o.getType(), o, weight, bias,
                            b.builder.getF64FloatAttr(spec.normEps));
  }
  if (spec.outputGate)
    o = b.mul("o_gated", o, b.activation("g", joinHeads(b, "g", p["g"]), *spec.outputGate));
  return projectOutput(b, spec, o);
}

Value braid::buildTitans(LayerBuilder &b, Value x, const LsmSpec &spec) {
  int64_t H = spec.heads;
  bool normed = spec.kind == LsmKind::titans_ln;
  Projections p(b);
  addQkvg(p, spec, H, H, H);
  for (StringRef gate : {"r", "a", "e"})
    if (gate != "e" || spec.momentum)
      p.add(gate, {headsOf(spec, H)}, /*wide=*/true);
  p.run(x);
  auto unit = [&](StringRef name) { return b.l2Norm(name, rotate(b, spec, name, shortConv(b, spec, name, p[name]))); };
  InnerInputs in;
  in.q = b.scaled("q", unit("q"), spec.scale);
  in.k = unit("k");
  Value v = shortConv(b, spec, "v", p["v"]);
  in.target = normed ? minus(b, "target", v, in.k) : v;
  // The gradient of |k M - v|^2 is twice that of the op.
  in.rate = b.scale("rate", b.wideActivation("rate", perHead(b, spec, p, "r", 0.0), "sigmoid"), 2.0 * spec.innerRate);
  // What is kept is 1 - sigmoid(a) = sigmoid(-a); at first 7/8 of it.
  in.logDecay = logSigmoid(b, "log_decay", b.scale("log_decay", perHead(b, spec, p, "a", -2.0), -1.0));
  if (spec.momentum)
    in.logMomentum = logSigmoid(b, "log_momentum", perHead(b, spec, p, "e", 0.0));
  if (normed)
    addInnerNorm(b, spec, in);
  return gatedOutput(b, spec, innerStep(b, spec, in), p["g"]);
}
