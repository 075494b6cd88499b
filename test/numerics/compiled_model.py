"""A model file compiled, its parameters as NumPy arrays, and its entry points as functions of them."""

import json
import os

import numpy as np

from harness import Compiled, TYPES, loaded, run, stored, tool
import moe
from common import PADDING, documents_of, one_document
from model import Model


def perturbed(weights, rng):
    """Initial values, but nothing that hides a mistake: no weight is exactly 0 or 1."""
    out = {}
    for name, array in weights.items():
        same = np.all(array == array.flat[0]) or (array.ndim > 1 and array.shape[-1] > 1 and np.all(array == array[..., :1]))
        constant = array.size > 1 and same and not name.endswith(("lower_bound", "is_first"))
        out[name] = (array + 0.3 * rng.standard_normal(array.shape) if constant else array).astype(array.dtype)
    return out


def decays(name):
    """Weight decay applies to matrices, embeddings and convolutions."""
    vectors = ("bias", "a_log", "dt_bias", "d", "bq", "bk", "bv", "bo", "sinks", "router_bias", "bf", "bi", "be", "b1", "b2", "b3", "w0", "a0", "u", "k_k", "k_a", "r_k")
    vectors += ("v0", "mu", "lower_bounds", "br", "ba", "bb", "bc", "bz", "bg", "bdt", "bo", "token_rate", "start", "log_dt", "log_a", "a_im", "c_re", "c_im")
    return "norm" not in name and ".mu_" not in name and not name.endswith("lsm.a") and name.split(".")[-1] not in vectors


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
        batch = {
            "tokens": rng.integers(0, vocab, (B, T)).astype(np.int32),
            "labels": labels,
            "cu_seqlens": cu,
        }
        if any(name.split("/")[-1] == "draw_keys" for name in self.tensors):
            batch["draw_keys"] = np.array([[1000 + b, -5, 0] for b in range(B)], np.int64)
        return batch, documents

    def expected(self, stacked, batch, documents):
        """What the reference makes of a batch."""
        return self.reference(stacked).loss(batch["tokens"], batch["labels"], documents, draw_keys=batch.get("draw_keys"))

    def corrected(self, stacked, loads):
        """Corrections of choices after an update with these loads [layers with experts, E], stacked, by name."""
        pattern, out = self.description.get("ffn_pattern", ""), {}
        numbers = lambda name: self.parameters[name]["layers"] or [int(name.split(".")[1])]
        experts = sorted(i for n in self.parameters if n.endswith("moe.router") for i in numbers(n))
        for name in (n for n in self.parameters if n.endswith("moe.correction")):
            routers = [self.description["ffns"][pattern[i % len(pattern)]]["router"] for i in numbers(name)]
            rates = np.array([router.get("correction_rate", 0.001) for router in routers])[:, None]
            rows = stacked[name].reshape(len(rates), -1)
            out[name] = moe.correct(rows, [loads[experts.index(i)] for i in numbers(name)], rates).reshape(stacked[name].shape)
        return out

    def step_inputs(self, stacked, batch, learning_rate=0.0, number=1):
        scalars = {"learning_rate": np.array([learning_rate], TYPES[self.wide]), "step": np.array([number], np.int32)}
        return dict(stacked) | batch | scalars

    def step(self, stacked, batch, outputs, learning_rate=0.0, number=1):
        return self.call("train_step", self.step_inputs(stacked, batch, learning_rate, number), outputs)

    def cached(self, entry, stacked, caches, tokens, cu_seqlens):
        """prefill_N or decode_1: -> logits [vocab], new caches."""
        inputs = (
            dict(stacked)
            | caches
            | {"tokens": np.asarray([tokens], np.int32), "cu_seqlens": np.asarray([cu_seqlens], np.int32)}
        )
        out = self.call(entry, inputs, ["logits", *self.caches])
        return out.pop("logits")[0], out

    def scored(self, stacked, tokens, lengths):
        """What score_32 says of tokens that follow each other, in calls of so many: got and want {losses, likeliest_losses}, likeliest.

        got["chosen_losses"]: the reference's own of the tokens that are called likeliest, which of equal ones may be others than its own.
        """
        rows = sum(lengths)
        reference = self.reference(stacked).loss(tokens[None], np.full((1, len(tokens)), -1), one_document(1, len(tokens)))
        logits = np.asarray(reference.logits[0][:rows], np.float64)
        top = logits.max(-1, keepdims=True)
        losses = top + np.log(np.exp(logits - top).sum(-1, keepdims=True)) - logits
        caches, position = {}, 0
        got = {name: [] for name in ("losses", "likeliest_losses", "likeliest")}
        for n in lengths:
            chunk, labels = np.zeros((1, 32), np.int32), np.full((1, 32), -1, np.int32)
            chunk[0, :n], labels[0, :n] = tokens[position : position + n], tokens[position + 1 : position + n + 1]
            inputs = dict(stacked) | caches | {"tokens": chunk, "labels": labels, "cu_seqlens": np.array([[-position, n]], np.int32)}
            out = self.call("score_32", inputs, [*got, *self.caches])
            for name, parts in got.items():
                parts.append(out.pop(name)[0, :n])
            caches, position = out, position + n
        got = {name: np.concatenate(parts) for name, parts in got.items()}
        at = lambda words: np.take_along_axis(losses, np.asarray(words, int)[:, None], 1)[:, 0]
        want = {"losses": at(tokens[1 : rows + 1]), "likeliest_losses": losses.min(-1), "chosen_losses": losses.min(-1)}
        return {"losses": got["losses"], "likeliest_losses": got["likeliest_losses"], "chosen_losses": at(got["likeliest"])}, want

    def decoded(self, stacked, tokens, prefills, end):
        """Logits after prefills of these lengths and then after each token up to position `end`, and those of the whole forward.

        A prefill is a number of tokens, in a block of 32, or (block, tokens).
        """
        vocab, length = self.description["vocab_size"], len(tokens)
        whole = self.reference(stacked).loss(tokens[None], np.full((1, length), -1), one_document(1, length)).logits[0]
        caches, position, got, want = {}, 0, [], []
        blocks = [p if isinstance(p, tuple) else (32, p) for p in prefills]
        for block, n in (*blocks, *[(1, 1)] * (end - sum(n for _, n in blocks))):
            chunk = np.zeros(block, np.int32)
            chunk[:n] = tokens[position : position + n]
            entry = f"prefill_{block}" if block > 1 else "decode_1"
            logits, caches = self.cached(entry, stacked, caches, chunk, [-position, n])
            position += n
            got.append(logits)
            want.append(whole[position - 1])
        return np.array(got).reshape(-1, vocab), np.array(want)


