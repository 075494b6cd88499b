//===- RecurrenceShapes.cpp - what every input and parameter of a recurrence has per token ------------------------===//
// The equations say it of their symbols (q and k: head_dim, v: value_dim, decays and strengths: by their class); from
// there it goes back through the inputs, last one first, as an input names only those before it.
#include "dialects/braid/BraidDialect.h"
#include "frontend/ModelSpec.h"
#include "frontend/Recurrence.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/FormatVariadic.h"
#include <cmath>
#include <functional>
#include <map>

using namespace braid;
using namespace braid::recurrence;
using llvm::formatv;
using llvm::StringRef;

StringRef recurrence::nameOf(Per per) {
  switch (per) {
  case Per::head: return "head";
  case Per::key: return "key";
  case Per::value: return "value";
  case Per::element: return "element";
  case Per::row: return "row";
  case Per::all: return "all";
  case Per::model: return "model";
  case Per::place: return "place";
  }
  llvm_unreachable("all places are above");
}

static std::optional<Per> perOf(StringRef name) {
  for (Per per : {Per::head, Per::key, Per::value, Per::element, Per::row, Per::all, Per::model, Per::place})
    if (nameOf(per) == name)
      return per;
  return std::nullopt;
}

namespace {

struct Function {
  StringRef name;
  size_t least, most; ///< arguments
  enum class Kind {
    source, ///< a product of all features of one thing
    feature, ///< of each number
    vector, ///< of all numbers of a head
    before, ///< of the token before
    first, ///< of another layer
    norm, ///< with two parameters
    decay,
    rows, ///< head_dim numbers to the rows of the state
    inner, ///< two times a head's numbers to one
    join, ///< all heads as one
    split, ///< and x as all heads
    place ///< of the place in a mini-batch
  } kind;
};

constexpr Function functions[] = {
    {"linear", 1, 1, Function::Kind::source},      {"low_rank", 2, 3, Function::Kind::source},
    {"conv", 1, 1, Function::Kind::feature},       {"silu", 1, 1, Function::Kind::feature},
    {"sigmoid", 1, 1, Function::Kind::feature},    {"tanh", 1, 1, Function::Kind::feature},
    {"relu", 1, 1, Function::Kind::feature},       {"relu2", 1, 1, Function::Kind::feature},
    {"gelu", 1, 1, Function::Kind::feature},       {"gelu_tanh", 1, 1, Function::Kind::feature},
    {"softplus", 1, 1, Function::Kind::feature},   {"elu1", 1, 1, Function::Kind::feature},
    {"exp", 1, 1, Function::Kind::feature},        {"sin", 1, 1, Function::Kind::feature},
    {"cos", 1, 1, Function::Kind::feature},        {"bounded_exp", 1, 1, Function::Kind::feature},
    {"reciprocal", 1, 1, Function::Kind::feature}, {"log_sigmoid", 1, 2, Function::Kind::feature},
    {"softmax", 1, 1, Function::Kind::vector},     {"l2_norm", 1, 2, Function::Kind::vector},
    {"rope", 1, 2, Function::Kind::vector},        {"layer_norm", 3, 4, Function::Kind::norm},
    {"log_decay", 2, 3, Function::Kind::decay},    {"shift", 1, 1, Function::Kind::before},
    {"first", 1, 1, Function::Kind::first},        {"taylor", 1, 1, Function::Kind::rows},
    {"square", 1, 1, Function::Kind::rows},        {"with_one", 1, 1, Function::Kind::rows},
    {"inner", 2, 2, Function::Kind::inner},        {"join", 1, 1, Function::Kind::join},
    {"split", 1, 1, Function::Kind::split},        {"position_rate", 1, 1, Function::Kind::place}};

const Function *functionOf(StringRef name) {
  const Function *function = llvm::find_if(functions, [&](const Function &f) { return f.name == name; });
  return function == std::end(functions) ? nullptr : function;
}

/// What a low_rank may have between its products.
constexpr StringRef betweens[] = {"tanh", "sigmoid", "silu", "relu", "gelu"};

} // namespace

static bool hasName(const Term &term) { return term.kind == Term::Kind::name || llvm::any_of(term.args, hasName); }

/// Whether the value differs between tokens: not a number, not a parameter.
static bool dependsOnToken(const Recurrence &r, const Term &term) {
  if (term.kind == Term::Kind::name)
    return !r.isConstant(term.name);
  const Function *function = term.kind == Term::Kind::call ? functionOf(term.name) : nullptr;
  return (function && function->kind == Function::Kind::place) ||
         llvm::any_of(term.args, [&](auto &arg) { return dependsOnToken(r, arg); });
}

