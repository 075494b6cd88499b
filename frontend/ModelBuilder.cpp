//===- ModelBuilder.cpp - entry points over one set of parameters -------------------------------------------------===//
#include "frontend/ModelBuilder.h"
#include "frontend/EntryBuilder.h"
#include "frontend/ModelImport.h"
#include "frontend/Recurrence.h"
#include "mlir/IR/Verifier.h"
#include "llvm/ADT/StringSet.h"

using namespace mlir;
using namespace braid;

namespace {

/// What the ranks of one stage of a pipeline have; the whole model where there is one.
struct Stage {
  std::optional<int64_t> number; ///< absent: there is one
  bool isFirst, isLast; ///< embeds tokens; returns the loss
  bool hasHead; ///< or a part of its words
  std::vector<LayerGroup> plan;
  std::vector<ModelTensor> tensors; ///< embedding, what layers share, layers in plan order, final norm, head
  size_t firstSharedWeight = 0, firstLayerWeight = 0, numLayerWeights = 0;
  int64_t expertLayersBefore = 0; ///< of stages before it
};

/// All values of parameters of a stage, in the order of its tensors.
using StageWeights = SmallVector<Value>;

class ModelBuilder {
public:
  ModelBuilder(MLIRContext *context, const ModelSpec &spec, const StageCosts &costs)
      : spec(spec), costs(costs), types(floatTypesOf(spec, context)) {
    module = ModuleOp::create(NameLoc::get(StringAttr::get(context, spec.name)));
  }
  /// Null: reported.
  OwningOpRef<ModuleOp> build(DiagnosticFn error);

private:
  /// The layer functions of a plan for one entry shape, built once each.
  LayerTable layersFor(EntryShape entry, const std::vector<LayerGroup> &plan);
  EntryShape trainShape() const { return {spec.train.batch / microBatches(), spec.train.seqLen, false}; }
  int64_t microBatches() const { return std::max<int64_t>(spec.train.microBatches, 1); }
  void collectStages();
  /// The layers with which stages begin, and whether all of them have words of the head.
  std::pair<std::vector<int64_t>, bool> shareOutStages();
  void collectParameters(Stage &stage);
  /// Weights that layers of the stage share, those of blocks first.
  void collectShared(Stage &stage, const LayerTable &layers) const;
  static ModelTensor withDecl(ModelTensor tensor, const WeightDecl &w);
  std::vector<double> layerCosts();
  /// Adds weight and bias of a norm of the model, those that it has.
  void addNorm(std::vector<ModelTensor> &tensors, StringRef name) const;
  DictionaryAttr metadata();
  /// Those of all stages, what two of them have once.
  std::vector<ModelTensor> allTensors() const;

  void buildInit(const Stage &stage);
  void buildForward(const Stage &stage, bool training);
  void buildCached(StringRef name, int64_t tokens, bool scores);
  void returnScores(EntryBuilder &entry, const Stage &stage, ArrayRef<Value> all, Value x);

  /// All parameters as arguments of the entry.
  StageWeights parameters(EntryBuilder &entry, const Stage &stage);
  static ValueRange layerWeights(const Stage &stage, ArrayRef<Value> all) {
    return all.slice(stage.firstLayerWeight, stage.numLayerWeights);
  }
  /// What layers read beside their own weights: those that they share.
  static void setShared(const Stage &stage, ArrayRef<Value> all, LayerFlow &flow);
  Value embed(EntryBuilder &entry, ArrayRef<Value> all, Value tokens);
  Value finalNorm(EntryBuilder &entry, const Stage &stage, ArrayRef<Value> all, Value x);
  Value head(ArrayRef<Value> all) const { return spec.tieEmbeddings ? all.front() : all.back(); }
  Value logits(EntryBuilder &entry, const Stage &stage, ArrayRef<Value> all, Value x);
  /// Zeros of the first value that layers take, null where none does.
  Value firstValue(EntryBuilder &entry, EntryShape shape);
  /// Loads of the experts as gradients of what they correct.
  void returnLoads(EntryBuilder &entry, const Stage &stage, const LayerTable &layers, ArrayRef<Value> loads);
  /// Tables [layers, E] of a stage's groups as one of all layers: 0 where others have them.
  Value joinLayers(EntryBuilder &entry, const Stage &stage, StringRef name, ArrayRef<Value> tables);
  bool any(EntryShape shape, llvm::function_ref<bool(const Layer &)> has);

