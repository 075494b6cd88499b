//===- Recurrence.cpp - a mixer whose recurrence the model file states --------------------------------------------===//
// The inputs become row-wise ops, projections and convolutions like those of the instances; the scan gets the class
// that the equation has (frontend/Recurrence.h).
#include "dialects/braid/ScanTraits.h"
#include "frontend/RecurrenceFunctions.h"
#include "frontend/layers/LsmParts.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSet.h"
#include <cmath>
#include <functional>
#include <utility>

using namespace mlir;
using namespace braid;
using namespace braid::recurrence;

namespace {

class Inputs {
public:
  Inputs(LayerBuilder &b, const RecurrenceSpec &spec) : b(b), spec(spec), r(*spec.recurrence), projections(b) {}

  void build(Value x);
  /// The output, an expression in which M is `read`.
  Value output(Value read);
  /// At every token, also what is the same at all of them.
  Value operator[](StringRef name);
  /// An input may be called g too.
  Value gate() const { return spec.outputGate ? projections["g"] : Value(); }
  /// a times a weight or an input: numbers per head times features where that is what they are.
  Value times(StringRef name, Value a, StringRef factor);
  Value parameter(StringRef name);

private:
  Dims features(const Term &source, Per per) const;
  Dims features(int64_t heads, Per per) const;
  Value sameHeads(Value value) { return b.repeatHeads(current->name, value, spec.heads); }
  /// What a product gives: the elements of a state stand in one dimension until `shaped`.
  static Dims joined(Dims features);
  Value shaped(StringRef name, Value product, const Dims &features);
  void declare(const Term &term, const Definition &d);
  Value emit(const Term &term);
  Value emitCall(const Term &call);
  Value emitSource(const Term &call);
  Value emitLowRank(const Term &call);
  /// Whether one of these weights is an input of parameters alone, which has all heads.
  bool ofAllHeads(ArrayRef<StringRef> weights) const {
    return llvm::any_of(weights, [&](StringRef name) {
      const Definition *d = r.definition(name);
      return d && d->per != Per::model && d->per != Per::all;
    });
  }
  Value rowOf(StringRef name);
  Value parameterRow(StringRef name);
  Value product(const Term &call);
  bool isValue(const Definition &d) const;
  bool leadsTo(StringRef from, StringRef to) const;
  Value emitSum(const Term &term);
  Value emitFactors(const Term &term);
  bool isWeight(const Term &term) const {
    return !current->constant && term.kind == Term::Kind::name && r.isConstant(term.name);
  }