void recurrence::findConstants(Recurrence &r) {
  for (Definition &d : r.inputs)
    d.constant = !dependsOnToken(r, d.term) && hasName(d.term);
}

namespace {
class Inference {
public:
  Inference(Recurrence &r, const Sizes &sizes, ErrorFn error)
      : r(r), sizes(sizes), heads(sizes.heads), errorFn(error) {}
  bool run();

private:
  bool demand(const Term &term, Per per);
  bool demandName(const std::string &name, Per per, size_t column);
  bool demandCall(const Term &call, Per per);
  bool demandFactors(const Term &term, Per per);
  bool source(const Term &call, Per per);
  bool parameterAt(const Term &call, size_t i, Per per);
  bool demandDecay(const Term &call, Per per);
  bool demandRows(const Term &call, Per per);
  bool demandNorm(const Term &call, Per per);
  bool eps(const Term &call, size_t i);
  /// Keys and values are alike where a head has as many of both.
  bool alike(Per a, Per b) const {
    auto wide = [&](Per per) {
      bool square = sizes.headDim == sizes.valueDim, whole = sizes.heads * sizes.valueDim == sizes.dModel;
      return square && per == Per::key ? Per::value : whole && per == Per::all ? Per::model : per;
    };
    return wide(a) == wide(b);
  }
  std::optional<Per> fixed(const Term &term) const;
  bool dependsOnToken(const Term &term) const { return ::dependsOnToken(r, term); }
  bool shareHeads();
  bool constants();
  int64_t headsOf(const Term &term, bool &ok);
  bool isWide(const Definition &d) const;
  bool isRow(StringRef name) const {
    return llvm::is_contained({r.query, r.key, r.value, r.lowRankA, r.lowRankB, r.skipValue}, name);
  }
  /// What the equations made has a name that no text has.
  std::string keyOf(const Definition &d) const {
    return d.name == "o" ? "output" : StringRef(d.name).contains(' ') ? "state" : "inputs." + d.name;
  }
  bool fail(size_t column, StringRef message) {
    errorFn(key, formatv("column {0}: {1}", column, message).str());
    return false;
  }

  Recurrence &r;
  Sizes sizes;
  int64_t heads; ///< of the state
  ErrorFn errorFn;
  std::string key = "state";
  Definition *current = nullptr; ///< whose term is at hand; null: the equations
  llvm::StringSet<> used;
  size_t sources = 0, convolutions = 0;
};

} // namespace

/// What the term says of itself: per=head somewhere inside, a symbol whose place is known.
std::optional<Per> Inference::fixed(const Term &term) const {
  switch (term.kind) {
  case Term::Kind::name:
    if (term.name == "x" || term.name == "M")
      return term.name == "x" ? Per::model : Per::value;
    if (const Parameter *p = r.parameter(term.name))
      return p->per;
    if (const Definition *d = r.definition(term.name); d && (!current || d < current))
      return d->per ? d->per : d->own;
    return std::nullopt;
  case Term::Kind::call:
    if (auto option = term.options.find("per"); option != term.options.end())
      return perOf(option->second);
    if (const Function *function = functionOf(term.name))
      switch (function->kind) {
      case Function::Kind::source: return std::nullopt;
      case Function::Kind::rows: return Per::row;
      case Function::Kind::inner:
      case Function::Kind::place: return Per::head;
      case Function::Kind::join: return Per::all;
      case Function::Kind::split: return Per::value;
      case Function::Kind::decay:
        if (term.args.size() == 2)
          return Per::element;
        break;
      default: break;
      }
    return term.args.empty() ? std::nullopt : fixed(term.args.front());
  case Term::Kind::product:
  case Term::Kind::quotient: {
    // Features times numbers per head are features.
    std::optional<Per> all;
    for (const Term &arg : term.args) {
      std::optional<Per> per = fixed(arg);
      if (per && *per != Per::head)
        return per;
      if (!per && arg.kind != Term::Kind::number)
        return std::nullopt;
      all = per ? per : all;
    }
    return all;
  }
  default:
    for (const Term &arg : term.args)
      if (std::optional<Per> per = fixed(arg))
        return per;
    return std::nullopt;
  }
}

