// Configs of transformers with a window in most layers and norms of what layers give: OLMo 3, EXAONE 4.
#include "test/frontend/HuggingFaceConfigs.h"

using namespace braid;

namespace {

const AttentionSpec &attentionOf(const Parsed &parsed, char letter) {
  return std::get<AttentionSpec>(*parsed.spec->findMixer(letter));
}

/// "layer_types": three layers with a window, one with all keys, and so on.
std::string types(int layers) {
  std::string list;
  for (int layer = 0; layer < layers; ++layer)
    list += std::string(layer ? ", " : "") + (layer % 4 == 3 ? R"("full_attention")" : R"("sliding_attention")");
  return R"("layer_types": [)" + list + "]";
}

} // namespace

// Counts of parameters are those of transformers' own models.
TEST(HuggingFaceWindows, Olmo3) {
  // Olmo-3-7B.
  const std::string text = config("olmo3", R"("architectures": ["Olmo3ForCausalLM"], "attention_bias": false,
    "attention_dropout": 0.0, "eos_token_id": 100257, "hidden_act": "silu", "hidden_size": 4096,
    "initializer_range": 0.02, "intermediate_size": 11008, "max_position_embeddings": 65536,
    "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 32, "pad_token_id": 100277,
    "rms_norm_eps": 1e-06, "rope_scaling": {"attention_factor": 1.2079441541679836, "beta_fast": 32.0,
    "beta_slow": 1.0, "factor": 8.0, "original_max_position_embeddings": 8192, "rope_type": "yarn"},
    "rope_theta": 500000, "sliding_window": 4096, "tie_word_embeddings": false, "torch_dtype": "bfloat16",
    "use_cache": true, "vocab_size": 100278, )" +
                                               types(32));
  const std::string attention = R"("kind": "attention", "heads": 32, "kv_heads": 32, "head_dim": 128, "qk_norm": true,
    "qk_norm_over": "heads", "rope": {"theta": 5)";
  expectDescription(text, R"({"name": "olmo3", "vocab_size": 100278, "d_model": 4096, "num_layers": 32,
    "context_len": 65536, "tie_embeddings": false, "dtype": "bf16", "norm": {"kind": "rms", "eps": 1e-6},
    "norm_placement": "output", "layer_pattern": "WWWN", "mixers": {"W": {)" +
                              attention + R"(00000.0}, "window": 4096}, "N": {)" + attention +
                              R"(00000, "scaling": {"kind": "yarn", "factor": 8.0,
    "attention_factor": 1.2079441541679836, "beta_fast": 32.0, "beta_slow": 1.0, "original_context_len": 8192}}}},
    "ffn_pattern": "D", "ffns": {"D": {"kind": "dense", "hidden": 11008}},
    "init": {"kind": "normal", "std": 0.02, "scale_output": false}})");
  Parsed parsed = parse(text);
  ASSERT_TRUE(parsed.spec);
  EXPECT_EQ(parameters(*parsed.spec), 7'298'011'136);
  EXPECT_EQ(parameters(*parse(config("olmo3")).spec), 6'888'624'128);
  EXPECT_EQ(imported(parsed, "layers.{layer}.norm1.weight"),
            R"("model.layers.{layer}.post_attention_layernorm.weight")");
  EXPECT_EQ(imported(parsed, "layers.{layer}.norm2.weight"),
            R"("model.layers.{layer}.post_feedforward_layernorm.weight")");
  // As transformers writes it now; windows in other layers.
  parsed = parse(config("olmo3", R"("num_hidden_layers": 3, "layer_types": ["full_attention", "sliding_attention",
    "full_attention"], "sliding_window": 16, "rope_parameters": {"full_attention": {"rope_type": "llama3",
    "rope_theta": 1000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64}, "sliding_attention": {"rope_type": "linear", "rope_theta": 50.0,
    "factor": 2.0}})"));
  ASSERT_TRUE(parsed.spec) << parsed.errors[0];
  EXPECT_EQ(parsed.spec->layerPattern, "NW"); // NWN
  EXPECT_EQ(attentionOf(parsed, 'N').rope->theta, 1000);
  EXPECT_EQ(attentionOf(parsed, 'N').rope->scaling->originalContextLen, 64);
  EXPECT_EQ(attentionOf(parsed, 'W').rope->theta, 50);
  EXPECT_EQ(attentionOf(parsed, 'W').rope->scaling->kind, "linear");
  EXPECT_EQ(attentionOf(parsed, 'W').window, 16);
  // Another rope_theta, where it is that of all layers or where those with a window have their own.
  EXPECT_TRUE(
      parse(config("olmo3", R"("num_hidden_layers": 1, "layer_types": ["full_attention"], "rope_theta": 1e4)")).spec);
  parsed =
      parse(config("olmo3", R"("rope_theta": 1e4, "rope_parameters": {"sliding_attention": {"rope_theta": 1e3}})"));
  ASSERT_TRUE(parsed.spec) << parsed.errors[0];
  EXPECT_EQ(attentionOf(parsed, 'N').rope->theta, 1e4);
  EXPECT_EQ(attentionOf(parsed, 'W').rope->theta, 1e3);
}

TEST(HuggingFaceWindows, Exaone4) {
  // EXAONE-4.0-32B.
  const std::string text = config("exaone4", R"("architectures": ["Exaone4ForCausalLM"], "attention_dropout": 0.0,
    "bos_token_id": 1, "eos_token_id": 361, "head_dim": 128, "hidden_act": "silu", "hidden_size": 5120,
    "initializer_range": 0.02, "intermediate_size": 27392, "max_position_embeddings": 131072,
    "num_attention_heads": 40, "num_hidden_layers": 64, "num_key_value_heads": 8, "pad_token_id": 0,
    "rms_norm_eps": 1e-05, "rope_scaling": {"factor": 16.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
    "original_max_position_embeddings": 8192, "rope_type": "llama3"}, "rope_theta": 1000000, "sliding_window": 4096,
    "sliding_window_pattern": "LLLG", "tie_word_embeddings": false, "torch_dtype": "bfloat16", "use_cache": true,
    "vocab_size": 102400, )" + types(64));
  const std::string attention = R"("kind": "attention", "heads": 40, "kv_heads": 8, "head_dim": 128, "qk_norm": true,
    "rope": )";
  expectDescription(text, R"({"name": "exaone4", "vocab_size": 102400, "d_model": 5120, "num_layers": 64,
    "context_len": 131072, "tie_embeddings": false, "dtype": "bf16", "norm": {"kind": "rms", "eps": 1e-5},
    "norm_placement": "output", "layer_pattern": "WWWN", "mixers": {"W": {)" +
                              attention +
                              R"({"theta": 1000000, "scaling": {"kind": "llama3", "factor": 16.0,
    "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_context_len": 8192}}, "window": 4096}, "N": {)" +
                              attention + R"(null}},
    "ffn_pattern": "D", "ffns": {"D": {"kind": "dense", "hidden": 27392}},
    "init": {"kind": "normal", "std": 0.02, "scale_output": false}})");
  Parsed parsed = parse(text);
  ASSERT_TRUE(parsed.spec);
  EXPECT_EQ(parameters(*parsed.spec), 32'003'216'384);
  EXPECT_EQ(parameters(*parse(config("exaone4")).spec), 9'429'069'824);
  EXPECT_EQ(imported(parsed, "layers.{layer}.norm2.weight"),
            R"("model.layers.{layer}.post_feedforward_layernorm.weight")");
  // Without windows all layers turn; with one in none of them none does.
  const std::string alike = R"("num_hidden_layers": 2, "layer_types": ["full_attention", "full_attention"],
    "sliding_window_pattern": null, "sliding_window": )";
  parsed = parse(config("exaone4", alike + "null"));
  ASSERT_TRUE(parsed.spec) << parsed.errors[0];
  EXPECT_EQ(parsed.spec->layerPattern, "N");
  EXPECT_TRUE(attentionOf(parsed, 'N').rope);
  EXPECT_EQ(attentionOf(parsed, 'N').window, 0);
  EXPECT_FALSE(attentionOf(parse(config("exaone4", alike + "4096")), 'N').rope);
  EXPECT_EQ(parse(config("exaone4", R"("sliding_window_pattern": 2)")).spec->layerPattern, "WN");
}

