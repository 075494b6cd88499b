"""Random texts of recurrences against what they say, token by token: python3 check_random_recurrences.py SEED COUNT

Whatever the compiler accepts has the loss that reference/recurrence.py finds, and gradients that are its slope in a random direction, in f64. What it
refuses must name a key of the mixer; at least half of the texts are accepted.
"""

import random
import re
import sys

import numpy as np

from harness import Report
from compiled_model import CompiledModel
import model
from recurrence import recurrence

K, V, HEADS = 3, 4, 2
SIZES = {n: K for n in "qkpagf"} | {n: V for n in "vhe"} | {n: 1 for n in "bcsuwi"} | {"E": K * V}
PER = {K: "key", V: "value", 1: "head", K * V: "element"}
STATES = [
    "M = {D} M + {F}{K}^T {V}",
    "M = M diag({H}) + {K}^T {V}",
    "M = {D} M diag({H}) + {K}^T {V}",
    "M = ({I} + p^T a) M + {K}^T {V}",
    "M = {D} M + {F}k^T (v - k {D} M)",
    "M = {D} (I - b k^T k) M + b k^T v",
    "M = full({E}) M + {F}{K}^T {V}",
    "M = {S} M - {F}{K}^T v; z = {S} z - {F}{K}^T",
    "M = {S} (M + {F}k^T v)",
    "M = {D} M - {K}^T v / {N}",
    "M = {S} M - {R} grad(l2(k M - v))",
    "M = (I - b f^T f) diag(f) M + b f^T {V}",
    "M = diag(f) M + p^T f M + {K}^T v",
    "M = -{R} grad(l2(k M - v)) + {S} M",
    "M = M - {R} {R} grad(l2(k M - v))",
    "M = {D} M - {F}p^T a M + {F}{K}^T {V}",
    "M = {D} M - b k^T k M + {K}^T {V}",
    "M = diag(f) (I - b k^T k) M + {F}k^T v",
    "M = {S} (M - p^T a b M) + k^T {V}",
    "M = {D} M - s p^T a diag(f) {S} M + k^T {V}",
    "M = diag(f) (M + {K}^T v diag(e))",
    "M = s sigmoid(w) (I - s sigmoid(w) k^T k) M + s sigmoid(w) k^T v",
    "M = {S} M + {F}k^T v - c k^T {V}",
    "M = {D} M + {F}{K}^T v - b c p^T v",
    "M = diag(f) M - {F}{K}^T v + {F}{K}^T (v - h) b",
    "M = ({I} - p^T (a p)) M + (1 - s^2) k^T {V}",
    "M = M - {S} M + {F}{K}^T {V}",
    "M = M + {S} ({K}^T {V} - M)",
    "M = M - diag(f) M + {K}^T v",
    "M = {S} M / 2 + 0.5 {S} M - {F}k^T v",
    "M = M diag(e) - u M diag(e) + {K}^T v",
    "M = {I} (I - b k^T k) (I - c p^T p) M + {F}k^T {V}",
]
SEVERAL = [
    "M = {D} (I - b k^T k) M + b k^T v; M = (I - c p^T p) M + c p^T h",
    "M = {D} M; M = M + {F}k^T (v - k M); M = (I - c p^T p) M",
    "M = {S} M; M = M + {F}{K}^T {V}; M = {D} M + {F}p^T h",
    "M = M + {F}{K}^T v; M = {D} M - c p^T (p M - {V}); M = {S} M",
    "M = {D} M - p^T a M + k^T v; M = {S} (M + c {K}^T h)",
    "M = M - b k^T k M; M = M - c p^T p M; M = {D} M + {F}k^T (v - k {D} M)",
    "M = {I} M + {K}^T v; M = {D} M + p^T {V}; M = (I - b^2 a^T a) M + b^2 a^T v",
]
SCALARS = ["s", "s^2", "sigmoid(w)", "0.9", "exp(-softplus(w))", "1 / 2", "exp(-0.3)", "(1 - s)", "(1 - u)", "0.9 s", "(s + (1 - s) u)", "clamp(c, 0.1, 0.9)"]
DIAGONALS = ["diag(f)", "diag(exp(g))", "diag(sigmoid(q))", "diag(1 - f)", "diag(exp(-exp(q)))", "diag(0.8 f)", "diag(f^2)", "diag(0.5 + f / 2)"]
PLACES = {
    "S": SCALARS,
    "D": ["", *SCALARS, *DIAGONALS],
    "I": ["I", *SCALARS, *DIAGONALS],
    "F": ["", "b ", "i ", "0.1 ", "b c ", "exp(w) ", "s ", "exp(s) "],
    "K": ["k", "k", "(1 - f)", "silu(k)", "(2 k)", "(k + 1)", "sqrt(1 - f^2)", "(k - q)", "(k^3)", "l2_norm(k)", "softmax(k)"],
    "V": ["v", "v", "v b", "v 0.1", "(v - 1)", "tanh(v)", "v^2"],
    "H": ["exp(h)", "e", "sigmoid(v)", "1 - e"],
    "R": ["0.1", "b", "sigmoid(w)", "s"],
    "E": ["E", "0.9", "0.5 E"],
    "N": ["b", "2", "(1 + 1)", "s", "exp(w)", "(1 + b)"],
}
OUTPUTS = ["q M", "q M", "q M + v b", "1 M", "q M_prev", "q M + v - 1", "silu(q M) v / exp(w)", "(1 - q) M", "(q + f) M (1 - b)", "q M + v inner(k, q)"]
OUTPUTS += ["s q M", "q M s + b v", "(b q) M_prev", "q M + u v - v b", "l2_norm(q) M", "q M + inner(p, l2_norm(p)) v", "(q softmax(p)) M"]
OUTPUTS += ["q M_prev + q diag(p) k^T v", "q M / (2 + tanh(q k^T))"]
NORMALISED = ["(q M) / max(abs(q z), 0.5)", "((q + 1) M) / (2 + silu((q + 1) z)) + b v", "(q M) min(q z, 1) (q z)", "(q M) / (q z)", "2 (q M) / (q z) / 3", "(q M) / (q z) + v b"]


