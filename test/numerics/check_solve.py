"""Triangular systems as the threads of a block solve them, against NumPy: whole blocks of rows and what is left of them, down and up.

    check_solve.py          (braid-compile and braid-run of test/emulator/cuda)
"""

import sys

import numpy as np

from harness import Type
from written_kernels import Kernels, launch

ROUNDING = {"f32": 2e-6, "f64": 1e-14}


def add(program, rng, size, columns, dtype, up):
    name = f"solve_{size}x{columns}_{dtype}{'_up' if up else ''}"
    square, wide = f"{size}x{size}x{dtype}", f"{size}x{columns}x{dtype}"
    program.kernel(
        name,
        {"a": square, "b": wide, "x": wide},
        f"""    %i = tile.program : index
    %av = tile.load %a[%c0, %c0] {{dims = array<i64: 0, 1>}} : memref<{square}>, vector<{square}>
    %bv = tile.load %b[%c0, %c0] {{dims = array<i64: 0, 1>}} : memref<{wide}>, vector<{wide}>
    %s = tile.solve %av, %bv {"{transpose}" if up else ""} : vector<{square}>, vector<{wide}>
    tile.store %s, %x[%c0, %c0] {{dims = array<i64: 0, 1>}} : vector<{wide}>, memref<{wide}>""",
        scalars=(),
    )
    f = program.function(f"call_{name}", dtype)
    shapes = {"a": (size, size), "b": (size, columns)}
    given = {n: f.input(n, shape, dtype) for n, shape in shapes.items()}
    f.outputs = launch(f, name, (1,), given, {"x": Type((size, columns), dtype)})
    inputs = {n: rng.standard_normal(shape) for n, shape in shapes.items()}
    inputs["a"] *= 0.7 / np.sqrt(size)  # else solutions grow without bounds
    if dtype == "f32":
        inputs = {n: v.astype(np.float32).astype(np.float64) for n, v in inputs.items()}
    system = np.eye(size) + np.tril(inputs["a"], -1)  # what is on and above the diagonal is ignored
    program.check(f, inputs, {"x": np.linalg.solve(system.T if up else system, inputs["b"])}, ROUNDING[dtype])


def add_inverse(program, rng, size, dtype):
    """(I + L)^-1 - I: in blocks of 16 x 16, where these divide the size."""
    name, square = f"inverse_{size}_{dtype}", f"{size}x{size}x{dtype}"
    program.kernel(
        name,
        {"a": square, "x": square},
        f"""    %i = tile.program : index
    %av = tile.load %a[%c0, %c0] {{dims = array<i64: 0, 1>}} : memref<{square}>, vector<{square}>
    %l = tile.mask strict_lower %av : vector<{square}>
    %n = arith.negf %l : vector<{square}>
    %s = tile.solve %av, %n : vector<{square}>, vector<{square}>
    tile.store %s, %x[%c0, %c0] {{dims = array<i64: 0, 1>}} : vector<{square}>, memref<{square}>""",
        scalars=(),
    )
    f = program.function(f"call_{name}", dtype)
    given = {"a": f.input("a", (size, size), dtype)}
    f.outputs = launch(f, name, (1,), given, {"x": Type((size, size), dtype)})
    a = rng.standard_normal((size, size)) * 0.7 / np.sqrt(size)
    if dtype == "f32":
        a = a.astype(np.float32).astype(np.float64)
    program.check(f, {"a": a}, {"x": np.linalg.inv(np.eye(size) + np.tril(a, -1)) - np.eye(size)}, ROUNDING[dtype])


def main():
    program, rng = Kernels("solve"), np.random.default_rng(5)
    for up in (False, True):
        for size, columns in ((64, 64), (16, 128), (128, 40), (20, 33), (30, 100), (17, 5), (3, 40), (1, 1)):
            add(program, rng, size, columns, "f32", up)
        for size, columns in ((64, 64), (20, 33), (17, 5)):
            add(program, rng, size, columns, "f64", up)
    for size in (16, 32, 64, 128, 40):
        add_inverse(program, rng, size, "f32")
    for size in (32, 48):
        add_inverse(program, rng, size, "f64")
    return program.finish()


if __name__ == "__main__":
    sys.exit(main())
