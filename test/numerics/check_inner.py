"""lsm.inner_step and its gradient, of every class, against the recurrence and its adjoint.

Limits of lsm-family 8.1 for N and GM: forward 2e-6, gradients 5e-6 in f32; 8e-3 and 1e-2 with bf16 tokens; f64 1e-9.
"""

import sys

import numpy as np

from harness import Program, rounded
from common import documents_of, one_document
from inner import ORDER, VARIANTS, WHOLE, inner_step, planes, random_operands, shape_of

LIMITS = {"f32": (2e-6, 5e-6), "f64": (1e-9, 1e-9), "bf16": (8e-3, 1e-2)}
TOKENS = ("q", "k", "v")


class InnerStep:
    """A function that runs the forward and, unless it is one token, the gradient of one shape."""

    def __init__(self, program, kind, B, T, H, K, V, mini_batch, dtype="f32"):
        self.program, self.dims, self.mini_batch, self.dtype = program, (B, T, H, K, V), mini_batch, dtype
        self.wide = "f32" if dtype == "bf16" else dtype
        self.gates, self.rows = ("rate", *VARIANTS[kind]), planes(VARIANTS[kind], mini_batch) * K
        name = f"{kind}_b{B}_t{T}_h{H}_k{K}_v{V}_n{mini_batch}_{dtype}".replace("-", "_")
        f = self.function = program.function(name, dtype)
        given = {
            n: f.input(n, shape_of(n, *self.dims), dtype if n in TOKENS else self.wide) if n in TOKENS + self.gates else None
            for n in ORDER
        }
        initial, documents = f.input("initial_state", (B, H, self.rows, V), self.wide), f.input("documents", (B, T), "i32")
        attributes = {"mini_batch": mini_batch, "norm_eps": 1e-6}
        operands = [*given.values(), initial, documents]
        o, final = f.op("braid.lsm.inner_step", operands, [given["v"].type, initial.type], segments=True, **attributes)
        f.output("o", o)
        f.output("final_state", final)
        if T == 1:
            return
        do, dfinal = f.input("do", (B, T, H, V)), f.input("dfinal_state", initial.type.shape, self.wide)
        present = {n: x for n, x in given.items() if x}
        types = [x.type for x in present.values()] + [initial.type]
        results = f.op("braid.lsm.inner_step_grad", [*operands, do, dfinal], types, segments=True, **attributes)
        for name, value in zip([*present, "initial_state"], results):
            f.output(f"d{name}", value)

    def draw(self, rng):
        x = random_operands(self.gates, rng, *self.dims)
        tokens = {n: rounded([a], self.dtype if n in TOKENS else self.wide)[0] for n, a in x.items()}
        B, _, H, _, V = self.dims
        return tokens, rounded([0.3 * rng.standard_normal((B, H, self.rows, V))], self.wide)[0]

    def check(self, label, rng, documents, change=None):
        B, T, H, _, V = self.dims
        operands, initial = self.draw(rng)
        if change:
            change(operands)
        do, dfinal = rounded([rng.standard_normal((B, T, H, V))], self.dtype)[0], rng.standard_normal(initial.shape)
        dfinal = rounded([dfinal], self.wide)[0]
        (o, final), pull = inner_step(operands, initial, documents, self.mini_batch)
        references = {"o": o, "final_state": final}
        inputs = operands | {"initial_state": initial, "documents": documents}
        forward, backward = LIMITS[self.dtype]
        floors = {}
        if T > 1:
            gradients, dinitial = pull(do, dfinal)
            references |= {f"d{n}": d for n, d in (gradients | {"initial_state": dinitial}).items()}
            inputs |= {"do": do, "dfinal_state": dfinal}
            # What is left of a gradient of a gate where all its terms have decayed away.
            for n in set(operands) & {"log_decay", "log_momentum"}:
                floors[f"d{n}"] = 1e-2 * np.linalg.norm(operands["q"] * gradients["q"])
        limit = {n: forward if n in ("o", "final_state") else backward for n in references}
        self.program.check(self.function, inputs, references, limit, f"{self.function.name} {label}", floors)


def extreme_decay(operands):
    for name in set(operands) & {"log_decay", "log_momentum"}:
        operands[name] = np.where(np.arange(operands[name].shape[1])[None, :, None] % 7 == 3, -500.0, operands[name])


def no_decay(operands):
    for name in set(operands) & {"log_decay", "log_momentum"}:
        operands[name] = np.zeros_like(operands[name])


