"""Packed documents: nothing crosses their borders, not one bit: python3 check_leaks.py f32|bf16 [bare|full]

Every mixer that braid-compile knows (it lists them itself, so a new one is tested without a line here), once bare and
once with every further part it takes of FEATURES (`bare`, `full`: only so). A row holds several documents: one of a single token, one longer than
a chunk, borders on and off the edges of chunks, padding. The contents of one document are replaced, by ordinary numbers
and by huge ones; the bits of

    outputs, final states and gradients of inputs    outside of it
    gradients of weights                             when the document itself has no cotangent

must stay. The same for what stands in caches and states before a document begins, and for the tokens behind a prompt in
a bucket.
"""

import json
import os
import re
import string
import subprocess
import sys

import numpy as np

from harness import Compiled, Report, loaded, run, stored, tool

BATCH, TOKENS, WIDTH, VOCAB = 2, 150, 16, 11
CU_SEQLENS = np.array([[0, 5, 6, 64, 140, 150], [-7, 70, 131, 131, 131, 131]], np.int32)
# What a kind does not go without.
NEEDED = {
    "mla": {"kv_rank": 12, "rope_dim": 4},
    "recurrence": {
        "state": "M = exp(g) M + k^T v",
        "output": "o = q M",
        "inputs": {
            "q": "rope(linear(x))",
            "k": "silu(conv(linear(x)))",
            "v": "linear(x)",
            "f": "linear(x)",
            "g": "log_sigmoid(f)",
        },
    }
}
FEATURES = {
    "rope": {"fraction": 0.5},
    "conv": {"kernel": 4, "bias": True},
    "window": 9,
    "qkv_bias": True,
    "output_bias": True,
    "sinks": True,
    "qk_norm": True,
    "bcdt_norm": True,
    "output_gate": "sigmoid",
    "projection_bias": True,
}
OFF = {"rope": None, "conv": None, "window": 0, "qkv_bias": False, "output_bias": False, "sinks": False, "qk_norm": False, "bcdt_norm": False, "output_gate": None, "projection_bias": False}
# x is small: the sum with the mixer's output, of size 1, keeps every bit of it.
SMALL = 1e-3


# Side by side in one more layer, where all of them are there.
BESIDE = ("attention", "mamba2", "kda")


def beside(mixers):
    """Letters of the mixers of that layer, those with most parts; or none."""
    letters = {m["kind"]: letter for letter, m in mixers.items()}
    return "".join(letters[kind] for kind in BESIDE) if set(BESIDE) <= set(letters) else ""


def description(mixers, dtype):
    group = beside(mixers)
    return {
        "dtype": dtype,
        "vocab_size": VOCAB,
        "d_model": WIDTH,
        "num_layers": len(mixers) + bool(group),
        "layer_pattern": "".join(mixers) + f"({group})" * bool(group),
        "max_documents": CU_SEQLENS.shape[1] - 1,
        "context_len": 64,
        "mixers": mixers,
        "ffns": {"F": {"kind": "dense", "hidden": 8}},
        "train": {"batch": BATCH, "seq_len": TOKENS},
    }


