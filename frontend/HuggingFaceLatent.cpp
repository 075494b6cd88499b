//===- HuggingFaceLatent.cpp - configs of transformers whose models have latent attention -------------------------===//
// DeepSeek-V2, DeepSeek-V3, and Kimi Linear, most of whose layers have a delta rule.
#include "frontend/HuggingFaceTranslation.h"
#include "frontend/ModelSpec.h"
#include <algorithm>
#include <cmath>

using namespace braid;
using namespace braid::json;
using llvm::formatv;
using llvm::StringRef;

Value Translation::latentAttention() {
  Value heads = get("num_attention_heads", numberValue(family.heads)),
        own = get("qk_nope_head_dim", numberValue(int64_t(128))),
        shared = get("qk_rope_head_dim", numberValue(int64_t(64)));
  // transformers makes as many keys as there are heads, and fails where the config says another number.
  if (const Value *keys = takeOptional("num_key_value_heads"); keys && !isEqual(*keys, heads))
    errors.report("num_key_value_heads", describe(*keys) +
                                             " of latent attention is not computed; valid: num_attention_heads, " +
                                             describe(heads) + ", or null");
  for (StringRef key : {"head_dim", "qk_head_dim"}) // transformers computes them, whatever a config says
    (void)take(key);
  const Value none, usual = isKimi() || isBailing() ? none : numberValue(int64_t(1536)), *given = take("q_lora_rank");
  Value rank = named(given ? *given : usual, "q_lora_rank");
  compare({"q_lora_rank"}, rank, usual, /*null=*/&none);
  std::vector<Field> fields = {{"kind", stringValue("mla")},
                               {"heads", std::move(heads)},
                               {"kv_rank", get("kv_lora_rank", numberValue(int64_t(512)))},
                               {"head_dim", own},
                               {"rope_dim", shared},
                               {"value_dim", get("v_head_dim", numberValue(int64_t(128)))}};
  if (rank.kind == Kind::integer && rank.integer < 1)
    errors.report("q_lora_rank",
                  describe(rank) + " leaves queries nothing to be made of; valid: an integer above 0, or null");
  else if (rank.kind != Kind::null)
    fields.push_back({"q_rank", std::move(rank)});
  if (isKimi()) {
    fields.push_back({"rope", Value()});
    return object(std::move(fields));
  }
  if (isBailing()) {
    fields.push_back({"output_gate", stringValue("sigmoid")});
    fields.push_back({"output_gate_per", stringValue("head")});
  }
  Value turned = rope(shared), pairs = boolValue(true); // of neighbours, or of features half the width apart
  if (isDeepseekV3()) {
    const Value *said = take("rope_interleave"), halves = boolValue(false); // null is false
    if (said)
      pairs = said->kind == Kind::null ? halves : *said;
    compare({"rope_interleave"}, pairs, boolValue(true), &halves);
  }
  if (pairs.kind != Kind::boolean)
    errors.report("rope_interleave", describe(pairs) + " is not true or false");
  turned.fields.push_back(
      {"layout", named(stringValue(pairs.boolean ? "interleaved" : "half"), "rope_interleave", pairs.line)});
  // Scores grow with what yarn's frequencies lose, beside what turns.
  StringRef key = config.find("rope_scaling") && config.find("rope_scaling")->kind == Kind::object ? "rope_scaling"
                                                                                                   : "rope_parameters";
  const Value *scaling = turned.find("scaling"), *ofAll = scaling ? config.find(key)->find("mscale_all_dim") : nullptr,
              *factor = scaling ? scaling->find("factor") : nullptr;
  if (ofAll && ofAll->isNumber() && ofAll->number != 0 && factor && factor->isNumber() && integerIn(own, INT32_MAX) &&
      integerIn(shared, INT32_MAX)) {
    double mscale = RopeScaling::attentionFactorOf(factor->number, ofAll->number);
    double scale = mscale * mscale / std::sqrt(own.number + shared.number);
    std::string path = (key + ".mscale_all_dim").str();
    if (!(scale > 0 && scale <= 1e6))
      errors.report(path, formatv("{0} multiplies scores by {1}; valid: a number that does by at most 1e+06",
                                  describe(*ofAll), numberText(scale))
                              .str());
    fields.push_back({"scale", named(numberValue(std::clamp(scale, 1e-6, 1e6)), path, ofAll->line)});
  }
  fields.push_back({"rope", std::move(turned)});
  return object(std::move(fields));
}

