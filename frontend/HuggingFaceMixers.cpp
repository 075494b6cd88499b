//===- HuggingFaceMixers.cpp - configs of transformers: gated delta rule, lightning attention, windows, Gemma ------===//
#include "frontend/HuggingFaceTranslation.h"
#include <cmath>

using namespace braid;
using namespace braid::json;
using llvm::StringRef;

Value Translation::gatedDeltanet(int64_t heads, int64_t keyHeads) {
  return object({{"kind", stringValue("gated_deltanet")},
                 {"heads", get("linear_num_value_heads", numberValue(heads))},
                 {"key_heads", get("linear_num_key_heads", numberValue(keyHeads))},
                 {"head_dim", get("linear_key_head_dim", numberValue(int64_t(128)))},
                 {"value_dim", get("linear_value_head_dim", numberValue(int64_t(128)))},
                 {"conv", object({{"kernel", get("linear_conv_kernel_dim", numberValue(int64_t(4)))}})},
                 {"norm_eps", get("rms_norm_eps", numberValue(family.eps))}});
}

/// As many heads of as many features as attention has; a norm with an eps of its own.
Value Translation::lightning(const Value &attention) {
  return object({{"kind", stringValue("lightning")},
                 {"heads", *attention.find("heads")},
                 {"head_dim", *attention.find("head_dim")},
                 {"norm_eps", numberValue(1e-6)},
                 residual("linear_attn_alpha_factor", "linear_attn_beta_factor")});
}

/// Factors of what passes by a part and of what it adds.
Field Translation::residual(StringRef alpha, StringRef beta) {
  return {"residual",
          object({{"alpha", get(alpha, numberValue(int64_t(1)))}, {"beta", get(beta, numberValue(int64_t(1)))}})};
}

/// transformers reads none of these; the published code has them, with one value.
void Translation::fixedKeysOfMiniMaxM2() {
  only("use_qk_norm", boolValue(true));
  only("qk_norm_type", stringValue("per_layer"));
  only("use_routing_bias", boolValue(true));
  only("scoring_func", stringValue("sigmoid"));
  only("shared_intermediate_size", numberValue(int64_t(0)));
  only("sliding_window", Value());
  if (const Value *types = takeOptional("attn_type_list"))
    if (types->kind != Kind::array ||
        !llvm::all_of(types->items, [](const Value &v) { return isEqual(v, numberValue(int64_t(1))); }))
      errors.report("attn_type_list", "not all layers are 1, softmax attention; valid: only such layers");
  for (StringRef key : {"layernorm_full_attention_beta", "layernorm_linear_attention_beta", "layernorm_mlp_beta"})
    only(key, numberValue(1.0));
  for (StringRef key : {"shared_moe_mode", "mlp_intermediate_size", "max_model_len", // of parts that are not there
                        "use_mtp", "num_mtp_modules", "mtp_transformer_layers"}) // further tokens
    (void)take(key);
}

/// Layers behind max_window_layers would have a window. transformers reads none of the others; the published code does.
void Translation::fixedKeysOfDots1() {
  bool isListed = onlyFullAttention();
  const Value *window = take("sliding_window");
  Value behind = get("max_window_layers", numberValue(int64_t(62)), /*nullable=*/true),
        layers = get("num_hidden_layers", numberValue(family.layers));
  if (!isListed && !(window && window->kind == Kind::null) && integerIn(layers, 1024) &&
      !(behind.isNumber() && behind.number >= layers.number)) {
    if (config.find("max_window_layers"))
      errors.report("max_window_layers",
                    llvm::formatv("{0} leaves sliding attention to layers, which is not computed; valid: at least "
                                  "num_hidden_layers {1}, or sliding_window null",
                                  describe(behind), layers.integer)
                        .str());
    else
      errors.report(
          "num_hidden_layers",
          llvm::formatv("{0} exceeds max_window_layers {1}, which leaves sliding attention to layers, and that "
                        "is not computed; valid: at most {1}, another max_window_layers, or sliding_window null",
                        layers.integer, describe(behind))
              .str());
  }
  only("moe_layer_freq", numberValue(int64_t(1)));
  for (StringRef key : {"scoring_func", "topk_method", "aux_loss_alpha", "seq_aux", "ep_size"})
    (void)take(key);
}

