// Configs of zamba2: Mamba-2 in every layer, before some one of several transformer blocks that layers share.
#include "test/frontend/HuggingFaceConfigs.h"

namespace braid {
namespace {

// In small: hybrid layers in turns, as versions of transformers call them.
const char *const small = R"("vocab_size": 256, "hidden_size": 64, "num_hidden_layers": 6, "num_mem_blocks": 2,
  "layers_block_type": ["mamba", "hybrid", "linear_attention", "hybrid", "mamba", "hybrid"], "adapter_rank": 4, "use_shared_mlp_adapter": true,
  "num_attention_heads": 4, "n_mamba_heads": 8, "mamba_d_state": 16, "mamba_ngroups": 2, "intermediate_size": 96,
  "hybrid_layer_ids": [1, 3, 5], "attention_head_dim": 32, "use_long_context": false, "time_step_limit": null)";

std::string with(const std::string &more) { return config("zamba2", std::string(small) + ",\n" + more); }

TEST(HuggingFace, Zamba2) {
  std::string block = R"({"attention": {"heads": 4, "kv_heads": 4, "head_dim": 32, "rope": null, "scale": 0.25},
    "ffn": {"hidden": 96, "activation": "geglu", "bias": false}, "ffn_adapter_rank": 4})";
  expectDescription(config("zamba2", small), R"j({"name": "zamba2", "vocab_size": 256, "d_model": 64, "num_layers": 6,
    "context_len": 4096, "tie_embeddings": true, "dtype": "f32", "norm": {"kind": "rms", "eps": 1e-5},
    "layer_pattern": "M", "mixers": {"M": {"kind": "mamba2", "heads": 8, "key_heads": 2, "head_dim": 16, "value_dim": 16,
    "conv": {"kernel": 4, "bias": true}, "projection_bias": false, "output_bias": false, "step_range": [0.001, 0.1]}},
    "ffn_pattern": "-", "ffns": {}, "inject_pattern": "-A-B", "injects": {"A": )j" +
                                                 block + R"j(, "B": )j" + block + R"j(},
    "init": {"kind": "normal", "std": 0.02, "scale_output": false}})j");
  Parsed parsed = parse(with(R"("use_shared_attention_adapter": true, "add_bias_linear": true, "use_mem_rope": true,
    "rope_theta": 500, "hidden_act": "silu")"));
  ASSERT_TRUE(parsed.spec) << parsed.errors[0];
  const InjectSpec &inject = parsed.spec->injects.at('B');
  EXPECT_EQ(inject.attentionAdapterRank, 4);
  EXPECT_EQ(inject.attention.rope->theta, 500);
  EXPECT_EQ(inject.ffn->activation, "swiglu");
  EXPECT_TRUE(inject.ffn->bias);
  // Stored where they are used first; mixers of hybrid layers are one deeper.
  EXPECT_EQ(imported(parsed, "injects.B.norm1.weight"),
            R"("model.layers.3.shared_transformer.input_layernorm.weight")");
  EXPECT_EQ(imported(parsed, "injects.A.ffn.w3"),
            R"({"name":"model.layers.1.shared_transformer.feed_forward.gate_up_proj.weight","rows":[96,192],)"
            R"("transposed":true})");
  EXPECT_EQ(imported(parsed, "layers.5.inject.ffn.a"),
            R"({"name":"model.layers.1.shared_transformer.feed_forward.gate_up_proj_adapter_list.2.0.weight",)"
            R"("transposed":true})");
  EXPECT_EQ(
      imported(parsed, "layers.3.inject.attn.wk_b"),
      R"({"name":"model.layers.3.shared_transformer.self_attn.linear_k_adapter_list.1.1.weight","transposed":true})");
  EXPECT_EQ(imported(parsed, "layers.{layer}.inject.wi"),
            R"({"name":"model.layers.{layer}.linear.weight","transposed":true})");
  EXPECT_EQ(imported(parsed, "layers.{layer}.norm1.weight"),
            R"({"name":"model.layers.{layer}.input_layernorm.weight",)"
            R"("or":"model.layers.{layer}.mamba_decoder.input_layernorm.weight"})");
  EXPECT_NE(
      parsed.spec->source.find(
          R"("model.layers.5.shared_transformer.pre_ff_layernorm.weight":"model.layers.1.shared_transformer.pre_ff)"),
      std::string::npos);
}

