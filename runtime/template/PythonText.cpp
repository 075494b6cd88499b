// Values as Python prints them: str(), repr() and json.dumps().
#include "runtime/template/Value.h"
#include "runtime/text/Utf8.h"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace braid::runtime::jinja {

// The shortest digits that read back as the number; an exponent below 1e-4 and from 1e16 on.
std::string printedFloat(double value) {
  if (std::isnan(value))
    return "nan";
  if (std::isinf(value))
    return value < 0 ? "-inf" : "inf";
  char buffer[400];
  auto written = [&](std::chars_format format) {
    return std::string(buffer, std::to_chars(buffer, std::end(buffer), value, format).ptr);
  };
  std::string scientific = written(std::chars_format::scientific);
  int exponent = std::atoi(scientific.c_str() + scientific.find('e') + 1);
  if (exponent < -4 || exponent >= 16)
    return scientific;
  std::string fixed = written(std::chars_format::fixed);
  return fixed.find('.') == std::string::npos ? fixed + ".0" : fixed;
}

// In the quotes that need fewer escapes.
static std::string inQuotes(std::string_view text) {
  char quote = text.find('\'') != std::string_view::npos && text.find('"') == std::string_view::npos ? '"' : '\'';
  std::string result(1, quote);
  for (std::string_view rest = text; !rest.empty();) {
    char32_t character = firstCharacter(rest);
    size_t bytes = firstCharacterBytes(rest);
    if (rest[0] == quote || rest[0] == '\\')
      result += fmt::format("\\{}", rest[0]);
    else if (character == '\n')
      result += "\\n";
    else if (character == '\r')
      result += "\\r";
    else if (character == '\t')
      result += "\\t";
    else if (isPrintable(character))
      result += rest.substr(0, bytes);
    else if (character < 0x100)
      result += fmt::format("\\x{:02x}", static_cast<uint32_t>(character));
    else if (character < 0x10000)
      result += fmt::format("\\u{:04x}", static_cast<uint32_t>(character));
    else
      result += fmt::format("\\U{:08x}", static_cast<uint32_t>(character));
    rest.remove_prefix(bytes);
  }
  return result + quote;
}

static Status represent(const Value &value, std::string &out);

static Status representItems(const std::vector<Value> &items, std::string_view open, std::string_view close,
                             std::string &out) {
  out += open;
  for (size_t i = 0; i < items.size(); ++i) {
    out += i > 0 ? ", " : "";
    BRAID_TRY(represent(items[i], out));
  }
  out += close;
  return Status::success();
}

static Status represent(const Sequence &sequence, std::string &out) {
  switch (sequence.kind) {
  case Sequence::Kind::list: return representItems(sequence.items, "[", "]", out);
  case Sequence::Kind::tuple: return representItems(sequence.items, "(", sequence.items.size() == 1 ? ",)" : ")", out);
  case Sequence::Kind::view: return representItems(sequence.items, sequence.shown + "([", "])", out);
  case Sequence::Kind::range: out += sequence.shown; return Status::success();
  case Sequence::Kind::iterator: break;
  }
  return Status::error("what map, select and the like give is printed behind |list or |join only");
}

static Status represent(const Value &value, std::string &out) {
  if (const std::string *text = value.text()) {
    out += value.as<Text>()->safe ? fmt::format("Markup({})", inQuotes(*text)) : inQuotes(*text);
  } else if (value.is<Undefined>()) {
    out += "Undefined";
  } else if (value.is<None>()) {
    out += "None";
  } else if (const bool *flag = value.as<bool>()) {
    out += *flag ? "True" : "False";
  } else if (const int64_t *number = value.as<int64_t>()) {
    out += fmt::format("{}", *number);
  } else if (const double *number = value.as<double>()) {
    out += printedFloat(*number);
  } else if (const Sequence *sequence = value.sequence()) {
    return represent(*sequence, out);
  } else if (const Dict *dict = value.dict()) {
    out += '{';
    for (bool later = false; const auto &[key, held] : dict->entries) {
      out += std::exchange(later, true) ? ", " : "";
      BRAID_TRY(represent(key, out));
      out += ": ";
      BRAID_TRY(represent(held, out));
    }
    out += '}';
  } else {
    return Status::error(ErrorCode::unsupported, "a '{}' is not printed", typeName(value));
  }
  return Status::success();
}

Expected<std::string> represented(const Value &value) {
  std::string result;
  BRAID_TRY(represent(value, result));
  return result;
}

Expected<std::string> printed(const Value &value) {
  if (const std::string *text = value.text())
    return *text;
  return value.is<Undefined>() ? Expected<std::string>("") : represented(value);
}

