"""Moves a request's cache from the worker that prefills to the one that decodes.

Workers know the interface `Handover` alone. This file has the one by hetccl.kv: the prefill worker
writes each layer into the decode worker's blocks while it computes the next. The others, for
comparison, are in baselines.py.
"""

from __future__ import annotations

import dataclasses
import json
import queue
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import torch

import hetccl
from hetccl import kv

Release = Callable[[str, Any], None]  # a request and its blocks


@dataclasses.dataclass(frozen=True)
class Ended:
    """The end of a request's hand-over at one end. `cause` is "" if all of it is there."""

    request: str
    cause: str


class Handover(Protocol):
    """One worker's end. One thread makes all calls.

    A request's blocks belong to the hand-over from `begin` or `expect` on. It gives them back by
    `release(request, blocks)`, once, except at the decode worker after a success: `poll` says so.
    `by_layer`: whether `computed` sends, and not `commit` alone.
    """

    by_layer: bool

    def metadata(self) -> str:
        """Returns what the others' `connect` needs."""

    def connect(self, peers: Mapping[str, str]) -> None:
        """Connects to other workers, by name and metadata. May be called again with more."""

    def begin(self, request: str, table: Sequence[int], n_tokens: int, to: str) -> None:
        """Prefill: a request whose tokens will be computed in the blocks of `table`."""

    def computed(self, request: str, layer: int, tokens: tuple[int, int]) -> None:
        """Prefill: the cells of a layer are computed."""

    def commit(self, request: str) -> None:
        """Prefill: all cells are computed."""

    def expect(self, request: str, table: Sequence[int], n_tokens: int, source: str) -> None:
        """Decode: the blocks for a request that `source` prefills. Raises HetcclError or KvError
        if `source` is lost."""

    def abort(self, request: str, cause: str) -> None:
        """Ends a request early, if it has not ended; `poll` reports it."""

    def poll(self) -> list[Ended]:
        """Makes progress without waiting. Returns each request that has ended, once."""

    def close(self) -> None:
        """Leaves the other workers."""

    @property
    def bytes_sent(self) -> int:
        """The bytes of all hand-overs that this end has sent so far."""

    @property
    def in_use(self) -> dict[str, int]:
        """Counts what has not ended, by its kind."""


class Endpoints:
    """The hand-over by hetccl.kv.

    `by_layer`: sends each layer at once, else all of them after the last. `encoding` "int8" halves
    the bytes of bfloat16, and rounds.
    """

    def __init__(
        self,
        name: str,
        role: str,
        cache: torch.Tensor,
        model: str,
        release: Release,
        *,
        by_layer: bool = True,
        encoding: str = "",
    ) -> None:
        layers = {number: cache[number] for number in range(len(cache))}
        described = kv.describe(
            layers, "BSNHD", name=name, model=model, n_layers=len(cache), n_heads=cache.shape[4]
        )
        device = "host" if cache.device.type == "cpu" else str(cache.device)
        self._role, self.by_layer, self._encoding = role, by_layer, encoding
        self._n_layers = len(cache)
        self._n_tokens: dict[str, int] = {}
        self._metadata: dict[str, str] = {}  # of the prefill workers, at a decode worker
        self._numbers: dict[str, int] = {}  # of their sessions
        self._opening: set[str] = set()  # those to which a thread connects again
        self._opened: queue.SimpleQueue[tuple[str, str, Any]] = queue.SimpleQueue()
        kind = kv.Sender if role == "prefill" else kv.Receiver
        self._session: Any = kind(
            hetccl.Endpoint(name, device), kv.Cache(described, layers), release=release
        )
        self._ended: list[Ended] = []

    def metadata(self) -> str:
        """Returns the role and the session's metadata."""
        return json.dumps([self._role, self._session.metadata()])

    def connect(self, peers: Mapping[str, str]) -> None:
        """Connects a decode worker to the prefill workers among `peers`."""
        for name, told in peers.items():
            role, metadata = json.loads(told)
            if (self._role, role) == ("decode", "prefill"):
                self._metadata[name] = metadata
                self._connect(name, metadata)

    def begin(self, request: str, table: Sequence[int], n_tokens: int, to: str) -> None:
        """Begins a request; the decode worker may have offered its blocks before, or later."""
        self._session.begin(request, table, n_tokens)
        self._n_tokens[request] = n_tokens

    def computed(self, request: str, layer: int, tokens: tuple[int, int]) -> None:
        """Sends the layer, and moves others on."""
        if self.by_layer:
            self._session.send_layers(request, [layer], tokens)
            self._move()

    def commit(self, request: str) -> None:
        """Sends the rest."""
        if not self.by_layer:
            tokens = (0, self._n_tokens[request])
            self._session.send_layers(request, range(self._n_layers), tokens)
        self._session.commit(request)

    def expect(self, request: str, table: Sequence[int], n_tokens: int, source: str) -> None:
        """Offers the blocks to the prefill worker. If the link to it is lost, a thread connects
        again, for later requests."""
        if self._numbers.get(source) not in self._session.peers:
            if source in self._metadata and source not in self._opening:
                self._opening.add(source)
                arguments = (source, self._metadata[source])
                threading.Thread(target=self._open, args=arguments, daemon=True).start()
            raise kv.KvError(f"{source} is not connected")
        self._session.offer(
            request, table, (0, n_tokens), [self._numbers[source]], encoding=self._encoding
        )

    def abort(self, request: str, cause: str) -> None:
        """Aborts at both ends."""
        self._session.abort(request, cause)

    def poll(self) -> list[Ended]:
        """Makes progress, and keeps requests alive that wait for the other end's blocks: only the
        router gives up on them."""
        while not self._opened.empty():
            name, metadata, link = self._opened.get()
            self._opening.discard(name)
            if link is not None:
                self._connect(name, metadata, link)
        self._move()
        for request in self._n_tokens:
            self._session.renew(request)
        ended, self._ended = self._ended, []
        return ended

    def close(self) -> None:
        """Aborts what is under way and leaves the peers."""
        self._session.close(2.0)

    def _connect(self, name: str, metadata: str, link: Any = None) -> None:
        if self._metadata[name] != metadata:  # a link to a worker that was started again meanwhile
            link.close()
            return
        try:
            self._numbers[name] = self._session.connect(metadata, link=link)
        except hetccl.HetcclError as error:  # it has just died: its requests will fail
            print(f"{name}: {error}", file=sys.stderr)

    def _open(self, name: str, metadata: str) -> None:
        link = None
        try:
            link = self._session.open(metadata)
        except hetccl.HetcclError as error:
            print(f"{name}: {error}", file=sys.stderr)
        self._opened.put((name, metadata, link))

    def _move(self) -> None:
        for outcome in self._session.poll():
            self._n_tokens.pop(outcome.request, None)
            self._ended.append(Ended(outcome.request, outcome.cause))

    @property
    def bytes_sent(self) -> int:
        """Bytes on the wire."""
        metrics = self._session.metrics
        sent: int = metrics.direct_bytes + metrics.packed_bytes
        return sent if self._role == "prefill" else 0

    @property
    def in_use(self) -> dict[str, int]:
        """The session's."""
        return {"renewed": len(self._n_tokens), **self._session.in_use}
