"""A training under limits of its address space, from too little for the program to enough: it is done, or ends with a message. The C library's own is one: it aborts
where it cannot load what unwinds the stack of a thread that ends.

    little_memory.py P.braid TEXT
"""
import resource
import signal
import subprocess
import sys

MIB = 1 << 20


def train(limit):
    command = ["braid-run", "train", sys.argv[1], "--data", sys.argv[2], "--steps", "1", "--threads", "1"]
    return subprocess.run(command, capture_output=True, text=True, check=False, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)))


enough = next((limit for limit in range(64, 1024, 64) if train(limit * MIB).returncode == 0), None)
if enough is None:
    # An address sanitizer's shadow takes more addresses than any limit allows, whatever is asked for.
    helps = subprocess.run(["braid-run", "--help"], capture_output=True, check=False, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (1024 * MIB, 1024 * MIB)))
    print("1 GiB is not enough for this program" if helps.returncode == 0 else "no limit is enough for this build")
    sys.exit(0)
wrong, refused, named = [], 0, False
# Where what the arenas lack begins and ends depends on what oneDNN's kernels take on this processor.
for limit in range(64, enough, 4):
    done = train(limit * MIB)
    refused += done.returncode == 1
    named |= f"this process may map {limit * MIB} bytes, ulimit -v" in done.stderr
    aborted = done.returncode == -signal.SIGABRT and "libgcc_s.so.1 must be installed" in done.stdout + done.stderr
    if not aborted and (done.returncode not in (0, 1) or done.returncode == 1 and "error: " not in done.stderr):
        wrong.append(f"{limit} MiB: status {done.returncode}: {done.stderr.strip()[-300:]}")
print(*wrong, f"some refused: {refused > 0}, a limit named: {named}, {len(wrong)} wrong", sep="\n")
