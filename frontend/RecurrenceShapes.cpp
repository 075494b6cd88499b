//===- RecurrenceShapes.cpp - what every input and parameter of a recurrence has per token ------------------------===//
// The equations say it of their symbols (q and k: head_dim, v: value_dim, decays and strengths: by their class); from
// there it goes back through the inputs, last one first, as an input names only those before it.
#include "dialects/braid/BraidDialect.h"
#include "frontend/ModelSpec.h"
#include "frontend/RecurrenceFunctions.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/FormatVariadic.h"
#include <cmath>

using namespace braid;
using namespace braid::recurrence;
using llvm::formatv;
using llvm::StringRef;

namespace {

/// What a low_rank may have between its products.
constexpr StringRef betweens[] = {"tanh", "sigmoid", "silu", "relu", "gelu"};

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
  std::optional<Per> fixed(const Term &term) const { return ownPer(r, term, current); }
  bool dependsOnToken(const Term &term) const { return recurrence::dependsOnToken(r, term); }
  /// Whether the input at hand is what an equation computes where a name belongs.
  bool ofEquation() const { return llvm::is_contained({"state", "output"}, current->place); }
  bool shareHeads();
  bool constants();
  int64_t headsOf(const Term &term, bool &ok);
  bool isWide(const Definition &d) const;
  bool isRow(StringRef name) const { return r.standsInRow(name); }
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
  llvm::StringMap<std::string> used; ///< names, and where each was needed first
  llvm::StringSet<> stated; ///< parameters that say what they have
  size_t sources = 0, convolutions = 0;
};

} // namespace

bool Inference::demandName(const std::string &name, Per per, size_t column) {
  std::string here = formatv("{0}, column {1}", key, column).str();
  const std::string &first = used.try_emplace(name, here).first->second;
  if (name == "x")
    return alike(per, Per::model) || fail(column, "x has all features of d_model; valid: an input such as linear(x)");
  if ((name == "M" || name == "z") && current && current->name != "o")
    return fail(column, name + " is the state, which stands in state and output only; valid: x, or a name in inputs or "
                               "parameters");
  if (name == "M")
    return alike(per, Per::value) ||
           fail(column,
                formatv("what is read has one number per value, but per {0} is needed here", nameOf(per)).str());
  if (name == "z")
    return per == Per::head ||
           fail(column, formatv("q z is one number per head, but per {0} is needed here", nameOf(per)).str());
  auto agree = [&](std::optional<Per> &known) {
    if (!known)
      known = per;
    if (alike(*known, per))
      return true;
    // A number per head that says so multiplies what has more.
    bool oneIsHead = per == Per::head || known == Per::head;
    const Definition *d = r.definition(name);
    StringRef say = !oneIsHead                  ? ""
                    : r.parameter(name)         ? ", or \"per\": \"head\", where it multiplies what has more"
                    : d && callsSource(d->term) ? ", or per=head in its linear, where it multiplies what has more"
                                                : "";
    return fail(column, formatv("'{0}' is one number per {1} here, but per {2} {3}; valid: two names{4}", name,
                                nameOf(per), nameOf(*known), first == here ? "elsewhere in it" : "in " + first, say)
                            .str());
  };
  // What a name says itself holds wherever it stands.
  auto says = [&](Per own) {
    StringRef more = own == Per::head ? "; such a number multiplies what has more" : "";
    return alike(own, per) || fail(column, formatv("'{0}' has one number per {1}, but per {2} is needed here; valid: "
                                                   "what has one per {2}{3}",
                                                   name, nameOf(own), nameOf(per), more)
                                               .str());
  };
  if (Parameter *parameter = r.parameter(name)) {
    if (parameter->shared && (!current || current->constant))
      return fail(column, "'" + name + "' is one for all heads; valid in this place: one for each, shared false");
    return (!stated.contains(name) || says(*parameter->per)) && agree(parameter->per);
  }
  Definition *definition = r.definition(name);
  if (!definition || (current && definition >= current))
    return fail(column, definition ? "'" + name + "' comes later in inputs; valid: names before this one"
                                   : "'" + name + "' is not defined; valid: x, or a name in inputs or parameters");
  bool ofHeads = definition->own.value_or(Per::value) != Per::all && callsSource(definition->term);
  if (per == Per::all && ofHeads)
    return fail(column, formatv("'{0}' is of each head, but all heads are one vector here; valid: join({0}), as in "
                                "silu(join({0}))",
                                name)
                            .str());
  bool perHead = definition->own == Per::head && !definition->per;
  return (!perHead || says(Per::head)) && agree(definition->per);
}

