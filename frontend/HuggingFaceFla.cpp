//===- HuggingFaceFla.cpp - configs of flash-linear-attention: one kind of linear layer, or attention where `attn` says it ---===//
#include "frontend/HuggingFaceTranslation.h"
#include <cmath>

using namespace braid;
using namespace braid::json;
using llvm::StringRef;

/// Letters of the kinds of attention that `attn` may list.
static constexpr StringRef attentionLetters = "NPQRSTUV";

/// So many times as many as there are, which must be a whole number.
Value Translation::timesWidth(StringRef key, double usual, const Value &width, StringRef of) {
  double factor = widthFactor(key, usual);
  std::string origin = (of + " * " + key).str();
  if (factor == 0 || !integerIn(width, INT32_MAX))
    return named(numberValue(int64_t(1)), origin); // reported where they are read
  double all = static_cast<double>(width.integer) * factor, whole = std::round(all);
  constexpr double rounding = 1e-9;
  if (whole < 1 || whole > INT32_MAX || std::abs(all - whole) > rounding * whole) {
    errors.report(key, llvm::formatv("{0} of {1} {2} are {3}; valid: a whole number above 0 of them",
                                     describe(numberValue(factor)), of, width.integer, describe(numberValue(all)))
                           .str());
    whole = 1;
  }
  return named(numberValue(static_cast<int64_t>(whole)), origin, width.line);
}

/// Features of one head of those of all.
Value Translation::shareOfHead(Value all, const Value &heads, StringRef key) {
  if (!integerIn(heads, INT32_MAX) || !integerIn(all, INT32_MAX))
    return all;
  if (all.integer % heads.integer)
    errors.report(key, llvm::formatv("{0} does not divide {1}, {2}; valid: a divisor", heads.integer,
                                     StringRef(all.origin).drop_front(prefix.size()), all.integer)
                           .str());
  all.integer = std::max<int64_t>(1, all.integer / heads.integer), all.number = static_cast<double>(all.integer);
  all.origin += (" / " + key).str();
  return all;
}

/// Heads, and widths of all of them by factors of the model's. One word on heads that divide neither.
void Translation::headsOfFla(std::vector<Field> &fields, double expandK, double expandV) {
  Value heads = get("num_heads", numberValue(family.heads));
  int64_t before = errors.number();
  bool isWide = integerIn(hidden, INT32_MAX); // else that is said where it is read
  Value keys = timesWidth("expand_k", expandK, hidden, "hidden_size"),
        values = timesWidth("expand_v", expandV, hidden, "hidden_size");
  if (errors.number() == before && isWide)
    keys = shareOfHead(std::move(keys), heads, "num_heads");
  if (errors.number() == before && isWide)
    values = shareOfHead(std::move(values), heads, "num_heads");
  bool isRead = errors.number() == before && isWide;
  for (auto [name, width] : {std::pair<StringRef, Value *>{"head_dim", &keys}, {"value_dim", &values}})
    fields.push_back({name.str(), isRead ? std::move(*width) : numberValue(int64_t(1))});
  fields.push_back({"heads", std::move(heads)});
}

/// A number of heads, or null for that of the others.
Value Translation::headsOr(StringRef key, const Value &otherwise) {
  const Value *given = takeOptional(key);
  compare({key.str()}, given ? *given : otherwise, otherwise, /*null=*/&otherwise);
  return named(given ? *given : otherwise, key);
}

/// Features of a head by that key, and how many heads there are: num_heads says it where the key is null, and nothing else.
std::pair<Value, Value> Translation::headsByWidth(StringRef key) {
  const Value usual = numberValue(family.headDim), *given = take(key), *number = takeOptional("num_heads");
  Value all = named(hidden, "hidden_size", hidden.line), width, heads;
  if (!given || given->kind != Kind::null) {
    width = named(given ? *given : usual, key);
    heads = shareOfHead(std::move(all), width, key);
    if (number && !integerIn(*number, INT32_MAX))
      errors.report("num_heads", describe(*number) + " is not an integer above 0; " + key.str() + " says the heads");
  } else if (number) {
    heads = named(*number, "num_heads");
    width = shareOfHead(std::move(all), heads, "num_heads");
  } else {
    errors.report(key, "is null, and so is num_heads; valid: an integer above 0 in one of them");
    width = heads = named(numberValue(int64_t(1)), key);
  }
  compare({key.str()}, width, usual, /*null=*/&width);
  return {std::move(width), std::move(heads)};
}

