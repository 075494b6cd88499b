//===- RecurrenceParser.cpp - text of a recurrence to terms -------------------------------------------------------===//
//   sum     = ["-"] product { ("+" | "-") product }        product = factor { ["*" | "/"] factor }
//   factor  = primary { "^" ("2" | "3" | "4") } ["^T"]
//   primary = number | name | name "(" args ")" | "(" sum ")"
//   args    = (sum | name "=" (name | number)) { "," .. }
//   state   = name "=" sum { ";" name "=" sum }             names may have parts: norm.weight
#include "frontend/ModelSpec.h"
#include "frontend/Recurrence.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FormatVariadic.h"
#include <charconv>
#include <cmath>

using namespace braid;
using namespace braid::recurrence;
using llvm::formatv;
using llvm::StringRef;

static constexpr size_t maxText = 1024, maxDepth = 32;

namespace {

class Parser {
public:
  Parser(StringRef text, StringRef key, ErrorFn error, bool imaginary)
      : text(text), key(key), errorFn(error), imaginary(imaginary) {}

  bool sum(Term &out, size_t depth = 0);
  bool word(StringRef expected);
  bool left(Statement &out);
  bool separator() { return accept(';'); }
  bool end();
  bool tooLong();

private:
  bool product(Term &out, size_t depth);
  bool factor(Term &out, size_t depth);
  bool transposed(Term &out);
  bool primary(Term &out, size_t depth);
  bool arguments(Term &call, size_t depth);
  bool number(Term &out);
  void skipSpaces() { at = std::min(text.find_first_not_of(" \t\r\n", at), text.size()); }
  char peek() {
    skipSpaces();
    return at < text.size() ? text[at] : '\0';
  }
  bool accept(char c) {
    if (peek() != c)
      return false;
    ++at;
    return true;
  }
  static bool startsName(char c) { return llvm::isAlpha(c) || c == '_'; }
  static bool startsNumber(char c) { return llvm::isDigit(c) || c == '.'; }
  StringRef name() {
    size_t begin = at;
    do
      at = std::min(text.find_if_not([](char c) { return llvm::isAlnum(c) || c == '_'; }, at), text.size());
    while (at + 1 < text.size() && text[at] == '.' && startsName(text[at + 1]) && ++at);
    return text.slice(begin, at);
  }
  /// What stands at the place, and what would be valid there.
  bool fail(StringRef valid) {
    skipSpaces();
    std::string found = at < text.size() ? "'" + shownText(text.substr(at), 8) + "'" : "the end";
    if (at < text.size() && !llvm::isASCII(text[at]))
      found += ", which is no ASCII,";
    errorFn(key, formatv("{0} at column {1}; valid: {2}", found, at + 1, valid).str());
    return false;
  }

  StringRef text, key;
  ErrorFn errorFn;
  bool imaginary; ///< i is the unit
  size_t at = 0;
};

} // namespace

bool Parser::tooLong() {
  if (text.size() <= maxText)
    return false;
  errorFn(key, formatv("has {0} letters; valid: at most {1}", text.size(), maxText).str());
  return true;
}

bool Parser::word(StringRef expected) {
  skipSpaces();
  size_t before = at;
  if (startsName(peek()) && name() == expected)
    return accept('=') || fail("'=' behind " + expected.str());
  at = before;
  return fail("an equation \"" + expected.str() + " = ..\"");
}

bool Parser::left(Statement &out) {
  skipSpaces();
  out.column = at + 1;
  if (!startsName(peek()))
    return fail("an equation \"M = ..\"");
  out.left = name().str();
  return accept('=') || fail("'=' behind " + shownText(out.left, 8));
}

bool Parser::end() {
  if (peek() == '{')
    return fail("names without subscripts; on the right of its equation M is that of the token before, in the output "
                "M_prev is");
  return peek() == '\0' && at >= text.size() ? true : fail("+, -, *, / or the end");
}

bool Parser::sum(Term &out, size_t depth) {
  if (depth > maxDepth)
    return fail(formatv("at most {0} levels of parentheses", maxDepth).str());
  out = {.kind = Term::Kind::sum, .column = (skipSpaces(), at + 1)};
  bool negative = accept('-');
  do {
    Term next;
    size_t column = at + 1;
    if (!product(next, depth))
      return false;
    if (negative && next.kind == Term::Kind::number) {
      next.number = -next.number;
    } else if (negative) {
      Term negated{.kind = Term::Kind::negate, .column = column};
      negated.args.push_back(std::move(next));
      next = std::move(negated);
    }
    out.args.push_back(std::move(next));
  } while (accept('+') ? (negative = false, true) : (negative = accept('-')));
  if (out.args.size() == 1) {
    Term only = std::move(out.args.front());
    out = std::move(only);
  }
  return true;
}

bool Parser::product(Term &out, size_t depth) {
  // "(u q) M" is read by the row u q, "u q M" by q.
  bool grouped = peek() == '(';
  if (!factor(out, depth))
    return false;
  while (true) {
    char c = peek();
    bool divide = c == '/';
    if (divide || c == '*')
      ++at;
    else if (!startsName(c) && !startsNumber(c) && c != '(')
      return true;
    Term next;
    if (!factor(next, depth))
      return false;
    auto isNumber = [](const Term &t) { return t.kind == Term::Kind::number; };
    if (divide && isNumber(out) && isNumber(next) && next.number != 0) { // 1 / 2 a
      out.number /= next.number;
      continue;
    }
    Term::Kind kind = divide ? Term::Kind::quotient : Term::Kind::product;
    if (divide || out.kind != kind || grouped) {
      Term joined{.kind = kind, .column = out.column};
      joined.args.push_back(std::move(out));
      out = std::move(joined);
      grouped = false;
    }
    out.args.push_back(std::move(next));
  }
}

