"""Projections, embedding, short convolution, loss, sums, views, documents and repeat, with their gradients.

    check_linear.py [short]   `short`: sizes that only many threads share have one case of each kind of kernel

Limits: values 3e-6, gradients 5e-6 (moe-family 11, one matmul); f64 1e-9; bf16 4e-3, one rounding of the result (2^-9).
"""

import sys

import numpy as np

from harness import Program, Type, rounded, text
from common import documents_of, one_document
from rows import activation, l2_norm, short_conv
from train import cross_entropy

VALUE, GRADIENT = 3e-6, 5e-6
short = False
WIDE = 10000  # channels


def limits(dtype, gradients=()):
    fixed = {"f64": 1e-9, "bf16": 4e-3}.get(dtype)
    return lambda names: {n: fixed or (GRADIENT if n in gradients else VALUE) for n in names}


def add_linear(program, rng, dtype, H=3, V=8, M=40, wide=(4, 7)):
    """Of 38 rows of H V: products of widths M and wide."""
    B, T, N = 2, 19, wide[0] * wide[1]
    for transposed in (False, True):
        f = program.function(f"linear_{'t_' if transposed else ''}{H * V}x{M}_{dtype}", dtype)
        x, dy1, dy2 = f.input("x", (B, T, H, V)), f.input("dy1", (B, T, M)), f.input("dy2", (B, T, *wide))
        shapes = [(M, H * V), (N, H * V)] if transposed else [(H * V, M), (H * V, N)]
        w1, w2 = f.input("w1", shapes[0]), f.input("w2", shapes[1])
        y1, y2 = f.op("braid.linear", [x, w1, w2], [dy1.type, dy2.type], transposed=transposed)
        dx = f.op("braid.linear_grad_data", [[dy1, dy2], [w1, w2]], x.type, segments=True, transposed=transposed)
        # What other tokens gave: of bf16 results in f32, rounded with the sum.
        wide_type = "f32" if dtype == "bf16" else dtype
        z1 = f.input("z1", dy1.type.shape)
        sum_y1 = f.op("braid.linear_add", [x, w1, z1], dy1.type, transposed=transposed)
        s1, s2 = f.input("s1", shapes[0], wide_type), f.input("s2", shapes[1], wide_type)
        weights = lambda *sums: f.op("braid.linear_grad_weight", [x, [dy1, dy2], [*sums]], [w1.type, w2.type], segments=True, transposed=transposed)
        (dw1, dw2), (sum1, sum2) = weights(), weights(s1, s2)
        for name, value in {"y1": y1, "y2": y2, "y1z1": sum_y1, "dx": dx, "dw1": dw1, "dw2": dw2, "dsum1": sum1, "dsum2": sum2}.items():
            f.output(name, value)
        arrays = {n: rng.standard_normal(o.type.shape) for n, o in f.inputs.items()}
        a = {n: rounded([array], f.inputs[n].type.dtype)[0] for n, array in arrays.items()}
        flat, g1, g2 = a["x"].reshape(B, T, -1), a["dy1"], a["dy2"].reshape(B, T, -1)
        m1, m2 = (a["w1"].T, a["w2"].T) if transposed else (a["w1"], a["w2"])
        turn = (lambda m: m.T) if transposed else (lambda m: m)
        references = {
            "y1": flat @ m1,
            "y1z1": flat @ m1 + a["z1"],
            "y2": (flat @ m2).reshape(B, T, *wide),
            "dx": (g1 @ m1.T + g2 @ m2.T).reshape(B, T, H, V),
            "dw1": turn(np.einsum("bti,bto->io", flat, g1)),
            "dw2": turn(np.einsum("bti,bto->io", flat, g2)),
        }
        references |= {f"dsum{i}": references[f"dw{i}"] + a[f"s{i}"] for i in (1, 2)}
        program.check(f, arrays, references, limits(dtype, ("dx", "dw1", "dw2", "dsum1", "dsum2"))(references))


