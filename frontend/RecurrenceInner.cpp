//===- RecurrenceInner.cpp - states that gradient steps change; outputs that are expressions ----------------------===//
//   M = [exp(a)] M - [p] r grad(l2(F - t))                           p: a rate of the place in a mini-batch
//   M = [exp(a)] M + S; S = [exp(e)] S - r grad(l2(F - t))           with momentum
//   M_0 = w                                                          where a document begins
// F = k M or layer_norm(k M, w, b), also with what is added before the root; l2(y) = |y|^2 / 2. The places are those of braid.lsm.inner_step.
#include "dialects/braid/BraidDialect.h"
#include "frontend/Recurrence.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FormatVariadic.h"

using namespace braid;
using namespace braid::recurrence;
using llvm::formatv;
using llvm::StringRef;

namespace {

constexpr StringRef validStep = "valid: M = exp(a) M - r grad(l2(k M - v)), or M = exp(a) M + S; S = exp(e) S - r "
                                "grad(l2(k M - v)), with layer_norm(k M, w, b) for k M if need be";

bool isName(const Term &term, StringRef name = {}) {
  return term.kind == Term::Kind::name && (name.empty() || term.name == name);
}

/// exp of a log decay by its name
bool isExp(const Term &term) {
  return term.kind == Term::Kind::call && term.name == "exp" && term.args.size() == 1 && term.options.empty() &&
         isName(term.args.front());
}

/// A product of a sum and its sign.
struct Part {
  bool negative = false;
  std::vector<const Term *> factors;
  size_t column = 0;
};

std::vector<Part> partsOf(const Term &term) {
  std::vector<Part> parts;
  auto add = [&](const Term &t) {
    bool negative = t.kind == Term::Kind::negate;
    const Term &bare = negative ? t.args.front() : t;
    Part &part = parts.emplace_back(Part{negative, {}, bare.column});
    if (bare.kind == Term::Kind::product)
      for (const Term &factor : bare.args)
        part.factors.push_back(&factor);
    else
      part.factors.push_back(&bare);
  };
  if (term.kind == Term::Kind::sum)
    for (const Term &arg : term.args)
      add(arg);
  else
    add(term);
  return parts;
}

class Steps {
public:
  Steps(Recurrence &r, ErrorFn error) : r(r), errorFn(error) {}
  bool run(const std::vector<Statement> &statements);

private:
  bool carry(const Part &part, StringRef state, std::string &decay);
  bool step(const Part &part);
  bool loss(const Term &grad);
  bool equation(const Statement &s, std::string &decay, bool &hasStep);
  bool name(const Term &term, std::string &place);
  bool factor(const Term &term, std::string &place);
  bool fail(size_t column, StringRef message) {
    errorFn("state", formatv("column {0}: {1}", column, message).str());
    return false;
  }

