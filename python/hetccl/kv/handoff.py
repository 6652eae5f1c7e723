"""The records of a sender: its requests, and the hand-offs that receivers have offered."""

from __future__ import annotations

import dataclasses
import functools
from collections import deque
from typing import Any

from hetccl.kv.coverage import Ranges
from hetccl.kv.pack import Blocks
from hetccl.kv.plan import Planner
from hetccl.kv.session import Peer
from hetccl.kv.shares import Share
from hetccl.kv.transfers import Flights
from hetccl.kv.wire import Segment, Wire


@dataclasses.dataclass
class Job:
    """Cells that the prefill has computed. On a GPU they are complete once `event` has happened."""

    layers: tuple[int, ...]
    tokens: tuple[int, int]
    event: Any

    def is_computed(self) -> bool:
        """Whether the prefill has computed them. Asks the event no more once it has happened."""
        if self.event is not None and self.event.query():
            self.event = None
        return self.event is None


@dataclasses.dataclass(eq=False)
class Handoff:
    """One receiver's offer of blocks for a request, and the transfers into them."""

    peer: Peer
    link: Any  # the offer came by it, so the receiver fences it
    number: int
    request: str
    is_pull: bool
    tokens: tuple[int, int]
    blocks: list[int]
    shares: list[Share]
    wire: Wire
    lease: float
    receivers: int  # of the request, as this one says; 0 if it does not
    expires: float
    flights: Flights
    jobs: deque[Job] = dataclasses.field(default_factory=deque)
    chunks: deque[list[Segment]] = dataclasses.field(default_factory=deque)
    grants: deque[int] = dataclasses.field(default_factory=deque)
    staged: set[int] = dataclasses.field(default_factory=set)  # pull: slots that it may read
    reserved: deque[int] = dataclasses.field(default_factory=deque)  # own slots, for next chunks
    planner: Planner | None = None  # of the tokens that were planned last
    wanted: int = 0  # slots asked for, and not granted yet
    waits_since: float | None = None
    is_committed: bool = False
    is_finished: bool = False
    is_fenced: bool = False  # the receiver has no transfer under way, and begins none
    is_over: bool = False
    failure: tuple[str, str] | None = None
    failed_at: float = 0.0

    @property
    def is_quiet(self) -> bool:
        """Whether no transfer of the hand-off reads the source's blocks any more."""
        if self.is_over:
            return True
        sent = self.is_committed and self.flights.is_quiet
        return sent and (self.is_finished or not self.is_pull)

    @functools.cached_property
    def last_layer(self) -> int:
        """The last layer that the receiver has asked for."""
        return max((share.layer for share in self.shares), default=0)

    @property
    def n_cells(self) -> int:
        """The number of cells that the receiver has asked for."""
        heads = sum(share.last - share.first for share in self.shares)
        return heads * (self.tokens[1] - self.tokens[0]) * len(self.wire.head_sizes)


@dataclasses.dataclass(eq=False)
class Request:
    """A request that the engine has begun."""

    blocks: Blocks
    n_tokens: int
    receivers: int | None  # None until the first offer says it
    lease: float
    expires: float
    handoffs: list[Handoff] = dataclasses.field(default_factory=list)
    announced: Ranges = dataclasses.field(default_factory=Ranges)
    jobs: list[Job] = dataclasses.field(default_factory=list)
    is_committed: bool = False
    is_released: bool = False
    failure: tuple[str, str] | None = None

    @property
    def is_complete(self) -> bool:
        """Whether the engine has sent all, and all receivers have offered."""
        return self.is_committed and self.is_full

    @property
    def is_full(self) -> bool:
        """Whether all receivers have offered."""
        return self.receivers is not None and len(self.handoffs) >= self.receivers


def find_missing(request: Request, handoff: Handoff) -> str:
    """Returns a sentence that names a layer which was not sent, or ""."""
    for share in handoff.shares:
        if not request.announced.covers(share.layer, handoff.tokens):
            first, last = handoff.tokens
            return (
                f"request {handoff.request}: layer {share.layer} was not sent for all of tokens "
                f"{first} to {last - 1}, which {handoff.peer.name} has asked for"
            )
    return ""
