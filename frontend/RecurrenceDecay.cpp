//===- RecurrenceDecay.cpp - decays that an equation does not write as exp(g) -------------------------------------===//
// "M = a M + k^T v" with "a": "sigmoid(linear(x))": kernels take log decays (the exponentials of sums of them are what
// chunks need, lsm-family.md 3), so the scan reads log_sigmoid(linear(x)). What a text computes where a name belongs, as
// in "0.9 M" and "exp(-g) M", gets an input that is called as it is written. Other inputs that are made here have
// names that no text gives: "a (whole)", "a (log)".
#include "frontend/ModelSpec.h"
#include "frontend/RecurrenceFunctions.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include <cmath>

using namespace braid;
using namespace braid::recurrence;
using llvm::StringRef;

/// A name may be the text of an expression: parentheses around one of these operators keep "(1 - a) b" from being
/// called "1 - a b".
static std::string enclosed(StringRef name, StringRef operators) {
  int depth = 0;
  for (char c : name) {
    depth += (c == '(') - (c == ')');
    if (depth == 0 && operators.contains(c))
      return ("(" + name + ")").str();
  }
  return name.str();
}

std::string recurrence::textOf(const Term &term) {
  using Kind = Term::Kind;
  auto joined = [&](StringRef between, auto part) {
    std::vector<std::string> parts; // join asks a range for each twice
    for (const Term &arg : term.args)
      parts.push_back(part(arg));
    return llvm::join(parts, between);
  };
  auto factor = [](const Term &arg) {
    if (arg.kind == Kind::name)
      return enclosed(arg.name, "+-/");
    bool whole = !llvm::is_contained({Kind::sum, Kind::negate, Kind::product, Kind::quotient}, arg.kind) &&
                 !(arg.kind == Kind::number && arg.number < 0);
    return whole ? textOf(arg) : "(" + textOf(arg) + ")";
  };
  switch (term.kind) {
  case Kind::number: return numberText(term.number);
  case Kind::name: return term.name;
  case Kind::transpose: return (term.name.empty() ? factor(term.args.front()) : enclosed(term.name, " +-/")) + "^T";
  case Kind::negate: return "-" + factor(term.args.front());
  case Kind::power: {
    const Term &base = term.args.front();
    return (base.kind == Kind::name ? enclosed(base.name, " +-/") : factor(base)) + "^" + numberText(term.number);
  }
  case Kind::sum: {
    std::string text;
    for (const Term &arg : term.args) {
      bool minus = (arg.kind == Kind::negate || (arg.kind == Kind::number && arg.number < 0)) && !text.empty();
      Term positive = arg;
      positive.number = std::abs(arg.number);
      const Term &part = !minus ? arg : arg.kind == Kind::negate ? arg.args.front() : positive;
      text += text.empty() ? "" : minus ? " - " : " + ";
      text += part.kind == Kind::product || part.kind == Kind::quotient ? textOf(part) : factor(part);
    }
    return text;
  }
  case Kind::product: return joined(" ", factor);
  case Kind::quotient: return joined(" / ", factor);
  case Kind::call: {
    std::string text = joined(", ", textOf);
    for (const auto &[option, value] : term.options)
      text += (text.empty() ? "" : ", ") + option + "=" + value;
    return term.name + "(" + text + ")";
  }
  }
  llvm_unreachable("all kinds are above");
}

static bool isCall(const Term &t, StringRef function) {
  return t.kind == Term::Kind::call && t.name == function && t.args.size() == 1 && t.options.empty();
}

static Term called(StringRef function, Term argument) {
  Term call{.kind = Term::Kind::call, .name = function.str(), .column = argument.column};
  call.args.push_back(std::move(argument));
  return call;
}

static Term negated(Term term) {
  Term negative{.kind = Term::Kind::negate, .column = term.column};
  negative.args.push_back(std::move(term));
  return negative;
}

