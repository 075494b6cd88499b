"""Ops that cross tokens on several ranks along `sp`, against the one-row references: python3 sequence_ops.py RANKS ALGORITHM [one|whole]

Scans and inner steps of every class and their gradients, with states from outside and without, attention with and without windows,
convolutions (`one`: attention to one token a rank; `whole`: the classes that are scanned as a whole and one of those with dense transitions,
numerics/segment.test has the others): the
tokens of a row are divided over RANKS ranks, documents cross their borders and end on them. Then one document of the row gets other, huge
contents: not one bit of anything outside of it may change. Limits: those of the ops on one rank (check_scan.py, check_attention.py).
"""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "numerics"))
import numpy as np

from check_scan import CLASS_IDS, gradient_limit
from harness import Operand, Program, Type, loaded, rounded, stored
import inner
from attention import attention, attention_shared
from common import documents_of
from rows import short_conv
from scan import CLASSES, GATES, ORDER, gate_shape, random_operands, scan, trained_gates

T = 64
# Row 0: documents over several ranks, of one token, from border to border; row 1: one that began before the row, a long one, padding.
EDGES = np.array([[0, 11, 12, 32, 40, T], [-5, 3, 59, 60, 60, 60]], np.int32)
CHANGED = (0, 12, 32)  # the document whose contents the leak test replaces: row, tokens
B = len(EDGES)


class Case:
    """One function: inputs of tokens are divided, everything else is the same on all ranks."""

    def __init__(self, program, name, reference, limit):
        self.program, self.reference, self.limit = program, reference, limit
        self.f = program.function(name)
        self.dims = {}
        cu = self.input("cu_seqlens", EDGES.shape, "i32", ["batch"])
        self.documents = self.f.op("braid.documents", [cu], Type((B, T), "i32"))

    def input(self, name, shape, dtype=None, dims=("batch", "sequence")):
        self.dims[name] = list(dims)
        self.program.dims[self.f.name] = self.dims
        return self.f.input(name, shape, dtype)

    def zeros(self, type):
        value = Operand(f"%zero{len(self.f.lines)}", type)
        self.f.lines.append(f"    {value.name} = arith.constant dense<0.0> : {type}")
        return value

    def values(self, rng):
        return {n: rounded([rng.standard_normal(o.type.shape)])[0] for n, o in self.f.inputs.items()} | {
            "cu_seqlens": EDGES
        }

    def call(self, program, values):
        return program.call_parts(self, values)

    def check(self, rng, change=None):
        values = self.values(rng)
        if change:
            change(values)

        def action(program):
            references = self.reference(values, documents_of(EDGES, T))
            references = {n: references[n] for n in self.f.outputs}
            out = self.call(program, values)
            program.compare(self.f.name, out, references, {n: self.limit for n in references})
            # The contents of one document, and what is asked of its outputs, are replaced.
            row, lo, hi = CHANGED
            other = {n: a.copy() for n, a in values.items()}
            for n, dims in self.dims.items():
                if dims[1:2] == ["sequence"]:
                    decays = n in ("log_decay", "log_momentum")
                    size = -1e3 if decays else 0.0 if n in ("do", "dy") else 1.0 if n == "rate" else 1e4
                    other[n][row, lo:hi] = size if decays else size * other[n][row, lo:hi]
                    values[n][row, lo:hi] *= n not in ("do", "dy")
            one, two = self.call(program, values), self.call(program, other)
            keep = np.ones((B, T), bool)
            keep[row, lo:hi] = False
            changed = []
            for n in self.f.outputs:
                a, b = one[n], two[n]
                tokens = a.shape[:2] == (B, T)
                same = np.array_equal(a[keep], b[keep]) if tokens else np.array_equal(a, b)
                changed += [] if same else [n]
            program.line(not changed, f"{self.f.name} leaks", f"bits changed: {', '.join(changed)}" if changed else "none")

        self.program.then(action)


