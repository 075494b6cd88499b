//===- RecurrenceProducts.cpp - an equation of a recurrence as a sum of products ----------------------------------===//
#include "frontend/RecurrenceProducts.h"
#include "frontend/RecurrenceFunctions.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/FormatVariadic.h"
#include <functional>

using namespace braid;
using namespace braid::recurrence;
using llvm::formatv;
using llvm::StringRef;

static constexpr size_t maxProducts = 64, maxFactors = 256;

namespace {

class Multiplication {
public:
  Multiplication(Recurrence &r, StringRef carried, ErrorFn error) : r(r), carried(carried), errorFn(error) {}
  bool run(const Term &term, std::vector<Sorted> &out);

private:
  bool expand(const Term &term, std::vector<Product> &out);
  bool factorOf(const Term &call, std::vector<Product> &out);
  bool turn(const Term &call, const Term &inner, std::vector<Product> &out);
  bool name(const Term &term, std::vector<Product> &out);
  bool isRow(const Term &term) const;
  bool rowBehind(const Term &term, std::vector<Product> &out);
  bool times(std::vector<Product> &left, const std::vector<Product> &right, size_t column);
  bool takeLogs(std::vector<Product> &products);
  bool sort(const Product &product, Sorted &out);
  bool known(const std::string &name, size_t column);
  bool fail(size_t column, StringRef message) {
    errorFn("state", formatv("column {0}: {1}", column, message).str());
    return false;
  }

  Recurrence &r;
  StringRef carried;
  ErrorFn errorFn;
};

} // namespace

/// exp(g + i p), diag(exp(g + i p)), a and p also where they are expressions: the decay, then what turns.
bool Multiplication::turn(const Term &call, const Term &inner, std::vector<Product> &out) {
  static constexpr StringRef valid = "valid: exp(g + i p), diag(exp(g + i p)), with decays before or behind it, and p "
                                     "any expression without i";
  if (call.name == "full")
    return fail(nameIn(inner, "i")->column, "a phase per element of the state; " + valid.str());
  const Term *problem = nullptr;
  std::optional<Complex> parts = polarOf(inner, problem);
  if (!parts)
    return fail(problem->column, "'" + textOf(*problem) + "' is no decay that turns; i stands in a sum of exp(..), " +
                                     "times what is real; " + valid.str());
  if (parts->real) {
    Term decay = call;
    if (&inner == &call)
      decay = *parts->real;
    else
      decay.args.front() = *parts->real;
    if (!factorOf(decay, out))
      return false;
  } else {
    out.push_back({false, {}, call.column});
  }
  std::vector<Product> phase;
  foldNumbers(*parts->imaginary);
  Term &imaginary = *parts->imaginary;
  if (imaginary.kind == Term::Kind::number) { // "1" is no input's name
    Definition number{.name = textOf(imaginary) + " (phase)", .term = imaginary, .place = "state"};
    if (!r.definition(number.name))
      r.inputs.push_back(number);
    imaginary = {.kind = Term::Kind::name, .name = number.name, .column = imaginary.column};
    describeInputs(r);
  }
  if (!name(imaginary, phase))
    return false;
  Factor factor = phase.front().factors.front();
  factor.kind = call.name == "diag" ? Factor::Kind::turns : Factor::Kind::turn;
  out.back().factors.push_back(std::move(factor));
  return true;
}

