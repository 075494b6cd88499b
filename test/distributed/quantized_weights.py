"""Weights of other software in fp8 and mxfp4: every block of a matrix with a scale. What is read must be, in every number, what a file
of f32 with the elements times their scales gives; sizes are no multiples of blocks, scales of several types, experts apart and in one tensor.
Usage: quantized_weights.py FOLDER
"""
import json
import pathlib
import shutil
import struct
import subprocess
import sys

import numpy as np

from ranks_equal import checkpoint, run

folder = pathlib.Path(sys.argv[1])
shutil.rmtree(folder, ignore_errors=True)
folder.mkdir(parents=True)
rng = np.random.default_rng(7)
D, H, E, BLOCK = 36, 44, 4, (16, 8)
M, F = 64, 96  # in mxfp4, whose rows are of blocks of 32
(folder / "text.txt").write_text("The quick brown fox jumps over the lazy dog, again and again. " * 30)

# Every number of E4M3 by its definition: 1 sign, 4 bits of exponent with bias 7, 3 of fraction; 0x7f and 0xff are none.
codes = np.arange(256)
exponent, fraction = codes >> 3 & 15, codes & 7
E4M3 = np.where(exponent, (1 + fraction / 8) * 2.0 ** (exponent - 7), fraction / 8 * 2.0**-6) * np.where(codes & 128, -1, 1)
E4M3[[0x7f, 0xff]] = np.nan
E4M3 = E4M3.astype(np.float32)

weights = lambda more: {"embed.weight": "e", "final_norm.weight": "n", "head.weight": {"name": "h", "transposed": True},
                        **{f"layers.{{layer}}.norm{i}.weight": f"{{layer}}.norm{i}" for i in (1, 2)},
                        **{f"layers.{{layer}}.attn.w{x}": {"name": "{layer}.qkv", "rows": [a, b], "transposed": True}
                           for x, a, b in (("q", 0, 40), ("k", 40, 60), ("v", 60, 80))},
                        "layers.{layer}.attn.wo": {"name": "{layer}.o", "transposed": True},
                        "layers.{layer}.moe.router": {"name": "{layer}.router", "transposed": True}, **more}
apart = {f"layers.{{layer}}.moe.{w}": {"name": "{layer}.{expert}." + w, "transposed": True} for w in ("w1", "w3", "w2")}
stacked = {"layers.{layer}.moe.w1": {"name": "{layer}.w13", "rows": [0, H], "transposed": True, "stacked": True},
           "layers.{layer}.moe.w3": {"name": "{layer}.w13", "rows": [H, 2 * H], "transposed": True, "stacked": True},
           "layers.{layer}.moe.w2": {"name": "{layer}.w2", "stacked": True}}
SHAPES = {"e": (256, D), "n": (D,), "h": (256, D)}
for layer in "01":
    SHAPES |= {f"{layer}.norm1": (D,), f"{layer}.norm2": (D,), f"{layer}.qkv": (80, D), f"{layer}.o": (D, 40), f"{layer}.router": (E, D)}
OF_EXPERTS = {"apart": {f"{layer}.{e}.{w}": (D, H) if w == "w2" else (H, D) for layer in "01" for e in range(E) for w in ("w1", "w3", "w2")},
              "stacked": {name: shape for layer in "01" for name, shape in ((f"{layer}.w13", (E, 2 * H, D)), (f"{layer}.w2", (E, H, D)))}}
