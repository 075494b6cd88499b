//===- HuggingFaceRotations.cpp - what configs of transformers say of rotations ------------------------------------===//
#include "frontend/HuggingFaceTranslation.h"
#include "frontend/ModelSpec.h"
#include <cmath>

using namespace braid;
using namespace braid::json;
using llvm::StringRef;

/// The share of a head that turns, as far as the object of rotations does not say it: partial_rotary_factor, or what
/// rotary_dim is of a head.
Value Translation::turnedShare(const Value &headDim) {
  const Value *share = family.turns != 1 || family.readsTurns ? take("partial_rotary_factor") : nullptr;
  const Value *dim = family.name == "minimax_m2" ? takeOptional("rotary_dim") : nullptr;
  if (dim && integerIn(headDim, INT32_MAX)) {
    if (!integerIn(*dim, headDim.integer) || dim->integer % 2) {
      errors.report("rotary_dim", llvm::formatv("{0} is no number of features that turn; valid: an even number up to "
                                                "head_dim, {1}",
                                                describe(*dim), headDim.integer)
                                      .str());
      return named(numberValue(family.turns), "partial_rotary_factor");
    }
    compare({"rotary_dim"}, *dim, *dim);
  }
  if (share)
    return named(*share, "partial_rotary_factor");
  if (dim && integerIn(headDim, INT32_MAX))
    return named(numberValue(dim->number / headDim.number), "rotary_dim", dim->line);
  return named(numberValue(family.turns), "partial_rotary_factor");
}

