#!/usr/bin/env python3
"""What weaving gains: training steps of two real processes behind a shaped link, every pipeline at every degree, in turn, next to
what braid-plan says, for links of which the exchange of experts takes a part, all and twice the time of computing.

  test/experiments/overlap.py [--pipelines none,moe,aAaM,1A1M,..] [--degrees 1,2,4,8] [--ratios 0.5,1,2] [--curve-steps N]

`ratio` is communication over computation of the step without overlap, by braid-plan; the link's rate is chosen for it, by what the machine
computes and what the link carries at that time. At 1, where the aims are, links are chosen again should the machine have changed under way;
the others get one round fewer. Every program's losses are compared with those of one rank.
"""
import json
import statistics

import experiment
from experiment import Measured, milliseconds
from network import Network
from timeline import overlay

MODEL = experiment.ROOT / "test/experiments/models/weave.json"
RANKS = 2
FASTEST = 2.5e9  # bits per second that tbf still shapes honestly beside two busy cores
SLOWEST = 2e7
EQUAL = 0.05  # communication is "about equal" to computation


def add_arguments(parser):
    parser.add_argument("--model", default=str(MODEL))
    parser.set_defaults(steps=6)
    parser.add_argument("--pipelines", default="moe,aAaM,1A1M,cross-block", help="aAaM in two slices is 1A1M and is not run beside it")
    parser.add_argument("--degrees", default="2,4,8")
    parser.add_argument("--ratios", default="0.5,1,2", help="communication over computation without overlap")
    parser.add_argument("--drawn", default="1A1M-4", help="pipeline and degree of which planned and actual timeline are drawn")
    parser.add_argument("--curve-steps", type=int, default=0, help="also train the drawn program and the one without overlap that long")


def exchange_of(step):
    return sum(axis["time"] for axis in step["communication"])


def ratio_of(test, probed):
    """What `none` exchanges over what it computes, by braid-plan."""
    step = test.plan("none", test.cluster(RANKS, probed))["step"]
    return exchange_of(step) / step["compute_busy"]


def link_for(test, ratio, probed):
    """Bits per second at which what `none` exchanges takes `ratio` times as long as what it computes."""
    step = test.plan("none", test.cluster(RANKS, probed))["step"]
    endless = test.plan("none", test.cluster(RANKS, probed | {"bandwidth": 1e15}))["step"]
    latencies = exchange_of(endless)
    return 8 * probed["bandwidth"] * (exchange_of(step) - latencies) / max(ratio * step["compute_busy"] - latencies, 1e-9)


def choose_link(test, arguments, ratio):
    """The same, for the machine as fast as it is now: steps without a link, the probe of a fast link, and that of the chosen one, which
    carries a little less than its rate."""
    computing = [seconds for _ in range(2) for seconds in test.train_beside("rank", RANKS, arguments.steps)]
    test.calibrate("rank", statistics.median(computing))
    with Network(RANKS, 1e9) as net:
        bits = link_for(test, ratio, net.probe(test.bin / "braid-run", seconds=1))
    for _ in range(2):
        if not SLOWEST <= bits <= FASTEST:
            print(f"ratio {ratio:g} would need a link of {bits / 1e9:.3g} Gbit/s; honest here: {SLOWEST / 1e9:g} to {FASTEST / 1e9:g}")
            return min(max(bits, SLOWEST), FASTEST)
        with Network(RANKS, bits) as net:
            bits *= ratio_of(test, net.probe(test.bin / "braid-run", seconds=1)) / ratio
    return min(max(bits, SLOWEST), FASTEST)


def run_link(test, arguments, names, bits, rounds, alone):
    """Every program, in turn, behind links of this rate: what the results say of it, and what was measured."""
    with Network(RANKS, bits) as net:
        probed = net.probe(test.bin / "braid-run")
        found, computing = {name: Measured() for name in names}, []
        for number in range(rounds):
            computing += test.train_beside("rank", RANKS, arguments.steps)
            for name in names:
                test.train(name, RANKS, arguments.steps, net, found[name], traced=number + 1 == rounds)
    # As fast as the machine was between these runs.
    test.calibrate("rank", statistics.median(computing))
    cluster = test.cluster(RANKS, probed)
    link = {"bits_per_second": bits, "rounds": rounds, "probed": probed, "efficiency": test.efficiency, "predicted_ratio": ratio_of(test, probed),
            "programs": []}
    plain, planned = statistics.median(found["none"].steps), test.plan("none", cluster)["step"]
    for name, (pipeline, degree) in names.items():
        step = test.plan(name, cluster)["step"]
        row = {"pipeline": pipeline, "degree": degree} | found[name].report() | experiment.difference(found[name], alone)
        row |= {"gain": plain / row["step_seconds"],
                "predicted": {"step_seconds": step["time"], "exposed_seconds": step["exposed_comm"], "gain": planned["time"] / step["time"]}}
        link["programs"].append(row)
    return link, found, cluster


