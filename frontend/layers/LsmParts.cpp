//===- LsmParts.cpp - projections, convolutions, gates, scan and output of linear sequence models -----------------===//
#include "frontend/layers/LsmParts.h"
#include <cmath>

using namespace mlir;
using namespace braid;

void Projections::add(StringRef name, ArrayRef<Dim> features, bool wide) {
  add(name, features, wide, name == "v" ? MatrixRole::value : MatrixRole::query);
}

void Projections::add(StringRef name, ArrayRef<Dim> features, bool wide, MatrixRole role) {
  projections.push_back(
      {name.str(), b.matrix(("lsm.w" + name).str(), b.embed(), flattened(features), role), sizesOf(features), wide});
}

Dim braid::headsOf(const LsmSpec &spec, int64_t count) { return {count, count == spec.heads ? "heads" : "kv_heads"}; }

void Projections::run(Value x) { values = b.linear(x, projections); }

Value Projections::operator[](StringRef name) const {
  for (auto [projection, value] : llvm::zip_equal(projections, values))
    if (projection.name == name)
      return value;
  return {};
}

void braid::addQkvg(Projections &p, const LsmSpec &spec, int64_t queryHeads, int64_t keyHeads, int64_t valueHeads) {
  p.add("q", {headsOf(spec, queryHeads), spec.headDim});
  p.add("k", {headsOf(spec, keyHeads), spec.headDim});
  p.add("v", {headsOf(spec, valueHeads), spec.valueDim});
  if (spec.outputGate)
    p.add("g", {headsOf(spec, spec.heads), spec.valueDim});
}

Value braid::shortConv(LayerBuilder &b, const LsmSpec &spec, StringRef name, Value x) {
  if (!spec.conv)
    return x;
  std::string heads = headsOf(spec, cast<RankedTensorType>(x.getType()).getDimSize(2)).name;
  return b.activation(name, convolve(b, *spec.conv, name, x, heads), "silu");
}

Value braid::convolve(LayerBuilder &b, const ConvSpec &spec, StringRef name, Value x, StringRef heads) {
  auto type = cast<RankedTensorType>(x.getType());
  int64_t taps = spec.kernel;
  Dims features(type.getShape().drop_front(2));
  if (features.size() > 1)
    features[0].name = heads.str();
  Dim channels = flattened(features);
  double bound = 1.0 / std::sqrt(static_cast<double>(taps));
  std::string key = ("lsm.conv_" + name).str();
  Value tail = b.state(key, b.elementTypes().element, {b.entry.batch, taps - 1, channels});
  Value weight = b.weight(key + ".weight", {channels, taps}, Init::uniform(-bound, bound), /*decay=*/true);
  auto conv = ShortConvOp::create(b.builder, b.loc(name), type, tail.getType(), x, weight, b.documents(), tail);
  b.setState(key, conv.getNewTail());
  Value y = conv.getY();
  if (spec.bias)
    y = b.bias(name, y, b.weight(key + ".bias", features, Init::constant(0.0)));
  return y;
}

Value braid::featureMap(LayerBuilder &b, const LsmSpec &spec, StringRef name, Value x) {
  if (spec.featureMap == "identity")
    return x;
  if (spec.featureMap == "softmax")
    return b.softmax(name, x);
  return b.activation(name, x, spec.featureMap);
}

Value braid::rotate(LayerBuilder &b, const LsmSpec &spec, StringRef name, Value x) {
  return spec.rope ? b.rope(name, x, *spec.rope) : x;
}

Value braid::writeStrength(LayerBuilder &b, const LsmSpec &spec, Value raw) {
  Value beta = b.wideActivation("beta", raw, "sigmoid");
  return spec.allowNegEigval ? b.scale("beta", beta, 2.0) : beta;
}

Value braid::decayRate(LayerBuilder &b, const LsmSpec &spec) {
  return b.weight("lsm.a_log", {headsOf(spec, spec.heads)},
                  {"log_uniform", 0, spec.decayRange[0], spec.decayRange[1], {}});
}

Value braid::stepBias(LayerBuilder &b, const LsmSpec &spec) {
  return b.weight("lsm.dt_bias", {headsOf(spec, spec.heads)},
                  {"softplus_inverse", 0, spec.stepRange[0], spec.stepRange[1], {}});
}

Value braid::scan(LayerBuilder &b, const LsmSpec &spec, LsmClass kind, ScanInputs in) {
  int64_t H = spec.heads, K = spec.headDim, V = spec.valueDim;
  double scale = spec.scale > 0 ? spec.scale : 1.0 / std::sqrt(static_cast<double>(K));
  Value state = b.state("lsm.state", b.elementTypes().wide, {b.entry.batch, headsOf(spec, H), K, V});
  Value q = b.repeatHeads("q", rotate(b, spec, "q", in.q), H), k = b.repeatHeads("k", rotate(b, spec, "k", in.k), H);
  Value v = b.repeatHeads("v", in.v, H), logDecay = in.logDecay;
  if (logDecay && kind == LsmClass::V)
    logDecay = b.repeatHeads("log_decay", logDecay, H);
  auto op = LsmScanOp::create(b.builder, b.loc("o"), b.tokens({H, V}), state.getType(), q, k, v, logDecay, in.beta,
                              Value(), Value(), Value(), state, b.documents(), LsmClassAttr::get(b.builder.getContext(), kind),
                              b.builder.getF64FloatAttr(scale), IntegerAttr());
  b.setState("lsm.state", op.getFinalState());
  return op.getO();
}

Value braid::gatedOutput(LayerBuilder &b, const LsmSpec &spec, Value o, Value gate, OutputNorm norm) {
  OpBuilder &builder = b.builder;
  Dim inner = flattened({headsOf(spec, spec.heads), spec.valueDim});
  if (spec.outputNorm) {
    int64_t width = cast<RankedTensorType>(o.getType()).getShape().back();
    Value weight = b.weight("lsm.norm.weight", {width}, Init::constant(1.0));
    if (gate)
      o = GatedNormOp::create(builder, b.loc("o_gated"), o.getType(), o, gate, weight,
                              builder.getF64FloatAttr(spec.normEps), builder.getStringAttr(*spec.outputGate),
                              builder.getBoolAttr(norm.beforeGate), builder.getI64IntegerAttr(norm.groups));
    else
      o = b.rmsNorm("o_normed", o, weight, spec.normEps, norm.groups);
  } else if (gate) {
    o = b.mul("o_gated", o, b.activation("g", gate, *spec.outputGate));
  }
  return b.linear("lsm_out", o, b.matrix("lsm.wo", inner, b.embed(), MatrixRole::output), {b.spec.dModel});
}

Value braid::buildLsm(LayerBuilder &b, Value x, const LsmSpec &spec) {
  switch (spec.kind) {
  case LsmKind::bla: return buildBla(b, x, spec);
  case LsmKind::retnet: return buildRetnet(b, x, spec);
  case LsmKind::mamba2: return buildMamba2(b, x, spec);
  case LsmKind::gla: return buildGla(b, x, spec);
  case LsmKind::deltanet: return buildDeltanet(b, x, spec);
  case LsmKind::gated_deltanet: return buildGatedDeltanet(b, x, spec);
  }
  llvm_unreachable("all instances are above");
}
