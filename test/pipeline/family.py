"""The table of linear sequence models in test/README.md: instance x property, from the compiler and from the tests that exist.

family.py ROOT     compares; family.py ROOT --print shows the table as it should be

The class is what the compiler made of the instance's first model file. Every other column is asked of the test that shows it: the cases that it
would run, the descriptions that it compiles. A case that goes changes the table.
"""

import contextlib
import io
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
from unittest import mock

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parents[1] / folder) for folder in ("numerics", "distributed", "reference")]
import numpy

import check_bf16
import check_inner
import check_leaks
import check_mixer
import check_recurrence
import check_scan
import check_threads
import cuda_models
import every_instance
import harness
import inner

CLASSES = "I S0 S V H GH VH D R E G1 GM N".split()
INNER = ("G1", "GM", "N")
COLUMNS = (
    *("instance", "class", "in chunks", "states", "packed", "T / C", "extremes", "op", "model", "decode", "leaks"),
    *("`ring`", "`all_gather`", "`scan`", "`tp`", "slices", "GPU", "threads", "stated", "model file"),
)


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


def recorded(step, add, kind):
    """The cases of an op's test that `add` makes, as (label, tokens, size of chunks, type), without what they would compute."""
    cases, check = set(), step.check

    def record(self, label, *_, **__):
        cases.add((label, self.dims[1], self.mini_batch if step is check_inner.InnerStep else self.chunk, self.dtype))

    step.check = record
    try:
        program = harness.Program("family")
        add(program, kind, numpy.random.default_rng(0))
        shutil.rmtree(program.folder, ignore_errors=True)
    finally:
        step.check = check
    return cases, any(callable(case) for case in program.pending)


def op_cases():
    """Class -> its cases, and whether steps behind a prefill are among them."""
    found = {}
    for kind in CLASSES:
        if kind not in INNER:
            cases, _ = recorded(check_scan.Scan, check_scan.add_scans, kind)
            found[kind] = cases, recorded(check_scan.Scan, check_scan.add_steps, kind)[1]
    for variant in inner.VARIANTS:
        kind = variant.split("-")[0]
        cases, steps = recorded(check_inner.InnerStep, check_inner.add_kind, variant)
        old = found.get(kind, (cases, True))
        # Only what every variant of a class is asked counts.
        found[kind] = {c for c in cases if c in old[0]}, steps and old[1]
    return found


def asked_of_decoding(kind):
    """Whether the test of whole models would compare its decode steps with prefills: its checks, which here do nothing."""
    asked = []
    checks = {name: mock.DEFAULT for name in vars(check_mixer) if name.startswith("check_")}
    with mock.patch.multiple(check_mixer, **checks, CompiledModel=mock.DEFAULT, perturbed=mock.DEFAULT) as mocks, contextlib.redirect_stdout(io.StringIO()):
        mocks["CompiledModel"].return_value.batch.return_value = None, None
        mocks["check_decoding"].side_effect = lambda *arguments, **_: asked.append(arguments)
        check_mixer.main(kind)
    return len(asked) == len(check_mixer.DTYPES)


def for_gpus(root):
    """The descriptions whose kernels the test of GPUs lowers."""
    lines = (root / "test" / "pipeline" / "cuda-models.test").read_text(encoding="utf-8").splitlines()
    folders = re.findall(r"cuda_models\.py %root/(\w+)", "\n".join(line for line in lines if line.split(":")[0] == "RUN"))
    return {path for folder in folders for path in cuda_models.models(root / folder)}


def op_columns(kind, cases, steps):
    labels = {label for label, *_ in cases}
    yes = lambda found: "yes" if found else "-"
    uneven = sorted({f"{tokens} / {chunk}" for label, tokens, chunk, _ in cases if label == "packed" and chunk and tokens > chunk and tokens % chunk})
    return {
        "states": yes(any(label.startswith("continues") for label in labels) and steps),
        "packed": yes("packed" in labels),
        "T / C": uneven[0] if uneven else "-",
        "extremes": "no decay" if kind == "I" else yes(labels & {"decay -500 per token", "decay -500 at some tokens", "identical keys, beta 1", "writes that undo each other"}),
        "types": " ".join(t for t in ("f64", "f32", "bf16") if any(label == "packed" and dtype == t for label, _, _, dtype in cases)),
    }


def table(root):
    instances, files = {}, {}
    for path in sorted((root / "models").glob("tiny-*.json"), key=lambda p: (p.stem == "tiny-f64", p.stem)):
        mixers = description(path)["mixers"]
        kinds = {letter: m["kind"] for letter, m in mixers.items() if m["kind"] not in ("attention", "mla", "recurrence", *files)}
        if not kinds:
            continue
        classes = scans(path)
        for letter, kind in kinds.items():
            instances[kind], files[kind] = classes[letter], path.name
    ops, ranks = op_cases(), every_instance.covers()
    with tempfile.TemporaryDirectory() as folder:
        leaks = check_leaks.Source(folder, "f32").kinds()
    in_bf16 = {check_bf16.MIXERS[letter]["kind"] for layers, *_ in check_bf16.MODELS for letter in layers}
    emulated = (check_threads.MIXERS, check_threads.every_other(), description(root / "models" / "tiny-hybrid.json"))
    threads = {m["kind"] for d in emulated for m in d["mixers"].values()}
    compiled_for_gpus = for_gpus(root)
    pairs = (*check_recurrence.PAIRS.values(), *check_recurrence.NOTATIONS.values())
    stated = {instance["kind"] for instance, _ in pairs if "kind" in instance}
    lines = [f"| {' | '.join(COLUMNS)} |", "|---" * len(COLUMNS) + "|"]
    for kind, classes in sorted(instances.items()):
        names = sorted({"`inner`" if c in INNER else f"`scan-{c.lower()}`" for c in classes})
        for name in (*names, f"`mixer-{kind.replace('_', '-')}`"):
            if not (root / "test" / "numerics" / f"{name[1:-1]}.test").exists():
                raise RuntimeError(f"{kind} of class {classes} has no test {name}")
        op = [op_columns(c, *ops[c]) for c in classes]
        weakest = lambda column: min((columns[column] for columns in op), key=lambda text: (text != "-", text == "no decay", len(text)))
        yes = lambda found: "yes" if found else "-"
        row = {
            "instance": kind,
            "class": ", ".join(classes),
            "in chunks": "walk" if "E" in classes else "matrices",
            **{column: weakest(column) for column in ("states", "packed", "T / C", "extremes")},
            "op": f"{', '.join(names)}: {weakest('types')}",
            "model": " ".join((*check_mixer.DTYPES, *["bf16"] * (kind in in_bf16))) if kind in check_mixer.VARIANTS else "-",
            "decode": yes(kind in check_mixer.VARIANTS and asked_of_decoding(kind)),
            "leaks": "none" if kind in leaks else "-",
            **{f"`{name}`": ranks[kind].get(column, "refused") for name, column in (("ring", "ring"), ("all_gather", "gather"), ("scan", "scan"))},
            "`tp`": ranks[kind].get("heads", "-"),
            "slices": ranks[kind].get("slices", "-"),
            "GPU": "compiled" if root / "models" / files[kind] in compiled_for_gpus else "-",
            "threads": yes(kind in threads),
            "stated": yes(kind in stated),
            "model file": f"`{files[kind]}`",
        }
        lines.append(f"| {' | '.join(row[column] for column in COLUMNS)} |")
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
