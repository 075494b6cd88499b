"""What the chunk kernels of every class look like.

Classes in matrix form multiply matrices in each chunk kernel, keep one state per chunk of tokens, and have no loop over tokens: every loop has
constant bounds within a tile of a chunk (or walks whole tiles and blocks of columns). Class E has no product and says so by walking tokens.
Inner steps (classes G1, GM, N) walk mini-batches, with matrix products and no loop inside a mini-batch.
"""

import re
import subprocess
import sys
import tempfile

B, T, H, K, V, C = 1, 4096, 2, 32, 32, 64
TOKENS = {"q": K, "k": K, "v": V}
SHAPES = {
    "head": (H,),
    "scalar": (B, T, H),
    "key": (B, T, H, K),
    "value": (B, T, H, V),
    "element": (B, T, H, K, V),
}
GATES = {
    "I": {},
    "S0": {"log_decay": "head"},
    "S": {"log_decay": "scalar"},
    "V": {"log_decay": "key"},
    "H": {"beta": "scalar"},
    "GH": {"log_decay": "scalar", "beta": "scalar"},
    "D": {"log_decay": "key", "a": "key", "b": "key"},
    "R": {"log_decay": "key", "value_decay": "value"},
    "E": {"log_decay": "element"},
}
CHUNK_KERNELS = ("chunk_state", "chunk_output", "chunk_output_grad_state", "chunk_grad")


def tensor(shape, element="f32"):
    return f"tensor<{'x'.join(map(str, shape))}x{element}>"


def module(kind):
    """A function that runs the scan and its gradient."""
    operands = {n: tensor((B, T, H, d)) for n, d in TOKENS.items()}
    gates = {n: tensor(SHAPES[s]) for n, s in GATES[kind].items()}
    state, documents, o = tensor((B, H, K, V)), tensor((B, T), "i32"), tensor((B, T, H, V))
    arguments = operands | gates | {"m": state, "d": documents, "do": o, "dm": state}
    named = " ".join(f"{n}(%{n})" for n in gates)
    attributes = f"{{chunk_size = {C} : i64, scale = 1.0 : f64}}"
    inputs = [*operands.values(), *gates.values(), state, documents]
    trained = [] if kind == "S0" else list(gates.values())
    results = [*operands.values(), *trained, state]
    return f"""func.func @f({", ".join(f"%{n}: {t}" for n, t in arguments.items())}) -> ({", ".join([o, *results])}) {{
  %o, %end = braid.lsm.scan {kind} %q, %k, %v {named} initial_state(%m) documents(%d) {attributes}
      : ({", ".join(inputs)}) -> ({o}, {state})
  %r:{len(results)} = braid.lsm.scan_grad {kind} %q, %k, %v {named} initial_state(%m) documents(%d) cotangents(%do, %dm) {attributes}
      : ({", ".join([*inputs, o, state])}) -> ({", ".join(results)})
  return %o, {", ".join(f"%r#{i}" for i in range(len(results)))} : {", ".join([o, *results])}
}}
"""


