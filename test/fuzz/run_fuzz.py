"""Runs the libFuzzer targets of braid-fuzz-runtime and braid-fuzz-compiler, a counted number of inputs each.

  run_fuzz.py [--runs=N] [--seed=N] [--work=DIR] [TARGET..]

The programs are looked up on PATH. Seeds are made here: small valid files of every kind. Prints a line per target; exit
status 1, with the end of the output, when one crashes, takes a minute for one input, or allocates too much. Bounded by
counts, never by time, and with the same seed the same inputs in a build without coverage of the libraries.
"""
import argparse
import glob
import json
import os
import re
import shutil
import struct
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TRAILER = 32  # of a program file: runtime/schema/ProgramTrailer.h
TARGETS = {"npy": "runtime", "safetensors": "runtime", "checkpoint-index": "runtime", "import": "runtime",
           "program": "runtime", "data": "runtime", "tokenizer": "runtime", "template": "runtime", "pattern": "runtime", "request": "runtime", "description": "compiler", "module": "compiler"}
# Modules and descriptions are slower to read.
SHARE = {"tokenizer": 0.5, "template": 0.5, "description": 0.25, "module": 0.1}
LIMITS = ["-rss_limit_mb=4096", "-malloc_limit_mb=2048", "-timeout=60", "-max_len=65536", "-print_final_stats=1"]

MODULE = """func.func @main(%x: tensor<1x8x16xf32> {braid.name = "x", braid.role = "input"},
                %w: tensor<16x16xf32> {braid.name = "w", braid.role = "parameter"})
    -> (tensor<1x8x16xf32> {braid.name = "y"}) attributes {braid.entry} {
  %y = braid.linear %x, %w : (tensor<1x8x16xf32>, tensor<16x16xf32>) -> tensor<1x8x16xf32>
  return %y : tensor<1x8x16xf32>
}
"""


def npy_seeds():
    for descr, shape, size in (("<f4", "(2, 3)", 24), ("<i8", "(1,)", 8), ("|u1", "()", 1), ("<f8", "(0, 4)", 0)):
        header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}"
        header += " " * (63 - (10 + len(header)) % 64) + "\n"
        yield b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + bytes(range(size))


def safetensors_seeds():
    for header in ({"x": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}},
                   {"__metadata__": {"format": "pt"}, "a": {"dtype": "I64", "shape": [1], "data_offsets": [0, 8]},
                    "b": {"dtype": "U8", "shape": [16], "data_offsets": [8, 24]}}):
        text = json.dumps(header).encode()
        yield struct.pack("<Q", len(text)) + text + bytes(24)


def index_seeds():
    index = {"format": "braid-checkpoint", "version": 3, "program": "p", "tokenizer": "bytes", "step": 3,
             "data_position": 24, "seed": 1, "seq_len": 16, "max_documents": 1, "corpus_tokens": 100, "corpus_documents": 1, "corpus_hash": 5, "learning_rate": 0.1,
             "min_learning_rate": 0.01, "warmup_steps": 2, "steps": 9, "accumulation_steps": 1, "step_samples": 8, "model": {"name": "p"},
             "tensors": {"w": {"role": "parameter", "dtype": "f32", "shape": [4, 2],
                               "pieces": [{"file": "m", "offset": [0, 0], "shape": [2, 2]},
                                          {"file": "m", "offset": [2, 0], "shape": [2, 2]}]}},
             "files": {"m": {"bytes": 99, "hash": "0" * 32}}}
    yield (json.dumps(index, indent=1) + "\n").encode()


def import_seeds():
    weights = {"embed.weight": "e", "layers.{layer}.attn.wq": {"name": "{layer}.q", "groups": 4, "rows": [8, 16], "transposed": True, "plus": 1, "times": -2},
               "layers.2.moe.w1": {"name": "{layer}.{expert}.w1"}, "layers.{layer}.moe.w2": {"name": "{layer}.w2", "stacked": True}}
    yield json.dumps({"vocab_size": 256, "import": {"weights": weights, "unread": ["mtp.*", "*x*y"], "equal": {"a": "b"}}}).encode()


def data_seeds():
    yield b"\x00\x08\x00" + b"the braid of three strands. " * 9
    yield b"\x01\x48\x82" + b'{"text": "one"}\n{"text": [1, 2, 3]}\n\n{"text": "t\\u00e9"}\n'
    yield b"\x02\x04\x03" + struct.pack("<8H", *range(8))
    yield b"\x82\x08\x00" + b"text that stays in its file. " * 3
    yield b"\x03\x04\x01" + struct.pack("<8I", *range(8))
    yield from (b"\x04\x04\x01" + array for array in npy_seeds())
    yield b"\x00\x01\x00" + b'{"step": 1, "loss": 2}\n{"step": 9}\n{"st'


