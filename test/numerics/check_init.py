"""Initial values: mean, deviation, bounds and shape of every distribution, and the same bits for any number of threads.

What each kind of matrix must get is computed here from the model file (Glorot and Bengio 2010, DeepNorm, base width), a
tensor of n values may miss its deviation by 5 / sqrt(2 n) and its mean by 5 / sqrt(n) deviations.
"""

import sys

import numpy as np

from harness import Report
from compiled_model import CompiledModel
from model import residual_sums

LAYERS, WIDTH, HIDDEN, EXPERT, EXPERTS = 3, 96, 192, 64, 4
BASE = {
    "vocab_size": 64,
    "d_model": WIDTH,
    "num_layers": LAYERS,
    "layer_pattern": "NL",
    "ffn_pattern": "DM",
    "context_len": 16,
    "mixers": {
        "N": {"kind": "attention", "heads": 4, "kv_heads": 2, "head_dim": 24, "output_gate": "sigmoid"},
        "L": {"kind": "gla", "heads": 4, "head_dim": 12, "gate_rank": 32},
    },
    "ffns": {
        "D": {"kind": "dense", "hidden": HIDDEN},
        "M": {"kind": "moe", "num_experts": EXPERTS, "top_k": 2, "expert_hidden": EXPERT},
    },
    "train": {"batch": 1, "seq_len": 16},
}
INITS = {
    "default": {"kind": "scaled"},
    "normal": {"kind": "xavier_normal", "gain": 0.8, "scale_output": False},
    "xavier": {"kind": "xavier_uniform", "gain": 1.5, "scale_output": True},
    "deepnorm": {"kind": "deepnorm", "std": 0.1},
    "width": {"kind": "normal", "std": 0.05, "base_width": 24},
}
# Layers of one part: residual sums are counted, not layers.
PARTS = {"parts": {"layer_pattern": "N-L", "ffn_pattern": "-DM"}, "deep parts": {"layer_pattern": "N-L", "ffn_pattern": "-DM"}}
INITS |= {"parts": {"kind": "scaled"}, "deep parts": INITS["deepnorm"]}
OUTPUTS, VALUES = ("wo", "w2"), ("wv", "w1", "w3")


def deviation(init, name, shape, sums):
    part = name.split(".")[-1]
    fan_in, fan_out = shape[-2:]
    if name in ("embed.weight", "head.weight"):
        return init.get("std", 0.02)
    if init["kind"] == "normal":
        return init["std"] / (1 if part == "wf2" else np.sqrt(WIDTH / init["base_width"])) / (
            np.sqrt(sums) if part in OUTPUTS else 1
        )
    to_stream = np.sqrt(sums) if part in OUTPUTS and init.get("scale_output", True) else 1
    if init["kind"] == "scaled":
        return 1 / np.sqrt(fan_in) / to_stream
    std = np.sqrt(2 / (fan_in + fan_out))
    if init["kind"] == "deepnorm":
        return std * ((4 * sums) ** -0.25 if part in OUTPUTS + VALUES else 1)
    return init["gain"] * std / to_stream


def main():
    report = Report("init")
    with report:
        for name, init in INITS.items():
            description = BASE | {"name": name, "init": init} | PARTS.get(name, {})
            model = CompiledModel(description, report.folder, name.replace(" ", "-"))
            seed = {"seed": np.array([11], np.int64)}
            runs = [
                model.program.call("init", seed, list(model.parameters), ["--threads", str(n)]) for n in (1, 2, 4)
            ]
            same = all(np.array_equal(runs[0][n], other[n]) for other in runs[1:] for n in runs[0])
            report.line(same, f"{name}: the same bits with 1, 2 and 4 threads", f"{len(model.parameters)} tensors")
            logical, worst, failed = model.logical(runs[0]), ("", 0.0), []
            for tensor, values in logical.items():
                if values.ndim < 2 or ".b" in tensor:
                    continue
                values = values.astype(np.float64).ravel()
                std = deviation(init, tensor, logical[tensor].shape, residual_sums(description))
                n, uniform = values.size, init["kind"] == "xavier_uniform" and "weight" not in tensor
                miss = max(
                    abs(values.std() / std - 1) / (5 / np.sqrt(2 * n)), abs(values.mean()) / std / (5 / np.sqrt(n))
                )
                # Fourth moment: 3 for a normal variable (deviation sqrt(24 / n)), 9 / 5 for a uniform one, and its bound.
                fourth = ((values / std) ** 4).mean()
                miss = max(miss, abs(fourth - (1.8 if uniform else 3.0)) / (8 * np.sqrt(96 / n)))
                if uniform and np.abs(values).max() > np.sqrt(3) * std * (1 + 1e-6):
                    failed.append(f"{tensor} leaves its bounds")
                if miss > worst[1]:
                    worst = (tensor, miss)
                if not miss <= 1:
                    failed.append(f"{tensor}: deviation {values.std():.4g}, expected {std:.4g}")
            words = f"{len(logical)} tensors, worst {worst[0]} at {worst[1]:.2g} of its bound"
            report.line(not failed, f"{name}: mean, deviation, shape", words + "".join(f"; {f}" for f in failed))
            # No two tensors, and no two experts or layers, share their random numbers.
            layer = {n: v for n, v in logical.items() if n.endswith(("moe.w1", "ffn.w1"))}
            parts = [p.ravel()[:512] for v in layer.values() for p in (v if v.ndim == 3 else [v])]
            distinct = len({p.tobytes() for p in parts})
            report.line(distinct == len(parts) > 4, f"{name}: numbers of their own", f"{distinct} of {len(parts)} parts")
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
