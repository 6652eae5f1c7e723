"""The operations that can be measured: buffers, call, and what a rank must have received of each.

Sizes, places in the buffers and bus bandwidths are nccl-tests' (PERFORMANCE.md there).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

from hetccl._groups import group
from hetccl._lib import DataType
from hetccl._operators import PreMulSum
from hetccl._streams import Stream
from hetccl.bench.options import Options
from hetccl.bench.pattern import Pattern
from hetccl.communicator import Communicator


class Case(ABC):
    """One operation on buffers of one size, in or out of place.

    `count` is the call's, `size` the bytes of the whole buffer: of `count` elements, or of as many
    for each rank where `in_blocks`.
    """

    in_blocks: ClassVar[bool] = False
    reduces: ClassVar[bool] = False
    has_root: ClassVar[bool] = False
    has_in_place: ClassVar[bool] = True
    has_plan: ClassVar[bool] = True  # a cost to predict

    def __init__(self, comm: Communicator, options: Options, size: int, in_place: bool) -> None:
        self.comm = comm
        self.options = options
        self.in_place = in_place
        self.dtype = DataType[options.dtype]
        self.redop: str | PreMulSum = options.redop
        self.pattern = Pattern(self.dtype, options.redop, comm.size)
        blocks = comm.size if self.in_blocks else 1
        self.count = size // self.dtype.bytes // blocks
        self.size = self.count * self.dtype.bytes * blocks
        self.send, self.recv = self.buffers()

    @staticmethod
    def bus_factor(n_ranks: int) -> float:
        """Bus bandwidth over algorithm bandwidth."""
        return 1.0

    @abstractmethod
    def buffers(self) -> tuple[Any, Any]:
        """What this rank sends and receives, in bytes; empty where it does not."""

    @abstractmethod
    def expected(self) -> bytes:
        """What this rank must have received."""

    @abstractmethod
    def call(self, stream: Stream | None) -> None:
        """Makes the call once."""

    def fill(self) -> None:
        """Puts the pattern into what this rank sends."""
        count = len(self.send) // self.dtype.bytes
        self.send[:] = self.pattern.sent(self.comm.rank, count)

    def whole(self) -> tuple[Any, Any]:
        """Two buffers of the whole size, or one of them in place."""
        send = bytearray(self.size)
        return send, send if self.in_place else bytearray(self.size)

    def whole_and_block(self) -> tuple[Any, Any]:
        """A buffer of all ranks' blocks, and this rank's block: of that buffer, in place."""
        whole, bytes_each = bytearray(self.size), self.count * self.dtype.bytes
        if not self.in_place:
            return whole, bytearray(bytes_each)
        return whole, memoryview(whole)[self.comm.rank * bytes_each :][:bytes_each]


class AllReduce(Case):
    """`Communicator.all_reduce`."""

    reduces = True
    buffers = Case.whole

    @staticmethod
    def bus_factor(n_ranks: int) -> float:
        """Every byte crosses each link twice, less what stays on its rank."""
        return 2 * (n_ranks - 1) / n_ranks

    def expected(self) -> bytes:
        """The reduction."""
        return self.pattern.result(0, self.count)

    def call(self, stream: Stream | None) -> None:
        """Makes the call once."""
        options = self.options
        self.comm.all_reduce(self.send, self.recv, self.redop, options.dtype, stream)


class Broadcast(Case):
    """`Communicator.broadcast`."""

    has_root = True
    buffers = Case.whole

    def expected(self) -> bytes:
        """The root's elements."""
        return self.pattern.sent(self.options.root, self.count)

    def call(self, stream: Stream | None) -> None:
        """Makes the call once."""
        options = self.options
        self.comm.broadcast(self.send, self.recv, options.root, options.dtype, stream)


class Reduce(Case):
    """`Communicator.reduce`."""

    reduces = has_root = True
    buffers = Case.whole

    def expected(self) -> bytes:
        """The reduction on the root; elsewhere nothing changes."""
        if self.comm.rank == self.options.root:
            return self.pattern.result(0, self.count)
        return self.pattern.sent(self.comm.rank, self.count) if self.in_place else bytes(self.size)

    def call(self, stream: Stream | None) -> None:
        """Makes the call once."""
        options = self.options
        self.comm.reduce(self.send, self.recv, self.redop, options.root, options.dtype, stream)


