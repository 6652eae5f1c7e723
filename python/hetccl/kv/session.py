"""The part that senders and receivers share: peers, messages, leases, the loop of `poll`."""

from __future__ import annotations

import base64
import binascii
import contextlib
import dataclasses
import json
import secrets
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from hetccl._lib import HetcclError
from hetccl.kv import messages
from hetccl.kv.description import Description
from hetccl.kv.errors import KvError, check_integer, check_text
from hetccl.kv.metrics import Metrics
from hetccl.kv.pack import Blocks, Cache
from hetccl.kv.plan import LEAST_PIECE
from hetccl.kv.transfers import Budget, Slots

_MOST_EARLY, _MOST_STRANGERS, _MOST_LOST = 256, 64, 1024
Release = Callable[[str, Blocks], None]


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The end of a request at one end.

    `kind` is "" if all cells arrived, else "aborted" (by an engine), "lease" (expired), "peer"
    (lost), "transfer" (failed), "checksum", "protocol", "refused" or "closed"; `cause` is a
    sentence that names the peer. `blocks` is the table that was given to `begin` or `offer`.
    """

    request: str
    kind: str
    cause: str
    blocks: Blocks

    @property
    def ok(self) -> bool:
        """Whether the target holds all cells."""
        return not self.kind


@dataclasses.dataclass(frozen=True)
class Options:
    """Limits and times of a session.

    `slots` of `slot_bytes` are its staging. `lease` seconds without a sign of life of the other end
    fail a hand-off; `grace` seconds after an abort a peer that has not acknowledged it is
    disconnected. `most_transfers` may be under way. `checksum` adds a CRC-32 of each chunk. A
    sender's `least_piece` decides what goes direct (`least_bytes` of `hetccl.kv.plan`).
    """

    slots: int = 16
    slot_bytes: int = 1 << 20
    lease: float = 30.0
    grace: float = 5.0
    most_transfers: int = 64
    checksum: bool = False
    least_piece: int = LEAST_PIECE

    def __post_init__(self) -> None:
        for name in ("slots", "slot_bytes", "lease", "most_transfers"):
            if not getattr(self, name) > 0:
                raise KvError(f"{name} is {getattr(self, name)}: it must be positive")


class Seen:
    """Numbers of hand-offs that a peer has used: 1, 2, ... in any order."""

    def __init__(self) -> None:
        self._below = 1
        self._above: set[int] = set()

    def add(self, number: int) -> bool:
        """Returns whether the number is new, and keeps it."""
        if number < self._below or number in self._above:
            return False
        self._above.add(number)
        while self._below in self._above:
            self._above.remove(self._below)
            self._below += 1
        return True


@dataclasses.dataclass(eq=False)
class Peer:
    """A session at the other end, as its metadata describes it."""

    name: str
    handle: Any
    token: str
    description: Description
    staging: int
    slot_bytes: int
    slots: int
    renew_at: float
    last_number: int = 0  # of the hand-offs that this end has offered
    seen: Seen = dataclasses.field(default_factory=Seen)
    handoffs: dict[int, Any] = dataclasses.field(default_factory=dict)


class Session:
    """The base of `Sender` and `Receiver`. Not thread-safe: one thread makes all calls.

    Registers the memory of `cache` and staging with `endpoint`, a `hetccl.Endpoint` that serves
    this session alone. `release(request, blocks)` is called exactly once for each request whose
    blocks become free (the subclasses say when); it must not call the session. `clock` returns
    monotonic seconds, and `close` waits by `sleep`; tests give their own.
    """

    def __init__(
        self,
        endpoint: Any,
        cache: Cache,
        options: Options | None = None,
        *,
        release: Release | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.options = options or Options()
        self.metrics = Metrics()
        self._endpoint = endpoint
        self._regions = [endpoint.register(storage) for storage in cache.storages]
        self.description = cache.description.at_regions([one.id for one in self._regions])
        self._cache = cache
        self._slots = Slots(self.options.slots, self.options.slot_bytes, cache.device)
        self._staging = endpoint.register(self._slots.memory)
        self._budget = Budget(self.options.most_transfers)
        self._release: Release = release or (lambda request, blocks: None)
        self._clock, self._sleep = clock, sleep
        self._token = secrets.token_hex(8)
        self._peers: dict[str, Peer] = {}
        self._early: dict[tuple[str, str], list[tuple[str, dict[str, Any]]]] = {}
        self._lost_tokens: deque[str] = deque(maxlen=_MOST_LOST)
        self._outcomes: list[Outcome] = []
        self._start()

    @property
    def peers(self) -> list[str]:
        """The names of the connected peers."""
        return sorted(self._peers)

    def metadata(self) -> bytes:
        """Returns the bytes that a peer's `connect` takes: the endpoint's metadata, the cache's
        description and the staging. They may travel by any way."""
        values = {
            "version": messages.VERSION,
            "name": self._endpoint.name,
            "token": self._token,
            "endpoint": base64.b64encode(self._endpoint.metadata()).decode(),
            "description": self.description.to_bytes().decode(),
            "staging": self._staging.id,
            "slot_bytes": self._slots.slot_bytes,
            "slots": self.options.slots,
        }
        return json.dumps(values, separators=(",", ":")).encode()

    def connect(self, metadata: bytes, timeout: float = 10.0) -> str:
        """Connects to the session whose `metadata` it is, and introduces this one to it.

        Returns the peer's name. One end has to call it. Raises KvError where the caches cannot be
        joined, which names both, and HetcclError where there is no connection within `timeout`
        seconds.
        """
        peer = self._welcome(metadata, timeout)
        self._send(peer, "hello", metadata=self.metadata().decode())
        return peer.name

    def disconnect(self, name: str, cause: str = "it was disconnected") -> None:
        """Closes the connection to a peer; its hand-offs fail with `cause`."""
        if name in self._peers:
            self._lose(self._peers[name], cause)

    def poll(self) -> list[Outcome]:
        """Makes progress, without waiting, and returns the requests that have ended, each exactly
        once. Call it often: it takes in messages, moves chunks, and renews leases. Raises no error
        of a peer: those are causes of outcomes. A peer that introduces itself is connected to in
        this call, which may take as long as a connection does."""
        self._receive()
        self._step()
        self._renew()
        outcomes, self._outcomes = self._outcomes, []
        return outcomes

    def close(self, timeout: float = 10.0) -> list[Outcome]:
        """Aborts all requests, waits until their blocks are free, disconnects, and gives the
        memory back. Returns the last outcomes. Peers that have not acknowledged within `timeout`
        seconds are disconnected first."""
        self._abort_all("this end was closed")
        outcomes, deadline = self.poll(), self._clock() + timeout
        while not self._is_idle:
            if self._clock() > deadline:
                for peer in list(self._peers.values()):
                    self._lose(peer, "this end was closed")
            self._sleep(0.001)
            outcomes += self.poll()
        for peer in list(self._peers.values()):
            self._lose(peer, "this end was closed")
        for region in (*self._regions, self._staging):
            region.close()
        return outcomes + self.poll()

    # The subclasses' parts.

    def _start(self) -> None:
        """Makes the subclass's records."""
        raise NotImplementedError

    @property
    def _is_idle(self) -> bool:
        raise NotImplementedError

    def _check_peer(self, description: Description) -> None:
        raise NotImplementedError

    def _handle(self, peer: Peer, kind: str, values: dict[str, Any]) -> None:
        raise NotImplementedError

    def _step(self) -> None:
        raise NotImplementedError

    def _abort_all(self, cause: str) -> None:
        raise NotImplementedError

    def _forget_peer(self, peer: Peer, cause: str) -> None:
        """Fails the hand-offs of a peer whose connection is closed: no byte moves any more."""
        raise NotImplementedError

    def _renewable(self, peer: Peer) -> Iterable[tuple[int, float]]:
        """Returns number and lease of the hand-offs that this end keeps alive."""
        raise NotImplementedError

    # Peers and messages.

    def _welcome(self, metadata: bytes, timeout: float, name: str | None = None) -> Peer:
        facts = _read_metadata(metadata)
        if name not in (None, facts["name"]):
            raise KvError(f"{name} introduced itself with the metadata of {facts['name']}")
        self._check_peer(facts["description"])
        known = self._peers.get(facts["name"])
        if known is not None and known.token == facts["token"]:
            return known
        if known is not None:
            self._lose(known, "a new session took its name")
        handle = self._endpoint.connect(facts.pop("endpoint"), timeout=timeout)
        if handle.name != facts["name"]:
            handle.close()
            raise KvError(f"the metadata of {facts['name']} led to {handle.name}")
        peer = Peer(handle=handle, renew_at=self._clock(), **facts)
        self._peers[peer.name] = peer
        for kind, values in self._early.pop((peer.name, peer.token), []):
            self._take(peer, kind, values)
        return peer

    def _receive(self) -> None:
        for name, payload in self._endpoint.notifications():
            try:
                kind, token, values = messages.decode(payload)
                if kind == "hello":
                    self._welcome(values["metadata"].encode(), 10.0, name)
                    continue
            except (KvError, HetcclError) as error:
                self.metrics.messages_refused += 1
                if name in self._peers and isinstance(error, KvError):
                    self._lose(self._peers[name], f"it sent a wrong message: {error}")
                continue
            peer = self._peers.get(name)
            if peer is not None and peer.token == token:
                self._take(peer, kind, values)
            elif token not in self._lost_tokens:
                self._keep_early((name, token), kind, values)

    def _keep_early(self, key: tuple[str, str], kind: str, values: dict[str, Any]) -> None:
        """Keeps messages that have overtaken a peer's hello, within bounds."""
        if key not in self._early and len(self._early) >= _MOST_STRANGERS:
            self._early.pop(next(iter(self._early)))
        kept = self._early.setdefault(key, [])
        if len(kept) < _MOST_EARLY:
            kept.append((kind, values))
        else:
            self.metrics.messages_refused += 1

    def _take(self, peer: Peer, kind: str, values: dict[str, Any]) -> None:
        if peer.name not in self._peers or self._peers[peer.name] is not peer:
            return
        try:
            self._handle(peer, kind, values)
        except KvError as error:
            self.metrics.messages_refused += 1
            self._lose(peer, f"it sent a wrong message: {error}")

    def _send(self, peer: Peer, kind: str, **values: Any) -> bool:
        """Sends a message; a peer that takes none is lost. Returns whether it was sent."""
        return self._post(peer, self._message(kind, **values))

    def _post(self, peer: Peer, message: bytes) -> bool:
        if self._peers.get(peer.name) is not peer:
            return False
        try:
            self._endpoint.notify(peer.handle, message)
        except HetcclError as error:
            self._lose(peer, str(error))
            return False
        return True

    def _message(self, kind: str, **values: Any) -> bytes:
        """Returns a message, or a transfer's notification. Raises KvError if it is too long."""
        return messages.encode(kind, self._token, **values)

    def _lose(self, peer: Peer, cause: str) -> None:
        """Ends the connection to a peer, after which no byte of it moves."""
        if self._peers.get(peer.name) is not peer:
            return
        del self._peers[peer.name]
        self._lost_tokens.append(peer.token)
        self.metrics.peers_lost += 1
        with contextlib.suppress(HetcclError):  # it is closed already
            peer.handle.close()
        self._forget_peer(peer, f"{peer.name} is lost: {cause}")

    def _renew(self) -> None:
        now = self._clock()
        for peer in list(self._peers.values()):
            if now < peer.renew_at:
                continue
            live = list(self._renewable(peer))
            least = min([lease for _, lease in live], default=self.options.lease)
            peer.renew_at = now + least / 3
            if live:
                self._send(peer, "renew", numbers=[number for number, _ in live])


