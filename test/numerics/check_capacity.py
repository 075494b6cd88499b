"""Experts of limited capacity: who keeps a slot, what that does to values and gradients, and that enough of it changes nothing.

The policies as an op against a greedy loop; whole models (f64) with every policy against the reference model, loss and all
gradients; and a model whose capacity suffices, bit for bit equal to the dropless one.
"""

import sys

import numpy as np

from harness import Program, Report, Type, rounded
from check_gradients import check_decoding, check_reference
from check_mixer import perturbed
from check_moe import selections
from compiled_model import CompiledModel
from common import documents_of, one_document
import moe

B, T = 2, 21
POLICIES = ("token", "slot", "score", "bpr")


def add_drops(program, rng, E, k, capacities, dtype):
    packed = documents_of([[0, 7, 21], [0, 15, 15]], T)
    for policy in POLICIES:
        weighted = policy in ("score", "bpr")
        for slots in capacities:
            f = program.function(f"{policy}_e{E}_k{k}_c{slots}_{dtype}", dtype)
            ids, documents = f.input("ids", (B, T, k), "i32"), f.input("documents", (B, T), "i32")
            taken = f.input("taken", (B, E), "i32")
            weights = f.input("weights", (B, T, k)) if weighted else None
            results = f.op(
                "braid.moe.drop",
                [ids, weights, documents, taken] if weighted else [ids, documents, taken],
                [Type((B, T, k), "i32"), Type((E,), "i32"), Type((E,), "i32"), Type((B, E), "i32")],
                capacity=slots,
                policy=f'"{policy}"',
            )
            for name, value in zip(("kept", "load", "dropped", "new_taken"), results):
                f.output(name, value)
            for label, chosen in selections(rng, E, k):
                w = rounded([rng.random((B, T, k))], dtype)[0]
                w[0] = np.round(w[0] * 3) / 3  # ties
                w[1, 3, 0] = np.nan
                for documents, begin in ((one_document(B, T), 0), (packed, 2 if policy == "token" else 0)):
                    used = rng.integers(0, begin + 1, (B, E))
                    inputs = {"ids": chosen, "documents": documents, "taken": np.minimum(used, slots)}
                    inputs |= {"weights": w} if weighted else {}
                    expected = moe.drop(chosen, w, documents, E, slots, policy, inputs["taken"])
                    program.check(
                        f,
                        inputs,
                        dict(zip(("kept", "load", "dropped", "new_taken"), expected)),
                        0,
                        f"{f.name} {label}{'' if documents is not packed else ', packed and padded'}",
                    )


def add_plans(program, rng, E, k):
    """Plans of ids that were dropped (-1), rows packed or every expert with as many, alone or with a peer; too many overflow."""
    for peers, expert_rows in ((1, None), (1, 9), (2, 9)):
        f = program.function(f"plan_p{peers}_{'packed' if expert_rows is None else expert_rows}")
        ids, documents = f.input("ids", (B, T, k), "i32"), f.input("documents", (B, T), "i32")
        peer_rows = E // peers * expert_rows if peers > 1 else 0
        rows = B * T * k if expert_rows is None else E * expert_rows
        shapes = [(rows,), (B, T, k), (E,), (E + 1,), (1,), (1,)]
        attributes = {"num_experts": E, "peers": peers, "peer_rows": peer_rows}
        if expert_rows is not None:
            attributes["expert_rows"] = expert_rows
        results = f.op("braid.moe.plan", [ids, documents], [Type(s, "i32") for s in shapes], **attributes)
        names = ("perm", "inverse", "counts", "offsets", "overflow")
        for name, value in zip(names, results):
            f.output(name, value)
        for label, chosen in selections(rng, E, k):
            chosen = np.where(rng.random(chosen.shape) < 0.4, -1, chosen)
            expected = dict(zip(names, moe.plan(chosen, ROW, E, peers, peer_rows, expert_rows)))
            program.check(f, {"ids": chosen, "documents": ROW}, expected, 0, f"{f.name} {label}")


ROW = documents_of([[0, 21, 21], [0, 4, 18]], T)
MODEL = {
    "vocab_size": 23,
    "d_model": 16,
    "num_layers": 3,
    "layer_pattern": "LN",
    "ffn_pattern": "ABD",
    "dtype": "f64",
    "context_len": 40,
    "max_documents": 2,
    "mixers": {
        "L": {"kind": "gla", "heads": 2, "head_dim": 4, "gate_rank": 3},
        "N": {"kind": "attention", "heads": 2, "head_dim": 8},
    },
    "init": {"std": 0.7, "scale_output": False},
    "train": {"batch": 2, "seq_len": 24, "clip_norm": 0.0},
}
EXPERTS = {"kind": "moe", "num_experts": 4, "top_k": 2, "expert_hidden": 8}


