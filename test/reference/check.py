#!/usr/bin/env python3
"""The references checked by themselves: every `pull` against central differences, invariants of plans and scans."""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import numpy as np

import attention
import moe
import rows
import train
from common import ACTIVATIONS, PADDING, check_pull, documents_of, one_document, relative_error
import inner
from instances import DEFAULTS
from model import Model
from scan import CLASSES, random_operands, scan

PACKED = documents_of([[-2, 0, 3, 3], [-5, 4, 6, 8]], 8)


def check_rows(rng):
    r = rng.standard_normal
    x, y, h = r((2, 3, 4, 6)), r((2, 3, 4, 6)), r((2, 3, 4))
    cases = [
        ("add", (x, y, y), {}),
        ("mul", (x, y), {}),
        ("mul", (x, h), {}),
        ("scale", (x,), {"value": 0.3}),
        ("offset", (x,), {"value": 0.3}),
        ("clamp", (x,), {"low": -0.31, "high": 0.77}),
        ("bias", (x, r((4, 6))), {}),
        ("bias", (x, r(6)), {}),
        ("weighted", (x, r(4)), {}),
        ("weighted", (x, r(6)), {}),
        ("softmax", (x,), {}),
        ("log_sigmoid", (x,), {"divide": 16.0}),
        ("log_decay", (h, r(4), r(4)), {}),
        ("rms_norm", (x, r(6)), {"eps": 1e-5}),
        ("rms_norm", (x, r(6)), {"eps": 1e-5, "groups": 3}),
        ("layer_norm", (x, r(6), r(6)), {"eps": 1e-5}),
        ("l2_norm", (x,), {"eps": 1e-6}),
        ("feature_map", (x,), {"kind": "taylor"}),
        ("feature_map", (x,), {"kind": "square"}),
        ("append_one", (x,), {}),
        ("drop_last", (x,), {}),
        ("take_last", (x,), {}),
        ("divide_by_last", (np.abs(x) + 0.3,), {"eps": 1e-6}),
        ("divide_by_last", (x,), {"eps": 0.0, "least": 0.4}),
        ("layer_norm", (x, r(6)), {"eps": 1e-5}),
        ("inner", (x, y), {}),
        ("dot", (x, r(6)), {}),
        ("bounded_gate", (x, np.array([0.05, 0.2, 0.5, 0.9])), {}),
        ("element_decay", (x, r((4, 5, 6))), {}),
        ("log_decay", (x, r(4), r((4, 6))), {}),
        ("repeat_heads", (x,), {"heads": 8}),
    ]
    cases += [("activation", (np.abs(x) + 0.1 if kind == "reciprocal" else x,), {"kind": kind}) for kind in ACTIVATIONS]
    for first in (True, False):
        cases.append(
            ("gated_norm", (x, y, r(6)), {"eps": 1e-5, "activation": "silu", "norm_first": first, "groups": 2})
        )
    for layout in ("half", "interleaved"):
        cases.append(("rope", (x, one_document(2, 3, -4)), {"theta": 100.0, "dim": 4, "layout": layout}))
    cases.append(("rope", (x, one_document(2, 3, -4)), {"theta": 100.0, "dim": 4, "layout": "half", "period": 3}))
    slower = {"theta": 100.0, "dim": 4, "layout": "half", "factors": [1.0, 0.25], "scale": 1.3}
    cases.append(("rope", (x, one_document(2, 3, -4)), slower))
    cases.append(("position_rate", (PACKED, np.array([0.1, -1.7, 0.3])), {"heads": 2}))
    cases.append(("position_angle", (PACKED, r((2, 3))), {}))
    cases += [("every_token", (PACKED, r(shape)), {}) for shape in ((2,), (2, 3))]
    for name, arguments, attributes in cases:
        yield from check_pull(
            f"{name} {attributes}", lambda *a, n=name, at=attributes: rows.ROWS[n](*a, **at), arguments, rng
        )
    for kind, polynomial in (("taylor", lambda s: 1 + s + s * s / 2), ("square", lambda s: s * s)):
        phi = [rows.feature_map(z, kind)[0] for z in (x, y)]
        expected = polynomial((x * y).sum(-1) / 6**0.5)
        yield f"feature_map {kind}", relative_error((phi[0] * phi[1]).sum(-1), expected), 1e-13
    conv = (r((2, 8, 2, 3)), r((6, 4)), PACKED, r((2, 3, 6)))
    yield from check_pull("short_conv", rows.short_conv, conv, rng)