/// exp(g), diag(exp(g)) and full(exp(g)); I has no factor.
bool Multiplication::factorOf(const Term &call, std::vector<Product> &out) {
  const Term *inner = &call;
  Factor::Kind kind = call.name == "diag"   ? Factor::Kind::diag
                      : call.name == "full" ? Factor::Kind::full
                                            : Factor::Kind::exp;
  if (kind != Factor::Kind::exp && call.args.size() == 1 && call.options.empty())
    inner = &call.args.front();
  bool isExp =
      inner->kind == Term::Kind::call && inner->name == "exp" && inner->args.size() == 1 && inner->options.empty();
  if (r.hasImaginary() && mentions(*inner, "i") && (inner != &call || isExp))
    return turn(call, *inner, out);
  if (isExp && inner->args.front().kind == Term::Kind::name) {
    const Term &log = inner->args.front();
    out.push_back({false, {{kind, log.name, call.column}}, call.column});
    return known(log.name, log.column);
  }
  bool isDecay = kind != Factor::Kind::exp || call.name == "exp";
  if (isDecay && inner == &call && call.name != "exp")
    return fail(
        call.column,
        "a decay is exp(g), or diag(exp(g)) for one per key feature, or full(exp(g)) for one per element, or "
        "what it is in the place of exp(g), and exp(g + i p) or diag(exp(g + i p)) with a phase p; valid: that");
  if (!isDecay && !functionOf(call.name) && !mentions(*inner, carried))
    return fail(call.column, "'" + call.name + "(' is no function; valid: exp, diag, full, " + functionNames() +
                                 ", and a space before a parenthesis that multiplies");
  if (mentions(*inner, carried))
    return fail(call.column, "'" + call.name +
                                 "(' is no function of a state; valid: exp, diag, full, and a space before a "
                                 "parenthesis that multiplies");
  if (!name(*inner, out))
    return false;
  if (inner != &call)
    out.back().factors.front() = {kind, out.back().factors.front().name, call.column, {}, /*bare=*/true};
  return true;
}

/// What stands where a name of inputs belongs, also as an expression.
bool Multiplication::name(const Term &term, std::vector<Product> &out) {
  if (const Term *unit = term.kind == Term::Kind::name || !r.hasImaginary() ? nullptr : nameIn(term, "i"))
    return known("i", unit->column);
  std::string name = term.kind == Term::Kind::name ? term.name : inputOf(r, term, "state");
  out.push_back({false, {{Factor::Kind::name, name, term.column}}, term.column});
  return known(name, term.column);
}

/// Decays that stand as they are become exp of their logarithms, and a decay that does not multiply the state the name
/// of a number.
bool Multiplication::takeLogs(std::vector<Product> &products) {
  using Kind = Factor::Kind;
  auto has = [](const Product &p, Kind kind) {
    return llvm::any_of(p.factors, [&](const Factor &f) { return f.kind == kind; });
  };
  std::vector<std::string> scalars; // of all that multiplies M; what is a diagonal is a row elsewhere
  for (const Product &p : products)
    for (const Factor &f : p.factors) {
      bool isScalar = f.kind == Kind::name && has(p, Kind::state) && !has(p, Kind::transposed);
      if (isScalar)
        scalars.push_back(f.name);
      if ((isScalar || f.bare) && !takeLog(r, f.name))
        return fail(f.column, "'" + f.name +
                                  "' multiplies M, and its logarithm is not known; valid: exp(g) of a log decay g, "
                                  "or " +
                                  knownLogs.str());
    }
  auto countOf = [](const Product &p, StringRef log) {
    return llvm::count_if(p.factors, [&](const Factor &f) { return f.kind == Kind::exp && f.name == log; });
  };
  for (Product &p : products)
    for (Factor &f : p.factors) {
      bool isScalar = f.kind == Kind::name && has(p, Kind::state) && llvm::is_contained(scalars, f.name);
      if (isScalar || f.bare) {
        f.kind = f.bare ? f.kind : Kind::exp;
        f.name = takenLog(r, f.name)->name;
      } else {
        f.name = wholeOf(r, f.name);
        f.imaginary = wholeOf(r, f.imaginary);
      }
      r.stateColumns.try_emplace(f.name, f.column);
    }
  for (Product &p : products) {
    bool state = has(p, Kind::state);
    for (Factor &f : p.factors) {
      // Behind k^T M has decayed as it is carried; what is more is a rate.
      auto carries = [&](const Product &q) {
        return has(q, Kind::state) && !has(q, Kind::transposed) && countOf(q, f.name) >= countOf(p, f.name);
      };
      if (f.kind != Kind::exp || (state && (!has(p, Kind::transposed) || llvm::any_of(products, carries))))
        continue;
      f.kind = Kind::name;
      f.name = expOf(r, f.name);
      r.stateColumns.try_emplace(f.name, f.column);
    }
    if (!state && p.negative) {
      Term minus{.kind = Term::Kind::number, .number = -1, .column = p.column};
      p.negative = false;
      p.factors.insert(p.factors.begin(), {Kind::name, inputOf(r, minus, "state"), p.column});
      r.stateColumns.try_emplace(p.factors.front().name, p.column);
    }
  }
  return true;
}

