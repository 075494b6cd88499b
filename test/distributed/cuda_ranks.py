"""Programs for GPUs on several ranks, one device each, on stubs of NVIDIA's driver and NCCL (test/emulator): losses, norms and weights are
those of the same mesh on CPUs.

    cuda_ranks.py STUB            (braid-compile and braid-run from the PATH; STUB: the folder of the stubs)
    cuda_ranks.py STUB --all      every axis and way to exchange, generation
    cuda_ranks.py STUB --errors   what is missing, or fails, or is lost
    cuda_ranks.py STUB --mpi      ranks as processes, too
    cuda_ranks.py STUB --waits    kernels or collectives that do not wait for the others

The stubs do what they are given as late as they may, a collective when the streams of all ranks have come to it.
"""

import json
import os
import pathlib
import re
import shutil
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "pipeline"))
import cuda_run
from cuda_run import check, furthest, must, run, tensors

MODEL = {
    "name": "ranks",
    "vocab_size": 256,
    "d_model": 16,
    "num_layers": 2,
    "layer_pattern": "MW",
    "ffn_pattern": "E",
    "mixers": {
        "M": {"kind": "mamba2", "heads": 2, "head_dim": 8},
        "W": {"kind": "attention", "heads": 2, "kv_heads": 2, "head_dim": 8, "window": 20},
    },
    "ffns": {"E": {"kind": "moe", "num_experts": 4, "top_k": 2, "expert_hidden": 16}},
    "train": {"batch": 2, "seq_len": 32, "learning_rate": 3e-3, "warmup_steps": 1, "steps": 10},
}
ON_GPU = ["--target=cuda", "--arch=sm_90a,emulated"]
STEPS = 2
ONE_LAYER = {"num_layers": 1, "layer_pattern": "M", "mixers": {"M": MODEL["mixers"]["M"]}}


class Case:
    """A program of one mesh for CPUs and for GPUs, trained alike."""

    def __init__(self, folder, stub, mesh, *flags, on_gpu=(), **changes):
        self.folder, self.name = folder, " ".join([mesh, *flags, *on_gpu, *map(str, changes.values())])
        self.stub = {**stub, "BRAID_STUB_DEVICES": "2"}
        (folder / "model.json").write_text(json.dumps({**MODEL, **changes}))
        self.flags = [f"--mesh={mesh}", "--chunk-size=16", *flags]
        for program, target in (("cpu", []), ("gpu", [*ON_GPU, *on_gpu])):
            self.compile(program, *target)

    def compile(self, program, *target):
        must("braid-compile", self.folder / "model.json", "-o", self.folder / f"{program}.braid", *self.flags, *target)

    def train(self, program, *flags, launch=("--ranks=2",), **environment):
        """The metrics of every step, and the folder of the checkpoint."""
        place = self.folder / f"{program}-checkpoints"
        shutil.rmtree(place, ignore_errors=True)
        metrics = self.folder / "metrics.jsonl"
        metrics.unlink(missing_ok=True)
        mpi = [] if launch[0].startswith("--") else list(launch)
        threads = list(launch) if not mpi else []
        must(*mpi, "braid-run", "train", self.folder / f"{program}.braid", *threads, "--data", self.folder / "text.txt", "--steps", STEPS, "--seed", 3,
             "--timeout=60", "--metrics", metrics, "--checkpoint-dir", place, *flags, **environment)
        return [step for step in map(json.loads, metrics.read_text().splitlines()) if "loss" in step], place / f"step-{STEPS:08}"

    def compare(self, *flags, **environment):
        (cpu, there), (gpu, here) = self.train("cpu", *flags), self.train("gpu", *flags, **self.stub, **environment)
        off = max(abs(a[key] - b[key]) / abs(a[key]) for key in ("loss", "grad_norm") for a, b in zip(cpu, gpu, strict=True))
        weights = max(furthest(tensors(file), tensors(here / file.name)) for file in sorted(there.glob("*.safetensors")))
        check(len(cpu) == STEPS and off < 2e-5 and weights < 2e-3,
              f"{self.name}: losses {[line['loss'] for line in gpu]}, off by {off:.1e} with their norms; weights and moments by {weights:.1e}")
        return gpu


def calls_of(path):
    return path.read_text().splitlines()


