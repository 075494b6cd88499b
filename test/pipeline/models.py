"""Every model of a folder compiles up to its commands; the memory planned for each entry is within a tenth of what must be alive.

    models.py FOLDER [PROGRAM]     (PROGRAM: braid-compile, from the PATH)
"""

import pathlib
import re
import subprocess
import sys
import tempfile

LIMIT = 1.10


def check(path, folder, compiler):
    """-> problems of one model."""
    out = folder / (path.stem + ".mlir")
    done = subprocess.run(
        [compiler, str(path), "--to-phase=commands", "-o", str(out)], capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    if done.returncode:
        return [f"exit status {done.returncode}: {done.stderr.strip()[-500:]}"]
    facts = {}
    with open(out, encoding="utf-8") as file:
        for entry, what, number in re.findall(r'memory\.(\w+)\.(planned|lower_bound)_bytes"? = "(\d+)"', file.read()):
            facts.setdefault(entry, {})[what] = int(number)
    if not {"train_step", "eval_step", "prefill_32", "decode_1"} <= set(facts):
        return [f"says nothing of some entries' memory: {sorted(facts)}"]
    worst = max(facts, key=lambda entry: facts[entry]["planned"] / max(facts[entry]["lower_bound"], 1))
    planned, bound = facts[worst]["planned"], facts[worst]["lower_bound"]
    print(f"{path.name}: {len(facts)} entries, worst @{worst}: {planned} bytes planned, {bound} alive at the worst moment")
    if not 0 < facts["train_step"]["lower_bound"] <= facts["train_step"]["planned"]:
        return [f"@train_step: {facts['train_step']}"]
    return [f"@{worst}: {planned} bytes exceed {bound} by more than a tenth"] if planned > LIMIT * bound else []


def main(folder, compiler="braid-compile"):
    failed = 0
    paths = sorted(pathlib.Path(folder).glob("*.json"))
    with tempfile.TemporaryDirectory() as temporary:
        for path in paths:
            for problem in check(path, pathlib.Path(temporary), compiler):
                failed += 1
                print(f"FAILED {path.name}: {problem}")
    print(f"{len(paths)} models, {failed} failed")
    return 1 if failed or not paths else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
