"""Numerics tests: functions in MLIR, compiled once, called with NumPy files, compared with float64 references.

    program = Program("rows")
    f = program.function("norm")
    x, w = f.input("x", (2, 3, 8)), f.input("w", (8,))
    f.output("y", f.op("braid.rms_norm", [x, w], x.type, eps=1e-6))
    program.check(f, {"x": .., "w": ..}, {"y": reference}, limit=2e-6)
    sys.exit(program.finish())

All functions of a Program go through one braid-compile; every `check` is one call and one line of output, many calls one braid-run. Inputs are
rounded to the type of the argument before the reference sees them: `rounded`.

With BRAID_RECORD=DIR nothing is compiled or called: each Program leaves itself and the files of its cases in DIR/NAME, for a machine that has
neither compiler nor NumPy (tools/bundle): BRAID_RECORD_BYTES (2 MiB) of them. Cases of several calls, and programs for one kind of CPU, are
left away.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "reference"))
import numpy as np

from common import largest_error, relative_error

TOGETHER_BYTES = 64 << 20  # of files of cases that one process calls
UNITS = ("adjoint", "cache", "past", "per_head", "ring", "transposed", "stacked")
TYPES = {"f32": np.float32, "bf16": np.float32, "f64": np.float64, "i16": np.int16, "i32": np.int32, "i64": np.int64}


def stored(array, dtype):
    """An array as braid-run's files hold it: bf16 as its 16 bits, rounded to nearest even."""
    array = np.ascontiguousarray(array, TYPES[dtype])
    if dtype != "bf16":
        return array
    bits = array.view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def loaded(array, dtype):
    """The reverse: bf16 bits as float32."""
    return (array.astype(np.uint32) << 16).view(np.float32) if dtype == "bf16" else array


def split_master(master):
    """An f32 as training keeps it beside bf16: the bf16 (as f32), 16 bits, and where the sign of the second moment is a part of it."""
    master = np.ascontiguousarray(master, np.float32)
    high = stored(master, "bf16")
    rest = master.view(np.int32) - (high.astype(np.uint32) << 16).view(np.int32)
    return loaded(high, "bf16"), rest.astype(np.int16), rest == 0x8000


def join_master(high, low, second):
    """The reverse; the sign of `second` counts."""
    rest = np.where(np.signbit(second), 0x8000, low.astype(np.int32)).astype(np.int32)
    return (np.ascontiguousarray(high, np.float32).view(np.int32) + rest).view(np.float32)


def tool(name):
    """braid-compile, braid-run: from BRAID_BIN or the PATH."""
    folder = os.environ.get("BRAID_BIN")
    return os.path.join(folder, name) if folder else name


def rounded(arrays, dtype="f32"):
    """Floating-point arrays rounded to `dtype` and held as float64 again; None and integers as they are."""
    return [
        loaded(stored(a, dtype), dtype).astype(np.float64) if isinstance(a, np.ndarray) and a.dtype.kind == "f" else a
        for a in arrays
    ]


class Type:
    def __init__(self, shape, dtype="f32"):
        self.shape, self.dtype = tuple(shape), dtype

    def __str__(self):
        return f"tensor<{''.join(f'{d}x' for d in self.shape)}{self.dtype}>"


class Operand:
    def __init__(self, name, type):
        self.name, self.type = name, type


