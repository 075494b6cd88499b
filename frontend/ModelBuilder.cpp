//===- ModelBuilder.cpp - entry points over one set of parameters -------------------------------------------------===//
#include "frontend/ModelBuilder.h"
#include "frontend/EntryBuilder.h"
#include "frontend/ModelImport.h"
#include "frontend/Recurrence.h"
#include "mlir/IR/Verifier.h"

using namespace mlir;
using namespace braid;

namespace {

class ModelBuilder {
public:
  ModelBuilder(MLIRContext *context, const ModelSpec &spec)
      : spec(spec), types(floatTypesOf(spec, context)), plan(planLayers(spec)) {
    module = ModuleOp::create(NameLoc::get(StringAttr::get(context, spec.name)));
  }
  /// Null: reported.
  OwningOpRef<ModuleOp> build(DiagnosticFn error);

private:
  /// The layer functions for one entry shape, built once each.
  const LayerTable &layersFor(EntryShape entry);
  void collectParameters();
  NamedTensor normTensor(StringRef part, double value) const;
  DictionaryAttr metadata();

  void buildInit();
  void buildForward(bool training);
  void buildCached(StringRef name, int64_t tokens);

  /// All parameters as arguments of the entry.
  SmallVector<Value> parameters(EntryBuilder &entry);
  ValueRange layerWeights(ArrayRef<Value> all) const { return all.slice(1, numLayerWeights); }
  Value embed(EntryBuilder &entry, ArrayRef<Value> all, Value tokens);
  Value finalNorm(EntryBuilder &entry, ArrayRef<Value> all, Value x);
  Value head(ArrayRef<Value> all) const { return spec.tieEmbeddings ? all.front() : all.back(); }
  Value logits(EntryBuilder &entry, ArrayRef<Value> all, Value x);
  /// Loads of the experts as gradients of what they correct.
  void returnLoads(EntryBuilder &entry, const LayerTable &layers, ArrayRef<Value> loads);

  const ModelSpec &spec;
  FloatTypes types;
  std::vector<LayerGroup> plan;
  OwningOpRef<ModuleOp> module;
  std::map<std::tuple<int64_t, int64_t, bool>, LayerTable> tables;
  std::vector<NamedTensor> tensors; ///< embedding, layers in plan order, final norm, head
  size_t numLayerWeights = 0;
};

} // namespace

const LayerTable &ModelBuilder::layersFor(EntryShape entry) {
  auto [it, isNew] = tables.try_emplace({entry.batch, entry.tokens, entry.cached});
  if (!isNew)
    return it->second;
  std::map<std::tuple<std::string, char, bool, int64_t>, Layer> built;
  for (const LayerGroup &group : plan) {
    std::vector<Layer> &layers = it->second.emplace_back();
    for (const LayerRun &run : group.runs) {
      // Without a backward there is nothing to compute again.
      bool recompute = run.recompute && !entry.cached;
      int64_t overlapDegree = entry.cached ? 0 : run.overlapDegree;
      auto [layer, first] = built.try_emplace({run.mixers, run.ffn, recompute, overlapDegree});
      if (first)
        layer->second = buildLayer(spec, *module, entry, run.mixers, run.ffn, {recompute, overlapDegree});
      layers.push_back(layer->second);
    }
  }
  return it->second;
}

NamedTensor ModelBuilder::normTensor(StringRef part, double value) const {
  return {("final_norm." + part).str(),
          {spec.dModel},
          types.wide,
          {},
          {"embed"},
          Init::constant(value),
          /*decay=*/false,
          true};
}

