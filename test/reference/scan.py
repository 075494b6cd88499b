"""The affine scan, token by token, and its adjoint recurrence (the definition that chunked kernels must reproduce).

    M_t = Theta_t M_{t-1} + k_t^T v_t      o_t = scale q_t M_t          row vectors, M [B, H, K, V]

  class  gates                                          Theta_t
  I      -                                              identity
  S0     log_decay [H]                                  exp(g_h)
  S      log_decay [B, T, H]                            exp(g_t)
  V      log_decay [B, T, H, K]                         diag(exp g_t)
  H      beta [B, T, H]                                 I - beta_t k_t^T k_t                  and the write is beta_t k_t^T v_t
  GH     log_decay [B, T, H], beta                      (I - beta_t k_t^T k_t) exp(g_t)       and the write is beta_t k_t^T v_t
  VH     log_decay [B, T, H, K], beta                   (I - beta_t k_t^T k_t) diag(exp g_t)  and the write is beta_t k_t^T v_t
  D      log_decay [B, T, H, K], a, b [B, T, H, K]      diag(exp g_t) + b_t^T a_t
  R      log_decay [B, T, H, K], value_decay [.., V]    diag(exp g_t) M diag(exp h_t)
  E      log_decay [B, T, H, K, V]                      exp(G_t) * M
  E, as a product (PRODUCT): log_decay [H, K, V], value_decay [.., V]:  G_t = log_decay * value_decay_t

Adjoint: D_t = q_t^T do_t + Theta_{t+1}^T D_{t+1}, with D_T also receiving the cotangent of the final state. A document that
begins at token t of the row starts from a zero state; one that began before the row continues the initial state; a padding
token reads and writes nothing.
"""

import numpy as np

from common import PADDING

GATES = {
    "I": (),
    "S0": ("log_decay",),
    "S": ("log_decay",),
    "V": ("log_decay",),
    "H": ("beta",),
    "GH": ("log_decay", "beta"),
    "VH": ("log_decay", "beta"),
    "D": ("log_decay", "a", "b"),
    "R": ("log_decay", "value_decay"),
    "E": ("log_decay",),
}
CLASSES = tuple(GATES)
PRODUCT = "E-product"
GATES[PRODUCT] = ("log_decay", "value_decay")
ORDER = ("q", "k", "v", "log_decay", "beta", "a", "b", "value_decay")


def has_decay(kind):
    return "log_decay" in GATES[kind]


def has_beta(kind):
    return "beta" in GATES[kind]


def trained_gates(kind):
    return () if kind == "S0" else GATES[kind]


def gate_shape(kind, gate, B, T, H, K, V):
    if gate == "beta":
        return (B, T, H)
    if gate == "value_decay":
        return (B, T, H, V)
    if gate == "log_decay":
        return {PRODUCT: (H, K, V), "S0": (H,), "S": (B, T, H), "GH": (B, T, H), "E": (B, T, H, K, V)}.get(kind, (B, T, H, K))
    return (B, T, H, K)


def _decay_at(kind, x, shape, t):
    """What multiplies the state at token t, as [B, H, 1 or K, 1 or V]."""
    B, H = shape
    if not has_decay(kind):
        return np.ones((B, H, 1, 1))
    if kind == "S0":
        return np.broadcast_to(np.exp(x["log_decay"])[None, :, None, None], (B, H, 1, 1))
    g = x["log_decay"][:, t]
    g = g.reshape(g.shape + (1,) * (4 - g.ndim))
    return np.exp(g + x["value_decay"][:, t, :, None, :]) if kind == "R" else np.exp(g)


def _product(operands, initial, documents, scale):
    rates, by_value = operands["log_decay"], operands["value_decay"]
    whole = {n: x for n, x in operands.items() if n != "value_decay"} | {"log_decay": rates * by_value[:, :, :, None, :]}
    results, pull_whole = scan("E", whole, initial, documents, scale)

    def pull(do, dfinal):
        gradients, dinitial = pull_whole(do, dfinal)
        d = gradients["log_decay"]
        return gradients | {
            "log_decay": np.einsum("bthkv,bthv->hkv", d, by_value),
            "value_decay": np.einsum("bthkv,hkv->bthv", d, rates),
        }, dinitial

    return results, pull


