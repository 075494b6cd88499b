"""Arbitrary instances of every model and launch op: braid-opt may refuse them, and must not crash.

  op_fuzz.py SEEDS.mlir... [--count=N] [--seed=S] [--tables=FILE.td...]

The files hold one valid use of every op at least (test/dialects). Each use is varied `count` times in generic form: other
ranks (0 to 5), sizes (0 and 1 among them) and element types, operands and results more or fewer, attributes of other
values, of other types or absent. What the verifiers let through must also print, parse back and canonicalize.
"""
import argparse
import random
import re
import subprocess
import sys
import tempfile

ELEMENTS = ["f32", "f32", "bf16", "f64", "i32", "i32", "i64", "i1", "index", "f8E4M3FN", "complex<f32>"]
SIZES = ["0", "1", "1", "2", "3", "4", "8", "16", "7", "?"]
NUMBERS = ["0", "1", "-1", "2", "3", "5", "16", "9223372036854775807", "-9223372036854775808"]
VALUES = ["unit", '"silu"', '"braid.add"', '"braid.moe.plan"', '"nothing"', "true", "1.0 : f64", "-1.0 : f64",
          "0x7FF8000000000000 : f64", "1 : i64", "0 : i64", "-1 : i64", "4 : i32", "array<i64>", "array<i64: 0>", "array<i64: -1, 9>", "array<i32: 1, 1>",
          "array<f64>", "[]", '["a"]', "{}", "{eps = 1.0 : f64}", "@f", "f32"]
BATCH = 1000


class Op:
    def __init__(self, name, operands, results, properties, region):
        self.name, self.operands, self.results, self.properties, self.region = name, operands, results, properties, region

    def text(self):
        lines = [f'%{i} = "test.value"() : () -> {t}' for i, t in enumerate(self.operands)]
        operands = ", ".join(f"%{i}" for i in range(len(self.operands)))
        results = "" if not self.results else f"%r:{len(self.results)} = "
        properties = ", ".join(f"{k} = {v}" if v != "unit" else k for k, v in self.properties.items())
        properties = f" <{{{properties}}}>" if properties else ""
        lines.append(f'{results}"{self.name}"({operands}){properties}{self.region} : '
                     f'({", ".join(self.operands)}) -> ({", ".join(self.results)})')
        return "\n".join(lines) + "\n"


def split(text, separator=","):
    """At separators outside of brackets and strings."""
    parts, depth, quoted, start = [], 0, False, 0
    for i, c in enumerate(text):
        if c == '"':
            quoted = not quoted
        elif quoted:
            continue
        elif c in "<([{":
            depth += 1
        elif c in ")]}" or (c == ">" and text[i - 1] != "-"):
            depth -= 1
        elif c == separator and depth == 0:
            parts.append(text[start:i].strip())
            start = i + 1
    last = text[start:].strip()
    return parts + [last] if last else parts


def types(text):
    text = text.strip()
    return split(text[1:-1]) if text.startswith("(") else [text]


def seeds(files):
    """Uses of the ops in generic form, as `braid-opt` prints them. A repeat keeps its region without values from outside."""
    use = re.compile(r'\s*(?:%\S+ = )?"((?:braid|tile)\.[\w.]+)"\((.*?)\)(?: <\{(.*)\}>)?( \(\{)?(?: : (\(.*?\)) -> (.*))?$')
    for file in files:
        printed = subprocess.run(["braid-opt", file, "--mlir-print-op-generic"], capture_output=True, text=True, check=True).stdout
        for line in printed.split("\n"):
            match = use.match(line)
            if not match or match[1] == "braid.repeat":
                continue
            properties = dict((p.split(" = ", 1) + ["unit"])[:2] for p in split(match[3] or ""))
            if match[5] is not None:
                yield Op(match[1], types(match[5]), types(match[6]), properties, "")
    for carried, stacked, result in [("1", "tensor<2x4xf32>", "tensor<2x4xf32>"), ("0", "tensor<2x4xf32>", "tensor<2x4xf32>")]:
        inner = stacked if carried == "1" else "tensor<4xf32>"
        region = f' ({{\n^bb0(%a: {inner}):\n  "braid.yield"(%a) : ({inner}) -> ()\n}})'
        yield Op("braid.repeat", [stacked], [result], {"count": "2 : i64", "carried": f"{carried} : i64"}, region)


def vary_type(rng, text):
    match = re.fullmatch(r"tensor<((?:[\d?]+x)*)([^x].*)>", text)
    if not match:  # a future
        return rng.choice([text, "tensor<4xf32>", "!braid.future<tensor<?xf32>>", "!braid.future<tensor<f32>, f32>"])
    sizes, element = match[1].split("x")[:-1], match[2]
    what = rng.random()
    if what < 0.5 and sizes:
        sizes[rng.randrange(len(sizes))] = rng.choice(SIZES)
    elif what < 0.6:
        sizes = [rng.choice(SIZES[:-1]) for _ in range(rng.randrange(6))]
    elif what < 0.7 and len(sizes) < 5:
        sizes.insert(rng.randrange(len(sizes) + 1), rng.choice(SIZES))
    elif what < 0.8 and sizes:
        del sizes[rng.randrange(len(sizes))]
    elif what < 0.97:
        element = rng.choice(ELEMENTS)
    else:
        return rng.choice(["f32", "tensor<*xf32>", "vector<4xf32>", "memref<4xf32>", "!braid.future<tensor<4xf32>>", "none"])
    return "tensor<" + "".join(s + "x" for s in sizes) + element + ">"