void ModelBuilder::collectParameters() {
  const LayerTable &layers = layersFor({spec.train.batch, spec.train.seqLen, false});
  Dim words(spec.vocabSize, "vocab"), model(spec.dModel, "embed");
  auto table = [&](StringRef name, ArrayRef<Dim> dims) {
    tensors.push_back(
        {name.str(), sizesOf(dims), types.element, {}, namesOf(dims), Init::normal(spec.init.std), true, true});
  };
  table("embed.weight", {words, model});
  for (auto [group, groupLayers] : llvm::zip_equal(plan, layers))
    for (auto [run, layer] : llvm::zip_equal(group.runs, groupLayers))
      for (const WeightDecl &w : layer.weights) {
        NamedTensor &t =
            tensors.emplace_back(layerTensor(group, run, "", w.name, RankedTensorType::get(w.shape, w.element)));
        t.dims = w.dims;
        t.init = w.init;
        if (w.init.ofLayer)
          for (int32_t layer : run.layers)
            llvm::append_range(t.init.values, w.init.ofLayer(layer));
        t.decay = w.decay;
        t.trained = w.trained;
        t.rateScale = w.rateScale;
        t.correctionRate = w.correctionRate;
      }
  numLayerWeights = tensors.size() - 1;
  if (spec.normPlacement != NormPlacement::post) {
    tensors.push_back(normTensor("weight", 1.0));
    if (spec.norm.kind == NormKind::layer)
      tensors.push_back(normTensor("bias", 0.0));
  }
  if (!spec.tieEmbeddings)
    table("head.weight", {model, words});
}

//===- Entry points -----------------------------------------------------------------------------------------------===//

SmallVector<Value> ModelBuilder::parameters(EntryBuilder &entry) {
  SmallVector<Value> values;
  for (const NamedTensor &t : tensors)
    values.push_back(entry.argument(t, "parameter"));
  return values;
}

Value ModelBuilder::embed(EntryBuilder &entry, ArrayRef<Value> all, Value tokens) {
  auto shape = cast<RankedTensorType>(tokens.getType()).getShape();
  Value x =
      EmbedOp::create(entry.builder, entry.loc("x"), entry.tensor({shape[0], shape[1], spec.dModel}), tokens, all[0]);
  return entry.scaled("x", x, spec.embeddingMultiplier);
}

Value ModelBuilder::finalNorm(EntryBuilder &entry, ArrayRef<Value> all, Value x) {
  size_t at = 1 + numLayerWeights;
  if (spec.normPlacement != NormPlacement::post)
    x = entry.norm("final_norm", x, all[at], spec.norm.kind == NormKind::layer ? all[at + 1] : Value());
  // The smaller side of the product; under a base width logits shrink with the width.
  return entry.scaled("head_input", x, spec.logitsMultiplier / spec.widthRatio());
}

/// What the host samples from: not rounded.
Value ModelBuilder::logits(EntryBuilder &entry, ArrayRef<Value> all, Value x) {
  auto shape = cast<RankedTensorType>(x.getType()).getShape();
  Type type = entry.wide({shape[0], shape[1], spec.vocabSize});
  return LinearOp::create(entry.builder, entry.loc("logits"), TypeRange(type), finalNorm(entry, all, x), head(all),
                          spec.tieEmbeddings)
      .getResult(0);
}

void ModelBuilder::buildInit() {
  EntryBuilder entry(spec, *module, "init");
  OpBuilder &builder = entry.builder;
  Value seed = entry.input("seed", RankedTensorType::get({1}, builder.getI64Type()));
  struct Rounded {
    const NamedTensor &parameter;
    Value low, second;
  };
  SmallVector<Rounded> masters;
  for (const NamedTensor &t : tensors) {
    DenseF64ArrayAttr values =
        t.init.values.empty() ? DenseF64ArrayAttr() : builder.getDenseF64ArrayAttr(t.init.values);
    auto init = [&](Type element, StringRef part = "") {
      return InitOp::create(builder, entry.loc(t.name), RankedTensorType::get(t.shape, element), seed, ValueRange(),
                            builder.getStringAttr(t.init.distribution), builder.getDenseI64ArrayAttr(t.keys()),
                            builder.getF64FloatAttr(t.init.scale), builder.getF64FloatAttr(t.init.low),
                            builder.getF64FloatAttr(t.init.high), values,
                            t.layers.empty() ? UnitAttr() : builder.getUnitAttr(), DenseI64ArrayAttr(),
                            DenseI64ArrayAttr(), part.empty() ? StringAttr() : builder.getStringAttr(part));
    };
    entry.result(t, "parameter", init(t.element));
    // The generator computes in f32: the parameter is exactly its master, rounded, and these are the master's other parts.
    if (t.trained && t.element != types.wide)
      masters.push_back({t, init(builder.getI16Type(), "low"), init(types.wide, "half")});
  }
  for (const Rounded &master : masters) {
    entry.moment(master.parameter, "second", master.second);
    entry.moment(master.parameter, "low", master.low);
  }
  entry.finish();
}

