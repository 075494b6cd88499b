"""Loss and optimizer: cross entropy, AdamW with decoupled decay (Loshchilov and Hutter 2019, algorithm 2), global-norm clipping."""

import numpy as np

from common import log_sum_exp, softmax


def cross_entropy(logits, labels, softcap=None):
    """-> (sum over tokens with label >= 0 of lse - logits[label], their number, lse), pull(dsum) -> dlogits; with a cap c of c tanh(logits / c)."""
    live = labels >= 0
    capped = np.tanh(logits / softcap) if softcap else 0.0
    if softcap:
        logits = softcap * capped
    lse = log_sum_exp(logits)
    picked = np.take_along_axis(logits, np.maximum(labels, 0)[..., None].astype(np.int64), -1)[..., 0]

    def pull(dsum, *_):
        d = softmax(logits)
        np.put_along_axis(
            d,
            np.maximum(labels, 0)[..., None].astype(np.int64),
            np.take_along_axis(d, np.maximum(labels, 0)[..., None].astype(np.int64), -1) - 1,
            -1,
        )
        return np.where(live[..., None], d, 0) * dsum * (1 - capped**2)

    return (np.where(live, lse - picked, 0).sum(), live.sum(), lse), pull


def clip_scale(sum_squares, max_norm):
    """-> norm, scale = min(1, max_norm / (norm + 1e-6)); max_norm 0: 1."""
    norm = np.sqrt(sum_squares)
    return norm, np.minimum(1.0, max_norm / (norm + 1e-6)) if max_norm else np.ones_like(norm)


def adamw(w, gradient, m, v, learning_rate, step, scale, beta1, beta2, eps, weight_decay):
    """-> new w, m, v."""
    g = scale * gradient
    m = beta1 * m + (1 - beta1) * g
    v = beta2 * v + (1 - beta2) * g * g
    mean, square = m / (1 - beta1**step), v / (1 - beta2**step)
    return w - learning_rate * (mean / (np.sqrt(square) + eps) + weight_decay * w), m, v
