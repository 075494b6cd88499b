"""Causal softmax attention with grouped heads, windows, a K/V prefix, a cache and packed documents: full score matrices.

q [B, T, H, D], o [B, T, H, V]; k [B, S, G, D], v [B, S, G, V]; head h reads group h G / H. Keys of token t: without a cache documents[t] + prefix <= s
<= t + prefix (S = prefix + T); with a cache 0 <= s <= t - documents[t]. A window w > 0 keeps the last w of them. A token
without keys (padding) gives 0. `sinks` [H]: of each head one more score, without a value. `softcap` c: scores s become c tanh(s / c).
"""

import numpy as np

from common import PADDING


def mask_of(documents, tokens, keys, window=0, prefix=0, cache=False):
    """[B, T, S]: key s is seen by token t."""
    documents = documents.astype(np.int64)[:, :, None]
    t, s = np.arange(tokens)[None, :, None], np.arange(keys)[None, None, :]
    first = np.zeros_like(documents) if cache else documents + prefix
    last = t - documents if cache else t + prefix
    seen = (s >= first) & (s <= last) & (documents != PADDING)
    if window:
        seen &= s > last - window
    return seen


def attention(q, k, v, documents, scale, window=0, prefix=0, cache=False, sinks=None, softcap=None):
    """-> (o, lse [B, H, T]), pull(do) -> dq, dk, dv[, dsinks]."""
    B, T, H, D = q.shape
    S, G = k.shape[1:3]
    seen = mask_of(documents, T, S, window, prefix, cache)[:, None]
    heads_first = lambda x: x.transpose(0, 2, 1, 3)
    # Products of matrices: einsum takes no BLAS for those of every head.
    qh, kh, vh = heads_first(q), *(heads_first(np.repeat(x, H // G, axis=2)) for x in (k, v))
    scores, slope = scale * (qh @ kh.swapaxes(2, 3)), 1.0
    if softcap:
        bounded = np.tanh(scores / softcap)
        scores, slope = softcap * bounded, 1 - bounded**2
    scores = np.where(seen, scores, -np.inf)
    top = np.where(seen.any(-1), np.max(np.where(seen, scores, -1e300), axis=-1), 0)
    if sinks is not None:
        top = np.maximum(np.where(seen.any(-1), top, -np.inf), sinks[:, None])
    p = np.exp(scores - top[..., None])
    total = p.sum(-1) + (0 if sinks is None else np.exp(sinks[:, None] - top))
    with np.errstate(divide="ignore"):
        lse = top + np.log(total)
    p = p / np.where(total > 0, total, 1)[..., None]
    o = heads_first(p @ vh)

    def pull(do):
        doh = heads_first(do)
        dp = doh @ vh.swapaxes(2, 3)
        ds = p * (dp - (p * dp).sum(-1, keepdims=True)) * slope * scale
        by_group = lambda x: heads_first(x).reshape(B, S, G, H // G, -1).sum(3)
        given = heads_first(ds @ kh), by_group(ds.swapaxes(2, 3) @ qh), by_group(p.swapaxes(2, 3) @ doh)
        if sinks is None:
            return given
        # The sink's share of the softmax is a probability of a value 0.
        return *given, -(np.exp(sinks[:, None] - lse) * (p * dp).sum(-1)).sum((0, 2))

    return (o, lse), pull


def attention_shared(q, k, v, q_shared, k_shared, documents, scale, **settings):
    """The same with features of keys that all heads share, q_shared [B, T, H, R], k_shared [B, S, 1, R]: scores are those of q | q_shared and k |
    k_shared. pull(do) -> dq, dk, dv, dq_shared, dk_shared."""
    D, G = q.shape[3], k.shape[2]
    result, pull = attention(np.concatenate([q, q_shared], 3), np.concatenate([k, np.repeat(k_shared, G, 2)], 3), v, documents, scale, **settings)

    def pull_shared(do):
        dq, dk, dv, *dsinks = pull(do)
        return dq[..., :D], dk[..., :D], dv, dq[..., D:], dk[..., D:].sum(2, keepdims=True), *dsinks

    return result, pull_shared


def append(cache, x, documents):
    """braid.attn.append: rows t - documents[t] of the cache become x[t]; padding tokens write nothing."""
    out = cache.copy()
    for b in range(len(x)):
        for t in range(x.shape[1]):
            if documents[b, t] != PADDING:
                out[b, t - documents[b, t]] = x[b, t]
    return out