def add_few_rows(program, rng, dtype):
    """Decoding: products of one to four rows, of widths that no block divides."""
    for B, T, width, out, transposed in ((1, 1, 64, 256, False), (1, 3, 37, 70, False), (2, 2, 12, 5, False),
                                         (1, 1, 64, 256, True), (1, 3, 37, 70, True), (2, 2, 12, 5, True)):
        f = program.function(f"few_rows_{B * T}x{width}x{out}{'_t' if transposed else ''}_{dtype}", dtype)
        x, w = f.input("x", (B, T, width)), f.input("w", (out, width) if transposed else (width, out))
        f.output("y", f.op("braid.linear", [x, w], [Type((B, T, out), dtype)], transposed=transposed)[0])
        a, b = rounded([rng.standard_normal(x.type.shape), rng.standard_normal(w.type.shape)], dtype)
        references = {"y": a @ (b.T if transposed else b)}
        program.check(f, {"x": a, "w": b}, references, limits(dtype)(references))


def add_embedding(program, rng, dtype):
    # Words 9 and 10 never occur: their gradient is 0. Then words in many ranges, some of which nobody reads, and one that is
    # read by every third token.
    for B, T, words, width, highest in ((2, 50, 11, 24, 9), (3, 300, 500, 20, 470), (1, 4100, 67, 8, 67)):
        f = program.function(f"embed_{B * T}x{words}x{width}_{dtype}", dtype)
        tokens, table, dy = f.input("tokens", (B, T), "i32"), f.input("table", (words, width)), f.input("dy", (B, T, width))
        f.output("y", f.op("braid.embed", [tokens, table], dy.type))
        added = "f32" if dtype == "bf16" and B * T > 100 else dtype  # sums of many, as they are trained with
        f.output("dtable", f.op("braid.embed_grad", [tokens, dy], Type((words, width), added)))
        before = f.input("before", (words, width), added)
        f.output("dsum", f.op("braid.embed_grad", [tokens, dy, before], before.type))
        ids, w, d = rng.integers(0, highest, (B, T)), *rounded(
            [rng.standard_normal((words, width)), rng.standard_normal((B, T, width))], dtype
        )
        there = rounded([rng.standard_normal((words, width))], added)[0]
        if words > 11:
            ids[:, ::3] = highest - 1
        dtable = np.zeros((words, width))
        np.add.at(dtable, ids, d)
        references = {"y": w[ids], "dtable": dtable, "dsum": dtable + there}
        arrays = {"tokens": ids, "table": w, "dy": d, "before": there}
        program.check(f, arrays, references, limits(dtype, ("dtable", "dsum"))(references))


def add_conv(program, rng, dtype):
    for (B, T, *features), taps in [
        ((2, 37, 24), 4),
        ((1, 100, 3, 16), 3),
        ((2, 2, 8), 4),
        ((1, 1, 16), 4),
        ((2, 40, 10), 2),
        ((1, 66, 13312), 4),  # enough for threads of a GPU to walk along tokens
        ((1, 60, 64), 9),
    ]:
        channels = int(np.prod(features))
        f = program.function(f"short_conv_t{T}_d{'x'.join(map(str, features))}_k{taps}_{dtype}", dtype)
        x, w = f.input("x", (B, T, *features)), f.input("weight", (channels, taps))
        documents, tail = f.input("documents", (B, T), "i32"), f.input("tail", (B, taps - 1, channels))
        dy, dtail = f.input("dy", (B, T, *features)), f.input("dnew_tail", tail.type.shape)
        y, new_tail = f.op("braid.short_conv", [x, w, documents, tail], [x.type, tail.type])
        dx, dw, dt = f.op("braid.short_conv_grad", [x, w, documents, tail, dy, dtail], [x.type, w.type, tail.type])
        for name, value in {"y": y, "new_tail": new_tail, "dx": dx, "dweight": dw, "dtail": dt}.items():
            f.output(name, value)
        rows = {
            "one document": one_document(B, T),
            "continues": one_document(B, T, -9),
            "began 1 before": one_document(B, T, -1),
        }
        if T > 10:
            rows["packed"] = documents_of([[-2, 3, 4, 6, T], [0, 1, 2, 20, 33]][:B], T)
        if T > 1:
            rows["padding"] = documents_of([[-5, 1]] * B, T)
        if short and channels > WIDE:
            rows = {"packed": rows["packed"]}
        for label, docs in rows.items():
            arrays = {n: docs if n == "documents" else rng.standard_normal(o.type.shape) for n, o in f.inputs.items()}
            a = dict(zip(arrays, rounded(list(arrays.values()), dtype)))
            (ry, rt), pull = short_conv(a["x"], a["weight"], docs, a["tail"])
            rdx, rdw, _, rdt = pull(a["dy"], a["dnew_tail"])
            references = {"y": ry, "new_tail": rt, "dx": rdx, "dweight": rdw, "dtail": rdt}
            program.check(
                f, arrays, references, limits(dtype, ("dx", "dweight", "dtail"))(references), f"{f.name} {label}"
            )


