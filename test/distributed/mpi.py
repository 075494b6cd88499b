"""Ranks as processes under mpirun: the bits of ranks that are threads, who speaks, what is refused, and what a lost or hung rank does.

Trains the frozen program of test/pipeline (two ranks, dp=2, ep=2; nothing to compile), and where there is a compiler a model on four. Usage: mpi.py PROGRAM.braid DATA; needs braid-run and
mpirun in PATH. BRAID_KILLS: how many times a process is killed in a training that saves after every step (default 3).
"""
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
failures = 0
STEPS = 24


def check(name, good, detail=""):
    global failures
    failures += not good
    print(f"{'ok' if good else 'FAIL'}: {name}{'' if good else chr(10) + str(detail)}", flush=True)


def mpirun(ranks, *arguments):
    return ["mpirun", "-n", str(ranks), *arguments]


def run(command, seconds=120):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=seconds)
    return done.returncode, done.stdout, done.stderr


def files(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*"))
            if path.is_file() and path.name != ".lock"}


def metrics(path):
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [{k: v for k, v in line.items() if k not in ("seconds", "tokens_per_second")} for line in lines]


def ranks_of(job):
    """{rank: pid} of the processes that an mpirun started."""
    found = {}
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if int((process / "stat").read_text().rsplit(")", 1)[1].split()[1]) != job.pid:
                continue
            environment = (process / "environ").read_bytes().split(b"\0")
        except (OSError, ValueError):
            continue
        for entry in environment:
            if entry.startswith(b"OMPI_COMM_WORLD_RANK="):
                found[int(entry.split(b"=")[1])] = int(process.name)
    return found


