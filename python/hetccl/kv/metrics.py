"""Counters of a session."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass
class Metrics:
    """Counters of one `Sender` or `Receiver` since it was made; they only grow.

    Bytes are payload: of direct pieces, and of packed chunks as they are on the wire. `*_ms` are
    milliseconds added up over all transfers, waits or packed chunks.
    """

    requests_ok: int = 0
    requests_failed: int = 0
    transfers: int = 0
    pieces: int = 0
    chunks: int = 0
    direct_bytes: int = 0
    packed_bytes: int = 0
    transfer_ms: float = 0.0
    pack_ms: float = 0.0
    credit_waits: int = 0  # a sender had chunks, and no slot at the receiver
    credit_wait_ms: float = 0.0
    staging_waits: int = 0  # polls of a hand-off in which chunks had no slot at this end
    transfer_waits: int = 0  # polls of a hand-off in which most_transfers were under way
    leases_expired: int = 0
    aborts: int = 0  # requests aborted by this end's engine
    peers_lost: int = 0
    messages_refused: int = 0
    failures: dict[str, int] = dataclasses.field(default_factory=dict)  # requests, by kind

    def count_failure(self, kind: str) -> None:
        """Counts a request that has failed."""
        self.requests_failed += 1
        self.failures[kind] = self.failures.get(kind, 0) + 1
