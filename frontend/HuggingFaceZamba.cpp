//===- HuggingFaceZamba.cpp - configs of transformers: Mamba-2, and transformer blocks that layers share -----------===//
// Hybrid layers use num_mem_blocks blocks in turns, each the letter of an inject. A block's attention is as wide as a
// layer's input and the embedding together.
#include "frontend/HuggingFaceTranslation.h"
#include <cmath>

using namespace braid;
using namespace braid::json;
using llvm::StringRef;

Value Translation::mambaOfZamba(const Value &bias) {
  Value expand = get("mamba_expand", numberValue(int64_t(2))), heads = get("n_mamba_heads", numberValue(int64_t(8)));
  bool isSized = integerIn(expand, 1 << 10) && integerIn(hidden, INT32_MAX) && integerIn(heads, INT32_MAX);
  int64_t inner = isSized ? expand.integer * hidden.integer : 0;
  if (!integerIn(expand, 1 << 10))
    errors.report("mamba_expand", describe(expand) + " is not an integer from 1 to 1024");
  if (isSized && inner % heads.integer)
    errors.report("n_mamba_heads",
                  llvm::formatv("{0} does not divide mamba_expand {1} times hidden_size {2}; valid: a divisor",
                                heads.integer, expand.integer, hidden.integer)
                      .str());
  Value width = named(numberValue(isSized ? std::max<int64_t>(1, inner / heads.integer) : 1),
                      "mamba_expand * hidden_size / n_mamba_heads", heads.line);
  return object(
      {{"kind", stringValue("mamba2")},
       {"heads", std::move(heads)},
       {"key_heads", get("mamba_ngroups", numberValue(int64_t(1)))},
       {"head_dim", get("mamba_d_state", numberValue(int64_t(64)))},
       {"value_dim", std::move(width)},
       {"conv", object({{"kernel", get("mamba_d_conv", numberValue(int64_t(4)))}, {"bias", boolValue(true)}})},
       {"projection_bias", bias},
       {"output_bias", bias},
       {"step_range", stepRange(get("time_step_min", numberValue(0.001)), get("time_step_max", numberValue(0.1)))}});
}

/// A letter for every layer: H for hybrid ones, - for others. Without a list the 54 layers that transformers takes.
std::string Translation::hybridLayers(const Value &layers) {
  const Value *types = takeOptional("layers_block_type"), *same = takeOptional("layer_types");
  if (types && same)
    errors.report("layer_types", "stands beside layers_block_type; valid: one of the two keys");
  StringRef key = types || !same ? "layers_block_type" : "layer_types";
  const Value *given = types ? types : same;
  std::string pattern;
  if (!given) {
    for (int layer = 0; layer < 54; ++layer)
      pattern += layer == 47 || layer == 51 || (layer > 0 && layer % 6 == 0 && layer <= 42) ? 'H' : noPart;
  } else if (given->kind != Kind::array) {
    errors.report(key, describe(*given) + " is not a list or null");
    return pattern;
  } else {
    for (auto [i, type] : llvm::enumerate(given->items)) {
      bool isHybrid = isEqual(type, stringValue("hybrid"));
      if (!isHybrid && !isEqual(type, stringValue("linear_attention")) && !isEqual(type, stringValue("mamba")))
        errors.report(llvm::formatv("{0}[{1}]", key, i).str(),
                      describe(type) + " is not computed; valid: \"mamba\" (\"linear_attention\"), \"hybrid\"");
      pattern += isHybrid ? 'H' : noPart;
    }
  }
  if (layers.kind == Kind::integer && pattern.size() != static_cast<size_t>(layers.integer))
    errors.report(
        given ? key : "num_hidden_layers",
        given ? llvm::formatv("has {0} layers; valid: num_hidden_layers, {1}", pattern.size(), layers.integer).str()
              : llvm::formatv("{0} without layers_block_type, for which transformers takes {1} layers; valid: "
                              "{1}, or such a list",
                              layers.integer, pattern.size())
                    .str());
  return pattern;
}

