//===- HuggingFaceMamba.cpp - configs of transformers whose models have Mamba or Mamba-2 mixers -------------------===//
#include "frontend/HuggingFaceTranslation.h"

using namespace braid;
using namespace braid::json;
using llvm::StringRef;

/// A Mamba-2 mixer, or a Mamba mixer whose channels are one head.
Value Translation::mamba() {
  bool first = isMamba(), isFalconMamba = first && family.name != "mamba", hybrid = family.name == "nemotron_h";
  auto key = [&](StringRef own, StringRef ofHybrid) { return hybrid ? ofHybrid : own; };
  Value states = get(key("state_size", "ssm_state_size"), numberValue(int64_t(first ? 16 : 128)));
  // Names that transformers took for nemotron_h before.
  auto renamed = [&](StringRef name, StringRef before, Value otherwise) {
    return hybrid ? either(name, before, std::move(otherwise)) : get(name, std::move(otherwise));
  };
  Value expand = renamed("expand", "mamba_expand", numberValue(int64_t(2)));
  int64_t inner = integerIn(expand, 1 << 10) && integerIn(hidden, INT32_MAX) ? expand.integer * hidden.integer : 0;
  if (!integerIn(expand, 1 << 10) && !hybrid)
    errors.report("expand", describe(expand) + " is not an integer from 1 to 1024");
  if (isFalconMamba) { // goes before expand, which published configs have otherwise
    Value given = get("intermediate_size", numberValue(inner), /*nullable=*/true);
    if (!integerIn(given, INT32_MAX))
      errors.report("intermediate_size", describe(given) + " is not an integer above 0");
    inner = integerIn(given, INT32_MAX) ? given.integer : 0;
  }
  if (!hybrid && !isFalconMamba)
    if (Value given = get("intermediate_size", numberValue(inner)); inner && !isEqual(given, numberValue(inner)))
      errors.report(
          "intermediate_size",
          llvm::formatv("{0} is not expand times hidden_size, {1}; valid: that", describe(given), inner).str());
  std::vector<Field> fields = {{"kind", stringValue("mamba2")}};
  if (first) {
    const Value *width = isFalconMamba ? takeOptional("intermediate_size") : nullptr;
    fields = mambaChannels(std::move(states), "time_step_rank",
                           named(numberValue(std::max<int64_t>(1, inner)),
                                 width ? "intermediate_size" : "expand * hidden_size", (width ? *width : hidden).line));
    if (isFalconMamba) {
      fields.push_back({"bcdt_norm", boolValue(true)});
      fields.push_back({"bcdt_norm_weights", boolValue(false)});
      fields.push_back({"norm_eps", get("mixer_rms_eps", numberValue(1e-6))});
    }
  } else {
    Value heads = get(key("num_heads", "mamba_num_heads"), numberValue(int64_t(128)));
    Value width = get(key("head_dim", "mamba_head_dim"), numberValue(int64_t(64)));
    if (!hybrid && inner && integerIn(heads, INT32_MAX) && integerIn(width, INT32_MAX) &&
        heads.integer * width.integer != inner)
      errors.report("num_heads", llvm::formatv("{0} times head_dim {1} is not expand {2} times hidden_size {3}; valid: "
                                               "numbers with equal products",
                                               heads.integer, width.integer, expand.integer, hidden.integer)
                                     .str());
    fields.push_back({"heads", std::move(heads)});
    fields.push_back({"key_heads", renamed("n_groups", "mamba_n_groups", numberValue(int64_t(8)))});
    fields.push_back({"head_dim", std::move(states)});
    fields.push_back({"value_dim", std::move(width)});
    fields.push_back({"norm_eps", get("layer_norm_epsilon", numberValue(family.eps))});
  }
  fields.push_back({"conv", object({{"kernel", renamed("conv_kernel", "mamba_d_conv", numberValue(int64_t(4)))},
                                    {"bias", renamed("use_conv_bias", "mamba_conv_bias", boolValue(true))}})});
  fields.push_back({"step_range", stepRange(renamed("time_step_min", "mamba_dt_min", numberValue(0.001)),
                                            renamed("time_step_max", "mamba_dt_max", numberValue(0.1)))});
  return object(std::move(fields));
}

