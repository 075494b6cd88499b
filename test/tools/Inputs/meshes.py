"""Each mesh that `braid-plan meshes` lists is planned as `braid-plan --mesh` plans it alone; the fastest that fit come first, and all of some ranks are there.

Usage: meshes.py MODEL.json CLUSTER.json FLAG..; needs braid-plan in PATH.
"""
import json
import re
import subprocess
import sys

failures = 0


def check(what, good, detail=""):
    global failures
    failures += not good
    print(f"{'ok  ' if good else 'FAIL'} {what} {detail}")


def run(*command):
    return subprocess.run(list(map(str, command)), capture_output=True, text=True)


def tokens_of_a_row(model):
    with open(model, encoding="utf-8") as file:
        return int(re.search(r'"seq_len": (\d+)', file.read())[1])  # with comments


def main(model, cluster, *flags):
    listed = run("braid-plan", "meshes", model, "--cluster", cluster, "--json", *flags)
    if listed.returncode:
        sys.exit(listed.stderr)
    plan = json.loads(listed.stdout)
    others = [line for line in listed.stderr.splitlines() if not re.fullmatch(r"braid-plan: \d+ of \d+ meshes( in other micro-batches)?", line)]  # of a search that is long
    check("says nothing else", not others, others)
    meshes = plan["meshes"]
    names = [mesh["mesh"] for mesh in meshes]
    check("each once", len(set(names)) == len(names), len(names))
    planned = [mesh for mesh in meshes if "refused" not in mesh]
    fit = [mesh for mesh in planned if mesh["fits"]]
    check("some fit", fit, f"{len(fit)} of {len(planned)}, {len(meshes) - len(planned)} refused")
    check("order", meshes == sorted(fit, key=lambda m: m["time"]) + sorted((m for m in planned if not m["fits"]), key=lambda m: m["bytes_per_rank"]) + [m for m in meshes if "refused" in m])
    for mesh in planned:
        alone = run("braid-plan", model, "--cluster", cluster, "--json", *mesh["flags"].split())
        alone = json.loads(alone.stdout)
        seconds, tokens = alone["step"]["time"], alone["step"]["tokens"]
        if not alone["step"]["update"]:  # a step is several batches and the update
            update = json.loads(run("braid-plan", model, "--cluster", cluster, "--json", "--entry=update_step", *mesh["flags"].split()).stdout)
            batches = int(next(flag for flag in flags if flag.startswith("--accumulation-steps=")).split("=")[1])
            seconds, tokens = batches * seconds + update["step"]["time"], batches * tokens
            whole = alone["whole_step"]
            check(f"{mesh['flags']}: whole step", (whole["batches"], whole["tokens"]) == (batches, tokens) and abs(whole["time"] / seconds - 1) < 1e-12, whole["time"])
        near = abs(seconds / mesh["time"] - 1) < 1e-12 and abs(tokens / seconds / mesh["tokens_per_second"] - 1) < 1e-9
        check(f"{mesh['flags']}: time and tokens", near, f"{mesh['time']:.4g} s")
        check(f"{mesh['flags']}: bytes and ranks", (alone["memory"]["bytes_per_rank"], alone["memory"]["fits"], alone["ranks"]) == (mesh["bytes_per_rank"], mesh["fits"], plan["ranks"]))
    # Micro-batches that nobody asked for: no fewer and no more are better, one step away.
    most = 2 * meshes[0].get("time", 0)
    searched = [mesh for mesh in planned if "pp=" in mesh["mesh"] and (mesh["fits"] and mesh["time"] <= most or not fit)] if not any(flag.startswith("--micro-batches") for flag in flags) else []
    for mesh in searched:
        words = mesh["flags"].split()
        number = int(next(word for word in words if word.startswith("--micro-batches=")).split("=")[1])
        others = [word for word in words if not word.startswith(("--micro-batches=", "--stage-layers=", "--head-stages="))]
        rows = json.loads(run("braid-plan", model, "--cluster", cluster, "--json", *words).stdout)["step"]["tokens"] // tokens_of_a_row(model)
        parts = dict(part.split("=") for part in mesh["mesh"].split(","))
        numbers = [n for n in range(1, int(rows) + 1) if rows // int(parts.get("dp", 1)) % n == 0]
        at = numbers.index(number)
        for near in numbers[max(at - 1, 0):at] + numbers[at + 1:at + 2]:
            alone = run("braid-plan", model, "--cluster", cluster, "--json", *others, f"--micro-batches={near}")
            if alone.returncode:
                check(f"{mesh['mesh']}: {near} micro-batches are refused", "--gradient-dtype=bf16" in flags and "micro_batches add up" in alone.stderr, alone.stderr)
                continue
            alone = json.loads(alone.stdout)
            # What does not fit is better where it needs less.
            fits, memory = alone["memory"]["fits"], alone["memory"]["bytes_per_rank"]
            worse = (not fits, alone["step"]["time"] if fits else memory) >= (not mesh["fits"], mesh["time"] if mesh["fits"] else mesh["bytes_per_rank"])
            check(f"{mesh['mesh']}: {number} micro-batches, not {near}", worse, f"{mesh['time']:.4g} s and {mesh['bytes_per_rank']} bytes, not {alone['step']['time']:.4g} and {memory}")
        print(f"searched {mesh['mesh']}: {number} of {numbers}")
    for mesh in (mesh for mesh in meshes if "refused" in mesh):
        alone = run("braid-plan", model, "--cluster", cluster, *(f for f in flags if not f.startswith(("--axes", "--ranks"))), f"--mesh={mesh['mesh']}")
        check(f"{mesh['mesh']} is refused alone, too", alone.returncode == 1 and mesh["refused"] in alone.stderr, mesh["refused"])
    print(f"{failures} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
