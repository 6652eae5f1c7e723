"""Messages between the ranks of a check and rank 0, over TCP, beside any communicator.

A check must speak where communicators cannot be made: where versions differ, or ports are closed.
Each rank keeps one connection to rank 0. Both ends prove that they know the job's secret before
anything else is read; frames are JSON of bounded length, and every wait has an end.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import queue
import socket
import struct
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

_MOST_BYTES = 8 << 20  # of a frame
_NONCE, _PROOF = 16, hashlib.sha256().digest_size
_PINGS = 5
_GREETING = 5.0  # seconds for one connection to be made and to prove itself


class PanelError(RuntimeError):
    """The ranks of a check do not reach rank 0; the text says why and what to do."""


def key_of(uid: bytes) -> bytes:
    """The secret of a check, from the unique id of its job."""
    return hmac.digest(uid, b"hetccl check", "sha256")


def _prove(key: bytes, side: bytes, *parts: bytes) -> bytes:
    return hmac.digest(key, side + b"".join(parts), "sha256")


def _read(connection: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        got = connection.recv(min(size - len(data), 1 << 20))
        if not got:
            raise ConnectionError("the connection was closed")
        data += got
    return bytes(data)


def _send(connection: socket.socket, value: Any) -> None:
    text = json.dumps(value).encode()
    if len(text) > _MOST_BYTES:
        raise ValueError(f"{len(text)} bytes are more than a frame of {_MOST_BYTES}")
    connection.sendall(struct.pack("!I", len(text)) + text)


def _receive(connection: socket.socket) -> Any:
    (size,) = struct.unpack("!I", _read(connection, 4))
    if size > _MOST_BYTES:
        raise ConnectionError(f"a frame of {size} bytes, and {_MOST_BYTES} is the most")
    return json.loads(_read(connection, size))


def listen_at(port: int) -> socket.socket:
    """A listener at a port of all addresses, IPv6 ones too; 0 is any port. Raises OSError."""
    both = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both else socket.AF_INET
    return socket.create_server(("", port), family=family, backlog=1024, dualstack_ipv6=both)


def listen(ports: Sequence[int]) -> socket.socket:
    """Returns a listener at the first free one of `ports`, or at any port if the list is empty."""
    for port in ports or (0,):
        with contextlib.suppress(OSError):
            return listen_at(port)
    raise PanelError(
        f"none of the ports {ports[0]} to {ports[-1]} of HETCCL_PORT_RANGE is free: widen it"
    )


class Lead:
    """Rank 0's end: hears the other ranks. Ranks that do not come, or are lost, are in `lost`."""

    def __init__(self, listener: socket.socket, key: bytes, size: int) -> None:
        self.rank, self.size = 0, size
        self.lost: dict[int, str] = {}
        self.clocks: dict[int, tuple[float, float]] = {}  # seconds ahead of us, give or take
        self._key, self._listener = key, listener
        self._connections: dict[int, socket.socket] = {}
        self._came: queue.Queue[int] = queue.Queue()
        self._pool = ThreadPoolExecutor(32)
        self._open, self._lock = True, threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    def wait(self, seconds: float) -> None:
        """Waits until all ranks have come, or `seconds` have passed; ranks that have not come are
        lost.
        """
        deadline = time.monotonic() + seconds
        while len(self._connections) < self.size - 1:
            left = deadline - time.monotonic()
            try:
                self._came.get(timeout=max(left, 0.001))
            except queue.Empty:
                break
        with self._lock:
            self._open = False
        port = self._listener.getsockname()[1]
        for rank in range(self.size):
            if rank not in (self.rank, *self._connections):
                self.lost[rank] = f"nothing came to rank 0's port {port} within {seconds:.0f} s"

    def collect(self, own: Any, seconds: float) -> list[Any]:
        """A value of each rank, None of those that are lost."""
        deadline = time.monotonic() + seconds
        told = [None] * self.size
        told[self.rank] = own
        for rank, connection in sorted(self._connections.items()):
            try:
                connection.settimeout(max(deadline - time.monotonic(), 0.05))
                told[rank] = _receive(connection)
            except TimeoutError:
                self._lose(rank, f"it said nothing for {seconds:.0f} s")
            except (OSError, ValueError) as error:
                self._lose(rank, f"its process has ended: {error}")
        return told

    def share(self, value: Any, seconds: float) -> Any:
        """Tells `value` to all ranks."""
        for rank, connection in sorted(self._connections.items()):
            try:
                connection.settimeout(seconds)
                _send(connection, value)
            except OSError as error:
                self._lose(rank, f"it reads nothing: {error}")
        return value

    def close(self) -> None:
        """Lets the others go."""
        self._open = False
        self._listener.close()
        self._pool.shutdown(wait=False)
        for connection in self._connections.values():
            connection.close()

    def _lose(self, rank: int, why: str) -> None:
        self.lost.setdefault(rank, why)
        connection = self._connections.pop(rank, None)
        if connection is not None:
            connection.close()

    def _accept(self) -> None:
        self._listener.settimeout(0.2)
        while self._open:
            try:
                connection, _ = self._listener.accept()
            except TimeoutError:
                continue
            except OSError:
                return
            with contextlib.suppress(RuntimeError):  # the pool is closed
                self._pool.submit(self._greet, connection)

    def _greet(self, connection: socket.socket) -> None:
        """Takes a connection in, or drops a stranger's."""
        try:
            connection.settimeout(_GREETING)
            nonce = os.urandom(_NONCE)
            connection.sendall(nonce)
            theirs, number = _read(connection, _NONCE), _read(connection, 4)
            proof = _read(connection, _PROOF)
            rank = int.from_bytes(number, "big")
            right = hmac.compare_digest(proof, _prove(self._key, b"rank", nonce, theirs, number))
            if not right or not 0 <= rank < self.size or rank in (self.rank, *self._connections):
                raise ConnectionError("a stranger")
            connection.sendall(_prove(self._key, b"lead", theirs, nonce))
            self.clocks[rank] = self._compare_clocks(connection)
        except (OSError, struct.error):
            connection.close()
            return
        with self._lock:
            if self._open:
                self._connections[rank] = connection
                self._came.put(rank)
            else:
                connection.close()

    @staticmethod
    def _compare_clocks(connection: socket.socket) -> tuple[float, float]:
        """Returns how far the peer's clock is ahead of this one, and the error, by the shortest
        round trip.
        """
        found = []
        for _ in range(_PINGS):
            start, before = time.perf_counter(), time.time()
            connection.sendall(b"?")
            (theirs,) = struct.unpack("!d", _read(connection, 8))
            took = time.perf_counter() - start
            found.append((took / 2, theirs - (before + took / 2)))
        error, ahead = min(found)
        return ahead, error


