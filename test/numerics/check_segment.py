"""lsm.segment, fold, compose and their adjoints: what ranks along `sp` exchange, against the recurrence. python3 check_segment.py

The ops alone, then together: the tokens of a row in parts, each with the state that the segments before it fold to, give the outputs
and gradients of the whole row (lsm-family 2.3), documents across the borders of parts included.
Limits: as for the scan (check_scan.py).
"""

import sys

import numpy as np

from check_scan import CLASS_IDS, FORWARD, Scan, gradient_limit, identical_keys, mixed_decay, round_operands
from common import documents_of, one_document
from harness import Program, Type, rounded
from scan import GATES, ORDER, gate_shape, has_beta, has_decay, random_operands, scan

CLASSES = ("I", "S0", "S", "V", "H", "GH", "VH", "D")  # R and E have no segments


def is_dense(kind):
    return kind in ("H", "GH", "VH", "D")


def factor_shape(kind, K):
    """Dimensions of P behind [s, B, H]."""
    return (K, K) if is_dense(kind) else (K,) if kind == "V" else ()


def times(p, m, transposed=False):
    """P m for one segment: p [B, H, ..], m [B, H, K, V]."""
    if p.ndim == 4:
        return np.einsum("bhji,bhjv->bhiv" if transposed else "bhij,bhjv->bhiv", p, m)
    return (p[..., None] if p.ndim == 3 else p[..., None, None]) * m


def segment(kind, operands, documents):
    """(P [1, B, H, ..], X [1, B, H, K, V]) from the recurrence: P is where the columns of I go without writes."""
    B, _, H, K = operands["k"].shape
    X = scan(kind, operands, np.zeros((B, H, K, operands["v"].shape[3])), documents, 1.0)[0][1]
    zero = np.zeros((*operands["v"].shape[:3], K))
    P = scan(kind, operands | {"v": zero}, np.broadcast_to(np.eye(K), (B, H, K, K)), documents, 1.0)[0][1]
    if not is_dense(kind):
        P = np.einsum("bhii->bhi", P)
    return (P if is_dense(kind) or kind == "V" else P[..., 0])[None], X[None]


class Segment:
    """Functions on the tokens of one rank: `segment` and `segment_grad`."""

    def __init__(self, program, kind, B, T, H, K, V, chunk=16, dtype="f32"):
        self.program, self.kind, self.dims, self.dtype = program, kind, (B, T, H, K, V), dtype
        self.wide = wide = "f32" if dtype == "bf16" else dtype
        f = self.function = program.function(f"segment_{kind}_t{T}_k{K}_v{V}_{dtype}", dtype)
        q, k, v = f.input("q", (B, T, H, K)), f.input("k", (B, T, H, K)), f.input("v", (B, T, H, V))
        of = lambda n: f.input(n, gate_shape(kind, n, *self.dims), dtype if n in ("a", "b") else wide)
        gates = [of(n) if n in GATES[kind] else None for n in ORDER[3:]]
        documents, do = f.input("documents", (B, T), "i32"), f.input("do", (B, T, H, V))
        state = Type((1, B, H, K, V), wide)
        factor = Type((1, B, H, *factor_shape(kind, K)), wide)
        common = {"class_id": CLASS_IDS[kind], "chunk_size": chunk}
        p, x = f.op("braid.lsm.segment", [k, v, *gates, documents], [factor, state], segments=True, **common)
        dx = f.op(
            "braid.lsm.segment_grad", [q, k, v, *gates, documents, do], state, segments=True, scale=0.25, **common
        )
        for name, value in (("p", p), ("x", x), ("dx", dx)):
            f.output(name, value)

    def check(self, label, rng, documents, decay=(0.0, 0.3), change=None):
        B, T, H, K, V = self.dims
        operands = random_operands(self.kind, rng, B, T, H, K, V, decay)
        if change:
            change(operands)
        do = rng.standard_normal((B, T, H, V))
        inputs = operands | {"documents": documents, "do": do}
        operands = round_operands(operands, self.dtype)
        p, x = segment(self.kind, operands, documents)
        zero = np.zeros((B, H, K, V))
        dx = scan(self.kind, operands, zero, documents, 0.25)[1](rounded([do], self.dtype)[0], zero)[1][None]
        limit = {"p": FORWARD, "x": FORWARD, "dx": gradient_limit(self.kind)}
        if self.dtype != "f32":
            limit = dict.fromkeys(limit, 1e-9 if self.dtype == "f64" else 1e-2 if is_dense(self.kind) else 5e-3)
        self.program.check(self.function, inputs, {"p": p, "x": x, "dx": dx}, limit, f"{self.function.name} {label}")


