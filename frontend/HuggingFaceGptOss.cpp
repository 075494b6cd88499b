//===- HuggingFaceGptOss.cpp - configs of gpt-oss -----------------------------------------------------------------===//
// Attention with sinks, with a window in every other layer; experts with biases and a clamped activation in all.
#include "frontend/HuggingFaceTranslation.h"

using namespace braid;
using namespace braid::json;
using llvm::StringRef;

/// The rotations of a config that says nothing of them, but for theta.
Value json::usualRopeOfGptOss() {
  return objectValue({{"rope_type", stringValue("yarn")},
                      {"factor", numberValue(32.0)},
                      {"beta_fast", numberValue(32.0)},
                      {"beta_slow", numberValue(1.0)},
                      {"truncate", boolValue(false)},
                      {"original_max_position_embeddings", numberValue(int64_t(4096))}});
}

bool json::isUsualRopeOfGptOss(const Value &rope) {
  return llvm::all_of(usualRopeOfGptOss().fields, [&](const Field &usual) {
    const Value *given = rope.find(usual.name);
    return given && isEqual(*given, usual.value);
  });
}

/// W: with a window, N: with all keys. All have sinks.
void Translation::layersOfGptOss(const Value &layers, Value &mixers, std::string &pattern) {
  pattern = shortest(windowedLayers(layers));
  Value all = attention(), bias = get("attention_bias", boolValue(true));
  all.fields.push_back({"qkv_bias", bias});
  all.fields.push_back({"output_bias", std::move(bias)});
  all.fields.push_back({"sinks", boolValue(true)});
  Value local = all;
  addWindow(local, pattern, 128);
  mixers = object(usedBy(pattern, {{"W", std::move(local)}, {"N", std::move(all)}}));
}

/// Weights of the chosen experts are a softmax of their logits: scores of all of them, divided by their sum.
Value Translation::expertsOfGptOss(std::string &pattern) {
  pattern = "M";
  Value experts = either("num_local_experts", "num_experts", numberValue(family.experts)),
        topK = get("num_experts_per_tok", numberValue(family.topK)),
        width = get("intermediate_size", numberValue(family.intermediateSize));
  std::vector<Field> fields =
      moe(std::move(experts), std::move(topK), std::move(width), alwaysNormalizes(), {{"bias", boolValue(true)}});
  fields.push_back({"activation", stringValue("swiglu_clamp")});
  fields.push_back({"bias", boolValue(true)});
  return object({{"M", object(std::move(fields))}});
}

void Translation::fixedKeysOfGptOss() {
  only("swiglu_alpha", numberValue(1.702));
  only("swiglu_limit", numberValue(7.0));
  balanceLoss();
  for (StringRef key : {"experts_per_token", "initial_context_length"}) // which transformers does not read
    (void)take(key);
}
