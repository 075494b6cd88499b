//===- HuggingFaceFamilies.h - families of transformers' configs, and what their keys say --------------------------===//
#ifndef FRONTEND_HUGGINGFACEFAMILIES_H
#define FRONTEND_HUGGINGFACEFAMILIES_H

#include "llvm/ADT/StringRef.h"
#include <cstdint>
#include <utility>

namespace braid::json {

/// What transformers takes for a key that a config of this family leaves out.
struct Family {
  llvm::StringRef name;
  int64_t vocabSize = 0, hiddenSize = 0, intermediateSize = 0, layers = 0, heads = 0;
  int64_t kvHeads = 0; ///< 0: heads
  int64_t headDim = 0; ///< 0: hidden_size / heads
  int64_t positions = 0;
  double theta = 0, eps = 0;
  int64_t window = 0; ///< 0: all
  bool hasWindow = false; ///< sliding_window is that of all layers
  bool switchesWindow = false; ///< windows only with use_sliding_window
  bool qkvBias = false; ///< else a key of that name says it
  bool qkNorm = false;
  int64_t experts = 0, topK = 0; ///< 0: no mixture
  int64_t expertHidden = 0; ///< 0: intermediate_size is that of an expert, and all layers have experts
  int64_t sharedHidden =
      0; ///< of a shared expert, with a gate but where scores are corrected; glm4_moe, latent: in experts
  bool normalizes = false; ///< norm_topk_prob
  double turns = 1; ///< partial_rotary_factor; 1: no other
  bool hybrid = false; ///< most layers have the gated delta rule, and attention has a gate
  bool onePart = false; ///< a layer is a Mamba or Mamba-2 mixer, attention, or a feed-forward
  bool tied = false; ///< tie_word_embeddings
  bool hasMamba = false; ///< a Mamba-2 mixer or attention in every layer, then a feed-forward
  bool splitsLinear = false; ///< qwen3_5: qkv, gates, write strengths and decays of the delta rule are matrices apart
  bool corrects = false; ///< experts are chosen by corrected scores: the router of DeepSeek-V3
  bool hasLightning = false; ///< lightning attention or attention, whose norms do not pass by; factors of what passes
  bool latent = false; ///< latent attention; deepseek_v2 chooses experts by scores, others by corrected ones
  int64_t denseLayers = 1; ///< layers before those with experts, where a key says how many
  int64_t groups = 1, keptGroups = 1; ///< of experts, where scores are corrected
  double expertScale = 1.0; ///< routed_scaling_factor
  bool isGranite = false; ///< with multipliers, one part that every token sees, rotations only if the config says so
};

inline constexpr Family families[] = {
    {"llama", 32000, 4096, 11008, 32, 32, 0, 0, 2048, 1e4, 1e-6},
    {"mistral", 32000, 4096, 14336, 32, 32, 8, 0, 131072, 1e4, 1e-6, 4096, true},
    {"mixtral", 32000, 4096, 14336, 32, 32, 8, 0, 131072, 1e6, 1e-5, 0, true, false, false, false, 8, 2},
    {"qwen2", 151936, 4096, 22016, 32, 32, 32, 0, 32768, 1e4, 1e-6, 0, false, true, true},
    {"qwen2_moe", 151936, 2048, 5632, 24, 16, 16, 0, 32768, 1e4, 1e-6, 0, false, true, true, false, 60, 4, 1408, 5632},
    {"qwen3", 151936, 4096, 22016, 32, 32, 32, 128, 32768, 1e4, 1e-6, 0, false, true, false, true},
    {"qwen3_moe", 151936, 2048, 6144, 24, 32, 4, 0, 32768, 1e4, 1e-6, 0, false, true, false, true, 128, 8, 768},
    {"qwen3_next", 151936, 2048,  5632, 48,  16, 2,   256, 32768, 1e4,  1e-6, 0,
     false,        false,  false, true, 512, 10, 512, 512, true,  0.25, true},
    {.name = "qwen3_5_text",
     .vocabSize = 248320,
     .hiddenSize = 4096,
     .intermediateSize = 12288,
     .layers = 32,
     .heads = 16,
     .kvHeads = 4,
     .headDim = 256,
     .positions = 32768,
     .theta = 1e4,
     .eps = 1e-6,
     .qkNorm = true,
     .turns = 0.25,
     .hybrid = true,
     .splitsLinear = true},
    {.name = "qwen3_5_moe_text",
     .vocabSize = 248320,
     .hiddenSize = 2048,
     .layers = 40,
     .heads = 16,
     .kvHeads = 2,
     .headDim = 256,
     .positions = 32768,
     .theta = 1e4,
     .eps = 1e-6,
     .qkNorm = true,
     .experts = 256,
     .topK = 8,
     .expertHidden = 512,
     .sharedHidden = 512,
     .normalizes = true,
     .turns = 0.25,
     .hybrid = true,
     .splitsLinear = true},
    {.name = "glm4_moe",
     .vocabSize = 151552,
     .hiddenSize = 4096,
     .intermediateSize = 10944,
     .layers = 46,
     .heads = 96,
     .kvHeads = 8,
     .positions = 131072,
     .theta = 1e4,
     .eps = 1e-5,
     .experts = 128,
     .topK = 8,
     .expertHidden = 1408,
     .sharedHidden = 1,
     .normalizes = true,
     .turns = 0.5,
     .corrects = true},
    {.name = "minimax",
     .vocabSize = 32000,
     .hiddenSize = 4096,
     .intermediateSize = 14336,
     .layers = 32,
     .heads = 32,
     .kvHeads = 8,
     .positions = 131072,
     .theta = 1e6,
     .eps = 1e-5,
     .hasWindow = true,
     .experts = 8,
     .topK = 2,
     .hasLightning = true},
    {.name = "mamba",
     .vocabSize = 50280,
     .hiddenSize = 768,
     .layers = 32,
     .positions = 1 << 20,
     .eps = 1e-5,
     .onePart = true,
     .tied = true},
    {.name = "mamba2",
     .vocabSize = 32768,
     .hiddenSize = 4096,
     .layers = 64,
     .positions = 1 << 20,
     .eps = 1e-5,
     .onePart = true},
    {.name = "nemotron_h",
     .vocabSize = 131072,
     .hiddenSize = 4096,
     .intermediateSize = 21504,
     .heads = 32,
     .kvHeads = 8,
     .headDim = 128,
     .positions = 4096,
     .eps = 1e-5,
     .experts = 8,
     .topK = 2,
     .expertHidden = 7688,
     .sharedHidden = 7688,
     .normalizes = true,
     .onePart = true,
     .corrects = true},
    {.name = "bamba",
     .vocabSize = 128000,
     .hiddenSize = 4096,
     .intermediateSize = 14336,
     .layers = 32,
     .heads = 32,
     .kvHeads = 8,
     .positions = 262144,
     .theta = 1e4,
     .eps = 1e-5,
     .turns = 0.5,
     .hasMamba = true},
    {.name = "granitemoehybrid",
     .vocabSize = 32000,
     .hiddenSize = 4096,
     .intermediateSize = 11008,
     .layers = 32,
     .heads = 32,
     .positions = 2048,
     .theta = 1e4,
     .eps = 1e-6,
     .experts = 8,
     .topK = 2,
     .hasMamba = true,
     .isGranite = true},
    {.name = "deepseek_v2",
     .vocabSize = 102400,
     .hiddenSize = 4096,
     .intermediateSize = 11008,
     .layers = 32,
     .heads = 32,
     .positions = 2048,
     .theta = 1e4,
     .eps = 1e-6,
     .experts = 64,
     .expertHidden = 1407,
     .sharedHidden = 2,
     .latent = true,
     .denseLayers = 0},
    {.name = "deepseek_v3",
     .vocabSize = 129280,
     .hiddenSize = 7168,
     .intermediateSize = 18432,
     .layers = 61,
     .heads = 128,
     .positions = 4096,
     .theta = 1e4,
     .eps = 1e-6,
     .experts = 256,
     .topK = 8,
     .expertHidden = 2048,
     .sharedHidden = 1,
     .normalizes = true,
     .corrects = true,
     .latent = true,
     .denseLayers = 3,
     .groups = 8,
     .keptGroups = 4,
     .expertScale = 2.5},
    {.name = "kimi_linear",
     .vocabSize = 163840,
     .hiddenSize = 2304,
     .intermediateSize = 9216,
     .layers = 27,
     .heads = 32,
     .positions = 1 << 20,
     .eps = 1e-5,
     .experts = 256,
     .topK = 8,
     .expertHidden = 1024,
     .sharedHidden = 1,
     .normalizes = true,
     .corrects = true,
     .latent = true,
     .expertScale = 2.446},
};

/// Families with something that a description cannot say, and the first such thing.
inline constexpr std::pair<llvm::StringRef, llvm::StringRef> missing[] = {
    {"olmoe", "a norm of q and k over all heads together"},
    {"gpt_oss", "attention sinks"},
    {"minimax_m2", "a norm of q and k over all heads together"},
    {"jamba", "norms of a Mamba layer's step, input and output"},
    {"falcon_h1", "attention and Mamba-2 side by side in one layer"},
    {"zamba2", "blocks that layers share"},
    {"gemma", "a feed-forward gated by gelu_tanh"},
    {"gemma2", "attention scores and logits that tanh bounds"},
    {"gemma3", "a feed-forward gated by gelu_tanh"},
    {"gemma3_text", "a feed-forward gated by gelu_tanh"},
};

/// What nemotron_h calls a layer, and the letters of its hybrid_override_pattern; transformers also reads older names.
inline constexpr struct {
  char letter;
  llvm::StringRef name, older;
} blockTypes[] = {
    {'M', "linear_attention", "mamba"}, {'*', "full_attention", "attention"}, {'-', "mlp", "mlp"}, {'E', "moe", "moe"}};

/// Keys that say nothing about what is computed.
inline constexpr llvm::StringRef silent[] = {
    "model_type",
    "architectures",
    "transformers_version",
    "use_cache",
    "bos_token_id",
    "eos_token_id",
    "pad_token_id",
    "_name_or_path",
    "return_dict",
    "output_attentions",
    "output_hidden_states",
    "_attn_implementation",
    "attn_implementation",
    "tokenizer_class",
    "unk_token_id",
    "sep_token_id",
    "auto_map",
    "id2label",
    "label2id",
    "problem_type",
    "torchscript",
    "chunk_size_feed_forward",
    "is_llama_config",
};

/// Keys whose other values are no other function of the same weights, of initial values among them, and of layers and sizes, which names and shapes of weights
/// say.
inline constexpr llvm::StringRef notCompared[] = {
    "dtype",          "initializer_range",   "max_position_embeddings", "attention_dropout",
    "hidden_dropout", "router_jitter_noise", "full_attention_interval", "first_k_dense_replace",
    "time_step_min",  "time_step_max",       "time_step_rank",          "mamba_expand",
    "mamba_d_head",
};

/// Silent, too, of mamba, mamba2 and nemotron_h: what their kernels, their initial values and their caches are like, experts
/// and heads for further tokens, which no layer has, and keys that transformers does not read.
inline constexpr llvm::StringRef silentOfOnePart[] = {
    "chunk_size",
    "d_inner",
    "d_model",
    "fused_add_norm",
    "mamba_ssm_cache_dtype",
    "moe_intermediate_size",
    "moe_latent_size",
    "moe_shared_expert_intermediate_size",
    "moe_shared_expert_overlap",
    "mtp_hybrid_override_pattern",
    "mtp_layers_block_type",
    "n_group",
    "n_layer",
    "n_routed_experts",
    "n_shared_experts",
    "norm_before_gate",
    "norm_topk_prob",
    "num_experts_per_tok",
    "num_logits_to_keep",
    "num_nextn_predict_layers",
    "pad_vocab_size_multiple",
    "partial_rotary_factor",
    "residual_in_fp32",
    "rope_theta",
    "routed_scaling_factor",
    "ssm_cfg",
    "time_step_floor",
    "time_step_init_scheme",
    "time_step_scale",
    "topk_group",
    "use_associative_scan",
    "use_mamba_kernels",
    "use_mambapy",
};

} // namespace braid::json

#endif // FRONTEND_HUGGINGFACEFAMILIES_H
