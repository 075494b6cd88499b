//===- Hgrn2.cpp - gated linear RNN with an expanded state (class V) ----------------------------------------------===//
//   a_t = l + (1 - l) sigmoid(f_t)      M_t = diag(a_t) M_{t-1} + (1 - a_t)^T v_t      q = silu(x wq), f = x wk
// l, the least a of a layer, grows from 0 by 1 / num_layers: data, the published bounds before training. Learned, every
// feature has one: softmax over layers of weights that all of them share, summed over those from the second to this one.
// 1 - a is never computed from a: (1 - l) sigmoid(-f) keeps its digits where a is near 1. Norm over all heads.
#include "frontend/layers/LsmParts.h"

using namespace mlir;
using namespace braid;

/// Of every layer the sum of a softmax over layers, from the second to this one: [layers, heads, features of one].
static Value summedShares(FunctionBuilder &b, Value whole, ArrayRef<int32_t> layers) {
  OpBuilder &builder = b.builder;
  auto type = cast<RankedTensorType>(whole.getType());
  int64_t H = type.getDimSize(0), K = type.getDimSize(1), all = type.getDimSize(2), n = std::ssize(layers);
  // What is computed from weights alone: ops on values of one row.
  RankedTensorType row = type.clone({1, 1, H, K, all}), one = type.clone({1, 1, H, K});
  Value shares =
      SoftmaxOp::create(builder, b.loc("bounds"), row, ReshapeOp::create(builder, b.loc("bounds"), row, whole));
  auto sumTo = [&](int64_t layer) -> Value {
    Value first = shares;
    if (int64_t behind = all - layer - 1)
      first = DropLastOp::create(builder, b.loc("bounds"), type.clone({1, 1, H, K, layer + 1}), shares,
                                 builder.getI64IntegerAttr(behind - 1));
    auto ones = DenseElementsAttr::get(type.clone({layer + 1}), builder.getFloatAttr(type.getElementType(), 1.0));
    return DotOp::create(builder, b.loc("least"), one, first, arith::ConstantOp::create(builder, b.loc("ones"), ones));
  };
  Value before = b.scale("least", sumTo(0), -1.0);
  SmallVector<Value> sums;
  for (int32_t layer : layers)
    sums.push_back(AddOp::create(builder, b.loc("least"), one, ValueRange{sumTo(layer), before}));
  Value stacked = StackOp::create(builder, b.loc("least"), type.clone({1, 1, n, H, K}), sums);
  return ReshapeOp::create(builder, b.loc("least"), type.clone({n, H, K}), stacked);
}

/// l of each head, or of each of its features [H, K].
static Value leastDecay(LayerBuilder &b, const LsmSpec &spec, const Dim &heads) {
  int64_t H = spec.heads, K = spec.headDim, layers = b.spec.numLayers;
  if (*spec.lowerBounds == "learned")
    return b.derivedWeight("lsm.lower_bounds", {heads, K, layers}, Init::constant(0.0), {H, K}, summedShares);
  Init bounds{"values", 0, 0, 0, {}, [H, layers](int64_t layer) {
                return std::vector<double>(H, static_cast<double>(layer) / static_cast<double>(layers));
              }};
  return b.weight("lsm.lower_bound", {heads}, std::move(bounds), /*decay=*/false, /*trained=*/false);
}

Value braid::buildHgrn2(LayerBuilder &b, Value x, const LsmSpec &spec) {
  int64_t H = spec.heads, K = spec.headDim;
  Dim heads = headsOf(spec, H);
  Projections p(b);
  p.add("q", {heads, K});
  bool convolves = spec.conv && spec.conv->decays;
  p.add("k", {heads, K}, /*wide=*/!convolves);
  p.add("v", {heads, spec.valueDim});
  if (spec.outputGate)
    p.add("g", {heads, spec.valueDim});
  p.run(x);
  Value least = spec.lowerBounds ? leastDecay(b, spec, heads) : Value();
  Value f = convolves ? b.widen("k", shortConv(b, spec, "k", p["k"])) : p["k"],
        share = b.activation("k", b.scale("k", f, -1.0), "sigmoid");
  ScanInputs in;
  in.q = b.activation("q", shortConv(b, spec, "q", p["q"]), "silu");
  in.k = b.narrow("k", least ? minus(b, "k", share, b.weighted("k", share, least)) : share);
  in.v = shortConv(b, spec, "v", p["v"]);
  in.logDecay =
      least ? BoundedGateOp::create(b.builder, b.loc("log_decay"), f.getType(), f, least).getResult()
            : LogSigmoidOp::create(b.builder, b.loc("log_decay"), f.getType(), f, b.builder.getF64FloatAttr(1.0))
                  .getResult();
  Value o = joinHeads(b, "o", scan(b, spec, LsmClass::V, in));
  return gatedOutput(b, spec, o, p["g"] ? joinHeads(b, "g", p["g"]) : Value());
}