def _read_metadata(metadata: bytes) -> dict[str, Any]:
    """Returns the facts of a session's metadata. Raises KvError that names a wrong field."""
    if len(metadata) > 2 * messages.MOST_BYTES:
        raise KvError(f"metadata takes {len(metadata)} bytes")
    try:
        values = json.loads(metadata)
    except (ValueError, RecursionError) as error:
        raise KvError(f"metadata is no JSON: {error}") from None
    if not isinstance(values, dict) or values.pop("version", None) != messages.VERSION:
        raise KvError(
            f"metadata is not of version {messages.VERSION}: run the same hetccl at both ends"
        )
    names = {"name", "token", "endpoint", "description", "staging", "slot_bytes", "slots"}
    if unlike := names ^ values.keys():
        raise KvError(f"metadata lacks or does not know the field {min(unlike)[:80]}")
    try:
        endpoint = base64.b64decode(
            check_text("endpoint", values["endpoint"], 1 << 20), validate=True
        )
    except binascii.Error as error:
        raise KvError(f"metadata: endpoint is no base64: {error}") from None
    return {
        "name": check_text("name", values["name"]),
        "token": check_text("token", values["token"], 64),
        "endpoint": endpoint,
        "description": Description.from_bytes(
            check_text("description", values["description"], 1 << 20).encode()
        ),
        "staging": check_integer("staging", values["staging"], 0, (1 << 63) - 1),
        "slot_bytes": check_integer("slot_bytes", values["slot_bytes"], 1, 1 << 40),
        "slots": check_integer("slots", values["slots"], 1, 1 << 20),
    }
