//===- Attention.cpp - causal softmax attention with grouped heads and rotary positions ---------------------------===//
// q, k, v, [g] = x wq [+ bq], x wk [+ bk], x wv [+ bv], [x wg]; [norm of q and k]; [rope]; o = softmax(scale q k^T, [sinks]) v; [o act(g)]; o wo [+ bo]. Cached: k and
// v join the caches first; with a window the caches are rings, as long as the window and the longest prefill need.
#include "frontend/layers/LayerBuilder.h"
#include <cmath>

using namespace mlir;
using namespace braid;

LayerBuilder::Projection braid::outputGate(LayerBuilder &b, const Dim &in, const Dim &heads, int64_t width,
                                           StringRef per) {
  Dims features = per == "head" ? Dims{heads} : Dims{heads, width};
  return {"g", b.matrix("attn.wg", in, flattened(features)), sizesOf(features)};
}

Value braid::buildAttention(LayerBuilder &b, Value x, const AttentionSpec &spec, Adapter adapt) {
  int64_t H = spec.heads, G = spec.kvHeads, D = spec.headDim,
          width = cast<RankedTensorType>(x.getType()).getShape().back();
  Dim model = b.embed(), in(width, width == model.size ? model.name : ""), heads(H, "heads"),
      kvHeads(G, G == H ? "heads" : "kv_heads");
  SmallVector<LayerBuilder::Projection> projections = {
      {"q", b.matrix("attn.wq", in, flattened({heads, D})), {H, D}},
      {"k", b.matrix("attn.wk", in, flattened({kvHeads, D})), {G, D}},
      {"v", b.matrix("attn.wv", in, flattened({kvHeads, D}), MatrixRole::value), {G, D}}};
  if (spec.outputGate)
    projections.push_back(outputGate(b, in, heads, D, spec.outputGatePer));
  auto projected = b.linear(x, projections);
  if (adapt) {
    projected[0] = adapt("wq", projected[0], {heads, D});
    projected[1] = adapt("wk", projected[1], {kvHeads, D});
    projected[2] = adapt("wv", projected[2], {kvHeads, D});
  }
  auto biased = [&](size_t i, StringRef name, const Dim &count) -> Value {
    if (!spec.qkvBias)
      return projected[i];
    return b.bias(name, projected[i], b.weight(("attn.b" + name).str(), {count, D}, Init::constant(0.0)));
  };
  Value q = biased(0, "q", heads), k = biased(1, "k", kvHeads), v = biased(2, "v", kvHeads);
  // Over the features of a head, or of all heads: then every rank has the whole weight, and what it norms is gathered.
  auto normed = [&](StringRef name, Value x, int64_t count) -> Value {
    Shape heads = {b.entry.batch, b.entry.tokens, count, D}, flat = {b.entry.batch, b.entry.tokens, count * D};
    bool isJoint = spec.qkNormOver == "heads";
    Value weight = b.weight(("attn." + name + "_norm.weight").str(), {isJoint ? count * D : D}, Init::constant(1.0));
    Value y = b.rmsNorm(name, isJoint ? b.reshape(name, x, flat) : x, weight, b.spec.norm.eps);
    return b.reshape(name, y, heads);
  };
  if (spec.qkNorm) {
    q = normed("q", q, H);
    k = normed("k", k, G);
  }
  if (spec.rope) {
    q = b.rope("q", q, *spec.rope);
    k = b.rope("k", k, *spec.rope);
  }
  int64_t rows = b.spec.cacheRows(spec.window);
  bool isRing = b.entry.cached && rows < b.spec.contextLen;
  UnitAttr ring = isRing ? b.builder.getUnitAttr() : UnitAttr();
  if (b.entry.cached) {
    auto append = [&](StringRef name, StringRef label, Value x) {
      Value cache = b.state(name, b.elementTypes().element, {b.entry.batch, rows, kvHeads, D}, /*byPosition=*/true);
      Value joined = AttnAppendOp::create(b.builder, b.loc(label), cache.getType(), cache, x, b.documents(), ring);
      b.setState(name, joined);
      return joined;
    };
    k = append("attn.k", "k_cache", k);
    v = append("attn.v", "v_cache", v);
  }
  auto lse = b.wide({b.entry.batch, H, b.entry.tokens});
  Value sinks = spec.sinks ? b.weight("attn.sinks", {heads}, Init::constant(0.0)) : Value();
  double scale = spec.scale > 0 ? spec.scale : 1.0 / std::sqrt(static_cast<double>(D));
  Value o = AttnCausalOp::create(b.builder, b.loc("o"), q.getType(), lse, q, k, v, b.documents(), Value(), ValueRange(),
                                 sinks, b.builder.getF64FloatAttr(scale), b.builder.getI64IntegerAttr(spec.window),
                                 b.builder.getI64IntegerAttr(0), IntegerAttr(),
                                 b.entry.cached ? b.builder.getUnitAttr() : UnitAttr(), ring, UnitAttr(),
                                 spec.softcap > 0 ? b.builder.getF64FloatAttr(spec.softcap) : FloatAttr())
                .getO();
  if (spec.outputGate)
    o = b.mul("o_gated", o, b.activation("g", projected[3], *spec.outputGate));
  Value y =
      b.linear("attn_out", o, b.matrix("attn.wo", flattened({heads, D}), model, MatrixRole::output), {model.size});
  return spec.outputBias ? b.bias("attn_out", y, b.weight("attn.bo", {model}, Init::constant(0.0))) : y;
}
