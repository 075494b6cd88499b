"""Mixers side by side in one layer, and the multipliers, biases and bounds that a Mamba-2 mixer may have: whole_models.py."""

import sys

from whole_models import ATTENTION, MAMBA2, MOE, RWKV7, check_models

WINDOW = ATTENTION | {"kv_heads": 1, "window": 7}
GLA = {"kind": "gla", "heads": 2, "head_dim": 8, "gate_rank": 5}
MLA = {"kind": "mla", "heads": 2, "kv_rank": 6, "head_dim": 8, "rope_dim": 4}
DENSE = {"kind": "dense", "hidden": 24}
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


if __name__ == "__main__":
    sys.exit(check_models("side-by-side", MODELS, F32, 37, "sandwich"))
