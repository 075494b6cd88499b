"""Linear attention of flash-linear-attention on the shapes of tools/bundle --scans: batch 1, bf16, heads of 128.

    scans.py [--tokens=8192,32768] [--heads=16,32,64] [--output=FILE.json] [--only=TEXT] [--warm] [--check]

Every function is compared with the recurrence in float64, forward and gradients, on a short case before it is timed. What the library
refuses on this machine is a row that says so.
"""

import sys

import fla
import torch
import triton
from fla.ops.gated_delta_rule import chunk_gated_delta_rule
from fla.ops.generalized_delta_rule import chunk_dplr_delta_rule
from fla.ops.gla import chunk_gla
from fla.ops.kda import chunk_kda
from fla.ops.simple_gla import chunk_simple_gla
from peers import Results, arguments, relative_error

WIDTH, SHORT, LIMIT = 128, 200, 2e-2
CALLS = {
    "S": (("g",), lambda x: chunk_simple_gla(x["q"], x["k"], x["v"], g=x["g"])[0]),
    "V": (("gk",), lambda x: chunk_gla(x["q"], x["k"], x["v"], x["gk"])[0]),
    "GH": (("g", "beta"), lambda x: chunk_gated_delta_rule(x["q"], x["k"], x["v"], g=x["g"], beta=x["beta"])[0]),
    "VH": (("gk", "beta"), lambda x: chunk_kda(x["q"], x["k"], x["v"], g=x["gk"], beta=x["beta"])[0]),
    "D": (("gk", "a", "b"), lambda x: chunk_dplr_delta_rule(x["q"], x["k"], x["v"], x["a"], x["b"], x["gk"], scale=WIDTH**-0.5)[0]),
}


def operands(kind, tokens, heads):
    """Of the sizes that tools/gpu-check draws: signs at random, keys about 1 long, log decays of -1/2 to -1/8."""
    draw = lambda low, high, *more: torch.empty(1, tokens, heads, *more, device="cuda").uniform_(low, high)
    signed = lambda size: draw(size / 4, size, WIDTH) * (torch.randint(0, 2, (1, tokens, heads, WIDTH), device="cuda") * 2 - 1)
    made = {"q": signed(0.5), "k": signed(0.125), "v": signed(0.5), "a": signed(0.125), "b": signed(0.125),
            "g": draw(-0.5, -0.125), "gk": draw(-0.5, -0.125, WIDTH), "beta": draw(0.125, 0.5)}
    wide = ("g", "gk", "beta")
    return {n: made[n].to(torch.float32 if n in wide else torch.bfloat16).requires_grad_() for n in ("q", "k", "v", *CALLS[kind][0])}


def recurrence(kind, x):
    """The definition, token by token: row vectors, a state [heads, key, value]."""
    q, k, v = (x[n][0] for n in "qkv")
    state, out = torch.zeros(q.shape[1], WIDTH, WIDTH, dtype=q.dtype, device=q.device), []
    row = lambda t: t[:, None, :]
    for t in range(q.shape[0]):
        decay = x["gk"][0, t].exp()[:, :, None] if "gk" in x else x["g"][0, t].exp()[:, None, None]
        if kind == "D":
            state = decay * state + row(x["b"][0, t]).mT @ (row(x["a"][0, t]) @ state)
        else:
            state = decay * state
        write = row(v[t])
        if kind in ("GH", "VH"):
            write = x["beta"][0, t][:, None, None] * (write - row(k[t]) @ state)
        state = state + row(k[t]).mT @ write
        out.append((row(q[t]) @ state)[:, 0] * WIDTH**-0.5)
    return torch.stack(out)[None]


def error_of(kind, gradient):
    def error():
        torch.manual_seed(7)
        x = operands(kind, SHORT, 2)
        exact = {n: value.detach().double().requires_grad_() for n, value in x.items()}
        out, wanted = CALLS[kind][1](x), recurrence(kind, exact)
        worst = relative_error(out, wanted)
        if gradient:
            cotangent = torch.randn_like(wanted).bfloat16()
            out.backward(cotangent)
            wanted.backward(cotangent.double())
            worst = max(worst, *(relative_error(x[n].grad, exact[n].grad) for n in x))
        return worst

    return error


def main():
    options = arguments(__doc__, tokens=[8192, 32768], heads=[16, 32, 64])
    results = Results(options, f"flash-linear-attention {fla.__version__}, Triton {triton.__version__}, PyTorch {torch.__version__}")
    for tokens in options.tokens:
        for kind in CALLS:
            for heads in options.heads:
                x = operands(kind, tokens, heads)
                cotangent = torch.randn(1, tokens, heads, WIDTH, device="cuda", dtype=torch.bfloat16)

                def forward():
                    with torch.no_grad():
                        CALLS[kind][1](x)

                def both():
                    torch.autograd.grad(CALLS[kind][1](x), list(x.values()), cotangent)

                label = f"scan {kind}, {tokens} tokens, {heads} heads of {WIDTH}, forward"
                results.add(label, forward, error_of(kind, gradient=False), LIMIT)
                results.add(f"{label} and gradient", both, error_of(kind, gradient=True), LIMIT)
    return results.status


if __name__ == "__main__":
    sys.exit(main())
