// A config.json of transformers says what a description of ours says, or is refused in a sentence.
#include "test/frontend/HuggingFaceConfigs.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/Regex.h"
#include <set>

using namespace braid;

TEST(HuggingFace, Llama) {
  std::string text = config("llama", R"("architectures": ["LlamaForCausalLM"], "attention_bias": false,
    "attention_dropout": 0.0, "bos_token_id": 128000, "eos_token_id": 128001, "hidden_act": "silu", "hidden_size": 4096,
    "initializer_range": 0.02, "intermediate_size": 14336, "max_position_embeddings": 8192, "num_attention_heads": 32,
    "num_hidden_layers": 32, "num_key_value_heads": 8, "pretraining_tp": 1, "rms_norm_eps": 1e-05, "rope_scaling": null,
    "rope_theta": 500000.0, "tie_word_embeddings": false, "torch_dtype": "bfloat16", "transformers_version": "4.40.0",
    "use_cache": true, "vocab_size": 128256)");
  expectDescription(text, R"({"name": "llama", "vocab_size": 128256, "d_model": 4096, "num_layers": 32,
    "context_len": 8192, "tie_embeddings": false, "dtype": "bf16", "norm": {"kind": "rms", "eps": 1e-5},
    "layer_pattern": "N", "mixers": {"N": {"kind": "attention", "heads": 32, "kv_heads": 8, "head_dim": 128,
    "rope": {"theta": 500000.0}}}, "ffn_pattern": "D", "ffns": {"D": {"kind": "dense", "hidden": 14336}},
    "init": {"kind": "normal", "std": 0.02, "scale_output": false}})");
  EXPECT_EQ(parameters(*parse(text).spec), 8'030'261'248);
}

TEST(HuggingFace, Mixtral) {
  std::string text = config("mixtral", R"("architectures": ["MixtralForCausalLM"], "attention_dropout": 0.0,
    "bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02,
    "intermediate_size": 14336, "max_position_embeddings": 32768, "num_attention_heads": 32, "num_experts_per_tok": 2,
    "num_hidden_layers": 32, "num_key_value_heads": 8, "num_local_experts": 8, "output_router_logits": false,
    "rms_norm_eps": 1e-05, "rope_theta": 1000000.0, "router_aux_loss_coef": 0.02, "sliding_window": null,
    "tie_word_embeddings": false, "torch_dtype": "bfloat16", "transformers_version": "4.36.0.dev0", "use_cache": true,
    "vocab_size": 32000)");
  expectDescription(text, R"({"name": "mixtral", "vocab_size": 32000, "d_model": 4096, "num_layers": 32,
    "context_len": 32768, "tie_embeddings": false, "dtype": "bf16", "norm": {"kind": "rms", "eps": 1e-5},
    "layer_pattern": "N", "mixers": {"N": {"kind": "attention", "heads": 32, "kv_heads": 8, "head_dim": 128,
    "rope": {"theta": 1000000.0}}}, "ffn_pattern": "M", "ffns": {"M": {"kind": "moe", "num_experts": 8, "top_k": 2,
    "expert_hidden": 14336, "router": {"normalize": true, "balance_loss": 0, "z_loss": 0}}},
    "init": {"kind": "normal", "std": 0.02, "scale_output": false}})");
  EXPECT_EQ(parameters(*parse(text).spec), 46'702'792'704);
}

