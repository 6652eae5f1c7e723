"""The values that ranks send in a benchmark, and those that they must receive.

Small whole numbers, so that every type and every order of evaluation gives the same bits. They
repeat with a prime period, so that a region that lands in the wrong place shows. Where a call is
encoded, results are near to those: within the bound of the encoding.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

from hetccl._elements import pack
from hetccl._lib import DataType
from hetccl.bench.bounds import PERIOD, Bound, rounding

_REDUCE: dict[str, Callable[[list[float]], float]] = {
    "sum": lambda values: sum(values),
    "prod": lambda values: math.prod(values),
    "max": lambda values: max(values),
    "min": lambda values: min(values),
}
# The largest whole number up to which a type holds every one, where that is below 2^24.
_EXACT = {
    "int8": 127, "uint8": 255, "bfloat16": 256, "float16": 2048, "float8_e4m3": 16,
    "float8_e5m2": 8,
}  # fmt: skip


class Pattern:
    """The values of `n_ranks` ranks for one type and reduction."""

    def __init__(self, dtype: DataType, op: str, n_ranks: int) -> None:
        self.dtype = dtype
        self.op = op
        self.n_ranks = n_ranks
        self._whole_average = op == "avg" and "float" in dtype.name
        limit = _EXACT.get(dtype.name, 1 << 24) // n_ranks
        if self._whole_average:
            limit //= n_ranks
        self._modulus = min(PERIOD, limit + 1)  # 1: the ranks' sum would not be exact

    def value(self, rank: int, position: int) -> int:
        """Returns the value that `rank` sends at `position`."""
        position %= PERIOD
        if self.op == "prod":  # one factor of two at most, which every type holds
            return 2 if (position + rank) % max(4, self.n_ranks) == 0 else 1
        if self._modulus == 1:
            return int(rank == position % self.n_ranks)
        small = (7 * position + 3 * rank) % self._modulus
        return small * self.n_ranks if self._whole_average else small

    def combine(self, values: list[float]) -> float:
        """The reduction of a value of each rank, not yet rounded to the type."""
        if self._whole_average:
            return sum(values) / self.n_ranks
        if self.op == "avg":
            return sum(values) // self.n_ranks  # none is negative: this truncates towards zero
        return _REDUCE[self.op](values)

    def reduced(self, position: int) -> float:
        """The reduction over all ranks at `position`, not yet rounded to the type."""
        return self.combine([self.value(rank, position) for rank in range(self.n_ranks)])

    def slack(self, position: int, bound: Bound) -> float:
        """Returns how far a right sum of floats at `position` may be from the exact one, if it is
        encoded with this bound. Each addition may round, too.
        """
        ranks = range(self.n_ranks)
        size = abs(self.combine([abs(self.value(rank, position)) for rank in ranks]))
        error = bound.error(size, abs(self.combine(self._largest)))
        return error + rounding(self.dtype, size + error, 2 * self.n_ranks)

    def slack_of(self, rank: int, position: int, bound: Bound) -> float:
        """The same of what `rank` has sent at `position`."""
        size = abs(self.value(rank, position))
        error = bound.error(size, self._largest[rank])
        return error + rounding(self.dtype, size + error, 1)

    @functools.cached_property
    def _largest(self) -> list[float]:
        """The largest magnitude that each rank sends."""
        return [max(abs(self.value(rank, position)) for position in range(PERIOD))
                for rank in range(self.n_ranks)]  # fmt: skip

    def sent(self, rank: int, count: int, first: int = 0) -> bytes:
        """Elements `first` to `first + count` of `rank`'s buffer."""
        return self._tile(lambda position: self.value(rank, position), first, count)

    def result(self, first: int, count: int) -> bytes:
        """The reduction of elements `first` to `first + count`."""
        return self._tile(self.reduced, first, count)

    def _tile(self, value: Callable[[int], float], first: int, count: int) -> bytes:
        period = pack((value(first + i) for i in range(PERIOD)), self.dtype)
        return (period * (count // PERIOD + 1))[: count * self.dtype.bytes]

    def wrong(self, got: bytes | bytearray, expected: bytes) -> int:
        """Returns how many elements differ from `expected`, which a Case of this pattern has."""
        return wrong_elements(got, expected, self.dtype.bytes)


def wrong_elements(got: bytes | bytearray, expected: bytes, size: int) -> int:
    """Counts the elements of `size` bytes that differ."""
    if got == expected:
        return 0
    return sum(got[i : i + size] != expected[i : i + size] for i in range(0, len(expected), size))
