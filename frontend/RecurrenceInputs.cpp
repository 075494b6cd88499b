//===- RecurrenceInputs.cpp - what inputs of a recurrence say of themselves ---------------------------------------===//
// Before the equations say what they need of them (RecurrenceShapes.cpp): which functions there are, what is one number
// per head whoever reads it, what all tokens share.
#include "frontend/RecurrenceFunctions.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include <cmath>

using namespace braid;
using namespace braid::recurrence;
using llvm::StringRef;

StringRef recurrence::nameOf(Per per) {
  switch (per) {
  case Per::head: return "head";
  case Per::key: return "key";
  case Per::value: return "value";
  case Per::element: return "element";
  case Per::row: return "row";
  case Per::all: return "all";
  case Per::model: return "model";
  case Per::place: return "place";
  }
  llvm_unreachable("all places are above");
}

std::optional<Per> recurrence::perOf(StringRef name) {
  for (Per per : {Per::head, Per::key, Per::value, Per::element, Per::row, Per::all, Per::model, Per::place})
    if (nameOf(per) == name)
      return per;
  return std::nullopt;
}

//===- Functions --------------------------------------------------------------------------------------------------===//

static constexpr Function functions[] = {
    {"linear", 1, 1, Function::Kind::source},      {"low_rank", 2, 3, Function::Kind::source},
    {"conv", 1, 1, Function::Kind::feature},       {"silu", 1, 1, Function::Kind::feature},
    {"sigmoid", 1, 1, Function::Kind::feature},    {"tanh", 1, 1, Function::Kind::feature},
    {"relu", 1, 1, Function::Kind::feature},       {"relu2", 1, 1, Function::Kind::feature},
    {"gelu", 1, 1, Function::Kind::feature},       {"gelu_tanh", 1, 1, Function::Kind::feature},
    {"softplus", 1, 1, Function::Kind::feature},   {"elu1", 1, 1, Function::Kind::feature},
    {"exp", 1, 1, Function::Kind::feature},        {"sin", 1, 1, Function::Kind::feature},
    {"cos", 1, 1, Function::Kind::feature},        {"bounded_exp", 1, 1, Function::Kind::feature},
    {"reciprocal", 1, 1, Function::Kind::feature}, {"log", 1, 1, Function::Kind::feature},
    {"clamp", 3, 3, Function::Kind::feature},      {"max", 2, 2, Function::Kind::feature},
    {"min", 2, 2, Function::Kind::feature},        {"abs", 1, 1, Function::Kind::feature},
    {"sqrt", 1, 1, Function::Kind::feature},       {"log_sigmoid", 1, 2, Function::Kind::feature},
    {"softmax", 1, 1, Function::Kind::vector},     {"l2_norm", 1, 2, Function::Kind::vector},
    {"rope", 1, 2, Function::Kind::vector},        {"layer_norm", 3, 4, Function::Kind::norm},
    {"rms_norm", 1, 3, Function::Kind::norm},      {"log_decay", 2, 3, Function::Kind::decay},
    {"shift", 1, 1, Function::Kind::before},       {"first", 1, 1, Function::Kind::first},
    {"taylor", 1, 1, Function::Kind::rows},        {"square", 1, 1, Function::Kind::rows},
    {"with_one", 1, 1, Function::Kind::rows},      {"inner", 2, 2, Function::Kind::inner},
    {"join", 1, 1, Function::Kind::join},          {"split", 1, 1, Function::Kind::split},
    {"position_rate", 1, 1, Function::Kind::place}};

const Function *recurrence::functionOf(StringRef name) {
  const Function *function = llvm::find_if(functions, [&](const Function &f) { return f.name == name; });
  return function == std::end(functions) ? nullptr : function;
}

std::string recurrence::functionNames() {
  return llvm::join(llvm::map_range(functions, [](const Function &f) { return f.name; }), ", ");
}

static const Function *calledBy(const Term &term) {
  return term.kind == Term::Kind::call ? functionOf(term.name) : nullptr;
}

bool recurrence::isSource(const Term &term) {
  const Function *function = calledBy(term);
  return function && function->kind == Function::Kind::source;
}

bool recurrence::callsSource(const Term &term) { return isSource(term) || llvm::any_of(term.args, callsSource); }

//===- What a term is of ------------------------------------------------------------------------------------------===//

bool recurrence::dependsOnToken(const Recurrence &r, const Term &term) {
  if (term.kind == Term::Kind::name)
    return !r.isConstant(term.name);
  const Function *function = calledBy(term);
  return (function && function->kind == Function::Kind::place) ||
         llvm::any_of(term.args, [&](auto &arg) { return dependsOnToken(r, arg); });
}

std::optional<Per> recurrence::ownPer(const Recurrence &r, const Term &term, const Definition *before) {
  switch (term.kind) {
  case Term::Kind::name:
    if (term.name == "x" || term.name == "M")
      return term.name == "x" ? Per::model : Per::value;
    if (term.name == "z")
      return Per::head;
    if (const Parameter *p = r.parameter(term.name))
      return p->per;
    if (const Definition *d = r.definition(term.name); d && (!before || d < before))
      return d->per ? d->per : d->own;
    return std::nullopt;
  case Term::Kind::call:
    if (auto option = term.options.find("per"); option != term.options.end())
      return perOf(option->second);
    if (const Function *function = functionOf(term.name))
      switch (function->kind) {
      case Function::Kind::source: return std::nullopt;
      case Function::Kind::rows: return Per::row;
      case Function::Kind::inner:
      case Function::Kind::place: return Per::head;
      case Function::Kind::join: return Per::all;
      case Function::Kind::split: return Per::value;
      case Function::Kind::decay:
        if (term.args.size() == 2)
          return Per::element;
        break;
      default: break;
      }
    return term.args.empty() ? std::nullopt : ownPer(r, term.args.front(), before);
  case Term::Kind::product:
  case Term::Kind::quotient: {
    // Features times numbers per head are features.
    std::optional<Per> all;
    for (const Term &arg : term.args) {
      std::optional<Per> per = ownPer(r, arg, before);
      if (per && *per != Per::head)
        return per;
      if (!per && arg.kind != Term::Kind::number)
        return std::nullopt;
      all = per ? per : all;
    }
    return all;
  }
  default:
    for (const Term &arg : term.args)
      if (std::optional<Per> per = ownPer(r, arg, before))
        return per;
    return std::nullopt;
  }
}

