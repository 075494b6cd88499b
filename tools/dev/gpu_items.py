"""What tools/gpu-check does with an item of a bundle. Each function returns {"words": .., "errors": {kernel: worst error}, ..} and raises RuntimeError
where something is wrong.
"""
import array
import ctypes
import glob
import json
import math
import os
import random
import shutil
import statistics
import threading

TINY = 1.1754943508222875e-38  # what is smaller than this f32 cannot hold
SANITIZER, CUDA_FOLDERS = "compute-sanitizer", "/usr/local/cuda*/bin"  # where NVIDIA's packages leave it, which add nothing to the PATH
RACE_CODE = 86
SAMPLES = 1 << 18  # elements of a tensor that are compared


def read_npy(path):
    """-> shape, values: a NumPy file of bf16 bits, f32, f64, i32 or i64."""
    with open(path, "rb") as file:
        data = file.read()
    if data[:6] != b"\x93NUMPY":
        raise ValueError(f"{path}: no NumPy file")
    size = int.from_bytes(data[8:10], "little") + 10 if data[6] == 1 else int.from_bytes(data[8:12], "little") + 12
    header = data[:size].decode("latin1")
    if "'fortran_order': False" not in header:
        raise ValueError(f"{path}: column by column")
    text = lambda key, end: header.split(f"'{key}':", 1)[1].split(end, 1)[0].strip()
    kind = {"'<u2'": "H", "'<f4'": "f", "'<f8'": "d", "'<i4'": "i", "'<i8'": "q"}[text("descr", ",")]
    shape = tuple(int(n) for n in text("shape", ")").strip("( ").split(",") if n.strip())
    return shape, array.array(kind, data[size:])


def widened(bits):
    """Bytes of bf16 as those of the same numbers in f32."""
    whole = bytearray(2 * len(bits))
    whole[2::4], whole[3::4] = bits[0::2], bits[1::2]
    return bytes(whole)


def compare(path, expected, folder):
    """-> relative error in the L2 norm, the same of the largest elements, of a sample where there are very many; inf where the shape is another or a
    value not finite."""
    shape, values = read_npy(path)
    wanted_shape, wanted = read_npy(os.path.join(folder, expected["reference"]))
    dtype = expected["dtype"]
    if shape != wanted_shape:
        return math.inf, math.inf
    every = 1 + len(values) // SAMPLES | 1  # odd: in every column
    values, wanted = values[::every], wanted[::every]
    if dtype.startswith("i"):
        differ = float(sum(a != b for a, b in zip(values, wanted)))
        return differ, differ
    if dtype == "bf16":
        values, wanted = (array.array("f", widened(a.tobytes())) if a.typecode == "H" else a for a in (values, wanted))
    if not all(map(math.isfinite, values)):
        return math.inf, math.inf
    distance = norm = top = far = 0.0
    for a, b in zip(values, wanted):
        b = 0.0 if dtype != "f64" and abs(b) < TINY else b
        d = abs(a - b)
        distance, norm, top, far = distance + d * d, norm + b * b, max(top, abs(b)), max(far, d)
    floor = expected.get("floor", 0.0)
    norm, distance = max(math.sqrt(norm), floor), math.sqrt(distance)
    top = max(top, 3 * floor / math.sqrt(len(wanted) or 1))
    return distance / norm if norm else distance, far / top if top else far


def failure(count, what, wrong, errors, suspects):
    """Of an item in which outputs were wrong: only kernels that may have done it have an error."""
    if not wrong:
        return {}
    return {"status": "failed", "words": f"{len(wrong)} outputs of {count} {what}: {'; '.join(wrong[:4])}", "errors": {kernel: errors[kernel] for kernel in suspects}}


def cases_item(runner, item):
    folder = runner.unpack(item)
    with open(os.path.join(folder, "cases.json"), encoding="utf-8") as file:
        cases = json.load(file)
    runner.calls(folder, cases, outputs=True)
    wrong, suspects, errors, worst = [], set(), {}, (0.0, "")
    for i, case in enumerate(cases):
        of_case = 0.0
        for n, (name, expected) in enumerate(case["outputs"].items()):
            error, top = compare(os.path.join(folder, f"{i}.{n}.out.npy"), expected, folder)
            if not (error <= expected["limit"] and top <= 3 * expected["limit"]):
                wrong.append(f"{case['label']}: {name} is off by {error:.2g} (max {top:.2g}), limit {expected['limit']:.2g}")
                suspects.update(item["kernels"].get(case["function"], []))
            of_case = max(of_case, error)
            if expected["limit"]:
                worst = max(worst, (error / expected["limit"], f"{case['label']}: {name} {error:.2g}, limit {expected['limit']:.2g}"))
        for kernel in item["kernels"].get(case["function"], []):
            errors[kernel] = max(errors.get(kernel, 0.0), of_case)
    result = {"words": f"{len(cases)} cases, worst {worst[1]}", "errors": errors}
    return result | failure(len(cases), "cases", wrong, errors, suspects)


