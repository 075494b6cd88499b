//===- ModelReader.cpp - JSON to ModelSpec ------------------------------------------------------------------------===//
// Types, ranges of single keys, unknown keys. What relates two keys is in ModelCheck.cpp.
#include "frontend/ModelReader.h"
#include "frontend/HuggingFace.h"
#include "frontend/Json.h"
#include "frontend/ModelImport.h"
#include "frontend/Recurrence.h"
#include "schedule/Slicing.h"
#include "schedule/Stages.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/Unicode.h"
#include <cmath>

using namespace braid;
using namespace braid::json;
using llvm::StringRef;

// Bounds that keep every product of dimensions within 64 bits; far above any model.
static constexpr int64_t maxHeads = 1 << 12, maxHeadDim = 1 << 12, maxLayers = 1 << 10;
static constexpr int maxNameWidth = 100;

static constexpr StringRef gates[] = {"silu", "sigmoid", "tanh", "relu", "gelu"};
static constexpr StringRef featureMaps[] = {"identity", "elu1", "relu", "relu2", "silu", "exp", "softmax"};

template <size_t N> static std::vector<StringRef> toNames(const std::array<std::string_view, N> &names) {
  return {names.begin(), names.end()};
}

const Value &braid::objectOrEmpty(Reader &parent, StringRef key, Errors &errors) {
  static const Value empty = [] {
    Value object;
    object.kind = Kind::object;
    return object;
  }();
  errors.defaults.try_emplace(llvm::json::fixUTF8(parent.pathOf(key)), llvm::json::Object());
  const Value *object = parent.objectAt(key);
  return object ? *object : empty;
}

