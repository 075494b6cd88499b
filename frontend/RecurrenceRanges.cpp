//===- RecurrenceRanges.cpp - what inputs of a recurrence lie between ---------------------------------------------===//
// From functions, numbers and what is not trained: 0.3 + 0.7 sigmoid(y) is from 0.3 to 1. What multiplies a state must
// be from 0 to 1, a log decay not above 0 (RecurrenceChecks.cpp).
#include "frontend/RecurrenceFunctions.h"
#include "llvm/ADT/STLExtras.h"
#include <algorithm>
#include <map>

using namespace braid;
using namespace braid::recurrence;
using llvm::StringRef;
using Kind = Term::Kind;

Ranges::Ranges(const Recurrence &r, const Sizes *sizes) : r(r) {
  for (const auto &[name, p] : r.parameters) {
    if (p.trained)
      continue;
    std::vector<double> values = p.values;
    if (p.formula && !sizes) { // as it should be
      known[name] = {0, 1};
      continue;
    }
    for (int64_t layer = 0; p.formula && layer < (p.perLayer() ? sizes->layers : 1); ++layer)
      llvm::append_range(values, evaluate(p, r, *sizes, layer));
    if (!values.empty())
      known[name] = {*llvm::min_element(values), *llvm::max_element(values)};
  }
  for (const Definition &d : r.inputs)
    known[d.name] = of(d.term);
}

Interval Ranges::of(StringRef name) const { return known.lookup(name); }

/// Of the name of what all tokens share what it is computed of.
const Term &Ranges::meaning(const Term &term) const {
  const Definition *d = term.kind == Kind::name ? r.definition(term.name) : nullptr;
  return d && d->constant ? meaning(d->term) : term;
}

/// w of 1 - w, also by the name of such an input.
const Term *Ranges::complemented(const Term &term) const {
  if (term.kind == Kind::name) {
    const Definition *d = r.definition(term.name);
    return d && d->term.kind == Kind::sum ? complemented(d->term) : nullptr;
  }
  bool fits = term.kind == Kind::sum && term.args.size() == 2 && term.args[0].kind == Kind::number &&
              term.args[0].number == 1 && term.args[1].kind == Kind::negate;
  return fits ? &term.args[1].args.front() : nullptr;
}

/// w a + (1 - w) b with w from 0 to 1 lies between a and b.
std::optional<Interval> Ranges::between(const Term &one, const Term &other) const {
  auto factorsOf = [](const Term &term) {
    std::vector<const Term *> factors;
    if (term.kind != Kind::product)
      return std::vector{&term};
    for (const Term &arg : term.args)
      factors.push_back(&arg);
    return factors;
  };
  auto without = [&](const std::vector<const Term *> &factors, const Term *left) {
    Interval rest{1, 1};
    for (const Term *factor : factors)
      rest = factor == left ? rest : rest * of(*factor);
    return rest;
  };
  std::vector<const Term *> ones = factorsOf(one), others = factorsOf(other);
  for (const Term *complement : others) {
    const Term *weight = complemented(*complement);
    if (!weight)
      continue;
    auto same =
        llvm::find_if(ones, [&](const Term *factor) { return textOf(meaning(*factor)) == textOf(meaning(*weight)); });
    Interval range = of(*weight);
    if (same != ones.end() && range.low >= 0 && range.high <= 1)
      return hull(without(ones, *same), without(others, complement));
  }
  return std::nullopt;
}

Interval Ranges::ofSum(const Term &sum) const {
  Interval all{0, 0};
  for (const Term &arg : sum.args)
    all = all + of(arg);
  if (sum.args.size() != 2)
    return all;
  for (auto [one, other] : {std::pair(0, 1), std::pair(1, 0)})
    if (std::optional<Interval> mixed = between(sum.args[one], sum.args[other]))
      return both(all, *mixed);
  return all;
}

Interval Ranges::ofFactors(const Term &term) const {
  Interval all{1, 1};
  std::map<std::string, std::pair<const Term *, int>> equal; // a square is never negative, whatever it is of
  for (const Term &arg : term.args)
    if (term.kind == Kind::quotient && &arg != &term.args.front()) {
      all = all * reciprocal(of(arg));
    } else {
      auto &[factor, count] = equal[textOf(arg)];
      factor = &arg;
      ++count;
    }
  for (const auto &[text, factor] : equal)
    all = all * power(of(*factor.first), factor.second);
  return all;
}

std::optional<Interval> recurrence::clampOf(const Term &call) {
  if (call.name == "clamp" && call.args.size() == 3)
    return Interval{call.args[1].number, call.args[2].number};
  if (call.args.size() != 2 || (call.name != "max" && call.name != "min"))
    return std::nullopt;
  return call.name == "max" ? Interval{.low = call.args[1].number} : Interval{.high = call.args[1].number};
}

Interval Ranges::ofCall(const Term &call) const {
  const Function *function = functionOf(call.name);
  if (!function || call.args.empty())
    return {};
  Interval x = of(call.args.front());
  switch (function->kind) {
  case Function::Kind::decay: { // -exp(a_log) delta, or of softplus(dt + ..)
    Interval positive{.low = 0};
    return -positive * (call.args.size() == 2 ? x : positive);
  }
  case Function::Kind::before: return hull(x, {0, 0}); // of a document's first token
  case Function::Kind::place: return {.low = 0};
  case Function::Kind::join:
  case Function::Kind::split: return x;
  case Function::Kind::inner: {
    bool square = textOf(call.args.front()) == textOf(call.args.back());
    Interval one = square ? power(x, 2) : x * of(call.args.back());
    return {.low = one.neverNegative() ? 0 : Interval().low, .high = one.high <= 0 ? 0 : Interval().high};
  }
  case Function::Kind::vector:
    if (call.name == "softmax")
      return {0, 1};
    return call.name == "l2_norm" ? Interval{x.low >= 0 ? 0.0 : -1.0, x.high <= 0 ? 0.0 : 1.0} : Interval();
  case Function::Kind::feature:
    if (call.name == "log_sigmoid")
      return call.args.size() > 1 ? Interval{.high = 0} : logSigmoid(x);
    if (std::optional<Interval> ends = clampOf(call))
      return clamped(x, ends->low, ends->high);
    if (call.name == "abs")
      return {x.neverNegative() ? x.low : x.high <= 0 ? -x.high : 0, std::max(-x.low, x.high)};
    return activated(call.name, x);
  default: return {};
  }
}

Interval Ranges::of(const Term &term) const {
  if (auto it = seen.find(&term); it != seen.end())
    return it->second;
  Interval range = computed(term);
  seen[&term] = range;
  return range;
}

Interval Ranges::computed(const Term &term) const {
  switch (term.kind) {
  case Kind::number: return {term.number, term.number};
  case Kind::transpose: return {};
  case Kind::name: return of(term.name);
  case Kind::negate: return -of(term.args.front());
  case Kind::power: return power(of(term.args.front()), static_cast<int>(term.number));
  case Kind::call: return ofCall(term);
  case Kind::product:
  case Kind::quotient: return ofFactors(term);
  case Kind::sum: return ofSum(term);
  }
  llvm_unreachable("all kinds are above");
}