class Source:
    """Model files in a folder."""

    def __init__(self, folder, dtype, parts=""):
        self.path, self.dtype, self.parts = os.path.join(folder, "leaks.json"), dtype, parts

    def errors(self, mixers):
        self.write(mixers)
        command = [tool("braid-compile"), self.path, "--to-phase=model", "-o", os.devnull]
        return subprocess.run(command, capture_output=True, text=True, check=False).stderr

    def write(self, mixers):
        with open(self.path, "w", encoding="utf-8") as file:
            json.dump(description(mixers, self.dtype), file)

    def kinds(self):
        found = re.search(r'"none" is not known; valid: ([\w, ]+)', self.errors({"A": {"kind": "none"}}))
        return found.group(1).split(", ")

    def mixers(self):
        """Letter: settings; a letter for every kind bare, one for every kind with all parts."""
        letters, last = iter(string.ascii_letters.swapcase()), reversed(string.ascii_letters.swapcase())
        heads = lambda kind: {} if kind == "short_conv" else {"heads": 2, "value_dim" if kind == "rglru" else "head_dim": 8}  # which has none
        base = {next(letters): {"kind": kind} | heads(kind) | NEEDED.get(kind, {}) for kind in self.kinds()}
        refused = set()
        for letter, settings in base.items():
            refused |= set(re.findall(r"mixers\.(\w)\.(\w+): unknown key", self.errors({letter: settings | FEATURES})))
        mixers = {}
        for letter, settings in base.items():
            taken = [key for key in FEATURES if (letter, key) not in refused]
            if self.parts != "full":
                # Whose inputs call conv(..) has one of the default taps, as short_conv, and rope(..) turns all features.
                stays = {"conv", "rope"} if "inputs" in settings else {"conv"} if settings["kind"] == "short_conv" else set()
                mixers[letter] = settings | {key: OFF[key] for key in taken if key not in stays}
            if self.parts == "full" or (self.parts != "bare" and taken):  # without any both are one
                mixers[next(last if self.parts == "full" else letters)] = settings | {key: FEATURES[key] for key in taken}
        self.write(mixers)
        return mixers


class Argument:
    def __init__(self, name, type, attributes):
        self.name, self.type = name, type
        self.shape = tuple(int(d) for d in type[len("tensor<") : type.rindex("x")].split("x"))
        self.dtype = type[type.rindex("x") + 1 : -1]
        self.trained = "braid.trained = false" not in attributes


def arguments(function):
    """Arguments of a printed function, by their braid.name."""
    header = function[: function.index("\n")]
    found = re.findall(r"%[\w.]+: (tensor<[\w]+>) \{([^{}]*)\}", header.split(") -> ")[0])
    return [Argument(re.search(r'braid.name = "([^"]+)"', text).group(1), type, text) for type, text in found]


class Layer:
    """The function of one layer in training and its arguments: x, documents, states, weights."""

    def __init__(self, letter, settings, module, step):
        self.letter, self.kind = letter, settings["kind"]
        self.label = self.kind + "".join(f" {k}" for k in FEATURES if settings.get(k))
        self.callee = f"layer_{letter}_F_{BATCH}x{TOKENS}"
        text = module[self.callee]
        self.arguments = arguments(text)
        results = text[: text.index("\n")].split(") -> ")[1]
        count = results.count("tensor<") - 1
        # What layers hand on from the first of them is per token, and stands before the states.
        self.handed = [a for a in self.arguments if a.name == "first_value"]
        first, behind = 2 + len(self.handed), 2 + count
        self.states, self.weights = self.arguments[first:behind], self.arguments[behind:]
        trained = {re.sub(r"^layers\.\d+\.", "", a.name): a.trained for a in step}
        for weight in self.weights:
            weight.trained = trained[weight.name]

    def name(self, argument):
        return f"{self.letter}.{argument.name}"


def split(text):
    """Printed module -> header, {name: function}."""
    parts = re.split(r"\n(?=  func\.func )", text[: text.rstrip().rindex("\n}")])
    return parts[0], {re.search(r"@(\w+)", part).group(1): part for part in parts[1:]}


