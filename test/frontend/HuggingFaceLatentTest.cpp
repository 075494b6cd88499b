// Configs of transformers whose models have latent attention: DeepSeek-V2, DeepSeek-V3, Kimi Linear.
#include "test/frontend/HuggingFaceConfigs.h"
#include "llvm/Support/FormatVariadic.h"
#include <cmath>

using namespace braid;

namespace {

const MlaSpec &latentOf(const Parsed &parsed) { return std::get<MlaSpec>(*parsed.spec->findMixer('N')); }
const MoeSpec &expertsOf(const Parsed &parsed) { return std::get<MoeSpec>(*parsed.spec->findFfn('M')); }

} // namespace

TEST(HuggingFaceLatent, DeepseekV2) {
  // DeepSeek-V2-Lite.
  std::string text = config("deepseek_v2", R"("architectures": ["DeepseekV2ForCausalLM"], "attention_bias": false,
    "attention_dropout": 0.0, "aux_loss_alpha": 0.001, "bos_token_id": 100000, "eos_token_id": 100001,
    "first_k_dense_replace": 1, "hidden_act": "silu", "hidden_size": 2048, "initializer_range": 0.02,
    "intermediate_size": 10944, "kv_lora_rank": 512, "max_position_embeddings": 163840, "moe_intermediate_size": 1408,
    "moe_layer_freq": 1, "n_group": 1, "n_routed_experts": 64, "n_shared_experts": 2, "norm_topk_prob": false,
    "num_attention_heads": 16, "num_experts_per_tok": 6, "num_hidden_layers": 27, "num_key_value_heads": 16,
    "pretraining_tp": 1, "q_lora_rank": null, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "rms_norm_eps": 1e-06,
    "rope_scaling": {"beta_fast": 32, "beta_slow": 1, "factor": 40, "mscale": 0.707, "mscale_all_dim": 0.707,
    "original_max_position_embeddings": 4096, "type": "yarn"}, "rope_theta": 10000, "routed_scaling_factor": 1.0,
    "scoring_func": "softmax", "seq_aux": true, "tie_word_embeddings": false, "topk_group": 1, "topk_method": "greedy",
    "torch_dtype": "bfloat16", "transformers_version": "4.33.1", "use_cache": true, "v_head_dim": 128,
    "vocab_size": 102400)");
  double mscale = 0.1 * 0.707 * std::log(40.0) + 1, scale = mscale * mscale / std::sqrt(192.0);
  expectDescription(text, llvm::formatv(R"({{"name": "deepseek_v2", "vocab_size": 102400, "d_model": 2048,
    "num_layers": 27, "context_len": 163840, "tie_embeddings": false, "dtype": "bf16",
    "norm": {{"kind": "rms", "eps": 1e-6}, "layer_pattern": "N", "mixers": {{"N": {{"kind": "mla", "heads": 16,
    "kv_rank": 512, "head_dim": 128, "rope_dim": 64, "value_dim": 128, "scale": {0}, "rope": {{"theta": 10000,
    "layout": "interleaved", "scaling": {{"kind": "yarn", "factor": 40, "attention_factor": 1.0, "beta_fast": 32,
    "beta_slow": 1, "original_context_len": 4096}}}},
    "ffn_pattern": "DMMMMMMMMMMMMMMMMMMMMMMMMMM", "ffns": {{"D": {{"kind": "dense", "hidden": 10944},
    "M": {{"kind": "moe", "num_experts": 64, "top_k": 6, "expert_hidden": 1408, "shared_hidden": 2816,
    "router": {{"score": "softmax", "scale": 1.0, "normalize": false, "balance_loss": 0, "z_loss": 0}}},
    "init": {{"kind": "normal", "std": 0.02, "scale_output": false}})",
                                        llvm::formatv("{0}", llvm::json::Value(scale)).str())
                              .str());
  Parsed parsed = parse(text);
  ASSERT_TRUE(parsed.spec) << parsed.errors[0];
  EXPECT_EQ(parameters(*parsed.spec), 15'706'484'224);
  EXPECT_EQ(imported(parsed, "layers.{layer}.attn.wq"),
            R"({"groups":16,"name":"model.layers.{layer}.self_attn.q_proj.weight","rows":[0,128],"transposed":true})");
  EXPECT_EQ(imported(parsed, "layers.{layer}.attn.wq_down"), "none");
  EXPECT_EQ(imported(parsed, "layers.{layer}.moe.correction"), "none");

  // DeepSeek-V2: queries of a latent, experts of groups.
  parsed = parse(config("deepseek_v2", R"("hidden_size": 5120, "intermediate_size": 12288, "num_hidden_layers": 60,
    "moe_intermediate_size": 1536, "num_attention_heads": 128, "num_key_value_heads": 128, "n_routed_experts": 160,
    "num_experts_per_tok": 6, "first_k_dense_replace": 1, "topk_method": "group_limited_greedy", "n_group": 8,
    "topk_group": 3, "routed_scaling_factor": 16.0)"));
  ASSERT_TRUE(parsed.spec) << parsed.errors[0];
  EXPECT_EQ(parameters(*parsed.spec), 235'741'434'880);
  EXPECT_EQ(latentOf(parsed).qRank, 1536);
  EXPECT_EQ(latentOf(parsed).scale, 0); // without yarn that of the mixer
  const RouterSpec &router = expertsOf(parsed).router;
  EXPECT_EQ(router.groups, 8);
  EXPECT_EQ(router.keptGroups, 3);
  EXPECT_EQ(router.groupScore, "max");
  EXPECT_EQ(router.scale, 16);
  EXPECT_FALSE(router.normalize || router.correction);
  // Groups that are not read.
  parsed = parse(config("deepseek_v2", R"("num_experts_per_tok": 2, "n_group": 8, "topk_group": 3)"));
  ASSERT_TRUE(parsed.spec) << parsed.errors[0];
  EXPECT_EQ(expertsOf(parsed).router.groups, 1);
  EXPECT_EQ(parsed.spec->ffnPattern, "M");
}

TEST(HuggingFaceLatent, DeepseekV3) {
  std::string keys = R"("architectures": ["DeepseekV3ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
    "aux_loss_alpha": 0.001, "ep_size": 1, "first_k_dense_replace": 3, "hidden_act": "silu", "hidden_size": 7168,
    "initializer_range": 0.02, "intermediate_size": 18432, "kv_lora_rank": 512, "max_position_embeddings": 163840,
    "moe_intermediate_size": 2048, "moe_layer_freq": 1, "n_group": 8, "n_routed_experts": 256, "n_shared_experts": 1,
    "norm_topk_prob": true, "num_attention_heads": 128, "num_experts_per_tok": 8, "num_hidden_layers": 61,
    "num_key_value_heads": 128, "num_nextn_predict_layers": 1, "pretraining_tp": 1, "q_lora_rank": 1536,
    "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "rms_norm_eps": 1e-06, "rope_scaling": {"beta_fast": 32,
    "beta_slow": 1, "factor": 40, "mscale": 1.0, "mscale_all_dim": 1.0, "original_max_position_embeddings": 4096,
    "type": "yarn"}, "rope_theta": 10000, "routed_scaling_factor": 2.5, "scoring_func": "sigmoid", "seq_aux": true,
    "tie_word_embeddings": false, "topk_group": 4, "topk_method": "noaux_tc", "torch_dtype": "bfloat16",
    "use_cache": true, "v_head_dim": 128, "vocab_size": 129280)";
  Parsed parsed = parse(config("deepseek_v3", keys));
  ASSERT_TRUE(parsed.spec) << parsed.errors[0];
  const MlaSpec &mla = latentOf(parsed);
  double mscale = 0.1 * std::log(40.0) + 1;
  EXPECT_DOUBLE_EQ(mla.scale, mscale * mscale / std::sqrt(192.0));
  EXPECT_EQ(mla.rope->scaling->attentionFactor, 1);
  EXPECT_EQ(mla.rope->layout, "interleaved");
  EXPECT_EQ(mla.normEps, 1e-6);
  EXPECT_EQ(parsed.spec->ffnPattern, "DDD" + std::string(58, 'M'));
  const RouterSpec &router = expertsOf(parsed).router;
  EXPECT_EQ(router.score, "sigmoid");
  EXPECT_EQ(router.groups, 8);
  EXPECT_EQ(router.keptGroups, 4);
  EXPECT_EQ(router.groupScore, "top2");
  EXPECT_EQ(router.scale, 2.5);
  EXPECT_TRUE(router.correction && router.normalize);
  // transformers counts corrections as buffers.
  EXPECT_EQ(parameters(*parsed.spec), 671'026'404'352 + 14'848);
  EXPECT_EQ(parameters(*parse(config("deepseek_v3")).spec), 671'026'404'352 + 14'848);
  EXPECT_EQ(
      imported(parsed, "layers.{layer}.attn.wk_rope"),
      R"({"name":"model.layers.{layer}.self_attn.kv_a_proj_with_mqa.weight","rows":[512,576],"transposed":true})");
  EXPECT_EQ(imported(parsed, "layers.{layer}.attn.wv"),
            R"({"groups":128,"name":"model.layers.{layer}.self_attn.kv_b_proj.weight","rows":[128,256],)"
            R"("transposed":true})");
  EXPECT_EQ(imported(parsed, "layers.{layer}.attn.q_norm.weight"),
            R"("model.layers.{layer}.self_attn.q_a_layernorm.weight")");
  EXPECT_EQ(imported(parsed, "layers.{layer}.moe.correction"),
            R"("model.layers.{layer}.mlp.gate.e_score_correction_bias")");
  // The layer behind the last is for further tokens.
  EXPECT_NE(parsed.spec->source.find("model.layers.61.*"), std::string::npos);

  auto layout = [](const char *more) {
    return std::get<MlaSpec>(*parse(config("deepseek_v3", more)).spec->findMixer('N')).rope->layout;
  };
  EXPECT_EQ(layout(""), "interleaved");
  EXPECT_EQ(layout(R"("rope_interleave": false)"), "half");
  EXPECT_EQ(layout(R"("rope_interleave": null)"), "half");
  // mscale_all_dim alone is of the scores, and leaves what turns its own factor.
  parsed = parse(config("deepseek_v3", R"("rope_parameters": {"rope_type": "yarn", "factor": 4,
    "original_max_position_embeddings": 1024, "mscale_all_dim": 0.5, "rope_theta": 10000.0})"));
  ASSERT_TRUE(parsed.spec) << parsed.errors[0];
  mscale = 0.1 * 0.5 * std::log(4.0) + 1;
  EXPECT_DOUBLE_EQ(latentOf(parsed).scale, mscale * mscale / std::sqrt(192.0));
  EXPECT_EQ(latentOf(parsed).rope->scaling->attentionFactor, 0);
}

TEST(HuggingFaceLatent, KimiLinear) {
  // Kimi-Linear-48B-A3B, with the keys that it was published with.
  std::string kda;
  for (int layer = 1; layer < 27; ++layer)
    if (layer % 4)
      kda += (kda.empty() ? "" : ", ") + std::to_string(layer);
  std::string text = config("kimi_linear", R"("architectures": ["KimiLinearForCausalLM"], "dtype": "bfloat16",
    "first_k_dense_replace": 1, "head_dim": 72, "hidden_act": "silu", "hidden_size": 2304, "initializer_range": 0.02,
    "intermediate_size": 9216, "kv_lora_rank": 512, "linear_attn_config": {"full_attn_layers": [4, 8, 12, 16, 20, 24, 27],
    "head_dim": 128, "kda_layers": [)" + kda + R"(], "num_heads": 32, "short_conv_kernel_size": 4},
    "mla_use_nope": true, "model_max_length": 1048576, "moe_intermediate_size": 1024, "moe_layer_freq": 1,
    "moe_renormalize": true, "moe_router_activation_func": "sigmoid", "num_attention_heads": 32, "num_expert_group": 1,
    "num_experts": 256, "num_experts_per_token": 8, "num_hidden_layers": 27, "num_key_value_heads": 32,
    "num_nextn_predict_layers": 0, "num_shared_experts": 1, "q_lora_rank": null, "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64, "rms_norm_eps": 1e-05, "rope_scaling": null, "rope_theta": 10000.0,
    "routed_scaling_factor": 2.446, "tie_word_embeddings": false, "topk_group": 1, "use_cache": true,
    "use_grouped_topk": true, "v_head_dim": 128, "vocab_size": 163840)");
  expectDescription(text, R"({"name": "kimi_linear", "vocab_size": 163840, "d_model": 2304, "num_layers": 27,
    "context_len": 1048576, "tie_embeddings": false, "dtype": "bf16", "norm": {"kind": "rms", "eps": 1e-5},
    "layer_pattern": "LLLNLLLNLLLNLLLNLLLNLLLNLLN", "mixers": {
      "L": {"kind": "kda", "heads": 32, "head_dim": 128, "conv": {"kernel": 4}, "gate_rank": 128,
            "output_gate_rank": 128, "norm_eps": 1e-5},
      "N": {"kind": "mla", "heads": 32, "kv_rank": 512, "head_dim": 128, "rope_dim": 64, "value_dim": 128,
            "rope": null}},
    "ffn_pattern": "DMMMMMMMMMMMMMMMMMMMMMMMMMM", "ffns": {"D": {"kind": "dense", "hidden": 9216},
    "M": {"kind": "moe", "num_experts": 256, "top_k": 8, "expert_hidden": 1024, "shared_hidden": 1024,
    "router": {"score": "sigmoid", "correction": true, "correction_rate": 0, "scale": 2.446, "normalize": true,
    "balance_loss": 0, "z_loss": 0}}},
    "init": {"kind": "normal", "std": 0.02, "scale_output": false}})");
  Parsed parsed = parse(text);
  ASSERT_TRUE(parsed.spec) << parsed.errors[0];
  EXPECT_EQ(parameters(*parsed.spec), 49'122'675'072 + 6'656);
  EXPECT_EQ(imported(parsed, "layers.{layer}.lsm.wf2"),
            R"({"name":"model.layers.{layer}.self_attn.f_b_proj.weight","transposed":true})");
  EXPECT_EQ(imported(parsed, "layers.{layer}.lsm.conv_k.weight"),
            R"("model.layers.{layer}.self_attn.k_conv1d.weight")");
  EXPECT_EQ(imported(parsed, "layers.{layer}.moe.w3"),
            R"({"name":"model.layers.{layer}.block_sparse_moe.experts.{expert}.w3.weight","transposed":true})");
  EXPECT_EQ(imported(parsed, "layers.{layer}.shared.w3"),
            R"({"name":"model.layers.{layer}.block_sparse_moe.shared_experts.up_proj.weight","transposed":true})");
  EXPECT_EQ(imported(parsed, "layers.{layer}.ffn.w3"),
            R"({"name":"model.layers.{layer}.mlp.up_proj.weight",)"
            R"("or":"model.layers.{layer}.block_sparse_moe.up_proj.weight","transposed":true})");
  // As transformers writes it.
  parsed = parse(config("kimi_linear", R"("num_hidden_layers": 3, "layer_types": ["linear_attention", "full_attention",
    "linear_attention"], "mlp_layer_types": ["sparse", "dense", "sparse"], "linear_head_dim": 16, "linear_num_heads": 2,
    "linear_conv_kernel_dim": 3, "head_dim": 64, "qk_head_dim": 192)"));
  ASSERT_TRUE(parsed.spec) << parsed.errors[0];
  EXPECT_EQ(parsed.spec->layerPattern, "LN"); // LNL
  EXPECT_EQ(parsed.spec->ffnPattern, "MD"); // MDM
  const auto &kda3 = std::get<LsmSpec>(*parsed.spec->findMixer('L'));
  EXPECT_EQ(kda3.heads, 2);
  EXPECT_EQ(kda3.gateRank, 16);
  EXPECT_EQ(kda3.outputGateRank, 16);
  EXPECT_EQ(kda3.conv->kernel, 3);
  // Without either.
  EXPECT_EQ(parse(config("kimi_linear", R"("num_hidden_layers": 9)")).spec->layerPattern, "LLLLNLLLN");
}

TEST(HuggingFaceLatent, Ling) {
  // As large as what transformers takes, Ling-3.0-Flash, with a correction for each of 512 experts in 40 layers.
  Parsed parsed = parse(config("bailing_hybrid"));
  ASSERT_TRUE(parsed.spec) << parsed.errors[0];
  EXPECT_EQ(parameters(*parsed.spec), 124'414'191'072 + 20'480);
  expectDescription(config("bailing_hybrid", R"("num_hidden_layers": 4, "layer_group_size": 2, "kda_lower_bound": -2.5,
    "num_experts": 16, "num_experts_per_token": 4, "num_expert_group": 4, "topk_group": 2, "moe_renormalize": false,
    "num_shared_experts": 2, "model_max_length": 4096, "first_k_dense_replace": 1, "short_conv_kernel_size": 3)"),
                    R"j({"name": "bailing_hybrid", "vocab_size": 157184, "d_model": 2560, "num_layers": 4,
    "context_len": 4096, "tie_embeddings": false, "dtype": "f32", "norm": {"kind": "rms", "eps": 1e-6},
    "layer_pattern": "LN", "mixers": {
      "L": {"kind": "kda", "heads": 32, "head_dim": 128, "conv": {"kernel": 3}, "gate_rank": 0, "norm_eps": 1e-6,
            "lower_bound": -2.5},
      "N": {"kind": "mla", "heads": 32, "kv_rank": 512, "head_dim": 128, "rope_dim": 64, "value_dim": 128,
            "rope": {"theta": 6e6, "layout": "interleaved"}, "output_gate": "sigmoid", "output_gate_per": "head"}},
    "ffn_pattern": "DMMM", "ffns": {"D": {"kind": "dense", "hidden": 6144},
    "M": {"kind": "moe", "num_experts": 16, "top_k": 4, "expert_hidden": 768, "shared_hidden": 1536,
    "router": {"score": "sigmoid", "correction": true, "correction_rate": 0, "scale": 2.5, "groups": 4,
    "kept_groups": 2, "group_score": "top2", "normalize": false, "balance_loss": 0, "z_loss": 0}}},
    "init": {"kind": "normal", "std": 0.02, "scale_output": false}})j");
  EXPECT_EQ(imported(parsed, "embed.weight"), R"("model.word_embeddings.weight")");
  EXPECT_EQ(imported(parsed, "layers.{layer}.lsm.wf"),
            R"({"name":"model.layers.{layer}.attention.f_proj.weight","transposed":true})");
  EXPECT_EQ(imported(parsed, "layers.{layer}.attn.wg"),
            R"({"name":"model.layers.{layer}.attention.g_proj.weight","transposed":true})");
  EXPECT_EQ(imported(parsed, "layers.{layer}.attn.wo"),
            R"({"name":"model.layers.{layer}.attention.dense.weight","transposed":true})");
  EXPECT_EQ(imported(parsed, "layers.{layer}.moe.correction"), R"("model.layers.{layer}.mlp.gate.expert_bias")");
  // As transformers writes it: lists go before numbers, widths of the delta rule have names of their own.
  parsed = parse(config("bailing_hybrid", R"("num_hidden_layers": 3, "layer_group_size": 6, "first_k_dense_replace": 2,
    "layer_types": ["full_attention", "linear_attention", "linear_attention"], "head_dim": 64, "qk_head_dim": 192,
    "mlp_layer_types": ["sparse", "dense", "sparse"], "linear_head_dim": 16, "linear_num_heads": 2,
    "linear_conv_kernel_dim": 5, "kda_safe_gate": false, "q_lora_rank": 24)"));
  ASSERT_TRUE(parsed.spec) << parsed.errors[0];
  EXPECT_EQ(parsed.spec->layerPattern, "NLL");
  EXPECT_EQ(parsed.spec->ffnPattern, "MD");
  const auto &kda = std::get<LsmSpec>(*parsed.spec->findMixer('L'));
  EXPECT_EQ(kda.heads, 2);
  EXPECT_EQ(kda.headDim, 16);
  EXPECT_EQ(kda.conv->kernel, 5);
  EXPECT_EQ(kda.lowerBound, 0);
}

TEST(HuggingFaceLatent, Refusals) {
  const std::string kimi = R"("num_hidden_layers": 2, )", yarn = R"("rope_scaling": {"type": "yarn", "factor": 4, )";
  const struct {
    const char *family;
    std::string text, message;
  } cases[] = {
      {"deepseek_v3", R"("quantization_config": {"quant_method": "awq"})",
       "quantization_config: an object says that weights are quantized in a form that is not read; valid: null, or one "
       "with quant_method \"fp8\" or \"mxfp4\""},
      {"deepseek_v3", R"("quantization_config": "fp8")",
       "quantization_config: \"fp8\" says that weights are quantized in a form that is not read; valid: null, or one "
       "with quant_method \"fp8\" or \"mxfp4\""},
      {"deepseek_v3", R"("attention_bias": true)",
       "attention_bias: true of a deepseek_v3 config is not computed; valid: false"},
      {"deepseek_v3", R"("num_key_value_heads": 8)",
       "num_key_value_heads: 8 of latent attention is not computed; valid: num_attention_heads, 128, or null"},
      {"deepseek_v3", R"("moe_layer_freq": 2)", "moe_layer_freq: 2 of a deepseek_v3 config is not computed; valid: 1"},
      {"deepseek_v3", R"("scoring_func": "softmax")",
       "scoring_func: \"softmax\" of a deepseek_v3 config is not computed; valid: \"sigmoid\""},
      {"deepseek_v3", R"("topk_method": "greedy")",
       "topk_method: \"greedy\" of a deepseek_v3 config is not computed; valid: \"noaux_tc\", null"},
      {"bailing_hybrid", R"("layer_group_size": 0)", "layer_group_size: 0 is not an integer above 0"},
      {"bailing_hybrid", R"("kda_lower_bound": 5)", "kda_lower_bound: 5 is not a number below 0"},
      {"bailing_hybrid", R"("tie_word_embeddings": true)",
       "tie_word_embeddings: true of a bailing_hybrid config is not computed; valid: false"},
      {"deepseek_v3", R"("rope_interleave": 1)", "rope_interleave: 1 is not true or false"},
      {"deepseek_v3", R"("qk_rope_head_dim": 7)",
       "qk_rope_head_dim: 7 features are not pairs, which rope turns; valid: an even number"},
      {"deepseek_v3", R"("kv_lora_rank": 2048)",
       "num_attention_heads: 128 times kv_lora_rank 2048 exceeds 131072 features of a token; valid: at most 64"},
      {"deepseek_v3", R"("topk_group": 9)", "topk_group: 9 exceeds n_group 8; valid: 1 to 8"},
      {"deepseek_v3", R"("n_group": null)", "n_group: null is not an integer; valid: 1 to 4096"},
      {"deepseek_v3", R"("n_shared_experts": 2000)", "n_shared_experts: 2000 is out of range; valid: 1 to 1024"},
      {"deepseek_v3", yarn + R"("mscale_all_dim": "all"})", "rope_scaling.mscale_all_dim: \"all\" is not a number"},
      {"deepseek_v3", yarn + R"("mscale_all_dim": 1e9})",
       "rope_scaling.mscale_all_dim: 1e+09 multiplies scores by 1386948404602638.5; valid: a number that does by at "
       "most 1e+06"},
      {"deepseek_v3", R"("rope_scaling": {"type": "linear", "factor": 4, "mscale_all_dim": 1})",
       "rope_scaling.mscale_all_dim: unknown key of a deepseek_v3 config with rope_type \"linear\"; valid: rope_type, "
       "rope_theta, factor"},
      {"deepseek_v2", R"("n_group": 1)",
       "num_experts_per_tok: is missing, without which transformers chooses none; valid: an integer above 0"},
      {"deepseek_v2", R"("num_experts_per_tok": 6, "norm_topk_prob": true)",
       "norm_topk_prob: true of a deepseek_v2 config is not computed: transformers does not read it, and never divides "
       "weights of experts by their sum, as the code published with the models then does; valid: false, null"},
      {"deepseek_v2", R"("num_experts_per_tok": 6, "topk_method": "noaux_tc")",
       "topk_method: \"noaux_tc\" is not computed; valid: \"greedy\", \"group_limited_greedy\""},
      {"deepseek_v2", R"("num_experts_per_tok": 6, "topk_method": "group_limited_greedy", "n_group": 8)",
       "topk_group: is missing, which topk_method \"group_limited_greedy\" needs; valid: an integer above 0"},
      {"deepseek_v2", R"("num_experts_per_tok": 6, "scoring_func": "sigmoid")",
       "scoring_func: \"sigmoid\" of a deepseek_v2 config is not computed; valid: \"softmax\""},
      {"deepseek_v2", R"("num_experts_per_tok": 6, "q_lora_rank": 0)",
       "q_lora_rank: 0 leaves queries nothing to be made of; valid: an integer above 0, or null"},
      {"deepseek_v2", R"("num_experts_per_tok": 6, "mlp_bias": true)",
       "mlp_bias: true of a deepseek_v2 config is not computed; valid: false"},
      {"deepseek_v2", R"("num_experts_per_tok": 6, "rope_interleave": true)",
       "rope_interleave: true is of an unknown key of a deepseek_v2 config; valid: the keys that models/README.md "
       "lists"},
      {"kimi_linear", R"("mla_use_nope": false)",
       "mla_use_nope: false of a kimi_linear config is not computed; valid: true"},
      {"kimi_linear", R"("mla_use_output_gate": true)",
       "mla_use_output_gate: true is of an unknown key of a kimi_linear config; valid: the keys that models/README.md "
       "lists"},
      {"kimi_linear", R"("tie_word_embeddings": true)",
       "tie_word_embeddings: true of a kimi_linear config is not computed; valid: false"},
      {"kimi_linear", R"("num_experts_per_token": 8, "num_experts_per_tok": 4)",
       "num_experts_per_tok: 4 is not num_experts_per_token 8; valid: one of the two keys"},
      {"kimi_linear", R"("num_hidden_layers": 0, "linear_attn_config": {"kda_layers": [1], "full_attn_layers": [2]})",
       "num_hidden_layers: 0 is out of range; valid: 1 to 1024"},
      {"kimi_linear", R"("linear_attn_config": 3)", "linear_attn_config: 3 is not an object or null"},
      {"kimi_linear", R"("linear_attn_config": {"heads": 3})",
       "linear_attn_config.heads: unknown key; valid: full_attn_layers, kda_layers, head_dim, num_heads, "
       "short_conv_kernel_size"},
      {"kimi_linear", kimi + R"("linear_attn_config": {"kda_layers": [1]})",
       "linear_attn_config.full_attn_layers: is missing beside the other list; valid: numbers of layers, from 1"},
      {"kimi_linear", kimi + R"("linear_attn_config": {"kda_layers": [1], "full_attn_layers": 2})",
       "linear_attn_config.full_attn_layers: 2 is not a list; valid: numbers of layers, from 1"},
      {"kimi_linear", kimi + R"("linear_attn_config": {"kda_layers": [1], "full_attn_layers": [3]})",
       "linear_attn_config.full_attn_layers[0]: 3 is no layer; valid: 1 to num_hidden_layers 2"},
      {"kimi_linear", kimi + R"("linear_attn_config": {"kda_layers": [1, 2], "full_attn_layers": [2]})",
       "linear_attn_config.kda_layers[1]: layer 2 is named before; valid: every layer once"},
      {"kimi_linear", kimi + R"("linear_attn_config": {"kda_layers": [], "full_attn_layers": [2]})",
       "linear_attn_config: layer 1 is neither in full_attn_layers nor in kda_layers; valid: every layer in one"},
      {"kimi_linear", kimi + R"("linear_attn_config": {"kda_layers": [1], "full_attn_layers": [2]}, "layer_types":
       ["linear_attention", "linear_attention"])",
       "layer_types: says other layers than the lists of linear_attn_config; valid: one of the two"},
      {"kimi_linear", kimi + R"("mlp_layer_types": ["dense"])",
       "mlp_layer_types: has 1 layers; valid: num_hidden_layers, 2"},
      {"kimi_linear", kimi + R"("mlp_layer_types": ["dense", "moe"])",
       "mlp_layer_types[1]: \"moe\" is not computed; valid: \"dense\", \"sparse\""},
      {"kimi_linear", kimi + R"("mlp_layer_types": ["dense", "dense"], "first_k_dense_replace": 1)",
       "mlp_layer_types: says other layers than first_k_dense_replace; valid: one of the two"},
      {"kimi_linear", R"("moe_router_activation_func": "softmax")",
       "moe_router_activation_func: \"softmax\" of a kimi_linear config is not computed; valid: \"sigmoid\""},
  };
  for (const auto &c : cases) {
    Parsed parsed = parse(config(c.family, c.text));
    ASSERT_EQ(parsed.errors.size(), 1U) << c.text;
    EXPECT_EQ(llvm::StringRef(parsed.errors[0]).split(": ").second.str(), c.message);
  }
}
