"""Breaks a memory plan in every way that a planner could get wrong, and asks braid-prove-memory-plan about each.

Usage: mutate_plan.py PLANNED.mlir ENTRY [--each=N] [--seed=N]; PLANNED.mlir is what `braid-opt --braid-plan-memory` printed (generic names, one
op a line). Every mutation is wrong by construction (who is read afterwards, what lies on what is read from the text), so every one must
be refused, with the message of its kind; the plan itself must not.
"""
import argparse
import random
import re
import subprocess
import sys

BUFFER = re.compile(r"#cmd\.buffer<@(\w+), (\d+), (\d+)(?:, strides = \[([-\d, ]+)\])?>")
KERNEL = re.compile(r"= tile\.(launch|gemm|grouped_gemm) ")


class Buffer:
    def __init__(self, match):
        self.span, self.arena, self.offset, self.bytes = match.span(), match[1], int(match[2]), int(match[3])
        self.strides = match[4]

    def text(self, arena=None, offset=None, bytes=None, strides=""):
        strides = self.strides if strides == "" else strides
        offset, bytes = (self.offset if offset is None else offset), (self.bytes if bytes is None else bytes)
        return f"#cmd.buffer<@{arena or self.arena}, {offset}, {bytes}{f', strides = [{strides}]' if strides else ''}>"

    def at(self, other):
        """This buffer where another one lies."""
        return self.text(other.arena, other.offset, None, other.strides)

    def overlaps(self, other):
        same = self.arena == other.arena and self.strides == other.strides
        return same and self.offset < other.offset + other.bytes and other.offset < self.offset + self.bytes


def buffers(line, key="cmd.results"):
    """The buffers of a list of the op, with their places in the line."""
    found = re.search(key + r" = \[", line)
    if not found:
        return []
    end = line.index(">]", found.end()) + 1
    return [Buffer(m) for m in BUFFER.finditer(line, found.end(), end)]


class Plan:
    """The lines of an entry, which block each is in, and where every value lies."""

    def __init__(self, text, entry):
        lines = text.split("\n")
        first = next(i for i, l in enumerate(lines) if l.startswith("  cmd.program {"))
        self.program = lines[first : lines.index("  }", first) + 1]
        first = next(i for i, l in enumerate(lines) if l.startswith(f"  func.func @{entry}("))
        self.lines = lines[first : lines.index("  }", first) + 1]
        self.arenas = dict(re.findall(r"cmd\.arena @(\w+) bytes (\d+)", "\n".join(self.program)))
        # Values are called name@block: sibling blocks use the same names again.
        self.place, self.defined, self.made, self.read, self.uses, self.block = {}, {}, {}, {}, {}, []
        open_blocks, repeat = [0], None
        for i, line in enumerate(self.lines):
            if line.strip().startswith("}"):
                open_blocks.pop()
            self.block.append(open_blocks[-1])
            left, _, right = line.strip().partition(" = ")
            names, places = [], []
            if line.strip().startswith("^bb0"):
                names, places, right = re.findall(r"(%\w+): ", line), buffers(repeat, "cmd.arguments"), ""
            elif left.startswith("%"):
                name, _, count = left.partition(":")
                names = [f"{name}#{n}" for n in range(int(count))] if count else left.split(", ")
                places = buffers(line)
            else:
                right = line if i else ""
            whole = lambda n: next((f"{n}@{b}" for b in reversed(open_blocks) if f"{n}@{b}" in self.defined), n)
            self.read[i] = {whole(n) for n in re.findall(r"%\w+(?:#\d+)?", right)}
            for use in self.read[i]:
                self.uses.setdefault(use, []).append(i)
            self.made[i] = [f"{n}@{open_blocks[-1]}" for n in names]
            self.place |= dict(zip(self.made[i], places))
            self.defined |= {n: i for n in self.made[i]}
            if line.endswith("({") or line.endswith("{"):
                open_blocks.append(i)
                repeat = line

    def kernels(self, begin, end, block):
        """Lines of kernels of one result that is in no operand's place."""
        for i in range(begin, end):
            if self.block[i] == block and KERNEL.search(self.lines[i]) and len(buffers(self.lines[i])) == 1:
                launch = "inplace = array<i64: -1>" in self.lines[i]
                product = not launch and len(self.read[i]) == (3 if "grouped_gemm" in self.lines[i] else 2)  # no addend
                if launch or product and "tile.launch" not in self.lines[i]:
                    yield i

    def operands(self, i):
        return self.read[i] & set(self.place)

    def module(self, changes=None, program=None, order=None):
        lines = [(changes or {}).get(i, l) for i, l in enumerate(self.lines)]
        return "\n".join(["module {", *(program or self.program), *[lines[i] for i in order or range(len(lines))], "}"])

    def placed(self, i, buffer, text):
        """Line i with another text for one of its buffers."""
        line = self.lines[i]
        return self.module({i: line[: buffer.span[0]] + text + line[buffer.span[1] :]})


