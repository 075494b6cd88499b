"""Sums of gradients that travel while the backward goes on change nothing but when they are waited for.

A training step with sums that are awaited where their layer ends (--reductions-in-flight=0), with those of one layer and of some bytes under way: every output and every tensor on every rank has the same bits. What the list of commands says: how far behind its
collective a wait stands, in the next iteration of the repeat or behind it; and what that costs in memory.
Usage: late_sums.py MODEL.json; needs braid-compile and braid-run in PATH.
"""
import json
import os
import pathlib
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "numerics"))
import numpy as np

from exact import Mesh
from harness import Compiled, Report

LENGTH, ROWS = 64, 4
SOME = 300000  # bytes, less than a layer's
MESHES = [("dp2-sp2", 4, ["--mesh=dp=2,sp=2"]), ("dp2-ep2-1A1M", 2, ["--mesh=dp=2,ep=2", "--pipeline=1A1M", "--overlap-degree=2"])]


def waits_in_front(phases):
    """How many sums of the training step's repeats are awaited in the iteration after theirs, and how many sums there are."""
    (text,) = pathlib.Path(phases).glob("*-commands.mlir")
    lines = text.read_text().splitlines()
    begin = next(i for i, line in enumerate(lines) if "cmd.entry @train_step" in line)
    late = sums = depth = 0
    waited = set()  # in this repeat so far
    event = None
    for line in lines[begin + 1 :]:
        if "cmd.entry" in line:
            break
        if "cmd.repeat" in line:
            depth, waited = depth + 1, set()
        elif line.strip() == "}":
            depth -= 1
        elif found := re.search(r"cmd\.wait (\d+)$", line.strip()):
            waited.add(found.group(1))
        elif "cmd.collective reduce_scatter" in line and depth > 0:
            event = True
        elif event and (found := re.search(r"cmd\.record (\d+) on", line)):
            sums, late, event = sums + 1, late + (found.group(1) in waited), None
    return late, sums


def main(path):
    text = "\n".join(line for line in pathlib.Path(path).read_text().splitlines() if not line.strip().startswith("//"))
    description = json.loads(text) | {"dtype": "f64"}
    description["num_layers"] = 2 * len(description["layer_pattern"])  # a repeat
    report = Report("late-sums")
    rng = np.random.default_rng(7)
    documents = max(description.get("max_documents", 1), 1)
    batch = {"tokens": rng.integers(0, description["vocab_size"], (ROWS, LENGTH)), "labels": rng.integers(0, description["vocab_size"], (ROWS, LENGTH)),
             "cu_seqlens": np.tile([0] + [LENGTH] * documents, (ROWS, 1))}
    batch = {name: array.astype(np.int32) for name, array in batch.items()}
    with report:
        source = os.path.join(report.folder, "model.json")
        pathlib.Path(source).write_text(json.dumps(description))
        for name, ranks, flags in MESHES:
            flags = [f"--batch={ROWS}", f"--seq-len={LENGTH}", *flags]
            found = {}
            for label, bytes in (("none", 0), ("some", SOME), ("a layer's", None)):
                own = flags + ([] if bytes is None else [f"--reductions-in-flight={bytes}"])
                phases = os.path.join(report.folder, f"{name}-{len(found)}-phases")
                mesh = Mesh(report.folder, source, f"{name}-{len(found)}", ranks, [*own, f"--dump-phases-to={phases}"])
                memory = Compiled(mesh.path).info()["metadata"]
                found[label] = (mesh.step(batch), int(memory["memory.train_step.planned_bytes"]), *waits_in_front(phases))
            expected, least, none, sums = found["none"]
            report.line(sums > 0, f"{name}", f"{sums} sums in repeats, {none} awaited late when none may be under way")
            for label in ("some", "a layer's"):
                pieces, bytes, late, _ = found[label]
                changed = [n for n in expected if any(a.tobytes() != b.tobytes() for a, b in zip(expected[n], pieces[n]))]
                report.line(not changed, f"{name}, {label} under way", f"{changed[0]} changed" if changed else "the same bits")
                bounded = bytes - least <= 2 * SOME if label == "some" else True  # of a repeat, and of what is around it
                report.line(bytes >= least and bounded, f"{name}, {label}: memory", f"{bytes} bytes planned, {least} when none is under way")
                enough = late > none if label != "some" else none <= late <= found["a layer's"][2]
                report.line(enough, f"{name}, {label}: order", f"{late} of {sums} sums are awaited in the next iteration")
    return report.finish()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