def on_two_ranks(folder, stub, with_mpi):
    """Woven slices over experts on two ranks: true rows travel, so the host looks at counts; and what else is recorded."""
    case = Case(folder, stub, "dp=2,ep=2", "--pipeline=1A1M", "--overlap-degree=2")
    log = folder / "log"
    losses = case.compare(BRAID_STUB_LOG=str(log))
    calls = calls_of(log)
    sends = {call.rsplit(" ", 1)[1] for call in calls if call.startswith("ncclSend")}
    kernels = {call.rsplit(" ", 1)[1] for call in calls if call.startswith("cuLaunchKernel")}
    check(len(sends) == 1 and len(kernels) == 5 and not sends & kernels, f"rows travel on stream {sends}, kernels run on {kernels}")
    priorities = dict(re.match(r"cuStreamCreateWithPriority (\d+) priority (-?\d+)", call).groups() for call in calls if "WithPriority" in call)
    check([priorities[stream] for stream in (*sends, *kernels)] == ["-5", *["0"] * 5], f"exchanges go first: priorities of streams {priorities}")
    if with_mpi:
        again, _ = case.train("gpu", launch=["mpirun", "-n", "2"], **case.stub)
        same = [[line[key] for key in ("loss", "grad_norm")] for line in again] == [[line[key] for key in ("loss", "grad_norm")] for line in losses]
        check(same, "processes over MPI, with the second device for the second of a machine: the same bits")
        command = ["braid-run", "train", folder / "gpu.braid", "--data", folder / "text.txt", "--steps", "1", "--seed", "3"]
        one = {**stub, "BRAID_STUB_DEVICES": "1"}
        code, _, err = run("mpirun", "-n", "2", *command, **one)
        check(code != 0 and re.search(r"ranks 0 and 1 have the same GPU: 2 ranks on this machine need 2 GPUs, one each, but the driver shows 1", err),
              f"one device for both: {err.splitlines()[:1]}")
        own = 'BRAID_STUB_FIRST=$OMPI_COMM_WORLD_RANK exec "$@"'
        code, out, err = run("mpirun", "-n", "2", "sh", "-c", own, "sh", *command, **one)
        check(code == 0 and f"loss {losses[0]['loss']:.4f}" in out, f"a device of its own is all that each process is shown: {(out + err).splitlines()[-1:]}")

    case = Case(folder, stub, "dp=2")
    log.unlink()
    case.compare(BRAID_STUB_LOG=str(log))
    calls = calls_of(log)
    first = next(i for i, call in enumerate(calls) if call.startswith("cuGraphLaunch"))
    made = [call for call in calls[first:] if re.match("cu(MemAlloc|StreamCreate|EventCreate|StreamBegin|GraphInst|Launch)|nccl", call)]
    recorded = sum(call.startswith("nccl") for call in calls[:first])
    check(recorded > 0 and not made, f"{recorded} collectives are recorded, nothing is begun by itself behind the first launch of a graph {made[:2]}")
    check(sum(call.startswith("cuMemAlloc") for call in calls) == 2, "one allocation on each device")

    # Two stages: what one sends while it waits for nothing, and what both exchange at a time.
    Case(folder, stub, "pp=2", "--micro-batches=2", "--head-stages=last").compare()
    # Both have words of the head, of which all-reduces go between the exchanges of a pair.
    Case(folder, stub, "pp=2", "--micro-batches=2", "--head-stages=all").compare()


def missing_waits(folder, stub):
    """What the records and waits of the program are for: without those of a stream other weights come out. Which stream goes first
    where both may does not matter."""
    case = Case(folder, stub, "dp=2,ep=2", "--pipeline=1A1M", "--overlap-degree=2", **ONE_LAYER)

    def weights(order, **environment):
        shutil.rmtree(folder / "C", ignore_errors=True)
        code, _, _ = run("braid-run", "train", folder / "gpu.braid", "--ranks=2", "--data", folder / "text.txt", "--steps", 1, "--seed", 3, "--timeout=20",
                         "--checkpoint-dir", folder / "C", BRAID_STUB_ORDER=order, **case.stub, **environment)
        return b"".join(file.read_bytes() for file in sorted((folder / "C").glob("step*/*.safetensors"))) if code == 0 else f"exit status {code}"

    expected = weights("last")
    check(len(expected) > 1000 and weights("first") == expected, "either stream first: the same bits")
    check(weights("last", BRAID_STUB_DEAF="2") != expected, "collectives that do not wait for kernels are found")
    check(weights("first", BRAID_STUB_DEAF="1") != expected, "kernels that do not wait for collectives are found")
    case.compile("gpu", *ON_GPU, "--weight-gradients=beside")
    check(all(weights(order) == expected for order in ("first", "last")), "gradients of weights beside the rest, whose sums travel: the same bits, either stream first")