  const ModelSpec &spec;
  const StageCosts &costs;
  FloatTypes types;
  std::vector<Stage> stages;
  bool dividesHead = false; ///< all stages have words of it
  OwningOpRef<ModuleOp> module;
  std::map<std::tuple<int64_t, int64_t, bool, std::string, char, char, bool, int64_t>, Layer> built;
  int64_t expertLayers = 0;
};

} // namespace

LayerTable ModelBuilder::layersFor(EntryShape entry, const std::vector<LayerGroup> &plan) {
  LayerTable table;
  for (const LayerGroup &group : plan) {
    std::vector<Layer> &layers = table.emplace_back();
    for (const LayerRun &run : group.runs) {
      // Without a backward there is nothing to compute again.
      bool recompute = run.recompute && !entry.cached;
      int64_t overlapDegree = entry.cached ? 0 : run.overlapDegree;
      auto [layer, first] = built.try_emplace(
          {entry.batch, entry.tokens, entry.cached, run.mixers, run.ffn, run.inject, recompute, overlapDegree});
      if (first)
        layer->second = buildLayer(spec, *module, entry, {run.mixers, run.ffn, run.inject}, {recompute, overlapDegree});
      layers.push_back(layer->second);
    }
  }
  return table;
}

bool ModelBuilder::any(EntryShape shape, llvm::function_ref<bool(const Layer &)> has) {
  return llvm::any_of(stages, [&](const Stage &stage) {
    return llvm::any_of(layersFor(shape, stage.plan), [&](auto &group) { return llvm::any_of(group, has); });
  });
}

std::vector<double> ModelBuilder::layerCosts() {
  std::vector<double> seconds(spec.numLayers, 0);
  std::vector<LayerGroup> plan = planLayers(spec, 0, spec.numLayers);
  for (auto [group, layers] : llvm::zip_equal(plan, layersFor(trainShape(), plan)))
    for (auto [run, layer] : llvm::zip_equal(group.runs, layers)) {
      double each = costs.layer(layer.function);
      for (int32_t number : run.layers)
        seconds[number] = each;
    }
  return seconds;
}

std::pair<std::vector<int64_t>, bool> ModelBuilder::shareOutStages() {
  int64_t count = spec.schedule.stages, parts = microBatches();
  if (count == 1)
    return {{0, spec.numLayers}, false};
  std::vector<double> layers = layerCosts();
  int64_t tokens = trainShape().batch * trainShape().tokens;
  auto headOf = [&](int64_t parts) { return costs.head(tokens, spec.dModel, spec.vocabSize, parts); };
  auto beginsWith = [&](double last) {
    if (spec.schedule.stageLayers.empty())
      return shareOut(layers, last, count);
    std::vector<int64_t> begins = {0};
    for (int64_t own : spec.schedule.stageLayers)
      begins.push_back(begins.back() + own);
    return begins;
  };
  double head = headOf(1), part = headOf(count);
  std::vector<int64_t> ofLast = beginsWith(head), ofAll = beginsWith(0);
  // All stages are at their parts of it at one time. That they keep activations of kHeadDelay more micro-batches is to be worth it.
  constexpr double leastGain = 1.02;
  double last = stepCost(layers, head, 0, costs.exchanges(tokens, spec.dModel, 1), ofLast, parts),
         all = leastGain * stepCost(layers, 0, part, costs.exchanges(tokens, spec.dModel, count), ofAll, parts);
  bool can = !spec.tieEmbeddings && spec.vocabSize % spec.schedule.wordRanks == 0;
  bool divides = spec.schedule.headStages == "all" || (spec.schedule.headStages == "auto" && can && all < last);
  return {divides ? ofAll : ofLast, divides};
}

void ModelBuilder::collectStages() {
  int64_t count = spec.schedule.stages;
  std::vector<int64_t> begins;
  std::tie(begins, dividesHead) = shareOutStages();
  for (int64_t s = 0; s < count; ++s) {
    Stage &stage = stages.emplace_back(Stage{count > 1 ? std::optional(s) : std::nullopt,
                                             s == 0,
                                             s + 1 == count,
                                             s + 1 == count || dividesHead,
                                             planLayers(spec, begins[s], begins[s + 1]),
                                             {}});
    stage.expertLayersBefore = expertLayers;
    collectParameters(stage);
  }
}

