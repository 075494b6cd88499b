//===- HuggingFace.cpp - a config.json of Hugging Face's transformers as a model description ----------------------===//
// Every key is translated, known to say nothing about what is computed, or has the one value that is computed; any other
// is an error. Types and ranges of what is translated are the ordinary reader's.
#include "frontend/HuggingFace.h"
#include "frontend/HuggingFaceTranslation.h"
#include "frontend/ModelImport.h"
#include <cmath>

using namespace braid;
using namespace braid::json;
using llvm::StringRef;

/// The shortest pattern that this one repeats.
std::string json::shortest(StringRef pattern) {
  size_t size = 1;
  while (size < pattern.size() && pattern.drop_front(size) != pattern.drop_back(size))
    ++size;
  return pattern.take_front(size).str();
}

std::vector<Field> json::usedBy(StringRef pattern, std::vector<Field> parts) {
  llvm::erase_if(parts, [&](const Field &part) { return !pattern.contains(part.name); });
  return parts;
}

Value Translation::attention() {
  Value heads = get("num_attention_heads", numberValue(family.heads));
  const Value *givenKvHeads = take("num_key_value_heads"), *givenHeadDim = takeOptional("head_dim");
  Value usualKvHeads = family.kvHeads ? numberValue(family.kvHeads) : heads;
  Value kvHeads = named(!givenKvHeads                      ? usualKvHeads
                        : givenKvHeads->kind == Kind::null ? heads
                                                           : *givenKvHeads,
                        "num_key_value_heads");
  compare({"num_key_value_heads"}, kvHeads, usualKvHeads, &heads);
  Value headDim = named(givenHeadDim ? *givenHeadDim : numberValue(family.headDim), "head_dim");
  if (headDim.kind == Kind::integer && headDim.integer == 0 && !givenHeadDim && integerIn(heads, INT32_MAX) &&
      integerIn(hidden, INT32_MAX)) {
    if (hidden.integer % heads.integer)
      errors.report("num_attention_heads",
                    llvm::formatv("{0} does not divide hidden_size {1}; valid: a divisor, or a head_dim", heads.integer,
                                  hidden.integer)
                        .str());
    headDim = named(numberValue(std::max<int64_t>(1, hidden.integer / heads.integer)),
                    "hidden_size / num_attention_heads", heads.line);
  }
  if (family.name == "olmoe" && givenHeadDim && integerIn(heads, INT32_MAX) && integerIn(hidden, INT32_MAX) &&
      !isEqual(headDim, numberValue(hidden.integer / heads.integer))) // its norms have that many features
    errors.report("head_dim", llvm::formatv("{0} is not hidden_size / num_attention_heads, {1}; valid: that",
                                            describe(headDim), hidden.integer / heads.integer)
                                  .str());
  bool follows = !family.headDim && integerIn(heads, INT32_MAX) && integerIn(hidden, INT32_MAX);
  compare({"head_dim"}, headDim, numberValue(follows ? hidden.integer / heads.integer : family.headDim));
  Value turned = turns() ? rope(headDim) : Value();
  std::vector<Field> fields = {{"kind", stringValue("attention")},
                               {"heads", std::move(heads)},
                               {"kv_heads", std::move(kvHeads)},
                               {"head_dim", std::move(headDim)},
                               {"rope", std::move(turned)}};
  if (family.name == "glm4_moe")
    fields.push_back({"qk_norm", get("use_qk_norm", boolValue(false))});
  if (family.readsBias)
    fields.push_back({"qkv_bias", get("attention_bias", boolValue(family.qkvBias))});
  else if (family.qkvBias)
    fields.push_back({"qkv_bias", family.sharedHidden ? get("qkv_bias", boolValue(true)) : boolValue(true)});
  if (family.isGranite)
    fields.push_back({"scale", get("attention_multiplier", numberValue(1.0))});
  if (family.qkNorm)
    fields.push_back({"qk_norm", boolValue(true)});
  if (family.normsAllHeads)
    fields.push_back({"qk_norm_over", stringValue("heads")});
  if (family.hybrid)
    fields.push_back({"output_gate", stringValue("sigmoid")});
  if (family.hasWindow) {
    const Value *given = take("sliding_window");
    if (given && given->isNumber() && given->number == 0)
      errors.report("sliding_window", "0 leaves no key to see; valid: an integer above 0, or null for all");
    const Value all, usual = family.window ? numberValue(family.window) : all;
    Value window = given ? *given : usual;
    compare({"sliding_window"}, window, usual, /*null=*/&all);
    if (window.kind != Kind::null && !(window.kind == Kind::integer && window.integer == 0))
      fields.push_back({"window", named(std::move(window), "sliding_window")});
  }
  return object(std::move(fields));
}

