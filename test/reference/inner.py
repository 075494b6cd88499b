"""The inner step, token by token, and its adjoint recurrence (what the kernels of whole mini-batches must reproduce).

    u_t = dL/dz at z = k_t B:   z - v_t, or with a norm the gradient of |LN(z; w, b) - v_t|^2 / 2
    S_t = exp(e_t) S_{t-1} - rate_t k_t^T u_t      M_t = exp(g_t) M_{t-1} + S_t                      o_t = q_t M_t
    S_t = S_{t-1} - rate_t k_t^T u_t               M_t = B + r_t S_t, S = 0 after a mini-batch       with read_rate r

B is M as it was when the mini-batch began; mini-batches are counted from the beginning of the document. e = log_momentum (without: S_t
is the step alone), g = log_decay (without: 0). A state [B, H, R, V] is M, then S where there is a momentum or a read_rate, then B where
there is no read_rate and a mini-batch has more than one token. A document that begins at token t of the row starts from `weights` (or zero); a padding token does nothing.
"""

import numpy as np

from common import PADDING

ORDER = ("q", "k", "v", "rate", "log_decay", "log_momentum", "read_rate", "norm_weight", "norm_bias", "weights")
WHOLE = ("norm_weight", "norm_bias", "weights")

# class: operands beyond q, k, v and rate
VARIANTS = {
    "G1": ("log_decay",),
    "G1-plain": (),
    "GM": ("log_decay", "log_momentum"),
    "GM-read": ("read_rate", "weights"),
    "N": ("log_decay", "log_momentum", "norm_weight", "norm_bias"),
    "N-read": ("read_rate", "norm_weight", "norm_bias", "weights"),
}


def shape_of(name, B, T, H, K, V):
    if name in ("q", "k"):
        return (B, T, H, K)
    return {"v": (B, T, H, V), "norm_weight": (H, V), "norm_bias": (H, V), "weights": (H, K, V)}.get(name, (B, T, H))


def planes(names, mini_batch):
    """M; S; B, which a mini-batch of one token needs no room for."""
    read = "read_rate" in names
    return 1 + (read or "log_momentum" in names) + (not read and mini_batch > 1)


def _project(x, normed):
    return x - x.mean(-1, keepdims=True) - normed * (x * normed).mean(-1, keepdims=True)


def inner_gradient(z, y, norm, eps):
    """u, and pull(du) -> dz, dy, dw, db (of every row)."""
    if norm is None:
        return z - y, lambda du: (du, -du, None, None)
    w, b = norm
    centered = z - z.mean(-1, keepdims=True)
    std = np.sqrt((centered**2).mean(-1, keepdims=True) + eps)
    normed = centered / std
    g = w * (w * normed + b - y)
    u = _project(g, normed) / std

    def pull(du):
        dg = _project(du, normed) / std
        dnormed = w * w * dg - ((g * normed).mean(-1, keepdims=True) * du + g * (du * normed).mean(-1, keepdims=True)) / std
        dstd = -(du * u).sum(-1, keepdims=True) / std
        dz = _project(dnormed, normed) / std + dstd * normed / z.shape[-1]
        return dz, -w * dg, (2 * w * normed + b - y) * dg, w * dg

    return u, pull


