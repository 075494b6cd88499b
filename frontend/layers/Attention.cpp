//===- Attention.cpp - causal softmax attention with grouped heads and rotary positions ---------------------------===//
// q, k, v = x wq, x wk, x wv; [norm]; [rope]; o = softmax(q k^T / sqrt(D)) v; o wo. Cached: k and v join the caches
// first.
#include "frontend/layers/LayerBuilder.h"
#include <cmath>

using namespace mlir;
using namespace braid;

Value braid::buildAttention(LayerBuilder &b, Value x, const AttentionSpec &spec) {
  int64_t H = spec.heads, G = spec.kvHeads, D = spec.headDim, model = b.spec.dModel;
  auto projected = b.linear(x, {{"q", b.matrix("attn.wq", model, H * D), {H, D}},
                                {"k", b.matrix("attn.wk", model, G * D), {G, D}},
                                {"v", b.matrix("attn.wv", model, G * D), {G, D}}});
  Value q = projected[0], k = projected[1], v = projected[2];
  if (spec.qkNorm) {
    q = b.rmsNorm("q", q, b.weight("attn.q_norm.weight", {D}, Init::constant(1.0)), b.spec.norm.eps);
    k = b.rmsNorm("k", k, b.weight("attn.k_norm.weight", {D}, Init::constant(1.0)), b.spec.norm.eps);
  }
  if (spec.rope) {
    q = b.rope("q", q, *spec.rope);
    k = b.rope("k", k, *spec.rope);
  }
  if (b.entry.cached) {
    auto append = [&](StringRef name, StringRef label, Value rows) {
      Value cache = b.state(name, {b.entry.batch, b.spec.contextLen, G, D});
      Value joined = AttnAppendOp::create(b.builder, b.loc(label), cache.getType(), cache, rows, b.documents());
      b.setState(name, joined);
      return joined;
    };
    k = append("attn.k", "k_cache", k);
    v = append("attn.v", "v_cache", v);
  }
  auto lse = b.tensor({b.entry.batch, H, b.entry.tokens});
  auto o = AttnCausalOp::create(b.builder, b.loc("o"), q.getType(), lse, q, k, v, b.documents(),
                                b.builder.getF64FloatAttr(1.0 / std::sqrt(static_cast<double>(D))),
                                b.builder.getI64IntegerAttr(spec.window), b.builder.getI64IntegerAttr(0),
                                b.entry.cached ? b.builder.getUnitAttr() : UnitAttr());
  return b.linear("attn_out", o.getO(), b.outputMatrix("attn.wo", H * D, model), {model});
}
