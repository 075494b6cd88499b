"""Kernels whose threads take several neighbouring elements at a time, and loops through which they walk with elements of their own, against NumPy:
where rows begin on 16 bytes and where they do not, whole tiles and parts of them, in place.

    check_strips.py          (braid-compile and braid-run of test/emulator/cuda)
"""

import sys

import numpy as np

from harness import Type, rounded
from written_kernels import Kernels, launch

ROUNDING = {"f32": 2e-6, "f64": 1e-14, "bf16": 4e-3}  # of sums of a few thousand terms; of one rounding


# Rows in half a warp, a warp, and several warps; heads in them; several vectors of a row, or of heads, for each thread; sixteen rows at a time; no whole vectors.
ROW_WALKS = (
    *((4, 1, 128, "f32"), (4, 1, 256, "bf16"), (2, 1, 1024, "bf16"), (2, 1, 2048, "bf16"), (1, 1, 4096, "bf16")),
    *((2, 8, 128, "bf16"), (2, 2, 1024, "f32"), (1, 4, 1024, "bf16"), (16, 1, 64, "f32"), (4, 3, 20, "f32")),
)


def shifted(f, name, shape, dtype, by):
    """An input that begins `by` elements behind where buffers do."""
    size = int(np.prod(shape))
    flat = f.op("braid.slice", [f.input(name, (size + by,), dtype)], Type((size,), dtype), dim=0, begin=by)
    return f.op("braid.reshape", [flat], Type(shape, dtype))


def numbers(rng, f, by, shapes):
    """Inputs of the function, and what its kernels see of them: {name: shape}."""
    inputs, seen = {}, {}
    for name, shape in shapes.items():
        flat = rounded([rng.standard_normal(int(np.prod(shape)) + by)], f.inputs[name].type.dtype)[0]
        inputs[name], seen[name] = flat, flat[by:].reshape(shape)
    return inputs, seen


