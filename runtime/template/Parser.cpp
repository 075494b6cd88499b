#include "runtime/template/Parser.h"
#include "runtime/io/JsonText.h"
#include "runtime/template/Lexer.h"

#include <charconv>

namespace braid::runtime::jinja {

namespace {

using Kind = Expression::Kind;

constexpr uint32_t mostLevels = 200; // of expressions in each other, and of statements

class Parser {
public:
  explicit Parser(std::vector<Token> tokens) : tokens(std::move(tokens)) {}

  Expected<Block> run() {
    BRAID_ASSIGN(Block block, statements({}));
    return block;
  }

private:
  template <class... Args> static Status fail(int line, fmt::format_string<Args...> format, Args &&...args) {
    return Status::error(ErrorCode::corruptFile, "{}: {}", line, fmt::format(format, std::forward<Args>(args)...));
  }
  template <class... Args> static Status unread(int line, fmt::format_string<Args...> format, Args &&...args) {
    return Status::error(ErrorCode::unsupported, "{}: {}", line, fmt::format(format, std::forward<Args>(args)...));
  }

  // ---- Tokens -------------------------------------------------------------------------------------------------------

  const Token &token(size_t ahead = 0) const { return tokens[std::min(at + ahead, tokens.size() - 1)]; }
  int line() const { return token().line; }
  bool isKind(Token::Kind kind) const { return token().kind == kind; }
  bool isSign(std::string_view sign, size_t ahead = 0) const {
    return token(ahead).kind == Token::Kind::sign && token(ahead).text == sign;
  }
  bool isWord(std::string_view word, size_t ahead = 0) const {
    return token(ahead).kind == Token::Kind::name && token(ahead).text == word;
  }
  bool takeSign(std::string_view sign) {
    bool is = isSign(sign);
    at += is;
    return is;
  }
  bool takeWord(std::string_view word) {
    bool is = isWord(word);
    at += is;
    return is;
  }
  Status unexpected(std::string_view wanted) const {
    return fail(line(), "unexpected '{}'; valid: {}", escaped(token().text), wanted);
  }
  Status expectSign(std::string_view sign) {
    return takeSign(sign) ? Status::success() : unexpected(fmt::format("'{}'", sign));
  }
  Expected<std::string> expectName() {
    if (!isKind(Token::Kind::name))
      return unexpected("a name");
    return tokens[at++].text;
  }
  Status expectEnd() {
    if (!isKind(Token::Kind::endBlock))
      return unexpected("'%}'");
    ++at;
    return Status::success();
  }

  Status checkLevel(uint32_t depth) const {
    return depth <= mostLevels ? Status::success() : fail(line(), "is nested deeper than {} levels", mostLevels);
  }

  Expected<ExpressionPtr> made(Expression expression) const {
    for (const ExpressionPtr &child : expression.children)
      if (child)
        expression.depth = std::max(expression.depth, child->depth + 1);
    for (const auto &[name, value] : expression.named)
      expression.depth = std::max(expression.depth, value->depth + 1);
    BRAID_TRY(checkLevel(expression.depth));
    return std::make_unique<Expression>(std::move(expression));
  }
  template <class... Children>
  Expected<ExpressionPtr> made(Kind kind, int line, std::string text, Children... children) const {
    Expression expression{.kind = kind, .line = line, .text = std::move(text)};
    (expression.children.push_back(std::move(children)), ...);
    return made(std::move(expression));
  }

  // ---- Statements ---------------------------------------------------------------------------------------------------