static void rename(Term &term, StringRef from, StringRef to) {
  if (term.kind == Term::Kind::name && term.name == from)
    term.name = to.str();
  for (Term &arg : term.args)
    rename(arg, from, to);
}

/// What reads the input from now on reads `whole`, which is computed of it.
static void putWhole(Recurrence &r, StringRef name, Term whole) {
  auto from = llvm::find_if(r.inputs, [&](const Definition &d) { return d.name == name; });
  from->whole = (name + " (whole)").str();
  for (Definition &other : r.inputs)
    if (&other != &*from)
      rename(other.term, name, from->whole);
  Definition made{.name = from->whole, .term = std::move(whole), .place = from->key()};
  r.inputs.insert(std::next(from), std::move(made));
  describeInputs(r);
}

/// An input a = sigmoid(y) or exp(y) becomes y. The function; "" of others.
static std::string split(Recurrence &r, StringRef name) {
  Definition *d = r.definition(name);
  if (d && !d->whole.empty())
    return r.definition(d->whole)->term.name;
  if (!d || !(isCall(d->term, "sigmoid") || isCall(d->term, "exp")))
    return "";
  std::string function = d->term.name;
  Term argument = d->term.args.front();
  d->term = argument;
  putWhole(r, name, called(function, {.kind = Term::Kind::name, .name = name.str(), .column = argument.column}));
  return function;
}

/// Of what is known to be above 0: sigmoid, exp, 1 - sigmoid, inputs that are one of these, numbers, products and
/// quotients.
static std::optional<Term> logOf(Recurrence &r, const Term &term) {
  using Kind = Term::Kind;
  if (isCall(term, "sigmoid"))
    return called("log_sigmoid", term.args.front());
  if (isCall(term, "exp"))
    return term.args.front();
  if (term.kind == Kind::number && term.number > 0)
    return Term{.kind = Kind::number, .number = std::log(term.number), .column = term.column};
  if (term.kind == Kind::name) {
    StringRef name = term.name;
    name.consume_back(" (whole)");
    Term argument{.kind = Kind::name, .name = name.str(), .column = term.column};
    std::string function = split(r, name);
    return function == "exp"       ? std::optional(argument)
           : function == "sigmoid" ? std::optional(called("log_sigmoid", argument))
                                   : std::nullopt;
  }
  bool complement = term.kind == Kind::sum && term.args.size() == 2 && term.args[0].kind == Kind::number &&
                    term.args[0].number == 1 && term.args[1].kind == Kind::negate;
  if (complement) {
    std::optional<Term> log = logOf(r, term.args[1].args.front());
    if (!log || !isCall(*log, "log_sigmoid"))
      return std::nullopt;
    return called("log_sigmoid", negated(log->args.front()));
  }
  if (term.kind == Kind::power) {
    std::optional<Term> log = logOf(r, term.args.front());
    if (!log)
      return std::nullopt;
    Term times{.kind = Kind::product, .column = term.column};
    times.args.push_back(std::move(*log));
    times.args.push_back({.kind = Kind::number, .number = term.number, .column = term.column});
    foldNumbers(times);
    return times;
  }
  if (term.kind != Kind::product && term.kind != Kind::quotient)
    return std::nullopt;
  Term sum{.kind = Kind::sum, .column = term.column};
  for (const Term &arg : term.args) {
    std::optional<Term> log = logOf(r, arg);
    if (!log)
      return std::nullopt;
    bool below = term.kind == Kind::quotient && &arg != &term.args.front();
    sum.args.push_back(below ? negated(std::move(*log)) : std::move(*log));
  }
  foldNumbers(sum);
  return sum;
}

std::string recurrence::inputOf(Recurrence &r, Term term, StringRef place) {
  std::string name = textOf(term);
  if (r.definition(name))
    return name;
  readWhole(r, term);
  r.inputs.push_back({.name = name, .term = std::move(term), .place = place.str()});
  describeInputs(r);
  return name;
}

