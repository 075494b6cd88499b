#include "runtime/template/Value.h"
#include "runtime/text/Utf8.h"

#include <nlohmann/json.hpp>

#include <algorithm>

namespace braid::runtime::jinja {

const Sequence *Value::sequence() const {
  const auto *held = as<std::shared_ptr<const Sequence>>();
  return held ? held->get() : nullptr;
}

const Dict *Value::dict() const {
  const auto *held = as<std::shared_ptr<const Dict>>();
  return held ? held->get() : nullptr;
}

// ---- Making ---------------------------------------------------------------------------------------------------------

Extent extentOf(const Value &value) {
  if (const std::string *text = value.text())
    return {0, 1 + text->size() / 64};
  if (const Sequence *sequence = value.sequence())
    return sequence->extent;
  if (const Dict *dict = value.dict())
    return dict->extent;
  if (const auto *loop = value.as<std::shared_ptr<const Loop>>())
    return (*loop)->extent;
  const auto *method = value.as<std::shared_ptr<const Method>>();
  return method ? (*method)->extent : Extent();
}

static void enclose(Extent &whole, const Value &part) {
  Extent extent = extentOf(part);
  whole.depth = std::max(whole.depth, extent.depth + 1);
  whole.weight = std::min(whole.weight + extent.weight, mostWeight + 1);
}

static Status check(const Extent &extent) {
  if (extent.depth > mostDepth)
    return Status::error(ErrorCode::overflow, "values are nested deeper than {} levels", mostDepth);
  if (extent.weight > mostWeight)
    return Status::error(ErrorCode::overflow, "a value holds more than {} values", mostWeight);
  return Status::success();
}

void Dict::set(Value key, Value value) {
  enclose(extent, key);
  enclose(extent, value);
  if (const Value *known = find(key)) {
    *const_cast<Value *>(known) = std::move(value);
    return;
  }
  if (const std::string *text = key.text())
    ofText.emplace(*text, entries.size());
  entries.emplace_back(std::move(key), std::move(value));
}

const Value *Dict::find(const std::string &key) const {
  auto found = ofText.find(key);
  return found == ofText.end() ? nullptr : &entries[found->second].second;
}

const Value *Dict::find(const Value &key) const {
  if (const std::string *text = key.text())
    return find(*text);
  if (ofText.size() == entries.size())
    return nullptr;
  for (const auto &[known, value] : entries)
    if (equal(known, key))
      return &value;
  return nullptr;
}

Expected<Value> makeSequence(Budget &budget, std::vector<Value> items, Sequence::Kind kind, std::string shown) {
  BRAID_TRY(budget.take(items.size() + 1));
  auto sequence = std::make_shared<Sequence>();
  for (const Value &item : items)
    enclose(sequence->extent, item);
  BRAID_TRY(check(sequence->extent));
  sequence->kind = kind;
  sequence->items = std::move(items);
  sequence->shown = std::move(shown);
  return Value(std::shared_ptr<const Sequence>(std::move(sequence)));
}

Status checkKey(Budget &budget, const Dict &dict, const Value &key) {
  if (const Sequence *sequence = key.sequence(); sequence && sequence->kind == Sequence::Kind::tuple) {
    for (const Value &item : sequence->items)
      BRAID_TRY(checkKey(budget, dict, item));
  } else if (sequence || key.dict()) {
    return Status::error("a '{}' cannot be a key", typeName(key));
  }
  return budget.take(key.text() ? 1 : 1 + dict.entries.size());
}

Status insert(Budget &budget, Dict &dict, Value key, Value value) {
  BRAID_TRY(checkKey(budget, dict, key));
  dict.set(std::move(key), std::move(value));
  return Status::success();
}

Expected<Value> makeDict(Budget &budget, Dict dict) {
  BRAID_TRY(budget.take(dict.entries.size() * 2 + 1));
  BRAID_TRY(check(dict.extent));
  return Value(std::shared_ptr<const Dict>(std::make_shared<Dict>(std::move(dict))));
}

Expected<Value> makeText(Budget &budget, std::string text) {
  BRAID_TRY(budget.take(text.size() / Budget::bytesOfStep));
  return Value(std::move(text));
}

Expected<std::shared_ptr<Loop>> makeLoop(std::vector<Value> items) {
  auto loop = std::make_shared<Loop>();
  for (const Value &item : items)
    enclose(loop->extent, item);
  BRAID_TRY(check(loop->extent));
  loop->items = std::move(items);
  return loop;
}

Expected<Value> makeMethod(const Value &self, std::string name) {
  Extent extent;
  enclose(extent, self);
  BRAID_TRY(check(extent));
  return Value(std::shared_ptr<const Method>(std::make_shared<Method>(Method{self, std::move(name), extent})));
}

static Expected<Value> fromJson(Budget &budget, const nlohmann::ordered_json &json, uint32_t depth) {
  BRAID_TRY(check({depth, 1}));
  BRAID_TRY(budget.take(1));
  using Kind = nlohmann::ordered_json::value_t;
  switch (json.type()) {
  case Kind::null: return Value(None());
  case Kind::boolean: return Value(json.get<bool>());
  case Kind::number_float: return Value(json.get<double>());
  case Kind::string: return makeText(budget, json.get<std::string>());
  case Kind::number_unsigned:
  case Kind::number_integer:
    if (json.is_number_unsigned() && json.get<uint64_t>() > uint64_t(INT64_MAX))
      return Status::error(ErrorCode::unsupported, "the number {} is greater than {}", json.get<uint64_t>(), INT64_MAX);
    return Value(json.get<int64_t>());
  case Kind::array: {
    std::vector<Value> items;
    for (const nlohmann::ordered_json &item : json) {
      BRAID_ASSIGN(Value value, fromJson(budget, item, depth + 1));
      items.push_back(std::move(value));
    }
    return makeSequence(budget, std::move(items));
  }
  case Kind::object: {
    Dict dict;
    for (const auto &[key, item] : json.items()) {
      BRAID_ASSIGN(Value value, fromJson(budget, item, depth + 1));
      dict.set(Value(key), std::move(value));
    }
    return makeDict(budget, std::move(dict));
  }
  case Kind::binary:
  case Kind::discarded: break;
  }
  return Status::error(ErrorCode::internal, "a value that JSON does not have");
}

Expected<Value> fromJson(Budget &budget, const nlohmann::ordered_json &json) { return fromJson(budget, json, 0); }

// ---- Looking --------------------------------------------------------------------------------------------------------

std::string_view typeName(const Value &value) {
  if (const Sequence *sequence = value.sequence())
    switch (sequence->kind) {
    case Sequence::Kind::list: return "list";
    case Sequence::Kind::tuple: return "tuple";
    case Sequence::Kind::range: return "range";
    case Sequence::Kind::view: return sequence->shown;
    case Sequence::Kind::iterator: return "generator";
    }
  static constexpr std::string_view names[] = {"Undefined", "NoneType",  "bool", "int",    "float",
                                               "str",       "",          "dict", "method", "LoopContext",
                                               "function",  "Namespace", "Macro"};
  static_assert(std::size(names) == std::variant_size_v<Value::Variant>);
  return names[value.variant().index()];
}

std::optional<int64_t> integerOf(const Value &value) {
  if (const bool *flag = value.as<bool>())
    return *flag;
  if (const int64_t *number = value.as<int64_t>())
    return *number;
  return std::nullopt;
}

std::optional<double> numberOf(const Value &value) {
  if (const double *number = value.as<double>())
    return *number;
  if (std::optional<int64_t> number = integerOf(value))
    return static_cast<double>(*number);
  return std::nullopt;
}

bool isTrue(const Value &value) {
  if (std::optional<double> number = numberOf(value))
    return *number != 0;
  if (const std::string *text = value.text())
    return !text->empty();
  if (const Sequence *sequence = value.sequence())
    return sequence->kind == Sequence::Kind::iterator || !sequence->items.empty();
  if (const Dict *dict = value.dict())
    return !dict->entries.empty();
  return !value.is<Undefined>() && !value.is<None>();
}

static bool equalItems(const Sequence &left, const Sequence &right) {
  return left.items.size() == right.items.size() &&
         std::equal(left.items.begin(), left.items.end(), right.items.begin(), equal);
}

bool equal(const Value &left, const Value &right) {
  if (std::optional<int64_t> a = integerOf(left), b = integerOf(right); a && b)
    return *a == *b;
  if (std::optional<double> a = numberOf(left), b = numberOf(right); a && b)
    return *a == *b;
  if (const std::string *a = left.text(), *b = right.text(); a && b)
    return *a == *b;
  if (const Sequence *a = left.sequence(), *b = right.sequence(); a && b) {
    bool byItems =
        a->kind != Sequence::Kind::iterator && !(a->kind == Sequence::Kind::view && a->shown == "dict_values");
    return a == b || (byItems && a->kind == b->kind && a->shown == b->shown && equalItems(*a, *b)) ||
           (a->kind == Sequence::Kind::range && b->kind == a->kind && equalItems(*a, *b));
  }
  if (const Dict *a = left.dict(), *b = right.dict(); a && b) {
    if (a->entries.size() != b->entries.size())
      return false;
    return std::ranges::all_of(a->entries, [&](const auto &entry) {
      const Value *other = b->find(entry.first);
      return other && equal(entry.second, *other);
    });
  }
  if (left.is<Undefined>() || left.is<None>())
    return left.variant().index() == right.variant().index();
  if (Namespace *const *a = left.as<Namespace *>(), *const *b = right.as<Namespace *>(); a && b)
    return *a == *b;
  if (const Macro *const *a = left.as<const Macro *>(), *const *b = right.as<const Macro *>(); a && b)
    return *a == *b;
  const Function *a = left.as<Function>(), *b = right.as<Function>();
  return a && b && *a == *b;
}

Expected<bool> less(const Value &left, const Value &right) {
  if (std::optional<int64_t> a = integerOf(left), b = integerOf(right); a && b)
    return *a < *b;
  if (std::optional<double> a = numberOf(left), b = numberOf(right); a && b)
    return *a < *b;
  if (const std::string *a = left.text(), *b = right.text(); a && b)
    return *a < *b;
  const Sequence *a = left.sequence(), *b = right.sequence();
  if (a && b && a->kind == b->kind && (a->kind == Sequence::Kind::list || a->kind == Sequence::Kind::tuple)) {
    for (size_t i = 0; i < std::min(a->items.size(), b->items.size()); ++i)
      if (!equal(a->items[i], b->items[i]))
        return less(a->items[i], b->items[i]);
    return a->items.size() < b->items.size();
  }
  for (const Value *value : {&left, &right})
    if (const Undefined *undefined = value->as<Undefined>())
      return Status::error("{}", *undefined->why);
  return Status::error("'{}' and '{}' have no order", typeName(left), typeName(right));
}

Expected<bool> contains(Budget &budget, const Value &container, const Value &item) {
  if (const std::string *text = container.text()) {
    if (!item.text())
      return Status::error("'in' a str asks for a str, not for '{}'", typeName(item));
    BRAID_TRY(budget.take(text->size() / Budget::bytesOfStep));
    return text->find(*item.text()) != std::string::npos;
  }
  if (const Dict *dict = container.dict()) {
    BRAID_TRY(checkKey(budget, *dict, item));
    return dict->find(item) != nullptr;
  }
  BRAID_TRY(budget.take(extentOf(container).weight));
  BRAID_ASSIGN(std::vector<Value> items, elementsOf(budget, container));
  return std::ranges::any_of(items, [&](const Value &known) { return equal(known, item); });
}

Expected<std::vector<Value>> elementsOf(Budget &budget, const Value &value) {
  std::vector<Value> items;
  if (const Sequence *sequence = value.sequence()) {
    size_t from =
        sequence->kind == Sequence::Kind::iterator ? std::exchange(sequence->taken, sequence->items.size()) : 0;
    BRAID_TRY(budget.take(sequence->items.size() - from));
    items.assign(sequence->items.begin() + static_cast<ptrdiff_t>(from), sequence->items.end());
  } else if (const Dict *dict = value.dict()) {
    BRAID_TRY(budget.take(dict->entries.size()));
    for (const auto &[key, held] : dict->entries)
      items.push_back(key);
  } else if (const std::string *text = value.text()) {
    BRAID_TRY(budget.take(text->size()));
    for (std::string_view rest = *text; !rest.empty();) {
      size_t bytes = firstCharacterBytes(rest);
      items.emplace_back(std::string(rest.substr(0, bytes)));
      rest.remove_prefix(bytes);
    }
  } else if (!value.is<Undefined>()) {
    return Status::error("'{}' has no elements to go through", typeName(value));
  }
  return items;
}

Expected<int64_t> lengthOf(const Value &value) {
  if (const std::string *text = value.text())
    return std::ranges::count_if(*text, [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; });
  if (const Dict *dict = value.dict())
    return static_cast<int64_t>(dict->entries.size());
  const Sequence *sequence = value.sequence();
  if (sequence && sequence->kind != Sequence::Kind::iterator)
    return static_cast<int64_t>(sequence->items.size());
  if (value.is<Undefined>())
    return int64_t(0);
  return Status::error("'{}' has no length", typeName(value));
}

} // namespace braid::runtime::jinja
