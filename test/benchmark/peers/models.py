"""A training step of transformers as near to Linear-MoE A0.3B-2B as its models come: MiniMax (lightning attention with a decay for each head, softmax
attention in every fourth layer, 64 experts of which a token uses 8), bf16, AdamW fused.

    models.py [--batch=8,4,2,1] [--output=FILE.json] [--only=TEXT] [--warm] [--check]

16,384 tokens a step. Not the same model: its linear layers have no learned gates, and its parameters differ from A0.3B-2B's by that. Before anything is
timed, logits and gradients of a small one in bf16 are compared with float64, where its linear layers go token by token and its experts one by one;
--check does that alone, also without a GPU.
"""

import functools
import sys

import torch
import transformers
from peers import Results, arguments, relative_error
from transformers import MiniMaxConfig, MiniMaxForCausalLM

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
TOKENS, LIMIT = 16384, 2e-2
PERIOD = ["linear_attention"] * 3 + ["full_attention"]
LARGE = {"vocab_size": 151936, "hidden_size": 1024, "intermediate_size": 896, "num_attention_heads": 8, "num_key_value_heads": 8, "head_dim": 128,
         "num_local_experts": 64, "num_experts_per_tok": 8, "layer_types": PERIOD * 3}
SMALL = {"vocab_size": 512, "hidden_size": 64, "intermediate_size": 56, "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 32,
         "num_local_experts": 8, "num_experts_per_tok": 2, "layer_types": PERIOD}
SMALL_BATCH = (2, 600)  # some blocks of the linear layers (256 tokens), and a part of one


def model(sizes, dtype, device, **more):
    config = MiniMaxConfig(**sizes, num_hidden_layers=len(sizes["layer_types"]), use_cache=False, tie_word_embeddings=False, **more)
    torch.manual_seed(0)
    with torch.device(device):
        return MiniMaxForCausalLM(config).to(dtype).train()


def tokens_of(sizes, batch, tokens):
    return torch.randint(0, sizes["vocab_size"], (batch, tokens), generator=torch.Generator().manual_seed(1)).to(DEVICE)


def optimizer_of(made):
    return torch.optim.AdamW(made.parameters(), lr=1e-4, fused=True)


def step_of(made, optimizer, tokens):
    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = made(input_ids=tokens, labels=tokens).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(made.parameters(), 1.0)
        optimizer.step()
        return loss.detach()

    return step


@functools.cache
def error():
    """Of logits and of all gradients of the small model together, the larger one; raises where a few steps do not make its loss smaller."""
    exact = model(SMALL, torch.float64, "cpu", block_size=1, experts_implementation="eager")
    rounded = model(SMALL, torch.float32, "cpu").to(DEVICE, torch.bfloat16)  # the same draws: a GPU's would be others
    tokens, found = tokens_of(SMALL, *SMALL_BATCH), []
    for of, batch in ((rounded, tokens), (exact, tokens.cpu())):
        out = of(input_ids=batch, labels=batch)
        out.loss.backward()
        found.append((out.logits, torch.cat([parameter.grad.double().cpu().flatten() for parameter in of.parameters()])))
    step = step_of(rounded, optimizer_of(rounded), tokens)
    losses = [float(step()) for _ in range(5)]
    if not losses[-1] < losses[0]:
        raise RuntimeError(f"five steps lead from a loss of {losses[0]:.4f} to {losses[-1]:.4f}: no time counts")
    return max(map(relative_error, *found))


@functools.cache
def large():
    made = model(LARGE, torch.bfloat16, DEVICE)
    return made, optimizer_of(made)


def timed(batch):
    """A step that makes what it needs when it is first asked for: what does not fit is a row that says so."""
    made = functools.cache(lambda: step_of(*large(), tokens_of(LARGE, batch, TOKENS // batch)))
    return lambda: made()()


def main():
    options = arguments(__doc__, check_on_cpu=True, batch=[8, 4, 2, 1])
    results = Results(options, f"transformers {transformers.__version__}, PyTorch {torch.__version__}")
    for batch in options.batch:
        results.add(f"train/minimax-a0.3b-2b-bf16-{batch}x{TOKENS // batch}", timed(batch), error, LIMIT)
    return results.status


if __name__ == "__main__":
    sys.exit(main())
