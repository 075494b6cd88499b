"""Two training steps in double precision on any mesh: loss, every gradient and every updated parameter are those of one rank.

In f32 a sum over tokens that nearly cancels depends on its order, and a mesh has another order than one rank (ranks_equal.py: up to 7e-5 of a
gradient). In f64 the same sums agree to 1e-10, so what f32 shows is rounding and no term is missing, doubled or cut wrongly. Gradients are read from
the first moments, put together from the pieces of all ranks; pieces that several ranks hold have the same bits. Packed documents, borders between and on ranks.
Each program runs its first step twice, with the same bits both times. The second begins from the tensors that the first left behind; how far it
moves parameters is compared, so that AdamW's division by gradients near zero cannot hide behind the size of the weights; it magnifies what gradients
may differ by, in models of twenty layers more than tenfold, so that more than eight may move ten times as far apart.
Stages of a pipeline (pp) have micro-batches, over each of which a router's losses are means: they are compared with one rank that has the same ones.
Usage: exact.py MODEL.json VARIANT..: variants of ranks_equal.py; needs braid-compile and braid-run in PATH.
"""
import json
import os
import pathlib
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "numerics"))
import numpy as np

from harness import Compiled, Report, run, tool
from ranks_equal import VARIANTS

# The norm is as far off as the largest gradients are.
LIMITS = {"losses": 1e-12, "gradient norm": 1e-10, "gradients": 1e-10, "parameters": 1e-7, "moved": 1e-8}
# Rows of a batch: documents over several ranks and slices, of one token, from border to border; one to the end of the row, padding.
DOCUMENTS = [[0, 11, 12, 32, 48, 64], [0, 3, 59, 60, 60, 60], [0, 64, 64, 64, 64, 64], [0, 16, 31, 33, 47, 63]]


def documents_of(length):
    """The documents in rows of 49 to 64 tokens: borders near the end are as far from it."""
    return [[border - (64 - length) * (border > 48) for border in row] for row in DOCUMENTS]


def coordinate(mesh, rank, axes):
    """The rank's place on a product of axes of either view."""
    for view in ("dense", "expert"):
        sizes = {axis["name"]: axis["size"] for axis in mesh[view]}
        if set(axes.split("*")) <= set(sizes):
            place, digits = rank, {}
            for name, size in reversed(list(sizes.items())):
                place, digits[name] = place // size, place % size
            at, count = 0, 1
            for name in axes.split("*"):
                at, count = at * sizes[name] + digits[name], count * sizes[name]
            return at, count
    raise ValueError(axes)


def part_of(mesh, slices, rank, name, array):
    """What a rank has of a batch's array: its rows; of tokens and labels a stripe of every slice."""
    at, count = coordinate(mesh, rank, "dp")
    part = np.split(array, count)[at]
    if name in ("tokens", "labels"):
        at, count = coordinate(mesh, rank, "sp")
        part = np.concatenate([np.split(s, count, 1)[at] for s in np.split(part, slices, 1)], 1)
    return part


def rounding_of(expected):
    """Names of gradients that are nothing but rounding, as of a bias of keys, which a softmax does not see."""
    size = {n: np.linalg.norm(array) for n, array in expected.items() if n.endswith(".first")}
    return {n for n in size if size[n] <= 1e-14 * max(size.values())}