/// Initial steps from `low` to `high`, which have keys of their own.
Value Translation::stepRange(Value low, Value high) {
  for (Value *bound : {&low, &high})
    if (!bound->isNumber() || !(bound->number > 0)) {
      errors.report(StringRef(bound->origin).drop_front(prefix.size()), describe(*bound) + " is not a number above 0");
      return named(arrayValue({numberValue(0.001), numberValue(0.1)}), "time_step_min");
    }
  return named(arrayValue({std::move(low), std::move(high)}), "time_step_min");
}

/// A Mamba mixer whose channels, `width` of them, are one head.
std::vector<Field> Translation::mambaChannels(Value states, StringRef rankKey, Value width) {
  Value rank = get(rankKey, stringValue("auto"));
  if (isEqual(rank, stringValue("auto")))
    rank = named(numberValue(integerIn(hidden, INT32_MAX) ? (hidden.integer + 15) / 16 : 1), rankKey);
  return {{"kind", stringValue("mamba")},
          {"heads", numberValue(int64_t(1))},
          {"head_dim", std::move(states)},
          {"value_dim", std::move(width)},
          {"gate_rank", std::move(rank)}};
}

/// The letters of hybrid_override_pattern; `layers` becomes their number.
std::string Translation::blocks(Value &layers) {
  const Value *types = takeOptional("layers_block_type"), *letters = takeOptional("hybrid_override_pattern");
  if (!types && !letters) {
    errors.report("layers_block_type",
                  "is missing, without which transformers takes layers with experts; valid: a list, "
                  "or hybrid_override_pattern");
    return "";
  }
  auto read = [&](StringRef key, const Value &given) {
    std::string each;
    auto add = [&](const std::string &path, const Value &type, bool isLetter) {
      for (auto [letter, name, older] : blockTypes)
        if (type.kind == Kind::string &&
            (isLetter ? type.string[0] == letter : type.string == name || type.string == older)) {
          each += letter;
          return;
        }
      errors.report(path, describe(type) + " is not computed; valid: " +
                              (isLetter ? "M, *, -, E" : "\"linear_attention\", \"full_attention\", \"mlp\", \"moe\""));
      each += ' ';
    };
    bool isList = key == "layers_block_type";
    if (given.kind != (isList ? Kind::array : Kind::string)) {
      errors.report(key, describe(given) + " is not a " + (isList ? "list" : "string"));
      return each;
    }
    for (const char &letter : given.string)
      add(key.str(), stringValue(StringRef(&letter, 1)), true);
    for (auto [i, type] : llvm::enumerate(given.items))
      add(llvm::formatv("{0}[{1}]", key, i).str(), type, false);
    if (each.empty())
      errors.report(key, describe(given) + " names no layer; valid: what each layer is");
    return each;
  };
  StringRef key = types ? "layers_block_type" : "hybrid_override_pattern";
  std::string each = read(key, types ? *types : *letters);
  if (types && letters && letters->kind == Kind::string && letters->string != each)
    errors.report("hybrid_override_pattern",
                  describe(*letters) + " is not layers_block_type \"" + each + "\"; valid: one of the two keys");
  Value count = named(numberValue(static_cast<int64_t>(each.size())), key);
  if (const Value *given = takeOptional("num_hidden_layers"); given && !isEqual(*given, count))
    errors.report("num_hidden_layers", describe(*given) + " is not the number of layers in " + key.str() + ", " +
                                           describe(count) + "; valid: that");
  layers = std::move(count);
  return each;
}

