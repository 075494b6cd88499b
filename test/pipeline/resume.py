"""Compiles a model with a dump of every phase, then goes on from each dump: all end in the same commands. A compilation that stops
at a phase leaves what the dump is.

Usage: resume.py MODEL.json [FLAG..]; needs braid-compile in PATH. The program file follows from the commands alone (deterministic.test
compares whole files), so machine code is made twice only: for the model and for its last phase.
"""
import pathlib
import subprocess
import sys
import tempfile

# Only the mesh has to be said again until it has been applied; what else was asked for is in the dump, or dissolved.
MESH_APPLIED = 2


def run(*command):
    result = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    if result.returncode:
        sys.exit(f"{' '.join(map(str, command))}\n{result.stdout}{result.stderr}")


def main(model, flags):
    different = 0
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        run("braid-compile", model, *flags, "-o", folder / "direct.braid", f"--dump-phases-to={folder}")
        dumps = sorted(folder.glob("*.mlir"))
        for number, dump in enumerate(dumps):
            last = dump == dumps[-1]
            wanted = folder / "direct.braid" if last else dumps[-1]
            again = folder / ("again" + wanted.suffix)
            rest = [f for f in flags if f.startswith("--mesh") and number < MESH_APPLIED]
            run("braid-compile", dump, *rest, "-o", again, *([] if last else ["--to-phase=commands"]))
            equal = again.read_bytes() == wanted.read_bytes()
            different += not equal
            print(f"{dump.name}: {'equal' if equal else 'DIFFERENT'}")
        if not any(f.startswith("--chunk-size") for f in flags):
            run("braid-compile", model, *flags, "-o", folder / "stopped", "--to-phase=sharded")
            equal = (folder / "stopped").read_bytes() == dumps[MESH_APPLIED].read_bytes()
            different += not equal
            print(f"stopped at sharded: {'equal' if equal else 'DIFFERENT'}")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