bool Multiplication::known(const std::string &name, size_t column) {
  r.stateColumns.try_emplace(name, column);
  if (r.definition(name) || r.parameter(name))
    return true;
  if (name == "i")
    return fail(column, "i is the imaginary unit where no input is called so, and stands in exp(g + i p), diag(exp(g + "
                        "i p)) and (k + i l)^T; valid: it there, or an input \"i\"");
  if (name == "x")
    return fail(column,
                "x stands in inputs only, where it has all features of d_model; valid: a name in inputs such as "
                "y, of which inputs say \"y\": \"linear(x)\"");
  if (llvm::is_contained({"M", "M_prev", "M_0", "S", "z", "o"}, StringRef(name)))
    return fail(column, "'" + name + "' does not stand here; " +
                            (name == "M_prev" ? "on the right of its equation M is that of the token before already, "
                                                "M_prev is what the output reads; "
                                              : "") +
                            "valid: " + carried.str() + ", I, or a name in inputs or parameters");
  return fail(column,
              "'" + name + "' is not defined; valid: " + carried.str() + ", I, or a name in inputs or parameters");
}

/// A sum of what is no part of the state: (v - u) in k^T (v - u).
bool Multiplication::isRow(const Term &term) const {
  std::function<bool(const Term &)> holds = [&](const Term &t) {
    bool none = t.kind == Term::Kind::transpose ||
                (t.kind == Term::Kind::name && (t.name == carried || t.name == "I")) ||
                (t.kind == Term::Kind::call && (t.name == "diag" || t.name == "full"));
    return !none && llvm::all_of(t.args, holds);
  };
  return holds(term);
}

/// (a k) of r^T (a k): one row, but for numbers that are known to be one per head.
bool Multiplication::rowBehind(const Term &term, std::vector<Product> &out) {
  if (term.kind != Term::Kind::product || !isRow(term))
    return expand(term, out);
  Term row = term, factors = term;
  auto isNumber = [&](const Term &arg) { return arg.kind == Term::Kind::number || ownPer(r, arg) == Per::head; };
  llvm::erase_if(row.args, isNumber);
  if (row.args.size() < 2)
    return expand(term, out);
  llvm::erase_if(factors.args, [&](const Term &arg) { return !isNumber(arg); });
  factors.args.push_back({.kind = Term::Kind::name, .name = inputOf(r, row, "state"), .column = row.args[0].column});
  return expand(factors, out);
}

/// Every product of `left` times every one of `right`.
bool Multiplication::times(std::vector<Product> &left, const std::vector<Product> &right, size_t column) {
  if (left.size() * right.size() > maxProducts)
    return fail(column, formatv("has more than {0} products; valid: fewer", maxProducts).str());
  std::vector<Product> joined;
  for (const Product &a : left)
    for (const Product &b : right) {
      if (a.factors.size() + b.factors.size() > maxFactors)
        return fail(column, formatv("has a product of more than {0} factors; valid: fewer", maxFactors).str());
      joined.push_back({a.negative != b.negative, a.factors, a.factors.empty() ? b.column : a.column});
      llvm::append_range(joined.back().factors, b.factors);
    }
  left = std::move(joined);
  return true;
}