bool Inference::demandName(const std::string &name, Per per, size_t column) {
  used.insert(name);
  if (name == "x")
    return alike(per, Per::model) || fail(column, "x has all features of d_model; valid: linear(x), low_rank(x, 16)");
  if (name == "M")
    return alike(per, Per::value) ||
           fail(column,
                formatv("what is read has one number per value, but per {0} is needed here", nameOf(per)).str());
  auto agree = [&](std::optional<Per> &known) {
    if (!known)
      known = per;
    return alike(*known, per) ||
           fail(column, formatv("'{0}' is one number per {1} here, but per {2} elsewhere; valid: two names", name,
                                nameOf(per), nameOf(*known))
                            .str());
  };
  if (Parameter *parameter = r.parameter(name)) {
    if (parameter->shared && (!current || current->constant))
      return fail(column, "'" + name + "' is one for all heads; valid in this place: one for each, shared false");
    return agree(parameter->per);
  }
  Definition *definition = r.definition(name);
  if (!definition || (current && definition >= current))
    return fail(column, definition ? "'" + name + "' comes later in inputs; valid: names before this one"
                                   : "'" + name + "' is not defined; valid: x, or a name in inputs or parameters");
  return agree(definition->per);
}

/// A parameter by its name, one number per `per`.
bool Inference::parameterAt(const Term &call, size_t i, Per per) {
  const Term &arg = call.args[i];
  if (arg.kind != Term::Kind::name || !r.parameter(arg.name))
    return fail(arg.column, formatv("valid as argument {0} of {1}: a name in parameters", i + 1, call.name).str());
  if (r.parameter(arg.name)->shared && call.name != "layer_norm")
    return fail(arg.column,
                "'" + arg.name + "' is one for all heads; valid in " + call.name + ": one for each, shared false");
  return demandName(arg.name, per, arg.column);
}

/// Argument i, where there is one: a small number above 0.
bool Inference::eps(const Term &call, size_t i) {
  return call.args.size() <= i || keepsFromZero(call.args[i]) ||
         fail(call.args[i].column,
              "valid as what keeps " + call.name + " from dividing by 0: a number above 0, at most 1");
}

bool Inference::source(const Term &call, Per per) {
  const Term &from = call.args.front();
  if (from.kind != Term::Kind::name)
    return fail(from.column,
                "valid as the first argument of " + call.name + ": x, the layer's input, or a name in inputs");
  if (current->constant)
    return fail(call.column, call.name + " of parameters alone; valid: functions of each number");
  if (++sources > 1)
    return fail(call.column, "a second linear or low_rank of one input; valid: a name in inputs of its own");
  if (per == Per::row || per == Per::all || per == Per::place)
    return fail(call.column, formatv("one number per {0} is needed here; valid: functions of a {1} that give it",
                                     nameOf(per), call.name)
                                 .str());
  current->projected = per;
  if (from.name != "x") {
    const Definition *d = r.definition(from.name);
    if (!demandName(from.name, d && d->per ? *d->per : d && d->own ? *d->own : Per::value, from.column))
      return false;
    if (!d || (!alike(*d->per, Per::model) && d->per != Per::key && d->per != Per::value))
      return fail(from.column, "'" + from.name + "' has no features; valid: x, or an input with several per head");
  }
  if (call.name == "low_rank") {
    const Term &rank = call.args[1];
    if (rank.kind != Term::Kind::number || rank.number < 1 || rank.number > 65536 ||
        rank.number != static_cast<double>(static_cast<int64_t>(rank.number)))
      return fail(rank.column, "valid as the rank: a whole number from 1 to 65536");
    if (call.args.size() > 2 &&
        (call.args[2].kind != Term::Kind::name || !llvm::is_contained(betweens, call.args[2].name)))
      return fail(call.args[2].column,
                  "valid as what stands between the two products: " + llvm::join(llvm::ArrayRef(betweens), ", "));
  }
  for (const auto &[option, value] : call.options) {
    if (option == "per") {
      if (!perOf(value))
        return fail(call.column, "per=" + value + "; valid: head, key, value, element, model");
      if (!alike(*perOf(value), per))
        return fail(call.column, formatv("per={0}, but one number per {1} is needed here", value, nameOf(per)).str());
    } else if (option == "heads") {
      if (per == Per::element || per == Per::model)
        return fail(call.column, formatv("heads={0} of one number per {1}; valid: all heads", value,
                                         per == Per::model ? "feature of x" : "element of the state")
                                     .str());
      int64_t own = 0;
      if (StringRef(value).getAsInteger(10, own) || own < 1 || heads % own)
        return fail(call.column, formatv("heads={0} does not divide heads {1}; valid: a divisor", value, heads).str());
    } else {
      return fail(call.column, "option '" + option + "'; valid: heads, per");
    }
  }
  return true;
}

