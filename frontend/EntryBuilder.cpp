//===- EntryBuilder.cpp - arguments, results and the walk over the layers -----------------------------------------===//
#include "frontend/EntryBuilder.h"

using namespace mlir;
using namespace braid;

EntryBuilder::EntryBuilder(const ModelSpec &spec, ModuleOp module, StringRef name, std::optional<int64_t> stage)
    : FunctionBuilder(spec, module, stagedName(name, stage)) {
  function->setAttr(attrs::entry, builder.getUnitAttr());
  if (stage)
    function->setAttr(attrs::stage, builder.getI64IntegerAttr(*stage));
}

SmallVector<NamedAttribute> EntryBuilder::describe(const ModelTensor &tensor, StringRef role) {
  SmallVector<NamedAttribute> list = {builder.getNamedAttr(attrs::name, builder.getStringAttr(tensor.name)),
                                      builder.getNamedAttr(attrs::role, builder.getStringAttr(role))};
  if (!tensor.layers.empty())
    list.push_back(builder.getNamedAttr(attrs::layers, builder.getDenseI32ArrayAttr(tensor.layers)));
  if (!tensor.dims.empty())
    list.push_back(dimsAttr(tensor.dims));
  if (!tensor.slot.empty())
    list.push_back(builder.getNamedAttr(attrs::slot, builder.getStringAttr(tensor.slot)));
  if (role == "parameter") {
    list.push_back(builder.getNamedAttr(attrs::decay, builder.getBoolAttr(tensor.decay)));
    list.push_back(builder.getNamedAttr(attrs::trained, builder.getBoolAttr(tensor.trained)));
    if (tensor.rateScale != 1.0)
      list.push_back(builder.getNamedAttr(attrs::rateScale, builder.getF64FloatAttr(tensor.rateScale)));
    if (tensor.correctionRate != 0.0)
      list.push_back(builder.getNamedAttr(attrs::correctionRate, builder.getF64FloatAttr(tensor.correctionRate)));
  }
  return list;
}

NamedAttribute EntryBuilder::dimsAttr(ArrayRef<std::string> names) {
  SmallVector<Attribute> list;
  for (const std::string &name : names)
    list.push_back(builder.getStringAttr(name));
  return builder.getNamedAttr(attrs::dims, builder.getArrayAttr(list));
}

Value EntryBuilder::input(StringRef name, Type type, ArrayRef<Dim> dims, StringRef role) {
  SmallVector<NamedAttribute> list = {builder.getNamedAttr(attrs::name, builder.getStringAttr(name)),
                                      builder.getNamedAttr(attrs::role, builder.getStringAttr(role))};
  if (!dims.empty())
    list.push_back(dimsAttr(namesOf(dims)));
  argumentAttrs.push_back(builder.getDictionaryAttr(list));
  return block->addArgument(type, loc(name));
}

Value EntryBuilder::argument(const ModelTensor &t, StringRef role) {
  argumentAttrs.push_back(builder.getDictionaryAttr(describe(t, role)));
  return block->addArgument(t.type(), loc(t.name));
}

void EntryBuilder::output(StringRef name, Value value) {
  ModelTensor t;
  t.name = name.str();
  result(t, "output", value);
}

void EntryBuilder::stageOutput(StringRef name, Value value, ArrayRef<Dim> dims, StringRef role) {
  ModelTensor t;
  t.name = name.str();
  t.dims = namesOf(dims);
  result(t, role, value);
}

void EntryBuilder::result(const ModelTensor &t, StringRef role, Value value, std::optional<unsigned> alias) {
  SmallVector<NamedAttribute> list = describe(t, role);
  if (alias)
    list.push_back(builder.getNamedAttr(attrs::alias, builder.getI64IntegerAttr(*alias)));
  resultAttrs.push_back(builder.getDictionaryAttr(list));
  results.push_back(value);
}

