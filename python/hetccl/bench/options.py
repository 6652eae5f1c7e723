"""Options of a benchmark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

ALL = "all"


@dataclass(frozen=True)
class Options:
    """The measurements to make; the defaults are nccl-tests'. `redop` and `dtype` may be "all":
    `each` resolves them.
    """

    operation: str = "all_reduce"
    min_bytes: int = 32 << 20
    max_bytes: int = 32 << 20
    step_bytes: int = 1 << 20
    factor: int = 0  # 0: grow by step_bytes
    redop: str = "sum"
    dtype: str = "float32"
    root: int = 0
    iterations: int = 20
    warmups: int = 1
    check: bool = True
    blocking: bool = False
    predict: bool = False  # what the cost model says, too
    regress: bool = False  # latency and bandwidth from all sizes, too

    def each(self, redops: Sequence[str], dtypes: Sequence[str]) -> Iterator[Options]:
        """Yields these options for each type and operator, if they say "all"."""
        for dtype in dtypes if self.dtype == ALL else (self.dtype,):
            for redop in redops if self.redop == ALL else (self.redop,):
                yield replace(self, dtype=dtype, redop=redop)

    def sizes(self) -> Iterator[int]:
        """The sizes to measure, in bytes, ascending."""
        size = self.min_bytes
        while size <= self.max_bytes:
            yield size
            size = max(size * self.factor, size + 1) if self.factor > 1 else size + self.step_bytes
