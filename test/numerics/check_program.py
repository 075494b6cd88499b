"""Properties of compiled programs: what runs is a generated kernel or a listed library call, kernels know no instance of the
family and no depth, the same call on the same number of threads gives the same bits. python3 check_program.py MODEL.json
"""

import re
import sys

import numpy as np

from harness import Report
from compiled_model import CompiledModel
from model import patterns, read_description

LIBRARY = {"gemm", "grouped_gemm", "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "shift"}
OTHERS = {"copy", "fill", "record", "wait"}
INSTANCES = re.compile(
    r"(^|[^a-z])(bla|retnet|gla|mamba_?2?|(gated_?)?delta_?net|rwkv\d*|hgrn2?|lightning)([^a-z]|$)", re.IGNORECASE
)


def check_commands(report, info):
    for entry in info["entries"]:
        library, others = set(entry["library_calls"]), set(entry["other_commands"])
        unknown = (library - LIBRARY) | (others - OTHERS) | (set(entry["kernels"]) - set(info["kernels"]))
        total = entry["launches"] + sum(entry["library_calls"].values()) + sum(entry["other_commands"].values())
        report.line(
            not unknown and total == entry["executed_commands"],
            f"commands of @{entry['name']}",
            f"{entry['launches']} launches of {len(entry['kernels'])} kernels, library {sorted(library)}, others {sorted(others)}"
            + (f"; not listed: {sorted(unknown)}" if unknown else ""),
        )
    called = set().union(*(e["kernels"] for e in info["entries"]))
    report.line(
        called == set(info["kernels"]),
        "every kernel in the file is called",
        f"{len(info['kernels'])} kernels, unused {sorted(set(info['kernels']) - called)}",
    )
    named = [k for k in info["kernels"] if INSTANCES.search(k)]
    report.line(
        not named,
        "no kernel knows an instance",
        f"{len(info['kernels'])} kernels" + (f"; named {named}" if named else ""),
    )


def check_depth(report, description, small):
    """Two and four times the layers: the same kernels, the same number of commands in the file."""
    pattern = len(patterns(description)[0])
    for factor in (2, 4):
        deep = CompiledModel(
            description | {"num_layers": description["num_layers"] * factor}, report.folder, f"deep{factor}"
        )
        if factor == 2:
            first = deep
            continue
        same = set(first.info["kernels"]) == set(deep.info["kernels"])
        report.line(
            same,
            f"kernels do not depend on depth (pattern of {pattern}, {first.description['num_layers']} and {deep.description['num_layers']} layers)",
            f"{len(first.info['kernels'])} and {len(deep.info['kernels'])}",
        )
        # Initial values are drawn layer by layer: every layer has keys of its own.
        counts = [{e["name"]: e["commands"] for e in m.info["entries"] if e["name"] != "init"} for m in (first, deep)]
        report.line(
            counts[0] == counts[1],
            "commands in the file do not depend on depth",
            f"train_step {counts[0]['train_step']} and {counts[1]['train_step']}",
        )
        grows = [len(set(m.info["kernels"])) for m in (small, deep)]
        report.line(
            grows[1] <= 1.1 * grows[0] + 4,
            "one round of the pattern needs no fewer kernels",
            f"{grows[0]} and {grows[1]}",
        )


def check_bits(report, model, rng):
    weights = model.initial(1)
    batch, _ = model.batch(rng)
    runs = []
    for threads in (1, 1, 2, 2):
        inputs, outputs = model.step_inputs(weights, batch, 1e-3), ["loss", "grad_norm", *model.parameters]
        runs.append(model.program.call("train_step", inputs, outputs, ["--threads", str(threads)]))
    same = [all(np.array_equal(a[n], b[n]) for n in a) for a, b in (runs[:2], runs[2:])]
    report.line(all(same), "same bits", f"1 thread {same[0]}, 2 threads {same[1]}")
    far = max(np.abs(runs[0][n] - runs[2][n]).max() for n in ("loss", "grad_norm"))
    report.line(far < 1e-5, "1 and 2 threads agree", f"loss and grad_norm within {far:.2g}")


def main(path):
    description = read_description(path)
    description["train"] = description["train"] | {"batch": 2, "seq_len": 64}
    report = Report(f"program-{description['name']}")
    with report:
        model = CompiledModel(description, report.folder)
        check_commands(report, model.info)
        check_depth(report, description, model)
        check_bits(report, model, np.random.default_rng(1))
    return report.finish()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
