// Configs of transformers whose models norm what others do not, or otherwise: OLMo 2, OLMoE, MiniMax-M2, Jamba, Gemma.
#include "test/frontend/HuggingFaceConfigs.h"
#include <cmath>

using namespace braid;

namespace {

const AttentionSpec &attentionOf(const Parsed &parsed) { return std::get<AttentionSpec>(*parsed.spec->findMixer('N')); }
const MoeSpec &expertsOf(const Parsed &parsed) { return std::get<MoeSpec>(*parsed.spec->findFfn('M')); }

} // namespace

// Counts of parameters are those of transformers' own models.
TEST(HuggingFaceNorms, Olmoe) {
  // OLMoE-1B-7B.
  std::string text = config("olmoe", R"("architectures": ["OlmoeForCausalLM"], "attention_bias": false,
    "attention_dropout": 0.0, "clip_qkv": null, "eos_token_id": 50279, "hidden_act": "silu", "hidden_size": 2048,
    "initializer_range": 0.02, "intermediate_size": 1024, "max_position_embeddings": 4096, "norm_topk_prob": false,
    "num_attention_heads": 16, "num_experts": 64, "num_experts_per_tok": 8, "num_hidden_layers": 16,
    "num_key_value_heads": 16, "output_router_logits": false, "pad_token_id": 1, "rms_norm_eps": 1e-05,
    "rope_scaling": null, "rope_theta": 10000.0, "router_aux_loss_coef": 0.01, "tie_word_embeddings": false,
    "torch_dtype": "bfloat16", "use_cache": true, "vocab_size": 50304)");
  expectDescription(text, R"({"name": "olmoe", "vocab_size": 50304, "d_model": 2048, "num_layers": 16,
    "context_len": 4096, "tie_embeddings": false, "dtype": "bf16", "norm": {"kind": "rms", "eps": 1e-5},
    "layer_pattern": "N", "mixers": {"N": {"kind": "attention", "heads": 16, "kv_heads": 16, "head_dim": 128,
    "rope": {"theta": 10000.0}, "qk_norm": true, "qk_norm_over": "heads"}}, "ffn_pattern": "M",
    "ffns": {"M": {"kind": "moe", "num_experts": 64, "top_k": 8, "expert_hidden": 1024,
    "router": {"normalize": false, "balance_loss": 0, "z_loss": 0}}},
    "init": {"kind": "normal", "std": 0.02, "scale_output": false}})");
  Parsed parsed = parse(text);
  EXPECT_EQ(parameters(*parsed.spec), 6'919'161'856);
  EXPECT_EQ(imported(parsed, "layers.{layer}.attn.k_norm.weight"), R"("model.layers.{layer}.self_attn.k_norm.weight")");
  EXPECT_EQ(imported(parsed, "layers.{layer}.moe.w3"),
            R"({"name":"model.layers.{layer}.mlp.experts.{expert}.up_proj.weight","transposed":true})");
  EXPECT_EQ(parameters(*parse(config("olmoe", R"("intermediate_size": 1024)")).spec), 6'919'161'856);
  EXPECT_FALSE(expertsOf(parsed).router.normalize);
  EXPECT_TRUE(expertsOf(parse(config("olmoe", R"("norm_topk_prob": true)"))).router.normalize);
}

TEST(HuggingFaceNorms, Olmo2) {
  // OLMo-2-7B.
  Parsed parsed = parse(config("olmo2", R"("vocab_size": 100352, "max_position_embeddings": 4096, "hidden_size": 4096,
    "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32,
    "rms_norm_eps": 1e-06, "rope_theta": 500000, "attention_bias": false, "hidden_act": "silu")"));
  ASSERT_TRUE(parsed.spec) << parsed.errors[0];
  EXPECT_EQ(parameters(*parsed.spec), 7'298'617'344);
  EXPECT_EQ(parsed.spec->normPlacement, NormPlacement::output);
  EXPECT_EQ(attentionOf(parsed).qkNormOver, "heads");
  EXPECT_EQ(imported(parsed, "layers.{layer}.norm1.weight"),
            R"("model.layers.{layer}.post_attention_layernorm.weight")");
  EXPECT_EQ(imported(parsed, "layers.{layer}.norm2.weight"),
            R"("model.layers.{layer}.post_feedforward_layernorm.weight")");
}

TEST(HuggingFaceNorms, MiniMaxM2) {
  std::string text = config("minimax_m2", R"("architectures": ["MiniMaxM2ForCausalLM"], "attention_dropout": 0.0,
    "attn_type_list": [1, 1], "head_dim": 128, "hidden_act": "silu", "hidden_size": 3072, "initializer_range": 0.02,
    "intermediate_size": 1536, "max_position_embeddings": 196608, "mtp_transformer_layers": 1,
    "num_attention_heads": 48, "num_experts_per_tok": 8, "num_hidden_layers": 62, "num_key_value_heads": 8,
    "num_local_experts": 256, "num_mtp_modules": 3, "output_router_logits": false, "qk_norm_type": "per_layer",
    "rms_norm_eps": 1e-06, "rope_theta": 5000000, "rotary_dim": 64, "router_aux_loss_coef": 0.001,
    "router_jitter_noise": 0.0, "scoring_func": "sigmoid", "shared_intermediate_size": 0, "sliding_window": null,
    "tie_word_embeddings": false, "use_cache": true, "use_mtp": true, "use_qk_norm": true, "use_routing_bias": true,
    "vocab_size": 200064)");
  expectDescription(text, R"({"name": "minimax_m2", "vocab_size": 200064, "d_model": 3072, "num_layers": 62,
    "context_len": 196608, "tie_embeddings": false, "dtype": "f32", "norm": {"kind": "rms", "eps": 1e-6},
    "layer_pattern": "N", "mixers": {"N": {"kind": "attention", "heads": 48, "kv_heads": 8, "head_dim": 128,
    "rope": {"theta": 5000000, "fraction": 0.5}, "qk_norm": true, "qk_norm_over": "heads"}}, "ffn_pattern": "M",
    "ffns": {"M": {"kind": "moe", "num_experts": 256, "top_k": 8, "expert_hidden": 1536, "router": {"score": "sigmoid",
    "correction": true, "correction_rate": 0, "normalize": true, "balance_loss": 0, "z_loss": 0}}},
    "init": {"kind": "normal", "std": 0.02, "scale_output": false}})");
  Parsed parsed = parse(text);
  EXPECT_EQ(parameters(*parsed.spec), 228'689'748'992 + 62 * 256); // transformers counts corrections as buffers
  EXPECT_EQ(imported(parsed, "layers.{layer}.moe.correction"),
            R"("model.layers.{layer}.block_sparse_moe.e_score_correction_bias")");
  EXPECT_EQ(imported(parsed, "layers.{layer}.moe.w2"),
            R"({"name":"model.layers.{layer}.block_sparse_moe.experts.{expert}.w2.weight","transposed":true})");
  // What turns: all, unless a key says otherwise; the object before the config's own share, that before rotary_dim.
  auto fraction = [](const char *more) {
    Parsed parsed = parse(config("minimax_m2", more));
    return parsed.spec ? attentionOf(parsed).rope->fraction : -1;
  };
  EXPECT_EQ(fraction(""), 1);
  EXPECT_EQ(fraction(R"("rotary_dim": null)"), 1);
  EXPECT_EQ(fraction(R"("rotary_dim": 32)"), 0.25);
  EXPECT_EQ(fraction(R"("rotary_dim": 32, "partial_rotary_factor": 0.5)"), 0.5);
  EXPECT_EQ(fraction(R"("rotary_dim": 32, "rope_parameters": {"partial_rotary_factor": 0.75})"), 0.75);
}

TEST(HuggingFaceNorms, Jamba) {
  // Jamba-v0.1.
  std::string text = config("jamba", R"("architectures": ["JambaForCausalLM"], "attention_dropout": 0.0,
    "attn_layer_offset": 4, "attn_layer_period": 8, "expert_layer_offset": 1, "expert_layer_period": 2,
    "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02, "intermediate_size": 14336,
    "mamba_conv_bias": true, "mamba_d_conv": 4, "mamba_d_state": 16, "mamba_dt_rank": 256, "mamba_expand": 2,
    "mamba_inner_layernorms": true, "mamba_proj_bias": false, "max_position_embeddings": 262144,
    "num_attention_heads": 32, "num_experts": 16, "num_experts_per_tok": 2, "num_hidden_layers": 32,
    "num_key_value_heads": 8, "num_logits_to_keep": 1, "output_router_logits": false, "rms_norm_eps": 1e-06,
    "router_aux_loss_coef": 0.001, "sliding_window": null, "tie_word_embeddings": false, "torch_dtype": "bfloat16",
    "use_cache": true, "use_mamba_kernels": true, "vocab_size": 65536)");
  expectDescription(text, R"({"name": "jamba", "vocab_size": 65536, "d_model": 4096, "num_layers": 32,
    "context_len": 262144, "tie_embeddings": false, "dtype": "bf16", "norm": {"kind": "rms", "eps": 1e-6},
    "layer_pattern": "MMMMNMMM", "mixers": {
      "M": {"kind": "mamba", "heads": 1, "head_dim": 16, "value_dim": 8192, "gate_rank": 256, "bcdt_norm": true,
            "norm_eps": 1e-6, "conv": {"kernel": 4, "bias": true}},
      "N": {"kind": "attention", "heads": 32, "kv_heads": 8, "head_dim": 128, "rope": null}},
    "ffn_pattern": "DM", "ffns": {"D": {"kind": "dense", "hidden": 14336}, "M": {"kind": "moe", "num_experts": 16,
    "top_k": 2, "expert_hidden": 14336, "router": {"normalize": false, "balance_loss": 0, "z_loss": 0}}},
    "init": {"kind": "normal", "std": 0.02, "scale_output": false}})");
  Parsed parsed = parse(text);
  EXPECT_EQ(parameters(*parsed.spec), 51'570'323'328);
  EXPECT_EQ(parameters(*parse(config("jamba")).spec), 51'570'323'328);
  EXPECT_EQ(imported(parsed, "layers.{layer}.lsm.k_norm.weight"), R"("model.layers.{layer}.mamba.b_layernorm.weight")");
  EXPECT_EQ(imported(parsed, "layers.{layer}.lsm.wq"),
            R"({"name":"model.layers.{layer}.mamba.x_proj.weight","rows":[272,288],"transposed":true})");
  EXPECT_EQ(imported(parsed, "layers.{layer}.moe.router"),
            R"({"name":"model.layers.{layer}.feed_forward.router.weight","transposed":true})");
  EXPECT_EQ(imported(parsed, "final_norm.weight"), R"("model.final_layernorm.weight")");
  parsed = parse(config("jamba", R"("num_hidden_layers": 5, "attn_layer_period": 3, "attn_layer_offset": 0,
    "expert_layer_period": 4, "expert_layer_offset": 3, "hidden_size": 100, "num_attention_heads": 4,
    "num_key_value_heads": null)"));
  ASSERT_TRUE(parsed.spec) << parsed.errors[0];
  EXPECT_EQ(parsed.spec->layerPattern, "NMM"); // NMMNM
  EXPECT_EQ(parsed.spec->ffnPattern, "DDDM"); // DDDMD
  EXPECT_EQ(std::get<LsmSpec>(*parsed.spec->findMixer('M')).gateRank, 7); // of "auto"
  EXPECT_EQ(attentionOf(parsed).kvHeads, 4);
  EXPECT_EQ(parse(config("jamba", R"("num_experts": 1)")).spec->ffnPattern, "D");
}

TEST(HuggingFaceNorms, Gemma) {
  // gemma-2b.
  std::string text = config("gemma", R"("architectures": ["GemmaForCausalLM"], "attention_bias": false,
    "attention_dropout": 0.0, "head_dim": 256, "hidden_act": "gelu", "hidden_activation": null, "hidden_size": 2048,
    "initializer_range": 0.02, "intermediate_size": 16384, "max_position_embeddings": 8192, "num_attention_heads": 8,
    "num_hidden_layers": 18, "num_key_value_heads": 1, "rms_norm_eps": 1e-06, "rope_scaling": null,
    "rope_theta": 10000.0, "torch_dtype": "bfloat16", "use_cache": true, "vocab_size": 256000)");
  expectDescription(text, R"({"name": "gemma", "vocab_size": 256000, "d_model": 2048, "num_layers": 18,
    "context_len": 8192, "tie_embeddings": true, "dtype": "bf16", "norm": {"kind": "rms", "eps": 1e-6},
    "layer_pattern": "N", "mixers": {"N": {"kind": "attention", "heads": 8, "kv_heads": 1, "head_dim": 256,
    "rope": {"theta": 10000.0}}}, "ffn_pattern": "D",
    "ffns": {"D": {"kind": "dense", "hidden": 16384, "activation": "geglu_tanh"}},
    "embedding_multiplier": 45.254833995939045, "init": {"kind": "normal", "std": 0.02, "scale_output": false}})");
  Parsed parsed = parse(text);
  EXPECT_EQ(parameters(*parsed.spec), 2'506'172'416);
  EXPECT_EQ(parameters(*parse(config("gemma")).spec), 8'537'680'896);
  for (const char *norm : {"layers.{layer}.norm1.weight", "final_norm.weight"})
    EXPECT_NE(imported(parsed, norm).find("\"plus\":1"), std::string::npos) << imported(parsed, norm);
}

TEST(HuggingFaceNorms, Gemma3) {
  // gemma-3-1b.
  std::string types;
  for (int layer = 0; layer < 26; ++layer)
    types += std::string(layer ? ", " : "") + (layer % 6 == 5 ? R"("full_attention")" : R"("sliding_attention")");
  std::string text = config("gemma3_text", R"("architectures": ["Gemma3ForCausalLM"], "attention_bias": false,
    "attention_dropout": 0.0, "attn_logit_softcapping": null, "cache_implementation": "hybrid",
    "final_logit_softcapping": null, "head_dim": 256, "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 1152,
    "initializer_range": 0.02, "intermediate_size": 6912, "max_position_embeddings": 32768, "num_attention_heads": 4,
    "num_hidden_layers": 26, "num_key_value_heads": 1, "query_pre_attn_scalar": 256, "rms_norm_eps": 1e-06,
    "rope_local_base_freq": 10000, "rope_scaling": null, "rope_theta": 1000000, "sliding_window": 512,
    "sliding_window_pattern": 6, "torch_dtype": "bfloat16", "use_cache": true, "vocab_size": 262144)");
  expectDescription(text, R"({"name": "gemma3_text", "vocab_size": 262144, "d_model": 1152, "num_layers": 26,
    "context_len": 32768, "tie_embeddings": true, "dtype": "bf16", "norm": {"kind": "rms", "eps": 1e-6},
    "norm_placement": "sandwich", "layer_pattern": "WWWWWN", "mixers": {
      "W": {"kind": "attention", "heads": 4, "kv_heads": 1, "head_dim": 256, "rope": {"theta": 10000}, "qk_norm": true,
            "scale": 0.0625, "window": 512},
      "N": {"kind": "attention", "heads": 4, "kv_heads": 1, "head_dim": 256, "rope": {"theta": 1000000}, "qk_norm": true,
            "scale": 0.0625}},
    "ffn_pattern": "D", "ffns": {"D": {"kind": "dense", "hidden": 6912, "activation": "geglu_tanh"}},
    "embedding_multiplier": 33.94112549695428, "init": {"kind": "normal", "std": 0.02, "scale_output": false}})");
  Parsed parsed = parse(text);
  EXPECT_EQ(parameters(*parsed.spec), 999'885'952);
  EXPECT_EQ(imported(parsed, "layers.{layer}.norm2_post.weight"),
            R"({"name":"model.layers.{layer}.post_feedforward_layernorm.weight","plus":1})");
  EXPECT_EQ(imported(parsed, "layers.{layer}.attn.q_norm.weight"),
            R"({"name":"model.layers.{layer}.self_attn.q_norm.weight","plus":1})");
  // As transformers writes it now.
  text = config("gemma3_text", R"("num_hidden_layers": 26, "layer_types": [)" + types + R"(], "rope_parameters": {
    "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 5000.0},
    "sliding_attention": {"rope_type": "default", "rope_theta": 50.0}}, "query_pre_attn_scalar": 168)");
  parsed = parse(text);
  ASSERT_TRUE(parsed.spec) << parsed.errors[0];
  EXPECT_EQ(parsed.spec->layerPattern, "WWWWWN");
  EXPECT_EQ(attentionOf(parsed).rope->theta, 5000);
  EXPECT_EQ(attentionOf(parsed).rope->scaling->factor, 8);
  EXPECT_DOUBLE_EQ(attentionOf(parsed).scale, 1 / std::sqrt(168.0));
  const auto &local = std::get<AttentionSpec>(*parsed.spec->findMixer('W'));
  EXPECT_EQ(local.rope->theta, 50);
  EXPECT_FALSE(local.rope->scaling);
  EXPECT_EQ(local.window, 4096);
  // What is left out; older scaling is of layers without a window.
  parsed = parse(config("gemma3_text", R"("rope_scaling": {"rope_type": "linear", "factor": 8.0})"));
  ASSERT_TRUE(parsed.spec) << parsed.errors[0];
  EXPECT_EQ(attentionOf(parsed).rope->theta, 1e6);
  EXPECT_EQ(attentionOf(parsed).rope->scaling->factor, 8);
  EXPECT_EQ(std::get<AttentionSpec>(*parsed.spec->findMixer('W')).rope->theta, 1e4);
  EXPECT_FALSE(std::get<AttentionSpec>(*parsed.spec->findMixer('W')).rope->scaling);
  EXPECT_EQ(parse(config("gemma3_text", R"("num_hidden_layers": 5)")).spec->layerPattern, "W");
  EXPECT_EQ(parse(config("gemma3_text", R"("num_hidden_layers": 1, "layer_types": ["full_attention"],
    "sliding_window": null)"))
                .spec->layerPattern,
            "N");
}

TEST(HuggingFaceNorms, Refusals) {
  const struct {
    const char *family, *text, *message;
  } cases[] = {
      {"olmoe", R"("clip_qkv": 8.0)", "clip_qkv: 8 of an olmoe config is not computed; valid: null"},
      {"olmoe", R"("head_dim": 64)", "head_dim: 64 is not hidden_size / num_attention_heads, 128; valid: that"},
      {"olmoe", R"("attention_bias": true)", "attention_bias: true of an olmoe config is not computed; valid: false"},
      {"olmoe", R"("norm_topk_prob": 1)", "norm_topk_prob: 1 is not true or false"},
      {"olmoe", R"("sliding_window": 64)", "sliding_window: 64 of an olmoe config is not computed; valid: null"},
      {"olmoe", R"("output_router_logits": true)",
       "output_router_logits: true adds a balance loss over the routing of all layers together, which is not computed; "
       "valid: false, or router_aux_loss_coef 0"},
      {"olmoe", R"("num_experts_per_tok": 65)", "num_experts_per_tok: 65 exceeds num_experts 64; valid: 1 to 64"},
      {"olmoe", R"("partial_rotary_factor": 0.5)",
       "partial_rotary_factor: 0.5 is of an unknown key of an olmoe config; valid: the keys that models/README.md "
       "lists"},
      {"olmo2", R"("hidden_act": "gelu")", "hidden_act: \"gelu\" of an olmo2 config is not computed; valid: \"silu\""},
      {"olmo2", R"("sliding_window": 64)",
       "sliding_window: 64 is of an unknown key of an olmo2 config; valid: the keys that models/README.md lists"},
      {"minimax_m2", R"("rotary_dim": 63)",
       "rotary_dim: 63 is no number of features that turn; valid: an even number up to head_dim, 128"},
      {"minimax_m2", R"("rotary_dim": 130)",
       "rotary_dim: 130 is no number of features that turn; valid: an even number up to head_dim, 128"},
      {"minimax_m2", R"("partial_rotary_factor": 0.0078125)",
       "partial_rotary_factor: 0.0078125 of head_dim 128 turns 1 features; valid: a fraction that turns an even "
       "number, at least 2"},
      {"minimax_m2", R"("use_qk_norm": false)",
       "use_qk_norm: false of a minimax_m2 config is not computed; valid: true"},
      {"minimax_m2", R"("qk_norm_type": "per_head")",
       "qk_norm_type: \"per_head\" of a minimax_m2 config is not computed; valid: \"per_layer\""},
      {"minimax_m2", R"("scoring_func": "softmax")",
       "scoring_func: \"softmax\" of a minimax_m2 config is not computed; valid: \"sigmoid\""},
      {"minimax_m2", R"("use_routing_bias": false)",
       "use_routing_bias: false of a minimax_m2 config is not computed; valid: true"},
      {"minimax_m2", R"("shared_intermediate_size": 64)",
       "shared_intermediate_size: 64 of a minimax_m2 config is not computed; valid: 0"},
      {"minimax_m2", R"("attn_type_list": [1, 0])",
       "attn_type_list: not all layers are 1, softmax attention; valid: only such layers"},
      {"minimax_m2", R"("norm_topk_prob": true)",
       "norm_topk_prob: true is of an unknown key of a minimax_m2 config; valid: the keys that models/README.md lists"},
      {"jamba", R"("attn_layer_period": 0)", "attn_layer_period: 0 is not an integer above 0"},
      {"jamba", R"("attn_layer_offset": 8)",
       "attn_layer_offset: 8 is no number of a layer among attn_layer_period 8; valid: 0 to 7"},
      {"jamba", R"("expert_layer_offset": "1")",
       "expert_layer_offset: \"1\" is no number of a layer among expert_layer_period 2; valid: 0 to 1"},
      {"jamba", R"("mamba_expand": 1.5)", "mamba_expand: 1.5 is not an integer from 1 to 1024"},
      {"jamba", R"("hidden_size": 8192)",
       "mamba_expand * hidden_size: 16384 times mamba_d_state 16 exceeds 131072 features of a token; valid: at most "
       "8192"},
      {"jamba", R"("mamba_proj_bias": true)", "mamba_proj_bias: true of a jamba config is not computed; valid: false"},
      {"jamba", R"("mamba_inner_layernorms": false)",
       "mamba_inner_layernorms: false of a jamba config is not computed; valid: true"},
      {"jamba", R"("sliding_window": 64)", "sliding_window: 64 of a jamba config is not computed; valid: null"},
      {"jamba", R"("mamba_dt_rank": "all")", "mamba_dt_rank: \"all\" is not an integer; valid: 1 to 131072"},
      {"jamba", R"("rope_theta": 10000.0)",
       "rope_theta: 10000 is of an unknown key of a jamba config; valid: the keys that models/README.md lists"},
      {"gemma", R"("hidden_act": "silu")",
       "hidden_act: \"silu\" of a gemma config is not computed; valid: \"gelu_pytorch_tanh\", \"gelu\", which is taken "
       "for the same"},
      {"gemma", R"("hidden_activation": "gelu")",
       "hidden_activation: \"gelu\" of a gemma config is not computed; valid: \"gelu_pytorch_tanh\", null"},
      {"gemma", R"("use_bidirectional_attention": true)",
       "use_bidirectional_attention: true of a gemma config is not computed; valid: false, null"},
      {"gemma3_text", R"("hidden_activation": "gelu")",
       "hidden_activation: \"gelu\" of a gemma3_text config is not computed; valid: \"gelu_pytorch_tanh\""},
      {"gemma3_text", R"("final_logit_softcapping": -30.0)",
       "final_logit_softcapping: -30 is out of range; valid: 0.001 to 1e+06"},
      {"gemma3_text", R"("attn_logit_softcapping": 50.0)",
       "attn_logit_softcapping: 50 of a gemma3_text config is not computed; valid: null"},
      {"gemma3_text", R"("query_pre_attn_scalar": 0)", "query_pre_attn_scalar: 0 is not a number from 1e-12 to 1e+12"},
      {"gemma3_text", R"("sliding_window": null)", "sliding_window: null is not an integer above 0"},
      {"gemma3_text", R"("sliding_window_pattern": 0)", "sliding_window_pattern: 0 is not an integer above 0"},
      {"gemma3_text", R"("layer_types": ["full_attention"])",
       "layer_types: has 1 layers; valid: num_hidden_layers, 26"},
      {"gemma3_text", R"("num_hidden_layers": 1, "layer_types": ["chunked_attention"])",
       "layer_types[0]: \"chunked_attention\" is not computed; valid: \"sliding_attention\", \"full_attention\""},
      {"gemma3_text", R"("num_hidden_layers": 1, "layer_types": ["full_attention"], "sliding_window_pattern": 6)",
       "layer_types: says other layers than sliding_window_pattern; valid: one of the two"},
      {"gemma3_text", R"("rope_parameters": {"rope_type": "default"})",
       "rope_parameters.rope_type: \"default\" is no object of one of the types of layers; valid: full_attention, "
       "sliding_attention"},
      {"gemma3_text", R"("rope_parameters": 3)", "rope_parameters: 3 is not an object or null"},
      {"gemma3_text", R"("rope_parameters": {"sliding_attention": 3})",
       "rope_parameters.sliding_attention: 3 is not an object or null"},
      {"gemma3_text", R"("rope_parameters": {"full_attention": {"rope_type": "dynamic", "factor": 2}})",
       "rope_parameters.full_attention.rope_type: \"dynamic\" has other frequencies for longer texts, which is not "
       "computed; valid: default, linear, llama3, yarn, proportional"},
      {"gemma3_text", R"("rope_parameters": {"sliding_attention": {"rope_type": "yarn", "factor": 2}})",
       "rope_parameters.sliding_attention.rope_type: \"yarn\" is not computed; valid: default, linear"},
      {"gemma3_text", R"("rope_local_base_freq": 10, "rope_parameters": {"sliding_attention": {"rope_theta": 20}})",
       "rope_parameters.sliding_attention.rope_theta: 20 is not rope_local_base_freq 10; valid: one of the two keys"},
      {"gemma3_text", R"("rope_scaling": {"type": "linear", "factor": 8.0})",
       "rope_scaling.type: is not what transformers reads of a gemma3_text config, which then turns nothing slower; "
       "valid: rope_type"},
      {"minimax_m2", R"("layernorm_mlp_beta": 2.0)",
       "layernorm_mlp_beta: 2 of a minimax_m2 config is not computed; valid: 1"},
      {"gemma", R"("attention_bias": true)", "attention_bias: true of a gemma config is not computed; valid: false"},
  };
  for (const auto &c : cases)
    expectError(config(c.family, c.text), std::string("config.json:2: ") + c.message);
}
