"""A bundle for the stub of a driver: made, moved, checked to the end, killed and gone on with, and with wrong things in it.

    bundle.py STUB MODEL.json FOLDER        (STUB: the folder of the stub's libcuda.so.1; FOLDER: an empty one)
"""

import array
import importlib.machinery
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "test" / "pipeline"))
import cuda_run
from cuda_run import check, must, run

LIBRARIES = {"libc.so.6", "libm.so.6", "libgcc_s.so.1", "libstdc++.so.6", "libfmt.so.9"}
SUITES = ["--suite=linear", "--case-bytes=40000"]
SMALL = ["--arch=sm_90a,emulated", "--batch=1x40", "--steps=3", "--scans=40", "--attention=1x40", "--products=40", "--sizes=attention-rows,scan-GH"]
SANITIZER = """#!/bin/bash
# compute-sanitizer --tool T --error-exitcode N [--kernel-name-exclude F].. PROGRAM ..: finds something where it is told to, or hangs with what it has started.
tool=$2 code=$4
shift 4
without=
while [ "$1" = --kernel-name-exclude ]; do
  without+=" ${2#kernel_name=}"
  shift 2
done
echo "$tool" >>"${0%/*}/asked"
echo "$tool$without" >>"${0%/*}/without"
if [ -e "${0%/*}/hangs" ]; then
  read -t 300 <>"${0%/*}/pipe" &
  echo $$ $! >"${0%/*}/hanging"
  wait
fi
[ ! -e "${0%/*}/races" ] || [ "$tool" != racecheck ] || { echo "RACECHECK SUMMARY: 1 hazard" >&2; exit "$code"; }
exec "$@"
"""


class Check:
    """gpu-check of a bundle, with an environment of its own."""

    def __init__(self, bundle, results, **environment):
        self.command = [sys.executable, bundle / "gpu-check", f"--results={results}", "--minutes=5"]
        self.environment, self.results = environment, results

    def __call__(self, *flags):
        done = subprocess.run([*map(str, self.command), *flags], capture_output=True, text=True, env=self.environment, cwd="/", check=False)
        return done.returncode, done.stdout + done.stderr

    def kill_after(self, lines):
        """Killed when it has said so much -> what it said."""
        with subprocess.Popen([*map(str, self.command)], stdout=subprocess.PIPE, text=True, env=self.environment, cwd="/") as process:
            said = [process.stdout.readline() for _ in range(lines)]
            process.kill()
        return said

    def known(self):
        return json.loads((self.results / "no-device.json").read_text())


def statuses(results):
    return {name: done.get("status") for name, done in results["items"].items()}


def check_folder(bundle):
    """Nothing but the bundle is needed: libraries, symbols, size, paths."""
    size = sum(path.stat().st_size for path in bundle.rglob("*") if path.is_file())
    check(size < 12_000_000, f"without most items it has {size / 1e6:.0f} MB")
    lib = bundle / "lib"
    said = must(lib / "ld-linux-x86-64.so.2", "--library-path", lib, "--list", bundle / "bin" / "braid-run")
    loaded = {name: path for name, path in re.findall(r"(\S+) => (\S+)", said) if "ld-linux" not in name}
    check(set(loaded) == LIBRARIES and all(path == str(lib / name) for name, path in loaded.items()), f"loads its own libraries and nothing else: {loaded}")
    defined = set(re.findall(r"GLIBC_[0-9.]+", must("objdump", "-p", bundle / "lib" / "libc.so.6").split("Version definitions")[1]))
    for path in sorted([*(bundle / "lib").iterdir(), bundle / "bin" / "braid-run"]):
        references = must("objdump", "-p", path).partition("Version References:")[2]
        missing = set(re.findall(r"GLIBC_[0-9][0-9.]*", references)) - defined
        check(not missing, f"{path.name}: symbols of versions that the C library beside it has {sorted(missing)}")


def in_empty_root(bundle):
    """With the bundle as the whole file system, where that is allowed."""
    with tarfile.open(next((bundle / "items").glob("linear*"))) as tar:
        tar.extract("P.braid", bundle)
    try:
        done = subprocess.run(["/lib/ld-linux-x86-64.so.2", "--library-path", "/lib", "/bin/braid-run", "info", "/P.braid", "--json"],
                              capture_output=True, text=True, env={}, check=False, cwd="/", preexec_fn=lambda: os.chroot(bundle))
    except subprocess.SubprocessError:
        print("ok     no other root is allowed here: not tried")
        return
    finally:
        (bundle / "P.braid").unlink()
    check(done.returncode == 0 and json.loads(done.stdout)["gpu_kernels"], f"runs where there is no other file {done.stderr}")


def alive(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1][0] != "Z"
    except FileNotFoundError:
        return False


