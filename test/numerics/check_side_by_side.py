"""Mixers side by side in one layer, and the multipliers, biases and bounds that a Mamba-2 mixer may have: whole models.

Loss, every gradient, the optimizer's step and decoding after prefills of several lengths against the reference model, with documents packed
into rows, in f64 (1e-9, gradients 1e-8) and f32 (loss 2e-6, gradients 3e-5, logits 1e-5); central differences of one model.
"""

import sys

import numpy as np

from check_gradients import check_differences
from check_mixer import check_update
from compiled_model import CompiledModel, check_decoding, check_reference, perturbed
from harness import Report

BASE = {
    "vocab_size": 29,
    "d_model": 24,
    "context_len": 63,
    "max_documents": 3,
    "init": {"std": 0.5, "scale_output": False},
    "train": {"batch": 2, "seq_len": 37, "weight_decay": 0.1, "clip_norm": 0.5},
}
ATTENTION = {"kind": "attention", "heads": 4, "kv_heads": 2, "head_dim": 8}
WINDOW = ATTENTION | {"kv_heads": 1, "window": 7}
MAMBA2 = {"kind": "mamba2", "heads": 4, "key_heads": 2, "head_dim": 16, "value_dim": 8}
RWKV7 = {"kind": "rwkv7", "heads": 2, "head_dim": 8, "gate_rank": 8}
GLA = {"kind": "gla", "heads": 2, "head_dim": 8, "gate_rank": 5}
MLA = {"kind": "mla", "heads": 2, "kv_rank": 6, "head_dim": 8, "rope_dim": 4}
DENSE = {"kind": "dense", "hidden": 24}
MOE = {"kind": "moe", "num_experts": 6, "top_k": 2, "expert_hidden": 16, "shared_hidden": 8}
FACTORS = {"q": 1.3, "k": 0.7, "v": 1.6, "g": 0.4, "dt": 1.9}

MODELS = {
    # As Falcon-H1 has it, in rounds; the norm of a mixer behind its gate.
    "falcon": {
        "num_layers": 4,
        "layer_pattern": "(NM)",
        "mixers": {
            "N": ATTENTION | {"scale": 0.2, "input_multiplier": 1.7, "residual": {"beta": 0.6}},
            "M": MAMBA2 | {"norm_first": True, "input_multiplier": 0.8, "projection_multipliers": FACTORS, "residual": {"beta": 0.3}},
        },
        "ffns": {"D": DENSE | {"gate_multiplier": 0.7, "residual": {"beta": 0.4}}},
        "embedding_multiplier": 3.0,
        "logits_multiplier": 0.7,
    },
    # All that a Mamba-2 mixer may have; no norm, no gate, and neither.
    "mamba2": {
        "num_layers": 4,
        "layer_pattern": "ABCD",
        "mixers": {
            "A": MAMBA2 | {"projection_bias": True, "output_bias": True, "min_step": 0.4, "max_step": 0.9, "projection_multipliers": FACTORS},
            "B": MAMBA2 | {"output_norm": False, "max_step": 0.7, "projection_multipliers": {"dt": 0.5}},
            "C": MAMBA2 | {"output_gate": None, "min_step": 0.6, "projection_bias": True, "conv": None},
            "D": MAMBA2 | {"output_gate": None, "output_norm": False, "input_multiplier": 0.3},
        },
    },
    # Two of one kind, three, a mixer alone and a layer without; some of these hand on values, of which the first of all are mixed in.
    "many": {
        "num_layers": 5,
        "layer_pattern": "-(RSN)(NW)(LR)M",
        "ffn_pattern": "D",
        "mixers": {"R": RWKV7, "S": RWKV7 | {"gate_rank": 5}, "N": ATTENTION | {"rope": None}, "W": WINDOW, "L": MLA, "M": GLA | {"input_multiplier": 2.0}},
        "ffns": {"D": DENSE},
    },
    # One norm behind the sum of what passes by and of what each adds by a factor of its own; such a layer is one sum.
    "post": {
        "num_layers": 3,
        "layer_pattern": "(NM)(WM)-",
        "norm": {"kind": "layer", "eps": 1e-5},
        "norm_placement": "post",
        "residual": {"alpha": "deepnorm"},
        "mixers": {"N": ATTENTION | {"residual": {"beta": 0.5}}, "M": MAMBA2, "W": WINDOW | {"residual": {"beta": 1.5}}},
        "ffns": {"D": DENSE | {"bias": True, "gate_multiplier": 2.5}},
        "init": {"kind": "deepnorm", "std": 0.5},
    },
    # A norm of what they add together, in front of experts.
    "sandwich": {
        "num_layers": 2,
        "layer_pattern": "(MN)",
        "norm_placement": "sandwich",
        "residual": {"from": "normed", "alpha": 0.9, "beta": 0.4},
        "mixers": {"M": MAMBA2, "N": ATTENTION},
        "ffns": {"M": MOE},
    },
    "output": {
        "num_layers": 2,
        "layer_pattern": "(MNW)",
        "norm_placement": "output",
        "mixers": {letter: mixer | {"residual": {"beta": 0.8}} for letter, mixer in (("M", MAMBA2), ("N", ATTENTION), ("W", WINDOW))},
        "ffns": {"D": DENSE},
        "schedule": {"recompute": "all"},
    },
}
F32 = ("falcon", "many")


def main():
    report = Report("side-by-side")
    rng = np.random.default_rng(37)
    with report:
        for dtype, name in [("f64", name) for name in MODELS] + [("f32", name) for name in F32]:
            exact = dtype == "f64"
            report.name = f"side-by-side {name} {dtype}"
            model = CompiledModel(BASE | MODELS[name] | {"name": name, "dtype": dtype}, report.folder, f"{name}-{dtype}")
            weights = perturbed(model.initial(5), rng)
            batch, documents = model.batch(rng, [[0, 11, 12, 37], [0, 20, 33, 33]])
            values = check_reference(report, model, weights, batch, documents, None if exact else 3e-5)
            check_update(report, model, weights, batch, documents, dtype)
            check_decoding(report, model, weights, rng, ((1,), (30,), (7, 32)), limit=None if exact else 1e-5)
            if name == "sandwich" and exact:
                check_differences(report, model, weights, batch, values)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
