//===- RecurrenceClass.cpp - the transition class of an equation --------------------------------------------------===//
// An equation becomes a sum of products without parentheses; each is numbers per head, operators and the state or what
// is written (lsm-family.md 2.1). The sum is then compared with the form of each class.
#include "dialects/braid/BraidDialect.h"
#include "frontend/ModelSpec.h"
#include "frontend/RecurrenceFunctions.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FormatVariadic.h"
#include <functional>

using namespace braid;
using namespace braid::recurrence;
using llvm::formatv;
using llvm::StringRef;

static constexpr size_t maxProducts = 64;

static constexpr llvm::StringLiteral classForms =
    "M + k^T v; exp(g) M + k^T v; diag(exp(g)) M + k^T v; diag(exp(g)) M diag(exp(h)) + k^T v; full(exp(g)) M + k^T v; "
    "M - beta k^T k M + beta k^T v; (I - beta k^T k) exp(g) M + beta k^T v; "
    "(I - beta k^T k) diag(exp(g)) M + beta k^T v; (diag(exp(g)) + b^T a) M + k^T v";

namespace {

/// One factor of a product.
struct Factor {
  enum class Kind { name, transposed, exp, diag, full, state } kind;
  std::string name; ///< exp, diag, full: of the log decay
  size_t column;
  std::string phase{}; ///< diag(exp(name + i phase)), (name + i phase)^T
  bool bare = false; ///< diag(name), full(name): of the decay itself
};

/// A product without parentheses, in the order of the text.
struct Product {
  bool negative = false;
  std::vector<Factor> factors;
  size_t column = 0;
};

/// a^T b: a number for each pair of features.
struct Outer {
  std::string left, right;
  bool operator==(const Outer &) const = default;
};

/// A product sorted: what multiplies, in which order it acts on the state, what is written.
struct Sorted {
  bool negative = false, hasState = false;
  std::vector<std::string> numbers; ///< per head, sorted
  std::vector<std::string> scalarDecays, diagonals, fulls; ///< names in exp(..), diag(exp(..)), full(exp(..))
  std::vector<std::string> valueDiagonals; ///< in diag(exp(..)) right of M
  std::string phase, imaginary; ///< of a diagonal, of what is written
  std::vector<Outer> outers;
  std::optional<Factor>
      leftOfOuter; ///< a diagonal or full decay that acts behind k^T k, with which it does not commute
  std::string row; ///< of an output: the row before M, or the row itself
  size_t column = 0;
};

size_t decays(const Sorted &p) {
  return p.scalarDecays.size() + p.diagonals.size() + p.fulls.size() + p.valueDiagonals.size();
}

class Analysis {
public:
  Analysis(Recurrence &r, ErrorFn error) : r(r), errorFn(error) {}
  bool run();

private:
  bool expand(const Term &term, std::vector<Product> &out);
  bool factorOf(const Term &call, std::vector<Product> &out);
  bool name(const Term &term, std::vector<Product> &out);
  bool isRow(const Term &term) const;
  std::string joined(const std::vector<std::string> &logs, size_t column);
  bool takeLogs(std::vector<Product> &products);
  bool sort(const Product &product, Sorted &out);
  bool stateEquation(const std::vector<Sorted> &products);
  bool transition(const std::vector<const Sorted *> &kept, const Sorted &write);
  bool decayOf(const Sorted &plain);
  bool lowRank(const Sorted &added, const Sorted &write);
  bool deltaRule(const Sorted &plain, const Sorted &erased, const Sorted &write);
  std::string rate(const Sorted &product);
  bool normaliser(const Term &term, const std::vector<Sorted> &state);
  bool sorted(const Term &term, std::vector<Sorted> &out);
  bool fail(size_t column, StringRef message) {
    errorFn(key, formatv("column {0}: {1}", column, message).str());
    return false;
  }
  /// "one decay per head and token", "one decay per head and key feature, the same for all tokens"
  std::string oneDecay(StringRef name, StringRef feature = "") const {
    std::string head = "one decay per head", more = (" and " + feature).str();
    if (r.isConstant(name))
      return head + (feature.empty() ? "" : more) + ", the same for all tokens";
    return head + (feature.empty() ? "" : (", " + feature).str()) + " and token";
  }
  bool known(const std::string &name, size_t column);