class Follow:
    """Another rank's end."""

    def __init__(
        self, addresses: Sequence[tuple[str, int]], key: bytes, rank: int, seconds: float
    ) -> None:
        self.rank = rank
        self.lost: dict[int, str] = {}
        deadline = time.monotonic() + seconds
        said = "it has no address"
        while True:
            for address in addresses:
                try:
                    self._connection = self._dial(address, key)
                    return
                except OSError as error:
                    said = f"{address[0]}:{address[1]}: {error}"
            if time.monotonic() > deadline:
                break
            time.sleep(0.1)
        raise PanelError(
            f"it cannot reach rank 0 at {said}; open rank 0's ports (HETCCL_PORT_RANGE) "
            "in every host's firewall, or choose an interface that all hosts reach by "
            "HETCCL_SOCKET_IFNAME"
        )

    def _dial(self, address: tuple[str, int], key: bytes) -> socket.socket:
        connection = socket.create_connection(address, timeout=_GREETING)
        try:
            theirs, nonce = _read(connection, _NONCE), os.urandom(_NONCE)
            number = self.rank.to_bytes(4, "big")
            connection.sendall(nonce + number + _prove(key, b"rank", theirs, nonce, number))
            proof = _read(connection, _PROOF)
            if not hmac.compare_digest(proof, _prove(key, b"lead", nonce, theirs)):
                raise ConnectionError("who listens there is no rank of this job")
            for _ in range(_PINGS):
                _read(connection, 1)
                connection.sendall(struct.pack("!d", time.time()))
        except BaseException:
            connection.close()
            raise
        return connection

    def collect(self, own: Any, seconds: float) -> list[Any]:
        """Tells rank 0 a value."""
        self._connection.settimeout(seconds)
        _send(self._connection, own)
        return []

    def share(self, value: Any, seconds: float) -> Any:
        """Returns rank 0's value. Raises PanelError if it sends nothing for `seconds`."""
        del value
        try:
            self._connection.settimeout(seconds)
            return _receive(self._connection)
        except (OSError, ValueError) as error:
            raise PanelError(f"it has lost rank 0: {error}") from None

    def close(self) -> None:
        """Leaves."""
        self._connection.close()


Panel = Lead | Follow
