//===- HuggingFaceHybrids.cpp - configs of transformers: LFM2 and LFM3, OLMo Hybrid ----------------------------------------===//
#include "frontend/HuggingFaceTranslation.h"

using namespace braid;
using namespace braid::json;
using llvm::StringRef;

//===- LFM2, LFM3 -------------------------------------------------------------------------------------------------===//

/// Of lfm3 layers without a window, where a config does not say.
Value json::usualRopeOfLfm3() {
  return objectValue({{"rope_type", stringValue("proportional")},
                      {"rope_theta", numberValue(1e6)},
                      {"partial_rotary_factor", numberValue(0.5)}});
}

/// Letters of the kinds of layers that a list names, or `usual` of each layer.
std::string Translation::typesAmong(llvm::ArrayRef<std::pair<StringRef, char>> names,
                                    llvm::function_ref<char(int64_t layer)> usualOf, const Value &layers) {
  constexpr StringRef key = "layer_types";
  auto listOf = [&](StringRef pattern) {
    std::vector<Value> types;
    for (char letter : pattern)
      types.push_back(stringValue(llvm::find_if(names, [&](auto &each) { return each.second == letter; })->first));
    return arrayValue(std::move(types));
  };
  std::string usual, each, valid;
  for (auto [name, letter] : names)
    valid += (valid.empty() ? "\"" : ", \"") + name.str() + "\"";
  for (int64_t layer = 0; integerIn(layers, 1024) && layer < layers.integer; ++layer)
    usual += usualOf(layer);
  const Value *types = takeOptional(key);
  if (types && types->kind != Kind::array)
    errors.report(key, describe(*types) + " is not a list or null");
  else if (types && integerIn(layers, 1024) && types->items.size() != usual.size())
    errors.report(
        key, llvm::formatv("has {0} layers; valid: num_hidden_layers, {1}", types->items.size(), layers.integer).str());
  else if (types)
    for (auto [i, type] : llvm::enumerate(types->items)) {
      auto known = llvm::find_if(names, [&](auto &each) { return isEqual(type, stringValue(each.first)); });
      if (known == std::end(names))
        errors.report(llvm::formatv("{0}[{1}]", key, i).str(), describe(type) + " is not computed; valid: " + valid);
      else
        each += known->second;
    }
  if (each.size() != usual.size())
    each = usual;
  compare({key.str()}, listOf(each), listOf(usual));
  return each.empty() ? "N" : shortest(each);
}

/// C: a gated short convolution, N: attention, W: with a window.
std::string Translation::typesOfLfm3(const Value &layers) {
  return typesAmong(
      {{"conv", 'C'}, {"full_attention", 'N'}, {"sliding_attention", 'W'}},
      [](int64_t layer) { return layer % 4 == 2                ? 'N'
                                 : layer % 4 == 0 && layer > 0 ? 'W'
                                                               : 'C'; }, layers);
}

/// C: a gated short convolution, N: attention. By the list of types, or that of layers with attention.
std::string Translation::typesOfLfm2(const Value &layers) {
  const Value *types = takeOptional("layer_types");
  bool listsAttention = family.name == "lfm2" && !types && config.find("full_attn_idxs") &&
                        config.find("full_attn_idxs")->kind != Kind::null;
  std::vector<int64_t> attentions = layersIn("full_attn_idxs", layers);
  if (family.experts && !types)
    errors.report("layer_types", "is missing, without which transformers has no such model; valid: \"conv\" or "
                                 "\"full_attention\" for every layer");
  std::string each;
  for (int64_t layer = 0; integerIn(layers, 1024) && layer < layers.integer; ++layer)
    each += !listsAttention || llvm::is_contained(attentions, layer) ? 'N' : 'C';
  std::string pattern = types ? typesOf("layer_types", *types, layers, 'C') : each.empty() ? "N" : shortest(each);
  std::vector<Value> listed;
  for (int64_t layer = 0; integerIn(layers, 1024) && layer < layers.integer; ++layer)
    if (pattern[static_cast<size_t>(layer) % pattern.size()] == 'N')
      listed.push_back(numberValue(layer));
  compare({"layer_types", "full_attn_idxs"}, typesIn(pattern, layers, 'C'), typesIn("N", layers, 'C'),
          /*null=*/nullptr, /*same=*/{arrayValue(std::move(listed))});
  return pattern;
}

/// C: a gated short convolution, N: attention, W: with a window.
void Translation::layersOfLfm(const Value &layers, Value &mixers, std::string &pattern) {
  pattern = isLfm3() ? typesOfLfm3(layers) : typesOfLfm2(layers);
  Value bias = get("conv_bias", boolValue(false)), taps = get("conv_L_cache", numberValue(int64_t(isLfm3() ? 7 : 3)));
  Value conv = object({{"kind", stringValue("short_conv")},
                       {"conv", object({{"kernel", std::move(taps)}, {"bias", bias}})},
                       {"projection_bias", bias},
                       {"output_bias", bias}});
  Value all = attention(), local;
  if (isLfm3()) {
    if (flag("use_attention_gate", true)) {
      all.fields.push_back({"output_gate", stringValue("sigmoid")});
      all.fields.push_back({"output_gate_per", stringValue("head")});
    }
    local = all;
    turnByTypes(all, local, /*hasWindows=*/StringRef(pattern).contains('W'));
    addWindow(local, pattern, 256);
  }
  mixers = object(usedBy(pattern, {{"C", std::move(conv)}, {"W", std::move(local)}, {"N", std::move(all)}}));
}