class Parts(Program):
    """A program for several ranks; every call writes and reads one file per rank."""

    def __init__(self, name, ranks, algorithm):
        super().__init__(name, max_documents=EDGES.shape[1] - 1, options=[f"--mesh=sp={ranks}"])
        self.ranks, self.algorithm, self.dims = ranks, algorithm, {}

    def mlir(self):
        text = super().mlir()
        for function, inputs in self.dims.items():
            plain = named = self.functions[function].mlir()
            for name, dims in inputs.items():
                listed = ", ".join(f'"{d}"' for d in dims)
                named = named.replace(f'braid.name = "{name}", braid.role = "input"', f'braid.name = "{name}", braid.role = "input", braid.dims = [{listed}]')
            text = text.replace(plain, named)
        return text.replace("module attributes {", f'module attributes {{braid.sp_algorithm = "{self.algorithm}", ', 1)

    def call_parts(self, case, values):
        compiled, inputs = self.compile(), {}
        base = os.path.join(self.folder, f"{case.f.name}")
        for name, operand in case.f.inputs.items():
            array = stored(values[name], operand.type.dtype)
            divided = case.dims[name][1:2] == ["sequence"]
            for r in range(self.ranks):
                np.save(f"{base}.{name}.{r}.npy", np.split(array, self.ranks, 1)[r] if divided else array)
            inputs[name] = f"{base}.{name}.{{rank}}.npy"
        outputs = {name: f"{base}.{name}.out.{{rank}}.npy" for name in case.f.outputs}
        compiled.run_ranks(case.f.name, inputs, outputs, self.ranks)
        result = {}
        for name, operand in case.f.outputs.items():
            parts = [loaded(np.load(outputs[name].format(rank=r)), operand.type.dtype) for r in range(self.ranks)]
            divided = operand.type.shape[:2] == (B, T) and parts[0].shape[1] != T
            result[name] = np.concatenate(parts, 1) if divided else parts[0]
            if name.startswith("lse"):
                result[name] = np.concatenate(parts, 2)
        return result


def add_scan(program, kind, rng, carried):
    H, K, V = 2, 16, 24
    scale = K**-0.5

    trained = [n for n in ORDER if n in trained_gates(kind)]

    def reference(a, documents):
        operands = {n: a[n] for n in ORDER if n in a}
        zero = np.zeros((B, H, K, V))
        (o, final), pull = scan(kind, operands, a.get("initial_state", zero), documents, scale)
        gradients, dinitial = pull(a["do"], a.get("dfinal_state", zero))
        return {f"d{n}": d for n, d in gradients.items()} | {"dinitial_state": dinitial, "o": o, "final_state": final}

    c = Case(program, f"{kind}{'_carried' if carried else ''}", reference, gradient_limit(kind))
    q, k, v = c.input("q", (B, T, H, K)), c.input("k", (B, T, H, K)), c.input("v", (B, T, H, V))
    dims = lambda n: ["heads"] if (kind, n) == ("S0", "log_decay") else ("batch", "sequence")
    gates = {n: c.input(n, gate_shape(kind, n, B, T, H, K, V), dims=dims(n)) for n in ORDER if n in GATES[kind]}
    every = [gates.get(n) for n in ORDER[3:]]
    do, state = c.input("do", (B, T, H, V)), Type((B, H, K, V))
    initial, dfinal = (c.input(n, state.shape, dims=["batch"]) if carried else c.zeros(state) for n in ("initial_state", "dfinal_state"))
    attributes = {"class_id": CLASS_IDS[kind], "scale": float(scale)}
    o, final = c.f.op("braid.lsm.scan", [q, k, v, *every, initial, c.documents], [v.type, state], segments=True, **attributes)
    results = c.f.op("braid.lsm.scan_grad", [q, k, v, *every, initial, c.documents, do, dfinal],
                     [x.type for x in (q, k, v, *(gates[n] for n in trained))] + [state], segments=True, **attributes)
    names = ["dq", "dk", "dv"] + [f"d{n}" for n in trained] + ["dinitial_state"] * carried
    for name, value in zip(["o"] + names + ["final_state"] * carried, [o, *results[: len(names)], final]):
        c.f.output(name, value)

    def operands(a):
        drawn = random_operands(kind, rng, B, T, H, K, V)
        a |= {n: rounded([x])[0] for n, x in drawn.items()}

    c.check(rng, operands)


