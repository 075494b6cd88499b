//===- HuggingFaceFalcon.cpp - configs of transformers: attention and Mamba-2 side by side, with multipliers ------===//
// Multipliers are keys of the description, as the config has them, but for key_multiplier: q (m k)^T is m times a score.
#include "frontend/HuggingFaceTranslation.h"
#include <cmath>

using namespace braid;
using namespace braid::json;
using llvm::StringRef;

/// A list of so many numbers, one by one under their places in it; null: ones.
std::vector<Value> Translation::multipliers(StringRef key, size_t count) {
  std::vector<Value> factors(count, named(numberValue(1.0), key)), items;
  const Value *given = takeOptional(key);
  if (given && (given->kind != Kind::array || given->items.size() != count))
    errors.report(key, (given->kind == Kind::array ? "has " + std::to_string(given->items.size()) + " numbers"
                                                   : describe(*given) + " is no list") +
                           "; valid: " + std::to_string(count) + " numbers, or null");
  else if (given)
    for (auto [i, item] : llvm::enumerate(given->items))
      factors[i] = named(item, llvm::formatv("{0}[{1}]", key, i).str());
  for (const Value &factor : factors) {
    items.push_back(factor);
    items.back().origin.clear();
  }
  const Value ones = arrayValue(std::vector<Value>(count, numberValue(1.0)));
  compare({key.str()}, arrayValue(std::move(items)), ones, /*null=*/&ones);
  return factors;
}

/// Steps lie between the two numbers of time_step_limit, of which the second may be infinite.
void Translation::stepBounds(std::vector<Field> &fields) {
  StringRef key = "time_step_limit";
  auto isInfinite = [](const Value &v) {
    const Value *tagged = v.kind == Kind::object ? v.find("__float__") : &v;
    return tagged && isEqual(*tagged, stringValue("Infinity"));
  };
  const Value *given = take(key);
  Value low = numberValue(int64_t(0)), high = stringValue("Infinity");
  const Value none = arrayValue({low, high});
  if (given && (given->kind != Kind::array || given->items.size() != 2 || !given->items[0].isNumber() ||
                !(given->items[1].isNumber() || isInfinite(given->items[1]))))
    return errors.report(key,
                         describe(*given) + " is not a list of two numbers; valid: [0.0, Infinity], or such bounds");
  if (given) {
    low = given->items[0];
    high = isInfinite(given->items[1]) ? high : given->items[1];
  }
  compare({key.str()}, arrayValue({low, high}), none);
  if (low.number != 0)
    fields.push_back({"min_step", named(low, "time_step_limit[0]")});
  if (high.isNumber())
    fields.push_back({"max_step", named(high, "time_step_limit[1]")});
}

