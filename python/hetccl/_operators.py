"""The operators of reductions: by name, or made by a communicator."""

from __future__ import annotations

from collections.abc import Callable
from ctypes import c_int

from hetccl._lib import RedOp

# Looked up in every call; ctypes passes its own integers faster than an enum.
_RED_OPS = {name: c_int(one) for name, one in RedOp.__members__.items()}


class PreMulSum:
    """An operator of one communicator, from `Communicator.pre_mul_sum`. Usable in ``with``."""

    def __init__(self, number: int, free: Callable[[int], None]) -> None:
        self._number = number
        self._free = free
        self._open = True

    def close(self) -> None:
        """Frees the operator. Calls that have been made with it go on. Idempotent."""
        if self._open:
            self._free(self._number)
        self._open = False

    def __enter__(self) -> PreMulSum:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()


def number_of(op: str | PreMulSum) -> int | c_int:
    """The operator as the C API takes it."""
    if isinstance(op, PreMulSum):
        return op._number
    try:
        return _RED_OPS[op]
    except KeyError:
        raise ValueError(f"{op!r} is none of {', '.join(_RED_OPS)}") from None
