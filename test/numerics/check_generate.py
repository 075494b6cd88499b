"""Training from text, then greedy generation: every token that braid-run prints is the reference model's most likely one.

The weights come from the checkpoint that braid-run train wrote; the reference runs the full forward for every token. Another model reads
a text of 370 tokens through every block of prefill (32, 64, 128, 256), full and padded: logits after each within 1e-5 of the reference's.
"""

import os
import sys

import numpy as np

from harness import Report, run, tool
from common import one_document
from compiled_model import CompiledModel, perturbed

DESCRIPTION = {
    "name": "generate",
    "vocab_size": 256,
    "d_model": 48,
    "num_layers": 4,
    "layer_pattern": "GLSN",
    "context_len": 160,
    "max_documents": 2,
    "mixers": {
        "G": {"kind": "gated_deltanet", "heads": 2, "head_dim": 16, "value_dim": 16},
        "L": {"kind": "gla", "heads": 2, "head_dim": 16, "value_dim": 16},
        "S": {"kind": "mamba2", "heads": 2, "head_dim": 16},
        "N": {"kind": "attention", "heads": 4, "kv_heads": 2, "head_dim": 16},
    },
    "ffns": {"M": {"kind": "moe", "num_experts": 4, "top_k": 2, "expert_hidden": 32, "shared_hidden": 16}},
    "train": {"batch": 4, "seq_len": 64, "steps": 60, "warmup_steps": 5, "learning_rate": 1e-2, "seed": 3},
}
TEXT = "The quick brown fox jumps over the lazy dog, and the slow red hen walks around it. A braid has three strands. "
PROMPTS = [
    "The quick",
    "A",
    "and the slow red hen walks around it. A braid has three strands. The quick brown fox jumps",
]
TOKENS = 30


LONG = {
    "name": "long",
    "vocab_size": 64,
    "d_model": 32,
    "num_layers": 4,
    "layer_pattern": "GLMW",
    "context_len": 400,
    "mixers": {
        "G": {"kind": "gated_deltanet", "heads": 2, "head_dim": 16, "value_dim": 16},
        "L": {"kind": "gla", "heads": 2, "head_dim": 16},
        "M": {"kind": "mamba2", "heads": 2, "head_dim": 16},
        "W": {"kind": "attention", "heads": 2, "head_dim": 16, "window": 40},
    },
    "ffns": {"D": {"kind": "dense", "hidden": 48}},
    "train": {"batch": 1, "seq_len": 32},
}
# Prefills one after the other: (block, tokens in it).
BLOCKS = [
    [(256, 256), (64, 64), (32, 17)],
    [(256, 201), (128, 90)],
    [(128, 128), (256, 100), (64, 33)],
]


def check_blocks(report, rng):
    model = CompiledModel(LONG, report.folder, "long")
    weights = perturbed(model.initial(5), rng)
    tokens = rng.integers(0, LONG["vocab_size"], 370)
    for blocks in BLOCKS:
        got, want = model.decoded(weights, tokens, blocks, sum(count for _, count in blocks) + 3)
        name = ", ".join(f"{count} of {block}" for block, count in blocks)
        report.compare(f"prefill {name}, then 3 tokens", {"logits": got}, {"logits": want}, 1e-5)


def main():
    report = Report("generate")
    with report:
        model = CompiledModel(DESCRIPTION, report.folder)
        text, checkpoints = os.path.join(report.folder, "text.txt"), os.path.join(report.folder, "checkpoints")
        with open(text, "w", encoding="utf-8") as file:
            file.write(TEXT * 60)
        run(
            [
                tool("braid-run"),
                "train",
                model.program.path,
                "--data",
                text,
                "--checkpoint-dir",
                checkpoints,
                "--threads",
                "1",
            ]
        )
        newest = sorted(os.path.join(checkpoints, d) for d in os.listdir(checkpoints))[-1]
        weights = model.program.call(
            "eval_step", model.batch(np.random.default_rng(0))[0], list(model.parameters), ["--checkpoint", newest]
        )
        reference = model.reference(weights)
        for prompt in PROMPTS:
            out = run(
                [
                    tool("braid-run"),
                    "generate",
                    model.program.path,
                    "--checkpoint",
                    checkpoints,
                    "--prompt",
                    prompt,
                    "--max-tokens",
                    str(TOKENS),
                    "--threads",
                    "1",
                ]
            )
            data = np.frombuffer(out.encode("utf-8", "surrogateescape"), np.uint8).astype(np.int64)
            start, end = len(prompt.encode()), len(prompt.encode()) + TOKENS
            complete = out.startswith(prompt) and len(data) >= end
            tokens = data[:end]
            logits = reference.loss(tokens[None], np.full((1, end), -1), one_document(1, end)).logits[0]
            # At most a tie up to f32 rounding may be decided differently.
            behind = logits[start - 1 : end - 1].max(-1) - logits[np.arange(start - 1, end - 1), tokens[start:]]
            report.line(
                complete and behind.max() < 1e-3,
                f"greedy after {start} bytes",
                f"{out[start:start + TOKENS]!r}, at most {behind.max():.2g} behind the best logit",
            )
        check_blocks(report, np.random.default_rng(3))
        learned = TEXT[len(PROMPTS[0]) : len(PROMPTS[0]) + 8]
        report.line(
            run(
                [
                    tool("braid-run"),
                    "generate",
                    model.program.path,
                    "--checkpoint",
                    checkpoints,
                    "--prompt",
                    PROMPTS[0],
                    "--max-tokens",
                    "8",
                ]
            ).startswith(PROMPTS[0] + learned),
            "the text was learned",
            repr(learned),
        )
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
