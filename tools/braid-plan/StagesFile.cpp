//===- StagesFile.cpp - JSON to Stages ----------------------------------------------------------------------------===//
#include "tools/braid-plan/StagesFile.h"

#include "frontend/Json.h"

using namespace braid;
using namespace braid::json;
using llvm::StringRef;

/// Names and times of a picture; a search over more would not end in seconds.
static constexpr size_t maxTasks = 32768;

template <size_t N> static std::vector<StringRef> names(const std::array<std::string_view, N> &list) {
  return {list.begin(), list.end()};
}

static std::string elementPath(const Reader &r, StringRef key, size_t i) {
  return r.pathOf(key) + "[" + std::to_string(i) + "]";
}

/// A list of numbers at `key`; ranges are checked by checkStages.
static void readTimes(Reader &r, Errors &errors, StringRef key, bool required, std::vector<double> &times) {
  const Value *v = required ? r.require(key, "valid: a list of times, one per slice") : r.take(key);
  if (!v)
    return;
  if (v->kind != Kind::array)
    return r.error(key, describe(*v) + " is not a list of times");
  if (v->items.empty())
    return r.error(key,
                   required ? "is empty; valid: one time per slice" : "is empty; valid: one time per slice, or no key");
  for (size_t i = 0; i < v->items.size(); ++i)
    if (v->items[i].isNumber())
      times.push_back(v->items[i].number);
    else
      errors.report(elementPath(r, key, i), describe(v->items[i]) + " is not a time");
}

static void readTokens(Reader &r, Errors &errors, StringRef key, std::vector<int64_t> &tokens) {
  const Value *v = r.take(key);
  if (!v)
    return;
  if (v->kind != Kind::array || v->items.empty())
    return r.error(key, describe(*v) + " is not a list of tokens, one number per slice");
  for (size_t i = 0; i < v->items.size(); ++i) {
    const Value &item = v->items[i];
    if (item.kind == Kind::integer && item.integer >= 1 && item.integer <= maxTokens)
      tokens.push_back(item.integer);
    else
      errors.report(elementPath(r, key, i),
                    describe(item) + " is no number of tokens; valid: 1 to " + std::to_string(maxTokens));
  }
}

static schedule::BlockTimes readBlock(const Value &value, const std::string &path, Errors &errors) {
  schedule::BlockTimes block;
  Reader r(value, path, errors);
  readTimes(r, errors, "A", true, block.A);
  readTimes(r, errors, "D", true, block.D);
  readTimes(r, errors, "M", true, block.M);
  readTimes(r, errors, "C", true, block.C);
  readTimes(r, errors, "G", false, block.G);
  readTimes(r, errors, "R", false, block.R);
  readTimes(r, errors, "WA", false, block.WA);
  readTimes(r, errors, "WM", false, block.WM);
  readTokens(r, errors, "slices", block.slices);
  readTokens(r, errors, "moe_slices", block.moeSlices);
  return block;
}

std::optional<schedule::Stages> plan::parseStages(StringRef text, StringRef filename, DiagnosticFn error) {
  std::optional<Value> root = parseObject(text, filename, error, "{\"schedule\": .., \"blocks\": [..]}");
  if (!root)
    return std::nullopt;
  Errors errors(*root, filename, error);
  errors.doublePrecision = true;
  schedule::Stages stages;
  {
    Reader r(*root, "", errors);
    std::string pipeline = "1A1M", direction = "forward";
    r.choice("schedule", pipeline, names(schedule::pipelineNames));
    r.choice("direction", direction, names(schedule::directionNames));
    r.boolean("cross_block", stages.crossBlock);
    stages.pipeline = *schedule::parsePipeline(pipeline);
    stages.direction = direction == "forward" ? schedule::Direction::forward : schedule::Direction::backward;
    if (const Value *overhead = r.objectAt("overhead")) {
      Reader o(*overhead, "overhead", errors);
      o.number("compute", stages.computeOverhead, 0, 1e300);
      o.number("comm", stages.commOverhead, 0, 1e300);
    }
    const Value *blocks = r.require("blocks", "valid: a list of blocks, each with lists A, D, M and C");
    if (blocks && blocks->kind != Kind::array)
      r.error("blocks", describe(*blocks) + " is not a list of blocks");
    else if (blocks)
      for (size_t b = 0; b < blocks->items.size(); ++b) {
        std::string path = elementPath(r, "blocks", b);
        if (blocks->items[b].kind == Kind::object)
          stages.blocks.push_back(readBlock(blocks->items[b], path, errors));
        else
          errors.report(path, describe(blocks->items[b]) + " is not an object with lists A, D, M and C");
      }
  }
  if (errors.any())
    return std::nullopt;
  size_t tasks = 0;
  for (const schedule::BlockTimes &block : stages.blocks)
    tasks += 2 * block.A.size() + 6 * block.D.size();
  if (tasks > maxTasks)
    errors.report("blocks", std::to_string(tasks) + " tasks; valid: at most " + std::to_string(maxTasks));
  else if (std::optional<std::string> wrong = checkStages(stages)) {
    auto [path, message] = StringRef(*wrong).split(": ");
    errors.report(path, message.str());
  }
  return errors.any() ? std::nullopt : std::optional(std::move(stages));
}
