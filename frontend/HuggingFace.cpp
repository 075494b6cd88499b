//===- HuggingFace.cpp - a config.json of Hugging Face's transformers as a model description ----------------------===//
// Every key is translated, known to say nothing about what is computed, or has the one value that is computed; any other
// is an error. Types and ranges of what is translated are the ordinary reader's.
#include "frontend/HuggingFace.h"
#include "frontend/ModelImport.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/FormatVariadic.h"

using namespace braid;
using namespace braid::json;
using llvm::StringRef;

namespace {

/// What transformers takes for a key that a config of this family leaves out.
struct Family {
  StringRef name;
  int64_t vocabSize, hiddenSize, intermediateSize, layers, heads;
  int64_t kvHeads; ///< 0: heads
  int64_t headDim; ///< 0: hidden_size / heads
  int64_t positions;
  double theta, eps;
  int64_t window = 0; ///< 0: all
  bool hasWindow = false; ///< sliding_window is that of all layers
  bool switchesWindow = false; ///< windows only with use_sliding_window
  bool qkvBias = false, qkNorm = false;
  int64_t experts = 0, topK = 0; ///< 0: no mixture
  int64_t expertHidden = 0; ///< 0: intermediate_size is that of an expert, and all layers have experts
};

constexpr Family families[] = {
    {"llama", 32000, 4096, 11008, 32, 32, 0, 0, 2048, 1e4, 1e-6},
    {"mistral", 32000, 4096, 14336, 32, 32, 8, 0, 131072, 1e4, 1e-6, 4096, true},
    {"mixtral", 32000, 4096, 14336, 32, 32, 8, 0, 131072, 1e6, 1e-5, 0, true, false, false, false, 8, 2},
    {"qwen2", 151936, 4096, 22016, 32, 32, 32, 0, 32768, 1e4, 1e-6, 0, false, true, true},
    {"qwen3", 151936, 4096, 22016, 32, 32, 32, 128, 32768, 1e4, 1e-6, 0, false, true, false, true},
    {"qwen3_moe", 151936, 2048, 6144, 24, 32, 4, 0, 32768, 1e4, 1e-6, 0, false, true, false, true, 128, 8, 768},
};

/// Families with something that a description cannot say, and the first such thing.
constexpr std::pair<StringRef, StringRef> missing[] = {
    {"qwen2_moe", "a gate of the shared expert"},
    {"qwen3_next", "a gate of the shared expert"},
    {"olmoe", "a norm of q and k over all heads together"},
    {"deepseek_v2", "latent attention (MLA)"},
    {"deepseek_v3", "latent attention (MLA)"},
    {"kimi_linear", "latent attention (MLA)"},
    {"mamba", "layers without a feed-forward"},
    {"mamba2", "layers without a feed-forward"},
    {"gpt_oss", "attention sinks"},
    {"jamba", "norms of a Mamba layer's step, input and output"},
    {"bamba", "a Mamba-2 layer with a convolution over input, B and C as transformers has it"},
    {"falcon_h1", "attention and Mamba-2 side by side in one layer"},
    {"zamba2", "blocks that layers share"},
    {"granitemoehybrid", "a softmax over the chosen experts' logits"},
    {"nemotron_h", "layers of one part"},
    {"minimax", "routing and norms of its lightning attention as transformers has them"},
    {"gemma", "norms that multiply by 1 + weight"},
    {"gemma2", "norms that multiply by 1 + weight"},
    {"gemma3", "norms that multiply by 1 + weight"},
    {"gemma3_text", "norms that multiply by 1 + weight"},
};

/// Keys that say nothing about what is computed.
constexpr StringRef silent[] = {
    "model_type",
    "architectures",
    "transformers_version",
    "use_cache",
    "bos_token_id",
    "eos_token_id",
    "pad_token_id",
    "_name_or_path",
    "return_dict",
    "output_attentions",
    "output_hidden_states",
    "_attn_implementation",
    "attn_implementation",
    "tokenizer_class",
    "unk_token_id",
    "sep_token_id",
    "auto_map",
    "id2label",
    "label2id",
    "problem_type",
    "torchscript",
    "chunk_size_feed_forward",
};

Value numberValue(int64_t number) {
  Value v;
  v.kind = Kind::integer, v.integer = number, v.number = static_cast<double>(number);
  return v;
}
Value numberValue(double number) {
  Value v;
  v.kind = Kind::number, v.number = number;
  return v;
}
Value stringValue(StringRef text) {
  Value v;
  v.kind = Kind::string, v.string = text.str();
  return v;
}
Value boolValue(bool flag) {
  Value v;
  v.kind = Kind::boolean, v.boolean = flag;
  return v;
}

bool isEqual(const Value &a, const Value &b) {
  return a.isNumber() && b.isNumber() ? a.number == b.number
                                      : a.kind == b.kind && a.boolean == b.boolean && a.string == b.string;
}

class Translation {
public:
  Translation(const Value &config, const Family &family, Errors &errors)
      : config(config), family(family), errors(errors) {}
  std::optional<Value> run();

private:
  const Value *take(StringRef key) {
    known.push_back(key);
    return config.find(key);
  }
  /// The same, where null says as much as nothing.
  const Value *takeOptional(StringRef key) {
    const Value *v = take(key);
    return v && v->kind != Kind::null ? v : nullptr;
  }
  /// A value of the config under its own key and line.
  Value named(Value value, StringRef key) {
    value.origin = key.str();
    if (!value.line)
      value.line = config.line;
    return value;
  }
  Value get(StringRef key, Value otherwise, bool nullable = false) {
    const Value *v = nullable ? takeOptional(key) : take(key);
    return named(v ? *v : std::move(otherwise), key);
  }
  /// A key that two versions of transformers spell differently.
  Value either(StringRef one, StringRef two, Value otherwise) {
    const Value *a = takeOptional(one), *b = takeOptional(two);
    if (a && b && !isEqual(*a, *b))
      errors.report(two, describe(*b) + " is not " + one.str() + " " + describe(*a) + "; valid: one of the two keys");
    return named(a ? *a : b ? *b : std::move(otherwise), a ? one : b ? two : one);
  }
  void only(StringRef key, const Value &valid, bool nullable = false) {
    const Value *v = take(key);
    if (v && !isEqual(*v, valid) && !(nullable && v->kind == Kind::null))
      errors.report(key, describe(*v) + " of a " + family.name.str() +
                             " config is not computed; valid: " + describe(valid) + (nullable ? ", null" : ""));
  }
  Value object(std::vector<Field> fields) {
    Value v;
    v.kind = Kind::object, v.line = config.line;
    for (Field &field : fields)
      if (!field.value.line)
        field.value.line = config.line;
    v.fields = std::move(fields);
    return v;
  }
  bool integerIn(const Value &v, int64_t most) {
    return v.kind == Kind::integer && v.integer >= 1 && v.integer <= most;
  }
  Value rope();
  Value attention();
  Value dtype();
  void fixedKeys();
  void feedForwards(const Value &layers, Value &ffns, std::string &pattern);