def tokenizer_seeds():
    for path in sorted(glob.glob(os.path.join(ROOT, "test", "tokenizers", "*.json"))):
        with open(path, "rb") as file:
            tokenizer = json.load(file)
        merges, vocab = tokenizer["model"]["merges"][:8], tokenizer["model"]["vocab"]  # few of both are changed sooner
        texts = {part for merge in merges for part in (merge.split(" ") if isinstance(merge, str) else merge)}
        kept = {text: number for text, number in vocab.items() if number < 40 or text in texts or len(text) < 4}
        tokenizer["model"] |= {"vocab": kept, "merges": [m for m in merges if "".join(m.split(" ") if isinstance(m, str) else m) in kept]}
        yield json.dumps(tokenizer, ensure_ascii=False).encode()
    folder = os.path.join(ROOT, "test", "tokenizers", "kimi")
    yield b"\n".join(open(os.path.join(folder, name), "rb").read() for name in ("tiktoken.model", "tokenizer_config.json"))
    yield open(os.path.join(ROOT, "test", "tokenizers", "rwkv", "rwkv_vocab_v20230424.txt"), "rb").read()


def template_seeds():
    for path in sorted(glob.glob(os.path.join(ROOT, "test", "templates", "*.jinja"))):
        with open(path, "rb") as file:
            yield file.read()
    with open(os.path.join(ROOT, "test", "templates", "language.jsonl"), encoding="utf-8") as file:
        yield from (json.loads(line)["template"].encode() for line in file.readlines()[1:])


def pattern_seeds():
    text = "\nThe braid's  3 strands,\r\n\tof 1234.5 \u00e9\u4e2d\u6587 ab"
    for expression in (r"(?i:'s|'t)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
                       r"[\p{Lu}\p{Ll}&&[^\p{Han}]]+|\p{Han}", r"(?m:.)x{,3}|[[:alpha:]_]+\h", r"\w+|[^\w\s]+|\u4e2d", r"(a|b*)+c|^|$"):
        yield (expression + text).encode()


def request_seeds():
    common = {"model": "m", "temperature": 0.5, "top_p": 0.9, "top_k": 4, "seed": 3, "n": 2, "stop": ["a", "b"], "stream": True, "stream_options": {"include_usage": True},
              "max_tokens": 9, "ignore_eos": True, "return_token_ids": True, "presence_penalty": 0.5, "min_p": 0.1, "logit_bias": {"3": -1}, "response_format": {"type": "text"}, "user": None}
    yield json.dumps(common | {"prompt": ["text", [1, 2]], "echo": True, "best_of": 2, "suffix": ""}).encode()
    messages = [{"role": "user", "content": [{"type": "text", "text": "a"}]}, {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{\"x\": [1]}"}}]}]
    yield json.dumps(common | {"messages": messages, "tools": [{"type": "function"}], "documents": [], "chat_template_kwargs": {"x": 1}, "logprobs": True, "top_logprobs": 3,
                               "tool_choice": "auto", "max_completion_tokens": 9}).encode()


def program_seeds(work):
    source, program = os.path.join(work, "seed.mlir"), os.path.join(work, "seed.braid")
    with open(source, "w", encoding="utf-8") as file:
        file.write(MODULE)
    subprocess.run(["braid-compile", source, "-o", program], check=True)
    with open(program, "rb") as file:
        yield file.read()[:-TRAILER]
    # Two stages of a pipeline, which exchange.
    source = os.path.join(work, "stages.json")
    with open(source, "w", encoding="utf-8") as file:
        json.dump(STAGES, file)
    subprocess.run(["braid-compile", source, "-o", program, "--mesh=pp=2", "--micro-batches=2", "--opt-level=0"], check=True)
    with open(program, "rb") as file:
        yield file.read()[:-TRAILER]


STAGES = {"vocab_size": 8, "d_model": 16, "num_layers": 2, "layer_pattern": "L-", "mixers": {"L": {"kind": "lightning", "heads": 1, "head_dim": 16}},
          "ffn_pattern": "-D", "ffns": {"D": {"kind": "dense", "hidden": 16}}, "train": {"batch": 2, "seq_len": 8}}


