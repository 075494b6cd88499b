"""Router, plans, dispatch, combine, grouped linears and their gradients. Integers first, exactly; then values.

Limits (moe-family 11): weights and losses 2e-6, outputs 3e-6, gradients 5e-6; f64 1e-9.
"""

import sys

import numpy as np

from harness import Program, Type, rounded
import moe
from check_rows import RowOp
from common import PADDING, documents_of, one_document

B, T = 2, 21
# Full rows; rows that end in padding, the second after one token; nothing but padding.
ROWS_OF_DOCUMENTS = {
    "whole": one_document(B, T),
    "padded": documents_of([[0, 7, 16], [0, 1, 1]], T),
    "only padding": documents_of([[0, 0, 0], [-3, 0, 0]], T),
}


def add_router(program, rng, E, k):
    f = program.function(f"route_e{E}_k{k}")
    keys = f.input("keys", (B, T, E))
    f.output("ids", f.rows("moe.route", [keys], Type((B, T, k), "i32"), top_k=k))
    x = rounded([rng.standard_normal((B, T, E))])[0]
    for label, values in choices(rng, x):
        program.check(f, {"keys": values}, {"ids": moe.route(values, k)}, 0, f"{f.name} {label}")
    ids = moe.route(x, k)
    for score in ("softmax", "sigmoid"):
        add_scores(program, rng if score == "softmax" else np.random.default_rng(6), x, ids, k, score)


def choices(rng, x):
    """Keys [B, T, E]: as they are, with ties, with NaN and -inf, large."""
    ties = np.round(x * 2) / 2
    ties[0, 0], ties[0, 1] = 0.0, -0.0 * np.arange(x.shape[-1])  # all equal; -0 equals +0
    holes = x.copy()
    holes[rng.random(x.shape) < 0.2] = np.nan
    holes[1, 1], holes[1, 2] = np.nan, -np.inf
    yield from (("", x), ("ties", ties), ("NaN behind every number", holes), ("large", x * 1e30))


def add_scores(program, rng, x, ids, k, score):
    """Weights and losses of logits x and choices, and their gradients."""
    E, own = x.shape[-1], {} if score == "softmax" else {"score": score}
    name = f"e{E}_k{k}{'' if score == 'softmax' else '_' + score}"
    for normalize in (True, False):
        for dtype in ("f32", "f64"):
            case = RowOp(
                program,
                f"route_weights_{name}_{'sum' if normalize else 'raw'}",
                "moe.route_weights",
                [("logits", (B, T, E)), ("ids", (B, T, k))],
                {"normalize": normalize} | own,
                moe.route_weights,
                dtype,
                ("ids",),
                (B, T, k),
            )
            # One choice has weight 1 however large its sigmoid is, and one far out has its own: gradients that are 0 but for rounding.
            flat = score == "sigmoid" and k == 1
            case.check("", [x, ids], rng, gradients=not (flat and normalize))
            if dtype == "f32":
                case.check("large logits", [x * 40, moe.route(x * 40, k)], rng, gradients=not flat)
    for dtype in ("f32", "f64"):
        case = RowOp(
            program,
            f"router_loss_{name}",
            "moe.router_loss",
            [("logits", (B, T, E)), ("counts", (E,)), ("documents", (B, T))],
            {"top_k": k, "balance": 0.01, "z": 0.001} | own,
            moe.router_loss,
            dtype,
            ("counts", "documents"),
            (B, T),
        )
        for label, documents in ROWS_OF_DOCUMENTS.items():
            counts = np.bincount(ids[documents != PADDING].ravel(), minlength=E)
            case.check(label, [x, counts, documents], rng if label == "whole" else np.random.default_rng(5))
        case.check("one expert", [x * 10, np.eye(E, dtype=np.int64)[0] * B * T * k, ROWS_OF_DOCUMENTS["whole"]], rng)


def add_groups(program, rng, E, k, groups, kept, top):
    """Experts of the best groups only; where few of them are numbers, NaN stands before other groups."""
    f = program.function(f"route_e{E}_k{k}_g{groups}_{kept}_{top}")
    keys = f.input("keys", (B, T, E))
    ids = f.rows("moe.route", [keys], Type((B, T, k), "i32"), top_k=k, groups=groups, kept_groups=kept, group_top=top)
    f.output("ids", ids)
    for label, values in choices(rng, rounded([rng.standard_normal((B, T, E))])[0]):
        program.check(f, {"keys": values}, {"ids": moe.route(values, k, groups, kept, top)}, 0, f"{f.name} {label}")


