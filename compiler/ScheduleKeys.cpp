//===- ScheduleKeys.cpp - the module attributes of order and chunks -----------------------------------------------===//
#include "compiler/ScheduleKeys.h"

#include "dialects/braid/BraidDialect.h"
#include "mlir/IR/Builders.h"

using namespace mlir;
using namespace braid;

namespace {
struct Word {
  StringLiteral name;
  Phase reader;
  std::string ScheduleSpec::*member;
};
constexpr Word words[] = {{"braid.pipeline", Phase::scheduled, &ScheduleSpec::pipeline},
                          {"braid.slicing", Phase::scheduled, &ScheduleSpec::slicing}};

struct Number {
  StringLiteral name;
  Phase reader;
  int64_t ScheduleSpec::*member;
};
constexpr Number numbers[] = {{attrs::overlapDegree, Phase::scheduled, &ScheduleSpec::overlapDegree},
                              {"braid.chunk_size", Phase::chunked, &ScheduleSpec::chunkSize}};

/// The value of an attribute that may be absent; failure after a message where its type is another one.
template <typename T> FailureOr<T> find(ModuleOp module, StringRef name, StringRef valid) {
  Attribute attr = module->getAttr(name);
  if (!attr || isa<T>(attr))
    return llvm::cast_if_present<T>(attr);
  return module.emitError() << name << " is " << attr << "; valid: " << valid, failure();
}
} // namespace

FailureOr<ScheduleSpec> braid::scheduleKeysOf(ModuleOp module) {
  ScheduleSpec keys;
  for (const Word &word : words) {
    FailureOr<StringAttr> value = find<StringAttr>(module, word.name, "a name, as the key of `schedule`");
    if (failed(value))
      return failure();
    if (*value)
      keys.*word.member = value->getValue().str();
  }
  for (const Number &number : numbers) {
    FailureOr<IntegerAttr> value = find<IntegerAttr>(module, number.name, "an integer, as the key of `schedule`");
    if (failed(value))
      return failure();
    if (*value)
      keys.*number.member = value->getValue().getSExtValue();
  }
  return keys;
}

void braid::setScheduleKeys(ModuleOp module, const ScheduleSpec &keys) {
  Builder builder(module.getContext());
  const ScheduleSpec defaults;
  for (const Word &word : words)
    if (keys.*word.member == defaults.*word.member)
      module->removeAttr(word.name);
    else
      module->setAttr(word.name, builder.getStringAttr(keys.*word.member));
  for (const Number &number : numbers)
    if (keys.*number.member == defaults.*number.member)
      module->removeAttr(number.name);
    else
      module->setAttr(number.name, builder.getI64IntegerAttr(keys.*number.member));
}

void braid::dropScheduleKeys(ModuleOp module, Phase reached) {
  for (const Word &word : words)
    if (word.reader <= reached)
      module->removeAttr(word.name);
  for (const Number &number : numbers)
    if (number.reader <= reached)
      module->removeAttr(number.name);
}
