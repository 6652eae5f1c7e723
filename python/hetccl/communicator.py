"""A communicator over arrays: by the buffer protocol, DLPack or the CUDA array interface."""

from __future__ import annotations

import ctypes
import functools
import json
from collections.abc import Sequence
from typing import Any

from hetccl import _groups, _lib
from hetccl._elements import pack
from hetccl._lib import Residence, Result
from hetccl._memory import DATA_TYPES, FOREIGN_DEVICE, Memory, check_codes, check_tag, read_residual
from hetccl._operators import PreMulSum, number_of
from hetccl._stats import CommStats
from hetccl._streams import Stream


def _ends(source: Memory | None, target: Memory | None) -> tuple[int | None, int | None]:
    """Returns the addresses of both buffers for a call; None for a buffer that this rank does not
    pass.
    """
    return source.address if source else None, target.address if target else None


class Communicator:
    """One rank of a communicator. Collective: blocks until all `size` ranks have come, unless
    `blocking` is False: then `ready` tells when it may be used.

    Buffers offer the buffer protocol, DLPack or the CUDA array interface; they are contiguous, in
    the memory of this rank's device, and not copied. Receive into none of JAX's: it shares them.

    Calls of the host return when complete, or at once when they are given a `Stream`. Those of
    another device are enqueued on its default stream: its runtime tells when their data is there.
    Every rank issues the same calls in the same order; one thread at a time, except for `abort`.
    Leaving a ``with`` block destroys the communicator, or aborts it after an exception.
    """

    def __init__(
        self,
        uid: bytes,
        rank: int,
        size: int,
        *,
        device: str | None = None,
        cluster: str | None = None,
        host_id: str | None = None,
        timeout: float | None = None,
        init_timeout: float | None = None,
        blocking: bool = True,
        wire: str | None = None,
        wire_gather: str | None = None,
        wire_inside: bool | None = None,
        name: str | None = None,
    ) -> None:
        """`uid` is from `unique_id`; `timeout` is for one collective, `init_timeout` for all ranks
        to come, both in seconds. `device` is where buffers are: "host" (None, too), or a GPU, as
        "cuda:1". `name` is for people: it stands in the log and in `dump`. The others are the
        settings HETCCL_CLUSTER, HETCCL_HOSTID, HETCCL_WIRE, HETCCL_WIRE_GATHER and
        HETCCL_WIRE_INSIDE, where they are not None: a label that splits clusters further, this
        host's identity, how sums and all-gathers are encoded between clusters, and whether they are
        where all ranks are in one cluster.
        """
        if len(uid) != _lib.UniqueId.BYTES:
            raise ValueError(f"a unique id has {_lib.UniqueId.BYTES} bytes, this one {len(uid)}")
        self._library = _lib.library()
        self._comm = ctypes.c_void_p()
        self._place: tuple[int, int] | None = (rank, size)
        self._on_host = device in (None, "", "host")
        major, minor, patch = _lib.version()
        config = _lib.Config(
            size=ctypes.sizeof(_lib.Config),
            magic=_lib.Config.MAGIC,
            version=major * 10000 + minor * 100 + patch,
            device=(device or "host").encode(),
            cluster=cluster.encode() if cluster else None,
            host_id=host_id.encode() if host_id else None,
            timeout_ms=int(timeout * 1000) if timeout else 0,
            blocking=int(blocking),
            init_timeout_ms=int(init_timeout * 1000) if init_timeout else 0,
            wire=None if wire is None else wire.encode(),
            wire_gather=None if wire_gather is None else wire_gather.encode(),
            wire_inside=-1 if wire_inside is None else int(wire_inside),
            name=None if name is None else name.encode(),
        )
        self._start(
            "hetcclCommInitRankConfig",
            ctypes.byref(self._comm),
            size,
            _lib.UniqueId.from_buffer_copy(uid),
            rank,
            ctypes.byref(config),
        )

    @property
    def rank(self) -> int:
        """This rank's number, from 0."""
        return self._where()[0]

    @property
    def size(self) -> int:
        """The number of ranks."""
        return self._where()[1]

    def ready(self) -> bool:
        """Whether work in the background is complete. Raises HetcclError if it, or the
        communicator, has failed.
        """
        return self._failure() == Result.SUCCESS

    def split(self, color: int | None, key: int = 0) -> Communicator | None:
        """Collective: ranks of equal `color` (0 or more) form a new communicator, ordered by `key`,
        then by rank. None for a `color` of None. It has this one's options.
        """
        number = _lib.NO_COLOR if color is None else color
        part = self._part("hetcclCommSplit", number, key)
        return part if part._comm else None

    def shrink(self, exclude: Sequence[int]) -> Communicator:
        """Collective over the ranks that are not in `exclude`: they form a new communicator, in the
        order of their ranks here. Excluded ranks do not call it. It has this one's options.
        """
        ranks = (ctypes.c_int * len(exclude))(*exclude)
        return self._part("hetcclCommShrink", ranks, len(exclude), flags=(_lib.SHRINK_DEFAULT,))

    def all_reduce(
        self,
        send: Any,
        recv: Any = None,
        op: str | PreMulSum = "sum",
        dtype: str | None = None,
        stream: Stream | None = None,
        residual: Any = None,
    ) -> None:
        """recv[i] = op over all ranks of send[i]; in place without `recv`.

        `residual`, of as many elements of the same type, zeros at first, holds what the codes of
        an encoded call lose, which is part of the next call with it (hetcclAllReduceWithResidual).
        """
        source, target = self._pair(send, recv, dtype)
        self._expect(target, source.count)
        self._reduce("hetcclAllReduce", source, target, residual, dtype, op, stream)

    def reduce_scatter(
        self,
        send: Any,
        recv: Any,
        op: str | PreMulSum = "sum",
        dtype: str | None = None,
        stream: Stream | None = None,
        counts: Sequence[int] | None = None,
        residual: Any = None,
    ) -> None:
        """recv[i] = op over all ranks of send[rank * len(recv) + i].

        With `counts`, equal on all ranks, rank r gets counts[r] elements instead of as many as all.
        `residual`, as long as `send`, is as in `all_reduce`; not with `counts`.
        """
        source, target = self._pair(send, recv, dtype)
        if counts is not None:
            if residual is not None:
                raise ValueError("a call with counts is never encoded: leave out residual")
            lengths = self._counts("counts", counts, source)
            self._expect(target, counts[self.rank])
            kinds = (source.dtype.argument, number_of(op))
            uneven = (source.address, lengths, None, target.address, *kinds)
            self._run("hetcclReduceScatterV", uneven, stream, source, target)
            return
        self._expect(source, target.count * self.size)
        self._reduce("hetcclReduceScatter", source, target, residual, dtype, op, stream)

    def all_gather(
        self,
        send: Any,
        recv: Any,
        dtype: str | None = None,
        stream: Stream | None = None,
        counts: Sequence[int] | None = None,
    ) -> None:
        """recv[r * len(send) + i] = rank r's send[i].

        With `counts`, equal on all ranks, rank r sends counts[r] elements instead of as many as
        all; they follow each other in `recv`.
        """
        source, target = self._pair(send, recv, dtype)
        if counts is not None:
            lengths = self._counts("counts", counts, target)
            self._expect(source, counts[self.rank])
            uneven = (*_ends(source, target), lengths, None, source.dtype.argument)
            self._run("hetcclAllGatherV", uneven, stream, source, target)
            return
        self._expect(target, source.count * self.size)
        arguments = (*_ends(source, target), source.count, source.dtype.argument)
        self._run("hetcclAllGather", arguments, stream, source, target)

    def broadcast(
        self,
        send: Any,
        recv: Any = None,
        root: int = 0,
        dtype: str | None = None,
        stream: Stream | None = None,
    ) -> None:
        """recv[i] = root's send[i]; in place without `recv`."""
        source, target = self._pair(send, recv, dtype)
        self._expect(target, source.count)
        arguments = (*_ends(source, target), source.count, source.dtype.argument, root)
        self._run("hetcclBroadcast", arguments, stream, source, target)

    def reduce(
        self,
        send: Any,
        recv: Any = None,
        op: str | PreMulSum = "sum",
        root: int = 0,
        dtype: str | None = None,
        stream: Stream | None = None,
    ) -> None:
        """recv[i] = op over all ranks of send[i], on the root alone; in place without `recv`.

        Other ranks' `recv` is not looked at, and `send` may be read-only there.
        """
        target: Memory | None = None
        if self.rank == root:
            source, target = self._pair(send, recv, dtype)
            self._expect(target, source.count)
        else:
            source = Memory(send, dtype, False)
        kinds = (source.dtype.argument, number_of(op))
        arguments = (*_ends(source, target), source.count, *kinds, root)
        self._run("hetcclReduce", arguments, stream, source, target)

    def gather(
        self,
        send: Any,
        recv: Any = None,
        root: int = 0,
        dtype: str | None = None,
        stream: Stream | None = None,
    ) -> None:
        """On the root recv[r * len(send) + i] = rank r's send[i]; others pass no `recv`."""
        source, target = Memory(send, dtype, False), None
        if self.rank == root:
            source, target = self._pair(send, recv, dtype)
            self._expect(target, source.count * self.size)
        arguments = (*_ends(source, target), source.count, source.dtype.argument, root)
        self._run("hetcclGather", arguments, stream, source, target)

    def scatter(
        self,
        send: Any,
        recv: Any,
        root: int = 0,
        dtype: str | None = None,
        stream: Stream | None = None,
    ) -> None:
        """recv[i] = root's send[rank * len(recv) + i]; others pass None for `send`."""
        source, target = None, Memory(recv, dtype, True)
        if self.rank == root:
            source, target = self._pair(send, recv, dtype)
            self._expect(source, target.count * self.size)
        arguments = (*_ends(source, target), target.count, target.dtype.argument, root)
        self._run("hetcclScatter", arguments, stream, source, target)

    def all_to_all(
        self,
        send: Any,
        recv: Any,
        dtype: str | None = None,
        stream: Stream | None = None,
        send_counts: Sequence[int] | None = None,
        recv_counts: Sequence[int] | None = None,
    ) -> None:
        """recv[r * count + i] = rank r's send[rank * count + i], `count` being len(send) / size.

        With counts, send_counts[r] elements go to rank r and recv_counts[r] come from it; they
        follow each other in the buffers, and may differ in every call.
        """
        source, target = self._pair(send, recv, dtype)
        if send_counts is None and recv_counts is None:
            self._expect(target, source.count)
            self._expect(source, source.count // self.size * self.size)
            arguments = (*_ends(source, target), source.count // self.size, source.dtype.argument)
            self._run("hetcclAllToAll", arguments, stream, source, target)
            return
        if send_counts is None or recv_counts is None:
            raise ValueError("pass send_counts and recv_counts, or neither")
        out = self._counts("send_counts", send_counts, source)
        into = self._counts("recv_counts", recv_counts, target)
        uneven = (source.address, out, None, target.address, into, None, source.dtype.argument)
        self._run("hetcclAllToAllV", uneven, stream, source, target)

    def send(
        self,
        send: Any,
        peer: int,
        dtype: str | None = None,
        stream: Stream | None = None,
        tag: int = 0,
    ) -> None:
        """Sends `send` to rank `peer`, whose `recv` must ask for as much, under the same `tag`.

        Messages from one rank to another arrive in the order of the calls.
        """
        source = Memory(send, dtype, False)
        arguments = (source.address, source.count, source.dtype.argument, peer, check_tag(tag))
        self._run("hetcclSendTag", arguments, stream, source)

    def recv(
        self,
        recv: Any,
        peer: int,
        dtype: str | None = None,
        stream: Stream | None = None,
        tag: int = 0,
    ) -> None:
        """Receives the message that rank `peer` sends under the same `tag`."""
        target = Memory(recv, dtype, True)
        arguments = (target.address, target.count, target.dtype.argument, peer, check_tag(tag))
        self._run("hetcclRecvTag", arguments, stream, target)

    def pre_mul_sum(self, factor: float, dtype: str) -> PreMulSum:
        """The sum of each rank's elements times that rank's `factor`, for elements of `dtype`.

        Every rank of a collective passes such an operator; factors may differ. `factor` is rounded
        to `dtype`.
        """
        if dtype not in DATA_TYPES:
            raise ValueError(f"{dtype!r} is none of {', '.join(DATA_TYPES)}")
        kind, number = DATA_TYPES[dtype], ctypes.c_int()
        scalar = ctypes.create_string_buffer(pack([factor], kind), kind.bytes)
        arguments = (ctypes.byref(number), scalar, kind, Residence.HOST_IMMEDIATE, self._comm)
        self._call("hetcclRedOpCreatePreMulSum", *arguments)
        return PreMulSum(number.value, self._free_operator)

    def _free_operator(self, number: int) -> None:
        if self._comm:
            self._call("hetcclRedOpDestroy", number, self._comm)

    def barrier(self, stream: Stream | None = None) -> None:
        """No rank passes before every rank has come."""
        self._run("hetcclBarrier", (), stream)

    def encode(
        self,
        source: Any,
        codes: Any,
        encoding: str,
        dtype: str | None = None,
        stream: Stream | None = None,
    ) -> None:
        """Encodes the floats of `source` into `codes`, `hetccl.encoded_bytes` of them, to the bits
        that collectives encode to: `encoding` is as `wire`, but never stochastic.

        Communicates nothing, and begins at once, also within a group.
        """
        plain, coded = Memory(source, dtype, False), Memory(codes, "uint8", True)
        self._recode("hetcclEncode", (plain, coded), plain, encoding, stream)

    def decode(
        self,
        codes: Any,
        target: Any,
        encoding: str,
        dtype: str | None = None,
        stream: Stream | None = None,
    ) -> None:
        """Decodes the result of `encode` for as many elements as `target` has; `dtype` is
        `target`'s.
        """
        coded, plain = Memory(codes, "uint8", False), Memory(target, dtype, True)
        self._recode("hetcclDecode", (coded, plain), plain, encoding, stream)

    def _recode(
        self,
        name: str,
        ends: tuple[Memory, Memory],
        plain: Memory,
        encoding: str,
        stream: Stream | None,
    ) -> None:
        check_codes(ends[0] if plain is ends[1] else ends[1], plain, encoding)
        self._check(ends)
        arguments = (*_ends(*ends), plain.count, plain.dtype.argument, encoding.encode())
        self._run_now(name, arguments, stream, ends)

    def check(self) -> None:
        """Raises the first failure of asynchronous work."""
        self._failure()

    def set_timeout(self, seconds: float) -> None:
        """The deadline of collectives called from now on."""
        self._call("hetcclCommSetTimeout", self._comm, int(seconds * 1000))

    def stats(self) -> CommStats:
        """Counters of this rank, since init."""
        raw = _lib.Stats(size=ctypes.sizeof(_lib.Stats))
        self._call("hetcclCommGetStats", self._comm, ctypes.byref(raw))
        return CommStats(raw.operations, raw.cross_bytes_sent, raw.least_cross_bytes, raw.plans)

    def topology(self) -> dict[str, Any]:
        """The graph of ranks, clusters and links that all ranks agreed on."""
        return self._describe("hetcclCommGetTopology")

    def tuning(self) -> dict[str, Any]:
        """The state of tuning: see hetcclCommGetTuning for the fields."""
        return self._describe("hetcclCommGetTuning")

    def tuning_space(
        self,
        collective: str,
        count: int,
        dtype: str = "float32",
        op: str = "sum",
        root: int = 0,
    ) -> dict[str, Any]:
        """The key of such a call, and the settings that tuning may give it.

        ``{"key", "encoding", "subspaces": [{"start", "axes": {parameter: [value]}}]}``; the first
        start is the default. "encoding" is how the call is encoded between clusters, "" if it is
        not: tuning leaves encoded calls alone. ``count`` as the collective's own method counts it.
        """
        call = (collective.encode(), count, DATA_TYPES[dtype], number_of(op), root)
        return self._describe("hetcclCommGetTuningSpace", *call)

    def set_tuning(self, key: dict[str, Any], setting: dict[str, Any]) -> None:
        """From the next call on, collectives of ``key`` use ``setting``, and no search changes it.

        Every rank calls it between the same collectives, with the same arguments.
        """
        given = json.dumps({"key": key, "setting": setting})
        self._call("hetcclCommSetTuning", self._comm, given.encode())

    def dump(self) -> dict[str, Any]:
        """Returns the last 1,024 collectives of this rank, their outcomes, and the failure, if any.

        Thread-safe: ask it while a collective hangs. See hetcclCommDump for the fields.
        """
        return self._describe("hetcclCommDump")

    def finalize(self) -> None:
        """Waits for enqueued work, within its deadlines, and says goodbye to the other ranks; in
        the background when not `blocking`, until `ready`. Only `destroy` may follow.
        """
        self._alive()
        self._start("hetcclCommFinalize", self._comm)

    def destroy(self) -> None:
        """Waits for enqueued work, within its deadlines, and frees the communicator. Idempotent."""
        comm, self._comm = self._comm, ctypes.c_void_p()
        if comm:
            self._library.call("hetcclCommDestroy", comm)

    def abort(self) -> None:
        """Ends enqueued work on every rank, and frees the communicator. Idempotent."""
        comm, self._comm = self._comm, ctypes.c_void_p()
        if comm:
            self._library.call("hetcclCommAbort", comm)

    def __enter__(self) -> Communicator:
        return self

    def __exit__(self, kind: object, *raised: object) -> None:
        if kind is None:
            self.destroy()
        else:
            self.abort()

    def _pair(self, send: Any, recv: Any, dtype: str | None) -> tuple[Memory, Memory]:
        """Both buffers; equal when the call is in place."""
        if recv is None or recv is send:
            return (both := Memory(send, dtype, True)), both
        source, target = Memory(send, dtype, False), Memory(recv, dtype, True)
        if source.dtype is not target.dtype:
            raise TypeError(f"{source.dtype.name} cannot be received as {target.dtype.name}")
        return source, target

    def _expect(self, memory: Memory, count: int) -> None:
        if memory.count != count:
            raise ValueError(
                f"one buffer has {memory.count} elements, and the other asks for {count} "
                f"({self.size} ranks)"
            )

    def _reduce(
        self,
        name: str,
        source: Memory,
        target: Memory,
        residual: Any,
        dtype: str | None,
        op: str | PreMulSum,
        stream: Stream | None,
    ) -> None:
        """A reduction whose result is `target` on every rank, with a residual unless it is None."""
        rest = (target.count, source.dtype.argument, number_of(op))
        held = read_residual(residual, source, dtype)
        if held is None:
            self._run(name, (source.address, target.address, *rest), stream, source, target)
            return
        arguments = (source.address, target.address, held.address, *rest)
        self._run(f"{name}WithResidual", arguments, stream, source, target, held)

    def _run(
        self,
        name: str,
        arguments: tuple[Any, ...],
        stream: Stream | None,
        *memories: Memory | None,
    ) -> None:
        """Makes a call that works on `memories`; within a group, notes it for the group's end."""
        self._check(memories)
        if _groups.noted.groups:
            call = functools.partial(self._run_now, name, arguments, stream, memories)
            _groups.noted.calls.append(call)
        else:
            self._run_now(name, arguments, stream, memories)

    def _run_now(
        self,
        name: str,
        arguments: tuple[Any, ...],
        stream: Stream | None,
        memories: tuple[Memory | None, ...],
    ) -> None:
        handle = None if stream is None else stream._handle
        code = self._library.functions[name](*arguments, self._comm, handle)
        if code:
            raise self._library.error(code)
        if stream is not None:
            stream._kept += memories

    def _counts(self, name: str, counts: Sequence[int], memory: Memory) -> ctypes.Array[Any]:
        """`counts` for the C API; they must use up `memory`."""
        if len(counts) != self.size or min(counts) < 0 or sum(counts) != memory.count:
            raise ValueError(
                f"{name} must be {self.size} numbers, one for each rank, that add up to the "
                f"buffer's {memory.count} elements"
            )
        return (ctypes.c_size_t * self.size)(*counts)

    def _where(self) -> tuple[int, int]:
        if self._place is None:
            rank, size = ctypes.c_int(), ctypes.c_int()
            self._call("hetcclCommUserRank", self._comm, ctypes.byref(rank))
            self._call("hetcclCommCount", self._comm, ctypes.byref(size))
            self._place = rank.value, size.value
        return self._place

    def _failure(self) -> int:
        """SUCCESS or IN_PROGRESS; a failure is raised."""
        failure = ctypes.c_int()
        self._call("hetcclCommGetAsyncError", self._comm, ctypes.byref(failure))
        if failure.value not in (Result.SUCCESS, Result.IN_PROGRESS):
            raise self._library.error(failure.value)
        return failure.value

    def _describe(self, name: str, *arguments: Any) -> dict[str, Any]:
        """The JSON that a function gives."""
        text = ctypes.c_char_p()
        self._call(name, self._comm, *arguments, ctypes.byref(text))
        described: dict[str, Any] = json.loads(text.value or b"{}")
        return described

    def _start(self, name: str, *arguments: Any) -> None:
        """Makes a call that may go on in the background."""
        code = self._library.result(name, *arguments)
        if code not in (Result.SUCCESS, Result.IN_PROGRESS):
            raise self._library.error(code)

    def _part(self, name: str, *arguments: Any, flags: tuple[int, ...] = ()) -> Communicator:
        """A communicator of some of this one's ranks, as the function makes it."""
        part = Communicator.__new__(Communicator)
        part._library, part._comm, part._place = self._library, ctypes.c_void_p(), None
        part._on_host = self._on_host
        self._alive()
        part._start(name, self._comm, *arguments, ctypes.byref(part._comm), None, *flags)
        return part

    def _alive(self) -> None:
        if not self._comm:
            raise ValueError("this communicator has been destroyed or aborted")

    def _check(self, memories: tuple[Memory | None, ...]) -> None:
        """Raises if there is no communicator, or if its calls cannot work on `memories`."""
        if not self._comm:
            self._alive()
        if self._on_host:
            for one in memories:
                if one is not None and not one.is_host:
                    raise ValueError(FOREIGN_DEVICE)

    def _call(self, name: str, *arguments: Any) -> None:
        self._alive()
        self._library.call(name, *arguments)
