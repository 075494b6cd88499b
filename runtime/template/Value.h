// What an expression of a template has for a value: Python's, of which a template sees none change but namespaces.
#pragma once

#include "runtime/Expected.h"

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

namespace braid::runtime::jinja {

// What one rendering may do: templates come with weights from anywhere.
class Budget {
public:
  // An evaluated node, an element of a list, or so many bytes of a text is a step.
  static constexpr uint64_t mostSteps = uint64_t(1) << 24, bytesOfStep = 16;

  Status take(uint64_t steps) {
    if (steps > left)
      return Status::error(ErrorCode::overflow, "takes more than {} steps", mostSteps);
    left -= steps;
    return Status::success();
  }

private:
  uint64_t left = mostSteps;
};

struct Sequence;
struct Dict;
struct Method;
struct Namespace;
struct Macro;
struct Loop;

struct Undefined {
  std::shared_ptr<const std::string> why; // "'x' is undefined"
};
struct None {};
struct Text {
  std::shared_ptr<const std::string> bytes;
  bool safe = false; // behind |safe: Python would escape what is added to it
};
// What a name of Jinja's calls.
enum class Function : uint8_t { range, dict, makeNamespace, raiseException, strftimeNow };

template <class T, class Of> constexpr bool isAlternative = false;
template <class T, class... Kinds>
constexpr bool isAlternative<T, std::variant<Kinds...>> = (std::is_same_v<T, Kinds> || ...);

class Value {
public:
  // The last two live as long as the rendering.
  using Variant = std::variant<Undefined, None, bool, int64_t, double, Text, std::shared_ptr<const Sequence>,
                               std::shared_ptr<const Dict>, std::shared_ptr<const Method>, std::shared_ptr<const Loop>,
                               Function, Namespace *, const Macro *>;

  Value() : state(None()) {}
  template <class T>
    requires(isAlternative<std::remove_cvref_t<T>, Variant>)
  Value(T &&value) : state(std::in_place_type<std::remove_cvref_t<T>>, std::forward<T>(value)) {}
  Value(std::string text) : state(Text{std::make_shared<const std::string>(std::move(text))}) {}
  static Value undefined(std::string why) { return Undefined{std::make_shared<const std::string>(std::move(why))}; }

  template <class T> const T *as() const { return std::get_if<T>(&state); }
  template <class T> bool is() const { return std::holds_alternative<T>(state); }
  const std::string *text() const { return is<Text>() ? as<Text>()->bytes.get() : nullptr; }
  const Sequence *sequence() const;
  const Dict *dict() const;
  const Variant &variant() const { return state; }

private:
  Variant state;
};

// How deep a value is, and how much there is to go through: whoever prints or compares it does.
struct Extent {
  uint32_t depth = 0;
  uint64_t weight = 1; // values, and 64 bytes of texts each
};
Extent extentOf(const Value &value);

struct Sequence {
  // view: what keys(), values() and items() of a dict give; iterator: can be gone through once.
  enum class Kind : uint8_t { list, tuple, range, view, iterator };
  Kind kind = Kind::list;
  std::vector<Value> items;
  std::string shown; // of range: as it is printed; of view: its name
  mutable size_t taken = 0; // of iterator
  Extent extent = {1, 1};
};

// In the order in which keys came.
struct Dict {
  std::vector<std::pair<Value, Value>> entries;
  std::unordered_map<std::string, size_t> ofText; // keys that are texts
  Extent extent = {1, 1};

  // Another value of the same key takes its place.
  void set(Value key, Value value);
  const Value *find(const Value &key) const;
  const Value *find(const std::string &key) const;
};

struct Method {
  Value self;
  std::string name;
  Extent extent;
};

// What a loop says of itself.
struct Loop {
  std::vector<Value> items;
  size_t index = 0;
  Extent extent;
};

struct Namespace {
  Dict values;
};

constexpr uint32_t mostDepth = 100;
constexpr uint64_t mostWeight = uint64_t(1) << 22;

Expected<Value> makeSequence(Budget &budget, std::vector<Value> items, Sequence::Kind kind = Sequence::Kind::list,
                             std::string shown = "");
// What cannot be a key of it is an error; looking for others takes steps.
Status checkKey(Budget &budget, const Dict &dict, const Value &key);
Status insert(Budget &budget, Dict &dict, Value key, Value value);
Expected<Value> makeDict(Budget &budget, Dict dict);
Expected<Value> makeText(Budget &budget, std::string text);
Expected<std::shared_ptr<Loop>> makeLoop(std::vector<Value> items);
Expected<Value> makeMethod(const Value &self, std::string name);
Expected<Value> fromJson(Budget &budget, const nlohmann::ordered_json &json);

// As Python calls its type, for messages.
std::string_view typeName(const Value &value);
bool isTrue(const Value &value);
// 2, 2.0 and True are numbers.
std::optional<double> numberOf(const Value &value);
// Of ints and bools.
std::optional<int64_t> integerOf(const Value &value);

// Python's ==.
bool equal(const Value &left, const Value &right);
// Python's <, of which the error is that the two have no order.
Expected<bool> less(const Value &left, const Value &right);
Expected<bool> contains(Budget &budget, const Value &container, const Value &item);

// The elements of what can be gone through: of a text its characters, of a dict its keys. Of an iterator those that are
// left, of which none is then.
Expected<std::vector<Value>> elementsOf(Budget &budget, const Value &value);
Expected<int64_t> lengthOf(const Value &value);

// Python's str() and repr().
Expected<std::string> printed(const Value &value);
Expected<std::string> represented(const Value &value);
std::string printedFloat(double value);

struct JsonStyle {
  std::optional<std::string> indent;
  std::string betweenItems = ", ", afterKey = ": ";
  bool ascii = false, sortKeys = false;
};
// As Python's json.dumps writes it.
Expected<std::string> toJson(const Value &value, const JsonStyle &style);

} // namespace braid::runtime::jinja
