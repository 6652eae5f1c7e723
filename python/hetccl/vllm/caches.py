"""Descriptions of vLLM's caches: the places of K and V in the tensors that it registers."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from typing import Any

import torch

from hetccl.kv import Cache, KvError, describe
from hetccl.kv.layout import Splits

# Back-ends whose blocks hold K in an order of their own that no stride of the tensor tells.
_UNKNOWN = ("ROCM_ATTN", "ROCM_AITER_FA")
_CPU = "CPU_ATTN"
_DIGIT = 128  # all integers below it are exact in every type
Store = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], None]


@dataclasses.dataclass(frozen=True)
class Shape:
    """The facts of a model and of a rank that its tensors do not tell."""

    name: str
    model: str
    n_layers: int
    n_heads: int  # KV heads of the model; 1 for latents
    tp_rank: int
    tp_size: int
    head_size: int
    is_latent: bool
    cache_type: str  # vLLM's cache_dtype
    is_fnuz: bool = False

    @property
    def heads(self) -> tuple[int, int]:
        """The KV heads of this rank, [first, last). Ranks beyond the heads hold replicas."""
        if self.n_heads >= self.tp_size:
            each = self.n_heads // self.tp_size
            return self.tp_rank * each, (self.tp_rank + 1) * each
        first = self.tp_rank * self.n_heads // self.tp_size
        return first, first + 1

    @property
    def dtype(self) -> str | None:
        """The type of fp8 caches, whose tensors are of bytes."""
        if not self.cache_type.startswith("fp8"):
            return None
        if self.cache_type == "fp8_e5m2":
            return "float8_e5m2"
        return "float8_e4m3fnuz" if self.is_fnuz else "float8_e4m3fn"


def number_layers(names: list[str]) -> dict[str, int]:
    """Returns the model's number of each layer, by its name: the only integer in it. Raises KvError
    for two layers of one number, such as those of a draft model."""
    found: dict[str, int] = {}
    for name in names:
        digits = re.findall(r"(?:^|\.)(\d+)(?=\.|$)", name)
        if len(digits) != 1:
            raise KvError(f"the cache {name} has no layer number, or several")
        found[name] = int(digits[0])
    if len({*found.values()}) < len(found):
        raise KvError(f"two caches of one layer among {names[:4]}...: draft models are not served")
    return found


def make_cache(
    shape: Shape,
    tensors: Mapping[str, torch.Tensor],
    backends: set[str],
    scales: Mapping[str, tuple[float, float]],
    store: Store | None = None,
) -> Cache:
    """Returns the description of a rank's caches, with them.

    `tensors` are [block, head, token, K and V], or [block, token, latent], with any strides.
    `backends` are the names of vLLM's attention back-ends, `scales` those of an fp8 cache's layers.
    `store(key, value, cache)` is the CPU back-end's way to fill a cache, from which the order of
    its blocks is found. Raises KvError for caches whose order is not known.
    """
    if unknown := backends & {*_UNKNOWN}:
        raise KvError(f"the blocks of {min(unknown)} have an order that hetccl does not know")
    numbers = number_layers([*tensors])
    is_plain = _CPU not in backends
    held: dict[int, Any] = {}
    orders: Any = "BHNC"
    for name, tensor in tensors.items():
        if shape.is_latent:
            held[numbers[name]], orders = _latent(name, tensor), "BND"
        elif is_plain:
            _check(shape, name, tensor)
            held[numbers[name]] = tensor
        else:
            _check(shape, name, tensor)
            held[numbers[name]], orders = _unpack_cpu(shape, tensor, store)
    fp8 = {numbers[name]: pair for name, pair in scales.items() if name in numbers}
    described = describe(
        held, orders, name=shape.name, model=shape.model, n_layers=shape.n_layers,
        n_heads=shape.n_heads, heads=shape.heads, dtype=shape.dtype, rank=shape.tp_rank,
        ranks=shape.tp_size, head_size=None if shape.is_latent else shape.head_size,
        scales=fp8 if shape.dtype and not shape.is_latent else None,
    )  # fmt: skip
    return Cache(described, held)


def _latent(name: str, tensor: torch.Tensor) -> torch.Tensor:
    found = tensor.squeeze(1) if tensor.dim() == 4 and tensor.shape[1] == 1 else tensor
    if found.dim() != 3:
        raise KvError(f"the cache {name} has the shape {tuple(tensor.shape)}, not that of latents")
    return found


def _check(shape: Shape, name: str, tensor: torch.Tensor) -> None:
    n_held = shape.heads[1] - shape.heads[0]
    if tensor.dim() != 4 or tensor.shape[1] != n_held or tensor.shape[3] <= shape.head_size:
        raise KvError(
            f"the cache {name} has the shape {tuple(tensor.shape)}: it must be [blocks, {n_held} "
            f"heads, tokens, K and V of {shape.head_size} elements]"
        )


def _unpack_cpu(
    shape: Shape, tensor: torch.Tensor, store: Store | None
) -> tuple[list[torch.Tensor], tuple[str, str]]:
    """Returns views of K and of V whose dimensions follow the order of the CPU back-end, which
    depends on the processor's instruction set, and the letters of these dimensions."""
    n_blocks, n_heads, n_tokens, both = tensor.shape
    is_whole = tensor.stride(3) == 1 and tensor.stride(2) == both
    if store is None or both != 2 * shape.head_size or shape.dtype or not is_whole:
        raise KvError("caches of the CPU back-end are known with K and V alike, and not with fp8")
    views, letters = [], []
    for part, (token, dim) in enumerate(find_order(store, n_tokens, shape.head_size, tensor.dtype)):
        strides = [stride for _, stride in (*token, *dim)]
        counts = [count for count, _ in (*token, *dim)]
        offset = tensor.storage_offset() + part * n_tokens * shape.head_size
        views.append(
            tensor.as_strided(
                [n_blocks, n_heads, *counts], [tensor.stride(0), tensor.stride(1), *strides], offset
            )
        )
        letters.append("BH" + "N" * len(token) + "D" * len(dim))
    return views, (letters[0], letters[1])


