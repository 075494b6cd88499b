"""Weights that other software wrote: a checkpoint of ours under the names, the orientation and the files of another library is read as
what it was.

Names and orientation of transformers are written down here once more, on their own. A training of one step that begins with such files and
one that begins with our checkpoint must save the same bytes, whatever the types and meshes. Back they go by the same names: files that
braid-run export writes from a checkpoint must be, byte for byte, those that this mapping makes. Nothing of transformers is needed.
Usage: import_weights.py FOLDER
"""
import fcntl
import json
import os
import pathlib
import re
import shutil
import struct
import subprocess
import sys

import numpy as np

from ranks_equal import checkpoint, run

folder = pathlib.Path(sys.argv[1])
folder.mkdir(parents=True, exist_ok=True)
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
}
CONFIGS["qwen3_5_moe_text"] = CONFIGS["qwen3_next"]
PLUS_ONE = ("qwen3_next", "qwen3_5_moe_text", "gemma", "gemma3_text")  # norms that multiply by 1 + weight
# Layers of one part.
SMALL = {key: BASE[key] for key in ("vocab_size", "hidden_size", "train")}
ONE_PART = {
    "mamba": SMALL | {"num_hidden_layers": 2, "state_size": 6, "time_step_rank": 3},
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
}
(folder / "text.txt").write_text("The quick brown fox jumps over the lazy dog, again and again, until it is long enough. " * 20)


def write_safetensors(path, tensors):
    """`tensors`: name -> array; uint16 stands for bf16."""
    names, header, at = {"float32": "F32", "uint16": "BF16", "float16": "F16", "int64": "I64"}, {}, 0
    for name, array in tensors.items():
        header[name] = {"dtype": names[str(array.dtype)], "shape": list(array.shape), "data_offsets": [at, at + array.nbytes]}
        at += array.nbytes
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(np.ascontiguousarray(a).tobytes() for a in tensors.values()))


def write_library(target, tensors, files=1):
    """Files as such libraries write them: one, or several with an index."""
    target.mkdir(exist_ok=True)
    if files == 1:
        return write_safetensors(target / "model.safetensors", tensors)
    names, table = list(tensors), {}
    for i in range(files):
        part = f"model-{i + 1:05}-of-{files:05}.safetensors"
        write_safetensors(target / part, {name: tensors[name] for name in names[i::files]})
        table |= {name: part for name in names[i::files]}
    (target / "model.safetensors.index.json").write_text(json.dumps({"metadata": {"total_size": 1}, "weight_map": table}))


def is_unread(name):
    return name.startswith(("mtp.", "model.layers.3.")) or name.endswith(("query_decay", "diagonal_decay"))


