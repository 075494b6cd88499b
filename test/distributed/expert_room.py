"""Less room for rows of experts from other ranks changes nothing but memory; where it does not suffice a step ends with an error, before a weight changes.

Trainings in programs with room for all rows that there may be and with --expert-room: losses, weights and moments are the same bits, in any order of slices.
Usage: expert_room.py MODEL.json; needs braid-compile and braid-run in PATH, with mpirun processes, too.
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "numerics"))
from harness import Report, run, tool

MESH, SHAPE = "--mesh=dp=4,ep=4", ["--batch=16", "--seq-len=64"]  # four rows a rank
VARIANTS = {"whole": [MESH], "1A1M-2": [MESH, "--pipeline=1A1M", "--overlap-degree=2"], "cross-3": [MESH, "--pipeline=cross-block", "--overlap-degree=3", "--recompute=all"],
            "sp2-ep4": ["--mesh=dp=2,sp=2,ep=4"], "etp2": ["--mesh=dp=4,ep=2,etp=2"]}


def train(program, data, folder, *more):
    shutil.rmtree(folder, ignore_errors=True)
    return subprocess.run([tool("braid-run"), "train", program, "--ranks=4", "--data", data, "--steps=3", "--warmup=0", "--checkpoint-dir", folder, *more],
                          capture_output=True, text=True)


def contents(folder):
    return {str(file.relative_to(folder)): file.read_bytes() for file in sorted(folder.rglob("*.safetensors"))}


def planned(program):
    return json.loads(run([tool("braid-run"), "info", program, "--json"]))["memory"]["bytes_per_rank"]


def main(model):
    report = Report("expert-room")
    with report:
        folder = pathlib.Path(report.folder)
        data = folder / "text.txt"
        data.write_text("".join(chr(32 + i * i % 89) for i in range(6000)))
        compiled = lambda name, *flags: (run([tool("braid-compile"), model, "-o", f"{folder}/{name}.braid", *SHAPE, *flags]), folder / f"{name}.braid")[1]
        for name, flags in VARIANTS.items():
            programs = [compiled(f"{name}-{room}", *flags, *([f"--expert-room={room}"] if room else [])) for room in ("", "1.75")]
            results = []
            for program in programs:
                result = train(program, data, folder / "checkpoints")
                report.line(result.returncode == 0, f"{name} trained", result.stderr if result.returncode else "3 steps")
                results.append(contents(folder / "checkpoints"))
            report.line(results[0] == results[1] and len(results[0]) > 0, f"{name}: the same bits", f"{len(results[0])} files")
            before, after = map(planned, programs)
            report.line(after < before, f"{name}: less memory", f"{before} -> {after} bytes")
        # Exactly an even share does not suffice: the step ends, and what was saved before stays.
        small = compiled("small", MESH, "--expert-room=1")
        result = train(small, data, folder / "none")
        said = re.search(r"rank \d: .*moe\.dispatch.*: (\d+) rows of \d+ bytes exceed the block of \d+ bytes, which has room for (\d+); valid: a program with "
                         r"more room for rows of experts \(an --expert-room (\S+) times as large, or more, or none\)", result.stderr)
        rows, room, times = (float(number) for number in said.groups()) if said else (0, 0, 0)
        report.line(result.returncode == 1 and rows > room and rows <= times * room < rows + 0.01 * room, "too little room", result.stderr.splitlines()[-1:])
        report.line(not list(folder.glob("none/step-*")), "too little room: nothing was saved", "")
        if shutil.which("mpirun"):
            command = ["mpirun", "-n", "4", "--oversubscribe", "--allow-run-as-root", tool("braid-run"), "train", small, "--data", data, "--steps=3", "--timeout=30"]
            result = subprocess.run(command, capture_output=True, text=True)
            report.line(result.returncode != 0 and "times as large, or more, or none" in result.stderr, "too little room, processes", result.stderr[-2000:])
    return report.finish()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
