"""Every row-wise op and its braid.rows_grad, against closed forms (which reference/check.py holds against finite differences).

Limits: values 2e-6, gradients 5e-6 (moe-family 11: router and dense quantities in f32); f64 1e-9.
"""

import sys

import numpy as np

from harness import Program, rounded
from common import ACTIVATIONS, documents_of, one_document
from rows import ROWS

VALUE, GRADIENT = 2e-6, 5e-6
B, T, H, K = 2, 37, 4, 24


class RowOp:
    """forward and rows_grad of one op in one function. operands: (name, shape, whole) in the op's order."""

    def __init__(
        self,
        program,
        label,
        op,
        operands,
        attributes=(),
        reference=None,
        dtype="f32",
        integers=(),
        result=None,
        arguments=None,
    ):
        self.program, self.op, self.dtype, self.attributes = program, op, dtype, dict(attributes)
        self.reference = reference or ROWS[op]
        self.arguments = arguments if arguments is not None else self.attributes
        f = self.function = program.function(f"{label}_{dtype}", dtype)
        self.names = [name for name, _ in operands]
        values = [f.input(name, shape, "i32" if name in integers else None) for name, shape in operands]
        quoted = {k: f'"{v}"' if isinstance(v, str) else v for k, v in self.attributes.items()}
        shape = result or operands[0][1]
        y = f.rows(op, values, type(values[0].type)(shape, dtype), **quoted)
        f.output("y", y)
        dy = f.input("dy", shape)
        self.wanted = [i for i, name in enumerate(self.names) if name not in integers]
        for i, d in zip(self.wanted, f.rows_grad(op, values, dy, self.wanted, **quoted)):
            f.output(f"d{self.names[i]}", d)

    def check(self, label, arrays, rng, gradients=True):
        dy = rng.standard_normal(self.function.inputs["dy"].type.shape)
        *rounds, dy_round = rounded([*arrays, dy], self.dtype)
        y, pull = self.reference(*rounds, **self.arguments)
        found = pull(dy_round)
        references = {"y": y} | ({f"d{self.names[i]}": found[i] for i in self.wanted} if gradients else {})
        limit = {n: 1e-9 if self.dtype == "f64" else VALUE if n == "y" else GRADIENT for n in references}
        self.program.check(
            self.function,
            dict(zip(self.names, arrays)) | {"dy": dy},
            references,
            limit,
            f"{self.function.name} {label}".strip(),
        )