# Columns, keys by values; columns, values by keys; rows, values by keys.
OTHERS = [
    (
        {"columns": True},
        ["o = M^T q", "o = q^T M", "o = M^T (q - f) u + v b", "o = M_prev^T q", "o = silu(M^T q) v"],
        [
            "M = {D} M + {F}{K} ({V})^T",
            "M = {D} M diag({H}) + {K} ({V})^T {F}",
            "M = ({I} + p a^T) M + {F}{K} v^T",
            "M = {D} (I - b k k^T) M + b k v^T",
            "M = {D} M + {F}k (v - M^T {D} k)^T",
            "M = {D} M + {F}k (v^T - k^T {D} M)",
            "M = {S} M - {R} grad(l2(M^T k - v))",
            "M = ({I} - p (a p)^T) M + {K} (v + h)^T {R}",
            "M = {S} M + {F}k v^T - c k ({V})^T",
        ],
    ),
    (
        {"columns": True, "turned": True},
        ["o = M q", "o = q^T M^T", "o = M (q - f) u + v b", "o = M_prev q", "o = silu(M q) v"],
        [
            "M = M {D} + {F}({V}) ({K})^T",
            "M = diag({H}) M {D} + ({V}) ({K})^T",
            "M = M ({I} + p a^T) + {F}v ({K})^T",
            "M = M (I - b k k^T) {D} + b v k^T",
            "M = M {D} + {F}(v - M {D} k) k^T",
            "M = {S} M - {R} grad(l2(M k - v))",
            "M = M (diag(f) - p (a p)^T) + v ({K})^T {R}",
            "M = M (I - b k k^T) {D} + b v k^T; M = M (I - c p p^T) + c h p^T",
        ],
    ),
    (
        {"turned": True},
        ["o = q M^T", "o = (q - f) M^T + v b", "o = u q M^T", "o = silu(q M_prev^T) v"],
        [
            "M = M {D} + {F}({V})^T {K}",
            "M = M (diag(f) - p^T (a p)) + v^T {K}",
            "M = M (I - b k^T k) + b v^T k",
            "M = M {D} + {F}(v - k {D} M^T)^T k",
        ],
    ),
]
NORMALISED_COLUMNS = "M = {S} M - {F}{K} v^T; z = {S} z - {F}{K}"


def filled(text, rng):
    """{D} is the same wherever it stands."""
    chosen = {place: rng.choice(texts) for place, texts in PLACES.items()}
    return " ".join(text.format(**chosen).split())


def definition(name, rng):
    """-> the input, what it names of parameters"""
    shared, x = f"n{name}", "linear(x, per=head)" if SIZES[name] == 1 else "linear(x)"
    if name in "sufeE":
        gates = [f"sigmoid({x})", f"1 - sigmoid({x})", f"exp(-softplus({x}))", f"0.9 sigmoid({x}) / 2", f"sigmoid({shared})"]
        gates += [f"0.2 + 0.7 sigmoid({x})", f"1 - sigmoid({x}) / 2", f"sqrt(sigmoid({x}))", f"1 - clamp({x}, 0.1, 0.8)^2"]
        gates += [f"clamp({x}, 0, 1)", f"min(max({x}, -1e30), 0.9)^2", f"sigmoid({shared}) + (1 - sigmoid({shared})) sigmoid({x})", f"(1 + tanh({x})) / 2"]
        return rng.choice(gates), shared
    if name in "gh":
        return rng.choice([f"log_sigmoid({x})", f"-softplus({x} + {shared})", f"-exp({shared})"]), shared
    if name in "kpqv" and rng.random() < 0.15:
        return rng.choice([f"l2_norm({shared})", f"softmax(2 {shared})", f"{x} l2_norm({shared} + 1)"]), shared
    return rng.choice([x, f"0.5 {x}", f"tanh({x})", f"exp({shared})", f"{x} / exp({shared})", f"1 - {x}^2", f"{x} - {shared} + exp(-2)"]), shared


