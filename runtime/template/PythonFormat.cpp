// Texts that numbers are read from and values written into, as Python does.
#include "runtime/io/JsonText.h"
#include "runtime/template/Builtins.h"

#include <charconv>
#include <cmath>

namespace braid::runtime::jinja {

// Without blanks around it, a plus, and '_' between digits; none: they stand elsewhere.
static std::optional<std::string> plainNumber(std::string_view text) {
  std::string result;
  text = stripped(text, Side::both, nullptr);
  if (text.starts_with('+') && !text.substr(1).starts_with('-'))
    text.remove_prefix(1);
  auto isDigit = [&](size_t at) { return at < text.size() && text[at] >= '0' && text[at] <= '9'; };
  for (size_t i = 0; i < text.size(); ++i)
    if (text[i] != '_')
      result += text[i];
    else if (i == 0 || !isDigit(i - 1) || !isDigit(i + 1))
      return std::nullopt;
  return result;
}

template <class Number> static std::optional<Number> readNumber(std::string_view text) {
  std::optional<std::string> plain = plainNumber(text);
  Number number = 0;
  if (!plain)
    return std::nullopt;
  auto [end, error] = std::from_chars(plain->data(), plain->data() + plain->size(), number);
  return error == std::errc() && end == plain->data() + plain->size() ? std::optional(number) : std::nullopt;
}

std::optional<int64_t> readInteger(std::string_view text) { return readNumber<int64_t>(text); }
std::optional<double> readFloat(std::string_view text) { return readNumber<double>(text); }

namespace {

// %-08.3f: flags, width, precision, letter.
struct Conversion {
  bool left = false, zeros = false, plus = false, blank = false;
  int width = 0, precision = -1;
  char letter = 0;
};

Expected<std::string> converted(const Conversion &how, const Value &value) {
  std::string body, sign;
  bool number = false;
  auto withSign = [&](bool negative, std::string digits) {
    sign = negative ? "-" : how.plus ? "+" : how.blank ? " " : "";
    body = std::move(digits);
    number = true;
  };
  if (how.letter == 's' || how.letter == 'r') {
    BRAID_ASSIGN(body, how.letter == 's' ? printed(value) : represented(value));
    if (how.precision >= 0)
      return Status::error(ErrorCode::unsupported, "a precision of '%{}' is not read", how.letter);
  } else if (how.letter == 'd' || how.letter == 'i' || how.letter == 'x') {
    std::optional<double> real = numberOf(value);
    std::optional<int64_t> whole = integerOf(value);
    if (!whole && real && how.letter != 'x' && std::abs(*real) < 0x1p62)
      whole = static_cast<int64_t>(*real);
    if (!whole)
      return Status::error("%{} asks for a number, not for '{}'", how.letter, typeName(value));
    uint64_t size = *whole < 0 ? 0 - static_cast<uint64_t>(*whole) : static_cast<uint64_t>(*whole);
    std::string digits = how.letter == 'x' ? fmt::format("{:x}", size) : fmt::format("{}", size);
    if (how.precision > static_cast<int>(digits.size()))
      digits.insert(0, static_cast<size_t>(how.precision) - digits.size(), '0');
    withSign(*whole < 0, std::move(digits));
  } else if (how.letter == 'f' || how.letter == 'e' || how.letter == 'g') {
    std::optional<double> real = numberOf(value);
    if (!real)
      return Status::error("%{} asks for a number, not for '{}'", how.letter, typeName(value));
    int precision = how.precision < 0 ? 6 : how.precision;
    double size = std::abs(*real);
    withSign(std::signbit(*real) && !std::isnan(*real), how.letter == 'f'   ? fmt::format("{:.{}f}", size, precision)
                                                        : how.letter == 'e' ? fmt::format("{:.{}e}", size, precision)
                                                                            : fmt::format("{:.{}g}", size, precision));
  } else {
    return Status::error(ErrorCode::unsupported, "'%{}' is not read; valid: %s %r %d %i %x %f %e %g %%",
                         escaped(std::string(1, how.letter)));
  }
  int64_t length = *lengthOf(Value(sign + body)), missing = std::max<int64_t>(how.width - length, 0);
  std::string fill(static_cast<size_t>(missing), how.zeros && number && !how.left ? '0' : ' ');
  return how.left ? sign + body + fill : fill.starts_with('0') ? sign + fill + body : fill + sign + body;
}

} // namespace

Expected<std::string> percentFormatted(std::string_view format, const Value &value) {
  const Sequence *tuple = value.sequence();
  std::vector<Value> values = tuple && tuple->kind == Sequence::Kind::tuple ? tuple->items : std::vector<Value>{value};
  std::string result;
  size_t used = 0;
  constexpr int most = 1000; // width and precision
  for (size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%') {
      result += format[i];
      continue;
    }
    Conversion how;
    for (++i; i < format.size() && std::string_view("-0+ #").find(format[i]) != std::string_view::npos; ++i) {
      how.left |= format[i] == '-';
      how.zeros |= format[i] == '0';
      how.plus |= format[i] == '+';
      how.blank |= format[i] == ' ';
      if (format[i] == '#')
        return Status::error(ErrorCode::unsupported, "'%#' is not read");
    }
    auto number = [&] {
      int digits = 0;
      for (; i < format.size() && format[i] >= '0' && format[i] <= '9'; ++i)
        digits = std::min(digits * 10 + (format[i] - '0'), most + 1);
      return digits;
    };
    how.width = number();
    if (i < format.size() && format[i] == '.') {
      ++i;
      how.precision = number();
    }
    if (how.width > most || how.precision > most)
      return Status::error(ErrorCode::unsupported, "a width in '%' is greater than {}", most);
    if (i == format.size())
      return Status::error("the format ends within '%'");
    how.letter = format[i];
    if (how.letter == '%') {
      result += '%';
      continue;
    }
    if (how.letter == '(')
      return Status::error(ErrorCode::unsupported, "'%(name)' is not read");
    if (used == values.size())
      return Status::error("'%' has more places than the {} values given", values.size());
    BRAID_ASSIGN(std::string text, converted(how, values[used++]));
    result += text;
  }
  bool named = value.dict() || value.is<Undefined>() || (tuple && tuple->kind != Sequence::Kind::tuple);
  if (used < values.size() && !named) // what may be for names
    return Status::error("'%' has {} places, but {} values were given", used, values.size());
  return result;
}

