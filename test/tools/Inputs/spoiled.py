"""What compare-traces says of traces that cannot have been: spoiled.py COMPARE_TRACES PLAN.json RUN.json

RUN.json has two ranks in one file. Each case changes a copy of it; its line is the last that compare-traces wrote.
"""
import copy
import json
import os
import subprocess
import sys

compare, plan, path = sys.argv[1:]
run = json.load(open(path, encoding="utf-8"))
rows = {e["tid"]: e["args"]["name"] for e in run["traceEvents"] if e["name"] == "thread_name" and e["pid"] == 0}
folder = os.path.dirname(path)


def of_task(trace, rank, task):
    return [e for e in trace["traceEvents"] if e["pid"] == rank and e["ph"] == "X" and e.get("args", {}).get("task") == task and e["cat"] != "wait"]


def only(rank):
    return run | {"traceEvents": [e for e in run["traceEvents"] if e["pid"] == rank]}


def say(case, *traces):
    files = [os.path.join(folder, f"spoiled{i}.json") for i in range(len(traces))]
    for file, trace in zip(files, traces):
        json.dump(trace, open(file, "w", encoding="utf-8"))
    done = subprocess.run([sys.executable, compare, plan, *files], capture_output=True, text=True, check=False)
    print(f"{case}: {done.returncode}: {(done.stdout + done.stderr).strip().splitlines()[-1]}")


def spoil(case, change):
    trace = copy.deepcopy(run)
    change(trace)
    say(case, trace)


def swap(trace):
    first, second = of_task(trace, 1, "D0.0")[0], of_task(trace, 1, "D0.1")[0]
    first["ts"], second["ts"] = second["ts"], first["ts"]


def long(trace):
    first, second = sorted((e for e in trace["traceEvents"] if e["ph"] == "X" and e["pid"] == 1 and e["tid"] == 0 and e["cat"] != "wait"), key=lambda e: e["ts"])[40:42]
    first["dur"] = second["ts"] - first["ts"] + 0.5


def late(streams):
    def change(trace):
        for e in trace["traceEvents"]:
            if e["ph"] == "X" and e["pid"] == 0 and e["tid"] in streams:
                e["ts"] += 1e6

    return change


spoil("negative", lambda trace: of_task(trace, 0, "M0.1")[0].update(dur=-5))
spoil("infinite", lambda trace: of_task(trace, 0, "M0.1")[0].update(ts=float("inf")))
spoil("words", lambda trace: of_task(trace, 0, "M0.1")[0].update(ts="x"))
spoil("swapped", swap)
spoil("overlapping", long)
spoil("rows come late", late((1, 2)))
spoil("rows leave early", late((0,)))
say("no stream", run | {"traceEvents": [e for e in run["traceEvents"] if e["ph"] != "X" or rows[e["tid"]] != "communication over dp"]})
say("one rank", only(0))
say("two files", only(1), only(0))
say("twice", run, only(1))
say("another order of the list", run | {"traceEvents": run["traceEvents"][::-1]})