class Mesh:
    """A program of a model on a mesh, and its first steps."""

    def __init__(self, folder, source, name, ranks, flags):
        self.ranks, self.path, self.folder = ranks, os.path.join(folder, f"{name}.braid"), os.path.join(folder, name)
        os.mkdir(self.folder)
        run([tool("braid-compile"), source, "-o", self.path, *flags])
        info = Compiled(self.path).info()
        self.mesh = info["mesh"]
        self.slices = [int(end) for end in info["metadata"].get("sequence_slices", "").split(",") if end]
        self.parts = int(info["metadata"].get("train.micro_batches", 0))  # 0: the batch is whole
        self.dp = coordinate(self.mesh, 0, "dp")[1]
        stages = coordinate(self.mesh, 0, "pp")[1]
        of_stage = lambda s: {t["name"]: t for t in info["tensors"] if t["role"] in ("parameter", "moment") and t.get("stage", 0) == s}
        self.stages = [of_stage(s) for s in range(stages)]
        self.tensors = {name: tensor for stage in self.stages for name, tensor in stage.items()}

    def stage_of(self, rank):
        return coordinate(self.mesh, rank, "pp")[0]

    def rows_of_parts(self, rows):
        """The rows of a batch as one rank has them whose micro-batches are these: a micro-batch has rows of every rank along dp."""
        parts = max(self.parts, 1)
        return np.arange(rows).reshape(self.dp, parts, -1).transpose(1, 0, 2).reshape(-1)

    def file(self, name, rank="{rank}"):
        return os.path.join(self.folder, f"{name.replace('/', '_')}-{rank}.npy")

    def left(self, name, number, rank="{rank}"):
        """What a tensor is behind a step."""
        return self.file(f"{name}.{number}", rank)

    def step(self, batch, number=1, begin=None, rate=1e-3):
        """-> losses, and the bits of every tensor on every rank. Step 1 begins from new weights, others, and with `begin`, from what a call before left."""
        command = [tool("braid-run"), "call", self.path, "--ranks", str(self.ranks), "--threads", "1"]
        fresh = number == 1 and begin is None
        command += ["--seed", "5"] if fresh else []
        tensors = {} if fresh else {name: self.left(name, number - 1 if begin is None else begin) for name in self.tensors}
        scalars = {"learning_rate": np.full(1, rate), "step": np.full(1, number, np.int32)}
        if self.parts:
            labels = (batch["labels"][self.rows_of_parts(len(batch["labels"]))] >= 0).reshape(self.parts, -1).sum(1)
            scalars |= {"loss_scale": np.full(1, 1.0 / labels.sum()), "aux_scale": labels / labels.sum()}
        for name, array in (batch | scalars).items():
            for rank in range(self.ranks):
                np.save(self.file(name, rank), array if name in scalars else part_of(self.mesh, self.slices, rank, name, array))
        files = lambda names: {name: self.file(name) for name in names}
        left = lambda names: {name: self.left(name, number) for name in names}
        losses, update = ("loss", "aux_loss"), ("learning_rate", "step")
        if self.parts:
            calls = [("accumulate_step", tensors | files((*batch, "loss_scale", "aux_scale")), left(losses)), ("update_step", files(update), left(("grad_norm", *self.tensors)))]
        else:
            calls = [("train_step", tensors | files((*batch, *scalars)), left((*losses, "grad_norm", *self.tensors)))]
        lines = [json.dumps({"function": function, "inputs": inputs, "outputs": outputs}) for function, inputs, outputs in calls]
        pathlib.Path(self.file("calls", "all")).write_text("\n".join(lines))
        run([*command, "--calls", self.file("calls", "all")])
        has = lambda name, rank: name in self.stages[self.stage_of(rank)] or name not in self.tensors
        return {
            name: [np.load(self.left(name, number, rank)) if has(name, rank) else None for rank in range(self.ranks)]
            for name in (*losses, "grad_norm", *self.tensors)
        }

    def drift(self, batch, expected, second):
        """How far the gradients of step 1 of one rank, and what its step 2 does to parameters, move with the last bits of the weights: adding in another order
        may do as much. `expected`, `second`: what both steps left. (A norm of what is next to 0, as the first token of a document may be, moves most.)"""
        rng = np.random.default_rng(3)
        for name, (values,) in self.step(batch, rate=0.0).items():
            if name in self.tensors:
                moved = values * (1 + 1e-15 * rng.uniform(-1, 1, values.shape))
                np.save(self.left(name, 0, 0), moved if self.tensors[name]["role"] == "parameter" else np.zeros_like(values))
        moved, _ = self.logical(self.step(batch, begin=0))
        behind, _ = self.logical(self.step(batch, 2))
        worst = lambda pairs: max(np.linalg.norm(a - b) / max(np.linalg.norm(b), 1e-300) for a, b in pairs)
        rounding = rounding_of(expected)
        parameters = [n.removesuffix(".first") for n in expected if n.endswith(".first") and n not in rounding]
        return (worst((moved[f"{n}.first"], expected[f"{n}.first"]) for n in parameters),
                worst((behind[n] - moved[n], second[n] - expected[n]) for n in parameters))

    def whole(self, tensor, pieces):
        """The logical tensor of pieces by rank, and whether those that several ranks hold are the same."""
        first = next(iter(pieces.values()))
        shards = [(shard["dim"] + first.ndim - len(tensor["shape"]), shard["axis"]) for shard in tensor["shards"]]
        shape = list(first.shape)
        for dim, axis in shards:
            shape[dim] *= coordinate(self.mesh, 0, axis)[1]
        result, known, same = np.zeros(shape), np.zeros(shape, bool), True
        for rank, piece in pieces.items():
            index = [slice(0, size) for size in shape]
            for dim, axis in shards:
                at, count = coordinate(self.mesh, rank, axis)
                size = (index[dim].stop - index[dim].start) // count
                index[dim] = slice(index[dim].start + at * size, index[dim].start + (at + 1) * size)
            index = tuple(index)
            same &= np.array_equal(result[index][known[index]], piece[known[index]])
            result[index], known[index] = piece, True
        return result, same and bool(known.all())

    def logical(self, pieces):
        """-> {name: array} with a name for each layer, whichever layers the program stacks; names of tensors whose replicas differ."""
        arrays, different = {}, []
        for name, of_ranks in pieces.items():
            for stage, tensors in enumerate(self.stages):
                # Of what is cut over stages all have a part, else a stage has it whole.
                cut = any("pp" in shard["axis"].split("*") for shard in tensors.get(name, {}).get("shards", []))
                mine = {rank: piece for rank, piece in enumerate(of_ranks) if piece is not None and (cut or self.stage_of(rank) == stage)}
                if not mine:
                    continue
                tensor = tensors.get(name, {"shape": next(iter(mine.values())).shape, "shards": [], "layers": []})
                array, same = self.whole(tensor, mine)
                parts = {name.replace("{}", str(layer)): part for layer, part in zip(tensor["layers"], array)} if tensor["layers"] else {name: array}
                # What several stages have, losses and tied tables, is the same on all.
                same &= all(np.array_equal(arrays[known], part) for known, part in parts.items() if known in arrays)
                different += [] if same else [name]
                arrays |= parts
        return arrays, different