/// Tables [layers, E] of groups as one.
static Value joinLayers(EntryBuilder &entry, StringRef name, ArrayRef<Value> tables) {
  if (tables.size() == 1)
    return tables.front();
  int64_t rows = 0;
  for (Value table : tables)
    rows += cast<RankedTensorType>(table.getType()).getDimSize(0);
  int64_t experts = cast<RankedTensorType>(tables.front().getType()).getDimSize(1);
  return ConcatOp::create(entry.builder, entry.loc(name), entry.integers({rows, experts}), tables,
                          entry.builder.getI64IntegerAttr(0));
}

void ModelBuilder::returnLoads(EntryBuilder &entry, const LayerTable &layers, ArrayRef<Value> loads) {
  auto tensor = tensors.begin() + 1; // behind the embedding
  size_t run = 0;
  for (const auto &group : layers)
    for (const Layer &layer : group) {
      for (const WeightDecl &weight : layer.weights) {
        const NamedTensor &t = *tensor++;
        if (weight.correctionRate != 0)
          entry.gradient(t, CastOp::create(entry.builder, entry.loc("expert_loads"), t.type(), loads[run]));
      }
      run += layer.numExperts != 0;
    }
}

void ModelBuilder::buildForward(bool training) {
  int64_t B = spec.train.batch, T = spec.train.seqLen;
  const LayerTable &layers = layersFor({B, T, false});
  bool accumulates = training && spec.train.accumulationSteps > 1;
  EntryBuilder entry(spec, *module, accumulates ? "accumulate_step" : training ? "train_step" : "eval_step");
  OpBuilder &builder = entry.builder;
  SmallVector<Value> all = parameters(entry);
  Dim rows(B, "batch"), row(T, "sequence");
  Value tokens = entry.input("tokens", entry.integers({B, T}), {rows, row}),
        labels = entry.input("labels", entry.integers({B, T}), {rows, row});
  Value cuSeqlens =
      entry.input("cu_seqlens", entry.integers({B, spec.maxDocuments + 1}), {rows, spec.maxDocuments + 1});

  LayerFlow flow;
  flow.documents = DocumentsOp::create(builder, entry.loc("documents"), entry.integers({B, T}), cuSeqlens, Value(),
                                       builder.getI64IntegerAttr(0));
  flow.x = embed(entry, all, tokens);
  auto any = [&](auto has) { return llvm::any_of(layers, [&](auto &group) { return llvm::any_of(group, has); }); };
  bool routerLoss = any([](const Layer &l) { return l.routerLoss; });
  if (routerLoss)
    flow.routerLoss = entry.zeros(entry.wide({B, T}));
  if (any([](const Layer &l) { return l.draws; }))
    flow.drawKeys = entry.input("draw_keys", drawKeysType(builder, B), {rows, 3});
  emitLayers(entry, plan, layers, layerWeights(all), flow);

  Type one = entry.wide({1});
  auto loss = LinearCrossEntropyOp::create(builder, entry.loc("loss"), one, one, finalNorm(entry, all, flow.x),
                                           head(all), labels, spec.tieEmbeddings);
  entry.output("loss_sum", loss.getSum());
  entry.output(training ? "loss_count" : "valid_tokens", loss.getCount());
  if (training) {
    entry.output("aux_loss", routerLoss
                                 ? SumOp::create(builder, entry.loc("aux_loss"), one, flow.routerLoss).getResult()
                                 : entry.zeros(entry.wide({1})));
    if (!flow.expertCounts.empty())
      entry.output("expert_counts", joinLayers(entry, "expert_counts", flow.expertCounts));
  }
  if (training)
    returnLoads(entry, layers, flow.expertLoads);
  if (!flow.expertDropped.empty()) {
    if (!training) // evaluation says what it dropped, and of how much
      entry.output("expert_counts", joinLayers(entry, "expert_counts", flow.expertCounts));
    entry.output("expert_dropped", joinLayers(entry, "expert_dropped", flow.expertDropped));
  }
  func::FuncOp function = entry.finish();
  if (!training)
    return;
  auto number = [&](StringRef key, double value) { return builder.getNamedAttr(key, builder.getF64FloatAttr(value)); };
  const TrainSpec &t = spec.train;
  SmallVector<NamedAttribute> settings = {number("beta1", t.beta1), number("beta2", t.beta2), number("eps", t.eps),
                                          number("weight_decay", t.weightDecay), number("clip_norm", t.clipNorm)};
  if (accumulates)
    settings.push_back(builder.getNamedAttr("accumulate", builder.getUnitAttr()));
  if (spec.schedule.activationBudget)
    settings.push_back(
        builder.getNamedAttr("activation_budget", builder.getI64IntegerAttr(*spec.schedule.activationBudget)));
  if (t.gradientDtype != "f32")
    settings.push_back(builder.getNamedAttr("gradient_dtype", builder.getStringAttr(t.gradientDtype)));
  function->setAttr("braid.train", builder.getDictionaryAttr(settings));
}

