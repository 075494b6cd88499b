//===- Json.cpp - reading and checking JSON without exceptions ----------------------------------------------------===//
#include "frontend/Json.h"
#include "runtime/schema/PythonJson.h"
#include "runtime/schema/WatchedText.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FormatVariadic.h"
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

using namespace braid;
using namespace braid::json;
using llvm::StringRef;

const Value *Value::find(StringRef key) const {
  for (const auto &[name, value] : fields)
    if (name == key)
      return &value;
  return nullptr;
}

static std::string inQuotes(StringRef text) { return "\"" + shownText(text, 40) + "\""; }

std::string json::describe(const Value &value) {
  switch (value.kind) {
  case Kind::null: return "null";
  case Kind::boolean: return value.boolean ? "true" : "false";
  case Kind::integer: return std::to_string(value.integer);
  case Kind::number: return value.string.empty() ? numberText(value.number) : shownText(value.string, 40);
  case Kind::string: return inQuotes(value.string);
  case Kind::array: return "a list";
  case Kind::object: return "an object";
  }
  llvm_unreachable("all kinds are above");
}

std::string json::join(llvm::ArrayRef<StringRef> names) { return llvm::join(names, ", "); }

namespace {

constexpr size_t maxDepth = 32, maxKeys = 1000;

/// The line of the last character read but one: the lexer reads one character beyond a number, perhaps a line's end.
struct LineCount {
  int64_t line = 1;
  bool endOfLine = false;
  void operator()(const char *passed) {
    line += endOfLine;
    endOfLine = *passed == '\n';
  }
};

/// SAX events -> Value. Returning false stops the parser.
class TreeBuilder {
public:
  TreeBuilder(const int64_t &line, StringRef filename, DiagnosticFn error)
      : line(line), filename(filename), error(error) {}

  Value root;
  bool failed = false;

  bool null() { return add({}) != nullptr; }
  bool boolean(bool value) {
    Value v;
    v.kind = Kind::boolean, v.boolean = value;
    return add(std::move(v)) != nullptr;
  }
  bool number_integer(int64_t value) {
    Value v;
    v.kind = Kind::integer, v.integer = value, v.number = static_cast<double>(value);
    return add(std::move(v)) != nullptr;
  }
  bool number_unsigned(uint64_t value) {
    if (value > static_cast<uint64_t>(INT64_MAX))
      return number_float(static_cast<double>(value), std::to_string(value));
    return number_integer(static_cast<int64_t>(value));
  }
  bool number_float(double value, const std::string &text) {
    Value v;
    v.kind = Kind::number, v.number = value;
    bool becameZero =
        value == 0 && StringRef(text).split('e').first.split('E').first.find_first_of("123456789") != StringRef::npos;
    if (std::abs(value) >= 0x1p53 || becameZero)
      v.string = text;
    return add(std::move(v)) != nullptr;
  }
  bool string(std::string &value) {
    Value v;
    v.kind = Kind::string, v.string = std::move(value);
    return add(std::move(v)) != nullptr;
  }
  bool binary(nlohmann::json::binary_t &) { return fail("binary values are not JSON"); }
  bool start_object(size_t) { return open(Kind::object); }
  bool start_array(size_t) { return open(Kind::array); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }
  bool key(std::string &name) {
    const Value &object = *stack.back();
    if (object.find(name))
      return fail("key " + inQuotes(name) + " appears twice in one object");
    if (object.fields.size() >= maxKeys)
      return fail(llvm::formatv("an object has more than {0} keys", maxKeys).str());
    pendingKey = std::move(name);
    return true;
  }
  bool parse_error(size_t, const std::string &token, const nlohmann::detail::exception &reason) {
    // "[json.exception.parse_error.101] parse error at line 1, column 2: syntax error while ..": our own line is
    // enough.
    StringRef text = StringRef(reason.what()).split("] ").second;
    if (text.starts_with("number overflow"))
      return fail(pathOfNext() + shownText(token, 40) + " is too large for a number; valid: at most 1e308");
    if (text.starts_with("parse error"))
      text = text.split(": ").second;
    return fail(shownText(text, 160));
  }

private:
  bool fail(const std::string &message) {
    if (!failed)
      error(llvm::formatv("{0}:{1}: {2}", filename, line, message).str());
    failed = true;
    return false;
  }
  Value *add(Value value) {
    value.line = line;
    if (stack.empty())
      return &(root = std::move(value));
    Value &parent = *stack.back();
    if (parent.kind == Kind::array)
      return &parent.items.emplace_back(std::move(value));
    return &parent.fields.emplace_back(Field{std::move(pendingKey), std::move(value)}).value;
  }
  bool open(Kind kind) {
    if (stack.size() >= maxDepth)
      return fail(llvm::formatv("nesting is deeper than {0}", maxDepth).str());
    Value v;
    v.kind = kind;
    stack.push_back(add(std::move(v)));
    return true;
  }
  bool close() {
    stack.pop_back();
    return true;
  }
  /// "mixers.L.decay_range[1]: ", where the value that comes next stands; nothing for the whole text.
  std::string pathOfNext() const {
    std::string path;
    for (auto [depth, value] : llvm::enumerate(stack)) {
      bool last = depth + 1 == stack.size();
      if (value->kind == Kind::array)
        path += "[" + std::to_string(last ? value->items.size() : value->items.size() - 1) + "]";
      else
        path += (path.empty() ? "" : ".") + shownText(last ? pendingKey : value->fields.back().name, 64);
    }
    return path.empty() ? path : path + ": ";
  }