  Recurrence &r;
  ErrorFn errorFn;
  StringRef key; ///< of the equation at hand
  StringRef carried = "M"; ///< what the equation at hand is of
};

} // namespace

//===- Products ---------------------------------------------------------------------------------------------------===//

/// g and p of g + i p.
static std::optional<std::pair<const Term *, const Term *>> turnedDecay(const Term &term) {
  if (term.kind != Term::Kind::sum || term.args.size() != 2)
    return std::nullopt;
  const Term &decay = term.args[0], &turn = term.args[1];
  bool valid = decay.kind == Term::Kind::name && turn.kind == Term::Kind::product && turn.args.size() == 2 &&
               turn.args[0].kind == Term::Kind::name && turn.args[0].name == "i" &&
               turn.args[1].kind == Term::Kind::name;
  return valid ? std::optional(std::pair(&decay, &turn.args[1])) : std::nullopt;
}

/// exp(g), diag(exp(g)) and full(exp(g)); I has no factor.
bool Analysis::factorOf(const Term &call, std::vector<Product> &out) {
  const Term *inner = &call;
  Factor::Kind kind = call.name == "diag"   ? Factor::Kind::diag
                      : call.name == "full" ? Factor::Kind::full
                                            : Factor::Kind::exp;
  if (kind != Factor::Kind::exp && call.args.size() == 1 && call.options.empty())
    inner = &call.args.front();
  bool isExp =
      inner->kind == Term::Kind::call && inner->name == "exp" && inner->args.size() == 1 && inner->options.empty();
  if (isExp && kind == Factor::Kind::diag)
    if (auto turned = turnedDecay(inner->args.front())) {
      auto [decay, phase] = *turned;
      out.push_back({false, {{kind, decay->name, call.column, phase->name}}, call.column});
      return known(decay->name, decay->column) && known(phase->name, phase->column);
    }
  if (isExp && inner->args.front().kind == Term::Kind::name) {
    const Term &log = inner->args.front();
    out.push_back({false, {{kind, log.name, call.column}}, call.column});
    return known(log.name, log.column);
  }
  bool isDecay = kind != Factor::Kind::exp || call.name == "exp";
  if ((isDecay && inner == &call && call.name != "exp") || mentions(*inner, "i"))
    return fail(call.column,
                "a decay is exp(g), or diag(exp(g)) for one per key feature, or full(exp(g)) for one per element, or "
                "what it is in the place of exp(g), and diag(exp(g + i p)) with a phase p, a minus of which stands in "
                "inputs; valid: that");
  if (mentions(*inner, carried) || (!isDecay && !functionOf(call.name)))
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
bool Analysis::name(const Term &term, std::vector<Product> &out) {
  std::string name = term.kind == Term::Kind::name ? term.name : inputOf(r, term, key);
  out.push_back({false, {{Factor::Kind::name, name, term.column}}, term.column});
  return known(name, term.column);
}

/// Decays that stand as they are become exp of their logarithms, and a decay that does not multiply the state the name
/// of a number.
bool Analysis::takeLogs(std::vector<Product> &products) {
  using Kind = Factor::Kind;
  auto has = [](const Product &p, Kind kind) {
    return llvm::any_of(p.factors, [&](const Factor &f) { return f.kind == kind; });
  };
  for (const Product &p : products)
    for (const Factor &f : p.factors)
      if (f.bare || (f.kind == Kind::name && has(p, Kind::state) && !has(p, Kind::transposed)))
        if (!takeLog(r, f.name))
          return fail(f.column, "'" + f.name +
                                    "' multiplies M, and its logarithm is not known; valid: exp(g) of a log "
                                    "decay g, or an input that is " +
                                    knownLogs.str());
  auto countOf = [](const Product &p, StringRef log) {
    return llvm::count_if(p.factors, [&](const Factor &f) { return f.kind == Kind::exp && f.name == log; });
  };
  for (Product &p : products)
    for (Factor &f : p.factors) {
      const Definition *log = f.kind == Kind::name || f.bare ? takenLog(r, f.name) : nullptr;
      if (log && (f.bare || has(p, Kind::state))) {
        f.kind = f.bare ? f.kind : Kind::exp;
        f.name = log->name;
      } else {
        f.name = wholeOf(r, f.name);
        f.phase = wholeOf(r, f.phase);
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
      p.factors.insert(p.factors.begin(), {Kind::name, inputOf(r, minus, key), p.column});
      r.stateColumns.try_emplace(p.factors.front().name, p.column);
    }
  }
  return true;
}

bool Analysis::known(const std::string &name, size_t column) {
  r.stateColumns.try_emplace(name, column);
  if (r.definition(name) || r.parameter(name))
    return true;
  if (name == "x")
    return fail(column,
                "x stands in inputs only, where it has all features of d_model; valid: a name in inputs such as "
                "y, of which inputs say \"y\": \"linear(x)\"");
  return fail(column,
              "'" + name + "' is not defined; valid: " + carried.str() + ", I, or a name in inputs or parameters");
}

/// A sum of what is no part of the state: (v - u) in k^T (v - u).
bool Analysis::isRow(const Term &term) const {
  std::function<bool(const Term &)> holds = [&](const Term &t) {
    bool none = t.kind == Term::Kind::transpose ||
                (t.kind == Term::Kind::name && (t.name == carried || t.name == "I")) ||
                (t.kind == Term::Kind::call && (t.name == "diag" || t.name == "full"));
    return !none && llvm::all_of(t.args, holds);
  };
  return holds(term);
}

bool Analysis::expand(const Term &term, std::vector<Product> &out) {
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
        below = {.kind = Term::Kind::name, .name = inputOf(r, below, key), .column = below.column};
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
  case Term::Kind::product: {
    std::vector<Product> all = {{false, {}, term.column}};
    for (const Term &part : term.args) {
      std::vector<Product> right, joined;
      if (!expand(part, right))
        return false;
      if (all.size() * right.size() > maxProducts)
        return fail(term.column, formatv("has more than {0} products; valid: fewer", maxProducts).str());
      for (const Product &a : all)
        for (const Product &b : right) {
          joined.push_back({a.negative != b.negative, a.factors, a.factors.empty() ? b.column : a.column});
          llvm::append_range(joined.back().factors, b.factors);
        }
      all = std::move(joined);
    }
    llvm::append_range(out, all);
    return true;
  }
  }
  llvm_unreachable("all kinds are above");
}