/// A parameter by its name, one number per `per`.
bool Inference::parameterAt(const Term &call, size_t i, Per per) {
  const Term &arg = call.args[i];
  if (arg.kind != Term::Kind::name || !r.parameter(arg.name))
    return fail(arg.column, formatv("valid as argument {0} of {1}: a name in parameters", i + 1, call.name).str());
  if (r.parameter(arg.name)->shared && functionOf(call.name)->kind != Function::Kind::norm)
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
  if (current->name == "o" || ofEquation())
    return fail(call.column, call.name + " in the " + key + "; valid: an input of its own, by its name");
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
        return fail(call.column, formatv("per={0}, but one number per {1} is needed in {2}; valid: per={1}", value,
                                         nameOf(per), used.lookup(current->name))
                                     .str());
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

/// layer_norm(y, w, b, eps); rms_norm(y), rms_norm(y, w, eps)
bool Inference::demandNorm(const Term &call, Per per) {
  if (per == Per::head || per == Per::element)
    return fail(
        call.column,
        formatv("{0} needs several features, but one number per {1} is needed here", call.name, nameOf(per)).str());
  size_t weights = call.name == "rms_norm" ? std::min<size_t>(call.args.size(), 2) : 3;
  for (size_t i = 1; i < weights; ++i)
    if (!parameterAt(call, i, per))
      return false;
  return eps(call, weights) && demand(call.args.front(), per);
}

bool Inference::demandCall(const Term &call, Per per) {
  const Function *function = functionOf(call.name);
  if (!function)
    return fail(call.column, "'" + call.name + "(' is no function; valid: " + functionNames());
  if (call.args.size() < function->least || call.args.size() > function->most)
    return fail(call.column,
                formatv("{0} has {1} arguments; valid: {2}{3}", call.name, call.args.size(), function->least,
                        function->most == function->least
                            ? std::string()
                            : (function->most > function->least + 1 ? " to " : " or ") + std::to_string(function->most))
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
  bool ofOneToken = function->kind == Kind::feature
                        ? call.name != "conv" && (call.args.size() == 1 || call.name != "log_sigmoid")
                        : function->kind == Kind::inner || function->kind == Kind::norm ||
                              (function->kind == Kind::vector && call.name != "rope");
  if (current->constant && !ofOneToken)
    return fail(
        call.column,
        call.name +
            " of parameters alone; valid: functions of each number, softmax, l2_norm, layer_norm, rms_norm, inner");
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
      return fail(call.column, formatv("inner is one number per head, but per {0} is needed here; valid: it times what "
                                       "has one per {0}",
                                       nameOf(per))
                                   .str());
    std::optional<Per> own = fixed(first);
    Per of = own ? *own : fixed(call.args[1]).value_or(Per::key);
    if (of != Per::key && of != Per::value)
      return fail(call.column, formatv("inner of one number per {0}; valid: of keys, of values", nameOf(of)).str());
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
  if (call.name == "conv" && (++convolutions > 1 || ofEquation()))
    return fail(call.column, "a second conv of one input, or in an equation; valid: a name in inputs of its own");
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
  if ((call.name == "max" || call.name == "min") && call.args[1].kind != Term::Kind::number)
    return fail(call.args[1].column, "valid as what " + call.name + " compares with: a number, as in max(y, 1)");
  if (call.name == "clamp") {
    const Term &low = call.args[1], &high = call.args[2];
    if (low.kind != Term::Kind::number || high.kind != Term::Kind::number || low.number >= high.number)
      return fail(low.column, "valid as what clamp keeps between: two numbers, the lower first");
  }
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
        return fail(arg.column, "a division by 0; valid: another number");
      number = term.kind == Term::Kind::quotient && i > 0 ? number / arg.number : number * arg.number;
      continue;
    }
    Per wanted = fixed(arg) == Per::head ? Per::head : per;
    if (wanted != per && (per == Per::model || per == Per::all))
      return fail(arg.column, formatv("is one number per head, but all heads are one in what it multiplies; valid: one "
                                      "number per {0}",
                                      nameOf(per))
                                  .str());
    if (const Parameter *p = arg.kind == Term::Kind::name ? r.parameter(arg.name) : nullptr; p && p->shared)
      return fail(arg.column,
                  "'" + arg.name + "' is one for all heads; valid in a product: one for each, shared false");
    carries |= wanted == per;
    if (!demand(arg, wanted))
      return false;
  }
  if (double size = std::abs(number); number != 0 && (size < leastNumber || size > mostNumber))
    return fail(term.column, "its numbers make " + numberText(number) + "; valid: 0, or 1e-30 to 1e30");
  return carries ||
         fail(term.column, formatv("no factor has one number per {0}; valid: at least one", nameOf(per)).str());
}