  const int64_t &line;
  StringRef filename;
  DiagnosticFn error;
  // A parent's vector may grow only while its last element is complete, so these pointers stay valid.
  std::vector<Value *> stack;
  std::string pendingKey;
};

} // namespace

std::optional<Value> json::parse(StringRef text, StringRef filename, DiagnosticFn error) {
  LineCount count;
  TreeBuilder builder(count.line, filename, error);
  // The library takes a NUL for the end of the text.
  if (size_t nul = text.find('\0'); nul != StringRef::npos) {
    error(llvm::formatv("{0}:{1}: holds a NUL byte; valid: JSON as UTF-8 text", filename,
                        1 + text.take_front(nul).count('\n'))
              .str());
    return std::nullopt;
  }
  std::string quoted = quoteBareWords(text);
  text = quoted;
  WatchedText<LineCount> begin{text.begin(), &count}, end{text.end(), &count};
  bool ok = nlohmann::json::sax_parse(begin, end, &builder, nlohmann::json::input_format_t::json, /*strict=*/true,
                                      /*ignore_comments=*/true);
  if (!ok || builder.failed)
    return std::nullopt;
  return std::move(builder.root);
}

std::optional<Value> json::parseObject(StringRef text, StringRef filename, DiagnosticFn error, StringRef valid) {
  std::optional<Value> root = parse(text, filename, error);
  if (!root || root->kind == Kind::object)
    return root;
  Errors(*root, filename, error).report("", describe(*root) + " is not an object; valid: " + valid.str());
  return std::nullopt;
}

void json::applyOverride(Value &root, const KeyOverride &key) {
  if (root.kind != Kind::object)
    return;
  llvm::SmallVector<StringRef> parts;
  key.path.split(parts, '.');
  Value *at = &root;
  for (auto [i, part] : llvm::enumerate(parts)) {
    auto field = llvm::find_if(at->fields, [&](const Field &f) { return f.name == part; });
    if (field == at->fields.end()) {
      Field fresh{part.str(), {}};
      fresh.value.kind = Kind::object;
      fresh.value.line = at->line;
      at->fields.push_back(std::move(fresh));
      field = std::prev(at->fields.end());
    }
    bool last = i + 1 == parts.size();
    if (!last && field->value.kind != Kind::object)
      return;
    at = &field->value;
  }
  Value value;
  value.line = at->line;
  value.flag = key.flag;
  if (const auto *integer = std::get_if<int64_t>(&key.value)) {
    value.kind = Kind::integer, value.integer = *integer, value.number = static_cast<double>(*integer);
  } else if (const auto *number = std::get_if<double>(&key.value)) {
    value.kind = Kind::number, value.number = *number;
  } else {
    value.kind = Kind::string, value.string = std::get<std::string>(key.value);
  }
  *at = std::move(value);
}

