"""What the experiments share: programs, real trainings behind shaped links, what the traces say, what braid-plan predicts.

Times are of whole training steps, medians over interleaved rounds; every rank has one core and one thread. Predictions know the
machine by two probes only: exchanges over the shaped link (`braid-run probe`), and steps without any link, which set how many times
the cluster file's rates of the device kernels reach (`efficiency`).
"""
import argparse
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile

import network

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools/dev"))
import results
CLUSTER = ROOT / "models/clusters/2x-cpu.json"
MOVED = 0.01  # part of the rows of a step that rounding may send to other experts
WARM = 2  # steps of a training that are not measured


class Measured:
    """Of one program: seconds of steps over all rounds, bytes per step and rank, and from the trace what waited."""

    def __init__(self):
        self.steps, self.bytes, self.exposed, self.communication = [], [], [], []
        self.losses, self.norms, self.choices = [], [], []  # of every step of the last run; `choices`: how many rows each expert of each layer got
        self.data = None  # bytes of data that a rank hands to others in a step, counted by the ranks; `bytes` are what links carried
        self.events = []  # of the traced step of rank 0: (stream, name, begin, end), seconds

    def report(self):
        return {"step_seconds": statistics.median(self.steps), "fastest": min(self.steps), "slowest": max(self.steps),
                "steps": len(self.steps), "bytes_per_step_and_rank": statistics.median(self.bytes), "data_bytes_per_step_and_rank": self.data,
                "exposed_seconds": statistics.median(self.exposed),
                "communication_seconds": statistics.median(self.communication)}


def read(path):
    """A description with lines that are comments."""
    lines = pathlib.Path(path).read_text().splitlines()
    return json.loads("\n".join(line for line in lines if not line.lstrip().startswith("//")))


def lines_of(metrics):
    return [json.loads(line) for line in metrics.read_text().splitlines()]


def seconds_of(metrics):
    """Of all steps but the first."""
    seconds = [line["seconds"] for line in lines_of(metrics)]
    return [after - before for before, after in zip(seconds, seconds[1:])]


def difference(measured, alone):
    """The largest differences of losses and of gradient norms (over the norm), in the steps before one in which a few rows, a hundredth at most, went to
    other experts than in the run of one rank. Where two experts are as good to the last bit, rounding chooses; that token's loss is another, and so is
    every later step. The first step is always compared, by its gradients too."""
    alike = 1
    while alike < len(alone.losses) and not 0 < moved(measured.choices[alike], alone.choices[alike]) <= MOVED:
        alike += 1
    return {"loss_difference": max(abs(a - b) for a, b in zip(measured.losses[:alike], alone.losses)),
            "norm_difference": max(abs(a - b) / b for a, b in zip(measured.norms[:alike], alone.norms)), "steps_alike": alike}


def moved(counts, others):
    """Part of the rows that other experts got."""
    pairs = [(a, b) for layer, other in zip(counts or [], others or []) for a, b in zip(layer, other)]
    return sum(abs(a - b) for a, b in pairs) / 2 / max(1, sum(b for _, b in pairs))