TEST(HuggingFace, Qwen2) {
  Parsed parsed = parse(config("qwen2", R"("architectures": ["Qwen2ForCausalLM"], "attention_dropout": 0.0,
    "bos_token_id": 151643, "eos_token_id": 151643, "hidden_act": "silu", "hidden_size": 3584, "initializer_range": 0.02,
    "intermediate_size": 18944, "max_position_embeddings": 131072, "max_window_layers": 28, "num_attention_heads": 28,
    "num_hidden_layers": 28, "num_key_value_heads": 4, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0,
    "sliding_window": 131072, "tie_word_embeddings": false, "torch_dtype": "bfloat16", "transformers_version": "4.40.1",
    "use_cache": true, "use_mrope": false, "use_sliding_window": false, "vocab_size": 152064)"));
  ASSERT_TRUE(parsed.spec) << parsed.errors[0];
  const auto &attention = std::get<AttentionSpec>(parsed.spec->mixers.at('N'));
  EXPECT_TRUE(attention.qkvBias);
  EXPECT_FALSE(attention.qkNorm);
  EXPECT_EQ(attention.window, 0);
  EXPECT_EQ(parameters(*parsed.spec), 7'615'616'512);
  expectError(config("qwen2", R"("attention_bias": false)"),
              "config.json:2: attention_bias: false of a qwen2 config is not computed; valid: true");
}

TEST(HuggingFace, Qwen3Moe) {
  std::string text = config("qwen3_moe", R"("architectures": ["Qwen3MoeForCausalLM"], "attention_bias": false,
    "attention_dropout": 0.0, "bos_token_id": 151643, "decoder_sparse_step": 1, "eos_token_id": 151645, "head_dim": 128,
    "hidden_act": "silu", "hidden_size": 2048, "initializer_range": 0.02, "intermediate_size": 6144,
    "max_position_embeddings": 40960, "max_window_layers": 48, "mlp_only_layers": [], "moe_intermediate_size": 768,
    "norm_topk_prob": true, "num_attention_heads": 32, "num_experts": 128, "num_experts_per_tok": 8,
    "num_hidden_layers": 48, "num_key_value_heads": 4, "output_router_logits": false, "rms_norm_eps": 1e-06,
    "rope_scaling": null, "rope_theta": 1000000.0, "router_aux_loss_coef": 0.001, "sliding_window": null,
    "tie_word_embeddings": false, "torch_dtype": "bfloat16", "transformers_version": "4.51.0", "use_cache": true,
    "use_sliding_window": false, "vocab_size": 151936)");
  Parsed parsed = parse(text);
  ASSERT_TRUE(parsed.spec) << parsed.errors[0];
  EXPECT_EQ(parameters(*parsed.spec), 30'532'122'624);
  EXPECT_TRUE(std::get<AttentionSpec>(parsed.spec->mixers.at('N')).qkNorm);
  // A layer has experts where layer + 1 is a multiple of the step and the list does not name it.
  Parsed mixed =
      parse(config("qwen3_moe", R"("num_hidden_layers": 6, "decoder_sparse_step": 2, "mlp_only_layers": [3])"));
  ASSERT_TRUE(mixed.spec);
  EXPECT_EQ(mixed.spec->ffnPattern, "DMDD"); // DMDDDM
  EXPECT_EQ(std::get<DenseSpec>(mixed.spec->ffns.at('D')).hidden, 6144);
  EXPECT_EQ(std::get<MoeSpec>(mixed.spec->ffns.at('M')).expertHidden, 768);
  EXPECT_FALSE(std::get<MoeSpec>(mixed.spec->ffns.at('M')).router.normalize);
  EXPECT_EQ(parse(config("qwen3_moe", R"("num_hidden_layers": 2, "mlp_only_layers": [0, 1])")).spec->ffnPattern, "D");
}

// Counts of parameters are those of transformers' own models.
TEST(HuggingFace, Qwen2Moe) {
  std::string text = config("qwen2_moe", R"("architectures": ["Qwen2MoeForCausalLM"], "attention_dropout": 0.0,
    "bos_token_id": 151643, "decoder_sparse_step": 1, "eos_token_id": 151643, "hidden_act": "silu", "hidden_size": 2048,
    "initializer_range": 0.02, "intermediate_size": 5632, "max_position_embeddings": 8192, "max_window_layers": 21,
    "moe_intermediate_size": 1408, "norm_topk_prob": false, "num_attention_heads": 16, "num_experts": 60,
    "num_experts_per_tok": 4, "num_hidden_layers": 24, "num_key_value_heads": 16, "output_router_logits": false,
    "rms_norm_eps": 1e-06, "rope_theta": 1000000.0, "router_aux_loss_coef": 0.001,
    "shared_expert_intermediate_size": 5632, "sliding_window": 32768, "tie_word_embeddings": false,
    "torch_dtype": "bfloat16", "transformers_version": "4.39.0.dev0", "use_cache": true, "use_sliding_window": false,
    "vocab_size": 151936)");
  expectDescription(text, R"({"name": "qwen2_moe", "vocab_size": 151936, "d_model": 2048, "num_layers": 24,
    "context_len": 8192, "tie_embeddings": false, "dtype": "bf16", "norm": {"kind": "rms", "eps": 1e-6},
    "layer_pattern": "N", "mixers": {"N": {"kind": "attention", "heads": 16, "kv_heads": 16, "head_dim": 128,
    "rope": {"theta": 1000000.0}, "qkv_bias": true}}, "ffn_pattern": "M", "ffns": {"M": {"kind": "moe",
    "num_experts": 60, "top_k": 4, "expert_hidden": 1408, "shared_hidden": 5632, "shared_gate": true,
    "router": {"normalize": false, "balance_loss": 0, "z_loss": 0}}},
    "init": {"kind": "normal", "std": 0.02, "scale_output": false}})");
  EXPECT_EQ(parameters(*parse(text).spec), 14'315'784'192);
  Parsed bare = parse(config("qwen2_moe", R"("qkv_bias": false)"));
  ASSERT_TRUE(bare.spec);
  EXPECT_FALSE(std::get<AttentionSpec>(bare.spec->mixers.at('N')).qkvBias);
  EXPECT_EQ(std::get<MoeSpec>(bare.spec->ffns.at('M')).sharedHidden, 5632);
}

TEST(HuggingFace, SlowerRotations) {
  auto scaling = [](const std::string &family, const std::string &more) {
    Parsed parsed = parse(config(family, more));
    if (!parsed.spec) {
      ADD_FAILURE() << parsed.errors[0];
      return RopeScaling{};
    }
    return std::get<AttentionSpec>(parsed.spec->mixers.at('N')).rope->scaling.value_or(RopeScaling{"none"});
  };
  EXPECT_EQ(scaling("llama", R"("rope_scaling": {"type": "linear", "factor": 2.0})").kind, "linear");
  RopeScaling llama3 = scaling("llama", R"("rope_theta": 500000.0, "max_position_embeddings": 131072,
    "rope_scaling": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                     "original_max_position_embeddings": 8192, "rope_type": "llama3"})");
  EXPECT_EQ(llama3.kind, "llama3");
  EXPECT_EQ(llama3.factor, 8);
  EXPECT_EQ(llama3.highFreqFactor, 4);
  EXPECT_EQ(llama3.originalContextLen, 8192);
  // As transformers has them: most rotations stay, the slowest 29 pairs turn at an eighth.
  std::vector<double> factors = llama3.factors(500000.0, 128);
  ASSERT_EQ(factors.size(), 64U);
  EXPECT_EQ(factors[28], 1.0);
  EXPECT_NEAR(factors[30], 0.643743, 1e-5);
  EXPECT_EQ(factors[35], 0.125);
  RopeScaling yarn = scaling("qwen3", R"("max_position_embeddings": 131072, "rope_scaling": {"rope_type": "yarn",
    "factor": 4.0, "original_max_position_embeddings": 32768})");
  EXPECT_EQ(yarn.kind, "yarn");
  EXPECT_EQ(yarn.attentionFactor, 0); // from the factor
  EXPECT_EQ(yarn.betaFast, 32);
  EXPECT_EQ(yarn.originalContextLen, 32768);
  factors = yarn.factors(1e6, 128);
  for (auto [pair, factor] : {std::pair(20, 1.0), {24, 0.955882353}, {30, 0.691176471}, {38, 0.338235294}, {40, 0.25}})
    EXPECT_NEAR(factors[pair], factor, 1e-9) << pair;
  RopeScaling exact = scaling("llama", R"("rope_scaling": {"rope_type": "yarn", "factor": 40.0, "truncate": false,
    "beta_fast": 16, "beta_slow": 2.0, "original_max_position_embeddings": 4096})");
  factors = exact.factors(1e4, 128);
  for (auto [pair, factor] : {std::pair(24, 1.0), {30, 0.713963825}, {33, 0.511533832}, {40, 0.039197181}, {45, 0.025}})
    EXPECT_NEAR(factors[pair], factor, 1e-9) << pair;
  EXPECT_NEAR(RopeScaling::attentionFactorOf(40.0), 1.3688879454, 1e-9);
  // What is left out: the context is that of the config, a key of the config before one of the object.
  auto yarnWith = [&](const std::string &rest, const std::string &more = "") {
    return scaling("qwen2",
                   R"("max_position_embeddings": 4096, "rope_parameters": {"rope_type": "yarn", )" + rest + "}" + more);
  };
  EXPECT_EQ(yarnWith(R"("factor": 2)").originalContextLen, 4096);
  EXPECT_EQ(yarnWith(R"("factor": 2, "original_max_position_embeddings": 512)").originalContextLen, 512);
  EXPECT_EQ(yarnWith(R"("factor": 2, "original_max_position_embeddings": 512)",
                     R"(, "original_max_position_embeddings": 256)")
                .originalContextLen,
            256);
  EXPECT_EQ(yarnWith(R"("factor": null, "original_max_position_embeddings": 512)").factor, 8);
  EXPECT_EQ(yarnWith(R"("factor": 2, "attention_factor": 1.5, "mscale": 1, "mscale_all_dim": 2)").attentionFactor, 1.5);
  EXPECT_EQ(yarnWith(R"("factor": 2, "mscale": 1)").attentionFactor, 0);
  EXPECT_NEAR(yarnWith(R"("factor": 40, "mscale": 1.0, "mscale_all_dim": 0.5)").attentionFactor, 1.155722, 1e-5);
  EXPECT_EQ(yarnWith(R"("factor": 2, "beta_fast": 0, "beta_slow": null)").betaFast, 32);
  EXPECT_FALSE(yarnWith(R"("factor": 2, "truncate": false)").truncate);
}