def spots(plan):
    """(line, its only buffer) of all kernels."""
    for block in sorted(set(plan.block)):
        for i in plan.kernels(0, len(plan.lines), block):
            yield i, buffers(plan.lines[i])[0]


def on_operand(plan):
    for i, own in spots(plan):
        for operand in sorted(plan.operands(i)):
            yield plan.placed(i, own, own.at(plan.place[operand]))


def overwritten(plan):
    """A kernel writes where a value lies that a later kernel of the block reads."""
    for value, i in plan.defined.items():
        readers = [u for u in plan.uses.get(value, []) if plan.block[u] == plan.block[i] and KERNEL.search(plan.lines[u])]
        if value not in plan.place or not KERNEL.search(plan.lines[i]) or not readers:
            continue
        for k in plan.kernels(i + 1, readers[-1], plan.block[i]):
            if value not in plan.operands(k):
                own = buffers(plan.lines[k])[0]
                yield plan.placed(k, own, own.at(plan.place[value]))


def moved(plan):
    """A reader behind a kernel that writes where the value lies: the plan is right, the lifetime is not."""
    for value, i in plan.defined.items():
        for reader in plan.uses.get(value, []):
            if value not in plan.place or plan.block[reader] != plan.block[i] or not KERNEL.search(plan.lines[reader]):
                continue
            last = min((u for made in plan.made[reader] for u in plan.uses.get(made, [])), default=0)
            for k in plan.kernels(reader + 1, last, plan.block[i]):
                if buffers(plan.lines[k])[0].overlaps(plan.place[value]):
                    order = list(range(len(plan.lines)))
                    order.insert(k, order.pop(reader))
                    yield plan.module(order=order)


def too_small(plan):
    for i, own in spots(plan):
        if own.bytes > 4:
            yield plan.placed(i, own, own.text(bytes=own.bytes - 4))


def outside(plan):
    for i, own in spots(plan):
        yield plan.placed(i, own, own.text(offset=int(plan.arenas[own.arena])))


def misaligned(plan):
    for i, own in spots(plan):
        yield plan.placed(i, own, own.text(offset=own.offset + 1))


def without_stride(plan):
    """All iterations write one slot of a stack."""
    for i, own in spots(plan):
        if own.arena == "saved" and own.strides:
            yield plan.placed(i, own, own.text(strides=None))


def between(plan):
    """(start, line of its await) within one block."""
    for i, line in enumerate(plan.lines):
        if "braid.comm.start" in line:
            name = re.search(r"comm\.start \w+ (%\w+(?:#\d+)?)", line)[1]
            value = next(v for v in plan.read[i] if v.startswith(name + "@") or v == name)
            yield i, value, plan.uses[plan.made[i][0]][0]


def sent(plan):
    for start, value, end in between(plan):
        for k in plan.kernels(start + 1, end, plan.block[start]):
            if value in plan.place and value not in plan.operands(k):
                own = buffers(plan.lines[k])[0]
                yield plan.placed(k, own, own.at(plan.place[value]))


def received(plan):
    for start, _, end in between(plan):
        for k in plan.kernels(start + 1, end, plan.block[start]):
            own = buffers(plan.lines[k])[0]
            yield plan.placed(k, own, own.at(buffers(plan.lines[end])[0]))


