// Configs of LFM2, LFM3 and OLMo Hybrid: short convolutions or attention, norms of each layer where its mixer has them.
#include "test/frontend/HuggingFaceConfigs.h"

namespace braid {
namespace {

std::string with(const std::string &family, const std::string &more, int layers = 4) {
  std::string small = R"("vocab_size": 256, "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2,
    "intermediate_size": 96, "num_hidden_layers": )" +
                      std::to_string(layers);
  return config(family, small + (more.empty() ? more : ",\n" + more));
}

/// The width of the first feed-forward.
int64_t widthOf(const Parsed &parsed) {
  EXPECT_TRUE(parsed.spec) << parsed.errors[0];
  return parsed.spec ? std::get<DenseSpec>(parsed.spec->ffns.at('D')).hidden : 0;
}

TEST(HuggingFace, Lfm2) {
  expectDescription(with("lfm2", R"("layer_types": ["conv", "full_attention", "conv", "conv"], "conv_bias": true,
    "block_multiple_of": 8, "block_dim": 64, "conv_dim": 64, "use_pos_enc": true)"),
                    R"j({"name": "lfm2", "vocab_size": 256, "d_model": 64, "num_layers": 4, "context_len": 128000,
    "tie_embeddings": true, "dtype": "f32", "norm": {"kind": "rms", "eps": 1e-5}, "layer_pattern": "CNC", "mixers": {
    "C": {"kind": "short_conv", "conv": {"kernel": 3, "bias": true}, "projection_bias": true, "output_bias": true},
    "N": {"kind": "attention", "heads": 4, "kv_heads": 2, "head_dim": 16, "rope": {"theta": 1e6}, "qk_norm": true}},
    "ffn_pattern": "D", "ffns": {"D": {"kind": "dense", "hidden": 64}},
    "init": {"kind": "normal", "std": 0.02, "scale_output": false}})j");
  Parsed parsed = parse(with("lfm2", R"("full_attn_idxs": [0, 3], "tie_embedding": false, "conv_bias": true)"));
  ASSERT_TRUE(parsed.spec) << parsed.errors[0];
  EXPECT_EQ(parsed.spec->layerPattern, "NCC");
  EXPECT_FALSE(parsed.spec->tieEmbeddings);
  EXPECT_EQ(imported(parsed, "layers.{layer}.lsm.wc"),
            R"({"name":"model.layers.{layer}.conv.in_proj.weight","rows":[64,128],"transposed":true})");
  EXPECT_EQ(imported(parsed, "layers.{layer}.lsm.bz"),
            R"({"name":"model.layers.{layer}.conv.in_proj.bias","rows":[128,192]})");
  EXPECT_EQ(imported(parsed, "layers.{layer}.attn.q_norm.weight"),
            R"("model.layers.{layer}.self_attn.q_layernorm.weight")");
  EXPECT_EQ(imported(parsed, "final_norm.weight"), R"("model.embedding_norm.weight")");
}