  // Up to a block that begins with one of `ends`, whose name is taken.
  Expected<Block> statements(std::vector<std::string_view> ends) {
    Level level(levels);
    BRAID_TRY(checkLevel(levels));
    Block block;
    int begin = at > 0 ? tokens[at - 1].line : 1; // of the block's first tag
    for (;;) {
      switch (token().kind) {
      case Token::Kind::end:
        if (!ends.empty())
          return fail(begin, "the block that begins here has no '{}'", ends.back());
        return block;
      case Token::Kind::data:
        block.push_back({.kind = Statement::Kind::data, .line = line(), .text = token().text});
        ++at;
        break;
      case Token::Kind::beginPrint: {
        int where = line();
        ++at;
        BRAID_ASSIGN(ExpressionPtr value, tuple());
        if (!isKind(Token::Kind::endPrint))
          return unexpected("'}}'");
        ++at;
        block.push_back({.kind = Statement::Kind::print, .line = where, .value = std::move(value)});
        break;
      }
      default: {
        ++at; // {%
        for (std::string_view end : ends)
          if (isWord(end))
            return block;
        BRAID_TRY(statement(block));
      }
      }
    }
  }
  // The same with an end of its own: {% endfor %}.
  Expected<Block> blockUntil(std::string_view end) {
    BRAID_TRY(expectEnd());
    BRAID_ASSIGN(Block block, statements({end}));
    ++at;
    BRAID_TRY(expectEnd());
    return block;
  }

  // The same, of no loop around it.
  Expected<Block> blockApart(std::string_view end) {
    int outer = std::exchange(loops, 0);
    Expected<Block> block = blockUntil(end);
    loops = outer;
    return block;
  }

  Status statement(Block &block) {
    int where = line();
    BRAID_ASSIGN(std::string word, expectName());
    if (word == "if")
      return branches(block, where);
    if (word == "for")
      return loop(block, where);
    if (word == "set")
      return set(block, where);
    if (word == "macro")
      return macro(block, where);
    if (word == "with")
      return with(block, where);
    if (word == "generation") {
      Statement result{.kind = Statement::Kind::scope, .line = where};
      BRAID_ASSIGN(Block body, blockApart("endgeneration"));
      result.blocks.push_back(std::move(body));
      block.push_back(std::move(result));
      return Status::success();
    }
    if (word == "break" || word == "continue") {
      if (loops == 0)
        return fail(where, "'{}' stands in no loop", word);
      block.push_back(
          {.kind = word == "break" ? Statement::Kind::leaveLoop : Statement::Kind::nextRound, .line = where});
      return expectEnd();
    }
    if (word.starts_with("end") || word == "else" || word == "elif")
      return fail(where, "'{}' ends no block that began", word);
    return unread(where, "'{}' is not read; valid: if, for, set, macro, with, raw, generation, break, continue",
                  escaped(word));
  }

  Status branches(Block &block, int where) {
    Statement result{.kind = Statement::Kind::branches, .line = where};
    for (bool last = false;;) {
      ExpressionPtr condition;
      if (!last) {
        BRAID_ASSIGN(condition, tuple(/*conditional=*/false));
      }
      result.expressions.push_back(std::move(condition));
      BRAID_TRY(expectEnd());
      BRAID_ASSIGN(Block body, last ? statements({"endif"}) : statements({"elif", "else", "endif"}));
      result.blocks.push_back(std::move(body));
      std::string end = tokens[at++].text;
      if (end == "endif")
        break;
      last = end == "else";
    }
    block.push_back(std::move(result));
    return expectEnd();
  }

  Status loop(Block &block, int where) {
    Statement result{.kind = Statement::Kind::loop, .line = where};
    BRAID_ASSIGN(result.names, targets());
    if (!takeWord("in"))
      return unexpected("'in'");
    BRAID_ASSIGN(result.value, tuple(/*conditional=*/false, "recursive"));
    if (takeWord("if")) {
      BRAID_ASSIGN(result.condition, expression());
    }
    if (isWord("recursive"))
      return unread(where, "'recursive' of a loop is not read");
    BRAID_TRY(expectEnd());
    ++loops;
    Expected<Block> body = statements({"else", "endfor"});
    --loops;
    if (!body)
      return body.status();
    result.blocks.push_back(*std::move(body));
    if (tokens[at++].text == "else") {
      BRAID_ASSIGN(Block otherwise, blockUntil("endfor"));
      result.blocks.push_back(std::move(otherwise));
    } else {
      BRAID_TRY(expectEnd());
    }
    block.push_back(std::move(result));
    return Status::success();
  }

