#include "runtime/template/Lexer.h"
#include "runtime/io/JsonText.h"
#include "runtime/text/Utf8.h"

#include <algorithm>

namespace braid::runtime::jinja {

namespace {

bool isDigit(char c) { return c >= '0' && c <= '9'; }
bool isNameBegin(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool isName(char c) { return isNameBegin(c) || isDigit(c); }

size_t leadingSpaces(std::string_view text) {
  size_t bytes = 0;
  while (bytes < text.size() && isPythonSpace(firstCharacter(text.substr(bytes))))
    bytes += firstCharacterBytes(text.substr(bytes));
  return bytes;
}

std::string_view withoutTrailingSpaces(std::string_view text) {
  while (!text.empty() && isPythonSpace(firstCharacter(text.substr(lastCharacterBegin(text)))))
    text.remove_suffix(text.size() - lastCharacterBegin(text));
  return text;
}

// \r\n and \r are newlines, of which the last one is not part of the template.
std::string withNewlines(std::string_view source) {
  std::string result;
  result.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i)
    if (source[i] != '\r')
      result += source[i];
    else if (i + 1 == source.size() || source[i + 1] != '\n')
      result += '\n';
  if (result.ends_with('\n'))
    result.pop_back();
  return result;
}

class Lexer {
public:
  explicit Lexer(std::string text) : source(std::move(text)) {}

  Expected<std::vector<Token>> run() {
    while (at < source.size()) {
      size_t begin = at;
      for (begin = source.find('{', begin); begin != std::string::npos; begin = source.find('{', begin + 1))
        if (begin + 1 < source.size() && std::string_view("{%#").find(source[begin + 1]) != std::string_view::npos)
          break;
      if (begin == std::string::npos) {
        addData(std::string_view(source).substr(at), '+', false);
        at = source.size();
        break;
      }
      std::string_view data = std::string_view(source).substr(at, begin - at);
      char kind = source[begin + 1];
      at = begin + 2;
      char sign = at < source.size() && (source[at] == '-' || source[at] == '+') ? source[at++] : ' ';
      addData(data, sign, kind != '{', begin - data.size());
      moveTo(begin);
      BRAID_TRY(kind == '#' ? comment() : kind == '%' && beginsRaw() ? raw() : code(kind == '%'));
    }
    add(Token::Kind::end, "the end of the template");
    return std::move(tokens);
  }

private:
  template <class... Args> Status fail(fmt::format_string<Args...> format, Args &&...args) const {
    return Status::error(ErrorCode::corruptFile, "{}: {}", line, fmt::format(format, std::forward<Args>(args)...));
  }

  std::string_view rest() const { return std::string_view(source).substr(at); }
  void add(Token::Kind kind, std::string text) { tokens.push_back({kind, std::move(text), line}); }

  // Counts lines up to there.
  void moveTo(size_t place) {
    line += static_cast<int>(std::count(source.begin() + static_cast<ptrdiff_t>(counted),
                                        source.begin() + static_cast<ptrdiff_t>(place), '\n'));
    counted = place;
  }

  // What stands between blocks; `begin`: where. `sign`: of the block behind it, `strips`: which is no value to print.
  void addData(std::string_view data, char sign, bool strips, size_t begin = 0) {
    if (sign == '-') {
      data = withoutTrailingSpaces(data);
    } else if (sign != '+' && strips) {
      size_t last = data.rfind('\n') + 1; // 0: it has no line's begin
      bool startsLine = last > 0 || begin == 0 || source[begin - 1] == '\n';
      std::string_view indent = data.substr(last);
      if (startsLine && leadingSpaces(indent) == indent.size())
        data = data.substr(0, last);
    }
    if (!data.empty())
      add(Token::Kind::data, std::string(data));
  }

  // Behind an end: its blanks, or a newline of a block.
  void skipBehind(char sign, bool trims) {
    if (sign == '-')
      at += leadingSpaces(rest());
    else if (sign != '+' && trims && rest().starts_with('\n'))
      ++at;
  }

  Status comment() {
    size_t end = source.find("#}", at);
    if (end == std::string::npos)
      return fail("the comment that begins here has no end");
    char sign = end > at && (source[end - 1] == '-' || source[end - 1] == '+') ? source[end - 1] : ' ';
    at = end + 2;
    skipBehind(sign, true);
    moveTo(at);
    return Status::success();
  }

