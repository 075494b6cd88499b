//===- RecurrenceFormula.cpp - initial values and constants that a formula gives ----------------------------------===//
// "-exp2(-8 (head + 1) / heads)": numbers of the place they stand at, known when the model is built. In double, in the
// order of the text.
#include "frontend/ModelSpec.h"
#include "frontend/Recurrence.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FormatVariadic.h"
#include <cmath>
#include <numbers>

using namespace braid;
using namespace braid::recurrence;
using llvm::formatv;
using llvm::StringRef;

namespace {

/// A dimension of the numbers: what its index is called, what its size is called.
struct Axis {
  StringRef index, count;
  int64_t size;
};

struct Function {
  StringRef name;
  double (*of)(double);
};

constexpr Function functions[] = {
    {"exp", [](double x) { return std::exp(x); }},     {"exp2", [](double x) { return std::exp2(x); }},
    {"expm1", [](double x) { return std::expm1(x); }}, {"log", [](double x) { return std::log(x); }},
    {"log1p", [](double x) { return std::log1p(x); }}, {"sqrt", [](double x) { return std::sqrt(x); }},
    {"floor", [](double x) { return std::floor(x); }}};

using Numbers = std::vector<std::pair<StringRef, double>>;

double numberOf(const Term &term, const Numbers &named) {
  auto arg = [&](size_t i) { return numberOf(term.args[i], named); };
  double result = 0;
  switch (term.kind) {
  case Term::Kind::number: return term.number;
  case Term::Kind::name: return llvm::find_if(named, [&](auto &n) { return n.first == term.name; })->second;
  case Term::Kind::negate: return -arg(0);
  case Term::Kind::power: return std::pow(arg(0), term.number);
  case Term::Kind::call: return llvm::find_if(functions, [&](auto &f) { return f.name == term.name; })->of(arg(0));
  case Term::Kind::quotient: return arg(0) / arg(1);
  case Term::Kind::sum:
    result = arg(0);
    for (size_t i = 1; i < term.args.size(); ++i)
      result += arg(i);
    return result;
  case Term::Kind::product:
    result = arg(0);
    for (size_t i = 1; i < term.args.size(); ++i)
      result *= arg(i);
    return result;
  case Term::Kind::transpose: break;
  }
  llvm_unreachable("refused by checkFormula");
}

std::vector<Axis> axesOf(const Parameter &p, const Recurrence &r, const Sizes &sizes) {
  Axis head{"head", "heads", p.heads}, key{"key", "keys", sizes.headDim}, value{"value", "values", sizes.valueDim},
      row{"row", "rows", r.rows(sizes.headDim)};
  std::vector<Axis> axes;
  switch (*p.per) {
  case Per::head: return {head};
  case Per::key: axes = {key}; break;
  case Per::value: axes = {value}; break;
  case Per::element: axes = {r.rowFunction.empty() ? key : row, value}; break;
  case Per::row: axes = {row}; break;
  case Per::all: return {head, value};
  case Per::model: return {{"feature", "features", sizes.dModel}};
  case Per::place: return {{"place", "places", sizes.miniBatch}};
  }
  if (!p.shared)
    axes.insert(axes.begin(), head);
  return axes;
}

bool ofEveryHead(const Parameter &p) { return *p.per == Per::head || mentions(*p.formula, "head") || p.perLayer(); }

int64_t countOf(const Parameter &p, llvm::ArrayRef<Axis> axes) {
  int64_t count = 1;
  for (const Axis &axis : axes)
    count *= axis.index == "head" && !ofEveryHead(p) ? 1 : axis.size;
  return count;
}

} // namespace

Sizes recurrence::sizesOf(const ModelSpec &model, const LsmSpec &mixer) {
  return {mixer.heads, mixer.headDim, mixer.valueDim, model.numLayers, model.dModel, mixer.miniBatch};
}

bool Parameter::perLayer() const { return mentions(*formula, "layer"); }

std::vector<double> recurrence::evaluate(const Parameter &p, const Recurrence &r, const Sizes &sizes, int64_t layer) {
  std::vector<Axis> axes = axesOf(p, r, sizes);
  int64_t count = countOf(p, axes);
  Numbers named = {
      {"layer", static_cast<double>(layer)}, {"layers", static_cast<double>(sizes.layers)}, {"pi", std::numbers::pi}};
  for (const Axis &axis : axes)
    named.emplace_back(axis.count, static_cast<double>(axis.size));
  size_t first = named.size();
  for (const Axis &axis : axes)
    named.emplace_back(axis.index, 0.0);
  std::vector<double> numbers;
  for (int64_t n = 0; n < count; ++n) {
    int64_t rest = n;
    for (size_t i = axes.size(); i-- > 0; rest /= axes[i].size)
      named[first + i].second = static_cast<double>(rest % axes[i].size);
    numbers.push_back(numberOf(*p.formula, named));
  }
  return numbers;
}

llvm::LogicalResult recurrence::checkFormula(const Parameter &p, const Recurrence &r, const Sizes &sizes, StringRef key,
                                             int64_t &budget, ErrorFn error) {
  std::vector<Axis> axes = axesOf(p, r, sizes);
  std::vector<StringRef> names = {"layer", "layers", "pi"}, calls;
  for (const Axis &axis : axes)
    names.insert(names.end(), {axis.index, axis.count});
  for (const Function &f : functions)
    calls.push_back(f.name);
  auto fail = [&](const Term &term, const std::string &message) {
    error(key, formatv("column {0}: {1}", term.column, message).str());
    return false;
  };
  std::function<bool(const Term &)> valid = [&](const Term &term) {
    if (term.kind == Term::Kind::transpose)
      return fail(term, "a formula has no ^T; valid: numbers, names, + - * / and functions");
    if (term.kind == Term::Kind::name && !llvm::is_contained(names, term.name))
      return fail(term, "'" + term.name + "' is no number of one for each " + nameOf(*p.per).str() +
                            "; valid: " + llvm::join(names, ", "));
    if (term.kind == Term::Kind::call &&
        (!llvm::is_contained(calls, term.name) || term.args.size() != 1 || !term.options.empty()))
      return fail(term, "'" + term.name + "(' is no function of one number; valid: " + llvm::join(calls, ", "));
    return llvm::all_of(term.args, valid);
  };
  if (!valid(*p.formula))
    return llvm::failure();
  int64_t layers = p.perLayer() ? sizes.layers : 1, count = countOf(p, axes);
  if (count > budget / layers) {
    error(key, formatv("gives {0} numbers in {1} layers; valid: at most {2}, of {3} that the formulas of a mixer may "
                       "give together",
                       count, layers, budget, mostFormulaNumbers)
                   .str());
    return llvm::failure();
  }
  budget -= count * layers;
  for (int64_t layer = 0; layer < layers; ++layer)
    for (auto [i, number] : llvm::enumerate(evaluate(p, r, sizes, layer)))
      if (!(std::abs(number) <= 1e6)) {
        error(key, formatv("number {0} of layer {1} is {2}; valid: -1e6 to 1e6", i, layer, numberText(number)).str());
        return llvm::failure();
      }
  return llvm::success();
}
