//===- ModelText.cpp - the schedule of a model file, in the user's own text ---------------------------------------===//
#include "tools/braid-tune/ModelText.h"

#include <algorithm>
#include <iterator>

using namespace braid::tune;

namespace {

/// Walks over valid JSON with comments, one token at a time.
class Scanner {
public:
  explicit Scanner(const std::string &text) : at(text.starts_with("\xef\xbb\xbf") ? 3 : 0), text(text) {}
  size_t at; ///< behind the mark that says UTF-8, which parsers skip

  void skipBlank() {
    for (;;) {
      while (at < text.size() && std::isspace(static_cast<unsigned char>(text[at])))
        ++at;
      if (text.compare(at, 2, "//") == 0)
        at = std::min(text.find('\n', at), text.size());
      else if (text.compare(at, 2, "/*") == 0)
        at = std::min(text.find("*/", at + 2), text.size() - 2) + 2;
      else
        return;
    }
  }
  /// What it means: "sch\\u0065dule" is the word schedule.
  std::string string() {
    size_t begin = at++;
    while (text[at] != '"')
      at += text[at] == '\\' ? 2 : 1;
    ++at;
    return Json::parse(text.substr(begin, at - begin)).get<std::string>();
  }
  void value() {
    if (text[at] == '"') {
      string();
    } else if (text[at] == '{' || text[at] == '[') {
      int depth = 0;
      do {
        skipBlank();
        char c = text[at];
        if (c == '"') {
          string();
          continue;
        }
        depth += c == '{' || c == '[' ? 1 : c == '}' || c == ']' ? -1 : 0;
        ++at;
      } while (depth > 0);
    } else {
      at = std::min(text.find_first_of(",}] \t\r\n/", at), text.size());
    }
  }

private:
  const std::string &text;
};

} // namespace

std::string braid::tune::withSchedule(const std::string &text, const Json &schedule) {
  std::string value = schedule.dump(2);
  for (size_t at = 0; (at = value.find('\n', at)) != std::string::npos; at += 3)
    value.insert(at + 1, "  ");
  Scanner scan(text);
  scan.skipBlank();
  ++scan.at; // the brace
  size_t last = scan.at; // the end of the last value
  bool first = true;
  for (scan.skipBlank(); text[scan.at] == '"'; scan.skipBlank()) {
    std::string key = scan.string();
    scan.skipBlank();
    ++scan.at; // the colon
    scan.skipBlank();
    size_t begin = scan.at;
    scan.value();
    if (key == "schedule")
      return text.substr(0, begin) + value + text.substr(scan.at);
    last = scan.at;
    first = false;
    scan.skipBlank();
    if (text[scan.at] == ',')
      ++scan.at;
  }
  return text.substr(0, last) + (first ? "" : ",") + "\n  \"schedule\": " + value + text.substr(last);
}

bool braid::tune::holdsSchedule(const std::string &text, const std::string &before, const Json &schedule) {
  Json is = Json::parse(text, nullptr, /*allow_exceptions=*/false, /*ignore_comments=*/true),
       was = Json::parse(before, nullptr, /*allow_exceptions=*/false, /*ignore_comments=*/true);
  if (!is.is_object() || !was.is_object())
    return false;
  was["schedule"] = schedule;
  return nlohmann::json(is) == nlohmann::json(was); // in any order
}

Json braid::tune::choiceOf(const Json &schedule) {
  Json choice = Json::object();
  for (const char *key : chosenKeys)
    if (schedule.contains(key))
      choice[key] = schedule[key];
  return choice;
}

Json braid::tune::machineOf(const Json &schedule) {
  Json tuned = schedule.value(evidenceKey, Json());
  bool given = !tuned.is_object() || tuned.value(ownMachineKey, Json()) == Json(true);
  return given ? schedule.value("machine", Json()) : Json();
}

std::string braid::tune::withoutChoice(const std::string &text) {
  Json model = Json::parse(text, nullptr, true, /*ignore_comments=*/true);
  if (auto schedule = model.find("schedule"); schedule != model.end()) {
    for (const char *key : chosenKeys)
      schedule->erase(key);
    if (machineOf(*schedule).is_null())
      schedule->erase("machine");
    schedule->erase(evidenceKey);
    if (schedule->empty())
      model.erase("schedule");
  }
  return model.dump();
}