/// The pattern of layers that a list names: `linear`, or N for attention.
std::string Translation::typesOf(StringRef key, const Value &types, const Value &layers, char linear) {
  std::string each;
  if (types.kind != Kind::array) {
    errors.report(key, describe(types) + " is not a list or null");
    return std::string{linear, 'N'};
  }
  for (auto [i, type] : llvm::enumerate(types.items)) {
    auto is = [&](StringRef name, StringRef older) { // transformers reads both
      return isEqual(type, stringValue(name)) || (linear == 'M' && isEqual(type, stringValue(older)));
    };
    bool isLinear = is(typeName(linear), "mamba");
    if (!isLinear && !is("full_attention", "attention"))
      errors.report(llvm::formatv("{0}[{1}]", key, i).str(),
                    describe(type) + " is not computed; valid: \"" + typeName(linear).str() + "\", \"full_attention\"");
    each += isLinear ? linear : 'N';
  }
  if (integerIn(layers, 1024) && each.size() == static_cast<size_t>(layers.integer))
    return shortest(each);
  if (integerIn(layers, 1024)) // what else it is, is reported where it is read
    errors.report(key,
                  llvm::formatv("has {0} layers; valid: num_hidden_layers, {1}", each.size(), layers.integer).str());
  return std::string{linear, 'N'};
}

/// The list that says such a pattern.
Value Translation::typesIn(StringRef pattern, const Value &layers, char linear) {
  std::vector<Value> types;
  for (size_t layer = 0; integerIn(layers, 1024) && layer < static_cast<size_t>(layers.integer); ++layer)
    types.push_back(stringValue(pattern[layer % pattern.size()] == linear ? typeName(linear) : "full_attention"));
  return arrayValue(std::move(types));
}

/// P: attention without rotations, N: with them. By the list of layers with rotations, or all but every so many-th.
std::string Translation::turningLayers(const Value &layers) {
  const Value usual = numberValue(int64_t(4)), every = get("no_rope_layer_interval", usual),
              *given = takeOptional("no_rope_layers");
  if (!integerIn(every, INT32_MAX))
    errors.report("no_rope_layer_interval", describe(every) + " is not an integer above 0");
  if (!integerIn(every, INT32_MAX) || !integerIn(layers, 1024))
    return "NP";
  auto listOf = [&](const Value &every) {
    std::vector<Value> turns;
    for (int64_t layer = 0; layer < layers.integer; ++layer)
      turns.push_back(numberValue(int64_t((layer + 1) % every.integer != 0)));
    return turns;
  };
  std::vector<Value> turns = listOf(every);
  if (given) {
    if (given->kind != Kind::array || given->items.size() < turns.size()) {
      errors.report(
          "no_rope_layers",
          (given->kind == Kind::array ? llvm::formatv("has {0} layers", given->items.size()).str()
                                      : describe(*given) + " is not a list or null") +
              llvm::formatv("; valid: 1, or 0 where nothing turns, for each of num_hidden_layers, {0}", layers.integer)
                  .str());
      return "NP";
    }
    turns.assign(given->items.begin(), given->items.begin() + layers.integer);
  }
  std::string pattern;
  for (auto [i, turn] : llvm::enumerate(turns)) {
    bool isOn = isEqual(turn, numberValue(int64_t(1)));
    if (!isOn && !isEqual(turn, numberValue(int64_t(0))))
      errors.report(llvm::formatv("no_rope_layers[{0}]", i).str(), describe(turn) + " is not computed; valid: 0, 1");
    pattern += isOn ? 'N' : 'P';
  }
  // Of weights no name and no shape says it. Where a number says it here, there it may be the list that follows from it.
  compare({"no_rope_layers"}, given ? *given : arrayValue(turns), arrayValue(given ? listOf(usual) : turns));
  return shortest(pattern);
}

/// Of every so many layers the last one has attention (N), as `key` says, unless a list of types says which.
std::string Translation::attentionEvery(StringRef key, const Value *given, int64_t usual, const Value *types,
                                        const Value &layers) {
  auto patternOf = [&](int64_t every) {
    std::string each;
    for (int64_t layer = 0; integerIn(layers, 1024) && layer < layers.integer; ++layer)
      each += (layer + 1) % every ? 'L' : 'N';
    return each.empty() ? "LN" : shortest(each);
  };
  const Value otherwise = numberValue(usual), &every = given ? *given : otherwise;
  std::string pattern = "LN";
  if (types)
    pattern = typesOf("layer_types", *types, layers, 'L');
  else if (!integerIn(every, INT32_MAX))
    errors.report(key, describe(every) + " is not an integer above 0");
  else
    pattern = patternOf(every.integer);
  auto size = static_cast<int64_t>(pattern.size()); // a number may say the same
  std::vector<Value> same;
  if (size <= 1024 && patternOf(size) == pattern)
    same.push_back(numberValue(size));
  compare({"layer_types", key.str()}, typesIn(pattern, layers, 'L'), typesIn(patternOf(usual), layers, 'L'),
          /*null=*/nullptr, same);
  return pattern;
}

