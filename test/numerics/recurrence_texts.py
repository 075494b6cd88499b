"""Two texts of one function each: what no built-in instance is, and what papers write in more ways than one (check_recurrence.py)."""

SIZES = {"heads": 4, "head_dim": 8}
LINEAR = {"q": "linear(x)", "k": "linear(x)", "v": "linear(x)"}
STEPS = {"a_log": {"log_uniform": [1, 16]}, "dt_bias": {"softplus_inverse": [0.001, 0.1]}}
CONV = lambda heads: {n: f"silu(conv(linear(x, heads={heads})))" for n in "qk"} | {"v": "silu(conv(linear(x)))"}
UNIT = lambda heads: {n: f"l2_norm({t})" if n != "v" else t for n, t in CONV(heads).items()}

POSITIVE = {"q": "exp(linear(x))", "k": "exp(linear(x))", "v": "linear(x)"}
SHARED = {"s": {"initial": "1 + key"}}
LOW_RANK = {"a": "l2_norm(linear(x))", "b": "-linear(x) / 4"}
SPIN = {"s": {"initial": "1 + key"}, "f": {"initial": "(key + 1) / keys"}}
# What no instance is: two texts of one function each, to rounding.
TWICE = {
    # Read before it is written, and the token itself beside it.
    "A": (
        {"state": "M = M + k^T v", "inputs": LINEAR},
        {"state": "M = M + k^T v", "output": "o = q M_prev + scale v own", "inputs": LINEAR | {"own": "inner(q, k)"}},
    ),
    # A gradient step for every token is the delta rule.
    "B": (
        {"state": "M = M + b k^T (v - k M)", "inputs": UNIT(4) | {"b": "sigmoid(linear(x))"}},
        {"mini_batch": 1, "state": "M = M - b grad(l2(k M - v))", "inputs": UNIT(4) | {"b": "sigmoid(linear(x))"}},
    ),
    # A turn that all tokens share, and one of each token which is the same.
    "C": (
        {
            "state": "M = diag(exp(g + i p)) M + k^T v",
            "inputs": LINEAR | {"g": "log_sigmoid(s)", "p": "f / 4"},
            "parameters": SPIN,
        },
        {
            "state": "M = diag(exp(g + i p)) M + k^T v",
            "inputs": LINEAR | {"g": "log_sigmoid(0 linear(x) + s)", "p": "(0 linear(x) + f) / 4"},
            "parameters": SPIN,
        },
    ),
    # What all tokens share, as it stands and as one of each token: decays, keys, rates.
    "D": (
        {"state": "M = diag(exp(g)) M + k^T v", "inputs": LINEAR | {"g": "log_sigmoid(s)"}, "parameters": SHARED},
        {
            "state": "M = diag(exp(g)) M + k^T v",
            "inputs": LINEAR | {"g": "log_sigmoid(0 linear(x) + s)"},
            "parameters": SHARED,
        },
    ),
    "E": (
        {
            "state": "M = exp(g) M + r k^T (v - k exp(g) M)",
            "output": "o = q M_prev",
            "inputs": UNIT(4) | {"g": "-softplus(s)"},
            "parameters": {"s": {"value": -1, "per": "head"}, "r": {"value": 0.7, "per": "head"}},
        },
        {
            "state": "M = exp(g) M + b k^T (v - k exp(g) M)",
            "output": "o = q M_prev",
            "inputs": UNIT(4) | {"g": "-softplus(0 linear(x) + s)", "b": "0 linear(x) + r"},
            "parameters": {"s": -1, "r": 0.7},
        },
    ),
    "F": (
        {"state": "M = exp(g) M + k^T v", "inputs": {n: LINEAR[n] for n in "qv"} | {"g": "log_sigmoid(linear(x))"}, "parameters": {"k": {"initial": "1 - key"}}},
        {
            "state": "M = exp(g) M + k^T v",
            "inputs": {n: LINEAR[n] for n in "qv"} | {"g": "log_sigmoid(linear(x))", "k": "0 linear(x) + s"},
            "parameters": {"s": {"initial": "1 - key"}},
        },
    ),
    # A rate of 1, and two numbers that make one.
    "G": (
        {"state": "M = M + k^T (v - k M)", "inputs": UNIT(4)},
        {"state": "M = M - b c k^T k M + c b k^T v", "inputs": UNIT(4) | {"b": "0 linear(x) + two", "c": "0 linear(x) + half"}, "parameters": {"two": 2, "half": 0.5}},
    ),
    "H": (
        {"mini_batch": 5, "state": "M = M - grad(l2(k M - v))", "inputs": UNIT(4)},
        {"mini_batch": 5, "state": "M = M - r grad(l2(k M - v))", "inputs": UNIT(4), "parameters": {"r": 1}},
    ),
    # Classes with a decay per key feature of states that have one per head, or none.
    "I": (
        {"state": "M = (I + b^T a) M + k^T v", "inputs": LINEAR | LOW_RANK},
        {"state": "M = (diag(exp(g)) + b^T a) M + k^T v", "inputs": LINEAR | LOW_RANK | {"g": "0 log_sigmoid(linear(x))"}},
    ),
    "J": (
        {"state": "M = (exp(g) + b^T a) M + k^T v", "inputs": LINEAR | LOW_RANK | {"g": "log_sigmoid(linear(x, per=head))"}},
        {
            "state": "M = (diag(exp(h)) + b^T a) M + k^T v",
            "inputs": LINEAR | LOW_RANK | {"g": "log_sigmoid(linear(x, per=head))", "h": "exp(0 linear(x) + zero) g"},
            "parameters": {"zero": {"value": 0, "per": "key"}},
        },
    ),
    "K": (
        {"state": "M = M diag(exp(h)) + k^T v", "inputs": LINEAR | {"h": "log_sigmoid(linear(x))"}},
        {
            "state": "M = diag(exp(g)) M diag(exp(h)) + k^T v",
            "inputs": LINEAR | {"h": "log_sigmoid(linear(x))", "g": "0 log_sigmoid(linear(x))"},
        },
    ),
    # Turns of one kind, decays of the other.
    "L": (
        {"state": "M = diag(exp(g + i p)) M + k^T v", "inputs": LINEAR | {"g": "log_sigmoid(s)", "p": "linear(x)"}, "parameters": SHARED},
        {
            "state": "M = diag(exp(g + i p)) M + k^T v",
            "inputs": LINEAR | {"g": "log_sigmoid(0 linear(x) + s)", "p": "linear(x)"},
            "parameters": SHARED,
        },
    ),
    "M": (
        {"state": "M = diag(exp(g + i p)) M + k^T v", "inputs": LINEAR | {"g": "log_sigmoid(linear(x))"}, "parameters": {"p": {"initial": "key / keys"}}},
        {
            "state": "M = diag(exp(g + i p)) M + k^T v",
            "inputs": LINEAR | {"g": "log_sigmoid(linear(x))", "p": "0 linear(x) + f"},
            "parameters": {"f": {"initial": "key / keys"}},
        },
    ),
    # What is read of a normalised state, and more.
    "N": (
        {"state": "M = M + k^T v; z = z + k^T", "output": "o = (1 / 2) (q M) / max(abs(q z), 0.5)", "inputs": POSITIVE, "output_norm": False},
        {"state": "M = M + k^T v; z = z + k^T", "output": "o = h q M / max(relu(q z) + relu(-(q z)), 0.5)", "inputs": POSITIVE, "output_norm": False, "parameters": {"h": {"value": 0.5, "per": "head"}}},
    ),
    # Numbers in sums; a number alone.
    "O": (
        {"state": "M = diag(exp(g)) M + k^T v", "inputs": {"q": "linear(x)", "f": "linear(x)", "k": "1 - sigmoid(f)", "v": "linear(x) - 1 / 2", "g": "log_sigmoid((1 + 2) / 2 + f)"}},
        {
            "state": "M = diag(exp(g)) M + k^T v",
            "inputs": {"q": "linear(x)", "f": "linear(x)", "k": "sigmoid(-f)", "v": "linear(x) + half", "g": "log_sigmoid(f + more)"},
            "parameters": {"half": -0.5, "more": 1.5},
        },
    ),
    "P": (
        {"state": "M = exp(g) M + k^T v w", "inputs": LINEAR | {"g": "-0.25", "w": "sigmoid(linear(x, per=head))"}},
        {"state": "M = exp(g) M + w k^T v", "inputs": LINEAR | {"w": "sigmoid(linear(x))"}, "parameters": {"g": {"values": "-1 / 4"}}},
    ),
    "Q": (
        {"state": "M = exp(g) M + k^T v", "inputs": {n: LINEAR[n] for n in "qv"} | {"k": "2", "g": "-exp(-1) softplus(linear(x))"}},
        {
            "state": "M = exp(g) M + k^T v",
            "inputs": {n: LINEAR[n] for n in "qv"} | {"g": "-c softplus(linear(x))"},
            "parameters": {"k": 2, "c": {"values": "exp(-1)", "per": "head"}},
        },
    ),
    # What all tokens share within an input, and as inputs of their own.
    "R": (
        {
            "state": "M = M + k^T v",
            "output": "o = q M silu(w) - v d / exp(w)",
            "inputs": {"q": "linear(x)", "k": "linear(x) silu(u) - exp(u) / 2", "v": "linear(x) / (exp(h) + exp(2)) / 3"},
            "parameters": {"u": {"initial": "key / keys"}, "h": {"value": 0.3, "per": "head"}, "d": {"value": 1, "per": "head"}, "w": {"initial": "value / values"}},
        },
        {
            "state": "M = M + k^T v",
            "output": "o = wide q M + d narrow v",
            "inputs": {
                "wide": "silu(w)",
                "narrow": "-1 / exp(w)",
                "su": "silu(u)",
                "eu": "-exp(u) / 2",
                "ih": "1 / (3 (exp(h) + c))",
                "q": "linear(x)",
                "k": "linear(x) su + eu",
                "v": "linear(x) ih",
            },
            "parameters": {"u": {"initial": "key / keys"}, "h": {"value": 0.3, "per": "head"}, "d": {"value": 1, "per": "head"}, "w": {"initial": "value / values"}}
            | {"c": {"values": "exp(2)", "per": "head"}},
        },
    ),
    "S": (
        {
            "state": "M = M + k^T v",
            "output": "o = q M + a v + b v + c v",
            "inputs": LINEAR | {"a": "inner(u, q)", "b": "inner(k, exp(u))", "c": "inner(3, q)"},
            "parameters": {"u": {"initial": "key / keys"}},
        },
        {
            "state": "M = M + k^T v",
            "output": "o = q M + a v + b v + c v",
            "inputs": LINEAR | {"one": "exp(0 linear(x, per=key))", "a": "inner(q u, one)", "eu": "exp(u)", "b": "inner(one, eu k)", "c": "3 inner(q, one)"},
            "parameters": {"u": {"initial": "key / keys"}},
        },
    ),
    # Decays, rows and numbers as they stand in papers.
    "T": (
        {"state": "M = diag(f) M + (1 - f)^T v", "output": "o = (q + f) M", "inputs": {"q": "linear(x)", "v": "linear(x)", "f": "sigmoid(linear(x) + 1)"}},
        {
            "state": "M = diag(exp(g)) M + k^T v",
            "output": "o = r M",
            "inputs": {"q": "linear(x)", "v": "linear(x)", "f": "linear(x)", "g": "log_sigmoid(f + one)", "k": "sigmoid(-(f + one))", "r": "q + sigmoid(f + one)"},
            "parameters": {"one": 1},
        },
    ),
    "U": (
        {"state": "M = 0.9 a (M - b k^T k M) + b k^T v", "inputs": UNIT(4) | {"a": "1 - sigmoid(linear(x))", "b": "sigmoid(linear(x))"}},
        {
            "state": "M = exp(g) M + b k^T (v - k exp(g) M)",
            "inputs": UNIT(4) | {"a": "linear(x)", "b": "sigmoid(linear(x))", "g": "log_sigmoid(-a) + n"},
            "parameters": {"n": {"values": "log(0.9)", "per": "head"}},
        },
    ),
    "V": (
        {"mini_batch": 5, "state": "M = a M - 0.5 r grad(l2(k M - v))", "inputs": UNIT(4) | {"a": "exp(-exp(linear(x)))", "r": "sigmoid(linear(x))"}},
        {
            "mini_batch": 5,
            "state": "M = exp(a) M - r grad(l2(k M - v))",
            "inputs": UNIT(4) | {"a": "-exp(linear(x))", "r": "0.5 sigmoid(linear(x))"},
        },
    ),
    "W": (
        {
            "state": "M = exp(-softplus(s)) sigmoid(s) (M - silu(k)^T v w / 3)",
            "output": "o = (2 q) M exp(s) - v w sigmoid(s)",
            "inputs": LINEAR | {"s": "linear(x, per=head)", "w": "linear(x, per=head)"},
        },
        {
            "state": "M = exp(g) M + d k^T v",
            "output": "o = e q M + c v",
            "inputs": {"q": "2 linear(x)", "v": "linear(x)", "k": "silu(linear(x))", "s": "linear(x, per=head)", "w": "linear(x, per=head)"}
            | {"g": "log_sigmoid(s) + log_sigmoid(-s)", "a": "exp(g)", "d": "-a w / 3", "e": "exp(s)", "c": "-w sigmoid(s)"},
        },
    ),
    # Decays that are read elsewhere too: beside exp of them, and under other names.
    "X": (
        {"state": "M = (1 - b) M + exp(b) k^T v", "output": "o = q M + b v", "inputs": LINEAR | {"b": "sigmoid(linear(x, per=head))"}},
        {
            "state": "M = exp(g) M + e k^T v",
            "output": "o = q M + c v",
            "inputs": LINEAR | {"b": "linear(x, per=head)", "g": "log_sigmoid(-b)", "c": "sigmoid(b)", "e": "exp(c)"},
        },
    ),
    "Y": (
        {
            "mini_batch": 4,
            "state": "M = a M - a 0.5 grad(l2(k M - v))",
            "output": "o = q M + f v",
            "inputs": UNIT(4) | {"f": "sigmoid(linear(x, per=head))", "a": "0.9 f"},
        },
        {
            "mini_batch": 4,
            "state": "M = exp(g) M - r grad(l2(k M - v))",
            "output": "o = q M + c v",
            "inputs": UNIT(4) | {"f": "linear(x, per=head)", "g": "log_sigmoid(f) + n", "c": "sigmoid(f)", "r": "0.45 c"},
            "parameters": {"n": {"values": "log(0.9)", "per": "head"}},
        },
    ),
    # Calls where names belong, in columns; a decay that nothing trains, and one of each token which is the same.
    "Z": (
        {"state": "M = M 0.9 + v shift(k)^T", "output": "o = M l2_norm(q)", "inputs": LINEAR},
        {
            "state": "M = exp(g) M + h^T v",
            "output": "o = p M",
            "inputs": LINEAR | {"h": "shift(k)", "p": "l2_norm(q)", "g": "0 log_sigmoid(linear(x)) + n"},
            "parameters": {"n": {"values": "log(0.9)", "per": "head"}},
        },
    ),
}
# Several updates of a token: other notations of them, and what one update does too.
OF_TWO = LINEAR | {n: "l2_norm(linear(x))" for n in "kp"} | {"u": "linear(x)", "b": "sigmoid(linear(x, per=head))", "c": "2 sigmoid(linear(x, per=head))"}
FORGETS = {"g": "log_sigmoid(linear(x) + 2)"}
SEVERAL = {
    # Gated DeltaProduct.
    "a": (
        {"state": "M = exp(g) M; M = M + b k^T (v - k M); M = M + c p^T (u - p M)", "inputs": OF_TWO | FORGETS},
        {"state": "M = M (I - b k k^T) exp(g) + b v k^T; M = M (I - c p p^T) + c u p^T", "output": "o = M q", "inputs": OF_TWO | FORGETS},
    ),
    "b": (
        {"state": "M = exp(g) M + k^T v b; M = M + k^T u", "inputs": LINEAR | FORGETS | {n: OF_TWO[n] for n in "ub"}},
        {"state": "M = exp(g) M + k^T (b v + u)", "inputs": LINEAR | FORGETS | {n: OF_TWO[n] for n in "ub"}},
    ),
    # One erases, one does not; the same as diagonal plus low rank.
    "c": (
        {"state": "M = (I - b k^T k) diag(exp(g)) M + b k^T v; M = 0.9 M + c p^T u", "inputs": OF_TWO | FORGETS},
        {
            "state": "M = (diag(exp(g)) + r^T a) M + s^T v; M = exp(h) (M + (c p)^T u / 0.9)",
            "inputs": OF_TWO | FORGETS | {"a": "k exp(g)", "s": "b k", "r": "-s"},
            "parameters": {"h": {"values": "log(0.9)", "per": "head"}},
        },
    ),
    # One that only erases, one that only decays.
    "d": (
        {"state": "M = M + k^T v; M = (I - c p^T p) M; M = diag(f) M", "inputs": {n: t for n, t in OF_TWO.items() if n not in "ub"} | {"f": "sigmoid(linear(x) + 2)"}},
        {
            "state": "M = M + k^T v; M = diag(exp(f)) M + r^T p M + 0.5 r^T w",
            "inputs": {n: t for n, t in OF_TWO.items() if n not in "ub"} | {"f": "log_sigmoid(linear(x) + 2)", "r": "-exp(f) c p", "w": "0 linear(x)"},
        },
    ),
    # Three of class V.
    "e": (
        {"state": "M = diag(exp(g)) M + k^T v; M = M + p^T u; M = M + b q^T v", "inputs": FORGETS | {n: OF_TWO[n] for n in "qkvpub"}},
        {"state": "M = k v^T + diag(exp(g)) M; M = M + p u^T; M = b q v^T + M", "output": "o = M^T q", "inputs": FORGETS | {n: OF_TWO[n] for n in "qkvpub"}},
    ),
}
# What papers write in more ways than one.
TURNS = LINEAR | {"g": "log_sigmoid(linear(x))", "p": "linear(x)"}
PER_HEAD = LINEAR | {n: f"sigmoid(linear(x, per=head))" for n in "as"} | {"p": "linear(x, per=head)"}
SPREAD = {"one": "exp(0 linear(x, per=key))"}
NOTATIONS = {
    # Phases: a minus, factors, expressions; per head; without a decay.
    "a": (
        {"state": "M = diag(exp(-i p / 2 + g)) M + k^T v", "inputs": TURNS},
        {"state": "M = diag(exp(g + i r)) M + k^T v", "inputs": TURNS | {"r": "-0.5 p"}},
    ),
    "b": (
        {"state": "M = diag(exp(-exp(nu) + i theta)) M + k^T v", "inputs": LINEAR, "parameters": {"nu": {"initial": "-key / 2"}, "theta": {"initial": "key"}}},
        {
            "state": "M = diag(exp(g + i theta)) M + k^T v",
            "inputs": LINEAR | {"g": "-exp(nu)"},
            "parameters": {"nu": {"initial": "-key / 2"}, "theta": {"initial": "key"}},
        },
    ),
    "c": (
        {"state": "M = a exp(i p) M + k^T v", "inputs": {n: PER_HEAD[n] for n in "qkvap"}},
        {
            "state": "M = diag(exp(g + i r)) M + k^T v",
            "inputs": {n: PER_HEAD[n] for n in "qkvp"} | {"a": "linear(x, per=head)", "l": "log_sigmoid(a)"} | SPREAD | {"g": "one l", "r": "one p"},
        },
    ),
    "d": (
        {"state": "M = exp(i p) M + k^T v", "inputs": LINEAR, "parameters": {"p": {"initial": "head + 1"}}},
        {
            "state": "M = diag(exp(g + i r)) M + k^T v",
            "inputs": LINEAR | SPREAD | {"r": "one p", "g": "0 log_sigmoid(linear(x))"},
            "parameters": {"p": {"initial": "head + 1", "per": "head"}},
        },
    ),
    "e": (
        {"state": "M = s diag(exp(2 i)) M + k^T v", "inputs": {n: PER_HEAD[n] for n in "qkvs"}},
        {
            "state": "M = diag(exp(g + i two)) M + k^T v",
            "inputs": LINEAR | {"s": "linear(x, per=head)", "l": "log_sigmoid(s)"} | SPREAD | {"g": "one l"},
            "parameters": {"two": {"initial": "2"}},
        },
    ),
    # Multiples of M.
    "f": (
        {"state": "M = M + a (k^T v - M)", "inputs": {n: PER_HEAD[n] for n in "qkva"}},
        {"state": "M = exp(g) M + b k^T v", "inputs": LINEAR | {"a": "linear(x, per=head)", "g": "log_sigmoid(-a)", "b": "sigmoid(a)"}},
    ),
    "g": (
        {"state": "M = M / 4 - s M + 0.75 M + s k^T v; z = z / 4 - s z + 0.75 z + s k^T", "output": "o = (q M) / (q z)", "inputs": POSITIVE | {"s": PER_HEAD["s"]}},
        {"state": "M = (1 - s) M + s k^T v; z = (1 - s) z + s k^T", "output": "o = (q M) / (q z)", "inputs": POSITIVE | {"s": PER_HEAD["s"]}},
    ),
    "h": (
        {"state": "M = M - diag(f) M + f^T v", "inputs": {n: LINEAR[n] for n in "qv"} | {"f": "sigmoid(linear(x))"}},
        {"state": "M = diag(exp(g)) M + k^T v", "inputs": {n: LINEAR[n] for n in "qv"} | {"f": "linear(x)", "g": "log_sigmoid(-f)", "k": "sigmoid(f)"}},
    ),
    # A target first; products of transitions; inner products as products.
    "i": (
        {"mini_batch": 5, "state": "M = M - r grad(l2(v - k M))", "inputs": UNIT(4) | {"r": "sigmoid(linear(x))"}},
        {"mini_batch": 5, "state": "M = M - r grad(l2(k M - v))", "inputs": UNIT(4) | {"r": "sigmoid(linear(x))"}},
    ),
    "j": (
        {"state": "M = exp(g) (I - b k^T k) (I - c p^T p) M + b k^T v", "inputs": {n: t for n, t in OF_TWO.items() if n != "u"} | FORGETS},
        {"state": "M = (I - c p^T p) M; M = exp(g) (I - b k^T k) M + b k^T v", "inputs": {n: t for n, t in OF_TWO.items() if n != "u"} | FORGETS},
    ),
    "k": (
        {"state": "M = diag(exp(g)) M + k^T v", "output": "o = q M_prev + q diag(u) k^T v", "inputs": LINEAR | FORGETS, "parameters": {"u": {"uniform": [0, 1]}}},
        {"state": "M = diag(exp(g)) M + k^T v", "output": "o = q M_prev + own v", "inputs": LINEAR | FORGETS | {"own": "inner(q u, k)"}, "parameters": {"u": {"uniform": [0, 1]}}},
    ),
    # Instances that have ops of their own for what a text says with several.
    "m": (
        {"kind": "mlstm", "gate_softcap": 5, "output_norm": False},
        {
            "state": "M = exp(g) M + w k^T v; z = exp(g) z + w k^T",
            "output": "o = (q M) / max(abs(q z), 1)",
            "output_norm": False,
            "output_gate": "sigmoid",
            "inputs": LINEAR | {n: "linear(x, per=head)" for n in "if"} | {"g": "log_sigmoid(5 tanh((f + bf) / 5))", "w": "exp(5 tanh((i + bi) / 5))"},
            "parameters": {"bi": -10, "bf": {"initial": "3 + 3 head / (heads - 1)"}},
        },
    ),
    # |y| sqrt(n) and |y| are norms of one kind.
    "l": (
        {"state": "M = M + k^T v", "inputs": {"q": "rms_norm(linear(x))", "k": "rms_norm(linear(x), w, 1e-3)", "v": "linear(x)"}, "parameters": {"w": {"initial": "key + 1"}}},
        {
            "state": "M = M + k^T v",
            "inputs": {"q": "2.8284271247461903 l2_norm(linear(x), 8e-5)", "k": "2.8284271247461903 w l2_norm(linear(x), 8e-3)", "v": "linear(x)"},
            "parameters": {"w": {"initial": "key + 1"}},
        },
    ),
}
TWICE["A"][1]["output"] = TWICE["A"][1]["output"].replace("scale", repr(SIZES["head_dim"] ** -0.5))
