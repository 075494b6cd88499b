"""The table of linear sequence models in test/README.md: instance x property, from the compiler and from the tests that exist.

family.py ROOT     compares; family.py ROOT --print shows the table as it should be

The class is what the compiler made of the instance's first model file; a property is a test that runs it.
"""

import json
import pathlib
import re
import subprocess
import sys

CLASSES = "I S0 S V H GH D R E G1 GM N".split()
INNER = ("G1", "GM", "N")


def description(path):
    return json.loads(re.sub(r'("(?:[^"\\]|\\.)*")|//[^\n]*', lambda m: m.group(1) or "", path.read_text(encoding="utf-8")))


def scans(path):
    """Letter of a mixer -> classes of its scans, after the classifier."""
    command = ["braid-compile", str(path), "--to-phase=train", "-o", "-"]
    text = subprocess.run(command, capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL).stdout
    found = {}
    for letter, body in re.findall(r"func\.func private @layer_(\w)_\w_\d+x\d+_train\((.*?)\n  }", text, re.DOTALL):
        classes = set(re.findall(r"braid\.lsm\.scan (\w+)", body))
        for operands in re.findall(r"braid\.lsm\.inner_step (.*) :", body):  # their class is what they read
            several = "log_momentum(" in operands or "read_rate(" in operands
            classes.add("N" if "norm(" in operands else "GM" if several else "G1")
        found.setdefault(letter, sorted(classes, key=CLASSES.index))
    return found


def table(root):
    rows = {}
    for path in sorted((root / "models").glob("tiny-*.json"), key=lambda p: (p.stem == "tiny-f64", p.stem)):
        mixers = description(path)["mixers"]
        kinds = {letter: m["kind"] for letter, m in mixers.items() if m["kind"] not in ("attention", "recurrence", *rows)}
        if not kinds:
            continue
        classes = scans(path)
        for letter, kind in kinds.items():
            rows[kind] = (classes[letter], path.name)
    lines = ["| instance | class | in chunks | op | model | model file |", "|---|---|---|---|---|---|"]
    for kind, (classes, file) in sorted(rows.items()):
        ops = sorted({"`inner`" if c in INNER else f"`scan-{c.lower()}`" for c in classes})
        tests = ops, f"`mixer-{kind.replace('_', '-')}`"
        for name in (*tests[0], tests[1]):
            if not (root / "test" / "numerics" / f"{name[1:-1]}.test").exists():
                raise RuntimeError(f"{kind} of class {classes} has no test {name}")
        form = "walk" if "E" in classes else "matrices"
        lines.append(f"| {kind} | {', '.join(classes)} | {form} | {', '.join(tests[0])} | {tests[1]} | `{file}` |")
    return lines


def main(root, option=""):
    lines = table(pathlib.Path(root))
    if option == "--print":
        print("\n".join(lines))
        return 0
    readme = (pathlib.Path(root) / "test" / "README.md").read_text(encoding="utf-8").splitlines()
    missing = [line for line in lines if line not in readme]
    for line in missing:
        print(f"FAILED test/README.md has no line: {line}")
    print(f"{len(lines) - 2} instances, {len(missing)} lines missing")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
