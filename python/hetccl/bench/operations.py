"""The operations that can be measured: each one's buffers, call, and expected result.

Sizes, places in the buffers and bus bandwidths are nccl-tests' (PERFORMANCE.md there).
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Iterator
from itertools import accumulate, pairwise
from typing import Any, ClassVar

from hetccl._groups import group
from hetccl._lib import DataType, RedOp
from hetccl._operators import PreMulSum
from hetccl._streams import Stream
from hetccl.bench.bounds import EXACT, PERIOD, Expected, find_bound
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
    encodings: ClassVar[int] = 0  # of an element on its way, where the call may be encoded

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
        self.bound = EXACT  # see `find_encoding`
        self.send, self.recv = self.buffers()

    @staticmethod
    def bus_factor(n_ranks: int) -> float:
        """Bus bandwidth over algorithm bandwidth."""
        return 1.0

    @abstractmethod
    def buffers(self) -> tuple[Any, Any]:
        """Returns the buffers that this rank sends and receives, as bytes; empty ones for none."""

    @abstractmethod
    def expected(self) -> bytes:
        """Returns the values that this rank must have received."""

    @abstractmethod
    def call(self, stream: Stream | None) -> None:
        """Makes the call once."""

    def find_encoding(self) -> str:
        """Returns the encoding that the communicator uses for this call between clusters; "" if
        none. Results of an encoded call are right within the bound of its encoding. Not collective.
        """
        encoding = ""
        if self.encodings and self.count:
            options = self.options
            # Operators of a program's own are pre-multiplied sums, which are encoded as sums are.
            op = options.redop if options.redop in RedOp.__members__ else "sum"
            space = self.comm.tuning_space(options.operation, self.count, options.dtype, op)
            encoding = space["encoding"]
        self.bound = find_bound(encoding, self.encodings)
        return encoding

    def parts(self) -> Iterator[Expected]:
        """Returns the exact parts that the result of an encoded call must be close to."""
        return iter(())

    def wrong(self, got: bytes | bytearray) -> int:
        """Returns how many elements of `got`, which this rank has received, are wrong."""
        expected = self.expected()
        if got == expected or self.bound == EXACT:
            return self.pattern.wrong(got, expected)
        parts = list(self.parts())
        ends = [0, *accumulate(part.count * self.dtype.bytes for part in parts)]
        view = memoryview(got)
        return sum(
            part.count_wrong(view[begin:end], self.dtype)
            for part, (begin, end) in zip(parts, pairwise(ends), strict=True)
        )

    def largest_error(self) -> float:
        """The largest error of an encoded call that is right, of any element."""
        slacks = (part.slack for part in self.parts())
        return max(slack(position) for slack in slacks for position in range(PERIOD))

    def sums(self, first: int) -> Expected:
        """Elements of the reduction from `first` on, as many as the call counts."""
        slack = functools.partial(self.pattern.slack, bound=self.bound)
        return Expected(first, self.count, self.pattern.reduced, slack)

    def fill(self) -> None:
        """Writes the pattern to the buffer that this rank sends."""
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
    encodings = 2  # on the way to where it is added up, and back
    buffers = Case.whole

    @staticmethod
    def bus_factor(n_ranks: int) -> float:
        """Every byte crosses each link twice, except those that stay on their rank."""
        return 2 * (n_ranks - 1) / n_ranks

    def expected(self) -> bytes:
        """The reduction."""
        return self.pattern.result(0, self.count)

    def parts(self) -> Iterator[Expected]:
        """The reduction."""
        yield self.sums(0)

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

    encodings = 1

    def buffers(self) -> tuple[Any, Any]:
        """A block, and all of them."""
        recv, send = self.whole_and_block()
        return send, recv

    def expected(self) -> bytes:
        """All ranks' blocks."""
        return b"".join(self.pattern.sent(r, self.count) for r in range(self.comm.size))

    def parts(self) -> Iterator[Expected]:
        """All ranks' blocks."""
        for rank in range(self.comm.size):
            value = functools.partial(self.pattern.value, rank)
            slack = functools.partial(self.pattern.slack_of, rank, bound=self.bound)
            yield Expected(0, self.count, value, slack)

    def call(self, stream: Stream | None) -> None:
        """Makes the call once."""
        self.comm.all_gather(self.send, self.recv, self.options.dtype, stream)


class ReduceScatter(_InBlocks):
    """`Communicator.reduce_scatter`."""

    reduces = True
    encodings = 1
    buffers = Case.whole_and_block

    def expected(self) -> bytes:
        """This rank's block of the reduction."""
        return self.pattern.result(self.comm.rank * self.count, self.count)

    def parts(self) -> Iterator[Expected]:
        """This rank's block of the reduction."""
        yield self.sums(self.comm.rank * self.count)

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
    """Each rank sends to the next one and receives from the previous one, in one group."""

    has_in_place = has_plan = False
    buffers = Case.whole

    def expected(self) -> bytes:
        """The values that the previous rank has sent."""
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