  LayerBuilder &b;
  const RecurrenceSpec &spec;
  const Recurrence &r;
  Projections projections;
  llvm::StringMap<Value> values, parameters, products, rows, spread;
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
  Dim all = braid::headsOf(spec, heads);
  switch (per) {
  case Per::head: return {all};
  case Per::key: return {all, spec.headDim};
  case Per::value: return {all, spec.valueDim};
  case Per::row: return {all, r.rows(spec.headDim)};
  case Per::element: return {all, r.rows(spec.headDim), spec.valueDim};
  case Per::all: return {flattened({all, spec.valueDim})};
  case Per::model: return {b.spec.dModel};
  case Per::place: return {spec.miniBatch};
  }
  llvm_unreachable("all places are above");
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

static bool ofInput(const Term &source) { return source.args.front().name == "x"; }
static bool isProjected(const Term &term) {
  return (isSource(term) && ofInput(term)) || llvm::any_of(term.args, isProjected);
}

/// Whether `from` is computed from input `to` without a matrix product between.
bool Inputs::leadsTo(StringRef from, StringRef to) const {
  llvm::StringSet<> seen;
  std::function<void(const Term &)> visit = [&](const Term &term) {
    if (isSource(term))
      return;
    const Definition *d = term.kind == Term::Kind::name ? r.definition(term.name) : nullptr;
    if (d && seen.insert(term.name).second)
      visit(d->term);
    for (const Term &arg : term.args)
      visit(arg);
  };
  visit({.kind = Term::Kind::name, .name = from.str()});
  return seen.contains(to);
}

/// Whether what is projected becomes a value, and neither a key nor a query.
bool Inputs::isValue(const Definition &d) const {
  auto ofValue = [&](const Update *u) { return leadsTo(u->value, d.name); };
  auto ofKey = [&](const Update *u) { return leadsTo(u->key, d.name); };
  return llvm::any_of(r.updates(), ofValue) && llvm::none_of(r.updates(), ofKey) && !leadsTo(r.query, d.name);
}

/// One input has one projection of x at most; all of them are one product.
void Inputs::declare(const Term &term, const Definition &d) {
  if (term.kind == Term::Kind::call && term.name == "linear" && ofInput(term)) {
    Per per = *d.projected;
    projections.add(d.name, joined(features(term, per)), d.wide || per == Per::head,
                    isValue(d) ? MatrixRole::value : MatrixRole::query);
  } else if (term.kind == Term::Kind::call && term.name == "low_rank" && ofInput(term)) {
    projections.addLowRank(d.name, static_cast<int64_t>(term.args[1].number));
  }
  for (const Term &arg : term.args)
    declare(arg, d);
}

/// A parameter, declared in the order of the file, whichever is used first; or what is computed of them.
Value Inputs::parameter(StringRef name) {
  if (const Definition *d = r.definition(name))
    return b.reshape(name, values.lookup(name), braid::sizesOf(features(spec.heads, *d->per)));
  for (const auto &[each, p] : r.parameters) {
    Value &value = parameters[each];
    if (!value) {
      Dims shape = features(p.heads, *p.per);
      if (p.shared)
        shape.erase(shape.begin());
      Init init{p.distribution, p.scale, p.low, p.high, p.values};
      if (p.formula) {
        Sizes sizes = sizesOf(b.spec, spec);
        init.ofLayer = [recurrence = spec.recurrence, p = &p, sizes](int64_t layer) {
          return evaluate(*p, *recurrence, sizes, layer);
        };
        if (!p.perLayer())
          init.values = std::exchange(init.ofLayer, nullptr)(0);
      }
      value = b.weight("lsm." + each, shape, std::move(init), /*decay=*/false, p.trained);
    }
    if (each == name)
      return value;
  }
  llvm_unreachable("a name in parameters");
}

Value Inputs::times(StringRef name, Value a, StringRef factor) {
  if (r.isConstant(factor))
    return b.weighted(name, a, parameter(factor));
  return b.mul(name, a, b.repeatHeads(factor, values.lookup(factor), headsOf(a)));
}

/// What a matrix product reads of an input: all its features in one dimension.
Value Inputs::rowOf(StringRef name) {
  Value &row = rows[name];
  if (!row) {
    row = b.narrow(name, values.lookup(name));
    row = featuresOf(row).size() > 1 ? joinHeads(b, name, row) : row;
  }
  return row;
}

/// linear(s) of an input s: all of them are one product.
Value Inputs::product(const Term &call) {
  StringRef from = call.args.front().name;
  if (Value known = products.lookup(current->name))
    return known;
  Value source = values.lookup(from);
  bool heads = featuresOf(source).size() > 1;
  Dim in = heads ? flattened({braid::headsOf(spec, headsOf(source)), featuresOf(source).back()}) : b.embed();
  std::vector<LayerBuilder::Projection> all;
  std::function<void(const Term &, const Definition &)> add = [&](const Term &term, const Definition &d) {
    for (const Term &arg : term.args)
      add(arg, d);
    if (term.kind != Term::Kind::call || term.name != "linear" || term.args.front().name != from)
      return;
    Per per = *d.projected;
    Dims shape = joined(features(term, per));
    // What all heads give is whole: an axis of the mesh divides one side of a matrix.
    Dim out = heads ? Dim(flattened(shape).size) : flattened(shape);
    Value weight = b.matrix("lsm.w" + d.name, in, out, isValue(d) ? MatrixRole::value : MatrixRole::query);
    all.push_back({d.name, weight, braid::sizesOf(shape), d.wide || per == Per::head});
  };
  for (const Definition &d : r.inputs)
    add(d.term, d);
  for (auto [projection, value] : llvm::zip_equal(all, b.linear(rowOf(from), all)))
    products[projection.name] = value;
  return products.lookup(current->name);
}

Value Inputs::emitLowRank(const Term &call) {
  StringRef name = current->name;
  Dims shape = features(call, *current->projected);
  auto rank = static_cast<int64_t>(call.args[1].number);
  std::optional<StringRef> between;
  if (call.args.size() > 2)
    between = call.args[2].name;
  if (ofInput(call))
    return shaped(name, projections.lowRank(name, joined(shape), current->wide, between), shape);
  return shaped(name, lowRank(b, name, rowOf(call.args.front().name), rank, joined(shape), between), shape);
}

Value Inputs::emitSource(const Term &call) {
  if (call.name == "low_rank")
    return emitLowRank(call);
  Value whole = ofInput(call) ? projections[current->name] : product(call);
  return shaped(current->name, whole, features(call, *current->projected));
}

Value Inputs::emitCall(const Term &call) {
  StringRef name = current->name, function = call.name;
  if (isSource(call))
    return emitSource(call);
  if (function == "position_rate")
    return PositionRateOp::create(b.builder, b.loc(name), b.wideTokens({spec.heads}), b.documents(),
                                  parameter(call.args[0].name));
  Value arg = emit(call.args.front());
  auto has = [&](size_t count) { return call.args.size() > count; };
  auto real = [&](double value) { return b.builder.getF64FloatAttr(value); };
  if (function == "shift")
    return shifted(b, call.args[0].kind == Term::Kind::name ? StringRef(call.args[0].name) : name, arg);
  if (function == "first")
    return firstValues(b, spec, b.narrow(name, sameHeads(arg)));
  if (function == "split")
    return b.reshape(name, arg, {b.entry.batch, b.entry.tokens, spec.heads, spec.valueDim});
  if (function == "join")
    return joinHeads(b, name, sameHeads(arg));
  if (function == "inner") {
    Value other = emit(call.args[1]);
    if (arg.getType() != other.getType()) {
      arg = sameHeads(b.widen(name, arg));
      other = sameHeads(b.widen(name, other));
    }
    return inner(b, name, arg, other);
  }
  if (function == "layer_norm")
    return LayerNormOp::create(b.builder, b.loc(name), arg.getType(), arg, parameter(call.args[1].name),
                               parameter(call.args[2].name), real(has(3) ? call.args[3].number : spec.normEps));
  if (function == "rms_norm") {
    auto ones = [&] { return filled(b, name, cast<RankedTensorType>(b.wideTokens({}).clone(featuresOf(arg))), 1); };
    return b.rmsNorm(name, arg, has(1) ? parameter(call.args[1].name) : ones(),
                     has(2) ? call.args[2].number : spec.normEps);
  }
  if (function == "with_one")
    return AppendOneOp::create(b.builder, b.loc(name), b.tokens({headsOf(arg), r.rows(spec.headDim)}),
                               b.narrow(name, arg), b.builder.getI64IntegerAttr(0));
  if (function == "taylor" || function == "square")
    return FeatureMapOp::create(b.builder, b.loc(name), b.tokens({headsOf(arg), r.rows(spec.headDim)}),
                                b.narrow(name, arg), b.builder.getStringAttr(function));
  if (function == "conv")
    return convolve(b, spec.conv.value_or(ConvSpec{}), name, arg, braid::headsOf(spec, headsOf(arg)).name);
  if (function == "softmax")
    return b.softmax(name, arg);
  if (function == "l2_norm")
    return b.l2Norm(name, arg, has(1) ? call.args[1].number : 1e-6);
  if (function == "rope")
    return b.rope(name, arg, spec.rope.value_or(RopeSpec{}), has(1) ? static_cast<int64_t>(call.args[1].number) : 0);
  auto activated = [&](Value value, StringRef kind) {
    return current->wide ? b.wideActivation(name, value, kind) : b.activation(name, value, kind);
  };
  if (function == "abs")
    return b.add(name, {activated(arg, "relu"), activated(b.scale(name, arg, -1.0), "relu")});
  if (std::optional<Interval> ends = clampOf(call)) {
    arg = current->wide ? b.widen(name, arg) : arg;
    auto end = [&](double number) { return std::isfinite(number) ? real(number) : FloatAttr(); };
    return ClampOp::create(b.builder, b.loc(name), arg.getType(), arg, end(ends->low), end(ends->high));
  }
  if (function == "log_sigmoid" && has(1)) {
    arg = b.widen(name, arg);
    return BoundedGateOp::create(b.builder, b.loc(name), arg.getType(), arg, parameter(call.args[1].name));
  }
  if (function == "log_sigmoid") {
    arg = current->wide ? b.widen(name, arg) : arg;
    return LogSigmoidOp::create(b.builder, b.loc(name), arg.getType(), arg, b.builder.getF64FloatAttr(1.0));
  }
  if (function == "log_decay") {
    arg = b.widen(name, arg);
    if (!has(2))
      return ElementDecayOp::create(b.builder, b.loc(name),
                                    b.wideTokens({spec.heads, r.rows(spec.headDim), spec.valueDim}), sameHeads(arg),
                                    parameter(call.args[1].name));
    Value aLog = parameter(call.args[1].name), dtBias = parameter(call.args[2].name);
    return LogDecayOp::create(b.builder, b.loc(name), arg.getType(), arg, aLog, dtBias);
  }
  return activated(arg, function);
}

Value Inputs::emitSum(const Term &term) {
  SmallVector<Value> sources;
  SmallVector<StringRef> biases;
  double numbers = 0;
  bool mixed = false;
  for (const Term &arg : term.args) {
    if (arg.kind == Term::Kind::number) {
      numbers += arg.number;
      continue;
    }
    if (isWeight(arg)) {
      biases.push_back(arg.name);
      continue;
    }
    sources.push_back(emit(arg));
    mixed |= sources.back().getType() != sources.front().getType();
  }
  bool regroup =
      !llvm::all_equal(llvm::map_range(sources, [](Value source) { return headsOf(source); })); // x has no heads
  if (mixed)
    for (Value &source : sources) {
      source = b.widen(current->name, source);
      source = regroup ? sameHeads(source) : source;
    }
  if (ofAllHeads(biases))
    for (Value &source : sources)
      source = sameHeads(source);
  Value sum = sources.size() == 1 ? sources.front() : b.add(current->name, sources);
  for (StringRef bias : biases)
    sum = b.bias(current->name, sum, parameter(bias));
  return numbers == 0 ? sum : b.offset(current->name, sum, numbers);
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
    } else if (isWeight(arg)) {
      weights.push_back(arg.name);
    } else {
      Value factor = emit(arg);
      (featuresOf(factor).size() > 1 ? factors : perHead)
          .push_back(below ? b.activation(current->name, factor, "reciprocal") : factor);
    }
  }
  // Features that all tokens share, times numbers per head: one of them for each token.
  auto rankOf = [&](StringRef weight) { return cast<RankedTensorType>(parameter(weight).getType()).getRank(); };
  if (factors.empty())
    if (auto most = llvm::max_element(weights, [&](auto a, auto b) { return rankOf(a) < rankOf(b); });
        most != weights.end() && rankOf(*most) > 1) {
      factors.push_back((*this)[*most]);
      weights.erase(most);
    }
  llvm::append_range(factors, perHead);
  if (!llvm::all_equal(llvm::map_range(factors, [](Value factor) { return headsOf(factor); })))
    for (Value &factor : factors)
      factor = sameHeads(factor);
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
  if (ofAllHeads(weights))
    product = sameHeads(product);
  for (StringRef weight : weights)
    product = times(current->name, product, weight);
  return number == 1.0 ? product : b.scale(current->name, product, number);
}

