"""What the scripts of this folder share: times by the device's own events, errors, and a file of results.

A row: {"benchmark": the label that tools/gpu-check gives the same work, where it has the same, "peer", "ms": median, "spread_ms": distance of the quartiles, "rounds",
"error": relative, L2, against float64, of a small case of the same function; or "failed": why there is no time}.
"""

import argparse
import json
import math
import os
import statistics
import sys
import time

import torch

ROUNDS, WARM = 20, 3


def arguments(description, check_on_cpu=False, **more):
    """Exits where there is no GPU that what is asked for needs."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--output", default="peers.json", help="JSON file that rows are added to; a row of the same benchmark and peer is replaced")
    parser.add_argument("--only", default="", help="labels that hold this text")
    parser.add_argument("--warm", action="store_true", help="everything once and nothing timed: fills the caches of compilers")
    where = ", on a CPU where there is no GPU" if check_on_cpu else ""
    parser.add_argument("--check", action="store_true", help=f"what is compared with float64 is, and nothing is timed or written{where}; exit status 1 if anything is wrong")
    for name, default in more.items():
        parser.add_argument(f"--{name}", type=lambda text: [int(n) for n in text.split(",")], default=default)
    options = parser.parse_args()
    if not torch.cuda.is_available() and not (options.check and check_on_cpu):
        valid = "--check, which times nothing" if check_on_cpu else "a machine with a GPU, and a PyTorch that its driver can run"
        sys.exit(f"{parser.prog}: PyTorch {torch.__version__} finds no GPU to use; valid: {valid}")
    return options


def measured(call):
    """-> median, spread and rounds of a function whose work is on the device; everything is compiled and warm before."""
    for _ in range(WARM):
        call()
    torch.cuda.synchronize()
    ends = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(ROUNDS)]
    for begin, end in ends:
        begin.record()
        call()
        end.record()
    torch.cuda.synchronize()
    ordered = sorted(begin.elapsed_time(end) for begin, end in ends)
    quarter = len(ordered) // 4
    return {"ms": statistics.median(ordered), "spread_ms": ordered[-1 - quarter] - ordered[quarter], "rounds": ROUNDS}


def relative_error(values, wanted):
    values, wanted = values.detach().double().cpu(), wanted.detach().double().cpu()
    error = float((values - wanted).norm() / wanted.norm())
    return error if math.isfinite(error) else math.inf


class Results:
    def __init__(self, options, peer):
        self.path, self.peer, self.only, self.warm, self.check = options.output, peer, options.only, options.warm, options.check
        self.device = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
        self.status = 0

    def add(self, benchmark, call, error=None, limit=None, flops=None):
        """Times call(), unless error() says that it computes something else."""
        if self.only not in benchmark:
            return
        if self.check:
            self.compare(benchmark, error, limit)
            return
        row = {"benchmark": benchmark, "peer": self.peer, "device": self.device, "date": time.strftime("%Y-%m-%d", time.gmtime())}
        try:
            if error:
                row["error"] = error()
                if not row["error"] <= limit:
                    raise RuntimeError(f"off by {row['error']:.2g}, limit {limit:.2g}: no time counts")
            if self.warm:
                call()
                torch.cuda.synchronize()
                print(f"warm {benchmark}", flush=True)
                return
            row |= measured(call)
            if flops:
                row["tflops"] = 1e-9 * flops / row["ms"]
        except Exception as failure:  # whatever a peer raises
            row["failed"] = " ".join(str(failure).split())[:300]
        print(json.dumps(row), flush=True)
        self.write(row)
        if "failed" in row:
            self.recover()

    def recover(self):
        """Memory of what failed is free again; exits where the failure was the end of this process's use of the device."""
        try:
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
        except RuntimeError as error:
            sys.exit(f"the device does nothing more for this process: {' '.join(str(error).split())[:200]}; valid: the rest by --only")

    def compare(self, benchmark, error, limit):
        if not error:
            return
        try:
            found = error()
            right, words = found <= limit, f"off by {found:.2g}, limit {limit:.2g}"
        except Exception as failure:  # whatever a peer raises
            right, words = False, " ".join(str(failure).split())[:300]
        self.status |= not right
        print(f"{'right' if right else 'WRONG'} on {self.device}: {benchmark}: {words}", flush=True)

    def write(self, row):
        rows = []
        if os.path.exists(self.path):
            with open(self.path, encoding="utf-8") as file:
                rows = json.load(file)
        rows = [r for r in rows if (r["benchmark"], r["peer"]) != (row["benchmark"], row["peer"])]
        with open(self.path + ".new", "w", encoding="utf-8") as file:
            file.write(json.dumps([*rows, row], indent=1) + "\n")
        os.replace(self.path + ".new", self.path)