/// L: the gated delta rule or lightning attention, N: attention, P: without rotations.
void Translation::mixers(const Value &layers, Value &mixers, std::string &pattern) {
  pattern = "N";
  if (family.hasLightning && !integerIn(layers, 1)) // attention first, in turns
    pattern = "NL";
  const Value *types = family.hybrid || family.hasLightning ? takeOptional("layer_types") : nullptr;
  if (family.hasLightning && types)
    pattern = typesOf("layer_types", *types, layers, 'L');
  if (family.hybrid) {
    pattern = attentionEvery("full_attention_interval", take("full_attention_interval"), 4, types, layers);
  }
  if (family.hasLightning)
    compare({"layer_types"}, typesIn(pattern, layers, 'L'), typesIn(integerIn(layers, 1) ? "N" : "NL", layers, 'L'));
  Value attentions = attention(); // its keys are known, used or not
  if (family.skipsTurns) {
    pattern = turningLayers(layers);
    Value still = attentions;
    for (Field &field : still.fields)
      if (field.name == "rope")
        field.value = Value();
    mixers = object(usedBy(pattern, {{"N", std::move(attentions)}, {"P", std::move(still)}}));
    return;
  }
  Value linear = family.hybrid ? gatedDeltanet(32, 16) : family.hasLightning ? lightning(attentions) : Value();
  if (family.hasLightning)
    attentions.fields.push_back(residual("full_attn_alpha_factor", "full_attn_beta_factor"));
  mixers = object(usedBy(pattern, {{"L", std::move(linear)}, {"N", std::move(attentions)}}));
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
  bool half = isEqual(given, stringValue("float16"));
  if (!half || !dtypeGiven)
    errors.report(given.origin, describe(given) + " is not computed; valid: \"float32\", \"bfloat16\", \"float64\"" +
                                    (half ? ", or --dtype=f32 (or bf16), as which such weights are read" : ""));
  given.kind = Kind::string, given.string = "f32";
  return given;
}

/// It says how files keep weights, and nothing of what is computed (runtime/train/BlockScales.h).
void Translation::quantization() {
  if (const Value *quantized = takeOptional("quantization_config"))
    if (const Value *method = quantized->find("quant_method");
        !method || (method->string != "fp8" && method->string != "mxfp4"))
      errors.report("quantization_config", describe(*quantized) +
                                               " says that weights are quantized in a form that is not "
                                               "read; valid: null, or one with quant_method \"fp8\" or \"mxfp4\"");
}

/// A bound that a tanh keeps, or null: none.
void Translation::addSoftcap(std::vector<Field> &fields, StringRef ours, StringRef key, const Value &usual) {
  const Value none, *given = take(key), &cap = given ? *given : usual;
  compare({key.str()}, cap, usual, /*null=*/&none);
  if (cap.kind != Kind::null)
    fields.push_back({ours.str(), named(cap, key)});
}

void Translation::fixedKeys() {
  for (StringRef key : silent)
    (void)take(key);
  for (StringRef key : {"is_encoder_decoder", "add_cross_attention"})
    only(key, boolValue(false));
  if (family.onePart)
    return fixedKeysOfOnePart();
  if (family.isGemma)
    fixedKeysOfGemma();
  else if (family.isGriffin)
    fixedKeysOfGriffin();
  else if (!family.isZamba && !family.isXlstm && !family.isFla)
    only("hidden_act", stringValue("silu"), /*nullable=*/false, /*same=*/{stringValue("swish")});
  if (family.isXlstm)
    return fixedKeysOfXlstm();
  if (family.isFla)
    return isRwkv() ? fixedKeysOfRwkv() : fixedKeysOfFla();
  if (family.name == "minimax_m2")
    fixedKeysOfMiniMaxM2();
  if (family.name == "olmoe")
    only("sliding_window", Value());
  only("attention_dropout", numberValue(int64_t(0)), /*nullable=*/true);
  only("pretraining_tp", numberValue(int64_t(1)), /*nullable=*/true);
  if (family.isFalcon)
    fixedKeysOfFalcon();
  else
    only("mlp_bias", boolValue(false));
  if (family.hasSinks)
    fixedKeysOfGptOss();
  else if ((!family.qkvBias || !family.sharedHidden) && !family.readsBias && !family.isFalcon) // keys of their own
    only("attention_bias", boolValue(family.qkvBias));
  for (StringRef key : {"rope_interleaved", "use_mrope"})
    only(key, boolValue(false));
  only("clip_qkv", Value());
  quantization();
  if (family.hasMamba)
    fixedKeysOfMamba();
  if (family.isZamba)
    fixedKeysOfZamba();
  if (family.experts)
    only("router_jitter_noise", numberValue(int64_t(0)));
  if (family.hasLightning)
    (void)take("block_size"); // how it is computed
  if (family.splitsLinear) { // heads for further tokens, and what states are kept in
    for (StringRef key : {"mtp_num_hidden_layers", "mtp_use_dedicated_embeddings", "mamba_ssm_dtype"})
      (void)take(key);
    only("attn_output_gate", boolValue(true));
  }
  if (family.name == "phi3")
    fixedKeysOfPhi3();
  if (family.name == "ernie4_5_moe")
    fixedKeysOfErnie();
  if (family.name == "dots1")
    fixedKeysOfDots1();
  if (family.isLfm)
    fixedKeysOfLfm();
  if (family.latent) {
    fixedKeysOfLatent();
  } else if (family.corrects) {
    for (StringRef key : {"num_nextn_predict_layers", "num_mtp_layers"}) // further tokens
      (void)take(key);
    balanceLoss();
  }
  if (family.hybrid)
    only("use_sliding_window", boolValue(false));
  if (!family.switchesWindow)
    return;
  only("use_sliding_window", boolValue(false)); // without it these say nothing
  (void)take("sliding_window");
  (void)take("max_window_layers");
  onlyFullAttention();
}

