#include "runtime/io/JsonText.h"

#include "runtime/schema/WatchedText.h"

#include <algorithm>
#include <map>
#include <vector>

namespace braid::runtime {

namespace {

// Where the parser stands.
struct Reached {
  const char *end;
  void operator()(const char *passed) { end = passed + 1; }
};

// Finds the first key that an object has twice, of which the library keeps the last.
class Keys {
public:
  Keys(std::string_view text, const Reached &reached) : text(text), reached(reached) {}
  Status status = Status::success();

  void see(nlohmann::json::parse_event_t event, const nlohmann::json &value) {
    using Event = nlohmann::json::parse_event_t;
    if (event == Event::object_start)
      objects.emplace_back();
    else if (event == Event::object_end)
      objects.pop_back();
    else if (event == Event::key && status.ok())
      add(value.get_ref<const std::string &>());
  }

private:
  void add(const std::string &key) {
    // The key ends with the quotation mark behind which the parser stands.
    auto end = static_cast<size_t>(reached.end - text.data());
    auto [known, fresh] = objects.back().emplace(key, end);
    if (!fresh)
      status = Status::error(ErrorCode::corruptFile,
                             "has key '{}' twice in one object: they end at bytes {} and {} of {}; valid: one of them",
                             escaped(key), known->second, end, text.size());
  }

  std::string_view text;
  const Reached &reached;
  std::vector<std::map<std::string, size_t>> objects; // that are open: where their keys end
};

} // namespace

// "[json.exception.parse_error.101] parse error at line 1, column 9: syntax error while .."
std::string_view jsonReason(const nlohmann::json::exception &error) {
  std::string_view words = error.what();
  if (size_t end = words.find("] "); end != std::string_view::npos)
    words.remove_prefix(end + 2);
  if (size_t colon = words.find(": "); words.starts_with("parse error") && colon != std::string_view::npos)
    words.remove_prefix(colon + 2);
  constexpr size_t most = 200; // of a number or text that it shows
  if (words.size() > most) {
    words = words.substr(0, most);
    while (!words.empty() && (static_cast<unsigned char>(words.back()) & 0xc0) == 0x80)
      words.remove_suffix(1);
    if (!words.empty() && static_cast<unsigned char>(words.back()) >= 0xc0)
      words.remove_suffix(1);
  }
  return words;
}

Expected<nlohmann::json> parseJsonObject(std::string_view text) {
  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos)
    return Status::error(ErrorCode::corruptFile, "is empty: {} bytes and no JSON", text.size());
  if (size_t nul = text.find('\0'); nul != std::string_view::npos) // for the library the end of the text
    return Status::error(ErrorCode::corruptFile, "is not JSON: a NUL byte at byte {} of {}", nul + 1, text.size());
  try {
    Reached reached{text.data()};
    Keys keys(text, reached);
    nlohmann::json json = nlohmann::json::parse(WatchedText<Reached>{text.data(), &reached},
                                                WatchedText<Reached>{text.data() + text.size(), &reached},
                                                [&](int, nlohmann::json::parse_event_t event, nlohmann::json &value) {
                                                  keys.see(event, value);
                                                  return true;
                                                });
    BRAID_TRY(keys.status);
    if (!json.is_object())
      return Status::error(ErrorCode::corruptFile, "holds JSON, but {} instead of an object", json.type_name());
    return json;
  } catch (const nlohmann::json::parse_error &error) {
    size_t at = std::min(error.byte, text.size()); // counted from 1; one more at the end
    std::string_view before = text.substr(0, at ? at - 1 : 0);
    size_t newline = before.rfind('\n');
    size_t line = 1 + static_cast<size_t>(std::count(before.begin(), before.end(), '\n'));
    size_t column = before.size() - (newline == std::string_view::npos ? 0 : newline + 1) + 1;
    return Status::error(ErrorCode::corruptFile, "is not JSON, at byte {} of {} (line {}, column {}): {}{}", at,
                         text.size(), line, column, jsonReason(error),
                         error.byte > text.size() ? ": the file looks truncated" : "");
  } catch (const nlohmann::json::exception &error) { // a number that no double holds
    return Status::error(ErrorCode::corruptFile, "is not JSON: {}", jsonReason(error));
  }
}

size_t jsonDepth(std::string_view text) {
  size_t depth = 0, most = 0;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '"')
      quoted = !quoted;
    else if (quoted && text[i] == '\\')
      ++i;
    else if (!quoted && (text[i] == '[' || text[i] == '{'))
      most = std::max(most, ++depth);
    else if (!quoted && (text[i] == ']' || text[i] == '}') && depth > 0)
      --depth;
  }
  return most;
}

static std::string asciiOf(const nlohmann::json &value) {
  return value.dump(-1, ' ', /*ensure_ascii=*/true, nlohmann::json::error_handler_t::replace);
}

std::string escaped(std::string_view text) {
  std::string quoted = asciiOf(text);
  return quoted.substr(1, quoted.size() - 2);
}

std::string shownValue(const nlohmann::json &value) {
  if (!value.is_primitive())
    return value.type_name();
  constexpr size_t most = 40;
  std::string text = asciiOf(value);
  return text.size() > most ? text.substr(0, most) + ".." : text;
}

std::string shownValue(const nlohmann::ordered_json &value) {
  if (value.is_object())
    return "an object";
  if (value.is_array())
    return value.empty() ? "an empty list" : "a list";
  return shownValue(nlohmann::json(value)); // never copies what may be deep
}

} // namespace braid::runtime
