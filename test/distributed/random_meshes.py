"""Models, meshes and schedules that nobody chose: each is drawn, and two training steps in double precision are those of one rank (exact.py).

A draw takes mixers of any class, experts with and without a capacity, shared experts and losses of the router, a length of rows, a few layers or many alike; for some also what
published models add to them (sinks, norms of q and k, gates, biases, mixers side by side, factors, other routers, latents, places of norms, blocks that layers share); then a few meshes of up to four ranks, stages of layers among them, with a pipeline, a slicing, a number of slices, layers with their own, recomputation and an algorithm along sp. Nothing is refused but
slices and parts of rows that are shorter than what a convolution reads.
Usage: random_meshes.py [--seed N] [--models N] [--meshes N]; needs braid-compile and braid-run in PATH.
"""
import argparse
import itertools
import json
import math
import random
import re
import sys

import exact

HEADS = {"heads": 4, "head_dim": 8}
VALUES = HEADS | {"value_dim": 8}
MIXERS = [{"kind": kind} | VALUES for kind in ("gla", "mamba2", "retnet", "deltanet", "gateloop", "kda", "dfw", "gfw")]
MIXERS += [{"kind": kind} | HEADS for kind in ("lightning", "rwkv6", "rwkv7", "hgrn2", "ttt", "titans", "titans_ln", "mamba")]
MIXERS += [{"kind": "gated_deltanet", "conv": {"kernel": 4}} | VALUES, {"kind": "attention", "kv_heads": 2} | HEADS, {"kind": "attention", "kv_heads": 4, "window": 9, "qkv_bias": True} | HEADS, {"kind": "mla", "kv_rank": 12, "rope_dim": 4} | VALUES]
MIXERS += [{"kind": "kda", "gate_rank": 0, "lower_bound": -5.0} | VALUES, {"kind": "mla", "kv_rank": 12, "rope_dim": 4, "output_gate": "sigmoid", "output_gate_per": "head"} | VALUES,
           {"kind": "mlstm"} | VALUES, {"kind": "mlstm", "gate_softcap": 3.0, "conv": {"kernel": 3}} | VALUES, {"kind": "rglru", "heads": 4, "value_dim": 8}, {"kind": "short_conv"}, {"kind": "short_conv", "width": 24, "conv": {"kernel": 5, "bias": True}, "projection_bias": True, "output_bias": True}]
# RWKV-7 and HGRN2 as published: values of the first such layer (or none to mix with), ranks, bounds that layers learn together.
PUBLISHED = [{"kind": "rwkv7", "value_mix": False} | HEADS, {"kind": "rwkv7", "gate_rank": 6, "value_rank": 3, "rate_rank": 5, "output_gate_rank": 6, "l2_eps": 1e-6} | HEADS,
             {"kind": "hgrn2", "lower_bounds": "learned"} | HEADS, {"kind": "hgrn2", "lower_bounds": "learned", "output_gate": "silu", "conv": {"kernel": 3, "activation": None, "decays": True}} | VALUES,
             {"kind": "hgrn2", "lower_bounds": None} | HEADS]
MESHES = ["dp=2,ep=2", "sp=2,ep=2", "tp=2,ep=2", "dp=4,ep=2", "dp=4,ep=4", "sp=4,ep=2", "dp=2,sp=2,ep=2", "dp=2,sp=2,ep=4", "dp=2,tp=2,ep=2,etp=2", "sp=2,tp=2,ep=2,etp=2", "pp=2", "pp=2,dp=2,ep=2", "pp=2,sp=2,ep=2", "pp=2,tp=2,ep=2"]
NORMED = {"ttt", "titans_ln"}  # their states do not compose: along sp a ring only
REASONS = ["op has a tail of", "op looks back"]


ATTENTIONS = [{"sinks": True}, {"softcap": 1.5}, {"softcap": 1.5, "window": 7}, {"sinks": True, "window": 7}, {"output_bias": True, "qkv_bias": True}, {"qk_norm": True}, {"qk_norm": True, "qk_norm_over": "heads"}, {"output_gate": "sigmoid"},
              {"output_gate": "sigmoid", "output_gate_per": "head"}, {"rope": None}, {"scale": 0.2}]
