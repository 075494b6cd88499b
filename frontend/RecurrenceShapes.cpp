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
  }
  llvm_unreachable("all places are above");
}

static std::optional<Per> perOf(StringRef name) {
  for (Per per : {Per::head, Per::key, Per::value, Per::element})
    if (nameOf(per) == name)
      return per;
  return std::nullopt;
}

namespace {

struct Function {
  StringRef name;
  size_t arguments;
  enum class Kind { source, feature, vector, decay } kind; ///< x; each number; all numbers of a head; per head
};

constexpr Function functions[] = {
    {"linear", 1, Function::Kind::source},       {"low_rank", 2, Function::Kind::source},
    {"conv", 1, Function::Kind::feature},        {"silu", 1, Function::Kind::feature},
    {"sigmoid", 1, Function::Kind::feature},     {"tanh", 1, Function::Kind::feature},
    {"relu", 1, Function::Kind::feature},        {"relu2", 1, Function::Kind::feature},
    {"gelu", 1, Function::Kind::feature},        {"gelu_tanh", 1, Function::Kind::feature},
    {"softplus", 1, Function::Kind::feature},    {"elu1", 1, Function::Kind::feature},
    {"exp", 1, Function::Kind::feature},         {"reciprocal", 1, Function::Kind::feature},
    {"log_sigmoid", 1, Function::Kind::feature}, {"softmax", 1, Function::Kind::vector},
    {"l2_norm", 1, Function::Kind::vector},      {"rope", 1, Function::Kind::vector},
    {"log_decay", 3, Function::Kind::decay}};

class Inference {
public:
  Inference(Recurrence &r, int64_t heads, ErrorFn error) : r(r), heads(heads), errorFn(error) {}
  bool run();

private:
  bool demand(const Term &term, Per per);
  bool demandName(const std::string &name, Per per, size_t column);
  bool demandCall(const Term &call, Per per);
  bool demandFactors(const Term &term, Per per);
  bool source(const Term &call, Per per);
  std::optional<Per> fixed(const Term &term) const;
  bool dependsOnToken(const Term &term) const;
  bool shareHeads();
  int64_t headsOf(const Term &term, bool &ok);
  bool names();
  bool isWide(const Definition &d) const;
  bool isRow(StringRef name) const {
    return llvm::is_contained({r.query, r.key, r.value, r.lowRankA, r.lowRankB, r.skipValue}, name);
  }
  int signOf(const Term &term) const;
  bool decaysAreNegative();
  bool fail(size_t column, StringRef message) {
    errorFn(key, formatv("column {0}: {1}", column, message).str());
    return false;
  }

  Recurrence &r;
  int64_t heads; ///< of the state
  ErrorFn errorFn;
  std::string key = "state";
  const Definition *current = nullptr; ///< whose term is at hand; null: the equations
  llvm::StringSet<> used;
  size_t sources = 0, convolutions = 0;
  llvm::StringMap<int> signs; ///< of inputs: 1 never negative, -1 never positive, 0 unknown
};

} // namespace

/// Whether the value differs between tokens: not a number, not a parameter.
bool Inference::dependsOnToken(const Term &term) const {
  if (term.kind == Term::Kind::name)
    return !r.parameter(term.name);
  return term.kind == Term::Kind::call || llvm::any_of(term.args, [&](auto &arg) { return dependsOnToken(arg); });
}

