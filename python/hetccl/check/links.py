"""One link: values, latency and bandwidth of messages between two ranks."""

from __future__ import annotations

import statistics
import time
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

from hetccl._groups import group
from hetccl._lib import DataType
from hetccl.bench.pattern import Pattern
from hetccl.communicator import Communicator
from hetccl.devices.memory import Memory, lent

_ODD = 65_537  # bytes: no thread, vector or slice has a whole part of them
_WARM, _TRIPS = 3, 15
_LEAST, MOST_BYTES = 1 << 20, 32 << 20
_LONG_ENOUGH = 0.04  # seconds of one message


class Prober:
    """One rank's part; the other rank of a pair calls `measure` at the same time."""

    def __init__(self, comm: Communicator, memory: Memory, buffers: Any) -> None:
        self._comm, self._memory = comm, memory
        self._notes, self._values = memory.another(), memory.another()
        self._send, self._recv = memoryview(buffers.send), memoryview(buffers.recv)

    def measure(self, peer: int) -> dict[str, Any]:
        """Measures the link to `peer` from this rank: wrong bytes, seconds of a message of 8 bytes
        one way, and bytes per second towards `peer`.
        """
        wrong = self._check(peer)
        seconds = self._ping(peer)
        rates = {}
        for sender in sorted((self._comm.rank, peer)):
            rates[sender] = self._stream(peer, sender == self._comm.rank)
        return {"peer": peer, "wrong": wrong, "seconds": seconds, "rate": rates[self._comm.rank]}

    def _check(self, peer: int) -> int:
        pattern = Pattern(DataType.uint8, "", 1)  # of ranks far apart, too
        ends = SimpleNamespace(
            send=bytearray(pattern.sent(self._comm.rank, _ODD, peer)), recv=bytearray(_ODD)
        )
        with self._values.lend(ends), group():
            self._comm.send(ends.send, peer, "uint8")
            self._comm.recv(ends.recv, peer, "uint8")
        self._comm.check()
        return pattern.wrong(ends.recv, pattern.sent(peer, _ODD, self._comm.rank))

    def _exchange(self, peer: int, sends: bool, size: int) -> None:
        """Sends or receives `size` bytes, then has or gives the receipt."""
        comm = self._comm
        if sends:
            comm.send(self._send[:size], peer, "uint8")
            comm.recv(self._recv[:8], peer, "uint8")
        else:
            comm.recv(self._recv[:size], peer, "uint8")
            comm.send(self._send[:8], peer, "uint8")
        self._memory.synchronize()

    def _ping(self, peer: int) -> float:
        times = []
        for _ in range(_WARM + _TRIPS):
            start = time.perf_counter()
            self._exchange(peer, self._comm.rank < peer, 8)
            times.append((time.perf_counter() - start) / 2)
        return statistics.median(times[_WARM:])

    def _stream(self, peer: int, sends: bool) -> float:
        """Measures bytes per second one way. Returns them on the sender, 0 on the receiver."""
        self._exchange(peer, sends, _LEAST)
        size = _LEAST
        took = self._time(peer, sends, size)
        if took < _LONG_ENOUGH / 2:
            size = int(min(MOST_BYTES, max(_LEAST, _LEAST * _LONG_ENOUGH / took)))
        told = array("q", [size])
        with lent(self._notes, told) as note:
            if sends:
                self._comm.send(note, peer, "int64")
            else:
                self._comm.recv(note, peer, "int64")
        if told[0] != _LEAST:
            took = self._time(peer, sends, told[0])
        return told[0] / took if sends else 0.0

    def _time(self, peer: int, sends: bool, size: int) -> float:
        start = time.perf_counter()
        self._exchange(peer, sends, size)
        return time.perf_counter() - start


@contextmanager
def prober(comm: Communicator, memory: Memory) -> Iterator[Prober]:
    """The prober of a rank, with its buffers."""
    buffers = SimpleNamespace(send=bytearray(MOST_BYTES), recv=bytearray(MOST_BYTES))
    own = memory.another()
    with own.lend(buffers):
        yield Prober(comm, own, buffers)
