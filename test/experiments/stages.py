#!/usr/bin/env python3
"""What the order of micro-batches is worth: training steps of a pipeline of ranks that are threads of one process, each with one core, in
1F1B and ZB-H1 in turn, next to what braid-plan says and to one rank with the same micro-batches. Losses of both orders must be equal. With the head
on the last stage and on all, the same, where --head-stages names both.

  test/experiments/stages.py [--model M.json] [--stages 2] [--micro-batches 2,4,8] [--head-stages last,all] [--rounds N] [--steps N] [--output DIR]
"""
import json
import os
import statistics

import experiment
from experiment import Measured, milliseconds

ORDERS = ("1F1B", "ZB-H1")


def add_arguments(parser):
    parser.add_argument("--model", default=str(experiment.ROOT / "test/experiments/models/stages.json"))
    parser.add_argument("--stages", type=int, default=2)
    parser.add_argument("--micro-batches", default="2,4,8")
    parser.add_argument("--head-stages", default="auto")


def train(test, program, ranks, steps, measured):
    metrics = test.folder / "metrics.jsonl"
    metrics.unlink(missing_ok=True)
    test.run("braid-run", "train", test.programs[program], "--ranks", ranks, "--threads", 1, "--data", test.text, "--steps", steps, "--metrics", metrics,
             environment={"OMP_NUM_THREADS": "1"})
    measured.steps += experiment.seconds_of(metrics)[experiment.WARM - 1:]
    lines = experiment.lines_of(metrics)
    measured.losses, measured.norms = [line["loss"] for line in lines], [line["grad_norm"] for line in lines]
    measured.choices = [line.get("expert_counts") for line in lines]


def measure(test, arguments, machine):
    stages, heads = arguments.stages, arguments.head_stages.split(",")
    kinds = [(order, head) for head in heads for order in ORDERS]
    result = {"machine": machine, "model": arguments.model.rsplit("/", 1)[-1], "stages": stages, "shares_cores": stages > os.cpu_count(), "orders": []}
    for parts in map(int, arguments.micro_batches.split(",")):
        names = {"one": [f"--micro-batches={parts}"]} | {f"{order}-{head}": [f"--mesh=pp={stages}", f"--micro-batches={parts}", f"--stage-order={order}", f"--head-stages={head}"] for order, head in kinds}
        found = {name: Measured() for name in names}
        for name, options in names.items():
            test.compile(name, arguments, options)
        for _ in range(arguments.rounds):
            for name, measured in found.items():
                train(test, name, 1 if name == "one" else stages, arguments.steps, measured)
        base = statistics.median(found["one"].steps)
        test.calibrate("one", base)
        # Links of threads are copies in memory.
        plans = {name: test.plan(name, test.cluster(stages, {"bandwidth": 1e10, "latency": 1e-5}))["step"] for name in names if name != "one"}
        plain = f"{ORDERS[0]}-{heads[0]}"
        result["tokens"] = plans[plain]["tokens"]
        first = statistics.median(found[plain].steps)
        for order, head in kinds:
            name, like = f"{order}-{head}", found[f"{ORDERS[0]}-{head}"]
            own, seconds = found[name], statistics.median(found[name].steps)
            result["orders"].append({"order": order, "head_stages": head, "micro_batches": parts, "step_seconds": seconds, "fastest": min(own.steps), "slowest": max(own.steps), "one_rank_seconds": base,
                                     "gain": first / seconds, "efficiency": base / (stages * seconds),
                                     "predicted": {"step_seconds": plans[name]["time"], "gain": plans[plain]["time"] / plans[name]["time"], "bubble": plans[name]["bubble"]},
                                     "same_losses": own.losses == like.losses and own.norms == like.norms} | experiment.difference(own, found["one"]))
    name = "stages" if len(heads) == 1 else "stages-head"
    return {f"{name}.json": json.dumps(result, indent=1) + "\n", f"{name}.md": text(result)}


def text(result):
    heads = len({r["head_stages"] for r in result["orders"]}) > 1
    rows = [[f"{r['order']}, {r['micro_batches']}" + (f", head on {r['head_stages']}" if heads else ""), f"{milliseconds(r['step_seconds'])} ({milliseconds(r['fastest'])} to {milliseconds(r['slowest'])})",
             milliseconds(r["predicted"]["step_seconds"]), f"{r['gain']:.3f}", f"{r['predicted']['gain']:.3f}", f"{r['efficiency']:.0%}", f"{r['predicted']['bubble']:.1%}"]
            for r in result["orders"]]
    m = result["machine"]
    head = ["order, micro-batches", "step, ms (fastest to slowest)", "predicted", "gain", "predicted", "efficiency", "bubble, predicted"]
    return (f"# Orders of micro-batches: {result['model']}, {result['stages']} stages, ranks as threads\n\n"
            f"Commit {m['commit']}, {m['processor']}, {m['cores']} cores, load {m['load_before']:.1f} before, {m['rounds']} rounds of {m['steps']} steps, {result['tokens']:.0f} tokens a step. "
            f"*Gain*: over 1F1B{', head on the last stage' if heads else ''}; *efficiency*: the step of one rank with the same micro-batches over the time of all cores.\n\n" + experiment.table(head, rows) +
            ("\nMore stages than cores: times are those of ranks that take turns.\n" if result["shares_cores"] else ""))


if __name__ == "__main__":
    experiment.main(__doc__, add_arguments, measure, links=False)
