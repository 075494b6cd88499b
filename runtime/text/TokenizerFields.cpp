#include "runtime/io/JsonText.h"
#include "runtime/text/TokenizerReader.h"

namespace braid::runtime {

namespace {

std::string shown(const nlohmann::json &value) {
  return value.is_object() ? "an object" : value.is_array() ? "a list" : shownValue(value);
}

} // namespace

Expected<TokenizerFields> TokenizerFields::of(const nlohmann::json &value, std::string at) {
  if (!value.is_object())
    return Status::error(ErrorCode::corruptFile, "{}: is {}; valid: an object", at, shown(value));
  return TokenizerFields(value, std::move(at));
}

std::string TokenizerFields::at(std::string_view key) const {
  return place.empty() ? std::string(key) : fmt::format("{}.{}", place, key);
}

bool TokenizerFields::lacks(const char *key) const {
  auto found = json->find(key);
  return found == json->end() || found->is_null();
}

Status TokenizerFields::unread(const char *key, std::string_view value, std::string_view read) const {
  return Status::error(ErrorCode::unsupported, "{}: '{}' is not read; valid: {}", at(key), escaped(value), read);
}

Status TokenizerFields::wrong(const char *key, std::string_view wanted) const {
  if (lacks(key))
    return Status::error(ErrorCode::corruptFile, "{}: is missing; valid: {}", at(key), wanted);
  return Status::error(ErrorCode::corruptFile, "{}: is {}; valid: {}", at(key), shown((*json)[key]), wanted);
}

Expected<std::string> TokenizerFields::text(const char *key) const {
  auto found = json->find(key);
  if (found == json->end() || !found->is_string())
    return wrong(key, "a string");
  return found->get<std::string>();
}

Expected<std::string> TokenizerFields::textOr(const char *key, std::string_view otherwise) const {
  return lacks(key) ? Expected<std::string>(std::string(otherwise)) : text(key);
}

Expected<bool> TokenizerFields::flagOr(const char *key, bool otherwise) const {
  if (lacks(key))
    return otherwise;
  if (const nlohmann::json &value = (*json)[key]; value.is_boolean())
    return value.get<bool>();
  return wrong(key, "true or false");
}

Expected<int64_t> TokenizerFields::number(const char *key) const {
  auto found = json->find(key);
  if (found == json->end() || !found->is_number_unsigned() || found->get<uint64_t>() >= uint64_t(mostTokens))
    return wrong(key, fmt::format("a whole number from 0 to {}", mostTokens - 1));
  return found->get<int64_t>();
}

Expected<int64_t> TokenizerFields::numberOr(const char *key, int64_t otherwise) const {
  return lacks(key) ? Expected<int64_t>(otherwise) : number(key);
}

Expected<const nlohmann::json *> TokenizerFields::list(const char *key) const {
  auto found = json->find(key);
  if (found == json->end() || !found->is_array())
    return wrong(key, "a list");
  return &*found;
}

Expected<TokenizerFields> TokenizerFields::object(const char *key) const {
  auto found = json->find(key);
  if (found == json->end() || !found->is_object())
    return wrong(key, "an object");
  return of(*found, at(key));
}

} // namespace braid::runtime
