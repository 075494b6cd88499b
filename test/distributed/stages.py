"""Trainings on stages of a pipeline: steps, checkpoints and evaluations are those of one rank with the same micro-batches.

A checkpoint is one whatever wrote it: each program goes on from the other's, and both evaluate both. Batches that are added up outside of a program, too;
and draws, which count layers from the first stage on.
Usage: stages.py MODEL.json DRAWN.json; needs braid-compile and braid-run in PATH.
"""
import collections
import json
import pathlib
import re
import shutil
import sys
import tempfile

import numpy as np

from ranks_equal import checkpoint, documents, run

STEPS, failures = 4, 0


def check(what, good, detail=""):
    global failures
    failures += not good
    print(f"{'ok  ' if good else 'FAIL'} {what} {detail}")


def train(program, ranks, data, place, *flags):
    """-> what each step of this run says."""
    metrics = place.with_suffix(".jsonl")
    metrics.unlink(missing_ok=True)
    run("braid-run", "train", program, "--data", data, "--steps", STEPS, "--ranks", ranks, "--threads", 1, "--checkpoint-dir", place, "--metrics", metrics, "--seed", 3,
        "--warmup", 1, "--lr", 3e-4, "--save-every", 2, "--keep", 4, *flags)
    return [step for step in map(json.loads, metrics.read_text().splitlines()) if "loss" in step]


def traced(program, ranks, trace, data):
    """-> how many commands of a step there are by rank, kind and micro-batch."""
    run("braid-run", "train", program, "--data", data, "--steps", 1, "--ranks", ranks, "--threads", 1, "--trace", trace, "--trace-steps", 1, "--warmup", 1)
    events = [e for e in json.loads(trace.read_text())["traceEvents"] if e["ph"] == "X" and "micro_batch" in e["args"]]
    return collections.Counter((e["pid"], e["cat"], e["args"]["micro_batch"]) for e in events)


def step(place, number):
    return checkpoint(place / f"step-{number:08d}")




def evaluated(program, ranks, place, data):
    text = run("braid-run", "eval", program, "--checkpoint", place, "--data", data, "--ranks", ranks, "--threads", 1)
    return float(re.search(r"loss +([0-9.]+)", text).group(1))


def main(model, drawn):
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        data = documents(folder)

        def compiled(name, description, *flags):
            run("braid-compile", description, "-o", folder / f"{name}.braid", "--batch=4", "--seq-len=64", *flags)
            return folder / f"{name}.braid"

        def alike(what, own, other):
            for key in ("loss", "grad_norm", "aux_loss"):
                off = max(abs(a[key] - b[key]) / max(abs(b[key]), 1e-12) for a, b in zip(own, other, strict=True) if key in b)
                check(f"{what}: {key}", off < 2e-5, f"{off:.1e}")
            for key in ("expert_counts", "expert_dropped"):
                check(f"{what}: {key}", [a.get(key) for a in own] == [b.get(key) for b in other])

        def near(what, own, other):
            begin = step(folder / "one", 2)
            check(f"{what}: names", set(own) == set(other), set(own) ^ set(other))
            # What a step of AdamW makes of a gradient near zero is not what rounding leaves alone: the distance over how far weights went.
            off = {name: np.linalg.norm(own[name] - other[name]) / max(np.linalg.norm(other[name] - begin[name]), 1e-9) for name in other}
            worst = max(off, key=off.get)
            check(f"{what}: weights and moments", off[worst] < 2e-2, f"{worst} {off[worst]:.1e}")

        one = compiled("one", model, "--micro-batches=4")
        alone = train(one, 1, data, folder / "one")
        for name, ranks, mesh, *flags in (("pp2", 2, "pp=2"), ("all", 4, "pp=4", "--head-stages=all"), ("pp4", 4, "pp=4", "--head-stages=last")):
            staged = compiled(name, model, f"--mesh={mesh}", "--micro-batches=4", *flags)
            what = " ".join((mesh, *flags))
            alike(what, train(staged, ranks, data, folder / name), alone)
            near(what, step(folder / name, STEPS), step(folder / "one", STEPS))
            # Each goes on from the other's second step.
            for goes, program, count, source in ((f"{what} goes on alone", one, 1, name), (f"{what} goes on from one", staged, ranks, "one")):
                place = folder / "on"
                shutil.rmtree(place, ignore_errors=True)
                shutil.copytree(folder / source / "step-00000002", place / "step-00000002")
                (place / "latest").write_text("step-00000002\n")
                alike(goes, train(program, count, data, place, "--resume"), alone[2:])
                near(goes, step(place, STEPS), step(folder / "one", STEPS))
            losses = [evaluated(program, count, folder / source, data) for source in ("one", name) for program, count in ((one, 1), (staged, ranks))]
            check(f"{what}: evaluations", max(losses) - min(losses) < 2e-4, losses)

        # A trace says which micro-batch a command is for: of each stage as many of one as of the other.
        told = traced(staged, 4, folder / "trace.json", data)
        for rank in range(4):
            found = [told[rank, kind, m] for kind in ("launch", "gemm", "collective") for m in range(4)]
            check(f"pp=4: a trace of stage {rank} has all micro-batches", min(found) > 0 and (rank, "launch", 4) not in told, found)

        # Gradients of weights that wait are the same products.
        for head in ("last", "all"):
            soon, late = (compiled(f"{order}-{head}", model, "--mesh=pp=4", "--micro-batches=4", f"--head-stages={head}", f"--stage-order={order}") for order in ("1F1B", "ZB-H1"))
            alike(f"ZB-H1, head on {head}", train(late, 4, data, folder / f"late-{head}"), train(soon, 4, data, folder / f"soon-{head}"))
            own, other = step(folder / f"late-{head}", STEPS), step(folder / f"soon-{head}", STEPS)
            check(f"ZB-H1, head on {head}: every bit of weights and moments", set(own) == set(other) and all(np.array_equal(own[name], other[name]) for name in own))

        flags = ("--batch=2", "--micro-batches=2", "--accumulation-steps=2")
        expected = train(compiled("sums", model, *flags[1:]), 1, data, folder / "sums", flags[2])
        # Two steps: the third's gradient is one that rounding turns by 2e-3 (so do --opt-level=0 and 2 of one rank).
        own = train(compiled("sums2", model, "--mesh=pp=2", *flags[1:]), 2, data, folder / "sums2", flags[2])
        alike("pp=2, two batches a step", own[:2], expected[:2])

        expected = train(compiled("draws", drawn, "--micro-batches=2"), 1, data, folder / "draws")
        check("some rows are dropped", any(sum(map(sum, line["expert_dropped"])) for line in expected))
        alike("pp=2, draws", train(compiled("draws2", drawn, "--mesh=pp=2", "--micro-batches=2"), 2, data, folder / "draws2"), expected)
    print(f"{failures} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