def vary(rng, seed):
    op = Op(seed.name, list(seed.operands), list(seed.results), dict(seed.properties), seed.region)
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        values = op.operands if rng.random() < 0.7 else op.results
        what = rng.random()
        if what < 0.1 and values:
            del values[rng.randrange(len(values))]
        elif what < 0.2 and values:
            values.insert(rng.randrange(len(values) + 1), rng.choice(values))
        elif what < 0.6 and values:
            i = rng.randrange(len(values))
            new = vary_type(rng, values[i])
            # Half the time everywhere, so that equal shapes stay equal and the check behind is reached.
            if rng.random() < 0.5:
                old = values[i]
                op.operands = [new if t == old else t for t in op.operands]
                op.results = [new if t == old else t for t in op.results]
            else:
                values[i] = new
        elif op.properties:
            key = rng.choice(list(op.properties))
            old = op.properties[key]
            if rng.random() < 0.15:
                del op.properties[key]
            elif rng.random() < 0.75 and re.search(r"\d", old):
                numbers = list(re.finditer(r"-?\b\d+(\.\d+e[+-]\d+)?\b(?!>)", old.split(" : ")[0]))
                if numbers:
                    n = rng.choice(numbers)
                    number = rng.choice(NUMBERS)
                    if key == "operandSegmentSizes":
                        number = rng.choice(["0", "1", "2", "-1", "2147483647"])
                    op.properties[key] = old[:n.start()] + (number if not n[1] else number + ".0") + old[n.end():]
            else:
                op.properties[key] = rng.choice(VALUES)
    return op.text()


def crashes(chunks, *options):
    """Exit status and output of braid-opt on the chunks, one after the other."""
    with tempfile.NamedTemporaryFile("w", suffix=".mlir") as file:
        file.write("\n// -----\n".join(chunks))
        file.flush()
        done = subprocess.run(["braid-opt", file.name, "--split-input-file", "--allow-unregistered-dialect", *options],
                              capture_output=True, text=True, check=False)
    return done.returncode not in (0, 1), done


def culprit(chunks, *options):
    """One chunk that crashes alone; all of them when only their sequence does."""
    while len(chunks) > 1:
        half = len(chunks) // 2
        for part in (chunks[:half], chunks[half:]):
            if crashes(part, *options)[0]:
                chunks = part
                break
        else:
            return chunks
    return chunks


def check(chunks, *options):
    crashed, done = crashes(chunks, *options)
    if crashed:
        sys.exit(f"braid-opt {' '.join(options)} ends with status {done.returncode} on\n"
                 + "\n// -----\n".join(culprit(chunks, *options)) + "\n" + done.stderr[-2000:])
    return [part for part in done.stdout.split("// -----") if "braid." in part or "tile." in part]


def named_ops(tables):
    """The ops that the tables define, by name."""
    prefixes = {"Braid_LsmOp": "braid.lsm.", "Braid_ChunkOp": "braid.lsm.", "Braid_MoeOp": "braid.moe.", "Braid_MoeDiffOp": "braid.moe."}
    for table in tables:
        with open(table, encoding="utf-8") as file:
            for base, name in re.findall(r'^def \w+ :\s+(\w+)<(?:\w+_Dialect, )?"([\w.]+)"', file.read(), re.MULTILINE):
                if base.endswith("Op") or base == "Op":
                    yield (prefixes.get(base) or ("tile." if base == "Op" else "braid.")) + name


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+")
    parser.add_argument("--tables", nargs="*", default=[])
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)
    by_name = {}
    for op in seeds(arguments.files):
        by_name.setdefault(op.name, []).append(op)
    missing = sorted(set(named_ops(arguments.tables)) - set(by_name))
    if missing:
        sys.exit("no valid use to start from: " + ", ".join(missing))
    chunks = [vary(rng, rng.choice(by_name[name])) for name in sorted(by_name) for _ in range(arguments.count)]
    accepted = []
    for first in range(0, len(chunks), BATCH):
        accepted += check(chunks[first:first + BATCH])
    for first in range(0, len(accepted), BATCH):
        part = accepted[first:first + BATCH]
        crashed, done = crashes(part)
        if crashed or done.returncode:
            sys.exit("what braid-opt printed does not parse back:\n" + done.stderr[:2000])
        check(part, "--canonicalize")
        check(part, "--cse")
    print(f"{len(by_name)} ops, {len(chunks)} instances: {len(accepted)} accepted, no crash")


main()
