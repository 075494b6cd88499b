"""Recurrences that a file states, on several ranks and in token slices: python3 stated.py VARIANT..

The layers are the texts of all instances (numerics/check_recurrence.py); two steps in double precision are those of one rank (exact.py). What the
classes allow is what they allow built-in mixers: through a norm spans of tokens do not compose, so such steps take `ring` only.
"""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "numerics"))
import check_recurrence
import exact
from every_instance import ALGORITHMS, RING_ONLY, compare

# Rounding is ten thousand times as large in the gradients of these layers on top of each other (1e-16 in sums, 2e-12 in gradients), and once more in
# the second step, which begins at parameters that are 4e-12 apart.
exact.LIMITS["moved"] = 3e-6
PAIRS = check_recurrence.PAIRS
COMPOSED = {letter: pair for letter, pair in PAIRS.items() if pair[0]["kind"] not in RING_ONLY}


def variants():
    """Name -> (pairs, ranks, flags)."""
    found = {"tp2": (PAIRS, 2, ["--mesh=tp=2"]), "slices-3": (PAIRS, 2, ["--mesh=dp=2,ep=2", "--pipeline=1A1M", "--overlap-degree=3"])}
    for ranks in (2, 3):
        for name, algorithm in ALGORITHMS.items():
            flags = [f"--mesh=sp={ranks}", f"--sp-algorithm={algorithm}"]
            found[f"sp{ranks}-{name}"] = PAIRS if name == "ring" else COMPOSED, ranks, flags
    return found


def describe(letters, sliced):
    experts = {"kind": "moe", "num_experts": 4, "top_k": 2, "expert_hidden": 8}
    letter, ffn = ("E", experts) if sliced else ("D", {"kind": "dense", "hidden": 16})
    sizes = {"vocab_size": 32, "context_len": 60, "max_documents": 5, "ffn_pattern": letter, "ffns": {letter: ffn}, "train": {"batch": 4, "seq_len": 60}}
    return check_recurrence.describe(1, "f64", {letter: PAIRS[letter] for letter in letters}) | sizes


def main(*names):
    if wrong := set(names) - set(variants()):
        sys.exit(f"there is no variant {', '.join(sorted(wrong))}; valid: {', '.join(variants())}")
    groups = {}
    for name in names:
        pairs, ranks, flags = variants()[name]
        groups.setdefault((tuple(pairs), name.startswith("slices")), []).append((name, ranks, flags))
    bad = compare("stated", groups, describe)
    print(f"recurrences: {len(names)} variants of {len(PAIRS)} texts, {bad} groups failed")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
