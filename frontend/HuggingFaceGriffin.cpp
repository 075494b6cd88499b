//===- HuggingFaceGriffin.cpp - configs of Recurrent Gemma: gated linear recurrent units, or attention with a window ----===//
#include "frontend/HuggingFaceTranslation.h"
#include <bit>
#include <cmath>

using namespace braid;
using namespace braid::json;
using llvm::StringRef;

/// R: a recurrent unit, W: attention, for each layer, by a list that repeats.
std::string Translation::blockTypesOfGriffin(const Value &layers) {
  const std::string usual = "RRW";
  const Value *types = takeOptional("block_types");
  std::string each;
  if (types && (types->kind != Kind::array || types->items.empty()))
    errors.report("block_types",
                  describe(*types) + " names no types of layers; valid: a list of \"recurrent\", \"attention\"");
  for (auto [i, type] : llvm::enumerate(types ? types->items : std::vector<Value>())) {
    bool isUnit = isEqual(type, stringValue("recurrent"));
    if (!isUnit && !isEqual(type, stringValue("attention")))
      errors.report(llvm::formatv("block_types[{0}]", i).str(),
                    describe(type) + " is not computed; valid: \"recurrent\", \"attention\"");
    each += isUnit ? 'R' : 'W';
  }
  auto listOf = [](StringRef pattern) {
    std::vector<Value> names;
    for (char letter : pattern)
      names.push_back(stringValue(letter == 'R' ? "recurrent" : "attention"));
    return arrayValue(std::move(names));
  };
  compare({"block_types"}, listOf(each.empty() ? usual : each), listOf(usual));
  each = each.empty() ? usual : shortest(each);
  return integerIn(layers, 1024) ? each.substr(0, static_cast<size_t>(layers.integer)) : each;
}

void Translation::layersOfGriffin(const Value &layers, Value &mixers, std::string &pattern) {
  pattern = blockTypesOfGriffin(layers);
  Value attends = attention(), heads = *attends.find("heads"), width = named(hidden, "lru_width", hidden.line);
  Value window = either("attention_window_size", "sliding_window", numberValue(int64_t(2048)));
  if (!integerIn(window, INT32_MAX))
    errors.report(StringRef(window.origin).drop_front(prefix.size()), describe(window) + " is not an integer above 0");
  else
    attends.fields.push_back({"window", std::move(window)});
  attends.fields.push_back({"output_bias", boolValue(true)});
  if (const Value *given = takeOptional("lru_width"))
    width = named(*given, "lru_width");
  compare({"lru_width"}, width, hidden);
  if (!integerIn(width, INT32_MAX))
    errors.report("lru_width", describe(width) + " is not an integer above 0");
  else if (integerIn(heads, INT32_MAX) && width.integer % heads.integer)
    errors.report("lru_width", llvm::formatv("{0} is no multiple of num_attention_heads {1}, whose blocks are of equal "
                                             "widths; valid: a multiple",
                                             width.integer, heads.integer)
                                   .str());
  bool isSized = integerIn(width, INT32_MAX) && integerIn(heads, INT32_MAX);
  Value block = named(numberValue(isSized ? std::max<int64_t>(1, width.integer / heads.integer) : int64_t(1)),
                      "lru_width / num_attention_heads", width.line);
  Value unit = object({{"kind", stringValue("rglru")},
                       {"heads", heads},
                       {"value_dim", std::move(block)},
                       {"conv", object({{"kernel", get("conv1d_width", numberValue(int64_t(4)))}})},
                       {"projection_bias", boolValue(true)},
                       {"output_bias", boolValue(true)}});
  mixers = object(usedBy(pattern, {{"R", std::move(unit)}, {"W", std::move(attends)}}));
}

/// Half as wide as the config says.
Value Translation::feedForwardOfGriffin(std::string &pattern) {
  Value both = get("intermediate_size", numberValue(family.intermediateSize));
  if (!integerIn(both, INT32_MAX) || both.integer % 2)
    errors.report("intermediate_size", describe(both) + " is not an even number above 0, of which a gate has a half");
  pattern = "D";
  return object({{"D", object({{"kind", stringValue("dense")},
                               {"hidden", named(numberValue(std::max<int64_t>(1, both.integer / 2)),
                                                "intermediate_size / 2", both.line)},
                               {"activation", stringValue("geglu_tanh")},
                               {"bias", boolValue(true)}})}});
}

/// sqrt(hidden_size) as transformers keeps it, in bf16.
Value Translation::embeddingFactorOfGriffin() {
  auto root = static_cast<float>(std::sqrt(hidden.isNumber() && hidden.number > 0 ? hidden.number : 1.0));
  auto bits = std::bit_cast<uint32_t>(root);
  bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000;
  return named(numberValue(static_cast<double>(std::bit_cast<float>(bits))), "hidden_size", hidden.line);
}

void Translation::fixedKeysOfGriffin() {
  for (StringRef key : {"w_init_variance_scale", "final_w_init_variance_scale"}) // initial values
    (void)take(key);
  if (const Value *types = config.find("block_types")) // of which older files have two copies
    only("_block_types", *types, /*nullable=*/true);
  only("hidden_activation", stringValue("gelu_pytorch_tanh"));
  only("embeddings_scale_by_sqrt_dim", boolValue(true));
}