  // From `from` on blanks, a word, blanks, perhaps a sign, and %}: where that ends, else 0.
  size_t endOfTag(size_t from, std::string_view word, char &sign) const {
    std::string_view text = std::string_view(source).substr(from);
    size_t begin = leadingSpaces(text);
    if (!text.substr(begin).starts_with(word))
      return 0;
    begin += word.size();
    begin += leadingSpaces(text.substr(begin));
    sign = begin < text.size() && (text[begin] == '-' || text[begin] == '+') ? text[begin++] : ' ';
    return text.substr(begin).starts_with("%}") ? from + begin + 2 : 0;
  }

  bool beginsRaw() const {
    char sign = ' ';
    return endOfTag(at, "raw", sign) != 0 && sign != '+';
  }

  Status raw() {
    char sign = ' ';
    at = endOfTag(at, "raw", sign);
    skipBehind(sign, false);
    for (size_t begin = source.find("{%", at); begin != std::string::npos; begin = source.find("{%", begin + 1)) {
      size_t inside = begin + 2;
      char before = inside < source.size() && (source[inside] == '-' || source[inside] == '+') ? source[inside++] : ' ';
      size_t end = endOfTag(inside, "endraw", sign);
      if (end == 0)
        continue;
      addData(std::string_view(source).substr(at, begin - at), before, true, at);
      at = end;
      skipBehind(sign, true);
      moveTo(at);
      return Status::success();
    }
    return fail("'raw' has no endraw");
  }

  // A value to print, or a block.
  Status code(bool block) {
    add(block ? Token::Kind::beginBlock : Token::Kind::beginPrint, block ? "{%" : "{{");
    int begin = line;
    std::string open; // brackets
    std::string_view close = block ? "%}" : "}}";
    for (;;) {
      moveTo(at);
      if (at >= source.size()) {
        line = begin;
        return fail("what begins with '{}' here has no '{}'", block ? "{%" : "{{", close);
      }
      if (open.empty()) {
        bool hasSign = source[at] == '-' || (block && source[at] == '+');
        if (rest().substr(hasSign).starts_with(close)) {
          add(block ? Token::Kind::endBlock : Token::Kind::endPrint, std::string(close));
          char sign = hasSign ? source[at] : ' ';
          at += hasSign + 2;
          skipBehind(sign, block);
          moveTo(at);
          return Status::success();
        }
      }
      if (size_t spaces = leadingSpaces(rest()))
        at += spaces;
      else if (isDigit(source[at]))
        BRAID_TRY(number());
      else if (isNameBegin(source[at]))
        name();
      else if (source[at] == '\'' || source[at] == '"')
        BRAID_TRY(text());
      else
        BRAID_TRY(sign(open));
    }
  }

  void name() {
    size_t end = at;
    while (end < source.size() && isName(source[end]))
      ++end;
    add(Token::Kind::name, source.substr(at, end - at));
    at = end;
  }

  // 1_000, 0x1f, 1.5, 2e-3; behind a point always whole.
  Status number() {
    size_t end = at;
    auto digits = [&] {
      while (end < source.size() && (isDigit(source[end]) || (source[end] == '_' && end + 1 < source.size() &&
                                                              isDigit(source[end + 1]) && isDigit(source[end - 1]))))
        ++end;
    };
    auto digitAt = [&](size_t place) { return place < source.size() && isDigit(source[place]); };
    bool member = !tokens.empty() && tokens.back().kind == Token::Kind::sign && tokens.back().text == ".", real = false;
    digits();
    if (!member && end < source.size() && source[end] == '.' && digitAt(end + 1)) {
      real = true;
      ++end;
      digits();
    }
    if (!member && end < source.size() && (source[end] == 'e' || source[end] == 'E')) {
      bool hasSign = end + 1 < source.size() && (source[end + 1] == '-' || source[end + 1] == '+');
      if (digitAt(end + 1 + hasSign)) {
        real = true;
        end += 1 + hasSign;
        digits();
      }
    }
    if (end < source.size() && isNameBegin(source[end]))
      return fail("'{}' is no number that is read; valid: decimal digits", source.substr(at, end + 1 - at));
    std::string digitsOnly = source.substr(at, end - at);
    std::erase(digitsOnly, '_');
    if (!real && digitsOnly.size() > 1 && digitsOnly[0] == '0' &&
        digitsOnly.find_first_not_of('0') != std::string::npos)
      return fail("'{}' is no number: it begins with 0", digitsOnly);
    add(real ? Token::Kind::real : Token::Kind::integer, std::move(digitsOnly));
    at = end;
    return Status::success();
  }