def check_names(bundle, folder):
    """Archives whose names differ behind a dot are two folders; so are folders of one archive."""
    program = importlib.machinery.SourceFileLoader("gpu_check", str(bundle / "gpu-check")).load_module()
    runner = program.Runner(str(folder), time.monotonic() + 60)
    for name in ("a0.3b-1x2", "a0.3b-2x1"):
        with tarfile.open(folder / f"{name}.tar.xz", "w:xz") as tar:
            (folder / "name").write_text(name)
            tar.add(folder / "name", "name")
    names = [pathlib.Path(runner.unpack({"id": name, "archive": f"{name}.tar.xz"}), "name").read_text() for name in ("a0.3b-1x2", "a0.3b-2x1")]
    check(names == ["a0.3b-1x2", "a0.3b-2x1"], f"each archive has a folder of its own: {names}")
    parts = ("a", "a-b")
    with tarfile.open(folder / "parts.tar.xz", "w:xz") as tar:
        for part in parts:
            (folder / "name").write_text(part)
            tar.add(folder / "name", f"{part}/name")
    found = [pathlib.Path(runner.unpack({"id": f"train/{part}", "archive": "parts.tar.xz", "folder": part})) for part in parts]
    check([(path / "name").read_text() for path in found] == [*parts] and all(len([*path.iterdir()]) == 1 for path in found), f"an item has its part of an archive: {found}")
    shutil.rmtree(runner.folder)


def damage(bundle, archive):
    """The bundle's archive with another last element of the first reference in it -> that file's name."""
    folder = bundle / "opened"
    with tarfile.open(bundle / archive) as tar:
        tar.extractall(folder)
    case = next(c for c in json.loads((folder / "cases.json").read_text()) if any(o["dtype"] == "f32" for o in c["outputs"].values()))
    name, output = next((n, o) for n, o in case["outputs"].items() if o["dtype"] == "f32")
    path = folder / output["reference"]
    data = bytearray(path.read_bytes())
    data[-4:] = array.array("f", [array.array("f", bytes(data[-4:]))[0] + 0.5]).tobytes()
    path.write_bytes(data)
    with tarfile.open(bundle / archive, "w:xz") as tar:
        for file in sorted(folder.iterdir()):
            tar.add(file, file.name)
    shutil.rmtree(folder)
    return f"{case['label']}: {name} is off by"