def leak_entry(layers):
    """An entry that trains all layers beside each other, each on its own x: loss = sum of <y, dy>."""
    element = layers[0].arguments[0].dtype
    token, rows = f"tensor<{BATCH}x{TOKENS}x{WIDTH}x{element}>", f"tensor<{BATCH}x{TOKENS}xf32>"
    one, documents = f"tensor<{BATCH}x{TOKENS}x1xf32>", f"tensor<{BATCH}x{TOKENS}xi32>"
    cu = f"tensor<{'x'.join(map(str, CU_SEQLENS.shape))}xi32>"
    args, lines, results = [], [], []

    def argument(name, type, role):
        args.append(f'%arg{len(args)}: {type} {{braid.name = "{name}", braid.role = "{role}"}}')
        return f"%arg{len(args) - 1}"

    def result(name, value, type):
        results.append((value, type, f'{type} {{braid.name = "{name}", braid.role = "output"}}'))

    cu_seqlens = argument("cu_seqlens", cu, "input")
    dy, ones = argument("dy", token, "input"), argument("ones", f"tensor<{WIDTH}x1x{element}>", "input")
    lines.append(f'%documents = "braid.documents"({cu_seqlens}) : ({cu}) -> {documents}')
    lines.append('%unit = "arith.constant"() <{value = dense<1.0> : tensor<1xf32>}> : () -> tensor<1xf32>')
    losses = []
    for i, layer in enumerate(layers):
        x = argument(f"{layer.letter}.x", token, "parameter")
        operands = [x, "%documents"]
        for a in layer.handed:  # of no layer before this one
            lines.append(f'%h{i} = "arith.constant"() <{{value = dense<0.0> : {a.type}}}> : () -> {a.type}')
            operands.append(f"%h{i}")
        for state in layer.states:
            operands.append(argument(layer.name(state), state.type, "input"))
        for weight in layer.weights:
            operands.append(argument(layer.name(weight), weight.type, "parameter" if weight.trained else "input"))
        types = [token, documents] + [a.type for a in layer.handed + layer.states + layer.weights]
        out = [token] + [s.type for s in layer.handed + layer.states]
        many = f":{len(out)}" if len(out) > 1 else ""
        lines.append(
            f'%y{i}{many} = "func.call"({", ".join(operands)}) <{{callee = @{layer.callee}}}> : '
            f'({", ".join(types)}) -> ({", ".join(out)})'
        )
        value = lambda n, i=i, many=many: f"%y{i}#{n}" if many else f"%y{i}"
        result(f"{layer.letter}.y", value(0), token)
        for n, state in enumerate(layer.states):
            result(f"{layer.name(state)}.final", value(1 + len(layer.handed) + n), state.type)
        lines.append(f'%p{i} = "braid.mul"({value(0)}, {dy}) : ({token}, {token}) -> {token}')
        lines.append(f'%r{i} = "braid.linear"(%p{i}, {ones}) : ({token}, tensor<{WIDTH}x1x{element}>) -> {one}')
        lines.append(f'%l{i} = "braid.reshape"(%r{i}) : ({one}) -> {rows}')
        losses.append(f"%l{i}")
    lines.append(f'%all = "braid.add"({", ".join(losses)}) : ({", ".join([rows] * len(losses))}) -> {rows}')
    lines.append(f'%loss = "braid.sum"(%all) : ({rows}) -> tensor<1xf32>')
    result("loss_sum", "%loss", "tensor<1xf32>")
    result("loss_count", "%unit", "tensor<1xf32>")
    body = "\n    ".join(lines)
    values, types = ", ".join(r[0] for r in results), ", ".join(r[1] for r in results)
    return (
        f'  func.func @leak({", ".join(args)}) -> ({", ".join(r[2] for r in results)})\n'
        f"      attributes {{braid.entry, braid.train = {{clip_norm = 0.0 : f64}}}} {{\n    {body}\n"
        f"    return {values} : {types}\n  }}"
    )


def compile_layers(report, dtype, parts):
    """-> layers, the program with @leak, and prefill_32 and decode_1 of a model of all layers."""
    source = Source(report.folder, dtype, parts)
    mixers = source.mixers()
    printed, program = (os.path.join(report.folder, "leaks" + end) for end in (".mlir", ".braid"))
    header, module = split(run([tool("braid-compile"), source.path, "--to-phase=model", "-o", "-"]))
    step = arguments(module["train_step"])
    layers = [Layer(letter, settings, module, step) for letter, settings in mixers.items()]
    layers += [Layer(group, {"kind": " beside ".join(BESIDE)}, module, step) for group in [beside(mixers)] if group]
    wanted = re.compile(rf"_({BATCH}x{TOKENS}|cached_1x32|cached_1x1)$|^(prefill_32|decode_1)$")
    kept = [function for name, function in module.items() if wanted.search(name)]
    with open(printed, "w", encoding="utf-8") as file:
        file.write("\n".join([header, *kept, leak_entry(layers), "}\n"]))
    run([tool("braid-compile"), printed, "-o", program])
    return layers, Compiled(program)