  // a, or a, b
  Expected<std::vector<std::string>> targets() {
    std::vector<std::string> names;
    bool bracket = takeSign("(");
    do {
      if (!names.empty() && !isKind(Token::Kind::name))
        break;
      BRAID_ASSIGN(std::string name, expectName());
      if (isConstant(name))
        return fail(line(), "'{}' cannot be set", name);
      names.push_back(std::move(name));
    } while (takeSign(","));
    if (tokens[at - 1].text == ",")
      names.emplace_back(); // (a,) takes one apart
    if (bracket)
      BRAID_TRY(expectSign(")"));
    return names;
  }

  Status set(Block &block, int where) {
    Statement result{.kind = Statement::Kind::set, .line = where};
    if (isKind(Token::Kind::name) && isSign(".", 1)) {
      result.names.push_back(tokens[at].text);
      at += 2;
      BRAID_ASSIGN(result.text, expectName());
    } else {
      BRAID_ASSIGN(result.names, targets());
    }
    if (takeSign("=")) {
      BRAID_ASSIGN(result.value, tuple());
      BRAID_TRY(expectEnd());
    } else {
      result.kind = Statement::Kind::setBlock;
      if (isSign("|")) { // of what the block writes, which has no name that a template could say
        BRAID_ASSIGN(ExpressionPtr written, made(Kind::name, where, ""));
        BRAID_ASSIGN(result.value, filters(std::move(written)));
      }
      BRAID_ASSIGN(Block body, blockApart("endset"));
      result.blocks.push_back(std::move(body));
    }
    block.push_back(std::move(result));
    return Status::success();
  }

  Status macro(Block &block, int where) {
    Statement result{.kind = Statement::Kind::macro, .line = where};
    BRAID_ASSIGN(result.text, expectName());
    BRAID_TRY(expectSign("("));
    while (!takeSign(")")) {
      if (!result.names.empty())
        BRAID_TRY(expectSign(","));
      BRAID_ASSIGN(std::string name, expectName());
      if (isConstant(name) || name == "caller")
        return fail(where, "'{}' cannot be a parameter", name);
      result.names.push_back(std::move(name));
      if (takeSign("=")) {
        BRAID_ASSIGN(ExpressionPtr otherwise, expression());
        result.expressions.push_back(std::move(otherwise));
      } else if (!result.expressions.empty()) {
        return fail(where, "parameter '{}' of macro '{}' has no default, but one before it has", result.names.back(),
                    result.text);
      }
    }
    BRAID_ASSIGN(Block body, blockApart("endmacro"));
    result.blocks.push_back(std::move(body));
    block.push_back(std::move(result));
    return Status::success();
  }

  Status with(Block &block, int where) {
    Statement result{.kind = Statement::Kind::with, .line = where};
    while (!isKind(Token::Kind::endBlock)) {
      if (!result.names.empty())
        BRAID_TRY(expectSign(","));
      BRAID_ASSIGN(std::string name, expectName());
      BRAID_TRY(expectSign("="));
      BRAID_ASSIGN(ExpressionPtr value, expression());
      result.names.push_back(std::move(name));
      result.expressions.push_back(std::move(value));
    }
    BRAID_ASSIGN(Block body, blockUntil("endwith"));
    result.blocks.push_back(std::move(body));
    block.push_back(std::move(result));
    return Status::success();
  }

  // ---- Expressions --------------------------------------------------------------------------------------------------

  static bool isConstant(std::string_view name) {
    for (std::string_view constant : {"true", "True", "false", "False", "none", "None"})
      if (name == constant)
        return true;
    return false;
  }

