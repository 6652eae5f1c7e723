"""Groups of calls, per thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from hetccl import _lib


class _Noted(threading.local):
    """The calls of this thread's open groups."""

    groups = 0

    def __init__(self) -> None:
        self.calls: list[Callable[[], None]] = []


noted = _Noted()


@contextmanager
def group() -> Iterator[None]:
    """Within ``with``, keeps this thread's sends, receives and collectives. At its end all sends
    and receives start at the same time, then the collectives in order.

    Groups may nest: the outermost one makes the calls. If one of them is wrong, it makes none. An
    exception that leaves the block drops them.
    """
    noted.groups += 1
    try:
        yield
        if noted.groups == 1:
            _make(noted.calls)
    finally:
        noted.groups -= 1
        if noted.groups == 0:
            noted.calls = []


def _make(calls: list[Callable[[], None]]) -> None:
    library = _lib.library()
    library.call("hetcclGroupStart")
    try:
        for call in calls:
            call()
    finally:
        library.call("hetcclGroupEnd")
