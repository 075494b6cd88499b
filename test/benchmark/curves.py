"""How far loss curves are apart: python3 curves.py NAME=METRICS.jsonl NAME=METRICS.jsonl ..

The files are what `braid-run train --metrics` writes; every curve is compared with the first. Prints a markdown table: the
gap of single steps and of averages over 20 steps, and the held-out loss at the end.
"""

import json
import sys

WINDOW = 20


def read(path):
    with open(path, encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    heldout = [line["heldout_loss"] for line in lines if "heldout_loss" in line]
    return [line["loss"] for line in lines if "loss" in line], heldout[-1] if heldout else None


def averages(losses):
    return [sum(losses[i : i + WINDOW]) / WINDOW for i in range(0, len(losses) - WINDOW + 1, WINDOW)]


def main(arguments):
    curves = [(name, *read(path)) for name, _, path in (a.partition("=") for a in arguments)]
    first, base, _ = curves[0]
    print(f"| curve | steps | loss of the last {WINDOW} | gap to {first}, one step: mean, largest | {WINDOW} steps: mean, largest | held-out |")
    print("|---|---|---|---|---|---|")
    for name, losses, heldout in curves:
        single = [abs(a - b) for a, b in zip(losses, base)]
        smooth = [abs(a - b) for a, b in zip(averages(losses), averages(base))]
        print(
            f"| {name} | {len(losses)} | {averages(losses)[-1]:.4f} | {sum(single) / len(single):.4f}, {max(single):.4f} "
            f"| {sum(smooth) / len(smooth):.4f}, {max(smooth):.4f} | {'-' if heldout is None else f'{heldout:.4f}'} |"
        )


if __name__ == "__main__":
    main(sys.argv[1:])
