//===- MixerReader.cpp - JSON to the mixers of a ModelSpec --------------------------------------------------------===//
#include "frontend/ModelReader.h"
#include "frontend/Recurrence.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FormatVariadic.h"

using namespace braid;
using namespace braid::json;
using llvm::StringRef;

// Bounds that keep every product of dimensions within 64 bits; far above any model.
static constexpr int64_t maxHeadDim = 1 << 12;

// exp of it, times sums over many tokens, stays far from the end of f32.
static constexpr double mostGateCap = 40.0;

static constexpr StringRef featureMaps[] = {"identity", "elu1", "relu", "relu2", "silu", "exp", "softmax"};

static RopeScaling readScaling(const Value &object, const std::string &path, Errors &errors) {
  RopeScaling scaling;
  Reader r(object, path, errors);
  const std::string *kind = r.requireChoice("kind", {"linear", "llama3", "yarn", "proportional"});
  if (!kind) {
    r.ignoreRest();
    return scaling;
  }
  scaling.kind = *kind;
  constexpr StringRef hint = "valid: a number";
  if (*kind == "proportional" || r.require("factor", hint))
    r.number("factor", scaling.factor, 1.0, 1e6);
  if (*kind == "proportional" && r.require("share", hint))
    r.number("share", scaling.share, 0.0, 1.0, /*leastAllowed=*/false);
  if (*kind == "llama3" || *kind == "yarn")
    r.requireInteger("original_context_len", scaling.originalContextLen, 1, maxTokens);
  if (*kind == "llama3") {
    if (r.require("low_freq_factor", hint))
      r.number("low_freq_factor", scaling.lowFreqFactor, 0.0, 1e6, /*leastAllowed=*/false);
    if (r.require("high_freq_factor", hint))
      r.number("high_freq_factor", scaling.highFreqFactor, 0.0, 1e6, /*leastAllowed=*/false);
  } else if (*kind == "yarn") {
    r.number("beta_slow", scaling.betaSlow, 0.0, 1e6, /*leastAllowed=*/false);
    r.number("beta_fast", scaling.betaFast, 0.0, 1e6, /*leastAllowed=*/false);
    r.boolean("truncate", scaling.truncate);
    r.number("attention_factor", scaling.attentionFactor, 0.0, 1e6, /*leastAllowed=*/false);
  }
  return scaling;
}

/// Whether it is null.
static bool readRope(Reader &parent, Errors &errors, std::optional<RopeSpec> &rope) {
  bool off = false;
  const Value *value = parent.objectAt("rope", /*nullable=*/true, &off);
  if (off)
    rope.reset();
  if (!value)
    return off;
  rope = RopeSpec{};
  Reader r(*value, parent.pathOf("rope"), errors);
  r.number("theta", rope->theta, 1.0, 1e12);
  r.number("fraction", rope->fraction, 0.0, 1.0, /*leastAllowed=*/false);
  r.choice("layout", rope->layout, {"half", "interleaved"});
  if (const Value *scaling = r.objectAt("scaling", /*nullable=*/true))
    rope->scaling = readScaling(*scaling, r.pathOf("scaling"), errors);
  return false;
}

/// The gate on the output of attention.
static void readOutputGate(Reader &r, std::optional<std::string> &gate, std::string &per) {
  r.choice("output_gate", gate, outputGates);
  r.choice("output_gate_per", per, {"feature", "head"});
  if (r.has("output_gate_per") && !gate)
    r.error("output_gate_per",
            "has no gate to shape; valid: together with output_gate, one of " + json::join(outputGates));
}

AttentionSpec braid::readAttention(Reader &r, Errors &errors) {
  AttentionSpec spec;
  r.requireInteger("heads", spec.heads, 1, maxHeads);
  spec.kvHeads = spec.heads;
  r.integer("kv_heads", spec.kvHeads, 1, maxHeads);
  r.requireInteger("head_dim", spec.headDim, 1, maxHeadDim);
  readRope(r, errors, spec.rope);
  r.boolean("qkv_bias", spec.qkvBias);
  r.boolean("output_bias", spec.outputBias);
  r.boolean("sinks", spec.sinks);
  r.number("softcap", spec.softcap, leastCap, mostCap);
  int64_t before = errors.number();
  r.boolean("qk_norm", spec.qkNorm);
  bool isRead = errors.number() == before;
  r.choice("qk_norm_over", spec.qkNormOver, {"head", "heads"});
  if (r.has("qk_norm_over") && !spec.qkNorm && isRead)
    r.error("qk_norm_over", "changes nothing without a norm; valid: together with qk_norm true");
  r.integer("window", spec.window, 0, maxTokens);
  r.number("scale", spec.scale, 0.0, 1e6, /*leastAllowed=*/false);
  readOutputGate(r, spec.outputGate, spec.outputGatePer);
  return spec;
}

