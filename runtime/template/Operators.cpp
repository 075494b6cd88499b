#include "runtime/io/JsonText.h"
#include "runtime/template/Builtins.h"
#include "runtime/text/Utf8.h"

#include <algorithm>
#include <cmath>

namespace braid::runtime::jinja {

namespace {

Status wrongOperands(std::string_view sign, const Value &left, const Value &right) {
  for (const Value *value : {&left, &right})
    if (const Undefined *undefined = value->as<Undefined>())
      return Status::error("{}", *undefined->why);
  return Status::error("'{}' does not take '{}' and '{}'", sign, typeName(left), typeName(right));
}

Status tooLarge() { return Status::error(ErrorCode::unsupported, "the number is greater than {}", INT64_MAX); }

Expected<Value> powerOf(int64_t base, int64_t exponent) {
  if (exponent < 0)
    return base == 0 ? Expected<Value>(Status::error("division by zero"))
                     : Value(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  int64_t result = 1;
  for (; exponent > 0; exponent >>= 1) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result))
      return tooLarge();
    if (exponent > 1 && __builtin_mul_overflow(base, base, &base))
      return tooLarge();
  }
  return Value(result);
}

Expected<Value> integers(std::string_view sign, int64_t left, int64_t right) {
  int64_t result = 0;
  if (sign == "+")
    return __builtin_add_overflow(left, right, &result) ? Expected<Value>(tooLarge()) : Value(result);
  if (sign == "-")
    return __builtin_sub_overflow(left, right, &result) ? Expected<Value>(tooLarge()) : Value(result);
  if (sign == "*")
    return __builtin_mul_overflow(left, right, &result) ? Expected<Value>(tooLarge()) : Value(result);
  if (sign == "**")
    return powerOf(left, right);
  if (right == 0)
    return Status::error("division by zero");
  if (sign == "/")
    return Value(static_cast<double>(left) / static_cast<double>(right));
  if (right == -1) // the least number has no positive one
    return sign == "%" ? Expected<Value>(Value(int64_t(0))) : integers("-", 0, left);
  int64_t quotient = left / right, remainder = left % right;
  bool below = remainder != 0 && (remainder < 0) != (right < 0); // Python rounds down
  return sign == "//" ? Value(quotient - below) : Value(below ? remainder + right : remainder);
}

Expected<Value> reals(std::string_view sign, double left, double right) {
  if (sign == "+")
    return Value(left + right);
  if (sign == "-")
    return Value(left - right);
  if (sign == "*")
    return Value(left * right);
  if (sign == "**")
    return left < 0 && right != std::floor(right)
               ? Expected<Value>(Status::error(ErrorCode::unsupported, "complex numbers are not read"))
               : Value(std::pow(left, right));
  if (right == 0)
    return Status::error("division by zero");
  if (sign == "/")
    return Value(left / right);
  double remainder = std::fmod(left, right);
  if (remainder != 0 && (remainder < 0) != (right < 0))
    remainder += right;
  return sign == "%" ? Value(remainder) : Value(std::floor((left - remainder) / right + 0.5));
}

Expected<Value> repeated(Budget &budget, const Value &value, int64_t times) {
  uint64_t count = static_cast<uint64_t>(std::max<int64_t>(times, 0));
  if (const std::string *text = value.text()) {
    if (!text->empty() && count > Budget::bytesOfStep * Budget::mostSteps / text->size())
      return budget.take(UINT64_MAX);
    BRAID_TRY(budget.take(count * text->size() / Budget::bytesOfStep));
    std::string result;
    result.reserve(count * text->size());
    for (uint64_t i = 0; i < count && !text->empty(); ++i)
      result += *text;
    return Value(std::move(result));
  }
  const Sequence &sequence = *value.sequence();
  if (!sequence.items.empty() && count > Budget::mostSteps / sequence.items.size())
    return budget.take(UINT64_MAX);
  BRAID_TRY(budget.take(count * sequence.items.size()));
  std::vector<Value> items;
  for (uint64_t i = 0; i < count && !sequence.items.empty(); ++i)
    items.insert(items.end(), sequence.items.begin(), sequence.items.end());
  return makeSequence(budget, std::move(items), sequence.kind);
}