static RopeScaling readScaling(const Value &object, const std::string &path, Errors &errors) {
  RopeScaling scaling;
  Reader r(object, path, errors);
  const std::string *kind = r.requireChoice("kind", {"linear", "llama3", "yarn"});
  if (!kind) {
    r.ignoreRest();
    return scaling;
  }
  scaling.kind = *kind;
  constexpr StringRef hint = "valid: a number";
  if (r.require("factor", hint))
    r.number("factor", scaling.factor, 1.0, 1e6);
  if (*kind != "linear")
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

/// alpha and beta of an object; alpha may be the word "deepnorm", a number once all layers are known.
static void readScale(Reader &r, ResidualScale &scale) {
  const Value *alpha = r.take("alpha");
  if (alpha)
    scale.deepnorm = alpha->kind == Kind::string && alpha->string == "deepnorm";
  if (alpha && !alpha->isNumber() && !scale.deepnorm)
    r.error("alpha", describe(*alpha) + " is not a number or \"deepnorm\"; valid: above 0 to 1e+06, or \"deepnorm\"");
  else if (!scale.deepnorm)
    r.number("alpha", scale.alpha, 0.0, 1e6, /*leastAllowed=*/false);
  r.number("beta", scale.beta, 0.0, 1e6, /*leastAllowed=*/false);
}

std::optional<ResidualScale> braid::readResidual(Reader &r, Errors &errors, const ModelSpec &model) {
  const Value *value = r.objectAt("residual");
  if (!value)
    return std::nullopt;
  ResidualScale scale = model.residual;
  Reader s(*value, r.pathOf("residual"), errors);
  readScale(s, scale);
  return scale;
}

/// alpha of "deepnorm": (residual sums)^(1/4), which is (2 num_layers)^(1/4) where layers have two parts (Wang et al. 2022).
static void resolveDeepnorm(ModelSpec &spec) {
  double alpha = std::pow(static_cast<double>(spec.residualSums()), 0.25);
  auto resolve = [&](ResidualScale &scale) {
    if (scale.deepnorm)
      scale.alpha = alpha;
  };
  auto resolvePart = [&](auto &part) {
    if (part.residual)
      resolve(*part.residual);
  };
  resolve(spec.residual);
  for (auto &[letter, mixer] : spec.mixers)
    std::visit(resolvePart, mixer);
  for (auto &[letter, ffn] : spec.ffns)
    std::visit(resolvePart, ffn);
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
  int64_t before = errors.number();
  r.boolean("qk_norm", spec.qkNorm);
  bool isRead = errors.number() == before;
  r.choice("qk_norm_over", spec.qkNormOver, {"head", "heads"});
  if (r.has("qk_norm_over") && !spec.qkNorm && isRead)
    r.error("qk_norm_over", "changes nothing without a norm; valid: together with qk_norm true");
  r.integer("window", spec.window, 0, maxTokens);
  r.number("scale", spec.scale, 0.0, 1e6, /*leastAllowed=*/false);
  r.choice("output_gate", spec.outputGate, gates);
  r.choice("output_gate_per", spec.outputGatePer, {"feature", "head"});
  if (r.has("output_gate_per") && !spec.outputGate)
    r.error("output_gate_per", "has no gate to shape; valid: together with output_gate, one of " + json::join(gates));
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
  return spec;
}

/// Whether it is null.
static bool readConv(Reader &r, Errors &errors, std::optional<ConvSpec> &conv) {
  bool off = false;
  if (const Value *value = r.objectAt("conv", /*nullable=*/true, &off)) {
    if (!conv)
      conv = ConvSpec{};
    Reader c(*value, r.pathOf("conv"), errors);
    c.integer("kernel", conv->kernel, 2, 16);
    c.boolean("bias", conv->bias);
  }
  if (off)
    conv.reset();
  return off;
}

/// What every scan has: the factor of q, and what happens to o.
static void readScanOutput(Reader &r, LsmSpec &spec, bool normAndGate = true) {
  r.number("scale", spec.scale, 0.0, 1e6, /*leastAllowed=*/false);
  if (normAndGate) {
    r.boolean("output_norm", spec.outputNorm);
    r.choice("output_gate", spec.outputGate, gates);
  }
  if (spec.kind != LsmKind::s4d) // whose output has neither norm nor gate
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
    f.error("g", "has no gate to be of; valid: together with output_gate, one of " + json::join(gates));
  r.boolean("projection_bias", spec.projectionBias);
  r.boolean("output_bias", spec.outputBias);
  r.number("min_step", spec.minStep, 0.0, 1e6);
  r.number("max_step", spec.maxStep, 0.0, 1e6, /*leastAllowed=*/false);
  r.boolean("norm_first", spec.normFirst);
  if (r.has("norm_first") && !(spec.outputNorm && spec.outputGate))
    r.error("norm_first",
            "changes nothing without a norm and a gate; valid: together with output_norm and output_gate");
}

static LsmSpec readLsm(Reader &r, Errors &errors, const LsmTraits &traits) {
  LsmSpec spec = traits.defaults;
  r.requireInteger("heads", spec.heads, 1, maxHeads);
  spec.keyHeads = spec.kvHeads = spec.heads;
  if (traits.has("key_heads"))
    r.integer("key_heads", spec.keyHeads, 1, maxHeads);
  if (traits.has("kv_heads"))
    r.integer("kv_heads", spec.kvHeads, 1, maxHeads);
  r.requireInteger("head_dim", spec.headDim, 1, maxHeadDim);
  spec.valueDim = traits.valueFactor * spec.headDim;
  // The channels of a Mamba layer are often one head, which is never a tile of a product.
  r.integer("value_dim", spec.valueDim, 1, traits.kind == LsmKind::mamba ? maxWidth : traits.valueFactor * maxHeadDim);

  if (traits.has("conv"))
    readConv(r, errors, spec.conv);
  if (traits.has("rope"))
    readRope(r, errors, spec.rope);

  if (traits.has("feature_map"))
    r.choice("feature_map", spec.featureMap, featureMaps);
  if (traits.has("slopes"))
    r.choice("slopes", spec.slopes, {"minimax", "transnormer"});
  if (traits.has("gate_rank"))
    r.integer("gate_rank", spec.gateRank, 1, maxWidth);
  if (traits.has("output_gate_rank"))
    r.integer("output_gate_rank", spec.outputGateRank, 0, maxWidth);
  if (traits.has("mix_rank"))
    r.integer("mix_rank", spec.mixRank, 1, maxWidth);
  if (traits.has("gate_divisor"))
    r.number("gate_divisor", spec.gateDivisor, 0.0, 1e6, /*leastAllowed=*/false);
  int64_t before = errors.number(); // no word on what follows from a key that is wrong
  if (traits.has("bcdt_norm"))
    r.boolean("bcdt_norm", spec.bcdtNorm);
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
  if (r.has("norm_eps") && traits.has("output_norm") && !spec.outputNorm && !spec.bcdtNorm && errors.number() == before)
    r.error("norm_eps", std::string("changes nothing without a norm; valid: together with output_norm true") +
                            (traits.has("bcdt_norm") ? " or bcdt_norm true" : ""));
  if (traits.kind == LsmKind::mamba2)
    readMamba2(r, errors, spec);
  if (spec.outputGateRank && !spec.outputGate)
    r.error("output_gate_rank", "has no gate to be of; valid: together with output_gate, one of " + json::join(gates));
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
  r.choice("output_glu", spec.outputGlu, gates);
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
    r.error("norm_first", "changes nothing without output_gate; valid: together with one of " + json::join(gates));
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

static std::optional<MixerSpec> readMixer(const Value &object, const std::string &path, Errors &errors,
                                          const ModelSpec &model) {
  std::vector<StringRef> kinds = {"attention", "mla"};
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
  double inputMultiplier = 1.0;
  r.number("input_multiplier", inputMultiplier, 0.0, 1e6, /*leastAllowed=*/false);
  auto with = [&](auto spec) {
    spec.residual = residual;
    spec.inputMultiplier = inputMultiplier;
    return spec;
  };
  if (*kind == "attention")
    return with(readAttention(r, errors));
  if (*kind == "mla")
    return with(readMla(r, errors));
  if (*kind == "recurrence")
    return with(readRecurrence(r, errors, model));
  for (const LsmTraits &traits : lsmInstances())
    if (*kind == traits.name)
      return with(readLsm(r, errors, traits));
  llvm_unreachable("kind is in the list");
}

/// An object of named parts, each named by one letter of a pattern.
template <typename Spec, typename Read>
static void readLetters(Reader &parent, StringRef key, StringRef example, std::map<char, Spec> &parts, Errors &errors,
                        const ModelSpec &model, bool required, Read read) {
  if (required && !parent.has(key)) {
    parent.take(key);
    return parent.error(key, ("is missing; valid: an object such as " + example).str());
  }
  const Value *object = parent.objectAt(key);
  if (!object)
    return;
  if (required && object->fields.empty())
    return parent.error(key, ("is empty; valid: an object such as " + example).str());
  for (const auto &[name, value] : object->fields) {
    std::string path = parent.pathOf(key) + "." + name;
    if (name.size() != 1 || !llvm::isAlpha(name[0])) {
      errors.report(path, "is not one letter; valid: a name of one letter, as the pattern uses it");
    } else if (value.kind != Kind::object) {
      errors.report(path, describe(value) + " is not an object");
    } else if (std::optional<Spec> spec = read(value, path, errors, model)) {
      parts.emplace(name[0], std::move(*spec));
    }
  }
}

static void readTrain(Reader &r, TrainSpec &train) {
  r.integer("batch", train.batch, 1, maxTokens);
  r.integer("seq_len", train.seqLen, 1, maxTokens);
  r.integer("accumulation_steps", train.accumulationSteps, 1, maxAccumulationSteps);
  r.integer("micro_batches", train.microBatches, 1, maxMicroBatches);
  r.number("learning_rate", train.learningRate, minLearningRate, maxLearningRate);
  train.minLearningRate = train.learningRate / 10;
  r.number("min_learning_rate", train.minLearningRate, 0.0, maxLearningRate);
  r.integer("steps", train.steps, 1, maxTrainSteps);
  train.warmupSteps = std::min<int64_t>(train.warmupSteps, train.steps / 10);
  r.integer("warmup_steps", train.warmupSteps, 0, maxTrainSteps);
  // The largest of these is still below 1 in f32.
  r.number("beta1", train.beta1, 0.0, 0.999999);
  r.number("beta2", train.beta2, 0.0, 0.9999999);
  r.number("eps", train.eps, 0.0, 1.0, /*leastAllowed=*/false);
  r.number("weight_decay", train.weightDecay, 0.0, 1e3);
  r.number("clip_norm", train.clipNorm, 0.0, 1e9);
  // Program files carry settings as numbers that a double holds.
  r.integer("seed", train.seed, 0, int64_t(1) << 53);
  r.choice("gradient_dtype", train.gradientDtype, {"f32", "bf16"});
}

/// Rates of a rank; nothing where there is no such key.
static std::optional<MachineSpec> readMachine(const Value *machine, const std::string &path, Errors &errors) {
  if (!machine)
    return std::nullopt;
  Reader m(*machine, path, errors);
  MachineSpec own;
  for (auto [name, value, leastAllowed] : {std::tuple("flops", &own.flops, false),
                                           {"bandwidth", &own.bandwidth, false},
                                           {"overhead", &own.overhead, true},
                                           {"link_bandwidth", &own.linkBandwidth, false},
                                           {"link_latency", &own.linkLatency, true}})
    if (m.require(name, "valid: a number, per second or in seconds"))
      m.number(name, *value, 0, 1e24, leastAllowed);
  return own;
}

/// What braid-tune can choose.
static void readChoice(Reader &r) {
  ScheduleSpec unused;
  std::string degrees, message;
  r.choice("pipeline", unused.pipeline, toNames(schedule::pipelineNames));
  r.integer("overlap_degree", unused.overlapDegree, 1, 16);
  r.string("overlap_degrees", degrees);
  if (failed(parseOverlapDegrees(degrees, unused, message)))
    r.error("overlap_degrees", message);
  r.choice("slicing", unused.slicing, toNames(schedule::slicingNames));
  r.integer("chunk_size", unused.chunkSize, 16, 128);
  r.choice("sp_algorithm", unused.spAlgorithm, {"auto", "ring", "all_gather", "scan"});
}

/// What braid-tune has written: nothing of it changes a program, but who edits it shall know what it can say.
static void readTuned(const Value &tuned, Errors &errors) {
  Reader t(tuned, "schedule.tuned", errors);
  (void)t.requireChoice("kind", {"measured", "predicted"});
  std::string text;
  for (const char *key : {"machine", "mesh", "description", "program", "cluster", "ranks", "cpu", "degrees"})
    t.string(key, text);
  int64_t count = 0;
  double number = 0;
  bool flag = false;
  t.integer("batch", count, 1, maxTokens);
  t.integer("seq_len", count, 1, maxTokens);
  t.integer("threads", count, 1, 1024);
  t.boolean("machine_given", flag);
  (void)readMachine(t.objectAt("rates"), "schedule.tuned.rates", errors);
  if (const Value *chosen = t.objectAt("chosen")) {
    Reader c(*chosen, t.pathOf("chosen"), errors);
    readChoice(c);
  }
  if (const Value *checked = t.objectAt("checked")) {
    Reader c(*checked, t.pathOf("checked"), errors);
    c.number("loss_tolerance", number, 0, 1e6);
    c.number("gradient_norm_tolerance", number, 0, 1e6);
  }
  const Value *evidence = t.take("evidence");
  if (!evidence)
    return;
  if (evidence->kind != Kind::array)
    return t.error("evidence", describe(*evidence) + " is not a list; valid: an object for every candidate");
  for (auto [i, candidate] : llvm::enumerate(evidence->items)) {
    std::string path = t.pathOf("evidence") + "[" + std::to_string(i) + "]";
    if (candidate.kind != Kind::object) {
      errors.report(path, describe(candidate) + " is not an object; valid: what one candidate took");
      continue;
    }
    Reader c(candidate, path, errors);
    readChoice(c);
    for (const char *key : {"predicted_ms", "measured_ms", "spread_ms"})
      c.number(key, number, 0, 1e12);
    c.string("dropped", text);
  }
}

static void readModel(const Value &root, ModelSpec &spec, Errors &errors) {
  Reader r(root, "", errors);
  r.choice("dtype", spec.dtype, {"f32", "bf16", "f64"});
  errors.doublePrecision = spec.dtype == "f64";
  r.string("name", spec.name);
  // It is printed, and an entry of program files and checkpoints.
  if (int width = llvm::sys::unicode::columnWidthUTF8(spec.name); width < 1 || width > maxNameWidth)
    r.error("name", llvm::formatv("\"{0}\" {1}; valid: 1 to {2} printable letters", shownText(spec.name, 40),
                                  width < 0    ? "has letters that cannot be printed"
                                  : width == 0 ? "is empty"
                                               : llvm::formatv("has {0} letters", width).str(),
                                  maxNameWidth)
                        .str());
  r.requireInteger("vocab_size", spec.vocabSize, 2, 1 << 24);
  r.requireInteger("d_model", spec.dModel, 1, maxWidth);
  r.requireInteger("num_layers", spec.numLayers, 1, maxLayers);
  r.integer("max_documents", spec.maxDocuments, 1, maxTokens);
  r.integer("context_len", spec.contextLen, 1, maxTokens);
  r.integer("decode_batch", spec.decodeBatch, 1, maxDecodeBatch);
  r.boolean("tie_embeddings", spec.tieEmbeddings);

  {
    std::string kind = "rms";
    Reader n(objectOrEmpty(r, "norm", errors), "norm", errors);
    n.choice("kind", kind, {"rms", "layer"});
    n.number("eps", spec.norm.eps, 0.0, 1.0, /*leastAllowed=*/false);
    spec.norm.kind = kind == "rms" ? NormKind::rms : NormKind::layer;
  }
  std::string placement = "pre";
  r.choice("norm_placement", placement, {"pre", "post", "sandwich", "output"});
  spec.normPlacement = placement == "pre"        ? NormPlacement::pre
                       : placement == "post"     ? NormPlacement::post
                       : placement == "sandwich" ? NormPlacement::sandwich
                                                 : NormPlacement::output;
  {
    Reader s(objectOrEmpty(r, "residual", errors), "residual", errors);
    s.choice("from", spec.residual.from, {"input", "normed"});
    readScale(s, spec.residual);
  }
  r.number("embedding_multiplier", spec.embeddingMultiplier, 0.0, 1e6, /*leastAllowed=*/false);
  r.number("logits_multiplier", spec.logitsMultiplier, 0.0, 1e6, /*leastAllowed=*/false);

  readLetters(r, "mixers", "{\"N\": {\"kind\": \"attention\", \"heads\": 8, \"head_dim\": 64}}", spec.mixers, errors,
              spec, /*required=*/true, readMixer);
  if (r.require("layer_pattern", "valid: letters of mixers, such as \"LLLN\""))
    r.string("layer_pattern", spec.layerPattern);
  int64_t before = errors.number();
  readLetters(r, "ffns", "{\"D\": {\"kind\": \"dense\", \"hidden\": 1024}}", spec.ffns, errors, spec,
              /*required=*/false, readFfn);
  if (r.has("ffn_pattern"))
    r.string("ffn_pattern", spec.ffnPattern);
  else if (spec.ffns.empty() && errors.number() == before)
    spec.ffnPattern = std::string(1, noPart);
  else if (spec.ffns.size() == 1)
    spec.ffnPattern = std::string(1, spec.ffns.begin()->first);
  else if (spec.ffns.size() > 1)
    r.error("ffn_pattern", "is missing; valid: letters of ffns, such as \"DMMM\" (only a single one needs no pattern)");
  r.take("ffn_pattern");
  readLetters(r, "injects", "{\"A\": {\"attention\": {\"heads\": 8, \"head_dim\": 64}}}", spec.injects, errors, spec,
              /*required=*/false, readInject);
  if (!spec.injects.empty())
    (void)r.require("inject_pattern", "valid: letters of injects, - for layers without one, such as \"---A\"");
  r.string("inject_pattern", spec.injectPattern);

  // Numbers that follow from a config's, on no line, are wrong where those are, which has been said.
  if (const Value *import = r.objectAt("import"); import && (import->line || !errors.any()))
    readImport(*import, spec, errors);
  if (const Value *init = r.objectAt("init")) {
    Reader i(*init, "init", errors);
    i.choice("kind", spec.init.kind, {"scaled", "normal", "xavier_uniform", "xavier_normal", "deepnorm"});
    i.number("std", spec.init.std, 0.0, 10.0, /*leastAllowed=*/false);
    i.number("gain", spec.init.gain, 0.0, 1e3, /*leastAllowed=*/false);
    if (i.has("gain") && !StringRef(spec.init.kind).starts_with("xavier"))
      i.error("gain",
              "changes nothing with kind \"" + spec.init.kind + "\"; valid: with xavier_uniform, xavier_normal");
    spec.init.scaleOutput = spec.init.kind == "scaled" || spec.init.kind == "normal";
    i.boolean("scale_output", spec.init.scaleOutput);
    i.integer("base_width", spec.init.baseWidth, 1, maxWidth);
  }
  if (const Value *train = r.objectAt("train")) {
    Reader t(*train, "train", errors);
    readTrain(t, spec.train);
  }
  if (const Value *schedule = r.objectAt("schedule")) {
    Reader s(*schedule, "schedule", errors);
    std::string layers = "none", message;
    s.string("recompute", layers);
    if (failed(parseRecompute(layers, spec.schedule, message)))
      s.error("recompute", message);
    int64_t budget = -1;
    s.integer("activation_budget", budget, 0, INT64_MAX);
    if (budget >= 0)
      spec.schedule.activationBudget = budget;
    s.choice("sp_algorithm", spec.schedule.spAlgorithm, {"auto", "ring", "all_gather", "scan"});
    s.choice("pipeline", spec.schedule.pipeline, toNames(schedule::pipelineNames));
    s.integer("overlap_degree", spec.schedule.overlapDegree, 1, 16);
    std::string degrees;
    s.string("overlap_degrees", degrees);
    if (failed(parseOverlapDegrees(degrees, spec.schedule, message)))
      s.error("overlap_degrees", message);
    std::string stages;
    s.string("stage_layers", stages);
    if (failed(parseStageLayers(stages, spec.schedule, message)))
      s.error("stage_layers", message);
    s.choice("stage_order", spec.schedule.stageOrder, toNames(schedule::stageOrderNames));
    s.choice("slicing", spec.schedule.slicing, toNames(schedule::slicingNames));
    s.integer("chunk_size", spec.schedule.chunkSize, 16, 128);
    spec.schedule.machine = readMachine(s.objectAt("machine"), "schedule.machine", errors);
    if (const Value *tuned = s.objectAt("tuned"))
      readTuned(*tuned, errors);
  }
}

llvm::FailureOr<ModelSpec> braid::parseModelSpec(StringRef text, StringRef filename, DiagnosticFn error,
                                                 llvm::ArrayRef<KeyOverride> overrides) {
  std::optional<Value> root = json::parse(text, filename, error);
  if (!root)
    return llvm::failure();
  std::string source = text.str(), config;
  if (root->kind == Kind::object && json::isHuggingFace(*root)) {
    Errors errors(*root, filename, error);
    bool dtypeGiven = llvm::any_of(overrides, [](const KeyOverride &key) { return key.path == "dtype"; });
    std::optional<json::HuggingFaceModel> model = json::translateHuggingFace(*root, dtypeGiven, errors);
    if (!model)
      return llvm::failure();
    root = std::move(model->description);
    config = json::textOf(model->compared);
    source = json::textOf(*root);
  }
  for (const KeyOverride &key : overrides)
    json::applyOverride(*root, key);
  Errors errors(*root, filename, error);
  if (root->kind != Kind::object) {
    errors.report("", "the file holds " + describe(*root) + "; valid: one object");
    return llvm::failure();
  }
  ModelSpec spec;
  spec.source = std::move(source);
  spec.config = std::move(config);
  readModel(*root, spec, errors);
  spec.defaults = llvm::formatv("{0}", llvm::json::Value(std::move(errors.defaults))).str();
  // Relations between keys mean something only once every key does.
  auto report = [&](const std::string &path, const std::string &message) { errors.report(path, message); };
  auto warn = [&](const std::string &path, const std::string &message) {
    spec.warnings.push_back(errors.shown(path) + ": " + message);
  };
  auto name = [&](const std::string &path) { return errors.nameOf(path); };
  if (!errors.any() && succeeded(checkModelSpec(spec, report, name)))
    checkModelWarnings(spec, warn, name);
  if (errors.any())
    return llvm::failure();
  resolveDeepnorm(spec);
  return spec;
}
