"""What every reference shares: activations with derivatives, masks of documents, comparisons, finite differences.

Everything is float64 numpy. A reference function returns `(value, pull)`: `pull` takes the cotangent of the value and
returns the cotangents of the arguments, in their order (None for integers). Formulas are those of the op descriptions in
dialects/braid/*.td; none of this code is derived from the compiler's.
"""

import math

import numpy as np

PADDING = np.iinfo(np.int32).max  # `documents` of a token that belongs to no document


def sigmoid(x):
    return np.where(x >= 0, 1 / (1 + np.exp(-np.abs(x))), np.exp(-np.abs(x)) / (1 + np.exp(-np.abs(x))))


def softplus(x):
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def log_sigmoid(x):
    return -softplus(-x)


def erf(x):
    return np.vectorize(math.erf, otypes=[float])(x)


def softmax(x, axis=-1):
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


def log_sum_exp(x):
    top = x.max(-1, keepdims=True)
    return (top + np.log(np.exp(x - top).sum(-1, keepdims=True)))[..., 0]


def _silu_slope(x):
    s = sigmoid(x)
    return s * (1 + x * (1 - s))


_C = math.sqrt(2 / math.pi)


def _gelu_tanh(x):
    return 0.5 * x * (1 + np.tanh(_C * (x + 0.044715 * x**3)))


def _gelu_tanh_slope(x):
    t = np.tanh(_C * (x + 0.044715 * x**3))
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * _C * (1 + 3 * 0.044715 * x * x)


# kind: (function, derivative)
ACTIVATIONS = {
    "silu": (lambda x: x * sigmoid(x), _silu_slope),
    "sigmoid": (sigmoid, lambda x: sigmoid(x) * sigmoid(-x)),
    "tanh": (np.tanh, lambda x: 1 - np.tanh(x) ** 2),
    "relu": (lambda x: np.maximum(x, 0), lambda x: (x > 0).astype(float)),
    "relu2": (lambda x: np.maximum(x, 0) ** 2, lambda x: 2 * np.maximum(x, 0)),
    "gelu": (
        lambda x: 0.5 * x * (1 + erf(x / math.sqrt(2))),
        lambda x: 0.5 * (1 + erf(x / math.sqrt(2))) + x * np.exp(-0.5 * x * x) / math.sqrt(2 * math.pi),
    ),
    "gelu_tanh": (_gelu_tanh, _gelu_tanh_slope),
    "softplus": (softplus, sigmoid),
    "elu1": (
        lambda x: np.where(x > 0, x + 1, np.exp(np.minimum(x, 0))),
        lambda x: np.where(x > 0, 1, np.exp(np.minimum(x, 0))),
    ),
    "exp": (np.exp, np.exp),
    "bounded_exp": (lambda x: np.exp(np.minimum(x, 7)), lambda x: np.where(x < 7, np.exp(np.minimum(x, 7)), 0)),
    "reciprocal": (lambda x: 1 / x, lambda x: -1 / (x * x)),
    "log": (lambda x: np.log(np.maximum(x, 1e-30)), lambda x: np.where(x > 1e-30, 1 / np.maximum(x, 1e-30), 0)),
    "sqrt": (lambda x: np.sqrt(np.maximum(x, 1e-30)), lambda x: np.where(x > 1e-30, 0.5 / np.sqrt(np.maximum(x, 1e-30)), 0)),
    "cos": (np.cos, lambda x: -np.sin(x)),
    "sin": (np.sin, np.cos),
    "fraction": (lambda x: x - np.floor(x + 0.5), np.ones_like),
}


def sum_to(x, shape):
    """The transpose of broadcasting `shape` to x's shape."""
    x = x.sum(axis=tuple(range(x.ndim - len(shape))))
    for axis, size in enumerate(shape):
        if size == 1 and x.shape[axis] != 1:
            x = x.sum(axis=axis, keepdims=True)
    return x


# ---- documents


def documents_of(cu_seqlens, tokens, begin=0):
    """braid.documents: cu_seqlens [B, D + 1] -> [B, T]: where the document of each token begins, relative to `begin`."""
    cu = np.asarray(cu_seqlens)
    out = np.full((len(cu), tokens), PADDING, np.int32)
    for b, row in enumerate(cu):
        for t in range(begin, begin + tokens):
            if t < row[-1]:
                out[b, t - begin] = max(e for e in row if e <= t) - begin
    return out


def one_document(batch, tokens, begin=0):
    """Every row is one document that began `-begin` tokens before it (0: at its first token)."""
    return np.full((batch, tokens), begin, np.int32)


# ---- comparisons


def relative_error(x, reference):
    """|x - reference| / |reference|; of two zeros 0."""
    x, reference = np.asarray(x, np.float64), np.asarray(reference, np.float64)
    if x.shape != reference.shape:
        raise ValueError(f"shape {x.shape} against reference {reference.shape}")
    if not np.all(np.isfinite(x)):
        return math.inf
    norm, distance = np.linalg.norm(reference), np.linalg.norm(x - reference)
    return distance / norm if norm else distance


def largest_error(x, reference):
    """max |x - reference| / max |reference|."""
    reference = np.asarray(reference, np.float64)
    if reference.size == 0:
        return 0.0
    top, distance = np.abs(reference).max(), np.abs(np.asarray(x, np.float64) - reference).max()
    return distance / top if top else distance


def check_pull(name, function, arguments, rng, tolerance=1e-6, skip=()):
    """Compares `pull` with central differences along one random direction per argument. -> list of (case, error, limit)."""
    value, pull = function(*arguments)
    values = value if isinstance(value, tuple) else (value,)
    cotangents = tuple(rng.standard_normal(v.shape) for v in values)
    gradients = pull(*cotangents)
    gradients = gradients if isinstance(gradients, tuple) else (gradients,)
    rows = []
    for i, argument in enumerate(arguments):
        if i in skip or not isinstance(argument, np.ndarray) or argument.dtype != np.float64 or gradients[i] is None:
            continue
        direction = rng.standard_normal(argument.shape)

        def loss(step):
            moved = list(arguments)
            moved[i] = argument + step * direction
            out = function(*moved)[0]
            return sum((v * c).sum() for v, c in zip(out if isinstance(out, tuple) else (out,), cotangents))

        h = 1e-5
        difference = (loss(h) - loss(-h)) / (2 * h)
        analytic = (gradients[i] * direction).sum()
        scale = max(1.0, np.linalg.norm(gradients[i]))
        rows.append((f"{name} d{i}", abs(difference - analytic) / scale, tolerance))
    return rows
