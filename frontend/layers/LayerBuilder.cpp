//===- LayerBuilder.cpp - weights, states and ops of a layer function ---------------------------------------------===//
#include "frontend/layers/LayerBuilder.h"
#include <cmath>

using namespace mlir;
using namespace braid;

RankedTensorType braid::drawKeysType(Builder builder, int64_t batch) {
  return RankedTensorType::get({batch, 3}, builder.getI64Type());
}

LayerBuilder::LayerBuilder(const ModelSpec &spec, ModuleOp module, EntryShape entry, StringRef name)
    : FunctionBuilder(spec, module, name), entry(entry) {
  function.setPrivate();
  block->addArgument(tokens({spec.dModel}), loc("x"));
  block->addArgument(integers({entry.batch, entry.tokens}), loc("documents"));
}

Layer LayerBuilder::finish(Value y) {
  SmallVector<Value> results = {y};
  if (loss)
    results.push_back(loss);
  if (first)
    results.push_back(first);
  if (draws)
    results.push_back(draws);
  llvm::append_range(results, newStates);
  if (expertCounts)
    results.push_back(expertCounts);
  if (expertDropped)
    results.push_back(expertDropped);
  close(results);

  unsigned argument = statesBegin();
  auto setName = [&](unsigned i, StringRef name) { function.setArgAttr(i, attrs::name, builder.getStringAttr(name)); };
  setName(0, "x");
  setName(1, "documents");
  if (loss)
    setName(2, "router_loss");
  if (first)
    setName(loss ? 3 : 2, "first_value");
  if (draws)
    setName(argument - (embedded ? 2 : 1), "draw_keys");
  if (embedded)
    setName(argument - 1, "embedding");
  for (const StateDecl &s : states)
    setName(argument++, s.name);
  for (const WeightDecl &w : weights)
    setName(argument++, w.name);

  Layer layer;
  layer.function = function;
  layer.weights = std::move(weights);
  layer.states = std::move(states);
  layer.routerLoss = static_cast<bool>(loss);
  if (first)
    layer.firstValue = cast<RankedTensorType>(first.getType());
  layer.draws = static_cast<bool>(draws);
  layer.embedding = static_cast<bool>(embedded);
  if (expertCounts)
    layer.numExperts = cast<RankedTensorType>(expertCounts.getType()).getDimSize(0);
  layer.drops = static_cast<bool>(expertDropped);
  return layer;
}

//===- Weights and states -----------------------------------------------------------------------------------------===//

Shape braid::sizesOf(ArrayRef<Dim> dims) {
  Shape shape;
  for (const Dim &dim : dims)
    shape.push_back(dim.size);
  return shape;
}

std::vector<std::string> braid::namesOf(ArrayRef<Dim> dims) {
  std::vector<std::string> names;
  for (const Dim &dim : dims)
    names.push_back(dim.name);
  return names;
}

Dim braid::flattened(ArrayRef<Dim> dims) {
  int64_t unit = 1;
  for (const Dim &dim : dims.drop_front())
    unit *= dim.size;
  const Dim &first = dims.front();
  bool named = !first.name.empty() && unit > 1;
  return {first.size * unit, named ? first.name + "*" + std::to_string(unit) : first.name};
}

void LayerBuilder::declare(StringRef name, ArrayRef<Dim> shape, FloatType element, Init init, bool decay, bool trained,
                           double rateScale, double correctionRate) {
  weights.push_back({weightName(name), sizesOf(shape), namesOf(shape), element, std::move(init), decay, trained,
                     rateScale, correctionRate, !mixer.shared.empty()});
}

Value LayerBuilder::weight(StringRef name, ArrayRef<Dim> shape, Init init, bool decay, bool trained,
                           double correctionRate) {
  declare(name, shape, types.wide, std::move(init), decay, trained, 1.0, correctionRate);
  return block->addArgument(wide(sizesOf(shape)), loc(weightName(name)));
}

