//===- RecurrenceChecks.cpp - what a recurrence's decays and names must not be ------------------------------------===//
#include "dialects/braid/BraidDialect.h"
#include "frontend/ModelSpec.h"
#include "frontend/RecurrenceFunctions.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/FormatVariadic.h"
#include <functional>

using namespace braid;
using namespace braid::recurrence;
using llvm::formatv;
using llvm::StringRef;

/// A state must not grow by its decay: the exponentials of chunks are of sums of log decays, and hold only below 1. What is one number per
/// element goes token by token, and may grow.
llvm::LogicalResult recurrence::checkValues(Recurrence &r, const Sizes &sizes, ErrorFn errorFn) {
  Ranges ranges(r, &sizes);
  auto within = [&](const std::string &name, const char *what, const char *range, auto valid) {
    const Parameter *p = r.parameter(name);
    auto all = [&](const std::vector<double> &values, int64_t layer) {
      for (auto [i, value] : llvm::enumerate(values))
        if (!valid(value)) {
          errorFn("parameters." + name, formatv("values[{0}]{1} is {2}; valid for {3}: {4}", i,
                                                p->formula ? " of layer " + std::to_string(layer) : std::string(),
                                                numberText(value), what, range)
                                            .str());
          return false;
        }
      return true;
    };
    for (int64_t layer = 0; p->formula && layer < (p->perLayer() ? sizes.layers : 1); ++layer)
      if (!all(evaluate(*p, r, sizes, layer), layer))
        return false;
    return all(p->values, 0);
  };
  // Of what the state itself computes: where it stands there.
  auto whereOf = [&](const Definition &d) {
    auto at = r.stateColumns.find(d.name);
    if (d.place != "state" || at == r.stateColumns.end())
      return std::string();
    return formatv("column {0}: ", at->second).str();
  };
  auto readsUnit = [&](const Definition &d) {
    bool stands = StringRef(d.name).contains("i ") || StringRef(d.name).contains(" i");
    return stands && !r.hasImaginary() && mentions(d.term, "i");
  };
  for (const std::string &name : r.bounds) {
    if (r.parameter(name)->trained) {
      errorFn("parameters." + name, "is trained, but the least value of a gate is not; valid: \"values\"");
      return llvm::failure();
    }
    if (!within(name, "the least value of a gate", "from 0, below 1", [](double v) { return v >= 0 && v < 1; }))
      return llvm::failure();
  }
  for (const Definition &d : r.inputs) {
    if (r.parameter(d.decay) &&
        !within(d.decay, "what multiplies M", "from 0 to 1", [](double v) { return v >= 0 && v <= 1; }))
      return llvm::failure();
    if (!d.decay.empty() && d.term.kind == Term::Kind::call && d.term.name == "log" &&
        !ranges.of(d.term.args.front()).neverNegative()) {
      errorFn(d.key(),
              whereOf(d) + "that " + d.decay +
                  " is never negative cannot be shown, but what multiplies M must not be; valid: " + knownLogs.str());
      return llvm::failure();
    }
  }
  std::vector<std::string> logs{r.momentum};
  for (const Update *u : r.updates())
    logs.insert(logs.end(), {u->logDecay, u->valueDecay});
  for (const std::string &name : logs) {
    if (r.parameter(name) && !within(name, "a log decay", "at most 0", [](double v) { return v <= 0; }))
      return llvm::failure();
    const Definition *d = r.definition(name);
    Interval range = ranges.of(name);
    if (range.neverNegative() && !range.neverPositive()) {
      std::string here = whereOf(*d), subject = here.empty() ? "" : here + (d->decay.empty() ? name : d->decay) + " ";
      errorFn(d->key(),
              subject + (!d->decay.empty()
                             ? "is never below 1, but what multiplies M must not be above 1; valid: " + knownLogs.str()
                             : "is never negative, but a log decay must not be positive; valid: "
                               "log_sigmoid(..), log_decay(..), -softplus(..)"));
      return llvm::failure();
    }
    const Parameter *p = r.parameter(name);
    if (range.neverPositive() || !(r.definition(name) || (p && p->trained)))
      continue;
    if (r.elementwise) {
      bool logged = d && !d->decay.empty();
      r.reason += ". That " + (logged ? d->decay : name) + " is never " + (logged ? "above 1" : "positive") +
                  " cannot be shown, and where it is " + (logged ? "above" : "positive") + " the state grows";
      continue;
    }
    if (p) {
      errorFn("parameters." + name, "is trained, and nothing keeps a log decay from becoming positive; valid: an input "
                                    "of it, such as \"log_sigmoid(" +
                                        name + ")\", or \"values\"");
      return llvm::failure();
    }
    if (!d->decay.empty() && readsUnit(*d)) {
      errorFn(d->key(), whereOf(*d) + "i is an input or a parameter here, hence not the imaginary unit, and that " +
                            d->decay +
                            " is never above 1 cannot be shown; valid for a phase: another name for what is called i");
      return llvm::failure();
    }
    if (!d->decay.empty()) {
      errorFn(d->key(), whereOf(*d) + "that " + d->decay +
                            " is never above 1 cannot be shown, but what multiplies M must not be: chunks of "
                            "tokens have no other form; valid: " +
                            knownLogs.str() + ", or full(" + d->decay + ") in the state, which goes token by token");
      return llvm::failure();
    }
    bool stands = d->place == "state";
    errorFn(d->key(),
            whereOf(*d) + "that " + (stands ? name : "it") +
                " is never positive cannot be shown, but a log decay must not be positive: chunks of tokens have no "
                "other form; valid: log_sigmoid(..), log_decay(..), -softplus(..), -exp(..), also times what is never "
                "negative, or full(exp(" +
                name + ")) in the state, which goes token by token");
    return llvm::failure();
  }
  return llvm::success();
}

