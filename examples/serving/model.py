"""Decoders in plain torch, with random weights: shaped like Qwen2, or like GPT-2.

Equal inputs give equal bits, whatever else a batch holds: `decode` has a fixed number of rows,
because a matrix product with another number of rows may add in another order, and attention runs
for one sequence at a time. `prefill` has one sequence, and no other one changes its shapes.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.nn import functional

_CHUNK = 1 << 22  # elements of a weight that are made at a time


@dataclasses.dataclass(frozen=True)
class Shape:
    """`kind` "qwen2": RMSNorm, rotary positions, grouped queries, SwiGLU. "gpt": LayerNorm,
    learned positions, GELU. `context` is the most tokens of a sequence."""

    kind: str
    layers: int
    width: int
    heads: int
    kv_heads: int
    head_size: int
    inner: int
    vocabulary: int
    context: int = 4096

    def cell_bytes(self, dtype: torch.dtype) -> int:
        """Returns the bytes that one token takes in the key-value cache."""
        return 2 * self.layers * self.kv_heads * self.head_size * dtype.itemsize


SHAPES = {
    "tiny": Shape("qwen2", 4, 64, 4, 2, 16, 128, 512, 512),
    "tiny-gpt": Shape("gpt", 3, 64, 4, 4, 16, 256, 512, 512),
    # As many bytes of cache per unit of work as a CPU needs to make a link of 1 Gbit/s busy.
    "small": Shape("qwen2", 12, 256, 8, 8, 32, 512, 2048, 2048),
    "gpt2": Shape("gpt", 12, 768, 12, 12, 64, 3072, 50257, 1024),
    "0.5B": Shape("qwen2", 24, 896, 14, 2, 64, 4864, 151_936),
    "7B": Shape("qwen2", 28, 3584, 28, 4, 128, 18_944, 152_064),
}


class Model:
    """A decoder on one device. `decode` serves at most `rows` sequences at a time."""

    def __init__(
        self,
        shape: Shape,
        device: str = "cpu",
        dtype: torch.dtype = torch.float32,
        *,
        rows: int = 8,
        seed: int = 0,
    ) -> None:
        self.shape, self.rows = shape, rows
        self.device, self.dtype = torch.device(device), dtype
        self._seed = seed
        self._is_gpt = shape.kind == "gpt"
        self._embedding = self._weight(shape.vocabulary, shape.width, fan_in=1)
        self._head = self._weight(shape.vocabulary, shape.width)
        self._layers = [self._make_layer() for _ in range(shape.layers)]
        places = torch.arange(shape.context, dtype=torch.float64)
        if self._is_gpt:
            self._positions = self._weight(shape.context, shape.width, fan_in=1)
        else:
            half = torch.arange(0, shape.head_size, 2, dtype=torch.float64) / shape.head_size
            turns = torch.outer(places, 1e6**-half).repeat(1, 2)
            self._cos, self._sin = (
                one.float().to(self.device)[:, None] for one in (turns.cos(), turns.sin())
            )

    def new_cache(self, blocks: int, block_size: int) -> torch.Tensor:
        """Returns a paged cache [layers, blocks, K or V, block_size, kv_heads, head_size]."""
        one = self.shape
        sizes = (one.layers, blocks, 2, block_size, one.kv_heads, one.head_size)
        return torch.zeros(sizes, dtype=self.dtype, device=self.device)

    @torch.inference_mode()
    def prefill(
        self,
        cache: torch.Tensor,
        table: Sequence[int],
        tokens: Sequence[int],
        first: int,
        computed: Callable[[int], None],
    ) -> None:
        """Computes the cells of `tokens`, which are a sequence's from its token `first` on.

        `table` lists the sequence's blocks. Calls `computed(layer)` after each layer whose cells
        are in the cache, or will be by the current stream's work.
        """
        places = torch.arange(first, first + len(tokens), device=self.device)
        blocks = torch.tensor(table, device=self.device)
        x = self._embed(torch.tensor(tokens, device=self.device), places)
        hidden = places[:, None] < torch.arange(first + len(tokens), device=self.device)
        for number in range(self.shape.layers):
            layer = cache[number]

            def attend(q: Any, k: Any, v: Any, layer: torch.Tensor = layer) -> torch.Tensor:
                _write(layer, blocks, places, k, v)
                keys, values = _read(layer, blocks, first + len(tokens))
                return _attention(q, keys, values, hidden)

            x = self._layer(number, x, places, attend)
            computed(number)

    @torch.inference_mode()
    def decode(
        self,
        cache: torch.Tensor,
        tables: Sequence[Sequence[int]],
        tokens: Sequence[int],
        places: Sequence[int],
    ) -> list[int]:
        """Returns the next token of each sequence, the most likely one.

        Sequence i has `tokens[i]` at its place `places[i]`, whose cells this computes; those before
        it are in the blocks of `tables[i]`.
        """
        count = len(tokens)
        assert 0 < count <= self.rows
        padding = [0] * (self.rows - count)
        at = torch.tensor([*places, *padding], device=self.device)
        x = self._embed(torch.tensor([*tokens, *padding], device=self.device), at)
        blocks = [torch.tensor(table, device=self.device) for table in tables]
        for number in range(self.shape.layers):
            layer = cache[number]

            def attend(q: Any, k: Any, v: Any, layer: torch.Tensor = layer) -> torch.Tensor:
                out = torch.zeros(self.rows, q[0].numel(), dtype=q.dtype, device=q.device)
                for i in range(count):
                    row = slice(i, i + 1)
                    _write(layer, blocks[i], at[row], k[row], v[row])
                    keys, values = _read(layer, blocks[i], places[i] + 1)
                    out[row] = _attention(q[row], keys, values, None)
                return out

            x = self._layer(number, x, at, attend)
        logits = functional.linear(self._norm(x), self._head)
        found: list[int] = logits[:count].argmax(-1).tolist()
        return found

    # The layers.

    def _make_layer(self) -> dict[str, torch.Tensor]:
        one = self.shape
        queries, cells = one.heads * one.head_size, one.kv_heads * one.head_size
        made = {
            "qkv": self._weight(queries + 2 * cells, one.width),
            "qkv_bias": self._weight(queries + 2 * cells),
            "out": self._weight(one.width, queries),
            "up": self._weight(one.inner, one.width),
            "down": self._weight(one.width, one.inner),
        }
        if self._is_gpt:
            biases = {"out_bias": one.width, "up_bias": one.inner, "down_bias": one.width}
            made |= {name: self._weight(size) for name, size in biases.items()}
        else:
            made["gate"] = self._weight(one.inner, one.width)
        return made

    def _embed(self, tokens: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        x = self._embedding[tokens]
        return x + self._positions[places] if self._is_gpt else x

    def _layer(
        self, number: int, x: torch.Tensor, places: torch.Tensor, attend: Callable[..., Any]
    ) -> torch.Tensor:
        one, weights = self.shape, self._layers[number]
        joined = functional.linear(self._norm(x), weights["qkv"], weights["qkv_bias"])
        heads = joined.view(len(x), -1, one.head_size)
        q, k, v = torch.split(heads, [one.heads, one.kv_heads, one.kv_heads], 1)
        if not self._is_gpt:
            q, k = self._rotate(q, places), self._rotate(k, places)
        x = x + functional.linear(attend(q, k, v), weights["out"], weights.get("out_bias"))
        up = functional.linear(self._norm(x), weights["up"], weights.get("up_bias"))
        if self._is_gpt:
            up = functional.gelu(up, approximate="tanh")
        else:
            up = up * functional.silu(functional.linear(self._norm(x), weights["gate"]))
        return x + functional.linear(up, weights["down"], weights.get("down_bias"))

    def _norm(self, x: torch.Tensor) -> torch.Tensor:
        if self._is_gpt:
            return functional.layer_norm(x, x.shape[-1:])
        return functional.rms_norm(x, x.shape[-1:], eps=1e-6)

    def _rotate(self, x: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        low, high = x.float().chunk(2, -1)
        turned = x.float() * self._cos[places] + torch.cat((-high, low), -1) * self._sin[places]
        return turned.to(x.dtype)

    def _weight(self, *sizes: int, fan_in: int | None = None) -> torch.Tensor:
        """Makes the next weight: uniform, of variance 1 / fan-in, and the same on all devices,
        because it comes from a hash of each element's number in integers."""
        self._seed += 1
        flat = torch.empty(math.prod(sizes), dtype=self.dtype, device=self.device)
        scale = math.sqrt(3 / (fan_in or sizes[-1])) / (1 << 15)
        for at in range(0, len(flat), _CHUNK):
            part = flat[at : at + _CHUNK]
            bits = torch.arange(at, at + len(part), device=self.device) + (self._seed << 33)
            for factor in (0x9E3779B1, 0x85EBCA6B, 0xC2B2AE35):
                bits = (bits ^ (bits >> 15)) * factor & 0x7FFFFFFF
            part.copy_(((bits >> 15) - (1 << 15)).float() * scale)
        return flat.view(sizes)


