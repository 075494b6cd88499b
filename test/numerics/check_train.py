"""Optimizer and initial values: adamw, clipping, sums of squares; statistics of init, its shards, its independence of order.

Limits: values 2e-6 (f32), 1e-9 (f64).
"""

import sys

import numpy as np

from harness import Program, Type, join_master, rounded, split_master, stored, text
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
    """A bf16 parameter whose master is in parts takes the steps of an f32 parameter, in every bit, and is that rounded."""
    shape, steps = (3, 50, 7), 20
    for gradient in ("f32", "bf16"):
        f, wide = program.function(f"step_master_{gradient}"), program.function(f"step_wide_{gradient}")
        for function, dtype in ((f, "bf16"), (wide, "f32")):
            w, g = function.input("parameter", shape, dtype), function.input("gradient", shape, gradient)
            m, v = function.input("first", shape), function.input("second", shape)
            lr, step = function.input("learning_rate", (1,)), function.input("step", (1,), "i32")
            operands = [w, g, m, v, lr, step, function.input("scale", (1,))]
            if function is f:
                operands.append(function.input("low", shape, "i16"))
            results = function.op("braid.adamw", operands, [o.type for o in (w, m, v, *operands[7:])], **SETTINGS)
            for name, value in zip(("new_parameter", "new_first", "new_second", "new_low"), results):
                function.output(name, value)
        arrays = rounded([rng.standard_normal(shape) * np.exp2(rng.integers(-20, 4, shape)), rng.standard_normal(shape), rng.random(shape)])
        # Half way between two parameters, from both sides; the last of an exponent; zeros, denormals, the largest, and no numbers.
        bits = [0x3F808000, 0x40008000, 0x00808000, 0x3F7F8000, 0x3F818000, 0x3F7FFFFF, 0x3FFF8000, 0, 1, 0x8000, 0x18000, 0x28000, 0x7FFFFF, 0x7F7FFFFF, 0x7F7F8000, 0x7F7F7FFF]
        special = np.array([*bits, *(b | 0x80000000 for b in bits), 0x7F800000, 0xFF800000, 0x7FC00000], np.uint32).view(np.float32)
        arrays[0].reshape(-1)[: special.size] = special
        gradients = [rounded([rng.standard_normal(shape)], gradient)[0] for _ in range(steps)]

        def action(program, f=f, wide=wide, arrays=arrays, gradients=gradients):
            def step(function, state, number):
                # The first step moves nothing: what is not finite stays apart from the rest, all else as it is.
                scalars = {"learning_rate": [1e-4 if number > 1 else 0.0], "step": [number], "scale": np.array([0.5])}
                out = program.call(function, dict(state) | scalars | {"gradient": gradients[number - 1]})
                return {name: out[f"new_{name}"] for name in state}

            parameter, low, sign = split_master(arrays[0])
            own = {"parameter": parameter, "first": arrays[1], "second": np.where(sign, -arrays[2], arrays[2]), "low": low}
            reference = dict(zip(("parameter", "first", "second"), arrays))
            same, signs = [], []
            for number in range(1, len(gradients) + 1):
                own, reference = step(f, own, number), step(wide, reference, number)
                master = join_master(own["parameter"], own["low"], own["second"])
                parameter, low, sign = split_master(reference["parameter"])
                known = ~np.isnan(reference["parameter"])
                signs.append(int(np.sum(sign[known])))
                same.append(
                    all(
                        np.array_equal(stored(a, "f32")[known].view(np.int32), stored(b, "f32")[known].view(np.int32))
                        for a, b in ((master, reference["parameter"]), (own["first"], reference["first"]), (np.abs(own["second"]), reference["second"]))
                    )
                    and np.array_equal(stored(own["parameter"], "bf16")[known], stored(parameter, "bf16")[known])
                    and np.array_equal(np.signbit(own["second"])[known], sign[known])
                    and np.array_equal(np.isnan(master), ~known)
                    and np.array_equal(np.isnan(own["parameter"]), ~known)
                )
            moved = np.mean(np.asarray(own["parameter"]) != split_master(arrays[0])[0])
            text = f"{len(same)} steps, {signs[0]} halves above an even parameter, {moved:.0%} of the parameters moved"
            program.line(all(same) and signs[0] >= 6, f.name, f"in parts as whole, {text}; equal: {sum(same)}")

        program.then(action)


