// Methods of values, and functions.
#include "runtime/io/JsonText.h"
#include "runtime/template/Builtins.h"
#include "runtime/text/Utf8.h"

#include <algorithm>
#include <charconv>

namespace braid::runtime::jinja {

// ---- Arguments ------------------------------------------------------------------------------------------------------

Expected<Bound> Bound::of(const Arguments &arguments, std::span<const std::string_view> parameters) {
  Bound bound;
  bound.parameters = parameters;
  bound.values.resize(parameters.size());
  if (arguments.values.size() > parameters.size())
    return Status::error("takes no more than {} arguments, not {}", parameters.size(), arguments.values.size());
  for (size_t i = 0; i < arguments.values.size(); ++i)
    bound.values[i] = &arguments.values[i];
  for (const auto &[name, value] : arguments.named) {
    auto found = std::ranges::find(parameters, std::string_view(name));
    if (found == parameters.end())
      return Status::error("has no parameter '{}'", name);
    const Value *&place = bound.values[static_cast<size_t>(found - parameters.begin())];
    if (place)
      return Status::error("has parameter '{}' twice", name);
    place = &value;
  }
  return bound;
}

Expected<std::string> Bound::textOr(size_t parameter, std::string_view otherwise) const {
  const Value *value = values[parameter];
  if (!value || value->is<None>())
    return std::string(otherwise);
  if (!value->text())
    return Status::error("parameter '{}' is '{}'; valid: a str", parameters[parameter], typeName(*value));
  return *value->text();
}

Expected<int64_t> Bound::integerOr(size_t parameter, int64_t otherwise) const {
  const Value *value = values[parameter];
  if (!value || value->is<None>())
    return otherwise;
  std::optional<int64_t> number = integerOf(*value);
  if (!number)
    return Status::error("parameter '{}' is '{}'; valid: a whole number", parameters[parameter], typeName(*value));
  return *number;
}

// ---- Texts ----------------------------------------------------------------------------------------------------------

std::string_view stripped(std::string_view text, Side side, const std::string *of) {
  auto goes = [&](std::string_view character) {
    return of ? of->find(character) != std::string::npos : isPythonSpace(firstCharacter(character));
  };
  while (side != Side::right && !text.empty() && goes(text.substr(0, firstCharacterBytes(text))))
    text.remove_prefix(firstCharacterBytes(text));
  while (side != Side::left && !text.empty() && goes(text.substr(lastCharacterBegin(text))))
    text.remove_suffix(text.size() - lastCharacterBegin(text));
  return text;
}

std::vector<std::string> splitLines(std::string_view text, bool keepEnds) {
  std::vector<std::string> lines;
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    char32_t character = firstCharacter(text.substr(at));
    size_t bytes = firstCharacterBytes(text.substr(at));
    bool ends = (character >= 0x0a && character <= 0x0d) || (character >= 0x1c && character <= 0x1e) ||
                character == 0x85 || character == 0x2028 || character == 0x2029;
    if (character == '\r' && text.substr(at + 1).starts_with('\n'))
      bytes = 2;
    if (ends) {
      lines.emplace_back(text.substr(begin, (keepEnds ? at + bytes : at) - begin));
      begin = at + bytes;
    }
    at += bytes;
  }
  if (begin < text.size())
    lines.emplace_back(text.substr(begin));
  return lines;
}

