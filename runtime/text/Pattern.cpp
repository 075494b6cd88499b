#include "runtime/text/Pattern.h"

#include "runtime/io/JsonText.h"
#include "runtime/text/Utf8.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>
#include <span>
#include <vector>

namespace braid::runtime {

namespace {

// Inside of brackets: Unicode's White_Space, to which PCRE2 adds U+180E; what \w is to Oniguruma; hexadecimal digits.
constexpr std::string_view blanks =
    R"(\x09-\x0d\x20\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
constexpr std::string_view words = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc})";
// Outside of brackets \w has these, too.
constexpr std::string_view wordsAlone = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{b2}\x{b3}\x{b9}\x{bc}-\x{be})";
constexpr std::string_view hexadecimal = "0-9A-Fa-f";

// [:alpha:], of which PCRE2 knows less.
constexpr std::pair<std::string_view, std::string_view> posix[] = {{"[:alpha:]", R"(\p{Alphabetic})"},
                                                                   {"[:alnum:]", R"(\p{Alphabetic}\p{Nd})"},
                                                                   {"[:digit:]", R"(\p{Nd})"},
                                                                   {"[:punct:]", R"(\p{P}\p{S})"},
                                                                   {"[:space:]", blanks},
                                                                   {"[:xdigit:]", hexadecimal},
                                                                   {"[:word:]", words},
                                                                   {"[:upper:]", R"(\p{Uppercase})"},
                                                                   {"[:lower:]", R"(\p{Lowercase})"}};

bool compiles(std::string_view expression) {
  int error = 0;
  PCRE2_SIZE place = 0;
  pcre2_code *code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(expression.data()), expression.size(),
                                   PCRE2_UTF | PCRE2_UCP, &error, &place, nullptr);
  pcre2_code_free(code);
  return code != nullptr;
}

class Translator {
public:
  explicit Translator(std::string_view source) : source(source) {}

  Expected<std::string> translate() {
    std::string result;
    while (at < source.size()) {
      if (source[at] == '[') {
        BRAID_ASSIGN(std::string brackets, readBrackets());
        result += brackets;
      } else if (source[at] == '\\') {
        BRAID_TRY(addEscape(result));
      } else if (source.substr(at).starts_with("(?")) {
        BRAID_TRY(addGroup(result));
      } else if (source[at] == '{') {
        BRAID_TRY(addRepeat(result));
      } else {
        result += source[at++];
      }
    }
    return result;
  }

private:
  static std::optional<std::string_view> setOf(char letter) {
    switch (letter) {
    case 's':
    case 'S': return blanks;
    case 'w':
    case 'W': return words;
    case 'h':
    case 'H': return hexadecimal;
    default: return std::nullopt;
    }
  }

  Status unread(std::string_view what) const {
    return Status::error(ErrorCode::unsupported, "{} at byte {} of '{}' is not read", what, at, escaped(source));
  }

  // \uHHHH, which PCRE2 writes otherwise.
  bool addUnicode(std::string &result) {
    if (source[at + 1] != 'u' || at + 6 > source.size() ||
        !std::all_of(source.begin() + at + 2, source.begin() + at + 6,
                     [](char c) { return std::isxdigit(static_cast<unsigned char>(c)) != 0; }))
      return false;
    result.append("\\x{").append(source.substr(at + 2, 4)).append("}");
    at += 6;
    return true;
  }

  // \p{Han} is the script of a character, and not, as in PCRE2, those in which it is used.
  bool addScript(std::string &result) {
    size_t end = source.find('}', at);
    if ((source[at + 1] != 'p' && source[at + 1] != 'P') || at + 2 >= source.size() || source[at + 2] != '{' ||
        end == std::string_view::npos)
      return false;
    std::string_view name = source.substr(at + 3, end - at - 3);
    bool inverted = name.starts_with('^');
    name.remove_prefix(inverted);
    std::string script = fmt::format("\\p{{sc:{}}}", name);
    if (name.find_first_of(":=") != std::string_view::npos || !compiles(script))
      return false;
    script[1] = inverted == (source[at + 1] == 'P') ? 'p' : 'P';
    result += script;
    at = end + 1;
    return true;
  }

  // What both read alike: sets, places, characters by name or number.
  static bool isAlike(char letter) {
    return !std::isalnum(static_cast<unsigned char>(letter)) ||
           std::string_view("dDpPAzZGnrtfaex").find(letter) != std::string_view::npos;
  }

  Status addEscape(std::string &result) {
    if (at + 1 == source.size())
      return unread("a '\\' with nothing behind it");
    if (addUnicode(result) || addScript(result))
      return Status::success();
    char letter = source[at + 1];
    bool inverted = std::isupper(static_cast<unsigned char>(letter)) != 0;
    if (auto set = setOf(letter)) {
      result.append(inverted ? "[^" : "[").append(std::tolower(letter) == 'w' ? wordsAlone : *set).append("]");
    } else if (letter == 'b' || letter == 'B') {
      std::string word = fmt::format("[{}]", wordsAlone);
      result += inverted ? fmt::format("(?:(?<={0})(?={0})|(?<!{0})(?!{0}))", word)
                         : fmt::format("(?:(?<={0})(?!{0})|(?<!{0})(?={0}))", word);
    } else if (letter == 'v') {
      result += "\\x0b";
    } else if (!isAlike(letter) ||
               (std::tolower(letter) == 'p' && (at + 2 == source.size() || source[at + 2] != '{'))) {
      return unread(fmt::format("'\\{}'", letter));
    } else {
      result.append(source.substr(at, 2));
    }
    at += 2;
    return Status::success();
  }

