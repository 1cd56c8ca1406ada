"""Trains a small causal transformer on sequences from a random Markov chain."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    """Pre-norm causal self-attention and an MLP."""

    def __init__(self, width: int, heads: int, dropout: float):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(dropout)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        qkv = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(attended.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.norm2(x))


class TransformerLM(nn.Module):
    def __init__(self, vocab: int, context: int, width: int, depth: int, heads: int, dropout: float):
        super().__init__()
        self.tokens = nn.Embedding(vocab, width)
        self.positions = nn.Parameter(0.02 * torch.randn(context, width))
        self.blocks = nn.ModuleList(Block(width, heads, dropout) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocab, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens) + self.positions[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class MarkovText:
    """Batches of token sequences; each token depends on the one before it."""

    def __init__(self, vocab: int, seed: int):
        self.generator = torch.Generator().manual_seed(seed)
        logits = 3.0 * torch.randn(vocab, vocab, generator=self.generator)
        self.transitions = logits.softmax(dim=1)

    def batch(self, size: int, length: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Inputs and next-token targets, both [size, length]."""
        vocab = self.transitions.shape[0]
        tokens = [torch.randint(vocab, (size,), generator=self.generator)]
        for _ in range(length):
            row = self.transitions[tokens[-1]]
            tokens.append(torch.multinomial(row, 1, generator=self.generator).squeeze(1))
        text = torch.stack(tokens, dim=1)
        return text[:, :-1], text[:, 1:]


def parse_args(argv=None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=24, help="micro-batches, not optimizer steps")
    parser.add_argument("--accumulation", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--context", type=int, default=32)
    parser.add_argument("--vocab", type=int, default=48)
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--depth", type=int, default=2)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--grad-clip", type=float, default=1.0)
    parser.add_argument("--no-amp", dest="amp", action="store_false", help="train in float32")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args(argv)


def main(argv=None) -> list[float]:
    args = parse_args(argv)
    torch.manual_seed(args.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

    text = MarkovText(args.vocab, args.seed)
    model = TransformerLM(args.vocab, args.context, args.width, args.depth, args.heads, args.dropout).to(
        device
    )
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.1)
    scaler = torch.cuda.amp.GradScaler(init_scale=2.0**14, enabled=args.amp)

    losses = []
    optimizer.zero_grad()
    for step in range(args.steps):
        inputs, targets = text.batch(args.batch_size, args.context)
        inputs, targets = inputs.to(device), targets.to(device)

        with torch.cuda.amp.autocast(args.amp):
            logits = model(inputs)
            # cross entropy over the whole vocabulary stays in float32
            with torch.autocast("cuda", enabled=False):
                loss = criterion(logits.float().flatten(0, 1), targets.flatten())

        scaler.scale(loss / args.accumulation).backward()
        losses.append(loss.item())
        print(f"step {step} loss {losses[-1]:.4f}")

        if (step + 1) % args.accumulation == 0:
            nn.utils.clip_grad_norm_(model.parameters(), args.grad_clip)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
    return losses


if __name__ == "__main__":
    main()
