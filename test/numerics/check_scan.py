"""lsm.scan, lsm.scan_grad and lsm.step of one class against the recurrence and its adjoint. python3 check_scan.py CLASS [wide|models [all]|walks]

A second program is compiled for the baseline CPU, x86-64-v3, wherever the test runs. `wide`: every long chunk and wide head instead.
Limits: lsm-family 8.1 (forward 2e-6; gradients 5e-6 for I, S0, S, E and 1e-5 for the others); f64 1e-9.
bf16 tokens: limits of lsm-family 8.1 for operands of products rounded to bf16, which a CPU with AVX512-BF16 does; it sums in f32. Equal
keys in a row are the hardest case: dbeta of class GH is then off by 0.018 to 0.033 over six seeds with such products, and by 0.002 where they
are made in f32 (x86-64-v3).
"""

import sys

import numpy as np

from harness import Program, Type, rounded
from common import documents_of, one_document
from scan import CLASSES, GATES, ORDER, PRODUCT, gate_shape, has_beta, has_decay, random_operands, scan, trained_gates

CLASS_IDS = {name: f"{i} : i32" for i, name in enumerate(CLASSES)}
CLASS_IDS[PRODUCT] = CLASS_IDS["E"]
FORWARD = 2e-6
WHOLE = ("S0", PRODUCT)  # classes whose log decay is the same for all tokens


def gradient_limit(kind):
    return 5e-6 if kind in ("I", "S0", "S", "E", PRODUCT) else 1e-5


def bf16_limit(kind, name):
    if name in ("o", "final_state"):
        return {"H": 1e-2, "GH": 1e-2, "VH": 1e-2, "D": 8e-3}.get(kind, 5e-3)
    limit = {"V": 1.5e-2, "R": 1.5e-2, "D": 1.5e-2, "H": 2e-2, "GH": 2e-2, "VH": 2e-2}.get(kind, 1e-2)
    return 2 * limit if name in ("dlog_decay", "dvalue_decay") else limit


def round_operands(operands, tokens):
    """As the program holds them: tokens and rows in their type, gates wide."""
    wide = "f32" if tokens == "bf16" else tokens
    return {n: rounded([x], wide if n in ("log_decay", "beta", "value_decay") else tokens)[0] for n, x in operands.items()}


