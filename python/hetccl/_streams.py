"""Streams of the host."""

from __future__ import annotations

import ctypes

from hetccl import _lib
from hetccl._lib import Result


class Stream:
    """An asynchronous stream of the host: work enqueued on it runs in order, in the background.

    Holds the buffers of its collectives until `synchronize` has returned.
    """

    def __init__(self) -> None:
        self._handle = ctypes.c_void_p()
        self._kept: list[object] = []
        _lib.library().call("hetcclHostStreamCreate", ctypes.byref(self._handle))

    def synchronize(self, timeout: float | None = None) -> None:
        """Waits until all work enqueued so far is complete; HetcclError after `timeout` seconds.

        Work that failed counts as complete: `Communicator.check` raises its error.
        """
        ticket = ctypes.c_uint64()
        library = _lib.library()
        library.call("hetcclHostStreamRecord", self._handle, ctypes.byref(ticket))
        milliseconds = -1 if timeout is None else int(timeout * 1000)
        library.call("hetcclHostStreamWait", self._handle, ticket, milliseconds)
        self._kept.clear()

    def done(self) -> bool:
        """Whether all work enqueued so far is complete."""
        ticket = ctypes.c_uint64()
        library = _lib.library()
        library.call("hetcclHostStreamRecord", self._handle, ctypes.byref(ticket))
        code = library.result("hetcclHostStreamQuery", self._handle, ticket)
        if code not in (Result.SUCCESS, Result.IN_PROGRESS):
            raise library.error(code)
        return code == Result.SUCCESS

    def close(self) -> None:
        """Waits for its work and frees it. Idempotent; no communicator may use it afterwards."""
        if self._handle:
            _lib.library().call("hetcclHostStreamDestroy", self._handle)
            self._handle = ctypes.c_void_p()
        self._kept.clear()
