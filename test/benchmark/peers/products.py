"""Products, experts and attention of PyTorch on the shapes of tools/bundle --products and --attention, in bf16.

    products.py [--tokens=16384] [--output=FILE.json] [--only=TEXT] [--warm] [--check]
"""

import sys

import torch
import torch.nn.functional as functional
from peers import Results, arguments, relative_error
from torch.nn.attention import SDPBackend, sdpa_kernel

WIDTH, HIDDEN, EXPERTS, EACH, HEADS, LIMIT = 1024, 896, 64, 8, 8, 1e-2


def normal(*shape):
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)


def dense(results, tokens):
    x, w = normal(tokens, WIDTH), normal(WIDTH, WIDTH)
    text, flops = f"product of {tokens} x {WIDTH} x {WIDTH}", 2 * tokens * WIDTH * WIDTH
    results.add(text, lambda: x @ w, flops=flops)
    results.add(f"{text}, gradient of its input", lambda: x @ w.mT, flops=flops)
    results.add(f"{text}, gradient of its weight", lambda: x.mT @ x, flops=flops)
    dys, ws = [normal(tokens, WIDTH) for _ in range(4)], [normal(WIDTH, WIDTH) for _ in range(4)]

    def several():
        dx = dys[0] @ ws[0].mT
        for dy, w in zip(dys[1:], ws[1:]):
            dx = torch.addmm(dx, dy, w.mT)
        return dx

    results.add(f"{text}, gradient of the input of four", several, flops=4 * flops)


def grouped(results, tokens):
    rows = tokens * EACH
    x, dy, w = normal(rows, WIDTH), normal(rows, HIDDEN), normal(EXPERTS, WIDTH, HIDDEN)
    ends = torch.arange(1, EXPERTS + 1, device="cuda", dtype=torch.int32) * (rows // EXPERTS)
    text, flops = f"{EXPERTS} experts of {WIDTH} x {HIDDEN}, {rows // EXPERTS} rows each", 2 * rows * WIDTH * HIDDEN
    product = getattr(functional, "grouped_mm", None) or torch._grouped_mm

    def error():
        wanted = torch.cat([part.double() @ w[i].double() for i, part in enumerate(x.split(rows // EXPERTS))])
        return relative_error(product(x, w, offs=ends), wanted)

    results.add(text, lambda: product(x, w, offs=ends), error, LIMIT, flops)
    results.add(f"{text}, gradient of their input", lambda: product(dy, w.mT, offs=ends), flops=flops)
    other, second = normal(rows, HIDDEN), normal(EXPERTS, WIDTH, HIDDEN)
    results.add(f"{text}, gradient of the input of two", lambda: product(dy, w.mT, offs=ends) + product(other, second.mT, offs=ends), flops=2 * flops)
    results.add(f"{text}, gradient of their weights", lambda: product(x.mT, dy, offs=ends), flops=flops)


def attention(results, batch, tokens):
    plain = results.peer
    for backend in (SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION):
        q, k, v = (normal(batch, HEADS, tokens, 128).requires_grad_() for _ in "qkv")
        cotangent = normal(batch, HEADS, tokens, 128)

        def call(q, k, v):
            with sdpa_kernel(backend):
                return functional.scaled_dot_product_attention(q, k, v, is_causal=True)

        def error():
            short = [x[:1, :2, :512].detach().double() for x in (q, k, v)]
            scores = short[0] @ short[1].mT * 128**-0.5
            scores.masked_fill_(torch.ones(512, 512, device="cuda", dtype=torch.bool).triu(1), float("-inf"))
            return relative_error(call(*(x[:1, :2, :512].contiguous() for x in (q, k, v))), scores.softmax(-1) @ short[2])

        def forward():
            with torch.no_grad():
                call(q, k, v)

        results.peer = f"{plain}, {backend.name.lower()}"
        text = f"attention, {batch} x {tokens} tokens, {HEADS} heads of 128, forward"
        flops = batch * tokens * tokens * HEADS * 128
        results.add(text, forward, error, LIMIT, 2 * flops)
        results.add(f"{text} and gradients", lambda: torch.autograd.grad(call(q, k, v), (q, k, v), cotangent), error, LIMIT, 7 * flops)
    results.peer = plain


def main():
    options = arguments(__doc__, tokens=[16384])
    results = Results(options, f"PyTorch {torch.__version__}")
    for tokens in options.tokens:
        dense(results, tokens)
        grouped(results, tokens)
        for batch in (8, 1):
            attention(results, batch, tokens // batch)
    return results.status


if __name__ == "__main__":
    sys.exit(main())