def argument(plan):
    """An argument that lies beside its tensor."""
    for found in re.finditer(r"cmd\.buffer = (#cmd\.buffer<[^>]*>)", plan.lines[0].partition(") -> ")[0]):
        buffer = Buffer(BUFFER.match(found[1]))
        text = found[1].replace(f", {buffer.offset}, ", f", {buffer.offset + 65536}, ", 1)
        yield plan.module({0: plan.lines[0][: found.start(1)] + text + plan.lines[0][found.end(1) :]})


def result(plan):
    """A result that is said to lie elsewhere."""
    begin = plan.lines[0].index(") -> ")
    for found in re.compile(r"cmd\.buffer = (#cmd\.buffer<[^>]*>)").finditer(plan.lines[0], begin):
        buffer = Buffer(BUFFER.match(found[1]))
        text = buffer.text(offset=buffer.offset + 64)
        yield plan.module({0: plan.lines[0][: found.start(1)] + text + plan.lines[0][found.end(1) :]})


def tensor(plan):
    """The file's table names another place than the entry works on."""
    for n, line in enumerate(plan.program):
        found = re.search(r'cmd\.tensor ("[^"]+") parameter .* at <@(\w+), (\d+), ', line)
        if found:
            offset = int(found[3])
            there = line[: found.start(3)] + str(offset - 64 if offset >= 64 else offset + 64) + line[found.end(3) :]
            yield plan.module(program=plan.program[:n] + [there] + plan.program[n + 1 :])


# What a value that is gone is first noticed by depends on who reads it next.
LOST = r"is (read|copied) but was overwritten|lies on (operand|result)|leaves the repeat incomplete|does not hold its sources|was overwritten while"
KINDS = {
    on_operand: r"result \d+ lies on operand \d+",
    overwritten: LOST + r"|holds bytes \d+ to \d+ of an arena of \d+",  # where strides of the own buffer lead out
    moved: LOST,
    too_small: r"needs \d+ bytes",
    outside: r"holds bytes \d+ to \d+ of an arena of \d+",
    misaligned: r"begins at byte \d+, no multiple of its elements' \d+",
    without_stride: LOST,
    sent: LOST,
    received: LOST,
    argument: r"argument \d+ is at .* but",
    result: r"result \d+ is said to be at",
    tensor: r"(argument|result) \d+ is at .* but",
}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("planned")
    parser.add_argument("entry")
    parser.add_argument("--each", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)
    with open(arguments.planned, encoding="utf-8") as file:
        plan = Plan(file.read(), arguments.entry)
    chunks, kinds = [plan.module()], [None]
    for kind in KINDS:
        mutants = list(kind(plan))
        for mutant in rng.sample(mutants, min(arguments.each, len(mutants))):
            chunks.append(mutant)
            kinds.append(kind)
    text = "\n// -----\n".join(chunks)
    starts, line = [], 1
    for chunk in chunks:
        starts.append(line)
        line += chunk.count("\n") + 2
    command = ["braid-opt", "-", "--split-input-file", "--braid-prove-memory-plan", "-o", "/dev/null"]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    messages = {}
    for found in re.finditer(r"<stdin>:(\d+):\d+: error: (.*)|within split at <stdin>:(\d+) offset :(\d+):\d+: error: (.*)", done.stderr):
        at = int(found[1]) if found[1] else int(found[3]) + int(found[4]) - 1
        messages.setdefault(max(n for n, s in enumerate(starts) if s <= at), []).append(found[2] or found[5])
    failed = 0
    if 0 in messages:
        failed += 1
        print("FAILED: the plan itself is refused:", messages[0])
    for kind, pattern in KINDS.items():
        own = [n for n, k in enumerate(kinds) if k is kind]
        wrong = [n for n in own if not any("memory plan: " in m and re.search(pattern, m) for m in messages.get(n, []))]
        failed += bool(wrong) or not own
        print(f"{kind.__name__}: {len(own) - len(wrong)} of {len(own)} refused")
        for n in wrong:
            print(f"  FAILED: mutant {n}: {messages.get(n, ['accepted'])}")
    print(f"{len(chunks) - 1} mutations, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