/// As wide as two streams, by scores of half a head.
Value Translation::sharedAttention() {
  Value heads = get("num_attention_heads", numberValue(family.heads));
  const Value *givenKvHeads = takeOptional("num_key_value_heads");
  Value kvHeads = named(givenKvHeads ? *givenKvHeads : heads, "num_key_value_heads");
  compare({"num_key_value_heads"}, kvHeads, heads, &heads);
  bool isSized = integerIn(heads, INT32_MAX) && integerIn(hidden, INT32_MAX);
  if (isSized && 2 * hidden.integer % heads.integer)
    errors.report(
        "num_attention_heads",
        llvm::formatv("{0} does not divide twice the hidden_size {1}; valid: a divisor", heads.integer, hidden.integer)
            .str());
  int64_t size = isSized ? std::max<int64_t>(1, 2 * hidden.integer / heads.integer) : 1;
  Value width = named(numberValue(size), "2 * hidden_size / num_attention_heads", heads.line);
  Value turned;
  if (flag("use_mem_rope", false))
    turned = rope(width);
  else // of rotations that none has
    for (StringRef key : {"rope_theta", "rope_parameters", "rope_scaling"})
      (void)take(key);
  return object({{"heads", std::move(heads)},
                 {"kv_heads", std::move(kvHeads)},
                 {"head_dim", std::move(width)},
                 {"rope", std::move(turned)},
                 {"scale", numberValue(1 / std::sqrt(static_cast<double>(size) / 2))}});
}

Value Translation::sharedFfn(const Value &bias) {
  static constexpr std::pair<StringRef, StringRef> gates[] = {
      {"gelu", "geglu"}, {"silu", "swiglu"}, {"gelu_pytorch_tanh", "geglu_tanh"}, {"relu", "reglu"}};
  Value act = get("hidden_act", stringValue("gelu"));
  const auto *gate = llvm::find_if(gates, [&](auto &each) { return isEqual(act, stringValue(each.first)); });
  if (gate == std::end(gates))
    errors.report("hidden_act",
                  describe(act) + " is not computed; valid: \"gelu\", \"silu\", \"gelu_pytorch_tanh\", \"relu\"");
  else
    act.string = gate->second.str();
  bool isSized = integerIn(hidden, INT32_MAX);
  Value usual = numberValue(isSized ? 4 * hidden.integer : 1),
        width = get("intermediate_size", usual, /*nullable=*/true);
  return object({{"hidden", std::move(width)}, {"activation", std::move(act)}, {"bias", bias}});
}

void Translation::layersOfZamba(const Value &layers, Value &mixers, std::vector<Field> &shared) {
  Value bias = get("add_bias_linear", boolValue(false));
  mixers = object({{"M", mambaOfZamba(bias)}});
  std::string pattern = hybridLayers(layers);
  constexpr int64_t most = 26; // letters
  Value blocks = get("num_mem_blocks", numberValue(int64_t(1))), rank = get("adapter_rank", numberValue(int64_t(128)));
  if (!integerIn(blocks, most))
    errors.report("num_mem_blocks", describe(blocks) + " is not an integer from 1 to " + std::to_string(most));
  bool adapts = flag("use_shared_attention_adapter", false);
  if (!integerIn(rank, INT32_MAX))
    errors.report("adapter_rank", describe(rank) + " is not an integer above 0");
  Value attention = sharedAttention(), ffn = sharedFfn(bias);
  if (const Value *heads = attention.find("heads"), *kvHeads = attention.find("kv_heads");
      adapts && heads->kind == Kind::integer && !isEqual(*heads, *kvHeads))
    errors.report("num_key_value_heads",
                  llvm::formatv("{0} with use_shared_attention_adapter, whose products are of num_attention_heads {1}; "
                                "valid: {1}",
                                describe(*kvHeads), heads->integer)
                      .str());
  int64_t count = integerIn(blocks, most) ? blocks.integer : 1, uses = 0;
  for (char &layer : pattern)
    if (layer != noPart)
      layer = static_cast<char>('A' + uses++ % count);
  if (!uses)
    return; // no block at all
  std::vector<Field> injects;
  for (int64_t block = 0; block < std::min(count, uses); ++block) {
    std::vector<Field> fields = {{"attention", attention}, {"ffn", ffn}, {"ffn_adapter_rank", rank}};
    if (adapts)
      fields.push_back({"attention_adapter_rank", rank});
    injects.push_back({std::string(1, static_cast<char>('A' + block)), object(std::move(fields))});
  }
  shared.push_back({"inject_pattern", stringValue(shortest(pattern))});
  shared.push_back({"injects", object(std::move(injects))});
}

void Translation::fixedKeysOfZamba() {
  // How it is computed, how many logits a prompt gives, what transformers computes itself, and what it does not read:
  // convolutions have biases, whatever use_conv_bias says.
  for (StringRef key : {"chunk_size", "use_mamba_kernels", "use_mem_eff_path", "num_logits_to_keep", "time_step_floor",
                        "attention_hidden_size", "attention_head_dim", "head_dim", "mamba_headdim", "kv_channels",
                        "num_query_groups", "hybrid_layer_ids", "use_conv_bias"})
    (void)take(key);
  only("tie_word_embeddings", boolValue(true)); // without which transformers shares no blocks either
  only("use_shared_mlp_adapter", boolValue(true)); // of configs before there were none without
  only("use_long_context", boolValue(false)); // of which versions of transformers make other rotations
  stepLimit();
}