Value json::numberValue(int64_t number) {
  Value v;
  v.kind = Kind::integer, v.integer = number, v.number = static_cast<double>(number);
  return v;
}
Value json::numberValue(double number) {
  Value v;
  v.kind = Kind::number, v.number = number;
  return v;
}
Value json::stringValue(StringRef text) {
  Value v;
  v.kind = Kind::string, v.string = text.str();
  return v;
}
Value json::boolValue(bool flag) {
  Value v;
  v.kind = Kind::boolean, v.boolean = flag;
  return v;
}
Value json::objectValue(std::vector<Field> fields) {
  Value v;
  v.kind = Kind::object, v.fields = std::move(fields);
  return v;
}
Value json::arrayValue(std::vector<Value> items) {
  Value v;
  v.kind = Kind::array, v.items = std::move(items);
  return v;
}

//===- Errors -----------------------------------------------------------------------------------------------------===//

const Value &Errors::deepest(StringRef &rest) const {
  const Value *at = &root;
  for (; !rest.empty(); rest.consume_front(".")) {
    // Keys may have dots themselves (names of weights): the longest that fits.
    const Field *next = nullptr;
    for (const Field &field : at->fields) {
      StringRef after = rest;
      if (after.consume_front(field.name) && (after.empty() || after[0] == '.' || after[0] == '[') &&
          field.name.size() > (next ? next->name.size() : 0))
        next = &field;
    }
    if (!next)
      break;
    at = &next->value;
    rest = rest.drop_front(next->name.size());
    for (size_t item = 0; rest.consume_front("[") && !rest.consumeInteger(10, item); rest.consume_front("]"))
      if (item < at->items.size())
        at = &at->items[item];
  }
  return *at;
}

std::string Errors::shown(StringRef path) const {
  StringRef rest = path;
  const Value &at = deepest(rest);
  if (at.origin.empty())
    return shownText(path, 256);
  return at.origin + (rest.empty() ? "" : "." + rest).str();
}

std::string Errors::nameOf(StringRef path) const {
  StringRef rest = path;
  const Value &at = deepest(rest);
  return rest.empty() && !at.origin.empty() ? at.origin : keyName(path.str());
}

void Errors::report(StringRef path, const std::string &message) {
  ++count;
  StringRef rest = path;
  const Value &at = deepest(rest);
  std::string where = path.empty() ? std::string() : shown(path) + ": ";
  std::string sentence = at.flag.empty() ? llvm::formatv("{0}:{1}: {2}{3}", filename, at.line, where, message).str()
                                         : (at.flag + ": " + message).str();
  constexpr size_t most = 20; // one wrong file should not fill the screen
  if (said.size() < most && said.insert(sentence).second) // a value of a config may be read by several parts
    error(sentence);
}

//===- Reader -----------------------------------------------------------------------------------------------------===//

Reader::Reader(const Value &object, std::string path, Errors &errors)
    : object(object), path(std::move(path)), errors(errors) {}

Reader::~Reader() {
  if (ignored)
    return;
  for (const auto &[name, value] : object.fields) {
    if (llvm::is_contained(known, name))
      continue;
    StringRef nearest;
    unsigned best = static_cast<unsigned>(name.size()) / 3 + 1;
    std::vector<StringRef> valid;
    llvm::copy_if(known, std::back_inserter(valid),
                  [&](const std::string &key) { return !llvm::is_contained(refused, key); });
    for (StringRef candidate : name.size() < 2 ? std::vector<StringRef>() : valid) { // of one letter all are near
      unsigned distance = StringRef(name).take_front(64).edit_distance(candidate, true, best);
      if (distance < best || (distance == best && nearest.empty()))
        best = distance, nearest = candidate;
    }
    if (object.find(nearest)) // it is there: another one is meant
      nearest = "";
    std::string message = "unknown key";
    if (!nearest.empty())
      message += "; did you mean " + nearest.str() + "?";
    if (valid.empty())
      message += "; none is accepted here yet";
    else if (nearest.empty())
      message += "; valid: " + join(valid);
    errors.report(pathOf(name), message);
  }
}