/// What retnet and gla share: keys for several heads, a norm with a gate.
std::vector<Field> Translation::gatedOfFla(double expandK, double expandV) {
  std::vector<Field> fields = {{"kind", stringValue(family.name)}};
  headsOfFla(fields, expandK, expandV);
  fields.push_back({"kv_heads", headsOr("num_kv_heads", fields.back().value)});
  if (!flag("use_output_gate", true))
    fields.push_back({"output_gate", Value()});
  bool isRetnet = family.name == "retnet"; // whose model hands these to no layer
  if (isRetnet)
    (void)take("use_short_conv");
  if (!isRetnet && flag("use_short_conv", false))
    fields.push_back(
        {"conv", object({{"kernel", get("conv_size", numberValue(int64_t(4)))}, {"bias", boolValue(false)}})});
  else
    (void)take("conv_size");
  only("feature_map", Value());
  only("elementwise_affine", boolValue(true));
  return fields;
}

/// What the delta rules share: convolutions, and strengths up to 2.
void Translation::deltaOfFla(std::vector<Field> &fields) {
  only("use_short_conv", boolValue(true));
  fields.push_back(
      {"conv", object({{"kernel", get("conv_size", numberValue(int64_t(4)))}, {"bias", boolValue(false)}})});
  fields.push_back({"allow_neg_eigval", get("allow_neg_eigval", boolValue(false))});
}

/// The gate of a delta rule whose key `use_gate` may leave it out.
Value Translation::gateOfFla(bool usual) {
  bool uses = flag("use_gate", usual);
  if (family.name != "gated_deltanet")
    return uses ? stringValue("silu") : Value();
  const Value swish = stringValue("swish"), *given = take("output_gate_activation"), &kind = given ? *given : swish;
  bool isSigmoid = isEqual(kind, stringValue("sigmoid"));
  compare({"output_gate_activation"}, isSigmoid ? kind : swish, swish, /*null=*/nullptr,
          isSigmoid ? std::vector<Value>() : std::vector<Value>{stringValue("silu")});
  if (!isSigmoid && !isEqual(kind, swish) && !isEqual(kind, stringValue("silu")))
    errors.report("output_gate_activation", describe(kind) + R"( is not computed; valid: "swish", "silu", "sigmoid")");
  return !uses ? Value() : stringValue(isSigmoid ? "sigmoid" : "silu");
}

Value Translation::linearOfFla() {
  if (isRwkv6())
    return linearOfRwkv6();
  std::vector<Field> fields;
  auto add = [&](StringRef name, Value value) { fields.push_back({name.str(), std::move(value)}); };
  if (family.name == "gla" || family.name == "retnet") {
    bool isGla = family.name == "gla";
    fields = gatedOfFla(isGla ? 0.5 : 1.0, isGla ? 1.0 : 2.0);
    if (isGla) {
      only("clamp_min", Value());
      only("use_gk", boolValue(true));
      only("use_gv", boolValue(false));
    }
  } else if (family.name == "delta_net") {
    add("kind", stringValue("deltanet"));
    headsOfFla(fields, 1, 1);
    add("output_gate", gateOfFla(false));
    for (StringRef key : {"use_beta", "use_output_norm"})
      only(key, boolValue(true));
    only("qk_norm", stringValue("l2"));
    only("qk_activation", stringValue("silu"));
    deltaOfFla(fields);
  } else if (family.name == "hgrn2") {
    auto [width, heads] = headsByWidth("expand_ratio");
    add("kind", stringValue(family.name));
    add("heads", std::move(heads));
    add("head_dim", std::move(width));
    add("lower_bounds", flag("use_lower_bound", true) ? stringValue("learned") : Value());
    only("elementwise_affine", boolValue(true));
    if (flag("use_short_conv", false))
      add("conv", object({{"kernel", get("conv_size", numberValue(int64_t(4)))},
                          {"bias", boolValue(false)},
                          {"activation", Value()},
                          {"decays", boolValue(true)}}));
    else
      (void)take("conv_size");
    add("norm_eps", named(numberValue(1e-5), "norm_eps, which " + family.name.str() + " does not read there"));
    return object(std::move(fields));
  } else { // gated_deltanet, kda
    bool isKda = family.name == "kda";
    Value keyHeads = get("num_heads", numberValue(family.heads)), heads = headsOr("num_v_heads", keyHeads),
          width = get("head_dim", numberValue(family.headDim)),
          values = timesWidth("expand_v", isKda ? 1 : 2, width, "head_dim");
    add("kind", stringValue(family.name));
    if (!isKda)
      add("key_heads", keyHeads);
    else if (!isEqual(heads, keyHeads))
      errors.report("num_v_heads", describe(heads) + " of a kda config with num_heads " + describe(keyHeads) +
                                       " is not computed; valid: as many");
    add("heads", heads);
    add("head_dim", std::move(width));
    add("value_dim", values);
    if (isKda) { // decays and gates of low rank
      add("gate_rank", values);
      add("output_gate_rank", values);
      add("output_gate_bias", boolValue(true));
      const Value none, *bound = takeOptional("lower_bound"),
                        *safe = takeOptional("safe_gate"); // which chooses a kernel
      compare({"lower_bound"}, bound ? *bound : none, none);
      if (bound && bound->isNumber() && bound->number == 0)
        errors.report("lower_bound", "0 leaves no decay; valid: a number below 0, or null");
      else if (bound)
        add("lower_bound", named(*bound, "lower_bound"));
      if (safe && safe->kind != Kind::boolean)
        errors.report("safe_gate", describe(*safe) + " is not true or false");
      else if (safe && safe->boolean && !bound)
        errors.report("lower_bound", "is missing beside safe_gate true; valid: a number below 0");
    } else {
      add("output_gate", gateOfFla(true));
    }
    deltaOfFla(fields);
  }
  fields.push_back({"norm_eps", get("norm_eps", numberValue(family.eps))});
  return object(std::move(fields));
}