def random_bits(first, second, step):
    """32 bits of f32 moments and a step (passes/outline/RandomRounding.h)."""
    z = first.view(np.uint32) * np.uint32(0x9E3779B1) + second.view(np.uint32) + np.uint32(step * 0x85EBCA77 % 2**32)
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        z = (z ^ z >> np.uint32(shift)) * np.uint32(factor)
    return z ^ z >> np.uint32(16)


def round_randomly(values, random):
    """f32 to bf16 (as f32): up where 16 random bits and those that are cut off carry; what is not finite as ever."""
    bits = ((values.view(np.uint32) + (random & np.uint32(0xFFFF))) & np.uint32(0xFFFF0000)).view(np.float32)
    return np.where(np.isfinite(values), bits, values)


def round_moments(first, second, step):
    first, second = (np.ascontiguousarray(x, np.float32) for x in (first, second))
    random = random_bits(first, second, step)
    return round_randomly(first, random), round_randomly(second, random >> np.uint32(16))


def small_steps(program, functions, state, gradient, beta2):
    """Gradients that stay as they are: the average of their squares, of which the last steps are each less than bf16 can tell apart, comes as with
    f32, where rounding to nearest stays behind."""
    states, nearest, steps = [dict(state), dict(state)], np.zeros(gradient.shape), 400
    for number in range(1, steps + 1):
        for i, f in enumerate(functions):
            out = program.call(f, states[i] | {"gradient": gradient, "learning_rate": [0.0], "step": [number], "scale": np.array([1.0])})
            states[i] = {n: out[f"new_{n}"] for n in state}
        nearest = rounded([nearest * beta2 + (1 - beta2) * gradient**2], "bf16")[0]
    kept, exact = (np.abs(np.asarray(s["second"], np.float64)) for s in states)
    # Equal elements are rounded alike: each number counts once.
    different = np.unique(gradient, return_index=True)[1]
    off, behind = (kept / exact - 1).ravel()[different], 1 - (nearest / exact).mean()
    good = abs(off.mean()) < 4 * off.std() / off.size**0.5 and off.std() < 0.04 and behind > 0.1
    program.line(good, "small steps", f"{steps} of {off.size} numbers: mean {off.mean():.2%} off, each {off.std():.1%}; rounded to nearest {behind:.0%} behind")