static MlaSpec readMla(Reader &r, Errors &errors) {
  MlaSpec spec;
  r.requireInteger("heads", spec.heads, 1, maxHeads);
  r.integer("q_rank", spec.qRank, 0, maxWidth);
  r.requireInteger("kv_rank", spec.kvRank, 1, maxHeadDim);
  r.requireInteger("head_dim", spec.headDim, 1, maxHeadDim);
  r.requireInteger("rope_dim", spec.ropeDim, 1, maxHeadDim);
  spec.valueDim = spec.headDim;
  r.integer("value_dim", spec.valueDim, 1, maxHeadDim);
  readRope(r, errors, spec.rope);
  r.number("scale", spec.scale, 0.0, 1e6, /*leastAllowed=*/false);
  r.number("norm_eps", spec.normEps, 0.0, 1.0, /*leastAllowed=*/false);
  readOutputGate(r, spec.outputGate, spec.outputGatePer);
  return spec;
}

static void readTaps(const Value &object, const std::string &path, Errors &errors, ConvSpec &conv,
                     bool isHgrn2 = false) {
  Reader r(object, path, errors);
  r.integer("kernel", conv.kernel, 2, 16);
  r.boolean("bias", conv.bias);
  if (!isHgrn2)
    return;
  r.choice("activation", conv.activation, {"silu"});
  r.boolean("decays", conv.decays);
}

/// Whether it is null.
static bool readConv(Reader &r, Errors &errors, std::optional<ConvSpec> &conv, bool isHgrn2 = false) {
  bool off = false;
  if (const Value *value = r.objectAt("conv", /*nullable=*/true, &off)) {
    if (!conv)
      conv = ConvSpec{};
    readTaps(*value, r.pathOf("conv"), errors, *conv, isHgrn2);
  }
  if (off)
    conv.reset();
  return off;
}

static ShortConvSpec readShortConv(Reader &r, Errors &errors, const ModelSpec &model) {
  ShortConvSpec spec;
  spec.width = model.dModel;
  r.integer("width", spec.width, 1, maxWidth);
  readTaps(objectOrEmpty(r, "conv", errors), r.pathOf("conv"), errors, spec.conv);
  r.boolean("projection_bias", spec.projectionBias);
  r.boolean("output_bias", spec.outputBias);
  return spec;
}

/// What every scan has: the factor of q, and what happens to o.
static void readScanOutput(Reader &r, LsmSpec &spec, bool normAndGate = true) {
  r.number("scale", spec.scale, 0.0, 1e6, /*leastAllowed=*/false);
  bool isRglru = spec.kind == LsmKind::rglru; // whose output has no norm; that of s4d has no gate either
  if (normAndGate)
    r.boolean("output_norm", spec.outputNorm);
  if (normAndGate || isRglru)
    r.choice("output_gate", spec.outputGate, outputGates);
  if (spec.kind != LsmKind::s4d && !isRglru)
    r.number("norm_eps", spec.normEps, 0.0, 1.0, /*leastAllowed=*/false);
}

/// What is not of all instances: factors and biases of the projections of a Mamba-2 mixer, bounds of its steps, and where
/// its norm stands.
static void readMamba2(Reader &r, Errors &errors, LsmSpec &spec) {
  ProjectionMultipliers &m = spec.projectionMultipliers;
  Reader f(objectOrEmpty(r, "projection_multipliers", errors), r.pathOf("projection_multipliers"), errors);
  for (auto [key, factor] : {std::pair("q", &m.q), {"k", &m.k}, {"v", &m.v}, {"g", &m.g}, {"dt", &m.dt}})
    f.number(key, *factor, 0.0, 1e6, /*leastAllowed=*/false);
  if (f.has("g") && !spec.outputGate)
    f.error("g", "has no gate to be of; valid: together with output_gate, one of " + json::join(outputGates));
  r.boolean("projection_bias", spec.projectionBias);
  r.boolean("output_bias", spec.outputBias);
  r.number("min_step", spec.minStep, 0.0, 1e6);
  r.number("max_step", spec.maxStep, 0.0, 1e6, /*leastAllowed=*/false);
  r.boolean("norm_first", spec.normFirst);
  if (r.has("norm_first") && !(spec.outputNorm && spec.outputGate))
    r.error("norm_first",
            "changes nothing without a norm and a gate; valid: together with output_norm and output_gate");
}

