// Falcon-H1 of transformers: mixers side by side, and multipliers.
#include "test/frontend/HuggingFaceConfigs.h"

namespace braid {
namespace {

/// A config as large as Falcon-H1-0.5B, with all keys that such a file has.
const char *const falcon = R"("architectures": ["FalconH1ForCausalLM"], "attention_bias": false,
    "attention_dropout": 0.0, "attention_in_multiplier": 1.5, "attention_out_multiplier": 0.9375,
    "attn_layer_indices": null, "bos_token_id": 1, "embedding_multiplier": 5.656854249492381, "eos_token_id": 11,
    "head_dim": 64, "hidden_act": "silu", "hidden_size": 1024, "initializer_range": 0.02, "intermediate_size": 2048,
    "key_multiplier": 0.5, "lm_head_multiplier": 0.0390625, "mamba_chunk_size": 128, "mamba_conv_bias": true,
    "mamba_d_conv": 4, "mamba_d_head": 64, "mamba_d_ssm": 1536, "mamba_d_state": 128, "mamba_expand": 2,
    "mamba_n_groups": 1, "mamba_n_heads": 24, "mamba_norm_before_gate": false, "mamba_proj_bias": false,
    "mamba_rms_norm": false, "mamba_use_mlp": true, "max_position_embeddings": 16384, "mlp_bias": false,
    "mlp_expansion_factor": 8, "mlp_multipliers": [0.8838834764831844, 0.5859375], "num_attention_heads": 8,
    "num_hidden_layers": 36, "num_key_value_heads": 2, "num_logits_to_keep": 1, "pad_token_id": 0,
    "projectors_bias": false, "rms_norm_eps": 1e-05, "rope_scaling": null, "rope_theta": 100000000000.0,
    "ssm_in_multiplier": 1.25, "ssm_multipliers": [0.35, 0.25, 0.375, 0.5, 0.75], "ssm_out_multiplier": 0.23,
    "tie_word_embeddings": false, "torch_dtype": "bfloat16", "vocab_size": 32784)";

const LsmSpec &mambaOf(const Parsed &parsed) { return std::get<LsmSpec>(*parsed.spec->findMixer('M')); }

TEST(HuggingFace, FalconH1) {
  expectDescription(config("falcon_h1", falcon), R"j({"name": "falcon_h1", "vocab_size": 32784, "d_model": 1024,
    "num_layers": 36, "context_len": 16384, "tie_embeddings": false, "dtype": "bf16",
    "norm": {"kind": "rms", "eps": 1e-5}, "embedding_multiplier": 5.656854249492381, "logits_multiplier": 0.0390625,
    "layer_pattern": "(NM)", "mixers": {
    "N": {"kind": "attention", "heads": 8, "kv_heads": 2, "head_dim": 64, "rope": {"theta": 1e11}, "scale": 0.0625,
    "input_multiplier": 1.5, "residual": {"beta": 0.9375}, "qkv_bias": false, "output_bias": false},
    "M": {"kind": "mamba2", "heads": 24, "key_heads": 1, "head_dim": 128, "value_dim": 64,
    "conv": {"kernel": 4, "bias": true}, "projection_bias": false, "output_bias": false, "output_norm": false,
    "projection_multipliers": {"g": 0.35, "v": 0.25, "k": 0.375, "q": 0.5, "dt": 0.75}, "input_multiplier": 1.25,
    "residual": {"beta": 0.23}}}, "ffn_pattern": "D", "ffns": {"D": {"kind": "dense", "hidden": 2048, "bias": false,
    "gate_multiplier": 0.8838834764831844, "residual": {"beta": 0.5859375}}},
    "init": {"kind": "normal", "std": 0.02, "scale_output": false}})j");
  Parsed parsed = parse(config("falcon_h1", falcon));
  ASSERT_TRUE(parsed.spec);
  EXPECT_EQ(parameters(*parsed.spec), 521'411'104);
  EXPECT_EQ(imported(parsed, "layers.{layer}.norm2.weight"), R"("model.layers.{layer}.pre_ff_layernorm.weight")");
  EXPECT_EQ(imported(parsed, "layers.{layer}.mixer1.attn.wo"),
            R"({"name":"model.layers.{layer}.self_attn.o_proj.weight","transposed":true})");
  EXPECT_EQ(imported(parsed, "layers.{layer}.mixer2.lsm.wdt"),
            R"({"name":"model.layers.{layer}.mamba.in_proj.weight","rows":[3328,3352],"transposed":true})");
  EXPECT_EQ(imported(parsed, "layers.{layer}.mixer2.lsm.norm.weight"), "none");
  EXPECT_EQ(imported(parsed, "layers.{layer}.ffn.w1"),
            R"({"name":"model.layers.{layer}.feed_forward.gate_proj.weight","transposed":true})");
  EXPECT_EQ(imported(parsed, "final_norm.weight"), R"("model.final_layernorm.weight")");
  // As large as Falcon-H1-7B.
  parsed = parse(config("falcon_h1", R"("head_dim": 128, "hidden_size": 3072, "intermediate_size": 12288,
    "mamba_d_head": 128, "mamba_d_ssm": 3072, "mamba_d_state": 256, "mamba_n_heads": 24, "num_attention_heads": 12,
    "num_hidden_layers": 44, "num_key_value_heads": 2, "vocab_size": 130048)"));
  ASSERT_TRUE(parsed.spec) << parsed.errors[0];
  EXPECT_EQ(parameters(*parsed.spec), 7'585'513'568);
}

TEST(HuggingFace, FalconH1Norms) {
  // What is left out is what transformers takes for it.
  Parsed usual = parse(config("falcon_h1"));
  ASSERT_TRUE(usual.spec) << usual.errors[0];
  EXPECT_EQ(mambaOf(usual).valueDim, 8); // of 1024
  EXPECT_FALSE(mambaOf(usual).outputNorm);
  EXPECT_EQ(mambaOf(usual).projectionMultipliers.dt, 1);
  Parsed parsed = parse(config("falcon_h1", R"("mamba_rms_norm": true, "mamba_d_ssm": null, "mamba_n_groups": 4,
    "mlp_multipliers": null, "time_step_limit": [0.25, {"__float__": "Infinity"}])"));
  ASSERT_TRUE(parsed.spec) << parsed.errors[0];
  EXPECT_TRUE(mambaOf(parsed).outputNorm && mambaOf(parsed).normFirst);
  EXPECT_EQ(mambaOf(parsed).valueDim, 64); // of twice 4096
  EXPECT_EQ(mambaOf(parsed).minStep, 0.25);
  EXPECT_EQ(mambaOf(parsed).maxStep, 0);
  EXPECT_EQ(imported(parsed, "layers.{layer}.mixer2.lsm.norm.weight"), R"("model.layers.{layer}.mamba.norm.weight")");
  parsed = parse(config("falcon_h1", R"("mamba_rms_norm": true, "mamba_norm_before_gate": false,
    "time_step_limit": [0.0, 0.5], "mamba_proj_bias": true, "projectors_bias": true, "attention_bias": true,
    "mlp_bias": true)"));
  ASSERT_TRUE(parsed.spec) << parsed.errors[0];
  EXPECT_FALSE(mambaOf(parsed).normFirst);
  EXPECT_EQ(mambaOf(parsed).minStep, 0);
  EXPECT_EQ(mambaOf(parsed).maxStep, 0.5);
  EXPECT_EQ(imported(parsed, "layers.{layer}.mixer1.attn.bo"), R"("model.layers.{layer}.self_attn.o_proj.bias")");
  EXPECT_EQ(imported(parsed, "layers.{layer}.mixer2.lsm.bg"),
            R"({"name":"model.layers.{layer}.mamba.in_proj.bias","rows":[0,1024]})");
  EXPECT_EQ(imported(parsed, "layers.{layer}.mixer2.lsm.bo"), R"("model.layers.{layer}.mamba.out_proj.bias")");
  EXPECT_EQ(imported(parsed, "layers.{layer}.ffn.b2"), R"("model.layers.{layer}.feed_forward.down_proj.bias")");
}

TEST(HuggingFace, FalconH1Errors) {
  const std::pair<const char *, const char *> cases[] = {
      {R"("ssm_multipliers": [1.0, 2.0])", "ssm_multipliers: has 2 numbers; valid: 5 numbers, or null"},
      {R"("ssm_multipliers": [1, 1, 0, 1, 1])", "ssm_multipliers[2]: 0 is out of range; valid: above 0 to 1e+06"},
      {R"("mlp_multipliers": 3)", "mlp_multipliers: 3 is no list; valid: 2 numbers, or null"},
      {R"("mlp_multipliers": [1, "a"])", "mlp_multipliers[1]: \"a\" is not a number; valid: above 0 to 1e+06"},
      {R"("key_multiplier": 0)", "key_multiplier: 0 is out of range; valid: above 0 to 1e6"},
      {R"("mamba_d_ssm": 1000, "mamba_n_heads": 128)",
       "mamba_n_heads: 128 does not divide mamba_d_ssm 1000; valid: a divisor"},
      {R"("mamba_d_ssm": null, "mamba_n_heads": 3)",
       "mamba_n_heads: 3 does not divide mamba_expand * hidden_size 8192; valid: a divisor"},
      {R"("mamba_d_head": 16)",
       "mamba_d_head: 16 times mamba_n_heads 128 is not mamba_d_ssm 1024; valid: numbers with equal products"},
      {R"("mamba_d_ssm": "all")", "mamba_d_ssm: \"all\" is not an integer above 0 or null"},
      {R"("time_step_limit": null)",
       "time_step_limit: null is not a list of two numbers; valid: [0.0, Infinity], or such bounds"},
      {R"("time_step_limit": [0.5, 0.25])",
       "time_step_limit[1]: 0.25 is not above time_step_limit[0] 0.5; valid: a number above it"},
      {R"("hidden_act": "gelu")", "hidden_act: \"gelu\" of a falcon_h1 config is not computed; valid: \"silu\""},
      {R"("layer_types": ["hybrid"])",
       "layer_types: a list is of an unknown key of a falcon_h1 config; valid: the keys "
       "that models/README.md lists"},
  };
  for (auto [more, message] : cases)
    expectError(config("falcon_h1", more), std::string("config.json:2: ") + message);
}

} // namespace
} // namespace braid