void ModelBuilder::buildCached(StringRef name, int64_t tokenCount) {
  int64_t B = spec.decodeBatch;
  EntryShape shape{B, tokenCount, true};
  const LayerTable &layers = layersFor(shape);
  EntryBuilder entry(spec, *module, name);
  OpBuilder &builder = entry.builder;
  SmallVector<Value> all = parameters(entry);

  LayerFlow flow;
  std::vector<NamedTensor> caches;
  for (auto [group, groupLayers] : llvm::zip_equal(plan, layers))
    for (auto [run, layer] : llvm::zip_equal(group.runs, groupLayers))
      for (const StateDecl &s : layer.states) {
        caches.push_back(layerTensor(group, run, "cache.", s.name, s.type));
        caches.back().dims = s.dims;
        flow.states.push_back(entry.argument(caches.back(), "cache"));
      }
  // All ranks of dp have all sequences. A row's tokens are those in front of cu_seqlens[b, 1]; one without leaves its
  // caches as they are.
  Value tokens = entry.input("tokens", entry.integers({B, tokenCount}), {B, tokenCount}),
        cuSeqlens = entry.input("cu_seqlens", entry.integers({B, 2}), {B, 2});
  flow.documents = DocumentsOp::create(builder, entry.loc("documents"), entry.integers({B, tokenCount}), cuSeqlens,
                                       Value(), builder.getI64IntegerAttr(0));
  flow.x = embed(entry, all, tokens);
  emitLayers(entry, plan, layers, layerWeights(all), flow);

  Value last = flow.x;
  if (tokenCount > 1)
    last = LastTokenOp::create(builder, entry.loc("last_token"), entry.tensor({B, 1, spec.dModel}), flow.x,
                               flow.documents);
  Value out =
      ReshapeOp::create(builder, entry.loc("logits"), entry.wide({B, spec.vocabSize}), logits(entry, all, last));
  for (auto [i, cache, value] : llvm::enumerate(caches, flow.states))
    entry.result(cache, "cache", value, static_cast<unsigned>(all.size() + i));
  entry.output("logits", out);
  entry.finish();
}

//===- The module -------------------------------------------------------------------------------------------------===//