  // (?m:..) lets '.' match newlines in Ruby, which is (?s:..) here. Newlines are borders of ^ and $ always. Where case
  // does not count, sets of Unicode and letters that have one sign for several have more members there.
  Status addGroup(std::string &result) {
    size_t end = source.find_first_not_of("imx-", at + 2);
    bool flags = end != std::string_view::npos && end > at + 2 && (source[end] == ':' || source[end] == ')');
    std::string group(source.substr(at, flags ? end - at : 2));
    if (flags && source[end] == ')' && at > 0)
      return unread(fmt::format("'{})' behind the beginning", group));
    if (flags && group.substr(0, group.find('-')).find('i') != std::string::npos) {
      size_t close = end;
      for (int open = 1; close < source.size() && open > 0; ++close)
        if (source[close] == '\\')
          ++close;
        else if (source[end] == ':')
          open += source[close] == '(' ? 1 : source[close] == ')' ? -1 : 0;
      std::string inside(source.substr(end, close - end));
      std::transform(inside.begin(), inside.end(), inside.begin(),
                     [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
      for (std::string_view more : {"\\p", "[:", "[^", "ss", "st", "ff", "fi", "fl"})
        if (inside.find(more) != std::string::npos)
          return unread(fmt::format("'{}' where case does not count,", more));
    }
    std::replace(group.begin(), group.end(), 'm', 's');
    result += group;
    at += group.size();
    return Status::success();
  }

  Status addRepeat(std::string &result) {
    size_t end = source.find('}', at);
    std::string_view inside = end == std::string_view::npos ? "" : source.substr(at + 1, end - at - 1);
    bool repeats =
        !inside.empty() && inside != "," && inside.find_first_not_of("0123456789,") == std::string_view::npos;
    if (!repeats) {
      result += source[at++];
      return Status::success();
    }
    if (end + 1 < source.size() &&
        source[end + 1] == '+') // a repeat of the repeat there, here one that gives nothing back
      return unread("'+' behind a repeat in braces");
    // There a repeat that may be left out, here one that takes as little as it can.
    if (end + 1 < source.size() && source[end + 1] == '?' && inside.find(',') == std::string_view::npos)
      return unread("'?' behind a number in braces");
    result.append(inside[0] == ',' ? "{0" : "{").append(inside).append("}");
    at = end + 1;
    return Status::success();
  }

  // [..]; of [A&&B] what is in both, (?:(?=[B])[A]); of [A\S] what is in either, (?:[^\s]|[A]); of [^A\S] blanks that
  // are not in A, (?:(?![A])[\s]).
  Expected<std::string> readBrackets() {
    size_t begin = at++;
    bool negated = at < source.size() && source[at] == '^';
    at += negated;
    std::string inside;
    std::vector<std::string_view> complements; // of what sets are there
    std::optional<std::string> both;
    for (bool first = true; at < source.size(); first = false) {
      char c = source[at];
      if (c == ']' && !first) {
        ++at;
        if (!complements.empty() && both)
          return unread("'&&' beside a set that is all but another");
        return written(inside, negated, complements, both);
      }
      if (c == '\\') {
        BRAID_TRY(addEscapeInside(inside, complements));
      } else if (source.substr(at).starts_with("[:")) {
        auto known = std::find_if(std::begin(posix), std::end(posix),
                                  [&](const auto &set) { return source.substr(at).starts_with(set.first); });
        if (known == std::end(posix))
          return unread("'[:' without one of the known sets");
        inside.append(known->second);
        at += known->first.size();
      } else if (c == '[') {
        return unread("a bracket inside of brackets");
      } else if (source.substr(at).starts_with("&&")) {
        if (negated || first || both)
          return unread("'&&' here");
        at += 2;
        if (at < source.size() && source[at] == '[') {
          BRAID_ASSIGN(both, readBrackets());
          if (at >= source.size() || source[at] != ']')
            return unread("what is behind '&&[..]'");
        } else {
          return unread("'&&' without a bracket behind it");
        }
      } else {
        inside += source[at++];
      }
    }
    at = begin;
    return unread("a '[' without its ']'");
  }

  Expected<std::string> written(const std::string &inside, bool negated, std::span<const std::string_view> complements,
                                const std::optional<std::string> &both) const {
    std::string plain = (negated ? "[^" : "[") + inside + "]";
    if (complements.empty())
      return both ? "(?:(?=" + *both + ")" + plain + ")" : plain;
    if (!negated) {
      std::string either = inside.empty() ? "" : "|" + plain;
      for (size_t i = complements.size(); i-- > 0;)
        either = fmt::format("{}[^{}]{}", i ? "|" : "", complements[i], either);
      return "(?:" + either + ")";
    }
    if (complements.size() > 1)
      return unread("a set without what is not in two others");
    return inside.empty() ? fmt::format("[{}]", complements[0])
                          : fmt::format("(?:(?![{}])[{}])", inside, complements[0]);
  }

  Status addEscapeInside(std::string &inside, std::vector<std::string_view> &complements) {
    if (at + 1 == source.size())
      return unread("a '\\' with nothing behind it");
    if (addUnicode(inside) || addScript(inside))
      return Status::success();
    char letter = source[at + 1];
    if (auto set = setOf(letter); set && std::isupper(static_cast<unsigned char>(letter)))
      complements.push_back(*set);
    else if (set)
      inside += *set;
    else if (letter == 'v')
      inside += "\\x0b";
    else if (letter != 'b' && (!isAlike(letter) || std::string_view("AzZG").find(letter) != std::string_view::npos ||
                               (std::tolower(letter) == 'p' && (at + 2 == source.size() || source[at + 2] != '{'))))
      return unread(fmt::format("'\\{}' inside of brackets", letter));
    else
      inside.append(source.substr(at, 2));
    at += 2;
    return Status::success();
  }

  std::string_view source;
  size_t at = 0;
};

std::string messageOf(int error) {
  std::array<PCRE2_UCHAR, 256> text;
  int length = pcre2_get_error_message(error, text.data(), text.size());
  return std::string(reinterpret_cast<const char *>(text.data()), static_cast<size_t>(std::max(length, 0)));
}

} // namespace

Expected<std::string> translatedPattern(std::string_view expression) { return Translator(expression).translate(); }

Expected<Pattern> Pattern::make(std::string_view expression, std::string_view translated, uint32_t options) {
  int error = 0;
  PCRE2_SIZE place = 0;
  std::unique_ptr<pcre2_compile_context, decltype(&pcre2_compile_context_free)> context(
      pcre2_compile_context_create(nullptr), pcre2_compile_context_free);
  if (!context)
    return Status::error(ErrorCode::ioError, "out of memory");
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  pcre2_code *compiled = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(), options,
                                       &error, &place, context.get());
  if (!compiled)
    return Status::error(ErrorCode::unsupported,
                         "'{}' is no regular expression that is read here: {} (at byte {} of '{}')",
                         escaped(expression), messageOf(error), place, escaped(translated));
  pcre2_jit_compile(compiled, PCRE2_JIT_COMPLETE); // where that cannot be it is interpreted
  Pattern pattern;
  pattern.source = expression;
  pattern.code = std::shared_ptr<const pcre2_code>(
      compiled, [](const pcre2_code *code) { pcre2_code_free(const_cast<pcre2_code *>(code)); });
  return pattern;
}