EXPERTS = [{"activation": "swiglu_clamp", "bias": True}, {"bias": True}, {"activation": "gelu", "bias": True}, {"activation": "geglu"}, {"latent_dim": 16}]
ROUTERS = [{"bias": True}, {"score": "sigmoid", "correction": True}, {"score": "sigmoid", "normalize": False, "scale": 1.5}, {"groups": 2, "kept_groups": 1, "correction": True, "group_score": "top2", "score": "sigmoid"}]


def widen(draw, description):
    """Adds what published models have to a description, here and there."""
    mixers, layers = description["mixers"], description["num_layers"]
    for mixer in mixers.values():
        if mixer["kind"] == "attention" and draw.random() < 0.8:
            mixer |= draw.choice(ATTENTIONS)
        if draw.random() < 0.2:
            mixer["input_multiplier"] = 0.7
        if draw.random() < 0.2:
            mixer["residual"] = {"beta": 0.6}
    if "E" in description["ffns"]:
        experts = description["ffns"]["E"]
        if draw.random() < 0.6:
            experts |= draw.choice(EXPERTS)
        if draw.random() < 0.5:
            experts["router"] = experts.get("router", {}) | draw.choice(ROUTERS)
    if len(mixers) > 1 and draw.random() < 0.5:  # two of them side by side, in every layer that has the first
        first, second = draw.sample(sorted(mixers), 2)
        pattern = "".join(letter if letter == "-" else f"({first}{second})" if letter == first else letter for letter in description["layer_pattern"])
        description["layer_pattern"] = pattern
        for name in set(mixers) - set(pattern):
            del mixers[name]
    if draw.random() < 0.3:
        description["norm_placement"] = draw.choice(["sandwich", "output", "post"])
    if description.get("norm_placement") != "post" and draw.random() < 0.3:  # parts with another: mixers side by side have one norm
        sideBySide = {letter for group in re.findall(r"\((\w+)\)", description["layer_pattern"]) for letter in group}
        for name, part in (*mixers.items(), *description["ffns"].items()):
            if name not in sideBySide and draw.random() < 0.5:
                part["norm_placement"] = draw.choice(["pre", "sandwich", "output"])
    description |= draw.choice([{}, {}, {"norm": {"kind": "layer"}}, {"norm": {"kind": "layer", "bias": False}, "embedding_norm": True}, {"embedding_norm": True}, {"tie_embeddings": True}, {"embedding_multiplier": 3.0, "logits_multiplier": 0.4}, {"residual": {"alpha": 0.9, "beta": 0.8}}, {"logits_softcap": 2.0}])
    if draw.random() < 0.4:  # blocks that layers share
        known = {"A": {"attention": HEADS | {"head_dim": 16} | draw.choice([{}, {"kv_heads": 2}, {"window": 7}]), "ffn": {"hidden": 24, "activation": "geglu"},
                       "ffn_adapter_rank": draw.choice([0, 3])}, "B": {"attention": HEADS, "attention_adapter_rank": draw.choice([0, 2])}}
        mixing = [letters != "-" for _, letters in zip(range(layers), itertools.cycle(re.findall(r"\(\w+\)|[\w-]", description["layer_pattern"])))]
        pattern = "".join(draw.choice("-AB") if mixes else "-" for mixes in mixing)
        description |= {"inject_pattern": pattern, "injects": {name: known[name] for name in sorted(set(pattern) - {"-"})}}
    return description