/// An object of rotations, `key` in the config, whose rope_type is not "default".
Value Translation::ropeScaling(const Value &rope, StringRef key, StringRef type, StringRef layers) {
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
    all.origin = (prefix + key).str(), all.line = rope.line;
    return all;
  };
  if (type == "linear") {
    fields.push_back({"factor", require("factor")});
    return scaling();
  }
  if (type == "proportional") {
    fields.push_back({"factor", find("factor").value_or(numberValue(1.0))});
    fields.push_back({"share", find("partial_rotary_factor").value_or(numberValue(1.0))});
    return scaling();
  }
  Value context = get("max_position_embeddings", numberValue(family.positions)), original = context;
  const Value *own = layers.empty() ? takeOptional("original_max_position_embeddings") : nullptr;
  if (own) // before the object's
    original = named(*own, "original_max_position_embeddings");
  else if (std::optional<Value> v = find("original_max_position_embeddings"))
    original = std::move(*v);
  std::vector<std::string> originals = {"rope_scaling.original_max_position_embeddings",
                                        "rope_parameters." + (layers.empty() ? "" : layers.str() + ".") +
                                            "original_max_position_embeddings"};
  if (layers.empty())
    originals.insert(originals.begin(), "original_max_position_embeddings");
  bool isUsual = family.hasSinks && isUsualRopeOfGptOss(rope);
  if (!isUsual)
    originals.push_back("max_position_embeddings");
  compare(originals, original, isUsual ? original : numberValue(family.positions));
  if (type == "llama3") {
    for (StringRef name : {"factor", "low_freq_factor", "high_freq_factor"})
      fields.push_back({name.str(), require(name)});
  } else {
    std::optional<Value> factor = find("factor"), attention = find("attention_factor"), mscale = find("mscale"),
                         ofAll = find("mscale_all_dim");
    if (const Value *null = rope.find("factor"); !factor && null && original.number > 0)
      factor = named(numberValue(context.number / original.number), (key + ".factor").str(), null->line);
    fields.push_back({"factor", factor ? *factor : require("factor")});
    for (const std::optional<Value> &v : {mscale, ofAll})
      if (v && !v->isNumber())
        errors.report(v->origin, describe(*v) + " is not a number");
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

Value Translation::rope(const Value &headDim, StringRef layers) {
  bool isLocal = layers == "sliding_attention";
  StringRef thetaKey = isLocal ? "rope_local_base_freq" : "rope_theta";
  double usualTheta = isLocal ? family.localTheta : family.theta;
  Value theta = named(numberValue(usualTheta), thetaKey);
  bool readsTurns = family.turns != 1 || family.readsTurns;
  Value turns = turnedShare(headDim);
  const Value *own = isLocal && !family.isGemma ? nullptr : takeOptional(thetaKey);
  if (own)
    theta = named(*own, thetaKey);
  const Value *rope = takeOptional("rope_parameters"), *older = isLocal ? nullptr : takeOptional("rope_scaling");
  std::string ofParameters = layers.empty() ? "rope_parameters" : ("rope_parameters." + layers).str(),
              key = older ? "rope_scaling" : ofParameters;
  if (rope && older)
    errors.report(key, "stands beside rope_parameters; valid: one of the two keys");
  if (rope && rope != older && !layers.empty()) {
    rope = rope->find(layers); // of what is no object nothing, which turnByTypes says
    rope = rope && rope->kind == Kind::null ? nullptr : rope;
  }
  rope = older ? older : rope;
  const Value none = family.hasSinks                                          ? named(usualRopeOfGptOss(), key)
                     : family.name == "lfm3" && layers != "sliding_attention" ? named(usualRopeOfLfm3(), key)
                                                                              : Value();
  rope = rope || none.kind == Kind::null ? rope : &none;
  bool isUsual = family.hasSinks && rope->kind == Kind::object && isUsualRopeOfGptOss(*rope);
  std::optional<Value> scaling;
  auto compareType = [&](StringRef type) {
    std::vector<std::string> keys = {ofParameters + ".rope_type", ofParameters + ".type"};
    if (!isLocal && !isLfm3())
      keys.insert(keys.begin(), {"rope_scaling.rope_type", "rope_scaling.type"});
    const Value *usual = family.hasSinks && !isUsual ? nullptr : none.find("rope_type");
    compare(keys, stringValue(type), usual ? *usual : stringValue("default"));
  };
  auto inObjects = [&](StringRef field) {
    std::vector<std::string> keys = {ofParameters + "." + field.str()};
    if (!isLocal && !isLfm3())
      keys.insert(keys.begin(), ("rope_scaling." + field).str());
    return keys;
  };
  if (rope && rope->kind != Kind::object) {
    errors.report(key, describe(*rope) + " is not an object or null");
  } else if (rope) {
    static constexpr StringRef all[] = {"default", "linear", "llama3", "yarn", "proportional"};
    // transformers takes yarn of phi3 for longrope, and knows no others there.
    llvm::ArrayRef<StringRef> types(all, family.name == "phi3" || family.isGriffin ? 1
                                         : isLocal                                 ? 2
                                         : readsTurns                              ? 4
                                                                                   : 5);
    static constexpr std::pair<StringRef, StringRef> readBy[] = {
        {"factor", "linear, llama3, yarn, proportional"},
        {"partial_rotary_factor", "proportional"},
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
    if (!layers.empty() && older && spelled && !type)
      errors.report(key + ".type", "is not what transformers reads of " + configOf(family.name) +
                                       ", which then turns nothing slower; valid: rope_type");
    StringRef name = spelled && spelled->kind == Kind::string ? StringRef(spelled->string) : "default";
    std::vector<StringRef> valid = {"rope_type", "rope_theta"};
    if (readsTurns)
      valid.push_back("partial_rotary_factor");
    for (auto [field, by] : readBy)
      if (by.contains(name))
        valid.push_back(field);
    if (spelled && (spelled->kind != Kind::string || !llvm::is_contained(types, name)))
      errors.report(key + (type ? ".rope_type" : ".type"),
                    describe(*spelled) +
                        (name == "dynamic" || name == "longrope"
                             ? " has other frequencies for longer texts, which is not computed"
                             : " is not computed") +
                        "; valid: " + join(types));
    else
      compareType(name);
    if (name != "default" && llvm::is_contained(types, name))
      scaling = ropeScaling(*rope, key, name, layers);
    for (auto [field, by] : readBy)
      if (by.contains(name) && field != "original_max_position_embeddings" && field != "partial_rotary_factor") {
        Value usual = name == "proportional"         ? numberValue(1.0)
                      : field == "beta_fast"         ? numberValue(int64_t(32))
                      : field == "beta_slow"         ? numberValue(int64_t(1))
                      : field == "truncate"          ? boolValue(!isUsual)
                      : isUsual && field == "factor" ? *none.find(field)
                                                     : Value();
        const Value *given = rope->find(field);
        compare(inObjects(field), given && given->kind != Kind::null ? *given : usual, usual);
      }
    for (const Field &field : rope->fields) {
      std::string path = key + "." + field.name;
      if (field.name == "rope_theta") {
        if (own && !isEqual(*own, field.value) && !isBailing()) // of which the object's goes before
          errors.report(path, describe(field.value) + " is not " + thetaKey.str() + " " + describe(*own) +
                                  "; valid: one of the two keys");
        theta = named(field.value, path);
      } else if (field.name == "partial_rotary_factor") {
        turns = named(field.value, path);
        if (!readsTurns && name != "proportional" && !isEqual(field.value, numberValue(int64_t(1))))
          errors.report(path, describe(field.value) + " is not computed; valid: 1");
      } else if (family.splitsLinear && (field.name == "mrope_section" || field.name == "mrope_interleaved")) {
        // Of text all three positions are one.
      } else if (field.name != "type" && !llvm::is_contained(valid, field.name) && llvm::is_contained(types, name)) {
        errors.report(path, "unknown key of " + configOf(family.name) + " with rope_type \"" + name.str() +
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
  std::vector<std::string> thetas = inObjects("rope_theta");
  if (!isLocal || family.isGemma)
    thetas.push_back(thetaKey.str());
  compare(thetas, theta, numberValue(usualTheta));
  // A share that rotary_dim says may stand elsewhere, where transformers has written it. An object of lfm3 without a
  // share, which says its type, turns all pairs; without an object half of them turn.
  std::vector<std::string> shares = alsoOwn("partial_rotary_factor");
  std::vector<Value> whole;
  if (isLfm3() && !isLocal) {
    shares = {ofParameters + ".partial_rotary_factor", ofParameters + ".rope_type"};
    for (StringRef type : {"default", "linear", "llama3", "yarn", "proportional"})
      if (isEqual(turns, numberValue(1.0)))
        whole.push_back(stringValue(type));
  }
  compare(shares, turns,
          llvm::is_contained(known, "rotary_dim") && config.find("rotary_dim") ? turns
          : none.find("partial_rotary_factor")                                 ? *none.find("partial_rotary_factor")
                                                                               : numberValue(family.turns),
          /*null=*/nullptr, whole);
  std::vector<Field> fields = {{"theta", std::move(theta)}};
  if (family.turnsNeighbours)
    fields.push_back({"layout", stringValue("interleaved")});
  if (readsTurns) {
    // transformers cuts what is no whole number of features, a description rounds it.
    double width = turns.number * headDim.number, whole = std::floor(width);
    // Of a share that the config does not say, the width is what is wrong.
    StringRef said = StringRef(turns.origin).drop_front(prefix.size());
    bool isSaid = said.contains('.') || config.find(said), isRounded = whole == std::round(width);
    if (turns.isNumber() && headDim.isNumber() && headDim.number > 0 && !(isSaid && isRounded)) {
      if (std::fmod(whole, 2) != 0 || whole < 2)
        errors.report(
            isSaid ? turns.origin : headDim.origin,
            isSaid ? llvm::formatv("{0} of {1} {2} turns {3} features; valid: a fraction that turns an "
                                   "even number, at least 2",
                                   describe(turns), headDim.origin, describe(headDim), static_cast<int64_t>(whole))
                         .str()
                   : llvm::formatv("{0}, of which a share of {1} turns, {2} features; valid: a width of which "
                                   "an even number turns, at least 2",
                                   describe(headDim), describe(turns), static_cast<int64_t>(whole))
                         .str());
      if (!isRounded)
        turns = named(numberValue(whole / headDim.number), turns.origin, turns.line);
    }
    fields.push_back({"fraction", std::move(turns)});
  }
  if (scaling)
    fields.push_back({"scaling", std::move(*scaling)});
  return object(std::move(fields));
}

/// Whether rotations say where a token stands.
bool Translation::turns() {
  const Value *given = family.isOlmoHybrid ? takeOptional("rope_parameters") : nullptr;
  if (const Value *theta = given ? given->find("rope_theta") : nullptr; theta && theta->kind == Kind::null) {
    compare({"rope_parameters.rope_theta"}, *theta, numberValue(family.theta), /*null=*/theta);
    for (StringRef key : {"rope_theta", "rope_scaling"})
      only(key, Value());
    return false;
  }
  if (!family.isGranite || !family.hasMamba)
    return family.theta > 0 && family.localTheta == 0; // by types of layers: turnByTypes
  Value type = get("position_embedding_type", Value(), /*nullable=*/true);
  bool isRope = isEqual(type, stringValue("rope"));
  if (!isRope && type.kind != Kind::null && !isEqual(type, stringValue("nope")))
    errors.report("position_embedding_type", describe(type) + " is not computed; valid: \"rope\", \"nope\", null");
  if (!isRope)
    for (StringRef key : {"rope_theta", "rope_parameters", "rope_scaling"})
      (void)take(key);
  return isRope;
}