/// What full_attn_layers and kda_layers say of each layer, which they count from 1; nothing without them.
std::string Translation::listedLayers(const Value &lists, const Value &layers) {
  static constexpr std::pair<StringRef, char> keys[] = {{"full_attn_layers", 'N'}, {"kda_layers", 'L'}};
  int64_t before = errors.number();
  if ((!lists.find(keys[0].first) && !lists.find(keys[1].first)) || !integerIn(layers, 1024))
    return "";
  std::string each(static_cast<size_t>(layers.integer), ' ');
  for (auto [key, letter] : keys) {
    std::string path = ("linear_attn_config." + key).str();
    const Value *numbers = lists.find(key);
    if (!numbers || numbers->kind != Kind::array) {
      errors.report(path, (numbers ? describe(*numbers) + " is not a list" : "is missing beside the other list") +
                              "; valid: numbers of layers, from 1");
      continue;
    }
    for (auto [i, item] : llvm::enumerate(numbers->items)) {
      std::string at = formatv("{0}[{1}]", path, i).str();
      if (!integerIn(item, static_cast<int64_t>(each.size())))
        errors.report(at, describe(item) + " is no layer; valid: 1 to num_hidden_layers " + describe(layers));
      else if (char &layer = each[static_cast<size_t>(item.integer - 1)]; layer != ' ')
        errors.report(at, formatv("layer {0} is named before; valid: every layer once", item.integer).str());
      else
        layer = letter;
    }
  }
  if (size_t missing = each.find(' '); missing != std::string::npos && errors.number() == before)
    errors.report(
        "linear_attn_config",
        formatv("layer {0} is neither in full_attn_layers nor in kda_layers; valid: every layer in one", missing + 1)
            .str());
  return errors.number() == before ? each : "";
}

/// Of Kimi Linear, and which layers have it.
Value Translation::kimiDelta(const Value &layers, std::string &pattern) {
  const Value *nested = takeOptional("linear_attn_config"), *types = takeOptional("layer_types");
  if (nested && nested->kind != Kind::object) {
    errors.report("linear_attn_config", describe(*nested) + " is not an object or null");
    nested = nullptr;
  }
  if (nested) {
    static constexpr StringRef valid[] = {"full_attn_layers", "kda_layers", "head_dim", "num_heads",
                                          "short_conv_kernel_size"};
    for (const Field &field : nested->fields)
      if (!llvm::is_contained(valid, field.name))
        errors.report("linear_attn_config." + field.name, "unknown key; valid: " + join(valid));
  }
  // That of the object goes before the other.
  auto nestedOr = [&](StringRef inside, StringRef key, int64_t usual) {
    std::string path = ("linear_attn_config." + inside).str();
    const Value *flat = take(key), *own = nested ? nested->find(inside) : nullptr, *given = own ? own : flat;
    Value value = given ? *given : numberValue(usual);
    compare({path, key.str()}, value, numberValue(usual));
    return named(std::move(value), own ? StringRef(path) : key);
  };
  Value heads = nestedOr("num_heads", "linear_num_heads", 32), width = nestedOr("head_dim", "linear_head_dim", 128),
        taps = nestedOr("short_conv_kernel_size", "linear_conv_kernel_dim", 4);
  std::string listed = nested ? listedLayers(*nested, layers) : "";
  if (types) {
    pattern = typesOf("layer_types", *types, layers, 'L');
    if (!listed.empty() && pattern != shortest(listed))
      errors.report("layer_types", "says other layers than the lists of linear_attn_config; valid: one of the two");
  } else if (!listed.empty()) {
    pattern = shortest(listed);
  } else {
    std::string each;
    for (int64_t layer = 0; integerIn(layers, 1024) && layer < layers.integer; ++layer)
      each += layer && layer % 4 == 0 ? 'N' : 'L';
    pattern = each.empty() ? "LN" : shortest(each);
  }
  return object({{"kind", stringValue("kda")},
                 {"heads", std::move(heads)},
                 {"head_dim", width},
                 {"conv", object({{"kernel", std::move(taps)}})},
                 {"gate_rank", width},
                 {"output_gate_rank", width},
                 {"norm_eps", get("rms_norm_eps", numberValue(family.eps))}});
}