def passes(text, *flags):
    with tempfile.NamedTemporaryFile("w", suffix=".mlir") as file:
        file.write(text)
        file.flush()
        done = subprocess.run(["braid-opt", file.name, *flags], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise RuntimeError(done.stderr[-1000:])
    return done.stdout


def problems(kind):
    chunked = passes(module(kind), "--braid-chunk-tiling", "--cse")
    states = {int(n) for n in re.findall(rf"tensor<{B}x(\d+)x{H}x{K}x{V}xf32>", chunked)} - {T}
    if states != {T // C + 1}:
        yield f"keeps states of {sorted(states)} chunks, not {T // C + 1}"
    text = passes(chunked, "--braid-outline")
    kernels = dict(re.findall(r"func\.func @lsm_(\w+?)_[a-z0]+_h\d\S*\((.*?)\n  }", text, re.DOTALL))
    for name in CHUNK_KERNELS:
        body = kernels.get(name)
        if body is None:
            yield f"has no kernel {name}: {sorted(kernels)}"
            continue
        products = len(re.findall(r"\btile\.dot\b", body))
        constants = dict(re.findall(r"(%\S+) = arith\.constant (-?\d+) : index", body))
        walks = [bound for bound in re.findall(r"scf\.for \S+ = \S+ to (%\S+) step", body) if bound not in constants]
        if kind == "E":
            if products or not walks:
                yield f"{name}: {products} products, {len(walks)} walks over tokens in the class without a matrix form"
        elif products == 0 or walks:
            yield f"{name}: {products} products and {len(walks)} loops over tokens"


INNER = {
    "G1": {"log_decay": "scalar"},
    "GM": {"log_decay": "scalar", "log_momentum": "scalar"},
    "N": {"read_rate": "scalar", "norm": (H, V)},
}


def inner_problems(kind):
    operands = {n: tensor((B, T, H, d)) for n, d in TOKENS.items()} | {"rate": tensor((B, T, H))}
    gates = {n: tensor(SHAPES[s]) for n, s in INNER[kind].items() if n != "norm"}
    norm = {"w": tensor((H, V)), "b": tensor((H, V))} if "norm" in INNER[kind] else {}
    planes, of_chunk = {"G1": (2, 1), "GM": (3, 2), "N": (2, 1)}[kind]  # B, or S with a read_rate, is none of a chunk
    state, documents, o = tensor((B, H, planes * K, V)), tensor((B, T), "i32"), tensor((B, T, H, V))
    arguments = operands | gates | norm | {"m": state, "d": documents, "do": o, "dm": state}
    named = "rate(%rate) " + " ".join(f"{n}(%{n})" for n in gates) + (" norm(%w, %b)" if norm else "")
    inputs, attributes = [*operands.values(), *gates.values(), *norm.values(), state, documents], "{mini_batch = 16 : i64}"
    results = inputs[:-1]
    text = f"""func.func @f({", ".join(f"%{n}: {t}" for n, t in arguments.items())}) -> ({", ".join([o, *results])}) {{
  %o, %end = braid.lsm.inner_step %q, %k, %v {named} initial_state(%m) documents(%d) {attributes} : ({", ".join(inputs)}) -> ({o}, {state})
  %r:{len(results)} = braid.lsm.inner_step_grad %q, %k, %v {named} initial_state(%m) documents(%d) cotangents(%do, %dm) {attributes}
      : ({", ".join([*inputs, o, state])}) -> ({", ".join(results)})
  return %o, {", ".join(f"%r#{i}" for i in range(len(results)))} : {", ".join([o, *results])}
}}
"""
    chunked = passes(text, "--braid-chunk-tiling", "--cse")
    states = {int(n) for n in re.findall(rf"tensor<{B}x(\d+)x{H}x{of_chunk * K}x{V}xf32>", chunked)}
    if states != {T // 16 + 2}:
        yield f"keeps states of {sorted(states)} mini-batches, not {T // 16 + 2}"
    kernels = dict(re.findall(r"func\.func @lsm_inner_(\w+?)_[a-z0-9]+_h\d\S*\((.*?)\n  }", passes(chunked, "--braid-outline"), re.DOTALL))
    for name in ("states", "output", "grad"):
        body = kernels.get(name, "")
        products = len(re.findall(r"\btile\.dot\b", body))
        loops = [len(indent) for indent in re.findall(r"^( +)(?:%\S+ = )?scf\.for", body, re.MULTILINE)]
        if products == 0 or len(set(loops)) > 1 or (name == "output" and loops):
            yield f"{name}: {products} products, loops at depths {sorted(set(loops))}"


def main():
    failed = 0
    for kind in INNER:
        for problem in inner_problems(kind):
            failed += 1
            print(f"FAILED class {kind}: {problem}")
    for kind in GATES:
        for problem in problems(kind):
            failed += 1
            print(f"FAILED class {kind}: {problem}")
    print(f"{len(GATES) + len(INNER)} classes, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