def undone(operands):
    """Equal keys, and every target the opposite of the one before: a step takes back what the last one wrote."""
    operands["k"][:] = operands["k"][:, :1]
    signs = np.where(np.arange(operands["v"].shape[1]) % 2, -1.0, 1.0)
    operands["v"][:] = signs[None, :, None, None] * operands["v"][:, :1]


def add_kind(program, kind, rng):
    # T is never a multiple of the mini-batch; odd ones, one of a single token, and one longer than the row.
    for i, (B, T, H, K, V, n) in enumerate([(2, 37, 2, 16, 16, 16), (1, 100, 3, 33, 32, 16), (2, 23, 2, 5, 7, 5), (1, 9, 2, 16, 16, 1), (2, 11, 2, 20, 12, 32)]):
        if i in (1, 4) and kind in ("G1-plain", "GM-read"):
            continue
        step = InnerStep(program, kind, B, T, H, K, V, n)
        step.check("one document, from zero", rng, one_document(B, T))
        step.check("continues inside a mini-batch", rng, one_document(B, T, -3))
        cut = [[-4, T // 4, T // 4 + 1, (2 * T) // 3, T], [0, 1, T // 2, T // 2, T // 2]][:B]
        step.check("packed", rng, documents_of(cut, T))
        if i == 0:
            step.check("padding only behind 1 token", rng, documents_of([[-1, 1, 1, 1, 1]] * B, T))
            add_extremes(step, rng)
            for dtype in ("f64", "bf16"):
                other = InnerStep(program, kind, B, T, H, K, V, n, dtype)
                other.check("packed", rng, documents_of(cut, T))
    add_steps(program, kind, rng)


def add_extremes(step, rng):
    begun = one_document(step.dims[0], step.dims[1], -1)
    step.check("writes that undo each other", rng, begun, undone)
    if "log_decay" in step.gates:
        step.check("decay -500 at some tokens", rng, begun, extreme_decay)
        step.check("decay 0", rng, begun, no_decay)


def add_steps(program, kind, rng):
    """Prefill of some tokens, then one call per token, equals the whole row; a step at position 0 forgets the state before."""
    B, T, H, K, V, n = 2, 24, 2, 16, 16, 5
    whole, step = InnerStep(program, kind, B, T, H, K, V, n), InnerStep(program, kind, B, 1, H, K, V, n)
    for begin in (-7, 0):
        step.check(f"begin {begin}", rng, one_document(B, 1, begin))
    for prefill in (15, 17):
        first = InnerStep(program, kind, B, prefill, H, K, V, n)
        operands, initial = whole.draw(rng)

        def action(program, first=first, operands=operands, initial=initial, prefill=prefill):
            (o, final), _ = inner_step(operands, initial, one_document(B, T, -2), n)
            part = lambda lo, hi: {m: a if m in WHOLE else a[:, lo:hi] for m, a in operands.items()}
            rest = {"do": np.zeros((B, prefill, H, V)), "dfinal_state": np.zeros(initial.shape)}
            start = {"initial_state": initial, "documents": one_document(B, prefill, -2)}
            out = program.call(first.function, part(0, prefill) | rest | start)
            pieces, state = [out["o"]], out["final_state"]
            for t in range(prefill, T):
                now = {"initial_state": state, "documents": one_document(B, 1, -2 - t)}
                out = program.call(step.function, part(t, t + 1) | now)
                pieces.append(out["o"])
                state = out["final_state"]
            found = {"o": np.concatenate(pieces, 1), "final_state": state}
            program.compare(f"{kind} prefill {prefill}, then steps", found, {"o": o, "final_state": final}, 2e-6)

        program.then(action)


def main():
    rng = np.random.default_rng(5)
    program, baseline = Program("inner"), Program("inner-x86-64-v3", options=["--cpu=x86-64-v3"])
    for kind in VARIANTS:
        add_kind(program, kind, rng)
        step = InnerStep(baseline, kind, 1, 37, 2, 16, 16, 16)
        step.check("packed", rng, documents_of([[-4, 9, 10, 24, 37]], 37))
        add_extremes(step, rng)
    wide = InnerStep(program, "N-read", 1, 35, 1, 65, 64, 16)
    wide.check("wide", rng, one_document(1, 35, -3))
    InnerStep(program, "N", 1, 40, 1, 128, 128, 32).check("wide", rng, one_document(1, 40))
    return program.finish() | baseline.finish()


if __name__ == "__main__":
    sys.exit(main())