/// Without experts the width is two thirds of the one that is given, rounded up, unless the config says it is not.
Value Translation::feedForwardsOfLfm(const Value &layers, std::string &pattern) {
  const Value *own = takeOptional("block_ff_dim"), *given = take("intermediate_size");
  StringRef key = own ? "block_ff_dim" : "intermediate_size";
  Value hidden = named(own ? *own : given ? *given : numberValue(family.intermediateSize), key);
  auto dense = [&] { return object({{"kind", stringValue("dense")}, {"hidden", hidden}}); };
  if (isLfm3()) {
    pattern = "D";
    return object({{"D", dense()}});
  }
  if (!family.experts) {
    // Shapes say the width, whatever it is computed from.
    const Value *saidAdjusts = take("block_auto_adjust_ff_dim"), *saidMultiple = take("block_multiple_of"),
                *factor = take("block_ffn_dim_multiplier");
    Value adjusts = saidAdjusts ? *saidAdjusts : boolValue(true),
          multiple = saidMultiple ? *saidMultiple : numberValue(int64_t(256));
    bool isWhole = factor && factor->kind == Kind::null; // two thirds, as they are
    double times = !factor || isWhole ? 1.0 : factor->number;
    if (adjusts.kind != Kind::boolean)
      errors.report("block_auto_adjust_ff_dim", describe(adjusts) + " is not true or false");
    if (!integerIn(multiple, INT32_MAX))
      errors.report("block_multiple_of", describe(multiple) + " is not an integer above 0");
    if (factor && !isWhole && !(factor->isNumber() && times > 0 && times <= 1e3))
      errors.report("block_ffn_dim_multiplier", describe(*factor) + " is not a number above 0 to 1000, or null");
    else if (adjusts.boolean && integerIn(hidden, INT32_MAX) && integerIn(multiple, INT32_MAX)) {
      int64_t width = 2 * hidden.integer / 3;
      if (!isWhole) {
        width = static_cast<int64_t>(times * static_cast<double>(width));
        width = (width + multiple.integer - 1) / multiple.integer * multiple.integer;
      }
      hidden = named(numberValue(width), (key + " as block_auto_adjust_ff_dim has it").str(), hidden.line);
    }
    pattern = "D";
    return object({{"D", dense()}});
  }
  Value first = get("num_dense_layers", numberValue(family.denseLayers));
  bool isCount = first.kind == Kind::integer && first.integer >= 0;
  if (!isCount)
    errors.report("num_dense_layers", describe(first) + " is not an integer from 0 upwards");
  for (int64_t layer = 0; isCount && integerIn(layers, 1024) && layer < layers.integer; ++layer)
    pattern += layer < first.integer ? 'D' : 'M';
  pattern = pattern.empty() ? "M" : shortest(pattern);
  std::vector<Field> router =
      flag("use_expert_bias", true) ? correctedRouter() : std::vector<Field>{{"score", stringValue("sigmoid")}};
  router.push_back({"scale", get("routed_scaling_factor", numberValue(family.expertScale))});
  Value experts = get("num_experts", numberValue(family.experts)),
        topK = get("num_experts_per_tok", numberValue(family.topK)),
        width = get("moe_intermediate_size", numberValue(family.expertHidden)),
        normalizes = get("norm_topk_prob", boolValue(family.normalizes));
  Value sparse =
      object(moe(std::move(experts), std::move(topK), std::move(width), std::move(normalizes), std::move(router)));
  return object(usedBy(pattern, {{"D", dense()}, {"M", std::move(sparse)}}));
}

/// The older name goes before the other.
Value Translation::tiedOfLfm() {
  const Value *own = take("tie_embedding"), *given = take("tie_word_embeddings"), usual = boolValue(family.tied);
  Value tied = named(own ? *own : given ? *given : usual, own ? "tie_embedding" : "tie_word_embeddings");
  compare({"tie_embedding", "tie_word_embeddings"}, tied, usual);
  return tied;
}

void Translation::fixedKeysOfLfm() {
  // Initial values, widths that others say, and keys that transformers does not read.
  for (StringRef key : {"block_dim", "block_mlp_init_scale", "block_norm_eps", "block_out_init_scale",
                        "block_use_swiglu", "block_use_xavier_init", "conv_dim", "conv_dim_out", "conv_use_xavier_init",
                        "num_heads", "use_pos_enc", "theta"})
    (void)take(key);
  if (family.experts)
    for (StringRef key : {"output_router_logits", "router_aux_loss_coef"}) // no loss follows
      (void)take(key);
}