void recurrence::describeInputs(Recurrence &r) {
  for (Definition &d : r.inputs) {
    d.constant = !dependsOnToken(r, d.term);
    d.own = ownPer(r, d.term, &d);
  }
}

//===- What all tokens share --------------------------------------------------------------------------------------===//

static bool isNumber(const Term &term) { return term.kind == Term::Kind::number; }

void recurrence::foldNumbers(Term &term) {
  for (Term &arg : term.args)
    foldNumbers(arg);
  using Kind = Term::Kind;
  bool known = llvm::is_contained({Kind::negate, Kind::power, Kind::sum, Kind::product, Kind::quotient}, term.kind);
  if (!known || !llvm::all_of(term.args, isNumber))
    return;
  double number = term.args.front().number;
  for (const Term &arg : llvm::drop_begin(term.args))
    number = term.kind == Kind::sum       ? number + arg.number
             : term.kind == Kind::product ? number * arg.number
                                          : number / arg.number;
  number = term.kind == Kind::negate ? -number : term.kind == Kind::power ? std::pow(number, term.number) : number;
  if (number == 0 || (std::abs(number) >= leastNumber && std::abs(number) <= mostNumber)) // else refused by its shapes
    term = {.kind = Kind::number, .number = number, .column = term.column};
}

namespace {

/// Of one definition.
class Lift {
public:
  Lift(const Recurrence &r, Definition &from, std::vector<Definition> &out) : r(r), from(from), out(out) {}
  void run() {
    if (from.constant)
      numbers(from.term, /*whole=*/true);
    else
      visit(from.term);
  }

private:
  /// Puts a name where the term stands.
  void lift(Term &term) {
    Definition own{.name = from.name + " " + std::to_string(++count), .term = {}, .place = from.key()};
    Term name{.kind = Term::Kind::name, .name = own.name, .column = term.column};
    own.term = std::exchange(term, std::move(name));
    own.constant = true;
    if (own.term.kind != Term::Kind::number)
      Lift(r, own, out).run();
    out.push_back(std::move(own));
  }

  /// A function of numbers alone may stand where it is one number per head, and the input is not.
  void numbers(Term &term, bool whole = false) {
    if (term.kind == Term::Kind::call && !whole && !hasName(term))
      return lift(term);
    const Function *function = calledBy(term);
    for (Term &arg : term.args)
      if (function && function->kind == Function::Kind::inner && isNumber(arg))
        lift(arg);
      else
        numbers(arg);
  }
  static bool hasName(const Term &term) { return term.kind == Term::Kind::name || llvm::any_of(term.args, hasName); }

  void visit(Term &term) {
    if (!dependsOnToken(r, term)) {
      if (term.kind != Term::Kind::name && !isNumber(term))
        lift(term);
      return;
    }
    const Function *function = calledBy(term);
    if (function && (function->kind == Function::Kind::source || function->kind == Function::Kind::place))
      return;
    if (term.kind == Term::Kind::quotient)
      divide(term);
    for (auto [i, arg] : llvm::enumerate(term.args)) {
      bool inner = function && function->kind == Function::Kind::inner;
      if (inner && isNumber(arg))
        lift(arg);
      else if (!function || i == 0 || inner) // else a parameter by its name, a number
        visit(arg);
    }
  }

  /// a / u / b is a / b times 1 / u.
  void divide(Term &quotient) {
    Term below{.kind = Term::Kind::quotient, .column = quotient.column};
    below.args.push_back({.kind = Term::Kind::number, .number = 1, .column = quotient.column});
    auto isShared = [&](const Term &arg) { return !isNumber(arg) && !dependsOnToken(r, arg); };
    for (Term &arg : llvm::drop_begin(quotient.args))
      if (isShared(arg)) {
        below.column = below.args.size() == 1 ? arg.column : below.column;
        below.args.push_back(arg);
      }
    if (below.args.size() == 1)
      return;
    quotient.args.erase(std::remove_if(quotient.args.begin() + 1, quotient.args.end(), isShared), quotient.args.end());
    Term above = quotient.args.size() == 1 ? Term(quotient.args.front()) : quotient;
    lift(below);
    quotient.kind = Term::Kind::product;
    quotient.args = {std::move(above), std::move(below)};
  }

  const Recurrence &r;
  Definition &from;
  std::vector<Definition> &out;
  size_t count = 0;
};

} // namespace

void recurrence::liftConstants(Recurrence &r) {
  std::vector<Definition> inputs;
  for (Definition &d : r.inputs) {
    foldNumbers(d.term);
    Definition lifted = d;
    Lift(r, lifted, inputs).run();
    inputs.push_back(std::move(lifted));
  }
  r.inputs = std::move(inputs);
  describeInputs(r);
}