bool Inference::demand(const Term &term, Per per) {
  switch (term.kind) {
  case Term::Kind::number:
    return current->constant || fail(term.column, "a number alone; valid: a factor, a part of a sum");
  case Term::Kind::transpose: return fail(term.column, "^T stands in state only; valid: without it");
  case Term::Kind::name: return demandName(term.name, per, term.column);
  case Term::Kind::negate:
  case Term::Kind::power: return demand(term.args.front(), per);
  case Term::Kind::call: return demandCall(term, per);
  case Term::Kind::product:
  case Term::Kind::quotient: return demandFactors(term, per);
  case Term::Kind::sum:
    if (llvm::all_of(term.args, [](const Term &arg) { return arg.kind == Term::Kind::number; }))
      return fail(term.column, "its numbers make one out of range; valid: 0, or 1e-30 to 1e30");
    return llvm::all_of(term.args, [&](const Term &arg) { return arg.kind == Term::Kind::number || demand(arg, per); });
  }
  llvm_unreachable("all kinds are above");
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
  auto decays = [&](const Update *u) { return d.name == u->logDecay || d.name == u->valueDecay; };
  if (d.constant || d.per == Per::head || llvm::any_of(r.updates(), decays) || d.name == r.phase)
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
    key = d.key();
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
    return fail(1, "nothing in it comes from x; valid: an input such as \"y\": \"linear(x)\"");
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
  liftConstants(r);
  for (auto &[name, p] : r.parameters) {
    if (!p.per && !p.values.empty()) // one for each head, also where there is one
      p.per = Per::head;
    if (p.per)
      stated.insert(name);
  }
  auto rowsOf = [&](StringRef name) {
    const Definition *d = r.definition(name);
    return d && d->own == Per::row ? Per::row : Per::key;
  };
  auto decayOf = [&](const Update &u) {
    bool scalar = llvm::is_contained({LsmClass::S0, LsmClass::S, LsmClass::GH}, u.classId);
    return u.elementwise ? Per::element : scalar || r.inner || u.decaysPerHead ? Per::head : Per::key;
  };
  for (const Update *u : r.updates()) {
    key = "state";
    Per decay = decayOf(*u);
    if (rowsOf(u->key) == Per::row && (decay == Per::key || decay == Per::element) && !u->logDecay.empty())
      return fail(r.stateColumns.at(u->logDecay),
                  "a decay per key feature of a state whose rows are products of features; "
                  "valid: exp(g), one per head");
    if (rowsOf(u->key) == Per::row && r.scanClass() == LsmClass::D)
      return fail(u->lowRankA.empty() ? r.stateColumns.at(u->key) : r.stateColumns.at(u->lowRankA),
                  "b^T a on a state whose rows are products of features; valid: a key feature for each row, or the "
                  "delta rule");
  }
  auto place = [&](StringRef equation, const std::string &name, Per per) {
    key = equation.str();
    const auto &columns = equation == "state" ? r.stateColumns : r.outputColumns;
    auto column = columns.find(name);
    return name.empty() || name == "1" || demandName(name, per, column == columns.end() ? 1 : column->second);
  };
  auto places = [&](const Update *u) {
    return place("state", u->key, rowsOf(u->key)) && place("state", u->value, Per::value) &&
           place("state", u->logDecay, decayOf(*u)) && place("state", u->beta, Per::head) &&
           place("state", u->valueDecay, Per::value) && place("state", u->lowRankA, Per::key) &&
           place("state", u->lowRankB, Per::key);
  };
  if (!constants() || !place("output", r.query, rowsOf(r.query)) || !llvm::all_of(r.updates(), places) ||
      !place("output", r.skipValue, Per::value) || !place("state", r.phase, Per::key) ||
      !place("state", r.keyImaginary, Per::key) || !place("state", r.rate, Per::head) ||
      !place("state", r.placeRate, Per::head) || !place("state", r.momentum, Per::head) ||
      !place("state", r.normWeight, Per::value) || !place("state", r.normBias, Per::value) ||
      !place("state", r.start, Per::element))
    return false;
  for (const Update *u : r.updates())
    if (StringRef reader = r.query != "1" ? r.query : r.key; rowsOf(reader) != rowsOf(u->key)) {
      key = r.query != "1" ? "output" : "state";
      const auto &columns = r.query != "1" ? r.outputColumns : r.stateColumns;
      return fail(columns.at(reader.str()), formatv("'{0}' has one number per {1}, but key '{2}' per {3}; valid: the "
                                                    "same function of both",
                                                    reader, nameOf(rowsOf(reader)), u->key, nameOf(rowsOf(u->key)))
                                                .str());
    }
  if (r.expressed)
    r.inputs.back().per = alike(r.inputs.back().own.value_or(Per::value), Per::all) ? Per::all : Per::value;
  std::vector<std::string> factors = r.rowFactors;
  for (const Update *u : r.updates())
    llvm::append_range(factors, u->writeFactors);
  if (!llvm::all_of(factors, [&](const std::string &name) { return place("state", name, Per::head); }))
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
    key = d.key();
    sources = convolutions = 0;
    auto reader = llvm::find_if(r.inputs, [&](const Definition &other) { return mentions(other.term, d.name); });
    if (!d.per && reader != r.inputs.end() && &*reader < &d) {
      errorFn("inputs." + reader->name, "'" + d.name + "' comes later in inputs; valid: names before this one");
      return false;
    }
    // Its logarithm alone is needed, or the equation says it twice, a M + (1 - a) M.
    if (!d.per && (!d.place.empty() || takenLog(r, d.name) || r.stateColumns.contains(d.name)))
      continue;
    if (!d.per) {
      errorFn(key, "nothing uses it; valid: a name in state, output or a later input");
      return false;
    }
    if (!demand(d.term, *d.per))
      return false;
    d.wide = isWide(d);
  }
  llvm::erase_if(r.inputs, [](const Definition &d) { return !d.per; });
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
