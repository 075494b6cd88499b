// Configs of xLSTM, Falcon Mamba, Gemma 2 and Recurrent Gemma: recurrent units, and scores and logits that a tanh bounds.
#include "test/frontend/HuggingFaceConfigs.h"

namespace braid {
namespace {

TEST(HuggingFace, Xlstm) {
  expectDescription(config("xlstm", R"("vocab_size": 256, "embedding_dim": 128, "num_blocks": 3, "num_heads": 4,
    "v_dim_factor": 2.0, "ffn_proj_factor": 1.3, "gate_soft_cap": 5.0, "output_logit_soft_cap": 20.0, "norm_eps": 1e-3)"),
                    R"j({"name": "xlstm", "vocab_size": 256, "d_model": 128, "num_layers": 3, "context_len": 1048576,
    "tie_embeddings": false, "dtype": "f32", "norm": {"kind": "rms", "eps": 1e-3}, "layer_pattern": "M", "mixers": {
    "M": {"kind": "mlstm", "heads": 4, "head_dim": 16, "value_dim": 64, "gate_softcap": 5, "norm_eps": 1e-3}},
    "ffn_pattern": "D", "ffns": {"D": {"kind": "dense", "hidden": 192}}, "logits_softcap": 20,
    "init": {"kind": "normal", "std": 0.05590169943749474, "scale_output": false}})j");
  // xLSTM-7b as it was published, and as many numbers as transformers counts.
  Parsed parsed = parse(config(
      "xlstm",
      R"("add_embedding_dropout": false, "add_forward_backend_padding": false, "is_encoder_decoder": false, "forward_backend_name": "chunkwise",
    "add_out_norm": true, "add_post_blocks_norm": true, "add_post_norm": false, "add_qk_norm": false,
    "autocast_kernel_dtype": "bfloat16", "cell_norm_eps": 1e-06, "chunk_size": 64,
    "chunkwise_kernel": "chunkwise--triton_xl_chunk", "embedding_dim": 4096, "eps": 1e-06, "ffn_proj_factor": 2.667,
    "ffn_round_up_to_multiple_of": 64, "force_bos_token_insert": true, "gate_soft_cap": 15.0, "head_dim": 512,
    "igate_bias_init_range": -10.0, "inference_state_dtype": "float32", "mlstm_round_up_to_multiple_of": 64,
    "mode": "inference", "norm_eps": 1e-06, "norm_reduction_force_float32": true, "num_blocks": 32, "num_heads": 8,
    "output_logit_soft_cap": 30.0, "qk_dim_factor": 0.5, "return_last_states": true,
    "sequence_kernel": "native_sequence__triton", "step_kernel": "triton", "tie_word_embeddings": false,
    "torch_dtype": "float32", "use_bias": false, "v_dim_factor": 1.0, "vocab_size": 50304, "weight_mode": "single")"));
  ASSERT_TRUE(parsed.spec) << parsed.errors[0];
  EXPECT_EQ(parameters(*parsed.spec), 6'865'424'896);
  EXPECT_EQ(std::get<DenseSpec>(parsed.spec->ffns.at('D')).hidden, 10944);
  EXPECT_EQ(parameters(*parse(config("xlstm", R"("hidden_size": 2048, "num_hidden_layers": 24, "num_heads": 4)")).spec),
            1'420'839'104);
  EXPECT_EQ(imported(parsed, "layers.{layer}.lsm.wg"),
            R"({"name":"backbone.blocks.{layer}.mlstm_layer.ogate_preact.weight","transposed":true})");
  EXPECT_EQ(imported(parsed, "layers.{layer}.lsm.bf"), R"("backbone.blocks.{layer}.mlstm_layer.fgate_preact.bias")");
  EXPECT_EQ(imported(parsed, "layers.{layer}.norm2.weight"), R"("backbone.blocks.{layer}.norm_ffn.weight")");
  EXPECT_EQ(imported(parsed, "final_norm.weight"), R"("backbone.out_norm.weight")");
  EXPECT_EQ(parse(config("xlstm", R"("output_logit_soft_cap": null)")).spec->logitsSoftcap, 0);
}

TEST(HuggingFace, XlstmWithFusedWeights) {
  Parsed parsed =
      parse(config("xlstm", R"("hidden_size": 128, "num_heads": 4, "v_dim_factor": 2.0, "weight_mode": "fused")"));
  ASSERT_TRUE(parsed.spec) << parsed.errors[0];
  auto rows = [](const char *name, int first, int last, bool isMatrix = true) {
    return std::string(R"({"name":"backbone.blocks.{layer}.)") + name + "\",\"rows\":[" + std::to_string(first) + "," +
           std::to_string(last) + (isMatrix ? "],\"transposed\":true}" : "]}");
  };
  EXPECT_EQ(imported(parsed, "layers.{layer}.lsm.wk"), rows("mlstm_layer.qkv_opreact.weight", 64, 128));
  EXPECT_EQ(imported(parsed, "layers.{layer}.lsm.wv"), rows("mlstm_layer.qkv_opreact.weight", 128, 384));
  EXPECT_EQ(imported(parsed, "layers.{layer}.lsm.wg"), rows("mlstm_layer.qkv_opreact.weight", 384, 640));
  EXPECT_EQ(imported(parsed, "layers.{layer}.lsm.wi"), rows("mlstm_layer.ifgate_preact.weight", 0, 4));
  EXPECT_EQ(imported(parsed, "layers.{layer}.lsm.bf"), rows("mlstm_layer.ifgate_preact.bias", 4, 8, false));
  EXPECT_EQ(imported(parsed, "layers.{layer}.ffn.w3"), rows("ffn.proj_up_gate_z.weight", 384, 768));
}

TEST(HuggingFace, XlstmErrors) {
  struct Case {
    std::string keys, message;
  };
  const Case cases[] = {
      {R"("use_bias": true)", "config.json:2: use_bias: true of an xlstm config is not computed; valid: false"},
      {R"("hidden_size": 128, "embedding_dim": 64)",
       "config.json:2: embedding_dim: 64 is not hidden_size 128; valid: one of the two keys"},
      {R"("hidden_size": 72, "num_heads": 8)",
       "config.json:1: qk_dim_factor: 0.5 of 72 features are 36, which num_heads 8 does not divide; valid: a multiple"},
      {R"("num_hidden_layers": 2, "num_blocks": 3)",
       "config.json:2: num_blocks: 3 is not num_hidden_layers 2; valid: one of the two keys"},
      {R"("ffn_proj_factor": 1e-9, "ffn_round_up_to_multiple_of": 1)",
       "config.json:2: ffn_proj_factor: 1e-09 times hidden_size 4096, rounded up to a multiple of "
       "ffn_round_up_to_multiple_of 1, is 0; valid: 1 to 524288"},
      {R"("ffn_round_up_to_multiple_of": 1000000)",
       "config.json:1: ffn_proj_factor: 2.667 times hidden_size 4096, rounded up to a multiple of "
       "ffn_round_up_to_multiple_of 1000000, is 1000000; valid: 1 to 524288"},
      {R"("hidden_size": 8, "num_heads": 4, "v_dim_factor": 0.5)",
       "config.json:2: hidden_size * v_dim_factor / num_heads: 1 has a layer norm of one feature, which is 0 whatever "
       "it is; valid: 2 or more, or output_norm false"},
      {R"("is_encoder_decoder": true)",
       "config.json:2: is_encoder_decoder: true of an xlstm config is not computed; valid: false"},
      {R"("v_dim_factor": 0)", "config.json:2: v_dim_factor: 0 is not a number above 0 to 1024"},
      {R"("ffn_round_up_to_multiple_of": 0)",
       "config.json:2: ffn_round_up_to_multiple_of: 0 is not an integer from 1 to 1048576"},
      {R"("weight_mode": "both")",
       "config.json:2: weight_mode: \"both\" is not computed; valid: \"single\", \"fused\""},
      {R"("gate_soft_cap": 50)", "config.json:2: gate_soft_cap: 50 is out of range; valid: 0.001 to 40"},
      {R"("output_logit_soft_cap": 0)",
       "config.json:2: output_logit_soft_cap: 0 is out of range; valid: 0.001 to 1e+06"},
      {R"("tie_word_embeddings": true)",
       "config.json:2: tie_word_embeddings: true of an xlstm config is not computed; valid: false"},
  };
  for (const Case &c : cases)
    expectError(config("xlstm", c.keys), c.message);
}

TEST(HuggingFace, FalconMamba) {
  // Falcon-Mamba-7B, whose channels are not expand times its width, and what transformers takes without a key.
  Parsed parsed = parse(config("falcon_mamba", R"("hidden_size": 4096, "num_hidden_layers": 64, "vocab_size": 65024,
    "expand": 16, "intermediate_size": 8192, "time_step_rank": 256, "tie_word_embeddings": false,
    "mixer_rms_eps": 1e-5, "use_mambapy": false, "use_falcon_mambapy": false, "use_associative_scan": true)"));
  ASSERT_TRUE(parsed.spec) << parsed.errors[0];
  EXPECT_EQ(parameters(*parsed.spec), 7'272'665'088);
  const auto &mamba = std::get<LsmSpec>(*parsed.spec->findMixer('M'));
  EXPECT_TRUE(mamba.bcdtNorm);
  EXPECT_FALSE(mamba.bcdtNormWeights);
  EXPECT_EQ(mamba.normEps, 1e-5);
  EXPECT_EQ(parameters(*parse(config("falcon_mamba")).spec), 159'308'544);
  EXPECT_EQ(parameters(*parse(config("falcon_mamba", R"("intermediate_size": null)")).spec), 159'308'544);
  for (const char *wrong : {"0", "true", "1.5"})
    expectError(config("falcon_mamba", R"("intermediate_size": )" + std::string(wrong)),
                "config.json:2: intermediate_size: " + std::string(wrong) + " is not an integer above 0");
  expectError(config("falcon_mamba", R"("intermediate_size": 131073)"),
              "config.json:2: intermediate_size: 131073 is out of range; valid: 1 to 131072");
  expectError(config("falcon_mamba", R"("time_step_max": null)"),
              "config.json:2: time_step_max: null is not a number above 0");
}

TEST(HuggingFace, Gemma2) {
  // gemma-2-2b.
  std::string text = config("gemma2", R"("attention_bias": false, "attention_dropout": 0.0,
    "attn_logit_softcapping": 50.0, "cache_implementation": "hybrid", "final_logit_softcapping": 30.0, "head_dim": 256,
    "hidden_act": "gelu_pytorch_tanh", "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 2304,
    "initializer_range": 0.02, "intermediate_size": 9216, "max_position_embeddings": 8192, "num_attention_heads": 8,
    "num_hidden_layers": 26, "num_key_value_heads": 4, "query_pre_attn_scalar": 256, "rms_norm_eps": 1e-06,
    "rope_theta": 10000.0, "sliding_window": 4096, "torch_dtype": "float32", "use_cache": true, "vocab_size": 256000)");
  expectDescription(text, R"({"name": "gemma2", "vocab_size": 256000, "d_model": 2304, "num_layers": 26,
    "context_len": 8192, "tie_embeddings": true, "dtype": "f32", "norm": {"kind": "rms", "eps": 1e-6},
    "norm_placement": "sandwich", "layer_pattern": "WN", "mixers": {
      "W": {"kind": "attention", "heads": 8, "kv_heads": 4, "head_dim": 256, "rope": {"theta": 10000}, "scale": 0.0625,
            "softcap": 50, "window": 4096},
      "N": {"kind": "attention", "heads": 8, "kv_heads": 4, "head_dim": 256, "rope": {"theta": 10000}, "scale": 0.0625,
            "softcap": 50}},
    "ffn_pattern": "D", "ffns": {"D": {"kind": "dense", "hidden": 9216, "activation": "geglu_tanh"}},
    "embedding_multiplier": 48, "logits_softcap": 30, "init": {"kind": "normal", "std": 0.02, "scale_output": false}})");
  Parsed parsed = parse(text);
  EXPECT_EQ(parameters(*parsed.spec), 2'614'341'888);
  EXPECT_EQ(parameters(*parse(config("gemma2")).spec), 2'614'341'888);
  EXPECT_EQ(imported(parsed, "layers.{layer}.norm2_post.weight"),
            R"({"name":"model.layers.{layer}.post_feedforward_layernorm.weight","plus":1})");
  parsed = parse(config("gemma2", R"("attn_logit_softcapping": null, "final_logit_softcapping": null)"));
  ASSERT_TRUE(parsed.spec) << parsed.errors[0];
  EXPECT_EQ(parsed.spec->logitsSoftcap, 0);
  EXPECT_EQ(std::get<AttentionSpec>(*parsed.spec->findMixer('W')).softcap, 0);
  EXPECT_EQ(parse(config("gemma2", R"("sliding_window_size": 4096)")).spec->layerPattern, "WN");
  expectError(config("gemma2", R"("sliding_window_pattern": 4)"),
              "config.json:2: sliding_window_pattern: 4 is of an unknown key of a gemma2 config; valid: the keys that "
              "models/README.md lists");
  expectError(config("gemma2", R"("query_pre_attn_scalar": 1e-20)"),
              "config.json:2: query_pre_attn_scalar: 1e-20 is not a number from 1e-12 to 1e+12");
  expectError(config("gemma2", R"("attn_logit_softcapping": 0.0)"),
              "config.json:2: attn_logit_softcapping: 0 is out of range; valid: 0.001 to 1e+06");
}

TEST(HuggingFace, RecurrentGemma) {
  // recurrentgemma-2b; sqrt(2560) is 50.5 in bf16.
  std::string text = config("recurrent_gemma", R"("attention_bias": false, "attention_dropout": 0.0,
    "attention_window_size": 2048, "block_types": ["recurrent", "recurrent", "attention"],
    "_block_types": ["recurrent", "recurrent", "attention"], "conv1d_width": 4,
    "embeddings_scale_by_sqrt_dim": true, "final_w_init_variance_scale": 0.07692307692307693, "head_dim": 256,
    "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 2560, "intermediate_size": 15360, "logits_soft_cap": 30.0,
    "lru_width": 2560, "num_attention_heads": 10, "num_hidden_layers": 26, "num_key_value_heads": 1,
    "partial_rotary_factor": 0.5, "rms_norm_eps": 1e-06, "rope_theta": 10000.0, "torch_dtype": "bfloat16",
    "use_cache": true, "vocab_size": 256000, "w_init_variance_scale": 0.01)");
  expectDescription(text, R"({"name": "recurrent_gemma", "vocab_size": 256000, "d_model": 2560, "num_layers": 26,
    "context_len": 8192, "tie_embeddings": true, "dtype": "bf16", "norm": {"kind": "rms", "eps": 1e-6},
    "layer_pattern": "RRW", "mixers": {
      "R": {"kind": "rglru", "heads": 10, "value_dim": 256, "conv": {"kernel": 4}, "projection_bias": true,
            "output_bias": true},
      "W": {"kind": "attention", "heads": 10, "kv_heads": 1, "head_dim": 256, "rope": {"theta": 10000, "fraction": 0.5},
            "qkv_bias": false, "output_bias": true, "window": 2048}},
    "ffn_pattern": "D", "ffns": {"D": {"kind": "dense", "hidden": 7680, "activation": "geglu_tanh", "bias": true}},
    "logits_softcap": 30, "embedding_multiplier": 50.5,
    "init": {"kind": "normal", "std": 0.0125, "scale_output": false}})");
  Parsed parsed = parse(text);
  EXPECT_EQ(imported(parsed, "layers.{layer}.lsm.wr"),
            R"("model.layers.{layer}.temporal_block.rg_lru.recurrent_gate_weight")");
  EXPECT_EQ(imported(parsed, "layers.{layer}.lsm.wg"),
            R"({"name":"model.layers.{layer}.temporal_block.linear_y.weight","transposed":true})");
  EXPECT_EQ(imported(parsed, "layers.{layer}.attn.bo"), R"("model.layers.{layer}.temporal_block.o_proj.bias")");
  EXPECT_EQ(imported(parsed, "layers.{layer}.norm2.weight"),
            R"({"name":"model.layers.{layer}.channel_pre_norm.weight","plus":1})");
  parsed = parse(config("recurrent_gemma"));
  ASSERT_TRUE(parsed.spec) << parsed.errors[0];
  EXPECT_EQ(parameters(*parsed.spec), 2'010'263'040);
  parsed = parse(config("recurrent_gemma", R"("num_hidden_layers": 2, "lru_width": 3200)"));
  EXPECT_EQ(parsed.spec->layerPattern, "RR");
  EXPECT_EQ(std::get<LsmSpec>(*parsed.spec->findMixer('R')).valueDim, 320);
  const std::pair<const char *, const char *> errors[] = {
      {R"("block_types": ["recurrent", "mlp"])",
       "block_types[1]: \"mlp\" is not computed; valid: \"recurrent\", \"attention\""},
      {R"("block_types": [])",
       "block_types: a list names no types of layers; valid: a list of \"recurrent\", \"attention\""},
      {R"("lru_width": 2561)", "lru_width: 2561 is no multiple of num_attention_heads 10, whose blocks are of equal "
                               "widths; valid: a multiple"},
      {R"("attention_window_size": 0)", "attention_window_size: 0 is not an integer above 0"},
      {R"("rope_parameters": {"rope_type": "linear", "factor": 2.0})",
       "rope_parameters.rope_type: \"linear\" is not computed; valid: default"},
      {R"("intermediate_size": 7)", "intermediate_size: 7 is not an even number above 0, of which a gate has a half"},
      {R"("hidden_activation": "gelu")",
       "hidden_activation: \"gelu\" of a recurrent_gemma config is not computed; valid: \"gelu_pytorch_tanh\""},
  };
  for (auto [keys, message] : errors)
    expectError(config("recurrent_gemma", keys), std::string("config.json:2: ") + message);
}

TEST(HuggingFace, CappedLogitsOfGemma3) {
  Parsed parsed = parse(config("gemma3_text", R"("final_logit_softcapping": 30.0)"));
  ASSERT_TRUE(parsed.spec) << parsed.errors[0];
  EXPECT_EQ(parsed.spec->logitsSoftcap, 30);
  EXPECT_EQ(parse(config("gemma3_text", R"("final_logit_softcapping": null)")).spec->logitsSoftcap, 0);
}

} // namespace
} // namespace braid
