//===- Recurrence.cpp - a mixer whose recurrence the model file states --------------------------------------------===//
// The inputs become row-wise ops, projections and convolutions like those of the instances; the scan gets the class
// that the equation has (frontend/Recurrence.h).
#include "frontend/Recurrence.h"
#include "frontend/layers/LsmParts.h"
#include "llvm/ADT/StringExtras.h"

using namespace mlir;
using namespace braid;
using namespace braid::recurrence;

namespace {

class Inputs {
public:
  Inputs(LayerBuilder &b, const RecurrenceSpec &spec) : b(b), spec(spec), r(*spec.recurrence), projections(b) {}

  void build(Value x);
  Value operator[](StringRef name) const { return values.lookup(name); }
  /// An input may be called g too.
  Value gate() const { return spec.outputGate ? projections["g"] : Value(); }
  /// a times a weight or an input: numbers per head times features where that is what they are.
  Value times(StringRef name, Value a, StringRef factor);

private:
  Dims features(const Term &source, Per per) const;
  Dims features(int64_t heads, Per per) const;
  Value sameHeads(Value value, int64_t heads) { return b.repeatHeads(current->name, value, heads); }
  /// What a product gives: the elements of a state stand in one dimension until `shaped`.
  static Dims joined(Dims features);
  Value shaped(StringRef name, Value product, const Dims &features);
  void declare(const Term &term, const Definition &d);
  Value emit(const Term &term);
  Value emitCall(const Term &call);
  Value emitSum(const Term &term);
  Value emitFactors(const Term &term);
  Value parameter(StringRef name);
  bool isParameter(const Term &term) const { return term.kind == Term::Kind::name && r.parameter(term.name); }

  LayerBuilder &b;
  const RecurrenceSpec &spec;
  const Recurrence &r;
  Projections projections;
  llvm::StringMap<Value> values, parameters;
  const Definition *current = nullptr;
};

} // namespace

static int64_t headsOf(Value value) { return cast<RankedTensorType>(value.getType()).getDimSize(2); }
static Shape featuresOf(Value value) { return Shape(cast<RankedTensorType>(value.getType()).getShape().drop_front(2)); }

Dims Inputs::features(const Term &source, Per per) const {
  int64_t heads = spec.heads;
  if (auto option = source.options.find("heads"); option != source.options.end())
    (void)StringRef(option->second).getAsInteger(10, heads);
  return features(heads, per);
}

Dims Inputs::features(int64_t heads, Per per) const {
  if (per == Per::head)
    return {braid::headsOf(spec, heads)};
  if (per == Per::element)
    return {braid::headsOf(spec, heads), spec.headDim, spec.valueDim};
  return {braid::headsOf(spec, heads), per == Per::key ? spec.headDim : spec.valueDim};
}

Dims Inputs::joined(Dims features) {
  if (features.size() > 2)
    features = {features[0], features[1].size * features[2].size};
  return features;
}

Value Inputs::shaped(StringRef name, Value product, const Dims &features) {
  Shape shape{b.entry.batch, b.entry.tokens};
  shape.append(sizesOf(features));
  return shape == Shape(cast<RankedTensorType>(product.getType()).getShape()) ? product
                                                                              : b.reshape(name, product, shape);
}

/// What a projection gives: as it says, or as its input has it.
static Per perOf(const Term &source, const Definition &d) {
  auto option = source.options.find("per");
  return option != source.options.end() && option->second == "head" ? Per::head : *d.per;
}

static bool isProjected(const Term &term) {
  return (term.kind == Term::Kind::call && (term.name == "linear" || term.name == "low_rank")) ||
         llvm::any_of(term.args, isProjected);
}

/// One input has one projection of x at most; all of them are one product.
void Inputs::declare(const Term &term, const Definition &d) {
  if (term.kind == Term::Kind::call && term.name == "linear") {
    Per per = perOf(term, d);
    projections.add(d.name, joined(features(term, per)), d.wide || per == Per::head,
                    d.name == r.value ? MatrixRole::value : MatrixRole::query);
  } else if (term.kind == Term::Kind::call && term.name == "low_rank") {
    projections.addLowRank(d.name, static_cast<int64_t>(term.args[1].number));
  }
  for (const Term &arg : term.args)
    declare(arg, d);
}