def scan(kind, operands, initial, documents, scale):
    """operands: name -> array. -> (o, final state), pull(do, dfinal) -> (name -> gradient), dinitial."""
    if kind == PRODUCT:
        return _product(operands, initial, documents, scale)
    x = operands
    q, k, v, beta = x["q"], x["k"], x["v"], x.get("beta")
    a, b = x.get("a"), x.get("b")
    B, T, H, _ = q.shape
    M = initial
    o = np.zeros(v.shape)
    states = []  # per token: the state it acts on, that state decayed, the new one, whether the token exists and begins
    read = lambda row, state: np.einsum("bhk,bhkv->bhv", row, state)
    outer = lambda left, right: left[..., :, None] * right[..., None, :]
    for t in range(T):
        exists = (documents[:, t] != PADDING)[:, None, None, None]
        begins = (documents[:, t] == t)[:, None, None, None]
        old = np.where(begins, 0, M)
        decayed = _decay_at(kind, x, (B, H), t) * old
        write = v[:, t]
        if has_beta(kind):
            write = beta[:, t, :, None] * (v[:, t] - read(k[:, t], decayed))
        new = decayed + outer(k[:, t], write)
        if kind == "D":
            new = new + outer(b[:, t], read(a[:, t], old))
        o[:, t] = np.where(exists[..., 0], scale * read(q[:, t], new), 0)
        states.append((old, decayed, new, exists, begins))
        M = np.where(exists, new, M)

    def pull(do, dfinal):
        D = dfinal
        d = {name: np.zeros(array.shape) for name, array in x.items()}
        back = lambda values, state: np.einsum("bhv,bhkv->bhk", values, state)
        for t in range(T - 1, -1, -1):
            old, decayed, new, exists, begins = states[t]
            here = exists[..., 0]
            cotangent = np.where(here, do[:, t], 0)
            E = D + scale * outer(q[:, t], cotangent)
            d["q"][:, t] = np.where(here, scale * back(cotangent, new), 0)
            pulled = read(k[:, t], E)
            extra = 0.0  # what reaches the state before past its decay
            if has_beta(kind):
                rate = beta[:, t, :, None]
                residual = v[:, t] - read(k[:, t], decayed)
                dv = rate * pulled
                dk = back(rate * residual, E) - back(dv, decayed)
                d["beta"][:, t] = np.where(here[..., 0], (pulled * residual).sum(-1), 0)
                E = E - outer(k[:, t], dv)
            else:
                dv, dk = pulled, back(v[:, t], E)
            if kind == "D":
                through = read(b[:, t], E)
                d["a"][:, t] = np.where(here, back(through, old), 0)
                d["b"][:, t] = np.where(here, back(read(a[:, t], old), E), 0)
                extra = outer(a[:, t], through)
            d["k"][:, t], d["v"][:, t] = np.where(here, dk, 0), np.where(here, dv, 0)
            product = np.where(exists, E * decayed, 0)
            if kind == "S0":
                d["log_decay"] += product.sum((0, 2, 3))
            elif kind in ("S", "GH"):
                d["log_decay"][:, t] = product.sum((2, 3))
            elif kind == "E":
                d["log_decay"][:, t] = product
            elif has_decay(kind):
                d["log_decay"][:, t] = product.sum(-1)
            if kind == "R":
                d["value_decay"][:, t] = product.sum(-2)
            before = _decay_at(kind, x, (B, H), t) * E + extra
            D = np.where(exists, np.where(begins, 0, before), D)
        return d, D

    return (o, M), pull


def complex_scan(q, k, v, log_decay, phase, documents, scale):
    """M_t = diag(exp(g_t + i p_t)) M_{t-1} + k_t^T v_t, o_t = scale Re(q_t M_t), from zero. -> o, pull(do) -> dq, dk, dv, dg, dp.
    The adjoint is that of class V without conjugation, real parts last."""
    B, T, H, K = q.shape
    M = np.zeros((B, H, K, v.shape[-1]), complex)
    factor, o, states = np.exp(log_decay + 1j * phase), np.zeros(v.shape), []
    for t in range(T):
        exists = (documents[:, t] != PADDING)[:, None, None, None]
        begins = (documents[:, t] == t)[:, None, None, None]
        decayed = factor[:, t, :, :, None] * np.where(begins, 0, M)
        new = decayed + k[:, t, :, :, None] * v[:, t, :, None, :]
        o[:, t] = np.where(exists[..., 0], scale * np.einsum("bhk,bhkv->bhv", q[:, t], new).real, 0)
        states.append((decayed, new, exists, begins))
        M = np.where(exists, new, M)

    def pull(do):
        D = np.zeros(M.shape, complex)
        dq, dk, dv, dz = np.zeros(q.shape), np.zeros(k.shape), np.zeros(v.shape), np.zeros(q.shape, complex)
        for t in range(T - 1, -1, -1):
            decayed, new, exists, begins = states[t]
            d = np.where(exists[..., 0], scale * do[:, t], 0)
            E = np.where(exists, D + q[:, t, :, :, None] * d[:, :, None, :], 0)
            dq[:, t] = np.einsum("bhv,bhkv->bhk", d, new).real
            dk[:, t] = np.einsum("bhv,bhkv->bhk", v[:, t], E).real
            dv[:, t] = np.einsum("bhk,bhkv->bhv", k[:, t], E).real
            dz[:, t] = (E * decayed).sum(-1)
            D = np.where(exists, np.where(begins, 0, factor[:, t, :, :, None] * E), D)
        return dq, dk, dv, dz.real, -dz.imag

    return o, pull


