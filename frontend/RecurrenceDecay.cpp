//===- RecurrenceDecay.cpp - decays that an equation does not write as exp(g) -------------------------------------===//
// "M = a M + k^T v" with "a": "sigmoid(linear(x))": kernels take log decays (the exponentials of sums of them are what
// chunks need, lsm-family.md 3), so a becomes log_sigmoid(linear(x)), and exp(a) wherever else it stands. What a text
// computes where a name belongs, as in "0.9 M" and "exp(-g) M", gets an input that is called as it is written.
#include "frontend/ModelSpec.h"
#include "frontend/Recurrence.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include <cmath>

using namespace braid;
using namespace braid::recurrence;
using llvm::StringRef;

std::string recurrence::textOf(const Term &term) {
  using Kind = Term::Kind;
  auto joined = [&](StringRef between, auto part) { return llvm::join(llvm::map_range(term.args, part), between); };
  auto factor = [](const Term &arg) {
    bool whole = !llvm::is_contained({Kind::sum, Kind::negate, Kind::product, Kind::quotient}, arg.kind) &&
                 !(arg.kind == Kind::number && arg.number < 0);
    return whole ? textOf(arg) : "(" + textOf(arg) + ")";
  };
  switch (term.kind) {
  case Kind::number: return numberText(term.number);
  case Kind::name: return term.name;
  case Kind::transpose: return (term.name.empty() ? factor(term.args.front()) : term.name) + "^T";
  case Kind::negate: return "-" + factor(term.args.front());
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

/// Of what is known to be above 0: sigmoid, exp, 1 - sigmoid, numbers, products and quotients of these.
static std::optional<Term> logOf(const Term &term) {
  using Kind = Term::Kind;
  auto calls = [](const Term &t, StringRef function) {
    return t.kind == Kind::call && t.name == function && t.args.size() == 1 && t.options.empty();
  };
  auto logSigmoid = [&](Term argument) {
    Term log{.kind = Kind::call, .name = "log_sigmoid", .column = term.column};
    log.args.push_back(std::move(argument));
    return log;
  };
  auto negated = [](Term t) {
    Term negative{.kind = Kind::negate, .column = t.column};
    negative.args.push_back(std::move(t));
    return negative;
  };
  if (calls(term, "sigmoid"))
    return logSigmoid(term.args.front());
  if (calls(term, "exp"))
    return term.args.front();
  if (term.kind == Kind::number && term.number > 0)
    return Term{.kind = Kind::number, .number = std::log(term.number), .column = term.column};
  bool complement = term.kind == Kind::sum && term.args.size() == 2 && term.args[0].kind == Kind::number &&
                    term.args[0].number == 1 && term.args[1].kind == Kind::negate &&
                    calls(term.args[1].args.front(), "sigmoid");
  if (complement)
    return logSigmoid(negated(term.args[1].args.front().args.front()));
  if (term.kind != Kind::product && term.kind != Kind::quotient)
    return std::nullopt;
  Term sum{.kind = Kind::sum, .column = term.column};
  for (const Term &arg : term.args) {
    std::optional<Term> log = logOf(arg);
    if (!log)
      return std::nullopt;
    bool below = term.kind == Kind::quotient && &arg != &term.args.front();
    sum.args.push_back(below ? negated(std::move(*log)) : std::move(*log));
  }
  foldNumbers(sum);
  return sum;
}

std::string recurrence::inputOf(Recurrence &r, const Term &term, StringRef place) {
  std::string name = textOf(term);
  if (r.definition(name))
    return name;
  Definition own{.name = name, .term = term, .place = place.str()};
  readLogs(r, own.term);
  r.inputs.push_back(std::move(own));
  describeInputs(r);
  return name;
}

std::string recurrence::expOf(Recurrence &r, StringRef log) {
  auto from = llvm::find_if(r.inputs, [&](const Definition &d) { return d.name == log; });
  bool known = from != r.inputs.end();
  if (known && !from->decay.empty() && from->decay != log && r.definition(from->decay)) // of a number
    return from->decay;
  std::string name = ("exp(" + log + ")").str();
  if (r.definition(name))
    return name;
  Definition whole{.name = name, .term = {.kind = Term::Kind::call, .name = "exp"}, .place = "state"};
  if (known) {
    whole.place = from->key();
    whole.term.column = from->term.column;
  }
  whole.term.args.push_back({.kind = Term::Kind::name, .name = log.str(), .column = whole.term.column});
  r.inputs.insert(known ? std::next(from) : from, std::move(whole));
  describeInputs(r);
  return name;
}

static void rename(Term &term, StringRef from, StringRef to) {
  if (term.kind == Term::Kind::name && term.name == from)
    term.name = to.str();
  for (Term &arg : term.args)
    rename(arg, from, to);
}

std::optional<std::string> recurrence::takeLog(Recurrence &r, StringRef name) {
  Definition *d = r.definition(name);
  if (!d)
    return std::nullopt;
  if (!d->decay.empty())
    return name.str();
  std::optional<Term> log = logOf(d->term);
  if (!log)
    return std::nullopt;
  if (d->term.kind == Term::Kind::number && !d->place.empty()) { // may be a decay here and a rate there
    std::string own = ("log(" + name + ")").str();
    if (!r.definition(own))
      r.inputs.push_back({.name = own, .term = std::move(*log), .place = d->key(), .decay = name.str()});
    describeInputs(r);
    return own;
  }
  bool read = llvm::any_of(r.inputs, [&](const Definition &other) { return mentions(other.term, name); });
  d->term = std::move(*log);
  d->decay = name.str();
  describeInputs(r);
  if (!read)
    return name.str();
  std::string whole = expOf(r, name);
  for (Definition &other : r.inputs)
    if (other.name != whole)
      rename(other.term, name, whole);
  return name.str();
}

void recurrence::readLogs(Recurrence &r, Term &term) {
  std::vector<std::string> logs;
  for (const Definition &d : r.inputs)
    if (d.decay == d.name && mentions(term, d.name))
      logs.push_back(d.name);
  for (const std::string &name : logs)
    rename(term, name, expOf(r, name));
}

std::string Recurrence::decayText(StringRef log) const {
  const Definition *d = definition(log);
  return d && !d->decay.empty() ? d->decay : ("exp(" + log + ")").str();
}
