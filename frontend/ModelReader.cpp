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

// Far above any model.
static constexpr int64_t maxLayers = 1 << 10;
static constexpr int maxNameWidth = 100;

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

static constexpr NormPlacement placements[] = {NormPlacement::pre, NormPlacement::post, NormPlacement::sandwich,
                                               NormPlacement::output};

StringRef braid::nameOf(NormPlacement placement) {
  switch (placement) {
  case NormPlacement::pre: return "pre";
  case NormPlacement::post: return "post";
  case NormPlacement::sandwich: return "sandwich";
  case NormPlacement::output: return "output";
  }
  llvm_unreachable("all placements are above");
}

static NormPlacement readPlacement(Reader &r, llvm::ArrayRef<NormPlacement> valid, NormPlacement otherwise) {
  std::string text = nameOf(otherwise).str();
  r.choice("norm_placement", text, llvm::map_to_vector(valid, nameOf));
  const auto *found = llvm::find_if(valid, [&](NormPlacement placement) { return text == nameOf(placement); });
  return found == valid.end() ? otherwise : *found;
}

std::optional<NormPlacement> braid::readPlacement(Reader &r, const ModelSpec &model) {
  NormPlacement own =
      ::readPlacement(r, {NormPlacement::pre, NormPlacement::sandwich, NormPlacement::output}, model.normPlacement);
  return r.has("norm_placement") ? std::optional(own) : std::nullopt;
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
  r.choice("moment_dtype", train.momentDtype, {"f32", "bf16"});
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
  r.choice("stage_order", unused.stageOrder, toNames(schedule::stageOrderNames));
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
    n.boolean("bias", spec.norm.bias);
    if (n.has("bias") && spec.norm.kind == NormKind::rms)
      n.error("bias", "changes nothing with kind \"rms\"; valid: with layer");
  }
  spec.normPlacement = ::readPlacement(r, placements, NormPlacement::pre);
  {
    Reader s(objectOrEmpty(r, "residual", errors), "residual", errors);
    s.choice("from", spec.residual.from, {"input", "normed"});
    readScale(s, spec.residual);
  }
  r.boolean("embedding_norm", spec.embeddingNorm);
  r.number("embedding_multiplier", spec.embeddingMultiplier, 0.0, 1e6, /*leastAllowed=*/false);
  r.number("logits_multiplier", spec.logitsMultiplier, 0.0, 1e6, /*leastAllowed=*/false);
  r.number("logits_softcap", spec.logitsSoftcap, leastCap, mostCap);

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
    double room = 0; // none
    s.number("expert_room", room, 1.0, 1e6);
    if (room > 0)
      spec.schedule.expertRoom = room;
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
    s.choice("head_stages", spec.schedule.headStages, toNames(schedule::headStagesNames));
    s.choice("slicing", spec.schedule.slicing, toNames(schedule::slicingNames));
    s.integer("chunk_size", spec.schedule.chunkSize, 16, 128);
    spec.schedule.machine = readMachine(s.objectAt("machine"), "schedule.machine", errors);
    if (const Value *tuned = s.objectAt("tuned"))
      readTuned(*tuned, errors);
  }
}

llvm::FailureOr<ModelSpec> braid::parseModelSpec(StringRef text, StringRef filename, DiagnosticFn error,
                                                 llvm::ArrayRef<KeyOverride> overrides,
                                                 llvm::function_ref<void(ModelSpec &, KeyErrorFn)> complete) {
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
  if (!errors.any() && complete)
    complete(spec, report);
  if (!errors.any() && succeeded(checkModelSpec(spec, report, name)))
    checkModelWarnings(spec, warn, name);
  if (errors.any())
    return llvm::failure();
  resolveDeepnorm(spec);
  return spec;
}