class Scan:
    """A function that runs the forward and the gradient of one shape."""

    def __init__(self, program, kind, B, T, H, K, V, chunk=None, dtype="f32", step=False, known=None, updates=None, gradient=True):
        """`known`: attributes that passes write, by their names behind `braid.`; `updates`: so many of each token."""
        self.program, self.kind, self.dims, self.dtype, self.step, self.chunk = program, kind, (B, T, H, K, V), dtype, step, chunk
        self.scale, self.updates = K**-0.5, updates
        name = f"{'step' if step else 'scan'}_{kind.replace('-', '_')}_b{B}_t{T}_h{H}_k{K}_v{V}_c{chunk or 0}_{dtype}"
        name += f"_u{updates}" if updates else ""
        name += "" if gradient else "_forward"
        many = lambda shape: (B, T, updates, *shape[2:]) if updates else shape
        f = self.function = program.function(name + "".join(f"_{n}_{abs(v)}".replace(".", "p") for n, v in (known or {}).items()), dtype)
        wide = "f32" if dtype == "bf16" else dtype  # gates and states
        q, k, v = f.input("q", (B, T, H, K)), f.input("k", many((B, T, H, K))), f.input("v", many((B, T, H, V)))
        shape_of = lambda n: gate_shape(kind, n, *self.dims) if n == "log_decay" and kind in WHOLE else many(gate_shape(kind, n, *self.dims))
        of = lambda n: f.input(n, shape_of(n), dtype if n in ("a", "b") else wide)
        gates = {n: of(n) if n in GATES[kind] else None for n in ORDER[3:]}
        initial, documents = f.input("initial_state", (B, H, K, V), wide), f.input("documents", (B, T), "i32")
        attributes = {"class_id": CLASS_IDS[kind], "scale": float(self.scale)} | (
            {"chunk_size": chunk} if chunk else {}
        ) | {f"braid.{n}": v for n, v in (known or {}).items()}
        o, final = f.op(
            "braid.lsm.step" if step else "braid.lsm.scan",
            [q, k, v, *gates.values(), initial, documents],
            [Type((B, T, H, V), dtype), initial.type],
            segments=True,
            **attributes,
        )
        f.output("o", o)
        f.output("final_state", final)
        if step or not gradient:
            return
        do, dfinal = f.input("do", (B, T, H, V)), f.input("dfinal_state", (B, H, K, V), wide)
        trained = trained_gates(kind)
        names = ["dq", "dk", "dv", *(f"d{n}" for n in trained), "dinitial_state"]
        results = f.op(
            "braid.lsm.scan_grad",
            [q, k, v, *gates.values(), initial, documents, do, dfinal],
            [x.type for x in (q, k, v, *(gates[n] for n in trained), initial)],
            segments=True,
            **attributes,
        )
        for name, value in zip(names, results):
            f.output(name, value)

    def reference(self, operands, initial, documents, do, dfinal):
        """Names -> references of all outputs, in float64 on the rounded inputs."""
        tokens = self.dtype
        wide = "f32" if tokens == "bf16" else tokens
        operands = round_operands(operands, tokens)
        do, (initial, dfinal) = rounded([do], tokens)[0], rounded([initial, dfinal], wide)
        if self.updates:
            operands, documents, do = self.places(operands, documents, do)
        (o, final), pull = scan(self.kind, operands, initial, documents, self.scale)
        gradients, dinitial = pull(do, dfinal)
        if self.updates:
            last = lambda x: x[:, self.updates - 1 :: self.updates]
            o, gradients["q"] = last(o), last(gradients["q"])
            gradients = {n: d.reshape(self.function.outputs[f"d{n}"].type.shape) if f"d{n}" in self.function.outputs else d for n, d in gradients.items()}
        out = {"o": o, "final_state": final, "dinitial_state": dinitial} | {f"d{n}": d for n, d in gradients.items()}
        return {n: out[n] for n in self.function.outputs}

    def places(self, operands, documents, do):
        """What every token has of each update, as places of a row; q and do at the last place of a token, 0 at the others."""
        B, T, H, K, V = self.dims
        n = self.updates
        flat = lambda x: x.reshape(B, n * T, *x.shape[3:])
        last = lambda x: flat(np.concatenate([np.zeros((B, T, n - 1, *x.shape[2:])), x[:, :, None]], 2))
        places = {m: x if m == "log_decay" and self.kind in WHOLE else last(x) if m == "q" else flat(x) for m, x in operands.items()}
        none = np.iinfo(np.int32).max
        return places, np.repeat(np.where(documents == none, none, n * documents.astype(np.int64)), n, 1), last(do)

    def draw(self, rng, decay):
        B, T, H, K, V = self.dims
        if not self.updates:
            return random_operands(self.kind, rng, B, T, H, K, V, decay)
        n = self.updates
        drawn = random_operands(self.kind, rng, B, n * T, H, K, V, decay)
        many = {m: x if m == "log_decay" and self.kind in WHOLE else x.reshape(B, T, n, *x.shape[2:]) for m, x in drawn.items()}
        return many | {"q": many["q"][:, :, 0]}

    def check(self, label, rng, documents, decay=(0.0, 0.3), change=None, cancels=False, bf16_share=1):
        """`cancels`: gradients of log decays are differences of much larger terms. `bf16_share`: of the limits of bf16."""
        B, T, H, K, V = self.dims
        operands = self.draw(rng, decay)
        if change:
            change(operands)
        initial, do, dfinal = (rng.standard_normal(s) for s in ((B, H, K, V), (B, T, H, V), (B, H, K, V)))
        references = self.reference(operands, initial, documents, do, dfinal)
        inputs = operands | {
            "initial_state": initial,
            "documents": documents,
            "do": do,
            "dfinal_state": dfinal,
        }
        forward = {"o", "final_state"}
        limit = {
            n: (
                1e-9
                if self.dtype == "f64"
                else bf16_share * bf16_limit(self.kind, n) if self.dtype == "bf16" and not self.step
                else 4e-3 if self.function.outputs[n].type.dtype == "bf16"
                else FORWARD if n in forward else gradient_limit(self.kind)
            )
            for n in references
        }
        # Far below q dq the log-decay gradient is a difference of large numbers (lsm-family 8.1), where all but nothing is left
        # of a state: for vector decays of q dq and k dk (the x dx identity), each with its own rounding of 1e-7.
        share = 1e-1 if self.kind in ("V", "VH", "D", "R") and cancels else 1e-2
        floors = {} if "dq" not in references else {"dlog_decay": share * np.linalg.norm(operands["q"] * references["dq"])}
        if self.kind == "R" and "dq" in references:
            floors["dvalue_decay"] = share * np.linalg.norm(operands["v"] * references["dv"])
        self.program.check(self.function, inputs, references, limit, f"{self.function.name} {label}", floors)


