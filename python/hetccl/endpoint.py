"""Endpoints: data from point to point without a communicator, as key-value caches need it.

One endpoint registers memory, and another one, once connected, puts blocks there or gets them from
there, without the first one's help::

    decode = hetccl.Endpoint("decode-0")
    cache = decode.register(tensor, "cache")        # a tensor or a buffer
    text = decode.metadata()                        # to the other process, by any way

    prefill = hetccl.Endpoint("prefill-0")
    source = prefill.register(other_tensor)
    peer = prefill.connect(text)
    blocks = [(source.id, 0, peer.region("cache"), 4096, 65536)]
    prefill.put(peer, blocks, b"request 7").wait()
    [(sender, payload)] = decode.notifications(timeout=1)

All of it is thread-safe.
"""

from __future__ import annotations

import array
import ctypes
import itertools
import json
import weakref
from collections.abc import Iterable, Sequence
from ctypes import c_char_p, c_int64, c_size_t, c_uint64, c_void_p
from types import TracebackType
from typing import Any

from hetccl._lib import HetcclError, Result, library

MAX_NOTIFICATION = 32768
_GET, _PUT, _HOST = 1, 2, 4
_WORDS_OF_BLOCK = 5
_MOST_KNOWN = 1000


class _Options(ctypes.Structure):
    """hetcclTransferOptions_t."""

    _fields_ = [
        ("size", c_size_t),
        ("notification", c_char_p),
        ("notification_bytes", c_size_t),
        ("notifies", ctypes.c_int),
        ("timeout_ms", c_int64),
        ("stream", c_void_p),
    ]


def _ms(seconds: float | None, never: int = 0) -> int:
    """Returns a time as the C API takes it; `never` for None."""
    if seconds is None:
        return never
    if seconds < 0:
        raise ValueError(f"timeout is {seconds}: it must not be negative")
    return max(int(seconds * 1000), 1) if seconds > 0 else 0


def _text(name: str, handle: c_void_p) -> str:
    """Returns the text of a function that is first asked for the text's length."""
    size = c_size_t()
    while True:
        library().call(name, handle, None, ctypes.byref(size))
        buffer = ctypes.create_string_buffer(size.value + 256)  # it may grow meanwhile
        size = c_size_t(len(buffer))
        code = library().result(name, handle, buffer, ctypes.byref(size))
        if code == Result.SUCCESS:
            return buffer.raw[: size.value].decode()
        if size.value <= len(buffer):
            raise library().error(code)


def _memory_of(memory: Any) -> tuple[int, int, bool, Any]:
    """Returns the memory's address and bytes, whether the host reaches it, and the object that
    keeps it.
    """
    if hasattr(memory, "data_ptr"):  # torch
        if not memory.is_contiguous():
            raise ValueError("the tensor is not contiguous: register its storage as one that is")
        return memory.data_ptr(), memory.nbytes, not memory.is_cuda, memory
    view = memoryview(memory)
    if not view.c_contiguous or view.readonly:
        raise ValueError("the buffer is not contiguous, or is read-only")
    held = (ctypes.c_char * view.nbytes).from_buffer(view.cast("B"))
    return ctypes.addressof(held), view.nbytes, True, (memory, held)


class Region:
    """Memory that peers may access, until `close`."""

    def __init__(self, endpoint: Endpoint, number: int, size: int) -> None:
        self._endpoint = endpoint
        self.id, self.bytes = number, size

    def close(self, timeout: float | None = None) -> None:
        """Waits until nothing accesses the memory. Peers that still do after `timeout` seconds (by
        default HETCCL_LIVENESS_MS) are disconnected.
        """
        library().call(
            "hetcclEndpointDeregister", self._endpoint._handle, c_uint64(self.id), _ms(timeout)
        )
        self._endpoint._kept.pop(self.id, None)


class Peer:
    """Another endpoint, as long as it is connected. `name` is the name that it has given itself."""

    def __init__(self, endpoint: Endpoint, number: int, name: str, regions: dict[str, int]) -> None:
        self._endpoint, self._regions = endpoint, regions
        self.number, self.name = number, name

    def __repr__(self) -> str:
        return f"<Peer {self.number} {self.name!r}>"

    def region(self, label: str) -> int:
        """Returns the number of the peer's region with that label, as its metadata had it when the
        peers connected.
        """
        if label not in self._regions:
            raise KeyError(f"{self.name} has no region {label!r}: it has {sorted(self._regions)}")
        return self._regions[label]

    def state(self) -> dict[str, Any]:
        """Returns this peer's entry of `Endpoint.peers`."""
        for one in self._endpoint.peers():
            if one["number"] == self.number:
                return one
        raise KeyError(f"{self.name} is not connected any more")

    def close(self) -> None:
        """Leaves the peer. Transfers under way end with an error."""
        library().call("hetcclEndpointDisconnect", self._endpoint._handle, c_uint64(self.number))


