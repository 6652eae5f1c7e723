"""The operators of reductions: by name, or made by a communicator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hetccl._lib import RedOp

if TYPE_CHECKING:
    from hetccl.communicator import Communicator

_RED_OPS = dict(RedOp.__members__)  # looked up in every call


class PreMulSum:
    """An operator of one communicator, from `Communicator.pre_mul_sum`. Usable in ``with``."""

    def __init__(self, comm: Communicator, number: int) -> None:
        self._comm = comm
        self._number = number
        self._open = True

    def close(self) -> None:
        """Frees it; what was called with it goes on. Idempotent."""
        if self._open and self._comm._comm:
            self._comm._call("hetcclRedOpDestroy", self._number, self._comm._comm)
        self._open = False

    def __enter__(self) -> PreMulSum:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()


def number_of(op: str | PreMulSum) -> int:
    """The operator as the C API takes it."""
    if isinstance(op, PreMulSum):
        return op._number
    if op not in _RED_OPS:
        raise ValueError(f"{op!r} is none of {', '.join(_RED_OPS)}")
    return _RED_OPS[op]
