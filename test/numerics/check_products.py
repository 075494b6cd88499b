"""Products, most of bf16, in tiles of GPUs, against NumPy: every orientation of the operands, whole tiles and parts of them, rows that do not begin on
16 bytes, sums that are added to, groups of rows of any length, sums of several products, long sums in parts.

    check_products.py [short|ring|boxes|group_boxes|deep|ends [even|odd]|loss [short]|pairs|split [short]]   (braid-compile and braid-run of test/emulator/cuda; BRAID_ARCH=sm_80,emulated for the products of warps)

`short`: without large cases whose kernels others have, too, of weights in one orientation (on sm_80 in the other, and of bf16 only), of a loss only the rows that are ordinary or far, of parts only terms of one sign beside what is unbounded; `even`, `odd`: every other case, each kind of end in both; `ring`: only products whose ring of stages goes round several times; `boxes`, `group_boxes`, `ends`, `loss`: some in tiles of 128 x 256, for devices too; `deep`: such of several steps; `pairs`: of clusters whose blocks read the same columns; `split`: f32 in parts of bf16. The sizes are those at which `braid-gemm-kernels` takes each of its tiles. Limits as in check_linear.py: one rounding to bf16.
"""

import json
import os
import sys

import numpy as np

from harness import Program, Type, rounded, run, text, tool
from check_linear import limits
from train import cross_entropy


def add_linear(program, rng, B, T, K, N, transposed, dtype="bf16"):
    """y = x w, dx = dy w^T, dw = x^T dy and the same added to s; w^T for w where transposed."""
    f = program.function(f"linear_{B * T}x{K}x{N}{'_t' if transposed else ''}_{dtype}", dtype)
    x, dy, w = f.input("x", (B, T, K)), f.input("dy", (B, T, N)), f.input("w", (N, K) if transposed else (K, N))
    z, s = f.input("z", (B, T, N)), f.input("s", w.type.shape, "f64" if dtype == "f64" else "f32")
    weight = lambda *sums: f.op("braid.linear_grad_weight", [x, [dy], [*sums]], [w.type], segments=True, transposed=transposed)[0]
    f.output("y", f.op("braid.linear", [x, w], [dy.type], transposed=transposed)[0])
    f.output("yz", f.op("braid.linear_add", [x, w, z], dy.type, transposed=transposed))
    f.output("dx", f.op("braid.linear_grad_data", [[dy], [w]], x.type, segments=True, transposed=transposed))
    f.output("dw", weight())
    f.output("dsum", weight(s))
    a = {n: rounded([rng.standard_normal(o.type.shape)], o.type.dtype)[0] for n, o in f.inputs.items()}
    turn = (lambda m: m.T) if transposed else (lambda m: m)
    rows, cotangents, m = a["x"].reshape(-1, K), a["dy"].reshape(-1, N), turn(a["w"])
    y, dw = (rows @ m).reshape(B, T, N), turn(rows.T @ cotangents)
    references = {"y": y, "yz": y + a["z"], "dx": (cotangents @ m.T).reshape(B, T, K), "dw": dw, "dsum": dw + a["s"]}
    program.check(f, a, references, limits(dtype, ("dx", "dw", "dsum"))(references))


def add_groups(program, rng, R, M, F, lengths, dtype="bf16"):
    """Groups of so many rows; behind them rows of none, which nobody asks for."""
    E = len(lengths)
    f = program.function(f"groups_{R}x{M}x{F}_{E}_{dtype}", dtype)
    x, dy, w, offsets = f.input("x", (1, R, M)), f.input("dy", (1, R, F)), f.input("w", (E, M, F)), f.input("offsets", (E + 1,), "i32")
    s = f.input("s", (E, M, F), "f32")
    weight = lambda *sums: f.op("braid.moe.grouped_linear_grad_weight", [x, offsets, [dy], [*sums]], [w.type], segments=True)[0]
    f.output("y", f.op("braid.moe.grouped_linear", [x, offsets, w], [dy.type])[0])
    f.output("dx", f.op("braid.moe.grouped_linear_grad_data", [[dy], [offsets], [w]], x.type, segments=True))
    f.output("dw", weight())
    f.output("dsum", weight(s))
    if dtype == "bf16":  # as the norm of gradients reads them: squares that the product adds up
        wide = f.op("braid.moe.grouped_linear_grad_weight", [x, offsets, [dy], []], [s.type], segments=True)[0]
        f.output("wide", wide)
        f.output("squares", f.op("braid.sum_squares", [wide], Type((1,), "f32")))
        narrow = weight()  # gradients that are kept in bf16
        f.output("narrow", narrow)
        f.output("narrow_squares", f.op("braid.sum_squares", [narrow], Type((1,), "f32")))
    ends = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    a = {n: rounded([rng.standard_normal(o.type.shape)], o.type.dtype)[0] for n, o in f.inputs.items() if n != "offsets"}
    for name in ("x", "dy"):
        a[name][:, ends[-1]:] = 0
    y, dx, dw = np.zeros((1, R, F)), np.zeros((1, R, M)), np.zeros((E, M, F))
    for e in range(E):
        rows = slice(ends[e], ends[e + 1])
        y[0, rows], dx[0, rows] = a["x"][0, rows] @ a["w"][e], a["dy"][0, rows] @ a["w"][e].T
        dw[e] = a["x"][0, rows].T @ a["dy"][0, rows]
    references = {"y": y, "dx": dx, "dw": dw, "dsum": dw + a["s"]}
    if dtype == "bf16":
        references |= {"wide": dw, "squares": np.array([(dw * dw).sum()])}
        references |= {"narrow": dw, "narrow_squares": references["squares"]}
    # Tensor cores cut a sum of f32 behind each 16 terms, half a last digit in the mean; its square loses twice as much.
    cut = max(lengths) / 16 * 2.0**-25
    program.check(f, a | {"offsets": ends}, references, limits(dtype, ("dx", "dw", "dsum"))(references) | {"wide": 5e-6 + cut, "squares": 5e-6 + 2 * cut, "narrow_squares": 3e-4})