def bits(array):
    return array.view(f"u{array.dtype.itemsize}")


class Groups:
    """Tokens by document: masks [B, T] by label; `row` and `last` say whether a row's final state may depend on it."""

    def __init__(self):
        self.masks, self.rows, self.last = {}, {}, {}
        at = np.arange(TOKENS)
        for row, cuts in enumerate(CU_SEQLENS):
            edges = sorted({max(int(c), 0) for c in cuts} | {TOKENS})
            for begin, end in zip(edges, edges[1:]):
                padding = begin >= cuts[-1]
                label = f"row {row} {'padding' if padding else 'tokens'} {begin}-{end - 1}"
                mask = np.zeros((BATCH, TOKENS), bool)
                mask[row] = (at >= begin) & (at < end)
                self.masks[label], self.rows[label], self.last[label] = mask, row, end == cuts[-1]


def drawn(rng, name, shape, trained):
    """A weight by its name in the layer."""
    value = 0.4 * rng.standard_normal(shape)
    if trained:
        # Below 0 at the last place of a mini-batch nothing would be learned.
        return np.abs(value) if name.endswith("token_rate") else value
    # Taps that take the token before, and log decays.
    return np.broadcast_to([1.0, 0.0], shape).copy() if name.endswith(".taps") else -np.abs(value)


