"""Collectives along every dimension, compiled and executed on four ranks (dp=2, tp=2, and pp=2, tp=2 with pairs of stages), against NumPy. Values are small whole numbers: exact.

Usage: collectives.py [LAUNCHER..], where LAUNCHER starts the ranks ("mpirun -n 4"); without one they are threads. Needs braid-compile and
braid-run in PATH, test/numerics in PYTHONPATH.
"""
import itertools
import pathlib
import sys
import tempfile

import numpy as np

from harness import Function, Type, loaded, run, stored, text

# Mesh, and by axis the ranks that a rank shares it with, by coordinate.
MESHES = {
    "dp": ({"pp": 1, "dp": 2, "sp": 1, "tp": 2}, {"pp": 1, "edp": 4, "ep": 1},
           {"dp": lambda r: [r % 2, r % 2 + 2], "tp": lambda r: [r // 2 * 2, r // 2 * 2 + 1], "dp*tp": lambda r: [0, 1, 2, 3]}),
    "pp": ({"pp": 2, "dp": 1, "sp": 1, "tp": 2}, {"pp": 2, "edp": 2, "ep": 1},
           {"pp": lambda r: [r % 2, r % 2 + 2], "pp[0,1]": lambda r: [r % 2, r % 2 + 2], "pp[1,0]": lambda r: [r % 2 + 2, r % 2]}),
}
SHAPE = (4, 8, 12)


def label_of(axis):
    return "".join(c if c.isalnum() else "_" for c in axis)


def cases(members_of):
    """(name, op, dtype, attributes, local result of rank r from all ranks' x)."""
    for axis, dim, dtype in itertools.product(members_of, range(3), ("f32", "bf16", "i32")):
        ranks = len(members_of[axis](0))
        whole, part = (tuple(n * f if i == dim else n for i, n in enumerate(SHAPE)) for f in (ranks, 1))
        label = f"{label_of(axis)}_{dim}_{dtype}"
        yield (f"gather_{label}", "all_gather", dtype, whole, {"axis": text(axis), "dim": dim},
               lambda xs, r, axis=axis, dim=dim: np.concatenate([xs[m] for m in members_of[axis](r)], dim))
        yield (f"scatter_{label}", "reduce_scatter", dtype, tuple(n // ranks if i == dim else n for i, n in enumerate(part)),
               {"axis": text(axis), "dim": dim}, lambda xs, r, axis=axis, dim=dim: np.split(
                   sum(xs[m] for m in members_of[axis](r)), len(members_of[axis](r)), dim)[members_of[axis](r).index(r)])
    for axis in members_of:
        yield (f"sum_{label_of(axis)}", "all_reduce", "f32", SHAPE, {"axis": text(axis)},
               lambda xs, r, axis=axis: sum(xs[m] for m in members_of[axis](r)))
        for units in ((), ("cyclic",), ("reverse",), ("cyclic", "reverse")):
            def shifted(xs, r, axis=axis, units=units):
                members = members_of[axis](r)
                at = members.index(r) + (1 if "reverse" in units else -1)
                if not 0 <= at < len(members) and "cyclic" not in units:
                    return np.zeros_like(xs[0])
                return xs[members[at % len(members)]]
            yield (f"shift_{label_of(axis)}_{'_'.join(units)}", "shift", "f32", SHAPE,
                   {"axis": text(axis), **{unit: "unit" for unit in units}}, shifted)


def failures(launcher, dense, expert, members):
    f = Function("all", "f32")
    inputs = {dtype: f.input(f"x_{dtype}", SHAPE, dtype) for dtype in ("f32", "bf16", "i32")}
    listed = list(cases(members))
    for name, op, dtype, shape, attributes, _ in listed:
        f.output(name, f.op(f"braid.comm.{op}", [inputs[dtype]], Type(shape, dtype), **attributes))
    def view(axes):
        return "[" + ", ".join(f'{{axis = "{axis}", size = {size} : i64}}' for axis, size in axes.items()) + "]"

    module = f'module attributes {{braid.mesh = {{dense = {view(dense)}, expert = {view(expert)}}}, braid.phase = "sharded"}} {{\n{f.mlir()}\n}}\n'
    failed = 0
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        (folder / "all.mlir").write_text(module)
        run(["braid-compile", str(folder / "all.mlir"), "-o", str(folder / "all.braid")])
        random = np.random.default_rng(3)
        xs = [random.integers(-8, 9, SHAPE) for _ in range(4)]
        for dtype in inputs:
            for r, x in enumerate(xs):
                np.save(folder / f"x_{dtype}{r}.npy", stored(x, dtype))
        command = ["braid-run", "call", str(folder / "all.braid"), "@all", "--threads=1"]
        for dtype in inputs:
            command += ["--input", f"x_{dtype}={folder}/x_{dtype}{{rank}}.npy"]
        for case in listed:
            command += ["--output", f"{case[0]}={folder}/{case[0]}.{{rank}}.npy"]
        run(launcher + command if launcher else command + ["--ranks=4"])
        for name, _, dtype, _, _, expected in listed:
            for r in range(4):
                value = loaded(np.load(folder / f"{name}.{r}.npy"), dtype)
                wanted = expected(xs, r)
                if value.shape != wanted.shape or not np.array_equal(value, wanted):
                    failed += 1
                    print(f"FAIL {name} on rank {r}: {value.shape}, expected {wanted.shape}")
    print(f"{len(listed)} collectives, {failed} failed")
    return failed


def main(launcher):
    return 1 if sum(failures(launcher, *mesh) for mesh in MESHES.values()) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
