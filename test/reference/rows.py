"""Row-wise ops: norms, gates, activations, rotations, heads. Token values are [B, T, features..]; `(y, pull)` as everywhere.

ROWS maps the name of a braid op to a function of its operands and attributes.
"""

import numpy as np

from common import ACTIVATIONS, PADDING, log_sigmoid, sigmoid, softmax as softmax_of, softplus, sum_to


def _leading(small, large):
    """[B, T, a..] seen as [B, T, a.., 1..]."""
    return small.reshape(small.shape + (1,) * (large.ndim - small.ndim))


def _trailing(whole, x):
    """A whole tensor over the trailing dimensions of x; [H] of [B, T, H, K] pads to [H, 1]."""
    if x.shape[x.ndim - whole.ndim :] != whole.shape:
        whole = whole.reshape(whole.shape + (1,) * (x.ndim - 2 - whole.ndim))
    return whole


def _per_head(whole, x):
    """[H] of x [B, T, H, K] is one number per head, also where K = H."""
    return whole[:, None] if whole.ndim == 1 and x.ndim == 4 else _trailing(whole, x)


def add(*xs):
    return sum(xs), lambda dy: tuple(dy for _ in xs)


def mul(a, b):
    wide = _leading(b, a)
    return a * wide, lambda dy: (dy * wide, sum_to(dy * a, wide.shape).reshape(b.shape))


def scale(x, value):
    return x * value, lambda dy: (dy * value,)


def offset(x, value):
    return x + value, lambda dy: (dy,)


def clamp(x, low=-np.inf, high=np.inf):
    return np.clip(x, low, high), lambda dy: (np.where((x >= low) & (x <= high), dy, 0),)


def bias(x, bias):
    wide = _trailing(bias, x)
    return x + wide, lambda dy: (dy, sum_to(dy, wide.shape).reshape(bias.shape))


def weighted(x, weight, per_head=False):
    wide = weight[:, None] if per_head else _trailing(weight, x)
    return x * wide, lambda dy: (dy * wide, sum_to(dy * x, wide.shape).reshape(weight.shape))


def activation(x, kind):
    f, slope = ACTIVATIONS[kind]
    return f(x), lambda dy: (dy * slope(x),)


def softmax(x):
    p = softmax_of(x)
    return p, lambda dy: (p * (dy - (p * dy).sum(-1, keepdims=True)),)


def log_sigmoid_op(x, divide):
    return log_sigmoid(x) / divide, lambda dy: (dy * sigmoid(-x) / divide,)


def log_decay(x, a_log, dt_bias):
    """-exp(a_log) softplus(x + dt_bias); a_log per head."""
    rate, step = -np.exp(_per_head(a_log, x)), softplus(x + dt_bias)

    def pull(dy):
        dx = dy * rate * sigmoid(x + dt_bias)
        return dx, sum_to(dy * rate * step, rate.shape).reshape(a_log.shape), dx.sum((0, 1))

    return rate * step, pull


def feature_map(x, kind):
    """taylor: [1, x d^-1/4, products]; square: products. Products of i <= j, so that phi.phi is a polynomial of x.x."""
    d = x.shape[-1]
    first, second = np.triu_indices(d)
    share = np.where(first == second, 1.0, np.sqrt(2.0)) / np.sqrt((2.0 if kind == "taylor" else 1.0) * d)
    parts = [x[..., first] * x[..., second] * share]
    if kind == "taylor":
        parts = [np.ones(x.shape[:-1] + (1,)), x * d**-0.25, *parts]

    def pull(dy):
        dp = dy[..., -len(first) :] * share
        dx = dy[..., 1 : 1 + d] * d**-0.25 if kind == "taylor" else np.zeros(x.shape)
        for n, (i, j) in enumerate(zip(first, second)):
            dx[..., i] += dp[..., n] * x[..., j]
            dx[..., j] += dp[..., n] * x[..., i]
        return (dx,)

    return np.concatenate(parts, -1), pull


def append_one(x, zeros=0):
    beside = np.zeros(x.shape[:-1] + (zeros + 1,))
    beside[..., -1] = 1
    return np.concatenate([x, beside], -1), lambda dy: (dy[..., : x.shape[-1]],)


def divide_by_last(x, eps, least=None, zeros=0):
    """With `least`: by max(|last|, least) + eps."""
    last, slope = x[..., -1:], 1.0
    if least is not None:
        last, slope = np.maximum(np.abs(last), least), np.sign(last) * (np.abs(last) >= least)
    divisor = last + eps
    y = x[..., : -1 - zeros] / divisor
    unread = np.zeros(x.shape[:-1] + (zeros,))
    return y, lambda dy: (np.concatenate([dy, unread, -slope * (dy * y).sum(-1, keepdims=True)], -1) / divisor,)


def drop_last(x, zeros=0):
    return x[..., : -1 - zeros], lambda dy: (np.concatenate([dy, np.zeros(dy.shape[:-1] + (zeros + 1,))], -1),)