/// Declared in the order of the file, whichever is used first.
Value Inputs::parameter(StringRef name) {
  for (const auto &[each, p] : r.parameters) {
    Value &value = parameters[each];
    if (!value)
      value = b.weight("lsm." + each, features(p.heads, *p.per), {p.distribution, 0, p.low, p.high, p.values},
                       /*decay=*/false, p.trained());
    if (each == name)
      return value;
  }
  llvm_unreachable("a name in parameters");
}

Value Inputs::times(StringRef name, Value a, StringRef factor) {
  if (r.parameter(factor))
    return b.weighted(name, a, parameter(factor));
  return b.mul(name, a, b.repeatHeads(factor, values.lookup(factor), headsOf(a)));
}

Value Inputs::emitCall(const Term &call) {
  StringRef name = current->name, function = call.name;
  if (function == "linear")
    return shaped(name, projections[name], features(call, perOf(call, *current)));
  if (function == "low_rank") {
    Dims shape = features(call, perOf(call, *current));
    return shaped(name, projections.lowRank(name, joined(shape), current->wide), shape);
  }
  Value arg = emit(call.args.front());
  if (function == "conv")
    return convolve(b, spec.conv.value_or(ConvSpec{}), name, arg, braid::headsOf(spec, headsOf(arg)).name);
  if (function == "softmax")
    return b.softmax(name, arg);
  if (function == "l2_norm")
    return b.l2Norm(name, arg);
  if (function == "rope")
    return b.rope(name, arg, spec.rope.value_or(RopeSpec{}));
  if (function == "log_sigmoid") {
    arg = current->wide ? b.widen(name, arg) : arg;
    return LogSigmoidOp::create(b.builder, b.loc(name), arg.getType(), arg, b.builder.getF64FloatAttr(1.0));
  }
  if (function == "log_decay") {
    arg = b.widen(name, arg);
    Value aLog = parameter(call.args[1].name), dtBias = parameter(call.args[2].name);
    return LogDecayOp::create(b.builder, b.loc(name), arg.getType(), arg, aLog, dtBias);
  }
  return current->wide ? b.wideActivation(name, arg, function) : b.activation(name, arg, function);
}

Value Inputs::emitSum(const Term &term) {
  SmallVector<Value> sources;
  SmallVector<StringRef> biases;
  bool mixed = false;
  for (const Term &arg : term.args) {
    if (isParameter(arg)) {
      biases.push_back(arg.name);
      continue;
    }
    sources.push_back(emit(arg));
    mixed |= sources.back().getType() != sources.front().getType();
  }
  if (mixed)
    for (Value &source : sources)
      source = sameHeads(b.widen(current->name, source), spec.heads);
  Value sum = sources.size() == 1 ? sources.front() : b.add(current->name, sources);
  for (StringRef bias : biases)
    sum = b.bias(current->name, sum, parameter(bias));
  return sum;
}

/// Features first, then what multiplies them in the order of the text.
Value Inputs::emitFactors(const Term &term) {
  bool quotient = term.kind == Term::Kind::quotient;
  double number = 1.0;
  SmallVector<Value> factors, perHead;
  SmallVector<StringRef> weights;
  for (auto [i, arg] : llvm::enumerate(term.args)) {
    bool below = quotient && i > 0;
    if (arg.kind == Term::Kind::number) {
      number = below ? number / arg.number : number * arg.number;
    } else if (isParameter(arg)) {
      weights.push_back(arg.name);
    } else {
      Value factor = emit(arg);
      (featuresOf(factor).size() > 1 ? factors : perHead)
          .push_back(below ? b.activation(current->name, factor, "reciprocal") : factor);
    }
  }
  llvm::append_range(factors, perHead);
  if (!llvm::all_equal(llvm::map_range(factors, [](Value factor) { return headsOf(factor); })))
    for (Value &factor : factors)
      factor = sameHeads(factor, spec.heads);
  // A constant behind a log_sigmoid is part of that op: its gradient is one op too.
  // Only of a call that stands here: under a name others read it too.
  const Term &first = term.args.front();
  bool isLog = first.kind == Term::Kind::call && first.name == "log_sigmoid";
  if (auto log = factors.front().getDefiningOp<LogSigmoidOp>();
      log && isLog && factors.size() == 1 && weights.empty() && quotient && number > 0) {
    log.setDivide(llvm::APFloat(log.getDivide().convertToDouble() / number));
    return factors.front();
  }
  Value product = factors.front();
  for (Value factor : llvm::drop_begin(factors))
    product = b.mul(current->name, product, factor);
  for (StringRef weight : weights)
    product = times(current->name, product, weight);
  return number == 1.0 ? product : b.scale(current->name, product, number);
}

