"""The part that senders and receivers share: peers, messages, leases, the loop of `poll`."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import secrets
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from hetccl._lib import HetcclError
from hetccl.endpoint import MAX_NOTIFICATION
from hetccl.kv import messages
from hetccl.kv.description import Description
from hetccl.kv.errors import KvError, check_integer, check_text, read_object
from hetccl.kv.metrics import Metrics
from hetccl.kv.pack import Blocks, Cache
from hetccl.kv.plan import LEAST_PIECE
from hetccl.kv.transfers import Budget, Slots

_MOST_LOST = 1024  # numbers of lost peers, whose late messages are no strangers'
_MOST_STRANGERS = 64  # links whose introduction has come in part
_WATCH_PERIOD = 0.1  # seconds between two looks for peers that are gone
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
    sender's `least_piece` decides what goes direct (`least_bytes` of `hetccl.kv.plan`). Layers that
    hold fewer than `least_send` bytes wait for the next ones of the same tokens.
    """

    slots: int = 16
    slot_bytes: int = 1 << 20
    lease: float = 30.0
    grace: float = 5.0
    most_transfers: int = 64
    checksum: bool = False
    least_piece: int = LEAST_PIECE
    least_send: int = 512 << 10

    def __post_init__(self) -> None:
        for name in ("slots", "slot_bytes", "lease", "most_transfers"):
            if not getattr(self, name) > 0:
                raise KvError(f"{name} is {getattr(self, name)}: it must be positive")


@dataclasses.dataclass(eq=False)
class Peer:
    """A session at the other end, as its metadata describes it. `links` are the endpoint's peers
    that lead to it: two where both ends have connected. This end sends by the first."""

    name: str
    token: str
    description: Description
    staging: int
    slot_bytes: int
    slots: int
    links: list[Any]
    renew_at: float
    last_number: int = 0  # of the hand-offs that the receiver has offered
    handoffs: dict[int, Any] = dataclasses.field(default_factory=dict)
    parts: messages.Parts = dataclasses.field(default_factory=messages.Parts)

    @property
    def number(self) -> int:
        """Its number: the first link's."""
        return int(self.links[0].number)


