//===- Differentiate.cpp - train_step: forward, backward, optimizer -----------------------------------------------===//
// Works on logical tensors, before any sharding: nothing here knows of ranks or slices.
#include "passes/Passes.h"
#include "passes/autodiff/BlockGradient.h"
#include "passes/autodiff/Recompute.h"
#include "passes/outline/RowsCluster.h"
#include <map>

using namespace mlir;
using namespace braid;

namespace braid {
#define GEN_PASS_DEF_DIFFERENTIATEPASS
#include "passes/Passes.h.inc"
} // namespace braid

namespace {

/// An entry function that grows arguments and named results.
struct Entry {
  func::FuncOp function;
  OpBuilder builder;
  SmallVector<Value> results;
  SmallVector<DictionaryAttr> resultAttrs;

  explicit Entry(func::FuncOp function) : function(function), builder(function.getContext()) {
    Operation *terminator = function.getBody().front().getTerminator();
    builder.setInsertionPoint(terminator);
  }
  NamedAttribute str(StringRef name, StringRef value) {
    return builder.getNamedAttr(name, builder.getStringAttr(value));
  }

  Value argument(Type type, ArrayRef<NamedAttribute> attributes) {
    unsigned index = function.getNumArguments();
    (void)function.insertArgument(index, type, builder.getDictionaryAttr(attributes), function.getLoc());
    return function.getArgument(index);
  }
  void result(Value value, ArrayRef<NamedAttribute> attributes) {
    results.push_back(value);
    resultAttrs.push_back(builder.getDictionaryAttr(attributes));
  }
  void finish() {
    Operation *terminator = function.getBody().front().getTerminator();
    terminator->setOperands(results);
    function.setFunctionType(builder.getFunctionType(function.getArgumentTypes(), ValueRange(results).getTypes()));
    function.setAllResultAttrs(resultAttrs);
  }
};

struct Parameter {
  BlockArgument value;
  std::string name;
  Value gradient;
  FloatAttr correctionRate; ///< of what loads correct
};

/// What an entry updates: by the gradient of the loss, and what only selects experts by their loads.
struct Parameters {
  SmallVector<Parameter> trained, corrections;
  auto all() const { return llvm::concat<const Parameter>(trained, corrections); }
};

class DifferentiatePass : public braid::impl::DifferentiatePassBase<DifferentiatePass> {
  void runOnOperation() override {
    SmallVector<func::FuncOp> entries;
    for (auto function : getOperation().getOps<func::FuncOp>())
      if (function->hasAttr("braid.train"))
        entries.push_back(function);
    // Stages of a pipeline share layer functions, so their gradients, too.
    SymbolTable symbols(getOperation());
    GradientState state{getOperation(), symbols, {}, {}};
    for (func::FuncOp function : entries)
      if (failed(differentiate(function, state)))
        return signalPassFailure();
    getOperation()->walk([](Operation *op) { op->removeAttr(kRecomputeAttr); });
  }