/// The ranks of RWKV-7, that of decays unless they are said, and whether its values are mixed with others.
static void readRwkv7(Reader &r, LsmSpec &spec) {
  r.boolean("value_mix", spec.valueMix);
  if (!spec.valueMix && r.has("value_rank"))
    r.error("value_rank", "changes nothing where values are not mixed; valid: together with value_mix true");
  spec.rateRank = spec.valueRank = spec.outputGateRank = spec.gateRank;
  r.integer("rate_rank", spec.rateRank, 1, maxWidth);
  r.integer("value_rank", spec.valueRank, 1, maxWidth);
  r.integer("output_gate_rank", spec.outputGateRank, 1, maxWidth);
  r.number("l2_eps", spec.l2Eps, 0.0, 1.0, /*leastAllowed=*/false);
}

static LsmSpec readLsm(Reader &r, Errors &errors, const LsmTraits &traits) {
  LsmSpec spec = traits.defaults;
  r.requireInteger("heads", spec.heads, 1, maxHeads);
  spec.keyHeads = spec.kvHeads = spec.heads;
  if (traits.has("key_heads"))
    r.integer("key_heads", spec.keyHeads, 1, maxHeads);
  if (traits.has("kv_heads"))
    r.integer("kv_heads", spec.kvHeads, 1, maxHeads);
  if (traits.kind == LsmKind::rglru) {
    r.requireInteger("value_dim", spec.valueDim, 1, maxHeadDim);
  } else {
    r.requireInteger("head_dim", spec.headDim, 1, maxHeadDim);
    spec.valueDim = traits.valueFactor * spec.headDim;
    // The channels of a Mamba layer are often one head, which is never a tile of a product.
    r.integer("value_dim", spec.valueDim, 1,
              traits.kind == LsmKind::mamba ? maxWidth : traits.valueFactor * maxHeadDim);
  }

  if (traits.has("conv"))
    readConv(r, errors, spec.conv, traits.kind == LsmKind::hgrn2);
  if (traits.has("rope"))
    readRope(r, errors, spec.rope);

  if (traits.has("feature_map"))
    r.choice("feature_map", spec.featureMap, featureMaps);
  if (traits.has("slopes"))
    r.choice("slopes", spec.slopes, {"minimax", "transnormer"});
  bool isKda = traits.kind == LsmKind::kda;
  if (traits.has("gate_rank"))
    r.integer("gate_rank", spec.gateRank, isKda ? 0 : 1, maxWidth);
  if (isKda)
    r.number("lower_bound", spec.lowerBound, -1e6, 0.0);
  if (traits.has("lower_bounds"))
    r.choice("lower_bounds", spec.lowerBounds, {"layers", "learned"});
  if (traits.kind == LsmKind::rwkv7)
    readRwkv7(r, spec);
  else if (traits.has("output_gate_rank"))
    r.integer("output_gate_rank", spec.outputGateRank, 0, maxWidth);
  if (traits.has("output_gate_bias"))
    r.boolean("output_gate_bias", spec.outputGateBias);
  if (traits.has("mix_rank"))
    r.integer("mix_rank", spec.mixRank, 1, maxWidth);
  if (traits.has("gate_softcap"))
    r.number("gate_softcap", spec.gateSoftcap, leastCap, mostGateCap);
  if (traits.has("gate_divisor"))
    r.number("gate_divisor", spec.gateDivisor, 0.0, 1e6, /*leastAllowed=*/false);
  int64_t before = errors.number(); // no word on what follows from a key that is wrong
  if (traits.has("bcdt_norm")) {
    r.boolean("bcdt_norm", spec.bcdtNorm);
    r.boolean("bcdt_norm_weights", spec.bcdtNormWeights);
  }
  if (!spec.bcdtNorm && r.has("bcdt_norm_weights"))
    r.error("bcdt_norm_weights", "changes nothing without such norms; valid: together with bcdt_norm true");
  if (traits.has("allow_neg_eigval"))
    r.boolean("allow_neg_eigval", spec.allowNegEigval);
  if (traits.has("mini_batch"))
    r.integer("mini_batch", spec.miniBatch, 1, maxMiniBatch);
  if (traits.has("inner_rate"))
    r.number("inner_rate", spec.innerRate, 0.0, 1e6, /*leastAllowed=*/false);
  if (traits.has("momentum"))
    r.boolean("momentum", spec.momentum);
  if (traits.has("decay_range"))
    r.range("decay_range", spec.decayRange);
  if (spec.decayRange[1] == 0)
    spec.decayRange[1] = static_cast<double>(spec.headDim);
  if (traits.has("step_range"))
    r.range("step_range", spec.stepRange);
  readScanOutput(r, spec, traits.has("output_norm"));
  if (traits.kind == LsmKind::mlstm && spec.outputNorm && spec.valueDim == 1)
    r.error("value_dim", "1 has a layer norm of one feature, which is 0 whatever it is; valid: 2 or more, or "
                         "output_norm false");
  if (r.has("norm_eps") && traits.has("output_norm") && !spec.outputNorm && !spec.bcdtNorm && errors.number() == before)
    r.error("norm_eps", std::string("changes nothing without a norm; valid: together with output_norm true") +
                            (traits.has("bcdt_norm") ? " or bcdt_norm true" : ""));
  if (traits.kind == LsmKind::mamba2)
    readMamba2(r, errors, spec);
  if (traits.kind == LsmKind::rglru) {
    r.boolean("projection_bias", spec.projectionBias);
    r.boolean("output_bias", spec.outputBias);
  }
  if (spec.outputGateRank && !spec.outputGate && traits.has("output_gate"))
    r.error("output_gate_rank",
            "has no gate to be of; valid: together with output_gate, one of " + json::join(outputGates));
  if (spec.outputGateBias && !spec.outputGate)
    r.error("output_gate_bias",
            "has no gate to be of; valid: together with output_gate, one of " + json::join(outputGates));
  return spec;
}