def add_inner(program, kind, mini_batch, rng, carried):
    """Mini-batches that begin and end on different ranks; `inner.VARIANTS` says what each kind has."""
    H, K, V = 2, 8, 12
    shape = (B, T, H, K, V)
    others = inner.VARIANTS[kind]
    names = [n for n in inner.ORDER if n in ("q", "k", "v", "rate", *others)]
    state = Type((B, H, inner.planes(others, mini_batch) * K, V))

    def reference(a, documents):
        zero = np.zeros(state.shape)
        (o, final), pull = inner.inner_step({n: a[n] for n in names}, a.get("initial_state", zero), documents, mini_batch)
        gradients, dinitial = pull(a["do"], a.get("dfinal_state", zero))
        return {f"d{n}": d for n, d in gradients.items()} | {"dinitial_state": dinitial, "o": o, "final_state": final}

    c = Case(program, f"inner_{kind}_{mini_batch}{'_carried' if carried else ''}".replace("-", "_"), reference, 5e-6)
    dims = lambda n: ["heads"] if n in inner.WHOLE else ("batch", "sequence")
    given = {n: c.input(n, inner.shape_of(n, *shape), dims=dims(n)) for n in names}
    do = c.input("do", (B, T, H, V))
    initial, dfinal = (c.input(n, state.shape, dims=["batch"]) if carried else c.zeros(state) for n in ("initial_state", "dfinal_state"))
    operands = [given.get(n) for n in inner.ORDER] + [initial, c.documents]
    attributes = {"mini_batch": mini_batch, "norm_eps": 1e-6}
    o, final = c.f.op("braid.lsm.inner_step", operands, [given["v"].type, state], segments=True, **attributes)
    types = [given[n].type for n in names] + [state]
    results = c.f.op("braid.lsm.inner_step_grad", [*operands, do, dfinal], types, segments=True, **attributes)
    for name, value in zip([f"d{n}" for n in names] + ["dinitial_state"] * carried, results):
        c.f.output(name, value)
    for name, value in [("o", o)] + [("final_state", final)] * carried:
        c.f.output(name, value)

    def draw(a):
        a |= {n: rounded([x])[0] for n, x in inner.random_operands(others, rng, *shape).items()}
        a |= {n: 0.3 * a[n] for n in ("initial_state", "dfinal_state") if n in a}

    c.check(rng, draw)


def add_attention(program, window, rng, shared=0, sinks=False):
    """`shared`: features of keys that all heads share; values then have a size of their own. `sinks`: a score more of every head."""
    H, G, D, V = 4, 2, 16, 24 if shared else 16
    names = ["dq", "dk", "dv"] + ["dq_shared", "dk_shared"] * bool(shared) + ["dsinks"] * sinks
    settings = {"scale": (D + shared) ** -0.5, "window": window}

    def reference(a, documents):
        own, more = [a["q"], a["k"], a["v"]], settings | ({"sinks": a["sinks"]} if sinks else {})
        (o, lse), pull = attention_shared(*own, a["q_shared"], a["k_shared"], documents, **more) if shared else attention(*own, documents, **more)
        return dict(zip(names, pull(a["do"]))) | {"o": o}

    c = Case(program, f"attention_w{window}" + f"_s{shared}" * bool(shared) + "_sinks" * sinks, reference, 1e-5)
    q, k, v, do = (c.input(n, (B, T, h, d)) for n, h, d in (("q", H, D), ("k", G, D), ("v", G, V), ("do", H, V)))
    both = [c.input("q_shared", (B, T, H, shared)), c.input("k_shared", (B, T, 1, shared))] if shared else []
    settings |= {"prefix": 0}
    sink = c.input("sinks", (H,), dims=["heads"]) if sinks else None
    o, lse = c.f.op("braid.attn.causal", [q, k, v, c.documents, None, both, sink], [do.type, Type((B, H, T))], segments=True, **settings)
    grads = c.f.op(
        "braid.attn.causal_grad", [q, k, v, c.documents, o, lse, do, None, both, None], [x.type for x in (q, k, v, *both)], segments=True, **settings
    )
    if sinks:
        grads = [*grads, c.f.op("braid.attn.sink_grad", [sink, o, lse, do], sink.type)]
    for name, value in zip(("o", *names), (o, *grads)):
        c.f.output(name, value)
    c.check(rng)