class Session(ABC):
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
        self._peers: dict[int, Peer] = {}
        self._links: dict[int, Peer] = {}  # by the number of each link
        self._lost: deque[int] = deque(maxlen=_MOST_LOST)  # links
        self._strangers: dict[int, messages.Parts] = {}  # links that have not introduced themselves
        self._watch_at = clock()
        self._outcomes: list[Outcome] = []
        self._start()

    @property
    def peers(self) -> dict[int, str]:
        """The names of the connected peers, by their numbers. Several may have one name: a worker
        that was started again, while its loss is not noticed yet."""
        return {number: peer.name for number, peer in sorted(self._peers.items())}

    @property
    def in_use(self) -> dict[str, int]:
        """The numbers of requests and hand-offs that have not ended, of transfers under way, and of
        staging slots that are taken: zeros when nothing is going on."""
        slots = self.options.slots - self._slots.n_free
        counts = {"transfers": self._budget.used, "slots": slots}
        return counts | self._count_requests()

    def metadata(self) -> str:
        """Returns the text that a peer's `connect` takes: the endpoint's metadata, the cache's
        description and the staging. It may travel by any way, and holds a secret if the endpoint's
        does."""
        return self._introduction(self._endpoint.metadata())

    def _introduction(self, endpoint: str) -> str:
        values = {
            "version": messages.VERSION,
            "name": self._endpoint.name,
            "token": self._token,
            "endpoint": endpoint,
            "description": self.description.to_bytes().decode(),
            "staging": self._staging.id,
            "slot_bytes": self._slots.slot_bytes,
            "slots": self.options.slots,
        }
        return json.dumps(values, separators=(",", ":"))

    def open(self, metadata: str, timeout: float | None = 10.0) -> Any:
        """Does the slow part of `connect`, in any thread. Returns its `link`. Raises KvError, which
        names both caches, if they cannot be joined; HetcclError if there is no connection within
        `timeout` seconds.
        """
        facts = _read_metadata(metadata)
        self._check_peer(facts["description"])
        return self._endpoint.connect(facts["endpoint"], timeout=timeout)

    def connect(
        self, metadata: str, timeout: float | None = 10.0, *, link: Any | None = None
    ) -> int:
        """Connects to the session whose `metadata` it is, and introduces this one to it.

        Returns the peer's number. One end has to call it. Does not wait where `link` is what `open`
        has returned for these metadata. Raises KvError and HetcclError as `open` does.
        """
        facts = _read_metadata(metadata)
        known = self._find(facts["token"])
        if known is not None:
            self._close_links([] if link is None else [link])
            return known.number
        found = self.open(metadata, timeout) if link is None else link
        del facts["endpoint"]
        peer = self._add(facts, found)
        self._send(peer, "hello", metadata=self._introduction(""))
        return peer.number

    def disconnect(self, number: int, cause: str = "it was disconnected") -> None:
        """Closes the connection to a peer; its hand-offs fail with `cause`."""
        if number in self._peers:
            self._lose(self._peers[number], cause)

    def poll(self) -> list[Outcome]:
        """Makes progress, without waiting, and returns the requests that have ended, each exactly
        once. Call it often: it takes in messages, moves chunks, and renews leases. Raises no error
        of a peer: those are causes of outcomes."""
        self._receive()
        self._watch()
        self._step()
        self._renew()
        outcomes, self._outcomes = self._outcomes, []
        return outcomes

    def fileno(self) -> int:
        """Returns a descriptor for `select`: it is readable if `poll` has something to do before
        `due`.
        """
        return int(self._endpoint.fileno())

    @property
    def due(self) -> float | None:
        """The time, of `clock`, at which `poll` must be called even if nothing arrives: in the past
        while data moves, None if never. A call of another method may make it earlier.
        """
        if self._moves:
            return self._clock()
        times = [peer.renew_at for peer in self._peers.values()]
        return min([*times, *self._expiries()], default=None)

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

    @abstractmethod
    def _start(self) -> None:
        """Makes the subclass's records."""

    @property
    @abstractmethod
    def _is_idle(self) -> bool: ...

    @property
    @abstractmethod
    def _moves(self) -> bool:
        """Whether progress may need calls of `poll` although `fileno` reports nothing."""

    @abstractmethod
    def _expiries(self) -> Iterable[float]:
        """Returns the times at which something expires, while nothing moves."""

    @abstractmethod
    def _count_requests(self) -> dict[str, int]: ...

    @abstractmethod
    def _check_peer(self, description: Description) -> None: ...

    @abstractmethod
    def _handle(self, peer: Peer, via: Any, kind: str, values: dict[str, Any]) -> None:
        """Takes a message that came by the link `via`."""

    @abstractmethod
    def _step(self) -> None: ...

    @abstractmethod
    def _abort_all(self, cause: str) -> None: ...

    @abstractmethod
    def _forget_peer(self, peer: Peer, cause: str) -> None:
        """Fails the hand-offs of a peer whose connection is closed: no byte moves any more."""

    @abstractmethod
    def _renewable(self, peer: Peer) -> Iterable[tuple[int, float]]:
        """Returns number and lease of the hand-offs that this end keeps alive."""

    # Peers and messages.

    def _find(self, token: str) -> Peer | None:
        return next((peer for peer in self._peers.values() if peer.token == token), None)

    def _add(self, facts: dict[str, Any], link: Any) -> Peer:
        peer = Peer(links=[link], renew_at=self._clock(), **facts)
        self._peers[peer.number] = self._links[peer.number] = peer
        return peer

    def _welcome(self, link: Any, metadata: str) -> None:
        """Takes the session that introduces itself by `link`."""
        facts = _read_metadata(metadata)
        known = self._find(facts["token"])
        if known is not None:  # both ends have connected
            known.links.append(link)
            self._links[link.number] = known
            return
        self._check_peer(facts["description"])
        del facts["endpoint"]
        self._add(facts, link)

    def _receive(self) -> None:
        for link, payload in self._endpoint.notifications():
            peer = self._links.get(link.number)
            try:
                if peer is not None:
                    self._take(peer, link, payload)
                elif link.number not in self._lost:
                    self._take_first(link, payload)
            except KvError as error:
                self.metrics.messages_refused += 1
                if peer is not None:
                    self._lose(peer, f"it sent a wrong message: {error}")
                else:
                    self._close_links([link])

    def _take(self, peer: Peer, link: Any, payload: bytes) -> None:
        data = peer.parts.add(payload)
        if data is None:
            return
        kind, token, values = messages.decode(data)
        if token != peer.token or kind == "hello":
            raise KvError(f"{kind} of another session")
        self._handle(peer, link, kind, values)

    def _take_first(self, link: Any, payload: bytes) -> None:
        """Takes the first message of a link, which must be a session's introduction."""
        if link.number not in self._strangers and len(self._strangers) >= _MOST_STRANGERS:
            self._strangers.pop(next(iter(self._strangers)))
        data = self._strangers.setdefault(link.number, messages.Parts()).add(payload)
        if data is None:
            return
        del self._strangers[link.number]
        kind, _, values = messages.decode(data)
        if kind != "hello":
            raise KvError(f"{kind} of a stranger")
        self._welcome(link, values["metadata"])

    def _send(self, peer: Peer, kind: str, **values: Any) -> bool:
        """Sends a message; a peer that takes none is lost. Returns whether it was sent."""
        return self._post(peer, self._message(kind, **values))

    def _post(self, peer: Peer, message: bytes) -> bool:
        if self._peers.get(peer.number) is not peer:
            return False
        try:
            for part in messages.cut(message, MAX_NOTIFICATION):
                self._endpoint.notify(peer.links[0], part)
        except HetcclError as error:
            self._lose(peer, str(error))
            return False
        return True

    def _message(self, kind: str, **values: Any) -> bytes:
        """Returns a message, or a transfer's notification. Raises KvError if it is too long."""
        return messages.encode(kind, self._token, **values)

    def _lose(self, peer: Peer, cause: str) -> None:
        """Ends the connection to a peer, after which no byte of it moves."""
        if self._peers.get(peer.number) is not peer:
            return
        del self._peers[peer.number]
        for link in peer.links:
            del self._links[link.number]
        self.metrics.peers_lost += 1
        self._close_links(peer.links)
        self._forget_peer(peer, f"{peer.name} is lost: {cause}")

    def _close_links(self, links: list[Any]) -> None:
        for link in links:
            self._lost.append(link.number)
            with contextlib.suppress(HetcclError):  # it is forgotten already
                link.close()

    def _watch(self) -> None:
        """Loses peers that the endpoint knows to be gone."""
        now = self._clock()
        if now < self._watch_at:
            return
        self._watch_at = now + _WATCH_PERIOD
        for state in self._endpoint.peers():
            peer = self._links.get(state["number"])
            if peer is not None and state["gone"] is not None:
                self._lose(peer, state["gone"])

    def _renew(self) -> None:
        now = self._clock()
        for peer in list(self._peers.values()):
            if now < peer.renew_at:
                continue
            live = list(self._renewable(peer))
            least = min([lease for _, lease in live], default=self.options.lease)
            peer.renew_at = now + least / 3
            # To idle peers, too: one that has died is dropped, with what its endpoint holds.
            self._send(peer, "renew", numbers=[number for number, _ in live])


def _read_metadata(metadata: str) -> dict[str, Any]:
    """Returns the facts of a session's metadata. Raises KvError that names a wrong field."""
    values = read_object("metadata", metadata, 2 * messages.MOST_BYTES)
    if values.pop("version", None) != messages.VERSION:
        raise KvError(
            f"metadata is not of version {messages.VERSION}: run the same hetccl at both ends"
        )
    names = {"name", "token", "endpoint", "description", "staging", "slot_bytes", "slots"}
    if unlike := names ^ values.keys():
        raise KvError(f"metadata lacks or does not know the field {min(unlike)[:80]}")
    return {
        "name": check_text("name", values["name"]),
        "token": check_text("token", values["token"], 64),
        "endpoint": check_text("endpoint", values["endpoint"], 1 << 20),
        "description": Description.from_bytes(
            check_text("description", values["description"], 1 << 20).encode()
        ),
        "staging": check_integer("staging", values["staging"], 0, (1 << 63) - 1),
        "slot_bytes": check_integer("slot_bytes", values["slot_bytes"], 1, 1 << 40),
        "slots": check_integer("slots", values["slots"], 1, 1 << 20),
    }