def _write(layer: torch.Tensor, blocks: torch.Tensor, places: torch.Tensor, k: Any, v: Any) -> None:
    size = layer.shape[2]
    at, slots = blocks[places // size], places % size
    layer[at, 0, slots], layer[at, 1, slots] = k, v


def _read(
    layer: torch.Tensor, blocks: torch.Tensor, count: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns K and V of a sequence's first `count` tokens, [tokens, kv_heads, head_size]."""
    size = layer.shape[2]
    found = layer.index_select(0, blocks[: -(-count // size)])
    k, v = (found[:, part].flatten(0, 1)[:count] for part in (0, 1))
    return k, v


def _attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, hidden: torch.Tensor | None
) -> torch.Tensor:
    """Attention of q [n, heads, size] to k and v [m, kv_heads, size], except where `hidden`
    [n, m]; returns [n, heads * size]."""
    count, heads, size = q.shape
    grouped = q.view(count, k.shape[1], -1, size).permute(1, 2, 0, 3)  # kv head, group, token, dim
    scores = grouped.flatten(1, 2) @ k.permute(1, 2, 0) / math.sqrt(size)
    scores = scores.view(len(scores), -1, count, len(k)).float()
    if hidden is not None:
        scores = scores.masked_fill(hidden, -torch.inf)
    weights = scores.softmax(-1).to(v.dtype).flatten(1, 2)
    out = (weights @ v.transpose(0, 1)).view(len(weights), -1, count, size)
    return out.permute(2, 0, 1, 3).reshape(count, heads * size)
