"""The receiving end of hand-offs: a decode worker."""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hetccl._lib import HetcclError
from hetccl.kv.coverage import Coverage
from hetccl.kv.description import Description, check_joinable
from hetccl.kv.errors import KvError
from hetccl.kv.messages import MODES
from hetccl.kv.pack import Blocks, checksum, unpack
from hetccl.kv.plan import Planner, place_tokens
from hetccl.kv.session import Outcome, Peer, Session
from hetccl.kv.shares import Share, divide
from hetccl.kv.transfers import Flights, settle
from hetccl.kv.wire import Segment, Wire, choose_wire


@dataclasses.dataclass(eq=False)
class _Link:
    """One sender's part of a request."""

    peer: Peer
    number: int
    request: str
    shares: tuple[Share, ...]
    wire: Wire
    coverage: Coverage
    expires: float
    flights: Flights
    staged: deque[dict[str, Any]] = dataclasses.field(default_factory=deque)  # pull: to be read
    slots: set[int] = dataclasses.field(default_factory=set)  # push: granted to the sender
    planner: Planner | None = None  # pull: of the tokens and blocks that were `planned` last
    planned: object = None
    wanted: int = 0
    is_committed: bool = False
    is_aborting: bool = False  # `abort` was sent
    is_fenced: bool = False  # the sender has no transfer under way, and begins none

    @property
    def is_complete(self) -> bool:
        whole = self.is_committed and self.coverage.is_complete
        return whole and self.flights.is_quiet and not self.staged


@dataclasses.dataclass(eq=False)
class _Request:
    blocks: Blocks
    tokens: tuple[int, int]
    lease: float
    links: list[_Link]
    failure: tuple[str, str] | None = None
    failed_at: float = 0.0
    is_forgotten: bool = False