Value Inputs::emit(const Term &term) {
  switch (term.kind) {
  case Term::Kind::name: return values.lookup(term.name);
  case Term::Kind::call: return emitCall(term);
  case Term::Kind::sum: return emitSum(term);
  case Term::Kind::product:
  case Term::Kind::quotient: return emitFactors(term);
  case Term::Kind::negate: return b.scale(current->name, emit(term.args.front()), -1.0);
  case Term::Kind::number:
  case Term::Kind::transpose: break;
  }
  llvm_unreachable("refused by inferShapes");
}

void Inputs::build(Value x) {
  // The gate of the output stands behind the last of q, k and v that is projected; they may come from others.
  const Definition *last = nullptr;
  for (const Definition &d : r.inputs)
    if ((d.name == r.query || d.name == r.key || d.name == r.value) && (!last || isProjected(d.term)))
      last = &d;
  for (const Definition &d : r.inputs) {
    declare(d.term, d);
    if (&d == last && spec.outputGate)
      projections.add("g", {braid::headsOf(spec, spec.heads), spec.valueDim});
  }
  projections.run(x);
  for (const Definition &d : r.inputs) {
    current = &d;
    Value value = emit(d.term);
    values[d.name] = d.wide ? b.widen(d.name, value) : b.narrow(d.name, value);
  }
  if (r.parameter(r.logDecay))
    values[r.logDecay] = parameter(r.logDecay);
}

Value braid::buildRecurrence(LayerBuilder &b, Value x, const RecurrenceSpec &spec) {
  const Recurrence &r = *spec.recurrence;
  Inputs inputs(b, spec);
  inputs.build(x);
  ScanInputs in;
  in.q = inputs[r.query];
  in.k = inputs[r.key];
  in.v = inputs[r.value];
  if (!r.writeFactors.empty())
    in.v = b.repeatHeads("v", in.v, spec.heads);
  for (StringRef factor : r.writeFactors)
    in.v = inputs.times("v", in.v, factor);
  auto ofState = [&](StringRef name) -> Value {
    Value value = inputs[name];
    return value && !r.parameter(name) ? b.repeatHeads(name, value, spec.heads) : value;
  };
  in.logDecay = ofState(r.logDecay);
  in.beta = ofState(r.beta);
  in.valueDecay = ofState(r.valueDecay);
  in.a = ofState(r.lowRankA);
  in.b = ofState(r.lowRankB);
  // The description's rotation is what rope(..) in an input uses; the scan adds none.
  LsmSpec unrotated = spec;
  unrotated.rope.reset();
  Value o = scan(b, unrotated, r.classId, in);
  if (!r.skipValue.empty()) {
    Value skip = b.repeatHeads("skip", inputs[r.skipValue], spec.heads);
    for (StringRef factor : r.skipFactors)
      skip = inputs.times("skip", skip, factor);
    o = b.add("y", {o, skip});
  }
  Value gate = inputs.gate();
  if (!spec.normGroups)
    return gatedOutput(b, spec, o, gate, {.beforeGate = spec.normFirst});
  Shape flat = {b.entry.batch, b.entry.tokens, spec.heads * spec.valueDim};
  return gatedOutput(b, spec, b.reshape("y", o, flat), gate ? b.reshape("g", gate, flat) : Value(),
                     {.beforeGate = spec.normFirst, .groups = *spec.normGroups});
}
