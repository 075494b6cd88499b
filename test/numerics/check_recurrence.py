"""The built-in instances, written as text: python3 check_recurrence.py f32|bf16

Two models of the same layers, one of instances, one of recurrences: initial values, loss, every gradient, every updated
parameter and the logits of a generation agree in every bit, in f32 and bf16. Gradients are not clipped: their norm adds up tensors
in the order in which a file brings them. What no instance has is compared with another text of the same function.
"""

import json
import math
import os
import sys

import numpy as np

from harness import Report
from compiled_model import CompiledModel, TYPES, perturbed
from recurrence_texts import CONV, LINEAR, NOTATIONS, SEVERAL, SIZES, STEPS, TWICE, UNIT

FEATURE_NORM = "feature_norm.weight, feature_norm.bias"
# Of a mixture with the token before that depends on the token: its share, the mixed input.
MIXED = lambda n: {f"mix_{n}": "low_rank(base, 3, tanh)", f"x_{n}": f"(x + mu_{n} difference) + difference mix_{n}"}
TITANS = {"conv": {}, "scale": 1.0, "parameters": {"br": 0, "ba": -2, "be": 0}}
TITANS_GATES = {
    "r": "0.2 sigmoid(linear(x) + br)",
    "a": "log_sigmoid(-(linear(x) + ba))",
    "e": "log_sigmoid(linear(x) + be)",
}

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
            "parameters": {"log_decay": {"values": "log1p(-exp2(-5 - head))"}},
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
    "A": (
        {"kind": "based", "value_dim": 12},
        {
            "value_dim": 12,
            "scale": 1.0,
            "output_norm": False,
            "state": "M = M + k^T v; z = z + k^T",
            "output": "o = (q M) / (q z)",
            "inputs": {"q": "taylor(linear(x))", "k": "taylor(linear(x))", "v": "linear(x)"},
        },
    ),
    "Q": (
        {"kind": "rebased", "value_dim": 12, "conv": {"kernel": 3}, "rope": {}, "output_norm": True},
        {
            "value_dim": 12,
            "scale": 1.0,
            "conv": {"kernel": 3},
            "state": "M = M + k^T v; z = k^T + z",
            "output": "o = (q M) / (q z)",
            "inputs": {n: f"square(rope(layer_norm({CONV(4)[n]}, {FEATURE_NORM})))" for n in "qk"} | {"v": CONV(4)["v"]},
            "parameters": {
                "feature_norm.weight": {"value": 1, "per": "key", "shared": True},
                "feature_norm.bias": {"value": 0, "per": "key", "shared": True},
            },
        },
    ),
    "H": (
        {"kind": "hgrn2", "value_dim": 12, "conv": {"kernel": 2}, "output_gate": "silu"},
        {
            "value_dim": 12,
            "conv": {"kernel": 2},
            "output_gate": "silu",
            "norm_groups": 1,
            "state": "M = diag(exp(g)) M + key^T v",
            "inputs": {
                "q": "silu(silu(conv(linear(x))))",
                "k": "linear(x)",
                "v": "silu(conv(linear(x)))",
                "share": "sigmoid(-k)",
                "key": "share - share lower_bound",
                "g": "log_sigmoid(k, lower_bound)",
            },
            "output": "o = q M",
            "parameters": {"lower_bound": {"values": "layer / layers"}},
        },
    ),
    "I": (
        {"kind": "lightning"},
        {
            "scale": 1.0,
            "output_gate": "sigmoid",
            "norm_groups": 1,
            "state": "M = exp(log_decay) M + k^T v",
            "inputs": {n: "silu(linear(x))" for n in "qkv"},
            "parameters": {
                "log_decay": {"values": "-exp2(-8 (head + 1) / heads) (1 - layer / (layers - 1 + 1e-5) + 1e-5)"}
            },
        },
    ),
    "T": (
        {"kind": "lightning", "slopes": "transnormer"},
        {
            "scale": 1.0,
            "output_gate": "sigmoid",
            "norm_groups": 1,
            "state": "M = exp(log_decay) M + k^T v",
            "inputs": {n: "silu(linear(x))" for n in "qkv"},
            "parameters": {"log_decay": {"values": "-8 head / heads (1 - layer / layers)"}},
        },
    ),
    "W": (
        {"kind": "rwkv6", "value_dim": 12, "mix_rank": 3, "gate_rank": 5, "scale": 0.5},
        {
            "value_dim": 12,
            "scale": 0.5,
            "norm_eps": 64e-5,
            "output_norm": False,
            "state": "M = diag(exp(decay)) M + k^T v",
            "output": "o = layer_norm(q M_prev + 0.5 v own, norm.weight, norm.bias) silu(g)",
            "inputs": {"difference": "shift(x) - x", "base": "x + mu_x difference"}
            | {k: t for n in "qkvg" for k, t in (MIXED(n) | {n: f"linear(x_{n})"}).items()}
            | MIXED("w")
            | {"decay": "-bounded_exp(low_rank(x_w, 5, tanh) + w0)", "own": "inner(q u, k)"},
            "parameters": {f"mu_{n}": 0.5 for n in "xqkvgw"}
            | {"w0": {"uniform": [-6, -1]}, "u": {"uniform": [0, 1]}, "norm.weight": 1, "norm.bias": 0},
        },
    ),
    "V": (
        {"kind": "rwkv7", "value_dim": 12, "gate_rank": 5},
        {
            "value_dim": 12,
            "scale": 1.0,
            "norm_eps": 64e-5,
            "output_norm": False,
            "state": "M = (diag(exp(decay)) + b^T a) M + key^T mixed",
            "output": "o = (layer_norm(q M, norm.weight, norm.bias) + mixed own) gate",
            "inputs": {"difference": "shift(x) - x"}
            | {k: t for n in "qk" for k, t in {f"x_{n}": f"x + mu_{n} difference", n: f"linear(x_{n})"}.items()}
            | {
                "x_v": "x + mu_v difference",
                "v": "linear(x_v)",
                "value": "sigmoid(low_rank(x_v, 5) + v0)",
                "before": "first(v)",
                "mixed": "v + (before - v) value",
                "x_w": "x + mu_w difference",
                "decay": "-0.6065306597126334 sigmoid(low_rank(x_w, 5, tanh) + w0)",
                "x_a": "x + mu_a difference",
                "rate": "sigmoid(low_rank(x_a, 5) + a0)",
                "x_g": "x + mu_g difference",
                "gate": "low_rank(x_g, 5, sigmoid)",
                "removed": "l2_norm(k k_k, 1e-24)",
                "added": "k k_a",
                "key": "k + added rate - added",
                "a": "-removed",
                "b": "removed rate",
                "own": "inner(q r_k, key)",
            },
            "parameters": {f"mu_{n}": 0.5 for n in "qkv"}
            | {"v0": 1, "mu_w": 0.5, "w0": {"uniform": [-6, 1]}, "mu_a": 0.5, "a0": 0, "mu_g": 0.5}
            | {"k_k": 0.85, "k_a": 1, "norm.weight": 1, "norm.bias": 0, "r_k": 0},
        },
    ),
    "S": (
        {"kind": "mamba", "value_dim": 12, "gate_rank": 3},
        {
            "value_dim": 12,
            "conv": {"bias": True},
            "scale": 1.0,
            "output_norm": False,
            "output_gate": "silu",
            "state": "M = full(exp(g)) M + k^T w",
            "output": "o = q M + d v",
            "inputs": {
                "v": "silu(conv(linear(x)))",
                "q": "linear(v)",
                "k": "linear(v)",
                "wdt": "softplus(low_rank(v, 3) + dt_bias)",
                "w": "v wdt",
                "g": "log_decay(wdt, a_log)",
            },
            "parameters": {
                "dt_bias": STEPS["dt_bias"],
                "a_log": {"initial": "log(1 + (keys - 1) key / (keys - 1))"},
                "d": {"value": 1, "per": "value"},
            },
        },
    ),
    "O": (
        {"kind": "gateloop", "value_dim": 12, "rope": {"fraction": 0.5}, "output_gate": "silu"},
        {
            "value_dim": 12,
            "scale": 1.0,
            "rope": {"fraction": 0.5},
            "output_gate": "silu",
            "state": "M = diag(exp(a + i p)) M + k^T v",
            "inputs": {"q": "rope(linear(x))", "k": "rope(linear(x))", "v": "linear(x)"}
            | {"a": "log_sigmoid(linear(x))", "p": "linear(x)"},
        },
    ),
    "P": (
        {"kind": "s4d", "value_dim": 6},
        {
            "heads": 24,
            "value_dim": 1,
            "scale": 2.0,
            "output_norm": False,
            "output_glu": "sigmoid",
            "state": "M = diag(exp(g + i p)) M + (b_re + i b_im)^T v",
            "output": "o = gelu(join(1 M) + d x)",
            "inputs": {
                "dt": "exp(log_dt)",
                "re": "exp(log_a)",
                "g": "-re dt",
                "p": "a_im dt",
                "e": "exp(g)",
                "t": "tanh(g / 2)",
                "half": "sin(p / 2)",
                "n_re": "(t + t e) cos(p) - 2 half half",
                "n_im": "e sin(p)",
                "inverse": "reciprocal(re re + a_im a_im)",
                "d_re": "(n_im a_im - n_re re) inverse",
                "d_im": "-(n_re a_im + n_im re) inverse",
                "b_re": "c_re d_re - c_im d_im",
                "b_im": "c_re d_im + c_im d_re",
                "v": "split(x)",
            },
            "parameters": {
                "log_dt": {"uniform": [math.log(0.001), math.log(0.1)], "per": "head"},
                "log_a": math.log(0.5),
                "a_im": {"initial": "pi key"},
                "c_re": {"normal": math.sqrt(0.5)},
                "c_im": {"normal": math.sqrt(0.5)},
                "d": {"normal": 1, "per": "model"},
            },
        },
    ),
    "U": (
        {"kind": "ttt", "mini_batch": 5, "rope": {"fraction": 0.5}},
        {
            "mini_batch": 5,
            "conv": {"bias": True},
            "rope": {"fraction": 0.5},
            "scale": 1.0,
            "output_norm": False,
            "output_gate": "gelu",
            "state": "M = M - p r grad(l2(layer_norm(k1 M, inner_norm.weight, inner_norm.bias, 1e-6) - t)); M_0 = start",
            "output": "o = layer_norm(join(q + layer_norm(q1 M, inner_norm.weight, inner_norm.bias, 1e-6)), norm.weight, norm.bias)",
            "inputs": {
                "qk": "linear(x)",
                "v": "linear(x)",
                "q": "rope(conv(qk), 5)",
                "k": "rope(conv(qk), 5)",
                "t": "v - k",
                "r": "sigmoid(linear(x) + br) / 8",
                "p": "position_rate(token_rate)",
                "q1": "with_one(q)",
                "k1": "with_one(k)",
            },
            "parameters": {"br": 0, "token_rate": 0, "inner_norm.weight": 1, "inner_norm.bias": 0}
            | {"start": {"normal": 0.02}, "norm.weight": 1, "norm.bias": 0},
        },
    ),
    "X": (
        {"kind": "titans", "value_dim": 12, "mini_batch": 7, "output_gate": "silu", "rope": {}},
        TITANS
        | {
            "value_dim": 12,
            "mini_batch": 7,
            "output_gate": "silu",
            "state": "M = exp(a) M + S; S = exp(e) S - r grad(l2(k M - v))",
            "inputs": {n: f"l2_norm(rope({CONV(4)[n]}))" for n in "qk"} | {"v": CONV(4)["v"]} | TITANS_GATES,
        },
    ),
    "Y": (
        {"kind": "titans", "mini_batch": 1, "momentum": False},
        TITANS
        | {
            "mini_batch": 1,
            "state": "M = exp(a) M - r grad(l2(k M - v))",
            "inputs": UNIT(4) | {n: t for n, t in TITANS_GATES.items() if n != "e"},
            "parameters": {"br": 0, "ba": -2},
        },
    ),
    "Z": (
        {"kind": "titans_ln"},
        TITANS
        | {
            "state": "M = exp(a) M + S; S = exp(e) S - r grad(l2(layer_norm(k M, inner_norm.weight, inner_norm.bias, 1e-6) - t))",
            "inputs": UNIT(4) | {"t": "v - k"} | TITANS_GATES,
            "parameters": TITANS["parameters"] | {"inner_norm.weight": 1, "inner_norm.bias": 0},
        },
    ),
}

