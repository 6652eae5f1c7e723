"""The trials of a self test: every collective, type, operator, size and place."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from hetccl._lib import DataType, RedOp
from hetccl.bench.operations import CASES

PRE_MUL_SUM = "pre_mul_sum"
_BITWISE = {"band", "bor", "bxor"}
_ODD = 1031  # elements: a prime, so that no rank, thread or vector has a whole part of it
_LARGE = 1 << 20  # bytes
_QUICK_TYPES = {"float32", "bfloat16", "int32"}


@dataclass(frozen=True)
class Trial:
    """One call. `count` is the call's own: of a block where the buffer has one for each rank."""

    collective: str
    dtype: str
    op: str  # "" where nothing is reduced
    count: int
    in_place: bool

    def size(self, ranks: int) -> int:
        """Bytes of the whole buffer."""
        blocks = ranks if CASES[self.collective].in_blocks else 1
        return self.count * DataType[self.dtype].bytes * blocks

    def describe(self, ranks: int) -> dict[str, str | int | bool]:
        """As the report has it."""
        facts: dict[str, str | int | bool] = {"collective": self.collective, "type": self.dtype}
        if self.op:
            facts["op"] = self.op
        return {**facts, "bytes": self.size(ranks), "in_place": self.in_place}

    def __str__(self) -> str:
        place = "in place" if self.in_place else "out of place"
        words = (self.collective, self.op, f"of {self.count} {self.dtype}", place)
        return " ".join(word for word in words if word)


def operators(dtype: str) -> list[str]:
    """Those that elements of a type have."""
    floating = "float" in dtype
    every = [*RedOp.__members__, PRE_MUL_SUM]
    return [op for op in every if not (floating and op in _BITWISE)]


def counts(collective: str, dtype: str, ranks: int) -> list[int]:
    """None, one, an odd number, and about 1 MiB."""
    blocks = ranks if CASES[collective].in_blocks else 1
    return [0, 1, _ODD, max(1, _LARGE // DataType[dtype].bytes // blocks - 1)]


def trials(ranks: int, quick: bool = False) -> Iterator[Trial]:
    """Returns all trials, in the order in which every rank makes the calls; a few if `quick`."""
    for collective, case in CASES.items():
        for dtype in DataType.__members__:
            if quick and dtype not in _QUICK_TYPES:
                continue
            every = operators(dtype) if case.reduces else [""]
            for op in every[:1] if quick else every:
                for count in counts(collective, dtype, ranks)[: 3 if quick else None]:
                    for in_place in (False, True)[: 1 + case.has_in_place]:
                        yield Trial(collective, dtype, op, count, in_place)