namespace {

using Texts = std::vector<std::string>;

// Python's split(); `most` below 0: all. Pieces of rsplit() are counted from the end. No more than there are steps for.
Texts splitText(std::string_view text, const std::string *separator, int64_t most, bool fromEnd) {
  Texts pieces;
  auto isMore = [&] { return most < 0 || static_cast<int64_t>(pieces.size()) < most; };
  if (!separator) { // at blanks, of which none is left
    Side front = fromEnd ? Side::right : Side::left;
    for (text = stripped(text, front, nullptr); !text.empty(); text = stripped(text, front, nullptr)) {
      size_t bytes = 0; // of the word
      auto word = [&] { return fromEnd ? text.substr(0, text.size() - bytes) : text.substr(bytes); };
      while (!word().empty()) {
        std::string_view rest = word();
        size_t begin = fromEnd ? lastCharacterBegin(rest) : 0;
        if (isPythonSpace(firstCharacter(rest.substr(begin))))
          break;
        bytes += fromEnd ? rest.size() - begin : firstCharacterBytes(rest);
      }
      if (!isMore() || pieces.size() > Budget::mostSteps) {
        pieces.emplace_back(text); // with the blanks at its other end
        break;
      }
      pieces.emplace_back(fromEnd ? text.substr(text.size() - bytes) : text.substr(0, bytes));
      fromEnd ? text.remove_suffix(bytes) : text.remove_prefix(bytes);
    }
  } else {
    for (;;) {
      size_t at = !isMore() ? std::string_view::npos : fromEnd ? text.rfind(*separator) : text.find(*separator);
      if (at == std::string_view::npos || pieces.size() > Budget::mostSteps)
        break;
      pieces.emplace_back(fromEnd ? text.substr(at + separator->size()) : text.substr(0, at));
      text = fromEnd ? text.substr(0, at) : text.substr(at + separator->size());
    }
    pieces.emplace_back(text);
  }
  if (fromEnd)
    std::ranges::reverse(pieces);
  return pieces;
}

Expected<Value> listOf(Budget &budget, Texts texts, Sequence::Kind kind = Sequence::Kind::list) {
  std::vector<Value> items;
  for (std::string &text : texts) {
    BRAID_TRY(budget.take(1 + text.size() / Budget::bytesOfStep));
    items.emplace_back(std::move(text));
  }
  return makeSequence(budget, std::move(items), kind);
}

// The number of characters before a byte.
int64_t charactersBefore(std::string_view text, size_t byte) {
  return *lengthOf(Value(std::string(text.substr(0, byte))));
}

bool isEvery(std::string_view text, bool (*is)(char32_t)) {
  if (text.empty())
    return false;
  for (; !text.empty(); text.remove_prefix(firstCharacterBytes(text)))
    if (!is(firstCharacter(text)))
      return false;
  return true;
}

Expected<Value> replaced(Budget &budget, const std::string &text, const std::string &from, const std::string &to,
                         int64_t most) {
  std::string result;
  size_t at = 0;
  for (int64_t i = 0; most < 0 || i < most; ++i) {
    size_t found = from.empty() ? (i == 0             ? 0
                                   : at < text.size() ? at + firstCharacterBytes(std::string_view(text).substr(at))
                                                      : std::string::npos)
                                : text.find(from, at);
    if (found == std::string::npos)
      break;
    result.append(text, at, found - at);
    BRAID_TRY(budget.take(1 + to.size() / Budget::bytesOfStep));
    result += to;
    at = found + from.size();
  }
  result.append(text, at);
  return makeText(budget, std::move(result));
}

class TextMethod {
public:
  TextMethod(Builtins &builtins, const Method &method, const Arguments &arguments)
      : builtins(builtins), budget(builtins.budget), text(*method.self.text()), name(method.name),
        arguments(arguments) {}

