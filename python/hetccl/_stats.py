"""Counters of a communicator."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class CommStats:
    """Counters of one communicator on this rank, since init; see hetcclCommStats_t.

    `cross_bytes_sent` counts the bytes that this rank has sent between clusters,
    `least_cross_bytes` the least that all ranks together could have sent.
    """

    operations: int
    cross_bytes_sent: int
    least_cross_bytes: int
    plans: int