/// Whether layer_types is there; it must name no other layers, here and in a config beside weights.
bool Translation::onlyFullAttention() {
  const Value *types = takeOptional("layer_types");
  if (types && (types->kind != Kind::array ||
                !llvm::all_of(types->items, [](const Value &v) { return isEqual(v, stringValue("full_attention")); })))
    errors.report("layer_types", "not all layers are \"full_attention\"; valid: only such layers");
  Value all = typesIn("N", get("num_hidden_layers", numberValue(family.layers)), 'L');
  compare({"layer_types"}, all, all);
  return types;
}

/// Numbers of layers; nothing, or null: none.
std::vector<int64_t> Translation::layersIn(StringRef key, const Value &layers) {
  std::vector<int64_t> numbers;
  const Value *v = takeOptional(key);
  if (!v)
    return numbers;
  if (v->kind != Kind::array)
    errors.report(key, describe(*v) + " is not a list; valid: numbers of layers, or null");
  for (auto [i, item] : llvm::enumerate(v->items)) {
    if (item.kind != Kind::integer || item.integer < 0 ||
        (layers.kind == Kind::integer && item.integer >= layers.integer))
      errors.report(llvm::formatv("{0}[{1}]", key, i).str(),
                    describe(item) + " is no layer; valid: 0 to num_hidden_layers - 1");
    else
      numbers.push_back(item.integer);
  }
  return numbers;
}

void Translation::balanceLoss() {
  // transformers pools the routing of all layers into one loss, which no sum of losses of layers is.
  const Value *adds = take("output_router_logits"), *loss = take("router_aux_loss_coef");
  if (adds && adds->kind != Kind::boolean)
    errors.report("output_router_logits", describe(*adds) + " is not true or false");
  if (loss && !loss->isNumber())
    errors.report("router_aux_loss_coef", describe(*loss) + " is not a number");
  if (adds && adds->kind == Kind::boolean && adds->boolean && !(loss && loss->isNumber() && loss->number == 0))
    errors.report("output_router_logits", "true adds a balance loss over the routing of all layers together, which is "
                                          "not computed; valid: false, or router_aux_loss_coef 0");
}

/// What norm_topk_prob is to families without that key.
Value Translation::alwaysNormalizes() {
  return named(boolValue(true), ("norm_topk_prob, which " + family.name + " does not ask about").str());
}

std::vector<Field> Translation::moe(Value experts, Value topK, Value expertHidden, Value normalize,
                                    std::vector<Field> router) {
  router.push_back({"normalize", std::move(normalize)});
  router.push_back({"balance_loss", numberValue(int64_t(0))});
  router.push_back({"z_loss", numberValue(int64_t(0))});
  return {{"kind", stringValue("moe")},
          {"num_experts", std::move(experts)},
          {"top_k", std::move(topK)},
          {"expert_hidden", std::move(expertHidden)},
          {"router", object(std::move(router))}};
}

/// The width of an expert that every token sees: that of so many others.
Value Translation::sharedExperts(StringRef key, Value count, const Value &width) {
  constexpr int64_t most = 1 << 10;
  if (count.kind != Kind::integer || count.integer < 1)
    errors.report(key, describe(count) + " is not an integer above 0");
  else if (count.integer > most)
    errors.report(key, llvm::formatv("{0} is out of range; valid: 1 to {1}", count.integer, most).str());
  else if (integerIn(width, INT32_MAX))
    return named(numberValue(count.integer * width.integer), (key + " * moe_intermediate_size").str());
  return count;
}

