"""Lower bounds of decays that all layers learn together, in the layers of repeats and among others, or none (whole_models.py)."""

import sys

from whole_models import ATTENTION, MOE, check_models

HGRN2 = {"kind": "hgrn2", "heads": 2, "head_dim": 8}
LEARNED = HGRN2 | {"lower_bounds": "learned"}
DENSE = {"kind": "dense", "hidden": 24}

MODELS = {
    # HGRN2 as published, in one repeat.
    "learned": {"num_layers": 4, "layer_pattern": "H", "mixers": {"H": LEARNED | {"value_dim": 12}}, "ffns": {"D": DENSE}},
    # Bounds count attention's layers too; two mixers with one table, experts.
    "hybrid": {
        "num_layers": 7,
        "layer_pattern": "NHHG",
        "ffn_pattern": "DMDD",
        "tie_embeddings": True,
        "mixers": {"N": ATTENTION, "H": LEARNED, "G": LEARNED | {"output_gate": "silu", "conv": {"kernel": 2}}},
        "ffns": {"D": DENSE, "M": MOE},
    },
    # Two mixers of one layer.
    "beside": {"num_layers": 3, "layer_pattern": "(HN)(HG)N", "mixers": {"N": ATTENTION, "H": LEARNED, "G": LEARNED}, "ffns": {"D": DENSE}},
    "none": {"num_layers": 2, "layer_pattern": "H", "mixers": {"H": HGRN2 | {"lower_bounds": None}}, "ffns": {"D": DENSE}},
}

if __name__ == "__main__":
    sys.exit(check_models("bounds", MODELS, ("learned",), 43, "hybrid"))