/// log_decay(dt, a_log, dt_bias) per head or key; log_decay(delta, a_log) per element, delta per value.
bool Inference::demandDecay(const Term &call, Per per) {
  if (call.args.size() == 2) {
    if (per != Per::element)
      return fail(call.column, formatv("log_decay(delta, a_log) is one number per element, but per {0} is needed here; "
                                       "valid: log_decay(dt, a_log, dt_bias)",
                                       nameOf(per))
                                   .str());
    return parameterAt(call, 1, Per::element) && demand(call.args.front(), Per::value);
  }
  if (per != Per::head && per != Per::key)
    return fail(call.column,
                formatv("log_decay is one number per head or key, but per {0} is needed here", nameOf(per)).str());
  for (size_t i : {1, 2})
    if (call.args[i].kind != Term::Kind::name || !r.parameter(call.args[i].name))
      return fail(call.args[i].column, "valid: log_decay(dt, a_log, dt_bias) = -exp(a_log) softplus(dt + dt_bias), "
                                       "a_log and dt_bias in parameters");
    else if (!demandName(call.args[i].name, i == 1 ? Per::head : per, call.args[i].column))
      return false;
  return demand(call.args.front(), per);
}

bool Inference::demandRows(const Term &call, Per per) {
  if (per != Per::row)
    return fail(call.column, formatv("{0} makes rows of the state, but one number per {1} is needed here; valid: of "
                                     "keys and queries",
                                     call.name, nameOf(per))
                                 .str());
  if (!r.rowFunction.empty() && r.rowFunction != call.name)
    return fail(call.column, call.name + " here, but " + r.rowFunction +
                                 " elsewhere; valid: one of them for keys and "
                                 "queries");
  r.rowFunction = call.name;
  return demand(call.args.front(), Per::key);
}

bool Inference::demandNorm(const Term &call, Per per) {
  if (per == Per::head || per == Per::element)
    return fail(call.column,
                formatv("layer_norm needs several features, but one number per {0} is needed here", nameOf(per)).str());
  return eps(call, 3) && parameterAt(call, 1, per) && parameterAt(call, 2, per) && demand(call.args.front(), per);
}

