"""A training that begins with the weights of another one: `--init-from`.

Its first step has so small a learning rate that weights move by 1e-14 at most, so its checkpoint must hold the other's (a bf16 parameter
without the rest of its master would be 1e-3 of itself away), whatever the types and meshes of both; and moments of one gradient alone.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

from ranks_equal import checkpoint, run

RATE, MOVED = 1e-12, 1e-11  # after one of 100 steps of warm-up the rate is a hundredth of that

model, holder = pathlib.Path(sys.argv[1]), tempfile.TemporaryDirectory()
folder = pathlib.Path(holder.name)


def tokens(name, seed, count):
    np.random.default_rng(seed).integers(0, 32, count).astype("<u2").tofile(folder / name)
    return folder / name


first, second = tokens("first.u16", 1, 3000), tokens("second.u16", 2, 1500)
programs = {}
for dtype in ("f32", "bf16"):
    for mesh in ("", "dp=2,ep=2", "tp=2"):
        programs[dtype, mesh] = folder / f"{dtype}-{mesh or 'alone'}.braid"
        run("braid-compile", model, "-o", programs[dtype, mesh], "--dtype", dtype, "--opt-level=0", *([f"--mesh={mesh}"] if mesh else []))


def train(kind, data, target, *arguments):
    ranks = 2 if kind[1] else 1
    command = ["braid-run", "train", programs[kind], "--data", data, "--threads=1", f"--ranks={ranks}", "--checkpoint-dir", folder / target]
    return subprocess.run([str(c) for c in [*command, *arguments]], capture_output=True, text=True)


def newest(target):
    return checkpoint(folder / target / (folder / target / "latest").read_text().strip())


def compare(kind, source, target, before):
    """What is wrong with the checkpoint of one step that began with the weights `before`."""
    result = train(kind, second, target, "--init-from", folder / source, "--steps=1", f"--lr={RATE}", "--min-lr=0", "--seed=7")
    if result.returncode:
        return result.stderr
    if f"begun with the weights of {folder / source} (step " not in result.stderr:
        return f"does not say what it began with: {result.stderr}"
    after = newest(target)
    if set(after) != set(before):
        return f"other tensors: {set(after) ^ set(before)}"
    moved = False
    for name, value in after.items():
        if name.endswith(".first"):
            gradient, square = value / 0.1, after[name[:-6] + ".second"] / 0.05
            moved |= bool(np.abs(gradient).max() > 0)
            if not np.allclose(gradient ** 2, square, rtol=1e-2, atol=1e-12):
                return f"{name}: moments of more than one gradient"
        elif not name.endswith(".second") and np.abs(value - before[name]).max() > MOVED:
            return f"{name}: {np.abs(value - before[name]).max():.3g} away from the weights it began with"
    return "" if moved else "no gradient at all"


failed = 0
for begun in (("f32", ""), ("bf16", "tp=2")):
    source = f"{begun[0]}-source"
    result = train(begun, first, source, "--steps=12", "--lr=0.01", "--save-every=6")
    assert result.returncode == 0, result.stderr
    before = newest(source)
    for kind in programs:
        wrong = compare(kind, source, f"{source}-{'-'.join(kind)}", before)
        failed += bool(wrong)
        print(f"{begun[0]} {begun[1] or 'alone'} -> {kind[0]} {kind[1] or 'alone'}:", wrong or "equal")

# A job that is started again goes on; a step may be named; and what cannot be is said.
kind, old = ("f32", ""), folder / "f32-source"
again = train(kind, second, "f32-source-f32-", "--init-from", old, "--steps=2", "--resume")
print("again:", again.stderr, again.stdout)
step = train(kind, second, "of-a-step", "--init-from", old / "step-00000006", "--steps=1")
print("step:", step.stderr, step.stdout)
print("error:", train(kind, second, "none", "--init-from", folder / "nowhere", "--steps=1").stderr)
print("error:", train(kind, second, "of-a-step", "--init-from", old, "--steps=20").stderr)
print("error:", train(kind, first, "f32-source", "--init-from", old, "--resume-step=6").stderr)
wide = json.loads("\n".join(line for line in model.read_text().splitlines() if not line.startswith("//")))
wide["ffns"]["F"]["hidden"] = 48
(folder / "wide.json").write_text(json.dumps(wide))
run("braid-compile", folder / "wide.json", "-o", folder / "wide.braid", "--opt-level=0")
programs["wide", ""] = folder / "wide.braid"
print("error:", train(("wide", ""), first, "wide", "--init-from", old, "--steps=1").stderr)
print(f"{failed} failed")
