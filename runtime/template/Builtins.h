// What templates need not define: operators, filters, tests, methods of values and functions, as Jinja has them in the
// sandbox of transformers, in which no list or dict is ever changed. What is not here is an error by its name.
#pragma once

#include "runtime/io/JsonText.h"
#include "runtime/template/Value.h"

#include <ctime>
#include <fmt/ranges.h>
#include <span>

namespace braid::runtime::jinja {

struct Arguments {
  std::vector<Value> values;
  std::vector<std::pair<std::string, Value>> named;
};

// Arguments by the names of parameters; those that were not given are null.
class Bound {
public:
  static Expected<Bound> of(const Arguments &arguments, std::span<const std::string_view> parameters);

  const Value *operator[](size_t parameter) const { return values[parameter]; }
  bool isTrue(size_t parameter) const { return values[parameter] && jinja::isTrue(*values[parameter]); }
  // Of what was not given or is None the other.
  Expected<std::string> textOr(size_t parameter, std::string_view otherwise) const;
  Expected<int64_t> integerOr(size_t parameter, int64_t otherwise) const;

private:
  std::vector<const Value *> values;
  std::span<const std::string_view> parameters;
};

class Builtins {
public:
  Builtins(Budget &budget, std::time_t now) : budget(budget), now(now) {}

  Expected<Value> filter(const std::string &name, const Value &value, const Arguments &arguments);
  Expected<bool> test(const std::string &name, const Value &value, const Arguments &arguments);
  Expected<Value> method(const Method &method, const Arguments &arguments);
  // Of makeNamespace the dict of its members.
  Expected<Value> function(Function function, const Arguments &arguments);

  // value.name and value[key], which are an Undefined where they are not there.
  Expected<Value> member(const Value &value, const std::string &name);
  Expected<Value> item(const Value &value, const Value &key);
  Expected<Value> slice(const Value &value, const Value &begin, const Value &end, const Value &step);
  // + - * / // % ** ~
  Expected<Value> binary(std::string_view sign, const Value &left, const Value &right);
  // == != < <= > >= in not-in
  Expected<bool> compare(std::string_view sign, const Value &left, const Value &right);

  // "a.b.0" of a value.
  Expected<Value> path(Value value, const Value &names);

  Budget &budget;
  const std::time_t now;
};

// Texts ---------------------------------------------------------------------------------------------------------------

enum class Side : uint8_t { both, left, right };
// Without the characters of `of` at its ends; null: without blanks.
std::string_view stripped(std::string_view text, Side side, const std::string *of);
std::vector<std::string> splitLines(std::string_view text, bool keepEnds);
// "%s: %d" % value
Expected<std::string> percentFormatted(std::string_view format, const Value &value);
// "{}: {name}".format(..)
Expected<std::string> braceFormatted(Builtins &builtins, std::string_view format, const Arguments &arguments);
// What Python's int() and float() read; none: no number.
std::optional<int64_t> readInteger(std::string_view text);
std::optional<double> readFloat(std::string_view text);

// A name that a table of filters or tests does not have.
template <class Table> Status notRead(std::string_view what, const std::string &name, const Table &table) {
  std::vector<std::string_view> names;
  for (const auto &entry : table)
    names.push_back(entry.first);
  return Status::error(ErrorCode::unsupported, "{} '{}' is not read; valid: {}", what, escaped(name),
                       fmt::join(names, ", "));
}

} // namespace braid::runtime::jinja