TEST(HuggingFace, Lfm2Widths) {
  // Two thirds, times a factor, rounded up; or as given.
  EXPECT_EQ(widthOf(parse(with("lfm2", ""))), 256);
  EXPECT_EQ(widthOf(parse(with("lfm2", R"("block_ff_dim": 1000, "block_multiple_of": 16)"))), 672);
  EXPECT_EQ(widthOf(parse(with("lfm2", R"("block_ffn_dim_multiplier": 1.5, "block_multiple_of": 10)"))), 100);
  EXPECT_EQ(widthOf(parse(with("lfm2", R"("block_ffn_dim_multiplier": null)"))), 64);
  EXPECT_EQ(widthOf(parse(with("lfm2", R"("block_auto_adjust_ff_dim": false)"))), 96);
  // As many as transformers counts in LFM2-1.2B and LFM2-8B-A1B (with a correction for each expert), and in what it
  // takes for LFM3.
  Parsed parsed = parse(config("lfm2", R"("hidden_size": 2048, "num_hidden_layers": 16, "block_ff_dim": 12288,
    "full_attn_idxs": [2, 5, 8, 10, 12, 14])"));
  ASSERT_TRUE(parsed.spec) << parsed.errors[0];
  EXPECT_EQ(parameters(*parsed.spec), 1'170'340'608);
  std::string types;
  for (int layer = 0; layer < 24; ++layer)
    types += std::string(layer ? ", " : "") +
             ((layer % 4 == 2 && layer < 20) || layer == 21 ? "\"full_attention\"" : "\"conv\"");
  parsed = parse(config("lfm2_moe", R"("num_hidden_layers": 24, "layer_types": [)" + types + "]"));
  ASSERT_TRUE(parsed.spec) << parsed.errors[0];
  EXPECT_EQ(parameters(*parsed.spec), 8'339'929'856 + 704);
  parsed = parse(config("lfm3"));
  ASSERT_TRUE(parsed.spec) << parsed.errors[0];
  EXPECT_EQ(parameters(*parsed.spec), 1'728'801'536);
}

TEST(HuggingFace, Lfm2Moe) {
  Parsed parsed = parse(with("lfm2_moe", R"("layer_types": ["conv", "conv", "full_attention", "conv"],
    "num_dense_layers": 1, "num_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 32,
    "routed_scaling_factor": 1.5)"));
  ASSERT_TRUE(parsed.spec) << parsed.errors[0];
  EXPECT_EQ(parsed.spec->ffnPattern, "DMMM");
  const auto &moe = std::get<MoeSpec>(parsed.spec->ffns.at('M'));
  EXPECT_EQ(moe.router.score, "sigmoid");
  EXPECT_TRUE(moe.router.correction && moe.router.normalize);
  EXPECT_EQ(moe.router.scale, 1.5);
  EXPECT_EQ(widthOf(parsed), 96); // as it is
  EXPECT_EQ(imported(parsed, "layers.{layer}.moe.correction"), R"("model.layers.{layer}.feed_forward.expert_bias")");
  parsed = parse(with("lfm2_moe", R"("layer_types": ["conv", "conv", "conv", "conv"], "use_expert_bias": false)"));
  ASSERT_TRUE(parsed.spec) << parsed.errors[0];
  EXPECT_FALSE(std::get<MoeSpec>(parsed.spec->ffns.at('M')).router.correction);
}

TEST(HuggingFace, Lfm3) {
  expectDescription(with("lfm3", R"("head_dim": 24, "rms_norm_eps": 1e-3)", 5),
                    R"j({"name": "lfm3", "vocab_size": 256, "d_model": 64, "num_layers": 5, "context_len": 128000,
    "tie_embeddings": true, "dtype": "f32", "norm": {"kind": "rms", "eps": 1e-3}, "layer_pattern": "CCNCW", "mixers": {
    "C": {"kind": "short_conv", "conv": {"kernel": 7, "bias": false}, "projection_bias": false, "output_bias": false},
    "W": {"kind": "attention", "heads": 4, "kv_heads": 2, "head_dim": 24, "rope": {"theta": 10000}, "qk_norm": true,
          "output_gate": "sigmoid", "output_gate_per": "head", "window": 256},
    "N": {"kind": "attention", "heads": 4, "kv_heads": 2, "head_dim": 24, "rope": {"theta": 1e6, "scaling":
          {"kind": "proportional", "factor": 1, "share": 0.5}}, "qk_norm": true, "output_gate": "sigmoid",
          "output_gate_per": "head"}},
    "ffn_pattern": "D", "ffns": {"D": {"kind": "dense", "hidden": 96}}, "norm_placement": "sandwich",
    "init": {"kind": "normal", "std": 0.02, "scale_output": false}})j");
  Parsed parsed = parse(with("lfm3", R"("use_sandwich_norm": false, "use_attention_gate": false)"));
  ASSERT_TRUE(parsed.spec) << parsed.errors[0];
  EXPECT_EQ(parsed.spec->normPlacement, NormPlacement::pre);
  EXPECT_FALSE(std::get<AttentionSpec>(parsed.spec->mixers.at('N')).outputGate);
  EXPECT_EQ(std::get<AttentionSpec>(parsed.spec->mixers.at('N')).rope->scaling->factors(1e6, 8),
            (std::vector<double>{1, 1, 0, 0}));
}

TEST(HuggingFace, OlmoHybrid) {
  std::string linear = R"({"kind": "gated_deltanet", "heads": 4, "key_heads": 4, "head_dim": 12, "value_dim": 24,
    "conv": {"kernel": 4}, "allow_neg_eigval": true, "norm_eps": 1e-5})";
  expectDescription(with("olmo_hybrid", R"("rope_parameters": {"rope_type": "default", "rope_theta": null})"),
                    R"j({"name": "olmo_hybrid", "vocab_size": 256, "d_model": 64, "num_layers": 4, "context_len": 65536,
    "tie_embeddings": false, "dtype": "f32", "norm": {"kind": "rms", "eps": 1e-6}, "layer_pattern": "LLLN",
    "mixers": {"L": )j" +
                        linear + R"j(, "N": {"kind": "attention", "heads": 4, "kv_heads": 2, "head_dim": 16,
    "rope": null, "qk_norm": true, "qk_norm_over": "heads", "norm_placement": "output"}}, "ffn_pattern": "DDDE",
    "ffns": {"D": {"kind": "dense", "hidden": 96}, "E": {"kind": "dense", "hidden": 96, "norm_placement": "output"}},
    "init": {"kind": "normal", "std": 0.02, "scale_output": false}})j");
  Parsed parsed = parse(config("olmo_hybrid"));
  ASSERT_TRUE(parsed.spec) << parsed.errors[0];
  EXPECT_EQ(parameters(*parsed.spec), 7'430'870'688);
  EXPECT_EQ(std::get<AttentionSpec>(parsed.spec->mixers.at('N')).rope->theta, 10000); // which transformers takes then
  EXPECT_EQ(imported(parsed, "layers.2.norm2.weight"), R"({"name":"model.layers.2.feedforward_layer_norm.weight",)"
                                                       R"("or":"model.layers.2.post_attention_layernorm.weight"})");
  EXPECT_EQ(imported(parsed, "layers.3.norm1.weight"), R"({"name":"model.layers.3.post_attention_layernorm.weight",)"
                                                       R"("or":"model.layers.3.feedforward_layer_norm.weight"})");
}