def check_reference(report, model, weights, batch, documents, limit=None, others=None):
    """Loss, statistics and gradients of train_step and the loss of eval_step; -> values. limit: of gradients, else 1e-8 in f64, 1e-4.

    others {end of a parameter's name: limit}
    """
    exact = model.dtype == "f64"
    limit = limit or (1e-8 if exact else 1e-4)
    experts = ["expert_counts"] if any(f["kind"] == "moe" for f in model.description.get("ffns", {}).values()) else []
    values = model.step(weights, batch, ["loss", "aux_loss", "grad_norm", *experts, *model.gradients.values()])
    result = model.expected(weights, batch, documents)
    if experts:
        counts = [
            np.bincount(ids[documents != PADDING].ravel(), minlength=values["expert_counts"].shape[-1])
            for _, ids in sorted(result.ids.items())
        ]
        report.compare("expert counts", values, {"expert_counts": np.array(counts, np.int32)}, 0)
    losses = {"loss": np.array([result.loss]), "aux_loss": np.atleast_1d(result.aux)}
    report.compare("loss", values, losses, 1e-9 if exact else 2e-6)
    got, expected = {}, {}
    gradients = result.gradients()
    for parameter, name in model.gradients.items():
        for logical, array in model.logical({parameter: values[name]}).items():
            got[logical], expected[logical] = array, gradients[logical]
    limits = {name: next((l for end, l in (others or {}).items() if name.endswith(end)), limit) for name in expected}
    report.compare("gradients", got, expected, limits)
    norm = np.sqrt(sum((g**2).sum() for g in expected.values()))
    report.compare("grad_norm", values, {"grad_norm": np.array([norm])}, limit)
    evaluated = model.call("eval_step", dict(weights) | batch, ["loss_sum", "valid_tokens"])
    report.compare(
        "eval_step",
        evaluated,
        {"loss_sum": np.array([result.loss * result.count]), "valid_tokens": np.array([float(result.count)])},
        1e-9 if exact else 2e-6,
    )
    return values


def check_decoding(report, model, weights, rng, prefills=((1,), (7,), (30,)), steps=6, limit=None):
    """After a prefill of any length, or several, every step gives the logits of the full forward, and so do scores of what is read."""
    bound = limit or (1e-9 if model.dtype == "f64" else 1e-4)
    ends = [sum(p) + steps for p in prefills]
    tokens = rng.integers(0, model.description["vocab_size"], max(ends))
    for lengths, end in zip(prefills, ends):
        label = " + ".join(map(str, lengths))
        got, want = model.decoded(weights, tokens, lengths, end)
        report.compare(f"decode to {end} after prefill {label}", {"logits": got}, {"logits": want}, bound)
        greedy = np.argmax(got, -1)
        same = np.array_equal(greedy, np.argmax(want, -1))
        report.line(same, f"greedy choices after prefill {label}", f"{greedy.tolist()}")
    got, want = model.scored(weights, np.random.default_rng(3).integers(0, model.description["vocab_size"], 37), (5, 29, 2))
    report.compare("scores of 5 + 29 + 2 tokens", got, want, bound)