X, HEADS, FLAT = (B, T, H, K), (B, T, H), (B, T, H * K)
ODD, WIDE = (1, 9, 3, 5), (2, 5, 1000)
LONG = (2, 700, H, K)  # sums over rows in many parts
SQUARE = (B, T, H, H)  # as many heads as features: shapes alone do not tell them apart
CASES = [
    # label, op, operands, attributes
    ("add", "add", [("a", X), ("b", X), ("c", X)], {}),
    ("mul", "mul", [("a", X), ("b", X)], {}),
    ("mul_heads", "mul", [("a", X), ("b", HEADS)], {}),
    ("scale", "scale", [("x", X)], {"value": -0.37}),
    ("offset", "offset", [("x", X)], {"value": 0.7}),
    ("clamp", "clamp", [("x", X)], {"low": -0.3, "high": 0.8}),
    ("clamp_below", "clamp", [("x", X)], {"high": 0.1}),
    ("clamp_far", "clamp", [("x", X)], {"low": -1e30}),
    ("bias", "bias", [("x", X), ("bias", (H, K))], {}),
    ("bias_last", "bias", [("x", FLAT), ("bias", (H * K,))], {}),
    ("weighted", "weighted", [("x", X), ("weight", (H, K))], {}),
    ("weighted_heads", "weighted", [("x", X), ("weight", (H,))], {"per_head": True}),
    ("weighted_last", "weighted", [("x", X), ("weight", (K,))], {}),
    ("softmax", "softmax", [("x", X)], {}),
    ("log_sigmoid", "log_sigmoid", [("x", X)], {"divide": 16.0}),
    ("log_decay", "log_decay", [("x", HEADS), ("a_log", (H,)), ("dt_bias", (H,))], {}),
    ("rms_norm", "rms_norm", [("x", FLAT), ("weight", (H * K,))], {"eps": 1e-6}),
    ("rms_norm_heads", "rms_norm", [("x", X), ("weight", (K,))], {"eps": 1e-5}),
    ("rms_norm_groups", "rms_norm", [("x", FLAT), ("weight", (H * K,))], {"eps": 1e-5, "groups": 2}),
    ("layer_norm", "layer_norm", [("x", FLAT), ("weight", (H * K,)), ("bias", (H * K,))], {"eps": 1e-5}),
    ("l2_norm", "l2_norm", [("x", X)], {"eps": 1e-6}),
    ("gated_norm", "gated_norm", [("o", X), ("gate", X), ("weight", (K,))], {"eps": 1e-5, "activation": "silu"}),
    (
        "gated_norm_after",
        "gated_norm",
        [("o", FLAT), ("gate", FLAT), ("weight", (H * K,))],
        {"eps": 1e-5, "activation": "silu", "norm_first": False, "groups": 2},
    ),
    ("log_decay_keys", "log_decay", [("x", X), ("a_log", (H,)), ("dt_bias", (H, K))], {}),
    ("log_decay_square", "log_decay", [("x", SQUARE), ("a_log", (H,)), ("dt_bias", (H, H))], {}),
    ("weighted_square", "weighted", [("x", SQUARE), ("weight", (H,))], {"per_head": True}),
    ("bounded_gate_square", "bounded_gate", [("x", SQUARE), ("lower_bound", (H,))], {}),
    ("inner", "inner", [("a", X), ("b", X)], {}),
    ("dot", "dot", [("x", X), ("weight", (K,))], {}),
    ("dot_wide", "dot", [("x", WIDE), ("weight", (1000,))], {}),
    ("dot_long", "dot", [("x", LONG), ("weight", (K,))], {}),
    ("bounded_gate", "bounded_gate", [("x", X), ("lower_bound", (H,))], {}),
    ("element_decay", "element_decay", [("x", X), ("a_log", (H, 5, K))], {}),
    ("append_one", "append_one", [("x", X)], {}),
    ("append_one_zeros", "append_one", [("x", X)], {"zeros": 7}),
    ("divide_by_last_zeros", "divide_by_last", [("x", X)], {"eps": 1e-6, "zeros": 3}),
    ("drop_last_zeros", "drop_last", [("x", X)], {"zeros": 3}),
    ("drop_last", "drop_last", [("x", X)], {}),
    ("take_last", "take_last", [("x", X)], {}),
    ("divide_by_last", "divide_by_last", [("x", X)], {"eps": 1e-6}),
    ("divide_by_last_least", "divide_by_last", [("x", X)], {"eps": 0.0, "least": 0.5}),
    ("layer_norm_no_bias", "layer_norm", [("x", FLAT), ("weight", (H * K,))], {"eps": 1e-5}),
    ("taylor", "feature_map", [("x", (B, T, H, 8))], {"kind": "taylor"}),
    ("square", "feature_map", [("x", (B, T, H, 16))], {"kind": "square"}),
    ("taylor_odd", "feature_map", [("x", ODD)], {"kind": "taylor"}),
    ("add_odd", "add", [("a", ODD), ("b", ODD)], {}),
    ("softmax_odd", "softmax", [("x", ODD)], {}),
    ("l2_norm_odd", "l2_norm", [("x", ODD)], {"eps": 1e-6}),
    ("weighted_odd", "weighted", [("x", ODD), ("weight", (3,))], {"per_head": True}),
    ("weighted_long", "weighted", [("x", LONG), ("weight", (K,))], {}),
    ("bias_long", "bias", [("x", LONG), ("bias", (H, K))], {}),
    ("weighted_long_odd", "weighted", [("x", (1, 3000, 3, 5)), ("weight", (3,))], {"per_head": True}),
    ("rms_norm_wide", "rms_norm", [("x", WIDE), ("weight", (1000,))], {"eps": 1e-6}),
    ("layer_norm_wide", "layer_norm", [("x", WIDE), ("weight", (1000,)), ("bias", (1000,))], {"eps": 1e-6}),
    (
        "gated_norm_wide",
        "gated_norm",
        [("o", WIDE), ("gate", WIDE), ("weight", (1000,))],
        {"eps": 1e-6, "activation": "silu", "norm_first": False, "groups": 8},
    ),
    (
        "gated_norm_sigmoid",
        "gated_norm",
        [("o", X), ("gate", X), ("weight", (K,))],
        {"eps": 1e-5, "activation": "sigmoid"},
    ),
]