void ModelBuilder::addNorm(std::vector<ModelTensor> &tensors, StringRef name) const {
  auto add = [&](StringRef part, double value) {
    tensors.push_back({(name + "." + part).str(),
                       {spec.dModel},
                       types.wide,
                       {},
                       {"embed"},
                       Init::constant(value),
                       /*decay=*/false,
                       true});
  };
  add("weight", 1.0);
  if (spec.norm.hasBias())
    add("bias", 0.0);
}

ModelTensor ModelBuilder::withDecl(ModelTensor tensor, const WeightDecl &w) {
  tensor.dims = w.dims;
  tensor.init = w.init;
  tensor.decay = w.decay;
  tensor.trained = w.trained;
  tensor.rateScale = w.rateScale;
  tensor.correctionRate = w.correctionRate;
  return tensor;
}

void ModelBuilder::collectShared(Stage &stage, const LayerTable &layers) const {
  llvm::StringSet<> known;
  auto collect = [&](StringRef prefix) {
    for (auto [group, groupLayers] : llvm::zip_equal(stage.plan, layers))
      for (auto [run, layer] : llvm::zip_equal(group.runs, groupLayers))
        for (const WeightDecl &w : layer.weights)
          if (w.shared && StringRef(w.name).starts_with(prefix) && known.insert(w.name).second)
            stage.tensors.push_back(withDecl({w.name, w.shape, w.element, {}, {}, {}}, w));
  };
  for (const auto &[letter, inject] : spec.injects) // stages have theirs in one order, whatever their layers
    collect(std::string("injects.") + letter + ".");
  collect("");
}

void ModelBuilder::collectParameters(Stage &stage) {
  LayerTable layers = layersFor(trainShape(), stage.plan);
  std::vector<ModelTensor> &tensors = stage.tensors;
  Dim words(spec.vocabSize, "vocab"), model(spec.dModel, "embed");
  auto table = [&](StringRef name, ArrayRef<Dim> dims) {
    tensors.push_back(
        {name.str(), sizesOf(dims), types.element, {}, namesOf(dims), Init::normal(spec.init.std), true, true});
  };
  if (stage.isFirst || (stage.isLast && spec.tieEmbeddings))
    table("embed.weight", {words, model});
  if (stage.isFirst && spec.embeddingNorm)
    addNorm(tensors, "embed_norm");
  stage.firstSharedWeight = tensors.size();
  collectShared(stage, layers);
  stage.firstLayerWeight = tensors.size();
  for (auto [group, groupLayers] : llvm::zip_equal(stage.plan, layers))
    for (auto [run, layer] : llvm::zip_equal(group.runs, groupLayers)) {
      expertLayers += layer.numExperts ? static_cast<int64_t>(run.layers.size()) : 0;
      for (const WeightDecl &w : layer.weights) {
        if (w.shared)
          continue;
        auto type = RankedTensorType::get(w.shape, w.element);
        ModelTensor &t = tensors.emplace_back(withDecl(layerTensor(group, run, "", w.name, type), w));
        if (w.init.ofLayer)
          for (int32_t layer : run.layers)
            llvm::append_range(t.init.values, w.init.ofLayer(layer));
      }
    }
  stage.numLayerWeights = tensors.size() - stage.firstLayerWeight;
  if (stage.isLast && spec.normPlacement != NormPlacement::post)
    addNorm(tensors, "final_norm");
  if (stage.hasHead && !spec.tieEmbeddings)
    table("head.weight", {model, dividesHead ? Dim(spec.vocabSize, "stage_vocab") : words});
}

//===- Entry points -----------------------------------------------------------------------------------------------===//

StageWeights ModelBuilder::parameters(EntryBuilder &entry, const Stage &stage) {
  StageWeights values;
  for (const ModelTensor &t : stage.tensors)
    values.push_back(entry.argument(t, "parameter"));
  return values;
}

void ModelBuilder::setShared(const Stage &stage, ArrayRef<Value> all, LayerFlow &flow) {
  for (size_t i = stage.firstSharedWeight; i < stage.firstLayerWeight; ++i)
    flow.shared[stage.tensors[i].name] = all[i];
}

