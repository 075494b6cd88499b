"""What a stated recurrence means (models/README.md, "A recurrence of your own"), token by token, forward only.

Names are vectors of a head, or numbers; k^T is a column, diag(a) a matrix, full(a) multiplies every element. Products are taken from the left as they
stand: nothing is multiplied out, no class is found, no logarithm is taken. Kept are scans, and gradient steps of single tokens.
"""

import re

import numpy as np

from common import PADDING, log_sigmoid, sigmoid, softmax, softplus
from rows import l2_norm

FUNCTIONS = {"sigmoid": sigmoid, "exp": np.exp, "softplus": softplus, "log_sigmoid": log_sigmoid, "tanh": np.tanh, "silu": lambda x: x * sigmoid(x)}
FUNCTIONS |= {"log": lambda x: np.log(np.maximum(x, 1e-30)), "sqrt": lambda x: np.sqrt(np.maximum(x, 1e-30)), "clamp": np.clip}
FUNCTIONS |= {"max": np.maximum, "min": np.minimum, "abs": np.abs}
FUNCTIONS |= {"softmax": softmax, "l2_norm": lambda x: l2_norm(x, 1e-6)[0]}
TOKEN = re.compile(r"\s*(?:(\d+\.?\d*(?:e-?\d+)?)|([A-Za-z_]\w*)(\()?|(\^[T234])|(\S))")


class Parser:
    """-> ("number", x), ("name", n), ("call", f, arguments), ("transpose" | "minus" | "whole", t), ("power", t, n), ("sum" | "times" | "over", a, b)"""

    def __init__(self, text):
        self.tokens = []
        for number, name, opens, transpose, other in TOKEN.findall(text):
            self.tokens.append(("number", float(number)) if number else ("call" if opens else "name", name) if name else (transpose or other, None))
        self.tokens.append(("end", None))

    def next(self):
        return self.tokens.pop(0)

    def at(self, *kinds):
        return self.tokens[0][0] in kinds

    def sum(self):
        term = ("minus", self.product()) if self.at("-") and self.next() else self.product()
        while self.at("+", "-"):
            minus = self.next()[0] == "-"
            term = ("sum", term, ("minus", self.product()) if minus else self.product())
        return term

    def product(self):
        term = self.factor()
        while self.at("*", "/", "number", "name", "call", "("):
            over = self.next()[0] == "/" if self.at("*", "/") else False
            term = ("over" if over else "times", term, self.factor())
        return term

    def factor(self):
        kind, value = self.next()
        if kind == "(":
            term = ("whole", self.sum())  # in (q k) M a row, where q k M is q times one
            self.next()
        elif kind == "call":
            arguments = []
            while not arguments or self.next()[0] == ",":
                if self.at("name") and self.tokens[1][0] == "=":
                    del self.tokens[:3]  # per=head
                else:
                    arguments.append(self.sum())
            term = ("call", value, arguments)
        else:
            term = (kind, value)
        while self.at("^T", "^2", "^3", "^4"):
            above = self.next()[0][1]
            term = ("transpose", term) if above == "T" else ("power", term, int(above))
        return term


def parsed(equation):
    left, right = equation.split("=", 1)
    return left.strip(), Parser(right).sum()


def sums(term):
    """q z alone, which 1e-6 keeps from 0."""
    while term[0] == "whole":
        term = term[1]
    return term[0] == "times" and any(part in (("name", "z"), ("transpose", ("name", "z"))) for part in term[1:])