  const Value &config;
  const Family &family;
  Errors &errors;
  std::vector<StringRef> known;
  Value hidden;
};

} // namespace

Value Translation::rope() {
  Value theta = named(numberValue(family.theta), "rope_theta");
  const Value *own = takeOptional("rope_theta");
  if (own)
    theta = named(*own, "rope_theta");
  for (StringRef key : {"rope_parameters", "rope_scaling"}) {
    const Value *v = takeOptional(key);
    if (!v)
      continue;
    if (v->kind != Kind::object) {
      errors.report(key, describe(*v) + " is not an object or null");
      continue;
    }
    for (const Field &field : v->fields) {
      std::string path = key.str() + "." + field.name;
      if (field.name == "rope_theta") {
        if (own && !isEqual(*own, field.value))
          errors.report(path, describe(field.value) + " is not rope_theta " + describe(*own) +
                                  "; valid: one of the two keys");
        theta = named(field.value, path);
        own = &field.value;
      } else if (field.name == "rope_type" || field.name == "type") {
        if (!isEqual(field.value, stringValue("default")))
          errors.report(path, describe(field.value) + " is not computed; valid: \"default\"");
      } else if (field.name == "partial_rotary_factor") {
        if (!isEqual(field.value, numberValue(int64_t(1))))
          errors.report(path, describe(field.value) + " is not computed; valid: 1");
      } else {
        errors.report(path, "unknown key of a " + family.name.str() + " config; valid: rope_type, rope_theta");
      }
    }
  }
  return object({{"theta", std::move(theta)}});
}