  Status text() {
    char quote = source[at];
    std::string result;
    for (size_t i = at + 1; i < source.size(); ++i) {
      if (source[i] == quote) {
        if (firstInvalidUtf8(result)) // halves of a surrogate pair
          return fail("the text in quotation marks holds what is no character");
        add(Token::Kind::text, std::move(result));
        at = i + 1;
        return Status::success();
      }
      if (source[i] == '\\' && i + 1 < source.size())
        BRAID_TRY(escape(++i, result));
      else
        result += source[i];
    }
    return fail("the text that begins with {} here has no end", quote);
  }

  // Python's escapes; what is none stays as it is. `i`: of the letter behind the backslash, then of the last one read.
  Status escape(size_t &i, std::string &out) {
    constexpr std::string_view letters = "\\'\"abfnrtv", meant = "\\'\"\a\b\f\n\r\t\v";
    char letter = source[i];
    if (size_t known = letters.find(letter); known != std::string_view::npos) {
      out += meant[known];
      return Status::success();
    }
    if (letter == '\n')
      return Status::success();
    bool octal = letter >= '0' && letter <= '7';
    size_t digits = letter == 'x' ? 2 : letter == 'u' ? 4 : letter == 'U' ? 8 : 0;
    if (letter == 'N')
      return fail("'\\N' in a text is not read; valid: the character, or \\uXXXX");
    if (!octal && digits == 0) {
      out += '\\';
      out += letter;
      return Status::success();
    }
    size_t begin = octal ? i : i + 1, end = begin, most = octal ? 3 : digits;
    auto isOf = [&](char c) {
      return octal ? c >= '0' && c <= '7' : std::isxdigit(static_cast<unsigned char>(c)) != 0;
    };
    while (end < source.size() && end < begin + most && isOf(source[end]))
      ++end;
    uint32_t character = 0;
    for (size_t k = begin; k < end; ++k)
      character = character * (octal ? 8 : 16) +
                  static_cast<uint32_t>(source[k] <= '9' ? source[k] - '0' : (source[k] | 0x20) - 'a' + 10);
    if ((!octal && end < begin + most) || character > 0x10ffff || (character >= 0xd800 && character < 0xe000))
      return fail("'\\{}' in a text is no character", escaped(source.substr(i, end - i)));
    appendCharacter(out, character);
    i = end - 1;
    return Status::success();
  }

  Status sign(std::string &open) {
    constexpr std::string_view pairs[] = {"==", "!=", "<=", ">=", "//", "**"}, singles = "+-/*%~[](){}<>=.:|,;";
    for (std::string_view pair : pairs)
      if (rest().starts_with(pair)) {
        add(Token::Kind::sign, std::string(pair));
        at += 2;
        return Status::success();
      }
    char c = source[at];
    if (singles.find(c) == std::string_view::npos)
      return fail("unexpected '{}'", escaped(rest().substr(0, firstCharacterBytes(rest()))));
    if (c == '(' || c == '[' || c == '{')
      open += c == '(' ? ')' : c == '[' ? ']' : '}';
    if (c == ')' || c == ']' || c == '}') {
      if (open.empty() || open.back() != c)
        return fail("unexpected '{}'{}", c, open.empty() ? "" : fmt::format(", expected '{}'", open.back()));
      open.pop_back();
    }
    add(Token::Kind::sign, std::string(1, c));
    ++at;
    return Status::success();
  }

  const std::string source;
  size_t at = 0, counted = 0;
  int line = 1;
  std::vector<Token> tokens;
};

} // namespace

Expected<std::vector<Token>> tokensOf(std::string_view source) {
  if (std::optional<size_t> invalid = firstInvalidUtf8(source))
    return Status::error(ErrorCode::corruptFile, "{}: byte {} of the template is no UTF-8",
                         1 + std::count(source.begin(), source.begin() + static_cast<ptrdiff_t>(*invalid), '\n'),
                         *invalid);
  return Lexer(withNewlines(source)).run();
}

} // namespace braid::runtime::jinja
