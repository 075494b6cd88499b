"""Every built-in instance that its recurrence describes, written as text: python3 check_recurrence.py

Two models of the same layers, one of instances, one of recurrences: initial values, loss, every gradient, every updated
parameter and the logits of a generation agree in every bit, in f32 and bf16.
"""

import math
import sys

import numpy as np

from harness import Report
from compiled_model import CompiledModel, perturbed

SIZES = {"heads": 4, "head_dim": 8}
LINEAR = {"q": "linear(x)", "k": "linear(x)", "v": "linear(x)"}
STEPS = {"a_log": {"log_uniform": [1, 16]}, "dt_bias": {"softplus_inverse": [0.001, 0.1]}}
CONV = lambda heads: {n: f"silu(conv(linear(x, heads={heads})))" for n in "qk"} | {"v": "silu(conv(linear(x)))"}
UNIT = lambda heads: {n: f"l2_norm({t})" if n != "v" else t for n, t in CONV(heads).items()}

# letter: instance, recurrence
PAIRS = {
    "B": (
        {"kind": "bla", "kv_heads": 2},
        {
            "state": "M = M + k^T v",
            "inputs": {"q": "elu1(linear(x))", "k": "elu1(linear(x, heads=2))", "v": "linear(x, heads=2)"},
        },
    ),
    "R": (
        {"kind": "retnet", "value_dim": 16, "rope": {"fraction": 0.5}},
        {
            "value_dim": 16,
            "rope": {"fraction": 0.5},
            "output_gate": "silu",
            "state": "M = exp(log_decay) M + k^T v",
            "inputs": {"q": "rope(linear(x))", "k": "rope(linear(x))", "v": "linear(x)"},
            "parameters": {"log_decay": {"values": [math.log1p(-(2.0 ** (-5 - h))) for h in range(4)]}},
        },
    ),
    "M": (
        {"kind": "mamba2", "key_heads": 2, "value_dim": 16, "conv": {"kernel": 3, "bias": True}},
        {
            "value_dim": 16,
            "conv": {"kernel": 3, "bias": True},
            "scale": 1.0,
            "output_gate": "silu",
            "norm_first": False,
            "norm_groups": 2,
            "state": "M = exp(g) M + delta k^T v",
            "output": "o = q M + d v",
            "inputs": CONV(2)
            | {"dt": "linear(x)", "delta": "softplus(dt + dt_bias)", "g": "log_decay(dt, a_log, dt_bias)"},
            "parameters": STEPS | {"d": {"value": 1, "per": "head"}},
        },
    ),
    "L": (
        {"kind": "gla", "gate_rank": 5, "gate_divisor": 2.0, "value_dim": 8},
        {
            "output_gate": "silu",
            "state": "M = diag(exp(g)) M + k^T v",
            "inputs": LINEAR | {"f": "low_rank(x, 5) + bf", "g": "log_sigmoid(f) / 2"},
            "parameters": {"bf": 0},
        },
    ),
    "D": (
        {"kind": "deltanet", "allow_neg_eigval": True},
        {"state": "M = M + beta k^T (v - k M)", "inputs": UNIT(4) | {"b": "linear(x)", "beta": "2 sigmoid(b)"}},
    ),
    "G": (
        {"kind": "gated_deltanet", "key_heads": 2, "value_dim": 16},
        {
            "value_dim": 16,
            "output_gate": "silu",
            "state": "M = (I - beta k^T k) exp(g) M + beta k^T v",
            "inputs": UNIT(2)
            | {"b": "linear(x)", "a": "linear(x)", "beta": "sigmoid(b)", "g": "log_decay(a, a_log, dt_bias)"},
            "parameters": STEPS | {"a_log": {"log_uniform": [0.001, 16]}},
        },
    ),
    "K": (
        {"kind": "kda", "gate_rank": 5},
        {
            "output_gate": "sigmoid",
            "state": "M = (I - beta k^T k) diag(exp(g)) M + beta k^T v",
            "inputs": UNIT(4)
            | {"b": "linear(x)", "beta": "sigmoid(b)", "f": "low_rank(x, 5)", "g": "log_decay(f, a_log, dt_bias)"},
            "parameters": STEPS,
        },
    ),
    # The same model, its transition written as diagonal plus low rank.
    "J": (
        {"kind": "kda", "gate_rank": 5},
        {
            "output_gate": "sigmoid",
            "state": "M = (diag(exp(g)) + c^T a) M + w^T v",
            "inputs": UNIT(4)
            | {"b": "linear(x, per=head)", "beta": "sigmoid(b)", "f": "low_rank(x, 5)", "g": "log_decay(f, a_log, dt_bias)"}
            | {"e": "exp(g)", "a": "k e", "w": "k beta", "c": "-w"},
            "parameters": STEPS,
        },
    ),
    "F": (
        {"kind": "dfw", "value_dim": 12},
        {
            "value_dim": 12,
            "scale": 1.0,
            "state": "M = diag(exp(g)) M diag(exp(h)) + k^T v",
            "inputs": LINEAR
            | {"f": "linear(x) + bf", "g": "log_sigmoid(f)", "e": "linear(x) + be", "h": "log_sigmoid(e)"},
            "parameters": {"bf": 2, "be": 2},
        },
    ),
    "E": (
        {"kind": "gfw", "value_dim": 12},
        {
            "value_dim": 12,
            "scale": 1.0,
            "state": "M = full(exp(g)) M + k^T v",
            "inputs": LINEAR | {"f": "linear(x) + bf", "g": "log_sigmoid(f)"},
            "parameters": {"bf": 2},
        },
    ),
}


def describe(which, dtype):
    mixer = lambda pair: SIZES | ({"kind": "recurrence", "output": "o = q M"} if which else {}) | pair[which]
    return {
        "name": "same",
        "vocab_size": 29,
        "d_model": 24,
        "num_layers": len(PAIRS),
        "layer_pattern": "".join(PAIRS),
        "dtype": dtype,
        "context_len": 63,
        "max_documents": 3,
        "mixers": {letter: mixer(pair) for letter, pair in PAIRS.items()},
        "ffns": {"D": {"kind": "dense", "hidden": 24}},
        "train": {"batch": 2, "seq_len": 37},
    }


def main():
    report = Report("recurrence")
    with report:
        for dtype in ("f32", "bf16"):
            report.name = f"recurrence {dtype}"
            models = [CompiledModel(describe(which, dtype), report.folder, f"{dtype}{which}") for which in (0, 1)]
            first, second = models
            def same(what, a, b):
                differ = [n for n in a if n not in b or not np.array_equal(a[n], b[n])]
                report.line(set(a) == set(b) and not differ, what, f"{len(a)} tensors, differ: {differ[:3]}")

            weights = [m.initial(3) for m in models]
            same("initial values", *weights)
            state = first.rounded(perturbed(weights[0], np.random.default_rng(1)))
            batch, _ = first.batch(np.random.default_rng(2), [[0, 11, 12, 37], [0, 20, 31, 31]])
            outputs = ["loss", *first.parameters, *first.gradients.values()]
            same("training step", *(m.step(state, batch, outputs, learning_rate=1e-2, number=1) for m in models))
            tokens = np.arange(32, dtype=np.int32) % 29
            prefilled = [m.cached("prefill_32", state, {}, tokens, [0, 30]) for m in models]
            same("prefill", *({"logits": logits} | caches for logits, caches in prefilled))
            decoded = [m.cached("decode_1", state, caches, [3], [-30, 1]) for m, (_, caches) in zip(models, prefilled)]
            same("decode", *({"logits": logits} | caches for logits, caches in decoded))
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
