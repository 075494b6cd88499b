"""Activations computed again: loss, routes and every gradient equal those of the program that keeps them; memory falls as predicted.

    python3 check_recompute.py [wide]

One model whose layers are stacked twice (repeats in a repeat), compiled with nothing, all layers, some layers and half the bytes.
Every bit is the same: row-wise kernels round each operation for itself, however they are fused, and chunk kernels are run again as they
are. What is said to be kept is what is planned. `wide`: more mixers, no two layers alike, f32 and bf16; the bits alone. A checkpoint goes on in a program that recomputes other layers.
"""

import json
import os
import subprocess
import sys

import numpy as np

from compiled_model import CompiledModel, perturbed
from harness import Report, run, tool

MODEL = {
    "name": "recompute",
    "vocab_size": 256,
    "d_model": 32,
    "num_layers": 6,
    "layer_pattern": "GGN",
    "ffn_pattern": "MMD",
    "context_len": 16,
    "max_documents": 2,
    "mixers": {
        "G": {"kind": "gated_deltanet", "heads": 2, "head_dim": 16, "value_dim": 16},
        "N": {"kind": "attention", "heads": 2, "head_dim": 16},
    },
    "ffns": {
        "M": {"kind": "moe", "num_experts": 4, "top_k": 2, "expert_hidden": 32, "shared_hidden": 16},
        "D": {"kind": "dense", "hidden": 64},
    },
    "train": {"batch": 2, "seq_len": 64, "steps": 100, "warmup_steps": 1},
}


def activations(model):
    return {key: int(value) for key, value in model.info["metadata"].items() if key.startswith("activations.")}


def arena(model, name):
    return sum(a["bytes"] for a in model.info["memory"]["arenas"] if a["name"] == name)


def check_step(report, name, model, base, weights, batch):
    """Stacks differ where other layers are equal, so logical tensors are compared."""
    own = {}
    for parameter, info in model.parameters.items():
        layers = info["layers"]
        parts = [weights[parameter.replace("{}", str(l))] for l in layers] if layers else [weights[parameter]]
        own[parameter] = (np.stack(parts) if layers else parts[0]).astype(np.float32)
    outputs = ["loss", "aux_loss", "grad_norm", "expert_counts", *model.gradients.values()]
    got = model.step(own, batch, outputs)
    logical = model.logical({p: got[g] for p, g in model.gradients.items()})
    if base is not None:
        report.compare(f"{name}: routes", got, {"expert_counts": base["expert_counts"]}, 0)
        report.compare(f"{name}: loss", got, {n: base[n] for n in ("loss", "aux_loss", "grad_norm")}, 0)
        report.compare(f"{name}: gradients", logical, base["gradients"], 0)
    return got | {"gradients": logical}


def check_resume(report, folder, programs):
    """Two steps with all activations kept, a third in every program: one loss."""
    data = os.path.join(folder, "text.txt")
    with open(data, "w", encoding="utf-8") as file:
        file.write("the quick brown fox jumps over the lazy dog. " * 200)
    command = [tool("braid-run"), "train"]
    common = ["--data", data, "--threads", "1", "--seed", "5", "--checkpoint-dir", os.path.join(folder, "checkpoint")]
    run([*command, programs["none"], *common, "--steps", "2"])
    losses = {}
    for name, path in programs.items():
        log = os.path.join(folder, f"{name}.jsonl")
        copy = os.path.join(folder, f"checkpoint-{name}")
        subprocess.run(["cp", "-r", os.path.join(folder, "checkpoint"), copy], check=True)
        run([*command, path, *common[:-1], copy, "--resume", "--steps", "3", "--metrics", log])
        with open(log, encoding="utf-8") as file:
            losses[name] = json.loads(file.read().splitlines()[-1])["loss"]
    spread = max(losses.values()) - min(losses.values())
    report.line(spread == 0, "a checkpoint goes on in every program", f"losses {losses}")


def steps(report, models, rng):
    """One step of every model on one batch, held against the first one's. Yields them as they are done."""
    first = next(iter(models.values()))
    weights = first.logical(perturbed(first.initial(3), rng))
    T = MODEL["train"]["seq_len"]
    batch, _ = first.batch(rng, [[0, T // 3, T], [0, T - 4, T - 4]])
    base = None
    for name, model in models.items():
        got = check_step(report, name, model, base, weights, batch)
        base = base or got
        yield name, model


WIDE = {
    "layer_pattern": "GANVWK",
    "mixers": {
        **MODEL["mixers"],
        "A": {"kind": "gla", "heads": 2, "head_dim": 16, "value_dim": 16},
        "V": {"kind": "rwkv7", "heads": 2, "head_dim": 16},
        "W": {"kind": "mamba2", "heads": 2, "head_dim": 16},
        "K": {"kind": "kda", "heads": 2, "head_dim": 16},
    },
}


def check_wide(report, rng):
    for dtype in ("f32", "bf16"):
        description = MODEL | WIDE | {"name": dtype, "dtype": dtype}
        models = {
            f"{dtype}: {name}": CompiledModel(description, report.folder, f"{dtype}-{name}", options)
            for name, options in {"none": [], "all": ["--recompute=all"], "some": ["--recompute=1,3-4"]}.items()
        }
        for _ in steps(report, models, rng):
            pass


def main():
    report = Report("recompute")
    rng = np.random.default_rng(17)
    if sys.argv[1:] == ["wide"]:
        with report:
            check_wide(report, rng)
        return report.finish()
    with report:
        models = {"none": CompiledModel(MODEL, report.folder, "none")}
        none = models["none"]
        everything = activations(none)["activations.all_bytes"]
        budget = everything // 2
        for name, options in {
            "all": ["--recompute=all"],
            "some": ["--recompute=1,3-4"],
            "half": [f"--activation-budget={budget}"],
        }.items():
            models[name] = CompiledModel(MODEL, report.folder, name, options)
        for name, model in steps(report, models, rng):
            bytes_of = activations(model)
            kept, all_bytes, percent = (
                bytes_of[f"activations.{key}"] for key in ("kept_bytes", "all_bytes", "recomputed_percent")
            )
            report.line(
                abs(all_bytes - everything) <= 0.05 * everything and kept < all_bytes and (percent == 0) == (name == "none"),
                f"{name}: what is kept",
                f"{kept} of {all_bytes} bytes, {percent}% again",
            )
            if name == "half":
                report.line(kept <= budget, "half: within the budget", f"{kept} of {budget}")
            if name == "some":  # these layers are no longer stacked with others; the workspace holds them
                continue
            planned = arena(model, "saved")
            report.line(
                abs(planned - kept) <= 0.01 * kept, f"{name}: the saved arena holds it", f"{planned} bytes, {kept} kept"
            )
        check_resume(report, report.folder, {name: model.program.path for name, model in models.items()})
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