def state_space(u, log_dt, log_a, a_im, c_re, c_im, documents):
    """S4D (lsm-family 5.17): M_t = exp(dt A) M_{t-1} + Cbar u_t, y = 2 Re sum_n M, from zero; u [B, T, D], log_dt [D], the others [D, N].
    -> y, pull(dy) -> cotangents in this order. The adjoint is holomorphic, real parts last."""
    A, C, dt = -np.exp(log_a) + 1j * a_im, c_re + 1j * c_im, np.exp(log_dt)[:, None]
    factor = np.exp(A * dt)
    W = C * (factor - 1) / A
    M, y, states = np.zeros((u.shape[0],) + A.shape, complex), np.zeros(u.shape), []
    for t in range(u.shape[1]):
        exists = (documents[:, t] != PADDING)[:, None, None]
        begins = (documents[:, t] == t)[:, None, None]
        decayed = factor * np.where(begins, 0, M)
        new = decayed + W * u[:, t, :, None]
        y[:, t] = np.where(exists[..., 0], 2 * new.sum(-1).real, 0)
        states.append((decayed, exists, begins))
        M = np.where(exists, new, M)

    def pull(dy):
        D, du = np.zeros(M.shape, complex), np.zeros(u.shape)
        dG, dW = np.zeros(A.shape, complex), np.zeros(A.shape, complex)
        for t in range(u.shape[1] - 1, -1, -1):
            decayed, exists, begins = states[t]
            E = np.where(exists, D + 2 * dy[:, t, :, None], 0)
            du[:, t] = (E * W).sum(-1).real
            dW += (E * u[:, t, :, None]).sum(0)
            dG += (E * decayed).sum(0)
            D = np.where(exists, np.where(begins, 0, factor * E), D)
        dG = dG + dW * C * factor / A
        dC, dA = dW * (factor - 1) / A, dG * dt - dW * W / A
        dlog_dt = (dG * A).sum(-1).real * dt[:, 0]
        return du, dlog_dt, (-dA).real * np.exp(log_a), (1j * dA).real, dC.real, (1j * dC).real

    return y, pull


def random_operands(kind, rng, B, T, H, K, V, decay=(0.0, 0.3)):
    """Operands as layers make them: keys of length 1 where the class needs them, log decays uniform in -decay."""
    x = {n: rng.standard_normal((B, T, H, size)) for n, size in (("q", K), ("k", K), ("v", V))}
    if has_beta(kind):
        x["k"] /= np.linalg.norm(x["k"], axis=-1, keepdims=True)
    for gate in GATES[kind]:
        shape = gate_shape(kind, gate, B, T, H, K, V)
        if kind == PRODUCT:  # the rate of an element, from -1 to 0, and how long a token lasts
            x[gate] = -rng.uniform(0, 1, shape) if gate == "log_decay" else rng.uniform(*decay, shape)
        elif gate in ("log_decay", "value_decay"):
            x[gate] = -rng.uniform(*decay, shape)
        elif gate == "beta":
            x[gate] = rng.uniform(0, 1, shape)
    if kind == "D":  # a = -u, b = rate u with u of length 1: what u points at is removed
        u = rng.standard_normal((B, T, H, K))
        u /= np.linalg.norm(u, axis=-1, keepdims=True)
        x["a"], x["b"] = -u, u * rng.uniform(0, 1, (B, T, H, K))
    return x