def curve_item(runner, item):
    """The first ten losses are the CPU's within `first`, relative; means of thirty steps within `mean` all the way."""
    steps = runner.train(runner.unpack(item), len(item["losses"]), "curve")
    losses, wanted = [step["loss"] for step in steps], item["losses"]
    if len(losses) != len(wanted) or not all(isinstance(x, float) and math.isfinite(x) for x in losses):
        raise RuntimeError(f"{len(losses)} of {len(wanted)} losses, or one that is not finite")
    apart = lambda a, b: abs(a - b) / abs(b)
    first = max(apart(a, b) for a, b in zip(losses[:10], wanted))
    window = min(30, len(wanted))
    means = [(sum(losses[i:i + window]), sum(wanted[i:i + window])) for i in range(len(wanted) - window + 1)]
    mean = max(apart(a, b) for a, b in means)
    words = f"{len(losses)} steps, last loss {losses[-1]:.4f} (CPU {wanted[-1]:.4f}), first ten off by {first:.1e}, means of {window} by {mean:.1e}"
    good = first <= item["first"] and mean <= item["mean"]
    return {"words": words + ("" if good else f"; limits {item['first']:.1e} and {item['mean']:.1e}"), "status": "passed" if good else "failed"}


def twice_item(runner, item):
    folder = runner.unpack(item)
    found = []
    for name in ("once", "again"):
        shutil.rmtree(os.path.join(folder, name), ignore_errors=True)
        losses = [step["loss"] for step in runner.train(folder, item["steps"], name, "--checkpoint-dir", name)]
        step = os.path.join(folder, name, f"step-{item['steps']:08}")
        tensors = {}
        for file in sorted(f for f in os.listdir(step) if f.endswith(".safetensors")):
            with open(os.path.join(step, file), "rb") as data:
                tensors[file] = data.read()
        found.append((losses, tensors))
    if found[0] != found[1]:
        raise RuntimeError(f"two runs of {item['steps']} steps differ: losses {found[0][0]} and {found[1][0]}")
    return {"words": f"{item['steps']} steps twice: the same losses, parameters and moments, bit by bit ({', '.join(found[0][1])})"}


def sanitizer_item(runner, item):
    path = shutil.which(SANITIZER) or next(iter(sorted(glob.glob(os.path.join(CUDA_FOLDERS, SANITIZER)))), None)
    if not path:
        return {"status": "skipped", "words": f"{SANITIZER} is neither on the PATH nor in {CUDA_FOLDERS}"}
    folder = runner.unpack(item)
    with open(os.path.join(folder, "cases.json"), encoding="utf-8") as file:
        cases = {}
        for case in json.load(file):
            cases.setdefault(case["function"], case)
    flags = ["--tool", item["tool"], "--error-exitcode", str(RACE_CODE)]
    for kernel in item.get("without", ()):
        flags += ["--kernel-name-exclude", f"kernel_name={kernel}"]
    runner.calls(folder, list(cases.values()), outputs=False, before=[path, *flags])
    return {"words": f"{len(cases)} functions, nothing found"}


def spread(seconds):
    """Median and the distance of the quartiles, in ms."""
    ordered = sorted(seconds)
    quarter = len(ordered) // 4
    return {"ms": 1e3 * statistics.median(ordered), "spread_ms": 1e3 * (ordered[-1 - quarter] - ordered[quarter]), "rounds": len(ordered)}