Value LayerBuilder::derivedWeight(StringRef name, ArrayRef<Dim> shape, Init init, Shape ofLayer, DerivedFn derived) {
  WeightDecl decl{name.str(), sizesOf(shape), namesOf(shape), types.wide, std::move(init)};
  decl.decay = false;
  decl.shared = true;
  decl.derived = std::move(derived);
  decl.derivedShape = ofLayer;
  weights.push_back(std::move(decl));
  return block->addArgument(wide(ofLayer), loc(name));
}

/// Glorot and Bengio 2010; DeepNorm: Wang et al. 2022; `base_width`: Yang et al. 2022, in the form in which standard
/// deviations and learning rates of a base model are scaled by its width (with `scaled` and `xavier_*` the former
/// already are).
static Init matrixInit(const ModelSpec &spec, int64_t in, int64_t out, MatrixRole role) {
  const InitSpec &init = spec.init;
  double inputs = static_cast<double>(in), fans = static_cast<double>(in + out);
  bool wide = role != MatrixRole::narrow;
  double std = 1.0 / std::sqrt(inputs), gain = init.gain;
  if (init.kind == "normal")
    std = init.std / (wide ? std::sqrt(spec.widthRatio()) : 1.0);
  if (init.kind == "deepnorm" && (role == MatrixRole::value || role == MatrixRole::output))
    gain = std::pow(4.0 * static_cast<double>(spec.residualSums()), -0.25);
  if (init.kind == "xavier_normal" || init.kind == "xavier_uniform" || init.kind == "deepnorm")
    std = gain * std::sqrt(2.0 / fans);
  if (role == MatrixRole::output && init.scaleOutput)
    std /= std::sqrt(static_cast<double>(spec.residualSums()));
  if (init.kind == "xavier_uniform")
    return Init::uniform(-std::sqrt(3.0) * std, std::sqrt(3.0) * std);
  return Init::normal(std);
}

Value LayerBuilder::matrix(StringRef name, const Dim &in, const Dim &out, MatrixRole role, int64_t experts) {
  Dims shape = {in, out};
  if (role == MatrixRole::output && !mixer.shared.empty())
    role = MatrixRole::value; // what a shared block gives is only read
  if (experts)
    shape.insert(shape.begin(), Dim(experts, "experts"));
  double rateScale = role == MatrixRole::narrow ? 1.0 : 1.0 / spec.widthRatio();
  FloatType element = role == MatrixRole::router ? types.wide : types.element;
  declare(name, shape, element, matrixInit(spec, in.size, out.size, role), /*decay=*/true, /*trained=*/true, rateScale);
  return block->addArgument(RankedTensorType::get(sizesOf(shape), element), loc(weightName(name)));
}

Value LayerBuilder::headMatrices(StringRef name, const Dim &heads, int64_t in, int64_t out) {
  Dims shape = {heads, in, out};
  declare(name, shape, types.element, matrixInit(spec, in, out, MatrixRole::narrow), /*decay=*/true, /*trained=*/true,
          1.0);
  return block->addArgument(RankedTensorType::get(sizesOf(shape), types.element), loc(weightName(name)));
}

Value LayerBuilder::column(StringRef name, const Dim &in) {
  declare(name, {in}, types.wide, matrixInit(spec, in.size, 1, MatrixRole::query), /*decay=*/true, /*trained=*/true,
          1.0 / spec.widthRatio());
  return block->addArgument(wide({in.size}), loc(weightName(name)));
}

Value LayerBuilder::state(StringRef name, FloatType element, ArrayRef<Dim> shape, bool byPosition) {
  // States stand before all weights.
  unsigned index = statesBegin() + states.size();
  auto type = RankedTensorType::get(sizesOf(shape), element);
  Value value = block->insertArgument(index, type, loc(placed(name)));
  states.push_back({placed(name), type, namesOf(shape), byPosition});
  newStates.emplace_back();
  return value;
}