/// A parameter as a row for ops on rows: [1, 1, ..].
Value Inputs::parameterRow(StringRef name) {
  Value &row = rows[name];
  if (!row) {
    Value weight = parameter(name);
    Shape shape{1, 1};
    shape.append(Shape(cast<RankedTensorType>(weight.getType()).getShape()));
    row = b.reshape(name, weight, shape);
  }
  return row;
}

Value Inputs::emit(const Term &term) {
  switch (term.kind) {
  case Term::Kind::name:
    if (r.isConstant(term.name) && !current->constant)
      return (*this)[term.name];
    return r.parameter(term.name) ? parameterRow(term.name) : values.lookup(term.name);
  case Term::Kind::call: return emitCall(term);
  case Term::Kind::sum: return emitSum(term);
  case Term::Kind::product:
  case Term::Kind::quotient: return emitFactors(term);
  case Term::Kind::power: {
    Value base = emit(term.args.front()), square = b.mul(current->name, base, base);
    return term.number == 2 ? square : b.mul(current->name, square, term.number == 3 ? base : square);
  }
  case Term::Kind::negate: return b.scale(current->name, emit(term.args.front()), -1.0);
  case Term::Kind::number: {
    Shape row{1, 1}, own = braid::sizesOf(features(spec.heads, *current->per));
    row.append(own);
    return filled(b, current->name, b.wideTokens(own).clone(row), term.number);
  }
  case Term::Kind::transpose: break;
  }
  llvm_unreachable("refused by inferShapes");
}

