#!/usr/bin/python3
"""What braid-plan says of the programs whose steps and tokens a device has been timed with (tools/bundle), beside what it took.

  plans.py RESULTS/<device>.json --cluster CLUSTER.json [--limit=X]

CLUSTER.json: of such devices; one rank of it is planned. Memory is that of the program, times are medians. With --limit the exit status is 1 where a training step is
predicted further away than that share of what was measured, or where the device's file names kernels that no program had. Needs braid-plan in PATH and python3-numpy.
"""
import argparse
import importlib.machinery
import importlib.util
import json
import os
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
NOT_PLANNED = ("--gemm", "--products", "--assembly")  # flags that say how kernels do what is planned, which braid-plan does not have


def load_bundle():
    sys.dont_write_bytecode = True
    sys.path[:0] = [os.path.join(ROOT, "test", "numerics"), os.path.join(ROOT, "tools", "dev")]
    loader = importlib.machinery.SourceFileLoader("bundle", os.path.join(ROOT, "tools", "bundle"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("bundle", loader))
    loader.exec_module(module)
    return module


def plan(description, cluster, *flags):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(description, file)
        done = subprocess.run(["braid-plan", path, "--cluster", cluster, "--mesh=dp=1", "--json", *flags], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr)
    return json.loads(done.stdout)


def timed(bundle):
    """(item, description, flags, whether it trains) of what bundles time."""
    taken = []
    for text in bundle.TRAIN:
        item, description, _, flags = bundle.training_of(text, taken)
        taken.append(item)
        if not any(flag.startswith(NOT_PLANNED) for flag in flags):
            yield item, description, flags, True
    for text in bundle.DECODE:
        name, description, sequences, _ = bundle.decoding_of(text)
        yield f"decode/{name}", description, [f"--entry=decode_{sequences}"], False


def unknown_kernels(cluster, kernels):
    """What a device's file says of kernels that begin so, and none does."""
    text = lambda path: json.loads("\n".join(line for line in open(path, encoding="utf-8").read().splitlines() if not line.lstrip().startswith("//")))
    device = text(cluster)["device"]
    if isinstance(device, str):
        device = text(os.path.join(os.path.dirname(cluster), device))
    return [begin for begin in device.get("kernels", {}) if not any(kernel.startswith(begin) for kernel in kernels)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results")
    parser.add_argument("--cluster", required=True)
    parser.add_argument("--limit", type=float)
    arguments = parser.parse_args()
    with open(arguments.results, encoding="utf-8") as file:
        results = json.load(file)
    print("| item | commit | measured, ms | planned, ms | planned / measured | memory, GiB |\n|---|---|---:|---:|---:|---:|")
    steps, beyond = 0, []
    for item, description, flags, trains in timed(load_bundle()):
        times = results["items"].get(item, {}).get("times")
        if not times:
            continue
        measured = next(iter(times.values()))["ms"]  # of tokens: behind the fewest
        planned = plan(description, arguments.cluster, *flags)
        share = 1e3 * planned["step"]["time"] / measured
        print(f"| {item} | {results['items'][item]['commit'][:7]} | {measured:.4g} | {1e3 * planned['step']['time']:.4g} | {share:.3f} | {planned['memory']['bytes_per_rank'] / 2**30:.1f} |")
        steps += trains
        if trains and arguments.limit and abs(share - 1) > arguments.limit:
            beyond.append(item)
    unknown = unknown_kernels(arguments.cluster, results["kernels"])
    print(f"\n{steps} steps, {len(beyond)} further away than {arguments.limit}{': ' + ', '.join(beyond) if beyond else ''}" if arguments.limit else f"\n{steps} steps")
    if unknown:
        print(f"no program had kernels {', '.join(unknown)}")
    return 1 if not steps or beyond or (unknown and arguments.limit) else 0


if __name__ == "__main__":
    sys.exit(main())