def shapes():
    """(B, T, H, K, V, chunk): T never a multiple of the chunk, once below it; odd and wide heads."""
    return [
        (2, 37, 2, 16, 16, 16),
        (1, 100, 3, 32, 48, 32),
        (2, 11, 2, 16, 16, 32),
        (2, 40, 3, 20, 12, 16),
        (1, 35, 2, 5, 7, 16),
        (1, 130, 1, 128, 128, 64),
    ]


def add_extremes(scan, kind, rng, T, packed):
    """What a chunk must survive: rows of documents, states that vanish at once or never, writes that undo each other."""
    scan.check("packed", rng, packed)
    if has_decay(kind):
        scan.check("decay -500 per token", rng, one_document(len(packed), T, -1), decay=(499.0, 500.0), cancels=True)
        scan.check("decay from 0 to -30", rng, one_document(len(packed), T, -1), change=mixed_decay(rng))
    if kind == "R":  # one side strong, the other mild
        for gate in ("log_decay", "value_decay"):
            scan.check(f"strong {gate}", rng, packed, change=lambda x, gate=gate: np.multiply(x[gate], 7, out=x[gate]))
    if has_beta(kind) or kind == "D":
        # Every write undoes the one before it: gradients are differences of values that were rounded to bf16 (worst seen 0.023 of
        # beta's of GH, 0.089 of VH's, 0.10 of b's).
        keys = dict(decay=(0.0, 0.01), change=identical_keys, bf16_share={"D": 8, "VH": 6}.get(kind, 2))
        scan.check("identical keys, beta 1", rng, one_document(len(packed), T, -1), **keys)
    if kind == "VH":  # mild where exponents begin in the middle of a chunk
        scan.check("decay -2 per token", rng, packed, decay=(1.9, 2.1))


# (B, T, H, K, V, chunk, type) and the classes that check it every time: long chunks where they are the default, heads as wide as
# published models have them, bf16 on the widths of its models.
WIDE = [
    ((1, 150, 1, 128, 64, 128, "f32"), ("S",)),
    ((1, 130, 1, 128, 128, 64, "bf16"), ("I", "S0", "S", "V", "R", "H", "GH", "VH")),
    ((1, 130, 1, 128, 128, 32, "bf16"), ("V",)),
    ((1, 70, 1, 64, 128, 32, "bf16"), ("V",)),
    ((1, 130, 1, 64, 64, 64, "bf16"), ("D", "R")),
    ((12, 20, 11, 64, 128, 16, "bf16"), ("S", "V")),
    ((1, 70, 2, 64, 64, 32, "bf16"), ("GH",)),
    ((1, 40, 1, 256, 256, 32, "f32"), ("GH",)),
    ((1, 150, 1, 256, 256, 64, "f32"), ()),
    ((1, 70, 1, 256, 512, 64, "f32"), ()),
]


