"""The mixers: linear sequence models and attention as layers over the scan, written from their papers' formulas.

    y = mixer(tape, x, documents, w, spec)      x [B, T, M] (already normalised), w: name -> Value, spec: keys of the model file

Every call starts from zero states. Weights are called as in a checkpoint, without the layer: lsm.wq, attn.wo, ..
"""

import numpy as np

import attention as attn
import inner
import rows
from common import PADDING
from scan import ORDER, complex_scan, scan, state_space
from tape import Value

# Keys that a model file may leave out.
DEFAULTS = {
    "bla": {"conv": None, "output_gate": None, "feature_map": "elu1", "value_factor": 1, "rope": None},
    "retnet": {"conv": None, "output_gate": "silu", "value_factor": 2, "rope": {}},
    "mamba2": {
        "conv": {"kernel": 4, "bias": True},
        "output_gate": "silu",
        "value_factor": 1,
        "scale": 1.0,
        "rope": None,
        "projection_multipliers": {},
        "projection_bias": False,
        "output_bias": False,
        "min_step": 0.0,
        "max_step": np.inf,
        "norm_first": False,
    },
    "gla": {"conv": None, "output_gate": "silu", "value_factor": 2, "gate_divisor": 16.0, "rope": None},
    "deltanet": {"conv": {"kernel": 4}, "output_gate": None, "value_factor": 1, "rope": None},
    "gated_deltanet": {"conv": {"kernel": 4}, "output_gate": "silu", "value_factor": 2, "rope": None},
    "based": {"conv": None, "output_gate": None, "value_factor": 1, "rope": None, "scale": 1.0, "output_norm": False},
    "rebased": {"conv": None, "output_gate": None, "value_factor": 1, "rope": None, "scale": 1.0, "output_norm": False},
    "lightning": {
        "conv": None,
        "output_gate": "sigmoid",
        "value_factor": 1,
        "rope": None,
        "scale": 1.0,
        "slopes": "minimax",
    },
    "hgrn2": {"conv": None, "output_gate": None, "value_factor": 1, "rope": None, "lower_bounds": "layers"},
    "rwkv6": {"conv": None, "output_gate": None, "value_factor": 1, "rope": None, "scale": 1.0, "norm_eps": 64e-5},
    "gateloop": {"conv": None, "output_gate": None, "value_factor": 1, "rope": None, "scale": 1.0},
    "dfw": {"conv": None, "output_gate": None, "value_factor": 1, "rope": None, "scale": 1.0},
    "gfw": {"conv": None, "output_gate": None, "value_factor": 1, "rope": None, "scale": 1.0},
    "mamba": {
        "conv": {"kernel": 4, "bias": True},
        "output_gate": "silu",
        "value_factor": 1,
        "rope": None,
        "scale": 1.0,
        "output_norm": False,
        "bcdt_norm": False,
        "bcdt_norm_weights": True,
    },
    "kda": {"conv": {"kernel": 4}, "output_gate": "sigmoid", "value_factor": 1, "rope": None},
    "rwkv7": {"conv": None, "output_gate": None, "value_factor": 1, "rope": None, "scale": 1.0, "norm_eps": 64e-5, "value_mix": True, "l2_eps": 1e-24},
    "mlstm": {"conv": None, "output_gate": "sigmoid", "value_factor": 1, "rope": None, "gate_softcap": 15.0, "norm_eps": 1e-6},
    "rglru": {
        "conv": {"kernel": 4, "bias": True},
        "output_gate": "gelu_tanh",
        "output_norm": False,
        "head_dim": 1,
        "scale": 1.0,
        "value_factor": 1,
        "rope": None,
        "projection_bias": False,
        "output_bias": False,
    },
    "s4d": {"conv": None, "output_gate": None, "value_factor": 1, "rope": None, "scale": 1.0},
    "ttt": {
        "conv": {"kernel": 4, "bias": True},
        "output_gate": "gelu",
        "value_factor": 1,
        "rope": {},
        "scale": 1.0,
        "mini_batch": 16,
        "inner_rate": 1.0,
    },
    "titans": {
        "conv": {"kernel": 4},
        "output_gate": None,
        "value_factor": 1,
        "rope": None,
        "scale": 1.0,
        "mini_batch": 16,
        "inner_rate": 0.1,
        "momentum": True,
    },
    "attention": {"rope": {}, "qkv_bias": False, "output_bias": False, "sinks": False, "softcap": None, "qk_norm": False, "qk_norm_over": "head", "window": 0, "output_gate": None, "output_gate_per": "feature"},
    "mla": {"q_rank": 0, "rope": {}, "output_gate": None, "output_gate_per": "feature"},
    "short_conv": {"conv": {"kernel": 3}, "projection_bias": False, "output_bias": False},
}

DEFAULTS["titans_ln"] = DEFAULTS["titans"]


