"""A prompt in two calls of many tokens, then a token: in double precision logits on several ranks are those of one rank.

Usage: latent_prefill.py MODEL.json FLAGS..: each of FLAGS (--mesh=sp=2,ep=2) a program; needs braid-compile and braid-run in PATH.
"""

import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "numerics"))
import numpy as np

from harness import Compiled, Report, run, tool

CALLS = ((64, 61), (64, 64), (1, 1))  # tokens of a call, and of these no padding


def logits(folder, model, number, flags, tokens):
    """Behind every call, as each rank has them."""
    path = os.path.join(folder, f"{number}.braid")
    run([tool("braid-compile"), model, "-o", path, "--dtype=f64", "--batch=4", "--seq-len=64", *flags])
    mesh = Compiled(path).info()["mesh"]
    ranks = int(np.prod([axis["size"] for axis in mesh["dense"]], dtype=int))
    begin, lines = 0, []
    for call, (room, count) in enumerate(CALLS):
        row = np.zeros((1, room), np.int32)
        row[0, :count] = tokens[begin : begin + count]
        file = lambda name, rank="{rank}": os.path.join(folder, f"{number}-{call}-{name}-{rank}.npy")
        for rank in range(ranks):
            np.save(file("tokens", rank), row)
            np.save(file("cu_seqlens", rank), np.array([[-begin, count]], np.int32))
        entry = f"prefill_{room}" if room > 1 else "decode_1"
        lines.append(json.dumps({"function": entry, "inputs": {n: file(n) for n in ("tokens", "cu_seqlens")}, "outputs": {"logits": file("logits")}}))
        begin += count
    calls = os.path.join(folder, f"{number}.jsonl")
    with open(calls, "w", encoding="utf-8") as out:
        out.write("\n".join(lines))
    run([tool("braid-run"), "call", path, "--calls", calls, "--ranks", str(ranks), "--threads", "1", "--seed", "5"])
    return [[np.load(os.path.join(folder, f"{number}-{call}-logits-{rank}.npy")) for rank in range(ranks)] for call in range(len(CALLS))]


def main(model, *variants):
    report = Report("latent-prefill")
    tokens = np.random.default_rng(3).integers(0, 256, sum(count for _, count in CALLS))
    with report:
        expected = logits(report.folder, model, 0, [], tokens)
        for number, flags in enumerate(variants, 1):
            for (room, _), found, (wanted,) in zip(CALLS, logits(report.folder, model, number, flags.split(), tokens), expected):
                whole = np.concatenate(found, -1) if found[0].shape != wanted.shape else found[0]
                report.compare(f"{flags}: {room} tokens", {"logits": whole}, {"logits": wanted}, 1e-12)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