/// The same of Ling: as many heads as attention has, decays of a whole projection, which may have a bound; latent
/// attention is the last of every so many layers.
Value Translation::bailingDelta(const Value &layers, std::string &pattern) {
  const Value *types = takeOptional("layer_types");
  pattern = attentionEvery("layer_group_size", takeOptional("layer_group_size"), 6, types, layers);
  // Under the second name transformers writes what it has read under the first.
  auto written = [&](StringRef key, StringRef later, const Value &usual) {
    const Value *given = take(key), *own = take(later);
    return named(own ? *own : given ? *given : usual, own ? later : key);
  };
  Value heads = written("num_attention_heads", "linear_num_heads", numberValue(family.heads)),
        width = written("head_dim", "linear_head_dim", numberValue(int64_t(128))),
        taps = written("short_conv_kernel_size", "linear_conv_kernel_dim", numberValue(int64_t(4)));
  Value bound = get("kda_lower_bound", numberValue(int64_t(-5)));
  bool isBounded = flag("kda_safe_gate", true);
  if (isBounded && !(bound.isNumber() && bound.number < 0))
    errors.report("kda_lower_bound", describe(bound) + " is not a number below 0");
  std::vector<Field> fields = {
      {"kind", stringValue("kda")},           {"heads", std::move(heads)},
      {"head_dim", std::move(width)},         {"conv", object({{"kernel", std::move(taps)}})},
      {"gate_rank", numberValue(int64_t(0))}, {"norm_eps", get("rms_norm_eps", numberValue(family.eps))}};
  if (isBounded)
    fields.push_back({"lower_bound", std::move(bound)});
  return object(std::move(fields));
}

/// L: the delta rule of Kimi Linear or Ling, N: latent attention.
void Translation::layersOfLatent(const Value &layers, Value &mixers, std::string &pattern) {
  pattern = "N";
  Value delta = isKimi() ? kimiDelta(layers, pattern) : isBailing() ? bailingDelta(layers, pattern) : Value();
  Value latent = latentAttention(); // its keys are known, used or not
  mixers = object(usedBy(pattern, {{"L", std::move(delta)}, {"N", std::move(latent)}}));
}

/// What mlp_layer_types says of each layer, if anything: D or M. `pattern`: what first_k_dense_replace does.
void Translation::sparseLayers(const Value &layers, std::string &pattern) {
  constexpr StringRef key = "mlp_layer_types";
  if (const Value *types = takeOptional(key)) {
    if (types->kind != Kind::array)
      return errors.report(key, describe(*types) + " is not a list or null");
    std::string each;
    for (auto [i, type] : llvm::enumerate(types->items)) {
      bool isDense = isEqual(type, stringValue("dense"));
      if (!isDense && !isEqual(type, stringValue("sparse")))
        errors.report(formatv("{0}[{1}]", key, i).str(),
                      describe(type) + " is not computed; valid: \"dense\", \"sparse\"");
      each += isDense ? 'D' : 'M';
    }
    if (!integerIn(layers, 1024) || each.size() != static_cast<size_t>(layers.integer))
      return errors.report(
          key, formatv("has {0} layers; valid: num_hidden_layers, {1}", each.size(), describe(layers)).str());
    // Of Ling transformers writes both, and reads the list.
    if (isKimi() && config.find("first_k_dense_replace") && each != pattern)
      errors.report(key, "says other layers than first_k_dense_replace; valid: one of the two");
    pattern = each;
  }
  auto listOf = [](StringRef pattern) {
    std::vector<Value> types;
    for (char letter : pattern)
      types.push_back(stringValue(letter == 'D' ? "dense" : "sparse"));
    return arrayValue(std::move(types));
  };
  // A config beside weights may say it in either way.
  size_t dense = std::min(pattern.find('M'), pattern.size()), usual = static_cast<size_t>(family.denseLayers);
  std::vector<Value> same;
  if (pattern.find('D', dense) == std::string::npos)
    same.push_back(numberValue(static_cast<int64_t>(dense)));
  std::string absent(pattern.size(), 'M');
  absent.replace(0, std::min(usual, absent.size()), std::min(usual, absent.size()), 'D');
  compare({key.str(), "first_k_dense_replace"}, listOf(pattern), listOf(absent), /*null=*/nullptr, same);
}