TEST(HuggingFace, DefaultsAreThoseOfTheFamily) {
  auto attention = [](const std::string &text) {
    Parsed parsed = parse(text);
    return parsed.spec ? std::get<AttentionSpec>(parsed.spec->mixers.at('N')) : AttentionSpec{};
  };
  EXPECT_EQ(attention(config("llama")).kvHeads, 32);
  EXPECT_EQ(attention(config("llama", R"("num_attention_heads": 64)")).headDim, 64);
  EXPECT_EQ(attention(config("mistral")).kvHeads, 8);
  EXPECT_EQ(attention(config("mistral", R"("num_key_value_heads": null)")).kvHeads, 32);
  EXPECT_EQ(attention(config("mistral")).window, 4096); // itself included, as ours
  EXPECT_EQ(attention(config("mistral", R"("sliding_window": null)")).window, 0);
  EXPECT_EQ(attention(config("mixtral")).window, 0);
  EXPECT_EQ(attention(config("mixtral")).rope->theta, 1e6);
  EXPECT_EQ(attention(config("qwen3", R"("hidden_size": 1024)")).headDim, 128);
  EXPECT_EQ(attention(config("qwen3_moe")).headDim, 64);
  EXPECT_EQ(parse(config("llama")).spec->contextLen, 2048);
  EXPECT_EQ(parse(config("llama")).spec->dtype, "f32");
}

