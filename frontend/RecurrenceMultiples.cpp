//===- RecurrenceMultiples.cpp - what carries the state in several products ---------------------------------------===//
// M - a M + a k^T v carries (1 - a) M; (I - b k^T k) (I - c p^T p) M is erased from twice, the right one first.
#include "frontend/RecurrenceProducts.h"
#include "llvm/ADT/STLExtras.h"
#include <cmath>

using namespace braid;
using namespace braid::recurrence;
using llvm::StringRef;

//===- Multiples of M ---------------------------------------------------------------------------------------------===//

namespace {

bool isDiagonal(const Factor &f) { return f.kind == Factor::Kind::diag || f.kind == Factor::Kind::full; }
bool sameFactor(const Factor &a, const Factor &b) { return a.kind == b.kind && a.name == b.name && a.bare == b.bare; }

/// A sum whose parts may take each other away.
class Collected {
public:
  explicit Collected(const Recurrence &r) : r(r) {}
  void add(const Term &term, bool negative);
  Term sum(size_t column) const;

private:
  const Recurrence &r;
  double number = 0;
  std::vector<std::pair<Term, bool>> parts; ///< and whether it is taken away
};

/// Multiples of M side by side: what they share, and the sum of the rest.
class Multiples {
public:
  Multiples(Recurrence &r, std::vector<Product> &products) : r(r), products(products) {}
  void run();

private:
  bool fits(const Product &p);
  void takeShared();
  Term termOf(const Factor &f) const;
  void put(Term sum);

  Recurrence &r;
  std::vector<Product> &products;
  std::vector<size_t> plain; ///< which products
  std::vector<std::vector<Factor>> factors; ///< of each of them, but M
  std::vector<Factor> shared;
  bool left = false, right = false; ///< a diagonal on that side of M
};

} // namespace

/// What the equations made an input of is looked into.
void Collected::add(const Term &term, bool negative) {
  if (term.kind == Term::Kind::name)
    if (const Definition *d = r.definition(term.name); d && d->place == "state" && d->decay.empty() && d->whole.empty())
      return add(d->term, negative);
  if (term.kind == Term::Kind::number) {
    number += negative ? -term.number : term.number;
    return;
  }
  if (term.kind == Term::Kind::negate)
    return add(term.args.front(), !negative);
  if (term.kind == Term::Kind::sum) {
    for (const Term &arg : term.args)
      add(arg, negative);
    return;
  }
  auto opposite = llvm::find_if(
      parts, [&](const auto &part) { return part.second != negative && textOf(part.first) == textOf(term); });
  if (opposite != parts.end())
    parts.erase(opposite);
  else
    parts.emplace_back(term, negative);
}

Term Collected::sum(size_t column) const {
  Term all{.kind = Term::Kind::sum, .column = column};
  if (number > 0 || parts.empty())
    all.args.push_back({.kind = Term::Kind::number, .number = number, .column = column});
  for (const auto &[part, negative] : parts)
    all.args.push_back(negative ? Term{.kind = Term::Kind::negate, .args = {part}, .column = part.column} : part);
  if (number < 0 && !parts.empty())
    all.args.push_back({.kind = Term::Kind::number, .number = number, .column = column});
  if (all.args.size() > 1)
    return all;
  Term only = std::move(all.args.front());
  return only;
}

/// A multiple of M: nothing erases, nothing turns, diagonals are on one side.
bool Multiples::fits(const Product &p) {
  bool behind = false;
  for (const Factor &f : p.factors) {
    if (f.kind == Factor::Kind::state)
      behind = true;
    else if (f.kind != Factor::Kind::name && f.kind != Factor::Kind::exp && !isDiagonal(f))
      return false;
    else if (isDiagonal(f))
      (behind ? right : left) = true;
  }
  return behind;
}

void Multiples::takeShared() {
  for (size_t i = 0; i < factors.front().size();) {
    Factor own = factors.front()[i];
    auto in = [&](std::vector<Factor> &all) {
      return llvm::find_if(all, [&](const Factor &f) { return sameFactor(f, own); });
    };
    const Definition *d = r.definition(own.name);
    bool isNumber = d && d->term.kind == Term::Kind::number; // which add up
    if (isNumber || !llvm::all_of(factors, [&](std::vector<Factor> &all) { return in(all) != all.end(); })) {
      ++i;
      continue;
    }
    for (std::vector<Factor> &all : factors)
      all.erase(in(all));
    shared.push_back(std::move(own));
  }
}

Term Multiples::termOf(const Factor &f) const {
  Term name{.kind = Term::Kind::name, .name = f.name, .column = f.column};
  if (f.kind == Factor::Kind::name || f.bare)
    return name;
  return {.kind = Term::Kind::call, .name = "exp", .args = {name}, .column = f.column};
}