class Blocks:
    """A list of blocks for transfers of `endpoint`, checked once.

    `blocks` has rows of (local region, local offset, remote region, remote offset, bytes): tuples,
    or an int64 array of shape [n, 5].
    """

    def __init__(self, endpoint: Endpoint, blocks: Any) -> None:
        if isinstance(blocks, Sequence):
            rows = array.array("Q", itertools.chain.from_iterable(blocks))
            view = memoryview(rows)
        else:
            view = memoryview(blocks)
            if view.ndim != 2 or view.shape is None or view.shape[1] != _WORDS_OF_BLOCK:
                raise ValueError(f"blocks have the shape {view.shape}: it must be [n, 5]")
        whole = view.c_contiguous and view.nbytes % (8 * _WORDS_OF_BLOCK) == 0
        if not whole or view.itemsize != 8 or view.format not in ("q", "Q", "l", "L"):
            raise ValueError("blocks must be rows of five integers of 64 bits, contiguous")
        memory = view.cast("B") if view.nbytes else memoryview(b"")
        raw = (ctypes.c_char * view.nbytes).from_buffer_copy(memory)
        self._handle = c_void_p()
        library().call(
            "hetcclEndpointPrepare",
            endpoint._handle,
            raw,
            view.nbytes // (8 * _WORDS_OF_BLOCK),
            ctypes.byref(self._handle),
        )
        weakref.finalize(self, library().result, "hetcclBlockListFree", self._handle)


class Transfer:
    """A put or a get under way. If it is dropped before it is done, it is cancelled."""

    def __init__(self, handle: c_void_p, of: Endpoint) -> None:
        self._handle, self._endpoint = handle, of
        self._result: int | None = None
        self._error: HetcclError | None = None
        self._ends = weakref.finalize(self, library().result, "hetcclTransferFree", handle)
        self._ends.atexit = False

    def _settle(self, code: int) -> bool:
        if code == Result.IN_PROGRESS:
            return False
        if self._result is None:
            self._error = library().error(code) if code else None
            self._result = code
            self._ends()
        return True

    def done(self) -> bool:
        """Whether it is over, and no byte of it moves any more. Raises HetcclError if it failed."""
        if self._result is None:
            self._settle(library().result("hetcclTransferTest", self._handle))
        if self._error is not None:
            raise self._error
        return self._result is not None

    def wait(self, timeout: float | None = None) -> None:
        """Waits until it is done. Raises TimeoutError after `timeout` seconds; the transfer goes
        on.
        """
        if self._result is None:
            code = library().result("hetcclTransferWait", self._handle, c_int64(_ms(timeout, -1)))
            self._settle(code)
        if not self.done():
            raise TimeoutError(f"the transfer is not done after {timeout} s")

    def cancel(self) -> None:
        """Makes it end soon, unless it is done before. `done` tells when no byte of it moves any
        more.
        """
        if self._result is None:
            library().call("hetcclTransferCancel", self._handle)


def _destroy(handle: c_void_p, kept: dict[int, Any]) -> None:
    library().result("hetcclEndpointDestroy", handle)
    kept.clear()