def add_sums(program, rng, T, M, widths, transposed):
    """dx of several projections."""
    f = program.function(f"sums_{T}x{M}_{'_'.join(map(str, widths))}{'_t' if transposed else ''}", "bf16")
    dys = [f.input(f"dy{i}", (1, T, N)) for i, N in enumerate(widths)]
    ws = [f.input(f"w{i}", (N, M) if transposed else (M, N)) for i, N in enumerate(widths)]
    f.output("dx", f.op("braid.linear_grad_data", [dys, ws], Type((1, T, M), "bf16"), segments=True, transposed=transposed))
    a = {n: rounded([rng.standard_normal(o.type.shape)], "bf16")[0] for n, o in f.inputs.items()}
    dx = sum(a[f"dy{i}"] @ (a[f"w{i}"] if transposed else a[f"w{i}"].T) for i in range(len(widths)))
    program.check(f, a, {"dx": dx}, limits("bf16", ("dx",))({"dx": dx}))


def add_group_sums(program, rng, R, M, widths, lengths):
    """The same of groups of rows."""
    E = len(lengths)
    f = program.function(f"group_sums_{R}x{M}_{'_'.join(map(str, widths))}_{E}", "bf16")
    dys, offsets = [f.input(f"dy{i}", (1, R, N)) for i, N in enumerate(widths)], f.input("offsets", (E + 1,), "i32")
    ws = [f.input(f"w{i}", (E, M, N)) for i, N in enumerate(widths)]
    f.output("dx", f.op("braid.moe.grouped_linear_grad_data", [dys, [offsets], ws], Type((1, R, M), "bf16"), segments=True))
    ends = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    a = {n: rounded([rng.standard_normal(o.type.shape)], "bf16")[0] for n, o in f.inputs.items() if n != "offsets"}
    dx = np.zeros((1, R, M))
    for e in range(E):
        rows = slice(ends[e], ends[e + 1])
        dx[0, rows] = sum(a[f"dy{i}"][0, rows] @ a[f"w{i}"][e].T for i in range(len(widths)))
    program.check(f, a | {"offsets": ends}, {"dx": dx}, limits("bf16", ("dx",))({"dx": dx}))


def add_long_sum(program, rng, dtype, T, K, N):
    """dw of few results and many tokens, alone and added to what others gave."""
    f = program.function(f"long_sum_{T}x{K}x{N}_{dtype}", dtype)
    x, dy, s = f.input("x", (1, T, K)), f.input("dy", (1, T, N)), f.input("s", (K, N), "f32")
    weight = lambda *sums: f.op("braid.linear_grad_weight", [x, [dy], [*sums]], [Type((K, N), "f32")], segments=True)[0]
    f.output("dw", weight())
    f.output("dsum", weight(s))
    f.output("drounded", f.op("braid.linear_grad_weight", [x, [dy], []], [Type((K, N), "bf16")], segments=True)[0])
    a = {n: rounded([rng.standard_normal(o.type.shape)], o.type.dtype)[0] for n, o in f.inputs.items()}
    dw = a["x"][0].T @ a["dy"][0]
    references = {"dw": dw, "dsum": dw + a["s"], "drounded": dw}
    program.check(f, a, references, {n: 4e-3 if n == "drounded" else 5e-6 for n in references})  # sums of bf16 are f32 too


def add_seen(program, rng, R, K, N, lengths=()):
    """A product in large tiles, of which a few sums over all rows are looked at: what is recorded of it is small."""
    f = program.function(f"seen_{R}x{K}x{N}_{len(lengths)}", "bf16")
    x, a = f.input("x", (1, R, K)), f.input("a", (1, R, 16))
    w, y = f.input("w", (len(lengths), K, N) if lengths else (K, N)), Type((1, R, N), "bf16")
    product = f.op("braid.moe.grouped_linear", [x, f.input("offsets", (len(lengths) + 1,), "i32"), w], [y]) if lengths else f.op("braid.linear", [x, w], [y])
    f.output("s", f.op("braid.linear_grad_weight", [a, [product[0]], []], [Type((16, N), "f32")], segments=True)[0])
    v = {n: rounded([rng.standard_normal(o.type.shape)], "bf16")[0] for n, o in f.inputs.items() if n != "offsets"}
    ends = np.concatenate([[0], np.cumsum(lengths or (R,))]).astype(np.int32)
    weights = v["w"].reshape(-1, K, N)
    rows = np.concatenate([v["x"][0, begin:end] @ w for begin, end, w in zip(ends, ends[1:], weights)])
    program.check(f, v | ({"offsets": ends} if lengths else {}), {"s": v["a"][0].T @ rows}, {"s": 4e-3})


