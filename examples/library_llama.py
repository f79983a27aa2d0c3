"""A Llama-style model, trained twice from the same weights: with torch's linear layers, and patched.

    python examples/library_llama.py [--steps 50] [--dtype bf16|fp32] [--blocks 2] [--tokens 2048] [--width 1024]

The block is the real one (RMSNorm, rotary positions, grouped-query attention, SwiGLU), with Llama-3-8B's proportions
scaled by ``--width``. Both runs see the same data, turn by turn; the losses must agree within what the type allows. A
step's time, of forward, backward and optimiser together, is the median over the second half of the steps;
``benchmarks/llama_step.py`` compares the times with care.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import sys
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import rungemm


class Attention(nn.Module):
    def __init__(self, width: int, heads: int, kv_heads: int) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.size = heads, kv_heads, width // heads
        self.q = nn.Linear(width, width, bias=False)
        self.k = nn.Linear(width, kv_heads * self.size, bias=False)
        self.v = nn.Linear(width, kv_heads * self.size, bias=False)
        self.o = nn.Linear(width, width, bias=False)

    def forward(self, x: Tensor, rotation: tuple[Tensor, Tensor]) -> Tensor:
        batch, tokens, width = x.shape
        q = rotate(self.q(x).view(batch, tokens, self.heads, self.size).transpose(1, 2), rotation)
        k = rotate(self.k(x).view(batch, tokens, self.kv_heads, self.size).transpose(1, 2), rotation)
        v = self.v(x).view(batch, tokens, self.kv_heads, self.size).transpose(1, 2)
        k, v = (t.repeat_interleave(self.heads // self.kv_heads, 1) for t in (k, v))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o(mixed.transpose(1, 2).reshape(batch, tokens, width))


def rotations(tokens: int, size: int, device: str, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Cosines and sines of the rotary positions (Su et al., 2021), base 500000 as in Llama 3."""
    frequencies = 500_000.0 ** (-torch.arange(0, size, 2, device=device) / size)
    angles = torch.outer(torch.arange(tokens, device=device), frequencies).repeat(1, 2)
    return angles.cos().to(dtype), angles.sin().to(dtype)


def rotate(x: Tensor, rotation: tuple[Tensor, Tensor]) -> Tensor:
    left, right = x.chunk(2, -1)
    return x * rotation[0] + torch.cat((-right, left), -1) * rotation[1]


class Mlp(nn.Module):
    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.gate = nn.Linear(width, hidden, bias=False)
        self.up = nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Block(nn.Module):
    def __init__(self, width: int, heads: int, kv_heads: int, hidden: int) -> None:
        super().__init__()
        self.before_attention, self.before_mlp = nn.RMSNorm(width), nn.RMSNorm(width)
        self.attention, self.mlp = Attention(width, heads, kv_heads), Mlp(width, hidden)

    def forward(self, x: Tensor, rotation: tuple[Tensor, Tensor]) -> Tensor:
        x = x + self.attention(self.before_attention(x), rotation)
        return x + self.mlp(self.before_mlp(x))