def add_correction(program, rng, layers, E):
    for dtype in ("f32", "f64"):
        f = program.function(f"correct_{layers}x{E}_{dtype}", dtype)
        before, load = f.input("correction", (1, layers, E)), f.input("load", (1, layers, E))
        f.output("after", f.rows("moe.correct", [before, load], before.type, rate=0.125))
        start, loads = rng.integers(-9, 9, (1, layers, E)) / 8, rng.integers(0, 50000, (1, layers, E))
        equal = np.full((1, layers, E), 4097)
        for label, loads in (("", loads), ("equal loads", equal), ("one has all", np.eye(E)[:1] * 99999 + np.zeros((1, layers, 1)))):
            program.check(f, {"correction": start, "load": loads}, {"after": moe.correct(start, loads, 0.125)}, 0, f"{f.name} {label}")


def selections(rng, E, k):
    """Balanced, skewed to one expert, one expert without a token."""
    yield "random", moe.route(rng.standard_normal((B, T, E)), k)
    skewed = rng.standard_normal((B, T, E))
    skewed[..., 1] += 100
    yield "skewed", moe.route(skewed, k)
    missing = rng.standard_normal((B, T, E))
    missing[..., [0, E - 1]] -= 100
    yield "empty experts", moe.route(missing, k)


PLANNED = ("perm", "inverse", "counts", "offsets", "overflow")


def plan_op(f, ids, documents, E, rows, peers=1, peer_rows=0, **expert_rows):
    return f.op(
        "braid.moe.plan",
        [ids, documents],
        [
            Type((rows,), "i32"),
            ids.type,
            Type((E,), "i32"),
            Type((E + 1,), "i32"),
            Type((1,), "i32"),
            Type((1,), "i32"),
        ],
        num_experts=E,
        peers=peers,
        peer_rows=peer_rows,
        **expert_rows,
    )


def add_plans(program, rng, E, k):
    for peers, peer_rows in ((1, 0), (2, 24), (2, 84), (4, 13)):
        if E % peers or (peers > 1 and k == 1):
            continue
        rows = peers * peer_rows if peers > 1 else B * T * k
        f = program.function(f"plan_e{E}_k{k}_p{peers}_r{peer_rows}")
        ids, documents = f.input("ids", (B, T, k), "i32"), f.input("documents", (B, T), "i32")
        results = plan_op(f, ids, documents, E, rows, peers, peer_rows)
        for name, value in zip(PLANNED, results):
            if name not in ("offsets", "counts") or peers == 1:
                f.output(name, value)
        for label, ids in selections(rng, E, k):
            for rows, documents in ROWS_OF_DOCUMENTS.items():
                if rows != "whole" and label == "empty experts":
                    continue
                references = dict(zip(PLANNED, moe.plan(ids, documents, E, peers, peer_rows)))
                inputs = {"ids": ids, "documents": documents}
                program.check(f, inputs, {n: references[n] for n in f.outputs}, 0, f"{f.name} {label}, {rows}")