  Expected<Value> call() {
    BRAID_TRY(budget.take(text.size() / 16));
    if (name == "strip" || name == "lstrip" || name == "rstrip") {
      BRAID_ASSIGN(Bound given, bound({"chars"}));
      BRAID_ASSIGN(std::string characters, given.textOr(0, ""));
      Side side = name == "strip" ? Side::both : name == "lstrip" ? Side::left : Side::right;
      bool blanks = !given[0] || given[0]->is<None>();
      return made(std::string(stripped(text, side, blanks ? nullptr : &characters)));
    }
    if (name == "split" || name == "rsplit")
      return split();
    if (name == "startswith" || name == "endswith")
      return starts();
    if (name == "find" || name == "rfind" || name == "index" || name == "rindex" || name == "count")
      return find();
    if (name == "partition" || name == "rpartition")
      return partition();
    if (name == "splitlines") {
      BRAID_ASSIGN(Bound given, bound({"keepends"}));
      return listOf(budget, splitLines(text, given.isTrue(0)));
    }
    if (name == "replace") {
      BRAID_ASSIGN(Bound given, bound({"old", "new", "count"}, 2));
      BRAID_ASSIGN(std::string from, given.textOr(0, ""));
      BRAID_ASSIGN(std::string to, given.textOr(1, ""));
      BRAID_ASSIGN(int64_t most, given.integerOr(2, -1));
      return replaced(budget, text, from, to, most);
    }
    if (name == "removeprefix" || name == "removesuffix") {
      BRAID_ASSIGN(Bound given, bound({"affix"}, 1));
      BRAID_ASSIGN(std::string affix, given.textOr(0, ""));
      std::string_view rest = text;
      if (name == "removeprefix" && rest.starts_with(affix))
        rest.remove_prefix(affix.size());
      else if (name == "removesuffix" && rest.ends_with(affix))
        rest.remove_suffix(affix.size());
      return made(std::string(rest));
    }
    if (name == "join") {
      BRAID_ASSIGN(Bound given, bound({"iterable"}, 1));
      return join(*given[0]);
    }
    if (name == "format") {
      BRAID_ASSIGN(std::string result, braceFormatted(builtins, text, arguments));
      return made(std::move(result));
    }
    if (name == "zfill") {
      BRAID_ASSIGN(Bound given, bound({"width"}, 1));
      BRAID_ASSIGN(int64_t width, given.integerOr(0, 0));
      return zfill(width);
    }
    BRAID_TRY(bound({}).status());
    if (name == "upper")
      return made(upperCase(text));
    if (name == "lower")
      return made(lowerCase(text));
    if (name == "title")
      return made(titleCase(text));
    if (name == "capitalize") {
      size_t first = text.empty() ? 0 : firstCharacterBytes(text);
      return made(titleCase(text.substr(0, first)) + lowerCase(text.substr(first)));
    }
    if (name == "isdigit" && isAscii())
      return Value(isEvery(text, [](char32_t c) { return c >= '0' && c <= '9'; }));
    if ((name == "isalpha" || name == "isalnum") && isAscii()) {
      bool digits = name == "isalnum";
      return Value(!text.empty() && std::ranges::all_of(text, [&](char c) {
        return (digits && c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z');
      }));
    }
    if (name == "isspace")
      return Value(isEvery(text, isPythonSpace));
    if (name == "isupper")
      return Value(upperCase(text) == text && lowerCase(text) != text);
    if (name == "islower")
      return Value(lowerCase(text) == text && upperCase(text) != text);
    return Status::error(ErrorCode::unsupported, "is not read{}",
                         name.starts_with("is") ? " (of letters beyond ASCII)" : "");
  }

private:
  bool isAscii() const {
    return std::ranges::all_of(text, [](char c) { return static_cast<unsigned char>(c) < 0x80; });
  }
  Expected<Value> made(std::string result) { return makeText(budget, std::move(result)); }

  Expected<Bound> bound(std::initializer_list<std::string_view> names, size_t needed = 0) {
    parameters.assign(names.begin(), names.end());
    BRAID_ASSIGN(Bound given, Bound::of(arguments, parameters));
    for (size_t i = 0; i < needed; ++i)
      if (!given[i] || given[i]->is<None>())
        return Status::error("needs parameter '{}'", parameters[i]);
    return given;
  }

  Expected<Value> split() {
    BRAID_ASSIGN(Bound given, bound({"sep", "maxsplit"}));
    BRAID_ASSIGN(int64_t most, given.integerOr(1, -1));
    bool blanks = !given[0] || given[0]->is<None>();
    BRAID_ASSIGN(std::string separator, given.textOr(0, ""));
    if (!blanks && separator.empty())
      return Status::error("parameter 'sep' is empty");
    return listOf(budget, splitText(text, blanks ? nullptr : &separator, most, name == "rsplit"));
  }

  Expected<Value> starts() {
    BRAID_ASSIGN(Bound given, bound({"affix"}, 1));
    std::vector<Value> affixes{*given[0]};
    if (const Sequence *several = given[0]->sequence(); several && several->kind == Sequence::Kind::tuple)
      affixes = several->items;
    for (const Value &affix : affixes) {
      if (!affix.text())
        return Status::error("asks for a str or several in round brackets, not for '{}'", typeName(affix));
      if (name == "startswith" ? text.starts_with(*affix.text()) : text.ends_with(*affix.text()))
        return Value(true);
    }
    return Value(false);
  }

  Expected<Value> find() {
    BRAID_ASSIGN(Bound given, bound({"sub"}, 1));
    BRAID_ASSIGN(std::string sub, given.textOr(0, ""));
    if (name == "count") {
      if (sub.empty())
        return Value(*lengthOf(Value(text)) + 1);
      int64_t count = 0;
      for (size_t at = text.find(sub); at != std::string::npos; at = text.find(sub, at + sub.size()))
        ++count;
      return Value(count);
    }
    size_t at = name.starts_with('r') ? text.rfind(sub) : text.find(sub);
    if (at != std::string::npos)
      return Value(charactersBefore(text, at));
    return name.ends_with("find") ? Expected<Value>(Value(int64_t(-1)))
                                  : Status::error("does not find '{}'", escaped(sub));
  }

  Expected<Value> partition() {
    BRAID_ASSIGN(Bound given, bound({"sep"}, 1));
    BRAID_ASSIGN(std::string separator, given.textOr(0, ""));
    if (separator.empty())
      return Status::error("parameter 'sep' is empty");
    bool last = name == "rpartition";
    size_t at = last ? text.rfind(separator) : text.find(separator);
    Texts parts = at != std::string::npos ? Texts{text.substr(0, at), separator, text.substr(at + separator.size())}
                  : last                  ? Texts{"", "", text}
                                          : Texts{text, "", ""};
    return listOf(budget, std::move(parts), Sequence::Kind::tuple);
  }

  Expected<Value> join(const Value &iterable) {
    BRAID_ASSIGN(std::vector<Value> items, elementsOf(budget, iterable));
    std::string result;
    for (size_t i = 0; i < items.size(); ++i) {
      if (!items[i].text())
        return Status::error("joins texts, but item {} is '{}'", i, typeName(items[i]));
      BRAID_TRY(budget.take((text.size() + items[i].text()->size()) / Budget::bytesOfStep));
      result += i > 0 ? text : "";
      result += *items[i].text();
    }
    return Value(std::move(result));
  }

  Expected<Value> zfill(int64_t width) {
    int64_t missing = width - *lengthOf(Value(text));
    if (missing <= 0)
      return Value(text);
    BRAID_TRY(budget.take(static_cast<uint64_t>(missing)));
    size_t sign = text.starts_with('-') || text.starts_with('+');
    return made(text.substr(0, sign) + std::string(static_cast<size_t>(missing), '0') + text.substr(sign));
  }

  Builtins &builtins;
  Budget &budget;
  const std::string &text, &name;
  const Arguments &arguments;
  std::vector<std::string_view> parameters;
};

Expected<Value> callDict(Budget &budget, const Dict &dict, const Value &self, const std::string &name,
                         const Arguments &arguments) {
  if (name != "get" && name != "copy" && name != "keys" && name != "values" && name != "items")
    return Status::error(ErrorCode::unsupported, "is not read: no dict is changed; valid: dict(other, key=value)");
  static constexpr std::string_view ofGet[] = {"key", "default"};
  BRAID_ASSIGN(Bound given, Bound::of(arguments, name == "get" ? std::span(ofGet) : std::span(ofGet, 0)));
  if (name == "get") {
    if (!given[0])
      return Status::error("needs parameter 'key'");
    BRAID_TRY(checkKey(budget, dict, *given[0]));
    const Value *held = dict.find(*given[0]);
    return held ? *held : given[1] ? *given[1] : Value(None());
  }
  if (name == "copy")
    return self;
  BRAID_TRY(budget.take(dict.entries.size()));
  std::vector<Value> items;
  for (const auto &[key, value] : dict.entries) {
    if (name != "items") {
      items.push_back(name == "keys" ? key : value);
      continue;
    }
    BRAID_ASSIGN(Value pair, makeSequence(budget, {key, value}, Sequence::Kind::tuple));
    items.push_back(std::move(pair));
  }
  return makeSequence(budget, std::move(items), Sequence::Kind::view, "dict_" + name);
}

Expected<Value> callSequence(Budget &budget, const Sequence &sequence, const Value &self, const std::string &name,
                             const Arguments &arguments) {
  if (name != "copy" && name != "count" && name != "index")
    return Status::error(ErrorCode::unsupported, "is not read: no list is changed; valid: list + [item], a slice");
  static constexpr std::string_view ofIndex[] = {"value"};
  BRAID_ASSIGN(Bound given, Bound::of(arguments, name == "copy" ? std::span(ofIndex, 0) : std::span(ofIndex)));
  if (name == "copy")
    return self;
  if (!given[0])
    return Status::error("needs parameter 'value'");
  BRAID_TRY(budget.take(sequence.extent.weight));
  auto is = [&](const Value &item) { return equal(item, *given[0]); };
  if (name == "count")
    return Value(static_cast<int64_t>(std::ranges::count_if(sequence.items, is)));
  auto found = std::ranges::find_if(sequence.items, is);
  if (found == sequence.items.end())
    return Status::error("does not find the value");
  return Value(static_cast<int64_t>(found - sequence.items.begin()));
}

Expected<Value> range(Budget &budget, const Arguments &arguments) {
  static constexpr std::string_view names[] = {"start", "stop", "step"};
  BRAID_ASSIGN(Bound given, Bound::of(arguments, names));
  int64_t start = 0, stop = 0;
  if (!given[0])
    return Status::error("needs an argument");
  for (const Value &value : arguments.values)
    if (!integerOf(value))
      return Status::error("asks for whole numbers, not for '{}'", typeName(value));
  BRAID_ASSIGN(stop, given.integerOr(0, 0));
  if (given[1]) {
    start = stop;
    BRAID_ASSIGN(stop, given.integerOr(1, 0));
  }
  BRAID_ASSIGN(int64_t step, given.integerOr(2, 1));
  if (step == 0)
    return Status::error("the step is 0");
  constexpr int64_t most = 100000, bound = int64_t(1) << 60; // most: of the sandbox
  for (int64_t number : {start, stop, step})
    if (number > bound || number < -bound)
      return Status::error(ErrorCode::unsupported, "the number {} is beyond {}", number, bound);
  int64_t count = step > 0 ? (stop - start + step - 1) / step : (start - stop - step - 1) / -step;
  if (count > most)
    return Status::error("has {} numbers; valid: {} at most", count, most);
  std::vector<Value> items;
  for (int64_t i = 0; i < count; ++i)
    items.emplace_back(start + i * step);
  return makeSequence(budget, std::move(items), Sequence::Kind::range,
                      step == 1 ? fmt::format("range({}, {})", start, stop)
                                : fmt::format("range({}, {}, {})", start, stop, step));
}

Expected<Value> dictOf(Budget &budget, const Arguments &arguments) {
  Dict dict;
  if (arguments.values.size() > 1)
    return Status::error("takes no more than 1 argument, not {}", arguments.values.size());
  if (!arguments.values.empty()) {
    if (const Dict *other = arguments.values[0].dict()) {
      dict = *other;
    } else {
      BRAID_ASSIGN(std::vector<Value> pairs, elementsOf(budget, arguments.values[0]));
      for (const Value &pair : pairs) {
        BRAID_ASSIGN(std::vector<Value> parts, elementsOf(budget, pair));
        if (parts.size() != 2)
          return Status::error("a pair has {} items", parts.size());
        BRAID_TRY(insert(budget, dict, parts[0], parts[1]));
      }
    }
  }
  for (const auto &[name, value] : arguments.named)
    dict.set(Value(name), value);
  return makeDict(budget, std::move(dict));
}

// The time of day here; what Python itself writes in place of the C library is that of times without a zone.
Expected<Value> strftimeNow(Budget &budget, const Arguments &arguments, std::time_t now) {
  static constexpr std::string_view names[] = {"format"};
  BRAID_ASSIGN(Bound given, Bound::of(arguments, names));
  BRAID_ASSIGN(std::string format, given.textOr(0, ""));
  std::string known;
  for (size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%' || i + 1 == format.size()) {
      known += format[i];
      continue;
    }
    char letter = format[++i];
    if (letter == 'f')
      known += "000000";
    else if (letter != 'z' && letter != 'Z')
      known += {'%', letter};
  }
  std::tm time = {};
  std::string result(known.size() * 64 + 64, '\0');
  if (!localtime_r(&now, &time))
    return Status::error("there is no time of day");
  result.resize(known.empty() ? 0 : std::strftime(result.data(), result.size(), known.c_str(), &time));
  return makeText(budget, std::move(result));
}

} // namespace

