//===- HuggingFaceRwkv.cpp - configs of RWKV-6 and RWKV-7, as flash-linear-attention has them --------------------===//
#include "frontend/HuggingFaceTranslation.h"
#include <cmath>

using namespace braid;
using namespace braid::json;
using llvm::StringRef;

/// Values of a head: of all heads hidden_size features, a number for all layers, or a list of equal ones. `before`: errors
/// in front of those of the heads.
Value Translation::valuesOfRwkv(const Value &layers, const Value &heads, int64_t before) {
  const Value *given = takeOptional("value_dim");
  Value all = named(given ? *given : hidden, given ? "value_dim" : "hidden_size", hidden.line);
  if (all.kind == Kind::array) {
    if (integerIn(layers, 1024) && all.items.size() != static_cast<size_t>(layers.integer))
      errors.report(
          "value_dim",
          llvm::formatv("has {0} layers; valid: num_hidden_layers, {1}", all.items.size(), layers.integer).str());
    for (auto [i, each] : llvm::enumerate(all.items))
      if (!integerIn(each, INT32_MAX))
        errors.report(llvm::formatv("value_dim[{0}]", i).str(), describe(each) + " is not an integer above 0");
      else if (integerIn(all.items[0], INT32_MAX) && !isEqual(each, all.items[0]))
        errors.report(llvm::formatv("value_dim[{0}]", i).str(),
                      describe(each) + " is not that of the first layer, " + describe(all.items[0]) +
                          ", with whose values this one mixes its own; valid: equal ones");
    all = named(all.items.empty() ? hidden : all.items[0], "value_dim", all.line);
  }
  if (!integerIn(all, INT32_MAX) || !integerIn(heads, INT32_MAX))
    return all;
  bool known = errors.number() == before; // else heads have been reported
  if (known && all.integer % heads.integer)
    errors.report("value_dim", llvm::formatv("{0} of {1} heads is no whole number; valid: a multiple of the heads",
                                             all.integer, heads.integer)
                                   .str());
  return named(numberValue(std::max<int64_t>(1, all.integer / heads.integer)), all.origin + " of a head", all.line);
}

/// A rank. Null: `factor` sqrt(hidden_size), a multiple of 32.
Value Translation::rankOfRwkv(StringRef key, int64_t usual, double factor) {
  constexpr double step = 32;
  const Value *given = take(key);
  if (!given || given->kind != Kind::null || !integerIn(hidden, INT32_MAX))
    return named(given ? *given : numberValue(usual), key);
  double steps = std::nearbyint(factor * std::sqrt(static_cast<double>(hidden.integer)) / step); // half to even
  return named(numberValue(static_cast<int64_t>(step * std::max(1.0, steps))), key);
}

/// F: the first layer, with whose values the others (L) mix their own.
void Translation::layersOfRwkv(const Value &layers, Value &mixers, std::string &pattern) {
  int64_t before = errors.number();
  auto [width, heads] = headsByWidth("head_dim");
  Value values = valuesOfRwkv(layers, heads, before), eps = get("norm_eps", numberValue(family.eps));
  double wide = integerIn(width, INT32_MAX) ? static_cast<double>(width.integer) / 64 : 1.0;
  if (eps.isNumber() && integerIn(width, INT32_MAX))
    eps = named(numberValue(eps.number * static_cast<double>(width.integer)), "norm_eps * head_dim", eps.line);
  // Which kernel divides says what is added to a length.
  Value l2Eps = named(numberValue(flag("fuse_norm", true) ? 1e-6 : 1e-24), "fuse_norm");
  std::vector<Field> fields = {{"kind", stringValue("rwkv7")},
                               {"heads", std::move(heads)},
                               {"head_dim", std::move(width)},
                               {"value_dim", std::move(values)},
                               {"gate_rank", rankOfRwkv("decay_low_rank_dim", 64, 2.5 * wide)},
                               {"rate_rank", rankOfRwkv("a_low_rank_dim", 64, 2.5 * wide)},
                               {"output_gate_rank", rankOfRwkv("gate_low_rank_dim", 128, 5)},
                               {"l2_eps", std::move(l2Eps)},
                               {"norm_eps", std::move(eps)}};
  std::vector<Field> first = fields;
  first.push_back({"value_mix", boolValue(false)});
  fields.push_back({"value_rank", rankOfRwkv("v_low_rank_dim", 16, 1.7 * wide)});
  pattern = "F" + std::string(integerIn(layers, 1024) ? static_cast<size_t>(layers.integer) - 1 : 1, 'L');
  mixers = object(usedBy(pattern, {{"F", object(std::move(first))}, {"L", object(std::move(fields))}}));
}