/// Of the router, where there are several groups.
void Translation::expertGroups(std::vector<Field> &router, Value groups, Value kept, StringRef score) {
  if (!isEqual(groups, numberValue(int64_t(1)))) {
    router.push_back({"groups", std::move(groups)});
    router.push_back({"kept_groups", std::move(kept)});
    router.push_back({"group_score", stringValue(score)});
  } else if (!isEqual(kept, numberValue(int64_t(1)))) {
    errors.report("topk_group", describe(kept) + " of n_group 1 groups; valid: 1");
  }
}

/// Scores, and a correction that stays as it is.
std::vector<Field> Translation::correctedRouter(StringRef score) {
  return {{"score", stringValue(score)}, {"correction", boolValue(true)}, {"correction_rate", numberValue(int64_t(0))}};
}

/// The router of DeepSeek-V3, whose correction stays as it is, and an expert that every token sees: of nemotron_h both
/// without a gate (act(x w1) w2), of others as wide as so many experts.
std::vector<Field> Translation::correctedExperts() {
  bool oneSize = family.name == "nemotron_h", renames = isKimi() || isBailing();
  Value experts =
            either(renames ? "num_experts" : "n_routed_experts", "num_local_experts", numberValue(family.experts)),
        width = get("moe_intermediate_size", numberValue(family.expertHidden)),
        kept = get("topk_group", numberValue(family.keptGroups)), shared;
  // A family's own name of a key goes before the one that transformers has for all.
  auto renamed = [&](StringRef key, StringRef own, Value otherwise) {
    return renames ? either(own, key, std::move(otherwise)) : get(key, std::move(otherwise));
  };
  Value topK = renamed("num_experts_per_tok", "num_experts_per_token", numberValue(family.topK)),
        groups = renamed("n_group", "num_expert_group", numberValue(family.groups));
  if (oneSize) {
    shared = get("moe_shared_expert_intermediate_size", numberValue(family.sharedHidden));
    if (shared.kind == Kind::integer && shared.integer == 0)
      errors.report("moe_shared_expert_intermediate_size",
                    "0 leaves tensors without a number; valid: an integer above 0");
  } else {
    Value count = renamed("n_shared_experts", "num_shared_experts", numberValue(family.sharedHidden));
    std::string key = StringRef(count.origin).drop_front(prefix.size()).str();
    shared = sharedExperts(key, std::move(count), width);
  }
  if (family.name == "dots1") // without which transformers has no such model
    for (StringRef key : {"num_experts_per_tok", "n_shared_experts", "n_routed_experts"})
      if (!takeOptional(key) && !(key == "n_routed_experts" && config.find("num_local_experts")))
        errors.report(key, "is missing, for which transformers takes nothing; valid: an integer above 0");
  std::vector<Field> router = correctedRouter();
  router.push_back({"scale", get("routed_scaling_factor", numberValue(family.expertScale))});
  expertGroups(router, std::move(groups), std::move(kept), "top2");
  std::vector<Field> fields =
      moe(std::move(experts), std::move(topK), std::move(width),
          renamed("norm_topk_prob", "moe_renormalize", boolValue(family.normalizes)), std::move(router));
  fields.push_back({"shared_hidden", std::move(shared)});
  if (oneSize)
    fields.push_back({"activation", stringValue("relu2")});
  if (const Value *latent = oneSize ? takeOptional("moe_latent_size") : nullptr) {
    if (latent->kind == Kind::integer && latent->integer == 0)
      errors.report("moe_latent_size", "0 leaves tensors without a number; valid: an integer above 0, or null");
    fields.push_back({"latent_dim", named(*latent, "moe_latent_size")});
  }
  return fields;
}