def described(first, second):
    return MODEL | {"ffns": {"A": EXPERTS | first, "B": EXPERTS | second, "D": EXPERTS | {"shared_hidden": 8}}}


MODELS = {
    "token-slot": described(
        {"capacity_factor": 0.75, "drop_policy": "token"},
        {"capacity_factor": 0.5, "drop_policy": "slot", "padded_slots": True, "router": {"normalize": False}},
    ),
    "score-bpr": described(
        {"capacity_factor": 1.0, "drop_policy": "score", "capacity_rule": "switch", "padded_slots": True},
        {"capacity_factor": 0.75, "drop_policy": "bpr", "top_k": 3},
    )
    | {"num_layers": 6, "layer_pattern": "N", "mixers": {"N": MODEL["mixers"]["N"]}},  # two rounds of one repeat
}


def check_statistics(report, model, batch, weights, documents):
    """Load and drops of a step are those of the reference, and something was dropped."""
    values = model.step(weights, batch, ["expert_counts", "expert_dropped"])
    result = model.reference(weights).loss(batch["tokens"], batch["labels"], documents)
    expected = {
        "expert_counts": np.array([c for c, _ in result.statistics], np.int32),
        "expert_dropped": np.array([d for _, d in result.statistics], np.int32),
    }
    dropped = values["expert_dropped"].sum(-1)
    report.compare(f"load and drops, {dropped.tolist()} of {values['expert_counts'].sum(-1).tolist()}", values, expected, 0)
    bounded = np.arange(len(dropped)) % 3 < 2
    some = (dropped[bounded] > 0).all() and not dropped[~bounded].any()
    report.line(bool(some), "bounded layers drop, the others do not", f"{dropped.tolist()}")
    evaluated = model.program.call("eval_step", dict(weights) | batch, list(expected))
    report.compare("statistics of eval_step", evaluated, expected, 0)


def check_enough(report, rng):
    """A slot for every assignment: the bits of the dropless model, in f32 and with one thread or two."""
    small = {"dtype": "f32", "num_layers": 2, "ffn_pattern": "A"}
    variants = {
        "dropless": {},
        "token": {"capacity_factor": 2.0},
        "padded": {"capacity_factor": 2.0, "padded_slots": True},
    }
    results = {}
    for name, keys in variants.items():
        model = CompiledModel(MODEL | small | {"ffns": {"A": EXPERTS | keys}}, report.folder, f"enough-{name}")
        if not results:
            weights = perturbed(model.initial(5), rng)
            batch, _ = model.batch(rng, [[0, 9, 24], [0, 24, 24]])
        outputs = ["loss", "aux_loss", "expert_counts", *model.gradients.values(), *model.parameters]
        results[name] = model.step(weights, batch, outputs, learning_rate=1e-2)
    differ = [n for n, a in results["dropless"].items() if not np.array_equal(a, results["token"][n])]
    report.line(not differ, "capacity for all: the bits of dropless", f"{len(results['token'])} tensors {differ}")
    report.compare("capacity for all, padded: the values of dropless", results["padded"], results["dropless"], 2e-5)


def main():
    rng = np.random.default_rng(37)
    program = Program("capacity")
    add_drops(program, rng, 8, 2, (1, 4, T), "f32")
    add_drops(program, rng, 4, 3, (7,), "f64")
    add_plans(program, rng, 8, 2)
    report = Report("capacity-models")
    try:
        for name, description in MODELS.items():
            report.name = f"capacity {name}"
            model = CompiledModel(description | {"name": name}, report.folder, name)
            weights = perturbed(model.initial(5), rng)
            batch, documents = model.batch(rng, [[0, 9, 24], [0, 20, 20]])
            check_reference(report, model, weights, batch, documents)
            check_statistics(report, model, batch, weights, documents)
            if name == "token-slot":
                # Generation routes token by token and drops nothing.
                experts = {n: {k: v for k, v in f.items() if k != "capacity_factor"} for n, f in description["ffns"].items()}
                model.description = description | {"ffns": experts}
                check_decoding(report, model, weights, rng)
        report.name = "capacity"
        check_enough(report, rng)
    except RuntimeError as error:
        report.line(False, "stopped", str(error))
    report.name = "capacity-models"
    return program.finish() | report.finish()


if __name__ == "__main__":
    sys.exit(main())