Expected<Value> Builtins::method(const Method &method, const Arguments &arguments) {
  const Value &self = method.self;
  Expected<Value> result = Value();
  if (self.text())
    result = TextMethod(*this, method, arguments).call();
  else if (const Dict *dict = self.dict())
    result = callDict(budget, *dict, self, method.name, arguments);
  else if (const Sequence *sequence = self.sequence())
    result = callSequence(budget, *sequence, self, method.name, arguments);
  else if (const auto *loop = self.as<std::shared_ptr<const Loop>>()) // cycle
    result = arguments.values.empty() ? Expected<Value>(Status::error("has nothing to go through"))
                                      : arguments.values[(*loop)->index % arguments.values.size()];
  return result ? std::move(result)
                : result.status().withContext(fmt::format("method '{}' of '{}'", method.name, typeName(self)));
}

Expected<Value> Builtins::function(Function function, const Arguments &arguments) {
  switch (function) {
  case Function::range: {
    Expected<Value> result = jinja::range(budget, arguments);
    return result ? std::move(result) : result.status().withContext("'range'");
  }
  case Function::dict:
  case Function::makeNamespace: {
    Expected<Value> result = dictOf(budget, arguments);
    return result ? std::move(result)
                  : result.status().withContext(function == Function::dict ? "'dict'" : "'namespace'");
  }
  case Function::strftimeNow: {
    Expected<Value> result = strftimeNow(budget, arguments, now);
    return result ? std::move(result) : result.status().withContext("'strftime_now'");
  }
  case Function::raiseException: {
    BRAID_ASSIGN(std::string message,
                 arguments.values.empty() ? Expected<std::string>("") : printed(arguments.values[0]));
    return Status::error("the template refuses this: {}", message);
  }
  }
  return Status::error(ErrorCode::internal, "no function");
}

} // namespace braid::runtime::jinja
