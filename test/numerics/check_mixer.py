"""One mixer in whole models, against the float64 reference model: python3 check_mixer.py KIND

Two layers of the mixer with different settings, one followed by experts, one by a dense feed-forward. Loss, every
gradient, the optimizer's step, decoding after prefills of several lengths, in f64 (1e-9) and in f32: loss 2e-6, gradients
3e-5 (two layers, scan 1e-5 each), logits 1e-5.
"""

import sys

import numpy as np

from harness import Report
from common import PADDING, one_document
from compiled_model import CompiledModel
from train import adamw

# kind: two variants
VARIANTS = {
    "bla": [
        {"heads": 2, "head_dim": 16},
        {"heads": 4, "kv_heads": 2, "head_dim": 16, "value_dim": 8, "feature_map": "softmax", "output_gate": "sigmoid"},
    ],
    "retnet": [
        {"heads": 2, "head_dim": 16},
        {"heads": 4, "kv_heads": 1, "head_dim": 8, "value_dim": 24, "rope": {"fraction": 0.5, "layout": "interleaved"}},
    ],
    "mamba2": [
        {"heads": 2, "head_dim": 16},
        {"heads": 4, "key_heads": 2, "head_dim": 16, "value_dim": 8, "conv": {"kernel": 3}},
    ],
    "gla": [
        {"heads": 2, "head_dim": 16},
        {
            "heads": 4,
            "kv_heads": 2,
            "head_dim": 8,
            "value_dim": 16,
            "gate_rank": 5,
            "gate_divisor": 2.0,
            "conv": {"kernel": 4},
        },
    ],
    "deltanet": [
        {"heads": 2, "head_dim": 16},
        {"heads": 2, "head_dim": 8, "value_dim": 16, "conv": None, "allow_neg_eigval": True, "output_gate": "silu"},
    ],
    "gated_deltanet": [
        {"heads": 2, "head_dim": 16},
        {
            "heads": 4,
            "key_heads": 2,
            "head_dim": 16,
            "value_dim": 8,
            "conv": {"kernel": 2, "bias": True},
            "output_norm": False,
        },
    ],
    "attention": [
        {"heads": 2, "head_dim": 16},
        {
            "heads": 4,
            "kv_heads": 2,
            "head_dim": 8,
            "window": 6,
            "qk_norm": True,
            "rope": {"fraction": 0.5, "layout": "interleaved"},
        },
    ],
}


def describe(kind, dtype):
    first, second = ({"kind": kind} | v for v in VARIANTS[kind])
    return {
        "name": f"one-{kind}",
        "vocab_size": 29,
        "d_model": 24,
        "num_layers": 2,
        "layer_pattern": "XY",
        "ffn_pattern": "MD",
        "dtype": dtype,
        "context_len": 63,
        "max_documents": 3,
        "mixers": {"X": first, "Y": second},
        "init": {"std": 0.5, "scale_output": False},
        "ffns": {
            "M": {"kind": "moe", "num_experts": 6, "top_k": 2, "expert_hidden": 16, "shared_hidden": 8},
            "D": {"kind": "dense", "hidden": 24, "activation": "geglu", "bias": True},
        },
        "train": {"batch": 2, "seq_len": 37, "weight_decay": 0.1, "clip_norm": 0.5},
    }


def perturbed(weights, rng):
    """Initial values, but nothing that hides a mistake: no weight is exactly 0 or 1."""
    out = {}
    for name, array in weights.items():
        constant = array.size > 1 and np.all(array == array.flat[0])
        out[name] = (array + 0.3 * rng.standard_normal(array.shape) if constant else array).astype(array.dtype)
    return out


def check_step(report, model, weights, batch, documents, dtype):
    outputs = ["loss", "aux_loss", "grad_norm", "expert_counts", *model.gradients.values()]
    values = model.step(weights, batch, outputs)
    result = model.reference(weights).loss(batch["tokens"], batch["labels"], documents)
    routed = documents != PADDING
    counts = np.array([np.bincount(ids[routed].ravel(), minlength=6) for ids in result.ids.values()], np.int32)
    report.compare("expert counts", values, {"expert_counts": counts}, 0)
    loss_limit, limit = (1e-9, 1e-9) if dtype == "f64" else (2e-6, 3e-5)
    report.compare("loss", values, {"loss": np.array([result.loss]), "aux_loss": np.atleast_1d(result.aux)}, loss_limit)
    gradients = result.gradients()
    got, expected = {}, {}
    for parameter, name in model.gradients.items():
        for logical, array in model.logical({parameter: values[name]}).items():
            got[logical], expected[logical] = array, gradients[logical]
    report.compare("gradients", got, expected, limit)
    norm = np.sqrt(sum((g**2).sum() for g in expected.values()))
    report.compare("grad_norm", values, {"grad_norm": np.array([norm])}, limit)