def add_wide(program, kind, rng, everything=False, extremes=True):
    """Without `extremes` those of many heads, each of which computes as one of the others does, have packed rows only."""
    for (B, T, H, K, V, chunk, dtype), kinds in WIDE:
        if everything or kind in kinds:
            packed = documents_of([[-4, T // 4, T // 4 + 1, (2 * T) // 3, T]] * B, T)
            scan = Scan(program, kind, B, T, H, K, V, chunk, dtype)
            if extremes or B * H < 100:
                add_extremes(scan, kind, rng, T, packed)
            else:
                scan.check("packed", rng, packed)


def add_scans(program, kind, rng):
    long = Scan(program, kind, 1, 701, 1, 32, 48, 32)
    long.check("long row", rng, one_document(1, 701, -1), decay=(0.0, 0.02), cancels=True)
    for i, shape in enumerate(shapes()):
        if kind in ("VH", "D", "R") and i in (1, 3, 5):
            continue  # large kernels: their other shapes are those of the long row, the wide heads and the baseline CPU
        B, T, H, K, V, chunk = shape
        s = Scan(program, kind, *shape)
        s.check("one document, from zero", rng, one_document(B, T))
        s.check("continues a state", rng, one_document(B, T, -3))
        # Row 0: a document that began earlier, then three more; the last row is half padding.
        cut = [[-4, T // 4, T // 4 + 1, (2 * T) // 3, T], [0, 1, T // 2, T // 2, T // 2]][:B]
        s.check("packed", rng, documents_of(cut, T))
        s.check("padding only behind 1 token", rng, documents_of([[-1, 1, 1, 1, 1]] * B, T))
        if has_decay(kind):
            s.check("decay -500 per token", rng, one_document(B, T, -1), decay=(499.0, 500.0), cancels=True)
            s.check("decay -2 per token", rng, one_document(B, T, -1), decay=(1.99, 2.0))
            s.check("decay from 0 to -30", rng, one_document(B, T, -1), change=mixed_decay(rng))
            s.check("no decay", rng, one_document(B, T, -1), decay=(0.0, 1e-9))
        if has_beta(kind) or kind == "D":
            s.check("identical keys, beta 1", rng, one_document(B, T, -1), decay=(0.0, 0.01), change=identical_keys)
        if has_beta(kind):
            s.check(
                "beta 2 (reflections)",
                rng,
                one_document(B, T, -1),
                change=lambda x: x["beta"].fill(2.0),
            )
        if kind in ("E", PRODUCT) and i == 3:
            return  # the same walk for every shape
        if i == 0:
            for dtype in ("f64", "bf16"):
                other = Scan(program, kind, *shape, dtype=dtype)
                other.check("packed", rng, documents_of(cut, T))
                other.check("continues a state", rng, one_document(B, T, -3))


def mixed_decay(rng):
    def change(operands):
        for name in ("log_decay", "value_decay"):
            if "value_decay" in operands and operands["log_decay"].ndim == 3:  # a product, whose rates stay
                operands["value_decay"] = 30 * rng.uniform(0, 1, operands["value_decay"].shape) ** 6
            elif name in operands:
                operands[name] = -30 * rng.uniform(0, 1, operands[name].shape) ** 6

    return change


def identical_keys(operands):
    for name in set(operands) & {"k", "a", "b"}:
        operands[name] = np.broadcast_to(operands[name][:, :1], operands[name].shape).copy()
    if "beta" in operands:
        operands["beta"].fill(1.0)
    if "a" in operands:
        operands["b"] = -operands["a"]


def add_steps(program, kind, rng):
    """Prefill of k tokens, then one step per token, equals the full scan; a step at position 0 forgets the state before."""
    B, T, H, K, V = 2, 24, 2, 16, 16
    step = Scan(program, kind, B, 1, H, K, V, step=True)
    single = Scan(program, kind, B, 1, H, K, V, chunk=16)
    for begin in (-5, 0):
        single.check(f"scan of one token, begin {begin}", rng, one_document(B, 1, begin))
    for prefill in (17, 19):
        first = Scan(program, kind, B, prefill, H, K, V, 16)
        operands = round_operands(random_operands(kind, rng, B, T, H, K, V), "f32")
        initial = rounded([rng.standard_normal((B, H, K, V))])[0]

        def action(program, first=first, operands=operands, initial=initial, prefill=prefill):
            (o, final), _ = scan(kind, operands, initial, one_document(B, T, -2), K**-0.5)
            part = lambda lo, hi: {n: a if n == "log_decay" and kind in WHOLE else a[:, lo:hi] for n, a in operands.items()}
            rest = {"do": np.zeros((B, prefill, H, V)), "dfinal_state": np.zeros((B, H, K, V))}
            out = program.call(
                first.function,
                part(0, prefill) | rest | {"initial_state": initial, "documents": one_document(B, prefill, -2)},
            )
            pieces, state = [out["o"]], out["final_state"]
            for t in range(prefill, T):
                out = program.call(
                    step.function, part(t, t + 1) | {"initial_state": state, "documents": one_document(B, 1, -2 - t)}
                )
                pieces.append(out["o"])
                state = out["final_state"]
            program.compare(
                f"{kind} prefill {prefill}, then steps",
                {"o": np.concatenate(pieces, 1), "final_state": state},
                {"o": o, "final_state": final},
                FORWARD,
            )

        program.then(action)


def add_updates(program, kind, rng):
    """Several updates of every token; decoding takes them one after the other."""
    for updates, (B, T, H, K, V, chunk), dtype in ((2, (2, 37, 2, 16, 12, 16), "f32"), (3, (1, 21, 2, 8, 16, 32), "f64"), (2, (1, 37, 2, 16, 16, 32), "bf16")):
        s = Scan(program, kind, B, T, H, K, V, chunk, dtype, updates=updates)
        s.check("packed", rng, documents_of([[-4, T // 4, T // 4 + 1, (2 * T) // 3, T], [0, 1, T // 2, T // 2, T // 2]][:B], T))
        s.check("continues a state", rng, one_document(B, T, -3))
        single = Scan(program, kind, B, 1, H, K, V, chunk, dtype, updates=updates)
        for begin in (-5, 0):
            single.check(f"one token, begin {begin}", rng, one_document(B, 1, begin))


def add_segments(program, kind, rng):
    """States walked in segments of a row: some without a chunk, with a document's beginning, or in which all but nothing is left of a state."""
    for segments, (B, T, H, K, V, chunk) in ((2, (2, 75, 2, 32, 48, 16)), (8, (1, 100, 1, 64, 32, 16))):
        s = Scan(program, kind, B, T, H, K, V, chunk, "bf16", known={"walk_segments": segments})
        add_extremes(s, kind, rng, T, documents_of([[-4, T // 4, T // 4 + 1, (2 * T) // 3, T]] * B, T))
        s.check("continues a state", rng, one_document(B, T, -3))
        s.check("padding only behind 1 token", rng, documents_of([[-1, 1, 1, 1, 1]] * B, T))


def strong_inside(log_decay, chunk, channels):
    """In the second chunk a token decays by exp(-1000), a dozen by exp(-360), and what stands behind them by next to nothing."""
    for first, count, decay in ((3, 1, -1000.0), (chunk // 2 - 3, 12, -30.0)):
        some = log_decay[:, chunk + first : chunk + first + count]
        some[..., channels] = decay


def add_output_walks(program, kind, rng):
    """Outputs made where the state is, without a gradient beside them: rows whole and (delta rules: whole too) in segments, heads with several blocks of values."""
    for segments, shape in ((1, (2, 75, 2, 32, 64, 32)), (1, (1, 200, 1, 128, 128, 64)), (4, (1, 300, 2, 64, 64, 64)), (2, (1, 280, 1, 32, 128, 128))):
        B, T, H, K, V, chunk = shape
        s = Scan(program, kind, *shape, "bf16", known={"walk_segments": segments}, gradient=False)
        add_extremes(s, kind, rng, T, documents_of([[-4, T // 4, T // 4 + 1, (2 * T) // 3, T]] * B, T))
        s.check("continues a state", rng, one_document(B, T, -3))
        s.check("padding only behind 1 token", rng, documents_of([[-1, 1, 1, 1, 1]] * B, T))
        for every in (1, 7) if has_decay(kind) and kind not in WHOLE else ():  # channels, or heads
            strong = lambda x, every=every: strong_inside(x["log_decay"], chunk, slice(0, None, every))
            s.check(f"tokens behind strong decays, every {every}", rng, one_document(B, T, -3), decay=(0.0, 0.05), change=strong)


def add_known(program, kind, rng):
    """Tiles of scores under strong decays that were not chosen; decays of which gates prove that they are mild in every chunk."""
    for rows, (B, T, H, K, V, chunk) in ((8, (1, 70, 2, 16, 24, 32)), (32, (1, 70, 2, 20, 16, 64))):
        s = Scan(program, kind, B, T, H, K, V, chunk, known={"score_rows": rows})
        packed = documents_of([[-4, T // 4, T // 4 + 1, (2 * T) // 3, T]], T)
        s.check("decay -2 per token", rng, packed, decay=(1.99, 2.0))
        s.check("decay from 0 to -30", rng, packed, change=mixed_decay(rng))
    for dtype in ("f32", "bf16"):
        s = Scan(program, kind, 1, 70, 2, 16, 24, 64, dtype, known={"least_log_decay": -0.49})
        s.check("mild", rng, documents_of([[-4, 17, 18, 46, 70]], 70), decay=(0.0, 0.49))
        s.check("all but strong", rng, one_document(1, 70, -1), decay=(0.485, 0.49))


def main(kind, only="", extremes=""):
    """`only`: "wide", the shapes of WIDE for any class, "models", those of this class: the widths of published models (with "all" many heads at the extremes, too),
    or "walks", outputs made where the state is."""
    rng = np.random.default_rng(list(GATES).index(kind))
    if only:
        program = Program(f"scan-{kind}-{only}")
        if only == "walks":
            add_output_walks(program, kind, rng)
        else:
            add_wide(program, kind, rng, everything=only == "wide", extremes=only == "wide" or extremes == "all")
        return program.finish()
    program = Program(f"scan-{kind}")
    add_scans(program, kind, rng)
    add_wide(program, kind, rng)
    add_steps(program, kind, rng)
    add_updates(program, kind, rng)
    if kind in ("V", "VH", "D", "R"):
        add_known(program, kind, rng)
    if kind in ("S", "V"):
        add_segments(program, kind, rng)
    if kind in ("I", "S0", "S", "V", "H", "GH", "VH"):
        add_output_walks(program, kind, rng)
    baseline = Program(f"scan-{kind}-x86-64-v3", options=["--cpu=x86-64-v3"])
    B, T, H, K, V, chunk = shapes()[1]
    packed = documents_of([[-4, T // 4, T // 4 + 1, (2 * T) // 3, T]], T)
    add_extremes(Scan(baseline, kind, B, T, H, K, V, chunk), kind, rng, T, packed)
    return program.finish() | baseline.finish()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
