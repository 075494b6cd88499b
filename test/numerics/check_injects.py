"""Blocks that layers share: attention over a layer's input beside the embedding, whose result the layer's mixers read: whole_models.py. Every use of a
block has keys and values of its own in generation, and the block's gradients are sums over its uses."""

import sys

from whole_models import ATTENTION, MAMBA2, MOE, RWKV7, check_models

DENSE = {"kind": "dense", "hidden": 24}
WIDE = {"heads": 4, "head_dim": 12}
GEGLU = {"hidden": 20, "activation": "geglu"}

MODELS = {
    # As Zamba2 has it: two blocks in turns, products of low rank of every layer, a tied table of embeddings.
    "zamba2": {
        "num_layers": 7,
        "layer_pattern": "M",
        "inject_pattern": "--A-B-A",
        "mixers": {"M": MAMBA2},
        "injects": {
            "A": {"attention": WIDE | {"scale": 0.4}, "attention_adapter_rank": 3, "ffn": GEGLU, "ffn_adapter_rank": 5},
            "B": {"attention": WIDE | {"rope": None, "kv_heads": 2}, "ffn": GEGLU, "ffn_adapter_rank": 2},
        },
        "tie_embeddings": True,
    },
    # One block of all layers, from the first on, without a feed-forward; mixers side by side, values of the first layer, experts behind.
    "all": {
        "num_layers": 3,
        "layer_pattern": "(NR)R",
        "ffn_pattern": "DE",
        "inject_pattern": "A",
        "embedding_multiplier": 2.0,
        "mixers": {"N": ATTENTION, "R": RWKV7},
        "ffns": {"D": DENSE, "E": MOE},
        "injects": {"A": {"attention": WIDE | {"kv_heads": 2, "window": 9, "qkv_bias": True, "output_gate": "silu"}, "attention_adapter_rank": 4}},
        "schedule": {"recompute": "0,2"},
    },
    # Read without a norm in front; a layer norm has biases, and so may a feed-forward without a gate.
    "post": {
        "num_layers": 4,
        "layer_pattern": "MM-N",
        "ffn_pattern": "D",
        "inject_pattern": "A--A",
        "norm": {"kind": "layer", "eps": 1e-5},
        "norm_placement": "post",
        "mixers": {"M": MAMBA2, "N": ATTENTION},
        "ffns": {"D": DENSE},
        "injects": {"A": {"attention": WIDE, "ffn": {"hidden": 16, "activation": "relu2", "bias": True}, "ffn_adapter_rank": 2}},
        "schedule": {"recompute": "all"},
    },
    "sandwich": {
        "num_layers": 3,
        "layer_pattern": "N",
        "inject_pattern": "-BB",
        "norm_placement": "sandwich",
        "residual": {"alpha": 0.8, "beta": 0.5},
        "mixers": {"N": ATTENTION},
        "injects": {"B": {"attention": WIDE | {"qk_norm": True, "sinks": True}, "ffn": GEGLU | {"gate_multiplier": 0.7}}},
    },
    "output": {
        "num_layers": 2,
        "layer_pattern": "N",
        "inject_pattern": "A",
        "norm_placement": "output",
        "mixers": {"N": ATTENTION},
        "injects": {"A": {"attention": WIDE}},
    },
}
F32 = ("sandwich", "output")


if __name__ == "__main__":
    sys.exit(check_models("injects", MODELS, F32, 41, "all"))
