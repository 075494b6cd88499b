#include "runtime/template/Evaluator.h"
#include "runtime/io/JsonText.h"

namespace braid::runtime::jinja {

namespace {

constexpr uint32_t mostLevels = 300; // of statements and expressions in each other, through macros

Status tooDeep() { return Status::error(ErrorCode::overflow, "is nested deeper than {} levels", mostLevels); }

} // namespace

Expected<std::string> Evaluator::render(const Block &block, std::unordered_map<std::string, Value> variables) {
  auto context = std::make_shared<Scope>();
  context->values = std::move(variables);
  auto scope = std::make_shared<Scope>();
  scope->parent = context;
  std::string out;
  BRAID_TRY(execute(block, scope, out).status());
  return out;
}

// ---- Statements -----------------------------------------------------------------------------------------------------

Status Evaluator::write(std::string_view text, std::string &out) {
  BRAID_TRY(budget.take(text.size() / Budget::bytesOfStep));
  out += text;
  return Status::success();
}

Expected<Evaluator::Flow> Evaluator::execute(const Block &block, const ScopePtr &scope, std::string &out) {
  Level level(levels);
  if (levels > mostLevels)
    return block.empty() ? tooDeep() : located(block[0].line, tooDeep());
  for (const Statement &statement : block) {
    if (Status status = budget.take(1); !status.ok())
      return located(statement.line, status);
    BRAID_ASSIGN(Flow flow, execute(statement, scope, out));
    if (flow != Flow::next)
      return flow;
  }
  return Flow::next;
}

Expected<Evaluator::Flow> Evaluator::inScope(const Block &block, const ScopePtr &scope, std::string &out) {
  auto inner = std::make_shared<Scope>();
  inner->parent = scope;
  return execute(block, inner, out);
}

Expected<Evaluator::Flow> Evaluator::execute(const Statement &statement, const ScopePtr &scope, std::string &out) {
  using Kind = Statement::Kind;
  switch (statement.kind) {
  case Kind::data:
    if (Status status = write(statement.text, out); !status.ok())
      return located(statement.line, status);
    return Flow::next;
  case Kind::print: {
    BRAID_ASSIGN(Value value, evaluate(*statement.value, *scope));
    BRAID_ASSIGN(std::string text, at(statement.line, printed(value)));
    if (Status status = write(text, out); !status.ok())
      return located(statement.line, status);
    return Flow::next;
  }
  case Kind::branches: return branches(statement, scope, out);
  case Kind::loop: return loop(statement, scope, out);
  case Kind::set: BRAID_TRY(set(statement, scope)); return Flow::next;
  case Kind::setBlock: BRAID_TRY(setBlock(statement, scope)); return Flow::next;
  case Kind::macro:
    macros.push_back(std::make_unique<Macro>(Macro{statement, scope}));
    scope->values.insert_or_assign(statement.text, Value(static_cast<const Macro *>(macros.back().get())));
    return Flow::next;
  case Kind::with: {
    auto inner = std::make_shared<Scope>();
    inner->parent = scope;
    for (size_t i = 0; i < statement.names.size(); ++i) {
      BRAID_ASSIGN(Value value, evaluate(*statement.expressions[i], *scope));
      inner->values.insert_or_assign(statement.names[i], std::move(value));
    }
    return execute(statement.blocks[0], inner, out);
  }
  case Kind::scope: return inScope(statement.blocks[0], scope, out);
  case Kind::leaveLoop: return Flow::leaveLoop;
  case Kind::nextRound: return Flow::nextRound;
  }
  return Status::error(ErrorCode::internal, "no statement");
}

Expected<Evaluator::Flow> Evaluator::branches(const Statement &statement, const ScopePtr &scope, std::string &out) {
  for (size_t i = 0; i < statement.blocks.size(); ++i) {
    bool taken = !statement.expressions[i];
    if (!taken) {
      BRAID_ASSIGN(Value condition, evaluate(*statement.expressions[i], *scope));
      taken = isTrue(condition);
    }
    if (taken)
      return execute(statement.blocks[i], scope, out);
  }
  return Flow::next;
}

Expected<Evaluator::Flow> Evaluator::loop(const Statement &statement, const ScopePtr &scope, std::string &out) {
  BRAID_ASSIGN(Value iterable, evaluate(*statement.value, *scope));
  BRAID_ASSIGN(std::vector<Value> items, at(statement.line, elementsOf(budget, iterable)));
  if (statement.condition) {
    std::vector<Value> kept;
    for (Value &item : items) {
      Scope inner;
      inner.parent = scope;
      BRAID_TRY(assign(statement, item, inner));
      BRAID_ASSIGN(Value is, evaluate(*statement.condition, inner));
      if (isTrue(is))
        kept.push_back(std::move(item));
    }
    items = std::move(kept);
  }
  if (items.empty())
    return statement.blocks.size() > 1 ? inScope(statement.blocks[1], scope, out) : Expected<Flow>(Flow::next);
  BRAID_ASSIGN(std::shared_ptr<Loop> loop, at(statement.line, makeLoop(std::move(items))));
  for (size_t i = 0; i < loop->items.size(); ++i) {
    if (Status status = budget.take(1); !status.ok())
      return located(statement.line, status);
    auto inner = std::make_shared<Scope>();
    inner->parent = scope;
    loop->index = i;
    inner->values.emplace("loop", std::shared_ptr<const Loop>(loop));
    BRAID_TRY(assign(statement, loop->items[i], *inner));
    BRAID_ASSIGN(Flow flow, execute(statement.blocks[0], inner, out));
    if (flow == Flow::leaveLoop)
      break;
  }
  return Flow::next;
}

Status Evaluator::assign(const Statement &statement, Value value, Scope &scope) {
  const std::vector<std::string> &names = statement.names;
  if (names.size() == 1) {
    scope.values.insert_or_assign(names[0], std::move(value));
    return Status::success();
  }
  size_t count = names.size() - names.back().empty(); // a, is one name
  Expected<std::vector<Value>> items = elementsOf(budget, value);
  if (!items)
    return located(statement.line, items.status());
  if (items->size() != count)
    return Status::error("{}: {} names are given {} values", statement.line, count, items->size());
  for (size_t i = 0; i < count; ++i)
    scope.values.insert_or_assign(names[i], std::move((*items)[i]));
  return Status::success();
}

Status Evaluator::set(const Statement &statement, const ScopePtr &scope) {
  BRAID_ASSIGN(Value value, evaluate(*statement.value, *scope));
  return give(statement, std::move(value), *scope);
}

Status Evaluator::give(const Statement &statement, Value value, Scope &scope) {
  if (statement.text.empty())
    return assign(statement, std::move(value), scope);
  BRAID_ASSIGN(Value target, lookUp(statement.names[0], scope));
  Namespace *const *space = target.as<Namespace *>();
  if (!space)
    return Status::error("{}: 'set {}.{}': '{}' is no namespace but '{}'", statement.line, statement.names[0],
                         statement.text, statement.names[0], typeName(target));
  if (statement.text.starts_with('_'))
    return Status::error("{}: 'set {}.{}': the name begins with _", statement.line, statement.names[0], statement.text);
  (*space)->values.set(Value(statement.text), std::move(value));
  return Status::success();
}

Status Evaluator::setBlock(const Statement &statement, const ScopePtr &scope) {
  std::string text;
  BRAID_TRY(inScope(statement.blocks[0], scope, text).status());
  Value value(std::move(text));
  if (statement.value) {
    Scope inner;
    inner.parent = scope;
    inner.values.emplace("", std::move(value)); // which filters begin with
    BRAID_ASSIGN(value, evaluate(*statement.value, inner));
  }
  return give(statement, std::move(value), *scope);
}

// ---- Expressions ----------------------------------------------------------------------------------------------------

Expected<Value> Evaluator::lookUp(const std::string &name, const Scope &scope) const {
  for (const Scope *where = &scope; where; where = where->parent.get())
    if (auto found = where->values.find(name); found != where->values.end())
      return found->second;
  static constexpr std::pair<std::string_view, Function> functions[] = {{"range", Function::range},
                                                                        {"dict", Function::dict},
                                                                        {"namespace", Function::makeNamespace},
                                                                        {"raise_exception", Function::raiseException},
                                                                        {"strftime_now", Function::strftimeNow}};
  for (const auto &[known, function] : functions)
    if (name == known)
      return Value(function);
  if (name == "cycler" || name == "joiner" || name == "lipsum")
    return Status::error(ErrorCode::unsupported, "'{}' is not read", name);
  return Value::undefined(fmt::format("'{}' is undefined", escaped(name)));
}

Expected<Value> Evaluator::evaluate(const Expression &expression, const Scope &scope) {
  Level level(levels);
  if (levels > mostLevels)
    return located(expression.line, tooDeep());
  if (Status status = budget.take(1); !status.ok())
    return located(expression.line, status);
  return evaluated(expression, scope);
}

Expected<Value> Evaluator::evaluated(const Expression &expression, const Scope &scope) {
  using Kind = Expression::Kind;
  int line = expression.line;
  switch (expression.kind) {
  case Kind::constant: return expression.constant;
  case Kind::name: return at(line, lookUp(expression.text, scope));
  case Kind::list:
  case Kind::tuple:
  case Kind::dict: return literal(expression, scope);
  case Kind::binary: return binary(expression, scope);
  case Kind::comparison: return comparison(expression, scope);
  case Kind::call: return call(expression, scope);
  case Kind::conditional: {
    BRAID_ASSIGN(Value is, evaluate(*expression.children[1], scope));
    if (isTrue(is))
      return evaluate(*expression.children[0], scope);
    return expression.children[2] ? evaluate(*expression.children[2], scope)
                                  : Value::undefined("an 'if' without 'else' is false");
  }
  default: break;
  }
  BRAID_ASSIGN(Value value, evaluate(*expression.children[0], scope));
  switch (expression.kind) {
  case Kind::negate: return Value(!isTrue(value));
  case Kind::minus:
    if (const double *number = value.as<double>())
      return Value(-*number);
    return at(line, builtins.binary("-", Value(int64_t(0)), value));
  case Kind::plus: return at(line, builtins.binary("+", Value(int64_t(0)), value));
  case Kind::member: return at(line, builtins.member(value, expression.text));
  case Kind::item: {
    BRAID_ASSIGN(Value key, evaluate(*expression.children[1], scope));
    return at(line, builtins.item(value, key));
  }
  case Kind::slice: {
    Value bounds[3];
    for (size_t i = 0; i < 3; ++i)
      if (const ExpressionPtr &bound = expression.children[i + 1]) {
        BRAID_ASSIGN(bounds[i], evaluate(*bound, scope));
      }
    return at(line, builtins.slice(value, bounds[0], bounds[1], bounds[2]));
  }
  case Kind::filter: {
    BRAID_ASSIGN(Arguments arguments, argumentsOf(expression, scope));
    return at(line, builtins.filter(expression.text, value, arguments));
  }
  case Kind::test: {
    BRAID_ASSIGN(Arguments arguments, argumentsOf(expression, scope));
    BRAID_ASSIGN(bool is, at(line, builtins.test(expression.text, value, arguments)));
    return Value(is);
  }
  default: return Status::error(ErrorCode::internal, "no expression");
  }
}

Expected<Value> Evaluator::literal(const Expression &expression, const Scope &scope) {
  std::vector<Value> items;
  for (const ExpressionPtr &child : expression.children) {
    BRAID_ASSIGN(Value item, evaluate(*child, scope));
    items.push_back(std::move(item));
  }
  if (expression.kind != Expression::Kind::dict)
    return at(expression.line,
              makeSequence(budget, std::move(items),
                           expression.kind == Expression::Kind::list ? Sequence::Kind::list : Sequence::Kind::tuple));
  Dict dict;
  for (size_t i = 0; i < items.size(); i += 2)
    if (Status status = insert(budget, dict, std::move(items[i]), std::move(items[i + 1])); !status.ok())
      return located(expression.line, status);
  return at(expression.line, makeDict(budget, std::move(dict)));
}

Expected<Value> Evaluator::binary(const Expression &expression, const Scope &scope) {
  BRAID_ASSIGN(Value left, evaluate(*expression.children[0], scope));
  bool isAnd = expression.text == "and";
  if ((isAnd || expression.text == "or") && isTrue(left) != isAnd)
    return left;
  BRAID_ASSIGN(Value right, evaluate(*expression.children[1], scope));
  return isAnd || expression.text == "or" ? std::move(right)
                                          : at(expression.line, builtins.binary(expression.text, left, right));
}

Expected<Value> Evaluator::comparison(const Expression &expression, const Scope &scope) {
  BRAID_ASSIGN(Value left, evaluate(*expression.children[0], scope));
  for (size_t i = 0; i < expression.operators.size(); ++i) {
    BRAID_ASSIGN(Value right, evaluate(*expression.children[i + 1], scope));
    BRAID_ASSIGN(bool is, at(expression.line, builtins.compare(expression.operators[i], left, right)));
    if (!is)
      return Value(false);
    left = std::move(right);
  }
  return Value(true);
}

Expected<Arguments> Evaluator::argumentsOf(const Expression &expression, const Scope &scope) {
  Arguments arguments;
  for (size_t i = 1; i < expression.children.size(); ++i) {
    BRAID_ASSIGN(Value value, evaluate(*expression.children[i], scope));
    arguments.values.push_back(std::move(value));
  }
  for (const auto &[name, expressionOf] : expression.named) {
    BRAID_ASSIGN(Value value, evaluate(*expressionOf, scope));
    arguments.named.emplace_back(name, std::move(value));
  }
  return arguments;
}

Expected<Value> Evaluator::call(const Expression &expression, const Scope &scope) {
  int line = expression.line;
  BRAID_ASSIGN(Value callee, evaluate(*expression.children[0], scope));
  BRAID_ASSIGN(Arguments arguments, argumentsOf(expression, scope));
  if (const auto *method = callee.as<std::shared_ptr<const Method>>())
    return at(line, builtins.method(**method, arguments));
  if (const Macro *const *macro = callee.as<const Macro *>())
    return call(**macro, arguments, line);
  if (const Function *function = callee.as<Function>()) {
    BRAID_ASSIGN(Value result, at(line, builtins.function(*function, arguments)));
    if (*function != Function::makeNamespace)
      return result;
    namespaces.push_back(std::make_unique<Namespace>(Namespace{*result.dict()}));
    return Value(namespaces.back().get());
  }
  if (const Undefined *undefined = callee.as<Undefined>())
    return Status::error("{}: {}: it cannot be called", line, *undefined->why);
  return Status::error("{}: '{}' cannot be called", line, typeName(callee));
}

Expected<Value> Evaluator::call(const Macro &macro, const Arguments &arguments, int line) {
  const Statement &statement = macro.statement;
  std::vector<std::string_view> names(statement.names.begin(), statement.names.end());
  Expected<Bound> given = Bound::of(arguments, names);
  if (!given)
    return located(line, given.status().withContext(fmt::format("macro '{}'", statement.text)));
  auto scope = std::make_shared<Scope>();
  scope->parent = macro.scope;
  size_t needed = names.size() - statement.expressions.size();
  for (size_t i = 0; i < names.size(); ++i) {
    Value value = Value::undefined(fmt::format("parameter '{}' was not given", statement.names[i]));
    if ((*given)[i]) {
      value = *(*given)[i];
    } else if (i >= needed) {
      BRAID_ASSIGN(value, evaluate(*statement.expressions[i - needed], *scope));
    }
    scope->values.insert_or_assign(statement.names[i], std::move(value));
  }
  std::string out;
  BRAID_TRY(execute(statement.blocks[0], scope, out).status());
  return Value(std::move(out));
}

} // namespace braid::runtime::jinja