void Translation::feedForwards(const Value &layers, Value &ffns, std::string &pattern) {
  Value intermediate = get("intermediate_size", numberValue(family.intermediateSize));
  auto dense = [&] {
    Value part = object({{"kind", stringValue("dense")}, {"hidden", intermediate}});
    if (family.isGemma)
      part.fields.push_back({"activation", stringValue("geglu_tanh")});
    return part;
  };
  if (!family.experts) {
    ffns = object({{"D", dense()}});
    pattern = "D";
    return;
  }
  if (family.corrects || family.latent) {
    bool hasList = isKimi() || isBailing(); // mlp_layer_types, which says the same
    const Value usual = numberValue(family.denseLayers), *given = take("first_k_dense_replace");
    Value first = named(given ? *given : usual, "first_k_dense_replace");
    if (!hasList)
      compare({"first_k_dense_replace"}, first, usual);
    bool isCount = first.kind == Kind::integer && first.integer >= 0;
    if (!isCount)
      errors.report("first_k_dense_replace", describe(first) + " is not an integer from 0 upwards");
    for (int64_t layer = 0; isCount && integerIn(layers, 1024) && layer < layers.integer; ++layer)
      pattern += layer < first.integer ? 'D' : 'M';
    if (hasList)
      sparseLayers(layers, pattern);
    pattern = pattern.empty() ? "M" : shortest(pattern);
    ffns = object(
        usedBy(pattern, {{"D", dense()}, {"M", object(family.corrects ? correctedExperts() : greedyExperts())}}));
    return;
  }
  bool isOlmoe = family.name == "olmoe", isJamba = family.name == "jamba";
  bool isLocal = !family.expertHidden && !isOlmoe && !isJamba; // mixtral
  Value experts = either(isLocal ? "num_local_experts" : "num_experts", isLocal ? "num_experts" : "num_local_experts",
                         numberValue(family.experts));
  Value topK = get("num_experts_per_tok", numberValue(family.topK));
  Value normalize = isJamba   ? boolValue(false)
                    : isOlmoe ? get("norm_topk_prob", boolValue(family.normalizes))
                              : alwaysNormalizes();
  Value expertHidden = intermediate;
  int64_t step = 1;
  std::vector<int64_t> denseLayers;
  if (family.expertHidden)
    expertHidden = get("moe_intermediate_size", numberValue(family.expertHidden));
  if (family.expertHidden && !family.splitsLinear) {
    normalize = get("norm_topk_prob", boolValue(family.normalizes));
    if (Value v = get("decoder_sparse_step", numberValue(int64_t(1))); integerIn(v, INT32_MAX))
      step = v.integer;
    else
      errors.report("decoder_sparse_step", describe(v) + " is not an integer above 0");
    denseLayers = layersIn("mlp_only_layers", layers);
  }
  balanceLoss();
  if (isJamba) {
    pattern = everySoMany("expert_layer_period", "expert_layer_offset", 2, 1, layers, 'M', 'D');
    if (experts.kind == Kind::integer && experts.integer < 2) // as transformers has it
      pattern.assign(pattern.size(), 'D');
  }
  if (!isJamba && integerIn(layers, 1024))
    for (int64_t layer = 0; layer < layers.integer; ++layer)
      pattern += (layer + 1) % step || llvm::is_contained(denseLayers, layer) ? 'D' : 'M';
  bool hasMoe = StringRef(pattern).contains('M'), hasDense = StringRef(pattern).contains('D');
  std::vector<Field> parts;
  std::vector<Field> sparse = moe(std::move(experts), std::move(topK), std::move(expertHidden), std::move(normalize),
                                  family.name == "minimax_m2" ? correctedRouter() : std::vector<Field>());
  if (family.sharedHidden) {
    Value shared = get("shared_expert_intermediate_size", numberValue(family.sharedHidden));
    if (shared.isNumber() && shared.number == 0)
      errors.report("shared_expert_intermediate_size",
                    "0 leaves the gate of the shared expert without one; valid: an integer above 0");
    sparse.push_back({"shared_hidden", std::move(shared)});
    sparse.push_back({"shared_gate", boolValue(true)});
  }
  if (family.hasLightning)
    sparse.push_back(residual("mlp_alpha_factor", "mlp_beta_factor"));
  if (hasMoe || pattern.empty())
    parts.push_back({"M", object(std::move(sparse))});
  if (hasDense)
    parts.push_back({"D", dense()});
  pattern = pattern.empty() ? "M" : shortest(pattern);
  ffns = object(std::move(parts));
}