def inner_step(x, initial, documents, mini_batch, eps=1e-6):
    """x: name -> array. -> (o, final state), pull(do, dfinal) -> (name -> gradient), dinitial."""
    B, T, H, K = x["q"].shape
    V = x["v"].shape[-1]
    read_rate, momentum = "read_rate" in x, "log_momentum" in x
    norm = (x["norm_weight"], x["norm_bias"]) if "norm_weight" in x else None
    parts = [initial[:, :, i * K : (i + 1) * K] for i in range(initial.shape[2] // K)]
    zero = np.zeros((B, H, K, V))
    M, S = parts[0], parts[1] if read_rate or momentum else zero
    keeps_base = not read_rate and mini_batch > 1
    base = parts[-1] if keeps_base else M
    start = np.broadcast_to(x.get("weights", np.zeros((H, K, V))), (B, H, K, V))
    gate = lambda name, t: np.exp(x[name][:, t, :, None, None]) if name in x else 1.0
    row = lambda q, state: np.einsum("bhk,bhkv->bhv", q, state)
    outer = lambda a, b: a[..., :, None] * b[..., None, :]
    o, kept = np.zeros((B, T, H, V)), []
    for t in range(T):
        exists = (documents[:, t] != PADDING)[:, None, None, None]
        begins = (documents[:, t] == t)[:, None, None, None]
        ends = ((t - documents[:, t].astype(np.int64)) % mini_batch == mini_batch - 1)[:, None, None, None]
        M0, S0, B0 = (np.where(begins, a, b) for a, b in ((start, M), (zero, S), (start, base)))
        rate = x["rate"][:, t, :, None]
        u, pull_u = inner_gradient(row(x["k"][:, t], B0), x["v"][:, t], norm, eps)
        step = outer(x["k"][:, t], rate * u)
        if read_rate:
            S1 = S0 - step
            seen = B0 + x["read_rate"][:, t, :, None, None] * S1
            M1, S1_next, B1 = np.where(ends, seen, M0), np.where(ends, 0, S1), np.where(ends, seen, M0)
        else:
            S1 = (gate("log_momentum", t) * S0 if momentum else 0) - step
            seen = M1 = gate("log_decay", t) * M0 + S1
            S1_next, B1 = S1, np.where(ends, M1, B0)
        o[:, t] = np.where(exists[..., 0], row(x["q"][:, t], seen), 0)
        kept.append((exists, begins, ends, M0, S0, B0, S1, seen, u, pull_u))
        M, S, base = (np.where(exists, new, old) for new, old in ((M1, M), (S1_next, S), (B1, base)))

    def joined(m, s, b):
        return np.concatenate([m] + [s] * (read_rate or momentum) + [b] * keeps_base, 2)

    def pull(do, dfinal):
        d = {name: np.zeros(array.shape) for name, array in x.items()}
        parts = [dfinal[:, :, i * K : (i + 1) * K] for i in range(dfinal.shape[2] // K)]
        dM, dS = parts[0], parts[1] if read_rate or momentum else zero
        dB = parts[-1] if keeps_base else zero
        back = lambda values, state: np.einsum("bhv,bhkv->bhk", values, state)
        for t in range(T - 1, -1, -1):
            exists, begins, ends, M0, S0, B0, S1, seen, u, pull_u = kept[t]
            here = exists[..., 0]
            cotangent = np.where(here, do[:, t], 0)
            q, k, rate = x["q"][:, t], x["k"][:, t], x["rate"][:, t, :, None]
            d["q"][:, t] = back(cotangent, seen)
            dseen = outer(q, cotangent)
            if read_rate:
                dseen = dseen + np.where(ends, dM, 0)
                share = x["read_rate"][:, t, :, None, None]
                d["read_rate"][:, t] = np.where(here[..., 0], (dseen * S1).sum((2, 3)), 0)
                dS1 = share * dseen + np.where(ends, 0, dS)
                dM0, dB0, dS0 = np.where(ends, 0, dM), dseen, dS1
            else:
                dM1 = dM + np.where(ends, dB, 0) + dseen
                dB0 = np.where(ends, 0, dB)
                dS1 = dM1 + (dS if momentum else 0)
                dM0, dS0 = gate("log_decay", t) * dM1, gate("log_momentum", t) * dS1 if momentum else zero
                for name, of, before in (("log_decay", dM0, M0), ("log_momentum", dS0, S0)):
                    if name in x:
                        d[name][:, t] = np.where(here[..., 0], (of * before).sum((2, 3)), 0)
            kS = row(k, dS1)
            dz, dy, dw, db = pull_u(-rate * kS)
            d["rate"][:, t] = np.where(here[..., 0], -(kS * u).sum(-1), 0)
            d["k"][:, t] = np.where(here, -rate * back(u, dS1) + back(dz, B0), 0)
            d["v"][:, t] = np.where(here, dy, 0)
            if norm:
                d["norm_weight"] += np.where(here, dw, 0).sum(0)
                d["norm_bias"] += np.where(here, db, 0).sum(0)
            dB0 = dB0 + outer(k, dz)
            if read_rate:
                dM0, dB0 = dM0 + dB0, zero
            if "weights" in x:
                d["weights"] += np.where(exists & begins, dM0 + dB0, 0).sum(0)
            dM, dS, dB = (np.where(exists, np.where(begins, 0, new), old) for new, old in ((dM0, dM), (dS0, dS), (dB0, dB)))
        return d, joined(dM if keeps_base else dM + dB, dS, dB)

    return (o, joined(M, S, base)), pull


def random_operands(names, rng, B, T, H, K, V):
    """Operands as layers make them: keys of length 1, rates that do not diverge."""
    x = {n: rng.standard_normal(shape_of(n, B, T, H, K, V)) for n in ("q", "k", "v", *names)}
    x["k"] /= np.linalg.norm(x["k"], axis=-1, keepdims=True)
    x["rate"] = rng.uniform(0.0, 0.3, (B, T, H))
    for name in set(names) & {"log_decay", "log_momentum"}:
        x[name] = -rng.uniform(0.0, 0.5 if name == "log_decay" else 2.0, (B, T, H))
    if "read_rate" in names:
        x["read_rate"] = rng.uniform(0.1, 1.0, (B, T, H))
    if "norm_weight" in names:
        x["norm_weight"] = 1 + 0.2 * x["norm_weight"]
        x["norm_bias"] = 0.2 * x["norm_bias"]
    if "weights" in names:
        x["weights"] = 0.3 * x["weights"]
    return {n: x[n] for n in ORDER if n in x}