def add_ended(program, rng, R, K, N, kind, stored, lengths=()):
    """hidden = f(x w1) * (x w3), or f(x w1), where the products are made, and these too where others read them; seen as above."""
    kinds = {"silu": lambda v: v / (1 + np.exp(-v)), "relu2": lambda v: np.maximum(v, 0) ** 2}
    f = program.function(f"ended_{R}x{K}x{N}_{len(lengths)}_{kind}_{stored}", "bf16")
    x, a = f.input("x", (1, R, K)), f.input("a", (1, R, 16))
    ws = [f.input(f"w{i}", (len(lengths), K, N) if lengths else (K, N)) for i in range(2 if kind == "silu" else 1)]
    y = Type((1, R, N), "bf16")
    offsets = f.input("offsets", (len(lengths) + 1,), "i32") if lengths else None
    products = f.op("braid.moe.grouped_linear", [x, offsets, *ws], [y] * len(ws)) if lengths else f.op("braid.linear", [x, *ws], [y] * len(ws))
    hidden = f.rows("activation", [products[0]], y, kind=text(kind))
    if kind == "silu":
        hidden = f.rows("mul", [hidden, products[1]], y)
    see = lambda v: f.op("braid.linear_grad_weight", [a, [v], []], [Type((16, N), "f32")], segments=True)[0]
    f.output("hidden", see(hidden))
    for i, product in enumerate(products if stored else ()):
        f.output(f"y{i}", see(product))
    v = {n: rounded([rng.standard_normal(o.type.shape) * (K**-0.5 if n[0] == "w" else 1)], "bf16")[0] for n, o in f.inputs.items() if n != "offsets"}
    ends = np.concatenate([[0], np.cumsum(lengths or (R,))]).astype(np.int32)
    ys = [np.concatenate([v["x"][0, b:e] @ w for b, e, w in zip(ends, ends[1:], v[f"w{i}"].reshape(-1, K, N))]) for i in range(len(ws))]
    made = kinds[kind](ys[0]) * (ys[1] if len(ws) > 1 else 1)
    references = {"hidden": v["a"][0].T @ made} | {f"y{i}": v["a"][0].T @ y for i, y in enumerate(ys) if stored}
    program.check(f, v | ({"offsets": ends} if lengths else {}), references, {n: 5e-3 if n == "hidden" else 4e-3 for n in references})


def add_ended_sum(program, rng, R, K, N):
    """x w + z, z as it lies in memory; rows end inside of a tile."""
    f = program.function(f"ended_sum_{R}x{K}x{N}", "bf16")
    x, w, z, a = f.input("x", (1, R, K)), f.input("w", (K, N)), f.input("z", (1, R, N)), f.input("a", (1, R, 16))
    product = f.rows("activation", [f.op("braid.linear", [x, w], [Type((1, R, N), "bf16")])[0]], Type((1, R, N), "bf16"), kind=text("relu2"))
    y = f.rows("add", [product, z], product.type)
    f.output("s", f.op("braid.linear_grad_weight", [a, [y], []], [Type((16, N), "f32")], segments=True)[0])
    v = {n: rounded([rng.standard_normal(o.type.shape) * (K**-0.5 if n == "w" else 1)], "bf16")[0] for n, o in f.inputs.items()}
    program.check(f, v, {"s": v["a"][0].T @ (np.maximum(v["x"][0] @ v["w"], 0) ** 2 + v["z"][0])}, {"s": 5e-3})


