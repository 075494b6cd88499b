"""A whole model from its description and its weights: logits, loss, router loss and all gradients, in float64.

    model = Model(read_description("tiny.json"), weights)       weights: "layers.0.lsm.wq" -> array
    result = model.loss(tokens, labels, documents)               .loss .aux .logits .ids (routes per layer) .gradients()

`routes` fixes the experts of every token, so that values are compared where a compiled program chose them.
"""

import json
import re

import numpy as np

import moe
import rows
from instances import mixer, token_before
from tape import Tape, Value
from train import cross_entropy

GATED = {"swiglu": "silu", "geglu": "gelu", "geglu_tanh": "gelu_tanh", "reglu": "relu"}


def read_description(path):
    """JSON with // comments."""
    with open(path, encoding="utf-8") as file:
        return json.loads(re.sub(r'("(?:[^"\\]|\\.)*")|//[^\n]*', lambda m: m.group(1) or "", file.read()))


def layers_of(pattern):
    """The letters of each layer: "LL(NM)-" is ["L", "L", "NM", "-"]."""
    return [group or letter for group, letter in re.findall(r"\((\w+)\)|([\w-])", pattern)]


def patterns(description):
    """Letters of the mixers and of the feed-forward of each layer, "-" where it has none."""
    feeding = description.get("ffn_pattern") or next(iter(description.get("ffns", {})), "-")
    return layers_of(description["layer_pattern"]), layers_of(feeding)


def residual_sums(description):
    return sum(pattern[i % len(pattern)] != "-" for pattern in patterns(description) for i in range(description["num_layers"]))


def matmul(tape, a, b):
    return tape.call(lambda a, b: (a @ b, lambda dy: (dy @ b.T, a.T @ dy)), a, b)


class Result:
    def __init__(self, tape, values, loss, aux, count, logits, ids, statistics):
        self.tape, self.values, self.count, self.ids, self.statistics = tape, values, count, ids, statistics
        self.loss, self.aux, self.logits = loss.array / max(count, 1), aux.array if aux else 0.0, logits.array
        self.seeds = {loss: 1 / max(count, 1)} | ({aux: 1.0} if aux else {})

    def gradients(self):
        names = list(self.values)
        return dict(zip(names, self.tape.pull(self.seeds, [self.values[n] for n in names])))