bool Inference::demandCall(const Term &call, Per per) {
  const Function *function = functionOf(call.name);
  if (!function) {
    std::vector<StringRef> names;
    for (const Function &f : functions)
      names.push_back(f.name);
    return fail(call.column, "'" + call.name + "(' is no function; valid: " + llvm::join(names, ", "));
  }
  if (call.args.size() < function->least || call.args.size() > function->most)
    return fail(call.column,
                formatv("{0} has {1} arguments; valid: {2}{3}", call.name, call.args.size(), function->least,
                        function->most > function->least ? " or " + std::to_string(function->most) : std::string())
                    .str());
  using Kind = Function::Kind;
  if (function->kind == Kind::source)
    return source(call, per);
  if (!call.options.empty())
    return fail(call.column, "option '" + call.options.begin()->first + "' of " + call.name + "; valid: none");
  const Term &first = call.args.front();
  if (function->kind == Kind::place) {
    if (!r.inner || per != Per::head)
      return fail(call.column,
                  r.inner
                      ? formatv("position_rate is one number per head, but per {0} is needed here", nameOf(per)).str()
                      : "position_rate is of a mini-batch; valid: in front of grad(..)");
    return parameterAt(call, 0, Per::place);
  }
  if (current->constant && (function->kind != Kind::feature || call.name == "conv" || call.args.size() > 1))
    return fail(call.column, call.name + " of parameters alone; valid: functions of each number");
  if (!current->constant && !dependsOnToken(first))
    return fail(first.column, "is the same for all tokens; valid: what comes from x, or an input of its own");
  switch (function->kind) {
  case Kind::decay: return demandDecay(call, per);
  case Kind::rows: return demandRows(call, per);
  case Kind::norm: return demandNorm(call, per);
  case Kind::join:
    if (per != Per::all)
      return fail(
          call.column,
          formatv("join makes one vector of all heads, but one number per {0} is needed here", nameOf(per)).str());
    return demand(first, Per::value);
  case Kind::split:
    if (sizes.heads * sizes.valueDim != sizes.dModel)
      return fail(call.column,
                  formatv("{0} heads of {1} values are {2} features, but d_model is {3}; valid: heads times "
                          "value_dim is d_model",
                          sizes.heads, sizes.valueDim, sizes.heads * sizes.valueDim, sizes.dModel)
                      .str());
    if (!alike(per, Per::value))
      return fail(call.column, formatv("split makes values, but one number per {0} is needed here", nameOf(per)).str());
    return demand(first, Per::model);
  case Kind::inner: {
    if (per != Per::head)
      return fail(call.column, formatv("inner is one number per head, but per {0} is needed here", nameOf(per)).str());
    std::optional<Per> own = fixed(first);
    Per of = own ? *own : fixed(call.args[1]).value_or(Per::key);
    if (of != Per::key && of != Per::value)
      return fail(call.column, formatv("inner of one number per {0}; valid: of keys, of values", nameOf(of)).str());
    if (!dependsOnToken(call.args[1]))
      return fail(call.args[1].column, "is the same for all tokens; valid: a factor, inner(q u, k)");
    return demand(first, of) && demand(call.args[1], of);
  }
  case Kind::first:
    if (!alike(per, Per::value))
      return fail(call.column, formatv("first is of values, but one number per {0} is needed here", nameOf(per)).str());
    r.keepsFirst = true;
    return demand(first, per);
  case Kind::before:
    if (per == Per::element || per == Per::all || per == Per::row)
      return fail(call.column,
                  formatv("shift of one number per {0}; valid: of what that comes from", nameOf(per)).str());
    return demand(first, per);
  default: break;
  }
  bool vector = function->kind == Kind::vector;
  if (vector && per == Per::head)
    return fail(call.column, call.name + " needs several features of a head, but one number per head is needed here");
  if (per == Per::element && (vector || call.name == "conv"))
    return fail(call.column, call.name + " is of features of a head, but one number per element of the state is needed "
                                         "here; valid: functions of each number");
  if (call.name == "conv" && (per == Per::all || per == Per::row))
    return fail(call.column, formatv("conv of one number per {0}; valid: of what that comes from", nameOf(per)).str());
  if (call.name == "conv" && ++convolutions > 1)
    return fail(call.column, "a second conv of one input; valid: a name in inputs of its own");
  if (call.name == "rope" && per != Per::key && per != Per::value)
    return fail(call.column, formatv("rope of one number per {0}; valid: of keys, of values", nameOf(per)).str());
  if (call.name == "rope")
    (per == Per::key ? r.turnsKeys : r.turnsValues) = true;
  if (call.name == "rope" && call.args.size() > 1)
    if (const Term &period = call.args[1]; period.kind != Term::Kind::number || period.number < 1 ||
                                           period.number > static_cast<double>(maxTokens) ||
                                           period.number != static_cast<double>(static_cast<int64_t>(period.number)))
      return fail(period.column, formatv("valid as the period: a whole number from 1 to {0}", maxTokens).str());
  if (call.name == "l2_norm" && !eps(call, 1))
    return false;
  if (call.name == "log_sigmoid" && call.args.size() > 1) {
    const Parameter *p = call.args[1].kind == Term::Kind::name ? r.parameter(call.args[1].name) : nullptr;
    if (p && p->shared)
      return fail(call.args[1].column, formatv("'{0}' is one for all heads; valid as a bound: one for each, shared "
                                               "false",
                                               call.args[1].name)
                                           .str());
    if (!parameterAt(call, 1, p ? p->per.value_or(Per::head) : per))
      return false;
    if (p->per != Per::head && p->per != per)
      return fail(call.args[1].column, formatv("'{0}' is one number per {1}; valid: per head or {2}", call.args[1].name,
                                               nameOf(*p->per), nameOf(per))
                                           .str());
    r.bounds.push_back(call.args[1].name);
  }
  return demand(first, per);
}

