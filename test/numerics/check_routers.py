"""Routers in whole models: scores by sigmoid, scaled weights, choices that are corrected and limited to groups, experts of a latent width.

Loss, statistics, every gradient, the optimizer's step and decoding against the reference model with documents packed into rows, in f64 (1e-9,
gradients 1e-8) and f32; what a step makes of the corrections exactly, also where several batches make one step; and that corrections even out the
loads of a router that prefers few experts.
"""

import sys

import numpy as np

from check_mixer import check_update
from compiled_model import CompiledModel, check_decoding, check_reference, perturbed
from harness import Report

BASE = {
    "vocab_size": 29,
    "d_model": 24,
    "context_len": 63,
    "max_documents": 3,
    "num_layers": 3,
    "layer_pattern": "N",
    "mixers": {"N": {"kind": "attention", "heads": 4, "kv_heads": 2, "head_dim": 8}},
    "init": {"std": 0.5, "scale_output": False},
    "train": {"batch": 2, "seq_len": 37, "weight_decay": 0.1, "clip_norm": 0.5},
}
EXPERTS = {"kind": "moe", "num_experts": 12, "top_k": 3, "expert_hidden": 16}
CORRECTED = {"score": "sigmoid", "correction": True, "correction_rate": 0.0625}

MODELS = {
    "deepseek_v3": {
        "E": EXPERTS | {"shared_hidden": 8, "router": CORRECTED | {"groups": 4, "kept_groups": 2, "group_score": "top2", "scale": 2.5, "z_loss": 0}},
    },
    "deepseek_v2": {"E": EXPERTS | {"router": {"normalize": False, "groups": 3, "kept_groups": 2, "group_score": "max", "scale": 4.0}}},
    "nemotron": {"E": EXPERTS | {"activation": "relu2", "latent_dim": 10, "shared_hidden": 8, "router": CORRECTED | {"balance_loss": 0, "z_loss": 0}}},
    "softmax, corrected": {"E": EXPERTS | {"router": {"correction": True, "correction_rate": 0.0625, "normalize": False}}},
    # In rounds, of which every one has two kinds of layers with experts: names that only layers tell apart.
    "rounds": {
        "E": EXPERTS | {"router": CORRECTED},
        "F": EXPERTS | {"expert_hidden": 8, "router": CORRECTED | {"correction_rate": 0.125}},
    },
    # Layers with experts in two runs, of which one corrects; capacity counts what corrections chose.
    "two kinds": {
        "E": EXPERTS | {"router": CORRECTED, "capacity_factor": 1.0, "drop_policy": "score"},
        "F": EXPERTS | {"router": {"score": "sigmoid", "normalize": False}},
    },
}


def described(name, dtype):
    pattern = {"rounds": "EF", "two kinds": "EFE"}.get(name, "E")
    layers = {"num_layers": 4} if name == "rounds" else {}
    return BASE | layers | {"name": name, "dtype": dtype, "ffns": dict(MODELS[name]), "ffn_pattern": pattern}


def check_step(report, model, weights, batch):
    """A step corrects by its loads, before anything is dropped; nothing decays or clips a correction."""
    parameters = [n for n in model.parameters if n.endswith("moe.correction")]
    values = model.step(weights, batch, ["expert_counts", *parameters], learning_rate=0.01)
    report.compare("corrections", {n: values[n] for n in parameters}, model.corrected(weights, values["expert_counts"]), 1e-7 if model.dtype == "f32" else 0)
    moved = sum(np.count_nonzero(values[n] - weights[n]) for n in parameters)
    report.line(moved > 10, "corrections move", f"{moved} of {sum(weights[n].size for n in parameters)}")


def check_accumulated(report, name, rng):
    """Two batches, one update: corrections follow the loads of both together."""
    model = CompiledModel(described(name, "f64"), report.folder, "accumulated", ["--accumulation-steps=2"])
    weights = perturbed(model.initial(5), rng)
    sums, loads = {gradient: np.zeros_like(weights[n]) for n, gradient in model.gradients.items()}, 0
    for _ in range(2):
        batch, _ = model.batch(rng, [[0, 11, 12, 37], [0, 20, 33, 33]])
        scales = {"loss_scale": np.array([0.01]), "aux_scale": np.array([0.5])}
        values = model.call("accumulate_step", dict(weights) | batch | scales | sums, ["expert_counts", *sums])
        loads, sums = loads + values["expert_counts"], {n: values[n] for n in sums}
    parameters = [n for n in model.gradients if n.endswith("moe.correction")]
    moments = {n: np.zeros_like(weights[t["of"]]) for n, t in model.tensors.items() if t["role"] == "moment"}
    rate = {"learning_rate": np.array([0.01]), "step": np.array([1], np.int32)}
    values = model.call("update_step", dict(weights) | sums | moments | rate, parameters)
    layers = sum(len(model.parameters[n]["layers"]) or 1 for n in parameters)
    report.line(layers == (4 if name == "rounds" else 2), f"{name}: corrections of {layers} layers", str(parameters))
    report.compare(f"{name}: corrections of two batches", values, model.corrected(weights, loads), 0)


def check_balance(report, rng):
    """A router that prefers few experts: with corrections alone, nothing learned, the largest load comes near the mean."""
    description = described("deepseek_v3", "f32") | {"num_layers": 1}
    description["ffns"]["E"] = EXPERTS | {"router": CORRECTED | {"correction_rate": 0.01}}
    model = CompiledModel(description, report.folder, "balance")
    weights = model.initial(5)
    batch, documents = model.batch(rng)
    weights["layers.0.moe.correction"] = 0.3 * rng.standard_normal(12).astype(np.float32)
    largest = []
    for _ in range(80):
        values = model.step(weights, batch, ["expert_counts", "layers.0.moe.correction"])
        weights["layers.0.moe.correction"] = values["layers.0.moe.correction"]
        largest.append(values["expert_counts"].max() / values["expert_counts"].mean())
    report.line(largest[0] > 2 and max(largest[-5:]) < 1.3, "loads even out", f"{largest[0]:.2f} -> {max(largest[-5:]):.2f} times the mean")


def main():
    report = Report("routers")
    rng = np.random.default_rng(41)
    with report:
        for dtype, name in [("f64", name) for name in MODELS] + [("f32", "deepseek_v3"), ("f32", "nemotron")]:
            exact = dtype == "f64"
            report.name = f"routers {name} {dtype}"
            model = CompiledModel(described(name, dtype), report.folder, f"{name.replace(' ', '-')}-{dtype}")
            weights = perturbed(model.initial(5), rng)
            batch, documents = model.batch(rng, [[0, 11, 12, 37], [0, 20, 33, 33]])
            check_reference(report, model, weights, batch, documents, None if exact else 3e-5)
            check_update(report, model, weights, batch, documents, dtype)
            if not any("capacity_factor" in ffn for ffn in MODELS[name].values()):  # generation drops nothing
                check_decoding(report, model, weights, rng, ((1,), (30,), (7, 32)), limit=None if exact else 1e-5)
            if any(n.endswith("moe.correction") for n in model.parameters):
                check_step(report, model, weights, batch)
        report.name = "routers"
        for name in ("two kinds", "rounds"):
            check_accumulated(report, name, rng)
        check_balance(report, rng)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