/// Weights are named after what they are for; no two may have one name.
llvm::LogicalResult recurrence::checkNames(const Recurrence &r, ErrorFn errorFn) {
  llvm::StringMap<std::string> taken;
  for (StringRef fixedName : {"wo", "state"})
    taken[fixedName] = "every layer";
  if (r.normed)
    taken["norm.weight"] = "the output norm";
  if (!r.phase.empty())
    for (StringRef state : {"phase", "phase_rest", "state_sin", "state_im"})
      taken[state] = "the phase";
  if (r.gated)
    taken["wg"] = "the output gate";
  bool ok = true;
  auto take = [&](const std::string &weight, const std::string &owner) {
    auto [entry, fresh] = taken.try_emplace(weight, owner);
    if (fresh)
      return;
    errorFn(owner,
            formatv("its weight lsm.{0} has the name of one of {1}; valid: another name", weight, entry->second).str());
    ok = false;
  };
  std::function<void(const Term &, const std::string &)> walk = [&](const Term &term, const std::string &name) {
    std::string owner = name == "o" ? "output" : "inputs." + name;
    auto calls = [&](StringRef function) { return term.kind == Term::Kind::call && term.name == function; };
    if (calls("linear"))
      take("w" + name, owner);
    if (calls("low_rank")) {
      bool ofInput = term.args.front().name == "x";
      for (const char *part : {"1", "2"})
        take(ofInput ? "w" + name + part : name + (*part == '1' ? "_a" : "_b"), owner);
    }
    if (calls("conv"))
      for (const char *part : {"", ".weight", ".bias"})
        take("conv_" + name + part, owner);
    if (calls("shift"))
      take("shift_" + (term.args.front().kind == Term::Kind::name ? term.args.front().name : name), owner);
    if (calls("first"))
      take("is_first", owner);
    for (const Term &arg : term.args)
      walk(arg, name);
  };
  for (const Definition &d : r.inputs)
    walk(d.term, d.name);
  llvm::StringSet<> states;
  auto delayed = [&](const std::string &name) { return !name.empty() && (name == r.value || !r.isConstant(name)); };
  for (const std::string &name : {r.key, r.value, r.logDecay, r.beta, r.valueDecay, r.lowRankA, r.lowRankB, r.phase})
    if (r.readsBefore && delayed(name) && !states.insert(name).second) {
      errorFn("output", formatv("'{0}' stands in two places of the state, and M_prev reads each a token later; valid: "
                                "a second name in inputs for one of them",
                                name)
                            .str());
      ok = false;
    } else if (r.readsBefore && delayed(name)) {
      take("shift_" + name, "output");
    }
  for (const auto &[name, parameter] : r.parameters)
    take(name, "parameters." + name);
  return llvm::success(ok);
}
