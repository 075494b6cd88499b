#include "runtime/template/Builtins.h"
#include "runtime/text/Utf8.h"

#include <map>

namespace braid::runtime::jinja {

namespace {

struct Call {
  Builtins &builtins;
  const Value &value;
  const Value *other; // the argument
};

template <class... Kinds> Expected<bool> isOf(const Call &call) { return (call.value.is<Kinds>() || ...); }

Expected<bool> isInteger(const Call &call) { return call.value.is<int64_t>(); }
Expected<bool> isDefined(const Call &call) { return !call.value.is<Undefined>(); }
Expected<bool> isMapping(const Call &call) { return call.value.dict() != nullptr; }
Expected<bool> isString(const Call &call) { return call.value.text() != nullptr; }

// Has a length and items by their number or key; an undefined value has the methods for both.
Expected<bool> isSequence(const Call &call) {
  const Sequence *sequence = call.value.sequence();
  return call.value.text() || call.value.dict() || call.value.is<Undefined>() ||
         (sequence && sequence->kind != Sequence::Kind::view && sequence->kind != Sequence::Kind::iterator);
}
Expected<bool> isIterable(const Call &call) {
  return call.value.text() || call.value.dict() || call.value.sequence() || call.value.is<Undefined>() ||
         call.value.is<std::shared_ptr<const Loop>>();
}

template <bool wanted> Expected<bool> isFlag(const Call &call) {
  return call.value.is<bool>() && *call.value.as<bool>() == wanted;
}

template <bool upper> Expected<bool> isCase(const Call &call) {
  BRAID_ASSIGN(std::string text, printed(call.value));
  std::string same = upper ? upperCase(text) : lowerCase(text), other = upper ? lowerCase(text) : upperCase(text);
  return same == text && other != text;
}

template <char sign> Expected<bool> compares(const Call &call) {
  return call.builtins.compare(sign == '='   ? "=="
                               : sign == '!' ? "!="
                               : sign == '<' ? "<"
                               : sign == '>' ? ">"
                               : sign == 'l' ? "<="
                               : sign == 'g' ? ">="
                                             : "in",
                               call.value, *call.other);
}

Expected<bool> isSame(const Call &call) {
  bool simple = call.value.is<None>() || call.value.is<bool>();
  if (!simple && !call.other->is<None>() && !call.other->is<bool>())
    return Status::error(ErrorCode::unsupported, "is read of true, false and none only; valid: ==");
  return call.value.variant().index() == call.other->variant().index() && equal(call.value, *call.other);
}

Expected<Value> remainder(const Call &call, int64_t by) {
  return call.builtins.binary("%", call.value, call.other ? *call.other : Value(by));
}
Expected<bool> isDivisible(const Call &call) {
  BRAID_ASSIGN(Value rest, remainder(call, 1));
  return !isTrue(rest);
}
template <bool odd> Expected<bool> hasParity(const Call &call) {
  BRAID_ASSIGN(Value rest, remainder(call, 2));
  return equal(rest, Value(int64_t(odd)));
}

struct Test {
  Expected<bool> (*apply)(const Call &call);
  bool takesOne = false; // argument
};

const std::map<std::string_view, Test> &tests() {
  static const std::map<std::string_view, Test> all = {
      {"!=", {compares<'!'>, true}},
      {"<", {compares<'<'>, true}},
      {"<=", {compares<'l'>, true}},
      {"==", {compares<'='>, true}},
      {">", {compares<'>'>, true}},
      {">=", {compares<'g'>, true}},
      {"boolean", {isOf<bool>}},
      {"callable", {isOf<Function, const Macro *, std::shared_ptr<const Method>, Undefined>}},
      {"defined", {isDefined}},
      {"divisibleby", {isDivisible, true}},
      {"eq", {compares<'='>, true}},
      {"equalto", {compares<'='>, true}},
      {"even", {hasParity<false>}},
      {"false", {isFlag<false>}},
      {"float", {isOf<double>}},
      {"ge", {compares<'g'>, true}},
      {"greaterthan", {compares<'>'>, true}},
      {"gt", {compares<'>'>, true}},
      {"in", {compares<'i'>, true}},
      {"integer", {isInteger}},
      {"iterable", {isIterable}},
      {"le", {compares<'l'>, true}},
      {"lessthan", {compares<'<'>, true}},
      {"lower", {isCase<false>}},
      {"lt", {compares<'<'>, true}},
      {"mapping", {isMapping}},
      {"ne", {compares<'!'>, true}},
      {"none", {isOf<None>}},
      {"number", {isOf<int64_t, double, bool>}},
      {"odd", {hasParity<true>}},
      {"sameas", {isSame, true}},
      {"sequence", {isSequence}},
      {"string", {isString}},
      {"true", {isFlag<true>}},
      {"undefined", {isOf<Undefined>}},
      {"upper", {isCase<true>}},
  };
  return all;
}

} // namespace

Expected<bool> Builtins::test(const std::string &name, const Value &value, const Arguments &arguments) {
  auto found = tests().find(name);
  if (found == tests().end())
    return notRead("test", name, tests());
  BRAID_TRY(budget.take(1));
  const Test &test = found->second;
  size_t given = arguments.values.size() + arguments.named.size();
  if (given != size_t(test.takesOne) || !arguments.named.empty())
    return Status::error("test '{}' takes {} without a name, not {}", name,
                         test.takesOne ? "1 argument" : "no argument", given);
  Expected<bool> result = test.apply({*this, value, test.takesOne ? &arguments.values[0] : nullptr});
  return result ? std::move(result) : result.status().withContext(fmt::format("test '{}'", name));
}

} // namespace braid::runtime::jinja