def attribute(value):
    """MLIR text of a Python value; strings are text already."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return f"{value} : i64"
    if isinstance(value, float):
        return f"{np.format_float_scientific(value, trim='0', exp_digits=1)} : f64"
    if isinstance(value, list):  # of numbers
        return f"array<f64: {', '.join(attribute(float(v)).split(' ')[0] for v in value)}>"
    if isinstance(value, dict):
        units = (k if v is True and k in UNITS else f"{k} = {attribute(v)}" for k, v in value.items())
        return "{" + ", ".join(units) + "}"
    return value


def text(value):
    return json.dumps(value)


class Function:
    """An exported function under construction."""

    def __init__(self, name, dtype):
        self.name, self.dtype = name, dtype
        self.inputs, self.outputs, self.lines, self.count = {}, {}, [], 0

    def input(self, name, shape, dtype=None):
        self.inputs[name] = Operand(f"%{name}", Type(shape, dtype or self.dtype))
        return self.inputs[name]

    def op(self, name, operands, results, segments=None, **attributes):
        """Adds an op in generic form. `operands`: Operands; with `segments` a list of lists or None (optional operands).

        Attributes with a dot in their name are what a pass would have written.
        """
        if segments:
            groups = [[] if g is None else g if isinstance(g, list) else [g] for g in operands]
            attributes["operandSegmentSizes"] = f"array<i32: {', '.join(str(len(g)) for g in groups)}>"
            operands = [o for g in groups for o in g]
        several = isinstance(results, (list, tuple))
        types = list(results) if several else [results]
        values = [Operand(f"%{self.count + i}", t) for i, t in enumerate(types)]
        self.count += len(types)
        passes = ", ".join(f"{k} = {attribute(v)}" for k, v in attributes.items() if "." in k)
        properties = ", ".join(
            k if v is True and k in UNITS else f"{k} = {attribute(v)}"
            for k, v in attributes.items()
            if "." not in k and not (v is False and k in UNITS)
        )
        left = f"{', '.join(v.name for v in values)} = " if values else ""
        properties = (f" <{{{properties}}}>" if properties else "") + (f" {{{passes}}}" if passes else "")
        self.lines.append(
            f'    {left}"{name}"({", ".join(o.name for o in operands)}){properties} : '
            f'({", ".join(str(o.type) for o in operands)}) -> ({", ".join(map(str, types))})'
        )
        return values if several else values[0]

    def rows(self, op, operands, result, **attributes):
        return self.op(f"braid.{op}", operands, result, **attributes)

    def rows_grad(self, op, operands, cotangent, wanted, whole=(), **attributes):
        """Gradients of a row-wise op with respect to the operands in `wanted`."""
        types = [operands[i].type for i in wanted]
        return self.op(
            "braid.rows_grad",
            [operands, [cotangent]],
            types,
            segments=True,
            op=text(f"braid.{op}"),
            op_attributes=attributes,
            wanted=f"array<i64: {', '.join(map(str, wanted))}>",
        )

    def output(self, name, value):
        self.outputs[name] = value

    def mlir(self):
        named = lambda kind, name, o: f'{o} {{braid.name = "{name}", braid.role = "{kind}"}}'
        arguments = ", ".join(f"{o.name}: " + named("input", n, o.type) for n, o in self.inputs.items())
        results = ", ".join(named("output", n, o.type) for n, o in self.outputs.items())
        values, types = ", ".join(o.name for o in self.outputs.values()), ", ".join(
            str(o.type) for o in self.outputs.values()
        )
        body = "\n".join(self.lines)
        return f"  func.func @{self.name}({arguments}) -> ({results}) attributes {{braid.entry}} {{\n{body}\n    return {values} : {types}\n  }}"


class Compiled:
    """A program file and calls of its functions."""

    def __init__(self, path):
        self.path, self.folder, self.calls = path, os.path.dirname(path), 0

    def store(self, array):
        """A file for an array that several calls read."""
        self.calls += 1
        path = os.path.join(self.folder, f"stored{self.calls}.npy")
        np.save(path, np.ascontiguousarray(array))
        return path

    def call(self, function, inputs, outputs, options=()):
        """Inputs {name: array or stored file}; -> {name: array} for the names in `outputs`."""
        self.calls += 1
        base = os.path.join(self.folder, f"call{self.calls}")
        command = [tool("braid-run"), "call", self.path, f"@{function}", *options]
        for i, (name, array) in enumerate(inputs.items()):
            path = array
            if not isinstance(array, str):
                path = f"{base}.in{i}.npy"
                np.save(path, np.ascontiguousarray(array))
            command += ["--input", f"{name}={path}"]
        for i, name in enumerate(outputs):
            command += ["--output", f"{name}={base}.out{i}.npy"]
        run(command)
        return {name: np.load(f"{base}.out{i}.npy") for i, name in enumerate(outputs)}

    def call_all(self, calls):
        """Of (function, inputs, outputs) each what call() gives, one after the other in one process, which loads the program once. Nothing is begun anew
        between them: a call that does not say what is in a cache or a state finds what those before it left."""
        lines, files, results = [], [], []
        for function, inputs, outputs in calls:
            self.calls += 1
            base = os.path.join(self.folder, f"call{self.calls}")
            given, taken = {}, {name: f"{base}.out{i}.npy" for i, name in enumerate(outputs)}
            for i, (name, array) in enumerate(inputs.items()):
                given[name] = array if isinstance(array, str) else f"{base}.in{i}.npy"
                if not isinstance(array, str):
                    np.save(given[name], np.ascontiguousarray(array))
            lines.append(json.dumps({"function": function, "inputs": given, "outputs": taken}))
            files += [*taken.values(), *(path for name, path in given.items() if path is not inputs[name])]
            results.append(taken)
        path = os.path.join(self.folder, f"calls{self.calls}.jsonl")
        with open(path, "w", encoding="utf-8") as file:
            file.write("\n".join(lines))
        run([tool("braid-run"), "call", self.path, "--calls", path])
        results = [{name: np.load(path) for name, path in taken.items()} for taken in results]
        for path in files:
            os.remove(path)
        return results

    def run_ranks(self, function, inputs, outputs, ranks):
        """As call(), with files {name: path}, `{rank}` in their names, that every rank reads and writes for itself."""
        command = [tool("braid-run"), "call", self.path, f"@{function}", "--ranks", str(ranks), "--threads", "1"]
        for flag, files in (("--input", inputs), ("--output", outputs)):
            for name, path in files.items():
                command += [flag, f"{name}={path}"]
        run(command)

    def info(self):
        return json.loads(run([tool("braid-run"), "info", self.path, "--json"]))


def errors(value, reference, floor=0.0):
    """|value - reference| / max(|reference|, floor) in the L2 norm, and the same of the largest elements."""
    if value.shape != reference.shape or not np.all(np.isfinite(value)):
        return np.inf, np.inf
    if value.dtype == np.float32:  # what f32 cannot hold is zero
        reference = np.where(np.abs(reference) < np.finfo(np.float32).tiny, 0.0, reference)
    if not floor or not reference.size:
        return relative_error(value, reference), largest_error(value, reference)
    distance = np.asarray(value, np.float64) - reference
    typical = floor / np.sqrt(reference.size)
    return np.linalg.norm(distance) / max(np.linalg.norm(reference), floor), np.abs(distance).max() / max(
        np.abs(reference).max(), 3 * typical
    )


def run(command, messages=False):
    """What it prints, or says on its standard error."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(
            f"{' '.join(command)}\nexit status {done.returncode}\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
        )
    return done.stderr if messages else done.stdout


