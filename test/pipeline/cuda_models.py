"""Every kernel of every model becomes the program of a GPU's thread, with what fits no shared memory in scratch.

    cuda_models.py FOLDER LIMIT..        (braid-compile and braid-opt from the PATH; LIMIT: bytes of shared memory of a block)

Each description of the folder goes to phase `commands` with its own settings, for a GPU of each limit (chunk sizes follow from it); kernels of one
name are one, and all together are lowered by braid-tile-to-threads, as braid-compile does before it calls the assembler: what takes minutes is not
done, and no CUDA toolkit is asked for.
"""

import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import tempfile

KERNEL = re.compile(r"^  func\.func @(\w+)\(.*?^  }$", re.MULTILINE | re.DOTALL)
BYTES = re.compile(r"func\.func @(\w+)\(.*threads\.scratch_bytes = (\d+) : i64, threads\.shared_bytes = (\d+) : i64")


def run(*command):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode:
        sys.exit(f"FAILED {' '.join(map(str, command))}: exit status {done.returncode}: {done.stderr.strip()[-800:]}")
    return done.stdout


def meaning(text):
    """A kernel without the names that its values have from the model it was first made for."""
    numbers = {}
    return re.sub(r"%[\w.]+", lambda match: f"%{numbers.setdefault(match.group(0), len(numbers))}", text)


def kernels_of(models, limit):
    """-> kernels by name, and what is wrong with them."""
    kernels, meanings, wrong = {}, {}, []
    command = ["--target=cuda", f"--arch=sm_90a,emulated={limit}", "--to-phase=commands", "-o", "-"]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for model, text in zip(models, pool.map(lambda m: run("braid-compile", m, *command), models)):
            found = {match.group(1): match.group(0) for match in KERNEL.finditer(text)}
            wrong += [f"{model.name}: no kernels"] if not found else []
            for name, kernel in found.items():
                if meanings.setdefault(name, meaning(kernel)) != meaning(kernel):
                    wrong.append(f"{model.name}: @{name} is another kernel than elsewhere")
            kernels |= found
    return kernels, wrong


def models(folder):
    return sorted(pathlib.Path(folder).glob("*.json"))


def main():
    sources, wrong = models(sys.argv[1]), []
    for limit in map(int, sys.argv[2:]):
        kernels, strange = kernels_of(sources, limit)
        wrong += strange
        with tempfile.TemporaryDirectory() as folder:
            module = pathlib.Path(folder) / "kernels.mlir"
            module.write_text("module {\n" + "\n".join(kernels.values()) + "\n}\n", encoding="utf-8")
            text = run("braid-opt", module, f"--braid-tile-to-threads=shared-bytes={limit}")
        lowered = {name: (int(scratch), int(shared)) for name, scratch, shared in BYTES.findall(text)}
        wrong += [f"@{name} is not lowered" for name in set(kernels) - set(lowered)]
        wrong += [f"@{name}: {shared} bytes of shared memory" for name, (_, shared) in lowered.items() if shared > limit]
        with_scratch = {name: scratch for name, (scratch, _) in lowered.items() if scratch}
        print(f"shared memory {limit}: {len(lowered)} kernels of {len(sources)} models, {len(with_scratch)} with scratch, "
              f"at most {max(with_scratch.values(), default=0)} bytes")
    for line in wrong:
        print(f"FAILED {line}")
    return len(wrong) > 0


if __name__ == "__main__":
    sys.exit(main())