bool Inference::demandFactors(const Term &term, Per per) {
  bool carries = false;
  double number = 1.0;
  for (auto [i, arg] : llvm::enumerate(term.args)) {
    if (arg.kind == Term::Kind::number) {
      if (term.kind == Term::Kind::quotient && i > 0 && arg.number == 0)
        return fail(arg.column, "a division by 0");
      number = term.kind == Term::Kind::quotient && i > 0 ? number / arg.number : number * arg.number;
      continue;
    }
    if (term.kind == Term::Kind::quotient && i > 0 && !current->constant && !dependsOnToken(arg))
      return fail(arg.column, "a division by a parameter; valid: multiply by one");
    if (!current->constant && arg.kind == Term::Kind::negate && !dependsOnToken(arg))
      return fail(arg.column, "a sign before what is the same for all tokens; valid: before the product");
    Per wanted = fixed(arg) == Per::head ? Per::head : per;
    if (wanted != per && (per == Per::model || per == Per::all))
      return fail(arg.column, formatv("is one number per head, but all heads are one in what it multiplies; valid: one "
                                      "number per {0}",
                                      nameOf(per))
                                  .str());
    if (const Parameter *p = arg.kind == Term::Kind::name ? r.parameter(arg.name) : nullptr; p && p->shared)
      return fail(arg.column,
                  "'" + arg.name + "' is one for all heads; valid in a product: one for each, shared false");
    carries |= wanted == per && (current->constant || dependsOnToken(arg));
    if (!demand(arg, wanted))
      return false;
  }
  if (double size = std::abs(number); number != 0 && (size < 1e-30 || size > 1e30))
    return fail(term.column,
                "its numbers make " + numberText(number) + ", which f32 does not hold; valid: 1e-30 to 1e30");
  return carries ||
         fail(term.column,
              formatv("no factor comes from x with one number per {0}; valid: at least one", nameOf(per)).str());
}

bool Inference::demand(const Term &term, Per per) {
  switch (term.kind) {
  case Term::Kind::number: return fail(term.column, "a number alone; valid: a factor of what comes from x");
  case Term::Kind::transpose: return fail(term.column, "inputs have no ^T; valid: " + term.name);
  case Term::Kind::name: return demandName(term.name, per, term.column);
  case Term::Kind::negate: return demand(term.args.front(), per);
  case Term::Kind::call: return demandCall(term, per);
  case Term::Kind::product:
  case Term::Kind::quotient: return demandFactors(term, per);
  case Term::Kind::sum:
    if (!current->constant && !dependsOnToken(term))
      return fail(term.column, "is the same for all tokens; valid: what comes from x, or an input of its own");
    for (const Term &arg : term.args) {
      const Term *bare = arg.kind == Term::Kind::negate ? &arg.args.front() : &arg;
      if (bare->kind == Term::Kind::number)
        return fail(bare->column,
                    "a number in a sum; valid: a parameter with this initial value, or with {\"values\": \"..\"} one "
                    "that is not trained");
      if (!current->constant && bare->kind != Term::Kind::name && !dependsOnToken(*bare))
        return fail(bare->column, "is the same for all tokens; valid in a sum: a parameter by its name, or what comes "
                                  "from x");
      if (!current->constant && bare != &arg && !dependsOnToken(*bare))
        return fail(bare->column, "a parameter is subtracted; valid: + and another initial value");
      if (!demand(arg, per))
        return false;
    }
    return true;
  }
  llvm_unreachable("all kinds are above");
}

/// A matrix product rounds what it reads.
static bool isSource(const Term &term) {
  const Function *function = term.kind == Term::Kind::call ? functionOf(term.name) : nullptr;
  return function && function->kind == Function::Kind::source;
}

static bool refersTo(const Term &term, StringRef name) {
  return (term.kind == Term::Kind::name && term.name == name) ||
         (!isSource(term) && llvm::any_of(term.args, [&](auto &arg) { return refersTo(arg, name); }));
}

/// Whether everything that comes from x in a term comes from wide inputs.
static bool readsWideOnly(const Term &term, const Recurrence &r) {
  if (term.kind == Term::Kind::name)
    return r.parameter(term.name) || (r.definition(term.name) && r.definition(term.name)->wide);
  return !isSource(term) && llvm::all_of(term.args, [&](const Term &arg) { return readsWideOnly(arg, r); });
}

/// Wide: numbers per head, the log decay and its phase, what they come from, and what reads only those: exp(g) of a log
/// decay g. Rows of the state are not, whoever reads them.
bool Inference::isWide(const Definition &d) const {
  if (d.constant || d.per == Per::head || d.name == r.logDecay || d.name == r.valueDecay || d.name == r.phase)
    return true;
  if (isRow(d.name))
    return false;
  return llvm::any_of(r.inputs, [&](const Definition &later) {
    return &later > &d && later.wide && later.per != Per::head && refersTo(later.term, d.name);
  });
}

