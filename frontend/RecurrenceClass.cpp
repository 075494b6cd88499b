//===- RecurrenceClass.cpp - the transition class of an equation --------------------------------------------------===//
// The sum of products that an equation is (RecurrenceProducts.h) is compared with the form of each class.
#include "dialects/braid/BraidDialect.h"
#include "frontend/ModelSpec.h"
#include "frontend/RecurrenceProducts.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FormatVariadic.h"

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
  bool stateEquation(const std::vector<Sorted> &products);
  bool transition(const std::vector<const Sorted *> &kept, const Sorted &write);
  bool decayOf(const Sorted &plain);
  bool lowRank(const Sorted &added, const Sorted &write);
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
};

} // namespace

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
    r.classId = r.isFixed(r.logDecay) ? LsmClass::S0 : LsmClass::S;
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
  if (!multiplyOut(r, term, "z", own, errorFn))
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
    if (!multiplyOut(r, *state, "M", products, errorFn) || !stateEquation(products) ||
        (normal && !normaliser(*normal, products)))
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

static bool allFixed(const Recurrence &r, const Term &term) {
  return (term.kind != Term::Kind::name || r.isFixed(term.name)) &&
         llvm::all_of(term.args, [&](const Term &arg) { return allFixed(r, arg); });
}
bool Recurrence::isFixed(StringRef name) const {
  if (const Parameter *p = parameter(name))
    return !p->trained;
  const Definition *d = definition(name);
  return d && d->constant && allFixed(*this, d->term);
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