  Recurrence &r;
  ErrorFn errorFn;
  bool readsMomentum = false;
};

bool Steps::name(const Term &term, std::string &place) {
  if (!isName(term))
    return fail(term.column, "a name in inputs or parameters belongs here; " + validStep.str());
  if (!r.definition(term.name) && !r.parameter(term.name))
    return fail(term.column, "'" + term.name + "' is not defined; valid: a name in inputs or parameters");
  r.stateColumns.try_emplace(term.name, term.column);
  place = wholeOf(r, term.name);
  r.stateColumns.try_emplace(place, term.column);
  return true;
}

/// A name, or what is computed where one belongs.
bool Steps::factor(const Term &term, std::string &place) {
  if (isName(term) || mentions(term, "M") || mentions(term, "S"))
    return name(term, place);
  place = wholeOf(r, inputOf(r, term, "state"));
  r.stateColumns.try_emplace(place, term.column);
  return true;
}

/// [a] M, [exp(a)] M
bool Steps::carry(const Part &part, StringRef state, std::string &decay) {
  if (part.negative)
    return fail(part.column, "the state changes its sign; valid: a product with + that carries " + state.str());
  size_t states = 0;
  for (const Term *f : part.factors) {
    if (isName(*f, state)) {
      if (++states > 1)
        return fail(f->column, "'" + state.str() + "' a second time in a product; " + validStep.str());
      continue;
    }
    if (const Term *unit = r.hasImaginary() ? nameIn(*f, "i") : nullptr)
      return fail(unit->column, "a phase on a state that gradient steps change; " + validStep.str());
    bool isOther = f->kind == Term::Kind::call && llvm::is_contained({"diag", "full"}, StringRef(f->name));
    if (!decay.empty() || isOther || mentions(*f, state))
      return fail(f->column,
                  "what gradient steps change decays by one exp(a), one number per head; " + validStep.str());
    if (isExp(*f) ? !name(f->args.front(), decay) : isName(*f) && !name(*f, decay))
      return false;
    std::string own = isExp(*f) || isName(*f) ? f->name : inputOf(r, *f, "state");
    std::optional<std::string> log = isExp(*f) ? decay : takeLog(r, own);
    if (!log)
      return fail(f->column, "'" + own + "' multiplies " + state.str() +
                                 ", and its logarithm is not known; valid: exp(a) of a log decay a, or " +
                                 knownLogs.str());
    r.stateColumns.try_emplace(*log, f->column);
    decay = *log;
  }
  return true;
}

/// grad(l2(F - t))
bool Steps::loss(const Term &grad) {
  const Term *l2 = grad.args.size() == 1 ? &grad.args.front() : nullptr;
  const Term *difference =
      l2 && l2->kind == Term::Kind::call && l2->name == "l2" && l2->args.size() == 1 ? &l2->args.front() : nullptr;
  bool two = difference && difference->kind == Term::Kind::sum && difference->args.size() == 2;
  const Term *predicted = two ? difference->args.data() : nullptr, *target = two ? predicted + 1 : nullptr;
  if (two && !mentions(*predicted, "M")) // |v - k M| is |k M - v|
    std::swap(predicted, target);
  auto isNegative = [](const Term &t) { return t.kind == Term::Kind::negate; };
  if (!two || isNegative(*predicted) == isNegative(*target))
    return fail(grad.column,
                "the only loss here is l2(y) = |y|^2 / 2 of what is predicted minus a target; " + validStep.str());
  (isNegative(*predicted) ? predicted : target) = (isNegative(*predicted) ? predicted : target)->args.data();
  if (predicted->kind == Term::Kind::call && predicted->name == "layer_norm") {
    size_t count = predicted->args.size();
    if (count != 3 && count != 4)
      return fail(predicted->column,
                  formatv("layer_norm has {0} arguments; valid: 3 or 4, layer_norm(k M, w, b, 1e-6)", count).str());
    if (count == 4 && !keepsFromZero(predicted->args[3]))
      return fail(predicted->args[3].column,
                  "valid as what keeps layer_norm from dividing by 0: a number above 0, at most 1");
    if (count == 4)
      r.normEps = predicted->args[3].number;
    if (!name(predicted->args[1], r.normWeight) || !name(predicted->args[2], r.normBias))
      return false;
    predicted = predicted->args.data();
  }
  if (predicted->kind != Term::Kind::product || predicted->args.size() != 2 || !isName(predicted->args[1], "M"))
    return fail(predicted->column, "what is predicted is k M, or layer_norm(k M, w, b); " + validStep.str());
  return name(predicted->args[0], r.key) && name(*target, r.value);
}

/// - [p] r grad(..)
bool Steps::step(const Part &part) {
  if (!part.negative)
    return fail(part.column, "a step along the gradient; valid: - r grad(..)");
  bool hasLoss = false;
  Term rates{.kind = Term::Kind::product, .column = part.column};
  for (const Term *f : part.factors) {
    if (f->kind == Term::Kind::call && f->name == "grad") {
      if (hasLoss)
        return fail(f->column, "a second grad(..) in one product; valid: - r grad(..)");
      hasLoss = true;
      if (!loss(*f))
        return false;
      continue;
    }
    std::string own;
    if (!factor(*f, own))
      return false;
    const Definition *d = r.definition(own);
    bool ofPlace = d && d->term.kind == Term::Kind::call && d->term.name == "position_rate";
    if (ofPlace && !r.placeRate.empty())
      return fail(f->column, "'" + own + "' is a second position_rate(..); valid: one, and numbers per head");
    if (ofPlace)
      r.placeRate = own;
    else
      rates.args.push_back({.kind = Term::Kind::name, .name = own, .column = f->column});
  }
  r.rate = rates.args.empty() ? "1" : rates.args.size() == 1 ? rates.args[0].name : inputOf(r, rates, "state");
  r.stateColumns.try_emplace(r.rate, part.column);
  return true;
}

bool Steps::equation(const Statement &s, std::string &decay, bool &hasStep) {
  bool carried = false;
  for (const Part &part : partsOf(s.right)) {
    auto has = [&](auto what) { return llvm::any_of(part.factors, [&](const Term *f) { return what(*f); }); };
    if (has([](const Term &t) { return t.kind == Term::Kind::call && t.name == "grad"; })) {
      if (hasStep)
        return fail(part.column, "a second gradient step; valid: one, of M or of S");
      hasStep = true;
      if (!step(part))
        return false;
    } else if (has([&](const Term &t) { return isName(t, s.left); })) {
      if (carried)
        return fail(part.column, "a second multiple of " + s.left + "; " + validStep.str());
      carried = true;
      if (!carry(part, s.left, decay))
        return false;
    } else if (s.left == "M" && !part.negative && part.factors.size() == 1 && isName(*part.factors[0], "S")) {
      if (readsMomentum)
        return fail(part.column, "a second S; " + validStep.str());
      readsMomentum = true;
    } else {
      return fail(part.column, "is neither what is carried nor a gradient step; " + validStep.str());
    }
  }
  return carried || fail(s.column, "no product carries " + s.left + "; " + validStep.str());
}

bool Steps::run(const std::vector<Statement> &statements) {
  bool steps = llvm::any_of(statements, [](const Statement &s) { return calls(s.right, "grad"); });
  for (const Statement &s : statements)
    if (s.left == "M_0" && !steps)
      return fail(s.column, "M_0 of a state without gradient steps; valid: none, it begins as 0");
  // Decays first: what they share with rates then means another input.
  for (const Statement &s : statements)
    for (const Part &part : partsOf(s.right)) {
      if (!llvm::any_of(part.factors, [&](const Term *f) { return isName(*f, s.left); }))
        continue;
      for (const Term *f : part.factors)
        if (!mentions(*f, s.left) && !isExp(*f))
          (void)takeLog(r, isName(*f) ? f->name : inputOf(r, *f, "state"));
    }
  const Statement *momentum = nullptr;
  bool hasStep = false, stepOfMomentum = false;
  for (const Statement &s : statements) {
    if (s.left == "z")
      return fail(s.column, "gradient steps have no normaliser; valid: M = .., S = .., M_0 = ..");
    if (s.left == "M_0" && !name(s.right, r.start))
      return false;
    if (s.left == "M" && !equation(s, r.logDecay, hasStep))
      return false;
    if (s.left == "S") {
      momentum = &s;
      stepOfMomentum = !hasStep;
      if (!equation(s, r.momentum, hasStep))
        return false;
    }
  }
  if (!hasStep)
    return fail(1, "no gradient step; " + validStep.str());
  if (readsMomentum != (momentum != nullptr) || (momentum && (!stepOfMomentum || r.momentum.empty())))
    return fail(momentum ? momentum->column : 1,
                "momentum S is what M adds, and what the step changes; valid: M = exp(a) M + S; S = exp(e) S - r "
                "grad(l2(k M - v))");
  if (!r.placeRate.empty() && (!r.logDecay.empty() || momentum))
    return fail(r.stateColumns.at(r.placeRate), "'" + r.placeRate +
                                                    "' weights steps where they are read, so that they do not decay "
                                                    "too; valid: without exp(..) and S");
  for (const std::string *weight : {&r.normWeight, &r.normBias, &r.start})
    if (!weight->empty() && !r.parameter(*weight))
      return fail(r.stateColumns.at(*weight), "'" + *weight + "' is an input; valid in this place: a parameter");
  r.inner = true;
  r.reason = "gradient steps of a mini-batch, taken where it began" +
             std::string(!r.normWeight.empty() ? ", through a norm: states cannot be composed, so segments of a row go "
                                                 "one after the other"
                         : momentum            ? ", with momentum: affine in M and S together"
                         : !r.placeRate.empty() ? ", weighted where they are read: affine in M and their sum together"
                                                : ": affine in M");
  return true;
}

} // namespace

llvm::LogicalResult recurrence::analyzeInner(Recurrence &r, const std::vector<Statement> &statements, ErrorFn error) {
  return llvm::success(Steps(r, error).run(statements));
}