def add_plan_shapes(program, rng):
    """One token to more than one program takes; experts that fill no tile; too few rows for peers or experts; drops."""
    for tokens, E, k, peers, peer_rows, expert_rows in (
        (1, 8, 2, 1, 0, None),
        (1, 70, 9, 2, 5, None),
        (17, 3, 1, 1, 0, 4),
        (64, 16, 2, 1, 0, None),  # as many as one program plans alone, and one more
        (129, 5, 1, 1, 0, None),
        (300, 40, 3, 1, 0, None),
        (300, 40, 3, 4, 150, None),
        (300, 40, 3, 4, 230, 23),
        (257, 257, 8, 1, 0, 9),
        (513, 3, 1, 3, 171, None),
        (9000, 70, 8, 5, 13000, None),  # programs have more than the least
    ):
        rows = peers * peer_rows if peers > 1 else E * expert_rows if expert_rows else tokens * k
        f = program.function(f"plan_t{tokens}_e{E}_k{k}_p{peers}_r{peer_rows}_x{expert_rows or 0}")
        ids, documents = f.input("ids", (1, tokens, k), "i32"), f.input("documents", (1, tokens), "i32")
        results = plan_op(f, ids, documents, E, rows, peers, peer_rows, **({"expert_rows": expert_rows} if expert_rows else {}))
        for name, value in zip(PLANNED, results):
            if name not in ("offsets", "counts") or peers == 1:
                f.output(name, value)
        random = moe.route(rng.standard_normal((1, tokens, E)), k)
        last = np.where(np.arange(k) == 0, E - 1, np.arange(k) - 1) + np.zeros((1, tokens, 1), int)
        dropped = np.where(rng.random(random.shape) < 0.3, -1, random)
        own = np.random.default_rng(tokens)
        strange = np.where(own.random(random.shape) < 0.3, own.choice([E, E + 5, 2**31 - 1, -7, -(2**31)], random.shape), random)
        whole, padded = one_document(1, tokens), one_document(1, tokens)
        padded[:, tokens - tokens // 3 :] = PADDING
        for label, chosen, starts in (
            ("random", random, whole),
            ("drops, padding", dropped, padded),
            ("all to the last expert", last, whole),
            ("nothing", np.full(random.shape, -1), whole),
            ("experts that there are not", strange, whole),
        ):
            known = np.where((chosen >= 0) & (chosen < E), chosen, -1)
            references = dict(zip(PLANNED, moe.plan(known, starts, E, peers, peer_rows, expert_rows)))
            inputs = {"ids": chosen, "documents": starts}
            program.check(f, inputs, {n: references[n] for n in f.outputs}, 0, f"{f.name} {label}")


def add_received(program, rng, peers, local, peer_rows):
    f = program.function(f"plan_received_p{peers}_e{local}_r{peer_rows}")
    counts = f.input("counts", (peers, local), "i32")
    R = peers * peer_rows
    for name, value in zip(
        ("perm", "inverse", "offsets"),
        f.op(
            "braid.moe.plan_received",
            [counts],
            [Type((R,), "i32"), Type((R,), "i32"), Type((local + 1,), "i32")],
            peer_rows=peer_rows,
        ),
    ):
        f.output(name, value)
    for label, values in (
        ("random", rng.integers(0, peer_rows // local + 1, (peers, local))),
        ("full", np.full((peers, local), peer_rows // local)),
        ("more than fits", rng.integers(0, 4 * peer_rows // local + 2, (peers, local))),
        ("one expert", np.where(np.arange(local) == local - 1, peer_rows, 0) + np.zeros((peers, 1), int)),
        ("empty", np.zeros((peers, local), int)),
    ):
        program.check(
            f,
            {"counts": values},
            dict(zip(("perm", "inverse", "offsets"), moe.plan_received(values, peer_rows))),
            0,
            f"{f.name} {label}",
        )


def add_rows(program, rng, E, k, M, F, dtype):
    """dispatch, two grouped linears, combine, and the gradient of each."""
    f = program.function(f"rows_e{E}_k{k}_d{M}_{dtype}", dtype)
    R = B * T * k
    x, ids, weights = f.input("x", (B, T, M)), f.input("ids", (B, T, k), "i32"), f.input("weights", (B, T, k))
    documents = f.input("documents", (B, T), "i32")
    w1, w3, w2 = f.input("w1", (E, M, F)), f.input("w3", (E, M, F)), f.input("w2", (E, F, M))
    dy, da, du = f.input("dy", (B, T, M)), f.input("da", (1, R, F)), f.input("du", (1, R, F))
    perm, inverse, counts, offsets, _, exchange = plan_op(f, ids, documents, E, R)
    wide, narrow = Type((1, R, M), dtype), Type((1, R, F), dtype)
    rows = f.op("braid.moe.dispatch", [x, perm, inverse, exchange], wide)
    a, u = f.op("braid.moe.grouped_linear", [rows, offsets, w1, w3], [narrow, narrow])
    out = f.op("braid.moe.grouped_linear", [a, offsets, w2], [wide])[0]
    y, returned = f.op("braid.moe.combine", [out, weights, perm, inverse, exchange], [x.type, wide])
    drows, dweights = f.op(
        "braid.moe.combine_grad", [dy, returned, weights, perm, inverse, exchange], [wide, weights.type]
    )
    # Weights of rows before their product, and what comes back of their gradients.
    dn = f.input("dn", (1, R))
    numbers = f.op("braid.moe.row_weights", [weights, perm, inverse], dn.type)
    dnumbers = f.op("braid.moe.row_weights_grad", [dn, inverse], weights.type)
    drows2 = f.op("braid.moe.grouped_linear_grad_data", [[da, du], [offsets], [w1, w3]], wide, segments=True)
    # What other tokens gave: of bf16 results in f32, rounded with the sum; all there is where a group is empty.
    s1, s3 = (f.input(n, (E, M, F), "f32" if dtype == "bf16" else dtype) for n in ("s1", "s3"))
    weight_gradients = lambda *sums: f.op(
        "braid.moe.grouped_linear_grad_weight", [rows, offsets, [da, du], [*sums]], [w1.type, w3.type], segments=True
    )
    (dw1, dw3), (sum1, sum3) = weight_gradients(), weight_gradients(s1, s3)
    dx, _ = f.op("braid.moe.combine", [drows2, perm, inverse, exchange], [x.type, wide])
    # As the residual of a layer: a combination that alone is read by an add.
    added, _ = f.op("braid.moe.combine", [out, perm, inverse, exchange], [x.type, wide])
    for name, value in {
        "residual": f.rows("add", [x, added], x.type),
        "rows": rows,
        "a": a,
        "u": u,
        "out": out,
        "y": y,
        "drows": drows,
        "dweights": dweights,
        "numbers": numbers,
        "dnumbers": dnumbers,
        "drows2": drows2,
        "dw1": dw1,
        "dw3": dw3,
        "dsum1": sum1,
        "dsum3": sum3,
        "dx": dx,
    }.items():
        f.output(name, value)
    shapes = {n: o.type.shape for n, o in f.inputs.items() if n not in ("ids", "documents")}
    cases = [(label, chosen, ROWS_OF_DOCUMENTS["whole"]) for label, chosen in selections(rng, E, k)]
    if dtype != "bf16":  # rows of no group hold anything; in bf16 that is not the zeros of a fresh buffer
        cases += [(rows, cases[0][1], ROWS_OF_DOCUMENTS[rows]) for rows in ("padded", "only padding")]
    for label, chosen, documents in cases:
        arrays = {n: rounded([rng.standard_normal(s)], f.inputs[n].type.dtype)[0] for n, s in shapes.items()}
        perm, inverse, counts, offsets, _ = moe.plan(chosen, documents, E)
        rows_, pull_rows = moe.dispatch(arrays["x"], perm, inverse)
        a_, pull_a = moe.grouped_linear(rows_, offsets, arrays["w1"])
        u_, pull_u = moe.grouped_linear(rows_, offsets, arrays["w3"])
        out_ = moe.grouped_linear(a_, offsets, arrays["w2"])[0]
        y_, pull_y = moe.combine(out_, arrays["weights"], perm, inverse)
        drows_, dweights_ = pull_y(arrays["dy"])[:2]
        (d1, _, dw1_), (d3, _, dw3_) = pull_a(arrays["da"]), pull_u(arrays["du"])
        references = {
            "rows": rows_,
            "a": a_,
            "u": u_,
            "out": out_,
            "y": y_,
            "drows": drows_,
            "dweights": dweights_,
            "numbers": np.where(perm >= 0, arrays["weights"].reshape(-1)[perm], 0)[None],
            "dnumbers": np.where(inverse >= 0, arrays["dn"][0][inverse], 0),
            "drows2": d1 + d3,
            "dw1": dw1_,
            "dw3": dw3_,
            "dsum1": dw1_ + arrays["s1"],
            "dsum3": dw3_ + arrays["s3"],
            "dx": pull_rows(d1 + d3)[0],
            "residual": arrays["x"] + moe.combine(out_, np.ones_like(arrays["weights"]), perm, inverse)[0],
        }
        fixed = {"f64": 1e-9, "bf16": 8e-3}.get(dtype)  # moe-family 11
        limit = {n: fixed or (5e-6 if n.startswith("d") else 3e-6) for n in references}
        program.check(f, arrays | {"ids": chosen, "documents": documents}, references, limit, f"{f.name} {label}")


def add_few_rows(program, rng, dtype):
    """Decoding: one or two rows for each of a few experts, widths that no block divides."""
    E, R, M, F = 5, 6, 37, 70
    f = program.function(f"few_rows_{dtype}", dtype)
    x, offsets, w = f.input("x", (1, R, M)), f.input("offsets", (E + 1,), "i32"), f.input("w", (E, M, F))
    f.output("y", f.op("braid.moe.grouped_linear", [x, offsets, w], [Type((1, R, F), dtype)])[0])
    for label, ends in (("spread", [0, 1, 1, 3, 4, 6]), ("one expert", [0, 0, 0, 0, 6, 6])):
        arrays = dict(zip("xw", rounded([rng.standard_normal(x.type.shape), rng.standard_normal(w.type.shape)], dtype)))
        bounds = np.array(ends, np.int32)
        references = {"y": moe.grouped_linear(arrays["x"], bounds, arrays["w"])[0]}
        limit = 1e-9 if dtype == "f64" else 3e-6
        program.check(f, arrays | {"offsets": bounds}, references, limit, f"{f.name} {label}")


def add_group_bias(program, rng, E, R, M, dtype, ranks=0):
    """A bias of every expert for its rows, and its gradient: experts without rows, of many blocks, rows of none behind the last. `ranks`: pending sums, to which
    the first rank adds it."""
    f = program.function(f"group_bias_e{E}_r{R}_d{M}_{dtype}{'_sums' * bool(ranks)}", dtype)
    wide = "f32" if dtype == "bf16" else dtype
    x, dy, offsets, bias = f.input("x", (1, R, M)), f.input("dy", (1, R, M)), f.input("offsets", (E + 1,), "i32"), f.input("bias", (E, M), wide)
    place = [f.input("coordinate", (1,), "i32")] if ranks else []
    f.output("y", f.op("braid.moe.group_bias", [x, offsets, bias, *place], x.type))
    f.output("dbias", f.op("braid.moe.group_bias_grad", [dy, offsets], bias.type))
    cuts = np.sort(rng.integers(0, R, E - 1))
    cases = (
        ("spread", [0, *cuts, R]),
        ("rows of none", [0, *(cuts // 2), R // 2]),
        ("all to the last", [0] * E + [R]),
        ("nothing", [0] * (E + 1)),
    )
    for i, (label, ends) in enumerate(cases):
        arrays = {n: rounded([rng.standard_normal(o.type.shape)], o.type.dtype)[0] for n, o in f.inputs.items() if o.type.dtype != "i32"}
        ends, rank = np.array(ends, np.int32), i % ranks if ranks else 0

        def action(program, arrays=arrays, ends=ends, rank=rank, label=label):
            y, pull = moe.group_bias(arrays["x"], ends, arrays["bias"] * (rank == 0))
            out = program.call(f, arrays | {"offsets": ends} | ({"coordinate": np.array([rank])} if ranks else {}))
            live = slice(0, ends[-1])
            limit = {"f64": 1e-9, "bf16": 8e-3}.get(dtype, 3e-6)
            found = {"y": out["y"][:, live], "dbias": out["dbias"]}
            program.compare(f"{f.name} {label}", found, {"y": y[:, live], "dbias": pull(arrays["dy"])[2]}, {"y": limit, "dbias": 2e-6 if dtype == "bf16" else limit})

        program.then(action)


def add_permute(program, rng):
    f = program.function("permute")
    x, perm, inverse = f.input("x", (1, 30, 16)), f.input("perm", (30,), "i32"), f.input("inverse", (30,), "i32")
    f.output("rows", f.op("braid.moe.permute", [x, perm, inverse], x.type))
    order = rng.permutation(30)
    order[rng.random(30) < 0.3] = -1
    back = np.full(30, -1)
    back[order[order >= 0]] = np.flatnonzero(order >= 0)
    a = rounded([rng.standard_normal((1, 30, 16))])[0]
    program.check(f, {"x": a, "perm": order, "inverse": back}, {"rows": moe.permute(a, order)}, 1e-30)


def add_layer(program, rng):
    """The whole routed layer: the compiled routes first, then values with the reference following them."""
    E, k, M, F = 8, 2, 32, 24
    f = program.function("layer")
    x, router, documents = f.input("x", (B, T, M)), f.input("router", (M, E)), f.input("documents", (B, T), "i32")
    w1, w3, w2 = f.input("w1", (E, M, F)), f.input("w3", (E, M, F)), f.input("w2", (E, F, M))
    R = B * T * k
    logits = f.op("braid.linear", [x, router], [Type((B, T, E))])[0]
    ids = f.rows("moe.route", [logits], Type((B, T, k), "i32"), top_k=k)
    weights = f.rows("moe.route_weights", [logits, ids], Type((B, T, k)), normalize=True)
    perm, inverse, counts, offsets, _, exchange = plan_op(f, ids, documents, E, R)
    rows = f.op("braid.moe.dispatch", [x, perm, inverse, exchange], Type((1, R, M)))
    a, u = f.op("braid.moe.grouped_linear", [rows, offsets, w1, w3], [Type((1, R, F))] * 2)
    h = f.rows("mul", [f.rows("activation", [a], a.type, kind='"silu"'), u], a.type)
    out = f.op("braid.moe.grouped_linear", [h, offsets, w2], [rows.type])[0]
    y, _ = f.op("braid.moe.combine", [out, weights, perm, inverse, exchange], [x.type, rows.type])
    for name, value in {"y": y, "ids": ids, "weights": weights, "counts": counts}.items():
        f.output(name, value)

    def action(program):
        arrays = {
            n: rounded([rng.standard_normal(o.type.shape) * (0.3 if n != "x" else 1)])[0]
            for n, o in f.inputs.items()
            if n != "documents"
        }
        arrays["documents"] = ROWS_OF_DOCUMENTS["padded"]
        values = program.call(f, arrays)
        logits = arrays["x"] @ arrays["router"]
        ids = moe.route(logits, k)
        # A different choice is legal only where two logits are equal up to rounding.
        differ = np.any(values["ids"] != ids, axis=-1)
        illegal = differ & (moe.selection_gap(logits, k) > 8 * np.finfo(np.float32).eps * np.abs(logits).max())
        program.line(
            not illegal.any(),
            "layer routes",
            f"{int(differ.sum())} of {B * T} tokens differ, {int(illegal.sum())} without a tie",
        )
        (y, _, counts, _), _ = moe.experts(
            arrays["x"], logits, arrays["documents"], arrays["w1"], arrays["w3"], arrays["w2"], k, True, ids=values["ids"]
        )
        weights = moe.route_weights(logits, values["ids"], True)[0]
        program.compare(
            "layer values",
            values,
            {"y": y, "weights": weights, "counts": counts.astype(np.int32)},
            {"y": 3e-6, "weights": 2e-6},
        )

    program.then(action)


def main():
    rng = np.random.default_rng(11)
    # Rows that arrived from other ranks exist from `sharded` on.
    received = Program("moe-received", options=["--from-phase=sharded"], separate=True)
    for peers, local, peer_rows in ((3, 4, 20), (1, 1, 1), (2, 130, 300), (40, 3, 33), (5, 2, 2600)):
        add_received(received, rng, peers, local, peer_rows)
    add_permute(received, rng)
    bias = np.random.default_rng(13)
    add_group_bias(received, bias, 4, 50, 36, "f32", ranks=2)
    program = Program("moe", separate=True)  # rows of no group are compared
    for E, k in ((8, 2), (16, 1), (12, 5), (4, 4), (12, 11)):  # beyond 8 choices kernels loop
        add_router(program, rng, E, k)
        add_plans(program, rng, E, k)
    groups = np.random.default_rng(12)
    for case in ((16, 4, 4, 2, 2), (16, 9, 4, 3, 1), (12, 2, 6, 1, 2), (24, 6, 8, 4, 2), (8, 5, 2, 2, 1)):
        add_groups(program, groups, *case)
    for layers, E in ((1, 4), (3, 20)):
        add_correction(program, groups, layers, E)
    add_plan_shapes(program, rng)
    add_rows(program, rng, 8, 2, 32, 24, "f32")
    add_rows(program, rng, 6, 3, 20, 36, "f32")
    add_rows(program, rng, 10, 9, 8, 8, "f32")
    add_rows(program, rng, 8, 2, 16, 24, "f64")
    add_rows(program, rng, 8, 2, 32, 24, "bf16")
    add_rows(program, rng, 4, 3, 512, 16, "f32")  # a row of several warps
    add_rows(program, rng, 4, 2, 512, 16, "bf16")
    add_few_rows(program, rng, "f32")
    add_few_rows(program, rng, "f64")
    add_layer(program, rng)
    for E, R, M, dtype in ((5, 150, 36, "f32"), (3, 40, 13, "f64"), (8, 300, 2880, "bf16"), (2, 33, 128, "bf16")):
        add_group_bias(program, bias, E, R, M, dtype)
    return received.finish() | program.finish()


if __name__ == "__main__":
    sys.exit(main())
