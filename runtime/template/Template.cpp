#include "runtime/template/Template.h"
#include "runtime/template/Evaluator.h"
#include "runtime/template/Parser.h"

#include <nlohmann/json.hpp>

namespace braid::runtime {

struct Template::Parsed {
  jinja::Block block;
};

// "FILE:12: what is wrong there"
static Status inFile(const Status &status, const std::string &file) {
  return Status::error(status.code(), "{}:{}", file, status.message());
}

Expected<Template> Template::parse(std::string_view source, const std::string &path) {
  Expected<jinja::Block> block = jinja::parseTemplate(source);
  if (!block)
    return inFile(block.status(), path);
  Template result;
  result.file = path;
  result.parsed = std::make_shared<const Parsed>(Parsed{*std::move(block)});
  return result;
}

Expected<std::string> Template::render(const nlohmann::ordered_json &variables, std::time_t now) const {
  jinja::Budget budget;
  std::unordered_map<std::string, jinja::Value> values;
  for (const auto &[name, json] : variables.items()) {
    Expected<jinja::Value> value = jinja::fromJson(budget, json);
    if (!value)
      return value.status().withContext(fmt::format("'{}'", name));
    values.insert_or_assign(name, *std::move(value));
  }
  Expected<std::string> text = jinja::Evaluator(budget, now).render(parsed->block, std::move(values));
  return text ? std::move(text) : inFile(text.status(), file);
}

} // namespace braid::runtime
