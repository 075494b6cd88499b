"""Ranks that srun starts, under a Slurm of this test's own: controller and daemon of one node, which nobody else sees.

The bits of ranks that are threads, a run that goes on from their checkpoint, signals that come before the time is over, what is refused, a rank that hangs.
Slurm's programs are taken from PATH, /usr/sbin, or the root of unpacked Debian packages (slurmctld, slurmd, slurm-client, slurm-wlm-basic-plugins, munge, libmunge2)
in BRAID_SLURM. Usage: slurm.py PROGRAM.braid DATA (of test/pipeline, two ranks), as root; `slurm.py --missing` says why it cannot run here.
"""
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

import mpi
from mpi import check, files, metrics, run

ROOT = os.environ.get("BRAID_SLURM", "")
PLUGINS = pathlib.Path(f"{ROOT}/usr/lib/x86_64-linux-gnu/slurm-wlm")
STEPS = 12


def find(name):
    places = [f"{ROOT}/usr/{kind}/{name}{suffix}" for kind in ("bin", "sbin") for suffix in ("", "-wlm")]
    return next((place for place in places if os.access(place, os.X_OK)), None)


def missing():
    if os.geteuid() != 0:
        return "only root can start Slurm's daemon"
    for name in ("srun", "slurmctld", "slurmd", "slurmstepd"):
        if not find(name):
            return f"no {name} (Debian: slurmctld, slurmd, slurm-client; or unpacked, BRAID_SLURM)"
    if not (PLUGINS / "mpi_pmix.so").exists():
        return f"no {PLUGINS / 'mpi_pmix.so'}"
    return None


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Slurm:
    def __init__(self, folder, tasks):
        host = socket.gethostname().split(".")[0]
        for name in ("state", "spool"):
            (folder / name).mkdir(parents=True)
        settings = {"ClusterName": "braid", "SlurmctldHost": f"{host}(127.0.0.1)", "SlurmUser": "root", "SlurmdUser": "root", "AuthType": "auth/none",
                    "CredType": "cred/none", "PluginDir": PLUGINS, "MpiDefault": "none", "ProctrackType": "proctrack/linuxproc", "TaskPlugin": "task/none",
                    "SlurmdParameters": "config_overrides", "JobAcctGatherType": "jobacct_gather/none", "AccountingStorageType": "accounting_storage/none", "SelectType": "select/linear",
                    "SlurmctldPort": free_port(), "SlurmdPort": free_port(), "StateSaveLocation": folder / "state", "SlurmdSpoolDir": folder / "spool",
                    "SlurmctldPidFile": folder / "slurmctld.pid", "SlurmdPidFile": folder / "slurmd.pid", "KillWait": 2,
                    "NodeName": f"{host} NodeAddr=127.0.0.1 CPUs={tasks} State=UNKNOWN",
                    "PartitionName": f"all Nodes={host} Default=YES State=UP OverSubscribe=FORCE:8"}
        (folder / "slurm.conf").write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        self.folder, self.environment = folder, os.environ | {"SLURM_CONF": str(folder / "slurm.conf")}
        if ROOT:
            self.environment["LD_LIBRARY_PATH"] = f"{PLUGINS}:{PLUGINS.parent}"
        self.daemons = []

    def __enter__(self):
        for name, *words in (("slurmctld", "-D", "-c"), ("slurmd", "-D", "-d", find("slurmstepd"))):
            log = open(self.folder / f"{name}.log", "w", encoding="utf-8")
            self.daemons.append(subprocess.Popen([find(name), *words], env=self.environment, stdout=log, stderr=log))
        for _ in range(200):
            done = subprocess.run([find("sinfo"), "-h", "-o", "%T"], env=self.environment, capture_output=True, text=True)
            if done.stdout.strip() in ("idle", "mixed", "allocated"):
                return self
            time.sleep(0.1)
        self.__exit__()
        sys.exit("Slurm does not start: " + "".join((self.folder / f"{name}.log").read_text() for name in ("slurmctld", "slurmd")))

    def __exit__(self, *_):
        for daemon in reversed(self.daemons):
            daemon.terminate()
        for daemon in self.daemons:
            daemon.wait()

    def srun(self, tasks, *command, pmi="pmix"):
        return [find("srun"), f"--mpi={pmi}", "-n", tasks, *command]

    def run(self, *words, seconds=120):
        done = subprocess.run([str(w) for w in words], env=self.environment, capture_output=True, text=True, timeout=seconds)
        return done.returncode, done.stdout, done.stderr