def of_transformers(family, ours):
    """Our tensors as transformers has them."""
    theirs = {}
    isLocal = family in ("mixtral", "minimax", "minimax_m2")
    block = "block_sparse_moe" if isLocal else "mlp"
    expert = {"w1": "w1", "w3": "w3", "w2": "w2"} if isLocal else {"w1": "gate_proj", "w3": "up_proj", "w2": "down_proj"}
    plain = {"norm1.weight": "input_layernorm.weight", "norm2.weight": "post_attention_layernorm.weight",
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


def of_gemma(family, ours):
    """The same with norms that multiply by 1 + weight; in gemma3_text one behind each part, too."""
    theirs = of_transformers(family, {name: value for name, value in ours.items() if not name.endswith("_post.weight")})
    for layer in range(BASE["num_hidden_layers"] if family == "gemma3_text" else 0):
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


def of_latent(family, ours):
    """The same of families with latent attention: of each head what is its own, then what meets the shared key; its key, then its value."""
    theirs = {"model.embed_tokens.weight": ours["embed.weight"], "model.norm.weight": ours["final_norm.weight"], "lm_head.weight": ours["head.weight"].T}
    isKimi = family == "kimi_linear"
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
            theirs[at + f"{block}.gate.e_score_correction_bias"] = of["moe.correction"]
        at += "self_attn."
        if "attn.wk" not in of:
            names = {"q": "q", "k": "k", "v": "v", "f1": "f_a", "f2": "f_b", "g1": "g_a", "g2": "g_b", "b": "b", "o": "o"}
            theirs |= {at + f"{name}_proj.weight": of["lsm.w" + part].T for part, name in names.items()}
            theirs |= {at + f"{x}_conv1d.weight": of[f"lsm.conv_{x}.weight"][:, None, :] for x in "qkv"}
            theirs |= {at + "A_log": of["lsm.a_log"].reshape(1, 1, -1, 1), at + "dt_bias": of["lsm.dt_bias"].reshape(-1),
                       at + "o_norm.weight": of["lsm.norm.weight"]}
            continue
        per_head = lambda *names: np.concatenate([of[name].T.reshape(4, -1, of[name].shape[0]) for name in names], axis=1).reshape(-1, of[names[0]].shape[0])
        queries = "q_b_proj" if "attn.wq_down" in of else "q_proj"
        theirs |= {at + f"{queries}.weight": per_head("attn.wq", "attn.wq_rope"), at + "kv_b_proj.weight": per_head("attn.wk", "attn.wv"),
                   at + "kv_a_proj_with_mqa.weight": np.concatenate([of["attn.wkv_down"].T, of["attn.wk_rope"].T]),
                   at + "kv_a_layernorm.weight": of["attn.kv_norm.weight"], at + "o_proj.weight": of["attn.wo"].T}
        if "attn.wq_down" in of:
            theirs |= {at + "q_a_proj.weight": of["attn.wq_down"].T, at + "q_a_layernorm.weight": of["attn.q_norm.weight"]}
    if family == "deepseek_v3":
        theirs["model.layers.3.eh_proj.weight"] = np.ones((3, 2), np.float32)
    return theirs


def of_family(family, ours):
    if family in LATENT:
        return of_latent(family, ours)
    if family in WITH_MAMBA:
        return of_mamba(family, ours)
    if family in ONE_PART:
        return of_one_part(ours)
    if family == "gpt_oss":
        return of_gpt_oss(ours)
    if family.startswith("gemma"):
        return of_gemma(family, ours)
    return of_qwen3_next(family, ours) if family in PLUS_ONE else of_transformers(family, ours)


def braid(*arguments):
    return subprocess.run(["braid-run", *map(str, arguments)], capture_output=True, text=True)


def train(program, target, *arguments, ranks=1):
    result = braid("train", program, "--data", folder / "text.txt", "--threads=1", f"--ranks={ranks}", "--checkpoint-dir", target, *arguments)
    return result.stderr if result.returncode else ""


def newest(target):
    return checkpoint(target / (target / "latest").read_text().strip())


def weights(target):
    return {name: value.astype(np.float32) for name, value in newest(target).items() if not name.endswith((".first", ".second"))}


def compile_to(target, source, *flags):
    run("braid-compile", source, "-o", target, "--opt-level=0", *flags)
    return target


def one_step(program, name, begin, ranks):
    """The checkpoint after one step from there; an error is a text."""
    error = train(program, folder / name, "--init-from", begin, "--steps=1", "--seed=3", ranks=ranks)
    return error or newest(folder / name)


def differences(a, b):
    if isinstance(a, str) or isinstance(b, str):
        return f"{a if isinstance(a, str) else ''}{b if isinstance(b, str) else ''}"
    if set(a) != set(b):
        return f"other tensors: {set(a) ^ set(b)}"
    return ", ".join(name for name in a if not np.array_equal(a[name], b[name]))


failed = 0


def far(a, b):
    """What differs where weights w were w - 1 in a file: rounding brings them near, and all that follows."""
    if isinstance(a, str) or isinstance(b, str) or set(a) != set(b):
        return differences(a, b)
    worst = max((np.abs(a[name] - b[name]).max(), name) for name in a if not name.endswith((".first", ".second")))
    return "" if worst[0] < 1e-5 else str(worst)


def report(what, wrong):
    global failed
    failed += bool(wrong)
    print(f"{what}:", wrong or "equal")


def bf16(value):
    """Rounded to bf16: the bits, and the numbers."""
    bits = np.ascontiguousarray(value, np.float32).view(np.uint32)
    high = ((bits + 0x7fff + (bits >> 16 & 1)) >> 16).astype(np.uint16)
    return high, (high.astype(np.uint32) << 16).view(np.float32)


def as_type(value, kind):
    """An array for write_safetensors."""
    return bf16(value)[0].reshape(np.shape(value)) if kind == "bf16" else np.asarray(value).astype({"f32": np.float32, "f16": np.float16}[kind])


def like(name, tensors, files=1):
    """A directory of the same form with other numbers, and what lies beside weights."""
    target = folder / name
    shutil.rmtree(target, ignore_errors=True)
    write_library(target, {name: value if is_unread(name) else np.zeros_like(value) for name, value in tensors.items()}, files)
    (target / "tokenizer.json").write_bytes(bytes(range(256)))
    (target / "original").mkdir()
    (target / "pytorch_model.bin").write_text("old")
    (target / "tokenizer.link").symlink_to("tokenizer.json")
    return target


def export(program, source, template, target):
    return braid("export", program, "--checkpoint", source, "--like", template, "--output", target)


def contents(target):
    return {str(path.relative_to(target)): path.read_bytes() for path in target.rglob("*") if path.is_file()}


def report_export(what, program, source, tensors, files=1, kind="f32"):
    """`tensors`: what must be written, in f32; rounded here."""
    tensors = {name: np.asarray(value) if is_unread(name) else as_type(value, kind) for name, value in tensors.items()}
    template, target, expected = like("like", tensors, files), folder / "exported", folder / "expected"
    for path in (target, expected):
        shutil.rmtree(path, ignore_errors=True)
    result = export(program, source, template, target)
    write_library(expected, tensors, files)
    if result.returncode:
        return report(f"{what} exported", result.stderr.strip())
    beside = {name: (template / "tokenizer.json").read_bytes() for name in ("tokenizer.json", "tokenizer.link")}
    got, should = contents(target), contents(expected) | beside
    report(f"{what} exported", ", ".join(sorted(name for name in got | should if got.get(name) != should.get(name))))


for family, given in ({name: BASE | more for name, more in CONFIGS.items()} | ONE_PART | WITH_MAMBA | LATENT).items():
    config = folder / f"{family}.json"
    config.write_text(json.dumps(given | {"model_type": family.removesuffix("-dense")}))
    program = compile_to(folder / f"{family}.braid", config)
    error = train(program, folder / family, "--steps=3", "--lr=0.05", "--warmup=0")
    assert not error, error
    begun = weights(folder / family)
    theirs = lambda ours: of_family(family, ours)
    library, files = theirs(begun), 1 if family == "mixtral" else 3
    write_library(folder / f"{family}-library", library, files)
    for kind in ("f32", "bf16", "f16") if family in ("qwen3_moe", "qwen3_next", "nemotron_h", "granitemoehybrid") else ("f32",):
        report_export(f"{family} {kind}", program, folder / family, library, files, kind)
    kinds = [("f32", "", 1)] + ([("f32", "tp=2", 2)] if family in ("nemotron_h", "minimax_m2", "deepseek_v3", "kimi_linear") else [])
    if family in ("granitemoehybrid", "gpt_oss"):
        kinds += [("f32", "dp=2,ep=2", 2), ("f32", "tp=2", 2)]
    if family == "qwen3_moe":
        kinds += [("f32", "tp=2", 2), ("bf16", "", 1), ("bf16", "dp=2,ep=2", 2), ("bf16", "dp=2,tp=2,ep=2", 4)]
    for dtype, mesh, ranks in kinds:
        name = f"{family}-{dtype}-{mesh or 'alone'}"
        kind = compile_to(folder / f"{name}.braid", config, "--dtype", dtype, *([f"--mesh={mesh}"] if mesh else []))
        compare = far if family in PLUS_ONE else differences
        report(f"{family} {dtype} {mesh or 'alone'}", compare(one_step(kind, name + "-1", folder / family, ranks),
                                                                  one_step(kind, name + "-2", folder / f"{family}-library", ranks)))
        if mesh:
            report_export(f"{family} {dtype} {mesh}", kind, folder / (name + "-1"), theirs(weights(folder / (name + "-1"))), files)
            report_export(f"{family} {dtype} {mesh} by another program", program, folder / (name + "-1"), theirs(weights(folder / (name + "-1"))), files, "bf16")
    if family in ("mixtral", "qwen2"):  # there and back: a step that is too small to change such numbers
        for kind, mesh in ("f32", ""), ("bf16", "tp=2"), ("f16", "dp=2,ep=2" if family == "mixtral" else "dp=2"):
            far_from_0 = {name: np.where(np.abs(value) < 1e-3, np.float32(1e-3), value) for name, value in library.items()}
            shutil.rmtree(folder / "there", ignore_errors=True)
            write_library(folder / "there", {name: as_type(value, kind) for name, value in far_from_0.items()}, files)
            through = compile_to(folder / "through.braid", config, *([f"--mesh={mesh}"] if mesh else []))
            shutil.rmtree(folder / "through", ignore_errors=True)
            error = train(through, folder / "through", "--init-from", folder / "there", "--steps=1", "--lr=1e-12", "--warmup=0", ranks=2 if mesh else 1)
            assert not error, error
            report_export(f"{family} {kind} {mesh or 'alone'} there and back", program, folder / "through", far_from_0, files, kind)
            report_export(f"{family} {kind} at once", program, folder / "there", far_from_0, files, kind)
    evaluated = [braid("eval", program, "--checkpoint", c, "--data", folder / "text.txt").stdout.split("over")[0]
                 for c in (folder / family, folder / f"{family}-library")]
    if family not in PLUS_ONE:
        report(f"{family} evaluated", "" if evaluated[0] == evaluated[1] and "loss" in evaluated[0] else str(evaluated))
    if family == "qwen2":  # files of bf16, with a head that is the embedding and constants of old versions
        rounded = {name: bf16(value) for name, value in library.items()}
        extra = {"lm_head.weight": rounded["model.embed_tokens.weight"], "model.layers.0.self_attn.rotary_emb.inv_freq": bf16(np.ones(4))}
        write_library(folder / "halves", {name: pair[0].reshape(np.shape(pair[1])) for name, pair in (rounded | extra).items()})
        write_library(folder / "wholes", {name: pair[1] for name, pair in rounded.items()})
        report_export("qwen2 with its head twice", program, folder / family, library | {"lm_head.weight": library["model.embed_tokens.weight"]}, 2, "bf16")
        report("qwen2 from bf16", differences(*(one_step(program, f"{x}-1", folder / x, 1) for x in ("halves", "wholes"))))
        # Files of f16, also numbers below its smallest normal one: what a file of f32 with the same numbers gives.
        short = {name: np.concatenate([[1e-7, -6e-5], np.ravel(value)[2:]]).astype(np.float16).reshape(np.shape(value))
                 for name, value in library.items()}
        write_library(folder / "shorts", short, files=2)
        write_library(folder / "longs", {name: value.astype(np.float32) for name, value in short.items()})
        for dtype in ("f32", "bf16"):
            into = compile_to(folder / f"short-{dtype}.braid", config, "--dtype", dtype)
            report(f"qwen2 from f16 into {dtype}",
                   differences(*(one_step(into, f"{x}-{dtype}-1", folder / x, 1) for x in ("shorts", "longs"))))

# A description says it itself: matrices that share one tensor head by head, or one behind the other; norms that begin at 0.
description = {
    "vocab_size": 256, "d_model": 32, "num_layers": 3, "layer_pattern": "NG", "ffns": {"D": {"kind": "dense", "hidden": 40}},
    "mixers": {"N": {"kind": "attention", "heads": 4, "kv_heads": 2, "head_dim": 8, "output_gate": "sigmoid"},
               "G": {"kind": "gated_deltanet", "heads": 4, "key_heads": 2, "head_dim": 8, "value_dim": 8}},
    "train": {"batch": 2, "seq_len": 32}, "import": {"unread": ["mtp.*"], "weights": {
        "embed.weight": "e", "final_norm.weight": {"name": "n", "plus": 1}, "head.weight": {"name": "h", "transposed": True},
        **{f"layers.{{layer}}.norm{i}.weight": {"name": f"{{layer}}.norm{i}", "plus": 1} for i in (1, 2)},
        "layers.{layer}.attn.wq": {"name": "{layer}.qg", "groups": 4, "rows": [0, 8], "transposed": True},
        "layers.{layer}.attn.wg": {"name": "{layer}.qg", "groups": 4, "rows": [8, 16], "transposed": True},
        "layers.{layer}.attn.wk": {"name": "{layer}.kv", "rows": [0, 16], "transposed": True},
        "layers.{layer}.attn.wv": {"name": "{layer}.kv", "rows": [16, 32], "transposed": True},
        **{f"layers.{{layer}}.attn.w{x}": {"name": f"{{layer}}.{x}", "transposed": True} for x in "o"},
        **{f"layers.{{layer}}.ffn.w{i}": {"name": f"{{layer}}.w{i}", "transposed": True} for i in (1, 2, 3)},
        **{f"layers.{{layer}}.lsm.w{x}": f"{{layer}}.lsm.{x}" for x in "qkvgbao"},
        "layers.{layer}.lsm.conv_q.weight": {"name": "{layer}.conv", "rows": [0, 16]},
        "layers.{layer}.lsm.conv_k.weight": {"name": "{layer}.conv", "rows": [16, 32]},
        "layers.{layer}.lsm.conv_v.weight": {"name": "{layer}.conv", "rows": [32, 64]},
        **{f"layers.{{layer}}.lsm.{x}": f"{{layer}}.lsm.{x}" for x in ("dt_bias", "norm.weight")},
        "layers.{layer}.lsm.a_log": {"name": "{layer}.lsm.a_log", "times": -2}}}}
(folder / "own.json").write_text(json.dumps(description))
program = compile_to(folder / "own.braid", folder / "own.json")
error = train(program, folder / "own", "--steps=3", "--lr=0.05", "--warmup=0")
assert not error, error
begun = weights(folder / "own")
fused = {"e": begun["embed.weight"], "n": begun["final_norm.weight"] - 1, "h": begun["head.weight"].T, "mtp.1.weight": np.ones(3, np.int64)}
for layer in range(3):
    of = {name.split(".", 2)[2]: value for name, value in begun.items() if name.startswith(f"layers.{layer}.")}
    at = f"{layer}."
    fused |= {at + f"norm{i}": of[f"norm{i}.weight"] - 1 for i in (1, 2)} | {at + f"w{i}": of[f"ffn.w{i}"].T for i in (1, 2, 3)}
    if "attn.wq" in of:
        heads = [of[f"attn.w{x}"].T.reshape(4, 8, 32) for x in "qg"]
        fused |= {at + "qg": np.concatenate(heads, axis=1).reshape(64, 32), at + "o": of["attn.wo"].T,
                  at + "kv": np.concatenate([of["attn.wk"].T, of["attn.wv"].T])}
    else:
        fused |= {at + name: value for name, value in of.items() if name.startswith("lsm.") and not name.startswith(("lsm.w", "lsm.conv"))}
        fused |= {at + f"lsm.{x}": of[f"lsm.w{x}"] for x in "qkvgbao"} | {at + "lsm.a_log": of["lsm.a_log"] / -2}
        fused[at + "conv"] = np.concatenate([of[f"lsm.conv_{x}.weight"] for x in "qkv"])[:, None, :]
write_library(folder / "own-library", fused)
report("own description", far(one_step(program, "own-1", folder / "own", 1), one_step(program, "own-2", folder / "own-library", 1)))
report_export("own description", program, folder / "own", fused, 2)

# What cannot be read is said.
program, good = folder / "mixtral.braid", of_transformers("mixtral", weights(folder / "mixtral"))


def error_of(name, tensors, *arguments, of=program):
    write_library(folder / name, tensors)
    print(f"{name}:", braid("eval", of, "--checkpoint", folder / name, "--data", folder / "text.txt", *arguments).stderr.strip())


first = "model.layers.0.self_attn.q_proj.weight"
error_of("lacking", {name: value for name, value in good.items() if ".experts.3." not in name})
error_of("more", good | {"model.layers.0.self_attn.q_proj.bias": np.zeros(32, np.float32)})
error_of("turned", good | {"model.layers.0.self_attn.k_proj.weight": good["model.layers.0.self_attn.k_proj.weight"].T})
error_of("integers", good | {first: good[first].astype(np.int64)})
(folder / "plain.json").write_text(json.dumps({key: value for key, value in description.items() if key != "import"}))
error_of("plain", good, of=compile_to(folder / "plain.braid", folder / "plain.json"))
error_of("flat", good | {first: good[first].reshape(-1)})
error_of("deep", good | {first: good[first][None]})
tied = of_transformers("qwen2", weights(folder / "qwen2"))
error_of("heads", tied | {"lm_head.weight": tied["model.embed_tokens.weight"] + 1}, of=folder / "qwen2.braid")
error_of("rows", fused | {"0.qg": fused["0.qg"][:60]}, of=folder / "own.braid")
error_of("few", fused | {"0.kv": fused["0.kv"][:31]}, of=folder / "own.braid")
granite, stack = of_mamba("granitemoehybrid", weights(folder / "granitemoehybrid")), "model.layers.0.block_sparse_moe.input_linear.weight"
ofGranite = folder / "granitemoehybrid.braid"
error_of("unstacked", {name: value for name, value in granite.items() if name != stack}, of=ofGranite)
error_of("three", granite | {stack: granite[stack][:3]}, of=ofGranite)
error_of("joined", granite | {stack: granite[stack].reshape(-1, 32)}, of=ofGranite)
error_of("short", granite | {stack: granite[stack][:, :40]}, of=ofGranite)
error_of("slim", granite | {stack: granite[stack][:, :, :30]}, of=ofGranite)
write_library(folder / "outside", good, files=2)
index = folder / "outside/model.safetensors.index.json"
index.write_text(index.read_text().replace("model-00002", "../model-00002"))
print("outside:", braid("eval", program, "--checkpoint", folder / "outside", "--data", folder / "text.txt").stderr.strip())
index.write_text(index.read_text().replace("../model-00002-of", "model-00001-of"))
print("elsewhere:", braid("eval", program, "--checkpoint", folder / "outside", "--data", folder / "text.txt").stderr.strip())
# A layer of another kind.
denser = json.loads((folder / "deepseek_v3.json").read_text()) | {"first_k_dense_replace": 2}
(folder / "denser.json").write_text(json.dumps(denser))
error_of("another kind", of_family("deepseek_v3", weights(folder / "deepseek_v3")), of=compile_to(folder / "denser.braid", folder / "denser.json"))
# Feed-forwards of dense layers as transformers writes those of kimi_linear.
kimi = of_family("kimi_linear", weights(folder / "kimi_linear"))
respelled = {name.replace(".mlp.", ".block_sparse_moe."): value for name, value in kimi.items()}
assert respelled.keys() != kimi.keys()
write_library(folder / "respelled", respelled)
losses = [braid("eval", folder / "kimi_linear.braid", "--checkpoint", folder / c, "--data", folder / "text.txt").stdout.split("over")[0]
          for c in ("kimi_linear", "respelled")]
report("kimi_linear respelled", "" if losses[0] == losses[1] and "loss" in losses[0] else str(losses))
report_export("kimi_linear respelled", folder / "kimi_linear.braid", folder / "kimi_linear", respelled, 2)
YARN = {"rope_type": "yarn", "factor": 32, "beta_fast": 32, "beta_slow": 1, "truncate": False, "original_max_position_embeddings": 4096, "rope_theta": 150000}
# A config beside the weights says what the program's does, in whatever spelling, or is refused.
for family, wheres in {
        "qwen3_moe": [{}, {"layer_types": ["full_attention"] * 3}, {"layer_types": ["full_attention", "sliding_attention", "full_attention"]}], "qwen2": [{}],
        "mixtral": [{}, {"model_type": None}, {"rope_theta": 1e6, "dtype": "bfloat16", "max_position_embeddings": 99, "train": {"batch": 9}},
                    {"rope_parameters": {"rope_type": "default", "rope_theta": 1000000}, "rope_scaling": None, "head_dim": 8},
                    {"num_local_experts": None, "num_experts": 4}, {"sliding_window": None}, {"head_dim": None, "rms_norm_eps": 1e-5},
                    {"rope_theta": 10000.0}, {"rope_parameters": {"rope_theta": 5e5}}, {"rms_norm_eps": 1e-6}, {"sliding_window": 16},
                    {"num_experts_per_tok": None}, {"num_experts_per_tok": 1}, {"num_attention_heads": 8, "num_key_value_heads": 4},
                    {"rope_scaling": {"rope_type": "linear", "factor": 2}}, {"hidden_act": "gelu"}, {"model_type": "qwen3_moe"}],
        "granitemoehybrid": [{}, {"layer_types": None, "layers_block_type": ["linear_attention", "full_attention", "linear_attention"], "mamba_d_head": "auto"},
                             {"position_embedding_type": None, "rope_theta": 5.0}, {"position_embedding_type": "rope"}, {"attention_multiplier": 1},
                             {"logits_scaling": None}, {"residual_multiplier": 0.25}, {"embedding_multiplier": 1}, {"num_experts_per_tok": 1}],
        "falcon_h1": [{}, {"mamba_d_head": 16, "time_step_limit": [0.0, {"__float__": "Infinity"}], "embedding_multiplier": 1.0}, {"mamba_norm_before_gate": False},
                      {"ssm_multipliers": [0.5, 2, 0.25, 1.5, 4]}, {"mlp_multipliers": None}, {"key_multiplier": 0.25}, {"attention_out_multiplier": 0.5},
                      {"time_step_limit": [0.0, 0.5]}],
        "minimax_m2": [{}, {"rotary_dim": None, "rope_parameters": {"partial_rotary_factor": 4 / 12}}, {"rotary_dim": 6}, {"partial_rotary_factor": 0.5}],
        "gpt_oss": [{}, {"rope_parameters": YARN}, {"rope_parameters": YARN | {"truncate": True}}, {"rope_theta": 1e4},
                    {"sliding_window": 9}, {"layer_types": ["sliding_attention", "full_attention", "sliding_attention"]}, {"layer_types": ["full_attention"] * 3},
                    {"attention_bias": False}, {"swiglu_alpha": 1.702, "swiglu_limit": 7}, {"swiglu_limit": 8.0}, {"quantization_config": {"quant_method": "mxfp4"}}],
        "gemma": [{}, {"hidden_act": "gelu_pytorch_tanh"}, {"hidden_act": "silu"}],
        "kimi_linear": [{}, {"mlp_layer_types": ["dense", "sparse", "sparse"], "first_k_dense_replace": None}, {"first_k_dense_replace": 2},
                        {"mlp_layer_types": ["sparse", "dense", "sparse"], "first_k_dense_replace": None}],
        "jamba": [{}, {"attn_layer_offset": 2}],
        "deepseek_v3": [{}, {"first_k_dense_replace": 2}, {"num_key_value_heads": None}, {"rope_interleave": True}, {"rope_interleave": False}],
        "gemma3_text": [{}, {"rope_parameters": {"sliding_attention": {"rope_theta": 1e4}, "full_attention": None}},
                        {"rope_parameters": {"sliding_attention": {"rope_theta": 500.0}}}, {"rope_local_base_freq": 500.0}, {"rope_theta": 1e4},
                        {"rope_scaling": {"rope_type": "linear", "factor": 8.0}}, {"layer_types": ["full_attention"] * 3}, {"layer_types": None},
                        {"query_pre_attn_scalar": 12}, {"sliding_window": 9}, {"final_logit_softcapping": 30.0}],
        "qwen3_next": [{}, {"layer_types": None, "full_attention_interval": 3}, {"partial_rotary_factor": 0.25},
                       {"rope_parameters": {"partial_rotary_factor": 0.25, "rope_theta": 1e4}, "partial_rotary_factor": 0.5},
                       {"partial_rotary_factor": 0.5}, {"rope_parameters": {"partial_rotary_factor": 1.0}}, {"norm_topk_prob": False}, {"full_attention_interval": 2}]}.items():
    beside, whole = folder / f"{family}-beside", (WITH_MAMBA.get(family) or LATENT.get(family) or BASE | CONFIGS[family]) | {"model_type": family}
    begun = weights(folder / family)
    write_library(beside, of_family(family, begun))
    for where in wheres:
        (beside / "config.json").write_text(json.dumps({key: value for key, value in (whole | where).items() if value is not None or key == "sliding_window"}))
        result = braid("eval", folder / f"{family}.braid", "--checkpoint", beside, "--data", folder / "text.txt")
        print(f"{family} beside {json.dumps(where)}:", result.stderr.strip() if result.returncode else "read")
(beside / "config.json").write_text("{\"model_type\"")
print("beside what is no JSON:", braid("eval", folder / "qwen3_next.braid", "--checkpoint", beside, "--data", folder / "text.txt").stderr.strip())

scaled = BASE | {"model_type": "llama", "rope_theta": 1e4, "rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}}
(folder / "scaled.json").write_text(json.dumps(scaled))
program_of_scaled = compile_to(folder / "scaled.braid", folder / "scaled.json")
assert not train(program_of_scaled, folder / "scaled", "--steps=1")
write_library(folder / "scaled-beside", of_transformers("llama", weights(folder / "scaled")))
for scaling in ({"rope_parameters": {"rope_type": "yarn", "rope_theta": 10000, "factor": 4, "original_max_position_embeddings": 16, "beta_fast": 32}},
                {"rope_parameters": {"rope_type": "yarn", "rope_theta": 10000, "factor": 4}, "original_max_position_embeddings": 16},
                {"rope_scaling": scaled["rope_scaling"] | {"factor": 2}}, {"rope_scaling": scaled["rope_scaling"] | {"beta_fast": 16}},
                {"rope_scaling": scaled["rope_scaling"] | {"attention_factor": 1.5}}, {"rope_scaling": None},
                {"rope_scaling": {"type": "yarn", "factor": 4.0}, "max_position_embeddings": 16},
                {"rope_scaling": {"type": "yarn", "factor": 4.0}, "max_position_embeddings": 32}):
    without = {key: value for key, value in scaled.items() if key != "rope_scaling"}
    (folder / "scaled-beside/config.json").write_text(json.dumps(without | scaling))
    result = braid("eval", program_of_scaled, "--checkpoint", folder / "scaled-beside", "--data", folder / "text.txt")
    print(f"scaled beside {json.dumps(scaling)}:", result.stderr.strip() if result.returncode else "read")

(folder / "mixtral-library/config.json").write_text("{}")
cut = folder / "more/model.safetensors"
cut.write_bytes(cut.read_bytes()[:-100])
print("cut:", braid("eval", program, "--checkpoint", folder / "more", "--data", folder / "text.txt").stderr.strip())
print("resumed:", train(program, folder / "mixtral-library", "--resume", "--steps=9").strip())
def loss(checkpoint):
    return braid("eval", program, "--checkpoint", checkpoint, "--data", folder / "text.txt").stdout.split("over")[0]


before, wrong = loss(folder / "mixtral"), {name: value + 1 for name, value in good.items()}
write_library(folder / "mixtral", wrong)  # a training of ours goes first
write_library(folder / "lacking", good)
write_library(folder / "lacking", wrong, files=2)  # as transformers has it: one file before an index
report("which", differences({"loss": [before, before]}, {"loss": [loss(folder / "mixtral"), loss(folder / "lacking")]}))
outputs = braid("train", program, "--init-from", folder / "mixtral-library", "--data", folder / "text.txt", "--steps=1",
                "--metrics", folder / "mixtral-library/config.json")
print("outputs:", outputs.stderr.strip())
np.save(folder / "tokens.npy", np.array([[65]], np.int32))
np.save(folder / "cu_seqlens.npy", np.array([[0, 1]], np.int32))
logits = []
for source in ("mixtral", "mixtral-library"):
    result = braid("call", program, "@decode_1", "--checkpoint", folder / source, "--input", f"tokens={folder / 'tokens.npy'}",
                   "--input", f"cu_seqlens={folder / 'cu_seqlens.npy'}", "--output", f"logits={folder / source}.npy")
    logits.append(result.stderr if result.returncode else {"logits": np.load(folder / f"{source}.npy")})
report("called", differences(*logits))


# What cannot be written is said before anything is: no directory is there then, and none that was is another.
def not_exported(name, tensors, of=program, source=folder / "mixtral-f32-alone-1", files=1, target=folder / "none/deeper", more=lambda template: None):
    template = like("like", tensors, files)
    more(template)
    before = contents(target) if target.is_dir() else None
    result = export(of, source, template if target.name != "mixtral-library" else target, target)
    changed = target.parent.exists() and any(target.parent.iterdir()) if before is None else contents(target) != before
    print(f"not {name}:", f"{result.stderr.strip()}{' AND WRITTEN' if changed or not result.returncode else ''}")
    return template


def leave_out(index, name):
    table = json.loads(index.read_text())
    del table["weight_map"][name]
    index.write_text(json.dumps(table))


own, saved = folder / "own.braid", folder / "mixtral-f32-alone-1"
not_exported("lacking", {name: value for name, value in good.items() if ".experts.3." not in name})
not_exported("more", good | {"model.layers.0.self_attn.q_proj.bias": np.zeros(32, np.float32)})
not_exported("turned", good | {"model.layers.0.self_attn.k_proj.weight": good["model.layers.0.self_attn.k_proj.weight"].T})
not_exported("integers", good | {first: good[first].astype(np.int64)})
not_exported("plain", good, of=folder / "plain.braid")
not_exported("uncovered", fused | {"0.kv": np.concatenate([fused["0.kv"], np.zeros((3, 32), np.float32)])}, of=own, source=folder / "own")
twice = json.loads(json.dumps(description))
twice["import"]["weights"]["layers.{layer}.attn.wv"]["rows"] = [8, 24]
(folder / "twice.json").write_text(json.dumps(twice))
not_exported("twice", fused, of=compile_to(folder / "twice.braid", folder / "twice.json"), source=folder / "own")
not_exported("uncovered of experts", granite | {stack: np.concatenate([granite[stack], granite[stack][:, :2]], axis=1)}, of=ofGranite,
             source=folder / "granitemoehybrid")
stated = {"vocab_size": 256, "d_model": 32, "num_layers": 1, "layer_pattern": "N", "mixers": {"N": {"kind": "attention", "heads": 2, "head_dim": 16}},
          "ffns": {"M": {"kind": "moe", "num_experts": 4, "top_k": 2, "expert_hidden": 8}}, "train": {"batch": 2, "seq_len": 32}}
names = ["embed.weight", "final_norm.weight", "head.weight"] + [f"layers.{{layer}}.{name}" for name in (
    "norm1.weight", "norm2.weight", "attn.wq", "attn.wk", "attn.wv", "attn.wo", "moe.router", "moe.w1", "moe.w2", "moe.w3")]
for what, rows, of_first, of_third in (("twice of an expert", 63, {"stacked": True, "rows": [0, 32]}, {"stacked": True, "rows": [31, 63]}),
                                       ("stacked in part", 32, {"stacked": True}, {})):
    stated["import"] = {"weights": {name: name for name in names} | {f"layers.{{layer}}.moe.w{i}": {"name": "{layer}.w13"} | how
                                                                     for i, how in ((1, of_first), (3, of_third))}}
    (folder / "stated.json").write_text(json.dumps(stated))
    ofStated = compile_to(folder / "stated.braid", folder / "stated.json")
    shutil.rmtree(folder / "stated", ignore_errors=True)
    assert not train(ofStated, folder / "stated", "--steps=1")
    begun = weights(folder / "stated")
    rest = {name.replace("{layer}", "0"): begun[name.replace("{layer}", "0")] for name in names if ".moe.w1" not in name and ".moe.w3" not in name}
    not_exported(what, rest | {"0.w13": np.zeros((4, rows, 8), np.float32)}, of=ofStated, source=folder / "stated")
not_exported("of another model", good, source=folder / "own")
not_exported("beside another config", good, more=lambda template: (template / "config.json").write_text('{"model_type": "qwen2"}'))
not_exported("unplaced", good | {"stale": good[first]}, files=2, more=lambda template: leave_out(template / "model.safetensors.index.json", "stale"))
not_exported("like a checkpoint", good, more=lambda template: (template / "latest").write_text("step-00000001"))
not_exported("over a directory", good, target=saved)
not_exported("over its template", good, target=folder / "mixtral-library")
print("not over a file:", export(program, saved, folder / "mixtral-library", folder / "text.txt").stderr.strip())
print("not among checkpoints:", export(program, saved, folder / "mixtral-library", saved / "step-00000009").stderr.strip())
# What only the numbers show ends without a trace, too.
large = {name: as_type(value, "f16") for name, value in good.items()}
write_library(folder / "large", good | {first: good[first] * 1e9})
not_exported("too large", large, source=folder / "large")
damaged = folder / "damaged"
shutil.copytree(saved, damaged)
path = next(damaged.glob("step-*/model.safetensors"))
path.write_bytes(path.read_bytes()[:-1] + b"x")
not_exported("damaged", good, source=damaged)
# An empty directory is taken, also by a link; what a killed export left is not.
(folder / "empty").mkdir()
(folder / "link").symlink_to("empty")
result = export(program, saved, like("like", good), folder / "link")
report("into an empty directory", result.stderr or ("" if "model.safetensors" in contents(folder / "empty") else "nothing there"))
print(result.stdout.replace(str(folder), ""))
# One that is asked to end, at any call that changes files (test/runtime/fixture/FaultInjector.c), leaves nothing, unless all was written.
faults = pathlib.Path(shutil.which("braid-run")).resolve().parent.parent / "lib" / "libbraid-test-faults.so"
command = ["braid-run", "export", program, "--checkpoint", saved, "--like", folder / "like", "--output", folder / "stopped"]
inject = lambda **more: subprocess.run([str(part) for part in command], capture_output=True, text=True, env=os.environ | {"LD_PRELOAD": str(faults)} | more)
inject(BRAID_FAULT_LOG=str(folder / "calls"))
calls, wrong, ended = (folder / "calls").read_text().count("\n"), [], 0
for at in range(1, calls + 1, 3):
    shutil.rmtree(folder / "stopped", ignore_errors=True)
    result = inject(BRAID_FAULT="stop", BRAID_FAULT_AT=str(at))
    ended += (isStopped := "stopped; nothing was written" in result.stderr)
    good_end = result.returncode == 1 and not (folder / "stopped").exists() if isStopped else contents(folder / "stopped").keys() >= contents(folder / "empty").keys()
    wrong += [] if good_end and not (folder / ".stopped.tmp").exists() else [f"at call {at} of {calls}: {result.returncode} {result.stderr}"]
report("stopped exports", "; ".join(wrong) or ("" if ended > 3 else f"{ended} of {calls} stopped"))
# Numbers that are none are written, and said.
spoiled = good | {first: np.full_like(good[first], np.nan)}
write_library(folder / "spoiled", spoiled)
result = export(program, folder / "spoiled", like("like", good), folder / "spoiled-again")
print("spoiled:", result.stderr.strip(), "; written" if result.returncode == 0 else "; not written")
# What a killed export left is removed by the next; not while its maker is at work.
left = folder / ".again.tmp"
left.mkdir()
(left / "model-00009-of-00009.safetensors").write_text("half")
descriptor = os.open(left, os.O_RDONLY)
fcntl.flock(descriptor, fcntl.LOCK_EX)
print("not beside another:", export(program, saved, folder / "like", folder / "again").stderr.strip())
os.close(descriptor)
result = export(program, saved, folder / "like", folder / "again")
report("after a killed one", result.stderr or ("" if contents(folder / "again").keys() == contents(folder / "empty").keys() and not left.exists() else "not the same files"))
print(f"{failed} failed")
