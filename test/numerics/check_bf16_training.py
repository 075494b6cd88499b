"""Training in bf16 beside f32: losses stay together; checkpoints of each are evaluated and resumed by the other; a resumed
bf16 run has the same bits; two ranks, sharded and woven, follow one. Moments in bf16 follow those in f32, in half the bytes.

Losses of single steps agree to 1e-1 and on average to 3e-2 while they fall by 2: bf16 sends a token now and then to other
experts, and the runs part slowly. One checkpoint has the same loss in both to 2e-3.
"""

import json
import os
import re
import shutil
import sys

import numpy as np

from harness import Report, run, tool

DESCRIPTION = {
    "name": "bf16-training",
    "vocab_size": 256,
    "d_model": 32,
    "num_layers": 2,
    "layer_pattern": "GN",
    "context_len": 64,
    "mixers": {
        "G": {"kind": "gated_deltanet", "heads": 2, "head_dim": 16, "value_dim": 16},
        "N": {"kind": "attention", "heads": 2, "kv_heads": 1, "head_dim": 16},
    },
    "ffns": {"M": {"kind": "moe", "num_experts": 4, "top_k": 2, "expert_hidden": 32, "shared_hidden": 16}},
    "train": {"batch": 4, "seq_len": 64, "steps": 24, "warmup_steps": 4, "learning_rate": 5e-3, "seed": 3},
}
TEXT = "The quick brown fox jumps over the lazy dog, and the slow red hen walks around it. A braid has three strands. "
SINGLE, AVERAGE = 1e-1, 3e-2


class Runs:
    def __init__(self, folder):
        self.folder = folder
        self.model, self.text, self.heldout = self.path("model.json"), self.path("text.txt"), self.path("heldout.txt")
        for path, content in (
            (self.model, json.dumps(DESCRIPTION)),
            (self.text, TEXT * 60),
            (self.heldout, TEXT[40:] * 4),
        ):
            with open(path, "w", encoding="utf-8") as file:
                file.write(content)

    def path(self, name):
        return os.path.join(self.folder, name)

    def compile(self, name, *options):
        run([tool("braid-compile"), self.model, "-o", self.path(name + ".braid"), *options])

    def train(self, program, directory, steps, ranks=1, more=()):
        """Losses by step of this call. Every run has the same learning rates: --steps ends it, not its schedule."""
        metrics = self.path("metrics.jsonl")
        if os.path.exists(metrics):
            os.remove(metrics)
        self.said = run(
            [tool("braid-run"), "train", self.path(program + ".braid"), "--data", self.text, "--steps", str(steps)]
            + ["--checkpoint-dir", self.path(directory), "--metrics", metrics, "--threads", "1", f"--ranks={ranks}"]
            + ["--lr", "4e-3", "--min-lr", "4e-3", "--warmup", "4", *more],
            messages=True,
        )
        with open(metrics, encoding="utf-8") as file:
            lines = [json.loads(line) for line in file]
        return {line["step"]: line["loss"] for line in lines if "loss" in line}

    def evaluate(self, program, directory):
        out = run(
            [tool("braid-run"), "eval", self.path(program + ".braid"), "--checkpoint", self.path(directory)]
            + ["--data", self.heldout, "--threads", "1"]
        )
        return float(re.search(r"held-out loss\s+(\S+)", out).group(1))

    def weights(self, directory):
        with open(os.path.join(self.path(directory), "latest"), encoding="utf-8") as file:
            step = file.read().strip()
        contents = []
        for name in ("model.safetensors", "optimizer.safetensors"):
            with open(os.path.join(self.path(directory), step, name), "rb") as file:
                contents.append(file.read())
        return contents


def together(report, label, losses, others, last=20, looser=1):
    steps = sorted(s for s in set(losses) & set(others) if s <= last)
    gaps = np.abs([losses[s] - others[s] for s in steps])
    good = bool(steps) and gaps.max() <= SINGLE * looser and gaps.mean() <= AVERAGE * looser
    report.line(good, label, f"{len(steps)} steps, largest gap {gaps.max():.2g}, mean {gaps.mean():.2g}")


def main():
    report = Report("bf16-training")
    with report:
        runs = Runs(report.folder)
        runs.compile("f32")
        runs.compile("bf16", "--dtype=bf16", "--gradient-dtype=f32")
        runs.compile("moments", "--dtype=bf16", "--moment-dtype=bf16")
        runs.compile("two-moments", "--dtype=bf16", "--moment-dtype=bf16", "--mesh=dp=2,ep=2")
        runs.compile("two", "--dtype=bf16", "--mesh=dp=2,ep=2", "--pipeline=1A1M", "--overlap-degree=2")
        f32 = runs.train("f32", "c-f32", 16)
        bf16 = runs.train("bf16", "c-bf16", 16)
        falls = f32[1] - f32[16] > 1.0
        report.line(falls, "the loss falls", f"from {f32[1]:.3f} to {f32[16]:.3f}")
        together(report, "bf16 and f32", bf16, f32)
        two = runs.train("two", "c-two", 16, ranks=2)
        together(report, "two ranks and one: first steps", two, bf16, last=4, looser=0.3)
        together(report, "two ranks and one", two, bf16, looser=3)

        moments = runs.train("moments", "c-moments", 16)
        together(report, "moments in bf16 and in f32: first steps", moments, bf16, last=4, looser=0.3)
        together(report, "moments in bf16 and in f32", moments, bf16)
        sizes = [len(runs.weights(directory)[1]) for directory in ("c-bf16", "c-moments")]
        report.line(sizes[1] < 0.52 * sizes[0], "files of moments in bf16", f"{sizes[1]} bytes for {sizes[0]}")
        two = runs.train("two-moments", "c-two-moments", 16, ranks=2)
        together(report, "moments in bf16 on two ranks and one", two, moments, looser=3)

        both = [("f32", "c-f32"), ("bf16", "c-bf16"), ("bf16", "c-two")]
        for own, directory in both:
            values = [runs.evaluate(program, directory) for program in ("f32", "bf16")]
            close = abs(values[0] - values[1]) <= 2e-3
            report.line(close, f"eval of {directory}", f"f32 {values[0]:.4f}, bf16 {values[1]:.4f}")

        # One run of 20 steps, and the same in two parts; then the parts in different programs.
        straight = {p: runs.train(p, f"straight-{p}", 20) for p in ("f32", "bf16", "moments")}
        for first, second in (("bf16", "bf16"), ("moments", "moments"), ("f32", "bf16"), ("bf16", "f32"), ("moments", "f32"), ("bf16", "moments")):
            directory = f"{first}-then-{second}"
            shutil.copytree(runs.path(f"c-{first}"), runs.path(directory))
            losses = runs.train(second, directory, 20, more=["--resume"])
            report.line(sorted(losses) == [17, 18, 19, 20], f"{directory}: steps", f"{sorted(losses)}")
            together(report, directory, losses, straight[first])
            types = ["bf16" if program == "moments" else "f32" for program in (second, first)]
            changed = re.search(r"moments, as \S+: (\S+), (\S+) before", runs.said)
            good = list(changed.groups()) == types if changed else types[0] == types[1]
            report.line(good, f"{directory}: moments", changed.group(0) if changed else f"{types[0]} as before, and nothing said")
            if first == second:
                same = runs.weights(directory) == runs.weights(f"straight-{first}")
                report.line(same, f"{directory}: bits", "the resumed run ends with the same bits")
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