def ranks_of(word):
    """{rank: pid} of the tasks in whose command line `word` stands."""
    found = {}
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            line, environment = (process / "cmdline").read_bytes(), (process / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if line.split(b"\0")[0].endswith(b"braid-run") and str(word).encode() in line:
            for entry in environment:
                if entry.startswith(b"SLURM_PROCID="):
                    found[int(entry.split(b"=")[1])] = int(process.name)
    return found


def main(program, data):
    with tempfile.TemporaryDirectory() as temporary, Slurm(pathlib.Path(temporary) / "slurm", 4) as slurm:
        folder = pathlib.Path(temporary)
        braid = shutil.which("braid-run")

        def train(directory, *flags, steps=STEPS):
            return [braid, "train", program, "--threads=1", "--data", data, f"--steps={steps}", "--lr=0.01", "--seed=1", "--warmup=2",
                    f"--checkpoint-dir={directory}", "--save-every=1", "--keep=1000", *flags]

        def disturbed(directory, *flags):
            """A training of 100000 steps, once its ranks have saved the third."""
            job = subprocess.Popen([str(w) for w in slurm.srun(2, *train(directory, *flags, steps=100000))], env=slurm.environment, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, text=True)
            while job.poll() is None and not ((directory / "step-00000003").exists() and len(ranks_of(directory)) == 2):
                time.sleep(0.01)
            return job, ranks_of(directory)

        def gone(pids):
            until = time.monotonic() + 20
            while any(pathlib.Path(f"/proc/{pid}").exists() for pid in pids.values()) and time.monotonic() < until:
                time.sleep(0.05)
            return not any(pathlib.Path(f"/proc/{pid}").exists() for pid in pids.values())

        code, out, err = run(train(folder / "threads", "--ranks=2", f"--metrics={folder / 'threads.jsonl'}"))
        check("threads train", code == 0, err)
        code, out, err = slurm.run(*slurm.srun(2, *train(folder / "srun", f"--metrics={folder / 'srun.jsonl'}")))
        check("tasks of srun train", code == 0, out + err)
        check("one task speaks", out.count("trained to step") == 1 and err.count("data: ") == 1, out + err)
        wanted = files(folder / "threads")
        check("every file of every checkpoint is equal", files(folder / "srun") == wanted and len(wanted) > 4 * STEPS)
        check("the metrics are equal", metrics(folder / "srun.jsonl") == metrics(folder / "threads.jsonl"))

        half = folder / "resumed"
        shutil.copytree(folder / "threads", half)
        for step in range(STEPS // 2 + 1, STEPS + 1):
            shutil.rmtree(half / f"step-{step:08}")
        (half / "latest").write_text((half / "latest").read_text().replace(f"{STEPS:08}", f"{STEPS // 2:08}"))
        code, out, err = slurm.run(*slurm.srun(2, *train(half, "--resume")))
        check("tasks go on from what threads saved", code == 0 and files(half) == wanted, out + err)

        evaluate = [braid, "eval", program, "--threads=1", "--checkpoint", folder / "srun", "--data", data]
        loss = run([*evaluate, "--ranks=2"])[1].split(" in ")[0]
        for name, words in (("two tasks evaluate", slurm.srun(2, *evaluate)), ("one task has threads", slurm.srun(1, *evaluate, "--ranks=2"))):
            code, out, err = slurm.run(*words)
            check(name, code == 0 and out.split(" in ")[0] == loss and "nats" in loss, out + err)
        for name, words, sentence in (("without PMIx", slurm.srun(2, *evaluate, pmi="none"), "srun --mpi=pmix"),
                                      ("with PMI-2", slurm.srun(2, *evaluate, pmi="pmi2"), "srun --mpi=pmix"),
                                      ("another number of tasks", slurm.srun(3, *evaluate), "but srun started 3 processes: start 2 (mpirun -n 2, srun --mpi=pmix -n 2)")):
            code, out, err = slurm.run(*words)
            check(f"refused: {name}", code not in (0, None) and sentence in err, (code, err))

        # Before the time is over: both ranks save what they have and end.
        job, pids = disturbed(folder / "signalled")
        slurm.run(find("scancel"), "--signal=USR1", *slurm.run(find("squeue"), "-h", "-o", "%i")[1].split())
        try:
            output = job.communicate(timeout=40)[0]
        except subprocess.TimeoutExpired:
            output = "still runs"
            job.kill()
        saved = re.search(r"step-(\d+)", output.rsplit("checkpoint", 1)[-1])
        check("SIGUSR1 saves and ends", saved and (folder / "signalled" / saved.group(0) / "index.json").exists() and gone(pids), output)

        job, pids = disturbed(folder / "hung", "--timeout=2")
        if len(pids) == 2:
            os.kill(pids[1], signal.SIGSTOP)
        try:
            output = job.communicate(timeout=60)[0]
        except subprocess.TimeoutExpired:
            output = "still runs"
            job.kill()
        check("a task that hangs is named", re.search(r"rank 0 waited 2000 ms for peer rank 1, which did not", output), output)
        check("and everything ends", job.returncode not in (0, None) and gone(pids), output)
    print(f"{mpi.failures} failed")
    return 1 if mpi.failures else 0


if __name__ == "__main__":
    if sys.argv[1:] == ["--missing"]:
        print(missing() or "")
        sys.exit(1 if missing() else 0)
    sys.exit(main(*sys.argv[1:]))