def size_of(case):
    """Bytes of a case's files, about."""
    function = case[0]
    return sum(4 * int(np.prod(o.type.shape)) for o in [*function.inputs.values(), *function.outputs.values()])


class Report:
    """One line per case; finish() is the exit status.

    `with report:` a tool that fails ends the checks inside with a failed case. `name` may change on the way: lines begin with it.
    """

    def __init__(self, name):
        self.title, self.name, self.count, self.failed = name, name, 0, 0
        self.folder = tempfile.mkdtemp(prefix=f"braid-{name}-")

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        stopped = kind is not None and issubclass(kind, RuntimeError)
        if stopped:
            self.line(False, "stopped", str(error))
        self.name = self.title
        return stopped

    def line(self, ok, label, words):
        self.count += 1
        self.failed += not ok
        print(f"{'ok    ' if ok else 'FAILED'} {self.name}: {label}: {words}", flush=True)

    def compare(self, label, values, references, limit, floors=None):
        """values, references {name: array}; limit: a number, or {name: number} (integers: exact). The worst output is printed.

        floors {name: norm}: that output is judged against max(|reference|, norm), where it is a difference of larger terms.
        """
        worst, ok = None, True
        for name, reference in references.items():
            value, reference = values[name], np.asarray(reference)
            if reference.dtype.kind in "iu":
                bound, error = 0.0, (
                    float(np.count_nonzero(value != reference)) if value.shape == reference.shape else np.inf
                )
                top = error
            else:
                bound = limit[name] if isinstance(limit, dict) else limit
                error, top = errors(value, reference, (floors or {}).get(name, 0.0))
            good = error <= bound and top <= 3 * bound
            excess = max(error, top / 3) / bound if bound else float(not good) * 1e300
            if worst is None or excess > worst[0]:
                worst = (excess, name, error, top, bound)
            if not good and ok is False:
                self.also.append(f"{name} {error:.2g}")
            if not good and ok is True:
                ok, self.also = False, [f"{name} {error:.2g}"]
        _, name, error, top, bound = worst
        also = f"; wrong: {', '.join(self.also)}" if not ok else ""
        self.line(ok, label, f"{len(references)} tensors, worst {name} {error:.2g} (max {top:.2g}, limit {bound:.2g}){also}")

    def finish(self):
        print(f"{self.name}: {self.count} cases, {self.failed} failed")
        if self.failed and os.environ.get("BRAID_KEEP"):
            print(f"kept: {self.folder}")
        else:
            shutil.rmtree(self.folder, ignore_errors=True)
        if not self.failed and self.count:
            print(f"{self.name}: all cases within their limits")
        return 1 if self.failed or not self.count else 0


