"""Ranks behind shaped links, on one machine: one network namespace per rank, joined by a bridge, `tc tbf` at both ends of
every link. Work and bytes are real; what is declared is the rate. Needs root, ip, tc and mpirun.

  with Network(ranks=2, rate=1e9) as network:        # bits per second and direction
      done = network.mpirun(["braid-run", ..])       # one process per namespace, each pinned to a core
      network.sent()                                 # bytes that every rank's link has carried since the last call
"""
import contextlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

SUBNET = "10.99.0."  # of every network: each has a switch of its own
os.environ["PATH"] = os.environ.get("PATH", "/usr/bin:/bin") + ":/usr/sbin:/sbin"  # of ip and tc
BURST, QUEUE = 128 * 1024, 16 * 1024 * 1024  # bytes


def missing():
    """Why no network can be shaped here, or None."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    for program in ("ip", "tc", "mpirun", "unshare", "taskset"):
        if not shutil.which(program):
            return f"{program} is not installed"
    try:
        with Network(2, 1e9):
            return None
    except subprocess.CalledProcessError as error:
        return f"{' '.join(error.cmd)}: {(error.stderr or '').strip()}"


def command(*words):
    return subprocess.run([str(word) for word in words], check=True, capture_output=True, text=True).stdout


class Network(contextlib.AbstractContextManager):
    def __init__(self, ranks, rate):
        self.ranks, self.rate = ranks, rate
        self.prefix = f"braid-{os.getpid()}-"
        self.switch = self.prefix + "switch"
        self.folder = tempfile.TemporaryDirectory(prefix="braid-network-")
        self.before = [0] * ranks

    def __enter__(self):
        self.down(abandoned=True)
        try:
            self.up()
        except BaseException:
            self.down()
            raise
        return self

    def __exit__(self, *_):
        self.down()
        self.folder.cleanup()

    def up(self):
        command("ip", "netns", "add", self.switch)
        command("ip", "-n", self.switch, "link", "set", "lo", "up")
        command("ip", "-n", self.switch, "link", "add", "bridge", "type", "bridge")
        command("ip", "-n", self.switch, "addr", "add", SUBNET + "254/24", "dev", "bridge")
        command("ip", "-n", self.switch, "link", "set", "bridge", "up")
        shape = ["root", "tbf", "rate", f"{round(self.rate)}bit", "burst", BURST, "limit", QUEUE]
        for rank in range(self.ranks):
            name, port = f"{self.prefix}{rank}", f"port{rank}"
            command("ip", "netns", "add", name)
            command("ip", "-n", name, "link", "set", "lo", "up")
            command("ip", "-n", self.switch, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", name)
            command("ip", "-n", self.switch, "link", "set", port, "master", "bridge", "up")
            command("ip", "-n", name, "addr", "add", f"{SUBNET}{rank + 1}/24", "dev", "eth0")
            command("ip", "-n", name, "link", "set", "eth0", "up")
            command("ip", "netns", "exec", name, "sh", "-c", "echo reno > /proc/sys/net/ipv4/tcp_congestion_control")
            command("tc", "-n", name, "qdisc", "add", "dev", "eth0", *shape)
            command("tc", "-n", self.switch, "qdisc", "add", "dev", port, *shape)
        # Open MPI starts its daemon in the namespace of the host it was given; each daemon would pin to the first core.
        self.agent = pathlib.Path(self.folder.name) / "agent"
        self.agent.write_text("#!/bin/sh\nhost=$1; shift; rank=$((${host##*.} - 1))\n"
                              "exec taskset -c $((rank % $(nproc))) ip netns exec "
                              f"{self.prefix}$rank unshare --uts /bin/sh -c \"hostname braid-$rank; $*\"\n")
        self.agent.chmod(0o755)

    def down(self, abandoned=False):
        """Ends what runs in the namespaces of this process; `abandoned`: of processes that are no more, too."""
        listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=False).stdout
        for line in listed.splitlines():
            name = line.split()[0] if line.strip() else ""
            owner = re.match(r"braid-(\d+)-", name)
            if not owner or not (name.startswith(self.prefix) or abandoned and not os.path.exists(f"/proc/{owner.group(1)}")):
                continue
            for pid in subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True,
                                      check=False).stdout.split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), 9)
            subprocess.run(["ip", "netns", "del", name], check=False)

    def mpirun(self, words, timeout=600):
        """Standard output of one process per rank. A failure ends with everything that was printed."""
        hosts = ",".join(f"{SUBNET}{rank + 1}:1" for rank in range(self.ranks))
        subnet = SUBNET + "0/24"
        launcher = ["ip", "netns", "exec", self.switch, "mpirun", "--allow-run-as-root", "--mca", "plm", "rsh",
                    "--mca", "plm_rsh_agent", str(self.agent), "--mca", "oob_tcp_if_include", subnet,
                    "--mca", "btl_tcp_if_include", subnet, "--mca", "pml", "ob1", "--mca", "btl", "tcp,self",
                    "--bind-to", "none", "-x", "OMP_NUM_THREADS=1", "-H", hosts, "-n", str(self.ranks)]
        done = subprocess.run(launcher + [str(word) for word in words], capture_output=True, text=True, timeout=timeout,
                              check=False)
        if done.returncode != 0:
            raise RuntimeError(f"exit status {done.returncode}: {' '.join(map(str, words))}\n{done.stdout}{done.stderr}")
        return done.stdout

    def sent(self):
        """Bytes per rank since the last call, headers included."""
        now = [int(command("ip", "netns", "exec", f"{self.prefix}{rank}", "cat", "/sys/class/net/eth0/statistics/tx_bytes"))
               for rank in range(self.ranks)]
        since = [after - before for before, after in zip(self.before, now)]
        self.before = now
        return since

    def probe(self, braid_run, seconds=3):
        """What `links.network` of a cluster file holds, asked of the library and the threads that a training's messages pass."""
        return json.loads(self.mpirun([braid_run, "probe", "--json", "--seconds", seconds]))


if __name__ == "__main__":
    if reason := missing():
        sys.exit(print(reason) or 1)