DictionaryAttr ModelBuilder::metadata() {
  int64_t count = 0;
  for (const NamedTensor &t : tensors)
    count += t.elements();
  const TrainSpec &t = spec.train;
  std::vector<std::pair<StringRef, std::string>> entries = {
      {"model_name", spec.name},
      {"model_json", spec.source},
      {"model_defaults", spec.defaults},
      {"vocab_size", std::to_string(spec.vocabSize)},
      {"dtype", spec.dtype},
      {"batch", std::to_string(t.batch)},
      {"seq_len", std::to_string(t.seqLen)},
      {"context_len", std::to_string(spec.contextLen)},
      {"parameter_count", std::to_string(count)},
      {"train.learning_rate", numberText(t.learningRate)},
      {"train.min_learning_rate", numberText(t.minLearningRate)},
      {"train.warmup_steps", std::to_string(t.warmupSteps)},
      {"train.steps", std::to_string(t.steps)},
      {"train.accumulation_steps", std::to_string(t.accumulationSteps)},
      {"train.seed", std::to_string(t.seed)}};
  if (!spec.config.empty())
    entries.push_back({"model_config", spec.config});
  // Weights from elsewhere know what their tokens stand for; of 256 that are bytes.
  if (spec.vocabSize == 256 || spec.imported)
    entries.push_back({"tokenizer", spec.vocabSize == 256 ? "bytes" : "none"});
  Builder builder(module->getContext());
  SmallVector<NamedAttribute> list;
  for (auto &[key, value] : entries)
    list.push_back(builder.getNamedAttr(key, builder.getStringAttr(value)));
  return builder.getDictionaryAttr(list);
}

OwningOpRef<ModuleOp> ModelBuilder::build(DiagnosticFn error) {
  collectParameters();
  if (failed(checkImport(spec, tensors, error)))
    return nullptr;
  buildInit();
  buildForward(/*training=*/true);
  buildForward(/*training=*/false);
  for (int64_t bucket : spec.prefillBuckets())
    buildCached("prefill_" + std::to_string(bucket), bucket);
  buildCached("decode_" + std::to_string(spec.decodeBatch), 1);

  Builder builder(module->getContext());
  (*module)->setAttr(attrs::phase, builder.getStringAttr("model"));
  (*module)->setAttr(attrs::maxDocuments, builder.getI64IntegerAttr(spec.maxDocuments));
  if (spec.schedule.spAlgorithm != "auto")
    (*module)->setAttr(attrs::spAlgorithm, builder.getStringAttr(spec.schedule.spAlgorithm));
  (*module)->setAttr(attrs::metadata, metadata());
  return std::move(module);
}

/// What the compiler made of the equations of the file.
static void remarkClasses(ModuleOp module, const ModelSpec &spec) {
  for (const auto &[letter, mixer] : spec.mixers)
    if (auto *stated = std::get_if<RecurrenceSpec>(&mixer)) {
      const recurrence::Recurrence &r = *stated->recurrence;
      SmallVector<StringRef> words;
      llvm::SplitString(r.state, words, " \t");
      module.emitRemark("mixers.") << std::string(1, letter) << ".state: \"" << llvm::join(words, " ")
                                   << "\" has class " << r.className() << ": " << r.reason
                                   << (r.notation.empty() ? "" : "; read as ") << r.notation << "; one number "
                                   << r.widths();
    }
}

FailureOr<OwningOpRef<ModuleOp>> braid::buildModel(MLIRContext *context, const ModelSpec &spec, DiagnosticFn error) {
  auto keyError = [&](const std::string &path, const std::string &message) { error(path + ": " + message); };
  if (failed(checkModelSpec(spec, keyError)))
    return failure();
  context->loadDialect<BraidDialect, func::FuncDialect, arith::ArithDialect>();
  OwningOpRef<ModuleOp> module = ModelBuilder(context, spec).build(error);
  if (!module)
    return failure();
  remarkClasses(*module, spec);
  // The verifiers speak of ops; what they find here is a fault of the builder, never of the description.
  ScopedDiagnosticHandler handler(context, [&](Diagnostic &diagnostic) {
    error("internal error: " + diagnostic.str());
    return success();
  });
  if (failed(verify(*module)))
    return failure();
  return module;
}