std::optional<HuggingFaceModel> Translation::run() {
  int64_t before = errors.number();
  compare({"model_type"}, stringValue(family.name), stringValue(family.name));
  // Two names of one number.
  auto spelled = [&](StringRef key, StringRef ofXlstm, int64_t usual) {
    return family.isXlstm ? either(key, ofXlstm, numberValue(usual)) : get(key, numberValue(usual));
  };
  hidden = spelled("hidden_size", "embedding_dim", family.hiddenSize);
  Value layers = spelled("num_hidden_layers", "num_blocks", family.layers), mixing, ffns;
  std::string layerPattern, ffnPattern;
  std::vector<Field> shared; // blocks of several layers
  if (family.onePart) {
    layersOfOnePart(layers, mixing, ffns, layerPattern, ffnPattern);
  } else if (family.isZamba) {
    layersOfZamba(layers, mixing, shared);
    layerPattern = "M", ffnPattern = "-", ffns = object({});
  } else {
    if (family.latent)
      layersOfLatent(layers, mixing, layerPattern);
    else
      family.hasMamba          ? layersOfMamba(layers, mixing, layerPattern)
      : family.isFalcon        ? layersOfFalcon(mixing, layerPattern)
      : family.hasSinks        ? layersOfGptOss(layers, mixing, layerPattern)
      : family.isLfm           ? layersOfLfm(layers, mixing, layerPattern)
      : family.isXlstm         ? layersOfXlstm(mixing, layerPattern)
      : family.isGriffin       ? layersOfGriffin(layers, mixing, layerPattern)
      : isRwkv() && !isRwkv6() ? layersOfRwkv(layers, mixing, layerPattern)
      : family.isFla           ? layersOfFla(layers, mixing, layerPattern)
      : family.isLara          ? layersOfLara(layers, mixing, layerPattern)
      : family.isOlmoHybrid    ? layersOfOlmoHybrid(layers, mixing, layerPattern)
      : family.windowEvery     ? layersWithWindows(layers, mixing, layerPattern)
                               : mixers(layers, mixing, layerPattern);
    if (family.isGranite && family.experts)
      ffns = graniteFeedForward(ffnPattern);
    else if (family.isFalcon)
      ffns = feedForwardOfFalcon(ffnPattern);
    else if (family.hasSinks)
      ffns = expertsOfGptOss(ffnPattern);
    else if (family.name == "ernie4_5_moe")
      ffns = feedForwardsOfErnie(layers, ffnPattern);
    else if (family.isLfm)
      ffns = feedForwardsOfLfm(layers, ffnPattern);
    else if (family.isXlstm)
      ffns = feedForwardOfXlstm(ffnPattern);
    else if (family.isGriffin)
      ffns = feedForwardOfGriffin(ffnPattern);
    else if (isRwkv())
      ffns = feedForwardOfRwkv(ffnPattern);
    else if (family.isFla)
      ffns = feedForwardOfFla(ffnPattern);
    else if (family.isLara)
      ffns = expertsOfLara(ffnPattern);
    else if (family.isOlmoHybrid)
      ffns = feedForwardsOfOlmoHybrid(layerPattern, ffnPattern);
    else
      feedForwards(layers, ffns, ffnPattern);
  }
  Value eps = isLfm3() ? either("norm_eps", "rms_norm_eps", numberValue(family.eps))
                       : get(family.onePart                                   ? "layer_norm_epsilon"
                             : family.isLfm || family.isXlstm || family.isFla ? "norm_eps"
                                                                              : "rms_norm_eps",
                             numberValue(family.eps));
  std::vector<Field> norm = {{"kind", stringValue(isRwkv() ? "layer" : "rms")}, {"eps", std::move(eps)}};
  if (isRwkv())
    norm.push_back({"bias", get("norm_bias", boolValue(true))});
  Value scaleOutput =
      family.onePart ? get("rescale_prenorm_residual", boolValue(family.name == "nemotron_h")) : boolValue(false);
  Value context = isKimi() || isBailing()
                      ? either("max_position_embeddings", "model_max_length", numberValue(family.positions))
                      : get("max_position_embeddings", numberValue(family.positions));
  std::vector<Field> fields = {
      {"name", stringValue(family.name)},
      {"vocab_size", get("vocab_size", numberValue(family.vocabSize))},
      {"d_model", hidden},
      {"num_layers", std::move(layers)},
      {"context_len", std::move(context)},
      {"tie_embeddings", family.isLfm ? tiedOfLfm() : get("tie_word_embeddings", boolValue(family.tied))},
      {"dtype", dtype()},
      {"norm", object(std::move(norm))},
      {"layer_pattern", stringValue(layerPattern)},
      {"mixers", std::move(mixing)},
      {"ffn_pattern", stringValue(ffnPattern)},
      {"ffns", std::move(ffns)},
      {"init",
       object({{"kind", stringValue("normal")},
               {"std", family.isXlstm || family.isGriffin
                           ? smallInit()
                           : get("initializer_range", numberValue(family.name == "mamba2" || isMamba() ? 0.1 : 0.02))},
               {"scale_output", std::move(scaleOutput)}})},
  };
  if (isRwkv())
    fields.push_back({"embedding_norm", get("norm_first", boolValue(true))});
  if (family.isGranite)
    graniteMultipliers(fields);
  if (family.isFalcon)
    multipliersOfFalcon(fields);
  if (family.isXlstm)
    addSoftcap(fields, "logits_softcap", "output_logit_soft_cap", numberValue(30.0));
  if (family.isGriffin) {
    addSoftcap(fields, "logits_softcap", "logits_soft_cap", numberValue(30.0));
    fields.push_back({"embedding_multiplier", embeddingFactorOfGriffin()});
  }
  if (family.isGemma && family.windowEvery)
    addSoftcap(fields, "logits_softcap", "final_logit_softcapping", isGemma2() ? numberValue(30.0) : Value());
  llvm::append_range(fields, shared);
  if (family.hasLightning)
    fields.push_back({"residual", object({{"from", stringValue("normed")}})});
  if (isLfm3() && flag("use_sandwich_norm", true))
    fields.push_back({"norm_placement", stringValue("sandwich")});
  if (family.placement != "pre")
    fields.push_back({"norm_placement", stringValue(family.placement)});
  if (family.isGemma && hidden.isNumber() && hidden.number > 0)
    fields.push_back({"embedding_multiplier", named(numberValue(std::sqrt(hidden.number)), "hidden_size")});
  for (StringRef key : {"train", "schedule"}) // ours, as braid-tune writes them
    if (const Value *v = take(key))
      fields.push_back({key.str(), *v});
  fixedKeys();
  for (const Field &field : config.fields)
    if (!llvm::is_contained(known, field.name))
      errors.report(field.name, describe(field.value) + " is of an unknown key of " + configOf(family.name) +
                                    "; valid: the keys that models/README.md lists");
  if (errors.number() != before)
    return std::nullopt;
  Value description = object(std::move(fields));
  description.fields.push_back(
      {"import", importOfHuggingFace(family.name, description, {!prefix.empty(), fusesWeights})});
  return HuggingFaceModel{std::move(description), arrayValue(std::move(compared))};
}

