"""Optimizer and initial values: adamw, clipping, sums of squares; statistics of init, its shards, its independence of order.

Limits: values 2e-6 (f32), 1e-9 (f64).
"""

import sys

import numpy as np

from harness import Program, Type, rounded, text
from train import adamw, clip_scale

SETTINGS = {"beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "weight_decay": 0.1}


def add_adamw(program, rng, dtype):
    f = program.function(f"step_{dtype}", dtype)
    shape = (3, 50, 7)
    w, g, m, v = (f.input(n, shape) for n in ("parameter", "gradient", "first", "second"))
    lr, step, scale = f.input("learning_rate", (1,)), f.input("step", (1,), "i32"), f.input("scale", (1,))
    results = f.op("braid.adamw", [w, g, m, v, lr, step, scale], [w.type] * 3, **SETTINGS)
    for name, value in zip(("new_parameter", "new_first", "new_second"), results):
        f.output(name, value)
    for t, factor, size in ((1, 1.0, 1.0), (2, 0.25, 1e-4), (1000, 1.0, 100.0), (100000, 0.5, 0.0)):
        arrays = rounded(
            [
                rng.standard_normal(shape),
                rng.standard_normal(shape) * size,
                rng.standard_normal(shape) * size,
                rng.random(shape) * size**2,
            ],
            dtype,
        )
        if t == 1:
            arrays[2:] = [np.zeros(shape), np.zeros(shape)]
        rate, factor = rounded([np.array([3e-3]), np.array([factor])], dtype)
        references = dict(zip(f.outputs, adamw(*arrays, rate, t, factor, **SETTINGS)))
        inputs = dict(zip(("parameter", "gradient", "first", "second"), arrays)) | {
            "learning_rate": rate,
            "step": [t],
            "scale": factor,
        }
        program.check(f, inputs, references, 2e-6 if dtype == "f32" else 1e-9, f"{f.name} step {t}")


def add_master(program, rng):
    """A bf16 parameter with an f32 master: the master takes the step, the parameter is the master rounded."""
    for gradient in ("f32", "bf16"):
        f = program.function(f"step_master_{gradient}")
        shape = (3, 50, 7)
        w, g = f.input("parameter", shape, "bf16"), f.input("gradient", shape, gradient)
        m, v = f.input("first", shape), f.input("second", shape)
        lr, step, scale = f.input("learning_rate", (1,)), f.input("step", (1,), "i32"), f.input("scale", (1,))
        master = f.input("master", shape)
        results = f.op("braid.adamw", [w, g, m, v, lr, step, scale, master], [w.type, *[m.type] * 3], **SETTINGS)
        for name, value in zip(("new_parameter", "new_first", "new_second", "new_master"), results):
            f.output(name, value)
        # The step is smaller than the distance of bf16 numbers: without a master nothing would change.
        arrays = rounded([1 + rng.random(shape), rng.standard_normal(shape), rng.standard_normal(shape), rng.random(shape)])
        arrays[1] = rounded([arrays[1]], gradient)[0]
        rate, factor = np.array([1e-5]), np.array([0.5])
        reference = adamw(*arrays, *rounded([rate]), 3, 0.5, **SETTINGS)
        names = ("parameter", "gradient", "first", "second")
        inputs = dict(zip(names, arrays)) | {"learning_rate": rate, "step": [3], "scale": factor, "master": arrays[0]}
        inputs["parameter"] = np.zeros(shape)  # its old value is not read

        def action(program, f=f, inputs=inputs, reference=reference):
            out = program.call(f, inputs)
            expected = dict(zip(("new_master", "new_first", "new_second"), reference))
            program.compare(f.name, out, expected, 2e-6)
            same = np.array_equal(out["new_parameter"], rounded([out["new_master"]], "bf16")[0])
            program.line(same, f.name, "the parameter is the master, rounded")

        program.then(action)


def add_clipping(program, rng, dtype):
    for limit in (1.0, 0.0):
        f = program.function(f"clip_{limit:g}_{dtype}", dtype)
        a, b = f.input("a", (70, 33)), f.input("b", (5,))
        one = Type((1,), dtype)
        total = f.op("braid.sum_squares", [a, b], one)
        norm, scale = f.op("braid.clip_scale", [total], [one, one], max_norm=limit)
        for name, value in {"sum_squares": total, "norm": norm, "scale": scale}.items():
            f.output(name, value)
        for size in (3.0, 1e-4):
            x, y = rounded([rng.standard_normal((70, 33)) * size, rng.standard_normal(5) * size], dtype)
            squares = np.array([(x * x).sum() + (y * y).sum()])
            references = dict(zip(f.outputs, (squares, *clip_scale(squares, limit))))
            program.check(f, {"a": x, "b": y}, references, 2e-6 if dtype == "f32" else 1e-9, f"{f.name} size {size:g}")


def init(f, seed, shape, key, distribution, coordinate=None, **attributes):
    return f.op(
        "braid.init",
        [seed] + ([coordinate] if coordinate else []),
        Type(shape, f.dtype),
        distribution=text(distribution),
        keys=f"array<i64: {', '.join(map(str, key))}>",
        **attributes,
    )


def inverse_softplus(y):
    return np.log(np.expm1(y))


# Attributes, mean and standard deviation (None: see `moments`), bounds.
DISTRIBUTIONS = {
    "normal": ({"scale": 0.5}, 0.0, 0.5, None),
    "uniform": ({"low": -1.0, "high": 3.0}, 1.0, 4 / np.sqrt(12), (-1.0, 3.0)),
    "log_uniform": ({"low": 1.0, "high": 16.0}, None, None, (0.0, np.log(16.0))),
    "softplus_inverse": ({"low": 1e-3, "high": 1e-1}, None, None, (inverse_softplus(1e-3), inverse_softplus(1e-1))),
    "constant": ({"low": 0.75}, 0.75, 0.0, (0.75, 0.75)),
}


def moments(distribution, values):
    """What must have the given mean and deviation: a uniform variable behind the value."""
    if distribution == "log_uniform":  # exp(value) is uniform in [1, 16)
        return (np.exp(values) - 1) / 15
    if distribution == "softplus_inverse":  # log(softplus(value)) is uniform in [log 1e-3, log 1e-1)
        return (np.log(np.log1p(np.exp(values))) - np.log(1e-3)) / np.log(100)
    return values


def add_init(program):
    n, m = 300, 64
    f = program.function("init")
    seed = f.input("seed", (1,), "i64")
    for name, (attributes, *_) in DISTRIBUTIONS.items():
        f.output(name, init(f, seed, (n, m), [12345], name, **attributes))
    f.output("values", init(f, seed, (4, 3), [1], "values", values="array<f64: 1.0, 2.0, 4.0>"))
    f.output("other_key", init(f, seed, (n, m), [54321], "normal", scale=0.5))
    # Layers 2 and 3 of a stack have the values that each has alone.
    f.output("stacked", init(f, seed, (2, n, m), [12345, 54321], "normal", scale=0.5, stacked=True))
    parts = program.function("init_shards")
    seed2, coordinate = parts.input("seed", (1,), "i64"), parts.input("coordinate", (1,), "i32")
    for dim, shape in ((0, (n // 4, m)), (1, (n, m // 4))):
        parts.output(
            f"dim{dim}",
            init(parts, seed2, shape, [12345], "normal", coordinate, scale=0.5, shard_dims=f"array<i64: {dim}>", shard_counts="array<i64: 4>"),
        )
        parts.output(
            f"stacked{dim}",
            init(
                parts,
                seed2,
                (2, *shape),
                [12345, 54321],
                "normal",
                coordinate,
                scale=0.5,
                shard_dims=f"array<i64: {dim}>",
                shard_counts="array<i64: 4>",
                stacked=True,
            ),
        )

    def action(program):
        out = program.call(f, {"seed": [7]})
        for name, (_, mean, deviation, bounds) in DISTRIBUTIONS.items():
            x = out[name].astype(np.float64)
            inside = bounds is None or (x.min() >= bounds[0] - 1e-5 and x.max() <= bounds[1] + 1e-5)
            u = moments(name, x)
            mean, deviation = (0.5, 12**-0.5) if mean is None else (mean, deviation)
            tolerance = 5 * max(deviation, 1e-9) / np.sqrt(x.size)
            good = (
                inside
                and abs(u.mean() - mean) <= tolerance
                and abs(u.std() - deviation) <= tolerance
                and np.all(np.isfinite(x))
            )
            program.line(
                good,
                f"init {name}",
                f"mean {u.mean():.4f} (expected {mean:.4f}), deviation {u.std():.4f} ({deviation:.4f})",
            )
        x = out["normal"].astype(np.float64) / 0.5
        program.line(
            abs((x**4).mean() - 3) < 0.2 and np.abs(x).max() > 3.5,
            "init normal tails",
            f"fourth moment {(x ** 4).mean():.3f}, largest {np.abs(x).max():.2f}",
        )
        rows, columns = (
            abs(np.corrcoef(a.ravel(), b.ravel())[0, 1]) for a, b in ((x[1:], x[:-1]), (x[:, 1:], x[:, :-1]))
        )
        program.line(max(rows, columns) < 0.04, "init normal neighbours", f"correlation {rows:.4f}, {columns:.4f}")
        again, different = program.call(f, {"seed": [7]}), program.call(f, {"seed": [8]})
        correlation = abs(np.corrcoef(out["normal"].ravel(), different["normal"].ravel())[0, 1])
        program.line(
            np.array_equal(out["normal"], again["normal"]) and correlation < 0.04,
            "init seeds",
            f"same seed, same bits; other seed correlates {correlation:.4f}",
        )
        program.compare("init values", out, {"values": np.tile([1.0, 2.0, 4.0], (4, 1))}, 1e-30)
        program.compare(
            "init stacked = layer by layer", out, {"stacked": np.stack([out["normal"], out["other_key"]])}, 1e-30
        )
        for c in range(4):
            part = program.call(parts, {"seed": [7], "coordinate": [c]})
            a, b = slice(c * n // 4, (c + 1) * n // 4), slice(c * m // 4, (c + 1) * m // 4)
            program.compare(
                f"init shard {c} = slice of the whole",
                part,
                {
                    "dim0": out["normal"][a],
                    "dim1": out["normal"][:, b],
                    "stacked0": out["stacked"][:, a],
                    "stacked1": out["stacked"][:, :, b],
                },
                1e-30,
            )

    program.then(action)


def main():
    rng = np.random.default_rng(13)
    program = Program("train")
    for dtype in ("f32", "f64"):
        add_adamw(program, rng, dtype)
        add_clipping(program, rng, dtype)
    add_master(program, rng)
    add_init(program)
    return program.finish()


if __name__ == "__main__":
    sys.exit(main())