def main():
    stub, model, folder = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3]).resolve()
    made, bundle = folder / "made", folder / "elsewhere" / "bundle"
    must(sys.executable, ROOT / "tools" / "bundle", "-o", made, "--no-build", f"--build-dir={os.environ['BRAID_BUILD']}", *SUITES, *SMALL,
         f"--agree={model}", f"--train={model}:1x40", f"--train={model}:1x40 --weight-gradients=beside", f"--train={model}+cublaslt:1x40", f"--train={model}:1x40:M=gated_deltanet", f"--decode={model}:3x300:M")
    bundle.parent.mkdir()
    made.rename(bundle)
    check_folder(bundle)
    in_empty_root(bundle)

    nothing = folder / "nothing"
    nothing.mkdir()
    (folder / "temporary").mkdir()
    alone = {"PATH": str(nothing), "TMPDIR": str(folder / "temporary")}
    code, said = Check(bundle, folder / "none", **alone)()
    check(code == 1 and "no driver" in said or "the driver is that of" in said, f"without the stub: {said.strip()}")
    tools = folder / "tools"
    tools.mkdir()
    gpu_check = Check(bundle, folder / "results", LD_LIBRARY_PATH=stub, **alone)
    items = len(json.loads((bundle / "manifest.json").read_text())["items"])
    check(items == 24, f"an item of each kind: {items}")
    first = gpu_check.kill_after(3)
    before = statuses(gpu_check.known())
    check(list(before.values())[:2] == ["passed", "passed"] and None not in list(before.values())[:-1], f"killed after {len(first) - 1} items: {before}")
    code, said = gpu_check("--only=^curve/|^attention", "--list")
    listed = re.findall(r"^\S.* (\S+/\S+)$", said, re.MULTILINE)
    check(code == 0 and listed == ["curve/bundled", "attention/1x40"] and statuses(gpu_check.known()) == before, f"what is chosen: {said.strip()}")
    code, said = gpu_check("--jobs=3")
    check(code == 0 and f"{items - sum(s == 'passed' for s in before.values())} of {items} items to do" in said and "0 failed, 0 left" in said, said.strip())
    again = [name for name, status in before.items() if status == "passed" and f" {name}:" in said]
    check(not again, f"nothing that had passed is done again {again}")
    page = (folder / "results" / "no-device.md").read_text()
    known = gpu_check.known()
    kernels = re.findall(r"^\| (\w+) +\| \*compiled only\* \|", page, re.MULTILINE)
    check(page.startswith("# No device\n") and "passed (no device)" in page and "| passed  " not in page and len(kernels) > 50 and not known["kernels"]
          and "Nothing was timed on a device." in page, f"no result of the stub is one of a device: {len(kernels)} kernels are compiled only")
    check(sorted(set(statuses(known).values())) == ["passed", "skipped"] and sum(s == "skipped" for s in statuses(known).values()) == 4,
          f"without compute-sanitizer its items are left out: {statuses(known)}")

    asks = known["items"].pop("train/bundled-cublaslt-1x40")
    (folder / "without").mkdir()
    (folder / "without" / "no-device.json").write_text(json.dumps(known))
    manifest = (bundle / "manifest.json").read_text()
    (bundle / "manifest.json").write_text(manifest.replace("libcublasLt.so", "libnobodyhas.so"))
    code, said = Check(bundle, folder / "without", LD_LIBRARY_PATH=stub, **alone)()
    (bundle / "manifest.json").write_text(manifest)
    check(asks["status"] == "passed" and code == 0 and "0 failed, 0 left" in said
          and "skipped  train/bundled-cublaslt-1x40: libnobodyhas.so.13 and libnobodyhas.so.12 cannot be opened" in said, f"with the library, and without: {asks} {said}")

    sanitizer = tools / "compute-sanitizer"
    sanitizer.write_text(SANITIZER)
    sanitizer.chmod(0o755)
    with_sanitizer = Check(bundle, folder / "results", LD_LIBRARY_PATH=stub, **alone | {"PATH": f"{tools}:{os.environ['PATH']}"})
    os.mkfifo(tools / "pipe")
    (tools / "hangs").touch()
    code, said = with_sanitizer("--minutes=0.1")
    left = [pid for pid in map(int, (tools / "hanging").read_text().split()) if alive(pid)]
    hung = with_sanitizer.known()["items"]["memcheck/linear"]
    check(code == 0 and "0 failed, 1 left" in said and hung["begun"] == 1 and "status" not in hung and not left, f"out of minutes while it hangs: {said.strip()} {left}")
    (tools / "hangs").unlink()
    (tools / "races").touch()
    code, said = with_sanitizer()
    check(said.index(" racecheck/bundled-step:") < said.index(" memcheck/linear:"), "what was under way comes last")
    check(code == 1 and len(re.findall(r"^failed   racecheck/.*RACECHECK SUMMARY: 1 hazard", said, re.MULTILINE)) == 2 and f"4 of {items}" in said, said.strip())
    (tools / "races").unlink()
    code, said = with_sanitizer("--retry")
    check(code == 0 and f"2 of {items}" in said and set(statuses(with_sanitizer.known()).values()) == {"passed"}, said.strip())
    check((tools / "asked").read_text().split() == ["memcheck"] * 2 + ["racecheck"] * 2 + ["memcheck"] + ["racecheck"] * 2, "what was asked of it")
    shared = {name: kernel["shared_bytes"] for name, kernel in json.loads(manifest)["kernels"].items()}
    asked = [line.split() for line in (tools / "without").read_text().splitlines()]
    races = [kernels for tool, *kernels in asked if tool == "racecheck"]
    check(all(not kernels for tool, *kernels in asked if tool == "memcheck") and all(races) and not any(shared[kernel] for kernel in sum(races, [])),
          f"races are looked for wherever memory is shared: not in {' '.join(races[-1][:3])}")

    wanted = damage(bundle, "items/linear.tar.xz")
    whole = (bundle / "items" / "scans-40-V.tar.xz").read_bytes()
    (bundle / "items" / "scans-40-V.tar.xz").write_bytes(whole[: len(whole) // 2])
    code, said = Check(bundle, folder / "damaged", LD_LIBRARY_PATH=stub, **alone)()
    check(code == 1 and wanted in said and "failed   scans/40-V: " in said and "2 failed, 0 left" in said,
          f"a reference that is another, an archive that is cut: {[line for line in said.splitlines() if line.startswith('failed')]}")
    exact = json.loads(manifest)
    outputs = next(item for item in exact["items"] if item["id"] == "sizes/scan-GH")["calls"][0]["outputs"]
    outputs["o"]["limit"] = 1e-9
    (bundle / "manifest.json").write_text(json.dumps(exact))
    code, said = Check(bundle, folder / "exact", LD_LIBRARY_PATH=stub, **alone)("--only=^sizes")
    (bundle / "manifest.json").write_text(manifest)
    check(code == 1 and "passed   sizes/attention-rows: 2 calls, worst " in said and re.search(r"failed   sizes/scan-GH: 1 outputs of 2 calls: GH, .*: o is off by [0-9.e-]+ \(max", said),
          f"bf16 is not as exact as f32: {said.strip()}")
    begin = time.monotonic()
    code, said = Check(bundle, folder / "short", LD_LIBRARY_PATH=stub, **alone)("--minutes=0.0001")
    check(code == 0 and f"0 failed, {items} left" in said and time.monotonic() - begin < 60, f"out of minutes: {said.strip()}")
    left = list((folder / "temporary").iterdir())
    check(not left, f"nothing of it stays, of the killed run either {left}")
    check_names(bundle, folder)
    (bundle / "results").mkdir()
    for place, why in ((bundle, "results of this bundle would go with it"), (folder / "results", "is there and is no bundle")):
        code, _, err = run(sys.executable, ROOT / "tools" / "bundle", "-o", place, "--no-build", "--suite=none")
        check(code == 1 and why in err and any(place.iterdir()), err)


if __name__ == "__main__":
    main()
    print(f"bundle, {cuda_run.failures} failed")
    sys.exit(cuda_run.failures > 0)