Value Translation::attention() {
  Value heads = get("num_attention_heads", numberValue(family.heads));
  Value kvHeads = get("num_key_value_heads", family.kvHeads ? numberValue(family.kvHeads) : heads);
  if (kvHeads.kind == Kind::null)
    kvHeads = named(heads, "num_key_value_heads");
  Value headDim = get("head_dim", numberValue(family.headDim), /*nullable=*/true);
  if (headDim.kind == Kind::integer && headDim.integer == 0 && !takeOptional("head_dim") &&
      integerIn(heads, INT32_MAX) && integerIn(hidden, INT32_MAX)) {
    if (hidden.integer % heads.integer)
      errors.report("num_attention_heads",
                    llvm::formatv("{0} does not divide hidden_size {1}; valid: a divisor, or a head_dim", heads.integer,
                                  hidden.integer)
                        .str());
    headDim = named(numberValue(std::max<int64_t>(1, hidden.integer / heads.integer)), "head_dim");
  }
  std::vector<Field> fields = {{"kind", stringValue("attention")},
                               {"heads", std::move(heads)},
                               {"kv_heads", std::move(kvHeads)},
                               {"head_dim", std::move(headDim)},
                               {"rope", rope()}};
  if (family.qkvBias)
    fields.push_back({"qkv_bias", boolValue(true)});
  if (family.qkNorm)
    fields.push_back({"qk_norm", boolValue(true)});
  if (family.hasWindow) {
    const Value *given = take("sliding_window");
    if (given && given->isNumber() && given->number == 0)
      errors.report("sliding_window", "0 leaves no key to see; valid: an integer above 0, or null for all");
    Value window = given ? *given : numberValue(family.window);
    if (window.kind != Kind::null && !(window.kind == Kind::integer && window.integer == 0))
      fields.push_back({"window", named(std::move(window), "sliding_window")});
  }
  return object(std::move(fields));
}

Value Translation::dtype() {
  static constexpr std::pair<StringRef, StringRef> names[] = {
      {"float32", "f32"}, {"bfloat16", "bf16"}, {"float64", "f64"}};
  Value given = either("dtype", "torch_dtype", stringValue("float32"));
  for (auto [theirs, ours] : names)
    if (given.kind == Kind::string && given.string == theirs) {
      given.string = ours.str();
      return given;
    }
  errors.report(given.origin, describe(given) + " is not computed; valid: \"float32\", \"bfloat16\", \"float64\"");
  given.kind = Kind::string, given.string = "f32";
  return given;
}

void Translation::fixedKeys() {
  for (StringRef key : silent)
    (void)take(key);
  only("hidden_act", stringValue("silu"));
  only("attention_dropout", numberValue(int64_t(0)), /*nullable=*/true);
  only("pretraining_tp", numberValue(int64_t(1)), /*nullable=*/true);
  only("attention_bias", boolValue(family.qkvBias));
  for (StringRef key : {"mlp_bias", "rope_interleaved", "use_mrope", "is_encoder_decoder", "add_cross_attention"})
    only(key, boolValue(false));
  for (StringRef key : {"quantization_config", "clip_qkv"})
    only(key, Value());
  if (family.experts)
    only("router_jitter_noise", numberValue(int64_t(0)));
  if (!family.switchesWindow)
    return;
  only("use_sliding_window", boolValue(false)); // without it these say nothing
  (void)take("sliding_window");
  (void)take("max_window_layers");
  if (const Value *types = takeOptional("layer_types"))
    if (types->kind != Kind::array ||
        !llvm::all_of(types->items, [](const Value &v) { return isEqual(v, stringValue("full_attention")); }))
      errors.report("layer_types", "not all layers are \"full_attention\"; valid: only such layers");
}

