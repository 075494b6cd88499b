"""Whole models in bf16 against the float64 reference on the same rounded weights: python3 check_bf16.py

Every mixer, dense and expert feed-forward (all experts are chosen, so that no rounding can change a route). How much rounding
a model's gradients bear depends on the model, so the limit is made from a second reference, in float64 too, that rounds every
intermediate value and cotangent to bf16: all gradients together are at most twice as far from the exact ones as that one's (they
are as far), a single tensor or the logits at most four times. Also: what is bf16 and what is f32, masters, gradients in bf16, and decoding.
"""

import sys
from functools import partial

import numpy as np

from harness import Report, join_master, rounded
from check_program import check_commands
from compiled_model import CompiledModel, perturbed
from common import one_document
from tape import Tape
import model as reference_model

MIXERS = {
    "B": {"kind": "bla", "heads": 2, "head_dim": 16},
    "R": {"kind": "retnet", "heads": 2, "kv_heads": 1, "head_dim": 8},
    "M": {"kind": "mamba2", "heads": 2, "head_dim": 16},
    "L": {"kind": "gla", "heads": 2, "head_dim": 16, "gate_rank": 8},
    "D": {"kind": "deltanet", "heads": 2, "head_dim": 16},
    "G": {"kind": "gated_deltanet", "heads": 2, "key_heads": 1, "head_dim": 16},
    "N": {"kind": "attention", "heads": 4, "kv_heads": 2, "head_dim": 8},
    "A": {"kind": "based", "heads": 2, "head_dim": 8, "value_dim": 16},
    "E": {"kind": "rebased", "heads": 2, "head_dim": 8, "value_dim": 16},
    "I": {"kind": "lightning", "heads": 2, "head_dim": 16},
    "H": {"kind": "hgrn2", "heads": 2, "head_dim": 16},
    "W": {"kind": "rwkv6", "heads": 2, "head_dim": 16, "mix_rank": 6, "gate_rank": 8},
    "O": {"kind": "gateloop", "heads": 2, "head_dim": 16},
    "F": {"kind": "dfw", "heads": 2, "head_dim": 16},
    "X": {"kind": "gfw", "heads": 2, "head_dim": 8},
    "S": {"kind": "mamba", "heads": 1, "head_dim": 8, "value_dim": 32, "gate_rank": 4},
    "K": {"kind": "kda", "heads": 2, "head_dim": 16},
    "Y": {"kind": "rwkv7", "heads": 2, "head_dim": 16, "gate_rank": 8},
    "J": {"kind": "mlstm", "heads": 2, "head_dim": 16},
    "Q": {"kind": "rglru", "heads": 2, "value_dim": 16},
    "C": {"kind": "s4d", "heads": 1, "head_dim": 8, "value_dim": 32},
    "T": {"kind": "ttt", "heads": 2, "head_dim": 16},
    "U": {"kind": "titans", "heads": 2, "head_dim": 16},
    "Z": {"kind": "titans_ln", "heads": 2, "head_dim": 16},
    "P": {"kind": "mla", "heads": 2, "q_rank": 24, "kv_rank": 20, "head_dim": 16, "rope_dim": 8, "value_dim": 12},
}
# Layers of a model, type of its gradients, CPU.
MODELS = [
    ("BRMN", "f32", "native"),
    ("LDGN", "bf16", "x86-64-v3"),
    ("AEIHW", "bf16", "native"),
    ("OFXS", "f32", "native"),
    ("KYCJ", "bf16", "native"),
    ("QQ", "f32", "native"),
    ("TUZ", "f32", "native"),
    ("PP", "bf16", "native"),
]


def describe(pattern):
    return {
        "name": f"bf16-{pattern}",
        "vocab_size": 48,
        "d_model": 32,
        "num_layers": len(pattern),
        "layer_pattern": pattern,
        "ffn_pattern": "ED",
        "dtype": "bf16",
        "context_len": 64,
        "max_documents": 2,
        "mixers": {letter: MIXERS[letter] for letter in sorted(set(pattern))},
        "ffns": {
            "E": {"kind": "moe", "num_experts": 2, "top_k": 2, "expert_hidden": 16, "shared_hidden": 16, "shared_gate": "N" in pattern},
            "D": {"kind": "dense", "hidden": 48, "bias": True},
        },
        "train": {"batch": 2, "seq_len": 40, "clip_norm": 0.5},
    }


