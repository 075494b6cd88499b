"""Takes single waits out of the training step of a woven program on two ranks: each one must be missed.

Counted are the waits without which a collective and a command that touches the bytes it receives are no longer ordered: some wait for
what another event says too, some hold back a collective that touches nothing new. That is decided here from the text of the commands.
Usage: broken_events.py COMMANDS.mlir; needs braid-opt in PATH.
"""
import re
import subprocess
import sys


def closure(lines):
    """For every command those that have surely ended when it begins, as line numbers; the bodies of repeats once."""
    known, events, last, pending = {}, {}, {}, {}
    for number, line in lines:
        text = line.strip()
        stream = re.search(r" on @(\w+)", text)
        stream = stream.group(1) if stream else "compute"
        if text.startswith("cmd.record"):
            before = last.get(stream)
            events[text.split()[1]] = set() if before is None else known[before] | {before}
        elif text.startswith("cmd.wait"):
            pending.setdefault(stream, set()).update(events[text.split()[1]])
        elif re.match(r"cmd\.(launch|gemm|grouped_gemm|collective|copy|fill)", text):
            before = last.get(stream)
            known[number] = (set() if before is None else known[before] | {before}) | pending.pop(stream, set())
            last[stream] = number
    return known


def ranges(text):
    return [(arena, int(begin), int(begin) + int(size)) for arena, begin, size in re.findall(r"<@(\w+), (\d+), (\d+)", text)]


def is_needed(lines, whole, cut):
    text = dict(lines)
    for after, before in whole.items():
        for other in before - cut[after]:
            for one, two in ((after, other), (other, after)):
                received = ranges(text[one].split(" recv ")[1].split(">")[0]) if "cmd.collective" in text[one] else []
                for arena, begin, end in received:
                    if any(arena == a and begin < e and b < end for a, b, e in ranges(text[two])):
                        return True
    return False


def main():
    text = open(sys.argv[1], encoding="utf-8").read()
    lines = text.split("\n")
    begin = next(i for i, line in enumerate(lines) if "cmd.entry @train_step" in line)
    end = next((i for i, line in enumerate(lines) if i > begin and "cmd.entry" in line), len(lines))
    step = [(i, line) for i, line in enumerate(lines) if begin <= i < end]
    whole = closure(step)
    mutants = []
    for i, line in step:
        if line.strip().startswith("cmd.wait") and is_needed(step, whole, closure([x for x in step if x[0] != i])):
            mutants.append(i)
    mutants = mutants[:: max(1, len(mutants) // 60)]
    chunks = ["\n".join(lines)] + ["\n".join(lines[:i] + lines[i + 1:]) for i in mutants]
    result = subprocess.run(["braid-opt", "-", "--split-input-file", "--braid-prove-schedule", "-o", "/dev/null"],
                            input="\n// -----\n".join(chunks), capture_output=True, text=True, check=False)
    starts, at = [], 1
    for chunk in chunks:
        starts.append(at)
        at += chunk.count("\n") + 2
    found = set()
    for error in re.finditer(r"^<stdin>:(\d+):\d+: error: .*not held together", result.stderr, re.MULTILINE):
        found.add(max(k for k, start in enumerate(starts) if start <= int(error.group(1))))
    if 0 in found:
        print("FAIL the program itself is refused")
    for k, i in enumerate(mutants, 1):
        if k not in found:
            print(f"FAIL line {i + 1} may go: {lines[i].strip()}")
    print(f"{len(found)} of {len(mutants)} found")
    return 0


sys.exit(main())
