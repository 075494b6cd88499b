#include "runtime/io/JsonText.h"
#include "runtime/template/Builtins.h"
#include "runtime/text/Utf8.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <unordered_set>

namespace braid::runtime::jinja {

namespace {

using Kind = Sequence::Kind;

struct Call {
  Builtins &builtins;
  Budget &budget;
  const Value &value;
  const Bound &given;
  const Arguments &arguments; // of filters that take any
};

Expected<std::string> textOf(const Call &call) { return printed(call.value); }

// ---- Texts ----------------------------------------------------------------------------------------------------------

template <std::string (*change)(std::string_view)> Expected<Value> changed(const Call &call) {
  BRAID_ASSIGN(std::string text, textOf(call));
  BRAID_TRY(call.budget.take(text.size() / 16));
  return makeText(call.budget, change(text));
}

std::string capitalized(std::string_view text) {
  size_t first = text.empty() ? 0 : firstCharacterBytes(text);
  return titleCase(text.substr(0, first)) + lowerCase(text.substr(first));
}

// Words begin behind blanks, - ( { [ and <.
std::string titled(std::string_view text) {
  std::string result;
  for (size_t at = 0; at < text.size();) {
    size_t end = at;
    auto isBetween = [&](size_t place) {
      return std::string_view("-({[<").find(text[place]) != std::string_view::npos ||
             isPythonSpace(firstCharacter(text.substr(place)));
    };
    if (isBetween(at)) {
      while (end < text.size() && isBetween(end))
        end += firstCharacterBytes(text.substr(end));
      result += text.substr(at, end - at);
    } else {
      while (end < text.size() && !isBetween(end))
        end += firstCharacterBytes(text.substr(end));
      std::string_view word = text.substr(at, end - at);
      size_t first = firstCharacterBytes(word);
      result += upperCase(word.substr(0, first)) + lowerCase(word.substr(first));
    }
    at = end;
  }
  return result;
}

std::string htmlEscaped(std::string_view text) {
  std::string result;
  for (char c : text)
    switch (c) {
    case '&': result += "&amp;"; break;
    case '<': result += "&lt;"; break;
    case '>': result += "&gt;"; break;
    case '\'': result += "&#39;"; break;
    case '"': result += "&#34;"; break;
    default: result += c;
    }
  return result;
}

Expected<Value> escapeHtml(const Call &call) {
  BRAID_ASSIGN(std::string text, textOf(call));
  bool safe = call.value.text() && call.value.as<Text>()->safe;
  BRAID_TRY(call.budget.take(text.size() / Budget::bytesOfStep));
  return Value(Text{std::make_shared<const std::string>(safe ? text : htmlEscaped(text)), true});
}

Expected<Value> safe(const Call &call) {
  BRAID_ASSIGN(std::string text, textOf(call));
  BRAID_TRY(call.budget.take(text.size() / Budget::bytesOfStep));
  return Value(Text{std::make_shared<const std::string>(std::move(text)), true});
}

Expected<Value> string(const Call &call) {
  if (call.value.text())
    return call.value;
  BRAID_ASSIGN(std::string text, textOf(call));
  return makeText(call.budget, std::move(text));
}

Expected<Value> trim(const Call &call) {
  BRAID_ASSIGN(std::string text, textOf(call));
  BRAID_ASSIGN(std::string characters, call.given.textOr(0, ""));
  bool blanks = !call.given[0] || call.given[0]->is<None>();
  return makeText(call.budget, std::string(stripped(text, Side::both, blanks ? nullptr : &characters)));
}

Expected<Value> replace(const Call &call) {
  BRAID_ASSIGN(std::string text, textOf(call));
  Arguments arguments;
  for (int i : {0, 1}) {
    if (!call.given[static_cast<size_t>(i)])
      return Status::error("needs parameters 'old' and 'new'");
    BRAID_ASSIGN(std::string part, printed(*call.given[static_cast<size_t>(i)]));
    arguments.values.emplace_back(std::move(part));
  }
  if (call.given[2] && !call.given[2]->is<None>())
    arguments.values.push_back(*call.given[2]);
  return call.builtins.method({Value(std::move(text)), "replace", {}}, arguments);
}

Expected<Value> indent(const Call &call) {
  if (!call.value.text())
    return Status::error("asks for a str, not for '{}'", typeName(call.value));
  const std::string &text = *call.value.text();
  std::string by(4, ' ');
  if (const Value *width = call.given[0]; width && width->text()) {
    by = *width->text();
  } else {
    BRAID_ASSIGN(int64_t blanks, call.given.integerOr(0, 4));
    if (blanks > 1000)
      return Status::error(ErrorCode::unsupported, "'width' is {}; valid: up to 1000", blanks);
    by.assign(static_cast<size_t>(std::max<int64_t>(blanks, 0)), ' ');
  }
  std::vector<std::string> lines = splitLines(text + "\n", false);
  std::string result = call.given.isTrue(1) ? by : "";
  for (size_t i = 0; i < lines.size(); ++i) {
    BRAID_TRY(call.budget.take(1 + by.size() / Budget::bytesOfStep));
    result += i > 0 ? "\n" : "";
    result += i > 0 && (call.given.isTrue(2) || !lines[i].empty()) ? by : "";
    result += lines[i];
  }
  return makeText(call.budget, std::move(result));
}

Expected<Value> tojson(const Call &call) {
  JsonStyle style;
  style.ascii = call.given.isTrue(0);
  style.sortKeys = call.given.isTrue(3);
  if (const Value *by = call.given[1]; by && by->text()) {
    style.indent = *by->text();
  } else if (by && !by->is<None>()) {
    BRAID_ASSIGN(int64_t blanks, call.given.integerOr(1, 0));
    style.indent = std::string(static_cast<size_t>(std::clamp<int64_t>(blanks, 0, 1001)), ' ');
  }
  if (style.indent && style.indent->size() > 1000)
    return Status::error(ErrorCode::unsupported, "'indent' is longer than 1000");
  if (style.indent) {
    BRAID_TRY(call.budget.take(extentOf(call.value).weight * (1 + style.indent->size() / 16)));
    style.betweenItems = ",";
  }
  if (const Value *separators = call.given[2]; separators && !separators->is<None>()) {
    BRAID_ASSIGN(std::vector<Value> both, elementsOf(call.budget, *separators));
    if (both.size() != 2 || !both[0].text() || !both[1].text() || both[0].text()->size() > 1000 ||
        both[1].text()->size() > 1000)
      return Status::error("'separators' are no two texts");
    style.betweenItems = *both[0].text();
    style.afterKey = *both[1].text();
  }
  BRAID_ASSIGN(std::string text, toJson(call.value, style));
  return makeText(call.budget, std::move(text));
}

Expected<Value> format(const Call &call) {
  BRAID_ASSIGN(std::string text, textOf(call));
  if (!call.arguments.named.empty())
    return Status::error(ErrorCode::unsupported, "names of values are not read");
  BRAID_ASSIGN(Value values, makeSequence(call.budget, call.arguments.values, Kind::tuple));
  BRAID_ASSIGN(std::string result, percentFormatted(text, values));
  return makeText(call.budget, std::move(result));
}

// ---- Numbers --------------------------------------------------------------------------------------------------------

Expected<Value> integer(const Call &call) {
  BRAID_ASSIGN(int64_t base, call.given.integerOr(1, 10));
  if (base != 10)
    return Status::error(ErrorCode::unsupported, "base {} is not read; valid: 10", base);
  Value otherwise = call.given[0] ? *call.given[0] : Value(int64_t(0));
  if (const Undefined *undefined = call.value.as<Undefined>())
    return Status::error("{}", *undefined->why);
  if (std::optional<int64_t> number = integerOf(call.value))
    return Value(*number);
  std::optional<double> real = numberOf(call.value);
  if (const std::string *text = call.value.text()) {
    if (std::optional<int64_t> number = readInteger(*text))
      return Value(*number);
    real = readFloat(*text);
  }
  if (!real || !std::isfinite(*real))
    return otherwise;
  if (std::abs(*real) >= 0x1p63)
    return Status::error(ErrorCode::unsupported, "the number is greater than {}", INT64_MAX);
  return Value(static_cast<int64_t>(*real));
}

Expected<Value> real(const Call &call) {
  if (const Undefined *undefined = call.value.as<Undefined>())
    return Status::error("{}", *undefined->why);
  std::optional<double> number = call.value.text() ? readFloat(*call.value.text()) : numberOf(call.value);
  return number ? Value(*number) : call.given[0] ? *call.given[0] : Value(0.0);
}

Expected<Value> absolute(const Call &call) {
  if (const double *number = call.value.as<double>())
    return Value(std::abs(*number));
  std::optional<int64_t> number = integerOf(call.value);
  if (!number)
    return Status::error("'{}' is no number", typeName(call.value));
  return *number < 0 ? call.builtins.binary("-", Value(int64_t(0)), Value(*number)) : Value(*number);
}

Expected<Value> round(const Call &call) {
  BRAID_ASSIGN(int64_t precision, call.given.integerOr(0, 0));
  BRAID_ASSIGN(std::string how, call.given.textOr(1, "common"));
  std::optional<double> number = numberOf(call.value);
  if (!number)
    return Status::error("'{}' is no number", typeName(call.value));
  if (precision < 0 || precision > 15)
    return Status::error(ErrorCode::unsupported, "precision {} is not read; valid: 0 to 15", precision);
  if (how == "common")
    return integerOf(call.value) ? Value(*integerOf(call.value))
                                 : Value(*readFloat(fmt::format("{:.{}f}", *number, precision)));
  if (how != "ceil" && how != "floor")
    return Status::error("method '{}' is none; valid: common, ceil, floor", escaped(how));
  double times = std::pow(10.0, static_cast<double>(precision)), scaled = *number * times;
  return Value((how == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / times);
}

// ---- Sequences ------------------------------------------------------------------------------------------------------

Expected<std::vector<Value>> itemsOf(const Call &call) { return elementsOf(call.budget, call.value); }

Expected<Value> length(const Call &call) {
  BRAID_ASSIGN(int64_t count, lengthOf(call.value));
  return Value(count);
}

Expected<Value> list(const Call &call) {
  BRAID_ASSIGN(std::vector<Value> items, itemsOf(call));
  return makeSequence(call.budget, std::move(items));
}

Expected<Value> otherwise(const Call &call) {
  bool missing = call.value.is<Undefined>() || (call.given.isTrue(1) && !isTrue(call.value));
  return !missing ? call.value : call.given[0] ? *call.given[0] : Value(std::string());
}

Expected<Value> first(const Call &call) {
  if (const Sequence *sequence = call.value.sequence()) {
    bool once = sequence->kind == Kind::iterator;
    size_t at = once ? sequence->taken : 0;
    if (at == sequence->items.size())
      return Value::undefined("there is no first item, the sequence is empty");
    sequence->taken += once;
    return sequence->items[at];
  }
  BRAID_ASSIGN(std::vector<Value> items, itemsOf(call));
  return items.empty() ? Value::undefined("there is no first item, the sequence is empty") : items[0];
}

Expected<Value> last(const Call &call) {
  if (const Sequence *sequence = call.value.sequence(); sequence && sequence->kind == Kind::iterator)
    return Status::error("'generator' has no last item; valid: |list before it");
  BRAID_ASSIGN(std::vector<Value> items, itemsOf(call));
  return items.empty() ? Value::undefined("there is no last item, the sequence is empty") : items.back();
}

Expected<Value> reverse(const Call &call) {
  BRAID_ASSIGN(std::vector<Value> items, itemsOf(call));
  std::ranges::reverse(items);
  if (!call.value.text())
    return makeSequence(call.budget, std::move(items), Kind::iterator);
  std::string text;
  for (const Value &item : items)
    text += *item.text();
  return makeText(call.budget, std::move(text));
}

Expected<Value> join(const Call &call) {
  BRAID_ASSIGN(std::vector<Value> items, itemsOf(call));
  std::string between, result;
  if (call.given[0]) {
    BRAID_ASSIGN(between, printed(*call.given[0]));
  }
  for (size_t i = 0; i < items.size(); ++i) {
    Value item = items[i];
    if (call.given[1] && !call.given[1]->is<None>()) {
      BRAID_ASSIGN(item, call.builtins.path(item, *call.given[1]));
    }
    BRAID_ASSIGN(std::string text, printed(item));
    BRAID_TRY(call.budget.take((between.size() + text.size()) / Budget::bytesOfStep));
    result += i > 0 ? between : "";
    result += text;
  }
  return Value(std::move(result));
}

Expected<Value> pairsOf(const Call &call) {
  if (call.value.is<Undefined>())
    return makeSequence(call.budget, {}, Kind::iterator);
  if (!call.value.dict())
    return Status::error("'{}' has no items with keys", typeName(call.value));
  BRAID_ASSIGN(Value view, call.builtins.method({call.value, "items", {}}, {}));
  return makeSequence(call.budget, view.sequence()->items, Kind::iterator);
}

// What is compared: an attribute, without case.
Expected<Value> keyOf(Builtins &builtins, const Value &item, const Value *attribute, bool caseSensitive) {
  Value key = item;
  if (attribute && !attribute->is<None>()) {
    if (attribute->text() && attribute->text()->find(',') != std::string::npos)
      return Status::error(ErrorCode::unsupported, "several attributes are not read");
    BRAID_ASSIGN(key, builtins.path(key, *attribute));
  }
  if (caseSensitive || !key.text())
    return key;
  return makeText(builtins.budget, lowerCase(*key.text()));
}

using Keyed = std::pair<Value, Value>;

Expected<std::vector<Keyed>> keyed(const Call &call, std::vector<Value> items, const Value *attribute,
                                   bool caseSensitive) {
  std::vector<Keyed> result;
  for (Value &item : items) {
    BRAID_ASSIGN(Value key, keyOf(call.builtins, item, attribute, caseSensitive));
    result.emplace_back(std::move(key), std::move(item));
  }
  return result;
}

// The items in the order of their keys.
Expected<std::vector<Value>> inOrder(Budget &budget, std::vector<Keyed> items, bool down) {
  Status status = Status::success();
  std::vector<size_t> order(items.size());
  std::iota(order.begin(), order.end(), 0);
  auto isLess = [&](const Value &a, const Value &b) {
    if (status.ok())
      status = budget.take(1 + std::min(extentOf(a).weight, extentOf(b).weight));
    if (!status.ok())
      return false;
    Expected<bool> is = less(a, b);
    if (!is)
      status = is.status();
    return is && *is;
  };
  // A heap, because it stays in bounds in whatever order a NaN is; equal ones stay as they were.
  auto before = [&](size_t i, size_t j) {
    const Value &a = items[i].first, &b = items[j].first;
    return down ? isLess(b, a) || (!isLess(a, b) && i < j) : isLess(a, b) || (!isLess(b, a) && i < j);
  };
  std::ranges::make_heap(order, before);
  std::ranges::sort_heap(order, before);
  BRAID_TRY(status);
  std::vector<Value> values;
  for (size_t i : order)
    values.push_back(std::move(items[i].second));
  return values;
}

Expected<Value> sort(const Call &call) {
  BRAID_ASSIGN(std::vector<Value> values, itemsOf(call));
  BRAID_ASSIGN(std::vector<Keyed> items, keyed(call, std::move(values), call.given[2], call.given.isTrue(1)));
  BRAID_ASSIGN(values, inOrder(call.budget, std::move(items), call.given.isTrue(0)));
  return makeSequence(call.budget, std::move(values));
}

Expected<Value> dictsort(const Call &call) {
  BRAID_ASSIGN(std::string by, call.given.textOr(1, "key"));
  if (by != "key" && by != "value")
    return Status::error("'by' is '{}'; valid: key, value", escaped(by));
  const Dict *dict = call.value.dict();
  if (!dict)
    return Status::error("'{}' is no dict", typeName(call.value));
  std::vector<Keyed> items;
  for (const auto &[key, value] : dict->entries) {
    BRAID_ASSIGN(Value pair, makeSequence(call.budget, {key, value}, Kind::tuple));
    BRAID_ASSIGN(Value compared, keyOf(call.builtins, by == "key" ? key : value, nullptr, call.given.isTrue(0)));
    items.emplace_back(std::move(compared), std::move(pair));
  }
  BRAID_ASSIGN(std::vector<Value> values, inOrder(call.budget, std::move(items), call.given.isTrue(2)));
  return makeSequence(call.budget, std::move(values));
}

Expected<Value> unique(const Call &call) {
  BRAID_ASSIGN(std::vector<Value> values, itemsOf(call));
  BRAID_ASSIGN(std::vector<Keyed> items, keyed(call, std::move(values), call.given[1], call.given.isTrue(0)));
  std::unordered_set<std::string> texts;
  std::vector<Value> others;
  values.clear();
  for (auto &[key, item] : items) {
    bool fresh = false;
    if (const std::string *text = key.text()) {
      fresh = texts.insert(*text).second;
    } else {
      for (const Value &other : others)
        BRAID_TRY(call.budget.take(std::min(extentOf(other).weight, extentOf(key).weight)));
      fresh = std::ranges::none_of(others, [&](const Value &other) { return equal(other, key); });
      if (fresh)
        others.push_back(key);
    }
    if (fresh)
      values.push_back(std::move(item));
  }
  return makeSequence(call.budget, std::move(values), Kind::iterator);
}

template <bool greatest> Expected<Value> extreme(const Call &call) {
  BRAID_ASSIGN(std::vector<Value> values, itemsOf(call));
  if (values.empty())
    return Value::undefined("there is no item, the sequence is empty");
  BRAID_ASSIGN(std::vector<Keyed> items, keyed(call, std::move(values), call.given[1], call.given.isTrue(0)));
  size_t best = 0;
  for (size_t i = 1; i < items.size(); ++i) {
    BRAID_ASSIGN(bool better,
                 greatest ? less(items[best].first, items[i].first) : less(items[i].first, items[best].first));
    best = better ? i : best;
  }
  return items[best].second;
}

Expected<Value> sum(const Call &call) {
  BRAID_ASSIGN(std::vector<Value> items, itemsOf(call));
  Value total = call.given[1] ? *call.given[1] : Value(int64_t(0));
  for (Value &item : items) {
    if (call.given[0] && !call.given[0]->is<None>()) {
      BRAID_ASSIGN(item, call.builtins.path(item, *call.given[0]));
    }
    if (item.text())
      return Status::error("adds numbers, but an item is a 'str'; valid: |join");
    BRAID_ASSIGN(total, call.builtins.binary("+", total, item));
  }
  return total;
}

// The arguments behind the first `count`.
Arguments behind(const Arguments &arguments, size_t count) {
  return {{arguments.values.begin() + static_cast<ptrdiff_t>(count), arguments.values.end()}, arguments.named};
}

Expected<Value> map(const Call &call) {
  std::vector<Value> items, result;
  if (isTrue(call.value)) {
    BRAID_ASSIGN(items, itemsOf(call));
  }
  const Value *attribute = nullptr, *otherwise = nullptr;
  if (call.arguments.values.empty())
    for (const auto &[name, value] : call.arguments.named) {
      if (name != "attribute" && name != "default")
        return Status::error("has no parameter '{}'", name);
      (name == "attribute" ? attribute : otherwise) = &value;
    }
  if (!attribute && (call.arguments.values.empty() || !call.arguments.values[0].text()))
    return Status::error("needs the name of a filter, or attribute=");
  for (Value &item : items) {
    if (attribute) {
      BRAID_ASSIGN(Value value, call.builtins.path(item, *attribute));
      result.push_back(value.is<Undefined>() && otherwise && !otherwise->is<None>() ? *otherwise : std::move(value));
    } else {
      BRAID_ASSIGN(Value value,
                   call.builtins.filter(*call.arguments.values[0].text(), item, behind(call.arguments, 1)));
      result.push_back(std::move(value));
    }
  }
  return makeSequence(call.budget, std::move(result), Kind::iterator);
}

template <bool wanted, bool ofAttribute> Expected<Value> select(const Call &call) {
  std::vector<Value> items, result;
  if (isTrue(call.value)) {
    BRAID_ASSIGN(items, itemsOf(call));
  }
  const std::vector<Value> &given = call.arguments.values;
  if (ofAttribute && given.empty())
    return Status::error("needs the name of an attribute");
  if (given.size() > ofAttribute && !given[ofAttribute].text())
    return Status::error("the name of a test is '{}'; valid: a str", typeName(given[ofAttribute]));
  for (Value &item : items) {
    Value tested = item;
    if (ofAttribute) {
      BRAID_ASSIGN(tested, call.builtins.path(tested, given[0]));
    }
    bool is = isTrue(tested);
    if (given.size() > ofAttribute) {
      BRAID_ASSIGN(is, call.builtins.test(*given[ofAttribute].text(), tested, behind(call.arguments, ofAttribute + 1)));
    }
    if (is == wanted)
      result.push_back(std::move(item));
  }
  return makeSequence(call.budget, std::move(result), Kind::iterator);
}

struct Filter {
  Expected<Value> (*apply)(const Call &call);
  std::vector<std::string_view> parameters = {};
  bool any = false; // arguments
};

const std::map<std::string_view, Filter> &filters() {
  static const std::map<std::string_view, Filter> all = {
      {"abs", {absolute}},
      {"capitalize", {changed<capitalized>}},
      {"count", {length}},
      {"d", {otherwise, {"default_value", "boolean"}}},
      {"default", {otherwise, {"default_value", "boolean"}}},
      {"dictsort", {dictsort, {"case_sensitive", "by", "reverse"}}},
      {"e", {escapeHtml}},
      {"escape", {escapeHtml}},
      {"first", {first}},
      {"float", {real, {"default"}}},
      {"format", {format, {}, true}},
      {"indent", {indent, {"width", "first", "blank"}}},
      {"int", {integer, {"default", "base"}}},
      {"items", {pairsOf}},
      {"join", {join, {"d", "attribute"}}},
      {"last", {last}},
      {"length", {length}},
      {"list", {list}},
      {"lower", {changed<lowerCase>}},
      {"map", {map, {}, true}},
      {"max", {extreme<true>, {"case_sensitive", "attribute"}}},
      {"min", {extreme<false>, {"case_sensitive", "attribute"}}},
      {"reject", {select<false, false>, {}, true}},
      {"rejectattr", {select<false, true>, {}, true}},
      {"replace", {replace, {"old", "new", "count"}}},
      {"reverse", {reverse}},
      {"round", {round, {"precision", "method"}}},
      {"safe", {safe}},
      {"select", {select<true, false>, {}, true}},
      {"selectattr", {select<true, true>, {}, true}},
      {"sort", {sort, {"reverse", "case_sensitive", "attribute"}}},
      {"string", {string}},
      {"sum", {sum, {"attribute", "start"}}},
      {"title", {changed<titled>}},
      {"tojson", {tojson, {"ensure_ascii", "indent", "separators", "sort_keys"}}},
      {"trim", {trim, {"chars"}}},
      {"unique", {unique, {"case_sensitive", "attribute"}}},
      {"upper", {changed<upperCase>}},
  };
  return all;
}

} // namespace

Expected<Value> Builtins::filter(const std::string &name, const Value &value, const Arguments &arguments) {
  auto found = filters().find(name);
  if (found == filters().end())
    return notRead("filter", name, filters());
  const Filter &filter = found->second;
  BRAID_TRY(budget.take(1));
  static const Arguments none;
  Expected<Bound> given = Bound::of(filter.any ? none : arguments, filter.parameters);
  Expected<Value> result = given ? filter.apply({*this, budget, value, *given, arguments}) : given.status();
  return result ? std::move(result) : result.status().withContext(fmt::format("filter '{}'", name));
}

} // namespace braid::runtime::jinja
