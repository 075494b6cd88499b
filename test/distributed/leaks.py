"""Packed documents on several ranks: nothing crosses their borders, not one bit.

As test/numerics/check_leaks.py, for whole models: every mixer that braid-compile knows, bare and with every further part it takes, in one model, each layer
followed by experts whose output weights are 0, so that layers are sliced and woven but experts, which add rows up in the order of the routes, change nothing. The tokens of one
document, which has no labels, are replaced: loss and gradients on both ranks must keep every bit. With labels, or without borders, they must not.
Usage: leaks.py MESH [full] [FLAG..]: flags of braid-compile; `full`: bare only those of which that is another reach (attention without a window); needs braid-compile and braid-run in PATH.
"""
import json
import os
import sys

import numpy as np

from exact import part_of
from check_leaks import BESIDE, FEATURES, OFF, TOKENS, VOCAB, Source, beside, description
from harness import Compiled, Report, run, tool

CU_SEQLENS = [[0, 5, 6, 64, 140, 150], [0, 70, 131, 131, 131, 131]]
DOCUMENTS = [(0, 0, 5), (0, 6, 64), (0, 64, 140), (1, 0, 70), (1, 70, 131)]  # row, begin, end
ROWS = len(CU_SEQLENS)
EXPERTS = {"kind": "moe", "num_experts": 4, "top_k": 2, "expert_hidden": 8, "router": {"balance_loss": 0, "z_loss": 0}}


class Model:
    def __init__(self, folder, *options):
        source = Source(folder, "f32")
        mixers = source.mixers()
        if "full" in options:
            mixers = {l: m for l, m in mixers.items() if m.get("window") == 0} | Source(folder, "f32", "full").mixers()
        self.labels = [m["kind"] + "".join(f" {k}" for k in FEATURES if m.get(k) not in (None, OFF[k])) for m in mixers.values()]
        self.labels += [" beside ".join(BESIDE)] * bool(beside(mixers))
        with open(source.path, "w", encoding="utf-8") as file:
            json.dump(description(mixers, "f32") | {"ffns": {"F": EXPERTS}}, file)
        self.path, self.folder = os.path.join(folder, "leaks.braid"), folder
        run([tool("braid-compile"), source.path, "-o", self.path, *(o for o in options if o != "full")])
        info = Compiled(self.path).info()
        tensors, self.mesh = info["tensors"], info["mesh"]
        self.slices = [int(end) for end in info["metadata"].get("sequence_slices", "").split(",") if end]
        self.ranks = int(np.prod([axis["size"] for axis in self.mesh["dense"]]))
        self.gradients = [t["name"] for t in tensors if t["role"] == "gradient" and not t["name"].endswith("moe.w2")]
        self.zeroed = [t for t in tensors if t["role"] == "parameter" and t["name"].endswith("moe.w2")]

    def file(self, name, rank="{rank}"):
        return os.path.join(self.folder, f"{name.replace('/', '_')}-{rank}.npy")

    def call(self, tokens, labels, cu_seqlens):
        """-> {name: [bits on every rank]}"""
        command = [tool("braid-run"), "call", self.path, "@train_step", "--seed", "5", "--ranks", str(self.ranks), "--threads", "1"]
        inputs = {"tokens": tokens, "labels": labels, "cu_seqlens": cu_seqlens}
        inputs = {name: [part_of(self.mesh, self.slices, rank, name, np.array(rows, np.int32)) for rank in range(self.ranks)]
                  for name, rows in inputs.items()}
        inputs |= {"learning_rate": [np.zeros(1, np.float32)] * self.ranks, "step": [np.ones(1, np.int32)] * self.ranks}
        inputs |= {t["name"]: [np.zeros(([len(t["layers"])] if t["layers"] else []) + t["shape"], np.float32)] * self.ranks for t in self.zeroed}
        for name, arrays in inputs.items():
            for rank, array in enumerate(arrays):
                np.save(self.file(name, rank), array)
            command += ["--input", f"{name}={self.file(name)}"]
        outputs = ["loss", *self.gradients]
        for name in outputs:
            command += ["--output", f"{name}={self.file(name)}"]
        run(command)
        return {name: [np.load(self.file(name, rank)).view(np.uint32) for rank in range(self.ranks)] for name in outputs}


def changed(a, b):
    return [name for name in a if any(not np.array_equal(x, y) for x, y in zip(a[name], b[name]))]


def main(mesh, *flags):
    report = Report("leaks-on-ranks")
    with report:
        model = Model(report.folder, f"--mesh={mesh}", *flags)
        rng = np.random.default_rng(7)
        tokens = rng.integers(0, VOCAB, (ROWS, TOKENS))
        labels = np.roll(tokens, -1, axis=1)
        for row, cuts in enumerate(CU_SEQLENS):
            labels[row, [max(c - 1, 0) for c in cuts if c > 0]] = -1
            labels[row, cuts[-1] :] = -1

        def moved(row, begin, end):
            new = tokens.copy()
            new[row, begin:end] = (new[row, begin:end] + rng.integers(1, VOCAB, end - begin)) % VOCAB
            return new

        for row, begin, end in DOCUMENTS:
            silent = labels.copy()
            silent[row, begin:end] = -1
            leaks = changed(model.call(tokens, silent, CU_SEQLENS), model.call(moved(row, begin, end), silent, CU_SEQLENS))
            words = f"{leaks[0]} changed; {len(leaks)} in all" if leaks else f"no bit of {len(model.gradients)} gradients changed"
            report.line(not leaks, f"row {row} tokens {begin}-{end - 1}", words)
        # The comparisons see what crosses: the same with labels, and one document where there were two.
        seen = changed(model.call(tokens, labels, CU_SEQLENS), model.call(moved(0, 6, 64), labels, CU_SEQLENS))
        report.line(len(seen) > len(model.gradients) / 2, "with labels", f"{len(seen)} gradients change")
        silent = labels.copy()
        silent[0, 6:64] = -1
        joined = [[0, 150, 150, 150, 150, 150], CU_SEQLENS[1]]
        seen = changed(model.call(tokens, silent, joined), model.call(moved(0, 6, 64), silent, joined))
        layers = {name.split(".")[2] for name in seen if name.startswith("gradient.layers.")}
        report.line(len(layers) == len(model.labels), "without borders", f"gradients of {len(layers)} of {len(model.labels)} layers change")
        print("mixers: " + "; ".join(model.labels))
    return report.finish()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