def find_order(
    store: Store, n_tokens: int, size: int, dtype: torch.dtype
) -> list[tuple[Splits, Splits]]:
    """Returns the splits (counts and strides in elements) of tokens and of elements, for K and for
    V, within a block of a head, found by storing their numbers. Raises KvError if there are none.
    """
    tokens, dims = torch.arange(n_tokens)[:, None, None], torch.arange(size)[None, None, :]
    codes = tokens * size + dims
    found = torch.zeros(2, n_tokens * size, dtype=torch.int64)
    power = 1
    while power <= int(codes.max()):
        digits = (codes // power % _DIGIT).to(dtype)
        cache = torch.zeros(1, 1, n_tokens, 2 * size, dtype=dtype)
        store(digits.contiguous(), digits.clone(), cache)
        found += cache.reshape(2, -1).to(torch.int64) * power
        power *= _DIGIT
    orders = []
    for held in found:
        places = torch.empty_like(held)
        places[held] = torch.arange(len(held))
        grid = places.view(n_tokens, size)
        if not torch.equal(held.sort().values, codes.flatten()) or not torch.equal(
            grid, grid[:, :1] + grid[:1]
        ):
            raise KvError("the CPU back-end's blocks have an order that hetccl does not know")
        orders.append((_fit(grid[:, 0].tolist()), _fit(grid[0].tolist())))
    return orders


def _fit(offsets: list[int]) -> Splits:
    """Returns offsets as nested dimensions, the outer one first."""
    splits: list[tuple[int, int]] = []
    rest = offsets
    while len(rest) > 1:
        stride = rest[1] - rest[0]
        count = 1
        while count < len(rest) and rest[count] == rest[0] + count * stride:
            count += 1
        while len(rest) % count:
            count -= 1
        if count < 2 or any(
            rest[at + i] != rest[at] + i * stride
            for at in range(0, len(rest), count) for i in range(count)
        ):  # fmt: skip
            raise KvError("the CPU back-end's blocks have an order that hetccl does not know")
        splits.insert(0, (count, stride))
        rest = rest[::count]
    return tuple(splits) or ((1, 1),)