# What recurrences can say and models/ does not: several states, gradient steps, outputs, formulas.
EQUATIONS = [
    ("M = exp(g) M + k^T v; z = z exp(g) + k^T", "o = (q M) / (q z)", {"k": "taylor(linear(x))", "y": "linear(x)", "q": "taylor(y)"}, {}),
    ("M = diag(exp(g + i p)) M + k^T v", "o = layer_norm(q M_prev + v inner(u q, k), n.w, n.b, 1e-6) silu(k)",
     {"y": "x + m (shift(x) - x)", "k": "linear(y)", "p": "low_rank(y, 3, tanh)", "g": "log_sigmoid(linear(x), l)"},
     {"m": {"uniform": [-1, 1]}, "u": 1, "n.w": 1, "n.b": 0, "l": {"values": "(head + layer) / (heads + layers)"}}),
    ("M = diag(exp(g + i p)) M + (k + i p)^T v", "o = gelu(join(1 M) + d x)", {"g": "-exp(s)", "p": "s / 2", "k": "sin(p) - p", "v": "split(x)"},
     {"s": {"initial": "pi key"}, "d": {"normal": 1, "per": "model"}}),
    ("M = M - p r grad(l2(layer_norm(k M, a, b) - v)); M_0 = w", "o = join(q M + first(v))",
     {"r": "sigmoid(linear(x))", "p": "position_rate(t)", "k": "with_one(rope(conv(linear(x)), 4))", "q": "with_one(linear(x))"},
     {"t": 0, "a": {"initial": "1 / (value + 1)"}, "b": 0, "w": {"normal": 0.1}}),
]


def stated(state, output, inputs, parameters):
    named = lambda name: name in "kv" or f"exp({name}" in state or f"{name} M" in output
    inputs = inputs | {name: "linear(x)" for name in "qkvg" if name not in inputs and named(name)}
    mixer = {"kind": "recurrence", "heads": 2, "head_dim": 8, "state": state, "output": output, "inputs": inputs, "parameters": parameters}
    return {"vocab_size": 9, "d_model": 16, "num_layers": 2, "layer_pattern": "R", "mixers": {"R": mixer},
            "ffns": {"D": {"kind": "dense", "hidden": 8}}}


def description_seeds():
    for equation in EQUATIONS:
        yield json.dumps(stated(*equation)).encode()
    for family in ("llama", "mistral", "mixtral", "qwen2", "qwen3", "qwen3_moe"):  # configs of transformers
        yield json.dumps({"model_type": family, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
                          "num_key_value_heads": 2, "vocab_size": 64, "rope_parameters": {"rope_type": "default"}}).encode()
    one_part = {"vocab_size": 64, "hidden_size": 32, "time_step_limit": [0.0, float("inf")]}  # written as Infinity
    yield json.dumps(one_part | {"model_type": "mamba2", "num_heads": 4, "head_dim": 16, "n_groups": 2, "num_hidden_layers": 2}).encode()
    yield json.dumps(one_part | {"model_type": "nemotron_h", "hybrid_override_pattern": "M-*E", "mamba_num_heads": 8, "n_group": 2, "topk_group": 1,
                                 "n_routed_experts": 4, "moe_latent_size": 16}).encode()
    yield json.dumps({"model_type": "zamba2", "vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 3, "layers_block_type": ["hybrid", "mamba", "hybrid"],
                      "num_mem_blocks": 2, "num_attention_heads": 4, "n_mamba_heads": 4, "adapter_rank": 2, "use_shared_attention_adapter": True,
                      "use_mem_rope": True, "rope_theta": 500, "time_step_limit": None}).encode()
    small = {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "head_dim": 8}
    yield json.dumps(small | {"model_type": "minimax", "layer_types": ["linear_attention", "full_attention"], "mlp_beta_factor": 0.5}).encode()
    yield json.dumps(small | {"model_type": "glm4_moe", "n_shared_experts": 2, "n_group": 8, "topk_group": 4, "use_qk_norm": True}).encode()
    latent = small | {"kv_lora_rank": 16, "q_lora_rank": None, "num_experts_per_tok": 2, "rope_scaling": {
        "type": "yarn", "factor": 4, "mscale": 0.7, "mscale_all_dim": 0.7, "original_max_position_embeddings": 64}}
    yield json.dumps(latent | {"model_type": "deepseek_v2", "topk_method": "group_limited_greedy", "n_group": 8, "topk_group": 4}).encode()
    yield json.dumps(latent | {"model_type": "deepseek_v3", "rope_interleave": False, "first_k_dense_replace": 1}).encode()
    lists = {"full_attn_layers": [2], "kda_layers": [1], "num_heads": 4, "head_dim": 8, "short_conv_kernel_size": 3}
    yield json.dumps(small | {"model_type": "kimi_linear", "linear_attn_config": lists, "mlp_layer_types": ["dense", "sparse"]}).encode()
    yield json.dumps(small | {"model_type": "minimax_m2", "num_local_experts": 4, "rotary_dim": 4, "attn_type_list": [1, 1]}).encode()
    yield json.dumps(small | {"model_type": "jamba", "num_experts": 4, "attn_layer_period": 2, "attn_layer_offset": 1, "mamba_dt_rank": "auto"}).encode()
    yield json.dumps(small | {"model_type": "gemma3_text", "layer_types": ["sliding_attention", "full_attention"], "rope_local_base_freq": 100.0,
                              "rope_parameters": {"full_attention": {"rope_type": "linear", "factor": 2.0}, "sliding_attention": None}}).encode()
    yield json.dumps(small | {"model_type": "gpt_oss", "num_local_experts": 4, "attention_bias": False, "sliding_window": 8}).encode()
    yield json.dumps(small | {"model_type": "olmo3", "layer_types": ["sliding_attention", "full_attention"], "sliding_window": 8,
                              "rope_scaling": {"rope_type": "yarn", "factor": 2, "original_max_position_embeddings": 64}}).encode()
    yield json.dumps(small | {"model_type": "exaone4", "sliding_window": 8, "sliding_window_pattern": 2}).encode()
    yield json.dumps(small | {"model_type": "phi3", "partial_rotary_factor": 0.5, "resid_pdrop": 0.0, "sliding_window": None}).encode()
    yield json.dumps(small | {"model_type": "glm4", "attention_bias": False, "rope_parameters": {"partial_rotary_factor": 0.5}}).encode()
    yield json.dumps(small | {"model_type": "ernie4_5_moe", "moe_num_experts": 4, "moe_k": 2, "moe_layer_interval": 2, "moe_layer_end_index": -1}).encode()
    for path in sorted(glob.glob(os.path.join(ROOT, "models", "*.json"))):
        with open(path, "rb") as file:
            yield file.read()