bool Multiplication::expand(const Term &term, std::vector<Product> &out) {
  switch (term.kind) {
  case Term::Kind::number: return term.number == 1 ? (out.push_back({false, {}, term.column}), true) : name(term, out);
  case Term::Kind::quotient: {
    Term product = term;
    product.kind = Term::Kind::product;
    for (Term &below : llvm::drop_begin(product.args)) {
      if (mentions(below, carried))
        return fail(below.column, "a division by the state; valid: what comes from x");
      Term one{.kind = Term::Kind::number, .number = 1, .column = below.column};
      below = {.kind = Term::Kind::quotient, .args = {std::move(one), std::move(below)}, .column = one.column};
      foldNumbers(below);
      if (below.kind != Term::Kind::number)
        below = {.kind = Term::Kind::name, .name = inputOf(r, below, "state"), .column = below.column};
      if (Definition *d = r.definition(below.name))
        d->per = Per::head; // nothing divides by a row
    }
    return expand(product, out);
  }
  case Term::Kind::name:
    if (term.name == "I") {
      out.push_back({false, {}, term.column});
      return true;
    }
    out.push_back({false,
                   {{term.name == carried ? Factor::Kind::state : Factor::Kind::name, term.name, term.column}},
                   term.column});
    return term.name == carried || known(term.name, term.column);
  case Term::Kind::transpose:
    if (term.name.empty()) { // of an expression
      if (mentions(term, carried))
        return fail(term.column, carried.str() + " before ^T: a state of this family is not transposed; valid: a row");
      if (!name(term.args.front(), out))
        return false;
      out.back().factors.front().kind = Factor::Kind::transposed;
      return true;
    }
    if (term.name == carried)
      return fail(term.column, carried.str() + "^T: a state of this family is not transposed; valid: " + carried.str());
    out.push_back({false,
                   {{Factor::Kind::transposed, term.name, term.column, term.args.empty() ? "" : term.args[0].name}},
                   term.column});
    return known(term.name, term.column) && (term.args.empty() || known(term.args[0].name, term.args[0].column));
  case Term::Kind::call: return factorOf(term, out);
  case Term::Kind::negate: {
    if (!expand(term.args.front(), out))
      return false;
    for (Product &p : out)
      p.negative = !p.negative;
    return true;
  }
  case Term::Kind::sum:
    if (isRow(term))
      return name(term, out);
    for (const Term &part : term.args) {
      std::vector<Product> products;
      if (!expand(part, products))
        return false;
      llvm::append_range(out, products);
      if (out.size() > maxProducts)
        return fail(term.column, formatv("has more than {0} products; valid: fewer", maxProducts).str());
    }
    return true;
  case Term::Kind::power: {
    if (isRow(term))
      return name(term, out);
    std::vector<Product> base, all = {{false, {}, term.column}};
    if (!expand(term.args.front(), base))
      return false;
    for (int i = 0; i < static_cast<int>(term.number); ++i)
      if (!times(all, base, term.column))
        return false;
    llvm::append_range(out, all);
    return true;
  }
  case Term::Kind::product: {
    std::vector<Product> all = {{false, {}, term.column}};
    bool behind = false; // k^T
    for (const Term &part : term.args) {
      std::vector<Product> right;
      if (!(behind ? rowBehind(part, right) : expand(part, right)))
        return false;
      behind |= part.kind == Term::Kind::transpose;
      if (!times(all, right, term.column))
        return false;
    }
    llvm::append_range(out, all);
    return true;
  }
  }
  llvm_unreachable("all kinds are above");
}