/// One product in the place of all.
void Multiples::put(Term sum) {
  Factor::Kind kind = Factor::Kind::name;
  for (const std::vector<Factor> &all : factors)
    for (const Factor &f : all)
      if (isDiagonal(f))
        kind = kind == Factor::Kind::full ? kind : f.kind;
  Product one{.column = products[plain[1]].column};
  if (sum.kind == Term::Kind::number) {
    one.negative = sum.number < 0;
    sum.number = std::abs(sum.number);
  }
  bool none = sum.kind == Term::Kind::number && sum.number == 0;
  if (sum.kind != Term::Kind::number || sum.number != 1) {
    std::string name = sum.kind == Term::Kind::name ? sum.name : inputOf(r, sum, "state");
    r.stateColumns.try_emplace(name, one.column);
    shared.push_back({.kind = kind, .name = name, .column = one.column, .bare = kind != Factor::Kind::name});
  }
  Factor state{.kind = Factor::Kind::state, .name = "M", .column = one.column};
  for (Factor &f : shared)
    if (!right || !isDiagonal(f))
      one.factors.push_back(f);
  one.factors.push_back(state);
  for (Factor &f : shared)
    if (right && isDiagonal(f))
      one.factors.push_back(f);
  for (size_t at : llvm::reverse(llvm::drop_begin(plain)))
    products.erase(products.begin() + static_cast<std::ptrdiff_t>(at));
  if (none)
    products.erase(products.begin() + static_cast<std::ptrdiff_t>(plain.front()));
  else
    products[plain.front()] = std::move(one);
}

void Multiples::run() {
  auto has = [](const Product &p, Factor::Kind kind) {
    return llvm::any_of(p.factors, [&](const Factor &f) { return f.kind == kind; });
  };
  for (auto [i, p] : llvm::enumerate(products)) {
    if (!has(p, Factor::Kind::state) || has(p, Factor::Kind::transposed))
      continue;
    if (!fits(p) || (left && right))
      return;
    plain.push_back(i);
    factors.push_back(p.factors);
    llvm::erase_if(factors.back(), [](const Factor &f) { return f.kind == Factor::Kind::state; });
  }
  if (plain.size() < 2)
    return;
  takeShared();
  Collected all(r);
  for (auto [i, own] : llvm::zip_equal(plain, factors)) {
    Term product{.kind = Term::Kind::product, .column = products[i].column};
    for (const Factor &f : own)
      product.args.push_back(termOf(f));
    if (product.args.empty())
      product = {.kind = Term::Kind::number, .number = 1, .column = product.column};
    else if (product.args.size() == 1)
      product = Term(product.args.front());
    for (Term &f : product.args)
      if (const Definition *d = r.definition(f.name); d && d->term.kind == Term::Kind::number)
        f = Term(d->term);
    foldNumbers(product);
    all.add(product, products[i].negative);
  }
  put(all.sum(products[plain[1]].column));
}

void recurrence::collectMultiples(Recurrence &r, std::vector<Product> &products) { Multiples(r, products).run(); }

//===- Products of transitions ------------------------------------------------------------------------------------===//

static bool isTransposed(const Term &term) {
  return term.kind == Term::Kind::transpose || llvm::any_of(term.args, isTransposed);
}
static bool erases(const Term &factor) { return factor.kind == Term::Kind::sum && isTransposed(factor); }

/// The one product that carries M, with M behind all of its factors and two of them or more that erase.
static const Term *severalTransitions(const Term &state) {
  const Term *product = state.kind == Term::Kind::product ? &state : nullptr;
  if (state.kind == Term::Kind::sum)
    for (const Term &part : state.args) {
      if (!mentions(part, "M"))
        continue;
      if (product)
        return nullptr;
      product = &part;
    }
  if (!product || product->kind != Term::Kind::product)
    return nullptr;
  const Term &last = product->args.back();
  if (last.kind != Term::Kind::name || last.name != "M")
    return nullptr;
  llvm::ArrayRef<Term> before = llvm::ArrayRef(product->args).drop_back();
  bool fits = llvm::all_of(before, [](const Term &f) { return !mentions(f, "M") && (erases(f) || !isTransposed(f)); });
  return fits && llvm::count_if(before, erases) > 1 ? product : nullptr;
}

std::vector<Term> recurrence::transitionsOf(const Term &state) {
  const Term *product = severalTransitions(state);
  if (!product)
    return {state};
  const Term &M = product->args.back();
  auto times = [&](std::vector<Term> factors) {
    Term all{.kind = Term::Kind::product, .args = std::move(factors), .column = product->column};
    all.column = all.args.front().column;
    all.args.push_back(M);
    return all;
  };
  std::vector<Term> states, factors;
  size_t left = llvm::count_if(product->args, erases);
  for (const Term &factor : llvm::reverse(llvm::ArrayRef(product->args).drop_back())) {
    factors.insert(factors.begin(), factor);
    if (erases(factor) && --left > 0)
      states.push_back(times(std::exchange(factors, {})));
  }
  Term last = state;
  (product == &state ? last : last.args[product - state.args.data()]) = times(std::move(factors));
  states.push_back(std::move(last));
  return states;
}