void EntryBuilder::resultOf(const ModelTensor &parameter, const std::string &name, StringRef role, StringRef slot,
                            Value value) {
  ModelTensor t = parameter;
  t.name = name;
  SmallVector<NamedAttribute> list = describe(t, role);
  list.push_back(builder.getNamedAttr(attrs::of, builder.getStringAttr(parameter.name)));
  if (!slot.empty())
    list.push_back(builder.getNamedAttr(attrs::slot, builder.getStringAttr(slot)));
  resultAttrs.push_back(builder.getDictionaryAttr(list));
  results.push_back(value);
}

void EntryBuilder::moment(const ModelTensor &parameter, StringRef slot, Value value) {
  resultOf(parameter, parameter.name + "." + slot.str(), "moment", slot, value);
}

void EntryBuilder::gradient(const ModelTensor &parameter, Value value) {
  resultOf(parameter, "gradient." + parameter.name, "gradient", "", value);
}

func::FuncOp EntryBuilder::finish() {
  close(results);
  function.setAllArgAttrs(argumentAttrs);
  function.setAllResultAttrs(resultAttrs);
  return function;
}

Value EntryBuilder::zeros(RankedTensorType type) {
  Value &value = constants[type];
  if (value)
    return value;
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(block);
  return value = arith::ConstantOp::create(builder, loc("zeros"), cast<TypedAttr>(builder.getZeroAttr(type)));
}

//===- Layers -----------------------------------------------------------------------------------------------------===//

namespace {

/// What one step of the walk (a call, a run, a group) takes and gives back besides the weights.
struct Step {
  SmallVector<Value> carried; ///< x, router loss, first value, draw keys (all but x where there are any)
  SmallVector<Value> states; ///< caches (may be none)
  SmallVector<Value> counts; ///< expert counts
  SmallVector<Value> dropped; ///< of the same layers, where any layer drops
};

/// Body of a repeat: the parts of one iteration in, the same kinds of values out.
using Body = function_ref<Step(SmallVector<Value> carried, SmallVector<Value> states, SmallVector<Value> weights)>;

class LayerWalk {
public:
  /// `firstValue`: its place among what is carried.
  LayerWalk(EntryBuilder &entry, const LayerFlow &flow, bool cached, bool drops, size_t firstValue)
      : entry(entry), flow(flow), cached(cached), drops(drops), firstValue(firstValue) {}

  Step group(const LayerGroup &group, ArrayRef<Layer> layers, Step in, ValueRange weights);

private:
  Step run(const LayerRun &run, const Layer &layer, Step in, ValueRange weights);
  Step call(const Layer &layer, Step in, ValueRange weights);
  Step repeat(int64_t count, Step in, ValueRange weights, Body body);

  EntryBuilder &entry;
  const LayerFlow &flow;
  bool cached, drops;
  size_t firstValue;
};

} // namespace

Step LayerWalk::call(const Layer &layer, Step in, ValueRange weights) {
  SmallVector<Value> operands = {in.carried[0], flow.documents};
  if (layer.routerLoss)
    operands.push_back(in.carried[1]);
  if (layer.firstValue)
    operands.push_back(in.carried[firstValue]);
  if (layer.draws)
    operands.push_back(in.carried.back());
  if (layer.embedding)
    operands.push_back(flow.embedding);
  if (cached)
    llvm::append_range(operands, in.states);
  else
    for (const StateDecl &s : layer.states)
      operands.push_back(entry.zeros(s.type));
  auto own = weights.begin();
  for (const WeightDecl &w : layer.weights)
    operands.push_back(w.ofLayer() ? *own++ : flow.shared.lookup(w.name));
  func::FuncOp callee = layer.function;
  auto results = func::CallOp::create(entry.builder, entry.loc(callee.getName()), callee, operands).getResults();

  Step out{in.carried, {}, {}, {}};
  out.carried[0] = results[0];
  unsigned next = 1;
  if (layer.routerLoss)
    out.carried[1] = results[next++];
  if (layer.firstValue)
    out.carried[firstValue] = results[next++];
  if (layer.draws)
    out.carried.back() = results[next++];
  for (size_t i = 0; i < layer.states.size(); ++i, ++next)
    if (cached)
      out.states.push_back(results[next]);
  if (layer.numExperts)
    out.counts.push_back(results[next++]);
  if (layer.numExperts && drops)
    out.dropped.push_back(layer.drops ? results[next] : entry.zeros(entry.integers({layer.numExperts})));
  return out;
}