def take_last(x):
    return x[..., -1], lambda dy: (np.concatenate([np.zeros(x.shape[:-1] + (x.shape[-1] - 1,)), dy[..., None]], -1),)


def inner(a, b):
    return (a * b).sum(-1), lambda dy: (dy[..., None] * b, dy[..., None] * a)


def dot(x, weight):
    return x @ weight, lambda dy: (dy[..., None] * weight, np.tensordot(dy, x, dy.ndim))


def bounded_gate(x, lower_bound):
    """log(l + (1 - l) sigmoid(x))"""
    l = _per_head(lower_bound, x)
    s = sigmoid(x)
    y = np.where(l > 0, np.log(np.where(l > 0, l, 1) + (1 - l) * s), log_sigmoid(x))

    def pull(dy):
        inverse = dy * np.exp(-y)
        return inverse * (1 - l) * s * sigmoid(-x), sum_to(inverse * sigmoid(-x), l.shape).reshape(lower_bound.shape)

    return y, pull


def element_decay(x, a_log):
    """-exp(a_log) x: x [B, T, H, V], a_log [H, K, V]."""
    rate, wide = -np.exp(a_log), x[:, :, :, None, :]
    return rate * wide, lambda dy: ((dy * rate).sum(3), (dy * rate * wide).sum((0, 1)))