Expected<Pattern> Pattern::compile(std::string_view expression) {
  if (firstInvalidUtf8(expression))
    return Status::error(ErrorCode::corruptFile, "'{}' is no UTF-8", escaped(expression));
  BRAID_ASSIGN(std::string translated, translatedPattern(expression));
  return make(expression, translated, PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE);
}

Expected<Pattern> Pattern::literal(std::string_view text) { return make(text, text, PCRE2_UTF | PCRE2_LITERAL); }

Status Pattern::forEachMatch(std::string_view text, const std::function<Status(size_t, size_t)> &visit) const {
  std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> match(
      pcre2_match_data_create_from_pattern(code.get(), nullptr), pcre2_match_data_free);
  if (!match)
    return Status::error(ErrorCode::ioError, "out of memory");
  std::optional<size_t> lastEnd;
  for (size_t from = 0; from <= text.size();) {
    auto search = [&](uint32_t options) {
      return pcre2_match(code.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from,
                         PCRE2_NO_UTF_CHECK | options, match.get(), nullptr);
    };
    int found = search(0);
    if (found == PCRE2_ERROR_JIT_STACKLIMIT)
      found = search(PCRE2_NO_JIT);
    if (found == PCRE2_ERROR_NOMATCH)
      break;
    if (found < 0)
      return Status::error(ErrorCode::unsupported, "the search for '{}' in a text of {} bytes ends at byte {}: {}",
                           escaped(source), text.size(), from, messageOf(found));
    const PCRE2_SIZE *range = pcre2_get_ovector_pointer(match.get());
    size_t begin = range[0], end = range[1];
    if (begin < from || begin > end) // \K in a group that looks around
      return Status::error(ErrorCode::unsupported, "'{}' matches bytes {} to {} behind byte {}", escaped(source), begin,
                           end, from);
    if (begin == end && lastEnd == end) { // the end of the one before it is no match of its own
      from = end < text.size() ? end + firstCharacterBytes(text.substr(end)) : end + 1;
      continue;
    }
    BRAID_TRY(visit(begin, end));
    lastEnd = from = end;
  }
  return Status::success();
}

} // namespace braid::runtime