/// M: Mamba or Mamba-2, N: attention, D: a feed-forward, E: experts.
void Translation::layersOfOnePart(Value &layers, Value &mixers, Value &ffns, std::string &mixerPattern,
                                  std::string &ffnPattern) {
  bool hybrid = family.name == "nemotron_h";
  std::string each = hybrid ? blocks(layers) : "M";
  for (char block : each) {
    mixerPattern += block == 'M' ? 'M' : block == '*' ? 'N' : '-';
    ffnPattern += block == '-' ? 'D' : block == 'E' ? 'E' : '-';
  }
  std::vector<Field> mixing = {{"M", mamba()}}, feeding; // keys of parts are known, used or not
  if (hybrid) {
    mixing.push_back({"N", attention()});
    feeding.push_back({"D", object({{"kind", stringValue("dense")},
                                    {"hidden", get("intermediate_size", numberValue(family.intermediateSize))},
                                    {"activation", stringValue("relu2")}})});
    if (StringRef(ffnPattern).contains('E'))
      feeding.push_back({"E", object(correctedExperts())});
  }
  mixers = object(usedBy(mixerPattern, std::move(mixing)));
  ffns = object(usedBy(ffnPattern, std::move(feeding)));
  mixerPattern = shortest(mixerPattern);
  ffnPattern = shortest(ffnPattern);
}

void Translation::fixedKeysOfOnePart() {
  for (StringRef key : silentOfOnePart)
    (void)take(key);
  only("use_bias", boolValue(false));
  only("rms_norm", boolValue(true));
  only("rms_norm_eps", get("layer_norm_epsilon", numberValue(family.eps)));
  if (family.name == "nemotron_h") {
    only("norm_eps", get("layer_norm_epsilon", numberValue(family.eps)));
    for (StringRef key : {"mamba_chunk_size", "mamba_dt_init_floor"}) // as chunk_size, time_step_floor
      (void)take(key);
    for (StringRef key :
         {"attention_bias", "mlp_bias", "mamba_proj_bias", "output_router_logits", "tie_word_embeddings"})
      only(key, boolValue(false));
    only("mamba_hidden_act", stringValue("silu"));
    only("mlp_hidden_act", stringValue("relu2"));
    only("sliding_window", Value());
    only("attention_head_dim", get("head_dim", numberValue(family.headDim)));
    for (StringRef key : {"attention_dropout", "hidden_dropout"})
      only(key, numberValue(int64_t(0)), /*nullable=*/true);
  } else {
    only("hidden_act", stringValue("silu"), /*nullable=*/false, /*same=*/{stringValue("swish")});
  }
  if (!isMamba())
    (void)take("time_step_rank"); // Mamba's
  stepLimit();
  quantization();
}

void Translation::stepLimit() {
  // Steps as they are: from 0 to infinity, which transformers writes as an object, older versions as a bare word.
  const Value *limit = takeOptional("time_step_limit");
  const Value none = arrayValue({numberValue(int64_t(0)), stringValue("Infinity")});
  compare({"time_step_limit"}, none, none);
  auto isInfinite = [](const Value &v) {
    const Value *tagged = v.kind == Kind::object ? v.find("__float__") : &v;
    return tagged && isEqual(*tagged, stringValue("Infinity"));
  };
  if (limit && !(limit->kind == Kind::array && limit->items.size() == 2 &&
                 isEqual(limit->items[0], numberValue(int64_t(0))) && isInfinite(limit->items[1])))
    errors.report("time_step_limit", describe(*limit) + " bounds steps, which is not computed; valid: [0.0, Infinity]");
}

