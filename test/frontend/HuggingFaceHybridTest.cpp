// Configs of transformers whose layers differ: linear mixers beside attention, layers of one part, experts behind dense layers.
#include "test/frontend/HuggingFaceConfigs.h"

using namespace braid;

TEST(HuggingFace, Qwen3Next) {
  std::string text = config("qwen3_next", R"("architectures": ["Qwen3NextForCausalLM"], "attention_bias": false,
    "attention_dropout": 0.0, "bos_token_id": 151643, "decoder_sparse_step": 1, "eos_token_id": 151645,
    "full_attention_interval": 4, "head_dim": 256, "hidden_act": "silu", "hidden_size": 2048, "initializer_range": 0.02,
    "intermediate_size": 5120, "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_num_key_heads": 16,
    "linear_num_value_heads": 32, "linear_value_head_dim": 128, "max_position_embeddings": 262144,
    "mlp_only_layers": [], "moe_intermediate_size": 512, "norm_topk_prob": true, "num_attention_heads": 16,
    "num_experts": 512, "num_experts_per_tok": 10, "num_hidden_layers": 48, "num_key_value_heads": 2,
    "output_router_logits": false, "partial_rotary_factor": 0.25, "rms_norm_eps": 1e-06, "rope_scaling": null,
    "rope_theta": 10000000, "router_aux_loss_coef": 0.001, "shared_expert_intermediate_size": 512,
    "tie_word_embeddings": false, "torch_dtype": "bfloat16", "transformers_version": "4.57.0.dev0", "use_cache": true,
    "use_sliding_window": false, "vocab_size": 151936)");
  expectDescription(text, R"({"name": "qwen3_next", "vocab_size": 151936, "d_model": 2048, "num_layers": 48,
    "context_len": 262144, "tie_embeddings": false, "dtype": "bf16", "norm": {"kind": "rms", "eps": 1e-6},
    "layer_pattern": "LLLN", "mixers": {
      "L": {"kind": "gated_deltanet", "heads": 32, "key_heads": 16, "head_dim": 128, "value_dim": 128,
            "conv": {"kernel": 4}, "norm_eps": 1e-6},
      "N": {"kind": "attention", "heads": 16, "kv_heads": 2, "head_dim": 256, "qk_norm": true,
            "rope": {"theta": 10000000, "fraction": 0.25}, "output_gate": "sigmoid"}},
    "ffn_pattern": "M", "ffns": {"M": {"kind": "moe", "num_experts": 512, "top_k": 10, "expert_hidden": 512,
    "shared_hidden": 512, "shared_gate": true, "router": {"normalize": true, "balance_loss": 0, "z_loss": 0}}},
    "init": {"kind": "normal", "std": 0.02, "scale_output": false}})");
  EXPECT_EQ(parameters(*parse(text).spec), 79'674'391'296);
  // Layers by name, and layers without experts.
  Parsed named =
      parse(config("qwen3_next", R"("num_hidden_layers": 4, "mlp_only_layers": [1], "full_attention_interval": 2,
    "layer_types": ["linear_attention", "linear_attention", "linear_attention", "full_attention"])"));
  ASSERT_TRUE(named.spec) << named.errors[0];
  EXPECT_EQ(named.spec->layerPattern, "LLLN");
  EXPECT_EQ(named.spec->ffnPattern, "MDM"); // MDMM
  EXPECT_EQ(parameters(*named.spec), 5'629'797'440);
  auto pattern = [](const std::string &more) { return parse(config("qwen3_next", more)).spec->layerPattern; };
  EXPECT_EQ(pattern(R"("num_hidden_layers": 3)"), "L");
  EXPECT_EQ(pattern(R"("num_hidden_layers": 6, "full_attention_interval": 1)"), "N");
  EXPECT_EQ(pattern(R"("num_hidden_layers": 6, "full_attention_interval": 3)"), "LLN");
  auto turned = [](const std::string &more) {
    return std::get<AttentionSpec>(parse(config("qwen3_next", more)).spec->mixers.at('N')).rope->dim(100);
  };
  EXPECT_EQ(turned(R"("head_dim": 100, "rope_parameters": {"partial_rotary_factor": 0.428})"), 42); // cut, not rounded
  EXPECT_EQ(turned(R"("head_dim": 100, "partial_rotary_factor": 0.5)"), 50);
}

// Older versions of transformers write infinity as a bare word.
TEST(HuggingFace, Mamba2) {
  std::string text = config("mamba2", R"("architectures": ["Mamba2ForCausalLM"], "bos_token_id": 0, "chunk_size": 256,
    "conv_kernel": 4, "eos_token_id": 0, "expand": 2, "head_dim": 64, "hidden_act": "silu", "hidden_size": 4096,
    "initializer_range": 0.1, "layer_norm_epsilon": 1e-05, "n_groups": 8, "norm_before_gate": true, "num_heads": 128,
    "num_hidden_layers": 64, "pad_token_id": 0, "rescale_prenorm_residual": false, "residual_in_fp32": true,
    "rms_norm": true, "state_size": 128, "tie_word_embeddings": false, "time_step_floor": 0.0001,
    "time_step_init_scheme": "random", "time_step_limit": [0.0, Infinity], "time_step_max": 0.1, "time_step_min": 0.001,
    "time_step_rank": 256, "time_step_scale": 1.0, "torch_dtype": "bfloat16", "transformers_version": "4.42.0",
    "use_bias": false, "use_cache": true, "use_conv_bias": true, "vocab_size": 32768)");
  expectDescription(text, R"({"name": "mamba2", "vocab_size": 32768, "d_model": 4096, "num_layers": 64,
    "context_len": 1048576, "tie_embeddings": false, "dtype": "bf16", "norm": {"kind": "rms", "eps": 1e-5},
    "layer_pattern": "M", "mixers": {"M": {"kind": "mamba2", "heads": 128, "key_heads": 8, "head_dim": 128,
    "value_dim": 64, "norm_eps": 1e-5, "conv": {"kernel": 4, "bias": true}, "step_range": [0.001, 0.1]}},
    "ffn_pattern": "-", "ffns": {}, "init": {"kind": "normal", "std": 0.1, "scale_output": false}})");
  EXPECT_EQ(parameters(*parse(text).spec), 7'285'403'648);
  EXPECT_TRUE(parse(config("mamba2", R"("time_step_limit": [0.0, {"__float__": "Infinity"}])")).spec);
  EXPECT_TRUE(parse(config("mamba2", R"("quantization_config": {"quant_method": "fp8"})")).spec);
  EXPECT_TRUE(parse(config("mamba2", R"("rescale_prenorm_residual": true)")).spec->init.scaleOutput);
}

TEST(HuggingFace, Mamba) {
  Parsed parsed = parse(config("mamba", R"("hidden_size": 2048, "num_hidden_layers": 48, "intermediate_size": 4096)"));
  ASSERT_TRUE(parsed.spec) << parsed.errors[0];
  const auto &mamba = std::get<LsmSpec>(*parsed.spec->findMixer('M'));
  EXPECT_EQ(mamba.kind, LsmKind::mamba);
  EXPECT_EQ(mamba.gateRank, 128); // of "auto"
  EXPECT_TRUE(parsed.spec->tieEmbeddings);
  EXPECT_EQ(parameters(*parsed.spec), 1'372'178'432);
  EXPECT_EQ(parameters(*parse(config("mamba")).spec), 159'308'544);
  EXPECT_EQ(parameters(*parse(config("mamba", R"("hidden_size": 2560, "num_hidden_layers": 64)")).spec), 2'768'345'600);
  expectError(config("mamba", R"("hidden_size": 5120)"),
              "config.json:2: expand * hidden_size: 10240 times state_size 16 exceeds 131072 features of a token; "
              "valid: at most 8192");
}

TEST(HuggingFace, NemotronH) {
  const char *pattern = "M-M-M-MM-M-M-M*-M-M-M*-M-M-M-M*-M-M-M-M*-M-MM-M-M-M-M-M-";
  std::string text =
      config("nemotron_h",
             std::string(R"("hybrid_override_pattern": ")") + pattern +
                 R"(", "num_hidden_layers": 56, "attention_head_dim": 128, "hidden_size": 4096, "mamba_head_dim": 64,
      "mamba_num_heads": 128, "mlp_hidden_act": "relu2", "sliding_window": null, "time_step_limit": [0.0, Infinity],
      "residual_in_fp32": false, "rms_norm_eps": 1e-05, "layer_norm_epsilon": 1e-05, "use_mamba_kernels": true,
      "time_step_rank": 256)");
  Parsed parsed = parse(text);
  ASSERT_TRUE(parsed.spec) << parsed.errors[0];
  EXPECT_EQ(parameters(*parsed.spec), 8'605'937'792);
  EXPECT_EQ(parsed.spec->residualSums(), 56);
  EXPECT_EQ(parsed.spec->layerPattern.substr(0, 16), "M-M-M-MM-M-M-MN-");
  EXPECT_EQ(parsed.spec->ffnPattern.substr(0, 16), "-D-D-D--D-D-D--D");
  EXPECT_FALSE(std::get<AttentionSpec>(*parsed.spec->findMixer('N')).rope);
  EXPECT_EQ(std::get<DenseSpec>(*parsed.spec->findFfn('D')).activation, "relu2");
  // As transformers writes layers now, and as it did.
  for (const char *types : {R"(["linear_attention", "mlp", "full_attention"])", R"(["mamba", "mlp", "attention"])"}) {
    parsed = parse(config("nemotron_h", std::string(R"("layers_block_type": )") + types));
    ASSERT_TRUE(parsed.spec) << parsed.errors[0];
    EXPECT_EQ(parsed.spec->layerPattern, "M-N");
    EXPECT_EQ(parsed.spec->ffnPattern, "-D"); // "-D-"
    EXPECT_EQ(parsed.spec->numLayers, 3);
  }
  EXPECT_EQ(parse(config("nemotron_h", R"("hybrid_override_pattern": "M-M-")")).spec->layerPattern, "M-");
}

TEST(HuggingFace, NemotronHWithExperts) {
  // Nemotron-3-Nano-30B-A3B.
  std::string text =
      config("nemotron_h", R"("hybrid_override_pattern": "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME",
      "hidden_size": 2688, "num_hidden_layers": 52, "num_attention_heads": 32, "num_key_value_heads": 2, "head_dim": 128,
      "mamba_num_heads": 64, "mamba_head_dim": 64, "n_groups": 8, "ssm_state_size": 128, "n_routed_experts": 128,
      "num_experts_per_tok": 6, "moe_intermediate_size": 1856, "moe_shared_expert_intermediate_size": 3712,
      "n_shared_experts": 1, "n_group": 1, "topk_group": 1, "norm_topk_prob": true, "routed_scaling_factor": 2.5)");
  Parsed parsed = parse(text);
  ASSERT_TRUE(parsed.spec) << parsed.errors[0];
  const auto &moe = std::get<MoeSpec>(*parsed.spec->findFfn('E'));
  EXPECT_EQ(moe.router.score, "sigmoid");
  EXPECT_TRUE(moe.router.correction && moe.router.normalize);
  EXPECT_EQ(moe.router.correctionRate, 0);
  EXPECT_EQ(moe.router.scale, 2.5);
  EXPECT_EQ(moe.router.groups, 1);
  EXPECT_EQ(moe.sharedHidden, 3712);
  EXPECT_EQ(moe.activation, "relu2");
  EXPECT_EQ(parameters(*parsed.spec), 31'577'940'288);
  // Names that some of its configs have.
  parsed = parse(config("nemotron_h", R"("hybrid_override_pattern": "M", "mamba_d_conv": 3, "mamba_n_groups": 2,
      "mamba_conv_bias": false, "mamba_dt_min": 0.002, "mamba_expand": 3, "norm_eps": 1e-5, "mamba_chunk_size": 128)"));
  ASSERT_TRUE(parsed.spec) << parsed.errors[0];
  const auto &mixer = std::get<LsmSpec>(*parsed.spec->findMixer('M'));
  EXPECT_EQ(mixer.conv->kernel, 3);
  EXPECT_FALSE(mixer.conv->bias);
  EXPECT_EQ(mixer.keyHeads, 2);
  EXPECT_EQ(mixer.stepRange[0], 0.002);
  expectError(config("nemotron_h", R"("hybrid_override_pattern": "M", "mamba_d_conv": 3, "conv_kernel": 4)"),
              "config.json:2: mamba_d_conv: 3 is not conv_kernel 4; valid: one of the two keys");
  for (const char *key : {"moe_latent_size", "moe_shared_expert_intermediate_size"})
    EXPECT_EQ(
        parse(config("nemotron_h", std::string(R"("hybrid_override_pattern": "ME", ")") + key + "\": 0")).errors[0],
        std::string("config.json:2: ") + key + ": 0 leaves tensors without a number; valid: an integer above 0" +
            (key == std::string("moe_latent_size") ? ", or null" : ""));
  text = config("nemotron_h", R"("layers_block_type": ["mamba", "moe"], "n_group": 4, "topk_group": 2,
      "moe_latent_size": 512)");
  parsed = parse(text);
  ASSERT_TRUE(parsed.spec) << parsed.errors[0];
  const auto &latent = std::get<MoeSpec>(*parsed.spec->findFfn('E'));
  EXPECT_EQ(latent.latentDim, 512);
  EXPECT_EQ(latent.router.groups, 4);
  EXPECT_EQ(latent.router.keptGroups, 2);
  EXPECT_EQ(latent.router.groupScore, "top2");
}

TEST(HuggingFace, Bamba) {
  std::string text = config("bamba", R"("architectures": ["BambaForCausalLM"], "attention_bias": false,
    "attention_dropout": 0.0, "attn_layer_indices": [9, 18, 27], "attn_rotary_emb": 64, "hidden_act": "silu",
    "mamba_chunk_size": 256, "mamba_conv_bias": true, "mamba_d_conv": 4, "mamba_d_head": 64, "mamba_d_state": 128,
    "mamba_expand": 2, "mamba_n_groups": 1, "mamba_n_heads": 128, "mamba_proj_bias": false, "mlp_bias": false,
    "num_logits_to_keep": 1, "rms_norm_eps": 1e-05, "rope_scaling": null, "rope_theta": 10000.0,
    "torch_dtype": "bfloat16", "use_mamba_kernels": true, "vocab_size": 128256, "z_loss_coefficient": 0.0)");
  expectDescription(text, R"({"name": "bamba", "vocab_size": 128256, "d_model": 4096, "num_layers": 32,
    "context_len": 262144, "tie_embeddings": false, "dtype": "bf16", "norm": {"kind": "rms", "eps": 1e-5},
    "layer_pattern": "MMMMMMMMMNMMMMMMMMNMMMMMMMMN", "mixers": {"M": {"kind": "mamba2", "heads": 128, "key_heads": 1, "head_dim": 128,
    "value_dim": 64, "norm_eps": 1e-5, "conv": {"kernel": 4, "bias": true}}, "N": {"kind": "attention", "heads": 32,
    "kv_heads": 8, "head_dim": 128, "rope": {"theta": 10000.0, "fraction": 0.5}}}, "ffn_pattern": "D",
    "ffns": {"D": {"kind": "dense", "hidden": 14336}},
    "init": {"kind": "normal", "std": 0.02, "scale_output": false}})");
  Parsed parsed = parse(config("bamba", R"("attn_layer_indices": [9, 18, 27], "vocab_size": 128256)"));
  ASSERT_TRUE(parsed.spec) << parsed.errors[0];
  EXPECT_EQ(parameters(*parsed.spec), 9'810'681'216);
  // Half of a head turns, unless the object of rotations says otherwise.
  auto fraction = [](const char *more) {
    Parsed parsed = parse(config("bamba", std::string(R"("attn_layer_indices": [0])") + more));
    return parsed.spec ? std::get<AttentionSpec>(*parsed.spec->findMixer('N')).rope->fraction : -1;
  };
  EXPECT_EQ(fraction(""), 0.5);
  EXPECT_EQ(fraction(R"(, "rope_parameters": {"rope_theta": 1e4})"), 0.5);
  EXPECT_EQ(fraction(R"(, "rope_parameters": {"partial_rotary_factor": 1.0})"), 1);
  EXPECT_EQ(parse(config("bamba")).spec->layerPattern, "M");
}

TEST(HuggingFace, GraniteMoeHybrid) {
  std::string types = "\"layer_types\": [";
  for (int layer = 0; layer < 40; ++layer)
    types += std::string(layer ? ", " : "") + (layer % 10 == 5 ? "\"attention\"" : "\"mamba\"");
  std::string text = config("granitemoehybrid", types + R"(], "architectures": ["GraniteMoeHybridForCausalLM"],
    "attention_bias": false, "attention_dropout": 0.0, "attention_multiplier": 0.0078125, "dtype": "bfloat16",
    "embedding_multiplier": 12, "hidden_act": "silu", "hidden_size": 1536, "init_method": "mup",
    "initializer_range": 0.1, "intermediate_size": 512, "logits_scaling": 8, "mamba_chunk_size": 256,
    "mamba_conv_bias": true, "mamba_d_conv": 4, "mamba_d_head": 64, "mamba_d_state": 128, "mamba_expand": 2,
    "mamba_n_groups": 1, "mamba_n_heads": 48, "mamba_proj_bias": false, "max_position_embeddings": 131072,
    "normalization_function": "rmsnorm", "num_attention_heads": 12, "num_experts_per_tok": 6, "num_hidden_layers": 40,
    "num_key_value_heads": 4, "num_local_experts": 64, "output_router_logits": false,
    "position_embedding_type": "nope", "residual_multiplier": 0.25, "rms_norm_eps": 1e-05, "rope_scaling": null,
    "rope_theta": 10000, "router_aux_loss_coef": 0.0, "shared_intermediate_size": 1024, "tie_word_embeddings": true,
    "time_step_limit": [0.0, {"__float__": "Infinity"}], "vocab_size": 100352)");
  expectDescription(text, R"({"name": "granitemoehybrid", "vocab_size": 100352, "d_model": 1536, "num_layers": 40,
    "context_len": 131072, "tie_embeddings": true, "dtype": "bf16", "norm": {"kind": "rms", "eps": 1e-5},
    "embedding_multiplier": 12, "logits_multiplier": 0.125, "residual": {"beta": 0.25},
    "layer_pattern": "MMMMMNMMMM", "mixers": {"M": {"kind": "mamba2", "heads": 48, "key_heads": 1, "head_dim": 128,
    "value_dim": 64, "norm_eps": 1e-5, "conv": {"kernel": 4, "bias": true}}, "N": {"kind": "attention", "heads": 12,
    "kv_heads": 4, "head_dim": 128, "rope": null, "scale": 0.0078125}}, "ffn_pattern": "M",
    "ffns": {"M": {"kind": "moe", "num_experts": 64, "top_k": 6, "expert_hidden": 512, "shared_hidden": 1024,
    "router": {"normalize": true, "balance_loss": 0, "z_loss": 0}}},
    "init": {"kind": "normal", "std": 0.1, "scale_output": false}})");
  EXPECT_EQ(parameters(*parse(text).spec), 6'939'037'248);
  // Without experts; with rotations, and layers as transformers writes them now.
  Parsed parsed = parse(config("granitemoehybrid", types + R"(], "hidden_size": 1536, "mamba_d_state": 128,
    "mamba_n_heads": 48, "num_attention_heads": 12, "num_hidden_layers": 40, "num_key_value_heads": 4,
    "num_local_experts": 0, "shared_intermediate_size": 4096, "vocab_size": 100352)"));
  ASSERT_TRUE(parsed.spec) << parsed.errors[0];
  EXPECT_EQ(parameters(*parsed.spec), 1'615'679'040);
  parsed = parse(config("granitemoehybrid", R"("layers_block_type": ["full_attention", "linear_attention"],
    "num_hidden_layers": 2, "position_embedding_type": "rope", "rope_parameters": {"rope_theta": 500.0})"));
  ASSERT_TRUE(parsed.spec) << parsed.errors[0];
  EXPECT_EQ(parsed.spec->layerPattern, "NM");
  EXPECT_EQ(std::get<AttentionSpec>(*parsed.spec->findMixer('N')).rope->theta, 500);
  EXPECT_EQ(std::get<AttentionSpec>(*parsed.spec->findMixer('N')).scale, 1); // as transformers has it
  EXPECT_EQ(parsed.spec->logitsMultiplier, 1);
}

TEST(HuggingFace, Qwen35) {
  // Qwen3.5-35B-A3B: the defaults of its family.
  Parsed parsed =
      parse(config("qwen3_5_moe_text", R"("rope_parameters": {"rope_type": "default", "rope_theta": 10000000,
    "partial_rotary_factor": 0.25, "mrope_section": [11, 11, 10], "mrope_interleaved": true}, "attn_output_gate": true,
    "mtp_num_hidden_layers": 1)"));
  ASSERT_TRUE(parsed.spec) << parsed.errors[0];
  EXPECT_EQ(parsed.spec->layerPattern, "LLLN");
  EXPECT_EQ(parsed.spec->ffnPattern, "M");
  EXPECT_TRUE(std::get<MoeSpec>(*parsed.spec->findFfn('M')).sharedGate);
  EXPECT_EQ(std::get<AttentionSpec>(*parsed.spec->findMixer('N')).rope->fraction, 0.25);
  EXPECT_EQ(parameters(*parsed.spec), 34'660'610'688);
  parsed = parse(config("qwen3_5_text"));
  ASSERT_TRUE(parsed.spec) << parsed.errors[0];
  EXPECT_EQ(parsed.spec->ffnPattern, "D");
  EXPECT_EQ(parameters(*parsed.spec), 8'953'803'264);
  expectError(config("qwen3_5_moe_text", R"("norm_topk_prob": true)"),
              "config.json:2: norm_topk_prob: true is of an unknown key of a qwen3_5_moe_text config; valid: the keys "
              "that models/README.md lists");
}

TEST(HuggingFace, PartForTextOfQwen35) {
  auto nested = [](const std::string &inside, const std::string &beside = "") {
    return config("qwen3_5_moe", R"("text_config": {"model_type": "qwen3_5_moe_text", "hidden_size": 1024)" + inside +
                                     "},\n\"vision_config\": {\"depth\": 27}, \"image_token_id\": 248056" + beside);
  };
  // Whether the head is the embedding, and types, the whole model says.
  for (bool tied : {false, true}) {
    std::string own = tied ? "true" : "false", other = tied ? "false" : "true";
    Parsed flat = parse(config("qwen3_5_moe_text", "\"hidden_size\": 1024, \"tie_word_embeddings\": " + own));
    Parsed parsed = parse(nested(", \"tie_word_embeddings\": " + other + R"(, "dtype": "float32")",
                                 ", \"tie_word_embeddings\": " + own + R"(, "dtype": "bfloat16")"));
    ASSERT_TRUE(parsed.spec) << parsed.errors[0];
    EXPECT_EQ(parsed.spec->tieEmbeddings, tied);
    EXPECT_EQ(parsed.spec->dtype, "bf16");
    EXPECT_EQ(parameters(*parsed.spec), parameters(*flat.spec));
  }
  Parsed parsed = parse(nested(R"(, "tie_word_embeddings": true, "dtype": "bfloat16")"));
  ASSERT_TRUE(parsed.spec) << parsed.errors[0];
  EXPECT_FALSE(parsed.spec->tieEmbeddings);
  EXPECT_EQ(parsed.spec->dtype, "bf16");
  auto file = "config.json:2: ";
  expectError(nested(R"(, "num_experts_per_tok": 300)"),
              std::string(file) +
                  "text_config.num_experts_per_tok: 300 exceeds text_config.num_experts 256; valid: 1 to 256");
  expectError(nested(R"(, "hidden_act": "gelu")"), std::string(file) +
                                                       "text_config.hidden_act: \"gelu\" of a "
                                                       "qwen3_5_moe_text config is not computed; valid: \"silu\"");
  expectError(nested(R"(, "depth": 3)"), std::string(file) +
                                             "text_config.depth: 3 is of an unknown key of a qwen3_5_moe_text "
                                             "config; valid: the keys that models/README.md lists");
  expectError(nested("", ", \"hidden_size\": 64"),
              "config.json:3: hidden_size: 64 is of an unknown key of a qwen3_5_moe config; "
              "valid: those of text stand in text_config");
}

TEST(HuggingFace, Glm4Moe) {
  // GLM-4.5-Air.
  std::string text = config("glm4_moe", R"("hidden_size": 4096, "num_hidden_layers": 46, "num_attention_heads": 96,
    "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 10944, "moe_intermediate_size": 1408,
    "n_routed_experts": 128, "num_experts_per_tok": 8, "n_shared_experts": 1, "n_group": 1, "topk_group": 1,
    "first_k_dense_replace": 1, "norm_topk_prob": true, "routed_scaling_factor": 1.0, "attention_bias": true,
    "use_qk_norm": false, "partial_rotary_factor": 0.5, "rope_theta": 1000000, "rope_scaling": null,
    "num_nextn_predict_layers": 1, "vocab_size": 151552)");
  Parsed parsed = parse(text);
  ASSERT_TRUE(parsed.spec) << parsed.errors[0];
  EXPECT_EQ(parsed.spec->ffnPattern, "D" + std::string(45, 'M'));
  const auto &attention = std::get<AttentionSpec>(*parsed.spec->findMixer('N'));
  EXPECT_TRUE(attention.qkvBias);
  EXPECT_FALSE(attention.qkNorm);
  EXPECT_EQ(attention.rope->fraction, 0.5);
  const auto &moe = std::get<MoeSpec>(*parsed.spec->findFfn('M'));
  EXPECT_EQ(moe.router.score, "sigmoid");
  EXPECT_TRUE(moe.router.correction);
  EXPECT_FALSE(moe.sharedGate);
  EXPECT_EQ(parameters(*parsed.spec), 106'852'245'504 + 45 * 128); // transformers counts corrections as buffers
  parsed = parse(config("glm4_moe", R"("n_shared_experts": 3, "first_k_dense_replace": 0, "head_dim": 64)"));
  ASSERT_TRUE(parsed.spec) << parsed.errors[0];
  EXPECT_EQ(parsed.spec->ffnPattern, "M");
  EXPECT_EQ(std::get<MoeSpec>(*parsed.spec->findFfn('M')).sharedHidden, 3 * 1408);
  expectError(config("glm4_moe", R"("n_shared_experts": 0, "head_dim": 64)"),
              "config.json:2: n_shared_experts: 0 is not an integer above 0");
  expectError(config("glm4_moe", R"("first_k_dense_replace": -1, "head_dim": 64)"),
              "config.json:2: first_k_dense_replace: -1 is not an integer from 0 upwards");
}

TEST(HuggingFace, MiniMax) {
  // MiniMax-Text-01 as transformers has it.
  std::string types;
  for (int layer = 0; layer < 80; ++layer)
    types += std::string(layer ? ", " : "") + (layer % 8 == 7 ? R"("full_attention")" : R"("linear_attention")");
  std::string text = config("minimax", R"("vocab_size": 200064, "hidden_size": 6144, "num_hidden_layers": 80,
    "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 9216, "block_size": 256,
    "num_local_experts": 32, "num_experts_per_tok": 2, "rope_theta": 10000000, "max_position_embeddings": 10240000,
    "linear_attn_alpha_factor": 3.5565588200778455, "linear_attn_beta_factor": 1.0, "full_attn_alpha_factor": 3.5,
    "full_attn_beta_factor": 0.5, "mlp_alpha_factor": 3.25, "mlp_beta_factor": 0.25, "torch_dtype": "bfloat16",
    "layer_types": [)" + types + "]");
  expectDescription(text, R"({"name": "minimax", "vocab_size": 200064, "d_model": 6144, "num_layers": 80,
    "context_len": 10240000, "tie_embeddings": false, "dtype": "bf16", "norm": {"kind": "rms", "eps": 1e-5},
    "residual": {"from": "normed"}, "layer_pattern": "LLLLLLLN", "mixers": {
      "L": {"kind": "lightning", "heads": 64, "head_dim": 128, "norm_eps": 1e-6,
            "residual": {"alpha": 3.5565588200778455, "beta": 1.0}},
      "N": {"kind": "attention", "heads": 64, "kv_heads": 8, "head_dim": 128, "rope": {"theta": 10000000},
            "residual": {"alpha": 3.5, "beta": 0.5}}},
    "ffn_pattern": "M", "ffns": {"M": {"kind": "moe", "num_experts": 32, "top_k": 2, "expert_hidden": 9216,
    "router": {"normalize": true, "balance_loss": 0, "z_loss": 0}, "residual": {"alpha": 3.25, "beta": 0.25}}},
    "init": {"kind": "normal", "std": 0.02, "scale_output": false}})");
  EXPECT_EQ(parameters(*parse(text).spec), 456'089'655'296);
  EXPECT_EQ(parse(config("minimax")).spec->layerPattern, "NL"); // of a config that says none
  EXPECT_EQ(parse(config("minimax", R"("num_hidden_layers": 1)")).spec->layerPattern, "N");
  expectError(config("minimax", R"("layer_types": ["linear_attention"], "num_hidden_layers": 2)"),
              "config.json:2: layer_types: has 1 layers; valid: num_hidden_layers, 2");
  expectError(config("minimax", R"("rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5})"),
              "config.json:2: rope_parameters.partial_rotary_factor: 0.5 is not computed; valid: 1");
}