def add_conv_end(program, rng, dtype):
    """With a bias, an activation and a norm of heads behind, and gradients before: one kernel each on a GPU, which makes the convolution again for the gradient."""
    for (B, T, *features), taps, biased, kind, *norm in [
        ((2, 37, 24), 4, True, "silu"),
        ((1, 101, 2, 16), 3, True, "sigmoid"),
        ((2, 40, 10), 2, False, "silu"),
        ((1, 2, 16), 4, True, "silu"),
        ((1, 34, 8), 1, True, "silu"),
        ((1, 66, 13312), 4, True, "silu"),  # enough for threads of a GPU to walk along tokens
        ((1, 60, 64), 9, False, "gelu"),
        ((2, 37, 4, 128), 4, False, "silu", "norm"),  # of few tokens in blocks, but for the gradient; 32 lanes of 4 columns
        ((2, 52, 8, 64), 3, True, "sigmoid", "norm"),  # 16 lanes
        ((1, 40, 2, 128), 4, True, "silu", "norm"),  # 2 columns, which would be 64 lanes: the norm stands alone
        ((1, 33, 8, 32), 6, False, "silu", "norm"),  # 16 lanes of 2 columns
        ((1, 66, 104, 128), 4, True, "silu", "norm"),
    ]:
        channels = int(np.prod(features))
        ends = "_".join([kind, *norm])
        f = program.function(f"short_conv_{ends}_t{T}_d{'x'.join(map(str, features))}_k{taps}_{dtype}", dtype)
        x, w = f.input("x", (B, T, *features)), f.input("weight", (channels, taps))
        documents, tail = f.input("documents", (B, T), "i32"), f.input("tail", (B, taps - 1, channels))
        dq, dtail = f.input("dq", (B, T, *features)), f.input("dnew_tail", tail.type.shape)
        bias = f.input("bias", tuple(features), "f32" if dtype == "bf16" else dtype) if biased else None
        y, new_tail = f.op("braid.short_conv", [x, w, documents, tail], [x.type, tail.type])
        z = f.rows("bias", [y, bias], x.type) if biased else y
        q, dact = f.rows("activation", [z], x.type, kind=text(kind)), dq
        if norm:
            dact = f.rows_grad("l2_norm", [q], dq, [0], eps=1e-6)[0]
            q = f.rows("l2_norm", [q], x.type, eps=1e-6)
        f.output("q", q)
        dz = f.rows_grad("activation", [z], dact, [0], kind=text(kind))[0]
        if biased:
            f.output("dbias", f.rows_grad("bias", [y, bias], dz, [1])[0])
        dx, dw, dt = f.op("braid.short_conv_grad", [x, w, documents, tail, dz, dtail], [x.type, w.type, tail.type])
        for name, value in {"new_tail": new_tail, "dx": dx, "dweight": dw, "dtail": dt}.items():
            f.output(name, value)
        rows = {"one document": one_document(B, T), "continues": one_document(B, T, -9)}
        if T > 10:
            rows["packed"] = documents_of([[-2, 3, 4, 6, T], [0, 1, 2, 20, 33]][:B], T)
            rows["padding"] = documents_of([[-1, 5, T - 3], [0, 4, T - 1]][:B], T)
        if short and channels > WIDE:
            rows = {"packed": rows["packed"]}
        for label, docs in rows.items():
            arrays = {n: docs if n == "documents" else rng.standard_normal(o.type.shape) for n, o in f.inputs.items()}
            a = dict(zip(arrays, rounded(list(arrays.values()), dtype)))
            (ry, rt), pull = short_conv(a["x"], a["weight"], docs, a["tail"])
            b = a["bias"].reshape(-1) if biased else 0
            q, pull_activation = activation(ry.reshape(B, T, -1) + b, kind)
            dact = a["dq"]
            if norm:
                q, pull_norm = l2_norm(q.reshape(dact.shape), 1e-6)
                dact = pull_norm(dact)[0]
            d = pull_activation(dact.reshape(B, T, -1))[0]
            rdx, rdw, _, rdt = pull(d, a["dnew_tail"])
            references = {"q": q, "new_tail": rt, "dx": rdx, "dweight": rdw, "dtail": rdt}
            if biased:
                references["dbias"] = d.sum((0, 1))
            within = limits(dtype, ("dx", "dweight", "dtail", "dbias"))(references)
            if dtype == "bf16":
                within = {n: 2 * v for n, v in within.items()}  # rounded behind each op
            shaped = {n: v.reshape(f.outputs[n].type.shape) for n, v in references.items()}
            program.check(f, arrays, shaped, within, f"{f.name} {label}")


