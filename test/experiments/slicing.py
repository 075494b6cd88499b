#!/usr/bin/env python3
"""What slicing itself costs: training steps of one rank of a mesh on one device, its collectives replaced by copies of its own
buffers, so that nothing is waited for and nothing can be gained. Every degree in turn, next to what braid-plan says of the
commands alone. Losses of all degrees must agree.

  test/experiments/slicing.py [--model M.json] [--pipelines 1A1M,cross-block] [--degrees 2,4,8,16] [--rounds N] [--steps N] [--output DIR]
"""
import json
import statistics

import experiment
from experiment import milliseconds


def add_arguments(parser):
    parser.add_argument("--model", default=str(experiment.ROOT / "test/experiments/models/weave.json"))
    parser.add_argument("--mesh", default="dp=2,ep=2", help="of which one rank is measured")
    parser.add_argument("--pipelines", default="1A1M,cross-block")
    parser.add_argument("--degrees", default="2,4,8,16")
    parser.add_argument("--threads", type=int, default=1, help="of the rank")


def measure(test, arguments, machine):
    names = {"none-1": [f"--mesh={arguments.mesh}", "--overlap-degree=1"]}
    for pipeline in arguments.pipelines.split(","):
        for degree in arguments.degrees.split(","):
            names[f"{pipeline}-{degree}"] = [f"--mesh={arguments.mesh}", f"--pipeline={pipeline}", f"--overlap-degree={degree}"]
    found = {}
    for name, options in names.items():
        test.compile(name, arguments, options)
        found[name] = []
    for _ in range(arguments.rounds):
        for name in names:
            found[name].append(json.loads(test.run("braid-slice-benchmark", test.programs[name], "--steps", arguments.steps, "--threads", arguments.threads)))
    whole, rows = found["none-1"], []
    base = statistics.median(s for run in whole for s in run["seconds"])
    planned = {name: test.plan(name, experiment.CLUSTER)["step"] for name in names}
    for name, runs in found.items():
        seconds = [s for run in runs for s in run["seconds"]]
        rows.append({"pipeline": name.rsplit("-", 1)[0], "degree": int(name.rsplit("-", 1)[1]), "step_seconds": statistics.median(seconds), "fastest": min(seconds), "slowest": max(seconds),
                     "cost": statistics.median(seconds) / base, "planned_cost": planned[name]["compute_busy"] / planned["none-1"]["compute_busy"],
                     "commands": planned[name]["commands"], "loss": runs[0]["losses"][-1],
                     "loss_difference": max(abs(a - b) for run in runs for a, b in zip(run["losses"], whole[0]["losses"]))})
    result = {"machine": machine, "model": arguments.model.rsplit("/", 1)[-1], "mesh": arguments.mesh, "ranks": whole[0]["ranks"], "tokens": whole[0]["tokens"], "threads": whole[0]["threads"],
              "slicing": rows}
    return {"slicing.json": json.dumps(result, indent=1) + "\n", "slicing.md": text(result)}


def text(result):
    rows = [[f"{r['pipeline']}, {r['degree']}", f"{milliseconds(r['step_seconds'])} ({milliseconds(r['fastest'])} to {milliseconds(r['slowest'])})", f"{r['cost']:.3f}", f"{r['planned_cost']:.3f}",
             str(r["commands"]), f"{r['loss_difference']:.1e}"] for r in result["slicing"]]
    m = result["machine"]
    return (f"# What slicing costs: {result['model']}, one of {result['ranks']} ranks ({result['mesh']}), collectives replaced by copies\n\n"
            f"Commit {m['commit']}, {m['processor']}, load {m['load_before']:.1f} before, {m['rounds']} rounds of {m['steps']} steps, {result['tokens']} tokens a step, {result['threads']} "
            f"thread{'s' if result['threads'] > 1 else ''}. *Cost*: over the unsliced step; *planned*: of the commands, by `braid-plan` on `2x-cpu.json`.\n\n" +
            experiment.table(["pipeline, degree", "step, ms (fastest to slowest)", "cost", "planned", "commands", "loss differs by"], rows))


if __name__ == "__main__":
    experiment.main(__doc__, add_arguments, measure, links=False)
