//===- Inject.cpp - a transformer block that layers share, as in Zamba2 -------------------------------------------===//
// With the layer's input x and the embedding e, both [B, T, d_model]: h = attn(norm([x e])), [h = ffn(norm(h))], no sums
// around them; t = h wi. The layer's mixers then read norm(x + t), and x passes by as without the block. Weights are the
// block's but for wi and the layer's own products of low rank: y + (x a) b in the place of a product y = x w of the block.
#include "frontend/layers/LayerBuilder.h"

using namespace mlir;
using namespace braid;

namespace {
/// Names of the layer's own while it lives.
class OwnPlace {
public:
  OwnPlace(LayerBuilder &b) : b(b), before(b.mixer) { b.mixer.shared.clear(); }
  ~OwnPlace() { b.mixer = before; }
  OwnPlace(const OwnPlace &) = delete;

private:
  LayerBuilder &b;
  LayerBuilder::MixerPlace before;
};

/// x through `rank` features, and from there.
Value narrowed(LayerBuilder &b, StringRef name, Value x, int64_t rank) {
  Dim in(cast<RankedTensorType>(x.getType()).getShape().back());
  return b.linear(name, x, b.matrix(name, in, rank), {rank});
}
Value widened(LayerBuilder &b, StringRef name, Value x, ArrayRef<Dim> features) {
  int64_t rank = cast<RankedTensorType>(x.getType()).getShape().back();
  return b.linear(name, x, b.matrix(name, rank, flattened(features), MatrixRole::narrow), sizesOf(features));
}
} // namespace

/// The norm of the model's kind over all features of x.
static Value normed(LayerBuilder &b, StringRef name, Value x) {
  Dim features(cast<RankedTensorType>(x.getType()).getShape().back());
  Value weight = b.weight((name + ".weight").str(), {features}, Init::constant(1.0)), bias;
  if (b.spec.norm.hasBias())
    bias = b.weight((name + ".bias").str(), {features}, Init::constant(0.0));
  return b.norm(name, x, weight, bias);
}

Value braid::buildInject(LayerBuilder &b, Value x, const InjectSpec &spec, char letter) {
  int64_t B = b.entry.batch, T = b.entry.tokens, D = b.spec.dModel;
  LayerBuilder::MixerPlace before = b.mixer;
  b.mixer = {letter, "inject.", std::string("injects.") + letter + "."};
  Value both = StackOp::create(b.builder, b.loc("both"), b.tokens({2, D}), ValueRange{x, b.embedding()});
  Value read = normed(b, "norm1", b.reshape("both", both, {B, T, 2 * D}));
  auto adaptAttention = [&](StringRef name, Value y, ArrayRef<Dim> features) {
    OwnPlace own(b);
    Value few = narrowed(b, ("attn." + name + "_a").str(), read, spec.attentionAdapterRank);
    return b.add(name, {y, widened(b, ("attn." + name + "_b").str(), few, features)});
  };
  Value h = buildAttention(b, read, spec.attention, spec.attentionAdapterRank ? Adapter(adaptAttention) : Adapter());
  if (spec.ffn) {
    Value few, input = normed(b, "norm2", h);
    auto adaptFfn = [&](StringRef name, Value y, ArrayRef<Dim> features) {
      OwnPlace own(b);
      if (!few) // both products read it
        few = narrowed(b, "ffn.a", input, spec.ffnAdapterRank);
      return b.add(name, {y, widened(b, ("ffn." + name + "_b").str(), few, features)});
    };
    h = buildDense(b, input, *spec.ffn, "ffn", {}, spec.ffnAdapterRank ? Adapter(adaptFfn) : Adapter());
  }
  b.mixer = {letter, "inject."};
  Value t = b.linear("injected", h, b.matrix("wi", b.embed(), b.embed(), MatrixRole::value), {D});
  b.mixer = before;
  return t;
}