void Translation::feedForwards(const Value &layers, Value &ffns, std::string &pattern) {
  Value intermediate = get("intermediate_size", numberValue(family.intermediateSize));
  auto dense = [&] { return object({{"kind", stringValue("dense")}, {"hidden", intermediate}}); };
  if (!family.experts) {
    ffns = object({{"D", dense()}});
    pattern = "D";
    return;
  }
  Value experts = either("num_experts", "num_local_experts", numberValue(family.experts));
  Value topK = get("num_experts_per_tok", numberValue(family.topK));
  Value normalize = boolValue(true);
  Value expertHidden = intermediate;
  int64_t step = 1;
  std::vector<int64_t> denseLayers;
  if (family.expertHidden) {
    normalize = get("norm_topk_prob", boolValue(false));
    expertHidden = get("moe_intermediate_size", numberValue(family.expertHidden));
    if (Value v = get("decoder_sparse_step", numberValue(int64_t(1))); integerIn(v, INT32_MAX))
      step = v.integer;
    else
      errors.report("decoder_sparse_step", describe(v) + " is not an integer above 0");
    if (const Value *v = takeOptional("mlp_only_layers")) {
      if (v->kind != Kind::array)
        errors.report("mlp_only_layers", describe(*v) + " is not a list; valid: numbers of layers, or null");
      for (auto [i, item] : llvm::enumerate(v->items)) {
        if (item.kind != Kind::integer || item.integer < 0 ||
            (layers.kind == Kind::integer && item.integer >= layers.integer))
          errors.report(llvm::formatv("mlp_only_layers[{0}]", i).str(),
                        describe(item) + " is no layer; valid: 0 to num_hidden_layers - 1");
        else
          denseLayers.push_back(item.integer);
      }
    }
  }
  // transformers pools the routing of all layers into one loss, which no sum of losses of layers is.
  const Value *adds = take("output_router_logits"), *loss = take("router_aux_loss_coef");
  if (adds && adds->kind != Kind::boolean)
    errors.report("output_router_logits", describe(*adds) + " is not true or false");
  if (loss && !loss->isNumber())
    errors.report("router_aux_loss_coef", describe(*loss) + " is not a number");
  if (adds && adds->kind == Kind::boolean && adds->boolean && !(loss && loss->isNumber() && loss->number == 0))
    errors.report("output_router_logits", "true adds a balance loss over the routing of all layers together, which is "
                                          "not computed; valid: false, or router_aux_loss_coef 0");
  if (integerIn(layers, 1024))
    for (int64_t layer = 0; layer < layers.integer; ++layer)
      pattern += (layer + 1) % step || llvm::is_contained(denseLayers, layer) ? 'D' : 'M';
  bool hasMoe = StringRef(pattern).contains('M'), hasDense = StringRef(pattern).contains('D');
  std::vector<Field> parts;
  if (hasMoe || pattern.empty())
    parts.push_back({"M", object({{"kind", stringValue("moe")},
                                  {"num_experts", std::move(experts)},
                                  {"top_k", std::move(topK)},
                                  {"expert_hidden", std::move(expertHidden)},
                                  {"router", object({{"normalize", std::move(normalize)},
                                                     {"balance_loss", numberValue(int64_t(0))},
                                                     {"z_loss", numberValue(int64_t(0))}})}})});
  if (hasDense)
    parts.push_back({"D", dense()});
  if (!hasMoe || !hasDense)
    pattern = pattern.empty() || hasMoe ? "M" : "D";
  ffns = object(std::move(parts));
}

