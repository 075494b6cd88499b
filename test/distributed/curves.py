"""Training curves on meshes stay with that of one rank, also when rounding has long sent tokens to other experts.

The same data, seed and learning rates; f32. What is compared is the loss of every step: the largest distance over how far the one-rank loss has fallen. Where no router
chooses, rounding grows slowly; a token that goes to another expert is seen at once. The curve of another seed is as far away as curves are that do not stay together: it
must be outside of the limit.
Usage: curves.py MODEL.json STEPS LIMIT VARIANT..: variants of ranks_equal.py; needs braid-compile and braid-run in PATH.
"""
import pathlib
import sys
import tempfile

import numpy as np
from ranks_equal import SHAPE, VARIANTS, documents, run, train


def main(model, steps, limit, *variants):
    steps, limit, failures = int(steps), float(limit), 0
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        data = documents(folder)

        def curve(name, ranks, flags, seed=3):
            program = folder / f"{name}.braid"
            run("braid-compile", model, "-o", program, *SHAPE, *flags)
            (folder / name).mkdir()
            return np.array([line["loss"] for line in train(program, ranks, data, steps, folder / name, seed)[0]])

        one = curve("one", 1, [])
        fallen = one[0] - one[-(steps // 3) :].mean()

        def distance(other):
            return np.abs(other - one).max() / fallen

        other = distance(curve("other-seed", 1, [], seed=4))
        failures += other <= limit or fallen < 0.3
        print(f"{'ok  ' if other > limit else 'FAIL'} another seed: {other:.1e} (more than {limit}); the loss falls by {fallen:.2f}")
        for name, ranks, flags in VARIANTS:
            if name in variants:
                found = distance(curve(name, ranks, flags))
                failures += not found <= limit
                print(f"{'ok  ' if found <= limit else 'FAIL'} {name}: {found:.1e} (limit {limit})")
    print(f"{failures} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
