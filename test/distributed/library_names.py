"""Small configs of families of transformers, and what that calls the weights of their models: our names, tensors and orientation to theirs.

Written down from the files that it writes, not from how braid reads them (frontend/HuggingFaceWeights.cpp). import_weights.py compares the two.
"""
import re

import numpy as np

BASE = {"vocab_size": 256, "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 48,
        "max_position_embeddings": 64, "train": {"batch": 2, "seq_len": 32}}
CONFIGS = {
    "qwen3_moe": {"head_dim": 12, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24, "mlp_only_layers": [1]},
    "mixtral": {"num_local_experts": 4, "num_experts_per_tok": 2},
    "qwen2": {"tie_word_embeddings": True},
    "qwen3_next": {"head_dim": 8, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24, "shared_expert_intermediate_size": 20,
                   "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8, "linear_value_head_dim": 12,
                   "full_attention_interval": 3},
    "minimax": {"layer_types": ["linear_attention", "full_attention", "linear_attention"], "num_local_experts": 4, "num_experts_per_tok": 2,
                "linear_attn_beta_factor": 0.5},
    "glm4_moe": {"n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24, "n_shared_experts": 2, "attention_bias": True,
                 "use_qk_norm": True},
    "minimax_m2": {"head_dim": 12, "num_local_experts": 4, "num_experts_per_tok": 2, "rotary_dim": 4},
    "gemma": {"head_dim": 12, "hidden_act": "gelu"},
    "gpt_oss": {"head_dim": 12, "sliding_window": 8, "num_local_experts": 4, "num_experts_per_tok": 2},
    "gemma3_text": {"head_dim": 12, "sliding_window": 8, "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]},
    "olmo3": {"head_dim": 12, "sliding_window": 8, "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
              "rope_scaling": {"rope_type": "yarn", "factor": 4, "original_max_position_embeddings": 16}},
    "exaone4": {"head_dim": 12, "sliding_window": 8, "sliding_window_pattern": 2},
    "phi3": {"head_dim": 12, "sliding_window": 8, "partial_rotary_factor": 0.5},
    "glm4": {"head_dim": 12},
    "ernie4_5_moe": {"moe_num_experts": 4, "moe_k": 2, "moe_intermediate_size": 24},
}
CONFIGS["gemma2"] = {"head_dim": 12, "sliding_window": 8, "attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0}
CONFIGS["qwen3_5_moe_text"] = CONFIGS["qwen3_next"]
PLUS_ONE = ("qwen3_next", "qwen3_5_moe_text", "gemma", "gemma2", "gemma3_text", "recurrent_gemma")  # norms that multiply by 1 + weight
# Layers of one part.
SMALL = {key: BASE[key] for key in ("vocab_size", "hidden_size", "train")}
ONE_PART = {
    "mamba": SMALL | {"num_hidden_layers": 2, "state_size": 6, "time_step_rank": 3},
    "falcon_mamba": SMALL | {"num_hidden_layers": 2, "state_size": 6, "time_step_rank": 3, "expand": 3},
    "mamba2": SMALL | {"num_hidden_layers": 2, "num_heads": 4, "head_dim": 16, "state_size": 12, "n_groups": 2, "tie_word_embeddings": True},
    "nemotron_h": SMALL | {"hybrid_override_pattern": "M-*ME", "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24,
                           "moe_shared_expert_intermediate_size": 20, "moe_latent_size": 16, "n_group": 2, "topk_group": 1, "mamba_num_heads": 4, "mamba_head_dim": 8, "ssm_state_size": 12, "n_groups": 2,
                           "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 12, "intermediate_size": 48, "use_conv_bias": False},
}
# Mamba-2 or attention, then a feed-forward; of experts one tensor.
MAMBA = BASE | {"mamba_n_heads": 4, "mamba_d_state": 12, "mamba_n_groups": 2}
GRANITE = MAMBA | {"layer_types": ["mamba", "attention", "mamba"], "shared_intermediate_size": 20, "intermediate_size": 24, "embedding_multiplier": 6,
                   "logits_scaling": 3, "residual_multiplier": 0.5, "attention_multiplier": 0.25}
WITH_MAMBA = {
    "granitemoehybrid": GRANITE | {"num_local_experts": 4, "num_experts_per_tok": 2, "tie_word_embeddings": True},
    "granitemoehybrid-dense": GRANITE | {"num_local_experts": 0, "position_embedding_type": "rope", "mamba_conv_bias": False},
    "bamba": MAMBA | {"attn_layer_indices": [1]},
    "jamba": BASE | {"attn_layer_period": 3, "attn_layer_offset": 1, "num_experts": 4, "mamba_d_state": 6, "mamba_dt_rank": 3},
    "falcon_h1": MAMBA | {"mamba_d_ssm": 64, "mamba_rms_norm": True, "mamba_proj_bias": True, "projectors_bias": True, "attention_bias": True, "mlp_bias": True,
                          "ssm_multipliers": [0.5, 2, 0.25, 1.5, 3], "mlp_multipliers": [0.5, 2], "key_multiplier": 0.5, "ssm_in_multiplier": 2},
    # Two blocks in turns: the first one's layers are 1 and 4.
    "zamba2": BASE | {"num_hidden_layers": 5, "layers_block_type": ["linear_attention", "hybrid", "hybrid", "linear_attention", "hybrid"], "num_mem_blocks": 2,
                      "num_key_value_heads": 4, "n_mamba_heads": 4, "mamba_d_state": 12, "mamba_ngroups": 2, "adapter_rank": 3, "use_shared_attention_adapter": True,
                      "use_mem_rope": True, "add_bias_linear": True},
}
# Keys and values of a latent.
MLA = BASE | {"num_key_value_heads": 4, "kv_lora_rank": 12, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 6, "num_experts_per_tok": 2,
              "moe_intermediate_size": 24, "first_k_dense_replace": 1}
LATENT = {
    "deepseek_v2": MLA | {"q_lora_rank": None, "n_routed_experts": 4, "n_shared_experts": 2},
    "deepseek_v3": MLA | {"q_lora_rank": 10, "n_routed_experts": 4, "n_group": 2, "topk_group": 1},
    "kimi_linear": {key: value for key, value in MLA.items() if key != "num_experts_per_tok"} | {
        "num_experts": 4, "num_experts_per_token": 2,
        "linear_attn_config": {"kda_layers": [1, 3], "full_attn_layers": [2], "num_heads": 4, "head_dim": 8, "short_conv_kernel_size": 3}},
    "bailing_hybrid": {key: value for key, value in MLA.items() if key != "num_experts_per_tok"} | {
        "num_experts": 4, "num_experts_per_token": 2, "num_expert_group": 2, "topk_group": 1, "layer_group_size": 2, "head_dim": 8,
        "short_conv_kernel_size": 3},
}
# Short convolutions or attention; norms of each layer where its mixer has them.
WITH_CONVOLUTIONS = {
    "lfm2": BASE | {"full_attn_idxs": [1], "block_ff_dim": 60, "block_multiple_of": 8, "conv_bias": True},
    "lfm2_moe": BASE | {"layer_types": ["conv", "full_attention", "conv"], "num_dense_layers": 1, "num_experts": 4, "num_experts_per_tok": 2,
                        "moe_intermediate_size": 24, "conv_L_cache": 4},
    "lfm3": BASE | {"layer_types": ["conv", "sliding_attention", "full_attention"], "head_dim": 12, "sliding_window": 8},
    "olmo_hybrid": BASE | {"layer_types": ["linear_attention", "full_attention", "linear_attention"], "linear_num_key_heads": 2, "linear_key_head_dim": 8,
                           "linear_value_head_dim": 12, "rope_parameters": {"rope_type": "default", "rope_theta": None}},
}
WITH_CONVOLUTIONS["lara_mini"] = {key: value for key, value in BASE.items() if key != "intermediate_size"} | {
    "layer_types": ["linear_attention", "sliding_attention", "full_attention"], "head_dim": 12, "sliding_window": 8, "num_experts": 4, "num_experts_per_tok": 2,
    "moe_intermediate_size": 24, "shared_expert_intermediate_size": 20, "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8,
    "linear_value_head_dim": 12}
# Matrix memories, whose projections may be one matrix; gated recurrent units or attention.
XLSTM = SMALL | {"num_hidden_layers": 2, "num_heads": 4, "ffn_round_up_to_multiple_of": 8}
RECURRENT = {
    "xlstm": XLSTM | {"qk_dim_factor": 1.0, "v_dim_factor": 0.75},
    "xlstm-fused": XLSTM | {"weight_mode": "fused"},
    "recurrent_gemma": BASE | {"num_key_value_heads": 1, "attention_window_size": 8, "lru_width": 48},
}
# Layers of flash-linear-attention, attention between them.
FLA = {name: SMALL | {"num_hidden_layers": 3, "attn": {"layers": [1], "num_heads": 4, "num_kv_heads": 2, "qkv_bias": name == "kda"}} | more for name, more in {
    "gla": {"use_short_conv": True, "num_heads": 2}, "retnet": {"num_heads": 4, "use_output_gate": False}, "kda": {"num_heads": 2, "head_dim": 8, "expand_v": 2.0},
    "hgrn2": {"expand_ratio": 8, "use_short_conv": True}, "gated_deltanet": {"num_heads": 2, "num_v_heads": 4, "head_dim": 8}, "delta_net": {"num_heads": 4, "use_gate": True}}.items()}
FLA["rwkv6"] = SMALL | {"num_hidden_layers": 3, "num_heads": 4, "expand_k": 1.5, "proj_low_rank_dim": 3, "gate_low_rank_dim": 5, "norm_first": False}
FLA["rwkv7"] = SMALL | {"num_hidden_layers": 3, "head_dim": 8, "decay_low_rank_dim": 6, "a_low_rank_dim": 4, "v_low_rank_dim": 3, "gate_low_rank_dim": 5}


def is_unread(name):
    return name.startswith(("mtp.", "model.mtp_", "model.layers.3.")) or name.endswith(("query_decay", "diagonal_decay"))


def of_transformers(family, ours):
    """Our tensors as transformers has them."""
    theirs = {}
    isLocal = family in ("mixtral", "minimax", "minimax_m2")
    block = "block_sparse_moe" if isLocal else "mlp"
    expert = {"w1": "w1", "w3": "w3", "w2": "w2"} if isLocal else {"w1": "gate_proj", "w3": "up_proj", "w2": "down_proj"}
    norms = ("post_attention", "post_feedforward") if family in ("olmo3", "exaone4") else ("input", "post_attention")
    plain = {"norm1.weight": f"{norms[0]}_layernorm.weight", "norm2.weight": f"{norms[1]}_layernorm.weight",
             "attn.q_norm.weight": "self_attn.q_norm.weight", "attn.k_norm.weight": "self_attn.k_norm.weight"}
    turned = {f"attn.w{x}": f"self_attn.{x}_proj.weight" for x in "qkvo"} | {
        "ffn.w1": "mlp.gate_proj.weight", "ffn.w3": "mlp.up_proj.weight", "ffn.w2": "mlp.down_proj.weight", "moe.router": f"{block}.gate.weight"}
    for name, value in ours.items():
        if name in ("embed.weight", "final_norm.weight"):
            theirs[{"embed.weight": "model.embed_tokens.weight", "final_norm.weight": "model.norm.weight"}[name]] = value
        elif name == "head.weight":
            theirs["lm_head.weight"] = value.T
        else:
            _, layer, part = name.split(".", 2)
            at = f"model.layers.{layer}."
            if part in plain:
                theirs[at + plain[part]] = value
            elif part in turned:
                theirs[at + turned[part]] = value.T
            elif part in ("lsm.wq", "lsm.wk", "lsm.wv"):  # of each head all three
                heads = np.stack([ours[f"layers.{layer}.lsm.w{x}"].T.reshape(4, 8, 32) for x in "qkv"], axis=1)
                theirs[at + "self_attn.qkv_proj.weight"] = heads.reshape(96, 32)
            elif part.startswith("lsm."):
                name = {"lsm.wg": "output_gate.weight", "lsm.wo": "out_proj.weight", "lsm.norm.weight": "norm.weight", "lsm.log_decay": "slope_rate"}[part]
                theirs[at + "self_attn." + name] = -value.reshape(4, 1, 1) if "decay" in part else value.T.reshape(-1) if "norm" in part else value.T
            elif part == "moe.correction" and family == "ernie4_5_moe":
                theirs[at + "mlp.moe_statics.e_score_correction_bias"] = value[None]
            elif part == "moe.correction":
                theirs[at + ("block_sparse_moe" if isLocal else "mlp.gate") + ".e_score_correction_bias"] = value
            elif part.startswith("shared."):
                theirs[at + f"mlp.shared_experts.{expert[part.removeprefix('shared.')]}.weight"] = value.T
            elif part.startswith("attn.b"):
                theirs[at + f"self_attn.{part[-1]}_proj.bias"] = value.reshape(-1)
            else:
                for i, matrix in enumerate(value):
                    theirs[at + f"{block}.experts.{i}.{expert[part.removeprefix('moe.')]}.weight"] = matrix.T
    if family == "minimax":
        theirs |= {f"model.layers.{layer}.self_attn.{name}_decay": np.ones((4, 2, 2), np.float32) for layer in (0, 2) for name in ("query", "diagonal")}
    if family == "glm4_moe":
        theirs["model.layers.3.eh_proj.weight"] = np.ones((3, 2), np.float32)
    if family == "ernie4_5_moe":
        theirs["model.mtp_linear_proj.0.weight"] = np.ones((3, 2), np.float32)
    return theirs


def of_fused(family, ours):
    """The same of families whose gate is in one matrix with what it opens: glm4, with norms behind the parts, phi3, with one matrix for q, k and v."""
    theirs = of_transformers(family, {name: value for name, value in ours.items() if not name.endswith("_post.weight")})
    for layer in range(BASE["num_hidden_layers"]):
        at = f"model.layers.{layer}."
        theirs[at + "mlp.gate_up_proj.weight"] = np.concatenate([theirs.pop(at + f"mlp.{part}_proj.weight") for part in ("gate", "up")])
        if family == "phi3":
            theirs[at + "self_attn.qkv_proj.weight"] = np.concatenate([theirs.pop(at + f"self_attn.{part}_proj.weight") for part in "qkv"])
        else:
            theirs |= {at + f"post_{part}_layernorm.weight": ours[f"layers.{layer}.{name}_post.weight"]
                       for part, name in (("self_attn", "norm1"), ("mlp", "norm2"))}
    return theirs


def of_qwen3_next(family, ours):
    """The same of a family that fuses what a head reads, and whose norms multiply by 1 + weight."""
    theirs = {}
    fused = ("attn.wq", "attn.wg", "lsm.")
    rest = {name: value for name, value in ours.items() if not any(part in name for part in fused) and "shared." not in name}
    for name, value in of_transformers("qwen3_next", rest).items():
        theirs[name] = value - 1 if "norm" in name else value
    for layer in range(BASE["num_hidden_layers"]):
        of = {name.split(".", 2)[2]: value for name, value in ours.items() if name.startswith(f"layers.{layer}.")}
        at = f"model.layers.{layer}."
        for part, name in (("w1", "gate_proj"), ("w3", "up_proj"), ("w2", "down_proj")):
            theirs[at + f"mlp.shared_expert.{name}.weight"] = of["shared." + part].T
        theirs[at + "mlp.shared_expert_gate.weight"] = of["shared.gate"].reshape(1, -1)
        if "attn.wq" in of:
            theirs[at + "self_attn.q_proj.weight"] = np.stack([of[f"attn.w{x}"].T.reshape(4, 8, 32) for x in "qg"], axis=1).reshape(64, 32)
            continue
        at += "linear_attn."
        if family == "qwen3_5_moe_text":
            theirs[at + "in_proj_qkv.weight"] = np.concatenate([of[f"lsm.w{x}"].T for x in "qkv"])
            theirs |= {at + f"in_proj_{name}.weight": of[f"lsm.w{x}"].T for name, x in (("z", "g"), ("b", "b"), ("a", "a"))}
        per_head = [of[f"lsm.w{x}"].T.reshape(2, -1, 32) for x in "qkvg"], [of[f"lsm.w{x}"].T.reshape(2, -1, 32) for x in "ba"]
        for name, parts in zip(("in_proj_qkvz", "in_proj_ba") if family == "qwen3_next" else (), per_head):
            theirs[at + name + ".weight"] = np.concatenate(parts, axis=1).reshape(-1, 32)
        theirs[at + "conv1d.weight"] = np.concatenate([of[f"lsm.conv_{x}.weight"] for x in "qkv"])[:, None, :]
        theirs |= {at + "A_log": of["lsm.a_log"], at + "dt_bias": of["lsm.dt_bias"], at + "norm.weight": of["lsm.norm.weight"],
                   at + "out_proj.weight": of["lsm.wo"].T}
    return theirs | {"mtp.fc.weight": np.ones((3, 2), np.float32)}


def of_lara(ours):
    """All that a gated delta rule reads is one matrix, all experts are two tensors; a shared expert without a gate."""
    theirs = of_transformers("qwen3_next", {name: value for name, value in ours.items() if not any(part in name for part in ("lsm.", "shared.", "moe.w"))})
    for layer in range(BASE["num_hidden_layers"]):
        of = {name.split(".", 2)[2]: value for name, value in ours.items() if name.startswith(f"layers.{layer}.")}
        at = f"model.layers.{layer}."
        gates, opened, down = (of[f"moe.{part}"].transpose(0, 2, 1) for part in ("w1", "w3", "w2"))
        theirs |= {at + "mlp.experts.gate_up_proj": np.concatenate([gates, opened], axis=1), at + "mlp.experts.down_proj": down}
        theirs |= {at + f"mlp.shared_expert.{name}_proj.weight": of["shared." + part].T for part, name in (("w1", "gate"), ("w3", "up"), ("w2", "down"))}
        if "lsm.wq" in of:
            at += "linear_attn."
            theirs[at + "in_proj.weight"] = np.concatenate([of[f"lsm.w{x}"].T for x in "qkvgba"])
            theirs[at + "conv1d.weight"] = np.concatenate([of[f"lsm.conv_{x}.weight"] for x in "qkv"])[:, None, :]
            theirs |= {at + "A_log": of["lsm.a_log"], at + "dt_bias": of["lsm.dt_bias"], at + "out_norm.weight": of["lsm.norm.weight"],
                       at + "out_proj.weight": of["lsm.wo"].T}
    return theirs


def of_gemma(family, ours):
    """The same with norms that multiply by 1 + weight; in all but the first gemma one behind each part, too."""
    theirs = of_transformers(family, {name: value for name, value in ours.items() if not name.endswith("_post.weight")})
    for layer in range(BASE["num_hidden_layers"] if family != "gemma" else 0):
        at = f"model.layers.{layer}."
        theirs[at + "pre_feedforward_layernorm.weight"] = theirs[at + "post_attention_layernorm.weight"]
        theirs |= {at + f"post_{part}_layernorm.weight": ours[f"layers.{layer}.{name}_post.weight"]
                   for part, name in (("attention", "norm1"), ("feedforward", "norm2"))}
    return {name: value - 1 if "norm" in name else value for name, value in theirs.items()}


def of_gpt_oss(ours):
    """Experts that are one tensor, in which columns of gates and of what they open take turns, and biases of all."""
    theirs = of_transformers("llama", {name: value for name, value in ours.items() if "moe." not in name and "sinks" not in name})
    pairs = lambda gate, up: np.stack([gate, up], axis=-1).reshape(*gate.shape[:-1], -1)
    for layer in range(BASE["num_hidden_layers"]):
        of = {name.split(".", 2)[2]: value for name, value in ours.items() if name.startswith(f"layers.{layer}.")}
        at = f"model.layers.{layer}."
        theirs |= {at + "self_attn.sinks": of["attn.sinks"], at + "mlp.router.weight": of["moe.router"].T, at + "mlp.router.bias": of["moe.router_bias"],
                   at + "mlp.experts.gate_up_proj": pairs(of["moe.w1"], of["moe.w3"]), at + "mlp.experts.gate_up_proj_bias": pairs(of["moe.b1"], of["moe.b3"]),
                   at + "mlp.experts.down_proj": of["moe.w2"], at + "mlp.experts.down_proj_bias": of["moe.b2"]}
    return theirs


def of_one_part(ours):
    """The same of families whose layers have one part: what reads x, and what a convolution reads, is one matrix."""
    theirs = {"backbone.embeddings.weight": ours["embed.weight"], "backbone.norm_f.weight": ours["final_norm.weight"]}
    if "head.weight" in ours:
        theirs["lm_head.weight"] = ours["head.weight"].T
    for layer in range(1 + max(int(name.split(".")[1]) for name in ours if name.startswith("layers."))):
        of = {name.split(".", 2)[2]: value for name, value in ours.items() if name.startswith(f"layers.{layer}.")}
        at = f"backbone.layers.{layer}."
        theirs[at + "norm.weight"] = of.get("norm1.weight", of.get("norm2.weight"))
        at += "mixer."
        rows = lambda parts: np.concatenate([of[f"lsm.{part}"].T for part in parts])
        if "ffn.w1" in of:
            theirs |= {at + "up_proj.weight": of["ffn.w1"].T, at + "down_proj.weight": of["ffn.w2"].T}
        elif "attn.wq" in of:
            theirs |= {at + f"{x}_proj.weight": of[f"attn.w{x}"].T for x in "qkvo"}
        elif "moe.w1" in of:
            theirs |= {at + "gate.weight": of["moe.router"].T, at + "gate.e_score_correction_bias": of["moe.correction"],
                       at + "fc1_latent_proj.weight": of["moe.latent_in"].T, at + "fc2_latent_proj.weight": of["moe.latent_out"].T}
            for part, name in (("w1", "up_proj"), ("w2", "down_proj")):
                theirs[at + f"shared_experts.{name}.weight"] = of["shared." + part].T
                theirs |= {at + f"experts.{i}.{name}.weight": matrix.T for i, matrix in enumerate(of["moe." + part])}
        else:
            first = "lsm.wdt_a" in of
            convolved = "v" if first else "vkq"
            theirs[at + "conv1d.weight"] = np.concatenate([of[f"lsm.conv_{x}.weight"] for x in convolved])[:, None, :]
            if "lsm.conv_v.bias" in of:
                theirs[at + "conv1d.bias"] = np.concatenate([of[f"lsm.conv_{x}.bias"].reshape(-1) for x in convolved])
            theirs[at + "in_proj.weight"] = rows(("wv", "wg") if first else ("wg", "wv", "wk", "wq", "wdt"))
            theirs |= {at + "out_proj.weight": of["lsm.wo"].T, at + "D": of["lsm.d"].reshape(-1)}
            if first:
                theirs |= {at + "x_proj.weight": rows(("wdt_a", "wk", "wq")), at + "dt_proj.weight": of["lsm.wdt_b"].T,
                           at + "dt_proj.bias": of["lsm.dt_bias"].reshape(-1), at + "A_log": of["lsm.a_log"][0].T}
            else:
                theirs |= {at + "dt_bias": of["lsm.dt_bias"], at + "A_log": of["lsm.a_log"], at + "norm.weight": of["lsm.norm.weight"]}
    return theirs


def of_mamba(family, ours):
    """The same of families with Mamba-2 or attention, then a feed-forward."""
    isBamba = family in ("bamba", "jamba", "falcon_h1")  # names of feed-forwards and of the norms around them
    theirs = {"model.embed_tokens.weight": ours["embed.weight"], f"model.{'final_layernorm' if isBamba else 'norm'}.weight": ours["final_norm.weight"]}
    if "head.weight" in ours:
        theirs["lm_head.weight"] = ours["head.weight"].T
    for layer in range(BASE["num_hidden_layers"]):
        of = {name.split(".", 2)[2]: value for name, value in ours.items() if name.startswith(f"layers.{layer}.")}
        at = f"model.layers.{layer}."
        theirs |= {at + "input_layernorm.weight": of["norm1.weight"],
                   at + f"{'pre_ff' if isBamba else 'post_attention'}_layernorm.weight": of["norm2.weight"]}
        if family == "falcon_h1":  # side by side, with biases of all projections
            of = {re.sub(r"^mixer\d\.", "", name): value for name, value in of.items()}
            theirs |= {at + f"self_attn.{x}_proj.bias": of[f"attn.b{x}"].reshape(-1) for x in "qkvo"}
            theirs |= {at + "mamba.in_proj.bias": np.concatenate([of[f"lsm.b{x}"].reshape(-1) for x in ("g", "v", "k", "q", "dt")]), at + "mamba.out_proj.bias": of["lsm.bo"]}
            theirs |= {at + f"feed_forward.{name}_proj.bias": of[f"ffn.{part}"] for name, part in (("gate", "b1"), ("up", "b3"), ("down", "b2"))}
        if "attn.wq" in of:
            theirs |= {at + f"self_attn.{x}_proj.weight": of[f"attn.w{x}"].T for x in "qkvo"}
        if "lsm.wo" in of:
            mixer = of_one_part({"embed.weight": 0, "final_norm.weight": 0, "layers.0.norm1.weight": 0} |
                                {f"layers.0.{name}": value for name, value in of.items() if name.startswith("lsm.")})
            theirs |= {at + "mamba." + name.split("mixer.")[1]: value for name, value in mixer.items() if "mixer." in name}
        theirs |= {at + f"mamba.{name}_layernorm.weight": of[f"lsm.{part}_norm.weight"]
                   for name, part in (("dt", "dt"), ("b", "k"), ("c", "q")) if f"lsm.{part}_norm.weight" in of}
        if isBamba:
            for name, part in (("gate", "w1"), ("up", "w3"), ("down", "w2")):
                if "moe.w1" in of:
                    theirs |= {at + f"feed_forward.experts.{i}.{name}_proj.weight": matrix.T for i, matrix in enumerate(of[f"moe.{part}"])}
                else:
                    theirs[at + f"feed_forward.{name}_proj.weight"] = of[f"ffn.{part}"].T
            if "moe.w1" in of:
                theirs[at + "feed_forward.router.weight"] = of["moe.router"].T
            continue
        alone = "shared" if "shared.w1" in of else "ffn"
        theirs |= {at + "shared_mlp.input_linear.weight": np.concatenate([of[alone + ".w1"].T, of[alone + ".w3"].T]),
                   at + "shared_mlp.output_linear.weight": of[alone + ".w2"].T}
        if "moe.w1" in of:
            turned = {part: of[f"moe.{part}"].transpose(0, 2, 1) for part in ("w1", "w3", "w2")}
            theirs |= {at + "block_sparse_moe.router.layer.weight": of["moe.router"].T,
                       at + "block_sparse_moe.input_linear.weight": np.concatenate([turned["w1"], turned["w3"]], axis=1),
                       at + "block_sparse_moe.output_linear.weight": turned["w2"]}
    return theirs


def of_zamba(ours):
    """Blocks that layers share, stored where they are used first; products of low rank are in them by the number of the layer among those with blocks."""
    theirs = {"model.embed_tokens.weight": ours["embed.weight"], "model.final_layernorm.weight": ours["final_norm.weight"]}
    uses = [1, 2, 4]
    for layer in range(5):
        of = {name.split(".", 2)[2]: value for name, value in ours.items() if name.startswith(f"layers.{layer}.")}
        mixer = of_one_part({"embed.weight": 0, "final_norm.weight": 0, "layers.0.norm1.weight": 0} |
                            {f"layers.0.{name}": value for name, value in of.items() if name.startswith("lsm.")})
        at = f"model.layers.{layer}." + ("mamba_decoder." if layer in uses else "")
        theirs |= {at + "mamba." + name.split("mixer.")[1]: value for name, value in mixer.items() if "mixer." in name}
        theirs |= {at + "input_layernorm.weight": of["norm1.weight"], at + "mamba.out_proj.bias": of["lsm.bo"],
                   at + "mamba.in_proj.bias": np.concatenate([of[f"lsm.b{x}"].reshape(-1) for x in ("g", "v", "k", "q", "dt")])}
        if layer not in uses:
            continue
        number, block = uses.index(layer), {1: 1, 2: 2, 4: 1}[layer]
        theirs[f"model.layers.{layer}.linear.weight"] = of["inject.wi"].T
        at = f"model.layers.{block}.shared_transformer."
        theirs |= {at + f"feed_forward.gate_up_proj_adapter_list.{number}.0.weight": of["inject.ffn.a"].T,
                   at + f"feed_forward.gate_up_proj_adapter_list.{number}.1.weight": np.concatenate([of["inject.ffn.w1_b"].T, of["inject.ffn.w3_b"].T])}
        theirs |= {at + f"self_attn.linear_{x}_adapter_list.{number}.{i}.weight": of[f"inject.attn.w{x}_{part}"].T for x in "qkv" for i, part in enumerate("ab")}
        shared = {name.split(".", 2)[2]: value for name, value in ours.items() if name.startswith(f"injects.{'AB'[block - 1]}.")}
        theirs |= {at + "input_layernorm.weight": shared["norm1.weight"], at + "pre_ff_layernorm.weight": shared["norm2.weight"],
                   at + "feed_forward.gate_up_proj.weight": np.concatenate([shared["ffn.w1"].T, shared["ffn.w3"].T]),
                   at + "feed_forward.gate_up_proj.bias": np.concatenate([shared["ffn.b1"], shared["ffn.b3"]]),
                   at + "feed_forward.down_proj.weight": shared["ffn.w2"].T, at + "feed_forward.down_proj.bias": shared["ffn.b2"]}
        theirs |= {at + f"self_attn.{x}_proj.weight": shared[f"attn.w{x}"].T for x in "qkvo"}
    return theirs


def of_latent(family, ours):
    """The same of families with latent attention: of each head what is its own, then what meets the shared key; its key, then its value."""
    theirs = {"model.embed_tokens.weight": ours["embed.weight"], "model.norm.weight": ours["final_norm.weight"], "lm_head.weight": ours["head.weight"].T}
    isKimi, isLing = family == "kimi_linear", family == "bailing_hybrid"
    if isLing:
        theirs["model.word_embeddings.weight"] = theirs.pop("model.embed_tokens.weight")
    block, parts = ("block_sparse_moe", ("w1", "w3", "w2")) if isKimi else ("mlp", ("gate_proj", "up_proj", "down_proj"))
    for layer in range(BASE["num_hidden_layers"]):
        of = {name.split(".", 2)[2]: value for name, value in ours.items() if name.startswith(f"layers.{layer}.")}
        at = f"model.layers.{layer}."
        theirs |= {at + "input_layernorm.weight": of["norm1.weight"], at + "post_attention_layernorm.weight": of["norm2.weight"]}
        for part, name, expert in zip(("w1", "w3", "w2"), ("gate_proj", "up_proj", "down_proj"), parts):
            if "ffn.w1" in of:
                theirs[at + f"mlp.{name}.weight"] = of["ffn." + part].T
                continue
            theirs[at + f"{block}.shared_experts.{name}.weight"] = of["shared." + part].T
            theirs |= {at + f"{block}.experts.{i}.{expert}.weight": matrix.T for i, matrix in enumerate(of["moe." + part])}
        if "moe.router" in of:
            theirs[at + f"{block}.gate.weight"] = of["moe.router"].T
        if "moe.correction" in of:
            theirs[at + f"{block}.gate.{'expert_bias' if isLing else 'e_score_correction_bias'}"] = of["moe.correction"]
        at, out = at + ("attention." if isLing else "self_attn."), "dense" if isLing else "o_proj"
        if "attn.wk" not in of:
            narrow = {"f": "f", "g": "g"} if isLing else {"f1": "f_a", "f2": "f_b", "g1": "g_a", "g2": "g_b"}
            names = {"q": "q", "k": "k", "v": "v", "b": "b"} | narrow
            theirs |= {at + f"{name}_proj.weight": of["lsm.w" + part].T for part, name in names.items()} | {at + out + ".weight": of["lsm.wo"].T}
            theirs |= {at + f"{x}_conv1d.weight": of[f"lsm.conv_{x}.weight"][:, None, :] for x in "qkv"}
            theirs |= {at + "A_log": of["lsm.a_log"] if isLing else of["lsm.a_log"].reshape(1, 1, -1, 1), at + "dt_bias": of["lsm.dt_bias"].reshape(-1),
                       at + "o_norm.weight": of["lsm.norm.weight"]}
            continue
        per_head = lambda *names: np.concatenate([of[name].T.reshape(4, -1, of[name].shape[0]) for name in names], axis=1).reshape(-1, of[names[0]].shape[0])
        queries = "q_b_proj" if "attn.wq_down" in of else "q_proj"
        theirs |= {at + f"{queries}.weight": per_head("attn.wq", "attn.wq_rope"), at + "kv_b_proj.weight": per_head("attn.wk", "attn.wv"),
                   at + "kv_a_proj_with_mqa.weight": np.concatenate([of["attn.wkv_down"].T, of["attn.wk_rope"].T]),
                   at + "kv_a_layernorm.weight": of["attn.kv_norm.weight"], at + out + ".weight": of["attn.wo"].T}
        if isLing:
            theirs[at + "g_proj.weight"] = of["attn.wg"].T
        if "attn.wq_down" in of:
            theirs |= {at + "q_a_proj.weight": of["attn.wq_down"].T, at + "q_a_layernorm.weight": of["attn.q_norm.weight"]}
    if family in ("deepseek_v3", "bailing_hybrid"):
        theirs["model.layers.3.eh_proj.weight"] = np.ones((3, 2), np.float32)
    return theirs


def of_convolutions(family, ours):
    """The same of LFM2 and LFM3, where three parts of an input are one matrix, and of OLMo Hybrid, whose norms have other names behind attention."""
    isOlmo, isThird = family == "olmo_hybrid", family == "lfm3"
    theirs = {"model.embed_tokens.weight": ours["embed.weight"], f"model.{'norm' if isOlmo else 'embedding_norm'}.weight": ours["final_norm.weight"]}
    if "head.weight" in ours:
        theirs["lm_head.weight"] = ours["head.weight"].T
    for layer in range(BASE["num_hidden_layers"]):
        of = {name.split(".", 2)[2]: value for name, value in ours.items() if name.startswith(f"layers.{layer}.")}
        at, attends = f"model.layers.{layer}.", "attn.wq" in of
        names = ("operator_norm", "ffn_norm")
        if isOlmo:
            names = ("post_attention_layernorm", "post_feedforward_layernorm") if attends else ("attention_layer_norm", "feedforward_layer_norm")
        theirs |= {at + f"{name}.weight": of[f"norm{i + 1}.weight"] for i, name in enumerate(names)}
        if isThird:
            theirs |= {at + f"post_{name}.weight": of[f"norm{i + 1}_post.weight"] for i, name in enumerate(names)}
        for part, name in (("w1", "gate"), ("w3", "up"), ("w2", "down")):
            if "ffn.w1" in of:
                theirs[at + (f"mlp.{name}_proj.weight" if isOlmo else f"feed_forward.{part}.weight")] = of[f"ffn.{part}"].T
            else:
                theirs |= {at + f"feed_forward.experts.{i}.{part}.weight": matrix.T for i, matrix in enumerate(of[f"moe.{part}"])}
        if "moe.router" in of:
            theirs |= {at + "feed_forward.gate.weight": of["moe.router"].T, at + "feed_forward.expert_bias": of["moe.correction"]}
        if attends:
            norm, out = ("norm", "o_proj") if isOlmo or isThird else ("layernorm", "out_proj")
            theirs |= {at + f"self_attn.{x}_proj.weight": of[f"attn.w{x}"].T for x in "qkv"} | {at + f"self_attn.{out}.weight": of["attn.wo"].T}
            theirs |= {at + f"self_attn.{x}_{norm}.weight": of[f"attn.{x}_norm.weight"] for x in "qk"}
            if isThird:
                theirs[at + "self_attn.gate_proj.weight"] = of["attn.wg"].T
        elif isOlmo:
            at += "linear_attn."
            theirs |= {at + f"{x}_proj.weight": of[f"lsm.w{x}"].T for x in "qkvgbao"} | {at + f"{x}_conv1d.weight": of[f"lsm.conv_{x}.weight"][:, None] for x in "qkv"}
            theirs |= {at + "A_log": of["lsm.a_log"], at + "dt_bias": of["lsm.dt_bias"], at + "o_norm.weight": of["lsm.norm.weight"]}
        else:
            at += "conv."
            theirs |= {at + "in_proj.weight": np.concatenate([of[f"lsm.w{x}"].T for x in "bcz"]), at + "conv.weight": of["lsm.conv_z.weight"][:, None],
                       at + "out_proj.weight": of["lsm.wo"].T}
            if "lsm.bo" in of:
                theirs |= {at + "in_proj.bias": np.concatenate([of[f"lsm.b{x}"] for x in "bcz"]), at + "conv.bias": of["lsm.conv_z.bias"],
                           at + "out_proj.bias": of["lsm.bo"]}
    return theirs


def of_xlstm(family, ours):
    """Blocks in the place of layers; fused, rows of q, k, v and the output's gate are one matrix, those of both gates of the memory, and both of a feed-forward."""
    theirs = {"backbone.embeddings.weight": ours["embed.weight"], "backbone.out_norm.weight": ours["final_norm.weight"], "lm_head.weight": ours["head.weight"].T}
    names = {"q": "q", "k": "k", "v": "v", "g": "ogate_preact", "i": "igate_preact", "f": "fgate_preact"}
    for layer in range(2):
        of = {name.split(".", 2)[2]: value for name, value in ours.items() if name.startswith(f"layers.{layer}.")}
        at = f"backbone.blocks.{layer}."
        theirs |= {at + f"norm_{name}.weight": of[f"norm{i + 1}.weight"] for i, name in enumerate(("mlstm", "ffn"))}
        theirs[at + "ffn.proj_down.weight"] = of["ffn.w2"].T
        theirs |= {at + "mlstm_layer.multihead_norm.weight": of["lsm.norm.weight"].reshape(-1), at + "mlstm_layer.out_proj.weight": of["lsm.wo"].T}
        rows = lambda parts: np.concatenate([of[part].T for part in parts])
        if family == "xlstm-fused":
            theirs |= {at + "ffn.proj_up_gate_z.weight": rows(("ffn.w1", "ffn.w3")), at + "mlstm_layer.qkv_opreact.weight": rows(f"lsm.w{x}" for x in "qkvg"),
                       at + "mlstm_layer.ifgate_preact.weight": rows(("lsm.wi", "lsm.wf")), at + "mlstm_layer.ifgate_preact.bias": rows(("lsm.bi", "lsm.bf"))}
            continue
        theirs |= {at + f"ffn.{name}.weight": of[f"ffn.{part}"].T for name, part in (("proj_up_gate", "w1"), ("proj_up", "w3"))}
        theirs |= {at + f"mlstm_layer.{name}.weight": of[f"lsm.w{x}"].T for x, name in names.items()}
        theirs |= {at + f"mlstm_layer.{names[x]}.bias": of[f"lsm.b{x}"] for x in "if"}
    return theirs


def of_griffin(ours):
    """Norms multiply by 1 + weight; the gates' blocks are as they are here."""
    theirs = {"model.embed_tokens.weight": ours["embed.weight"], "model.final_norm.weight": ours["final_norm.weight"] - 1}
    for layer in range(BASE["num_hidden_layers"]):
        of = {name.split(".", 2)[2]: value for name, value in ours.items() if name.startswith(f"layers.{layer}.")}
        at = f"model.layers.{layer}."
        theirs |= {at + f"{name}_pre_norm.weight": of[f"norm{i + 1}.weight"] - 1 for i, name in enumerate(("temporal", "channel"))}
        for part, name in (("1", "gate"), ("3", "up"), ("2", "down")):
            theirs |= {at + f"mlp_block.{name}_proj.weight": of[f"ffn.w{part}"].T, at + f"mlp_block.{name}_proj.bias": of[f"ffn.b{part}"]}
        at += "temporal_block."
        if "attn.wq" in of:
            theirs |= {at + f"{x}_proj.weight": of[f"attn.w{x}"].T for x in "qkvo"} | {at + "o_proj.bias": of["attn.bo"]}
            continue
        for part, name in (("v", "x"), ("g", "y"), ("o", "out")):
            theirs |= {at + f"linear_{name}.weight": of[f"lsm.w{part}"].T, at + f"linear_{name}.bias": of[f"lsm.b{part}"].reshape(-1)}
        theirs |= {at + "conv_1d.weight": of["lsm.conv_v.weight"][:, None], at + "conv_1d.bias": of["lsm.conv_v.bias"].reshape(-1)}
        at += "rg_lru."
        theirs[at + "recurrent_param"] = of["lsm.a"].reshape(-1)
        for part, name in (("r", "recurrent"), ("i", "input")):
            theirs |= {at + f"{name}_gate_weight": of[f"lsm.w{part}"], at + f"{name}_gate_bias": of[f"lsm.b{part}"]}
    return theirs


def of_fla(family, ours):
    """One name of everything that mixes a sequence; projections of low rank are numbered."""
    theirs = {"model.embeddings.weight": ours["embed.weight"], "model.norm.weight": ours["final_norm.weight"], "lm_head.weight": ours["head.weight"].T}
    narrow = "gk_proj" if family == "gla" else "f_proj"
    if "lsm.lower_bounds" in ours:
        theirs["model.lower_bounds"] = ours["lsm.lower_bounds"].reshape(-1, 3).T
    matrices = {f"w{x}": f"{x}_proj" for x in "qkvogab"} | ({"wk": "f_proj", "wv": "i_proj"} if family == "hgrn2" else {}) | {"wf1": narrow + ".0", "wf2": narrow + ".1", "wg1": "g_proj.0", "wg2": "g_proj.1"}
    norm = "g_norm" if family in ("retnet", "hgrn2") else "g_norm_swish_gate" if family == "gla" else "o_norm"
    vectors = {"bf": "gk_proj.1.bias", "bg": "g_proj.1.bias", "bq": "q_proj.bias", "bk": "k_proj.bias", "bv": "v_proj.bias", "a_log": "A_log",
               "dt_bias": "dt_bias", "norm.weight": norm + ".weight"}
    for layer in range(3):
        of = {name.split(".", 2)[2]: value for name, value in ours.items() if name.startswith(f"layers.{layer}.")}
        at = f"model.layers.{layer}."
        theirs |= {at + f"{name}_norm.weight": of[f"norm{i + 1}.weight"] for i, name in enumerate(("attn", "mlp"))}
        theirs |= {at + f"mlp.{name}_proj.weight": of[f"ffn.w{part}"].T for part, name in (("1", "gate"), ("3", "up"), ("2", "down"))}
        for name, value in of.items():
            part = name.split(".", 1)[1]
            if not name.startswith(("lsm.", "attn.")) or part == "log_decay":
                continue
            if name.startswith("attn.w"):
                theirs[at + f"attn.{part[1]}_proj.weight"] = value.T
            elif part.startswith("conv_"):
                letter = {"k": "f", "v": "i"}.get(part[5], part[5]) if family == "hgrn2" else part[5]
                theirs[at + f"attn.{letter}_conv1d.weight"] = value[:, None]
            elif part in matrices:
                theirs[at + f"attn.{matrices[part]}.weight"] = value.T
            else:
                theirs[at + f"attn.{vectors[part]}"] = value.reshape(-1)
    return theirs


def of_rwkv6(ours):
    """Five mixtures are one matrix by rows and one by columns; what is multiplied stands beside its share of the token before."""
    norms = {"model.norm": "final_norm"}
    theirs = {"model.embeddings.weight": ours["embed.weight"], "lm_head.weight": ours["head.weight"].T}
    for layer in range(3):
        at, of = f"model.layers.{layer}.", lambda name: ours[f"layers.{layer}.{name}"]
        norms |= {at + "attn_norm": f"layers.{layer}.norm1", at + "ffn_norm": f"layers.{layer}.norm2", at + "attn.g_norm": f"layers.{layer}.lsm.norm"}
        theirs |= {at + "ffn.key.mu": of("ffn.mu"), at + "ffn.key.linear.weight": of("ffn.w1").T, at + "ffn.value.weight": of("ffn.w2").T,
                   at + "ffn.receptance.mu": of("ffn.mu_g"), at + "ffn.receptance.linear.weight": of("ffn.wg").T}
        theirs |= {at + "attn.x_proj.0.mu": of("lsm.mu_x"), at + "attn.x_bias": np.stack([of(f"lsm.mu_{x}") for x in "qwkvg"]),
                   at + "attn.x_proj.0.linear.weight": np.concatenate([of(f"lsm.mix_{x}_a").T for x in "qwkvg"]),
                   at + "attn.x_proj.2.weight": np.concatenate([of(f"lsm.mix_{x}_b").T for x in "qwkvg"], 1)}
        theirs |= {at + f"attn.{letter}_proj.linear.weight": of(f"lsm.w{own}").T for letter, own in zip("rkvg", "qkvg")}
        lora = at + "attn.w_proj.linear.lora."
        theirs |= {lora + "0.weight": of("lsm.decay_a").T, lora + "2.weight": of("lsm.decay_b").T, lora + "2.bias": of("lsm.w0").reshape(-1)}
        theirs |= {at + "attn.bonus": of("lsm.u"), at + "attn.o_proj.weight": of("lsm.wo").T}
    return theirs | {f"{name}.{part}": ours[f"{own}.{part}"].reshape(-1) for name, own in norms.items() for part in ("weight", "bias")}


def of_rwkv(ours):
    """A norm of the embedding in the first layer, which mixes no values; products of low rank are numbers 0 and 2 of three."""
    norms = {"model.norm": "final_norm", "model.layers.0.pre_norm": "embed_norm"}
    theirs = {"model.embeddings.weight": ours["embed.weight"], "lm_head.weight": ours["head.weight"].T}
    for layer in range(3):
        at, of = f"model.layers.{layer}.", f"layers.{layer}."
        norms |= {at + "attn_norm": of + "norm1", at + "ffn_norm": of + "norm2", at + "attn.g_norm": of + "lsm.norm"}
        theirs |= {at + "ffn.x_k": ours[of + "ffn.mu"], at + "ffn.key.weight": ours[of + "ffn.w1"].T, at + "ffn.value.weight": ours[of + "ffn.w2"].T}
        for letter, own in zip("rwkvag", "qwkvag"):
            theirs[at + f"attn.x_{letter}"] = ours[of + f"lsm.mu_{own}"].reshape(1, 1, -1)
        theirs |= {at + f"attn.{letter}_proj.weight": ours[of + f"lsm.w{own}"].T for letter, own in zip("rkvo", "qkvo")}
        theirs |= {at + f"attn.{name}": ours[of + f"lsm.{name}"].reshape(*((-1,) if name != "r_k" else (-1, 8))) for name in ("k_k", "k_a", "r_k")}
        for letter, name, bias in (("w", "decay", "w0"), ("a", "rate", "a0"), ("v", "value", "v0"), ("g", "gate", None)):
            if letter == "v" and layer == 0:
                continue
            lora = at + f"attn.{letter}_lora.lora."
            theirs |= {lora + f"{number}.weight": ours[of + f"lsm.{name}_{part}"].T for number, part in ((0, "a"), (2, "b"))}
            theirs |= {lora + "2.bias": ours[of + f"lsm.{bias}"].reshape(-1)} if bias else {}
    return theirs | {f"{name}.{part}": ours[f"{own}.{part}"].reshape(-1) for name, own in norms.items() for part in ("weight", "bias")}


def of_family(family, ours):
    if family in ("rwkv6", "rwkv7"):
        return of_rwkv6(ours) if family == "rwkv6" else of_rwkv(ours)
    if family in FLA:
        return of_fla(family, ours)
    if family == "lara_mini":
        return of_lara(ours)
    if family in RECURRENT:
        return of_griffin(ours) if family == "recurrent_gemma" else of_xlstm(family, ours)
    if family in WITH_CONVOLUTIONS:
        return of_convolutions(family, ours)
    if family in LATENT:
        return of_latent(family, ours)
    if family == "zamba2":
        return of_zamba(ours)
    if family in WITH_MAMBA:
        return of_mamba(family, ours)
    if family in ONE_PART:
        return of_one_part(ours)
    if family == "gpt_oss":
        return of_gpt_oss(ours)
    if family in ("phi3", "glm4"):
        return of_fused(family, ours)
    if family.startswith("gemma"):
        return of_gemma(family, ours)
    return of_qwen3_next(family, ours) if family in PLUS_ONE else of_transformers(family, ours)