# KDA, its transition written as diagonal plus low rank: another class (D), the same function.
LOW_RANK = {
    "output_gate": "sigmoid",
    "state": "M = (diag(exp(g)) + c^T a) M + w^T v",
    "inputs": UNIT(4)
    | {"b": "linear(x, per=head)", "beta": "sigmoid(b)", "f": "low_rank(x, 5)", "g": "log_decay(f, a_log, dt_bias)"}
    | {"e": "exp(g)", "a": "k e", "w": "k beta", "c": "-w"},
    "parameters": STEPS,
}


def describe(which, dtype, pairs=PAIRS):
    """The model of one side; the first side of PAIRS is built in."""
    stated = {"kind": "recurrence", "output": "o = q M"}
    mixer = lambda pair: SIZES | ({} if "kind" in pair[which] else stated) | pair[which]
    return {
        "name": "same",
        "vocab_size": 29,
        "d_model": 24,
        "num_layers": len(pairs),
        "layer_pattern": "".join(pairs),
        "dtype": dtype,
        "context_len": 63,
        "max_documents": 3,
        "mixers": {letter: mixer(pair) for letter, pair in pairs.items()},
        "ffns": {"D": {"kind": "dense", "hidden": 24}},
        "train": {"batch": 2, "seq_len": 37, "clip_norm": 0},
    }


