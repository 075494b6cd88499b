"""tools/gpu-check with a device and items that are made up, and everything around them real: files, processes, signals.

    gpu_check.py FOLDER                    (an empty one)
    gpu_check.py --pretend BUNDLE FLAG..   (what the first one starts: gpu-check itself)
"""

import errno
import importlib.machinery
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[3]
failures = 0


def check(good, words):
    global failures
    failures += not good
    print(f"{'ok    ' if good else 'FAILED'} {words}", flush=True)


# ---- gpu-check, of items {"does": ..} ------------------------------------------------------------------------------------


def pretended(runner, item):
    does, bundle = item["does"], pathlib.Path(runner.bundle)
    if does == "wait":
        os.makedirs(runner.folder_of(item))
        runner.run(["-c", f"echo $$ >{bundle}/waiting; sleep 300 & echo $! >>{bundle}/waiting; wait"], runner.folder_of(item))
    if does == "fill":
        while not (bundle / "waiting").exists():
            time.sleep(0.01)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    if does == "die" or does == "die once" and not (bundle / "died").exists():
        (bundle / "died").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    if does == "pause":
        (bundle / "pausing").touch()
        while not (bundle / "go").exists():
            time.sleep(0.01)
    if does == "block":  # nothing can be written from now on
        (bundle / "results" / "some-gpu.json.new").mkdir()
    status = "failed" if does == "fail" else "passed"
    return {"status": status, "words": f"it does {does}"} | {key: item[key] for key in ("errors", "times") if key in item}


def pretend(flags):
    program = importlib.machinery.SourceFileLoader("gpu_check", str(ROOT / "tools" / "gpu-check")).load_module()
    program.find_device = lambda: {"name": "Some GPU", "capability": os.environ.get("CAPABILITY", "9.0"), "driver": "CUDA 13.0", "stub": False}
    program.KINDS["pretended"] = pretended
    program.Runner.command = lambda self: ["/bin/sh"]
    sys.argv[1:] = flags
    sys.exit(program.main())


# ---- Its tests -----------------------------------------------------------------------------------------------------------


class Bundle:
    """Made up; items are {name: what it does}, or objects."""

    def __init__(self, folder, items, kernels=()):
        self.folder, self.results, self.temporary = folder, folder / "results", folder / "temporary"
        self.temporary.mkdir(parents=True)
        self.write(items, kernels)
        self.command = [sys.executable, __file__, "--pretend", f"--bundle={folder}", f"--results={self.results}", "--minutes=2"]
        self.environment = os.environ | {"TMPDIR": str(self.temporary)}

    def write(self, items, kernels=(), commit="first", key="a"):
        items = [{"id": name, "kind": "pretended", "key": key} | (of if isinstance(of, dict) else {"does": of}) for name, of in items.items()]
        sizes = dict.fromkeys(("threads", "registers", "spill_bytes", "shared_bytes", "scratch_bytes"), 1)
        manifest = {"commit": commit, "arch": "sm_90a", "items": items, "kernels": {kernel: sizes for kernel in kernels}}
        (self.folder / "manifest.json").write_text(json.dumps(manifest))

    def start(self, *flags, **environment):
        return subprocess.Popen([*self.command, *flags], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=self.environment | environment)

    def __call__(self, *flags, **environment):
        with self.start(*flags, **environment) as process:
            said = process.communicate(timeout=100)[0]
        return process.returncode, said

    def known(self):
        return json.loads((self.results / "some-gpu.json").read_text())

    def statuses(self):
        return {name: done.get("status") for name, done in self.known()["items"].items()}

    def page(self):
        return (self.results / "some-gpu.md").read_text()

    def nothing_left(self):
        """Neither files nor processes: a killed one ends when the machine comes to it."""
        files, waiting = list(self.temporary.iterdir()), self.folder / "waiting"
        pids = waiting.read_text().split() if waiting.exists() else []
        end = time.monotonic() + 60
        while any(map(alive, pids)) and time.monotonic() < end:
            time.sleep(0.01)
        return not files and not any(map(alive, pids))


def alive(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1][0] != "Z"
    except FileNotFoundError:
        return False


def until(there):
    """Waits for a file, and for something in it where it is written."""
    end = time.monotonic() + 60
    while not there.exists() and time.monotonic() < end:
        time.sleep(0.01)