//===- OLMo Hybrid ------------------------------------------------------------------------------------------------===//

/// L: the gated delta rule, N: attention.
void Translation::layersOfOlmoHybrid(const Value &layers, Value &mixers, std::string &pattern) {
  std::string usual;
  for (int64_t layer = 0; integerIn(layers, 1024) && layer < layers.integer; ++layer)
    usual += layer % 4 == 3 ? 'N' : 'L';
  if (!usual.empty() && !StringRef(usual).contains('N'))
    usual.back() = 'N';
  usual = usual.empty() ? "LN" : shortest(usual);
  const Value *types = takeOptional("layer_types");
  pattern = types ? typesOf("layer_types", *types, layers, 'L') : usual;
  compare({"layer_types"}, typesIn(pattern, layers, 'L'), typesIn(usual, layers, 'L'));
  Value attentions = attention();
  attentions.fields.push_back({"norm_placement", stringValue("output")});
  // What a config leaves out, or says with null, follows from other keys.
  auto size = [&](StringRef key, const Value &usual) {
    const Value *given = takeOptional(key);
    compare({key.str()}, given ? *given : usual, usual, /*null=*/&usual);
    return named(given ? *given : usual, given ? key : StringRef(usual.origin));
  };
  const Value *heads = attentions.find("heads");
  Value keys = size("linear_num_key_heads", *heads), values = size("linear_num_value_heads", *heads);
  bool follows = integerIn(keys, INT32_MAX) && integerIn(hidden, INT32_MAX);
  Value width = size("linear_key_head_dim",
                     named(numberValue(follows ? static_cast<int64_t>(0.75 * hidden.number / keys.number) : int64_t(1)),
                           "hidden_size * 3/4 / linear_num_key_heads", keys.line));
  Value twice =
      size("linear_value_head_dim", named(numberValue(integerIn(width, INT32_MAX) ? 2 * width.integer : int64_t(1)),
                                          "2 linear_key_head_dim", width.line));
  for (StringRef key :
       {"linear_a_log_min", "linear_a_log_max", "linear_dt_min", "linear_dt_max", "linear_dt_init_floor"})
    (void)take(key); // initial values
  Value delta = object({{"kind", stringValue("gated_deltanet")},
                        {"heads", std::move(values)},
                        {"key_heads", std::move(keys)},
                        {"head_dim", std::move(width)},
                        {"value_dim", std::move(twice)},
                        {"conv", object({{"kernel", get("linear_conv_kernel_dim", numberValue(int64_t(4)))}})},
                        {"allow_neg_eigval", get("linear_allow_neg_eigval", boolValue(true))},
                        {"norm_eps", numberValue(1e-5)}});
  mixers = object(usedBy(pattern, {{"L", std::move(delta)}, {"N", std::move(attentions)}}));
}

/// D behind the delta rule, E behind attention.
Value Translation::feedForwardsOfOlmoHybrid(StringRef layerPattern, std::string &pattern) {
  Value intermediate = get("intermediate_size", numberValue(family.intermediateSize));
  for (char letter : layerPattern)
    pattern += letter == 'N' ? 'E' : 'D';
  std::vector<Field> dense = {{"kind", stringValue("dense")}, {"hidden", std::move(intermediate)}}, ofOutput = dense;
  ofOutput.push_back({"norm_placement", stringValue("output")});
  return object(usedBy(pattern, {{"D", object(std::move(dense))}, {"E", object(std::move(ofOutput))}}));
}

//===- Lara -------------------------------------------------------------------------------------------------------===//

/// L: the gated delta rule, N: attention without positions, W: with a window, where heads turn.
void Translation::layersOfLara(const Value &layers, Value &mixers, std::string &pattern) {
  pattern = typesAmong(
      {{"linear_attention", 'L'}, {"full_attention", 'N'}, {"sliding_attention", 'W'}},
      [](int64_t layer) { return "LWLNW"[layer % 5]; }, layers);
  Value local = attention(), all = local;
  for (Field &field : all.fields)
    if (field.name == "rope")
      field.value = Value();
  addWindow(local, pattern, 512);
  mixers = object(usedBy(pattern, {{"L", gatedDeltanet(16, 8)}, {"W", std::move(local)}, {"N", std::move(all)}}));
}

/// Experts in all layers, beside one that every token sees, without a gate.
Value Translation::expertsOfLara(std::string &pattern) {
  std::vector<Field> fields =
      moe(get("num_experts", numberValue(family.experts)), get("num_experts_per_tok", numberValue(family.topK)),
          get("moe_intermediate_size", numberValue(family.expertHidden)),
          get("norm_topk_prob", boolValue(family.normalizes)));
  Value shared = get("shared_expert_intermediate_size", numberValue(family.sharedHidden));
  if (isEqual(shared, numberValue(int64_t(0))))
    errors.report("shared_expert_intermediate_size", "0 leaves no shared expert; valid: an integer above 0");
  else
    fields.push_back({"shared_hidden", std::move(shared)});
  balanceLoss();
  pattern = "M";
  return object({{"M", object(std::move(fields))}});
}