def check_scan(rng):
    for kind in CLASSES:
        operands = random_operands(kind, rng, 2, 8, 2, 3, 4)
        initial = rng.standard_normal((2, 2, 3, 4))

        def run(*arrays, kind=kind, names=tuple(operands)):
            value, pull = scan(kind, dict(zip(names, arrays)), arrays[-1], PACKED, 0.7)

            def in_order(do, dfinal):
                gradients, dinitial = pull(do, dfinal)
                return tuple(gradients[n] for n in names) + (dinitial,)

            return value, in_order

        yield from check_pull(f"scan {kind}", run, (*operands.values(), initial), rng)
        # A packed row is its documents one by one.
        (o, _), _ = scan(kind, operands, initial, PACKED, 0.7)
        part = {n: a if a.ndim == 1 else a[1:, 4:6] for n, a in operands.items()}
        alone = scan(kind, part, initial[1:], one_document(1, 2), 0.7)[0][0]
        yield f"scan {kind} packed = separate", relative_error(o[1:, 4:6], alone), 1e-13
    # VH is D (lsm-family 2.1): a = k exp(g), b = -beta k, key = beta k.
    x = random_operands("VH", rng, 2, 8, 2, 3, 4)
    k, beta = x["k"], x.pop("beta")[..., None]
    other = x | {"k": beta * k, "a": k * np.exp(x["log_decay"]), "b": -beta * k}
    pair = [scan(n, y, initial, PACKED, 0.7)[0][0] for n, y in (("VH", x | {"beta": beta[..., 0]}), ("D", other))]
    yield "scan VH = D", relative_error(*pair), 1e-13


def check_inner(rng):
    for kind, gates in inner.VARIANTS.items():
        operands = inner.random_operands(("rate", *gates), rng, 2, 8, 2, 3, 4)
        initial = 0.3 * rng.standard_normal((2, 2, 3 * inner.planes(gates, 3), 4))

        def run(*arrays, names=tuple(operands)):
            value, pull = inner.inner_step(dict(zip(names, arrays)), arrays[-1], PACKED, 3)

            def in_order(do, dfinal):
                gradients, dinitial = pull(do, dfinal)
                return tuple(gradients[n] for n in names) + (dinitial,)

            return value, in_order

        yield from check_pull(f"inner_step {kind}", run, (*operands.values(), initial), rng)
        (o, _), _ = inner.inner_step(operands, initial, PACKED, 3)
        part = {n: a if n in inner.WHOLE else a[1:, 4:6] for n, a in operands.items()}
        alone = inner.inner_step(part, initial[1:], one_document(1, 2), 3)[0][0]
        yield f"inner_step {kind} packed = separate", relative_error(o[1:, 4:6], alone), 1e-13
    # A step after every token with target v is the delta rule (lsm-family 2.1).
    x = random_operands("GH", rng, 2, 8, 2, 3, 4)
    g = x.pop("log_decay")
    (o, _), _ = scan("H", x, np.zeros((2, 2, 3, 4)), PACKED, 1.0)
    step = {n: x[n] for n in ("q", "k", "v")} | {"rate": x["beta"]}
    found = inner.inner_step(step, np.zeros((2, 2, 3, 4)), PACKED, 1)[0][0]
    yield "inner_step of mini-batch 1 = scan H", relative_error(found, o), 1e-13
    # With forgetting it is class D with a = k, b = -rate k: the decay does not touch what the step removes.
    x["log_decay"] = np.repeat(g[..., None], 3, -1)
    d = {n: x[n] for n in ("q", "v", "log_decay")} | {
        "k": x["k"] * x["beta"][..., None], "a": x["k"], "b": -x["k"] * x["beta"][..., None]
    }
    (o, _), _ = scan("D", d, np.zeros((2, 2, 3, 4)), PACKED, 1.0)
    found = inner.inner_step(step | {"log_decay": g}, np.zeros((2, 2, 3, 4)), PACKED, 1)[0][0]
    yield "inner_step of mini-batch 1 with decay = scan D", relative_error(found, o), 1e-13


