"""A Llama-style block, trained twice from the same weights: with torch's linear layers, and patched.

    python examples/library_llama.py [--steps 50] [--dtype bf16|fp32] [--tokens 2048] [--out FILE.json]

The block is the real one (RMSNorm, rotary positions, grouped-query attention, SwiGLU), with Llama-3-8B's proportions
scaled by ``--width``. Both runs see the same data, turn by turn; the losses must agree within what the type allows. A
step's time is the median over the second half of the steps, of forward, backward and optimiser together.
"""

from __future__ import annotations

import argparse
import copy
import json
import platform
import statistics
import sys
import time
from pathlib import Path

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


def choices(model: nn.Module, rows: int, dtype: str) -> dict[str, str]:
    """What the library runs for each linear layer's forward product."""
    return {
        name: rungemm.explain_dispatch(
            (rows, layer.out_features, layer.in_features), dtype=dtype, layout="NT", precision="ieee"
        ).chosen.name
        for name, layer in model.named_modules()
        if isinstance(layer, nn.Linear)
    }


def synchronize(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--dtype", choices=("bf16", "fp32"), default="bf16")
    parser.add_argument("--tokens", type=int, default=0, help="of a sequence; two sequences a step")
    parser.add_argument("--width", type=int, default=0)
    parser.add_argument("--out", type=Path, help="write losses and times of every step as JSON")
    arguments = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    width = arguments.width or (1024 if device == "cuda" else 128)
    tokens = arguments.tokens or (2048 if device == "cuda" else 32)
    dtype = {"bf16": torch.bfloat16, "fp32": torch.float32}[arguments.dtype]
    torch.manual_seed(0)
    plain = Model(width, 2, 8192 if device == "cuda" else 256).to(device, dtype)
    patched = rungemm.patch(copy.deepcopy(plain))
    models = {"torch": plain, "patched": patched}
    optimisers = {name: torch.optim.AdamW(model.parameters(), lr=3e-4) for name, model in models.items()}
    losses: dict[str, list[float]] = {name: [] for name in models}
    spent: dict[str, list[float]] = {name: [] for name in models}
    vocabulary = plain.head.out_features
    for step in range(arguments.steps):
        # Text with patterns to learn: a sixteenth of the words, each the one before it plus a constant of the sequence.
        start, stride = torch.randint(vocabulary // 16, (2, 2, 1), device=device)
        text = (start + stride * torch.arange(tokens + 1, device=device)) % (vocabulary // 16)
        for name in ("torch", "patched") if step % 2 else ("patched", "torch"):
            synchronize(device)
            begin = time.perf_counter()
            logits = models[name](text[:, :-1])
            loss = F.cross_entropy(logits.float().flatten(0, 1), text[:, 1:].flatten())
            optimisers[name].zero_grad()
            loss.backward()
            optimisers[name].step()
            synchronize(device)
            spent[name].append(time.perf_counter() - begin)
            losses[name].append(loss.item())
    worst = max(abs(x - y) / abs(x) for x, y in zip(losses["torch"], losses["patched"], strict=True))
    half = arguments.steps // 2
    times = {name: 1e3 * statistics.median(values[half:]) for name, values in spent.items()}
    for name in models:
        print(f"{name:8} loss {losses[name][0]:.4f} -> {losses[name][-1]:.4f}, {times[name]:.2f} ms a step")
    allowed = 0.03 if dtype == torch.bfloat16 else 0.002
    print(f"losses differ by at most {worst:.2%} (allowed {allowed:.1%}); "
          f"the patched step takes {times['patched'] / times['torch']:.3f} of torch's time")  # fmt: skip
    right = worst <= allowed and losses["patched"][-1] < losses["patched"][0]
    if arguments.out:
        document = {
            "what": "training a Llama-style model with torch's linear layers and with rungemm.patch",
            "card": torch.cuda.get_device_name() if device == "cuda" else platform.processor(),
            "torch": torch.__version__, "python": platform.python_version(),
            "command": "python examples/library_llama.py " + " ".join(sys.argv[1:]),
            "dtype": arguments.dtype, "steps": arguments.steps, "tokens": 2 * tokens, "width": width,
            "losses": losses, "ms": {name: [1e3 * value for value in values] for name, values in spent.items()},
            "median_ms": times, "patched_over_torch": times["patched"] / times["torch"],
            "losses_differ_by": worst, "allowed": allowed, "losses_agree": right,
            "forward_kernels": choices(patched, 2 * tokens, arguments.dtype),
        }  # fmt: skip
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(json.dumps(document, indent=1) + "\n")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