/// The Mamba-2 mixer of families that have attention in some layers, and a feed-forward in all.
Value Translation::mambaOfHybrid() {
  Value expand = get("mamba_expand", numberValue(int64_t(2))), heads = get("mamba_n_heads", numberValue(int64_t(128))),
        width = get("mamba_d_head", stringValue("auto"));
  bool isSized = integerIn(expand, 1 << 10) && integerIn(hidden, INT32_MAX) && integerIn(heads, INT32_MAX);
  int64_t inner = isSized ? expand.integer * hidden.integer : 0;
  if (!integerIn(expand, 1 << 10))
    errors.report("mamba_expand", describe(expand) + " is not an integer from 1 to 1024");
  if (isEqual(width, stringValue("auto"))) {
    if (isSized && inner % heads.integer)
      errors.report("mamba_n_heads",
                    llvm::formatv("{0} does not divide mamba_expand {1} times hidden_size {2}; valid: a divisor",
                                  heads.integer, expand.integer, hidden.integer)
                        .str());
    width = named(numberValue(isSized ? std::max<int64_t>(1, inner / heads.integer) : 1), "mamba_d_head", heads.line);
  } else if (isSized && integerIn(width, INT32_MAX) && heads.integer * width.integer != inner) {
    errors.report("mamba_d_head",
                  llvm::formatv("{0} times mamba_n_heads {1} is not mamba_expand {2} times hidden_size {3}; valid: "
                                "numbers with equal products",
                                width.integer, heads.integer, expand.integer, hidden.integer)
                      .str());
  }
  return object({{"kind", stringValue("mamba2")},
                 {"heads", std::move(heads)},
                 {"key_heads", get("mamba_n_groups", numberValue(int64_t(1)))},
                 {"head_dim", get("mamba_d_state", numberValue(int64_t(256)))},
                 {"value_dim", std::move(width)},
                 {"norm_eps", get("rms_norm_eps", numberValue(family.eps))},
                 {"conv", object({{"kernel", get("mamba_d_conv", numberValue(int64_t(4)))},
                                  {"bias", get("mamba_conv_bias", boolValue(true))}})}});
}

/// A Mamba mixer whose steps, keys and queries are normed.
Value Translation::mambaOfJamba() {
  Value expand = get("mamba_expand", numberValue(int64_t(2)));
  bool isSized = integerIn(expand, 1 << 10) && integerIn(hidden, INT32_MAX);
  if (!integerIn(expand, 1 << 10))
    errors.report("mamba_expand", describe(expand) + " is not an integer from 1 to 1024");
  Value width =
      named(numberValue(isSized ? expand.integer * hidden.integer : 1), "mamba_expand * hidden_size", hidden.line);
  std::vector<Field> fields =
      mambaChannels(get("mamba_d_state", numberValue(int64_t(16))), "mamba_dt_rank", std::move(width));
  fields.push_back({"bcdt_norm", boolValue(true)});
  fields.push_back({"norm_eps", get("rms_norm_eps", numberValue(family.eps))});
  fields.push_back({"conv", object({{"kernel", get("mamba_d_conv", numberValue(int64_t(4)))},
                                    {"bias", get("mamba_conv_bias", boolValue(true))}})});
  return object(std::move(fields));
}

/// A letter for each layer: `one` for those whose numbers leave the offset when divided by the period.
std::string Translation::everySoMany(StringRef period, StringRef offset, int64_t usualPeriod, int64_t usualOffset,
                                     const Value &layers, char one, char other) {
  Value every = get(period, numberValue(usualPeriod)), from = get(offset, numberValue(usualOffset));
  std::string pattern;
  if (!integerIn(every, INT32_MAX))
    errors.report(period, describe(every) + " is not an integer above 0");
  else if (from.kind != Kind::integer || from.integer < 0 || from.integer >= every.integer)
    errors.report(from.origin, llvm::formatv("{0} is no number of a layer among {1} {2}; valid: 0 to {3}",
                                             describe(from), period, every.integer, every.integer - 1)
                                   .str());
  else if (integerIn(layers, 1024))
    for (int64_t layer = 0; layer < layers.integer; ++layer)
      pattern += layer % every.integer == from.integer ? one : other;
  return pattern.empty() ? std::string{one, other} : pattern;
}

