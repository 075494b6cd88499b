//===- HuggingFaceErnie.cpp - configs of ERNIE 4.5 with experts ---------------------------------------------------===//
// Experts are chosen by scores of a softmax that a correction is added to; which layers have some, three numbers say.
#include "frontend/HuggingFaceTranslation.h"

using namespace braid;
using namespace braid::json;
using llvm::StringRef;

Value Translation::feedForwardsOfErnie(const Value &layers, std::string &pattern) {
  // Names of weights say which layers have experts: nothing of that is compared.
  auto number = [&](StringRef key, int64_t usual, int64_t least) {
    const Value *given = take(key);
    if (given && (given->kind != Kind::integer || given->integer < least))
      errors.report(key, describe(*given) + " is not an integer from " + std::to_string(least) + " upwards");
    return given && given->kind == Kind::integer ? std::max(given->integer, least) : usual;
  };
  int64_t first = number("moe_layer_start_index", 1, 0), every = number("moe_layer_interval", 1, 1),
          last = number("moe_layer_end_index", -1, -1);
  for (int64_t layer = 0; integerIn(layers, 1024) && layer < layers.integer; ++layer)
    pattern += (layer + 1) % every == 0 && layer >= first && (last == -1 || layer <= last) ? 'M' : 'D';
  pattern = pattern.empty() ? "M" : shortest(pattern);

  Value experts = either("moe_num_experts", "num_experts", numberValue(family.experts)),
        topK = either("moe_k", "num_experts_per_tok", numberValue(family.topK)),
        width = get("moe_intermediate_size", numberValue(family.expertHidden)),
        count = get("moe_num_shared_experts", numberValue(family.sharedHidden)),
        hidden = get("intermediate_size", numberValue(family.intermediateSize));
  bool isAlone = isEqual(count, numberValue(int64_t(0)));
  Value shared = isAlone ? Value() : sharedExperts("moe_num_shared_experts", std::move(count), width);
  std::vector<Field> sparse =
      moe(std::move(experts), std::move(topK), std::move(width), alwaysNormalizes(), correctedRouter("softmax"));
  if (!isAlone)
    sparse.push_back({"shared_hidden", std::move(shared)});
  return object(usedBy(pattern, {{"D", object({{"kind", stringValue("dense")}, {"hidden", std::move(hidden)}})},
                                 {"M", object(std::move(sparse))}}));
}

void Translation::fixedKeysOfErnie() {
  only("use_bias", boolValue(false));
  only("moe_norm_min", numberValue(1e-12)); // of a sum that is never so small
  balanceLoss();
  // transformers reads none of these; the published code has them, with one value.
  only("moe_use_aux_free", boolValue(true));
  only("moe_gate", stringValue("topk"));
  only("moe_gate_act", stringValue("softmax"));
  for (StringRef key : {"moe_capacity", // of a training that drops
                        "num_nextn_predict_layers"}) // further tokens
    (void)take(key);
}
