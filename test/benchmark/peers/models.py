"""A training step of transformers as near to Linear-MoE A0.3B-2B as its models come: MiniMax (lightning attention with a decay for each head, softmax
attention in every fourth layer, 64 experts of which a token uses 8), bf16, AdamW fused.

    models.py [--batch=8,4,2,1] [--output=FILE.json] [--only=TEXT] [--warm]

16,384 tokens a step. Not the same model: its linear layers have no learned gates, and its parameters differ from A0.3B-2B's by that.
"""

import torch
import transformers
from peers import Results, arguments
from transformers import MiniMaxConfig, MiniMaxForCausalLM

TOKENS = 16384


def model():
    kinds = ["linear_attention", "linear_attention", "linear_attention", "full_attention"] * 3
    config = MiniMaxConfig(vocab_size=151936, hidden_size=1024, intermediate_size=896, num_hidden_layers=12, num_attention_heads=8, num_key_value_heads=8,
                           head_dim=128, num_local_experts=64, num_experts_per_tok=8, layer_types=kinds, use_cache=False, tie_word_embeddings=False)
    torch.manual_seed(0)
    with torch.device("cuda"):
        return MiniMaxForCausalLM(config).to(torch.bfloat16).train()


def main():
    options = arguments(__doc__, batch=[8, 4, 2, 1])
    results = Results(options, f"transformers {transformers.__version__}, PyTorch {torch.__version__}")
    trained = model()
    optimizer = torch.optim.AdamW(trained.parameters(), lr=1e-4, fused=True)
    for batch in options.batch:
        tokens = torch.randint(0, 151936, (batch, TOKENS // batch), device="cuda")

        def step():
            optimizer.zero_grad(set_to_none=True)
            trained(input_ids=tokens, labels=tokens).loss.backward()
            torch.nn.utils.clip_grad_norm_(trained.parameters(), 1.0)
            optimizer.step()

        results.add(f"train/minimax-a0.3b-2b-bf16-{batch}x{TOKENS // batch}", step)


if __name__ == "__main__":
    main()