def measure(test, arguments, machine):
    names = {"none": ("none", 1)}
    for pipeline in arguments.pipelines.split(","):
        for degree in map(int, arguments.degrees.split(",")):
            if pipeline == "aAaM" and degree == 2 and "1A1M" in arguments.pipelines.split(","):
                continue  # the same order
            names[f"{pipeline}-{degree}"] = (pipeline, degree)
    for name, (pipeline, degree) in names.items():
        options = [] if pipeline == "none" else [f"--pipeline={pipeline}", f"--overlap-degree={degree}"]
        test.compile(name, arguments, [f"--mesh=dp={RANKS},ep={RANKS}", *options])
    test.compile("1", arguments, ["--mesh=dp=1"])
    test.compile("rank", arguments, ["--mesh=dp=1"], ranks=RANKS)
    result = {"machine": machine, "model": arguments.model.rsplit("/", 1)[-1], "ranks": RANKS, "links": []}
    alone = test.train("1", 1, arguments.steps)
    drawing = None
    for ratio in map(float, arguments.ratios.split(",")):
        equal = ratio == 1  # what the aims are about
        bits = choose_link(test, arguments, ratio)
        link, found, cluster = run_link(test, arguments, names, bits, arguments.rounds - (not equal and arguments.rounds > 1), alone)
        better = min(max(bits * link["predicted_ratio"], SLOWEST), FASTEST)
        if equal and abs(link["predicted_ratio"] - 1) > EQUAL and better != bits:
            print(f"ratio was {link['predicted_ratio']:.2f}: the machine is not as fast as when the link was chosen; once more")
            again = run_link(test, arguments, names, better, arguments.rounds, alone)
            if abs(again[0]["predicted_ratio"] - 1) < abs(link["predicted_ratio"] - 1):
                link, found, cluster = again
        result["links"].append({"ratio": ratio} | link)
        if arguments.drawn in names and (drawing is None or equal):
            trace = test.folder / "plan.json"
            test.plan(arguments.drawn, cluster, "--trace", trace)
            drawing = overlay(f"{arguments.drawn}, communication {link['predicted_ratio']:.2f} x computation", json.loads(trace.read_text()),
                              found[arguments.drawn].events)
    if arguments.curve_steps:
        result["curves"] = curves(test, arguments, arguments.drawn)
    texts = {"overlap.json": json.dumps(result, indent=1) + "\n", "overlap.md": text(result)}
    return texts | ({"overlap.svg": drawing} if drawing else {})


def curves(test, arguments, name):
    """Losses of both programs on the same data, as threads."""
    losses = {}
    for program in ("none", name):
        metrics = test.folder / "curve.jsonl"
        metrics.unlink(missing_ok=True)
        test.run("braid-run", "train", test.programs[program], "--ranks", RANKS, "--data", test.text, "--steps", arguments.curve_steps,
                 "--metrics", metrics)
        losses[program] = [json.loads(line)["loss"] for line in metrics.read_text().splitlines()]
    difference = [abs(a - b) for a, b in zip(losses["none"], losses[name])]
    first = next((i + 1 for i, d in enumerate(difference) if d > 0), None)
    return {"program": name, "steps": arguments.curve_steps, "first_step_that_differs": first, "largest_difference": max(difference),
            "last_losses": {k: statistics.mean(v[-10:]) for k, v in losses.items()}}


def text(result):
    m = result["machine"]
    parts = [f"# Overlap on {result['ranks']} ranks: {result['model']}\n\nCommit {m['commit']}, {m['processor']}, {m['cores']} cores, load "
             f"{m['load_before']:.1f} before, trainings of {m['steps']} steps. Gain: the step without overlap over this step.\n"]
    for link in result["links"]:
        parts.append(f"\n## Communication {link['predicted_ratio']:.2f} x computation: links of {link['bits_per_second'] / 1e6:.0f} Mbit/s, {link['rounds']} rounds\n\n"
                     f"Kernels reach {link['efficiency']:.2f} of the rates of `2x-cpu.json`; probed: {link['probed']['bandwidth'] / 1e6:.0f} MB/s, "
                     f"{link['probed']['latency'] * 1e6:.0f} us, {link['probed']['processor_per_message'] * 1e6:.1f} us of a core for a message and "
                     f"{link['probed']['processor_per_byte'] * 1e9:.2f} ns for a byte.\n\n")
        rows = []
        for p in link["programs"]:
            q = p["predicted"]
            bound = "" if p["degree"] == 1 else f"{2 - 1 / (2 * p['degree']):.2f}"
            rows.append([p["pipeline"], p["degree"], f"{milliseconds(p['step_seconds'])} ({milliseconds(p['fastest'])} to {milliseconds(p['slowest'])})",
                         milliseconds(q["step_seconds"]), milliseconds(p["exposed_seconds"]), milliseconds(q["exposed_seconds"]),
                         f"{p['gain']:.2f}", f"{q['gain']:.2f}", bound, f"{p['loss_difference']:.1e}"])
        parts.append(experiment.table(["pipeline", "degree", "step, ms (fastest to slowest)", "predicted", "exposed, ms", "predicted", "gain",
                                       "predicted", "2 - 1/(2d)", "loss differs by"], rows))
    if c := result.get("curves"):
        parts.append(f"\n## Loss curves\n\n{c['program']} and none over {c['steps']} steps: last ten losses {c['last_losses'][c['program']]:.4f} and "
                     f"{c['last_losses']['none']:.4f}, largest difference {c['largest_difference']:.1e}, equal in every bit "
                     + (f"up to step {c['first_step_that_differs'] - 1}.\n" if c["first_step_that_differs"] else "throughout.\n"))
    return "".join(parts)


if __name__ == "__main__":
    experiment.main(__doc__, add_arguments, measure)