def add_segments(program, kind, rng):
    for i, (B, T, H, K, V) in enumerate([(2, 37, 2, 16, 16), (1, 70, 1, 36, 100), (1, 40, 1, 144, 24)]):
        s = Segment(program, kind, B, T, H, K, V)
        s.check("continues", rng, one_document(B, T, -3))
        if i:
            continue
        s.check("begins a document", rng, one_document(B, T))
        s.check("documents", rng, documents_of([[-4, T // 4, T // 4 + 1, (2 * T) // 3, T], [0, T - 1, T, T, T]], T))
        s.check("padding, one row without tokens", rng, documents_of([[-1, T // 2, T // 2], [-1, 0, 0]], T))
        if has_decay(kind):
            s.check("decay -500 per token", rng, one_document(B, T, -1), decay=(499.0, 500.0))
            s.check("decay from 0 to -30", rng, one_document(B, T, -1), change=mixed_decay(rng))
        if has_beta(kind):
            s.check("identical keys, beta 1", rng, one_document(B, T, -1), decay=(0.0, 0.01), change=identical_keys)
        for dtype in ("f64", "bf16"):
            Segment(program, kind, B, T, H, K, V, dtype=dtype).check("continues", rng, one_document(B, T, -3))


def add_algebra(program, kind, rng):
    """fold, compose and their adjoints; what a class stores is what matters: S stands for I and S0, GH for H."""
    s, B, H, K, V = 5, 2, 2, 20, 24
    f = program.function(f"fold_{kind}")
    p, x = f.input("p", (s, B, H, *factor_shape(kind, K))), f.input("x", (s, B, H, K, V))
    carry, coordinate = f.input("carry", (B, H, K, V)), f.input("coordinate", (1,), "i32")
    initial, after = f.op("braid.lsm.fold", [p, x, carry, coordinate], [carry.type, carry.type])
    dfinal, dcarry = f.op("braid.lsm.fold_grad", [p, x, carry, coordinate], [carry.type, carry.type])
    one = [f.input(n, (1, *o.type.shape[1:])) for n, o in (("p1", p), ("x1", x), ("p2", p), ("x2", x))]
    for adjoint in (False, True):
        result = f.op("braid.lsm.compose", [one[0], one[1], one[3], one[2]], [one[1].type, one[0].type], adjoint=adjoint)
        f.output(f"xs{adjoint}", result[0])
        f.output(f"ps{adjoint}", result[1])
    f.output("state", f.op("braid.lsm.compose", [one[0], one[1], one[3]], [one[1].type])[0])
    for name, value in (("initial", initial), ("next", after), ("dfinal", dfinal), ("dcarry", dcarry)):
        f.output(name, value)
    for mine in range(s):
        values = {n: rounded([rng.standard_normal(o.type.shape)])[0] for n, o in f.inputs.items() if n != "coordinate"}
        values |= {n: values[n] / (K**0.5 if is_dense(kind) else 1) for n in ("p", "p1", "p2")}
        values = dict(zip(values, rounded(list(values.values()))))
        values["p"][2, 0] = 0  # a document began there
        out, state = {}, values["carry"]
        for i in range(s):
            out |= {"initial": state} if i == mine else {}
            state = times(values["p"][i], state) + values["x"][i]
        out["next"], state = state, values["carry"]
        for i in reversed(range(s)):
            out |= {"dfinal": state} if i == mine else {}
            state = times(values["p"][i], state, transposed=True) + values["x"][i]
        out["dcarry"] = state
        p1, x1, p2, x2 = (values[n][0] for n in ("p1", "x1", "p2", "x2"))
        product = lambda a, b: a @ b if a.ndim == 4 else a * b
        out |= {"xsFalse": (times(p1, x2) + x1)[None], "psFalse": product(p1, p2)[None]}
        out |= {"xsTrue": (times(p1, x2, transposed=True) + x1)[None], "psTrue": product(p2, p1)[None]}
        out["state"] = out["xsFalse"]
        program.check(f, values | {"coordinate": np.array([mine])}, out, FORWARD, f"{f.name} at {mine}")


def add_parts(program, kind, rng, parts=3):
    """Segments of the parts, folded, are the states that the scans of the parts begin with; backwards the same with adjoints."""
    B, T, H, K, V = 2, 23, 2, 16, 16
    ours, scans = Segment(program, kind, B, T, H, K, V), Scan(program, kind, B, T, H, K, V, 16)
    scale, total = scans.scale, parts * T
    for cu in ([[-5, total]] * B, [[0, T, T + 4, total], [-2, 3, 2 * T + 7, total - 3]]):
        operands = round_operands(random_operands(kind, rng, B, total, H, K, V), "f32")
        carry, do, dnext = rounded(rng.standard_normal(n) for n in ((B, H, K, V), (B, total, H, V), (B, H, K, V)))

        def action(program, cu=cu, operands=operands, carry=carry, do=do, dnext=dnext):
            (o, final), pull = scan(kind, operands, carry, documents_of(cu, total), scale)
            gradients, dinitial = pull(do, dnext)
            expected = {f"d{n}": d for n, d in gradients.items()} | {"dinitial_state": dinitial}
            part = lambda a, r: a if a.ndim == 1 else a[:, r * T : (r + 1) * T]
            inputs = [
                {n: part(a, r) for n, a in operands.items()}
                | {"documents": documents_of(cu, T, r * T), "do": part(do, r)}
                for r in range(parts)
            ]
            segments = [program.call(ours.function, i) for i in inputs]
            states, cotangents = [carry], [dnext]
            for s in segments:
                states.append(times(s["p"][0], states[-1]) + s["x"][0])
            for s in reversed(segments):  # dx was made with the scale 0.25
                cotangents.append(times(s["p"][0], cotangents[-1], True) + s["dx"][0] * (scale / 0.25))
            outs = [
                program.call(scans.function, i | {"initial_state": states[r], "dfinal_state": cotangents[parts - 1 - r]})
                for r, i in enumerate(inputs)
            ]
            join = lambda n: np.concatenate([out[n] for out in outs], 1)
            values = {n: join(n) for n in scans.function.outputs if n not in ("final_state", "dinitial_state")}
            values |= {"final_state": outs[-1]["final_state"], "dinitial_state": cotangents[-1]}
            expected |= {"o": o, "final_state": final}
            program.compare(
                f"{kind} in {parts} parts", values, {n: expected[n] for n in values}, gradient_limit(kind)
            )

        program.then(action)


def main():
    program = Program("segment", options=["--from-phase=scheduled"])
    for i, kind in enumerate(CLASSES):
        rng = np.random.default_rng(i)
        add_segments(program, kind, rng)
        add_parts(program, kind, rng)
        if kind in ("S", "V", "GH"):
            add_algebra(program, kind, rng)
    return program.finish()


if __name__ == "__main__":
    sys.exit(main())
