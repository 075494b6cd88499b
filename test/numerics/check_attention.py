"""attn.causal, its gradient and attn.append against full score matrices. Limits: forward 2e-6, gradients 1e-5; f64 1e-9.

bf16: operands of products rounded where the CPU multiplies bf16, sums in f32: 5e-3; gradients read the rounded o too, 1.5e-2.

    check_attention.py [wide [even|odd]]   `wide`: only so many rows and heads that on a GPU whose tiles come in boxes (sm_90a) a program owns two tiles of
rows; `even`, `odd`: every other of the first shapes, with one kind of documents, so that of two orders of threads one has it.
"""

import sys

import numpy as np

from harness import Program, Type, rounded
from attention import append, attention, attention_shared
from common import PADDING, documents_of, one_document


def causal(f, operands, results, coordinate=None, shared=None, sinks=None, **attributes):
    """`operands`: q, k, v, documents."""
    return f.op("braid.attn.causal", [*operands, coordinate, shared, sinks], results, segments=True, **attributes)


def causal_grad(f, operands, results, coordinate=None, shared=None, sums=None, **attributes):
    """`operands`: q, k, v, documents, o, lse, do."""
    return f.op("braid.attn.causal_grad", [*operands, coordinate, shared, sums], results, segments=True, **attributes)


class Attention:
    """`values`, `shared`: features of values, if not as many as of keys; of keys that all heads share. `sinks`: a score more of each head. `softcap`: a bound
    of scores."""

    def __init__(self, program, B, T, H, G, D, window=0, prefix=0, dtype="f32", values=0, shared=0, gradient=True, sinks=False, softcap=None):
        V, S = values or D, prefix + T
        self.program, self.dtype = program, dtype
        self.settings, self.scale = {"window": window, "prefix": prefix} | ({"softcap": softcap} if softcap else {}), (D + shared) ** -0.5
        sizes = (f"_v{V}" if V != D else "") + (f"_s{shared}" if shared else "") + "_sinks" * sinks + "_softcap" * bool(softcap)
        f = self.function = program.function(f"b{B}_t{T}_h{H}_g{G}_d{D}{sizes}_w{window}_p{prefix}_{dtype}{'' if gradient else '_forward'}", dtype)
        q, k, v = f.input("q", (B, T, H, D)), f.input("k", (B, S, G, D)), f.input("v", (B, S, G, V))
        both = [f.input("q_shared", (B, T, H, shared)), f.input("k_shared", (B, S, 1, shared))] if shared else []
        documents = f.input("documents", (B, T), "i32")
        attributes = {"scale": self.scale, "shared": both} | self.settings
        wide = "f32" if dtype == "bf16" else dtype
        results = [Type((B, T, H, V), dtype), Type((B, H, T), wide)]
        self.sinks = f.input("sinks", (H,), wide) if sinks else None
        o, lse = causal(f, [q, k, v, documents], results, sinks=self.sinks, **attributes)
        self.names, outputs = [x.name[1:] for x in (q, k, v, *both)], {"o": o, "lse": lse}
        if gradient:
            operands = [q, k, v, documents, o, lse, f.input("do", (B, T, H, V))]
            outputs |= zip((f"d{n}" for n in self.names), causal_grad(f, operands, [x.type for x in (q, k, v, *both)], **attributes))
            if sinks:
                outputs["dsinks"] = f.op("braid.attn.sink_grad", [self.sinks, o, lse, operands[-1]], self.sinks.type)
        for name, value in outputs.items():
            f.output(name, value)

    def check(self, label, rng, documents, size=1.0, values=2e-6, gradients=1e-5):
        inputs = {n: rng.standard_normal(x.type.shape) * size for n, x in self.function.inputs.items() if n not in ("documents", "sinks")}
        exact = dict(zip(inputs, rounded(list(inputs.values()), self.dtype)))
        more = {}
        if self.sinks:
            # Among the scores, and above all; in f64 also far below, where a row of one key has a weight near 1 and so gradients in which f32 has
            # few digits left.
            more["sinks"] = rounded([np.linspace(-4 if self.dtype == "f64" else 0, 9, self.sinks.type.shape[0]) * size], self.sinks.type.dtype)[0]
        compute = attention_shared if len(self.names) > 3 else attention
        (o, lse), pull = compute(*(exact[n] for n in self.names), documents, self.scale, **self.settings, **more)
        references = {"o": o, "lse": lse} | {f"d{n}": d for n, d in zip([*self.names, *more], pull(exact["do"]))}
        if np.any(documents == PADDING) and not self.sinks:
            del references["lse"]  # undefined where a token sees no key
        if self.dtype == "bf16":
            values, gradients = 5e-3, 1.5e-2
        limit = {n: 1e-9 if self.dtype == "f64" else values if n in ("o", "lse") else gradients for n in references}
        if self.sinks and self.dtype == "bf16":
            limit["dsinks"] = 5e-2  # one number of a head, in whose sum tokens with either sign are as large as a whole
        self.program.check(self.function, inputs | more | {"documents": documents}, references, limit, f"{self.function.name} {label}")