void LayerBuilder::setState(StringRef name, Value value) {
  for (auto [decl, slot] : llvm::zip_equal(states, newStates))
    if (decl.name == placed(name))
      slot = value;
}

unsigned LayerBuilder::statesBegin() const {
  return 2 + (loss ? 1 : 0) + (first ? 1 : 0) + (draws ? 1 : 0) + (embedded ? 1 : 0);
}

Value LayerBuilder::firstValue(RankedTensorType type) {
  if (!first)
    first = block->insertArgument(loss ? 3u : 2u, type, loc("first_value"));
  return first;
}

Value LayerBuilder::drawKeys() {
  if (!draws)
    draws =
        block->insertArgument(statesBegin() - (embedded ? 1 : 0), drawKeysType(builder, entry.batch), loc("draw_keys"));
  return draws;
}

Value LayerBuilder::embedding() {
  if (!embedded)
    embedded = block->insertArgument(statesBegin(), tokens({spec.dModel}), loc("embedding"));
  return embedded;
}

void LayerBuilder::addRouterLoss(Value perToken) {
  if (!loss)
    loss = block->insertArgument(2u, wideTokens({}), loc("router_loss"));
  loss = add("router_loss", {loss, perToken});
}

//===- Ops --------------------------------------------------------------------------------------------------------===//

RankedTensorType LayerBuilder::tokens(Shape features) const {
  Shape shape = {entry.batch, entry.tokens};
  shape.append(features);
  return tensor(shape);
}

RankedTensorType LayerBuilder::wideTokens(Shape features) const { return tokens(features).clone(types.wide); }

SmallVector<Value> LayerBuilder::linear(Value x, ArrayRef<Projection> projections) {
  SmallVector<Value> weights;
  SmallVector<Type> resultTypes;
  std::string names;
  auto xShape = cast<RankedTensorType>(x.getType()).getShape();
  for (const Projection &p : projections) {
    weights.push_back(p.weight);
    Shape shape(xShape.take_front(2));
    shape.append(p.features);
    resultTypes.push_back(p.wide ? wide(shape) : tensor(shape));
    names += (names.empty() ? "" : "_") + p.name;
  }
  auto op = LinearOp::create(builder, loc(names), resultTypes, x, weights, /*transposed=*/false);
  return SmallVector<Value>(op.getResults());
}

Value LayerBuilder::linear(StringRef name, Value x, Value weight, Shape features, bool wide) {
  return linear(x, {{name.str(), weight, std::move(features), wide}}).front();
}

Value LayerBuilder::widen(StringRef name, Value x) { return castTo(name, x, types.wide); }
Value LayerBuilder::narrow(StringRef name, Value x) { return castTo(name, x, types.element); }
Value LayerBuilder::castTo(StringRef name, Value x, FloatType element) {
  auto type = cast<RankedTensorType>(x.getType());
  return type.getElementType() == element ? x : CastOp::create(builder, loc(name), type.clone(element), x);
}

Value LayerBuilder::add(StringRef name, ValueRange sources) {
  return AddOp::create(builder, loc(name), sources.front().getType(), sources);
}
Value LayerBuilder::mul(StringRef name, Value a, Value b) {
  return MulOp::create(builder, loc(name), a.getType(), a, b);
}
Value LayerBuilder::bias(StringRef name, Value x, Value bias) {
  return BiasOp::create(builder, loc(name), x.getType(), x, bias);
}
Value LayerBuilder::weighted(StringRef name, Value x, Value weight) {
  auto rank = [](Value v) { return cast<RankedTensorType>(v.getType()).getRank(); };
  bool perHead = rank(x) - 2 > rank(weight);
  return WeightedOp::create(builder, loc(name), x.getType(), x, weight, perHead);
}
Value LayerBuilder::dot(StringRef name, Value x, Value weight) {
  auto type = cast<RankedTensorType>(x.getType());
  return DotOp::create(builder, loc(name), wide(Shape(type.getShape().drop_back())), x, weight);
}
Value LayerBuilder::activation(StringRef name, Value x, StringRef kind) {
  return ActivationOp::create(builder, loc(name), x.getType(), x, builder.getStringAttr(kind));
}
Value LayerBuilder::wideActivation(StringRef name, Value x, StringRef kind) {
  Type type = cast<RankedTensorType>(x.getType()).clone(types.wide);
  return ActivationOp::create(builder, loc(name), type, x, builder.getStringAttr(kind));
}
Value LayerBuilder::softmax(StringRef name, Value x) { return SoftmaxOp::create(builder, loc(name), x.getType(), x); }
Value LayerBuilder::l2Norm(StringRef name, Value x, double eps) {
  return L2NormOp::create(builder, loc(name), x.getType(), x, builder.getF64FloatAttr(eps));
}