/// Of the names between k^T and what ends them (the state, a diagonal, the next k^T) one is a row, the last that is not
/// known to be one number per head; other names are numbers per head.
bool Multiplication::sort(const Product &product, Sorted &out) {
  out.negative = product.negative;
  out.column = product.column;
  std::string left;
  std::vector<std::string> names;
  bool open = false; ///< behind k^T
  auto endRow = [&] {
    std::string row = takeRow(r, names);
    llvm::append_range(out.numbers, std::exchange(names, {}));
    return row;
  };
  auto close = [&](size_t column) {
    std::string row = endRow();
    if (open && row.empty())
      return fail(column, "nothing stands behind " + left + "^T to multiply with; valid: k^T v, k^T k M");
    if (open)
      out.outers.push_back({left, row});
    else if (!row.empty())
      out.row = row;
    open = false;
    return true;
  };
  for (const Factor &f : product.factors) {
    using Kind = Factor::Kind;
    bool right = llvm::is_contained({Kind::name, Kind::exp, Kind::diag, Kind::turn}, f.kind);
    if (out.hasState && f.kind == Kind::turns)
      return fail(f.column, "a phase per key feature stands left of M; valid: diag(exp(g + i p)) M");
    if (out.hasState && !right)
      return fail(f.column, "what stands right of M mixes value features, which no class here does; valid: factors "
                            "left of M, or diag(exp(h)) for one decay per value feature");
    switch (f.kind) {
    case Factor::Kind::name:
      if (out.hasState) {
        out.numbers.push_back(f.name);
        break;
      }
      names.push_back(f.name);
      break;
    case Factor::Kind::exp: out.scalarDecays.push_back(f.name); break;
    case Factor::Kind::transposed:
      if (open && !close(f.column))
        return false;
      llvm::append_range(out.numbers, std::exchange(names, {}));
      left = f.name;
      open = true;
      if (!f.imaginary.empty() && (!out.imaginary.empty() || !out.outers.empty()))
        return fail(f.column, "a complex row that is no key; valid: (k + i l)^T v");
      out.imaginary = f.imaginary;
      break;
    case Factor::Kind::turns:
    case Factor::Kind::turn:
      if (f.kind == Factor::Kind::turns && open && !close(f.column))
        return false;
      if (!out.phase.empty())
        return fail(f.column, "a second phase in a product; valid: one, exp(i p + i u)");
      out.phase = f.name;
      out.phasePerHead = f.kind == Factor::Kind::turn;
      break;
    case Factor::Kind::diag:
    case Factor::Kind::full:
      if (open && !close(f.column))
        return false;
      if (out.outers.empty() && f.kind == Factor::Kind::diag && !out.hasState)
        out.leftDiagonals.push_back(f.name);
      (f.kind == Factor::Kind::full ? out.fulls : out.hasState ? out.valueDiagonals : out.diagonals).push_back(f.name);
      break;
    case Factor::Kind::state:
      if (open && !close(f.column))
        return false;
      if (!out.outers.empty()) // a^T b diag(f) 0.9 M: no row can stand there
        llvm::append_range(out.numbers, std::exchange(names, {}));
      out.row = endRow();
      out.hasState = true;
      break;
    }
  }
  if (!out.hasState && !close(product.column))
    return false;
  if (out.outers.empty())
    out.leftDiagonals.clear();
  for (auto *names :
       {&out.numbers, &out.scalarDecays, &out.diagonals, &out.fulls, &out.valueDiagonals, &out.leftDiagonals})
    llvm::sort(*names);
  return true;
}

bool Multiplication::run(const Term &term, std::vector<Sorted> &out) {
  std::vector<Product> products;
  if (!expand(term, products))
    return false;
  collectMultiples(r, products);
  if (!takeLogs(products))
    return false;
  for (Product &p : products) {
    // A normaliser sums keys: a state whose values are 1.
    bool writes = llvm::none_of(p.factors, [](const Factor &f) { return f.kind == Factor::Kind::state; });
    if (carried != "M" && writes)
      p.factors.push_back({Factor::Kind::name, r.value, p.column});
    if (!sort(p, out.emplace_back()))
      return false;
  }
  return true;
}

bool recurrence::sameProduct(const Sorted &a, const Sorted &b) {
  return a.valueDiagonals == b.valueDiagonals && a.phase == b.phase && a.phasePerHead == b.phasePerHead &&
         a.imaginary == b.imaginary && a.leftDiagonals == b.leftDiagonals && a.negative == b.negative &&
         a.hasState == b.hasState && a.numbers == b.numbers && a.scalarDecays == b.scalarDecays &&
         a.diagonals == b.diagonals && a.fulls == b.fulls && a.outers == b.outers && a.row == b.row;
}

std::string recurrence::takeRow(const Recurrence &r, std::vector<std::string> &names) {
  auto isPerHead = [&](const std::string &name) {
    const Parameter *p = r.parameter(name);
    const Definition *d = r.definition(name);
    return p ? p->per == Per::head
             : d && (d->own == Per::head || d->per == Per::head || d->term.kind == Term::Kind::number);
  };
  if (names.empty())
    return "";
  size_t row = names.size();
  while (row > 0 && isPerHead(names[row - 1]))
    --row;
  auto at = row > 0 ? names.begin() + static_cast<std::ptrdiff_t>(row - 1) : names.end() - 1;
  std::string taken = std::move(*at);
  names.erase(at);
  return taken;
}

size_t recurrence::decays(const Sorted &p) {
  return p.scalarDecays.size() + p.diagonals.size() + p.fulls.size() + p.valueDiagonals.size();
}

bool recurrence::multiplyOut(Recurrence &r, const Term &right, StringRef carried, std::vector<Sorted> &out,
                             ErrorFn error) {
  return Multiplication(r, carried, error).run(right, out);
}