Value Translation::mambaOfFalcon() {
  Value expand = get("mamba_expand", numberValue(int64_t(2))), heads = get("mamba_n_heads", numberValue(int64_t(128))),
        width = get("mamba_d_head", stringValue("auto")), own = get("mamba_d_ssm", numberValue(int64_t(1024)));
  if (own.kind == Kind::null) {
    if (!integerIn(expand, 1 << 10))
      errors.report("mamba_expand", describe(expand) + " is not an integer from 1 to 1024");
    bool isSized = integerIn(expand, 1 << 10) && integerIn(hidden, INT32_MAX);
    own = named(numberValue(isSized ? expand.integer * hidden.integer : 1), "mamba_expand * hidden_size", expand.line);
  }
  bool isSized = integerIn(own, INT32_MAX) && integerIn(heads, INT32_MAX);
  if (!integerIn(own, INT32_MAX))
    errors.report("mamba_d_ssm", describe(own) + " is not an integer above 0 or null");
  if (isEqual(width, stringValue("auto"))) {
    if (isSized && own.integer % heads.integer)
      errors.report(
          "mamba_n_heads",
          llvm::formatv("{0} does not divide {1} {2}; valid: a divisor", heads.integer, own.origin, own.integer).str());
    width =
        named(numberValue(isSized ? std::max<int64_t>(1, own.integer / heads.integer) : 1), "mamba_d_head", heads.line);
  } else if (isSized && integerIn(width, INT32_MAX) && heads.integer * width.integer != own.integer) {
    errors.report("mamba_d_head", llvm::formatv("{0} times mamba_n_heads {1} is not {2} {3}; valid: numbers with equal "
                                                "products",
                                                width.integer, heads.integer, own.origin, own.integer)
                                      .str());
  }
  std::vector<Value> ofSegments = multipliers("ssm_multipliers", 5); // z, x, B, C, dt
  static constexpr StringRef segments[] = {"g", "v", "k", "q", "dt"};
  std::vector<Field> factors;
  for (auto [name, factor] : llvm::zip_equal(segments, ofSegments))
    factors.push_back({name.str(), std::move(factor)});
  Value isNormed = get("mamba_rms_norm", boolValue(false));
  std::vector<Field> fields = {{"kind", stringValue("mamba2")},
                               {"heads", std::move(heads)},
                               {"key_heads", get("mamba_n_groups", numberValue(int64_t(1)))},
                               {"head_dim", get("mamba_d_state", numberValue(int64_t(256)))},
                               {"value_dim", std::move(width)},
                               {"conv", object({{"kernel", get("mamba_d_conv", numberValue(int64_t(4)))},
                                                {"bias", get("mamba_conv_bias", boolValue(true))}})},
                               {"projection_bias", get("mamba_proj_bias", boolValue(false))},
                               {"output_bias", get("projectors_bias", boolValue(false))},
                               {"projection_multipliers", object(std::move(factors))},
                               {"input_multiplier", get("ssm_in_multiplier", numberValue(1.0))},
                               {"residual", object({{"beta", get("ssm_out_multiplier", numberValue(1.0))}})},
                               {"output_norm", isNormed}};
  if (isNormed.boolean) {
    fields.push_back({"norm_first", get("mamba_norm_before_gate", boolValue(true))});
    fields.push_back({"norm_eps", get("rms_norm_eps", numberValue(family.eps))});
  } else {
    (void)take("mamba_norm_before_gate"); // of no norm
  }
  stepBounds(fields);
  return object(std::move(fields));
}

void Translation::layersOfFalcon(Value &mixers, std::string &pattern) {
  Value attentions = attention(), key = get("key_multiplier", numberValue(1.0)), bias;
  const Value *width = attentions.find("head_dim");
  attentions.fields.push_back({"input_multiplier", get("attention_in_multiplier", numberValue(1.0))});
  attentions.fields.push_back({"residual", object({{"beta", get("attention_out_multiplier", numberValue(1.0))}})});
  bias = get("attention_bias", boolValue(false));
  attentions.fields.push_back({"qkv_bias", bias});
  attentions.fields.push_back({"output_bias", std::move(bias)});
  if (!key.isNumber() || !(key.number > 0 && key.number <= 1e6))
    errors.report("key_multiplier", describe(key) + " is out of range; valid: above 0 to 1e6");
  else if (width->isNumber() && width->number > 0)
    attentions.fields.push_back(
        {"scale", named(numberValue(key.number / std::sqrt(width->number)), "key_multiplier", key.line)});
  pattern = "(NM)";
  mixers = object({{"N", std::move(attentions)}, {"M", mambaOfFalcon()}});
}

Value Translation::feedForwardOfFalcon(std::string &pattern) {
  std::vector<Value> factors = multipliers("mlp_multipliers", 2);
  pattern = "D";
  return object({{"D", object({{"kind", stringValue("dense")},
                               {"hidden", get("intermediate_size", numberValue(family.intermediateSize))},
                               {"bias", get("mlp_bias", boolValue(false))},
                               {"gate_multiplier", std::move(factors[0])},
                               {"residual", object({{"beta", std::move(factors[1])}})}})}});
}

void Translation::fixedKeysOfFalcon() {
  // How it is computed, how many logits a prompt gives, and what transformers does not read.
  for (StringRef key : {"mamba_chunk_size", "use_mamba_kernels", "num_logits_to_keep", "mamba_use_mlp",
                        "mlp_expansion_factor", "attn_layer_indices"})
    (void)take(key);
}

void Translation::multipliersOfFalcon(std::vector<Field> &fields) {
  fields.push_back({"embedding_multiplier", get("embedding_multiplier", numberValue(1.0))});
  fields.push_back({"logits_multiplier", get("lm_head_multiplier", numberValue(1.0))});
}
