"""Programs for GPUs, looked at without one.

    cuda.py FOLDER MODEL[:FLAG..] ..        (braid-compile and braid-run from the PATH; MODEL all: every model of the folder, SMALLER as told)

Each model is compiled with --target=cuda and the flags given. Of its kernels: every one has machine code, no thread spills registers (but KNOWN_SPILLS)
or has local memory (of `all`, those that do are counted), products of bf16 tiles are on the tensor cores but where they read scratch,
operands come by asynchronous copies, and the numbers that --explain prints are those of the program file.
"""

import json
import pathlib
import re
import subprocess
import sys
import tempfile

SMALLER = {"minimax-text-01": ["--batch=1", "--seq-len=512"]}  # its own batch is for many ranks: no file holds it for one
BLOCK = re.compile(r"^  (\S+) +(\d+) +(\d+) +(\d+) +(\d+) +(\d+) +(\d+)(?:  in clusters of \d)?$", re.MULTILINE)


# What is to go, where there is some: bytes a thread, by the beginning of a kernel's name.
KNOWN_SPILLS = {}


def run(*command):
    """-> what the tool printed; it must not fail, nor warn: the assembler does where products by wgmma wait for each other."""
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode or "warning" in done.stderr:
        raise RuntimeError(f"{' '.join(command[:2])}: exit status {done.returncode}: {done.stderr.strip()[-600:]}")
    return done.stdout


def check(model, flags, folder, strict):
    program = str(folder / "P.braid")
    page = run("braid-compile", str(model), "-o", program, "--target=cuda", "--explain", f"--dump-phases-to={folder}", *flags)
    info = json.loads(run("braid-run", "info", program, "--json"))
    module = (folder / "06-commands.mlir").read_text(encoding="utf-8")
    ptx = (folder / "kernels.ptx").read_text(encoding="utf-8")
    wrong = []
    kernels = {kernel["name"]: kernel for kernel in info["gpu_kernels"]}
    if info["target"] != "cuda" or set(kernels) != set(info["kernels"]):
        wrong.append(f"target {info['target']}, {len(kernels)} of {len(info['kernels'])} kernels for a GPU")
    bodies = dict(re.findall(r"\.visible \.entry (\w+)\((.*?)\n}", ptx, re.DOTALL))
    sources = {name: body for name, body in re.findall(r"func\.func @(\w+)\([^\n]*tile\.kernel(.*?)\n  }", module, re.DOTALL)}
    on_tensor_cores = by_groups = copied = spilled = 0
    for name, kernel in kernels.items():
        body = bodies.get(name, "")
        if not body or not kernel["image_bytes"] or not kernel["registers"]:
            wrong.append(f"{name}: no code, or no registers")
        spills = kernel["spill_bytes"] or kernel["stack_bytes"] or ".local" in body
        spilled += bool(spills)
        known = any(name.startswith(kernel_name) and kernel["spill_bytes"] <= most_bytes for kernel_name, most_bytes in KNOWN_SPILLS.items())
        if spills and strict and not known:
            wrong.append(f"{name}: {kernel['spill_bytes']} bytes spilled, {kernel['stack_bytes']} of local memory")
        products = re.findall(r"tile\.dot .*: vector<(\d+)x(\d+)xbf16>, vector<(\d+)x(\d+)xbf16>", sources.get(name, ""))
        if any(all(int(size) % 16 == 0 for size in product) for product in products):
            on_tensor_cores += 1
            by_warps = "mma.sync.aligned.m16n8k16" in body and "ldmatrix" in body
            by_groups += "wgmma.mma_async.sync.aligned" in body
            if kernel["scratch_bytes"] == 0 and not by_warps and "wgmma.mma_async.sync.aligned" not in body:
                wrong.append(f"{name}: a bf16 product that is not on the tensor cores")
        copied += "cp.async.cg.shared.global" in body and "cp.async.wait_group" in body
    said = {name: tuple(map(int, numbers)) for name, *numbers in BLOCK.findall(page)}
    for name, kernel in kernels.items():
        if said.get(name) != tuple(kernel[key] for key in ("threads", "shared_bytes", "scratch_bytes", "registers", "spill_bytes", "stack_bytes")):
            wrong.append(f"{name}: --explain says {said.get(name)}")
    scratch = sum(kernel["scratch_bytes"] > 0 for kernel in kernels.values())
    most = max(kernel["registers"] for kernel in kernels.values())
    print(
        f"{model.name}{''.join(' ' + flag for flag in flags)}: {len(kernels)} kernels for {info['arch']}, {on_tensor_cores} on tensor "
        f"cores, {by_groups} of them by wgmma, {copied} with asynchronous copies, at most {most} registers, {scratch} with scratch, {spilled} spill"
    )
    return wrong


def main():
    models = pathlib.Path(sys.argv[1])
    cases = []
    for argument in sys.argv[2:]:
        name, *flags = argument.split(":")
        paths = sorted(models.glob("*.json")) if name == "all" else [models / f"{name}.json"]
        cases += [(path, [*SMALLER.get(path.stem, []), *flags], name != "all") for path in paths]
    failed = 0
    for model, flags, strict in cases:
        with tempfile.TemporaryDirectory() as folder:
            try:
                wrong = check(model, flags, pathlib.Path(folder), strict)
            except (RuntimeError, OSError) as error:
                wrong = [str(error)]
        for line in wrong:
            print(f"FAILED {model.name} {' '.join(flags)}: {line}")
        failed += bool(wrong)
    print(f"cuda, {failed} of {len(cases)} failed")
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