class Endpoint:
    """Moves blocks of memory from and to other endpoints; see the module.

    `device` is "host", "cuda:0" and the like; by default the thread's current GPU, or the host.
    """

    def __init__(self, name: str, device: str | None = None) -> None:
        self.name = name
        self._handle = c_void_p()
        self._kept: dict[int, Any] = {}  # registered memory
        self._known: dict[int, Peer] = {}
        library().call(
            "hetcclEndpointCreate",
            ctypes.byref(self._handle),
            name.encode(),
            device.encode() if device else None,
        )
        # Memory goes after the endpoint, also where nobody closes it.
        self._ends = weakref.finalize(self, _destroy, self._handle, self._kept)
        self._ends.atexit = False  # the library's own

    def __enter__(self) -> Endpoint:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Leaves all peers; transfers end with an error. Idempotent."""
        self._ends()

    def metadata(self) -> str:
        """Returns a text by which other endpoints connect. It holds a secret, unless
        HETCCL_SECRET_FILE is set: give it only to processes that you trust.
        """
        return _text("hetcclEndpointGetMetadata", self._handle)

    def register(
        self, memory: Any, label: str = "", *, get: bool = True, put: bool = True
    ) -> Region:
        """Lets peers access a contiguous tensor, or a writable buffer, which is kept alive until
        `Region.close`. `get` and `put` are their rights. `Peer.region` finds the region by `label`.
        """
        address, size, on_host, keeps = _memory_of(memory)
        number = c_uint64()
        library().call(
            "hetcclEndpointRegister",
            self._handle,
            c_void_p(address),
            size,
            (_GET if get else 0) | (_PUT if put else 0) | (_HOST if on_host else 0),
            label.encode(),
            ctypes.byref(number),
        )
        self._kept[number.value] = keeps
        return Region(self, number.value, size)

    def connect(self, metadata: str, timeout: float | None = None) -> Peer:
        """Connects to the endpoint of `metadata`, within `timeout` seconds (by default
        HETCCL_INIT_TIMEOUT_MS). The other endpoint need not call anything.
        """
        text = metadata.encode()
        number = c_uint64()
        library().call(
            "hetcclEndpointConnect",
            self._handle,
            text,
            len(text),
            _ms(timeout),
            ctypes.byref(number),
        )
        told = json.loads(metadata)
        regions = {one["label"]: one["id"] for one in told["regions"] if one["label"]}
        peer = Peer(self, number.value, told["name"], regions)
        self._known[peer.number] = peer
        return peer

    def peers(self) -> list[dict[str, Any]]:
        """Returns the peers, including recently lost ones: number, name, where, transport, gone
        (why, or None), bytes_put, bytes_got (by this end), bytes_taken, bytes_given (by the
        peer's), transfers, failed, under_way, stalls.
        """
        told: list[dict[str, Any]] = json.loads(_text("hetcclEndpointGetPeers", self._handle))
        return told

    def put(
        self,
        peer: Peer,
        blocks: Blocks | Any,
        notification: bytes = b"",
        *,
        timeout: float | None = None,
        stream: int = 0,
    ) -> Transfer:
        """Begins to move blocks to `peer`: see Blocks. A `notification` of at most 32 KiB reaches
        the peer once all blocks have arrived. `timeout` is in seconds (by default
        HETCCL_TIMEOUT_MS). Memory of a GPU is ready once the work enqueued on CUDA's `stream` is
        done.
        """
        return self._begin("hetcclEndpointPut", peer, blocks, notification, timeout, stream)

    def get(
        self,
        peer: Peer,
        blocks: Blocks | Any,
        notification: bytes = b"",
        *,
        timeout: float | None = None,
        stream: int = 0,
    ) -> Transfer:
        """Begins to move blocks from `peer`, which gets the `notification` once all were read.
        Otherwise like `put`.
        """
        return self._begin("hetcclEndpointGet", peer, blocks, notification, timeout, stream)

    def _begin(
        self,
        name: str,
        peer: Peer,
        blocks: Blocks | Any,
        notification: bytes,
        timeout: float | None,
        stream: int,
    ) -> Transfer:
        self._check(peer)
        listed = blocks if isinstance(blocks, Blocks) else Blocks(self, blocks)
        options = _Options(
            ctypes.sizeof(_Options),
            notification,
            len(notification),
            1 if notification else 0,
            _ms(timeout),
            stream,
        )
        handle = c_void_p()
        library().call(
            name,
            self._handle,
            c_uint64(peer.number),
            listed._handle,
            ctypes.byref(options),
            ctypes.byref(handle),
        )
        return Transfer(handle, self)

    def notify(self, peer: Peer, payload: bytes) -> None:
        """Sends at most 32 KiB to `peer`."""
        self._check(peer)
        library().call(
            "hetcclEndpointNotify", self._handle, c_uint64(peer.number), payload, len(payload)
        )

    def notifications(self, timeout: float = 0) -> list[tuple[Peer, bytes]]:
        """Returns all notifications that have arrived, in order for each peer. Waits at most
        `timeout` seconds for the first. While too many wait to be taken, peers' transfers stand
        still.
        """
        found: list[tuple[Peer, bytes]] = []
        buffer = ctypes.create_string_buffer(MAX_NOTIFICATION)
        number, size = c_uint64(), c_size_t()
        wait = _ms(timeout)
        while True:
            code = library().result(
                "hetcclEndpointTakeNotification",
                self._handle,
                c_int64(0 if found else wait),
                ctypes.byref(number),
                buffer,
                ctypes.byref(size),
            )
            if code == Result.IN_PROGRESS:
                return found
            if code:
                raise library().error(code)
            found.append((self._peer(number.value), buffer.raw[: size.value]))

    def fileno(self) -> int:
        """Returns a descriptor for `select` and the like, valid until `close`. It is readable while
        a notification waits, or if a peer has been lost since the last `peers`. Do not read from
        it.
        """
        found = ctypes.c_int()
        library().call("hetcclEndpointGetDescriptor", self._handle, ctypes.byref(found))
        return found.value

    def _check(self, peer: Peer) -> None:
        if peer._endpoint is not self:
            raise ValueError(f"{peer!r} is another endpoint's peer")

    def _peer(self, number: int) -> Peer:
        if number not in self._known:
            if len(self._known) >= _MOST_KNOWN:
                there = {one["number"] for one in self.peers()}
                self._known = {key: one for key, one in self._known.items() if key in there}
            names: Iterable[str] = (one["name"] for one in self.peers() if one["number"] == number)
            self._known[number] = Peer(self, number, next(iter(names), "?"), {})
        return self._known[number]