def changed(folder):
    bundle = Bundle(folder, {"a/x": "pass", "b/x": "pass", "c/x": "fail"})
    code, said = bundle()
    check(code == 1 and "1 failed, 0 left" in said, f"one of three fails: {said}")
    code, said = bundle()
    check(code == 1 and "0 of 3 items to do" in said and "1 failed (1 of them before" in said, f"a failure is not forgotten by the next run: {said}")
    bundle.write({"a/x": "pass", "b/x": {"does": "wait", "key": "other"}, "c/x": "fail"}, commit="second")
    code, said = bundle("--list")
    check(code == 0 and "\npassed   a/x\nchanged  b/x\nfailed   c/x\n" in said and "1 of 3 items to do" in said, f"the list says what a run would do: {said}")
    with bundle.start() as process:
        until(folder / "waiting")
        process.kill()
    kept = bundle.known()["items"]["b/x"]
    check(kept["status"] == "passed" and kept["commit"] == "first" and kept["begun"] == 1 and "changed, passed before" in bundle.page(),
          f"what was known stays when another try is killed: {kept}")
    check("\nchanged  b/x\n" in bundle("--list")[1], "and still has to be done")
    bundle.write({"a/x": "pass", "b/x": {"does": "pass", "key": "third"}, "c/x": "pass"}, commit="third")
    code, said = bundle("--retry")
    check(code == 0 and "2 of 3 items to do" in said and bundle.known()["items"]["b/x"]["commit"] == "third" and "changed" not in bundle.page(), said)
    times = {name: {"ms": ms, "spread_ms": 0.1, "rounds": 3} for name, ms in (("scan S", 1.0), ("scan V", 2.0))}
    bundle.write({"a/x": {"does": "pass", "times": times}}, key="timed")
    bundle()
    bundle.write({"a/x/V": {"does": "pass", "times": {"scan V": times["scan V"] | {"ms": 3.0}}}}, key="timed")
    bundle()
    rows = [line.split("|")[1:3] for line in bundle.page().splitlines() if line.startswith("| scan ")]
    check([[cell.strip() for cell in row] for row in rows] == [["scan S", "1"], ["scan V", "3"]], f"a benchmark has one row, whichever item measured it last: {rows}")
    code, said = bundle("--only=nobody")
    check(code == 1 and "no item has 'nobody' in its name" in said, f"a name that nothing has: {said}")


def full_disk(folder):
    bundle = Bundle(folder, {"a/x": "pass", "b/x": "wait", "c/x": "fill", "d/x": "pass"})
    begin = time.monotonic()
    code, said = bundle("--jobs=2")
    check(code == 1 and time.monotonic() - begin < 60 and "stopped: [Errno 28] No space left on device: 'c/x'" in said and "TMPDIR" in said, f"at once, and why: {said}")
    check(bundle.statuses() == {"a/x": "passed", "b/x": None, "c/x": None} and bundle.nothing_left(), f"what had ended is kept: {bundle.statuses()}")
    bundle = Bundle(folder / "results-once", {"a/x": "pass", "b/x": "pass"})
    bundle.results.mkdir()
    (bundle.results / "some-gpu.json.new").symlink_to("/dev/full")
    code, said = bundle()
    check(code == 1 and "No space left on device" in said and "all results are in" in said and bundle.statuses() == {"a/x": None}, f"before anything is done: {said}")
    code, said = bundle()
    check(code == 0 and set(bundle.statuses().values()) == {"passed"}, f"goes on when there is room: {said}")
    bundle = Bundle(folder / "results", {"a/x": "pass", "b/x": "block", "c/x": "wait"})
    code, said = bundle()
    printed = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    check(code == 1 and "some-gpu.json lacks b/x: printed above" in said and [p["b/x"]["status"] for p in printed] == ["passed"] and "passed   b/x: it does block" in said,
          f"what cannot be written is printed: {said}")
    check(bundle.statuses() == {"a/x": "passed", "b/x": None} and bundle.nothing_left(), f"the file is whole: {bundle.statuses()}")


def killed(folder):
    bundle = Bundle(folder, {"a/x": "die once", "b/x": "pass", "c/x": "die", "d/x": "pass", "e/x": {"does": "pass", "kind": "call"}})
    code, said = bundle("--jobs=2", "--only=[^e]/x")
    wanted = {"a/x": "passed", "b/x": "passed", "c/x": "failed", "d/x": "passed"}
    check(code == 1 and bundle.statuses() == wanted and "1 failed, 0 left" in said and "was killed, twice" in said and bundle.nothing_left(), f"the others go on: {said}")


