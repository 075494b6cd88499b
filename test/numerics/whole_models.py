"""Whole small models against the reference model, with documents packed into rows: loss, every gradient, the optimizer's step and decoding after
prefills of several lengths, in f64 (1e-9, gradients 1e-8) and f32 (loss 2e-6, gradients 3e-5, logits 1e-5); central differences of one of them.
"""

import numpy as np

from check_gradients import check_differences
from check_mixer import check_update
from compiled_model import CompiledModel, check_decoding, check_reference, perturbed
from harness import Report

BASE = {
    "vocab_size": 29,
    "d_model": 24,
    "context_len": 63,
    "max_documents": 3,
    "init": {"std": 0.5, "scale_output": False},
    "train": {"batch": 2, "seq_len": 37, "weight_decay": 0.1, "clip_norm": 0.5},
}
ATTENTION = {"kind": "attention", "heads": 4, "kv_heads": 2, "head_dim": 8}
MAMBA2 = {"kind": "mamba2", "heads": 4, "key_heads": 2, "head_dim": 16, "value_dim": 8}
RWKV7 = {"kind": "rwkv7", "heads": 2, "head_dim": 8, "gate_rank": 8}
MOE = {"kind": "moe", "num_experts": 6, "top_k": 2, "expert_hidden": 16, "shared_hidden": 8}


def check_models(title, models, in_f32, seed, differences, look=lambda report, name, model: None):
    """`models`: name -> what BASE does not say; `in_f32`: names; `differences`: that of which central differences are taken, in f64."""
    report = Report(title)
    rng = np.random.default_rng(seed)
    with report:
        for dtype, name in [("f64", name) for name in models] + [("f32", name) for name in in_f32]:
            exact = dtype == "f64"
            report.name = f"{title} {name} {dtype}"
            model = CompiledModel(BASE | models[name] | {"name": name, "dtype": dtype}, report.folder, f"{name}-{dtype}")
            look(report, name, model)
            weights = perturbed(model.initial(5), rng)
            batch, documents = model.batch(rng, [[0, 11, 12, 37], [0, 20, 33, 33]])
            values = check_reference(report, model, weights, batch, documents, None if exact else 3e-5)
            check_update(report, model, weights, batch, documents, dtype)
            check_decoding(report, model, weights, rng, ((1,), (30,), (7, 32)), limit=None if exact else 1e-5)
            if name == differences and exact:
                check_differences(report, model, weights, batch, values)
    return report.finish()