/// What a formula gives, as a text.
static void readFormula(Reader &r, StringRef key, recurrence::Parameter &p) {
  r.string(key, p.formulaText);
  p.distribution = "values";
  bool ok = true;
  p.formula = recurrence::parseTerm(p.formulaText, key, [&](StringRef, const std::string &message) {
    r.error(key, message);
    ok = false;
  });
  if (!ok)
    p.formula = recurrence::Term{}; // so that it counts as read
}

/// A weight of a recurrence: its initial value, or {"log_uniform": [1, 16], "per": "head"}.
static recurrence::Parameter readParameter(Reader &parent, StringRef key, Errors &errors) {
  using recurrence::Per;
  static constexpr StringRef kinds[] = {"value",   "values", "initial", "log_uniform", "softplus_inverse",
                                        "uniform", "normal"};
  recurrence::Parameter p;
  const Value *value = parent.take(key);
  if (value->kind != Kind::object) {
    parent.number(key, p.low, -1e6, 1e6);
    return p;
  }
  Reader r(*value, parent.pathOf(key), errors);
  std::optional<std::string> per;
  r.choice("per", per, {"head", "key", "value", "element", "row", "all", "model", "place"});
  for (Per each : {Per::head, Per::key, Per::value, Per::element, Per::row, Per::all, Per::model, Per::place})
    if (per && *per == nameOf(each))
      p.per = each;
  r.boolean("shared", p.shared);
  std::array<double, 2> range{0, 0};
  if (llvm::count_if(kinds, [&](StringRef kind) { return r.has(kind); }) != 1) {
    parent.error(key, "says not once what its initial values are; valid: one of " + json::join(kinds));
    r.ignoreRest();
  } else if (r.has("value")) {
    r.number("value", range[0], -1e6, 1e6);
  } else if (const Value *values = r.take("values")) {
    p.trained = false;
    p.distribution = "values";
    if (values->kind == Kind::string) {
      readFormula(r, "values", p);
    } else if (values->kind == Kind::number || values->kind == Kind::integer) { // one for all
      recurrence::Term number;
      r.number("values", number.number, -1e6, 1e6);
      p.formula = std::move(number);
    } else {
      r.numbers("values", p.values, -1e6, 1e6, maxHeads);
    }
  } else if (r.has("initial")) {
    readFormula(r, "initial", p);
  } else if (r.has("normal")) {
    p.distribution = "normal";
    r.number("normal", p.scale, 0.0, 1e6, /*leastAllowed=*/false);
  } else if (r.has("uniform")) {
    std::vector<double> bounds;
    p.distribution = "uniform";
    int64_t before = errors.number();
    r.numbers("uniform", bounds, -1e6, 1e6, 2);
    if (bounds.size() == 2 && bounds[0] < bounds[1])
      range = {bounds[0], bounds[1]};
    else if (errors.number() == before)
      r.error("uniform",
              "is not a list of two numbers [low, high] with low below high; valid: two from -1e+06 to 1e+06");
  } else {
    p.distribution = r.has("log_uniform") ? "log_uniform" : "softplus_inverse";
    r.range(p.distribution, range);
  }
  p.low = range[0];
  p.high = range[1];
  return p;
}