Value ModelBuilder::embed(EntryBuilder &entry, ArrayRef<Value> all, Value tokens) {
  auto shape = cast<RankedTensorType>(tokens.getType()).getShape();
  Value x =
      EmbedOp::create(entry.builder, entry.loc("x"), entry.tensor({shape[0], shape[1], spec.dModel}), tokens, all[0]);
  x = entry.scaled("x", x, spec.embeddingMultiplier);
  return spec.embeddingNorm ? entry.norm("embed_norm", x, all[1], spec.norm.hasBias() ? all[2] : Value()) : x;
}

Value ModelBuilder::finalNorm(EntryBuilder &entry, const Stage &stage, ArrayRef<Value> all, Value x) {
  size_t at = stage.firstLayerWeight + stage.numLayerWeights;
  if (spec.normPlacement != NormPlacement::post)
    x = entry.norm("final_norm", x, all[at], spec.norm.hasBias() ? all[at + 1] : Value());
  // The smaller side of the product; under a base width logits shrink with the width.
  return entry.scaled("head_input", x, spec.logitsMultiplier / spec.widthRatio());
}

/// What the host samples from: not rounded.
Value ModelBuilder::logits(EntryBuilder &entry, const Stage &stage, ArrayRef<Value> all, Value x) {
  auto shape = cast<RankedTensorType>(x.getType()).getShape();
  Type type = entry.wide({shape[0], shape[1], spec.vocabSize});
  Value logits = LinearOp::create(entry.builder, entry.loc("logits"), TypeRange(type), finalNorm(entry, stage, all, x),
                                  head(all), spec.tieEmbeddings)
                     .getResult(0);
  return entry.softcapped("logits", logits, spec.logitsSoftcap);
}

void ModelBuilder::buildInit(const Stage &stage) {
  EntryBuilder entry(spec, *module, "init", stage.number);
  OpBuilder &builder = entry.builder;
  Value seed = entry.input("seed", RankedTensorType::get({1}, builder.getI64Type()));
  struct Rounded {
    const ModelTensor &parameter;
    Value low, second;
  };
  Type moment = spec.train.momentDtype == "bf16" ? Type(builder.getBF16Type()) : Type(types.wide);
  SmallVector<Rounded> masters;
  for (const ModelTensor &t : stage.tensors) {
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
      masters.push_back({t, init(builder.getI16Type(), "low"), init(moment, "half")});
  }
  for (const Rounded &master : masters) {
    entry.moment(master.parameter, "second", master.second);
    entry.moment(master.parameter, "low", master.low);
  }
  entry.finish();
}

Value ModelBuilder::joinLayers(EntryBuilder &entry, const Stage &stage, StringRef name, ArrayRef<Value> tables) {
  int64_t experts = 0, own = 0;
  for (auto &[key, layer] : built)
    experts = std::max(experts, layer.numExperts);
  for (Value table : tables)
    own += cast<RankedTensorType>(table.getType()).getDimSize(0);
  SmallVector<Value> all;
  int64_t behind = expertLayers - stage.expertLayersBefore - own;
  if (stage.expertLayersBefore)
    all.push_back(entry.zeros(entry.integers({stage.expertLayersBefore, experts})));
  llvm::append_range(all, tables);
  if (behind)
    all.push_back(entry.zeros(entry.integers({behind, experts})));
  if (all.size() == 1)
    return all.front();
  return ConcatOp::create(entry.builder, entry.loc(name), entry.integers({expertLayers, experts}), all,
                          entry.builder.getI64IntegerAttr(0));
}

Value ModelBuilder::firstValue(EntryBuilder &entry, EntryShape shape) {
  RankedTensorType type;
  (void)any(shape, [&](const Layer &layer) { return (type = layer.firstValue) != nullptr; });
  return type ? entry.zeros(type) : Value();
}

void ModelBuilder::returnLoads(EntryBuilder &entry, const Stage &stage, const LayerTable &layers,
                               ArrayRef<Value> loads) {
  auto tensor = stage.tensors.begin() + static_cast<std::ptrdiff_t>(stage.firstLayerWeight);
  size_t run = 0;
  for (const auto &group : layers)
    for (const Layer &layer : group) {
      for (const WeightDecl &weight : layer.weights) {
        if (weight.shared)
          continue;
        const ModelTensor &t = *tensor++;
        if (weight.correctionRate != 0)
          entry.gradient(t, CastOp::create(entry.builder, entry.loc("expert_loads"), t.type(), loads[run]));
      }
      run += layer.numExperts != 0;
    }
}