def add_head_linear(program, rng, dtype):
    """A matrix for each head; rows that end inside of a tile of tokens, several parts of them; one token, whose rows are those of the batch."""
    for B, T, H, R, E in ((2, 37, 3, 16, 24), (1, 2100, 2, 32, 16), (3, 1, 2, 20, 28)):
        f = program.function(f"head_linear_b{B}_t{T}_{R}x{E}_{dtype}", dtype)
        x, dy, w = f.input("x", (B, T, H, R)), f.input("dy", (B, T, H, E)), f.input("w", (H, R, E))
        f.output("y", f.op("braid.head_linear", [x, w], dy.type))
        f.output("dx", f.op("braid.head_linear", [dy, w], x.type, transposed=True))
        f.output("dw", f.op("braid.head_linear_grad_weight", [x, dy], Type(w.type.shape, "f32" if dtype == "bf16" else dtype)))
        a, d, m = rounded([rng.standard_normal(o.type.shape) for o in (x, dy, w)], dtype)
        references = {"y": np.einsum("bthr,hre->bthe", a, m), "dx": np.einsum("bthe,hre->bthr", d, m), "dw": np.einsum("bthr,bthe->hre", a, d)}
        program.check(f, {"x": a, "dy": d, "w": m}, references, limits(dtype, ("dx", "dw"))(references), f.name)


def add_loss(program, rng, dtype):
    B, T, V = 2, 21, 70
    f = program.function(f"cross_entropy_{dtype}", dtype)
    logits, labels, dsum = f.input("logits", (B, T, V)), f.input("labels", (B, T), "i32"), f.input("dsum", (1,))
    one = Type((1,), dtype)
    total, count, lse = f.op("braid.cross_entropy", [logits, labels], [one, one, Type((B, T), dtype)])
    f.output("sum", total)
    f.output("count", count)
    f.output("lse", lse)
    f.output("dlogits", f.op("braid.cross_entropy_grad", [logits, labels, lse, dsum], logits.type))
    for label, size, low in (("", 1.0, 0), ("ignored labels", 1.0, -3), ("large logits", 80.0, 0)):
        x = rounded([rng.standard_normal((B, T, V)) * size], dtype)[0]
        ids = rng.integers(low, V, (B, T))
        (s, n, l), pull = cross_entropy(x, ids)
        references = {"sum": np.array([s]), "count": np.array([float(n)]), "lse": l, "dlogits": pull(0.25)}
        program.check(
            f,
            {"logits": x, "labels": ids, "dsum": [0.25]},
            references,
            limits(dtype, ("dlogits",))(references),
            f"{f.name} {label}",
        )
    f = program.function(f"sum_{dtype}", dtype)
    x, d = f.input("x", (2, 301)), f.input("d", (1,))
    f.output("s", f.op("braid.sum", [x], one))
    f.output("dx", f.op("braid.sum_grad", [d], x.type))
    a = rounded([rng.standard_normal((2, 301)) + 1], dtype)[0]
    program.check(
        f,
        {"x": a, "d": [0.5]},
        {"s": np.array([a.sum()]), "dx": np.full((2, 301), 0.5)},
        VALUE if dtype == "f32" else 1e-9,
    )