class Receiver(Session):
    """Receives requests' cells from senders.

    `poll` reports each offered request exactly once: ok, and its blocks hold the cells, or failed,
    and they are free. Blocks of a failed or aborted request stay fenced until every sender has
    acknowledged that no byte of it moves any more, or is disconnected; then
    `release(request, blocks)` is called exactly once. Not thread-safe.
    """

    def _start(self) -> None:
        self._requests: dict[str, _Request] = {}
        self._waiting: deque[_Link] = deque()  # links that want slots

    def offer(
        self,
        request: str,
        blocks: Blocks,
        tokens: tuple[int, int],
        senders: Sequence[int] | None = None,
        *,
        mode: str = "push",
        encoding: str = "",
        lease: float | None = None,
        receivers: int = 0,
    ) -> None:
        """Offers `blocks` for `tokens`, [first, last), of a request.

        `blocks` is the request's block table, as in `hetccl.kv.plan.plan`: with a partial hit,
        `tokens` begin after the cached ones. `senders` are the ranks of the worker that computes
        the request, by the numbers that `connect` returns: peers that together hold what this end
        holds; default: all peers. `mode` "push" lets senders write into the blocks; with "pull"
        this end reads from theirs. `encoding` ("int8", "e4m3") takes a byte an element on the wire,
        with the error that `hetccl.kv.codes.encode` states. A sender that is silent
        for `lease` seconds (default: the options') fails the request. `receivers` tells senders
        that began it with None how many receivers offer it; all of these offer it to every sender
        then, those too from which they read nothing. Raises KvError for a request
        that has not ended, unknown senders, cells that no sender holds, and wrong tables.
        """
        if request in self._requests:
            raise KvError(f"request {request} was offered before, and has not ended")
        if mode not in MODES:
            raise KvError(f"mode is {mode!r}: it must be one of {MODES}")
        numbers = [*self.peers] if senders is None else list(senders)
        if unknown := [number for number in numbers if number not in self._peers]:
            raise KvError(f"request {request}: peer {unknown[0]} is not connected")
        if len({*numbers}) < len(numbers):
            raise KvError(f"request {request}: a sender is listed twice: {numbers}")
        peers = [self._peers[number] for number in numbers]
        self._check_table(blocks, tokens)
        seconds = self.options.lease if lease is None else lease
        divided = divide([peer.description for peer in peers], self.description)
        links = [
            self._make_link(peer, request, shares, tokens, encoding, seconds)
            for peer, shares in zip(peers, divided, strict=True) if shares or receivers
        ]  # fmt: skip
        table = np.asarray(blocks, np.int64).tolist()
        offers = [
            self._message(
                "offer", number=link.number, request=request, mode=mode, tokens=list(tokens),
                blocks=table, encoding=encoding, lease=seconds, receivers=receivers,
                shares=[[share.layer, share.first, share.last] for share in link.shares],
            )
            for link in links
        ]  # fmt: skip
        self._requests[request] = _Request(blocks, tokens, seconds, links)
        for link, message in zip(links, offers, strict=True):
            link.peer.last_number = link.number
            link.peer.handoffs[link.number] = link
            self._post(link.peer, message)

    def hold(self, request: str, senders: Sequence[int]) -> None:
        """Renews, at its senders, the lease of a request that will be offered later. Skips peers
        that are gone.
        """
        for number in senders:
            if number in self._peers:
                self._send(self._peers[number], "hold", request=request)

    def abort(
        self, request: str, cause: str = "the decode was aborted", forget: bool = False
    ) -> bool:
        """Aborts a request; its blocks stay in use until `release` is called with them.

        `poll` reports it as failed then, and with `forget` not at all. Returns False if it has
        ended. May be called again to forget a request that is failing already.
        """
        found = self._requests.get(request)
        if found is None:
            return False
        found.is_forgotten = found.is_forgotten or forget
        if found.failure is None:
            self.metrics.aborts += 1
            self._fail(found, "aborted", cause)
        return True

    @property
    def _is_idle(self) -> bool:
        return not self._requests

    @property
    def _moves(self) -> bool:
        return bool(self._requests or self._outcomes)

    def _expiries(self) -> list[float]:
        return []

    def _count_requests(self) -> dict[str, int]:
        n_links = sum(len(peer.handoffs) for peer in self._peers.values())
        return {"requests": len(self._requests), "hand-offs": n_links}

    def _abort_all(self, cause: str) -> None:
        for request in self._requests.values():
            self._fail(request, "closed", cause)

    def _check_peer(self, description: Description) -> None:
        check_joinable(description, self.description)

    def _check_table(self, blocks: Blocks, tokens: tuple[int, int]) -> None:
        first, last = tokens
        if not 0 <= first <= last:
            raise KvError(f"tokens are {tokens}: they must be [first, last)")
        place_tokens(self.description, blocks, tokens)
        size = self.description.block_size
        used = np.asarray(blocks, np.int64)[first // size : -(-last // size)]
        if len(np.unique(used)) < len(used):
            raise KvError(f"{self.description.name}: the table lists a block twice")

    def _make_link(
        self,
        peer: Peer,
        request: str,
        shares: tuple[Share, ...],
        tokens: tuple[int, int],
        encoding: str,
        lease: float,
    ) -> _Link:
        return _Link(
            peer, peer.last_number + 1, request, shares,
            choose_wire(peer.description, self.description, encoding),
            Coverage(shares, tokens, len(self.description.head_sizes)),
            self._clock() + lease,
            Flights(self._budget, self.metrics, self._clock),
        )  # fmt: skip

    # Messages of senders.

    def _handle(self, peer: Peer, via: Any, kind: str, values: dict[str, Any]) -> None:
        if kind == "renew":
            for number in values["numbers"]:
                self._touch(peer.handoffs.get(number))
            return
        link: _Link | None = peer.handoffs.get(values["number"])
        if link is None:
            if kind == "abort":  # it has ended here: nothing is under way
                ending = {name: values[name] for name in ("number", "reason", "cause")}
                self._send(peer, "abort", **ending)
            return
        self._touch(link)
        request = self._requests[link.request]
        if kind in ("abort", "aborted"):
            link.is_fenced = link.is_fenced or kind == "aborted"
            self._fail(request, values["reason"], f"{peer.name}: {values['cause']}")
        elif request.failure is None:
            self._take_cells(request, link, kind, values)

    def _take_cells(
        self, request: _Request, link: _Link, kind: str, values: dict[str, Any]
    ) -> None:
        if kind == "want":
            if not link.wanted and values["slots"]:
                self._waiting.append(link)
            link.wanted += values["slots"]
            self._grant()
        elif kind == "landed":
            link.coverage.check(values["segments"])
            self._land(request, link, values["segments"], values["checksum"])
        elif kind == "chunk":
            self._take_chunk(request, link, values)
        elif kind == "staged":
            if values["slot"] >= link.peer.slots:
                raise KvError(f"slot {values['slot']} of {link.peer.slots}")
            link.coverage.check(values["segments"])
            link.staged.append(values)
        elif kind == "ready":
            self._read_blocks(request, link, values)
        elif kind == "commit":
            if values["cells"] != link.coverage.expected:
                raise KvError(f"{values['cells']} cells, and {link.coverage.expected} were offered")
            link.is_committed = True
        else:
            raise KvError(f"a sender sends no {kind}")

    def _touch(self, link: _Link | None) -> None:
        if link is not None and link.request in self._requests:
            link.expires = self._clock() + self._requests[link.request].lease

    def _land(
        self, request: _Request, link: _Link, segments: list[Segment], proof: int | None
    ) -> None:
        """Counts the cells that are in the blocks, if their checksum is right."""
        if proof is not None:
            found = 0
            for segment in segments:
                found = checksum(self._cache.gather(request.blocks, segment), found)
            if found != proof:
                self._fail(request, "checksum", self._wrong_bytes(link, segments))
                return
        link.coverage.add(segments)

    def _take_chunk(self, request: _Request, link: _Link, values: dict[str, Any]) -> None:
        slot, segments = values["slot"], values["segments"]
        if slot not in link.slots:
            raise KvError(f"a chunk in slot {slot}, which was not granted")
        if self._unpack(request, link, slot, segments, values["checksum"]):
            link.slots.remove(slot)
            self._slots.free(slot)
            self._grant()

    def _unpack(
        self,
        request: _Request,
        link: _Link,
        slot: int,
        segments: list[Segment],
        proof: int | None,
    ) -> bool:
        """Scatters a chunk from staging. Returns False if the request fails by it."""
        link.coverage.check(segments)
        size = sum(map(link.wire.bytes_of, segments))
        if size > self._slots.slot_bytes:
            raise KvError(f"a chunk of {size} bytes in a slot of {self._slots.slot_bytes}")
        data = self._slots.at(slot, size)
        if proof is not None and checksum(data) != proof:
            self._fail(request, "checksum", self._wrong_bytes(link, segments))
            return False
        began = self._clock()
        unpack(self._cache, request.blocks, segments, link.wire, data)
        settle(self._cache.device)
        self.metrics.pack_ms += 1000 * (self._clock() - began)
        self.metrics.chunks += 1
        self.metrics.packed_bytes += size
        link.coverage.add(segments)
        return True

    def _wrong_bytes(self, link: _Link, segments: list[Segment]) -> str:
        one = segments[0]
        return (
            f"request {link.request}: the checksum of a chunk from {link.peer.name} is wrong, at "
            f"layer {one.layer}, tokens {one.first_token} to {one.last_token - 1}"
        )

    def _grant(self) -> None:
        """Gives free slots to links that wait, one each in turn."""
        granted: dict[_Link, list[int]] = {}
        while self._waiting and self._slots.n_free:
            link = self._waiting.popleft()
            slot = self._slots.take()
            if slot is None:
                break
            granted.setdefault(link, []).append(slot)
            link.slots.add(slot)
            link.wanted -= 1
            if link.wanted:
                self._waiting.append(link)
        for link, slots in granted.items():
            self._send(link.peer, "grant", number=link.number, slots=slots)

    def _read_blocks(self, request: _Request, link: _Link, values: dict[str, Any]) -> None:
        """Pull: reads the cells that go direct from the sender's blocks."""
        first = max(values["tokens"][0], request.tokens[0])
        last = min(values["tokens"][1], request.tokens[1])
        chosen = {*values["layers"]}
        facts = ((first, last), values["blocks"], values["least"])
        if link.planner is None or link.planned != facts:
            link.planner, link.planned = Planner(
                link.peer.description, self.description, values["blocks"], request.blocks,
                (first, last), encoding=link.wire.encoding, least_bytes=values["least"],
            ), facts  # fmt: skip
        made = link.planner.plan([share for share in link.shares if share.layer in chosen])
        if not made.direct:
            raise KvError("ready names cells that do not go direct")
        link.coverage.check(made.direct)
        blocks = np.ascontiguousarray(made.pieces[:, [2, 3, 0, 1, 4]])
        proof, segments = values["checksum"], list(made.direct)
        self._get(request, link, blocks, b"", lambda: self._land(request, link, segments, proof))
        self.metrics.pieces += len(made.pieces)
        self.metrics.direct_bytes += made.direct_bytes

    def _read_staged(self, request: _Request, link: _Link) -> None:
        """Pull: reads chunks from the sender's staging, as far as slots are free."""
        while link.staged and request.failure is None:
            if self._budget.is_spent:
                self.metrics.transfer_waits += 1
                return
            slot = self._slots.take()
            if slot is None:
                self.metrics.staging_waits += 1
                return
            values = link.staged.popleft()
            segments, source = values["segments"], values["slot"]
            size = sum(map(link.wire.bytes_of, segments))
            if size > min(link.peer.slot_bytes, self._slots.slot_bytes):
                self._slots.free(slot)
                cause = f"{link.peer.name}: a chunk of {size} bytes is larger than a slot"
                self._fail(request, "protocol", cause)
                return
            at, to = source * link.peer.slot_bytes, slot * self._slots.slot_bytes
            row = [self._staging.id, to, link.peer.staging, at, size]
            self._get_chunk(request, link, np.array([row], np.int64), slot, values)

    def _get_chunk(
        self, request: _Request, link: _Link, row: Any, slot: int, values: dict[str, Any]
    ) -> None:
        def land() -> None:
            if request.failure is None:
                self._unpack(request, link, slot, values["segments"], values["checksum"])

        note = self._message("read", number=link.number, slot=values["slot"])
        self._get(request, link, row, note, land, lambda: self._slots.free(slot))

    def _get(
        self,
        request: _Request,
        link: _Link,
        blocks: Any,
        note: bytes,
        land: Callable[[], None],
        end: Callable[[], None] = lambda: None,
    ) -> None:
        """Starts a get. `land` runs if it succeeds, then `end` in any case."""

        def landed() -> None:
            try:
                land()
            except KvError as error:
                self._fail(request, "protocol", f"{link.peer.name}: {error}")

        try:
            transfer = self._endpoint.get(link.peer.links[0], blocks, note)
        except HetcclError as error:
            end()
            self._fail(request, "transfer", f"a get from {link.peer.name}: {error}")
            return
        link.flights.add(transfer, landed, end)

    def _forget_peer(self, peer: Peer, cause: str) -> None:
        for request in list(self._requests.values()):
            for link in request.links:
                if link.peer is peer:
                    link.is_fenced = True
                    if not link.is_complete:
                        self._fail(request, "peer", cause)

    def _renewable(self, peer: Peer) -> list[tuple[int, float]]:
        return [
            (link.number, request.lease)
            for request in self._requests.values() if request.failure is None
            for link in request.links if link.peer is peer
        ]  # fmt: skip

    # Progress.

    def _step(self) -> None:
        for request in list(self._requests.values()):
            for link in request.links:
                if error := link.flights.poll():
                    cause = f"a get from {link.peer.name}: {error}"
                    self._fail(request, "transfer", cause)
                if request.failure is None:
                    self._read_staged(request, link)
        self._expire()
        self._grant()
        for name, request in list(self._requests.items()):
            if request.failure is not None:
                self._end_failed(name, request)
            elif all(link.is_complete for link in request.links):
                self._end(name, request, "", "")

    def _expire(self) -> None:
        now = self._clock()
        for name, request in self._requests.items():
            for link in request.links:
                if request.failure is None and not link.is_complete and now > link.expires:
                    self.metrics.leases_expired += 1
                    silent = f"{link.peer.name} did not renew request {name}"
                    self._fail(request, "lease", f"{silent} for {request.lease:g} s")

    def _fail(self, request: _Request, kind: str, cause: str) -> None:
        """Begins to end a request: no transfer starts, and those under way are cancelled."""
        if request.failure is not None:
            return
        request.failure, request.failed_at = (kind, cause), self._clock()
        for link in request.links:
            link.flights.cancel()
            link.staged.clear()
            link.wanted = 0
        self._waiting = deque(link for link in self._waiting if link not in request.links)

    def _end_failed(self, name: str, request: _Request) -> None:
        """Sends the aborts, and ends the request once every link is fenced."""
        kind, cause = request.failure or ("", "")
        is_late = self._clock() > request.failed_at + self.options.grace
        for link in request.links:
            if link.flights.is_quiet and not link.is_fenced and not link.is_aborting:
                link.is_aborting = True
                ending = {"number": link.number, "reason": kind, "cause": cause[:2000]}
                self._send(link.peer, "abort", **ending)
            if is_late and not (link.is_fenced and link.flights.is_quiet):
                seconds = f"{self.options.grace:g} s"
                self._lose(link.peer, f"it did not stop request {name} within {seconds}")
        if all(link.is_fenced and link.flights.is_quiet for link in request.links):
            self._end(name, request, kind, cause)

    def _end(self, name: str, request: _Request, kind: str, cause: str) -> None:
        del self._requests[name]
        for link in request.links:
            link.peer.handoffs.pop(link.number, None)
            for slot in link.slots:
                self._slots.free(slot)
            link.slots.clear()
        if kind:
            self.metrics.count_failure(kind)
            self._release(name, request.blocks)
        else:
            self.metrics.requests_ok += 1
            for link in request.links:
                self._send(link.peer, "finish", number=link.number)
        if not request.is_forgotten:
            self._outcomes.append(Outcome(name, kind, cause, request.blocks))