def errors(folder, stub):
    case = Case(folder, stub, "dp=2")

    def refused(why, wanted, *flags, **environment):
        code, _, err = run("braid-run", "train", folder / "gpu.braid", "--ranks=2", "--data", folder / "text.txt", "--steps", 2, "--timeout=2", *flags,
                           **{**case.stub, **environment})
        check(code == 1 and re.search(wanted, err, re.S), f"{why}: {err}")

    log = folder / "log"
    refused("one device", r"target cuda \(sm_90a,emulated\): 2 ranks on this machine need 2 GPUs, one each, but the driver shows 1 .*; valid: a mesh of "
            "at most 1", BRAID_STUB_DEVICES="1", BRAID_STUB_LOG=str(log))
    check(not any(re.match("cu(MemAlloc|ModuleLoad|StreamCreate|MemHost)", call) for call in calls_of(log)), "before anything is made")
    alone = folder / "alone"
    alone.mkdir()
    (alone / "libcuda.so.1").symlink_to(pathlib.Path(stub["LD_LIBRARY_PATH"]) / "libcuda.so.1")
    (alone / "libnccl.so.2").write_bytes(b"")  # before any that the machine has
    refused("no NCCL", r"rank [01]: .*libnccl\.so\.2", LD_LIBRARY_PATH=str(alone))
    refused("little memory", r"out of memory: the program needs \d+ bytes .*, but the device \(stub, number [01]\) has 100000 of its 100000 bytes free",
            BRAID_STUB_MEMORY="100000")
    refused("NCCL refuses a call on one rank", r"rank 1: entry '\w+' command .*: all_reduce '.*' on axis dp: .*ncclAllReduce.*unhandled system error",
            BRAID_STUB_FAIL="ncclAllReduce")
    refused("a rank is lost in a step", r"rank [01]: entry 'train_step': the device \(stub, number [01]\) has not finished after 2000 ms: it waits for ranks that are "
            "lost or hang", BRAID_STUB_LOST="4")


def every_axis(folder, stub):
    capacity = {"ffns": {"E": {**MODEL["ffns"]["E"], "capacity_factor": 1.5}}}
    for mesh, *flags, changes in (("dp=2", "--accumulation-steps=2", {}), ("dp=2,ep=2", {}), ("dp=2,ep=2", capacity), ("tp=2", {}), ("tp=2", {"on_gpu": ["--expert-weights=rows"]}),
                                  ("sp=2", "--sp-algorithm=ring", {}), ("sp=2", "--sp-algorithm=all_gather", {}), ("sp=2", "--sp-algorithm=scan", {}), ("sp=2,ep=2", {}),
                                  ("sp=2,ep=2", "--pipeline=1A1M", "--overlap-degree=2", {})):
        case = Case(folder, stub, mesh, *flags, **changes)
        # Other entries between two steps take nothing of the batch that the device has already.
        case.compare(*(["--heldout", folder / "text.txt", "--eval-every", "1"] if "--accumulation-steps=2" in flags else []))
        if mesh == "tp=2" and not changes:
            text = [must("braid-run", "generate", folder / f"{program}.braid", "--ranks=2", "--checkpoint", folder / "cpu-checkpoints", "--prompt",
                         "the quick brown fox", "--max-tokens", 8, "--temperature", 0, **environment).split("\n")[0]
                    for program, environment in (("cpu", {}), ("gpu", case.stub))]
            check(text[0] == text[1], f"two ranks go on with the same bytes: {text[1]!r}")


def main():
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        stub = {"LD_LIBRARY_PATH": sys.argv[1], "TMPDIR": temporary}  # where what ranks send lies
        (folder / "text.txt").write_bytes(bytes((7 * i * i + 3 * i // 5) % 64 for i in range(4000)))
        if "--all" in sys.argv:
            every_axis(folder, stub)
        elif "--errors" in sys.argv:
            errors(folder, stub)
        elif "--waits" in sys.argv:
            missing_waits(folder, stub)
        else:
            on_two_ranks(folder, stub, "--mpi" in sys.argv)
    print(f"cuda ranks, {cuda_run.failures} failed")
    return cuda_run.failures > 0


if __name__ == "__main__":
    sys.exit(main())