Step LayerWalk::repeat(int64_t count, Step in, ValueRange weights, Body body) {
  OpBuilder &builder = entry.builder;
  Location loc = entry.loc("layers");
  SmallVector<Value> inputs(in.carried);
  llvm::append_range(inputs, in.states);
  llvm::append_range(inputs, weights);

  Region region;
  Block *block = &region.emplaceBlock();
  Step out;
  SmallVector<Type> types;
  {
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointToStart(block);
    SmallVector<Value> carried, states, layerWeights;
    for (auto [i, input] : llvm::enumerate(inputs)) {
      auto type = cast<RankedTensorType>(input.getType());
      bool isCarried = i < in.carried.size();
      Value argument = block->addArgument(
          isCarried ? type : RankedTensorType::get(type.getShape().drop_front(), type.getElementType()),
          input.getLoc());
      (isCarried ? carried : i < in.carried.size() + in.states.size() ? states : layerWeights).push_back(argument);
    }
    out = body(carried, states, layerWeights);
    SmallVector<Value> yielded(out.carried);
    for (Value v : out.carried)
      types.push_back(v.getType());
    for (auto *list : {&out.states, &out.counts, &out.dropped})
      for (Value v : *list) {
        auto type = cast<RankedTensorType>(v.getType());
        Shape shape = {count};
        shape.append(type.getShape().begin(), type.getShape().end());
        types.push_back(RankedTensorType::get(shape, type.getElementType()));
        yielded.push_back(v);
      }
    YieldOp::create(builder, loc, yielded);
  }
  auto op = RepeatOp::create(builder, loc, types, inputs, builder.getI64IntegerAttr(count),
                             builder.getI64IntegerAttr(static_cast<int64_t>(in.carried.size())), UnitAttr());
  op.getBody().takeBody(region);
  auto results = op.getResults();
  size_t c = out.carried.size(), s = out.states.size(), n = out.counts.size();
  return {SmallVector<Value>(results.take_front(c)), SmallVector<Value>(results.slice(c, s)),
          SmallVector<Value>(results.slice(c + s, n)), SmallVector<Value>(results.drop_front(c + s + n))};
}

Step LayerWalk::run(const LayerRun &run, const Layer &layer, Step in, ValueRange weights) {
  if (run.count == 1)
    return call(layer, std::move(in), weights);
  return repeat(run.count, std::move(in), weights, [&](auto carried, auto states, auto weights) {
    return call(layer, {carried, states, {}, {}}, weights);
  });
}

Step LayerWalk::group(const LayerGroup &group, ArrayRef<Layer> layers, Step in, ValueRange weights) {
  auto round = [&](SmallVector<Value> carried, SmallVector<Value> states, SmallVector<Value> weights) {
    Step all{std::move(carried), {}, {}, {}};
    size_t state = 0, weight = 0;
    for (auto [run, layer] : llvm::zip_equal(group.runs, layers)) {
      size_t numStates = cached ? layer.states.size() : 0;
      Step part{all.carried, SmallVector<Value>(ArrayRef(states).slice(state, numStates)), {}, {}};
      part = this->run(run, layer, std::move(part), ArrayRef(weights).slice(weight, layer.ownWeights()));
      state += numStates;
      weight += layer.ownWeights();
      all.carried = std::move(part.carried);
      llvm::append_range(all.states, part.states);
      llvm::append_range(all.counts, part.counts);
      llvm::append_range(all.dropped, part.dropped);
    }
    return all;
  };
  if (group.rounds == 1)
    return round(in.carried, in.states, SmallVector<Value>(weights));
  return repeat(group.rounds, std::move(in), weights, round);
}

