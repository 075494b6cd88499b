"""Sequences that generation continues at a time are apart, bit for bit: python3 check_sequences.py f32|bf16 [bare|full|experts]

A program of `decode_batch` rows with every mixer that braid-compile knows (check_leaks.py lists them). Rows are given tokens by prefill_32 (all of a bucket,
a part, none) and decode_5 (one, none) in an order of their own. Then

    a row's logits and caches       have the bits that they have when no other row is given any, and are the same in another place among the rows, within the
                                    limit below: a library may sum the last rows of a product in another order
    a row without tokens            keeps every bit of its caches
    a new sequence                  has the bits it has on new caches, whatever the row held before
    logits                          are those of a program for one sequence, within 1e-4 (bf16: 5e-2) of their size

With `experts`, softmax attention and gated linear attention with experts in every layer: an expert's rows come from all sequences, and a library sums
products of few and of many rows in another order. There bits are within the same limits.
"""

import json
import os
import sys

import numpy as np

from check_leaks import Source, bits, description
from compiled_model import perturbed
from harness import Compiled, Report, loaded, run, stored, tool

ROWS = 5
# What each row is given by each call: (entry, tokens). Row 3 begins anew at the third call, row 4 at the last but one.
CALLS = [
    ("prefill_32", [20, 32, 0, 9, 1]),
    ("decode", [1, 0, 1, 1, 0]),
    ("prefill_32", [0, 7, 3, 5, 0]),
    ("decode", [1, 1, 1, 0, 1]),
    ("decode", [0, 0, 0, 1, 1]),
    ("decode", [1, 0, 1, 1, 1]),
]
ANEW = {(2, 3), (4, 4)}
LIMITS = {"f32": 1e-4, "bf16": 5e-2}
EXPERTS = {"kind": "moe", "num_experts": 6, "top_k": 2, "expert_hidden": 8}


class Model:
    def __init__(self, report, model, rows):
        path = os.path.join(report.folder, f"sequences-{rows}")
        with open(path + ".json", "w", encoding="utf-8") as file:
            json.dump(model | {"decode_batch": rows}, file)
        run([tool("braid-compile"), path + ".json", "-o", path + ".braid"])
        self.rows, self.program = rows, Compiled(path + ".braid")
        self.tensors = {t["name"]: t for t in self.program.info()["tensors"]}
        self.caches = [n for n, t in self.tensors.items() if t["role"] == "cache"]

    def parameters(self, rng):
        """Files of values: both programs have the same parameters."""
        names = {n: t["dtype"] for n, t in self.tensors.items() if t["role"] == "parameter"}
        initial = self.program.call("init", {"seed": np.array([5], np.int64)}, list(names))
        values = perturbed({n: loaded(a, names[n]) for n, a in initial.items()}, rng)
        return {n: self.program.store(stored(a, names[n])) for n, a in values.items()}

    def call(self, entry, inputs, caches, tokens, positions, counts):
        entry = entry if entry != "decode" else f"decode_{self.rows}"
        cu_seqlens = np.array([[-p, n] for p, n in zip(positions, counts)], np.int32)
        values = {"tokens": np.array(tokens, np.int32), "cu_seqlens": cu_seqlens}
        out = self.program.call(entry, inputs | caches | values, ["logits", *self.caches])
        return out.pop("logits"), out

    def row(self, name, cache, row):
        """Row `row` of a cache [layers, rows, ..] or [rows, ..]."""
        of_layers = len(self.tensors[name]["layers"]) > 1 or cache.shape[0] != self.rows
        return cache[:, row] if of_layers else cache[row]

    def play(self, inputs, texts, places, only=None):
        """Texts by row through CALLS, in the rows `places`; `only`: one of them. -> per call {row: logits}, caches before and after."""
        length = {"prefill_32": 32, "decode": 1}
        positions, fed, caches, history = [0] * self.rows, [0] * ROWS, {}, []
        for number, (entry, counts) in enumerate(CALLS):
            tokens, given = np.zeros((self.rows, length[entry]), int), [0] * self.rows
            for text, count in enumerate(counts):
                if only not in (None, text):
                    continue
                place = places[text]
                if (number, text) in ANEW:
                    positions[place] = 0
                tokens[place, :count] = texts[text][fed[text] : fed[text] + count]
                given[place] = count
                fed[text] += count
            logits, after = self.call(entry, inputs, caches, tokens, positions, given)
            wanted = {text: logits[places[text]] for text, count in enumerate(counts) if given[places[text]] and only in (None, text)}
            history.append((wanted, caches, after))
            positions = [p + n for p, n in zip(positions, given)]
            caches = after
        return history