/// One kind of attention, {"layers": [0, 2], "num_heads": 8, ..}, or of the transformer the config itself.
Value Translation::attentionOfFla(const Value &spec, StringRef at) {
  bool isWhole = at.empty();
  auto take = [&](StringRef key, Value otherwise) {
    if (isWhole)
      return get(key, std::move(otherwise), /*nullable=*/true);
    const Value *given = spec.find(key);
    return named(given && given->kind != Kind::null ? *given : std::move(otherwise), (at + "." + key).str());
  };
  Value heads = take("num_heads", isWhole ? numberValue(family.heads) : Value()), window = take("window_size", Value()),
        all = named(hidden, "hidden_size", hidden.line);
  std::vector<Field> fields = {
      {"kind", stringValue("attention")},
      {"heads", heads},
      {"kv_heads", take("num_kv_heads", heads)},
      {"head_dim", shareOfHead(std::move(all), heads, isWhole ? StringRef("num_heads") : StringRef(heads.origin))},
      {"qkv_bias", take("qkv_bias", boolValue(false))},
      {"rope", object({{"theta", take("rope_theta", numberValue(1e4))}})}};
  if (window.kind != Kind::null && !integerIn(window, INT32_MAX))
    errors.report(window.origin, describe(window) + " is not an integer above 0; valid: that, or null");
  else if (window.kind != Kind::null)
    fields.push_back({"window", std::move(window)});
  return object(std::move(fields));
}

/// What is said of attention, with or without each key that says what the library does without it; an object, or a list of one. Of longer lists with all such keys, or none.
void Translation::compareAttention(const Value &given) {
  const Value none;
  const Field usual[] = {
      {"num_kv_heads", none}, {"qkv_bias", boolValue(false)}, {"window_size", none}, {"rope_theta", numberValue(1e4)}};
  std::vector<std::vector<Value>> forms; // of each, the shortest first
  for (const Value &spec : given.kind == Kind::array ? llvm::ArrayRef(given.items) : llvm::ArrayRef(given)) {
    const Value *heads = spec.kind == Kind::object ? spec.find("num_heads") : nullptr;
    if (!heads)
      continue; // none, or reported
    std::vector<Field> needed, optional;
    for (StringRef key : {"layers", "num_heads"})
      if (const Value *value = spec.find(key))
        needed.push_back({key.str(), *value});
    for (const Field &field : usual) {
      const Value *own = spec.find(field.name), &otherwise = field.name == "num_kv_heads" ? *heads : field.value;
      bool isUsual = !own || own->kind == Kind::null || isEqual(*own, otherwise);
      (isUsual ? optional : needed).push_back({field.name, isUsual ? otherwise : *own});
    }
    std::vector<Value> &all = forms.emplace_back();
    for (size_t chosen = 0; chosen < size_t(1) << optional.size(); ++chosen) {
      std::vector<Field> fields = needed;
      for (auto [i, field] : llvm::enumerate(optional))
        if (chosen >> i & 1)
          fields.push_back(field);
      all.push_back(objectValue(std::move(fields)));
    }
  }
  std::vector<Value> same, shortest, longest;
  for (const std::vector<Value> &all : forms) {
    shortest.push_back(all.front());
    longest.push_back(all.back());
  }
  if (forms.size() == 1)
    for (const Value &form : forms.front())
      same.insert(same.end(), {form, arrayValue({form})});
  else
    same = {arrayValue(shortest), arrayValue(longest)};
  if (forms.empty())
    same.push_back(none);
  compare({"attn"}, given, none, /*null=*/&none, same);
}