  // One expression, or several with commas. `end`: a word that ends it.
  Expected<ExpressionPtr> tuple(bool conditional = true, std::string_view end = "", bool bracket = false) {
    int where = line();
    std::vector<ExpressionPtr> items;
    bool several = false;
    auto ends = [&] {
      return isKind(Token::Kind::endBlock) || isKind(Token::Kind::endPrint) || isSign(")") ||
             (!end.empty() && isWord(end));
    };
    while (!ends()) {
      BRAID_ASSIGN(ExpressionPtr item, conditional ? expression() : disjunction());
      items.push_back(std::move(item));
      if (!takeSign(","))
        break;
      several = true;
    }
    if (items.size() == 1 && !several)
      return std::move(items[0]);
    if (items.empty() && !bracket)
      return unexpected("an expression");
    return made({.kind = Kind::tuple, .line = where, .children = std::move(items)});
  }

  Expected<ExpressionPtr> expression() {
    Level level(levels);
    BRAID_TRY(checkLevel(levels));
    BRAID_ASSIGN(ExpressionPtr left, disjunction());
    while (isWord("if")) {
      int where = line();
      ++at;
      BRAID_ASSIGN(ExpressionPtr condition, disjunction());
      ExpressionPtr otherwise;
      if (takeWord("else")) {
        BRAID_ASSIGN(otherwise, expression());
      }
      BRAID_ASSIGN(left,
                   made(Kind::conditional, where, "", std::move(left), std::move(condition), std::move(otherwise)));
    }
    return left;
  }

  // Operators of one precedence, from left to right.
  template <class Operand>
  Expected<ExpressionPtr> chain(std::initializer_list<std::string_view> operators, Token::Kind kind, Operand operand) {
    BRAID_ASSIGN(ExpressionPtr left, operand());
    for (;;) {
      bool found = isKind(kind) && std::find(operators.begin(), operators.end(), token().text) != operators.end();
      if (!found)
        return left;
      int where = line();
      std::string text = tokens[at++].text;
      BRAID_ASSIGN(ExpressionPtr right, operand());
      BRAID_ASSIGN(left, made(Kind::binary, where, std::move(text), std::move(left), std::move(right)));
    }
  }

  Expected<ExpressionPtr> disjunction() {
    return chain({"or"}, Token::Kind::name, [&] { return conjunction(); });
  }
  Expected<ExpressionPtr> conjunction() {
    return chain({"and"}, Token::Kind::name, [&] { return negation(); });
  }
  Expected<ExpressionPtr> negation() {
    Level level(levels);
    BRAID_TRY(checkLevel(levels));
    int where = line();
    if (!takeWord("not"))
      return comparison();
    BRAID_ASSIGN(ExpressionPtr value, negation());
    return made(Kind::negate, where, "", std::move(value));
  }

  Expected<ExpressionPtr> comparison() {
    Expression result{.kind = Kind::comparison, .line = line()};
    for (;;) {
      BRAID_ASSIGN(ExpressionPtr operand, sum());
      result.children.push_back(std::move(operand));
      std::string text;
      if (isWord("in")) {
        text = "in";
      } else if (isWord("not") && isWord("in", 1)) {
        text = "not in";
        ++at;
      } else {
        for (std::string_view sign : {"==", "!=", "<", "<=", ">", ">="})
          if (isSign(sign))
            text = sign;
      }
      if (text.empty())
        return result.children.size() == 1 ? Expected<ExpressionPtr>(std::move(result.children[0]))
                                           : made(std::move(result));
      ++at;
      result.operators.push_back(std::move(text));
    }
  }

  Expected<ExpressionPtr> sum() {
    return chain({"+", "-"}, Token::Kind::sign, [&] { return joined(); });
  }
  Expected<ExpressionPtr> joined() {
    return chain({"~"}, Token::Kind::sign, [&] { return product(); });
  }
  Expected<ExpressionPtr> product() {
    return chain({"*", "/", "//", "%"}, Token::Kind::sign, [&] { return power(); });
  }
  Expected<ExpressionPtr> power() {
    return chain({"**"}, Token::Kind::sign, [&] { return unary(/*filtered=*/true); });
  }

