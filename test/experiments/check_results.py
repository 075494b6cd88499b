"""What must hold in the results of an experiment on any machine: losses and bytes, never times. Usage: check_results.py F.json"""
import json
import sys

LOSS = 2e-4  # after a few steps: rounding of other orders of sums, and tokens that it sends to other experts
HEADERS, PER_STEP = 1.25, 60e3  # packets and the launcher's own talk, besides what collectives send


def judge(name, good):
    return name + (" agrees" if name == "loss" else " agree") if good else f"{name} DIFFER"


with open(sys.argv[1], encoding="utf-8") as file:
    result = json.load(file)
wire = {}  # bytes by ranks and name
for v in result.get("variants", []):
    sent, counted = v["bytes_per_step_and_rank"], v["predicted"]["bytes_per_step_and_rank"]
    loss = abs(v["loss"] - v["one_rank_loss"]) < LOSS
    # Rows that a router sends are counted as evenly spread.
    size = (0.8 if v["name"] == "dp with ep" else 1.0) * counted <= sent < HEADERS * counted + PER_STEP
    wire.setdefault(v["ranks"], {})[v["name"]] = sent
    print(f"{v['name']} on {v['ranks']}: {judge('loss', loss)}, {judge('bytes', size)} ({sent:.0f} sent, {counted:.0f} counted; "
          f"losses {v['loss']:.6f} and {v['one_rank_loss']:.6f})")
for ranks, sent in wire.items():
    if ranks >= 4 and "sp scan" in sent and "sp all_gather" in sent:
        print(f"scan on {ranks} sends {'less' if sent['sp scan'] < sent['sp all_gather'] else 'NO LESS'} than all_gather")
for link in result.get("links", []):
    for p in link["programs"]:
        print(f"{p['pipeline']} {p['degree']}: {judge('loss', p['loss_difference'] < LOSS)} ({p['loss_difference']:.1e})")
if curve := result.get("curves"):
    good = curve["largest_difference"] < LOSS
    print(f"curve of {curve['program']} over {curve['steps']} steps {'agrees' if good else 'DIFFERS'} ({curve['largest_difference']:.1e})")