Value LayerBuilder::modelNorm(StringRef name, Value x, StringRef weights) {
  Value w = weight((weights + ".weight").str(), {embed()}, Init::constant(1.0));
  Value bias;
  if (spec.norm.hasBias())
    bias = weight((weights + ".bias").str(), {embed()}, Init::constant(0.0));
  return norm(name, x, w, bias);
}

Value LayerBuilder::tokenBefore(StringRef name, Value x, StringRef key) {
  auto type = cast<RankedTensorType>(x.getType());
  int64_t channels = 1;
  for (int64_t d : type.getShape().drop_front(2))
    channels *= d;
  Value tail = state(key, cast<FloatType>(type.getElementType()), {entry.batch, 1, channels});
  // A convolution whose taps are data: all of the token before, nothing of this one.
  Value taps = weight((key + ".taps").str(), {channels, 2}, {"values", 0, 0, 0, {1.0, 0.0}}, /*decay=*/false,
                      /*trained=*/false);
  auto conv =
      ShortConvOp::create(builder, loc("before_" + name.str()), type, tail.getType(), x, taps, documents(), tail);
  setState(key, conv.getNewTail());
  return conv.getY();
}

Value LayerBuilder::repeatHeads(StringRef name, Value x, int64_t heads) {
  Shape shape(cast<RankedTensorType>(x.getType()).getShape());
  if (shape[2] == heads)
    return x;
  shape[2] = heads;
  return RepeatHeadsOp::create(builder, loc(name), cast<RankedTensorType>(x.getType()).clone(shape), x);
}

Value LayerBuilder::reshape(StringRef name, Value x, Shape shape) {
  auto type = cast<RankedTensorType>(x.getType()).clone(shape);
  if (type == x.getType())
    return x;
  return ReshapeOp::create(builder, loc(name), type, x);
}

//===- The residual block -----------------------------------------------------------------------------------------===//

namespace {
/// Mixers side by side, or a feed-forward, with their norms and the sum around them. The factors of what passes by are
/// those of all parts; where a norm is of what they add, the others are, too.
struct Sublayer {
  StringRef norm, sum;
  SmallVector<ResidualScale> scales; ///< of each part
  NormPlacement placement;
  function_ref<SmallVector<Value>(Value)> parts;
  Value injected = {}; ///< added to what they read, norm in front or not, and not to what passes by

  Value build(LayerBuilder &b, Value x) const {
    auto join = [&](Value past, ArrayRef<Value> added) {
      SmallVector<Value> sources = {b.scaled("past", past, scales.front().alpha)};
      for (auto [value, scale] : llvm::zip(added, scales))
        sources.push_back(b.scaled("added", value, scale.beta));
      return b.add(sum, sources);
    };
    auto normOfSum = [&](StringRef name, ArrayRef<Value> added) {
      return b.modelNorm(name, added.size() == 1 ? added.front() : b.add("added", added), name);
    };
    Value read = injected ? b.add("read", {x, injected}) : x;
    if (placement == NormPlacement::post)
      return b.modelNorm(norm, join(x, parts(read)), norm);
    if (placement == NormPlacement::output)
      return join(x, normOfSum(norm, parts(read)));
    Value normed = b.modelNorm(norm, read, norm);
    SmallVector<Value> y = parts(normed);
    if (placement == NormPlacement::sandwich)
      y = {normOfSum((norm + "_post").str(), y)};
    return join(b.spec.residual.from == "normed" ? normed : x, y);
  }
};
} // namespace