void Inputs::build(Value x) {
  // The gate of the output stands behind the last of q, k and v that is projected; they may come from others.
  const Definition *last = nullptr;
  auto isToken = [&](StringRef name) {
    return name == r.query ||
           llvm::any_of(r.updates(), [&](const Update *u) { return name == u->key || name == u->value; });
  };
  for (const Definition &d : r.inputs)
    if (isToken(d.name) && (!last || isProjected(d.term)))
      last = &d;
  for (const Definition &d : r.inputs) {
    declare(d.term, d);
    if (&d == last && spec.outputGate)
      projections.add("g", {braid::headsOf(spec, spec.heads), spec.valueDim});
  }
  if (!projections.empty())
    projections.run(x);
  values["x"] = x;
  for (const Definition &d : r.inputs) {
    if (&d == &r.inputs.back() && r.expressed)
      break;
    current = &d;
    Value value = emit(d.term);
    values[d.name] = d.wide ? b.widen(d.name, value) : b.narrow(d.name, value);
  }
}

Value Inputs::operator[](StringRef name) {
  if (name.empty() || !r.isConstant(name))
    return values.lookup(name);
  Value &value = spread[name];
  if (!value) {
    value = everyToken(b, name, parameter(name));
    if (r.standsInRow(name))
      value = b.narrow(name, value);
  }
  return value;
}