class LeakCheck:
    def __init__(self, report, rng, dtype, parts):
        self.report, self.rng = report, rng
        self.layers, self.program = compile_layers(report, dtype, parts)
        self.dtypes = {"dy": dtype, "ones": dtype}
        normal = rng.standard_normal
        self.values = {"cu_seqlens": CU_SEQLENS, "ones": np.ones((WIDTH, 1)), "dy": normal((BATCH, TOKENS, WIDTH))}
        for layer in self.layers:
            self.values[f"{layer.letter}.x"] = SMALL * normal((BATCH, TOKENS, WIDTH))
            for end in (".x", ".y"):
                self.dtypes[layer.letter + end] = self.dtypes[f"gradient.{layer.letter}{end}"] = dtype
            self.dtypes |= {layer.name(a): a.dtype for a in layer.states + layer.weights}
            for state in layer.states:
                self.values[layer.name(state)] = normal(state.shape)
            for w in layer.weights:
                # The feed-forward adds nothing.
                value = drawn(rng, w.name, w.shape, w.trained)
                self.values[layer.name(w)] = 0 * value if w.name == "ffn.w2" else value
        convert = lambda a: a if a.dtype.kind == "i" else a.astype(np.float32)
        self.values = {name: convert(a) for name, a in self.values.items()}
        self.values |= {"learning_rate": np.zeros(1, np.float32), "step": np.ones(1, np.int32)}
        self.stored = {name: self.program.store(self.bits_of(name, a)) for name, a in self.values.items()}
        self.failures = {layer.letter: [] for layer in self.layers}
        self.comparisons = 0

    def bits_of(self, name, array):
        """As the program holds it: bf16 as 16 bits."""
        return stored(array, "bf16") if self.dtypes.get(name) == "bf16" else array

    def numbers(self, name, array):
        return loaded(array, self.dtypes.get(name, "f32"))

    def weight_gradients(self, layer):
        return [f"gradient.{layer.name(w)}" for w in layer.weights if w.trained]

    def calls(self, *changed):
        """Each with other inputs."""
        names = []
        for layer in self.layers:
            names += [f"{layer.letter}.y", f"gradient.{layer.letter}.x", *self.weight_gradients(layer)]
            names += [f"{layer.name(s)}.final" for s in layer.states]
        return self.program.call_all(("leak", self.stored | {n: self.bits_of(n, a) for n, a in c.items()}, names) for c in changed)

    def same(self, layer, what, a, b, where=None):
        """Bits of a and b outside of the mask `where` [B, T]."""
        different = bits(a) != bits(b)
        if where is not None:
            different &= ~where.reshape(where.shape + (1,) * (a.ndim - where.ndim))
        self.comparisons += 1
        if different.any():
            at = tuple(int(i) for i in np.argwhere(different)[0])
            self.failures[layer.letter].append(f"{what}{list(at)} {a[at]!r} became {b[at]!r}")

    def change_contents(self, groups, label, base, scale):
        """New contents of one document, and with them new cotangents: nothing outside of it changes."""
        mask = groups.masks[label]
        fresh = lambda a, s: np.where(mask[..., None], s * self.rng.standard_normal(a.shape), a).astype(np.float32)
        xs = {f"{layer.letter}.x": fresh(self.values[f"{layer.letter}.x"], scale) for layer in self.layers}
        # Without a cotangent the document's part of every weight's gradient is zero.
        silent = {"dy": np.where(mask[..., None], 0, self.values["dy"]).astype(np.float32)}
        moved, before, after = self.calls(xs | {"dy": fresh(self.values["dy"], 1.0)}, silent, silent | xs)
        words = f"{label} x {scale:g}"
        for layer in self.layers:
            for name in (f"{layer.letter}.y", f"gradient.{layer.letter}.x"):
                self.same(layer, f"{words}: {name}", base[name], moved[name], mask)
            for state in layer.states:
                name, rows = f"{layer.name(state)}.final", np.arange(BATCH) != groups.rows[label]
                rows = rows if groups.last[label] else np.ones(BATCH, bool)
                self.same(layer, f"{words}: {name}", base[name][rows], moved[name][rows])
        for layer in self.layers:
            for name in self.weight_gradients(layer):
                self.same(layer, f"{words}: {name}", before[name], after[name])

    def change_states(self, base):
        """States from before a row reach only the document that the row continues: the first of the second row."""
        states = {layer.name(s): layer for layer in self.layers for s in layer.states}
        mask = np.zeros((BATCH, TOKENS), bool)
        mask[1, :70] = True
        (moved,) = self.calls({n: self.rng.standard_normal(self.values[n].shape).astype(np.float32) for n in states})
        for layer in self.layers:
            if not layer.states:
                continue
            for name in (f"{layer.letter}.y", f"gradient.{layer.letter}.x"):
                self.same(layer, f"initial states: {name}", base[name], moved[name], mask)
            if not (bits(base[f"{layer.letter}.y"]) != bits(moved[f"{layer.letter}.y"]))[1, :70].any():
                self.failures[layer.letter].append("initial states do not reach the document that they belong to")

    def joined(self):
        """Rows of one document each do leak: the comparisons see it, for every mixer."""
        cu = np.array([[0] + [TOKENS] * (CU_SEQLENS.shape[1] - 1)] * BATCH, np.int32)
        x = {f"{layer.letter}.x": self.values[f"{layer.letter}.x"].copy() for layer in self.layers}
        for a in x.values():
            a[:, 63] = a[:, 62]
        before, after = self.calls({"cu_seqlens": cu}, {"cu_seqlens": cu} | x)
        for layer in self.layers:
            for name, side in ((f"{layer.letter}.y", np.s_[:, 64:]), (f"gradient.{layer.letter}.x", np.s_[:, :63])):
                if not np.all(np.isfinite(self.numbers(name, before[name]))) or np.array_equal(before[name][side], after[name][side]):
                    words = f"{name} is not finite, or token 63 has no effect without borders"
                    self.failures[layer.letter].append(words)

    def run(self):
        (base,), groups = self.calls({}), Groups()
        self.joined()
        for label, mask in groups.masks.items():
            self.change_contents(groups, label, base, SMALL)
        for label in ("row 0 tokens 6-63", "row 1 padding 131-149"):
            self.change_contents(groups, label, base, 1e15)
        self.change_states(base)
        for layer in self.layers:
            found = self.failures[layer.letter]
            self.report.line(not found, layer.label, found[0] + f"; {len(found)} in all" if found else "no bit changed")
        words = f"{self.comparisons} tensors, {len(groups.masks)} documents"
        self.report.line(self.comparisons > 0, "comparisons", words)

    def check_decoding(self):
        """A prompt on the caches of another sequence is one on new ones, whatever stands behind it in its bucket; a token that begins a
        sequence sees nothing of any layer's caches, one that goes on does."""
        info = self.program.info()
        tensors = {t["name"]: t for t in info["tensors"]}
        caches = [n for n, t in tensors.items() if t["role"] == "cache"]
        rng, inputs = self.rng, {}
        trained = {w.name: w.trained for layer in self.layers for w in layer.weights}
        for name, t in tensors.items():
            if t["role"] == "parameter" and not re.match(r"\w\.", name):
                own = re.sub(r"^layers\.\d+\.", "", name)
                inputs[name] = drawn(rng, own, t["shape"], trained.get(own, True)).astype(np.float32)
        store = lambda n, a: self.program.store(stored(a, tensors[n]["dtype"]) if tensors[n]["dtype"] == "bf16" else a)
        inputs = {n: store(n, a) for n, a in inputs.items()}

        def values(held, tokens, cu_seqlens):
            return inputs | held | {"tokens": np.array([tokens], np.int32), "cu_seqlens": np.array([cu_seqlens], np.int32)}

        def cached(entry, held, tokens, cu_seqlens):
            out = self.program.call(entry, values(held, tokens, cu_seqlens), ["logits", *caches])
            return out["logits"], {n: out[n] for n in caches}

        def sequence(held, prompt, behind, more):
            logits, held = cached("prefill_32", held, np.concatenate([prompt, behind]), [0, len(prompt)])
            out = [logits]
            for i, token in enumerate(more):
                logits, held = cached("decode_1", held, [token], [-len(prompt) - i, 1])
                out.append(logits)
            return np.array(out), held

        text = rng.integers(0, VOCAB, 32)
        other, used = sequence({}, rng.integers(0, VOCAB, 21), np.zeros(11, int), rng.integers(0, VOCAB, 2))
        fresh, held = sequence({}, text[:19], np.zeros(13, int), text[:2])
        again, _ = sequence(used, text[:19], rng.integers(0, VOCAB, 13), text[:2])
        first, _ = cached("decode_1", {}, text[:1], [0, 1])
        first_again, _ = cached("decode_1", held, text[:1], [0, 1])
        different = int((bits(fresh) != bits(again)).sum() + (bits(first) != bits(first_again)).sum())
        moved = bool((bits(other[0]) != bits(fresh[0])).any())
        number = lambda a: loaded(a, tensors["logits"]["dtype"])
        finite = all(np.all(np.isfinite(number(a))) for a in (other, fresh, again, first))
        self.report.line(different == 0 and moved and finite, "prefill and decode", f"{different} logits differ in a bit; finite: {finite}")
        goes_on, _ = cached("decode_1", held, text[:1], [-21, 1])
        kept, asked, calls = {n: self.program.store(a) for n, a in held.items()}, [], []
        for i, layer in enumerate(self.layers):
            own = {n: a for n, a in held.items() if n.startswith(f"cache.layers.{i}.")}
            if not own:
                self.report.line(False, f"caches of {layer.label}", "there are none")
                continue
            noise = {n: store(n, 0.4 * rng.standard_normal(a.shape).astype(np.float32)) for n, a in own.items()}
            asked.append(layer)
            calls += [("decode_1", values(kept | noise, text[:1], cut), ["logits"]) for cut in ([0, 1], [-21, 1])]
        out = [o["logits"] for o in self.program.call_all(calls)]
        for layer, begins, on in zip(asked, out[::2], out[1::2], strict=True):
            seen = bool((bits(on) != bits(goes_on)).any()) and bool(np.all(np.isfinite(number(on))))
            leaked = int((bits(begins) != bits(first)).sum())
            self.report.line(seen and leaked == 0, f"caches of {layer.label}", f"{leaked} logits of a new sequence differ; seen when it goes on: {seen}")


def main(dtype, parts=""):
    report = Report("-".join(filter(None, ("leaks", dtype, parts))))
    with report:
        check = LeakCheck(report, np.random.default_rng(31), dtype, parts)
        check.run()
        check.check_decoding()
    return report.finish()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