/// What the term says of itself: per=head somewhere inside, a symbol whose place is known.
std::optional<Per> Inference::fixed(const Term &term) const {
  switch (term.kind) {
  case Term::Kind::name:
    if (const Parameter *p = r.parameter(term.name))
      return p->per;
    if (const Definition *d = r.definition(term.name); d && (!current || d < current))
      return d->per ? d->per : d->own;
    return std::nullopt;
  case Term::Kind::call:
    if (auto option = term.options.find("per"); option != term.options.end())
      return perOf(option->second);
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
    return fail(column, "x has all features of d_model; valid: linear(x), low_rank(x, 16)");
  auto agree = [&](std::optional<Per> &known) {
    if (!known)
      known = per;
    return *known == per ||
           fail(column, formatv("'{0}' is one number per {1} here, but per {2} elsewhere; valid: two names", name,
                                nameOf(per), nameOf(*known))
                            .str());
  };
  if (Parameter *parameter = r.parameter(name))
    return agree(parameter->per);
  Definition *definition = r.definition(name);
  if (!definition || (current && definition >= current))
    return fail(column, definition ? "'" + name + "' comes later in inputs; valid: names before this one"
                                   : "'" + name + "' is not defined; valid: x, or a name in inputs or parameters");
  return agree(definition->per);
}

bool Inference::source(const Term &call, Per per) {
  if (call.args.front().kind != Term::Kind::name || call.args.front().name != "x")
    return fail(call.args.front().column, "valid as the first argument of " + call.name + ": x, the layer's input");
  if (++sources > 1)
    return fail(call.column, "a second linear or low_rank of one input; valid: a name in inputs of its own");
  if (call.name == "low_rank") {
    const Term &rank = call.args[1];
    if (rank.kind != Term::Kind::number || rank.number < 1 || rank.number > 65536 ||
        rank.number != static_cast<double>(static_cast<int64_t>(rank.number)))
      return fail(rank.column, "valid as the rank: a whole number from 1 to 65536");
  }
  for (const auto &[option, value] : call.options) {
    if (option == "per") {
      if (!perOf(value))
        return fail(call.column, "per=" + value + "; valid: head, key, value, element");
      if (perOf(value) != per)
        return fail(call.column, formatv("per={0}, but one number per {1} is needed here", value, nameOf(per)).str());
    } else if (option == "heads") {
      if (per == Per::element)
        return fail(call.column, "heads=" + value + " of one number per element of the state; valid: all heads");
      int64_t own = 0;
      if (StringRef(value).getAsInteger(10, own) || own < 1 || heads % own)
        return fail(call.column, formatv("heads={0} does not divide heads {1}; valid: a divisor", value, heads).str());
    } else {
      return fail(call.column, "option '" + option + "'; valid: heads, per");
    }
  }
  return true;
}

bool Inference::demandCall(const Term &call, Per per) {
  const Function *function = llvm::find_if(functions, [&](const Function &f) { return f.name == call.name; });
  if (function == std::end(functions)) {
    std::vector<StringRef> names;
    for (const Function &f : functions)
      names.push_back(f.name);
    return fail(call.column, "'" + call.name + "(' is no function; valid: " + llvm::join(names, ", "));
  }
  if (call.args.size() != function->arguments)
    return fail(call.column,
                formatv("{0} has {1} arguments; valid: {2}", call.name, call.args.size(), function->arguments).str());
  if (function->kind == Function::Kind::source)
    return source(call, per);
  if (!call.options.empty())
    return fail(call.column, "option '" + call.options.begin()->first + "' of " + call.name + "; valid: none");
  if (!dependsOnToken(call.args.front()))
    return fail(call.args.front().column, "is the same for all tokens; valid: what comes from x");
  if (function->kind == Function::Kind::vector && per == Per::head)
    return fail(call.column, call.name + " needs several features of a head, but one number per head is needed here");
  if (per == Per::element && (function->kind == Function::Kind::vector || call.name == "conv"))
    return fail(call.column, call.name + " is of features of a head, but one number per element of the state is needed "
                                         "here; valid: functions of each number");
  if (call.name == "conv" && ++convolutions > 1)
    return fail(call.column, "a second conv of one input; valid: a name in inputs of its own");
  if (function->kind == Function::Kind::decay) {
    if (per != Per::head && per != Per::key)
      return fail(call.column,
                  formatv("log_decay is one number per head or key, but per {0} is needed here", nameOf(per)).str());
    for (size_t i : {1, 2})
      if (call.args[i].kind != Term::Kind::name || !r.parameter(call.args[i].name))
        return fail(call.args[i].column, "valid: log_decay(dt, a_log, dt_bias) = -exp(a_log) softplus(dt + dt_bias), "
                                         "a_log and dt_bias in parameters");
      else if (!demandName(call.args[i].name, i == 1 ? Per::head : per, call.args[i].column))
        return false;
  }
  return demand(call.args.front(), per);
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
    if (term.kind == Term::Kind::quotient && i > 0 && !dependsOnToken(arg))
      return fail(arg.column, "a division by a parameter; valid: multiply by one");
    Per wanted = fixed(arg) == Per::head ? Per::head : per;
    carries |= wanted == per && dependsOnToken(arg);
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
    if (!dependsOnToken(term))
      return fail(term.column, "is the same for all tokens; valid: what comes from x");
    for (const Term &arg : term.args) {
      const Term *bare = arg.kind == Term::Kind::negate ? &arg.args.front() : &arg;
      if (bare->kind == Term::Kind::number)
        return fail(bare->column, "a number in a sum; valid: a parameter with this initial value");
      if (bare->kind != Term::Kind::name && !dependsOnToken(*bare))
        return fail(bare->column, "is the same for all tokens; valid in a sum: a parameter by its name, or what comes "
                                  "from x");
      if (bare != &arg && !dependsOnToken(*bare))
        return fail(bare->column, "a parameter is subtracted; valid: + and another initial value");
      if (!demand(arg, per))
        return false;
    }
    return true;
  }
  llvm_unreachable("all kinds are above");
}