TEST(HuggingFace, Zamba2Sizes) {
  // Without a list transformers takes 54 layers, which are those of Zamba2-2.7B.
  Parsed parsed = parse(config("zamba2", R"("num_mem_blocks": 2, "n_mamba_heads": 80, "use_mem_rope": true)"));
  ASSERT_TRUE(parsed.spec) << parsed.errors[0];
  EXPECT_EQ(parameters(*parsed.spec), 2'662'214'560);
  EXPECT_EQ(parsed.spec->injectPattern,
            "------A-----B-----A-----B-----A-----B-----A----B---A"); // and no more in two layers
  std::string types; // as large as Zamba2-1.2B: one block, and products of low rank in attention, too
  for (int layer = 0; layer < 38; ++layer)
    types += std::string(layer ? ", " : "") + (layer % 6 == 5 && layer < 36 ? "\"hybrid\"" : "\"mamba\"");
  parsed = parse(config("zamba2", R"("hidden_size": 2048, "num_hidden_layers": 38, "n_mamba_heads": 64,
    "mamba_d_state": 128, "use_shared_attention_adapter": true, "use_mem_rope": true, "layers_block_type": [)" +
                                      types + "]"));
  ASSERT_TRUE(parsed.spec) << parsed.errors[0];
  EXPECT_EQ(parameters(*parsed.spec), 1'215'064'704);
  // Without a hybrid layer there is no block, of three blocks but two are used.
  parsed = parse(config("zamba2", R"("num_hidden_layers": 2, "layers_block_type": ["mamba", "mamba"])"));
  ASSERT_TRUE(parsed.spec) << parsed.errors[0];
  EXPECT_TRUE(parsed.spec->injects.empty());
  parsed =
      parse(config("zamba2", R"("num_hidden_layers": 2, "num_mem_blocks": 3, "layer_types": ["hybrid", "hybrid"])"));
  ASSERT_TRUE(parsed.spec) << parsed.errors[0];
  EXPECT_EQ(parsed.spec->injectPattern, "AB");
}

TEST(HuggingFace, Zamba2Errors) {
  const std::pair<const char *, const char *> cases[] = {
      {R"("tie_word_embeddings": false)", "tie_word_embeddings: false of a zamba2 config is not computed; valid: true"},
      {R"("use_long_context": true)", "use_long_context: true of a zamba2 config is not computed; valid: false"},
      {R"("use_shared_mlp_adapter": false)",
       "use_shared_mlp_adapter: false of a zamba2 config is not computed; valid: true"},
      {R"("num_hidden_layers": 6)",
       "num_hidden_layers: 6 without layers_block_type, for which transformers takes 54 layers; valid: 54, or such a "
       "list"},
      {R"("num_hidden_layers": 3, "layers_block_type": ["mamba", "hybrid"])",
       "layers_block_type: has 2 layers; valid: num_hidden_layers, 3"},
      {R"("num_hidden_layers": 2, "layers_block_type": ["mamba", "attention"])",
       "layers_block_type[1]: \"attention\" is not computed; valid: \"mamba\" (\"linear_attention\"), \"hybrid\""},
      {R"("num_mem_blocks": 0)", "num_mem_blocks: 0 is not an integer from 1 to 26"},
      {R"("num_attention_heads": 3)",
       "num_attention_heads: 3 does not divide twice the hidden_size 2560; valid: a divisor"},
      {R"("n_mamba_heads": 7)",
       "n_mamba_heads: 7 does not divide mamba_expand 2 times hidden_size 2560; valid: a divisor"},
      {R"("num_key_value_heads": 8, "use_shared_attention_adapter": true)",
       "num_key_value_heads: 8 with use_shared_attention_adapter, whose products are of num_attention_heads 32; valid: "
       "32"},
      {R"("hidden_act": "tanh")",
       "hidden_act: \"tanh\" is not computed; valid: \"gelu\", \"silu\", \"gelu_pytorch_tanh\", \"relu\""},
      {R"("time_step_limit": [0.5, 1.0])",
       "time_step_limit: a list bounds steps, which is not computed; valid: [0.0, Infinity]"},
      {R"("adapter_rank": 0)", "adapter_rank: 0 is not an integer above 0"},
      {R"("lora_rank": 8)",
       "lora_rank: 8 is of an unknown key of a zamba2 config; valid: the keys that models/README.md lists"},
  };
  for (auto [more, message] : cases)
    expectError(config("zamba2", more), std::string("config.json:2: ") + message);
}

} // namespace
} // namespace braid
