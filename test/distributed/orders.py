"""The order of slices changes no bit: every pipeline, and orders that nobody would choose, train to the same losses, moments and parameters,
as long as tokens are cut alike. The program without slices has the same routes, and the same first loss to 5e-7: the library's products may round otherwise for
another number of rows, on some processors in all, on others in few.

Usage: orders.py MODEL.json [--degree N] [--shuffles N] [--mesh AXES --ranks N]; needs braid-compile, braid-opt and braid-run in PATH. Slices are whole chunks.
"""
import argparse
import pathlib
import random
import re
import sys
import tempfile

import numpy as np

import ranks_equal
from ranks_equal import SHAPE, run, train

CHUNKS = ["--chunk-size=16"]
STEPS = 3
LIMIT = 5e-7


def shuffled(arguments, folder, name, seed):
    """Slices as those of 1A1M, tasks in any order: what a task reads comes before it whatever the list says."""
    sharded, decided, scheduled, program = (folder / f"{name}.{kind}" for kind in ("0.mlir", "1.mlir", "2.mlir", "braid"))
    run("braid-compile", arguments.model, *SHAPE, f"--mesh={arguments.mesh}", "--to-phase=sharded", "-o", sharded)
    run("braid-opt", sharded, f"--braid-decide-schedule=pipeline=1A1M overlap-degree={arguments.degree}", "-o", decided)
    draw = random.Random(seed)

    def shuffle(match):
        tasks = match[1].split(", ")
        draw.shuffle(tasks)
        return f"order = [{', '.join(tasks)}]"

    text, orders = re.subn(r'order = \[("[^]]*")\]', shuffle, decided.read_text())
    assert orders > 1, "no orders to shuffle"
    decided.write_text(text)
    run("braid-opt", decided, "--braid-expand-slices", "--braid-weave", "--braid-add-into-gradients", "--braid-verify-phase=phase=scheduled", "-o", scheduled)
    run("braid-compile", scheduled, *CHUNKS, "-o", program)
    return program


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--degree", type=int, default=4)
    parser.add_argument("--pipelines", default="aAaM,cross-block")
    parser.add_argument("--cuts", default="moe,best", help="pipelines that cut as they like")
    parser.add_argument("--shuffles", type=int, default=2)
    parser.add_argument("--mesh", default="dp=2,ep=2")
    parser.add_argument("--ranks", type=int, default=2)
    arguments = parser.parse_args()
    failures = 0

    def say(good, text):
        nonlocal failures
        failures += not good
        print(f"{'ok  ' if good else 'FAIL'} {text}")

    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        data = ranks_equal.documents(folder)

        def result(name, program):
            (folder / name).mkdir()
            log, first, last = train(program, arguments.ranks, data, STEPS, folder / name)
            return {"loss": [line["loss"] for line in log], "norm": [line["grad_norm"] for line in log],
                    "counts": [line.get("expert_counts") for line in log]}, first, last

        def compiled(name, *flags):
            program = folder / f"{name}.braid"
            run("braid-compile", arguments.model, "-o", program, *SHAPE, *CHUNKS, f"--mesh={arguments.mesh}", *flags)
            return result(name, program)

        degree = f"--overlap-degree={arguments.degree}"
        turns = compiled("1A1M", "--pipeline=1A1M", degree)
        others = {name: compiled(name, f"--pipeline={name}", degree) for name in arguments.pipelines.split(",")}
        others |= {f"shuffle {seed}": result(f"shuffle-{seed}", shuffled(arguments, folder, f"shuffle-{seed}", seed))
                   for seed in range(arguments.shuffles)}
        for name, (log, first, last) in others.items():
            for what, a, b in (("of step 1", first, turns[1]), (f"of step {STEPS}", last, turns[2])):
                differ = [key for key in b if not np.array_equal(a[key], b[key])]
                say(a.keys() == b.keys() and not differ, f"{name:12} moments and parameters {what}: {len(differ)} of {len(b)} tensors differ "
                    + ", ".join(differ[:3]))
            say(log == turns[0], f"{name:12} losses, gradient norms and routes of {STEPS} steps")

        # Cut otherwise, or not at all: the first loss and the routes. Gradients are sums in another order. `best` may cut or not.
        for name, flags in [("none", [])] + [(name, [f"--pipeline={name}", degree]) for name in arguments.cuts.split(",") if name]:
            log = compiled(name, *flags)[0]
            losses = [log["loss"][0], turns[0]["loss"][0]]
            say(abs(losses[0] - losses[1]) <= LIMIT * losses[1], f"{name:12} first loss {losses[0]!r} and {losses[1]!r}")
            say(log["counts"][0] == turns[0]["counts"][0], f"{name:12} routes of the first step")
    print(f"{failures} failed")
    return failures > 0


if __name__ == "__main__":
    sys.exit(main())