std::string Reader::pathOf(StringRef key) const { return path.empty() ? key.str() : path + "." + key.str(); }
void Reader::error(StringRef key, const std::string &message) { errors.report(pathOf(key), message); }

const Value *Reader::take(StringRef key) {
  if (!llvm::is_contained(known, key))
    known.push_back(key.str());
  return object.find(key);
}

const Value *Reader::require(StringRef key, StringRef hint) {
  const Value *value = take(key);
  if (!value)
    error(key, ("is missing; " + hint).str());
  return value;
}

void Reader::refuse(StringRef key, const std::string &message) {
  refused.push_back(key.str());
  if (take(key))
    error(key, message);
}

const Value *Reader::typed(StringRef key, bool (*test)(const Value &), const llvm::Twine &what) {
  const Value *value = take(key);
  if (!value || test(*value))
    return value;
  error(key, (describe(*value) + " is not " + what).str());
  return nullptr;
}

void Reader::noteDefault(StringRef key, bool isValid, llvm::json::Value value) {
  if (isValid)
    errors.defaults.try_emplace(llvm::json::fixUTF8(pathOf(key)), std::move(value));
}

void Reader::integer(StringRef key, int64_t &value, int64_t least, int64_t most) {
  noteDefault(key, least <= value && value <= most, value);
  // 48.0 and 4.8e1 are the integer 48.
  auto isInteger = [](const Value &v) {
    return v.kind == Kind::integer || (v.kind == Kind::number && std::trunc(v.number) == v.number);
  };
  const Value *v = typed(key, isInteger, llvm::formatv("an integer; valid: {0} to {1}", least, most).str());
  if (!v)
    return;
  // Beyond 2^53 a double has lost digits of the text: such a number must be written as an integer of 64 bits.
  bool exact = v->kind == Kind::integer || v->string.empty();
  int64_t integer = v->kind == Kind::integer ? v->integer : exact ? static_cast<int64_t>(v->number) : 0;
  if (!exact || integer < least || integer > most)
    return error(key, llvm::formatv("{0} is out of range; valid: {1} to {2}", describe(*v), least, most).str());
  value = integer;
}

void Reader::requireInteger(StringRef key, int64_t &value, int64_t least, int64_t most) {
  if (!has(key)) {
    take(key);
    return error(key, llvm::formatv("is missing; valid: an integer from {0} to {1}", least, most).str());
  }
  integer(key, value, least, most);
}

void Reader::number(StringRef key, double &value, double least, double most, bool leastAllowed) {
  noteDefault(key, (leastAllowed ? least <= value : least < value) && value <= most, value);
  std::string valid =
      llvm::formatv("valid: {0}{1} to {2}", leastAllowed ? "" : "above ", numberText(least), numberText(most));
  const Value *v = typed(key, [](const Value &v) { return v.isNumber(); }, "a number; " + valid);
  if (!v)
    return;
  bool isZero = v->number == 0 && v->string.empty(); // what only becomes 0 is not out of range
  if (v->number < least || v->number > most || (v->number == least && !leastAllowed && (isZero || least != 0)))
    return error(key, describe(*v) + " is out of range; " + valid);
  if (survives(key, *v, most, least <= 0 && leastAllowed))
    value = v->number + 0.0; // -0.0 is 0
}

bool Reader::survives(StringRef key, const Value &given, double most, bool zeroAllowed) {
  bool wide = errors.doublePrecision;
  double value = given.number;
  double kept = wide ? value : static_cast<float>(value);
  double smallest = wide ? std::numeric_limits<double>::min() : std::numeric_limits<float>::min();
  if ((value == 0 && given.string.empty()) || std::abs(kept) >= smallest)
    return true;
  error(key, llvm::formatv("{0} becomes {1} in {2}, whose normal numbers begin at {3}; valid: {4}{3} to {5}",
                           describe(given), numberText(kept), wide ? "f64" : "f32", numberText(smallest),
                           zeroAllowed ? "0, or " : "", numberText(most))
                 .str());
  return false;
}

void Reader::boolean(StringRef key, bool &value) {
  noteDefault(key, true, value);
  if (const Value *v = typed(key, [](const Value &v) { return v.kind == Kind::boolean; }, "true or false"))
    value = v->boolean;
}

