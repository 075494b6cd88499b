// Configs of flash-linear-attention: gated linear attention, retention, delta rules, and attention in the layers that `attn` names.
#include "test/frontend/HuggingFaceConfigs.h"

namespace braid {
namespace {

constexpr const char *families[] = {"gla", "retnet", "delta_net", "gated_deltanet", "kda", "transformer"};

// What flash-linear-attention 0.6.0 counts of configs without keys.
TEST(HuggingFace, FlaParameters) {
  const int64_t counts[] = {1'365'514'240, 1'351'727'104, 1'365'677'056, 1'387'348'732, 1'390'941'568, 1'364'297'728};
  for (auto [family, count] : llvm::zip_equal(families, counts)) {
    Parsed parsed = parse(config(family));
    ASSERT_TRUE(parsed.spec) << parsed.errors[0];
    EXPECT_EQ(parameters(*parsed.spec), count) << family;
    EXPECT_EQ(imported(parsed, "embed.weight"), R"("model.embeddings.weight")");
    EXPECT_EQ(imported(parsed, "layers.{layer}.norm2.weight"), R"("model.layers.{layer}.mlp_norm.weight")");
  }
}

TEST(HuggingFace, FlaGla) {
  // fla-hub/gla-1.3B-100B as it was published, but for its size.
  expectDescription(
      config(
          "gla",
          R"("architectures": ["GLAForCausalLM"], "attn": null, "attn_mode": "chunk", "bos_token_id": 1, "clamp_min": null,
    "conv_size": 4, "elementwise_affine": true, "eos_token_id": 2, "expand_k": 0.5, "expand_v": 1, "feature_map": null,
    "fuse_cross_entropy": true, "fuse_norm": true, "fuse_swiglu": true, "hidden_act": "swish", "hidden_ratio": 4, "hidden_size": 256,
    "initializer_range": 0.006, "intermediate_size": null, "max_position_embeddings": 2048, "norm_eps": 1e-06, "num_heads": 4,
    "num_hidden_layers": 3, "num_kv_heads": null, "tie_word_embeddings": false, "torch_dtype": "bfloat16",
    "transformers_version": "4.50.1", "use_cache": true, "use_gk": true, "use_gv": false, "use_output_gate": true,
    "use_short_conv": false, "vocab_size": 32000)"),
      R"j({"name": "gla", "vocab_size": 32000, "d_model": 256, "num_layers": 3, "context_len": 2048, "tie_embeddings": false,
    "dtype": "bf16", "norm": {"kind": "rms", "eps": 1e-6}, "layer_pattern": "L", "mixers": {"L": {"kind": "gla", "heads": 4,
    "kv_heads": 4, "head_dim": 32, "value_dim": 64, "norm_eps": 1e-6}}, "ffn_pattern": "D", "ffns": {"D": {"kind": "dense",
    "hidden": 768}}, "init": {"kind": "normal", "std": 0.006, "scale_output": false}})j");
  EXPECT_EQ(std::get<DenseSpec>(parse(config("retnet")).spec->ffns.at('D')).hidden, 2816);
  EXPECT_EQ(std::get<DenseSpec>(parse(config("retnet", R"("hidden_ratio": null)")).spec->ffns.at('D')).hidden, 5632);
  Parsed parsed = parse(config("gla"));
  EXPECT_EQ(imported(parsed, "layers.{layer}.lsm.wf2"),
            R"({"name":"model.layers.{layer}.attn.gk_proj.1.weight","transposed":true})");
  EXPECT_EQ(imported(parsed, "layers.{layer}.lsm.bf"), R"("model.layers.{layer}.attn.gk_proj.1.bias")");
  EXPECT_EQ(
      imported(parsed, "layers.{layer}.lsm.norm.weight"),
      R"({"name":"model.layers.{layer}.attn.g_norm_swish_gate.weight","or":"model.layers.{layer}.attn.g_norm.weight"})");
}

TEST(HuggingFace, FlaHybrid) {
  expectDescription(
      config("gated_deltanet",
             R"("vocab_size": 256, "hidden_size": 48, "num_hidden_layers": 4, "num_heads": 2, "head_dim": 12,
    "num_v_heads": 4, "expand_v": 1.5, "output_gate_activation": "sigmoid", "intermediate_size": 80, "conv_size": 3, "norm_eps": 1e-5,
    "attn": [{"layers": [1], "num_heads": 4, "window_size": 16}, {"layers": [3], "num_heads": 3, "num_kv_heads": 1, "qkv_bias": true,
    "rope_theta": 500}])"),
      R"j({"name": "gated_deltanet", "vocab_size": 256, "d_model": 48, "num_layers": 4, "context_len": 2048, "tie_embeddings": false,
    "dtype": "f32", "norm": {"kind": "rms", "eps": 1e-5}, "layer_pattern": "LNLP", "mixers": {
    "N": {"kind": "attention", "heads": 4, "kv_heads": 4, "head_dim": 12, "qkv_bias": false, "rope": {"theta": 1e4}, "window": 16},
    "P": {"kind": "attention", "heads": 3, "kv_heads": 1, "head_dim": 16, "qkv_bias": true, "rope": {"theta": 500}},
    "L": {"kind": "gated_deltanet", "key_heads": 2, "heads": 4, "head_dim": 12, "value_dim": 18, "output_gate": "sigmoid",
    "conv": {"kernel": 3, "bias": false}, "allow_neg_eigval": false, "norm_eps": 1e-5}}, "ffn_pattern": "D",
    "ffns": {"D": {"kind": "dense", "hidden": 80}}, "init": {"kind": "normal", "std": 0.02, "scale_output": false}})j");
  Parsed parsed =
      parse(config("kda", R"("lower_bound": -5, "safe_gate": true, "attn": {"layers": [0], "num_heads": 16})"));
  ASSERT_TRUE(parsed.spec) << parsed.errors[0];
  const auto &kda = std::get<LsmSpec>(*parsed.spec->findMixer('L'));
  EXPECT_EQ(kda.lowerBound, -5);
  EXPECT_TRUE(kda.outputGateBias);
  EXPECT_EQ(kda.outputGateRank, 128);
  EXPECT_EQ(imported(parsed, "layers.{layer}.lsm.bg"), R"("model.layers.{layer}.attn.g_proj.1.bias")");
  EXPECT_EQ(imported(parsed, "layers.{layer}.attn.wq"),
            R"({"name":"model.layers.{layer}.attn.q_proj.weight","transposed":true})");
}