class Model:
    def __init__(self, description, weights):
        self.d = description
        self.weights = {n: np.asarray(a, np.float64) for n, a in weights.items()}

    def norm(self, tape, x, w, name):
        norm = {"kind": "rms", "eps": 1e-6} | self.d.get("norm", {})
        if norm["kind"] == "rms":
            return tape.call(rows.rms_norm, x, w[name + ".weight"], eps=norm["eps"])
        bias = [w[name + ".bias"]] if norm.get("bias", True) else []
        return tape.call(rows.layer_norm, x, w[name + ".weight"], *bias, eps=norm["eps"])

    def dense(self, tape, x, w, prefix, spec):
        kind = spec.get("activation", "swiglu")
        # Of a block that layers share: with the layer's own products of low rank, x (w1 + a b1).
        if f"{prefix}.a" in w:
            adapted = {f"{prefix}.{n}": tape.call(rows.add, w[f"{prefix}.{n}"], matmul(tape, w[f"{prefix}.a"], w[f"{prefix}.{n}_b"]))
                       for n in ("w1", "w3") if f"{prefix}.{n}" in w}
            w = w | adapted
        of_gate = x
        if spec.get("token_shift", False):
            difference = tape.call(rows.add, token_before(tape, x, self.documents), self.scaled(tape, x, -1.0))
            if spec.get("output_gate"):
                of_gate = tape.call(rows.add, x, tape.call(rows.weighted, difference, w[prefix + ".mu_g"]))
            x = tape.call(rows.add, x, tape.call(rows.weighted, difference, w[prefix + ".mu"]))
        biased = lambda y, part: tape.call(rows.bias, y, w[f"{prefix}.{part}"]) if spec.get("bias", False) else y
        opened = self.scaled(tape, biased(tape.linear(x, w[prefix + ".w1"]), "b1"), spec.get("gate_multiplier", 1.0))
        if kind == "swiglu_clamp":
            h = tape.call(moe.swiglu_clamp, opened, biased(tape.linear(x, w[prefix + ".w3"]), "b3"))
        else:
            h = tape.call(rows.activation, opened, kind=GATED.get(kind, kind))
        if kind in GATED:
            h = tape.call(rows.mul, h, biased(tape.linear(x, w[prefix + ".w3"]), "b3"))
        y = biased(tape.linear(h, w[prefix + ".w2"]), "b2")
        if not spec.get("output_gate"):
            return y
        return tape.call(rows.mul, y, tape.call(rows.activation, tape.linear(of_gate, w[prefix + ".wg"]), kind=spec["output_gate"]))

    def experts(self, tape, x, documents, w, spec, ids):
        kind, k = spec.get("activation", "swiglu"), spec["top_k"]
        router = {"normalize": True, "balance_loss": 0.01, "z_loss": 0.001, "score": "softmax", "scale": 1.0} | spec.get("router", {})
        logits = tape.linear(x, w["moe.router"])
        logits = tape.call(rows.bias, logits, w["moe.router_bias"]) if router.get("bias", False) else logits
        groups = router.get("groups", 1)
        limits = (groups, router.get("kept_groups", groups), {"max": 1, "top2": 2}[router.get("group_score", "max")])
        correction = w["moe.correction"].array if router.get("correction") else None
        scored = correction is not None or limits[0] > limits[1]
        keys = lambda l: moe.router_keys(l, router["score"], correction) if scored else l
        routing = {key: router[key] for key in ("score", "scale")} | {"choose": lambda l: moe.route(keys(l), k, *limits)}
        chosen, limit = [], None
        if spec.get("capacity_factor"):
            rule = spec.get("capacity_rule", "megatron")
            experts, policy = spec["num_experts"], spec.get("drop_policy", "token")
            holders = spec["devices"] if policy == "device" else experts
            slots = moe.capacity(rule, spec["capacity_factor"], x.shape[1], k, holders, experts // holders)
            limit = {"slots": slots, "policy": policy, "bucket": experts // holders, "protect": spec.get("protect", 0.0)}
            limit["renormalize"] = spec.get("renormalize", False)
            if policy == "random" or limit["protect"] > 0:
                B = x.shape[0]
                limit["keys"] = np.concatenate([self.draw_keys[:, :2], np.full((B, 1), self.drawn)], 1)
                self.drawn += 1

        def run(*operands):
            (y, used, counts, dropped), pull = moe.experts(
                *operands[:6], k, router["normalize"], GATED.get(kind, kind), ids, limit, routing, operands[6:]
            )
            chosen.extend((used, counts))
            self.statistics.append((counts, dropped))
            return y, pull

        latent = "moe.latent_in" in w
        inside = tape.linear(x, w["moe.latent_in"]) if latent else x
        y = tape.call(run, inside, logits, documents, *(w.get(f"moe.{n}") for n in ("w1", "w3", "w2", "b1", "b3", "b2")))
        y = tape.linear(y, w["moe.latent_out"]) if latent else y
        if spec.get("shared_hidden", 0):
            shared = self.dense(tape, x, w, "shared", {"activation": kind})
            if spec.get("shared_gate", False):
                gate = w["shared.gate"]
                score = tape.linear(x, tape.reshape(gate, gate.shape + (1,)))
                shared = tape.call(rows.mul, shared, tape.reshape(tape.call(rows.activation, score, kind="sigmoid"), x.shape[:2]))
            y = tape.call(rows.add, y, shared)
        loss = tape.sum(
            tape.call(
                moe.router_loss,
                logits,
                chosen[1],
                documents,
                top_k=k,
                balance=router["balance_loss"],
                z=router["z_loss"],
                score=router["score"],
            )
        )
        return y, loss, chosen[0]

    def inject(self, tape, x, documents, w, letter, told):
        """What a block that layers share adds to what the mixers of layer `i` read; its weights are of the model, others of the layer."""
        spec = self.d["injects"][letter]
        w = {n.removeprefix("inject."): v for n, v in w.items() if n.startswith("inject.")} | {
            n.removeprefix(f"injects.{letter}."): v for n, v in self.values.items() if n.startswith(f"injects.{letter}.")}

        def beside(x, e):
            return np.concatenate([x, e], -1), lambda dy: tuple(np.split(dy, 2, -1))

        read = self.norm(tape, tape.call(beside, x, self.embedding), w, "norm1")
        if spec.get("attention_adapter_rank", 0):
            w |= {f"attn.{n}": tape.call(rows.add, w[f"attn.{n}"], matmul(tape, w[f"attn.{n}_a"], w[f"attn.{n}_b"])) for n in ("wq", "wk", "wv")}
        h = mixer(tape, read, documents, w, {"kind": "attention"} | spec["attention"] | told)
        if spec.get("ffn"):
            h = self.dense(tape, self.norm(tape, h, w, "norm2"), w, "ffn", spec["ffn"])
        return tape.linear(h, w["wi"])

    def layer(self, tape, x, documents, w, i, routes):
        """-> y, router loss or None, expert ids or None."""
        d = self.d
        letters, feeding = (pattern[i % len(pattern)] for pattern in patterns(d))
        specs = [d.get("mixers", {})[letter] for letter in letters if letter != "-"]
        ffn = d.get("ffns", {}).get(feeding)  # None: no such part
        told = {"model_eps": d.get("norm", {}).get("eps", 1e-6), "layer": i, "num_layers": d["num_layers"]}
        told["shared"] = self.shared  # what mixers hand on to later ones
        told["model_weights"] = self.values
        extra = [None, None]

        def mix(place, spec):
            prefix = f"mixer{place + 1}." if len(specs) > 1 else ""
            own = {n[len(prefix) :]: v for n, v in w.items() if n.startswith(prefix)}
            return lambda x: mixer(tape, self.scaled(tape, x, spec.get("input_multiplier", 1.0)), documents, own, spec | told)

        def feed(x):
            if ffn["kind"] == "dense":
                return self.dense(tape, x, w, "ffn", ffn)
            y, *extra[:] = self.experts(tape, x, documents, w, ffn, None if routes is None else routes[i])
            return y

        inject = d.get("inject_pattern", "-")
        inject = inject[i % len(inject)]
        injected = self.inject(tape, x, documents, w, inject, told) if inject != "-" else None
        side_by_side = [mix(place, spec) for place, spec in enumerate(specs)]
        for name, keys, parts in (("norm1", specs, side_by_side), ("norm2", [ffn] if ffn else [], [feed])):
            if not keys:
                continue
            placement = keys[0].get("norm_placement", d.get("norm_placement", "pre"))
            alpha, betas = self.residual(keys[0])[0], [self.residual(each)[1] for each in keys]

            def join(past, *added, alpha=alpha, betas=betas):
                return tape.call(rows.add, self.scaled(tape, past, alpha), *(self.scaled(tape, *each) for each in zip(added, betas)))

            plus = lambda added: tape.call(rows.add, *added) if len(added) > 1 else added[0]
            read = x if injected is None or name == "norm2" else tape.call(rows.add, x, injected)
            if placement == "post":
                x = self.norm(tape, join(x, *(part(read) for part in parts)), w, name)
                continue
            if placement == "output":
                x = join(x, self.norm(tape, plus([part(read) for part in parts]), w, name))
                continue
            normed = self.norm(tape, read, w, name)
            y = [part(normed) for part in parts]
            if placement == "sandwich":
                y = [self.norm(tape, plus(y), w, name + "_post")]
            x = join(normed if d.get("residual", {}).get("from", "input") == "normed" else x, *y)
        return x, extra[0], extra[1]

    def residual(self, keys):
        """alpha and beta of a part: its own keys over the model's."""
        scale = {"alpha": 1.0, "beta": 1.0} | self.d.get("residual", {}) | keys.get("residual", {})
        deep = scale["alpha"] == "deepnorm"
        return residual_sums(self.d) ** 0.25 if deep else scale["alpha"], scale["beta"]

    def scaled(self, tape, x, factor):
        return tape.call(rows.scale, x, value=factor)

    def loss(self, tokens, labels, documents, routes=None, draw_keys=None):
        """draw_keys [B, 3]: what layers that draw are given; each adds 1 to the last column."""
        self.draw_keys, self.drawn, self.shared = draw_keys, 0, {}
        self.documents = documents
        tape = Tape()
        self.values = values = {n: Value(a) for n, a in self.weights.items()}

        def lookup(table):
            def pull(dy):
                d = np.zeros(table.shape)
                np.add.at(d, tokens, dy)
                return (d,)

            return table[tokens], pull

        x = self.scaled(tape, tape.call(lookup, values["embed.weight"]), self.d.get("embedding_multiplier", 1.0))
        if self.d.get("embedding_norm", False):
            x = self.norm(tape, x, values, "embed_norm")
        self.embedding = x
        losses, ids = [], {}
        self.statistics = []  # (assignments, dropped ones) per expert, of each layer with experts
        for i in range(self.d["num_layers"]):
            prefix = f"layers.{i}."
            w = {n[len(prefix) :]: v for n, v in values.items() if n.startswith(prefix)}
            x, loss, chosen = self.layer(tape, x, documents, w, i, routes)
            if loss is not None:
                losses.append(loss)
                ids[i] = chosen
        if self.d.get("norm_placement", "pre") != "post":
            x = self.norm(tape, x, values, "final_norm")
        base = self.d.get("init", {}).get("base_width")
        ratio = self.d["d_model"] / base if base else 1.0
        x = self.scaled(tape, x, self.d.get("logits_multiplier", 1.0) / ratio)
        tied = self.d.get("tie_embeddings", False)
        logits = tape.linear(x, tape.transpose(values["embed.weight"]) if tied else values["head.weight"])
        if cap := self.d.get("logits_softcap"):
            logits = self.scaled(tape, tape.call(rows.activation, self.scaled(tape, logits, 1 / cap), kind="tanh"), cap)
        counted = []

        def loss_of(logits):
            (total, count, _), pull = cross_entropy(logits, labels)
            counted.append(count)
            return total, pull

        total = tape.call(loss_of, logits)
        aux = tape.call(rows.add, *losses) if losses else None
        return Result(tape, values, total, aux, counted[0], logits, ids, self.statistics)