Expected<std::string> braceFormatted(Builtins &builtins, std::string_view format, const Arguments &arguments) {
  std::string result;
  size_t next = 0;
  for (size_t i = 0; i < format.size(); ++i) {
    char c = format[i];
    bool twice = i + 1 < format.size() && format[i + 1] == c;
    if ((c == '{' || c == '}') && twice) {
      result += c;
      ++i;
      continue;
    }
    if (c == '}')
      return Status::error("a single '}}' in the format");
    if (c != '{') {
      result += c;
      continue;
    }
    size_t end = format.find('}', i);
    if (end == std::string_view::npos)
      return Status::error("a single '{{' in the format");
    std::string field(format.substr(i + 1, end - i - 1));
    i = end;
    if (field.find_first_of(":!{.[") != std::string::npos)
      return Status::error(ErrorCode::unsupported, "'{{{}}}' is not read; valid: {{}}, {{0}}, {{name}}",
                           escaped(field));
    std::optional<int64_t> number = field.empty() ? std::optional<int64_t>(next++) : readInteger(field);
    const Value *value = nullptr;
    if (number && *number >= 0 && static_cast<size_t>(*number) < arguments.values.size())
      value = &arguments.values[static_cast<size_t>(*number)];
    for (const auto &[name, given] : arguments.named)
      if (name == field)
        value = &given;
    if (!value)
      return Status::error("the format has '{{{}}}', of which nothing was given", escaped(field));
    BRAID_ASSIGN(std::string text, printed(*value));
    BRAID_TRY(builtins.budget.take(1 + text.size() / Budget::bytesOfStep));
    result += text;
  }
  return result;
}

} // namespace braid::runtime::jinja
