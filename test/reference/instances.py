"""The mixers: linear sequence models and attention as layers over the scan, written from their papers' formulas.

    y = mixer(tape, x, documents, w, spec)      x [B, T, M] (already normalised), w: name -> Value, spec: keys of the model file

Every call starts from zero states. Weights are called as in a checkpoint, without the layer: lsm.wq, attn.wo, ..
"""

import numpy as np

import attention as attn
import rows
from scan import scan

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
    },
    "gla": {"conv": None, "output_gate": "silu", "value_factor": 2, "gate_divisor": 16.0, "rope": None},
    "deltanet": {"conv": {"kernel": 4}, "output_gate": None, "value_factor": 1, "rope": None},
    "gated_deltanet": {"conv": {"kernel": 4}, "output_gate": "silu", "value_factor": 2, "rope": None},
    "attention": {"rope": {}, "qk_norm": False, "window": 0, "output_gate": None, "output_gate_per": "feature"},
}


def complete(spec):
    """The description of a mixer with every default written out."""
    defaults = DEFAULTS[spec["kind"]]
    full = {"norm_eps": 1e-5, "output_norm": True, "allow_neg_eigval": False} | defaults | spec
    if full.get("conv"):
        full["conv"] = (defaults["conv"] or {}) | full["conv"]
    full.setdefault("kv_heads", full["heads"])
    full.setdefault("key_heads", full["heads"])
    if spec["kind"] != "attention":
        full.setdefault("value_dim", full["value_factor"] * full["head_dim"])
    full.setdefault("scale", full["head_dim"] ** -0.5)
    return full


class Mixer:
    def __init__(self, tape, x, documents, w, spec):
        self.tape, self.x, self.documents, self.w, self.spec = tape, x, documents, w, complete(spec)

    def project(self, name, features):
        return self.tape.linear(self.x, self.w[name], features)

    def rotate(self, x):
        rope = self.spec["rope"]
        if rope is None:
            return x
        dim = round(rope.get("fraction", 1.0) * x.shape[-1])
        return self.tape.call(
            rows.rope, x, self.documents, theta=rope.get("theta", 10000.0), dim=dim, layout=rope.get("layout", "half")
        )

    def heads(self, x):
        return self.tape.call(rows.repeat_heads, x, heads=self.spec["heads"])

    def conv(self, name, x):
        """Short causal convolution and SiLU, where the mixer has one."""
        conv = self.spec["conv"]
        if conv is None:
            return x
        weight = self.w[f"lsm.conv_{name}.weight"]
        channels, taps = weight.shape
        tail = np.zeros((x.shape[0], taps - 1, channels))
        y, _ = self.tape.call(rows.short_conv, x, weight, self.documents, tail)
        if conv.get("bias", False):
            y = self.tape.call(rows.bias, y, self.w[f"lsm.conv_{name}.bias"])
        return self.tape.call(rows.activation, y, kind="silu")

    def feature_map(self, x):
        kind = self.spec.get("feature_map", "identity")
        if kind == "identity":
            return x
        return self.tape.call(rows.softmax, x) if kind == "softmax" else self.tape.call(rows.activation, x, kind=kind)

    def run_scan(self, kind, q, k, v, log_decay=None, beta=None):
        s = self.spec
        q, k, v = self.heads(self.rotate(q)), self.heads(self.rotate(k)), self.heads(v)
        if kind == "V":
            log_decay = self.heads(log_decay)
        initial = np.zeros((q.shape[0], s["heads"], s["head_dim"], s["value_dim"]))

        def run(q, k, v, log_decay, beta, documents):
            return scan(kind, q, k, v, log_decay, beta, initial, documents, s["scale"])

        return self.tape.call(run, q, k, v, log_decay, beta, self.documents)[0]

    def gate_and_project(self, o):
        """RMSNorm per head, times act(x wg); then wo."""
        s, gate = self.spec, self.spec["output_gate"]
        g = self.project("lsm.wg", (s["heads"], s["value_dim"])) if gate else None
        if s["output_norm"] and gate:
            o = self.tape.call(rows.gated_norm, o, g, self.w["lsm.norm.weight"], eps=s["norm_eps"], activation=gate)
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
        q, k, v = self.qkv(G, G, H)
        dt = self.project("lsm.wdt", (H,))
        delta = tape.call(rows.activation, tape.call(rows.bias, dt, self.w["lsm.dt_bias"]), kind="softplus")
        decay = tape.call(
            lambda d, a: (-np.exp(a) * d, lambda dy: (-np.exp(a) * dy, (-np.exp(a) * d * dy).sum((0, 1)))),
            delta,
            self.w["lsm.a_log"],
        )
        o = self.run_scan("S", q, k, tape.call(rows.mul, v, delta), decay)
        y = tape.call(rows.add, o, tape.call(rows.weighted, v, self.w["lsm.d"]))
        B, T = y.shape[:2]
        y, gate = tape.reshape(y, (B, T, H * V)), s["output_gate"]
        g = self.project("lsm.wg", (H * V,)) if gate else None
        if s["output_norm"] and gate:  # the gate comes before the norm, the norm over each group of heads
            y = tape.call(
                rows.gated_norm,
                y,
                g,
                self.w["lsm.norm.weight"],
                eps=s["norm_eps"],
                activation=gate,
                norm_first=False,
                groups=G,
            )
        elif s["output_norm"]:
            y = tape.call(rows.rms_norm, y, self.w["lsm.norm.weight"], eps=s["norm_eps"], groups=G)
        elif gate:
            y = tape.call(rows.mul, y, tape.call(rows.activation, g, kind=gate))
        return tape.linear(y, self.w["lsm.wo"])

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

    def attention(self):
        s, tape = self.spec, self.tape
        H, G, D = s["heads"], s["kv_heads"], s["head_dim"]
        q, k, v = (self.project(f"attn.w{n}", (h, D)) for n, h in (("q", H), ("k", G), ("v", G)))
        if s["qk_norm"]:
            q = tape.call(rows.rms_norm, q, self.w["attn.q_norm.weight"], eps=s["model_eps"])
            k = tape.call(rows.rms_norm, k, self.w["attn.k_norm.weight"], eps=s["model_eps"])

        def run(q, k, v, documents):
            (o, _), pull = attn.attention(q, k, v, documents, s["scale"], window=s["window"])
            return o, pull

        o = tape.call(run, self.rotate(q), self.rotate(k), v, self.documents)
        if s["output_gate"]:
            g = self.project("attn.wg", (H,) if s["output_gate_per"] == "head" else (H, D))
            o = tape.call(rows.mul, o, tape.call(rows.activation, g, kind=s["output_gate"]))
        return tape.linear(o, self.w["attn.wo"])


def mixer(tape, x, documents, w, spec):
    return getattr(Mixer(tape, x, documents, w, spec), spec["kind"])()
