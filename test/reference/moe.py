"""Mixture of experts on one rank: selection, weights, losses, plans, rows, experts. N = B T tokens, assignment a = n k + j.

Selection order (normative): larger key first, of equal keys the lower index, NaN behind every number, what is in no kept group
behind NaN. Integers have no gradient; every function of values returns `(value, pull)`.
"""

import math

import numpy as np

from common import ACTIVATIONS, PADDING, log_sum_exp, softmax


def kept_groups(keys, groups, kept, top):
    """Which experts' groups are among the `kept` ones with the largest sums of their `top` largest keys (NaN counts as -inf)."""
    parts = np.where(np.isnan(keys), -np.inf, keys).reshape(*keys.shape[:-1], groups, -1)
    sums = -np.sort(-parts, axis=-1)[..., :top].sum(-1)
    place = np.argsort(np.argsort(-sums, axis=-1, kind="stable"), axis=-1)
    return np.repeat(place < kept, parts.shape[-1], axis=-1)


def route(keys, k, groups=1, kept=1, top=1):
    """expert_ids [.., k]."""
    nan = np.isnan(keys)
    masked = ~kept_groups(keys, groups, kept, top) if groups > 1 else np.zeros(keys.shape, bool)
    index = np.broadcast_to(np.arange(keys.shape[-1]), keys.shape)
    return np.lexsort((index, -np.where(nan | masked, 0, keys), nan & ~masked, masked), axis=-1)[..., :k].astype(np.int32)


def selection_gap(keys, k):
    """Difference between the last chosen and the first unchosen key, per token."""
    order = -np.sort(-keys, axis=-1)
    return order[..., k - 1] - order[..., k] if k < keys.shape[-1] else np.full(keys.shape[:-1], np.inf)


def sigmoid(x):
    return np.exp(-np.logaddexp(0, -x))


def shares(s):
    """Scores divided by their sum + 1e-20, and the cotangent of scores from that of shares."""
    total = s.sum(-1, keepdims=True) + 1e-20
    return s / total, lambda dp: (dp - (dp * s).sum(-1, keepdims=True) / total) / total


def route_weights(logits, ids, normalize, score="softmax"):
    """Softmax (or sigmoid) of the logits at ids, divided by their sum when `normalize`."""
    at = ids.astype(np.int64)
    if score == "sigmoid":
        s = sigmoid(np.take_along_axis(logits, at, -1))
        w, pull_shares = shares(s) if normalize else (s, lambda dw: dw)

        def pull(dw):
            d = np.zeros(logits.shape)
            np.put_along_axis(d, at, pull_shares(dw) * s * sigmoid(-np.take_along_axis(logits, at, -1)), -1)
            return d, None

        return w, pull
    p = softmax(logits)
    chosen = np.take_along_axis(p, at, -1)
    total = chosen.sum(-1, keepdims=True) if normalize else 1.0
    w = chosen / total

    def pull(dw):
        dchosen = (dw - (dw * w).sum(-1, keepdims=True)) / total if normalize else dw
        dp = np.zeros(logits.shape)
        np.put_along_axis(dp, at, dchosen, -1)
        return p * (dp - (dp * p).sum(-1, keepdims=True)), None

    return w, pull


def router_loss(logits, counts, documents, top_k, balance, z, score="softmax"):
    """Share [B, T] of balance * E / (k N^2) sum_i c_i p_ni + z / N lse_n^2, 0 for padding; counts are constants.

    N, the tokens that are no padding, is sum_i c_i / k."""
    q, lse, live = softmax(logits), log_sum_exp(logits), np.asarray(documents) != PADDING
    tokens = max(1.0, float(np.sum(counts)) / top_k)
    c = balance * logits.shape[-1] / (top_k * tokens**2) * np.asarray(counts, np.float64)
    s = sigmoid(logits)
    p, pull_shares = shares(s) if score == "sigmoid" else (q, None)

    def pull(dy):
        d = pull_shares(np.broadcast_to(c, s.shape)) * s * sigmoid(-logits) if pull_shares else p * (c - (p * c).sum(-1, keepdims=True))
        d = d + 2 * z / tokens * lse[..., None] * q
        return np.where(live, dy, 0)[..., None] * d, None, None

    return np.where(live, (p * c).sum(-1) + z / tokens * lse**2, 0), pull


