"""The models of paper 000 (appendix D): GPT-2's and LLaMA 3's architectures, to be trained."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint


@dataclass(frozen=True)
class Shape:
    """Sizes of a model. `groups` are a LLaMA's heads of keys and values, 0 makes a GPT; `hidden` is
    the width of its perceptron, four times the model's in a GPT."""

    layers: int
    width: int
    heads: int
    context: int
    vocabulary: int
    groups: int = 0
    hidden: int = 0

    @property
    def is_llama(self) -> bool:
        """True for a LLaMA, false for a GPT."""
        return self.groups > 0


PRECISIONS = {"bf16": torch.bfloat16, "fp16": torch.float16}
SHAPES = {
    "gpt-125m": Shape(12, 768, 12, 1024, 50257),
    "gpt-355m": Shape(24, 1024, 16, 1024, 50257),
    "llama-1b": Shape(16, 2048, 32, 8192, 32000, groups=8, hidden=8192),
    "llama-3b": Shape(28, 3072, 24, 8192, 32000, groups=8, hidden=8192),
    "gpt-tiny": Shape(2, 64, 2, 64, 512),
    "llama-tiny": Shape(2, 64, 4, 64, 512, groups=2, hidden=128),
}


class GptBlock(nn.Module):
    """Attention, then a perceptron; each follows a norm, and its result is added to its input."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.heads = shape.heads
        self.norms = nn.ModuleList(nn.LayerNorm(shape.width) for _ in range(2))
        self.mixed = nn.Linear(shape.width, 3 * shape.width)
        self.projected = nn.Linear(shape.width, shape.width)
        self.wide = nn.Linear(shape.width, 4 * shape.width)
        self.narrow = nn.Linear(4 * shape.width, shape.width)

    def forward(self, x: Tensor) -> Tensor:
        """Takes and returns (batch, length, width)."""
        batch, length, _ = x.shape
        parts = self.mixed(self.norms[0](x)).view(batch, length, 3, self.heads, -1)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.projected(seen.transpose(1, 2).reshape(batch, length, -1))
        return x + self.narrow(F.gelu(self.wide(self.norms[1](x))))


class LlamaBlock(nn.Module):
    """Attention by groups of heads over rotated queries and keys, and a gated perceptron."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        size = shape.width // shape.heads
        self.size = size
        self.norms = nn.ModuleList(nn.RMSNorm(shape.width) for _ in range(2))
        self.query = nn.Linear(shape.width, shape.width, bias=False)
        self.key = nn.Linear(shape.width, shape.groups * size, bias=False)
        self.value = nn.Linear(shape.width, shape.groups * size, bias=False)
        self.projected = nn.Linear(shape.width, shape.width, bias=False)
        self.gate = nn.Linear(shape.width, shape.hidden, bias=False)
        self.wide = nn.Linear(shape.width, shape.hidden, bias=False)
        self.narrow = nn.Linear(shape.hidden, shape.width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Takes and returns (batch, length, width)."""
        batch, length, width = x.shape
        normed = self.norms[0](x)
        query, key, value = (
            part(normed).view(batch, length, -1, self.size).transpose(1, 2)
            for part in (self.query, self.key, self.value)
        )
        seen = F.scaled_dot_product_attention(
            rotate(query), rotate(key), value, is_causal=True, enable_gqa=True
        )
        x = x + self.projected(seen.transpose(1, 2).reshape(batch, length, width))
        normed = self.norms[1](x)
        return x + self.narrow(F.silu(self.gate(normed)) * self.wide(normed))


def rotate(x: Tensor) -> Tensor:
    """Rotates pairs of (batch, heads, length, size) by their place."""
    length, half = x.shape[2], x.shape[3] // 2
    rates = 500_000 ** -(torch.arange(half, device=x.device) / half)
    angles = torch.arange(length, device=x.device)[:, None] * rates
    cosine, sine = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    first, second = x[..., :half], x[..., half:]
    return torch.cat([first * cosine - second * sine, first * sine + second * cosine], -1)


class Model(nn.Module):
    """The loss of predicting each next token: the sum over all of them.

    With `recompute` a block's activations are computed again in the backward pass.
    """

    def __init__(self, shape: Shape, *, recompute: bool = False) -> None:
        super().__init__()
        self.recompute = recompute
        block = LlamaBlock if shape.is_llama else GptBlock
        norm = nn.RMSNorm if shape.is_llama else nn.LayerNorm
        self.tokens = nn.Embedding(shape.vocabulary, shape.width)
        self.places = None if shape.is_llama else nn.Embedding(shape.context, shape.width)
        self.blocks = nn.ModuleList(block(shape) for _ in range(shape.layers))
        self.norm = norm(shape.width)
        for weight in self.parameters():
            if weight.dim() > 1:
                nn.init.normal_(weight, std=0.02)

    def forward(self, text: Tensor) -> Tensor:
        """Returns the loss of (batch, length + 1) tokens."""
        inputs, targets = text[:, :-1], text[:, 1:]
        x = self.tokens(inputs)
        if self.places is not None:
            x = x + self.places.weight[: inputs.shape[1]]
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.recompute else block(x)
        logits = F.linear(self.norm(x), self.tokens.weight)
        return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten(), reduction="sum")
