"""Programs for GPUs run by braid-run on a stub of NVIDIA's driver (test/emulator): same losses, weights and text as on the CPU.

    cuda_run.py STUB                (braid-compile and braid-run from the PATH; STUB: the folder of the stub's libcuda.so.1)
    cuda_run.py STUB MODEL.json ..  two steps of each, nothing else

The stub does what it is given as late as it may, and logs every call: memory is one allocation and every entry a graph, made before the first
launch; inputs are pinned, and those of the next step travel beside this one; a step is not waited for before its end, but where the host looks at loss and gradient norm.
"""

import ctypes
import http.client
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import numpy as np

MODEL = {
    "name": "mixers",
    "vocab_size": 256,
    "d_model": 32,
    "num_layers": 3,
    "layer_pattern": "MWD",
    "ffn_pattern": "ED",
    "mixers": {
        "M": {"kind": "mamba2", "heads": 2, "head_dim": 16},
        "W": {"kind": "attention", "heads": 2, "kv_heads": 1, "head_dim": 16, "window": 20},
        "D": {"kind": "deltanet", "heads": 2, "head_dim": 16},
    },
    "ffns": {
        "E": {"kind": "moe", "num_experts": 4, "top_k": 2, "expert_hidden": 16, "shared_hidden": 16},
        "D": {"kind": "dense", "hidden": 48},
    },
    "train": {"batch": 2, "seq_len": 48, "learning_rate": 3e-3, "warmup_steps": 1, "steps": 10},
}
failures = 0


def check(good, line):
    global failures
    failures += not good
    print(f"{'ok' if good else 'FAILED':<6} {line}")


def run(*command, **environment):
    done = subprocess.run([str(c) for c in command], capture_output=True, stdin=subprocess.DEVNULL, env={**os.environ, **environment})
    return done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace").strip()


def has_library(name):
    try:
        return bool(ctypes.CDLL(name))
    except OSError:
        return False


def must(*command, **environment):
    code, out, err = run(*command, **environment)
    if code:
        sys.exit(f"FAILED {' '.join(map(str, command))}: exit status {code}: {err[-800:]}")
    return out