def correct(correction, load, rate):
    """correction + rate sign(mean load - load), over the last dimension."""
    load = np.asarray(load, np.float64)
    return correction + rate * np.sign(load.sum(-1, keepdims=True) - load.shape[-1] * load)


def capacity(rule, factor, tokens, top_k, experts, bucket=1):
    """Slots of an expert for `tokens` tokens (moe-family 3.1); of one of so many groups of `bucket` experts each."""
    slots = {
        "megatron": lambda: math.ceil(factor * (tokens * top_k) / experts),
        "switch": lambda: int(factor * tokens / experts),
        "megablocks": lambda: int(factor * (tokens * top_k) / experts),
        "tutel": lambda: top_k * int(factor * math.ceil(tokens / experts)),
    }[rule]()
    return min(max(slots, 1), tokens * min(top_k, bucket))


def mix(z):
    """The finaliser of splitmix64 on a Python integer."""
    z &= 2**64 - 1
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & 2**64 - 1
    z = (z ^ z >> 27) * 0x94D049BB133111EB & 2**64 - 1
    return z ^ z >> 31


class Draws:
    """What a row of the batch draws in a layer: numbers in [0, 1) of 24 bits, for tokens and for documents."""

    def __init__(self, sample, seed, layer):
        row = mix(mix(int(seed) + GOLDEN) ^ int(sample))
        self.tokens, self.documents = mix(row ^ int(layer) + 1), mix(row)

    def token(self, n):
        return (mix(self.tokens + int(n) * GOLDEN) >> 40) / 2**24

    def document(self, first):
        return (mix(self.documents + int(first) * GOLDEN) >> 40) / 2**24


GOLDEN = 0x9E3779B97F4A7C15