void ModelBuilder::buildForward(const Stage &stage, bool training) {
  EntryShape shape = trainShape();
  int64_t B = shape.batch, T = shape.tokens;
  LayerTable layers = layersFor(shape, stage.plan);
  // Gradients of micro-batches add up, as those of batches do.
  bool accumulates = training && (spec.train.accumulationSteps > 1 || spec.train.microBatches > 0);
  EntryBuilder entry(spec, *module,
                     accumulates ? "accumulate_step"
                     : training  ? "train_step"
                                 : "eval_step",
                     stage.number);
  OpBuilder &builder = entry.builder;
  StageWeights all = parameters(entry, stage);
  Dim rows(B, "batch"), row(T, "sequence");
  Value tokens = entry.input("tokens", entry.integers({B, T}), {rows, row}),
        labels = entry.input("labels", entry.integers({B, T}), {rows, row});
  Value cuSeqlens =
      entry.input("cu_seqlens", entry.integers({B, spec.maxDocuments + 1}), {rows, spec.maxDocuments + 1});

  LayerFlow flow;
  flow.documents = DocumentsOp::create(builder, entry.loc("documents"), entry.integers({B, T}), cuSeqlens, Value(),
                                       builder.getI64IntegerAttr(0));
  bool routerLoss = any(shape, [](const Layer &l) { return l.routerLoss; });
  if (routerLoss)
    flow.routerLoss = entry.zeros(entry.wide({B, T}));
  flow.firstValue = firstValue(entry, shape);
  bool readsEmbedding = any(shape, [](const Layer &l) { return l.embedding; });
  if (any(shape, [](const Layer &l) { return l.draws; }))
    flow.drawKeys = entry.input("draw_keys", drawKeysType(builder, B), {rows, 3});
  // What goes from stage to stage, the first dimensions rows and tokens. Keys of draws are no float: they count layers.
  std::vector<std::tuple<StringRef, Value *, SmallVector<Dim>>> boundary;
  auto passes = [&](StringRef name, Value &value, ShapedType type, size_t named) {
    SmallVector<Dim> dims = {rows};
    if (named == 2)
      dims.push_back(row);
    for (int64_t size : type.getShape().drop_front(named))
      dims.push_back(size);
    boundary.emplace_back(name, &value, dims);
    if (!stage.isFirst)
      value = entry.input(("stage." + name).str(), type, dims, kStageInput);
  };
  if (stage.number) {
    passes("x", flow.x, entry.tensor({B, T, spec.dModel}), 2);
    if (flow.firstValue)
      passes("first_value", flow.firstValue, cast<ShapedType>(flow.firstValue.getType()), 2);
    if (flow.drawKeys)
      passes("draw_keys", flow.drawKeys, cast<ShapedType>(flow.drawKeys.getType()), 1);
    if (readsEmbedding)
      passes("embedding", flow.embedding, entry.tensor({B, T, spec.dModel}), 2);
  }
  if (stage.isFirst)
    flow.x = embed(entry, all, tokens);
  if (stage.isFirst && readsEmbedding)
    flow.embedding = flow.x;
  setShared(stage, all, flow);
  emitLayers(entry, stage.plan, layers, layerWeights(stage, all), flow);
  for (auto &[name, value, dims] : boundary)
    if (!stage.isLast)
      entry.stageOutput(("stage." + name).str(), *value, dims);

  auto one = cast<RankedTensorType>(entry.wide({1}));
  Value sum, count;
  if (stage.hasHead) {
    StringRef name = "stage.head_input";
    SmallVector<Dim> dims = {rows, row, spec.dModel};
    Value x = stage.isLast ? finalNorm(entry, stage, all, flow.x)
                           : entry.input(name, entry.tensor(sizesOf(dims)), dims, kStageBroadcast);
    if (stage.isLast && dividesHead)
      entry.stageOutput(name, x, dims, kStageBroadcast);
    auto loss = LinearCrossEntropyOp::create(builder, entry.loc("loss"), one, one, x, head(all), labels,
                                             spec.tieEmbeddings ? builder.getUnitAttr() : UnitAttr(),
                                             spec.logitsSoftcap > 0 ? builder.getF64FloatAttr(spec.logitsSoftcap)
                                                                    : FloatAttr());
    sum = loss.getSum();
    count = loss.getCount();
  }
  entry.output("loss_sum", sum ? sum : entry.zeros(one));
  entry.output(training ? "loss_count" : "valid_tokens", stage.isLast ? count : entry.zeros(one));
  // All stages return the same, and sums over them are complete.
  bool drops = any(shape, [](const Layer &l) { return l.drops; });
  if (training)
    entry.output("aux_loss", routerLoss
                                 ? SumOp::create(builder, entry.loc("aux_loss"), one, flow.routerLoss).getResult()
                                 : entry.zeros(one));
  if (expertLayers && (training || drops)) // evaluation says what it dropped, and of how much
    entry.output("expert_counts", joinLayers(entry, stage, "expert_counts", flow.expertCounts));
  if (training)
    returnLoads(entry, stage, layers, flow.expertLoads);
  if (drops)
    entry.output("expert_dropped", joinLayers(entry, stage, "expert_dropped", flow.expertDropped));
  func::FuncOp function = entry.finish();
  if (spec.train.microBatches > 0)
    function->setAttr(attrs::microBatches, builder.getI64IntegerAttr(microBatches()));
  if (!training)
    return;
  if (spec.train.microBatches > 0 && spec.schedule.stageOrder != kOrder1F1B)
    function->setAttr(attrs::stageOrder, builder.getStringAttr(spec.schedule.stageOrder));
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
  if (t.momentDtype != "f32")
    settings.push_back(builder.getNamedAttr("moment_dtype", builder.getStringAttr(t.momentDtype)));
  function->setAttr("braid.train", builder.getDictionaryAttr(settings));
}