/// The objects `inputs` and `parameters`; null when one is wrong.
static std::shared_ptr<recurrence::Recurrence> readEquations(Reader &r, Errors &errors) {
  static constexpr size_t most = 64;
  auto result = std::make_shared<recurrence::Recurrence>();
  bool ok = true;
  auto error = [&](StringRef key, const std::string &message) {
    r.error(key, message);
    ok = false;
  };
  auto isName = [&](const std::string &key, StringRef name) {
    static constexpr StringRef reserved[] = {"x", "M", "M_prev", "M_0", "S", "z", "I", "o"};
    llvm::SmallVector<StringRef> parts(1, name);
    if (StringRef(key).starts_with("parameters.")) {
      parts.clear();
      name.split(parts, '.');
    }
    bool valid = name.size() <= 32 && llvm::all_of(parts, [](StringRef part) {
                   return !part.empty() && !llvm::isDigit(part[0]) &&
                          llvm::all_of(part, [](char c) { return llvm::isAlnum(c) || c == '_'; });
                 });
    if (!valid || llvm::is_contained(reserved, name))
      error(key, valid ? "is a name of its own meaning; valid: any but " + json::join(reserved)
                       : "is no name; valid: letters, digits and _, at most 32, a letter first (parameters: such "
                         "parts with . between)");
    return valid;
  };
  auto checkEquation = [&](const char *key, const Value *given, const std::string &equation, const char *valid) {
    bool blank = StringRef(equation).trim().empty();
    if (given && given->kind == Kind::string && blank)
      error(key, std::string("is empty; ") + valid);
    ok &= !blank;
  };
  constexpr const char *validState = "valid: an equation such as \"M = exp(g) M + k^T v\"",
                       *validOutput = "valid: an equation such as \"o = q M\"";
  const Value *state = r.require("state", validState), *output = r.require("output", validOutput);
  if (state)
    r.string("state", result->state);
  if (output)
    r.string("output", result->output);
  checkEquation("state", state, result->state, validState);
  checkEquation("output", output, result->output, validOutput);
  if (r.require("inputs", "valid: an object such as {\"q\": \"linear(x)\"}")) {
    const Value *inputs = r.objectAt("inputs");
    ok &= inputs != nullptr;
    if (inputs && inputs->fields.size() > most)
      error("inputs", llvm::formatv("has {0} names; valid: at most {1}", inputs->fields.size(), most).str());
    for (const auto &[name, value] : inputs &&ok ? inputs->fields : std::vector<Field>()) {
      std::string key = "inputs." + name;
      if (!isName(key, name))
        continue;
      if (value.kind != Kind::string) {
        error(key, describe(value) + " is not a string such as \"linear(x)\"");
      } else if (auto term = recurrence::parseTerm(value.string, key, error)) {
        result->inputs.push_back({name, std::move(*term)});
      }
    }
  } else {
    ok = false;
  }
  if (const Value *parameters = r.objectAt("parameters")) {
    int64_t before = errors.number();
    Reader p(*parameters, r.pathOf("parameters"), errors);
    if (parameters->fields.size() > most)
      error("parameters", llvm::formatv("has {0} names; valid: at most {1}", parameters->fields.size(), most).str());
    for (const auto &[name, value] : parameters->fields) {
      if (isName("parameters." + name, name))
        result->parameters.emplace_back(name, readParameter(p, name, errors));
      else
        p.take(name);
      if (result->definition(name))
        error("parameters." + name, "is a name in inputs too; valid: another name");
    }
    ok &= errors.number() == before;
  }
  return ok ? result : nullptr;
}

