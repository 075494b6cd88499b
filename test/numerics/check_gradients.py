"""A whole model file: loss and every gradient against the reference, decoding; in f64 also central differences.

    python3 check_gradients.py MODEL.json

f32 models run with 2 rows of 50 tokens; routes are compared first. Limits in f32: loss 2e-6, gradients and logits 1e-4 (the
errors of single layers add up over the depth), f64: 1e-9, gradients 1e-8.
"""

import os
import sys

import numpy as np

from harness import Report, run, tool
from compiled_model import CompiledModel, check_decoding, check_reference, perturbed
from model import read_description


def check_differences(report, model, weights, batch, values):
    """Central differences of loss + aux_loss at the largest element of every gradient; no token changes its experts."""
    stored = {n: model.program.store(a) for n, a in weights.items()}
    inputs = {n: model.program.store(a) for n, a in batch.items()}
    worst, failed = ("", 0.0), []
    for name, gradient_name in model.gradients.items():
        index = int(np.abs(values[gradient_name]).argmax())
        gradient = values[gradient_name].flat[index]
        h = 1e-5 * max(float(np.sqrt((weights[name] ** 2).mean())), 1e-2)
        sides = []
        for step in (h, -h):
            moved = weights[name].copy()
            moved.flat[index] += step
            out = model.step(stored | {name: moved}, inputs, ["loss", "aux_loss", "expert_counts"])
            sides.append((out["loss"] + out["aux_loss"])[0])
            if not np.array_equal(out["expert_counts"], values["expert_counts"]):
                failed.append(f"{name}[{index}] changes a route")
        error = abs((sides[0] - sides[1]) / (2 * h) - gradient) / max(abs(gradient), 1e-3)
        if error > worst[1]:
            worst = (name, error)
        if not error <= 1e-6:
            failed.append(f"{name}[{index}] {error:.2g}")
    words = f"{len(model.gradients)} elements, worst {worst[0]} {worst[1]:.2g}" + (
        f"; wrong: {', '.join(failed)}" if failed else ""
    )
    report.line(not failed, "central differences", words)


def check_refusal(report, model):
    """Training takes f32 programs, and says so before anything else is wrong."""
    data = os.path.join(report.folder, "text.txt")
    with open(data, "w", encoding="utf-8") as file:
        file.write("text " * 100)
    try:
        message = run([tool("braid-run"), "train", model.program.path, "--data", data, "--steps", "1"])
    except RuntimeError as error:
        message = str(error).strip().splitlines()[-1]
    wanted = "is f64 (dtype of the model), but training, evaluation and generation take f32 and bf16"
    report.line(wanted in message, "braid-run train refuses f64", message)


def main(path):
    description = read_description(path)
    if description.get("dtype", "f32") == "f32":
        description["train"] = description["train"] | {"batch": 2, "seq_len": 50}
    report = Report(f"gradients-{description['name']}")
    rng = np.random.default_rng(23)
    with report:
        model = CompiledModel(description, report.folder)
        weights = perturbed(model.initial(5), rng)
        T = model.train["seq_len"]
        cuts = [[0, T // 3, T], [0, T - 4, T - 4]] if model.documents > 1 else [[0, T], [0, T - 4]]
        batch, documents = model.batch(rng, [row + [row[-1]] * (model.documents + 1 - len(row)) for row in cuts])
        values = check_reference(report, model, weights, batch, documents)
        check_decoding(report, model, weights, rng)
        if model.dtype == "f64":
            check_differences(report, model, weights, batch, values)
            check_refusal(report, model)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