void Reader::string(StringRef key, std::string &value) {
  if (const Value *v = typed(key, [](const Value &v) { return v.kind == Kind::string; }, "a string"))
    value = v->string;
}

bool Reader::isOneOf(StringRef key, const Value &value, llvm::ArrayRef<StringRef> names, bool nullable) {
  if ((value.kind == Kind::string && llvm::is_contained(names, value.string)) || (nullable && value.kind == Kind::null))
    return true;
  StringRef wrong = value.kind == Kind::string ? " is not known"
                    : nullable                 ? " is not a string or null"
                                               : " is not a string";
  error(key, (describe(value) + wrong + "; valid: " + join(names) + (nullable ? ", null" : "")).str());
  return false;
}

void Reader::choice(StringRef key, std::string &value, llvm::ArrayRef<StringRef> names) {
  noteDefault(key, llvm::is_contained(names, value), value);
  if (const Value *v = take(key); v && isOneOf(key, *v, names, /*nullable=*/false))
    value = v->string;
}

void Reader::choice(StringRef key, std::optional<std::string> &value, llvm::ArrayRef<StringRef> names) {
  noteDefault(key, !value || llvm::is_contained(names, *value),
              value ? llvm::json::Value(*value) : llvm::json::Value(nullptr));
  const Value *v = take(key);
  if (!v || !isOneOf(key, *v, names, /*nullable=*/true))
    return;
  if (v->kind == Kind::null)
    value.reset();
  else
    value = v->string;
}

const std::string *Reader::requireChoice(StringRef key, llvm::ArrayRef<StringRef> names) {
  const Value *v = require(key, "valid: " + join(names));
  return v && isOneOf(key, *v, names, /*nullable=*/false) ? &v->string : nullptr;
}

void Reader::range(StringRef key, std::array<double, 2> &value) {
  constexpr llvm::StringLiteral valid = "; valid: 0 < low < high <= 1e6";
  const Value *v = take(key);
  if (!v)
    return;
  if (v->kind != Kind::array || v->items.size() != 2)
    return error(key, (describe(*v) + " is not a list of two numbers [low, high]" + valid).str());
  for (const Value &item : v->items)
    if (!item.isNumber())
      return error(key, ("[low, high] has " + describe(item) + ", which is not a number" + valid).str());
  double low = v->items[0].number, high = v->items[1].number;
  if (!(low > 0 && low < high && high <= 1e6))
    return error(key,
                 llvm::formatv("[{0}, {1}] is no range{2}", describe(v->items[0]), describe(v->items[1]), valid).str());
  if (survives(key, v->items[0], 1e6, /*zeroAllowed=*/false) && survives(key, v->items[1], 1e6, /*zeroAllowed=*/false))
    value = {low, high};
}

void Reader::numbers(StringRef key, std::vector<double> &values, double least, double most, size_t count) {
  const Value *v = typed(
      key, [](const Value &v) { return v.kind == Kind::array; },
      llvm::formatv("a list of numbers; valid: 1 to {0} from {1} to {2}", count, numberText(least), numberText(most))
          .str());
  if (!v)
    return;
  if (v->items.empty() || v->items.size() > count)
    return error(key, llvm::formatv("has {0} numbers; valid: 1 to {1}", v->items.size(), count).str());
  for (const Value &item : v->items) {
    if (!item.isNumber() || item.number < least || item.number > most)
      return error(key, describe(item) + " is not a number from " + numberText(least) + " to " + numberText(most));
    if (!survives(key, item, most, least <= 0))
      return;
  }
  values.clear();
  for (const Value &item : v->items)
    values.push_back(item.number + 0.0);
}

const Value *Reader::objectAt(StringRef key, bool nullable, bool *isNull) {
  const Value *value = take(key);
  if (!value || value->kind == Kind::object)
    return value;
  if (nullable && value->kind == Kind::null) {
    if (isNull)
      *isNull = true;
    return nullptr;
  }
  error(key, describe(*value) + " is not an object" + (nullable ? " or null" : ""));
  return nullptr;
}