bool isListOrTuple(const Value &value) {
  const Sequence *sequence = value.sequence();
  return sequence && (sequence->kind == Sequence::Kind::list || sequence->kind == Sequence::Kind::tuple);
}

bool isOneOf(std::string_view name, std::initializer_list<std::string_view> names) {
  return std::ranges::find(names, name) != names.end();
}

// Names that values of Python have as methods, read here or not.
bool isMethod(const Value &value, std::string_view name) {
  if (value.text())
    return isOneOf(name,
                   {"capitalize", "casefold",     "center",       "count",   "encode",     "endswith",    "expandtabs",
                    "find",       "format",       "format_map",   "index",   "isalnum",    "isalpha",     "isascii",
                    "isdecimal",  "isdigit",      "isidentifier", "islower", "isnumeric",  "isprintable", "isspace",
                    "istitle",    "isupper",      "join",         "ljust",   "lower",      "lstrip",      "maketrans",
                    "partition",  "removeprefix", "removesuffix", "replace", "rfind",      "rindex",      "rjust",
                    "rpartition", "rsplit",       "rstrip",       "split",   "splitlines", "startswith",  "strip",
                    "swapcase",   "title",        "translate",    "upper",   "zfill"});
  if (value.dict())
    return isOneOf(name, {"clear", "copy", "fromkeys", "get", "items", "keys", "pop", "popitem", "setdefault", "update",
                          "values"});
  if (const Sequence *sequence = value.sequence()) {
    if (sequence->kind == Sequence::Kind::list)
      return isOneOf(
          name, {"append", "clear", "copy", "count", "extend", "index", "insert", "pop", "remove", "reverse", "sort"});
    return (sequence->kind == Sequence::Kind::tuple || sequence->kind == Sequence::Kind::range) &&
           isOneOf(name, {"count", "index"});
  }
  return false;
}

Expected<Value> memberOf(const std::shared_ptr<const Loop> &loop, const std::string &name) {
  auto count = static_cast<int64_t>(loop->items.size()), index = static_cast<int64_t>(loop->index);
  if (name == "index")
    return Value(index + 1);
  if (name == "index0")
    return Value(index);
  if (name == "revindex")
    return Value(count - index);
  if (name == "revindex0")
    return Value(count - index - 1);
  if (name == "first")
    return Value(index == 0);
  if (name == "last")
    return Value(index + 1 == count);
  if (name == "length")
    return Value(count);
  if (name == "depth")
    return Value(int64_t(1)); // of recursive loops only
  if (name == "depth0")
    return Value(int64_t(0));
  if (name == "previtem")
    return index > 0 ? loop->items[loop->index - 1] : Value::undefined("there is no previous item");
  if (name == "nextitem")
    return index + 1 < count ? loop->items[loop->index + 1] : Value::undefined("there is no next item");
  if (name == "cycle")
    return makeMethod(Value(loop), name);
  if (name == "changed")
    return Status::error(ErrorCode::unsupported, "'loop.changed' is not read");
  return Value::undefined(fmt::format("'loop' has no member '{}'", escaped(name)));
}