static RecurrenceSpec readRecurrence(Reader &r, Errors &errors, const ModelSpec &model) {
  RecurrenceSpec spec;
  r.requireInteger("heads", spec.heads, 1, maxHeads);
  spec.keyHeads = spec.kvHeads = spec.heads;
  r.requireInteger("head_dim", spec.headDim, 1, maxHeadDim);
  spec.valueDim = spec.headDim;
  r.integer("value_dim", spec.valueDim, 1, maxHeadDim);
  r.integer("mini_batch", spec.miniBatch, 1, maxMiniBatch);
  for (StringRef key : {"kv_heads", "key_heads"})
    r.refuse(key,
             "is said where what has fewer heads is computed; valid: inputs such as \"k\": \"linear(x, heads=2)\"");
  bool noConv = readConv(r, errors, spec.conv);
  bool noRope = readRope(r, errors, spec.rope);
  readScanOutput(r, spec);
  r.choice("output_glu", spec.outputGlu, outputGates);
  if (spec.outputGlu && spec.outputGate)
    r.error("output_glu", "a gate beside output_gate; valid: one of them");
  if (spec.outputGlu && spec.outputNorm)
    r.error("output_glu",
            "takes o as it is, but output_norm is true; valid: with output_norm false, and layer_norm(..) "
            "in output");
  r.boolean("norm_first", spec.normFirst);
  if (r.has("norm_groups")) {
    int64_t groups = 1;
    r.integer("norm_groups", groups, 1, maxHeads * maxHeadDim);
    spec.normGroups = groups;
  }
  r.take("norm_groups");
  for (StringRef key : {"norm_first", "norm_groups"})
    if (r.has(key) && !spec.outputNorm)
      r.error(key, "changes nothing with output_norm false; valid: together with output_norm true");
  if (r.has("norm_first") && !spec.outputGate)
    r.error("norm_first",
            "changes nothing without output_gate; valid: together with one of " + json::join(outputGates));
  std::shared_ptr<recurrence::Recurrence> equations = readEquations(r, errors);
  if (!equations || spec.heads < 1 || spec.headDim < 1 || model.numLayers < 1 || model.dModel < 1)
    return spec;
  equations->gated = spec.outputGate || spec.outputGlu;
  equations->normed = spec.outputNorm;
  auto error = [&](StringRef key, const std::string &message) { r.error(key, message); };
  bool analyzed = succeeded(analyze(*equations, recurrence::sizesOf(model, spec), error));
  for (auto [key, function] : {std::pair("conv", "conv"), std::pair("rope", "rope")})
    if (r.has(key) && !equations->calls(function))
      r.error(key, llvm::formatv("changes nothing: no input calls {0}(..); valid: where one does", function).str());
  if (noConv && equations->calls("conv"))
    r.error("conv", "is null, but an input calls conv(..); valid: an object such as {\"kernel\": 4}");
  if (noRope && equations->calls("rope"))
    r.error("rope", "is null, but an input calls rope(..); valid: an object such as {\"theta\": 10000}");
  bool norms = equations->normed || equations->calls("layer_norm") || equations->calls("rms_norm") ||
               !equations->normWeight.empty();
  if (r.has("norm_eps") && analyzed && !norms)
    r.error("norm_eps", "changes nothing without a norm; valid: with output_norm true, or where layer_norm(..) or "
                        "rms_norm(..) has no number of its own");
  if (r.has("mini_batch") && analyzed && !equations->inner)
    r.error("mini_batch", "changes nothing without a gradient step; valid: where state calls grad(..)");
  spec.recurrence = equations;
  return spec;
}

std::optional<MixerSpec> braid::readMixer(const Value &object, const std::string &path, Errors &errors,
                                          const ModelSpec &model) {
  std::vector<StringRef> kinds = {"attention", "mla", "short_conv"};
  for (const LsmTraits &traits : lsmInstances())
    kinds.push_back(traits.name);
  kinds.push_back("recurrence");
  Reader r(object, path, errors);
  const std::string *kind = r.requireChoice("kind", kinds);
  if (!kind) {
    r.ignoreRest();
    return std::nullopt;
  }
  std::optional<ResidualScale> residual = readResidual(r, errors, model);
  std::optional<NormPlacement> placement = readPlacement(r, model);
  double inputMultiplier = 1.0;
  r.number("input_multiplier", inputMultiplier, 0.0, 1e6, /*leastAllowed=*/false);
  auto with = [&](auto spec) {
    spec.residual = residual;
    spec.normPlacement = placement;
    spec.inputMultiplier = inputMultiplier;
    return spec;
  };
  if (*kind == "attention")
    return with(readAttention(r, errors));
  if (*kind == "mla")
    return with(readMla(r, errors));
  if (*kind == "short_conv")
    return with(readShortConv(r, errors, model));
  if (*kind == "recurrence")
    return with(readRecurrence(r, errors, model));
  for (const LsmTraits &traits : lsmInstances())
    if (*kind == traits.name)
      return with(readLsm(r, errors, traits));
  llvm_unreachable("kind is in the list");
}
