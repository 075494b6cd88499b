"""Recurrences that a file states, on several ranks and in token slices: python3 stated.py VARIANT..

The layers are the texts of all instances, and some of none (numerics/check_recurrence.py); two steps in double precision are those of one rank (exact.py). What the
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
ALL = {letter: pair[1] for letter, pair in check_recurrence.PAIRS.items()}
COMPOSED = {letter: ALL[letter] for letter, pair in check_recurrence.PAIRS.items() if pair[0]["kind"] not in RING_ONLY}
OWN = {letter.lower(): pair[0] for letter, pair in check_recurrence.TWICE.items()}
# More layers than these on top of each other let rounding grow beyond the limits.
FIRST, MORE = ({letter: OWN[letter] for letter in OWN if (letter <= "n") == first} for first in (True, False))
# Of several updates of a token.
SEVERAL = {letter.upper(): pair[0] for letter, pair in check_recurrence.SEVERAL.items()}


def variants():
    """Name -> (texts, ranks, flags)."""
    sliced = ["--mesh=dp=2,ep=2", "--pipeline=1A1M", "--overlap-degree=3"]
    found = {}
    for own, texts in (("", ALL), ("own-", FIRST), ("more-", MORE), ("several-", SEVERAL)):
        found[f"{own}tp2"] = texts, 2, ["--mesh=tp=2"]
        found[f"{own}slices-3"] = texts, 2, sliced
        for ranks in (2, 3):
            for name, algorithm in ALGORITHMS.items():
                flags = [f"--mesh=sp={ranks}", f"--sp-algorithm={algorithm}"]
                found[f"{own}sp{ranks}-{name}"] = COMPOSED if texts is ALL and name != "ring" else texts, ranks, flags
    return found


TEXTS = {tuple(texts): texts for texts in (ALL, COMPOSED, FIRST, MORE, SEVERAL)}


def describe(letters, sliced):
    experts = {"kind": "moe", "num_experts": 4, "top_k": 2, "expert_hidden": 8}
    letter, ffn = ("E", experts) if sliced else ("D", {"kind": "dense", "hidden": 16})
    sizes = {"vocab_size": 32, "context_len": 60, "max_documents": 5, "ffn_pattern": letter, "ffns": {letter: ffn}, "train": {"batch": 4, "seq_len": 60}}
    return check_recurrence.describe(0, "f64", {letter: [text] for letter, text in TEXTS[letters].items()}) | sizes


def main(*names):
    if wrong := set(names) - set(variants()):
        sys.exit(f"there is no variant {', '.join(sorted(wrong))}; valid: {', '.join(variants())}")
    groups = {}
    for name in names:
        texts, ranks, flags = variants()[name]
        groups.setdefault((tuple(texts), "slices" in name), []).append((name, ranks, flags))
    bad = compare("stated", groups, describe)
    print(f"recurrences: {len(names)} variants of {len(ALL)} and {len(OWN) + len(SEVERAL)} texts, {bad} groups failed")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