class Job:
    """A training under mpirun that is disturbed."""

    def __init__(self, command, checkpoints, ranks=2):
        self.checkpoints, self.ranks = checkpoints, ranks
        self.process = subprocess.Popen([str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def wait_for_step(self, step):
        """Until all ranks run, and (but for step 0) have saved that step. False when the training has ended before."""
        while self.process.poll() is None:
            if (step == 0 or (self.checkpoints / f"step-{step:08}").exists()) and len(ranks_of(self.process)) == self.ranks:
                return True
            time.sleep(0.005)
        return False

    def send(self, rank, number):
        os.kill(ranks_of(self.process)[rank], number)

    def end(self, seconds):
        """(exit status, output, seconds it took, processes that are left)."""
        children, start = ranks_of(self.process), time.monotonic()
        try:
            output = "".join(self.process.communicate(timeout=seconds))
        except subprocess.TimeoutExpired:
            self.process.kill()
            return None, "still runs", seconds, children
        took, left = time.monotonic() - start, children
        while left and time.monotonic() - start < took + 10:  # mpirun ends when it has sent the signals
            left = [pid for pid in children.values() if pathlib.Path(f"/proc/{pid}").exists()]
            time.sleep(0.02)
        return self.process.returncode, output, took, left


def main(program, data):
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)

        def train(directory, *flags, steps=STEPS):
            return ["braid-run", "train", program, "--threads=1", "--data", data, f"--steps={steps}", "--lr=0.01", "--seed=1",
                    "--warmup=2", f"--checkpoint-dir={directory}", "--save-every=1", "--keep=1000", *flags]

        # The same bits, and one voice.
        code, out, err = run(train(folder / "threads", "--ranks=2", f"--metrics={folder / 'threads.jsonl'}"))
        check("threads train", code == 0, err)
        code, out, err = run(mpirun(2, *train(folder / "mpi", f"--metrics={folder / 'mpi.jsonl'}", f"--trace={folder / 't.json'}")))
        check("processes train", code == 0, err)
        check("one process speaks", out.count("trained to step") == 1 and err.count("data: ") == 1, out + err)
        wanted = files(folder / "threads")
        check("every file of every checkpoint is equal", files(folder / "mpi") == wanted and len(wanted) > 4 * STEPS)
        check("the metrics are equal", metrics(folder / "mpi.jsonl") == metrics(folder / "threads.jsonl"))
        check("every process wrote a trace", all((folder / name).exists() for name in ("t.json", "t.rank1.json")))

        evaluate = ["braid-run", "eval", program, "--threads=1", "--checkpoint", folder / "mpi", "--data", data]
        losses = [run(command)[1].split(" in ")[0] for command in (evaluate + ["--ranks=2"], mpirun(2, *evaluate))]
        check("evaluation is equal", losses[0] == losses[1] and "nats" in losses[0], losses)
        code, out, err = run(mpirun(2, "braid-run", "call", program, "@init", "--seed=1", "--output",
                                    f"coordinate.ep={folder}/c{{rank}}.npy"))
        check("calls write a file for each rank", code == 0 and
              [(folder / f"c{rank}.npy").read_bytes()[-4:] for rank in (0, 1)] == [b"\0\0\0\0", b"\1\0\0\0"], err)
        # Lists that are the same for the length of a line.
        for rank in (0, 1):
            rounds = [0] * 11 + [3 * rank]
            lines = (json.dumps({"function": "init", "inputs": {}, "outputs": {}, "rounds": n}) for n in rounds)
            (folder / f"calls{rank}.jsonl").write_text("\n".join(lines))
        code, _, err = run(mpirun(2, "bash", "-c", f"exec braid-run call {program} --seed=1 --calls {folder}/calls$OMPI_COMM_WORLD_RANK.jsonl"))
        check("lists of calls are compared to their end", code != 0 and "--calls" in err and "all ranks of a run need the same" in err, err)

        # What srun --mpi=pmix gives its tasks: PMIx, and the size of the step instead of mpirun's variables.
        def as_srun(tasks, command):
            return ["env", "-u", "OMPI_COMM_WORLD_SIZE", f"SLURM_STEP_NUM_TASKS={tasks}", *command]

        code, out, err = run(mpirun(2, *as_srun(2, evaluate)))
        check("the environment of srun", code == 0 and out.split(" in ")[0] == losses[0], err)
        code, out, err = run(mpirun(1, *as_srun(1, [*evaluate, "--ranks=2"])))
        check("a step of one task has threads", code == 0 and out.split(" in ")[0] == losses[0], err)

        # A batch script knows how many tasks it may start, and starts one; whoever asks for threads gets them.
        for name, command in (("a batch script", ["env", "SLURM_NTASKS=4", *evaluate, "--ranks=2"]),
                              ("threads when asked for", mpirun(1, *evaluate, "--ranks=2", "--launcher=threads"))):
            code, out, err = run(command)
            check(name, code == 0 and out.split(" in ")[0] == losses[0], err)

        def apart(one, other):
            return ["mpirun", "-n", "1", *one, ":", "-n", "1", *other]

        # What is refused, once.
        shorter = folder / "shorter.txt"
        shorter.write_bytes(pathlib.Path(data).read_bytes()[:-1])
        run_apart = train(folder / "apart")
        init = ["braid-run", "call", program, "@init", "--seed=1"]
        locked = folder / "locked"
        locked.mkdir()
        (locked / ".lock").write_text("77")
        newest, first = folder / "mpi", folder / "mpi/step-00000001"
        without_directory = [word for word in run_apart if not str(word).startswith(("--checkpoint-dir", "--save-every", "--keep"))]
        other = folder / "other.braid"
        compiled = shutil.which("braid-compile") is not None  # the runtime is also built alone
        if compiled:
            run(["braid-compile", ROOT / "models/tiny-hybrid.json", "-o", other, "--mesh=dp=2,ep=2", "--batch=4", "--seq-len=64"])
        older = folder / "older"
        shutil.copytree(first, older / first.name)
        for name, command, sentence in [
                ("another directory of checkpoints", apart(evaluate, [older if word == newest else word for word in evaluate]),
                 f"rank 1: {older} is not the --checkpoint of rank 0, which has step-{STEPS:08}: "),
                ("other settings", apart(run_apart, ["--save-every=7" if word == "--save-every=1" else word for word in run_apart]),
                 "--save-every: 7 on rank 1, but 1 on rank 0; all ranks of a run need the same"),
                ("other data", apart(run_apart, [shorter if word == data else word for word in run_apart]), "--data (hash): "),
                *([("another program", apart(run_apart, [other if word == program else word for word in run_apart]),
                    "program file (content hash): ")] if compiled else []),
                ("another checkpoint directory", apart(run_apart, train(folder / "elsewhere")), "rank 1 does not see the lock of rank 0 in "),
                ("another directory that was trained in", apart(run_apart, train(locked)),
                 "rank 1 sees the lock of process 77 in its --checkpoint-dir, but rank 0 that of process "),
                ("no checkpoint directory", apart(run_apart, without_directory), "--checkpoint-dir: not given on rank 1, but given on rank 0"),
                ("another command", apart(init, evaluate), "command: eval on rank 1, but call on rank 0"),
                ("another checkpoint to evaluate", apart(evaluate, [first if word == newest else word for word in evaluate]),
                 "checkpoint (hash of its index.json): "),
                ("another seed of init", apart(init, [*init[:-1], "--seed=2"]), "--seed: 2 on rank 1, but 1 on rank 0"),
                ("a trace over the metrics", mpirun(2, *train(folder / "over", f"--trace={folder / 'o.json'}", f"--metrics={folder / 'o.rank1.json'}")),
                 "what one needs the other would overwrite"),
                ("other data to evaluate", apart(evaluate, [*evaluate[:-1], shorter]), "--data (hash): "),
                ("another number of processes", mpirun(3, *evaluate),
                 "was compiled for a mesh of 2 ranks (dp=2, ep=2), but mpirun started 3 processes: start 2 (mpirun -n 2, srun --mpi=pmix -n 2), or "
                 "ranks as threads of one process (--ranks=2)"),
                ("one process", mpirun(1, *evaluate), "run it with --ranks=2, or as processes with mpirun -n 2"),
                ("threads under mpirun", mpirun(2, *evaluate, "--ranks=2"),
                 "--ranks=2 asks for threads of one process, but mpirun started 2 processes, each of them a rank"),
                ("a checkpoint that is not there", mpirun(2, *evaluate[:-4], "--checkpoint", folder / "none", "--data", data), "holds no checkpoint"),
                ("a launcher of another MPI", ["env", "PMI_SIZE=4", *evaluate],
                 "mpiexec started 4 processes (PMI_SIZE), but MPI sees 1: this braid-run was built with"),
                ("srun that says nothing of peers", ["env", "SLURM_STEP_NUM_TASKS=4", *evaluate],
                 "srun started this process without PMIx (PMIX_NAMESPACE is not set), by which Open MPI v"),
                ("srun that speaks PMI-2", ["env", "PMI_SIZE=4", "SLURM_STEP_NUM_TASKS=4", *evaluate],
                 "srun started this process without PMIx (PMIX_NAMESPACE is not set), by which Open MPI v"),
                ("mpiexec inside a step of srun", ["env", "PMI_SIZE=4", "SLURM_STEP_NUM_TASKS=1", *evaluate], "mpiexec started 4 processes (PMI_SIZE)"),
                ("another number of tasks", mpirun(3, *as_srun(3, evaluate)), "but srun started 3 processes: start 2 (mpirun -n 2, srun --mpi=pmix -n 2)"),
                ("an unknown launcher", [*evaluate, "--launcher=ssh"], '--launcher: "ssh" is not known; valid: auto, threads, mpi')]:
            code, out, err = run(command)
            check(f"refused: {name}", code not in (0, None) and err.count("braid-run: error:") == 1 and sentence in err, (code, err))

        # Every rank draws the next token for itself.
        if compiled:
            def generate(*flags):
                return ["braid-run", "generate", other, "--threads=1", "--checkpoint", newest, "--prompt", "ab", "--max-tokens=4", *flags]

            for flag, value, default in (("--seed", "7", "0"), ("--temperature", "1", "0"), ("--top-p", "0.5", "1")):
                code, out, err = run(apart(generate(), generate(f"{flag}={value}")))
                check(f"refused: another {flag} of generate", code not in (0, None) and f"{flag}: {value} on rank 1, but {default} on rank 0" in err, err)
            code, out, err = run(apart(generate(), ["abc" if word == "ab" else word for word in generate()]))
            check("refused: another prompt", code not in (0, None) and "prompt (hash): " in err, err)

            # Ranks of tp hold tensors in common.
            cut = folder / "cut.braid"
            run(["braid-compile", ROOT / "models/tiny-hybrid.json", "-o", cut, "--mesh=tp=2"])
            begin = ["braid-run", "call", cut, "@init", "--seed=1"]
            code, out, err = run(apart([*begin, "--threads=1"], [*begin, "--threads=2"]))
            check("refused: other threads on tp", code not in (0, None) and "--threads: 2 on rank 1, but 1 on rank 0" in err, err)
            code, out, err = run(apart(begin, [*begin, "--threads=2"]))
            check("refused: threads that one rank is given", code not in (0, None) and "--threads: 2 on rank 1, but not given on rank 0" in err, err)
            code, out, err = run(apart(begin, [other if word == cut else word for word in begin]))
            check("refused: a program of another mesh", code not in (0, None) and "program file (content hash): " in err, err)
            code, out, err = run(apart(begin, ["env", "ONEDNN_MAX_CPU_ISA=SSE41", *begin]))
            check("refused: other instructions on tp", code not in (0, None) and "instructions of matrix products (CPU, ONEDNN_MAX_CPU_ISA): " in err, err)
            code, out, err = run(apart(begin, ["taskset", "-c", sorted(os.sched_getaffinity(0))[0], *begin]))
            check("where cores differ, the threads of the rank with the fewest", code == 0, err)

        # One that does not come to the start, where MPI waits: the other one says so.
        for late in (0, 1):
            command = apart(*([["sleep", "100"], [*evaluate, "--timeout=2"]] if late == 0 else [[*evaluate, "--timeout=2"], ["sleep", "100"]]))
            began = time.monotonic()
            code, out, err = run(command, seconds=60)
            seconds = time.monotonic() - began
            sentence = f"braid-run: error: rank {1 - late} waited 2000 ms for the other 1 that mpirun started; not all of them came"
            check(f"a rank {late} that does not come ends the run", code not in (0, None) and err.count(sentence) == 1 and seconds < 30, (code, seconds, err))

        # A rank that hangs is named, and everything ends; also when it is the one that speaks.
        for hung in (1, 0):
            job = Job(mpirun(2, *train(folder / f"hung{hung}", "--timeout=2", steps=100000)), folder / f"hung{hung}")
            if job.wait_for_step(3):
                job.send(hung, signal.SIGSTOP)
            code, output, seconds, left = job.end(40)
            check(f"a hung rank {hung} ends the run", code not in (0, None) and seconds < 30 and not left, (code, seconds, left, output))
            sentence = f"braid-run: error: .*'.*' on axis \\w+: rank {1 - hung} waited 2000 ms for peer rank {hung}, which did not"
            check("it is named", re.search(sentence, output), output)

        # One that is lost, where nobody but the other ranks can see it.
        job = Job(["mpirun", "--enable-recovery", "-n", "2", *train(folder / "lost", "--timeout=2", steps=100000)], folder / "lost")
        if job.wait_for_step(3):
            job.send(1, signal.SIGKILL)
        code, output, seconds, left = job.end(30)
        check("a lost rank ends the run", code is not None and seconds < 20 and not left, (code, seconds, left, output))
        check("it is named too", re.search(r"rank 0 waited 2000 ms for peer rank 1, which did not", output), output)

        # Stages of a pipeline: their ranks are on axes of their own.
        if compiled:
            staged = folder / "staged.braid"
            run(["braid-compile", ROOT / "models/tiny-hybrid.json", "-o", staged, "--mesh=pp=2,dp=2", "--batch=4", "--seq-len=64"])

            def train_staged(place):
                return [staged if word == program else word for word in train(folder / place, steps=4)]

            code, _, err = run(mpirun(4, *train_staged("staged")))
            check("stages as processes", code == 0, err)
            code, _, err = run([*train_staged("staged-threads"), "--ranks=4"])
            check("the bits of stages as threads", code == 0 and files(folder / "staged") == files(folder / "staged-threads"), err)

        # On a mesh of two axes, each rank with peers on both; the training goes on from its last checkpoint.
        if compiled:
            square = folder / "square.braid"
            run(["braid-compile", ROOT / "models/tiny-hybrid.json", "-o", square, "--mesh=sp=2,tp=2", "--batch=4", "--seq-len=64"])

            def train_square(*flags, steps):
                return [square if word == program else word for word in train(folder / "square", *flags, steps=steps)]

            job = Job(["mpirun", "--enable-recovery", "-n", "4", *train_square("--timeout=4", steps=100000)], folder / "square", ranks=4)
            if job.wait_for_step(2):
                job.send(3, signal.SIGKILL)
            code, output, seconds, left = job.end(40)
            check("a lost rank of two axes ends the run", code is not None and seconds < 30 and not left, (code, seconds, left, output))
            check("an axis and a peer are named", re.search(r"on axis \w+: rank \d waited 4000 ms for peer rank \d, which did not", output), output)
            last = max(int(path.name[5:]) for path in (folder / "square").glob("step-*"))
            code, out, err = run(mpirun(4, *train_square("--resume", steps=last + 1)))
            check("it goes on where the checkpoint was", code == 0 and f"resumed from {folder / 'square'}/step-{last:08}" in err, err)

        # Killed while a checkpoint is written, either rank at any of the calls that change files: what is there is complete, and the end is the
        # same. Calls are counted by the library that kills (test/runtime/fixture/FaultInjector.c).
        seed = int(os.environ.get("BRAID_SEED", time.time_ns() % 1000000))
        moments = random.Random(seed)
        faults = pathlib.Path(shutil.which("braid-run")).resolve().parent.parent / "lib" / "libbraid-test-faults.so"

        def with_faults(rank, arguments, *settings):
            injected = ["env", f"LD_PRELOAD={faults}", *settings, *arguments]
            first, second = (injected, arguments) if rank == 0 else (arguments, injected)
            return ["mpirun", "-n", "1", *first, ":", "-n", "1", *second]

        counted = []
        for rank in (0, 1):
            run(with_faults(rank, train(folder / f"counted{rank}"), f"BRAID_FAULT_LOG={folder}/calls{rank}"))
            calls = (folder / f"calls{rank}").read_text().splitlines()
            counted.append([number for number, call in enumerate(calls, 1) if "/step-" in call or "/.tmp-" in call])
        check("both ranks write checkpoints", all(len(calls) > STEPS for calls in counted), [len(calls) for calls in counted])
        killed = 0
        for number in range(int(os.environ.get("BRAID_KILLS", "3"))):
            rank = number % 2
            at = moments.choice(counted[rank][:len(counted[rank]) // 2])
            job = Job(with_faults(rank, train(folder / "killed", "--resume", "--timeout=5"), "BRAID_FAULT=kill", f"BRAID_FAULT_AT={at}"),
                      folder / "killed")
            job.wait_for_step(0)
            code, output, _, left = job.end(60)
            killed += "signal 9" in output
            check(f"kill of rank {rank} at call {at} (seed {seed})", code is not None and not left, (code, left, output))
        check("ranks were killed", killed > 0)
        code, out, err = run(mpirun(2, *train(folder / "killed", "--resume")))
        check("it goes on", code == 0, err)
        check("to the same bits", {k: v for k, v in files(folder / "killed").items()} == wanted, sorted(files(folder / "killed")))
    print(f"{failures} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
