"""Bytes that ranks hand to each other in a training step: exactly those that braid-plan predicts, per axis, on every mesh.

The ranks count what they send (`sent_bytes` of a trace), headers and packets apart; of stages of a pipeline each sends something else, in two entries. Rows of experts follow the routes, which nobody knows before: axes of the
expert view that carry them are left out where experts lie on several ranks.
Usage: sent_bytes.py MODEL.json [mpirun] MESH..: meshes like dp=2,sp=2, with ":ring" behind them an algorithm; needs braid-compile, braid-plan and braid-run in PATH.
"""
import collections
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]


def run(*command):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout


STEP = ("train_step", "accumulate_step", "update_step")


def sent(path):
    """{axis: bytes that all ranks sent over it in the traced step}; processes write a file each, threads one."""
    total = collections.Counter()
    for file in [path, *path.parent.glob(f"{path.stem}.rank*{path.suffix}")]:
        events = json.loads(file.read_text())["traceEvents"]
        streams = {(e["pid"], e["tid"]): e["args"]["name"].rsplit(" ", 1)[-1] for e in events if e["ph"] == "M" and e["name"] == "thread_name"}
        for e in events:
            if e["ph"] == "X" and e["cat"] == "collective" and e["args"]["entry"] in STEP:
                total[streams[e["pid"], e["tid"]]] += e["args"]["sent_bytes"]
    return total


def main(model, *words):
    failures, mpi = 0, words[0] == "mpirun"
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        text = folder / "text.txt"
        text.write_text("the quick brown fox jumps over the lazy dog and on. " * 200)
        lines = (ROOT / "models/clusters/2x-cpu.json").read_text().splitlines()
        cluster = json.loads("\n".join(line for line in lines if not line.lstrip().startswith("//")))
        for word in words[mpi:]:
            mesh, _, algorithm = word.partition(":")
            program, trace = folder / f"{word}.braid", folder / f"{word}.json"
            run("braid-compile", model, "-o", program, "--batch=12", "--seq-len=64", f"--mesh={mesh}", *([f"--sp-algorithm={algorithm}"] if algorithm else []))
            sizes = json.loads(run("braid-run", "info", program, "--json"))["mesh"]
            ranks = 1
            for axis in sizes["dense"]:
                ranks *= axis["size"]
            routed = any(axis["name"] == "ep" and axis["size"] > 1 for axis in sizes["expert"])
            (folder / "cluster.json").write_text(json.dumps(cluster | {"nodes": ranks, "ranks_per_node": 1}))
            plan = json.loads(run("braid-plan", program, "--cluster", folder / "cluster.json", "--json"))["step"]["communication"]
            command = ["braid-run", "train", program, "--data", text, "--steps=2", "--threads=1", "--warmup=1", f"--trace={trace}", "--trace-steps=1"]
            run(*(["mpirun", "-n", ranks, *command] if mpi else [*command, f"--ranks={ranks}"]))
            counted, predicted = sent(trace), {axis["axis"]: axis["bytes"] * ranks for axis in plan}
            if set(counted) != set(predicted) or not any(counted.values()):
                failures += 1
                print(f"FAIL {word}: bytes on {sorted(counted)}, predicted on {sorted(predicted)}")
            for axis in sorted(counted):
                if routed and axis == "ep":
                    continue
                good = abs(counted[axis] - predicted.get(axis, -1)) < 0.5
                failures += not good
                print(f"{'ok  ' if good else 'FAIL'} {word} {axis}: {counted[axis]} bytes, predicted {predicted.get(axis, -1):.1f}")
    print(f"{failures} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
