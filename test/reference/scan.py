"""The affine scan, token by token, and its adjoint recurrence (the definition that chunked kernels must reproduce).

    M_t = Theta_t M_{t-1} + k_t^T v_t      o_t = scale q_t M_t          row vectors, M [B, H, K, V]

  class  log_decay        beta        Theta_t
  I      -                -           identity
  S0     [H]              -           exp(g_h)
  S      [B, T, H]        -           exp(g_t)
  V      [B, T, H, K]     -           diag(exp g_t)
  H      -                [B, T, H]   I - beta_t k_t^T k_t             and the write is beta_t k_t^T v_t
  GH     [B, T, H]        [B, T, H]   (I - beta_t k_t^T k_t) exp(g_t)  and the write is beta_t k_t^T v_t

Adjoint: D_t = q_t^T do_t + Theta_{t+1}^T D_{t+1}, with D_T also receiving the cotangent of the final state. A document that
begins at token t of the row starts from a zero state; one that began before the row continues the initial state; a padding
token reads and writes nothing.
"""

import numpy as np

from common import PADDING

CLASSES = ("I", "S0", "S", "V", "H", "GH")


def has_decay(kind):
    return kind in ("S0", "S", "V", "GH")


def has_beta(kind):
    return kind in ("H", "GH")


def trains_decay(kind):
    return kind in ("S", "V", "GH")


def _decay_at(kind, log_decay, shape, t):
    """exp(g) at token t, as [B, H, 1 or K, 1]."""
    B, H = shape
    if not has_decay(kind):
        return np.ones((B, H, 1, 1))
    if kind == "S0":
        return np.broadcast_to(np.exp(log_decay)[None, :, None, None], (B, H, 1, 1))
    g = np.exp(log_decay[:, t])
    return g[..., None] if kind == "V" else g[..., None, None]


def scan(kind, q, k, v, log_decay, beta, initial, documents, scale):
    """-> (o, final state), pull(do, dfinal) -> dq, dk, dv, dlog_decay, dbeta, dinitial. All [B, T, H, ..]."""
    B, T, H, _ = q.shape
    M = initial
    o = np.zeros(v.shape)
    before, after, keep = [], [], []  # per token: decayed state it acts on, new state, whether the token exists
    for t in range(T):
        exists = (documents[:, t] != PADDING)[:, None, None, None]
        begins = (documents[:, t] == t)[:, None, None, None]
        decayed = _decay_at(kind, log_decay, (B, H), t) * np.where(begins, 0, M)
        write = v[:, t]
        if has_beta(kind):
            write = beta[:, t, :, None] * (v[:, t] - np.einsum("bhk,bhkv->bhv", k[:, t], decayed))
        new = decayed + k[:, t, :, :, None] * write[:, :, None, :]
        o[:, t] = np.where(exists[..., 0], scale * np.einsum("bhk,bhkv->bhv", q[:, t], new), 0)
        before.append(decayed)
        after.append(new)
        keep.append((exists, begins))
        M = np.where(exists, new, M)

    def pull(do, dfinal):
        D = dfinal
        dq, dk, dv = np.zeros(q.shape), np.zeros(k.shape), np.zeros(v.shape)
        dg = None if not has_decay(kind) else np.zeros(log_decay.shape)
        db = None if not has_beta(kind) else np.zeros(beta.shape)
        for t in range(T - 1, -1, -1):
            exists, begins = keep[t]
            here, decayed, new = exists[..., 0], before[t], after[t]
            d = np.where(here, do[:, t], 0)
            E = D + scale * q[:, t, :, :, None] * d[:, :, None, :]
            dq[:, t] = np.where(here, scale * np.einsum("bhv,bhkv->bhk", d, new), 0)
            pulled = np.einsum("bhk,bhkv->bhv", k[:, t], E)
            if has_beta(kind):
                b = beta[:, t, :, None]
                residual = v[:, t] - np.einsum("bhk,bhkv->bhv", k[:, t], decayed)
                dr = b * pulled
                dk_t = np.einsum("bhv,bhkv->bhk", b * residual, E) - np.einsum("bhv,bhkv->bhk", dr, decayed)
                db[:, t] = np.where(here[..., 0], (pulled * residual).sum(-1), 0)
                E = E - k[:, t, :, :, None] * dr[:, :, None, :]
            else:
                dr = pulled
                dk_t = np.einsum("bhv,bhkv->bhk", v[:, t], E)
            dk[:, t], dv[:, t] = np.where(here, dk_t, 0), np.where(here, dr, 0)
            product = np.where(exists, E * decayed, 0)
            if kind == "S0":
                dg += product.sum((0, 2, 3))
            elif kind == "V":
                dg[:, t] = product.sum(-1)
            elif has_decay(kind):
                dg[:, t] = product.sum((2, 3))
            through = _decay_at(kind, log_decay, (B, H), t) * E
            D = np.where(exists, np.where(begins, 0, through), D)
        return dq, dk, dv, dg, db, D

    return (o, M), pull


def random_operands(kind, rng, B, T, H, K, V, decay=(0.0, 0.3), unit_keys=None):
    """Operands as layers make them: keys of length 1 where the class needs them, log decays uniform in -decay."""
    q, k, v = (rng.standard_normal(s) for s in ((B, T, H, K), (B, T, H, K), (B, T, H, V)))
    if has_beta(kind) if unit_keys is None else unit_keys:
        k /= np.linalg.norm(k, axis=-1, keepdims=True)
    shape = {"S0": (H,), "S": (B, T, H), "V": (B, T, H, K), "GH": (B, T, H)}.get(kind)
    g = -rng.uniform(*decay, shape) if shape else None
    b = rng.uniform(0, 1, (B, T, H)) if has_beta(kind) else None
    return q, k, v, g, b