class Program(Report):
    """Functions that are compiled together, and the checks of what they compute.

    separate: every case has a process of its own, whose memory begins as zeros, so that rows which nobody writes can be compared.
    """

    def __init__(self, name, max_documents=4, options=(), separate=False):
        super().__init__(name)
        self.options, self.max_documents, self.separate = list(options), max_documents, separate
        self.functions, self.pending, self.compiled = {}, [], None

    def function(self, name, dtype="f32"):
        if name in self.functions:
            raise ValueError(f"two functions {name}")
        self.functions[name] = Function(name, dtype)
        return self.functions[name]

    def mlir(self):
        body = "\n".join(f.mlir() for f in self.functions.values())
        return f"module attributes {{braid.max_documents = {self.max_documents} : i64}} {{\n{body}\n}}\n"

    def compile(self):
        if self.compiled is None:
            source, path = os.path.join(self.folder, f"{self.name}.mlir"), os.path.join(
                self.folder, f"{self.name}.braid"
            )
            with open(source, "w", encoding="utf-8") as file:
                file.write(self.mlir())
            run([tool("braid-compile"), source, "-o", path, *self.options])
            self.compiled = Compiled(path)
        return self.compiled

    def converted(self, function, inputs):
        """As files of the arguments' types hold them."""
        arrays = {}
        for name, operand in function.inputs.items():
            array = stored(inputs[name], operand.type.dtype)
            if array.shape != operand.type.shape:
                raise ValueError(f"@{function.name}: {name} is {array.shape}, expected {operand.type.shape}")
            arrays[name] = array
        return arrays

    def call(self, function, inputs):
        """Values of all outputs; inputs are converted to the types of the arguments."""
        values = self.compile().call(function.name, self.converted(function, inputs), list(function.outputs))
        return self.widened(function, values)

    def widened(self, function, values):
        return {name: loaded(array, function.outputs[name].type.dtype) for name, array in values.items()}

    def compare_together(self, cases):
        """Cases that one process calls. Where it fails each has a process of its own, which shows what failed; if none does, that is a failure too."""
        failed = self.failed
        try:
            calls = [(case[0].name, self.converted(case[0], case[1]), list(case[0].outputs)) for case in cases]
            all_values, error = self.compile().call_all(calls) if len(cases) > 1 else [None], None
        except RuntimeError as together:
            all_values, error = [None] * len(cases), together
        for (function, inputs, references, limit, label, floors), values in zip(cases, all_values):
            try:
                values = self.call(function, inputs) if values is None else self.widened(function, values)
                self.compare(label, values, references, limit, floors)
            except RuntimeError as alone:
                self.line(False, label, str(alone))
        if error and self.failed == failed:
            self.line(False, "calls of one process", str(error))

    def check(self, function, inputs, references, limit, label="", floors=None):
        """Remembers a case; it runs in finish(), when all functions are known."""
        self.pending.append((function, inputs, references, limit, label or function.name, floors))

    def then(self, action):
        """A case of several calls: action(program)."""
        self.pending.append(action)

    def record(self, folder, largest):
        """program.mlir, options.json, and cases.json with the NumPy files of inputs and references that it names: `largest` bytes of them.

        The first case of every function goes before the others, the smallest of them first; what is in f64 is left away.
        """
        found = []
        for case in self.pending:
            if callable(case):
                continue
            function, inputs, references, *_ = case
            types = {name: function.outputs[name].type.dtype for name in references}
            if "f64" in [function.dtype, *types.values()]:
                continue
            files = {("inputs", n): stored(inputs[n], o.type.dtype) for n, o in function.inputs.items()}
            files |= {("outputs", n): np.asarray(r, TYPES[types[n]]) for n, r in references.items()}
            found.append((sum(array.nbytes for array in files.values()), case, files, types))
        firsts = {one[1][0].name: one for one in reversed(found)}
        others = [one for one in found if all(one is not first for first in firsts.values())]
        cases, names = [], set()
        for size, case, files, types in [*sorted(firsts.values(), key=lambda one: one[0]), *others]:
            if size <= largest and (case[0].name in names or firsts[case[0].name][1] is case):
                names.add(case[0].name)
                largest -= size
                cases.append((case, files, types))
        if not cases:
            return
        folder, kept = os.path.join(folder, self.title), []
        os.makedirs(folder)
        for i, ((function, _, _, limit, label, floors), files, types) in enumerate(cases):
            written = {"inputs": {}, "outputs": {}}
            for (side, name), array in files.items():
                path = f"{i}.{side}.{name}.npy"
                np.save(os.path.join(folder, path), np.ascontiguousarray(array))
                written[side][name] = path if side == "inputs" else {
                    "reference": path,
                    "dtype": types[name],
                    "limit": 0.0 if types[name].startswith("i") else limit[name] if isinstance(limit, dict) else limit,
                    "floor": float((floors or {}).get(name, 0.0)),
                }
            kept.append({"label": label, "function": function.name, **written})
        self.functions = {name: function for name, function in self.functions.items() if name in names}
        for name, words in (("program.mlir", self.mlir()), ("options.json", json.dumps(self.options)), ("cases.json", json.dumps(kept))):
            with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                file.write(words)
        self.line(True, "recorded", f"{len(kept)} of {len(self.pending)} cases")

    def finish(self):
        if "BRAID_RECORD" in os.environ:
            if not any(option.startswith("--cpu") for option in self.options):
                self.record(os.environ["BRAID_RECORD"], int(os.environ.get("BRAID_RECORD_BYTES", 2 << 20)))
            return 0
        try:
            self.compile()
        except RuntimeError as error:
            self.line(False, "braid-compile", str(error))
            return super().finish()
        together = []
        for case in [*self.pending, None]:
            most = 0 if self.separate else TOGETHER_BYTES
            if together and (case is None or callable(case) or sum(size_of(c) for c in [*together, case]) > most):
                self.compare_together(together)
                together = []
            if callable(case):
                try:
                    case(self)
                except RuntimeError as error:
                    self.line(False, "call", str(error))
            elif case:
                together.append(case)
        return super().finish()
