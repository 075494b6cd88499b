//===- RecurrenceClass.cpp - the transition class of an equation --------------------------------------------------===//
// The sum of products that an equation is (RecurrenceProducts.h) is compared with the form of each class.
#include "dialects/braid/BraidDialect.h"
#include "frontend/ModelSpec.h"
#include "frontend/RecurrenceFunctions.h"
#include "frontend/RecurrenceNotation.h"
#include "frontend/RecurrenceProducts.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FormatVariadic.h"
#include <functional>

using namespace braid;
using namespace braid::recurrence;
using llvm::formatv;
using llvm::StringRef;

static constexpr llvm::StringLiteral classForms =
    "M + k^T v; exp(g) M + k^T v; diag(exp(g)) M + k^T v; diag(exp(g)) M diag(exp(h)) + k^T v; full(exp(g)) M + k^T v; "
    "M - beta k^T k M + beta k^T v; (I - beta k^T k) exp(g) M + beta k^T v; "
    "(I - beta k^T k) diag(exp(g)) M + beta k^T v; (diag(exp(g)) + b^T a) M + k^T v";

namespace {

class Analysis {
public:
  Analysis(Recurrence &r, ErrorFn error) : r(r), errorFn(error) {}
  bool run();

private:
  std::string joined(const std::vector<std::string> &logs, size_t column);
  bool updates(std::vector<Term> states, std::vector<Sorted> &products);
  bool stateEquation(const std::vector<Sorted> &products, bool mayWriteNothing);
  bool isOneOfSeveral(size_t column);
  bool oneWrite(std::vector<Sorted> &writes);
  bool transition(const std::vector<const Sorted *> &kept, const Sorted &write);
  bool decayOf(const Sorted &plain);
  bool turns(const Sorted &plain);
  bool lowRank(const Sorted &added, const Sorted &write);
  std::pair<std::vector<std::string>, std::vector<std::string>> diagonalsAround(const Sorted &product);
  std::string multiplied(const std::vector<std::string> &names, bool negative, size_t column);
  std::string whyNoDelta(const Sorted &plain, const Sorted &erased, const Sorted &write) const;
  bool deltaRule(const Sorted &plain, const Sorted &erased, const Sorted &write);
  std::string rate(const Sorted &product);
  bool normaliser(const Term &term, const std::vector<Sorted> &state);
  bool fail(size_t column, StringRef message) {
    errorFn("state", formatv("column {0}: {1}", column, message).str());
    return false;
  }
  /// "one decay per head and token", "one decay per head and key feature, the same for all tokens"
  std::string oneDecay(StringRef name, StringRef feature = "") const {
    std::string head = "one decay per head", more = (" and " + feature).str();
    if (r.isConstant(name))
      return head + (feature.empty() ? "" : more) + ", the same for all tokens";
    return head + (feature.empty() ? "" : (", " + feature).str()) + " and token";
  }

  Recurrence &r;
  ErrorFn errorFn;
  std::function<void(StringRef, const std::string &)> noted; ///< says how another notation was read
};

} // namespace

//===- Classes ----------------------------------------------------------------------------------------------------===//