def halved(array):
    """Rounded to bf16; numbers and integers as they are."""
    return rounded([array], "bf16")[0] if isinstance(array, np.ndarray) and array.ndim else array


class RoundingTape(Tape):
    """Every value and every cotangent of a value (not of a weight) is rounded."""

    def __init__(self):
        super().__init__()
        self.made = set()

    def call(self, function, *arguments, **attributes):
        activations = [id(a) in self.made for a in arguments]

        def run(*arrays, **attributes):
            value, pull = function(*arrays, **attributes)

            def rounding(*cotangents):
                parts = pull(*cotangents)
                parts = parts if isinstance(parts, tuple) else (parts,)
                return tuple(halved(p) if made else p for p, made in zip(parts, activations))

            return tuple(map(halved, value)) if isinstance(value, tuple) else halved(value), rounding

        results = super().call(run, *arguments, **attributes)
        self.made.update(id(r) for r in (results if isinstance(results, tuple) else (results,)))
        return results


def rounding_reference(model, weights, *batch):
    exact, reference_model.Tape = reference_model.Tape, RoundingTape
    try:
        return model.reference(weights).loss(*batch)
    finally:
        reference_model.Tape = exact


# States, and what the decays are made of: the token before (rwkv6), the sum of angles (gateloop).
WIDE_CACHES = ("lsm.state", "lsm.state_sin", "lsm.state_im", "lsm.shift_decay", "lsm.phase", "lsm.phase_rest", "lsm.begin")


def is_wide(name):
    """Vectors, convolutions, the router, small matrices per head: kept in f32."""
    last = name.split(".")[-1]
    return "norm" in name or "conv" in name or name.endswith(("moe.router", "shared.gate")) or last in (
        *("a_log", "dt_bias", "d", "bf", "b1", "b2", "b3", "log_decay", "lower_bound", "taps", "w0", "u", "be", "bi", "bv", "a"),
        *("v0", "a0", "k_k", "k_a", "r_k", "is_first", "log_dt", "log_a", "a_im", "c_re", "c_im", "token_rate", "start", "br", "ba"),
    ) or last.startswith("mu_")


def check_types(report, model, gradients):
    wrong = [n for n, t in model.parameters.items() if t["dtype"] != ("f32" if is_wide(n) else "bf16")]
    wrong += [n for n, t in model.tensors.items() if t["role"] == "moment" and t["dtype"] != ("i16" if t["slot"] == "low" else "f32")]
    wrong += [
        n
        for p, n in model.gradients.items()
        if model.tensors[n]["dtype"] != (gradients if model.parameters[p]["dtype"] == "bf16" else "f32")
    ]
    wrong += [n for n in model.caches if model.tensors[n]["dtype"] != ("f32" if n.endswith(WIDE_CACHES) else "bf16")]
    masters = {t["of"] for t in model.tensors.values() if t.get("slot") == "low"}
    wrong += [n for n, t in model.parameters.items() if (t["dtype"] == "bf16") != (n in masters)]
    report.line(not wrong, "types", f"{len(model.tensors)} tensors{'; wrong: ' + ', '.join(wrong) if wrong else ''}")


def masters_of(model):
    """{parameter: the moments that are the other parts of its master}"""
    slots = {(t["of"], t["slot"]): n for n, t in model.tensors.items() if t["role"] == "moment"}
    return {of: (name, slots[of, "second"]) for (of, slot), name in slots.items() if slot == "low"}


def check_init(report, model):
    """Masters are between bf16 numbers, and parameters are their masters, rounded."""
    masters = masters_of(model)
    out = model.call("init", {"seed": np.array([5], np.int64)}, [*model.parameters, *(n for names in masters.values() for n in names)])
    whole = {p: join_master(out[p], *(out[n] for n in names)) for p, names in masters.items()}
    wrong = [p for p, m in whole.items() if not np.array_equal(out[p], rounded([m], "bf16")[0])]
    exact = [p for p, m in whole.items() if m.size > 100 and np.array_equal(out[p], m)]
    report.line(not wrong and not exact, "init", f"{len(masters)} parameters are their masters, rounded")