  Expected<ExpressionPtr> unary(bool filtered) {
    Level level(levels);
    BRAID_TRY(checkLevel(levels));
    int where = line();
    ExpressionPtr value;
    if (isSign("-") || isSign("+")) {
      Kind kind = isSign("-") ? Kind::minus : Kind::plus;
      ++at;
      BRAID_ASSIGN(ExpressionPtr operand, unary(/*filtered=*/false));
      BRAID_ASSIGN(value, made(kind, where, "", std::move(operand)));
    } else {
      BRAID_ASSIGN(value, primary());
    }
    BRAID_ASSIGN(value, postfix(std::move(value)));
    return filtered ? filters(std::move(value)) : Expected<ExpressionPtr>(std::move(value));
  }

  Expected<ExpressionPtr> constant(int where, Value value) {
    Expression result{.kind = Kind::constant, .line = where};
    result.constant = std::move(value);
    return made(std::move(result));
  }

  Expected<ExpressionPtr> primary() {
    int where = line();
    std::string text = token().text;
    switch (token().kind) {
    case Token::Kind::name:
      ++at;
      if (text == "true" || text == "True" || text == "false" || text == "False")
        return constant(where, Value(text == "true" || text == "True"));
      if (text == "none" || text == "None")
        return constant(where, None());
      return made(Kind::name, where, std::move(text));
    case Token::Kind::text: // neighbours are one
      for (++at; isKind(Token::Kind::text); ++at)
        text += token().text;
      return constant(where, std::move(text));
    case Token::Kind::integer: {
      int64_t number = 0;
      if (std::from_chars(text.data(), text.data() + text.size(), number).ec != std::errc())
        return unread(where, "the number {} is greater than {}", text, INT64_MAX);
      ++at;
      return constant(where, number);
    }
    case Token::Kind::real: {
      double number = 0;
      if (std::from_chars(text.data(), text.data() + text.size(), number).ec != std::errc())
        return unread(where, "the number {} is none of a double", text);
      ++at;
      return constant(where, number);
    }
    default: break;
    }
    if (takeSign("(")) {
      BRAID_ASSIGN(ExpressionPtr value, bracketed());
      BRAID_TRY(expectSign(")"));
      return value;
    }
    bool isList = isSign("[");
    if (!isList && !isSign("{"))
      return unexpected("an expression");
    ++at;
    std::string_view close = isList ? "]" : "}";
    Expression result{.kind = isList ? Kind::list : Kind::dict, .line = where};
    while (!takeSign(close)) {
      if (!result.children.empty()) {
        BRAID_TRY(expectSign(","));
        if (takeSign(close))
          break;
      }
      BRAID_ASSIGN(ExpressionPtr item, expression());
      result.children.push_back(std::move(item));
      if (isList)
        continue;
      BRAID_TRY(expectSign(":"));
      BRAID_ASSIGN(ExpressionPtr value, expression());
      result.children.push_back(std::move(value));
    }
    return made(std::move(result));
  }

  Expected<ExpressionPtr> bracketed() {
    Level level(levels);
    BRAID_TRY(checkLevel(levels));
    return tuple(/*conditional=*/true, "", /*bracket=*/true);
  }

  Expected<ExpressionPtr> postfix(ExpressionPtr value) {
    for (;;) {
      int where = line();
      if (takeSign(".")) {
        std::string text = token().text;
        if (isKind(Token::Kind::integer)) {
          BRAID_ASSIGN(ExpressionPtr index, primary());
          BRAID_ASSIGN(value, made(Kind::item, where, "", std::move(value), std::move(index)));
        } else {
          BRAID_ASSIGN(text, expectName());
          BRAID_ASSIGN(value, made(Kind::member, where, std::move(text), std::move(value)));
        }
      } else if (takeSign("[")) {
        BRAID_ASSIGN(value, subscript(std::move(value), where));
      } else if (isSign("(")) {
        BRAID_ASSIGN(value, called(std::move(value), where));
      } else {
        return value;
      }
    }
  }

  Expected<ExpressionPtr> called(ExpressionPtr value, int where) {
    Expression call{.kind = Kind::call, .line = where};
    call.children.push_back(std::move(value));
    BRAID_TRY(arguments(call));
    return made(std::move(call));
  }