/// M: Mamba-2, of jamba Mamba, N: attention.
void Translation::layersOfMamba(const Value &layers, Value &mixers, std::string &pattern) {
  pattern = "M";
  bool isJamba = family.name == "jamba";
  if (isJamba) {
    pattern = shortest(everySoMany("attn_layer_period", "attn_layer_offset", 8, 4, layers, 'N', 'M'));
  } else if (family.isGranite) {
    const Value *types = takeOptional("layer_types"), *same = takeOptional("layers_block_type");
    if (types && same)
      errors.report("layers_block_type", "stands beside layer_types; valid: one of the two keys");
    StringRef key = types ? "layer_types" : "layers_block_type";
    if (const Value *given = types ? types : same)
      pattern = typesOf(key, *given, layers, 'M');
  } else if (std::vector<int64_t> attending = layersIn("attn_layer_indices", layers);
             !attending.empty() && integerIn(layers, 1024)) {
    pattern.assign(static_cast<size_t>(layers.integer), 'M');
    for (int64_t layer : attending)
      pattern[static_cast<size_t>(layer)] = 'N';
    pattern = shortest(pattern);
  }
  Value scan = isJamba ? mambaOfJamba() : mambaOfHybrid(),
        attentions = attention(); // their keys are known, used or not
  mixers = object(usedBy(pattern, {{"M", std::move(scan)}, {"N", std::move(attentions)}}));
}

void Translation::fixedKeysOfMamba() {
  for (StringRef key : {"mamba_chunk_size", "use_mamba_kernels"}) // how it is computed, not what
    (void)take(key);
  only("mamba_proj_bias", boolValue(false));
  if (family.name == "jamba") {
    for (StringRef key : {"num_logits_to_keep", "use_mambapy", "use_associative_scan", "n_ctx",
                          "calc_logits_for_entire_prompt"}) // the last two transformers does not read
      (void)take(key);
    only("mamba_inner_layernorms", boolValue(true));
    return only("sliding_window", Value());
  }
  stepLimit();
  if (family.isGranite) {
    (void)take("init_method"); // neither is read
    (void)take("normalization_function");
  } else {
    (void)take("num_logits_to_keep");
    (void)take("attn_rotary_emb"); // half of a head turns, whatever it says
    only("partial_rotary_factor", numberValue(family.turns)); // nor does the config's own; that of rope_parameters does
    only("z_loss_coefficient", numberValue(int64_t(0)));
  }
}

/// Experts that a token chooses and, beside Mamba-2, one that every token sees, or that one alone.
Value Translation::graniteFeedForward(std::string &pattern) {
  Value shared = family.hasMamba ? get("shared_intermediate_size", numberValue(int64_t(1024))) : Value();
  Value experts = get("num_local_experts", numberValue(family.experts)),
        topK = get("num_experts_per_tok", numberValue(family.topK)),
        width = get("intermediate_size", numberValue(family.intermediateSize));
  balanceLoss();
  if (family.hasMamba && experts.kind == Kind::integer && experts.integer == 0) {
    pattern = "D";
    return object({{"D", object({{"kind", stringValue("dense")}, {"hidden", std::move(shared)}})}});
  }
  pattern = "M";
  if (shared.isNumber() && shared.number == 0)
    errors.report("shared_intermediate_size", "0 leaves tensors without a number; valid: an integer above 0");
  std::vector<Field> fields = moe(std::move(experts), std::move(topK), std::move(width), alwaysNormalizes());
  if (family.hasMamba)
    fields.push_back({"shared_hidden", std::move(shared)});
  return object({{"M", object(std::move(fields))}});
}

void Translation::graniteMultipliers(std::vector<Field> &fields) {
  fields.push_back({"embedding_multiplier", get("embedding_multiplier", numberValue(1.0))});
  Value divisor = get("logits_scaling", numberValue(1.0));
  if (!divisor.isNumber() || !(divisor.number >= 1e-6 && divisor.number <= 1e6))
    errors.report("logits_scaling", describe(divisor) + " is not a number from 1e-06 to 1e+06");
  else
    fields.push_back({"logits_multiplier", named(numberValue(1 / divisor.number), "logits_scaling", divisor.line)});
  fields.push_back({"residual", object({{"beta", get("residual_multiplier", numberValue(1.0))}})});
}
