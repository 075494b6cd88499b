//===- RecurrencePhase.cpp - decays that turn ---------------------------------------------------------------------===//
// exp(g + i p) is a decay exp(g) and a turn by p, in whatever order and with whatever factors it is written.
#include "frontend/RecurrenceProducts.h"
#include "llvm/ADT/STLExtras.h"

using namespace braid;
using namespace braid::recurrence;
using Kind = Term::Kind;

namespace {

bool isComplex(const Term &term) { return mentions(term, "i"); }

/// The product or quotient with another first factor, which is left out where it is 1.
Term withFactor(const Term &term, size_t at, const Term &factor) {
  Term all = term;
  bool isOne = factor.kind == Kind::number && factor.number == 1;
  if (isOne && term.kind == Kind::product && term.args.size() > 1)
    all.args.erase(all.args.begin() + static_cast<std::ptrdiff_t>(at));
  else
    all.args[at] = factor;
  if (all.args.size() > 1)
    return all;
  Term only = std::move(all.args.front());
  return only;
}

/// The one factor that has i, above a division; none where there are others.
std::optional<size_t> complexFactor(const Term &term, const Term *&problem) {
  std::optional<size_t> at;
  for (auto [i, arg] : llvm::enumerate(term.args)) {
    if (!isComplex(arg))
      continue;
    problem = &arg;
    if (at || (term.kind == Kind::quotient && i > 0))
      return std::nullopt;
    at = i;
  }
  return at;
}

void add(std::optional<Term> &sum, Term part, size_t column) {
  if (!sum) {
    sum = std::move(part);
    return;
  }
  if (sum->kind != Kind::sum || sum->column != column) {
    Term all{.kind = Kind::sum, .column = column};
    all.args.push_back(std::move(*sum));
    sum = std::move(all);
  }
  sum->args.push_back(std::move(part));
}

Term negated(const Term &term) {
  Term negative{.kind = Kind::negate, .args = {term}, .column = term.column};
  foldNumbers(negative);
  return negative;
}

} // namespace

std::optional<Complex> recurrence::complexOf(const Term &term, const Term *&problem) {
  if (!isComplex(term))
    return Complex{.real = term, .imaginary = {}};
  problem = &term;
  Complex all;
  switch (term.kind) {
  case Kind::name: all.imaginary = Term{.kind = Kind::number, .number = 1, .column = term.column}; return all;
  case Kind::negate: {
    std::optional<Complex> part = complexOf(term.args.front(), problem);
    if (!part)
      return std::nullopt;
    all.real = part->real ? std::optional(negated(*part->real)) : std::nullopt;
    all.imaginary = negated(*part->imaginary);
    return all;
  }
  case Kind::sum:
    for (const Term &arg : term.args) {
      std::optional<Complex> part = complexOf(arg, problem);
      if (!part)
        return std::nullopt;
      if (part->real)
        add(all.real, *part->real, term.column);
      if (part->imaginary)
        add(all.imaginary, *part->imaginary, term.column);
    }
    return all;
  case Kind::product:
  case Kind::quotient: {
    std::optional<size_t> at = complexFactor(term, problem);
    std::optional<Complex> part = at ? complexOf(term.args[*at], problem) : std::nullopt;
    if (!part)
      return std::nullopt;
    if (part->real)
      all.real = withFactor(term, *at, *part->real);
    all.imaginary = withFactor(term, *at, *part->imaginary);
    return all;
  }
  default: return std::nullopt;
  }
}

std::optional<Complex> recurrence::polarOf(const Term &term, const Term *&problem) {
  if (!isComplex(term))
    return Complex{.real = term, .imaginary = {}};
  problem = &term;
  if (term.kind == Kind::call && term.name == "exp" && term.args.size() == 1 && term.options.empty()) {
    std::optional<Complex> log = complexOf(term.args.front(), problem);
    if (!log || !log->real)
      return log;
    Term decay = term;
    decay.args = {std::move(*log->real)};
    log->real = std::move(decay);
    return log;
  }
  std::optional<size_t> at;
  if (term.kind == Kind::product || term.kind == Kind::quotient)
    at = complexFactor(term, problem);
  std::optional<Complex> part = at ? polarOf(term.args[*at], problem) : std::nullopt;
  if (!part)
    return std::nullopt;
  Term one{.kind = Kind::number, .number = 1, .column = term.column};
  part->real = withFactor(term, *at, part->real.value_or(one));
  return part;
}
