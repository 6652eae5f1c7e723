"""Places of a cache's elements in registered memory."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hetccl.kv.errors import LARGEST, KvError, check_integer, check_list

Splits = tuple[tuple[int, int], ...]
_MOST_SPLITS = 4


@dataclasses.dataclass(frozen=True)
class Layout:
    """Strides of K or of V of one layer, in bytes.

    Element (block, token, head, dim) lies in `region` (an index into the description's regions) at
    `offset + block * self.block + token_offsets[token] + head * self.head + dim_offsets[dim]`.
    `token` and `dim` are pairs of a count and a stride, the outer pair first. Two pairs are a split
    dimension: x-packed K has dim = ((D // x, N * x * size), (x, size)). Heads count from the first
    head that this end holds. Immutable, so safe in all threads.
    """

    region: int
    offset: int
    block: int
    token: Splits
    head: int
    dim: Splits

    @property
    def strides(self) -> tuple[int, Splits, int, Splits]:
        """The layout without its place."""
        return (self.block, self.token, self.head, self.dim)

    @property
    def token_stride(self) -> int:
        """Bytes from one token to the next within a block."""
        strides = [stride for count, stride in self.token if count > 1]
        return strides[-1] if strides else self.block

    def token_offsets(self) -> NDArray[np.int64]:
        """Returns the offset of each token of a block, in bytes, int64 [block_size]."""
        return _offsets(self.token)

    def dim_offsets(self) -> NDArray[np.int64]:
        """Returns the offset of each element of a head, in bytes, int64 [head_size]."""
        return _offsets(self.dim)

    def dims(self, n_blocks: int, n_heads: int) -> list[tuple[int, int]]:
        """Returns (count, stride) of every dimension."""
        return [(n_blocks, self.block), *self.token, (n_heads, self.head), *self.dim]

    def extent(self, n_blocks: int, n_heads: int, size: int) -> int:
        """Returns the bytes from `offset` to the end of the last element of `size` bytes."""
        return size + sum((n - 1) * stride for n, stride in self.dims(n_blocks, n_heads))

    def to_values(self) -> list[Any]:
        """Returns the layout as lists and integers, for JSON."""
        return [self.region, self.offset, self.block, self.token, self.head, self.dim]

    @classmethod
    def from_values(cls, name: str, values: Any) -> Layout:
        """Reads the result of `to_values`. Raises KvError that begins with `name`."""
        region, offset, block, token, head, dim = check_list(name, values, 6, 6)
        return cls(
            check_integer(f"{name}.region", region, 0, LARGEST),
            check_integer(f"{name}.offset", offset, 0, LARGEST),
            check_integer(f"{name}.block", block, 0, LARGEST),
            _splits(f"{name}.token", token),
            check_integer(f"{name}.head", head, 0, LARGEST),
            _splits(f"{name}.dim", dim),
        )


def count_of(splits: Splits) -> int:
    """Returns the number of elements of a dimension."""
    return math.prod(count for count, _ in splits)


def check_apart(name: str, dims: list[tuple[int, int]], size: int) -> None:
    """Raises KvError with `name` if two elements of `size` bytes could share a byte.

    Every stride must be at least the extent of the dimensions with smaller strides, so layouts that
    interleave without nesting are refused, too.
    """
    extent = size
    for count, stride in sorted(dims, key=lambda dim: dim[1]):
        if count == 1:
            continue
        if stride < extent:
            raise KvError(f"{name}: a stride of {stride} bytes makes elements overlap")
        extent += (count - 1) * stride


def _offsets(splits: Splits) -> NDArray[np.int64]:
    offsets = np.zeros(1, np.int64)
    for count, stride in splits:
        offsets = (offsets[:, None] + np.arange(count, dtype=np.int64) * stride).ravel()
    return offsets


def _splits(name: str, values: Any) -> Splits:
    pairs = [check_list(name, pair, 2, 2) for pair in check_list(name, values, 1, _MOST_SPLITS)]
    return tuple(
        (check_integer(f"{name} count", n, 1, 1 << 24), check_integer(f"{name} stride", s, 0))
        for n, s in pairs
    )