/// Heads of a term: its own where all parts agree, else those of the state. Parameters take them from where they stand.
int64_t Inference::headsOf(const Term &term, bool &ok) {
  auto give = [&](const Term &name, int64_t own) {
    Parameter &p = *r.parameter(name.name);
    if (p.heads && p.heads != own)
      ok = fail(
          name.column,
          formatv("'{0}' has {1} heads here, but {2} elsewhere; valid: two parameters", name.name, own, p.heads).str());
    p.heads = own;
  };
  auto isParameter = [&](const Term &arg) { return arg.kind == Term::Kind::name && r.parameter(arg.name); };
  if (term.kind == Term::Kind::name)
    return r.definition(term.name) ? r.definition(term.name)->heads : heads; // x, M
  if (term.kind == Term::Kind::call && (term.name == "linear" || term.name == "low_rank")) {
    int64_t own = heads;
    if (auto option = term.options.find("heads"); option != term.options.end())
      (void)StringRef(option->second).getAsInteger(10, own);
    return own;
  }
  int64_t own = 0;
  for (const Term &arg : term.args)
    if (arg.kind != Term::Kind::number && !isParameter(arg)) {
      int64_t part = headsOf(arg, ok);
      own = own == 0 || own == part ? part : heads;
    }
  if (own == 0 || (term.kind == Term::Kind::call && (term.name == "join" || term.name == "first" ||
                                                     (term.name == "log_decay" && term.args.size() == 2))))
    own = heads;
  for (const Term &arg : term.args)
    if (isParameter(arg))
      give(arg, own);
  return own;
}

bool Inference::shareHeads() {
  bool ok = true;
  int64_t budget = mostFormulaNumbers;
  for (auto &[name, p] : r.parameters)
    if (p.shared && p.per != Per::key && p.per != Per::value) {
      errorFn("parameters." + name, formatv("is shared by all heads, but one number per {0} here; valid: shared with "
                                            "one per key or value",
                                            nameOf(*p.per))
                                        .str());
      return false;
    }
  for (Definition &d : r.inputs) {
    key = keyOf(d);
    d.heads = headsOf(d.term, ok);
  }
  for (const auto *columns : {&r.stateColumns, &r.outputColumns})
    for (const auto &[name, column] : *columns) // of every head of the state
      if (Parameter *p = r.parameter(name)) {
        p->heads = p->heads ? p->heads : heads;
        if (p->heads == heads)
          continue;
        key = columns == &r.stateColumns ? "state" : "output";
        return fail(
            column,
            formatv("'{0}' has {1} heads elsewhere, but {2} here; valid: two parameters", name, p->heads, heads).str());
      }
  for (auto &[name, p] : r.parameters) {
    if (p.heads == 0)
      p.heads = heads;
    if (p.formula) {
      ok = ok && succeeded(checkFormula(p, r, sizes, "parameters." + name, budget, errorFn));
      continue;
    }
    if (!p.trained && (p.per != Per::head || static_cast<int64_t>(p.values.size()) != p.heads)) {
      errorFn("parameters." + name, formatv("has {0} values for one number per {1} of {2} heads; valid: one value for "
                                            "each head, where one number per head is needed",
                                            p.values.size(), nameOf(*p.per), p.heads)
                                        .str());
      ok = false;
    }
  }
  return ok;
}

/// Something comes from x. And what a complex key, and a read before the state has moved on, need.
bool Inference::constants() {
  const Definition *phase = r.definition(r.phase);
  bool turns = (phase && phase->constant) || r.parameter(r.phase);
  key = "state";
  if (!r.gated && llvm::none_of(r.inputs, [](const Definition &d) { return mentions(d.term, "x"); }))
    return fail(1, "nothing in it comes from x; valid: an input such as \"" + r.value + "\": \"linear(x)\"");
  if (!r.keyImaginary.empty() && (!turns || !r.isConstant(r.key) || !r.isConstant(r.keyImaginary)))
    return fail(r.stateColumns.at(r.keyImaginary), "a complex key is the same for all tokens, as its phase is; valid: "
                                                   "parameters, or inputs of parameters alone");
  if (r.readsBefore && (turns || r.elementwise)) {
    key = "output";
    return fail(1, turns ? "M_prev of a state that turns alike for all tokens; valid: M"
                         : "M_prev of a state with one decay per element; valid: M");
  }
  return true;
}

