// Renders what the parser made, once.
#pragma once

#include "runtime/template/Builtins.h"
#include "runtime/template/Syntax.h"

namespace braid::runtime::jinja {

// Names and their values. Blocks of loops, macros and with have one each, which ends with them.
struct Scope {
  std::shared_ptr<const Scope> parent;
  std::unordered_map<std::string, Value> values;
};

struct Macro {
  const Statement &statement;
  std::shared_ptr<const Scope> scope; // in which it stands
};

class Evaluator {
public:
  Evaluator(Budget &budget, std::time_t now) : builtins(budget, now), budget(budget) {}

  // "12: 'x' is undefined"
  Expected<std::string> render(const Block &block, std::unordered_map<std::string, Value> variables);

private:
  enum class Flow : uint8_t { next, leaveLoop, nextRound };
  using ScopePtr = std::shared_ptr<Scope>;

  Expected<Flow> execute(const Block &block, const ScopePtr &scope, std::string &out);
  Expected<Flow> execute(const Statement &statement, const ScopePtr &scope, std::string &out);
  Expected<Flow> branches(const Statement &statement, const ScopePtr &scope, std::string &out);
  Expected<Flow> loop(const Statement &statement, const ScopePtr &scope, std::string &out);
  Expected<Flow> inScope(const Block &block, const ScopePtr &scope, std::string &out);
  Status set(const Statement &statement, const ScopePtr &scope);
  // What is set, a name or a member of a namespace.
  Status give(const Statement &statement, Value value, Scope &scope);
  Status setBlock(const Statement &statement, const ScopePtr &scope);
  Status write(std::string_view text, std::string &out);
  // The names of a target get a value, or its items.
  Status assign(const Statement &statement, Value value, Scope &scope);

  Expected<Value> evaluate(const Expression &expression, const Scope &scope);
  Expected<Value> evaluated(const Expression &expression, const Scope &scope);
  Expected<Value> lookUp(const std::string &name, const Scope &scope) const;
  Expected<Value> binary(const Expression &expression, const Scope &scope);
  Expected<Value> comparison(const Expression &expression, const Scope &scope);
  Expected<Value> literal(const Expression &expression, const Scope &scope);
  Expected<Value> call(const Expression &expression, const Scope &scope);
  Expected<Value> call(const Macro &macro, const Arguments &arguments, int line);
  Expected<Arguments> argumentsOf(const Expression &expression, const Scope &scope);
  // An error of a builtin happened at this line.
  template <class T> static Expected<T> at(int line, Expected<T> result) {
    return result ? std::move(result) : Expected<T>(located(line, result.status()));
  }
  static Status located(int line, const Status &status) { return status.withContext(fmt::format("{}", line)); }

  Builtins builtins;
  Budget &budget;
  uint32_t levels = 0; // of calls in each other
  std::vector<std::unique_ptr<Namespace>> namespaces;
  std::vector<std::unique_ptr<Macro>> macros;
};

} // namespace braid::runtime::jinja