FP8 = {"quantization_config": {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": BLOCK, "activation_scheme": "dynamic"}}


def write_library(target, tensors, config):
    """`tensors`: name -> (type in the file, array of its bytes' shape)."""
    target.mkdir(exist_ok=True)
    header, at = {}, 0
    for name, (dtype, array) in tensors.items():
        header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [at, at + array.nbytes]}
        at += array.nbytes
    text = json.dumps(header).encode()
    data = b"".join(np.ascontiguousarray(array).tobytes() for _, array in tensors.values())
    (target / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    if config is not None:
        (target / "config.json").write_text(json.dumps(config))
    return target


def quantized(shapes, kind):
    """The same weights in fp8, with scales of a type, and in f32."""
    packed, plain = {}, {}
    for name, shape in shapes.items():
        if len(shape) == 1 or name in ("e", "h") or name.endswith("router"):  # as publishers leave them
            plain[name] = packed[name] = ("F32", rng.standard_normal(shape).astype(np.float32) * np.float32(0.1))
            continue
        blocks = shape[:-2] + tuple(-(-size // block) for size, block in zip(shape[-2:], BLOCK))
        bits = rng.integers(0, 127, shape).astype(np.uint8) | (rng.integers(0, 2, shape) * 128).astype(np.uint8)
        if kind == "F8_E8M0":
            stored = rng.integers(112, 117, blocks).astype(np.uint8)
            scales = np.exp2(stored.astype(np.float32) - 127)
        else:
            scales = (rng.uniform(0.2, 1, blocks) * 1e-3).astype(np.float32)
            stored = scales
            if kind == "BF16":
                stored = (scales.view(np.uint32) >> 16).astype(np.uint16)
                scales = (stored.astype(np.uint32) << 16).view(np.float32)
        grown = np.repeat(np.repeat(scales, BLOCK[0], -2), BLOCK[1], -1)[..., : shape[-2], : shape[-1]]
        packed |= {name: ("F8_E4M3", bits), name + "_scale_inv": (kind, stored)}
        plain[name] = ("F32", E4M3[bits] * grown)
    return packed, plain


def mxfp4(name, shape):
    """An [E, C, R] of E2M1 as files have it, and in f32."""
    E, C, R = shape
    values = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6] + [-0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)
    codes, exponents = rng.integers(0, 16, (E, R, C)), rng.integers(118, 124, (E, R, C // 32))
    blocks = (codes[..., 0::2] | codes[..., 1::2] << 4).astype(np.uint8).reshape(E, R, C // 32, 16)
    plain = values[codes] * np.repeat(np.exp2(exponents.astype(np.float32) - 127), 32, -1)
    return {name + "_blocks": ("U8", blocks), name + "_scales": ("U8", exponents.astype(np.uint8))}, {name: ("F32", plain.transpose(0, 2, 1))}


def compile_to(name, more, *flags, D=D, H=H):
    description = {"vocab_size": 256, "d_model": D, "num_layers": 2, "layer_pattern": "N", "train": {"batch": 2, "seq_len": 32},
                   "mixers": {"N": {"kind": "attention", "heads": 4, "kv_heads": 2, "head_dim": 10}},
                   "ffns": {"E": {"kind": "moe", "num_experts": E, "top_k": 2, "expert_hidden": H}}, "ffn_pattern": "E", "import": {"weights": weights(more)}}
    (folder / f"{name}.json").write_text(json.dumps(description))
    run("braid-compile", folder / f"{name}.json", "-o", folder / f"{name}.braid", "--opt-level=0", *flags)
    return folder / f"{name}.braid"


def one_step(program, library, ranks):
    target = folder / "trained"
    shutil.rmtree(target, ignore_errors=True)
    run("braid-run", "train", program, "--data", folder / "text.txt", "--threads=1", f"--ranks={ranks}", "--checkpoint-dir", target,
        "--init-from", library, "--steps=1", "--lr=1e-3", "--warmup=0", "--seed=3")
    return checkpoint(target / (target / "latest").read_text().strip())


for name, more, meshes in ("apart", apart, ("", "tp=2")), ("stacked", stacked, ("", "dp=2,ep=2")):
    for mesh in meshes:
        program = compile_to(name + mesh.replace("=", "").replace(",", ""), more, *([f"--mesh={mesh}"] if mesh else []))
        for kind in ("F32", "BF16", "F8_E8M0") if not mesh else ("F32",):
            packed, plain = quantized(SHAPES | OF_EXPERTS[name], kind)
            ranks = int(mesh[-1]) if mesh else 1
            a = one_step(program, write_library(folder / "packed", packed, FP8), ranks)
            b = one_step(program, write_library(folder / "plain", plain, None), ranks)
            wrong = [key for key in b if not np.array_equal(a[key], b[key])]
            print(f"{name} {mesh or 'alone'} scales {kind}:", ", ".join(wrong) or f"equal, {len(b)} tensors")


# Columns of gates and of what they open take turns, as in gpt-oss.
pairs = {"layers.{layer}.moe.w1": {"name": "{layer}.gate_up", "columns": [0, 2], "stacked": True},
         "layers.{layer}.moe.w3": {"name": "{layer}.gate_up", "columns": [1, 2], "stacked": True},
         "layers.{layer}.moe.w2": {"name": "{layer}.down", "stacked": True}}
MXFP4 = {"quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": ["h"]}}
rest = {name: ("F32", rng.standard_normal([M if size == D else size for size in shape]).astype(np.float32) * np.float32(0.1)) for name, shape in SHAPES.items()}
small, large = dict(rest), dict(rest)
for layer in "01":
    for name, shape in ((f"{layer}.gate_up", (E, M, 2 * F)), (f"{layer}.down", (E, F, M))):
        packed, plain = mxfp4(name, shape)
        small, large = small | packed, large | plain
for mesh, ranks in ("", 1), ("dp=2,ep=2", 2), ("tp=2", 2):
    of4 = compile_to("pairs" + mesh.replace("=", "").replace(",", ""), pairs, *([f"--mesh={mesh}"] if mesh else []), D=M, H=F)
    a = one_step(of4, write_library(folder / "packed", small, MXFP4), ranks)
    b = one_step(of4, write_library(folder / "plain", large, None), ranks)
    wrong = [key for key in b if not np.array_equal(a[key], b[key])]
    print(f"pairs {mesh or 'alone'} mxfp4:", ", ".join(wrong) or f"equal, {len(b)} tensors")


def error_of(what, change=lambda tensors: tensors, config=FP8):
    library = write_library(folder / "wrong", change(dict(packed)), config)
    result = subprocess.run(["braid-run", "eval", program, "--checkpoint", library, "--data", folder / "text.txt"], capture_output=True, text=True)
    print(f"{what}:", result.stderr.strip() or "read")
    shutil.rmtree(library)


program, (packed, plain) = folder / "apart.braid", quantized(SHAPES | OF_EXPERTS["apart"], "F32")
without = lambda name: lambda tensors: {key: value for key, value in tensors.items() if key != name}
error_of("as it is")
four, packed = packed, small
program, eight = folder / "pairs.braid", program
error_of("pairs as they are", config=MXFP4)
error_of("pairs without scales", without("0.down_scales"), config=MXFP4)
error_of("pairs of other blocks", lambda t: t | {"0.down_blocks": ("U8", np.ones((E, M, F // 32, 15), np.uint8))}, config=MXFP4)
error_of("pairs with few scales", lambda t: t | {"0.down_scales": ("U8", np.ones((E, M, 2), np.uint8))}, config=MXFP4)
error_of("pairs twice", lambda t: t | {"0.down": ("F32", np.ones((E, F, M), np.float32))}, config=MXFP4)
error_of("pairs and no config", config={})
error_of("pairs as fp8", config=FP8)
error_of("scales alone", without("0.down_blocks"), config=MXFP4)
packed, program = four, eight
error_of("no scales", without("0.o_scale_inv"))
error_of("few scales", lambda t: t | {"0.o_scale_inv": ("F32", np.ones((2, 5), np.float32))})
error_of("scales of fp8", lambda t: t | {"0.o_scale_inv": ("F8_E4M3", np.ones((3, 5), np.uint8))})
error_of("fp8 as mxfp4", config=MXFP4)
error_of("scales of integers", lambda t: t | {"0.o_scale_inv": ("I32", np.ones((3, 5), np.int32))})
error_of("scales of what has none", lambda t: t | {"e_scale_inv": ("F32", np.ones((16, 5), np.float32))})
error_of("a vector", lambda t: t | {"n": ("F8_E4M3", np.ones(D, np.uint8)), "n_scale_inv": ("F32", np.ones(5, np.float32))})
error_of("no config", config=None)
error_of("no quantization", config={})
for key, value in (("weight_block_size", None), ("weight_block_size", [16]), ("weight_block_size", [0, 8]), ("weight_block_size", [-1, 8]), ("fmt", "e5m2"),
                   ("quant_method", "awq"), ("quant_method", None)):
    error_of(f"{key} {json.dumps(value)}", config={"quantization_config": FP8["quantization_config"] | {key: value}})
error_of("a list", config={"quantization_config": [1]})
error_of("blocks of 128", config={"quantization_config": {"quant_method": "fp8"}})
def export_to(what, program, plain, packed, config):
    template, source = write_library(folder / "template", packed, config), write_library(folder / "plain", plain, None)
    result = subprocess.run(["braid-run", "export", program, "--checkpoint", source, "--like", template, "--output", folder / "exported"], capture_output=True, text=True)
    print(f"{what} exported:", result.stderr.strip(), (folder / "exported").exists())


export_to("fp8", program, plain, packed, FP8)
export_to("mxfp4", folder / "pairs.braid", large, small, MXFP4)
