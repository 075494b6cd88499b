"""A model file compiled, its parameters as NumPy arrays, and its entry points as functions of them."""

import json
import os

import numpy as np

from harness import Compiled, TYPES, loaded, run, stored, tool
from common import PADDING, documents_of
from model import Model


class CompiledModel:
    """description: a dict or the path of a model file; overrides replace its keys."""

    def __init__(self, description, folder, name="model", options=()):
        self.description = description
        source, path = os.path.join(folder, name + ".json"), os.path.join(folder, name + ".braid")
        with open(source, "w", encoding="utf-8") as file:
            json.dump(description, file)
        run([tool("braid-compile"), source, "-o", path, *options])
        self.program = Compiled(path)
        self.info = self.program.info()
        self.dtype = description.get("dtype", "f32")
        self.wide = "f32" if self.dtype == "bf16" else self.dtype  # of scalars and everything that is not rounded
        self.tensors = {t["name"]: t for t in self.info["tensors"]}
        self.parameters = {n: t for n, t in self.tensors.items() if t["role"] == "parameter"}
        self.gradients = {t["of"]: n for n, t in self.tensors.items() if t["role"] == "gradient"}
        self.caches = [n for n, t in self.tensors.items() if t["role"] == "cache"]
        self.train = {"batch": 8, "seq_len": 256} | description.get("train", {})
        self.documents = description.get("max_documents", 1)

    def call(self, entry, inputs, outputs):
        """A call with values: bf16 tensors travel as float32 that bf16 can hold."""
        dtype = lambda name: self.tensors[name]["dtype"] if name in self.tensors else None
        files = {n: a if isinstance(a, str) or not dtype(n) else stored(a, dtype(n)) for n, a in inputs.items()}
        return {n: loaded(a, dtype(n)) for n, a in self.program.call(entry, files, outputs).items()}

    def initial(self, seed):
        """Stacked parameters by name: what @init writes."""
        return self.call("init", {"seed": np.array([seed], np.int64)}, list(self.parameters))

    def rounded(self, stacked):
        """Parameters as the program can hold them."""
        return {n: loaded(stored(a, t), t) for n, a in stacked.items() for t in [self.parameters[n]["dtype"]]}

    def logical(self, stacked):
        """Stacked tensors -> "layers.3.lsm.wq": array."""
        out = {}
        for name, array in stacked.items():
            layers = self.parameters[name]["layers"]
            if not layers:
                out[name] = array
            for layer, part in zip(
                layers, array.reshape((len(layers), *self.parameters[name]["shape"])) if layers else ()
            ):
                out[name.replace("{}", str(layer))] = part
        return out

    def reference(self, stacked):
        return Model(self.description, self.logical(stacked))

    def batch(self, rng, cuts=None):
        """Tokens, labels and cu_seqlens of a training batch; padding has no labels."""
        B, T, D = self.train["batch"], self.train["seq_len"], self.documents
        vocab = self.description["vocab_size"]
        cu = np.array(cuts if cuts else [[0] + [T] * D] * B, np.int32)
        documents = documents_of(cu, T)
        labels = np.where(documents == PADDING, -1, rng.integers(0, vocab, (B, T))).astype(np.int32)
        return {
            "tokens": rng.integers(0, vocab, (B, T)).astype(np.int32),
            "labels": labels,
            "cu_seqlens": cu,
        }, documents

    def step(self, stacked, batch, outputs, learning_rate=0.0, number=1):
        inputs = (
            dict(stacked)
            | batch
            | {"learning_rate": np.array([learning_rate], TYPES[self.wide]), "step": np.array([number], np.int32)}
        )
        return self.call("train_step", inputs, outputs)

    def cached(self, entry, stacked, caches, tokens, cu_seqlens):
        """prefill_N or decode_1: -> logits [vocab], new caches."""
        inputs = (
            dict(stacked)
            | caches
            | {"tokens": np.asarray([tokens], np.int32), "cu_seqlens": np.asarray([cu_seqlens], np.int32)}
        )
        out = self.call(entry, inputs, ["logits", *self.caches])
        return out.pop("logits")[0], out