def add_rows(program, rng, rows, width, dtype, by):
    """y = x w / sqrt(mean(x^2)): four rows a program, the last of them not there."""
    name, wide = f"rows_{rows}x{width}_{dtype}", "f64" if dtype == "f64" else "f32"
    tile, sums = f"vector<4x{width}x{wide}>", f"vector<4x{wide}>"
    stored = f"vector<4x{width}x{dtype}>"
    widen = f"arith.extf %x4 : {stored} to {tile}" if dtype != wide else f"arith.addf %x4, %none : {tile}"
    narrow = f"arith.truncf %u : {tile} to {stored}" if dtype != wide else f"arith.addf %u, %none : {tile}"
    if by == 0:
        program.kernel(
            name,
            {"x": f"?x{width}x{dtype}", "w": f"{width}x{wide}", "y": f"?x{width}x{dtype}"},
            f"""    %i = tile.program : index
    %none = arith.constant dense<0.0> : {tile}
    %share = arith.constant dense<{1 / width:e}> : {sums}
    %r = arith.muli %i, %c4 : index
    %x4 = tile.load %x[%r, %c0] limit %n {{dims = array<i64: 0, 1>}} : memref<?x{width}x{dtype}>, {stored}
    %w1 = tile.load %w[%c0] {{dims = array<i64: 0>}} : memref<{width}x{wide}>, vector<{width}x{wide}>
    %v = {widen}
    %q = arith.mulf %v, %v : {tile}
    %s = tile.reduce add %q {{axis = 1 : i64}} : {tile}, {sums}
    %m = arith.mulf %s, %share : {sums}
    %t = math.rsqrt %m : {sums}
    %te = tile.expand %t {{axis = 1 : i64}} : {sums}, {tile}
    %we = vector.broadcast %w1 : vector<{width}x{wide}> to {tile}
    %vw = arith.mulf %v, %we : {tile}
    %u = arith.mulf %vw, %te : {tile}
    %o = {narrow}
    tile.store %o, %y[%r, %c0] limit %n {{dims = array<i64: 0, 1>}} : {stored}, memref<?x{width}x{dtype}>""",
        )
    f = program.function(f"{name}_{by}")
    shapes = {"x": (rows, width), "w": (width,)}
    x, w = shifted(f, "x", shapes["x"], dtype, by), shifted(f, "w", shapes["w"], wide, by)
    f.outputs = launch(f, name, (-(-rows // 4),), {"x": x, "w": w}, {"y": Type((rows, width), dtype)}, n=rows)
    inputs, seen = numbers(rng, f, by, shapes)
    y = seen["x"] * seen["w"] / np.sqrt(np.mean(seen["x"] ** 2, axis=1, keepdims=True))
    program.check(f, inputs, {"y": y}, ROUNDING[dtype])


def add_row_walk(program, rng, rows, block, heads, width, dtype, rounds, by):
    """r = 1 / sqrt(mean(x^2) + 1), m = sum(x g w), n = sum(g r w): y = g r - x (m + n); dw = sum over rows of g x r. Three blocks of rows a program;
    the last one of the last is not whole. One round: n is not there."""
    name, wide = f"walk_{block}x{heads}x{width}_{dtype}_{rounds}", "f32"
    shape = (heads, width) if heads > 1 else (width,)
    lead, last = "x".join(map(str, shape)), len(shape)
    tile, kept = f"vector<{block}x{lead}x{wide}>", f"vector<{block}x{lead}x{dtype}>"
    runs = f"vector<{'x'.join(map(str, (block, *shape[:-1])))}x{wide}>"
    stored = "x".join(map(str, ("?", *shape[:-1]))) + "xf32"
    zeros = ", ".join(["%c0"] * len(shape))
    dims = ", ".join(map(str, range(len(shape) + 1)))
    at = f"[%j, {zeros}] limit %n {{dims = array<i64: {dims}>}}"
    parts = f"?x{lead}xf32"
    widen = lambda v: f"arith.extf %{v}0 : {kept} to {tile}" if dtype != wide else f"arith.addf %{v}0, %none : {tile}"
    if by == 0:
        second = f"""      %gr = arith.mulf %gw, %re : {tile}
      %n1 = tile.reduce add %gr {{axis = {last} : i64}} : {tile}, {runs}
      %mn = arith.addf %m1, %n1 : {runs}"""
        program.kernel(
            name,
            {"x": f"?x{lead}x{dtype}", "g": f"?x{lead}x{dtype}", "w": f"{width}xf32", "y": f"?x{lead}x{dtype}", "m": stored, "dw": parts},
            f"""    %i = tile.program : index
    %none = arith.constant dense<0.0> : {tile}
    %zero = arith.constant dense<0.0> : vector<{lead}xf32>
    %share = arith.constant dense<{1 / width:e}> : {runs}
    %one = arith.constant dense<1.0> : {runs}
    %block = arith.constant {block} : index
    %span = arith.constant {3 * block} : index
    %w1 = tile.load %w[%c0] {{dims = array<i64: 0>}} : memref<{width}xf32>, vector<{width}xf32>
    %lo = arith.muli %i, %span : index
    %next = arith.addi %lo, %span : index
    %hi = arith.minsi %next, %n : index
    %sum = scf.for %j = %lo to %hi step %block iter_args(%before = %zero) -> (vector<{lead}xf32>) {{
      %x0 = tile.load %x{at} : memref<?x{lead}x{dtype}>, {kept}
      %g0 = tile.load %g{at} : memref<?x{lead}x{dtype}>, {kept}
      %v = {widen("x")}
      %gv = {widen("g")}
      %q = arith.mulf %v, %v : {tile}
      %s = tile.reduce add %q {{axis = {last} : i64}} : {tile}, {runs}
      %mean = arith.mulf %s, %share : {runs}
      %more = arith.addf %mean, %one : {runs}
      %r = math.rsqrt %more : {runs}
      %re = tile.expand %r {{axis = {last} : i64}} : {runs}, {tile}
      %we = vector.broadcast %w1 : vector<{width}xf32> to {tile}
      %gw = arith.mulf %gv, %we : {tile}
      %xgw = arith.mulf %v, %gw : {tile}
      %m1 = tile.reduce add %xgw {{axis = {last} : i64}} : {tile}, {runs}
{second if rounds == 2 else f"      %mn = arith.addf %m1, %one : {runs}"}
      %me = tile.expand %mn {{axis = {last} : i64}} : {runs}, {tile}
      %a = arith.mulf %gv, %re : {tile}
      %b = arith.mulf %v, %me : {tile}
      %y1 = arith.subf %a, %b : {tile}
      %d = arith.mulf %a, %v : {tile}
      %dw1 = tile.reduce add %d {{axis = 0 : i64}} : {tile}, vector<{lead}xf32>
      %after = arith.addf %before, %dw1 : vector<{lead}xf32>
      %o = {f"arith.truncf %y1 : {tile} to {kept}" if dtype != wide else f"arith.addf %y1, %none : {tile}"}
      tile.store %o, %y{at} : {kept}, memref<?x{lead}x{dtype}>
      tile.store %mn, %m{"[%j" + ", %c0" * (len(shape) - 1)}] limit %n {{dims = array<i64: {", ".join(map(str, range(len(shape))))}>}} : {runs}, memref<{stored}>
      scf.yield %after : vector<{lead}xf32>
    }}
    tile.store %sum, %dw[%i, {zeros}] {{dims = array<i64: {", ".join(map(str, range(1, len(shape) + 1)))}>}} : vector<{lead}xf32>, memref<{parts}>""",
        )
    programs = -(-rows // (3 * block))
    f = program.function(f"{name}_{by}")
    shapes = {"x": (rows, *shape), "g": (rows, *shape), "w": (width,)}
    given = {n: shifted(f, n, s, "f32" if n == "w" else dtype, by) for n, s in shapes.items()}
    outputs = {"y": Type((rows, *shape), dtype), "m": Type((rows, *shape[:-1])), "dw": Type((programs, *shape))}
    f.outputs = launch(f, name, (programs,), given, outputs, n=rows)
    inputs, seen = numbers(rng, f, by, shapes)
    x, g, w = seen["x"], seen["g"], seen["w"]
    r = 1 / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + 1)
    m = np.sum(x * g * w, axis=-1, keepdims=True) + (np.sum(g * r * w, axis=-1, keepdims=True) if rounds == 2 else 1)
    dw = [np.sum((g * x * r)[p * 3 * block : (p + 1) * 3 * block], axis=0) for p in range(programs)]
    references = {"y": g * r - x * m, "m": m[..., 0], "dw": np.stack(dw)}
    program.check(f, inputs, references, {"y": ROUNDING[dtype], "m": 4e-6, "dw": ROUNDING["f32"]})


def add_update(program, rng, size, by):
    """p = p / 2 + x in place, and p in bf16: programs walk along memory, the last to its end."""
    flat, tile = "?xf32", "vector<1024xf32>"
    if by == 0 and "update" not in " ".join(program.kernels):
        at = "limit %n {dims = array<i64: 0>}"
        program.kernel(
            "update",
            {"x": flat, "p": flat, "new_p": flat, "q": "?xbf16"},
            f"""    %i = tile.program : index
    %half = arith.constant dense<0.5> : {tile}
    %c2048 = arith.constant 2048 : index
    %lo = arith.muli %i, %c2048 : index
    %next = arith.addi %lo, %c2048 : index
    %hi = arith.minsi %next, %n : index
    scf.for %j = %lo to %hi step %c1024 {{
      %a = tile.load %p[%j] {at} : memref<{flat}>, {tile}
      %b = tile.load %x[%j] {at} : memref<{flat}>, {tile}
      %h = arith.mulf %a, %half : {tile}
      %s = arith.addf %h, %b : {tile}
      %r = arith.truncf %s : {tile} to vector<1024xbf16>
      tile.store %s, %new_p[%j] {at} : {tile}, memref<{flat}>
      tile.store %r, %q[%j] {at} : vector<1024xbf16>, memref<?xbf16>
    }}""",
        )
    f = program.function(f"update_{size}_{by}")
    x = shifted(f, "x", (size,), "f32", by)
    p = launch(f, "update", (-(-size // 2048),), {"x": x, "p": x}, {"new_p": Type((size,)), "q": Type((size,), "bf16")}, n=size)
    outputs = {"new_p": Type((size,)), "q": Type((size,), "bf16")}
    f.outputs = launch(f, "update", (-(-size // 2048),), {"x": x, "p": p["new_p"]}, outputs, [1, -1], n=size)
    inputs, seen = numbers(rng, f, by, {"x": (size,)})
    new = (1.5 * seen["x"]) / 2 + seen["x"]
    program.check(f, inputs, {"new_p": new, "q": new}, {"new_p": ROUNDING["f32"], "q": ROUNDING["bf16"]})


def add_scan(program, rng, steps, keys, values, by):
    """m[n] = state; state = decay[n] state + x[n]: what is carried stays with its thread."""
    name, tile = f"scan_{keys}x{values}", f"vector<{keys}x{values}xf32>"
    x, state = f"?x{keys}x{values}xf32", f"{keys}x{values}xf32"
    if by == 0:
        program.kernel(
            name,
            {"x": x, "decay": f"?x{keys}xf32", "begin": state, "m": x, "end": state},
            f"""    %i = tile.program : index
    %first = tile.load %begin[%c0, %c0] {{dims = array<i64: 0, 1>}} : memref<{state}>, {tile}
    %last = scf.for %j = %c0 to %n step %c1 iter_args(%s = %first) -> ({tile}) {{
      tile.store %s, %m[%j, %c0, %c0] {{dims = array<i64: 1, 2>}} : {tile}, memref<{x}>
      %d = tile.load %decay[%j, %c0] {{dims = array<i64: 1>}} : memref<?x{keys}xf32>, vector<{keys}xf32>
      %e = math.exp %d : vector<{keys}xf32>
      %de = tile.expand %e {{axis = 1 : i64}} : vector<{keys}xf32>, {tile}
      %v = tile.load %x[%j, %c0, %c0] {{dims = array<i64: 1, 2>}} : memref<{x}>, {tile}
      %k = arith.mulf %s, %de : {tile}
      %t = arith.addf %k, %v : {tile}
      scf.yield %t : {tile}
    }}
    tile.store %last, %end[%c0, %c0] {{dims = array<i64: 0, 1>}} : {tile}, memref<{state}>""",
        )
    f = program.function(f"{name}_{by}")
    shapes = {"x": (steps, keys, values), "decay": (steps, keys), "begin": (keys, values)}
    given = {n: shifted(f, n, shape, "f32", by) for n, shape in shapes.items()}
    outputs = {"m": Type((steps, keys, values)), "end": Type((keys, values))}
    f.outputs = launch(f, name, (1,), given, outputs, n=steps)
    inputs, seen = numbers(rng, f, by, shapes)
    inputs["decay"] = -np.abs(inputs["decay"])
    now, before = seen["begin"], []
    for x, decay in zip(seen["x"], -np.abs(seen["decay"])):
        before.append(now)
        now = np.exp(decay)[:, None] * now + x
    program.check(f, inputs, {"m": np.stack(before), "end": now}, ROUNDING["f32"])


def add_sums(program, rng, rows, width, by):
    """Sums of columns, row by row and tile by tile, running sums, and the sum of all squares."""
    tile, row, matrix = f"vector<32x{width}xf32>", f"vector<{width}xf32>", f"?x{width}xf32"
    if by == 0:
        body = lambda inner: f"""    %i = tile.program : index
    %zero = arith.constant dense<0.0> : {row}
    %c32 = arith.constant 32 : index
{inner}"""
        program.kernel(
            f"columns_{width}",
            {"x": matrix, "y": f"{width}xf32"},
            body(f"""    %sum = scf.for %j = %c0 to %n step %c1 iter_args(%s = %zero) -> ({row}) {{
      %v = tile.load %x[%j, %c0] {{dims = array<i64: 1>}} : memref<{matrix}>, {row}
      %t = arith.addf %s, %v : {row}
      scf.yield %t : {row}
    }}
    tile.store %sum, %y[%c0] {{dims = array<i64: 0>}} : {row}, memref<{width}xf32>"""),
        )
        program.kernel(
            f"tiles_{width}",
            {"x": matrix, "y": f"{width}xf32", "z": f"32x{width}xf32"},
            body(f"""    %v = tile.load %x[%c0, %c0] {{dims = array<i64: 0, 1>}} : memref<{matrix}>, {tile}
    %s = tile.reduce add %v {{axis = 0 : i64}} : {tile}, {row}
    %r = tile.cumsum %v {{axis = 0 : i64}} : {tile}
    tile.store %s, %y[%c0] {{dims = array<i64: 0>}} : {row}, memref<{width}xf32>
    tile.store %r, %z[%c0, %c0] {{dims = array<i64: 0, 1>}} : {tile}, memref<32x{width}xf32>""", ),
            scalars=(),
        )
        program.kernel(
            f"squares_{width}",
            {"x": "?xf32", "y": "1xf32"},
            f"""    %i = tile.program : index
    %zero = arith.constant dense<0.0> : vector<1024xf32>
    %sum = scf.for %j = %c0 to %n step %c1024 iter_args(%s = %zero) -> (vector<1024xf32>) {{
      %v = tile.load %x[%j] limit %n {{dims = array<i64: 0>}} : memref<?xf32>, vector<1024xf32>
      %q = arith.mulf %v, %v : vector<1024xf32>
      %t = arith.addf %s, %q : vector<1024xf32>
      scf.yield %t : vector<1024xf32>
    }}
    %all = tile.reduce add %sum {{axis = 0 : i64}} : vector<1024xf32>, f32
    memref.store %all, %y[%c0] : memref<1xf32>""",
        )
    f = program.function(f"sums_{rows}x{width}_{by}")
    x = shifted(f, "x", (rows, width), "f32", by)
    flat = f.op("braid.reshape", [x], Type((rows * width,)))
    columns = launch(f, f"columns_{width}", (1,), {"x": x}, {"y": Type((width,))}, n=rows)["y"]
    tiles = launch(f, f"tiles_{width}", (1,), {"x": x}, {"y": Type((width,)), "z": Type((32, width))})
    squares = launch(f, f"squares_{width}", (1,), {"x": flat}, {"y": Type((1,))}, n=rows * width)["y"]
    f.outputs = {"columns": columns, "tiles": tiles["y"], "running": tiles["z"], "squares": squares}
    inputs, seen = numbers(rng, f, by, {"x": (rows, width)})
    x = seen["x"]
    references = {"columns": x.sum(0), "tiles": x[:32].sum(0), "running": x[:32].cumsum(0), "squares": np.array([np.sum(x * x)])}
    program.check(f, inputs, references, ROUNDING["f32"])


def main():
    program, rng = Kernels("strips"), np.random.default_rng(11)
    for by in (0, 1, 4):  # elements: on 16 bytes, on none, on 16 bytes of f32 only
        for width, dtype in ((256, "f32"), (512, "bf16"), (130, "bf16"), (256, "f64"), (100, "f32")):
            add_rows(program, rng, 7, width, dtype, by)
        for block, heads, width, dtype in ROW_WALKS:
            for rounds in (1, 2):
                add_row_walk(program, rng, 5 * block - 1, block, heads, width, dtype, rounds, by)
        for size in (4096, 5001):
            add_update(program, rng, size, by)
        for keys, values in ((64, 64), (40, 20), (8, 7)):
            add_scan(program, rng, 5, keys, values, by)
        for width in (512, 260):
            add_sums(program, rng, 39, width, by)
    return program.finish()


if __name__ == "__main__":
    sys.exit(main())