/// The router of DeepSeek-V2: the largest scores, with group_limited_greedy of the groups whose largest score is large.
std::vector<Field> Translation::greedyExperts() {
  Value method = get("topk_method", stringValue("greedy")), topK = get("num_experts_per_tok", Value());
  if (topK.kind == Kind::null)
    errors.report("num_experts_per_tok",
                  "is missing, without which transformers chooses none; valid: an integer above 0");
  const Value *normalize = takeOptional("norm_topk_prob");
  if (normalize && !isEqual(*normalize, boolValue(false)))
    errors.report("norm_topk_prob", describe(*normalize) + " of " + configOf(family.name) +
                                        " is not computed: transformers does not read it, and never divides weights "
                                        "of experts by their sum, as the code published with the models then does; "
                                        "valid: false, null");
  compare({"norm_topk_prob"}, boolValue(false), boolValue(false));
  std::vector<Field> router = {{"score", stringValue("softmax")},
                               {"scale", get("routed_scaling_factor", numberValue(family.expertScale))}};
  if (isEqual(method, stringValue("group_limited_greedy"))) {
    Value groups = get("n_group", Value()), kept = get("topk_group", Value());
    for (auto [key, value] : {std::pair<StringRef, const Value *>{"n_group", &groups}, {"topk_group", &kept}})
      if (value->kind == Kind::null)
        errors.report(key, "is missing, which topk_method \"group_limited_greedy\" needs; valid: an integer above 0");
    expertGroups(router, std::move(groups), std::move(kept), "max");
  } else {
    if (!isEqual(method, stringValue("greedy")))
      errors.report("topk_method", describe(method) + " is not computed; valid: \"greedy\", \"group_limited_greedy\"");
    for (StringRef key : {"n_group", "topk_group"}) // not read
      (void)take(key);
  }
  Value experts = either("n_routed_experts", "num_experts", numberValue(family.experts)),
        width = get("moe_intermediate_size", numberValue(family.expertHidden));
  Value shared = sharedExperts("n_shared_experts", get("n_shared_experts", numberValue(family.sharedHidden)), width);
  std::vector<Field> fields =
      moe(std::move(experts), std::move(topK), std::move(width), boolValue(false), std::move(router));
  fields.push_back({"shared_hidden", std::move(shared)});
  return fields;
}

void Translation::fixedKeysOfLatent() {
  // Losses that transformers does not add, ranks of experts, and heads for further tokens.
  for (StringRef key : {"aux_loss_alpha", "seq_aux", "router_aux_loss_coef", "output_router_logits", "ep_size",
                        "num_nextn_predict_layers", "num_mtp_layers", "mtp_loss_scaling_factor"})
    (void)take(key);
  only("moe_layer_freq", numberValue(int64_t(1)));
  only("scoring_func", stringValue(family.corrects ? "sigmoid" : "softmax"));
  if (isDeepseekV3() || isBailing())
    only("topk_method", stringValue("noaux_tc"), /*nullable=*/true);
  if (isBailing()) // never tied
    only("tie_word_embeddings", boolValue(false));
  if (!isKimi())
    return;
  for (StringRef key : {"rope_theta", "rope_parameters", "rope_scaling"}) // nothing turns
    (void)take(key);
  for (StringRef key : {"mla_use_nope", "use_grouped_topk"})
    only(key, boolValue(true));
  only("moe_router_activation_func", stringValue("sigmoid"));
  only("tie_word_embeddings", boolValue(false));
}
