"""What plans of a model keep for the backward, with budgets and without: activations.py MODEL.json ROOT"""
import json
import re
import subprocess
import sys

MODEL, ROOT = sys.argv[1:]
TRAVEL = ["--mesh=dp=4,ep=4"]
SLICED = [*TRAVEL, "--pipeline=1A1M", "--overlap-degree=2"]


def plan(flags, model=MODEL):
    run = subprocess.run(["braid-plan", model, "--json", *flags], capture_output=True, text=True, check=True)
    found = json.loads(run.stdout)
    arenas = {arena["name"]: arena["bytes"] for arena in found["memory"]["arenas"]}
    warnings = [line for line in run.stderr.splitlines() if "activation budget" in line]
    return found["memory"]["activations"] | {"arenas": arenas, "warnings": warnings}


def in_arena(kept):
    # Beside them it holds gradients of all layers whose sums travel, and gaps.
    more = kept["arenas"]["saved"] - kept["kept_bytes"]
    return -0.02 * kept["kept_bytes"] < more < 0.02 * kept["kept_bytes"] + kept["arenas"]["gradients"]


def budgets(name, flags, model=MODEL):
    everything, least = plan(flags, model), plan([*flags, "--recompute=all"], model)["kept_bytes"]
    kept = []
    for share in (1.0, 0.7, 0.4, 0.0):
        budget = int(least + share * (everything["kept_bytes"] - least))
        found = plan([*flags, f"--activation-budget={budget}"], model)
        assert not found["warnings"] and found["kept_bytes"] <= budget and in_arena(found), (name, budget, found)
        assert (found["recomputed_percent"] == 0) == (share == 1.0), (name, found)
        kept.append(found["kept_bytes"])
    return f"{name}: {len(kept)} budgets kept, the larger the more: {kept == sorted(kept, reverse=True)}"


def show(name, flags):
    found = plan(flags)
    # Activations of the experts cost nothing to make again.
    assert in_arena(found) and 0.8 < found["kept_bytes"] / found["all_bytes"] < 0.95 and found["recomputed_percent"] == 0, (name, found)
    return found["kept_bytes"], f"{name}: what is kept is in the arena"


def unmet(name, flags):
    found, least = plan([*flags, "--activation-budget=10"]), plan([*flags, "--recompute=all"])
    assert len(found["warnings"]) == 1 and found["kept_bytes"] <= least["kept_bytes"], (name, found, least)
    text = re.sub(rf"\b{found['kept_bytes']}\b", "LEAST", found["warnings"][0])
    return f"{name}: {text.removeprefix('braid-plan: warning: ')}"


one, text = show("one rank", [])
print(text)
shared, _ = show("dp=4", ["--mesh=dp=4"])
print("dp=4: a quarter of that:", abs(4 * shared - one) < 0.05 * one)
travel, text = show("dp=4,ep=4", TRAVEL)
print(text + ", more than a quarter:", 4 * travel > 1.1 * one)
print(show("dp=2,tp=2", ["--mesh=dp=2,tp=2"])[1])
print(show("dp=4,ep=4 in slices", SLICED)[1])
print(budgets("one rank", []))
print(budgets("dp=4,ep=4", TRAVEL))
print(budgets("dp=4,ep=4 in slices", SLICED))
print(budgets("linear-moe-a0.3b-2b on 2x8-a10g", [f"--cluster={ROOT}/models/clusters/2x8-a10g.json"], f"{ROOT}/models/linear-moe-a0.3b-2b.json"))
print(unmet("one rank", []))
print(unmet("dp=4,ep=4", TRAVEL))
print(unmet("dp=2,sp=2", ["--mesh=dp=2,sp=2,ep=2"]))
