"""Norm placements, residual scaling, multipliers, gated and windowed attention, mu-parametrisation in whole models (f64).

Loss, every gradient and the optimizer's step against the reference model; central differences; and decoding past the point
where the ring of a windowed attention begins to overwrite its oldest rows. Limits: 1e-9, gradients 1e-8.
"""

import sys

import numpy as np

from harness import Report
from check_gradients import check_differences
from compiled_model import CompiledModel, check_decoding, check_reference, decays, perturbed
from train import adamw

BASE = {
    "vocab_size": 23,
    "d_model": 16,
    "num_layers": 2,
    "dtype": "f64",
    "context_len": 60,
    "max_documents": 2,
    "train": {"batch": 2, "seq_len": 21, "weight_decay": 0.1, "clip_norm": 0.0},
}
GLA = {"kind": "gla", "heads": 2, "head_dim": 4, "gate_rank": 3}
DENSE = {"kind": "dense", "hidden": 20, "activation": "gelu", "bias": True}
MOE = {"kind": "moe", "num_experts": 4, "top_k": 2, "expert_hidden": 8}
WINDOW = {"kind": "attention", "heads": 4, "kv_heads": 2, "head_dim": 4, "window": 5}

MODELS = {
    # x <- norm(alpha x + f(x)), values and outputs initialised with gain (8 L)^-1/4.
    "deepnorm": BASE
    | {
        "layer_pattern": "WL",
        "norm": {"kind": "layer", "eps": 1e-5},
        "norm_placement": "post",
        "residual": {"alpha": "deepnorm"},
        "mixers": {"W": WINDOW | {"output_gate": "sigmoid", "output_gate_per": "head"}, "L": GLA},
        "ffns": {"D": DENSE},
        "init": {"kind": "deepnorm", "std": 0.5},
    },
    # x <- alpha x + beta norm(f(norm(x))), every multiplier, learning rates and deviations relative to a width of 4.
    "sandwich": BASE
    | {
        "layer_pattern": "WL",
        "ffn_pattern": "MD",
        "norm_placement": "sandwich",
        "residual": {"alpha": 0.9, "beta": 0.4},
        "embedding_multiplier": 3.0,
        "logits_multiplier": 2.5,
        "logits_softcap": 1.5,
        "mixers": {"W": WINDOW | {"output_gate": "silu", "scale": 0.3, "qk_norm": True}, "L": GLA},
        "ffns": {"M": MOE | {"shared_hidden": 12, "shared_gate": True}, "D": DENSE},
        "init": {"kind": "normal", "std": 0.4, "base_width": 4},
    },
    # x <- alpha x + beta norm(f(x)), the norm of q and k over all heads, a gate of tanh's gelu (OLMo 2, Gemma).
    "output": BASE
    | {
        "layer_pattern": "WL",
        "ffn_pattern": "MD",
        "norm_placement": "output",
        "residual": {"alpha": 0.9, "beta": 0.4},
        "mixers": {"W": WINDOW | {"qk_norm": True, "qk_norm_over": "heads"}, "L": GLA},
        "ffns": {"M": MOE | {"activation": "geglu_tanh"}, "D": DENSE | {"activation": "geglu_tanh"}},
        "init": {"kind": "normal", "std": 0.4},
    },
    # Sinks beside windows and beside all keys, biases everywhere, a clamped activation that is hit (gpt-oss).
    "sinks": BASE
    | {
        "layer_pattern": "WN",
        "ffn_pattern": "MD",
        "mixers": {k: WINDOW | {"qkv_bias": True, "output_bias": True, "sinks": True, "window": w} for k, w in (("W", 5), ("N", 0))},
        "ffns": {
            "M": MOE | {"activation": "swiglu_clamp", "bias": True, "router": {"bias": True}},
            "D": DENSE | {"activation": "swiglu_clamp"},
        },
        "init": {"kind": "normal", "std": 2.0},
    },
    # The normed input passes by, with factors of its own for each kind of part (MiniMax-01).
    "normed": BASE
    | {
        "layer_pattern": "WL",
        "ffn_pattern": "MD",
        "residual": {"from": "normed", "alpha": 1.5},
        "mixers": {
            "W": WINDOW | {"window": 2, "residual": {"alpha": 3.5}},
            "L": GLA | {"residual": {"alpha": 2.5, "beta": 0.75}},
        },
        "ffns": {"M": MOE | {"residual": {"beta": 0.5}}, "D": DENSE},
        "init": {"kind": "xavier_uniform", "gain": 1.4},
    },
}


def check_update(report, model, weights, batch, values, ratio):
    """One step: matrices that read the width learn at 1 / ratio of the rate."""
    out = model.step(weights, batch, [*model.parameters], learning_rate=1e-2)
    expected = {}
    for n, g in model.gradients.items():
        narrow = n.endswith(("lsm.wf2", "embed.weight", "head.weight"))
        rate = 1e-2 / (1.0 if narrow or not decays(n) else ratio)
        expected[n] = adamw(
            weights[n], values[g], 0.0, 0.0, rate, 1, 1.0, 0.9, 0.95, 1e-8, 0.1 if decays(n) else 0.0
        )[0]
    report.compare("parameters after a step", out, expected, 1e-9)


def check_ring(report, model, weights, rng, windows, prefills):
    """Prefills and steps up to the end of the context: 60 positions in a ring of window + 31 rows."""
    length = 60
    rows = {t["shape"][-3] for n, t in model.tensors.items() if t["role"] == "cache" and ".attn." in n}
    expected = {w + 31 if w else length for w in windows}
    report.line(rows == expected, "rows of the caches", f"{sorted(rows)}, context {length}, windows {sorted(windows)}")
    for lengths in prefills:
        check_decoding(report, model, weights, rng, [lengths], length - sum(lengths))


def main():
    report = Report("blocks")
    rng = np.random.default_rng(29)
    with report:
        for name, description in MODELS.items():
            report.name = f"blocks {name}"
            model = CompiledModel(description | {"name": name}, report.folder, name)
            weights = perturbed(model.initial(5), rng)
            batch, documents = model.batch(rng, [[0, 9, 21], [0, 17, 17]])
            values = check_reference(report, model, weights, batch, documents)
            width = description["init"].get("base_width", description["d_model"])
            check_update(report, model, weights, batch, values, description["d_model"] / width)
            prefills = {"deepnorm": [(32, 20)], "sandwich": [(3, 32, 21)], "output": [(32, 21)], "sinks": [(1, 32)], "normed": [(20, 32)]}[name]
            windows = {m.get("window", 0) for m in description["mixers"].values() if m["kind"] == "attention"}
            check_ring(report, model, weights, rng, windows, prefills)
            if name in ("sandwich", "output", "sinks"):
                check_differences(report, model, weights, batch, values)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
