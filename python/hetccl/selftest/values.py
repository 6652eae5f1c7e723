"""The values that ranks send in a self test, and the rule for right results.

Unlike a benchmark's values these make sums of floats round. A sum is right where it differs from
the exact one by at most 2 n u S, for n ranks, u the type's unit roundoff and S the sum of the
absolute values: whoever adds in whatever order, with a rounding for each addition, stays inside.
An encoded call's bound comes on top (bench/bounds.py). Everything else must be exact.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial, reduce

from hetccl._elements import pack, unpack
from hetccl._lib import DataType
from hetccl.bench.bounds import EXACT, PERIOD, Expected, codes_of
from hetccl.bench.pattern import Pattern, wrong_elements
from hetccl.selftest.trials import PRE_MUL_SUM

FACTOR = 1.5  # of every rank in a pre-multiplied sum of floats
WHOLE_FACTOR = 2  # and of integers
_WHOLE: dict[str, Callable[[list[int]], int]] = {
    "sum": sum,
    "prod": math.prod,
    "max": max,
    "min": min,
    "band": lambda values: reduce(int.__and__, values),
    "bor": lambda values: reduce(int.__or__, values),
    "bxor": lambda values: reduce(int.__xor__, values),
    PRE_MUL_SUM: lambda values: WHOLE_FACTOR * sum(values),
}
_REAL: dict[str, Callable[[list[float]], float]] = {
    "sum": math.fsum,
    "prod": math.prod,
    "max": max,
    "min": min,
    "avg": lambda values: math.fsum(values) / len(values),
    PRE_MUL_SUM: lambda values: FACTOR * math.fsum(values),
}


class Values(Pattern):
    """The values of `n_ranks` ranks for one type and operator."""

    def __init__(self, dtype: DataType, op: str, n_ranks: int) -> None:
        super().__init__(dtype, op, n_ranks)
        self._floating = "float" in dtype.name
        self._first: int | None = None  # where the result begins that was last asked for
        self._tables = [self._table(rank) for rank in range(n_ranks)]

    def value(self, rank: int, position: int) -> float:  # type: ignore[override]
        """Returns the value that `rank` sends at `position`."""
        return self._tables[rank][position % PERIOD]

    def combine(self, values: list[float]) -> float:
        """The reduction of a value of each rank, not yet rounded to the type."""
        if self._floating:
            return _REAL[self.op](values)
        whole = [int(value) for value in values]
        # None is negative: this truncates towards zero, as averages of integers do.
        return sum(whole) // self.n_ranks if self.op == "avg" else _WHOLE[self.op](whole)

    def result(self, first: int, count: int) -> bytes:
        """The reduction of elements `first` to `first + count`, rounded once."""
        self._first = first
        return super().result(first, count)

    def wrong(self, got: bytes | bytearray, expected: bytes) -> int:
        """Returns how many elements differ from `expected`, which a Case of these values has."""
        first, self._first = self._first, None
        if got == expected:
            return 0
        rounds = self._floating and self.op not in ("", "max", "min")
        if first is None or not rounds or len(got) != len(expected):
            return wrong_elements(got, expected, self.dtype.bytes)
        count = len(got) // self.dtype.bytes
        slack = partial(self.slack, bound=EXACT)
        return Expected(first, count, self.reduced, slack).count_wrong(got, self.dtype)

    def _table(self, rank: int) -> list[float]:
        """Returns one period of a rank's values, in the type's form."""
        if not self._floating:
            return [self._whole(rank, position) for position in range(PERIOD)]
        raw = (self._real(rank, position) for position in range(PERIOD))
        return unpack(codes_of(pack(raw, self.dtype), self.dtype), self.dtype)

    def _real(self, rank: int, position: int) -> float:
        steps = (7 * position + 13 * rank) % PERIOD
        if self.op == "prod":  # near 1, however many ranks multiply
            factor = 1 + steps / (2 * PERIOD)
            return factor if rank % 2 == 0 else 1 / factor
        return (steps - PERIOD // 2) / 7.3

    def _whole(self, rank: int, position: int) -> int:
        bits = 8 * self.dtype.bytes
        if self.op not in ("", "max", "min", "band", "bor", "bxor"):
            small = super().value(rank, position)  # no sum leaves the type's range
            return small // WHOLE_FACTOR if self.op == PRE_MUL_SUM else small
        mixed = (position + 1) * 0x9E3779B97F4A7C15 + (rank + 1) * 0xD1B54A32D192ED03
        code = (mixed >> 7) % (1 << bits)
        signed = self.dtype.name.startswith("int") and code >= 1 << (bits - 1)
        return code - (1 << bits) if signed else code