bool Parser::factor(Term &out, size_t depth) {
  if (!primary(out, depth))
    return false;
  while (accept('^')) {
    if (peek() == 'T')
      return ++at, transposed(out);
    constexpr StringRef valid = "T: the transpose, as in k^T v; 2, 3 or 4: a power of each number";
    size_t before = at;
    Term exponent;
    if (!startsNumber(peek()))
      return fail(valid);
    if (!number(exponent))
      return false;
    if (!llvm::is_contained({2.0, 3.0, 4.0}, exponent.number)) {
      at = before;
      return fail(valid);
    }
    Term power{.kind = Term::Kind::power, .number = exponent.number, .column = out.column};
    power.args.push_back(std::move(out));
    foldNumbers(power);
    out = std::move(power);
  }
  return true;
}

static bool isComplex(const Term &t) {
  auto isName = [](const Term &part) { return part.kind == Term::Kind::name; };
  return t.kind == Term::Kind::sum && t.args.size() == 2 && isName(t.args[0]) &&
         t.args[1].kind == Term::Kind::product && t.args[1].args.size() == 2 && llvm::all_of(t.args[1].args, isName) &&
         t.args[1].args[0].name == "i";
}

Term recurrence::transposeOf(Term row, bool imaginary) {
  if (row.kind == Term::Kind::transpose) // a complex one that stayed
    return row;
  Term transposed{.kind = Term::Kind::transpose, .name = row.name, .column = row.column};
  if (imaginary && isComplex(row)) {
    transposed.name = row.args[0].name;
    transposed.args.push_back(std::move(row.args[1].args[1]));
  } else if (row.kind != Term::Kind::name) {
    transposed.name.clear();
    transposed.args.push_back(std::move(row));
  }
  return transposed;
}

bool Parser::transposed(Term &out) {
  bool expression = !(imaginary && isComplex(out)) && out.kind != Term::Kind::name;
  if (expression &&
      (out.kind == Term::Kind::number || out.kind == Term::Kind::transpose || (imaginary && mentions(out, "i")))) {
    at = out.column - 1;
    return fail("a row before ^T, or (k + i l)");
  }
  out = transposeOf(std::move(out), imaginary);
  return true;
}

bool Parser::number(Term &out) {
  double value = 0;
  auto [stop, problem] = std::from_chars(text.data() + at, text.data() + text.size(), value);
  if (problem != std::errc() || !std::isfinite(value) || std::abs(value) > mostNumber ||
      (value != 0 && std::abs(value) < leastNumber))
    return fail("a number from 1e-30 to 1e30");
  out = {.kind = Term::Kind::number, .number = value, .column = at + 1};
  at = stop - text.data();
  return at >= text.size() || text[at] != '.' || fail("a number with one point");
}

bool Parser::primary(Term &out, size_t depth) {
  char c = peek();
  if (startsNumber(c))
    return number(out);
  if (accept('(')) {
    return sum(out, depth + 1) && (accept(')') || fail("')'"));
  }
  if (!startsName(c))
    return fail("a name, a number or '('");
  out = {.kind = Term::Kind::name, .column = at + 1};
  out.name = name().str();
  if (out.name.size() > 32) {
    at = out.column - 1;
    return fail("names of at most 32 letters");
  }
  // A call's parenthesis follows at once: "beta (v - k M)" is a product.
  if (at < text.size() && text[at] == '(') {
    ++at;
    out.kind = Term::Kind::call;
    return arguments(out, depth + 1);
  }
  return true;
}

bool Parser::arguments(Term &call, size_t depth) {
  do {
    skipSpaces();
    size_t before = at;
    if (startsName(peek())) {
      StringRef option = name();
      if (accept('=')) {
        skipSpaces();
        size_t begin = at;
        if (startsName(peek()))
          (void)name();
        else
          at = std::min(text.find_if_not(llvm::isDigit, at), text.size());
        if (at == begin)
          return fail("a name or a whole number behind '='");
        if (!call.options.emplace(option.str(), text.slice(begin, at).str()).second) {
          at = before;
          return fail("each option once");
        }
        continue;
      }
      at = before;
    }
    Term argument;
    if (!sum(argument, depth))
      return false;
    call.args.push_back(std::move(argument));
  } while (accept(','));
  return accept(')') || fail("',' or ')'");
}

std::optional<Term> recurrence::parseTerm(StringRef text, StringRef key, ErrorFn error) {
  Parser parser(text, key, error, /*imaginary=*/false);
  Term term;
  if (parser.tooLong() || !parser.sum(term) || !parser.end())
    return std::nullopt;
  return term;
}

std::optional<Term> recurrence::parseEquation(StringRef text, StringRef left, StringRef key, ErrorFn error,
                                              bool imaginary) {
  Parser parser(text, key, error, imaginary);
  Term term;
  if (parser.tooLong() || !parser.word(left) || !parser.sum(term) || !parser.end())
    return std::nullopt;
  return term;
}

std::optional<std::vector<Statement>> recurrence::parseStatements(StringRef text, StringRef key, ErrorFn error,
                                                                  bool imaginary) {
  Parser parser(text, key, error, imaginary);
  std::vector<Statement> statements;
  if (parser.tooLong())
    return std::nullopt;
  do {
    Statement &statement = statements.emplace_back();
    if (!parser.left(statement) || !parser.sum(statement.right))
      return std::nullopt;
  } while (parser.separator());
  if (!parser.end())
    return std::nullopt;
  return statements;
}