/// How likely each token's `labels` are, and the likeliest words, in nats below certain; 0 where a label is negative.
void ModelBuilder::returnScores(EntryBuilder &entry, const Stage &stage, ArrayRef<Value> all, Value x) {
  OpBuilder &builder = entry.builder;
  Shape shape(cast<RankedTensorType>(x.getType()).getShape().take_front(2));
  RankedTensorType ids = entry.integers(shape), real = cast<RankedTensorType>(entry.wide(shape));
  Value labels = entry.input("labels", ids, {shape[0], shape[1]});
  auto scores = LinearScoresOp::create(
      builder, entry.loc("scores"), TypeRange{real, real, real, ids}, finalNorm(entry, stage, all, x), head(all),
      labels, entry.zeros(entry.integers({1})), spec.tieEmbeddings ? builder.getUnitAttr() : UnitAttr(),
      spec.logitsSoftcap > 0 ? builder.getF64FloatAttr(spec.logitsSoftcap) : FloatAttr());
  auto loss = [&](StringRef name, Value logit) {
    entry.output(name, TokenLossOp::create(builder, entry.loc(name), real, scores.getLse(), logit, labels));
  };
  loss("losses", scores.getTarget());
  loss("likeliest_losses", scores.getGreatest());
  entry.output("likeliest", scores.getWord());
}

