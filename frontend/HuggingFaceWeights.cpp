//===- HuggingFaceWeights.cpp - what transformers calls the weights of its models ---------------------------------===//
// From the description that a config became: its parts say which weights there are.
#include "frontend/ModelImport.h"

using namespace braid;
using namespace braid::json;
using llvm::StringRef;

namespace {

class Names {
public:
  Names(StringRef family, const Value &description) : family(family), description(description) {}
  Value run();

private:
  struct How {
    bool transposed = false;
    int64_t groups = 1, first = 0, last = 0; ///< last 0: all rows
    int64_t plus = 0;
  };
  void add(StringRef ours, StringRef theirs, How how);
  void matrix(StringRef ours, StringRef theirs) { add(ours, theirs, {.transposed = true}); }
  void vector(StringRef ours, StringRef theirs) { add(ours, theirs, {}); }
  void ofLayer(StringRef ours, StringRef theirs, How how) {
    add(("layers.{layer}." + ours).str(), ("model.layers.{layer}." + theirs).str(), how);
  }
  void attention(const Value &mixer);
  void experts(const Value &ffn);

  static bool isTrue(const Value &object, StringRef key) {
    const Value *v = object.find(key);
    return v && v->boolean;
  }

  StringRef family;
  const Value &description;
  std::vector<Field> weights;
};

Value text(StringRef string) {
  Value v;
  v.kind = Kind::string, v.string = string.str();
  return v;
}
Value whole(int64_t number) {
  Value v;
  v.kind = Kind::integer, v.integer = number, v.number = static_cast<double>(number);
  return v;
}
Value objectOf(std::vector<Field> fields) {
  Value v;
  v.kind = Kind::object, v.fields = std::move(fields);
  return v;
}
Value listOf(std::vector<Value> items) {
  Value v;
  v.kind = Kind::array, v.items = std::move(items);
  return v;
}

} // namespace

void Names::add(StringRef ours, StringRef theirs, How how) {
  if (llvm::any_of(weights, [&](const Field &field) { return field.name == ours; }))
    return; // another mixer of the same kind
  std::vector<Field> fields = {{"name", text(theirs)}};
  if (how.groups > 1)
    fields.push_back({"groups", whole(how.groups)});
  if (how.last)
    fields.push_back({"rows", listOf({whole(how.first), whole(how.last)})});
  if (how.transposed) {
    Value flag;
    flag.kind = Kind::boolean, flag.boolean = true;
    fields.push_back({"transposed", std::move(flag)});
  }
  if (how.plus)
    fields.push_back({"plus", whole(how.plus)});
  weights.push_back({ours.str(), fields.size() == 1 ? text(theirs) : objectOf(std::move(fields))});
}

void Names::attention(const Value &mixer) {
  for (StringRef name : {"q", "k", "v", "o"})
    ofLayer(("attn.w" + name).str(), ("self_attn." + name + "_proj.weight").str(), {.transposed = true});
  if (isTrue(mixer, "qkv_bias"))
    for (StringRef name : {"q", "k", "v"})
      ofLayer(("attn.b" + name).str(), ("self_attn." + name + "_proj.bias").str(), {});
  if (isTrue(mixer, "qk_norm"))
    for (StringRef name : {"q", "k"})
      ofLayer(("attn." + name + "_norm.weight").str(), ("self_attn." + name + "_norm.weight").str(), {});
}

void Names::experts(const Value &ffn) {
  bool isMixtral = family == "mixtral";
  std::string block = isMixtral ? "block_sparse_moe" : "mlp";
  ofLayer("moe.router", block + ".gate.weight", {.transposed = true});
  for (auto [ours, theirs] :
       {std::pair<StringRef, StringRef>{"w1", "gate_proj"}, {"w3", "up_proj"}, {"w2", "down_proj"}})
    ofLayer(("moe." + ours).str(), (block + ".experts.{expert}." + (isMixtral ? ours : theirs) + ".weight").str(),
            {.transposed = true});
}

Value Names::run() {
  vector("embed.weight", "model.embed_tokens.weight");
  ofLayer("norm1.weight", "input_layernorm.weight", {});
  ofLayer("norm2.weight", "post_attention_layernorm.weight", {});
  for (const Field &mixer : description.find("mixers")->fields)
    attention(mixer.value);
  for (const Field &ffn : description.find("ffns")->fields) {
    if (ffn.value.find("kind")->string == "moe") {
      experts(ffn.value);
      continue;
    }
    for (auto [ours, theirs] :
         {std::pair<StringRef, StringRef>{"w1", "gate_proj"}, {"w3", "up_proj"}, {"w2", "down_proj"}})
      ofLayer(("ffn." + ours).str(), ("mlp." + theirs + ".weight").str(), {.transposed = true});
  }
  vector("final_norm.weight", "model.norm.weight");
  // Constants that some versions keep beside the weights, and the head that is the embedding.
  std::vector<Value> unread = {text("*.rotary_emb.inv_freq")};
  if (isTrue(description, "tie_embeddings"))
    unread.push_back(text("lm_head.weight"));
  else
    matrix("head.weight", "lm_head.weight");
  return objectOf({{"weights", objectOf(std::move(weights))}, {"unread", listOf(std::move(unread))}});
}

Value json::importOfHuggingFace(StringRef family, const Value &description) { return Names(family, description).run(); }