/// Of the names between k^T and what ends them (the state, a diagonal, the next k^T) one is a row, the last that is not
/// known to be one number per head; other names are numbers per head.
bool Analysis::sort(const Product &product, Sorted &out) {
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
    bool right = f.kind == Factor::Kind::name || f.kind == Factor::Kind::exp || f.kind == Factor::Kind::diag;
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
      if (!f.phase.empty() && (!out.imaginary.empty() || !out.outers.empty()))
        return fail(f.column, "a complex row that is no key; valid: (k + i l)^T v");
      out.imaginary = f.phase;
      break;
    case Factor::Kind::diag:
    case Factor::Kind::full:
      if (open && !close(f.column))
        return false;
      if (out.outers.empty() && !out.leftOfOuter)
        out.leftOfOuter = f;
      (f.kind == Factor::Kind::full ? out.fulls : out.hasState ? out.valueDiagonals : out.diagonals).push_back(f.name);
      if (!f.phase.empty() && (out.hasState || !out.phase.empty()))
        return fail(f.column, "a phase stands left of M, once; valid: diag(exp(g + i p)) M");
      out.phase = f.phase.empty() ? out.phase : f.phase;
      break;
    case Factor::Kind::state:
      if (open && !close(f.column))
        return false;
      out.row = endRow();
      out.hasState = true;
      break;
    }
  }
  if (!out.hasState && !close(product.column))
    return false;
  if (out.outers.empty())
    out.leftOfOuter.reset();
  for (auto *names : {&out.numbers, &out.scalarDecays, &out.diagonals, &out.fulls, &out.valueDiagonals})
    llvm::sort(*names);
  return true;
}

