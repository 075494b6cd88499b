//===- HuggingFace.cpp - a config.json of Hugging Face's transformers as a model description ----------------------===//
// Every key is translated, known to say nothing about what is computed, or has the one value that is computed; any other
// is an error. Types and ranges of what is translated are the ordinary reader's.
#include "frontend/HuggingFace.h"
#include "frontend/HuggingFaceFamilies.h"
#include "frontend/ModelImport.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/FormatVariadic.h"
#include <cmath>

using namespace braid;
using namespace braid::json;
using llvm::StringRef;

namespace {

bool isEqual(const Value &a, const Value &b) {
  return a.isNumber() && b.isNumber() ? a.number == b.number
                                      : a.kind == b.kind && a.boolean == b.boolean && a.string == b.string;
}

class Translation {
public:
  Translation(const Value &config, const Family &family, bool dtypeGiven, Errors &errors)
      : config(config), family(family), dtypeGiven(dtypeGiven), errors(errors) {}
  std::optional<HuggingFaceModel> run();

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
  /// A value of the config under its own key and line; of one that follows from another the line of that.
  Value named(Value value, StringRef key, int64_t line = 0) {
    value.origin = key.str();
    if (!value.line)
      value.line = line ? line : config.line;
    return value;
  }
  Value get(StringRef key, Value otherwise, bool nullable = false) {
    const Value *v = nullable ? takeOptional(key) : take(key);
    compare({key.str()}, v ? *v : otherwise, otherwise);
    return named(v ? *v : std::move(otherwise), key);
  }
  /// The first of the keys that is there has this value; `absent` is what it says to leave all out, `null` what null
  /// says where that is not the same.
  void compare(llvm::ArrayRef<std::string> keys, const Value &value, const Value &absent, const Value *null = nullptr) {
    if (llvm::is_contained(notCompared, keys.front()) || !seen.insert(keys.front()).second)
      return;
    std::vector<Value> names;
    for (const std::string &key : keys)
      names.push_back(stringValue(key));
    std::vector<Field> fields = {{"keys", arrayValue(std::move(names))}, {"value", value}, {"absent", absent}};
    if (null)
      fields.push_back({"null", *null});
    compared.push_back(objectValue(std::move(fields)));
  }
  /// A key that two versions of transformers spell differently.
  Value either(StringRef one, StringRef two, Value otherwise) {
    const Value *a = takeOptional(one), *b = takeOptional(two);
    if (a && b && !isEqual(*a, *b))
      errors.report(two, describe(*b) + " is not " + one.str() + " " + describe(*a) + "; valid: one of the two keys");
    compare({one.str(), two.str()}, a ? *a : b ? *b : otherwise, otherwise);
    return named(a ? *a : b ? *b : std::move(otherwise), a ? one : b ? two : one);
  }
  void only(StringRef key, const Value &valid, bool nullable = false) {
    const Value *v = take(key);
    compare({key.str()}, valid, valid);
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
  Value rope(const Value &headDim);
  Value ropeScaling(const Value &rope, StringRef key, StringRef type);
  Value attention();
  Value gatedDeltanet();
  Value mamba();
  std::string blocks(Value &layers);
  void layersOfOnePart(Value &layers, Value &mixers, Value &ffns, std::string &mixerPattern, std::string &ffnPattern);
  void fixedKeysOfOnePart();
  void mixers(const Value &layers, Value &mixers, std::string &pattern);
  Value dtype();
  void fixedKeys();
  void feedForwards(const Value &layers, Value &ffns, std::string &pattern);

  const Value &config;
  const Family &family;
  bool dtypeGiven;
  Errors &errors;
  std::vector<StringRef> known;
  llvm::StringSet<> seen; ///< first keys of `compared`
  std::vector<Value> compared;
  Value hidden;
};

} // namespace

/// The shortest pattern that this one repeats.
static std::string shortest(StringRef pattern) {
  size_t size = 1;
  while (size < pattern.size() && pattern.drop_front(size) != pattern.drop_back(size))
    ++size;
  return pattern.take_front(size).str();
}

/// An object of rotations, `key` in the config, whose rope_type is not "default".
Value Translation::ropeScaling(const Value &rope, StringRef key, StringRef type) {
  auto find = [&](StringRef name) -> std::optional<Value> {
    const Value *v = rope.find(name);
    return v && v->kind != Kind::null ? std::optional(named(*v, (key + "." + name).str())) : std::nullopt;
  };
  auto require = [&](StringRef name) {
    std::optional<Value> v = find(name);
    if (!v)
      errors.report((key + "." + name).str(),
                    "is missing, which rope_type \"" + type.str() + "\" needs; valid: a number");
    return v.value_or(named(numberValue(1.0), key));
  };
  std::vector<Field> fields = {{"kind", stringValue(type)}};
  auto scaling = [&] {
    Value all = object(std::move(fields));
    all.origin = key.str(), all.line = rope.line;
    return all;
  };
  if (type == "linear") {
    fields.push_back({"factor", require("factor")});
    return scaling();
  }
  Value context = get("max_position_embeddings", numberValue(family.positions)), original = context;
  if (const Value *own = takeOptional("original_max_position_embeddings")) // before the object's
    original = named(*own, "original_max_position_embeddings");
  else if (std::optional<Value> v = find("original_max_position_embeddings"))
    original = std::move(*v);
  compare({"original_max_position_embeddings", "rope_scaling.original_max_position_embeddings",
           "rope_parameters.original_max_position_embeddings", "max_position_embeddings"},
          original, numberValue(family.positions));
  if (type == "llama3") {
    for (StringRef name : {"factor", "low_freq_factor", "high_freq_factor"})
      fields.push_back({name.str(), require(name)});
  } else {
    std::optional<Value> factor = find("factor"), attention = find("attention_factor"), mscale = find("mscale"),
                         ofAll = find("mscale_all_dim");
    if (const Value *null = rope.find("factor"); !factor && null && original.number > 0)
      factor = named(numberValue(context.number / original.number), (key + ".factor").str(), null->line);
    fields.push_back({"factor", factor ? *factor : require("factor")});
    auto says = [](const std::optional<Value> &v) { return v && !(v->isNumber() && v->number == 0); };
    if (!attention && says(mscale) && says(ofAll) && mscale->isNumber() && ofAll->isNumber() && factor)
      attention = named(numberValue(RopeScaling::attentionFactorOf(factor->number, mscale->number) /
                                    RopeScaling::attentionFactorOf(factor->number, ofAll->number)),
                        mscale->origin, mscale->line);
    if (attention)
      fields.push_back({"attention_factor", std::move(*attention)});
    for (StringRef name : {"beta_fast", "beta_slow"})
      if (std::optional<Value> v = find(name); says(v))
        fields.push_back({name.str(), std::move(*v)});
    if (std::optional<Value> v = find("truncate"))
      fields.push_back({"truncate", std::move(*v)});
  }
  fields.push_back({"original_context_len", std::move(original)});
  return scaling();
}

Value Translation::rope(const Value &headDim) {
  Value theta = named(numberValue(family.theta), "rope_theta");
  Value turns = named(numberValue(family.turns), "partial_rotary_factor");
  const Value *own = takeOptional("rope_theta");
  if (own)
    theta = named(*own, "rope_theta");
  if (const Value *part = family.turns != 1 ? take("partial_rotary_factor") : nullptr)
    turns = named(*part, "partial_rotary_factor");
  const Value *rope = takeOptional("rope_parameters"), *older = takeOptional("rope_scaling");
  StringRef key = older ? "rope_scaling" : "rope_parameters";
  if (rope && older)
    errors.report(key, "stands beside rope_parameters; valid: one of the two keys");
  rope = older ? older : rope;
  std::optional<Value> scaling;
  auto compareType = [&](StringRef type) {
    compare({"rope_scaling.rope_type", "rope_scaling.type", "rope_parameters.rope_type", "rope_parameters.type"},
            stringValue(type), stringValue("default"));
  };
  auto inObjects = [](StringRef field) {
    return std::vector<std::string>{("rope_scaling." + field).str(), ("rope_parameters." + field).str()};
  };
  if (rope && rope->kind != Kind::object) {
    errors.report(key, describe(*rope) + " is not an object or null");
  } else if (rope) {
    static constexpr StringRef types[] = {"default", "linear", "llama3", "yarn"};
    static constexpr std::pair<StringRef, StringRef> readBy[] = {
        {"factor", "linear, llama3, yarn"},
        {"low_freq_factor", "llama3"},
        {"high_freq_factor", "llama3"},
        {"original_max_position_embeddings", "llama3, yarn"},
        {"attention_factor", "yarn"},
        {"beta_fast", "yarn"},
        {"beta_slow", "yarn"},
        {"mscale", "yarn"},
        {"mscale_all_dim", "yarn"},
        {"truncate", "yarn"},
    };
    const Value *type = rope->find("rope_type"), *spelled = type ? type : rope->find("type");
    StringRef name = spelled && spelled->kind == Kind::string ? StringRef(spelled->string) : "default";
    std::vector<StringRef> valid = {"rope_type", "rope_theta"};
    for (auto [field, by] : readBy)
      if (by.contains(name))
        valid.push_back(field);
    if (spelled && (spelled->kind != Kind::string || !llvm::is_contained(types, name)))
      errors.report((key + (type ? ".rope_type" : ".type")).str(),
                    describe(*spelled) +
                        (name == "dynamic" || name == "longrope"
                             ? " has other frequencies for longer texts, which is not computed"
                             : " is not computed") +
                        "; valid: " + join(types));
    else
      compareType(name);
    if (name != "default" && llvm::is_contained(types, name))
      scaling = ropeScaling(*rope, key, name);
    for (auto [field, by] : readBy)
      if (by.contains(name) && field != "original_max_position_embeddings") {
        Value usual = field == "beta_fast"   ? numberValue(int64_t(32))
                      : field == "beta_slow" ? numberValue(int64_t(1))
                      : field == "truncate"  ? boolValue(true)
                                             : Value();
        const Value *given = rope->find(field);
        compare(inObjects(field), given && given->kind != Kind::null ? *given : usual, usual);
      }
    for (const Field &field : rope->fields) {
      std::string path = (key + "." + field.name).str();
      if (field.name == "rope_theta") {
        if (own && !isEqual(*own, field.value))
          errors.report(path, describe(field.value) + " is not rope_theta " + describe(*own) +
                                  "; valid: one of the two keys");
        theta = named(field.value, path);
      } else if (field.name == "partial_rotary_factor") {
        turns = named(field.value, path);
        if (family.turns == 1 && !isEqual(field.value, numberValue(int64_t(1))))
          errors.report(path, describe(field.value) + " is not computed; valid: 1");
      } else if (field.name != "type" && !llvm::is_contained(valid, field.name) && llvm::is_contained(types, name)) {
        errors.report(path, "unknown key of a " + family.name.str() + " config with rope_type \"" + name.str() +
                                "\"; valid: " + join(valid));
      }
    }
  }
  compareType("default"); // unless an object said so
  auto alsoOwn = [&](StringRef name) { // which an object's goes before
    std::vector<std::string> keys = inObjects(name);
    keys.push_back(name.str());
    return keys;
  };
  compare(alsoOwn("rope_theta"), theta, numberValue(family.theta));
  compare(alsoOwn("partial_rotary_factor"), turns, numberValue(family.turns));
  std::vector<Field> fields = {{"theta", std::move(theta)}};
  if (family.turns != 1) {
    // transformers cuts what is no whole number of features, a description rounds it.
    double width = turns.number * headDim.number, whole = std::floor(width);
    if (turns.isNumber() && headDim.isNumber() && headDim.number > 0 && whole != std::round(width)) {
      if (std::fmod(whole, 2) != 0 || whole < 2)
        errors.report(turns.origin,
                      llvm::formatv("{0} of {1} {2} turns {3} features; valid: a fraction that turns an "
                                    "even number, at least 2",
                                    describe(turns), headDim.origin, describe(headDim), static_cast<int64_t>(whole))
                          .str());
      turns = named(numberValue(whole / headDim.number), turns.origin, turns.line);
    }
    fields.push_back({"fraction", std::move(turns)});
  }
  if (scaling)
    fields.push_back({"scaling", std::move(*scaling)});
  return object(std::move(fields));
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
  bool follows = !family.headDim && integerIn(heads, INT32_MAX) && integerIn(hidden, INT32_MAX);
  compare({"head_dim"}, headDim, numberValue(follows ? hidden.integer / heads.integer : family.headDim));
  Value turned = family.onePart ? Value() : rope(headDim);
  std::vector<Field> fields = {{"kind", stringValue("attention")},
                               {"heads", std::move(heads)},
                               {"kv_heads", std::move(kvHeads)},
                               {"head_dim", std::move(headDim)},
                               {"rope", std::move(turned)}};
  if (family.qkvBias)
    fields.push_back({"qkv_bias", family.sharedHidden ? get("qkv_bias", boolValue(true)) : boolValue(true)});
  if (family.qkNorm)
    fields.push_back({"qk_norm", boolValue(true)});
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

Value Translation::gatedDeltanet() {
  return object({{"kind", stringValue("gated_deltanet")},
                 {"heads", get("linear_num_value_heads", numberValue(int64_t(32)))},
                 {"key_heads", get("linear_num_key_heads", numberValue(int64_t(16)))},
                 {"head_dim", get("linear_key_head_dim", numberValue(int64_t(128)))},
                 {"value_dim", get("linear_value_head_dim", numberValue(int64_t(128)))},
                 {"conv", object({{"kernel", get("linear_conv_kernel_dim", numberValue(int64_t(4)))}})},
                 {"norm_eps", get("rms_norm_eps", numberValue(family.eps))}});
}

/// L: the gated delta rule, N: attention.
void Translation::mixers(const Value &layers, Value &mixers, std::string &pattern) {
  pattern = "N";
  const Value *types = family.hybrid ? takeOptional("layer_types") : nullptr;
  if (family.hybrid) {
    Value interval = get("full_attention_interval", numberValue(int64_t(4)));
    bool isInterval = integerIn(interval, INT32_MAX);
    pattern = "LN";
    if (types && types->kind != Kind::array) {
      errors.report("layer_types", describe(*types) + " is not a list or null");
    } else if (types) {
      std::string each;
      for (auto [i, type] : llvm::enumerate(types->items)) {
        bool isLinear = isEqual(type, stringValue("linear_attention"));
        if (!isLinear && !isEqual(type, stringValue("full_attention")))
          errors.report(llvm::formatv("layer_types[{0}]", i).str(),
                        describe(type) + " is not computed; valid: \"linear_attention\", \"full_attention\"");
        each += isLinear ? 'L' : 'N';
      }
      if (!integerIn(layers, 1024) || each.size() != static_cast<size_t>(layers.integer))
        errors.report(
            "layer_types",
            llvm::formatv("has {0} layers; valid: num_hidden_layers, {1}", each.size(), describe(layers)).str());
      else
        pattern = shortest(each);
    } else if (!isInterval) {
      errors.report("full_attention_interval", describe(interval) + " is not an integer above 0");
    } else if (integerIn(layers, 1024)) {
      std::string each;
      for (int64_t layer = 0; layer < layers.integer; ++layer)
        each += (layer + 1) % interval.integer ? 'L' : 'N';
      pattern = shortest(each);
    }
  }
  std::vector<Field> parts;
  Value attentions = attention(); // its keys are known, used or not
  Value linear = family.hybrid ? gatedDeltanet() : Value();
  if (StringRef(pattern).contains('L'))
    parts.push_back({"L", std::move(linear)});
  if (StringRef(pattern).contains('N'))
    parts.push_back({"N", std::move(attentions)});
  mixers = object(std::move(parts));
}

/// A Mamba-2 mixer, or a Mamba mixer whose channels are one head.
Value Translation::mamba() {
  bool first = family.name == "mamba", hybrid = family.name == "nemotron_h";
  auto key = [&](StringRef own, StringRef ofHybrid) { return hybrid ? ofHybrid : own; };
  Value states = get(key("state_size", "ssm_state_size"), numberValue(int64_t(first ? 16 : 128)));
  Value expand = get("expand", numberValue(int64_t(2)));
  int64_t inner = integerIn(expand, 1 << 10) && integerIn(hidden, INT32_MAX) ? expand.integer * hidden.integer : 0;
  if (!integerIn(expand, 1 << 10) && !hybrid)
    errors.report("expand", describe(expand) + " is not an integer from 1 to 1024");
  if (!hybrid)
    if (Value given = get("intermediate_size", numberValue(inner)); inner && !isEqual(given, numberValue(inner)))
      errors.report(
          "intermediate_size",
          llvm::formatv("{0} is not expand times hidden_size, {1}; valid: that", describe(given), inner).str());
  std::vector<Field> fields = {{"kind", stringValue(first ? "mamba" : "mamba2")}};
  if (first) {
    Value rank = get("time_step_rank", stringValue("auto"));
    if (isEqual(rank, stringValue("auto")))
      rank = named(numberValue((hidden.integer + 15) / 16), "time_step_rank");
    fields.push_back({"heads", numberValue(int64_t(1))});
    fields.push_back({"head_dim", std::move(states)});
    fields.push_back({"value_dim", named(numberValue(inner), "expand * hidden_size", hidden.line)});
    fields.push_back({"gate_rank", std::move(rank)});
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
    fields.push_back({"key_heads", get("n_groups", numberValue(int64_t(8)))});
    fields.push_back({"head_dim", std::move(states)});
    fields.push_back({"value_dim", std::move(width)});
    fields.push_back({"norm_eps", get("layer_norm_epsilon", numberValue(family.eps))});
  }
  fields.push_back({"conv", object({{"kernel", get("conv_kernel", numberValue(int64_t(4)))},
                                    {"bias", get("use_conv_bias", boolValue(true))}})});
  Value steps = arrayValue({get("time_step_min", numberValue(0.001)), get("time_step_max", numberValue(0.1))});
  fields.push_back({"step_range", named(std::move(steps), "time_step_min")});
  return object(std::move(fields));
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
      bool experts = isEqual(type, stringValue(isLetter ? "E" : "moe"));
      errors.report(path,
                    describe(type) +
                        (experts ? " has a router with a correction of its choices, which a description cannot say"
                                 : " is not computed") +
                        (isLetter ? "; valid: M, *, -" : "; valid: \"linear_attention\", \"full_attention\", \"mlp\""));
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

/// M: Mamba or Mamba-2, N: attention, D: a feed-forward.
void Translation::layersOfOnePart(Value &layers, Value &mixers, Value &ffns, std::string &mixerPattern,
                                  std::string &ffnPattern) {
  bool hybrid = family.name == "nemotron_h";
  std::vector<Field> mixing, feeding;
  std::string each = hybrid ? blocks(layers) : "M";
  for (char block : each) {
    mixerPattern += block == 'M' ? 'M' : block == '*' ? 'N' : '-';
    ffnPattern += block == '-' ? 'D' : '-';
  }
  Value scan = mamba(); // keys of parts are known, used or not
  if (StringRef(each).contains('M'))
    mixing.push_back({"M", std::move(scan)});
  if (hybrid) {
    Value attentions = attention(), width = get("intermediate_size", numberValue(family.intermediateSize));
    if (StringRef(each).contains('*'))
      mixing.push_back({"N", std::move(attentions)});
    if (StringRef(each).contains('-'))
      feeding.push_back({"D", object({{"kind", stringValue("dense")},
                                      {"hidden", std::move(width)},
                                      {"activation", stringValue("relu2")}})});
  }
  mixerPattern = shortest(mixerPattern);
  ffnPattern = shortest(ffnPattern);
  mixers = object(std::move(mixing));
  ffns = object(std::move(feeding));
}

void Translation::fixedKeysOfOnePart() {
  for (StringRef key : silentOfOnePart)
    (void)take(key);
  only("use_bias", boolValue(false));
  only("rms_norm", boolValue(true));
  only("rms_norm_eps", get("layer_norm_epsilon", numberValue(family.eps)));
  if (family.name == "nemotron_h") {
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
    only("hidden_act", stringValue("silu"));
  }
  if (family.name != "mamba")
    (void)take("time_step_rank"); // Mamba's
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
  only("quantization_config", Value());
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

void Translation::fixedKeys() {
  for (StringRef key : silent)
    (void)take(key);
  if (family.onePart)
    return fixedKeysOfOnePart();
  only("hidden_act", stringValue("silu"));
  only("attention_dropout", numberValue(int64_t(0)), /*nullable=*/true);
  only("pretraining_tp", numberValue(int64_t(1)), /*nullable=*/true);
  if (!family.qkvBias || !family.sharedHidden) // qwen2_moe: qkv_bias
    only("attention_bias", boolValue(family.qkvBias));
  for (StringRef key : {"mlp_bias", "rope_interleaved", "use_mrope", "is_encoder_decoder", "add_cross_attention"})
    only(key, boolValue(false));
  for (StringRef key : {"quantization_config", "clip_qkv"})
    only(key, Value());
  if (family.experts)
    only("router_jitter_noise", numberValue(int64_t(0)));
  if (family.hybrid)
    only("use_sliding_window", boolValue(false));
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
  bool isLocal = !family.expertHidden; // mixtral
  Value experts = either(isLocal ? "num_local_experts" : "num_experts", isLocal ? "num_experts" : "num_local_experts",
                         numberValue(family.experts));
  Value topK = get("num_experts_per_tok", numberValue(family.topK));
  Value normalize = named(boolValue(true), ("norm_topk_prob, which " + family.name + " does not ask about").str());
  Value expertHidden = intermediate;
  int64_t step = 1;
  std::vector<int64_t> denseLayers;
  if (family.expertHidden) {
    normalize = get("norm_topk_prob", boolValue(family.normalizes));
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
  std::vector<Field> moe = {{"kind", stringValue("moe")},
                            {"num_experts", std::move(experts)},
                            {"top_k", std::move(topK)},
                            {"expert_hidden", std::move(expertHidden)},
                            {"router", object({{"normalize", std::move(normalize)},
                                               {"balance_loss", numberValue(int64_t(0))},
                                               {"z_loss", numberValue(int64_t(0))}})}};
  if (family.sharedHidden) {
    Value shared = get("shared_expert_intermediate_size", numberValue(family.sharedHidden));
    if (shared.isNumber() && shared.number == 0)
      errors.report("shared_expert_intermediate_size",
                    "0 leaves the gate of the shared expert without one; valid: an integer above 0");
    moe.push_back({"shared_hidden", std::move(shared)});
    moe.push_back({"shared_gate", boolValue(true)});
  }
  if (hasMoe || pattern.empty())
    parts.push_back({"M", object(std::move(moe))});
  if (hasDense)
    parts.push_back({"D", dense()});
  pattern = pattern.empty() ? "M" : shortest(pattern);
  ffns = object(std::move(parts));
}

std::optional<HuggingFaceModel> Translation::run() {
  int64_t before = errors.number();
  compare({"model_type"}, stringValue(family.name), stringValue(family.name));
  hidden = get("hidden_size", numberValue(family.hiddenSize));
  Value layers = get("num_hidden_layers", numberValue(family.layers)), mixing, ffns;
  std::string layerPattern, ffnPattern;
  if (family.onePart) {
    layersOfOnePart(layers, mixing, ffns, layerPattern, ffnPattern);
  } else {
    mixers(layers, mixing, layerPattern);
    feedForwards(layers, ffns, ffnPattern);
  }
  Value eps = get(family.onePart ? "layer_norm_epsilon" : "rms_norm_eps", numberValue(family.eps));
  Value scaleOutput =
      family.onePart ? get("rescale_prenorm_residual", boolValue(family.name == "nemotron_h")) : boolValue(false);
  std::vector<Field> fields = {
      {"name", stringValue(family.name)},
      {"vocab_size", get("vocab_size", numberValue(family.vocabSize))},
      {"d_model", hidden},
      {"num_layers", std::move(layers)},
      {"context_len", get("max_position_embeddings", numberValue(family.positions))},
      {"tie_embeddings", get("tie_word_embeddings", boolValue(family.tied))},
      {"dtype", dtype()},
      {"norm", object({{"kind", stringValue("rms")}, {"eps", std::move(eps)}})},
      {"layer_pattern", stringValue(layerPattern)},
      {"mixers", std::move(mixing)},
      {"ffn_pattern", stringValue(ffnPattern)},
      {"ffns", std::move(ffns)},
      {"init", object({{"kind", stringValue("normal")},
                       {"std", get("initializer_range", numberValue(family.name.starts_with("mamba") ? 0.1 : 0.02))},
                       {"scale_output", std::move(scaleOutput)}})},
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
  return HuggingFaceModel{std::move(description), arrayValue(std::move(compared))};
}

bool json::isHuggingFace(const Value &root) {
  return !root.find("mixers") && llvm::any_of(llvm::ArrayRef<StringRef>{"model_type", "architectures", "text_config",
                                                                        "num_hidden_layers", "hidden_size"},
                                              [&](StringRef key) { return root.find(key); });
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
  if (const Value *nested = config.find("text_config"))
    return refuse("text_config", describe(*nested) + " is the part for text of a larger model's config, which is not "
                                                     "read");
  if (!type)
    return refuse("model_type", "is missing in what looks like a config.json of Hugging Face's transformers");
  if (type->kind != Kind::string)
    return refuse("model_type", describe(*type) + " is not a string");
  for (const Family &family : families)
    if (type->string == family.name)
      return Translation(config, family, dtypeGiven, errors).run();
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