void Translation::fixedKeysOfPhi3() {
  for (StringRef key : {"resid_pdrop", "embd_pdrop"})
    only(key, numberValue(int64_t(0)));
  (void)take("original_max_position_embeddings"); // of rotations that change with the length of a text
}

void Translation::fixedKeysOfGemma() {
  // gemma: transformers takes the first for the second, which the published weights were made with.
  static constexpr StringRef valid[] = {"gelu", "gelu_pytorch_tanh"};
  if (family.windowEvery) {
    only("hidden_activation", stringValue(valid[1]));
    if (isGemma2()) { // neither is read; the first is the same where it is there
      only("hidden_act", stringValue(valid[1]));
      (void)take("sliding_window_size");
    } else {
      only("attn_logit_softcapping", Value());
    }
    for (StringRef key : {"cache_implementation", "_sliding_window_pattern"}) // neither is read
      (void)take(key);
  } else {
    const Value *given = take("hidden_act"), usual = stringValue(valid[1]);
    compare({"hidden_act"}, usual, usual, /*null=*/nullptr, /*same=*/{stringValue(valid[0])});
    if (given && (given->kind != Kind::string || !llvm::is_contained(valid, given->string)))
      errors.report("hidden_act", describe(*given) + " of " + configOf(family.name) +
                                      " is not computed; valid: \"gelu_pytorch_tanh\", \"gelu\", which is "
                                      "taken for the same");
    only("hidden_activation", stringValue(valid[1]), /*nullable=*/true);
  }
  only("use_bidirectional_attention", boolValue(false), /*nullable=*/true);
}

/// Of mixers W of the pattern, where it has some.
void Translation::addWindow(Value &mixer, StringRef pattern, int64_t usual) {
  const Value none, *given = take("sliding_window");
  Value window = named(given ? *given : numberValue(usual), "sliding_window");
  compare({"sliding_window"}, window, numberValue(usual), /*null=*/&none);
  bool isWhole = window.kind == Kind::integer || window.kind == Kind::null;
  if (pattern.contains('W') ? !integerIn(window, INT32_MAX) : !isWhole)
    errors.report("sliding_window", describe(window) + " is not an integer above 0");
  else
    mixer.fields.push_back({"window", std::move(window)});
}

/// W: a window, N: all keys. By the list of types, or all but every so many-th.
std::string Translation::windowedLayers(const Value &layers) {
  bool isExaone = family.name == "exaone4", isNumbered = isExaone || (family.isGemma && !isGemma2());
  const Value usual = numberValue(family.windowEvery), *types = takeOptional("layer_types"),
              *given = isNumbered ? take("sliding_window_pattern") : nullptr;
  if (isExaone && types) // beside which it says nothing, and has letters
    given = nullptr;
  const Value &every = given ? *given : usual;
  if (!integerIn(every, INT32_MAX))
    errors.report("sliding_window_pattern", describe(every) + " is not an integer above 0");
  if (!integerIn(every, INT32_MAX) || !integerIn(layers, 1024))
    return "WN";
  auto patternOf = [&](const Value &every) {
    std::string pattern;
    for (int64_t layer = 0; layer < layers.integer; ++layer)
      pattern += (layer + 1) % every.integer ? 'W' : 'N';
    return pattern;
  };
  auto listOf = [](StringRef pattern) {
    std::vector<Value> names;
    for (char letter : pattern)
      names.push_back(stringValue(letter == 'W' ? "sliding_attention" : "full_attention"));
    return arrayValue(std::move(names));
  };
  std::string pattern = patternOf(every);
  if (types) {
    std::string listed;
    if (types->kind != Kind::array)
      errors.report("layer_types", describe(*types) + " is not a list or null");
    else if (types->items.size() != pattern.size())
      errors.report(
          "layer_types",
          llvm::formatv("has {0} layers; valid: num_hidden_layers, {1}", types->items.size(), layers.integer).str());
    if (types->kind != Kind::array || types->items.size() != pattern.size())
      return "WN";
    for (auto [i, type] : llvm::enumerate(types->items)) {
      bool isWindow = isEqual(type, stringValue("sliding_attention"));
      if (!isWindow && !isEqual(type, stringValue("full_attention")))
        errors.report(llvm::formatv("layer_types[{0}]", i).str(),
                      describe(type) + " is not computed; valid: \"sliding_attention\", \"full_attention\"");
      listed += isWindow ? 'W' : 'N';
    }
    if (given && listed != pattern)
      errors.report("layer_types", "says other layers than sliding_window_pattern; valid: one of the two");
    pattern = listed;
  }
  // Of weights no name and no shape says it. Where a number says it here, there it may be the list that follows from it.
  if (isExaone) { // and a number here, where nothing else says it there
    std::vector<Value> same;
    for (const Value &number : {every, numberValue(static_cast<int64_t>(shortest(pattern).size()))})
      if (patternOf(number) == pattern)
        same.push_back(number);
    compare({"layer_types", "sliding_window_pattern"}, listOf(pattern), listOf(patternOf(usual)), /*null=*/nullptr,
            same);
    return pattern;
  }
  compare({"layer_types"}, listOf(pattern), listOf(types ? patternOf(usual) : pattern));
  if (isNumbered && (given || !types))
    compare({"sliding_window_pattern"}, every, every);
  return pattern;
}