def check(description, variants, refusals=(), drawn=False):
    """All that `variants`, (name, ranks, options of braid-compile), make of a description in f64; 0 when they are within their limits.
    `refusals`: reasons, one of which the compiler may give instead. `drawn`: nobody has looked how gradients drift, so limits grow with it."""
    report = Report(f"exact-{description['name']}")
    rng = np.random.default_rng(11)
    most = max([int(size) for _, _, flags in variants for size in re.findall(r"\bdp=(\d+)", flags[0])], default=1)
    documents = documents_of(description["train"]["seq_len"])
    documents *= -(-most // len(documents))  # a row for each
    rows, length = len(documents), documents[0][-1]
    labels = rng.integers(0, description["vocab_size"], (rows, length))
    for row, cuts in enumerate(documents):
        labels[row, cuts[-1] :] = -1
    batch = {"tokens": rng.integers(0, description["vocab_size"], (rows, length)), "labels": labels, "cu_seqlens": np.array(documents)}
    batch = {name: array.astype(np.int32) for name, array in batch.items()}
    with report:
        description["max_documents"] = len(DOCUMENTS[0]) - 1
        source = os.path.join(report.folder, "model.json")
        pathlib.Path(source).write_text(json.dumps(description))
        shape = [f"--batch={rows}", f"--seq-len={length}"]
        of_one = {}  # by micro-batches and ranks along dp, which share them

        def expectation(mesh):
            """What one rank with the same micro-batches makes of both steps, and how far that drifts."""
            key = (mesh.parts, mesh.dp if mesh.parts else 1)
            if key not in of_one:
                one = Mesh(report.folder, source, f"one-{key[0]}-{key[1]}", 1, shape + ([f"--micro-batches={mesh.parts}"] if mesh.parts else []))
                order = mesh.rows_of_parts(rows) if mesh.parts else slice(None)
                mine = {name: array[order] for name, array in batch.items()}
                expected, second = (one.logical(one.step(mine, number))[0] for number in (1, 2))
                of_one[key] = expected, second, one.drift(mine, expected, second) if drawn else (0.0, 0.0)
            return of_one[key]

        losses = ("loss", "aux_loss", "grad_norm")
        for name, ranks, flags in variants:
            try:
                mesh = Mesh(report.folder, source, name, ranks, shape + flags)
            except RuntimeError as refused:
                if not any(reason in str(refused) for reason in refusals):
                    raise
                report.line(True, f"{name} refused", str(refused).splitlines()[-1])
                continue
            expected, second, drift = expectation(mesh)
            grown = lambda of, limit: min(max(1.0, 30 * of / limit), 100.0)
            scale = grown(drift[0], LIMITS["gradients"])
            limits = {label: limit * (1 if label == "losses" else scale) for label, limit in LIMITS.items()}
            moments = [n for n in expected if n.endswith(".first")]
            # What is nothing but rounding has no digits to compare; it has to be as small.
            largest = max(np.linalg.norm(expected[n]) for n in moments)
            rounding = rounding_of(expected)
            moments = [n for n in moments if n not in rounding]
            parameters = [n for n in expected if n not in losses and not n.endswith((".first", ".second")) and f"{n}.first" not in rounding]
            pieces = mesh.step(batch)
            values, different = mesh.logical(pieces)
            large = [n for n in rounding if np.linalg.norm(values[n]) > 1e-12 * largest]
            report.line(not large, f"{name} gradients of rounding", f"{len(rounding)} tensors" + "".join(f", {n} is not" for n in large[:3]))
            report.line(not different, f"{name} replicas", f"{len(pieces)} tensors" + "".join(f", {n} differs" for n in different[:3]))
            for label, names in (("losses", losses[:2]), ("gradient norm", losses[2:]), ("gradients", moments), ("parameters", parameters)):
                report.compare(f"{name} {label}", values, {n: expected[n] for n in names}, limits[label])
            again = mesh.step(batch)
            changed = [n for n in pieces if any(a is not None and a.tobytes() != b.tobytes() for a, b in zip(pieces[n], again[n]))]
            report.line(not changed, f"{name} twice", f"{changed[0]} changed" if changed else "the same bits")
            behind, _ = mesh.logical(mesh.step(batch, 2))
            moved = {n: behind[n] - values[n] for n in parameters}
            limit = limits["moved"] * (10 if description["num_layers"] > 8 else 1)
            limit *= grown(drift[1], limit)
            report.compare(f"{name} step 2", moved, {n: second[n] - expected[n] for n in parameters}, limit)
    return report.finish()


def main(path, *names):
    if unknown := set(names) - {v[0] for v in VARIANTS}:
        sys.exit(f"there is no variant {', '.join(sorted(unknown))}; valid: {', '.join(v[0] for v in VARIANTS)}")
    text = "\n".join(line for line in pathlib.Path(path).read_text().splitlines() if not line.strip().startswith("//"))
    return check(json.loads(text) | {"dtype": "f64"}, [v for v in VARIANTS if v[0] in names])


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