TEST(HuggingFace, FlaErrors) {
  struct Case {
    const char *family;
    std::string keys, message;
  };
  std::string listed = R"({"layers": [..], "num_heads": N, ..})";
  const Case cases[] = {
      {"gla", R"("expand_k": 0.3)",
       "config.json:2: expand_k: 0.3 of hidden_size 2048 are 614.4; valid: a whole number above 0 of them"},
      {"gla", R"("expand_v": 0)", "config.json:2: expand_v: 0 is not a number above 0 to 1024"},
      {"gla", R"("num_heads": 3)",
       "config.json:2: num_heads: 3 does not divide hidden_size * expand_k, 1024; valid: a divisor"},
      {"gla", R"("use_output_gate": 1)", "config.json:2: use_output_gate: 1 is not true or false"},
      {"gla", R"("clamp_min": -5)", "config.json:2: clamp_min: -5 of a gla config is not computed; valid: null"},
      {"gla", R"("use_l2warp": true)", "config.json:2: use_l2warp: true of a gla config is not computed; valid: false"},
      {"retnet", R"("feature_map": "relu")",
       "config.json:2: feature_map: \"relu\" of a retnet config is not computed; valid: null"},
      {"retnet", R"("hidden_ratio": "x")", "config.json:2: hidden_ratio: \"x\" is not a number above 0 to 1024"},
      {"delta_net", R"("use_short_conv": false)",
       "config.json:2: use_short_conv: false of a delta_net config is not computed; valid: true"},
      {"delta_net", R"("qk_norm": "sum")",
       "config.json:2: qk_norm: \"sum\" of a delta_net config is not computed; valid: \"l2\""},
      {"gated_deltanet", R"("num_v_heads": 8)",
       "config.json:1: num_heads: 6 does not divide num_v_heads 8; valid: 1, 2, 4, 8"},
      {"gated_deltanet", R"("output_gate_activation": "relu")",
       "config.json:2: output_gate_activation: \"relu\" is not computed; valid: \"swish\", \"silu\", \"sigmoid\""},
      {"kda", R"("num_v_heads": 32)",
       "config.json:2: num_v_heads: 32 of a kda config with num_heads 16 is not computed; valid: as many"},
      {"kda", R"("safe_gate": true)",
       "config.json:1: lower_bound: is missing beside safe_gate true; valid: a number below 0"},
      {"kda", R"("lower_bound": 1)", "config.json:2: lower_bound: 1 is out of range; valid: -1e+06 to 0"},
      {"kda", R"("lower_bound": 0)", "config.json:2: lower_bound: 0 leaves no decay; valid: a number below 0, or null"},
      {"kda", R"("safe_gate": 1)", "config.json:2: safe_gate: 1 is not true or false"},
      {"retnet", R"("hidden_ratio": 0.0001)",
       "config.json:2: hidden_ratio: 1e-04 of hidden_size 2048 leaves no features; valid: more"},
      {"transformer", R"("window_size": 0)",
       "config.json:2: window_size: 0 is not an integer above 0; valid: that, or null"},
      {"gla", R"("attn": {"layers": [0], "num_heads": 4, "window_size": 0})",
       "config.json:2: attn.window_size: 0 is not an integer above 0; valid: that, or null"},
      {"transformer", R"("qk_norm": true)",
       "config.json:2: qk_norm: true of a transformer config is not computed; valid: false"},
      {"transformer", R"("num_heads": 3)",
       "config.json:2: num_heads: 3 does not divide hidden_size, 2048; valid: a divisor"},
      {"gla", R"("attn": 3)", "config.json:2: attn: 3 is not an object; valid: " + listed},
      {"gla", R"("attn": {"layers": [0]})", "config.json:2: attn: has no num_heads; valid: " + listed},
      {"gla", R"("attn": {"layers": 0, "num_heads": 4})",
       "config.json:2: attn.layers: 0 is not a list; valid: numbers of layers"},
      {"gla", R"("attn": {"layers": [0, 24], "num_heads": 4})",
       "config.json:2: attn.layers[1]: 24 is no layer; valid: 0 to num_hidden_layers - 1"},
      {"gla", R"("attn": [{"layers": [0], "num_heads": 4}, {"layers": [0], "num_heads": 2}])",
       "config.json:2: attn[1].layers[0]: 0 is named twice; valid: once"},
      {"gla", R"("attn": {"layers": [0], "num_heads": 3})",
       "config.json:2: attn.num_heads: 3 does not divide hidden_size, 2048; valid: a divisor"},
      {"gla", R"("attn": {"layers": [0], "num_heads": 4, "qk_norm": true})",
       "config.json:2: attn.qk_norm: true is of an unknown key of attention; valid: layers, num_heads, num_kv_heads, "
       "qkv_bias, window_size, rope_theta"},
  };
  for (const Case &c : cases)
    expectError(config(c.family, c.keys), c.message);
}

} // namespace
} // namespace braid