def made_up_text(words=60_000):
    """Sentences of 2000 made-up words, frequent ones first, the same wherever and whenever it runs."""
    draw = random.Random(1)
    syllables = [a + b for a in "bdfghklmnprstvz" for b in "aeiou"]
    lexicon = ["".join(draw.choice(syllables) for _ in range(1 + rank // 400)) for rank in range(2000)]
    text = []
    for i in range(words):
        text.append(lexicon[int(len(lexicon) ** draw.random()) - 1])
        if draw.random() < 0.1:
            text[-1] += "."
    return " ".join(text) + "\n"


class Experiment:
    def __init__(self, build, folder):
        self.bin = pathlib.Path(build).resolve() / "bin"
        self.folder = pathlib.Path(folder)
        self.programs = {}
        self.efficiency = 1.0
        self.text = self.folder / "text.txt"
        self.text.write_text(made_up_text())

    def run(self, program, *words, environment=None, prefix=()):
        done = subprocess.run([*prefix, str(self.bin / program), *map(str, words)], capture_output=True, text=True, check=False,
                              env=dict(os.environ, **(environment or {})))
        if done.returncode != 0:
            raise RuntimeError(f"{program} {' '.join(map(str, words))}\n{done.stderr}")
        return done.stdout

    def compile(self, name, arguments, options, ranks=1):
        """`ranks` > 1: for one rank by itself, with its part of the batch."""
        path = self.folder / f"{name}.braid"
        batch = arguments.batch if ranks == 1 else (arguments.batch or read(arguments.model)["train"]["batch"]) // ranks
        size = [f"--{key}={value}" for key, value in (("batch", batch), ("seq-len", arguments.seq_len)) if value]
        self.run("braid-compile", arguments.model, "-o", path, *size, *options)
        self.programs[name] = path

    def train(self, name, ranks, steps, net=None, measured=None, traced=False):
        """One training; `net` is None for one rank by itself. `traced`: the second step, which does not count, is recorded."""
        metrics, trace = self.folder / "metrics.jsonl", self.folder / "trace.json"
        for old in (metrics, *self.folder.glob("trace*.json")):
            old.unlink(missing_ok=True)
        words = ["train", self.programs[name], "--data", self.text, "--steps", steps, "--metrics", metrics]
        if traced:
            words += ["--trace", trace, "--trace-steps", 1]
        if net is None:
            self.run("braid-run", *words, "--threads", 1, environment={"OMP_NUM_THREADS": "1"}, prefix=("taskset", "-c", "0"))
        else:
            net.sent()
            net.mpirun([self.bin / "braid-run", *words])
        measured = measured if measured is not None else Measured()
        if traced:
            measured.events = events_of(json.loads(trace.read_text()))
            if net is not None:
                measured.data = sent_by_ranks(trace) / ranks
            busy, communication, length = shares(measured.events)
            measured.exposed.append(length - busy)
            measured.communication.append(communication)
        if net is not None:
            measured.bytes.append(statistics.mean(net.sent()) / steps)
        measured.steps += seconds_of(metrics)[WARM - 1:]
        lines = lines_of(metrics)
        measured.losses, measured.norms = [line["loss"] for line in lines], [line["grad_norm"] for line in lines]
        measured.choices = [line.get("expert_counts") for line in lines]
        return measured

    def train_beside(self, name, ranks, steps):
        """Seconds of the steps of a program for one rank that runs on as many cores at once: what ranks compute while
        they share the machine's memory, without a link."""
        running, steps_of = [], []
        for core in range(ranks):
            metrics = self.folder / f"beside-{core}.jsonl"
            metrics.unlink(missing_ok=True)
            words = [self.bin / "braid-run", "train", self.programs[name], "--data", self.text, "--steps", steps, "--metrics", metrics,
                     "--threads", 1]
            running.append((metrics, subprocess.Popen(["taskset", "-c", str(core % os.cpu_count()), *map(str, words)],
                                                      env=os.environ | {"OMP_NUM_THREADS": "1"}, stdout=subprocess.DEVNULL,
                                                      stderr=subprocess.PIPE, text=True)))
        for metrics, process in running:
            _, errors = process.communicate()
            if process.returncode != 0:
                raise RuntimeError(errors)
            steps_of += seconds_of(metrics)[WARM - 1:]
        return steps_of

    def plan(self, name, cluster, *words):
        return json.loads(self.run("braid-plan", self.programs[name], "--cluster", cluster, "--json", *words))

    def cluster(self, ranks, link=None):
        """A cluster file of `ranks` such ranks; `link`: what Network.probe found, without it that of models/clusters/2x-cpu.json."""
        cluster = read(CLUSTER)
        cluster |= {"name": f"{ranks} shaped CPU ranks", "nodes": ranks}
        device = cluster["device"]
        device |= {"efficiency": 1, "bandwidth": device["bandwidth"] * self.efficiency,
                   "cache_bandwidth": device["cache_bandwidth"] * self.efficiency,
                   "flops": {dtype: rate * self.efficiency for dtype, rate in device["flops"].items()}}
        if link:
            cluster["links"]["network"] = link
        path = self.folder / f"cluster-{ranks}-{link['bandwidth'] if link else 0}.json"
        path.write_text(json.dumps(cluster))
        return path

    def calibrate(self, name, seconds):
        """`efficiency` such that the step of one rank takes `seconds`: a part of a prediction is proportional to 1/efficiency."""
        times = []
        for self.efficiency in (1.0, 0.5):
            times.append(self.plan(name, self.cluster(1))["step"]["time"])
        rest = 2 * times[0] - times[1]
        self.efficiency = (times[0] - rest) / max(seconds - rest, 1e-9)


def events_of(trace):
    """What rank 0 did in the traced training step."""
    streams = {e["tid"]: e["args"]["name"] for e in trace["traceEvents"] if e["ph"] == "M" and e["name"] == "thread_name" and e["pid"] == 0}
    events = [(streams[e["tid"]], e["name"], e["ts"] * 1e-6, (e["ts"] + e["dur"]) * 1e-6) for e in trace["traceEvents"]
              if e["ph"] == "X" and e["pid"] == 0 and e["cat"] != "wait" and e.get("args", {}).get("entry") == "train_step"]
    start = min(e[2] for e in events)
    return [(stream, name, begin - start, end - start) for stream, name, begin, end in events]


def sent_by_ranks(path):
    """Bytes of data that the ranks of a run handed to each other in the traced training step: a file for each process, or one of all threads."""
    files = [path, *path.parent.glob(f"{path.stem}.rank*{path.suffix}")]
    return sum(e["args"]["sent_bytes"] for file in files for e in json.loads(file.read_text())["traceEvents"]
               if e["ph"] == "X" and e["cat"] == "collective" and e["args"]["entry"] == "train_step")


def union(intervals):
    total, until = 0.0, 0.0
    for begin, end in sorted(intervals):
        total += max(0.0, end - max(begin, until))
        until = max(until, end)
    return total


def shares(events):
    """Seconds with something on the compute stream, on any other, and of the whole step."""
    compute = union((b, e) for s, _, b, e in events if s == "compute")
    communication = union((b, e) for s, _, b, e in events if s != "compute")
    return compute, communication, max(e[3] for e in events)


def machine(load, arguments):
    """`load`: before this tool did anything."""
    commit = subprocess.run(["git", "-C", str(ROOT), "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True,
                            check=False).stdout.strip() or "unknown"
    return {"commit": commit, "processor": results.processor(), "cores": os.cpu_count(), "load_before": load, "rounds": arguments.rounds, "steps": arguments.steps}


def table(head, rows):
    return "\n".join(results.table(head, rows))


def milliseconds(seconds):
    return f"{seconds * 1e3:.1f}"


def main(description, add_arguments, measure, links=True):
    """Parses the common options, checks that links can be shaped here (unless `links` is false), writes what `measure(experiment, arguments, machine)` returns:
    {file name: text}."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build-dir", default=str(ROOT / "build"))
    parser.add_argument("--output", default=str(ROOT / "test/experiments/results"), help="folder of the results")
    parser.add_argument("--rounds", type=int, default=3, help="how often every program is run, in turn")
    parser.add_argument("--steps", type=int, default=8, help=f"steps of one training; the first {WARM} do not count")
    parser.add_argument("--batch", type=int, help="rows of a step on all ranks, instead of the model's")
    parser.add_argument("--seq-len", type=int, help="tokens of a row, instead of the model's")
    add_arguments(parser)
    arguments = parser.parse_args()
    load = os.getloadavg()[0]
    if arguments.steps <= WARM:
        parser.error(f"--steps {arguments.steps}: more than the {WARM} that do not count")
    if links and (reason := network.missing()):
        sys.exit(f"cannot shape links: {reason}")
    with tempfile.TemporaryDirectory(prefix="braid-experiment-") as folder:
        texts = measure(Experiment(arguments.build_dir, folder), arguments, machine(load, arguments))
    output = pathlib.Path(arguments.output)
    output.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (output / name).write_text(text)
        print(f"wrote {output / name}")
