//===- Recurrence.cpp - what equations say, once they are analyzed ------------------------------------------------===//
#include "frontend/Recurrence.h"
#include "dialects/braid/BraidDialect.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

using namespace braid;
using namespace braid::recurrence;
using llvm::StringRef;

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

bool Recurrence::standsInRow(StringRef name) const {
  return name == query || name == skipValue || llvm::any_of(updates(), [&](const Update *u) {
           return llvm::is_contained({u->key, u->value, u->lowRankA, u->lowRankB}, name);
         });
}

std::vector<const Update *> Recurrence::updates() const {
  std::vector<const Update *> all;
  for (const Update &u : earlier)
    all.push_back(&u);
  all.push_back(this);
  return all;
}

LsmClass Recurrence::scanClass() const {
  if (earlier.empty())
    return classId;
  std::vector<const Update *> all = updates();
  auto any = [&](auto holds) { return llvm::any_of(all, holds); };
  auto isDelta = [](const Update *u) { return !u->beta.empty(); };
  bool decays = any([](const Update *u) { return !u->logDecay.empty(); });
  bool perKey = any([](const Update *u) { return u->classId == LsmClass::V || u->classId == LsmClass::VH; });
  if (any([](const Update *u) { return u->classId == LsmClass::D; }) || (any(isDelta) && !llvm::all_of(all, isDelta)))
    return LsmClass::D;
  if (any(isDelta))
    return perKey ? LsmClass::VH : decays ? LsmClass::GH : LsmClass::H;
  return perKey ? LsmClass::V : decays ? LsmClass::S : LsmClass::I;
}

std::string Recurrence::widths() const {
  std::string all;
  for (Per per : {Per::head, Per::key, Per::value, Per::element, Per::row, Per::all, Per::model, Per::place}) {
    std::vector<StringRef> names;
    for (const Definition &d : inputs)
      if (d.per == per && d.place.empty() && d.name != "o")
        names.push_back(d.name);
    for (const auto &[name, p] : parameters)
      if (p.per == per)
        names.push_back(name);
    if (!names.empty())
      all += (all.empty() ? "per " : "; per ") + nameOf(per).str() + ": " + llvm::join(names, ", ");
  }
  return all;
}

std::string Recurrence::className() const {
  if (!inner)
    return stringifyLsmClass(scanClass()).str();
  return !normWeight.empty() ? "N" : momentum.empty() && placeRate.empty() ? "G1" : "GM";
}

bool recurrence::calls(const Term &term, StringRef function) {
  return (term.kind == Term::Kind::call && term.name == function) ||
         llvm::any_of(term.args, [&](const Term &arg) { return calls(arg, function); });
}
const Term *recurrence::nameIn(const Term &term, StringRef name) {
  if (term.kind == Term::Kind::name && term.name == name)
    return &term;
  for (const Term &arg : term.args)
    if (const Term *found = nameIn(arg, name))
      return found;
  return nullptr;
}
bool recurrence::mentions(const Term &term, StringRef name) { return nameIn(term, name) != nullptr; }
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