// Where the elements of a slice stand, as Python counts them.
Expected<std::vector<size_t>> placesOf(int64_t length, const Value &begin, const Value &end, const Value &step) {
  int64_t bounds[3] = {0, 0, 1};
  bool given[3] = {};
  const Value *values[] = {&begin, &end, &step};
  for (int i = 0; i < 3; ++i) {
    std::optional<int64_t> number = integerOf(*values[i]);
    if (!number && !values[i]->is<None>())
      return Status::error("a bound of a slice is '{}'; valid: a whole number", typeName(*values[i]));
    given[i] = number.has_value();
    bounds[i] = number.value_or(bounds[i]);
  }
  if (bounds[2] == 0)
    return Status::error("the step of a slice is 0");
  bool down = bounds[2] < 0;
  int64_t least = down ? -1 : 0, most = down ? length - 1 : length;
  auto placed = [&](int i, int64_t otherwise) {
    if (!given[i])
      return otherwise;
    return std::clamp(bounds[i] < 0 ? std::max(bounds[i], -length - 1) + length : bounds[i], least, most);
  };
  int64_t first = placed(0, down ? most : least), last = placed(1, down ? least : most);
  std::vector<size_t> places;
  int64_t stride = std::clamp(bounds[2], -length - 1, length + 1);
  for (int64_t i = first; down ? i > last : i < last; i += stride)
    places.push_back(static_cast<size_t>(i));
  return places;
}

} // namespace

Expected<Value> Builtins::binary(std::string_view sign, const Value &left, const Value &right) {
  if (sign == "~") {
    BRAID_ASSIGN(std::string text, printed(left));
    BRAID_ASSIGN(std::string behind, printed(right));
    return makeText(budget, std::move(text) + behind);
  }
  if (sign == "%" && left.text()) {
    BRAID_ASSIGN(std::string text, percentFormatted(*left.text(), right));
    return makeText(budget, std::move(text));
  }
  if (std::optional<int64_t> a = integerOf(left), b = integerOf(right); a && b)
    return integers(sign, *a, *b);
  if (std::optional<double> a = numberOf(left), b = numberOf(right); a && b)
    return reals(sign, *a, *b);
  if (sign == "+" && left.text() && right.text()) {
    const Text &a = *left.as<Text>(), &b = *right.as<Text>();
    for (auto [safe, other] : {std::pair(a, b), {b, a}})
      if (safe.safe && !other.safe && other.bytes->find_first_of("&<>'\"") != std::string::npos)
        return Status::error(ErrorCode::unsupported,
                             "'+' escapes what is added to a text behind |safe, which is not read");
    BRAID_TRY(budget.take((a.bytes->size() + b.bytes->size()) / Budget::bytesOfStep));
    return Value(Text{std::make_shared<const std::string>(*a.bytes + *b.bytes), a.safe || b.safe});
  }
  if (sign == "+" && isListOrTuple(left) && isListOrTuple(right) && left.sequence()->kind == right.sequence()->kind) {
    BRAID_TRY(budget.take(left.sequence()->items.size() + right.sequence()->items.size()));
    std::vector<Value> items = left.sequence()->items;
    items.insert(items.end(), right.sequence()->items.begin(), right.sequence()->items.end());
    return makeSequence(budget, std::move(items), left.sequence()->kind);
  }
  if (sign == "*")
    for (auto [value, times] : {std::pair(&left, integerOf(right)), {&right, integerOf(left)}})
      if (times && (value->text() || isListOrTuple(*value)))
        return repeated(budget, *value, *times);
  return wrongOperands(sign, left, right);
}

Expected<bool> Builtins::compare(std::string_view sign, const Value &left, const Value &right) {
  if (sign == "in")
    return contains(budget, right, left);
  if (sign == "not in") {
    BRAID_ASSIGN(bool held, contains(budget, right, left));
    return !held;
  }
  BRAID_TRY(budget.take(std::min(extentOf(left).weight, extentOf(right).weight)));
  if (sign == "==" || sign == "!=")
    return equal(left, right) == (sign == "==");
  // Of a NaN all are false.
  if (std::optional<double> a = numberOf(left), b = numberOf(right); a && b && (std::isnan(*a) || std::isnan(*b)))
    return false;
  BRAID_ASSIGN(bool is, sign == "<" || sign == ">=" ? less(left, right) : less(right, left));
  return is == (sign == "<" || sign == ">");
}

