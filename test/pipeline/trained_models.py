"""Every small model file trains as it stands, in f32: python3 trained_models.py FOLDER TEXT    (braid-compile and braid-run from the PATH)

Thirty steps on a text, at the learning rate of the file or 3e-3 where it is lower. In front of the first no model knows anything, so its loss is
about the logarithm of the number of words; at the end it has learned at least what single bytes tell: the mean of the last five losses is below
their entropy in this text plus a quarter. A model of fewer than 256 words is given the bytes modulo their number.
"""

import array
import collections
import concurrent.futures
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile

STEPS, LAST = 30, 5
SLACK = 0.25  # of what a text's bytes tell, for a model that is still learning


def run(*command):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise RuntimeError(f"{command[0]}: exit status {done.returncode}: {done.stderr.strip()[-500:]}")


def entropy(words):
    return -sum(n / len(words) * math.log(n / len(words)) for n in collections.Counter(words).values())


def losses(folder, path, rate, words):
    program, metrics, text = (folder / f"{path.stem}.{ending}" for ending in ("braid", "jsonl", "u16"))
    text.write_bytes(words.tobytes())
    run("braid-compile", path, "-o", program, "--dtype=f32")
    run("braid-run", "train", program, "--data", text, "--steps", STEPS, "--lr", rate, "--warmup", 5, "--threads", 1, "--metrics", metrics)
    program.unlink()
    text.unlink()
    return [json.loads(line)["loss"] for line in metrics.read_text(encoding="utf-8").splitlines()]


def main(models, text):
    data, failed = pathlib.Path(text).read_bytes(), 0
    sizes, rates = {}, {}
    for path in sorted(pathlib.Path(models).glob("tiny-*.json")):
        lines = path.read_text(encoding="utf-8").splitlines()
        model = json.loads("\n".join(line for line in lines if not line.lstrip().startswith("//")))
        sizes[path], rates[path] = model["vocab_size"], max(3e-3, model["train"]["learning_rate"])
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        words = {path: array.array("H", (byte % size for byte in data)) for path, size in sizes.items()}
        found = {path: pool.submit(losses, pathlib.Path(folder), path, rates[path], words[path]) for path in sizes}
        for path, future in found.items():
            try:
                seen, told = future.result(), entropy(words[path])
                last = sum(seen[-LAST:]) / LAST
                good = len(seen) == STEPS and abs(seen[0] - math.log(sizes[path])) < 0.5 and last < told + SLACK
                said = f"loss {seen[0]:.3f} at first, {last:.3f} at the end; single words tell {told:.3f}"
            except RuntimeError as error:
                good, said = False, str(error)
            failed += not good
            print(f"{'ok' if good else 'FAILED':<6} {path.name}: {said}", flush=True)
    print(f"{len(sizes)} models trained, {failed} failed")
    return 1 if failed or not sizes else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
