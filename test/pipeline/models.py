"""Properties of compiled models that need no run: what the commands are, and what memory was planned for them.

    models.py FOLDER [all]

Every model of the folder compiles up to its commands, as it is and with other flags: bf16, and two ranks with woven slices whose layers
are computed again, in bf16 too (without `all` small ones go so two rounds deep, bf16 on one rank is for some only, and the model of most layers, whose kinds smaller ones have, is as it is). Of each: what runs is a kernel of the module or a listed library call, every kernel runs, no kernel knows an instance
of linear models, and the memory planned for each entry is within a tenth of what must be alive at its worst moment. Small models, two
and four rounds of their pattern deep: the same kernels, and but for blocks that layers share the same commands. Memory of generation by length: none for linear layers; of training by attention: linear.
"""

import math
import pathlib
import re
import subprocess
import sys
import tempfile

LIMIT = 1.10
KERNEL = "launch"
LIBRARY = {"gemm", "grouped_gemm", "collective"}
OTHERS = {"copy", "fill", "record", "wait", "repeat"}
DECLARATIONS = {"program", "arena", "tensor", "stream", "entry"}
COLLECTIVES = {"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "shift"}
INSTANCES = re.compile(
    r"(^|[^a-z])(bla|(re)?based|retnet|gla|mamba_?2?|(gated_?)?delta_?net|rwkv\d*|hgrn2?|lightning|[dg]fw|kda|gateloop|s4d|ttt|titans(_ln)?)([^a-z]|$)", re.IGNORECASE
)
BF16 = ["--dtype=bf16"]
ALONE = ("tiny-hybrid", "tiny-attention", "tiny-rwkv7", "tiny-titans")
DEEPEST = "minimax-text-01"
WOVEN = ["--mesh=dp=2,ep=2", "--pipeline=1A1M", "--overlap-degree=2"]
AGAIN = ["--recompute=all"]
BUDGET = ["--accumulation-steps=4", "--activation-budget=20000000"]  # of 97 MB for the four LSM layers' and experts' activations


class Compiled:
    """The commands of a model file; `changes` {key: number} replaces numbers of the description."""

    def __init__(self, folder, path, flags=(), changes=None):
        self.flags = flags
        text = path.read_text(encoding="utf-8")
        for key, number in (changes or {}).items():
            text, count = re.subn(rf'("{key}": *)\d+', rf"\g<1>{number}", text)
            if not count:
                text = text.replace('"vocab_size"', f'"{key}": {number}, "vocab_size"', 1)
        source, out = folder / path.name, folder / (path.stem + ".mlir")
        source.write_text(text, encoding="utf-8")
        command = ["braid-compile", str(source), "--to-phase=commands", "-o", str(out), *flags]
        done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        if done.returncode:
            raise RuntimeError(f"exit status {done.returncode}: {done.stderr.strip()[-500:]}")
        with open(out, encoding="utf-8") as file:
            self.text = file.read()
        self.memory = {}
        for entry, what, number in re.findall(r'memory\.(\w+)\.(planned|lower_bound)_bytes"? = "(\d+)"', self.text):
            self.memory.setdefault(entry, {})[what] = int(number)
        self.commands = re.findall(r"^ +cmd\.(\w+) ?(\S*)", self.text, re.MULTILINE)
        self.kernels = set(re.findall(r"func\.func .*?@([\w.]+)\(.*tile\.kernel", self.text))

    def launched(self):
        return {name.lstrip("@") for command, name in self.commands if command == KERNEL}

    def arena(self, name):
        return int(re.search(rf"cmd\.arena @{name} bytes (\d+)", self.text).group(1))

    def entry(self, name):
        """Commands in the text of one entry."""
        body = re.search(rf"^( *)cmd\.entry @{name} .*?^\1}}", self.text, re.MULTILINE | re.DOTALL).group(0)
        return re.findall(r"^ +cmd\.(\w+)", body, re.MULTILINE)


def check_commands(model):
    known = {KERNEL} | LIBRARY | OTHERS | DECLARATIONS
    unknown = {command for command, _ in model.commands} - known
    unknown |= {kind for command, kind in model.commands if command == "collective"} - COLLECTIVES
    if unknown:
        yield f"commands that nobody listed: {sorted(unknown)}"
    launched = model.launched()
    if launched != model.kernels or not launched:
        yield f"launched but not there: {sorted(launched - model.kernels)}; there but not launched: {sorted(model.kernels - launched)}"
    named = [kernel for kernel in launched if INSTANCES.search(kernel)]
    if named:
        yield f"kernels named after an instance: {named}"


def check_memory(model):
    needed = {"eval_step"} | (set() if "--mesh" in " ".join(model.flags) else {"prefill_32", "decode_1"})
    if not needed <= set(model.memory) or not {"train_step", "accumulate_step"} & set(model.memory):
        yield f"says nothing of some entries' memory: {sorted(model.memory)}"
    for entry, bytes_ in model.memory.items():
        planned, bound = bytes_["planned"], bytes_["lower_bound"]
        if not bound <= planned <= LIMIT * bound:
            yield f"@{entry}: {planned} bytes planned, {bound} alive at the worst moment: more than a tenth above"
        if bound <= 0 and entry in needed | {"train_step", "accumulate_step"}:
            yield f"@{entry}: nothing is alive"


def check_depth(two, four, shares):
    # Decays that layers differ in are tables of initial values, and a deeper model has others.
    different = sorted(k for k in two.kernels ^ four.kernels if not k.startswith("init_values"))
    if different:
        yield f"kernels of a deeper model: {different}"
    if shares:  # a layer with a block that others have, too, is called by itself
        return
    for name in set(two.memory) - {"init"}:  # initial values are drawn layer by layer: every layer has keys of its own
        counts = [len(model.entry(name)) for model in (two, four)]
        if abs(counts[0] - counts[1]) > 1:  # the norm of many gradients is added up in one stage more
            yield f"@{name} has {counts[0]} commands, and {counts[1]} in a deeper model"


def variants(path, everything):
    """(what, flags) of a model; large models once more in bf16 on two ranks."""
    large = path.stem.startswith("linear-moe") or (path.stem == DEEPEST and not everything)
    if everything or path.stem in ALONE or not path.stem.startswith("tiny"):
        yield "as it is", []
    if not large and (everything or path.stem in ALONE):
        yield "bf16", BF16
    if not large or path.stem.endswith("2b"):
        yield "bf16, two ranks, woven, computed again", BF16 + WOVEN + AGAIN
    if path.stem == "tiny-hybrid":
        yield "two ranks, woven", WOVEN
        yield "accumulated, within a budget", BUDGET


def problems_of(path, build, everything):
    for what, flags in variants(path, everything):
        model = build(path, flags)
        worst = max(model.memory.values(), key=lambda m: m["planned"] / max(m["lower_bound"], 1), default={"planned": 0, "lower_bound": 1})
        print(
            f"{path.name}, {what}: {len(model.memory)} entries, {len(model.kernels)} kernels, {len(model.commands)} commands, "
            f"planned memory at most {worst['planned'] / max(worst['lower_bound'], 1):.3f} of what is alive"
        )
        for problem in [*check_commands(model), *check_memory(model)]:
            yield f"{what}: {problem}"
    if path.stem.startswith("tiny"):
        text = path.read_text(encoding="utf-8")
        patterns = re.findall(r'^  "(?:layer|ffn|inject)_pattern": *"([\w()-]+)"', text, re.MULTILINE)
        period = math.lcm(*(len(re.sub(r"\(\w+\)", "=", pattern)) for pattern in patterns))  # mixers in parentheses are one layer's
        two, four = (build(path, changes={"num_layers": period * rounds}) for rounds in (2, 4))
        yield from check_depth(two, four, '"injects"' in text)
        yield from (f"{2 * period} layers: {problem}" for problem in [*check_commands(two), *check_memory(two)])
        print(f"{path.name}, {2 * period} and {4 * period} layers: {len(two.kernels)} and {len(four.kernels)} kernels")


def check_lengths(folder, build):
    """Linear layers generate in the same memory at any length; attention trains in memory that grows as the row does."""
    short, long = (build(folder / "tiny-linear.json", changes={"context_len": n}) for n in (1 << 10, 1 << 17))
    for what in ("cache", "workspace"):
        if short.arena(what) != long.arena(what):
            yield f"tiny-linear: @{what} has {short.arena(what)} bytes for 1 K tokens and {long.arena(what)} for 128 K"
    for entry in ("decode_1", "prefill_256"):
        if short.memory[entry] != long.memory[entry]:
            yield f"tiny-linear: @{entry} takes {short.memory[entry]} for 1 K tokens and {long.memory[entry]} for 128 K"
    print(f"tiny-linear: {short.arena('cache')} bytes of cache for 1 K and 128 K tokens")
    short, long = (build(folder / "tiny-attention.json", ["--batch=1", f"--seq-len={n}"]) for n in (2048, 8192))
    ratio = long.memory["train_step"]["planned"] / short.memory["train_step"]["planned"]
    print(f"tiny-attention: a row of 8192 tokens trains in {ratio:.2f} times the memory of 2048")
    if ratio > 4.2:
        yield f"tiny-attention: {ratio:.2f} times the memory for 4 times the tokens"


def main(folder, which="some"):
    failed = 0
    folder = pathlib.Path(folder)
    paths = sorted(folder.glob("*.json"))
    with tempfile.TemporaryDirectory() as temporary:
        build = lambda path, flags=(), changes=None: Compiled(pathlib.Path(temporary), path, flags, changes)
        for name, check in [(p.name, lambda p=p: problems_of(p, build, which == "all")) for p in paths] + [
            ("lengths", lambda: check_lengths(folder, build))
        ]:
            try:
                problems = list(check())
            except RuntimeError as error:
                problems = [str(error)]
            for problem in problems:
                failed += 1
                print(f"FAILED {name}: {problem}")
    print(f"{len(paths)} models, {failed} failed")
    return 1 if failed or not paths else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