Value Inputs::output(Value read) {
  if (!r.expressed)
    return read;
  current = &r.inputs.back();
  if (r.readsSums) {
    values["z"] = TakeLastOp::create(b.builder, b.loc("z"), b.tokens({spec.heads}), read);
    read = DropLastOp::create(b.builder, b.loc("o"), b.tokens({spec.heads, spec.valueDim}), read,
                              b.builder.getI64IntegerAttr(zerosBeside(spec.valueDim)));
  }
  values["M"] = read;
  return b.narrow("o", emit(current->term));
}

/// A number in the place of a wide value [B, T, features..].
static Value sameEverywhere(LayerBuilder &b, StringRef name, Shape features, double number) {
  return filled(b, name, b.wideTokens(features), number);
}

/// The places of braid.lsm.inner_step.
static Value steps(LayerBuilder &b, Inputs &inputs, const RecurrenceSpec &spec) {
  const Recurrence &r = *spec.recurrence;
  auto ofState = [&](StringRef name) {
    Value value = inputs[name];
    return value ? b.repeatHeads(name, value, spec.heads) : value;
  };
  auto weight = [&](StringRef name) { return name.empty() ? Value() : inputs.parameter(name); };
  InnerInputs in;
  double scale = spec.scale > 0 ? spec.scale : 1.0 / std::sqrt(static_cast<double>(r.rows(spec.headDim)));
  Value ones =
      r.query == "1" ? b.narrow("ones", sameEverywhere(b, "ones", {spec.heads, r.rows(spec.headDim)}, 1)) : Value();
  in.q = b.scaled("q", ones ? ones : ofState(r.query), scale);
  in.k = ofState(r.key);
  in.target = ofState(r.value);
  in.rate = r.rate == "1" ? sameEverywhere(b, "rate", {spec.heads}, 1) : ofState(r.rate);
  in.logDecay = ofState(r.logDecay);
  in.logMomentum = ofState(r.momentum);
  in.readRate = ofState(r.placeRate);
  in.normWeight = weight(r.normWeight);
  in.normBias = weight(r.normBias);
  if (in.normWeight)
    in.normEps = r.normEps.value_or(spec.normEps);
  in.start = weight(r.start);
  return innerStep(b, spec, in);
}