def check_attention(rng):
    q, k, v = (rng.standard_normal((2, 8, h, 3)) for h in (4, 2, 2))
    for window in (0, 3):
        run = lambda q, k, v, w=window: (lambda out: (out[0][0], out[1]))(attention.attention(q, k, v, PACKED, 0.5, w))
        yield from check_pull(f"attention window {window}", run, (q, k, v), rng)
    k, v = (rng.standard_normal((2, 13, 2, 3)) for _ in "kv")
    shared = tuple(rng.standard_normal(shape) for shape in ((*q.shape[:3], 3), (*k.shape[:2], 1, 3)))
    run = lambda *xs: (lambda out: (out[0][0], out[1]))(attention.attention_shared(*xs, PACKED, 0.5))
    yield from check_pull("attention with shared features", run, (q, k, v[..., :1], *shared), rng)
    run = lambda q, k, v: (lambda out: (out[0][0], out[1]))(attention.attention(q, k, v, PACKED, 0.5, 0, 5))
    yield from check_pull("attention prefix", run, (q, k, v), rng)


def check_choices(rng):
    """Groups and corrections against loops over experts, and DeepSeek-V3's two groups of two written out."""
    keys = np.round(rng.standard_normal((2, 5, 12)) * 2) / 2
    keys[0, 0, :3], keys[1, 1, 4] = np.nan, np.nan
    for groups, kept, top, k in ((4, 2, 1, 3), (4, 2, 2, 6), (3, 1, 2, 4), (6, 4, 2, 8), (2, 2, 1, 5)):
        wrong = 0
        for row, chosen in zip(keys.reshape(-1, 12), moe.route(keys, k, groups, kept, top).reshape(-1, k)):
            size, left = 12 // groups, [-np.inf if np.isnan(v) else v for v in row]
            scores = [sum(sorted(left[g * size : (g + 1) * size])[-top:]) for g in range(groups)]
            best = sorted(range(groups), key=lambda g: (-scores[g], g))[:kept]
            order = lambda e: (e // size not in best, np.isnan(row[e]), 0 if np.isnan(row[e]) or e // size not in best else -row[e], e)
            wrong += list(chosen) != sorted(range(12), key=order)[:k]
        yield f"route, {kept} of {groups} groups by {top}", float(wrong), 0
    row = np.array([[[0.9, 0.1, 0.6, 0.5]]])
    yield "route: the sum of two", float(np.any(moe.route(row, 2, 2, 1, 2) != [[[2, 3]]])), 0
    yield "route: the largest", float(np.any(moe.route(row, 2, 2, 1, 1) != [[[0, 1]]])), 0
    correction = moe.correct(np.zeros(4), [1, 2, 3, 2], 0.5)
    yield "correct", float(np.any(correction != [0.5, 0, -0.5, 0])), 0


def check_moe(rng):
    r = rng.standard_normal
    logits, x = r((2, 4, 6)), r((2, 4, 3))
    w1, w3, w2 = r((6, 3, 5)), r((6, 3, 5)), r((6, 5, 3))
    ids, whole, padded = moe.route(logits, 3), one_document(2, 4), documents_of([[0, 3], [0, 1]], 4)
    for normalize in (True, False):
        yield from check_pull("route_weights", lambda l, n=normalize: moe.route_weights(l, ids, n), (logits,), rng)
        run = lambda *a, n=normalize: (lambda out: (out[0][0], out[1]))(moe.experts(*a, 3, n, ids=ids))
        yield from check_pull("experts", run, (x, logits, whole, w1, w3, w2), rng)
        yield from check_pull("experts, padding", run, (x, logits, padded, w1, w3, w2), rng)
    for documents in (whole, padded):
        loss = lambda l, d=documents: moe.router_loss(l, np.arange(6), d, 3, 0.1, 0.2)
        yield from check_pull("router_loss", loss, (logits,), rng)
    own = np.random.default_rng(2)
    for normalize in (True, False):
        weights = lambda l, n=normalize: moe.route_weights(l, ids, n, "sigmoid")
        yield from check_pull("route_weights, sigmoid", weights, (logits,), own)
    loss = lambda l: moe.router_loss(l, np.arange(6), padded, 3, 0.1, 0.2, "sigmoid")
    yield from check_pull("router_loss, sigmoid", loss, (logits,), own)
    router = {"score": "sigmoid", "scale": 2.5, "choose": lambda l: moe.route(moe.router_keys(l, "sigmoid", np.arange(6) / 9), 3, 3, 2, 2)}
    run = lambda *a: (lambda out: (out[0][0], out[1]))(moe.experts(*a, 3, True, router=router))
    yield from check_pull("experts, corrected groups", run, (x, logits, whole, w1, w3, w2), own)
    yield from check_choices(own)
    perm, inverse, counts, offsets, overflow = moe.plan(ids, whole, 6)
    yield "plan: counts", float(counts.sum() != ids.size or overflow[0] != 0 or offsets[-1] != ids.size), 0
    yield "plan: inverse", float(np.any(perm[inverse.reshape(-1)] != np.arange(ids.size))), 0
    rows_of = moe.dispatch(x, perm, inverse)[0]
    yield "combine(dispatch(x)) = k x", relative_error(moe.combine(rows_of, None, perm, inverse)[0], 3 * x), 1e-14
    small = moe.plan(ids, whole, 6, 2, 7)
    yield "plan: overflow", float(small[4][0] != sum(max(0, n - 7) for n in (counts[:3].sum(), counts[3:].sum()))), 0
    # Padding changes nothing: the same as its row without it (moe-family 11, 8).
    cut = lambda a: np.concatenate([a[0, :3], a[1, :1]])[None]
    (y, _, counts, _), _ = moe.experts(x, logits, padded, w1, w3, w2, 3, True)
    (alone, _, counts_alone, _), _ = moe.experts(cut(x), cut(logits), one_document(1, 4), w1, w3, w2, 3, True)
    yield "padding = compacted", relative_error(cut(y), alone), 0
    yield "padding: counts", float(np.any(counts != counts_alone)), 0
    loss = moe.router_loss(logits, counts, padded, 3, 0.1, 0.2)[0].sum()
    alone = moe.router_loss(cut(logits), counts, one_document(1, 4), 3, 0.1, 0.2)[0].sum()
    yield "padding: router loss", relative_error(loss, alone), 1e-14
    own = np.random.default_rng(1)
    keys = np.array([[7, 3, 0], [8, 3, 0]])
    for policy in ("token", "slot", "score", "bpr", "random", "device"):
        limit = {"policy": policy, "keys": keys} | ({"bucket": 3} if policy == "device" else {})
        for more in ({}, {"renormalize": True}):
            limited = lambda *a, l=limit | more: (lambda out: (out[0][0], out[1]))(
                moe.experts(*a, 3, not l.get("renormalize"), ids=ids, limit=l | {"slots": 2})
            )
            label = f"experts, drop {policy} {' '.join(more)}"
            yield from check_pull(label, limited, (x, logits, whole, w1, w3, w2), own)
        kept, load, dropped, used = moe.drop(ids, moe.route_weights(logits, ids, True)[0], whole, 6, 2, **limit)
        alive = (kept >= 0).sum()
        yield f"drop {policy}: counts", float(alive + dropped.sum() != load.sum() or used.sum() != alive or used.max() > 2), 0
        yield f"drop {policy}: enough", float(np.any(moe.drop(ids, logits[..., :3], whole, 6, 12, **limit)[0] != ids)), 0
    for protect, wanted in ((0.0, 2), (1.0, 12)):
        used = moe.drop(ids, logits[..., :3], whole, 6, 2, "device", None, 6, protect, keys)[3]
        yield f"protect {protect}: slots", float(np.any(used != wanted)), 0
    w = moe.route_weights(logits, ids, False)[0]
    kept = np.where(own.random(ids.shape) < 0.5, ids, -1)
    kept[0, 0], kept[0, 1] = -1, ids[0, 1]
    scaled, some = moe.renormalize(w, kept)[0], (kept >= 0).any(-1)
    yield "renormalize keeps the sum", relative_error(scaled.sum(-1)[some], w.sum(-1)[some]), 1e-14
    yield "renormalize: all dropped gives 0", float(np.abs(scaled[~some]).max()), 0
    yield from check_pull("renormalize", lambda a: moe.renormalize(a, kept), (w,), own)
    for rule, slots in (("megatron", 4), ("switch", 1), ("tutel", 4), ("megablocks", 3)):  # moe-family 3.1
        yield f"capacity {rule}", float(moe.capacity(rule, 1.0, 13, 2, 8) != slots), 0


def check_model(rng):
    """One layer of every mixer: gradients of the whole model with respect to every weight."""
    for kind in DEFAULTS:
        heads = {} if kind == "short_conv" else {"heads": 2, "value_dim": 4} if kind == "rglru" else {"heads": 2, "head_dim": 4}  # which has none
        mixer = {"kind": kind} | heads | ({"q_rank": 5, "kv_rank": 3, "rope_dim": 2, "value_dim": 6} if kind == "mla" else {})
        d = {
            "num_layers": 1,
            "layer_pattern": "X",
            "mixers": {"X": mixer},
            "ffns": {"M": {"kind": "moe", "num_experts": 4, "top_k": 2, "expert_hidden": 3, "shared_hidden": 2}},
        }
        weights = random_weights(d, rng, vocab=7, width=6)
        tokens, labels = rng.integers(0, 7, (1, 6)), rng.integers(0, 7, (1, 6))
        documents = documents_of([[0, 4, 6]], 6)
        result = Model(d, weights).loss(tokens, labels, documents)
        gradients = result.gradients()
        for name, array in weights.items():
            direction = rng.standard_normal(array.shape)

            def loss(h):
                moved = Model(d, weights | {name: array + h * direction}).loss(tokens, labels, documents, result.ids)
                return moved.loss + moved.aux

            difference = (loss(1e-5) - loss(-1e-5)) / 2e-5
            scale = max(1e-3, np.linalg.norm(gradients[name]))
            yield f"model {kind} {name}", abs(difference - (gradients[name] * direction).sum()) / scale, 1e-5


def random_weights(d, rng, vocab, width):
    """Weights of a one-layer model with key_heads = kv_heads = heads and default settings."""
    mixer = next(iter(d["mixers"].values()))
    kind, H, K = mixer["kind"], mixer.get("heads"), mixer.get("head_dim", mixer.get("value_dim", 0))
    V = K * DEFAULTS[kind].get("value_factor", 1)
    moe_spec = d["ffns"]["M"]
    E, F, S = moe_spec["num_experts"], moe_spec["expert_hidden"], moe_spec["shared_hidden"]
    shapes = {
        "norm1.weight": (width,),
        "norm2.weight": (width,),
        "moe.router": (width, E),
        "moe.w1": (E, width, F),
        "moe.w3": (E, width, F),
        "moe.w2": (E, F, width),
        "shared.w1": (width, S),
        "shared.w3": (width, S),
        "shared.w2": (S, width),
    }
    if kind == "short_conv":
        shapes |= {f"lsm.w{n}": (width, width) for n in "bczo"} | {"lsm.conv_z.weight": (width, 3)}
    elif kind == "attention":
        shapes |= {f"attn.w{n}": (width, H * K) for n in "qkv"} | {"attn.wo": (H * K, width)}
    elif kind == "mla":
        C, L, R, V = (mixer[n] for n in ("q_rank", "kv_rank", "rope_dim", "value_dim"))
        shapes |= {"attn.wq_down": (width, C), "attn.q_norm.weight": (C,), "attn.wq": (C, H * K), "attn.wq_rope": (C, H * R), "attn.wk_rope": (width, R)}
        shapes |= {"attn.wkv_down": (width, L), "attn.kv_norm.weight": (L,), "attn.wk": (L, H * K), "attn.wv": (L, H * V), "attn.wo": (H * V, width)}
    else:
        shapes |= {
            "lsm.wq": (width, H * K),
            "lsm.wk": (width, H * K),
            "lsm.wv": (width, H * V),
            "lsm.wo": (H * V, width),
        }
        shapes["lsm.norm.weight"] = (H * V,) if kind in ("mamba2", "lightning", "hgrn2") else (V,)
        if DEFAULTS[kind]["output_gate"]:
            shapes["lsm.wg"] = (width, H * V)
        if kind == "mamba":
            inner = H * V
            shapes |= {"lsm.conv_v.weight": (inner, 4), "lsm.conv_v.bias": (H, V), "lsm.wq": (inner, H * K)}
            shapes |= {"lsm.wk": (inner, H * K), "lsm.wdt_a": (inner, 3), "lsm.wdt_b": (3, inner), "lsm.dt_bias": (H, V)}
            shapes |= {"lsm.a_log": (H, K, V), "lsm.d": (H, V)}
        elif DEFAULTS[kind]["conv"]:
            shapes |= {f"lsm.conv_{n}.weight": (H * size, 4) for n, size in (("q", K), ("k", K), ("v", V))}
            if DEFAULTS[kind]["conv"].get("bias"):
                shapes |= {f"lsm.conv_{n}.bias": (H, size) for n, size in (("q", K), ("k", K), ("v", V))}
        if kind == "gla":
            shapes |= {"lsm.wf1": (width, 5), "lsm.wf2": (5, H * K), "lsm.bf": (H, K)}
        if kind in ("deltanet", "gated_deltanet"):
            shapes["lsm.wb"] = (width, H)
        if kind in ("mamba2", "gated_deltanet"):
            shapes |= {"lsm.wa" if kind != "mamba2" else "lsm.wdt": (width, H), "lsm.a_log": (H,), "lsm.dt_bias": (H,)}
        if kind == "mamba2":
            shapes["lsm.d"] = (H,)
        if kind == "rebased":
            shapes |= {"lsm.feature_norm.weight": (K,), "lsm.feature_norm.bias": (K,)}
        if kind == "rglru":
            shapes |= {f"lsm.{w}{n}": s for n in "ri" for w, s in (("w", (H, V, V)), ("b", (H, V)))} | {"lsm.a": (H, V)}
            shapes |= {"lsm.conv_v.weight": (H * V, 4), "lsm.conv_v.bias": (H, V)}
            for n in ("wq", "wk", "norm.weight", *(f"conv_{n}.{part}" for n in "qk" for part in ("weight", "bias"))):
                del shapes[f"lsm.{n}"]
        if kind == "mlstm":
            shapes |= {f"lsm.{w}{n}": s for n in "if" for w, s in (("w", (width, H)), ("b", (H,)))} | {"lsm.norm.weight": (H, V)}
        if kind in ("dfw", "gfw"):
            gates = {"f": (H, K), "e": (H, V)} if kind == "dfw" else {"f": (H, K, V)}
            shapes |= {f"lsm.b{n}": s for n, s in gates.items()}
            shapes |= {f"lsm.w{n}": (width, int(np.prod(s))) for n, s in gates.items()}
        if kind == "gateloop":
            shapes |= {"lsm.wa": (width, H * K), "lsm.wp": (width, H * K)}
        if kind == "kda":
            shapes |= {"lsm.wb": (width, H), "lsm.wf1": (width, 3), "lsm.wf2": (3, H * K), "lsm.a_log": (H,)}
            shapes["lsm.dt_bias"] = (H, K)
        if kind in ("ttt", "titans", "titans_ln"):
            for n in "r" if kind == "ttt" else "rae":
                shapes |= {f"lsm.w{n}": (width, H), f"lsm.b{n}": (H,)}
            if kind != "titans":
                shapes |= {"lsm.inner_norm.weight": (H, V), "lsm.inner_norm.bias": (H, V)}
        if kind == "s4d":
            for n in ("q", "k", "v"):
                del shapes[f"lsm.w{n}"]
            shapes |= {f"lsm.{n}": (width, K) for n in ("log_a", "a_im", "c_re", "c_im")}
            shapes |= {"lsm.log_dt": (width,), "lsm.d": (width,), "lsm.wo": (width, width), "lsm.wg": (width, width)}
            del shapes["lsm.norm.weight"]
        if kind == "ttt":
            del shapes["lsm.wq"], shapes["lsm.wk"], shapes["lsm.conv_v.weight"], shapes["lsm.conv_v.bias"]
            shapes |= {"lsm.wqk": (width, H * K), "lsm.token_rate": (16,), "lsm.start": (H, K + 1, V)}
            shapes |= {"lsm.norm.weight": (H * V,), "lsm.norm.bias": (H * V,)}
        if kind in ("rwkv6", "rwkv7"):
            shapes |= {"lsm.norm.weight": (H, V), "lsm.norm.bias": (H, V), "lsm.w0": (H, K)}
            shapes |= {f"lsm.mu_{n}": (width,) for n in ("xqkvgw" if kind == "rwkv6" else "qkvwag")}
            ranks = {"decay": H * K}
            if kind == "rwkv6":
                shapes |= {"lsm.wg": (width, H * V), "lsm.u": (H, K)}
                ranks |= {f"mix_{n}": width for n in "qkvgw"}
            else:
                shapes |= {f"lsm.{n}": (H, K) for n in ("a0", "k_k", "k_a", "r_k")}
                ranks |= {"rate": H * K, "gate": H * V}
            for n, out in ranks.items():
                shapes |= {f"lsm.{n}_a": (width, 3), f"lsm.{n}_b": (3, out)}
    weights = {f"layers.0.{n}": rng.standard_normal(s) * 0.5 for n, s in shapes.items()}
    if kind == "hgrn2":
        weights["layers.0.lsm.lower_bound"] = rng.uniform(0, 0.9, H)
    return weights | {
        "embed.weight": rng.standard_normal((vocab, width)),
        "final_norm.weight": rng.standard_normal(width),
        "head.weight": rng.standard_normal((width, vocab)),
    }


def check_train(rng):
    logits, labels = rng.standard_normal((2, 3, 5)), rng.integers(-1, 5, (2, 3))
    run = lambda l: (lambda out: (np.asarray(out[0][0]), out[1]))(train.cross_entropy(l, labels))
    yield from check_pull("cross_entropy", run, (logits,), rng)
    w, m, v = train.adamw(np.ones(1), np.ones(1), np.zeros(1), np.zeros(1), 0.1, 1, 1.0, 0.9, 0.99, 0.0, 0.5)
    yield "adamw, first step", abs(w[0] - (1 - 0.1 * (1 + 0.5))), 1e-15
    yield "padding", float(documents_of([[0, 2, 3]], 4).tolist() != [[0, 0, 2, PADDING]]), 0


def main():
    rng, failed, count = np.random.default_rng(0), 0, 0
    for family in (check_rows, check_scan, check_inner, check_attention, check_moe, check_train, check_model):
        for case, error, limit in family(rng):
            count += 1
            if not error <= limit:
                failed += 1
                print(f"FAILED {case}: {error:.3g} exceeds {limit:g}")
    print(f"{count} checks, {failed} failed")
    if not failed:
        print("all references agree with finite differences")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