TEST(HuggingFaceWindows, Refusals) {
  const struct {
    const char *family, *text, *message;
  } cases[] = {
      {"olmo3", R"("attention_bias": true)", "attention_bias: true of an olmo3 config is not computed; valid: false"},
      {"olmo3", R"("rope_theta": 10000.0)",
       "rope_theta: 10000 is that of layers without a window, or of all, as versions of transformers have it; valid: "
       "500000, or a rope_theta in rope_parameters.sliding_attention"},
      {"olmo3", R"("rope_parameters": {"rope_type": "default"})",
       "rope_parameters.rope_type: \"default\" is no object of one of the types of layers; valid: full_attention, "
       "sliding_attention"},
      {"olmo3", R"("rope_parameters": {"sliding_attention": {"rope_type": "yarn", "factor": 2}})",
       "rope_parameters.sliding_attention.rope_type: \"yarn\" is not computed; valid: default, linear"},
      {"olmo3", R"("rope_scaling": {"rope_type": "longrope"})",
       "rope_scaling.rope_type: \"longrope\" has other frequencies for longer texts, which is not computed; valid: "
       "default, linear, llama3, yarn, proportional"},
      {"olmo3", R"("rope_local_base_freq": 10000.0)",
       "rope_local_base_freq: 10000 is of an unknown key of an olmo3 config; valid: the keys that models/README.md "
       "lists"},
      {"olmo3", R"("original_max_position_embeddings": 64)",
       "original_max_position_embeddings: 64 is of an unknown key of an olmo3 config; valid: the keys that "
       "models/README.md lists"},
      {"olmo3", R"("sliding_window": null)", "sliding_window: null is not an integer above 0"},
      {"olmo3", R"("sliding_window_pattern": 4)",
       "sliding_window_pattern: 4 is of an unknown key of an olmo3 config; valid: the keys that models/README.md "
       "lists"},
      {"exaone4", R"("sliding_window": null)", "sliding_window: null is not an integer above 0"},
      {"exaone4", R"("num_hidden_layers": 1, "layer_types": ["full_attention"], "sliding_window": "all")",
       "sliding_window: \"all\" is not an integer above 0"},
      {"exaone4", R"("sliding_window_pattern": "LLLG")", "sliding_window_pattern: \"LLLG\" is not an integer above 0"},
      {"exaone4", R"("num_hidden_layers": 1, "layer_types": ["chunked_attention"])",
       "layer_types[0]: \"chunked_attention\" is not computed; valid: \"sliding_attention\", \"full_attention\""},
      {"exaone4", R"("rope_scaling": {"rope_type": "dynamic", "factor": 2.0})",
       "rope_scaling.rope_type: \"dynamic\" has other frequencies for longer texts, which is not computed; valid: "
       "default, linear, llama3, yarn, proportional"},
  };
  for (const auto &c : cases)
    expectError(config(c.family, c.text), std::string("config.json:2: ") + c.message);
}