/// Rotations of layers with all keys and of those with a window, where a config has an object for each.
void Translation::turnByTypes(Value &all, Value &local, bool hasWindows) {
  const Value *given = takeOptional("rope_parameters"), *theta = config.find("rope_theta");
  if (given && given->kind != Kind::object)
    errors.report("rope_parameters", describe(*given) + " is not an object or null");
  for (const Field &field : given ? given->fields : std::vector<Field>())
    if (field.name != "full_attention" && field.name != "sliding_attention")
      errors.report("rope_parameters." + field.name,
                    describe(field.value) + " is no object of one of the types of layers; valid: full_attention, "
                                            "sliding_attention");
  const Value *ofLocal = given ? given->find("sliding_attention") : nullptr;
  if (!family.isGemma && hasWindows && theta && theta->kind != Kind::null &&
      !(ofLocal && ofLocal->find("rope_theta")) && !isEqual(*theta, numberValue(family.localTheta)))
    errors.report("rope_theta", describe(*theta) +
                                    " is that of layers without a window, or of all, as versions of "
                                    "transformers have it; valid: " +
                                    describe(numberValue(static_cast<int64_t>(family.localTheta))) +
                                    ", or a rope_theta in rope_parameters.sliding_attention");
  Value headDim = *all.find("head_dim");
  for (auto [mixer, types] : {std::pair<Value *, StringRef>{&all, "full_attention"}, {&local, "sliding_attention"}})
    for (Field &field : mixer->fields)
      if (field.name == "rope")
        field.value = rope(headDim, types);
}

/// W: attention with a window, N: with all keys. Each with rotations of its own, or, in exaone4, the latter without any
/// where there are windows.
void Translation::layersWithWindows(const Value &layers, Value &mixers, std::string &pattern) {
  pattern = shortest(windowedLayers(layers));
  Value all = attention();
  if (family.isGemma) {
    Value divisor = get("query_pre_attn_scalar", numberValue(int64_t(256)));
    if (!divisor.isNumber() ||
        !(divisor.number >= 1e-12 && divisor.number <= 1e12)) // a scale is the inverse of its root
      errors.report("query_pre_attn_scalar", describe(divisor) + " is not a number from 1e-12 to 1e+12");
    else
      all.fields.push_back(
          {"scale", named(numberValue(1 / std::sqrt(divisor.number)), "query_pre_attn_scalar", divisor.line)});
    if (isGemma2())
      addSoftcap(all.fields, "softcap", "attn_logit_softcapping", numberValue(50.0));
  }
  Value local = all;
  if (family.localTheta > 0)
    turnByTypes(all, local, /*hasWindows=*/StringRef(pattern).contains('W'));
  const Value *window = config.find("sliding_window");
  if (family.name == "exaone4" && !(window && window->kind == Kind::null))
    for (Field &field : all.fields)
      if (field.name == "rope")
        field.value = Value();
  addWindow(local, pattern, 4096);
  mixers = object(usedBy(pattern, {{"W", std::move(local)}, {"N", std::move(all)}}));
}
