"""Hand-overs to compare with: the whole cache of a request, staged in host memory, after its
prefill. They are as simple as they look: no layers, no blocks, no proof of who connects.

`Sockets` writes to plain TCP sockets. `Gloo` sends by torch.distributed: host forwarding, the
baseline of HetCCL's paper (table 10).
"""

from __future__ import annotations

import datetime
import json
import os
import queue
import socket
import threading
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from handover import Ended, Release
from torch import distributed

_HEADER_BYTES = 256
_MOST_ABORTED = 4096  # requests: many abort before their prefill, and never come


def gather(cache: torch.Tensor, table: Sequence[int], n_tokens: int) -> torch.Tensor:
    """Copies a request's cells to the host: [layers, K or V, tokens, heads, head size]."""
    found = cache.index_select(1, torch.tensor(table, device=cache.device)).transpose(1, 2)
    return found.flatten(2, 3)[:, :, :n_tokens].contiguous().cpu()


def scatter(cache: torch.Tensor, table: Sequence[int], cells: torch.Tensor) -> None:
    """Copies what `gather` has returned into the blocks of `table`."""
    places = torch.arange(cells.shape[2], device=cache.device)
    blocks = torch.tensor(table, device=cache.device)[places // cache.shape[3]]
    slots = places % cache.shape[3]
    cache[:, blocks, :, slots] = cells.to(cache.device, cache.dtype).permute(2, 0, 1, 3, 4)


class Whole(ABC):
    """The part that both share: a thread sends, one thread per prefill worker receives, and the
    worker's own thread touches the cache alone. The copy of a request that is aborted between its
    prefill and its decode stays in host memory: nobody tells the decode worker to drop it."""

    by_layer = False

    def __init__(self, name: str, role: str, cache: torch.Tensor, release: Release) -> None:
        self.name, self.role = name, role
        self._cache, self._release = cache, release
        self._begun: dict[str, tuple[Sequence[int], int, str]] = {}
        self._expected: dict[str, tuple[Sequence[int], str]] = {}
        self._early: dict[str, torch.Tensor] = {}  # it has come before its blocks
        self._aborted: OrderedDict[str, None] = OrderedDict()  # they may still come
        self._outbox: queue.Queue[tuple[str, str, torch.Tensor]] = queue.Queue()
        self._inbox: queue.Queue[tuple[str, str, torch.Tensor | None]] = queue.Queue()
        self._sent: queue.Queue[Ended] = queue.Queue()
        self._ended: list[Ended] = []
        self._lost: set[str] = set()
        self.bytes_sent = 0
        threading.Thread(target=self._send_all, daemon=True).start()

    def begin(self, request: str, table: Sequence[int], n_tokens: int, to: str) -> None:
        """Keeps the facts for `commit`."""
        self._begun[request] = (table, n_tokens, to)

    def computed(  # noqa: B027
        self, request: str, layer: int, tokens: tuple[int, int]
    ) -> None:
        """Does nothing: the whole request goes at once."""

    def commit(self, request: str) -> None:
        """Copies the request to the host, which frees its blocks, and queues it."""
        if request in self._begun:
            table, n_tokens, to = self._begun.pop(request)
            cells = gather(self._cache, table, n_tokens)
            self._release(request, table)
            self._outbox.put((to, request, cells))

    def expect(self, request: str, table: Sequence[int], n_tokens: int, source: str) -> None:
        """Keeps the blocks until the request has come."""
        self._expected[request] = (table, source)

    def abort(self, request: str, cause: str) -> None:
        """Frees the blocks at once: a late request is dropped in host memory."""
        if self.role != "prefill" and self._early.pop(request, None) is None:
            self._aborted[request] = None
            if len(self._aborted) > _MOST_ABORTED:
                self._aborted.popitem(last=False)
        held = self._begun.pop(request, None) or self._expected.pop(request, None)
        if held is not None:
            self._release(request, held[0])
            self._ended.append(Ended(request, cause))

    def poll(self) -> list[Ended]:
        """Scatters what has come."""
        while not self._inbox.empty():
            source, request, cells = self._inbox.get()
            if cells is None:
                self._lost.add(source)
            elif request in self._aborted:
                del self._aborted[request]
            else:
                self._early[request] = cells
        for request, (table, source) in list(self._expected.items()):
            if request in self._early:
                del self._expected[request]
                scatter(self._cache, table, self._early.pop(request))
                self._ended.append(Ended(request, ""))
            elif source in self._lost:
                self.abort(request, f"{source} is lost")
        while not self._sent.empty():
            self._ended.append(self._sent.get())
        ended, self._ended = self._ended, []
        return ended

    @property
    def in_use(self) -> dict[str, int]:
        """Requests that have not ended."""
        return {"requests": len(self._begun) + len(self._expected)}

    def close(self) -> None:  # noqa: B027
        """Does nothing: the threads end with the process."""

    def _send_all(self) -> None:
        while True:
            to, request, cells = self._outbox.get()
            header = json.dumps([request, list(cells.shape), str(cells.dtype)[6:]]).encode()
            try:
                self._send(to, header.ljust(_HEADER_BYTES), cells)
                self._sent.put(Ended(request, ""))
                self.bytes_sent += cells.nbytes
            except (OSError, RuntimeError, KeyError) as error:
                self._sent.put(Ended(request, f"{to} is lost: {error}"))

    def _receive_all(self, source: str, channel: Any) -> None:
        """Receives from one prefill worker until it is lost."""
        try:
            while True:
                header = torch.empty(_HEADER_BYTES, dtype=torch.uint8)
                self._fill(channel, header)
                request, shape, dtype = json.loads(header.numpy().tobytes())
                cells = torch.empty(shape, dtype=getattr(torch, dtype))
                if cells.numel():
                    self._fill(channel, cells.flatten().view(torch.uint8))
                self._inbox.put((source, request, cells))
        except (OSError, RuntimeError):
            self._inbox.put((source, "", None))

    @abstractmethod
    def _send(self, to: str, header: bytes, cells: torch.Tensor) -> None: ...

    @abstractmethod
    def _fill(self, channel: Any, tensor: torch.Tensor) -> None:
        """Receives a tensor of bytes."""


class Sockets(Whole):
    """A TCP connection from each prefill worker to each decode worker."""

    def __init__(
        self, name: str, role: str, cache: torch.Tensor, release: Release, address: str
    ) -> None:
        super().__init__(name, role, cache, release)
        self._links: dict[str, socket.socket] = {}
        self._door = socket.create_server((address, 0))
        threading.Thread(target=self._accept, daemon=True).start()

    def metadata(self) -> str:
        """Returns role, address and port."""
        return json.dumps([self.role, *self._door.getsockname()[:2]])

    def connect(self, peers: Mapping[str, str]) -> None:
        """Connects a prefill worker to the decode workers among `peers`."""
        for name, metadata in peers.items():
            role, *address = json.loads(metadata)
            if self.role == "prefill" and role == "decode" and name not in self._links:
                link = socket.create_connection(tuple(address), 30)
                link.settimeout(None)
                link.sendall(self.name.encode().ljust(_HEADER_BYTES))
                self._links[name] = link

    def _accept(self) -> None:
        while True:
            link, _ = self._door.accept()
            name = torch.empty(_HEADER_BYTES, dtype=torch.uint8)
            self._fill(link, name)
            source = name.numpy().tobytes().decode().strip()
            threading.Thread(target=self._receive_all, args=(source, link), daemon=True).start()

    def _send(self, to: str, header: bytes, cells: torch.Tensor) -> None:
        self._links[to].sendall(header)
        self._links[to].sendall(memoryview(_flat(cells)))

    def _fill(self, channel: socket.socket, tensor: torch.Tensor) -> None:
        view, at = memoryview(_flat(tensor)), 0
        while at < len(view):
            got = channel.recv_into(view[at:])
            if not got:
                raise ConnectionError("it has closed the connection")
            at += got


class Gloo(Whole):
    """torch.distributed's Gloo, whose world is all workers that the first `connect` lists."""

    def __init__(
        self, name: str, role: str, cache: torch.Tensor, release: Release, address: str
    ) -> None:
        super().__init__(name, role, cache, release)
        self._address = address
        with socket.create_server((address, 0)) as free:
            self._port = free.getsockname()[1]
        self._ranks: dict[str, int] = {}

    def metadata(self) -> str:
        """Returns role, address and port of a store, which the first worker runs."""
        return json.dumps([self.role, self._address, self._port])

    def connect(self, peers: Mapping[str, str]) -> None:
        """Makes the process group, together with all others."""
        if self._ranks:
            return
        os.environ.setdefault("GLOO_SOCKET_IFNAME", _interface_of(self._address))
        self._ranks = {name: rank for rank, name in enumerate(sorted(peers))}
        rank = self._ranks[self.name]
        _, host, port = json.loads(peers[min(peers)])
        minute, day = datetime.timedelta(minutes=1), datetime.timedelta(days=1)
        store = distributed.TCPStore(host, port, len(peers), rank == 0, timeout=minute)
        distributed.init_process_group(
            "gloo", store=store, rank=rank, world_size=len(peers), timeout=day
        )
        for name, metadata in peers.items():
            if self.role == "decode" and json.loads(metadata)[0] == "prefill":
                arguments = (name, self._ranks[name])
                threading.Thread(target=self._receive_all, args=arguments, daemon=True).start()

    def _send(self, to: str, header: bytes, cells: torch.Tensor) -> None:
        distributed.send(torch.frombuffer(bytearray(header), dtype=torch.uint8), self._ranks[to])
        if cells.numel():
            distributed.send(cells.flatten().view(torch.uint8), self._ranks[to])

    def _fill(self, channel: int, tensor: torch.Tensor) -> None:
        distributed.recv(tensor, channel)


def _flat(tensor: torch.Tensor) -> Any:
    """Returns the tensor's bytes, as a buffer."""
    return tensor.flatten().view(torch.uint8).numpy()


def _interface_of(address: str) -> str:
    """Returns the network interface that has the address, which Gloo wants to know."""
    import fcntl
    import struct

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            request = struct.pack("256s", name.encode())
            try:
                answer = fcntl.ioctl(probe.fileno(), 0x8915, request)  # SIOCGIFADDR
            except OSError:  # it has no address
                continue
            if socket.inet_ntoa(answer[20:24]) == address:
                return name
    raise OSError(f"no interface has the address {address}")
