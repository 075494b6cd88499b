//===- RecurrenceRefusals.cpp - texts that no class could ever have -----------------------------------------------===//
// Looked for before anything is multiplied out, so that a message points at the term that is not linear in the state, or
// that belongs elsewhere.
#include "frontend/RecurrenceFunctions.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/FormatVariadic.h"

using namespace braid;
using namespace braid::recurrence;
using llvm::formatv;
using llvm::StringRef;
using Kind = Term::Kind;

static bool isState(const Term &t) {
  return (t.kind == Kind::name || t.kind == Kind::transpose) &&
         llvm::is_contained({"M", "M_prev", "z", "S"}, StringRef(t.name));
}
static bool readsState(const Term &t) {
  bool isStep = t.kind == Kind::call && t.name == "grad";
  return isState(t) || (!isStep && llvm::any_of(t.args, readsState));
}
static bool isTransposed(const Term &t) {
  return (t.kind == Kind::transpose && !isState(t)) || llvm::any_of(t.args, isTransposed);
}

static bool fail(ErrorFn error, StringRef key, size_t column, StringRef message) {
  error(key, formatv("column {0}: {1}", column, message).str());
  return false;
}

static bool checkCall(const Term &call, ErrorFn error) {
  if (call.name == "grad")
    return true;
  if (llvm::any_of(call.args, readsState))
    return fail(error, "state", call.column,
                call.name + "(..) of the state: the state must stay linear in M; valid: a sum of products with M once "
                            "in each, and functions of inputs or, in the output, of q M");
  if (call.name != "diag" && call.name != "full" && llvm::any_of(call.args, isTransposed))
    return fail(error, "state", call.column,
                call.name + "(..) of a product of rows: the state takes in the product itself; valid: functions of "
                            "the rows, as in silu(k)^T tanh(v)");
  return true;
}

/// One side of a product or a quotient reads the state.
static bool checkFactors(const Term &term, ErrorFn error) {
  const Term *first = nullptr;
  for (auto [i, arg] : llvm::enumerate(term.args)) {
    if (!readsState(arg))
      continue;
    if (term.kind == Kind::quotient && i > 0)
      return fail(error, "state", arg.column,
                  "a division by the state: the state must stay linear in M; valid: what comes from x");
    if (first)
      return fail(error, "state", arg.column,
                  "'" + textOf(arg) +
                      "' a second time in a product: the state must stay linear in M; valid: M once in "
                      "each product");
    first = &arg;
  }
  return true;
}

bool recurrence::checkLinear(const Term &term, ErrorFn error) {
  if (term.kind == Kind::call)
    return checkCall(term, error);
  if (!llvm::all_of(term.args, [&](const Term &arg) { return checkLinear(arg, error); }))
    return false;
  if (term.kind == Kind::power && readsState(term))
    return fail(error, "state", term.column,
                "a power of the state: the state must stay linear in M; valid: M once in each product");
  return (term.kind != Kind::product && term.kind != Kind::quotient) || checkFactors(term, error);
}

//===- Inputs -----------------------------------------------------------------------------------------------------===//

static bool isFormulaName(StringRef name) {
  return llvm::is_contained({"pi", "layer", "layers", "head", "heads", "key", "keys", "value", "values", "row", "rows",
                             "feature", "features", "place", "places"},
                            name);
}

static bool checkInput(const Recurrence &r, const Term &term, const Definition &d, ErrorFn error) {
  auto own = [&] { return r.definition(term.name) || r.parameter(term.name); };
  if (term.kind == Kind::name && llvm::is_contained({"M", "M_prev", "M_0", "z", "S", "o"}, StringRef(term.name)))
    return fail(error, d.key(), term.column,
                term.name + (term.name == "o" ? " is what is read of the state" : " is the state") +
                    ", which stands in state and output only: the state must stay linear in M; valid: x, or a name in "
                    "inputs or parameters");
  bool ofFormula = term.kind == Kind::name && isFormulaName(term.name) && !own();
  bool calls = term.kind == Kind::call && !functionOf(term.name) &&
               llvm::is_contained({"exp2", "expm1", "log1p", "floor"}, StringRef(term.name));
  if (ofFormula || calls)
    return fail(
        error, d.key(), term.column,
        formatv("'{0}{1}' stands in formulas, which are of parameters; valid: \"{2}\" in parameters, {{\"values\": "
                "\"{3}\"}, or a parameter that is part of it",
                term.name, calls ? "(" : "", d.name, mentions(d.term, "x") ? ".." : textOf(d.term))
            .str());
  return llvm::all_of(term.args, [&](const Term &arg) { return checkInput(r, arg, d, error); });
}

bool recurrence::checkInputs(const Recurrence &r, ErrorFn error) {
  return llvm::all_of(r.inputs, [&](const Definition &d) { return checkInput(r, d.term, d, error); });
}
