"""Compiles a model with a dump of every phase, then goes on from each dump: all end in the same commands.

Usage: resume.py MODEL.json [FLAG..]; needs braid-compile in PATH. The program file follows from the commands alone (deterministic.test
compares whole files), so machine code is made twice only: for the model and for its last phase.
"""
import pathlib
import subprocess
import sys
import tempfile

# Flags that a phase after this dump still reads; the others are dissolved in the dump.
READ_BEFORE = {"--mesh": 2, "--pipeline": 3, "--overlap-degree": 3, "--chunk-size": 4}


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
            rest = [f for f in flags if number < READ_BEFORE.get(f.split("=")[0], 0)]
            run("braid-compile", dump, *rest, "-o", again, *([] if last else ["--to-phase=commands"]))
            equal = again.read_bytes() == wanted.read_bytes()
            different += not equal
            print(f"{dump.name}: {'equal' if equal else 'DIFFERENT'}")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