def add_packed(program, rng):
    for B, T, H, G, D in [
        (2, 37, 4, 2, 16),
        (1, 130, 2, 2, 32),
        (1, 7, 3, 1, 64),
        (1, 70, 2, 1, 128),
        (2, 33, 2, 1, 20),
    ]:
        for window in (0, 9):
            for dtype in ("f32", "f64", "bf16") if D == 16 else ("f32", "bf16") if D % 16 == 0 else ("f32",):
                a = Attention(program, B, T, H, G, D, window, dtype=dtype)
                a.check("one document", rng, one_document(B, T))
                cut = [[0, T // 4, T // 4 + 1, T, T], [0, T // 2, T // 2 + 1, T - 3, T - 3]][:B]
                a.check("packed", rng, documents_of(cut, T))
                if dtype == "f32":
                    a.check("padding behind 1 token", rng, documents_of([[0, 1]] * B, T))
                    # Scores of some hundreds: exp sees their rounding; where p is near 1, p (dp - <p, dp>) cancels.
                    a.check("sharp", rng, one_document(B, T), size=5.0, values=1e-5, gradients=1e-3)
    # A K/V prefix of earlier slices: documents that began before the slice, or inside it.
    for window, dtype in ((0, "f32"), (20, "f32"), (20, "bf16")):
        a = Attention(program, 2, 33, 4, 2, 16, window, prefix=31, dtype=dtype)
        a.check("all from the prefix", rng, one_document(2, 33, -31))
        a.check("mixed", rng, documents_of([[-31, -7, 5, 33], [-9, 0, 1, 33]], 33))


def add_wide(program, rng, share=None):
    """So many rows and heads that on a GPU a program owns two tiles of rows: rows that end inside of the second, or before it; a prefix; heads that share keys,
    or features of keys. `share`: of the first seven shapes every other, with one kind of rows."""
    shapes = (
        (8, 200, 8, 8, 64, 0, 0, 0),
        (8, 150, 16, 8, 64, 70, 0, 0),
        (4, 70, 32, 32, 64, 0, 67, 0),
        (1, 129, 64, 64, 128, 0, 0, 0),
        (1, 520, 26, 26, 64, 0, 0, 0),  # so many tiles that the ring goes round
        (1, 150, 64, 64, 64, 0, 0, 64),
        (2, 200, 32, 8, 64, 70, 0, 0, True),
        (1, 200, 64, 64, 128, 0, 0, 64),
        (4, 70, 32, 16, 64, 50, 67, 128),
        (1, 390, 33, 33, 64, 0, 0, 64),
        (2, 200, 32, 8, 64, 70, 0, 0, False, 1.5),
        (1, 130, 64, 64, 128, 0, 0, 0, False, 1.5),
    )
    for i, (B, T, H, G, D, window, prefix, shared, *more) in enumerate(shapes):
        if share is not None and (i % 2 != share or i > 6):
            continue
        a = Attention(program, B, T, H, G, D, window, prefix, dtype="bf16", shared=shared, **dict(zip(("sinks", "softcap"), more)))
        cut = [[-prefix, 1, T // 2, T], [-(prefix // 2), 66, T - 3, T - 3], [0, 1, 1, 1]]
        rows = (("one document", one_document(B, T, -prefix)), ("packed", documents_of([cut[b % 3] for b in range(B)], T)))
        for j, (label, documents) in enumerate(rows):
            if share is None or (i // 2 + i) % 2 == j:
                a.check(label, rng, documents)


def add_room(program, rng):
    """A slice in the middle of a row: keys and values have room for later ones, which are not read (NaN); cotangents are added to what later slices gave."""
    B, T, H, G, D, prefix, room = 2, 40, 4, 2, 16, 31, 100
    keys = prefix + T
    for dtype, window, R in (("f32", 0, 0), ("f32", 20, 0), ("bf16", 0, 0), ("f32", 0, 8), ("bf16", 20, 16)):
        f = program.function(f"room_w{window}_s{R}_{dtype}", dtype)
        V = D + R
        q, k, v = f.input("q", (B, T, H, D)), f.input("k", (B, room, G, D)), f.input("v", (B, room, G, V))
        shared = [f.input("q_shared", (B, T, H, R)), f.input("k_shared", (B, room, 1, R))] if R else []
        documents, do = f.input("documents", (B, T), "i32"), f.input("do", (B, T, H, V))
        seen = [k, v, *shared[1:]]
        later = [f.input(f"d{x.name[1:]}_later", x.type.shape, "f32") for x in seen]
        attributes = {"scale": V**-0.5, "window": window, "prefix": prefix, "keys": keys, "shared": shared}
        o, lse = causal(f, [q, k, v, documents], [do.type, Type((B, H, T), "f32")], **attributes)
        wide = [Type(x.type.shape, "f32") for x in later]
        types = [q.type, *wide[:2]] + ([shared[0].type, wide[2]] if R else [])
        fresh, added = (causal_grad(f, [q, k, v, documents, o, lse, do], types, sums=more, **attributes) for more in (None, later))
        names = ["q", "k", "v", *(x.name[1:] for x in shared)]
        f.output("o", o)
        f.output("lse", lse)
        for suffix, given in (("all", fresh), ("added", added)):
            for name, value in zip(names, given):
                f.output(f"d{name}_{suffix}", value)
        drawn = {n: rng.standard_normal(x.type.shape) for n, x in f.inputs.items() if n != "documents"}
        values = {n: rounded([a], "f32" if n.endswith("later") else dtype)[0] for n, a in drawn.items()}
        d_ = documents_of([[-31, -7, 5, T], [-9, 0, 1, T]], T)

        def action(program, f=f, values=values, names=names, d_=d_, window=window, R=R, dtype=dtype):
            compute = attention_shared if R else attention
            (o, lse), pull = compute(*(values[n][:, :keys] for n in names), d_, (D + R) ** -0.5, window=window, prefix=prefix)
            references = {"o": o, "lse": lse}
            inputs = dict(values)
            for name, d in zip(names, pull(values["do"])):
                references[f"d{name}_all"] = references[f"d{name}_added"] = d
                if f"d{name}_later" in values:
                    references[f"d{name}_added"] = values[f"d{name}_later"].copy()
                    references[f"d{name}_added"][:, :keys] += d
                    inputs[name] = np.concatenate([values[name][:, :keys], np.full_like(values[name][:, keys:], np.nan)], 1)
            out = program.call(f, inputs | {"documents": d_})
            for name in names[1:]:
                out[f"d{name}_all"] = out[f"d{name}_all"][:, :keys]
            limits = (5e-3, 1.5e-2) if dtype == "bf16" else (2e-6, 1e-5)
            program.compare(f.name, out, references, {n: limits[n not in ("o", "lse")] for n in references})

        program.then(action)


def add_parts(program, rng, parts=3):
    """The tokens of one of several ranks: over the keys of all, placed by its coordinate, and block by block, merged; and the gradients."""
    B, T, H, G, D = 2, 41, 4, 2, 16
    for window, sinks in ((0, False), (50, False), (0, True), (50, True)):
        f = program.function(f"parts_w{window}{'_sinks' * sinks}")
        q, k, v = f.input("q", (B, T, H, D)), *(f.input(n, (B, parts * T, G, D)) for n in "kv")
        blocks = [[f.input(f"{n}{i}", (B, T, G, D)) for n in "kv"] for i in range(parts)]
        documents, coordinate = f.input("documents", (B, T), "i32"), f.input("coordinate", (1,), "i32")
        do, lse = f.input("do", (B, T, H, D)), Type((B, H, T))
        settings = {"scale": D**-0.5, "window": window}
        sink = f.input("sinks", (H,)) if sinks else None
        o, l = causal(f, [q, k, v, documents], [q.type, lse], coordinate, sinks=sink, **settings)
        given = causal_grad(f, [q, k, v, documents, o, l, do], [q.type, k.type, v.type], coordinate, **settings)
        for name, value in zip(("o", "lse", "dq", "dk", "dv"), (o, l, *given)):
            f.output(name, value)
        o, l = causal(f, [q, *blocks[0], documents], [q.type, lse], sinks=sink, **settings)
        for i in range(1, parts):
            other = causal(f, [q, *blocks[i], documents], [q.type, lse], coordinate, **settings, prefix=i * T)
            o, l = f.op("braid.attn.merge", [o, l, *other], [q.type, lse])
        f.output("o_merged", o)
        f.output("lse_merged", l)
        for i, (ki, vi) in enumerate(blocks):
            place = coordinate if i else None
            given = causal_grad(f, [q, ki, vi, documents, o, l, do], [q.type, ki.type, vi.type], place, **settings, prefix=i * T)
            for name, value in zip(("dq", "dk", "dv"), given):
                f.output(f"{name}{i}", value)
        edges = [[0, T + 5, 2 * T, 3 * T, 3 * T], [-60, 3, 4, T, 3 * T - 9]]
        for r in range(parts):
            q_, k_, v_, do_ = rounded([rng.standard_normal(s) for s in ((B, T, H, D), (B, parts * T, G, D), (B, parts * T, G, D), (B, T, H, D))])
            d_ = documents_of(edges, T, r * T)
            more = {"sinks": np.linspace(-2, 2, H)} if sinks else {}

            def action(program, f=f, r=r, values=(q_, k_, v_, do_), d_=d_, window=window, more=more):
                q_, k_, v_, do_ = values
                (o, lse), pull = attention(q_, k_, v_, d_, D**-0.5, window=window, prefix=r * T, **more)
                part = lambda a, i: a[:, i * T : (i + 1) * T] if i >= 0 else np.zeros((B, T, G, D))
                inputs = {"q": q_, "k": k_, "v": v_, "do": do_, "documents": d_, "coordinate": np.array([r])}
                inputs |= {f"{n}{i}": part(a, r - i) for n, a in (("k", k_), ("v", v_)) for i in range(parts)}
                out = program.call(f, inputs | more)
                out["dq_merged"] = sum(out[f"dq{i}"] for i in range(parts))
                dq, dk, dv, *_ = pull(do_)
                references = {"o": o, "o_merged": o, "dq": dq, "dq_merged": dq, "dk": dk, "dv": dv}
                for n, a in (("dk", dk), ("dv", dv)):
                    references |= {f"{n}{i}": part(a, r - i) for i in range(parts)}
                if not np.any(d_ == PADDING):
                    references |= {"lse": lse, "lse_merged": lse}
                program.compare(f"{f.name}: part {r}", out, references, 1e-5)

            program.then(action)


def add_cache(program, rng):
    """Append and read a cache: prefill in one call, then single tokens, equal attention over the whole row."""
    B, S, H, G, D, T = 2, 48, 4, 2, 16, 40
    functions = {}
    for tokens in (1, 33):
        f = functions[tokens] = program.function(f"cache_{tokens}")
        q, k, v = f.input("q", (B, tokens, H, D)), f.input("k", (B, tokens, G, D)), f.input("v", (B, tokens, G, D))
        kc, vc = f.input("k_cache", (B, S, G, D)), f.input("v_cache", (B, S, G, D))
        documents = f.input("documents", (B, tokens), "i32")
        nk = f.op("braid.attn.append", [kc, k, documents], kc.type)
        nv = f.op("braid.attn.append", [vc, v, documents], vc.type)
        o, _ = causal(f, [q, nk, nv, documents], [q.type, Type((B, H, tokens))], scale=D**-0.5, window=0, prefix=0, cache=True)
        for name, value in {"o": o, "new_k": nk, "new_v": nv}.items():
            f.output(name, value)
    q, k, v = rounded([rng.standard_normal((B, T, h, D)) for h in (H, G, G)])

    def action(program):
        (o, _), _ = attention(q, k, v, one_document(B, T), D**-0.5)
        # What stood in the cache before must not matter.
        kc, vc = rounded([rng.standard_normal((B, S, G, D)) for _ in "kv"])
        pieces, begin = [], 0
        expected = append(kc, k, one_document(B, T))
        for tokens in (33, 1, 1, 1, 1, 1, 1, 1):
            part = slice(begin, begin + tokens)
            out = program.call(
                functions[tokens],
                {
                    "q": q[:, part],
                    "k": k[:, part],
                    "v": v[:, part],
                    "k_cache": kc,
                    "v_cache": vc,
                    "documents": one_document(B, tokens, -begin),
                },
            )
            pieces.append(out["o"])
            kc, vc, begin = out["new_k"], out["new_v"], begin + tokens
        program.compare(
            "cache: prefill 33, then steps",
            {"o": np.concatenate(pieces, 1), "k_cache": kc},
            {"o": o, "k_cache": expected},
            2e-6,
        )

    program.then(action)

    def padded(program):
        """A prefill of 20 tokens in a bucket of 33: padding writes nothing and gives zeros."""
        documents = documents_of([[0, 20]] * B, 33)
        zeros = np.zeros((B, S, G, D))
        out = program.call(
            functions[33],
            {
                "q": q[:, :33],
                "k": k[:, :33],
                "v": v[:, :33],
                "k_cache": zeros,
                "v_cache": zeros,
                "documents": documents,
            },
        )
        (o, _), _ = attention(q[:, :20], k[:, :20], v[:, :20], one_document(B, 20), D**-0.5)
        program.compare(
            "cache: padded prefill",
            {"o": out["o"][:, :20], "new_k": out["new_k"], "padding": out["o"][:, 20:]},
            {"o": o, "new_k": append(zeros, k[:, :33], documents), "padding": np.zeros((B, 13, H, D))},
            2e-6,
        )

    program.then(padded)


def add_long_cache(program, rng):
    """A token over caches so long that on a GPU several programs share the keys: long and short sequences, a token of padding; with a window, in a ring."""
    B, H, G, D = 4, 4, 2, 16
    for S, window, ring, sinks, cap in ((1100, 0, False, False, 0), (1100, 300, False, False, 0), (720, 640, True, False, 0), (1100, 300, False, True, 0), (720, 640, True, True, 0),
                                        (1100, 0, False, False, 1.5), (720, 640, True, False, 1.5)):
        f = program.function(f"decode_{S}_{window}{'_sinks' * sinks}{'_softcap' * bool(cap)}")
        q, documents = f.input("q", (B, 1, H, D)), f.input("documents", (B, 1), "i32")
        k, v = f.input("k", (B, S, G, D)), f.input("v", (B, S, G, D))
        attributes = dict(scale=D**-0.5, window=window, prefix=0, cache=True) | ({"ring": True} if ring else {}) | ({"softcap": cap} if cap else {})
        more = {"sinks": np.linspace(-3, 6, H)} if sinks else {}
        o, lse = causal(f, [q, k, v, documents], [q.type, Type((B, H, 1))], sinks=f.input("sinks", (H,)) if sinks else None, **attributes)
        f.output("o", o)
        f.output("lse", lse)
        last = [1900 if ring else 1099, 64, 0]  # the token's position; the last row is padding
        values = dict(zip("qkv", rounded([rng.standard_normal(x.type.shape) for x in (q, k, v)])))
        wanted, sums = np.zeros((B, 1, H, D)), np.zeros((B, H, 1))
        if sinks:
            sums += more["sinks"][:, None]
        for b, position in enumerate(last):
            rows = np.arange(max(0, position - window + 1) if window else 0, position + 1) % S
            for h in range(H):
                scores = values["k"][b, rows, h // (H // G)] @ values["q"][b, 0, h] * D**-0.5
                scores = cap * np.tanh(scores / cap) if cap else scores
                weights = np.exp(scores - scores.max())
                total = weights.sum() + (np.exp(more["sinks"][h] - scores.max()) if sinks else 0)
                wanted[b, 0, h] = weights @ values["v"][b, rows, h // (H // G)] / total
                sums[b, h, 0] = scores.max() + np.log(total)
        starts = np.array([[-p] for p in last] + [[PADDING]], np.int32)
        program.check(f, values | more | {"documents": starts}, {"o": wanted, "lse": sums}, 2e-6)


def add_ring(program, rng):
    """A ring of fewer rows than there are tokens, filled by calls of 8, 1 and padded calls: the windows of the whole row."""
    B, H, G, D, T, window, bucket = 2, 4, 2, 16, 61, 13, 8
    S = window + bucket - 1
    functions = {}
    for tokens in (1, bucket):
        f = functions[tokens] = program.function(f"ring_{tokens}")
        q, k, v = f.input("q", (B, tokens, H, D)), f.input("k", (B, tokens, G, D)), f.input("v", (B, tokens, G, D))
        kc, vc = f.input("k_cache", (B, S, G, D)), f.input("v_cache", (B, S, G, D))
        documents = f.input("documents", (B, tokens), "i32")
        nk = f.op("braid.attn.append", [kc, k, documents], kc.type, ring=True)
        nv = f.op("braid.attn.append", [vc, v, documents], vc.type, ring=True)
        lse = Type((B, H, tokens))
        o, _ = causal(f, [q, nk, nv, documents], [q.type, lse], scale=D**-0.5, window=window, prefix=0, cache=True, ring=True)
        for name, value in {"o": o, "new_k": nk, "new_v": nv}.items():
            f.output(name, value)
    q, k, v = rounded([rng.standard_normal((B, T, h, D)) for h in (H, G, G)])

    def action(program):
        (o, _), _ = attention(q, k, v, one_document(B, T), D**-0.5, window=window)
        kc, vc = (np.full((B, S, G, D), np.nan) for _ in "kv")  # nothing reads what no token wrote
        pieces, begin = [], 0
        # (tokens of the call, valid ones)
        for tokens, valid in [(8, 8), (8, 3), (1, 1), (8, 8), (8, 8), (8, 8), (1, 1), (8, 8), (8, 8), (1, 1), (8, 7)]:
            part = slice(begin, begin + valid)
            pad = lambda x: np.concatenate([x[:, part], np.full((B, tokens - valid) + x.shape[2:], 7.0)], 1)
            documents = one_document(B, tokens, -begin)
            documents[:, valid:] = PADDING
            out = program.call(
                functions[tokens],
                {"q": pad(q), "k": pad(k), "v": pad(v), "k_cache": kc, "v_cache": vc, "documents": documents},
            )
            pieces.append(out["o"][:, :valid])
            kc, vc, begin = out["new_k"], out["new_v"], begin + valid
        last = [T - 1 - (T - 1 - r) % S for r in range(S)]  # the position that row r holds
        program.compare(
            f"ring of {S} rows, {T} tokens",
            {"o": np.concatenate(pieces, 1), "k_cache": kc, "v_cache": vc},
            {"o": o, "k_cache": k[:, last], "v_cache": v[:, last]},
            2e-6,
        )

    program.then(action)


def add_shared(program, rng):
    """Values of other sizes than keys, and features of keys that all heads share."""
    for B, T, H, G, D, V, R, window, prefix, dtypes in (
        (2, 37, 4, 4, 16, 24, 0, 0, 0, ("f32", "f64")),
        (1, 70, 2, 1, 64, 16, 0, 9, 0, ("f32", "bf16")),
        (2, 37, 4, 4, 16, 24, 8, 0, 0, ("f32", "f64", "bf16")),
        (1, 130, 4, 2, 32, 48, 16, 0, 0, ("f32", "bf16")),
        (1, 70, 3, 3, 128, 128, 64, 0, 0, ("f32", "bf16")),
        (2, 40, 4, 4, 24, 16, 16, 20, 31, ("f32", "bf16")),
    ):
        for dtype in dtypes:
            a = Attention(program, B, T, H, G, D, window, prefix, dtype, values=V, shared=R)
            a.check("one document", rng, one_document(B, T, -prefix))
            a.check("packed", rng, documents_of([[-prefix, T // 4, T // 4 + 1, T - 3, T - 3]] * B, T))


def add_sinks(program, rng):
    """Sinks of all heads: windows so short that the sink is most of a row, a prefix, padding, whose lse is the sink."""
    for B, T, H, G, D, V, R, window, prefix, dtypes in (
        (2, 37, 4, 2, 16, 0, 0, 0, 0, ("f32", "f64", "bf16")),
        (2, 37, 4, 2, 16, 0, 0, 1, 0, ("f32", "f64")),
        (1, 130, 8, 1, 64, 0, 0, 9, 0, ("f32", "bf16")),
        (2, 33, 3, 3, 20, 0, 0, 20, 31, ("f32",)),
        (1, 70, 2, 2, 32, 48, 16, 0, 0, ("f32", "bf16")),
        (4, 200, 18, 2, 16, 0, 0, 0, 0, ("f32", "bf16")),  # so many heads that a program has several blocks of their tokens, on a GPU two
    ):
        for dtype in dtypes:
            a = Attention(program, B, T, H, G, D, window, prefix, dtype, values=V, shared=R, sinks=True)
            a.check("one document", rng, one_document(B, T, -prefix))
            a.check("packed", rng, documents_of([[-prefix, T // 4, T // 4 + 1, T - 3, T - 3]] * B, T))
            if dtype != "bf16":
                a.check("padding behind 1 token", rng, documents_of([[0, 1]] * B, T))
                a.check("sharp", rng, one_document(B, T, -prefix), size=5.0, values=1e-5, gradients=1e-3)


def add_latent(program, rng):
    """Values that are the keys themselves, in a cache whose rows all heads share: prefills and single tokens equal attention over keys and values that a
    head makes of its own (w_k, w_v), which head_linear moves to the other side of the products. `past`: calls of several tokens do so for what the
    cache held before, and attend to their own keys and values; both are merged."""
    for B, H, D, V, L, R, lengths, S, T, past, dtype in (
        (2, 4, 16, 24, 40, 8, (33, 1, 1, 1, 1, 1, 1, 1), 48, 40, False, "f32"),
        (2, 4, 16, 24, 40, 8, (12, 1, 12, 12, 1, 1), 48, 39, True, "f32"),
        (17, 6, 12, 20, 24, 8, (5, 1, 1), 8, 7, True, "f32"),
        (1, 32, 32, 32, 512, 64, (20, 1, 1), 1024, 22, False, "f32"),  # several programs share a token's heads, and on a GPU its keys
        (2, 32, 32, 32, 512, 64, (20, 1, 20), 1024, 41, True, "bf16"),
    ):
        functions = {}
        for tokens in sorted(set(lengths)):
            f = functions[tokens] = program.function(f"latent_b{B}_h{H}_l{L}_t{tokens}{'_past' * past}_{dtype}", dtype)
            q, q_shared = f.input("q", (B, tokens, H, D)), f.input("q_shared", (B, tokens, H, R))
            c, k_shared = f.input("c", (B, tokens, 1, L)), f.input("k_shared", (B, tokens, 1, R))
            w_k, w_v = f.input("w_k", (L, H * D)), f.input("w_v", (L, H * V))
            caches = [f.input(n, (B, S, 1, x.type.shape[3])) for n, x in (("c_cache", c), ("shared_cache", k_shared))]
            documents = f.input("documents", (B, tokens), "i32")
            latent, shared = (f.op("braid.attn.append", [cache, x, documents], cache.type) for cache, x in zip(caches, (c, k_shared)))
            rows = Type((B, tokens, H, L), dtype)
            absorbed = f.op("braid.head_linear", [q, w_k], rows, transposed=True)
            lse = Type((B, H, tokens), "f32")
            settings, merges = {"scale": (D + R) ** -0.5, "window": 0, "prefix": 0}, past and tokens > 1
            o, sums = causal(f, [absorbed, latent, latent, documents], [rows, lse], shared=[q_shared, shared], cache=True, past=merges, **settings)
            o = f.op("braid.head_linear", [o, w_v], Type((B, tokens, H, V), dtype))
            if merges:
                k, v = f.input("k", (B, tokens, H, D)), f.input("v", (B, tokens, H, V))
                own = causal(f, [q, k, v, documents], [o.type, lse], shared=[q_shared, k_shared], **settings)
                o, _ = f.op("braid.attn.merge", [*own, o, sums], [o.type, lse])
            f.output("o", o)
            f.output("c_new", latent)
            f.output("shared_new", shared)
        shapes = {"q": (B, T, H, D), "q_shared": (B, T, H, R), "c": (B, T, 1, L), "k_shared": (B, T, 1, R), "w_k": (L, H * D), "w_v": (L, H * V)}
        values = {n: rng.standard_normal(s) * (L**-0.5 if n[0] == "w" else 1) for n, s in shapes.items()}
        values = dict(zip(values, rounded(list(values.values()), dtype)))
        garbage = [np.where(rng.random((B, S, 1, n)) < 0.5, 1e3, -1e3) for n in (L, R)]

        def action(program, values=values, garbage=garbage, functions=functions, B=B, H=H, D=D, V=V, R=R, T=T, lengths=lengths, dtype=dtype):
            c = values["c"][:, :, 0]
            k, v = rounded([(c @ values["w_k"]).reshape(B, T, H, D), (c @ values["w_v"]).reshape(B, T, H, V)], dtype)
            (o, _), _ = attention_shared(values["q"], k, v, values["q_shared"], values["k_shared"], one_document(B, T), (D + R) ** -0.5)
            latent, shared = garbage  # what stood in the caches before must not matter
            pieces, begin = [], 0
            for tokens in lengths:
                part = {n: x[:, begin : begin + tokens] if n[0] != "w" else x for n, x in values.items()}
                part |= {n: x[:, begin : begin + tokens] for n, x in (("k", k), ("v", v)) if n in functions[tokens].inputs}
                out = program.call(functions[tokens], part | {"c_cache": latent, "shared_cache": shared, "documents": one_document(B, tokens, -begin)})
                pieces.append(out["o"])
                latent, shared, begin = out["c_new"], out["shared_new"], begin + tokens
            program.compare(f"latent: {H} heads of {values['c'].shape[3]}, {dtype}", {"o": np.concatenate(pieces, 1)}, {"o": o}, 6e-3 if dtype == "bf16" else 2e-6)

        program.then(action)


def add_softcap(program, rng):
    """Bounded scores, of rows and keys of every kind of tile; beside sinks; so large that most are at their bound."""
    for B, T, H, G, D, V, R, window, prefix, dtypes in (
        (2, 37, 4, 2, 16, 0, 0, 0, 0, ("f32", "f64", "bf16")),
        (1, 130, 8, 1, 64, 0, 0, 9, 0, ("f32", "bf16")),
        (2, 33, 3, 3, 20, 0, 0, 20, 31, ("f32",)),
        (1, 70, 2, 1, 128, 0, 0, 0, 0, ("bf16",)),
        (1, 70, 2, 2, 32, 48, 16, 0, 0, ("f32", "bf16")),
        (1, 70, 2, 1, 256, 0, 0, 40, 0, ("f32", "bf16")),  # Gemma's heads
    ):
        for dtype in dtypes:
            a = Attention(program, B, T, H, G, D, window, prefix, dtype, values=V, shared=R, sinks=D == 20, softcap=1.5)
            a.check("one document", rng, one_document(B, T, -prefix))
            a.check("packed", rng, documents_of([[-prefix, T // 4, T // 4 + 1, T - 3, T - 3]] * B, T))
            if dtype == "f32":
                a.check("large scores", rng, one_document(B, T, -prefix), size=2.0, gradients=2e-5)


def main():
    rng = np.random.default_rng(3)
    if sys.argv[1:2] == ["wide"]:
        wide = Program("attention-wide")
        add_wide(wide, rng, *[{"even": 0, "odd": 1}[word] for word in sys.argv[2:]])
        return wide.finish()
    program = Program("attention")
    add_packed(program, rng)
    add_room(program, rng)
    add_cache(program, rng)
    add_ring(program, rng)
    add_long_cache(program, rng)
    add_shared(program, rng)
    add_sinks(program, np.random.default_rng(4))
    add_softcap(program, np.random.default_rng(5))
    add_latent(program, rng)
    parts = Program("attention-parts", options=["--from-phase=scheduled"])
    add_parts(parts, rng)
    return program.finish() | parts.finish()


if __name__ == "__main__":
    sys.exit(main())
