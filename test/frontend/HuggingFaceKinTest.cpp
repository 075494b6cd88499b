// Configs of transformers whose models are those of other families but for little: Granite, SmolLM3, dots.llm1, Kimi K2,
// Phi-3, GLM-4, ERNIE 4.5; and those that are refused, each with its reason.
#include "test/frontend/HuggingFaceConfigs.h"

using namespace braid;

// Counts of parameters are those of transformers' own models.
TEST(HuggingFaceKin, Granite) {
  // Granite-3.1-8B.
  const std::string text = R"("vocab_size": 49155, "hidden_size": 4096, "intermediate_size": 12800,
    "num_hidden_layers": 40, "num_attention_heads": 32, "num_key_value_heads": 8, "rope_theta": 1e7,
    "max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "embedding_multiplier": 12.0, "logits_scaling": 16.0,
    "residual_multiplier": 0.22, "attention_multiplier": 0.0078125, "tie_word_embeddings": true, "mlp_bias": false)";
  expectDescription(config("granite", text), R"({"name": "granite", "vocab_size": 49155, "d_model": 4096,
    "num_layers": 40, "context_len": 131072, "tie_embeddings": true, "dtype": "f32",
    "norm": {"kind": "rms", "eps": 1e-5}, "layer_pattern": "N", "mixers": {"N": {"kind": "attention", "heads": 32,
    "kv_heads": 8, "head_dim": 128, "rope": {"theta": 1e7}, "scale": 0.0078125}}, "ffn_pattern": "D",
    "ffns": {"D": {"kind": "dense", "hidden": 12800}}, "init": {"kind": "normal", "std": 0.02, "scale_output": false},
    "embedding_multiplier": 12.0, "logits_multiplier": 0.0625, "residual": {"beta": 0.22}})");
  EXPECT_EQ(parameters(*parse(config("granite", text)).spec), 8'170'848'256);
  EXPECT_EQ(imported(parse(config("granite", text)), "layers.{layer}.ffn.w3"),
            R"({"name":"model.layers.{layer}.mlp.up_proj.weight","transposed":true})");
}