/// Half as many keys as values; decays and mixtures of tokens of low rank.
Value Translation::linearOfRwkv6() {
  std::vector<Field> fields = {{"kind", stringValue(family.name)}};
  headsOfFla(fields, 0.5, 1);
  fields.push_back({"gate_rank", get("gate_low_rank_dim", numberValue(int64_t(64)))});
  fields.push_back({"mix_rank", get("proj_low_rank_dim", numberValue(int64_t(32)))});
  fields.push_back({"norm_eps", get("norm_eps", numberValue(family.eps))});
  return object(std::move(fields));
}

/// So many times the width, up to a multiple of 32; it sees the token before. RWKV-6: a gate on what it gives.
Value Translation::feedForwardOfRwkv(std::string &pattern) {
  constexpr int64_t step = 32;
  static constexpr std::pair<StringRef, StringRef> activations[] = {
      {"sqrelu", "relu2"}, {"relu", "relu"}, {"silu", "silu"}, {"swish", "silu"}, {"gelu", "gelu_tanh"}};
  const Value *given = takeOptional("intermediate_size"), *ratio = takeOptional("hidden_ratio");
  Value width = given ? named(*given, "intermediate_size") : Value();
  if (!given) {
    double factor = ratio && ratio->isNumber() ? ratio->number : isRwkv6() ? 3.5 : 4.0;
    if (ratio && !(ratio->isNumber() && factor > 0 && factor <= 1024))
      errors.report("hidden_ratio", describe(*ratio) + " is not a number above 0 to 1024");
    int64_t features = 1;
    if (integerIn(hidden, INT32_MAX) && factor > 0 && factor <= 1024)
      features = static_cast<int64_t>(static_cast<double>(hidden.integer) * factor);
    if (features < 1)
      errors.report("hidden_ratio",
                    describe(*ratio) +
                        llvm::formatv(" of hidden_size {0} leaves no features; valid: more", hidden.integer).str());
    width = named(numberValue(std::max<int64_t>(step, (features + step - 1) / step * step)),
                  "hidden_size * hidden_ratio", hidden.line);
  }
  const Value usual = stringValue("sqrelu"), *kind = take("hidden_act");
  bool isSilu = kind && (isEqual(*kind, stringValue("silu")) || isEqual(*kind, stringValue("swish")));
  compare({"hidden_act"}, kind ? *kind : usual, usual, /*null=*/nullptr,
          isSilu ? std::vector<Value>{stringValue("silu"), stringValue("swish")} : std::vector<Value>());
  Value act = named(kind ? *kind : usual, "hidden_act");
  const auto *found = llvm::find_if(activations, [&](auto &each) { return isEqual(act, stringValue(each.first)); });
  if (found == std::end(activations))
    errors.report("hidden_act", describe(act) + " of " + configOf(family.name) +
                                    " is not computed; valid: \"sqrelu\", \"relu\", \"silu\", \"swish\", \"gelu\"");
  else
    act = stringValue(found->second);
  pattern = "D";
  std::vector<Field> fields = {{"kind", stringValue("dense")},
                               {"hidden", std::move(width)},
                               {"activation", std::move(act)},
                               {"token_shift", boolValue(true)}};
  if (isRwkv6())
    fields.push_back({"output_gate", stringValue("sigmoid")});
  return object({{"D", object(std::move(fields))}});
}

void Translation::fixedKeysOfRwkv() {
  for (StringRef key : {"attn_mode", "fuse_cross_entropy", "fuse_linear_cross_entropy"}) // how it is computed
    (void)take(key);
  if (isRwkv6())
    (void)take("fuse_norm");
  else
    only("attn", Value()); // which the library has no such model with
  // A penalty that is added to gradients of a training, not to its loss.
  if (const Value *penalty = take("use_l2warp"); penalty && penalty->kind != Kind::boolean)
    errors.report("use_l2warp", describe(*penalty) + " is not true or false");
}
