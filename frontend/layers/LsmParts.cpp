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

void Projections::replace(StringRef name, Value value) {
  for (auto [projection, slot] : llvm::zip_equal(projections, values))
    if (projection.name == name)
      slot = value;
}

Value Projections::lowRank(StringRef name, ArrayRef<Dim> features, bool wide, std::optional<StringRef> act) const {
  Value between = (*this)[(name + "1").str()];
  if (act)
    between = b.activation(name, between, *act);
  int64_t rank = cast<RankedTensorType>(between.getType()).getShape().back();
  Value weight = b.matrix(("lsm.w" + name + "2").str(), rank, flattened(features), MatrixRole::narrow);
  return b.linear(name, between, weight, sizesOf(features), wide);
}

void braid::addQkvg(Projections &p, const LsmSpec &spec, int64_t queryHeads, int64_t keyHeads, int64_t valueHeads) {
  p.add("q", {headsOf(spec, queryHeads), spec.headDim});
  p.add("k", {headsOf(spec, keyHeads), spec.headDim});
  p.add("v", {headsOf(spec, valueHeads), spec.valueDim});
  if (spec.outputGate && spec.outputGateRank)
    p.addLowRank("g", spec.outputGateRank);
  else if (spec.outputGate)
    p.add("g", {headsOf(spec, spec.heads), spec.valueDim});
}

Value braid::shortConv(LayerBuilder &b, const LsmSpec &spec, StringRef name, Value x) {
  if (!spec.conv)
    return x;
  std::string heads = headsOf(spec, cast<RankedTensorType>(x.getType()).getDimSize(2)).name;
  Value y = convolve(b, *spec.conv, name, x, heads);
  return spec.conv->activation ? b.activation(name, y, *spec.conv->activation) : y;
}