def add_linear_loss(program, rng, dtype):
    """Few rows: one block of logits; 300 rows of 4100 words: blocks of 112, 112 and 76 rows. Of bf16, widths that tensor cores take: on a GPU the product says
    of its tiles what the loss needs; 4128 words are 16 tiles of 256 and one of 32."""
    wide = "f32" if dtype == "bf16" else dtype
    one = Type((1,), wide)
    cases = [(2, 21, 12, 70, False), (2, 150, 8, 4100, False), (2, 150, 8, 4100, True)]
    capped = [(2, 22, 12, 333, True, 2.5)]  # beyond one block of words, and a rest of them
    if dtype == "bf16":
        cases = [(2, 21, 16, 80, False), (2, 150, 32, 4128, False), (2, 150, 32, 4128, True), (2, 21, 12, 70, False)]
        capped = [(2, 22, 16, 333, True, 2.5), (2, 150, 32, 4128, False, 12.0)]
    for B, T, M, V, transposed, *cap in cases + capped:
        f = program.function(f"linear_cross_entropy_v{V}_{'t_' if transposed else ''}{'capped_' if cap else ''}{dtype}", dtype)
        cap = {"softcap": cap[0]} if cap else {}
        x, w = f.input("x", (B, T, M)), f.input("w", (V, M) if transposed else (M, V))
        labels, dsum = f.input("labels", (B, T), "i32"), f.input("dsum", (1,), wide)
        total, count = f.op("braid.linear_cross_entropy", [x, w, labels], [one, one], transposed=transposed, **cap)
        dx, dw, again = f.op(
            "braid.linear_cross_entropy_grad", [x, w, labels, dsum], [x.type, Type(w.type.shape, wide), one], transposed=transposed, **cap
        )
        before = f.input("before", w.type.shape, wide)
        dwsum = f.op(
            "braid.linear_cross_entropy_grad", [x, w, labels, dsum, before], [x.type, before.type, one], transposed=transposed, **cap
        )[1]
        for name, value in {"sum": total, "count": count, "dx": dx, "dw": dw, "again": again, "dwsum": dwsum}.items():
            f.output(name, value)
        kinds = [("", 1.0, 0), ("ignored labels", 1.0, -V), ("large logits", 3.0 if cap else 20.0, 0)]
        if short and V > 4000:
            kinds = [kinds[2 if transposed else 1]]
        for label, size, low in kinds:
            a, b = rounded([rng.standard_normal((B, T, M)) * size, rng.standard_normal(w.type.shape)], dtype)
            ids = rng.integers(low, V, (B, T))
            matrix = b.T if transposed else b
            (s, n, _), pull = cross_entropy(a @ matrix, ids, **cap)
            d = pull(0.25)
            dmatrix = np.einsum("btm,btv->mv", a, d)
            references = {
                "sum": np.array([s]),
                "count": np.array([float(n)]),
                "again": np.array([s]),
                "dx": d @ matrix.T,
                "dw": dmatrix.T if transposed else dmatrix,
            }
            there = rounded([rng.standard_normal(w.type.shape)], wide)[0]
            references["dwsum"] = references["dw"] + there
            arrays = {"x": a, "w": b, "labels": ids, "dsum": [0.25], "before": there}
            program.check(f, arrays, references, limits(dtype, ("dx", "dw", "dwsum"))(references), f"{f.name} {label}")


