// Configs of flash-linear-attention whose layers share more than the residual stream: RWKV-6, RWKV-7 (values of the first layer) and HGRN2 (bounds of decays).
#include "test/frontend/HuggingFaceConfigs.h"

namespace braid {
namespace {

// What flash-linear-attention 0.6.0 counts of configs without keys.
TEST(HuggingFace, RwkvParameters) {
  const std::pair<const char *, int64_t> counts[] = {
      {"hgrn2", 1'364'396'032}, {"rwkv6", 1'360'224'256}, {"rwkv7", 1'366'644'736}};
  for (auto [family, count] : counts) {
    Parsed parsed = parse(config(family));
    ASSERT_TRUE(parsed.spec) << parsed.errors[0];
    EXPECT_EQ(parameters(*parsed.spec), count) << family;
  }
}

TEST(HuggingFace, Rwkv) {
  // Every key that the library has.
  const std::string published =
      R"("a_low_rank_dim": 64, "architectures": ["RWKV7ForCausalLM"], "attn": null, "attn_mode": "chunk",
    "auto_map": {"AutoConfig": "modeling_rwkv7.RWKV7Config"}, "bos_token_id": 0, "decay_low_rank_dim": 64, "eos_token_id": 0,
    "fuse_cross_entropy": true, "fuse_linear_cross_entropy": false, "fuse_norm": false, "gate_low_rank_dim": 128, "head_dim": 64,
    "hidden_act": "sqrelu", "hidden_ratio": 4.0, "hidden_size": 256, "initializer_range": 0.02, "intermediate_size": 1024,
    "max_position_embeddings": 2048, "norm_bias": true, "norm_eps": 1e-05, "norm_first": true, "num_heads": 32,
    "num_hidden_layers": 3, "tie_word_embeddings": false, "torch_dtype": "float32", "use_cache": true, "use_l2warp": true,
    "v_low_rank_dim": 32, "value_dim": [256, 256, 256], "vocab_size": 65536)";
  const std::string first =
      R"("kind": "rwkv7", "heads": 4, "head_dim": 64, "value_dim": 64, "gate_rank": 64, "rate_rank": 64,
    "output_gate_rank": 128, "l2_eps": 1e-24, "norm_eps": 6.4e-4, )";
  expectDescription(
      config("rwkv7", published),
      R"j({"name": "rwkv7", "vocab_size": 65536, "d_model": 256, "num_layers": 3, "context_len": 2048, "tie_embeddings": false,
    "dtype": "f32", "norm": {"kind": "layer", "eps": 1e-5, "bias": true}, "embedding_norm": true, "layer_pattern": "FLL",
    "mixers": {"F": {)j" +
          first + R"j("value_mix": false}, "L": {)j" + first + R"j("value_rank": 32}}, "ffn_pattern": "D",
    "ffns": {"D": {"kind": "dense", "hidden": 1024, "activation": "relu2", "token_shift": true}},
    "init": {"kind": "normal", "std": 0.02, "scale_output": false}})j");
  Parsed parsed = parse(config("rwkv7", published));
  EXPECT_EQ(imported(parsed, "embed_norm.bias"), R"("model.layers.0.pre_norm.bias")");
  EXPECT_EQ(imported(parsed, "layers.{layer}.norm1.bias"), R"("model.layers.{layer}.attn_norm.bias")");
  EXPECT_EQ(imported(parsed, "layers.{layer}.lsm.mu_q"), R"("model.layers.{layer}.attn.x_r")");
  EXPECT_EQ(imported(parsed, "layers.{layer}.lsm.rate_b"),
            R"({"name":"model.layers.{layer}.attn.a_lora.lora.2.weight","transposed":true})");
  EXPECT_EQ(imported(parsed, "layers.{layer}.lsm.v0"), R"("model.layers.{layer}.attn.v_lora.lora.2.bias")");
  EXPECT_EQ(imported(parsed, "layers.{layer}.ffn.shift_x.taps"), R"({"values":[1,0]})");
  EXPECT_EQ(imported(parsed, "layers.{layer}.ffn.w2"),
            R"({"name":"model.layers.{layer}.ffn.value.weight","transposed":true})");
}

TEST(HuggingFace, Rwkv6) {
  // Every key that the library has.
  const std::string published = config(
      "rwkv6",
      R"("architectures": ["RWKV6ForCausalLM"], "attn": {"layers": [2], "num_heads": 4, "window_size": 64}, "attn_mode": "chunk",
    "bos_token_id": 1, "eos_token_id": 2, "expand_k": 0.5, "expand_v": 1.0, "fuse_cross_entropy": true, "fuse_linear_cross_entropy": false,
    "fuse_norm": true, "gate_low_rank_dim": 48, "hidden_act": "sqrelu", "hidden_ratio": 3.5, "hidden_size": 256, "initializer_range": 0.02,
    "intermediate_size": null, "max_position_embeddings": 2048, "norm_bias": true, "norm_eps": 1e-05, "norm_first": true, "num_heads": 4,
    "num_hidden_layers": 3, "pad_token_id": null, "proj_low_rank_dim": 24, "tie_word_embeddings": false, "use_cache": true, "use_l2warp": false,
    "vocab_size": 32000)");
  expectDescription(
      published,
      R"j({"name": "rwkv6", "vocab_size": 32000, "d_model": 256, "num_layers": 3, "context_len": 2048, "tie_embeddings": false,
    "dtype": "f32", "norm": {"kind": "layer", "eps": 1e-5, "bias": true}, "embedding_norm": true, "layer_pattern": "LLN", "mixers": {
    "N": {"kind": "attention", "heads": 4, "kv_heads": 4, "head_dim": 64, "qkv_bias": false, "rope": {"theta": 1e4}, "window": 64},
    "L": {"kind": "rwkv6", "heads": 4, "head_dim": 32, "value_dim": 64, "gate_rank": 48, "mix_rank": 24, "norm_eps": 1e-5}}, "ffn_pattern": "D",
    "ffns": {"D": {"kind": "dense", "hidden": 896, "activation": "relu2", "token_shift": true, "output_gate": "sigmoid"}},
    "init": {"kind": "normal", "std": 0.02, "scale_output": false}})j");
  Parsed parsed = parse(published);
  // Five mixtures: rows of one matrix, columns of another.
  EXPECT_EQ(imported(parsed, "layers.{layer}.lsm.mix_w_a"),
            R"({"name":"model.layers.{layer}.attn.x_proj.0.linear.weight","rows":[24,48],"transposed":true})");
  EXPECT_EQ(imported(parsed, "layers.{layer}.lsm.mix_w_b"),
            R"({"columns":[24,120,24],"name":"model.layers.{layer}.attn.x_proj.2.weight","transposed":true})");
  EXPECT_EQ(imported(parsed, "layers.{layer}.lsm.mu_g"), R"({"name":"model.layers.{layer}.attn.x_bias","rows":[4,5]})");
  EXPECT_EQ(imported(parsed, "layers.{layer}.lsm.w0"), R"("model.layers.{layer}.attn.w_proj.linear.lora.2.bias")");
  EXPECT_EQ(imported(parsed, "layers.{layer}.lsm.shift_decay.taps"), R"({"values":[1,0]})");
  EXPECT_EQ(imported(parsed, "layers.{layer}.ffn.mu_g"), R"("model.layers.{layer}.ffn.receptance.mu")");
  EXPECT_EQ(imported(parsed, "layers.{layer}.ffn.wg"),
            R"({"name":"model.layers.{layer}.ffn.receptance.linear.weight","transposed":true})");
}

TEST(HuggingFace, RwkvSizes) {
  // Ranks that null leaves to the width; heads where head_dim does not say them; no norm of the embedding, no biases.
  Parsed parsed = parse(config(
      "rwkv7",
      R"("hidden_size": 1024, "num_hidden_layers": 1, "head_dim": null, "num_heads": 8, "decay_low_rank_dim": null,
    "a_low_rank_dim": null, "v_low_rank_dim": null, "gate_low_rank_dim": null, "value_dim": 2048, "norm_first": false, "norm_bias": false,
    "hidden_ratio": null, "hidden_act": "gelu")"));
  ASSERT_TRUE(parsed.spec) << parsed.errors[0];
  const auto &rwkv = std::get<LsmSpec>(*parsed.spec->findMixer('F'));
  EXPECT_EQ(parsed.spec->layerPattern, "F");
  EXPECT_EQ(rwkv.headDim, 128);
  EXPECT_EQ(rwkv.valueDim, 256);
  EXPECT_EQ(rwkv.gateRank, 160);
  EXPECT_EQ(rwkv.rateRank, 160);
  EXPECT_EQ(rwkv.outputGateRank, 160);
  EXPECT_EQ(rwkv.l2Eps, 1e-6);
  EXPECT_FALSE(parsed.spec->embeddingNorm);
  EXPECT_FALSE(parsed.spec->norm.bias);
  const auto &ffn = std::get<DenseSpec>(parsed.spec->ffns.at('D'));
  EXPECT_EQ(ffn.hidden, 4096);
  EXPECT_EQ(ffn.activation, "gelu_tanh");
  EXPECT_EQ(imported(parsed, "embed_norm.weight"), "none");
  EXPECT_EQ(imported(parsed, "final_norm.bias"), "none");
  // In every other layer, and of narrow models.
  parsed = parse(config("rwkv7", R"("hidden_size": 64, "v_low_rank_dim": null, "gate_low_rank_dim": null)"));
  EXPECT_EQ(std::get<LsmSpec>(*parsed.spec->findMixer('L')).valueRank, 32);
  EXPECT_EQ(std::get<LsmSpec>(*parsed.spec->findMixer('L')).outputGateRank, 32);
}

TEST(HuggingFace, Hgrn2) {
  expectDescription(
      config("hgrn2", R"("hidden_size": 256, "num_hidden_layers": 4, "expand_ratio": 64, "num_heads": null,
    "attn": {"layers": [2], "num_heads": 4}, "norm_eps": 1e-3, "elementwise_affine": true, "use_short_conv": false, "conv_size": 4,
    "attnres_block_size": null, "use_l2warp": false)"),
      R"j({"name": "hgrn2", "vocab_size": 32000, "d_model": 256, "num_layers": 4, "context_len": 2048, "tie_embeddings": false,
    "dtype": "f32", "norm": {"kind": "rms", "eps": 1e-3}, "layer_pattern": "LLN", "mixers": {
    "N": {"kind": "attention", "heads": 4, "kv_heads": 4, "head_dim": 64, "qkv_bias": false, "rope": {"theta": 1e4}},
    "L": {"kind": "hgrn2", "heads": 4, "head_dim": 64, "lower_bounds": "learned", "norm_eps": 1e-5}}, "ffn_pattern": "D",
    "ffns": {"D": {"kind": "dense", "hidden": 768}}, "init": {"kind": "normal", "std": 0.02, "scale_output": false}})j");
  Parsed parsed = parse(config("hgrn2", R"("expand_ratio": null, "num_heads": 8)"));
  ASSERT_TRUE(parsed.spec) << parsed.errors[0];
  EXPECT_EQ(std::get<LsmSpec>(*parsed.spec->findMixer('L')).headDim, 256);
  EXPECT_EQ(imported(parsed, "lsm.lower_bounds"), R"({"name":"model.lower_bounds","transposed":true})");
  EXPECT_EQ(imported(parsed, "layers.{layer}.lsm.wk"),
            R"({"name":"model.layers.{layer}.attn.f_proj.weight","transposed":true})");
  EXPECT_EQ(imported(parsed, "layers.{layer}.lsm.norm.weight"), R"("model.layers.{layer}.attn.g_norm.weight")");
  EXPECT_EQ(imported(parsed, "layers.{layer}.lsm.conv_k.weight"), "none");
  parsed = parse(config("hgrn2", R"("use_lower_bound": false, "use_short_conv": true, "conv_size": 3)"));
  ASSERT_TRUE(parsed.spec) << parsed.errors[0];
  const auto &conv = std::get<LsmSpec>(*parsed.spec->findMixer('L')).conv;
  ASSERT_TRUE(conv);
  EXPECT_EQ(conv->kernel, 3);
  EXPECT_FALSE(conv->activation);
  EXPECT_TRUE(conv->decays);
  EXPECT_EQ(imported(parsed, "layers.{layer}.lsm.conv_k.weight"), R"("model.layers.{layer}.attn.f_conv1d.weight")");
  EXPECT_FALSE(std::get<LsmSpec>(*parsed.spec->findMixer('L')).lowerBounds);
  EXPECT_EQ(imported(parsed, "lsm.lower_bounds"), "none");
}

TEST(HuggingFace, RwkvErrors) {
  struct Case {
    const char *family;
    std::string keys, message;
  };
  const Case cases[] = {
      {"rwkv7", R"("attn": {"layers": [0], "num_heads": 4})",
       "config.json:2: attn: an object of a rwkv7 config is not computed; valid: null"},
      {"rwkv6", R"("num_heads": 3)",
       "config.json:2: num_heads: 3 does not divide hidden_size * expand_k, 1024; valid: a divisor"},
      {"rwkv6", R"("hidden_size": 64.5)", "config.json:2: hidden_size: 64.5 is not an integer; valid: 1 to 131072"},
      {"rwkv6", R"("hidden_size": 0)", "config.json:2: hidden_size: 0 is out of range; valid: 1 to 131072"},
      {"rwkv6", R"("proj_low_rank_dim": 0)", "config.json:2: proj_low_rank_dim: 0 is out of range; valid: 1 to 131072"},
      {"rwkv6", R"("hidden_ratio": 0)", "config.json:2: hidden_ratio: 0 is not a number above 0 to 1024"},
      {"rwkv6", R"("attn": {"layers": [0]})",
       "config.json:2: attn: has no num_heads; valid: {\"layers\": [..], \"num_heads\": N, ..}"},
      {"rwkv7", R"("head_dim": 48)", "config.json:2: head_dim: 48 does not divide hidden_size, 2048; valid: a divisor"},
      {"rwkv7", R"("head_dim": null)",
       "config.json:2: head_dim: is null, and so is num_heads; valid: an integer above 0 in one of them"},
      {"rwkv7", R"("head_dim": null, "num_heads": 3)",
       "config.json:2: num_heads: 3 does not divide hidden_size, 2048; valid: a divisor"},
      {"rwkv7", R"("num_hidden_layers": 2, "value_dim": [2048, 4096])",
       "config.json:2: value_dim[1]: 4096 is not that of the first layer, 2048, with whose values this one mixes its "
       "own; valid: equal ones"},
      {"rwkv7", R"("num_hidden_layers": 2, "value_dim": [2048])",
       "config.json:2: value_dim: has 1 layers; valid: num_hidden_layers, 2"},
      {"rwkv7", R"("num_hidden_layers": 2, "value_dim": ["x", 64])",
       "config.json:2: value_dim[0]: \"x\" is not an integer above 0"},
      {"rwkv7", R"("num_heads": "x")",
       "config.json:2: num_heads: \"x\" is not an integer above 0; head_dim says the heads"},
      {"hgrn2", R"("num_hidden_layers": "x", "attn": {"layers": [30], "num_heads": 16})",
       "config.json:2: num_hidden_layers: \"x\" is not an integer; valid: 1 to 1024"},
      {"rwkv7", R"("value_dim": 100)",
       "config.json:2: value_dim: 100 of 32 heads is no whole number; valid: a multiple of the heads"},
      {"rwkv7", R"("a_low_rank_dim": 0)", "config.json:2: a_low_rank_dim: 0 is out of range; valid: 1 to 131072"},
      {"rwkv7", R"("hidden_act": "sigmoid")",
       "config.json:2: hidden_act: \"sigmoid\" of a rwkv7 config is not computed; valid: \"sqrelu\", \"relu\", "
       "\"silu\", \"swish\", \"gelu\""},
      {"rwkv7", R"("hidden_ratio": 0)", "config.json:2: hidden_ratio: 0 is not a number above 0 to 1024"},
      {"rwkv7", R"("hidden_ratio": 1e-4)",
       "config.json:2: hidden_ratio: 1e-04 of hidden_size 2048 leaves no features; valid: more"},
      {"rwkv7", R"("fuse_norm": 1)", "config.json:2: fuse_norm: 1 is not true or false"},
      {"rwkv7", R"("norm_bias": 1)", "config.json:2: norm_bias: 1 is not true or false"},
      {"rwkv7", R"("norm_first": "no")", "config.json:2: norm_first: \"no\" is not true or false"},
      {"rwkv7", R"("use_l2warp": 1)", "config.json:2: use_l2warp: 1 is not true or false"},
      {"rwkv7", R"("use_short_conv": true)",
       "config.json:2: use_short_conv: true is of an unknown key of a rwkv7 config; valid: the keys that "
       "models/README.md lists"},
      {"hgrn2", R"("expand_ratio": 100)",
       "config.json:2: expand_ratio: 100 does not divide hidden_size, 2048; valid: a divisor"},
      {"hgrn2", R"("expand_ratio": null)",
       "config.json:2: expand_ratio: is null, and so is num_heads; valid: an integer above 0 in one of them"},
      {"hgrn2", R"("use_lower_bound": 0)", "config.json:2: use_lower_bound: 0 is not true or false"},
      {"hgrn2", R"("use_short_conv": 1)", "config.json:2: use_short_conv: 1 is not true or false"},
      {"hgrn2", R"("use_short_conv": true, "conv_size": 1)",
       "config.json:2: conv_size: 1 is out of range; valid: 2 to 16"},
      {"hgrn2", R"("elementwise_affine": false)",
       "config.json:2: elementwise_affine: false of a hgrn2 config is not computed; valid: true"},
      {"hgrn2", R"("attnres_block_size": 2)",
       "config.json:2: attnres_block_size: 2 of a hgrn2 config is not computed; valid: null"},
  };
  for (const Case &c : cases)
    expectError(config(c.family, c.keys), c.message);
}

} // namespace
} // namespace braid