bool json::isHuggingFace(const Value &root) {
  return !root.find("mixers") && llvm::any_of(llvm::ArrayRef<StringRef>{"model_type", "architectures", "text_config",
                                                                        "num_hidden_layers", "hidden_size"},
                                              [&](StringRef key) { return root.find(key); });
}

/// The part for text of a model that reads pictures, too; other keys say nothing about it, or what holds for both.
static std::optional<HuggingFaceModel> translatePart(const Value &config, const Value &part, const Family &family,
                                                     bool dtypeGiven, Errors &errors) {
  static constexpr StringRef beside[] = {"text_config",        "vision_config",         "image_token_id",
                                         "video_token_id",     "vision_start_token_id", "vision_end_token_id",
                                         "language_model_only"},
                             types[] = {"dtype", "torch_dtype"};
  int64_t before = errors.number();
  Value text = part;
  const Field *tied = nullptr; // what the part says of it is not read, nor of types where the whole says one
  for (const Field &field : config.fields) {
    if (llvm::is_contained(silent, field.name) || llvm::is_contained(beside, field.name))
      continue;
    if (llvm::is_contained(types, field.name)) {
      llvm::erase_if(text.fields, [](const Field &own) { return llvm::is_contained(types, own.name); });
      text.fields.push_back(field);
    } else if (field.name == "tie_word_embeddings") {
      tied = &field;
    } else {
      errors.report(field.name, describe(field.value) + " is of an unknown key of " +
                                    configOf(family.name.drop_back(StringRef("_text").size())) +
                                    "; valid: those of text stand in text_config");
    }
  }
  llvm::erase_if(text.fields, [](const Field &own) { return own.name == "tie_word_embeddings"; });
  if (tied)
    text.fields.push_back(*tied);
  if (errors.number() != before)
    return std::nullopt;
  return Translation(text, family, dtypeGiven, errors, "text_config.").run();
}

std::optional<HuggingFaceModel> json::translateHuggingFace(const Value &config, bool dtypeGiven, Errors &errors) {
  std::vector<StringRef> names;
  for (const Family &family : families)
    names.push_back(family.name);
  auto refuse = [&](StringRef key, const std::string &message) {
    errors.report(key, message + "; valid: model_type " + join(names));
    return std::nullopt;
  };
  const Value *type = config.find("model_type");
  for (auto [name, what] : missing)
    if (type && isEqual(*type, stringValue(name)))
      return refuse("model_type", describe(*type) + " needs " + what.str() + ", which a description cannot say");
  if (const Value *nested = config.find("text_config")) {
    const Value *inner = nested->kind == Kind::object ? nested->find("model_type") : nullptr;
    for (const Family &family : families)
      if (family.splitsLinear && type && inner && isEqual(*inner, stringValue(family.name)) &&
          isEqual(*type, stringValue(family.name.drop_back(StringRef("_text").size()))))
        return translatePart(config, *nested, family, dtypeGiven, errors);
    return refuse("text_config", describe(*nested) + " is the part for text of a larger model's config, which is not "
                                                     "read but of a qwen3_5 or qwen3_5_moe");
  }
  if (!type)
    return refuse("model_type", "is missing in what looks like a config.json of Hugging Face's transformers");
  if (type->kind != Kind::string)
    return refuse("model_type", describe(*type) + " is not a string");
  for (const Family &family : families)
    if (type->string == family.name)
      return Translation(config, family, dtypeGiven, errors).run();
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
