"""Kernels of a program by overlap degree.

    kernels_per_degree.py MODEL.json [BATCH]    (braid-compile from the PATH)

Slices of all degrees share their kernels; sums over slices are made in groups of four, so only what is left for the last group differs. With several
rows on a rank no slice of keys, values or activations stands next to the one before it.
"""

import re
import subprocess
import sys

LIMIT = 4  # operands of the last group: 2, 3 or 4, alone or fused with what reads the sum


def kernels(model, batch, pipeline, degree):
    mesh = ["--mesh=dp=2,ep=2", f"--pipeline={pipeline}", f"--overlap-degree={degree}", "--seq-len=1024", f"--batch={batch}"]
    module = subprocess.run(["braid-compile", model, "--to-phase=kernels", "-o", "-", *mesh], check=True, capture_output=True, text=True)
    return set(re.findall(r"func\.func @(\w+)\([^\n]*tile\.kernel", module.stdout))


def main():
    failed = 0
    model, batch = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else 2
    for pipeline in ["1A1M", "cross-block"]:
        few, same, many = (kernels(model, batch, pipeline, degree) for degree in (4, 7, 16))
        print(f"{pipeline}: {len(few)} kernels at degree 4, {len(same)} at 7, {len(many)} at 16")
        if not many or same != many:
            failed += 1
            print(f"FAILED only at 7: {sorted(same - many)}, only at 16: {sorted(many - same)}")
        if len(many) > len(few) + LIMIT:
            failed += 1
            print(f"FAILED only at 16: {sorted(many - few)}")
    print(f"kernels per degree, {failed} failed")
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
