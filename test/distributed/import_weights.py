"""Weights that other software wrote: a checkpoint of ours under the names, the orientation and the files of another library is read as
what it was.

Names and orientation of transformers are written down once more, on their own (library_names.py). A training of one step that begins with such files and
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

from library_names import BASE, CONFIGS, FLA, LATENT, ONE_PART, PLUS_ONE, RECURRENT, WITH_CONVOLUTIONS, WITH_MAMBA, is_unread, of_family, of_mamba, of_transformers
from ranks_equal import checkpoint, run

folder = pathlib.Path(sys.argv[1])
folder.mkdir(parents=True, exist_ok=True)
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


for family, given in ({name: BASE | more for name, more in CONFIGS.items()} | ONE_PART | WITH_MAMBA | LATENT | WITH_CONVOLUTIONS | RECURRENT | FLA).items():
    config = folder / f"{family}.json"
    config.write_text(json.dumps(given | {"model_type": re.sub("-dense|-fused", "", family)}))
    program = compile_to(folder / f"{family}.braid", config)
    error = train(program, folder / family, "--steps=3", "--lr=0.05", "--warmup=0")
    assert not error, error
    begun = weights(folder / family)
    theirs = lambda ours: of_family(family, ours)
    library, files = theirs(begun), 1 if family == "mixtral" else 3
    write_library(folder / f"{family}-library", library, files)
    for kind in ("f32", "bf16", "f16") if family in ("qwen3_moe", "qwen3_next", "nemotron_h", "granitemoehybrid") else ("f32",):
        report_export(f"{family} {kind}", program, folder / family, library, files, kind)
    kinds = [("f32", "", 1)] + ([("f32", "tp=2", 2)] if family in ("nemotron_h", "minimax_m2", "deepseek_v3", "kimi_linear", "phi3", "zamba2", "bailing_hybrid", "lfm2_moe", "olmo_hybrid", "xlstm-fused", "recurrent_gemma", "lara_mini", "kda", "retnet", "hgrn2", "rwkv6", "rwkv7") else [])
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
        "zamba2": [{}, {"hybrid_layer_ids": [1, 2, 4], "attention_hidden_size": 64, "time_step_min": 0.01, "use_conv_bias": False}, {"num_mem_blocks": 1},
                   {"use_mem_rope": False}, {"rope_theta": 500}, {"hidden_act": "silu"}],
        "falcon_h1": [{}, {"mamba_d_head": 16, "time_step_limit": [0.0, {"__float__": "Infinity"}], "embedding_multiplier": 1.0}, {"mamba_norm_before_gate": False},
                      {"ssm_multipliers": [0.5, 2, 0.25, 1.5, 4]}, {"mlp_multipliers": None}, {"key_multiplier": 0.25}, {"attention_out_multiplier": 0.5},
                      {"time_step_limit": [0.0, 0.5]}],
        "minimax_m2": [{}, {"rotary_dim": None, "rope_parameters": {"partial_rotary_factor": 4 / 12}}, {"rotary_dim": 6}, {"partial_rotary_factor": 0.5}],
        "gpt_oss": [{}, {"rope_parameters": YARN}, {"rope_parameters": YARN | {"truncate": True}}, {"rope_theta": 1e4},
                    {"sliding_window": 9}, {"layer_types": ["sliding_attention", "full_attention", "sliding_attention"]}, {"layer_types": ["full_attention"] * 3},
                    {"attention_bias": False}, {"swiglu_alpha": 1.702, "swiglu_limit": 7}, {"swiglu_limit": 8.0}, {"quantization_config": {"quant_method": "mxfp4"}}],
        "olmo3": [{}, {"rope_scaling": None, "rope_parameters": {"full_attention": {"rope_type": "yarn", "rope_theta": 5e5, "factor": 4.0,
                                                                                    "original_max_position_embeddings": 16}}},
                  {"rope_scaling": None}, {"rope_theta": 1e4}, {"rope_parameters": {"sliding_attention": {"rope_theta": 1e4}}},
                  {"rope_scaling": {"rope_type": "yarn", "factor": 4, "original_max_position_embeddings": 32}}, {"layer_types": None}, {"sliding_window": None}],
        "exaone4": [{}, {"sliding_window_pattern": "LG", "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]},
                    {"sliding_window_pattern": 3}, {"sliding_window_pattern": 2, "layer_types": ["full_attention"] * 3}, {"sliding_window": None}],
        "phi3": [{}, {"original_max_position_embeddings": 9, "resid_pdrop": 0.1}, {"partial_rotary_factor": None, "rope_parameters": {"partial_rotary_factor": 0.5}},
                 {"partial_rotary_factor": 1.0}, {"sliding_window": None}, {"rope_scaling": {"type": "longrope"}}],
        "glm4": [{}, {"partial_rotary_factor": 1.0}, {"attention_bias": False}, {"rms_norm_eps": 1e-5}],
        "ernie4_5_moe": [{}, {"moe_layer_end_index": 2, "moe_use_aux_free": True}, {"moe_k": None, "num_experts_per_tok": 2}, {"moe_k": 1}, {"moe_norm_min": 0.5}],
        "bailing_hybrid": [{}, {"layer_types": ["linear_attention", "full_attention", "linear_attention"], "layer_group_size": 6,
                                "num_experts": None, "num_local_experts": 4, "n_group": 2, "num_expert_group": None, "mlp_layer_types": ["dense", "sparse", "sparse"],
                                "first_k_dense_replace": 2, "linear_head_dim": 8, "head_dim": 4}, {"layer_group_size": 3}, {"kda_lower_bound": -4}, {"kda_safe_gate": False}, {"rope_theta": 1e4}, {"rope_theta": 1e4, "rope_parameters": {"rope_type": "default", "rope_theta": 6e6}}, {"moe_renormalize": False}],
        "lfm2": [{}, {"full_attn_idxs": None, "layer_types": ["conv", "full_attention", "conv"], "tie_embedding": True, "block_ff_dim": 40, "block_auto_adjust_ff_dim": False},
                 {"full_attn_idxs": [0, 1]}, {"norm_eps": 1e-6}, {"rope_theta": 1e4}, {"conv_bias": False}, {"tie_word_embeddings": False}],
        "lfm2_moe": [{}, {"use_expert_bias": False}, {"norm_topk_prob": False}, {"routed_scaling_factor": 2.0}],
        "lfm3": [{}, {"rope_parameters": {"full_attention": {"rope_type": "proportional", "rope_theta": 1e6, "partial_rotary_factor": 0.5},
                                          "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}},
                 {"rope_parameters": {"full_attention": {"rope_type": "proportional", "rope_theta": 1e6, "partial_rotary_factor": 0.25},
                                      "sliding_attention": {"rope_theta": 1e4}}}, {"rope_parameters": {"full_attention": {"rope_type": "proportional", "rope_theta": 1e6}, "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}},
                 {"sliding_window": 9}, {"norm_eps": None, "rms_norm_eps": 1e-6}, {"use_sandwich_norm": False}],
        "olmo_hybrid": [{}, {"linear_num_value_heads": 4, "linear_allow_neg_eigval": True, "linear_dt_min": 0.01}, {"rope_parameters": None}, {"rope_theta": 1e4},
                        {"linear_allow_neg_eigval": False}, {"rms_norm_eps": 1e-5}],
        "gemma": [{}, {"hidden_act": "gelu_pytorch_tanh"}, {"hidden_act": "silu"}],
        "kimi_linear": [{}, {"mlp_layer_types": ["dense", "sparse", "sparse"], "first_k_dense_replace": None}, {"first_k_dense_replace": 2},
                        {"mlp_layer_types": ["sparse", "dense", "sparse"], "first_k_dense_replace": None}],
        "jamba": [{}, {"attn_layer_offset": 2}],
        "deepseek_v3": [{}, {"first_k_dense_replace": 2}, {"num_key_value_heads": None}, {"rope_interleave": True}, {"rope_interleave": False}],
        "gemma2": [{}, {"sliding_window_size": 9}, {"attn_logit_softcapping": 4.0}],
        "recurrent_gemma": [{}, {"attention_window_size": 9}],
        "xlstm": [{}, {"qk_dim_factor": 0.5}],
        "gla": [{}, {"fuse_norm": False}, {"attn": None}, {"norm_eps": 1e-3}, {"num_kv_heads": 1},
                {"attn": [{"layers": [1], "num_heads": 4, "num_kv_heads": 2, "qkv_bias": False, "window_size": None, "rope_theta": 10000.0}], "hidden_ratio": 3, "intermediate_size": 256},
                {"attn": {"layers": [1], "num_heads": 4, "num_kv_heads": 2, "window_size": 9}}, {"conv_size": 3},
                {"attn": {"layers": [1], "num_heads": 4, "num_kv_heads": 2, "rope_theta": 10000.0}}],
        "hgrn2": [{}, {"num_heads": 4, "fuse_norm": False}, {"use_lower_bound": False}, {"expand_ratio": 16}],
        "rwkv6": [{}, {"fuse_norm": False, "hidden_ratio": 3.4}, {"norm_first": True}, {"expand_v": 2.0}, {"gate_low_rank_dim": 6}],
        "rwkv7": [{}, {"num_heads": 4, "value_dim": [32, 32, 32], "use_l2warp": False}, {"fuse_norm": False}, {"norm_first": False}, {"hidden_act": "relu"}, {"norm_eps": 1e-6}, {"head_dim": 16}],
        "falcon_mamba": [{}, {"intermediate_size": 96}, {"mixer_rms_eps": 1e-3}],
        "gemma3_text": [{}, {"rope_parameters": {"sliding_attention": {"rope_theta": 1e4}, "full_attention": None}},
                        {"rope_parameters": {"sliding_attention": {"rope_theta": 500.0}}}, {"rope_local_base_freq": 500.0}, {"rope_theta": 1e4},
                        {"rope_scaling": {"rope_type": "linear", "factor": 8.0}}, {"layer_types": ["full_attention"] * 3}, {"layer_types": None},
                        {"query_pre_attn_scalar": 12}, {"sliding_window": 9}, {"final_logit_softcapping": 30.0}],
        "qwen3_next": [{}, {"layer_types": None, "full_attention_interval": 3}, {"partial_rotary_factor": 0.25},
                       {"rope_parameters": {"partial_rotary_factor": 0.25, "rope_theta": 1e4}, "partial_rotary_factor": 0.5},
                       {"partial_rotary_factor": 0.5}, {"rope_parameters": {"partial_rotary_factor": 1.0}}, {"norm_topk_prob": False}, {"full_attention_interval": 2}]}.items():
    beside, whole = folder / f"{family}-beside", (ONE_PART | WITH_MAMBA | LATENT | WITH_CONVOLUTIONS | RECURRENT | FLA).get(family) or BASE | CONFIGS[family]
    whole = whole | {"model_type": family}
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
