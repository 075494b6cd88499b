"""A compiled model that overflows ends its training before the update; the checkpoint before it resumes to the same bits.

Two programs have the same parameters. In one every residual connection multiplies the stream by a million, so that it is
infinite before the last layer: it goes on from a checkpoint of the other and must stop at its first step.

Others overflow inside of a scan: where they say they do is compared with where they must.
"""
import json
import pathlib
import re
import subprocess
import sys
import tempfile

MODEL = {
    "name": "diverges", "vocab_size": 256, "d_model": 32, "num_layers": 4, "layer_pattern": "LN", "context_len": 32,
    "mixers": {"L": {"kind": "gla", "heads": 2, "head_dim": 16}, "N": {"kind": "attention", "heads": 2, "head_dim": 16}},
    "ffns": {"D": {"kind": "dense", "hidden": 32}},
    "train": {"batch": 4, "seq_len": 32, "steps": 8, "warmup_steps": 0, "learning_rate": 0.01},
}


def run(*command, code=0):
    result = subprocess.run([str(c) for c in command], capture_output=True, text=True, errors="replace", check=False)
    if result.returncode != code:
        sys.exit(f"{' '.join(map(str, command))}: exit status {result.returncode}\n{result.stdout}{result.stderr}")
    return result.stderr


def contents(folder):
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file() and path.name != ".lock"}


def check(name, folder, *options):
    for program, alpha in (("sound", 1), ("broken", 1e6)):
        (folder / f"{program}.json").write_text(json.dumps({**MODEL, "residual": {"alpha": alpha}}))
        run("braid-compile", folder / f"{program}.json", "-o", folder / f"{program}.braid", *options)

    def train(program, where, steps, code=0):
        return run("braid-run", "train", folder / f"{program}.braid", "--data", folder / "text.txt", "--steps", steps, "--threads", 1,
                   "--warmup", 0, "--min-lr", 0.01, "--checkpoint-dir", folder / where, "--resume", code=code)

    train("sound", "whole", 8)
    train("sound", "parts", 4)
    before = contents(folder / "parts")
    said = train("broken", "parts", 8, code=1)
    entry = "accumulate_step" if options else "train_step"
    for pattern in (r"training diverged at step 5: loss (nan|inf|-nan|-inf), ", r"the last checkpoint is \S+/parts/step-00000004, which this step began from; ",
                    r"the update was not applied; the first (NaN|infinity) is element \d+ of \d+ in ", rf", layers\.\d \(mixer (gla|attention)\), entry '{entry}' command ",
                    r"each of them alone does this, so it is not the data"):
        if not re.search(pattern, said):
            sys.exit(f"{name}: no '{pattern}' in\n{said}")
    if contents(folder / "parts") != before:
        sys.exit(f"{name}: the diverged run changed the checkpoints")
    print(f"{name}: stopped at step 5, named layer and kernel, checkpoint untouched")
    train("sound", "parts", 8)
    same = all((folder / "parts/step-00000008" / file).read_bytes() == (folder / "whole/step-00000008" / file).read_bytes()
               for file in ("model.safetensors", "optimizer.safetensors"))
    print(f"{name}, resumed with the sound program: {'equal' if same else 'DIFFERENT'}")


def check_place(name, folder, huge, pattern):
    """Inputs of a recurrence multiplied by what is in `huge`: the first infinity is at a known place of a known tensor."""
    scaled = {key: f"linear(x) * {huge.get(key, 1)}" for key in "qkv"}
    mixer = {"kind": "recurrence", "heads": 2, "head_dim": 16, "state": "M = exp(f) M + k^T v", "output": "o = q M",
             "inputs": {**scaled, "f": "log_sigmoid(linear(x))"}}
    model = {**MODEL, "context_len": 256, "mixers": {**MODEL["mixers"], "L": mixer}, "train": {**MODEL["train"], "batch": 1, "seq_len": 256}}
    (folder / f"{name}.json").write_text(json.dumps(model))
    run("braid-compile", folder / f"{name}.json", "-o", folder / f"{name}.braid", "--chunk-size=64")
    said = run("braid-run", "train", folder / f"{name}.braid", "--data", folder / "text.txt", "--steps", 1, "--threads", 1, code=1)
    found = re.search(r"infinity is element \d+ of \d+ in " + pattern + r", layers\.0 \(mixer recurrence\), entry 'train_step' command ", said)
    if not found:
        sys.exit(f"{name}: no '{pattern}' in\n{said}")
    if found.groups() and int(found[1]) // 64 != int(found[2]):
        sys.exit(f"{name}: token {found[1]} is not in chunk {found[2]}\n{said}")
    print(f"{name}: {'named row, token, chunk, head' if found.groups() else 'named row, chunk, head'}")


with tempfile.TemporaryDirectory() as temporary:
    root = pathlib.Path(temporary)
    for title, flags in (("one batch", []), ("two batches", ["--accumulation-steps=2"])):
        place = root / title.replace(" ", "-")
        place.mkdir()
        (place / "text.txt").write_text("".join(f"{n} times {n} is {n * n}.\n" for n in range(400)))
        check(title, place, *flags)
    (root / "text.txt").write_text("".join(f"{n} times {n} is {n * n}.\n" for n in range(400)))
    check_place("states", root, {"k": 1e25, "v": 1e25}, r"'x' \(row 0, chunk 0, head [01], key \d+, value \d+\)")
    check_place("outputs", root, {"q": 1e15, "k": 1e12, "v": 1e12}, r"'o' \(row 0, token (\d+) of chunk (\d+), head [01], value \d+\)")
