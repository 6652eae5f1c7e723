"""A communicator over arrays: by the buffer protocol, DLPack or the CUDA array interface."""

from __future__ import annotations

import ctypes
import functools
import json
from collections.abc import Sequence
from typing import Any

from hetccl import _groups, _lib, wheels
from hetccl._elements import pack
from hetccl._lib import Residence, Result
from hetccl._memory import DATA_TYPES, FOREIGN_DEVICE, Memory, check_codes, check_tag, read_residual
from hetccl._operators import PreMulSum, number_of
from hetccl._stats import CommStats
from hetccl._streams import Stream


def _ends(source: Memory | None, target: Memory | None) -> tuple[int | None, int | None]:
    """Returns both buffers' addresses; None for a buffer that this rank does not pass."""
    return source.address if source else None, target.address if target else None


class Communicator:
    """One rank of a communicator. Collective: making one blocks until all `size` ranks have joined,
    unless `blocking` is False; then `ready` tells when it may be used.

    Buffers offer the buffer protocol, DLPack or the CUDA array interface. They are contiguous, lie
    in the memory of this rank's device, and are not copied. Do not receive into arrays of JAX,
    which shares them.

    Calls on the host return when they are complete, or at once if they are given a `Stream`. Calls
    on another device are enqueued on its default stream; its runtime tells when their data is
    there. Every rank makes the same calls in the same order, from one thread at a time, except
    `abort`. Leaving a ``with`` block destroys the communicator, or aborts it after an exception.
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
        """`uid` is from `unique_id`. `timeout` is the deadline of one collective, `init_timeout`
        that for all ranks to join, both in seconds. `device` is the device of the buffers: "host"
        (also None) or a GPU, such as "cuda:1". `name` is shown in the log and in `dump`.

        The other arguments override settings unless they are None: `cluster` HETCCL_CLUSTER, a
        label that splits clusters further; `host_id` HETCCL_HOSTID, this host's identity; `wire`
        HETCCL_WIRE and `wire_gather` HETCCL_WIRE_GATHER, the encodings of sums and all-gathers
        between clusters; `wire_inside` HETCCL_WIRE_INSIDE, whether to encode if all ranks are in
        one cluster.
        """
        if len(uid) != _lib.UniqueId.BYTES:
            raise ValueError(f"a unique id has {_lib.UniqueId.BYTES} bytes, this one {len(uid)}")
        self._library = _lib.library()
        self._comm = ctypes.c_void_p()
        self._place: tuple[int, int] | None = (rank, size)
        self._on_host = device in (None, "", "host")
        if device and device.startswith("cuda"):
            wheels.load_nccl()
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
        """Whether background work is complete. Raises HetcclError if it, or this, has failed."""
        return self._failure() == Result.SUCCESS

    def split(self, color: int | None, key: int = 0) -> Communicator | None:
        """Makes communicators of the ranks with equal `color` (0 or more), ordered by `key`, then
        by rank. Collective. Returns None for a `color` of None. The new one has these options, too.
        """
        number = _lib.NO_COLOR if color is None else color
        part = self._part("hetcclCommSplit", number, key)
        return part if part._comm else None

    def shrink(self, exclude: Sequence[int]) -> Communicator:
        """Makes a communicator of the ranks that are not in `exclude`, in the order of their ranks
        here. Collective over these ranks; excluded ranks do not call it. It has this one's options.
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

        `residual` keeps the rounding errors of an encoded call, and adds them to the next call with
        it (hetcclAllReduceWithResidual). It has as many elements of the same type, and begins as
        zeros.
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

        With `counts`, equal on all ranks, rank r gets counts[r] elements; otherwise all ranks get
        equally many. `residual`, as long as `send`, is as in `all_reduce`; not with `counts`.
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

        With `counts`, equal on all ranks, rank r sends counts[r] elements, which follow each other
        in `recv`; otherwise all ranks send equally many.
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
        """recv[i] = op over all ranks of send[i], on the root only; in place without `recv`.

        `recv` is ignored on other ranks, and `send` may be read-only there.
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
        """recv[r * count + i] = rank r's send[rank * count + i], where `count` is len(send) / size.

        With counts, send_counts[r] elements go to rank r, and recv_counts[r] elements come from it.
        They follow each other in the buffers, and may differ in every call.
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
        """Sends `send` to rank `peer`, which receives as many elements under the same `tag`.

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
        """Returns an operator that sums each rank's elements of `dtype` times that rank's `factor`.

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
        """Holds every rank until all ranks have called it."""
        self._run("hetcclBarrier", (), stream)

    def encode(
        self,
        source: Any,
        codes: Any,
        encoding: str,
        dtype: str | None = None,
        stream: Stream | None = None,
    ) -> None:
        """Encodes the floats of `source` to `codes`, which has `hetccl.encoded_bytes` bytes, with
        the bits that collectives use. `encoding` is as `wire`, but never stochastic.

        Does not communicate, and begins at once, also within a group.
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
        """Sets the deadline of collectives called from now on."""
        self._call("hetcclCommSetTimeout", self._comm, int(seconds * 1000))

    def stats(self) -> CommStats:
        """Returns the counters of this rank since init."""
        raw = _lib.Stats(size=ctypes.sizeof(_lib.Stats))
        self._call("hetcclCommGetStats", self._comm, ctypes.byref(raw))
        return CommStats(raw.operations, raw.cross_bytes_sent, raw.least_cross_bytes, raw.plans)

    def topology(self) -> dict[str, Any]:
        """Returns the graph of ranks, clusters and links on which all ranks have agreed."""
        return self._describe("hetcclCommGetTopology")

    def tuning(self) -> dict[str, Any]:
        """Returns the state of tuning: see hetcclCommGetTuning for the fields."""
        return self._describe("hetcclCommGetTuning")

    def tuning_space(
        self,
        collective: str,
        count: int,
        dtype: str = "float32",
        op: str = "sum",
        root: int = 0,
    ) -> dict[str, Any]:
        """Returns the key of such a call, and the settings that tuning may give it.

        ``{"key", "encoding", "subspaces": [{"start", "axes": {parameter: [value]}}]}``; the first
        start is the default. "encoding" is how the call is encoded between clusters, "" if it is
        not: tuning leaves encoded calls alone. ``count`` as the collective's own method counts it.
        """
        call = (collective.encode(), count, DATA_TYPES[dtype], number_of(op), root)
        return self._describe("hetcclCommGetTuningSpace", *call)

    def set_tuning(self, key: dict[str, Any], setting: dict[str, Any]) -> None:
        """Makes collectives of ``key`` use ``setting`` from the next call on; no search changes it.

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
        """Waits for enqueued work, within its deadlines, and leaves the other ranks in order. If
        not `blocking`, does so in the background, until `ready`. Only `destroy` may follow.
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
        """Returns both buffers, which are one if the call is in place."""
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
        """Returns `counts` for the C API. They must add up to the length of `memory`."""
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
        """Returns SUCCESS or IN_PROGRESS; raises a failure."""
        failure = ctypes.c_int()
        self._call("hetcclCommGetAsyncError", self._comm, ctypes.byref(failure))
        if failure.value not in (Result.SUCCESS, Result.IN_PROGRESS):
            raise self._library.error(failure.value)
        return failure.value

    def _describe(self, name: str, *arguments: Any) -> dict[str, Any]:
        """Returns the JSON that a function writes."""
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
