"""Experts of limited capacity: who keeps a slot, what that does to values and gradients, and that enough of it changes nothing.

The policies as an op against a greedy loop; whole models (f64) with every policy against the reference model, loss and all
gradients; and a model whose capacity suffices, bit for bit equal to the dropless one.
"""

import sys

import numpy as np

from harness import Program, Report, Type, rounded
from compiled_model import CompiledModel, check_decoding, check_reference, perturbed
from check_moe import selections
from common import documents_of, one_document
import moe

B, T = 2, 21
POLICIES = {
    "token": {},
    "slot": {},
    "score": {},
    "bpr": {},
    "random": {},
    "device": {"bucket": 2},
    "protected": {"policy": "device", "bucket": 4, "protect": 0.4},
    "striped": {"policy": "device", "bucket": 4, "protect": 0.4, "stripe": T // 3},
}


def drop_cases(rng, E, k, slots, dtype, policy, bucket, protect):
    """Selections with one document to a row, and packed and padded, as rows of one batch: rows have nothing to do with each other."""
    packed = documents_of([[0, 7, 21], [0, 15, 15]], T)
    parts = []
    for _, chosen in selections(rng, E, k):
        for documents, begin in ((one_document(B, T), 0), (packed, 2 if policy == "token" else 0)):
            w = rounded([rng.random((B, T, k))], dtype)[0]
            w[0] = np.round(w[0] * 3) / 3  # ties
            w[1, 3, 0] = np.nan
            used = np.minimum(rng.integers(0, begin + 1, (B, E // bucket)), slots)
            parts.append((chosen, w, documents, used))
    ids, weights, documents, taken = (np.concatenate(part) for part in zip(*parts))
    keys = np.stack([np.arange(len(ids)) * 3 - 1, np.full(len(ids), -(2**62)), np.arange(len(ids)) % 4], -1)
    return ids, weights, documents, taken, keys


def add_drops(program, rng, E, k, capacities, dtype):
    rows = 6 * B
    for name, options in POLICIES.items():
        policy, bucket, protect = options.get("policy", name), options.get("bucket", 1), options.get("protect", 0.0)
        weighted, draws = policy in ("score", "bpr", "device"), policy == "random" or protect > 0
        for slots in capacities:
            f = program.function(f"{name}_e{E}_k{k}_c{slots}_{dtype}", dtype)
            ids, weights, documents, taken, keys = drop_cases(rng, E, k, slots, dtype, policy, bucket, protect)
            given = documents
            if stripe := options.get("stripe", 0):  # as ranks that hold so many tokens each know them
                given = np.where(documents == np.iinfo(np.int32).max, documents, documents - np.arange(T) // stripe * stripe)
            inputs = {"ids": ids, "documents": given.astype(documents.dtype), "taken": taken}
            operands = [f.input("ids", ids.shape, "i32"), None, f.input("documents", documents.shape, "i32")]
            operands += [f.input("taken", taken.shape, "i32"), None]
            if weighted:
                inputs["weights"], operands[1] = weights, f.input("weights", weights.shape)
            if draws:
                inputs["draw_keys"], operands[4] = keys, f.input("draw_keys", keys.shape, "i64")
            assert len(ids) == rows
            types = [Type(ids.shape, "i32"), Type((E,), "i32"), Type((E,), "i32"), Type(taken.shape, "i32")]
            attributes = {"bucket": bucket, "protect": protect, "stripe": stripe} if policy == "device" else {}
            results = f.op(
                "braid.moe.drop",
                operands,
                types + ([Type(keys.shape, "i64")] if draws else []),
                segments=True,
                capacity=slots,
                policy=f'"{policy}"',
                **attributes,
            )
            expected = moe.drop(ids, weights, documents, E, slots, policy, taken, bucket, protect, keys)
            expected += [keys + [0, 0, 1]] if draws else []
            outputs = ("kept", "load", "dropped", "new_taken", "new_draw_keys")
            for output, value in zip(outputs, results):
                f.output(output, value)
            program.check(f, inputs, dict(zip(outputs, expected)), 0)


def add_renormalize(program, rng, k, dtype, limit):
    f = program.function(f"renormalize_k{k}_{dtype}", dtype)
    weights, kept = f.input("weights", (B, T, k)), f.input("kept", (B, T, k), "i32")
    f.output("y", f.rows("moe.renormalize", [weights, kept], weights.type))
    dy = f.input("dy", (B, T, k))
    f.output("dweights", f.rows_grad("moe.renormalize", [weights, kept], dy, [0])[0])
    w, d = rounded([rng.random((B, T, k)), rng.standard_normal((B, T, k))], dtype)
    choice = np.where(rng.random((B, T, k)) < 0.4, -1, rng.integers(0, 9, (B, T, k)))
    choice[0, 0], choice[0, 1], w[0, 2] = -1, np.arange(k), 0
    y, pull = moe.renormalize(w, choice)
    references = {"y": y, "dweights": pull(d)[0]}
    program.check(f, {"weights": w, "kept": choice, "dy": d}, references, limit)


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


ATTENTION = {"layer_pattern": "N", "mixers": {"N": MODEL["mixers"]["N"]}, "context_len": 16}


def described(changes, *bounded):
    """A model of these feed-forwards and a last one without a bound."""
    ffns = {letter: EXPERTS | keys for letter, keys in zip("ABCE", bounded)} | {"D": EXPERTS | {"shared_hidden": 8}}
    return MODEL | {"ffns": ffns, "ffn_pattern": "".join(ffns), "num_layers": len(ffns)} | changes


MODELS = {
    "token-slot": described(
        {},
        {"capacity_factor": 0.75, "drop_policy": "token", "renormalize": True, "router": {"normalize": False}},
        {"capacity_factor": 0.5, "drop_policy": "slot", "padded_slots": True, "router": {"normalize": False}},
    ),
    # Two rounds of one repeat.
    "sorted": described(
        ATTENTION | {"num_layers": 10},
        {"capacity_factor": 1.0, "drop_policy": "score", "capacity_rule": "switch", "padded_slots": True},
        {"capacity_factor": 0.75, "drop_policy": "random", "renormalize": True},
        {"capacity_factor": 0.75, "drop_policy": "bpr", "top_k": 3, "renormalize": True},
        {"capacity_factor": 0.5, "drop_policy": "device", "devices": 2, "protect": 0.5},
    ),
}


def check_statistics(report, model, batch, weights, documents):
    """Load and drops of a step are those of the reference, and something was dropped."""
    values = model.step(weights, batch, ["expert_counts", "expert_dropped"])
    result = model.expected(weights, batch, documents)
    expected = {
        "expert_counts": np.array([c for c, _ in result.statistics], np.int32),
        "expert_dropped": np.array([d for _, d in result.statistics], np.int32),
    }
    dropped = values["expert_dropped"].sum(-1)
    report.compare(f"load and drops, {dropped.tolist()} of {values['expert_counts'].sum(-1).tolist()}", values, expected, 0)
    pattern = model.description["ffn_pattern"]
    bounded = np.array([pattern[i % len(pattern)] != "D" for i in range(len(dropped))])
    some = (dropped[bounded] > 0).all() and not dropped[~bounded].any()
    report.line(bool(some), "bounded layers drop, the others do not", f"{dropped.tolist()}")
    evaluated = model.program.call("eval_step", dict(weights) | batch, list(expected))
    report.compare("statistics of eval_step", evaluated, expected, 0)


def check_draws(report, model, batch, weights):
    """What is drawn follows from sample and seed, layer by layer: not from the row, the other rows or the number of threads."""
    dropped = lambda **changes: model.program.call(
        "train_step", model.step_inputs(weights, batch | changes), ["expert_dropped", "loss"], ["--threads", "2"]
    )
    first = dropped()
    swapped = dropped(**{name: array[::-1] for name, array in batch.items()})
    same = np.array_equal(first["expert_dropped"], swapped["expert_dropped"])
    report.line(same, "draws belong to samples", "rows changed places, the same is dropped")
    keys = batch["draw_keys"]
    others = [dropped(draw_keys=keys + change)["loss"][0] for change in ([1, 0, 0], [0, 1, 0], [0, 0, 1])]
    report.line(len({first["loss"][0], *others}) == 4, "draws follow sample, seed and layer", f"losses {others}")


def check_enough(report, rng):
    """A slot for every assignment: the bits of the dropless model, in f32."""
    small = ATTENTION | {"dtype": "f32", "num_layers": 2, "ffn_pattern": "A"}
    enough = {"capacity_factor": 2.0}
    variants = {"dropless": {}, "token": enough, "padded": enough | {"padded_slots": True, "renormalize": True}}
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
    add_renormalize(program, rng, 3, "f32", 2e-6)
    add_renormalize(program, rng, 3, "f64", 1e-9)
    add_plans(program, rng, 8, 2)
    report = Report("capacity-models")
    with report:
        for name, description in MODELS.items():
            report.name = f"capacity {name}"
            decodes = name == "token-slot"
            model = CompiledModel(description | {"name": name}, report.folder, name)
            weights = perturbed(model.initial(5), rng)
            batch, documents = model.batch(rng, [[0, 9, 24], [0, 20, 20]])
            check_reference(report, model, weights, batch, documents)
            check_statistics(report, model, batch, weights, documents)
            if "draw_keys" in batch:
                check_draws(report, model, batch, weights)
            if decodes:
                # Generation routes token by token and drops nothing.
                experts = {n: {k: v for k, v in f.items() if k != "capacity_factor"} for n, f in description["ffns"].items()}
                model.description = description | {"ffns": experts}
                check_decoding(report, model, weights, rng)
        report.name = "capacity"
        check_enough(report, rng)
    return program.finish() | report.finish()


if __name__ == "__main__":
    sys.exit(main())