// ---- JSON -----------------------------------------------------------------------------------------------------------

static void writeJsonText(std::string_view text, bool ascii, std::string &out) {
  out += '"';
  for (std::string_view rest = text; !rest.empty();) {
    char32_t character = firstCharacter(rest);
    size_t bytes = firstCharacterBytes(rest);
    switch (character) {
    case '"': out += "\\\""; break;
    case '\\': out += "\\\\"; break;
    case '\n': out += "\\n"; break;
    case '\r': out += "\\r"; break;
    case '\t': out += "\\t"; break;
    case '\f': out += "\\f"; break;
    case '\b': out += "\\b"; break;
    default:
      if (character >= 0x10000 && ascii)
        out += fmt::format("\\u{:04x}\\u{:04x}", 0xd800 + ((static_cast<uint32_t>(character) - 0x10000) >> 10),
                           0xdc00 + (static_cast<uint32_t>(character) & 0x3ff));
      else if (character < 0x20 || (character > 0x7e && ascii))
        out += fmt::format("\\u{:04x}", static_cast<uint32_t>(character));
      else
        out += rest.substr(0, bytes);
    }
    rest.remove_prefix(bytes);
  }
  out += '"';
}

namespace {

class JsonWriter {
public:
  JsonWriter(const JsonStyle &style, std::string &out) : style(style), out(out) {}

  Status write(const Value &value) {
    if (const std::string *text = value.text()) {
      writeJsonText(*text, style.ascii, out);
    } else if (const Sequence *sequence = value.sequence();
               sequence && (sequence->kind == Sequence::Kind::list || sequence->kind == Sequence::Kind::tuple)) {
      if (sequence->items.empty()) {
        out += "[]";
        return Status::success();
      }
      begin('[');
      for (size_t i = 0; i < sequence->items.size(); ++i) {
        next(i);
        BRAID_TRY(write(sequence->items[i]));
      }
      end(']');
    } else if (const Dict *dict = value.dict()) {
      return writeDict(*dict);
    } else {
      BRAID_ASSIGN(std::string text, scalar(value));
      out += text;
    }
    return Status::success();
  }

private:
  static Expected<std::string> scalar(const Value &value) {
    if (value.is<None>())
      return "null";
    if (const bool *flag = value.as<bool>())
      return *flag ? "true" : "false";
    if (const int64_t *number = value.as<int64_t>())
      return fmt::format("{}", *number);
    if (const double *number = value.as<double>()) {
      if (std::isfinite(*number))
        return printedFloat(*number);
      return std::isnan(*number) ? "NaN" : *number < 0 ? "-Infinity" : "Infinity";
    }
    if (const Undefined *undefined = value.as<Undefined>())
      return Status::error("{}, and is nothing that JSON has", *undefined->why);
    return Status::error("a '{}' is nothing that JSON has", typeName(value));
  }

  Status writeDict(const Dict &dict) {
    if (dict.entries.empty()) {
      out += "{}";
      return Status::success();
    }
    std::vector<const std::pair<Value, Value> *> entries;
    for (const auto &entry : dict.entries)
      entries.push_back(&entry);
    if (style.sortKeys) {
      if (dict.ofText.size() != dict.entries.size())
        return Status::error(ErrorCode::unsupported, "keys that are no texts are not sorted");
      std::ranges::sort(entries, {}, [](const auto *entry) { return *entry->first.text(); });
    }
    begin('{');
    for (size_t i = 0; i < entries.size(); ++i) {
      next(i);
      const auto &[key, value] = *entries[i];
      std::string name;
      if (const std::string *text = key.text()) {
        name = *text;
      } else {
        BRAID_ASSIGN(name, scalar(key));
      }
      writeJsonText(name, style.ascii, out);
      out += style.afterKey;
      BRAID_TRY(write(value));
    }
    end('}');
    return Status::success();
  }

  void begin(char bracket) {
    out += bracket;
    ++level;
  }
  void next(size_t item) {
    if (item > 0)
      out += style.betweenItems;
    newLine();
  }
  void end(char bracket) {
    --level;
    newLine();
    out += bracket;
  }
  void newLine() {
    if (!style.indent)
      return;
    out += '\n';
    for (int i = 0; i < level; ++i)
      out += *style.indent;
  }

  const JsonStyle &style;
  std::string &out;
  int level = 0;
};

} // namespace

Expected<std::string> toJson(const Value &value, const JsonStyle &style) {
  std::string result;
  BRAID_TRY(JsonWriter(style, result).write(value));
  return result;
}

} // namespace braid::runtime::jinja