def tensors(path):
    """A safetensors file of f32 as one array of each tensor."""
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    return {name: np.frombuffer(data, np.float32, (e["data_offsets"][1] - e["data_offsets"][0]) // 4, 8 + size + e["data_offsets"][0])
            for name, e in header.items() if name != "__metadata__"}


def furthest(one, other):
    return max(np.abs(one[name] - other[name]).max() / max(np.abs(one[name]).max(), 1e-6) for name in one) if one.keys() == other.keys() else 1.0


def library_calls(info):
    """Of all functions that a training keeps, which generate nothing: the third number behind their names."""
    return sum(int(line.split()[3]) for line in info.splitlines() if re.match(r"  @(?!prefill_|score_|decode_)\w+ +\d", line))


def steps_of(model, stub):
    """Losses of two short steps of a model, on the CPU and on the stub."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        (folder / "text.txt").write_bytes(bytes((7 * i * i + 3 * i // 5) % 64 for i in range(4000)))
        losses = []
        for target, environment in ([], {}), (["--target=cuda", "--arch=sm_90a,emulated"], stub):
            must("braid-compile", model, "-o", folder / "P.braid", "--batch=1", "--seq-len=40", *target)
            must("braid-run", "train", folder / "P.braid", "--data", folder / "text.txt", "--steps", 2, "--seed", 3, "--metrics", folder / "m.jsonl",
                 **environment)
            losses.append([json.loads(line)["loss"] for line in (folder / "m.jsonl").read_text().splitlines()])
            (folder / "m.jsonl").unlink()
    off = max(abs(a - b) / abs(a) for a, b in zip(*losses, strict=True))
    check(off < 2e-3, f"{model.name}: losses {losses[1]}, of the CPU {losses[0]}, off by {off:.1e}")


def main():
    stub = {"LD_LIBRARY_PATH": sys.argv[1]}
    for model in map(pathlib.Path, sys.argv[2:]):
        if re.search(r'"dtype": *"f64"', model.read_text()):
            print(f"ok     {model.name}: f64, which braid-run does not train")
        else:
            steps_of(model, stub)
    if not sys.argv[2:]:
        everything(stub)
    print(f"cuda runs, {failures} failed")
    return failures > 0


def everything(stub):
    """One small model through all that a program can be used for."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        (folder / "text.txt").write_bytes(bytes((7 * i * i + 3 * i // 5) % 64 for i in range(4000)))
        (folder / "model.json").write_text(json.dumps(MODEL))
        chunk = "--chunk-size=32"  # the same on every machine
        must("braid-compile", folder / "model.json", "-o", folder / "cpu.braid", chunk)
        must("braid-compile", folder / "model.json", "-o", folder / "gpu.braid", "--target=cuda", "--arch=sm_90a,emulated", chunk)
        must("braid-compile", folder / "model.json", "-o", folder / "scratch.braid", "--target=cuda", "--arch=sm_90a,emulated=4096", chunk)

        def train(name, *flags, **environment):
            must("braid-run", "train", folder / f"{name}.braid", "--data", folder / "text.txt", "--steps", 3, "--seed", 3,
                        "--checkpoint-dir", folder / name, "--metrics", folder / f"{name}.jsonl", *flags, **environment)
            return [json.loads(line)["loss"] for line in (folder / f"{name}.jsonl").read_text().splitlines()]

        log = folder / "log"
        cpu, gpu = train("cpu"), train("gpu", BRAID_STUB_LOG=str(log), **stub)
        off = max(abs(a - b) / abs(a) for a, b in zip(cpu, gpu)) if len(cpu) == len(gpu) else 1.0
        check(off < 1e-4, f"losses {gpu}, of the CPU {cpu}")
        step = "step-00000003"
        for file in ("model.safetensors", "optimizer.safetensors"):
            error = furthest(tensors(folder / "cpu" / step / file), tensors(folder / "gpu" / step / file))
            check(error < 2e-3, f"{file}: furthest element off by {error:.1e} of its tensor's largest")

        calls = log.read_text().splitlines()
        first = next(i for i, call in enumerate(calls) if call.startswith("cuGraphLaunch"))
        made = [call for call in calls[first:] if re.match("cu(MemAlloc|MemHostRegister|ModuleLoad|StreamCreate|EventCreate|StreamBegin|GraphInst|Launch)", call)]
        beside = {call.rsplit(" ", 1)[1] for call in calls[:first] if call.startswith("cuLaunchKernel")}
        check(len(beside) == 5, f"launches that depend on nothing of each other are recorded on {len(beside)} streams")
        check(sum(call.startswith("cuMemAlloc") for call in calls) == 1 and calls.count("cuMemFree") == 1 and not made,
              f"one allocation, and nothing is made behind the first launch of a graph {made[:3]}")
        launches = [call for call in calls if call.startswith("cuLaunchKernel")]
        early = sum(" early " in call for call in launches)  # the stub refuses those that are behind something else than a launch
        check(early > len(launches) / 3, f"{early} of {len(launches)} launches may begin before the one before them has ended")
        inputs = [call for call in calls if "HtoD" in call]
        check(inputs and all("pinned" in call for call in inputs), f"{len(inputs)} inputs, from pinned memory")
        compute = {call.rsplit(" ", 1)[1] for call in calls if call.startswith("cuLaunchKernel")}
        copies, meanwhile, working = set(), 0, False
        for call in calls[first:]:
            working = call.startswith("cuGraphLaunch") or (working and call not in {f"cuStreamSynchronize {stream}" for stream in compute})
            if "HtoD" in call and call.split()[3] not in compute:
                copies.add(call.split()[3])
                meanwhile += working and call.endswith("pinned")
        check(len(copies) == 1 and meanwhile == 9, f"{meanwhile} inputs of the next of 3 steps on stream {copies}, kernels on {compute}, before the host waits")
        shutil.copy(folder / "gpu.braid", folder / "deaf.braid")
        code, _, _ = run("braid-run", "train", folder / "deaf.braid", "--data", folder / "text.txt", "--steps", 3, "--seed", 3, "--metrics", folder / "deaf.jsonl",
                         BRAID_STUB_DEAF=max(beside), **stub)
        deaf = [json.loads(line)["loss"] for line in (folder / "deaf.jsonl").read_text().splitlines()]
        check(code or deaf != gpu, f"launches beside others that do not wait for what is before them are found: {deaf}")
        # Rows of experts weighted before their last product: rounded elsewhere, and nothing more.
        weights = ["--target=cuda", "--arch=sm_90a,emulated", "--expert-weights=rows", chunk]
        must("braid-compile", folder / "model.json", "-o", folder / "weights.braid", *weights)
        rows = train("weights", **stub)
        made = [kernel["name"] for kernel in json.loads(must("braid-run", "info", folder / "weights.braid", "--json"))["gpu_kernels"]]
        check(max(abs(a - b) / abs(a) for a, b in zip(cpu, rows, strict=True)) < 1e-4 and any("moe_gather_numbers" in name for name in made),
              f"losses {rows} where experts' rows are weighted before their last product")
        log.unlink()
        # Gradients of weights, on a stream that comes behind: what is in the compiler's list must be so whenever they run.
        besides = ["--target=cuda", "--weight-gradients=beside", chunk]
        must("braid-compile", folder / "model.json", "-o", folder / "beside.braid", "--arch=sm_90a,emulated", *besides)
        losses = train("beside", BRAID_STUB_LOG=str(log), **stub)
        own = log.read_text().splitlines()
        priorities = dict(re.match(r"cuStreamCreateWithPriority (\d+) priority (-?\d+)", call).groups() for call in own if "WithPriority" in call)
        behind = [stream for stream, priority in priorities.items() if priority == "0"]
        check(len(behind) == 1 and set(priorities.values()) == {"0", "-1"}, f"one stream comes behind the others: {priorities}")
        made = [call for call in own if call.startswith("cuLaunchKernel") and call.rsplit(" ", 1)[1] in behind]
        check(losses == gpu and len(made) > 10, f"losses {losses} with {len(made)} launches on it")
        shutil.copy(folder / "beside.braid", folder / "deaf_beside.braid")
        shutil.copy(folder / "beside.braid", folder / "behind.braid")
        late = train("behind", BRAID_STUB_ORDER="first", **stub)
        check(late == gpu, f"losses {late} where it goes on when the first stream cannot")
        for stream, order in (behind[0], {}), (min(priorities, key=int), {"BRAID_STUB_ORDER": "first"}):
            code, _, _ = run("braid-run", "train", folder / "deaf_beside.braid", "--data", folder / "text.txt", "--steps", 3, "--seed", 3,
                             "--metrics", folder / "deaf_beside.jsonl", BRAID_STUB_DEAF=stream, **order, **stub)
            deaf = [json.loads(line)["loss"] for line in (folder / "deaf_beside.jsonl").read_text().splitlines()]
            (folder / "deaf_beside.jsonl").unlink()
            check(code or deaf != gpu, f"stream {stream} that waits for no other is found: {deaf}")
        must("braid-compile", folder / "model.json", "-o", folder / "narrow.braid", "--arch=sm_90a,emulated=4096", *besides)
        narrow = train("narrow", **stub)
        check(max(abs(a - b) / abs(a) for a, b in zip(cpu, narrow, strict=True)) < 1e-4, f"losses {narrow} where kernels beside others have scratch")
        log.unlink()
        shutil.copy(folder / "gpu.braid", folder / "blind.braid")
        train("blind", "--no-check-finite", BRAID_STUB_LOG=str(log), **stub)
        seen, blind = (sum(call.startswith("cuStreamSynchronize") for call in text) for text in (calls, log.read_text().splitlines()))
        check(seen - blind == 3, f"{seen} waits of the host, {blind} of them without a look at loss and gradient norm in each of 3 steps")
        info = json.loads(must("braid-run", "info", folder / "scratch.braid", "--json"))["gpu_kernels"]
        count, small = sum(kernel["scratch_bytes"] > 0 for kernel in info), train("scratch", **stub)
        check(count > 10 and max(abs(a - b) / abs(a) for a, b in zip(cpu, small, strict=True)) < 1e-4, f"losses {small} with {count} kernels that have scratch")
        shutil.copy(folder / "gpu.braid", folder / "walked.braid")
        walked = train("walked", "--trace", folder / "trace.json", **stub)
        check(walked == gpu, f"losses {walked} where every command is waited for")

        def diverged(name, **environment):
            code, _, err = run("braid-run", "train", folder / f"{name}.braid", "--data", folder / "text.txt", "--steps", 6, "--seed", 3,
                               "--lr", "100", "--warmup", 0, **environment)
            # Which command that is differs: what is part of a product or of a convolution on a GPU is a kernel of its own on a CPU.
            return code, re.sub(r" command (\d+ )?'[^']*', kernel \w+", " command", err.split("the update was not applied", 1)[-1])

        expected, found = diverged("cpu"), diverged("gpu", **stub)
        check(expected[0] == 1 and found == expected, f"a step that is not finite ends with{found[1]}, on the CPU with{expected[1]}")

        def words(name, **environment):
            return must("braid-run", "generate", folder / f"{name}.braid", "--checkpoint", folder / "cpu", "--prompt", "the quick brown fox",
                        "--max-tokens", 12, "--temperature", 0, **environment).split("\n")[0]

        check(words("cpu") == words("gpu", **stub), "a CPU's checkpoint continues a prompt with the same bytes")
        (folder / "prompts.jsonl").write_text('"the quick brown fox"\n"a"\n"and another one that is longer than thirty-two bytes"\n"b c"\n')
        def served(**environment):
            """Texts over HTTP of which the second goes on from a state that was kept, and what each had read before it was asked for; scores of a prompt."""
            command = [str(c) for c in ("braid-run", "serve", folder / "rows.braid", "--checkpoint", folder / "cpu", "--port=0")]
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, **environment}) as server:
                try:
                    connection = http.client.HTTPConnection("127.0.0.1", int(re.search(r":(\d+)/v1", server.stdout.readline())[1]), timeout=300)
                    answers = []
                    for _ in range(2):
                        connection.request("POST", "/v1/completions", json.dumps({"prompt": "the quick brown fox jumps over the lazy dog", "max_tokens": 4, "temperature": 0}))
                        answer = json.loads(connection.getresponse().read())
                        answers.append((answer["choices"][0]["text"], answer["usage"]["prompt_tokens_details"]["cached_tokens"]))
                    scored = {"prompt": "the quick brown fox jumps over the lazy dog and goes", "max_tokens": 0, "echo": True, "logprobs": 1}
                    connection.request("POST", "/v1/completions", json.dumps(scored))
                    scores = json.loads(connection.getresponse().read())["choices"][0]["logprobs"]
                    connection.close()
                finally:
                    server.terminate()
            return answers, scores

        texts, answers = [], []
        for target, environment in ([], {}), (["--target=cuda", "--arch=sm_90a,emulated"], stub):
            must("braid-compile", folder / "model.json", "-o", folder / "rows.braid", chunk, "--decode-batch=3", *target)
            texts.append(must("braid-run", "generate", folder / "rows.braid", "--checkpoint", folder / "cpu", "--prompts", folder / "prompts.jsonl",
                              "--max-tokens", 5, **environment))
            answers.append(served(**environment))
        alone = words("cpu").startswith("the quick brown fox" + json.loads(texts[0].split("\n")[0])["text"].split("\ufffd")[0])
        check(texts[0] == texts[1] and texts[0].count("\n") == 4 and alone, "four prompts, three at a time, are continued with the same bytes")
        answers, scores = zip(*answers)
        (first, none), (again, kept) = answers[1]
        check(answers[0][0] == answers[1][0] and first == again and none == 0 and kept >= 32, f"a GPU serves what the CPU does, also from a state of {kept} tokens: {answers}")
        off = max(abs(a - b) for a, b in zip(*(each["token_logprobs"][1:] for each in scores)))
        likeliest = [[list(top) for top in each["top_logprobs"][1:]] for each in scores]
        check(off < 1e-4 and len(likeliest[0]) == 51 and likeliest[0] == likeliest[1], f"a prompt's log-probabilities are the CPU's within {off:.1e}")
        evaluated = [must("braid-run", "eval", folder / f"{name}.braid", "--checkpoint", folder / "gpu", "--data", folder / "text.txt", **environment)
                     for name, environment in (("cpu", {}), ("gpu", stub))]
        losses = [float(re.search(r"(\d+\.\d+) nats", text).group(1)) for text in evaluated]
        check(abs(losses[0] - losses[1]) < 2e-4, f"a GPU's checkpoint evaluates to {losses[1]}, on the CPU to {losses[0]}")

        def refused(why, wanted, *flags, program="gpu", **environment):
            code, _, err = run("braid-run", "train", folder / f"{program}.braid", "--data", folder / "text.txt", "--steps", 1, *flags,
                               **{**stub, **environment})
            check(code == 1 and re.search(wanted, err), f"{why}: {err}")

        if not has_library("libcuda.so.1"):
            refused("no driver", "no driver: libcuda.so.1 could not be opened", LD_LIBRARY_PATH=str(folder))
        refused("no device", "no device: the CUDA driver knows 0 GPUs", BRAID_STUB_DEVICES="0")
        refused("another architecture", r"kernels are for sm_90a, but the device \(stub\) has compute capability 8\.0", BRAID_STUB_CAPABILITY="80")
        must("braid-compile", folder / "model.json", "-o", folder / "commands.mlir", "--to-phase=commands", "--chunk-size=16")
        must("braid-compile", folder / "commands.mlir", "-o", folder / "library.braid", "--target=cuda", "--arch=sm_90a,emulated")
        refused("a library's grouped product", "entry '.*a grouped matrix product of a library, which programs for GPUs do not call", program="library")

        for dtype, limit in (("f32", 1e-4), ("bf16", 2e-3)):
            name, own = f"cublas-{dtype}", f"own-{dtype}"
            for program, flags in ((name, ["--gemm=cublaslt"]), (own, [])):
                must("braid-compile", folder / "model.json", "-o", folder / f"{program}.braid", "--target=cuda", "--arch=sm_90a,emulated", chunk,
                     f"--dtype={dtype}", *flags)
            log.unlink(missing_ok=True)
            ours, theirs = train(own, **stub), train(name, BRAID_STUB_LOG=str(log), **stub)
            off = max(abs(a - b) / abs(a) for a, b in zip(ours, theirs, strict=True))
            products = sum(call.startswith("cublasLtMatmul") for call in log.read_text().splitlines())
            launched = library_calls(must("braid-run", "info", folder / f"{name}.braid"))
            check(off < limit and products == launched > 0,
                  f"{dtype} losses {theirs} by cuBLASLt, {ours} by kernels; {products} products recorded, {launched} in the program")
        refused("an algorithm that is not there", r"a product \d+ x \d+ x \d+ of f32 and f32 into f32: cuBLASLt has no algorithm for it; valid: a program "
                "compiled with --gemm=kernels", program="cublas-f32", BRAID_STUB_FAIL="cublasLtMatmulAlgoGetHeuristic")
        alone = folder / "alone"
        alone.mkdir()
        (alone / "libcuda.so.1").symlink_to(pathlib.Path(sys.argv[1]) / "libcuda.so.1")
        if any(map(has_library, ("libcublasLt.so.13", "libcublasLt.so.12"))):
            print("ok     no cuBLASLt: skipped, this machine has it")
        else:
            refused("no cuBLASLt", "matrix products are cuBLASLt's, and neither libcublasLt.so.13 nor libcublasLt.so.12 can be opened .*; valid: .*--gemm=kernels",
                    program="cublas-f32", LD_LIBRARY_PATH=str(alone))
        refused("little memory", r"out of memory: the program needs \d+ bytes \(the largest arenas are '\w+' \d+ bytes.*, but the device \(stub\) has "
                r"1000000 of its 1000000 bytes free", BRAID_STUB_MEMORY="1000000")
        refused("an allocation that fails", r"\d+ bytes for the program: cuMemAlloc_v2: error 700 CUDA_ERROR_ILLEGAL_ADDRESS", BRAID_STUB_FAIL="cuMemAlloc")
        refused("a call that fails while a graph is recorded", "cuMemcpyDtoHAsync_v2: error 700 CUDA_ERROR_ILLEGAL_ADDRESS", BRAID_STUB_FAIL="cuMemcpyDtoHAsync")


if __name__ == "__main__":
    sys.exit(main())
