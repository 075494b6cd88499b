"""Every instance, and latent attention, on several ranks along `sp`, with every algorithm, along `tp`, and in token slices: python3 every_instance.py [VARIANT..]

The layers of a model are all instances that braid-compile knows, and latent attention (the first variants of numerics/check_mixer.py), in rows of 60 tokens that 2, 3 and
5 ranks divide; two steps in double precision are those of one rank (exact.py). Through the norm of ttt and titans_ln spans of tokens do not compose:
they take `ring` only, and the others are refused.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "numerics"))
import exact
from check_mixer import VARIANTS as MIXERS
from harness import tool

RING_ONLY = ("ttt", "titans_ln")
ALGORITHMS = {"ring": "ring", "gather": "all_gather", "scan": "scan"}
WIDTH = 24
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def instances():
    return sorted(set(MIXERS) - {"attention"})


def mixer(kind):
    """Its settings, with heads that two ranks divide; where there is one, its channels are the layer's input (mamba, s4d)."""
    settings = {"kind": kind} | MIXERS[kind][0]
    return settings | {"heads": 2, "value_dim": WIDTH // 2} if settings.get("heads") == 1 else settings


def describe(kinds, ffn="D"):
    return {
        "name": "instances",
        "vocab_size": 64,
        "d_model": WIDTH,
        "num_layers": len(kinds),
        "layer_pattern": LETTERS[: len(kinds)],
        "ffn_pattern": ffn,
        "context_len": 60,
        "max_documents": 5,
        "mixers": {letter: mixer(kind) for letter, kind in zip(LETTERS, kinds)},
        "ffns": {
            ffn: {"kind": "dense", "hidden": 16} if ffn == "D" else {"kind": "moe", "num_experts": 4, "top_k": 2, "expert_hidden": 8},
        },
        "train": {"batch": 4, "seq_len": 60},
    }


def variants():
    """Name -> (kinds, ranks, flags)."""
    found = {}
    for ranks in (2, 3, 5):
        for name, algorithm in ALGORITHMS.items():
            kinds = [k for k in instances() if name == "ring" or k not in RING_ONLY]
            found[f"sp{ranks}-{name}"] = kinds, ranks, [f"--mesh=sp={ranks}", f"--sp-algorithm={algorithm}"]
    slices = ["--mesh=dp=2,ep=2", "--pipeline=1A1M", "--overlap-degree=3"]
    return found | {"tp2-heads": (instances(), 2, ["--mesh=tp=2"]), "slices-3": (instances(), 2, slices)}


def covers():
    """Instance -> {algorithm, "heads" or "slices": the ranks, or the degree}, of what the tests run, for the table in test/README.md."""
    tests = pathlib.Path(__file__).resolve().parent.glob("every-instance*.test")
    run = {word for test in tests for line in test.read_text(encoding="utf-8").splitlines() if line.split(":")[0] == "RUN" for word in line.split()}
    table = {kind: {} for kind in instances()}
    for name, (kinds, ranks, _) in variants().items():
        if name not in run:
            continue
        column, number = ("slices", name.split("-")[1]) if name.startswith("slices") else (name.split("-")[1], str(ranks))
        for kind in kinds:
            table[kind].setdefault(column, []).append(number)
    return {kind: {column: " ".join(numbers) for column, numbers in row.items()} for kind, row in table.items()}


def refused(folder, kind, algorithm):
    path = os.path.join(folder, "refused.json")
    pathlib.Path(path).write_text(json.dumps(describe([kind])))
    command = [tool("braid-compile"), path, "-o", os.devnull, "--mesh=sp=2", f"--sp-algorithm={algorithm}"]
    message = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL).stderr
    return "is of class N, whose spans of tokens do not compose" in message


def compare(prefix, groups, describe_group):
    """Variants of exact.py, {what a model is of: its variants} -> how many of the models failed."""
    bad = 0
    with tempfile.TemporaryDirectory() as folder:
        for what, group in groups.items():
            name = "-".join([prefix, *(g[0] for g in group)])
            path = os.path.join(folder, f"{name}.json")
            pathlib.Path(path).write_text(json.dumps(describe_group(*what) | {"name": name}), encoding="utf-8")
            exact.VARIANTS = group
            bad += exact.main(path, *(g[0] for g in group)) != 0
    return bad


def main(*names):
    wrong = set(names) - set(variants())
    if wrong:
        sys.exit(f"there is no variant {', '.join(sorted(wrong))}; valid: {', '.join(variants())}")
    bad = 0
    with tempfile.TemporaryDirectory() as folder:
        for kind in RING_ONLY:
            for algorithm in ("all_gather", "scan"):
                good = refused(folder, kind, algorithm)
                bad += not good
                print(f"{'ok' if good else 'FAILED':<6} {kind} with {algorithm} {'is refused' if good else 'IS NOT REFUSED'}")
    groups = {}
    for name in names:
        kinds, ranks, flags = variants()[name]
        groups.setdefault((tuple(kinds), "E" if name.startswith("slices") else "D"), []).append((name, ranks, flags))
    bad += compare("instances", groups, describe)
    print(f"instances: {len(names)} variants of {len(instances())} mixers, {bad} groups failed")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