bool Analysis::stateEquation(const std::vector<Sorted> &products, bool mayWriteNothing) {
  std::vector<const Sorted *> kept;
  std::vector<Sorted> writes;
  for (const Sorted &p : products) {
    if (p.hasState) {
      if (!p.imaginary.empty())
        return fail(p.column, "a complex row before M; valid: (k + i l)^T v");
      kept.push_back(&p);
      continue;
    }
    if (p.outers.size() != 1 || !p.row.empty())
      return fail(p.column, "what is written is k^T v, times numbers per head; valid: + b k^T v");
    if (!p.fulls.empty())
      return fail(p.column, formatv("decays per element of {0}^T {1}; valid: + {0}^T {1}, with decays per feature",
                                    p.outers.front().left, p.outers.front().right)
                                .str());
    if (!p.phase.empty())
      return fail(p.column, "what is written turns; valid: a phase with what carries M alone, diag(exp(g + i p)) M");
    // diag(a) k^T v diag(b) writes (a k)^T v b.
    auto [left, right] = diagonalsAround(p);
    left.insert(left.begin(), p.outers.front().left);
    right.insert(right.begin(), p.outers.front().right);
    writes.push_back(p);
    writes.back().outers = {{multiplied(left, false, p.column), multiplied(right, false, p.column)}};
  }
  if (writes.empty() && mayWriteNothing && kept.size() == 2) { // (I - beta k^T k) M writes beta k^T times 0
    const Sorted &erased = *kept[kept[0]->outers.empty()];
    writes.push_back(erased);
    writes.back().outers.resize(1);
    writes.back().outers.front().right.clear();
  }
  if (writes.empty())
    return fail(1, "nothing is written; valid: + k^T v");
  if (!oneWrite(writes))
    return false;
  const Sorted *write = writes.data();
  r.key = write->outers.front().left;
  r.value = write->outers.front().right;
  r.keyImaginary = write->imaginary;
  if (!transition(kept, *write))
    return false;
  return r.keyImaginary.empty() || !r.phase.empty() ||
         fail(write->column,
              "a complex key on a state that does not turn; valid: diag(exp(g + i p)) M + (k + i l)^T v");
}

/// b k^T v + c k^T u is k^T (b v + c u); the first becomes all of them.
bool Analysis::oneWrite(std::vector<Sorted> &writes) {
  Sorted &all = writes.front();
  if (writes.size() == 1)
    return true;
  auto differs = [&](auto part) {
    return llvm::find_if(writes, [&](const Sorted &p) { return part(p) != part(all); });
  };
  auto otherKey = differs([](const Sorted &p) { return p.outers.front().left; });
  auto otherValue = differs([](const Sorted &p) { return p.outers.front().right; });
  auto complex = llvm::find_if(writes, [](const Sorted &p) { return !p.imaginary.empty(); });
  if ((otherKey != writes.end() && otherValue != writes.end()) || complex != writes.end()) {
    const Sorted &other = complex != writes.end() ? writes[1] : *otherKey;
    return fail(
        other.column,
        formatv("writes {0}^T {1} beside {2}^T {3}: a state of this family takes in one row times "
                "one row; valid: products with one key, or one value; or two updates, M = ..; M = M + {0}^T {1}",
                other.outers.front().left, other.outers.front().right, all.outers.front().left,
                all.outers.front().right)
            .str());
  }
  bool sameNumbers = differs([](const Sorted &p) { return p.numbers; }) == writes.end();
  Term sum{.kind = Term::Kind::sum, .column = all.column};
  for (const Sorted &p : writes) {
    std::vector<std::string> names = sameNumbers ? std::vector<std::string>() : p.numbers;
    auto minus = llvm::find(names, "-1");
    bool negative = minus != names.end();
    if (negative)
      names.erase(minus);
    llvm::append_range(r.rowFactors, names);
    names.push_back(otherKey == writes.end() ? p.outers.front().right : p.outers.front().left);
    Term part{.kind = Term::Kind::name, .name = multiplied(names, false, p.column), .column = p.column};
    if (negative) {
      Term positive = std::exchange(part, {.kind = Term::Kind::negate, .column = p.column});
      part.args.push_back(std::move(positive));
    }
    sum.args.push_back(std::move(part));
  }
  std::string name = inputOf(r, sum, "state");
  r.stateColumns.try_emplace(name, all.column);
  (otherKey == writes.end() ? all.outers.front().right : all.outers.front().left) = name;
  if (!sameNumbers)
    all.numbers.clear();
  return true;
}