def add_ops(program, rng):
    r = rng.standard_normal
    for label, op, operands, attributes in CASES:
        for dtype in ("f32", "f64"):
            arrays = [r(shape) for _, shape in operands]
            if op == "bounded_gate":
                arrays[1] = rng.uniform(0.01, 0.9, arrays[1].shape)
            if op == "divide_by_last" and "least" not in attributes:
                arrays[0] = np.abs(arrays[0]) + 0.3
            result = ROWS[op](*arrays, **attributes)[0].shape
            case = RowOp(program, label, op, operands, attributes, dtype=dtype, result=result)
            case.check("", arrays, rng)
            if op == "bounded_gate":  # no bound, and gates that are all but shut or open
                case.check("wide range", [10 * arrays[0], np.array([0.0, 1e-3, 0.5, 0.9])], rng, gradients=False)
            if dtype == "f32" and op in ("softmax", "log_sigmoid", "rms_norm", "layer_norm"):
                case.check(
                    "wide range", [r(shape) * 30 if i == 0 else r(shape) for i, (_, shape) in enumerate(operands)], rng
                )
            if op in ("rms_norm", "l2_norm") and dtype == "f32":
                case.check("small", [r(shape) * 1e-3 for _, shape in operands], rng)
    for kind in ACTIVATIONS:
        for dtype in ("f32", "f64"):
            case = RowOp(program, f"activation_{kind}", "activation", [("x", X)], {"kind": kind}, dtype=dtype)
            x = r(X)
            case.check("", [np.sign(x) * (np.abs(x) + 0.2) if kind in ("reciprocal", "log", "sqrt") else x], rng)
            if kind not in ("reciprocal", "exp", "relu2", "log", "sqrt"):
                case.check("wide range", [x * 20], rng)
    documents = documents_of([[-7, 5, 20, 37], [0, 1, 9, 30]], T)
    for layout in ("half", "interleaved"):
        for dim in (K, 16):
            for dtype in ("f32", "f64"):
                case = RowOp(
                    program,
                    f"rope_{layout}_{dim}",
                    "rope",
                    [("x", X), ("documents", (B, T))],
                    {"theta": 10000.0, "dim": dim, "layout": layout},
                    dtype=dtype,
                    integers=("documents",),
                )
                case.check("packed", [r(X), documents], rng)
                case.check("far positions", [r(X), one_document(B, T, -100000)], rng)
    turn = [("x", X), ("documents", (B, T))]
    places = {"theta": 100.0, "dim": K, "layout": "half", "period": 7}
    RowOp(program, "rope_period", "rope", turn, places, integers=("documents",)).check("", [r(X), documents], rng)
    slower = {"theta": 100.0, "dim": 16, "layout": "half", "factors": [0.5 ** (i / 3) for i in range(8)], "scale": 1.25}
    for dtype in ("f32", "f64"):
        case = RowOp(program, "rope_scaled", "rope", turn, slower, dtype=dtype, integers=("documents",))
        case.check("", [r(X), one_document(B, T, -1000)], rng)
    for dtype in ("f32", "f64"):
        operands = [("documents", (B, T)), ("weight", (5,))]
        case = RowOp(
            program,
            "position_rate",
            "position_rate",
            operands,
            dtype=dtype,
            integers=("documents",),
            result=(B, T, H),
            arguments={"heads": H},
        )
        case.check("", [documents, np.array([0.3, -0.2, -1.5, 0.1, -0.7])], rng)
        operands = [("documents", (B, T)), ("phase", (H, K))]
        case = RowOp(
            program, "position_angle", "position_angle", operands, dtype=dtype, integers=("documents",), result=(B, T, H, K)
        )
        case.check("packed", [documents, r((H, K))], rng)
        for shape in ((H,), (H, K), (H, 3, 5)):
            operands = [("documents", (B, T)), ("value", shape)]
            label = f"every_token_{len(shape)}"
            case = RowOp(program, label, "every_token", operands, dtype=dtype, integers=("documents",), result=(B, T, *shape))
            case.check("", [documents, r(shape)], rng)
    for heads in (H, 3 * H):
        RowOp(
            program,
            f"repeat_heads_{heads}",
            "repeat_heads",
            [("x", X)],
            result=(B, T, heads, K),
            arguments={"heads": heads},
        ).check("", [r(X)], rng)