def _normalise(x, eps, groups=1):
    cut = x.reshape(x.shape[:-1] + (groups, x.shape[-1] // groups))
    r = 1 / np.sqrt((cut * cut).mean(-1, keepdims=True) + eps)

    def pull(dn):
        dn = dn.reshape(cut.shape)
        return (r * (dn - cut * r * r * (dn * cut).mean(-1, keepdims=True))).reshape(x.shape)

    return (cut * r).reshape(x.shape), pull


def rms_norm(x, weight, eps, groups=1):
    n, pull_n = _normalise(x, eps, groups)
    return n * weight, lambda dy: (pull_n(dy * weight), sum_to(dy * n, weight.shape))


def layer_norm(x, weight, bias=None, *, eps):
    n, pull_n = _normalise(x - x.mean(-1, keepdims=True), eps)

    def pull(dy):
        dc = pull_n(dy * weight)
        return dc - dc.mean(-1, keepdims=True), sum_to(dy * n, weight.shape), *(() if bias is None else (sum_to(dy, bias.shape),))

    return n * weight + (0 if bias is None else bias), pull


def l2_norm(x, eps):
    r = 1 / np.sqrt((x * x).sum(-1, keepdims=True) + eps)
    y = x * r
    return y, lambda dy: (r * (dy - y * (dy * y).sum(-1, keepdims=True)),)


def gated_norm(o, gate, weight, eps, activation, norm_first=True, groups=1):
    """norm_first: rms_norm(o) weight act(gate); otherwise rms_norm(o act(gate)) weight."""
    f, slope = ACTIVATIONS[activation]
    a = f(gate)
    n, pull_n = _normalise(o if norm_first else o * a, eps, groups)

    def pull(dy):
        if norm_first:
            return pull_n(dy * weight * a), dy * n * weight * slope(gate), sum_to(dy * n * a, weight.shape)
        dx = pull_n(dy * weight)
        return dx * a, dx * o * slope(gate), sum_to(dy * n, weight.shape)

    return n * weight * (a if norm_first else 1), pull


def positions(documents, period=0):
    """token - documents, modulo `period`; 0 of padding."""
    place = np.arange(documents.shape[1])[None] - documents.astype(np.int64)
    place = np.where(documents == PADDING, 0, place)
    return place % period if period else place


def position_rate(documents, weight, heads):
    """max(1 / (i + 1) + weight_i, 0), i the position modulo the number of weights, for every head."""
    place = positions(documents, len(weight))
    rate = 1 / (place + 1) + weight[place]

    def pull(dy):
        d = np.zeros(weight.shape)
        np.add.at(d, place, np.where(rate >= 0, dy.sum(-1), 0))
        return None, d

    return np.repeat(np.maximum(rate, 0)[..., None], heads, -1), pull


def position_angle(documents, phase):
    """position * phase less whole turns, from -pi to pi."""
    angle = positions(documents)[..., None, None] * phase
    turns = np.floor(angle / (2 * np.pi) + 0.5)
    place = positions(documents)[..., None, None]
    return angle - 2 * np.pi * turns, lambda dy: (None, (dy * place).sum((0, 1)))


def every_token(documents, value):
    """The same at every token."""
    return np.broadcast_to(value, documents.shape + value.shape).copy(), lambda dy: (None, dy.sum((0, 1)))


def rope_scaling(scaling, theta, dim):
    """What a description's `scaling` makes of rotations: factors of their frequencies, pair by pair, and the scale of what turns."""
    kind, factor = scaling["kind"], scaling.get("factor", 1.0)
    if kind == "proportional":
        return np.where(np.arange(dim // 2) < int(scaling["share"] * dim / 2), 1 / factor, 0.0), 1.0
    if kind == "linear":
        return np.full(dim // 2, 1 / factor), 1.0
    pairs, context = np.arange(dim // 2), scaling["original_context_len"]
    if kind == "llama3":
        low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
        wavelength = 2 * np.pi * theta ** (2.0 * pairs / dim)
        smooth = (context / wavelength - low) / (high - low)
        between = (1 - smooth) / factor + smooth
        return np.where(wavelength > context / low, 1 / factor, np.where(wavelength < context / high, 1.0, between)), 1.0
    # The pair that makes so many turns in the context: theta^(-2i/dim) context = 2 pi turns.
    first, last = (
        dim * np.log(context / (2 * np.pi * turns)) / (2 * np.log(theta))
        for turns in (scaling.get("beta_fast", 32.0), scaling.get("beta_slow", 1.0))
    )
    if scaling.get("truncate", True):
        first, last = np.floor(first), np.ceil(last)
    first, last = max(first, 0.0), min(last, dim - 1.0)
    slowed = np.clip((pairs - first) / (last - first if last != first else 0.001), 0, 1)
    attention = scaling.get("attention_factor") or (1 + 0.1 * np.log(factor) if factor > 1 else 1.0)
    return slowed / factor + 1 - slowed, attention


def rope(x, documents, theta, dim, layout, period=0, factors=1.0, scale=1.0):
    """Rotates pairs of the first `dim` features by position * theta^(-2i/dim) * factors, times scale; position = token - documents."""
    B, T = x.shape[:2]
    position = positions(documents, period)
    angle = position[..., None] * theta ** (-2.0 * np.arange(dim // 2) / dim) * np.asarray(factors)
    angle = angle.reshape((B, T) + (1,) * (x.ndim - 3) + (dim // 2,))
    first = np.arange(dim // 2) if layout == "half" else 2 * np.arange(dim // 2)
    second = first + (dim // 2 if layout == "half" else 1)

    def turn(x, angle):
        y = x.copy()
        a, b = x[..., first], x[..., second]
        y[..., first] = scale * (a * np.cos(angle) - b * np.sin(angle))
        y[..., second] = scale * (b * np.cos(angle) + a * np.sin(angle))
        return y

    return turn(x, angle), lambda dy: (turn(dy, -angle), None)


def repeat_heads(x, heads):
    B, T, G = x.shape[:3]
    y = np.repeat(x, heads // G, axis=2)
    return y, lambda dy: (dy.reshape((B, T, G, heads // G) + x.shape[3:]).sum(3),)


def short_conv(x, weight, documents, tail):
    """Causal depthwise convolution; tap K - 1 meets the current token; taps before the document read 0, before the row `tail`.
    -> (y, new tail), pull(dy, dnew_tail) -> dx, dweight, None, dtail. The new tail holds the last K - 1 inputs of the row,
    padding tokens not counted."""
    B, T = x.shape[:2]
    flat = x.reshape(B, T, -1)
    K = weight.shape[1]
    rows = np.concatenate([tail, flat], 1)  # row index of token t: t + K - 1
    y = np.zeros(flat.shape)
    taps = []
    for j in range(K):
        source = np.arange(T)[None] - (K - 1 - j)
        reads = (source >= documents.astype(np.int64)) & (documents != PADDING)
        part = np.where(reads[..., None], rows[:, j : j + T], 0)
        taps.append((part, reads))
        y += part * weight[:, j]
    length = (documents != PADDING).sum(1)  # padding stands at the end of a row
    new_tail = np.stack([rows[b, n : n + K - 1] for b, n in enumerate(length)])

    def pull(dy, dnew_tail):
        dy = dy.reshape(flat.shape)
        drows, dweight = np.zeros(rows.shape), np.zeros(weight.shape)
        for j, (part, reads) in enumerate(taps):
            dweight[:, j] = (part * dy).sum((0, 1))
            drows[:, j : j + T] += np.where(reads[..., None], dy * weight[:, j], 0)
        for b, n in enumerate(length):
            drows[b, n : n + K - 1] += dnew_tail[b]
        return drows[:, K - 1 :].reshape(x.shape), dweight, None, drows[:, : K - 1]

    return (y.reshape(x.shape), new_tail), pull


ROWS = {
    "add": add,
    "mul": mul,
    "scale": scale,
    "offset": offset,
    "clamp": clamp,
    "bias": bias,
    "weighted": weighted,
    "activation": activation,
    "softmax": softmax,
    "log_sigmoid": log_sigmoid_op,
    "log_decay": log_decay,
    "rms_norm": rms_norm,
    "layer_norm": layer_norm,
    "l2_norm": l2_norm,
    "gated_norm": gated_norm,
    "rope": rope,
    "position_rate": position_rate,
    "position_angle": position_angle,
    "every_token": every_token,
    "repeat_heads": repeat_heads,
    "feature_map": feature_map,
    "append_one": append_one,
    "divide_by_last": divide_by_last,
    "drop_last": drop_last,
    "take_last": take_last,
    "inner": inner,
    "dot": dot,
    "bounded_gate": bounded_gate,
    "element_decay": element_decay,
}