def add_rounded_moments(program, rng):
    """Moments in bf16 are those of f32, rounded at random, bit by bit; what they are of is updated as with f32."""
    shape = (3, 50, 7)
    size = int(np.prod(shape))
    settings = SETTINGS | {"beta2": 0.995}
    for name, parameter, gradient in (("master", "bf16", "bf16"), ("wide", "f32", "f32")):
        functions = []
        for moment in ("bf16", "f32"):
            f = program.function(f"step_{name}_moments_{moment}")
            w, g, m, v = (f.input(n, shape, t) for n, t in (("parameter", parameter), ("gradient", gradient), ("first", moment), ("second", moment)))
            operands = [w, g, m, v, f.input("learning_rate", (1,)), f.input("step", (1,), "i32"), f.input("scale", (1,))]
            if parameter == "bf16":
                operands.append(f.input("low", shape, "i16"))
            results = f.op("braid.adamw", operands, [o.type for o in (w, m, v, *operands[7:])], **settings)
            for result, value in zip(("new_parameter", "new_first", "new_second", "new_low"), results):
                f.output(result, value)
            functions.append(f)
        start, m, v = rounded([rng.standard_normal(shape), rng.standard_normal(shape), rng.random(shape)], "bf16")
        # What bf16 has exactly, and none of it: no numbers, infinities, the largest, zeros.
        gradients = [rounded([rng.standard_normal(shape) * 1e-2], gradient)[0] for _ in range(12)]
        for i, special in enumerate((np.inf, -np.inf, np.nan, 3.3e38, 0.0)):
            gradients[-1].reshape(-1)[i] = rounded([np.array([special])], gradient)[0][0]
        m.reshape(-1)[4], v.reshape(-1)[4] = 0.0, 0.0
        high, low, sign = split_master(start)
        own = {"parameter": high, "first": m, "second": np.where(sign, -v, v), "low": low} if parameter == "bf16" else {"parameter": start, "first": m, "second": v}

        small = rounded([np.exp2(rng.uniform(-9, 3, shape))], gradient)[0]

        def action(program, functions=functions, own=own, gradients=gradients, small=small, name=name, parameter=parameter):
            same, finite = [], []
            for number, now in enumerate(gradients, 1):
                inputs = own | {"gradient": now, "learning_rate": [1e-2], "step": [number], "scale": np.array([1.0])}
                out, wide = (program.call(f, inputs) for f in functions)
                first, second = round_moments(wide["new_first"], np.abs(wide["new_second"]), number)
                signs = np.signbit(wide["new_second"])
                equal = [np.array_equal(out["new_first"], first, equal_nan=True), np.array_equal(np.abs(out["new_second"]), second, equal_nan=True)]
                known = ~np.isnan(second)
                equal.append(np.array_equal(np.signbit(out["new_second"])[known], signs[known]))
                equal += [np.array_equal(stored(out[n], t), stored(wide[n], t), equal_nan=t == "f32") for n, t in (("new_parameter", parameter), ("new_low", "i16")) if n in out]
                same.append(all(equal))
                finite.append(int(np.sum(np.isfinite(second))))
                own = {n: out[f"new_{n}"] for n in own}
            good = all(same) and finite[0] == size and size - 5 <= finite[-1] < size
            program.line(good, f"{name}, moments in bf16", f"{sum(same)} of {len(same)} steps as f32, rounded at random; {size - finite[-1]} not finite")

            if parameter == "bf16":
                small_steps(program, functions, {n: np.zeros(shape) for n in own} | {"parameter": high}, small, settings["beta2"])

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


def init(f, seed, shape, key, distribution, coordinate=None, dtype=None, **attributes):
    return f.op(
        "braid.init",
        [seed] + ([coordinate] if coordinate else []),
        Type(shape, dtype or f.dtype),
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
    # Masters of a bf16 parameter, in parts.
    parts_of = {name: dict(attributes) for name, (attributes, *_) in DISTRIBUTIONS.items()}
    parts_of["constant"]["low"] = 1.00390625  # half way above an even parameter
    parts_of["values"] = {"values": "array<f64: 1.00390625, 0.998046875, -1.00390625, 0.1>"}
    for name, attributes in parts_of.items():
        shape = (n, m)
        f.output(f"{name}.master", init(f, seed, shape, [12345], name, **attributes))
        for part, kind, dtype in (("parameter", "", "bf16"), ("low", "low", "i16"), ("half", "half", "f32"), ("short", "half", "bf16")):
            more = {"part": text(kind)} if kind else {}
            f.output(f"{name}.{part}", init(f, seed, shape, [12345], name, dtype=dtype, **more, **attributes))
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
        for name in parts_of:
            master, parameter, low, half = (out[f"{name}.{part}"] for part in ("master", "parameter", "low", "half"))
            expected = split_master(master)
            joined = join_master(parameter, low, half)
            same = np.array_equal(joined.view(np.int32), master.view(np.int32)) and np.array_equal(parameter, expected[0])
            halves = int(np.sum(np.signbit(half)))
            same &= np.array_equal(stored(half, "bf16"), stored(out[f"{name}.short"], "bf16"))
            same &= np.array_equal(np.signbit(half), expected[2]) and not np.any(half) and (name not in ("constant", "values") or halves > 0)
            program.line(same, f"init {name} in parts", f"masters in every bit, {halves} halves above an even parameter")
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
    add_rounded_moments(program, np.random.default_rng(14))
    add_init(program)
    return program.finish()


if __name__ == "__main__":
    sys.exit(main())