TEST(HuggingFace, LaraMini) {
  expectDescription(
      config("lara_mini", R"("vocab_size": 256, "hidden_size": 64, "num_hidden_layers": 5, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 24, "sliding_window": 12, "num_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 40, "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 16,
    "linear_value_head_dim": 24, "tie_word_embeddings": false, "hidden_act": "swish", "rope_parameters": {"rope_theta": 500, "rope_type": "default"})"),
      R"j({"name": "lara_mini", "vocab_size": 256, "d_model": 64, "num_layers": 5, "context_len": 131072, "tie_embeddings": false,
    "dtype": "f32", "norm": {"kind": "rms", "eps": 1e-6}, "layer_pattern": "LWLNW", "mixers": {"L": {"kind": "gated_deltanet", "heads": 4,
    "key_heads": 2, "head_dim": 16, "value_dim": 24, "conv": {"kernel": 4}, "norm_eps": 1e-6}, "W": {"kind": "attention", "heads": 4,
    "kv_heads": 2, "head_dim": 24, "rope": {"theta": 500}, "qk_norm": true, "window": 12}, "N": {"kind": "attention", "heads": 4,
    "kv_heads": 2, "head_dim": 24, "rope": null, "qk_norm": true}}, "ffn_pattern": "M", "ffns": {"M": {"kind": "moe", "num_experts": 8,
    "top_k": 3, "expert_hidden": 32, "router": {"normalize": true, "balance_loss": 0, "z_loss": 0}, "shared_hidden": 40}},
    "init": {"kind": "normal", "std": 0.02, "scale_output": false}})j");
  Parsed parsed = parse(config("lara_mini"));
  ASSERT_TRUE(parsed.spec) << parsed.errors[0];
  EXPECT_EQ(parameters(*parsed.spec), 7'281'684'672);
  EXPECT_EQ(imported(parsed, "layers.{layer}.lsm.wa"),
            R"({"name":"model.layers.{layer}.linear_attn.in_proj.weight","rows":[6160,6176],"transposed":true})");
  EXPECT_EQ(
      imported(parsed, "layers.{layer}.moe.w3"),
      R"({"name":"model.layers.{layer}.mlp.experts.gate_up_proj","rows":[512,1024],"stacked":true,"transposed":true})");
}