/// 1: never negative, -1: never positive, 0: unknown.
int Inference::signOf(const Term &term) const {
  switch (term.kind) {
  case Term::Kind::number: return term.number < 0 ? -1 : 1;
  case Term::Kind::transpose: return 0;
  case Term::Kind::name: return signs.lookup(term.name);
  case Term::Kind::negate: return -signOf(term.args.front());
  case Term::Kind::call:
    if (term.name == "log_sigmoid" || term.name == "log_decay")
      return -1;
    if (llvm::is_contained({"tanh", "silu", "gelu", "gelu_tanh", "reciprocal", "l2_norm"}, StringRef(term.name)))
      return signOf(term.args.front()); // odd functions, and what stays on the side of 0 where it is
    return llvm::is_contained({"sigmoid", "softplus", "exp", "relu", "relu2", "elu1", "softmax"}, StringRef(term.name));
  case Term::Kind::product:
  case Term::Kind::quotient: {
    int sign = 1;
    std::map<StringRef, int> unknown; // a square is never negative, whatever it is of
    for (const Term &arg : term.args)
      if (int one = signOf(arg); one != 0 || arg.kind != Term::Kind::name)
        sign *= one;
      else
        ++unknown[arg.name];
    return llvm::all_of(unknown, [](const auto &entry) { return entry.second % 2 == 0; }) ? sign : 0;
  }
  case Term::Kind::sum: {
    int sign = signOf(term.args.front());
    return llvm::all_of(term.args, [&](const Term &arg) { return signOf(arg) == sign; }) ? sign : 0;
  }
  }
  llvm_unreachable("all kinds are above");
}

/// A state must not grow by its decay: what can be known of the log decays is checked.
bool Inference::decaysAreNegative() {
  for (const Definition &d : r.inputs)
    signs[d.name] = signOf(d.term);
  for (const std::string &name : {r.logDecay, r.valueDecay}) {
    if (const Parameter *p = r.parameter(name))
      for (auto [i, value] : llvm::enumerate(p->values))
        if (value > 0) {
          errorFn("parameters." + name,
                  formatv("values[{0}] is {1}; valid for a log decay: at most 0", i, numberText(value)).str());
          return false;
        }
    if (signs.lookup(name) == 1) {
      errorFn("inputs." + name, "is never negative, but a log decay must not be positive; valid: log_sigmoid(..), "
                                "log_decay(..), -softplus(..)");
      return false;
    }
    if (r.definition(name) && signs.lookup(name) == 0)
      r.reason += ". That " + name +
                  " is never positive cannot be shown, and where it is positive the state grows; "
                  "log_sigmoid(..), log_decay(..) and -softplus(..) never are";
  }
  return true;
}

static bool refersTo(const Term &term, StringRef name) {
  return (term.kind == Term::Kind::name && term.name == name) ||
         llvm::any_of(term.args, [&](auto &arg) { return refersTo(arg, name); });
}

/// Whether everything that comes from x in a term comes from wide inputs.
static bool readsWideOnly(const Term &term, const Recurrence &r) {
  if (term.kind == Term::Kind::name)
    return r.parameter(term.name) || (r.definition(term.name) && r.definition(term.name)->wide);
  return llvm::all_of(term.args, [&](const Term &arg) { return readsWideOnly(arg, r); });
}

/// Wide: numbers per head, the log decay, what only wide inputs read, and what reads only those: exp(g) of a log decay g.
bool Inference::isWide(const Definition &d) const {
  if (d.per == Per::head || d.name == r.logDecay || d.name == r.valueDecay)
    return true;
  if (isRow(d.name))
    return false;
  return llvm::all_of(
      r.inputs, [&](const Definition &later) { return &later <= &d || later.wide || !refersTo(later.term, d.name); });
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
    return r.definition(term.name)->heads;
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
  for (const Term &arg : term.args)
    if (isParameter(arg))
      give(arg, own);
  return own;
}

