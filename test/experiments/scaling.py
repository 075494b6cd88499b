#!/usr/bin/env python3
"""Strong scaling of one training step over real processes behind shaped links: the same batch on 1, 2 and 4 ranks, each axis
alone, each algorithm of sequence parallelism; bytes on the wire, exposed time and efficiency next to what braid-plan says.

Where ranks share cores, bytes and losses say something and times do not: such ranks run one round, and the table says so.

  test/experiments/scaling.py [--model M.json] [--ranks 1,2,4] [--only "dp,sp ring"] [--rate BITS_PER_SECOND] [--rounds N] [--steps N] [--output DIR]
"""
import json
import sys

import experiment
from experiment import Measured, milliseconds
from network import Network

MODEL = experiment.ROOT / "test/benchmark/models/linear-256.json"


def variants(ranks):
    """(name, options of braid-compile): the same tokens on every mesh."""
    yield "dp", [f"--mesh=dp={ranks},ep=1"]
    yield "dp with ep", [f"--mesh=dp={ranks},ep={ranks}"]
    yield "tp", [f"--mesh=tp={ranks}"]
    for algorithm in ("ring", "all_gather", "scan"):
        yield f"sp {algorithm}", [f"--mesh=sp={ranks}", f"--sp-algorithm={algorithm}"]


def add_arguments(parser):
    parser.add_argument("--model", default=str(MODEL))
    parser.add_argument("--ranks", default="1,2,4", help="one rank is always measured")
    parser.add_argument("--only", help="these variants, comma-separated")
    parser.add_argument("--rate", type=float, default=1e9, help="of a link, bits per second in each direction")


def measure(test, arguments, machine):
    counts = sorted({int(n) for n in arguments.ranks.split(",")} - {1})
    if not counts:
        sys.exit(f"--ranks={arguments.ranks}: one rank is measured beside others; valid: 2 or more among them")
    wanted = arguments.only.split(",") if arguments.only else [name for name, _ in variants(2)]
    if unknown := set(wanted) - {name for name, _ in variants(2)}:
        sys.exit(f"there is no variant {', '.join(sorted(unknown))}; valid: {', '.join(name for name, _ in variants(2))}")
    test.compile("1", arguments, ["--mesh=dp=1"])
    result = {"machine": machine, "model": arguments.model.rsplit("/", 1)[-1],
              "tokens": test.plan("1", test.cluster(1))["step"]["tokens"], "link_bits_per_second": arguments.rate, "variants": []}
    alone = Measured()
    for _ in range(arguments.rounds):
        test.train("1", 1, arguments.steps, measured=alone)
    base = sorted(alone.steps)[len(alone.steps) // 2]
    test.calibrate("1", base)
    result |= {"one_rank_seconds": base, "efficiency": test.efficiency}

    for ranks in counts:
        shared = ranks > result["machine"]["cores"]
        names = {}
        for name, options in variants(ranks):
            if name not in wanted:
                continue
            names[name] = f"{name}-{ranks}".replace(" ", "-")
            test.compile(names[name], arguments, options)
        with Network(ranks, arguments.rate) as net:
            probed = net.probe(test.bin / "braid-run")
            result.setdefault("link_probed", probed)
            found = {name: Measured() for name in names}
            for _ in range(1 if shared else arguments.rounds):
                for name, program in names.items():
                    test.train(program, ranks, arguments.steps, net, found[name], traced=True)
        for name, program in names.items():
            step = test.plan(program, test.cluster(ranks, probed))["step"]
            sent = sum(axis["bytes"] for axis in step.get("communication", []))
            # More ranks than cores share them: the best there is takes that much longer.
            cores = min(ranks, result["machine"]["cores"])
            row = {"name": name, "ranks": ranks, "shares_cores": shared} | found[name].report() | experiment.difference(found[name], alone)
            row |= {"efficiency": base / (cores * row["step_seconds"]), "loss": found[name].losses[-1],
                    "one_rank_loss": alone.losses[-1],
                    "predicted": {"step_seconds": step["time"], "exposed_seconds": step["exposed_comm"],
                                  "bytes_per_step_and_rank": sent, "efficiency": base / (ranks * step["time"])}}
            result["variants"].append(row)
    return {"scaling.json": json.dumps(result, indent=1) + "\n", "scaling.md": text(result)}


def text(result):
    rows = []
    for v in result["variants"]:
        p = v["predicted"]
        rows.append([v["name"], v["ranks"], f"{milliseconds(v['step_seconds'])} ({milliseconds(v['fastest'])} to {milliseconds(v['slowest'])})",
                     milliseconds(p["step_seconds"]), f"{v['bytes_per_step_and_rank'] / 1e6:.2f}",
                     f"{p['bytes_per_step_and_rank'] / 1e6:.2f}", milliseconds(v["exposed_seconds"]), milliseconds(p["exposed_seconds"]),
                     f"{v['efficiency']:.0%}", f"{p['efficiency']:.0%}"])
        if v["shares_cores"]:
            rows[-1][2] += " *"
    m = result["machine"]
    head = ["axis", "ranks", "step, ms (fastest to slowest)", "predicted", "sent, MB a rank", "predicted", "exposed, ms", "predicted",
            "efficiency", "predicted"]
    link = result["link_probed"]
    return (f"# Scaling of {result['model']}, {result['tokens']:.0f} tokens a step\n\n"
            f"Commit {m['commit']}, {m['processor']}, {m['cores']} cores, load {m['load_before']:.1f} before, {m['rounds']} rounds of {m['steps']} steps. Links of "
            f"{result['link_bits_per_second'] / 1e9:g} Gbit/s: {link['bandwidth'] / 1e6:.0f} MB/s and {link['latency'] * 1e6:.0f} us "
            f"by `braid-run probe`. One rank, one core: {milliseconds(result['one_rank_seconds'])} ms a step, which is "
            f"{result['efficiency']:.2f} times the rates of `2x-cpu.json`.\n\n" + experiment.table(head, rows) +
            ("\n\\* More ranks than cores, one round: bytes count, times are those of ranks that take turns.\n"
             if any(v["shares_cores"] for v in result["variants"]) else ""))


if __name__ == "__main__":
    experiment.main(__doc__, add_arguments, measure)