def ended(folder):
    bundle = Bundle(folder, {"a/x": "pass", "b/x": "wait", "c/x": "pass"})
    for number, code in ((signal.SIGTERM, 130), (signal.SIGINT, 130)):
        (folder / "waiting").unlink(missing_ok=True)
        with bundle.start() as process:
            until(folder / "waiting")
            time.sleep(0.2)
            process.send_signal(number)
            said = process.communicate(timeout=60)[0]
        check(process.returncode == code and "interrupted" in said and "Traceback" not in said and bundle.nothing_left(), f"{number.name}: {said}")
        bundle.write({"a/x": "pass", "c/x": "pass", "b/x": "wait"})
    bundle = Bundle(folder / "connection", {"a/x": "pause", "b/x": "pass"})
    with bundle.start() as process:
        until(bundle.folder / "pausing")
        code, said = bundle()
        check(code == 1 and "another gpu-check is writing to" in said, f"a second run: {said}")
        process.stdout.close()
        process.send_signal(signal.SIGHUP)
        (bundle.folder / "go").touch()
        process.wait(timeout=60)
    check(process.returncode == 0 and set(bundle.statuses().values()) == {"passed"}, f"without a terminal: {process.returncode} {bundle.statuses()}")
    bundle = Bundle(folder / "hangs", {"a/x": "wait", "b/x": "pass"})
    code, said = bundle("--item-minutes=0.02")
    check(code == 1 and "failed   a/x: not done in 1.2 s" in said and "passed   b/x" in said and bundle.nothing_left(), f"an item that hangs: {said}")


def kernels(folder):
    first = {"a/x": {"does": "pass", "errors": {"k": 1e-3, "l": 1e-3}}, "b/x": {"does": "fail", "errors": {"k": 0.5}}, "c/x": {"does": "pass", "errors": {"k": 1e-6}}}
    bundle = Bundle(folder, first, "kl")
    bundle()
    rows = [line for line in bundle.page().splitlines() if line.startswith(("| k ", "| l "))]
    check("| 5.0e-01 **failed** |" in rows[0] and "| 1.0e-03" in rows[1], f"the worst of what launched a kernel, also where it failed: {rows}")
    first["b/x"] = {"does": "pass", "errors": {"k": 1e-2}}
    bundle.write(first, "kl")
    bundle("--retry")
    check("| 1.0e-02 |" in bundle.page() and "failed" not in bundle.page(), "until it is right")


def wrong(folder):
    bundle = Bundle(folder, {"a/x": "pass"})
    code, said = bundle(CAPABILITY="8.0")
    check(code == 1 and "for sm_90a, but Some GPU has compute capability 8.0" in said and not bundle.results.exists(), f"another device: {said}")
    bundle.results.touch()
    code, said = bundle()
    check(code == 1 and "no results can be kept: " in said and "Traceback" not in said, f"a file where results should be: {said}")
    bundle.results.unlink()
    bundle.results.mkdir()
    for name in ("some-gpu-peers.json", "some-gpu.json"):
        (bundle.results / name).write_text("[{")
        code, said = bundle()
        check(code == 1 and f"{name} cannot be read" in said and (bundle.results / name).read_text() == "[{" and "Traceback" not in said, f"half a file: {said}")
        (bundle.results / name).unlink()
    (bundle.results / "some-gpu-peers.json").write_text(json.dumps([{"device": "Some GPU"}]))
    code, said = bundle()
    check(code == 0 and "passed   a/x" in said, f"rows that miss something: {said}")


class Management:
    """What a driver's library says: a device at work, then one that waits."""
    said = [(1410, 650000), (1395, 690000), (1400, 700000), (1980, 120000), (1980, 110000)]

    def __init__(self):
        self.samples = list(self.said)

    def nvmlInit_v2(self):
        return 0

    def nvmlShutdown(self):
        return 0

    def nvmlDeviceGetHandleByIndex_v2(self, number, device):
        return number

    def nvmlDeviceGetClockInfo(self, device, kind, mhz):
        mhz._obj.value = self.samples[0][0]
        return kind != 1

    def nvmlDeviceGetPowerUsage(self, device, milliwatts):
        milliwatts._obj.value = self.samples[0][1]
        del self.samples[0:len(self.samples) > 1]
        return 0


def clock(folder):
    items = importlib.machinery.SourceFileLoader("gpu_items", str(ROOT / "tools" / "dev" / "gpu_items.py")).load_module()
    items.ctypes.CDLL = lambda name: Management()
    items.Clock.EVERY = 0.001
    with items.Clock() as seen:
        while len(seen.samples) < len(Management.said):
            time.sleep(0.001)
    del seen.samples[len(Management.said):]
    check(seen.seen() == {"clock": {"mhz": 1400, "watts": 690.0}} and seen.words() == "; 1400 MHz, 690 W", f"the clock of a device: {seen.seen()}")

    def none(name):
        raise OSError(f"{name}: no such file")

    items.ctypes.CDLL = none
    with items.Clock() as seen:
        pass
    check(seen.seen() == {} and seen.words() == "", "no management library")


def main():
    folder = pathlib.Path(sys.argv[1]).resolve()
    for test in (changed, full_disk, killed, ended, kernels, wrong, clock):
        test(folder / test.__name__)
    print(f"gpu-check, {failures} failed")
    sys.exit(failures > 0)


if __name__ == "__main__":
    pretend(sys.argv[2:]) if sys.argv[1] == "--pretend" else main()