void ModelBuilder::buildCached(StringRef name, int64_t tokenCount, bool scores) {
  int64_t B = spec.decodeBatch;
  EntryShape shape{B, tokenCount, true};
  const Stage &stage = stages.front(); // all layers
  LayerTable layers = layersFor(shape, stage.plan);
  EntryBuilder entry(spec, *module, name);
  OpBuilder &builder = entry.builder;
  StageWeights all = parameters(entry, stage);

  LayerFlow flow;
  std::vector<ModelTensor> caches;
  for (auto [group, groupLayers] : llvm::zip_equal(stage.plan, layers))
    for (auto [run, layer] : llvm::zip_equal(group.runs, groupLayers))
      for (const StateDecl &s : layer.states) {
        caches.push_back(layerTensor(group, run, "cache.", s.name, s.type));
        caches.back().dims = s.dims;
        caches.back().slot = s.byPosition ? "positions" : "";
        flow.states.push_back(entry.argument(caches.back(), "cache"));
      }
  // All ranks of dp have all sequences. A row's tokens are those in front of cu_seqlens[b, 1]; one without leaves its
  // caches as they are.
  Value tokens = entry.input("tokens", entry.integers({B, tokenCount}), {B, tokenCount}),
        cuSeqlens = entry.input("cu_seqlens", entry.integers({B, 2}), {B, 2});
  flow.documents = DocumentsOp::create(builder, entry.loc("documents"), entry.integers({B, tokenCount}), cuSeqlens,
                                       Value(), builder.getI64IntegerAttr(0));
  flow.x = embed(entry, all, tokens);
  flow.embedding = flow.x;
  setShared(stage, all, flow);
  flow.firstValue = firstValue(entry, shape);
  emitLayers(entry, stage.plan, layers, layerWeights(stage, all), flow);

  for (auto [i, cache, value] : llvm::enumerate(caches, flow.states))
    entry.result(cache, "cache", value, static_cast<unsigned>(all.size() + i));
  if (scores) {
    returnScores(entry, stage, all, flow.x);
  } else {
    Value last = flow.x;
    if (tokenCount > 1)
      last = LastTokenOp::create(builder, entry.loc("last_token"), entry.tensor({B, 1, spec.dModel}), flow.x,
                                 flow.documents);
    entry.output("logits", ReshapeOp::create(builder, entry.loc("logits"), entry.wide({B, spec.vocabSize}),
                                             logits(entry, stage, all, last)));
  }
  entry.finish();
}

//===- The module -------------------------------------------------------------------------------------------------===//

std::vector<ModelTensor> ModelBuilder::allTensors() const {
  std::vector<ModelTensor> all;
  llvm::StringSet<> known; // of tensors that are of no layers, the embedding and blocks
  for (const Stage &stage : stages)
    for (const ModelTensor &t : stage.tensors)
      if (StringRef(t.name).starts_with("layers.") || known.insert(t.name).second)
        all.push_back(t);
  return all;
}

DictionaryAttr ModelBuilder::metadata() {
  int64_t count = 0;
  for (const ModelTensor &t : allTensors())
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
  for (auto &[key, dtype] : {std::pair("train.gradient_dtype", t.gradientDtype), {"train.moment_dtype", t.momentDtype}})
    if (dtype != "f32")
      entries.push_back({key, dtype});
  if (spec.train.microBatches > 0)
    entries.push_back({"train.micro_batches", std::to_string(spec.train.microBatches)});
  if (spec.schedule.expertRoom)
    entries.push_back({"schedule.expert_room", numberText(*spec.schedule.expertRoom)});
  if (spec.schedule.stages > 1) {
    entries.push_back({"schedule.stage_order", spec.schedule.stageOrder});
    entries.push_back({"schedule.head_stages", dividesHead ? "all" : "last"});
  }
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
  collectStages();
  if (failed(checkImport(spec, allTensors(), error)))
    return nullptr;
  for (const Stage &stage : stages) {
    buildInit(stage);
    buildForward(stage, /*training=*/true);
    buildForward(stage, /*training=*/false);
  }
  if (stages.size() == 1) { // a token would wait for each stage: generation is for programs without
    for (int64_t bucket : spec.prefillBuckets())
      buildCached("prefill_" + std::to_string(bucket), bucket, /*scores=*/false);
    for (int64_t bucket : spec.prefillBuckets())
      buildCached("score_" + std::to_string(bucket), bucket, /*scores=*/true);
    buildCached("decode_" + std::to_string(spec.decodeBatch), 1, /*scores=*/false);
  }

  Builder builder(module->getContext());
  (*module)->setAttr(attrs::phase, builder.getStringAttr("model"));
  (*module)->setAttr(attrs::maxDocuments, builder.getI64IntegerAttr(spec.maxDocuments));
  if (spec.schedule.expertRoom)
    (*module)->setAttr(attrs::expertRoom, builder.getF64FloatAttr(*spec.schedule.expertRoom));
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

FailureOr<OwningOpRef<ModuleOp>> braid::buildModel(MLIRContext *context, const ModelSpec &spec, DiagnosticFn error,
                                                   const StageCosts &costs) {
  auto keyError = [&](const std::string &path, const std::string &message) { error(path + ": " + message); };
  if (failed(checkModelSpec(spec, keyError)))
    return failure();
  context->loadDialect<BraidDialect, func::FuncDialect, arith::ArithDialect>();
  OwningOpRef<ModuleOp> module = ModelBuilder(context, spec, costs).build(error);
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
