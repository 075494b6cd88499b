"""Every small model file trains as it stands, in f32: python3 trained_models.py FOLDER TEXT    (braid-compile and braid-run from the PATH)

Thirty steps on a text. In front of the first no model knows anything, so its loss is about the logarithm of the number of words; at the end it has
learned at least what single bytes tell: the mean of the last five losses is below their entropy in this text plus a quarter.
"""

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


def losses(folder, path, text):
    program, metrics = folder / f"{path.stem}.braid", folder / f"{path.stem}.jsonl"
    run("braid-compile", path, "-o", program, "--dtype=f32")
    run("braid-run", "train", program, "--data", text, "--steps", STEPS, "--lr", 3e-3, "--warmup", 5, "--threads", 1, "--metrics", metrics)
    program.unlink()
    return [json.loads(line)["loss"] for line in metrics.read_text(encoding="utf-8").splitlines()]


def main(models, text):
    data = pathlib.Path(text).read_bytes()
    entropy = -sum(n / len(data) * math.log(n / len(data)) for n in collections.Counter(data).values())
    paths, failed = sorted(pathlib.Path(models).glob("tiny-*.json")), 0
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        found = {path: pool.submit(losses, pathlib.Path(folder), path, text) for path in paths}
        for path, future in found.items():
            try:
                seen = future.result()
                last = sum(seen[-LAST:]) / LAST
                good = len(seen) == STEPS and abs(seen[0] - math.log(256)) < 0.5 and last < entropy + SLACK
                words = f"loss {seen[0]:.3f} at first, {last:.3f} at the end; bytes alone tell {entropy:.3f}"
            except RuntimeError as error:
                good, words = False, str(error)
            failed += not good
            print(f"{'ok' if good else 'FAILED':<6} {path.name}: {words}", flush=True)
    print(f"{len(paths)} models trained, {failed} failed")
    return 1 if failed or not paths else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