def check_twice(report, pairs):
    """Loss, gradients and generation of two texts of one function, f64: 1e-9. Weights of one name have one gradient; others are of one text alone."""
    outcomes = []
    for which in (0, 1):
        model = CompiledModel(describe(which, "f64", pairs), report.folder, f"{which}-{len(pairs)}")
        weights = model.initial(3)
        batch, _ = model.batch(np.random.default_rng(2), [[0, 11, 12, 37], [0, 20, 31, 31]])
        step = model.step(weights, batch, ["loss", *model.gradients.values()], learning_rate=1e-2, number=1)
        logits, caches = model.cached("prefill_32", weights, {}, np.arange(32, dtype=np.int32) % 29, [0, 30])
        decoded, _ = model.cached("decode_1", weights, caches, [3], [-30, 1])
        outcomes.append({"loss": step["loss"], "prefill": logits, "decode": decoded} | {n: step[g] for n, g in model.gradients.items()})
    first, second = outcomes
    for what in [n for n in first if n in second]:
        error = np.linalg.norm(first[what] - second[what]) / max(np.linalg.norm(first[what]), 1e-30)
        report.line(error <= 1e-9, f"two texts of one function: {what}", f"{error:.1e}")


# Gates exp(-exp(y)), RWKV-6's, far outside of what anybody means: log decays from 0 to -1e12, whose gradient is multiplied by themselves.
GATE = {"g": "-exp(10 linear(x))"}
STRONG = {
    "S": {"state": "M = exp(g) M + k^T v", "inputs": LINEAR | {"g": "-exp(10 linear(x, per=head))"}},
    "V": {"state": "M = diag(exp(g)) M + k^T v", "inputs": LINEAR | GATE},
    "C": {"state": "M = diag(exp(g + i w)) M + k^T v", "inputs": LINEAR | GATE | {"w": "linear(x)"}},
    "R": {"state": "M = diag(exp(g)) M diag(exp(h)) + k^T v", "inputs": LINEAR | GATE | {"h": "-exp(10 linear(x))"}},
    "D": {"state": "M = (diag(exp(g)) + b^T a) M + k^T v", "inputs": LINEAR | GATE | {"b": "0.3 l2_norm(linear(x))", "a": "l2_norm(linear(x))"}},
    "K": {"state": "M = (I - b k^T k) diag(exp(g)) M + b k^T v", "inputs": UNIT(4) | GATE | {"b": "sigmoid(linear(x))"}},
    "E": {"state": "M = full(exp(g)) M + k^T v", "inputs": LINEAR | GATE},
}


