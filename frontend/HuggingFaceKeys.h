//===- HuggingFaceKeys.h - keys of transformers' configs that say nothing, or nothing else ------------------------===//
#ifndef FRONTEND_HUGGINGFACEKEYS_H
#define FRONTEND_HUGGINGFACEKEYS_H

#include "llvm/ADT/StringRef.h"

namespace braid::json {

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
    "dtype",
    "initializer_range",
    "max_position_embeddings",
    "attention_dropout",
    "hidden_dropout",
    "resid_pdrop",
    "embd_pdrop",
    "router_jitter_noise",
    "time_step_min",
    "time_step_max",
    "time_step_rank",
    "mamba_expand",
    "mamba_d_head",
    "mamba_d_ssm",
    "mamba_dt_rank",
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
    "use_falcon_mambapy",
    "use_mambapy",
};

} // namespace braid::json

#endif // FRONTEND_HUGGINGFACEKEYS_H