class Model(nn.Module):
    """Blocks between an embedding and a vocabulary."""

    def __init__(self, width: int, blocks: int, vocabulary: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(Block(width, width // 128 or 1, width // 512 or 1, width * 7 // 2)
                                    for _ in range(blocks))  # fmt: skip
        self.norm = nn.RMSNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.size = width // (width // 128 or 1)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed(tokens)
        rotation = rotations(tokens.shape[1], self.size, str(x.device), x.dtype)
        for block in self.blocks:
            x = block(x, rotation)
        return self.head(self.norm(x))


class Run:
    """Models that start from the same weights and train on the same text, step by step."""

    def __init__(self, arguments: argparse.Namespace, kinds: dict[str, Callable[[nn.Module], nn.Module]]) -> None:
        """``kinds``: what is done to the model of each name, :func:`rungemm.patch` or nothing."""
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.dtype = {"bf16": torch.bfloat16, "fp32": torch.float32}[arguments.dtype]
        self.width = arguments.width or (1024 if self.device == "cuda" else 128)
        self.tokens = arguments.tokens or (2048 if self.device == "cuda" else 32)
        self.vocabulary = 8192 if self.device == "cuda" else 256
        torch.manual_seed(0)
        first = Model(self.width, arguments.blocks, self.vocabulary).to(self.device, self.dtype)
        self.models = {name: kind(copy.deepcopy(first)) for name, kind in kinds.items()}
        self.optimisers = {name: torch.optim.AdamW(m.parameters(), lr=3e-4) for name, m in self.models.items()}

    def text(self) -> Tensor:
        """Two sequences with patterns to learn: each word is the one before it plus a constant of the sequence."""
        words = self.vocabulary // 16
        start, stride = torch.randint(words, (2, 2, 1), device=self.device)
        return (start + stride * torch.arange(self.tokens + 1, device=self.device)) % words

    def step(self, name: str, text: Tensor) -> Tensor:
        """Forward, backward and optimiser of one model; its loss."""
        logits = self.models[name](text[:, :-1])
        loss = F.cross_entropy(logits.float().flatten(0, 1), text[:, 1:].flatten())
        self.optimisers[name].zero_grad()
        loss.backward()
        self.optimisers[name].step()
        return loss.detach()

    def synchronize(self) -> None:
        if self.device == "cuda":
            torch.cuda.synchronize()

    def train(self, steps: int) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
        """Every model's loss at every step, and the step's seconds; who goes first changes from step to step."""
        losses: dict[str, list[float]] = {name: [] for name in self.models}
        seconds: dict[str, list[float]] = {name: [] for name in self.models}
        for step in range(steps):
            text = self.text()
            for name in list(self.models)[:: 1 if step % 2 else -1]:
                self.synchronize()
                begin = time.perf_counter()
                loss = self.step(name, text)
                self.synchronize()
                seconds[name].append(time.perf_counter() - begin)
                losses[name].append(loss.item())
        return losses, seconds


def difference(one: list[float], other: list[float]) -> float:
    """The largest relative difference of two runs' losses."""
    return max(abs(x - y) / abs(x) for x, y in zip(one, other, strict=True))


ALLOWED = {"bf16": 0.03, "fp32": 0.002}
"""How far the losses may be apart: sums in another order round otherwise, and training amplifies it."""


def parser_of(text: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=text)
    parser.add_argument("--steps", type=int, default=50, help="of training, whose losses are compared")
    parser.add_argument("--dtype", choices=tuple(ALLOWED), default="bf16")
    parser.add_argument("--blocks", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=0, help="of a sequence; two sequences a step")
    parser.add_argument("--width", type=int, default=0, help="of the model: 1024 on a card, 128 on a CPU")
    return parser


def parsed(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """The command's arguments; those that no model can have end it with one line."""
    arguments = parser.parse_args()
    for name in ("steps", "blocks"):
        if getattr(arguments, name) < 1:
            parser.error(f"--{name} is {getattr(arguments, name)}: give 1 or more")
    if arguments.width not in (0, 128, 256, 384) and (arguments.width < 0 or arguments.width % 512):
        parser.error(f"--width is {arguments.width}: 4 heads of 128 share a key; give a multiple of 512")
    if arguments.tokens < 0:
        parser.error(f"--tokens is {arguments.tokens}: give 1 or more")
    return arguments


def main() -> int:
    arguments = parsed(parser_of(__doc__.splitlines()[0]))
    run = Run(arguments, {"torch": lambda model: model, "patched": rungemm.patch})
    losses, seconds = run.train(arguments.steps)
    for name, values in losses.items():
        ms = 1e3 * statistics.median(seconds[name][arguments.steps // 2 :])
        print(f"{name:8} loss {values[0]:.4f} -> {values[-1]:.4f}, {ms:.2f} ms a step")
    worst, allowed = difference(*losses.values()), ALLOWED[arguments.dtype]
    print(f"losses differ by at most {worst:.2%} (allowed {allowed:.1%})")
    return 0 if worst <= allowed and losses["patched"][-1] < losses["patched"][0] else 1


if __name__ == "__main__":
    sys.exit(main())
