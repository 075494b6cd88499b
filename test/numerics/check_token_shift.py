"""Feed-forwards that see the token before, gates on what they give, norms of the embedding, norms without biases, values of the first layer that are not mixed (whole_models.py)."""

import sys

from whole_models import ATTENTION, MOE, RWKV7, check_models

SHIFTED = {"kind": "dense", "hidden": 24, "activation": "relu2", "token_shift": True}

MODELS = {
    # RWKV-7 as published.
    "published": {
        "num_layers": 4,
        "layer_pattern": "FRRR",
        "norm": {"kind": "layer", "eps": 1e-5},
        "embedding_norm": True,
        "embedding_multiplier": 2.0,
        "mixers": {"F": RWKV7 | {"value_mix": False}, "R": RWKV7 | {"value_rank": 3, "rate_rank": 5, "l2_eps": 1e-6}},
        "ffns": {"D": SHIFTED},
    },
    # Values that take the place of the first layer's; a gate that sees the token before, also in a layer without a mixer; experts.
    "unbiased": {
        "num_layers": 4,
        "layer_pattern": "R-FR",
        "ffn_pattern": "MDDM",
        "norm": {"kind": "layer", "bias": False},
        "embedding_norm": True,
        "tie_embeddings": True,
        "mixers": {"F": RWKV7 | {"value_mix": False}, "R": RWKV7},
        "ffns": {"D": SHIFTED | {"activation": "swiglu", "bias": True}, "M": MOE},
    },
    # RWKV-6 as published: a gate on what the feed-forward gives, with a mixture of tokens of its own.
    "gated": {
        "num_layers": 3,
        "layer_pattern": "RRN",
        "norm": {"kind": "layer", "eps": 1e-5},
        "embedding_norm": True,
        "mixers": {"R": {"kind": "rwkv6", "heads": 2, "head_dim": 6, "value_dim": 12, "gate_rank": 5, "mix_rank": 3, "norm_eps": 1e-5}, "N": ATTENTION},
        "ffns": {"D": SHIFTED | {"output_gate": "sigmoid"}},
    },
    # Gates that see no token before, behind a bias.
    "opened": {
        "num_layers": 2,
        "layer_pattern": "NR",
        "ffn_pattern": "DE",
        "mixers": {"N": ATTENTION, "R": RWKV7},
        "ffns": {"D": {"kind": "dense", "hidden": 20, "activation": "geglu", "bias": True, "output_gate": "tanh"}, "E": SHIFTED | {"output_gate": "gelu_tanh", "bias": True}},
    },
}

if __name__ == "__main__":
    sys.exit(check_models("token-shift", MODELS, ("published", "gated"), 37, "unbiased"))