def check_gradients(report, model, weights, batch, documents):
    values = model.step(weights, batch, ["loss", "aux_loss", "grad_norm", *model.gradients.values()])
    result = model.reference(weights).loss(batch["tokens"], batch["labels"], documents)
    report.compare("loss", values, {"loss": np.array([result.loss])}, 2e-3)
    report.compare("router loss", values, {"aux_loss": np.atleast_1d(result.aux)}, 1e-2)
    rounding = rounding_reference(model, weights, batch["tokens"], batch["labels"], documents)
    exact, emulated = result.gradients(), rounding.gradients()
    distance, allowed, far, worst = 0.0, 0.0, [], (0.0, "")
    for parameter, name in model.gradients.items():
        for logical, array in model.logical({parameter: values[name]}).items():
            own = np.linalg.norm(array - exact[logical])
            limit = np.linalg.norm(emulated[logical] - exact[logical])
            distance, allowed = distance + own**2, allowed + limit**2
            # Small tensors are a few random numbers: what all elements bear counts, too.
            limit = 4 * limit + 2e-2 * np.linalg.norm(exact[logical])
            worst = max(worst, (own / limit if limit else 0.0, logical))
            if not own <= limit:
                far.append(f"{logical} {own / limit:.2g}")
    size = np.sqrt(sum(np.sum(g**2) for g in exact.values()))
    distance, allowed = np.sqrt(distance) / size, np.sqrt(allowed) / size
    # The reference is one draw of roundings, too: over seven seeds the two were 0.5 to 2.4 times each other.
    good = distance <= 3 * allowed and not far
    report.line(
        good,
        "gradients",
        f"{len(exact)} tensors, together off by {distance:.2g} (rounding reference {allowed:.2g}), worst {worst[1]} at "
        f"{worst[0]:.2g} of its limit{'; too far: ' + ', '.join(far) if far else ''}",
    )


def check_update(report, model, weights, batch):
    """Three steps: every parameter stays its master, rounded."""
    moments = {n: t for n, t in model.tensors.items() if t["role"] == "moment"}
    masters = masters_of(model)
    state = dict(weights)  # others are 0: masters begin as the parameters
    for step in (1, 2, 3):
        state = model.step(state, batch, [*model.parameters, *moments], learning_rate=1e-3, number=step)
    whole = {p: join_master(state[p], *(state[n] for n in names)) for p, names in masters.items()}
    wrong = [p for p, m in whole.items() if not np.array_equal(state[p], rounded([m], "bf16")[0])]
    still = [p for p, m in whole.items() if np.array_equal(m, weights[p])]
    report.line(not wrong and not still, "update", f"{len(masters)} masters; wrong: {wrong}, not moved: {still}")


def check_decoding(report, model, weights, rng):
    length = 40
    tokens = rng.integers(0, 48, length)
    row = tokens[None], np.full((1, length), -1), one_document(1, length)
    logits, emulated = (f(*row).logits[0] for f in (model.reference(weights).loss, partial(rounding_reference, model, weights)))
    limit = 4 * np.linalg.norm(emulated - logits) / np.linalg.norm(logits)
    for first in (7, 30):
        got, want = model.decoded(weights, tokens, (first,), first + 6)
        report.compare(f"decode after prefill {first}", {"logits": got}, {"logits": want}, limit)


def main():
    report = Report("bf16")
    with report:
        for pattern, gradients, cpu in MODELS:
            report.name, rng = f"bf16 {pattern}", np.random.default_rng(29)
            options = [f"--cpu={cpu}", f"--gradient-dtype={gradients}"]
            model = CompiledModel(describe(pattern), report.folder, pattern, options)
            weights = model.rounded(perturbed(model.initial(5), rng))
            batch, documents = model.batch(rng, [[0, 13, 40], [0, 36, 36]])
            check_commands(report, model.info)
            check_types(report, model, gradients)
            check_init(report, model)
            check_gradients(report, model, weights, batch, documents)
            check_update(report, model, weights, batch)
            check_decoding(report, model, weights, rng)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