  Expected<ExpressionPtr> subscript(ExpressionPtr value, int where) {
    std::vector<ExpressionPtr> parts(1);
    while (!isSign("]")) {
      if (takeSign(":")) {
        if (parts.size() == 3)
          return unexpected("']'");
        parts.emplace_back();
        continue;
      }
      if (parts.back())
        return unexpected("':' or ']'");
      BRAID_ASSIGN(parts.back(), expression());
    }
    ++at;
    if (parts.size() == 1 && !parts[0])
      return fail(where, "'[]' has no index");
    Expression result{.kind = parts.size() == 1 ? Kind::item : Kind::slice, .line = where};
    result.children.push_back(std::move(value));
    if (parts.size() > 1)
      parts.resize(3);
    for (ExpressionPtr &part : parts)
      result.children.push_back(std::move(part));
    return made(std::move(result));
  }

  // (a, b, name=c)
  Status arguments(Expression &call) {
    BRAID_TRY(expectSign("("));
    for (bool later = false; !takeSign(")"); later = true) {
      if (later) {
        BRAID_TRY(expectSign(","));
        if (takeSign(")"))
          break;
      }
      if (isSign("*") || isSign("**"))
        return unread(line(), "'{}' before an argument is not read", token().text);
      if (isKind(Token::Kind::name) && isSign("=", 1)) {
        std::string name = token().text;
        at += 2;
        BRAID_ASSIGN(ExpressionPtr value, expression());
        call.named.emplace_back(std::move(name), std::move(value));
        continue;
      }
      if (!call.named.empty())
        return fail(line(), "an argument without a name follows one with a name");
      BRAID_ASSIGN(ExpressionPtr value, expression());
      call.children.push_back(std::move(value));
    }
    return Status::success();
  }

  // Filters, tests and calls.
  Expected<ExpressionPtr> filters(ExpressionPtr value) {
    for (;;) {
      int where = line();
      if (takeSign("|")) {
        Expression filter{.kind = Kind::filter, .line = where};
        BRAID_ASSIGN(filter.text, expectName());
        filter.children.push_back(std::move(value));
        if (isSign("("))
          BRAID_TRY(arguments(filter));
        BRAID_ASSIGN(value, made(std::move(filter)));
      } else if (takeWord("is")) {
        BRAID_ASSIGN(value, test(std::move(value), where));
      } else if (isSign("(")) {
        BRAID_ASSIGN(value, called(std::move(value), where));
      } else {
        return value;
      }
    }
  }

  // x is divisibleby(3), x is divisibleby 3
  Expected<ExpressionPtr> test(ExpressionPtr value, int where) {
    bool negated = takeWord("not");
    Expression test{.kind = Kind::test, .line = where};
    BRAID_ASSIGN(test.text, expectName());
    test.children.push_back(std::move(value));
    bool argument = isKind(Token::Kind::text) || isKind(Token::Kind::integer) || isKind(Token::Kind::real) ||
                    isSign("[") || isSign("{") ||
                    (isKind(Token::Kind::name) && !isWord("else") && !isWord("or") && !isWord("and"));
    if (isSign("(")) {
      BRAID_TRY(arguments(test));
    } else if (argument) {
      if (isWord("is"))
        return fail(line(), "a test follows a test; valid: brackets, or 'and'");
      BRAID_ASSIGN(ExpressionPtr operand, primary());
      BRAID_ASSIGN(operand, postfix(std::move(operand)));
      test.children.push_back(std::move(operand));
    }
    BRAID_ASSIGN(ExpressionPtr result, made(std::move(test)));
    return negated ? made(Kind::negate, where, "", std::move(result)) : Expected<ExpressionPtr>(std::move(result));
  }

  const std::vector<Token> tokens;
  size_t at = 0;
  uint32_t levels = 0;
  int loops = 0; // around what is parsed
};

} // namespace

Expected<Block> parseTemplate(std::string_view source) {
  BRAID_ASSIGN(std::vector<Token> tokens, tokensOf(source));
  return Parser(std::move(tokens)).run();
}

} // namespace braid::runtime::jinja