Value braid::convolve(LayerBuilder &b, const ConvSpec &spec, StringRef name, Value x, StringRef heads) {
  auto type = cast<RankedTensorType>(x.getType());
  int64_t taps = spec.kernel;
  Dims features(type.getShape().drop_front(2));
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

Value braid::shifted(LayerBuilder &b, StringRef name, Value x) {
  return b.tokenBefore(name, x, ("lsm.shift_" + name).str());
}

Value braid::lowRank(LayerBuilder &b, StringRef name, Value x, int64_t rank, const Dims &features,
                     std::optional<StringRef> act, function_ref<Value(Value)> within) {
  std::string key = ("lsm." + name).str();
  int64_t in = cast<RankedTensorType>(x.getType()).getShape().back();
  Value between = b.linear(name, x, b.matrix(key + "_a", in, rank), {rank});
  if (act)
    between = b.activation(name, between, *act);
  if (within)
    between = within(between);
  return b.linear(name, between, b.matrix(key + "_b", rank, flattened(features), MatrixRole::narrow), sizesOf(features),
                  /*wide=*/true);
}

Value braid::minus(LayerBuilder &b, StringRef name, Value x, Value y) {
  return b.add(name, {x, b.scale(name, y, -1.0)});
}

Value braid::inner(LayerBuilder &b, StringRef name, Value x, Value y) {
  auto type = cast<RankedTensorType>(x.getType());
  return InnerOp::create(b.builder, b.loc(name), b.wide(Shape(type.getShape().drop_back())), x, y);
}

Value braid::joinHeads(LayerBuilder &b, StringRef name, Value x) {
  auto shape = cast<RankedTensorType>(x.getType()).getShape();
  return b.reshape(name, x, {shape[0], shape[1], shape[2] * shape[3]});
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

ScanInputs braid::deltaInputs(LayerBuilder &b, const LsmSpec &spec, const Projections &p) {
  ScanInputs in;
  in.q = b.l2Norm("q", shortConv(b, spec, "q", p["q"]));
  in.k = b.l2Norm("k", shortConv(b, spec, "k", p["k"]));
  in.v = shortConv(b, spec, "v", p["v"]);
  in.beta = writeStrength(b, spec, p["b"]);
  return in;
}

ScanInputs braid::convolved(LayerBuilder &b, const LsmSpec &spec, const Projections &p) {
  ScanInputs in;
  in.q = shortConv(b, spec, "q", p["q"]);
  in.k = shortConv(b, spec, "k", p["k"]);
  in.v = shortConv(b, spec, "v", p["v"]);
  return in;
}

static Dims headDims(const LsmSpec &spec, const Shape &perHead) {
  Dims dims{headsOf(spec, spec.heads)};
  dims.append(perHead.begin(), perHead.end());
  return dims;
}

Value braid::decayRate(LayerBuilder &b, const LsmSpec &spec, Shape perHead) {
  return b.weight("lsm.a_log", headDims(spec, perHead), {"log_uniform", 0, spec.decayRange[0], spec.decayRange[1], {}});
}

Value braid::stepBias(LayerBuilder &b, const LsmSpec &spec, Shape perHead) {
  return b.weight("lsm.dt_bias", headDims(spec, perHead),
                  {"softplus_inverse", 0, spec.stepRange[0], spec.stepRange[1], {}});
}

Value braid::constantDecay(LayerBuilder &b, const LsmSpec &spec,
                           std::function<std::vector<double>(int64_t layer)> ofLayer) {
  Init init{"values", 0, 0, 0, {}, std::move(ofLayer)};
  return b.weight("lsm.log_decay", {headsOf(spec, spec.heads)}, std::move(init), /*decay=*/false, /*trained=*/false);
}

Value braid::filled(LayerBuilder &b, StringRef name, RankedTensorType type, double number) {
  auto all = DenseElementsAttr::get(type, b.builder.getFloatAttr(type.getElementType(), number));
  return arith::ConstantOp::create(b.builder, b.loc(name), all);
}

int64_t braid::zerosBeside(int64_t values) {
  constexpr int64_t fewest = 128, tile = 64, grain = 16;
  return values < fewest || values % grain ? 0 : llvm::alignTo(values + 1, tile) - values - 1;
}

Value braid::appendOne(LayerBuilder &b, Value v) {
  auto type = cast<RankedTensorType>(v.getType());
  Shape features(type.getShape().drop_front(2));
  int64_t zeros = zerosBeside(features.back());
  features.back() += zeros + 1;
  return AppendOneOp::create(b.builder, b.loc("v"), b.tokens(features), v, b.builder.getI64IntegerAttr(zeros));
}

Value braid::divideByLast(LayerBuilder &b, Value o, int64_t values, double eps, std::optional<double> least) {
  Shape features(cast<RankedTensorType>(o.getType()).getShape().drop_front(2));
  features.back() = values;
  return DivideByLastOp::create(b.builder, b.loc("o"), b.tokens(features), o, b.builder.getF64FloatAttr(eps),
                                least ? b.builder.getF64FloatAttr(*least) : FloatAttr(),
                                b.builder.getI64IntegerAttr(zerosBeside(values)));
}

Value braid::scan(LayerBuilder &b, const LsmSpec &spec, LsmClass kind, ScanInputs in, StringRef stateName) {
  return scan(b, spec, kind, in.q, in, stateName);
}

Value braid::scan(LayerBuilder &b, const LsmSpec &spec, LsmClass kind, Value q, ArrayRef<ScanInputs> updates,
                  StringRef stateName) {
  auto widthOf = [](Value x) { return cast<RankedTensorType>(x.getType()).getShape().back(); };
  int64_t H = spec.heads, K = widthOf(updates.front().k), V = widthOf(updates.front().v);
  double scale = spec.scale > 0 ? spec.scale : 1.0 / std::sqrt(static_cast<double>(K));
  Value state = b.state(stateName, b.elementTypes().wide, {b.entry.batch, headsOf(spec, H), K, V});
  q = b.repeatHeads("q", rotate(b, spec, "q", q), H);
  SmallVector<ScanInputs> all(updates);
  for (ScanInputs &in : all) {
    in.k = b.repeatHeads("k", rotate(b, spec, "k", in.k), H);
    in.v = b.repeatHeads("v", in.v, H);
    if (in.logDecay && kind == LsmClass::V)
      in.logDecay = b.repeatHeads("log_decay", in.logDecay, H);
  }
  RankedTensorType o = cast<RankedTensorType>(all.front().v.getType());
  auto stacked = [&](StringRef name, Value ScanInputs::*operand) -> Value {
    SmallVector<Value> each = llvm::map_to_vector(all, [&](const ScanInputs &in) { return in.*operand; });
    if (each.size() == 1 || !each.front())
      return each.front();
    auto type = cast<RankedTensorType>(each.front().getType());
    SmallVector<int64_t> shape(type.getShape());
    shape.insert(shape.begin() + 2, each.size());
    return StackOp::create(b.builder, b.loc(name), type.clone(shape), each);
  };
  auto op = LsmScanOp::create(
      b.builder, b.loc("o"), o, state.getType(), q, stacked("k", &ScanInputs::k), stacked("v", &ScanInputs::v),
      stacked("log_decay", &ScanInputs::logDecay), stacked("beta", &ScanInputs::beta), stacked("a", &ScanInputs::a),
      stacked("b", &ScanInputs::b), stacked("value_decay", &ScanInputs::valueDecay), state, b.documents(),
      LsmClassAttr::get(b.builder.getContext(), kind), b.builder.getF64FloatAttr(scale), IntegerAttr());
  b.setState(stateName, op.getFinalState());
  return op.getO();
}

Value braid::gatedOutput(LayerBuilder &b, const LsmSpec &spec, Value o, Value gate, OutputNorm norm) {
  OpBuilder &builder = b.builder;
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
  return projectOutput(b, spec, o);
}

Value braid::groupNorm(LayerBuilder &b, const LsmSpec &spec, Value o) {
  Dims features = {headsOf(spec, spec.heads), spec.valueDim};
  Value weight = b.weight("lsm.norm.weight", features, Init::constant(1.0));
  Value bias = b.weight("lsm.norm.bias", features, Init::constant(0.0));
  return LayerNormOp::create(b.builder, b.loc("o_normed"), o.getType(), o, weight, bias,
                             b.builder.getF64FloatAttr(spec.normEps));
}

Value braid::gluOutput(LayerBuilder &b, Value o, StringRef act) {
  int64_t width = cast<RankedTensorType>(o.getType()).getShape().back();
  auto out = b.linear(o, {{"lsm_out", b.matrix("lsm.wo", width, b.embed(), MatrixRole::output), {b.spec.dModel}},
                          {"g", b.matrix("lsm.wg", width, b.embed()), {b.spec.dModel}}});
  return b.mul("lsm_gated", out[0], b.activation("g", out[1], act));
}

Value braid::projectOutput(LayerBuilder &b, const LsmSpec &spec, Value o) {
  Dim inner = flattened({headsOf(spec, spec.heads), spec.valueDim});
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
  case LsmKind::based:
  case LsmKind::rebased: return buildBased(b, x, spec);
  case LsmKind::lightning: return buildLightning(b, x, spec);
  case LsmKind::gateloop: return buildGateloop(b, x, spec);
  case LsmKind::hgrn2: return buildHgrn2(b, x, spec);
  case LsmKind::rwkv6: return buildRwkv6(b, x, spec);
  case LsmKind::dfw:
  case LsmKind::gfw: return buildFastWeights(b, x, spec);
  case LsmKind::mamba: return buildMamba(b, x, spec);
  case LsmKind::kda: return buildKda(b, x, spec);
  case LsmKind::rwkv7: return buildRwkv7(b, x, spec);
  case LsmKind::mlstm: return buildMlstm(b, x, spec);
  case LsmKind::rglru: return buildRglru(b, x, spec);
  case LsmKind::s4d: return buildS4d(b, x, spec);
  case LsmKind::ttt: return buildTtt(b, x, spec);
  case LsmKind::titans:
  case LsmKind::titans_ln: return buildTitans(b, x, spec);
  }
  llvm_unreachable("all instances are above");
}