class Clock:
    """The clock and the power of the device while a `with` runs, asked of the driver's management library: products that draw all the power that a device
    may are slowed down by that, not by what they wait for. Nothing is said where there is no such library."""
    EVERY = 0.02  # s
    SM = 1  # NVML_CLOCK_SM

    def __enter__(self):
        self.samples, self.done = [], threading.Event()
        self.thread = threading.Thread(target=self.watch, daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.done.set()
        self.thread.join()

    def watch(self):
        try:
            nvml = ctypes.CDLL("libnvidia-ml.so.1")
            device, mhz, milliwatts = ctypes.c_void_p(), ctypes.c_uint(), ctypes.c_uint()
            if nvml.nvmlInit_v2() or nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device)):
                return
            while not self.done.wait(self.EVERY):
                if not nvml.nvmlDeviceGetClockInfo(device, self.SM, ctypes.byref(mhz)) and not nvml.nvmlDeviceGetPowerUsage(device, ctypes.byref(milliwatts)):
                    self.samples.append((mhz.value, milliwatts.value / 1000))
            nvml.nvmlShutdown()
        except (OSError, AttributeError):
            pass

    def seen(self):
        """-> medians of the samples that have more than half of the greatest power: between them the host made inputs."""
        busy = [sample for sample in self.samples if sample[1] > max(watts for _, watts in self.samples) / 2]
        return {"clock": {"mhz": statistics.median(mhz for mhz, _ in busy), "watts": round(statistics.median(watts for _, watts in busy), 1)}} if busy else {}

    def words(self):
        clock = self.seen().get("clock")
        return f"; {clock['mhz']:.0f} MHz, {clock['watts']:.0f} W" if clock else ""


def train_item(runner, item):
    folder = runner.unpack(item)
    if item["vocabulary"] > 256:
        shutil.rmtree(os.path.join(folder, "data"), ignore_errors=True)
        os.mkdir(os.path.join(folder, "data"))
        draw = random.Random(5)
        with open(os.path.join(folder, "data", "tokens.u32"), "wb") as file:
            array.array("I", (draw.randrange(item["vocabulary"]) for _ in range(8 * item["tokens"]))).tofile(file)
    with Clock() as clock:
        steps = runner.train(folder, item["steps"], "bench")
    ends = [step["seconds"] for step in steps]
    if not all(isinstance(step["loss"], float) and math.isfinite(step["loss"]) for step in steps):
        raise RuntimeError("a loss is not finite: no time counts")
    warm = min(3, len(ends) - 2)
    measured = spread([b - a for a, b in zip(ends[warm:], ends[warm + 1:])])
    measured["tokens_per_s"] = 1e3 * item["tokens"] / measured["ms"]
    return {"words": f"{measured['ms']:.4g} ms a step of {item['tokens']} tokens, {measured['tokens_per_s']:.4g} tokens/s{clock.words()}", "times": {item["id"]: measured}} | clock.seen()