def add_ended_gradient(program, rng, R, K, N, kept, lengths=()):
    """Of hidden = silu(gate) * up: its gradient dy w^T is in no memory, those of gate and up, and hidden if others read it, are made where it is (hidden apart)."""
    f = program.function(f"ended_gradient_{R}x{K}x{N}_{len(lengths)}_{kept}", "bf16")
    y = Type((1, R, N), "bf16")
    dy, a, gate, up = f.input("dy", (1, R, K)), f.input("a", (1, R, 16)), f.input("gate", (1, R, N)), f.input("up", (1, R, N))
    w = f.input("w", (len(lengths), N, K) if lengths else (N, K))
    offsets = f.input("offsets", (len(lengths) + 1,), "i32") if lengths else None
    name, operands = ("braid.moe.grouped_linear_grad_data", [[dy], offsets, [w]]) if lengths else ("braid.linear_grad_data", [[dy], [w]])
    dhidden = f.op(name, operands, [y], segments=True)[0]
    silu = f.rows("activation", [gate], y, kind=text("silu"))
    hidden = f.rows("mul", [silu, up], y) if kept else None
    dsilu, dup = f.rows_grad("mul", [silu, up], dhidden, [0, 1])
    dgate = f.rows_grad("activation", [gate], dsilu, [0], kind=text("silu"))[0]
    see = lambda v: f.op("braid.linear_grad_weight", [a, [v], []], [Type((16, N), "f32")], segments=True)[0]
    for n, made in (("dgate", dgate), ("dup", dup), ("hidden", hidden))[: 3 if kept else 2]:
        f.output(n, see(made))
    v = {n: rounded([rng.standard_normal(o.type.shape) * (K**-0.5 if n == "w" else 1)], "bf16")[0] for n, o in f.inputs.items() if n != "offsets"}
    ends = np.concatenate([[0], np.cumsum(lengths or (R,))]).astype(np.int32)
    d = np.concatenate([v["dy"][0, b:e] @ w.T for b, e, w in zip(ends, ends[1:], v["w"].reshape(-1, N, K))])
    g, u, s = v["gate"][0], v["up"][0], 1 / (1 + np.exp(-v["gate"][0]))
    made = {"dgate": d * u * s * (1 + g * (1 - s)), "dup": d * g * s} | ({"hidden": g * s * u} if kept else {})
    program.check(f, v | ({"offsets": ends} if lengths else {}), {n: v["a"][0].T @ m for n, m in made.items()}, dict.fromkeys(made, 6e-3))


def add_ended_weights(program, rng, R, K, N, lengths=()):
    """hidden = silu(gate) * up, weighted row by row: the weighted rows where gate and up are made; from dy their gradients, and the weights' (sums along rows of several tiles)."""
    f = program.function(f"ended_weights_{R}x{K}x{N}_{len(lengths)}", "bf16")
    y, n = Type((1, R, N), "bf16"), Type((1, R), "f32")
    x, dy, a, weights = f.input("x", (1, R, K)), f.input("dy", (1, R, K)), f.input("a", (1, R, 16)), f.input("weights", n.shape, "f32")
    ws = [f.input(f"w{i}", (len(lengths), K, N) if lengths else (K, N)) for i in range(2)]
    back = f.input("w2", (len(lengths), N, K) if lengths else (N, K))
    offsets = f.input("offsets", (len(lengths) + 1,), "i32") if lengths else None
    gate, up = f.op("braid.moe.grouped_linear", [x, offsets, *ws], [y, y]) if lengths else f.op("braid.linear", [x, *ws], [y, y])
    hidden = f.rows("mul", [f.rows("activation", [gate], y, kind=text("silu")), up], y)
    weighted = f.rows("mul", [hidden, weights], y)
    name, operands = ("braid.moe.grouped_linear_grad_data", [[dy], offsets, [back]]) if lengths else ("braid.linear_grad_data", [[dy], [back]])
    d = f.op(name, operands, [y], segments=True)[0]
    silu = f.rows("activation", [gate], y, kind=text("silu"))
    dhidden, dweights = f.rows_grad("mul", [f.rows("mul", [silu, up], y), weights], d, [0, 1])
    dsilu, dup = f.rows_grad("mul", [silu, up], dhidden, [0, 1])
    dgate = f.rows_grad("activation", [gate], dsilu, [0], kind=text("silu"))[0]
    see = lambda v: f.op("braid.linear_grad_weight", [a, [v], []], [Type((16, N), "f32")], segments=True)[0]
    for name, made in (("weighted", weighted), ("gate", gate), ("up", up), ("dgate", dgate), ("dup", dup)):
        f.output(name, see(made))
    f.output("dweights", dweights)
    v = {n: rounded([rng.standard_normal(o.type.shape) * (K**-0.5 if n[0] == "w" and n != "weights" else 1)], o.type.dtype)[0] for n, o in f.inputs.items() if n != "offsets"}
    ends = np.concatenate([[0], np.cumsum(lengths or (R,))]).astype(np.int32)
    def multiply(rows, m):
        return np.concatenate([rows[0, b:e] @ w for b, e, w in zip(ends, ends[1:], m)])
    each = [w.reshape(-1, K, N) for w in (v["w0"], v["w1"])]
    g, u = (rounded([multiply(v["x"], w)], "bf16")[0] for w in each)
    d = multiply(v["dy"], np.swapaxes(v["w2"].reshape(-1, N, K), 1, 2))
    s, r = 1 / (1 + np.exp(-g)), v["weights"][0][:, None]
    made = {"weighted": r * g * s * u, "gate": g, "up": u, "dgate": r * d * u * s * (1 + g * (1 - s)), "dup": r * d * g * s}
    references = {n: v["a"][0].T @ m for n, m in made.items()} | {"dweights": (d * g * s * u).sum(1)[None]}
    program.check(f, v | ({"offsets": ends} if lengths else {}), references, dict.fromkeys(references, 6e-3))


