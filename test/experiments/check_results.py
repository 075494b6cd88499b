"""What must hold in the results of an experiment on any machine: losses and bytes, never times. Usage: check_results.py F.json"""
import json
import sys

LOSS, NORM = 1e-5, 1e-5  # of steps in which experts get as many rows; of gradients over their norm: rounding of other orders of sums
CURVE = 2e-4  # over many steps, with tokens that rounding sends to other experts
HEADERS, PER_STEP = 1.25, 60e3  # what links carry besides what collectives send: packets, headers, the launcher's own talk


def judge(name, good):
    return name + (" agrees" if name == "loss" else " agree") if good else f"{name} DIFFER"


with open(sys.argv[1], encoding="utf-8") as file:
    result = json.load(file)
wire = {}  # bytes by ranks and name
for v in result.get("variants", []):
    sent, counted = v["bytes_per_step_and_rank"], v["predicted"]["bytes_per_step_and_rank"]
    loss = v["loss_difference"] < LOSS and v["norm_difference"] < NORM
    # Rows that a router sends are counted as evenly spread; of everything else not one byte is missing or too many.
    data = v["data_bytes_per_step_and_rank"]
    exact = 0.8 * counted <= data <= 1.2 * counted if v["name"] == "dp with ep" else abs(data - counted) < 0.5
    size = exact and data <= sent < HEADERS * data + PER_STEP
    wire.setdefault(v["ranks"], {})[v["name"]] = sent
    print(f"{v['name']} on {v['ranks']}: {judge('loss', loss)}, {judge('bytes', size)} ({data:.0f} sent, {counted:.0f} predicted, {sent:.0f} on the wire; "
          f"losses {v['loss']:.6f} and {v['one_rank_loss']:.6f}, {v['loss_difference']:.1e} apart in the first {v['steps_alike']}, gradient norms {v['norm_difference']:.1e})")
for ranks, sent in wire.items():
    if ranks >= 4 and "sp scan" in sent and "sp all_gather" in sent:
        print(f"scan on {ranks} sends {'less' if sent['sp scan'] < sent['sp all_gather'] else 'NO LESS'} than all_gather")
for link in result.get("links", []):
    for p in link["programs"]:
        print(f"{p['pipeline']} {p['degree']}: {judge('loss', p['loss_difference'] < LOSS and p['norm_difference'] < NORM)} ({p['loss_difference']:.1e}, gradient norms {p['norm_difference']:.1e})")
for r in result.get("slicing", []):
    print(f"{r['pipeline']} {r['degree']}: {judge('loss', r['loss_difference'] < CURVE)} ({r['loss_difference']:.1e})")
for r in result.get("orders", []):
    head = '' if r.get('head_stages', 'auto') == 'auto' else f" {r['head_stages']}"
    print(f"{r['order']} {r['micro_batches']}{head}: {judge('loss', r['loss_difference'] < LOSS and r['norm_difference'] < NORM)}, {judge('orders', r['same_losses'])} "
          f"({r['loss_difference']:.1e}, gradient norms {r['norm_difference']:.1e})")
if curve := result.get("curves"):
    good = curve["largest_difference"] < CURVE
    print(f"curve of {curve['program']} over {curve['steps']} steps {'agrees' if good else 'DIFFERS'} ({curve['largest_difference']:.1e})")