bool Analysis::sorted(const Term &term, std::vector<Sorted> &out) {
  std::vector<Product> products;
  if (!expand(term, products))
    return false;
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

static bool sameProduct(const Sorted &a, const Sorted &b) {
  auto behind = [](const Sorted &p) { return p.leftOfOuter ? p.leftOfOuter->name : std::string(); };
  return a.valueDiagonals == b.valueDiagonals && a.phase == b.phase && a.imaginary == b.imaginary &&
         behind(a) == behind(b) && a.negative == b.negative && a.hasState == b.hasState && a.numbers == b.numbers &&
         a.scalarDecays == b.scalarDecays && a.diagonals == b.diagonals && a.fulls == b.fulls && a.outers == b.outers &&
         a.row == b.row;
}

//===- Classes ----------------------------------------------------------------------------------------------------===//

bool Analysis::stateEquation(const std::vector<Sorted> &products) {
  std::vector<const Sorted *> kept;
  const Sorted *write = nullptr;
  for (const Sorted &p : products) {
    if (p.hasState) {
      if (!p.imaginary.empty())
        return fail(p.column, "a complex row before M; valid: (k + i l)^T v");
      kept.push_back(&p);
      continue;
    }
    if (write)
      return fail(p.column,
                  "a second product without M: a state of this family writes one k^T v; valid: one such product");
    if (p.outers.size() != 1 || !p.row.empty())
      return fail(p.column, "what is written is k^T v, times numbers per head; valid: + b k^T v");
    if (decays(p))
      return fail(p.column,
                  formatv("decays per feature of {0}^T {1}; valid: + {0}^T {1}, with them as factors of {0} or "
                          "{1} in inputs",
                          p.outers.front().left, p.outers.front().right)
                      .str());
    write = &p;
  }
  if (!write)
    return fail(1, "nothing is written; valid: + k^T v");
  r.key = write->outers.front().left;
  r.value = write->outers.front().right;
  r.keyImaginary = write->imaginary;
  if (!transition(kept, *write))
    return false;
  return r.keyImaginary.empty() || !r.phase.empty() ||
         fail(write->column,
              "a complex key on a state that does not turn; valid: diag(exp(g + i p)) M + (k + i l)^T v");
}

bool Analysis::transition(const std::vector<const Sorted *> &kept, const Sorted &write) {
  const Sorted *plain = nullptr, *erased = nullptr;
  for (const Sorted *p : kept) {
    if (!p->outers.empty()) {
      if (erased)
        return fail(p->column, "a second product of k^T k and M; valid: " + classForms.str());
      erased = p;
    } else {
      if (plain)
        return fail(p->column, "a second multiple of M; valid: one, such as a M with \"a\": \"1 - sigmoid(..)\" in "
                               "inputs, of " +
                                   classForms.str());
      plain = p;
    }
  }
  if (!plain)
    return fail(1, "no product carries the state; valid: " + classForms.str());
  if (plain->negative)
    return fail(plain->column, "the state changes its sign; valid: a product with + that carries M");
  if (!decayOf(*plain))
    return false;
  r.phase = plain->phase;
  if (!r.phase.empty()) {
    if (erased || !r.valueDecay.empty())
      return fail(plain->column, "a decay with a phase goes with k^T v alone; valid: diag(exp(g + i p)) M + k^T v");
    r.reason += ", which turns by " + r.phase + "; o is the real part, two states of turned keys";
  }
  if (erased)
    return erased->negative ? deltaRule(*plain, *erased, write) : lowRank(*erased, write);
  r.writeFactors = write.numbers;
  return true;
}

/// Several decays of one kind decay by the sum of their logarithms.
std::string Analysis::joined(const std::vector<std::string> &logs, size_t column) {
  if (logs.size() == 1)
    return logs.front();
  Definition sum{.name = llvm::join(logs, " "), .term = {.kind = Term::Kind::sum, .column = column}, .place = "state"};
  for (const std::string &log : logs)
    sum.term.args.push_back({.kind = Term::Kind::name, .name = log, .column = column});
  sum.decay = llvm::join(llvm::map_range(logs, [&](const std::string &log) { return r.decayText(log); }), " ");
  r.stateColumns.try_emplace(sum.name, column);
  r.inputs.push_back(std::move(sum));
  describeInputs(r);
  return r.inputs.back().name;
}

/// Class and log decays of a product that only decays.
bool Analysis::decayOf(const Sorted &plain) {
  bool scalar = !plain.scalarDecays.empty(), full = !plain.fulls.empty(), count = scalar || full;
  count |= !plain.diagonals.empty();
  if (scalar + full + !plain.diagonals.empty() > 1)
    return fail(plain.column, "decays of two kinds; valid: one, which has as many numbers as the larger one");
  if (count)
    r.logDecay = joined(scalar ? plain.scalarDecays : full ? plain.fulls : plain.diagonals, plain.column);
  if (!plain.valueDiagonals.empty()) {
    r.valueDecay = joined(plain.valueDiagonals, plain.column);
    if (full)
      return fail(plain.column, "two decays of value features; valid: one, full(exp(g)) with all of it in g");
    r.decaysPerHead = plain.diagonals.empty();
    r.classId = LsmClass::R;
    r.reason = oneDecay(r.valueDecay, "value feature") + ": diag(" + r.decayText(r.valueDecay) + ") right of M";
    if (count)
      r.reason +=
          "; " + oneDecay(r.logDecay, scalar ? "" : "key feature") + ": " + r.decayText(r.logDecay) + " left of it";
  } else if (!count) {
    r.classId = LsmClass::I;
    r.reason = "the state is carried as it is";
  } else if (full) {
    r.classId = LsmClass::E;
    r.elementwise = true;
    r.reason = "one decay for every element of the state" +
               std::string(r.isConstant(r.logDecay) ? ", the same for all tokens" : " and token") + ": full(" +
               r.decayText(r.logDecay) +
               "). There is no matrix form: every token costs head_dim times value_dim exponentials, one token after "
               "the other inside a chunk";
  } else if (scalar) {
    const Parameter *parameter = r.parameter(r.logDecay);
    r.classId = parameter && !parameter->trained ? LsmClass::S0 : LsmClass::S;
    r.reason = oneDecay(r.logDecay) + ": " + r.decayText(r.logDecay);
  } else {
    r.classId = LsmClass::V;
    r.reason = oneDecay(r.logDecay, "key feature") + ": diag(" + r.decayText(r.logDecay) + ")";
  }
  return true;
}

/// (diag(exp(g)) + b^T a) M + k^T v
bool Analysis::lowRank(const Sorted &added, const Sorted &write) {
  if (added.outers.size() != 1 || !added.row.empty() || decays(added) || !added.numbers.empty())
    return fail(added.column, "what is added to M is b^T a M of M as it was, all factors in b and a; valid: + b^T a M");
  if (r.classId == LsmClass::R || r.classId == LsmClass::E)
    return fail(added.column, "b^T a M is added to a state with a decay per value feature; valid: (diag(exp(g)) + b^T "
                              "a) M + k^T v");
  r.decaysPerHead = r.classId != LsmClass::V;
  r.lowRankB = added.outers.front().left;
  r.lowRankA = added.outers.front().right;
  r.reason += (r.classId == LsmClass::I ? ", plus " : "; plus ") + r.lowRankB + "^T " + r.lowRankA;
  r.reason += ", which nothing keeps from growing the state";
  r.classId = LsmClass::D;
  r.writeFactors = write.numbers;
  return true;
}

static std::string ratesOf(const Sorted &p) {
  return p.numbers.empty() ? "no number" : "[" + llvm::join(p.numbers, " ") + "]";
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

/// The numbers that multiply a product as one name: "1" of none, an input of its own of several.
std::string Analysis::rate(const Sorted &product) {
  if (product.numbers.size() < 2)
    return product.numbers.empty() ? "1" : product.numbers.front();
  Definition all{.name = llvm::join(product.numbers, " "), .term = {}, .place = "state"};
  all.term = {.kind = Term::Kind::product, .column = product.column};
  for (const std::string &number : product.numbers)
    all.term.args.push_back({.kind = Term::Kind::name, .name = number, .column = r.stateColumns.at(number)});
  r.stateColumns[all.name] = product.column;
  r.inputs.push_back(std::move(all));
  describeInputs(r);
  return r.inputs.back().name;
}

/// (I - beta k^T k) exp(g) M + beta k^T v, or with diag(exp(g)).
bool Analysis::deltaRule(const Sorted &plain, const Sorted &erased, const Sorted &write) {
  Outer erase = erased.outers.front();
  if (erased.outers.size() != 1 || !erased.row.empty())
    return fail(erased.column, "valid: - beta k^T k M, or - beta k^T k exp(g) M where M is carried by exp(g)");
  if (erase.left != erase.right && !decays(erased)) {
    std::string carried = r.classId == LsmClass::V ? "diag(" + r.decayText(r.logDecay) + ")" : "diag(exp(g))";
    return fail(erased.column,
                formatv("subtracts {0}^T {1} M; the delta rule erases with the key on both sides, and class D adds; "
                        "valid: {2}^T {2}, or ({3} + {0}^T {1}) M + {2}^T {4} with the minus in inputs.{0}",
                        erase.left, erase.right, r.key, carried, r.value)
                    .str());
  }
  if (r.classId == LsmClass::R || r.classId == LsmClass::E)
    return fail(erased.column, "the delta rule on a state with a decay per value feature is no class; valid: exp(g) or "
                               "diag(exp(g)) left of M");
  if (const std::optional<Factor> &decay = erased.leftOfOuter)
    return fail(decay->column, formatv("diag({0}) stands left of {1}^T {2}, which it does not commute with; "
                                       "valid: {1}^T {2} diag({0}) M, which erases what is left after the decay",
                                       r.decayText(decay->name), erase.left, erase.right)
                                   .str());
  if (erased.scalarDecays != plain.scalarDecays || erased.diagonals != plain.diagonals ||
      decays(erased) != decays(plain)) {
    auto carried = [&](const Sorted &p) {
      return p.scalarDecays.empty() && p.diagonals.empty() ? std::string("M")
             : p.diagonals.empty()                         ? r.decayText(p.scalarDecays.front()) + " M"
                                                           : "diag(" + r.decayText(p.diagonals.front()) + ") M";
    };
    return fail(erased.column, formatv("erases from {0}, but M is carried as {1}; valid: the same decay in both",
                                       carried(erased), carried(plain))
                                   .str());
  }
  if (erased.phase != plain.phase || !erased.imaginary.empty())
    return fail(erased.column, "erases from a state that turns otherwise than M is carried; valid: the same decay in "
                               "both, without a phase");
  if (erase.left != erase.right || erase.left != r.key)
    return fail(erased.column, formatv("erases {0}^T {1}, but {2}^T {3} is written; valid: {2}^T {2}", erase.left,
                                       erase.right, r.key, r.value)
                                   .str());
  if (erased.numbers != write.numbers)
    return fail(erased.column, formatv("erases with {0}, but writes with {1}; valid: the same numbers per head in both",
                                       ratesOf(erased), ratesOf(write))
                                   .str());
  r.beta = rate(erased);
  bool diagonal = r.classId == LsmClass::V, still = r.classId == LsmClass::I;
  std::string on = still ? "" : ", on a state with " + r.reason;
  r.classId = diagonal ? LsmClass::VH : still ? LsmClass::H : LsmClass::GH;
  r.reason =
      "the delta rule, " + (r.beta == "1" ? "" : r.beta + " ") + r.key + "^T (" + r.value + " - " + r.key + " M)" + on;
  return true;
}

/// z = the equation of M with k^T in the place of k^T v: M with one more value, which is 1.
bool Analysis::normaliser(const Term &term, const std::vector<Sorted> &state) {
  std::vector<Sorted> own;
  carried = "z";
  bool valid = sorted(term, own);
  carried = "M";
  if (!valid)
    return false;
  if (!r.valueDecay.empty() || r.elementwise || !r.phase.empty() || !r.keyImaginary.empty())
    return fail(term.column, "a normaliser of a state whose value features decay or turn on their own; valid: decays "
                             "exp(g) and diag(exp(g)) left of M");
  // One to one: z + z is not M + k^T v with other names.
  std::vector<bool> taken(state.size());
  for (const Sorted &p : own) {
    size_t i = 0;
    while (i < state.size() && (taken[i] || !sameProduct(p, state[i])))
      ++i;
    if (i == state.size())
      return fail(p.column, "M has no such product, or not as often; valid: the equation of M, with z for M and " +
                                r.key + "^T for " + r.key + "^T " + r.value);
    taken[i] = true;
  }
  if (own.size() != state.size())
    return fail(term.column,
                formatv("has {0} products, but M has {1}; valid: the same ones", own.size(), state.size()).str());
  r.normalised = true;
  return true;
}

bool Analysis::run() {
  std::optional<std::vector<Statement>> statements = parseStatements(r.state, "state", errorFn);
  key = "state";
  if (!statements)
    return false;
  static constexpr StringRef valid = "valid: an equation \"M = ..\", with z = .. (what q M is divided by), or with S = "
                                     ".. (momentum) and M_0 = .. of gradient steps";
  const Term *normal = nullptr, *state = nullptr;
  std::vector<StringRef> seen;
  bool steps = false;
  for (const Statement &s : *statements) {
    if (!llvm::is_contained({"M", "z", "S", "M_0"}, StringRef(s.left)))
      return fail(s.column, "'" + shownText(s.left, 8) + "' is no state; " + valid.str());
    if (llvm::is_contained(seen, s.left))
      return fail(s.column, "a second equation of " + s.left + "; valid: one");
    seen.push_back(s.left);
    steps |= s.left == "S" || s.left == "M_0" || recurrence::calls(s.right, "grad");
    (s.left == "M" ? state : normal) = &s.right;
  }
  if (!state)
    return fail(1, valid);
  if (steps) {
    if (failed(analyzeInner(r, *statements, errorFn)))
      return false;
  } else {
    std::vector<Sorted> products;
    if (!sorted(*state, products) || !stateEquation(products) || (normal && !normaliser(*normal, products)))
      return false;
  }
  return succeeded(analyzeOutput(r, errorFn));
}

//===- Recurrence -------------------------------------------------------------------------------------------------===//

template <typename List> static auto *find(List &list, StringRef name) {
  auto it = llvm::find_if(list, [&](auto &d) {
    if constexpr (requires { d.first; })
      return d.first == name;
    else
      return d.name == name;
  });
  return it == list.end() ? nullptr : &*it;
}
Definition *Recurrence::definition(StringRef name) { return find(inputs, name); }
const Definition *Recurrence::definition(StringRef name) const { return find(inputs, name); }
Parameter *Recurrence::parameter(StringRef name) {
  auto *entry = find(parameters, name);
  return entry ? &entry->second : nullptr;
}
const Parameter *Recurrence::parameter(StringRef name) const {
  auto *entry = find(parameters, name);
  return entry ? &entry->second : nullptr;
}

bool Recurrence::isConstant(StringRef name) const {
  return parameter(name) || (definition(name) && definition(name)->constant);
}

std::string Recurrence::className() const {
  if (!inner)
    return stringifyLsmClass(classId).str();
  return !normWeight.empty() ? "N" : momentum.empty() && placeRate.empty() ? "G1" : "GM";
}

bool recurrence::calls(const Term &term, StringRef function) {
  return (term.kind == Term::Kind::call && term.name == function) ||
         llvm::any_of(term.args, [&](const Term &arg) { return calls(arg, function); });
}
bool recurrence::mentions(const Term &term, StringRef name) {
  return (term.kind == Term::Kind::name && term.name == name) ||
         llvm::any_of(term.args, [&](const Term &arg) { return mentions(arg, name); });
}
bool Recurrence::calls(StringRef function) const {
  return llvm::any_of(inputs, [&](const Definition &d) { return recurrence::calls(d.term, function); });
}

int64_t Recurrence::rows(int64_t headDim) const {
  int64_t pairs = headDim * (headDim + 1) / 2;
  return rowFunction.empty()       ? headDim
         : rowFunction == "square" ? pairs
         : rowFunction == "taylor" ? 1 + headDim + pairs
                                   : headDim + 1;
}

llvm::LogicalResult recurrence::analyze(Recurrence &recurrence, const Sizes &sizes, ErrorFn error) {
  describeInputs(recurrence);
  if (!Analysis(recurrence, error).run())
    return llvm::failure();
  return inferShapes(recurrence, sizes, error);
}