def noise(path, dtype, shape, sign, period=1 << 16):
    """A NumPy file of numbers between an eighth and a half of that sign, or 0: of both; "key": a quarter of these, so that rows of 128 are about 1
    long; "decay": a sixteenth, below 0; i32 are 0, sign, 2 sign, .., or a list over and over. Numbers come again after `period` others."""
    width, code = {"bf16": (2, "<u2"), "f32": (4, "<f4"), "i32": (4, "<i4")}[dtype]
    count = math.prod(shape)
    draw, block = random.Random(os.path.basename(path)), min(count, period)
    data = bytearray(block * width)
    if isinstance(sign, list):
        block, data = count, bytearray(array.array("i", sign * (count // len(sign))).tobytes())
    elif dtype == "i32" and sign:
        block, data = count, bytearray(array.array("i", (sign * i for i in range(count))).tobytes())
    elif dtype != "i32":
        for byte in range(width - 1):
            data[byte::width] = draw.randbytes(block)
        top = bytes({1: 0x3E, -1: 0xBE, 0: 0x3E | (b & 0x80), "key": 0x3D | (b & 0x80), "decay": 0xBC}[sign] for b in range(256))
        data[width - 1::width] = draw.randbytes(block).translate(top)
    header = f"{{'descr': '{code}', 'fortran_order': False, 'shape': ({', '.join(map(str, shape))},), }}"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode())
        whole, rest = divmod(count, block)
        for _ in range(whole):
            file.write(data)
        file.write(data[:rest * width])


def call_item(runner, item):
    folder = runner.unpack(item)
    times, cases = {}, []
    made = {}  # inputs of one kind share a file: of long rows it has half a GB
    for function in item["functions"]:
        for kind in map(json.dumps, function["inputs"].values()):
            if kind not in made:
                made[kind] = f"{len(made)}.npy"
                noise(os.path.join(folder, made[kind]), *json.loads(kind))
        files = {name: made[json.dumps(kind)] for name, kind in function["inputs"].items()}
        cases.append({"function": function["function"], "inputs": files, "outputs": {}})
    # Of parameters that @init makes: a run is what a user waits for, its inputs and outputs too.
    whole = "seed" in item
    rounds = {"rounds": item["rounds"] if whole else 0, "launch_rounds": 0 if whole else item["rounds"], "seconds": item["round_seconds"]}
    with Clock() as clock:
        said = runner.calls(folder, cases, outputs=False, flags=["--seed", str(item["seed"])] if whole else [], **rounds)
    for function, line in zip(item["functions"], said):
        times[function["label"]] = spread(line["seconds" if whole else "launch_seconds"])
        if not whole:
            times[function["label"]]["ms_by_launch"] = {name: round(1e3 * statistics.median(s), 5) for name, s in line["seconds_by_launch"].items() if s}
        if "tokens" in function:
            times[function["label"]]["tokens_per_s"] = 1e3 * function["tokens"] / times[function["label"]]["ms"]
        if "flops" in function:
            times[function["label"]]["tflops"] = 1e-9 * function["flops"] / times[function["label"]]["ms"]
    fastest = max((time["tflops"] for time in times.values() if "tflops" in time), default=None)
    rate = f", up to {fastest:.4g} TFLOP/s" if fastest else ""
    how = "with inputs and outputs" if whole else "kernels only, each waited for"
    return {"words": f"{len(times)} functions, {how}{rate}{clock.words()}", "times": times} | clock.seen()


def widen(source, path):
    """The same numbers, of a NumPy file of bf16 bits, in f32."""
    with open(source, "rb") as file:
        data = file.read()
    size = int.from_bytes(data[8:10], "little") + 10
    with open(path, "wb") as file:
        file.write(data[:size].replace(b"<u2", b"<f4") + widened(data[size:]))


def sizes_item(runner, item):
    """Made-up numbers at sizes whose files no bundle holds: the device's results beside those of this machine's processor, which computes in f32."""
    folder, made = runner.unpack(item), {}
    wrong, suspects, errors, worst = [], set(), {}, (0.0, "")
    for call in item["calls"]:
        files, wide = {}, {}
        for name, kind in call["inputs"].items():
            key = json.dumps([name, kind])
            if key not in made and isinstance(kind, list):
                made[key] = (f"{name}.{len(made)}.npy",) * 2
                noise(os.path.join(folder, made[key][0]), *kind, period=1 << 40)
                if kind[0] == "bf16":
                    made[key] = (made[key][0], "wide." + made[key][0])
                    widen(*(os.path.join(folder, path) for path in made[key]))
            files[name], wide[name] = made.get(key, (kind, kind))
        for program, function, inputs, end in (("P.braid", call["function"], files, "out"), ("CPU.braid", call["wide"], wide, "reference")):
            outputs = {name: f"{name}.{end}.npy" for name in call["outputs"]}
            with open(os.path.join(folder, "calls.jsonl"), "w", encoding="utf-8") as file:
                json.dump({"function": function, "inputs": inputs, "outputs": outputs}, file)
            runner.run(["call", program, "--calls", "calls.jsonl"], folder)
        of_call, far = 0.0, []
        for name, expected in call["outputs"].items():
            error, top = compare(os.path.join(folder, f"{name}.out.npy"), expected | {"reference": f"{name}.reference.npy"}, folder)
            of_call, worst = max(of_call, error), max(worst, (error / expected["limit"], f"{call['label']}: {name} {error:.2g}, limit {expected['limit']:.2g}"))
            if not (error <= expected["limit"] and top <= 3 * expected["limit"]):
                far.append(f"{name} is off by {error:.2g} (max {top:.2g}), limit {expected['limit']:.2g}")
        if far:
            wrong.append(f"{call['label']}: {', '.join(far)}")
            suspects.update(call["kernels"])
        for kernel in call["kernels"]:
            errors[kernel] = max(errors.get(kernel, 0.0), of_call)
    result = {"words": f"{len(item['calls'])} calls, worst {worst[1]}", "errors": errors}
    return result | failure(len(item["calls"]), "calls", wrong, errors, suspects)


KINDS = {"cases": cases_item, "sizes": sizes_item, "curve": curve_item, "twice": twice_item, "sanitizer": sanitizer_item, "train": train_item, "call": call_item}
TIMED = ("train", "call")  # nothing else uses the device meanwhile