def decays(name):
    """Weight decay applies to matrices, embeddings and convolutions."""
    return "norm" not in name and name.split(".")[-1] not in ("bias", "a_log", "dt_bias", "d", "bf", "b1", "b2", "b3")


def check_update(report, model, weights, batch, documents, dtype):
    """Three steps of clipping and AdamW equal the reference's; in f32 each step follows the gradients that the program reports."""
    moments = {n: t for n, t in model.tensors.items() if t["role"] == "moment"}
    outputs = [*model.parameters, *moments, *model.gradients.values()]
    state = dict(weights)
    expected = {n: a.astype(np.float64) for n, a in weights.items()}
    first, second = ({t["of"]: 0.0 for t in moments.values()} for _ in range(2))
    for step in (1, 2, 3):
        if dtype == "f64":
            result = model.reference(expected).loss(batch["tokens"], batch["labels"], documents).gradients()
            gradients = {n: stack(model, n, result) for n in model.gradients}
        values = model.step(state, batch, outputs, learning_rate=1e-2, number=step)
        if dtype == "f32":
            gradients = {n: values[g].astype(np.float64) for n, g in model.gradients.items()}
        scale = min(1.0, 0.5 / (np.sqrt(sum((g**2).sum() for g in gradients.values())) + 1e-6))
        for n, g in gradients.items():
            expected[n], first[n], second[n] = adamw(
                expected[n], g, first[n], second[n], 1e-2, step, scale, 0.9, 0.95, 1e-8, 0.1 if decays(n) else 0.0
            )
        state = {n: values[n] for n in (*model.parameters, *moments)}
    report.compare("parameters after 3 steps", state, expected, 1e-8 if dtype == "f64" else 3e-6)


def stack(model, parameter, gradients):
    """The logical gradients of a stacked parameter, one after the other."""
    tensor = model.parameters[parameter]
    if not tensor["layers"]:
        return gradients[parameter]
    return np.stack([gradients[parameter.replace("{}", str(i))] for i in tensor["layers"]])


def check_decoding(report, model, weights, rng, dtype):
    """After a prefill of any length, with or without a second bucket, every step gives the logits of the full forward."""
    tokens = rng.integers(0, 29, 44)
    logits = model.reference(weights).loss(tokens[None], np.full((1, 44), -1), one_document(1, 44)).logits[0]
    limit = 1e-9 if dtype == "f64" else 1e-5
    for lengths in ((1,), (19,), (32, 5)):
        caches, position, got, want = {}, 0, [], []
        for n in lengths:
            padded = np.zeros(32, np.int32)
            padded[:n] = tokens[position : position + n]
            out, caches = model.cached("prefill_32", weights, caches, padded, [-position, n])
            position += n
            got.append(out)
            want.append(logits[position - 1])
        for _ in range(6):
            out, caches = model.cached("decode_1", weights, caches, tokens[position : position + 1], [-position, 1])
            position += 1
            got.append(out)
            want.append(logits[position - 1])
        report.compare(
            f"decode after prefill {' + '.join(map(str, lengths))}",
            {"logits": np.array(got)},
            {"logits": np.array(want)},
            limit,
        )


def main(kind):
    report = Report(f"mixer-{kind}")
    rng = np.random.default_rng(17)
    try:
        for dtype in ("f64", "f32"):
            report.name = f"mixer-{kind} {dtype}"
            model = CompiledModel(describe(kind, dtype), report.folder, dtype)
            weights = perturbed(model.initial(3), rng)
            batch, documents = model.batch(rng, [[0, 11, 12, 37], [0, 20, 31, 31]])
            check_step(report, model, weights, batch, documents, dtype)
            check_update(report, model, weights, batch, documents, dtype)
            check_decoding(report, model, weights, rng, dtype)
    except RuntimeError as error:
        report.line(False, "stopped", str(error))
    report.name = f"mixer-{kind}"
    return report.finish()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
