// What a template says: statements, and expressions in them. The parser bounds how deep both are.
#pragma once

#include "runtime/template/Value.h"

namespace braid::runtime::jinja {

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;

struct Expression {
  enum class Kind : uint8_t {
    constant,
    name,
    list,
    tuple,
    dict,        // children: keys and values in turns
    member,      // children[0].text
    item,        // children[0][children[1]]
    slice,       // children[0][1:2:3], absent ones are null
    call,        // children[0](children[1..], named)
    filter,      // children[0]|text(children[1..], named)
    test,        // children[0] is text(children[1..], named)
    negate,      // not
    minus,
    plus,
    binary,      // text: + - * / // % ** ~ and or
    comparison,  // children[0] operators[0] children[1] ..
    conditional, // children[0] if children[1] else children[2], which may be null
  };
  Kind kind;
  int line;
  uint32_t depth = 1;
  std::string text = {};
  Value constant = {};
  std::vector<ExpressionPtr> children = {};
  std::vector<std::pair<std::string, ExpressionPtr>> named = {};
  std::vector<std::string> operators = {};
};

struct Statement;
using Block = std::vector<Statement>;

struct Statement {
  enum class Kind : uint8_t { data, print, branches, loop, set, setBlock, macro, with, scope, leaveLoop, nextRound };
  Kind kind;
  int line;
  std::string text = {}; // of data; of macro: its name; of set: the member of a namespace
  std::vector<std::string> names = {}; // what is set, what a loop gives values, parameters of a macro
  ExpressionPtr value = {}, condition = {}; // condition: of a loop, which elements
  // Of branches: each with its condition, null for else; of with: values of names; of macro: defaults of the last ones.
  std::vector<ExpressionPtr> expressions = {};
  std::vector<Block> blocks = {}; // of a loop: the body, then else
};

// One level deeper, in what is parsed or evaluated, as long as it lives.
class Level {
public:
  explicit Level(uint32_t &level) : level(level) { ++level; }
  ~Level() { --level; }

private:
  uint32_t &level;
};

} // namespace braid::runtime::jinja