class Comparison:
    """Elements that are not the same: bits, or (near) those of tensors that are further apart than the limit."""

    def __init__(self, near, limit):
        self.near, self.limit = near, limit

    def __call__(self, a, b, dtype):
        if not self.near:
            return int((bits(a) != bits(b)).sum())
        return a.size if self.distance(a, b, dtype) > self.limit else 0

    def distance(self, a, b, dtype):
        a, b = loaded(a, dtype).astype(float), loaded(b, dtype).astype(float)
        finite = np.all(np.isfinite(a)) and np.all(np.isfinite(b))
        return np.linalg.norm(a - b) / max(np.linalg.norm(b), 1e-30) if finite else np.inf


def described(report, dtype, parts):
    if parts != "experts":
        model = description(Source(report.folder, dtype, parts).mixers(), dtype)
        return model | {"ffns": {"F": model["ffns"]["F"] | {"token_shift": True}}}  # which keeps a token, too
    heads = {"heads": 2, "head_dim": 8}
    model = description({"A": {"kind": "attention"} | heads, "G": {"kind": "gla"} | heads}, dtype)
    return model | {"num_layers": 4, "ffns": {"E": EXPERTS}}


def main(dtype, parts=""):
    report = Report("-".join(filter(None, ("sequences", dtype, parts))))
    with report:
        rng = np.random.default_rng(17)
        model = described(report, dtype, parts)
        many, one = Model(report, model, ROWS), Model(report, model, 1)
        same, near = Comparison(parts == "experts", LIMITS[dtype]), Comparison(True, LIMITS[dtype])
        inputs = many.parameters(rng)
        texts = [rng.integers(0, model["vocab_size"], 80) for _ in range(ROWS)]
        straight, moved = list(range(ROWS)), [2, 4, 3, 0, 1]
        together, turned = many.play(inputs, texts, straight), many.play(inputs, texts, moved)
        caches = {n: many.tensors[n]["dtype"] for n in many.caches}
        logits = many.tensors["logits"]["dtype"]

        kept = 0
        for (_, before, after), (_, counts) in zip(together, CALLS):
            for text, count in enumerate(counts):
                if count == 0 and before:
                    kept += sum(int((bits(many.row(n, before[n], text)) != bits(many.row(n, after[n], text))).sum()) for n in caches)
        report.line(kept == 0 and len(caches) > 0, "rows without tokens", f"{kept} elements of {len(caches)} caches changed")

        for text in range(ROWS):
            alone, single = many.play(inputs, texts, straight, text), one.play(inputs, texts, [0] * ROWS, text)
            beside, elsewhere, worst, count = 0, 0, 0.0, 0
            for (wanted, _, _), *others in zip(together, alone, turned, single):
                if text not in wanted:
                    continue
                by_itself, in_another_row, by_another = (other[0][text] for other in others)
                beside += same(wanted[text], by_itself, logits)
                elsewhere += near(wanted[text], in_another_row, logits)
                worst = max(worst, same.distance(wanted[text], by_another, logits))
                count += 1
            for name, dtype_of in caches.items():
                last = [many.row(name, history[-1][2][name], row) for history, row in ((together, text), (alone, text), (turned, moved[text]))]
                beside += same(last[0], last[1], dtype_of)
                elsewhere += near(last[0], last[2], dtype_of)
            report.line(beside == 0 and count > 0, f"row {text} beside others", f"{beside} elements differ, {count} logits")
            report.line(elsewhere == 0, f"row {text} in another place", f"{elsewhere} elements are further away")
            report.line(worst < LIMITS[dtype], f"row {text} against a program for one", f"{worst:.2g} of {LIMITS[dtype]:g}")

        # Row 4 begins anew at call 4 on what it held; here on caches that were never used.
        fresh, position = {}, 0
        for call in range(4, len(CALLS)):
            tokens = np.zeros((ROWS, 1), int)
            tokens[4] = texts[4][sum(counts[4] for _, counts in CALLS[:call])]
            out, fresh = many.call("decode", inputs, fresh, tokens, [0] * 4 + [position], [0] * 4 + [1])
            position += 1
            differ = same(out[4], together[call][0][4], logits)
            report.line(differ == 0, f"a new sequence in a used row, token {position}", f"{differ} logits differ")
    return report.finish()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