/// L: linear, other letters: attention of the kinds that `attn` lists, in their layers.
void Translation::layersOfFla(const Value &layers, Value &mixers, std::string &pattern) {
  bool isTransformer = family.name == "transformer";
  if (isTransformer) {
    pattern = "N";
    mixers = object({{"N", attentionOfFla(config, "")}});
    only("elementwise_affine", boolValue(true));
    return only("qk_norm", boolValue(false));
  }
  std::string each(integerIn(layers, 1024) ? static_cast<size_t>(layers.integer) : 1, 'L');
  std::vector<Field> kinds;
  Value linear = linearOfFla();
  const Value none, *attn = take("attn");
  auto add = [&](const Value &spec, const std::string &at) {
    if (spec.kind != Kind::object)
      return errors.report(at, describe(spec) + R"( is not an object; valid: {"layers": [..], "num_heads": N, ..})");
    if (kinds.size() == attentionLetters.size())
      return errors.report(
          at, llvm::formatv("is one more kind of attention than {0}; valid: at most so many", kinds.size()).str());
    char letter = attentionLetters[kinds.size()];
    for (StringRef key : {"layers", "num_heads"})
      if (!spec.find(key))
        return errors.report(at, ("has no " + key + R"(; valid: {"layers": [..], "num_heads": N, ..})").str());
    for (const Field &field : spec.fields)
      if (!llvm::is_contained({"layers", "num_heads", "num_kv_heads", "qkv_bias", "window_size", "rope_theta"},
                              field.name))
        errors.report(at + "." + field.name, describe(field.value) +
                                                 " is of an unknown key of attention; valid: layers, "
                                                 "num_heads, num_kv_heads, qkv_bias, window_size, "
                                                 "rope_theta");
    const Value &own = *spec.find("layers");
    if (own.kind != Kind::array)
      return errors.report(at + ".layers", describe(own) + " is not a list; valid: numbers of layers");
    for (auto [i, layer] : llvm::enumerate(own.items)) {
      std::string place = llvm::formatv("{0}.layers[{1}]", at, i);
      if (layer.kind != Kind::integer || layer.integer < 0 ||
          (layer.integer >= static_cast<int64_t>(each.size()) && integerIn(layers, 1024)))
        errors.report(place, describe(layer) + " is no layer; valid: 0 to num_hidden_layers - 1");
      else if (layer.integer >= static_cast<int64_t>(each.size()))
        continue; // nobody knows how many there are
      else if (char &known = each[static_cast<size_t>(layer.integer)]; known != 'L')
        errors.report(place, describe(layer) + " is named twice; valid: once");
      else
        known = letter;
    }
    kinds.push_back({std::string{letter}, attentionOfFla(spec, at)});
  };
  if (attn && attn->kind == Kind::array)
    for (auto [i, spec] : llvm::enumerate(attn->items))
      add(spec, llvm::formatv("attn[{0}]", i).str());
  else if (attn && attn->kind != Kind::null)
    add(*attn, "attn");
  compareAttention(attn ? *attn : none);
  kinds.push_back({"L", std::move(linear)});
  pattern = shortest(each);
  mixers = object(usedBy(pattern, std::move(kinds)));
}

/// Two thirds of so many times the width, up to a multiple of 256.
Value Translation::feedForwardOfFla(std::string &pattern) {
  constexpr int64_t step = 256;
  const Value none, *given = takeOptional("intermediate_size"), *ratio = take("hidden_ratio");
  const Value usual = numberValue(int64_t(family.name == "retnet" ? 2 : 4)), ofNull = numberValue(int64_t(4)),
              &factor = !ratio                      ? usual
                        : ratio->kind == Kind::null ? ofNull
                                                    : *ratio;
  // Shapes say the width, whatever it is computed from.
  Value width = given ? named(*given, "intermediate_size") : Value();
  if (!given) {
    int64_t features = 1;
    if (!factor.isNumber() || factor.number <= 0 || factor.number > 1024)
      errors.report("hidden_ratio", describe(factor) + " is not a number above 0 to 1024");
    else if (integerIn(hidden, INT32_MAX))
      features = static_cast<int64_t>(static_cast<double>(hidden.integer) * factor.number * 2 / 3);
    if (features < 1)
      errors.report("hidden_ratio",
                    describe(factor) +
                        llvm::formatv(" of hidden_size {0} leaves no features; valid: more", hidden.integer).str());
    width = named(numberValue(std::max<int64_t>(step, (features + step - 1) / step * step)),
                  "hidden_size * hidden_ratio", hidden.line);
  }
  pattern = "D";
  return object({{"D", object({{"kind", stringValue("dense")}, {"hidden", std::move(width)}})}});
}

void Translation::fixedKeysOfFla() {
  // How it is computed.
  for (StringRef key : {"attn_mode", "fuse_norm", "fuse_swiglu", "fuse_cross_entropy", "fuse_linear_cross_entropy"})
    (void)take(key);
  only("hidden_act", stringValue("swish"));
  only("use_l2warp", boolValue(false));
  only("attnres_block_size", Value());
}
