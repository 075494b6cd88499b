"""Layers of one part in whole models: a mixer without a feed-forward, a feed-forward without a mixer, either beside layers of both (whole_models.py)."""

import sys

from whole_models import ATTENTION, MAMBA2, MOE, RWKV7, check_models

DENSE = {"kind": "dense", "hidden": 24, "activation": "relu2"}

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


def look(report, name, model):
    names = {n.split(".", 2)[2] for n in model.logical(model.initial(5)) if n.startswith("layers.1.")}
    if name in ("rounds", "sandwich", "post"):  # a feed-forward alone
        report.line(all(n.startswith(("norm2", "ffn", "moe", "shared")) for n in names), "weights of layer 1", str(sorted(names)))


if __name__ == "__main__":
    sys.exit(check_models("parts", MODELS, F32, 31, "mixed", look))
