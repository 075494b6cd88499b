"""Gradients of several batches make one update: the same as one large batch, on one rank and on two, and after a resume.

    python3 check_accumulate.py

The text is so short that windows with few labels are among the batches: every label must weigh the same, whichever batch it is in.
Experts have no balance loss (it is not a sum over tokens), but a z loss, which is one. Limits: loss and z loss of every step and the
first gradient norm 2e-6, later ones 2e-4 (AdamW divides rounding noise by itself where a gradient is close to 0), expert counts exact;
parameters after three updates 1e-4; a resumed run is bit-identical. Packed documents, layers computed again, experts with a capacity, orders that are drawn (drop policy random) and
woven slices on two ranks change nothing of this; in bf16 (1e-5) and with drawn orders the first step is compared: later ones see other weights.
"""

import json
import os
import sys

import numpy as np

from check_program import check_commands
from harness import Compiled, Report, run, tool

MODEL = {
    "name": "accumulate",
    "vocab_size": 256,
    "d_model": 32,
    "num_layers": 3,
    "layer_pattern": "L",
    "ffn_pattern": "MMD",
    "context_len": 16,
    "mixers": {"L": {"kind": "gla", "heads": 2, "head_dim": 8}},
    "ffns": {
        "M": {
            "kind": "moe",
            "num_experts": 4,
            "top_k": 2,
            "expert_hidden": 16,
            "router": {"balance_loss": 0, "z_loss": 0.01},
        },
        "D": {"kind": "dense", "hidden": 32},
    },
    "train": {"batch": 8, "seq_len": 32, "steps": 10, "warmup_steps": 1, "learning_rate": 0.001},
}
STEPS = 3


def compiled(folder, name, *options, model=MODEL):
    source, path = os.path.join(folder, "model.json"), os.path.join(folder, f"{name}.braid")
    with open(source, "w", encoding="utf-8") as file:
        json.dump(model, file)
    run([tool("braid-compile"), source, "-o", path, *options])
    return path


def train(folder, name, program, steps, *options, data="text.txt"):
    """-> what each step reported, and the checkpoint's folder."""
    log, checkpoints = os.path.join(folder, f"{name}.jsonl"), os.path.join(folder, f"{name}.checkpoints")
    run(
        [tool("braid-run"), "train", program, "--data", os.path.join(folder, data), "--threads", "1", "--metrics", log, "--checkpoint-dir", checkpoints]
        + (["--steps", str(steps)] if "--resume-step" not in options else [])
        + list(options)
    )
    with open(log, encoding="utf-8") as file:
        return [json.loads(line) for line in file], os.path.join(checkpoints, f"step-{steps:08d}")


def tensors(folder):
    """Logical tensors of a checkpoint, put together from the ranks' pieces."""
    with open(os.path.join(folder, "index.json"), encoding="utf-8") as file:
        index = json.load(file)
    out = {}
    for name, entry in index["tensors"].items():
        whole = np.full(entry["shape"], np.nan, np.float32)
        for piece in entry["pieces"]:
            with open(os.path.join(folder, piece["file"]), "rb") as file:
                size = int.from_bytes(file.read(8), "little")
                begin, end = json.loads(file.read(size))[name]["data_offsets"]
                file.seek(8 + size + begin)
                part = np.frombuffer(file.read(end - begin), np.float32).reshape(piece["shape"])
            whole[tuple(slice(b, b + n) for b, n in zip(piece["offset"], piece["shape"]))] = part
        out[name] = whole
    return out


def combined(report, rng):
    """Documents, recomputation, capacity, choices that loads correct, slices on two ranks; bf16."""
    os.mkdir(os.path.join(report.folder, "documents"))
    for i, length in enumerate(rng.integers(3, 60, 40)):
        with open(os.path.join(report.folder, "documents", f"{i:02}.txt"), "wb") as file:
            file.write(rng.integers(97, 123, length).astype(np.uint8).tobytes())
    capacity = {"capacity_factor": 1.25, "shared_hidden": 16, "router": MODEL["ffns"]["M"]["router"] | {"score": "sigmoid", "correction": True, "correction_rate": 0.01}}
    model = MODEL | {"max_documents": 4, "ffns": MODEL["ffns"] | {"M": MODEL["ffns"]["M"] | capacity}}
    build = lambda name, *options, model=model: compiled(report.folder, name, "--recompute=all", *options, model=model)
    run_ = lambda name, steps, program, *options: train(report.folder, name, program, steps, *options, data="documents")
    large = run_("documents", STEPS, build("documents"))
    dropped = sum(np.sum(step["expert_dropped"]) for step in large[0])
    report.line(dropped > 0, "documents: some assignments find no slot", f"{dropped} in {STEPS} steps")
    woven = ("--mesh=dp=2,ep=2", "--pipeline=1A1M", "--overlap-degree=2")
    program = build("woven", "--batch=2", "--accumulation-steps=4", *woven)
    check_commands(report, Compiled(program).info())
    parts = run_("woven", STEPS, program, "--ranks", "2")
    check(report, "documents, recomputation, capacity, 2 ranks woven, 4 batches of 2", large, parts)
    # What is drawn belongs to the sample, not to the batch it comes in.
    drawn = model | {"ffns": model["ffns"] | {"M": model["ffns"]["M"] | {"drop_policy": "random"}}}
    by_token = large[0][0]["expert_dropped"]
    for name, option, described, limit in (("bf16", "--dtype=bf16", model, 1e-5), ("drop policy random", "--dtype=f32", drawn, 2e-6)):
        file = name.replace(" ", "-")
        large = run_(file, 1, build(file, option, model=described))[0][0]
        parts = run_(file + "-4", 1, build(file + "-4", option, "--batch=2", "--accumulation-steps=4", model=described))[0][0]
        for key in ("loss", "aux_loss", "grad_norm"):
            error = abs(parts[key] / large[key] - 1)
            report.line(error <= limit, f"{name}, 4 batches of 2: {key}", f"{error:.2g} (limit {limit:g})")
        for key in ("expert_counts", "expert_dropped"):
            report.line(parts[key] == large[key], f"{name}, 4 batches of 2: {key}", f"{np.sum(parts[key])} in all")
    report.line(large["expert_dropped"] != by_token, "drop policy random drops others than token", f"{np.sum(by_token)} by token")