std::string recurrence::expOf(Recurrence &r, StringRef log) {
  if (const Definition *d = r.definition(log); d && (r.definition(d->decay) || r.parameter(d->decay)))
    return wholeOf(r, d->decay);
  std::string name = (log + " (exp)").str();
  if (r.definition(name))
    return name;
  const Definition *d = r.definition(log);
  Term whole = called("exp", {.kind = Term::Kind::name, .name = log.str(), .column = d ? d->term.column : 1});
  r.inputs.push_back({.name = name, .term = std::move(whole), .place = "state"});
  describeInputs(r);
  return name;
}

const Definition *recurrence::takenLog(const Recurrence &r, StringRef name) {
  auto taken = llvm::find_if(r.inputs, [&](const Definition &d) { return d.decay == name; });
  return taken == r.inputs.end() ? nullptr : &*taken;
}

std::optional<std::string> recurrence::takeLog(Recurrence &r, StringRef name) {
  if (const Definition *taken = takenLog(r, name))
    return taken->name;
  auto logBehind = [&](StringRef place, Term log) {
    Definition made{.name = (name + " (log)").str(), .term = std::move(log), .place = place.str(), .decay = name.str()};
    auto own = llvm::find_if(r.inputs, [&](const Definition &each) { return each.name == name; });
    r.inputs.insert(own == r.inputs.end() ? r.inputs.begin() : std::next(own), std::move(made));
    describeInputs(r);
    return (name + " (log)").str();
  };
  // Of what is never negative, whatever it is.
  auto logOfWhole = [&]() -> std::optional<std::string> {
    const Definition *d = r.definition(name);
    if (!Ranges(r).of(name).neverNegative())
      return std::nullopt;
    Term whole{.kind = Term::Kind::name, .name = name.str(), .column = d ? d->term.column : 1};
    return logBehind(d ? d->key() : ("parameters." + name).str(), called("log", std::move(whole)));
  };
  if (!r.definition(name))
    return logOfWhole();
  if (split(r, name) == "exp") {
    r.definition(name)->decay = name.str();
    return name.str();
  }
  const Definition &d = *r.definition(name);
  Term term = d.whole.empty() ? d.term : Term{.kind = Term::Kind::name, .name = name.str(), .column = d.term.column};
  std::optional<Term> log = logOf(r, term);
  if (!log)
    return logOfWhole();
  Definition &own = *r.definition(name); // logOf may have made others
  if (callsSource(*log)) { // twice would be two of them
    own.term = std::move(*log);
    own.decay = name.str();
    putWhole(r, name, called("exp", {.kind = Term::Kind::name, .name = name.str(), .column = term.column}));
    return name.str();
  }
  return logBehind(own.key(), std::move(*log));
}

std::string recurrence::wholeOf(const Recurrence &r, StringRef name) {
  const Definition *d = r.definition(name);
  return d && !d->whole.empty() ? d->whole : name.str();
}

void recurrence::readWhole(const Recurrence &r, Term &term) {
  if (term.kind == Term::Kind::name || term.kind == Term::Kind::transpose)
    term.name = wholeOf(r, term.name);
  for (Term &arg : term.args)
    readWhole(r, arg);
}

/// "g (exp)" and the like are names of what is made here; a reader knows exp(g).
std::string recurrence::shownNames(std::string text) {
  for (StringRef made : {" (whole)", " (phase)", " 1 (key)", " (log)"})
    for (size_t at; (at = text.find(made)) != std::string::npos;)
      text.erase(at, made.size());
  constexpr StringRef exponential = " (exp)";
  for (size_t at; (at = text.find(exponential)) != std::string::npos;) {
    size_t begin = at;
    while (begin > 0 && !StringRef(" ([").contains(text[begin - 1]))
      --begin;
    text.replace(at, exponential.size(), ")");
    text.insert(begin, "exp(");
  }
  return text;
}

std::string Recurrence::decayText(StringRef log) const {
  const Definition *d = definition(log);
  return d && !d->decay.empty() ? d->decay : ("exp(" + log + ")").str();
}
