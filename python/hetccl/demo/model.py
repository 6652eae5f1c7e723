"""A small GPT over bytes: pre-norm transformer blocks with learned positions."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True)
class Shape:
    """Sizes of the model. The defaults make 1.9 million parameters."""

    vocabulary: int = 256
    context: int = 64
    width: int = 192
    layers: int = 4
    heads: int = 6

    def __post_init__(self) -> None:
        if self.width % self.heads:
            raise ValueError(f"width {self.width} is no multiple of {self.heads} heads")


class Attention(nn.Module):
    """Causal self-attention over (batch, context, width)."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.heads = shape.heads
        self.qkv = nn.Linear(shape.width, 3 * shape.width, bias=False)
        self.out = nn.Linear(shape.width, shape.width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Returns a tensor of the shape of `x`."""
        batch, length, width = x.shape
        heads = self.qkv(x).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = heads.permute(2, 0, 3, 1, 4)
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        mixed: Tensor = self.out(y.transpose(1, 2).reshape(batch, length, width))
        return mixed


class Block(nn.Module):
    """Attention, then two linear layers; each follows a norm, and adds its result to its input."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(shape.width), nn.LayerNorm(shape.width)
        self.attention = Attention(shape)
        self.up = nn.Linear(shape.width, 4 * shape.width, bias=False)
        self.down = nn.Linear(4 * shape.width, shape.width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Returns a tensor of the shape of `x`."""
        x = x + self.attention(self.norm1(x))
        grown: Tensor = x + self.down(functional.gelu(self.up(self.norm2(x))))
        return grown


class GPT(nn.Module):
    """Predicts the next byte. Weights depend on `seed` alone."""

    def __init__(self, shape: Shape, seed: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(shape.vocabulary, shape.width)
        self.positions = nn.Embedding(shape.context, shape.width)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.norm = nn.LayerNorm(shape.width)
        self.head = nn.Linear(shape.width, shape.vocabulary, bias=False)
        generator = torch.Generator().manual_seed(seed)
        for parameter in self.parameters():
            if parameter.dim() > 1:  # norms keep their ones and zeros
                nn.init.normal_(parameter, std=0.02, generator=generator)

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        """Returns the mean cross-entropy of `targets` in nats; both are int64 (batch, length)."""
        x = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