def add_seen_weights(program, rng, M, N, lengths, dtype):
    """Sums over the rows of groups in large tiles, each looked at in one direction."""
    R, E = sum(lengths), len(lengths)
    f = program.function(f"seen_weights_{R}x{M}x{N}_{E}_{dtype}", "bf16")
    x, dy, z = f.input("x", (1, R, M)), f.input("dy", (1, R, N)), f.input("z", (1, E, M))
    offsets, each = f.input("offsets", (E + 1,), "i32"), f.input("each", (E + 1,), "i32")
    sums = f.op("braid.moe.grouped_linear_grad_weight", [x, offsets, [dy], []], [Type((E, M, N), dtype)], segments=True)[0]
    f.output("squares", f.op("braid.sum_squares", [sums], Type((1,), "f32")))
    narrow = sums if dtype == "bf16" else f.op("braid.cast", [sums], [Type((E, M, N), "bf16")])[0]
    f.output("y", f.op("braid.moe.grouped_linear", [z, each, narrow], [Type((1, E, N), "bf16")])[0])
    v = {n: rounded([rng.standard_normal(o.type.shape)], "bf16")[0] for n, o in f.inputs.items() if o.type.dtype != "i32"}
    ends = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    weights = [v["x"][0, begin:end].T @ v["dy"][0, begin:end] for begin, end in zip(ends, ends[1:])]
    references = {"y": np.stack([v["z"][0, e] @ w for e, w in enumerate(weights)])[None], "squares": np.array([sum((w * w).sum() for w in weights)])}
    program.check(f, v | {"offsets": ends, "each": np.arange(E + 1, dtype=np.int32)}, references, {"y": 6e-3, "squares": 5e-6 if dtype == "f32" else 1e-4})


def far_logits(rng, R, K, N):
    """x and w whose logits are by row: ordinary; 200 and -200, in every tile, or in one and another; as if one tile of words were not there; all far below 0, or above, or about where a tile needs a reference."""
    x, w = rng.standard_normal((1, R, K)), rng.standard_normal((K, N)) / 2
    w[-1] = np.where(rng.integers(0, 2, N), 14, -14)
    w[-2] = np.repeat([0, 56, 0, -56, 0], [768, 256, 256, 256, N - 1536])
    w[-3] = 14
    x[..., -3:] = np.resize([(0, 0, 0), (0, 0, 14), (0, 3.5, 0), (0, -50, 0), (-8, 0, 0), (8, 0, 0), (-3, 0, 0), (2.5, 0, 0)], (1, R, 3))
    return rounded([x, w], "bf16")