def add_loss_parts(program, rng, dtype):
    """The loss over words that are cut in parts: what each part says of a token, joined; the gradients of each part."""
    B, T, M, V, parts = (2, 21, 16, 96, 2) if dtype == "bf16" else (2, 21, 12, 70, 2)
    wide = "f32" if dtype == "bf16" else dtype
    size, one, tokens = V // parts, Type((1,), wide), Type((B, T), wide)
    for transposed, cap in ((False, {}), (True, {}), (False, {"softcap": 2.5})):
        f = program.function(f"linear_loss_parts_{'t_' if transposed else ''}{'capped_' if cap else ''}{dtype}", dtype)
        x, labels, dsum = f.input("x", (B, T, M)), f.input("labels", (B, T), "i32"), f.input("dsum", (1,), wide)
        ws = [f.input(f"w{i}", (size, M) if transposed else (M, size)) for i in range(parts)]
        places = [f.input(f"coordinate{i}", (1,), "i32") for i in range(parts)]
        said = [f.op("braid.linear_loss_part", [x, w, labels, c], [tokens, tokens], transposed=transposed, **cap)
                for w, c in zip(ws, places)]
        column = Type((B, T, 1), wide)
        columns = [f.op("braid.reshape", [lse], column) for lse, _ in said]
        lse = f.rows("log_sum_exp", [f.op("braid.concat", columns, Type((B, T, parts), wide), dim=2)], tokens)
        target = f.rows("add", [t for _, t in said], tokens)
        losses = f.rows("token_loss", [lse, target, labels], tokens)
        f.output("lse", lse)
        f.output("losses", losses)
        f.output("sum", f.op("braid.sum", [losses], one))
        for i, (w, c) in enumerate(zip(ws, places)):
            # The second part's gradient is made on top of another.
            before = [f.input("before", w.type.shape, wide)] if i == 1 else []
            dx, dw = f.op("braid.linear_loss_part_grad", [x, w, labels, c, lse, dsum, *before], [x.type, Type(w.type.shape, wide)], transposed=transposed, **cap)
            f.output(f"dx{i}", dx)
            f.output(f"dw{i}", dw)
        # Beyond its cap a logit has next to no gradient: 1 - tanh^2 of f32 loses its digits there.
        for label, scale, low in (("", 1.0, 0), ("ignored labels", 1.0, -V), ("large logits", 3.0 if cap else 20.0, 0)):
            a, *bs = rounded([rng.standard_normal((B, T, M)) * scale, *(rng.standard_normal(w.type.shape) for w in ws)], dtype)
            ids = rng.integers(low, V, (B, T))
            matrices = [b.T if transposed else b for b in bs]
            logits = a @ np.concatenate(matrices, 1)
            (s, _, l), pull = cross_entropy(logits, ids, **cap)
            logits = 2.5 * np.tanh(logits / 2.5) if cap else logits
            d = pull(0.25)
            chosen = np.take_along_axis(logits, np.maximum(ids, 0)[..., None], 2)[..., 0]
            references = {"lse": l, "losses": np.where(ids >= 0, l - chosen, 0.0), "sum": np.array([s])}
            for i, matrix in enumerate(matrices):
                own = d[..., i * size : (i + 1) * size]
                dw = np.einsum("btm,btv->mv", a, own)
                references |= {f"dx{i}": own @ matrix.T, f"dw{i}": dw.T if transposed else dw}
            there = rounded([rng.standard_normal(ws[1].type.shape)], wide)[0]
            references["dw1"] = references["dw1"] + there
            arrays = {"x": a, "labels": ids, "dsum": [0.25], "before": there} | {f"w{i}": b for i, b in enumerate(bs)}
            arrays |= {f"coordinate{i}": np.array([i], np.int32) for i in range(parts)}
            gradients = [n for n in references if n.startswith("d")]
            # A loss is a difference of logits: judged by their size.
            floor = {"losses": np.linalg.norm(l)}
            program.check(f, arrays, references, limits(dtype, gradients)(references), f"{f.name} {label}", floor)