def model(draw):
    mixers = dict(zip("ABC", draw.sample(MIXERS, draw.choice([1, 2, 2, 3]))))
    if draw.random() < 0.3:
        mixers |= zip("ABC", draw.sample(PUBLISHED, draw.choice([1, 2])))
    layers = draw.choice([2, 3, 4])
    pattern = "".join(draw.choice(list(mixers)) for _ in range(layers))
    ffns = "E" + "".join(draw.choice("EED") for _ in range(layers - 1))
    if draw.random() < 0.3:  # more layers than the compiler joins in one function: repeats of groups, and what is left of them
        unit, layers = draw.choice([1, 1, 2]), draw.choice([6, 9, 10])
        pattern, ffns = ((part[:unit] * layers)[:layers] for part in (pattern, ffns))
    if draw.random() < 0.4:  # layers of one part; the first has experts, and some layer a mixer
        alone = [draw.choice([0, 1, 2]) for _ in range(layers)]
        pattern = "".join("-" if part == 1 else letter for part, letter in zip(alone, pattern))
        ffns = "".join("-" if part == 2 and layer else letter for layer, (part, letter) in enumerate(zip(alone, ffns)))
        if not pattern.strip("-"):
            pattern = next(iter(mixers)) + pattern[1:]
    experts = {"kind": "moe", "num_experts": draw.choice([4, 8]), "top_k": draw.choice([1, 2]), "expert_hidden": draw.choice([8, 16])}
    if draw.random() < 0.5:
        experts |= {"shared_hidden": 16, "shared_gate": layers % 2 == 0}
    if draw.random() < 0.5:
        experts["router"] = {"balance_loss": 0.01, "z_loss": 0.001}
    if draw.random() < 0.4:
        experts["capacity_factor"] = draw.choice([1.0, 1.25, 2.0])
    dense = {"kind": "dense", "hidden": 32} | draw.choice([{}, {"token_shift": True}, {"token_shift": True, "activation": "relu2", "output_gate": "sigmoid"}, {"output_gate": "silu", "bias": True}])
    known = {"E": experts, "D": dense}
    description = {"name": "drawn", "vocab_size": 64, "d_model": 32, "num_layers": layers, "layer_pattern": pattern, "ffn_pattern": ffns, "context_len": 64, "dtype": "f64",
            "mixers": {name: mixers[name] for name in sorted(set(pattern) - {"-"})}, "ffns": {name: known[name] for name in sorted(set(ffns) - {"-"})},
            "train": {"batch": 4, "seq_len": draw.choice([52, 56, 64]), "warmup_steps": 1}}
    return widen(draw, json.loads(json.dumps(description))) if draw.random() < 0.6 else description


def variant(draw, description, number):
    mesh = draw.choice(MESHES)
    sizes = dict((axis, int(size)) for axis, size in (part.split("=") for part in mesh.split(",")))
    options = [f"--mesh={mesh}"]
    pipeline = draw.choice(["none", "moe", "aAaM", "1A1M", "1A1M", "cross-block", "cross-block", "best"])
    if pipeline != "none":
        options += [f"--pipeline={pipeline}", f"--overlap-degree={draw.choice([2, 3, 4, 5, 7])}"]
        if pipeline != "moe":  # which leaves mixers whole
            options.append(f"--slicing={draw.choice(['uniform', 'time_uniform', 'balanced', 'simulated'])}")
        if draw.random() < 0.25:
            options.append(f"--overlap-degrees={draw.randrange(description['num_layers'])}:{draw.choice([1, 2, 3])}")
    if "pp" in sizes or draw.random() < 0.2:
        options.append(f"--micro-batches={draw.choice([parts for parts in (1, 2, 4) if 4 // sizes.get('dp', 1) % parts == 0])}")
        if "pp" in sizes and draw.random() < 0.5:
            first = draw.randrange(1, description["num_layers"] + 1)
            options.append(f"--stage-layers={first},{description['num_layers'] - first}")
    if draw.random() < 0.3:
        options.append(f"--recompute={draw.choice(['all', '0', '1'])}")
    if "sp" in sizes and not NORMED & {mixer["kind"] for mixer in description["mixers"].values()}:
        options.append(f"--sp-algorithm={draw.choice(['auto', 'ring', 'all_gather', 'scan'])}")
    if "pp" in sizes and draw.random() < 0.5:
        options.append("--stage-order=ZB-H1")
    if "pp" in sizes and not description.get("tie_embeddings"):
        options.append(f"--head-stages={draw.choice(['auto', 'last', 'all'])}")
    return f"drawn-{number}", math.prod(sizes.get(axis, 1) for axis in ("pp", "dp", "sp", "tp")), options


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--models", type=int, default=12)
    parser.add_argument("--meshes", type=int, default=4, help="of each model")
    arguments = parser.parse_args()
    draw = random.Random(arguments.seed)
    failed = 0
    for number in range(arguments.models):
        description = model(draw)
        print(f"model {number}: {json.dumps({key: value for key, value in description.items() if key not in ('name', 'vocab_size', 'd_model', 'dtype', 'context_len')})}")
        variants = [variant(draw, description, i) for i in range(arguments.meshes)]
        for name, _, options in variants:
            print(f"  {name}: {' '.join(options)}", flush=True)
        failed += exact.check(description, variants, REASONS, drawn=True) != 0
    if failed:
        sys.exit(f"{failed} of {arguments.models} models drawn from seed {arguments.seed} failed")
    print(f"all {arguments.models} models drawn from seed {arguments.seed} are within their limits on every mesh")


if __name__ == "__main__":
    main()