def check(report, name, large, parts):
    (large_log, large_checkpoint), (log, checkpoint) = large, parts
    first = [abs(steps[0]["grad_norm"]) for steps in (log, large_log)]
    error = abs(first[0] / first[1] - 1)
    report.line(error <= 2e-6, f"{name}: gradient norm of the first step", f"{error:.2g} (limit 2e-06)")
    for key, limit in {"loss": 2e-6, "aux_loss": 2e-6, "grad_norm": 2e-4, "expert_counts": 0}.items():
        a, b = (np.array([step[key] for step in steps], np.float64) for steps in (log, large_log))
        error = float(np.abs(a - b).max() / np.abs(b).max())
        report.line(a.shape == b.shape and error <= limit, f"{name}: {key} of {STEPS} steps", f"{error:.2g} (limit {limit:g})")
    same = [[step[key] for key in ("step", "tokens", "epoch", "learning_rate")] for step in log]
    report.line(
        same == [[step[key] for key in ("step", "tokens", "epoch", "learning_rate")] for step in large_log],
        f"{name}: samples seen and learning rates",
        f"{same[-1]}",
    )
    got, expected = tensors(checkpoint), tensors(large_checkpoint)
    expected = {n: a for n, a in expected.items() if not n.endswith((".first", ".second"))}
    report.compare(f"{name}: parameters", got, expected, 1e-4)


def contents(checkpoint):
    """The files of a checkpoint as bytes, by name."""
    files = {}
    for name in ("index.json", "model.safetensors", "optimizer.safetensors"):
        with open(os.path.join(checkpoint, name), "rb") as stream:
            files[name] = stream.read()
    return files


def main():
    report = Report("accumulate")
    folder = report.folder
    with open(os.path.join(folder, "text.txt"), "w", encoding="utf-8") as file:
        file.write(("sphinx of black quartz, judge my vow; " * 10)[: 32 * 9 + 6])  # nine windows of 32 labels, one of 5
    with report:
        large = train(folder, "large", compiled(folder, "large"), STEPS)
        four = compiled(folder, "four", "--batch=2", "--accumulation-steps=4")
        parts = train(folder, "four", four, STEPS)
        check(report, "4 batches of 2", large, parts)
        two = train(folder, "two", compiled(folder, "two", "--batch=4", "--accumulation-steps=2"), STEPS)
        check(report, "2 batches of 4", large, two)
        one = train(folder, "one", four, STEPS, "--accumulation-steps", "1")
        ratio = large[0][0]["tokens"] / one[0][0]["tokens"]
        report.line(ratio > 3, "the number of batches is the run's choice", f"a step of 1 batch sees 1/{ratio:.3g}")
        ranks = compiled(folder, "ranks", "--batch=4", "--mesh=dp=2,ep=2", "--accumulation-steps=2")
        check(report, "2 ranks, 2 batches of 4", large, train(folder, "ranks", ranks, STEPS, "--ranks", "2"))
        half = compiled(folder, "half", "--micro-batches=1", "--dtype=bf16", "--gradient-dtype=bf16")
        for what, program, wanted in (
            ("updates after every batch", os.path.join(folder, "large.braid"),
             "updates the parameters after every batch: to add up the gradients of 2 batches, compile the model with --acc"),
            ("has gradients of bf16", half, "is bf16, which loses what 2 batches add up (--accumulation-steps); valid: 1, or the"),
        ):
            try:
                train(folder, "refused", program, STEPS, "--accumulation-steps", "2")
                message = "no error"
            except RuntimeError as error:
                message = str(error).strip().splitlines()[-1]
            report.line(wanted in message, f"a program that {what} says so", message)
        combined(report, np.random.default_rng(7))
        train(folder, "resumed", four, 1)
        log, checkpoint = train(folder, "resumed", four, STEPS, "--resume")
        for file, got in contents(checkpoint).items():
            report.line(got == contents(parts[1])[file], f"resumed: {file}", f"{len(got)} bytes")
        losses = [step["loss"] for step in log]
        report.line(losses == [step["loss"] for step in parts[0]], "resumed: losses", f"{losses}")
        # What the command line chose stands in the checkpoint: batches of a step, and the steps the learning rate falls over.
        three = ["--accumulation-steps", "3", "--save-every", "1"]
        log, checkpoint = train(folder, "three", four, STEPS, *three)
        whole = contents(checkpoint)
        again, checkpoint = train(folder, "three", four, STEPS, "--resume-step", "1")
        for file, got in contents(checkpoint).items():
            report.line(got == whole[file], f"3 batches of 2, resumed without a flag: {file}", f"{len(got)} bytes")
        report.line(
            [step["loss"] for step in again] == [step["loss"] for step in log] and log[1]["loss"] != parts[0][1]["loss"],
            "3 batches of 2, resumed without a flag: losses",
            f"{[step['loss'] for step in again]}",
        )
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