static Value buildMixer(LayerBuilder &b, Value x, const MixerSpec &spec) {
  x = b.scaled("mixer_input", x, std::visit([](auto &mixer) { return mixer.inputMultiplier; }, spec));
  if (auto *attention = std::get_if<AttentionSpec>(&spec))
    return buildAttention(b, x, *attention);
  if (auto *mla = std::get_if<MlaSpec>(&spec))
    return buildMla(b, x, *mla);
  if (auto *conv = std::get_if<ShortConvSpec>(&spec))
    return buildShortConv(b, x, *conv);
  if (auto *recurrence = std::get_if<RecurrenceSpec>(&spec))
    return buildRecurrence(b, x, *recurrence);
  return buildLsm(b, x, std::get<LsmSpec>(spec));
}

Layer braid::buildLayer(const ModelSpec &spec, ModuleOp module, EntryShape entry, LayerLetters letters,
                        LayerMarks marks) {
  auto [mixers, ffn, inject] = letters;
  auto nameOf = [](StringRef letters) { return letters == StringRef(&noPart, 1) ? "none" : letters.str(); };
  std::string name = "layer_" + nameOf(mixers) + "_" + nameOf({&ffn, 1}) + "_" +
                     (inject == noPart ? "" : std::string("inject") + inject + "_") + (entry.cached ? "cached_" : "") +
                     (marks.recompute ? "recompute_" : "") +
                     (marks.overlapDegree ? "degree" + std::to_string(marks.overlapDegree) + "_" : "") +
                     std::to_string(entry.batch) + "x" + std::to_string(entry.tokens);
  LayerBuilder b(spec, module, entry, name);
  const FfnSpec *f = spec.findFfn(ffn);
  auto mix = [&, mixers = mixers](Value x) {
    SmallVector<Value> added;
    for (auto [place, letter] : llvm::enumerate(mixers)) {
      b.mixer = {letter, mixers.size() > 1 ? "mixer" + std::to_string(place + 1) + "." : ""};
      added.push_back(buildMixer(b, x, *spec.findMixer(letter)));
    }
    b.mixer = {};
    return added;
  };
  auto feed = [&](Value x) -> SmallVector<Value> {
    if (auto *dense = std::get_if<DenseSpec>(f))
      return {buildDense(b, x, *dense, "ffn")};
    return {buildExperts(b, x, std::get<MoeSpec>(*f))};
  };
  SmallVector<ResidualScale> scales;
  for (char letter : mixers)
    if (const MixerSpec *mixer = spec.findMixer(letter))
      scales.push_back(spec.residualOf(*mixer));
  Value y = b.x(), injected;
  if (const InjectSpec *block = spec.findInject(inject))
    injected = buildInject(b, y, *block, inject);
  if (!scales.empty()) // those of mixers side by side are equal
    y = Sublayer{"norm1", f ? "x1" : "y", scales, spec.placementOf(*spec.findMixer(mixers.front())), mix, injected}
            .build(b, y);
  if (f)
    y = Sublayer{"norm2", "y", {spec.residualOf(*f)}, spec.placementOf(*f), feed}.build(b, y);
  Layer layer = b.finish(y);
  if (marks.recompute)
    layer.function->setAttr("braid.recompute", b.builder.getUnitAttr());
  if (marks.overlapDegree)
    layer.function->setAttr(attrs::overlapDegree, b.builder.getI64IntegerAttr(marks.overlapDegree));
  return layer;
}