def complete(spec):
    """The description of a mixer with every default written out."""
    defaults = DEFAULTS[spec["kind"]]
    full = {"norm_eps": 1e-5, "output_norm": True, "allow_neg_eigval": False} | defaults | spec
    if full.get("conv"):
        full["conv"] = (defaults["conv"] or {}) | full["conv"]
    if spec["kind"] == "short_conv":
        return full
    full.setdefault("kv_heads", full["heads"])
    full.setdefault("key_heads", full["heads"])
    if spec["kind"] == "mla":
        full = {"norm_eps": 1e-6, "value_dim": full["head_dim"], "scale": (full["head_dim"] + full["rope_dim"]) ** -0.5} | defaults | spec
    elif spec["kind"] != "attention":
        full.setdefault("value_dim", full["value_factor"] * full["head_dim"])
    full.setdefault("scale", full["head_dim"] ** -0.5)
    return full


def token_before(tape, x, documents):
    """x of the token before, 0 at the first of a document."""
    weight = np.tile([1.0, 0.0], (int(np.prod(x.shape[2:])), 1))
    tail = np.zeros((x.shape[0], 1, weight.shape[0]))
    return tape.call(rows.short_conv, x, weight, documents, tail)[0]


class Mixer:
    def __init__(self, tape, x, documents, w, spec):
        self.tape, self.x, self.documents, self.w, self.spec = tape, x, documents, w, complete(spec)

    def project(self, name, features):
        return self.tape.linear(self.x, self.w[name], features)

    def rotate(self, x, period=0):
        rope = self.spec["rope"]
        if rope is None:
            return x
        dim = round(rope.get("fraction", 1.0) * x.shape[-1])
        turn = {"theta": rope.get("theta", 10000.0), "dim": dim, "layout": rope.get("layout", "half"), "period": period}
        if rope.get("scaling"):
            turn["factors"], turn["scale"] = rows.rope_scaling(rope["scaling"], turn["theta"], dim)
        return self.tape.call(rows.rope, x, self.documents, **turn)

    def heads(self, x):
        return self.tape.call(rows.repeat_heads, x, heads=self.spec["heads"])

    def conv(self, name, x, activation="silu"):
        """Short causal convolution and its activation, where the mixer has one."""
        conv = self.spec["conv"]
        if conv is None:
            return x
        weight = self.w[f"lsm.conv_{name}.weight"]
        channels, taps = weight.shape
        tail = np.zeros((x.shape[0], taps - 1, channels))
        y, _ = self.tape.call(rows.short_conv, x, weight, self.documents, tail)
        if conv.get("bias", False):
            y = self.tape.call(rows.bias, y, self.w[f"lsm.conv_{name}.bias"])
        return self.tape.call(rows.activation, y, kind=activation) if activation else y

    def feature_map(self, x):
        kind = self.spec.get("feature_map", "identity")
        if kind == "identity":
            return x
        return self.tape.call(rows.softmax, x) if kind == "softmax" else self.tape.call(rows.activation, x, kind=kind)

    def run_scan(self, kind, q, k, v, log_decay=None, beta=None, a=None, b=None, value_decay=None):
        s = self.spec
        q, k, v = self.heads(self.rotate(q)), self.heads(self.rotate(k)), self.heads(v)
        if kind == "V":
            log_decay = self.heads(log_decay)
        initial = np.zeros((q.shape[0], s["heads"], k.shape[-1], v.shape[-1]))
        values = (q, k, v, log_decay, beta, a, b, value_decay)

        def run(*arrays):
            operands = {n: x for n, x in zip(ORDER, arrays) if x is not None}
            value, pull = scan(kind, operands, initial, self.documents, s["scale"])

            def in_order(do, dfinal):
                gradients, _ = pull(do, dfinal)
                return tuple(gradients.get(n) for n in ORDER)

            return value, in_order

        return self.tape.call(run, *values)[0]

    def gate(self, shape):
        if self.spec.get("output_gate_rank", 0):
            gate = self.tape.linear(self.project("lsm.wg1", None), self.w["lsm.wg2"], shape)
            return self.tape.call(rows.bias, gate, self.w["lsm.bg"]) if "lsm.bg" in self.w else gate
        return self.project("lsm.wg", shape)

    def gate_and_project(self, o, all_heads=False, norm_first=True):
        """RMSNorm per head (or over all heads), times act(x wg); then wo."""
        s, gate = self.spec, self.spec["output_gate"]
        shape = (s["heads"] * s["value_dim"],) if all_heads else (s["heads"], s["value_dim"])
        o = self.tape.reshape(o, o.shape[:2] + shape)
        g = self.gate(shape) if gate else None
        if s["output_norm"] and gate:
            w = self.w["lsm.norm.weight"]
            o = self.tape.call(
                rows.gated_norm, o, g, w, eps=s["norm_eps"], activation=gate, norm_first=norm_first
            )
        elif s["output_norm"]:
            o = self.tape.call(rows.rms_norm, o, self.w["lsm.norm.weight"], eps=s["norm_eps"])
        elif gate:
            o = self.tape.call(rows.mul, o, self.tape.call(rows.activation, g, kind=gate))
        return self.tape.linear(o, self.w["lsm.wo"])

    def qkv(self, query_heads, key_heads, value_heads):
        s = self.spec
        q, k = (self.project(f"lsm.w{n}", (h, s["head_dim"])) for n, h in (("q", query_heads), ("k", key_heads)))
        v = self.project("lsm.wv", (value_heads, s["value_dim"]))
        return self.conv("q", q), self.conv("k", k), self.conv("v", v)

    def beta(self):
        b = self.tape.call(rows.activation, self.project("lsm.wb", (self.spec["heads"],)), kind="sigmoid")
        return self.tape.call(rows.scale, b, value=2.0) if self.spec["allow_neg_eigval"] else b

    # ---- instances (lsm-family: basic linear attention, retention, Mamba2, GLA, DeltaNet, Gated DeltaNet)

    def bla(self):
        s = self.spec
        q, k, v = self.qkv(s["heads"], s["kv_heads"], s["kv_heads"])
        return self.gate_and_project(self.run_scan("I", self.feature_map(q), self.feature_map(k), v))

    def retnet(self):
        s = self.spec
        q, k, v = self.qkv(s["heads"], s["kv_heads"], s["kv_heads"])
        slopes = np.log1p(-(2.0 ** (-5.0 - np.arange(s["heads"]))))
        return self.gate_and_project(self.run_scan("S0", q, k, v, slopes))

    def mamba2(self):
        s, tape = self.spec, self.tape
        H, V, G = s["heads"], s["value_dim"], s["key_heads"]

        def project(name, features):
            y = self.project("lsm.w" + name, features)
            if s["projection_bias"]:
                y = tape.call(rows.bias, y, self.w["lsm.b" + name])
            return tape.call(rows.scale, y, value=s["projection_multipliers"].get(name, 1.0))

        widths = {"q": (G, s["head_dim"]), "k": (G, s["head_dim"]), "v": (H, V)}
        q, k, v = (self.conv(name, project(name, width)) for name, width in widths.items())
        dt = project("dt", (H,))
        delta = tape.call(rows.activation, tape.call(rows.bias, dt, self.w["lsm.dt_bias"]), kind="softplus")
        low, high = s["min_step"], s["max_step"]
        delta = tape.call(lambda d: (np.clip(d, low, high), lambda dy: (dy * ((d >= low) & (d <= high)),)), delta)
        decay = tape.call(
            lambda d, a: (-np.exp(a) * d, lambda dy: (-np.exp(a) * dy, (-np.exp(a) * d * dy).sum((0, 1)))),
            delta,
            self.w["lsm.a_log"],
        )
        o = self.run_scan("S", q, k, tape.call(rows.mul, v, delta), decay)
        y = tape.call(rows.add, o, tape.call(rows.weighted, v, self.w["lsm.d"]))
        B, T = y.shape[:2]
        y, gate = tape.reshape(y, (B, T, H * V)), s["output_gate"]
        g = tape.reshape(project("g", (H, V)), (B, T, H * V)) if gate else None
        if s["output_norm"] and gate:  # the norm over each group of heads, the gate before it or behind
            y = tape.call(
                rows.gated_norm,
                y,
                g,
                self.w["lsm.norm.weight"],
                eps=s["norm_eps"],
                activation=gate,
                norm_first=s["norm_first"],
                groups=G,
            )
        elif s["output_norm"]:
            y = tape.call(rows.rms_norm, y, self.w["lsm.norm.weight"], eps=s["norm_eps"], groups=G)
        elif gate:
            y = tape.call(rows.mul, y, tape.call(rows.activation, g, kind=gate))
        y = tape.linear(y, self.w["lsm.wo"])
        return tape.call(rows.bias, y, self.w["lsm.bo"]) if s["output_bias"] else y

    def gla(self):
        s, tape = self.spec, self.tape
        G, K = s["kv_heads"], s["head_dim"]
        q, k, v = self.qkv(s["heads"], G, G)
        f = tape.linear(self.project("lsm.wf1", None), self.w["lsm.wf2"], (G, K))
        decay = tape.call(rows.log_sigmoid_op, tape.call(rows.bias, f, self.w["lsm.bf"]), divide=s["gate_divisor"])
        return self.gate_and_project(self.run_scan("V", q, k, v, decay))

    def unit(self, x):
        return self.tape.call(rows.l2_norm, x, eps=1e-6)

    def deltanet(self):
        H = self.spec["heads"]
        q, k, v = self.qkv(H, H, H)
        return self.gate_and_project(self.run_scan("H", self.unit(q), self.unit(k), v, None, self.beta()))

    def gated_deltanet(self):
        s = self.spec
        q, k, v = self.qkv(s["key_heads"], s["key_heads"], s["heads"])
        a = self.project("lsm.wa", (s["heads"],))
        decay = self.tape.call(rows.log_decay, a, self.w["lsm.a_log"], self.w["lsm.dt_bias"])
        return self.gate_and_project(self.run_scan("GH", self.unit(q), self.unit(k), v, decay, self.beta()))

    # ---- constant decays, feature maps, one decay per channel or element

    def activated(self, x, kind):
        return self.tape.call(rows.activation, x, kind=kind)

    def scaled(self, x, value):
        return self.tape.call(rows.scale, x, value=value)

    def sums(self, *xs):
        return self.tape.call(rows.add, *xs)

    def product(self, a, b):
        return self.tape.call(rows.mul, a, b)

    def lightning(self):
        s, H = self.spec, self.spec["heads"]
        q, k, v = (self.activated(x, "silu") for x in self.qkv(H, H, H))
        h, l, L = np.arange(H), s.get("layer", 0), s.get("num_layers", 1)
        if s["slopes"] == "minimax":
            slopes = 2.0 ** (-8 * (h + 1) / H) * (1 - l / (L - 1 + 1e-5) + 1e-5)
        else:
            slopes = 8 * h / H * (1 - l / L)
        return self.gate_and_project(self.run_scan("S0", q, k, v, -slopes), all_heads=True)

    def based(self):
        s, tape, H = self.spec, self.tape, self.spec["heads"]
        q, k, v = self.qkv(H, H, H)
        kind = "taylor"
        if s["kind"] == "rebased":
            kind, norm = "square", [self.w[f"lsm.feature_norm.{n}"] for n in ("weight", "bias")]
            q, k = (tape.call(rows.layer_norm, x, *norm, eps=1e-5) for x in (q, k))
        phi = [tape.call(rows.feature_map, self.rotate(x), kind=kind) for x in (q, k)]
        turned, s["rope"] = s["rope"], None
        o = self.run_scan("I", *phi, tape.call(rows.append_one, v))
        s["rope"] = turned
        return self.gate_and_project(tape.call(rows.divide_by_last, o, eps=1e-6))

    rebased = based

    def least(self):
        """Of decays: none, a number of every layer, or of each feature the sum of the softmax over layers from the second to this one."""
        s, tape, w = self.spec, self.tape, self.w
        if s["lower_bounds"] is None:
            return Value(np.zeros(s["heads"]))
        if s["lower_bounds"] == "layers":
            return w["lsm.lower_bound"]
        shares = tape.call(rows.softmax, s["model_weights"]["lsm.lower_bounds"])

        def summed(shares):
            return shares[..., 1 : s["layer"] + 1].sum(-1), lambda dy: (dy[..., None] * (np.arange(shares.shape[-1]) <= s["layer"]) * (np.arange(shares.shape[-1]) > 0),)

        return tape.call(summed, shares)

    def hgrn2(self):
        s, tape, w = self.spec, self.tape, self.w
        q, v = self.project("lsm.wq", (s["heads"], s["head_dim"])), self.project("lsm.wv", (s["heads"], s["value_dim"]))
        f, least = self.project("lsm.wk", (s["heads"], s["head_dim"])), self.least()
        act = s["conv"].get("activation", "silu") if s["conv"] else None
        f = self.conv("k", f, act) if s["conv"] and s["conv"].get("decays") else f
        share = self.activated(self.scaled(f, -1.0), "sigmoid")
        k = self.sums(share, self.scaled(tape.call(rows.weighted, share, least), -1.0))
        g = tape.call(rows.bounded_gate, f, least)
        q = self.activated(self.conv("q", q, act), "silu")
        return self.gate_and_project(self.run_scan("V", q, k, self.conv("v", v, act), g), all_heads=True)

    def gateloop(self):
        s, H = self.spec, self.spec["heads"]
        q, k, v = self.qkv(H, H, H)
        gate, phase = (self.project(f"lsm.w{n}", (H, s["head_dim"])) for n in "ap")
        g = self.tape.call(rows.log_sigmoid_op, gate, divide=1.0)
        run = lambda *arrays: complex_scan(*arrays, self.documents, s["scale"])
        return self.gate_and_project(self.tape.call(run, self.rotate(q), self.rotate(k), v, g, phase))

    def fast_weight_gate(self, name, shape):
        x = self.tape.call(rows.bias, self.project("lsm.w" + name, shape), self.w["lsm.b" + name])
        return self.tape.call(rows.log_sigmoid_op, x, divide=1.0)

    def dfw(self):
        s, H = self.spec, self.spec["heads"]
        gates = self.fast_weight_gate("f", (H, s["head_dim"])), self.fast_weight_gate("e", (H, s["value_dim"]))
        return self.gate_and_project(self.run_scan("R", *self.qkv(H, H, H), gates[0], value_decay=gates[1]))

    def gfw(self):
        s, H = self.spec, self.spec["heads"]
        gate = self.fast_weight_gate("f", (H, s["head_dim"], s["value_dim"]))
        return self.gate_and_project(self.run_scan("E", *self.qkv(H, H, H), gate))

    def low_rank(self, name, x, features, act=None, within=lambda y: y):
        between = within(self.tape.linear(x, self.w[f"lsm.{name}_a"]))
        if act:
            between = self.activated(between, act)
        return self.tape.linear(between, self.w[f"lsm.{name}_b"], features)

    def mamba(self):
        s, tape, w = self.spec, self.tape, self.w
        H, K, V = s["heads"], s["head_dim"], s["value_dim"]
        u = self.conv("v", self.project("lsm.wv", (H, V)))

        def rms(n, y):
            if not s["bcdt_norm"]:
                return y
            if s["bcdt_norm_weights"]:
                return tape.call(rows.rms_norm, y, w[f"lsm.{n}_norm.weight"], eps=s["norm_eps"])
            return self.scaled(tape.call(rows.l2_norm, y, eps=s["norm_eps"] * y.shape[-1]), y.shape[-1] ** 0.5)

        q, k = (rms(n, tape.linear(u, w[f"lsm.w{n}"], (s["key_heads"], K))) for n in "qk")
        dt = tape.call(rows.bias, self.low_rank("wdt", u, (H, V), within=lambda y: rms("dt", y)), w["lsm.dt_bias"])
        delta = self.activated(dt, "softplus")
        g = tape.call(rows.element_decay, delta, w["lsm.a_log"])
        o = self.run_scan("E", q, k, self.product(u, delta), g)
        return self.gate_and_project(self.sums(o, tape.call(rows.weighted, u, w["lsm.d"])), norm_first=False)

    def kda(self):
        s, H = self.spec, self.spec["heads"]
        q, k, v = self.qkv(H, H, H)
        if s.get("gate_rank", 16):
            f = self.tape.linear(self.project("lsm.wf1", None), self.w["lsm.wf2"], (H, s["head_dim"]))
        else:
            f = self.project("lsm.wf", (H, s["head_dim"]))
        if s.get("lower_bound", 0):
            rate = self.tape.call(lambda a: (np.exp(a), lambda dy: (np.exp(a) * dy,)), self.w["lsm.a_log"])
            opened = self.tape.call(rows.weighted, self.tape.call(rows.bias, f, self.w["lsm.dt_bias"]), rate, per_head=True)
            g = self.scaled(self.activated(opened, "sigmoid"), s["lower_bound"])
        else:
            g = self.tape.call(rows.log_decay, f, self.w["lsm.a_log"], self.w["lsm.dt_bias"])
        return self.gate_and_project(self.run_scan("VH", self.unit(q), self.unit(k), v, g, self.beta()))

    def mlstm(self):
        s, tape, H, w = self.spec, self.tape, self.spec["heads"], self.w
        q, k, v = self.qkv(H, H, H)
        cap = s["gate_softcap"]
        i, f = (self.scaled(self.activated(self.scaled(self.per_head(n), 1 / cap), "tanh"), cap) for n in "if")
        g = tape.call(rows.log_sigmoid_op, f, divide=1.0)
        o = self.run_scan("S", q, self.product(k, self.activated(i, "exp")), tape.call(rows.append_one, v), g)
        o = tape.call(rows.divide_by_last, o, eps=0.0, least=1.0)
        if s["output_norm"]:
            o = tape.call(rows.layer_norm, o, w["lsm.norm.weight"], eps=s["norm_eps"])
        if s["output_gate"]:
            o = self.product(o, self.activated(self.project("lsm.wg", (H, s["value_dim"])), s["output_gate"]))
        return tape.linear(o, w["lsm.wo"])

    def rglru(self):
        s, tape, w = self.spec, self.tape, self.w
        H, V = s["heads"], s["value_dim"]
        biased = lambda n, y: tape.call(rows.bias, y, w[f"lsm.b{n}"]) if s["projection_bias"] else y
        u = self.conv("v", biased("v", self.project("lsm.wv", (H, V))), activation=None)

        def blocks(x, weight):
            return np.einsum("bthr,hre->bthe", x, weight), lambda dy: (np.einsum("bthe,hre->bthr", dy, weight), np.einsum("bthr,bthe->hre", x, dy))

        r, i = (self.activated(tape.call(rows.bias, tape.call(blocks, u, w[f"lsm.w{n}"]), w[f"lsm.b{n}"]), "sigmoid") for n in "ri")
        rate = tape.call(lambda a: (np.logaddexp(0, a), lambda dy: (dy / (1 + np.exp(-a)),)), w["lsm.a"])
        g = self.scaled(tape.call(rows.weighted, r, rate), -8.0)
        first = (self.documents == np.arange(self.documents.shape[1]))[:, :, None, None]  # of a document

        def norm(g):
            m = np.sqrt(-np.expm1(2 * g))
            return np.where(first, 1.0, m), lambda dy: (np.where(first, 0.0, -np.exp(2 * g) / m * dy),)

        ones, zeros = np.ones(g.shape[:3] + (1,)), np.zeros(g.shape[:3] + (1,))
        v = self.product(u, self.product(i, tape.call(norm, g)))
        o = self.run_scan("R", ones, ones, v, zeros, value_decay=g)
        if s["output_gate"]:
            o = self.product(o, self.activated(biased("g", self.project("lsm.wg", (H, V))), s["output_gate"]))
        y = tape.linear(o, w["lsm.wo"])
        return tape.call(rows.bias, y, w["lsm.bo"]) if s["output_bias"] else y

    def s4d(self):
        tape, w, x = self.tape, self.w, self.x
        names = ("log_dt", "log_a", "a_im", "c_re", "c_im")
        run = lambda *arrays: state_space(*arrays, self.documents)
        o = self.scaled(tape.call(run, x, *(w[f"lsm.{n}"] for n in names)), self.spec["scale"])
        y = self.activated(self.sums(o, tape.call(rows.weighted, x, w["lsm.d"])), "gelu")
        return self.product(tape.linear(y, w["lsm.wo"]), self.activated(tape.linear(y, w["lsm.wg"]), "sigmoid"))

    # ---- models that learn while they read

    def run_inner(self, operands):
        names = tuple(operands)
        q, v, s = operands["q"], operands["v"], self.spec
        state = np.zeros((q.shape[0], q.shape[2], inner.planes(names, self.spec["mini_batch"]) * q.shape[-1], v.shape[-1]))

        def run(*arrays):
            value, pull = inner.inner_step(dict(zip(names, arrays)), state, self.documents, s["mini_batch"])

            def in_order(do, dfinal):
                gradients, _ = pull(do, dfinal)
                return tuple(gradients[n] for n in names)

            return value, in_order

        return self.tape.call(run, *operands.values())[0]

    def per_head(self, name):
        return self.tape.call(rows.bias, self.project(f"lsm.w{name}", (self.spec["heads"],)), self.w[f"lsm.b{name}"])

    def inner_norm(self):
        return {f"norm_{n}": self.w[f"lsm.inner_norm.{n}"] for n in ("weight", "bias")}

    def ttt(self):
        s, tape, w = self.spec, self.tape, self.w
        H, K, V = s["heads"], s["head_dim"], s["value_dim"]
        qk, v = self.project("lsm.wqk", (H, K)), self.project("lsm.wv", (H, V))
        q, k = (self.rotate(self.conv(n, qk, None), s["mini_batch"]) for n in "qk")
        one = lambda x: tape.call(rows.append_one, x)
        rate = self.scaled(self.activated(self.per_head("r"), "sigmoid"), s["inner_rate"] / K)

        def token_rate(weight):
            value, pull = rows.position_rate(self.documents, weight, H)
            return value, lambda dy: pull(dy)[1]

        read = self.run_inner(
            {"q": one(self.scaled(q, s["scale"])), "k": one(k), "v": self.sums(v, self.scaled(k, -1.0)), "rate": rate}
            | {"read_rate": tape.call(token_rate, w["lsm.token_rate"])}
            | self.inner_norm()
            | {"weights": w["lsm.start"]}
        )
        o = self.sums(q, tape.call(rows.layer_norm, read, *self.inner_norm().values(), eps=1e-6))
        o = tape.reshape(o, o.shape[:2] + (H * V,))
        if s["output_norm"]:
            o = tape.call(rows.layer_norm, o, w["lsm.norm.weight"], w["lsm.norm.bias"], eps=s["norm_eps"])
        if s["output_gate"]:
            o = self.product(o, self.activated(self.project("lsm.wg", (H * V,)), s["output_gate"]))
        return tape.linear(o, w["lsm.wo"])

    def titans(self):
        s, normed = self.spec, self.spec["kind"] == "titans_ln"
        H = s["heads"]
        q, k, v = self.qkv(H, H, H)
        q, k = (self.unit(self.rotate(x)) for x in (q, k))
        log = lambda x: self.tape.call(rows.log_sigmoid_op, x, divide=1.0)
        x = {"q": self.scaled(q, s["scale"]), "k": k, "v": self.sums(v, self.scaled(k, -1.0)) if normed else v}
        x["rate"] = self.scaled(self.activated(self.per_head("r"), "sigmoid"), 2 * s["inner_rate"])
        x["log_decay"] = log(self.scaled(self.per_head("a"), -1.0))
        if s["momentum"]:
            x["log_momentum"] = log(self.per_head("e"))
        return self.gate_and_project(self.run_inner(x | (self.inner_norm() if normed else {})))

    titans_ln = titans

    # ---- RWKV

    def before(self, x):
        return token_before(self.tape, x, self.documents)

    def mixed(self, name, x, difference):
        return self.sums(x, self.tape.call(rows.weighted, difference, self.w["lsm.mu_" + name]))

    def group_norm(self, o):
        norm = [self.w[f"lsm.norm.{n}"] for n in ("weight", "bias")]
        return self.tape.call(rows.layer_norm, o, *norm, eps=self.spec["norm_eps"])

    def rwkv6(self):
        s, tape, w, x = self.spec, self.tape, self.w, self.x
        H, K, V = s["heads"], s["head_dim"], s["value_dim"]
        difference = self.sums(self.before(x), self.scaled(x, -1.0))
        base = self.mixed("x", x, difference)
        mix = {}
        for n in "qkvgw":
            m = self.low_rank("mix_" + n, base, None, "tanh")
            mix[n] = self.sums(self.mixed(n, x, difference), self.product(difference, m))
        q, k, v, g = (tape.linear(mix[n], w[f"lsm.w{n}"], (H, K if n in "qk" else V)) for n in "qkvg")
        decay = tape.call(rows.bias, self.low_rank("decay", mix["w"], (H, K), "tanh"), w["lsm.w0"])
        log_decay = self.scaled(self.activated(decay, "bounded_exp"), -1.0)

        def pre_read(q, k, v, g, u):
            """o_t = r_t (M_{t-1} + diag(u) k_t^T v_t), token by token, without shifting anything."""
            arrays = {"q": q, "k": k, "v": v, "log_decay": g}
            initial = np.zeros((q.shape[0], H, K, V))
            # The read after the write with q exp(-g): the decay of the old state is undone, 1 of the new one becomes u.
            (free, _), pull_free = scan("V", arrays | {"q": q * np.exp(-g)}, initial, self.documents, s["scale"])
            own = s["scale"] * ((u - np.exp(-g)) * q * k).sum(-1, keepdims=True) * v
            here = (self.documents != PADDING)[..., None, None]

            def back(do):
                d, _ = pull_free(do, np.zeros(initial.shape))
                do = np.where(here, do, 0)
                share = s["scale"] * (do * v).sum(-1, keepdims=True)
                e, weight = np.exp(-g), u - np.exp(-g)
                dq = d["q"] * e + share * weight * k
                dk = d["k"] + share * weight * q
                dv = d["v"] + s["scale"] * do * (weight * q * k).sum(-1, keepdims=True)
                dg = d["log_decay"] - d["q"] * q * e + share * e * q * k
                return dq, dk, dv, dg, (share * q * k).sum((0, 1))

            return free + np.where(here, own, 0), back

        o = tape.call(pre_read, q, k, v, log_decay, w["lsm.u"])
        return tape.linear(self.product(self.group_norm(o), self.activated(g, "silu")), w["lsm.wo"])

    def rwkv7(self):
        s, tape, w, x = self.spec, self.tape, self.w, self.x
        H, K, V = s["heads"], s["head_dim"], s["value_dim"]
        difference = self.sums(self.before(x), self.scaled(x, -1.0))
        q, k, own = (
            tape.linear(self.mixed(n, x, difference), w[f"lsm.w{n}"], (H, V if n == "v" else K)) for n in "qkv"
        )
        rank = lambda n, mix, features, act: self.low_rank(n, self.mixed(mix, x, difference), features, act)
        # v of the first layer of this kind is handed on, or of one that does not mix; later layers mix it with their own.
        if not s["value_mix"]:
            s["shared"]["v_first"] = own
        first = s["shared"].setdefault("v_first", own)
        v = own
        if first is not own:
            first = tape.reshape(first, own.shape)
            mix = self.activated(tape.call(rows.bias, rank("value", "v", (H, V), None), w["lsm.v0"]), "sigmoid")
            v = self.sums(own, self.product(self.sums(first, self.scaled(own, -1.0)), mix))
        decay = tape.call(rows.bias, rank("decay", "w", (H, K), "tanh"), w["lsm.w0"])
        log_decay = self.scaled(self.activated(decay, "sigmoid"), -np.exp(-0.5))
        alpha = self.activated(tape.call(rows.bias, rank("rate", "a", (H, K), None), w["lsm.a0"]), "sigmoid")
        gate = rank("gate", "g", (H, V), "sigmoid")
        removed = tape.call(rows.l2_norm, tape.call(rows.weighted, k, w["lsm.k_k"]), eps=s["l2_eps"])
        share = tape.call(rows.weighted, k, w["lsm.k_a"])
        key = self.sums(k, self.product(share, alpha), self.scaled(share, -1.0))
        a, b = self.scaled(removed, -1.0), self.product(removed, alpha)
        o = self.group_norm(self.run_scan("D", q, key, v, log_decay, a=a, b=b))
        own = tape.call(rows.inner, tape.call(rows.weighted, q, w["lsm.r_k"]), key)
        return tape.linear(self.product(self.sums(o, self.product(v, own)), gate), w["lsm.wo"])

    def normed(self, x, weight):
        """q or k: each head by itself, or all of them as one row."""
        B, T, H, D = x.shape
        row = (D,) if self.spec["qk_norm_over"] == "head" else (H * D,)
        flat = self.tape.reshape(x, (B, T, x.array.size // (B * T * row[0]), *row))
        return self.tape.reshape(self.tape.call(rows.rms_norm, flat, weight, eps=self.spec["model_eps"]), (B, T, H, D))

    def opened(self, o):
        """o of attention times what the input says of its features, or of its heads."""
        s = self.spec
        if not s["output_gate"]:
            return o
        g = self.project("attn.wg", o.shape[2:3] if s["output_gate_per"] == "head" else o.shape[2:])
        return self.product(o, self.activated(g, s["output_gate"]))

    def attention(self):
        s, tape = self.spec, self.tape
        H, G, D = s["heads"], s["kv_heads"], s["head_dim"]
        q, k, v = (self.project(f"attn.w{n}", (h, D)) for n, h in (("q", H), ("k", G), ("v", G)))
        if s["qkv_bias"]:
            q, k, v = (tape.call(rows.bias, y, self.w[f"attn.b{n}"]) for y, n in ((q, "q"), (k, "k"), (v, "v")))
        if s["qk_norm"]:
            q, k = (self.normed(y, self.w[f"attn.{n}_norm.weight"]) for y, n in ((q, "q"), (k, "k")))

        def run(q, k, v, documents, sinks=None):
            (o, _), pull = attn.attention(q, k, v, documents, s["scale"], window=s["window"], sinks=sinks, softcap=s["softcap"])
            if sinks is None:
                return o, pull

            def pull_sinks(do):
                dq, dk, dv, dsinks = pull(do)
                return dq, dk, dv, None, dsinks

            return o, pull_sinks

        o = tape.call(run, self.rotate(q), self.rotate(k), v, self.documents, *([self.w["attn.sinks"]] if s["sinks"] else []))
        y = tape.linear(self.opened(o), self.w["attn.wo"])
        return tape.call(rows.bias, y, self.w["attn.bo"]) if s["output_bias"] else y

    def mla(self):
        """Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434, equations 9 to 19), with keys and values made of the latent."""
        s, tape, w = self.spec, self.tape, self.w
        H, D, R, V = s["heads"], s["head_dim"], s["rope_dim"], s["value_dim"]
        normed = lambda x, name: tape.call(rows.rms_norm, x, w[f"attn.{name}_norm.weight"], eps=s["norm_eps"])
        of_queries = normed(self.project("attn.wq_down", (s["q_rank"],)), "q") if s["q_rank"] else self.x
        q, q_rope = (tape.linear(of_queries, w[n], (H, d)) for n, d in (("attn.wq", D), ("attn.wq_rope", R)))
        latent = normed(self.project("attn.wkv_down", (s["kv_rank"],)), "kv")
        k, v = (tape.linear(latent, w[n], (H, d)) for n, d in (("attn.wk", D), ("attn.wv", V)))
        k_rope = self.project("attn.wk_rope", (1, R))

        def run(q, k, v, q_rope, k_rope, documents):
            (o, _), pull = attn.attention_shared(q, k, v, q_rope, k_rope, documents, s["scale"])
            return o, pull

        o = tape.call(run, q, k, v, self.rotate(q_rope), self.rotate(k_rope), self.documents)
        return tape.linear(self.opened(o), w["attn.wo"])

    def short_conv(self):
        """c * conv(b * z), of three projections (LFM2)."""
        s, tape, w = self.spec, self.tape, self.w
        b, c, z = (self.project(f"lsm.w{n}", None) for n in "bcz")
        if s["projection_bias"]:
            b, c, z = (tape.call(rows.bias, y, w[f"lsm.b{n}"]) for n, y in zip("bcz", (b, c, z)))
        y = tape.linear(self.product(c, self.conv("z", self.product(b, z), activation=None)), w["lsm.wo"])
        return tape.call(rows.bias, y, w["lsm.bo"]) if s["output_bias"] else y


def mixer(tape, x, documents, w, spec):
    return getattr(Mixer(tape, x, documents, w, spec), spec["kind"])()