bool Inference::shareHeads() {
  bool ok = true;
  for (Definition &d : r.inputs) {
    key = "inputs." + d.name;
    d.heads = headsOf(d.term, ok);
  }
  for (auto &[name, p] : r.parameters) {
    // In an equation: of every head of the state.
    if (p.heads == 0)
      p.heads = heads;
    if (!p.trained() && (p.per != Per::head || static_cast<int64_t>(p.values.size()) != p.heads)) {
      errorFn("parameters." + name, formatv("has {0} values for one number per {1} of {2} heads; valid: one value for "
                                            "each head, where one number per head is needed",
                                            p.values.size(), nameOf(*p.per), p.heads)
                                        .str());
      ok = false;
    }
  }
  return ok;
}

/// Weights are named after what they are for; no two may have one name.
bool Inference::names() {
  llvm::StringMap<std::string> taken;
  for (StringRef fixedName : {"wo", "state", "norm"})
    taken[fixedName] = "every layer";
  if (r.gated)
    taken["wg"] = "the output gate";
  bool ok = true;
  auto take = [&](const std::string &weight, const std::string &owner) {
    auto [entry, fresh] = taken.try_emplace(weight, owner);
    if (fresh)
      return;
    errorFn(owner,
            formatv("its weight lsm.{0} has the name of one of {1}; valid: another name", weight, entry->second).str());
    ok = false;
  };
  std::function<void(const Term &, const std::string &)> walk = [&](const Term &term, const std::string &name) {
    if (term.kind == Term::Kind::call && term.name == "linear")
      take("w" + name, "inputs." + name);
    if (term.kind == Term::Kind::call && term.name == "low_rank")
      for (const char *part : {"1", "2"})
        take("w" + name + part, "inputs." + name);
    if (term.kind == Term::Kind::call && term.name == "conv")
      take("conv_" + name, "inputs." + name);
    for (const Term &arg : term.args)
      walk(arg, name);
  };
  for (const Definition &d : r.inputs)
    walk(d.term, d.name);
  for (const auto &[name, parameter] : r.parameters)
    take(name, "parameters." + name);
  return ok;
}

bool Inference::run() {
  for (Definition &d : r.inputs) {
    current = &d;
    d.own = fixed(d.term);
  }
  current = nullptr;
  bool scalar = llvm::is_contained({LsmClass::S0, LsmClass::S, LsmClass::GH}, r.classId);
  Per decay = r.elementwise ? Per::element : scalar ? Per::head : Per::key;
  auto place = [&](StringRef equation, const std::string &name, Per per) {
    key = equation.str();
    const auto &columns = equation == "state" ? r.stateColumns : r.outputColumns;
    auto column = columns.find(name);
    return name.empty() || demandName(name, per, column == columns.end() ? 1 : column->second);
  };
  if (!place("output", r.query, Per::key) || !place("state", r.key, Per::key) || !place("state", r.value, Per::value) ||
      !place("state", r.logDecay, decay) || !place("state", r.beta, Per::head) ||
      !place("state", r.valueDecay, Per::value) || !place("state", r.lowRankA, Per::key) ||
      !place("state", r.lowRankB, Per::key) || !place("output", r.skipValue, Per::value))
    return false;
  for (const std::string &name : r.writeFactors)
    if (r.parameter(name)) {
      key = "state";
      return fail(r.stateColumns.at(name), "'" + name + "' is a parameter; valid in this place: a name in inputs");
    } else if (!place("state", name, Per::head)) {
      return false;
    }
  for (const std::string &name : r.skipFactors) {
    const Parameter *parameter = r.parameter(name);
    const Definition *definition = r.definition(name);
    std::optional<Per> own = parameter ? parameter->per : definition->per ? definition->per : definition->own;
    if (!place("output", name, own == Per::head || own == Per::value ? *own : Per::value))
      return false;
  }
  for (Definition &d : llvm::reverse(r.inputs)) {
    current = &d;
    key = "inputs." + d.name;
    sources = convolutions = 0;
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
  return decaysAreNegative() && shareHeads() && names();
}

llvm::LogicalResult recurrence::inferShapes(Recurrence &recurrence, int64_t heads, ErrorFn error) {
  return llvm::success(Inference(recurrence, heads, error).run());
}
