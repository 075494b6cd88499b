"""Looks at the trace of a training run: trace.py F.json RANKS STEPS."""
import json
import sys
from collections import Counter

path, ranks, steps = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
trace = json.load(open(path))
events = [event for event in trace["traceEvents"] if event["ph"] == "X"]
rows = {(event["pid"], event["tid"]): event["args"]["name"] for event in trace["traceEvents"] if event["name"] == "thread_name"}
groups = {event["pid"]: event["args"]["name"] for event in trace["traceEvents"] if event["name"] == "process_name"}
assert groups == {rank: f"rank {rank}" for rank in range(ranks)}, groups
assert all(rows[rank, 0] == "compute" for rank in range(ranks)), rows
assert {event["pid"] for event in events} == set(range(ranks))
assert all((event["pid"], event["tid"]) in rows and event["ts"] >= 0 and event["dur"] >= 0 for event in events)
assert min(event["ts"] for event in events) == 0

# Every rank runs the same commands, every step as many.
counts = Counter(event["pid"] for event in events)
assert len(set(counts.values())) == 1 and counts[0] % steps == 0, counts
# A row does one thing after the other.
for row in rows:
    own = sorted((event["ts"], event["dur"]) for event in events if (event["pid"], event["tid"]) == row)
    assert all(a[0] + a[1] <= b[0] + 0.002 for a, b in zip(own, own[1:])), row
# Collectives are on rows of their own.
exchanges = [event for event in events if event["cat"] == "collective"]
assert (len(exchanges) > 0) == (ranks > 1)
assert all(rows[event["pid"], event["tid"]].startswith("communication over ") for event in exchanges)

# Names lead back to the layer and the op: all four layers, the first and the third one function, forward and backward.
named = [event for event in events if "layer" in event["args"]]
assert {event["args"]["layer"] for event in named} == {0, 1, 2, 3}
assert all(event["name"].startswith(f"layers.{event['args']['layer']} ") for event in named if event["cat"] == "launch")
scans = Counter(event["args"]["layer"] for event in named if event["args"].get("op") == "lsm.chunk_output" and event["pid"] == 0)
assert set(scans) == {0, 2} and len(set(scans.values())) == 1, scans
order = [event["args"]["layer"] for event in sorted(named, key=lambda e: e["ts"])
         if event["pid"] == 0 and event["args"].get("op") in ("attn.causal", "attn.causal_grad", "lsm.chunk_output", "lsm.chunk_grad")]
deduplicated = [layer for i, layer in enumerate(order) if i == 0 or order[i - 1] != layer]
assert deduplicated == [0, 1, 2, 3, 2, 1] * steps + [0], deduplicated
print("trace is right")
