"""The schedule that was decided and the measured trace, task by task: woven.py DECIDED.mlir TRACE.json

DECIDED.mlir has the orders (braid-opt --braid-decide-schedule), TRACE.json what braid-run train --trace --trace-steps 1 measured. Two layers of
one kind, with a linear mixer. What a command computes says which task it belongs to, whatever the trace calls that: both must agree.
"""
import json
import re
import sys

ROUNDED = 0.002  # microseconds: how exactly a trace is written
STREAM = {"A": "compute", "M": "compute", "D": "ep", "C": "ep", "G": "etp", "R": "etp"}
# What a task is recognized by: of A and M the command whose rows are the next task's, backward those of the task before.
MARKS = {"": {"A": "lsm.chunk_output", "D": "rows moe.dispatch", "G": "rows all_gather", "M": "expert_out", "R": "routed reduce_scatter",
              "C": "routed moe.combine"},
         ".grad": {"A": "lsm.chunk_grad", "D": "rows.grad moe.dispatch_grad", "G": "rows.grad reduce_scatter", "M": "expert_out.grad",
                   "R": "routed.grad all_gather", "C": "routed.grad moe.combine_grad"}}


def decided(text):
    """{direction mark: [(kind, layer, slice), ..]} of a whole step."""
    orders = {}
    for function, order in re.findall(r"func.func private @(\w+_(?:train|grad))\(.*?order = \[([^\]]*)\]", text):
        mark = ".grad" if function.endswith("_grad") else ""
        tasks = [(kind, int(block), int(piece)) for kind, block, piece in re.findall(r'"([A-Z]+)(\d+)\.(\d+)"', order) if kind in STREAM]
        if max(block for _, block, _ in tasks) == 0:  # one function, run once for each layer
            layers = [1, 0] if mark else [0, 1]
            tasks = [(kind, layer, piece) for layer in layers for kind, _, piece in tasks]
        orders[mark] = tasks
    return orders


def events(path):
    """{rank: [(stream, layer, direction mark, name, op, begin, end, task), ..]} as they began."""
    trace = json.load(open(path, encoding="utf-8"))["traceEvents"]
    rows = {(e["pid"], e["tid"]): e["args"]["name"].removeprefix("communication over ") for e in trace if e["name"] == "thread_name"}
    found = {}
    for e in sorted((e for e in trace if e["ph"] == "X" and e["name"] != "Wait"), key=lambda e: e["ts"]):
        args, name = e.get("args", {}), e["name"]
        name = re.sub(r"^layers\.\d+ ", "", name)
        mark = ".grad" if args.get("function", "").endswith(".grad") else ""
        found.setdefault(e["pid"], []).append((rows[e["pid"], e["tid"]], args.get("layer", -1), mark, name, args.get("op", ""), e["ts"], e["ts"] + e["dur"], args.get("task", "")))
    return found


def kind_of(event):
    stream, _, mark, name, op, _, _, _ = event
    for kind, text in MARKS[mark].items():
        if STREAM[kind] == stream and (op == text if kind == "A" else name.startswith(text + " ") and "grad_weight" not in op if kind == "M" else name == text):
            return kind
    return None


def main():
    orders = decided(open(sys.argv[1], encoding="utf-8").read())
    measured = events(sys.argv[2])
    assert set(orders) == {"", ".grad"}, orders.keys()
    for rank, list_of in sorted(measured.items()):
        for mark, order in orders.items():
            times = {}  # of every task
            for stream in sorted(set(STREAM.values())):
                expected = [task for task in order if STREAM[task[0]] == stream]
                own = [(kind_of(e), e[1], e) for e in list_of if e[2] == mark and e[0] == stream and kind_of(e)]
                assert [o[:2] for o in own] == [task[:2] for task in expected], f"rank {rank}, {stream}{mark}: {[o[:2] for o in own]} for {expected}"
                called = [f"{kind}{layer}.{piece}{mark}" for kind, layer, piece in expected]
                assert [o[2][7] for o in own] == called, f"rank {rank}, {stream}{mark}: {[o[2][7] for o in own]} is called {called}"
                times |= {task: o[2][5:7] for task, o in zip(expected, own)}
            chains = {task[1:] for task in order}
            edges = [((a, *chain), (b, *chain)) for chain in chains for a, b in zip("ADGMR", "DGMRC")]
            if ("G", 0, 0) not in times:
                edges = [((a, *chain), (b, *chain)) for chain in chains for a, b in ("AD", "DM", "MC")]
            edges += [(("A", layer, piece), ("A", layer, piece + 1)) for layer, piece in chains if (layer, piece + 1) in chains]
            edges += [(("C", 0, piece), ("A", 1, piece)) for _, piece in chains]
            for before, after in ((b, a) if mark else (a, b) for a, b in edges):
                assert times[before][1] <= times[after][0] + ROUNDED, f"rank {rank}: {before} ends at {times[before][1]}, {after} begins at {times[after][0]}"
            if rank == 0:
                print(f"{'backward' if mark else 'forward'}: {len(times)} tasks on {len({STREAM[t[0]] for t in times})} streams in the order decided, {len(edges)} dependences kept")
    print(f"{len(measured)} ranks")


main()