class _InBlocks(Case):
    """An operation whose buffer has a block for each rank, one of which stays on its rank."""

    in_blocks = True

    @staticmethod
    def bus_factor(n_ranks: int) -> float:
        """All blocks but one cross a link."""
        return (n_ranks - 1) / n_ranks


class AllGather(_InBlocks):
    """`Communicator.all_gather`."""

    def buffers(self) -> tuple[Any, Any]:
        """A block, and all of them."""
        recv, send = self.whole_and_block()
        return send, recv

    def expected(self) -> bytes:
        """All ranks' blocks."""
        return b"".join(self.pattern.sent(r, self.count) for r in range(self.comm.size))

    def call(self, stream: Stream | None) -> None:
        """Makes the call once."""
        self.comm.all_gather(self.send, self.recv, self.options.dtype, stream)


class ReduceScatter(_InBlocks):
    """`Communicator.reduce_scatter`."""

    reduces = True
    buffers = Case.whole_and_block

    def expected(self) -> bytes:
        """This rank's block of the reduction."""
        return self.pattern.result(self.comm.rank * self.count, self.count)

    def call(self, stream: Stream | None) -> None:
        """Makes the call once."""
        options = self.options
        self.comm.reduce_scatter(self.send, self.recv, self.redop, options.dtype, stream)


class Gather(_InBlocks):
    """`Communicator.gather`."""

    has_root = True

    def buffers(self) -> tuple[Any, Any]:
        """A block, and on the root all of them."""
        if self.comm.rank != self.options.root:
            return bytearray(self.count * self.dtype.bytes), bytearray()
        recv, send = self.whole_and_block()
        return send, recv

    def expected(self) -> bytes:
        """All ranks' blocks on the root, nothing elsewhere."""
        if self.comm.rank != self.options.root:
            return b""
        return b"".join(self.pattern.sent(r, self.count) for r in range(self.comm.size))

    def call(self, stream: Stream | None) -> None:
        """Makes the call once."""
        options = self.options
        self.comm.gather(self.send, self.recv, options.root, options.dtype, stream)


class Scatter(_InBlocks):
    """`Communicator.scatter`."""

    has_root = True

    def buffers(self) -> tuple[Any, Any]:
        """All blocks on the root, and one of them."""
        if self.comm.rank != self.options.root:
            return bytearray(), bytearray(self.count * self.dtype.bytes)
        return self.whole_and_block()

    def expected(self) -> bytes:
        """The root's block for this rank."""
        return self.pattern.sent(self.options.root, self.count, self.comm.rank * self.count)

    def call(self, stream: Stream | None) -> None:
        """Makes the call once."""
        options = self.options
        self.comm.scatter(self.send, self.recv, options.root, options.dtype, stream)


class AllToAll(_InBlocks):
    """`Communicator.all_to_all`."""

    has_in_place = False
    buffers = Case.whole

    def expected(self) -> bytes:
        """Every rank's block for this one."""
        first = self.comm.rank * self.count
        return b"".join(self.pattern.sent(r, self.count, first) for r in range(self.comm.size))

    def call(self, stream: Stream | None) -> None:
        """Makes the call once."""
        self.comm.all_to_all(self.send, self.recv, self.options.dtype, stream)


class SendRecv(Case):
    """Each rank sends to the next one and receives from the one before, in one group."""

    has_in_place = has_plan = False
    buffers = Case.whole

    def expected(self) -> bytes:
        """What the rank before has sent."""
        return self.pattern.sent((self.comm.rank - 1) % self.comm.size, self.count)

    def call(self, stream: Stream | None) -> None:
        """Makes both calls once."""
        comm, dtype = self.comm, self.options.dtype
        with group():
            comm.send(self.send, (comm.rank + 1) % comm.size, dtype, stream)
            comm.recv(self.recv, (comm.rank - 1) % comm.size, dtype, stream)


CASES: dict[str, type[Case]] = {
    "all_reduce": AllReduce,
    "all_gather": AllGather,
    "reduce_scatter": ReduceScatter,
    "broadcast": Broadcast,
    "reduce": Reduce,
    "all_to_all": AllToAll,
    "gather": Gather,
    "scatter": Scatter,
    "send_recv": SendRecv,
}
