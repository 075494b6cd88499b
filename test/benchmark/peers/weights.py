"""Small random models of transformers, saved by it and read by braid-run: do both compute the same logits, and the same gradients of a
batch's loss? And the logits once more when braid-run has trained them for three steps and written them back?

  weights.py [FAMILY..]

Needs PyTorch and transformers, and braid-compile and braid-run in PATH; no GPU. For each family: the config compiled, a prefill of 32 tokens
and a token decoded behind it, from the files as transformers writes them (f32, several of them), then from a checkpoint, whose export
transformers reads; of some families from fp8. Where flash-linear-attention is installed: its families, and no others (fla_on_cpu.py). Prints the largest difference beside the largest logit, and of the gradient of which tensor PyTorch's is farthest off, as a share of its norm; exit
status 1 where a logit differs by 1e-4 of the largest or a gradient by 5e-3, or where transformers misses a tensor of the export.
"""
import json
import pathlib
import re
import subprocess
import sys
import tempfile

import numpy as np
import safetensors.torch
import torch
import transformers

BASE = {"vocab_size": 256, "hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 96,
        "max_position_embeddings": 128, "initializer_range": 0.2}
FAMILIES = {
    "llama": [{}, {"tie_word_embeddings": True}],
    "mistral": [{"sliding_window": 16}],
    "mixtral": [{"num_local_experts": 4, "num_experts_per_tok": 2}],
    "qwen2": [{}],
    "qwen3": [{"head_dim": 24}],
    "qwen3_moe": [{"head_dim": 24, "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "mlp_only_layers": [1], "norm_topk_prob": norm}
                  for norm in (True, False)],
    "qwen2_moe": [{"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "shared_expert_intermediate_size": 40, "decoder_sparse_step": 2}],
    "qwen3_next": [{"head_dim": 16, "num_hidden_layers": 5, "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32,
                    "shared_expert_intermediate_size": 40, "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 16,
                    "linear_value_head_dim": 24, "mlp_only_layers": [1]}],
}
# The same with a matrix for each of what heads read; without experts too.
SPLIT = FAMILIES["qwen3_next"][0] | {"mlp_only_layers": None}
FAMILIES["qwen3_5_moe_text"] = [{key: value for key, value in SPLIT.items() if key != "mlp_only_layers"}]
FAMILIES["qwen3_5_text"] = [{key: SPLIT[key] for key in SPLIT if key == "head_dim" or key.startswith("linear")} | {"num_hidden_layers": 5, "full_attention_interval": 2}]
GLM = {"num_hidden_layers": 4, "n_routed_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 32, "routed_scaling_factor": 2.5}
FAMILIES["glm4_moe"] = [GLM | {"num_mtp_layers": 0, "attention_bias": True, "use_qk_norm": True, "n_shared_experts": 2},
                        GLM | {"n_group": 4, "topk_group": 2, "first_k_dense_replace": 3, "head_dim": 24, "norm_topk_prob": False}]
# The same as parts of models that read pictures.
VISION = {"depth": 1, "hidden_size": 16, "intermediate_size": 16, "num_heads": 2, "out_hidden_size": 64, "num_position_embeddings": 16}
PARTS = ("qwen3_5_moe", "qwen3_5")
for part in PARTS:
    FAMILIES[part] = [more | {"tie_word_embeddings": part == "qwen3_5"} for more in FAMILIES[part + "_text"]]
# Lightning attention or attention; factors of what passes by and of what is added.
FAMILIES["minimax"] = [
    {"num_hidden_layers": 5, "layer_types": ["linear_attention", "linear_attention", "full_attention", "linear_attention", "full_attention"],
     "num_local_experts": 4, "block_size": 16, "linear_attn_alpha_factor": 1.5, "linear_attn_beta_factor": 0.5, "full_attn_alpha_factor": 2,
     "full_attn_beta_factor": 0.25, "mlp_alpha_factor": 3.5, "mlp_beta_factor": 0.75},
    {"num_hidden_layers": 4, "num_local_experts": 4, "head_dim": 24, "sliding_window": 16, "tie_word_embeddings": True}]
# Layers of one part.
ONE_PART = {"mamba": [{"state_size": 12, "time_step_rank": 5}, {"tie_word_embeddings": False, "use_conv_bias": False, "conv_kernel": 3}],
            "falcon_mamba": [{"state_size": 12, "time_step_rank": 5, "mixer_rms_eps": 1e-3}, {"tie_word_embeddings": False, "use_conv_bias": False, "conv_kernel": 3, "expand": 3}],
            "mamba2": [{"num_heads": 8, "head_dim": 16, "state_size": 24, "n_groups": groups, "tie_word_embeddings": groups == 1, "use_conv_bias": groups > 1}
                       for groups in (1, 4)],
            "nemotron_h": [{"hybrid_override_pattern": "M-M*-MM-", "mamba_num_heads": 8, "mamba_head_dim": 12, "ssm_state_size": 24, "n_groups": 2,
                            "head_dim": 24}]}
# Experts beside a shared one, chosen by corrected scores; in groups, of a latent width.
NEMOTRON = ONE_PART["nemotron_h"][0] | {"n_routed_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 32,
                                        "moe_shared_expert_intermediate_size": 40, "routed_scaling_factor": 2.5}
ONE_PART["nemotron_h"] += [NEMOTRON | {"hybrid_override_pattern": "ME*EME"},
                           NEMOTRON | {"hybrid_override_pattern": "M-*EE", "n_group": 4, "topk_group": 2, "moe_latent_size": 24, "norm_topk_prob": False}]
FAMILIES |= ONE_PART
# Mamba-2 or attention, then a feed-forward.
MAMBA = {"mamba_n_heads": 8, "mamba_d_state": 24, "mamba_n_groups": 2}
GRANITE = MAMBA | {"layer_types": ["linear_attention", "full_attention", "linear_attention"], "shared_intermediate_size": 40, "embedding_multiplier": 6.0,
                   "logits_scaling": 3.0, "residual_multiplier": 0.3, "attention_multiplier": 0.1}
FAMILIES["granitemoehybrid"] = [
    GRANITE | {"num_local_experts": 6, "num_experts_per_tok": 3, "tie_word_embeddings": True},
    GRANITE | {"num_local_experts": 4, "position_embedding_type": "rope", "mamba_n_groups": 1, "mamba_conv_bias": False},
    GRANITE | {"num_local_experts": 0, "layer_types": ["full_attention", "linear_attention", "full_attention"], "position_embedding_type": "rope"},
    MAMBA | {"num_local_experts": 4, "mamba_d_head": 16, "layer_types": ["linear_attention", "linear_attention", "full_attention"]}]
FAMILIES["bamba"] = [MAMBA | {"attn_layer_indices": [1]},
                     MAMBA | {"attn_layer_indices": [0, 2], "tie_word_embeddings": True, "mamba_d_conv": 3,
                              "rope_parameters": {"rope_theta": 500.0, "rope_type": "default", "partial_rotary_factor": 1.0}}]
# Keys and values of a latent: queries of the input or of a latent, rotations of neighbours or of halves, slowed ones, experts in groups.
LATENT = {"num_key_value_heads": 4, "kv_lora_rank": 16, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 12, "n_routed_experts": 8,
          "num_experts_per_tok": 3, "moe_intermediate_size": 32, "n_shared_experts": 2}
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 32}
FAMILIES["deepseek_v2"] = [
    LATENT | {"q_lora_rank": None, "first_k_dense_replace": 1, "routed_scaling_factor": 4.0},
    LATENT | {"q_lora_rank": 24, "topk_method": "group_limited_greedy", "n_group": 4, "topk_group": 2, "tie_word_embeddings": True},
    LATENT | {"q_lora_rank": 24, "first_k_dense_replace": 3, "rope_parameters": YARN | {"mscale": 0.707, "mscale_all_dim": 0.707}}]
FAMILIES["deepseek_v3"] = [
    LATENT | {"q_lora_rank": 24, "first_k_dense_replace": 1, "n_group": 4, "topk_group": 2},
    LATENT | {"q_lora_rank": None, "first_k_dense_replace": 0, "n_group": 1, "topk_group": 1, "norm_topk_prob": False, "rope_interleave": False},
    LATENT | {"q_lora_rank": 24, "first_k_dense_replace": 2, "n_group": 2, "topk_group": 1, "rope_parameters": YARN | {"mscale": 1.0, "mscale_all_dim": 0.5}},
    LATENT | {"q_lora_rank": 24, "qk_nope_head_dim": 8, "v_head_dim": 20, "first_k_dense_replace": 3, "rope_parameters": YARN | {"mscale_all_dim": 1.0}}]
# The same beside Kimi delta attention, and nothing turns.
KIMI = {key: value for key, value in LATENT.items() if key not in ("n_routed_experts", "num_experts_per_tok")} | {
    "num_local_experts": 8, "num_experts_per_tok": 3, "linear_num_heads": 2, "linear_head_dim": 16, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
FAMILIES["kimi_linear"] = [
    KIMI | {"num_hidden_layers": 4, "layer_types": ["linear_attention", "linear_attention", "linear_attention", "full_attention"]},
    KIMI | {"layer_types": ["full_attention", "linear_attention", "full_attention"], "mlp_layer_types": ["sparse", "dense", "sparse"], "q_lora_rank": 24,
            "n_group": 4, "topk_group": 2, "norm_topk_prob": False, "linear_conv_kernel_dim": 3}]
ROTATIONS = {"linear": {"rope_type": "linear", "factor": 4.0},
             "llama3": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64},
             "yarn": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}}
FAMILIES["llama"] += [{"rope_parameters": {"rope_theta": 10000.0} | rotation} for rotation in ROTATIONS.values()]
# A norm of q and k over all heads; without clip_qkv, whose tensors transformers clips. Norms of what layers give; experts chosen by corrected scores.
FAMILIES["olmoe"] = [{"num_experts": 8, "num_experts_per_tok": 3, "norm_topk_prob": norm, "tie_word_embeddings": norm} for norm in (False, True)]
FAMILIES["olmo2"] = [{}, {"head_dim": 24, "num_key_value_heads": 4, "tie_word_embeddings": True}]
FAMILIES["minimax_m2"] = [{"head_dim": 24, "num_local_experts": 8, "num_experts_per_tok": 3} | more for more in (
    {"rotary_dim": 12}, {"rope_parameters": {"rope_theta": 500.0, "rope_type": "default", "partial_rotary_factor": 0.5}}, {"tie_word_embeddings": True})]
# Mamba layers with norms of steps, keys and queries, attention without positions, experts in some layers.
FAMILIES["jamba"] = [{"num_hidden_layers": 5, "attn_layer_period": 4, "attn_layer_offset": 2, "mamba_d_state": 12, "mamba_dt_rank": 5, "num_experts": 4},
                     {"num_hidden_layers": 4, "attn_layer_period": 2, "attn_layer_offset": 1, "expert_layer_period": 3, "expert_layer_offset": 0,
                      "num_experts": 6, "num_experts_per_tok": 3, "mamba_conv_bias": False, "mamba_d_conv": 3, "tie_word_embeddings": True},
                     {"attn_layer_offset": 0, "num_experts": 1}]
FAMILIES["gemma"] = [{"head_dim": 24}, {"head_dim": 16, "num_key_value_heads": 1, "tie_word_embeddings": False, "hidden_act": "gelu"}]
FAMILIES["gemma2"] = [{"head_dim": 24, "sliding_window": 12, "query_pre_attn_scalar": 20, "attn_logit_softcapping": 1.5, "final_logit_softcapping": 2.0},
                      {"head_dim": 16, "num_hidden_layers": 4, "sliding_window": 16, "layer_types": ["full_attention", "sliding_attention"] * 2, "tie_word_embeddings": False,
                       "attn_logit_softcapping": 5.0, "final_logit_softcapping": None},
                      {"head_dim": 16, "attn_logit_softcapping": None}]
FAMILIES["gemma3_text"] = [
    {"head_dim": 24, "num_hidden_layers": 4, "sliding_window": 12, "query_pre_attn_scalar": 20,
     "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "sliding_attention"],
     "rope_parameters": {"full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 2000.0},
                         "sliding_attention": {"rope_type": "default", "rope_theta": 50.0}}},
    {"head_dim": 16, "sliding_window": 16, "sliding_window_pattern": 2, "rope_theta": 3000.0, "rope_local_base_freq": 70.0, "tie_word_embeddings": False,
     "final_logit_softcapping": 2.0},
    {"head_dim": 16, "sliding_window": 16, "rope_parameters": {"full_attention": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32},
                                                              "sliding_attention": {"rope_type": "default"}}, "sliding_window_pattern": 2}]
# The same without Mamba-2, without experts; layers in which nothing turns; a norm of q and k beside corrected scores.
MULTIPLIERS = {key: GRANITE[key] for key in ("embedding_multiplier", "logits_scaling", "residual_multiplier", "attention_multiplier")}
FAMILIES["granite"] = [MULTIPLIERS, {"tie_word_embeddings": True, "head_dim": 24, "attention_multiplier": 0.2}]
FAMILIES["granitemoe"] = [MULTIPLIERS | {"num_local_experts": 6, "num_experts_per_tok": 3}, {"num_local_experts": 4, "attention_multiplier": 0.2, "tie_word_embeddings": True}]
FAMILIES["smollm3"] = [{"pad_token_id": 0} | more for more in (
    {"num_hidden_layers": 5}, {"no_rope_layers": [0, 1, 1], "tie_word_embeddings": False}, {"no_rope_layer_interval": 2})]
FAMILIES["dots1"] = [GLM | {"n_shared_experts": 2, "first_k_dense_replace": 1, "sliding_window": None},
                     GLM | {"n_shared_experts": 1, "n_group": 4, "topk_group": 2, "head_dim": 24, "norm_topk_prob": True, "tie_word_embeddings": True}]
# Published under a name of its own, which transformers does not know.
RENAMED = {"kimi_k2": "deepseek_v3"}
FAMILIES["kimi_k2"] = FAMILIES["deepseek_v3"]
# Attention and Mamba-2 side by side, with a multiplier of everything: no norm of the latter, one before its gate or behind it, all biases, bounds of steps.
FALCON = MAMBA | {"mamba_d_ssm": 96, "mamba_n_heads": 6, "embedding_multiplier": 5.7, "lm_head_multiplier": 0.3, "key_multiplier": 0.4, "attention_in_multiplier": 1.3,
                  "attention_out_multiplier": 0.9, "ssm_in_multiplier": 1.25, "ssm_out_multiplier": 0.25, "ssm_multipliers": [0.35, 0.25, 0.4, 0.5, 0.7],
                  "mlp_multipliers": [0.9, 0.6]}
FAMILIES["falcon_h1"] = [
    FALCON | {"head_dim": 24, "rope_parameters": {"rope_type": "default", "rope_theta": 1e11}},
    FALCON | {"mamba_rms_norm": True, "mamba_norm_before_gate": False, "tie_word_embeddings": True, "mamba_d_head": 16},
    FALCON | {"mamba_rms_norm": True, "mamba_d_ssm": None, "mamba_n_heads": 8, "mamba_conv_bias": False, "time_step_limit": [0.8, 2.5]},
    FALCON | {"attention_bias": True, "mlp_bias": True, "mamba_proj_bias": True, "projectors_bias": True, "num_key_value_heads": 4, "time_step_limit": [0.0, 1.5]},
    {"mamba_n_heads": 8, "mamba_d_ssm": 128, "mamba_n_groups": 1, "mamba_d_conv": 3, "mamba_rms_norm": True}]
# Attention with sinks, windows in turns, biases; experts whose gates are clamped, in one variant often.
EXPERTS = {"num_local_experts": 6, "num_experts_per_tok": 3}
FAMILIES["gpt_oss"] = [
    EXPERTS | {"head_dim": 24, "num_hidden_layers": 4, "sliding_window": 12},
    EXPERTS | {"head_dim": 16, "sliding_window": 5, "attention_bias": False, "initializer_range": 0.5, "tie_word_embeddings": True,
               "layer_types": ["full_attention", "sliding_attention", "sliding_attention"]},
    EXPERTS | {"head_dim": 16, "sliding_window": 40, "num_key_value_heads": 4, "rope_parameters": {"rope_type": "default", "rope_theta": 300.0}}]
# Norms of what layers give, windows: all layers turn, those without a window slower; or nothing turns there, if others have one.
FAMILIES["olmo3"] = [
    {"num_hidden_layers": 5, "sliding_window": 12, "rope_parameters": {
        "full_attention": ROTATIONS["yarn"] | {"rope_theta": 500.0, "attention_factor": 1.3}, "sliding_attention": {"rope_type": "default", "rope_theta": 3000.0}}},
    {"head_dim": 24, "num_key_value_heads": 4, "sliding_window": 16, "layer_types": ["full_attention", "sliding_attention", "full_attention"],
     "tie_word_embeddings": True, "rope_scaling": ROTATIONS["llama3"]},
    {"num_hidden_layers": 2, "sliding_window": 40}]
FAMILIES["exaone4"] = [
    {"num_hidden_layers": 5, "sliding_window": 12},
    {"head_dim": 24, "sliding_window": 16, "sliding_window_pattern": "LLG", "tie_word_embeddings": True,
     "layer_types": ["sliding_attention", "sliding_attention", "full_attention"], "rope_parameters": ROTATIONS["llama3"] | {"rope_theta": 500.0}},
    {"sliding_window": None, "layer_types": ["full_attention"] * 3}, {"sliding_window": 8, "layer_types": ["full_attention"] * 3}]
# Matrices of several: q, k and v, a gate and what it opens; rotations of a part of the head, of neighbours, norms before and behind.
FAMILIES["phi3"] = [{"pad_token_id": 0} | more for more in (
    {}, {"sliding_window": 12, "num_key_value_heads": 4, "tie_word_embeddings": True},
    {"head_dim": 24, "partial_rotary_factor": 0.75, "rope_theta": 500.0})]
FAMILIES["glm4"] = [{"pad_token_id": 0} | more for more in (
    {"head_dim": 24}, {"head_dim": 16, "attention_bias": False, "tie_word_embeddings": True, "rms_norm_eps": 1e-5},
    {"head_dim": 16, "num_key_value_heads": 1, "rope_parameters": ROTATIONS["yarn"] | {"rope_theta": 500.0, "partial_rotary_factor": 1.0}})]
# Experts chosen by corrected scores of a softmax, in layers between two numbers; rotations of neighbours.
ERNIE = {"num_hidden_layers": 5, "moe_num_experts": 8, "moe_k": 3, "moe_intermediate_size": 32}
FAMILIES["ernie4_5_moe"] = [ERNIE, ERNIE | {"moe_num_shared_experts": 0, "moe_layer_start_index": 2, "moe_layer_interval": 2, "tie_word_embeddings": False},
                            ERNIE | {"moe_num_shared_experts": 1, "moe_layer_start_index": 0, "moe_layer_end_index": 2, "num_key_value_heads": 4, "head_dim": 24,
                                     "rope_parameters": ROTATIONS["yarn"] | {"rope_theta": 500.0}}]
# Mamba-2 in all layers, transformer blocks in turns before some; one layer's products of low rank beside its block's, in attention too; all biases.
ZAMBA = {"num_hidden_layers": 6, "layers_block_type": ["linear_attention", "hybrid"] * 3, "n_mamba_heads": 8, "mamba_d_state": 24, "mamba_ngroups": 2,
         "adapter_rank": 4, "pad_token_id": 0, "initializer_range": 0.1}
FAMILIES["zamba2"] = [
    ZAMBA | {"num_mem_blocks": 2, "use_mem_rope": True},
    ZAMBA | {"num_mem_blocks": 2, "use_shared_attention_adapter": True, "num_key_value_heads": 4, "add_bias_linear": True,
             "mamba_d_conv": 3, "rms_norm_eps": 1e-3},
    ZAMBA | {"num_hidden_layers": 7, "layers_block_type": ["hybrid", "hybrid", "linear_attention", "hybrid", "hybrid", "linear_attention", "hybrid"],
             "num_mem_blocks": 3, "use_shared_attention_adapter": True, "num_key_value_heads": 4, "use_mem_rope": True, "mamba_ngroups": 1,
             "rope_parameters": ROTATIONS["yarn"] | {"rope_theta": 500.0}, "hidden_act": "silu"}]
# Gated short convolutions or attention, with widths that other keys change; experts chosen by scores, corrected or not.
LFM = {"num_hidden_layers": 4, "layer_types": ["conv", "full_attention", "conv", "conv"]}
LFM_EXPERTS = {"num_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 32}
FAMILIES["lfm2"] = [LFM | {"block_multiple_of": 8, "conv_bias": True, "conv_L_cache": 4, "tie_word_embeddings": False},
                    {"num_hidden_layers": 3, "full_attn_idxs": [1], "block_auto_adjust_ff_dim": False, "norm_eps": 1e-3},
                    {"full_attn_idxs": [0, 2], "block_ff_dim": 120, "block_ffn_dim_multiplier": 1.3, "block_multiple_of": 16, "rope_theta": 500.0}]
FAMILIES["lfm2_moe"] = [LFM | LFM_EXPERTS | {"num_dense_layers": 1, "routed_scaling_factor": 1.5},
                        LFM | LFM_EXPERTS | {"use_expert_bias": False, "norm_topk_prob": False, "tie_word_embeddings": False}]
# The same beside attention with a window, a gate for every head, norms of what parts give, of pairs that turn so many.
FAMILIES["lfm3"] = [{"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2} | more for more in (
    {"num_hidden_layers": 5, "head_dim": 24, "sliding_window": 12},
    {"num_hidden_layers": 4, "layer_types": ["sliding_attention", "conv", "full_attention", "conv"], "head_dim": 16, "sliding_window": 16, "conv_bias": True,
     "conv_L_cache": 3, "use_attention_gate": False, "use_sandwich_norm": False, "tie_word_embeddings": False, "rope_parameters": {
         "full_attention": {"rope_type": "proportional", "rope_theta": 500.0, "partial_rotary_factor": 0.75, "factor": 2.0},
         "sliding_attention": {"rope_type": "linear", "rope_theta": 3000.0, "factor": 4.0}}})]
# The gated delta rule behind norms, attention before norms, turned or not.
OLMO = {"pad_token_id": 0, "eos_token_id": 1, "num_key_value_heads": 4}
FAMILIES["olmo_hybrid"] = [
    OLMO | {"num_hidden_layers": 5, "rope_parameters": {"rope_type": "default", "rope_theta": None}},
    OLMO | {"layer_types": ["full_attention", "linear_attention", "linear_attention"], "linear_num_key_heads": 2, "linear_num_value_heads": 4,
            "linear_key_head_dim": 16, "linear_value_head_dim": 24, "linear_conv_kernel_dim": 3, "linear_allow_neg_eigval": False,
            "num_key_value_heads": 2, "tie_word_embeddings": True}]
# The gated delta rule, attention with a window where heads turn, attention without positions; experts beside a shared one without a gate.
LARA = {key: value for key, value in BASE.items() if key != "intermediate_size"} | {
    "head_dim": 24, "sliding_window": 12, "num_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 32, "shared_expert_intermediate_size": 40,
    "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 16, "linear_value_head_dim": 24}
FAMILIES["lara_mini"] = [LARA | {"num_hidden_layers": 6}, LARA | {"layer_types": ["full_attention", "linear_attention", "sliding_attention"], "norm_topk_prob": False,
                                                                  "tie_word_embeddings": False, "linear_conv_kernel_dim": 3}]
# Kimi delta attention with bounded decays, latent attention with a gate for every head.
LING = {key: value for key, value in LATENT.items() if key not in ("n_routed_experts", "num_experts_per_tok", "n_shared_experts")} | {
    "num_local_experts": 8, "num_experts_per_tok": 3, "n_shared_experts": 2, "num_mtp_layers": 0, "head_dim": 12, "pad_token_id": 0, "eos_token_id": 1}
FAMILIES["bailing_hybrid"] = [
    LING | {"num_hidden_layers": 4, "layer_group_size": 3, "n_group": 4, "topk_group": 2, "first_k_dense_replace": 1},
    LING | {"layer_types": ["full_attention", "linear_attention", "linear_attention"], "mlp_layer_types": ["sparse", "dense", "sparse"], "q_lora_rank": 24,
            "n_group": 1, "topk_group": 1, "norm_topk_prob": False, "kda_safe_gate": False, "short_conv_kernel_size": 3, "rope_theta": 500.0},
    LING | {"num_hidden_layers": 2, "layer_group_size": 2, "n_group": 2, "topk_group": 1, "first_k_dense_replace": 0, "kda_lower_bound": -2.5}]
# A matrix memory in every layer; caps of gates and logits that are reached. (Models whose projections are one matrix transformers does not make.)
XLSTM = {"num_heads": 4, "ffn_round_up_to_multiple_of": 8, "autocast_kernel_dtype": "float32", "chunk_size": 16}
FAMILIES["xlstm"] = [XLSTM | {"gate_soft_cap": 2.0, "output_logit_soft_cap": 3.0}, XLSTM | {"qk_dim_factor": 1.0, "v_dim_factor": 2.0, "ffn_proj_factor": 1.3},
                     {"num_heads": 2, "autocast_kernel_dtype": "float32", "chunk_size": 16, "norm_eps": 1e-3}]
# Gated linear recurrent units, or attention with a window; a width of its own, in the place of the model's.
FAMILIES["recurrent_gemma"] = [{"num_hidden_layers": 4, "attention_window_size": 12, "num_key_value_heads": 1, "logits_soft_cap": 2.0, "conv1d_width": 3},
                               {"block_types": ["attention", "recurrent"], "lru_width": 64, "attention_window_size": 40, "attention_bias": True,
                                "tie_word_embeddings": False, "rope_parameters": {"rope_type": "default", "rope_theta": 500.0, "partial_rotary_factor": 0.25}}]
# Layers of flash-linear-attention, in some models attention between them.
HYBRID = {"attn": {"layers": [1], "num_heads": 4, "num_kv_heads": 2, "window_size": 12, "rope_theta": 500.0}}
FLA = {
    "gla": [{}, HYBRID | {"num_heads": 2, "num_kv_heads": 1, "expand_k": 1.0, "use_short_conv": True, "use_output_gate": False, "tie_word_embeddings": True},
            {"fuse_norm": False, "intermediate_size": 96}],
    "retnet": [{"num_heads": 4}, HYBRID | {"num_heads": 4, "num_kv_heads": 2, "expand_v": 1.0, "use_short_conv": True, "conv_size": 3, "use_output_gate": False}],
    "gated_deltanet": [{"num_heads": 2, "head_dim": 16, "num_v_heads": 4, "output_gate_activation": "sigmoid"},
                       HYBRID | {"num_heads": 3, "head_dim": 16, "expand_v": 1.5, "use_gate": False, "allow_neg_eigval": True, "norm_eps": 1e-3}],
    "delta_net": [{"num_heads": 4}, {"num_heads": 2, "use_gate": True, "allow_neg_eigval": True, "expand_k": 0.5, "expand_v": 1.5, "attn": [
        {"layers": [0], "num_heads": 2, "qkv_bias": True}, {"layers": [2], "num_heads": 4, "window_size": 5}]}],
    "kda": [{"num_heads": 4, "head_dim": 16}, HYBRID | {"num_heads": 2, "head_dim": 16, "expand_v": 2.0, "allow_neg_eigval": True, "safe_gate": True, "lower_bound": -4.5}],
    # Bounds of decays that layers learn together, attention's counted.
    "hgrn2": [{"expand_ratio": 16}, HYBRID | {"expand_ratio": None, "num_heads": 2, "norm_eps": 1e-3, "tie_word_embeddings": True},
              {"expand_ratio": 32, "use_lower_bound": False, "intermediate_size": 96, "use_short_conv": True, "conv_size": 3}],
    "rwkv6": [{"num_heads": 4}, HYBRID | {"num_heads": 2, "expand_k": 1.0, "expand_v": 2.0, "proj_low_rank_dim": 12, "gate_low_rank_dim": 20, "norm_first": False,
                                          "norm_bias": False, "norm_eps": 1e-3, "fuse_norm": False, "hidden_act": "relu", "intermediate_size": 96, "tie_word_embeddings": True}],
    # A first layer without a mixture of values, feed-forwards that see the token before. (Of other widths of values its initial values know nothing.)
    "rwkv7": [{"head_dim": 16}, {"head_dim": None, "num_heads": 2, "value_dim": [64, 64, 64], "decay_low_rank_dim": 8, "a_low_rank_dim": 12, "v_low_rank_dim": 20,
                                 "gate_low_rank_dim": 24, "norm_first": False, "norm_bias": False, "norm_eps": 1e-3, "fuse_norm": False, "hidden_act": "relu",
                                 "intermediate_size": 96, "tie_word_embeddings": True}, {"head_dim": 32, "hidden_ratio": 2.3, "num_hidden_layers": 2}],
    "transformer": [{"num_heads": 4}, {"num_heads": 4, "num_kv_heads": 2, "qkv_bias": True, "window_size": 12, "rope_theta": 500.0, "tie_word_embeddings": True}]}
try:
    import fla_on_cpu  # noqa: F401
    FAMILIES = FLA  # beside it transformers computes parts of other models with its kernels, on GPUs
except ImportError:
    FLA = {}
PREFILL = 32


FP8 = ("deepseek_v3", "minimax_m2", "qwen3_moe", "qwen3_next", "glm4_moe")  # published in that form, too


def run(*command):
    result = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    if result.returncode:
        sys.exit(f"{' '.join(map(str, command))}\n{result.stderr}")


def fix(model):
    for module in model.modules():
        # nemotron_h and zamba2 have time_step_min in its place where a prefill is computed, and nothing where a token is decoded
        if hasattr(module, "time_step_limit"):
            module.time_step_limit = tuple(getattr(model.config, "time_step_limit", (0.0, float("inf"))))
    return model.eval()


def publish(made, family, model):
    """Tensors as they were published: of dense layers of kimi_linear transformers, which reads both, writes feed-forwards as it does those with experts;
    the convolutions of olmo_hybrid, one where it computes, it writes as three of equal size, whatever they belong to."""
    files = sorted(made.glob("*.safetensors"))
    index = made / "model.safetensors.index.json"
    new = lambda name: re.sub(r"block_sparse_moe(\.(gate|up|down)_proj)", r"mlp\1", name) if family == "kimi_linear" else name
    convolutions = {}
    for name, mixer in model.named_modules() if family == "olmo_hybrid" else ():
        if hasattr(mixer, "conv1d"):
            parts = mixer.conv1d.weight.detach().split((mixer.key_dim, mixer.key_dim, mixer.value_dim))
            convolutions |= {f"{name}.{part}_conv1d.weight": weight.contiguous() for part, weight in zip("qkv", parts)}
    for file in files:
        tensors = {new(name): convolutions.get(name, weight) for name, weight in safetensors.torch.load_file(file).items()}
        safetensors.torch.save_file(tensors, file, {"format": "pt"})
    if index.exists():
        table = json.loads(index.read_text())
        table["weight_map"] = {new(name): file for name, file in table["weight_map"].items()}
        index.write_text(json.dumps(table))


def quantize(made, packed, plain):
    """Files as publishers of fp8 have them (matrices of layers but routers), and the same weights in f32, by PyTorch's type of 8 bits."""
    block, config = (32, 24), json.loads((made / "config.json").read_text())
    for target in (packed, plain):
        target.mkdir()
    (plain / "config.json").write_text(json.dumps(config))
    (packed / "config.json").write_text(json.dumps(config | {"quantization_config": {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": block}}))
    small, large = {}, {}
    for name, weight in ((name, weight) for file in made.glob("*.safetensors") for name, weight in safetensors.torch.load_file(file).items()):
        small[name] = large[name] = weight
        if weight.ndim == 2 and ".layers." in name and not name.endswith((".gate.weight", "norm.weight")):
            grow = lambda scales: scales.repeat_interleave(block[0], 0).repeat_interleave(block[1], 1)[: weight.shape[0], : weight.shape[1]]
            padded = torch.nn.functional.pad(weight.abs(), (0, -weight.shape[1] % block[1], 0, -weight.shape[0] % block[0]))
            scales = padded.unflatten(1, (-1, block[1])).unflatten(0, (-1, block[0])).amax((1, 3)) / 448
            small[name], small[name + "_scale_inv"] = (weight / grow(scales)).to(torch.float8_e4m3fn), scales
            large[name] = small[name].float() * grow(scales)
    for target, tensors in ((packed, small), (plain, large)):
        safetensors.torch.save_file({name: weight.contiguous() for name, weight in tensors.items()}, target / "model.safetensors", {"format": "pt"})


def rename(folder, family):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"model_type": family}))


def differences(model, program, checkpoint, folder):
    """-> the largest difference and the largest logit, of the prefill and of the token behind it."""
    tokens = np.random.default_rng(0).integers(0, 256, (1, PREFILL + 1)).astype(np.int32)
    with torch.no_grad():
        expected = model(torch.tensor(tokens).long()).logits[0].numpy()
    np.save(folder / "prefill.tokens.npy", tokens[:, :PREFILL])
    np.save(folder / "decode.tokens.npy", tokens[:, PREFILL:])
    calls = []
    for entry, name, before, count in ((f"prefill_{PREFILL}", "prefill", 0, PREFILL), ("decode_1", "decode", PREFILL, 1)):
        np.save(folder / f"{name}.documents.npy", np.array([[-before, count]], np.int32))
        calls.append(json.dumps({"function": entry, "inputs": {"tokens": f"{folder}/{name}.tokens.npy", "cu_seqlens": f"{folder}/{name}.documents.npy"},
                                 "outputs": {"logits": f"{folder}/{name}.npy"}}))
    (folder / "calls.jsonl").write_text("\n".join(calls))
    run("braid-run", "call", program, "--checkpoint", checkpoint, "--calls", folder / "calls.jsonl")
    pairs = [(np.load(folder / f"{name}.npy")[0], expected[at]) for name, at in (("prefill", PREFILL - 1), ("decode", PREFILL))]
    return [(float(np.abs(got - should).max()), float(np.abs(should).max())) for got, should in pairs]


def gradients(model, program, checkpoint, folder, save):
    """-> the worst tensor: how far braid-run's gradients of a batch's mean loss are from PyTorch's, as a share of their norm, its name, and how many there are.

    PyTorch's are saved by `save` as if they were weights, so that braid-run reads them, with the names and in the form of its own."""
    info = json.loads(subprocess.run(["braid-run", "info", program, "--json"], capture_output=True, text=True, check=True).stdout)
    description = json.loads(info["metadata"]["model_json"])
    names = [t["name"].removesuffix(".first") for t in info["tensors"] if t["name"].endswith(".first")]
    rows, length = int(info["metadata"]["batch"]), int(info["metadata"]["seq_len"])
    rng = np.random.default_rng(7)
    padding = getattr(model.get_input_embeddings(), "padding_idx", None)  # whose row PyTorch keeps at 0 and never trains
    tokens = rng.choice([token for token in range(256) if token != padding], (rows, length))
    given = {"tokens": tokens, "labels": rng.integers(0, 256, (rows, length)), "cu_seqlens": np.tile([0, length], (rows, 1)), "step": np.ones(1)}
    given = {name: array.astype(np.int32) for name, array in given.items()} | {"learning_rate": np.zeros(1, np.float32)}
    for name, array in given.items():
        np.save(folder / f"{name}.npy", array)
    place = lambda kind, name: f"{folder}/{kind}-{name.replace('/', '_')}.npy"
    call = lambda what, function, inputs, outputs: (folder / what).write_text(json.dumps({"function": function, "inputs": inputs, "outputs": outputs}))
    call("train.jsonl", "train_step", {name: f"{folder}/{name}.npy" for name in given}, {f"{name}.first": place("ours", name) for name in names} | {"grad_norm": f"{folder}/norm.npy"})
    run("braid-run", "call", program, "--checkpoint", checkpoint, "--calls", folder / "train.jsonl")
    with torch.enable_grad():
        model.zero_grad()
        logits = model(torch.tensor(given["tokens"]).long()).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), torch.tensor(given["labels"]).long().flatten())
        try:
            loss.backward()
        except RuntimeError as error:  # xlstm's own PyTorch computes in place
            return 0.0, f"none: PyTorch: {str(error).split(':')[0]}", 0
    largest = max(float(p.grad.abs().max()) for p in model.parameters() if p.grad is not None)
    scale = 1e4 / largest  # so that what import adds to a weight hides none
    kept = [(p, p.data.clone()) for p in model.parameters()] + [(b, b.data.clone()) for b in model.buffers()]
    for p in model.parameters():
        p.data = torch.zeros_like(p) if p.grad is None else p.grad * scale
    theirs = folder / "gradients"
    save(theirs)
    for tensor, data in kept:
        tensor.data = data
    call("read.jsonl", f"prefill_{PREFILL}", {"tokens": f"{folder}/prefill.tokens.npy", "cu_seqlens": f"{folder}/prefill.documents.npy"}, {name: place("theirs", name) for name in names})
    run("braid-run", "call", program, "--checkpoint", theirs, "--calls", folder / "read.jsonl")
    train = {"clip_norm": 1.0, "beta1": 0.9} | description.get("train", {})
    moment = (1 - train["beta1"]) * min(1.0, train["clip_norm"] / float(np.load(folder / "norm.npy")[0]))
    worst = (0.0, "", len(names))
    for name in names:
        how = description["import"]["weights"].get(re.sub(r"layers\.(\{\}|\d+)\.", "layers.{layer}.", name)) or description["import"]["weights"].get(name)
        how = how if isinstance(how, dict) else {}
        expected = (np.load(place("theirs", name)).astype(np.float64) - how.get("plus", 0)) / how.get("times", 1) ** 2 / scale
        got = np.load(place("ours", name)).astype(np.float64) / moment
        # What is nothing but rounding (of a bias of keys, which a softmax does not see) is as small.
        size = max(np.linalg.norm(expected), 1e-5 * largest)
        worst = max(worst, (float(np.linalg.norm(got - expected) / size), name, len(names)))
    return worst


def compare(family, more, folder):
    """-> `differences` of the model as transformers made it, of the one that was trained and exported, and of one whose files are fp8."""
    torch.manual_seed(1)
    given = {"vocab_size": 256, "hidden_size": 64, "initializer_range": 0.2, "num_hidden_layers": 3} if "mamba" in family and family in ONE_PART else BASE
    if family == "xlstm":
        given = {"vocab_size": 256, "hidden_size": 128, "num_hidden_layers": 3}  # widths of keys and values in its caches are multiples of 64
    if family == "recurrent_gemma":
        given = {key: value for key, value in BASE.items() if key != "initializer_range"}
    if family == "lara_mini":
        given = {}
    if family in FLA:
        given = {key: BASE[key] for key in ("vocab_size", "hidden_size", "num_hidden_layers", "initializer_range", "max_position_embeddings")}
    if family == "nemotron_h":
        given = {key: value for key, value in BASE.items() if key != "num_hidden_layers"}
    kind = transformers.AutoModelForCausalLM
    if family in PARTS:
        given, more = {"text_config": given | more, "vision_config": VISION}, {"tie_word_embeddings": more["tie_word_embeddings"]}
        kind = transformers.AutoModelForImageTextToText
    config = transformers.AutoConfig.for_model(RENAMED.get(family, family), **(given | more))
    model = fix(kind.from_config(config, dtype=torch.float32))
    for name, weight in model.named_parameters():
        if weight.ndim == 1 or name.endswith(("A_log", "proj_bias")):  # norms and biases begin all alike, decay rates in all channels
            weight.data += 0.3 * torch.randn_like(weight)
        if family in ("rwkv6", "rwkv7"):  # much of it begins as 0, or all but
            weight.data += 0.2 * torch.randn_like(weight)
        if name.endswith("lower_bounds"):  # all alike
            weight.data += torch.randn_like(weight)
        if family == "xlstm" and "gate_preact" in name:  # which begin all but shut
            weight.data = 0.3 * torch.randn_like(weight)
    for name, correction in (*model.named_buffers(), *model.named_parameters()):
        if name.endswith(("e_score_correction_bias", "expert_bias")):
            correction.data += 0.1 * torch.randn_like(correction)
    made, program, trained, exported = folder / "made", folder / "p.braid", folder / "trained", folder / "exported"

    def save(target):
        model.save_pretrained(target, max_shard_size="100KB")
        if family == "olmo_hybrid" or family == "kimi_linear" and "mlp_layer_types" in more:  # the other as transformers writes it
            publish(target, family, model)
        if family in RENAMED:
            rename(target, family)

    save(made)
    run("braid-compile", made / "config.json", "-o", program, "--batch=2", "--seq-len=64")
    (folder / "text.txt").write_text("Pack my box with five dozen liquor jugs. " * 20)
    run("braid-run", "train", program, "--init-from", made, "--data", folder / "text.txt", "--steps=3", "--lr=0.02", "--warmup=0", "--checkpoint-dir", trained)
    run("braid-run", "export", program, "--checkpoint", trained, "--like", made, "--output", exported)
    if family in RENAMED:
        rename(exported, RENAMED[family])
    read, loading = kind.from_pretrained(exported, dtype=torch.float32, output_loading_info=True)
    if any(loading[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys")):
        sys.exit(f"{family}: {loading}")
    results = {"": differences(model, program, made, folder), "gradients": gradients(model, program, made, folder, save), "trained and exported ": differences(fix(read), program, trained, folder)}
    if family in FP8:
        quantize(made, folder / "packed", folder / "plain")
        results["fp8 "] = differences(fix(kind.from_pretrained(folder / "plain", dtype=torch.float32)), program, folder / "packed", folder)
    return results


wrong = 0
for family in sys.argv[1:] or FAMILIES:
    for more in FAMILIES[family]:
        with tempfile.TemporaryDirectory() as folder:
            results = compare(family, more, pathlib.Path(folder))
        share, tensor, count = results.pop("gradients")
        isWrong = not share < 5e-3
        wrong += isWrong
        print(f"{family} {json.dumps(more)}: gradients of {count} tensors, worst {tensor} {share:.2g}{' WRONG' if isWrong else ''}", flush=True)
        for what, ((prefill, scale), (decode, behind)) in results.items():
            isWrong = not (prefill < 1e-4 * scale and decode < 1e-4 * behind)
            wrong += isWrong
            print(f"{family} {json.dumps(more)}: {what}prefill {prefill:.2g} of {scale:.3g}, decode {decode:.2g} of {behind:.3g}{' WRONG' if isWrong else ''}",
                  flush=True)
print(f"{wrong} wrong, transformers {transformers.__version__}, PyTorch {torch.__version__}")
sys.exit(wrong > 0)