bool Analysis::transition(const std::vector<const Sorted *> &kept, const Sorted &write) {
  const Sorted *plain = nullptr, *erased = nullptr;
  for (const Sorted *p : kept) {
    if (!p->outers.empty()) {
      if (erased)
        return fail(p->column, "a second product of k^T k and M; valid: two updates, as in M = (I - c p^T p) M; M = "
                               "(I - b k^T k) M + b k^T v, or one of " +
                                   classForms.str());
      erased = p;
    } else {
      if (plain)
        return fail(p->column, "a second multiple of M, which the first does not add up with: decays on both sides of "
                               "M, or a phase; valid: one of " +
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
  if (!plain->phase.empty() && (erased || !turns(*plain)))
    return fail(plain->column, "a decay with a phase goes with k^T v alone; valid: diag(exp(g + i p)) M + k^T v");
  if (erased)
    return erased->negative ? deltaRule(*plain, *erased, write) : lowRank(*erased, write);
  r.writeFactors = write.numbers;
  return true;
}

/// A state that turns: class V, also of decays and phases per head.
bool Analysis::turns(const Sorted &plain) {
  if (r.classId == LsmClass::R || r.classId == LsmClass::E)
    return false;
  r.decaysPerHead = r.classId != LsmClass::V;
  r.reason += (r.classId == LsmClass::I ? ", and turns by " : ", which turns by ") + plain.phase +
              "; o is the real part, two states of turned keys";
  r.classId = LsmClass::V;
  r.phase = plain.phase;
  if (!plain.phasePerHead)
    return true;
  r.rowFactors.push_back(plain.phase);
  Definition ones{.name = "1 (key)", .term = {.kind = Term::Kind::number, .number = 1, .column = plain.column}};
  ones.place = "state";
  if (!r.definition(ones.name))
    r.inputs.push_back(std::move(ones));
  r.phase = multiplied({plain.phase, "1 (key)"}, /*negative=*/false, plain.column);
  return true;
}

/// Several decays of one kind decay by the sum of their logarithms.
std::string Analysis::joined(const std::vector<std::string> &logs, size_t column) {
  if (logs.size() == 1)
    return logs.front();
  Definition sum{.name = llvm::join(logs, " + ") + " (log)", .term = {.kind = Term::Kind::sum, .column = column}};
  if (r.definition(sum.name))
    return sum.name;
  sum.place = "state";
  for (const std::string &log : logs)
    sum.term.args.push_back({.kind = Term::Kind::name, .name = log, .column = column});
  Term product{.kind = Term::Kind::product};
  for (const std::string &log : logs)
    product.args.push_back({.kind = Term::Kind::name, .name = r.decayText(log)});
  sum.decay = textOf(product);
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
    r.classId = r.isFixed(r.logDecay) ? LsmClass::S0 : LsmClass::S;
    r.reason = oneDecay(r.logDecay) + ": " + r.decayText(r.logDecay);
  } else {
    r.classId = LsmClass::V;
    r.reason = oneDecay(r.logDecay, "key feature") + ": diag(" + r.decayText(r.logDecay) + ")";
  }
  return true;
}

/// (diag(exp(g)) + b^T a) M + k^T v: what multiplies the added product, and its sign, goes into b, decays right of b^T
/// a into a.
bool Analysis::lowRank(const Sorted &added, const Sorted &write) {
  if (added.outers.size() != 1 || !added.row.empty() || !added.imaginary.empty() || !added.phase.empty() ||
      !added.fulls.empty() || !added.valueDiagonals.empty())
    return fail(added.column, "what is added to M is b^T a M, times numbers per head and decays exp(g), diag(exp(g)); "
                              "valid: + b^T a M");
  if (r.classId == LsmClass::R || r.classId == LsmClass::E)
    return fail(added.column, "b^T a M is added to a state with a decay per value feature; valid: (diag(exp(g)) + b^T "
                              "a) M + k^T v");
  auto [left, right] = diagonalsAround(added);
  left.insert(left.begin(), added.outers.front().left);
  right.insert(right.begin(), added.outers.front().right);
  std::vector<std::string> numbers = added.numbers;
  for (const std::string &log : added.scalarDecays)
    numbers.push_back(expOf(r, log));
  llvm::append_range(r.rowFactors, numbers);
  left.insert(left.begin(), numbers.begin(), numbers.end());
  r.decaysPerHead = r.classId != LsmClass::V;
  r.lowRankB = multiplied(left, added.negative, added.column);
  r.lowRankA = multiplied(right, /*negative=*/false, added.column);
  std::string row = shownNames(llvm::join(left, " "));
  r.reason += std::string(r.classId == LsmClass::I ? ", " : "; ") + (added.negative ? "minus " : "plus ") +
              (left.size() > 1 ? "(" + row + ")" : row) + "^T " + shownNames(llvm::join(right, " "));
  r.reason += ", which nothing keeps from growing the state";
  r.classId = LsmClass::D;
  r.writeFactors = write.numbers;
  return true;
}

/// Left and right of a^T b: what the diagonals multiply.
std::pair<std::vector<std::string>, std::vector<std::string>> Analysis::diagonalsAround(const Sorted &product) {
  std::vector<std::string> left, right;
  for (const std::string &log : product.leftDiagonals)
    left.push_back(expOf(r, log));
  std::vector<std::string> behind = product.diagonals;
  for (const std::string &log : product.leftDiagonals)
    behind.erase(llvm::find(behind, log));
  for (const std::string &log : behind)
    right.push_back(expOf(r, log));
  return {left, right};
}

/// Names that multiply each other, and perhaps a minus, as one name.
std::string Analysis::multiplied(const std::vector<std::string> &names, bool negative, size_t column) {
  Term product{.kind = Term::Kind::product, .column = column};
  for (const std::string &name : names)
    product.args.push_back({.kind = Term::Kind::name, .name = name, .column = column});
  Term all = names.size() == 1 ? product.args.front() : product;
  if (negative)
    all = {.kind = Term::Kind::negate, .args = {Term(all)}, .column = column};
  std::string name = all.kind == Term::Kind::name ? all.name : inputOf(r, all, "state");
  r.stateColumns.try_emplace(name, column);
  return name;
}

static std::string ratesOf(const Sorted &p) { return p.numbers.empty() ? "none" : llvm::join(p.numbers, " "); }

/// The numbers that multiply a product as one name: "1" of none, an input of its own of several.
std::string Analysis::rate(const Sorted &product) {
  return product.numbers.empty() ? "1" : multiplied(product.numbers, /*negative=*/false, product.column);
}

/// (I - beta k^T k) exp(g) M + beta k^T v, or with diag(exp(g)): why it is not, "" where it is.
std::string Analysis::whyNoDelta(const Sorted &plain, const Sorted &erased, const Sorted &write) const {
  if (erased.outers.size() != 1 || !erased.row.empty() || !erased.imaginary.empty() || erased.phase != plain.phase)
    return "it erases with other than k^T k";
  const auto &[left, right] = erased.outers.front();
  std::string outer = left + "^T " + right;
  if (left != right)
    return "it erases with one row on both sides, " + outer + " has two";
  if (left != r.key)
    return "it erases with what it writes, here " + outer + " and " + r.key + "^T " + r.value;
  if (!erased.leftDiagonals.empty())
    return "it erases what is left after the decay, diag(" + r.decayText(erased.leftDiagonals.front()) +
           ") here comes after";
  if (erased.scalarDecays != plain.scalarDecays || erased.diagonals != plain.diagonals ||
      decays(erased) != decays(plain)) {
    auto carried = [&](const Sorted &p) {
      return p.scalarDecays.empty() && p.diagonals.empty() ? std::string("M")
             : p.diagonals.empty()                         ? r.decayText(p.scalarDecays.front()) + " M"
                                                           : "diag(" + r.decayText(p.diagonals.front()) + ") M";
    };
    return "it erases from what it carries, here " + carried(erased) + " and " + carried(plain);
  }
  if (erased.numbers != write.numbers)
    return "it erases with the rate that it writes with, here " + ratesOf(erased) + " of " + outer + " and " +
           ratesOf(write) + " of " + r.key + "^T " + shownNames(r.value);
  return "";
}

bool Analysis::deltaRule(const Sorted &plain, const Sorted &erased, const Sorted &write) {
  if (std::string why = whyNoDelta(plain, erased, write); !why.empty()) {
    if (!lowRank(erased, write))
      return false;
    r.reason += "; not the delta rule: " + why;
    return true;
  }
  if (r.classId == LsmClass::R || r.classId == LsmClass::E)
    return fail(erased.column, "the delta rule on a state with a decay per value feature is no class; valid: exp(g) or "
                               "diag(exp(g)) left of M");
  r.beta = rate(erased);
  bool diagonal = r.classId == LsmClass::V, still = r.classId == LsmClass::I;
  std::string on = still ? "" : ", on a state with " + r.reason;
  r.classId = diagonal ? LsmClass::VH : still ? LsmClass::H : LsmClass::GH;
  std::string outer = (r.beta == "1" ? "" : r.beta + " ") + r.key + "^T ", read = r.key + " M";
  r.reason =
      "the delta rule, " + (r.value.empty() ? "-" + outer + read : outer + "(" + r.value + " - " + read + ")") + on;
  // What lies along k is multiplied by 1 - beta |k|^2.
  const Definition *key = r.definition(r.key);
  bool isUnit = key && key->term.kind == Term::Kind::call && llvm::is_contained({"l2_norm", "softmax"}, key->term.name);
  Interval rate = r.beta == "1" ? Interval{1, 1} : Ranges(r).of(r.beta);
  if (!isUnit || rate.low < 0 || rate.high > 2)
    r.reason += ", which keeps the state from growing only where " + (r.beta == "1" ? "" : shownNames(r.beta) + " ") +
                "|" + shownNames(r.key) + "|^2 lies between 0 and 2";
  return true;
}

/// z = the equation of M with k^T in the place of k^T v: M with one more value, which is 1.
bool Analysis::normaliser(const Term &term, const std::vector<Sorted> &state) {
  std::vector<Sorted> own;
  if (!multiplyOut(r, term, "z", own, errorFn))
    return false;
  if (!r.valueDecay.empty() || r.elementwise || !r.phase.empty() || !r.keyImaginary.empty())
    return fail(term.column, "a normaliser of a state whose value features decay or turn on their own; valid: decays "
                             "exp(g) and diag(exp(g)) left of M");
  std::string key = textOf({.kind = Term::Kind::transpose, .name = r.key});
  // One to one: z + z is not M + k^T v with other names.
  std::vector<bool> taken(state.size());
  for (const Sorted &p : own) {
    size_t i = 0;
    while (i < state.size() && (taken[i] || !sameProduct(p, state[i])))
      ++i;
    if (i == state.size())
      return fail(p.column, "M has no such product, or not as often; valid: the equation of M, with z for M and " +
                                key + " for " + key + " " + r.value);
    taken[i] = true;
  }
  if (own.size() != state.size())
    return fail(term.column,
                formatv("has {0} products, but M has {1}; valid: the same ones", own.size(), state.size()).str());
  r.normalised = true;
  return true;
}

//===- Several updates of a token ---------------------------------------------------------------------------------===//

static void replaceState(Term &term, const Term &by) {
  if (term.kind == Term::Kind::name && term.name == "M") {
    size_t column = term.column;
    term = by;
    term.column = column;
    return;
  }
  for (Term &arg : term.args)
    replaceState(arg, by);
}

static size_t countState(const Term &term) {
  size_t count = term.kind == Term::Kind::name && term.name == "M";
  for (const Term &arg : term.args)
    count += countState(arg);
  return count;
}

/// What multiplies M alone: it is part of the update behind it, or of the one before. (Of one M, so that no text grows.)
static bool onlyDecays(const Term &state, const std::vector<Sorted> &products) {
  return products.size() == 1 && products.front().hasState && products.front().outers.empty() && countState(state) == 1;
}

/// What several updates of a token cannot be.
bool Analysis::isOneOfSeveral(size_t column) {
  StringRef what = r.elementwise             ? "a decay per element"
                   : !r.valueDecay.empty()   ? "a decay right of M"
                   : !r.keyImaginary.empty() ? "a complex key"
                   : !r.phase.empty()        ? "a decay with a phase"
                                             : "";
  return what.empty() || fail(column, what.str() + " in one of several updates of M; valid there: decays exp(g) and "
                                                   "diag(exp(g)) left of M, what erases, k^T v");
}

/// Equations of M in their order: each is an update of its own. `products`: those of the last.
bool Analysis::updates(std::vector<Term> states, std::vector<Sorted> &products) {
  for (size_t i = 0; i < states.size() && states.size() > 1;) {
    products.clear();
    if (!multiplyOut(r, states[i], "M", products, errorFn))
      return false;
    if (!onlyDecays(states[i], products)) {
      ++i;
      continue;
    }
    bool last = i + 1 == states.size();
    replaceState(states[last ? i : i + 1], states[last ? i - 1 : i]);
    states.erase(states.begin() + static_cast<std::ptrdiff_t>(last ? i - 1 : i));
    i = last ? i - 1 : i;
  }
  bool several = states.size() > 1;
  std::string reasons;
  for (auto [i, state] : llvm::enumerate(states)) {
    products.clear();
    if (!multiplyOut(r, state, "M", products, errorFn) || !stateEquation(products, several) ||
        (several && !isOneOfSeveral(products.front().column)))
      return false;
    reasons += (i == 0 ? "" : "; then ") + r.reason;
    if (i + 1 == states.size())
      break;
    r.earlier.push_back(std::exchange(static_cast<Update &>(r), {}));
  }
  if (llvm::all_of(r.updates(), [](const Update *u) { return u->value.empty(); }))
    return fail(1, "nothing is written; valid: + k^T v in one of the updates");
  if (several)
    reasons = formatv("{0} updates of a token: {1}", states.size(), reasons).str();
  r.reason = reasons;
  return true;
}

bool Analysis::run() {
  std::optional<std::vector<Statement>> statements = parseStatements(r.state, "state", errorFn, r.hasImaginary());
  if (!statements)
    return false;
  std::optional<Term> output = parseEquation(r.output, "o", "output", errorFn, r.hasImaginary());
  if (!output)
    return false;
  static constexpr StringRef valid = "valid: an equation \"M = ..\", with z = .. (what q M is divided by), or with S = "
                                     ".. (momentum) and M_0 = .. of gradient steps";
  const Statement *normal = nullptr, *second = nullptr;
  std::vector<StringRef> seen;
  bool steps = false;
  for (const Statement &s : *statements) {
    if (!llvm::is_contained({"M", "z", "S", "M_0"}, StringRef(s.left)))
      return fail(s.column, "'" + shownText(s.left, 8) + "' is no state; " + valid.str() +
                                (StringRef(s.left).ends_with("_t") ? "; names have no subscripts" : ""));
    if (llvm::is_contained(seen, s.left)) {
      if (s.left != "M")
        return fail(s.column, "a second equation of " + s.left + "; valid: one");
      second = second ? second : &s;
    }
    seen.push_back(s.left);
    steps |= s.left == "S" || s.left == "M_0" || recurrence::calls(s.right, "grad");
    normal = s.left == "z" ? &s : normal;
  }
  if (!llvm::is_contained(seen, "M"))
    return fail(1, valid);
  if (second && (steps || normal))
    return fail(second->column, std::string("a second equation of M beside ") +
                                    (steps ? "gradient steps" : "a normaliser z") + "; valid: one");
  auto isLinear = [&](const Statement &s) { return s.left == "M_0" || checkLinear(s.right, errorFn); };
  if (!checkInputs(r, errorFn) || !llvm::all_of(*statements, isLinear) || !toRows(r, *statements, *output, errorFn))
    return false;
  if (!r.notation.empty()) {
    noted = [error = errorFn, note = " (read as " + r.notation + ")"](StringRef key, const std::string &message) {
      error(key, message + note);
    };
    errorFn = noted;
  }
  if (steps) {
    if (failed(analyzeInner(r, *statements, errorFn)))
      return false;
  } else {
    std::vector<Term> states;
    for (const Statement &s : *statements)
      if (s.left == "M")
        llvm::append_range(states, normal ? std::vector{s.right} : transitionsOf(s.right));
    std::vector<Sorted> products;
    if (!updates(std::move(states), products) || (normal && !normaliser(normal->right, products)))
      return false;
  }
  return succeeded(analyzeOutput(r, std::move(*output), errorFn));
}

llvm::LogicalResult recurrence::analyze(Recurrence &recurrence, const Sizes &sizes, ErrorFn error) {
  describeInputs(recurrence);
  auto shown = [&](StringRef key, const std::string &message) { error(key, shownNames(message)); };
  if (!Analysis(recurrence, shown).run() || failed(inferShapes(recurrence, sizes, shown)))
    return llvm::failure();
  recurrence.reason = shownNames(recurrence.reason);
  return llvm::success();
}