class Token:
    """An equation at one token of one head; `reads`: of an output, in which M is read. `columns`: what is not transposed is one; `turned`: M is values by keys."""

    def __init__(self, values, spec, reads=False):
        self.values, self.K, self.V, self.reads = values, spec["head_dim"], spec["value_dim"], reads
        self.plain, self.turned = "column" if spec.get("columns") else "row", spec.get("turned")

    def of(self, term):
        kind = term[0]
        if kind == "number":
            return "number", term[1]
        if kind == "name":
            if term[1] == "I":
                return "matrix", np.eye(self.K)
            value = self.values[term[1]]
            return value if isinstance(value, tuple) else ("number", value[0]) if len(value) == 1 else (self.plain, value)
        if kind == "whole":
            return self.of(term[1])
        if kind == "minus":
            kind, value = self.of(term[1])
            return kind, -value
        if kind == "power":
            kind, value = self.of(term[1])
            return kind, value ** term[2]
        if kind == "transpose":
            kind, value = self.of(term[1])
            return {"row": "column", "column": "row"}.get(kind, kind), value.T
        if kind == "sum":
            return self.add(self.of(term[1]), self.of(term[2]))
        if kind == "over":
            (kind, above), (_, below) = self.of(term[1]), self.of(term[2])
            return kind, above / (below + 1e-6 if self.reads and sums(term[2]) else below)
        if kind == "times":
            states = [("name", name) for name in ("M", "M_prev", "z")]
            if self.reads and self.plain == "row" and (term[2] in states or term[2][1] in states):
                return self.read(term[1], self.of(term[2]))
            return self.multiply(self.of(term[1]), self.of(term[2]))
        return self.call(*term[1:])

    def call(self, function, arguments):
        if function == "grad":  # of |k M - v|^2 / 2: k^T (k M - v)
            difference = arguments[0][2][0]
            key = difference[1][2 if self.plain == "column" else 1]
            sides = self.of(key)[1], self.of(difference)[1]
            return "matrix", np.outer(*(reversed(sides) if self.turned else sides))
        kind, value = self.of(arguments[0])
        if function == "diag":
            return "matrix", np.diag(value)
        if function == "full":
            return "element", value if kind == "number" else value.reshape(self.K, self.V)
        if function == "inner":
            return "number", float((value * self.of(arguments[1])[1]).sum())
        return kind, FUNCTIONS[function](value, *(self.of(argument)[1] for argument in arguments[1:]))

    def read(self, left, state):
        rest, row = (left[1], left[2]) if left[0] == "times" else (None, left)
        query = ("row", np.ones(self.K)) if row == ("number", 1.0) else self.of(row)
        kind, value = self.multiply(query, state)
        return (kind, value) if rest is None else self.multiply(self.of(rest), (kind, value))

    def add(self, a, b):
        if a[0] == "number" and b[0] != "number":
            a, b = b, a
        if b[0] == "number" and a[0] == "matrix":
            b = "matrix", b[1] * np.eye(self.K)
        assert b[0] in ("number", a[0]), (a[0], b[0])
        return a[0], a[1] + b[1]

    def multiply(self, a, b):
        (left, x), (right, y) = a, b
        if left == "number" or right == "number":
            return (right if left == "number" else left), x * y
        if left == right and left in ("row", "column"):
            return left, x * y
        if (left, right) == ("row", "column"):
            return "number", float(x @ y)
        kinds = {("element", "matrix"): "matrix", ("column", "row"): "matrix", ("row", "matrix"): "row", ("matrix", "matrix"): "matrix", ("matrix", "column"): "column"}
        return kinds[left, right], x * y if left == "element" else np.outer(x, y) if left == "column" else x @ y


def inputs(x, w, spec, sizes):
    """name -> [B, T, H, n]; sizes: n of every name."""
    B, T = x.shape[:2]
    found = {name: w["lsm." + name].reshape(1, 1, spec["heads"], -1) for name in spec.get("parameters", {})}

    def of(term, name):
        kind = term[0]
        if kind == "number":
            return np.full((1, 1, 1, 1), term[1])
        if kind == "name":
            return found[term[1]]
        if kind in ("minus", "whole"):
            return of(term[1], name) * (-1 if kind == "minus" else 1)
        if kind == "power":
            return of(term[1], name) ** term[2]
        if kind == "call" and term[1] == "linear":
            return (x @ w["lsm.w" + name]).reshape(B, T, spec["heads"], -1)
        if kind == "call":
            return FUNCTIONS[term[1]](*(of(argument, name) for argument in term[2]))
        a, b = of(term[1], name), of(term[2], name)
        return a + b if kind == "sum" else a * b if kind == "times" else a / b

    for name, text in spec["inputs"].items():
        found[name] = of(Parser(text).sum(), name)
    return {name: np.broadcast_to(a, (B, T, spec["heads"], sizes[name])) for name, a in found.items()}


def recurrence(x, documents, w, spec, sizes):
    """x [B, T, d_model], documents [B, T] (where a token's began), w "lsm.wq": array -> o wo, [B, T, d_model]; no output norm, no gate."""
    H, K, V = spec["heads"], spec["head_dim"], spec["value_dim"]
    equations = [parsed(text) for text in spec["state"].split(";")]
    _, output = parsed(spec["output"])
    values = inputs(x, w, spec, sizes)
    o = np.zeros((*x.shape[:2], H, V))
    for b, h, t in np.ndindex(x.shape[0], H, x.shape[1]):
        if documents[b, t] == PADDING:
            continue
        if t == documents[b, t]:
            M, z = np.zeros((K, V)), np.zeros(K)
        here = {name: a[b, t, h] for name, a in values.items()}
        turn = (lambda a: a.T) if spec.get("turned") else (lambda a: a)
        before = M
        for left, right in equations:  # one after the other
            new = Token(here | {"M": ("matrix", turn(M)), "z": ("column", z)}, spec).of(right)[1]
            M, z = (turn(new), z) if left == "M" else (M, new)
        read = {name: ("matrix", turn(a) * K**-0.5) for name, a in (("M", M), ("M_prev", before))}
        read["z"] = ("column", z * K**-0.5) if spec.get("columns") else ("matrix", z[:, None] * K**-0.5)
        o[b, t, h] = Token(here | read, spec, reads=True).of(output)[1]
    return o.reshape(*x.shape[:2], H * V) @ w["lsm.wo"]