/// Counts of the runs of a group, each [rounds, count, E] without dimensions of 1, as one table [layers, E].
static Value joinCounts(EntryBuilder &entry, StringRef name, ArrayRef<Value> counts, int64_t rounds,
                        ArrayRef<int64_t> perRound) {
  OpBuilder &builder = entry.builder;
  Location loc = entry.loc(name);
  SmallVector<Value> parts;
  int64_t sum = 0, experts = cast<RankedTensorType>(counts[0].getType()).getShape().back();
  for (auto [value, count] : llvm::zip_equal(counts, perRound)) {
    RankedTensorType type = entry.integers({rounds, count, experts});
    parts.push_back(value.getType() == type ? value : ReshapeOp::create(builder, loc, type, value).getResult());
    sum += count;
  }
  Value joined = parts.front();
  if (parts.size() > 1)
    joined =
        ConcatOp::create(builder, loc, entry.integers({rounds, sum, experts}), parts, builder.getI64IntegerAttr(1));
  return ReshapeOp::create(builder, loc, entry.integers({rounds * sum, experts}), joined);
}

/// Weights of a group's layers, stacked: those that they have by themselves, from `own` on, and what is computed of the
/// model's.
static SmallVector<Value> weightsOf(EntryBuilder &entry, const LayerGroup &group, ArrayRef<Layer> layers,
                                    ValueRange::iterator &own, const LayerFlow &flow) {
  SmallVector<Value> all;
  for (auto [run, layer] : llvm::zip_equal(group.runs, layers))
    for (const WeightDecl &w : layer.weights) {
      if (w.derived) {
        Value each = w.derived(entry, flow.shared.lookup(w.name), run.layers);
        auto type = cast<RankedTensorType>(each.getType()).clone(stackedShape(group, run, w.derivedShape));
        all.push_back(ReshapeOp::create(entry.builder, entry.loc(w.name), type, each));
      } else if (!w.shared) {
        all.push_back(*own++);
      }
    }
  return all;
}

void braid::emitLayers(EntryBuilder &entry, const std::vector<LayerGroup> &plan, const LayerTable &layers,
                       ValueRange weights, LayerFlow &flow) {
  bool cached = !flow.states.empty();
  bool drops = llvm::any_of(layers, [](auto &group) { return llvm::any_of(group, [](auto &l) { return l.drops; }); });
  Step step{{flow.x}, {}, {}, {}};
  if (flow.routerLoss)
    step.carried.push_back(flow.routerLoss);
  LayerWalk walk(entry, flow, cached, drops, step.carried.size());
  if (flow.firstValue)
    step.carried.push_back(flow.firstValue);
  if (flow.drawKeys)
    step.carried.push_back(flow.drawKeys);
  SmallVector<Value> newStates;
  size_t state = 0;
  auto own = weights.begin();
  for (auto [group, groupLayers] : llvm::zip_equal(plan, layers)) {
    size_t numStates = 0;
    SmallVector<int64_t> perRound;
    for (auto [run, layer] : llvm::zip_equal(group.runs, groupLayers)) {
      numStates += cached ? layer.states.size() : 0;
      if (layer.numExperts)
        perRound.push_back(run.count);
    }
    step.states.assign(flow.states.begin() + state, flow.states.begin() + state + numStates);
    SmallVector<Value> groupWeights = weightsOf(entry, group, groupLayers, own, flow);
    step = walk.group(group, groupLayers, {step.carried, step.states, {}, {}}, groupWeights);
    state += numStates;
    llvm::append_range(newStates, step.states);
    if (perRound.empty())
      continue;
    llvm::append_range(flow.expertLoads, step.counts);
    flow.expertCounts.push_back(joinCounts(entry, "expert_counts", step.counts, group.rounds, perRound));
    if (drops)
      flow.expertDropped.push_back(joinCounts(entry, "expert_dropped", step.dropped, group.rounds, perRound));
  }
  flow.x = step.carried[0];
  if (flow.routerLoss)
    flow.routerLoss = step.carried[1];
  if (flow.firstValue)
    flow.firstValue = step.carried[flow.routerLoss ? 2 : 1];
  if (flow.drawKeys)
    flow.drawKeys = step.carried.back();
  flow.states = std::move(newStates);
}
