"""Layers of one part in whole models: a mixer without a feed-forward, a feed-forward without a mixer, either beside layers of both.

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
MAMBA2 = {"kind": "mamba2", "heads": 4, "key_heads": 2, "head_dim": 16, "value_dim": 8}
ATTENTION = {"kind": "attention", "heads": 4, "kv_heads": 2, "head_dim": 8}
RWKV7 = {"kind": "rwkv7", "heads": 2, "head_dim": 8, "gate_rank": 8}
DENSE = {"kind": "dense", "hidden": 24, "activation": "relu2"}
MOE = {"kind": "moe", "num_experts": 6, "top_k": 2, "expert_hidden": 16, "shared_hidden": 8}

MODELS = {
    # No feed-forward at all: two runs of equal layers, in repeats.
    "mixers": {"num_layers": 6, "layer_pattern": "SSN", "mixers": {"S": MAMBA2, "N": ATTENTION}, "tie_embeddings": True},
    # One part in every layer, in rounds, and layers of both parts among them.
    "rounds": {
        "num_layers": 8,
        "layer_pattern": "S-N-",
        "ffn_pattern": "-D-M",
        "mixers": {"S": MAMBA2, "N": ATTENTION | {"rope": None}},
        "ffns": {"D": DENSE, "M": MOE},
    },
    "mixed": {
        "num_layers": 6,
        "layer_pattern": "S--NS-",
        "ffn_pattern": "DDM-MM",
        "mixers": {"S": MAMBA2, "N": ATTENTION},
        "ffns": {"D": DENSE, "M": MOE},
    },
    # What layers hand on and what follows from their numbers passes by layers without a mixer, also in front of the first.
    "handed": {
        "num_layers": 5,
        "layer_pattern": "-RH-R",
        "ffn_pattern": "DD-D-",
        "mixers": {"R": RWKV7, "H": {"kind": "hgrn2", "heads": 2, "head_dim": 8}},
        "ffns": {"D": DENSE},
    },
    # One sum and one norm a layer, behind it; alpha and gains count the sums, 4.
    "post": {
        "num_layers": 3,
        "layer_pattern": "N-S",
        "ffn_pattern": "-DD",
        "norm": {"kind": "layer", "eps": 1e-5},
        "norm_placement": "post",
        "residual": {"alpha": "deepnorm"},
        "mixers": {"S": MAMBA2, "N": ATTENTION},
        "ffns": {"D": DENSE | {"bias": True, "residual": {"beta": 0.5}}},
        "init": {"kind": "deepnorm", "std": 0.5},
    },
    # Two norms a part, of which the first passes by.
    "sandwich": {
        "num_layers": 2,
        "layer_pattern": "S-",
        "ffn_pattern": "-M",
        "norm_placement": "sandwich",
        "residual": {"from": "normed", "alpha": 0.9, "beta": 0.4},
        "mixers": {"S": MAMBA2},
        "ffns": {"M": MOE},
    },
}
F32 = ("mixers", "mixed")


def main():
    report = Report("parts")
    rng = np.random.default_rng(31)
    with report:
        for dtype, name in [("f64", name) for name in MODELS] + [("f32", name) for name in F32]:
            exact = dtype == "f64"
            report.name = f"parts {name} {dtype}"
            model = CompiledModel(BASE | MODELS[name] | {"name": name, "dtype": dtype}, report.folder, f"{name}-{dtype}")
            names = {n.split(".", 2)[2] for n in model.logical(model.initial(5)) if n.startswith("layers.1.")}
            if name in ("rounds", "sandwich", "post"):  # a feed-forward alone
                report.line(all(n.startswith(("norm2", "ffn", "moe", "shared")) for n in names), "weights of layer 1", str(sorted(names)))
            weights = perturbed(model.initial(5), rng)
            batch, documents = model.batch(rng, [[0, 11, 12, 37], [0, 20, 33, 33]])
            values = check_reference(report, model, weights, batch, documents, None if exact else 3e-5)
            check_update(report, model, weights, batch, documents, dtype)
            check_decoding(report, model, weights, rng, ((1,), (30,), (7, 32)), limit=None if exact else 1e-5)
            if name == "mixed" and exact:
                check_differences(report, model, weights, batch, values)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