def mixer(rng):
    notation = {}
    if rng.random() < 0.3:
        notation, outputs, states = rng.choice(OTHERS)
        state, output = filled(rng.choice(states), rng), rng.choice(outputs)
        if rng.random() < 0.05:
            notation, state, output = {"columns": True}, filled(NORMALISED_COLUMNS, rng), rng.choice(["o = (M^T q) / (z^T q)", "o = 2 (M^T q) / (q^T z) + v b", "o = (M^T q) / max(abs(z^T q), 1)"])
    else:
        state = filled(rng.choice(SEVERAL if rng.random() < 0.2 else STATES), rng)
        output = "o = " + rng.choice(NORMALISED if "z =" in state else OUTPUTS)
    names = sorted({n for n in re.findall(r"\w+", f"{state} {output}") if n in SIZES})
    spec = {"kind": "recurrence", "heads": HEADS, "head_dim": K, "value_dim": V, "output_norm": False, "mini_batch": 1}
    if "grad" not in state:
        del spec["mini_batch"]
    given, parameters = {}, {}
    for name in names:
        number = {"value": round(rng.uniform(-1, 1), 2), "per": PER[SIZES[name]]}
        if rng.random() < 0.1:
            parameters[name] = number
            continue
        given[name], shared = definition(name, rng)
        if shared in re.findall(r"\w+", given[name]):
            parameters[shared] = number
    return spec | {"state": state, "output": output, "inputs": given, "parameters": parameters}, notation


def check(report, compiled, notation, label, rng):
    spec = compiled.description["mixers"]["R"] | notation
    sizes = SIZES | {f"n{name}": size for name, size in SIZES.items()}
    model.mixer = lambda tape, x, documents, w, _: tape.call(
        lambda x: (recurrence(x, documents, {n: a.array for n, a in w.items()}, spec, sizes), None), x
    )
    fixed = lambda name: "lsm.shift_" in name  # of M_prev: the token before
    weights = {n: a if fixed(n) else a + 0.2 * rng.standard_normal(a.shape) for n, a in compiled.initial(3).items()}
    batch, documents = compiled.batch(rng, [[0, 5, 6, 12], [0, 4, 10, 10]])
    gradients = {n: g for n, g in compiled.gradients.items() if not fixed(n)}
    got = compiled.step(weights, batch, ["loss", *gradients.values()], number=1)
    loss = lambda step: float(compiled.expected({n: a + step * way.get(n, 0) for n, a in weights.items()}, batch, documents).loss)
    way = {n: rng.standard_normal(weights[n].shape) for n in gradients}
    want, (slope, again) = loss(0), ((loss(step) - loss(-step)) / (2 * step) for step in (2e-6, 1e-6))
    error = abs(float(got["loss"].ravel()[0]) - want) / want
    along = sum(float((got[g] * way[n]).sum()) for n, g in gradients.items())
    bent, known = abs(along - again) / max(abs(again), 1e-2), abs(slope - again) / max(abs(again), 1e-2)
    report.line(error < 1e-11 and bent < 1e-5 + 4 * known, label, f"loss {error:.1e}, gradients {bent:.1e}, slope known to {known:.1e}")


def main(seed, count):
    report, accepted = Report("random-recurrences"), 0
    rng, numbers = random.Random(int(seed)), np.random.default_rng(int(seed))
    sizes = {"vocab_size": 17, "d_model": 10, "num_layers": 1, "layer_pattern": "R", "dtype": "f64", "max_documents": 3, "context_len": 12}
    sizes |= {"ffns": {"D": {"kind": "dense", "hidden": 6}}, "train": {"batch": 2, "seq_len": 12, "clip_norm": 0}}
    with report:
        for i in range(int(count)):
            spec, notation = mixer(rng)
            label = f"{spec['state']} | {spec['output']} | {spec['inputs']} {spec['parameters']}"
            try:
                compiled = CompiledModel({"name": "random", "mixers": {"R": spec}} | sizes, report.folder, f"model{i}")
            except RuntimeError as refused:
                # An error, not a crash behind a remark, which names the mixer too.
                told = re.search(r"exit status 1\n.*error: [^\n]*: mixers\.R\.", str(refused), re.DOTALL)
                report.line(told, f"refused: {label}", str(refused).strip()[-200:])
                continue
            accepted += 1
            check(report, compiled, notation, label, numbers)
        report.line(2 * accepted >= int(count), "accepted", f"{accepted} of {count}")
    return report.finish()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