def check_strong_gates(report):
    """Gradients in f32 against f64: 1e-3, for a state that is nearly forgotten is divided by its norm in each of seven layers. In bf16 such layers have
    gradients of their own; they must not be of another size."""
    pairs = {letter: (text, text) for letter, text in STRONG.items()}
    outcomes, weights = {}, None
    for dtype in ("bf16", "f32", "f64"):
        model = CompiledModel(describe(0, dtype, pairs), report.folder, f"strong-{dtype}")
        weights = weights or model.initial(3)
        batch, _ = model.batch(np.random.default_rng(2), [[0, 11, 12, 37], [0, 20, 31, 31]])
        types = {n: TYPES[t["dtype"]] for n, t in model.parameters.items()}
        step = model.step({n: a.astype(types[n]) for n, a in weights.items()}, batch, [*model.gradients.values()], learning_rate=1e-2, number=1)
        outcomes[dtype] = {n: step[g].astype(np.float64) for n, g in model.gradients.items() if "lsm" in n}
    for name, exact in outcomes["f64"].items():
        error = np.linalg.norm(outcomes["f32"][name] - exact) / np.linalg.norm(exact)
        report.line(error <= 1e-3, f"strong gates, f32: {name}", f"{error:.1e}")
        ratio = np.linalg.norm(outcomes["bf16"][name]) / np.linalg.norm(exact)
        report.line(ratio <= 100, f"strong gates, bf16: {name}", f"{ratio:.1e} of f64's norm")


def check_table(report):
    """The rows of models/README.md are texts of PAIRS."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "models", "README.md")
    rows = [line.strip().split("|")[1:-1] for line in open(path) if line.startswith('| `"kind": ')]
    whole = lambda cell: json.loads("{" + cell.strip(" `") + "}")
    known = [(instance, {"output": "o = q M"} | text) for instance, text in PAIRS.values()]
    for instance, state, output, given, more in rows:
        text = {"state": state.strip(" `"), "output": output.strip(" `"), "inputs": whole(given)} | whole(more)
        report.line((whole(instance), text) in known, "a row of models/README.md", instance.strip(" `"))
    report.line(bool(rows), "rows of models/README.md", f"{len(rows)}")


def main(dtype):
    report = Report(f"recurrence-{dtype}")
    with report:
        if dtype == "f32":
            check_table(report)
            check_twice(report, TWICE)
            check_twice(report, {"K": (PAIRS["K"][1], LOW_RANK)})
            check_twice(report, SEVERAL)
            check_twice(report, NOTATIONS)
            check_strong_gates(report)
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
    sys.exit(main(*sys.argv[1:]))
