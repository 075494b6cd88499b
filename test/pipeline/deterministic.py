"""Same program, threads and seed: same bits. A run that was stopped and resumed is the run that was not.

The model of the quickstart with all of it; a layer of every mixer that braid-compile knows (it lists them itself); and two ranks whose
slices are woven, which wait for each other in whatever order the machine gives. `bf16`: the mixers in bf16, and nothing else.
"""
import json
import os
import pathlib
import re
import string
import subprocess
import sys
import tempfile


def run(*command, environment=None):
    result = subprocess.run([str(c) for c in command], capture_output=True, text=True, errors="replace", env=environment)
    if result.returncode:
        sys.exit(f"{' '.join(map(str, command))}\n{result.stdout}{result.stderr}")
    return result.stdout


OTHERS = {
    "name": "others",
    "vocab_size": 256,
    "d_model": 48,
    "num_layers": 5,
    "layer_pattern": "MRBDW",
    "ffn_pattern": "ED",
    "dtype": "bf16",
    "mixers": {
        "M": {"kind": "mamba2", "heads": 3, "head_dim": 16},
        "R": {"kind": "retnet", "heads": 3, "head_dim": 16},
        "B": {"kind": "bla", "heads": 3, "head_dim": 16},
        "D": {"kind": "deltanet", "heads": 3, "head_dim": 16},
        "W": {"kind": "attention", "heads": 3, "kv_heads": 1, "head_dim": 16, "window": 40},
    },
    "ffns": {
        "E": {"kind": "moe", "num_experts": 4, "top_k": 2, "expert_hidden": 32, "shared_hidden": 32},
        "D": {"kind": "dense", "hidden": 96},
    },
    "train": {"batch": 4, "seq_len": 64, "learning_rate": 3e-3, "warmup_steps": 1, "steps": 10},
}


# What a kind does not go without.
NEEDED = {"mla": {"kv_rank": 24, "rope_dim": 8}, "recurrence": {"state": "M = exp(g) M + k^T v", "output": "o = q M",
                         "inputs": {"q": "linear(x)", "k": "silu(conv(linear(x)))", "v": "linear(x)", "g": "log_sigmoid(linear(x))"}}}


def every_mixer(folder):
    """The file of a model with a layer of each, and how many they are."""
    model = folder / "every.json"

    def write(mixers):
        model.write_text(json.dumps({
            "name": "every", "vocab_size": 256, "d_model": 32, "num_layers": len(mixers), "layer_pattern": "".join(mixers), "mixers": mixers,
            "ffns": {"D": {"kind": "dense", "hidden": 32}}, "train": {"batch": 2, "seq_len": 80, "learning_rate": 1e-3, "warmup_steps": 1, "steps": 10}}))

    write({"A": {"kind": "none"}})
    errors = subprocess.run(["braid-compile", str(model), "-o", str(folder / "none.braid")], capture_output=True, text=True).stderr
    kinds = re.search(r'"none" is not known; valid: ([\w, ]+)', errors)[1].split(", ")
    sizes = {"short_conv": {}, "rglru": {"heads": 2, "value_dim": 16}}  # the others have heads of keys
    heads = lambda kind: sizes.get(kind, {"heads": 2, "head_dim": 16})
    write({letter: {"kind": kind} | heads(kind) | NEEDED.get(kind, {}) for letter, kind in zip(string.ascii_letters, kinds)})
    return model, len(kinds)


def three_times(folder, text, name, model, *flags, ranks=1):
    run("braid-compile", model, "-o", folder / "three.braid", *flags)
    found = []
    for again in range(3):
        checkpoint = folder / f"{name}-{again}"
        run("braid-run", "train", folder / "three.braid", "--data", text, "--steps", 4, "--checkpoint-dir", checkpoint,
            "--seed", 5, "--ranks", ranks, "--threads", 2)
        found.append({p.name: p.read_bytes() for p in sorted((checkpoint / "step-00000004").glob("*.safetensors"))})
    print(f"{name}, {len(found[0])} files three times:", "equal" if found[0] and found[0] == found[1] == found[2] else "DIFFERENT")


def mixers(folder, text, dtype):
    every, count = every_mixer(folder)
    three_times(folder, text, f"all {count} mixers in {dtype}", every, f"--dtype={dtype}")


def woven(folder, text):
    model = folder / "others.json"
    model.write_text(json.dumps(OTHERS))
    three_times(folder, text, "two ranks, woven", model, "--mesh=dp=2,ep=2", "--pipeline=1A1M", "--overlap-degree=2", ranks=2)


def learns(model, folder, text):
    """A short run with the settings of a file in models/, on rows of its own length."""
    run("braid-compile", model, "-o", folder / "learns.braid", "--batch=4")
    metrics = folder / "learns.jsonl"
    run("braid-run", "train", folder / "learns.braid", "--data", text, "--steps", 30, "--warmup", 5, "--metrics", metrics, "--threads", 2)
    losses = [entry["loss"] for entry in map(json.loads, metrics.read_text().splitlines()) if "loss" in entry]
    fell = len(losses) == 30 and sum(losses[-3:]) / 3 < 0.7 * losses[0]
    print(f"{model.stem}, 30 steps:", "learns" if fell else f"DOES NOT LEARN: {losses}")


def main(model, learner=None):
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        text = folder / "text.txt"
        text.write_text("".join(f"{n} times {n} is {n * n}.\n" for n in range(2000)))
        if model == "bf16":
            mixers(folder, text, "bf16")
            return
        mixers(folder, text, "f32")
        woven(folder, text)
        learns(pathlib.Path(learner), folder, text)
        compiled_anew = {name: value for name, value in os.environ.items() if name != "BRAID_KERNEL_CACHE"}
        for name in ("a", "b"):
            run("braid-compile", model, "-o", folder / f"{name}.braid", "--batch=4", "--seq-len=64", environment=compiled_anew)
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


main(*sys.argv[1:])