TEST(HuggingFace, BothSpellings) {
  Parsed parsed = parse(config("qwen3", R"("dtype": "bfloat16", "torch_dtype": "bfloat16", "layer_types": null,
    "rope_parameters": {"rope_type": "default", "rope_theta": 5e6})"));
  ASSERT_TRUE(parsed.spec) << parsed.errors[0];
  EXPECT_EQ(parsed.spec->dtype, "bf16");
  EXPECT_EQ(std::get<AttentionSpec>(parsed.spec->mixers.at('N')).rope->theta, 5e6);
  expectError(config("llama", R"("dtype": "bfloat16", "torch_dtype": "float32")"),
              "config.json:2: torch_dtype: \"float32\" is not dtype \"bfloat16\"; valid: one of the two keys");
  expectError(config("llama", R"("rope_theta": 10000, "rope_parameters": {"rope_theta": 5e5})"),
              "config.json:2: rope_parameters.rope_theta: 5e+05 is not rope_theta 10000; valid: one of the two keys");
}

TEST(HuggingFace, FlagsTakeThePlaceOfKeys) {
  Parsed parsed = parse(config("llama", R"("train": {"seq_len": 64})"), {{"--batch", "train.batch", int64_t(2)}});
  ASSERT_TRUE(parsed.spec);
  EXPECT_EQ(parsed.spec->train.batch, 2);
  EXPECT_EQ(parsed.spec->train.seqLen, 64);
  EXPECT_EQ(parse(config("llama")).spec->train.batch, 8);
  // What kernels do not compute in stands in the config of weights that can be read.
  parsed = parse(config("llama", R"("torch_dtype": "float16")"), {{"--dtype", "dtype", std::string("bf16")}});
  ASSERT_TRUE(parsed.spec);
  EXPECT_EQ(parsed.spec->dtype, "bf16");
}

TEST(HuggingFace, Refusals) {
  const std::string
      valid = "; valid: model_type llama, mistral, mixtral, qwen2, qwen2_moe, qwen3, qwen3_moe, qwen3_next, "
              "qwen3_5_text, qwen3_5_moe_text, glm4_moe, glm4, phi3, minimax, mamba, falcon_mamba, xlstm, mamba2, "
              "nemotron_h, bamba, "
              "granitemoehybrid, granite, granitemoe, smollm3, dots1, "
              "deepseek_v2, deepseek_v3, kimi_k2, kimi_linear, bailing_hybrid, lfm2, lfm2_moe, lfm3, olmo_hybrid, "
              "lara_mini, "
              "olmo2, olmo3, exaone4, olmoe, minimax_m2, jamba, "
              "gemma, gemma2, recurrent_gemma, gemma3_text, falcon_h1, zamba2, gpt_oss, ernie4_5_moe, "
              "gla, retnet, gated_deltanet, delta_net, kda, hgrn2, rwkv6, rwkv7, transformer",
      file = "config.json:";
  expectError(
      config("gemma3n_text"),
      file +
          "1: model_type: \"gemma3n_text\" needs several residual streams, and embeddings of every layer, which "
          "a description cannot say" +
          valid);
  expectError(config("bert"), file + "1: model_type: \"bert\" is of a config.json that is not read" + valid);
  expectError(R"({"model_type": 5})", file + "1: model_type: 5 is not a string" + valid);
  expectError(R"({"architectures": ["LlamaForCausalLM"], "hidden_size": 64})",
              file + "1: model_type: is missing in what looks like a config.json of Hugging Face's transformers" +
                  valid);
  expectError(config("llava", R"("text_config": {})"),
              file +
                  "2: text_config: an object is the part for text of a larger model's config, which is not read but "
                  "of a qwen3_5 or qwen3_5_moe" +
                  valid);
  expectError(config("nemotron_h"), file + "1: layers_block_type: is missing, without which transformers takes layers "
                                           "with experts; valid: a list, or hybrid_override_pattern");
  // One wrong value: key, what is said, what would be valid.
  struct {
    const char *family, *text, *message;
  } const cases[] = {
      {"llama", R"("attention_bias": true)", "attention_bias: true of a llama config is not computed; valid: false"},
      {"llama", R"("mlp_bias": true)", "mlp_bias: true of a llama config is not computed; valid: false"},
      {"llama", R"("hidden_act": "gelu")", "hidden_act: \"gelu\" of a llama config is not computed; valid: \"silu\""},
      {"llama", R"("attention_dropout": 0.5)",
       "attention_dropout: 0.5 of a llama config is not computed; valid: 0, null"},
      {"llama", R"("pretraining_tp": 2)", "pretraining_tp: 2 of a llama config is not computed; valid: 1, null"},
      {"llama", R"("clip_qkv": 8)", "clip_qkv: 8 of a llama config is not computed; valid: null"},
      {"llama", R"("torch_dtype": "float16")",
       "torch_dtype: \"float16\" is not computed; valid: \"float32\", \"bfloat16\", \"float64\", or --dtype=f32 (or "
       "bf16), as which such weights are read"},
      {"llama", R"("torch_dtype": "float8")",
       "torch_dtype: \"float8\" is not computed; valid: \"float32\", \"bfloat16\", \"float64\""},
      {"llama", R"("rope_scaling": {"rope_type": "llama3", "factor": 8, "low_freq_factor": 1})",
       "rope_scaling.high_freq_factor: is missing, which rope_type \"llama3\" needs; valid: a number"},
      {"llama", R"("rope_scaling": {"rope_type": "dynamic", "factor": 2})",
       "rope_scaling.rope_type: \"dynamic\" has other frequencies for longer texts, which is not computed; valid: "
       "default, linear, llama3, yarn, proportional"},
      {"llama", R"("rope_scaling": {"type": "longrope"})",
       "rope_scaling.type: \"longrope\" has other frequencies for longer texts, which is not computed; valid: default, "
       "linear, llama3, yarn, proportional"},
      {"llama", R"("rope_scaling": {"type": "mrope"})",
       "rope_scaling.type: \"mrope\" is not computed; valid: default, linear, llama3, yarn, proportional"},
      {"llama", R"("rope_scaling": {"type": "linear", "factor": 2, "beta_fast": 1})",
       "rope_scaling.beta_fast: unknown key of a llama config with rope_type \"linear\"; valid: rope_type, rope_theta, "
       "factor"},
      {"llama", R"("rope_scaling": {"type": "linear", "factor": 0.5})",
       "rope_scaling.factor: 0.5 is out of range; valid: 1 to 1e+06"},
      {"llama", R"("rope_scaling": {"type": "yarn", "factor": 2, "partial_rotary_factor": 0.5})",
       "rope_scaling.partial_rotary_factor: 0.5 is not computed; valid: 1"},
      {"llama", R"("rope_scaling": {"type": "linear", "factor": 2}, "rope_parameters": {"rope_type": "default"})",
       "rope_scaling: stands beside rope_parameters; valid: one of the two keys"},
      {"llama", R"("rope_scaling": 2)", "rope_scaling: 2 is not an object or null"},
      {"llama", R"("rope_scaling": {"factor": 2})",
       "rope_scaling.factor: unknown key of a llama config with rope_type \"default\"; valid: rope_type, rope_theta"},
      {"llama", R"("num_attention_heads": 3)",
       "num_attention_heads: 3 does not divide hidden_size 4096; valid: a divisor, or a head_dim"},
      {"llama", R"("sliding_window": 4096)",
       "sliding_window: 4096 is of an unknown key of a llama config; valid: the keys that models/README.md lists"},
      {"mistral", R"("sliding_window": 0)",
       "sliding_window: 0 leaves no key to see; valid: an integer above 0, or null for all"},
      {"qwen3", R"("use_sliding_window": true)",
       "use_sliding_window: true of a qwen3 config is not computed; valid: false"},
      {"qwen3", R"("layer_types": ["sliding_attention"])",
       "layer_types: not all layers are \"full_attention\"; valid: only such layers"},
      {"mixtral", R"("router_jitter_noise": 0.1)",
       "router_jitter_noise: 0.1 of a mixtral config is not computed; valid: 0"},
      {"mixtral", R"("output_router_logits": true)",
       "output_router_logits: true adds a balance loss over the routing of all layers together, which is not computed; "
       "valid: false, or router_aux_loss_coef 0"},
      {"qwen3_moe", R"("decoder_sparse_step": 0)", "decoder_sparse_step: 0 is not an integer above 0"},
      {"qwen3_moe", R"("mlp_only_layers": [24])",
       "mlp_only_layers[0]: 24 is no layer; valid: 0 to num_hidden_layers - 1"},
      {"qwen2_moe", R"("attention_bias": true)",
       "attention_bias: true is of an unknown key of a qwen2_moe config; valid: the keys that models/README.md lists"},
      {"qwen3_next", R"("full_attention_interval": 0)", "full_attention_interval: 0 is not an integer above 0"},
      {"qwen3_next", R"("layer_types": ["linear_attention"])",
       "layer_types: has 1 layers; valid: num_hidden_layers, 48"},
      {"qwen3_next", R"("num_hidden_layers": 1, "layer_types": ["mamba"])",
       "layer_types[0]: \"mamba\" is not computed; valid: \"linear_attention\", \"full_attention\""},
      {"qwen3_next", R"("linear_num_key_heads": 5)",
       "linear_num_key_heads: 5 does not divide linear_num_value_heads 32; valid: 1, 2, 4, 8, 16, 32"},
      {"mamba2", R"("num_heads": 64)",
       "num_heads: 64 times head_dim 64 is not expand 2 times hidden_size 4096; valid: numbers with equal products"},
      {"mamba2", R"("quantization_config": {"quant_method": "modelopt"})",
       "quantization_config: an object says that weights are quantized in a form that is not read; valid: null, or one "
       "with quant_method \"fp8\" or \"mxfp4\""},
      {"mamba2", R"("use_bias": true)", "use_bias: true of a mamba2 config is not computed; valid: false"},
      {"mamba2", R"("time_step_limit": [0.0, 1.0])",
       "time_step_limit: a list bounds steps, which is not computed; valid: [0.0, Infinity]"},
      {"mamba2", R"("rms_norm": false)", "rms_norm: false of a mamba2 config is not computed; valid: true"},
      {"mamba2", R"("hidden_act": "gelu")", "hidden_act: \"gelu\" of a mamba2 config is not computed; valid: \"silu\""},
      {"mamba2", R"("intermediate_size": 4096)",
       "intermediate_size: 4096 is not expand times hidden_size, 8192; valid: that"},
      {"mamba2", R"("hidden_size": "64")", "hidden_size: \"64\" is not an integer; valid: 1 to 131072"},
      {"mamba", R"("hidden_size": 9223372036854775807)",
       "hidden_size: 9223372036854775807 is out of range; valid: 1 to 131072"},
      {"mamba2", R"("expand": 1.5)", "expand: 1.5 is not an integer from 1 to 1024"},
      {"mamba", R"("intermediate_size": 1000)",
       "intermediate_size: 1000 is not expand times hidden_size, 1536; valid: that"},
      {"nemotron_h", R"("hybrid_override_pattern": "MX*-")",
       "hybrid_override_pattern: \"X\" is not computed; valid: M, *, -, E"},
      {"nemotron_h", R"("hybrid_override_pattern": "ME", "topk_group": 2)",
       "topk_group: 2 of n_group 1 groups; valid: 1"},
      {"nemotron_h", R"("hybrid_override_pattern": "ME", "n_group": 4, "topk_group": 5)",
       "topk_group: 5 exceeds n_group 4; valid: 1 to 4"},
      {"nemotron_h", R"("hybrid_override_pattern": "ME", "n_group": 3, "topk_group": 2)",
       "n_group: 3 does not divide n_routed_experts 8; valid: 1, 2, 4, 8"},
      {"nemotron_h", R"("hybrid_override_pattern": "ME", "n_group": 8, "topk_group": 4)",
       "n_group: 8 leaves one expert to a group, but \"top2\" adds up the scores of two; valid: fewer groups"},
      {"nemotron_h", R"("hybrid_override_pattern": "ME", "n_group": 4, "topk_group": 1, "num_experts_per_tok": 3)",
       "num_experts_per_tok: 3 exceeds the 2 experts of 1 groups (topk_group); valid: 1 to 2"},
      {"nemotron_h", R"("hybrid_override_pattern": "ME", "moe_latent_size": "64")",
       "moe_latent_size: \"64\" is not an integer; valid: 0 to 524288"},
      {"nemotron_h", R"("hybrid_override_pattern": "ME", "n_routed_experts": 8, "num_local_experts": 16)",
       "num_local_experts: 16 is not n_routed_experts 8; valid: one of the two keys"},
      {"nemotron_h", R"("layers_block_type": "mamba")", "layers_block_type: \"mamba\" is not a list"},
      {"nemotron_h", R"("layers_block_type": ["conv"])",
       "layers_block_type[0]: \"conv\" is not computed; valid: \"linear_attention\", \"full_attention\", \"mlp\", "
       "\"moe\""},
      {"nemotron_h", R"("hybrid_override_pattern": "M-", "num_hidden_layers": 3)",
       "num_hidden_layers: 3 is not the number of layers in hybrid_override_pattern, 2; valid: that"},
      {"nemotron_h", R"("hybrid_override_pattern": "M-", "layers_block_type": ["mamba", "attention"])",
       "hybrid_override_pattern: \"M-\" is not layers_block_type \"M*\"; valid: one of the two keys"},
      {"nemotron_h", R"("hybrid_override_pattern": "")",
       "hybrid_override_pattern: \"\" names no layer; valid: what each layer is"},
      {"nemotron_h", R"("hybrid_override_pattern": "M-", "mlp_bias": true)",
       "mlp_bias: true of a nemotron_h config is not computed; valid: false"},
      {"nemotron_h", R"("hybrid_override_pattern": "M-", "mlp_hidden_act": "silu")",
       "mlp_hidden_act: \"silu\" of a nemotron_h config is not computed; valid: \"relu2\""},
      {"nemotron_h", R"("hybrid_override_pattern": "M*", "sliding_window": 64)",
       "sliding_window: 64 of a nemotron_h config is not computed; valid: null"},
      {"nemotron_h", R"("hybrid_override_pattern": "M*", "tie_word_embeddings": true)",
       "tie_word_embeddings: true of a nemotron_h config is not computed; valid: false"},
      {"nemotron_h", R"("hybrid_override_pattern": "M*", "rms_norm_eps": 1e-6)",
       "rms_norm_eps: 1e-06 of a nemotron_h config is not computed; valid: 1e-05"},
      {"mamba2", R"("n_groups": 3)", "n_groups: 3 does not divide num_heads 128; valid: 1, 2, 4, 8, 16, 32, 64, 128"},
      {"bamba", R"("attn_layer_indices": [3, 32])",
       "attn_layer_indices[1]: 32 is no layer; valid: 0 to num_hidden_layers - 1"},
      {"bamba", R"("attn_layer_indices": 3)", "attn_layer_indices: 3 is not a list; valid: numbers of layers, or null"},
      {"bamba", R"("mamba_proj_bias": true)", "mamba_proj_bias: true of a bamba config is not computed; valid: false"},
      {"bamba", R"("mlp_bias": true)", "mlp_bias: true of a bamba config is not computed; valid: false"},
      {"bamba", R"("z_loss_coefficient": 0.001)",
       "z_loss_coefficient: 0.001 of a bamba config is not computed; valid: 0"},
      {"bamba", R"("partial_rotary_factor": 0.25)",
       "partial_rotary_factor: 0.25 of a bamba config is not computed; valid: 0.5"},
      {"bamba", R"("mamba_d_head": 32)",
       "mamba_d_head: 32 times mamba_n_heads 128 is not mamba_expand 2 times hidden_size 4096; valid: numbers with "
       "equal products"},
      {"bamba", R"("mamba_n_heads": 100)",
       "mamba_n_heads: 100 does not divide mamba_expand 2 times hidden_size 4096; valid: a divisor"},
      {"bamba", R"("head_dim": 6)",
       "head_dim: 6, of which a share of 0.5 turns, 3 features; valid: a width of which an even "
       "number turns, at least 2"},
      {"bamba", R"("mamba_expand": 1.5)", "mamba_expand: 1.5 is not an integer from 1 to 1024"},
      {"bamba", R"("time_step_limit": [0.001, Infinity])",
       "time_step_limit: a list bounds steps, which is not computed; valid: [0.0, Infinity]"},
      {"granitemoehybrid", R"("layer_types": ["mamba", "mlp"], "num_hidden_layers": 2)",
       "layer_types[1]: \"mlp\" is not computed; valid: \"linear_attention\", \"full_attention\""},
      {"granitemoehybrid", R"("layers_block_type": ["mamba", "attention"])",
       "layers_block_type: has 2 layers; valid: num_hidden_layers, 32"},
      {"granitemoehybrid", R"("layer_types": "mamba")", "layer_types: \"mamba\" is not a list or null"},
      {"granitemoehybrid", R"("layer_types": ["mamba"], "layers_block_type": ["mamba"], "num_hidden_layers": 1)",
       "layers_block_type: stands beside layer_types; valid: one of the two keys"},
      {"granitemoehybrid", R"("position_embedding_type": "alibi")",
       "position_embedding_type: \"alibi\" is not computed; valid: \"rope\", \"nope\", null"},
      {"granitemoehybrid", R"("logits_scaling": 0)", "logits_scaling: 0 is not a number from 1e-06 to 1e+06"},
      {"granitemoehybrid", R"("shared_intermediate_size": 0)",
       "shared_intermediate_size: 0 leaves tensors without a number; valid: an integer above 0"},
      {"granitemoehybrid", R"("num_experts_per_tok": 9)",
       "num_experts_per_tok: 9 exceeds num_local_experts 8; valid: 1 to 8"},
      {"granitemoehybrid", R"("output_router_logits": true)",
       "output_router_logits: true adds a balance loss over the routing of all layers together, which is not computed; "
       "valid: false, or router_aux_loss_coef 0"},
      {"granitemoehybrid", R"("mamba_n_groups": 3)",
       "mamba_n_groups: 3 does not divide mamba_n_heads 128; valid: 1, 2, 4, 8, 16, 32, 64, 128"},
      // The ordinary reader's, under the keys of the config.
      {"llama", R"("num_key_value_heads": 5)",
       "num_key_value_heads: 5 does not divide num_attention_heads 32; valid: 1, 2, 4, 8, 16, 32"},
      {"llama", R"("head_dim": 5)", "head_dim: 5 features are not pairs, which rope turns; valid: an even number"},
      {"llama", R"("num_attention_heads": 4096)",
       "hidden_size / num_attention_heads: 1 features are not pairs, which rope turns; valid: an even number"},
      {"llama", R"("rope_scaling": {"type": "yarn", "factor": 2, "beta_fast": 0.5})",
       "rope_scaling.beta_slow: 1 exceeds rope_scaling.beta_fast 0.5; valid: a number up to it"},
      {"qwen2", R"("rope_scaling": {"rope_type": "llama3", "factor": 2, "low_freq_factor": 4, "high_freq_factor": 4})",
       "rope_scaling.low_freq_factor: 4 is not below rope_scaling.high_freq_factor 4; valid: a number below it"},
      {"qwen3_next", R"("partial_rotary_factor": 0.01171875)",
       "partial_rotary_factor: 0.01171875 of head_dim 256 turns 3 features; valid: a fraction that turns an even "
       "number, at least 2"},
      {"qwen3_next", R"("partial_rotary_factor": 0.0139)", // 3.56: rounded it would be 4
       "partial_rotary_factor: 0.0139 of head_dim 256 turns 3 features; valid: a fraction that turns an even number, "
       "at least 2"},
      {"qwen2_moe", R"("shared_expert_intermediate_size": 0)",
       "shared_expert_intermediate_size: 0 leaves the gate of the shared expert without one; valid: an integer above "
       "0"},
      {"llama", R"("vocab_size": "many")", "vocab_size: \"many\" is not an integer; valid: 2 to 16777216"},
      {"mixtral", R"("num_experts_per_tok": 9)", "num_experts_per_tok: 9 exceeds num_local_experts 8; valid: 1 to 8"},
      {"mixtral", R"("num_experts_per_tok": 4, "train": {"batch": 131072, "seq_len": 8192})",
       "train.batch: 131072 times seq_len 8192 times num_experts_per_tok 4 exceeds 2147483647 rows; valid: at most "
       "65535"},
  };
  for (const auto &c : cases)
    expectError(config(c.family, c.text), file + "2: " + c.message);
}

// The same value is an eps of all norms, and of those in another kind of layer.
TEST(HuggingFace, OneValueThatTwoPartsReadIsSaidOnce) {
  expectError(config("qwen3_next", R"("rms_norm_eps": 2)"),
              "config.json:2: rms_norm_eps: 2 is out of range; valid: above 0 to 1");
  expectError(config("gemma3_text", R"("num_attention_heads": "8")"),
              "config.json:2: num_attention_heads: \"8\" is not an integer; valid: 1 to 4096");
}

TEST(HuggingFace, AlwaysNormalizedWeightsOfOneExpert) {
  // transformers divides the only weight by itself. What it was trained for is computed; training with it is warned of.
  Parsed parsed = parse(config("mixtral", R"("num_experts_per_tok": 1)"));
  ASSERT_TRUE(parsed.spec) << parsed.errors[0];
  const auto &moe = std::get<MoeSpec>(parsed.spec->ffns.at('M'));
  EXPECT_EQ(moe.topK, 1);
  EXPECT_TRUE(moe.router.normalize);
  ASSERT_EQ(parsed.spec->warnings.size(), 1U);
  EXPECT_EQ(parsed.spec->warnings[0],
            "norm_topk_prob, which mixtral does not ask about: true with num_experts_per_tok 1 makes every weight 1: "
            "the router learns nothing in training");
  parsed = parse(config("qwen3_moe", R"("num_experts_per_tok": 1, "norm_topk_prob": true)"));
  ASSERT_TRUE(parsed.spec) << parsed.errors[0];
  ASSERT_EQ(parsed.spec->warnings.size(), 1U);
  EXPECT_EQ(parsed.spec->warnings[0].substr(0, 57), "norm_topk_prob: true with num_experts_per_tok 1 makes eve");
  EXPECT_TRUE(parse(config("mixtral")).spec->warnings.empty());
}

TEST(HuggingFace, ErrorsNameKeysThatTheConfigHas) {
  const std::string attention =
                        R"("vocab_size": 320, "hidden_size": 64, "intermediate_size": 48, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 64,
    "rms_norm_eps": 1e-6, "initializer_range": 0.02, "tie_word_embeddings": false, "dtype": "float32",
    "hidden_act": "silu", "attention_dropout": 0.0, "rope_theta": 10000.0, "rope_scaling": {"rope_type": "yarn",
    "factor": 2.0, "beta_fast": 32.0, "beta_slow": 1.0, "attention_factor": 1.5, "truncate": false,
    "original_max_position_embeddings": 32})",
                    experts =
                        R"(, "num_experts_per_tok": 2, "output_router_logits": false, "router_aux_loss_coef": 0.0)",
                    mamba = R"(, "mamba_n_heads": 4, "mamba_d_head": 32, "mamba_d_state": 16, "mamba_n_groups": 2,
    "mamba_expand": 2, "mamba_d_conv": 4, "mamba_conv_bias": true)",
                    sparse = R"(, "num_experts": 4, "moe_intermediate_size": 24, "norm_topk_prob": true,
    "decoder_sparse_step": 1, "mlp_only_layers": [])";
  // Keys and values of all heads are made of one latent.
  std::string latent = attention;
  latent.replace(latent.find(R"("num_key_value_heads": 2)"), 24, R"("num_key_value_heads": 4)");
  latent += R"(, "kv_lora_rank": 16, "q_lora_rank": 24, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 12,
    "moe_intermediate_size": 24, "num_experts_per_tok": 2, "routed_scaling_factor": 2.5)";
  // Another activation, and rotations without a ramp.
  std::string gemma = attention, gemma3;
  gemma.replace(gemma.find(R"("hidden_act": "silu", )"), 22, "");
  gemma3 =
      gemma.substr(0, gemma.find(R"("rope_scaling")")) + R"("rope_scaling": {"rope_type": "linear", "factor": 2.0})";
  const std::string routed = R"(, "n_routed_experts": 8, "n_shared_experts": 2, "n_group": 4, "topk_group": 2,
    "first_k_dense_replace": 1)";
  std::string kimi = latent; // which calls it so
  kimi.replace(kimi.find("num_experts_per_tok"), 19, "num_experts_per_token");
  const std::pair<std::string, std::string> configs[] = {
      {"deepseek_v2", latent + routed + R"(, "topk_method": "group_limited_greedy")"},
      {"deepseek_v3", latent + routed + R"(, "norm_topk_prob": true, "rope_interleave": true)"},
      {"kimi_linear", kimi + R"(, "num_experts": 8, "num_shared_experts": 2, "num_expert_group": 4, "topk_group": 2,
    "moe_renormalize": true, "layer_types": ["linear_attention", "full_attention"], "linear_num_heads": 2,
    "linear_head_dim": 16, "linear_conv_kernel_dim": 4, "mlp_layer_types": ["dense", "sparse"])"},
      {"kimi_k2", latent + routed + R"(, "norm_topk_prob": true, "rope_interleave": true)"},
      {"dots1",
       attention + R"(, "num_experts_per_tok": 2, "moe_intermediate_size": 24, "norm_topk_prob": true)" + routed},
      {"granite", attention + R"(, "embedding_multiplier": 6.0, "logits_scaling": 3.0)"},
      {"granitemoe", attention + experts + R"(, "num_local_experts": 4, "residual_multiplier": 0.5)"},
      {"smollm3", attention + R"(, "no_rope_layers": [1, 0], "no_rope_layer_interval": 2)"},
      {"llama", attention},
      {"mistral", attention + R"(, "sliding_window": 8)"},
      {"mixtral", attention + experts + R"(, "num_local_experts": 4, "sliding_window": 8)"},
      {"qwen2", attention},
      {"qwen2_moe", attention + experts + sparse + R"(, "shared_expert_intermediate_size": 32, "qkv_bias": true)"},
      {"qwen3", attention},
      {"qwen3_moe", attention + experts + sparse},
      {"qwen3_next", attention + experts + sparse +
                         R"(, "shared_expert_intermediate_size": 32, "partial_rotary_factor": 0.5,
    "full_attention_interval": 2, "linear_num_value_heads": 4, "linear_num_key_heads": 2, "linear_key_head_dim": 16,
    "linear_value_head_dim": 16, "linear_conv_kernel_dim": 4)"},
      {"bamba", attention + mamba + R"(, "attn_layer_indices": [1])"},
      {"olmo2", attention},
      {"olmoe", attention + experts + R"(, "num_experts": 4, "norm_topk_prob": true)"},
      {"minimax_m2", attention + experts + R"(, "num_local_experts": 4, "rotary_dim": 8, "use_qk_norm": true)"},
      {"minimax_m2", attention + experts + R"(, "num_local_experts": 4, "partial_rotary_factor": 0.5)"},
      {"gemma", gemma + R"(, "hidden_act": "gelu")"},
      {"gemma3_text", gemma3 + R"(, "hidden_activation": "gelu_pytorch_tanh", "rope_local_base_freq": 1000.0,
    "query_pre_attn_scalar": 16, "sliding_window": 8, "layer_types": ["sliding_attention", "full_attention"])"},
      {"gpt_oss", attention + experts + R"(, "num_local_experts": 4, "sliding_window": 8, "swiglu_limit": 7.0,
    "layer_types": ["full_attention", "sliding_attention"], "attention_bias": true)"},
      {"granitemoehybrid", attention + experts + mamba + R"(, "num_local_experts": 4, "shared_intermediate_size": 32,
    "layer_types": ["linear_attention", "full_attention"], "embedding_multiplier": 6.0, "logits_scaling": 3.0,
    "residual_multiplier": 0.5, "attention_multiplier": 0.25, "position_embedding_type": "rope")"}};
  const char *const wrong[] = {"0",    "-1",       "1",       "2",   "3",         "5",    "7",
                               "1.5",  "0.0001",   "1e-60",   "1e7", "16777216",  "1e30", "true",
                               "null", "\"text\"", "[1, -1]", "{}",  "2147483648"};
  // Of a description, and not of a config; key_heads is in linear_num_key_heads, but no word of its own there.
  const llvm::Regex ours("(^|[^_a-z])(d_model|num_layers|context_len|heads|kv_heads|key_heads|value_dim|top_k|hidden|"
                         "expert_hidden|shared_hidden|shared_gate|tie_embeddings|mixers|ffns|import|norm_eps|kernel|"
                         "window|scaling|original_context_len|normalize)([^_a-z]|$)");
  int64_t refused = 0;
  size_t number = 0;
  std::set<std::string> seen;
  for (const auto &[family, keys] : configs) {
    std::string whole = config(family, keys);
    Parsed parsed = parse(whole);
    ASSERT_TRUE(parsed.spec) << parsed.errors[0];
    auto json = llvm::json::parse(whole);
    ASSERT_TRUE(bool(json));
    auto check = [&](const std::string &key, const llvm::json::Object &object) {
      std::string text = llvm::formatv("{0}", llvm::json::Value(llvm::json::Object(object)));
      std::vector<std::string> errors;
      (void)parseModelSpec(text, "config.json", [&](const std::string &message) { errors.push_back(message); });
      for (const std::string &error : errors) {
        ++refused;
        llvm::StringRef message = error;
        ASSERT_TRUE(message.consume_front("config.json:1: ")) << error;
        llvm::StringRef path = message.split(": ").first;
        EXPECT_TRUE(object.get(path.split('.').first.split('[').first.split(" / ").first.split(" * ").first))
            << family << ": " << error;
        EXPECT_FALSE(ours.match(message)) << family << " " << key << ": " << error;
      }
    };
    ++number;
    for (const auto &entry : *json->getAsObject())
      for (auto [i, value] : llvm::enumerate(wrong)) {
        // A key that many families have meets some of the values in each.
        if (entry.first == "model_type" || (seen.count(entry.first.str()) && (i + number) % 4))
          continue;
        llvm::json::Object object = *json->getAsObject();
        object[entry.first] = llvm::cantFail(llvm::json::parse(value));
        check(entry.first.str(), object);
      }
    for (const auto &entry : *json->getAsObject())
      seen.insert(entry.first.str());
    for (const auto &entry : *json->getAsObject()->getObject("rope_scaling"))
      for (auto [i, value] : llvm::enumerate(wrong)) {
        if (number > 1 && (i + number) % 4)
          continue;
        llvm::json::Object object = *json->getAsObject();
        (*object.getObject("rope_scaling"))[entry.first] = llvm::cantFail(llvm::json::parse(value));
        check("rope_scaling." + entry.first.str(), object);
      }
  }
  EXPECT_GT(refused, 1000);
}