Expected<Value> Builtins::member(const Value &value, const std::string &name) {
  if (const Undefined *undefined = value.as<Undefined>())
    return Status::error("{}: it has no '{}'", *undefined->why, escaped(name));
  if (isMethod(value, name))
    return makeMethod(value, name);
  if (const auto *loop = value.as<std::shared_ptr<const Loop>>())
    return memberOf(*loop, name);
  const Value *held = nullptr;
  if (const Dict *dict = value.dict())
    held = dict->find(name);
  else if (Namespace *const *space = value.as<Namespace *>())
    held = (*space)->values.find(name);
  return held ? *held : Value::undefined(fmt::format("'{}' has no member '{}'", typeName(value), escaped(name)));
}

Expected<Value> Builtins::item(const Value &value, const Value &key) {
  if (const Undefined *undefined = value.as<Undefined>())
    return Status::error("{}: it has no items", *undefined->why);
  if (const Dict *dict = value.dict()) {
    BRAID_TRY(budget.take(key.text() ? 1 : dict->extent.weight));
    if (const Value *held = dict->find(key))
      return *held;
  }
  if (std::optional<int64_t> index = integerOf(key)) {
    const Sequence *sequence = value.sequence();
    if (sequence && sequence->kind != Sequence::Kind::view && sequence->kind != Sequence::Kind::iterator) {
      auto count = static_cast<int64_t>(sequence->items.size());
      int64_t place = *index < 0 ? *index + count : *index;
      if (place >= 0 && place < count)
        return sequence->items[static_cast<size_t>(place)];
    } else if (value.text()) {
      BRAID_ASSIGN(std::vector<Value> characters, elementsOf(budget, value));
      auto count = static_cast<int64_t>(characters.size());
      int64_t place = *index < 0 ? *index + count : *index;
      if (place >= 0 && place < count)
        return characters[static_cast<size_t>(place)];
    }
    return Value::undefined(fmt::format("'{}' has no item {}", typeName(value), *index));
  }
  if (const std::string *name = key.text())
    return member(value, *name);
  return Value::undefined(fmt::format("'{}' has no such item", typeName(value)));
}

Expected<Value> Builtins::slice(const Value &value, const Value &begin, const Value &end, const Value &step) {
  const Sequence *sequence = value.sequence();
  bool sliced = sequence && sequence->kind != Sequence::Kind::view && sequence->kind != Sequence::Kind::iterator;
  if (const Undefined *undefined = value.as<Undefined>())
    return Status::error("{}: it has no items", *undefined->why);
  if (!sliced && !value.text())
    return Status::error("'{}' has no slices", typeName(value));
  BRAID_ASSIGN(std::vector<Value> items, elementsOf(budget, value));
  BRAID_ASSIGN(std::vector<size_t> places, placesOf(static_cast<int64_t>(items.size()), begin, end, step));
  std::vector<Value> taken;
  std::string text;
  for (size_t place : places)
    if (value.text())
      text += *items[place].text();
    else
      taken.push_back(items[place]);
  if (value.text())
    return makeText(budget, std::move(text));
  return makeSequence(budget, std::move(taken),
                      sequence->kind == Sequence::Kind::tuple ? Sequence::Kind::tuple : Sequence::Kind::list);
}

Expected<Value> Builtins::path(Value value, const Value &names) {
  if (integerOf(names))
    return item(value, names);
  if (!names.text())
    return Status::error("an attribute is '{}'; valid: a str", typeName(names));
  for (std::string_view rest = *names.text();;) {
    std::string_view name = rest.substr(0, rest.find('.'));
    std::optional<int64_t> index =
        name.find_first_not_of("0123456789") == std::string_view::npos ? readInteger(name) : std::nullopt;
    BRAID_ASSIGN(value, item(value, index ? Value(*index) : Value(std::string(name))));
    if (name.size() == rest.size())
      return value;
    rest.remove_prefix(name.size() + 1);
  }
}

} // namespace braid::runtime::jinja
