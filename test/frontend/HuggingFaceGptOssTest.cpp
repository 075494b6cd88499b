// Configs of gpt-oss: sinks, windows in turns, biases, clamped experts; names of weights.
#include "test/frontend/HuggingFaceConfigs.h"

using namespace braid;

namespace {

const AttentionSpec &attentionOf(const Parsed &parsed, char letter) {
  return std::get<AttentionSpec>(*parsed.spec->findMixer(letter));
}

} // namespace

// Counts of parameters are those of transformers' own models.
TEST(HuggingFaceGptOss, Config) {
  // gpt-oss-20b.
  std::string more =
      R"("quantization_config": {"modules_to_not_convert": ["lm_head"], "quant_method": "mxfp4"}, "architectures": ["GptOssForCausalLM"], "attention_bias": true, "attention_dropout": 0.0,
    "eos_token_id": 200002, "experts_per_token": 4, "head_dim": 64, "hidden_act": "silu", "hidden_size": 2880,
    "initial_context_length": 4096, "initializer_range": 0.02, "intermediate_size": 2880,
    "max_position_embeddings": 131072, "num_attention_heads": 64, "num_experts_per_tok": 4, "num_hidden_layers": 24,
    "num_key_value_heads": 8, "num_local_experts": 32, "output_router_logits": false, "pad_token_id": 199999,
    "rms_norm_eps": 1e-05, "rope_scaling": {"beta_fast": 32.0, "beta_slow": 1.0, "factor": 32.0,
    "original_max_position_embeddings": 4096, "rope_type": "yarn", "truncate": false}, "rope_theta": 150000,
    "router_aux_loss_coef": 0.9, "sliding_window": 128, "swiglu_limit": 7.0, "tie_word_embeddings": false,
    "torch_dtype": "bfloat16", "use_cache": true, "vocab_size": 201088)";
  const std::string rope = R"("rope": {"theta": 150000, "scaling": {"kind": "yarn", "factor": 32.0, "beta_fast": 32.0,
    "beta_slow": 1.0, "truncate": false, "original_context_len": 4096}})",
                    attention = R"("kind": "attention", "heads": 64, "kv_heads": 8, "head_dim": 64, )" + rope +
                                R"(, "qkv_bias": true, "output_bias": true, "sinks": true)";
  expectDescription(config("gpt_oss", more), R"({"name": "gpt_oss", "vocab_size": 201088, "d_model": 2880,
    "num_layers": 24, "context_len": 131072, "tie_embeddings": false, "dtype": "bf16",
    "norm": {"kind": "rms", "eps": 1e-5}, "layer_pattern": "WN", "mixers": {"W": {)" +
                                                 attention + R"(, "window": 128}, "N": {)" + attention +
                                                 R"(}}, "ffn_pattern": "M", "ffns": {"M": {"kind": "moe",
    "num_experts": 32, "top_k": 4, "expert_hidden": 2880, "router": {"bias": true, "normalize": true,
    "balance_loss": 0, "z_loss": 0}, "activation": "swiglu_clamp", "bias": true}},
    "init": {"kind": "normal", "std": 0.02, "scale_output": false}})");
  Parsed parsed = parse(config("gpt_oss", more));
  ASSERT_TRUE(parsed.spec);
  EXPECT_EQ(parameters(*parsed.spec), 20'914'757'184);
  auto name = [&](const char *ours) { return imported(parsed, "layers.{layer}." + std::string(ours)); };
  EXPECT_EQ(name("attn.sinks"), R"("model.layers.{layer}.self_attn.sinks")");
  EXPECT_EQ(name("attn.bo"), R"("model.layers.{layer}.self_attn.o_proj.bias")");
  EXPECT_EQ(name("moe.router_bias"), R"("model.layers.{layer}.mlp.router.bias")");
  EXPECT_EQ(name("moe.w3"),
            R"({"columns":[1,2],"name":"model.layers.{layer}.mlp.experts.gate_up_proj","stacked":true})");
  EXPECT_EQ(name("moe.b1"),
            R"({"columns":[0,2],"name":"model.layers.{layer}.mlp.experts.gate_up_proj_bias","stacked":true})");
  EXPECT_EQ(name("moe.w2"), R"({"name":"model.layers.{layer}.mlp.experts.down_proj","stacked":true})");
}

TEST(HuggingFaceGptOss, Defaults) {
  // gpt-oss-120b is what a config says that says nothing.
  Parsed parsed = parse(config("gpt_oss"));
  ASSERT_TRUE(parsed.spec) << parsed.errors[0];
  EXPECT_EQ(parameters(*parsed.spec), 116'829'156'672);
  EXPECT_EQ(parsed.spec->layerPattern, "WN");
  EXPECT_EQ(attentionOf(parsed, 'W').window, 128);
  EXPECT_EQ(attentionOf(parsed, 'N').window, 0);
  ASSERT_TRUE(attentionOf(parsed, 'N').rope->scaling);
  EXPECT_EQ(attentionOf(parsed, 'N').rope->theta, 150000);
  // Rotations of which a config says something are no longer those.
  parsed = parse(config("gpt_oss", R"("rope_parameters": {"rope_theta": 10000})"));
  ASSERT_TRUE(parsed.spec) << parsed.errors[0];
  EXPECT_FALSE(attentionOf(parsed, 'W').rope->scaling);
  parsed = parse(config("gpt_oss", R"("num_hidden_layers": 3, "attention_bias": false, "sliding_window": 16,
    "layer_types": ["full_attention", "full_attention", "sliding_attention"])"));
  ASSERT_TRUE(parsed.spec) << parsed.errors[0];
  EXPECT_EQ(parsed.spec->layerPattern, "NNW");
  EXPECT_EQ(attentionOf(parsed, 'W').window, 16);
  EXPECT_FALSE(attentionOf(parsed, 'N').qkvBias);
  EXPECT_FALSE(attentionOf(parsed, 'N').outputBias);
  EXPECT_TRUE(attentionOf(parsed, 'N').sinks);
  EXPECT_EQ(imported(parsed, "layers.{layer}.attn.bo"), "none");
}

TEST(HuggingFaceGptOss, Refusals) {
  struct {
    const char *more, *message;
  } cases[] = {
      {R"("swiglu_limit": 8.0)", "swiglu_limit: 8 of a gpt_oss config is not computed; valid: 7"},
      {R"("swiglu_alpha": 1)", "swiglu_alpha: 1 of a gpt_oss config is not computed; valid: 1.702"},
      {R"("hidden_act": "gelu")", "hidden_act: \"gelu\" of a gpt_oss config is not computed; valid: \"silu\""},
      {R"("sliding_window": null)", "sliding_window: null is not an integer above 0"},
      {R"("sliding_window_pattern": 2)", "sliding_window_pattern: 2 is of an unknown key of a gpt_oss config; valid: "
                                         "the keys that models/README.md lists"},
  };
  for (auto [more, message] : cases)
    expectError(config("gpt_oss", more), "config.json:2: " + std::string(message));
}