def add_convolution(program, taps, rng):
    D = 20

    def reference(a, documents):
        zero = np.zeros((B, taps - 1, D))
        (y, _), pull = short_conv(a["x"], a["weight"], documents, zero)
        return dict(zip(("dx", "dweight"), pull(a["dy"], zero))) | {"y": y}

    c = Case(program, f"convolution_{taps}", reference, 1e-5)
    x, weight, dy = c.input("x", (B, T, D)), c.input("weight", (D, taps), dims=["embed"]), c.input("dy", (B, T, D))
    tail = c.zeros(Type((B, taps - 1, D)))
    y, _ = c.f.op("braid.short_conv", [x, weight, c.documents, tail], [x.type, tail.type])
    dx, dweight, _ = c.f.op("braid.short_conv_grad", [x, weight, c.documents, tail, dy, tail], [x.type, weight.type, tail.type])
    for name, value in (("y", y), ("dx", dx), ("dweight", dweight)):
        c.f.output(name, value)
    c.check(rng)


def one_token(ranks):
    """Rows of as many tokens as there are ranks: each attends with one query, by the kernel of decoding."""
    global T, EDGES, CHANGED
    T = ranks
    EDGES = np.array([[0, 1, 2, T, T, T], [-5, T - 1, T - 1, T - 1, T - 1, T - 1]], np.int32)
    CHANGED = (0, 1, 2)


def of_ranks(ranks):
    """A row that they divide."""
    global T, EDGES
    if T % ranks:
        T = 60
        EDGES = np.where(EDGES > T - 10, EDGES - 4, EDGES).astype(np.int32)


def main(ranks, algorithm, tokens=None):
    of_ranks(int(ranks))
    program, rng = Parts(f"sp{ranks}-{algorithm}", int(ranks), algorithm), np.random.default_rng(5)
    if tokens == "one":
        one_token(int(ranks))
        for window in (0, 2):
            add_attention(program, window, rng)
            add_attention(program, window, rng, sinks=True)
        return program.finish()
    for kind in ("E", "H", "R") if tokens == "whole" else sorted(CLASSES):
        add_scan(program, kind, rng, carried=False)
    if algorithm == "all_gather" and not tokens:
        for kind in ("S0", "V", "R", "GH", "D", "E"):
            add_scan(program, kind, rng, carried=True)
        add_convolution(program, 4, rng)
        add_convolution(program, 2, rng)
    for kind, others in inner.VARIANTS.items():
        if algorithm == "ring" or "norm_weight" not in others: # through a norm spans of tokens do not compose
            add_inner(program, kind, 16 if kind == "GM" else 5, rng, carried=False)
            if algorithm != "scan":
                add_inner(program, kind, 7, rng, carried=True)
    for window in (0, 5, 30) if not tokens else ():
        if algorithm in ("ring", "all_gather"):
            add_attention(program, window, rng)
            add_attention(program, window, rng, shared=8)
            add_attention(program, window, rng, sinks=True)
    return program.finish()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
