"""The sending end of hand-offs: a prefill worker."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import torch

from hetccl._lib import HetcclError
from hetccl.endpoint import MAX_NOTIFICATION
from hetccl.kv.description import Description, check_joinable
from hetccl.kv.errors import KvError
from hetccl.kv.handoff import Handoff, Job, Request, find_missing
from hetccl.kv.messages import rows_of
from hetccl.kv.pack import Blocks, checksum, pack
from hetccl.kv.plan import Planner, place_tokens
from hetccl.kv.session import Outcome, Peer, Session
from hetccl.kv.transfers import Flights, settle
from hetccl.kv.wire import Segment, choose_wire, cut

_MOST_ENDED = 4096  # requests whose ends are kept, to answer late offers


class Sender(Session):
    """Sends requests' cells to receivers while the prefill computes them.

    `release(request, blocks)` is called exactly once for each request that was begun, as soon as no
    transfer reads its blocks any more: when all is sent, or after a failure. `poll` then reports
    the request exactly once: ok if every receiver holds all cells, else failed with the first
    cause. Not thread-safe.
    """

    def _start(self) -> None:
        self._requests: dict[str, Request] = {}
        self._handoffs: list[Handoff] = []
        self._parked: list[Handoff] = []  # offers of requests that have not begun
        self._ended: OrderedDict[str, tuple[str, str]] = OrderedDict()

    def begin(
        self,
        request: str,
        blocks: Blocks,
        n_tokens: int,
        receivers: int | None = 1,
        lease: float | None = None,
    ) -> None:
        """Begins a request whose tokens [0, n_tokens) will be computed in `blocks`.

        `receivers` is the number of receivers that read from this sender (`hetccl.kv.readers`);
        None leaves it to their offers, which then have to say it.
        The request fails if for `lease` seconds (default: the options') the engine makes no call
        for it, or receivers are missing after `commit`. Raises KvError for a request that has not
        ended, or a table that does not fit.
        """
        if request in self._requests:
            raise KvError(f"request {request} was begun before, and has not ended")
        if (receivers is not None and receivers < 1) or n_tokens < 0:
            raise KvError(f"request {request}: {receivers} receivers, {n_tokens} tokens")
        place_tokens(self.description, blocks, (0, n_tokens))
        seconds = self.options.lease if lease is None else lease
        self._requests[request] = Request(
            blocks, n_tokens, receivers, seconds, self._clock() + seconds
        )
        self._ended.pop(request, None)
        for handoff in self._unpark(lambda one: one.request == request):
            self._accept(handoff)

    def send_layers(self, request: str, layers: Iterable[int], tokens: tuple[int, int]) -> bool:
        """Sends cells that are computed: `tokens`, [first, last), of `layers`.

        Call it layer by layer or chunk by chunk, in any order, for each cell once; cached tokens,
        too. On a GPU the cells are read after the work that the current stream holds now. Returns
        False if the request has ended: `poll` tells why. Raises KvError for cells outside the
        request or sent before.
        """
        found = self._requests.get(request)
        if found is None or found.failure is not None:
            return False
        first, last = tokens
        if found.is_committed or not 0 <= first <= last <= found.n_tokens:
            raise KvError(
                f"request {request}: tokens {tokens} of {found.n_tokens}"
                + (", after commit" if found.is_committed else "")
            )
        numbers = tuple(layers)
        for number in numbers:
            self.description.layer(number)
        for number in numbers if first < last else ():
            found.announced.add(number, (first, last))
        found.expires = self._clock() + found.lease
        event = None
        if self._cache.device.type == "cuda":
            event = torch.cuda.Event()  # type: ignore[no-untyped-call]
            event.record(torch.cuda.current_stream(self._cache.device))
        job = Job(numbers, (first, last), event)
        found.jobs.append(job)
        for handoff in found.handoffs:
            if handoff.failure is None:
                handoff.jobs.append(job)
        return True

    def commit(self, request: str) -> bool:
        """Says that all cells were sent. Returns False if the request has ended. Raises KvError
        that names cells which a receiver has asked for and which were not sent."""
        found = self._requests.get(request)
        if found is None or found.failure is not None:
            return False
        for handoff in found.handoffs:
            if handoff.failure is None and (missing := find_missing(found, handoff)):
                raise KvError(missing)
        found.is_committed = True
        found.expires = self._clock() + found.lease
        return True

    def renew(self, request: str) -> bool:
        """Renews the engine's lease of a request that computes for long. Returns False if it has
        ended."""
        found = self._requests.get(request)
        if found is not None:
            found.expires = self._clock() + found.lease
        return found is not None and found.failure is None

    def abort(self, request: str, cause: str = "the prefill was aborted") -> bool:
        """Aborts a request: its receivers fail with `cause`. Its blocks stay in use until
        `release` is called with them. Returns False if it has ended."""
        found = self._requests.get(request)
        if found is None or found.failure is not None:
            return False
        self.metrics.aborts += 1
        self._fail(request, found, "aborted", cause)
        return True

    @property
    def _is_idle(self) -> bool:
        return not self._requests and not self._handoffs

    @property
    def _moves(self) -> bool:
        failed = any(request.failure is not None for request in self._requests.values())
        return bool(self._handoffs or self._outcomes or failed)

    def _expiries(self) -> list[float]:
        times = [request.expires for request in self._requests.values()]
        return [*times, *(handoff.expires for handoff in self._parked)]

    def _count_requests(self) -> dict[str, int]:
        n_handoffs = len(self._handoffs) + len(self._parked)
        return {"requests": len(self._requests), "hand-offs": n_handoffs}

    def _abort_all(self, cause: str) -> None:
        for name, request in self._requests.items():
            self._fail(name, request, "closed", cause)
        for handoff in self._unpark(lambda _: True):
            self._refuse(handoff, "closed", cause)

    def _check_peer(self, description: Description) -> None:
        check_joinable(self.description, description)

    # Messages of receivers.

    def _handle(self, peer: Peer, via: Any, kind: str, values: dict[str, Any]) -> None:
        if kind == "offer":
            self._take_offer(peer, via, values)
            return
        if kind == "hold":
            self.renew(values["request"])
            return
        if kind == "renew":
            for number in values["numbers"]:
                self._touch(peer.handoffs.get(number))
            return
        handoff: Handoff | None = peer.handoffs.get(values["number"])
        if kind == "abort":
            self._take_abort(peer, handoff, values)
        elif handoff is None:
            return  # late: it has ended here
        elif kind == "finish":
            handoff.is_finished = handoff.is_fenced = True
        elif kind == "grant":
            handoff.grants.extend(self._check_grant(handoff, values["slots"]))
            handoff.wanted -= len(values["slots"])
            self._end_wait(handoff)
        elif kind == "read":
            if values["slot"] in handoff.staged:
                handoff.staged.remove(values["slot"])
                self._slots.free(values["slot"])
        else:
            raise KvError(f"a receiver sends no {kind}")
        self._touch(handoff)

    def _take_offer(self, peer: Peer, via: Any, values: dict[str, Any]) -> None:
        if values["number"] <= peer.last_number:
            raise KvError(f"offer {values['number']} after offer {peer.last_number}")
        peer.last_number = values["number"]
        try:
            wire = choose_wire(self.description, peer.description, values["encoding"])
        except KvError as error:
            ending = {"number": values["number"], "reason": "refused", "cause": str(error)}
            self._send(peer, "aborted", **ending)
            return
        handoff = Handoff(
            peer, via, values["number"], values["request"], values["mode"] == "pull",
            values["tokens"], values["blocks"], values["shares"], wire, values["lease"],
            values["receivers"], self._clock() + values["lease"],
            Flights(self._budget, self.metrics, self._clock),
        )  # fmt: skip
        peer.handoffs[handoff.number] = handoff
        if handoff.request in self._requests:
            self._accept(handoff)
        elif handoff.request in self._ended:
            self._refuse(handoff, *self._ended[handoff.request])
        else:
            self._parked.append(handoff)

    def _accept(self, handoff: Handoff) -> None:
        if self._peers.get(handoff.peer.number) is not handoff.peer:
            return  # lost while another offer was refused
        request = self._requests[handoff.request]
        refusal = ""
        if request.receivers is None:
            request.receivers = handoff.receivers or None
        if request.receivers is None:
            refusal = f"request {handoff.request}: the offer does not say how many receivers it has"
        elif request.is_full:
            refusal = f"request {handoff.request} has its {request.receivers} receivers already"
        elif handoff.tokens[1] > request.n_tokens:
            refusal = (
                f"request {handoff.request} has {request.n_tokens} tokens, not {handoff.tokens}"
            )
        elif request.is_committed:
            refusal = find_missing(request, handoff)
        if request.failure is not None or refusal:
            self._refuse(handoff, *(request.failure or ("refused", refusal)))
            return
        handoff.jobs.extend(request.jobs)
        request.handoffs.append(handoff)
        self._handoffs.append(handoff)

    def _unpark(self, is_chosen: Callable[[Handoff], bool]) -> list[Handoff]:
        """Removes and returns parked offers."""
        chosen = [one for one in self._parked if is_chosen(one)]
        self._parked = [one for one in self._parked if not is_chosen(one)]
        return chosen

    def _refuse(self, handoff: Handoff, kind: str, cause: str) -> None:
        handoff.peer.handoffs.pop(handoff.number, None)
        self._send(handoff.peer, "aborted", number=handoff.number, reason=kind, cause=cause[:2000])

    def _take_abort(self, peer: Peer, handoff: Handoff | None, values: dict[str, Any]) -> None:
        """Acknowledges an abort, at once if nothing is under way."""
        if handoff is not None and handoff in self._handoffs:
            handoff.is_fenced = True
            cause = f"{peer.name}: {values['cause']}"
            self._fail_handoff(handoff, values["reason"], cause)
            return
        if handoff is not None:
            peer.handoffs.pop(handoff.number)
            self._unpark(lambda one: one is handoff)
        ending = {name: values[name] for name in ("number", "reason", "cause")}
        self._send(peer, "aborted", **ending)

    def _touch(self, handoff: Handoff | None) -> None:
        if handoff is not None:
            handoff.expires = self._clock() + handoff.lease

    def _check_grant(self, handoff: Handoff, slots: list[int]) -> list[int]:
        if len(slots) > handoff.wanted or any(slot >= handoff.peer.slots for slot in slots):
            raise KvError(f"slots {slots[:20]} were granted, and {handoff.wanted} were wanted")
        return slots

    def _forget_peer(self, peer: Peer, cause: str) -> None:
        self._unpark(lambda one: one.peer is peer)
        for handoff in self._handoffs:
            if handoff.peer is peer:
                handoff.is_fenced = True
                if not handoff.is_finished:
                    self._fail_handoff(handoff, "peer", cause)

    def _renewable(self, peer: Peer) -> list[tuple[int, float]]:
        return [
            (one.number, one.lease)
            for one in self._handoffs if one.peer is peer and one.failure is None
        ]  # fmt: skip

    # Progress.

    def _step(self) -> None:
        for handoff in list(self._handoffs):
            error = handoff.flights.poll()
            if error and not handoff.is_finished:
                self._fail_handoff(handoff, "transfer", f"a put to {handoff.peer.name}: {error}")
        for handoff in list(self._handoffs):
            if handoff.failure is None:
                self._advance(handoff)
        if self._handoffs:  # another one has the first choice of slots next time
            self._handoffs.append(self._handoffs.pop(0))
        self._expire()
        for handoff in list(self._handoffs):
            self._conclude_handoff(handoff)
        for name, request in list(self._requests.items()):
            self._conclude(name, request)

    def _advance(self, handoff: Handoff) -> None:
        """Starts the transfers of a hand-off that may start now."""
        request = self._requests[handoff.request]
        try:
            while n := self._count_ready(request, handoff):
                if self._budget.is_spent:
                    self.metrics.transfer_waits += 1
                    break
                jobs = [handoff.jobs.popleft() for _ in range(n)]
                self._start_jobs(request, handoff, jobs)
            self._start_chunks(request, handoff)
        except KvError as error:
            self._fail_handoff(handoff, "refused", f"{handoff.peer.name}: {error}")
        except HetcclError as error:
            self._fail_handoff(handoff, "transfer", f"{handoff.peer.name}: {error}")
        is_sent = not handoff.jobs and not handoff.chunks and handoff.failure is None
        if request.is_committed and is_sent and not handoff.is_committed:
            handoff.is_committed = True
            self._send(handoff.peer, "commit", number=handoff.number, cells=handoff.n_cells)

    def _count_ready(self, request: Request, handoff: Handoff) -> int:
        """Returns how many of the next jobs start together: those of the same tokens that are
        computed; none while they have few bytes and more layers of these tokens will come."""
        tokens, layers, n = (0, 0), set[int](), 0
        for job in handoff.jobs:
            if n > 0 and job.tokens != tokens:
                return n
            if not job.is_computed():
                break
            tokens = job.tokens
            layers.update(job.layers)
            n += 1
        if n == 0 or request.is_committed:
            return n
        heads = sum(one.last - one.first for one in handoff.shares if one.layer in layers)
        cell_bytes = sum(handoff.wire.head_sizes) * self.description.item_bytes
        is_long = heads * (tokens[1] - tokens[0]) * cell_bytes >= self.options.least_send
        return n if is_long or handoff.last_layer in layers else 0

    def _start_jobs(self, request: Request, handoff: Handoff, jobs: Sequence[Job]) -> None:
        first = max(jobs[0].tokens[0], handoff.tokens[0])
        last = min(jobs[0].tokens[1], handoff.tokens[1])
        chosen = {layer for job in jobs for layer in job.layers}
        shares = [share for share in handoff.shares if share.layer in chosen]
        if first >= last or not shares:
            return
        if handoff.planner is None or handoff.planner.tokens != (first, last):
            handoff.planner = Planner(
                self.description, handoff.peer.description, request.blocks, handoff.blocks,
                (first, last), encoding=handoff.wire.encoding, least_bytes=self.options.least_piece,
            )  # fmt: skip
        made = handoff.planner.plan(shares)
        if made.direct:
            proof = self._checksum(request, made.direct)
            number = handoff.number
            if handoff.is_pull:
                self._send(
                    handoff.peer, "ready", number=number, layers=sorted({s.layer for s in shares}),
                    tokens=[first, last], blocks=np.asarray(request.blocks).tolist(),
                    least=self.options.least_piece, checksum=proof,
                )  # fmt: skip
            else:
                rows = rows_of(made.direct)
                note = self._message("landed", number=number, segments=rows, checksum=proof)
                self._put(handoff, made.pieces, note)
            self.metrics.pieces += len(made.pieces)
            self.metrics.direct_bytes += made.direct_bytes
        most = min(self._slots.slot_bytes, handoff.peer.slot_bytes)
        handoff.chunks.extend(cut(made.packed, made.wire, most))

    def _checksum(self, request: Request, segments: Sequence[Segment]) -> int | None:
        if not self.options.checksum:
            return None
        found = 0
        for segment in segments:
            found = checksum(self._cache.gather(request.blocks, segment), found)
        return found

    def _start_chunks(self, request: Request, handoff: Handoff) -> None:
        """Starts chunks that have a slot at both ends.

        A hand-off takes its own slot before it asks for the receiver's, so a granted slot is
        filled at once, and no cycle of slots that wait for each other can arise.
        """
        self._reserve_slots(handoff)
        while handoff.chunks and handoff.reserved and handoff.failure is None:
            if not handoff.is_pull and not handoff.grants:
                return
            if not handoff.is_pull and self._budget.is_spent:
                self.metrics.transfer_waits += 1
                return
            self._start_chunk(request, handoff, handoff.reserved.popleft())
            self._reserve_slots(handoff)

    def _reserve_slots(self, handoff: Handoff) -> None:
        """Takes slots for the next chunks, at most half of all, and asks for as many credits."""
        most = min(len(handoff.chunks), max(1, self.options.slots // 2))
        while len(handoff.reserved) < most:
            slot = self._slots.take()
            if slot is None:
                self.metrics.staging_waits += 1
                break
            handoff.reserved.append(slot)
        if not handoff.is_pull:
            self._request_slots(handoff)

    def _start_chunk(self, request: Request, handoff: Handoff, slot: int) -> None:
        """Packs the next chunk into `slot` and sends it, or offers it to be read."""
        chunk, peer = handoff.chunks.popleft(), handoff.peer
        began = self._clock()
        try:
            staged = self._slots.at(slot)
            size = pack(self._cache, request.blocks, chunk, handoff.wire, peer.description, staged)
            settle(self._cache.device)
        except BaseException:
            self._slots.free(slot)
            raise
        facts = {
            "number": handoff.number,
            "segments": rows_of(chunk),
            "checksum": checksum(staged[:size]) if self.options.checksum else None,
        }
        self.metrics.pack_ms += 1000 * (self._clock() - began)
        self.metrics.chunks += 1
        self.metrics.packed_bytes += size
        if handoff.is_pull:
            handoff.staged.add(slot)
            self._send(peer, "staged", slot=slot, **facts)
            return
        target = handoff.grants.popleft()
        at, to = slot * self._slots.slot_bytes, target * peer.slot_bytes
        blocks = np.array([[self._staging.id, at, peer.staging, to, size]], np.int64)
        try:
            note = self._message("chunk", slot=target, **facts)
            self._put(handoff, blocks, note, ended=lambda: self._slots.free(slot))
        except BaseException:
            self._slots.free(slot)
            raise

    def _put(
        self,
        handoff: Handoff,
        blocks: Any,
        note: bytes,
        ended: Callable[[], None] | None = None,
    ) -> None:
        """Starts a put; `note` follows it, as a message of its own where it is too long."""
        if len(note) <= MAX_NOTIFICATION:
            transfer = self._endpoint.put(handoff.link, blocks, note)
            handoff.flights.add(transfer, ended=ended)
        else:
            transfer = self._endpoint.put(handoff.link, blocks)
            handoff.flights.add(transfer, lambda: self._send_note(handoff, note), ended)

    def _send_note(self, handoff: Handoff, note: bytes) -> None:
        self._post(handoff.peer, note)

    def _request_slots(self, handoff: Handoff) -> None:
        missing = len(handoff.reserved) - len(handoff.grants) - handoff.wanted
        if missing <= 0:
            return
        handoff.wanted += missing
        if handoff.waits_since is None:
            handoff.waits_since = self._clock()
            self.metrics.credit_waits += 1
        self._send(handoff.peer, "want", number=handoff.number, slots=missing)

    def _end_wait(self, handoff: Handoff) -> None:
        if handoff.waits_since is not None:
            self.metrics.credit_wait_ms += 1000 * (self._clock() - handoff.waits_since)
            handoff.waits_since = None

    # Ends.

    def _expire(self) -> None:
        now = self._clock()
        for name, request in self._requests.items():
            if request.failure is None and not request.is_complete and now > request.expires:
                self.metrics.leases_expired += 1
                seconds = f"{request.lease:g} s"
                offers = (
                    f"{len(request.handoffs)} of {request.receivers or '?'} receivers have offered"
                )
                cause = f"request {name}: no call of the engine for {seconds}, and {offers}"
                self._fail(name, request, "lease", cause)
        for handoff in list(self._handoffs):
            if handoff.failure is None and not handoff.is_finished and now > handoff.expires:
                self.metrics.leases_expired += 1
                self._fail_handoff(
                    handoff, "lease",
                    f"{handoff.peer.name} did not renew request {handoff.request} for "
                    f"{handoff.lease:g} s",
                )  # fmt: skip
        for handoff in self._unpark(lambda one: now > one.expires):
            self.metrics.leases_expired += 1
            cause = f"request {handoff.request} was not begun within {handoff.lease:g} s"
            self._refuse(handoff, "lease", cause)

    def _fail(self, name: str, request: Request, kind: str, cause: str) -> None:
        request.failure = request.failure or (kind, cause)
        for handoff in request.handoffs:
            self._fail_handoff(handoff, kind, cause)
        self._ended[name] = (kind, cause)

    def _fail_handoff(self, handoff: Handoff, kind: str, cause: str) -> None:
        """Begins to end a hand-off: no transfer starts, and those under way are cancelled."""
        if handoff.failure is not None or handoff.is_over:
            return
        handoff.failure, handoff.failed_at = (kind, cause), self._clock()
        self._end_wait(handoff)
        handoff.jobs.clear()
        handoff.chunks.clear()
        while handoff.reserved:
            self._slots.free(handoff.reserved.pop())
        handoff.flights.cancel()
        if handoff.is_pull and not handoff.is_fenced:
            ending = {"number": handoff.number, "reason": kind, "cause": cause[:2000]}
            self._send(handoff.peer, "abort", **ending)

    def _conclude_handoff(self, handoff: Handoff) -> None:
        """Ends a hand-off once no byte of it moves any more."""
        if handoff.failure is None:
            if not (handoff.is_finished and handoff.is_committed and handoff.flights.is_quiet):
                return
        elif not handoff.flights.is_quiet or (handoff.is_pull and not handoff.is_fenced):
            if self._clock() > handoff.failed_at + self.options.grace:
                cause = f"it did not end request {handoff.request} within {self.options.grace:g} s"
                self._lose(handoff.peer, cause)
            return
        handoff.is_over = True
        self._handoffs.remove(handoff)
        for slot in handoff.staged:
            self._slots.free(slot)
        handoff.staged.clear()
        if handoff.failure is not None and not handoff.is_finished:
            self._refuse(handoff, *handoff.failure)
        handoff.peer.handoffs.pop(handoff.number, None)

    def _conclude(self, name: str, request: Request) -> None:
        all_over = all(one.is_over for one in request.handoffs)
        # Receivers that have all failed end a request whose prefill still computes.
        if not (request.failure or request.is_complete or (request.is_full and all_over)):
            return
        if not request.is_released and all(one.is_quiet for one in request.handoffs):
            request.is_released = True
            self._release(name, request.blocks)
        if not all_over or not request.is_released:
            return
        del self._requests[name]
        causes = [request.failure, *(one.failure for one in request.handoffs)]
        kind, cause = next((one for one in causes if one is not None), ("", ""))
        self._ended[name] = (kind or "refused", cause or f"request {name} has ended")
        while len(self._ended) > _MOST_ENDED:
            self._ended.popitem(last=False)
        if kind:
            self.metrics.count_failure(kind)
        else:
            self.metrics.requests_ok += 1
        self._outcomes.append(Outcome(name, kind, cause, request.blocks))
