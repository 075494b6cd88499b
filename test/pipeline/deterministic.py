"""Same program, threads and seed: same bits. A run that was stopped and resumed is the run that was not."""
import json
import pathlib
import subprocess
import sys
import tempfile


def run(*command):
    result = subprocess.run([str(c) for c in command], capture_output=True, text=True, errors="replace")
    if result.returncode:
        sys.exit(f"{' '.join(map(str, command))}\n{result.stdout}{result.stderr}")
    return result.stdout


def main(model):
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        text = folder / "text.txt"
        text.write_text("".join(f"{n} times {n} is {n * n}.\n" for n in range(2000)))
        for name in ("a", "b"):
            run("braid-compile", model, "-o", folder / f"{name}.braid", "--batch=4", "--seq-len=64")
        same = (folder / "a.braid").read_bytes() == (folder / "b.braid").read_bytes()
        print("program files:", "equal" if same else "DIFFERENT")

        def train(name, steps, *flags, threads=2):
            run("braid-run", "train", folder / "a.braid", "--data", text, "--steps", steps, "--checkpoint-dir", folder / name, "--metrics",
                folder / f"{name}.jsonl", "--seed", 5, "--threads", threads, *flags)

        train("once", 6)
        train("again", 6)
        train("parts", 6, "--save-every", 3)
        # Back to the third step, then on: what a crash after it leaves.
        (folder / "parts" / "latest").write_text((folder / "parts" / "latest").read_text().replace("6", "3"))
        for file in sorted((folder / "parts").glob("step-*6")):
            for part in file.iterdir():
                part.unlink()
            file.rmdir()
        train("parts", 6, "--resume")

        def losses(name):
            return {entry["step"]: (entry["loss"], entry["grad_norm"]) for entry in map(json.loads, (folder / f"{name}.jsonl").read_text().splitlines())}

        def tensors(name):
            return [p.read_bytes() for p in sorted((folder / name / "step-00000006").glob("*.safetensors"))]

        for name in ("again", "parts"):
            print(f"losses of {name}:", "equal" if losses(name) == losses("once") else "DIFFERENT")
            print(f"tensors of {name}:", "equal" if tensors(name) == tensors("once") and tensors(name) else "DIFFERENT")
        outputs = {run("braid-run", "generate", folder / "a.braid", "--checkpoint", folder / "once", "--prompt", "7 times", "--max-tokens", 20,
                       "--temperature", 0.7, "--seed", 3) for _ in range(2)}
        print("texts:", "equal" if len(outputs) == 1 else "DIFFERENT")


main(sys.argv[1])