  LogicalResult differentiate(func::FuncOp function, GradientState &state);
  void accumulate(Entry &entry, const Parameters &parameters);
  void addUpdate(func::FuncOp step, DictionaryAttr settings, const Parameters &parameters);
  void optimize(Entry &entry, DictionaryAttr settings, Parameters &all);
};

/// How the outside knows the gradient of a parameter.
SmallVector<NamedAttribute> gradientAttrs(Entry &entry, const Parameter &parameter, Attribute layers) {
  SmallVector<NamedAttribute> attributes = {entry.str(attrs::name, "gradient." + parameter.name),
                                            entry.str(attrs::role, "gradient"), entry.str(attrs::of, parameter.name)};
  if (layers)
    attributes.push_back(entry.builder.getNamedAttr(attrs::layers, layers));
  if (parameter.correctionRate)
    attributes.push_back(entry.builder.getNamedAttr(attrs::correctionRate, parameter.correctionRate));
  return attributes;
}

std::string nameOf(func::FuncOp function, unsigned argument) {
  return function.getArgAttrOfType<StringAttr>(argument, attrs::name).str();
}

/// Index of the result with this braid.name, or -1.
int resultNamed(func::FuncOp function, StringRef name) {
  for (unsigned i = 0; i < function.getNumResults(); ++i)
    if (auto attr = function.getResultAttrOfType<StringAttr>(i, attrs::name); attr && attr.getValue() == name)
      return i;
  return -1;
}

/// Index of the result that is the gradient of this parameter, or -1; of others of its name the layers differ.
int gradientOf(func::FuncOp function, unsigned argument) {
  for (unsigned i = 0; i < function.getNumResults(); ++i)
    if (auto of = function.getResultAttrOfType<StringAttr>(i, attrs::of);
        of && of == function.getArgAttr(argument, attrs::name) &&
        function.getResultAttr(i, attrs::layers) == function.getArgAttr(argument, attrs::layers))
      return i;
  return -1;
}

/// A value at the boundary of two stages, and what its cotangent is called there.
bool passesCotangent(DictionaryAttr attributes, StringRef role, Type type) {
  auto own = attributes ? attributes.getAs<StringAttr>(attrs::role) : StringAttr();
  return own && own.getValue() == role && isa<FloatType>(cast<RankedTensorType>(type).getElementType());
}
SmallVector<NamedAttribute> cotangentAttrs(Entry &entry, DictionaryAttr value) {
  SmallVector<NamedAttribute> attributes = {
      entry.str(attrs::name, (value.getAs<StringAttr>(attrs::name).getValue() + ".cotangent").str()),
      entry.str(attrs::role, kStageCotangent)};
  if (Attribute dims = value.get(attrs::dims))
    attributes.push_back(entry.builder.getNamedAttr(attrs::dims, dims));
  return attributes;
}

LogicalResult DifferentiatePass::differentiate(func::FuncOp function, GradientState &state) {
  auto settings = function->getAttrOfType<DictionaryAttr>("braid.train");
  function->removeAttr("braid.train");
  int sumIndex = resultNamed(function, "loss_sum"), countIndex = resultNamed(function, "loss_count"),
      auxIndex = resultNamed(function, "aux_loss");
  if (sumIndex < 0 || countIndex < 0)
    return function.emitOpError() << "has braid.train but no results named loss_sum and loss_count";

  Activity activity(state.symbols);
  Parameters parameters;
  SmallVector<BlockArgument> stageInputs; // of another stage, which waits for their cotangents
  for (BlockArgument argument : function.getArguments()) {
    unsigned i = argument.getArgNumber();
    auto role = function.getArgAttrOfType<StringAttr>(i, attrs::role);
    auto trained = function.getArgAttrOfType<BoolAttr>(i, attrs::trained);
    if (passesCotangent(function.getArgAttrDict(i), kStageInput, argument.getType())) {
      activity.mark(argument);
      stageInputs.push_back(argument);
    }
    if (!role || role.getValue() != "parameter")
      continue;
    if (auto rate = function.getArgAttrOfType<FloatAttr>(i, attrs::correctionRate))
      parameters.corrections.push_back({argument, nameOf(function, i), {}, rate});
    if (trained && !trained.getValue())
      continue;
    parameters.trained.push_back({argument, nameOf(function, i), {}, {}});
    activity.mark(argument);
  }
  Block &body = function.getBody().front();
  activity.analyze(body);

  Entry entry(function);
  Operation *terminator = body.getTerminator();
  SmallVector<Value> forward(terminator->getOperands());
  Location loc = function.getLoc();
  Value sum = forward[sumIndex], count = forward[countIndex], aux = auxIndex >= 0 ? forward[auxIndex] : Value();

  // D9: the seed is one over the number of labels of the whole batch; gradients are summed everywhere, never averaged.
  // A step that is one of several before an update does not see the other labels: the host says the scales.
  bool accumulates = settings.contains("accumulate");
  Value seed, auxScale;
  if (accumulates) {
    seed = entry.argument(count.getType(), {entry.str(attrs::name, "loss_scale"), entry.str(attrs::role, "input")});
    if (aux)
      auxScale = entry.argument(aux.getType(), {entry.str(attrs::name, "aux_scale"), entry.str(attrs::role, "input")});
  } else {
    seed = ActivationOp::create(entry.builder, loc, count.getType(), count, "reciprocal");
  }
  state.bf16Gradients = false;
  if (auto dtype = settings.getAs<StringAttr>("gradient_dtype"))
    state.bf16Gradients = dtype.getValue() == "bf16";
  BlockGradient gradient(state, activity, body, entry.builder, nullptr);
  bool isPart = false; // a later stage has the loss
  for (auto [i, value] : llvm::enumerate(forward)) {
    DictionaryAttr attributes = function.getResultAttrDict(i);
    if (!passesCotangent(attributes, kStageOutput, value.getType()))
      continue;
    isPart = true;
    Value cotangent = entry.argument(value.getType(), cotangentAttrs(entry, attributes));
    if (activity.isActive(value))
      gradient.add(value, cotangent);
  }
  if (!activity.isActive(sum) && !isPart)
    return function.emitOpError() << "loss_sum depends on no trained parameter";
  if (activity.isActive(sum))
    gradient.add(sum, seed);
  if (aux && activity.isActive(aux)) {
    auto type = cast<RankedTensorType>(aux.getType());
    auto one = DenseElementsAttr::get(type, entry.builder.getFloatAttr(type.getElementType(), 1.0));
    gradient.add(aux, auxScale ? auxScale : arith::ConstantOp::create(entry.builder, loc, one).getResult());
  }
  if (failed(gradient.run()))
    return failure();
  for (BlockArgument input : stageInputs)
    entry.result(gradient.cotangentOrZero(input), cotangentAttrs(entry, function.getArgAttrDict(input.getArgNumber())));
  for (Parameter &parameter : parameters.trained) {
    parameter.gradient = gradient.cotangent(parameter.value);
    if (!parameter.gradient)
      return function.emitOpError() << "parameter " << parameter.name
                                    << " has no gradient: the loss does not depend on it";
  }
  // A correction's is the load that the entry returns; it is read here, by nobody outside.
  SmallVector<int> loads;
  for (const Parameter &parameter : parameters.corrections) {
    loads.push_back(gradientOf(function, parameter.value.getArgNumber()));
    if (loads.back() < 0)
      return function.emitOpError() << "parameter " << parameter.name << " has " << attrs::correctionRate
                                    << " but no result is its gradient";
  }

  // What the host reads: the mean loss instead of sum and count; everything else stays as the frontend named it.
  forward.assign(terminator->operand_begin(), terminator->operand_end()); // rebuilt forward ops have new results
  for (auto [parameter, load] : llvm::zip_equal(parameters.corrections, loads))
    parameter.gradient = forward[load];
  // The gradient of the loss finds the sum on its way: the forward's sum is then read by nobody and not computed.
  if (auto loss = forward[sumIndex].getDefiningOp<LinearCrossEntropyOp>())
    for (Operation *user : loss.getLabels().getUsers())
      if (auto grad = dyn_cast<LinearCrossEntropyGradOp>(user); grad && grad.getX() == loss.getX())
        forward[sumIndex] = grad.getSum();
  auto mean = MulOp::create(entry.builder, loc, sum.getType(), forward[sumIndex], seed);
  entry.result(mean, {entry.str(attrs::name, "loss"), entry.str(attrs::role, "output")});
  for (auto [i, value] : llvm::enumerate(forward)) {
    if (static_cast<int>(i) == auxIndex && auxScale)
      value = MulOp::create(entry.builder, loc, value.getType(), value, auxScale);
    if (static_cast<int>(i) != sumIndex && static_cast<int>(i) != countIndex &&
        !llvm::is_contained(loads, static_cast<int>(i)))
      entry.result(value, function.getResultAttrDict(i).getValue());
  }
  if (accumulates)
    accumulate(entry, parameters);
  else
    optimize(entry, settings, parameters);
  entry.finish();
  if (accumulates)
    addUpdate(function, settings, parameters);
  return success();
}

/// Gradients are added to what earlier steps left, in place, in the order of the steps.
void DifferentiatePass::accumulate(Entry &entry, const Parameters &parameters) {
  OpBuilder &builder = entry.builder;
  for (const Parameter &parameter : parameters.all()) {
    Attribute layers = entry.function.getArgAttr(parameter.value.getArgNumber(), attrs::layers);
    SmallVector<NamedAttribute> attributes = gradientAttrs(entry, parameter, layers);
    Value before = entry.argument(parameter.gradient.getType(), attributes);
    auto sum =
        AddOp::create(builder, entry.function.getLoc(), before.getType(), ValueRange{before, parameter.gradient});
    sum->setAttr(kInPlaceAttr, builder.getUnitAttr());
    unsigned number = cast<BlockArgument>(before).getArgNumber();
    attributes.push_back(builder.getNamedAttr(attrs::alias, builder.getI64IntegerAttr(number)));
    entry.result(sum, attributes);
  }
}

/// The entry that follows the last of these steps: clipping and AdamW on the accumulated gradients.
void DifferentiatePass::addUpdate(func::FuncOp step, DictionaryAttr settings, const Parameters &parameters) {
  OpBuilder builder(step);
  builder.setInsertionPointAfter(step);
  auto loc = NameLoc::get(builder.getStringAttr("update_step"));
  auto function =
      func::FuncOp::create(builder, loc, stagedName("update_step", stageOf(step)), builder.getFunctionType({}, {}));
  function->setAttr(attrs::entry, builder.getUnitAttr());
  if (Attribute stage = step->getAttr(attrs::stage))
    function->setAttr(attrs::stage, stage);
  builder.setInsertionPointToEnd(function.addEntryBlock());
  func::ReturnOp::create(builder, loc);
  Entry update(function);
  Parameters own = parameters;
  for (auto *list : {&own.trained, &own.corrections})
    for (Parameter &parameter : *list) {
      unsigned i = parameter.value.getArgNumber();
      Value value = update.argument(parameter.value.getType(), step.getArgAttrDict(i).getValue());
      parameter.value = cast<BlockArgument>(value);
    }
  for (auto *list : {&own.trained, &own.corrections})
    for (Parameter &parameter : *list) {
      Attribute layers = function.getArgAttr(parameter.value.getArgNumber(), attrs::layers);
      parameter.gradient = update.argument(parameter.gradient.getType(), gradientAttrs(update, parameter, layers));
    }
  optimize(update, settings, own);
  update.finish();
}

void DifferentiatePass::optimize(Entry &entry, DictionaryAttr settings, Parameters &all) {
  MutableArrayRef<Parameter> parameters = all.trained;
  func::FuncOp function = entry.function;
  OpBuilder &builder = entry.builder;
  Location loc = function.getLoc();
  auto setting = [&](StringRef name, double fallback) {
    auto attr = settings.getAs<FloatAttr>(name);
    return attr ? attr.getValueAsDouble() : fallback;
  };
  // The optimizer computes in f32 (f64 programs: f64), whatever weights and gradients are kept in.
  bool isF64 = cast<RankedTensorType>(parameters[0].gradient.getType()).getElementType().isF64();
  Type element = isF64 ? Type(builder.getF64Type()) : Type(builder.getF32Type());
  auto scalar = RankedTensorType::get({1}, element);
  auto index = RankedTensorType::get({1}, builder.getI32Type());

  struct Moments {
    Value first, second, low; ///< low: null where the parameter itself is f32 or f64
  };
  SmallVector<Moments> moments;
  auto momentDtype = settings.getAs<StringAttr>("moment_dtype");
  bool bf16Moments = momentDtype && momentDtype.getValue() == "bf16";
  auto moment = [&](Parameter &parameter, StringRef slot, Type element) {
    SmallVector<NamedAttribute> attributes = {entry.str(attrs::name, parameter.name + "." + slot.str()),
                                              entry.str(attrs::role, "moment"), entry.str(attrs::of, parameter.name),
                                              entry.str(attrs::slot, slot)};
    if (Attribute layers = function.getArgAttr(parameter.value.getArgNumber(), attrs::layers))
      attributes.push_back(builder.getNamedAttr(attrs::layers, layers));
    return entry.argument(cast<RankedTensorType>(parameter.gradient.getType()).clone(element), attributes);
  };
  for (Parameter &parameter : parameters) {
    bool rounded = cast<RankedTensorType>(parameter.value.getType()).getElementType().isBF16();
    Type kept = rounded && bf16Moments ? Type(builder.getBF16Type()) : element;
    Value first = moment(parameter, "first", kept), second = moment(parameter, "second", kept);
    moments.push_back({first, second, rounded ? moment(parameter, "low", builder.getI16Type()) : Value()});
  }
  Value learningRate =
      entry.argument(scalar, {entry.str(attrs::name, "learning_rate"), entry.str(attrs::role, "input")});
  Value step = entry.argument(index, {entry.str(attrs::name, "step"), entry.str(attrs::role, "input")});

  SmallVector<Value> gradients;
  for (Parameter &parameter : parameters)
    gradients.push_back(parameter.gradient);
  Value squares = SumSquaresOp::create(builder, loc, scalar, gradients);
  auto clip =
      ClipScaleOp::create(builder, loc, scalar, scalar, squares, builder.getF64FloatAttr(setting("clip_norm", 0.0)));
  entry.result(clip.getNorm(), {entry.str(attrs::name, "grad_norm"), entry.str(attrs::role, "output")});

  // Parameters whose learning rate is a multiple of the step's: one scalar per multiple.
  std::map<double, Value> rates = {{1.0, learningRate}};
  auto rateOf = [&](unsigned argument) {
    auto scale = function.getArgAttrOfType<FloatAttr>(argument, attrs::rateScale);
    Value &rate = rates[scale ? scale.getValueAsDouble() : 1.0];
    if (!rate)
      rate = ScaleOp::create(builder, loc, scalar, learningRate, builder.getF64FloatAttr(scale.getValueAsDouble()));
    return rate;
  };
  auto alias = [&](Value result, Value argument) {
    unsigned number = cast<BlockArgument>(argument).getArgNumber();
    SmallVector<NamedAttribute> attributes(function.getArgAttrDict(number).getValue());
    attributes.push_back(builder.getNamedAttr(attrs::alias, builder.getI64IntegerAttr(number)));
    entry.result(result, attributes);
  };
  for (auto [parameter, moment] : llvm::zip_equal(parameters, moments)) {
    unsigned i = parameter.value.getArgNumber();
    auto decays = function.getArgAttrOfType<BoolAttr>(i, attrs::decay);
    auto update = AdamwOp::create(
        builder, loc, parameter.value.getType(), moment.first.getType(), moment.second.getType(),
        moment.low ? moment.low.getType() : Type(), parameter.value, parameter.gradient, moment.first, moment.second,
        rateOf(i), step, clip.getScale(), moment.low, builder.getF64FloatAttr(setting("beta1", 0.9)),
        builder.getF64FloatAttr(setting("beta2", 0.95)), builder.getF64FloatAttr(setting("eps", 1e-8)),
        builder.getF64FloatAttr(decays && !decays.getValue() ? 0.0 : setting("weight_decay", 0.1)));
    alias(update.getNewParameter(), parameter.value);
    alias(update.getNewFirst(), moment.first);
    alias(update.getNewSecond(), moment.second);
    if (moment.low)
      alias(update.getNewLow(), moment.low);
    if (!isa<BlockArgument>(parameter.gradient))
      entry.result(parameter.gradient, gradientAttrs(entry, parameter, function.getArgAttr(i, attrs::layers)));
  }
  for (const Parameter &parameter : all.corrections) {
    // [layers.., E]: all layers beside each other, as rows.
    auto type = cast<RankedTensorType>(parameter.value.getType());
    int64_t experts = type.getShape().back();
    RankedTensorType rows = type.clone({1, type.getNumElements() / experts, experts});
    auto shaped = [&](Value value, RankedTensorType to) { return ReshapeOp::create(builder, loc, to, value); };
    Value corrected = MoeCorrectOp::create(builder, loc, rows, shaped(parameter.value, rows),
                                           shaped(parameter.gradient, rows), parameter.correctionRate);
    alias(shaped(corrected, type), parameter.value);
  }
}

} // namespace