TEST(HuggingFaceKin, GraniteMoe) {
  // Granite-3.0-3B-A800M.
  Parsed parsed = parse(config("granitemoe", R"("vocab_size": 49155, "hidden_size": 1536, "intermediate_size": 512,
    "num_hidden_layers": 32, "num_attention_heads": 24, "num_key_value_heads": 8, "num_local_experts": 40,
    "num_experts_per_tok": 8, "tie_word_embeddings": true, "output_router_logits": false,
    "router_aux_loss_coef": 0.001)"));
  ASSERT_TRUE(parsed.spec) << parsed.errors[0];
  EXPECT_EQ(parameters(*parsed.spec), 3'298'793'472);
  const auto &moe = std::get<MoeSpec>(*parsed.spec->findFfn('M'));
  EXPECT_TRUE(moe.router.normalize);
  EXPECT_EQ(moe.sharedHidden, 0);
  EXPECT_TRUE(std::get<AttentionSpec>(*parsed.spec->findMixer('N')).rope); // whether or not the config says rotations
  EXPECT_EQ(imported(parsed, "layers.{layer}.moe.w3"),
            R"({"name":"model.layers.{layer}.block_sparse_moe.input_linear.weight","rows":[512,1024],"stacked":true,)"
            R"("transposed":true})");
  expectError(config("granitemoe", R"("shared_intermediate_size": 512)"),
              "config.json:2: shared_intermediate_size: 512 is of an unknown key of a granitemoe config; valid: the "
              "keys that models/README.md lists");
  expectError(config("granitemoe", R"("num_local_experts": 0)"),
              "config.json:2: num_local_experts: 0 is out of range; valid: 1 to 4096");
}

TEST(HuggingFaceKin, SmolLm3) {
  Parsed parsed = parse(config("smollm3")); // SmolLM3-3B
  ASSERT_TRUE(parsed.spec) << parsed.errors[0];
  EXPECT_EQ(parameters(*parsed.spec), 3'075'098'624);
  EXPECT_EQ(parsed.spec->layerPattern, "NNNP");
  EXPECT_FALSE(std::get<AttentionSpec>(*parsed.spec->findMixer('P')).rope);
  EXPECT_EQ(std::get<AttentionSpec>(*parsed.spec->findMixer('N')).rope->theta, 2e6);
  auto patternOf = [](const std::string &more) {
    Parsed parsed = parse(config("smollm3", R"("num_hidden_layers": 4, )" + more));
    return parsed.spec ? parsed.spec->layerPattern : parsed.errors[0];
  };
  EXPECT_EQ(patternOf(R"("no_rope_layers": [1, 0, 0, 1, 1])"), "NPP"); // NPPN, of more layers than there are
  EXPECT_EQ(patternOf(R"("no_rope_layers": null, "no_rope_layer_interval": 2)"), "NP");
  EXPECT_EQ(patternOf(R"("no_rope_layers": [0, 0, 0, 0])"), "P");
  const std::string at = "config.json:2: ";
  EXPECT_EQ(patternOf(R"("no_rope_layers": [1, 0])"),
            at + "no_rope_layers: has 2 layers; valid: 1, or 0 where nothing turns, for each of num_hidden_layers, 4");
  EXPECT_EQ(patternOf(R"("no_rope_layers": 1)"),
            at + "no_rope_layers: 1 is not a list or null; valid: 1, or 0 where nothing turns, for each of "
                 "num_hidden_layers, 4");
  EXPECT_EQ(patternOf(R"("no_rope_layers": [1, 0, 2, 1])"), at + "no_rope_layers[2]: 2 is not computed; valid: 0, 1");
  EXPECT_EQ(patternOf(R"("no_rope_layer_interval": 0)"), at + "no_rope_layer_interval: 0 is not an integer above 0");
  EXPECT_EQ(patternOf(R"("use_sliding_window": true)"),
            at + "use_sliding_window: true of a smollm3 config is not computed; valid: false");
}

TEST(HuggingFaceKin, Dots1) {
  const std::string text = R"("vocab_size": 152064, "hidden_size": 4096, "intermediate_size": 10944,
    "moe_intermediate_size": 1408, "num_hidden_layers": 62, "num_attention_heads": 32, "num_key_value_heads": 32,
    "n_shared_experts": 2, "n_routed_experts": 128, "num_experts_per_tok": 6, "first_k_dense_replace": 1,
    "norm_topk_prob": true, "routed_scaling_factor": 2.5, "sliding_window": null, "moe_layer_freq": 1)";
  Parsed parsed = parse(config("dots1", text));
  ASSERT_TRUE(parsed.spec) << parsed.errors[0];
  EXPECT_EQ(parameters(*parsed.spec), 142'774'373'888 + 61 * 128); // and corrections, which are buffers there
  EXPECT_TRUE(std::get<AttentionSpec>(*parsed.spec->findMixer('N')).qkNorm);
  const RouterSpec &router = std::get<MoeSpec>(*parsed.spec->findFfn('M')).router;
  EXPECT_TRUE(router.correction && router.normalize);
  EXPECT_EQ(router.score, "sigmoid");
  EXPECT_EQ(router.scale, 2.5);
  EXPECT_EQ(imported(parsed, "layers.{layer}.shared.w2"),
            R"({"name":"model.layers.{layer}.mlp.shared_experts.down_proj.weight","transposed":true})");
  auto edited = [&](llvm::StringRef from, llvm::StringRef to) {
    std::string other = text;
    return config("dots1", other.replace(other.find(from), from.size(), to));
  };
  // Windows begin behind layer 62, which the model does not have.
  EXPECT_TRUE(parse(edited(R"("sliding_window": null)", R"("sliding_window": 4096)")).spec);
  expectError(
      edited(R"("sliding_window": null)", R"("max_window_layers": 40)"),
      "config.json:5: max_window_layers: 40 leaves sliding attention to layers, which is not computed; valid: at "
      "least num_hidden_layers 62, or sliding_window null");
  expectError(config("dots1", R"("num_hidden_layers": 63, "n_shared_experts": 2, "n_routed_experts": 128,
    "num_experts_per_tok": 6)"),
              "config.json:2: num_hidden_layers: 63 exceeds max_window_layers 62, which leaves sliding attention to "
              "layers, and that is not computed; valid: at most 62, another max_window_layers, or sliding_window null");
  expectError(edited(R"("n_shared_experts": 2, )", ""),
              "config.json:1: n_shared_experts: is missing, for which transformers takes nothing; valid: an integer "
              "above 0");
}

TEST(HuggingFaceKin, KimiK2) {
  const std::string text = R"("vocab_size": 163840, "hidden_size": 7168, "intermediate_size": 18432,
    "moe_intermediate_size": 2048, "num_hidden_layers": 61, "num_attention_heads": 64, "num_key_value_heads": 64,
    "n_shared_experts": 1, "n_routed_experts": 384, "num_experts_per_tok": 8, "first_k_dense_replace": 1, "n_group": 1,
    "topk_group": 1, "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
    "v_head_dim": 128, "norm_topk_prob": true, "routed_scaling_factor": 2.827, "scoring_func": "sigmoid",
    "topk_method": "noaux_tc", "moe_layer_freq": 1, "ep_size": 1, "aux_loss_alpha": 0.001, "seq_aux": true,
    "max_position_embeddings": 131072, "rope_theta": 50000.0, "rope_scaling": {"beta_fast": 1.0, "beta_slow": 1.0,
    "factor": 32.0, "mscale": 1.0, "mscale_all_dim": 1.0, "original_max_position_embeddings": 4096, "type": "yarn"},
    "num_nextn_predict_layers": 0)";
  Parsed parsed = parse(config("kimi_k2", text)), same = parse(config("deepseek_v3", text));
  ASSERT_TRUE(parsed.spec) << parsed.errors[0];
  EXPECT_EQ(parameters(*parsed.spec), 1'026'408'209'408 + 23'040);
  std::string source = same.spec->source; // but for its name the same, weights too
  const std::string theirs = "\"deepseek_v3\"";
  for (size_t at; (at = source.find(theirs)) != std::string::npos;)
    source.replace(at, theirs.size(), "\"kimi_k2\"");
  EXPECT_EQ(parsed.spec->source, source);
}

TEST(HuggingFaceKin, Phi3) {
  // Phi-3-mini-4k.
  const std::string text = R"("architectures": ["Phi3ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
    "bos_token_id": 1, "embd_pdrop": 0.0, "eos_token_id": 32000, "hidden_act": "silu", "hidden_size": 3072,
    "initializer_range": 0.02, "intermediate_size": 8192, "max_position_embeddings": 4096, "num_attention_heads": 32,
    "num_hidden_layers": 32, "num_key_value_heads": 32, "original_max_position_embeddings": 4096,
    "pad_token_id": 32000, "resid_pdrop": 0.0, "rms_norm_eps": 1e-05, "rope_scaling": null, "rope_theta": 10000.0,
    "sliding_window": 2047, "tie_word_embeddings": false, "torch_dtype": "bfloat16", "vocab_size": 32064)";
  expectDescription(config("phi3", text), R"({"name": "phi3", "vocab_size": 32064, "d_model": 3072, "num_layers": 32,
    "context_len": 4096, "tie_embeddings": false, "dtype": "bf16", "norm": {"kind": "rms", "eps": 1e-5},
    "layer_pattern": "N", "mixers": {"N": {"kind": "attention", "heads": 32, "kv_heads": 32, "head_dim": 96,
    "rope": {"theta": 10000.0, "fraction": 1.0}, "window": 2047}}, "ffn_pattern": "D",
    "ffns": {"D": {"kind": "dense", "hidden": 8192}}, "init": {"kind": "normal", "std": 0.02, "scale_output": false}})");
  Parsed parsed = parse(config("phi3", text));
  EXPECT_EQ(parameters(*parsed.spec), 3'821'079'552);
  parsed = parse(config("phi3", R"("hidden_size": 5120, "intermediate_size": 17920, "num_hidden_layers": 40,
    "num_attention_heads": 40, "num_key_value_heads": 10, "vocab_size": 100352, "rope_theta": 250000,
    "rope_parameters": {"partial_rotary_factor": 0.75, "rope_type": "default"})")); // but for this Phi-4
  ASSERT_TRUE(parsed.spec) << parsed.errors[0];
  EXPECT_EQ(parameters(*parsed.spec), 14'659'507'200);
  const auto &attention = std::get<AttentionSpec>(*parsed.spec->findMixer('N'));
  EXPECT_EQ(attention.rope->fraction, 0.75);
  EXPECT_EQ(attention.window, 0);
  auto name = [&](const char *ours) { return imported(parsed, "layers.{layer}." + std::string(ours)); };
  auto rows = [](const char *matrix, int first, int last) {
    return llvm::formatv(R"({{"name":"model.layers.{{layer}.{0}.weight","rows":[{1},{2}],"transposed":true})", matrix,
                         first, last)
        .str();
  };
  EXPECT_EQ(name("attn.wq"), rows("self_attn.qkv_proj", 0, 5120));
  EXPECT_EQ(name("attn.wk"), rows("self_attn.qkv_proj", 5120, 6400));
  EXPECT_EQ(name("attn.wv"), rows("self_attn.qkv_proj", 6400, 7680));
  EXPECT_EQ(name("ffn.w1"), rows("mlp.gate_up_proj", 0, 17920));
  EXPECT_EQ(name("ffn.w3"), rows("mlp.gate_up_proj", 17920, 35840));
  EXPECT_EQ(name("ffn.w2"), R"({"name":"model.layers.{layer}.mlp.down_proj.weight","transposed":true})");
  const std::string at = "config.json:2: ";
  expectError(config("phi3", R"("rope_scaling": {"type": "longrope", "long_factor": [1.0], "short_factor": [1.0]})"),
              at + "rope_scaling.type: \"longrope\" has other frequencies for longer texts, which is not computed; "
                   "valid: default");
  expectError(config("phi3", R"("rope_scaling": {"rope_type": "yarn", "factor": 2.0})"),
              at + "rope_scaling.rope_type: \"yarn\" is not computed; valid: default");
  expectError(config("phi3", R"("num_attention_heads": 9223372036854775807, "num_key_value_heads": 1, "head_dim": 4)"),
              at + "num_attention_heads: 9223372036854775807 is out of range; valid: 1 to 4096");
  expectError(config("phi3", R"("resid_pdrop": 0.1)"),
              at + "resid_pdrop: 0.1 of a phi3 config is not computed; valid: 0");
  expectError(config("phi3", R"("sliding_window": 0)"),
              at + "sliding_window: 0 leaves no key to see; valid: an integer above 0, or null for all");
  expectError(config("phi3", R"("partial_rotary_factor": 0.1)"), // of 96 features
              at + "partial_rotary_factor: 0.1 of hidden_size / num_attention_heads 96 turns 9 features; valid: a "
                   "fraction that turns an even number, at least 2");
}

TEST(HuggingFaceKin, Glm4) {
  // GLM-4-32B-0414.
  const std::string text = R"("architectures": ["Glm4ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
    "eos_token_id": [151329, 151336, 151338], "head_dim": 128, "hidden_act": "silu", "hidden_size": 6144,
    "initializer_range": 0.02, "intermediate_size": 23040, "max_position_embeddings": 32768,
    "num_attention_heads": 48, "num_hidden_layers": 61, "num_key_value_heads": 2, "pad_token_id": 151329,
    "partial_rotary_factor": 0.5, "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "tie_word_embeddings": false,
    "torch_dtype": "bfloat16", "use_cache": true, "vocab_size": 151552)";
  expectDescription(config("glm4", text), R"({"name": "glm4", "vocab_size": 151552, "d_model": 6144, "num_layers": 61,
    "context_len": 32768, "tie_embeddings": false, "dtype": "bf16", "norm": {"kind": "rms", "eps": 1e-5},
    "norm_placement": "sandwich", "layer_pattern": "N", "mixers": {"N": {"kind": "attention", "heads": 48,
    "kv_heads": 2, "head_dim": 128, "rope": {"theta": 10000.0, "fraction": 0.5, "layout": "interleaved"},
    "qkv_bias": false}}, "ffn_pattern": "D", "ffns": {"D": {"kind": "dense", "hidden": 23040}},
    "init": {"kind": "normal", "std": 0.02, "scale_output": false}})");
  Parsed parsed = parse(config("glm4", text));
  EXPECT_EQ(parameters(*parsed.spec), 32'566'081'536);
  auto name = [&](const char *ours) { return imported(parsed, "layers.{layer}." + std::string(ours)); };
  EXPECT_EQ(name("norm1.weight"), R"("model.layers.{layer}.input_layernorm.weight")");
  EXPECT_EQ(name("norm1_post.weight"), R"("model.layers.{layer}.post_self_attn_layernorm.weight")");
  EXPECT_EQ(name("norm2.weight"), R"("model.layers.{layer}.post_attention_layernorm.weight")");
  EXPECT_EQ(name("norm2_post.weight"), R"("model.layers.{layer}.post_mlp_layernorm.weight")");
  EXPECT_EQ(name("ffn.w3"),
            R"({"name":"model.layers.{layer}.mlp.gate_up_proj.weight","rows":[23040,46080],"transposed":true})");
  EXPECT_EQ(name("attn.bq"), "none");
  parsed = parse(config("glm4")); // GLM-4-9B with biases and another eps
  EXPECT_EQ(parameters(*parsed.spec), 9'400'279'040);
  EXPECT_EQ(imported(parsed, "layers.{layer}.attn.bq"), R"("model.layers.{layer}.self_attn.q_proj.bias")");
  expectError(config("glm4", R"("use_qk_norm": true)"),
              "config.json:2: use_qk_norm: true is of an unknown key of a glm4 config; valid: the keys that "
              "models/README.md lists");
  expectError(config("glm4", R"("rope_scaling": {"rope_type": "dynamic", "factor": 2.0})"),
              "config.json:2: rope_scaling.rope_type: \"dynamic\" has other frequencies for longer texts, which is not "
              "computed; valid: default, linear, llama3, yarn");
}

TEST(HuggingFaceKin, Ernie45Moe) {
  // ERNIE-4.5-300B-A47B, but for dtypes.
  const std::string text = R"("bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu", "hidden_size": 8192,
    "intermediate_size": 28672, "max_position_embeddings": 131072, "num_attention_heads": 64,
    "num_key_value_heads": 8, "num_hidden_layers": 54, "pad_token_id": 0, "rms_norm_eps": 1e-05, "use_cache": false,
    "vocab_size": 103424, "rope_theta": 500000, "use_bias": false, "moe_num_experts": 64, "moe_layer_start_index": 3,
    "moe_intermediate_size": 3584, "moe_capacity": [64, 64, 64], "moe_gate": "topk", "moe_k": 8,
    "moe_layer_interval": 1, "moe_use_aux_free": true, "moe_num_shared_experts": 0, "num_nextn_predict_layers": 1,
    "tie_word_embeddings": false)";
  std::string pattern = "DDD" + std::string(51, 'M');
  expectDescription(config("ernie4_5_moe", text), R"({"name": "ernie4_5_moe", "vocab_size": 103424, "d_model": 8192,
    "num_layers": 54, "context_len": 131072, "tie_embeddings": false, "dtype": "f32",
    "norm": {"kind": "rms", "eps": 1e-5}, "layer_pattern": "N", "mixers": {"N": {"kind": "attention", "heads": 64,
    "kv_heads": 8, "head_dim": 128, "rope": {"theta": 500000, "layout": "interleaved"}}}, "ffn_pattern": ")" +
                                                      pattern + R"(", "ffns": {"D": {"kind": "dense",
    "hidden": 28672}, "M": {"kind": "moe", "num_experts": 64, "top_k": 8, "expert_hidden": 3584, "router": {
    "score": "softmax", "correction": true, "correction_rate": 0, "normalize": true, "balance_loss": 0,
    "z_loss": 0}}}, "init": {"kind": "normal", "std": 0.02, "scale_output": false}})");
  Parsed parsed = parse(config("ernie4_5_moe", text));
  EXPECT_EQ(parameters(*parsed.spec), 299'484'163'264);
  EXPECT_EQ(imported(parsed, "layers.{layer}.moe.correction"),
            R"("model.layers.{layer}.mlp.moe_statics.e_score_correction_bias")");
  EXPECT_EQ(imported(parsed, "layers.{layer}.shared.w1"), "none");
  parsed = parse(config("ernie4_5_moe")); // ERNIE-4.5-21B-A3B
  ASSERT_TRUE(parsed.spec) << parsed.errors[0];
  EXPECT_EQ(parameters(*parsed.spec), 21'825'437'888);
  EXPECT_TRUE(parsed.spec->tieEmbeddings);
  EXPECT_EQ(imported(parsed, "layers.{layer}.shared.w1"),
            R"({"name":"model.layers.{layer}.mlp.shared_experts.gate_proj.weight","transposed":true})");
  auto patternOf = [](const std::string &more) {
    Parsed parsed = parse(config("ernie4_5_moe", R"("num_hidden_layers": 6, )" + more));
    return parsed.spec ? parsed.spec->ffnPattern : parsed.errors[0];
  };
  EXPECT_EQ(patternOf(R"("moe_layer_interval": 2)"), "DM");
  EXPECT_EQ(patternOf(R"("moe_layer_start_index": 2, "moe_layer_end_index": 4)"), "DDMMM"); // DDMMMD
  EXPECT_EQ(patternOf(R"("moe_layer_start_index": 0, "moe_layer_end_index": -1)"), "M");
  EXPECT_EQ(patternOf(R"("moe_layer_start_index": 6)"), "D");
  const std::string at = "config.json:2: ";
  EXPECT_EQ(patternOf(R"("moe_layer_interval": 0)"), at + "moe_layer_interval: 0 is not an integer from 1 upwards");
  EXPECT_EQ(patternOf(R"("moe_layer_end_index": -2)"),
            at + "moe_layer_end_index: -2 is not an integer from -1 upwards");
  EXPECT_EQ(patternOf(R"("moe_num_shared_experts": -1)"), at + "moe_num_shared_experts: -1 is not an integer above 0");
  EXPECT_EQ(patternOf(R"("moe_intermediate_size": [1536, 512])"),
            at + "moe_intermediate_size: a list is not an integer; valid: 1 to 524288");
  const struct {
    const char *text, *message;
  } cases[] = {
      {R"("use_bias": true)", "use_bias: true of an ernie4_5_moe config is not computed; valid: false"},
      {R"("moe_norm_min": 0.001)", "moe_norm_min: 0.001 of an ernie4_5_moe config is not computed; valid: 1e-12"},
      {R"("moe_gate_act": "sigmoid")",
       "moe_gate_act: \"sigmoid\" of an ernie4_5_moe config is not computed; valid: \"softmax\""},
      {R"("moe_k": 65)", "moe_k: 65 exceeds moe_num_experts 64; valid: 1 to 64"},
      {R"("output_router_logits": true)",
       "output_router_logits: true adds a balance loss over the routing of all layers together, which is not computed; "
       "valid: false, or router_aux_loss_coef 0"},
  };
  for (auto [more, message] : cases)
    expectError(config("ernie4_5_moe", more), at + message);
}

TEST(HuggingFaceKin, RefusedFamiliesHaveAReason) {
  auto reason = [](const std::string &family, const std::string &more = "") {
    Parsed parsed = parse(config(family, more));
    return parsed.errors.size() == 1 ? llvm::StringRef(parsed.errors[0]).split("; valid: ").first.str() : "";
  };
  const std::string at = "config.json:1: model_type: ";
  for (const char *family : {"gemma3", "mistral3", "qwen3_vl", "llama4"}) // before its parts are looked at
    EXPECT_EQ(reason(family, R"("text_config": {"model_type": "llama"})"), reason(family)) << family;
  EXPECT_EQ(reason("qwen3_vl"), at + "\"qwen3_vl\" needs pictures beside text, which a description cannot say");
  EXPECT_EQ(reason("deepseek_v32"),
            at + "\"deepseek_v32\" needs attention to tokens that an indexer chooses, which a description cannot say");
  EXPECT_EQ(reason("glm5_next"), at + "\"glm5_next\" needs several residual streams, and attention to tokens that an "
                                      "indexer chooses, which a description cannot say");
  for (const char *family : {"gemma3n_text", "llama4", "cohere2", "hunyuan_v1_moe", "mistral3"})
    EXPECT_NE(reason(family).find("which a description can"), std::string::npos) << family;
  EXPECT_EQ(reason("bert"), at + "\"bert\" is of a config.json that is not read");
}
