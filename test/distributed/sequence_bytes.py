"""What ranks along `sp` send for each op, read from the commands of a training step: python3 sequence_bytes.py MODEL.json

States of scans and halos of convolutions cost the same whatever the length of a row; keys and values grow with it, but for a window.
A command is counted once for each time it runs.
"""
import functools
import re
import subprocess
import sys
import tempfile

COLLECTIVE = re.compile(r'cmd\.collective (\w+) "sp" send <@\w+, [^>]*?(\d+)> recv <@\w+, [^>]*?(\d+)> .*?name = "([^"]*)"')


@functools.cache
def commands(model, *flags):
    with tempfile.NamedTemporaryFile(suffix=".mlir") as file:
        done = subprocess.run(["braid-compile", model, "--to-phase=commands", "-o", file.name, "--batch=2", *flags], capture_output=True, text=True)
        if done.returncode:
            sys.exit(done.stdout + done.stderr)
        return open(file.name, encoding="utf-8").read()


def sent(text, entry, ranks):
    """{label: bytes that a rank in the middle sends} of one entry."""
    total, times, inside = {}, [], False
    for line in text.splitlines():
        if "cmd.entry" in line:
            inside = f"@{entry} " in line or f"@{entry}(" in line or line.rstrip().endswith(f"@{entry} {{")
        if "cmd.repeat" in line:
            times.append(int(re.search(r"cmd\.repeat (\d+)", line).group(1)))
        elif line.strip().startswith("}") and times:
            times.pop()
        if found := COLLECTIVE.search(line) if inside else None:
            kind, send, receive, name = found.group(1), int(found.group(2)), int(found.group(3)), found.group(4)
            size = {"all_gather": (ranks - 1) * send, "reduce_scatter": (ranks - 1) * receive}.get(kind, send)
            for count in times:
                size *= count
            label = re.sub(r"_\d+x\d+", "", name)  # layer functions are named by the size of their rows
            total[label] = total.get(label, 0) + size
    return total


def main(model):
    failures = 0

    def check(label, good, words):
        nonlocal failures
        failures += not good
        print(f"{'ok  ' if good else 'FAIL'} {label}: {words}")

    for algorithm in ("ring", "all_gather", "scan"):
        for ranks in (2, 4):
            flags = [f"--mesh=sp={ranks}", f"--sp-algorithm={algorithm}"]
            short, long = (sent(commands(model, *flags, f"--seq-len={length}"), "train_step", ranks) for length in (64, 256))
            assert short and set(short) == set(long), (short, long)
            for label in sorted(short):
                grows = "attn" in label
                check(f"{algorithm} sp={ranks} {label}", (long[label] == 4 * short[label]) if grows else long[label] == short[label],
                      f"{short[label]} bytes at 64 tokens, {long[label]} at 256")
    # Layers that are computed again receive what they need once, in slices, too.
    for algorithm, *slices in (["ring"], ["all_gather"], ["scan"], ["ring", "--pipeline=1A1M", "--overlap-degree=2"]):
        flags = ["--mesh=sp=4", f"--sp-algorithm={algorithm}", "--seq-len=64", *slices]  # in this order: compiled above
        plain, again = (sum(sent(commands(model, *flags, *more), "train_step", 4).values()) for more in ([], ["--recompute=all"]))
        check(f"{algorithm} {' '.join(slices)} sp=4 computed again", again == plain > 0, f"{again} bytes, {plain} without recomputation")
    print(f"{failures} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
