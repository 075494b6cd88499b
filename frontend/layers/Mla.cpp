//===- Mla.cpp - multi-head latent attention ----------------------------------------------------------------------===//
// DeepSeek-V2, arXiv:2405.04434, equations 9 to 19, 37 to 47:
//   c_q = norm(x wq_down) (without q_rank: x); q = c_q wq, q_rope = rope(c_q wq_rope) in every head
//   c = norm(x wkv_down), k_rope = rope(x wk_rope), which all heads share; k = c wk, v = c wv in every head
//   o = softmax(scale (q k^T + q_rope k_rope^T)) v; [o act(x wg)]; o wo
// Cached are c and k_rope, and no key or value is made of what is cached: q k^T = (q wk^T) c^T, and the products of scores with
// v are those with c, times wv. That multiplies more (kv_rank for head_dim and value_dim) and reads less: several tokens make keys
// and values of their own latents, as in training, and what both sets of keys give is merged by their lse.
#include "frontend/layers/LayerBuilder.h"
#include <cmath>

using namespace mlir;
using namespace braid;

Value braid::buildMla(LayerBuilder &b, Value x, const MlaSpec &spec) {
  using Projection = LayerBuilder::Projection;
  int64_t H = spec.heads, D = spec.headDim, R = spec.ropeDim, V = spec.valueDim;
  Dim model = b.embed(), heads(H, "heads"), latent(spec.kvRank);
  auto queries = [&](const Dim &in, MatrixRole role) {
    return SmallVector<Projection>{{"q", b.matrix("attn.wq", in, flattened({heads, D}), role), {H, D}},
                                   {"q_rope", b.matrix("attn.wq_rope", in, flattened({heads, R}), role), {H, R}}};
  };
  auto normed = [&](StringRef name, Value x, int64_t features) {
    Value weight = b.weight(("attn." + name + "_norm.weight").str(), {features}, Init::constant(1.0));
    return b.rmsNorm(name, x, weight, spec.normEps);
  };
  SmallVector<Projection> projections;
  if (spec.qRank)
    projections.push_back({"q_down", b.matrix("attn.wq_down", model, spec.qRank), {spec.qRank}});
  else
    projections = queries(model, MatrixRole::query);
  projections.push_back({"kv_down", b.matrix("attn.wkv_down", model, latent), {latent.size}});
  projections.push_back({"k_rope", b.matrix("attn.wk_rope", model, R), {1, R}});
  if (spec.outputGate)
    projections.push_back(outputGate(b, model, heads, V, spec.outputGatePer));
  SmallVector<Value> ofX = b.linear(x, projections), ofQ(ofX);
  if (spec.qRank)
    ofQ = b.linear(normed("q", ofX.front(), spec.qRank), queries(spec.qRank, MatrixRole::narrow));
  Value gate = spec.outputGate ? ofX.pop_back_val() : Value();
  Value q = ofQ[0], qRope = ofQ[1], c = normed("kv", ofX[ofX.size() - 2], latent.size), kRope = ofX.back();
  if (spec.rope) {
    qRope = b.rope("q_rope", qRope, *spec.rope);
    kRope = b.rope("k_rope", kRope, *spec.rope);
  }
  Value wk = b.matrix("attn.wk", latent, flattened({heads, D}), MatrixRole::narrow),
        wv = b.matrix("attn.wv", latent, flattened({heads, V}), MatrixRole::value);

  double scale = spec.scale > 0 ? spec.scale : 1.0 / std::sqrt(static_cast<double>(D + R));
  enum Keys { own, cached, past };
  auto attend = [&](Keys keys, Value q, Value k, Value v, Value kRope) {
    RankedTensorType o = b.tokens({H, cast<RankedTensorType>(v.getType()).getShape().back()});
    auto flag = [&](bool set) { return set ? b.builder.getUnitAttr() : UnitAttr(); };
    return AttnCausalOp::create(b.builder, b.loc(keys == past ? "o_past" : "o"), o,
                                b.wide({b.entry.batch, H, b.entry.tokens}), q, k, v, b.documents(), Value(),
                                ValueRange{qRope, kRope}, Value(), b.builder.getF64FloatAttr(scale),
                                b.builder.getI64IntegerAttr(0), b.builder.getI64IntegerAttr(0), IntegerAttr(),
                                flag(keys != own), UnitAttr(), flag(keys == past), FloatAttr());
  };
  auto attendOwn = [&] {
    auto ofLatent = b.linear(c, {{"k", wk, {H, D}}, {"v", wv, {H, V}}});
    return attend(own, q, ofLatent[0], ofLatent[1], kRope);
  };
  auto append = [&](StringRef name, StringRef label, Value x, int64_t features) -> Value {
    Value cache = b.state(name, b.elementTypes().element, {b.entry.batch, b.spec.cacheRows(0), Dim(1), features},
                          /*byPosition=*/true);
    Value joined = AttnAppendOp::create(b.builder, b.loc(label), cache.getType(), cache, x, b.documents(), UnitAttr());
    b.setState(name, joined);
    return joined;
  };
  Value o;
  if (!b.entry.cached) {
    o = attendOwn().getO();
  } else {
    Value latents = append("attn.latent", "latent_cache",
                           b.reshape("latent", c, {b.entry.batch, b.entry.tokens, 1, latent.size}), latent.size);
    Value kRopes = append("attn.k_rope", "k_rope_cache", kRope, R);
    auto ofHeads = [&](StringRef name, Value x, Value weight, int64_t features, bool transposed) -> Value {
      return HeadLinearOp::create(b.builder, b.loc(name), b.tokens({H, features}), x, weight, transposed);
    };
    bool several = b.entry.tokens > 1;
    AttnCausalOp ofLatents =
        attend(several ? past : cached, ofHeads("q_latent", q, wk, latent.size, /*transposed=*/true), latents, latents,
               kRopes);
    o = ofHeads("o_value", ofLatents.getO(), wv, V, /*transposed=*/false);
    if (several) {
      AttnCausalOp ofOwn = attendOwn();
      o = AttnMergeOp::create(b.builder, b.loc("o_both"), o.getType(), ofOwn.getLse().getType(), ofOwn.getO(),
                              ofOwn.getLse(), o, ofLatents.getLse())
              .getOBoth();
    }
  }
  if (gate)
    o = b.mul("o_gated", o, b.activation("g", gate, *spec.outputGate));
  return b.linear("attn_out", o, b.matrix("attn.wo", flattened({heads, V}), model, MatrixRole::output), {model.size});
}