def add_scores(program, rng, dtype):
    """What the words of one part say of a token, with the likeliest of them, and of two parts joined. Of whole numbers many are the greatest: the lowest word counts."""
    B, T, M, V, parts = (2, 21, 16, 96, 2) if dtype == "bf16" else (2, 70, 12, 670, 2)
    wide = "f32" if dtype == "bf16" else dtype
    size, tokens, ids = V // parts, Type((B, T), wide), Type((B, T), "i32")
    for transposed, cap in ((False, {}), (True, {}), (False, {"softcap": 2.5})):
        f = program.function(f"linear_scores_{'t_' if transposed else ''}{'capped_' if cap else ''}{dtype}", dtype)
        x, labels = f.input("x", (B, T, M)), f.input("labels", (B, T), "i32")
        ws = [f.input(f"w{i}", (size, M) if transposed else (M, size)) for i in range(parts)]
        places = [f.input(f"coordinate{i}", (1,), "i32") for i in range(parts)]
        said = [f.op("braid.linear_scores", [x, w, labels, c], [tokens, tokens, tokens, ids], transposed=transposed, **cap)
                for w, c in zip(ws, places)]
        joined = lambda which, dtype: f.op("braid.concat", [f.op("braid.reshape", [part[which]], Type((B, T, 1), dtype)) for part in said],
                                           Type((B, T, parts), dtype), dim=2)
        greatest = joined(2, wide)
        for name, value in {"lse": said[1][0], "target": said[1][1], "greatest1": said[1][2], "word1": said[1][3],
                            "greatest": f.rows("greatest", [greatest], tokens),
                            "word": f.rows("greatest_word", [greatest, joined(3, "i32")], ids)}.items():
            f.output(name, value)
        small = lambda shape: rng.integers(-1, 2, shape).astype(float)
        large = lambda shape: rng.standard_normal(shape) * (1 if cap else 4)  # what is far beyond a bound is equal
        for label, draw in (("", rng.standard_normal), ("large logits", large), ("whole numbers", small), ("equal logits", np.zeros)):
            a, *bs = rounded([draw((B, T, M)), *(draw(w.type.shape) for w in ws)], dtype)
            labels_of = rng.integers(-V // 4, V, (B, T))
            logits = a @ np.concatenate([b.T if transposed else b for b in bs], 1)
            logits = 2.5 * np.tanh(logits / 2.5) if cap else logits
            second = logits[..., size:]
            top = second.max(-1)
            here = labels_of >= size
            references = {"lse": top + np.log(np.exp(second - top[..., None]).sum(-1)),
                          "target": np.where(here, np.take_along_axis(second, np.where(here, labels_of - size, 0)[..., None], 2)[..., 0], 0),
                          "greatest1": top, "word1": size + second.argmax(-1).astype(np.int32),
                          "greatest": logits.max(-1), "word": logits.argmax(-1).astype(np.int32)}
            arrays = {"x": a, "labels": labels_of} | {f"w{i}": b for i, b in enumerate(bs)}
            arrays |= {f"coordinate{i}": np.array([i], np.int32) for i in range(parts)}
            bounds = limits(dtype)(references) | {"word": 1e-30, "word1": 1e-30}
            program.check(f, arrays, references, bounds, f"{f.name} {label}", {"target": np.linalg.norm(logits)})


def add_views(program, rng):
    f = program.function("documents")
    cu = f.input("cu_seqlens", (2, 4), "i32")
    for begin in (0, 5):
        f.output(f"at_{begin}", f.op("braid.documents", [cu], Type((2, 11), "i32"), begin=begin))
    values = np.array([[-3, 4, 6, 14], [0, 8, 9, 9]], np.int32)
    program.check(f, {"cu_seqlens": values}, {f"at_{b}": documents_of(values, 11, b) for b in (0, 5)}, 0)

    f = program.function("views")
    x, y = f.input("x", (2, 6, 8)), f.input("y", (2, 5, 8))
    part = f.op("braid.slice", [x], Type((2, 3, 8)), dim=1, begin=2)
    last = f.op("braid.slice", [x], Type((2, 6, 3)), dim=2, begin=5)
    first = f.op("braid.slice", [x], Type((1, 6, 8)), dim=0, begin=1)
    joined = f.op("braid.concat", [part, y, x], Type((2, 14, 8)), dim=1)
    wide = f.op("braid.concat", [last, last], Type((2, 6, 6)), dim=2)
    stacked = f.op("braid.concat", [first, x], Type((3, 6, 8)), dim=0)
    shaped = f.op("braid.reshape", [joined], Type((4, 7, 2, 4)))
    for name, value in {
        "part": part,
        "last": last,
        "first": first,
        "joined": joined,
        "wide": wide,
        "stacked": stacked,
        "shaped": shaped,
    }.items():
        f.output(name, value)
    a, b = rounded([rng.standard_normal((2, 6, 8)), rng.standard_normal((2, 5, 8))])
    j = np.concatenate([a[:, 2:5], b, a], 1)
    program.check(
        f,
        {"x": a, "y": b},
        {
            "part": a[:, 2:5],
            "last": a[..., 5:],
            "first": a[1:],
            "joined": j,
            "stacked": np.concatenate([a[1:], a]),
            "wide": np.concatenate([a[..., 5:]] * 2, 2),
            "shaped": j.reshape(4, 7, 2, 4),
        },
        1e-30,
    )


def main(which=""):
    global short
    short = which == "short"
    rng = np.random.default_rng(5)
    program = Program("linear")
    for dtype in ("f32", "f64", "bf16"):  # primes, and what leaves a rest of every kind beside tiles of 64 and 32
        add_linear(program, rng, dtype, 1, 67, 83, (7, 13))
    for dtype in ("f32", "f64"):
        add_linear(program, rng, dtype)
        add_few_rows(program, rng, dtype)
        add_embedding(program, rng, dtype)
        add_conv(program, rng, dtype)
        add_loss(program, rng, dtype)
        add_linear_loss(program, rng, dtype)
        add_loss_parts(program, rng, dtype)
    for dtype in ("f32", "f64", "bf16"):
        add_scores(program, np.random.default_rng(7), dtype)
        add_head_linear(program, np.random.default_rng(6), dtype)
    add_linear(program, rng, "bf16")
    add_conv(program, rng, "bf16")
    add_linear_loss(program, rng, "bf16")
    add_loss_parts(program, rng, "bf16")
    add_views(program, rng)
    for dtype in ("f32", "f64", "bf16"):
        add_conv_end(program, rng, dtype)
    return program.finish()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