std::optional<Value> Translation::run() {
  int64_t before = errors.number();
  hidden = get("hidden_size", numberValue(family.hiddenSize));
  Value layers = get("num_hidden_layers", numberValue(family.layers)), ffns;
  std::string pattern;
  feedForwards(layers, ffns, pattern);
  std::vector<Field> fields = {
      {"name", stringValue(family.name)},
      {"vocab_size", get("vocab_size", numberValue(family.vocabSize))},
      {"d_model", hidden},
      {"num_layers", std::move(layers)},
      {"context_len", get("max_position_embeddings", numberValue(family.positions))},
      {"tie_embeddings", get("tie_word_embeddings", boolValue(false))},
      {"dtype", dtype()},
      {"norm", object({{"kind", stringValue("rms")}, {"eps", get("rms_norm_eps", numberValue(family.eps))}})},
      {"layer_pattern", stringValue("N")},
      {"mixers", object({{"N", attention()}})},
      {"ffn_pattern", stringValue(pattern)},
      {"ffns", std::move(ffns)},
      {"init", object({{"kind", stringValue("normal")},
                       {"std", get("initializer_range", numberValue(0.02))},
                       {"scale_output", boolValue(false)}})},
  };
  for (StringRef key : {"train", "schedule"}) // ours, as braid-tune writes them
    if (const Value *v = take(key))
      fields.push_back({key.str(), *v});
  fixedKeys();
  for (const Field &field : config.fields)
    if (!llvm::is_contained(known, field.name))
      errors.report(field.name, describe(field.value) + " is of an unknown key of a " + family.name.str() +
                                    " config; valid: the keys that models/README.md lists");
  if (errors.number() != before)
    return std::nullopt;
  Value description = object(std::move(fields));
  description.fields.push_back({"import", importOfHuggingFace(family.name, description)});
  return description;
}

bool json::isHuggingFace(const Value &root) {
  return !root.find("mixers") && llvm::any_of(llvm::ArrayRef<StringRef>{"model_type", "architectures", "text_config",
                                                                        "num_hidden_layers", "hidden_size"},
                                              [&](StringRef key) { return root.find(key); });
}

std::optional<Value> json::translateHuggingFace(const Value &config, Errors &errors) {
  std::vector<StringRef> names;
  for (const Family &family : families)
    names.push_back(family.name);
  auto refuse = [&](StringRef key, const std::string &message) {
    errors.report(key, message + "; valid: model_type " + join(names));
    return std::nullopt;
  };
  const Value *type = config.find("model_type");
  if (const Value *nested = config.find("text_config"))
    return refuse("text_config", describe(*nested) + " is the part for text of a larger model's config, which is not "
                                                     "read");
  if (!type)
    return refuse("model_type", "is missing in what looks like a config.json of Hugging Face's transformers");
  if (type->kind != Kind::string)
    return refuse("model_type", describe(*type) + " is not a string");
  for (const Family &family : families)
    if (type->string == family.name)
      return Translation(config, family, errors).run();
  for (auto [name, what] : missing)
    if (type->string == name)
      return refuse("model_type", describe(*type) + " needs " + what.str() + ", which a description cannot say");
  return refuse("model_type", describe(*type) + " is of a config.json that is not read");
}

static llvm::json::Value toJson(const Value &value) {
  switch (value.kind) {
  case Kind::null: return nullptr;
  case Kind::boolean: return value.boolean;
  case Kind::integer: return value.integer;
  case Kind::number: return value.number;
  case Kind::string: return llvm::json::fixUTF8(value.string);
  case Kind::array: {
    llvm::json::Array items;
    for (const Value &item : value.items)
      items.push_back(toJson(item));
    return items;
  }
  case Kind::object: {
    llvm::json::Object fields;
    for (const Field &field : value.fields)
      fields[llvm::json::fixUTF8(field.name)] = toJson(field.value);
    return fields;
  }
  }
  llvm_unreachable("all kinds are above");
}

std::string json::textOf(const Value &value) { return llvm::formatv("{0}", toJson(value)).str(); }