bool Inference::run() {
  for (Definition &d : r.inputs) {
    current = &d;
    d.own = fixed(d.term);
  }
  current = nullptr;
  bool scalar = llvm::is_contained({LsmClass::S0, LsmClass::S, LsmClass::GH}, r.classId);
  Per decay = r.elementwise ? Per::element : scalar || r.inner || r.decaysPerHead ? Per::head : Per::key;
  auto rowsOf = [&](StringRef name) {
    const Definition *d = r.definition(name);
    return d && d->own == Per::row ? Per::row : Per::key;
  };
  if (rowsOf(r.key) == Per::row && (decay == Per::key || decay == Per::element) && !r.logDecay.empty()) {
    key = "state";
    return fail(r.stateColumns.at(r.logDecay),
                "a decay per key feature of a state whose rows are products of features; "
                "valid: exp(g), one per head");
  }
  if (rowsOf(r.key) == Per::row && !r.lowRankA.empty()) {
    key = "state";
    return fail(r.stateColumns.at(r.lowRankA), "b^T a on a state whose rows are products of features; valid: a key "
                                               "feature for each row, or the delta rule");
  }
  auto place = [&](StringRef equation, const std::string &name, Per per) {
    key = equation.str();
    const auto &columns = equation == "state" ? r.stateColumns : r.outputColumns;
    auto column = columns.find(name);
    return name.empty() || name == "1" || demandName(name, per, column == columns.end() ? 1 : column->second);
  };
  if (!constants() || !place("output", r.query, rowsOf(r.query)) || !place("state", r.key, rowsOf(r.key)) ||
      !place("state", r.value, Per::value) || !place("state", r.logDecay, decay) ||
      !place("state", r.beta, Per::head) || !place("state", r.valueDecay, Per::value) ||
      !place("state", r.lowRankA, Per::key) || !place("state", r.lowRankB, Per::key) ||
      !place("output", r.skipValue, Per::value) || !place("state", r.phase, Per::key) ||
      !place("state", r.keyImaginary, Per::key) || !place("state", r.rate, Per::head) ||
      !place("state", r.placeRate, Per::head) || !place("state", r.momentum, Per::head) ||
      !place("state", r.normWeight, Per::value) || !place("state", r.normBias, Per::value) ||
      !place("state", r.start, Per::element))
    return false;
  if (r.query != "1" && rowsOf(r.query) != rowsOf(r.key)) {
    key = "output";
    return fail(r.outputColumns.at(r.query), formatv("'{0}' has one number per {1}, but key '{2}' per {3}; valid: the "
                                                     "same function of both",
                                                     r.query, nameOf(rowsOf(r.query)), r.key, nameOf(rowsOf(r.key)))
                                                 .str());
  }
  if (r.expressed)
    r.inputs.back().per = alike(r.inputs.back().own.value_or(Per::value), Per::all) ? Per::all : Per::value;
  for (const std::string &name : r.writeFactors)
    if (!place("state", name, Per::head))
      return false;
  for (const std::string &name : r.skipFactors) {
    const Parameter *parameter = r.parameter(name);
    if (parameter && parameter->shared) {
      key = "output";
      return fail(r.outputColumns.at(name), formatv("'{0}' is one for all heads; valid in a product: one for each, "
                                                    "shared false",
                                                    name)
                                                .str());
    }
    const Definition *definition = r.definition(name);
    std::optional<Per> own = parameter ? parameter->per : definition->per ? definition->per : definition->own;
    if (!place("output", name, own == Per::head || own == Per::value ? *own : Per::value))
      return false;
  }
  for (Definition &d : llvm::reverse(r.inputs)) {
    current = &d;
    key = keyOf(d);
    sources = convolutions = 0;
    auto reader = llvm::find_if(r.inputs, [&](const Definition &other) { return mentions(other.term, d.name); });
    if (!d.per && reader != r.inputs.end() && &*reader < &d) {
      errorFn("inputs." + reader->name, "'" + d.name + "' comes later in inputs; valid: names before this one");
      return false;
    }
    if (!d.per) {
      errorFn(key, "nothing uses it; valid: a name in state, output or a later input");
      return false;
    }
    if (!demand(d.term, *d.per))
      return false;
    d.wide = isWide(d);
  }
  for (Definition &d : r.inputs)
    d.wide |= !isRow(d.name) && readsWideOnly(d.term, r);
  for (const auto &[name, parameter] : r.parameters)
    if (!used.contains(name)) {
      errorFn("parameters." + name, "nothing uses it; valid: a name in state, output or inputs");
      return false;
    }
  return shareHeads() && succeeded(checkValues(r, sizes, errorFn)) && succeeded(checkNames(r, errorFn));
}

llvm::LogicalResult recurrence::inferShapes(Recurrence &recurrence, const Sizes &sizes, ErrorFn error) {
  return llvm::success(Inference(recurrence, sizes, error).run());
}