namespace {

/// The places of braid.lsm.scan, of one update or several.
class Places {
public:
  Places(LayerBuilder &b, Inputs &inputs, const RecurrenceSpec &spec)
      : b(b), inputs(inputs), spec(spec), r(*spec.recurrence), kind(r.scanClass()),
        keys{spec.heads, r.rows(spec.headDim)} {}
  Value query();
  ScanInputs of(const Update &u);
  Value ofState(StringRef name) {
    Value value = inputs[name];
    return value ? arrives(name, b.repeatHeads(name, value, spec.heads)) : value;
  }

private:
  /// M_prev: everything that the state takes in comes a token later; v is then 0 at the first one.
  Value arrives(StringRef name, Value value) {
    return r.readsBefore && value && !r.isConstant(name) ? shifted(b, name, value) : value;
  }
  Value valueOf(const Update &u);
  Value decayOf(const Update &u);

  LayerBuilder &b;
  Inputs &inputs;
  const RecurrenceSpec &spec;
  const Recurrence &r;
  LsmClass kind;
  Shape keys;
};

} // namespace

Value Places::query() {
  return r.query == "1" && r.keyImaginary.empty() ? b.narrow("ones", sameEverywhere(b, "ones", keys, 1))
                                                  : inputs[r.query];
}

Value Places::valueOf(const Update &u) {
  if (u.value.empty())
    return b.narrow("v", sameEverywhere(b, "v", {spec.heads, spec.valueDim}, 0));
  Value v = inputs[u.value];
  if (r.normalised)
    v = appendOne(b, v);
  if (!u.writeFactors.empty())
    v = b.repeatHeads("v", v, spec.heads);
  for (StringRef factor : u.writeFactors)
    v = inputs.times("v", v, factor);
  return r.readsBefore ? shifted(b, u.value, v) : v; // also what is the same everywhere
}

/// As the class of all updates takes it: one number per head, or per key feature; 0 where this one does not decay.
Value Places::decayOf(const Update &u) {
  if (kind == LsmClass::S0)
    return inputs.parameter(u.logDecay);
  Value decay = ofState(u.logDecay);
  ScanTraits traits(kind);
  if (!traits.decay || traits.elementDecay)
    return decay;
  bool perHead = decay && cast<RankedTensorType>(decay.getType()).getRank() == 3;
  if (!traits.vectorDecay)
    return decay ? decay : sameEverywhere(b, "log_decay", {spec.heads}, 0);
  if (decay && !perHead)
    return decay;
  Value all = sameEverywhere(b, "log_decay", keys, decay ? 1 : 0);
  return decay ? b.mul("log_decay", all, decay) : all;
}