def drop(ids, weights, documents, experts, slots, policy="token", taken=None, bucket=1, protect=0.0, keys=None):
    """Who gets the `slots` of each expert in each row of the batch: sort by the policy's order, hand out, first come first.

    `bucket` neighbouring experts share slots; documents that draw less than `protect` come first and keep everything;
    keys [B, 3]: sample, seed and layer of what is drawn.
    -> kept [B, T, k] (id, or -1), load [E] before dropping, dropped [E], slots in use [B, E / bucket]."""
    B, T, k = ids.shape
    used = np.zeros((B, experts // bucket), np.int64) if taken is None else np.array(taken, np.int64)
    kept, load, dropped = np.full(ids.shape, -1), np.zeros(experts, np.int64), np.zeros(experts, np.int64)
    for b in range(B):
        draws = None if keys is None else Draws(*keys[b])
        safe = lambda n: protect > 0 and draws.document(documents[b, n]) < protect
        w = None if weights is None else np.where(np.isnan(weights[b]), -1.0, weights[b])
        order = {
            "token": lambda n, j: (n, j),
            "slot": lambda n, j: (j, n),
            "score": lambda n, j: (-w[n, j], n, j),
            "bpr": lambda n, j: (j, -w[n].max(), n),
            "random": lambda n, j: (j, draws.token(n), n),
            "device": lambda n, j: (not safe(n), -w[n, j], n, j),
        }[policy]
        live = [(n, j) for n in range(T) if documents[b, n] != PADDING for j in range(k)]
        for n, j in sorted(live, key=lambda a: order(*a)):
            e = ids[b, n, j]
            load[e] += 1
            if used[b, e // bucket] < slots or safe(n):
                used[b, e // bucket] += 1
                kept[b, n, j] = e
            else:
                dropped[e] += 1
    return [a.astype(np.int32) for a in (kept, load, dropped, used)]


def renormalize(w, kept):
    """Weights of what is kept (id >= 0), rescaled to the sum of all k; a token that keeps nothing has weights 0."""
    alive = kept >= 0
    total, left = w.sum(-1, keepdims=True), np.where(alive, w, 0).sum(-1, keepdims=True)
    some = left > 0
    part = np.where(some, 1 / np.where(some, left, 1), 0)  # 1 / left

    def pull(dy):
        along = np.where(alive, dy * w, 0).sum(-1, keepdims=True)
        return along * part + np.where(alive, (dy - along * part) * total * part, 0), None

    return np.where(alive, w, 0) * total * part, pull


def plan(ids, documents, experts, peers=1, peer_rows=0, expert_rows=None):
    """-> perm [R], inverse [.., k], counts [E], offsets [E + 1], overflow [1]; rows sorted by (expert, token, slot).

    Padding and dropped assignments (id -1) have no rows (inverse -1) and are not counted; the rows behind the last one are
    empty (perm -1). expert_rows: every expert has that many rows, the filled ones in front.
    peers > 1: R = peers * peer_rows, the experts of peer p stand packed from row p * peer_rows on; rows beyond a block are
    dropped (inverse -1) and counted. offsets then stay those of the packed rows of all experts."""
    live = np.repeat(np.asarray(documents).reshape(-1) != PADDING, ids.shape[-1])
    flat = ids.reshape(-1)
    live &= flat >= 0
    counts = np.bincount(flat[live], minlength=experts)
    offsets = np.concatenate([[0], np.cumsum(counts)])
    starts = offsets if expert_rows is None else expert_rows * np.arange(experts + 1)
    order = np.argsort(flat, kind="stable")
    order = order[live[order]]
    rows = peers * peer_rows if peers > 1 else len(flat) if expert_rows is None else experts * expert_rows
    perm, inverse, overflow = np.full(rows, -1), np.full(len(flat), -1), 0
    local = experts // peers
    for packed, assignment in enumerate(order):
        expert = flat[assignment]
        peer, place = expert // local, packed - offsets[expert]
        inside = starts[expert] + place - starts[peer * local]
        if (peers > 1 and inside >= peer_rows) or (expert_rows is not None and place >= expert_rows):
            overflow += 1
            continue
        row = peer * peer_rows + inside
        perm[row], inverse[assignment] = assignment, row
    return [a.astype(np.int32) for a in (perm, inverse.reshape(ids.shape), counts, starts, np.array([overflow]))]


def plan_received(counts, peer_rows):
    """Blocks (source, local expert) -> sorted by (local expert, source). -> perm [R], inverse [R], offsets [El + 1]."""
    peers, local = counts.shape
    perm, inverse = np.full(peers * peer_rows, -1), np.full(peers * peer_rows, -1)
    offsets, row = [0], 0
    for e in range(local):
        for p in range(peers):
            first = p * peer_rows + counts[p, :e].sum()
            for r in range(first, min(first + counts[p, e], (p + 1) * peer_rows)):
                perm[row], inverse[r] = r, row
                row += 1
        offsets.append(row)
    return [np.asarray(a, np.int32) for a in (perm, inverse, offsets)]


def dispatch(x, perm, inverse):
    """Rows [1, R, M]: row r is token perm[r] / k of x."""
    k = inverse.shape[-1]
    flat = x.reshape(-1, x.shape[-1])
    rows = np.where(perm[:, None] >= 0, flat[np.maximum(perm, 0) // k], 0)

    def pull(drows):
        return combine(drows, None, perm, inverse)[0], None, None

    return rows[None], pull


def combine(rows, weights, perm, inverse):
    """y_n = sum_j w_nj rows[inverse_nj]; without weights 1."""
    k = inverse.shape[-1]
    live = inverse >= 0
    chosen = np.where(live[..., None], rows[0][np.maximum(inverse, 0)], 0)
    w = np.ones(inverse.shape) if weights is None else weights
    y = (w[..., None] * chosen).sum(-2)

    def pull(dy):
        flat, wf = dy.reshape(-1, dy.shape[-1]), w.reshape(-1)
        drows = np.where(perm[:, None] >= 0, wf[np.maximum(perm, 0)][:, None] * flat[np.maximum(perm, 0) // k], 0)
        return drows[None], (chosen * dy[..., None, :]).sum(-1), None, None

    return y, pull


def permute(x, perm):
    """Row r is row perm[r] of x [1, R', M]; -1 gives 0."""
    return np.where(perm[:, None] >= 0, x[0][np.maximum(perm, 0)], 0)[None]


def grouped_linear(x, offsets, weight):
    """y[r] = x[r] w[g] for rows r of group g; rows behind the last group are 0."""
    y = np.zeros((1, x.shape[1], weight.shape[2]))
    groups = [slice(offsets[g], offsets[g + 1]) for g in range(len(weight))]
    for g, rows in enumerate(groups):
        y[0, rows] = x[0, rows] @ weight[g]

    def pull(dy):
        dx, dw = np.zeros(x.shape), np.zeros(weight.shape)
        for g, rows in enumerate(groups):
            dx[0, rows], dw[g] = dy[0, rows] @ weight[g].T, x[0, rows].T @ dy[0, rows]
        return dx, None, dw

    return y, pull


def group_bias(x, offsets, bias):
    """y[r] = x[r] + bias[g] for rows r of group g; rows behind the last group stay."""
    y = x.copy()
    groups = [slice(offsets[g], offsets[g + 1]) for g in range(len(bias))]
    for g, rows in enumerate(groups):
        y[0, rows] += bias[g]
    return y, lambda dy: (dy, None, np.array([dy[0, rows].sum(0) for rows in groups]))


def swiglu_clamp(gate, up, alpha=1.702, limit=7.0):
    """g sigmoid(alpha g) (u + 1), g = min(gate, limit), u = clamp(up, -limit, limit) (experts of gpt-oss); no gradient beyond the limits."""
    g, u = np.minimum(gate, limit), np.clip(up, -limit, limit)
    s = sigmoid(alpha * g)

    def pull(dy):
        return np.where(gate <= limit, dy * (u + 1) * (s + alpha * g * s * (1 - s)), 0), np.where(np.abs(up) <= limit, dy * g * s, 0)

    return g * s * (u + 1), pull


def router_keys(logits, score="softmax", correction=None):
    """What decides on the selection: scores, plus what corrects them. Softmax of f32 logits may round ties; so the keys of
    an uncorrected choice are the logits, in whose order scores are."""
    s = sigmoid(logits) if score == "sigmoid" else softmax(logits)
    return s if correction is None else s + correction


def experts(x, logits, documents, w1, w3, w2, top_k, normalize, activation="silu", ids=None, limit=None, router=None, biases=(None, None, None)):
    """The routed part of the layer. -> (y, ids, counts, dropped), pull(dy) -> dx, dlogits, None, dw1, dw3 (None: not gated), dw2, db1, db3, db2.

    limit: what `drop` takes of the experts' capacity, and `renormalize`; counts are those before dropping.
    router: `score`, `scale`, and `choose(logits) -> ids` where more than the order of logits chooses.
    biases: of w1, w3 and w2, each an expert's own, or None."""
    router = {"score": "softmax", "scale": 1.0, "choose": lambda l: route(l, top_k)} | (router or {})
    ids = router["choose"](logits) if ids is None else ids
    weights, pull_weights = route_weights(logits, ids, normalize, router["score"])
    weights, scale = weights * router["scale"], router["scale"]
    kept, dropped = ids, np.zeros(len(w1), np.int32)
    keep_sum = None
    if limit:
        limit = dict(limit)
        renormalizes = limit.pop("renormalize", False)
        kept, load, dropped, _ = drop(ids, weights, documents, len(w1), **limit)
        if renormalizes:
            weights, keep_sum = renormalize(weights, kept)
    perm, inverse, counts, offsets, _ = plan(kept, documents, len(w1))
    counts = load if limit else counts
    rows, pull_rows = dispatch(x, perm, inverse)

    def biased(x, w, b):
        y, pull = grouped_linear(x, offsets, w)
        if b is None:
            return y, lambda dy: (*pull(dy), None)
        y, pull_bias = group_bias(y, offsets, b)
        return y, lambda dy: (*pull(dy), pull_bias(dy)[2])

    b1, b3, b2 = biases
    a, pull_a = biased(rows, w1, b1)
    u, pull_u = biased(rows, w3, b3) if w3 is not None else (1.0, None)
    if activation == "swiglu_clamp":
        h, pull_h = swiglu_clamp(a, u)
    else:
        f, slope = ACTIVATIONS[activation]
        h, pull_h = f(a) * u, lambda dh: (dh * u * slope(a), dh * f(a))
    out, pull_out = biased(h, w2, b2)
    y, pull_y = combine(out, weights, perm, inverse)

    def pull(dy):
        dout, dweights = pull_y(dy)[:2]
        dweights = keep_sum(dweights)[0] if keep_sum else dweights
        dh, _, dw2, db2 = pull_out(dout)
        da, du = pull_h(dh)
        drows, _, dw1, db1 = pull_a(da)
        dw3 = db3 = None
        if w3 is not None:
            more, _, dw3, db3 = pull_u(du)
            drows = drows + more
        return pull_rows(drows)[0], pull_weights(scale * dweights)[0], None, dw1, dw3, dw2, db1, db3, db2

    return (y, ids, counts, dropped), pull