def add_equal(program, rng):
    """x times x: what the two operands get together is the gradient of the square."""
    f = program.function("equal_operands")
    x, dy = f.input("x", X), f.input("dy", X)
    f.output("y", f.rows("mul", [x, x], x.type))
    f.output("dx", f.rows("add", f.rows_grad("mul", [x, x], dy, [0, 1]), x.type))
    xs, dys = rng.standard_normal(X), rng.standard_normal(X)
    a, d = rounded([xs, dys])
    program.check(f, {"x": xs, "dy": dys}, {"y": a * a, "dx": 2 * a * d}, GRADIENT)


def add_chain(program, rng):
    """More ops than fit one kernel, values used twice: what fusion must not change."""
    f = program.function("chain")
    x, w, g = f.input("x", FLAT), f.input("w", (H * K,)), f.input("g", FLAT)
    value, total = x, None
    for i in range(6):
        n = f.rows("rms_norm", [value, w], x.type, eps=1e-6)
        a = f.rows("activation", [f.rows("mul", [n, g], x.type)], x.type, kind='"silu"')
        value = f.rows("add", [value, a, x], x.type)
    f.output("y", value)
    xs, ws, gs = (rng.standard_normal(s) for s in (FLAT, (H * K,), FLAT))

    def reference(x, w, g):
        value = x
        for _ in range(6):
            n = ROWS["rms_norm"](value, w, eps=1e-6)[0]
            value = value + ROWS["activation"](n * g, kind="silu")[0] + x
        return value

    program.check(f, {"x": xs, "w": ws, "g": gs}, {"y": reference(*rounded([xs, ws, gs]))}, VALUE)


def add_divisor(program, rng):
    """A quotient of saved values and the gradient of a parameter: rows that only fill the last block divide 0 by 0."""
    f = program.function("divisor")
    a, d, w, dy = f.input("a", X), f.input("d", X), f.input("w", (H, K)), f.input("dy", X)
    quotient = f.rows("mul", [a, f.rows("activation", [d], d.type, kind='"reciprocal"')], a.type)
    f.output("y", f.rows("weighted", [quotient, w], a.type))
    for name, found in zip(("dquotient", "dw"), f.rows_grad("weighted", [quotient, w], dy, [0, 1])):
        f.output(name, found)
    values, divisors, weights, cotangents = rng.standard_normal(X), rng.uniform(0.5, 2, X), rng.standard_normal((H, K)), rng.standard_normal(X)
    x, d, w, c = rounded([values, divisors, weights, cotangents])
    program.check(
        f,
        {"a": values, "d": divisors, "w": weights, "dy": cotangents},
        {"y": x / d * w, "dquotient": c * w, "dw": (c * x / d).sum((0, 1))},
        GRADIENT,
    )


def main():
    rng = np.random.default_rng(7)
    program = Program("rows")
    add_ops(program, rng)
    add_equal(program, rng)
    add_chain(program, rng)
    add_divisor(program, rng)
    return program.finish()


if __name__ == "__main__":
    sys.exit(main())