TEST(HuggingFace, ConvolutionErrors) {
  const std::tuple<const char *, const char *, const char *> cases[] = {
      {"lfm2", R"("layer_types": ["conv", "linear_attention"], "num_hidden_layers": 2)",
       R"(2: layer_types[1]: "linear_attention" is not computed; valid: "conv", "full_attention")"},
      {"lara_mini", R"("layer_types": ["conv", "linear_attention"], "num_hidden_layers": 2)",
       R"(2: layer_types[0]: "conv" is not computed; valid: "linear_attention", "full_attention", "sliding_attention")"},
      {"lara_mini", R"("shared_expert_intermediate_size": 0)",
       "2: shared_expert_intermediate_size: 0 leaves no shared expert; valid: an integer above 0"},
      {"lara_mini", R"("sliding_window": null)", "2: sliding_window: null is not an integer above 0"},
      {"lfm2", R"("num_hidden_layers": 2, "full_attn_idxs": [2])",
       "2: full_attn_idxs[0]: 2 is no layer; valid: 0 to num_hidden_layers - 1"},
      {"lfm2", R"("block_ffn_dim_multiplier": 0)",
       "2: block_ffn_dim_multiplier: 0 is not a number above 0 to 1000, or null"},
      {"lfm2", R"("conv_L_cache": 1, "full_attn_idxs": [])", "2: conv_L_cache: 1 is out of range; valid: 2 to 16"},
      {"lfm2", R"("conv_bias": 1, "full_attn_idxs": [])", "2: conv_bias: 1 is not true or false"},
      {"lfm2_moe", R"("num_experts": 8)",
       "1: layer_types: is missing, without which transformers has no such model; valid: \"conv\" or "
       "\"full_attention\" "
       "for every layer"},
      {"lfm3", R"("num_hidden_layers": 1, "layer_types": ["linear_attention"])",
       R"(2: layer_types[0]: "linear_attention" is not computed; valid: "conv", "full_attention", "sliding_attention")"},
      {"lfm3", R"("num_hidden_layers": 3, "layer_types": ["conv"])",
       "2: layer_types: has 1 layers; valid: num_hidden_layers, 3"},
      {"lfm3", R"("use_sandwich_norm": 1)", "2: use_sandwich_norm: 1 is not true or false"},
      {"lfm3", R"("rope_parameters": {"full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0}})",
       "2: rope_parameters.full_attention.partial_rotary_factor: 0 is out of range; valid: above 0 to 1"},
      {"olmo_hybrid", R"("linear_num_key_heads": 7)",
       "2: linear_num_key_heads: 7 does not divide num_attention_heads 30; "
       "valid: 1, 2, 3, 5, 6, 10, 15, 30"},
  };
  for (auto [family, more, message] : cases) {
    std::vector<std::string> errors = parse(config(family, more)).errors;
    EXPECT_EQ(errors.empty() ? "none" : errors[0], std::string("config.json:") + message); // of several places
  }
  // How many layers there are is said once, where it is read.
  for (const char *family : {"lfm2", "lfm3", "qwen3_next"})
    expectError(config(family, R"("num_hidden_layers": [1], "layer_types": ["full_attention"])"),
                "config.json:2: num_hidden_layers: a list is not an integer; valid: 1 to 1024");
}

} // namespace
} // namespace braid