def module_seeds():
    yield MODULE.encode()
    for path in sorted(glob.glob(os.path.join(ROOT, "test", "dialects", "*.mlir"))):
        if path.endswith("-invalid.mlir"):
            continue
        with open(path, "rb") as file:
            for part in file.read().split(b"// -----")[:4]:
                yield part


def seeds(target, work):
    made = {"npy": npy_seeds, "safetensors": safetensors_seeds, "checkpoint-index": index_seeds, "import": import_seeds, "data": data_seeds,
            "tokenizer": tokenizer_seeds, "template": template_seeds, "pattern": pattern_seeds, "request": request_seeds, "program": lambda: program_seeds(work), "description": description_seeds, "module": module_seeds}
    corpus = os.path.join(work, target)
    shutil.rmtree(corpus, ignore_errors=True)
    os.makedirs(corpus)
    for i, content in enumerate(made[target]()):
        with open(os.path.join(corpus, f"seed-{i:03}"), "wb") as file:
            file.write(content)
    return corpus


def run(target, arguments):
    corpus = seeds(target, arguments.work)
    runs = max(1, int(arguments.runs * SHARE.get(target, 1)))
    command = [f"braid-fuzz-{TARGETS[target]}", f"--target={target}", corpus, f"-runs={runs}", f"-seed={arguments.seed}",
               f"-artifact_prefix={arguments.work}/{target}-", *LIMITS]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    output = (done.stdout + done.stderr).decode(errors="replace")
    executed = re.search(r"number_of_executed_units: (\d+)", output)
    if done.returncode != 0 or not executed:
        print(f"{target}: exit status {done.returncode}\n{output[-4000:]}")
        return False
    peak = re.search(r"peak_rss_mb: *(\d+)", output)
    coverage = re.findall(r"cov: (\d+)", output)
    print(f"{target}: {executed.group(1)} inputs, no crash, hang or large allocation "
          f"(coverage {coverage[-1] if coverage else '?'}, peak memory {peak.group(1) if peak else '?'} MB)", flush=True)
    return True


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--work", default="fuzz")
    parser.add_argument("targets", nargs="*")
    arguments = parser.parse_args()
    arguments.targets = arguments.targets or list(TARGETS)
    unknown = [t for t in arguments.targets if t not in TARGETS]
    if unknown:
        parser.error(f"no target {unknown[0]}; there are {', '.join(TARGETS)}")
    os.makedirs(arguments.work, exist_ok=True)
    return 0 if all([run(target, arguments) for target in arguments.targets]) else 1


sys.exit(main())