def add_loss(program, rng, R, K, N, ordinary=True):
    """The loss of a vocabulary in large tiles: the product says of each what a softmax needs; the tiles behind them are narrower. Words of both, and none."""
    f = program.function(f"loss_{R}x{K}x{N}", "bf16")
    x, w, labels, dsum = f.input("x", (1, R, K)), f.input("w", (K, N)), f.input("labels", (1, R), "i32"), f.input("dsum", (1,), "f32")
    one = Type((1,), "f32")
    f.output("sum", f.op("braid.linear_cross_entropy", [x, w, labels], [one, one])[0])
    dx, dw, again = f.op("braid.linear_cross_entropy_grad", [x, w, labels, dsum], [x.type, Type((K, N), "f32"), one])
    f.output("dx", dx)
    f.output("dw", dw)
    f.output("again", again)
    ids = rng.integers(-N // 4, N, (1, R))
    ids[0, :3] = 0, N - 1, N - N % 256 - 1
    drawn = [("", rounded([rng.standard_normal((1, R, K)), rng.standard_normal((K, N))], "bf16"))] if ordinary else []
    for label, (a, b) in (*drawn, (" far", far_logits(rng, R, K, N))):
        (s, _, _), pull = cross_entropy(a @ b, ids)
        d = pull(0.25)
        references = {"sum": np.array([s]), "again": np.array([s]), "dx": d @ b.T, "dw": a[0].T @ d[0]}
        program.check(f, {"x": a, "w": b, "labels": ids, "dsum": [0.25]}, references, {"sum": 1e-6, "again": 1e-6, "dx": 4e-3, "dw": 4e-3}, f.name + label)


def add_loss_part(program, rng, R, K, N, **cap):
    """The gradient of the second of two parts of a vocabulary, whose lse is that of both; perhaps of bounded logits (`softcap`)."""
    f = program.function(f"loss_part_{R}x{K}x{N}{'_capped' if cap else ''}", "bf16")
    x, w, labels, dsum = f.input("x", (1, R, K)), f.input("w", (K, N)), f.input("labels", (1, R), "i32"), f.input("dsum", (1,), "f32")
    place, lse = f.input("coordinate", (1,), "i32"), f.input("lse", (1, R), "f32")
    dx, dw = f.op("braid.linear_loss_part_grad", [x, w, labels, place, lse, dsum], [x.type, Type((K, N), "f32")], **cap)
    f.output("dx", dx)
    f.output("dw", dw)
    ids = rng.integers(-N // 4, 2 * N, (1, R))
    ids[0, :4] = N, 2 * N - 1, N - 1, 2 * N - N % 256 - 1
    ordinary = rounded([rng.standard_normal((1, R, K)), rng.standard_normal((K, N)), rng.standard_normal((K, N))], "bf16")
    a, b = far_logits(rng, R, K, N)
    beyond = np.array(b)
    b[-3] = 0  # only words of the other part are far above 0 in all of some rows
    for label, (a, b, c) in (("", ordinary), (" far", (a, b, beyond))):
        (_, _, l), pull = cross_entropy(a @ np.concatenate([c, b], 1), ids, **cap)
        d = pull(0.25)[..., N:]
        arrays = {"x": a, "w": b, "labels": ids, "dsum": [0.25], "coordinate": np.array([1], np.int32), "lse": l}
        program.check(f, arrays, {"dx": d @ b.T, "dw": a[0].T @ d[0]}, {"dx": 4e-3, "dw": 4e-3}, f.name + label)


def add_split(program, rng, T, K, N, of_both=True):
    """Products of f32 in parts of bf16, of x that was widened: as exact as f32, also where all terms have one sign and tensor cores cut each sum."""
    f = program.function(f"split_{T}x{K}x{N}", "f32")
    narrow, w, dy = f.input("x", (1, T, K), "bf16"), f.input("w", (K, N)), f.input("dy", (1, T, N))
    x = f.rows("cast", [narrow], Type((1, T, K), "f32"))
    f.output("y", f.op("braid.linear", [x, w], [dy.type])[0])
    f.output("dx", f.op("braid.linear_grad_data", [[dy], [w]], x.type, segments=True))
    f.output("dw", f.op("braid.linear_grad_weight", [x, [dy], []], [w.type], segments=True)[0])
    f.output("of_heads", f.op("braid.linear", [x, w], [Type((1, T, N // 16, 16), "f32")])[0])
    for label, sign in (("", lambda v: v), ("of one sign", np.abs))[0 if of_both else 1 :]:
        a = {n: rounded([sign(rng.standard_normal(o.type.shape))], o.type.dtype)[0] for n, o in f.inputs.items()}
        references = {"y": a["x"] @ a["w"], "dx": a["dy"] @ a["w"].T, "dw": a["x"][0].T @ a["dy"][0]}
        references["of_heads"] = references["y"].reshape(1, T, N // 16, 16)
        program.check(f, a, references, limits("f32", ("dx", "dw"))(references), f"{f.name} {label}")


def add_unbounded(program, rng, T, K, N):
    """The same of numbers that bf16 has not, or f32 has not: what is NaN in f32 is NaN, what is infinite is not finite, all else as exact as ever."""
    f = program.function(f"unbounded_{T}x{K}x{N}", "f32")
    x, w, dy = f.input("x", (1, T, K), "bf16"), f.input("w", (K, N)), f.input("dy", (1, T, N))
    f.output("y", f.op("braid.linear", [f.rows("cast", [x], Type((1, T, K), "f32")), w], [dy.type])[0])
    f.output("dw", f.op("braid.linear_grad_weight", [f.rows("cast", [x], Type((1, T, K), "f32")), [dy], []], [w.type], segments=True)[0])

    def action(program):
        a = {n: rounded([rng.standard_normal(o.type.shape) * 1e-2], o.type.dtype)[0] for n, o in f.inputs.items()}
        a["w"][[3, 4], [1, 2]] = 3.4e38, -3.402e38  # rounded to bf16 they are infinite
        a["w"][[3, 4, 5], [7, 8, 9]] = np.inf, -np.inf, np.nan
        a["x"][0, [11, 12], [6, 20]] = np.inf, np.nan
        a["dy"][0, [13, 14], [21, 22]] = -np.inf, np.nan
        a["x"][0, 15, 24], a["w"][24, 23] = 2.0**100, 2.0**40  # their product is beyond f32
        values = program.call(f, a)
        with np.errstate(all="ignore"):
            references = {"y": np.float32(a["x"] @ a["w"]), "dw": np.float32(a["x"][0].T @ a["dy"][0])}
        for name, reference in references.items():
            value, reference = values[name].reshape(-1, N).astype(np.float64), reference.reshape(-1, N).astype(np.float64)
            wrong = np.isnan(reference) & ~np.isnan(value) | np.isinf(reference) & np.isfinite(value)
            finite = np.isfinite(reference)
            distances, sizes = (np.linalg.norm(v, axis=0) for v in (np.where(finite, value, 0) - np.where(finite, reference, 0), np.where(finite, reference, 0)))
            error = np.max(distances[sizes > 0] / sizes[sizes > 0])  # of each column by itself
            program.line(error < 2e-6 and not wrong.any(), f.name, f"{name}: error {error:.1e}, {wrong.sum()} of {(~finite).sum()} wrong")

    program.then(action)


def add_products(program):
    """With BRAID_PRODUCTS=clusters or staggered: that some of the program's kernels are so, or nothing new was checked."""
    products = os.environ.get("BRAID_PRODUCTS")

    def action(program):
        info = json.loads(run([tool("braid-run"), "info", program.compile().path, "--json"]))
        kernels = info["gpu_kernels"]
        clusters = [kernel["name"] for kernel in kernels if kernel["cluster"] > 1]
        names = {"clusters": clusters, "staggered": [kernel["name"] for kernel in kernels if "_staggered" in kernel["name"]]}[products]
        program.line(bool(names), f"kernels {'in ' if clusters else ''}{products}", " ".join(names))

    if products in ("clusters", "staggered"):
        program.then(action)


def main(parts="", share=""):
    short = share == "short"
    if parts == "split":
        program, rng = Program("products-split"), np.random.default_rng(7)
        add_split(program, rng, 2048, 1024, 272, of_both=not short)
        add_unbounded(program, rng, 2048, 320, 272)
        return program.finish()
    if parts == "loss":
        program, rng = Program("products-loss"), np.random.default_rng(7)
        add_loss(program, rng, 288, 64, 65 * 256 + 128, ordinary=not short)  # two blocks of logits
        add_loss_part(program, rng, 288, 32, 8 * 256 + 128)
        add_loss_part(program, rng, 288, 32, 6 * 256 + 128, softcap=100.0)  # of which some are far
        return program.finish()
    if parts == "pairs":  # four rows of tiles, the last a part, below each other; three columns of tiles of experts, 23, none, 8 and 2 rows of them
        program, rng = Program("products-pairs"), np.random.default_rng(7)
        add_products(program)
        add_loss(program, rng, 416, 64, 65 * 256 + 128)
        add_loss_part(program, rng, 416, 32, 8 * 256 + 128)
        add_ended(program, rng, 4096, 64, 384, "silu", True, (2900, 0, 1000, 196))
        return program.finish()
    if parts == "ends":
        program, rng = Program("products-ends"), np.random.default_rng(7)
        add_products(program)
        cases = [
            lambda: add_ended(program, rng, 4096, 64, 256, "silu", True, (2900, 0, 1000, 196)),
            lambda: add_ended(program, rng, 4000, 128, 256, "silu", False, (3, 0, 3900, 97)),
            lambda: add_ended(program, rng, 4000, 64, 512, "silu", False),  # rows end inside of a tile
            lambda: add_ended(program, rng, 2048, 64, 2048, "relu2", True),
            lambda: add_ended_sum(program, rng, 2000, 64, 2048),
            lambda: add_ended_gradient(program, rng, 4096, 64, 256, False, (2900, 0, 1000, 196)),
            lambda: add_ended_gradient(program, rng, 4000, 128, 224, True, (3, 0, 3900, 97)),
            lambda: add_ended_gradient(program, rng, 4000, 64, 1024, False),  # rows end inside of a tile
            lambda: add_ended_weights(program, rng, 4096, 64, 256, (2900, 0, 1000, 196)),
            lambda: add_ended_weights(program, rng, 4000, 128, 512, (3, 0, 3900, 97)),
            lambda: add_ended_weights(program, rng, 4000, 64, 1024),
        ]
        for add in cases[{"even": slice(0, None, 2), "odd": slice(1, None, 2)}.get(share, slice(None))]:
            add()
        return program.finish()
    if parts == "deep":  # tiles of 128 x 256 and of 128 x 240, of five and of three steps
        program, rng = Program("products-deep"), np.random.default_rng(7)
        add_products(program)
        add_seen(program, rng, 2048, 320, 2304)
        add_seen(program, rng, 4096, 192, 480, (2900, 0, 1000, 196))
        return program.finish()
    if parts in ("boxes", "group_boxes"):
        # Tiles of 128 x 256, whose operands a warp of its own copies in boxes, one behind the other in each program.
        program, rng = Program(f"products-{parts.replace('_', '-')}"), np.random.default_rng(7)
        add_products(program)
        add_seen(program, rng, *((2048, 128, 2304) if parts == "boxes" else (4096, 64, 480, (2900, 0, 1000, 196))))  # 480: results in tiles of 240, of which boxes of 64, 32 and 16 columns are stored
        if parts == "group_boxes":  # rows of other groups behind the last ones of most
            for dtype in ("f32", "bf16"):
                add_seen_weights(program, rng, 512, 480, (200, 0, 7, 0, 0, 64, 65, 1, 0, 0, 20, 0, 0, 3, 0, 0, 0, 0, 2, 0), dtype)
        return program.finish()
    program, rng = Program("products"), np.random.default_rng(7)
    if parts == "ring":
        add_linear(program, rng, 1, 70, 330, 256, True)
        add_linear(program, rng, 1, 130, 328, 96, False)
        add_linear(program, rng, 9, 1, 640, 96, False)
        add_groups(program, rng, 300, 328, 256, (130, 0, 1, 63, 90, 16))
        add_sums(program, rng, 130, 96, (320, 16, 384), False)
        return program.finish()
    everything, ampere = parts != "short", os.environ.get("BRAID_ARCH", "").startswith("sm_80")
    for transposed in (False, True) if everything else (ampere,):
        add_linear(program, rng, 1, 200, 330, 256, transposed)  # tiles of 64 x 16; more iterations than the ring has stages; a rest along k
        for T, N in ((2048, 1024), (1024, 1024), (1024, 512), (512, 512)):  # of 128 x 128, 64 x 128, 64 x 64, 64 x 32
            add_linear(program, rng, 1, T, 48, N, transposed)
        add_linear(program, rng, 2, 70, 130, 96, transposed)  # rows of 260 bytes; 130 along k: a step of 128 and one of 2
        add_linear(program, rng, 1, 1300, 80, 3072 if transposed else 2900, transposed)  # tiles of 128 x 256; rows of 5800 bytes
        add_linear(program, rng, 1, 16, 48, 80, transposed)  # fewer rows than a warpgroup has: warps multiply
        # Of few rows, as in decoding: warps share k; more iterations than the longer ring has stages, and a rest.
        add_linear(program, rng, 1, 1, 1104, 144, transposed)
        add_linear(program, rng, 16, 1, 640, 96, transposed)
        add_linear(program, rng, 1, 9, 72, 2048 if transposed else 2100, transposed)  # rows of 4200 bytes
        add_sums(program, rng, 200, 96, (128, 64, 192), transposed)
        add_sums(program, rng, 70, 130, (64, 32), transposed)  # 130 columns: one product after the other
        add_sums(program, rng, 130, 512, (32, 128, 48, 64), transposed)  # those that steps of 64 do not divide first
        add_sums(program, rng, 1300, 3072, (16, 64), transposed)  # tiles of 128 x 256
        add_sums(program, rng, 9, 96, (16, 64, 48), transposed)  # warps share k
        add_sums(program, rng, 1300, 2048, (512, 16), transposed)  # narrow ones take steps as long as the other's
    add_sums(program, rng, 1300, 2048, (512, 8), False)  # one column a head
    add_group_sums(program, rng, 300, 256, (128, 64), (130, 0, 1, 63, 90, 16))
    add_group_sums(program, rng, 300, 512, (80, 64), (150, 0, 130, 19))
    # Programs that have several tiles: the last steps of one copy for the next, here for the one behind it, here of no steps at all.
    add_group_sums(program, rng, 3000, 512, (192, 64), (1900, 0, 900, 190))
    add_groups(program, rng, 4096, 64, 512, (3000, 0, 1000, 96))
    add_groups(program, rng, 300, 512, 512, (30, 0, 7, 0, 0, 100, 64, 65, 1, 0, 0, 20, 0, 0, 3, 0, 0, 0, 0, 2))
    if everything or not ampere:  # whose programs have one tile each
        add_linear(program, rng, 1, 3328, 48, 2560, False)
    # On the FMA units: more iterations than the ring has stages, parts of tiles, a tile of 64 x 48; steps of 30, which threads read one by one.
    for dtype in ("f32", "f64") if everything or not ampere else ():  # the same on every GPU
        for transposed in (False, True):
            if everything or dtype == "f32":  # f64 has neither stages nor tiles of its own
                add_linear(program, rng, 1, 200, 320, 192, transposed, dtype)
            add_linear(program, rng, 1, 67, 330, 64, transposed, dtype)
            add_linear(program, rng, 2, 70, 128, 48, transposed, dtype)
            add_linear(program, rng, 2, 70, 96, 80, transposed, dtype)
    add_groups(program, rng, 300, 96, 128, (130, 0, 1, 63, 90, 16), "f32")
    for dtype in ("bf16", "f32"):
        add_long_sum(program, rng, dtype, 2300, 96, 80)
        if everything or dtype == "bf16":
            add_long_sum(program, rng, dtype, 4100, 256, 48)
    add_long_sum(program, rng, "bf16", 2300, 192, 16)
    add_long_sum(program, rng, "bf16", 2300, 192, 8)
    add_long_sum(program, rng, "f32", 2049, 40, 7)
    add_groups(program, rng, 20, 704, 96, (1, 0, 2, 0, 3, 0, 0, 1, 2, 4))
    add_groups(program, rng, 64, 96, 128, (1, 0, 40, 2, 1, 3, 0, 2))  # 40 rows in tiles of 16
    few = np.random.default_rng(3)  # fewer rows than groups, of which most have none: alone, all in one, beside each other, none, behind the 64th
    for dtype, lengths in (("bf16", (0, 1, 0, 0, 2, 1, 0, 0, 0, 1)), ("f32", (0, 0, 5, 0, 0, 0, 0, 0)), ("bf16", (0,) * 20 + (20,) + (0,) * 9), ("bf16", (0, 0, 0, 1)),
                           ("bf16", (0,) * 9), ("bf16", (1,) + (0,) * 62 + (1, 2) + (0,) * 70 + (1,))):
        add_groups(program, few, min(max(sum(lengths), 1) + (sum(lengths) == 4), len(lengths) - 1), 704, 96, lengths, dtype)
    add_groups(program, rng, 700, 64, 192, (130, 0, 1, 63, 300, 16))
    add_groups(program, rng, 140, 128, 256, (0, 140))
    if everything or not ampere:
        add_groups(program, rng, 8192, 80, 512, (5000, 0, 3000, 190))  # tiles of 128 x 256, and of 64 x 80 for the gradient of x
    return program.finish()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
