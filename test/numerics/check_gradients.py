"""A whole model file: loss and every gradient against the reference, decoding; in f64 also central differences.

    python3 check_gradients.py MODEL.json

f32 models run with 2 rows of 50 tokens; routes are compared first. Limits in f32: loss 2e-6, gradients and logits 1e-4 (the
errors of single layers add up over the depth), f64: 1e-9, gradients 1e-8.
"""

import os
import sys

import numpy as np

from harness import Report, run, tool
from check_mixer import perturbed
from compiled_model import CompiledModel
from common import PADDING, one_document
from model import read_description


def check_reference(report, model, weights, batch, documents):
    exact = model.dtype == "f64"
    experts = ["expert_counts"] if any(f["kind"] == "moe" for f in model.description["ffns"].values()) else []
    values = model.step(weights, batch, ["loss", "aux_loss", "grad_norm", *experts, *model.gradients.values()])
    result = model.reference(weights).loss(batch["tokens"], batch["labels"], documents)
    if experts:
        counts = [
            np.bincount(ids[documents != PADDING].ravel(), minlength=values["expert_counts"].shape[-1])
            for _, ids in sorted(result.ids.items())
        ]
        report.compare("expert counts", values, {"expert_counts": np.array(counts, np.int32)}, 0)
    report.compare(
        "loss",
        values,
        {"loss": np.array([result.loss]), "aux_loss": np.atleast_1d(result.aux)},
        1e-9 if exact else 2e-6,
    )
    got, expected = {}, {}
    gradients = result.gradients()
    for parameter, name in model.gradients.items():
        for logical, array in model.logical({parameter: values[name]}).items():
            got[logical], expected[logical] = array, gradients[logical]
    report.compare("gradients", got, expected, 1e-8 if exact else 1e-4)
    evaluated = model.call("eval_step", dict(weights) | batch, ["loss_sum", "valid_tokens"])
    report.compare(
        "eval_step",
        evaluated,
        {"loss_sum": np.array([result.loss * result.count]), "valid_tokens": np.array([float(result.count)])},
        1e-9 if exact else 2e-6,
    )
    return values


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


def check_decoding(report, model, weights, rng):
    length = 40
    tokens = rng.integers(0, model.description["vocab_size"], length)
    logits = model.reference(weights).loss(tokens[None], np.full((1, length), -1), one_document(1, length)).logits[0]
    for first in (1, 7, 30):
        padded = np.zeros(32, np.int32)
        padded[:first] = tokens[:first]
        out, caches = model.cached("prefill_32", weights, {}, padded, [0, first])
        got = [out]
        for t in range(first, min(first + 6, length)):
            out, caches = model.cached("decode_1", weights, caches, tokens[t : t + 1], [-t, 1])
            got.append(out)
        want = logits[first - 1 : first - 1 + len(got)]
        report.compare(
            f"decode after prefill {first}",
            {"logits": np.array(got)},
            {"logits": want},
            1e-9 if model.dtype == "f64" else 1e-4,
        )
        greedy = np.argmax(np.array(got), -1)
        report.line(
            np.array_equal(greedy, np.argmax(want, -1)), f"greedy choices after prefill {first}", f"{greedy.tolist()}"
        )


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
    try:
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
    except RuntimeError as error:
        report.line(False, "stopped", str(error))
    return report.finish()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