ScanInputs Places::of(const Update &u) {
  ScanInputs in;
  in.k = r.keyImaginary.empty() ? arrives(u.key, inputs[u.key]) : Value();
  in.v = valueOf(u);
  in.logDecay = decayOf(u);
  in.beta = u.beta == "1" ? sameEverywhere(b, "beta", {spec.heads}, 1) : ofState(u.beta);
  in.valueDecay = ofState(u.valueDecay);
  in.a = ofState(u.lowRankA);
  in.b = ofState(u.lowRankB);
  if (kind != LsmClass::D || in.a)
    return in;
  // Beside an update of class D: the delta rule is one, and so is a write that erases nothing.
  if (!in.beta) {
    in.a = in.b = b.narrow("none", sameEverywhere(b, "none", keys, 0));
    return in;
  }
  in.k = b.repeatHeads("k", in.k, spec.heads);
  in.a = b.mul("a", in.k, b.wideActivation("decay", in.logDecay, "exp"));
  in.k = b.mul("k", in.k, std::exchange(in.beta, Value()));
  in.b = b.scale("b", in.k, -1.0);
  return in;
}

/// braid.lsm.scan of the class that the equation has.
static Value scanned(LayerBuilder &b, Inputs &inputs, const RecurrenceSpec &spec) {
  const Recurrence &r = *spec.recurrence;
  Places places(b, inputs, spec);
  Value query = places.query();
  SmallVector<ScanInputs> updates;
  for (const Update *u : r.updates())
    updates.push_back(places.of(*u));
  ScanInputs &in = updates.back();
  in.q = query;
  // The description's rotation is what rope(..) in an input uses; the scan adds none.
  LsmSpec unrotated = spec;
  unrotated.rope.reset();
  Value o;
  if (r.phase.empty()) {
    o = scan(b, unrotated, r.scanClass(), query, updates);
  } else if (r.isConstant(r.phase)) {
    auto part = [&](StringRef name) { return r.keyImaginary.empty() ? Value() : inputs.parameter(name); };
    o = sharedTurnScan(b, unrotated, in, {inputs.parameter(r.phase), part(r.key), part(r.keyImaginary)});
  } else {
    o = turningScan(b, unrotated, in, summedPhases(b, unrotated, places.ofState(r.phase)));
  }
  if (r.normalised && !r.readsSums)
    o = divideByLast(b, o, spec.valueDim, 1e-6);
  return o;
}

Value braid::buildRecurrence(LayerBuilder &b, Value x, const RecurrenceSpec &spec) {
  const Recurrence &r = *spec.recurrence;
  Inputs inputs(b, spec);
  inputs.build(x);
  Value o = r.inner ? steps(b, inputs, spec) : scanned(b, inputs, spec);
  o = inputs.output(o);
  if (!r.skipValue.empty()) {
    Value skip = b.repeatHeads("skip", inputs[r.skipValue], spec.heads);
    for (StringRef factor : r.skipFactors)
      skip = inputs.times("skip", skip, factor);
    o = b.add("y", {o, skip});
  }
  Value gate = inputs.gate();
  bool joined = featuresOf(o).size() == 1;
  if (spec.outputGlu) {
    Shape flat = {b.entry.batch, b.entry.tokens, spec.heads * spec.valueDim};
    return gluOutput(b, b.reshape("y", o, flat), *spec.outputGlu);
  }
  if (!spec.normGroups && !joined)
    return gatedOutput(b, spec, o, gate, {.beforeGate = spec.normFirst});
  Shape flat = {b.entry.batch, b.entry.tokens, spec.heads * spec.valueDim};
  return gatedOutput(b, spec, b.reshape("y", o, flat), gate ? b.reshape("g", gate, flat) : Value(),
                     {.beforeGate = spec.normFirst, .groups = spec.normGroups.value_or(1)});
}
